/* SPDX-License-Identifier: MIT */
/*
 * program.h - runs the program as a user does. To be included after cmocka.h.
 */
#ifndef WEFT_TESTS_PROGRAM_H
#define WEFT_TESTS_PROGRAM_H

#include "scratch.h"

typedef struct {
    wt_scratch scratch;
    char out[1 << 20], err[1 << 16]; /* of the last run */
} wt_program;

/* 0, or -1 with a message when WEFT_PROGRAM is not set. */
int wt_program_make(wt_program *p);
/* Runs commands of the shell, in which $W is the program and $D the scratch folder; returns the exit
 * status. */
int wt_program_shell(wt_program *p, const char *commands);
/* The same of the program with arguments. */
int wt_program_run(wt_program *p, const char *args);
/* It succeeds. */
void wt_program_ok(wt_program *p, const char *args);
/* It fails so, prints nothing on stdout, and one line on stderr with this in it. */
void wt_program_fails(wt_program *p, int code, const char *args, const char *sentence);
/* stdout, or stderr, has this in it. */
void wt_program_out(const wt_program *p, const char *text);
void wt_program_err(const wt_program *p, const char *text);

#endif

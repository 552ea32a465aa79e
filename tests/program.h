/* SPDX-License-Identifier: MIT */
/*
 * program.h - runs the weft program as a user does: through a shell, checking status and output.
 * Include after cmocka.h.
 */
#ifndef WEFT_TESTS_PROGRAM_H
#define WEFT_TESTS_PROGRAM_H

#include "scratch.h"

typedef struct {
    wt_scratch scratch;
    char out[1 << 20], err[1 << 16]; /* output of the last run */
} wt_program;

/* Returns 0, or -1 with a message when WEFT_PROGRAM is not set. */
int wt_program_make(wt_program *p);
/* Runs shell commands and returns the exit status. $W is the program, $D the scratch folder. */
int wt_program_shell(wt_program *p, const char *commands);
/* Like wt_program_shell, for the program with these arguments. */
int wt_program_run(wt_program *p, const char *args);
/* Fails the test unless the program exits with status 0. */
void wt_program_ok(wt_program *p, const char *args);
/* Fails the test unless the program exits with `code`, prints nothing on stdout, and prints one
 * line on stderr that contains `sentence`. */
void wt_program_fails(wt_program *p, int code, const char *args, const char *sentence);
/* Fails the test unless stdout (or stderr) contains `text`. */
void wt_program_out(const wt_program *p, const char *text);
void wt_program_err(const wt_program *p, const char *text);

#endif

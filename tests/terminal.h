/* SPDX-License-Identifier: MIT */
/* terminal.h - runs shell commands on a pseudo-terminal and types to them. Include after
 * cmocka.h. */
#ifndef WEFT_TESTS_TERMINAL_H
#define WEFT_TESTS_TERMINAL_H

#include <sys/types.h>

typedef struct {
    pid_t child;
    int fd;
    char seen[1 << 16]; /* output after the last wt_terminal_await */
    size_t len;
} wt_terminal;

/* Starts sh with these commands on a terminal of 80 columns and 24 rows, with TERM=xterm and
 * NO_COLOR unset. */
void wt_terminal_start(wt_terminal *t, const char *commands);
void wt_terminal_resize(wt_terminal *t, int columns, int rows);
void wt_terminal_type(wt_terminal *t, const char *keys);
/* Waits until the text appears. Returns the output up to its end, and removes that output from
 * `seen`. */
const char *wt_terminal_await(wt_terminal *t, const char *text);
/* Waits for the end and returns the exit status; `seen` holds the output after the last await. */
int wt_terminal_end(wt_terminal *t);

#endif

/* SPDX-License-Identifier: MIT */
/* terminal.h - runs shell commands on a pseudo-terminal and types to them. To be included after cmocka.h. */
#ifndef WEFT_TESTS_TERMINAL_H
#define WEFT_TESTS_TERMINAL_H

#include <sys/types.h>

typedef struct {
    pid_t child;
    int fd;
    char seen[1 << 16]; /* what came after the last wt_terminal_await */
    size_t len;
} wt_terminal;

/* Commands of sh, whose terminal this is, with 80 columns, 24 rows and TERM=xterm. NO_COLOR is not set. */
void wt_terminal_start(wt_terminal *t, const char *commands);
void wt_terminal_resize(wt_terminal *t, int columns, int rows);
void wt_terminal_type(wt_terminal *t, const char *keys);
/* Waits until the text appears and returns all that came up to its end, which later calls do not see. */
const char *wt_terminal_await(wt_terminal *t, const char *text);
/* Waits for the end and returns the exit status; what came after the last await is in seen. */
int wt_terminal_end(wt_terminal *t);

#endif

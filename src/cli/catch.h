/* SPDX-License-Identifier: MIT */
/*
 * catch.h - defers signals while the program writes files, so that incomplete files are removed
 * first.
 *
 * The progress callback polls wf_caught and fails when it returns true.
 */
#ifndef WF_CLI_CATCH_H
#define WF_CLI_CATCH_H

#include <stdbool.h>

/* Defers the first SIGINT, SIGTERM and SIGHUP, except those that are ignored (nohup). A second
 * signal of the same kind ends the program at once. */
void wf_catch_begin(void);
/* Returns whether a signal was deferred. */
bool wf_caught(void);
/* Restores the handlers and raises the deferred signal. */
void wf_catch_end(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * catch.h - signals that end the program, while it writes: what is not whole is removed first.
 *
 * The work asks now and then, from where it tells its progress, and ends as if it had failed.
 */
#ifndef WF_CLI_CATCH_H
#define WF_CLI_CATCH_H

#include <stdbool.h>

/* From now on the first SIGINT, SIGTERM and SIGHUP are kept, unless they were ignored (as nohup has it). The second of
 * a kind ends the program at once. */
void wf_catch_begin(void);
/* Has one come? */
bool wf_caught(void);
/* They do again what they did before, and one that was kept does it now. */
void wf_catch_end(void);

#endif

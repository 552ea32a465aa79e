/* SPDX-License-Identifier: MIT */
/*
 * keys.h - reads single keys from the terminal on stdin.
 *
 * Between wf_keys_begin and wf_keys_end the terminal is in raw mode with bracketed paste. A signal
 * that ends or stops the program restores the terminal first.
 */
#ifndef WF_CLI_KEYS_H
#define WF_CLI_KEYS_H

#include "base/ctx.h"

typedef struct wf_keys wf_keys;

enum {
    WF_KEYS_END = -1,       /* the terminal is gone */
    WF_KEYS_RESIZED = -2,   /* draw again */
    WF_KEYS_CONTINUED = -3, /* the program was stopped: draw again on a new line */
    WF_KEYS_SUSPEND = -4,   /* SIGTSTP came: call wf_keys_suspend */
    WF_KEYS_NONE = -5,      /* no byte came in time */
};

wf_status wf_keys_new(wf_ctx *ctx, wf_keys **out);
void wf_keys_free(wf_keys *k); /* accepts NULL */

wf_status wf_keys_begin(wf_keys *k);
void wf_keys_end(wf_keys *k);
/* Returns the next byte, or one of the constants above. timeout_ms < 0: no timeout. */
int wf_keys_next(wf_keys *k, int timeout_ms);
/* Returns whether more bytes have arrived. */
bool wf_keys_pending(const wf_keys *k);
/* Stops the program like Ctrl-Z; with `group`, its whole process group. Returns when it
 * continues. */
wf_status wf_keys_suspend(wf_keys *k, bool group);

#endif

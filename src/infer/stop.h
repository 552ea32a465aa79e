/* SPDX-License-Identifier: MIT */
/*
 * stop.h - finds stop strings in text that arrives in pieces.
 *
 * The text ends at the first byte that completes a stop string, and is cut before the longest stop
 * string complete there. The result does not depend on how the text is divided into pieces. Text
 * that may begin a stop string is held back until the next bytes decide.
 */
#ifndef WF_INFER_STOP_H
#define WF_INFER_STOP_H

#include "base/ctx.h"

#define WF_STOPS_MAX 64
#define WF_STOP_BYTES 1024 /* longest stop string */

typedef struct wf_stopper wf_stopper;

/* Copies the stop strings; stops may be 0. An empty or too long string, or too many of them, is
 * WF_ERR_USAGE. */
wf_status wf_stopper_new(wf_ctx *ctx, const char *const *stop, int stops, wf_stopper **out);
void wf_stopper_free(wf_stopper *s);

/* Takes the next piece of UTF-8 text. *out is the text that is certain, in whole characters,
 * borrowed until the next call. *stopped: the text has ended; later pieces return nothing. Fails
 * only for lack of memory; the caller may then pass the same piece again. */
wf_status wf_stopper_next(wf_stopper *s, const char *piece, size_t bytes, const char **out,
                          size_t *out_bytes, bool *stopped);
/* Ends the text: returns what was held back, and resets the stopper for another text. */
void wf_stopper_end(wf_stopper *s, const char **out, size_t *out_bytes);

#endif

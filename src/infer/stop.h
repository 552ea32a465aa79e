/* SPDX-License-Identifier: MIT */
/*
 * stop.h - stop texts in text that comes piece by piece.
 *
 * The text ends with the first byte at which a stop text is complete, and what is left of it ends before
 * the longest one that is complete there: the same however the text is cut into pieces. What may be the
 * beginning of a stop text is held back until that is known.
 */
#ifndef WF_INFER_STOP_H
#define WF_INFER_STOP_H

#include "base/ctx.h"

#define WF_STOPS_MAX 64
#define WF_STOP_BYTES 1024 /* of one stop text, at most */

typedef struct wf_stopper wf_stopper;

/* Stop texts that are empty, too many or too long are WF_ERR_USAGE. They are copied; none are fine. */
wf_status wf_stopper_new(wf_ctx *ctx, const char *const *stop, int stops, wf_stopper **out);
void wf_stopper_free(wf_stopper *s);

/* The next piece of a text that is UTF-8. *out is what is sure to belong to the text, whole characters,
 * borrowed until the next call. *stopped: the text has ended, and further pieces give nothing. After a
 * failure, which is one of memory, the piece may be given again. */
wf_status wf_stopper_next(wf_stopper *s, const char *piece, size_t bytes, const char **out,
                          size_t *out_bytes, bool *stopped);
/* The text ends here: what was held back. The stopper may then be used for another text. */
void wf_stopper_end(wf_stopper *s, const char **out, size_t *out_bytes);

#endif

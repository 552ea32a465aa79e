/* SPDX-License-Identifier: MIT */
/*
 * stream.h - encodes a text that arrives in pieces, in bounded memory.
 *
 * The ids equal those of the whole text. If the tokenizer's texts can be cut (cut.c), the stream
 * buffers only the bytes after the last cut; otherwise it buffers the whole text.
 */
#ifndef WF_TEXT_STREAM_H
#define WF_TEXT_STREAM_H

#include "text/token.h"

#define WF_STREAM_WORD ((size_t)32 << 20)   /* most bytes without a cut */
#define WF_STREAM_WHOLE ((size_t)256 << 20) /* most bytes when texts cannot be cut */

typedef struct wf_stream wf_stream;

/* flags: as for wf_tokenizer_encode. */
wf_status wf_stream_new(const wf_tokenizer *t, wf_ctx *ctx, uint32_t flags, wf_stream **out);
void wf_stream_free(wf_stream *s); /* s may be NULL */
/* Takes the next bytes, which may end inside a character. Returns the ids that are certain,
 * borrowed until the next call. WF_ERR_USAGE beyond the limits above. */
wf_status wf_stream_feed(wf_stream *s, const char *text, size_t bytes, const int32_t **ids,
                         size_t *count);
/* Ends the text: returns the remaining ids and resets the stream. */
wf_status wf_stream_end(wf_stream *s, const int32_t **ids, size_t *count);

#endif

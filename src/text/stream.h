/* SPDX-License-Identifier: MIT */
/*
 * stream.h - encodes a text that arrives in pieces, in memory that does not grow with the text.
 *
 * The ids are those of the whole text. A tokenizer that can be cut (cut.c) keeps what follows the last
 * place to cut; another keeps the whole text.
 */
#ifndef WF_TEXT_STREAM_H
#define WF_TEXT_STREAM_H

#include "text/token.h"

#define WF_STREAM_WORD ((size_t)32 << 20)   /* most bytes without a place to cut */
#define WF_STREAM_WHOLE ((size_t)256 << 20) /* most bytes for a tokenizer that cannot be cut */

typedef struct wf_stream wf_stream;

/* Flags as for wf_tokenizer_encode. */
wf_status wf_stream_new(const wf_tokenizer *t, wf_ctx *ctx, uint32_t flags, wf_stream **out);
void wf_stream_free(wf_stream *s); /* NULL is fine */
/* Takes the next bytes, which may end within a character, and gives the ids that are certain: borrowed
 * until the next call. WF_ERR_USAGE beyond the limits above. */
wf_status wf_stream_feed(wf_stream *s, const char *text, size_t bytes, const int32_t **ids,
                         size_t *count);
/* The rest; the stream begins anew. */
wf_status wf_stream_end(wf_stream *s, const int32_t **ids, size_t *count);

#endif

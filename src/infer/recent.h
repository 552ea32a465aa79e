/* SPDX-License-Identifier: MIT */
/*
 * recent.h - the recent tokens of a sequence, and how often each of them occurs.
 *
 * Memory is proportional to the tokens seen so far, up to the size of the window. It depends neither
 * on the vocabulary nor on the window that was asked for.
 */
#ifndef WF_INFER_RECENT_H
#define WF_INFER_RECENT_H

#include "base/ctx.h"

typedef struct {
    int32_t id;
    uint32_t count; /* > 0 */
} wf_recent_token;

typedef struct {
    int64_t last;           /* size of the window in tokens; -1: all tokens */
    wf_recent_token *token; /* [slots / 2], of which `count`: each distinct token once, unordered */
    size_t count;
    uint32_t *index; /* [slots] hash table: 1 + index in `token`; 0: empty */
    size_t slots;    /* a power of two, at least 2 * count; 0: nothing allocated yet */
    int32_t *ring;   /* [room] tokens of the window, to drop the oldest; NULL if last is -1 */
    size_t room;     /* grows up to `last` */
    size_t at;       /* next position in the ring */
    size_t filled;   /* tokens in the ring */
} wf_recent;

/* Initialise with {.last = last}. Adds a token, and drops the oldest one if the window is full. A
 * failed allocation changes nothing. */
wf_status wf_recent_add(wf_ctx *ctx, wf_recent *r, int32_t id);
void wf_recent_free(wf_ctx *ctx, wf_recent *r);

#endif

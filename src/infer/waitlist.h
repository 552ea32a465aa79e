/* SPDX-License-Identifier: MIT */
/*
 * waitlist.h - the requests that wait, in the order in which they start.
 *
 * Higher priorities come first. Within a priority, keys take turns: a key whose request started goes
 * to the end of the round, like a key that is new. Within a key the first request comes first. A
 * sequence that was preempted continues before new requests of its priority. All operations take
 * O(log keys).
 */
#ifndef WF_INFER_WAITLIST_H
#define WF_INFER_WAITLIST_H

#include "base/ctx.h"

typedef struct wf_line wf_line;
typedef struct wf_ticket wf_ticket;

/* A sequence's place in the queue, embedded in it. */
struct wf_ticket {
    int priority;
    uint64_t key;
    uint64_t arrival; /* set by wf_waitlist_add: the number of earlier requests */
    wf_line *line;    /* where it waits; NULL: it does not, or it was preempted */
    wf_ticket *before, *after;
    bool resumes; /* waits after a preemption */
};

typedef struct {
    wf_ctx *ctx;
    wf_line **heap; /* [lines] the line that starts next on top */
    int lines, room;
    wf_line **bucket; /* [buckets] lines by key and priority; a power of two, or 0 */
    size_t buckets;
    wf_ticket *resumed; /* preempted, in the order in which they continue */
    uint64_t arrivals;
    uint64_t turns; /* given to lines so far */
    int64_t count;  /* waiting, preempted ones included */
} wf_waitlist;

void wf_waitlist_init(wf_waitlist *q, wf_ctx *ctx);
/* Frees the queue's memory, not the tickets. */
void wf_waitlist_free(wf_waitlist *q);

/* Adds a request. After a failure (no memory) the ticket does not wait. */
wf_status wf_waitlist_add(wf_waitlist *q, wf_ticket *t);
/* Adds a sequence again that was preempted. */
void wf_waitlist_resume(wf_waitlist *q, wf_ticket *t);
/* Returns the ticket that starts next, or NULL. */
wf_ticket *wf_waitlist_first(const wf_waitlist *q);
/* Removes a waiting ticket. started: its key has had its turn. */
void wf_waitlist_remove(wf_waitlist *q, wf_ticket *t, bool started);

/* Returns whether a comes before b if both run: by priority, then by arrival. */
bool wf_ticket_before(const wf_ticket *a, const wf_ticket *b);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * waitlist.c - see waitlist.h.
 *
 * The waiting requests of one key and priority form a line. A line exists while something waits in
 * it. A new line takes the last turn, so a key that always has one request takes turns with a key
 * that has a thousand.
 */
#include "infer/waitlist.h"

#include "base/hash.h"
#include "base/mem.h"

struct wf_line {
    int priority;
    uint64_t key;
    uint64_t turn; /* the smallest of a priority is next */
    wf_ticket *first, *last;
    int at;        /* index in the heap */
    wf_line *next; /* in its bucket */
};

void wf_waitlist_init(wf_waitlist *q, wf_ctx *ctx)
{
    *q = (wf_waitlist){.ctx = ctx};
}

void wf_waitlist_free(wf_waitlist *q)
{
    for (int i = 0; i < q->lines; i++)
        wf_mem_free(q->ctx, q->heap[i]);
    if (q->ctx) {
        wf_mem_free(q->ctx, q->heap);
        wf_mem_free(q->ctx, q->bucket);
    }
    *q = (wf_waitlist){0};
}

bool wf_ticket_before(const wf_ticket *a, const wf_ticket *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
}

/* ---- The heap of lines ---- */

static bool above(const wf_line *a, const wf_line *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->turn < b->turn;
}

static void put(wf_waitlist *q, int i, wf_line *l)
{
    q->heap[i] = l;
    l->at = i;
}

/* Moves the line at index i to its place. */
static void settle(wf_waitlist *q, int i)
{
    wf_line *l = q->heap[i];
    for (; i > 0 && above(l, q->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(q, i, q->heap[(i - 1) / 2]);
    for (int child; (child = 2 * i + 1) < q->lines; i = child) {
        if (child + 1 < q->lines && above(q->heap[child + 1], q->heap[child]))
            child++;
        if (!above(q->heap[child], l))
            break;
        put(q, i, q->heap[child]);
    }
    put(q, i, l);
}

/* ---- The table of lines ---- */

static wf_line **bucket_of(const wf_waitlist *q, int priority, uint64_t key)
{
    uint32_t hash = wf_hash_u64(key ^ (uint64_t)wf_hash_u64((uint64_t)(int64_t)priority) << 32);
    return &q->bucket[hash & (q->buckets - 1)];
}

static wf_line *find(const wf_waitlist *q, int priority, uint64_t key)
{
    wf_line *l = q->buckets ? *bucket_of(q, priority, key) : NULL;
    while (l && (l->key != key || l->priority != priority))
        l = l->next;
    return l;
}

/* Keeps at least one bucket per line. */
static wf_status grow_table(wf_waitlist *q)
{
    if ((size_t)q->lines < q->buckets)
        return WF_OK;
    size_t more = q->buckets ? 2 * q->buckets : 16;
    wf_line **bucket = wf_mem_array(q->ctx, more, sizeof *bucket);
    if (!bucket)
        return WF_ERR_MEMORY;
    wf_mem_free(q->ctx, q->bucket);
    q->bucket = bucket;
    q->buckets = more;
    for (int i = 0; i < q->lines; i++) {
        wf_line **b = bucket_of(q, q->heap[i]->priority, q->heap[i]->key);
        q->heap[i]->next = *b;
        *b = q->heap[i];
    }
    return WF_OK;
}

/* ---- Lines ---- */

static wf_status open_line(wf_waitlist *q, wf_ticket *t, wf_line **out)
{
    WF_TRY(grow_table(q));
    wf_line **heap = wf_mem_room(q->ctx, q->heap, q->lines, &q->room, sizeof *heap);
    if (!heap)
        return WF_ERR_MEMORY;
    q->heap = heap;
    wf_line *l = wf_mem_new(q->ctx, sizeof *l);
    if (!l)
        return WF_ERR_MEMORY;
    *l = (wf_line){.priority = t->priority, .key = t->key, .turn = q->turns++, .first = t};
    wf_line **b = bucket_of(q, l->priority, l->key);
    l->next = *b;
    *b = l;
    put(q, q->lines++, l);
    settle(q, l->at);
    *out = l;
    return WF_OK;
}

/* Removes an empty line. */
static void close_line(wf_waitlist *q, wf_line *l)
{
    wf_line **b = bucket_of(q, l->priority, l->key);
    while (*b != l)
        b = &(*b)->next;
    *b = l->next;
    int at = l->at;
    wf_line *last = q->heap[--q->lines];
    if (last != l) {
        put(q, at, last);
        settle(q, at);
    }
    wf_mem_free(q->ctx, l);
}

/* ---- Requests ---- */

wf_status wf_waitlist_add(wf_waitlist *q, wf_ticket *t)
{
    wf_line *l = find(q, t->priority, t->key);
    t->arrival = q->arrivals;
    t->before = l ? l->last : NULL;
    t->after = NULL;
    t->resumes = false;
    if (!l)
        WF_TRY(open_line(q, t, &l));
    else
        l->last->after = t;
    l->last = t;
    t->line = l;
    q->arrivals++;
    q->count++;
    return WF_OK;
}

/* As many sequences wait here as were running, so a list suffices. */
void wf_waitlist_resume(wf_waitlist *q, wf_ticket *t)
{
    wf_ticket *before = NULL, *after = q->resumed;
    while (after && wf_ticket_before(after, t)) {
        before = after;
        after = after->after;
    }
    t->line = NULL;
    t->resumes = true;
    t->before = before;
    t->after = after;
    *(before ? &before->after : &q->resumed) = t;
    if (after)
        after->before = t;
    q->count++;
}

wf_ticket *wf_waitlist_first(const wf_waitlist *q)
{
    wf_ticket *fresh = q->lines > 0 ? q->heap[0]->first : NULL;
    if (!q->resumed || !fresh)
        return q->resumed ? q->resumed : fresh;
    return q->resumed->priority >= fresh->priority ? q->resumed : fresh;
}

static void leave_line(wf_waitlist *q, wf_ticket *t, bool started)
{
    wf_line *l = t->line;
    if (l->first == t)
        l->first = t->after;
    if (l->last == t)
        l->last = t->before;
    if (started)
        l->turn = q->turns++;
    if (l->first)
        settle(q, l->at);
    else
        close_line(q, l);
    t->line = NULL;
}

void wf_waitlist_remove(wf_waitlist *q, wf_ticket *t, bool started)
{
    if (t->before)
        t->before->after = t->after;
    if (t->after)
        t->after->before = t->before;
    if (t->resumes && q->resumed == t)
        q->resumed = t->after;
    if (!t->resumes)
        leave_line(q, t, started);
    t->before = t->after = NULL;
    t->resumes = false;
    q->count--;
}

/* SPDX-License-Identifier: MIT */
/*
 * memory.c - blocks are placed one by one, each where it meets no block that lives at the same
 * time. How good the result is depends on the order, and which order is good on the graph: so
 * several are tried and the best result stays. Then whichever block did not fit below the best
 * result goes to the front, again and again. Work is limited by a count, never by a clock, and the
 * result depends on the blocks alone, so plans repeat.
 *
 * Placing a block means walking up through those in its way. A block of a short life looks only
 * into its window, a stretch of the steps: a temporary of one layer does not see those of others.
 */
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

enum {
    MAX_LEVELS = 4,
    MAX_WINDOWS = 57,    /* 1 + 3 + 7 + 15 + 31 */
    WINDOW_BLOCKS = 256, /* about as many begin in each of the smallest windows, or more */
    MAX_WORK = 20000000, /* past it the best result so far is the last */
    MAX_ATTEMPTS = 300   /* from each order, after the first */
};

typedef struct {
    size_t bytes; /* rounded up to the alignment, not 0 */
    int begin, end;
    int index;
    int home;      /* the smallest window in use that holds its whole life */
    size_t load;   /* bytes alive at the busiest step of its life */
    size_t offset; /* in the attempt being made */
    double key;    /* the order is by this, the largest first */
} item;

/* A block that has its place; in a window, also several that live there all the time, one lying on the
 * other: to all others they are one. */
typedef struct {
    size_t offset, top;
    int begin, end;
} placed;

/* The placed blocks that live at any of the steps first .. last, by offset. */
typedef struct {
    int64_t first, last;
    placed *list;
    int count;
    int room;     /* how many blocks live in it; 0 when it is not in use */
    int visitors; /* how many of them do not live there all the time */
    int homes;    /* of how many it is the home */
} window;

typedef struct {
    wf_ctx *ctx;
    item *items; /* in the order in which they are placed */
    int n;
    /* Windows of one level have the same length, half of that of the level before, and begin
     * halfway through one another, so that a life no longer than half a window lies wholly in one.
     * Level 0 is a single window that holds everything. */
    window windows[MAX_WINDOWS];
    int window_count;
    struct {
        int first, count; /* which windows */
        int64_t half;     /* half their length, in steps */
    } level[1 + MAX_LEVELS];
    int levels;    /* beside level 0 */
    placed *rooms; /* where the windows' lists lie */
    size_t *best;  /* offset of each block, by index */
    size_t best_total, lower_bound;
    int64_t work; /* looks at blocks in the way, and what takes as long */
} packer;

/* ---- What is alive when ---- */

static int by_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* How many of the sorted steps[0..n) are below `step`. */
static int count_below(const int *steps, int n, int64_t step)
{
    int low = 0;
    while (n > 0) {
        int half = n / 2;
        bool below = steps[low + half] < step;
        low += below ? half + 1 : 0;
        n = below ? n - half - 1 : half;
    }
    return low;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The largest of leaves [from, to) of a tree whose n leaves are tree[n ..] and whose node i is the
 * larger of nodes 2i and 2i + 1. */
static size_t largest_in(const size_t *tree, int n, int from, int to)
{
    size_t most = 0;
    for (from += n, to += n; from < to; from /= 2, to /= 2) {
        if (from % 2)
            most = larger(most, tree[from++]);
        if (to % 2)
            most = larger(most, tree[--to]);
    }
    return most;
}

/* Sets every block's load, and the lower bound. The load rises only where a block begins, so these
 * steps are all that matter: the leaves of the tree. */
static wf_status find_loads(packer *p)
{
    wf_status status = WF_ERR_MEMORY;
    int n = p->n;
    int *begins = wf_mem_array(p->ctx, (size_t)n, sizeof *begins);
    size_t *tree = wf_mem_array(p->ctx, 2 * (size_t)n, sizeof *tree);
    if (!begins || !tree)
        goto done;
    for (int i = 0; i < n; i++)
        begins[i] = p->items[i].begin;
    qsort(begins, (size_t)n, sizeof *begins, by_int);
    for (int i = 0; i < n; i++) { /* first by how much the load changes */
        const item *it = &p->items[i];
        int past = count_below(begins, n, (int64_t)it->end + 1);
        tree[n + count_below(begins, n, it->begin)] += it->bytes;
        if (past < n)
            tree[n + past] -= it->bytes;
    }
    for (int i = 1; i < n; i++)
        tree[n + i] += tree[n + i - 1];
    for (int i = n - 1; i > 0; i--)
        tree[i] = larger(tree[2 * i], tree[2 * i + 1]);
    for (int i = 0; i < n; i++) {
        item *it = &p->items[i];
        it->load = largest_in(tree, n, count_below(begins, n, it->begin),
                              count_below(begins, n, (int64_t)it->end + 1));
        p->lower_bound = larger(p->lower_bound, it->load);
    }
    status = WF_OK;
done:
    wf_mem_free(p->ctx, begins);
    wf_mem_free(p->ctx, tree);
    return status;
}

/* ---- Windows ---- */

static bool lives_in(const item *it, const window *w)
{
    return it->begin <= w->last && w->first <= it->end;
}

static bool always_in(int begin, int end, const window *w)
{
    return begin <= w->first && w->last <= end;
}

/* Lays out the windows over all steps. */
static void divide(packer *p)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int i = 0; i < p->n; i++) {
        first = p->items[i].begin < first ? p->items[i].begin : first;
        last = p->items[i].end > last ? p->items[i].end : last;
    }
    while (p->levels < MAX_LEVELS && p->n >> (p->levels + 1) >= WINDOW_BLOCKS)
        p->levels++;
    for (int l = 0; l <= p->levels; l++) {
        int64_t half = (last - first + 1) / (2 << l) + 1;
        p->level[l].first = p->window_count;
        p->level[l].count = (2 << l) - 1;
        p->level[l].half = half;
        for (int k = 0; k < p->level[l].count; k++)
            p->windows[p->window_count++] =
                (window){.first = first + k * half, .last = first + (k + 2) * half - 1};
    }
}

static int home_of(const packer *p, const item *it)
{
    for (int l = p->levels; l > 0; l--) {
        int64_t k = (it->begin - p->windows[0].first) / p->level[l].half;
        int w = p->level[l].first + (int)(k < p->level[l].count ? k : p->level[l].count - 1);
        if (p->windows[w].room > 0 && it->end <= p->windows[w].last)
            return w;
    }
    return 0;
}

/* A window saves its homes the looks at all blocks outside, and costs a move of half its list for
 * every block that comes in; a look is worth some moves. */
static bool pays(const packer *p, const window *w)
{
    return (double)w->homes * (p->n - w->visitors) > 0.5 * w->visitors * w->visitors;
}

/* Gives every block a home, and takes those windows out of use that do not pay. */
static void settle(packer *p)
{
    for (int k = 0; k < p->window_count; k++) {
        window *w = &p->windows[k];
        for (int i = 0; i < p->n; i++) {
            const item *it = &p->items[i];
            w->room += lives_in(it, w);
            w->visitors += lives_in(it, w) && !always_in(it->begin, it->end, w);
        }
    }
    for (int i = 0; i < p->n; i++)
        p->windows[p->items[i].home = home_of(p, &p->items[i])].homes++;
    for (int l = p->levels; l > 0; l--) {
        for (int k = 0; k < p->level[l].count; k++) {
            window *w = &p->windows[p->level[l].first + k];
            w->room = pays(p, w) ? w->room : 0;
        }
        for (int i = 0; i < p->n; i++)
            if (p->windows[p->items[i].home].room == 0)
                p->windows[p->items[i].home = home_of(p, &p->items[i])].homes++;
    }
}

static wf_status make_windows(packer *p)
{
    size_t sum = 0;
    divide(p);
    settle(p);
    for (int k = 0; k < p->window_count; k++)
        sum += (size_t)p->windows[k].room;
    p->rooms = wf_mem_array(p->ctx, sum, sizeof *p->rooms);
    if (!p->rooms)
        return WF_ERR_MEMORY;
    sum = 0;
    for (int k = 0; k < p->window_count; k++) {
        p->windows[k].list = p->rooms + sum;
        sum += (size_t)p->windows[k].room;
    }
    return WF_OK;
}

/* ---- Attempts ---- */

/* Walks up through the blocks in the way. The lowest gap that is large enough, or the smallest
 * such gap; above all of them when there is none. */
static size_t find_offset(packer *p, const item *it, bool smallest)
{
    const window *w = &p->windows[it->home];
    const placed *b = w->list, *stop = b + w->count;
    const int begin = it->begin, end = it->end;
    size_t offset = 0, found = SIZE_MAX, least = SIZE_MAX;
    for (; b < stop; b++) {
        if (b->top <= offset || b->begin > end || b->end < begin)
            continue;
        if (b->offset >= offset && b->offset - offset >= it->bytes) {
            if (!smallest)
                break;
            if (b->offset - offset < least) {
                least = b->offset - offset;
                found = offset;
            }
        }
        offset = b->top;
    }
    p->work += b - w->list;
    return found != SIZE_MAX ? found : offset;
}

/* Whether b lies right on a, and both live in the window all the time. */
static bool join(const window *w, const placed *a, const placed *b)
{
    return a->top == b->offset && always_in(a->begin, a->end, w) && always_in(b->begin, b->end, w);
}

/* Returns how much work it was: some moves take as long as a look. */
static int insert(window *w, const placed *b)
{
    int low = 0, n = w->count;
    while (n > 0) {
        int half = n / 2;
        bool below = w->list[low + half].offset <= b->offset;
        low += below ? half + 1 : 0;
        n = below ? n - half - 1 : half;
    }
    placed *at = &w->list[low]; /* the first above b */
    size_t above = (size_t)(w->count - low);
    if (low > 0 && join(w, at - 1, b)) {
        at[-1].top = b->top;
        if (above == 0 || !join(w, at - 1, at))
            return 4;
        at[-1].top = at->top;
        memmove(at, at + 1, (above - 1) * sizeof *b);
        w->count--;
    } else if (above > 0 && join(w, b, at)) {
        at->offset = b->offset;
        return 4;
    } else {
        memmove(at + 1, at, above * sizeof *b);
        *at = *b;
        w->count++;
    }
    return 4 + (int)above / 8;
}

/* Places all items in their order. Returns n when the result is a new best; else which item reached
 * up to the best total so far, or found no time left, and ended the attempt. */
static int attempt(packer *p, bool smallest)
{
    size_t total = 0;
    for (int k = 0; k < p->window_count; k++)
        p->windows[k].count = 0;
    for (int i = 0; i < p->n; i++) {
        item *it = &p->items[i];
        it->offset = find_offset(p, it, smallest);
        placed b = {it->offset, it->offset + it->bytes, it->begin, it->end};
        if (b.top >= p->best_total || (p->best_total < SIZE_MAX && p->work >= MAX_WORK))
            return i;
        total = larger(total, b.top);
        for (int k = 0; k < p->window_count; k++)
            if (p->windows[k].room > 0 && lives_in(it, &p->windows[k]))
                p->work += insert(&p->windows[k], &b);
    }
    p->best_total = total;
    for (int i = 0; i < p->n; i++)
        p->best[p->items[i].index] = p->items[i].offset;
    return p->n;
}

/* ---- Orders ---- */

static double by_bytes(const item *it)
{
    return (double)it->bytes;
}

static double by_area(const item *it)
{
    return (double)it->bytes * ((double)it->end - it->begin + 1);
}

static double by_load(const item *it)
{
    return (double)it->load;
}

static double by_begin(const item *it)
{
    return -(double)it->begin;
}

static int compare(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index - y->index;
}

/* Those that win most often come first: with very many blocks there is time for few. */
static const struct {
    double (*key)(const item *it);
    bool smallest;
} orders[] = {
    {by_load, false}, {by_area, false}, {by_bytes, false},
    {by_begin, true}, {by_area, true},  {by_load, true},
};
#define ORDERS ((int)(sizeof orders / sizeof *orders))

static void sort(packer *p, double (*key)(const item *it))
{
    for (int i = 0; i < p->n; i++)
        p->items[i].key = key(&p->items[i]);
    qsort(p->items, (size_t)p->n, sizeof *p->items, compare);
}

/* To be worth another attempt. */
static bool can_improve(const packer *p)
{
    return p->best_total > p->lower_bound && p->work < MAX_WORK;
}

/* The block that did not fit goes to the front, and the rest of the order stays: many attempts end
 * early, which makes them cheap. */
static void improve(packer *p, int order)
{
    sort(p, orders[order].key);
    for (int k = 0; k < MAX_ATTEMPTS && can_improve(p); k++) {
        int late = attempt(p, orders[order].smallest);
        if (late == p->n)
            continue;
        item it = p->items[late];
        memmove(&p->items[1], &p->items[0], (size_t)late * sizeof it);
        p->items[0] = it;
    }
}

static void search(packer *p)
{
    int best = 0;
    p->best_total = SIZE_MAX;
    for (int k = 0; k < ORDERS && can_improve(p); k++) {
        sort(p, orders[k].key);
        if (attempt(p, orders[k].smallest) == p->n)
            best = k;
    }
    for (int k = 0; k < ORDERS && can_improve(p); k++)
        improve(p, (best + k) % ORDERS);
}

wf_status wf_memory_pack(wf_ctx *ctx, wf_lifetime *blocks, int n, size_t alignment, size_t *total,
                         size_t *lower_bound)
{
    *total = *lower_bound = 0;
    wf_status status = WF_ERR_MEMORY;
    size_t sum = 0;
    packer p = {.ctx = ctx};
    p.items = wf_mem_array(ctx, (size_t)n, sizeof *p.items);
    p.best = wf_mem_array(ctx, (size_t)n, sizeof *p.best);
    if (!p.items || !p.best)
        goto done;
    for (int i = 0; i < n; i++) {
        size_t bytes;
        if (!wf_align_size(blocks[i].bytes, alignment, &bytes) || !wf_add_size(sum, bytes, &sum)) {
            status =
                wf_fail(ctx, WF_ERR_MEMORY, "the values of this graph exceed any address space");
            goto done;
        }
        if (bytes > 0)
            p.items[p.n++] =
                (item){.bytes = bytes, .begin = blocks[i].begin, .end = blocks[i].end, .index = i};
    }
    if (p.n > 0) {
        if ((status = find_loads(&p)) != WF_OK || (status = make_windows(&p)) != WF_OK)
            goto done;
        search(&p);
    }
    for (int i = 0; i < n; i++)
        blocks[i].offset = p.best[i];
    *total = p.best_total;
    *lower_bound = p.lower_bound;
    status = WF_OK;
done:
    wf_mem_free(ctx, p.items);
    wf_mem_free(ctx, p.best);
    wf_mem_free(ctx, p.rooms);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * memory.c - packs blocks with known lifetimes into one region (dynamic storage allocation).
 *
 * Picture every block as a rectangle: its lifetime in steps on one axis, its bytes on the other.
 * The steps are given, the offset is wanted, and rectangles must not overlap. The problem is
 * NP-hard, so this is a search with a lower bound: the bytes alive at the busiest step. Reaching it
 * ends the search, because no packing can be smaller.
 *
 * Blocks are placed one by one, each in a gap between the blocks that are alive at the same time.
 * The result depends on the order, and the best order depends on the graph. So the search tries
 * several orders and keeps the best result. It then repeatedly moves the block that did not fit
 * below the best result to the front. Work is limited by a count, never by a clock, and the result
 * depends only on the blocks: plans are reproducible.
 *
 * Placing a block scans the placed blocks by offset. A short-lived block scans only its window, a
 * range of steps: a temporary of one layer skips those of other layers.
 */
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

enum {
    MAX_LEVELS = 4,      /* windows are at least 1/16 of all steps */
    MAX_WINDOWS = 57,    /* 1 + 3 + 7 + 15 + 31, the counts of levels 0 to MAX_LEVELS */
    WINDOW_BLOCKS = 256, /* the smallest windows hold at least about this many begins */
    MAX_WORK = 20000000, /* stop the search here; reproducible, unlike a time limit */
    MAX_ATTEMPTS = 300   /* per order, in the improvement phase */
};

/* A block to be placed. */
typedef struct {
    size_t bytes;   /* rounded up to the alignment, not 0 */
    int begin, end; /* steps, both included */
    int index;      /* of the block in the caller's array */
    int home;       /* the smallest window in use that contains its lifetime */
    size_t load;    /* bytes alive at the busiest step of its lifetime */
    size_t offset;  /* in the current attempt */
    double key;     /* sort key, descending */
} item;

/* A placed block. In a window, adjacent blocks that are alive during the whole window are merged
 * into one entry. */
typedef struct {
    size_t offset, top; /* bytes [offset, top) */
    int begin, end;     /* steps, both included */
} placed;

/* The placed blocks that are alive at any of the steps first .. last, sorted by offset. */
typedef struct {
    /* Steps, both included; 64 bits, as the last windows may reach past INT_MAX. */
    int64_t first, last;
    placed *list;
    int count;
    int room;     /* capacity of `list`: blocks alive in the window; 0: not in use */
    int visitors; /* how many of those are not alive during the whole window */
    int homes;    /* blocks whose home this is */
} window;

typedef struct {
    wf_ctx *ctx;
    item *items; /* in the order in which they are placed */
    int n;       /* items in use: blocks of 0 bytes are left out */
    /* Windows of one level have equal length, half that of the level before, and overlap by half.
     * So a lifetime of at most half a window is contained in one. Level 0 is a single window over
     * all steps. */
    window windows[MAX_WINDOWS];
    int window_count;
    struct {
        int first, count; /* range in `windows` */
        int64_t half;     /* half the window length, in steps */
    } level[1 + MAX_LEVELS];
    int levels;    /* not counting level 0 */
    placed *rooms; /* storage of all window lists */
    size_t *best;  /* offset of each block, by index */
    /* best_total is the size of the smallest region found; SIZE_MAX before the first complete
     * attempt. */
    size_t best_total, lower_bound;
    int64_t work; /* entries scanned, plus the cost of inserts in the same unit */
} packer;

/* ---- Loads ---- */

static int by_int(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Returns how many of the sorted steps[0..n) are below `step`. */
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

/* Returns the maximum of leaves [from, to) of a segment tree: the n leaves are tree[n ..], and node
 * i is the maximum of nodes 2i and 2i + 1. */
static size_t largest_in(const size_t *tree, int n, int from, int to)
{
    size_t most = 0;
    /* Climb from both ends. An odd left end is a right child: count it alone and go on right of
     * it. An odd right end (exclusive) has a left child below it: count that. Parents cover the
     * rest. */
    for (from += n, to += n; from < to; from /= 2, to /= 2) {
        if (from % 2)
            most = larger(most, tree[from++]);
        if (to % 2)
            most = larger(most, tree[--to]);
    }
    return most;
}

/* Sets every block's load, and the lower bound. The load rises only at steps where a block begins,
 * so only those steps are leaves of the segment tree. */
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
    /* Write the differences of the load at each begin, and sum them up below. Equal begins share
     * the first leaf of their value (count_below); the leaves after it stay 0 differences. size_t
     * wraps on subtraction, but every prefix sum is a real load and fits. */
    for (int i = 0; i < n; i++) {
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

/* Returns whether [begin, end] covers the whole window. */
static bool always_in(int begin, int end, const window *w)
{
    return begin <= w->first && w->last <= end;
}

/* Divides the steps into windows. */
static void divide(packer *p)
{
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (int i = 0; i < p->n; i++) {
        first = p->items[i].begin < first ? p->items[i].begin : first;
        last = p->items[i].end > last ? p->items[i].end : last;
    }
    /* Halve the windows as long as they hold about WINDOW_BLOCKS begins on average. */
    while (p->levels < MAX_LEVELS && p->n >> (p->levels + 1) >= WINDOW_BLOCKS)
        p->levels++;
    for (int l = 0; l <= p->levels; l++) {
        /* + 1: rounds up, so that the windows cover all steps. */
        int64_t half = (last - first + 1) / (2 << l) + 1;
        p->level[l].first = p->window_count;
        p->level[l].count = (2 << l) - 1;
        p->level[l].half = half;
        for (int k = 0; k < p->level[l].count; k++)
            p->windows[p->window_count++] =
                (window){.first = first + k * half, .last = first + (k + 2) * half - 1};
    }
}

/* Returns the smallest window in use that contains the lifetime of it; 0 is the window over all
 * steps. */
static int home_of(const packer *p, const item *it)
{
    for (int l = p->levels; l > 0; l--) {
        /* Windows start every `half` steps. The last one that starts at or before `begin` reaches
         * at least one half further. */
        int64_t k = (it->begin - p->windows[0].first) / p->level[l].half;
        int w = p->level[l].first + (int)(k < p->level[l].count ? k : p->level[l].count - 1);
        if (p->windows[w].room > 0 && it->end <= p->windows[w].last)
            return w;
    }
    return 0;
}

/* Returns whether a window saves work. It saves its home blocks the scan of all blocks outside. It
 * costs moving half its list for every inserted block. */
static bool pays(const packer *p, const window *w)
{
    return (double)w->homes * (p->n - w->visitors) > 0.5 * w->visitors * w->visitors;
}

/* Assigns every block a home, and disables the windows that do not pay. */
static void assign_homes(packer *p)
{
    for (int k = 0; k < p->window_count; k++) {
        window *w = &p->windows[k];
        for (int i = 0; i < p->n; i++) {
            const item *it = &p->items[i];
            w->room += lives_in(it, w);
            w->visitors += lives_in(it, w) && !always_in(it->begin, it->end, w);
        }
    }
    /* Rooms are counted first: home_of uses windows in use only. Then levels are pruned from the
     * smallest windows up, so that blocks move to the next larger window that is still in use.
     * Window 0 is never pruned. */
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

/* Allocates the lists of all windows at once, at their exact capacity. */
static wf_status make_windows(packer *p)
{
    size_t sum = 0;
    divide(p);
    assign_homes(p);
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

/* Scans the home window upwards. Returns the offset of the lowest gap that fits (first fit) or,
 * with `smallest`, of the smallest gap that fits (best fit); above all blocks if no gap fits. */
static size_t find_offset(packer *p, const item *it, bool smallest)
{
    const window *w = &p->windows[it->home];
    const placed *b = w->list, *stop = b + w->count;
    const int begin = it->begin, end = it->end;
    size_t offset = 0, found = SIZE_MAX, least = SIZE_MAX;
    /* Entries are sorted by offset. `offset` is the top of all entries so far that are alive during
     * the lifetime of `it`: everything below is taken or too small. */
    for (; b < stop; b++) {
        if (b->top <= offset || b->begin > end || b->end < begin)
            continue;
        if (b->offset >= offset && b->offset - offset >= it->bytes) {
            if (!smallest)
                break;
            if (b->offset - offset < least) {
                least = b->offset - offset; /* strictly smaller: the lowest of equal gaps wins */
                found = offset;
            }
        }
        offset = b->top;
    }
    p->work += b - w->list;
    return found != SIZE_MAX ? found : offset;
}

/* Returns whether b starts where a ends, and both are alive during the whole window. Then one entry
 * may stand for both: every block that scans the window lives inside it. */
static bool can_merge(const window *w, const placed *a, const placed *b)
{
    return a->top == b->offset && always_in(a->begin, a->end, w) && always_in(b->begin, b->end, w);
}

/* Inserts b by offset. Returns the work: 8 moved entries cost about as much as one scanned entry,
 * and 4 stands for the binary search. */
static int insert(window *w, const placed *b)
{
    int low = 0, n = w->count;
    while (n > 0) {
        int half = n / 2;
        bool below = w->list[low + half].offset <= b->offset;
        low += below ? half + 1 : 0;
        n = below ? n - half - 1 : half;
    }
    placed *at = &w->list[low]; /* the first entry above b */
    size_t above = (size_t)(w->count - low);
    /* Merging keeps lists short: saved activations that outlive the window become one entry. */
    if (low > 0 && can_merge(w, at - 1, b)) {
        at[-1].top = b->top;
        if (above == 0 || !can_merge(w, at - 1, at))
            return 4;
        at[-1].top = at->top;
        memmove(at, at + 1, (above - 1) * sizeof *b);
        w->count--;
    } else if (above > 0 && can_merge(w, b, at)) {
        at->offset = b->offset;
        return 4;
    } else {
        memmove(at + 1, at, above * sizeof *b);
        *at = *b;
        w->count++;
    }
    return 4 + (int)above / 8;
}

/* Places all items in their order. Returns n if the result is a new best. Otherwise returns the
 * item that ended the attempt: it reached the best total so far, or the work limit was exceeded. */
static int attempt(packer *p, bool smallest)
{
    size_t total = 0;
    for (int k = 0; k < p->window_count; k++)
        p->windows[k].count = 0;
    for (int i = 0; i < p->n; i++) {
        item *it = &p->items[i];
        it->offset = find_offset(p, it, smallest);
        placed b = {it->offset, it->offset + it->bytes, it->begin, it->end};
        /* A complete attempt must exist before the work limit counts. */
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

/* Keys of the orders: the largest key is placed first. */
static double by_bytes(const item *it)
{
    return (double)it->bytes;
}

/* In double: bytes times steps may overflow 64 bits. */
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

/* A total order (the index is unique), so that qsort, which is not stable, gives one result. */
static int compare(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? 1 : -1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index - y->index;
}

/* Orders that win most often come first: with very many blocks only a few fit into the work
 * limit. */
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

/* Returns whether another attempt is worthwhile. */
static bool can_improve(const packer *p)
{
    return p->best_total > p->lower_bound && p->work < MAX_WORK;
}

/* Repeats attempts from one order. The block that did not fit moves to the front and the rest keeps
 * its order. Many attempts end early, which makes them cheap. A successful attempt keeps the order:
 * the next one then fails at the block that sets the new total. */
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

/* Tries every order once, then improves each of them, starting with the best. */
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
                wf_fail(ctx, WF_ERR_MEMORY, "the values of this graph exceed the address space");
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
    /* Blocks of 0 bytes keep offset 0: `best` is zeroed. */
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

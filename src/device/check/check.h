/* SPDX-License-Identifier: MIT */
/*
 * check.h - the check device: runs the cpu's kernels at the planned offsets, in a random legal
 * order of the steps, and checks all memory around them. It finds bugs in the planner and in
 * kernels that are harmless or rare elsewhere.
 *
 * touch.c derives from a plan which memory every step touches, order.c which steps must precede
 * which others, and run.c runs them.
 */
#ifndef WF_DEVICE_CHECK_CHECK_H
#define WF_DEVICE_CHECK_CHECK_H

#include <string.h>

#include "base/philox.h"
#include "device/executor.h"

#define WF_CHECK_GUARD 64   /* bytes on both sides of every block and port */
#define WF_CHECK_EDGE 4096  /* bytes on both sides of every buffer: absorbs far overruns */
#define WF_CHECK_POISON 255 /* byte value of unused memory: NaN in every float type */
/* A region or port memory below this size gets a shadow copy, and every step is checked to change
 * only its results and workspace. Larger memory gets cheaper checks per step: its operands, and the
 * guards of what it touches. The rest is checked when it comes into use or when the run ends. */
#define WF_CHECK_SMALL ((size_t)1 << 20)

typedef struct {
    wf_device head;
    uint64_t seed;
} wf_check_device;

/* An extent: the memory of one value, of several values with disjoint lifetimes, or of a step's
 * workspace. */
typedef struct {
    wf_place_kind kind;  /* region, port or state; none: a block merged into another */
    const wf_node *node; /* the first writer, the state or input, or the owner of the workspace */
    bool workspace;
    size_t begin, bytes; /* in the region or port memory; begin is 0 for a state */
    size_t low, high;    /* the same with guards and padding: [low, high); 0 for a state */
    int first, last;     /* first and last step that touches it, in plan order */
    int touches;         /* number of steps that touch it */
} wf_check_extent;

typedef struct {
    int extent;
    bool written;
} wf_check_touch;

/* Order constraints as a graph. Its nodes are the steps, then two per block: begin and end of its
 * lifetime. */
typedef struct {
    int steps, nodes;
    int *first; /* [nodes + 1] index in `next` of a node's first successor */
    int *next;  /* successors of all nodes */
    int *waits; /* [nodes] number of predecessors */
    int *left;  /* [nodes] predecessors not drawn yet, while an order is drawn */
    int *ready; /* [steps] steps without predecessors left */
    int ready_count;
} wf_check_graph;

typedef struct wf_check {
    uint64_t runs; /* number of the current run, from 1 */
    int *order;    /* [steps] of the current run */
    wf_check_graph graph;
    wf_check_extent *extents; /* blocks first: extent i is block i */
    int extent_count;
    wf_check_touch *touches;
    int *touch_first; /* [steps + 1] index in `touches` of a step's first touch */
    int *left;        /* [extents] touches left in this run; -1: not in use yet */
    uint64_t *hash;   /* [most touches of a step] hash of extents that it must not change */
    unsigned char *region_copy, *ports_copy; /* NULL: not small */
} wf_check;

/* Temporary data while touches and order are derived from a plan. A slot is the index of a value
 * among the outputs of all nodes. */
typedef struct {
    wf_plan_exec *e;
    const wf_plan *plan;
    wf_check *check;
    wf_arena scratch;
    int values;     /* of all nodes */
    int *slot;      /* [node id] slot of its output 0; its other outputs follow */
    int *step_of;   /* [node id] its step; -1: not a step */
    int *extent_of; /* [slot] for ports and states; a state's slot is its node's */
    const wf_value *
        *whole;      /* [slot] result of the joined concat that a value is part of, or NULL */
    int parts;       /* most operands of a joined concat; at least 1 */
    int *read_first; /* [slot] head of the list of reads, or -1 */
    int *read_next, *reader; /* [reads] next read in the list; the step that reads */
    int reads;
} wf_check_draft;

/* Both allocate their results in d->e->arena, and fail with WF_ERR_INTERNAL if the plan is invalid.
 * Call them in this order. */
wf_status wf_check_find_touches(wf_check_draft *d);
wf_status wf_check_find_order(wf_check_draft *d);

/* Returns the value whose memory v shares through views; v itself if it is not a shared view. */
const wf_value *wf_check_root(const wf_check_draft *d, const wf_value *v);
/* Returns the joined concat's result that root is part of, or root. */
const wf_value *wf_check_whole(const wf_check_draft *d, const wf_value *root);
/* Returns the extent of such a value; -1: it has no memory. */
int wf_check_extent_of(const wf_check_draft *d, const wf_value *root);

/* Draws a random legal order into check->order. It depends only on seed and stream. */
void wf_check_draw(wf_check *check, uint64_t seed, uint64_t stream);
wf_status wf_check_run(wf_plan_exec *e);

/* ---- Guards: each byte depends on its address, so that a copied guard is detected, too ---- */

static inline unsigned char wf_check_canary(const unsigned char *at)
{
    return (unsigned char)((uint64_t)(uintptr_t)at * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

static inline void wf_check_guard(unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        from[i] = wf_check_canary(from + i);
}

static inline bool wf_check_intact(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != wf_check_canary(from + i))
            return false;
    return true;
}

#endif

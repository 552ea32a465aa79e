/* SPDX-License-Identifier: MIT */
/*
 * check.h - the check device: the cpu's kernels at the planned offsets, their steps in a random legal
 * order, and all memory around them watched. It finds mistakes of the planner and of kernels that do
 * no harm anywhere else, or only once in a while.
 *
 * touch.c reads off a plan which memory every step touches, order.c which steps have to come before
 * which others, run.c runs them.
 */
#ifndef WF_DEVICE_CHECK_CHECK_H
#define WF_DEVICE_CHECK_CHECK_H

#include <string.h>

#include "base/philox.h"
#include "device/executor.h"

#define WF_CHECK_GUARD 64   /* bytes on either side of all that is planned */
#define WF_CHECK_EDGE 4096  /* and of buffers: what runs far past one should not take us down */
#define WF_CHECK_POISON 255 /* of memory that holds nothing: NaN in every type of float */
/* Where region or ports are smaller than this a copy is kept beside them, and every step is held to
 * have changed nothing but its results and its workspace. Elsewhere its operands and the guards of
 * what it touches are looked at, all else only when it is taken into use or when the run ends. */
#define WF_CHECK_SMALL ((size_t)1 << 20)

typedef struct {
    wf_device head;
    uint64_t seed;
} wf_check_device;

/* Memory of one value, of several that follow each other there, or of a step's workspace. */
typedef struct {
    wf_place_kind kind;  /* region, port or state */
    const wf_node *node; /* the first to write it, the state or input, or whose workspace it is */
    bool workspace;
    size_t begin, bytes; /* in the region or among the ports; begin is 0 for a state */
    size_t low, high;    /* the same with guards and padding; nothing for a state */
    int first, last;     /* of the steps that touch it, in the order of the plan */
    int touches;         /* how many do */
} wf_check_extent;

typedef struct {
    int extent;
    bool written;
} wf_check_touch;

/* What precedes what. Nodes are the steps, and then two for every block: its life begins, and ends. */
typedef struct {
    int steps, nodes;
    int *first; /* [nodes + 1] where in `next` the followers of a node begin */
    int *next;
    int *waits; /* [nodes] how many it follows */
    int *left;  /* [nodes] the same of those still to come, while an order is drawn */
    int *ready; /* [steps] */
    int ready_count;
} wf_check_graph;

typedef struct wf_check {
    uint64_t runs;
    int *order; /* [steps] of the latest run */
    wf_check_graph graph;
    wf_check_extent *extents; /* blocks first, by their number */
    int extent_count;
    wf_check_touch *touches;
    int *touch_first; /* [steps + 1] */
    int *left;        /* [extents] touches still to come */
    uint64_t *hash;   /* [most touches of a step] of what it must not change */
    unsigned char *region_copy, *ports_copy; /* NULL: too large */
} wf_check;

/* While touches and order are derived from a plan. */
typedef struct {
    wf_plan_exec *e;
    const wf_plan *plan;
    wf_check *check;
    wf_arena scratch;
    int values;     /* of all nodes */
    int *slot;      /* [node] of its output 0; its other outputs follow */
    int *step_of;   /* [node] -1: none */
    int *extent_of; /* [slot] for ports and states, by their first version */
    const wf_value *
        *whole;      /* [slot] the concat, no step, of which a value is a part; NULL: of none */
    int parts;       /* most of such a concat; 1 when there is none */
    int *read_first; /* [slot] the latest in a list of reads, or -1 */
    int *read_next, *reader;
    int reads;
} wf_check_draft;

wf_status wf_check_find_touches(wf_check_draft *d);
wf_status wf_check_find_order(wf_check_draft *d);

/* The value that lies where v does and is no view of another. */
const wf_value *wf_check_root(const wf_check_draft *d, const wf_value *v);
/* What a result is part of, or itself. */
const wf_value *wf_check_whole(const wf_check_draft *d, const wf_value *root);
/* The memory of such a value; -1: it has none. */
int wf_check_extent_of(const wf_check_draft *d, const wf_value *root);

/* Fills check->order, by seed and stream alone. */
void wf_check_draw(wf_check *check, uint64_t seed, uint64_t stream);
wf_status wf_check_run(wf_plan_exec *e);

/* ---- Guards: bytes that depend on their address, so that a copy of one elsewhere is noticed ---- */

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

/* SPDX-License-Identifier: MIT */
/*
 * executor.h - an executable of a kernel device: a plan, and launches with every address resolved.
 * For devices that run the steps in a way of their own; all others leave it to exec.c.
 */
#ifndef WF_DEVICE_EXECUTOR_H
#define WF_DEVICE_EXECUTOR_H

#include "device/plan.h"

typedef struct {
    wf_launch launch;
    wf_view *views; /* of operands, then of outputs: what launch.in and launch.out point to */
    const wf_kernel *kernel;
    int stats;           /* which line of the statistics */
    uint64_t copy_bytes; /* that it moves without computing */
} wf_bound_step;

/* When a step of the last run began, from the run's beginning, and how long it took. */
typedef struct {
    uint64_t begin, ns;
} wf_span;

/* A narrow copy of a state that the graph reads (copies.c). */
typedef struct {
    wf_stored_state *copy;
    bool stays_equal; /* whatever changes the state in this graph changes the copy, too */
} wf_copy_use;

struct wf_plan_exec {
    wf_exec head;
    wf_plan *plan;
    wf_buffer *ports;    /* inputs and outputs */
    unsigned generation; /* of the session's region to which the addresses belong */
    wf_event *done;      /* recorded after each run */
    wf_bound_step *steps;
    wf_stored_state **states; /* [node] of the plan's graph: those of its states and their copies */
    wf_stored_state **changed; /* states that a run changes */
    int changed_count;
    wf_copy_use *copies;
    int copy_count;
    uint64_t began; /* the last run, by wf_clock_ns */
    wf_span *spans; /* [step]; zeros where the device did not tell */
    wf_op_stats *stats;
    int stats_count;
    wf_arena arena; /* steps, views, ports, statistics */
    void *own;      /* of the device's way to run, if any; in the arena */
};

/* copies.c. Binds the copies that the graph reads, when its states are bound; */
wf_status wf_copies_prepare(wf_plan_exec *e);
void wf_copies_release(wf_plan_exec *e);
/* sees to it, before a run, that they are equal to their states, and notes what the run will change; */
wf_status wf_copies_begin(wf_plan_exec *e);
/* and, after one that succeeded, which of them still are. */
void wf_copies_end(wf_plan_exec *e);

/* Launches one step and keeps the statistics. */
wf_status wf_plan_exec_step(wf_plan_exec *e, int step);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * executor.h - an executable of a kernel device: a plan, and launches with every address resolved.
 * Devices with their own prepare_plan and run_plan use it; for all others exec.c runs the steps in
 * order.
 */
#ifndef WF_DEVICE_EXECUTOR_H
#define WF_DEVICE_EXECUTOR_H

#include "device/plan.h"

typedef struct {
    wf_launch launch;
    wf_view *views; /* operands, then outputs; launch.in and launch.out point here */
    const wf_kernel *kernel;
    int stats;           /* index in wf_plan_exec.stats */
    uint64_t copy_bytes; /* moved without computing */
} wf_bound_step;

/* Time of a step in the last run, in ns: its begin counts from the begin of the run. */
typedef struct {
    uint64_t begin, ns;
} wf_span;

/* A narrow copy of a state that the graph reads (copies.c). */
typedef struct {
    wf_stored_state *copy;
    bool stays_equal; /* every node that updates the state updates the copy, too */
} wf_copy_use;

struct wf_plan_exec {
    wf_exec head;
    wf_plan *plan;
    wf_buffer *ports;    /* inputs and outputs; NULL: in session->ports */
    unsigned generation; /* session->generation when addresses were bound */
    wf_event *done;      /* recorded after each run */
    wf_bound_step *steps;
    wf_stored_state **states;  /* [node id] for state and state_copy nodes; else NULL */
    wf_stored_state **changed; /* states that a run changes */
    int changed_count;
    wf_copy_use *copies;
    int copy_count;
    uint64_t began; /* wf_clock_ns at the begin of the last run */
    wf_span *spans; /* [step]; zeros if the device did not measure */
    wf_op_stats *stats;
    int stats_count;
    wf_arena arena; /* holds steps, views, ports and statistics */
    void *own;      /* the device's data for run_plan, in the arena; may be NULL */
};

/* copies.c. Binds the copies that the graph reads; call it after the states are bound. */
wf_status wf_copies_prepare(wf_plan_exec *e);
void wf_copies_release(wf_plan_exec *e);
/* Before a run: casts outdated copies and counts the changes that the run will make. */
wf_status wf_copies_begin(wf_plan_exec *e);
/* After a successful run: records which copies still equal their states. */
void wf_copies_end(wf_plan_exec *e);

/* Returns the memory of inputs and outputs; borrowed until the next compile. NULL: shared memory
 * that could not be reallocated. */
wf_buffer *wf_plan_exec_ports(const wf_plan_exec *e);

/* Launches one step and updates the statistics. */
wf_status wf_plan_exec_step(wf_plan_exec *e, int step);

#endif

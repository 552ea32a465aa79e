/* SPDX-License-Identifier: MIT */
/*
 * op_case.h - times single ops on shapes of models.
 *
 * Operands are text, in order, separated by spaces: TYPE[DIMS] is an input of normally distributed
 * values; a '=' before it makes it a state, such as a weight. A suffix sets other elements: <N
 * random below N, %N index modulo N, *N N times the index, =X all X.
 *
 * A model streams its weights from memory, so they must not stay in the caches here: a run repeats
 * an op that has states several times, each time with its own states.
 */
#ifndef WF_BENCH_OP_CASE_H
#define WF_BENCH_OP_CASE_H

#include "device/device.h"
#include "graph/cost.h"

typedef struct {
    const char *op;
    const char *shape;    /* for display */
    const char *attrs;    /* NULL: the defaults */
    const char *operands; /* as above */
} wf_bench_case;

/* All of them; the last has no op. */
extern const wf_bench_case wf_bench_cases[];

typedef struct {
    int repeats;        /* minimum */
    double seconds;     /* time budget; no repetition starts after it */
    uint64_t streamed;  /* minimum bytes of all states of a run */
    bool packed;        /* states in the layout of the device */
    bool rounded;       /* plain states, with a kernel that may round activations */
    const char *unless; /* do not run if this kernel would run again; NULL: always run */
} wf_bench_case_options;

typedef struct {
    const char *kernel; /* that ran; "" if the device does not report it */
    double best;        /* seconds */
    int runs;
    wf_cost cost;
} wf_bench_case_result;

/* Returns whether the device has its own layout for a state of the case. */
bool wf_bench_case_packs(wf_device *device, const wf_bench_case *c);
/* Plans the memory of a run with one copy of its states; allocates nothing. */
wf_status wf_bench_case_plan(wf_device *device, const wf_bench_case *c, wf_memory *out);
wf_status wf_bench_case_run(wf_device *device, const wf_bench_case *c,
                            const wf_bench_case_options *options, wf_bench_case_result *out);

#endif

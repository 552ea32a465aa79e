/* SPDX-License-Identifier: MIT */
/*
 * op_case.h - single ops on shapes that models have, timed.
 *
 * Operands are written as text, in order and with spaces between: TYPE[DIMS] is an input of normally
 * distributed numbers; a '=' before it makes it a state, a weight say. Behind it may stand what its
 * elements are instead: <N below N at random, %N their index modulo N, *N N times their index, =X all X.
 *
 * What a model streams from memory must not lie in the caches here either: an op that has states is done
 * several times over in a run, each time with states of its own.
 */
#ifndef WF_BENCH_OP_CASE_H
#define WF_BENCH_OP_CASE_H

#include "device/device.h"
#include "graph/cost.h"

typedef struct {
    const char *op;
    const char *shape;    /* for the reader */
    const char *attrs;    /* NULL: the defaults */
    const char *operands; /* as above */
} wf_bench_case;

/* All of them; the last has no op. */
extern const wf_bench_case wf_bench_cases[];

typedef struct {
    int repeats;        /* at least */
    double seconds;     /* for all of them together, after which no more are begun */
    uint64_t streamed;  /* bytes that the states of a run have together, at least */
    bool packed;        /* states in the device's own layout */
    bool rounded;       /* states as they lie, by which activations may be rounded */
    const char *unless; /* NULL, or a kernel that was measured: if it is that again, nothing runs */
} wf_bench_case_options;

typedef struct {
    const char *kernel; /* that ran; "" where the device does not tell */
    double best;        /* seconds */
    int runs;
    wf_cost cost;
} wf_bench_case_result;

/* Does the device have a layout of its own for some state of the case? */
bool wf_bench_case_packs(wf_device *device, const wf_bench_case *c);
/* What a run of it would need, without a second copy of its states; nothing is allocated. */
wf_status wf_bench_case_plan(wf_device *device, const wf_bench_case *c, wf_memory *out);
wf_status wf_bench_case_run(wf_device *device, const wf_bench_case *c,
                            const wf_bench_case_options *options, wf_bench_case_result *out);

#endif

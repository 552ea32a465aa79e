/* SPDX-License-Identifier: MIT */
/*
 * generate.h - times prefill and decode like llama-bench: random tokens, one sequence, greedy
 * sampling.
 */
#ifndef WF_BENCH_GENERATE_H
#define WF_BENCH_GENERATE_H

#include "infer/generator.h"

/* A measurement: `tokens` prompt tokens, or generated tokens, with `depth` tokens already in the KV
 * cache. */
typedef struct {
    bool prompt;
    /* depth: tokens in the KV cache before the run. */
    int64_t depth, tokens;
} wf_bench_run;

/* The minimum work of a measurement. */
typedef struct {
    double bytes; /* read: weights, keys and values */
    double flops; /* of matmuls and attention */
} wf_bench_work;

/* Returns the context in tokens that the generator needs. */
int64_t wf_bench_run_context(const wf_bench_run *r);
/* Times one run. The generator needs a free sequence. Filling the cache to `depth` is not timed. */
wf_status wf_bench_run_time(wf_generator *g, const wf_bench_run *r, double *seconds);
void wf_bench_run_work(const wf_generator *g, const wf_bench_run *r, wf_bench_work *out);

#endif

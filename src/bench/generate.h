/* SPDX-License-Identifier: MIT */
/*
 * generate.h - how fast a generator reads prompts and generates, as llama-bench measures it: random
 * tokens, one sequence, no sampling but the most likely token.
 */
#ifndef WF_BENCH_GENERATE_H
#define WF_BENCH_GENERATE_H

#include "infer/generator.h"

/* What a measurement is of: `tokens` of a prompt, or generated one after the other, when `depth` are in
 * the cache already. */
typedef struct {
    bool prompt;
    int64_t depth, tokens;
} wf_bench_run;

/* What it has to do at least, in all. */
typedef struct {
    double bytes; /* of weights, and of keys and values, that are read */
    double flops; /* of products and attention */
} wf_bench_work;

/* Tokens that the generator's context must hold. */
int64_t wf_bench_run_context(const wf_bench_run *r);
/* The generator must have a free sequence. What fills the cache to `depth` is not counted. */
wf_status wf_bench_run_time(wf_generator *g, const wf_bench_run *r, double *seconds);
void wf_bench_run_work(const wf_generator *g, const wf_bench_run *r, wf_bench_work *out);

#endif

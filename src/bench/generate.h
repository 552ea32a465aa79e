/* SPDX-License-Identifier: MIT */
/*
 * generate.h - times prefill and decode like llama-bench: random tokens, greedy sampling, one
 * sequence or several at a time.
 */
#ifndef WF_BENCH_GENERATE_H
#define WF_BENCH_GENERATE_H

#include "infer/engine.h"

/* A measurement: prompts of `tokens` tokens, or `tokens` generated tokens, of each sequence. */
typedef struct {
    bool prompt;
    int64_t depth; /* tokens in the KV cache before the run: before prompts only whole pages, before
                      generated tokens at least one */
    int64_t tokens;
    int64_t sequences; /* at a time */
    int64_t shared;    /* first tokens of all prompts, which are equal */
    bool logits;       /* of all tokens of the prompts; otherwise only of the last ones */
} wf_bench_run;

/* The minimum work of a measurement. */
typedef struct {
    double bytes; /* read: weights, keys and values */
    double flops; /* of matmuls and attention */
} wf_bench_work;

/* Returns the context in tokens that the engine needs. */
int64_t wf_bench_run_context(const wf_bench_run *r);
/* Times one run. The engine has no other sequences. Filling the cache to `depth` is not timed. */
wf_status wf_bench_run_time(wf_engine *e, const wf_bench_run *r, double *seconds);
void wf_bench_run_work(const wf_engine *e, const wf_bench_run *r, wf_bench_work *out);

#endif

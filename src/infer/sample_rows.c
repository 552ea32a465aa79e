/* SPDX-License-Identifier: MIT */
/* sample_rows.c - see sample_rows.h. */
#include "infer/sample_rows.h"

#include "base/mem.h"
#include "base/thread.h"

#define PIECE_TOKENS 16384 /* logits per piece: wf_parallel_share recommends 5 us or more */

struct wf_sample_rows {
    wf_ctx *ctx;
    int64_t vocab;
    int threads;
    wf_sampler_scratch **scratch; /* [threads] */
};

typedef struct {
    wf_sample_rows *rows;
    wf_sample_job *job;
} run;

static void pick_some(void *arg, int64_t begin, int64_t end, int thread)
{
    const run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        wf_sample_job *j = &r->job[i];
        j->fault = wf_sampler_pick(j->sampler, r->rows->scratch[thread], j->logits, &j->id);
    }
}

void wf_sample_rows_pick(wf_sample_rows *r, wf_sample_job *jobs, size_t n)
{
    run all = {r, jobs};
    wf_parallel_share(r->threads, (int64_t)n, PIECE_TOKENS / r->vocab + 1, pick_some, &all);
}

wf_status wf_sample_rows_new(wf_ctx *ctx, int64_t vocab, int threads, wf_sample_rows **out)
{
    *out = NULL;
    wf_assert(threads > 0);
    wf_sample_rows *r = wf_mem_new(ctx, sizeof *r);
    if (!r)
        return WF_ERR_MEMORY;
    r->ctx = ctx;
    r->vocab = vocab;
    r->threads = threads;
    r->scratch = wf_mem_array(ctx, (size_t)threads, sizeof(wf_sampler_scratch *));
    wf_status status = r->scratch ? WF_OK : WF_ERR_MEMORY;
    for (int i = 0; status == WF_OK && i < threads; i++)
        status = wf_sampler_scratch_new(ctx, vocab, &r->scratch[i]);
    if (status == WF_OK)
        *out = r;
    else
        wf_sample_rows_free(r);
    return status;
}

void wf_sample_rows_free(wf_sample_rows *r)
{
    if (!r)
        return;
    for (int i = 0; r->scratch && i < r->threads; i++)
        wf_sampler_scratch_free(r->scratch[i]);
    wf_mem_free(r->ctx, r->scratch);
    wf_mem_free(r->ctx, r);
}

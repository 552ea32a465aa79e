/* SPDX-License-Identifier: MIT */
/* test_sample_rows.c - picks of many sequences in parallel: the same tokens and faults for any
 * number of threads, vocabulary and number of jobs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "infer/sample_rows.h"
#include "support.h"

enum { JOBS = 40, STEPS = 6, THREADS = 3 };

static wf_sampling settings_of(int job)
{
    static const wf_sampling how[] = {
        {.temperature = 0},
        {.temperature = 1},
        {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .repeat_penalty = 1.2},
        {.temperature = 1, .top_p = 0.9, .frequency_penalty = 0.3, .penalty_last = -1},
        {.temperature = 1,
         .top_p = 0.8,
         .presence_penalty = 1,
         .samplers = "top_p;penalties;temperature"},
    };
    wf_sampling s = how[(size_t)job % (sizeof how / sizeof *how)];
    s.seed = (uint64_t)job;
    return s;
}

/* Logits of all jobs. In the last step, job 3 has a NaN and job 7 no token. */
static void fill(wf_rng *rng, float *logits, int64_t vocab, int step)
{
    for (int64_t i = 0; i < JOBS * vocab; i++)
        logits[i] = (float)(int32_t)wf_rng_below(rng, 4096) / 256;
    if (step < STEPS - 1)
        return;
    logits[4 * vocab - 1] = NAN;
    for (int64_t i = 0; i < vocab; i++)
        logits[7 * vocab + i] = -INFINITY;
}

/* Samples STEPS tokens of `jobs` sequences. wanted: [STEPS, JOBS]; filled in if `record`. */
static void run(wf_ctx *ctx, int64_t vocab, int threads, int jobs, bool record,
                int32_t wanted[STEPS][JOBS])
{
    float *logits = malloc((size_t)(JOBS * vocab) * sizeof *logits);
    wf_sample_job job[JOBS] = {{0}};
    wf_sample_rows *rows;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), (uint64_t)vocab);
    assert_non_null(logits);
    wt_ok(ctx, wf_sample_rows_new(ctx, vocab, threads, &rows));
    for (int i = 0; i < jobs; i++) {
        wf_sampling how = settings_of(i);
        wt_ok(ctx, wf_sampler_new(ctx, vocab, &how, &job[i].sampler));
        job[i].logits = logits + i * vocab;
    }
    for (int step = 0; step < STEPS; step++) {
        fill(&rng, logits, vocab, step);
        wf_sample_rows_pick(rows, job, (size_t)jobs);
        for (int i = 0; i < jobs; i++) {
            bool last = step == STEPS - 1;
            wf_fault_kind kind = last && i == 3   ? WF_FAULT_LOGIT
                                 : last && i == 7 ? WF_FAULT_NO_TOKEN
                                                  : WF_FAULT_NONE;
            assert_int_equal(job[i].fault.kind, kind);
            assert_true(kind != WF_FAULT_LOGIT || job[i].fault.token == vocab - 1);
            if (kind != WF_FAULT_NONE)
                continue;
            if (record)
                wanted[step][i] = job[i].id;
            assert_int_equal(job[i].id, wanted[step][i]);
            wt_ok(ctx, wf_sampler_accept(job[i].sampler, job[i].id));
        }
    }
    for (int i = 0; i < jobs; i++)
        wf_sampler_free(job[i].sampler);
    wf_sample_rows_free(rows);
    free(logits);
}

/* The first run has one thread; the others must repeat it. */
static void test_threads(void **state)
{
    static const int64_t vocabs[] = {1, 700, 5000};
    for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++) {
        int32_t wanted[STEPS][JOBS];
        run(*state, vocabs[v], 1, JOBS, true, wanted);
        for (int threads = 1; threads <= THREADS; threads++)
            for (int jobs = 0; jobs <= JOBS; jobs = jobs ? 3 * jobs + 1 : 1)
                run(*state, vocabs[v], threads, jobs, false, wanted);
    }
}

/* Each job's own sampler, called directly, picks the same. */
static void test_alone(void **state)
{
    enum { VOCAB = 5000 };
    int32_t wanted[STEPS][JOBS];
    float *logits = malloc(sizeof *logits * JOBS * VOCAB);
    wf_sampler_scratch *x;
    assert_non_null(logits);
    wt_ok(*state, wf_sampler_scratch_new(*state, VOCAB, &x));
    run(*state, VOCAB, THREADS, JOBS, true, wanted);
    for (int i = 0; i < JOBS; i++) {
        wf_sampling how = settings_of(i);
        wf_sampler *s;
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), VOCAB);
        wt_ok(*state, wf_sampler_new(*state, VOCAB, &how, &s));
        for (int step = 0; step < STEPS - 1; step++) {
            int32_t id;
            fill(&rng, logits, VOCAB, step);
            wt_ok(*state, wf_sampler_report(s, wf_sampler_pick(s, x, logits + i * VOCAB, &id)));
            assert_int_equal(id, wanted[step][i]);
            wt_ok(*state, wf_sampler_accept(s, id));
        }
        wf_sampler_free(s);
    }
    wf_sampler_scratch_free(x);
    free(logits);
}

static void test_memory(void **state)
{
    uint64_t n = 1;
    for (wf_status status = WF_ERR_MEMORY; status != WF_OK; n++) {
        wf_sample_rows *rows = NULL;
        wf_ctx_fail_allocation(*state, n);
        status = wf_sample_rows_new(*state, 10, THREADS, &rows);
        wf_ctx_fail_allocation(*state, 0);
        assert_true(status == WF_OK || (status == WF_ERR_MEMORY && !rows));
        wf_sample_rows_free(rows);
        assert_int_equal(wt_live_blocks(*state), 0);
    }
    assert_true(n > 2 + 4 * THREADS);
    wf_sample_rows_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_threads),
        wt_test(test_alone),
        wt_test(test_memory),
    };
    return cmocka_run_group_tests_name("sample_rows", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * product_tune.c - which of cuBLASLt's algorithms is the fastest for a product, found by timing them.
 *
 * Their order as proposed says little about that: it does not know what is added, what follows, how much power the
 * numbers take. So all are timed on memory of their own, laid out as the product's is, with random numbers.
 */
#include <string.h>

#include "device/cuda/product_priv.h"

enum { FIRST_RUNS = 3, LAST_RUNS = 9, MOST_RUNS = LAST_RUNS, FINALISTS = 4 };

static const double worth_timing = 25e6; /* multiplications */
static const double near = 1.05;         /* of the fastest: timed again, more often */
static const double noise = 1.01;        /* the library's first is taken within so much of it */
static const double hopeless = 2;        /* not timed again at all */

typedef struct {
    const wf_cuda_products *all;
    const wf_product_entry *e;
    const wf_cuda_product *p;
    cudaStream_t stream;
    cudaEvent_t begin[MOST_RUNS], end[MOST_RUNS];
    void *memory;
    wf_product_memory at;
    float *parts;
} bench;

/* ---- Memory ---- */

/* Places in one allocation: `base` is NULL while sizes are added up. */
static void *place(char *base, size_t *used, int64_t bytes, int64_t align)
{
    char *at = base ? base + *used + (align == 256 ? 0 : align) : NULL;
    *used += ((size_t)bytes + 511) / 256 * 256;
    return at;
}

static size_t lay_out(bench *t, char *base)
{
    const int64_t *f = t->e->key.f, last = f[KEY_BATCH] - 1;
    const int64_t in = (int64_t)wf_type_bytes((wf_type)f[KEY_TYPE], 1);
    const int64_t out = (int64_t)wf_type_bytes((wf_type)f[KEY_TYPE_D], 1);
    const int64_t a = f[KEY_LD_A] * (f[KEY_TRANS_A] ? f[KEY_M] : f[KEY_K]) + last * f[KEY_STEP_A];
    const int64_t b = f[KEY_LD_B] * (f[KEY_TRANS_B] ? f[KEY_K] : f[KEY_N]) + last * f[KEY_STEP_B];
    const int64_t d = f[KEY_LD_D] * f[KEY_N] + last * f[KEY_STEP_D];
    size_t used = 0;
    t->at.a = place(base, &used, a * in, f[KEY_ALIGN_A]);
    t->at.b = place(base, &used, b * in, f[KEY_ALIGN_B]);
    t->at.d = place(base, &used, d * out, f[KEY_ALIGN_D]);
    if (f[KEY_TYPE_BIAS] != WF_TYPE_NONE)
        t->at.bias = place(base, &used, f[KEY_M] * 4, 256);
    if (f[KEY_LD_AUX] != 0)
        t->at.aux = place(base, &used, f[KEY_LD_AUX] * f[KEY_N] * out, f[KEY_ALIGN_AUX]);
    if (t->p->sums) {
        t->at.sums = place(base, &used, f[KEY_N] * 4, 256);
        t->parts = place(base, &used, (int64_t)wf_cuda_sums_bytes(f[KEY_N]), 256);
    }
    t->at.workspace = place(base, &used, f[KEY_WORKSPACE], 256);
    return used;
}

static bool begin_bench(bench *t)
{
    const size_t bytes = lay_out(t, NULL);
    bool ok = cudaMalloc(&t->memory, bytes) == cudaSuccess;
    if (ok) {
        lay_out(t, t->memory);
        wf_cuda_randomize(t->stream, (wf_type)t->e->key.f[KEY_TYPE], t->memory, bytes, 1);
    }
    for (int i = 0; ok && i < MOST_RUNS; i++)
        ok = cudaEventCreate(&t->begin[i]) == cudaSuccess &&
             cudaEventCreate(&t->end[i]) == cudaSuccess;
    return ok;
}

static void end_bench(bench *t)
{
    cudaStreamSynchronize(t->stream);
    for (int i = 0; i < MOST_RUNS; i++) {
        if (t->begin[i])
            cudaEventDestroy(t->begin[i]);
        if (t->end[i])
            cudaEventDestroy(t->end[i]);
    }
    cudaFree(t->memory);
    cudaGetLastError(); /* that there was no memory is no failure of what comes next */
}

/* ---- Timing ---- */

static double median(double *x, int n)
{
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double t = x[j];
            x[j] = x[j - 1];
            x[j - 1] = t;
        }
    return x[n / 2];
}

/* Our kernels for the ending, as run_apart of product.c runs them. */
static void run_ours(const bench *t)
{
    wf_cuda_product q = *t->p;
    q.a.data = (void *)(uintptr_t)t->at.b;
    q.y.data = t->at.d;
    q.pre.data = t->at.aux;
    q.sums = t->at.sums;
    if (q.sums)
        wf_cuda_row_sums(t->stream, &q, t->parts);
    if (q.ending != WF_CUDA_PLAIN)
        wf_cuda_finish(t->stream, &q);
}

/* algo NULL: our kernels. */
static int run_once(const bench *t, const wf_lt_algo *algo)
{
    if (algo)
        return wf_product_run(t->all, t->e, algo, &t->at, t->stream);
    run_ours(t);
    return 0;
}

/* Microseconds, the median of some runs; 0: it cannot be run. A first run, which may have to load the code, does not
 * count; if it is no match for `best`, it is all there is. */
static double time_it(const bench *t, const wf_lt_algo *algo, int runs, double best)
{
    double us[MOST_RUNS];
    float ms = 0;
    int done = 0;
    for (int i = -2; i < runs; i++) {
        const int slot = i < 0 ? 0 : i;
        cudaEventRecord(t->begin[slot], t->stream);
        if (run_once(t, algo) != 0)
            return 0;
        cudaEventRecord(t->end[slot], t->stream);
        if (i >= 0)
            continue;
        if (cudaStreamSynchronize(t->stream) != cudaSuccess)
            return 0;
        cudaEventElapsedTime(&ms, t->begin[slot], t->end[slot]);
        if (i == -1 && best > 0 && ms * 1000.0 > hopeless * best)
            return ms * 1000.0;
    }
    if (cudaStreamSynchronize(t->stream) != cudaSuccess)
        return 0;
    for (; done < runs; done++) {
        if (cudaEventElapsedTime(&ms, t->begin[done], t->end[done]) != cudaSuccess)
            return 0;
        us[done] = ms * 1000.0;
    }
    return median(us, done);
}

/* The fastest of those that were not timed again yet and are near `best`; -1: there is none. */
static int next_finalist(const double *us, const bool *again, int count, double best)
{
    int next = -1;
    for (int i = 0; i < count; i++)
        if (us[i] > 0 && us[i] <= near * best && !again[i] && (next < 0 || us[i] < us[next]))
            next = i;
    return next;
}

/* All candidates a few times, then those in front, after the library's first, more often. -1: none runs. */
static int find_fastest(const bench *t, const wf_lt_candidate *candidates, int count, double *us)
{
    double first[WF_PRODUCT_CANDIDATES], best = 0;
    bool again[WF_PRODUCT_CANDIDATES] = {false};
    int winner = -1;
    for (int i = 0; i < count; i++) {
        first[i] = time_it(t, &candidates[i].algo, FIRST_RUNS, best);
        if (first[i] > 0 && (best == 0 || first[i] < best))
            best = first[i];
    }
    int i = first[0] > 0 ? 0 : next_finalist(first, again, count, best);
    for (int n = 0; i >= 0 && n <= FINALISTS; n++) {
        const double more = time_it(t, &candidates[i].algo, LAST_RUNS, 0);
        again[i] = true;
        if (more > 0 && (winner < 0 || more * (winner == 0 ? noise : 1) < *us)) {
            winner = i;
            *us = more;
        }
        i = next_finalist(first, again, count, best);
    }
    return winner;
}

void wf_product_tune(wf_cuda_products *all, wf_product_entry *e, const wf_lt_candidate *candidates,
                     int count, const wf_cuda_product *p, cudaStream_t stream, double *ours_us)
{
    const int64_t *f = e->key.f;
    bench t = {.all = all, .e = e, .p = p, .stream = stream};
    double size = (double)f[KEY_BATCH] * (double)f[KEY_M] * (double)f[KEY_N] * (double)f[KEY_K];
    if (!all->tune || size < worth_timing)
        return;
    if (begin_bench(&t)) {
        double us = 0;
        int winner = find_fastest(&t, candidates, count, &us);
        if (winner >= 0) {
            e->algo = candidates[winner].algo;
            e->us = us;
            all->changed = true;
        }
        if (p->ending != WF_CUDA_PLAIN || p->sums)
            *ours_us = time_it(&t, NULL, LAST_RUNS, 0);
    } else {
        wf_ctx_log(all->ctx, WF_LOG_INFO,
                   "a product of %lldx%lldx%lld is not timed: there is no memory for it",
                   (long long)f[KEY_N], (long long)f[KEY_M], (long long)f[KEY_K]);
    }
    end_bench(&t);
}

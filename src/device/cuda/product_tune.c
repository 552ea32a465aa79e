/* SPDX-License-Identifier: MIT */
/*
 * product_tune.c - which of cuBLASLt's algorithms is the fastest for a product, found by timing them.
 *
 * Their order as proposed says little about that: it does not know what is added, what follows, how much power the
 * numbers take. So all are timed on memory of their own, laid out as the product's is, with random numbers.
 */
#include <string.h>

#include "device/cuda/product_priv.h"

enum { ROUNDS = 5, BURSTS = 3 };

static const double near = 1.06;  /* of the fastest: timed again */
static const double noise = 1.01; /* the library's first is taken within so much of it */
static const double burst_us = 10e3;

typedef struct {
    const wf_cuda_products *all;
    const wf_product_entry *e;
    const wf_cuda_product *p;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *memory;
    wf_product_memory at;
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
    if (f[KEY_BIAS])
        t->at.bias = place(base, &used, f[KEY_M] * 4, 256);
    if (f[KEY_LD_AUX] != 0)
        t->at.aux = place(base, &used, f[KEY_LD_AUX] * f[KEY_N] * out, f[KEY_ALIGN_AUX]);
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
    return ok && cudaEventCreate(&t->begin) == cudaSuccess &&
           cudaEventCreate(&t->end) == cudaSuccess;
}

static void end_bench(bench *t)
{
    cudaStreamSynchronize(t->stream);
    if (t->begin)
        cudaEventDestroy(t->begin);
    if (t->end)
        cudaEventDestroy(t->end);
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

/* Our kernel for the ending, as run_apart of product.c runs it. */
static void run_ours(const bench *t)
{
    wf_cuda_product q = *t->p;
    q.y.data = t->at.d;
    q.pre.data = t->at.aux;
    wf_cuda_finish(t->stream, &q);
}

/* algo NULL: our kernel. */
static int run_once(const bench *t, const wf_lt_algo *algo)
{
    if (algo)
        return wf_product_run(t->all, t->e, algo, &t->at, t->stream);
    run_ours(t);
    return 0;
}

/* Microseconds of `runs` runs one after the other; 0: it cannot be run. */
static double time_runs(const bench *t, const wf_lt_algo *algo, int runs)
{
    float ms = 0;
    cudaEventRecord(t->begin, t->stream);
    for (int i = 0; i < runs; i++)
        if (run_once(t, algo) != 0)
            return 0;
    cudaEventRecord(t->end, t->stream);
    if (cudaStreamSynchronize(t->stream) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess)
        return 0;
    return ms * 1000.0;
}

typedef struct {
    const wf_lt_algo *algo; /* NULL: our kernel */
    double us[ROUNDS];
    double best; /* the median of these; 0: it cannot be run */
} entrant;

/* All a few times, in turns: what the GPU's clock does meanwhile it does to all of them. The first run of each, which
 * may have to load the code, does not count. Returns the best time. */
static double run_heat(const bench *t, entrant *list, int count)
{
    double best = 0;
    for (int i = 0; i < count; i++)
        list[i].best = time_runs(t, list[i].algo, 1);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < count; i++)
            if (list[i].best > 0)
                list[i].us[r] = time_runs(t, list[i].algo, 1);
    for (int i = 0; i < count; i++) {
        if (list[i].best > 0)
            list[i].best = median(list[i].us, ROUNDS);
        if (list[i].best > 0 && (best == 0 || list[i].best < best))
            best = list[i].best;
    }
    return best;
}

/* Microseconds of a run among so many that the GPU is as hot, and its clock as low, as in training: there an
 * algorithm that takes less power is faster. */
static double run_hot(const bench *t, const wf_lt_algo *algo, double about)
{
    int runs = (int)(burst_us / about) + 1;
    return time_runs(t, algo, runs) / runs;
}

/* Which one is the fastest; -1: none runs. Those in front after a heat run again, the library's first always. */
static int find_fastest(const bench *t, entrant *list, int count, double *us)
{
    const double best = run_heat(t, list, count);
    int winner = -1;
    for (int i = 0; i < count; i++) {
        if (list[i].best == 0 || (i > 0 && list[i].best > near * best))
            continue;
        for (int r = 0; r < BURSTS; r++)
            list[i].us[r] = run_hot(t, list[i].algo, list[i].best);
        const double hot = median(list[i].us, BURSTS);
        if (hot > 0 && (winner < 0 || hot * (winner == 0 ? noise : 1) < *us)) {
            winner = i;
            *us = hot;
        }
    }
    return winner;
}

static int time_candidates(const bench *t, const wf_lt_candidate *candidates, int count, double *us)
{
    entrant list[WF_PRODUCT_CANDIDATES] = {{0}};
    for (int i = 0; i < count; i++)
        list[i].algo = &candidates[i].algo;
    return find_fastest(t, list, count, us);
}

static double time_ours(const bench *t)
{
    entrant ours = {0};
    double us = 0;
    return find_fastest(t, &ours, 1, &us) < 0 ? 0 : us;
}

void wf_product_tune(wf_cuda_products *all, wf_product_entry *e, const wf_lt_candidate *candidates,
                     int count, const wf_cuda_product *p, cudaStream_t stream, double *ours_us)
{
    const int64_t *f = e->key.f;
    bench t = {.all = all, .e = e, .p = p, .stream = stream};
    double size = (double)f[KEY_BATCH] * (double)f[KEY_M] * (double)f[KEY_N] * (double)f[KEY_K];
    if (!all->tune || size < WF_PRODUCT_SMALL)
        return;
    if (begin_bench(&t)) {
        double us = 0;
        int winner = time_candidates(&t, candidates, count, &us);
        if (winner >= 0) {
            e->algo = candidates[winner].algo;
            e->us = us;
            all->changed = true;
        }
        if (p->ending != WF_CUDA_PLAIN)
            *ours_us = time_ours(&t);
    } else {
        wf_ctx_log(all->ctx, WF_LOG_INFO,
                   "a product of %lldx%lldx%lld is not timed: there is no memory for it",
                   (long long)f[KEY_N], (long long)f[KEY_M], (long long)f[KEY_K]);
    }
    end_bench(&t);
}

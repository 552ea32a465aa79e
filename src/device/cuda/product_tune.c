/* SPDX-License-Identifier: MIT */
/*
 * product_tune.c - times cuBLASLt's algorithms for a GEMM and picks the fastest.
 *
 * cuBLASLt's heuristic ranks poorly: it ignores bias, epilogue and power draw. All candidates are
 * timed on separate memory with the GEMM's layout and random values. The heuristic also misses good
 * candidates: some that it returns for other operand layouts are 25% faster. These are timed, too,
 * after their result was compared with the first candidate's.
 */
#include <math.h>
#include <string.h>

#include "device/cuda/product_key.h"

/* Timed runs per candidate, bursts per finalist, and most finalists. */
enum { ROUNDS = 3, BURSTS = 3, FINALISTS = 6 };

static const double near = 1.12; /* times the fastest: candidates within it become finalists */
/* Prefer the heuristic's first candidate within 1% of the fastest. */
static const double noise = 1.01;
static const double burst_us = 15e3; /* microseconds of a burst */

/* Memory and events for timing one GEMM. */
typedef struct {
    const wf_cuda_products *all;
    const wf_product_entry *e;
    const wf_cuda_product *p;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    void *memory; /* one allocation for all operands */
    wf_product_memory at;
    void *second;        /* a second result, shaped like at.d */
    int *wrong;          /* number of elements that differ, on the device */
    float *sums, *parts; /* for row sums, if requested */
} bench;

/* ---- Memory ---- */

/* Carves one allocation. `base` is NULL in the first pass, which only adds up sizes. */
static void *place(char *base, size_t *used, int64_t bytes, int64_t align)
{
    /* Offset by the operand's alignment, as 256-aligned memory would flatter it. */
    char *at = base ? base + *used + (align == 256 ? 0 : align) : NULL;
    *used += ((size_t)bytes + 511) / 256 * 256;
    return at;
}

/* Returns the bytes used. A key has the sizes in cuBLASLt's order: A, B and D are column-major. */
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
    t->second = place(base, &used, d * out, f[KEY_ALIGN_D]);
    t->wrong = place(base, &used, sizeof *t->wrong, 256);
    if (f[KEY_BIAS])
        t->at.bias = place(base, &used, f[KEY_M] * 4, 256);
    if (f[KEY_LD_AUX] != 0)
        t->at.aux = place(base, &used, f[KEY_LD_AUX] * f[KEY_N] * out, f[KEY_ALIGN_AUX]);
    if (f[KEY_ROWS_SUMS]) {
        t->sums = place(base, &used, f[KEY_M] * 4, 256);
        t->parts = place(base, &used, (int64_t)wf_cuda_sums_bytes(f[KEY_M]), 256);
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
    /* Also after begin_bench failed: NULL is ignored. */
    cudaFree(t->memory);
    cudaGetLastError(); /* clear the out-of-memory error: the GEMM just stays untimed */
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

/* Our epilogue kernel, as run_apart in product.c launches it. */
static void finish(const bench *t)
{
    wf_cuda_product q = *t->p;
    q.y.data = t->at.d;
    q.pre.data = t->at.aux;
    q.rows_sums = t->sums;
    wf_cuda_finish(t->stream, &q, t->parts);
}

/* Our kernel for row sums, which follows cuBLASLt's epilogue. */
static void add_rows(const bench *t)
{
    wf_cuda_matrix y = t->p->y;
    y.data = t->at.d;
    wf_cuda_add_rows(t->stream, &y, t->p->m, t->p->n, t->sums, t->parts);
}

typedef struct {
    const wf_lt_algo *algo;       /* or NULL with `ours` set */
    void (*ours)(const bench *t); /* launches our kernel */
    double us[ROUNDS];
    double best; /* median microseconds; 0: cannot run */
} entrant;

static int run_once(const bench *t, const entrant *x)
{
    if (x->algo)
        return wf_product_run(t->all, t->e, x->algo, &t->at, t->stream);
    x->ours(t);
    return 0;
}

/* Microseconds of `runs` consecutive runs; 0: cannot run. */
static double time_runs(const bench *t, const entrant *x, int runs)
{
    float ms = 0;
    cudaEventRecord(t->begin, t->stream);
    for (int i = 0; i < runs; i++)
        if (run_once(t, x) != 0) /* the algorithm does not support this GEMM */
            return 0;
    cudaEventRecord(t->end, t->stream);
    if (cudaStreamSynchronize(t->stream) != cudaSuccess ||
        cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess)
        return 0;
    return ms * 1000.0;
}

/* Times all candidates in alternation, so clock changes affect all alike. The first run of each may
 * load code and is not counted. Returns the best time. */
static double run_heat(const bench *t, entrant *list, int count)
{
    double best = 0;
    for (int i = 0; i < count; i++)
        list[i].best = time_runs(t, &list[i], 1);
    for (int r = 0; r < ROUNDS; r++)
        for (int i = 0; i < count; i++)
            if (list[i].best > 0)
                list[i].us[r] = time_runs(t, &list[i], 1);
    for (int i = 0; i < count; i++) {
        if (list[i].best > 0)
            list[i].best = median(list[i].us, ROUNDS);
        if (list[i].best > 0 && (best == 0 || list[i].best < best))
            best = list[i].best;
    }
    return best;
}

/* Microseconds per run of a long series, in which the GPU is as hot and its clock as low as in
 * training: algorithms that draw less power win there. */
static double run_hot(const bench *t, const entrant *x)
{
    int runs = (int)(burst_us / x->best) + 1;
    return time_runs(t, x, runs) / runs;
}

/* The fastest candidate near the best that is not taken yet, or -1. */
static int next_finalist(const entrant *list, int count, double best, const bool *taken)
{
    int next = -1;
    for (int i = 0; i < count; i++)
        if (!taken[i] && list[i].best > 0 && list[i].best <= near * best &&
            (next < 0 || list[i].best < list[next].best))
            next = i;
    return next;
}

/* The heuristic's first candidate, then the finalists. Returns their count. */
static int choose_finalists(const entrant *list, int count, double best, int out[FINALISTS])
{
    bool taken[WF_PRODUCT_CANDIDATES] = {false};
    int next = list[0].best > 0 ? 0 : next_finalist(list, count, best, taken), n = 0;
    for (; next >= 0 && n < FINALISTS; next = next_finalist(list, count, best, taken)) {
        out[n++] = next;
        taken[next] = true;
    }
    return n;
}

/* Index of the fastest candidate; -1: none runs. */
static int find_fastest(const bench *t, entrant *list, int count, double *us)
{
    int finalists[FINALISTS], winner = -1;
    const double best = run_heat(t, list, count);
    const int n = choose_finalists(list, count, best, finalists);
    for (int r = 0; r < BURSTS; r++)
        for (int i = 0; i < n; i++)
            list[finalists[i]].us[r] = run_hot(t, &list[finalists[i]]);
    /* Finalist 0 may be the heuristic's first: others must beat it by more than `noise`. */
    for (int i = 0; i < n; i++) {
        const double hot = median(list[finalists[i]].us, BURSTS);
        if (hot > 0 && (winner < 0 || hot * (winner == 0 ? noise : 1) < *us)) {
            winner = finalists[i];
            *us = hot;
        }
    }
    return winner;
}

/* ---- Candidates ---- */

static bool is_listed(const wf_lt_candidate *list, int count, const wf_lt_algo *algo)
{
    for (int i = 0; i < count; i++)
        if (memcmp(&list[i].algo, algo, sizeof *algo) == 0)
            return true;
    return false;
}

/* Adds the candidates of a plain GEMM of the same size with other operand layouts. */
static int add_related(wf_cuda_products *all, const wf_product_entry *e, bool ta, bool tb,
                       wf_lt_candidate *list, int count)
{
    wf_lt_candidate found[WF_PRODUCT_PROPOSED];
    wf_product_entry other = {.key = e->key};
    int64_t *f = other.key.f;
    f[KEY_TRANS_A] = ta;
    f[KEY_TRANS_B] = tb;
    f[KEY_LD_A] = ta ? f[KEY_K] : f[KEY_M];
    f[KEY_LD_B] = tb ? f[KEY_N] : f[KEY_K];
    f[KEY_EPILOGUE] = WF_LT_EPILOGUE_DEFAULT;
    f[KEY_BIAS] = f[KEY_LD_AUX] = 0;
    const int n = wf_product_build(all, &other) ? wf_product_propose(all, &other, found) : 0;
    wf_product_drop(all, &other);
    for (int i = 0; i < n && count < WF_PRODUCT_CANDIDATES; i++) {
        wf_lt_candidate *next = &list[count];
        /* The same algorithm may be proposed for several layouts. */
        if (is_listed(list, count, &found[i].algo) ||
            all->lt->check(all->handle, e->desc, e->a, e->b, e->d, e->d, &found[i].algo, next) !=
                0 ||
            next->workspace > (size_t)f[KEY_WORKSPACE])
            continue;
        next->algo = found[i].algo;
        count++;
    }
    return count;
}

static int list_candidates(wf_cuda_products *all, const wf_product_entry *e,
                           const wf_lt_candidate *proposed, int count,
                           wf_lt_candidate list[WF_PRODUCT_CANDIDATES])
{
    memcpy(list, proposed, (size_t)count * sizeof *list);
    for (int i = 0; e->key.f[KEY_BATCH] == 1 && i < 4; i++)
        count = add_related(all, e, i & 1, i & 2, list, count);
    return count;
}

/* Whether two algorithms agree up to the rounding of sums. Runs both on equal data: a candidate for
 * other layouts may be wrong here although the library accepts it. */
static bool agree(const bench *t, const wf_lt_algo *a, const wf_lt_algo *b)
{
    const int64_t *f = t->e->key.f;
    wf_product_memory at = t->at;
    const float slack = 0.02f * (1 + 0.25f * sqrtf((float)f[KEY_K])); /* for elements around 0.5 */
    const wf_type type = (wf_type)f[KEY_TYPE_D];
    const int64_t elements = f[KEY_LD_D] * f[KEY_N] + (f[KEY_BATCH] - 1) * f[KEY_STEP_D];
    int wrong = 1; /* stays 1 if a copy fails */
    at.d = t->second;
    cudaMemcpyAsync(t->second, t->at.d, wf_type_bytes(type, elements), cudaMemcpyDeviceToDevice,
                    t->stream); /* padding of rows, and the addend */
    cudaMemsetAsync(t->wrong, 0, sizeof wrong, t->stream);
    if (wf_product_run(t->all, t->e, a, &t->at, t->stream) != 0 ||
        wf_product_run(t->all, t->e, b, &at, t->stream) != 0)
        return false;
    wf_cuda_compare(t->stream, type, t->at.d, t->second, elements, slack, t->wrong);
    cudaMemcpyAsync(&wrong, t->wrong, sizeof wrong, cudaMemcpyDeviceToHost, t->stream);
    return cudaStreamSynchronize(t->stream) == cudaSuccess && wrong == 0;
}

static void take_fastest(const bench *t, wf_cuda_products *all, wf_product_entry *e,
                         const wf_lt_candidate *list, int count)
{
    entrant entrants[WF_PRODUCT_CANDIDATES] = {{0}};
    double us = 0;
    for (int i = 0; i < count; i++)
        entrants[i].algo = &list[i].algo;
    const int winner = find_fastest(t, entrants, count, &us);
    if (winner < 0)
        return;
    if (winner > 0 && !agree(t, &list[0].algo, &list[winner].algo)) {
        wf_ctx_log(all->ctx, WF_LOG_WARN,
                   "cuBLASLt's fastest algorithm is wrong for a matmul of "
                   "%lldx%lldx%lld; using its first one",
                   (long long)e->key.f[KEY_N], (long long)e->key.f[KEY_M],
                   (long long)e->key.f[KEY_K]);
        us = entrants[0].best;
    } else {
        e->algo = list[winner].algo;
    }
    e->us = us;
    all->changed = true;
}

/* Returns microseconds of one of our kernels; 0 if it cannot run. */
static double time_ours(const bench *t, void (*run)(const bench *t))
{
    entrant ours = {.ours = run};
    double us = 0;
    return find_fastest(t, &ours, 1, &us) < 0 ? 0 : us;
}

/* Changes e->algo and e->us only. Without memory for the operands the heuristic's choice stays. */
void wf_product_tune(wf_cuda_products *all, wf_product_entry *e, const wf_lt_candidate *proposed,
                     int count, const wf_cuda_product *p, cudaStream_t stream, double *ours_us)
{
    const int64_t *f = e->key.f;
    bench t = {.all = all, .e = e, .p = p, .stream = stream};
    wf_lt_candidate list[WF_PRODUCT_CANDIDATES];
    double size = (double)f[KEY_BATCH] * (double)f[KEY_M] * (double)f[KEY_N] * (double)f[KEY_K];
    if (!all->tune || size < wf_product_small)
        return;
    if (begin_bench(&t)) {
        take_fastest(&t, all, e, list, list_candidates(all, e, proposed, count, list));
        if (p->ending != WF_CUDA_PLAIN)
            *ours_us = time_ours(&t, finish);
        if (f[KEY_ROWS_SUMS] && e->us > 0)
            e->us += time_ours(&t, add_rows);
    } else {
        wf_ctx_log(all->ctx, WF_LOG_INFO,
                   "a matmul of %lldx%lldx%lld is not timed: not enough memory",
                   (long long)f[KEY_N], (long long)f[KEY_M], (long long)f[KEY_K]);
    }
    end_bench(&t);
}

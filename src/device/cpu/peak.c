/* SPDX-License-Identifier: MIT */
/* peak.c - measures the machine's peak: streaming memory bandwidth, and multiply-adds in
 * registers. */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "device/cpu/cpu.h"

#define REPEATS 8          /* the best counts: other load and rising clocks only slow a run down */
#define ROUND_SECONDS 5e-3 /* of arithmetic per measurement */
#define PIECE 4096         /* floats per chunk of a thread's stream */

/* ---- In plain C ---- */

#define SUMS 32 /* independent chains, enough to hide the latency of a multiply-add */

/* 0.5 x + 0.5 stays bounded and never becomes subnormal. */
static float multiply_add(int64_t rounds)
{
    float sum[SUMS], all = 0;
    for (int i = 0; i < SUMS; i++)
        sum[i] = (float)i;
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < SUMS; i++)
            sum[i] = sum[i] * 0.5f + 0.5f;
    for (int i = 0; i < SUMS; i++)
        all += sum[i];
    return all;
}

/* Independent sums hide the latency of additions. */
static float read_floats(const float *from, int64_t n)
{
    float sum[16] = {0}, all = 0;
    for (int64_t i = 0; i < n; i += 16)
        for (int k = 0; k < 16; k++)
            sum[k] += from[i + k];
    for (int k = 0; k < 16; k++)
        all += sum[k];
    return all;
}

/* Eight streams, as eight rows of a matrix are read. */
static float read_rows(const float *from, int64_t n)
{
    const int64_t length = n / 8;
    float sum[8][4] = {0}, all = 0;
    for (int64_t i = 0; i < length; i += 4)
        for (int k = 0; k < 8; k++)
            for (int lane = 0; lane < 4; lane++)
                sum[k][lane] += from[k * length + i + lane];
    for (int k = 0; k < 8; k++)
        for (int lane = 0; lane < 4; lane++)
            all += sum[k][lane];
    return all;
}

static void copy_floats(float *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

static void triad_floats(float *to, const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = a[i] + 0.5f * b[i];
}

const wf_cpu_loops wf_cpu_plain_loops = {
    .flops = 2 * SUMS,
    .multiply_add = multiply_add,
    .read = read_floats,
    .read_rows = read_rows,
    .copy = copy_floats,
    .triad = triad_floats,
};

/* ---- Over threads ---- */

typedef struct {
    const wf_cpu_loops *loops;
    int threads;
    float *part[3]; /* parts of the memory */
    int64_t rounds; /* rounds of arithmetic */
    float *sink; /* [threads][16]: one cache line each; keeps the compiler from dropping the sums */
} bench;

static float *sink_of(const bench *b, int thread)
{
    return b->sink + 16 * thread;
}

/* Touches the pages with the threads that stream them later. */
static void fill_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    (void)thread;
    for (int64_t i = begin * PIECE; i < end * PIECE; i++)
        b->part[0][i] = 1;
}

static void read_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    *sink_of(b, thread) += b->loops->read(b->part[0] + begin * PIECE, (end - begin) * PIECE);
}

static void read_rows_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    *sink_of(b, thread) += b->loops->read_rows(b->part[0] + begin * PIECE, (end - begin) * PIECE);
}

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    (void)thread;
    b->loops->copy(b->part[0] + begin * PIECE, b->part[1] + begin * PIECE, (end - begin) * PIECE);
}

static void triad_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    (void)thread;
    b->loops->triad(b->part[0] + begin * PIECE, b->part[1] + begin * PIECE,
                    b->part[2] + begin * PIECE, (end - begin) * PIECE);
}

static void compute_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const bench *b = arg;
    for (int64_t i = begin; i < end; i++)
        *sink_of(b, thread) += b->loops->multiply_add(b->rounds);
}

static double seconds_of(bench *b, wf_range_fn *fn, int64_t items)
{
    uint64_t begin = wf_clock_ns();
    wf_parallel_for(b->threads, items, 1, fn, b);
    return (double)(wf_clock_ns() - begin) / 1e9;
}

static double best_of(bench *b, wf_range_fn *fn, int64_t items)
{
    double best = INFINITY;
    for (int i = 0; i < REPEATS; i++)
        best = fmin(best, seconds_of(b, fn, items));
    return best > 0 ? best : 1e-9;
}

/* Bytes per second when the memory is split into `parts` arrays, all of which fn accesses. */
static double stream(bench *b, float *memory, int64_t floats, int parts, wf_range_fn *fn)
{
    /* All parts have equal length. */
    const int64_t pieces = floats / PIECE / parts, n = pieces * PIECE;
    for (int i = 0; i < parts; i++)
        b->part[i] = memory + i * n;
    return (double)parts * (double)n * sizeof(float) / best_of(b, fn, pieces);
}

/* Best of three on one thread: other load can disturb even short measurements. */
static double seconds_of_rounds(const bench *b)
{
    double best = INFINITY;
    for (int i = 0; i < 3; i++) {
        uint64_t begin = wf_clock_ns();
        *b->sink += b->loops->multiply_add(b->rounds);
        best = fmin(best, (double)(wf_clock_ns() - begin) / 1e9);
    }
    return best;
}

static double arithmetic(bench *b)
{
    double seconds;
    for (b->rounds = 1 << 10; (seconds = seconds_of_rounds(b)) < ROUND_SECONDS / 8;)
        b->rounds *= 2;
    if (seconds < ROUND_SECONDS) /* at most x8: short measurements suffice to scale by */
        b->rounds = (int64_t)((double)b->rounds * ROUND_SECONDS / seconds);
    double work = (double)b->rounds * (double)b->loops->flops * b->threads;
    return work / best_of(b, compute_range, b->threads);
}

wf_status wf_cpu_peak(wf_device *d, int threads, size_t bytes, wf_device_peak *out)
{
    const size_t least = 3 * PIECE * sizeof(float);
    int64_t floats = (int64_t)((bytes > least ? bytes : least) / sizeof(float));
    wf_status status = WF_ERR_MEMORY;
    bench b = {.loops = wf_cpu_isa_now()->loops, .threads = threads};
    float *memory = wf_mem_array(d->ctx, (size_t)floats, sizeof *memory);
    b.sink = wf_mem_array(d->ctx, (size_t)threads * 16, sizeof *b.sink);
    *out = (wf_device_peak){0};
    if (memory && b.sink) {
        out->flops = arithmetic(&b); /* first: it also raises the clock */
        b.part[0] = memory;          /* written first: untouched pages all map to one zero page */
        seconds_of(&b, fill_range, floats / PIECE);
        /* Hardware prefetch works per stream, so several streams may be faster. */
        out->read = fmax(stream(&b, memory, floats, 1, read_range),
                         stream(&b, memory, floats, 1, read_rows_range));
        out->copy = stream(&b, memory, floats, 2, copy_range);
        out->triad = stream(&b, memory, floats, 3, triad_range);
        status = WF_OK;
    }
    wf_mem_free(d->ctx, memory);
    wf_mem_free(d->ctx, b.sink);
    return status;
}

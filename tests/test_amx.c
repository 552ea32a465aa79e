/* SPDX-License-Identifier: MIT */
/*
 * test_amx.c - AMX tile kernels, emulated on machines without AMX. With quantized weights they have
 * the bits of the vector kernels. A row of a bf16 matmul has the same bits among any other rows and
 * with any number of threads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "support.h"

enum { MOST_M = 300, MOST_N = 70, MOST_K = 768 };

static const wf_cpu_isa *isa_of(const char *set)
{
    const wf_cpu_isa *isa;
    const char *name;
    for (int i = 0; (isa = wf_cpu_isa_at(i, &name)); i++)
        if (strcmp(name, set) == 0)
            return isa;
    return NULL;
}

static const wf_kernel *const *kernels_of(const char *set)
{
    const wf_cpu_isa *isa = isa_of(set);
    return isa ? isa->kernels : NULL;
}

/* Returns the AMX kernels, or the emulated ones; NULL when the build has neither. */
static const wf_kernel *const *tile_kernels(void)
{
    const wf_kernel *const *real = kernels_of("amx");
    return real ? real : kernels_of("amx_emulated");
}

/* Expects some op of the executable to use this kernel. */
static void expect_kernel(const wt_run *r, const char *kernel)
{
    wf_op_stats s;
    bool found = false;
    for (int i = 0; wf_exec_op_stats(r->exec, i, &s); i++)
        found = found || strcmp(s.kernel, kernel) == 0;
    assert_true(found);
}

/* ---- Quantized weights ---- */

typedef struct {
    wf_type type;
    int64_t m, n, k;
    float x[MOST_M * MOST_K], w[MOST_N * MOST_K];
    uint8_t blocks[MOST_N * MOST_K * 2];
} problem;

/* extreme: integers of the largest magnitude, 1: of one sign, 2: of both. */
static void fill(wf_ctx *ctx, problem *p, int extreme, uint64_t seed)
{
    wf_random_normal(seed, 1, 0, 1, p->w, p->n * p->k);
    wf_random_normal(seed, 2, 0, 1, p->x, p->m * p->k);
    for (int64_t i = 0; i < p->m * p->k; i++)
        p->x[i] = extreme ? (extreme == 1 || i % 3 ? 1.0f : -1.0f) * (i / p->k % 2 ? -3 : 3)
                          : p->x[i] * ldexpf(1, (int)(i / 32 * 7 % 13) - 6);
    for (int64_t i = 0; i < p->n * p->k && extreme; i++)
        p->w[i] = (extreme == 1 || i % 5 ? 1.0f : -1.0f) * (i / p->k % 2 ? -2 : 2);
    wt_ok(ctx, wf_type_from_f32(ctx, p->type, p->w, p->blocks, p->n * p->k));
}

static wf_graph *graph_of(wf_ctx *ctx, const problem *p)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){p->m, p->k});
    wf_value *w = wf_state(g, "w", p->type, 2, (int64_t[]){p->n, p->k});
    wt_ok(ctx, wf_output(g, "y", wf_linear(g, x, w, NULL)));
    return g;
}

/* Multiplies with the kernel of that name. For an unpacked weight it lets the matmul round
 * activations. */
static void multiply(wf_ctx *ctx, const problem *p, const wf_kernel *const *kernels,
                     const char *name, float *y)
{
    const bool packed = strstr(name, "packed") != NULL;
    wt_run r = wt_open(ctx, "cpu:2");
    r.device->kernels = kernels;
    if (packed)
        wt_ok(ctx, wf_session_pack(r.session, "w", p->type, 2, (int64_t[]){p->n, p->k}));
    else
        wt_compile(&r, graph_of(ctx, p)); /* creates the state w */
    wt_ok(ctx, wf_session_write(r.session, "w", p->blocks, wf_type_bytes(p->type, p->n * p->k)));
    if (!packed)
        wf_session_round(r.session, "w");
    wt_compile(&r, graph_of(ctx, p));
    wt_write(&r, "x", p->x, (size_t)(p->m * p->k) * sizeof *p->x);
    wt_run_once(&r);
    expect_kernel(&r, name);
    wt_read(&r, "y", y, (size_t)(p->m * p->n) * sizeof *y);
    wt_close(&r);
}

/* Tile and vector kernels agree bit for bit, also when m, n and k are not multiples of a tile. */
static void test_quantized_bits(void **state)
{
    static const wf_type types[] = {WF_Q8_0, WF_Q4_0, WF_Q4_1, WF_Q4_K, WF_Q6_K};
    static const int64_t sizes[][3] = {
        {9, 1, 256},   {15, 16, 256}, {16, 17, 512}, {17, 33, 768},  {31, 32, 256}, {32, 31, 256},
        {33, 70, 512}, {48, 5, 768},  {49, 48, 256}, {300, 33, 256}, {12, 20, 32},  {20, 35, 288},
    };
    wf_ctx *ctx = *state;
    static problem p;
    static float y[MOST_M * MOST_N], want[MOST_M * MOST_N];
    const bool real = kernels_of("amx") != NULL;
    /* The set that WEFT_CPU names packs the weights; the other sets must use the same packing. */
    if (!tile_kernels() || wf_cpu_isa_now()->pack != isa_of("avx512")->pack)
        skip();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < 5; t++)
            for (int extreme = 0; extreme < 3; extreme++) {
                p.type = types[t];
                p.m = sizes[i][0];
                p.n = sizes[i][1];
                p.k = sizes[i][2];
                if (p.k % wf_type_get(p.type)->block != 0 || (real && p.type == WF_Q6_K))
                    continue; /* the tile kernel for q6_K exists in the emulation only */
                fill(ctx, &p, extreme, wt_seed() + i);
                multiply(ctx, &p, kernels_of("avx512"), "packed", want);
                memset(y, 0xff, sizeof y);
                multiply(ctx, &p, tile_kernels(), "amx packed", y);
                assert_memory_equal(y, want, (size_t)(p.m * p.n) * sizeof *y);
                if (p.type != WF_Q8_0 && p.type != WF_Q6_K)
                    continue;
                memset(y, 0xff, sizeof y);
                multiply(ctx, &p, tile_kernels(), "amx direct", y);
                assert_memory_equal(y, want, (size_t)(p.m * p.n) * sizeof *y);
            }
}

/* ---- bf16 ---- */

/* Multiplies rows [first, first + m) of x [., k] by w [n, k]. `transposed`: x is stored as [k, .] and
 * w as [k, n]. */
static void multiply_bf16(wf_ctx *ctx, const char *device, int64_t first, const int64_t size[3],
                          bool transposed, const float *x, const float *w, float *y)
{
    static float part[MOST_M * MOST_K];
    int64_t m = size[0], n = size[1], k = size[2];
    wt_run r = wt_open(ctx, device);
    r.device->kernels = tile_kernels();
    wf_graph *g = wt_graph(ctx);
    int64_t x_shape[2] = {transposed ? k : m, transposed ? m : k};
    int64_t w_shape[2] = {transposed ? k : n, transposed ? n : k};
    wf_value *a = wf_cast(g, wf_input(g, "x", WF_F32, 2, x_shape), WF_BF16);
    wf_value *b = wf_cast(g, wf_input(g, "w", WF_F32, 2, w_shape), WF_BF16);
    wt_ok(ctx, wf_output(g, "y", wf_cast(g, wf_matmul(g, a, b, transposed, !transposed), WF_F32)));
    for (int64_t i = 0; i < m * k; i++)
        part[transposed ? i % k * m + i / k : i] = x[first * k + i];
    wt_compile(&r, g);
    wt_write(&r, "x", part, (size_t)(m * k) * sizeof *part);
    wt_write(&r, "w", w, (size_t)(n * k) * sizeof *w);
    wt_run_once(&r);
    expect_kernel(&r, "amx");
    wt_read(&r, "y", y, (size_t)(m * n) * sizeof *y);
    wt_close(&r);
}

/* Fails if a kernel sums k in an order that depends on the row's place in a tile or on a
 * thread's share. */
static void test_bf16_rows(void **state)
{
    static const int64_t all[][3] = {{120, 70, 600}, {65, 17, 33}, {300, 33, 64}};
    static const int64_t parts[] = {16, 17, 31, 32, 33, 49};
    static const char *const devices[] = {"cpu:1", "cpu:3", "cpu:7"};
    static float x[MOST_M * MOST_K], w[MOST_N * MOST_K], want[MOST_M * MOST_N], y[MOST_M * MOST_N];
    wf_ctx *ctx = *state;
    if (!tile_kernels())
        skip();
    wf_random_normal(wt_seed(), 1, 0, 1, x, MOST_M * MOST_K);
    wf_random_normal(wt_seed(), 2, 0, 1, w, MOST_N * MOST_K);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int transposed = 0; transposed < 2; transposed++) {
            int64_t m = all[i][0], n = all[i][1], k = all[i][2];
            multiply_bf16(ctx, "cpu:2", 0, all[i], transposed, x, w, want);
            for (int d = 0; d < 3; d++) {
                multiply_bf16(ctx, devices[d], 0, all[i], transposed, x, w, y);
                assert_memory_equal(y, want, (size_t)(m * n) * sizeof *y);
            }
            for (int p = 0; p < 6; p++) {
                int64_t first = (m - parts[p]) / 2;
                multiply_bf16(ctx, "cpu:2", first, (int64_t[]){parts[p], n, k}, transposed, x, w,
                              y);
                assert_memory_equal(y, want + first * n, (size_t)(parts[p] * n) * sizeof *y);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_quantized_bits),
        wt_test(test_bf16_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

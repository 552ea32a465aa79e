/* SPDX-License-Identifier: MIT */
/*
 * test_hopper_products.cu - products by the kernels for Hopper, emulated, against sums in f64: every layout and ending, both
 * types, edges within tiles, more tiles than processors, k that is split, and the same bits the second time.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.cuh"

extern "C" {
#include <cmocka.h>

#include "device/cuda/hopper_product.h"
}

enum { ROOM = 16 << 20, GAP = 8 /* elements between rows */ };
enum { LINEAR, GELU, GELU_ONLY, INPUT, SLOPE, WEIGHT, WEIGHT_ADDED, KINDS };

static wf_ctx *ctx;
static wf_cuda_device device;
static wf_cuda_queue queue;
static wf_launch launch;
static char *scratch;

static int begin(void **state)
{
    (void)state;
    setenv("WEFT_EMULATED_CAPABILITY", "90", 1);
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    device.head.ctx = ctx;
    device.processors = 3;
    queue.head.device = &device.head;
    assert_int_equal(cudaStreamCreate(&queue.stream), cudaSuccess);
    assert_int_equal(cudaMalloc((void **)&scratch, ROOM), cudaSuccess);
    launch.ctx = ctx;
    launch.queue = &queue.head;
    return 0;
}

/* ---- Matrices on both sides ---- */

typedef struct {
    wf_type type;
    int64_t rows, columns, row;
    size_t bytes;
    char *host;
    void *data;
} matrix;

static double get(const matrix *x, int64_t i, int64_t j)
{
    const int64_t at = i * x->row + j;
    if (x->type == WF_F32)
        return ((const float *)x->host)[at];
    if (x->type == WF_BF16)
        return wf_load(((const wf_bf16 *)x->host)[at]);
    return wf_load(((const wf_f16 *)x->host)[at]);
}

static void set(const matrix *x, int64_t at, float value)
{
    if (x->type == WF_F32)
        ((float *)x->host)[at] = value;
    else if (x->type == WF_BF16)
        ((wf_bf16 *)x->host)[at] = wf_round<wf_bf16>(value);
    else
        ((wf_f16 *)x->host)[at] = wf_round<wf_f16>(value);
}

static void upload(const matrix *x)
{
    assert_int_equal(cudaMemcpy(x->data, x->host, x->bytes, cudaMemcpyHostToDevice), cudaSuccess);
}

static void download(const matrix *x)
{
    assert_int_equal(cudaMemcpy(x->host, x->data, x->bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

/* Random numbers within 1 of 0, also between rows. */
static matrix new_matrix(wf_type type, int64_t rows, int64_t columns, int64_t gap, unsigned seed)
{
    matrix x = {type, rows, columns, (columns + 7) / 8 * 8 + gap, 0, NULL, NULL};
    x.bytes = (size_t)(rows * x.row) * (type == WF_F32 ? 4 : 2);
    x.host = static_cast<char *>(malloc(x.bytes));
    assert_non_null(x.host);
    assert_int_equal(cudaMalloc(&x.data, x.bytes), cudaSuccess);
    for (int64_t i = 0; i < rows * x.row; i++) {
        seed = seed * 1664525u + 1013904223u;
        set(&x, i, (float)(seed >> 8) / (float)(1 << 23) - 1);
    }
    upload(&x);
    return x;
}

static void free_matrix(matrix *x)
{
    free(x->host);
    cudaFree(x->data);
}

static wf_cuda_matrix on_device(const matrix *x)
{
    return wf_cuda_matrix{x->data, x->type, x->row, 0};
}

/* ---- One product ---- */

typedef struct {
    int kind;
    wf_type type;
    int64_t m, n, k, gap;
    wf_type bias_type;
    wf_hopper_tiles tiles;
    size_t room;
} product_case;

typedef struct {
    matrix a, b, y, pre, bias, sums, before; /* before: y as it was */
    wf_cuda_product p;
} setup;

/* Where the bias begins: of some so that pairs of it are not aligned. */
static int64_t bias_begin(const product_case *c)
{
    return c->k == 72;
}

static setup set_up(const product_case *c)
{
    setup s;
    const bool weight = c->kind >= WEIGHT, linear = c->kind < INPUT;
    const wf_type out = weight ? WF_F32 : c->type;
    s.a = new_matrix(c->type, weight ? c->k : c->m, weight ? c->m : c->k, c->gap, 1);
    s.b = new_matrix(c->type, linear ? c->n : c->k, linear ? c->k : c->n, c->gap, 2);
    s.y = new_matrix(out, c->m, c->n, c->gap, 3);
    s.before = new_matrix(out, c->m, c->n, c->gap, 3);
    s.pre = new_matrix(c->type, c->m, c->n, c->gap, 4);
    s.bias = new_matrix(c->bias_type, 1, c->n + 1, 0, 5);
    s.sums = new_matrix(WF_F32, 1, c->m, 0, 6);
    s.p = wf_cuda_product{};
    s.p.batch = 1;
    s.p.m = c->m;
    s.p.n = c->n;
    s.p.k = c->k;
    s.p.a = on_device(&s.a);
    s.p.b = on_device(&s.b);
    s.p.y = on_device(&s.y);
    s.p.transpose_a = weight;
    s.p.transpose_b = linear;
    s.p.add = c->kind == WEIGHT_ADDED;
    s.p.act = WF_ACT_GELU;
    s.p.ending = c->kind == GELU || c->kind == GELU_ONLY ? WF_CUDA_ACT
                 : c->kind == SLOPE                      ? WF_CUDA_ACT_GRAD
                                                         : WF_CUDA_PLAIN;
    if (c->kind == GELU || c->kind == SLOPE)
        s.p.pre = on_device(&s.pre);
    if (linear && c->kind != GELU_ONLY) {
        s.p.bias = (char *)s.bias.data + bias_begin(c) * (c->bias_type == WF_F32 ? 4 : 2);
        s.p.bias_type = c->bias_type;
    }
    if (c->kind == WEIGHT)
        s.p.sums = static_cast<float *>(s.sums.data);
    return s;
}

static void tear_down(setup *s)
{
    matrix *const all[] = {&s->a, &s->b, &s->y, &s->pre, &s->bias, &s->sums, &s->before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free_matrix(all[i]);
}

static void run(const product_case *c, const setup *s)
{
    assert_true(wf_cuda_hopper_takes(&s->p));
    assert_int_equal(wf_cuda_hopper_multiply(&launch, &s->p, c->tiles, scratch, c->room), WF_OK);
    assert_int_equal(cudaStreamSynchronize(queue.stream), cudaSuccess);
}

/* ---- What comes out ---- */

/* rounded: the size of what was rounded to 16 bits on the way. */
static void expect_near(const product_case *c, const char *what, int64_t i, int64_t j, double got,
                        double want, double rounded)
{
    const double part = c->type == WF_BF16 ? 1.0 / 250 : 1.0 / 2000;
    if (!(fabs(got - want) <= 2e-6 * sqrt((double)c->k) + rounded * part))
        fail_msg("kind %d type %d tiles %d %lldx%lldx%lld: %s[%lld, %lld] is %.9g, not %.9g",
                 c->kind, (int)c->type, (int)c->tiles, (long long)c->m, (long long)c->n,
                 (long long)c->k, what, (long long)i, (long long)j, got, want);
}

static double gelu_gate(double x)
{
    return 1 / (1 + exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    const double g = gelu_gate(x);
    return g + x * g * (1 - g) * 2 * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static void expect_element(const product_case *c, const setup *s, int64_t i, int64_t j)
{
    const bool weight = c->kind >= WEIGHT, linear = c->kind < INPUT;
    double sum = 0, rounded = 0;
    for (int64_t k = 0; k < c->k; k++)
        sum += (weight ? get(&s->a, k, i) : get(&s->a, i, k)) *
               (linear ? get(&s->b, j, k) : get(&s->b, k, j));
    if (s->p.bias)
        sum += get(&s->bias, 0, j + bias_begin(c));
    if (c->kind == WEIGHT_ADDED)
        sum += get(&s->before, i, j);
    if (c->kind == SLOPE)
        sum *= gelu_slope(get(&s->pre, i, j));
    if (c->kind == GELU_ONLY) {
        rounded = fabs(sum);
        sum *= gelu_gate(sum);
    }
    if (c->kind == GELU) {
        const double x = get(&s->pre, i, j);
        expect_near(c, "pre", i, j, x, sum, fabs(sum));
        sum = x * gelu_gate(x);
    }
    expect_near(c, "y", i, j, get(&s->y, i, j), sum, weight ? 0 : rounded + fabs(sum));
}

static void expect_sums(const product_case *c, const setup *s)
{
    for (int64_t i = 0; i < c->m; i++) {
        double sum = 0;
        for (int64_t k = 0; k < c->k; k++)
            sum += get(&s->a, k, i);
        expect_near(c, "sums", 0, i, get(&s->sums, 0, i), sum, 0);
    }
}

/* Elements here and there, all of the last rows and columns, and what lies between rows. */
static void expect_result(const product_case *c, const setup *s)
{
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = 0; j < c->n; j++)
            if (i * 7 + j * 3 < 64 || (i * 31 + j * 17) % 97 == 0 || i + 1 == c->m || j + 1 == c->n)
                expect_element(c, s, i, j);
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = c->n; j < s->y.row; j++)
            assert_true(get(&s->y, i, j) == get(&s->before, i, j));
    if (c->kind == WEIGHT)
        expect_sums(c, s);
}

static void check(const product_case *c)
{
    setup s = set_up(c);
    char *first = static_cast<char *>(malloc(s.y.bytes));
    assert_non_null(first);
    run(c, &s);
    download(&s.y);
    download(&s.sums);
    if (c->kind == GELU)
        download(&s.pre);
    expect_result(c, &s);
    if (c->k > 100) { /* enough slabs to come in another order */
        memcpy(first, s.y.host, s.y.bytes);
        memcpy(s.y.host, s.before.host, s.y.bytes);
        upload(&s.y);
        run(c, &s);
        download(&s.y);
        assert_memory_equal(first, s.y.host, s.y.bytes);
    }
    free(first);
    tear_down(&s);
}

/* ---- Tests ---- */

/* The last one on a single processor: its warpgroups have several tiles, with more slabs than there are slots. */
static void check_kind(int kind)
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {72, 300, 72}, {200, 130, 712}};
    for (int tiles = 0; tiles < WF_HOPPER_TILES; tiles++)
        for (int t = 0; t < 2; t++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                const wf_type type = t ? WF_F16 : WF_BF16;
                if (t && (i != 2 || tiles > 0)) /* the same code */
                    continue;
                const product_case c = {
                    kind,        type, sizes[i][0],           sizes[i][1],
                    sizes[i][2], GAP,  i % 2 ? WF_F32 : type, (wf_hopper_tiles)tiles,
                    ROOM};
                device.processors = i == 2 ? 1 : 3;
                check(&c);
            }
}

static void test_linear(void **state)
{
    (void)state;
    check_kind(LINEAR);
}

static void test_gelu(void **state)
{
    (void)state;
    check_kind(GELU);
    check_kind(GELU_ONLY);
}

static void test_input(void **state)
{
    (void)state;
    check_kind(INPUT);
}

static void test_slope(void **state)
{
    (void)state;
    check_kind(SLOPE);
}

static void test_weight(void **state)
{
    (void)state;
    check_kind(WEIGHT);
    check_kind(WEIGHT_ADDED);
}

/* Rows that lie one after the other, so that k may be split, in two and in three; and where there is no room for parts. */
static void test_split(void **state)
{
    static const size_t rooms[] = {ROOM, 4 << 10};
    (void)state;
    device.processors = 4;
    for (int kind = WEIGHT; kind <= WEIGHT_ADDED; kind++)
        for (int tiles = 0; tiles < WF_HOPPER_TILES; tiles++)
            for (int room = 0; room < 2; room++) {
                const product_case c = {
                    kind, WF_BF16, 72, 136, 3200, 0, WF_F32, (wf_hopper_tiles)tiles, rooms[room]};
                check(&c);
            }
    device.processors = 3;
}

static void test_refused(void **state)
{
    const product_case c = {LINEAR, WF_BF16, 16, 16, 16, GAP, WF_BF16, WF_HOPPER_TURNS_128, ROOM};
    setup s = set_up(&c);
    wf_cuda_product p = s.p;
    (void)state;
    assert_true(wf_cuda_hopper_takes(&p));
    p.a.row++;
    assert_false(wf_cuda_hopper_takes(&p));
    p = s.p;
    p.y.data = (char *)p.y.data + 2;
    assert_false(wf_cuda_hopper_takes(&p));
    p = s.p;
    p.batch = 2;
    assert_false(wf_cuda_hopper_takes(&p));
    p = s.p;
    p.k = 0;
    assert_false(wf_cuda_hopper_takes(&p));
    p = s.p;
    p.a.type = p.b.type = WF_F32;
    assert_false(wf_cuda_hopper_takes(&p));
    p = s.p;
    p.ending = WF_CUDA_ACT;
    p.act = WF_ACT_RELU;
    assert_false(wf_cuda_hopper_takes(&p));
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear),  cmocka_unit_test(test_gelu),   cmocka_unit_test(test_input),
        cmocka_unit_test(test_slope),   cmocka_unit_test(test_weight), cmocka_unit_test(test_split),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

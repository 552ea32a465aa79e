/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_products.cu - the choice of matmul algorithms: timed once, stored in a file, and read from it
 * unless it is damaged. Uses an emulated cuBLASLt with three algorithms, of which the second is the fastest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/kernels.cuh"

extern "C" {
#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sanitize.h"
#include "device/cuda/product_key.h"
}

/* Sanitized, a quarter of the depth takes as long to compute; in Release the times would be too short to compare. */
enum { SHORTER = WF_ADDRESS_SANITIZER ? 4 : 1 };
enum { M = 16, N = 24, K = 4000 / SHORTER, OPERAND = 2 << 20, SLOW = 0, FASTEST = 1 };

static char folder[] = "/tmp/weft-products-XXXXXX";
static wf_ctx *ctx;
static wf_cuda_device device;
static wf_cuda_queue queue;
static float *a, *b, *y, *scratch;

static void *device_new(size_t bytes)
{
    void *data;
    assert_int_equal(cudaMalloc(&data, bytes), cudaSuccess);
    return data;
}

static int begin(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("WEFT_CACHE", folder, 1);
    setenv("WEFT_CUBLASLT", "emulated", 1);
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    device.head.ctx = ctx;
    snprintf(device.name, sizeof device.name, "A / GPU");
    queue.head.device = &device.head;
    assert_int_equal(cudaStreamCreate(&queue.stream), cudaSuccess);
    wf_product_small =
        1e6 / SHORTER; /* so that small matmuls use the library too, which saves time */
    a = static_cast<float *>(device_new(OPERAND));
    b = static_cast<float *>(device_new(OPERAND));
    y = static_cast<float *>(device_new(sizeof *y * 256 * 256));
    scratch = static_cast<float *>(device_new(64 << 20));
    return 0;
}

static wf_cuda_product large_product(void)
{
    wf_cuda_product p = {};
    p.batch = 1;
    p.m = M;
    p.n = N;
    p.k = K;
    p.a = wf_cuda_matrix{a, WF_F32, K, 0};
    p.b = wf_cuda_matrix{b, WF_F32, K, 0};
    p.y = wf_cuda_matrix{y, WF_F32, N, 0};
    p.transpose_b = true;
    return p;
}

/* Opens the device's matmuls and prepares one. Returns its algorithm. */
static uint64_t prepare(bool tune, const wf_cuda_product *p, uint64_t *choices, double *us)
{
    wf_launch l = {};
    l.ctx = ctx;
    l.queue = &queue.head;
    wf_cuda_work w = {&l, true, scratch};
    assert_int_equal(wf_cuda_products_new(&device, tune), WF_OK);
    assert_int_equal(wf_cuda_multiply(&w, p), WF_OK);
    wf_cuda_products_keep(&l);
    *choices = wf_cuda_products_choices(&device);
    for (int i = 0; i < device.products->count; i++)
        if (device.products->entries[i]->used) {
            uint64_t algorithm = device.products->entries[i]->algo.data[0];
            *us = device.products->entries[i]->us;
            wf_cuda_products_free(&device);
            return algorithm;
        }
    fail_msg("no matmul was prepared");
    return 0;
}

static void path_of_choices(char *out, size_t bytes)
{
    int driver = 0;
    cudaDriverGetVersion(&driver);
    snprintf(out, bytes, "%s/products-A___GPU-%d-1.txt", folder, driver);
}

static void test_timed_and_kept(void **state)
{
    const wf_cuda_product p = large_product();
    uint64_t first, second;
    double us, again;
    char path[256];
    wf_file_stamp stamp;
    (void)state;
    assert_int_equal(prepare(true, &p, &first, &us), FASTEST);
    assert_true(us > 0);
    path_of_choices(path, sizeof path);
    assert_true(wf_file_look(path, &stamp));
    assert_int_equal(prepare(true, &p, &second, &again), FASTEST);
    assert_true(first == second);
    assert_true(again > us - 0.01 && again < us + 0.01); /* read, not timed */
}

static void test_damaged_file(void **state)
{
    const wf_cuda_product p = large_product();
    uint64_t choices;
    double us, again;
    char path[256], *text;
    size_t bytes;
    (void)state;
    prepare(true, &p, &choices, &us);
    path_of_choices(path, sizeof path);
    assert_int_equal(wf_file_read(ctx, path, 1 << 20, &text, &bytes), WF_OK);
    for (size_t i = 0; i + 1 < bytes;
         i += 7) { /* one wrong byte at a time, then the file truncated there */
        char old = text[i];
        text[i] = old == '1' ? '2' : '1';
        assert_int_equal(wf_file_write(ctx, path, text, bytes), WF_OK);
        assert_int_equal(wf_cuda_products_new(&device, true), WF_OK);
        assert_int_equal(device.products->count, 0);
        wf_cuda_products_free(&device);
        assert_int_equal(wf_file_write(ctx, path, text, i), WF_OK);
        assert_int_equal(wf_cuda_products_new(&device, true), WF_OK);
        assert_int_equal(device.products->count, 0);
        wf_cuda_products_free(&device);
        text[i] = old;
    }
    wf_mem_free(ctx, text);
    assert_int_equal(prepare(true, &p, &choices, &again), FASTEST);
}

/* Returns the split-K reduction scheme of a matmul after writing `reduce` for it to the file. */
static uint64_t prepare_forged(const wf_cuda_product *p, uint64_t reduce)
{
    wf_launch l = {};
    uint64_t choices, found = 0;
    double us;
    l.ctx = ctx;
    l.queue = &queue.head;
    wf_cuda_work w = {&l, true, scratch};
    prepare(true, p, &choices, &us);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wf_cuda_products_new(&device, true), WF_OK);
        wf_cuda_products_begin(&device);
        assert_int_equal(wf_cuda_multiply(&w, p), WF_OK);
        for (int k = 0; k < device.products->count; k++)
            if (device.products->entries[k]->used) {
                found = device.products->entries[k]->algo.data[2];
                device.products->entries[k]->algo.data[2] = reduce;
            }
        if (i == 0)
            wf_product_choices_write(device.products);
        wf_cuda_products_free(&device);
    }
    return found;
}

static void test_forged_file(void **state)
{
    const wf_cuda_product p = large_product();
    (void)state;
    assert_int_equal(prepare_forged(&p, WF_LT_REDUCE_IN_PLACE), 0);
    assert_int_equal(prepare_forged(&p, WF_LT_REDUCE_OUTPUT_TYPE | 8), 0);
    assert_int_equal(prepare_forged(&p, WF_LT_REDUCE_OUTPUT_TYPE), WF_LT_REDUCE_OUTPUT_TYPE);
    device.head.fast = true; /* allows nondeterministic schemes */
    assert_int_equal(prepare_forged(&p, WF_LT_REDUCE_IN_PLACE), WF_LT_REDUCE_IN_PLACE);
    device.head.fast = false;
}

/* The time of a forged algorithm in the file must not become the time of an algorithm that was not timed. */
static void test_forged_file_and_no_timing(void **state)
{
    const wf_cuda_product p = large_product();
    wf_launch l = {};
    uint64_t choices;
    double us;
    l.ctx = ctx;
    l.queue = &queue.head;
    wf_cuda_work w = {&l, false, scratch};
    (void)state;
    prepare_forged(&p, WF_LT_REDUCE_OUTPUT_TYPE);
    assert_int_equal(wf_cuda_products_new(&device, true), WF_OK);
    for (int k = 0; k < device.products->count; k++)
        device.products->entries[k]->algo.data[2] = WF_LT_REDUCE_IN_PLACE;
    wf_cuda_products_begin(&device);
    assert_int_equal(wf_cuda_multiply(&w, &p), WF_OK);
    assert_int_equal(cudaStreamSynchronize(queue.stream), cudaSuccess);
    for (int k = 0; k < device.products->count; k++)
        if (device.products->entries[k]->used)
            assert_true(device.products->entries[k]->us == 0);
    wf_cuda_products_free(&device);
    prepare(true, &p, &choices, &us);
    assert_true(us > 0);
}

static void test_not_tuned(void **state)
{
    const wf_cuda_product p = large_product();
    uint64_t tuned, first;
    double us;
    (void)state;
    prepare(true, &p, &tuned, &us);
    assert_int_equal(prepare(false, &p, &first, &us), SLOW);
    assert_true(us == 0);
    assert_true(tuned != first);
}

/* Matmuls with different alignment have different choices. */
static void test_alignment_counts(void **state)
{
    wf_cuda_product p = large_product();
    uint64_t even, odd;
    double us;
    (void)state;
    prepare(true, &p, &even, &us);
    p.y.data = y + 1;
    p.m = M - 1;
    prepare(true, &p, &odd, &us);
    assert_true(even != odd);
}

static wf_status launch(const wf_cuda_product *p)
{
    wf_launch l = {};
    l.ctx = ctx;
    l.queue = &queue.head;
    wf_cuda_work w = {&l, false, scratch};
    return wf_cuda_multiply(&w, p);
}

/* A few unaligned rows must fit into the workspace that was sized for all rows. */
static void test_scratch_of_some_rows(void **state)
{
    enum { ROWS = 1024, PART = 16, WIDTH = 256, MORE = 1 << 16 };
    const double small = wf_product_small;
    wf_cuda_product p = {};
    (void)state;
    wf_product_small = 25e6;
    p.batch = 1;
    p.m = ROWS;
    p.n = p.k = WIDTH;
    p.a = wf_cuda_matrix{a, WF_BF16, WIDTH, 0};
    p.b = wf_cuda_matrix{b, WF_BF16, WIDTH, 0};
    p.y = wf_cuda_matrix{y, WF_BF16, WIDTH, 0};
    p.transpose_b = true;
    p.bias = b;
    p.bias_type = WF_BF16;
    const size_t bytes = wf_cuda_product_scratch(&p, true, 0);
    unsigned char *rest = (unsigned char *)scratch + bytes,
                  *host = static_cast<unsigned char *>(malloc(MORE));
    assert_non_null(host);
    assert_true(bytes + MORE <= 64 << 20);
    assert_int_equal(cudaMemsetAsync(rest, 0xA5, MORE, queue.stream), cudaSuccess);
    assert_int_equal(wf_cuda_products_new(&device, false), WF_OK);
    p.m = PART;
    assert_int_equal(launch(&p), WF_OK);
    assert_int_equal(cudaMemcpyAsync(host, rest, MORE, cudaMemcpyDeviceToHost, queue.stream),
                     cudaSuccess);
    assert_int_equal(cudaStreamSynchronize(queue.stream), cudaSuccess);
    wf_cuda_products_free(&device);
    for (int i = 0; i < MORE; i++)
        assert_int_equal(host[i], 0xA5);
    free(host);
    wf_product_small = small;
}

/* ---- Bias and epilogues ---- */

/* Returns a bf16 matmul that is large enough for the library. */
static wf_cuda_product narrow_product(void)
{
    enum { SIDE = 64, DEPTH = 256 / SHORTER };
    wf_cuda_product p = {};
    p.batch = 1;
    p.m = p.n = SIDE;
    p.k = DEPTH;
    p.a = wf_cuda_matrix{a, WF_BF16, DEPTH, 0};
    p.b = wf_cuda_matrix{b, WF_BF16, DEPTH, 0};
    p.y = wf_cuda_matrix{y, WF_BF16, SIDE, 0};
    p.pre = wf_cuda_matrix{y + 8192, WF_BF16, SIDE, 0};
    p.transpose_b = true;
    return p;
}

/* Runs the matmul and returns the method of its entry. Expects the results of the plain kernel. */
static wf_product_way run_beside(const wf_cuda_product *p)
{
    int *wrong = (int *)(y + 40000), found = 1;
    wf_product_way way = WF_WAY_COUNT;
    wf_cuda_product plain = *p;
    assert_int_equal(launch(p), WF_OK);
    plain.y.data = y + 24576;
    plain.pre.data = p->ending == WF_CUDA_ACT ? y + 32768 : p->pre.data;
    wf_cuda_plain_product(queue.stream, &plain);
    cudaMemsetAsync(wrong, 0, sizeof *wrong, queue.stream);
    wf_cuda_compare(queue.stream, WF_BF16, p->y.data, plain.y.data, p->m * p->n, 0.01f, wrong);
    cudaMemcpyAsync(&found, wrong, sizeof found, cudaMemcpyDeviceToHost, queue.stream);
    assert_int_equal(cudaStreamSynchronize(queue.stream), cudaSuccess);
    assert_int_equal(found, 0);
    for (int i = 0; i < device.products->count; i++)
        if (device.products->entries[i]->used)
            way = device.products->entries[i]->way;
    wf_cuda_products_begin(&device);
    return way;
}

static void fill_operands(void)
{
    wf_cuda_randomize(queue.stream, WF_BF16, a, OPERAND, 1);
    wf_cuda_randomize(queue.stream, WF_BF16, b, OPERAND, 2);
    wf_cuda_randomize(queue.stream, WF_BF16, y, sizeof *y * 256 * 256, 3);
    assert_int_equal(wf_cuda_products_new(&device, false), WF_OK);
}

/* An unaligned bias is copied to aligned memory. */
static void test_bias_that_begins_anywhere(void **state)
{
    wf_cuda_product p = narrow_product();
    (void)state;
    fill_operands();
    p.bias_type = WF_BF16;
    for (int at = 0; at < 9; at++) {
        p.bias = (const wf_bf16 *)(const void *)b + 5 * 8192 + at;
        assert_int_equal(run_beside(&p), WF_WAY_LIBRARY);
    }
    wf_cuda_products_free(&device);
}

static void test_ending_beside_what_begins_anywhere(void **state)
{
    wf_cuda_product p = narrow_product();
    (void)state;
    fill_operands();
    p.ending = WF_CUDA_ACT_GRAD;
    p.act = WF_ACT_GELU;
    for (int at = 0; at < 9;
         at++) { /* the library's epilogue, or the library's matmul and Weft's epilogue */
        p.pre.data = (wf_bf16 *)(void *)(y + 8192) + at;
        assert_int_equal(run_beside(&p), WF_WAY_LIBRARY);
    }
    for (p.pre.row = 65; p.pre.row <= 72; p.pre.row++) {
        p.pre.data = y + 8192;
        assert_int_equal(run_beside(&p), WF_WAY_LIBRARY);
    }
    wf_cuda_products_free(&device);
}

/* The library supports one activation. Other activations must not reuse its answer for that one. */
static void test_endings_of_all_activations(void **state)
{
    wf_cuda_product p = narrow_product();
    (void)state;
    fill_operands();
    p.ending = WF_CUDA_ACT;
    device.head.fast = true;
    for (p.act = WF_ACT_GELU; p.act < WF_ACT_COUNT; p.act++)
        assert_int_equal(run_beside(&p), WF_WAY_LIBRARY);
    device.head.fast = false;
    wf_cuda_products_free(&device);
}

/* A matmul that was timed only for comparison, because Weft may run its epilogue, is not stored as a choice. */
static void test_choices_of_endings(void **state)
{
    wf_cuda_product p = narrow_product();
    (void)state;
    p.ending = WF_CUDA_ACT_GRAD;
    p.act = WF_ACT_GELU;
    for (int with = 0; with < 2; with++) {
        uint64_t first, second;
        double us, again;
        p.rows_sums = with ? y + 50000 : NULL;
        prepare(true, &p, &first, &us);
        prepare(true, &p, &second, &again);
        assert_true(us > 0 && again > us - 0.01 && again < us + 0.01); /* read, not timed */
        assert_true(first == second);
    }
}

static double number(wf_type type, const void *from, int64_t i)
{
    if (type == WF_F32)
        return static_cast<const float *>(from)[i];
    return type == WF_BF16 ? wf_load(static_cast<const wf_bf16 *>(from)[i])
                           : wf_load(static_cast<const wf_f16 *>(from)[i]);
}

/* y act'(pre) in place, with and without column sums: y is the same, and the sums are those of y within rounding. */
static void test_sums_with_a_slope(void **state)
{
    enum { ROWS = 600, WIDTH = 272, ROW = WIDTH + 8 };
    static const wf_type types[] = {WF_F32, WF_F16, WF_BF16};
    (void)state;
    for (int k = 0; k < 6; k++) {
        const wf_type type = types[k / 2];
        const size_t bytes = wf_type_bytes(type, ROWS * ROW);
        float *parts = scratch, *sums = scratch + wf_cuda_sums_bytes(WIDTH) / sizeof *parts;
        char *host = static_cast<char *>(malloc(2 * bytes));
        float got[WIDTH];
        wf_cuda_product p = {};
        p.batch = 1;
        p.m = ROWS;
        p.n = k % 2 ? WIDTH - 3 : WIDTH;
        p.ending = WF_CUDA_ACT_GRAD;
        p.act = WF_ACT_GELU;
        p.pre = wf_cuda_matrix{b, type, ROW, 0};
        wf_cuda_randomize(queue.stream, type, b, bytes, 1);
        for (int with = 0; with < 2; with++) {
            p.y = wf_cuda_matrix{reinterpret_cast<char *>(a) + with * bytes, type, ROW, 0};
            p.rows_sums = with ? sums : NULL;
            wf_cuda_randomize(queue.stream, type, p.y.data, bytes, 2);
            wf_cuda_finish(queue.stream, &p, parts);
        }
        cudaMemcpyAsync(host, a, 2 * bytes, cudaMemcpyDeviceToHost, queue.stream);
        cudaMemcpyAsync(got, sums, p.n * sizeof *got, cudaMemcpyDeviceToHost, queue.stream);
        assert_int_equal(cudaStreamSynchronize(queue.stream), cudaSuccess);
        assert_memory_equal(host, host + bytes, bytes);
        for (int c = 0; c < p.n; c++) {
            double sum = 0, size = 0;
            for (int r = 0; r < ROWS; r++) {
                const double x = number(type, host, (int64_t)r * ROW + c);
                sum += x;
                size += x < 0 ? -x : x;
            }
            const double off = got[c] - sum, most = size * wf_type_get(type)->roundoff * 2;
            assert_true(off <= most && -off <= most);
        }
        free(host);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timed_and_kept),
        cmocka_unit_test(test_damaged_file),
        cmocka_unit_test(test_forged_file),
        cmocka_unit_test(test_forged_file_and_no_timing),
        cmocka_unit_test(test_not_tuned),
        cmocka_unit_test(test_alignment_counts),
        cmocka_unit_test(test_scratch_of_some_rows),
        cmocka_unit_test(test_bias_that_begins_anywhere),
        cmocka_unit_test(test_ending_beside_what_begins_anywhere),
        cmocka_unit_test(test_endings_of_all_activations),
        cmocka_unit_test(test_choices_of_endings),
        cmocka_unit_test(test_sums_with_a_slope),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}

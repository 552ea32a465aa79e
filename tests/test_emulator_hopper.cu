/* SPDX-License-Identifier: MIT */
/*
 * test_emulator_hopper.cu - tests of the emulated Hopper features: TMA boxes, warpgroup MMAs in all layouts, and
 * barriers. Mistakes must be reported or change results.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/hopper.cuh"

extern "C" {
#include <cmocka.h>
}

static void *device_new(size_t bytes)
{
    void *data;
    assert_int_equal(cudaMalloc(&data, bytes), cudaSuccess);
    return data;
}

static void fetch(void *to, const void *from, size_t bytes)
{
    assert_int_equal(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
}

/* data[d3, d2, d1, d0] of bf16, dense, in boxes [1, rows, 1, 64]. */
static CUtensorMap map_of(void *data, const cuuint64_t (&d)[4], cuuint32_t rows)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found;
    assert_int_equal(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                      cudaEnableDefault, &found),
                     cudaSuccess);
    assert_int_equal(found, cudaDriverEntryPointSuccess);
    const cuuint64_t stride[3] = {d[0] * 2, d[0] * d[1] * 2, d[0] * d[1] * d[2] * 2};
    const cuuint32_t box[4] = {64, 1, rows, 1}, step[4] = {1, 1, 1, 1};
    CUtensorMap map;
    assert_int_equal(((decltype(&cuTensorMapEncodeTiled))entry)(
                         &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, data, d, stride, box, step,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                     CUDA_SUCCESS);
    return map;
}

/* Returns an integer that depends only on the argument and is exact in bf16. */
static float some(int i)
{
    return (float)((i * 37 + i / 7 * 11) % 17 - 8);
}

static wf_bf16 *some_bf16(int n)
{
    wf_bf16 *host = (wf_bf16 *)malloc(n * sizeof *host);
    wf_bf16 *data = (wf_bf16 *)device_new(n * sizeof *data);
    for (int i = 0; i < n; i++)
        host[i] = wf_round<wf_bf16>(some(i));
    assert_int_equal(cudaMemcpy(data, host, n * sizeof *data, cudaMemcpyHostToDevice), cudaSuccess);
    free(host);
    return data;
}

/* ---- Boxes ---- */

enum { ROWS = 16, BOX = ROWS * 128, HALVES = 3 };

/* Half of each of HALVES boxes is outside the tensor. One thread loads the boxes in turn, another warp changes
 * them, and the thread stores them. */
static __global__ void move_boxes(const __grid_constant__ CUtensorMap from,
                                  const __grid_constant__ CUtensorMap to)
{
    WF_SHARED_TILES(char, shared);
    const uint32_t base = wf_shared_address(shared), full = base + BOX, empty = full + 8;
    if (threadIdx.x == 0) {
        wf_barrier_init(full, 1);
        wf_barrier_init(empty, 32);
        wf_barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 0; i < HALVES; i++) {
            wf_barrier_expect(full, BOX);
            wf_tma_load(base, &from, full, 32, 1, -8, i);
            wf_barrier_wait(empty, i & 1);
            wf_tma_store(&to, base, 32, 1, -8, i);
            wf_tma_commit();
            wf_tma_wait_read<0>();
        }
    } else if (threadIdx.x >= 32) {
        for (int i = 0; i < HALVES; i++) {
            wf_barrier_wait(full, i & 1);
            for (int j = threadIdx.x - 32; j < BOX / 2; j += 32) {
                const int row = j / 64, column = j % 64;
                wf_bf16 *x = (wf_bf16 *)(shared + row * 128 + (column * 2 ^ row % 8 * 16));
                if (row < 8 || column >= 32)
                    assert_true(wf_load(*x) == 0);
                *x = wf_round<wf_bf16>(wf_load(*x) + 1);
            }
            wf_async_fence();
            wf_barrier_arrive(empty);
        }
    }
}

static void test_boxes(void **state)
{
    (void)state;
    enum { D1 = 2, D2 = 20, N = HALVES * D2 * D1 * 64 };
    wf_bf16 *x = some_bf16(N), *y = some_bf16(N), host[N];
    const cuuint64_t dim[4] = {64, D1, D2, HALVES};
    WF_RUN(move_boxes, 1, 64, BOX + 16, 0)(map_of(x, dim, ROWS), map_of(y, dim, ROWS));
    fetch(host, y, sizeof host);
    for (int i = 0; i < N; i++) {
        bool moved = i % 64 >= 32 && i / 64 % D1 == 1 && i / 64 / D1 % D2 < 8;
        assert_true(wf_load(host[i]) == (moved ? some(i) + 1 : some(i)));
    }
    cudaFree(x);
    cudaFree(y);
}

/* ---- Bulk copies ---- */

enum { TERMS = 20 };

/* to = 0 + 1 + ... + TERMS - 1. Each term overwrites the previous one after that was read. late: number of terms
 * that were not in the sum by then. */
static __global__ void add_terms(float *to, int *late)
{
    WF_SHARED_TILES(float, shared);
    float sum = 0;
    for (int i = 0; i < TERMS; i++) {
        for (int j = 0; j < 4; j++)
            shared[j] = (float)i;
        wf_async_fence();
        if (i == 0)
            wf_bulk_store(to, wf_shared_address(shared), 16);
        else
            wf_bulk_add(to, wf_shared_address(shared), 16);
        wf_tma_commit();
        wf_tma_wait_read<0>();
        shared[0] = -1;
        sum += (float)i;
        *late += *to != sum;
        wf_tma_wait<0>();
        for (int j = 0; j < 4; j++)
            assert_true(to[j] == sum);
    }
}

static void test_bytes(void **state)
{
    (void)state;
    struct {
        float to[4];
        int late;
    } host, *data = (decltype(data))device_new(sizeof host);
    assert_int_equal(cudaMemset(data, 0, sizeof host), cudaSuccess);
    WF_RUN(add_terms, 1, 1, 1024, 0)(data->to, &data->late);
    fetch(&host, data, sizeof host);
    assert_true(host.to[3] == TERMS * (TERMS - 1) / 2);
    assert_true(host.late > 0 && host.late < TERMS); /* sometimes, not always */
    cudaFree(data);
}

/* ---- MMAs ---- */

enum { A_BYTES = 64 * 128, B_BYTES = 128 * 128 };

/* d[64, 128] = a[64, 64] b[64, 128]. TA 0: a is [64 m, 64 k]; 1: a is [64 k, 64 m]; 2: a is in registers.
 * TB 0: b is [128 n, 64 k]; 1: b is two matrices [64 k, 64 n]. */
template <int TA, int TB>
static __global__ void multiply(const __grid_constant__ CUtensorMap a,
                                const __grid_constant__ CUtensorMap b, float *out)
{
    WF_SHARED_TILES(char, shared);
    const uint32_t base = wf_shared_address(shared), full = base + A_BYTES + B_BYTES;
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    if (threadIdx.x == 0) {
        wf_barrier_init(full, 1);
        wf_barrier_init_done();
        wf_barrier_expect(full, A_BYTES + B_BYTES);
        wf_tma_load(base, &a, full, 0, 0, 0, 0);
        wf_tma_load(base + A_BYTES, &b, full, 0, 0, 0, 0);
        wf_tma_load(base + A_BYTES + B_BYTES / 2, &b, full, 0, 0, 64, 0);
    }
    __syncthreads();
    wf_barrier_wait(full, 0);
    const uint64_t da = wf_wgmma_operand(base, 0);
    const uint64_t db = wf_wgmma_operand(base + A_BYTES, TB ? B_BYTES / 2 : 0);
    float d[64];
    uint32_t w[4][4];
    for (int k = 0; TA == 2 && k < 4; k++)
        for (int i = 0; i < 4; i++)
            memcpy(&w[k][i],
                   shared + (row + i % 2 * 8) * 128 +
                       ((k * 32 + i / 2 * 16 + lane % 4 * 4) ^ row % 8 * 16),
                   4);
    wf_wgmma_begin();
    for (int k = 0; k < 4; k++)
        if constexpr (TA == 2)
            wf_wgmma<wf_bf16, TB>(d, w[k], db + k * (TB ? 2048 : 32) / 16, k > 0);
        else
            wf_wgmma<wf_bf16, TA, TB>(d, da + k * (TA ? 2048 : 32) / 16,
                                      db + k * (TB ? 2048 : 32) / 16, k > 0);
    wf_wgmma_commit();
    assert_true(isnan(d[threadIdx.x % 64])); /* no result before the wait */
    wf_wgmma_wait<0>();
    wf_wgmma_hold(d);
    for (int i = 0; i < 64; i++)
        out[(row + i / 2 % 2 * 8) * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}

template <int TA, int TB> static void multiply_all(void)
{
    wf_bf16 *a = some_bf16(64 * 64), *b = some_bf16(128 * 64);
    static float out[64 * 128];
    float *data = (float *)device_new(sizeof out);
    const cuuint64_t da[4] = {64, 1, 64, 1}, db[4] = {64, 1, 128, 1};
    WF_RUN((multiply<TA, TB>), 1, 128, A_BYTES + B_BYTES + 8, 0)
    (map_of(a, da, 64), map_of(b, db, 64), data);
    fetch(out, data, sizeof out);
    for (int m = 0; m < 64; m++)
        for (int n = 0; n < 128; n++) {
            float want = 0;
            for (int k = 0; k < 64; k++)
                want += some(TA == 1 ? k * 64 + m : m * 64 + k) *
                        some(TB ? n / 64 * 4096 + k * 64 + n % 64 : n * 64 + k);
            assert_true(out[m * 128 + n] == want);
        }
    cudaFree(a);
    cudaFree(b);
    cudaFree(data);
}

static void test_mmas(void **state)
{
    (void)state;
    multiply_all<0, 0>();
    multiply_all<0, 1>();
    multiply_all<1, 0>();
    multiply_all<1, 1>();
    multiply_all<2, 0>();
    multiply_all<2, 1>();
}

/* ---- Errors that the emulator must report ---- */

typedef enum {
    NOBODY_COMES,
    NOT_MADE,
    TOO_MANY,
    SUMS_CHANGE,
    STILL_LOADING,
    NOT_READ,
    ENDS_EARLY
} mistake;

static __global__ void mistaken(mistake m, void *data)
{
    WF_SHARED_TILES(char, shared);
    const uint32_t base = wf_shared_address(shared), b = base + 1024;
    if (m != NOT_MADE && threadIdx.x == 0)
        wf_barrier_init(b, 1);
    __syncthreads();
    if (m == NOBODY_COMES || m == NOT_MADE)
        wf_barrier_wait(b, 0);
    if (m == TOO_MANY && threadIdx.x == 0) {
        wf_barrier_expect(b, 16);
        wf_barrier_arrive(b);
    }
    if (m == STILL_LOADING && threadIdx.x == 0) {
        wf_barrier_expect(b, 50 * 16);
        for (int i = 0; i < 50; i++) /* at least one completes late */
            wf_bulk_load(base, data, 16, b);
    }
    if (m == NOT_READ && threadIdx.x == 0)
        for (int i = 0; i < 50; i++)
            wf_bulk_store(data, base, 16);
    if (m == SUMS_CHANGE || m == ENDS_EARLY) {
        float d[16] = {0};
        uint64_t o = wf_wgmma_operand(base, 0);
        wf_wgmma<wf_bf16, 0, 0>(d, o, o, 1);
        wf_wgmma_commit();
        if (m == ENDS_EARLY)
            return;
        d[3] = 1;
        wf_wgmma_wait<0>();
    }
}

/* Runs the mistake in a child process, which must fail and print `words`. */
static void must_end(mistake m, const char *words)
{
    int pipes[2], status;
    char text[4000];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], 2);
        WF_RUN(mistaken, 1, 128, 64 * 1024, 0)(m, device_new(256));
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(pipes[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    if (!strstr(text, words))
        fail_msg("'%s' does not contain '%s'", text, words);
}

static void test_mistakes_are_reported(void **state)
{
    (void)state;
    must_end(NOBODY_COMES, "128 at barriers in shared memory");
    must_end(NOT_MADE, "was not initialised");
    must_end(TOO_MANY, "for which all have arrived");
    must_end(SUMS_CHANGE, "changes the accumulators of an MMA");
    must_end(STILL_LOADING, "has a pending load");
    must_end(NOT_READ, "has a store that has not been read");
    must_end(ENDS_EARLY, "ends with pending MMAs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_mmas),
        cmocka_unit_test(test_mistakes_are_reported),
    };
    cudaFuncSetAttribute(mistaken, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

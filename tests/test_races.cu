/* SPDX-License-Identifier: MIT */
/* test_races.cu - the emulator's race detector: it reports kernels that have a race, and no
 * others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda/kernels.cuh"

extern "C" {
#include <cmocka.h>
}

/* Each thread reads its neighbour's element. */
static __global__ void neighbours(float *out, bool wait)
{
    __shared__ float tile[64];
    tile[threadIdx.x] = (float)threadIdx.x;
    if (wait)
        __syncthreads();
    out[threadIdx.x] = tile[(threadIdx.x + 33) % 64];
}

static __global__ void lanes(float *out, bool wait)
{
    WF_SHARED(float, tile);
    tile[threadIdx.x] = (float)threadIdx.x;
    if (wait)
        __syncwarp();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}

/* Overwrites elements that other threads may not have read yet. */
static __global__ void overwritten(float *x, bool wait)
{
    float y = x[(threadIdx.x + 40) % 64];
    if (wait)
        __syncthreads();
    x[threadIdx.x] = y;
}

static __global__ void blocks(float *out, bool apart)
{
    out[(apart ? blockIdx.x * 64 : 0) + threadIdx.x] = (float)blockIdx.x;
}

static __global__ void counted(int *out, bool apart)
{
    if (apart)
        atomicAdd(out, 1);
    else
        *out += 1;
}

/* Several threads store the same flag value: not a race in any order. */
static __global__ void flags(int *out, bool zero)
{
    if (threadIdx.x % 3 == 0)
        out[0] = zero ? 0 : 1 + (int)threadIdx.x;
}

static void expect(void (*f)(bool), const char *words)
{
    for (int right = 0; right < 2; right++) {
        int pipes[2], status;
        char text[4000];
        assert_int_equal(pipe(pipes), 0);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            dup2(pipes[1], 2);
            f(right);
            cudaDeviceSynchronize();
            exit(0);
        }
        close(pipes[1]);
        size_t n = 0;
        for (ssize_t got; (got = read(pipes[0], text + n, sizeof text - 1 - n)) > 0;)
            n += (size_t)got;
        text[n] = 0;
        close(pipes[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), right ? 0 : 66);
        if (right)
            assert_string_equal(text, "");
        else if (!strstr(text, words))
            fail_msg("'%s' does not contain '%s'", text, words);
    }
}

static float *memory(void)
{
    void *data;
    assert_int_equal(cudaMalloc(&data, 4096), cudaSuccess);
    return (float *)data;
}

static void test_races_are_reported(void **state)
{
    (void)state;
    expect(
        [](bool right) {
            WF_RUN(neighbours, 1, 64, 0, 0)
            (memory(), right);
        },
        "race in neighbours, block (0, 0, 0)");
    expect(
        [](bool right) {
            WF_RUN(lanes, 1, 32, 128, 0)
            (memory(), right);
        },
        "of its block wrote since the last barrier");
    expect(
        [](bool right) {
            WF_RUN(overwritten, 1, 64, 0, 0)
            (memory(), right);
        },
        "since the last barrier");
    expect(
        [](bool right) {
            WF_RUN(blocks, 3, 64, 0, 0)
            (memory(), right);
        },
        "of another block wrote");
    expect(
        [](bool right) {
            WF_RUN(counted, 3, 1, 0, 0)
            ((int *)memory(), right);
        },
        "of another block");
    expect(
        [](bool right) {
            WF_RUN(flags, 1, 64, 0, 0)
            ((int *)memory(), right);
        },
        "since the last barrier");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_races_are_reported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

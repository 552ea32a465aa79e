/* SPDX-License-Identifier: MIT */
/*
 * test_emulator.cu - tests of the emulator: barriers, shuffles, shared memory, streams and graphs. A deadlock of a
 * block must end the program with a message.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "device/cuda/kernels.cuh"

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

/* ---- Grids ---- */

static __global__ void number(int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = i;
}

static void test_every_thread_runs_once(void **state)
{
    (void)state;
    int n = 1000, host[1000], *data = (int *)device_new(sizeof host);
    WF_RUN(number, wf_cuda_blocks(n, 96, 65535), 96, 0, 0)(data, n);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    fetch(host, data, sizeof host);
    for (int i = 0; i < n; i++)
        assert_int_equal(host[i], i);
    cudaFree(data);
}

static __global__ void place(int *out)
{
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = block * 1000 + thread;
}

static void test_three_axes(void **state)
{
    (void)state;
    int host[24 * 30], *data = (int *)device_new(sizeof host);
    WF_RUN(place, dim3(2, 3, 4), dim3(5, 3, 2), 0, 0)(data);
    fetch(host, data, sizeof host);
    for (int i = 0; i < 24 * 30; i++)
        assert_int_equal(host[i], i / 30 * 1000 + i % 30);
    cudaFree(data);
}

/* ---- Thread cooperation ---- */

template <int N> static __global__ void reverse(float *x)
{
    __shared__ float tile[N];
    int i = threadIdx.x;
    assert_true(isnan(tile[i])); /* this block has not written it */
    __syncthreads();
    tile[i] = x[blockIdx.x * N + i];
    __syncthreads();
    x[blockIdx.x * N + i] = tile[N - 1 - i];
}

static void test_barriers_and_shared_memory(void **state)
{
    (void)state;
    float host[3 * 160], *data = (float *)device_new(sizeof host);
    for (int i = 0; i < 3 * 160; i++)
        host[i] = (float)i;
    cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice);
    WF_RUN((reverse<160>), 3, 160, 0, 0)(data);
    fetch(host, data, sizeof host);
    for (int i = 0; i < 3 * 160; i++)
        assert_true(host[i] == (float)(i / 160 * 160 + 159 - i % 160));
    cudaFree(data);
}

static __global__ void sums(const float *x, int n, float *sum, float *most)
{
    WF_SHARED(float, scratch);
    float a = 0, m = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        a += x[i];
        m = fmaxf(m, x[i]);
    }
    assert_true(isnan(scratch[threadIdx.x % 32]) || blockDim.x > 32);
    a = wf_block_sum(a, scratch);
    m = wf_block_max(m, scratch);
    sum[threadIdx.x] = a;
    most[threadIdx.x] = m;
}

static void test_sums_of_blocks(void **state)
{
    (void)state;
    enum { N = 5000 };
    static float host[N];
    for (int i = 0; i < N; i++)
        host[i] = (float)((i * 37) % 101);
    float *data = (float *)device_new(sizeof host), *sum = (float *)device_new(4096),
          *most = (float *)device_new(4096), s[1024], m[1024], expected = 0;
    for (int i = 0; i < N; i++)
        expected += host[i];
    cudaMemcpy(data, host, sizeof host, cudaMemcpyHostToDevice);
    for (int threads = 32; threads <= 1024; threads *= 2) {
        WF_RUN(sums, 1, threads, 32 * sizeof(float), 0)(data, N, sum, most);
        fetch(s, sum, sizeof s);
        fetch(m, most, sizeof m);
        for (int i = 0; i < threads; i++) {
            assert_true(s[i] == expected);
            assert_true(m[i] == 100.0f);
        }
    }
    cudaFree(data);
    cudaFree(sum);
    cudaFree(most);
}

/* Each row of `out` has the results of one function in the 32 lanes. */
static __global__ void warps(int *out)
{
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x;
    out[0 * 32 + lane] = __shfl_sync(all, lane * 3, lane + 1);
    out[1 * 32 + lane] = __shfl_xor_sync(all, lane, 5);
    out[2 * 32 + lane] = __shfl_up_sync(all, lane, 3u);
    out[3 * 32 + lane] = __shfl_down_sync(all, lane, 3u, 8);
    out[4 * 32 + lane] = (int)__ballot_sync(all, lane % 3 == 0);
    out[5 * 32 + lane] = __reduce_max_sync(all, -lane);
    out[6 * 32 + lane] = (int)__reduce_add_sync(all, (unsigned)lane);
    out[7 * 32 + lane] = (int)__match_any_sync(all, lane / 8);
    /* Each half of the warp separately. */
    unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
    if (lane < 16)
        out[8 * 32 + lane] = __shfl_sync(half, lane + 100, 3);
    else
        out[8 * 32 + lane] = __shfl_xor_sync(half, lane + 200, 1);
    out[9 * 32 + lane] = __any_sync(all, lane == 31) + 2 * __all_sync(all, lane < 31);
    double d = __shfl_xor_sync(all, lane + 0.5, 31);
    out[10 * 32 + lane] = (int)(2 * d);
}

static void test_functions_of_warps(void **state)
{
    (void)state;
    int out[11][32], *data = (int *)device_new(sizeof out);
    WF_RUN(warps, 1, 32, 0, 0)(data);
    fetch(out, data, sizeof out);
    for (int l = 0; l < 32; l++) {
        assert_int_equal(out[0][l], (l + 1) % 32 * 3);
        assert_int_equal(out[1][l], l ^ 5);
        assert_int_equal(out[2][l], l < 3 ? l : l - 3);
        assert_int_equal(out[3][l], l % 8 + 3 < 8 ? l + 3 : l);
        assert_int_equal((unsigned)out[4][l], 0x49249249u);
        assert_int_equal(out[5][l], 0);
        assert_int_equal(out[6][l], 496);
        assert_int_equal((unsigned)out[7][l], 0xffu << l / 8 * 8);
        assert_int_equal(out[8][l], l < 16 ? 103 : 200 + (l ^ 1));
        assert_int_equal(out[9][l], 1);
        assert_int_equal(out[10][l], 2 * (l ^ 31) + 1);
    }
    cudaFree(data);
}

static __global__ void counts(int *out)
{
    if (threadIdx.x >= 70) /* ended threads must not block the others */
        return;
    int odd = __syncthreads_count(threadIdx.x % 2);
    int any = __syncthreads_or(threadIdx.x == 69), all = __syncthreads_and(threadIdx.x < 70);
    out[threadIdx.x] = odd * 100 + any * 10 + all;
}

static void test_barriers_that_count(void **state)
{
    (void)state;
    int out[70], *data = (int *)device_new(sizeof out);
    WF_RUN(counts, 1, 100, 0, 0)(data);
    fetch(out, data, sizeof out);
    for (int i = 0; i < 70; i++)
        assert_int_equal(out[i], 3511);
    cudaFree(data);
}

static __global__ void chain(volatile int *turn)
{
    while (*turn != (int)blockIdx.x)
        wf_emulated_yield();
    *turn = (int)blockIdx.x + 1;
}

static void test_blocks_that_wait_for_others(void **state)
{
    (void)state;
    int out, *data = (int *)device_new(sizeof out);
    cudaMemset(data, 0, sizeof out);
    WF_RUN(chain, 50, 1, 0, 0)(data);
    fetch(&out, data, sizeof out);
    assert_int_equal(out, 50);
    cudaFree(data);
}

/* ---- Errors that the emulator must report ---- */

static __global__ void half_shuffle(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, out[threadIdx.x], 1);
    else
        __syncthreads();
}

static __global__ void some_barrier(int *out)
{
    if (threadIdx.x % 32 == 0)
        __syncwarp();
    else
        __syncthreads();
    out[0] = 1;
}

/* Runs f in a child process, which must fail and print `words`. */
static void must_end(void (*f)(void), const char *words)
{
    int pipes[2], status;
    char text[4000];
    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], 2);
        f();
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

static void test_deadlocks_are_reported(void **state)
{
    (void)state;
    must_end(
        [] {
            WF_RUN(half_shuffle, 1, 32, 0, 0)
            ((int *)device_new(128));
        },
        "half_shuffle, block (0, 0, 0): its threads wait for each other: 16 at __syncthreads");
    must_end(
        [] {
            WF_RUN(some_barrier, 3, 64, 0, 0)
            ((int *)device_new(128));
        },
        "2 in functions of warps");
}

#if WF_ADDRESS_SANITIZER
static __global__ void write_beyond(int *out, int where, int i)
{
    __shared__ int tile[33];
    WF_SHARED(int, more);
    (where == 0 ? out : where == 1 ? tile : more)[i] = 1;
}

static void test_memory_is_guarded(void **state)
{
    (void)state;
    must_end(
        [] {
            WF_RUN(write_beyond, 1, 1, 12, 0)
            ((int *)device_new(20), 0, 5);
        },
        "heap-buffer-overflow");
    must_end(
        [] {
            WF_RUN(write_beyond, 1, 1, 12, 0)
            ((int *)device_new(20), 1, 33);
        },
        "heap-buffer-overflow");
    must_end(
        [] {
            WF_RUN(write_beyond, 1, 1, 12, 0)
            ((int *)device_new(20), 2, 3);
        },
        "heap-buffer-overflow");
}
#endif

static void test_bad_launches_are_refused(void **state)
{
    (void)state;
    int *data = (int *)device_new(4);
    WF_RUN(number, 0, 32, 0, 0)(data, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    WF_RUN(number, 1, 1025, 0, 0)(data, 1);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    WF_RUN(number, 1, 32, 100000, 0)(data, 1);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    cudaFree(data);
}

/* ---- Streams and graphs ---- */

static __global__ void add(int *x, const int *y)
{
    x[threadIdx.x] += y[threadIdx.x];
}

static void test_streams_wait_for_events(void **state)
{
    (void)state;
    cudaStream_t a, b;
    cudaEvent_t event;
    int *x = (int *)device_new(4), *y = (int *)device_new(4), *pinned, out;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    cudaMallocHost((void **)&pinned, 4);
    for (int i = 0; i < 20; i++) {
        *pinned = i;
        cudaMemsetAsync(x, 0, 4, a);
        cudaMemcpyAsync(y, pinned, 4, cudaMemcpyHostToDevice, b);
        cudaEventRecord(event, b);
        cudaStreamWaitEvent(a, event, 0);
        WF_RUN(add, 1, 1, 0, a)(x, y);
        cudaMemcpyAsync(&out, x, 4, cudaMemcpyDeviceToHost, a);
        assert_int_equal(out, i);
    }
    cudaEventDestroy(event);
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaFreeHost(pinned);
    cudaFree(x);
    cudaFree(y);
}

static void test_graphs_repeat_what_was_captured(void **state)
{
    (void)state;
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    int *x = (int *)device_new(4), *y = (int *)device_new(4), out = 1;
    size_t nodes;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&fork);
    cudaEventCreate(&join);
    cudaMemcpyAsync(x, &out, 4, cudaMemcpyHostToDevice, a);
    cudaMemcpyAsync(y, &out, 4, cudaMemcpyHostToDevice, a);
    assert_int_equal(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal), cudaSuccess);
    WF_RUN(add, 1, 1, 0, a)(x, y);
    cudaEventRecord(fork, a);
    cudaStreamWaitEvent(b, fork, 0);
    WF_RUN(add, 1, 1, 0, b)(y, x);
    cudaEventRecord(join, b);
    cudaStreamWaitEvent(a, join, 0);
    assert_int_equal(cudaStreamEndCapture(a, &graph), cudaSuccess);
    assert_int_equal(cudaGraphGetNodes(graph, NULL, &nodes), cudaSuccess);
    assert_int_equal(nodes, 2);
    assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    cudaGraphDestroy(graph);
    cudaMemcpyAsync(&out, x, 4, cudaMemcpyDeviceToHost, a);
    assert_int_equal(out, 1); /* nothing has run yet */
    for (int i = 0; i < 3; i++)
        assert_int_equal(cudaGraphLaunch(exec, a), cudaSuccess);
    cudaGraphExecDestroy(exec);
    cudaMemcpyAsync(&out, x, 4, cudaMemcpyDeviceToHost, a);
    assert_int_equal(out, 13); /* 1 1, 2 3, 5 8, 13 21 */
    cudaStreamDestroy(a);
    cudaStreamDestroy(b);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
    cudaFree(x);
    cudaFree(y);
}

static void capture_fails(cudaError_t (*f)(cudaStream_t, void *device), cudaError_t at_end)
{
    cudaStream_t s;
    cudaGraph_t graph;
    void *data = device_new(4);
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    assert_int_not_equal(f(s, data), cudaSuccess);
    assert_int_equal(cudaStreamEndCapture(s, &graph), at_end);
    assert_null(graph);
    cudaStreamDestroy(s);
    cudaFree(data);
    cudaGetLastError();
}

static void test_captures_refuse_to_wait(void **state)
{
    (void)state;
    static int host;
    capture_fails([](cudaStream_t s, void *) { return cudaStreamSynchronize(s); },
                  cudaErrorStreamCaptureInvalidated);
    capture_fails(
        [](cudaStream_t s, void *data) {
            return cudaMemcpyAsync(data, &host, 4, cudaMemcpyHostToDevice, s);
        },
        cudaErrorStreamCaptureInvalidated);
    capture_fails(
        [](cudaStream_t, void *) {
            void *more;
            return cudaMalloc(&more, 4);
        },
        cudaErrorStreamCaptureInvalidated);
    capture_fails([](cudaStream_t, void *) { return cudaDeviceSynchronize(); },
                  cudaErrorStreamCaptureInvalidated);
}

static void test_memory_has_an_end(void **state)
{
    (void)state;
    void *data;
    int host[4];
    size_t available, total;
    assert_int_equal(cudaMemGetInfo(&available, &total), cudaSuccess);
    assert_int_equal(cudaMalloc(&data, total + 1), cudaErrorMemoryAllocation);
    data = device_new(12);
    assert_int_equal(cudaMemcpy(data, host, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, data, 12, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(host, 0, 16), cudaErrorInvalidValue);
    assert_int_equal(cudaFree(data), cudaSuccess);
    assert_int_equal(cudaFree(data), cudaErrorInvalidValue);
    cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_runs_once),
        cmocka_unit_test(test_three_axes),
        cmocka_unit_test(test_barriers_and_shared_memory),
        cmocka_unit_test(test_sums_of_blocks),
        cmocka_unit_test(test_functions_of_warps),
        cmocka_unit_test(test_barriers_that_count),
        cmocka_unit_test(test_blocks_that_wait_for_others),
        cmocka_unit_test(test_deadlocks_are_reported),
#if WF_ADDRESS_SANITIZER
        cmocka_unit_test(test_memory_is_guarded),
#endif
        cmocka_unit_test(test_bad_launches_are_refused),
        cmocka_unit_test(test_streams_wait_for_events),
        cmocka_unit_test(test_graphs_repeat_what_was_captured),
        cmocka_unit_test(test_captures_refuse_to_wait),
        cmocka_unit_test(test_memory_has_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * peak.cu - measures a GPU's peak memory bandwidth and arithmetic throughput.
 *
 * Streams arrays that exceed the caches, with 16 bytes per thread and load. Arithmetic is chains of
 * fused multiply-adds in registers, eight independent ones per thread to hide their latency.
 */
#include "device/cuda/kernels.cuh"

#define THREADS 512
#define ROUNDS 4096 /* multiply-adds per chain */
#define TRIES 7     /* the best counts */

/* Sums with a never taken store, so that the compiler keeps the loads. */
static __global__ void read_all(const float4 *from, int64_t n, float *never)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    float sum = 0;
    for (; i + 3 * step < n; i += 4 * step) {
        float4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        sum += a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
        sum += c.x + c.y + c.z + c.w + d.x + d.y + d.z + d.w;
    }
    if (sum == 1.25f) /* a value that the sum does not take */
        *never = sum;
}

static __global__ void add_scaled(float4 *to, const float4 *a, const float4 *b, int64_t n)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += step) {
        float4 x = a[i], y = b[i];
        to[i] = make_float4(x.x + 3 * y.x, x.y + 3 * y.y, x.z + 3 * y.z, x.w + 3 * y.w);
    }
}

static __global__ void multiply_add(float *to)
{
    float x[8], f = 0.5f + 1e-3f * threadIdx.x;
    for (int k = 0; k < 8; k++)
        x[k] = (float)k;
    for (int i = 0; i < ROUNDS; i++)
#pragma unroll
        for (int k = 0; k < 8; k++)
            x[k] = fmaf(x[k], f, 1.0f);
    float sum = 0;
    for (int k = 0; k < 8; k++)
        sum += x[k];
    to[blockIdx.x * (int64_t)blockDim.x + threadIdx.x] = sum;
}

/* Resources of one measurement. */
typedef struct {
    cudaStream_t stream;
    cudaEvent_t begin, end;
    float4 *memory; /* three arrays of n */
    int64_t n;
    unsigned blocks;
} bench;

typedef enum { READ, COPY, TRIAD, MULTIPLY } what;

static void go(const bench *b, what w)
{
    float4 *x = b->memory, *y = x + b->n, *z = y + b->n;
    if (w == READ)
        WF_RUN(read_all, b->blocks, THREADS, 0, b->stream)(x, b->n, (float *)y);
    else if (w == COPY)
        cudaMemcpyAsync(y, x, (size_t)b->n * sizeof *x, cudaMemcpyDeviceToDevice, b->stream);
    else if (w == TRIAD)
        WF_RUN(add_scaled, b->blocks, THREADS, 0, b->stream)(z, x, y, b->n);
    else
        WF_RUN(multiply_add, b->blocks, THREADS, 0, b->stream)((float *)z);
}

/* Best time of several runs in seconds; 0 on failure. */
static double best_of(const bench *b, what w)
{
    float best = 0, ms;
    for (int i = 0; i < TRIES; i++) {
        cudaEventRecord(b->begin, b->stream);
        go(b, w);
        cudaEventRecord(b->end, b->stream);
        if (cudaEventSynchronize(b->end) != cudaSuccess ||
            cudaEventElapsedTime(&ms, b->begin, b->end) != cudaSuccess)
            return 0;
        best = best == 0 || ms < best ? ms : best;
    }
    return best / 1e3;
}

static wf_status measure(wf_ctx *ctx, bench *b, size_t bytes, wf_device_peak *out)
{
    WF_TRY(wf_cuda_try(ctx, cudaMalloc((void **)&b->memory, 3 * bytes), "measuring the device"));
    WF_TRY(wf_cuda_try(ctx, cudaMemset(b->memory, 0x3c, 3 * bytes), "measuring the device"));
    WF_TRY(wf_cuda_try(ctx, cudaStreamCreate(&b->stream), "measuring the device"));
    WF_TRY(wf_cuda_try(ctx, cudaEventCreate(&b->begin), "measuring the device"));
    WF_TRY(wf_cuda_try(ctx, cudaEventCreate(&b->end), "measuring the device"));
    double threads = (double)b->blocks * THREADS;
    out->read = (double)bytes / best_of(b, READ);
    out->copy = 2 * (double)bytes / best_of(b, COPY);
    out->triad = 3 * (double)bytes / best_of(b, TRIAD);
    out->flops = threads * 2 * 8 * ROUNDS / best_of(b, MULTIPLY);
    return wf_cuda_try(ctx, cudaGetLastError(), "measuring the device");
}

extern "C" wf_status wf_cuda_peak(wf_device *device, int threads, size_t bytes, wf_device_peak *out)
{
    const wf_cuda_device *d = (const wf_cuda_device *)device;
    bench b = {};
    (void)threads;
    WF_TRY(wf_cuda_try(device->ctx, cudaSetDevice(d->ordinal), "choosing the GPU"));
    b.blocks = (unsigned)d->processors * 4; /* enough blocks to fill every multiprocessor */
    /* multiply_add writes a float per thread into one of the arrays. */
    const int64_t least = (int64_t)b.blocks * THREADS * (int64_t)sizeof(float);
    b.n = ((int64_t)bytes > least ? (int64_t)bytes : least) / (int64_t)sizeof(float4);
    wf_status status = measure(device->ctx, &b, (size_t)b.n * sizeof(float4), out);
    cudaFree(b.memory);
    if (b.begin)
        cudaEventDestroy(b.begin);
    if (b.end)
        cudaEventDestroy(b.end);
    if (b.stream)
        cudaStreamDestroy(b.stream);
    return status;
}

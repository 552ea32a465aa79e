/* SPDX-License-Identifier: MIT */
/*
 * product_plain.cu - GEMM of any types, shapes and strides without a library: for what cuBLASLt
 * does not support, or when it is missing. Simple enough to verify by reading.
 *
 * A block computes a 64 x 64 tile of the result, a thread 4 x 4 elements. Tiles of both operands go
 * through shared memory as f32, SLAB values of k at a time. Partial sums over BLOCK values of k are
 * added to the total, which limits rounding error. The summation order is fixed.
 */
#include "device/cuda/activation.cuh"
#include "device/cuda/product.h"

#define TILE 64     /* rows and columns of a block's part of y */
#define SLAB 16     /* values of k in shared memory at once */
#define BLOCK 256   /* values of k whose sum is added to the total at once */
#define EACH 4      /* rows and columns per thread */
#define THREADS 256 /* 16 x 16, each with EACH x EACH elements */

/* ---- Elements whose type is known at run time only ---- */

static __device__ __forceinline__ float load_any(wf_type type, const void *from, int64_t i)
{
    if (type == WF_F32)
        return static_cast<const float *>(from)[i];
    if (type == WF_BF16)
        return wf_load(static_cast<const wf_bf16 *>(from)[i]);
    return wf_load(static_cast<const wf_f16 *>(from)[i]);
}

static __device__ __forceinline__ void store_any(wf_type type, void *to, int64_t i, float x)
{
    if (type == WF_F32)
        static_cast<float *>(to)[i] = x;
    else if (type == WF_BF16)
        static_cast<wf_bf16 *>(to)[i] = wf_round<wf_bf16>(x);
    else
        static_cast<wf_f16 *>(to)[i] = wf_round<wf_f16>(x);
}

static __device__ __forceinline__ float round_any(wf_type type, float x)
{
    return type == WF_F32    ? x
           : type == WF_BF16 ? wf_load(wf_round<wf_bf16>(x))
                             : wf_load(wf_round<wf_f16>(x));
}

static __device__ float activate_any(int act, float x)
{
    switch (act) {
    case WF_ACT_GELU: return wf_activate<WF_ACT_GELU>(x);
    case WF_ACT_GELU_ERF: return wf_activate<WF_ACT_GELU_ERF>(x);
    case WF_ACT_SILU: return wf_activate<WF_ACT_SILU>(x);
    case WF_ACT_RELU: return wf_activate<WF_ACT_RELU>(x);
    default: return wf_activate<WF_ACT_RELU2>(x);
    }
}

/* ---- Tiles ---- */

/* An operand as [rows, k]: the rows of a, or the columns of b. */
typedef struct {
    const void *data;
    wf_type type;
    /* Strides in elements: between rows, along k, between matrices. */
    int64_t rows, row, along, batch;
} operand;

/* Loads rows [first, first + TILE) by k in [k0, k0 + SLAB) into tile[k][row], zeros beyond the
 * edges. Neighbouring threads read neighbouring addresses. */
static __device__ __forceinline__ void load_tile(const operand &o, int64_t matrix, int64_t first,
                                                 int64_t k0, int64_t k, float (*tile)[TILE + 4])
{
    const bool k_first = o.along == 1; /* read along k where that is contiguous */
    for (int e = threadIdx.x; e < TILE * SLAB; e += THREADS) {
        const int i = k_first ? e / SLAB : e % TILE, j = k_first ? e % SLAB : e / TILE;
        const bool inside = first + i < o.rows && k0 + j < k;
        const int64_t at = matrix * o.batch + (first + i) * o.row + (k0 + j) * o.along;
        tile[j][i] = inside ? load_any(o.type, o.data, at) : 0;
    }
}

/* ---- The kernel ---- */

/* Kernel argument. */
typedef struct {
    wf_cuda_product p;
    operand a, b;
    int64_t tiles_m, tiles_n;
} plain;

/* Bias, addend and epilogue of one element, then rounds once. ACT rounds its operand first, as the
 * stored `pre` is. */
static __device__ __forceinline__ void end_element(const wf_cuda_product &p, int64_t matrix,
                                                   int64_t i, int64_t j, float x)
{
    const int64_t at = matrix * p.y.batch + i * p.y.row + j;
    const int64_t beside = matrix * p.pre.batch + i * p.pre.row + j;
    if (p.bias)
        x += load_any(p.bias_type, p.bias, j);
    if (p.add)
        x += load_any(p.y.type, p.y.data, at);
    if (p.ending == WF_CUDA_ACT) {
        x = round_any(p.y.type, x);
        if (p.pre.data)
            store_any(p.pre.type, p.pre.data, beside, x);
        x = activate_any(p.act, x);
    } else if (p.ending == WF_CUDA_ACT_GRAD) {
        x *= wf_gelu_slope(load_any(p.pre.type, p.pre.data, beside));
    }
    if (p.y.data)
        store_any(p.y.type, p.y.data, at, x);
}

static __global__ void __launch_bounds__(THREADS) plain_product(const plain q)
{
    /* + 4: rows stay aligned to 16 bytes and start in different banks. */
    __shared__ float a[SLAB][TILE + 4], b[SLAB][TILE + 4];
    /* blockIdx.x numbers tiles row by row; blockIdx.y matrices. */
    const int64_t i0 = blockIdx.x / q.tiles_n * TILE, j0 = blockIdx.x % q.tiles_n * TILE;
    const int row = threadIdx.x / 16 * EACH, column = threadIdx.x % 16 * EACH;
    for (int64_t matrix = blockIdx.y; matrix < q.p.batch; matrix += gridDim.y) {
        float sum[EACH][EACH] = {}, part[EACH][EACH] = {};
        for (int64_t k0 = 0; k0 < q.p.k; k0 += SLAB) {
            load_tile(q.a, matrix, i0, k0, q.p.k, a);
            load_tile(q.b, matrix, j0, k0, q.p.k, b);
            __syncthreads(); /* both tiles are loaded */
#pragma unroll
            for (int k = 0; k < SLAB; k++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        part[i][j] += a[k][row + i] * b[k][column + j];
            __syncthreads(); /* both tiles were read: the next iteration overwrites them */
            if ((k0 + SLAB) % BLOCK == 0 || k0 + SLAB >= q.p.k)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) {
                        sum[i][j] += part[i][j];
                        part[i][j] = 0;
                    }
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (i0 + row + i < q.p.m && j0 + column + j < q.p.n)
                    end_element(q.p, matrix, i0 + row + i, j0 + column + j, sum[i][j]);
    }
}

extern "C" void wf_cuda_plain_product(cudaStream_t stream, const wf_cuda_product *p)
{
    const bool ta = p->transpose_a, tb = p->transpose_b;
    plain q = {.p = *p};
    q.a = operand{p->a.data, p->a.type, p->m, ta ? 1 : p->a.row, ta ? p->a.row : 1, p->a.batch};
    q.b = operand{p->b.data, p->b.type, p->n, tb ? p->b.row : 1, tb ? 1 : p->b.row, p->b.batch};
    q.tiles_m = (p->m + TILE - 1) / TILE;
    q.tiles_n = (p->n + TILE - 1) / TILE;
    if (p->batch * p->m * p->n == 0)
        return;
    /* 65535 is the limit of a grid's y; the kernel loops over the rest. */
    const dim3 grid((unsigned)(q.tiles_m * q.tiles_n), wf_cuda_blocks(p->batch, 1, 65535));
    WF_RUN(plain_product, grid, THREADS, 0, stream)(q);
}

/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash_grad_prepare.cu - the inputs of the Hopper attention gradient: delta = sum of do * o
 * and the key range of each query, and the tiles that each tile meets.
 */
#include "device/cuda/hopper_flash_grad.h"
#include "device/cuda/kernels.cuh"

enum {
    KV = WF_TILE_KEYS,
    BM = WF_TILE_QUERIES,
    ROWS = 32, /* per block, 8 threads each */
    HEADS = 2, /* per block */
};
static_assert(KV % BM == 0, "a tile of queries must lie within a tile of keys");

typedef struct {
    wf_flash f;
    wf_flash_grad g;
} preparation;

/* The keys [x, y) that query i sees. Neither decreases with i, also past the last query, and x <= i
 * <= y. A token without a sequence has x = y = i. */
static __device__ int2 seen_by(const wf_flash &f, int i)
{
    if (i >= f.n)
        i = f.n - 1;
    if (f.low)
        return make_int2(f.low[i], f.high[i]);
    int begin = i / f.length * f.length;
    return make_int2(f.window > 0 ? max(begin, i - f.window + 1) : begin,
                     f.causal ? i + 1 : begin + f.length);
}

/* The first and last key tile of a query tile. Never empty, so every dq is written. It includes the
 * key tile of the queries themselves: the first key is at or before the tile's first token t, and
 * the last is at or after the last token but one. That is before t only if t is alone and without a
 * sequence; then the first key is t. */
static __device__ int2 q_bounds_of(const wf_flash &f, int tile)
{
    int first = seen_by(f, tile * BM).x, end = seen_by(f, tile * BM + BM - 1).y;
    return make_int2(first / KV, max(first, end - 1) / KV);
}

/* The first query tile whose first key tile is > `tile`, or with `upper`, whose last one is >=
 * `tile`. */
static __device__ int first_q_tile(const preparation &p, int tile, bool upper)
{
    int low = 0, high = p.g.q_tiles;
    while (low < high) {
        int middle = low + (high - low) / 2;
        int2 bounds = q_bounds_of(p.f, middle);
        if (upper ? bounds.y >= tile : bounds.x > tile)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Computes limits and bounds. Needs at least one thread per query of all tiles. */
static __device__ void prepare_limits(const preparation &p, int64_t thread, int64_t threads)
{
    const wf_flash_grad &g = p.g;
    for (int64_t i = thread; i < (int64_t)g.heads * g.q_tiles; i += threads)
        g.added[i] = 0;
    if (thread == 0)
        *g.next = 0;
    if (thread >= g.q_tiles * BM)
        return;
    const int i = (int)thread;
    if (i < g.q_tiles)
        g.q_bounds[i] = q_bounds_of(p.f, i);
    if (i < g.kv_tiles)
        g.kv_bounds[i] = make_int2(first_q_tile(p, i, true), first_q_tile(p, i, false));
    const int2 seen = seen_by(p.f, i);
    int32_t *to = g.limits + i / BM * 2 * BM + i % BM;
    to[0] = seen.x;
    to[BM] = seen.y;
}

/* Consecutive blocks share rows, which are adjacent in memory. */
template <typename T, int D>
static __global__ void flash_grad_prepare(const __grid_constant__ preparation p, int blocks_of_row)
{
    if (p.f.irregular && *p.f.irregular)
        return;
    const int block = (int)(blockIdx.x / blocks_of_row);
    const int head = (int)(blockIdx.x % blocks_of_row) * HEADS;
    if (head == 0)
        prepare_limits(p, (int64_t)block * blockDim.x + threadIdx.x,
                       (int64_t)(gridDim.x / blocks_of_row) * blockDim.x);
    const int i = block * ROWS + (int)threadIdx.x / 8, lane = threadIdx.x % 8;
    const T *out = (const T *)p.f.o.data + i * p.f.o.row + lane * 8;
    const T *dout = (const T *)p.f.dout.data + i * p.f.dout.row + lane * 8;
    wf_pack<T, 8> x[HEADS][D / 64], y[HEADS][D / 64];
    float lse[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; h++) { /* issue all loads first */
        lse[h] = -INFINITY;
        if (i >= p.f.n || head + h >= p.g.heads)
            continue;
        lse[h] = p.f.lse[i * p.f.lse_row + head + h];
#pragma unroll
        for (int c = 0; c < D / 64; c++) {
            x[h][c] = wf_load_pack<T, 8>(out + (head + h) * p.f.o.head + c * 64);
            y[h][c] = wf_load_pack<T, 8>(dout + (head + h) * p.f.dout.head + c * 64);
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float delta = 0;
        if (i < p.f.n && head + h < p.g.heads)
#pragma unroll
            for (int k = 0; k < D / 8; k++)
                delta += wf_load(x[h][k / 8].x[k % 8]) * wf_load(y[h][k / 8].x[k % 8]);
        for (int k = 4; k > 0; k /= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, k);
        if (lane != 0 || head + h >= p.g.heads)
            continue;
        float *to = p.g.rows + ((int64_t)(head + h) * p.g.q_tiles + i / BM) * 2 * BM + i % BM;
        to[0] =
            lse[h] == -INFINITY ? INFINITY : lse[h] * WF_LOG2E; /* no visible key: p becomes 0 */
        to[BM] = -delta;
    }
}

template <typename T, int D> static void run(const wf_launch *l, const preparation &p)
{
    const int blocks_of_row = (p.g.heads + HEADS - 1) / HEADS;
    const unsigned rows = (unsigned)p.g.q_tiles * (unsigned)(BM / (int)ROWS);
    WF_RUN((flash_grad_prepare<T, D>), rows * (unsigned)blocks_of_row, ROWS * 8, 0,
           wf_cuda_stream(l))
    (p, blocks_of_row);
}

void wf_cuda_hopper_flash_grad_prepare(const wf_launch *l, const wf_flash *f,
                                       const wf_flash_grad *g)
{
    const preparation p = {*f, *g};
    if (f->type == WF_BF16)
        f->d == 64 ? run<wf_bf16, 64>(l, p) : run<wf_bf16, 128>(l, p);
    else
        f->d == 64 ? run<wf_f16, 64>(l, p) : run<wf_f16, 128>(l, p);
}

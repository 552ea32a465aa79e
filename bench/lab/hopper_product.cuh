/* SPDX-License-Identifier: MIT */
/*
 * hopper_product.cuh - a bf16 GEMM for Hopper with epilogues: y [m, n] = a [m, k] b [k, n].
 * hopper_product.cu runs it and documents the results.
 *
 * Blocks are persistent, one per SM. In each block one thread loads slabs of 64 k of both operands
 * by TMA into a ring of slots. Two warpgroups multiply them in one of two ways:
 *   in turns: each has its own tile, and runs its epilogue while the other multiplies;
 *   together: a tile is twice as large, each has half of its rows; operands are read less often.
 * 16-bit results are staged in shared memory, from where TMA stores them in the background. So are
 * matrices that the epilogue reads or writes additionally.
 *
 * k is split when results are f32 and tiles are few: several blocks compute a tile. The first
 * writes to the result, the others to parts that a second kernel adds in a fixed order. Row sums of
 * a are a matmul with ones. For every slab one of the tiles that load it computes them, in turn, so
 * that all tiles take equally long.
 *
 * The two blocks of an optional cluster work on vertically adjacent tiles, and each loads half of b
 * for both.
 *
 * The main loop needs no edge handling: elements outside of a matrix load as zeros and are not
 * stored.
 */
#ifndef WF_BENCH_HOPPER_PRODUCT_CUH
#define WF_BENCH_HOPPER_PRODUCT_CUH

#include "device/cuda/activation.cuh"
#include "device/cuda/product.h"
#include "hopper_wide.cuh"

/* The epilogue applied to an accumulator. */
typedef enum {
    WF_HOPPER_NARROW, /* y = sum + bias, in the operands' 16-bit type */
    /* y = gelu(pre), where pre = sum + bias rounded to its type, and may be stored too */
    WF_HOPPER_GELU,
    WF_HOPPER_SLOPE, /* y = sum * gelu'(pre) */
    WF_HOPPER_WIDE   /* y = sum or y + sum in f32; row sums of a */
} wf_hopper_ending;

typedef struct {
    CUtensorMap a, b;
    CUtensorMap y, pre; /* 16-bit results */
    const void *bias;   /* [n] or NULL */
    float *wide;        /* f32 result: [m, row] */
    float *parts;       /* [splits - 1, m, row] */
    float *sums;        /* [splits, tiles_n, m] or NULL */
    int64_t row;
    int32_t bias_wide; /* the bias is f32 */
    int32_t bias_even; /* pairs of bias elements can be loaded at once */
    int32_t kept;      /* pre is stored */
    int32_t add;       /* adds to y */
    int32_t m, n;
    int32_t slabs, splits; /* slabs: 64 elements of k each */
    int32_t tiles_m, tiles_n,
        items;        /* tiles_m: of all blocks of a cluster together; items: over all splits */
    int32_t together; /* rows of tiles processed before the next ones */
} wf_hopper_task;

/* Shape of a kernel. ROWS: rows of a warpgroup / 64. TURNS: warpgroups alternate between
 * multiplying and finishing. */
template <typename T_, int TA_, int TB_, wf_hopper_ending ENDING_, int ROWS_, int N_, bool TURNS_,
          int CLUSTER_>
struct wf_hopper_shape {
    typedef T_ T;
    static constexpr int TA = TA_, TB = TB_; /* a is stored as [k, m], b as [k, n] */
    static constexpr wf_hopper_ending ENDING = ENDING_;
    static constexpr int ROWS = ROWS_, N = N_, CLUSTER = CLUSTER_;
    static constexpr bool TURNS = TURNS_;
    static constexpr bool WIDE = ENDING == WF_HOPPER_WIDE;
    static constexpr int GROUP_M = 64 * ROWS, M = TURNS ? GROUP_M : 2 * GROUP_M;
    static constexpr int THREADS = 384, SLAB = 64;
    static constexpr int MANY = 240,
                         FEW = 24; /* registers of computing threads, and of the others */
    /* Shared memory: ring slots, result pieces of each warpgroup (64 columns each), a tile of ones,
     * barriers. */
    static constexpr int A_BYTES = M * 128, B_BYTES = N * 128, SLOT_BYTES = A_BYTES + B_BYTES;
    static constexpr int PIECE_BYTES = GROUP_M * 128;
    static constexpr int PIECES = WIDE ? 0 : ENDING == WF_HOPPER_SLOPE ? N / 64 : 2;
    static constexpr int ONES_BYTES = WIDE ? 1024 : 0, BARRIER_BYTES = 256,
                         MOST = 227 * 1024 - 1024;
    static constexpr int FIT =
        (MOST - BARRIER_BYTES - ONES_BYTES - 2 * PIECES * PIECE_BYTES) / SLOT_BYTES;
    static constexpr int SLOTS = FIT < 8 ? FIT : 8;
    static constexpr int PIECE_AT = SLOTS * SLOT_BYTES;
    static constexpr int ONES_AT = PIECE_AT + 2 * PIECES * PIECE_BYTES;
    static constexpr int BARRIER_AT = ONES_AT + ONES_BYTES;
    static constexpr int BYTES = BARRIER_AT + BARRIER_BYTES + 1024; /* 1024: for alignment */
    static_assert(CLUSTER == 1 || N % 128 == 0, "halves of b are whole chunks of 64");
    static_assert(SLOTS >= 2 && 8 * (2 * SLOTS + 2) <= BARRIER_BYTES, "fits");
};

#if WF_HOPPER_CODE

/* Addresses in the block's shared memory. */
template <class S> struct wf_hopper_memory {
    uint32_t base;
    unsigned char *start; /* the same as a pointer */
    __device__ uint32_t slot(int i) const
    {
        return base + i * S::SLOT_BYTES;
    }
    __device__ uint32_t piece_at(int group, int i) const /* relative to base */
    {
        return S::PIECE_AT + (group * S::PIECES + i) * S::PIECE_BYTES;
    }
    __device__ wf_barrier full(int i) const
    {
        return base + S::BARRIER_AT + 8 * i;
    }
    __device__ wf_barrier empty(int i) const
    {
        return full(S::SLOTS + i);
    }
    __device__ wf_barrier pre_full(int group) const
    {
        return full(2 * S::SLOTS + group);
    }
};

/* Position in the ring; the parity counts uses of the slot. */
template <class S> struct wf_hopper_place {
    int slot;
    uint32_t parity;
    __device__ void advance()
    {
        if (++slot == S::SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
    __device__ void skip(int slots)
    {
        slot += slots;
        parity ^= slot / S::SLOTS & 1;
        slot %= S::SLOTS;
    }
};

/* A unit of work: a tile, or one split of its k. */
typedef struct {
    int m, n;   /* first row and column */
    int column; /* column of tiles */
    int split, slab, slabs;
} wf_hopper_item;

/* Consecutive items belong to one split, so they read the same slabs at about the same time. Within
 * it, `together` rows of tiles are processed column by column. */
template <class S> WF_HOPPER wf_hopper_item wf_hopper_item_at(const wf_hopper_task &t, int number)
{
    wf_hopper_item i;
    const int tiles = t.tiles_m * t.tiles_n;
    i.split = number / tiles;
    const int tile = number - i.split * tiles, chunk = tile / (t.together * t.tiles_n);
    const int rest = tile - chunk * (t.together * t.tiles_n), first = chunk * t.together;
    const int rows = min(t.together, t.tiles_m - first);
    i.column = rest / rows;
    i.m = (first + rest - i.column * rows) * (S::M * S::CLUSTER);
    i.n = i.column * S::N;
    if (S::CLUSTER > 1)
        i.m += wf_cluster_rank() * S::M;
    i.slab = (int)((int64_t)t.slabs * i.split / t.splits);
    i.slabs = (int)((int64_t)t.slabs * (i.split + 1) / t.splits) - i.slab;
    return i;
}

/* ---- The producer thread ---- */

/* Loads COUNT rows of an operand by 64 of k. */
template <class S, int TRANSPOSED, int COUNT>
WF_HOPPER void wf_hopper_bring(uint32_t to, const CUtensorMap *map, wf_barrier full, int first,
                               int k)
{
    if (TRANSPOSED) {
#pragma unroll
        for (int c = 0; c < COUNT / 64; c++)
            wf_tma_load(to + c * 8192, map, full, first + 64 * c, k, 0, 0);
    } else {
        wf_tma_load(to, map, full, k, first, 0, 0);
    }
}

/* Loads this block's half of b for both blocks of the cluster. */
template <class S>
WF_HOPPER void wf_hopper_bring_half(uint32_t to, const CUtensorMap *map, wf_barrier full, int first,
                                    int k)
{
    const int half = wf_cluster_rank() * (S::N / 2);
    to += half * 128;
    first += half;
    if (S::TB) {
#pragma unroll
        for (int c = 0; c < S::N / 128; c++)
            wf_tma_load_to(to + c * 8192, map, full, 3, first + 64 * c, k, 0, 0);
    } else {
        wf_tma_load_to(to, map, full, 3, k, first, 0, 0);
    }
}

template <class S>
WF_HOPPER void wf_hopper_bring_all(const wf_hopper_task &t, const wf_hopper_memory<S> &m)
{
    wf_hopper_place<S> at = {0, 0};
    for (int number = blockIdx.x / S::CLUSTER; number < t.items; number += gridDim.x / S::CLUSTER) {
        const wf_hopper_item i = wf_hopper_item_at<S>(t, number);
        for (int j = i.slab; j < i.slab + i.slabs; j++) {
            const wf_barrier full = m.full(at.slot);
            const uint32_t to = m.slot(at.slot);
            wf_barrier_wait(m.empty(at.slot), at.parity ^ 1);
            wf_barrier_expect(full, S::SLOT_BYTES);
            wf_hopper_bring<S, S::TA, S::M>(to, &t.a, full, i.m, j * S::SLAB);
            if (S::CLUSTER > 1)
                wf_hopper_bring_half<S>(to + S::A_BYTES, &t.b, full, i.n, j * S::SLAB);
            else
                wf_hopper_bring<S, S::TB, S::N>(to + S::A_BYTES, &t.b, full, i.n, j * S::SLAB);
            at.advance();
        }
    }
}

/* ---- Consumer warpgroups ---- */

template <class S> struct wf_hopper_worker {
    wf_hopper_memory<S> m;
    wf_hopper_place<S> at;
    int group;
    bool leader;   /* the thread that issues TMA stores */
    int piece;     /* the piece to fill next */
    uint32_t uses; /* uses of the pieces for tiles of pre */
    __device__ __forceinline__ void await()
    {
        wf_barrier_wait(m.full(at.slot), at.parity);
    }
    /* One lane of each warp arrives, for every block that writes to the slot. */
    __device__ __forceinline__ void release(int slot)
    {
        const int lane = threadIdx.x % 32;
        __syncwarp();
        if (S::CLUSTER > 1) {
            if (lane < S::CLUSTER)
                wf_barrier_arrive_at(m.empty(slot), lane);
        } else if (lane == 0) {
            wf_barrier_arrive(m.empty(slot));
        }
    }
    /* Alternation also makes parities sufficient: the warpgroup that has the turn knows that all
     * earlier slabs have arrived. */
    __device__ __forceinline__ void turn_begin()
    {
        if (S::TURNS)
            wf_named_sync(1 + group, 256);
    }
    __device__ __forceinline__ void turn_end()
    {
        if (S::TURNS)
            wf_named_arrive(2 - group, 256);
    }
    /* Synchronizes the threads of the warpgroup. */
    __device__ __forceinline__ void gather()
    {
        wf_named_sync(3 + group, 128);
    }
};

/* d += a b of the current slab; FIRST: overwrites d. SUMS: also s += a times ones. */
template <class S, bool FIRST, bool SUMS>
WF_HOPPER void wf_hopper_multiply(const wf_hopper_worker<S> &w, float (&d)[S::ROWS][S::N / 2],
                                  float (&s)[S::ROWS][4])
{
    typedef typename S::T T;
    const uint32_t slot = w.m.slot(w.at.slot), above = S::TURNS ? 0 : w.group * S::GROUP_M * 128;
    const uint64_t a = wf_wgmma_operand(slot + above, S::TA ? 8192 : 16);
    const uint64_t b = wf_wgmma_operand(slot + S::A_BYTES, S::TB ? 8192 : 16);
    const uint64_t ones = wf_wgmma_operand(w.m.base + S::ONES_AT, 16);
    wf_wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int r = 0; r < S::ROWS; r++) {
            const uint64_t ak = a + (r * 8192 + k * (S::TA ? 2048 : 32)) / 16;
            const uint64_t bk = b + k * (S::TB ? 2048 : 32) / 16;
            if (FIRST && k == 0)
                wf_wgmma_first<T, S::TA, S::TB>(d[r], ak, bk);
            else
                wf_wgmma<T, S::TA, S::TB>(d[r], ak, bk, 1);
            if (SUMS)
                wf_wgmma<T, S::TA, 0>(s[r], ak, ones, 1);
        }
    wf_wgmma_commit();
}

/* Call after issuing a slab's MMAs: releases the slot of the previous slab. */
template <class S> WF_HOPPER void wf_hopper_next(wf_hopper_worker<S> &w, int &before)
{
    wf_wgmma_wait<1>();
    if (before >= 0)
        w.release(before);
    before = w.at.slot;
    w.at.advance();
}

/* Computes the item's matmul, and the row sums of a for those slabs that this tile is responsible
 * for. */
template <class S>
WF_HOPPER void wf_hopper_run(const wf_hopper_task &t, wf_hopper_worker<S> &w,
                             const wf_hopper_item &i, float (&d)[S::ROWS][S::N / 2],
                             float (&s)[S::ROWS][4])
{
    int before = -1, j = 0;
    w.turn_begin();
    if constexpr (S::WIDE) {
        /* slabs until the next one to sum; possibly past the end */
        int left = t.sums ? (i.column + t.tiles_n - i.slab % t.tiles_n) % t.tiles_n : i.slabs;
#pragma unroll
        for (int r = 0; r < S::ROWS; r++) {
#pragma unroll
            for (int e = 0; e < S::N / 2; e++)
                d[r][e] = 0;
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[r][e] = 0;
        }
        for (; j < i.slabs; j++) {
            w.await();
            if (left == 0) {
                wf_hopper_multiply<S, false, true>(w, d, s);
                left = t.tiles_n;
            } else {
                wf_hopper_multiply<S, false, false>(w, d, s);
            }
            left--;
            wf_hopper_next(w, before);
        }
    } else {
        w.await();
        wf_hopper_multiply<S, true, false>(w, d, s);
        wf_hopper_next(w, before);
        for (j = 1; j < i.slabs; j++) {
            w.await();
            wf_hopper_multiply<S, false, false>(w, d, s);
            wf_hopper_next(w, before);
        }
    }
    w.turn_end();
    wf_wgmma_wait<0>();
#pragma unroll
    for (int r = 0; r < S::ROWS; r++) {
        wf_wgmma_hold(d[r]);
        if (S::WIDE)
            wf_wgmma_hold(s[r]);
    }
    w.release(before);
}

/* ---- Epilogues ---- */

/* Bias elements `column` and `column` + 1; 0 beyond the end. */
template <typename T> WF_HOPPER float2 wf_hopper_pair(const T *from, bool both, bool even)
{
    if (!both || !even)
        return make_float2(wf_load(from[0]), both ? wf_load(from[1]) : 0);
    const wf_pack<T, 2> pair = wf_load_pack<T, 2>(from);
    return make_float2(wf_load(pair.x[0]), wf_load(pair.x[1]));
}

template <typename T> WF_HOPPER float2 wf_hopper_bias(const wf_hopper_task &t, int column)
{
    const bool both = column + 1 < t.n;
    if (!t.bias || column >= t.n)
        return make_float2(0, 0);
    if (t.bias_wide)
        return wf_hopper_pair(static_cast<const float *>(t.bias) + column, both, t.bias_even);
    return wf_hopper_pair(static_cast<const T *>(t.bias) + column, both, t.bias_even);
}

template <typename T> WF_HOPPER float2 wf_hopper_unpack(uint32_t pair)
{
    wf_pack<T, 2> x;
    memcpy(&x, &pair, sizeof x);
    return make_float2(wf_load(x.x[0]), wf_load(x.x[1]));
}

/* Address of the word with the thread's elements of these 8 columns, in row r of its 2 ROWS; pairs
 * of rows are 8 apart. */
template <class S>
WF_HOPPER uint32_t *wf_hopper_word(const wf_hopper_worker<S> &w, int piece, int r, int eight)
{
    const int lane = threadIdx.x % 32;
    const int row = r / 2 * 64 + threadIdx.x / 32 % 4 * 16 + r % 2 * 8 + lane / 4;
    return reinterpret_cast<uint32_t *>(w.m.start + w.m.piece_at(w.group, piece) + row * 128 +
                                        ((eight * 16 + lane % 4 * 4) ^ lane / 4 * 16));
}

/* Fills the next of two pieces and stores it, once TMA has read its previous contents. */
template <class S>
WF_HOPPER void wf_hopper_store(wf_hopper_worker<S> &w, const CUtensorMap *map, int row, int column,
                               const uint32_t (&words)[2 * S::ROWS][8])
{
    if (w.leader)
        wf_tma_wait_read<1>();
    w.gather();
#pragma unroll
    for (int r = 0; r < 2 * S::ROWS; r++)
#pragma unroll
        for (int e = 0; e < 8; e++)
            *wf_hopper_word(w, w.piece, r, e) = words[r][e];
    wf_async_fence();
    w.gather();
    if (w.leader) {
        wf_tma_store(map, w.m.base + w.m.piece_at(w.group, w.piece), column, row, 0, 0);
        wf_tma_commit();
    }
    w.piece ^= 1;
}

/* NARROW and GELU. */
template <class S>
WF_HOPPER void wf_hopper_finish(const wf_hopper_task &t, wf_hopper_worker<S> &w, int row, int first,
                                const float (&d)[S::ROWS][S::N / 2])
{
    typedef typename S::T T;
#pragma unroll
    for (int c = 0; c < S::N / 64; c++) {
        uint32_t words[2 * S::ROWS][8];
#pragma unroll
        for (int e = 0; e < 8; e++) {
            const float2 b = wf_hopper_bias<T>(t, first + 64 * c + 8 * e + threadIdx.x % 4 * 2);
#pragma unroll
            for (int r = 0; r < 2 * S::ROWS; r++) {
                const int at = 32 * c + 4 * e + r % 2 * 2;
                words[r][e] = wf_pair<T>(d[r / 2][at] + b.x, d[r / 2][at + 1] + b.y);
            }
        }
        if (S::ENDING == WF_HOPPER_GELU) {
            if (t.kept)
                wf_hopper_store(w, &t.pre, row, first + 64 * c, words);
#pragma unroll
            for (int r = 0; r < 2 * S::ROWS; r++)
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    const float2 x = wf_hopper_unpack<T>(words[r][e]);
                    words[r][e] = wf_pair<T>(wf_gelu(x.x), wf_gelu(x.y));
                }
        }
        wf_hopper_store(w, &t.y, row, first + 64 * c, words);
    }
}

/* SLOPE: pre is loaded when the tile starts, and the result replaces it in place. */
template <class S>
WF_HOPPER void wf_hopper_fetch_pre(const wf_hopper_task &t, wf_hopper_worker<S> &w, int row,
                                   int first)
{
    if (!w.leader)
        return;
    wf_tma_wait_read<0>();
    wf_barrier_expect(w.m.pre_full(w.group), S::PIECES * S::PIECE_BYTES);
#pragma unroll
    for (int c = 0; c < S::PIECES; c++)
        wf_tma_load(w.m.base + w.m.piece_at(w.group, c), &t.pre, w.m.pre_full(w.group),
                    first + 64 * c, row, 0, 0);
}

template <class S>
WF_HOPPER void wf_hopper_slope(const wf_hopper_task &t, wf_hopper_worker<S> &w, int row, int first,
                               const float (&d)[S::ROWS][S::N / 2])
{
    typedef typename S::T T;
    wf_barrier_wait(w.m.pre_full(w.group), w.uses++ & 1);
#pragma unroll
    for (int c = 0; c < S::N / 64; c++) {
#pragma unroll
        for (int r = 0; r < 2 * S::ROWS; r++)
#pragma unroll
            for (int e = 0; e < 8; e++) {
                uint32_t *word = wf_hopper_word(w, c, r, e);
                const float2 x = wf_hopper_unpack<T>(*word);
                const int at = 32 * c + 4 * e + r % 2 * 2;
                *word = wf_pair<T>(d[r / 2][at] * wf_gelu_slope(x.x),
                                   d[r / 2][at + 1] * wf_gelu_slope(x.y));
            }
        wf_async_fence();
        w.gather();
        if (w.leader) {
            wf_tma_store(&t.y, w.m.base + w.m.piece_at(w.group, c), first + 64 * c, row, 0, 0);
            wf_tma_commit();
        }
    }
}

WF_HOPPER void wf_hopper_put(float *to, float x, float y, bool both, bool add)
{
    if (both) {
        const float2 old = add ? *reinterpret_cast<float2 *>(to) : make_float2(0, 0);
        *reinterpret_cast<float2 *>(to) = make_float2(old.x + x, old.y + y);
    } else {
        *to = add ? *to + x : x;
    }
}

/* WIDE, directly from registers: 32 bytes of each row at a time. */
template <class S>
WF_HOPPER void wf_hopper_spread(const wf_hopper_task &t, const wf_hopper_item &i, int row,
                                const float (&d)[S::ROWS][S::N / 2], const float (&s)[S::ROWS][4])
{
    const int lane = threadIdx.x % 4, column = i.n + 2 * lane;
    float *to = i.split > 0 ? t.parts + (i.split - 1) * (t.m * t.row) : t.wide;
    const bool add = t.add && i.split == 0;
    row += threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int r = 0; r < 2 * S::ROWS; r++) {
        const int at = row + r / 2 * 64 + r % 2 * 8;
        if (at >= t.m)
            continue;
        float *line = to + at * t.row + column;
        if (t.sums && lane == 0)
            t.sums[(int64_t)(i.split * t.tiles_n + i.column) * t.m + at] = s[r / 2][r % 2 * 2];
#pragma unroll
        for (int e = 0; e < S::N / 8; e++)
            if (column + 8 * e < t.n)
                wf_hopper_put(line + 8 * e, d[r / 2][4 * e + r % 2 * 2],
                              d[r / 2][4 * e + r % 2 * 2 + 1], column + 8 * e + 1 < t.n, add);
    }
}

template <class S>
WF_HOPPER void wf_hopper_compute(const wf_hopper_task &t, const wf_hopper_memory<S> &m, int group)
{
    wf_hopper_worker<S> w = {m, {0, 0}, group, threadIdx.x % 128 == 0, 0, 0};
    float d[S::ROWS][S::N / 2], s[S::ROWS][4];
    const int step = gridDim.x / S::CLUSTER;
    int number = blockIdx.x / S::CLUSTER;
    if (S::TURNS && group == 1) {
        w.turn_end();
        if (number < t.items)
            w.at.skip(wf_hopper_item_at<S>(t, number).slabs);
        number += step;
    }
    for (; number < t.items; number += step) {
        const wf_hopper_item i = wf_hopper_item_at<S>(t, number);
        const int row = i.m + (S::TURNS ? 0 : group * S::GROUP_M);
        if constexpr (S::ENDING == WF_HOPPER_SLOPE)
            wf_hopper_fetch_pre<S>(t, w, row, i.n);
        wf_hopper_run<S>(t, w, i, d, s);
        if constexpr (S::WIDE)
            wf_hopper_spread<S>(t, i, row, d, s);
        else if constexpr (S::ENDING == WF_HOPPER_SLOPE)
            wf_hopper_slope<S>(t, w, row, i.n, d);
        else
            wf_hopper_finish<S>(t, w, row, i.n, d);
        if (S::TURNS) { /* the other warpgroup takes the next item */
            number += step;
            if (number < t.items)
                w.at.skip(wf_hopper_item_at<S>(t, number).slabs);
        }
    }
    if (!S::WIDE && w.leader)
        wf_tma_wait<0>();
}

template <class S> WF_HOPPER void wf_hopper_begin(const wf_hopper_task &t, wf_hopper_memory<S> m)
{
    if (threadIdx.x == 0) {
        wf_tma_prefetch(&t.a);
        wf_tma_prefetch(&t.b);
        if (!S::WIDE)
            wf_tma_prefetch(&t.y);
        for (int i = 0; i < S::SLOTS; i++) {
            wf_barrier_init(m.full(i), 1);
            wf_barrier_init(m.empty(i), S::CLUSTER * (S::TURNS ? 4 : 8));
        }
        for (int i = 0; i < 2; i++)
            wf_barrier_init(m.pre_full(i), 1);
        wf_barrier_init_done();
    }
    if (S::WIDE) {
        typename S::T *ones = reinterpret_cast<typename S::T *>(m.start + S::ONES_AT);
        for (int i = threadIdx.x; i < S::ONES_BYTES / 2; i += S::THREADS)
            ones[i] = wf_round<typename S::T>(1);
        wf_async_fence();
    }
    if (S::CLUSTER > 1)
        wf_cluster_sync();
    else
        __syncthreads();
}
#endif

template <class S>
__global__ void __cluster_dims__(S::CLUSTER, 1, 1) __launch_bounds__(S::THREADS, 1)
    wf_hopper_product(const __grid_constant__ wf_hopper_task t)
{
#if WF_HOPPER_CODE
    WF_SHARED(unsigned char, shared);
    unsigned char *start = shared + (-(uintptr_t)wf_shared_address(shared) & 1023);
    const wf_hopper_memory<S> m = {wf_shared_address(start), start};
    wf_hopper_begin<S>(t, m);
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == 0) {
        wf_registers_give<S::FEW>();
        if (threadIdx.x == 0)
            wf_hopper_bring_all<S>(t, m);
    } else {
        wf_registers_take<S::MANY>();
        wf_hopper_compute<S>(t, m, group - 1);
    }
    if (S::CLUSTER > 1) { /* other blocks may still write here and arrive */
        __syncwarp();
        wf_cluster_sync();
    }
#endif
}

/* ---- Host side ---- */

/* Describes an operand: `rows` of m or n by k or, transposed, k by rows. `most` of them are loaded
 * at once. */
static inline wf_tensor_box wf_hopper_operand(const wf_cuda_matrix *x, bool transposed,
                                              int64_t rows, int64_t k, int most)
{
    const int64_t height = transposed ? k : rows;
    return {.type = x->type,
            .data = x->data,
            .dim = {transposed ? rows : k, height, 1, 1},
            .stride = {1, x->row, x->row * height, x->row * height},
            .box = {64, transposed ? 64 : most, 1, 1}};
}

/* Describes a 16-bit result, or pre, transferred in pieces of `most` rows. */
static inline wf_tensor_box wf_hopper_result(const wf_cuda_matrix *x, int64_t m, int64_t n,
                                             int most)
{
    return {.type = x->type,
            .data = x->data,
            .dim = {n, m, 1, 1},
            .stride = {1, x->row, x->row * m, x->row * m},
            .box = {64, most, 1, 1}};
}

/* Fills in the sizes of the task for this tile shape, with a single split. */
template <class S> static wf_hopper_task wf_hopper_task_of(const wf_cuda_product *p, int together)
{
    wf_hopper_task t = {};
    t.bias = p->bias;
    t.bias_wide = p->bias_type == WF_F32;
    t.bias_even = (uintptr_t)p->bias % (t.bias_wide ? 8 : 4) == 0;
    t.kept = p->pre.data != NULL;
    t.add = p->add;
    t.m = (int32_t)p->m;
    t.n = (int32_t)p->n;
    t.slabs = (int32_t)((p->k + S::SLAB - 1) / S::SLAB);
    t.splits = 1;
    t.tiles_m = (t.m + S::M * S::CLUSTER - 1) / (S::M * S::CLUSTER);
    t.tiles_n = (t.n + S::N - 1) / S::N;
    t.items = t.tiles_m * t.tiles_n;
    t.together = together > S::CLUSTER ? together / S::CLUSTER : 1;
    t.wide = (float *)p->y.data;
    t.row = p->y.row;
    return t;
}

template <class S>
static wf_status wf_hopper_launch(const wf_launch *l, const wf_cuda_product *p, wf_hopper_task *t)
{
    const wf_tensor_box a = wf_hopper_operand(&p->a, S::TA, p->m, p->k, S::M),
                        b = wf_hopper_operand(&p->b, S::TB, p->n, p->k, S::N / S::CLUSTER),
                        y = wf_hopper_result(&p->y, p->m, p->n, S::GROUP_M),
                        pre = wf_hopper_result(&p->pre, p->m, p->n, S::GROUP_M);
    WF_TRY(wf_cuda_tensor_map(l, &a, &t->a));
    WF_TRY(wf_cuda_tensor_map(l, &b, &t->b));
    if (!S::WIDE)
        WF_TRY(wf_cuda_tensor_map(l, &y, &t->y));
    if (S::ENDING == WF_HOPPER_SLOPE || (S::ENDING == WF_HOPPER_GELU && t->kept))
        WF_TRY(wf_cuda_tensor_map(l, &pre, &t->pre));
    WF_TRY(wf_cuda_check(l, cudaFuncSetAttribute(wf_hopper_product<S>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 S::BYTES)));
    const unsigned blocks =
        wf_cuda_blocks(t->items, 1, wf_cuda_device_of(l)->processors / S::CLUSTER) * S::CLUSTER;
    WF_RUN(wf_hopper_product<S>, blocks, S::THREADS, S::BYTES, wf_cuda_stream(l))(*t);
    return wf_cuda_launched(l);
}

/* Chooses the number of splits of k: it balances the load of the SMs against the cost of adding
 * parts. The estimates, in microseconds, need not be exact but must be deterministic. */
template <class S>
static int wf_hopper_splits(const wf_hopper_task *t, int processors, int64_t part_bytes,
                            size_t room)
{
    enum { MOST = 12, SHORTEST = 16 /* slabs */ };
    const double slab_us = 2.0 * S::M * S::N * S::SLAB / 5.3e6; /* 700 TFLOP/s on 132 SMs */
    const double byte_us = 1.0 / 3e6;
    double best_us = 0;
    int best = 1;
    for (int s = 1; s <= MOST && (s == 1 || t->slabs / s >= SHORTEST); s++) {
        const int64_t waves = ((int64_t)t->items * s * S::CLUSTER + processors - 1) / processors;
        const double us = (double)waves * ((t->slabs + s - 1) / s) * slab_us +
                          2.0 * (s - 1) * (double)part_bytes * byte_us;
        if ((s - 1) * part_bytes + s * (int64_t)t->tiles_n * t->m * 4 > (int64_t)room)
            break;
        if (s == 1 || us < best_us) {
            best = s;
            best_us = us;
        }
    }
    return best;
}

typedef struct {
    float *y;
    const float *parts; /* [count, elements] */
    int64_t elements;
    int32_t count;
    float *sums;
    const float *sum_parts; /* [sum_count, m] */
    int32_t m, sum_count;
} wf_hopper_sum_up;

/* A thread adds four elements of y, or one of the sums. */
static __global__ void __launch_bounds__(256) wf_hopper_add_parts(const wf_hopper_sum_up x)
{
    const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, fours = x.count ? x.elements / 4 : 0;
    if (i < fours) {
        wf_pack<float, 4> y = wf_load_pack<float, 4>(x.y + 4 * i);
        for (int p = 0; p < x.count; p++) {
            const wf_pack<float, 4> part = wf_load_pack<float, 4>(x.parts + p * x.elements + 4 * i);
#pragma unroll
            for (int e = 0; e < 4; e++)
                y.x[e] += part.x[e];
        }
        wf_store_pack<float, 4>(x.y + 4 * i, y);
    } else if (x.sums && i - fours < x.m) {
        float sum = 0;
        for (int p = 0; p < x.sum_count; p++)
            sum += x.sum_parts[(int64_t)p * x.m + (i - fours)];
        x.sums[i - fours] = sum;
    }
}

/* Runs a whole matmul. scratch: `room` bytes for parts and sums. together: rows of tiles processed
 * before the next ones. */
template <class S>
static wf_status wf_hopper_run_product(const wf_launch *l, const wf_cuda_product *p, void *scratch,
                                       size_t room, int together)
{
    wf_hopper_task t = wf_hopper_task_of<S>(p, together);
    const int64_t elements = p->m * p->y.row;
    if (S::WIDE && p->y.row == p->n)
        t.splits = wf_hopper_splits<S>(&t, wf_cuda_device_of(l)->processors,
                                       elements * (int64_t)sizeof(float), room);
    t.items *= t.splits;
    t.parts = (float *)scratch;
    if (p->sums)
        t.sums = t.parts + (t.splits - 1) * elements;
    WF_TRY(wf_hopper_launch<S>(l, p, &t));
    if (t.splits == 1 && !p->sums)
        return WF_OK;
    const wf_hopper_sum_up up = {
        (float *)p->y.data,  t.parts, elements, t.splits - 1, p->sums, t.sums, t.m,
        t.splits * t.tiles_n};
    const int64_t threads = (t.splits > 1 ? elements / 4 : 0) + (p->sums ? p->m : 0);
    WF_RUN(wf_hopper_add_parts, (unsigned)((threads + 255) / 256), 256, 0, wf_cuda_stream(l))(up);
    return wf_cuda_launched(l);
}

#endif

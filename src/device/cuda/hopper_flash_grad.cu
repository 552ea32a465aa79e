/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash_grad.cu - the gradient of flash attention on Hopper, bitwise reproducible.
 *
 * Keys and queries are cut into tiles of KV keys and BM queries. A block takes one tile of keys of
 * one kv head at a time and iterates over all tiles of queries that see some of it, so dk and dv
 * are summed in registers:
 *
 *     s^T = k q^T,  p^T = e^(s^T - lse),  dv += p^T do,  dp^T = v do^T,  ds^T = p^T (dp^T - delta),  dk += ds^T q
 *
 * dq += ds k is summed over blocks in global memory (f32), in a fixed order. Of the key tiles that
 * a query tile meets, the last one stores its part. The others add theirs in descending order, and
 * the first one loads the sum, adds its part and writes dq. A counter per query tile and head holds
 * whose turn it is. It advances when the bulk copy that adds a part is complete, not merely read,
 * and is checked before the next copy starts. Fences separate bulk copies from other accesses on
 * both sides (wf_flag_release, wf_flag_await), so two parts are never in flight to one sum. Key
 * tiles are handed out in descending order, so a block waits only for blocks that started earlier.
 * It visits its queries in ascending order, so the part it waits for was usually done one step ago.
 *
 * Two of a block's three warpgroups compute, 64 keys each. In the third, one warp loads operands by
 * TMA and other warps, in turn, add parts of dq from shared memory to the sums. The computing warps
 * do not wait for global memory as long as a slot for another part is free.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/hopper_flash.h"
#include "device/cuda/hopper_flash_grad.h"

enum {
    KV = WF_TILE_KEYS,
    BM = WF_TILE_QUERIES,
    THREADS = 384, /* per block: warpgroup 0 moves data, 1 and 2 compute */
    WARPS = 8,     /* computing warps */
};

/* Layout of shared memory in bytes, and the pipeline's shape. */
template <int D> struct plan {
    /* Compute the dq of a step in the next step if registers allow: wgmma then always has work. */
    static constexpr bool LATE = D == 64;
    /* Keep k and v in registers, too: shared memory bandwidth would limit otherwise. */
    static constexpr bool HELD = D == 64;
    static constexpr int KV_STAGES = D == 64 ? 2 : 1; /* tiles of keys and values */
    static constexpr int STAGES = D == 64 ? 3 : 2;    /* tiles of queries and of do */
    static constexpr int DS_STAGES = 2, PARTS = D == 64 ? 3 : 2;
    static constexpr int KV_BYTES = KV * D * 2, Q_BYTES = BM * D * 2, DS_BYTES = KV * BM * 2;
    static constexpr int PART_BYTES = BM * D * 4;
    static constexpr int ROW_BYTES = 2 * BM * 4; /* lse and -delta; low and high take as much */
    static constexpr int K = 0;
    static constexpr int V = K + KV_STAGES * KV_BYTES;
    static constexpr int Q = V + KV_STAGES * KV_BYTES;
    static constexpr int DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * Q_BYTES;
    static constexpr int PART = DS + DS_STAGES * DS_BYTES; /* parts of dq */
    /* The finished tile of dq: behind the parts, or in place of each warpgroup's own part. */
    static constexpr int OUT = D == 64 ? PART + PARTS * PART_BYTES : PART;
    static constexpr int OUT_BYTES = D == 64 ? Q_BYTES : PART_BYTES;
    static constexpr int ROWS = PART + PARTS * PART_BYTES + (D == 64 ? PARTS * OUT_BYTES : 0);
    static constexpr int LIMITS = ROWS + STAGES * ROW_BYTES;
    static constexpr int ITEM = LIMITS + STAGES * ROW_BYTES; /* items of the key stages */
    static constexpr int WHICH = ITEM + 16 * KV_STAGES;      /* int[PARTS]: FIRST, LAST */
    static constexpr int KV_FULL = WHICH + 16, KV_EMPTY = KV_FULL + 8 * KV_STAGES;
    static constexpr int FULL = KV_EMPTY + 8 * KV_STAGES, EMPTY = FULL + 8 * STAGES;
    static constexpr int DS_FULL = EMPTY + 8 * STAGES;
    static constexpr int PART_EMPTY = DS_FULL + 8 * DS_STAGES, PART_FULL = PART_EMPTY + 8 * PARTS;
    static constexpr int BYTES = PART_FULL + 8 * PARTS;
    static_assert(BYTES <= 232448, "the most shared memory of a block");
};

enum { FIRST = 1, LAST = 2 }; /* position of a part in dq's sum */

/* ---- The kernel ---- */

#if WF_HOPPER_CODE

/* A tile of keys of a head; stored in shared memory beside it. */
typedef struct {
    alignas(16) int tile;
    int head;
    int first, end; /* tiles of queries, at least one; end 0: no work left */
} item;

/* Descending key tiles, and kv heads within each. */
static __device__ item take_item(const wf_flash_grad &a)
{
    const int index = atomicAdd(a.next, 1);
    if (index >= a.kv_tiles * a.kv_heads)
        return {0, 0, 0, 0};
    const int tile = a.kv_tiles - 1 - index / a.kv_heads;
    const int2 bounds = a.kv_bounds[tile];
    return {tile, index % a.kv_heads, bounds.x, bounds.y};
}

/* The next stage of a ring, and its barriers' parity. */
template <int N> struct ring {
    int at = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void step()
    {
        at++;
        if (at == N) {
            at = 0;
            parity ^= 1;
        }
    }
};

/* One thread: loads operands by TMA. */
template <int D>
static __device__ void bring(const wf_flash_grad &a, const CUtensorMap *q, const CUtensorMap *k,
                             const CUtensorMap *v, const CUtensorMap *dout, char *shared)
{
    using P = plan<D>;
    const uint32_t base = wf_shared_address(shared);
    ring<P::KV_STAGES> kv;
    ring<P::STAGES> in;
    for (;; kv.step()) {
        const item x = take_item(a);
        wf_barrier full = base + P::KV_FULL + 8 * kv.at;
        wf_barrier_wait(base + P::KV_EMPTY + 8 * kv.at, kv.parity ^ 1);
        ((item *)(shared + P::ITEM))[kv.at] = x;
        if (x.end == 0) {
            wf_barrier_arrive(full);
            return;
        }
        wf_barrier_expect(full, 2 * P::KV_BYTES);
        for (int c = 0; c < D / 64; c++) {
            uint32_t to = kv.at * P::KV_BYTES + c * KV * 128;
            wf_tma_load(base + P::K + to, k, full, c * 64, x.head, x.tile * KV, 0);
            wf_tma_load(base + P::V + to, v, full, c * 64, x.head, x.tile * KV, 0);
        }
        for (int g = 0; g < a.group; g++)
            for (int m = x.first; m < x.end; m++, in.step()) {
                const int head = x.head * a.group + g;
                const int64_t tile = (int64_t)head * a.q_tiles + m;
                full = base + P::FULL + 8 * in.at;
                wf_barrier_wait(base + P::EMPTY + 8 * in.at, in.parity ^ 1);
                wf_barrier_expect(full, 2 * P::Q_BYTES + 2 * P::ROW_BYTES);
                for (int c = 0; c < D / 64; c++) {
                    uint32_t to = in.at * P::Q_BYTES + c * BM * 128;
                    wf_tma_load(base + P::Q + to, q, full, c * 64, head, m * BM, 0);
                    wf_tma_load(base + P::DO + to, dout, full, c * 64, head, m * BM, 0);
                }
                wf_bulk_load(base + P::ROWS + in.at * P::ROW_BYTES, a.rows + tile * 2 * BM,
                             P::ROW_BYTES, full);
                wf_bulk_load(base + P::LIMITS + in.at * P::ROW_BYTES, a.limits + m * 2 * BM,
                             P::ROW_BYTES, full);
            }
    }
}

/* One thread: adds every PARTS-th part of dq from shared memory to the sum, in this block's turn.
 * For the last part it loads the sum to shared memory instead, and the computing warps finish
 * dq. */
template <int D>
static __device__ void deliver(const wf_flash_grad &a, const CUtensorMap *dq, char *shared,
                               int slot)
{
    using P = plan<D>;
    const uint32_t base = wf_shared_address(shared), part = base + P::PART + slot * P::PART_BYTES;
    const wf_barrier full = base + P::PART_FULL + 8 * slot, empty = base + P::PART_EMPTY + 8 * slot;
    ring<P::KV_STAGES> kv;
    uint32_t parity = 0;
    int next = slot; /* steps until the next part */
    int turn = -1; /* the sum that a copy in flight adds to; its counter is still to be advanced */
    int32_t added = 0; /* parts in that sum after the copy */
    auto finish = [&]() {
        if (turn < 0)
            return;
        wf_tma_wait<0>();
        wf_flag_release(a.added + turn, added);
        turn = -1;
    };
    for (;; kv.step()) {
        wf_barrier_wait(base + P::KV_FULL + 8 * kv.at, kv.parity);
        const item x = ((const item *)(shared + P::ITEM))[kv.at];
        if (x.end == 0)
            return;
        wf_barrier_arrive(base + P::KV_EMPTY + 8 * kv.at);
        int head = x.head * a.group, m = x.first + next;
        const int heads = head + a.group; /* one past the last query head of the kv head */
        for (;; m += P::PARTS) {
            for (; m >= x.end && head < heads; head++)
                m -= x.end - x.first;
            if (head == heads)
                break;
            const int tile =
                head * a.q_tiles + m; /* 32 bits suffice: memory cannot hold more tiles */
            const int2 bounds = a.q_bounds[m];
            const bool first = x.tile == bounds.y, last = x.tile == bounds.x;
            ((volatile int *)(shared + P::WHICH))[slot] = (first ? FIRST : 0) | (last ? LAST : 0);
            if (first || !last)
                wf_barrier_arrive(empty);
            finish();
            if (!first)
                wf_flag_await(a.added + tile, bounds.y - x.tile);
            float *sum = a.sum + (int64_t)tile * (BM * D);
            if (last && !first) {
                wf_barrier_expect(empty, P::PART_BYTES);
                wf_bulk_load(part, sum, P::PART_BYTES, empty);
            }
            wf_barrier_wait(full, parity);
            parity ^= 1;
            if (last) {
                for (int c = 0; c < D / 64 && a.dq.data; c++)
                    wf_tma_store(dq, base + P::OUT + slot * P::OUT_BYTES + c * P::PART_BYTES / 2,
                                 c * 64, head, m * BM, 0);
            } else {
                if (first)
                    wf_bulk_store(sum, part, P::PART_BYTES);
                else
                    wf_bulk_add(sum, part, P::PART_BYTES);
                turn = tile;
                added = bounds.y - x.tile + 1;
            }
            wf_tma_commit();
            wf_tma_wait_read<0>();
        }
        next = m - x.first;
        finish();
    }
}

/* ---- Computing warps ---- */

/* A thread's coordinates: warpgroup 0 or 1, thread in it, lane in the warp, and its first row of
 * 64. */
typedef struct {
    int group, thread, lane, row;
    /* The row that this lane addresses for stmatrix and ldmatrix: its byte offset among KV rows,
     * and the 16-byte piece of the row. */
    uint32_t matrix_row, matrix_piece;
} place;

/* Transposes 4 x 4 words within a quad: word i of its threads becomes words 0..3 of thread i. */
WF_HOPPER void transpose_quad(uint32_t (&w)[4], int lane)
{
#pragma unroll
    for (int k = 1; k <= 2; k *= 2) {
        const bool upper = lane & k;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & k)
                continue;
            uint32_t x = __shfl_xor_sync(0xffffffffu, upper ? w[i] : w[i + k], k);
            if (upper)
                w[i] = x;
            else
                w[i + k] = x;
        }
    }
}

/* Stores d[64, R / 2] of a warpgroup, times scale, to rows [0, rows) of `to`. */
template <typename T, int R>
static __device__ __forceinline__ void store_rows(const float (&d)[R], float scale, T *to,
                                                  int64_t stride, int rows, const place &at)
{
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int c = 0; c < R / 16; c++) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int k = 16 * c + 4 * i + 2 * half;
                w[i] = wf_pair<T>(d[k] * scale, d[k + 1] * scale);
            }
            transpose_quad(w, at.lane);
            const int row = at.row + 8 * half;
            if (row < rows)
                *(uint4 *)(to + row * stride + 32 * c + 8 * (at.lane % 4)) =
                    make_uint4(w[0], w[1], w[2], w[3]);
        }
}

/* Masks invisible pairs: rows of s are keys from `key` on, columns the queries of `limits`. */
static __device__ __forceinline__ void hide(float (&s)[BM / 2], const int32_t *limits, int key,
                                            int lane)
{
#pragma unroll
    for (int c = 0; c < BM / 8; c++) {
        const int column = 8 * c + 2 * (lane % 4);
        int2 low = *(const int2 *)(limits + column), high = *(const int2 *)(limits + BM + column);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int j = key + 8 * half;
            if (j < low.x || j >= high.x)
                s[4 * c + 2 * half] = -INFINITY;
            if (j < low.y || j >= high.y)
                s[4 * c + 2 * half + 1] = -INFINITY;
        }
    }
}

/* Stores a warpgroup's share of a part of dq, [BM, D / 2], in shared memory. */
template <int D>
static __device__ __forceinline__ void put_part(const float (&dq)[D / 4], float4 *part)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        part[i * 128] = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
}

/* Adds the earlier parts' sum from shared memory. */
template <int D>
static __device__ __forceinline__ void add_parts(float (&dq)[D / 4], const float4 *part)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const float4 x = part[i * 128];
        dq[4 * i] += x.x;
        dq[4 * i + 1] += x.y;
        dq[4 * i + 2] += x.z;
        dq[4 * i + 3] += x.w;
    }
}

/* Rounds the sum to dq's tile. */
template <typename T, int D>
static __device__ __forceinline__ void put_sum(const float (&dq)[D / 4], float scale, uint32_t out,
                                               const place &at)
{
    const uint32_t group = (uint32_t)at.group;
    const uint32_t row = at.matrix_row - group * 64 * 128 + (D == 64 ? 0 : group * BM * 64 * 4);
    const uint32_t piece = at.matrix_piece ^ (D == 64 ? 4 * group : 0);
    if (D != 64) /* OUT overlaps the parts: wait until all threads have read theirs */
        wf_named_sync(1 + at.group, 128);
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        uint32_t w[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            w[j] = wf_pair<T>(dq[8 * i + 2 * j] * scale, dq[8 * i + 2 * j + 1] * scale);
        wf_store_matrices(out + row + ((piece ^ (uint32_t)(2 * i)) << 4), w);
    }
}

/* A warpgroup's share of dq = ds k: half of the columns. Operands are descriptors; offsets are in
 * units of 16 bytes. */
template <typename T, int D>
static __device__ __forceinline__ void multiply_dq(float (&dq)[D / 4], uint64_t ds, uint64_t k)
{
#pragma unroll
    for (int i = 0; i < KV / 16; i++)
        wf_wgmma<T, 1, 1>(dq, ds + i * 2048 / 16, k + i * 2048 / 16, i > 0);
}

/* s = a b^T: 64 rows of a, from a tile of KV rows or from registers, and BM rows of b. */
template <typename T, int D, typename A>
static __device__ __forceinline__ void multiply_scores(float (&s)[BM / 2], const A &a, uint64_t b,
                                                       int add)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++) {
        const uint64_t column = b + (i / 4 * BM * 128 + i % 4 * 32) / 16;
        if constexpr (__is_same(A, uint64_t))
            wf_wgmma<T, 0, 0>(s, a + (i / 4 * KV * 128 + i % 4 * 32) / 16, column, add || i > 0);
        else
            wf_wgmma<T, 0>(s, a[i], column, add || i > 0);
    }
}

/* d = a b, or d += a b; a[64, BM] in registers. */
template <typename T, int D>
static __device__ __forceinline__ void multiply_sum(float (&d)[D / 2], const uint32_t (&a)[BM / 4],
                                                    uint64_t b, int add)
{
#pragma unroll
    for (int i = 0; i < BM / 16; i++)
        wf_wgmma<T, 1>(d, a + 4 * i, b + i * 2048 / 16, add || i > 0);
}

/* A warpgroup's operand from a tile of keys or values: a descriptor, or its 64 rows in
 * registers. */
template <int D, bool HELD> struct operand {
    uint64_t x;
    __device__ __forceinline__ void load(const char *tile, const place &at)
    {
        x = wf_wgmma_operand(wf_shared_address(tile) + at.group * 64 * 128, 0);
    }
};
template <int D> struct operand<D, true> {
    uint32_t x[D / 16][4];
    __device__ __forceinline__ void load(const char *tile, const place &at)
    {
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            wf_ldmatrix(x[i], tile + at.matrix_row + ((at.matrix_piece ^ (uint32_t)(2 * i)) << 4));
    }
};

/* A thread of the computing warps. With LATE, the dq of a step is computed in the next step, which
 * may belong to the next tile of keys. */
template <typename T, int D> struct worker {
    using P = plan<D>;
    const wf_flash_grad &a;
    char *const shared;
    const uint32_t base;
    place at;
    operand<D, P::HELD> k, v;
    float dk[D / 2], dv[D / 2], s[BM / 2], dp[BM / 2], dq[D / 4];
    uint32_t p[BM / 4], ds[BM / 4];
    ring<P::KV_STAGES> kv;
    ring<P::STAGES> in;
    ring<P::DS_STAGES> ds_ring;
    ring<P::PARTS> part;
    bool there = false;    /* a ds waits for its dq */
    uint64_t ds_k;         /* its right operand */
    int kv_last = -1;      /* the stage of that operand, if it is of the previous key tile */
    bool part_put = false; /* a part of dq was written but not signalled */
    int last_stage = 0;    /* query stage of the previous step */

    __device__ __forceinline__ worker(const wf_flash_grad &arguments, char *memory)
        : a(arguments), shared(memory), base(wf_shared_address(memory))
    {
        /* the shuffle shows the compiler that it is uniform in a warp, and with it all
         * descriptors */
        at.group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0);
        at.thread = (int)threadIdx.x % 128;
        at.lane = (int)threadIdx.x % 32;
        at.row = at.thread / 32 * 16 + at.lane / 4;
        at.matrix_row = (uint32_t)(at.group * 64 + at.thread / 32 * 16 + at.lane % 16) * 128;
        at.matrix_piece = (uint32_t)(at.lane / 16 ^ at.lane % 8);
        ds_k = wf_wgmma_operand(base + P::K, 0);
    }

    __device__ __forceinline__ void arrive(wf_barrier b)
    {
        wf_warp_arrive(b, at.lane);
    }

    /* Stores ds in shared memory for dq = ds k. No wgmma that reads ds from registers may be in
     * flight. No barrier guards the stage: it was used two steps ago, and DS_FULL of the step
     * between proves that all warps were done with it. */
    __device__ __forceinline__ void put_ds()
    {
        static_assert(P::DS_STAGES == 2, "see above");
#pragma unroll
        for (int i = 0; i < BM / 16; i++)
            wf_store_matrices(base + P::DS + ds_ring.at * P::DS_BYTES + at.matrix_row +
                                  ((at.matrix_piece ^ (uint32_t)(2 * i)) << 4),
                              ds + 4 * i);
    }

    /* Signals what was stored: ds or a part of dq. */
    __device__ __forceinline__ void hand_over()
    {
        wf_async_fence();
        __syncwarp();
        if (there)
            arrive(base + P::DS_FULL + 8 * ds_ring.at);
        if (part_put) {
            arrive(base + P::PART_FULL + 8 * part.at);
            part.step();
            part_put = false;
        }
    }

    /* Issues dq = ds k. Without a ds it runs on arbitrary data and the result is unused: the
     * compiler needs the same wgmma on every path. */
    __device__ __forceinline__ void issue_dq()
    {
        if (there)
            wf_barrier_wait(base + P::DS_FULL + 8 * ds_ring.at, ds_ring.parity);
        wf_wgmma_begin();
        multiply_dq<T, D>(dq, wf_wgmma_operand(base + P::DS + ds_ring.at * P::DS_BYTES, 0), ds_k);
        wf_wgmma_commit();
    }

    /* Stores the finished dq in shared memory: a part, or with the sum the final dq. */
    __device__ __forceinline__ void put_dq()
    {
        wf_wgmma_hold(dq);
        if (!there)
            return;
        ds_ring.step();
        there = false;
        if (kv_last >= 0)
            arrive(base + P::KV_EMPTY + 8 * kv_last);
        kv_last = -1;
        float4 *mine = (float4 *)(shared + P::PART + part.at * P::PART_BYTES) +
                       at.group * (D / 16) * 128 + at.thread;
        wf_barrier_wait(base + P::PART_EMPTY + 8 * part.at, part.parity);
        const int which = ((volatile int *)(shared + P::WHICH))[part.at];
        if (which & LAST) {
            if (!(which & FIRST))
                add_parts<D>(dq, mine);
            put_sum<T, D>(dq, a.scale, base + P::OUT + part.at * P::OUT_BYTES, at);
        } else {
            put_part<D>(dq, mine);
        }
        part_put = true;
    }

    /* Replaces s by p, also packed as a wgmma operand. */
    __device__ __forceinline__ void weigh(const float *rows)
    {
#pragma unroll
        for (int c = 0; c < BM / 8; c++) {
            float2 lse = *(const float2 *)(rows + 8 * c + 2 * (at.lane % 4));
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float *y = s + 4 * c + 2 * half;
                y[0] = wf_exp2(y[0] * a.scale_log2 - lse.x);
                y[1] = wf_exp2(y[1] * a.scale_log2 - lse.y);
                p[2 * c + half] = wf_pair<T>(y[0], y[1]);
            }
        }
    }

    /* One tile of queries, number `step`. With LATE, wgmma are issued in this order:
     *
     *     s, dp   of this step; meanwhile the last step's ds and the part of dq before it are signalled
     *     dv      of this step, once s has become p
     *     dq      of the last step's ds
     *     dk      of this step, once dp has become ds; then the last step's part of dq is stored */
    __device__ __forceinline__ void do_step(const item &x, uint64_t k_columns, int step)
    {
        const uint64_t q = wf_wgmma_operand(base + P::Q + in.at * P::Q_BYTES, BM * 128);
        const uint64_t dout = wf_wgmma_operand(base + P::DO + in.at * P::Q_BYTES, BM * 128);
        const float *rows = (const float *)(shared + P::ROWS + in.at * P::ROW_BYTES);
        const int32_t *limits = (const int32_t *)(shared + P::LIMITS + in.at * P::ROW_BYTES);
        wf_barrier_wait(base + P::FULL + 8 * in.at, in.parity);
#pragma unroll
        for (int c = 0; c < BM / 8; c++) { /* inline: as a function it costs 20 more instructions */
            float2 d = *(const float2 *)(rows + BM + 8 * c + 2 * (at.lane % 4));
            dp[4 * c] = dp[4 * c + 2] = d.x;
            dp[4 * c + 1] = dp[4 * c + 3] = d.y;
        }
        wf_wgmma_hold(dp);
        wf_wgmma_begin();
        multiply_scores<T, D>(s, k.x, q, 0);
        wf_wgmma_commit();
        multiply_scores<T, D>(dp, v.x, dout, 1);
        wf_wgmma_commit();
        if constexpr (P::LATE) {
            wf_wgmma_wait<2>(); /* dk of the last step is done; s and dp are in flight */
            wf_wgmma_hold(dk);
            if (there)
                put_ds();
            hand_over();
            if (step > 0)
                arrive(base + P::EMPTY + 8 * last_stage);
        }
        wf_wgmma_wait<1>();
        wf_wgmma_hold(s);

        const int first_key = x.tile * KV;
        if (limits[BM - 1] > first_key || limits[BM] < first_key + KV)
            hide(s, limits, first_key + at.group * 64 + at.row, at.lane);
        weigh(rows);
        wf_wgmma_begin();
        multiply_sum<T, D>(dv, p, dout, step > 0);
        wf_wgmma_commit();
        if constexpr (P::LATE)
            issue_dq();
        wf_wgmma_wait<P::LATE ? 2 : 1>();
        wf_wgmma_hold(dp);
#pragma unroll
        for (int c = 0; c < BM / 4; c++)
            ds[c] = wf_pair<T>(s[2 * c] * dp[2 * c], s[2 * c + 1] * dp[2 * c + 1]);
        if constexpr (!P::LATE)
            put_ds();
        wf_wgmma_begin();
        multiply_sum<T, D>(dk, ds, q, step > 0);
        wf_wgmma_commit();
        if constexpr (P::LATE) {
            wf_wgmma_wait<1>();
            wf_wgmma_hold(dv);
            put_dq();
            there = true;
            ds_k = k_columns;
            last_stage = in.at;
        } else {
            there = true;
            ds_k = k_columns;
            hand_over();
            issue_dq();
            wf_wgmma_wait<0>();
            wf_wgmma_hold(dv);
            wf_wgmma_hold(dk);
            arrive(base + P::EMPTY + 8 * in.at);
            put_dq();
        }
        in.step();
    }

    /* One tile of keys, with at least one step. */
    __device__ __forceinline__ void do_item(const item &x)
    {
        const int steps = (x.end - x.first) * a.group;
        const uint64_t k_columns = wf_wgmma_operand(
            base + P::K + kv.at * P::KV_BYTES + at.group * (D == 64 ? 64 : KV * 128), 0);
        k.load(shared + P::K + kv.at * P::KV_BYTES, at);
        v.load(shared + P::V + kv.at * P::KV_BYTES, at);
        if constexpr (P::LATE) {
            /* Peel the first step: the compiler needs the same wgmma in flight at every loop
             * entry. */
            do_step(x, k_columns, 0);
            for (int step = 1; step < steps; step++)
                do_step(x, k_columns, step);
            wf_wgmma_wait<0>();
            wf_wgmma_hold(dk);
            __syncwarp(); /* the last step read its rows after signalling */
            arrive(base + P::EMPTY + 8 * last_stage);
            kv_last = kv.at;
        } else {
            for (int step = 0; step < steps; step++)
                do_step(x, k_columns, step);
            arrive(base + P::KV_EMPTY + 8 * kv.at);
        }
        const int key = x.tile * KV + at.group * 64; /* first key of the warpgroup */
        if (a.dk.data)
            store_rows<T>(dk, a.scale, (T *)a.dk.data + key * a.dk.row + x.head * a.dk.head,
                          a.dk.row, a.n - key, at);
        if (a.dv.data)
            store_rows<T>(dv, 1.0f, (T *)a.dv.data + key * a.dv.row + x.head * a.dv.head, a.dv.row,
                          a.n - key, at);
    }

    __device__ __forceinline__ void run()
    {
        for (;; kv.step()) {
            wf_barrier_wait(base + P::KV_FULL + 8 * kv.at, kv.parity);
            const item x = ((const item *)(shared + P::ITEM))[kv.at];
            if (x.end == 0)
                break;
            do_item(x);
        }
        if (there)
            put_ds();
        hand_over();
        if constexpr (P::LATE) {
            issue_dq();
            wf_wgmma_wait<0>();
            put_dq();
            hand_over();
        }
    }
};

#endif

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 1)
    flash_grad(const __grid_constant__ wf_flash_grad a, const __grid_constant__ CUtensorMap q,
               const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
               const __grid_constant__ CUtensorMap dout, const __grid_constant__ CUtensorMap dq)
{
#if WF_HOPPER_CODE
    using P = plan<D>;
    WF_SHARED_TILES(char, shared);
    if (a.irregular && *a.irregular)
        return;
    const uint32_t base = wf_shared_address(shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::KV_STAGES; i++) {
            wf_barrier_init(base + P::KV_FULL + 8 * i, 1);
            wf_barrier_init(base + P::KV_EMPTY + 8 * i, WARPS * WF_WARP_ARRIVALS + P::PARTS);
        }
        for (int i = 0; i < P::STAGES; i++) {
            wf_barrier_init(base + P::FULL + 8 * i, 1);
            wf_barrier_init(base + P::EMPTY + 8 * i, WARPS * WF_WARP_ARRIVALS);
        }
        for (int i = 0; i < P::DS_STAGES; i++)
            wf_barrier_init(base + P::DS_FULL + 8 * i, WARPS * WF_WARP_ARRIVALS);
        for (int i = 0; i < P::PARTS; i++) {
            wf_barrier_init(base + P::PART_EMPTY + 8 * i, 1);
            wf_barrier_init(base + P::PART_FULL + 8 * i, WARPS * WF_WARP_ARRIVALS);
        }
        wf_barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        wf_registers_give<24>();
        if (threadIdx.x == 0)
            bring<D>(a, &q, &k, &v, &dout, shared);
        else if (threadIdx.x % 32 == 0 && threadIdx.x / 32 <= P::PARTS)
            deliver<D>(a, &dq, shared, (int)threadIdx.x / 32 - 1);
    } else {
        wf_registers_take<240>();
        worker<T, D>(a, shared).run();
    }
#endif
}

/* ---- Launching ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Sets a's pointers from `at` on; returns the bytes used. */
static size_t place_workspace(wf_flash_grad *a, int64_t d, char *at)
{
    const size_t rows = (size_t)a->heads * (size_t)a->q_tiles * BM, begin = (size_t)at;
    a->rows = (float *)at;
    at += rounded(rows * 2 * sizeof(float));
    a->limits = (int32_t *)at;
    at += rounded((size_t)a->q_tiles * BM * 2 * sizeof(int32_t));
    a->q_bounds = (int2 *)at;
    at += rounded((size_t)a->q_tiles * sizeof(int2));
    a->kv_bounds = (int2 *)at;
    at += rounded((size_t)a->kv_tiles * sizeof(int2));
    a->added = (int32_t *)at;
    at += rounded((size_t)a->heads * (size_t)a->q_tiles * sizeof(int32_t));
    a->next = (int32_t *)at;
    at += 256;
    a->sum = (float *)at;
    return (size_t)at - begin + rows * (size_t)d * sizeof(float);
}

static wf_flash_grad arguments_of(int64_t n, int64_t heads, int64_t kv_heads)
{
    wf_flash_grad a = {};
    a.n = (int32_t)n;
    a.heads = (int32_t)heads;
    a.kv_heads = (int32_t)kv_heads;
    a.group = (int32_t)(heads / kv_heads);
    a.q_tiles = (int32_t)((n + BM - 1) / BM);
    a.kv_tiles = (int32_t)((n + KV - 1) / KV);
    return a;
}

static wf_status map_of(const wf_launch *l, const wf_flash *f, const wf_flash_operand *o, int heads,
                        int rows, CUtensorMap *out)
{
    wf_tensor_box b = {
        f->type, o->data, {f->d, heads, f->n, 1}, {1, o->head, o->row, o->row}, {64, 1, rows, 1}};
    return wf_cuda_tensor_map(l, &b, out);
}

template <typename T, int D>
static wf_status run(const wf_launch *l, const wf_flash *f, void *workspace)
{
    wf_flash_grad a = arguments_of(f->n, f->heads, f->kv_heads);
    place_workspace(&a, D, (char *)workspace);
    a.dq = f->dq;
    a.dk = f->dk;
    a.dv = f->dv;
    a.irregular = f->irregular;
    a.scale = f->scale;
    a.scale_log2 = f->scale * WF_LOG2E;
    CUtensorMap q, k, v, dout, dq = {};
    WF_TRY(map_of(l, f, &f->q, f->heads, BM, &q));
    WF_TRY(map_of(l, f, &f->k, f->kv_heads, KV, &k));
    WF_TRY(map_of(l, f, &f->v, f->kv_heads, KV, &v));
    WF_TRY(map_of(l, f, &f->dout, f->heads, BM, &dout));
    if (f->dq.data)
        WF_TRY(map_of(l, f, &f->dq, f->heads, BM, &dq));

    wf_cuda_hopper_flash_grad_prepare(l, f, &a);
    WF_TRY(wf_cuda_check(l, cudaFuncSetAttribute(flash_grad<T, D>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 plan<D>::BYTES)));
    const int items = a.kv_tiles * a.kv_heads, processors = wf_cuda_device_of(l)->processors;
    WF_RUN((flash_grad<T, D>), items < processors ? items : processors, THREADS, plan<D>::BYTES,
           wf_cuda_stream(l))
    (a, q, k, v, dout, dq);
    return wf_cuda_launched(l);
}

static wf_status run_any(const wf_launch *l, const wf_flash *f, void *workspace)
{
    if (f->type == WF_BF16)
        return f->d == 64 ? run<wf_bf16, 64>(l, f, workspace) : run<wf_bf16, 128>(l, f, workspace);
    return f->d == 64 ? run<wf_f16, 64>(l, f, workspace) : run<wf_f16, 128>(l, f, workspace);
}

bool wf_cuda_hopper_attention_grad_accepts(const wf_device *device, const wf_node *n)
{
    const wf_attr_attention *a = (const wf_attr_attention *)n->attr;
    int64_t d = n->in[1]->shape.d[2];
    return wf_flash_accepts(device, n) && (d == 64 || d == 128) && n->in[3]->shape.d[2] == d &&
           a->softcap == 0 && a->scale >= 0;
}

/* The key ranges come first; the rest is shared by whichever kernel runs. */
size_t wf_cuda_hopper_attention_grad_workspace(const wf_device *device, const wf_node *n)
{
    const wf_dims *q = &n->in[1]->shape, *k = &n->in[2]->shape;
    wf_flash_grad a = arguments_of(q->d[0], q->d[1], k->d[1]);
    size_t ours = wf_flash_ranges_bytes(n) + place_workspace(&a, q->d[2], NULL);
    size_t others = wf_flash_workspace(device, n);
    return ours > others ? ours : others;
}

wf_status wf_cuda_hopper_attention_grad_launch(const wf_launch *l)
{
    wf_flash f = wf_flash_of(l);
    if (f.n == 0 || f.heads == 0)
        return WF_OK;
    if (!wf_flash_aligned(&f))
        return wf_flash_launch(l);
    char *rest = (char *)l->workspace + wf_flash_ranges_bytes(l->node);
    wf_flash_ranges(l, &f, l->workspace);
    WF_TRY(run_any(l, &f, rest));
    if (f.irregular)
        wf_attention_run(l, rest, f.irregular);
    return wf_cuda_launched(l);
}

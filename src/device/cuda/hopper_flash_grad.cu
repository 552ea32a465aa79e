/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash_grad.cu - the gradient of attention on Hopper, with the same bits each run.
 *
 * Keys and queries are cut into tiles, KV keys and BM queries each. A block takes one tile of keys of one kv head at a
 * time and meets all tiles of queries that see some of it, so that dk and dv are summed in registers:
 *
 *     s^T = k q^T,  p^T = e^(s^T - lse),  dv += p^T do,  dp^T = v do^T,  ds^T = p^T (dp^T - delta),  dk += ds^T q
 *
 * dq += ds k is summed over blocks, in global memory (f32) and in a fixed order: of the tiles of keys that a
 * tile of queries sees, the last one stores its part, the others add theirs one after the other, downwards, and the first
 * one makes the sum dq. A counter for each tile of queries and head says how many have been. Tiles of keys are given out
 * downwards too, so a block waits only for blocks that began before it; and since it meets its queries upwards, what it
 * waits for was mostly done one step ago.
 *
 * Of a block's three warpgroups two compute, 64 keys each. In the third one warp brings operands by TMA, one waits for the
 * block's turn at each dq, and one passes the turn on.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/hopper_flash.h"

enum {
    KV = 128,      /* keys of a tile */
    BM = 64,       /* queries of a tile */
    THREADS = 384, /* of a block: warpgroup 0 moves data, 1 and 2 compute */
    WARPS = 8,     /* that compute */
};

/* What a block has in shared memory, in bytes from its beginning, and how it goes about it. */
template <int D> struct plan {
    static constexpr int KV_STAGES = D == 64 ? 2 : 1; /* tiles of keys and values */
    static constexpr int STAGES = D == 64 ? 4 : 2;    /* tiles of queries and of do */
    /* dq of a step is computed within the next one, when registers allow it: so there is always a product to do. */
    static constexpr bool LATE = D == 64;
    static constexpr int DS_STAGES = LATE ? 3 : 2;
    static constexpr int KV_BYTES = KV * D * 2, Q_BYTES = BM * D * 2, DS_BYTES = KV * BM * 2;
    static constexpr int ROW_BYTES = 2 * BM * 4; /* lse and -delta, and as many for low and high */
    static constexpr int K = 0;
    static constexpr int V = K + KV_STAGES * KV_BYTES;
    static constexpr int Q = V + KV_STAGES * KV_BYTES;
    static constexpr int DO = Q + STAGES * Q_BYTES;
    static constexpr int DS = DO + STAGES * Q_BYTES;
    static constexpr int ROWS = DS + DS_STAGES * DS_BYTES;
    static constexpr int LIMITS = ROWS + STAGES * ROW_BYTES;
    static constexpr int ITEM = LIMITS + STAGES * ROW_BYTES; /* what the tiles of keys are */
    static constexpr int PART = ITEM + 16 * KV_STAGES;       /* int[2]: of this block in a dq */
    static constexpr int BARRIERS = PART + 16;
    static constexpr int KV_FULL = BARRIERS, KV_EMPTY = KV_FULL + 8 * KV_STAGES;
    static constexpr int FULL = KV_EMPTY + 8 * KV_STAGES, EMPTY = FULL + 8 * STAGES;
    static constexpr int DS_FULL = EMPTY + 8 * STAGES;
    static constexpr int TURN = DS_FULL + 8 * DS_STAGES, DONE = TURN + 16;
    static constexpr int PASSED = DONE + 16;
    static constexpr int BYTES = PASSED + 16;
};

/* In the sum of a dq. */
enum { PART_FIRST = 1, PART_LAST = 2 };

typedef struct {
    wf_flash_operand dq, dk, dv;
    float *rows;     /* [H, q tiles, 2, BM]: lse / ln 2, -delta */
    int32_t *limits; /* [q tiles, 2, BM]: low, high */
    int2 *q_bounds;  /* [q tiles]: first and last tile of keys that it meets */
    int2 *
        kv_bounds; /* [kv tiles]: first tile of queries that it meets, and the one after the last, never 0 */
    int32_t *added; /* [H, q tiles]: parts of dq so far */
    int32_t *next;  /* item to be taken */
    float4 *sum;    /* [H, q tiles, 2 warpgroups, D / 16, 128 threads]: dq, as threads hold it */
    const int32_t *irregular;
    int32_t n, heads, kv_heads, group, q_tiles, kv_tiles;
    float scale, scale_log2; /* of q.k; the same for 2^x */
} arguments;

#define LOG2E 1.4426950408889634f

/* ---- Before: delta, limits, bounds ---- */

typedef struct {
    wf_flash f;
    arguments a;
} preparation;

/* Keys [x, y) that query i sees. Neither falls as i rises, also past the last query. */
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

/* Every tile of queries meets at least one of keys, so that its dq is written. */
static __device__ int2 q_bounds_of(const wf_flash &f, int tile)
{
    int first = seen_by(f, tile * BM).x, end = seen_by(f, tile * BM + BM - 1).y;
    return make_int2(first / KV, max(first, end - 1) / KV);
}

/* The first tile of queries that meets a tile of keys from `tile` on (upper), or from which on all meet only later ones. */
static __device__ int first_q_tile(const preparation &p, int tile, bool upper)
{
    int low = 0, high = p.a.q_tiles;
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

/* 8 threads a row of 8 or 16 elements each, 32 rows a block. */
template <typename T, int D>
static __global__ void flash_grad_prepare(const __grid_constant__ preparation p)
{
    if (p.f.irregular && *p.f.irregular)
        return;
    const int i = (int)(blockIdx.x * 32 + threadIdx.x / 8), lane = threadIdx.x % 8;
    const int tile = i / BM, q_tiles = p.a.q_tiles, thread = (int)(blockIdx.x * 256 + threadIdx.x);
    for (int64_t j = thread; j < (int64_t)p.a.heads * q_tiles; j += gridDim.x * 256)
        p.a.added[j] = 0;
    if (thread == 0)
        *p.a.next = 0;
    if (thread < q_tiles)
        p.a.q_bounds[thread] = q_bounds_of(p.f, thread);
    if (thread < p.a.kv_tiles) {
        int first = first_q_tile(p, thread, true), end = first_q_tile(p, thread, false);
        p.a.kv_bounds[thread] = first < end ? make_int2(first, end) : make_int2(1, 1);
    }
    if (lane == 0) {
        int2 seen = seen_by(p.f, i);
        p.a.limits[tile * 2 * BM + i % BM] = seen.x;
        p.a.limits[tile * 2 * BM + BM + i % BM] = seen.y;
    }
    const T *out = (const T *)p.f.o.data + i * p.f.o.row + lane * 8;
    const T *dout = (const T *)p.f.dout.data + i * p.f.dout.row + lane * 8;
#pragma unroll 4
    for (int h = 0; h < p.a.heads; h++) {
        float delta = 0, lse = -INFINITY;
        if (i < p.f.n) {
#pragma unroll
            for (int c = 0; c < D; c += 64) {
                auto x = wf_load_pack<T, 8>(out + h * p.f.o.head + c);
                auto y = wf_load_pack<T, 8>(dout + h * p.f.dout.head + c);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    delta += wf_load(x.x[k]) * wf_load(y.x[k]);
            }
            lse = p.f.lse[i * p.f.lse_row + h];
        }
        for (int k = 4; k > 0; k /= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, k);
        float *to = p.a.rows + ((int64_t)h * q_tiles + tile) * 2 * BM + i % BM;
        if (lane == 0) {
            to[0] = lse == -INFINITY ? INFINITY : lse * LOG2E; /* sees nothing: p is to be 0 */
            to[BM] = -delta;
        }
    }
}

/* ---- The kernel ---- */

#if WF_HOPPER_CODE

/* A tile of keys of a head, as it stands in shared memory beside them. */
typedef struct __align__(16)
{
    int tile, head;
    int first, end; /* tiles of queries; end 0: there are no more tiles of keys */
}
item;

/* Tiles of keys downwards, and within them kv heads. */
static __device__ item take_item(const arguments &a)
{
    const int index = atomicAdd(a.next, 1);
    if (index >= a.kv_tiles * a.kv_heads)
        return {0, 0, 0, 0};
    const int tile = a.kv_tiles - 1 - index / a.kv_heads;
    const int2 bounds = a.kv_bounds[tile];
    return {tile, index % a.kv_heads, bounds.x, bounds.y};
}

/* Which stage of a ring is next, and the parity of its barriers. */
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

WF_HOPPER void load_bytes(uint32_t to, const void *from, int bytes, wf_barrier b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(b)
                 : "memory");
}

/* One thread: operands by TMA. */
template <int D>
static __device__ void bring(const arguments &a, const CUtensorMap *q, const CUtensorMap *k,
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
                load_bytes(base + P::ROWS + in.at * P::ROW_BYTES, a.rows + tile * 2 * BM,
                           P::ROW_BYTES, full);
                load_bytes(base + P::LIMITS + in.at * P::ROW_BYTES, a.limits + m * 2 * BM,
                           P::ROW_BYTES, full);
            }
    }
}

/* Until *from is x; what was written before it became x can be read then. */
WF_HOPPER void await(const int32_t *from, int32_t x)
{
#ifdef WF_HOPPER_WATCH
    long long begin = clock64();
#endif
    for (int32_t y = -1; y != x;) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(y) : "l"(from) : "memory");
#ifdef WF_HOPPER_WATCH
        if (clock64() - begin > 4000000000ll)
            __trap();
#endif
    }
}

static __device__ void store_release(int32_t *to, int32_t x)
{
    asm volatile("fence.acq_rel.gpu;\n st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(to), "r"(x)
                 : "memory");
}

/* One thread: waits until it is this block's turn to add to a dq and lets the warps that compute know of it (PASS
 * false); another: waits until they have done it and gives the turn to the next block (PASS true). */
template <int D, bool PASS> static __device__ void take_turns(const arguments &a, char *shared)
{
    using P = plan<D>;
    const uint32_t base = wf_shared_address(shared);
    ring<P::KV_STAGES> kv;
    ring<2> turn;
    for (;; kv.step()) {
        wf_barrier_wait(base + P::KV_FULL + 8 * kv.at, kv.parity);
        const item x = ((const item *)(shared + P::ITEM))[kv.at];
        if (x.end == 0)
            return;
        wf_barrier_arrive(base + P::KV_EMPTY + 8 * kv.at);
        for (int g = 0; g < a.group; g++)
            for (int m = x.first; m < x.end; m++, turn.step()) {
                int32_t *added = a.added + (int64_t)(x.head * a.group + g) * a.q_tiles + m;
                int2 bounds = a.q_bounds[m];
                if constexpr (PASS) {
                    wf_barrier_wait(base + P::DONE + 8 * turn.at, turn.parity);
                    wf_barrier_arrive(base + P::PASSED + 8 * turn.at);
                    if (x.tile > bounds.x)
                        store_release(added, bounds.y - x.tile + 1);
                } else {
                    if (x.tile < bounds.y)
                        await(added, bounds.y - x.tile);
                    wf_barrier_wait(base + P::PASSED + 8 * turn.at, turn.parity ^ 1);
                    ((volatile int *)(shared + P::PART))[turn.at] =
                        (x.tile == bounds.y ? PART_FIRST : 0) |
                        (x.tile == bounds.x ? PART_LAST : 0);
                    wf_barrier_arrive(base + P::TURN + 8 * turn.at);
                }
            }
    }
}

/* ---- The warps that compute ---- */

/* Where a thread stands: warpgroup 0 or 1, thread of it, lane of the warp, and its first row of 64. */
typedef struct {
    int group, thread, lane, row;
} place;

/* Four 8x8 matrices of 16-bit elements: rows 0-7 and 8-15 of the left 8 columns, then of the right ones. */
WF_HOPPER void store_matrices(uint32_t to, const uint32_t *x)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

WF_HOPPER void add_global(float4 *to, float4 x)
{
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(x.x),
                 "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
}

#define R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define O16(d, i) WF_O8("+f", d, i), WF_O8("+f", d, i + 8)
template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(32, "bf16", R16, O16(d, 0), 16, 17, 18, 19, 20);
    else
        WF_WGMMA_SS(32, "f16", R16, O16(d, 0), 16, 17, 18, 19, 20);
}

/* Word i of the four threads of a quad becomes words 0..3 of thread i. */
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

/* d[64, R / 2] of a warpgroup, times scale, to rows [0, rows) of `to`. */
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

/* Hides keys that queries do not see: rows of s are keys from `key` on, columns the queries of limits. */
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

/* A warpgroup's share of a dq, [BM, D / 2]: into the sum, or from it to dq. */
template <typename T, int D>
static __device__ __forceinline__ void add_dq(const arguments &a, float (&dq)[D / 4], int head,
                                              int tile, uint32_t base, const char *shared,
                                              const ring<2> &turn, const place &at)
{
    using P = plan<D>;
    float4 *sum =
        a.sum + (((int64_t)head * a.q_tiles + tile) * 2 + at.group) * (D / 16) * 128 + at.thread;
    wf_barrier_wait(base + P::TURN + 8 * turn.at, turn.parity);
    const int part = ((volatile const int *)(shared + P::PART))[turn.at];
    if (part & PART_LAST) {
        if (!(part & PART_FIRST))
#pragma unroll
            for (int i = 0; i < D / 16; i++) {
                float4 x = __ldcg(sum + i * 128);
                dq[4 * i] += x.x;
                dq[4 * i + 1] += x.y;
                dq[4 * i + 2] += x.z;
                dq[4 * i + 3] += x.w;
            }
        if (a.dq.data)
            store_rows<T>(dq, a.scale,
                          (T *)a.dq.data + (int64_t)tile * BM * a.dq.row + head * a.dq.head +
                              at.group * (D / 2),
                          a.dq.row, a.n - tile * BM, at);
    } else {
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            float4 x = make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
            if (part & PART_FIRST)
                __stcg(sum + i * 128, x);
            else
                add_global(sum + i * 128, x);
        }
    }
    __syncwarp();
    if (at.lane == 0)
        wf_barrier_arrive(base + P::DONE + 8 * turn.at);
}

/* A warpgroup's share of dq = ds k: its half of the columns. Operands of all these are descriptors, and further by
 * so many bytes / 16. */
template <typename T, int D>
static __device__ __forceinline__ void multiply_dq(float (&dq)[D / 4], uint64_t ds, uint64_t k)
{
#pragma unroll
    for (int i = 0; i < KV / 16; i++)
        wf_wgmma<T, 1, 1>(dq, ds + i * 2048 / 16, k + i * 2048 / 16, i > 0);
}

/* s = a b^T: 64 rows of a with KV in the tile, BM rows of b. */
template <typename T, int D>
static __device__ __forceinline__ void multiply_scores(float (&s)[BM / 2], uint64_t a, uint64_t b,
                                                       int add)
{
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        wf_wgmma<T, 0, 0>(s, a + (i / 4 * KV * 128 + i % 4 * 32) / 16,
                          b + (i / 4 * BM * 128 + i % 4 * 32) / 16, add || i > 0);
}

/* d += a b, a[64, BM] in registers. */
template <typename T, int D>
static __device__ __forceinline__ void multiply_sum(float (&d)[D / 2], const uint32_t (&a)[BM / 4],
                                                    uint64_t b)
{
#pragma unroll
    for (int i = 0; i < BM / 16; i++)
        wf_wgmma<T, 1>(d, a + 4 * i, b + i * 2048 / 16, 1);
}

template <bool B> struct constant {
    static constexpr bool value = B;
};

template <typename T, int D> static __device__ void compute(const arguments &a, char *shared)
{
    using P = plan<D>;
    const uint32_t base = wf_shared_address(shared);
    place at;
    at.group = __shfl_sync(0xffffffffu, (int)threadIdx.x / 128 - 1, 0); /* known to be uniform */
    at.thread = (int)threadIdx.x % 128;
    at.lane = (int)threadIdx.x % 32;
    at.row = at.thread / 32 * 16 + at.lane / 4;
    /* where stmatrix takes this thread's row of 8 elements: row and 16-byte piece of it */
    const uint32_t ds_row = (uint32_t)(at.group * 64 + at.thread / 32 * 16 + at.lane % 16) * 128;
    const uint32_t ds_piece = (uint32_t)(at.lane / 16 ^ at.lane % 8);

    ring<P::KV_STAGES> kv;
    ring<P::STAGES> in;
    ring<P::DS_STAGES> ds_ring;
    ring<2> turn;
    for (;; kv.step()) {
        wf_barrier_wait(base + P::KV_FULL + 8 * kv.at, kv.parity);
        const item x = ((const item *)(shared + P::ITEM))[kv.at];
        if (x.end == 0)
            return;
        const int steps = (x.end - x.first) * a.group;
        const int key = x.tile * KV + at.group * 64; /* first of the warpgroup's */
        const uint32_t tile = base + kv.at * P::KV_BYTES;
        const uint64_t k = wf_wgmma_operand(tile + P::K + at.group * 8192, 0);
        const uint64_t v = wf_wgmma_operand(tile + P::V + at.group * 8192, 0);
        const uint64_t k_columns =
            wf_wgmma_operand(tile + P::K + at.group * (D == 64 ? 64 : KV * 128), 0);
        float dk[D / 2], dv[D / 2], s[BM / 2], dp[BM / 2], dq[D / 4];
        uint32_t p[BM / 4], ds[BM / 4];
#pragma unroll
        for (int i = 0; i < D / 2; i++)
            dk[i] = dv[i] = 0;

        int m = x.first, head = x.head * a.group, last_m = 0, last_head = 0, last_stage = 0;
        /* LATE: whether there is a dq of the step before to be computed in this one. */
        auto do_step = [&](auto late) {
            constexpr bool LATE = decltype(late)::value;
            const uint64_t q = wf_wgmma_operand(base + P::Q + in.at * P::Q_BYTES, BM * 128);
            const uint64_t dout = wf_wgmma_operand(base + P::DO + in.at * P::Q_BYTES, BM * 128);
            const float *rows = (const float *)(shared + P::ROWS + in.at * P::ROW_BYTES);
            const int32_t *limits = (const int32_t *)(shared + P::LIMITS + in.at * P::ROW_BYTES);
            wf_barrier_wait(base + P::FULL + 8 * in.at, in.parity);
#pragma unroll
            for (int c = 0; c < BM / 8; c++) {
                float2 d = *(const float2 *)(rows + BM + 8 * c + 2 * (at.lane % 4));
                dp[4 * c] = dp[4 * c + 2] = d.x;
                dp[4 * c + 1] = dp[4 * c + 3] = d.y;
            }
            wf_wgmma_hold(dp);
            wf_wgmma_begin();
            multiply_scores<T, D>(s, k, q, 0);
            wf_wgmma_commit();
            multiply_scores<T, D>(dp, v, dout, 1);
            wf_wgmma_commit();
            if constexpr (LATE) {
                wf_barrier_wait(base + P::DS_FULL + 8 * ds_ring.at, ds_ring.parity);
                wf_wgmma_begin();
                multiply_dq<T, D>(dq, wf_wgmma_operand(base + P::DS + ds_ring.at * P::DS_BYTES, 0),
                                  k_columns);
                ds_ring.step();
                wf_wgmma_commit();
            }
            wf_wgmma_wait<LATE ? 2 : 1>();
            wf_wgmma_hold(s);
            if constexpr (LATE) {
                wf_wgmma_hold(dv);
                wf_wgmma_hold(dk);
                if (at.lane == 0)
                    wf_barrier_arrive(base + P::EMPTY + 8 * last_stage);
            }

            const int first_key = x.tile * KV;
            if (limits[BM - 1] > first_key || limits[BM] < first_key + KV)
                hide(s, limits, key + at.row, at.lane);
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
            wf_wgmma_begin();
            multiply_sum<T, D>(dv, p, dout);
            wf_wgmma_commit();
            wf_wgmma_wait<LATE ? 2 : 1>();
            wf_wgmma_hold(dp);
#pragma unroll
            for (int c = 0; c < BM / 4; c++)
                ds[c] = wf_pair<T>(s[2 * c] * dp[2 * c], s[2 * c + 1] * dp[2 * c + 1]);
#pragma unroll
            for (int i = 0; i < BM / 16; i++)
                store_matrices(base + P::DS + ds_ring.at * P::DS_BYTES + ds_row +
                                   ((ds_piece ^ (uint32_t)(2 * i)) << 4),
                               ds + 4 * i);
            wf_async_fence();
            __syncwarp();
            if (at.lane == 0)
                wf_barrier_arrive(base + P::DS_FULL + 8 * ds_ring.at);
            wf_wgmma_begin();
            multiply_sum<T, D>(dk, ds, q);
            wf_wgmma_commit();
            if constexpr (LATE) {
                wf_wgmma_wait<2>();
                wf_wgmma_hold(dq);
                add_dq<T, D>(a, dq, last_head, last_m, base, shared, turn, at);
                turn.step();
            }
            last_stage = in.at;
            last_m = m;
            last_head = head;
            in.step();
            if (++m == x.end) {
                m = x.first;
                head++;
            }
        };
        auto finish_dq = [&]() {
            wf_barrier_wait(base + P::DS_FULL + 8 * ds_ring.at, ds_ring.parity);
            wf_wgmma_begin();
            multiply_dq<T, D>(dq, wf_wgmma_operand(base + P::DS + ds_ring.at * P::DS_BYTES, 0),
                              k_columns);
            ds_ring.step();
            wf_wgmma_commit();
            wf_wgmma_wait<0>();
            wf_wgmma_hold(dq);
            wf_wgmma_hold(dv);
            wf_wgmma_hold(dk);
            if (at.lane == 0)
                wf_barrier_arrive(base + P::EMPTY + 8 * last_stage);
            add_dq<T, D>(a, dq, last_head, last_m, base, shared, turn, at);
            turn.step();
        };
        if constexpr (P::LATE) {
            if (steps > 0) {
                do_step(constant<false>());
                for (int step = 1; step < steps; step++)
                    do_step(constant<true>());
                finish_dq();
            }
        } else {
            for (int step = 0; step < steps; step++) {
                do_step(constant<false>());
                finish_dq();
            }
        }
        __syncwarp();
        if (at.lane == 0)
            wf_barrier_arrive(base + P::KV_EMPTY + 8 * kv.at);
        if (a.dk.data)
            store_rows<T>(dk, a.scale, (T *)a.dk.data + key * a.dk.row + x.head * a.dk.head,
                          a.dk.row, a.n - key, at);
        if (a.dv.data)
            store_rows<T>(dv, 1.0f, (T *)a.dv.data + key * a.dv.row + x.head * a.dv.head, a.dv.row,
                          a.n - key, at);
    }
}

#endif

template <typename T, int D>
static __global__ void __launch_bounds__(THREADS, 1)
    flash_grad(const __grid_constant__ arguments a, const __grid_constant__ CUtensorMap q,
               const __grid_constant__ CUtensorMap k, const __grid_constant__ CUtensorMap v,
               const __grid_constant__ CUtensorMap dout)
{
#if WF_HOPPER_CODE
    using P = plan<D>;
    extern __shared__ __align__(1024) char shared[];
    if (a.irregular && *a.irregular)
        return;
    const uint32_t base = wf_shared_address(shared);
    if (threadIdx.x == 0) {
        for (int i = 0; i < P::KV_STAGES; i++) {
            wf_barrier_init(base + P::KV_FULL + 8 * i, 1);
            wf_barrier_init(base + P::KV_EMPTY + 8 * i, WARPS + 2);
        }
        for (int i = 0; i < P::STAGES; i++) {
            wf_barrier_init(base + P::FULL + 8 * i, 1);
            wf_barrier_init(base + P::EMPTY + 8 * i, WARPS);
        }
        for (int i = 0; i < P::DS_STAGES; i++)
            wf_barrier_init(base + P::DS_FULL + 8 * i, WARPS);
        for (int i = 0; i < 2; i++) {
            wf_barrier_init(base + P::TURN + 8 * i, 1);
            wf_barrier_init(base + P::DONE + 8 * i, WARPS);
            wf_barrier_init(base + P::PASSED + 8 * i, 1);
        }
        wf_barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        wf_registers_give<24>();
        if (threadIdx.x == 0)
            bring<D>(a, &q, &k, &v, &dout, shared);
        else if (threadIdx.x == 32)
            take_turns<D, false>(a, shared);
        else if (threadIdx.x == 64)
            take_turns<D, true>(a, shared);
    } else {
        wf_registers_take<240>();
        compute<T, D>(a, shared);
    }
#endif
}

/* ---- Launching ---- */

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Sets a's pointers, from `at` on, for its sizes; returns how many bytes they take. */
static size_t place_workspace(arguments *a, int64_t d, char *at)
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
    a->sum = (float4 *)at;
    return (size_t)at - begin + rows * (size_t)d * sizeof(float);
}

static arguments arguments_of(int64_t n, int64_t heads, int64_t kv_heads)
{
    arguments a = {};
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
    arguments a = arguments_of(f->n, f->heads, f->kv_heads);
    place_workspace(&a, D, (char *)workspace);
    a.dq = f->dq;
    a.dk = f->dk;
    a.dv = f->dv;
    a.irregular = f->irregular;
    a.scale = f->scale;
    a.scale_log2 = f->scale * LOG2E;
    CUtensorMap q, k, v, dout;
    WF_TRY(map_of(l, f, &f->q, f->heads, BM, &q));
    WF_TRY(map_of(l, f, &f->k, f->kv_heads, KV, &k));
    WF_TRY(map_of(l, f, &f->v, f->kv_heads, KV, &v));
    WF_TRY(map_of(l, f, &f->dout, f->heads, BM, &dout));

    preparation p = {*f, a};
    const cudaStream_t stream = wf_cuda_stream(l);
    WF_RUN((flash_grad_prepare<T, D>), (unsigned)a.q_tiles * (BM / 32), 256, 0, stream)(p);
    WF_TRY(wf_cuda_check(l, cudaFuncSetAttribute(flash_grad<T, D>,
                                                 cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                 plan<D>::BYTES)));
    const int items = a.kv_tiles * a.kv_heads, processors = wf_cuda_device_of(l)->processors;
    WF_RUN((flash_grad<T, D>), items < processors ? items : processors, THREADS, plan<D>::BYTES,
           stream)
    (a, q, k, v, dout);
    return wf_cuda_launched(l);
}

static wf_status run_any(const wf_launch *l, const wf_flash *f, void *workspace)
{
    if (f->type == WF_BF16)
        return f->d == 64 ? run<wf_bf16, 64>(l, f, workspace) : run<wf_bf16, 128>(l, f, workspace);
    return f->d == 64 ? run<wf_f16, 64>(l, f, workspace) : run<wf_f16, 128>(l, f, workspace);
}

bool wf_cuda_hopper_attention_grad_accepts(const wf_node *n)
{
    const wf_attr_attention *a = (const wf_attr_attention *)n->attr;
    int64_t d = n->in[1]->shape.d[2];
    return wf_flash_accepts(n) && (d == 64 || d == 128) && n->in[3]->shape.d[2] == d &&
           a->softcap == 0 && a->scale >= 0;
}

/* The ranges of keys come first, and behind them what is used by one kernel or another. */
size_t wf_cuda_hopper_attention_grad_workspace(const wf_node *n, int threads)
{
    const wf_dims *q = &n->in[1]->shape, *k = &n->in[2]->shape;
    arguments a = arguments_of(q->d[0], q->d[1], k->d[1]);
    size_t ours = wf_flash_ranges_bytes(n) + place_workspace(&a, q->d[2], NULL);
    size_t others = wf_flash_workspace(n, threads);
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

/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash.cu - flash attention for Hopper: TMA loads tiles, wgmma computes scores, softmax
 * runs in registers, and wgmma sums the weighted values.
 *
 * In a block, one thread of a producer warpgroup loads tiles of keys and values into a ring of
 * slots. GROUPS consumer warpgroups each own 64 queries of one head and iterate over KEYS keys at a
 * time, in ascending order. The scores are wgmma accumulators; they become weights in place and are
 * the left operand of the next wgmma. The scores of the next tile are computed while this tile's
 * values are summed. While one warpgroup computes exponentials, another's matmuls run. Tiles
 * without a visible key are skipped; only partly visible tiles are masked.
 *
 * Blocks are persistent, one or two per multiprocessor. A counter hands out items of 64 GROUPS
 * queries of one head, longest first, within as many heads as have their keys and values in the L2
 * cache. An item's result does not depend on the order.
 *
 * Weights are relative to the maximum of a row's first tile, not to the running maximum. As long as
 * later scores stay within a safe margin of the weight type's range, no maximum is searched and no
 * sum is rescaled. If the sum of weights shows an overflow, the tile is computed again with a new
 * maximum.
 *
 * Items are cut from the end of a sequence: the partial item is the first, which is the cheapest
 * under causal attention.
 */
#include "device/cuda/hopper_flash.h"

#include "device/cuda/hopper.cuh"

/* Kernel argument. */
typedef struct {
    CUtensorMap q, k, v; /* [sequence, token, head, D] */
    void *o;             /* [tokens, heads, D], strides in elements */
    int64_t o_row, o_head;
    float *lse;
    int64_t lse_row;
    const int32_t *low, *high, *irregular; /* NULL: equal sequences; `irregular` as in flash.h */
    int32_t *next;                         /* the next item */
    int32_t length;       /* tokens per sequence; all tokens if low and high give the ranges */
    int32_t heads, group; /* group: query heads that share a kv head */
    int32_t causal, window;
    int32_t tiles, items;  /* tiles of queries per head; items in all */
    int32_t all, together; /* heads of all sequences; heads that are processed together */
    float scale2;          /* scale of scores in base 2 */
} task;

/* Tile shapes. BLOCKS: resident blocks per multiprocessor. TURNS: warpgroups alternate in issuing
 * wgmma. */
template <typename T_, int D_, int GROUPS_, int KEYS_, int SLOTS_, int BLOCKS_, bool TURNS_>
struct shape {
    typedef T_ T;
    static constexpr int D = D_, GROUPS = GROUPS_, KEYS = KEYS_, SLOTS = SLOTS_;
    static constexpr int BLOCKS = BLOCKS_;
    static constexpr bool TURNS = TURNS_;
    /* Largest allowed sum of a thread's weights in a tile. */
    static constexpr float LIMIT = __is_same(T, wf_f16) ? 0x1p14f : 0x1p64f;
    static constexpr int QUERIES = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    /* Registers per consumer and per producer thread; together they fit the block's allocation. */
    static constexpr int MANY = BLOCKS == 2 ? 104 : GROUPS == 2 ? 240 : GROUPS == 3 ? 160 : 112;
    static constexpr int FEW = BLOCKS == 1 && GROUPS == 2 ? 24 : 32;
    /* Shared memory: two buffers of queries, slots, barriers. */
    static constexpr int GROUP_BYTES = 64 * D * 2, Q_BYTES = GROUPS * GROUP_BYTES;
    static constexpr int SLOT_BYTES = KEYS * D * 2;
    static constexpr int SLOT_AT = 2 * Q_BYTES, BARRIER_AT = SLOT_AT + SLOTS * SLOT_BYTES;
    static constexpr int BYTES = BARRIER_AT + 8 * (2 * SLOTS + 4) + 2 * 16 + 1024;
};

#if WF_HOPPER_CODE

/* A unit of work. */
typedef struct {
    int sequence, head; /* sequence -1: no work left */
    int row;            /* first query in the sequence; negative rows do not exist */
    int begin;          /* first visible key */
} item;

/* Addresses in the block's shared memory. */
template <class S> struct memory {
    uint32_t base;
    unsigned char *start; /* the base as a pointer */
    item *items;          /* [2] */
    __device__ const unsigned char *at(uint32_t address) const
    {
        return start + (address - base);
    }
    __device__ uint32_t q(int i) const
    {
        return base + i * S::Q_BYTES;
    }
    __device__ uint32_t slot(int i) const
    {
        return base + S::SLOT_AT + i * S::SLOT_BYTES;
    }
    __device__ wf_barrier full(int i) const
    {
        return base + S::BARRIER_AT + 8 * i;
    }
    __device__ wf_barrier empty(int i) const
    {
        return full(S::SLOTS + i);
    }
    __device__ wf_barrier q_full(int i) const
    {
        return full(2 * S::SLOTS + i);
    }
    __device__ wf_barrier q_empty(int i) const
    {
        return full(2 * S::SLOTS + 2 + i);
    }
};

template <class S> WF_HOPPER memory<S> block_memory(unsigned char *shared)
{
    /* 128-byte swizzled tiles start at multiples of 1024. */
    unsigned char *base = shared + (-(uintptr_t)wf_shared_address(shared) & 1023);
    return {wf_shared_address(base), base, (item *)(base + S::BARRIER_AT + 8 * (2 * S::SLOTS + 4))};
}

/* A position in the ring, with the barrier parity of the slot's current use. */
template <class S> struct place {
    int slot;
    uint32_t parity;
    __device__ void advance()
    {
        if (++slot == S::SLOTS) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/* The first visible key of a query, and one past the last. */
WF_HOPPER int key_begin(const task &t, int row)
{
    return t.low ? t.low[row] : t.window > 0 ? max(0, row + 1 - t.window) : 0;
}

WF_HOPPER int key_end(const task &t, int row)
{
    return t.high ? t.high[row] : t.causal ? row + 1 : t.length;
}

/* The number of keys, from the item's first key, that queries below `row` need. */
WF_HOPPER int key_count(const task &t, const item &i, int row)
{
    return row > 0 ? max(key_end(t, row - 1) - i.begin, 0) : 0;
}

template <class S> WF_HOPPER int tiles(int keys)
{
    return (keys + S::KEYS - 1) / S::KEYS;
}

/* ---- The producer thread ---- */

template <class S> WF_HOPPER item item_at(const task &t, int number)
{
    /* Heads are processed `together` at a time, tile by tile, so that their keys and values stay in
     * L2. Within a tile number, heads follow each other. */
    int chunk = number / (t.together * t.tiles), rest = number - chunk * (t.together * t.tiles);
    int first = chunk * t.together, count = min(t.together, t.all - first);
    int tile = rest / count, head = first + rest - tile * count;
    /* From the end of the sequence; the first item may have negative rows. */
    item i = {head / t.heads, head % t.heads, t.length - (tile + 1) * S::QUERIES, 0};
    i.begin = key_begin(t, max(i.row, 0));
    return i;
}

template <class S>
WF_HOPPER void bring_tile(const memory<S> &m, place<S> &at, const CUtensorMap *map, int head,
                          int row, int sequence)
{
    /* Waits until the consumers have released the slot's previous use. */
    wf_barrier_wait(m.empty(at.slot), at.parity ^ 1);
    /* The barrier completes when all bytes have arrived. */
    wf_barrier_expect(m.full(at.slot), S::SLOT_BYTES);
    for (int c = 0; c < S::D / 64; c++) /* a TMA box is 64 columns wide */
        wf_tma_load(m.slot(at.slot) + c * (S::KEYS * 128), map, m.full(at.slot), 64 * c, head, row,
                    sequence);
    at.advance();
}

template <class S> WF_HOPPER void bring(const task &t, const memory<S> &m)
{
    place<S> at = {0, 0};
    int number = atomicAdd(t.next, 1);
    for (int use = 0;; use++) {
        int b = use & 1;
        /* Waits until the buffer's previous queries are no longer read. */
        wf_barrier_wait(m.q_empty(b), (use >> 1 & 1) ^ 1);
        if (number >= t.items) {
            m.items[b].sequence = -1;
            wf_barrier_arrive(m.q_full(b));
            break;
        }
        item i = item_at<S>(t, number);
        m.items[b] = i;
        wf_barrier_expect(m.q_full(b), S::Q_BYTES);
        for (int g = 0; g < S::GROUPS; g++)
            for (int c = 0; c < S::D / 64; c++)
                wf_tma_load(m.q(b) + g * S::GROUP_BYTES + c * (64 * 128), &t.q, m.q_full(b), 64 * c,
                            i.head, i.row + 64 * g, i.sequence);
        number = atomicAdd(t.next, 1); /* one item ahead: the counter's latency is hidden */
        int n = tiles<S>(key_count(t, i, i.row + S::QUERIES)), head = i.head / t.group;
        /* In the order of use: keys of tile j before the values of tile j - 1, because consumers
         * start the next scores before they sum. */
        for (int j = 0; j <= n; j++) {
            if (j < n)
                bring_tile(m, at, &t.k, head, i.begin + j * S::KEYS, i.sequence);
            if (j > 0)
                bring_tile(m, at, &t.v, head, i.begin + (j - 1) * S::KEYS, i.sequence);
        }
    }
}

/* ---- Consumer warpgroups ---- */

/* s[64, N] = q k^T */
template <class S, int N> WF_HOPPER void multiply_keys(float (&s)[N], uint32_t q, uint32_t keys)
{
    typedef typename S::T T;
    uint64_t a = wf_wgmma_operand(q, 16), b = wf_wgmma_operand(keys, 16);
    wf_wgmma_first<T, 0, 0>(s, a, b);
#pragma unroll
    for (int k = 1; k < S::D / 16; k++)
        /* Operand addresses are in units of 16 bytes. */
        wf_wgmma<T, 0, 0>(s, a + (k / 4 * (64 * 128) + k % 4 * 32) / 16,
                          b + (k / 4 * (S::KEYS * 128) + k % 4 * 32) / 16, 1);
    wf_wgmma_commit();
}

/* o[64, D] += weights v, over KEYS keys */
template <class S, int KEYS>
WF_HOPPER void multiply_values(float (&o)[S::D / 2], const uint32_t (&w)[S::KEYS / 4],
                               uint32_t values)
{
    uint64_t b = wf_wgmma_operand(values, S::KEYS * 128);
#pragma unroll
    for (int k = 0; k < KEYS / 16; k++)
        wf_wgmma<typename S::T, 1>(o, w + 4 * k, b + k * 2048 / 16, 1);
    wf_wgmma_commit();
}

/* The two query rows of a thread; four threads share each row. */
typedef struct {
    int low[2], high[2]; /* visible keys, counted from the item's first */
    int hidden, shown;   /* keys >= hidden or < shown are masked for some row of the warp */
    float base[2];       /* reference score of the weights, in base 2 */
    float sum[2];        /* sum of the thread's weights */
} rows;

/* Sets the scores of invisible keys to -Inf. `first` is the tile's first key. */
template <int N> WF_HOPPER void mask(float (&s)[N], const rows &r, int first)
{
    const int column = threadIdx.x % 4 * 2; /* this thread's first column in each group of 8 */
    if (first + N * 2 > r.hidden) {
        const int high[2] = {r.high[0] - first - column, r.high[1] - first - column};
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = i / 4 * 8 + i % 2 < high[i / 2 % 2] ? s[i] : -INFINITY;
    }
    if (first < r.shown) {
        const int low[2] = {r.low[0] - first - column, r.low[1] - first - column};
#pragma unroll
        for (int i = 0; i < N; i++)
            s[i] = i / 4 * 8 + i % 2 >= low[i / 2 % 2] ? s[i] : -INFINITY;
    }
}

/* Turns scores into weights relative to the running maximum. The caller multiplies earlier sums by
 * `factor`. */
template <int N> WF_HOPPER void weigh(float (&s)[N], rows &r, float (&factor)[2], float scale2)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = s[2 * h], sum = 0;
#pragma unroll
        for (int i = 2 * h; i < N; i += 4)
            top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(top * scale2, r.base[h]); /* scale2 > 0, so the maximum commutes with scaling */
        float base = top == -INFINITY ? 0 : top;
        factor[h] = wf_exp2(r.base[h] - base);
        r.base[h] = top;
#pragma unroll
        for (int i = 2 * h; i < N; i += 4) {
            s[i] = wf_exp2(fmaf(s[i], scale2, -base));
            s[i + 1] = wf_exp2(fmaf(s[i + 1], scale2, -base));
            sum += s[i] + s[i + 1];
        }
        r.sum[h] = r.sum[h] * factor[h] + sum;
    }
}

/* The same with the old reference score, without searching a maximum. Returns whether that was safe
 * for all rows of the warp; if not, r is unchanged. */
template <class S, int N> WF_HOPPER bool weigh_alike(float (&s)[N], rows &r, float scale2)
{
    bool right = true;
    float sum[2];
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = wf_exp2(fmaf(s[i], scale2, -r.base[i / 2 % 2]));
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float part[8]; /* independent sums hide the latency of exponentials */
#pragma unroll
        for (int i = 0; i < 8; i++)
            part[i] = s[4 * i + 2 * h] + s[4 * i + 2 * h + 1];
#pragma unroll
        for (int i = 8; i < N / 4; i++)
            part[i % 8] += s[4 * i + 2 * h] + s[4 * i + 2 * h + 1];
        sum[h] = ((part[0] + part[4]) + (part[1] + part[5])) +
                 ((part[2] + part[6]) + (part[3] + part[7]));
        right = right && sum[h] < S::LIMIT;
    }
    /* The warp decides together: wgmma and barriers are uniform. */
    if (!__all_sync(0xffffffffu, right))
        return false;
    r.sum[0] += sum[0];
    r.sum[1] += sum[1];
    return true;
}

WF_HOPPER uint32_t word(const unsigned char *p)
{
    return *reinterpret_cast<const uint32_t *>(p);
}

/* Recomputes a tile's scores, each warp for itself, after weigh_alike overwrote them and failed. */
template <class S, int N>
WF_HOPPER void score_again(float (&s)[N], const memory<S> &m, uint32_t q, uint32_t keys)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const unsigned char *a = m.at(q) + row * 128, *b = m.at(keys) + lane / 4 * 128;
#pragma unroll
    for (int i = 0; i < N; i++)
        s[i] = 0;
#pragma unroll 1
    for (int k = 0; k < S::D; k += 16) {
        /* rows equal modulo 8 share the swizzle */
        const int at = (k % 64 * 2 + lane % 4 * 4) ^ lane / 4 * 16, next = at ^ 16;
        const unsigned char *ak = a + k / 64 * (64 * 128), *bk = b + k / 64 * (S::KEYS * 128);
        uint32_t x[4] = {word(ak + at), word(ak + 1024 + at), word(ak + next),
                         word(ak + 1024 + next)};
#pragma unroll
        for (int c = 0; c < N / 4; c++)
            wf_mma<typename S::T>(reinterpret_cast<float(&)[4]>(s[4 * c]), x,
                                  word(bk + c * 1024 + at), word(bk + c * 1024 + next));
    }
}

template <typename T, int M, int N>
WF_HOPPER void round_weights(uint32_t (&w)[M], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        w[i] = wf_pair<T>(s[2 * i], s[2 * i + 1]);
}

/* Transposes 4 x 4 words within each group of four lanes. */
WF_HOPPER void transpose_words(uint32_t (&x)[4], int lane)
{
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (i & bit)
                continue;
            bool upper = lane & bit;
            uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? x[i] : x[i + bit], bit);
            x[i] = upper ? other : x[i];
            x[i + bit] = upper ? x[i + bit] : other;
        }
    }
}

/* Stores the thread's rows of o, `row` and `row` + 8, and their lse. */
template <class S>
WF_HOPPER void finish(const task &t, const item &it, int row, const float (&o)[S::D / 2], rows &r)
{
    typedef typename S::T T;
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float sum = r.sum[h];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        /* No visible key: weights are 0, unless a score was NaN. */
        bool none = r.base[h] == -INFINITY && sum == sum;
        float inverse = none ? 0 : 1 / sum;
        bool there = row + 8 * h >= 0; /* negative rows are padding */
        int64_t token = (int64_t)it.sequence * t.length + row + 8 * h;
        if (there && lane == 0 && t.lse)
            t.lse[token * t.lse_row + it.head] =
                none ? -INFINITY : (r.base[h] + log2f(sum)) * 0.69314718056f;
        int64_t to = token * t.o_row + it.head * t.o_head;
#pragma unroll
        for (int c = 0; c < S::D / 32; c++) {
            uint32_t x[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                x[i] = wf_pair<T>(o[16 * c + 4 * i + 2 * h] * inverse,
                                  o[16 * c + 4 * i + 2 * h + 1] * inverse);
            transpose_words(x, lane);
            if (there && t.o)
                *(uint4 *)((T *)t.o + to + 32 * c + 8 * lane) = make_uint4(x[0], x[1], x[2], x[3]);
        }
    }
}

/* The state of a consumer warp. */
template <class S> struct worker {
    memory<S> m;
    place<S> at;
    int group;
    int lane; /* in the warp */

    __device__ __forceinline__ uint32_t q(int b) const
    {
        return m.q(b) + group * S::GROUP_BYTES;
    }
    __device__ __forceinline__ void await()
    {
        wf_barrier_wait(m.full(at.slot), at.parity);
    }
    __device__ __forceinline__ void release(int slot)
    {
        __syncwarp(); /* all lanes have read the slot */
        wf_warp_arrive(m.empty(slot), lane);
    }
    /* Releases the slot of an unneeded tile. */
    __device__ __forceinline__ void skip()
    {
        await();
        release(at.slot);
        at.advance();
    }
    __device__ __forceinline__ void turn_begin()
    {
        /* Named barriers: a group waits for its turn and passes it on, so that matmuls of one group
         * overlap with exponentials of another. */
        if (S::TURNS)
            wf_named_sync(1 + group, 256);
    }
    __device__ __forceinline__ void turn_end()
    {
        if (S::TURNS)
            wf_named_arrive(1 + (group + 1 == S::GROUPS ? 0 : group + 1), 256);
    }
};

/* A warpgroup's part of an item. */
typedef struct {
    item it;
    int n, mine; /* tiles of keys, and how many this group needs */
    bool half;   /* the last tile has 64 keys only, and is not the first */
    int row;     /* first query of the group */
} work;

/* Starts the block's item number `use` with the scores of its first tile. The wgmma is issued even
 * without a tile, on arbitrary data: the compiler needs the same registers in flight on every
 * path. */
template <class S>
WF_HOPPER work start(worker<S> &w, const task &t, int use, float (&s)[S::KEYS / 2])
{
    int b = use & 1;
    wf_barrier_wait(w.m.q_full(b), use >> 1 & 1);
    work x = {w.m.items[b], 0, 0, false, 0};
    if (x.it.sequence >= 0) {
        x.row = x.it.row + 64 * w.group;
        x.n = tiles<S>(key_count(t, x.it, x.it.row + S::QUERIES));
        int keys = key_count(t, x.it, x.row + 64);
        x.mine = tiles<S>(keys);
        x.half = x.mine > 1 && keys <= (x.mine - 1) * S::KEYS + 64;
    }
    if (x.mine > 0) {
        w.await();
        w.turn_begin();
    }
    wf_wgmma_begin();
    multiply_keys<S>(s, w.q(b), w.m.slot(w.at.slot));
    if (x.mine > 0)
        w.turn_end();
    return x;
}

/* Whether every row of the warp has seen a key. */
WF_HOPPER bool all_begun(const rows &r)
{
    return __all_sync(0xffffffffu, r.base[0] > -INFINITY && r.base[1] > -INFINITY);
}

/* A warpgroup's registers. */
template <class S> struct state {
    float s[S::KEYS / 2]; /* scores, then weights */
    uint32_t weights[S::KEYS / 4];
    float o[S::D / 2];
    rows r;
    bool begun; /* every row of the warp has seen a key */
};

/* Computes the weights of tile j (KEYS keys) while o += weights v of the previous tile runs. */
template <class S, int KEYS>
WF_HOPPER void step(worker<S> &w, state<S> &x, uint32_t q, int j, float scale2)
{
    float(&s)[KEYS / 2] = reinterpret_cast<float(&)[KEYS / 2]>(x.s), factor[2];
    const int first = j * S::KEYS, keys = w.at.slot;
    w.await();
    w.turn_begin();
    wf_wgmma_hold(x.o); /* the compiler must not move o while a wgmma writes it */
    wf_wgmma_begin();
    multiply_keys<S>(s, q, w.m.slot(keys));
    w.at.advance();
    const int values = w.at.slot;
    w.await();
    wf_wgmma_begin();
    multiply_values<S, S::KEYS>(x.o, x.weights, w.m.slot(values));
    w.turn_end();
    w.at.advance();
    wf_wgmma_wait<1>(); /* the scores are complete; the values may still run */
    wf_wgmma_hold(s);
    mask(s, x.r, first);
    bool begun = x.begun, alike = begun && weigh_alike<S>(s, x.r, scale2);
    if (!alike) {
        wf_wgmma_wait<0>(); /* o is rescaled below: its sum must be complete */
        wf_wgmma_hold(x.o);
        if (begun) {
            score_again<S>(s, w.m, q, w.m.slot(keys));
            mask(s, x.r, first);
        }
        weigh(s, x.r, factor, scale2);
        x.begun = all_begun(x.r);
#pragma unroll
        for (int i = 0; i < S::D / 2; i++)
            x.o[i] *= factor[i / 2 % 2];
    }
    w.release(keys); /* after score_again, which reads the keys */
    wf_wgmma_wait<0>();
    wf_wgmma_hold(x.o);
    w.release(values);
    round_weights<typename S::T>(x.weights, s);
}

/* o += weights v of the last tile, with KEYS keys. */
template <class S, int KEYS> WF_HOPPER void last_step(worker<S> &w, state<S> &x, bool others)
{
    if (others)
        w.skip();
    w.await();
    w.turn_begin();
    wf_wgmma_hold(x.o);
    wf_wgmma_begin();
    multiply_values<S, KEYS>(x.o, x.weights, w.m.slot(w.at.slot));
    w.turn_end();
    wf_wgmma_wait<0>();
    wf_wgmma_hold(x.o);
    w.release(w.at.slot);
    w.at.advance();
}

/* Computes o and r of the group's queries; s holds the first tile's scores. */
template <class S>
WF_HOPPER void attend(worker<S> &w, const work &k, state<S> &x, uint32_t q, float scale2)
{
    float factor[2];
    w.release(w.at.slot);
    w.at.advance();
    mask(x.s, x.r, 0);
    weigh(x.s, x.r, factor, scale2);
    x.begun = all_begun(x.r);
    round_weights<typename S::T>(x.weights, x.s);

    const bool half = S::KEYS == 128 && k.half, others = k.mine < k.n;
    for (int j = 1; j < k.mine - half; j++)
        step<S, S::KEYS>(w, x, q, j, scale2);
    if (half) {
        step<S, 64>(w, x, q, k.mine - 1, scale2);
        last_step<S, 64>(w, x, others);
    } else {
        last_step<S, S::KEYS>(w, x, others);
    }
}

/* Skips the tiles that only other groups need. attend took mine + 1 turns and used two slots per
 * tile, and one more if it was not the last. */
template <class S> WF_HOPPER void pass(worker<S> &w, const work &k)
{
    int used = k.mine > 0 ? 2 * k.mine + (k.mine < k.n) : 0;
    for (int turn = k.mine > 0 ? k.mine + 1 : 0; k.n > 0 && turn <= k.n; turn++) {
        w.turn_begin();
        w.turn_end();
        for (int i = 0; i < 2 && used < 2 * k.n; i++, used++)
            w.skip();
    }
}

template <class S> WF_HOPPER void compute(const task &t, const memory<S> &m, int group)
{
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 % 4 * 16 + lane / 4;
    worker<S> w = {m, {0, 0}, group, lane};
    state<S> x;
    if (S::TURNS && group == S::GROUPS - 1)
        w.turn_end();
    work k = start(w, t, 0, x.s);
    for (int use = 0; k.it.sequence >= 0; use++) {
        const int b = use & 1, row = k.row + first;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int near = max(row + 8 * h, 0);
            x.r.low[h] = key_begin(t, near) - k.it.begin;
            x.r.high[h] = key_end(t, near) - k.it.begin;
            x.r.base[h] = -INFINITY;
            x.r.sum[h] = 0;
        }
        x.r.hidden = __shfl_sync(0xffffffffu, x.r.high[0], 0);
        x.r.shown = __shfl_sync(0xffffffffu, x.r.low[1], 31);
#pragma unroll
        for (int i = 0; i < S::D / 2; i++)
            x.o[i] = 0;
        wf_wgmma_wait<0>();
        wf_wgmma_hold(x.s);
        if (k.mine > 0)
            attend<S>(w, k, x, w.q(b), t.scale2);
        __syncwarp();
        wf_warp_arrive(m.q_empty(b), lane);
        pass<S>(w, k);
        work next = start(w, t, use + 1, x.s);
        finish<S>(t, k.it, row, x.o, x.r); /* overlaps with the next scores */
        k = next;
    }
    wf_wgmma_wait<0>();
    wf_wgmma_hold(x.s);
}
#endif

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS) attention(const __grid_constant__ task t)
{
#if WF_HOPPER_CODE
    WF_SHARED(unsigned char, shared);
    const memory<S> m = block_memory<S>(shared);
    if (t.irregular && *t.irregular)
        return;
    if (threadIdx.x == 0) {
        wf_tma_prefetch(&t.q);
        wf_tma_prefetch(&t.k);
        wf_tma_prefetch(&t.v);
        for (int i = 0; i < S::SLOTS; i++) {
            wf_barrier_init(m.full(i), 1);
            wf_barrier_init(m.empty(i), 4 * S::GROUPS * WF_WARP_ARRIVALS);
        }
        for (int i = 0; i < 2; i++) {
            wf_barrier_init(m.q_full(i), 1);
            wf_barrier_init(m.q_empty(i), 4 * S::GROUPS * WF_WARP_ARRIVALS);
        }
        wf_barrier_init_done();
    }
    __syncthreads();
    const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
    if (group == 0) {
        wf_registers_give<S::FEW>();
        if (threadIdx.x == 0)
            bring<S>(t, m);
    } else {
        wf_registers_take<S::MANY>();
        compute<S>(t, m, group - 1);
    }
#endif
}

/* ---- Host ---- */

/* The TMA description of x [N, heads, D], moved in boxes of `rows` tokens of one head. */
static wf_tensor_box operand_box(const wf_flash *f, const wf_flash_operand *x, int heads, int rows)
{
    int length = f->length > 0 ? f->length : f->n;
    return {.type = f->type,
            .data = x->data,
            .dim = {f->d, heads, length, f->n / length},
            .stride = {1, x->head, x->row, x->row * length},
            .box = {64, 1, rows, 1}};
}

template <class S> static wf_status run(const wf_launch *l, const wf_flash *f)
{
    enum { TOGETHER = 16 << 20 }; /* bytes of keys and values */
    int length = f->length > 0 ? f->length : f->n;
    task t = {};
    t.o = f->o.data;
    t.o_row = f->o.row;
    t.o_head = f->o.head;
    t.lse = f->lse;
    t.lse_row = f->lse_row;
    t.low = f->low;
    t.high = f->high;
    t.irregular = f->irregular;
    t.next = (int32_t *)l->workspace;
    t.length = length;
    t.heads = f->heads;
    t.group = f->heads / f->kv_heads;
    t.causal = f->causal;
    t.window = f->window;
    t.scale2 = f->scale * 1.44269504089f;
    t.tiles = (length + S::QUERIES - 1) / S::QUERIES;
    t.all = f->n / length * f->heads;
    t.items = t.tiles * t.all;
    int64_t bytes = (int64_t)length * f->d * 2 * 2, many = TOGETHER / bytes * t.group;
    t.together = (int32_t)(many < t.group ? t.group : many < t.all ? many : t.all);
    wf_tensor_box q = operand_box(f, &f->q, f->heads, 64),
                  k = operand_box(f, &f->k, f->kv_heads, S::KEYS),
                  v = operand_box(f, &f->v, f->kv_heads, S::KEYS);
    WF_TRY(wf_cuda_tensor_map(l, &q, &t.q));
    WF_TRY(wf_cuda_tensor_map(l, &k, &t.k));
    WF_TRY(wf_cuda_tensor_map(l, &v, &t.v));
    WF_TRY(wf_cuda_check(
        l,
        cudaFuncSetAttribute(attention<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES)));
    cudaStream_t stream = wf_cuda_stream(l);
    WF_TRY(wf_cuda_check(l, cudaMemsetAsync(t.next, 0, sizeof *t.next, stream)));
    unsigned blocks = wf_cuda_blocks(t.items, 1, wf_cuda_device_of(l)->processors * S::BLOCKS);
    WF_RUN(attention<S>, blocks, S::THREADS, S::BYTES, stream)(t);
    return wf_cuda_launched(l);
}

template <typename T> static wf_status run_type(const wf_launch *l, const wf_flash *f)
{
    enum {
        SHORT = 2048
    }; /* tokens: short sequences waste less with more warpgroups and smaller tiles */
    if (f->d == 128)
        return run<shape<T, 128, 2, 128, 5, 1, true>>(l, f);
    return f->length <= SHORT ? run<shape<T, 64, 4, 64, 16, 1, false>>(l, f)
                              : run<shape<T, 64, 3, 128, 8, 1, false>>(l, f);
}

wf_status wf_cuda_hopper_attention(const wf_launch *l, const wf_flash *f)
{
    return f->type == WF_BF16 ? run_type<wf_bf16>(l, f) : run_type<wf_f16>(l, f);
}

/* ---- The kernel row ---- */

enum { COUNTER = 256 }; /* bytes at the start of the workspace */

bool wf_cuda_hopper_attention_accepts(const wf_device *device, const wf_node *n)
{
    const wf_attr_attention *a = (const wf_attr_attention *)n->attr;
    int64_t d = n->in[0]->shape.d[2];
    return wf_flash_accepts(device, n) && (d == 64 || d == 128) && n->in[2]->shape.d[2] == d &&
           a->softcap == 0 && a->scale >= 0;
}

size_t wf_cuda_hopper_attention_workspace(const wf_device *device, const wf_node *n)
{
    return COUNTER + wf_flash_workspace(device, n);
}

wf_status wf_cuda_hopper_attention_launch(const wf_launch *l)
{
    wf_flash f = wf_flash_of(l);
    if (f.n == 0 || f.heads == 0)
        return WF_OK;
    if (!wf_flash_aligned(&f))
        return wf_flash_launch(l);
    char *ranges = (char *)l->workspace + COUNTER;
    wf_flash_ranges(l, &f, ranges);
    WF_TRY(wf_cuda_hopper_attention(l, &f));
    if (f.irregular)
        wf_attention_run(l, ranges + wf_flash_ranges_bytes(l->node), f.irregular);
    return wf_cuda_launched(l);
}

/* SPDX-License-Identifier: MIT */
/*
 * attention_parts.cu - attention over pages by many blocks: a warp computes the part of a group of
 * keys, and a second kernel merges the parts in order. attention.cuh defines the order of all sums.
 *
 * A warp computes the part of up to HEADS query heads that share a key head, so keys and values are
 * read once for them. Each lane scores two keys; then each lane owns some elements of the values,
 * and the warp iterates over the keys. Parts lie in the workspace; many tokens are computed in slices
 * that fit into it.
 */
#include "device/cuda/attention.cuh"

enum {
    GROUP = WF_ATTENTION_GROUP,
    HEADS = 4, /* query heads of a warp */
    WARPS = 4, /* groups of a block */
    THREADS = 32 * WARPS,
    MERGERS = 128,           /* threads that merge one head of a token */
    WIDTH = 256,             /* largest head size */
    SHORTEST = 2 * GROUP,    /* keys; fewer are left to one block */
    MOST_BYTES = 32 << 20,   /* of the workspace, unless one token needs more */
    MOST_OF_ONE = 128 << 20, /* bytes of one token */
    SLICES = 16              /* more are slower than other kernels */
};

/* The largest score and the sum of a part. */
typedef struct {
    float most, sum;
} part_stats;

/* Parts of `count` tokens from `first` on. */
typedef struct {
    int first, count;
    int groups;        /* of a table row */
    float *value;      /* [count, heads, groups, d_v] */
    part_stats *stats; /* [count, heads, groups] */
} slice;

/* Keys up to the last one that the token may see: those behind it change nothing. */
static __device__ __forceinline__ int64_t keys_of(const wf_attention_problem &a,
                                                  const wf_attention_stretch &s, int token)
{
    const int64_t keys = wf_attention_keys(a, s);
    return a.causal ? min(keys, (int64_t)a.positions[token] + 1) : keys;
}

/* Dot products of HEADS rows of q with two keys. */
template <typename T, int W>
static __device__ __forceinline__ void dots(const float (*q)[WIDTH], const T *k,
                                            const longlong2 *at, int d, float (&sum)[2][HEADS])
{
    const T *row[2] = {k + max(at[0].x, 0ll), k + max(at[1].x, 0ll)};
#pragma unroll 4
    for (int i = 0; i < d; i += W) {
        const wf_pack<T, W> x[2] = {wf_load_pack<T, W>(row[0] + i), wf_load_pack<T, W>(row[1] + i)};
#pragma unroll
        for (int e = 0; e < W; e++)
#pragma unroll
            for (int n = 0; n < HEADS; n++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    sum[h][n] = __fmaf_rn(q[n][i + e], wf_load(x[h].x[e]), sum[h][n]);
    }
}

/* Adds the values of 32 keys, each a lane's offset and weights, in order. */
template <typename T, int PARTS>
static __device__ __forceinline__ void add_values(const T *v, int64_t offset,
                                                  const float (&p)[HEADS], int length,
                                                  float (&value)[HEADS][PARTS])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll 16 / PARTS
    for (int i = 0; i < 32; i++) {
        const int64_t from = __shfl_sync(0xffffffffu, (long long)offset, i);
        float weight[HEADS];
#pragma unroll
        for (int n = 0; n < HEADS; n++)
            weight[n] = __shfl_sync(0xffffffffu, p[n], i);
#pragma unroll
        for (int c = 0; c < PARTS; c++)
            if (from >= 0 && lane + 32 * c < length) {
                const float x = wf_load(v[from + lane + 32 * c]);
#pragma unroll
                for (int n = 0; n < HEADS; n++)
                    value[n][c] = __fmaf_rn(weight[n], x, value[n][c]);
            }
    }
}

/* blockIdx.x: token of the slice, key head, and HEADS of its query heads; blockIdx.y: WARPS groups.
 * W: elements per load of a key; PARTS: elements of a value per lane, 32 apart. */
template <typename T, int W, int PARTS>
static __global__ void __launch_bounds__(THREADS)
    attention_parts(const wf_attention_problem a, const slice all)
{
    __shared__ float q[HEADS][WIDTH];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int sets = (a.group + HEADS - 1) / HEADS, set = (int)blockIdx.x % sets;
    const int kv_head = (int)blockIdx.x / sets % a.kv_heads;
    const int index = (int)blockIdx.x / sets / a.kv_heads, token = all.first + index;
    const int head = kv_head * a.group + set * HEADS;
    const int heads = min(HEADS, a.group - set * HEADS);
    wf_grid_begin();
    if (blockIdx.y == 0)
        wf_attention_check(a);
    const wf_attention_stretch s =
        wf_attention_find(a, [&](int number) { return wf_attention_boundary(a, number) <= token; });
    const int64_t keys = keys_of(a, s, token);
    if ((int64_t)blockIdx.y * WARPS * GROUP >= keys)
        return;
    for (int i = (int)threadIdx.x; i < HEADS * a.d; i += THREADS)
        q[i / a.d][i % a.d] =
            i / a.d < heads
                ? wf_attention_load(a.q.type, a.q.data,
                                    wf_attention_offset(a.q, 0, token, head + i / a.d) + i % a.d)
                : 0;
    __syncthreads(); /* q is complete */
    const int64_t group = (int64_t)blockIdx.y * WARPS + warp, first = group * GROUP;
    if (first >= keys || first < wf_attention_first(a, token))
        return; /* the merge leaves this group out, too */

    longlong2 at[2];
    float x[2][HEADS] = {}, value[HEADS][PARTS] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64_t j = first + 32 * h + lane;
        at[h] = j < keys ? wf_attention_key(a, s, kv_head, a.positions[token], j)
                         : make_longlong2(-1, -1);
    }
    dots<T, W>(q, (const T *)a.k.data, at, a.d, x);
    part_stats stats[HEADS];
#pragma unroll
    for (int n = 0; n < HEADS; n++) {
#pragma unroll
        for (int h = 0; h < 2; h++)
            x[h][n] = at[h].x < 0 ? -INFINITY : wf_attention_score(a, x[h][n]);
        stats[n].most = wf_warp_max(fmaxf(x[0][n], x[1][n]));
        const float base = wf_attention_base(stats[n].most);
#pragma unroll
        for (int h = 0; h < 2; h++)
            x[h][n] = expf(x[h][n] - base);
        stats[n].sum = wf_warp_sum(__fadd_rn(x[0][n], x[1][n]));
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (first + 32 * h < keys)
            add_values<T, PARTS>((const T *)a.v.data, at[h].y, x[h], a.d_v, value);
#pragma unroll
    for (int n = 0; n < HEADS; n++) {
        if (n >= heads)
            break;
        const int64_t part = ((int64_t)index * a.heads + head + n) * all.groups + group;
        if (lane == 0)
            all.stats[part] = stats[n];
#pragma unroll
        for (int c = 0; c < PARTS; c++)
            if (lane + 32 * c < a.d_v)
                all.value[part * a.d_v + lane + 32 * c] = value[n][c];
    }
}

/* A block per token of the slice and head. Each lane computes the factors of one part, for 32 parts
 * at a time; a thread owns one element of the values, or two. */
static __global__ void __launch_bounds__(MERGERS)
    attention_merge(const wf_attention_problem a, const slice all)
{
    const int index = (int)blockIdx.x / a.heads, head = (int)blockIdx.x % a.heads;
    const int token = all.first + index, lane = (int)threadIdx.x % 32, c = (int)threadIdx.x;
    wf_grid_begin();
    const wf_attention_stretch s =
        wf_attention_find(a, [&](int number) { return wf_attention_boundary(a, number) <= token; });
    const int64_t row = ((int64_t)index * a.heads + head) * all.groups;
    const int64_t end = (keys_of(a, s, token) + GROUP - 1) / GROUP;
    float most = -INFINITY, sum = 0, value[2] = {};
    for (int64_t first = wf_attention_first(a, token) / GROUP; first < end; first += 32) {
        const int count = (int)min((int64_t)32, end - first);
        const part_stats part =
            lane < count ? all.stats[row + first + lane] : part_stats{-INFINITY, 0};
        float high = part.most; /* of the parts up to this lane's */
#pragma unroll
        for (int step = 1; step < 32; step *= 2) {
            const float lower = __shfl_up_sync(0xffffffffu, high, step);
            high = lane >= step ? fmaxf(high, lower) : high;
        }
        const float lower = __shfl_up_sync(0xffffffffu, high, 1);
        const wf_attention_merging mine =
            wf_attention_merging_of(lane > 0 ? fmaxf(most, lower) : most, part.most);
        const float *values = all.value + (row + first) * a.d_v + c;
#pragma unroll 8
        for (int w = 0; w < count; w++) {
            const wf_attention_merging m = {0, __shfl_sync(0xffffffffu, mine.keep, w),
                                            __shfl_sync(0xffffffffu, mine.take, w)};
            sum = wf_attention_merge(m, sum, __shfl_sync(0xffffffffu, part.sum, w));
#pragma unroll
            for (int i = 0; i < 2; i++)
                if (c + MERGERS * i < a.d_v)
                    value[i] = wf_attention_merge(m, value[i], values[w * a.d_v + MERGERS * i]);
        }
        most = __shfl_sync(0xffffffffu, mine.most, 31);
    }
    if (a.lse && c == 0)
        a.lse[token * a.lse_row + head] = wf_attention_lse(most, sum);
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (a.o.data && c + MERGERS * i < a.d_v)
            wf_attention_store(a.o.type, a.o.data,
                               wf_attention_offset(a.o, 0, token, head) + c + MERGERS * i,
                               wf_attention_result(value[i], wf_attention_factor(sum)));
}

/* ---- Launch ---- */

/* Groups of a row of the page table. */
static int64_t groups_of(const wf_node *n)
{
    return (n->in[5]->shape.d[1] * n->in[1]->shape.d[1] + GROUP - 1) / GROUP;
}

/* Bytes of the parts of one token. */
static int64_t bytes_of_one(const wf_node *n)
{
    const int64_t parts = n->in[0]->shape.d[1] * groups_of(n);
    const wf_dims *v = &n->in[2]->shape;
    return parts * (v->d[v->n - 1] * (int64_t)sizeof(float) + (int64_t)sizeof(part_stats));
}

/* Tokens whose parts are computed at a time. */
static int64_t tokens_of(const wf_node *n)
{
    const int64_t fit = MOST_BYTES / bytes_of_one(n), all = n->in[0]->shape.d[0];
    return fit < 1 ? 1 : fit < all ? fit : all;
}

static size_t workspace(const wf_device *, const wf_node *n)
{
    return (size_t)(tokens_of(n) * bytes_of_one(n));
}

static bool accepts(const wf_device *, const wf_node *n)
{
    const wf_dims *q = &n->in[0]->shape, *v = &n->in[2]->shape;
    if (n->nin < 7 || q->d[0] == 0 || q->d[1] == 0 || n->in[1]->type != n->in[2]->type)
        return false;
    const int64_t groups = groups_of(n), bytes = bytes_of_one(n);
    return groups * GROUP >= SHORTEST && groups <= (int64_t)WARPS * 65535 && bytes > 0 &&
           bytes <= MOST_OF_ONE && q->d[0] <= (int64_t)SLICES * tokens_of(n) && q->d[2] <= WIDTH &&
           v->d[v->n - 1] <= WIDTH;
}

template <typename T, int W>
static void run(const wf_launch *l, const wf_attention_problem *a, slice all)
{
    const auto kernel = a->d_v <= 64    ? attention_parts<T, W, 2>
                        : a->d_v <= 128 ? attention_parts<T, W, 4>
                                        : attention_parts<T, W, 8>;
    const int sets = (a->group + HEADS - 1) / HEADS, most = all.count;
    for (all.first = 0; all.first < a->n; all.first += most) {
        all.count = a->n - all.first < most ? a->n - all.first : most;
        const dim3 grid((unsigned)(all.count * a->kv_heads * sets),
                        (unsigned)((all.groups + WARPS - 1) / WARPS));
        WF_RUN_EARLY(kernel, grid, THREADS, 0, l)(*a, all);
        WF_RUN_EARLY(attention_merge, (unsigned)(all.count * a->heads), MERGERS, 0, l)(*a, all);
    }
}

static wf_status launch(const wf_launch *l)
{
    const wf_attention_problem a = wf_attention_open_forward(l);
    slice all = {};
    all.count = (int)tokens_of(l->node);
    all.groups = (int)groups_of(l->node);
    all.stats = (part_stats *)l->workspace;
    all.value = (float *)(all.stats + (int64_t)all.count * a.heads * all.groups);
    wf_with_float(a.k.type, [&](auto zero) {
        using T = decltype(zero);
        if (a.d % WF_WIDE(T) == 0 && wf_attention_wide(&a.k, sizeof(T)))
            run<T, WF_WIDE(T)>(l, &a, all);
        else
            run<T, 1>(l, &a, all);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_attention_parts_kernels[] = {
    {.op = WF_OP_attention, .name = "parts", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_FLOAT,
     .strided = true, .accepts = accepts, .workspace = workspace, .launch = launch},
    {},
};

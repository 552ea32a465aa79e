/* SPDX-License-Identifier: MIT */
/*
 * attention_few.cu - decode attention: few tokens, many keys, one block per token and head.
 *
 * In a round each warp of the block takes a group of keys, and the next warp the next group. Each
 * lane scores two keys; then each lane owns some elements of the output and the warp iterates over
 * the keys. After a round the warps' parts are merged in order. attention.cuh defines the order of
 * all sums; attention.cu has the same.
 *
 * q [N, H, D] with N <= 8; k and v packed or in page pools. Memory traffic is k and v once per
 * query head.
 */
#include "device/cuda/attention.cuh"

enum {
    TOKENS = 8, /* most tokens */
    THREADS = 512,
    WARPS = THREADS / 32,
    WIDTH = 256,                /* largest head size */
    GROUP = WF_ATTENTION_GROUP, /* keys of a warp in a round: two per lane */
    ROUND = WARPS * GROUP       /* keys of a block in a round */
};

/* Parts of the warps have two buffers: while one is merged, warps write the other. */
template <int PARTS> struct shared {
    float q[WIDTH];
    float most[2][WARPS], sum[2][WARPS];
    float value[2][WARPS][32 * PARTS];
};

/* Dot products of q with two keys, `from` k; a negative offset is no key. W: elements per load.
 * Loads of both keys are in flight together. */
template <typename T, int W>
static __device__ __forceinline__ void dot(const float *q, const T *k, const longlong2 *from, int d,
                                           float (&sum)[2])
{
    const T *row[2] = {k + max(from[0].x, 0ll), k + max(from[1].x, 0ll)};
    sum[0] = sum[1] = 0;
#pragma unroll 4
    for (int i = 0; i < d; i += W) {
        const wf_pack<T, W> x[2] = {wf_load_pack<T, W>(row[0] + i), wf_load_pack<T, W>(row[1] + i)};
#pragma unroll
        for (int e = 0; e < W; e++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                sum[h] = __fmaf_rn(q[i + e], wf_load(x[h].x[e]), sum[h]);
    }
}

/* Adds the values of 32 keys, each a lane's offset and weight, in order. */
template <typename T, int PARTS>
static __device__ __forceinline__ void add_values(const T *v, int64_t offset, float p, int length,
                                                  float (&value)[PARTS])
{
    const int lane = (int)threadIdx.x % 32;
#pragma unroll 64 / PARTS
    for (int i = 0; i < 32; i++) {
        const int64_t from = __shfl_sync(0xffffffffu, (long long)offset, i);
        const float weight = __shfl_sync(0xffffffffu, p, i);
#pragma unroll
        for (int c = 0; c < PARTS; c++)
            if (from >= 0 && lane + 32 * c < length)
                value[c] = __fmaf_rn(weight, wf_load(v[from + lane + 32 * c]), value[c]);
    }
}

/* Computes this warp's part of a round: the group of keys [first, first + GROUP). PARTS: output
 * elements per lane, 32 apart. */
template <typename T, int W, int PARTS>
static __device__ __forceinline__ void attend(const wf_attention_problem &a, shared<PARTS> &sh,
                                              const wf_attention_stretch &s, int token, int kv_head,
                                              int64_t first, int64_t keys, int buffer)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int position = a.positions[token];
    const T *k = (const T *)a.k.data, *v = (const T *)a.v.data;
    longlong2 at[2];
    float x[2], p[2], value[PARTS] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int64_t j = first + 32 * h + lane;
        at[h] = j < keys ? wf_attention_key(a, s, kv_head, position, j) : make_longlong2(-1, -1);
    }
    dot<T, W>(sh.q, k, at, a.d, x);
#pragma unroll
    for (int h = 0; h < 2; h++)
        x[h] = at[h].x < 0 ? -INFINITY : wf_attention_score(a, x[h]);
    const float most = wf_warp_max(fmaxf(x[0], x[1])), base = wf_attention_base(most);
#pragma unroll
    for (int h = 0; h < 2; h++)
        p[h] = expf(x[h] - base);
    const float sum = wf_warp_sum(__fadd_rn(p[0], p[1]));
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (first + 32 * h < keys)
            add_values<T, PARTS>(v, at[h].y, p[h], a.d_v, value);
    if (lane == 0) {
        sh.most[buffer][warp] = most;
        sh.sum[buffer][warp] = sum;
    }
#pragma unroll
    for (int c = 0; c < PARTS; c++)
        sh.value[buffer][warp][lane + 32 * c] = value[c];
}

/* The sums so far; value is that of the element of the thread's index. */
typedef struct {
    float most, sum, value;
} total;

/* Merges the parts of a round, in order, for warps with elements. Each lane computes the factors of
 * one part. */
template <int PARTS>
static __device__ __forceinline__ void merge(const shared<PARTS> &sh, int buffer, total &t)
{
    const int lane = (int)threadIdx.x % 32, c = (int)threadIdx.x;
    const float most = lane < WARPS ? sh.most[buffer][lane] : -INFINITY;
    float high = most; /* of the parts up to this lane's */
#pragma unroll
    for (int step = 1; step < WARPS; step *= 2) {
        const float lower = __shfl_up_sync(0xffffffffu, high, step);
        high = lane >= step ? fmaxf(high, lower) : high;
    }
    const float lower = __shfl_up_sync(0xffffffffu, high, 1);
    const wf_attention_merging mine =
        wf_attention_merging_of(lane > 0 ? fmaxf(t.most, lower) : t.most, most);
#pragma unroll
    for (int w = 0; w < WARPS; w++) {
        const wf_attention_merging m = {0, __shfl_sync(0xffffffffu, mine.keep, w),
                                        __shfl_sync(0xffffffffu, mine.take, w)};
        t.sum = wf_attention_merge(m, t.sum, sh.sum[buffer][w]);
        t.value = wf_attention_merge(m, t.value, sh.value[buffer][w][c]);
    }
    t.most = __shfl_sync(0xffffffffu, mine.most, WARPS - 1);
}

template <typename T, int W, int PARTS>
static __global__ void __launch_bounds__(THREADS) attention_few(const wf_attention_problem a)
{
    __shared__ shared<PARTS> sh;
    wf_grid_begin();
    const int token = (int)blockIdx.x / a.heads, head = (int)blockIdx.x % a.heads;
    const int c = (int)threadIdx.x, warp = c / 32;
    wf_attention_check(a);
    if (c < a.d)
        sh.q[c] =
            wf_attention_load(a.q.type, a.q.data, wf_attention_offset(a.q, 0, token, head) + c);
    __syncthreads(); /* q is complete */
    const wf_attention_stretch s =
        wf_attention_find(a, [&](int number) { return wf_attention_boundary(a, number) <= token; });
    const int64_t keys = wf_attention_keys(a, s);
    total t = {-INFINITY, 0, 0};
    int buffer = 0;
    for (int64_t first = wf_attention_first(a, token); first < keys;
         first += ROUND, buffer = 1 - buffer) {
        attend<T, W, PARTS>(a, sh, s, token, head / a.group, first + warp * GROUP, keys, buffer);
        __syncthreads(); /* all parts are stored, and all threads have merged the round before */
        if (c < 32 * PARTS)
            merge<PARTS>(sh, buffer, t);
    }
    if (a.lse && c == 0)
        a.lse[token * a.lse_row + head] = wf_attention_lse(t.most, t.sum);
    if (a.o.data && c < a.d_v)
        wf_attention_store(a.o.type, a.o.data, wf_attention_offset(a.o, 0, token, head) + c,
                           wf_attention_result(t.value, wf_attention_factor(t.sum)));
}

/* ---- Launch ---- */

static bool accepts(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *q = &n->in[0]->shape, *v = &n->in[2]->shape;
    return q->d[0] <= TOKENS && q->d[2] <= WIDTH && v->d[v->n - 1] <= WIDTH &&
           n->in[1]->type == n->in[2]->type;
}

template <typename T, int W> static void run(const wf_launch *l, const wf_attention_problem *a)
{
    const auto kernel = a->d_v <= 64    ? attention_few<T, W, 2>
                        : a->d_v <= 128 ? attention_few<T, W, 4>
                                        : attention_few<T, W, 8>;
    WF_RUN_EARLY(kernel, (unsigned)(a->n * a->heads), THREADS, 0, l)(*a);
}

static wf_status launch(const wf_launch *l)
{
    const wf_attention_problem a = wf_attention_open_forward(l);
    if (a.n == 0 || a.heads == 0)
        return WF_OK;
    wf_with_float(a.k.type, [&](auto zero) {
        using T = decltype(zero);
        if (a.d % WF_WIDE(T) == 0 && wf_attention_wide(&a.k, sizeof(T)))
            run<T, WF_WIDE(T)>(l, &a);
        else
            run<T, 1>(l, &a);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_attention_few_kernels[] = {
    {.op = WF_OP_attention, .name = "few", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_FLOAT,
     .strided = true, .accepts = accepts, .launch = launch},
    {},
};

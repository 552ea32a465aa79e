/* SPDX-License-Identifier: MIT */
/*
 * attention_few.cu - decode attention: few tokens, many keys, one block per token and head.
 *
 * The warps of a block take turns at groups of 32 keys. Each lane scores one key; then each lane
 * owns some elements of the output and the warp iterates over the keys. Finally the warps' partial
 * results are combined in order.
 *
 * q [N, H, D] with N <= 8; k and v packed or in page pools. Warp w takes keys 32 w, 32 w + 512,
 * ...: the order depends on the number of keys only. Memory traffic is k and v once per query head.
 */
#include "device/cuda/attention.cuh"

enum {
    TOKENS = 8,
    /* most tokens */
    THREADS = 512,
    WARPS = THREADS / 32,
    WIDTH = 256 /* largest head size */
};

typedef struct {
    float q[WIDTH];
    float most[WARPS], sum[WARPS]; /* max of the scores; sum of e^(score - most) */
    float value[WARPS][WIDTH];     /* sum of e^(score - most) v */
} shared;

/* Offsets of key j in k and v; negative if the token cannot see it. An invalid page is a fault. */
static __device__ __forceinline__ longlong2 find_key(const wf_attention_problem &a,
                                                     const wf_attention_stretch &s, int kv_head,
                                                     int position, int64_t j)
{
    int64_t page = 0, row = s.begin + j;
    if (!wf_attention_sees(a, position, a.table ? j : a.positions[row]))
        return make_longlong2(-1, -1);
    if (a.table) {
        page = a.table[s.sequence * a.table_row + j / a.page];
        row = j % a.page;
    }
    if (a.table && (page < 0 || page >= a.pool)) {
        wf_fault(a.fault, WF_CUDA_FAULT_PAGE, s.sequence * (a.longest / a.page) + j / a.page,
                 (int32_t)page);
        return make_longlong2(-1, -1);
    }
    return make_longlong2(wf_attention_offset(a.k, page, row, kv_head),
                          wf_attention_offset(a.v, page, row, kv_head));
}

/* W: elements per load. */
template <typename T, int W>
static __device__ __forceinline__ float dot(const float *q, const T *k, int d)
{
    float sum = 0;
#pragma unroll 4
    for (int i = 0; i < d; i += W) {
        const wf_pack<T, W> x = wf_load_pack<T, W>(k + i);
#pragma unroll
        for (int e = 0; e < W; e++)
            sum += q[i + e] * wf_load(x.x[e]);
    }
    return sum;
}

/* Processes a warp's keys. PARTS: output elements per lane, 32 apart. */
template <typename T, int W, int PARTS>
static __device__ __forceinline__ void attend(const wf_attention_problem &a, shared &sh,
                                              const wf_attention_stretch &s, int token, int kv_head)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int position = a.positions[token];
    const int64_t keys = wf_attention_keys(a, s);
    const T *k = (const T *)a.k.data, *v = (const T *)a.v.data;
    float most = -INFINITY, sum = 0, value[PARTS] = {};
    /* Keys of one group are scored in parallel, then added one after the other. */
    for (int64_t first = warp * 32; first < keys; first += THREADS) {
        longlong2 at = make_longlong2(-1, -1);
        if (first + lane < keys)
            at = find_key(a, s, kv_head, position, first + lane);
        const float x =
            at.x < 0 ? -INFINITY : wf_attention_score(a, dot<T, W>(sh.q, k + at.x, a.d));
        /* -Inf as long as no key is visible. */
        const float high = fmaxf(most, wf_warp_max(x)), base = high == -INFINITY ? 0.0f : high;
        const float p = expf(x - base), shrink = expf(most - base);
        most = high;
        sum = sum * shrink + wf_warp_sum(p);
#pragma unroll
        for (int c = 0; c < PARTS; c++)
            value[c] *= shrink;
#pragma unroll 8
        for (int i = 0; i < 32; i++) {
            /* The value's offset and weight of lane i's key. */
            const int64_t from = __shfl_sync(0xffffffffu, (long long)at.y, i);
            const float weight = __shfl_sync(0xffffffffu, p, i);
#pragma unroll
            for (int c = 0; c < PARTS; c++)
                if (from >= 0 && lane + 32 * c < a.d_v)
                    value[c] += weight * wf_load(v[from + lane + 32 * c]);
        }
    }
    if (lane == 0) {
        sh.most[warp] = most;
        sh.sum[warp] = sum;
    }
#pragma unroll
    for (int c = 0; c < PARTS; c++)
        sh.value[warp][lane + 32 * c] = value[c];
}

template <typename T, int W, int PARTS>
static __global__ void __launch_bounds__(THREADS) attention_few(const wf_attention_problem a)
{
    __shared__ shared sh;
    const int token = (int)blockIdx.x / a.heads, head = (int)blockIdx.x % a.heads;
    const int c = (int)threadIdx.x;
    wf_attention_check(a);
    if (c < a.d)
        sh.q[c] =
            wf_attention_load(a.q.type, a.q.data, wf_attention_offset(a.q, 0, token, head) + c);
    __syncthreads(); /* q is complete */
    const wf_attention_stretch s =
        wf_attention_find(a, [&](int number) { return wf_attention_boundary(a, number) <= token; });
    attend<T, W, PARTS>(a, sh, s, token, head / a.group);
    __syncthreads(); /* all warps have stored their parts */
    float most = -INFINITY, sum = 0, value = 0;
    for (int w = 0; w < WARPS; w++)
        most = fmaxf(most, sh.most[w]);
    for (int w = 0; w < WARPS; w++) {
        /* A warp without keys has most = -Inf and share 0. */
        const float share = expf(sh.most[w] - (most == -INFINITY ? 0.0f : most));
        sum += sh.sum[w] * share;
        value += c < 32 * PARTS ? sh.value[w][c] * share : 0.0f;
    }
    if (a.lse && c == 0)
        a.lse[token * a.lse_row + head] = sum == 0 ? -INFINITY : most + logf(sum);
    if (a.o.data && c < a.d_v)
        wf_attention_store(a.o.type, a.o.data, wf_attention_offset(a.o, 0, token, head) + c,
                           sum == 0 ? 0.0f : value / sum);
}

/* ---- Launch ---- */

static bool accepts(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *q = &n->in[0]->shape, *v = &n->in[2]->shape;
    return q->d[0] <= TOKENS && q->d[2] <= WIDTH && v->d[v->n - 1] <= WIDTH &&
           n->in[1]->type == n->in[2]->type;
}

static bool is_wide(const wf_attention_rows *x, int64_t bytes)
{
    return ((uintptr_t)x->data | (uintptr_t)((x->page | x->row | x->head) * bytes)) % 16 == 0;
}

template <typename T, int W> static void run(const wf_launch *l, const wf_attention_problem *a)
{
    const auto kernel = a->d_v <= 64    ? attention_few<T, W, 2>
                        : a->d_v <= 128 ? attention_few<T, W, 4>
                                        : attention_few<T, W, 8>;
    WF_RUN(kernel, (unsigned)(a->n * a->heads), THREADS, 0, wf_cuda_stream(l))(*a);
}

static wf_status launch(const wf_launch *l)
{
    const wf_attention_problem a = wf_attention_open_forward(l);
    if (a.n == 0 || a.heads == 0)
        return WF_OK;
    wf_with_float(a.k.type, [&](auto zero) {
        using T = decltype(zero);
        if (a.d % WF_WIDE(T) == 0 && is_wide(&a.k, sizeof(T)))
            run<T, WF_WIDE(T)>(l, &a);
        else
            run<T, 1>(l, &a);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_attention_few_kernels[] = {
    {.op = WF_OP_attention, .name = "few", .types = WF_TYPES_FLOAT, .strided = true, .accepts = accepts, .launch = launch},
    {},
};

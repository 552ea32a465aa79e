/* SPDX-License-Identifier: MIT */
/*
 * attention.cuh - parameters of the f32 attention kernels, and the mapping of tokens to sequences
 * and keys. Covers all that the ops allow: mixed types, any head size, positions in any order, page
 * pools.
 *
 * The forward kernels, attention.cu, attention_few.cu and attention_parts.cu, sum in one order. So
 * the bits of a query depend only on the query and on the keys and values that it sees, not on the
 * other queries of the run, which decide the kernel. Keys are counted from the first one of the
 * sequence and divided into groups of WF_ATTENTION_GROUP:
 *
 *     score(j) = q . k, a chain of __fmaf_rn over D
 *     m = max of the scores of a group, p(j) = e^(score(j) - m)
 *     sum = of p: keys 32 apart, then 16, 8, 4, 2, 1 apart
 *     value = of p v, a chain of __fmaf_rn over the keys
 *
 * Groups are merged in ascending order (wf_attention_merging). A hidden key has p = 0 and a group
 * of hidden keys changes nothing, so kernels may skip them. They may differ in the sign of a zero,
 * which wf_attention_result removes.
 */
#ifndef WF_DEVICE_CUDA_ATTENTION_CUH
#define WF_DEVICE_CUDA_ATTENTION_CUH

#include <math.h>

#include "device/cuda/kernels.cuh"

#define WF_ATTENTION_GROUP 64

/* Rows of elements, addressed by page, row in the page, and head. */
typedef struct {
    void *data;
    wf_type type;
    int64_t page, row, head; /* strides in elements; without pages all rows are in page 0 */
} wf_attention_rows;

typedef struct {
    wf_attention_rows q, k, v, o, dout, dq, dk, dv;
    float *lse;
    int64_t lse_row;
    float *delta;          /* [N, H]: dot(do, o); gradient only */
    const int32_t *starts; /* [sequences + 1] */
    const int32_t *positions;
    const int32_t *table; /* NULL: packed keys, no pages */
    const int32_t *lengths;
    int64_t longest; /* most keys that a row of the table can hold; longer lengths are clamped */
    int64_t table_row;
    int sequences, pool, page; /* pool: pages in the pool; page: rows per page */
    int n, heads, kv_heads, group, d, d_v;
    float scale, cap;
    int causal;
    int64_t window;
    const int32_t *irregular; /* not NULL: run only if the flag is set */
    uint64_t *fault;          /* NULL: another kernel checks the input */
} wf_attention_problem;

/* A range of tokens: a sequence, or the tokens before the first and after the last one (number <
 * 0). */
typedef struct {
    int sequence, begin, end;
    int number;    /* index of the range */
    int64_t first; /* first row of the tile in the range, in tiled kernels */
} wf_attention_stretch;

/* ---- Elements ---- */

static __device__ __forceinline__ float wf_attention_load(wf_type type, const void *data, int64_t i)
{
    if (type == WF_F32)
        return ((const float *)data)[i];
    return type == WF_BF16 ? wf_load(((const wf_bf16 *)data)[i])
                           : wf_load(((const wf_f16 *)data)[i]);
}

static __device__ __forceinline__ void wf_attention_store(wf_type type, void *data, int64_t i,
                                                          float x)
{
    if (type == WF_F32)
        ((float *)data)[i] = x;
    else if (type == WF_BF16)
        ((wf_bf16 *)data)[i] = wf_round<wf_bf16>(x);
    else
        ((wf_f16 *)data)[i] = wf_round<wf_f16>(x);
}

static __device__ __forceinline__ int64_t wf_attention_offset(const wf_attention_rows &x,
                                                              int64_t page, int64_t row,
                                                              int64_t head)
{
    return page * x.page + row * x.row + head * x.head;
}

/* ---- Tokens to sequences ---- */

/* First token of range s. */
static __device__ __forceinline__ int wf_attention_boundary(const wf_attention_problem &a, int s)
{
    if (s == 0)
        return 0;
    return s > a.sequences + 1 ? a.n : min(max(a.starts[s - 1], 0), a.n);
}

/* The last range s for which before(s) holds, by bisection; it holds for the first one. */
template <typename F>
static __device__ __forceinline__ wf_attention_stretch
wf_attention_find(const wf_attention_problem &a, F before)
{
    int low = 0, high = a.sequences + 1;
    while (low < high) {
        const int middle = low + (high - low + 1) / 2;
        if (before(middle))
            low = middle;
        else
            high = middle - 1;
    }
    return {low <= a.sequences ? low - 1 : -1, wf_attention_boundary(a, low),
            wf_attention_boundary(a, low + 1), low, 0};
}

static __device__ __forceinline__ int64_t wf_attention_keys(const wf_attention_problem &a,
                                                            const wf_attention_stretch &s)
{
    if (s.sequence < 0)
        return 0;
    return a.table ? min((int64_t)a.lengths[s.sequence], a.longest) : s.end - s.begin;
}

/* Reports invalid starts and lengths. All threads of the grid call it. */
static __device__ __forceinline__ void wf_attention_check(const wf_attention_problem &a)
{
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
                  step = (int64_t)gridDim.x * blockDim.x;
    if (!a.fault)
        return;
    wf_check_starts(a.fault, a.starts, a.sequences + 1, a.n, first, step);
    for (int64_t s = first; a.table && s < a.sequences; s += step)
        if (a.lengths[s] < 0 || a.lengths[s] > a.longest)
            wf_fault(a.fault, WF_CUDA_FAULT_INDEX, s, a.lengths[s]);
}

static __device__ __forceinline__ bool wf_attention_sees(const wf_attention_problem &a,
                                                         int64_t query, int64_t key)
{
    return !(a.causal && key > query) && !(a.window > 0 && query - key >= a.window);
}

/* Offsets of key j in k and v; negative if the token cannot see it. An invalid page is a fault. */
static __device__ __forceinline__ longlong2 wf_attention_key(const wf_attention_problem &a,
                                                             const wf_attention_stretch &s,
                                                             int kv_head, int position, int64_t j)
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

/* The first key of the first group that the token may see:
 * groups behind its window change nothing. */
static __device__ __forceinline__ int64_t wf_attention_first(const wf_attention_problem &a,
                                                             int token)
{
    const int64_t behind = a.positions[token] - a.window + 1;
    return a.table && a.window > 0 && behind > 0 ? behind / WF_ATTENTION_GROUP * WF_ATTENTION_GROUP
                                                 : 0;
}

/* ---- Online softmax ----
 *
 * nvcc may fuse a * b + c, and decides it in every kernel anew. It never fuses the intrinsics that
 * end with _rn, so the kernels round alike. */

static __device__ __forceinline__ float wf_attention_score(const wf_attention_problem &a,
                                                           float product)
{
    const float s = __fmul_rn(product, a.scale);
    return a.cap != 0 ? __fmul_rn(a.cap, tanhf(s / a.cap)) : s;
}

/* How wf_attention_merge adds the sums of a group to those of the groups before it. */
typedef struct {
    float most;       /* max of the scores so far */
    float keep, take; /* factors of the sums so far and of the group's */
} wf_attention_merging;

/* The exponent of e is score - base. Without a visible key the base is 0, because -Inf - -Inf is
 * NaN. */
static __device__ __forceinline__ float wf_attention_base(float most)
{
    return most == -INFINITY ? 0.0f : most;
}

/* Maxima of the groups before, and of this group; -Inf if no key is visible. */
static __device__ __forceinline__ wf_attention_merging wf_attention_merging_of(float before,
                                                                               float group)
{
    const float most = fmaxf(before, group), base = wf_attention_base(most);
    return {most, expf(before - base), expf(group - base)};
}

static __device__ __forceinline__ float wf_attention_merge(const wf_attention_merging &m,
                                                           float before, float group)
{
    return __fmaf_rn(before, m.keep, __fmul_rn(group, m.take));
}

/* Multiplies the sums of values at the end. Without a visible key the result is 0. */
static __device__ __forceinline__ float wf_attention_factor(float sum)
{
    return sum == 0 ? 0.0f : 1 / sum;
}

/* Adding 0 turns -0 into 0. */
static __device__ __forceinline__ float wf_attention_result(float value, float factor)
{
    return __fadd_rn(__fmul_rn(value, factor), 0.0f);
}

static __device__ __forceinline__ float wf_attention_lse(float most, float sum)
{
    return sum == 0 ? -INFINITY : __fadd_rn(most, logf(sum));
}

/* ---- Host ---- */

static inline wf_attention_rows wf_attention_tokens(const wf_view *v)
{
    wf_attention_rows x = {v->data, v->type, 0, v->stride[0], v->stride[1]};
    return x;
}

static inline wf_attention_rows wf_attention_pages(const wf_view *v)
{
    wf_attention_rows x = {v->data, v->type, v->stride[0], v->stride[1], v->stride[2]};
    return x;
}

/* Whether every row of elements of `bytes` bytes starts at a multiple of 16 bytes. */
static inline bool wf_attention_wide(const wf_attention_rows *x, int64_t bytes)
{
    return ((uintptr_t)x->data | (uintptr_t)((x->page | x->row | x->head) * bytes)) % 16 == 0;
}

/* in[0] is q. */
static inline wf_attention_problem wf_attention_open(const wf_launch *l, const wf_view *in)
{
    const wf_attr_attention *attr = (const wf_attr_attention *)l->attr;
    const wf_view *q = &in[0], *k = &in[1], *v = &in[2];
    wf_attention_problem a = {};
    a.q = wf_attention_tokens(q);
    a.k = k->rank == 4 ? wf_attention_pages(k) : wf_attention_tokens(k);
    a.v = k->rank == 4 ? wf_attention_pages(v) : wf_attention_tokens(v);
    a.starts = (const int32_t *)in[3].data;
    a.sequences = (int)in[3].dim[0] - 1;
    a.positions = (const int32_t *)in[4].data;
    a.n = (int)q->dim[0];
    a.heads = (int)q->dim[1];
    a.kv_heads = (int)k->dim[k->rank - 2];
    a.group = a.heads / a.kv_heads;
    a.d = (int)q->dim[2];
    a.d_v = (int)v->dim[v->rank - 1];
    a.scale = (float)(attr->scale != 0 ? attr->scale : 1 / sqrt((double)a.d));
    a.cap = (float)attr->softcap;
    a.causal = attr->causal != 0;
    a.window = attr->window;
    return a;
}

/* The same for the forward op: with its outputs, and pages if it has them. */
static inline wf_attention_problem wf_attention_open_forward(const wf_launch *l)
{
    wf_attention_problem a = wf_attention_open(l, l->in);
    a.o = wf_attention_tokens(&l->out[0]);
    a.lse = (float *)l->out[1].data;
    a.lse_row = l->out[1].stride[0];
    a.fault = l->fault;
    if (l->nin > 5) {
        a.table = (const int32_t *)l->in[5].data;
        a.table_row = l->in[5].stride[0];
        a.lengths = (const int32_t *)l->in[6].data;
        a.longest = l->in[5].dim[1] * l->in[1].dim[1];
        a.pool = (int)l->in[1].dim[0];
        a.page = (int)l->in[1].dim[1];
    }
    return a;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * update.cu - ops that update states in place: assign, accumulate, adamw, sgd, lion. kv_append is
 * in append.cu.
 *
 * Output i aliases input i, the state. Floats are widened to f32, updated and rounded back. apply,
 * lr, step and scale are read from device memory; apply = 0 leaves every bit unchanged.
 *
 * One launch updates many tensors: each block handles one portion of equal size. Elements are
 * independent, so bits do not depend on the cut. AdamW with f32 states reads 16 and writes 12 bytes
 * per parameter, 14 with a narrow copy.
 */
#include "device/cuda/update.cuh"

enum {
    THREADS = 256,    /* per block */
    PORTION = 4096,   /* elements per block */
    MOST = WF_MAX_OUT /* most pairs per launch */
};

/* The tensor of this block. first[i] is the first block of tensor i. */
static __device__ __forceinline__ int tensor_of(const uint32_t *first, int count)
{
    int i = 0;
    while (i + 1 < count && blockIdx.x >= first[i + 1])
        i++;
    return i;
}

/* Blocks for a tensor. */
static uint32_t portions(int64_t elements)
{
    return (uint32_t)((elements + PORTION - 1) / PORTION);
}

static bool aligned(const void *p, size_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

static int bytes_of(wf_type type)
{
    return wf_type_get(type)->block_bytes;
}

/* ---- assign and accumulate: (state_0, ..., x_0, ..., apply?) ---- */

/* How to combine a state and an operand. */
typedef enum {
    PAIR_COPY, /* copy raw units */
    PAIR_INTS, /* add i32 */
    PAIR_FLOATS
} pair_way;

/* One state and its operand. */
typedef struct {
    void *state;
    const void *x;
    int64_t count; /* elements, or units of PAIR_COPY */
} pair;

/* Kernel argument: the tensors of one launch. */
typedef struct {
    const uint8_t *apply; /* NULL: always */
    int count;
    uint32_t first[MOST + 1]; /* [count + 1] first block of each tensor, and the number of blocks */
    uint8_t way[MOST];        /* pair_way */
    uint8_t wide[MOST]; /* PAIR_COPY: bytes of a unit; else whether vector loads are possible */
    uint8_t state_type[MOST], x_type[MOST];
    pair item[MOST];
} pairs;

template <typename U>
static __device__ __forceinline__ void copy_units(const pair &p, int64_t begin, int64_t end)
{
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        ((U *)p.state)[i] = ((const U *)p.x)[i];
}

static __device__ __forceinline__ void add_ints(const pair &p, int64_t begin, int64_t end)
{
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        ((uint32_t *)p.state)[i] += ((const uint32_t *)p.x)[i]; /* unsigned: wraps on overflow */
}

template <typename S, typename X, bool ADD>
static __device__ __forceinline__ void move_floats(const pair &p, bool wide, int64_t begin,
                                                   int64_t end)
{
    constexpr int N = 4;
    S *state = (S *)p.state;
    const X *x = (const X *)p.x;
    int64_t done = begin;
    if (wide) {
        done = begin + (end - begin) / N * N;
#pragma unroll 4
        for (int64_t i = begin + threadIdx.x * N; i < done; i += THREADS * N) {
            float a[N], b[N];
            wf_load_floats<X, N>(x + i, b);
            if (ADD)
                wf_load_floats<S, N>(state + i, a);
#pragma unroll
            for (int k = 0; k < N; k++)
                b[k] = ADD ? a[k] + b[k] : b[k];
            wf_store_floats<S, N>(state + i, b);
        }
    }
    for (int64_t i = done + threadIdx.x; i < end; i += THREADS)
        state[i] = wf_round<S>((ADD ? wf_load(state[i]) : 0) + wf_load(x[i]));
}

template <typename S, bool ADD>
static __device__ __forceinline__ void move_floats_of(const pair &p, int x_type, bool wide,
                                                      int64_t begin, int64_t end)
{
    if (x_type == WF_F32)
        move_floats<S, float, ADD>(p, wide, begin, end);
    else if (x_type == WF_BF16)
        move_floats<S, wf_bf16, ADD>(p, wide, begin, end);
    else
        move_floats<S, wf_f16, ADD>(p, wide, begin, end);
}

template <bool ADD> static __global__ void __launch_bounds__(THREADS) update_pairs(pairs u)
{
    if (u.apply && *u.apply == 0) /* uniform over the grid: all blocks read the same byte */
        return;
    const int t = tensor_of(u.first, u.count);
    const pair p = u.item[t];
    const int64_t begin = (int64_t)(blockIdx.x - u.first[t]) * PORTION;
    const int64_t end = begin + PORTION < p.count ? begin + PORTION : p.count;
    const int wide = u.wide[t];
    if (u.way[t] == PAIR_COPY) {
        if (wide == 16)
            copy_units<uint4>(p, begin, end);
        else if (wide == 4)
            copy_units<uint32_t>(p, begin, end);
        else if (wide == 2)
            copy_units<uint16_t>(p, begin, end);
        else
            copy_units<uint8_t>(p, begin, end);
    } else if (u.way[t] == PAIR_INTS) {
        add_ints(p, begin, end);
    } else if (u.state_type[t] == WF_F32) {
        move_floats_of<float, ADD>(p, u.x_type[t], wide, begin, end);
    } else if (u.state_type[t] == WF_BF16) {
        move_floats_of<wf_bf16, ADD>(p, u.x_type[t], wide, begin, end);
    } else {
        move_floats_of<wf_f16, ADD>(p, u.x_type[t], wide, begin, end);
    }
}

/* The largest unit in bytes that suits both addresses. */
static int unit_of(const pair *p, int64_t bytes)
{
    int unit = 16;
    while (!aligned(p->state, unit) || !aligned(p->x, unit) || bytes % unit != 0)
        unit = unit == 16 ? 4 : unit / 2;
    return unit;
}

static void describe_pair(pairs *u, int i, const wf_view *state, const wf_view *x, bool add)
{
    pair *p = &u->item[i];
    *p = pair{state->data, x->data, wf_view_count(state)};
    u->state_type[i] = (uint8_t)state->type;
    u->x_type[i] = (uint8_t)x->type;
    if (!add && state->type == x->type) {
        const int64_t bytes = p->count * bytes_of(state->type);
        u->way[i] = PAIR_COPY;
        u->wide[i] = (uint8_t)unit_of(p, bytes);
        p->count = bytes / u->wide[i];
    } else {
        u->way[i] = state->type == WF_I32 ? PAIR_INTS : PAIR_FLOATS;
        u->wide[i] =
            aligned(p->state, 4 * bytes_of(state->type)) && aligned(p->x, 4 * bytes_of(x->type));
    }
    u->first[i + 1] = u->first[i] + portions(p->count);
}

static wf_status launch_pairs(const wf_launch *l, bool add)
{
    pairs u = {};
    u.count = l->nout;
    u.apply = l->nin > 2 * l->nout ? (const uint8_t *)l->in[2 * l->nout].data : NULL;
    for (int i = 0; i < l->nout; i++)
        describe_pair(&u, i, &l->in[i], &l->in[l->nout + i], add);
    const uint32_t blocks = u.first[u.count];
    if (blocks > 0 && add)
        WF_RUN(update_pairs<true>, blocks, THREADS, 0, wf_cuda_stream(l))(u);
    else if (blocks > 0)
        WF_RUN(update_pairs<false>, blocks, THREADS, 0, wf_cuda_stream(l))(u);
    return wf_cuda_launched(l);
}

static wf_status launch_assign(const wf_launch *l)
{
    return launch_pairs(l, false);
}

static wf_status launch_accumulate(const wf_launch *l)
{
    return launch_pairs(l, true);
}

/* ---- Optimizers: states of one parameter and its gradient ---- */

enum { PARAMS = WF_MAX_OUT / 3 /* most parameters per launch */ };

/* One parameter with its states. */
typedef struct {
    wf_cuda_any state[3], grad;
    wf_cuda_any copy; /* receives state[0] rounded; kernels with COPY only */
    int64_t count;
    bool wide; /* states are f32, and all allow loads of 4 elements */
} param;

typedef struct {
    const float *lr, *scale;
    const int32_t *step; /* adamw only; NULL: the op has no step */
    const uint8_t *apply;
    int count;
    uint32_t first[PARAMS + 1]; /* [count + 1] first block of each parameter */
    param item[PARAMS];
} params;

/* An optimizer. prepare runs once per thread; false: nothing to do. change updates the states s[]
 * of one element from its gradient. */
struct adamw {
    enum { STATES = 3 };
    float beta1, beta2, rest1, rest2, eps; /* rest1 = 1 - beta1, rest2 = 1 - beta2 */
    double log_beta1, log_beta2, weight_decay;
    /* Set by prepare: the values that change from step to step. */
    float scale, keep, step_size, root_bias2;
    uint64_t *fault;

    /* 1 - beta^step by expm1, which avoids cancellation; the host computes the logarithms. A step
     * below 1 is a fault. */
    __device__ __forceinline__ bool prepare(const params &u)
    {
        const int32_t step = *u.step;
        const float lr = *u.lr;
        scale = *u.scale;
        /* In double: 1 - lr * weight_decay is close to 1. */
        keep = (float)(1 - lr * weight_decay);
        step_size = lr / -expm1f((float)(step * log_beta1));
        root_bias2 = sqrtf(-expm1f((float)(step * log_beta2)));
        if (step < 1 && blockIdx.x == 0 && threadIdx.x == 0)
            wf_fault(fault, WF_CUDA_FAULT_INDEX, 0, step);
        return step >= 1;
    }

    /* The arithmetic of PyTorch's AdamW. */
    __device__ __forceinline__ void change(float *s, float grad) const
    {
        const float g = grad * scale;
        s[1] = beta1 * s[1] + rest1 * g;
        s[2] = beta2 * s[2] + rest2 * g * g;
        const float root = sqrtf(s[2]) / root_bias2 + eps;
        s[0] = s[0] * keep - step_size * s[1] / root;
    }
};

template <bool MOVING> struct sgd {
    enum { STATES = MOVING ? 2 : 1 };
    float momentum, decay;
    bool nesterov;
    float lr, scale;

    __device__ __forceinline__ bool prepare(const params &u)
    {
        lr = *u.lr;
        scale = *u.scale;
        return true;
    }

    /* The arithmetic of PyTorch's SGD. */
    __device__ __forceinline__ void change(float *s, float grad) const
    {
        float g = grad * scale + decay * s[0];
        if constexpr (MOVING) {
            s[1] = momentum * s[1] + g;
            g = nesterov ? g + momentum * s[1] : s[1];
        }
        s[0] -= lr * g;
    }
};

struct lion {
    enum { STATES = 2 };
    float beta1, beta2, rest1, rest2;
    double weight_decay;
    float lr, scale, keep;

    __device__ __forceinline__ bool prepare(const params &u)
    {
        lr = *u.lr;
        scale = *u.scale;
        keep = (float)(1 - lr * weight_decay);
        return true;
    }

    __device__ __forceinline__ void change(float *s, float grad) const
    {
        const float g = grad * scale, way = beta1 * s[1] + rest1 * g;
        s[0] = s[0] * keep - (way > 0 ? lr : way < 0 ? -lr : 0);
        s[1] = beta2 * s[1] + rest2 * g;
    }
};

/* Stores four elements of state 0, rounded to the copy's 2-byte type. */
static __device__ __forceinline__ void copy_wide(const wf_cuda_any &copy, int64_t i, const float *x)
{
    if (copy.type == WF_BF16)
        wf_store_floats<wf_bf16, 4>((wf_bf16 *)copy.data + i, x);
    else
        wf_store_floats<wf_f16, 4>((wf_f16 *)copy.data + i, x);
}

/* Updates elements [begin, end) of f32 states, four at a time, with gradients of type G. */
template <bool COPY, typename G, typename O>
static __device__ __forceinline__ void change_wide(const O &o, const param &p, int64_t begin,
                                                   int64_t end)
{
    constexpr int N = 4;
    const G *grad = (const G *)p.grad.data;
#pragma unroll 2
    for (int64_t i = begin + threadIdx.x * N; i < end; i += THREADS * N) {
        float s[O::STATES][N], g[N];
        wf_load_floats<G, N>(grad + i, g);
#pragma unroll
        for (int k = 0; k < O::STATES; k++)
            wf_load_floats<float, N>((const float *)p.state[k].data + i, s[k]);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float one[O::STATES];
#pragma unroll
            for (int k = 0; k < O::STATES; k++)
                one[k] = s[k][j];
            o.change(one, g[j]);
#pragma unroll
            for (int k = 0; k < O::STATES; k++)
                s[k][j] = one[k];
        }
#pragma unroll
        for (int k = 0; k < O::STATES; k++)
            wf_store_floats<float, N>((float *)p.state[k].data + i, s[k]);
        if constexpr (COPY)
            copy_wide(p.copy, i, s[0]);
    }
}

/* The same one by one, for any types. */
template <bool COPY, typename O>
static __device__ __forceinline__ void change_any(const O &o, const param &p, int64_t begin,
                                                  int64_t end)
{
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        float s[O::STATES];
#pragma unroll
        for (int k = 0; k < O::STATES; k++)
            s[k] = wf_any_load(p.state[k], i);
        o.change(s, wf_any_load(p.grad, i));
#pragma unroll
        for (int k = 0; k < O::STATES; k++)
            wf_any_store(p.state[k], i, s[k]);
        if constexpr (COPY)
            wf_any_store(p.copy, i, s[0]);
    }
}

template <bool COPY, typename O>
static __global__ void __launch_bounds__(THREADS) optimize(params u, O o)
{
    if (*u.apply == 0 || !o.prepare(u))
        return;
    const int t = tensor_of(u.first, u.count);
    const param &p = u.item[t];
    const int64_t begin = (int64_t)(blockIdx.x - u.first[t]) * PORTION;
    const int64_t end = begin + PORTION < p.count ? begin + PORTION : p.count;
    const int64_t whole = p.wide ? begin + (end - begin) / 4 * 4 : begin;
    if (p.grad.type == WF_F32)
        change_wide<COPY, float>(o, p, begin, whole);
    else if (p.grad.type == WF_BF16)
        change_wide<COPY, wf_bf16>(o, p, begin, whole);
    else
        change_wide<COPY, wf_f16>(o, p, begin, whole);
    change_any<COPY>(o, p, whole, end);
}

/* Sets the operands of `count` parameters. Operand k of parameter i is input i + k count: the
 * states, with COPY the copies, the gradients. lr, step (if the op has one), scale and apply
 * follow. */
template <bool COPY, typename O>
static wf_status launch_optimizer(const wf_launch *l, int count, bool has_step, const O &o)
{
    const int states = O::STATES, grads = states + (COPY ? 1 : 0);
    const wf_view *rest = &l->in[(grads + 1) * count];
    params u = {};
    u.count = count;
    u.lr = (const float *)rest[0].data;
    u.step = has_step ? (const int32_t *)rest[1].data : NULL;
    u.scale = (const float *)rest[has_step ? 2 : 1].data;
    u.apply = (const uint8_t *)rest[has_step ? 3 : 2].data;
    for (int i = 0; i < count; i++) {
        param *p = &u.item[i];
        p->count = wf_view_count(&l->in[i]);
        p->grad = wf_cuda_any_of(&l->in[i + grads * count]);
        p->wide = aligned(p->grad.data, 4 * bytes_of(p->grad.type));
        for (int k = 0; k < states; k++) {
            p->state[k] = wf_cuda_any_of(&l->in[i + k * count]);
            p->wide = p->wide && p->state[k].type == WF_F32 && aligned(p->state[k].data, 16);
        }
        if (COPY) {
            p->copy = wf_cuda_any_of(&l->in[i + states * count]);
            p->wide = p->wide && aligned(p->copy.data, 8);
        }
        u.first[i + 1] = u.first[i] + portions(p->count);
    }
    if (u.first[count] > 0)
        WF_RUN((optimize<COPY, O>), u.first[count], THREADS, 0, wf_cuda_stream(l))(u, o);
    return wf_cuda_launched(l);
}

static wf_status launch_adamw(const wf_launch *l)
{
    const wf_attr_adamw *attr = (const wf_attr_adamw *)l->attr;
    adamw o = {};
    o.beta1 = (float)attr->beta1;
    o.beta2 = (float)attr->beta2;
    o.rest1 = (float)(1 - attr->beta1);
    o.rest2 = (float)(1 - attr->beta2);
    o.eps = (float)attr->eps;
    o.log_beta1 = log(attr->beta1);
    o.log_beta2 = log(attr->beta2);
    o.weight_decay = attr->weight_decay;
    o.fault = l->fault;
    return attr->copies ? launch_optimizer<true>(l, l->nout / 4, true, o)
                        : launch_optimizer<false>(l, l->nout / 3, true, o);
}

template <bool MOVING> static wf_status launch_sgd_of(const wf_launch *l)
{
    const wf_attr_sgd *attr = (const wf_attr_sgd *)l->attr;
    sgd<MOVING> o = {};
    o.momentum = (float)attr->momentum;
    o.decay = (float)attr->weight_decay;
    o.nesterov = attr->nesterov != 0;
    return launch_optimizer<false>(l, 1, false, o);
}

static wf_status launch_sgd(const wf_launch *l)
{
    return l->nout > 1 ? launch_sgd_of<true>(l) : launch_sgd_of<false>(l);
}

static wf_status launch_lion(const wf_launch *l)
{
    const wf_attr_lion *attr = (const wf_attr_lion *)l->attr;
    lion o = {};
    o.beta1 = (float)attr->beta1;
    o.beta2 = (float)attr->beta2;
    o.rest1 = (float)(1 - attr->beta1);
    o.rest2 = (float)(1 - attr->beta2);
    o.weight_decay = attr->weight_decay;
    return launch_optimizer<false>(l, 1, false, o);
}

/* clang-format off */
#define ROW(name_, with_, types_, ...)                                                             \
    {.op = WF_OP_##name_, .name = "portions", .types = types_, __VA_ARGS__ .launch = launch_##with_}
extern "C" const wf_kernel wf_cuda_update_kernels[] = {
    ROW(assign, assign, WF_TYPES_PLAIN, .accepts = wf_update_types_meet,),
    ROW(accumulate, accumulate, WF_TYPES_NUMBER, .accepts = wf_update_types_meet,),
    ROW(accumulate_many, accumulate, WF_TYPES_NUMBER, .accepts = wf_update_types_meet,),
    ROW(adamw, adamw, WF_TYPES_FLOAT),
    ROW(adamw_many, adamw, WF_TYPES_FLOAT),
    ROW(sgd, sgd, WF_TYPES_FLOAT),
    ROW(lion, lion, WF_TYPES_FLOAT),
    {.op = WF_OP_kv_append, .name = "tokens", .types = WF_TYPES_FLOAT, .strided = true,
     .workspace = wf_cuda_kv_append_workspace, .launch = wf_cuda_kv_append},
    {},
};

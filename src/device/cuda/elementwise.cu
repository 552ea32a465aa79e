/* SPDX-License-Identifier: MIT */
/*
 * elementwise.cu - the kernels of elementwise ops.
 *
 * ops.def has the value of each unary and binary op as an expression of f32 (and of int32 where
 * integers are allowed). One kernel applies it: in packs of 16 bytes where operands are contiguous
 * or repeat (each.cuh), else one element at a time.
 *
 * Grid: one thread per UNROLL(V) items, 256 threads per block; a block covers THREADS * UNROLL(V)
 * consecutive items, thread t those at t, t + 256, ... so that loads coalesce. Each operand is read
 * and each result is written once. Elements are independent: bits depend on the inputs only.
 */
#include "device/cuda/activation.cuh"
#include "device/cuda/each.cuh"
#include "device/cuda/random.cuh"

#define THREADS 256 /* threads per block */

/* ---- The unary and binary ops of ops.def, as functions of one element ---- */

/* A rule has `of`, the op applied to one element in f32 (or int32). */
#define WF_UNARY(name, ...)                                 \
    struct name##_rule {                                    \
        static __device__ __forceinline__ float of(float x) \
        {                                                   \
            return wf_apply_##name(x);                      \
        }                                                   \
    };
#define RULE_FLOAT(name, f32, i32)                                   \
    struct name##_rule {                                             \
        static __device__ __forceinline__ float of(float a, float b) \
        {                                                            \
            return f32;                                              \
        }                                                            \
    };
#define RULE_OF(name, float_result, int_result, f32, i32)                     \
    struct name##_rule {                                                      \
        static __device__ __forceinline__ float_result of(float a, float b)   \
        {                                                                     \
            return f32;                                                       \
        }                                                                     \
        static __device__ __forceinline__ int_result of(int32_t a, int32_t b) \
        {                                                                     \
            return (int_result)(i32);                                         \
        }                                                                     \
    };
#define RULE_NUMBER(name, f32, i32) RULE_OF(name, float, int32_t, f32, i32)
#define RULE_COMPARE(name, f32, i32) RULE_OF(name, uint8_t, uint8_t, f32, i32)

#define WF_BINARY(name, doc, types, f32, i32, ...) RULE_##types(name, f32, i32)
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY

/* ---- Ops as the kernel takes them: types of operands and results, and one element ---- */

/* The type in which an element is computed: floats as f32, all others as they are stored. */
static __device__ __forceinline__ float number(float x)
{
    return x;
}
static __device__ __forceinline__ float number(wf_bf16 x)
{
    return wf_load(x);
}
static __device__ __forceinline__ float number(wf_f16 x)
{
    return wf_load(x);
}
template <typename T> static __device__ __forceinline__ T number(T x)
{
    return x;
}

/* Rounds a computed element to its type in memory. */
template <typename T> struct stored {
    static __device__ __forceinline__ T of(T x)
    {
        return x;
    }
};
template <> struct stored<wf_bf16> {
    static __device__ __forceinline__ wf_bf16 of(float x)
    {
        return wf_round<wf_bf16>(x);
    }
};
template <> struct stored<wf_f16> {
    static __device__ __forceinline__ wf_f16 of(float x)
    {
        return wf_round<wf_f16>(x);
    }
};

/* Types of operand 0 (A), of the operands after it (B) and of the results (R), and their
 * numbers. */
template <typename A_, typename B_, typename R_, int IN_, int OUT_ = 1> struct signature {
    typedef A_ A;
    typedef B_ B;
    typedef R_ R;
    enum { IN = IN_, OUT = OUT_ };
};

template <typename Rule, typename T> struct unary : signature<T, T, T, 1> {
    __device__ __forceinline__ void operator()(T x, const T *, T *y) const
    {
        y[0] = stored<T>::of(Rule::of(number(x)));
    }
};

template <typename Rule, typename T, typename R> struct binary : signature<T, T, R, 2> {
    __device__ __forceinline__ void operator()(T a, const T *b, R *y) const
    {
        y[0] = stored<R>::of(Rule::of(number(a), number(b[0])));
    }
};

template <typename T> struct scale : signature<T, T, T, 1> {
    float factor;
    __device__ __forceinline__ void operator()(T x, const T *, T *y) const
    {
        y[0] = stored<T>::of(number(x) * factor);
    }
};

/* The two operands are moved as they are, whatever they mean. */
template <typename T> struct where : signature<uint8_t, T, T, 3> {
    __device__ __forceinline__ void operator()(uint8_t condition, const T *x, T *y) const
    {
        y[0] = condition ? x[0] : x[1];
    }
};

template <typename T> struct gelu_grad : signature<T, T, T, 2> {
    __device__ __forceinline__ void operator()(T dy, const T *x, T *dx) const
    {
        dx[0] = stored<T>::of(number(dy) * wf_gelu_slope(number(x[0])));
    }
};

template <wf_glu_kind KIND> static __device__ __forceinline__ float gate_of(float x)
{
    return KIND == WF_GLU_SILU   ? wf_apply_silu(x)
           : KIND == WF_GLU_GELU ? wf_apply_gelu(x)
                                 : wf_apply_gelu_erf(x);
}

template <wf_glu_kind KIND> static __device__ __forceinline__ float gate_slope(float x)
{
    return KIND == WF_GLU_SILU   ? wf_silu_slope(x)
           : KIND == WF_GLU_GELU ? wf_gelu_slope(x)
                                 : wf_gelu_erf_slope(x);
}

template <wf_glu_kind KIND, typename T> struct glu : signature<T, T, T, 2> {
    __device__ __forceinline__ void operator()(T gate, const T *up, T *y) const
    {
        y[0] = stored<T>::of(gate_of<KIND>(number(gate)) * number(up[0]));
    }
};

/* (dy, gate, up) -> dgate, dup */
template <wf_glu_kind KIND, typename T> struct glu_grad : signature<T, T, T, 3, 2> {
    __device__ __forceinline__ void operator()(T dy, const T *x, T *dx) const
    {
        const float d = number(dy), gate = number(x[0]), up = number(x[1]);
        dx[0] = stored<T>::of(d * up * gate_slope<KIND>(gate));
        dx[1] = stored<T>::of(d * gate_of<KIND>(gate));
    }
};

/* ---- The kernel ---- */

#define MAX_IN 3
#define MAX_OUT 2

/* Device addresses. */
typedef struct {
    const void *in[MAX_IN];
    void *out[MAX_OUT]; /* dense; NULL: the result has no reader */
} operands;

/* Items per thread. All their packs are loaded before the first one is stored, to keep several
 * loads in flight. */
#define UNROLL(V) ((V) == 1 ? 4 : 2)

template <typename F, int V>
static __global__ void __launch_bounds__(THREADS) each_kernel(wf_each<F::IN> w, operands o, F f)
{
    typedef typename F::A A;
    typedef typename F::B B;
    typedef typename F::R R;
    constexpr int U = UNROLL(V), MORE = F::IN > 1 ? F::IN - 1 : 1;
    const int64_t first = (int64_t)blockIdx.x * (THREADS * U) + threadIdx.x;
    wf_grid_begin();
    if (first >= w.count)
        return;
    wf_pack<A, V> a[U];
    wf_pack<B, V> b[U][MORE];
#pragma unroll
    for (int u = 0; u < U; u++) {
        /* Items past the end load the thread's first item again and are not stored. */
        const wf_places<F::IN> p =
            wf_each_at(w, wf_each_within(first + u * THREADS, w.count, first));
        a[u] = wf_each_load<A, V>(w, 0, (const A *)o.in[0], p.at[0]);
#pragma unroll
        for (int i = 1; i < F::IN; i++)
            b[u][i - 1] = wf_each_load<B, V>(w, i, (const B *)o.in[i], p.at[i]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        const int64_t item = first + u * THREADS;
        if (item >= w.count)
            break;
        wf_pack<R, V> y[F::OUT];
#pragma unroll
        for (int k = 0; k < V; k++) {
            B x[MORE];
            R result[F::OUT];
#pragma unroll
            for (int i = 0; i < F::IN - 1; i++)
                x[i] = b[u][i].x[k];
            f(a[u].x[k], x, result);
#pragma unroll
            for (int i = 0; i < F::OUT; i++)
                y[i].x[k] = result[i];
        }
#pragma unroll
        for (int i = 0; i < F::OUT; i++)
            /* With one output, the launch has checked that it is read. */
            if (F::OUT == 1 || o.out[i])
                wf_store_pack<R, V>((R *)o.out[i] + item * V, y[i]);
    }
}

template <int V, typename F>
static void run_packs(const wf_launch *l, const wf_walk *w, const operands *o, F f)
{
    const int64_t items = wf_walk_count(w) / V, per_block = THREADS * UNROLL(V);
    WF_RUN_EARLY((each_kernel<F, V>), (unsigned)((items + per_block - 1) / per_block), THREADS, 0,
                 l)
    (wf_each_of<F::IN>(w, V), *o, f);
}

/* Addresses after the first `by` elements of the only axis. Operands that repeat have step 0 and
 * stay. */
static operands advanced(const wf_walk *w, operands o, int64_t by, const int *in_bytes, int nin,
                         int out_bytes)
{
    for (int i = 0; i < nin; i++)
        o.in[i] = (const char *)o.in[i] + by * wf_walk_step(w, i) * in_bytes[i];
    for (int i = 0; i < MAX_OUT; i++)
        if (o.out[i])
            o.out[i] = (char *)o.out[i] + by * out_bytes;
    return o;
}

/* Runs packs where all operands allow it. If the operands are a single axis, the last few elements
 * that do not fill a pack run in a second launch; with more axes, the last axis must be whole
 * packs. */
template <typename F> static void run(const wf_launch *l, F f)
{
    typedef typename F::A A;
    typedef typename F::B B;
    typedef typename F::R R;
    /* The widest type decides the pack: no operand exceeds 16 bytes. */
    constexpr int bytes = sizeof(A) > sizeof(B) ? sizeof(A) : sizeof(B);
    constexpr int V = 16 / (bytes > (int)sizeof(R) ? bytes : (int)sizeof(R));
    const int in_bytes[MAX_IN] = {sizeof(A), sizeof(B), sizeof(B)};
    operands o = {};
    wf_walk w = wf_walk_over(l->out[0].rank, l->out[0].dim);
    bool wanted = false, packs = true;
    for (int i = 0; i < F::OUT; i++) {
        o.out[i] = l->out[i].data;
        wanted |= o.out[i] != NULL;
        packs &= (uintptr_t)o.out[i] % (V * sizeof(R)) == 0;
    }
    if (!wanted || wf_walk_count(&w) == 0)
        return;
    for (int i = 0; i < F::IN; i++) {
        o.in[i] = l->in[i].data;
        wf_walk_add(&w, &l->in[i]);
    }
    wf_walk_fold(&w);
    for (int i = 0; i < F::IN; i++)
        packs &= wf_walk_packs(&w, i, o.in[i], in_bytes[i], V);

    const int last = w.rank - 1;
    const int64_t rest = w.dim[last] % V;
    if (!packs || (rest > 0 && w.rank > 1)) {
        run_packs<1>(l, &w, &o, f);
        return;
    }
    const int64_t whole = w.dim[last] - rest;
    w.dim[last] = whole;
    if (whole > 0)
        run_packs<V>(l, &w, &o, f);
    w.dim[last] = rest;
    o = advanced(&w, o, whole, in_bytes, F::IN, sizeof(R));
    if (rest > 0)
        run_packs<1>(l, &w, &o, f);
}

/* ---- dropout ---- */

/* Drops an element where its random number is below p. The number depends on key, stream and
 * position only, not on the launch. A dropped element becomes 0 even if it was NaN. `least` is p in
 * units of 2^-24: the numbers have 24 bits. `before` is the index of the first element of this
 * launch. */
template <typename T, int V>
static __global__ void __launch_bounds__(THREADS)
    dropout_kernel(wf_each<1> w, const T *x, const int32_t *key, T *y, int64_t before,
                   uint32_t stream, uint32_t least, float keep)
{
    constexpr int U = UNROLL(V);
    const int64_t first = (int64_t)blockIdx.x * (THREADS * U) + threadIdx.x;
    if (first >= w.count)
        return;
    wf_pack<T, V> pack[U];
#pragma unroll
    for (int u = 0; u < U; u++)
        pack[u] = wf_each_load<T, V>(
            w, 0, x, wf_each_at(w, wf_each_within(first + u * THREADS, w.count, first)).at[0]);
#pragma unroll
    for (int u = 0; u < U; u++) {
        const int64_t item = first + u * THREADS, element = before + item * V;
#pragma unroll
        for (int b = 0; b < (V + 3) / 4; b++) {
            const wf_random_block r = wf_random(key, stream, (uint64_t)element / 4 + b);
            if (V == 1) { /* one word of the block belongs to this element */
                const int which = (int)(element % 4);
                const uint32_t word = which == 0   ? r.word[0]
                                      : which == 1 ? r.word[1]
                                      : which == 2 ? r.word[2]
                                                   : r.word[3];
                pack[u].x[0] = wf_round<T>(word >> 8 >= least ? wf_load(pack[u].x[0]) * keep : 0);
            } else {
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    T &e = pack[u].x[(4 * b + k) % V];
                    e = wf_round<T>(r.word[k] >> 8 >= least ? wf_load(e) * keep : 0);
                }
            }
        }
        if (item < w.count)
            wf_store_pack<T, V>(y + item * V, pack[u]);
    }
}

template <int V, typename T>
static void run_dropout(const wf_launch *l, const wf_walk *w, const T *x, int64_t before)
{
    const wf_attr_dropout *a = (const wf_attr_dropout *)l->attr;
    const int64_t items = wf_walk_count(w) / V, per_block = THREADS * UNROLL(V);
    const uint32_t least = (uint32_t)ceil((double)(float)a->p * 0x1p24);
    WF_RUN((dropout_kernel<T, V>), (unsigned)((items + per_block - 1) / per_block), THREADS, 0,
           wf_cuda_stream(l))
    (wf_each_of<1>(w, V), x, (const int32_t *)l->in[1].data, (T *)l->out[0].data + before, before,
     (uint32_t)a->stream, least, (float)(1 / (1 - a->p)));
}

static wf_status launch_dropout(const wf_launch *l)
{
    const wf_view *in = &l->in[0], *out = &l->out[0];
    wf_walk w = wf_walk_over(out->rank, out->dim);
    if (!out->data || wf_walk_count(&w) == 0)
        return WF_OK;
    wf_walk_add(&w, in);
    wf_walk_fold(&w);
    wf_with_float(in->type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = WF_WIDE(T);
        const T *x = (const T *)in->data;
        const int last = w.rank - 1;
        const int64_t rest = w.dim[last] % V, whole = w.dim[last] - rest;
        if (!wf_walk_packs(&w, 0, x, sizeof(T), V) || (uintptr_t)out->data % 16 != 0 ||
            (rest > 0 && w.rank > 1)) {
            run_dropout<1>(l, &w, x, 0);
            return;
        }
        w.dim[last] = whole;
        if (whole > 0)
            run_dropout<V>(l, &w, x, 0);
        w.dim[last] = rest;
        if (rest > 0)
            run_dropout<1>(l, &w, x + whole * wf_walk_step(&w, 0), whole);
    });
    return wf_cuda_launched(l);
}

/* ---- Launches ---- */

template <typename Rule> static wf_status launch_unary(const wf_launch *l)
{
    wf_with_float(l->in[0].type, [&](auto zero) { run(l, unary<Rule, decltype(zero)>()); });
    return wf_cuda_launched(l);
}

template <typename Rule> static wf_status launch_float(const wf_launch *l)
{
    wf_with_float(l->in[0].type, [&](auto zero) {
        using T = decltype(zero);
        run(l, binary<Rule, T, T>());
    });
    return wf_cuda_launched(l);
}

template <typename Rule> static wf_status launch_number(const wf_launch *l)
{
    if (l->in[0].type != WF_I32)
        return launch_float<Rule>(l);
    run(l, binary<Rule, int32_t, int32_t>());
    return wf_cuda_launched(l);
}

template <typename Rule> static wf_status launch_compare(const wf_launch *l)
{
    if (l->in[0].type == WF_I32)
        run(l, binary<Rule, int32_t, uint8_t>());
    else
        wf_with_float(l->in[0].type,
                      [&](auto zero) { run(l, binary<Rule, decltype(zero), uint8_t>()); });
    return wf_cuda_launched(l);
}

static wf_status launch_scale(const wf_launch *l)
{
    const wf_attr_scale *a = (const wf_attr_scale *)l->attr;
    wf_with_float(l->in[0].type, [&](auto zero) {
        scale<decltype(zero)> f = {};
        f.factor = (float)a->factor;
        run(l, f);
    });
    return wf_cuda_launched(l);
}

static wf_status launch_where(const wf_launch *l)
{
    /* Selects by size: where moves elements and never interprets them. */
    switch (wf_type_get(l->out[0].type)->block_bytes) {
    case 1: run(l, where<uint8_t>()); break;
    case 2: run(l, where<uint16_t>()); break;
    default: run(l, where<uint32_t>());
    }
    return wf_cuda_launched(l);
}

static wf_status launch_gelu_grad(const wf_launch *l)
{
    wf_with_float(l->in[0].type, [&](auto zero) { run(l, gelu_grad<decltype(zero)>()); });
    return wf_cuda_launched(l);
}

template <template <wf_glu_kind, typename> typename F>
static wf_status launch_gated(const wf_launch *l)
{
    const wf_attr_glu *a = (const wf_attr_glu *)l->attr;
    wf_with_float(l->in[0].type, [&](auto zero) {
        using T = decltype(zero);
        switch (a->kind) {
        case WF_GLU_SILU: run(l, F<WF_GLU_SILU, T>()); break;
        case WF_GLU_GELU: run(l, F<WF_GLU_GELU, T>()); break;
        default: run(l, F<WF_GLU_GELU_ERF, T>());
        }
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
#define ROW(name_, types_, launch_) \
    {.op = WF_OP_##name_, .name = "cuda", .types = types_, .strided = true, .in_place = 7,         \
     .launch = launch_},
#define ROW_FLOAT(name) ROW(name, WF_TYPES_FLOAT, launch_float<name##_rule>)
#define ROW_NUMBER(name) ROW(name, WF_TYPES_NUMBER, launch_number<name##_rule>)
#define ROW_COMPARE(name) ROW(name, WF_TYPES_NUMBER, launch_compare<name##_rule>)
#define WF_UNARY(name, ...) ROW(name, WF_TYPES_FLOAT, launch_unary<name##_rule>)
#define WF_BINARY(name, doc, types, ...) ROW_##types(name)
extern "C" const wf_kernel wf_cuda_elementwise_kernels[] = {
#include "graph/ops.def"
    ROW(scale, WF_TYPES_FLOAT, launch_scale)
    ROW(where, WF_TYPES_PLAIN, launch_where)
    ROW(gelu_grad, WF_TYPES_FLOAT, launch_gelu_grad)
    ROW(glu, WF_TYPES_FLOAT, launch_gated<glu>)
    ROW(glu_grad, WF_TYPES_FLOAT, launch_gated<glu_grad>)
    ROW(dropout, WF_TYPES_FLOAT, launch_dropout)
    {},
};

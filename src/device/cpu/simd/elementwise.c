/* SPDX-License-Identifier: MIT */
/*
 * elementwise.c - elementwise ops on floats.
 *
 * Each op is a function of vectors. For each float type, a function over a span is generated from
 * it: a stretch of elements that are contiguous in all operands. Operands that broadcast or have
 * gaps are copied to a buffer first, WF_CHUNK elements at a time; all others are used in place.
 * Most ops are limited by memory bandwidth, so every element is read and written once, in order.
 */
#include "base/thread.h"
#include "device/cpu/simd/math.h"
#include "device/walk.h"

#define MAX_IN 3
#define MAX_OUT 2

/* A stretch of contiguous elements. */
typedef struct {
    const void *in[MAX_IN];
    void *out[MAX_OUT]; /* NULL: the result has no reader */
    int64_t n;
    float factor; /* scale */
} span;

typedef void span_fn(const span *s);

static inline int width(wf_type type)
{
    return type == WF_F32 ? 4 : 2;
}

/* Lanes [i, i + n) of operand k. Whole vectors have no mask. */
static inline vf get(const span *s, wf_type type, int k, int64_t i, int n)
{
    const char *at = (const char *)s->in[k] + i * width(type);
    return n == WF_VL ? vf_load_as(type, at) : vf_load_as_n(type, at, n);
}

static inline void put(const span *s, wf_type type, int k, int64_t i, int n, vf y)
{
    char *at = (char *)s->out[k] + i * width(type);
    if (n == WF_VL)
        vf_store_as(type, at, y);
    else
        vf_store_as_n(type, at, y, n);
}

/* ---- The ops ---- */

static inline vf vf_maximum(vf a, vf b)
{
    /* vf_max returns its second operand if either is NaN, so only a NaN in b needs care. */
    return vf_select(vf_nan(b), b, vf_max(b, a));
}

static inline vf vf_minimum(vf a, vf b)
{
    return vf_select(vf_nan(b), b, vf_min(b, a));
}

static inline vf vf_gelu_grad(vf dy, vf x)
{
    return vf_mul(dy, vf_gelu_slope(x, vf_gelu_gate(x)));
}

#define BINARY(X) \
    X(add)        \
    X(sub)        \
    X(mul)        \
    X(div)        \
    X(maximum)    \
    X(minimum)    \
    X(gelu_grad)

/* ---- Spans: `step` makes lanes [i, i + n) of the result ---- */

typedef void step_fn(const span *s, wf_type type, int64_t i, int n);

static inline void over(const span *s, wf_type type, step_fn *step)
{
    int64_t i = 0;
    for (; i + WF_VL <= s->n; i += WF_VL)
        step(s, type, i, WF_VL);
    if (i < s->n)
        step(s, type, i, (int)(s->n - i));
}

/* One function for each type, in the order of `kinds`. */
#define SPANS(name)                        \
    static void name##_f32(const span *s)  \
    {                                      \
        over(s, WF_F32, name##_step);      \
    }                                      \
    static void name##_f16(const span *s)  \
    {                                      \
        over(s, WF_F16, name##_step);      \
    }                                      \
    static void name##_bf16(const span *s) \
    {                                      \
        over(s, WF_BF16, name##_step);     \
    }
#define KINDS(name)                         \
    {                                       \
        name##_f32, name##_f16, name##_bf16 \
    }

#define UNARY_SPANS(name)                                                         \
    static inline void name##_step(const span *s, wf_type type, int64_t i, int n) \
    {                                                                             \
        put(s, type, 0, i, n, vf_##name(get(s, type, 0, i, n)));                  \
    }                                                                             \
    SPANS(name)
#define BINARY_SPANS(name)                                                              \
    static inline void name##_step(const span *s, wf_type type, int64_t i, int n)       \
    {                                                                                   \
        put(s, type, 0, i, n, vf_##name(get(s, type, 0, i, n), get(s, type, 1, i, n))); \
    }                                                                                   \
    SPANS(name)

/* glu of (gate, up), and its gradient (dgate, dup) of (dy, gate, up). */
#define GLU_SPANS(name)                                                                  \
    static inline void glu_##name##_step(const span *s, wf_type type, int64_t i, int n)  \
    {                                                                                    \
        vf y = vf_mul(vf_##name(get(s, type, 0, i, n)), get(s, type, 1, i, n));          \
        put(s, type, 0, i, n, y);                                                        \
    }                                                                                    \
    static inline void grad_##name##_step(const span *s, wf_type type, int64_t i, int n) \
    {                                                                                    \
        vf dy = get(s, type, 0, i, n), x = get(s, type, 1, i, n);                        \
        vf up = get(s, type, 2, i, n), gate = vf_##name##_gate(x);                       \
        if (s->out[0])                                                                   \
            put(s, type, 0, i, n, vf_mul(vf_mul(dy, up), vf_##name##_slope(x, gate)));   \
        if (s->out[1])                                                                   \
            put(s, type, 1, i, n, vf_mul(dy, vf_mul(gate, x)));                          \
    }                                                                                    \
    SPANS(glu_##name)                                                                    \
    SPANS(grad_##name)

static inline void scale_step(const span *s, wf_type type, int64_t i, int n)
{
    put(s, type, 0, i, n, vf_mul(get(s, type, 0, i, n), vf_set(s->factor)));
}

WF_SIMD_UNARY(UNARY_SPANS)
BINARY(BINARY_SPANS)
WF_SIMD_GATED(GLU_SPANS)
SPANS(scale)

/* ---- The driver ---- */

typedef struct {
    const wf_launch *l;
    span_fn *fn;
    int nin;
    bool direct;  /* no operand needs a buffer */
    wf_walk walk; /* over the results, which are dense; operands: the inputs */
} job;

/* Returns n contiguous elements of v: in place, or copied to buf. */
static const void *lay_out(const wf_view *v, int64_t offset, int64_t step, int64_t n, wf_chunk *buf)
{
    if (step != 0 || n == 1) /* step 0: the operand repeats one element */
        return wf_chunk_load(v, offset, step, n, buf);
    if (v->type == WF_F32) {
        const float x = *(const float *)wf_view_at(v, offset);
        for (int64_t i = 0; i < n; i++)
            buf->f32[i] = x;
    } else {
        const uint16_t x = *(const uint16_t *)wf_view_at(v, offset);
        for (int64_t i = 0; i < n; i++)
            buf->u16[i] = x;
    }
    return buf;
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = arg;
    const wf_launch *l = j->l;
    wf_chunk buf[MAX_IN];
    span s = {0};
    if (l->node->op == WF_OP_scale)
        s.factor = (float)((const wf_attr_scale *)l->attr)->factor;
    wf_run r = wf_run_over(&j->walk, begin, end);
    for (int64_t at = begin; wf_run_next(&r, j->direct ? INT64_MAX : WF_CHUNK); at += r.n) {
        s.n = r.n;
        for (int i = 0; i < j->nin; i++)
            s.in[i] = lay_out(&l->in[i], r.offset[i], wf_walk_step(&j->walk, i), r.n, &buf[i]);
        for (int i = 0; i < l->nout; i++)
            s.out[i] = l->out[i].data ? wf_view_at(&l->out[i], at) : NULL;
        j->fn(&s);
    }
}

static wf_status run(const wf_launch *l, int nin, span_fn *const kinds[3])
{
    const wf_type type = l->out[0].type;
    job j = {.l = l, .nin = nin, .direct = true};
    bool wanted = false;
    for (int i = 0; i < l->nout; i++)
        wanted |= l->out[i].data != NULL;
    if (!wanted)
        return WF_OK;
    j.fn = kinds[type == WF_F32 ? 0 : type == WF_F16 ? 1 : 2];
    j.walk = wf_walk_over(l->out[0].rank, l->out[0].dim);
    for (int i = 0; i < nin; i++)
        wf_walk_add(&j.walk, &l->in[i]);
    wf_walk_fold(&j.walk);
    for (int i = 0; i < nin; i++)
        j.direct &= wf_walk_step(&j.walk, i) == 1;
    wf_parallel_for(l->threads, wf_walk_count(&j.walk), wf_grain(1), run_range, &j);
    return WF_OK;
}

/* clang-format off */
typedef struct {
    int nin;
    span_fn *kinds[3];
} rule;

#define UNARY_RULE(name) [WF_OP_##name] = {1, KINDS(name)},
#define BINARY_RULE(name) [WF_OP_##name] = {2, KINDS(name)},
static const rule rules[WF_OP_COUNT] = {
    WF_SIMD_UNARY(UNARY_RULE)
    UNARY_RULE(scale)
    BINARY(BINARY_RULE)
};

static span_fn *const glu_kinds[][3] = {
    [WF_GLU_SILU] = KINDS(glu_silu), [WF_GLU_GELU] = KINDS(glu_gelu),
    [WF_GLU_GELU_ERF] = KINDS(glu_gelu_erf),
};
static span_fn *const glu_grad_kinds[][3] = {
    [WF_GLU_SILU] = KINDS(grad_silu), [WF_GLU_GELU] = KINDS(grad_gelu),
    [WF_GLU_GELU_ERF] = KINDS(grad_gelu_erf),
};
/* clang-format on */

static wf_status launch(const wf_launch *l)
{
    return run(l, rules[l->node->op].nin, rules[l->node->op].kinds);
}

static wf_status launch_glu(const wf_launch *l)
{
    return run(l, 2, glu_kinds[((const wf_attr_glu *)l->attr)->kind]);
}

static wf_status launch_glu_grad(const wf_launch *l)
{
    return run(l, 3, glu_grad_kinds[((const wf_attr_glu *)l->attr)->kind]);
}

/* All operands and results have one type. */
static bool is_uniform(const wf_device *device, const wf_node *n)
{
    (void)device;
    for (int i = 0; i < n->nin; i++)
        if (n->in[i]->type != n->out[0].type)
            return false;
    return n->nout < 2 || n->out[1].type == n->out[0].type;
}

/* clang-format off */
#define ROW(name_, launch_)                                                                        \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true, .in_place = 7,  \
     .accepts = is_uniform, .launch = launch_},
#define PLAIN_ROW(name) ROW(name, launch)
const wf_kernel WF_SIMD(wf_cpu_elementwise)[] = {
    WF_SIMD_UNARY(PLAIN_ROW)
    BINARY(PLAIN_ROW)
    PLAIN_ROW(scale)
    ROW(glu, launch_glu)
    ROW(glu_grad, launch_glu_grad)
    {0},
};

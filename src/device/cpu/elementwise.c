/* SPDX-License-Identifier: MIT */
/*
 * elementwise.c - the reference kernels of elementwise ops.
 *
 * ops.def has the value of each unary and binary op as an expression of f32 (and of int32 where
 * integers are allowed). From it comes a function over a span, a stretch of contiguous elements.
 * One driver finds the spans in strided and broadcast operands and converts f16 and bf16 to f32 and
 * back. Dense f32 operands of one shape are a single span per thread.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/activation.h"
#include "device/cpu/random.h"
#include "device/cpu/row.h"
#include "device/walk.h"

#define MAX_IN 3
#define MAX_OUT 2

typedef struct {
    const void *in[MAX_IN];
    void *out[MAX_OUT]; /* NULL: the result has no reader */
    int64_t first, n;   /* which elements of the result these are */
    const wf_launch *l;
} span;

typedef void span_fn(const span *s);

/* Promises the compiler that the iterations over a span are independent, also where the result
 * overwrites an operand. */
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

/* ---- The unary and binary ops of ops.def ---- */

/* name_f32: applies the op's expression to a span. */
#define WF_UNARY(name, doc, f32, ...)     \
    static void name##_f32(const span *s) \
    {                                     \
        const float *in = s->in[0];       \
        float *out = s->out[0];           \
        const int64_t n = s->n;           \
        INDEPENDENT                       \
        for (int64_t i = 0; i < n; i++) { \
            const float x = in[i];        \
            out[i] = f32;                 \
        }                                 \
    }
#define BINARY_SPAN(name, from, to, expr)            \
    static void name(const span *s)                  \
    {                                                \
        const from *in0 = s->in[0], *in1 = s->in[1]; \
        to *out = s->out[0];                         \
        const int64_t n = s->n;                      \
        INDEPENDENT                                  \
        for (int64_t i = 0; i < n; i++) {            \
            const from a = in0[i], b = in1[i];       \
            out[i] = expr;                           \
        }                                            \
    }
#define SPAN_FLOAT(name, f32, i32) BINARY_SPAN(name##_f32, float, float, f32)
#define SPAN_NUMBER(name, f32, i32)            \
    BINARY_SPAN(name##_f32, float, float, f32) \
    BINARY_SPAN(name##_i32, int32_t, int32_t, i32)
#define SPAN_COMPARE(name, f32, i32)             \
    BINARY_SPAN(name##_f32, float, uint8_t, f32) \
    BINARY_SPAN(name##_i32, int32_t, uint8_t, i32)

#define WF_BINARY(name, doc, types, f32, i32, ...) SPAN_##types(name, f32, i32)
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY

/* ---- Other elementwise ops ---- */

static void scale_f32(const span *s)
{
    const float factor = (float)((const wf_attr_scale *)s->l->attr)->factor;
    const float *x = s->in[0];
    float *out = s->out[0];
    const int64_t n = s->n;
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i] * factor;
}

#define INV_SQRT_2PI 0.3989422804014327f

static inline float gelu_erf_slope(float x)
{
    return wf_gelu_erf_gate_f32(x) + x * INV_SQRT_2PI * expf(-0.5f * x * x);
}

static inline float silu_slope(float x)
{
    float gate = wf_sigmoid_f32(x);
    return gate * (1 + x * (1 - gate));
}

static inline float activate(int64_t kind, float x)
{
    switch (kind) {
    case WF_GLU_SILU: return wf_apply_silu(x);
    case WF_GLU_GELU: return wf_apply_gelu(x);
    default: return wf_apply_gelu_erf(x);
    }
}

static inline float activate_slope(int64_t kind, float x)
{
    switch (kind) {
    case WF_GLU_SILU: return silu_slope(x);
    case WF_GLU_GELU: return wf_gelu_slope_f32(x);
    default: return gelu_erf_slope(x);
    }
}

static void gelu_grad_f32(const span *s)
{
    const float *dy = s->in[0], *x = s->in[1];
    float *dx = s->out[0];
    const int64_t n = s->n;
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * wf_gelu_slope_f32(x[i]);
}

static void glu_f32(const span *s)
{
    const int64_t kind = ((const wf_attr_glu *)s->l->attr)->kind;
    const float *gate = s->in[0], *up = s->in[1];
    float *out = s->out[0];
    const int64_t n = s->n;
    INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        out[i] = activate(kind, gate[i]) * up[i];
}

static void glu_grad_f32(const span *s)
{
    const int64_t kind = ((const wf_attr_glu *)s->l->attr)->kind;
    const float *in0 = s->in[0], *in1 = s->in[1], *in2 = s->in[2];
    float *dgate = s->out[0], *dup = s->out[1];
    for (int64_t i = 0; i < s->n; i++) {
        const float dy = in0[i], gate = in1[i], up = in2[i];
        if (dgate)
            dgate[i] = dy * up * activate_slope(kind, gate);
        if (dup)
            dup[i] = dy * activate(kind, gate);
    }
}

/* Drops element i when value i of the random stream is below p, so the choice depends on i alone. A
 * dropped NaN becomes 0. */
static void dropout_f32(const span *s)
{
    const wf_attr_dropout *attr = s->l->attr;
    const float p = (float)attr->p, keep = (float)(1 / (1 - attr->p));
    const float *x = s->in[0];
    float *out = s->out[0], unit[WF_CHUNK];
    for (int64_t at = 0; at < s->n; at += WF_CHUNK) {
        int64_t n = s->n - at < WF_CHUNK ? s->n - at : WF_CHUNK;
        wf_random_units(s->l->in[1].data, attr->stream, s->first + at, n, unit);
        for (int64_t i = 0; i < n; i++)
            out[at + i] = unit[i] >= p ? x[at + i] * keep : 0;
    }
}

/* Selects between operands of any plain type by moving their bytes. */
#define WHERE_SPAN(type)                             \
    static void where_##type(const span *s)          \
    {                                                \
        const uint8_t *condition = s->in[0];         \
        const type *in1 = s->in[1], *in2 = s->in[2]; \
        type *out = s->out[0];                       \
        const int64_t n = s->n;                      \
        INDEPENDENT                                  \
        for (int64_t i = 0; i < n; i++) {            \
            const type a = in1[i], b = in2[i];       \
            out[i] = condition[i] ? a : b;           \
        }                                            \
    }
WHERE_SPAN(uint8_t)
WHERE_SPAN(uint16_t)
WHERE_SPAN(uint32_t)

/* ---- The driver ---- */

/* One launch, shared by all threads. */
typedef struct {
    const wf_launch *l;
    span_fn *fn;
    int nin, nout; /* the first inputs are operands, all outputs are results */
    bool raw;      /* operands stay as they are stored */
    bool direct;   /* no operand needs a buffer */
    wf_walk walk;  /* over the results, which are dense; operands: the inputs */
} job;

static bool is_narrow(const wf_view *v)
{
    return v->type == WF_F16 || v->type == WF_BF16;
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const job *j = arg;
    wf_chunk in_buf[MAX_IN], out_buf[MAX_OUT]; /* on the stack: 256 elements per operand */
    span s = {.l = j->l, .first = begin};
    wf_run r = wf_run_over(&j->walk, begin, end);
    for (; wf_run_next(&r, j->direct ? INT64_MAX : WF_CHUNK); s.first += s.n) {
        s.n = r.n;
        for (int i = 0; i < j->nin; i++)
            s.in[i] = (j->raw ? wf_chunk_load : wf_chunk_widen)(
                &j->l->in[i], r.offset[i], wf_walk_step(&j->walk, i), r.n, &in_buf[i]);
        for (int i = 0; i < j->nout; i++) {
            const wf_view *out = &j->l->out[i];
            if (!out->data)
                s.out[i] = NULL;
            else if (!j->raw && is_narrow(out))
                s.out[i] = &out_buf[i];
            else
                s.out[i] = wf_view_at(out, s.first);
        }
        j->fn(&s);
        for (int i = 0; i < j->nout; i++)
            if (s.out[i] == &out_buf[i])
                wf_convert_from_f32(j->l->out[i].type, out_buf[i].f32,
                                    wf_view_at(&j->l->out[i], s.first), s.n);
    }
}

static bool needs_buffer(const job *j, const wf_view *v, int64_t step)
{
    return step != 1 || (!j->raw && is_narrow(v));
}

static wf_status run(const wf_launch *l, span_fn *fn, int nin, bool raw)
{
    job j = {.l = l, .fn = fn, .nin = nin, .nout = l->nout, .raw = raw, .direct = true};
    bool wanted = false;
    for (int i = 0; i < l->nout; i++)
        wanted |= l->out[i].data != NULL;
    if (!wanted)
        return WF_OK;

    j.walk = wf_walk_over(l->out[0].rank, l->out[0].dim);
    for (int i = 0; i < j.nin; i++)
        wf_walk_add(&j.walk, &l->in[i]);
    wf_walk_fold(&j.walk);
    for (int i = 0; i < j.nin; i++)
        j.direct &= !needs_buffer(&j, &l->in[i], wf_walk_step(&j.walk, i));
    for (int i = 0; i < j.nout; i++)
        j.direct &= !needs_buffer(&j, &l->out[i], 1);
    wf_parallel_for(l->threads, wf_walk_count(&j.walk), wf_grain(1), run_range, &j);
    return WF_OK;
}

/* Name and number of elementwise operands; dropout's key is not one. */
#define OTHER_OPS(X) \
    X(scale, 1)      \
    X(gelu_grad, 2)  \
    X(glu, 2)        \
    X(glu_grad, 3)   \
    X(dropout, 1)

typedef struct {
    int nin;
    span_fn *f32, *i32;
} rule;

/* clang-format off */
#define RULE_FLOAT(name) [WF_OP_##name] = {2, name##_f32, NULL},
#define RULE_NUMBER(name) [WF_OP_##name] = {2, name##_f32, name##_i32},
#define RULE_COMPARE RULE_NUMBER
#define OTHER_RULE(name, nin) [WF_OP_##name] = {nin, name##_f32, NULL},
static const rule rules[WF_OP_COUNT] = {
#define WF_UNARY(name, ...) [WF_OP_##name] = {1, name##_f32, NULL},
#define WF_BINARY(name, doc, types, ...) RULE_##types(name)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
    OTHER_OPS(OTHER_RULE)
};
/* clang-format on */

static wf_status launch(const wf_launch *l)
{
    const rule *r = &rules[l->node->op];
    return run(l, l->in[0].type == WF_I32 ? r->i32 : r->f32, r->nin, false);
}

static wf_status launch_where(const wf_launch *l)
{
    span_fn *const by_bytes[] = {[1] = where_uint8_t, [2] = where_uint16_t, [4] = where_uint32_t};
    return run(l, by_bytes[wf_type_get(l->out[0].type)->block_bytes], 3, true);
}

/* clang-format off */
#define ROW(name_, types_, launch_) \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true,                   \
     .in_place = 7, .launch = launch_},
#define ROW_FLOAT(name, ...) ROW(name, WF_TYPES_FLOAT, launch)
#define ROW_NUMBER(name) ROW(name, WF_TYPES_NUMBER, launch)
#define ROW_COMPARE ROW_NUMBER
#define WF_UNARY(name, ...) ROW_FLOAT(name)
#define WF_BINARY(name, doc, types, ...) ROW_##types(name)
const wf_kernel wf_cpu_elementwise[] = {
#include "graph/ops.def"
    OTHER_OPS(ROW_FLOAT)
    ROW(where, WF_TYPES_PLAIN, launch_where)
    {0}
};

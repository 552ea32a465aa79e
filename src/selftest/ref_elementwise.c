/* SPDX-License-Identifier: MIT */
/*
 * ref_elementwise.c - the float64 reference of elementwise ops.
 *
 * Each unary and binary op of ops.def has one row below, UNARY or BINARY: its value, and mag, the
 * size of its roundoff (ref_priv.h). `y` in a mag is the value. The values are written by hand and
 * share nothing with the expressions of ops.def that kernels compute; only the ranges of operands
 * come from there.
 */
#include "selftest/ref_elementwise.h"

#include "selftest/ref_priv.h"

/* ---- Ranges of operands ---- */

#define RANGE(low, high) \
    {                    \
        low, high        \
    }
static const wf_ref_range ranges[WF_OP_COUNT][2] = {
#define WF_UNARY(name, doc, f32, range, ...) [WF_OP_##name] = {range},
#define WF_BINARY(name, doc, types, f32, i32, a, b, ...) [WF_OP_##name] = {a, b},
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
};

wf_ref_range wf_ref_operand_range(wf_op op, int operand)
{
    return ranges[op][operand];
}

/* ---- Activations ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static wf_ref_act act_silu(double x)
{
    double s = sigmoid(x);
    return (wf_ref_act){
        .y = x * s,
        .mag = fabs(x * s),
        .slope = s + x * s * (1 - s),
        .slope_mag = s + fabs(x) * s, /* 1 - s loses s roundoffs and its own */
    };
}

/* x/2 (1 + t), t = tanh(u). The roundoff of u is multiplied by the slope of tanh, 1 - t^2. */
static wf_ref_act act_gelu(double x)
{
    const double c = 0.79788456080286535588; /* sqrt(2 / pi) */
    double u = c * (x + 0.044715 * x * x * x), du = c * (1 + 3 * 0.044715 * x * x);
    double t = tanh(u), sech2 = 1 / (cosh(u) * cosh(u));
    double half = 0.5 * (1 + fabs(t)) + 0.5 * sech2 * fabs(u);
    return (wf_ref_act){
        .y = 0.5 * x * (1 + t),
        .mag = fabs(x) * half,
        .slope = 0.5 * (1 + t) + 0.5 * x * sech2 * du,
        .slope_mag = half + 0.5 * fabs(x) * du * (1 + t * t + 2 * fabs(t) * sech2 * fabs(u)),
    };
}

/* x Phi(x); Phi and phi are the normal distribution and its density. */
static wf_ref_act act_gelu_erf(double x)
{
    double z = 0.70710678118654752440 * x, e = erf(z);
    double phi = 0.39894228040143267794 * exp(-z * z);
    double half = 0.5 * (1 + fabs(e)) + fabs(x) * phi; /* erf'(z) z / 2 = x phi(x) */
    return (wf_ref_act){
        .y = 0.5 * x * (1 + e),
        .mag = fabs(x) * half,
        .slope = 0.5 * (1 + e) + x * phi,
        .slope_mag = half + fabs(x) * phi * (1 + z * z), /* exp(-z^2): z^2 roundoffs */
    };
}

static wf_ref_act act_relu(double x)
{
    return (wf_ref_act){.y = x > 0 || isnan(x) ? x : 0, .slope = x > 0};
}

static wf_ref_act act_relu2(double x)
{
    double y = x > 0 || isnan(x) ? x * x : 0, slope = x > 0 ? 2 * x : 0;
    return (wf_ref_act){.y = y, .mag = y, .slope = slope, .slope_mag = slope};
}

wf_ref_act wf_ref_activate(wf_op op, double x)
{
    switch (op) {
    case WF_OP_gelu: return act_gelu(x);
    case WF_OP_gelu_erf: return act_gelu_erf(x);
    case WF_OP_silu: return act_silu(x);
    case WF_OP_relu: return act_relu(x);
    case WF_OP_relu2: return act_relu2(x);
    default: wf_assert(!"an activation"); return (wf_ref_act){0};
    }
}

static wf_ref_act act(int64_t kind, double x)
{
    return wf_ref_activate(wf_glu_op(kind), x);
}

/* ---- One operand ---- */

typedef struct {
    double y, mag;
} row;

#define UNARY(name, value, magnitude) \
    case WF_OP_##name: y = (value), *r = (row){y, magnitude}; return true

/* Returns false when the op has no row. */
static bool unary(wf_op op, double x, row *r)
{
    double y;
    switch (op) {
        UNARY(neg, -x, 0);
        UNARY(exp, exp(x), y);
        UNARY(expm1, expm1(x), fabs(y));
        UNARY(log, log(x), fabs(y));
        UNARY(sqrt, sqrt(x), y);
        UNARY(rsqrt, 1 / sqrt(x), y);
        /* Near a zero of sin and cos an absolute error is allowed as well. */
        UNARY(sin, sin(x), fabs(y) + 0.01);
        UNARY(cos, cos(x), fabs(y) + 0.01);
        UNARY(tanh, tanh(x), fabs(y));
        UNARY(sigmoid, sigmoid(x), y);
        UNARY(erf, erf(x), fabs(y));
        UNARY(gelu, act_gelu(x).y, act_gelu(x).mag);
        UNARY(gelu_erf, act_gelu_erf(x).y, act_gelu_erf(x).mag);
        UNARY(silu, act_silu(x).y, act_silu(x).mag);
        UNARY(relu, act_relu(x).y, act_relu(x).mag);
        UNARY(relu2, act_relu2(x).y, act_relu2(x).mag);
    default: return false;
    }
}

static wf_status no_row(const wf_ref_call *c)
{
    return wf_fail(c->ctx, WF_ERR_UNSUPPORTED,
                   "%s has no float64 reference; add its row to src/selftest/ref_elementwise.c",
                   wf_node_def(c->node)->name);
}

wf_status wf_ref_unary(const wf_ref_call *c)
{
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        row r;
        if (!unary(c->node->op, c->in[0].v[e], &r))
            return no_row(c);
        wf_ref_set(c->out, e, r.y, r.mag);
    }
    return WF_OK;
}

/* ---- Two operands ---- */

#define BINARY(name, value, magnitude) \
    case WF_OP_##name: y = (value), *r = (row){y, magnitude}; return true

/* Returns false when the op has no row. */
static bool binary(wf_op op, double a, double b, row *r)
{
    double y;
    bool nan = isnan(a) || isnan(b);
    switch (op) {
        BINARY(add, a + b, fabs(a) + fabs(b));
        BINARY(sub, a - b, fabs(a) + fabs(b));
        BINARY(mul, a * b, fabs(y));
        BINARY(div, a / b, fabs(y));
        BINARY(maximum, nan ? NAN : a > b ? a : b, 0);
        BINARY(minimum, nan ? NAN : a < b ? a : b, 0);
        BINARY(lt, a < b, 0);
        BINARY(le, a <= b, 0);
        BINARY(eq, a == b, 0);
        BINARY(ne, a != b, 0);
    default: return false;
    }
}

/* Integers are exact and wrap around. The product of two i32 has more bits than a double. */
static double binary_int(wf_op op, double a, double b, double y)
{
    return wf_ref_wrap(op == WF_OP_mul ? (int64_t)a * (int64_t)b : (int64_t)y);
}

wf_status wf_ref_binary(const wf_ref_call *c)
{
    const wf_dims *shape = &c->out->shape;
    int64_t count = wf_dims_count(shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(shape, e, index);
        double a = c->in[0].v[wf_ref_repeated(&c->in[0].shape, index, shape->n)];
        double b = c->in[1].v[wf_ref_repeated(&c->in[1].shape, index, shape->n)];
        row r;
        if (!binary(c->node->op, a, b, &r))
            return no_row(c);
        if (wf_ref_is_int(c->in[0].type))
            wf_ref_set(c->out, e, binary_int(c->node->op, a, b, r.y), 0);
        else
            wf_ref_set(c->out, e, r.y, r.mag);
    }
    return WF_OK;
}

/* ---- The rest ---- */

wf_status wf_ref_scale(const wf_ref_call *c)
{
    const wf_attr_scale *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double y = c->in[0].v[e] * attr->factor;
        wf_ref_set(c->out, e, y, fabs(y));
    }
    return WF_OK;
}

wf_status wf_ref_where(const wf_ref_call *c)
{
    const wf_dims *shape = &c->out->shape;
    int64_t count = wf_dims_count(shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(shape, e, index);
        double condition = c->in[0].v[wf_ref_repeated(&c->in[0].shape, index, shape->n)];
        const wf_ref *from = &c->in[condition != 0 ? 1 : 2];
        wf_ref_set(c->out, e, from->v[wf_ref_repeated(&from->shape, index, shape->n)], 0);
    }
    return WF_OK;
}

/* (dy, x) -> dx */
wf_status wf_ref_gelu_grad(const wf_ref_call *c)
{
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double dy = c->in[0].v[e];
        wf_ref_act f = act_gelu(c->in[1].v[e]);
        wf_ref_set(c->out, e, dy * f.slope, fabs(dy) * f.slope_mag);
    }
    return WF_OK;
}

/* (gate, up) -> y */
wf_status wf_ref_glu(const wf_ref_call *c)
{
    const wf_attr_glu *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        wf_ref_act f = act(attr->kind, c->in[0].v[e]);
        double up = c->in[1].v[e];
        wf_ref_set(c->out, e, f.y * up, f.mag * fabs(up));
    }
    return WF_OK;
}

/* (dy, gate, up) -> dgate, dup */
wf_status wf_ref_glu_grad(const wf_ref_call *c)
{
    const wf_attr_glu *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double dy = c->in[0].v[e], up = c->in[2].v[e];
        wf_ref_act f = act(attr->kind, c->in[1].v[e]);
        wf_ref_set(&c->out[0], e, dy * up * f.slope, fabs(dy * up) * f.slope_mag);
        wf_ref_set(&c->out[1], e, dy * f.y, fabs(dy) * f.mag);
    }
    return WF_OK;
}

/* (x, key): keeps element e if value e of the stream is at least p. */
wf_status wf_ref_dropout(const wf_ref_call *c)
{
    const wf_attr_dropout *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        bool kept = wf_ref_random(&c->in[1], attr->stream, e) >= attr->p;
        double y = kept ? c->in[0].v[e] / (1 - attr->p) : 0;
        wf_ref_set(c->out, e, y, fabs(y));
    }
    return WF_OK;
}

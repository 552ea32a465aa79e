/* SPDX-License-Identifier: MIT */
/*
 * ref_elementwise.c - ops whose result at one place depends on its operands there.
 *
 * A new elementwise op takes one row in one of the two tables below: the value, its mag, and the
 * bounds between which tests draw the operands. `y` in a mag is the value.
 */
#include "selftest/ref_elementwise.h"

#include "selftest/ref_priv.h"

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
        .slope_mag = s + fabs(x) * s, /* 1 - s is off by s roundoffs and its own */
    };
}

/* x/2 (1 + t), t = tanh(u). u passes on its roundoff through the slope of tanh, 1 - t^2. */
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

/* x Phi(x), with Phi and phi the normal distribution and its density. */
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
    static const wf_op ops[] = {WF_OP_silu, WF_OP_gelu, WF_OP_gelu_erf};
    return wf_ref_activate(ops[kind], x);
}

/* ---- One operand ---- */

typedef struct {
    double y, mag, lo, hi;
} unary_row;

#define UNARY(name, value, magnitude, lo, hi) \
    case WF_OP_##name: y = (value), *r = (unary_row){y, magnitude, lo, hi}; return true

static bool unary(wf_op op, double x, unary_row *r)
{
    double y;
    switch (op) {
        UNARY(neg, -x, 0, -4, 4);
        UNARY(exp, exp(x), y, -4, 4);
        UNARY(expm1, expm1(x), fabs(y), -4, 4);
        UNARY(log, log(x), fabs(y), 0.1, 4);
        UNARY(sqrt, sqrt(x), y, 0, 4);
        UNARY(rsqrt, 1 / sqrt(x), y, 0.1, 4);
        UNARY(sin, sin(x), fabs(y) + 0.01, -6, 6);
        UNARY(cos, cos(x), fabs(y) + 0.01, -6, 6);
        UNARY(tanh, tanh(x), fabs(y), -4, 4);
        UNARY(sigmoid, sigmoid(x), y, -6, 6);
        UNARY(erf, erf(x), fabs(y), -3, 3);
        UNARY(gelu, act_gelu(x).y, act_gelu(x).mag, -4, 4);
        UNARY(gelu_erf, act_gelu_erf(x).y, act_gelu_erf(x).mag, -4, 4);
        UNARY(silu, act_silu(x).y, act_silu(x).mag, -6, 6);
        UNARY(relu, act_relu(x).y, act_relu(x).mag, -4, 4);
        UNARY(relu2, act_relu2(x).y, act_relu2(x).mag, -4, 4);
    default: return false;
    }
}

bool wf_ref_unary_domain(wf_op op, double *lo, double *hi)
{
    unary_row r;
    if (!unary(op, 1, &r))
        return false;
    *lo = r.lo;
    *hi = r.hi;
    return true;
}

static wf_status no_row(const wf_ref_call *c)
{
    return wf_fail(c->ctx, WF_ERR_UNSUPPORTED, "%s has no row in ref_elementwise.c",
                   wf_node_def(c->node)->name);
}

wf_status wf_ref_unary(const wf_ref_call *c)
{
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        unary_row r;
        if (!unary(c->node->op, c->in[0].v[e], &r))
            return no_row(c);
        wf_ref_set(c->out, e, r.y, r.mag);
    }
    return WF_OK;
}

/* ---- Two operands ---- */

typedef struct {
    double y, mag, a_lo, a_hi, b_lo, b_hi;
} binary_row;

#define BINARY(name, value, magnitude, a_lo, a_hi, b_lo, b_hi)                \
    case WF_OP_##name:                                                        \
        y = (value), *r = (binary_row){y, magnitude, a_lo, a_hi, b_lo, b_hi}; \
        return true

static bool binary(wf_op op, double a, double b, binary_row *r)
{
    double y;
    bool nan = isnan(a) || isnan(b);
    switch (op) {
        BINARY(add, a + b, fabs(a) + fabs(b), -4, 4, -4, 4);
        BINARY(sub, a - b, fabs(a) + fabs(b), -4, 4, -4, 4);
        BINARY(mul, a * b, fabs(y), -4, 4, -4, 4);
        BINARY(div, a / b, fabs(y), -4, 4, 0.5, 2);
        BINARY(maximum, nan ? NAN : a > b ? a : b, 0, -4, 4, -4, 4);
        BINARY(minimum, nan ? NAN : a < b ? a : b, 0, -4, 4, -4, 4);
        BINARY(lt, a < b, 0, -2, 2, -2, 2);
        BINARY(le, a <= b, 0, -2, 2, -2, 2);
        BINARY(eq, a == b, 0, -2, 2, -2, 2);
        BINARY(ne, a != b, 0, -2, 2, -2, 2);
    default: return false;
    }
}

bool wf_ref_binary_domain(wf_op op, double *a_lo, double *a_hi, double *b_lo, double *b_hi)
{
    binary_row r;
    if (!binary(op, 1, 1, &r))
        return false;
    *a_lo = r.a_lo;
    *a_hi = r.a_hi;
    *b_lo = r.b_lo;
    *b_hi = r.b_hi;
    return true;
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
        binary_row r;
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

/* (x, key): element e stays when number e of the stream is not below p. */
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

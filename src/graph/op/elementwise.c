/* SPDX-License-Identifier: MIT */
/*
 * elementwise.c - rules of elementwise ops.
 *
 * WF_UNARY and WF_BINARY rows of ops.def carry their gradient and expansion as C expressions. This
 * file compiles each expression into a function and collects the functions in tables by op. The
 * elementwise ops among the WF_OP rows have rules of their own below.
 *
 * Operands of binary ops and of where broadcast by NumPy's rule (wf_dims_broadcast); all others
 * have the shape of the result.
 */
#include <math.h>

#include "graph/op/rule.h"

/* ---- The rows of ops.def ---- */

/* Columns of ops.def: an op without an expansion, and one without a gradient. */
#define CORE NULL
#define NO_GRAD NULL

/* The columns `gradient` and `expansion` of a row; NULL functions do not occur, but a function may
 * return NULL (CORE, NO_GRAD). */
typedef struct {
    wf_value *(*grad)(wf_graph *g, wf_value *x, wf_value *y, wf_value *dy);
    wf_value *(*expand)(wf_graph *g, wf_value *x);
} unary_rules;

typedef struct {
    wf_value *(*grad_a)(wf_graph *g, wf_value *a, wf_value *b, wf_value *y, wf_value *dy);
    wf_value *(*grad_b)(wf_graph *g, wf_value *a, wf_value *b, wf_value *y, wf_value *dy);
} binary_rules;

#define WF_UNARY(name, doc, f32, range, gradient, expansion, ...)                     \
    static wf_value *grad_##name(wf_graph *g, wf_value *x, wf_value *y, wf_value *dy) \
    {                                                                                 \
        (void)x, (void)y;                                                             \
        return gradient;                                                              \
    }                                                                                 \
    static wf_value *expand_##name(wf_graph *g, wf_value *x)                          \
    {                                                                                 \
        (void)g, (void)x;                                                             \
        return expansion;                                                             \
    }
#define BINARY_GRAD(name, gradient)                                                         \
    static wf_value *name(wf_graph *g, wf_value *a, wf_value *b, wf_value *y, wf_value *dy) \
    {                                                                                       \
        (void)g, (void)a, (void)b, (void)y, (void)dy;                                       \
        return gradient;                                                                    \
    }
#define WF_BINARY(name, doc, types, f32, i32, range_a, range_b, ga, gb, ...) \
    BINARY_GRAD(grad_a_##name, ga)                                           \
    BINARY_GRAD(grad_b_##name, gb)
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY

#define WF_UNARY(name, ...) [WF_OP_##name] = {grad_##name, expand_##name},
#define WF_BINARY(...)
static const unary_rules unary_table[WF_OP_COUNT] = {
#include "graph/ops.def"
};
#undef WF_UNARY
#undef WF_BINARY

#define WF_UNARY(...)
#define WF_BINARY(name, ...) [WF_OP_##name] = {grad_a_##name, grad_b_##name},
static const binary_rules binary_table[WF_OP_COUNT] = {
#include "graph/ops.def"
};
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP

wf_status wf_shape_unary(wf_infer *r)
{
    WF_RULE(r, wf_has_type(r->in[0], r->def->types), "x must be f32, f16 or bf16");
    wf_infer_out(r, r->in[0]->type, &r->in[0]->shape);
    return WF_OK;
}

/* Comparisons return u8; all other ops keep the operands' type. */
wf_status wf_shape_binary(wf_infer *r)
{
    const wf_value *a = r->in[0], *b = r->in[1];
    wf_dims shape;
    WF_RULE(r, a->type == b->type, "both operands must have the same type");
    WF_RULE(r, wf_has_type(a, r->def->types), "operands must be %s",
            r->def->types & WF_TYPE_BIT(WF_I32) ? "f32, f16, bf16 or i32" : "f32, f16 or bf16");
    WF_RULE(r, wf_dims_broadcast(&a->shape, &b->shape, &shape),
            "shapes do not broadcast: axes aligned at the last must be equal or 1");
    wf_infer_out(r, r->def->flags & WF_FLAG_COMPARE ? WF_U8 : a->type, &shape);
    return WF_OK;
}

wf_status wf_grad_unary(wf_vjp *v)
{
    wf_node *n = v->node;
    v->din[0] = unary_table[n->op].grad(v->g, n->in[0], &n->out[0], v->dout[0]);
    return WF_OK;
}

/* Gradients have the broadcast shape; wf_sum_to reduces them to the operand's. */
wf_status wf_grad_binary(wf_vjp *v)
{
    wf_node *n = v->node;
    const binary_rules *rules = &binary_table[n->op];
    wf_value *a = n->in[0], *b = n->in[1], *y = &n->out[0], *dy = v->dout[0];
    if (v->need[0])
        v->din[0] = wf_sum_to(v->g, rules->grad_a(v->g, a, b, y, dy), &a->shape);
    if (v->need[1])
        v->din[1] = wf_sum_to(v->g, rules->grad_b(v->g, a, b, y, dy), &b->shape);
    return WF_OK;
}

/* CORE makes the function return NULL. wf_op_is_core keeps callers away. */
wf_status wf_expand_unary(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    out[0] = unary_table[n->op].expand(g, in[0]);
    return WF_OK;
}

/* ---- Functions that rows of ops.def call ---- */

#define SQRT_2_OVER_PI 0.7978845608028654
#define SQRT_HALF 0.7071067811865476

/* Expansions compute in f32, as kernels do: x^3 overflows f16. */
wf_value *wf_build_gelu(wf_graph *g, wf_value *of)
{
    wf_value *x = wf_cast(g, of, WF_F32), *cube = wf_mul(g, x, wf_mul(g, x, x));
    wf_value *u = wf_scale(g, wf_add(g, x, wf_scale(g, cube, 0.044715)), SQRT_2_OVER_PI);
    wf_value *y = wf_mul(g, wf_scale(g, x, 0.5), wf_add(g, wf_tanh(g, u), wf_like(g, x, 1)));
    return wf_cast(g, y, wf_value_type(of));
}

wf_value *wf_build_gelu_erf(wf_graph *g, wf_value *of)
{
    wf_value *x = wf_cast(g, of, WF_F32), *e = wf_erf(g, wf_scale(g, x, SQRT_HALF));
    wf_value *y = wf_mul(g, wf_scale(g, x, 0.5), wf_add(g, e, wf_like(g, x, 1)));
    return wf_cast(g, y, wf_value_type(of));
}

wf_value *wf_build_silu(wf_graph *g, wf_value *of)
{
    wf_value *x = wf_cast(g, of, WF_F32);
    return wf_cast(g, wf_mul(g, x, wf_sigmoid(g, x)), wf_value_type(of));
}

/* dy (Phi(x) + x phi(x)), where Phi is the normal CDF and phi its density. */
wf_value *wf_build_gelu_erf_grad(wf_graph *g, wf_value *dy, wf_value *x)
{
    wf_value *e = wf_erf(g, wf_scale(g, x, SQRT_HALF));
    wf_value *cdf = wf_scale(g, wf_add(g, e, wf_like(g, x, 1)), 0.5);
    wf_value *pdf = wf_scale(g, wf_exp(g, wf_scale(g, wf_mul(g, x, x), -0.5)), 0.3989422804014327);
    return wf_mul(g, dy, wf_add(g, cdf, wf_mul(g, x, pdf)));
}

/* dy (s + y (1 - s)), where s = sigmoid(x) and y = x s is the op's result. */
wf_value *wf_build_silu_grad(wf_graph *g, wf_value *dy, wf_value *x, wf_value *y)
{
    wf_value *s = wf_sigmoid(g, x);
    return wf_mul(g, dy, wf_add(g, s, wf_mul(g, y, wf_sub(g, wf_like(g, x, 1), s))));
}

wf_value *wf_gelu_grad(wf_graph *g, wf_value *dy, wf_value *x)
{
    return wf_node_add(g, WF_OP_gelu_grad, NULL, NULL, (wf_value *[]){dy, x}, 2);
}

/* ---- Shape rules that several ops share ---- */

/* The result has the type and shape of operand 0, whatever it is. */
wf_status wf_shape_same(wf_infer *r)
{
    wf_infer_out(r, r->in[0]->type, &r->in[0]->shape);
    return WF_OK;
}

wf_status wf_shape_float_same(wf_infer *r)
{
    WF_RULE(r, wf_is_float(r->in[0]), "x must be f32, f16 or bf16");
    return wf_shape_same(r);
}

/* All operands and the result have the same float type and shape. */
wf_status wf_shape_float_alike(wf_infer *r)
{
    for (int i = 1; i < r->nin; i++)
        WF_RULE(r, wf_alike(r->in[0], r->in[i]), "all operands must have the same type and shape");
    return wf_shape_float_same(r);
}

/* ---- scale, where ---- */

/* The gradient of scaling is scaling by the same factor. */
wf_status wf_grad_scale(wf_vjp *v)
{
    const wf_attr_scale *a = v->node->attr;
    v->din[0] = wf_scale(v->g, v->dout[0], a->factor);
    return WF_OK;
}

wf_status wf_shape_where(wf_infer *r)
{
    const wf_value *c = r->in[0], *a = r->in[1], *b = r->in[2];
    wf_dims shape;
    WF_RULE(r, c->type == WF_U8, "the condition must be u8");
    WF_RULE(r, a->type == b->type && wf_has_type(a, WF_TYPES_PLAIN),
            "a and b must have the same plain type");
    WF_RULE(r,
            wf_dims_broadcast(&a->shape, &b->shape, &shape) &&
                wf_dims_broadcast(&c->shape, &shape, &shape),
            "shapes do not broadcast: axes aligned at the last must be equal or 1");
    wf_infer_out(r, a->type, &shape);
    return WF_OK;
}

/* Each branch gets dy where it was selected and 0 elsewhere; the condition gets no gradient. */
wf_status wf_grad_where(wf_vjp *v)
{
    wf_value *const *in = v->node->in, *dy = v->dout[0], *zero = wf_like(v->g, dy, 0);
    if (v->need[1])
        v->din[1] = wf_sum_to(v->g, wf_where(v->g, in[0], dy, zero), &in[1]->shape);
    if (v->need[2])
        v->din[2] = wf_sum_to(v->g, wf_where(v->g, in[0], zero, dy), &in[2]->shape);
    return WF_OK;
}

/* (dy, x): derives the gradient of gelu's expansion, so that the formula exists once. */
wf_status wf_expand_gelu_grad(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    (void)n;
    return wf_expand_vjp(g, WF_OP_gelu, NULL, &in[1], 1, in[0], (int[]){0}, 1, out);
}

/* ---- glu: act(gate) * up ---- */

wf_status wf_shape_glu(wf_infer *r)
{
    const wf_attr_glu *a = r->attr;
    WF_RULE(r, a->kind >= WF_GLU_SILU && a->kind <= WF_GLU_GELU_ERF,
            "kind must be 0 (silu), 1 (gelu) or 2 (gelu_erf)");
    return wf_shape_float_alike(r);
}

/* (dy, gate, up) -> dgate, dup */
wf_status wf_shape_glu_grad(wf_infer *r)
{
    WF_TRY(wf_shape_glu(r));
    wf_infer_out(r, r->in[0]->type, &r->in[0]->shape);
    return WF_OK;
}

/* One op: dgate and dup read the same three operands. */
wf_status wf_grad_glu(wf_vjp *v)
{
    wf_node *n = v->node;
    wf_value *in[] = {v->dout[0], n->in[0], n->in[1]};
    v->din[0] = wf_node_add(v->g, WF_OP_glu_grad, n->attr, NULL, in, 3);
    v->din[1] = wf_value_output(v->din[0], 1);
    return WF_OK;
}

wf_status wf_expand_glu(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_glu *a = n->attr;
    wf_value *gate = wf_cast(g, in[0], WF_F32), *up = wf_cast(g, in[1], WF_F32);
    wf_value *y = wf_mul(g, wf_node_add(g, wf_glu_op(a->kind), NULL, NULL, &gate, 1), up);
    out[0] = wf_cast(g, y, in[0]->type);
    return WF_OK;
}

wf_status wf_expand_glu_grad(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    return wf_expand_vjp(g, WF_OP_glu, n->attr, &in[1], 2, in[0], (int[]){0, 1}, 2, out);
}

/* ---- dropout ---- */

/* The key (seed low, seed high, step) is shared; the attribute `stream` tells dropouts apart. */
wf_status wf_shape_dropout(wf_infer *r)
{
    const wf_attr_dropout *a = r->attr;
    WF_RULE(r, wf_is_i32(r->in[1], 1) && r->in[1]->shape.d[0] == 3, "the key must be i32[3]");
    WF_RULE(r, a->p >= 0 && a->p < 1, "p must lie in [0, 1), not %g", a->p);
    return wf_shape_float_same(r);
}

/* Same key and stream, so the gradient drops the same elements. */
wf_status wf_grad_dropout(wf_vjp *v)
{
    wf_node *n = v->node;
    wf_value *in[] = {v->dout[0], n->in[1]};
    v->din[0] = wf_node_add(v->g, WF_OP_dropout, n->attr, NULL, in, 2);
    return WF_OK;
}

/* Keeps an element where u >= p and scales it by 1 / (1 - p), so that the mean stays. u is uniform
 * in [0, 1). */
wf_status wf_expand_dropout(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_dropout *a = n->attr;
    wf_attr_uniform ua = {.dims = in[0]->shape, .stream = a->stream};
    wf_value *u = wf_node_add(g, WF_OP_uniform, &ua, NULL, (wf_value *[]){in[1]}, 1);
    wf_value *kept = wf_le(g, wf_fill(g, WF_F32, 0, NULL, a->p), u);
    out[0] = wf_where(g, kept, wf_scale(g, in[0], 1 / (1 - a->p)), wf_like(g, in[0], 0));
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * fold_exact.c - rules of the fold pass that keep every bit; fold.c lists the exceptions.
 *
 *     before                                   after
 *     %2 = reshape(reshape(%0))                %2 = reshape(%0)
 *     %2 = permute(permute(%0))                %2 = permute(%0)
 *     %2 = cast(cast(%0))                      %2 = cast(%0), if the inner cast is exact
 *     %2 = mul(%0, fill 1)                     %0
 *     %2 = mul(%0, fill c)                     %2 = scale(%0)
 *     %2 = where(fill 1, %0, %1)               %0
 *     %2 = add(pad(%0), pad(%1))               %2 = concat(%0, %1), if the pads do not overlap
 *
 * Each rule is a function of the last node of its pattern. fold_priv.h describes the calls.
 */
#include <math.h>

#include "graph/pass/fold_priv.h"

/* ---- Views of views ---- */

/* In a chain of reshapes, only the last one folds; it looks through all of them. */
bool wf_fold_reshape(wf_folder *f, wf_node *n)
{
    wf_value *x = wf_fold_in(f, n, 0);
    if (wf_same_shape(x, &n->out[0]))
        return wf_fold_by(f, n, x);
    /* Another reshape follows: that one folds the whole chain. */
    if (!wf_made_by(x, WF_OP_reshape) || wf_fold_feeds_only(f, n, WF_OP_reshape))
        return false;
    for (; wf_made_by(x, WF_OP_reshape); x = wf_fold_in(f, x->node, 0))
        wf_fold_past(f, x);
    if (wf_same_shape(x, &n->out[0]))
        return wf_fold_by(f, n, x);
    return wf_fold_may_view(f, n, x) && wf_fold_new(f, n, wf_reshape_to(f->g, x, &n->out[0].shape));
}

static bool is_identity(const wf_dims *order)
{
    for (int i = 0; i < order->n; i++)
        if (order->d[i] != i)
            return false;
    return true;
}

/* Permutes compose: out[i] = in[order[i]], so the combined order is inner[order]. */
bool wf_fold_permute(wf_folder *f, wf_node *n)
{
    wf_dims order = ((const wf_attr_permute *)n->attr)->order;
    wf_value *x = wf_fold_in(f, n, 0);
    if (is_identity(&order))
        return wf_fold_by(f, n, x);
    if (!wf_made_by(x, WF_OP_permute) || wf_fold_feeds_only(f, n, WF_OP_permute))
        return false;
    for (; wf_made_by(x, WF_OP_permute); x = wf_fold_in(f, x->node, 0)) {
        const wf_attr_permute *inner = x->node->attr;
        for (int i = 0; i < order.n; i++)
            order.d[i] = inner->order.d[order.d[i]];
        wf_fold_past(f, x);
    }
    if (is_identity(&order))
        return wf_fold_by(f, n, x);
    return wf_fold_may_view(f, n, x) && wf_fold_new(f, n, wf_permute(f->g, x, order.d));
}

/* Slices of one axis compose by adding begins. A slice of another axis ends the chain. */
bool wf_fold_slice(wf_folder *f, wf_node *n)
{
    wf_attr_slice a = *(const wf_attr_slice *)n->attr;
    wf_value *x = wf_fold_in(f, n, 0);
    bool of_slice = false;
    if (wf_same_shape(x, &n->out[0]))
        return wf_fold_by(f, n, x);
    if (wf_fold_feeds_only(f, n, WF_OP_slice))
        return false;
    for (; wf_made_by(x, WF_OP_slice); x = wf_fold_in(f, x->node, 0)) {
        const wf_attr_slice *inner = x->node->attr;
        if (inner->axis != a.axis)
            break;
        a.begin += inner->begin;
        a.end += inner->begin;
        wf_fold_past(f, x);
        of_slice = true;
    }
    return of_slice && wf_fold_may_view(f, n, x) &&
           wf_fold_new(f, n, wf_slice(f->g, x, (int)a.axis, a.begin, a.end));
}

/* ---- Types ---- */

/* Whether every value of type `from` is exact in type `to`. f16 and bf16 have 8 bits of
 * precision at least, enough for 8-bit integers and 8-bit floats; f32 holds both. i32 does not
 * fit into f32. */
static bool keeps_all(wf_type from, wf_type to)
{
    const wf_type_set bytes = wf_type_bit(WF_I8) | wf_type_bit(WF_U8);
    const wf_type_set narrow = wf_type_bit(WF_E4M3) | wf_type_bit(WF_E5M2) | bytes;
    const wf_type_set from_bit = wf_type_bit(from);
    switch (to) {
    case WF_F32: return from_bit & (narrow | wf_type_bit(WF_F16) | wf_type_bit(WF_BF16));
    case WF_F16:
    case WF_BF16: return from_bit & narrow;
    case WF_I32: return from_bit & bytes;
    default: return false;
    }
}

static bool is_any_float(wf_type type)
{
    wf_kind kind = wf_type_get(type)->kind;
    return kind == WF_KIND_FLOAT || kind == WF_KIND_STORAGE;
}

/* Folds cast(cast(x, mid), to) where the first cast is exact: to x if x has the type `to`, else to
 * cast(x, to) if all three types are floats. Integers saturate, so other integer casts stay. */
bool wf_fold_cast(wf_folder *f, wf_node *n)
{
    wf_value *mid = wf_fold_in(f, n, 0);
    const wf_type to = n->out[0].type;
    if (mid->type == to)
        return wf_fold_by(f, n, mid);
    if (!wf_made_by(mid, WF_OP_cast))
        return false;
    wf_value *x = wf_fold_in(f, mid->node, 0);
    if (!keeps_all(x->type, mid->type))
        return false;
    wf_fold_past(f, mid); /* the gradient of mid would miss readers of n */
    if (x->type == to)
        return wf_fold_by(f, n, x);
    return is_any_float(x->type) && is_any_float(mid->type) && is_any_float(to) &&
           wf_fold_reads(f, n, x) && wf_fold_new(f, n, wf_cast(f->g, x, to));
}

/* A copy preserves a state's version past the state's next update. wf_fold_by refuses if such an
 * update runs before the copy's last reader. */
bool wf_fold_copy(wf_folder *f, wf_node *n)
{
    return wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

/* ---- Neutral operands ---- */

/* Whether operand i of n is a fill with `number`. Distinguishes -0 from 0. */
static bool is_all(const wf_folder *f, const wf_node *n, int i, double number)
{
    double value;
    return wf_match_fill(wf_fold_in(f, n, i), &value) && value == number &&
           signbit(value) == signbit(number);
}

bool wf_fold_scale_one(wf_folder *f, wf_node *n)
{
    const wf_attr_scale *a = n->attr;
    /* Kernels scale by a float. */
    return (float)a->factor == 1 && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

/* x + -0 is x for every x. x + 0 is not: -0 + 0 is 0. */
bool wf_fold_add_zero(wf_folder *f, wf_node *n)
{
    const double zero = n->out[0].type == WF_I32 ? 0.0 : -0.0;
    return (is_all(f, n, 1, zero) && wf_fold_by(f, n, wf_fold_in(f, n, 0))) ||
           (is_all(f, n, 0, zero) && wf_fold_by(f, n, wf_fold_in(f, n, 1)));
}

/* x - 0 is x for every x, -0 included. */
bool wf_fold_sub_zero(wf_folder *f, wf_node *n)
{
    return is_all(f, n, 1, 0) && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

/* Keeps NaN and infinity: x * 1 is x for every x. */
bool wf_fold_mul_one(wf_folder *f, wf_node *n)
{
    return (is_all(f, n, 1, 1) && wf_fold_by(f, n, wf_fold_in(f, n, 0))) ||
           (is_all(f, n, 0, 1) && wf_fold_by(f, n, wf_fold_in(f, n, 1)));
}

bool wf_fold_div_one(wf_folder *f, wf_node *n)
{
    return is_all(f, n, 1, 1) && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

/* scale computes the same and needs no memory for the constant. */
bool wf_fold_mul_fill(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *x = wf_fold_in(f, n, 1 - i);
        double factor;
        if (wf_match_fill(wf_fold_in(f, n, i), &factor) && wf_is_float(x) &&
            wf_same_shape(x, &n->out[0])) /* no broadcast: scale keeps the shape of x */
            return wf_fold_new(f, n, wf_scale(f->g, x, factor));
    }
    return false;
}

bool wf_fold_neg(wf_folder *f, wf_node *n)
{
    wf_value *x = wf_fold_in(f, n, 0);
    if (!wf_made_by(x, WF_OP_neg))
        return false;
    wf_fold_past(f, x);
    return wf_fold_by(f, n, wf_fold_in(f, x->node, 0));
}

bool wf_fold_where(wf_folder *f, wf_node *n)
{
    double condition;
    if (!wf_match_fill(wf_fold_in(f, n, 0), &condition))
        return false;
    wf_value *x = wf_fold_in(f, n, condition != 0 ? 1 : 2);
    if (wf_same_shape(x, &n->out[0]))
        return wf_fold_by(f, n, x);
    /* The chosen operand was broadcast. */
    return wf_fold_new(f, n, wf_broadcast_to(f->g, x, &n->out[0].shape));
}

/* ---- Fills ---- */

/* Any view, copy, cast or scale of a fill is a fill. */
bool wf_fold_fill(wf_folder *f, wf_node *n)
{
    const wf_value *y = &n->out[0];
    double value;
    if (!wf_match_fill(wf_fold_in(f, n, 0), &value))
        return false;
    if (n->op == WF_OP_scale) /* in f32, as kernels compute it */
        value = (float)value * (float)((const wf_attr_scale *)n->attr)->factor;
    return wf_fold_new(f, n, wf_fill(f->g, y->type, (int)y->shape.n, y->shape.d, value));
}

/* ---- Ops that leave the shape as it is ---- */

bool wf_fold_pad(wf_folder *f, wf_node *n)
{
    const wf_attr_pad *a = n->attr;
    return a->before == 0 && a->after == 0 && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

bool wf_fold_concat(wf_folder *f, wf_node *n)
{
    return n->nin == 1 && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

bool wf_fold_broadcast(wf_folder *f, wf_node *n)
{
    return wf_same_shape(n->in[0], &n->out[0]) && wf_fold_by(f, n, wf_fold_in(f, n, 0));
}

bool wf_fold_reduce(wf_folder *f, wf_node *n)
{
    const wf_attr_reduce *a = n->attr;
    wf_value *x = wf_fold_in(f, n, 0);
    for (int i = 0; i < x->shape.n; i++)
        if (a->axes >> i & 1 && x->shape.d[i] != 1)
            return false;
    if (wf_same_shape(x, &n->out[0]))
        return wf_fold_by(f, n, x);
    return wf_fold_may_view(f, n, x) && wf_fold_new(f, n, wf_reshape_to(f->g, x, &n->out[0].shape));
}

/* ---- Sums of pads ---- */

enum { MOST_PADS = 64 }; /* bounds the arrays below and the recursion of collect_pads */

/* The operands of a sum of pads along one axis, sorted by offset. */
typedef struct {
    wf_value *part[MOST_PADS];
    int64_t begin[MOST_PADS];
    int count;
    int64_t axis; /* -1 before the first pad */
} pads;

/* Adds the pads of v to p: v is a pad or a sum of pads, of this shape. Returns false for other
 * values. */
static bool collect_pads(wf_folder *f, wf_value *v, const wf_dims *shape, pads *p)
{
    if (!wf_dims_equal(&v->shape, shape) || p->count == MOST_PADS)
        return false;
    wf_fold_past(f, v);
    if (wf_made_by(v, WF_OP_add))
        return collect_pads(f, wf_fold_in(f, v->node, 0), shape, p) &&
               collect_pads(f, wf_fold_in(f, v->node, 1), shape, p);
    const wf_attr_pad *a = wf_made_by(v, WF_OP_pad) ? v->node->attr : NULL;
    if (!a || (p->axis >= 0 && a->axis != p->axis))
        return false;
    int at = p->count++;
    for (; at > 0 && p->begin[at - 1] > a->before; at--) {
        p->begin[at] = p->begin[at - 1];
        p->part[at] = p->part[at - 1];
    }
    p->axis = a->axis;
    p->begin[at] = a->before;
    p->part[at] = wf_fold_in(f, v->node, 0);
    return true;
}

/* Pads whose contents cover the axis without gaps or overlaps are a concat. The gradient of
 * splitting a value into slices looks like this. */
bool wf_fold_pads(wf_folder *f, wf_node *n)
{
    pads p = {.axis = -1};
    const wf_dims *shape = &n->out[0].shape;
    if (!collect_pads(f, wf_fold_in(f, n, 0), shape, &p) ||
        !collect_pads(f, wf_fold_in(f, n, 1), shape, &p))
        return false;
    int64_t end = 0;
    for (int i = 0; i < p.count; i++) {
        /* Sorted by begin: each part must start where the last one ended. */
        if (p.begin[i] != end || !wf_fold_reads(f, n, p.part[i]))
            return false;
        end += p.part[i]->shape.d[p.axis];
    }
    return end == shape->d[p.axis] &&
           wf_fold_new(f, n, wf_concat(f->g, p.part, p.count, (int)p.axis));
}

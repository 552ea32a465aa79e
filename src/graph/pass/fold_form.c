/* SPDX-License-Identifier: MIT */
/*
 * fold_form.c - rules of the fold pass that form larger ops: activations, linear, softmax, norms.
 *
 *     before                                            after
 *     %3 = mul(%0, sigmoid(%0))                         %3 = silu(%0)
 *     %3 = mul(silu(%0), %1)                            %3 = glu(%0, %1)
 *     %3 = add(linear(%0, %1), %2)                      %3 = linear(%0, %1, %2)
 *     %3 = div(exp(sub(%0, max(%0))), sum(exp(...)))    %3 = softmax(%0)
 *     %3 = mul(%0, rsqrt(add(mean(mul(%0, %0)), eps)))  %3 = rms_norm(%0)
 *
 * Norms form in several rounds. x rsqrt(mean(x^2) + eps) becomes rms_norm, rms_norm of x - mean(x)
 * becomes layer_norm, then a gain goes into either norm and a bias into layer_norm.
 *
 * Inner values must have no other reader (wf_fold_inner): they would have to be computed anyway.
 * Larger ops round differently from their parts, so these rules keep values within roundoff only.
 */
#include <math.h>

#include "graph/pass/fold_priv.h"

/* ---- Scales ---- */

/* Factors far from the ends of f32's range: combining two adds no overflow or underflow. 2^60 twice
 * is 2^120, below f32's 2^128. */
static bool is_tame(double factor)
{
    return fabs(factor) > 0x1p-60 && fabs(factor) < 0x1p60;
}

bool wf_fold_scales(wf_folder *f, wf_node *n)
{
    wf_value *mid = wf_fold_in(f, n, 0);
    if (!wf_made_by(mid, WF_OP_scale) || !wf_fold_inner(f, mid, n, NULL))
        return false;
    double a = ((const wf_attr_scale *)n->attr)->factor;
    double b = ((const wf_attr_scale *)mid->node->attr)->factor;
    wf_value *x = wf_fold_in(f, mid->node, 0);
    return is_tame(a) && is_tame(b) && wf_fold_reads(f, n, x) &&
           wf_fold_new(f, n, wf_scale(f->g, x, a * b));
}

/* x / c becomes x * (1 / c), which rounds twice; within roundoff. */
bool wf_fold_div_fill(wf_folder *f, wf_node *n)
{
    wf_value *x = wf_fold_in(f, n, 0);
    double divisor;
    return wf_match_fill(wf_fold_in(f, n, 1), &divisor) && is_tame(divisor) &&
           wf_same_shape(x, &n->out[0]) && wf_fold_new(f, n, wf_scale(f->g, x, 1 / divisor));
}

/* ---- Activations ---- */

/* x * sigmoid(x), in either order. */
bool wf_fold_silu(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *x = wf_fold_in(f, n, i), *s = wf_fold_in(f, n, 1 - i);
        /* The same value on both sides. */
        if (wf_made_by(s, WF_OP_sigmoid) && wf_fold_in(f, s->node, 0) == x &&
            wf_fold_inner(f, s, n, NULL))
            return wf_fold_new(f, n, wf_silu(f->g, x));
    }
    return false;
}

/* act(gate) * up, in either order; act is one of the gates of wf_glu_kind. */
bool wf_fold_glu(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *act = wf_fold_in(f, n, i), *up = wf_fold_in(f, n, 1 - i);
        int kind = act ? wf_glu_find(act->node->op) : -1;
        if (kind < 0 || !wf_alike(act, up) || !wf_fold_inner(f, act, n, NULL))
            continue;
        wf_value *gate = wf_fold_in(f, act->node, 0);
        if (wf_fold_reads(f, n, gate))
            return wf_fold_new(f, n, wf_glu(f->g, gate, up, (wf_glu_kind)kind));
    }
    return false;
}

/* ---- Matmuls ---- */

/* Whether v is a permute that moves its operand's last axis to the last but one. Matmul then reads
 * the operand transposed, with contiguous rows. Sets *order to v's order with its last two axes
 * swapped. */
static bool is_transposed(const wf_value *v, wf_dims *order)
{
    const wf_node *n = wf_made_by(v, WF_OP_permute);
    if (!n || !wf_is_float(v))
        return false;
    *order = ((const wf_attr_permute *)n->attr)->order;
    /* The operand's last axis becomes the last but one. */
    const int64_t last = order->n - 1, inner = last >= 1 ? order->d[last - 1] : -1;
    if (inner != last)
        return false;
    order->d[last - 1] = order->d[last];
    order->d[last] = last;
    return true;
}

bool wf_fold_matmul_transposed(wf_folder *f, wf_node *n)
{
    wf_attr_matmul a = *(const wf_attr_matmul *)n->attr;
    int64_t *flag[] = {&a.transpose_a, &a.transpose_b};
    wf_value *in[2];
    wf_dims order;
    bool any = false;
    for (int i = 0; i < 2; i++) {
        in[i] = wf_fold_in(f, n, i);
        if (!is_transposed(in[i], &order))
            continue;
        wf_fold_past(f, in[i]);
        /* Often the identity, which folds in the next round. */
        in[i] = wf_permute(f->g, wf_fold_in(f, in[i]->node, 0), order.d);
        *flag[i] = !*flag[i]; /* a transposed operand and the flag cancel */
        any = true;
    }
    return any && wf_fold_new(f, n, wf_node_add(f->g, WF_OP_matmul, &a, NULL, in, 2));
}

/* x [M, K] times the transpose of a state w [N, K]. Only for states: linear is the op of weights,
 * which devices may pack. */
bool wf_fold_linear(wf_folder *f, wf_node *n)
{
    const wf_attr_matmul *a = n->attr;
    wf_value *x = wf_fold_in(f, n, 0), *w = wf_fold_in(f, n, 1);
    return !a->transpose_a && a->transpose_b && x->shape.n == 2 && w->state &&
           wf_fold_new(f, n, wf_linear(f->g, x, w, NULL));
}

/* Whether v is [C] of x's type, where C is the last axis of x. */
static bool is_row_of(const wf_value *v, const wf_value *x)
{
    return v->type == x->type && v->shape.n == 1 && v->shape.d[0] == wf_dims_last(&x->shape);
}

/* y = x w^T, then y + bias with bias [N]. */
bool wf_fold_linear_bias(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *y = wf_fold_in(f, n, i), *bias = wf_fold_in(f, n, 1 - i);
        if (!wf_made_by(y, WF_OP_linear) || y->node->nin != 2 || !wf_alike(y, &n->out[0]) ||
            !is_row_of(bias, y) || !wf_fold_inner(f, y, n, NULL))
            continue;
        wf_value *x = wf_fold_in(f, y->node, 0), *w = wf_fold_in(f, y->node, 1);
        if (wf_fold_reads(f, n, x) && wf_fold_reads(f, n, w))
            return wf_fold_new(f, n, wf_linear(f->g, x, w, bias));
    }
    return false;
}

/* ---- Rows ---- */

/* a + scatter_add_rows(zeros, ...) is scatter_add_rows(a, ...). The gradient of a table that is
 * both embedding and head looks like this. */
bool wf_fold_scatter(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *rows = wf_fold_in(f, n, i), *a = wf_fold_in(f, n, 1 - i);
        double zero;
        if (!wf_made_by(rows, WF_OP_scatter_add_rows) || !wf_alike(rows, a) ||
            !wf_match_fill(wf_fold_in(f, rows->node, 0), &zero) || zero != 0 ||
            !wf_fold_inner(f, rows, n, NULL))
            continue;
        wf_value *ids = wf_fold_in(f, rows->node, 1), *from = wf_fold_in(f, rows->node, 2);
        if (wf_fold_reads(f, n, ids) && wf_fold_reads(f, n, from))
            return wf_fold_new(f, n, wf_scatter_add_rows(f->g, a, ids, from));
    }
    return false;
}

/* Returns the node of this op that reduces the last axis to v, [..., 1], with a reshape in between
 * or not. `reader` must be the only reader of v. Returns NULL for other values. */
static wf_node *reduced_rows(wf_folder *f, wf_value *v, wf_op op, const wf_node *reader)
{
    if (!v || !wf_fold_inner(f, v, reader, NULL))
        return NULL;
    if (wf_made_by(v, WF_OP_reshape)) { /* [...] to [..., 1] */
        wf_value *of = wf_fold_in(f, v->node, 0);
        wf_dims leading = wf_dims_leading(&v->shape);
        if (!wf_dims_equal(&of->shape, &leading) || !wf_fold_inner(f, of, v->node, NULL))
            return NULL;
        v = of;
    }
    wf_node *n = wf_made_by(v, op);
    const wf_attr_reduce *a = n ? n->attr : NULL;
    const wf_dims *x = n ? &n->in[0]->shape : NULL;
    return n && x->n > 0 && a->axes == (int64_t)1 << (x->n - 1) ? n : NULL;
}

/* reduced_rows for a mean, written as mean or as a sum scaled by 1 / C. */
static wf_node *mean_rows(wf_folder *f, wf_value *v, const wf_node *reader)
{
    if (!wf_made_by(v, WF_OP_scale))
        return reduced_rows(f, v, WF_OP_mean, reader);
    if (!wf_fold_inner(f, v, reader, NULL))
        return NULL;
    wf_node *sum = reduced_rows(f, wf_fold_in(f, v->node, 0), WF_OP_sum, v->node);
    double factor = ((const wf_attr_scale *)v->node->attr)->factor;
    /* The tolerance admits a factor that was rounded to f32. */
    return sum && fabs(factor * (double)wf_dims_last(&sum->in[0]->shape) - 1) < 1e-6 ? sum : NULL;
}

/* Whether v is [..., 1] of x's type, where x is [..., C]. */
static bool is_per_row(const wf_value *v, const wf_value *x)
{
    wf_dims shape = x->shape;
    if (shape.n == 0)
        return false;
    shape.d[shape.n - 1] = 1;
    return v->type == x->type && wf_dims_equal(&v->shape, &shape);
}

static bool reduces(const wf_folder *f, const wf_node *reduction, const wf_value *x)
{
    return reduction && wf_fold_in(f, reduction, 0) == x;
}

/* e / sum(e) with e = exp(x - max(x)) */
bool wf_fold_softmax(wf_folder *f, wf_node *n)
{
    wf_value *e = wf_fold_in(f, n, 0), *total = wf_fold_in(f, n, 1);
    /* An empty row has no maximum. */
    if (!wf_made_by(e, WF_OP_exp) || !is_per_row(total, e) || wf_dims_last(&e->shape) == 0)
        return false;
    const wf_node *sum = reduced_rows(f, total, WF_OP_sum, n);
    wf_value *d = wf_fold_in(f, e->node, 0);
    /* e is read twice, by the division and by the sum. */
    if (!reduces(f, sum, e) || !wf_fold_inner(f, e, n, sum) || !wf_made_by(d, WF_OP_sub) ||
        !wf_fold_inner(f, d, e->node, NULL))
        return false;
    wf_value *x = wf_fold_in(f, d->node, 0), *max = wf_fold_in(f, d->node, 1);
    return is_per_row(max, x) && reduces(f, reduced_rows(f, max, WF_OP_max, d->node), x) &&
           wf_fold_reads(f, n, x) && wf_fold_new(f, n, wf_softmax(f->g, x));
}

/* ---- Norms ---- */

/* Whether v = mean(x^2) + eps over the last axis of x, and `reader` is its only reader. Sets
 * *eps. */
static bool is_mean_square(wf_folder *f, wf_value *v, const wf_value *x, const wf_node *reader,
                           double *eps)
{
    const wf_node *add = wf_made_by(v, WF_OP_add);
    if (!add || !is_per_row(v, x) || !wf_fold_inner(f, v, reader, NULL))
        return false;
    /* Either operand of the sum may be the constant. `at` is the other one. */
    int at = wf_match_fill(wf_fold_in(f, add, 1), eps) ? 0 : 1;
    if (!wf_match_fill(wf_fold_in(f, add, 1 - at), eps) || !(*eps >= 0))
        return false;
    wf_value *m = wf_fold_in(f, add, at);
    const wf_node *mean = is_per_row(m, x) ? mean_rows(f, m, add) : NULL;
    wf_value *square = mean ? wf_fold_in(f, mean, 0) : NULL;
    return wf_made_by(square, WF_OP_mul) && wf_fold_in(f, square->node, 0) == x &&
           wf_fold_in(f, square->node, 1) == x && wf_fold_inner(f, square, mean, NULL);
}

/* x may have 0 rows, but a row must not be empty: it would have no mean. */
static bool form_rms_norm(wf_folder *f, wf_node *n, wf_value *x, double eps)
{
    return wf_dims_last(&x->shape) > 0 && wf_fold_reads(f, n, x) &&
           wf_fold_new(f, n, wf_rms_norm(f->g, x, NULL, eps));
}

bool wf_fold_rms_norm(wf_folder *f, wf_node *n)
{
    double eps;
    for (int i = 0; i < 2; i++) {
        wf_value *x = wf_fold_in(f, n, i), *r = wf_fold_in(f, n, 1 - i);
        if (wf_made_by(r, WF_OP_rsqrt) && is_per_row(r, x) && wf_fold_inner(f, r, n, NULL) &&
            is_mean_square(f, wf_fold_in(f, r->node, 0), x, r->node, &eps))
            return form_rms_norm(f, n, x, eps);
    }
    return false;
}

/* x / sqrt(...), another way to write rms_norm. */
bool wf_fold_rms_norm_div(wf_folder *f, wf_node *n)
{
    wf_value *x = wf_fold_in(f, n, 0), *root = wf_fold_in(f, n, 1);
    double eps;
    return wf_made_by(root, WF_OP_sqrt) && is_per_row(root, x) && wf_fold_inner(f, root, n, NULL) &&
           is_mean_square(f, wf_fold_in(f, root->node, 0), x, root->node, &eps) &&
           form_rms_norm(f, n, x, eps);
}

/* rms_norm(x - mean(x)) is layer_norm(x) without bias. */
bool wf_fold_layer_norm(wf_folder *f, wf_node *n)
{
    wf_value *d = wf_fold_in(f, n, 0);
    const wf_attr_norm *a = n->attr;
    if (!wf_made_by(d, WF_OP_sub) || !wf_fold_inner(f, d, n, NULL) ||
        /* A reader of rstd, output 1, prevents it: a rule replaces output 0 only. */
        wf_uses_count(&f->r.uses, &n->out[1]) > 0)
        return false;
    wf_value *x = wf_fold_in(f, d->node, 0), *mean = wf_fold_in(f, d->node, 1);
    wf_value *gamma = n->nin > 1 ? wf_fold_in(f, n, 1) : NULL;
    return is_per_row(mean, x) && reduces(f, mean_rows(f, mean, d->node), x) &&
           wf_fold_reads(f, n, x) && wf_fold_new(f, n, wf_layer_norm(f->g, x, gamma, NULL, a->eps));
}

/* Returns the norm that makes operand i of n, if it can take the other operand, a row [C], as its
 * operand number `operand` (1: gamma, 2: beta). */
static wf_node *norm_at(wf_folder *f, const wf_node *n, int i, wf_op op, int operand)
{
    wf_value *y = wf_fold_in(f, n, i);
    wf_node *norm = wf_made_by(y, op);
    /* Operands are positional: gamma before beta, and each only once. */
    return norm && y->index == 0 && norm->nin == operand && wf_alike(y, &n->out[0]) &&
                   is_row_of(wf_fold_in(f, n, 1 - i), y) && wf_fold_inner(f, y, n, NULL) &&
                   wf_fold_reads(f, n, wf_fold_in(f, norm, 0))
               ? norm
               : NULL;
}

/* norm(x) * gamma, in either order. */
bool wf_fold_norm_gain(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *gamma = wf_fold_in(f, n, 1 - i);
        wf_node *rms = norm_at(f, n, i, WF_OP_rms_norm, 1);
        wf_node *layer = rms ? NULL : norm_at(f, n, i, WF_OP_layer_norm, 1);
        if (rms)
            return wf_fold_new(f, n,
                               wf_rms_norm(f->g, wf_fold_in(f, rms, 0), gamma,
                                           ((const wf_attr_norm *)rms->attr)->eps));
        if (layer)
            return wf_fold_new(f, n,
                               wf_layer_norm(f->g, wf_fold_in(f, layer, 0), gamma, NULL,
                                             ((const wf_attr_norm *)layer->attr)->eps));
    }
    return false;
}

/* layer_norm(x, gamma) + beta, in either order. rms_norm has no bias. */
bool wf_fold_norm_bias(wf_folder *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_node *norm = norm_at(f, n, i, WF_OP_layer_norm, 2);
        if (norm && wf_fold_reads(f, n, wf_fold_in(f, norm, 1)))
            return wf_fold_new(f, n,
                               wf_layer_norm(f->g, wf_fold_in(f, norm, 0), wf_fold_in(f, norm, 1),
                                             wf_fold_in(f, n, 1 - i),
                                             ((const wf_attr_norm *)norm->attr)->eps));
    }
    return false;
}

/* SPDX-License-Identifier: MIT */
/*
 * fuse_grad.c - patterns of the fuse pass that gradients are full of. Results in narrow types are rounded once
 * where there were several nodes, each of which rounded.
 */
#include "graph/pass/fuse_priv.h"
#include "graph/pass/match.h"

/* v is read by nobody but one operand of one node. */
static bool is_inner(const wf_fuser *f, const wf_value *v)
{
    return wf_fuse_free(f, v->node) && wf_uses_count(&f->r.uses, v) == 1;
}

static wf_op with_residual(wf_op grad)
{
    return grad == WF_OP_rms_norm_grad     ? WF_OP_residual_rms_norm_grad
           : grad == WF_OP_layer_norm_grad ? WF_OP_residual_layer_norm_grad
                                           : WF_OP_COUNT;
}

/* dsum + dx: the gradient that passes a norm by, and the one that comes out of it. */
bool wf_fuse_norm_grad(wf_fuser *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *dx = n->in[i], *dsum = n->in[1 - i];
        wf_node *grad = dx->node;
        wf_op op = with_residual(grad->op);
        if (op == WF_OP_COUNT || dx->index != 0 || !is_inner(f, dx) ||
            wf_fuse_part_ways(f, dx, &n->out[0]) || dsum->node->id >= grad->id ||
            !wf_dims_equal(&dx->shape, &dsum->shape))
            continue;
        wf_value *in[6];
        int before = op == WF_OP_residual_rms_norm_grad ? 3 : 4; /* dsum comes before gamma */
        for (int k = 0; k < grad->nin; k++)
            in[k < before ? k : k + 1] = grad->in[k];
        in[before] = dsum;
        wf_value *made = wf_fuse_build(f, grad, op, grad->attr, in, grad->nin + 1);
        if (!made)
            continue;
        wf_rewrite_replace(&f->r, &n->out[0], made);
        for (int k = 1; k < grad->nout; k++)
            wf_rewrite_replace(&f->r, &grad->out[k], &made->node->out[k]);
        wf_fuse_take(f, grad);
        return true;
    }
    return false;
}

/* A matmul of two matrices, a transposed or not. */
static wf_node *matrix_product(const wf_value *v, bool transpose_a)
{
    wf_node *n = wf_made_by(v, WF_OP_matmul);
    const wf_attr_matmul *a = n ? n->attr : NULL;
    return n && v->shape.n == 2 && (a->transpose_a != 0) == transpose_a && !a->transpose_b ? n
                                                                                           : NULL;
}

/* gelu_grad(dy w, pre) */
bool wf_fuse_matmul_act_grad(wf_fuser *f, wf_node *n)
{
    wf_node *product = matrix_product(n->in[0], false);
    wf_value *pre = n->in[1];
    if (!product || !is_inner(f, n->in[0]) || wf_fuse_part_ways(f, n->in[0], &n->out[0]) ||
        pre->node->id >= product->id)
        return false;
    const wf_attr_matmul_act_grad attr = {.act = WF_ACT_GELU};
    wf_value *in[] = {product->in[0], product->in[1], pre};
    wf_value *made = wf_fuse_build(f, product, WF_OP_matmul_act_grad, &attr, in, 3);
    if (!made)
        return false;
    wf_rewrite_replace(&f->r, &n->out[0], made);
    wf_fuse_take(f, product);
    return true;
}

static bool is_f32_of(const wf_node *n, const wf_value *v)
{
    return n && n->op == WF_OP_cast && n->in[0] == v && n->out[0].type == WF_F32;
}

/* The cast to f32 of the sum of dy's rows, whose only reader it is; or NULL. */
static wf_node *bias_grad(const wf_fuser *f, const wf_value *dy)
{
    const wf_use *use = wf_uses_of(&f->r.uses, dy);
    for (int i = 0; i < wf_uses_count(&f->r.uses, dy); i++) {
        wf_node *sum = use[i].node;
        const wf_attr_reduce *a = sum && sum->op == WF_OP_sum ? sum->attr : NULL;
        if (!a || a->axes != 1 || a->keep || !is_inner(f, &sum->out[0]))
            continue;
        wf_node *cast = wf_uses_of(&f->r.uses, &sum->out[0])[0].node;
        if (is_f32_of(cast, &sum->out[0]) && wf_fuse_free(f, cast))
            return cast;
    }
    return NULL;
}

/* f32 of dy^T x in a narrow type, the gradient of a weight; and, where there is one, that of the bias. */
bool wf_fuse_weight_grad(wf_fuser *f, wf_node *n)
{
    wf_node *product = matrix_product(n->in[0], true), *at = product;
    if (!product || !is_f32_of(n, n->in[0]) || !is_inner(f, n->in[0]) ||
        product->in[0]->type == WF_F32 || product->in[1]->type != product->in[0]->type ||
        wf_fuse_part_ways(f, n->in[0], &n->out[0]))
        return false;
    wf_node *bias = bias_grad(f, product->in[0]), *sum = bias ? bias->in[0]->node : NULL;
    if (sum && sum->id < at->id) {
        if (product->in[1]->node->id < sum->id)
            at = sum;
        else
            bias = NULL; /* may be read before there is an x */
    }
    wf_value *made = wf_fuse_build(f, at, WF_OP_linear_grad_weight, NULL, product->in, 2);
    if (!made)
        return false;
    wf_rewrite_replace(&f->r, &n->out[0], made);
    wf_fuse_take(f, product);
    if (bias) {
        wf_rewrite_replace(&f->r, &bias->out[0], &made->node->out[1]);
        wf_fuse_take(f, sum);
        wf_fuse_take(f, bias);
    }
    return true;
}

/* The rows of dy added up, where the node that makes dy does that, too; or NULL. */
static wf_value *row_sums_of(const wf_value *dy)
{
    const wf_value *d =
        wf_made_by(dy, WF_OP_reshape) ? dy->node->in[0] : dy; /* to [rows, columns] */
    wf_node *maker = d->node;
    if (d->index != 0 || wf_dims_last(&d->shape) != wf_dims_last(&dy->shape) ||
        (maker->op != WF_OP_residual_rms_norm_grad && maker->op != WF_OP_residual_layer_norm_grad &&
         maker->op != WF_OP_matmul_act_grad))
        return NULL;
    return &maker->out[maker->nout - 1];
}

/* The gradient of a bias, db of linear_grad_weight or a sum over rows: no pass over dy of its own. */
bool wf_fuse_row_sums(wf_fuser *f, wf_node *n)
{
    const wf_attr_reduce *a = n->op == WF_OP_sum ? n->attr : NULL;
    wf_value *dy = n->in[0], *db = &n->out[n->nout - 1], *sums = row_sums_of(dy);
    if (!sums || (a && (a->axes != 1 || a->keep || dy->shape.n != 2)) ||
        wf_uses_count(&f->r.uses, db) == 0 || wf_fuse_part_ways(f, sums, db))
        return false;
    wf_rewrite_before(&f->r, n);
    f->g->backward = n->backward;
    wf_value *by = wf_cast(f->g, sums, db->type);
    f->g->backward = false;
    if (by)
        wf_rewrite_replace(&f->r, db, by);
    return by != NULL;
}

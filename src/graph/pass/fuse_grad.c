/* SPDX-License-Identifier: MIT */
/*
 * fuse_grad.c - patterns of the fuse pass that occur in gradients. In bf16 and f16, a fused node
 * rounds once where the separate nodes rounded several times.
 *
 *     before                                             after
 *     %3 = rms_norm_grad(...)
 *     %4 = add(%dsum, %3)                                %4 = residual_rms_norm_grad(%dsum, ...)
 *     %4 = gelu_grad(matmul(%dy, %w), %pre)              %4 = matmul_act_grad(%dy, %w, %pre)
 *     %4 = cast(matmul(%dy, %x)) type=f32                %4 = linear_grad_weight(%dy, %x)
 *     %5 = cast(sum(%dy)) type=f32                       (%4.1)
 */
#include "graph/pass/fuse_priv.h"
#include "graph/pass/match.h"

/* Whether v has exactly one reader and its node is not part of a fused node. The value then need
 * not exist in memory. */
static bool is_inner(const wf_fuser *f, const wf_value *v)
{
    return wf_fuse_free(f, v->node) && wf_uses_count(&f->r.uses, v) == 1;
}

/* The fused form of a norm's gradient, or WF_OP_COUNT for other ops. */
static wf_op with_residual(wf_op grad)
{
    return grad == WF_OP_rms_norm_grad     ? WF_OP_residual_rms_norm_grad
           : grad == WF_OP_layer_norm_grad ? WF_OP_residual_layer_norm_grad
                                           : WF_OP_COUNT;
}

/* dsum + dx, where dsum is the gradient of the residual stream and dx that of the norm's
 * operand. */
bool wf_fuse_norm_grad(wf_fuser *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_value *dx = n->in[i], *dsum = n->in[1 - i];
        wf_node *grad = dx->node;
        wf_op op = with_residual(grad->op);
        if (op == WF_OP_COUNT || dx->index != 0 || !is_inner(f, dx) ||
            /* dsum must exist where the norm's gradient runs. */
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

/* The matmul of rank 2 that makes v, with b not transposed and a as given; else NULL. */
static wf_node *matmul_2d(const wf_value *v, bool transpose_a)
{
    wf_node *n = wf_made_by(v, WF_OP_matmul);
    const wf_attr_matmul *a = n ? n->attr : NULL;
    return n && v->shape.n == 2 && (a->transpose_a != 0) == transpose_a && !a->transpose_b ? n
                                                                                           : NULL;
}

/* gelu_grad(dy w, pre): dy [rows, N], w [N, K], pre and the result [rows, K]. The derivative is
 * applied before the matmul's result is stored. */
bool wf_fuse_matmul_act_grad(wf_fuser *f, wf_node *n)
{
    wf_node *matmul = matmul_2d(n->in[0], false);
    wf_value *pre = n->in[1];
    if (!matmul || !is_inner(f, n->in[0]) || wf_fuse_part_ways(f, n->in[0], &n->out[0]) ||
        pre->node->id >= matmul->id)
        return false;
    const wf_attr_matmul_act_grad attr = {.act = WF_ACT_GELU};
    wf_value *in[] = {matmul->in[0], matmul->in[1], pre};
    wf_value *made = wf_fuse_build(f, matmul, WF_OP_matmul_act_grad, &attr, in, 3);
    if (!made)
        return false;
    wf_rewrite_replace(&f->r, &n->out[0], made);
    wf_fuse_take(f, matmul);
    return true;
}

static bool is_f32_of(const wf_node *n, const wf_value *v)
{
    return n && n->op == WF_OP_cast && n->in[0] == v && n->out[0].type == WF_F32;
}

/* The cast to f32 of the sum of dy's rows, if it is that sum's only reader; else NULL. */
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

/* The gradient of a weight: the cast to f32 of dy^T x in a narrow type. Takes along the gradient of
 * the bias if there is one. */
bool wf_fuse_weight_grad(wf_fuser *f, wf_node *n)
{
    wf_node *matmul = matmul_2d(n->in[0], true), *at = matmul;
    if (!matmul || !is_f32_of(n, n->in[0]) || !is_inner(f, n->in[0]) ||
        /* In f32 there is no cast to save. */
        matmul->in[0]->type == WF_F32 || matmul->in[1]->type != matmul->in[0]->type ||
        wf_fuse_part_ways(f, n->in[0], &n->out[0]))
        return false;
    /* Fuse at the earlier of the two places, so that readers of both come later. */
    wf_node *bias = bias_grad(f, matmul->in[0]), *sum = bias ? bias->in[0]->node : NULL;
    if (sum && sum->id < at->id) {
        if (matmul->in[1]->node->id < sum->id)
            at = sum;
        else
            bias = NULL; /* a reader of the sum may run before x exists */
    }
    wf_value *made = wf_fuse_build(f, at, WF_OP_linear_grad_weight, NULL, matmul->in, 2);
    if (!made)
        return false;
    wf_rewrite_replace(&f->r, &n->out[0], made);
    wf_fuse_take(f, matmul);
    if (bias) {
        wf_rewrite_replace(&f->r, &bias->out[0], &made->node->out[1]);
        wf_fuse_take(f, sum);
        wf_fuse_take(f, bias);
    }
    return true;
}

/* The sum of dy's rows, if the node that makes dy computes it as its last output; else NULL. */
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

/* Takes the gradient of a bias, db of linear_grad_weight or a sum over rows, from the node that
 * makes dy. This saves a pass over dy. */
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

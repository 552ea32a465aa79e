/* SPDX-License-Identifier: MIT */
/*
 * rows.c - rules of ops that select rows by index: embed, gather_rows, scatter_add_rows.
 *
 * Indices are data, so the graph cannot check them: kernels fail on a row out of range. An index
 * may occur more than once; its gradients add up.
 */
#include "graph/op/rule.h"

/* ---- embed ---- */

wf_status wf_shape_embed(wf_infer *r)
{
    const wf_value *table = r->in[0], *ids = r->in[1];
    WF_RULE(r, table->shape.n == 2 && ids->type == WF_I32 && ids->shape.n < WF_MAX_RANK,
            "needs a table [V, C] and i32 ids of rank %d or less", WF_MAX_RANK - 1);
    wf_dims shape = wf_dims_append(&ids->shape, table->shape.d[1]);
    /* Rows of a quantized table are decoded to f32. */
    wf_infer_out(r, wf_is_block(table) ? WF_F32 : table->type, &shape);
    return WF_OK;
}

/* Any shape to one axis. */
static wf_value *flat(wf_graph *g, wf_value *v)
{
    return wf_reshape(g, v, 1, (int64_t[]){wf_value_count(v)});
}

/* Quantized tables have no gradient. */
wf_status wf_grad_embed(wf_vjp *v)
{
    wf_graph *g = v->g;
    /* Ids of any shape select one row each. */
    wf_value *table = v->node->in[0], *ids = flat(g, v->node->in[1]);
    if (wf_is_float(table))
        v->din[0] =
            wf_scatter_add_rows(g, wf_zeros_like(g, table), ids, wf_flatten_rows(g, v->dout[0]));
    return WF_OK;
}

wf_status wf_expand_embed(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    (void)n;
    wf_dims shape = wf_dims_append(&in[1]->shape, in[0]->shape.d[1]);
    wf_value *rows = wf_gather_rows(g, in[0], flat(g, in[1]));
    if (wf_is_block(in[0]))
        rows = wf_cast(g, rows, WF_F32);
    out[0] = wf_reshape_to(g, rows, &shape);
    return WF_OK;
}

/* ---- gather_rows, scatter_add_rows ---- */

wf_status wf_shape_gather_rows(wf_infer *r)
{
    const wf_value *x = r->in[0], *rows = r->in[1];
    WF_RULE(r, x->shape.n >= (wf_is_block(x) ? 2 : 1),
            "x must be [R, ...], and a quantized x must have rank 2 or more");
    WF_RULE(r, wf_is_i32(rows, 1), "rows must be i32[n]");
    wf_dims shape = x->shape;
    shape.d[0] = rows->shape.d[0];
    wf_infer_out(r, x->type, &shape);
    return WF_OK;
}

/* Rows that were gathered several times sum their gradients. */
wf_status wf_grad_gather_rows(wf_vjp *v)
{
    wf_value *x = v->node->in[0];
    v->din[0] = wf_scatter_add_rows(v->g, wf_zeros_like(v->g, x), v->node->in[1], v->dout[0]);
    return WF_OK;
}

/* (x [R, ...], rows i32[n], from [n, ...]): x with from[i] added to row rows[i]. */
wf_status wf_shape_scatter_add_rows(wf_infer *r)
{
    const wf_value *x = r->in[0], *rows = r->in[1], *from = r->in[2];
    WF_RULE(r, x->shape.n >= 1 && wf_is_float(x), "x must be [R, ...] of f32, f16 or bf16");
    WF_RULE(r, wf_is_i32(rows, 1), "rows must be i32[n]");
    wf_dims shape = x->shape;
    shape.d[0] = rows->shape.d[0];
    WF_RULE(r, from->type == x->type && wf_dims_equal(&from->shape, &shape),
            "from must be [n, ...], with rows of x's type and shape");
    wf_infer_out(r, x->type, &x->shape);
    return WF_OK;
}

wf_status wf_grad_scatter_add_rows(wf_vjp *v)
{
    v->din[0] = v->dout[0]; /* x passes through unchanged */
    if (v->need[2])
        v->din[2] = wf_gather_rows(v->g, v->dout[0], v->node->in[1]);
    return WF_OK;
}

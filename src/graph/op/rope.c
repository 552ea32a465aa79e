/* SPDX-License-Identifier: MIT */
/* rope.c - rules of rotary position embedding. */
#include "graph/op/rule.h"

wf_status wf_shape_rope(wf_infer *r)
{
    const wf_value *x = r->in[0], *positions = r->in[1], *freq = r->in[2];
    WF_RULE(r, wf_is_float(x) && x->shape.n == 3, "x must be [N, H, D] of f32, f16 or bf16");
    WF_RULE(r, wf_is_i32(positions, 1) && positions->shape.d[0] == x->shape.d[0],
            "positions must be i32[N], one for each row of x");
    WF_RULE(r, freq->type == WF_F32 && freq->shape.n == 1 && 2 * freq->shape.d[0] <= x->shape.d[2],
            "inv_freq must be f32[R/2] with R at most D");
    wf_infer_out(r, x->type, &x->shape);
    return WF_OK;
}

/* A rotation's gradient is the rotation back. */
wf_status wf_grad_rope(wf_vjp *v)
{
    wf_node *n = v->node;
    if (v->need[2])
        return wf_graph_fail(v->g, WF_ERR_USAGE, "rope has no gradient with respect to inv_freq");
    wf_attr_rope a = *(const wf_attr_rope *)n->attr;
    a.inverse = !a.inverse;
    wf_value *in[] = {v->dout[0], n->in[1], n->in[2]};
    v->din[0] = wf_node_add(v->g, WF_OP_rope, &a, NULL, in, 3);
    return WF_OK;
}

/* The two members of every pair, [N, H, R/2] each. */
static void split_pairs(wf_graph *g, wf_value *x, int64_t pairs, bool interleaved, wf_value *out[2])
{
    int64_t n = x->shape.d[0], h = x->shape.d[1];
    wf_value *turned = wf_slice(g, x, 2, 0, 2 * pairs);
    if (interleaved)
        turned = wf_reshape(g, turned, 4, (int64_t[]){n, h, pairs, 2});
    for (int i = 0; i < 2; i++)
        out[i] = interleaved
                     ? wf_reshape(g, wf_slice(g, turned, 3, i, i + 1), 3, (int64_t[]){n, h, pairs})
                     : wf_slice(g, turned, 2, i * pairs, (i + 1) * pairs);
}

static wf_value *join_pairs(wf_graph *g, wf_value *pair[2], bool interleaved)
{
    if (!interleaved || !pair[0])
        return wf_concat(g, pair, 2, 2);
    wf_dims d = pair[0]->shape, column = wf_dims_append(&d, 1);
    wf_value *columns[] = {wf_reshape_to(g, pair[0], &column), wf_reshape_to(g, pair[1], &column)};
    return wf_reshape(g, wf_concat(g, columns, 2, 3), 3, (int64_t[]){d.d[0], d.d[1], 2 * d.d[2]});
}

wf_status wf_expand_rope(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_rope *a = n->attr;
    int64_t rows = in[0]->shape.d[0], width = in[0]->shape.d[2], pairs = in[2]->shape.d[0];
    wf_value *x = wf_cast(g, in[0], WF_F32), *pair[2], *turned[2];
    if (!x)
        return g->status;
    split_pairs(g, x, pairs, a->interleaved != 0, pair);

    wf_value *position = wf_reshape(g, wf_cast(g, in[1], WF_F32), 3, (int64_t[]){rows, 1, 1});
    wf_value *angle = wf_mul(g, position, in[2]); /* [N, 1, R/2] */
    wf_value *c = wf_scale(g, wf_cos(g, angle), a->magnitude);
    wf_value *s = wf_scale(g, wf_sin(g, angle), a->inverse ? -a->magnitude : a->magnitude);
    turned[0] = wf_sub(g, wf_mul(g, pair[0], c), wf_mul(g, pair[1], s));
    turned[1] = wf_add(g, wf_mul(g, pair[0], s), wf_mul(g, pair[1], c));

    wf_value *y[] = {join_pairs(g, turned, a->interleaved != 0),
                     wf_slice(g, x, 2, 2 * pairs, width)};
    out[0] = wf_cast(g, wf_concat(g, y, 2, 2), in[0]->type);
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/* source.c - rules of ops without tensor operands: input, state, state_copy, fill, iota; and of
 * uniform. Types and shapes come from attributes; check_shape of graph.c has checked the
 * lengths. */
#include "graph/op/rule.h"

/* input and state: any type, quantized ones included. */
wf_status wf_shape_source(wf_infer *r)
{
    const wf_attr_source *a = r->attr;
    WF_RULE(r, wf_type_get(a->type)->kind != WF_KIND_NONE, "the type is unknown");
    wf_infer_out(r, a->type, &a->dims);
    return WF_OK;
}

/* verify.c checks that the f32 state exists: only the complete graph shows it. */
wf_status wf_shape_state_copy(wf_infer *r)
{
    const wf_attr_source *a = r->attr;
    WF_RULE(r, a->type == WF_BF16 || a->type == WF_F16, "the type must be bf16 or f16");
    wf_infer_out(r, a->type, &a->dims);
    return WF_OK;
}

wf_status wf_shape_fill(wf_infer *r)
{
    const wf_attr_fill *a = r->attr;
    WF_RULE(r, (unsigned)a->type < WF_TYPE_COUNT && wf_type_bit(a->type) & WF_TYPES_PLAIN,
            "the type must be a plain type");
    wf_infer_out(r, a->type, &a->dims);
    return WF_OK;
}

/* The i32 index along one axis; constant along the others. */
wf_status wf_shape_iota(wf_infer *r)
{
    const wf_attr_iota *a = r->attr;
    WF_RULE(r, a->axis >= 0 && a->axis < a->dims.n, "axis %lld is out of range",
            (long long)a->axis);
    WF_RULE(r, a->dims.d[a->axis] <= INT32_MAX, "the axis must have at most 2^31 - 1 elements");
    wf_infer_out(r, WF_I32, &a->dims);
    return WF_OK;
}

/* The key is (seed low, seed high, step). With the stream it determines every element, so a run
 * that resumes at a step draws the same values. */
wf_status wf_shape_uniform(wf_infer *r)
{
    const wf_attr_uniform *a = r->attr;
    WF_RULE(r, wf_is_i32(r->in[0], 1) && r->in[0]->shape.d[0] == 3, "the key must be i32[3]");
    wf_infer_out(r, WF_F32, &a->dims);
    return WF_OK;
}

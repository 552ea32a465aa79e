/* SPDX-License-Identifier: MIT */
/* ref_shape.c - ops that create or move values without arithmetic. All are exact. */
#include "selftest/ref_priv.h"

/* ---- Sources ---- */

wf_status wf_ref_fill(const wf_ref_call *c)
{
    const wf_attr_fill *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    bool is_int = wf_ref_is_int(c->out->type);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = is_int ? wf_ref_to_int(c->out->type, attr->value) : attr->value;
    return WF_OK;
}

wf_status wf_ref_iota(const wf_ref_call *c)
{
    const wf_attr_iota *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(&c->out->shape, e, index);
        c->out->v[e] = (double)index[attr->axis];
    }
    return WF_OK;
}

wf_status wf_ref_uniform(const wf_ref_call *c)
{
    const wf_attr_uniform *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = wf_ref_random(&c->in[0], attr->stream, e);
    return WF_OK;
}

/* ---- The same elements in the same order ---- */

/* Integers truncate toward zero and saturate. The comparison rounds float results. */
wf_status wf_ref_cast(const wf_ref_call *c)
{
    int64_t count = wf_dims_count(&c->out->shape);
    bool is_int = wf_ref_is_int(c->out->type);
    for (int64_t e = 0; e < count; e++) {
        double x = c->in[0].v[e];
        if (is_int)
            wf_ref_set(c->out, e, wf_ref_to_int(c->out->type, x), 0);
        else
            wf_ref_set(c->out, e, x, wf_ref_read_mag(c->in[0].type, x));
    }
    return WF_OK;
}

wf_status wf_ref_copy(const wf_ref_call *c)
{
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = c->in[0].v[e];
    return WF_OK;
}

wf_status wf_ref_reshape(const wf_ref_call *c)
{
    return wf_ref_copy(c);
}

/* ---- Elements elsewhere ---- */

wf_status wf_ref_permute(const wf_ref_call *c)
{
    const wf_attr_permute *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t to[WF_MAX_RANK], from[WF_MAX_RANK];
        wf_ref_unravel(&c->out->shape, e, to);
        for (int64_t a = 0; a < c->out->shape.n; a++)
            from[attr->order.d[a]] = to[a];
        c->out->v[e] = c->in[0].v[wf_ref_ravel(&c->in[0].shape, from)];
    }
    return WF_OK;
}

wf_status wf_ref_slice(const wf_ref_call *c)
{
    const wf_attr_slice *attr = c->attr;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(&c->out->shape, e, index);
        index[attr->axis] += attr->begin;
        c->out->v[e] = c->in[0].v[wf_ref_ravel(&c->in[0].shape, index)];
    }
    return WF_OK;
}

/* Copies all of `from` into `to`, shifted by `offset` along an axis. */
static void place(const wf_ref *from, wf_ref *to, int64_t axis, int64_t offset)
{
    int64_t count = wf_dims_count(&from->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(&from->shape, e, index);
        index[axis] += offset;
        to->v[wf_ref_ravel(&to->shape, index)] = from->v[e];
    }
}

wf_status wf_ref_pad(const wf_ref_call *c)
{
    const wf_attr_pad *attr = c->attr;
    place(&c->in[0], c->out, attr->axis, attr->before); /* out starts as zeros */
    return WF_OK;
}

wf_status wf_ref_concat(const wf_ref_call *c)
{
    const wf_attr_axis *attr = c->attr;
    int64_t offset = 0;
    for (int i = 0; i < c->nin; i++) {
        place(&c->in[i], c->out, attr->axis, offset);
        offset += c->in[i].shape.d[attr->axis];
    }
    return WF_OK;
}

wf_status wf_ref_broadcast(const wf_ref_call *c)
{
    const wf_dims *shape = &c->out->shape;
    int64_t count = wf_dims_count(shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t index[WF_MAX_RANK];
        wf_ref_unravel(shape, e, index);
        c->out->v[e] = c->in[0].v[wf_ref_repeated(&c->in[0].shape, index, shape->n)];
    }
    return WF_OK;
}

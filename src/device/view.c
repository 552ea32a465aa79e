/* SPDX-License-Identifier: MIT */
/*
 * view.c - computes strides: whether a view can share the storage of its operand, and how.
 *
 * A place is a root (its block, port or state), the element of the root where the view begins, and
 * a stride per axis in elements. A view may share storage if such strides exist and its last axis
 * is contiguous: every kernel that accepts strides relies on the latter. The graph is static, so
 * all of this happens at compile time.
 */
#include "device/plan.h"

void wf_place_dense(wf_place *place, const wf_dims *shape)
{
    int64_t stride = 1;
    for (int64_t i = shape->n - 1; i >= 0; i--) {
        place->stride[i] = stride;
        stride *= shape->d[i];
    }
    place->dense = true;
}

/* Ignores strides of axes of length 1: they are never used to step. */
static bool strides_are_dense(const wf_place *place, const wf_dims *shape)
{
    int64_t stride = 1;
    for (int64_t i = shape->n - 1; i >= 0; i--) {
        if (shape->d[i] != 1 && place->stride[i] != stride)
            return false;
        stride *= shape->d[i];
    }
    return true;
}

/* Computes strides for shape `to` over the elements of shape `from` with the strides of `place`, by
 * NumPy's algorithm. It pairs groups of old axes with groups of new axes of equal size. The old
 * axes of a group must be contiguous with each other. Axes of length 1 are skipped. Returns false
 * if the elements must be copied. */
static bool reshape_strides(const wf_dims *from, const wf_place *place, const wf_dims *to,
                            int64_t *out)
{
    wf_dims d = {0};
    int64_t s[WF_MAX_RANK], i = 0, k = 0; /* i and k: first old and new axis of the current group */
    for (int a = 0; a < from->n; a++)
        if (from->d[a] != 1) {
            s[d.n] = place->stride[a];
            d.d[d.n++] = from->d[a];
        }
    while (i < d.n || k < to->n) {
        int64_t old_end = i, new_end = k;
        int64_t old_count = i < d.n ? d.d[old_end++] : 1,
                new_count = k < to->n ? to->d[new_end++] : 1;
        /* Extend the smaller side until both groups have the same number of elements. Axes are
         * never empty here: wf_place_view rejects empty values. */
        while (old_count != new_count) {
            if (new_count < old_count && new_end < to->n)
                new_count *= to->d[new_end++];
            else if (old_count < new_count && old_end < d.n)
                old_count *= d.d[old_end++];
            else
                return false;
        }
        /* One axis may only replace several if stepping over its end continues in the next. */
        for (int64_t a = i; a + 1 < old_end; a++)
            if (s[a] != s[a + 1] * d.d[a + 1])
                return false;
        /* old_end == i: a trailing new axis of length 1, whose stride is never used. */
        int64_t stride = old_end > i ? s[old_end - 1] : 1;
        for (int64_t a = new_end - 1; a >= k; a--) {
            out[a] = stride;
            stride *= to->d[a];
        }
        i = old_end;
        k = new_end;
    }
    return true;
}

/* The condition of wf_view.stride: kernels step by 1 along the last axis. */
static bool last_is_contiguous(const wf_place *place, const wf_dims *shape)
{
    return shape->n == 0 || shape->d[shape->n - 1] == 1 || place->stride[shape->n - 1] == 1;
}

void wf_place_part(const wf_node *concat, int i, wf_place *out)
{
    const wf_attr_axis *a = concat->attr;
    *out = (wf_place){0};
    wf_place_dense(out, &concat->out[0].shape);
    for (int k = 0; k < i; k++)
        out->first += concat->in[k]->shape.d[a->axis] * out->stride[a->axis];
    /* Dense only if the operand spans all later axes, for example along axis 0. */
    out->dense = strides_are_dense(out, &concat->in[i]->shape);
}

bool wf_place_before(const wf_node *n, const wf_place *result, wf_place *out)
{
    const wf_dims *shape = &n->in[0]->shape;
    wf_place place = *result;
    /* The inverse of wf_place_view: the strides of the result are known, those of the operand are
     * wanted. A reshape works in both directions. */
    if (!reshape_strides(&n->out[0].shape, result, shape, place.stride))
        return false;
    place.dense = strides_are_dense(&place, shape);
    *out = place;
    return last_is_contiguous(out, shape);
}

bool wf_place_view(const wf_node *n, const wf_place *operand, wf_place *out)
{
    const wf_value *x = n->in[0];
    const wf_dims *shape = &n->out[0].shape;
    *out = *operand;
    if (wf_dims_count(shape) == 0)
        return false; /* an empty value has no storage to share */
    switch (n->op) {
    case WF_OP_reshape:
        if (!reshape_strides(&x->shape, operand, shape, out->stride))
            return false;
        break;
    case WF_OP_permute: {
        const wf_attr_permute *a = n->attr;
        for (int i = 0; i < shape->n; i++)
            out->stride[i] = operand->stride[a->order.d[i]];
        break;
    }
    case WF_OP_slice: {
        const wf_attr_slice *a = n->attr;
        out->first += a->begin * out->stride[a->axis];
        break;
    }
    default: return false;
    }
    out->dense = strides_are_dense(out, shape);
    return last_is_contiguous(out, shape);
}

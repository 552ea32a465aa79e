/* SPDX-License-Identifier: MIT */
/*
 * match.c - predicates on values and nodes that passes use to match patterns; see match.h.
 *
 * Predicates look at the graph as it is. They hold no state and never fail.
 */
#include "graph/pass/match.h"

#include <math.h>

double wf_match_stored(wf_type type, double value)
{
    /* Integers truncate, as cast does in C; comparing with the limits in double is exact. */
    double whole = isnan(value) ? 0 : trunc(value);
    /* First to f32, as fill does, so that the value rounds twice as it would in the graph. */
    float rounded = (float)value;
    union {
        float align;
        char bytes[8]; /* any plain type fits; block types do not occur in fills */
    } element;
    switch (type) {
    case WF_I32: return fmin(fmax(whole, INT32_MIN), INT32_MAX);
    case WF_I8: return fmin(fmax(whole, INT8_MIN), INT8_MAX);
    case WF_U8: return fmin(fmax(whole, 0), UINT8_MAX);
    default:
        wf_convert_from_f32(type, &rounded, &element, 1);
        wf_convert_to_f32(type, &element, &rounded, 1);
        return rounded;
    }
}

bool wf_match_fill(const wf_value *v, double *out)
{
    const wf_node *n = wf_made_by(v, WF_OP_fill);
    if (n)
        *out = wf_match_stored(v->type, ((const wf_attr_fill *)n->attr)->value);
    return n != NULL;
}

/* The only axis whose length is not 1, counted from the last (0: the last); -1 if there is not
 * exactly one. */
static int only_axis(const wf_dims *shape)
{
    int found = -1;
    for (int i = 0; i < shape->n; i++)
        if (shape->d[i] != 1) {
            if (found >= 0)
                return -1;
            found = (int)shape->n - 1 - i;
        }
    return found;
}

int wf_match_index(const wf_value *v)
{
    while (wf_made_by(v, WF_OP_broadcast)) /* aligned at the last axis */
        v = v->node->in[0];
    /* A reshape keeps the order of elements, so an index along the only long axis stays one. */
    if (wf_made_by(v, WF_OP_reshape)) {
        const wf_value *x = v->node->in[0];
        int axis = wf_made_by(x, WF_OP_iota) ? wf_match_index(x) : -1;
        if (axis < 0 || only_axis(&x->shape) != axis)
            return -1;
        return only_axis(&v->shape);
    }
    if (!wf_made_by(v, WF_OP_iota))
        return -1;
    const wf_attr_iota *a = v->node->attr;
    /* An axis of one element is constant 0, not an index. */
    return a->dims.d[a->axis] > 1 ? (int)(a->dims.n - 1 - a->axis) : -1;
}

/* The length of v along an axis counted from the last; 1 beyond its rank. */
static int64_t length_from_last(const wf_value *v, int axis)
{
    return axis < v->shape.n ? v->shape.d[v->shape.n - 1 - axis] : 1;
}

/* Whether v is the index along this axis and the axis has this length. */
static bool is_index(const wf_value *v, int axis, int64_t length)
{
    return wf_match_index(v) == axis && length_from_last(v, axis) == length;
}

/* column <= row, or its negation row < column. Both operands broadcast to [rows, columns]. */
wf_causal wf_match_causal(const wf_value *v, int64_t rows, int64_t columns)
{
    const wf_node *le = wf_made_by(v, WF_OP_le), *lt = wf_made_by(v, WF_OP_lt);
    if (le && is_index(le->in[0], 0, columns) && is_index(le->in[1], 1, rows))
        return WF_CAUSAL;
    if (lt && is_index(lt->in[0], 1, rows) && is_index(lt->in[1], 0, columns))
        return WF_CAUSAL_HIDDEN;
    return WF_NOT_CAUSAL;
}

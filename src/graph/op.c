/* SPDX-License-Identifier: MIT */
/*
 * op.c - the table of ops, generated from ops.def and attr.def.
 *
 * Adding a row to ops.def extends every table below. A row that names a rule that does not exist
 * fails to link; a row with a missing column fails to compile.
 */
#include "graph/op.h"

#include <string.h>

#include "graph/op/rule.h"

/* One field table per attribute set: fields_scale, fields_attention, ... */
#define WF_ATTRS(set) static const wf_attr_field fields_##set[] = {
#define WF_ATTR(set, kind, field, default_value, doc) \
    {#field, WF_ATTR_##kind, offsetof(wf_attr_##set, field), default_value, doc},
#define WF_ATTRS_END(set) \
    {                     \
        0                 \
    }                     \
    }                     \
    ;
#include "graph/attr.def"
#undef WF_ATTRS
#undef WF_ATTR
#undef WF_ATTRS_END
static const wf_attr_field fields_none[] = {{0}};

/* Bytes of each attribute struct. The set "none" has no struct. */
enum {
    ATTR_BYTES_none = 0,
#define WF_ATTRS(set) ATTR_BYTES_##set = sizeof(wf_attr_##set),
#define WF_ATTR(...)
#define WF_ATTRS_END(set)
#include "graph/attr.def"
#undef WF_ATTRS
#undef WF_ATTR
#undef WF_ATTRS_END
};

/* The `types` column of an elementwise row, as flags and a set of operand types. */
#define TYPES_NUMBER WF_FLAG_ELEMENTWISE, WF_TYPES_NUMBER
#define TYPES_FLOAT WF_FLAG_ELEMENTWISE, WF_TYPES_FLOAT
#define TYPES_COMPARE WF_FLAG_ELEMENTWISE | WF_FLAG_COMPARE, WF_TYPES_NUMBER

/* clang-format off */
static const wf_op_def defs[WF_OP_COUNT] = {
#define WF_UNARY(name, doc, f32, range, grad, expand, flops, precision) \
    [WF_OP_##name] = {#name, doc, "none", fields_none, 0, 1, 1, TYPES_FLOAT, \
                      wf_shape_unary, wf_grad_unary, wf_expand_unary, #grad, #expand},
#define WF_BINARY(name, doc, types, f32, i32, range_a, range_b, grad_a, grad_b, expand, flops, \
                  precision) \
    [WF_OP_##name] = {#name, doc, "none", fields_none, 0, 2, 2, TYPES_##types, \
                      wf_shape_binary, wf_grad_binary, wf_expand_core, #grad_a "; " #grad_b, #expand},
#define WF_OP(name, doc, attrs, min_in, max_in, flags, shape, grad, expand, flops, bytes, \
              precision) \
    [WF_OP_##name] = {#name, doc, #attrs, fields_##attrs, ATTR_BYTES_##attrs, min_in, max_in, flags, 0, \
                      wf_shape_##shape, wf_grad_##grad, wf_expand_##expand, #grad, #expand},
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
};
/* clang-format on */

/* Never returns NULL. Ops from outside (text, files) are checked by wf_op_find first. */
const wf_op_def *wf_op_get(wf_op op)
{
    wf_assert((unsigned)op < WF_OP_COUNT);
    return &defs[op];
}

/* A linear search over fewer than 100 names is fast enough. */
int wf_op_find(const char *name)
{
    for (int i = 0; i < WF_OP_COUNT; i++)
        if (strcmp(defs[i].name, name) == 0)
            return i;
    return -1;
}

/* Unary ops share one expand rule, so CORE is recognized by the text of the column. */
bool wf_op_is_core(wf_op op)
{
    const wf_op_def *def = wf_op_get(op);
    return def->expand == wf_expand_core || strcmp(def->expand_text, "CORE") == 0;
}

/* Comparisons have the gradient rule of binary ops, but their result is u8, where gradients end. */
bool wf_op_is_differentiable(wf_op op)
{
    const wf_op_def *def = wf_op_get(op);
    return def->grad != wf_grad_none && def->grad != wf_grad_refuse &&
           !(def->flags & WF_FLAG_COMPARE);
}

#define ACT_ROW(act, op) [WF_ACT_##act] = WF_OP_##op,
static const wf_op acts[WF_ACT_COUNT] = {WF_ACTIVATIONS(ACT_ROW)};

wf_op wf_act_op(int64_t act)
{
    wf_assert(act >= 0 && act < WF_ACT_COUNT);
    return acts[act];
}

int wf_act_find(wf_op op)
{
    for (int i = 0; i < WF_ACT_COUNT; i++)
        if (acts[i] == op)
            return i;
    return -1;
}

/* By wf_glu_kind, whose values are part of the public API. */
static const wf_op gates[] = {
    [WF_GLU_SILU] = WF_OP_silu, [WF_GLU_GELU] = WF_OP_gelu, [WF_GLU_GELU_ERF] = WF_OP_gelu_erf};

enum { GATES = sizeof gates / sizeof *gates };

wf_op wf_glu_op(int64_t kind)
{
    wf_assert(kind >= 0 && kind < GATES);
    return gates[kind];
}

int wf_glu_find(wf_op op)
{
    for (int i = 0; i < GATES; i++)
        if (gates[i] == op)
            return i;
    return -1;
}

wf_status wf_grad_none(wf_vjp *v)
{
    (void)v; /* every din stays NULL, which means zero */
    return WF_OK;
}

wf_status wf_grad_refuse(wf_vjp *v)
{
    return wf_graph_fail(v->g, WF_ERR_USAGE, "%s has no gradient", wf_node_def(v->node)->name);
}

/* Reached only by a bug in a pass: callers ask wf_op_is_core first. */
wf_status wf_expand_core(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    (void)in, (void)out;
    return wf_graph_fail(g, WF_ERR_INTERNAL, "%s is a core op and has no expansion",
                         wf_node_def(n)->name);
}

/* SPDX-License-Identifier: MIT */
/* op.h - the ops and their attributes, generated from ops.def and attr.def. */
#ifndef WF_GRAPH_OP_H
#define WF_GRAPH_OP_H

#include "base/ctx.h"
#include "graph/type.h"

/* Attribute structs: wf_attr_scale, wf_attr_attention, ... */
typedef int64_t wf_attr_INT;
typedef double wf_attr_REAL;
typedef wf_type wf_attr_TYPE;
typedef wf_dims wf_attr_DIMS;
typedef wf_dims wf_attr_SHAPE;
typedef int64_t wf_attr_STREAM;
#define WF_ATTRS(set) typedef struct {
#define WF_ATTR(set, kind, field, default_value, doc) wf_attr_##kind field;
#define WF_ATTRS_END(set) \
    }                     \
    wf_attr_##set;
#include "graph/attr.def"
#undef WF_ATTRS
#undef WF_ATTR
#undef WF_ATTRS_END

typedef enum {
    WF_ATTR_INT,
    WF_ATTR_REAL,
    WF_ATTR_TYPE,
    WF_ATTR_DIMS,
    WF_ATTR_SHAPE,
    WF_ATTR_STREAM
} wf_attr_kind;

typedef struct {
    const char *name; /* NULL ends a table */
    wf_attr_kind kind;
    size_t offset; /* in the attribute struct */
    double default_value;
    const char *doc;
} wf_attr_field;

/* WF_OP_exp, WF_OP_attention, ...: spelled as in ops.def. */
typedef enum {
#define WF_UNARY(name, ...) WF_OP_##name,
#define WF_BINARY(name, ...) WF_OP_##name,
#define WF_OP(name, ...) WF_OP_##name,
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
    WF_OP_COUNT
} wf_op;

/* The unary ops that linear_act fuses, in the order in which its attribute numbers them. */
#define WF_ACTIVATIONS(X) \
    X(GELU, gelu)         \
    X(GELU_ERF, gelu_erf) \
    X(SILU, silu)         \
    X(RELU, relu)         \
    X(RELU2, relu2)
typedef enum {
#define WF_ACT(act, op) WF_ACT_##act,
    WF_ACTIVATIONS(WF_ACT)
#undef WF_ACT
        WF_ACT_COUNT
} wf_act;

enum {
    WF_FLAG_SOURCE = 1,   /* no inputs, storage given from outside */
    WF_FLAG_VIEW = 2,     /* output may share the storage of input 0 */
    WF_FLAG_UPDATE = 4,   /* output i is the next version of input i, a state */
    WF_FLAG_KEY_IS_1 = 8, /* input 1, not 0, gives the type by which kernels are listed */
    WF_FLAG_ELEMENTWISE = 16,
    WF_FLAG_COMPARE = 32, /* elementwise, giving truth values */
    WF_FLAG_STATE = 64    /* a source that the session keeps: version 0 of it */
};

#define WF_MANY 4096  /* most inputs of an op that takes any number */
#define WF_MAX_OUT 96 /* most outputs: a merged update of 32 parameters with two moments each */

typedef struct wf_node wf_node;

/* What a shape rule sees and fills: it checks in[] and attr, and sets nout and out[]. */
typedef struct {
    wf_graph *g;
    const struct wf_op_def *def;
    wf_value *const *in;
    int nin;
    const void *attr;
    int nout;
    struct {
        wf_type type;
        wf_dims shape;
    } out[WF_MAX_OUT];
} wf_infer;

/* What a gradient rule sees and fills: dout[i] is the gradient of output i or NULL when nothing
 * flows into it; din[i] is to be set for inputs with need[i], NULL meaning zero. */
typedef struct {
    wf_graph *g;
    wf_node *node;
    wf_value **dout;
    wf_value **din;
    const bool *need;
} wf_vjp;

typedef wf_status wf_shape_rule(wf_infer *r);
typedef wf_status wf_grad_rule(wf_vjp *v);
/* Builds the same function of in[] from simpler ops into g, and sets out[0 .. n->nout). */
typedef wf_status wf_expand_rule(wf_graph *g, const wf_node *n, wf_value *const *in,
                                 wf_value **out);

typedef struct wf_op_def {
    const char *name;
    const char *doc;
    const char *attr_set; /* "none" when there are no attributes */
    const wf_attr_field *fields;
    size_t attr_bytes;
    int min_in, max_in;
    uint32_t flags;
    wf_type_set types; /* elementwise ops: which operand types; else 0 */
    wf_shape_rule *shape;
    wf_grad_rule *grad;     /* wf_grad_none: constant; wf_grad_refuse: an error */
    wf_expand_rule *expand; /* wf_expand_core: the op is its own definition */
    const char *grad_text;  /* gradient and expansion as they stand in ops.def */
    const char *expand_text;
} wf_op_def;

const wf_op_def *wf_op_get(wf_op op);
/* -1 when there is no such op. */
int wf_op_find(const char *name);
bool wf_op_is_core(wf_op op);
bool wf_op_is_differentiable(wf_op op);
/* The op that computes an activation (wf_act), and back: -1 when op is not an activation. */
wf_op wf_act_op(int64_t act);
int wf_act_find(wf_op op);
/* The op that computes the gate of a glu (wf_glu_kind), and back: -1 when no glu uses op. */
wf_op wf_glu_op(int64_t kind);
int wf_glu_find(wf_op op);

/* What head_loss says about its cross entropy. */
static inline wf_attr_cross_entropy wf_attr_of_loss(const wf_attr_head_loss *a)
{
    return (wf_attr_cross_entropy){a->ignore_index, a->label_smoothing, a->z_loss, a->softcap};
}

/* Fills a zeroed attribute struct with the defaults. */
void wf_attr_defaults(const wf_op_def *def, void *attr);
/* "axis=1 keep=1" to an attribute struct, over what it holds, and back. Lists are written [2,3]. */
wf_status wf_attr_parse(wf_ctx *ctx, const wf_op_def *def, const char *text, void *attr);
void wf_attr_print(const wf_op_def *def, const void *attr, char *buf, size_t cap, size_t *len);

wf_grad_rule wf_grad_none, wf_grad_refuse;
wf_expand_rule wf_expand_core;

#endif

/* SPDX-License-Identifier: MIT */
/*
 * op.h - ops and their attributes: enums, attribute structs and the table wf_op_def.
 *
 * ops.def and attr.def are the only source: this header and op.c expand their rows.
 */
#ifndef WF_GRAPH_OP_H
#define WF_GRAPH_OP_H

#include "base/ctx.h"
#include "graph/type.h"

/* Attribute structs: wf_attr_scale, wf_attr_attention, ... One C type per KIND of attr.def. */
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

/* One attribute of an op, for parsing, printing and comparing. */
typedef struct {
    const char *name; /* NULL ends a table */
    wf_attr_kind kind;
    size_t offset;        /* in the attribute struct, in bytes */
    double default_value; /* of INT and REAL; other kinds start as zero bytes */
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

/* The unary ops that linear_act fuses. The order defines the values of its attribute `act`. */
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
    WF_FLAG_SOURCE = 1,   /* no inputs; named; its contents come from outside the graph */
    WF_FLAG_VIEW = 2,     /* the output may share the storage of input 0 */
    WF_FLAG_UPDATE = 4,   /* input i is a state; output i is its next version */
    WF_FLAG_KEY_IS_1 = 8, /* kernels are selected by the type of input 1 instead of 0 */
    WF_FLAG_ELEMENTWISE = 16,
    WF_FLAG_COMPARE = 32, /* elementwise; the result is u8, 0 or 1 */
    WF_FLAG_STATE = 64    /* a source that persists in the session; its output is version 0 */
};

#define WF_MANY 4096  /* input limit of variadic ops */
#define WF_MAX_OUT 96 /* output limit: adamw_many of 32 parameters writes p, m and v of each */

typedef struct wf_node wf_node;

/* Argument of a shape rule. The rule checks in[] and attr, then sets nout and out[]. */
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

/* Argument of a gradient rule (vector-Jacobian product). dout[i] is the gradient of output i, or
 * NULL for zero. The rule sets din[i] for every input with need[i]; NULL means zero. */
typedef struct {
    wf_graph *g;
    wf_node *node;
    wf_value **dout;
    wf_value **din;
    const bool *need;
} wf_vjp;

typedef wf_status wf_shape_rule(wf_infer *r);
typedef wf_status wf_grad_rule(wf_vjp *v);
/* Adds nodes to g that compute n from in[] with simpler ops. Sets out[0 .. n->nout). */
typedef wf_status wf_expand_rule(wf_graph *g, const wf_node *n, wf_value *const *in,
                                 wf_value **out);

typedef struct wf_op_def {
    const char *name;
    const char *doc;
    const char *attr_set; /* "none": the op has no attributes */
    const wf_attr_field *fields;
    size_t attr_bytes;
    int min_in, max_in; /* number of inputs, both inclusive */
    uint32_t flags;
    wf_type_set types; /* operand types of an elementwise op; 0 for others */
    wf_shape_rule *shape;
    wf_grad_rule *grad;     /* wf_grad_none: zero; wf_grad_refuse: fails */
    wf_expand_rule *expand; /* wf_expand_core: the op has no simpler form */
    const char *grad_text;  /* source text of the columns in ops.def, for `weft ops` */
    const char *expand_text;
} wf_op_def;

const wf_op_def *wf_op_get(wf_op op);
/* Returns the wf_op, or -1 for an unknown name. */
int wf_op_find(const char *name);
/* Core ops have no expansion: every device must support them. */
bool wf_op_is_core(wf_op op);
/* Whether the op has a gradient that is neither an error nor zero everywhere. */
bool wf_op_is_differentiable(wf_op op);
/* Convert between an activation (wf_act) and its op. wf_act_find returns -1 for other ops. */
wf_op wf_act_op(int64_t act);
int wf_act_find(wf_op op);
/* Convert between a GLU's gate (wf_glu_kind) and its op. wf_glu_find returns -1 for other ops. */
wf_op wf_glu_op(int64_t kind);
int wf_glu_find(wf_op op);

/* Returns the cross_entropy part of the attributes of head_loss. */
static inline wf_attr_cross_entropy wf_attr_of_loss(const wf_attr_head_loss *a)
{
    return (wf_attr_cross_entropy){a->ignore_index, a->label_smoothing, a->z_loss, a->softcap};
}

/* Writes the defaults into a zeroed attribute struct. */
void wf_attr_defaults(const wf_op_def *def, void *attr);
/* Parses "axis=1 keep=1" into an attribute struct. Lists are written [2,3]. Fields that the text
 * does not name keep their value. NULL is the empty text. */
wf_status wf_attr_parse(wf_ctx *ctx, const wf_op_def *def, const char *text, void *attr);
/* Appends all attributes to buf in the form that wf_attr_parse reads. */
void wf_attr_print(const wf_op_def *def, const void *attr, char *buf, size_t cap, size_t *len);

wf_grad_rule wf_grad_none, wf_grad_refuse;
wf_expand_rule wf_expand_core;

#endif

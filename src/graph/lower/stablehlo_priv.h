/* SPDX-License-Identifier: MIT */
/*
 * stablehlo_priv.h - helpers for emitters: values, instructions and the text buffer.
 *
 * Instructions are written in MLIR's generic form, which is uniform:
 *
 *     %7 = "stablehlo.add"(%5, %6) {...} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *
 * Each helper below writes one instruction and returns its result. After a failed allocation the
 * text's status is set and helpers write nothing; the caller checks the status after each node.
 */
#ifndef WF_GRAPH_LOWER_STABLEHLO_PRIV_H
#define WF_GRAPH_LOWER_STABLEHLO_PRIV_H

#include "graph/lower/stablehlo.h"

/* Element types in programs: wf_type, and those of intermediate values. */
enum { WF_HLO_BOOL = WF_TYPE_COUNT, WF_HLO_U32, WF_HLO_U64 };

/* A value of the program. */
typedef struct {
    int id;   /* %id */
    int part; /* %id#part; -1: the instruction has one result */
    int type; /* wf_type or WF_HLO_* */
    wf_dims shape;
} wf_hlo;

typedef struct {
    wf_ctx *ctx;
    char *text;
    size_t len, cap;
    int ids;          /* the next free id */
    wf_status status; /* WF_ERR_MEMORY after a failed allocation */
} wf_hlo_text;

/* The argument of an emitter: one node. */
typedef struct {
    wf_hlo_text *t;
    const wf_node *node;
    const void *attr;
    const char *name; /* of the instruction, from the table of emitters */
    const wf_hlo *in; /* [node->nin] */
    wf_hlo *out;      /* [node->nout], set by the emitter */
} wf_hlo_call;

typedef void wf_hlo_emit(const wf_hlo_call *c);

/* ---- Text ---- */

void wf_hlo_print(wf_hlo_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_hlo_print_type(wf_hlo_text *t, int type, const wf_dims *shape);
void wf_hlo_print_ref(wf_hlo_text *t, const wf_hlo *v);
/* "1, 2, 3" */
void wf_hlo_print_list(wf_hlo_text *t, const int64_t *list, int64_t n);
/* Reserves an id; writes nothing. */
wf_hlo wf_hlo_new(wf_hlo_text *t, int type, const wf_dims *shape);

/* ---- Instructions ---- */

#define WF_HLO_D(...) ((wf_dims){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#define WF_HLO_SCALAR ((wf_dims){0})

/* Writes `%7 = "name"(%5, %6) {`. The caller prints the attributes, then calls wf_hlo_end. */
wf_hlo wf_hlo_begin(wf_hlo_text *t, const char *name, const wf_hlo *in, int nin, int type,
                    const wf_dims *shape);
/* Writes `} : (types) -> type`. */
void wf_hlo_end(wf_hlo_text *t, const wf_hlo *in, int nin, const wf_hlo *out);

/* An elementwise instruction: all operands have the shape of the last. */
wf_hlo wf_hlo_map(wf_hlo_text *t, const char *name, int type, const wf_hlo *in, int nin);
wf_hlo wf_hlo_unary(wf_hlo_text *t, const char *name, wf_hlo x);
wf_hlo wf_hlo_binary(wf_hlo_text *t, const char *name, wf_hlo a, wf_hlo b);
/* direction: LT, LE, EQ, NE, GT or GE. The result is a bool. */
wf_hlo wf_hlo_compare(wf_hlo_text *t, const char *direction, wf_hlo a, wf_hlo b);
/* The condition is a bool with the operands' shape, or a scalar. */
wf_hlo wf_hlo_select(wf_hlo_text *t, wf_hlo condition, wf_hlo a, wf_hlo b);
/* stablehlo.convert; float to integer is undefined out of range. wf_hlo_cast has the semantics of
 * the op cast. */
wf_hlo wf_hlo_convert(wf_hlo_text *t, wf_hlo x, int type);

/* An array of equal elements, rounded to the type; i32, i8 and u8 truncate and saturate. */
wf_hlo wf_hlo_constant(wf_hlo_text *t, int type, const wf_dims *shape, double value);
/* Filled with the type's minimum; -inf for floats. */
wf_hlo wf_hlo_least(wf_hlo_text *t, int type, const wf_dims *shape);
/* A constant with x's type and shape. */
wf_hlo wf_hlo_like(wf_hlo_text *t, wf_hlo x, double value);
wf_hlo wf_hlo_iota(wf_hlo_text *t, int type, const wf_dims *shape, int64_t axis);

wf_hlo wf_hlo_reshape(wf_hlo_text *t, wf_hlo x, const wf_dims *shape);
/* Broadcasts x to `shape`: axis i of x becomes axis first + i. */
wf_hlo wf_hlo_repeat(wf_hlo_text *t, wf_hlo x, const wf_dims *shape, int64_t first);
/* NumPy broadcasting: aligned at the last axis. */
wf_hlo wf_hlo_broadcast(wf_hlo_text *t, wf_hlo x, const wf_dims *shape);
wf_hlo wf_hlo_slice(wf_hlo_text *t, wf_hlo x, int64_t axis, int64_t begin, int64_t end);
wf_hlo wf_hlo_concat(wf_hlo_text *t, const wf_hlo *in, int nin, int64_t axis, const wf_dims *shape);
/* Reduces the axes of the bit mask and removes them. name: stablehlo.add, .maximum or .minimum.
 * `initial` is its neutral element, a scalar. */
wf_hlo wf_hlo_reduce(wf_hlo_text *t, const char *name, wf_hlo x, wf_hlo initial, uint32_t axes);
/* x[rows[i]] for rows i32[n]. Indices out of range are clamped. */
wf_hlo wf_hlo_gather(wf_hlo_text *t, wf_hlo x, wf_hlo rows);
/* x with row rows[i] replaced by from[i], or with from[i] added (`add`). Indices out of range are
 * ignored. */
wf_hlo wf_hlo_scatter(wf_hlo_text *t, wf_hlo x, wf_hlo rows, wf_hlo from, bool add);

/* Converts f16 and bf16 to f32; returns other types unchanged. */
wf_hlo wf_hlo_widen(wf_hlo_text *t, wf_hlo x);
/* The op cast, between any two plain types. */
wf_hlo wf_hlo_cast(wf_hlo_text *t, wf_hlo x, int type);
/* x != 0 as bool. */
wf_hlo wf_hlo_truth(wf_hlo_text *t, wf_hlo x);

static inline int64_t wf_hlo_count(const wf_hlo *v)
{
    return wf_dims_count(&v->shape);
}
static inline bool wf_hlo_is_float(int type)
{
    return type < WF_TYPE_COUNT && wf_type_get((wf_type)type)->kind != WF_KIND_INT;
}

/* ---- Emitters ---- */

/* stablehlo_math.c */
wf_hlo_emit wf_hlo_emit_unary, wf_hlo_emit_erf, wf_hlo_emit_binary, wf_hlo_emit_compare,
    wf_hlo_emit_scale, wf_hlo_emit_where, wf_hlo_emit_fill, wf_hlo_emit_iota, wf_hlo_emit_uniform,
    wf_hlo_emit_cast, wf_hlo_emit_matmul, wf_hlo_emit_linear, wf_hlo_emit_sum, wf_hlo_emit_max,
    wf_hlo_emit_argmax, wf_hlo_emit_top_k;
/* stablehlo_move.c */
wf_hlo_emit wf_hlo_emit_copy, wf_hlo_emit_reshape, wf_hlo_emit_permute, wf_hlo_emit_slice,
    wf_hlo_emit_pad, wf_hlo_emit_concat, wf_hlo_emit_broadcast, wf_hlo_emit_gather_rows,
    wf_hlo_emit_scatter_add_rows, wf_hlo_emit_assign, wf_hlo_emit_kv_append;

#endif

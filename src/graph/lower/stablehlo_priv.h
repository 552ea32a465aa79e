/* SPDX-License-Identifier: MIT */
/*
 * stablehlo_priv.h - what the emitters write with: values, instructions, and the text they go to.
 *
 * Instructions are written in MLIR's generic form, which is the same for all of them:
 *
 *     %7 = "stablehlo.add"(%5, %6) {...} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *
 * The helpers below write one instruction each and return its result. Running out of memory is
 * remembered in the text and reported at the end.
 */
#ifndef WF_GRAPH_LOWER_STABLEHLO_PRIV_H
#define WF_GRAPH_LOWER_STABLEHLO_PRIV_H

#include "graph/lower/stablehlo.h"

/* Element types: those of weft.h and what programs need on the way. */
enum { WF_HLO_BOOL = WF_TYPE_COUNT, WF_HLO_U32, WF_HLO_U64 };

typedef struct {
    int id;   /* %id */
    int part; /* %id#part, or below 0 where the instruction has one result */
    int type;
    wf_dims shape;
} wf_hlo;

typedef struct {
    wf_ctx *ctx;
    char *text; /* NULL once memory ran out */
    size_t len, cap;
    int ids; /* given out */
    wf_status status;
} wf_hlo_text;

/* A node that is being written down. */
typedef struct {
    wf_hlo_text *t;
    const wf_node *node;
    const void *attr;
    const char *name; /* of the instruction, from the table */
    const wf_hlo *in;
    wf_hlo *out; /* to be set */
} wf_hlo_call;

typedef void wf_hlo_emit(const wf_hlo_call *c);

/* ---- Text ---- */

void wf_hlo_print(wf_hlo_text *t, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_hlo_print_type(wf_hlo_text *t, int type, const wf_dims *shape);
void wf_hlo_print_ref(wf_hlo_text *t, const wf_hlo *v);
/* "1, 2, 3" */
void wf_hlo_print_list(wf_hlo_text *t, const int64_t *list, int64_t n);
wf_hlo wf_hlo_new(wf_hlo_text *t, int type, const wf_dims *shape);

/* ---- Instructions ---- */

#define WF_HLO_D(...) ((wf_dims){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#define WF_HLO_SCALAR ((wf_dims){0})

/* The instruction up to its attributes, "%7 = "name"(%5, %6) {": the caller prints those. */
wf_hlo wf_hlo_begin(wf_hlo_text *t, const char *name, const wf_hlo *in, int nin, int type,
                    const wf_dims *shape);
/* "} : (types) -> type" */
void wf_hlo_end(wf_hlo_text *t, const wf_hlo *in, int nin, const wf_hlo *out);

/* An elementwise instruction: all operands have one shape. */
wf_hlo wf_hlo_map(wf_hlo_text *t, const char *name, int type, const wf_hlo *in, int nin);
wf_hlo wf_hlo_unary(wf_hlo_text *t, const char *name, wf_hlo x);
wf_hlo wf_hlo_binary(wf_hlo_text *t, const char *name, wf_hlo a, wf_hlo b);
/* direction: LT, LE, EQ, NE, GT, GE -> bool */
wf_hlo wf_hlo_compare(wf_hlo_text *t, const char *direction, wf_hlo a, wf_hlo b);
/* The condition is a bool of the operands' shape, or one for all. */
wf_hlo wf_hlo_select(wf_hlo_text *t, wf_hlo condition, wf_hlo a, wf_hlo b);
/* Rounds, or takes bits away; see wf_hlo_cast for what weft.h calls a cast. */
wf_hlo wf_hlo_convert(wf_hlo_text *t, wf_hlo x, int type);

/* The same number everywhere, rounded to the type; integers take it saturated and cut. */
wf_hlo wf_hlo_constant(wf_hlo_text *t, int type, const wf_dims *shape, double value);
/* Its least number: -inf of floats. */
wf_hlo wf_hlo_least(wf_hlo_text *t, int type, const wf_dims *shape);
/* One constant for all elements of x, of x's type and shape. */
wf_hlo wf_hlo_like(wf_hlo_text *t, wf_hlo x, double value);
wf_hlo wf_hlo_iota(wf_hlo_text *t, int type, const wf_dims *shape, int64_t axis);

wf_hlo wf_hlo_reshape(wf_hlo_text *t, wf_hlo x, const wf_dims *shape);
/* Axis i of x becomes axis first + i. */
wf_hlo wf_hlo_repeat(wf_hlo_text *t, wf_hlo x, const wf_dims *shape, int64_t first);
/* As broadcasting does: aligned at the last axis. */
wf_hlo wf_hlo_broadcast(wf_hlo_text *t, wf_hlo x, const wf_dims *shape);
wf_hlo wf_hlo_slice(wf_hlo_text *t, wf_hlo x, int64_t axis, int64_t begin, int64_t end);
wf_hlo wf_hlo_concat(wf_hlo_text *t, const wf_hlo *in, int nin, int64_t axis, const wf_dims *shape);
/* name: stablehlo.add, .maximum or .minimum, beginning with the scalar `initial`. The axes go. */
wf_hlo wf_hlo_reduce(wf_hlo_text *t, const char *name, wf_hlo x, wf_hlo initial, uint32_t axes);
/* x[rows[i]] for rows i32[n]; rows outside are taken for the nearest. */
wf_hlo wf_hlo_gather(wf_hlo_text *t, wf_hlo x, wf_hlo rows);
/* x with from[i] put on (`add`: added to) row rows[i]; rows outside are dropped. */
wf_hlo wf_hlo_scatter(wf_hlo_text *t, wf_hlo x, wf_hlo rows, wf_hlo from, bool add);

/* f16 and bf16 as f32; all else as it is. */
wf_hlo wf_hlo_widen(wf_hlo_text *t, wf_hlo x);
/* The cast of weft.h, between any plain types. */
wf_hlo wf_hlo_cast(wf_hlo_text *t, wf_hlo x, int type);
/* 0 is false, all else is true. */
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

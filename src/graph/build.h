/* SPDX-License-Identifier: MIT */
/*
 * build.h - builders used inside the library, in addition to the public ones of weft.h: one
 * function per elementwise op, generated from ops.def, and some compositions.
 *
 * All return NULL when an operand is NULL or the graph has failed.
 */
#ifndef WF_GRAPH_BUILD_H
#define WF_GRAPH_BUILD_H

#include "graph/graph.h"

/* wf_exp(g, x), wf_add(g, a, b), ... */
#define WF_UNARY(name, ...)                                     \
    static inline wf_value *wf_##name(wf_graph *g, wf_value *x) \
    {                                                           \
        return wf_node_add(g, WF_OP_##name, NULL, NULL, &x, 1); \
    }
#define WF_BINARY(name, ...)                                                      \
    static inline wf_value *wf_##name(wf_graph *g, wf_value *a, wf_value *b)      \
    {                                                                             \
        return wf_node_add(g, WF_OP_##name, NULL, NULL, (wf_value *[]){a, b}, 2); \
    }
#define WF_OP(name, ...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP

/* A constant scalar of x's type; it broadcasts against x. */
wf_value *wf_like(wf_graph *g, wf_value *x, double value);
/* Zeros of x's type and shape. */
wf_value *wf_zeros_like(wf_graph *g, wf_value *x);
wf_value *wf_sum(wf_graph *g, wf_value *x, uint32_t axes, bool keep);
wf_value *wf_max(wf_graph *g, wf_value *x, uint32_t axes, bool keep);
/* Sums x over the axes along which `shape` was broadcast to x's shape: the gradient of
 * broadcasting. Returns x itself when the shapes are equal. */
wf_value *wf_sum_to(wf_graph *g, wf_value *x, const wf_dims *shape);
wf_value *wf_reshape_to(wf_graph *g, wf_value *x, const wf_dims *shape);
wf_value *wf_broadcast_to(wf_graph *g, wf_value *x, const wf_dims *shape);
/* Reshapes [..., C] to [rows, C]. */
wf_value *wf_flatten_rows(wf_graph *g, wf_value *x);
/* Logical and of two u8 values; the shapes broadcast. */
wf_value *wf_and(wf_graph *g, wf_value *a, wf_value *b);
/* dy * gelu'(x), one fused op. */
wf_value *wf_gelu_grad(wf_graph *g, wf_value *dy, wf_value *x);

/* Compositions for the rows of ops.def (op/elementwise.c). */
wf_value *wf_build_gelu(wf_graph *g, wf_value *x);
wf_value *wf_build_gelu_erf(wf_graph *g, wf_value *x);
wf_value *wf_build_gelu_erf_grad(wf_graph *g, wf_value *dy, wf_value *x);
wf_value *wf_build_silu(wf_graph *g, wf_value *x);
wf_value *wf_build_silu_grad(wf_graph *g, wf_value *dy, wf_value *x, wf_value *y);

#endif

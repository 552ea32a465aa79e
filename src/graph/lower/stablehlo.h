/* SPDX-License-Identifier: MIT */
/*
 * stablehlo.h - a graph as StableHLO text, for devices that compile whole programs.
 *
 * The program is one function, @main, of static shapes. Its arguments are the states and then the
 * inputs, its results the outputs of the graph and then the last version of every state that the
 * graph changes; such a state's argument is marked with the result that may take its memory. Values
 * without elements, and sources that nobody reads, do not cross the edge.
 *
 * Where the meaning of an op leaves a choice, a program computes what Weft's own kernels do: NaN is
 * the largest, the first of equals wins, casts cut off and saturate, random numbers have the same
 * bits, narrow floats are computed in f32. What a program cannot do is fail: gather_rows takes the
 * nearest row that there is, scatter_add_rows and kv_append drop what lies outside.
 *
 * Programs have no quantized types. A quantized source is an f32 argument; an output cannot be quantized.
 */
#ifndef WF_GRAPH_LOWER_STABLEHLO_H
#define WF_GRAPH_LOWER_STABLEHLO_H

#include "graph/graph.h"

/* A value that crosses the edge of the program. */
typedef struct {
    const wf_node *source; /* the state or input; NULL for a result that is an output */
    const wf_value *value;
    int output; /* results: which output of the graph this is, -1 for states */
} wf_hlo_port;

/* Borrows from the graph. */
typedef struct {
    wf_arena arena; /* of the arrays */
    char *text;
    size_t bytes; /* without the NUL at its end */
    wf_hlo_port *args, *results;
    int arg_count, result_count;
} wf_hlo_program;

/* Whether there is a way to write this op down. All core ops that are no sources have one; what has
 * none is to be expanded first. */
bool wf_stablehlo_has(wf_op op);
/* Whether this node can be written, or is a source. */
bool wf_stablehlo_accepts(const wf_node *n);
/* The type that stands for a Weft type in programs: f32 for quantized types, else the same. The caller
 * decodes quantized arguments. */
wf_type wf_stablehlo_type(wf_type type);

/* On failure *out is empty. */
wf_status wf_lower_stablehlo(const wf_graph *g, wf_hlo_program *out);
void wf_hlo_program_free(wf_hlo_program *p);

#endif

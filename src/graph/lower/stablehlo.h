/* SPDX-License-Identifier: MIT */
/*
 * stablehlo.h - lowers a graph to StableHLO text, for devices that compile whole programs.
 *
 * The program is one function, @main, with static shapes. Arguments are the states, then the
 * inputs. Results are the outputs of the graph, then the last version of every state that the graph
 * updates. The argument of such a state names the result that may alias its buffer. Empty values
 * and unused sources are neither arguments nor results.
 *
 * Programs follow the semantics of Weft's kernels. NaN is the maximum. The first of equal elements
 * wins. Casts to integers truncate and saturate. Random numbers have the same bits. f16 and bf16
 * are computed in f32. A program cannot report an index that is out of range: gather_rows clamps
 * it, scatter_add_rows and kv_append drop the row.
 *
 * StableHLO has none of Weft's quantized types. A quantized source is an f32 argument; an output
 * cannot be quantized.
 */
#ifndef WF_GRAPH_LOWER_STABLEHLO_H
#define WF_GRAPH_LOWER_STABLEHLO_H

#include "graph/graph.h"

/* An argument or a result of the program. */
typedef struct {
    const wf_node *source; /* the state or input; NULL for outputs of the graph */
    const wf_value *value;
    int output; /* index of the output of the graph; -1: a state or input */
} wf_hlo_port;

/* Points into the graph, which must outlive it. Free with wf_hlo_program_free. */
typedef struct {
    wf_arena arena; /* owns the arrays */
    char *text;
    size_t bytes; /* of text, without the final NUL */
    wf_hlo_port *args, *results;
    int arg_count, result_count;
} wf_hlo_program;

/* Whether this op has an emitter. All core ops except sources have one; other ops must be expanded
 * first. */
bool wf_stablehlo_has(wf_op op);
/* The type of a value in the program: f32 for quantized types, unchanged for others. The caller
 * decodes quantized arguments. */
wf_type wf_stablehlo_type(wf_type type);

/* On failure *out is zeroed. g must have passed the verifier. */
wf_status wf_lower_stablehlo(const wf_graph *g, wf_hlo_program *out);
void wf_hlo_program_free(wf_hlo_program *p);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * text_priv.h - the text form of a graph, shared by its writer and its reader.
 *
 *     weft-graph 1
 *     streams 0
 *     %0 = input("x") type=f32 dims=[2,3] -> f32[2,3]
 *     %1 = state("w") type=f32 dims=[4,3] -> f32[4,3]
 *     %2 = linear(%0, %1) -> f32[2,4] block
 *     %3 = top_k(%2) k=2 -> f32[2,2], i32[2,2]
 *     %4 = backward scale(%3) factor=0.5 -> f32[2,2]
 *     output "best" = %3.1
 *     end
 *
 * One statement per line, in printable ASCII. %ID is result 0 of a node, %ID.K is result K. Ids
 * increase from line to line, so the text cannot contain a cycle. `streams` is the number of random
 * streams that the graph has assigned.
 *
 * After -> come type, shape and marks of every result. The reader checks types and shapes. It
 * accepts a node without this part, and one without attributes that have a default. Names escape
 * bytes as \" \\ and \xHH. Blank lines and lines that start with # are ignored.
 */
#ifndef WF_GRAPH_TEXT_PRIV_H
#define WF_GRAPH_TEXT_PRIV_H

#include "graph/graph.h"

#define WF_TEXT_VERSION 1

/* Limits against hostile text. The writer observes them, too. */
#define WF_TEXT_NODES (1 << 22)
#define WF_TEXT_LINE (1 << 20) /* bytes per line; WF_MANY operands fit */
#define WF_TEXT_ATTRS 1024     /* bytes of a node's attributes */

typedef struct {
    uint32_t bit;
    const char *name;
} wf_mark_name;

/* All marks. A row with the name NULL ends the table. */
extern const wf_mark_name wf_mark_names[];

#endif

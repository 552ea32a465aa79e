/* SPDX-License-Identifier: MIT */
/*
 * text_priv.h - what the writer and the reader of the text form share.
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
 * One statement a line, of printable ASCII. %ID is the first result of a node and %ID.K a further
 * one; ids grow from line to line, so that a cycle cannot be written down. After -> stand the types
 * and shapes of all results, each with its marks; a reader checks them, and does without when the
 * whole part is missing, as it does without attributes that have a default. In names \" \\ and \xHH
 * stand for bytes. Blank lines and lines that start with # are skipped.
 */
#ifndef WF_GRAPH_TEXT_PRIV_H
#define WF_GRAPH_TEXT_PRIV_H

#include "graph/graph.h"

#define WF_TEXT_VERSION 1

/* Limits that the reader sets to a hostile text and the writer keeps to. */
#define WF_TEXT_NODES (1 << 22)
#define WF_TEXT_LINE (1 << 20) /* bytes; a name that long, or WF_MANY operands, still fit */
#define WF_TEXT_ATTRS 1024     /* bytes of a node's attributes */

typedef struct {
    uint32_t bit;
    const char *name;
} wf_mark_name;

/* All marks that there are; ends with NULL. */
extern const wf_mark_name wf_mark_names[];

#endif

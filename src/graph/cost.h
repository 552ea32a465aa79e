/* SPDX-License-Identifier: MIT */
/*
 * cost.h - what a node costs, predicted from shapes alone.
 *
 * FLOPs are additions, multiplications and the like, a function such as exp counting as one.
 * Bytes are those between memory and a kernel that reads every operand once and writes every output
 * once: what an ideal kernel moves, not what caches of a real one do. Views and sources are free.
 * Figures that exceed 64 bits stay at UINT64_MAX.
 */
#ifndef WF_GRAPH_COST_H
#define WF_GRAPH_COST_H

#include "graph/graph.h"

typedef struct {
    uint64_t flops;
    uint64_t bytes_read, bytes_written;
} wf_cost;

/* How much depends on data is taken from shapes: packed attention has sequences of equal length,
 * attention over pages sees every row of its table, and rows by index are all different. */
void wf_node_cost(const wf_node *n, wf_cost *out);
/* sum += c */
void wf_cost_add(wf_cost *sum, const wf_cost *c);

#endif

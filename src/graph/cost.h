/* SPDX-License-Identifier: MIT */
/*
 * cost.h - the cost of a node, estimated from shapes alone.
 *
 * FLOPs count arithmetic operations; a function such as exp counts as one. Bytes are the memory
 * traffic of an ideal kernel, which reads every operand once and writes every output once. Views
 * and sources cost nothing. Counts saturate at UINT64_MAX.
 */
#ifndef WF_GRAPH_COST_H
#define WF_GRAPH_COST_H

#include "graph/graph.h"

/* For one node or a sum of nodes. */
typedef struct {
    uint64_t flops;
    uint64_t bytes_read, bytes_written;
} wf_cost;

/* Assumptions where the cost depends on data: the sequences of packed attention have equal length,
 * paged attention reads every page of its table, and row indices are distinct. */
void wf_node_cost(const wf_node *n, wf_cost *out);
/* sum += c */
void wf_cost_add(wf_cost *sum, const wf_cost *c);

#endif

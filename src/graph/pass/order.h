/* SPDX-License-Identifier: MIT */
/*
 * order.h - legal orders of the nodes of a graph, and their peak memory.
 *
 * A node runs after the nodes that make its operands. A node that updates a state runs after all
 * readers of the previous version. There are no other constraints.
 */
#ifndef WF_GRAPH_PASS_ORDER_H
#define WF_GRAPH_PASS_ORDER_H

#include "graph/pass/rewrite.h"
#include "graph/target.h"

/* Dependencies: after[first[i] .. first[i + 1]) are the nodes that wait for node i; waits[i] is the
 * number of edges that end at node i. An edge may be listed twice; waits counts it twice. */
typedef struct {
    wf_ctx *ctx;
    int count;
    int *first, *after, *waits;
} wf_edges;

wf_status wf_edges_new(const wf_graph *g, wf_edges *out);
void wf_edges_free(wf_edges *e);

/* Peak memory in bytes when nodes run in this order (NULL: the graph's own): results of nodes and
 * the target's workspace. Views take no memory; inputs, outputs and states are left out because
 * their memory does not depend on the order. */
wf_status wf_order_peak(const wf_graph *g, const int *order, const wf_target *target,
                        uint64_t *peak);

/* Moves inputs and states to the front. Builders add them at first use; a pass may need them
 * earlier. */
wf_status wf_order_sources(wf_graph *g);
/* Sorts nodes topologically and keeps the old order where it is legal. Fails if the graph has a
 * cycle. */
wf_status wf_order_sort(wf_graph *g);
/* Puts the nodes into a random legal order, for tests. The seed determines the order. */
wf_status wf_order_shuffle(wf_graph *g, uint64_t seed);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * order.h - orders in which the nodes of a graph may run, and what they cost.
 *
 * A node runs after those that make its operands, and the writer of a state after all readers of the
 * version before. Everything else is free.
 */
#ifndef WF_GRAPH_PASS_ORDER_H
#define WF_GRAPH_PASS_ORDER_H

#include "graph/pass/rewrite.h"
#include "graph/target.h"

/* What must come after what: after[first[i] .. first[i + 1]) wait for node i; waits[i] is for how many
 * node i waits. An edge may be listed twice, and counts twice. */
typedef struct {
    wf_ctx *ctx;
    int count;
    int *first, *after, *waits;
} wf_edges;

wf_status wf_edges_new(const wf_graph *g, wf_edges *out);
void wf_edges_free(wf_edges *e);

/* The most bytes in use at one time when nodes run in this order (NULL: that of the graph): values that
 * nodes make, and what the target uses for itself. Not counted are views, and inputs, outputs and states,
 * whose memory does not depend on the order. */
wf_status wf_order_peak(const wf_graph *g, const int *order, const wf_target *target,
                        uint64_t *peak);

/* Puts inputs and states first: a builder makes them where it needs them, and a pass may need them
 * earlier. */
wf_status wf_order_sources(wf_graph *g);
/* Puts nodes that stand before what they wait for behind it, and leaves the others in their order. */
wf_status wf_order_sort(wf_graph *g);
/* A legal order drawn by chance, for tests: the same for one seed. */
wf_status wf_order_shuffle(wf_graph *g, uint64_t seed);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * rewrite.h - tools for passes: lists of uses, and in-place rewriting of a graph.
 *
 *     wf_rewrite r;
 *     WF_TRY(wf_rewrite_begin(g, &r));
 *     for each of the r.count nodes n:
 *         wf_rewrite_before(&r, n);             new nodes go before n
 *         wf_value *y = wf_silu(g, x);          any builder function
 *         wf_rewrite_replace(&r, &n->out[0], y);
 *     status = wf_rewrite_end(&r, status);
 *
 * Until wf_rewrite_end the graph is unchanged, except that new nodes are appended. wf_rewrite_end
 * applies the replacements, moves every new node to its place and renumbers all nodes. Values and
 * nodes never move in memory, so a user's pointers stay valid. Replaced nodes stay in the graph,
 * unread, until wf_graph_prune or wf_rewrite_drop removes them.
 */
#ifndef WF_GRAPH_PASS_REWRITE_H
#define WF_GRAPH_PASS_REWRITE_H

#include "graph/graph.h"

/* ---- Uses ---- */

typedef struct {
    wf_node *node; /* the reader; NULL: the value is a graph output */
    int operand;   /* operand of the reader, or index of the graph output */
} wf_use;

/* All uses of all values of a graph, at the time of wf_uses_new. A slot numbers a value. */
typedef struct {
    wf_ctx *ctx;
    int *slot;  /* [node] slot of its output 0; its other outputs follow */
    int *first; /* [slot] start of its uses in use[]; they end at first[slot + 1] */
    wf_use *use;
    int values;            /* number of slots */
    const wf_value **root; /* [node] for views: the value whose storage they share; else NULL */
} wf_uses;

/* The caller frees *out with wf_uses_free. */
wf_status wf_uses_new(const wf_graph *g, wf_uses *out);
void wf_uses_free(wf_uses *u);
static inline int wf_uses_slot(const wf_uses *u, const wf_value *v)
{
    return u->slot[v->node->id] + v->index;
}
static inline int wf_uses_count(const wf_uses *u, const wf_value *v)
{
    return u->first[wf_uses_slot(u, v) + 1] - u->first[wf_uses_slot(u, v)];
}
static inline const wf_use *wf_uses_of(const wf_uses *u, const wf_value *v)
{
    return &u->use[u->first[wf_uses_slot(u, v)]];
}
bool wf_uses_is_output(const wf_uses *u, const wf_value *v);
/* Like wf_value_root, in constant time. */
static inline const wf_value *wf_uses_root(const wf_uses *u, const wf_value *v)
{
    return u->root[v->node->id] ? u->root[v->node->id] : v;
}
/* Sets writer[slot] to the id of the node that writes the next version of a state. All other
 * values, and last versions, get INT_MAX: after all nodes. */
void wf_uses_find_writers(const wf_uses *u, const wf_graph *g, int *writer);

/* ---- Rewrites ---- */

typedef struct {
    wf_graph *g;
    wf_uses uses;       /* at the time of wf_rewrite_begin */
    int count;          /* nodes at the time of wf_rewrite_begin */
    wf_value **instead; /* [slot] the replacement; NULL: the value stays */
    bool *drop;         /* [node] to be removed */
    int *before;        /* [span] new nodes first[i] .. first[i + 1] go before this node */
    int *first;
    int spans, span_cap;
    int changes; /* values replaced and nodes dropped */
} wf_rewrite;

wf_status wf_rewrite_begin(wf_graph *g, wf_rewrite *out);
/* Nodes added from now on go before n; n == NULL: at the end. */
void wf_rewrite_before(wf_rewrite *r, const wf_node *n);
/* Makes all readers of `old`, new ones included, and graph outputs use `by`. `by` must have the
 * same type and shape and come before every reader. NULL changes nothing. */
void wf_rewrite_replace(wf_rewrite *r, const wf_value *old, wf_value *by);
/* Returns the final replacement of v so far, or v itself. */
wf_value *wf_rewrite_now(const wf_rewrite *r, wf_value *v);
/* Removes the nodes that were added since the last wf_rewrite_before. */
void wf_rewrite_take_back(wf_rewrite *r);
/* Removes the node. No reader may remain. */
void wf_rewrite_drop(wf_rewrite *r, const wf_node *n);
/* Applies the rewrite and frees r. If `status` is not WF_OK, only frees r; the graph is unusable
 * then. Returns the first failure. */
wf_status wf_rewrite_end(wf_rewrite *r, wf_status status);

/* Removes nodes that no output and no update needs. Inputs and states stay. Sets *dropped to the
 * number of removed nodes. */
wf_status wf_graph_prune(wf_graph *g, int *dropped);
/* Verifies the graph, then copies it. The caller frees *out. */
wf_status wf_graph_copy(wf_graph *from, wf_graph **out);
/* Reorders the nodes: order[i] is the id of the node that becomes node i. Does not check the
 * order. */
wf_status wf_graph_reorder(wf_graph *g, const int *order);

#endif

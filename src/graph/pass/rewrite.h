/* SPDX-License-Identifier: MIT */
/*
 * rewrite.h - tools for passes: who reads a value, and changing a graph in place.
 *
 *     wf_rewrite r;
 *     WF_TRY(wf_rewrite_begin(g, &r));
 *     for each node n of the g->node_count there were:
 *         wf_rewrite_before(&r, n);             new nodes belong before n
 *         wf_value *y = wf_silu(g, x);          any builder
 *         wf_rewrite_replace(&r, &n->out[0], y);
 *     status = wf_rewrite_end(&r, status);
 *
 * In between the graph is as it was, with the new nodes behind: replacements happen in wf_rewrite_end,
 * which puts every new node in its place and numbers all nodes anew. Values and nodes stay where they
 * are in memory, so that handles of a user's remain good; replaced nodes stay too, unread, until
 * wf_graph_prune or wf_rewrite_drop.
 */
#ifndef WF_GRAPH_PASS_REWRITE_H
#define WF_GRAPH_PASS_REWRITE_H

#include "graph/graph.h"

/* ---- Who reads a value ---- */

typedef struct {
    wf_node *node; /* NULL: the graph, as an output */
    int operand;   /* or the number of the output */
} wf_use;

/* Of a graph as it was when they were listed. */
typedef struct {
    wf_ctx *ctx;
    int *slot;  /* [node] of its output 0; its other outputs follow */
    int *first; /* [slot] where its uses begin; [slot + 1]: where they end */
    wf_use *use;
    int values;
    const wf_value **root; /* [node] of views: whose storage they show; NULL for other nodes */
} wf_uses;

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
/* wf_value_root without walking through chains of views. */
static inline const wf_value *wf_uses_root(const wf_uses *u, const wf_value *v)
{
    return u->root[v->node->id] ? u->root[v->node->id] : v;
}
/* writer[slot]: the node that replaces this version of a state; INT_MAX, after all nodes, for versions
 * that stay and for all other values. */
void wf_uses_find_writers(const wf_uses *u, const wf_graph *g, int *writer);

/* ---- Changing a graph ---- */

typedef struct {
    wf_graph *g;
    wf_uses uses;       /* as they were at the beginning */
    int count;          /* nodes there were */
    wf_value **instead; /* [slot] by what a value is replaced, NULL: it stays */
    bool *drop;         /* [node] goes */
    int *before;        /* [i]: nodes first[i] .. first[i + 1] go before this one */
    int *first;
    int spans, span_cap;
    int changes; /* values replaced and nodes dropped */
} wf_rewrite;

wf_status wf_rewrite_begin(wf_graph *g, wf_rewrite *out);
/* Nodes that are added from now on belong before n; n == NULL: at the end. */
void wf_rewrite_before(wf_rewrite *r, const wf_node *n);
/* All readers of `old` and outputs of the graph get `by`, which has the same type and shape and whose
 * place is before that of every reader. Readers that were added in this rewrite, too. */
void wf_rewrite_replace(wf_rewrite *r, const wf_value *old, wf_value *by);
/* What stands for v now: itself, or what it was replaced by. */
wf_value *wf_rewrite_now(const wf_rewrite *r, wf_value *v);
/* Nodes that were added since wf_rewrite_before were a try, and go. */
void wf_rewrite_take_back(wf_rewrite *r);
/* The node goes; nobody may read it any more. */
void wf_rewrite_drop(wf_rewrite *r, const wf_node *n);
/* Finishes, or with a status other than WF_OK only frees: the graph is spent then. Returns the first
 * failure. */
wf_status wf_rewrite_end(wf_rewrite *r, wf_status status);

/* Drops nodes that no output and no update needs. Inputs and states stay. Returns how many went. */
wf_status wf_graph_prune(wf_graph *g, int *dropped);
/* A copy of its own; checks the graph first. */
wf_status wf_graph_copy(wf_graph *from, wf_graph **out);
/* Puts the nodes into another order: order[i] is the id of the node that becomes node i. */
wf_status wf_graph_reorder(wf_graph *g, const int *order);

#endif

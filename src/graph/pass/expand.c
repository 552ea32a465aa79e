/* SPDX-License-Identifier: MIT */
/*
 * expand.c - replaces ops by their expansions until only core ops and kept ops remain.
 *
 * The expansion of an op is its definition in core ops. The selftest compares it with the op's own
 * kernels, and a device without a kernel for an op runs it instead (device/expand.c).
 *
 *     before    %2 = silu(%1)
 *     after     %2 = sigmoid(%1)
 *               %3 = mul(%1, %2)
 *
 * A round copies the whole graph and expands each node at most once. Rounds repeat until a copy
 * expands nothing. Copying instead of rewriting in place also serves wf_graph_copy, which keeps
 * every node.
 */
#include "base/mem.h"
#include "graph/build.h"
#include "graph/op/rule.h"
#include "graph/pass/pass.h"

/* Used by the expansions of gradient ops. Adds the forward expansion of `op`, then its gradient by
 * wf_pass_grad. The copies of operands disappear in fold. */
wf_status wf_expand_vjp(wf_graph *g, wf_op op, const void *attr, wf_value *const *in, int nin,
                        wf_value *dy, const int *wrt, int nwrt, wf_value **grads)
{
    wf_value *forward[WF_MAX_OUT] = {NULL}, *wanted[WF_MAX_OUT], *operands[8], *shield[8];
    /* Only the fields that an expand rule reads. */
    wf_node n = {.op = op, .nin = nin, .in = operands, .attr = attr};
    wf_assert(nin <= 8 && nwrt <= WF_MAX_OUT);
    /* Differentiate with respect to copies of the operands. Otherwise nodes upstream of an operand,
     * or an operand that occurs twice, would add to the gradient. These are copy nodes because a
     * reshape to the same shape adds no node. */
    for (int i = 0; i < nin; i++)
        operands[i] = shield[i] = in[i] ? wf_copy(g, in[i]) : NULL;
    for (int i = 0; i < nin; i++)
        /* An operand is optional in the op, but not here: a missing copy means that building
         * failed. */
        if (!shield[i])
            return g->status;
    WF_TRY(wf_op_get(op)->expand(g, &n, operands, forward));
    WF_TRY(g->status);
    for (int i = 0; i < nwrt; i++)
        wanted[i] = shield[wrt[i]];
    return wf_pass_grad(g, forward, &dy, 1, wanted, nwrt, grads);
}

/* For each node of a graph, the op whose expansion made it; WF_OP_COUNT for nodes of the caller's
 * graph. */
typedef struct {
    wf_op *op; /* [node id] */
    int count, cap;
} origins;

/* One round of copying. */
typedef struct {
    wf_graph *to;
    /* Each entry has nout values; NULL until the node was copied. */
    wf_value ***map;      /* [source node id][output] value in the copy */
    wf_value **in;        /* scratch: the operands of one node */
    int expanded;         /* nodes expanded in this round */
    wf_expansion *counts; /* [WF_OP_COUNT]; NULL: no statistics, and the origins stay empty */
    const origins *from_origins;
    origins to_origins;
} copier;

/* ---- Statistics ---- */

/* Nodes past the end were not counted yet and belong to the caller's graph. */
static wf_op origin_of(const origins *o, const wf_node *n)
{
    return n->id < o->count ? o->op[n->id] : WF_OP_COUNT;
}

/* Sets the origin of all nodes that were added since the last call. */
static wf_status set_origins(copier *c, wf_op origin)
{
    origins *o = &c->to_origins;
    if (c->to->node_count > o->cap) {
        int cap = 2 * c->to->node_count + 64;
        void *grown = wf_mem_grow(c->to->ctx, o->op, (size_t)cap * sizeof *o->op);
        if (!grown)
            return WF_ERR_MEMORY;
        o->op = grown;
        o->cap = cap;
    }
    while (o->count < c->to->node_count)
        o->op[o->count++] = origin;
    return WF_OK;
}

/* Counts an expanded node. A node that an expansion made counts for the op of the caller's
 * graph. */
static wf_status count_node(copier *c, const wf_node *n, bool expand)
{
    if (!c->counts)
        return WF_OK;
    /* An expansion inherits the origin, so an op that expands in several rounds counts once. */
    wf_op origin = origin_of(c->from_origins, n);
    if (expand && origin == WF_OP_COUNT) {
        wf_cost cost;
        origin = n->op;
        wf_node_cost(n, &cost);
        wf_cost_add(&c->counts[origin].before, &cost);
        c->counts[origin].nodes++;
    }
    return set_origins(c, origin);
}

/* Adds up the nodes in g that expansions made. Skips nodes that no output and no update needs. */
static wf_status count_results(const wf_graph *g, const origins *o, wf_expansion *counts)
{
    /* [node id] needed by an output or an update. */
    bool *live = wf_mem_array(g->ctx, (size_t)g->node_count + 1, sizeof *live);
    if (!live)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->output_count; i++)
        live[g->outputs[i].value->node->id] = true;
    /* Readers come later, so one backward walk marks all live nodes. */
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        wf_op origin = origin_of(o, n);
        live[i] |= wf_node_is(n, WF_FLAG_UPDATE);
        for (int k = 0; live[i] && k < n->nin; k++)
            live[n->in[k]->node->id] = true;
        if (!live[i] || origin == WF_OP_COUNT || wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW))
            continue;
        wf_cost cost;
        wf_node_cost(n, &cost);
        wf_cost_add(&counts[origin].after, &cost);
        counts[origin].launches++;
    }
    wf_mem_free(g->ctx, live);
    return WF_OK;
}

/* ---- Copying ---- */

static wf_status copy_node(copier *c, const wf_node *n, bool expand)
{
    wf_value **out = c->map[n->id];
    for (int i = 0; i < n->nin; i++) /* operands come before their readers, so their copies exist */
        c->in[i] = c->map[n->in[i]->node->id][n->in[i]->index];
    c->to->backward = n->backward; /* new nodes belong to the same half of the training graph */
    if (expand) {
        c->expanded++;
        WF_TRY(wf_node_def(n)->expand(c->to, n, c->in, out));
    } else {
        wf_value *v = wf_node_add(c->to, n->op, n->attr, n->name, c->in, n->nin);
        for (int i = 0; i < n->nout; i++)
            out[i] = wf_value_output(v, i);
    }
    WF_TRY(c->to->status);
    WF_TRY(count_node(c, n, expand));
    /* Readers were checked against the old type and shape. An expansion that changes them is a
     * bug. */
    for (int i = 0; i < n->nout; i++)
        if (!out[i] || !wf_alike(out[i], &n->out[i]))
            return wf_graph_fail(c->to, WF_ERR_INTERNAL,
                                 "the expansion of %s changes the type or shape of output %d",
                                 wf_node_def(n)->name, i);
    /* Marks move to the result of the expansion: a block still ends there. */
    for (int i = 0; i < n->nout; i++)
        out[i]->marks |= n->out[i].marks;
    return WF_OK;
}

/* Copies nodes in order. Expands those that are neither core ops nor kept by `keep` (may be
 * NULL). */
static wf_status copy_graph(copier *c, const wf_graph *from, wf_keep_fn *keep, void *user)
{
    size_t longest = 1;
    wf_ctx *ctx = from->ctx;
    c->map = wf_mem_array(ctx, (size_t)from->node_count, sizeof *c->map);
    if (!c->map)
        return WF_ERR_MEMORY;
    for (int i = 0; i < from->node_count; i++) {
        const wf_node *n = from->nodes[i];
        c->map[i] = wf_mem_array(ctx, (size_t)n->nout, sizeof *c->map[i]);
        if (!c->map[i])
            return WF_ERR_MEMORY;
        if ((size_t)n->nin > longest)
            longest = (size_t)n->nin;
    }
    c->in = wf_mem_array(ctx, longest, sizeof *c->in);
    if (!c->in)
        return WF_ERR_MEMORY;
    c->to->streams = from->streams; /* new random streams must not repeat the old ones */
    for (int i = 0; i < from->node_count; i++) {
        const wf_node *n = from->nodes[i];
        WF_TRY(copy_node(c, n, !wf_op_is_core(n->op) && !(keep && keep(n, user))));
    }
    c->to->backward = from->backward;
    for (int i = 0; i < from->output_count; i++) {
        const wf_value *v = from->outputs[i].value;
        WF_TRY(wf_output(c->to, from->outputs[i].name, c->map[v->node->id][v->index]));
    }
    return WF_VERIFY(c->to);
}

/* One round. The next one expands the nodes that this round's expansions added. */
static wf_status expand_once(copier *c, wf_graph *from, wf_keep_fn *keep, void *user)
{
    WF_TRY(wf_graph_new(from->ctx, &c->to));
    wf_status status = copy_graph(c, from, keep, user);
    for (int i = 0; c->map && i < from->node_count; i++)
        wf_mem_free(from->ctx, c->map[i]);
    wf_mem_free(from->ctx, c->map);
    wf_mem_free(from->ctx, c->in);
    if (status != WF_OK) {
        wf_graph_free(c->to);
        c->to = NULL;
    }
    return status;
}

wf_status wf_pass_expand(wf_graph *from, wf_keep_fn *keep, void *user, wf_graph **out)
{
    return wf_pass_expand_counted(from, keep, user, NULL, out);
}

wf_status wf_pass_expand_counted(wf_graph *from, wf_keep_fn *keep, void *user, wf_expansion *counts,
                                 wf_graph **out)
{
    /* Expansions nest at most a few levels; more means that one contains itself. */
    enum { MAX_ROUNDS = 16 };
    *out = NULL;
    WF_TRY(wf_graph_verify(from));
    wf_graph *g = from;
    origins last = {0};
    int expanded = 1;
    wf_status status = WF_OK;
    for (int round = 0; round < MAX_ROUNDS && expanded > 0 && status == WF_OK; round++) {
        copier c = {.counts = counts, .from_origins = &last};
        status = expand_once(&c, g, keep, user);
        expanded = c.expanded;
        if (g != from) /* intermediate copies belong to this function */
            wf_graph_free(g);
        wf_mem_free(from->ctx, last.op);
        g = c.to;
        last = c.to_origins;
    }
    if (status == WF_OK && expanded > 0)
        status = wf_fail(from->ctx, WF_ERR_INTERNAL, "the expansion of an op contains the same op");
    if (status == WF_OK && counts)
        status = count_results(g, &last, counts);
    wf_mem_free(from->ctx, last.op);
    if (status == WF_OK)
        *out = g;
    else if (g)
        wf_graph_free(g);
    return status;
}

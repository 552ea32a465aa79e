/* SPDX-License-Identifier: MIT */
/*
 * expand.c - replaces ops by their expansions until only core ops, and those to be kept, are left.
 *
 * The expansion of an op is its definition: tests run it beside the op's own kernels, and devices
 * without a kernel for an op can run it instead.
 */
#include "base/mem.h"
#include "graph/build.h"
#include "graph/op/rule.h"

wf_status wf_expand_vjp(wf_graph *g, wf_op op, const void *attr, wf_value *const *in, int nin,
                        wf_value *dy, const int *wrt, int nwrt, wf_value **grads)
{
    wf_value *forward[WF_MAX_OUT] = {NULL}, *wanted[WF_MAX_OUT], *operands[8], *shield[8];
    wf_node n = {.op = op, .nin = nin, .in = operands, .attr = attr};
    wf_assert(nin <= 8 && nwrt <= WF_MAX_OUT);
    /* Differentiate copies of the operands: what is upstream of them, or shared between them, must
     * not take part. A reshape to the same shape would be no node, so these are copy nodes. */
    for (int i = 0; i < nin; i++)
        operands[i] = shield[i] = in[i] ? wf_copy(g, in[i]) : NULL;
    for (int i = 0; i < nin; i++)
        if (!shield[i])
            return g->status;
    WF_TRY(wf_op_get(op)->expand(g, &n, operands, forward));
    WF_TRY(g->status);
    for (int i = 0; i < nwrt; i++)
        wanted[i] = shield[wrt[i]];
    return wf_pass_grad(g, forward, &dy, 1, wanted, nwrt, grads);
}

typedef struct {
    wf_graph *to;
    wf_value ***map; /* [node id of the source][output] -> value of the copy */
    wf_value **in;   /* scratch for one node */
    int expanded;
} copier;

static wf_status copy_node(copier *c, const wf_node *n, bool expand)
{
    wf_value **out = c->map[n->id];
    for (int i = 0; i < n->nin; i++)
        c->in[i] = c->map[n->in[i]->node->id][n->in[i]->index];
    c->to->backward = n->backward;
    if (expand) {
        c->expanded++;
        WF_TRY(wf_node_def(n)->expand(c->to, n, c->in, out));
    } else {
        wf_value *v = wf_node_add(c->to, n->op, n->attr, n->name, c->in, n->nin);
        for (int i = 0; i < n->nout; i++)
            out[i] = wf_value_output(v, i);
    }
    WF_TRY(c->to->status);
    for (int i = 0; i < n->nout; i++)
        if (!out[i] || !wf_alike(out[i], &n->out[i]))
            return wf_graph_fail(c->to, WF_ERR_INTERNAL,
                                 "expand: output %d of %s has another type or shape", i,
                                 wf_node_def(n)->name);
    for (int i = 0; i < n->nout; i++)
        out[i]->marks |= n->out[i].marks;
    return WF_OK;
}

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
    c->to->streams = from->streams;
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

/* One round: nodes that an expansion brings in are left for the next. */
static wf_status expand_once(wf_graph *from, wf_keep_fn *keep, void *user, wf_graph **out,
                             int *expanded)
{
    copier c = {0};
    WF_TRY(wf_graph_new(from->ctx, &c.to));
    wf_status status = copy_graph(&c, from, keep, user);
    for (int i = 0; c.map && i < from->node_count; i++)
        wf_mem_free(from->ctx, c.map[i]);
    wf_mem_free(from->ctx, c.map);
    wf_mem_free(from->ctx, c.in);
    if (status != WF_OK) {
        wf_graph_free(c.to);
        return status;
    }
    *expanded = c.expanded;
    *out = c.to;
    return WF_OK;
}

wf_status wf_pass_expand(wf_graph *from, wf_keep_fn *keep, void *user, wf_graph **out)
{
    *out = NULL;
    WF_TRY(wf_graph_verify(from));
    wf_graph *g = from;
    for (int round = 0; round < 16; round++) {
        wf_graph *next = NULL;
        int expanded = 0;
        wf_status status = expand_once(g, keep, user, &next, &expanded);
        if (g != from)
            wf_graph_free(g);
        if (status != WF_OK)
            return status;
        g = next;
        if (expanded == 0) {
            *out = g;
            return WF_OK;
        }
    }
    wf_graph_free(g);
    return wf_fail(from->ctx, WF_ERR_INTERNAL, "expand: an op expands into itself");
}

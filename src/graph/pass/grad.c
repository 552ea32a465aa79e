/* SPDX-License-Identifier: MIT */
/*
 * grad.c - reverse-mode differentiation: appends to a graph the nodes that compute gradients.
 *
 * The pass visits nodes from last to first. When it visits a node, the gradients of its outputs are
 * complete, summed over all uses, and the op's gradient rule builds those of its operands. Only
 * values on a path from `wrt` to the outputs take part.
 *
 *     before    %2 = mul(%0, %1)          loss depends on %2
 *     after     %9 = mul(%8, %1)          %8 is the gradient of %2, %9 that of %0
 *
 * Gradients of one value are added in the order in which its readers are visited, from the last to
 * the first. That order fixes the rounding, so gradients are bitwise reproducible.
 */
#include "base/mem.h"
#include "graph/build.h"
#include "graph/op/rule.h"

typedef struct {
    wf_graph *g;
    int node_count;  /* nodes before the pass; it appends more */
    int *first;      /* [node] slot of its output 0; the other outputs follow */
    bool *active;    /* [slot] depends on a value of wrt */
    wf_value **grad; /* [slot] sum of the gradients so far; NULL: zero */
    wf_value **din;  /* [operand] scratch for one rule; sized for the node with most operands */
    bool *need;      /* [operand] likewise */
} grad_pass;

static int slot(const grad_pass *p, const wf_value *v)
{
    return p->first[v->node->id] + v->index;
}

/* Counts before anything is appended: slots exist for the original nodes only. */
static wf_status prepare(grad_pass *p)
{
    wf_graph *g = p->g;
    size_t values = 0, longest = 1;
    p->first = wf_mem_array(g->ctx, (size_t)g->node_count, sizeof *p->first);
    if (!p->first)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        p->first[i] = (int)values;
        values += (size_t)g->nodes[i]->nout;
        if ((size_t)g->nodes[i]->nin > longest)
            longest = (size_t)g->nodes[i]->nin;
    }
    p->active = wf_mem_array(g->ctx, values, sizeof *p->active);
    p->grad = wf_mem_array(g->ctx, values, sizeof *p->grad);
    p->din = wf_mem_array(g->ctx, longest, sizeof *p->din);
    p->need = wf_mem_array(g->ctx, longest, sizeof *p->need);
    return p->active && p->grad && p->din && p->need ? WF_OK : WF_ERR_MEMORY;
}

static void release(grad_pass *p)
{
    wf_ctx *ctx = p->g->ctx;
    wf_mem_free(ctx, p->first);
    wf_mem_free(ctx, p->active);
    wf_mem_free(ctx, p->grad);
    wf_mem_free(ctx, p->din);
    wf_mem_free(ctx, p->need);
}

/* Whether a gradient can flow through v. Integers end it; the rule of cast fails for 8-bit
 * floats. */
static bool carries(const wf_value *v)
{
    wf_kind kind = wf_type_get(v->type)->kind;
    return kind == WF_KIND_FLOAT || kind == WF_KIND_STORAGE;
}

/* Sets active[] in one forward walk. */
static void mark_active(grad_pass *p, wf_value *const *wrt, int nwrt)
{
    /* wrt may be a result, not only a source: the walk starts there. */
    for (int i = 0; i < nwrt; i++)
        p->active[slot(p, wrt[i])] = true;
    for (int i = 0; i < p->node_count; i++) {
        const wf_node *n = p->g->nodes[i];
        bool active = false;
        for (int k = 0; k < n->nin; k++)
            active |= p->active[slot(p, n->in[k])];
        for (int k = 0; k < n->nout; k++)
            if (active && carries(&n->out[k]))
                p->active[slot(p, &n->out[k])] = true;
    }
}

/* Adds `grad` to the gradient of v. NULL adds nothing. */
static wf_status flow_into(grad_pass *p, wf_value *v, wf_value *grad)
{
    if (!grad)
        return p->g->status;
    /* A rule that returns another type or shape is a bug: fail here, where the op is known. */
    if (!wf_alike(v, grad))
        return wf_graph_fail(p->g, WF_ERR_INTERNAL,
                             "grad: the gradient of a result of %s has the wrong type or shape",
                             wf_node_def(v->node)->name);
    wf_value **sum = &p->grad[slot(p, v)];
    *sum = *sum ? wf_add(p->g, *sum, grad) : grad;
    return p->g->status;
}

/* Runs the gradient rule of one node. */
static wf_status visit(grad_pass *p, wf_node *n)
{
    wf_value *dout[WF_MAX_OUT];
    bool reached = false, wanted = false;
    for (int i = 0; i < n->nout; i++) {
        dout[i] = p->grad[slot(p, &n->out[i])]; /* complete: all readers have been visited */
        reached |= dout[i] != NULL;
    }
    for (int i = 0; i < n->nin; i++) {
        p->din[i] = NULL;
        p->need[i] = p->active[slot(p, n->in[i])];
        wanted |= p->need[i];
    }
    /* Skip nodes off the path: their rules might refuse although nobody needs the gradient. */
    if (!reached || !wanted)
        return WF_OK;
    wf_vjp v = {p->g, n, dout, p->din, p->need};
    WF_TRY(wf_node_def(n)->grad(&v));
    WF_TRY(p->g->status);
    for (int i = 0; i < n->nin; i++)
        if (p->need[i])
            WF_TRY(flow_into(p, n->in[i], p->din[i]));
    return WF_OK;
}

static wf_status run(grad_pass *p, wf_value *const *outs, wf_value *const *douts, int nout,
                     wf_value *const *wrt, int nwrt, wf_value **grads)
{
    WF_TRY(prepare(p));
    mark_active(p, wrt, nwrt);
    for (int i = 0; i < nout; i++)
        WF_TRY(flow_into(p, outs[i], douts[i]));
    /* visit appends nodes after node_count, which are not visited. */
    for (int i = p->node_count - 1; i >= 0; i--)
        WF_TRY(visit(p, p->g->nodes[i]));
    for (int i = 0; i < nwrt; i++) {
        wf_value *grad = p->grad[slot(p, wrt[i])];
        /* No path: the gradient is zero, not missing. */
        grads[i] = grad ? grad : wf_zeros_like(p->g, wrt[i]);
    }
    WF_TRY(p->g->status);
    return WF_VERIFY(p->g);
}

/* Leaves g->backward as it was, so callers may nest (wf_expand_vjp). */
wf_status wf_pass_grad(wf_graph *g, wf_value *const *outs, wf_value *const *douts, int nout,
                       wf_value *const *wrt, int nwrt, wf_value **grads)
{
    grad_pass p = {.g = g, .node_count = g->node_count};
    bool before = g->backward;
    g->backward = true;
    wf_status status = run(&p, outs, douts, nout, wrt, nwrt, grads);
    g->backward = before;
    release(&p);
    /* The graph is unusable after any failure, even if only scratch memory ran out. */
    if (status != WF_OK) {
        wf_graph_fail(g, status, "%s", g->ctx->message);
        for (int i = 0; i < nwrt; i++)
            grads[i] = NULL;
    }
    return status;
}

/* grads[] is all NULL after a failure. */
wf_status wf_grad(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n, wf_value **grads)
{
    for (int i = 0; i < n; i++)
        grads[i] = NULL;
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (!loss || loss->shape.n != 0 || !wf_is_float(loss))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "grad: the loss must be a float scalar; sum it first");
    if (!wf_graph_has(g, loss))
        return wf_graph_fail(g, WF_ERR_USAGE, "grad: the loss belongs to another graph");
    for (int i = 0; i < n; i++) {
        if (!wrt[i] || !wf_is_float(wrt[i]))
            return wf_graph_fail(g, WF_ERR_USAGE, "grad: value %d is %s, so it has no gradient", i,
                                 wrt[i] ? wf_type_name(wrt[i]->type) : "missing");
        if (wrt[i]->marks & WF_MARK_FOLDED)
            return wf_graph_fail(g, WF_ERR_USAGE,
                                 "grad: value %d was folded away: differentiate with respect to "
                                 "states, inputs or values made after wf_fold",
                                 i);
        if (!wf_graph_has(g, wrt[i]))
            return wf_graph_fail(g, WF_ERR_USAGE, "grad: value %d belongs to another graph", i);
    }
    wf_value *one = wf_like(g, loss, 1); /* the seed of the backward pass: d loss / d loss */
    return one ? wf_pass_grad(g, &loss, &one, 1, wrt, n, grads) : g->status;
}

/* For ops whose further outputs are statistics: a gradient through them is not defined by the
 * rule. */
wf_status wf_vjp_only_first(wf_vjp *v)
{
    for (int i = 1; i < v->node->nout; i++)
        if (v->dout[i])
            return wf_graph_fail(v->g, WF_ERR_USAGE, "%s has no gradient through its output %d",
                                 wf_node_def(v->node)->name, i);
    return v->dout[0]
               ? WF_OK
               : wf_graph_fail(v->g, WF_ERR_INTERNAL, "%s: the gradient of output 0 is missing",
                               wf_node_def(v->node)->name);
}

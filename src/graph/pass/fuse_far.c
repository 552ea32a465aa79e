/* SPDX-License-Identifier: MIT */
/*
 * fuse_far.c - patterns whose nodes are far apart: the head with its loss and gradient, and updates
 * of many parameters.
 *
 *     before    %logits = linear(%x, %w)
 *               %loss = cross_entropy(%logits, %targets)
 *               %d = cross_entropy_grad(%dloss, %logits, %targets, %loss.1)
 *               %dx = matmul(%d, %w)
 *               %dw = matmul(%d, %x)
 *     after     %loss = head_loss(%x, %w, %targets, %dloss)       outputs loss, lse, dx, dw
 *
 *     before    %5 = adamw(%p0, %m0, %v0, %g0, ...)   %6 = adamw(%p1, %m1, %v1, %g1, ...)
 *     after     %6 = adamw_many(%p0, %p1, %m0, %m1, %v0, %v1, %g0, %g1, ...)
 *
 * A set of nodes can become one node if no path leaves the set and comes back, along operands and
 * along the order that states impose. Two merges may be legal one by one and illegal together, so
 * each call makes one and then sorts the graph.
 */
#include <string.h>

#include "base/mem.h"
#include "graph/pass/fuse_priv.h"

/* ---- Legality ---- */

/* Whether the nodes with member[i] set can become one node. Walks all paths that leave the set and
 * fails if one comes back. */
static wf_status can_merge(const wf_graph *g, const bool *member, bool *out)
{
    wf_edges e;
    int top = 0;
    *out = false;
    WF_TRY(wf_edges_new(g, &e));
    int *stack = wf_mem_array(g->ctx, (size_t)e.count + 1, sizeof *stack);
    bool *seen = wf_mem_array(g->ctx, (size_t)e.count + 1, sizeof *seen);
    bool back = false;
    for (int i = 0; stack && seen && i < e.count && !back; i++) {
        if (member[i])
            stack[top++] = i;
        while (top > 0 && !back) {
            int n = stack[--top];
            for (int k = e.first[n]; k < e.first[n + 1]; k++) {
                int next = e.after[k];
                if (member[next]) /* an edge from outside back into the set */
                    back |= !member[n];
                /* seen[] bounds the work: every outside node is expanded once. */
                else if (!seen[next]) {
                    seen[next] = true;
                    stack[top++] = next;
                }
            }
        }
    }
    wf_status status = stack && seen ? WF_OK : WF_ERR_MEMORY;
    *out = !back;
    wf_mem_free(g->ctx, stack);
    wf_mem_free(g->ctx, seen);
    wf_edges_free(&e);
    return status;
}

/* Ends a rewrite that merged nodes; the sort finds a legal place for the new node. */
static wf_status end_and_sort(wf_rewrite *r, wf_status status)
{
    WF_TRY(wf_rewrite_end(r, status));
    return wf_order_sort(r->g);
}

/* ---- Head and loss ---- */

/* The nodes of the pattern. */
typedef struct {
    wf_node *linear, *loss, *grad; /* logits, cross_entropy, cross_entropy_grad or NULL */
    wf_node *flat;                 /* a reshape of the gradient to [N, V], or NULL */
    wf_node *dx, *dw;              /* the matmuls of linear's gradient, or NULL */
} head;

/* NULL also if the only reader is a graph output. */
static wf_node *only_reader(const wf_uses *u, const wf_value *v)
{
    return wf_uses_count(u, v) == 1 ? wf_uses_of(u, v)[0].node : NULL;
}

static bool is_matmul(const wf_node *n, bool transpose_a, bool transpose_b)
{
    const wf_attr_matmul *a = n->attr;
    return n->op == WF_OP_matmul && (a->transpose_a != 0) == transpose_a &&
           (a->transpose_b != 0) == transpose_b;
}

/* Whether v is x, or x with all axes but the last merged into one. */
static bool is_flat_of(const wf_value *v, const wf_value *x)
{
    return v == x || (v->node->op == WF_OP_reshape && v->node->in[0] == x && v->shape.n == 2 &&
                      wf_dims_last(&v->shape) == wf_dims_last(&x->shape));
}

/* The two matmuls of linear's gradient must be the only readers of the logits' gradient. */
static bool match_gradient(const wf_uses *u, head *h)
{
    const wf_value *d = &h->grad->out[0];
    const wf_node *reader = only_reader(u, d);
    if (reader && reader->op == WF_OP_reshape) {
        h->flat = (wf_node *)reader;
        d = &h->flat->out[0];
    }
    for (int i = 0; i < wf_uses_count(u, d); i++) {
        wf_use use = wf_uses_of(u, d)[i];
        if (!use.node || use.operand != 0)
            return false;
        /* dx [N, C] = d [N, V] w [V, C]. */
        if (is_matmul(use.node, false, false) && use.node->in[1] == h->linear->in[1] && !h->dx)
            h->dx = use.node;
        else if (is_matmul(use.node, true, false) &&
                 /* dw [V, C] = d^T [V, N] x [N, C]. */
                 is_flat_of(use.node->in[1], h->linear->in[0]) && !h->dw)
            h->dw = use.node;
        else
            return false;
    }
    /* head_loss always computes dx. It computes dw in w's type, or not at all for a frozen w. If x
     * has more than two axes, dx becomes a view, which cannot be a graph output. */
    bool dw = !h->dw || h->dw->out[0].type == h->linear->in[1]->type;
    return h->dx && dw && !(h->flat && wf_uses_is_output(u, &h->dx->out[0]));
}

/* Matches from cross_entropy back to the head and on to the gradient. dloss must not be computed
 * from this node's loss directly: head_loss cannot take its own result as an operand. */
static bool match_head(const wf_uses *u, wf_node *loss, head *out)
{
    head h = {.linear = loss->in[0]->node, .loss = loss};
    if (h.linear->op != WF_OP_linear || h.linear->nin != 2) /* a head with bias does not match */
        return false;
    const wf_value *logits = &h.linear->out[0];
    for (int i = 0; i < wf_uses_count(u, logits); i++) {
        wf_node *reader = wf_uses_of(u, logits)[i].node;
        if (reader == loss)
            continue;
        if (!reader || reader->op != WF_OP_cross_entropy_grad || h.grad ||
            reader->in[0]->node == loss || reader->in[2] != loss->in[1] ||
            reader->in[3] != &loss->out[1] ||
            memcmp(reader->attr, loss->attr, sizeof(wf_attr_cross_entropy)) != 0)
            return false;
        h.grad = reader;
    }
    if (h.grad && !match_gradient(u, &h))
        return false;
    *out = h;
    return true;
}

static void mark_members(const head *h, bool *member)
{
    wf_node *const nodes[] = {h->linear, h->loss, h->grad, h->flat, h->dx, h->dw};
    for (int i = 0; i < (int)(sizeof nodes / sizeof *nodes); i++)
        if (nodes[i])
            member[nodes[i]->id] = true;
}

static void replace_head(wf_rewrite *r, const head *h, wf_value *made)
{
    wf_graph *g = r->g;
    wf_rewrite_replace(r, &h->loss->out[0], made);
    wf_rewrite_replace(r, &h->loss->out[1], &made->node->out[1]);
    if (!h->grad) /* without a gradient there is nothing else to replace */
        return;
    bool before = g->backward;
    g->backward = true; /* the reshape belongs to the gradient */
    wf_rewrite_replace(r, &h->dx->out[0],
                       wf_reshape_to(g, &made->node->out[2], &h->dx->out[0].shape));
    if (h->dw)
        wf_rewrite_replace(r, &h->dw->out[0], &made->node->out[3]);
    g->backward = before;
}

static wf_status fuse_head(wf_rewrite *r, const wf_pass_env *env, const head *h, bool *made)
{
    wf_graph *g = r->g;
    const wf_attr_cross_entropy *a = h->loss->attr;
    const wf_attr_head_loss attr = {.ignore_index = a->ignore_index,
                                    .label_smoothing = a->label_smoothing,
                                    .z_loss = a->z_loss,
                                    .softcap = a->softcap,
                                    /* A frozen w has no dw: the kernel skips that matmul. */
                                    .frozen = h->grad && !h->dw};
    wf_value *in[] = {h->linear->in[0], h->linear->in[1], h->loss->in[1],
                      h->grad ? h->grad->in[0] : NULL};
    wf_rewrite_before(r, h->linear); /* a preliminary place: end_and_sort moves it */
    wf_value *y = wf_node_add(g, WF_OP_head_loss, &attr, NULL, in, h->grad ? 4 : 3);
    *made = wf_fuse_accepts(r, env->target, y);
    if (*made)
        replace_head(r, h, y);
    return g->status;
}

/* Fuses the linear that makes the logits, their cross entropy and, if present, the gradient of
 * both. The logits, by far the largest value of a language model, then never exist as a whole. */
wf_status wf_fuse_head_loss(wf_graph *g, const wf_pass_env *env, int *made)
{
    wf_rewrite r;
    bool found = false;
    WF_TRY(wf_rewrite_begin(g, &r));
    bool *member = wf_mem_array(g->ctx, (size_t)r.count + 1, sizeof *member);
    wf_status status = member ? WF_OK : WF_ERR_MEMORY;
    for (int i = 0; i < r.count && status == WF_OK && !found; i++) {
        head h;
        bool legal;
        if (g->nodes[i]->op != WF_OP_cross_entropy || !match_head(&r.uses, g->nodes[i], &h))
            continue;
        memset(member, 0, (size_t)r.count);
        mark_members(&h, member);
        status = can_merge(g, member, &legal);
        if (status == WF_OK && legal)
            status = fuse_head(&r, env, &h, &found);
    }
    *made = found;
    wf_mem_free(g->ctx, member);
    return end_and_sort(&r, status);
}

/* ---- Updates ---- */

/* Updates of parameters up to this many elements are always merged: each takes less time than a
 * launch. Merging larger ones keeps all their gradients alive until the last is computed. That
 * costs memory unless the updates wait for all gradients anyway, as for the gradient norm. */
#define SMALL 65536

typedef struct {
    wf_op one, many;
    int states; /* state operands of one update; they come first */
    int own;    /* operands of one update, its states and its gradient; the rest is shared */
    int most;   /* most updates in one node */
} merge_form;

static const merge_form forms[] = {
    {WF_OP_adamw, WF_OP_adamw_many, 3, 4, WF_MAX_OUT / 3},
    {WF_OP_adamw_many, WF_OP_adamw_many, 4, 5, WF_MAX_OUT / 4}, /* with copies */
    {WF_OP_accumulate, WF_OP_accumulate_many, 1, 2, WF_MAX_OUT},
};

/* Whether n updates one parameter. An update with a copy is an adamw_many of one parameter. */
static bool is_one(const merge_form *form, const wf_node *n)
{
    return n->op == form->one && n->nout == form->states;
}

/* Whether a and b have equal ops, attributes and shared operands. */
static bool are_alike(const merge_form *form, const wf_node *a, const wf_node *b)
{
    size_t bytes = wf_node_def(a)->attr_bytes;
    if (a->op != b->op || a->nin != b->nin || (bytes && memcmp(a->attr, b->attr, bytes) != 0))
        return false;
    for (int i = form->own; i < a->nin; i++)
        if (a->in[i] != b->in[i])
            return false;
    return true;
}

/* Sets awaited[] for all nodes that the shared operands of n depend on. If these include the
 * gradients (the gradient norm reads them all), the updates cannot start before all gradients
 * exist. */
static void mark_awaited(const wf_graph *g, const merge_form *form, const wf_node *n, bool *awaited)
{
    memset(awaited, 0, (size_t)g->node_count);
    for (int i = form->own; i < n->nin; i++)
        awaited[n->in[i]->node->id] = true;
    for (int i = n->id - 1; i >= 0; i--)
        for (int k = 0; awaited[i] && k < g->nodes[i]->nin; k++)
            awaited[g->nodes[i]->in[k]->node->id] = true;
}

static bool worth_merging(const wf_node *n, const merge_form *form, const bool *awaited)
{
    return wf_dims_count(&n->in[0]->shape) <= SMALL ||
           /* The gradient is the last own operand. */
           awaited[wf_value_root(n->in[form->own - 1])->node->id];
}

/* Whether a reads or writes a state that b writes. Such updates cannot be merged. */
static bool meet(const wf_node *a, const wf_node *b)
{
    for (int i = 0; i < a->nin; i++) {
        const wf_node *state = wf_value_root(a->in[i])->state;
        for (int k = 0; k < b->nout && state; k++)
            if (b->out[k].state == state)
                return true;
    }
    return false;
}

/* Collects up to form->most updates that can be merged with `first`, itself included. Returns the
 * count. */
static int gather(const wf_graph *g, const merge_form *form, wf_node *first, const bool *awaited,
                  wf_node **group)
{
    int n = 0;
    for (int i = first->id; i < g->node_count && n < form->most; i++) {
        wf_node *other = g->nodes[i];
        bool fits = are_alike(form, first, other) && worth_merging(other, form, awaited);
        for (int k = 0; k < n && fits; k++)
            fits = !meet(group[k], other) && !meet(other, group[k]);
        if (fits)
            group[n++] = other;
    }
    return n;
}

/* Builds the merged update: operand k of update i becomes operand k * n + i. */
static wf_status merge(wf_rewrite *r, const wf_pass_env *env, const merge_form *form,
                       wf_node *const *group, int n, bool *made)
{
    wf_graph *g = r->g;
    wf_value *in[4 * WF_MAX_OUT]; /* accumulate has most: 2 * WF_MAX_OUT and its shared operand */
    int shared = group[0]->nin - form->own;
    for (int k = 0; k < form->own; k++)
        for (int i = 0; i < n; i++)
            in[k * n + i] = group[i]->in[k];
    for (int k = 0; k < shared; k++)
        in[form->own * n + k] = group[0]->in[form->own + k];
    /* All operands exist before the last update; the sort may move it. */
    wf_rewrite_before(r, group[n - 1]);
    wf_value *y = wf_node_add(g, form->many, group[0]->attr, NULL, in, form->own * n + shared);
    *made = wf_fuse_accepts(r, env->target, y);
    for (int i = 0; i < n && *made; i++) {
        for (int k = 0; k < form->states; k++)
            wf_rewrite_replace(r, &group[i]->out[k], &y->node->out[k * n + i]);
        wf_rewrite_drop(r, group[i]);
    }
    return g->status;
}

/* Merges updates of many parameters into one node, which is one launch. */
wf_status wf_fuse_updates(wf_graph *g, const wf_pass_env *env, int *made)
{
    wf_rewrite r;
    wf_node *group[WF_MAX_OUT];
    bool found = false;
    WF_TRY(wf_rewrite_begin(g, &r));
    bool *member = wf_mem_array(g->ctx, 2 * (size_t)r.count + 1, sizeof *member);
    bool *awaited = member + r.count;
    wf_status status = member ? WF_OK : WF_ERR_MEMORY;
    /* The merged node is not "one" again, so a second call starts with the next group. */
    for (int f = 0; f < (int)(sizeof forms / sizeof *forms); f++)
        for (int i = 0; i < r.count && status == WF_OK && !found; i++) {
            bool legal = false;
            if (!is_one(&forms[f], g->nodes[i]))
                continue;
            mark_awaited(g, &forms[f], g->nodes[i], awaited);
            int n = gather(g, &forms[f], g->nodes[i], awaited, group);
            if (n < 2)
                continue;
            memset(member, 0, (size_t)r.count);
            for (int k = 0; k < n; k++)
                member[group[k]->id] = true;
            status = can_merge(g, member, &legal);
            if (status == WF_OK && legal)
                status = merge(&r, env, &forms[f], group, n, &found);
        }
    *made = found;
    wf_mem_free(g->ctx, member);
    return end_and_sort(&r, status);
}

/* SPDX-License-Identifier: MIT */
/*
 * recompute.c - the recompute pass: recomputes forward values for the gradient instead of keeping
 * them (activation checkpointing).
 *
 *     before    %1 = gelu(%0)  ...  %9 = matmul(%8, %1)              %1 lives until %9
 *     after     %1 = gelu(%0)  ...  %8' = gelu(%0)
 *                                   %9 = matmul(%8, %8')             %1 dies early
 *
 * When a gradient node reads a forward value that is not kept, the pass copies the node that makes
 * it to just before the first such reader, together with the nodes it depends on, back to values
 * that are kept. A copy has the same op, attributes and random stream, so its results are bitwise
 * equal.
 *
 * Not kept are values that wf_recompute marked. With options.recompute = n, only the end of every
 * nth block and of the last block is kept, and everything after the last block.
 */
#include "base/mem.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"

typedef struct {
    wf_graph *g;
    wf_rewrite r;
    wf_report *report;
    bool *kept;        /* [slot] the gradient reads the value itself, not a copy */
    wf_value **copies; /* [slot] the copy; NULL: not copied yet */
    int *writer;       /* [slot] wf_uses_find_writers */
} recompute;

static int slot(const recompute *p, const wf_value *v)
{
    return wf_uses_slot(&p->r.uses, v);
}

/* ---- Which values are kept ---- */

/* Returns the number of blocks and sets *last to the node that ends the last one. */
static int count_blocks(const wf_graph *g, int *last)
{
    int blocks = 0;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            /* The gradient has no blocks of its own. */
            if (g->nodes[i]->out[k].marks & WF_MARK_BLOCK && !g->nodes[i]->backward) {
                blocks++;
                *last = i;
            }
    return blocks;
}

/* If one output of a node is kept and read, keeps its other outputs as well. At the end of a block,
 * recomputing them would need operands from inside the block; elsewhere they exist anyway. Marked
 * outputs are still recomputed, except at the end of a block: else a norm whose statistics the
 * gradient reads would be kept as a whole. */
static void keep_siblings(recompute *p)
{
    for (int i = 0; i < p->r.count; i++) {
        const wf_node *n = p->g->nodes[i];
        bool any = false, end = false;
        for (int k = 0; k < n->nout; k++) {
            any |= p->kept[slot(p, &n->out[k])] && wf_uses_count(&p->r.uses, &n->out[k]) > 0;
            end |= (n->out[k].marks & WF_MARK_BLOCK) != 0;
        }
        for (int k = 0; k < n->nout && any; k++)
            if (end || !(n->out[k].marks & WF_MARK_RECOMPUTE))
                p->kept[slot(p, &n->out[k])] = true;
    }
}

static void choose_kept(recompute *p, int64_t every)
{
    const wf_graph *g = p->g;
    int last = -1, block = 0;
    int blocks = count_blocks(g, &last);
    /* Node order is block order: builders add one block after the other. */
    for (int i = 0; i < p->r.count; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++) {
            const wf_value *v = &g->nodes[i]->out[k];
            bool end = v->marks & WF_MARK_BLOCK && !v->node->backward;
            bool keep =
                every == 0 || i > last || (end && (++block % every == 0 || block == blocks));
            if (v->marks & WF_MARK_RECOMPUTE)
                keep = false;
            /* A state version cannot be computed twice, and an input need not be. */
            if (v->node->backward || v->state || wf_node_is(v->node, WF_FLAG_SOURCE))
                keep = true;
            p->kept[slot(p, v)] = keep;
        }
    keep_siblings(p);
}

/* ---- Copies ---- */

/* Whether a copy of n can run before `at`: it must not read a state version that is replaced by
 * then. */
static bool can_copy(const recompute *p, const wf_node *n, const wf_node *at)
{
    for (int i = 0; i < n->nin; i++)
        if (p->writer[slot(p, wf_uses_root(&p->r.uses, n->in[i]))] < at->id)
            return false;
    return true;
}

/* Adds a copy of n. It reads the copies of n's operands where they exist. */
static bool copy_node(recompute *p, const wf_node *n)
{
    wf_value **in = wf_mem_array(p->g->ctx, (size_t)n->nin + 1, sizeof *in), *y = NULL;
    for (int i = 0; in && i < n->nin; i++) {
        wf_value *copy = p->copies[slot(p, n->in[i])];
        in[i] = copy ? copy : n->in[i];
    }
    if (in)
        /* No name: sources are always kept, so never copied. */
        y = wf_node_add(p->g, n->op, n->attr, NULL, in, n->nin);
    wf_mem_free(p->g->ctx, in);
    for (int i = 0; y && i < n->nout; i++)
        p->copies[slot(p, &n->out[i])] = &y->node->out[i];
    wf_report_add(p->report, "recompute", "nodes recomputed", y != NULL);
    return y != NULL;
}

/* Returns the value that replaces v from `at` on: its copy, or v itself if it cannot be copied;
 * NULL on failure. Copies all nodes that v depends on first, depth first, with an explicit stack:
 * models are too deep for recursion. A copy stays valid for all later readers, so each node is
 * copied at most once. */
static wf_value *again(recompute *p, wf_value *v, const wf_node *at, int *stack)
{
    int depth = 0;
    if (!can_copy(p, v->node, at))
        return v;
    stack[depth++] = v->node->id;
    while (depth > 0) {
        const wf_node *n = p->g->nodes[stack[depth - 1]];
        int before = depth;
        for (int i = 0; i < n->nin; i++) {
            const wf_value *x = n->in[i];
            if (!p->kept[slot(p, x)] && !p->copies[slot(p, x)] && can_copy(p, x->node, at))
                stack[depth++] = x->node->id;
        }
        if (depth > before)
            continue; /* copy the operands first */
        depth--;
        /* It may have been pushed twice, once per use. */
        if (!p->copies[slot(p, &n->out[0])] && !copy_node(p, n))
            return NULL;
    }
    return p->copies[slot(p, v)];
}

static wf_status visit(recompute *p, wf_node *n, int *stack)
{
    /* Copies go right before the first gradient node that needs them. */
    wf_rewrite_before(&p->r, n);
    for (int i = 0; i < n->nin; i++) {
        wf_value *v = n->in[i];
        if (v->node->backward || p->kept[slot(p, v)])
            continue;
        wf_value *copy = again(p, v, n, stack);
        if (!copy)
            return p->g->status != WF_OK ? p->g->status : WF_ERR_MEMORY;
        n->in[i] = copy;
    }
    return WF_OK;
}

static wf_status run(recompute *p, int64_t every)
{
    wf_ctx *ctx = p->g->ctx;
    size_t values = (size_t)p->r.uses.values + 1;
    int *stack = NULL;
    wf_status status = WF_ERR_MEMORY;
    p->kept = wf_mem_array(ctx, values, sizeof *p->kept);
    p->copies = wf_mem_array(ctx, values, sizeof *p->copies);
    p->writer = wf_mem_array(ctx, values, sizeof *p->writer);
    /* A node can be on the stack once for every use of its outputs. */
    stack = wf_mem_array(ctx, (size_t)p->r.uses.first[p->r.uses.values] + 2, sizeof *stack);
    if (!p->kept || !p->copies || !p->writer || !stack)
        goto done;
    choose_kept(p, every);
    wf_uses_find_writers(&p->r.uses, p->g, p->writer);
    bool before = p->g->backward;
    p->g->backward = true; /* copies belong to the gradient */
    status = WF_OK;
    for (int i = 0; i < p->r.count && status == WF_OK; i++)
        if (p->g->nodes[i]->backward)
            status = visit(p, p->g->nodes[i], stack);
    p->g->backward = before;
done:
    wf_mem_free(ctx, p->kept);
    wf_mem_free(ctx, p->copies);
    wf_mem_free(ctx, p->writer);
    wf_mem_free(ctx, stack);
    return status;
}

/* Does nothing unless the options or a mark ask for it. */
wf_status wf_pass_recompute(wf_graph *g, const wf_pass_env *env)
{
    bool wanted = env->options->recompute > 0;
    for (int i = 0; i < g->node_count && !wanted; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            wanted |= (g->nodes[i]->out[k].marks & WF_MARK_RECOMPUTE) != 0;
    if (!wanted)
        return WF_OK;
    recompute p = {.g = g, .report = env->report};
    WF_TRY(wf_rewrite_begin(g, &p.r));
    return wf_rewrite_end(&p.r, run(&p, env->options->recompute));
}

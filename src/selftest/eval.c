/* SPDX-License-Identifier: MIT */
/*
 * eval.c - evaluates the reference for every node of a case, in order.
 *
 * Nodes are stored in topological order, so one pass suffices. All buffers are allocated once by
 * wf_eval_new and reused: the gradient check evaluates the same graph many times.
 */
#include <string.h>

#include "selftest/case.h"

/* Allocates the value and the mag of one output. Returns false when out of memory. */
static bool add_ref(wf_arena *arena, const wf_value *value, wf_ref *ref)
{
    size_t bytes = (size_t)wf_dims_count(&value->shape) * sizeof(double);
    *ref = (wf_ref){
        .type = value->type,
        .shape = value->shape,
        .v = wf_arena_alloc(arena, bytes),
        .mag = wf_arena_alloc(arena, bytes),
    };
    return ref->v && ref->mag;
}

/* Marks the nodes on which the last one depends. Operands precede the nodes that read them. */
static void mark_needed(wf_eval *e)
{
    e->needed[e->count - 1] = true;
    for (int i = e->count - 1; i >= 0; i--) {
        const wf_node *n = e->c->g->nodes[i];
        for (int k = 0; e->needed[i] && k < n->nin; k++)
            e->needed[n->in[k]->node->id] = true;
    }
}

/* Returns whether the values of node i are borrowed. The caller may change those of the last. */
static bool borrowed(const wf_eval *e, int i)
{
    return e->given[i] && i + 1 < e->count;
}

wf_status wf_eval_new(wf_case *c, const wf_node *last, wf_eval **out)
{
    *out = NULL;
    int count = last->id + 1, most = 1;
    wf_eval *e = wf_arena_alloc(&c->arena, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->c = c;
    e->count = count;
    e->node = wf_arena_alloc(&c->arena, (size_t)count * sizeof *e->node);
    e->given = wf_arena_alloc(&c->arena, (size_t)count * sizeof *e->given);
    e->needed = wf_arena_alloc(&c->arena, (size_t)count * sizeof *e->needed);
    if (!e->node || !e->given || !e->needed)
        return WF_ERR_MEMORY;
    mark_needed(e);
    for (int i = 0; i < c->operands; i++)
        if (c->operand[i].node->id < count)
            e->given[c->operand[i].node->id] = c->operand[i].v;
    for (int i = 0; i < count; i++) {
        const wf_node *n = c->g->nodes[i];
        most = n->nin > most ? n->nin : most;
        for (int k = 0; k < n->nout && e->needed[i] && !borrowed(e, i); k++)
            if (!add_ref(&c->arena, &n->out[k], &e->node[i].out[k]))
                return WF_ERR_MEMORY;
    }
    e->in = wf_arena_alloc(&c->arena, (size_t)most * sizeof *e->in);
    if (!e->in)
        return WF_ERR_MEMORY;
    *out = e;
    return WF_OK;
}

/* Clears the outputs, which references accumulate into, and hides the mags of operands: an op is
 * judged from exact operands, not from the errors of the nodes before it. */
static wf_status eval_node(wf_eval *e, const wf_node *n)
{
    wf_ref *out = e->node[n->id].out;
    for (int k = 0; k < n->nout; k++) {
        size_t bytes = (size_t)wf_dims_count(&out[k].shape) * sizeof(double);
        memset(out[k].v, 0, bytes);
        memset(out[k].mag, 0, bytes);
    }
    for (int i = 0; i < n->nin; i++) {
        e->in[i] = e->node[n->in[i]->node->id].out[n->in[i]->index];
        e->in[i].mag = NULL;
    }
    return wf_ref_run(e->c->ctx, n, e->in, out);
}

/* Sets the values of a source. */
static void give(wf_eval *e, int i)
{
    const wf_value *value = &e->c->g->nodes[i]->out[0];
    wf_ref *out = e->node[i].out;
    if (borrowed(e, i))
        *out = (wf_ref){.type = value->type, .shape = value->shape, .v = (double *)e->given[i]};
    else
        memcpy(out->v, e->given[i], (size_t)wf_dims_count(&out->shape) * sizeof(double));
}

wf_status wf_eval_run(wf_eval *e, bool rounded)
{
    for (int i = 0; i < e->count; i++) {
        const wf_node *n = e->c->g->nodes[i];
        wf_ref *out = e->node[i].out;
        if (!e->needed[i])
            continue;
        if (e->given[i]) {
            give(e, i);
            continue;
        }
        WF_TRY(eval_node(e, n));
        for (int k = 0; rounded && i + 1 < e->count && k < n->nout; k++) {
            int64_t count = wf_dims_count(&out[k].shape);
            for (int64_t x = 0; x < count; x++)
                out[k].v[x] = wf_number_round(out[k].type, out[k].v[x]);
        }
    }
    return WF_OK;
}

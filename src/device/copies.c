/* SPDX-License-Identifier: MIT */
/*
 * copies.c - narrow (f16 or bf16) copies of f32 states: the storage behind WF_OP_state_copy.
 *
 * A copy is reference-counted by the executables that read it. It has no name: sessions do not list
 * it and checkpoints do not store it. A run that updates both the state and the copy leaves them
 * equal. After any other change, and before its first use, the copy is cast again on the device
 * just before a run that reads it.
 *
 * Change counters detect this. state.changes grows with every write and before every run that may
 * change the state; copy.seen is its value when the two were last equal. 64 bits do not wrap.
 */
#include "base/mem.h"
#include "device/executor.h"

/* ---- Lifetime ---- */

/* Adds a copy without users to of->copies. v supplies type and shape. */
static wf_status copy_new(wf_session *s, wf_stored_state *of, const wf_value *v,
                          wf_stored_state **out)
{
    wf_stored_state *copy = wf_mem_new(s->ctx, sizeof *copy);
    if (!copy)
        return WF_ERR_MEMORY;
    copy->type = v->type;
    copy->shape = v->shape;
    copy->bytes = wf_value_bytes(v);
    copy->of = of;
    copy->seen = of->changes - 1; /* out of date: cast before the first run */
    wf_status status = wf_buffer_new(s->device, copy->bytes, &copy->buffer);
    if (status != WF_OK) {
        wf_mem_free(s->ctx, copy);
        return status;
    }
    if (s->device->ops->buffer_describe)
        s->device->ops->buffer_describe(copy->buffer, copy->type, &copy->shape);
    copy->next = of->copies;
    *out = of->copies = copy;
    return WF_OK;
}

/* One copy per state and type: executables share it. */
wf_status wf_session_bind_copy(wf_session *s, const wf_node *node, wf_stored_state **out)
{
    const wf_value *v = &node->out[0];
    wf_stored_state *of = wf_session_find(s, node->name), *copy;
    *out = NULL;
    if (!of || of->type != WF_F32 || !wf_dims_equal(&of->shape, &v->shape) ||
        of->storage == WF_STATE_PACKED)
        return wf_fail(
            s->ctx, WF_ERR_USAGE,
            "state '%s' cannot have a narrow copy: it is not an unpacked f32 state of that shape",
            node->name);
    for (copy = of->copies; copy && copy->type != v->type;)
        copy = copy->next;
    if (!copy)
        WF_TRY(copy_new(s, of, v, &copy));
    copy->users++;
    *out = copy;
    return WF_OK;
}

/* The last user frees it; the state itself stays. */
void wf_session_release_copy(wf_session *s, wf_stored_state *copy)
{
    if (--copy->users > 0)
        return;
    wf_stored_state **at = &copy->of->copies;
    while (*at != copy)
        at = &(*at)->next;
    *at = copy->next;
    wf_buffer_free(copy->buffer);
    wf_mem_free(s->ctx, copy);
}

/* ---- Contents ---- */

/* Describes the whole dense buffer of a state or copy. */
static wf_view view_of(const wf_stored_state *s)
{
    wf_place dense = {0};
    wf_view v = {.type = s->type, .rank = (int)s->shape.n, .dense = true, .data = s->buffer->base};
    wf_place_dense(&dense, &s->shape);
    for (int i = 0; i < v.rank; i++) {
        v.dim[i] = s->shape.d[i];
        v.stride[i] = dense.stride[i];
    }
    return v;
}

/* Casts the state into its copy with the device's own cast kernel, so that the bits equal those of
 * a cast node in the graph. The node lives on the stack and belongs to no graph. */
static wf_status refresh(wf_session *s, const wf_stored_state *copy)
{
    wf_device *device = s->device;
    wf_node state = {.op = WF_OP_state, .nout = 1};
    wf_value x = {.node = &state, .type = copy->of->type, .shape = copy->shape};
    wf_value *operand = &x;
    const wf_attr_cast attr = {copy->type};
    wf_node cast = {.op = WF_OP_cast, .nin = 1, .nout = 1, .in = &operand, .attr = &attr};
    wf_value y = {.node = &cast, .type = copy->type, .shape = copy->shape};
    state.out = &x;
    cast.out = &y;
    /* Chosen like any other node's kernel. A workspace would have to come from the region, which
     * belongs to the plan: reject it. */
    const wf_kernel *kernel = wf_kernel_choose(device, &cast);
    if (!kernel || wf_kernel_workspace(kernel, device, &cast) > 0)
        return wf_fail(s->ctx, WF_ERR_UNSUPPORTED,
                       "device %s has no cast kernel to copy state '%s'", device->target.name,
                       copy->of->name);
    if (device->ops->before_launch)
        WF_TRY(device->ops->before_launch(device));
    const wf_view in = view_of(copy->of), out = view_of(copy);
    const wf_launch launch = {.ctx = s->ctx,
                              .queue = s->queue,
                              .node = &cast,
                              .attr = &attr,
                              .in = &in,
                              .out = &out,
                              .nin = 1,
                              .nout = 1,
                              .threads = device->threads};
    return kernel->launch(&launch);
}

/* Returns whether every node that updates the state or its copy updates both. */
static bool stays_equal(const wf_graph *g, const wf_node *copy, const wf_stored_state *of,
                        wf_stored_state *const *states)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        bool state = false, both = false;
        for (int k = 0; wf_node_is(n, WF_FLAG_UPDATE) && k < n->nout; k++) {
            state |= states[n->out[k].state->id] == of;
            both |= n->out[k].state == copy;
        }
        if (state != both) /* updates one without the other */
            return false;
    }
    return true;
}

wf_status wf_copies_prepare(wf_plan_exec *e)
{
    const wf_graph *g = e->plan->graph;
    size_t states = 1;
    for (int i = 0; i < g->node_count; i++)
        states += wf_node_is(g->nodes[i], WF_FLAG_STATE);
    e->changed = wf_arena_alloc(&e->arena, states * sizeof *e->changed);
    /* Executables call this after wf_session_bind of all states, so e->states is complete for
     * them. */
    e->copies = wf_arena_alloc(&e->arena, states * sizeof *e->copies);
    if (!e->changed || !e->copies)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        for (int k = 0; wf_node_is(n, WF_FLAG_UPDATE) && k < n->nout; k++)
            /* Version 1 exists once per updated state: each is listed once. */
            if (n->out[k].state->op == WF_OP_state && n->out[k].version == 1)
                e->changed[e->changed_count++] = e->states[n->out[k].state->id];
        if (n->op != WF_OP_state_copy)
            continue;
        WF_TRY(wf_session_bind_copy(e->head.session, n, &e->states[i]));
        e->copies[e->copy_count++] =
            (wf_copy_use){e->states[i], stays_equal(g, n, e->states[i]->of, e->states)};
    }
    return WF_OK;
}

void wf_copies_release(wf_plan_exec *e)
{
    for (int i = 0; i < e->copy_count; i++)
        wf_session_release_copy(e->head.session, e->copies[i].copy);
}

wf_status wf_copies_begin(wf_plan_exec *e)
{
    for (int i = 0; i < e->copy_count; i++) {
        wf_stored_state *copy = e->copies[i].copy;
        if (copy->seen != copy->of->changes)
            WF_TRY(refresh(e->head.session, copy));
        copy->seen = copy->of->changes;
    }
    /* Before the run: a failed run may have changed them, too. */
    for (int i = 0; i < e->changed_count; i++)
        e->changed[i]->changes++;
    return WF_OK;
}

/* Not called after a failed run: the copies then count as outdated. */
void wf_copies_end(wf_plan_exec *e)
{
    for (int i = 0; i < e->copy_count; i++)
        if (e->copies[i].stays_equal)
            e->copies[i].copy->seen = e->copies[i].copy->of->changes;
}

/* SPDX-License-Identifier: MIT */
/* session.c - sessions, their states, and the public face of executables. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/device.h"

/* ---- States ---- */

wf_status wf_session_new(wf_device *device, wf_session **out)
{
    *out = NULL;
    wf_session *s = wf_mem_new(device->ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->ctx = device->ctx;
    s->device = device;
    wf_status status = device->ops->queue_new(device, &s->queue);
    if (status != WF_OK) {
        wf_mem_free(s->ctx, s);
        return status;
    }
    device->session_count++;
    *out = s;
    return WF_OK;
}

static void state_free(wf_session *s, wf_stored_state *state)
{
    if (!state)
        return;
    if (state->buffer)
        s->device->ops->buffer_free(state->buffer);
    wf_mem_free(s->ctx, state->name);
    wf_mem_free(s->ctx, state);
}

void wf_session_free(wf_session *s)
{
    if (!s)
        return;
    if (s->exec_count > 0) {
        wf_ctx_log(s->ctx, WF_LOG_ERROR, "a session stays alive: it has %d executables",
                   s->exec_count);
        return;
    }
    s->device->session_count--;
    for (int i = 0; i < s->state_count; i++)
        state_free(s, s->states[i]);
    s->device->ops->queue_free(s->queue);
    wf_mem_free(s->ctx, s->states);
    wf_mem_free(s->ctx, s);
}

static wf_stored_state *find_state(const wf_session *s, const char *name)
{
    for (int i = 0; i < s->state_count; i++)
        if (strcmp(s->states[i]->name, name) == 0)
            return s->states[i];
    return NULL;
}

static wf_status state_new(wf_session *s, const wf_node *node, wf_stored_state **out)
{
    const wf_value *v = &node->out[0];
    wf_stored_state *state = wf_mem_new(s->ctx, sizeof *state);
    if (!state)
        return WF_ERR_MEMORY;
    state->type = v->type;
    state->shape = v->shape;
    state->bytes = wf_type_bytes(v->type, wf_dims_count(&v->shape));
    state->name = wf_mem_new(s->ctx, strlen(node->name) + 1);
    wf_status status = state->name ? WF_OK : WF_ERR_MEMORY;
    if (status == WF_OK) {
        memcpy(state->name, node->name, strlen(node->name) + 1);
        status = s->device->ops->buffer_new(s->device, state->bytes, &state->buffer);
    }
    if (status != WF_OK) {
        state_free(s, state);
        return status;
    }
    *out = state;
    return WF_OK;
}

static wf_status check_state(wf_session *s, const wf_stored_state *state, const wf_value *v)
{
    if (state->type == v->type && wf_dims_equal(&state->shape, &v->shape))
        return WF_OK;
    char text[2][192];
    size_t len[2] = {0, 0};
    const wf_value have = {.type = state->type, .shape = state->shape};
    wf_value_print(&have, text[0], sizeof text[0], &len[0]);
    wf_value_print(v, text[1], sizeof text[1], &len[1]);
    return wf_fail(s->ctx, WF_ERR_USAGE, "state '%s' is %s in this session, but %s in the graph",
                   state->name, text[0], text[1]);
}

wf_status wf_session_bind(wf_session *s, const wf_node *node, wf_stored_state **out)
{
    const wf_value *v = &node->out[0];
    wf_stored_state *state = find_state(s, node->name);
    if (state) {
        *out = state;
        return check_state(s, state, v);
    }
    if (s->state_count == s->state_cap) {
        int cap = s->state_cap ? 2 * s->state_cap : 16;
        void *grown = wf_mem_grow(s->ctx, s->states, (size_t)cap * sizeof *s->states);
        if (!grown)
            return WF_ERR_MEMORY;
        s->states = grown;
        s->state_cap = cap;
    }
    WF_TRY(state_new(s, node, &state));
    s->states[s->state_count++] = state;
    *out = state;
    return WF_OK;
}

static wf_status get_state(wf_session *s, const char *name, size_t bytes, wf_stored_state **out)
{
    *out = find_state(s, name);
    if (!*out)
        return wf_fail(s->ctx, WF_ERR_USAGE, "the session has no state '%s'", name);
    if ((*out)->bytes != bytes)
        return wf_fail(s->ctx, WF_ERR_USAGE, "state '%s' has %zu bytes, not %zu", name,
                       (*out)->bytes, bytes);
    return WF_OK;
}

wf_status wf_session_write(wf_session *s, const char *name, const void *from, size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_state(s, name, bytes, &state));
    return s->device->ops->copy_in(s->queue, state->buffer, 0, from, bytes);
}

wf_status wf_session_read(wf_session *s, const char *name, void *to, size_t bytes)
{
    wf_stored_state *state;
    WF_TRY(get_state(s, name, bytes, &state));
    WF_TRY(s->device->ops->queue_wait(s->queue));
    return s->device->ops->copy_out(s->queue, to, state->buffer, 0, bytes);
}

/* ---- Executables ---- */

wf_status wf_compile(wf_session *s, wf_graph *graph, wf_exec **out)
{
    *out = NULL;
    if (graph->ctx != s->ctx)
        return wf_fail(s->ctx, WF_ERR_USAGE, "the graph was made from another context");
    int states = s->state_count;
    wf_status status = s->device->ops->compile(s, graph, out);
    if (status == WF_OK)
        s->exec_count++;
    else /* states that only this graph has would bind later ones to its types and shapes */
        while (s->state_count > states)
            state_free(s, s->states[--s->state_count]);
    return status;
}

void wf_exec_free(wf_exec *e)
{
    if (!e)
        return;
    e->session->exec_count--;
    e->ops->free(e);
}

static wf_status get_port(wf_exec *e, const char *what, wf_port *ports, int n, const char *name,
                          size_t bytes, wf_port **out)
{
    wf_ctx *ctx = e->session->ctx;
    for (int i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0) {
            if (ports[i].bytes != bytes)
                return wf_fail(ctx, WF_ERR_USAGE, "%s '%s' has %zu bytes, not %zu", what, name,
                               ports[i].bytes, bytes);
            *out = &ports[i];
            return WF_OK;
        }
    return wf_fail(ctx, WF_ERR_USAGE, "the executable has no %s '%s'", what, name);
}

wf_status wf_exec_write(wf_exec *e, const char *name, const void *from, size_t bytes)
{
    wf_port *port = NULL;
    WF_TRY(get_port(e, "input", e->inputs, e->input_count, name, bytes, &port));
    WF_TRY(e->ops->write(e, port, from));
    port->written = true;
    e->stats.bytes_in += bytes;
    return WF_OK;
}

wf_status wf_exec_read(wf_exec *e, const char *name, void *to, size_t bytes)
{
    wf_port *port = NULL;
    WF_TRY(get_port(e, "output", e->outputs, e->output_count, name, bytes, &port));
    if (e->last != WF_OK)
        return wf_fail(e->session->ctx, e->last, "output '%s' does not exist: the last run failed",
                       name);
    if (e->stats.runs == 0)
        return wf_fail(e->session->ctx, WF_ERR_USAGE, "output '%s' was read before the first run",
                       name);
    WF_TRY(e->ops->read(e, port, to));
    e->stats.bytes_out += bytes;
    return WF_OK;
}

static wf_status check_inputs(const wf_exec *e)
{
    for (int i = 0; i < e->input_count; i++)
        if (!e->inputs[i].written && e->inputs[i].bytes > 0)
            return wf_fail(e->session->ctx, WF_ERR_USAGE, "input '%s' was never written",
                           e->inputs[i].name);
    return WF_OK;
}

wf_status wf_exec_run(wf_exec *e)
{
    if (e->stats.runs == 0)
        WF_TRY(check_inputs(e));
    uint64_t begin = wf_clock_ns(), calls = e->session->ctx->mem.calls;
    e->last = e->ops->run(e);
    e->stats.nanoseconds += wf_clock_ns() - begin;
    e->stats.allocations += e->session->ctx->mem.calls - calls;
    if (e->last == WF_OK)
        e->stats.runs++;
    return e->last;
}

/* ---- What there is ---- */

static void fill_info(wf_info *out, const char *name, wf_type type, const wf_dims *shape,
                      size_t bytes)
{
    *out = (wf_info){.name = name, .type = type, .rank = (int)shape->n, .bytes = bytes};
    memcpy(out->dim, shape->d, sizeof out->dim);
}

static bool port_info(const wf_port *ports, int n, int index, wf_info *out)
{
    if (index < 0 || index >= n)
        return false;
    fill_info(out, ports[index].name, ports[index].type, &ports[index].shape, ports[index].bytes);
    return true;
}

bool wf_session_state(const wf_session *s, int index, wf_info *out)
{
    if (index < 0 || index >= s->state_count)
        return false;
    const wf_stored_state *state = s->states[index];
    fill_info(out, state->name, state->type, &state->shape, state->bytes);
    return true;
}

bool wf_exec_input(const wf_exec *e, int index, wf_info *out)
{
    return port_info(e->inputs, e->input_count, index, out);
}

bool wf_exec_output(const wf_exec *e, int index, wf_info *out)
{
    return port_info(e->outputs, e->output_count, index, out);
}

void wf_exec_memory(const wf_exec *e, wf_memory *out)
{
    *out = e->memory;
    for (int i = 0; i < e->session->state_count; i++) /* also those that came with later graphs */
        out->states += e->session->states[i]->bytes;
}

void wf_exec_stats(const wf_exec *e, wf_run_stats *out)
{
    *out = e->stats;
}

bool wf_exec_op_stats(const wf_exec *e, int index, wf_op_stats *out)
{
    return e->ops->op_stats(e, index, out);
}

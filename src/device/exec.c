/* SPDX-License-Identifier: MIT */
/*
 * exec.c - executables: the public functions, and the executor that all kernel devices share.
 *
 * The shared executor owns a plan and the memory for its inputs and outputs (ports), unless the
 * session shares that memory among its executables. It resolves every address at compile time, so a
 * run is a loop over launches that allocates nothing and looks nothing up; wf_run_stats.allocations
 * proves it. Addresses change only when another executable grows memory of the session: the next
 * run then binds them again.
 *
 * A run is asynchronous on devices with runs_ahead. Its failure then shows up in the next call that
 * waits, usually wf_exec_read.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/executor.h"

/* ---- The public functions ---- */

void wf_exec_free(wf_exec *e)
{
    if (!e)
        return;
    e->session->exec_count--;
    for (int i = 0; i < e->output_count; i++)
        wf_mem_free(e->session->ctx, e->outputs[i].copy);
    e->ops->free(e);
}

/* Finds the port `name`. `what` is "input" or "output", for the message. */
static wf_status get_port(wf_exec *e, const char *what, wf_port *ports, int n, const char *name,
                          wf_port **out)
{
    for (int i = 0; i < n; i++)
        if (strcmp(ports[i].name, name) == 0) {
            *out = &ports[i];
            return WF_OK;
        }
    return wf_fail(e->session->ctx, WF_ERR_USAGE, "the executable has no %s '%s'", what, name);
}

static wf_status check_size(const wf_exec *e, const char *what, const wf_port *port, size_t bytes)
{
    if (port->bytes == bytes)
        return WF_OK;
    return wf_fail(e->session->ctx, WF_ERR_USAGE, "%s '%s' has %zu bytes, not %zu", what,
                   port->name, port->bytes, bytes);
}

/* Returns whether the inputs written so far are intact. */
static bool has_ports(const wf_exec *e)
{
    return !e->shares_ports || e->took_turn == e->session->ports_turn;
}

/* Makes e the user of the port memory. Ends the contents of the last user's ports, and of e's. */
static void take_ports(wf_exec *e)
{
    if (has_ports(e))
        return;
    e->took_turn = ++e->session->ports_turn;
    for (int i = 0; i < e->input_count; i++)
        e->inputs[i].written = false;
}

/* The input keeps its contents until it is written again, over any number of runs; in shared
 * memory, until another executable takes it. */
wf_status wf_exec_write(wf_exec *e, const char *name, const void *from, size_t bytes)
{
    wf_port *port = NULL;
    WF_TRY(get_port(e, "input", e->inputs, e->input_count, name, &port));
    WF_TRY(check_size(e, "input", port, bytes));
    take_ports(e);
    WF_TRY(e->ops->write(e, port, from));
    port->written = true;
    e->stats.bytes_in += bytes;
    return WF_OK;
}

/* Fails if the results of the last run are not in the outputs. */
static wf_status check_outputs(const wf_exec *e, const char *name)
{
    if (e->last != WF_OK)
        return wf_fail(e->session->ctx, e->last,
                       "output '%s' is not available: the last run failed", name);
    if (e->stats.runs == 0)
        return wf_fail(e->session->ctx, WF_ERR_USAGE, "output '%s' was read before the first run",
                       name);
    if (e->shares_ports && e->ran_turn != e->session->ports_turn)
        return wf_fail(e->session->ctx, WF_ERR_USAGE,
                       "output '%s' was overwritten: another executable of the session used the "
                       "shared memory of inputs and outputs; read outputs before that",
                       name);
    return WF_OK;
}

wf_status wf_exec_read(wf_exec *e, const char *name, void *to, size_t bytes)
{
    wf_port *port = NULL;
    WF_TRY(get_port(e, "output", e->outputs, e->output_count, name, &port));
    WF_TRY(check_size(e, "output", port, bytes));
    WF_TRY(check_outputs(e, name));
    /* An asynchronous run may fail only now. Store the status, so that later reads fail, too. */
    e->last = e->ops->read(e, port, to);
    if (e->last != WF_OK)
        return e->last;
    e->stats.bytes_out += bytes;
    return WF_OK;
}

/* Copies the whole output to the host, unless that was done since the last run: several ranges of
 * one output are the common case. A copy that cannot be allocated leaves the output readable. */
static wf_status copy_output(wf_exec *e, wf_port *port)
{
    if (!port->copy)
        port->copy = wf_mem_new(e->session->ctx, port->bytes);
    if (!port->copy)
        return WF_ERR_MEMORY;
    if (port->copy_run == e->stats.runs)
        return WF_OK;
    WF_TRY(e->last = e->ops->read(e, port, port->copy));
    port->copy_run = e->stats.runs;
    e->stats.bytes_out += port->bytes;
    return WF_OK;
}

wf_status wf_exec_read_at(wf_exec *e, const char *name, size_t offset, void *to, size_t bytes)
{
    wf_port *port = NULL;
    WF_TRY(get_port(e, "output", e->outputs, e->output_count, name, &port));
    WF_TRY(wf_range_check(e->session->ctx, "output", name, port->bytes, offset, bytes));
    WF_TRY(check_outputs(e, name));
    if (bytes == 0)
        return WF_OK;
    if (!e->ops->read_at) {
        WF_TRY(copy_output(e, port));
        memcpy(to, (const char *)port->copy + offset, bytes);
        return WF_OK;
    }
    WF_TRY(e->last = e->ops->read_at(e, port, offset, to, bytes));
    e->stats.bytes_out += bytes;
    return WF_OK;
}

/* Returns an input that must be written before a run, or NULL. */
static const wf_port *missing_input(const wf_exec *e)
{
    bool intact = has_ports(e);
    for (int i = 0; i < e->input_count; i++) {
        const wf_port *in = &e->inputs[i];
        if (in->needed && in->bytes > 0 && !(in->written && intact))
            return in;
    }
    return NULL;
}

/* In memory of its own, an input never becomes unwritten again: a later run needs no check. */
static wf_status check_inputs(const wf_exec *e)
{
    const wf_port *in = e->shares_ports || e->stats.runs == 0 ? missing_input(e) : NULL;
    if (!in)
        return WF_OK;
    if (!e->shares_ports)
        return wf_fail(e->session->ctx, WF_ERR_USAGE, "input '%s' was never written", in->name);
    return wf_fail(e->session->ctx, WF_ERR_USAGE,
                   "input '%s' was not written since another executable of the session used the "
                   "shared memory of inputs and outputs; write every input again",
                   in->name);
}

wf_status wf_exec_run(wf_exec *e)
{
    WF_TRY(check_inputs(e));
    take_ports(e);
    uint64_t begin = wf_clock_ns(), calls = e->session->ctx->mem.calls;
    /* Packing deferred weights is a one-time cost: leave it out of the run time. */
    uint64_t packing = e->session->packing_ns;
    e->last = e->ops->run(e);
    if (e->last == WF_OK)
        e->last = wf_session_check_files(e->session);
    e->stats.nanoseconds += wf_clock_ns() - begin - (e->session->packing_ns - packing);
    /* mem.calls counts every allocation from the context; the tests assert a difference of 0. */
    e->stats.allocations += e->session->ctx->mem.calls - calls;
    e->ran_turn = e->took_turn;
    if (e->last == WF_OK)
        e->stats.runs++;
    return e->last;
}

static bool port_info(const wf_port *ports, int n, int index, wf_info *out)
{
    if (index < 0 || index >= n)
        return false;
    wf_info_fill(out, ports[index].name, ports[index].type, &ports[index].shape,
                 ports[index].bytes);
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

/* Sizes are those of the session's storage, not of the plan: `states` and `mapped` cover all states
 * of the session, `region` and shared `ports` what it holds now. */
void wf_exec_memory(const wf_exec *e, wf_memory *out)
{
    const wf_session *s = e->session;
    *out = e->memory;
    out->states = out->mapped = 0;
    for (int i = 0; i < s->state_count; i++) {
        bool mapped = s->states[i]->storage == WF_STATE_MAPPED;
        *(mapped ? &out->mapped : &out->states) += s->states[i]->buffer->bytes;
        for (const wf_stored_state *c = s->states[i]->copies; c; c = c->next)
            out->states += c->buffer->bytes;
    }
    out->region = s->region ? s->region->bytes : 0;
    if (e->shares_ports)
        out->ports = s->ports ? s->ports->bytes : 0;
}

void wf_exec_stats(const wf_exec *e, wf_run_stats *out)
{
    *out = e->stats;
}

bool wf_exec_op_stats(const wf_exec *e, int index, wf_op_stats *out)
{
    return e->ops->op_stats(e, index, out);
}

/* ---- The shared executor: binding places to addresses ---- */

wf_buffer *wf_plan_exec_ports(const wf_plan_exec *e)
{
    return e->head.shares_ports ? e->head.session->ports : e->ports;
}

/* Sets every field that stays valid when memory of the session moves. */
static void describe_view(const wf_plan_exec *e, const wf_value *v, wf_view *out)
{
    const wf_place *place = &e->plan->places[v->node->id][v->index];
    *out = (wf_view){.type = v->type, .rank = (int)v->shape.n, .dense = place->dense};
    memcpy(out->dim, v->shape.d, sizeof out->dim);
    memcpy(out->stride, place->stride, sizeof out->stride);
}

/* Sets the address of a view; NULL if the value has no storage. */
static void bind_view(wf_plan_exec *e, const wf_value *v, wf_view *view)
{
    const wf_session *session = e->head.session;
    const wf_place *place = &e->plan->places[v->node->id][v->index];
    char *base = NULL;
    if (place->kind == WF_PLACE_REGION) {
        base =
            (char *)session->region->base + wf_plan_offset(e->plan, session->device, place->block);
    } else if (place->kind == WF_PLACE_PORT) {
        base = (char *)wf_plan_exec_ports(e)->base + place->offset;
    } else if (place->kind == WF_PLACE_STATE) {
        const wf_stored_state *state = e->states[place->state->id];
        base = state->buffer->base;
        view->packed = state->storage == WF_STATE_PACKED;
    }
    view->data = base ? base + wf_type_bytes(v->type, place->first) : NULL;
}

/* Resolves all addresses: operands, outputs and workspaces. Called once at compile time, and again
 * after the region or shared ports have moved. States never move. */
static void bind_addresses(wf_plan_exec *e)
{
    const wf_session *session = e->head.session;
    for (int i = 0; i < e->plan->step_count; i++) {
        const wf_step *step = &e->plan->steps[i];
        const wf_node *n = step->node;
        wf_bound_step *to = &e->steps[i];
        for (int k = 0; k < n->nin; k++)
            bind_view(e, n->in[k], &to->views[k]);
        for (int k = 0; k < n->nout; k++)
            bind_view(e, &n->out[k], &to->views[n->nin + k]);
        if (step->workspace >= 0)
            to->launch.workspace = (char *)session->region->base +
                                   wf_plan_offset(e->plan, session->device, step->workspace);
    }
    e->generation = session->generation;
}

/* Returns the index of the statistics for this op and kernel, adding them if they are new. */
static int stats_line(wf_plan_exec *e, const wf_kernel *kernel)
{
    const char *op = wf_op_get(kernel->op)->name;
    /* Names are literals of the tables, so pointers are compared. */
    for (int i = 0; i < e->stats_count; i++)
        if (e->stats[i].op == op && e->stats[i].kernel == kernel->name)
            return i;
    /* `stats` has room for one line per step (build), and a step adds at most one. */
    e->stats[e->stats_count] = (wf_op_stats){.op = op, .kernel = kernel->name};
    return e->stats_count++;
}

/* Fills in everything of a launch except addresses, which bind_addresses sets. */
static wf_status prepare_step(wf_plan_exec *e, const wf_step *step, wf_bound_step *out)
{
    const wf_node *n = step->node;
    wf_device *device = e->head.session->device;
    wf_view *views = wf_arena_alloc(&e->arena, (size_t)(n->nin + n->nout) * sizeof *views);
    if (!views)
        return WF_ERR_MEMORY;
    for (int i = 0; i < n->nin; i++)
        describe_view(e, n->in[i], &views[i]);
    for (int i = 0; i < n->nout; i++)
        describe_view(e, &n->out[i], &views[n->nin + i]);
    out->views = views;
    out->launch = (wf_launch){.ctx = device->ctx,
                              .queue = e->head.session->queue,
                              .node = n,
                              .attr = n->attr,
                              .in = views,
                              .out = views + n->nin,
                              .nin = n->nin,
                              .nout = n->nout,
                              .threads = device->threads};
    out->kernel = step->kernel;
    out->stats = stats_line(e, step->kernel);
    /* Copies that only move data: an explicit copy, or a view that could not share storage. */
    if (n->op == WF_OP_copy || wf_node_is(n, WF_FLAG_VIEW))
        out->copy_bytes = wf_value_bytes(&n->out[0]);
    return WF_OK;
}

static wf_status add_port(wf_plan_exec *e, const char *name, const wf_value *v, wf_port *out)
{
    const wf_place *place = &e->plan->places[v->node->id][v->index];
    *out = (wf_port){.name = wf_arena_strdup(&e->arena, name),
                     .type = v->type,
                     .shape = v->shape,
                     .bytes = wf_value_bytes(v)};
    /* An input that no node reads has no storage: writes are checked and discarded, and it may stay
     * unwritten. */
    out->where = place->kind == WF_PLACE_PORT ? place->offset : SIZE_MAX;
    out->needed = place->kind == WF_PLACE_PORT;
    return out->name ? WF_OK : WF_ERR_MEMORY;
}

static wf_status add_ports(wf_plan_exec *e)
{
    const wf_graph *g = e->plan->graph;
    wf_exec *head = &e->head;
    head->inputs = wf_arena_alloc(&e->arena, (size_t)(g->node_count + 1) * sizeof *head->inputs);
    head->outputs =
        wf_arena_alloc(&e->arena, (size_t)(g->output_count + 1) * sizeof *head->outputs);
    if (!head->inputs || !head->outputs)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_input)
            WF_TRY(add_port(e, g->nodes[i]->name, &g->nodes[i]->out[0],
                            &head->inputs[head->input_count++]));
    for (int i = 0; i < g->output_count; i++)
        WF_TRY(add_port(e, g->outputs[i].name, g->outputs[i].value,
                        &head->outputs[head->output_count++]));
    return WF_OK;
}

/* ---- The shared executor: running ---- */

/* Also frees an executable whose build failed half-way: members that were not reached are NULL. */
static void exec_free(wf_exec *exec)
{
    wf_plan_exec *e = (wf_plan_exec *)exec;
    wf_ctx *ctx = exec->session->ctx;
    const wf_device_ops *ops = exec->session->device->ops;
    if (ops->free_plan)
        ops->free_plan(e);
    wf_copies_release(e);
    if (e->done)
        ops->event_free(e->done);
    wf_buffer_free(e->ports);
    wf_plan_free(e->plan);
    wf_arena_free(&e->arena);
    wf_mem_free(ctx, e);
}

/* Fails while memory that the executables share is missing: only after wf_session_reserve or
 * wf_session_reserve_ports failed twice, see there. */
static wf_status check_memory(const wf_plan_exec *e)
{
    if (e->head.session->region && wf_plan_exec_ports(e))
        return WF_OK;
    return wf_fail(e->head.session->ctx, WF_ERR_MEMORY,
                   "the session's %s memory could not be allocated again; free other memory and "
                   "compile again",
                   e->head.session->region ? "input and output" : "activation");
}

/* The port memory may still be read by an asynchronous run; copy_in is ordered after it by the
 * queue. */
static wf_status exec_write(wf_exec *exec, const wf_port *input, const void *from)
{
    const wf_plan_exec *e = (const wf_plan_exec *)exec;
    if (input->where == SIZE_MAX)
        return WF_OK;
    if (exec->shares_ports)
        WF_TRY(check_memory(e));
    return exec->session->device->ops->copy_in(exec->session->queue, wf_plan_exec_ports(e),
                                               input->where, from, input->bytes);
}

/* Waits for the run itself, not for later work in the queue. */
static wf_status exec_read_at(wf_exec *exec, const wf_port *output, size_t offset, void *to,
                              size_t bytes)
{
    wf_plan_exec *e = (wf_plan_exec *)exec;
    const wf_device_ops *ops = exec->session->device->ops;
    WF_TRY(ops->event_wait(e->done));
    return ops->copy_out(exec->session->queue, to, wf_plan_exec_ports(e), output->where + offset,
                         bytes);
}

static wf_status exec_read(wf_exec *exec, const wf_port *output, void *to)
{
    return exec_read_at(exec, output, 0, to, output->bytes);
}

/* Time is measured on the host: on an asynchronous device it is the time to enqueue, which run_plan
 * replaces by its own measurement. */
wf_status wf_plan_exec_step(wf_plan_exec *e, int i)
{
    const wf_bound_step *step = &e->steps[i];
    uint64_t before = wf_clock_ns();
    WF_TRY(step->kernel->launch(&step->launch));
    e->spans[i] = (wf_span){before - e->began, wf_clock_ns() - before};
    e->stats[step->stats].launches++;
    e->stats[step->stats].nanoseconds += e->spans[i].ns;
    e->head.stats.bytes_copied += step->copy_bytes;
    return WF_OK;
}

/* Packs the deferred operands of n just before it runs: it then reads them from the cache. */
static wf_status settle_operands(wf_plan_exec *e, const wf_node *n)
{
    for (int i = 0; i < n->nin; i++) {
        const wf_place *place = &e->plan->places[n->in[i]->node->id][n->in[i]->index];
        if (place->kind == WF_PLACE_STATE)
            WF_TRY(wf_session_settle(e->head.session, e->states[place->state->id]));
    }
    return WF_OK;
}

static wf_status run_in_order(wf_plan_exec *e)
{
    for (int i = 0; i < e->plan->step_count; i++) {
        if (e->head.session->waiting > 0)
            WF_TRY(settle_operands(e, e->plan->steps[i].node));
        WF_TRY(wf_plan_exec_step(e, i));
    }
    return WF_OK;
}

/* Runs with the device's run_plan, which expects all states to be packed before the run. */
static wf_status run_on_device(wf_plan_exec *e)
{
    WF_TRY(wf_session_settle(e->head.session, NULL));
    return e->head.session->device->ops->run_plan(e);
}

/* wf_exec_run has checked the inputs. Order matters: copies are refreshed before the first step,
 * and recorded as equal only after the last one succeeded. */
static wf_status exec_run(wf_exec *exec)
{
    wf_plan_exec *e = (wf_plan_exec *)exec;
    wf_session *session = exec->session;
    wf_device *device = session->device;
    WF_TRY(check_memory(e));
    if (e->generation != session->generation)
        bind_addresses(e);
    WF_TRY(wf_copies_begin(e));
    e->began = wf_clock_ns();
    WF_TRY(device->ops->run_plan ? run_on_device(e) : run_in_order(e));
    wf_copies_end(e);
    return device->ops->event_record(session->queue, e->done);
}

static bool exec_op_stats(const wf_exec *exec, int index, wf_op_stats *out)
{
    const wf_plan_exec *e = (const wf_plan_exec *)exec;
    if (index < 0 || index >= e->stats_count)
        return false;
    *out = e->stats[index];
    return true;
}

static const wf_exec_ops plan_exec_ops = {
    .write = exec_write,
    .run = exec_run,
    .read = exec_read,
    .read_at = exec_read_at,
    .op_stats = exec_op_stats,
    .free = exec_free,
};

/* Allocates memory for inputs and outputs, in the executable or in the session. */
static wf_status allocate_ports(wf_plan_exec *e)
{
    wf_session *session = e->head.session;
    size_t bytes = e->plan->memory.ports;
    e->head.shares_ports = session->share_ports;
    return session->share_ports ? wf_session_reserve_ports(session, bytes)
                                : wf_buffer_new(session->device, bytes, &e->ports);
}

/* Everything below fails cleanly: wf_plan_compile frees what was reached. Memory of the session is
 * reserved last, because growing it invalidates the addresses of the session's other executables.
 * If a later step fails, it stays as large. */
static wf_status build(wf_plan_exec *e, wf_graph *graph, const wf_compile_options *options)
{
    wf_session *session = e->head.session;
    wf_device *device = session->device;
    WF_TRY(wf_plan_new(device, graph, options, session, NULL, &e->plan));
    const wf_plan *plan = e->plan;
    size_t steps = (size_t)plan->step_count + 1, nodes = (size_t)plan->graph->node_count;
    e->head.memory = plan->memory;
    e->steps = wf_arena_alloc(&e->arena, steps * sizeof *e->steps);
    e->stats = wf_arena_alloc(&e->arena, steps * sizeof *e->stats);
    e->spans = wf_arena_alloc(&e->arena, steps * sizeof *e->spans);
    e->states = wf_arena_alloc(&e->arena, (nodes + 1) * sizeof *e->states);
    if (!e->steps || !e->stats || !e->spans || !e->states)
        return WF_ERR_MEMORY;
    for (int i = 0; i < plan->step_count; i++)
        WF_TRY(prepare_step(e, &plan->steps[i], &e->steps[i]));
    WF_TRY(add_ports(e));
    /* The session gets every state of the graph, including unread ones. */
    for (size_t i = 0; i < nodes; i++)
        if (plan->graph->nodes[i]->op == WF_OP_state)
            WF_TRY(wf_session_bind(session, plan->graph->nodes[i], &e->states[i]));
    WF_TRY(wf_copies_prepare(e));
    WF_TRY(device->ops->event_new(device, &e->done));
    /* These may move shared memory, so addresses are bound afterwards. */
    WF_TRY(allocate_ports(e));
    WF_TRY(wf_session_reserve(session, plan->memory.activations));
    bind_addresses(e);
    return device->ops->prepare_plan ? device->ops->prepare_plan(e) : WF_OK;
}

wf_status wf_plan_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out)
{
    *out = NULL;
    wf_plan_exec *e = wf_mem_new(session->ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->head.ops = &plan_exec_ops;
    e->head.session = session;
    wf_arena_init(&e->arena, session->ctx);
    wf_status status = build(e, graph, options);
    if (status == WF_OK)
        *out = &e->head;
    else
        exec_free(&e->head);
    return status;
}

/* Runs the planner alone; the device allocates nothing. */
wf_status wf_plan_sizes(wf_device *device, const wf_session *session, wf_graph *graph,
                        const wf_compile_options *options, wf_memory *out)
{
    wf_plan *plan;
    WF_TRY(wf_plan_new(device, graph, options, session, NULL, &plan));
    *out = plan->memory;
    out->region = plan->memory.activations;
    if (session && session->share_ports)
        out->ports = wf_session_ports_bytes(session, plan->memory.ports);
    wf_plan_free(plan);
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * exec.c - the executor that all kernel devices share: a plan, memory for it, and launches with
 * every address resolved beforehand. A run allocates nothing.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/plan.h"

typedef struct {
    wf_launch launch;
    const wf_kernel *kernel;
    int stats;           /* which line of the statistics */
    uint64_t copy_bytes; /* that it moves without computing */
} bound_step;

typedef struct {
    wf_exec head;
    wf_plan *plan;
    wf_buffer *region;
    wf_event *done; /* recorded after each run */
    bound_step *steps;
    wf_op_stats *stats;
    int stats_count;
    wf_arena arena; /* steps, views, ports, statistics */
} plan_exec;

/* ---- Binding places to addresses ---- */

static wf_status bind_view(plan_exec *e, const wf_value *v, wf_view *out)
{
    const wf_place *place = &e->plan->places[v->node->id][v->index];
    *out = (wf_view){.type = v->type, .rank = (int)v->shape.n, .dense = place->dense};
    memcpy(out->dim, v->shape.d, sizeof out->dim);
    memcpy(out->stride, place->stride, sizeof out->stride);
    char *base = NULL;
    if (place->kind == WF_PLACE_REGION) {
        base = (char *)e->region->base + e->plan->blocks[place->block].offset;
    } else if (place->kind == WF_PLACE_STATE) {
        wf_stored_state *state;
        WF_TRY(wf_session_bind(e->head.session, place->state, &state));
        base = state->buffer->base;
    }
    if (base)
        out->data = base + wf_type_bytes(v->type, place->first);
    return WF_OK;
}

static int stats_line(plan_exec *e, const wf_kernel *kernel)
{
    const char *op = wf_op_get(kernel->op)->name;
    for (int i = 0; i < e->stats_count; i++)
        if (e->stats[i].op == op && e->stats[i].kernel == kernel->name)
            return i;
    e->stats[e->stats_count] = (wf_op_stats){.op = op, .kernel = kernel->name};
    return e->stats_count++;
}

static wf_status bind_step(plan_exec *e, const wf_step *step, bound_step *out)
{
    const wf_node *n = step->node;
    wf_device *device = e->head.session->device;
    wf_view *views = wf_arena_alloc(&e->arena, (size_t)(n->nin + n->nout) * sizeof *views);
    if (!views)
        return WF_ERR_MEMORY;
    for (int i = 0; i < n->nin; i++)
        WF_TRY(bind_view(e, n->in[i], &views[i]));
    for (int i = 0; i < n->nout; i++)
        WF_TRY(bind_view(e, &n->out[i], &views[n->nin + i]));
    char *workspace = NULL;
    if (step->workspace >= 0)
        workspace = (char *)e->region->base + e->plan->blocks[step->workspace].offset;
    out->launch = (wf_launch){.ctx = device->ctx,
                              .queue = e->head.session->queue,
                              .node = n,
                              .attr = n->attr,
                              .in = views,
                              .out = views + n->nin,
                              .nin = n->nin,
                              .nout = n->nout,
                              .workspace = workspace,
                              .threads = device->threads};
    out->kernel = step->kernel;
    out->stats = stats_line(e, step->kernel);
    if (n->op == WF_OP_copy || wf_node_is(n, WF_FLAG_VIEW))
        out->copy_bytes = wf_type_bytes(n->out[0].type, wf_dims_count(&n->out[0].shape));
    return WF_OK;
}

static wf_status bind_port(plan_exec *e, const char *name, const wf_value *v, wf_port *out)
{
    const wf_place *place = &e->plan->places[v->node->id][v->index];
    *out = (wf_port){.name = wf_arena_strdup(&e->arena, name),
                     .type = v->type,
                     .shape = v->shape,
                     .bytes = wf_type_bytes(v->type, wf_dims_count(&v->shape))};
    /* An input that nobody reads has no place: writes to it are checked and dropped, */
    out->where = place->kind == WF_PLACE_REGION ? e->plan->blocks[place->block].offset : SIZE_MAX;
    out->written = place->kind != WF_PLACE_REGION; /* and it may stay unwritten */
    return out->name ? WF_OK : WF_ERR_MEMORY;
}

static wf_status bind_ports(plan_exec *e)
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
            WF_TRY(bind_port(e, g->nodes[i]->name, &g->nodes[i]->out[0],
                             &head->inputs[head->input_count++]));
    for (int i = 0; i < g->output_count; i++)
        WF_TRY(bind_port(e, g->outputs[i].name, g->outputs[i].value,
                         &head->outputs[head->output_count++]));
    return WF_OK;
}

/* ---- Life ---- */

static void exec_free(wf_exec *exec)
{
    plan_exec *e = (plan_exec *)exec;
    const wf_device_ops *ops = exec->session->device->ops;
    wf_ctx *ctx = exec->session->ctx;
    if (e->done)
        ops->event_free(e->done);
    if (e->region)
        ops->buffer_free(e->region);
    wf_plan_free(e->plan);
    wf_arena_free(&e->arena);
    wf_mem_free(ctx, e);
}

static wf_status exec_write(wf_exec *exec, const wf_port *input, const void *from)
{
    if (input->where == SIZE_MAX)
        return WF_OK;
    return exec->session->device->ops->copy_in(exec->session->queue, ((plan_exec *)exec)->region,
                                               input->where, from, input->bytes);
}

static wf_status exec_read(wf_exec *exec, const wf_port *output, void *to)
{
    plan_exec *e = (plan_exec *)exec;
    const wf_device_ops *ops = exec->session->device->ops;
    WF_TRY(ops->event_wait(e->done));
    return ops->copy_out(exec->session->queue, to, e->region, output->where, output->bytes);
}

static wf_status exec_run(wf_exec *exec)
{
    plan_exec *e = (plan_exec *)exec;
    uint64_t before = wf_clock_ns();
    for (int i = 0; i < e->plan->step_count; i++) {
        const bound_step *step = &e->steps[i];
        WF_TRY(step->kernel->launch(&step->launch));
        uint64_t now = wf_clock_ns();
        e->stats[step->stats].launches++;
        e->stats[step->stats].nanoseconds += now - before;
        exec->stats.bytes_copied += step->copy_bytes;
        before = now;
    }
    return exec->session->device->ops->event_record(exec->session->queue, e->done);
}

static bool exec_op_stats(const wf_exec *exec, int index, wf_op_stats *out)
{
    const plan_exec *e = (const plan_exec *)exec;
    if (index < 0 || index >= e->stats_count)
        return false;
    *out = e->stats[index];
    return true;
}

static const wf_exec_ops plan_exec_ops = {
    .size = sizeof plan_exec_ops,
    .write = exec_write,
    .run = exec_run,
    .read = exec_read,
    .op_stats = exec_op_stats,
    .free = exec_free,
};

static wf_status build(plan_exec *e, wf_graph *graph)
{
    wf_session *session = e->head.session;
    wf_device *device = session->device;
    WF_TRY(wf_plan_new(device, graph, &e->plan));
    const wf_plan *plan = e->plan;
    size_t steps = (size_t)plan->step_count + 1;
    e->steps = wf_arena_alloc(&e->arena, steps * sizeof *e->steps);
    e->stats = wf_arena_alloc(&e->arena, steps * sizeof *e->stats);
    if (!e->steps || !e->stats)
        return WF_ERR_MEMORY;
    /* Every state of the graph exists in the session afterwards, also those that no node reads. */
    for (int i = 0; i < plan->graph->node_count; i++) {
        wf_stored_state *state;
        if (plan->graph->nodes[i]->op == WF_OP_state)
            WF_TRY(wf_session_bind(session, plan->graph->nodes[i], &state));
    }
    WF_TRY(device->ops->buffer_new(device, plan->region_bytes, &e->region));
    WF_TRY(device->ops->event_new(device, &e->done));
    WF_TRY(bind_ports(e));
    for (int i = 0; i < plan->step_count; i++)
        WF_TRY(bind_step(e, &plan->steps[i], &e->steps[i]));
    e->head.memory = (wf_memory){.activations = plan->region_bytes,
                                 .workspace = plan->workspace_bytes,
                                 .lower_bound = plan->lower_bound};
    return WF_OK;
}

wf_status wf_plan_compile(wf_session *session, wf_graph *graph, wf_exec **out)
{
    *out = NULL;
    plan_exec *e = wf_mem_new(session->ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->head.ops = &plan_exec_ops;
    e->head.session = session;
    wf_arena_init(&e->arena, session->ctx);
    wf_status status = build(e, graph);
    if (status == WF_OK)
        *out = &e->head;
    else
        exec_free(&e->head);
    return status;
}

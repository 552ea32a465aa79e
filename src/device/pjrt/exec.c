/* SPDX-License-Identifier: MIT */
/*
 * exec.c - executables of the pjrt device.
 *
 * A run passes array handles to the program and receives new ones. A state that the program updates
 * gets a new handle; its old array is donated, so that the plugin can reuse the memory. Inputs and
 * outputs have their own arrays. The device's account counts them while the executable lives, and
 * the program's temporary memory during a run.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/expand.h"
#include "device/pjrt/pjrt.h"
#include "graph/lower/stablehlo.h"

/* An executable: a program and the buffers of its arguments and results. */
typedef struct {
    wf_exec head;
    wf_pjrt_program *program;
    wf_arena arena;      /* ports and the arrays below */
    wf_pjrt_buffer *own; /* one per input and output; `where` of a port is its index here */
    int own_count;
    /* In `own`, or buffers of states; [arg_count], [result_count]. */
    wf_pjrt_buffer **args, **results;
    /* Scratch for one run: the handles in the order of the program. */
    void **arg_handles, **result_handles;
    int arg_count, result_count;
    wf_op_stats stats;
} pjrt_exec;

static wf_pjrt_device *device_of(const wf_exec *exec)
{
    return (wf_pjrt_device *)exec->session->device;
}

/* ---- Binding ---- */

/* Adds a port and its buffer. */
static wf_status bind_port(pjrt_exec *e, const char *name, const wf_value *v, wf_port *out)
{
    *out = (wf_port){.name = wf_arena_strdup(&e->arena, name),
                     .type = v->type,
                     .shape = v->shape,
                     .bytes = wf_type_bytes(v->type, wf_dims_count(&v->shape)),
                     .where = (size_t)e->own_count}; /* bind_edge sets `needed` */
    wf_pjrt_buffer *b = &e->own[e->own_count++];
    /* Embedded in `own`, so wf_buffer_free is never called for it; exec_free drops its array. */
    b->head = (wf_buffer){.device = e->head.session->device};
    b->head.bytes = wf_device_value_bytes(b->head.device, v->type, &v->shape);
    b->type = v->type;
    b->shape = v->shape;
    e->head.memory.ports += b->head.bytes;
    wf_device_take(b->head.device, b->head.bytes);
    return out->name ? WF_OK : WF_ERR_MEMORY;
}

static wf_status bind_ports(pjrt_exec *e, const wf_graph *g)
{
    wf_exec *head = &e->head;
    size_t inputs = 0, outputs = (size_t)g->output_count;
    for (int i = 0; i < g->node_count; i++)
        inputs += g->nodes[i]->op == WF_OP_input;
    head->inputs = wf_arena_alloc(&e->arena, (inputs + 1) * sizeof *head->inputs);
    head->outputs = wf_arena_alloc(&e->arena, (outputs + 1) * sizeof *head->outputs);
    e->own = wf_arena_alloc(&e->arena, (inputs + outputs + 1) * sizeof *e->own);
    if (!head->inputs || !head->outputs || !e->own)
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

/* Adds every state of the graph to the session, including unread ones. */
static wf_status bind_states(pjrt_exec *e, const wf_graph *g)
{
    for (int i = 0; i < g->node_count; i++) {
        wf_stored_state *state;
        if (g->nodes[i]->op != WF_OP_state)
            continue;
        WF_TRY(wf_session_bind(e->head.session, g->nodes[i], &state));
    }
    return WF_OK;
}

/* Returns the buffer of a program argument or result: a state, an output (no source) or an
 * input. */
static wf_status bind_edge(pjrt_exec *e, const wf_hlo_port *edge, wf_pjrt_buffer **out)
{
    if (edge->source && edge->source->op == WF_OP_state) {
        wf_stored_state *state;
        WF_TRY(wf_session_bind(e->head.session, edge->source, &state));
        *out = (wf_pjrt_buffer *)state->buffer;
        return WF_OK;
    }
    if (!edge->source) {
        *out = &e->own[e->head.outputs[edge->output].where];
        return WF_OK;
    }
    for (int i = 0; i < e->head.input_count; i++)
        if (strcmp(e->head.inputs[i].name, edge->source->name) == 0) {
            e->head.inputs[i].needed = true; /* the program reads it */
            *out = &e->own[e->head.inputs[i].where];
            return WF_OK;
        }
    return wf_fail(e->head.session->ctx, WF_ERR_INTERNAL, "pjrt: input '%s' has no port",
                   edge->source->name);
}

static wf_status bind_edges(pjrt_exec *e, const wf_hlo_program *p)
{
    size_t args = (size_t)p->arg_count + 1, results = (size_t)p->result_count + 1;
    e->args = wf_arena_alloc(&e->arena, args * sizeof(void *));
    e->arg_handles = wf_arena_alloc(&e->arena, args * sizeof(void *));
    e->results = wf_arena_alloc(&e->arena, results * sizeof(void *));
    e->result_handles = wf_arena_alloc(&e->arena, results * sizeof(void *));
    if (!e->args || !e->arg_handles || !e->results || !e->result_handles)
        return WF_ERR_MEMORY;
    /* Counts up as it goes, so that a failure leaves a consistent executable. */
    for (; e->arg_count < p->arg_count; e->arg_count++)
        WF_TRY(bind_edge(e, &p->args[e->arg_count], &e->args[e->arg_count]));
    for (; e->result_count < p->result_count; e->result_count++)
        WF_TRY(bind_edge(e, &p->results[e->result_count], &e->results[e->result_count]));
    return WF_OK;
}

/* ---- Running ---- */

/* Ports are in the device's account: give their bytes back. */
static void exec_free(wf_exec *exec)
{
    pjrt_exec *e = (pjrt_exec *)exec;
    wf_pjrt_device *d = device_of(exec);
    for (int i = 0; i < e->own_count; i++)
        wf_pjrt_buffer_replace(&e->own[i], NULL);
    wf_device_give_back(&d->head, e->head.memory.ports);
    wf_pjrt_program_release(d, e->program);
    wf_arena_free(&e->arena);
    wf_mem_free(d->head.ctx, e);
}

static wf_status exec_write(wf_exec *exec, const wf_port *input, const void *from)
{
    return wf_pjrt_buffer_write(&((pjrt_exec *)exec)->own[input->where], from);
}

static wf_status exec_read(wf_exec *exec, const wf_port *output, void *to)
{
    return wf_pjrt_buffer_read(&((pjrt_exec *)exec)->own[output->where], to);
}

static wf_status execute(pjrt_exec *e, void **event)
{
    wf_pjrt_plugin *p = &device_of(&e->head)->plugin;
    pjrt_execute_options options = {.size = p->execute_options};
    void *const *args = e->arg_handles; /* PJRT takes one list per device */
    void **results = e->result_handles;
    pjrt_execute_args call = {.executable = e->program->loaded,
                              .options = &options,
                              .args = &args,
                              .device_count = 1,
                              .arg_count = (size_t)e->arg_count,
                              .results = &results,
                              .events = event};
    return wf_pjrt_call(p, PJRT_EXECUTE, &call, device, "run a program");
}

/* Collects argument handles. Frees the previous outputs first: otherwise old and new ones would
 * exist at the same time. States and inputs without contents get zeros (wf_pjrt_buffer_touch). */
static wf_status make_ready(pjrt_exec *e)
{
    for (int i = 0; i < e->arg_count; i++) {
        WF_TRY(wf_pjrt_buffer_touch(e->args[i]));
        e->arg_handles[i] = e->args[i]->handle;
    }
    for (int i = 0; i < e->head.output_count; i++)
        wf_pjrt_buffer_replace(&e->own[e->head.outputs[i].where], NULL);
    return WF_OK;
}

/* Returns when the plugin has accepted the work; reading an output waits for it. */
static wf_status exec_run(wf_exec *exec)
{
    pjrt_exec *e = (pjrt_exec *)exec;
    wf_pjrt_queue *queue = (wf_pjrt_queue *)exec->session->queue;
    uint64_t begin = wf_clock_ns();
    void *event = NULL;
    WF_TRY(make_ready(e));
    wf_device_take(exec->session->device, e->program->temporary); /* counts towards the peak only */
    wf_status status = execute(e, &event);
    wf_device_give_back(exec->session->device, e->program->temporary);
    if (status != WF_OK) { /* some plugins have deleted donated arguments by then */
        for (int i = 0; i < e->arg_count; i++)
            wf_pjrt_buffer_check(e->args[i]);
        return status;
    }
    /* Updated states get their new arrays here; replace destroys the donated handles. */
    for (int i = 0; i < e->result_count; i++)
        wf_pjrt_buffer_replace(e->results[i], e->result_handles[i]);
    /* No need to wait for the previous event: a failure there also fails this run, or its results
     * are not used. */
    wf_pjrt_destroy(&device_of(exec)->plugin, PJRT_EVENT_DESTROY, queue->last);
    queue->last = event;
    e->stats.launches++;
    e->stats.nanoseconds += wf_clock_ns() - begin;
    return WF_OK;
}

/* Reports the program as one launch: the plugin does not expose its kernels. */
static bool exec_op_stats(const wf_exec *exec, int index, wf_op_stats *out)
{
    if (index != 0)
        return false;
    *out = ((const pjrt_exec *)exec)->stats;
    return true;
}

static const wf_exec_ops pjrt_exec_ops = {
    .write = exec_write,
    .run = exec_run,
    .read = exec_read,
    .op_stats = exec_op_stats,
    .free = exec_free,
};

/* Lowers to StableHLO; adds the device's name to the error for an unsupported op. */
static wf_status lower(const wf_device *device, const wf_graph *graph, wf_hlo_program *out)
{
    wf_status status = wf_lower_stablehlo(graph, out);
    if (status != WF_ERR_UNSUPPORTED)
        return status;
    return wf_fail(graph->ctx, status, "device %s: %s", device->target.name,
                   wf_ctx_message(graph->ctx));
}

/* Lowers, binds and compiles `graph`, whose ops all have a StableHLO form. */
static wf_status build(pjrt_exec *e, const wf_graph *graph)
{
    wf_hlo_program lowered;
    WF_TRY(lower(e->head.session->device, graph, &lowered));
    wf_status status = bind_states(e, graph);
    if (status == WF_OK)
        status = bind_ports(e, graph);
    if (status == WF_OK)
        status = bind_edges(e, &lowered);
    if (status == WF_OK) {
        status = wf_pjrt_program_get(device_of(&e->head), lowered.text, lowered.bytes, &e->program);
        lowered.text = NULL; /* program_get owns the text now, also if it failed */
    }
    if (status == WF_OK)
        e->head.memory.activations = e->program->temporary;
    wf_hlo_program_free(&lowered);
    return status;
}

/* Runs none of Weft's passes: the plugin's compiler fuses, schedules and plans memory itself. */
wf_status wf_pjrt_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out)
{
    wf_graph *core;
    (void)options;
    *out = NULL;
    /* Expands to ops with a StableHLO form, even without any kernel table. */
    WF_TRY(wf_device_expand(session->device, graph, NULL, &core));
    pjrt_exec *e = wf_mem_new(session->ctx, sizeof *e);
    wf_status status = e ? WF_OK : WF_ERR_MEMORY;
    if (e) {
        e->head.ops = &pjrt_exec_ops;
        e->head.session = session;
        e->stats = (wf_op_stats){.op = "program", .kernel = "pjrt"};
        wf_arena_init(&e->arena, session->ctx);
        status = build(e, core);
    }
    wf_graph_free(core);
    if (status == WF_OK)
        *out = &e->head;
    else if (e)
        exec_free(&e->head);
    return status;
}

/* ---- Planning ---- */

static void count_ports(const wf_device *device, const wf_graph *g, wf_memory *out)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        /* Of output 0: inputs and states have one. */
        size_t bytes = wf_device_value_bytes(device, n->out[0].type, &n->out[0].shape);
        out->states += n->op == WF_OP_state ? bytes : 0;
        out->ports += n->op == WF_OP_input ? bytes : 0;
    }
    for (int i = 0; i < g->output_count; i++) {
        const wf_value *v = g->outputs[i].value;
        out->ports += wf_device_value_bytes(device, v->type, &v->shape);
    }
}

/* Counts inputs, outputs and states. Only the plugin knows a program's temporary memory, and only
 * after compiling it. The program stays in the device's list, so a later compile reuses it. */
wf_status wf_pjrt_plan(wf_device *device, const wf_session *session, wf_graph *graph,
                       const wf_compile_options *options, wf_memory *out)
{
    (void)session;
    wf_pjrt_device *d = (wf_pjrt_device *)device;
    wf_graph *core;
    wf_hlo_program lowered;
    wf_pjrt_program *program;
    (void)options;
    WF_TRY(wf_device_expand(device, graph, NULL, &core));
    count_ports(device, core, out);
    wf_status status = lower(device, core, &lowered);
    if (status == WF_OK) {
        status = wf_pjrt_program_get(d, lowered.text, lowered.bytes, &program);
        lowered.text = NULL;
        wf_hlo_program_free(&lowered);
    }
    if (status == WF_OK) {
        out->activations = program->temporary;
        wf_pjrt_program_release(d, program);
    }
    wf_graph_free(core);
    return status;
}

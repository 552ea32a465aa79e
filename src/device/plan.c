/* SPDX-License-Identifier: MIT */
/*
 * plan.c - makes a plan: runs the passes over a copy of the graph, chooses kernels, lets views share
 * storage where every reader takes strides, and then does the last pass, memory: lifetimes, results
 * that take the place of an operand, operands of a concat that are made in their place in its result, and one
 * region for all.
 */
#include "device/plan.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "device/expand.h"
#include "graph/pass/rewrite.h"

typedef struct {
    wf_plan *plan;
    wf_device *device;
    const wf_session *session; /* or NULL */
    const wf_compile_options *options;
    wf_report *report;
    wf_uses uses;
    const wf_kernel **kernel; /* [node] NULL for sources, and for views that share storage */
    int *into;                /* [block] 1 + the block that took it over; 0: none has */
    const wf_node **whole;    /* [slot] the concat in whose result a value is made; NULL: none */
    bool *joined;             /* [node] a concat whose operands all are: nothing is left to do */
} planner;

static wf_place *place_of(const planner *p, const wf_value *v)
{
    return &p->plan->places[v->node->id][v->index];
}

/* ---- Kernels ---- */

static wf_status choose_kernel(planner *p, const wf_node *n)
{
    p->kernel[n->id] = wf_kernel_choose(p->device, n);
    if (p->kernel[n->id])
        return WF_OK;
    char call[256];
    size_t len = 0;
    wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
    return wf_fail(p->plan->ctx, WF_ERR_UNSUPPORTED,
                   "device %s has no kernel for %s%s, a core op, which cannot be expanded",
                   p->device->target.name, call, wf_kernel_packed(n) ? " with a packed state" : "");
}

static wf_status choose_kernels(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->node_count; i++)
        if (!wf_node_is(g->nodes[i], WF_FLAG_SOURCE | WF_FLAG_VIEW))
            WF_TRY(choose_kernel(p, g->nodes[i]));
    return WF_OK;
}

/* Whether `reader` can read a view as it lies. An update op must not see its own state through one:
 * it would overwrite what it still has to read. */
static bool can_read(const planner *p, const wf_node *reader, const wf_place *view)
{
    if (p->joined[reader->id])
        return true;
    for (int i = 0; view->state && wf_node_is(reader, WF_FLAG_UPDATE) && i < reader->nout; i++)
        if (reader->in[i]->state == view->state)
            return false;
    return view->dense || wf_node_is(reader, WF_FLAG_VIEW) || p->kernel[reader->id]->strided;
}

static bool view_is_shared(planner *p, const wf_node *n)
{
    const wf_value *y = &n->out[0];
    if (p->device->dense_views || wf_kernel_packed(n) ||
        !wf_place_view(n, place_of(p, n->in[0]), place_of(p, y)))
        return false;
    const wf_use *use = wf_uses_of(&p->uses, y);
    for (int i = 0; i < wf_uses_count(&p->uses, y); i++)
        if (use[i].node && !can_read(p, use[i].node, place_of(p, y)))
            return false;
    return true;
}

/* ---- Concats without a copy ---- */

/* The value that operand i of a concat is or, by reshapes, is a view of, if it can be made right where it is
 * needed: nobody else reads it, and the kernel that makes it can write there. NULL: it cannot. */
static const wf_value *part_of(const planner *p, const wf_node *n, int i, wf_place *place)
{
    const wf_value *v = n->in[i];
    wf_place_part(n, i, place);
    for (; v->node->op == WF_OP_reshape; v = v->node->in[0])
        if (wf_uses_count(&p->uses, v) != 1 || !wf_place_before(v->node, place, place))
            return NULL;
    const wf_kernel *kernel = p->kernel[v->node->id];
    bool alone = wf_uses_count(&p->uses, v) == 1 && !v->state && wf_value_count(v) > 0;
    return alone && kernel && v->index < 32 && kernel->strided_out >> v->index & 1 ? v : NULL;
}

static void join_concat(planner *p, const wf_node *n)
{
    wf_place place;
    const wf_value *y = &n->out[0];
    if (wf_uses_count(&p->uses, y) == 0 || wf_uses_is_output(&p->uses, y))
        return;
    for (int i = 0; i < n->nin; i++)
        if (!part_of(p, n, i, &place))
            return;
    for (int i = 0; i < n->nin; i++) {
        const wf_value *part = part_of(p, n, i, &place);
        *place_of(p, part) = place;
        p->whole[wf_uses_slot(&p->uses, part)] = n;
    }
    p->joined[n->id] = true;
    wf_report_add(p->report, "memory", "concats made in place", 1);
}

static void join_concats(planner *p)
{
    const wf_graph *g = p->plan->graph;
    if (p->options->without & WF_PASS_MEMORY || p->device->dense_views)
        return;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_concat)
            join_concat(p, g->nodes[i]);
}

/* ---- Places and steps ---- */

static int new_block(planner *p, const wf_value *value, size_t bytes, int begin)
{
    wf_plan *plan = p->plan;
    int block = plan->block_count++;
    plan->blocks[block] =
        (wf_lifetime){.bytes = bytes + 2 * p->device->target.guard, .begin = begin, .end = begin};
    plan->block_info[block] = (wf_block_info){value, bytes};
    return block;
}

/* Inputs keep their contents from run to run and outputs are read at any time until the next, whatever
 * other executables of the session do meanwhile: their memory is the executable's own. */
static wf_status place_port(planner *p, const wf_value *v, wf_place *place)
{
    size_t *bytes = &p->plan->memory.ports, guard = p->device->target.guard, end;
    place->kind = WF_PLACE_PORT;
    place->offset = *bytes + guard;
    if (!wf_add_size(wf_value_bytes(v), 2 * guard, &end) ||
        !wf_align_size(end, p->device->target.alignment, &end) || !wf_add_size(*bytes, end, bytes))
        return wf_fail(p->plan->ctx, WF_ERR_MEMORY,
                       "the inputs and outputs of this graph exceed any address space");
    return WF_OK;
}

/* Nobody reads it, neither a node nor the kernel that makes another output from it. */
static bool is_unread(const planner *p, const wf_value *v)
{
    const wf_kernel *kernel = p->kernel[v->node->id];
    bool unread = wf_uses_count(&p->uses, v) == 0;
    for (int i = 1; unread && v->index == 0 && kernel && i < v->node->nout && i < 32; i++)
        unread = !(kernel->from_first >> i & 1) || wf_uses_count(&p->uses, &v->node->out[i]) == 0;
    return unread;
}

static wf_status place_value(planner *p, const wf_value *v, int begin)
{
    wf_place *place = place_of(p, v);
    memset(place, 0, sizeof *place);
    wf_place_dense(place, &v->shape);
    if (v->state) {
        place->kind = WF_PLACE_STATE;
        place->state = v->state;
    } else if (is_unread(p, v)) {
        place->kind = WF_PLACE_NONE;
    } else if (v->node->op == WF_OP_input || wf_uses_is_output(&p->uses, v)) {
        return place_port(p, v, place);
    } else {
        place->kind = WF_PLACE_REGION;
        place->block = new_block(p, v, wf_value_bytes(v), begin);
    }
    return WF_OK;
}

/* Part of a concat's result, whose strides are known; the first part to be made gives the whole its block. */
static wf_status place_part(planner *p, const wf_value *v, const wf_node *concat, int begin)
{
    wf_place *place = place_of(p, v), *whole = place_of(p, &concat->out[0]);
    if (whole->kind == WF_PLACE_NONE)
        WF_TRY(place_value(p, &concat->out[0], begin));
    place->kind = WF_PLACE_REGION;
    place->block = whole->block;
    p->plan->blocks[whole->block].end = begin;
    return WF_OK;
}

static wf_status add_step(planner *p, const wf_node *n)
{
    wf_plan *plan = p->plan;
    const wf_kernel *kernel = p->kernel[n->id];
    int at = plan->step_count++;
    wf_step *step = &plan->steps[at];
    *step = (wf_step){.node = n, .kernel = kernel, .workspace = -1};
    step->workspace_bytes = wf_kernel_workspace(kernel, p->device, n);
    if (step->workspace_bytes > 0)
        step->workspace = new_block(p, NULL, step->workspace_bytes, at);
    if (step->workspace_bytes > plan->memory.workspace)
        plan->memory.workspace = step->workspace_bytes;
    for (int i = 0; i < n->nout; i++) {
        const wf_node *whole = p->whole[wf_uses_slot(&p->uses, &n->out[i])];
        WF_TRY(whole ? place_part(p, &n->out[i], whole, at) : place_value(p, &n->out[i], at));
    }
    for (int i = 0; i < n->nin; i++) {
        const wf_place *place = place_of(p, n->in[i]);
        wf_assert(place->dense || kernel->strided); /* kernels that make views dense must be */
        if (place->kind == WF_PLACE_REGION)
            plan->blocks[place->block].end = at;
    }
    return WF_OK;
}

static wf_status place_nodes(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        if (wf_node_is(n, WF_FLAG_SOURCE)) {
            WF_TRY(place_value(p, &n->out[0], 0));
        } else if (p->joined[i]) {
            wf_assert(place_of(p, &n->out[0])->kind == WF_PLACE_REGION);
        } else if (!wf_node_is(n, WF_FLAG_VIEW)) {
            WF_TRY(add_step(p, n));
        } else if (!view_is_shared(p, n)) {
            WF_TRY(choose_kernel(p, n));
            WF_TRY(add_step(p, n));
        }
    }
    return WF_OK;
}

/* ---- Memory ---- */

/* The block where the values of `block` lie by now. */
static int final_block(const planner *p, int block)
{
    while (p->into[block])
        block = p->into[block] - 1;
    return block;
}

/* Whether output 0 of a step may lie where operand i lies: it is the last to read that block, which
 * holds nothing but the operand, and no other operand lies there unless it could be overwritten as
 * well, element by element. */
static bool can_overwrite(const planner *p, const wf_step *step, int at, int i)
{
    const wf_node *n = step->node;
    const wf_value *x = n->in[i], *y = &n->out[0];
    const wf_place *from = place_of(p, x), *to = place_of(p, y);
    if (!(step->kernel->in_place >> i & 1) || from->kind != WF_PLACE_REGION ||
        p->whole[wf_uses_slot(&p->uses, y)] || to->kind != WF_PLACE_REGION || x->type != y->type ||
        !wf_dims_equal(&x->shape, &y->shape) || !from->dense || from->first != 0)
        return false;
    const wf_plan *plan = p->plan;
    int block = final_block(p, from->block);
    if (plan->blocks[block].end != at ||
        plan->block_info[block].bytes != plan->block_info[to->block].bytes)
        return false;
    for (int k = 0; k < n->nin; k++) {
        const wf_place *other = place_of(p, n->in[k]);
        if (other->kind == WF_PLACE_REGION && final_block(p, other->block) == block &&
            (!(step->kernel->in_place >> k & 1) || !other->dense || other->first != 0 ||
             !wf_dims_equal(&n->in[k]->shape, &x->shape)))
            return false;
    }
    return true;
}

/* The values of block `from` move into block `to`, which lives on for them. */
static void merge_blocks(planner *p, int from, int to)
{
    wf_plan *plan = p->plan;
    p->into[from] = 1 + to;
    plan->blocks[to].end = plan->blocks[from].end;
    plan->blocks[from].bytes = plan->block_info[from].bytes = 0;
}

static void overwrite_operands(planner *p)
{
    for (int at = 0; at < p->plan->step_count; at++) {
        wf_step *step = &p->plan->steps[at];
        for (int i = 0; i < step->node->nin && i < 32 && !step->in_place; i++)
            if (can_overwrite(p, step, at, i)) {
                step->in_place = true;
                merge_blocks(p, place_of(p, &step->node->out[0])->block,
                             final_block(p, place_of(p, step->node->in[i])->block));
                wf_report_add(p->report, "memory", "results in place of an operand", 1);
            }
    }
    for (int s = 0; s < p->uses.values; s++) {
        wf_place *place = &p->plan->places[0][s]; /* places of all values, one after the other */
        if (place->kind == WF_PLACE_REGION)
            place->block = final_block(p, place->block);
    }
}

/* For comparison: every block lives all the time. */
static void keep_blocks_apart(wf_plan *plan)
{
    for (int i = 0; i < plan->block_count; i++) {
        plan->blocks[i].begin = 0;
        plan->blocks[i].end = plan->step_count;
    }
}

/* As the session keeps it. */
static size_t state_bytes(const planner *p, const wf_node *n)
{
    const wf_value *v = &n->out[0];
    bool copy = n->op == WF_OP_state_copy;
    const wf_stored_state *s = p->session && !copy ? wf_session_find(p->session, n->name) : NULL;
    return s && s->storage == WF_STATE_PACKED
               ? p->device->ops->packed_bytes(p->device, v->type, &v->shape)
               : wf_value_bytes(v);
}

/* With states and ports it must be something that a total can be given of. */
static wf_status add_states(planner *p)
{
    wf_plan *plan = p->plan;
    wf_memory *m = &plan->memory;
    size_t total;
    bool fits = wf_add_size(m->activations, m->ports, &total);
    for (int i = 0; i < plan->graph->node_count && fits; i++)
        if (wf_node_is(plan->graph->nodes[i], WF_FLAG_STATE)) {
            size_t bytes = state_bytes(p, plan->graph->nodes[i]);
            fits = wf_add_size(total, bytes, &total);
            m->states += bytes;
        }
    return fits ? WF_OK
                : wf_fail(plan->ctx, WF_ERR_MEMORY,
                          "the states of this graph exceed any address space");
}

static wf_status plan_memory(planner *p)
{
    wf_plan *plan = p->plan;
    size_t sum = 0;
    if (p->options->without & WF_PASS_MEMORY)
        keep_blocks_apart(plan);
    else
        overwrite_operands(p);
    for (int i = 0; i < plan->block_count; i++)
        sum += plan->block_info[i].bytes; /* checked by packing, which adds up more */
    WF_TRY(wf_memory_pack(plan->ctx, plan->blocks, plan->block_count, p->device->target.alignment,
                          &plan->memory.activations, &plan->memory.lower_bound));
    WF_TRY(add_states(p));
    wf_report_add(p->report, "memory", "bytes of all values and workspaces", (int64_t)sum);
    wf_report_add(p->report, "memory", "bytes of the region", (int64_t)plan->memory.activations);
    wf_report_add(p->report, "memory", "bytes alive at the busiest step",
                  (int64_t)plan->memory.lower_bound);
    return WF_OK;
}

size_t wf_plan_offset(const wf_plan *plan, const wf_device *device, int block)
{
    return plan->blocks[block].offset + device->target.guard;
}

/* ---- The whole ---- */

/* Lets passes and kernel tables see how the session keeps states. A mark that came with the graph, from a
 * text, is not about this session. */
static void mark_states(planner *p)
{
    for (int i = 0; i < p->plan->graph->node_count; i++) {
        wf_node *n = p->plan->graph->nodes[i];
        if (n->op != WF_OP_state)
            continue;
        const wf_stored_state *s = p->session ? wf_session_find(p->session, n->name) : NULL;
        n->out[0].marks &= ~(uint32_t)(WF_MARK_PACKED | WF_MARK_ROUNDED);
        if (s && s->storage == WF_STATE_PACKED)
            n->out[0].marks |= WF_MARK_PACKED;
        if (s && s->rounded)
            n->out[0].marks |= WF_MARK_ROUNDED;
    }
}

static wf_status prepare(planner *p, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    const wf_graph *g = plan->graph;
    size_t nodes = (size_t)g->node_count + 1, values = (size_t)p->uses.values;
    plan->places = wf_arena_alloc(&plan->arena, nodes * sizeof *plan->places);
    plan->steps = wf_arena_alloc(&plan->arena, nodes * sizeof *plan->steps);
    plan->blocks = wf_arena_alloc(&plan->arena, (nodes + values) * sizeof *plan->blocks);
    plan->block_info = wf_arena_alloc(&plan->arena, (nodes + values) * sizeof *plan->block_info);
    wf_place *places = wf_arena_alloc(&plan->arena, (values + 1) * sizeof *places);
    p->kernel = wf_arena_alloc(scratch, nodes * sizeof *p->kernel);
    p->into = wf_arena_alloc(scratch, (nodes + values) * sizeof *p->into);
    p->whole = wf_arena_alloc(scratch, (values + 1) * sizeof *p->whole);
    p->joined = wf_arena_alloc(scratch, nodes * sizeof *p->joined);
    if (!plan->places || !plan->steps || !plan->blocks || !plan->block_info || !places ||
        !p->kernel || !p->into || !p->whole || !p->joined)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++)
        plan->places[i] = places + p->uses.slot[i];
    return WF_OK;
}

static wf_status make_plan(planner *p, wf_graph *graph, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    plan->expansions = wf_arena_alloc(&plan->arena, WF_OP_COUNT * sizeof *plan->expansions);
    if (!plan->expansions)
        return WF_ERR_MEMORY;
    WF_TRY(wf_graph_copy(graph, &plan->graph)); /* checks it, too */
    mark_states(p);
    WF_TRY(wf_device_passes(p->device, p->options, p->report, plan->expansions, &plan->graph));
    WF_TRY(wf_uses_new(plan->graph, &p->uses));
    WF_TRY(prepare(p, scratch));
    WF_TRY(choose_kernels(p));
    join_concats(p);
    WF_TRY(place_nodes(p));
    return plan_memory(p);
}

wf_status wf_plan_new(wf_device *device, wf_graph *graph, const wf_compile_options *options,
                      const wf_session *session, wf_report *report, wf_plan **out)
{
    static const wf_compile_options defaults = {0};
    *out = NULL;
    wf_plan *plan = wf_mem_new(device->ctx, sizeof *plan);
    if (!plan)
        return WF_ERR_MEMORY;
    plan->ctx = device->ctx;
    wf_arena_init(&plan->arena, device->ctx);
    wf_arena scratch;
    wf_arena_init(&scratch, device->ctx);
    planner p = {.plan = plan,
                 .device = device,
                 .session = session,
                 .options = options ? options : &defaults,
                 .report = report,
                 .uses = {.ctx = device->ctx}};
    wf_status status = make_plan(&p, graph, &scratch);
    wf_uses_free(&p.uses);
    wf_arena_free(&scratch);
    if (status == WF_OK)
        *out = plan;
    else
        wf_plan_free(plan);
    return status;
}

void wf_plan_free(wf_plan *plan)
{
    if (!plan)
        return;
    wf_graph_free(plan->graph);
    wf_arena_free(&plan->arena);
    wf_mem_free(plan->ctx, plan);
}

/* SPDX-License-Identifier: MIT */
/*
 * plan.c - makes a plan: runs the passes over a copy of the graph, chooses a kernel per node, and
 * assigns every value its place.
 *
 * The phases, in the order of make_plan:
 *   1. copy and verify the graph, mark its states, run the passes (expand.c);
 *   2. choose a kernel for every node except sources and views;
 *   3. join concats: kernels write their results directly into the result of the concat;
 *   4. walk the nodes in order: give each value a place, and turn each node into a step unless it is
 *      a source, a joined concat or a view that shares storage;
 *   5. merge blocks where a step may overwrite an operand, then pack all blocks into one region
 *      (memory.c).
 *
 * A step is one launch; lifetimes count in steps. Nothing is allocated on the device, and the
 * result depends on graph, options and device only, so planning twice gives the same addresses.
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
    const wf_session *session; /* may be NULL */
    const wf_compile_options *options;
    wf_report *report;
    wf_uses uses;
    const wf_kernel **kernel; /* [node id] NULL for sources and for views that share storage */
    int *into;                /* [block] 1 + the block it was merged into; 0: not merged */
    const wf_node **whole;    /* [slot] the joined concat that a value is part of, or NULL */
    bool *joined; /* [node id] a concat whose operands are all written in place: not a step */
} planner;

/* Valid for every value of the plan's graph once prepare has run; its contents, once the value was
 * placed. */
static wf_place *place_of(const planner *p, const wf_value *v)
{
    return &p->plan->places[v->node->id][v->index];
}

/* ---- Kernels ---- */

/* Fails with WF_ERR_UNSUPPORTED if no row fits: wf_device_passes has already expanded everything
 * that can be expanded. */
static wf_status choose_kernel(planner *p, const wf_node *n)
{
    p->kernel[n->id] = wf_kernel_choose(p->device, n);
    if (p->kernel[n->id])
        return WF_OK;
    char call[256];
    size_t len = 0;
    wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
    return wf_fail(p->plan->ctx, WF_ERR_UNSUPPORTED, "device %s has no kernel for %s%s, %s",
                   p->device->target.name, call, wf_kernel_packed(n) ? " with a packed state" : "",
                   wf_op_is_core(n->op) ? "a core op, which cannot be expanded"
                                        : "and its expansion cannot read one either");
}

/* Leaves p->kernel NULL for sources and views. A view gets a kernel in place_nodes, only if it
 * cannot share storage. */
static wf_status choose_kernels(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->node_count; i++)
        if (!wf_node_is(g->nodes[i], WF_FLAG_SOURCE | WF_FLAG_VIEW))
            WF_TRY(choose_kernel(p, g->nodes[i]));
    return WF_OK;
}

/* Returns whether `reader` can read a view without a copy. An update op must not read its own state
 * through a view: it would overwrite elements that it still has to read. */
static bool can_read(const planner *p, const wf_node *reader, const wf_place *view)
{
    /* A joined concat reads nothing: its operands are in place already. */
    if (p->joined[reader->id])
        return true;
    for (int i = 0; view->state && wf_node_is(reader, WF_FLAG_UPDATE) && i < reader->nout; i++)
        if (reader->in[i]->state == view->state)
            return false;
    /* A view of a view only computes further strides; whether its own readers accept them is
     * decided at that node. */
    return view->dense || wf_node_is(reader, WF_FLAG_VIEW) || p->kernel[reader->id]->strided;
}

/* Sets the place of view n and returns true if n can share its operand's storage. */
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

/* Returns the value behind operand i of a concat, looking through reshapes, if its kernel can write
 * it directly into the result: the value has no other reader, and the kernel supports strided
 * outputs. Sets *place to where it goes. Returns NULL otherwise. */
static const wf_value *part_of(const planner *p, const wf_node *n, int i, wf_place *place)
{
    const wf_value *v = n->in[i];
    wf_place_part(n, i, place);
    for (; v->node->op == WF_OP_reshape; v = v->node->in[0])
        if (wf_uses_count(&p->uses, v) != 1 || !wf_place_before(v->node, place, place))
            return NULL;
    /* kernel is NULL for views other than reshape and for sources: their values exist already. */
    const wf_kernel *kernel = p->kernel[v->node->id];
    bool alone = wf_uses_count(&p->uses, v) == 1 && !v->state && wf_value_count(v) > 0;
    /* The masks of wf_kernel have 32 bits: outputs from 32 on are never written in place. */
    return alone && kernel && v->index < 32 && kernel->strided_out >> v->index & 1 ? v : NULL;
}

/* Joins concat n if all its operands can be written into its result: the concat then needs no
 * copy. */
static void join_concat(planner *p, const wf_node *n)
{
    wf_place place;
    const wf_value *y = &n->out[0];
    /* An output lies in a port, not in the region; an unread concat gets no memory at all. */
    if (wf_uses_count(&p->uses, y) == 0 || wf_uses_is_output(&p->uses, y))
        return;
    /* Two passes: no place may change unless every operand fits. */
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

/* Adds a block that is in use at step `begin`; later readers move `end`. `value` NULL: a workspace.
 * `bytes` excludes the guards on both sides (wf_target.guard). */
static int new_block(planner *p, const wf_value *value, size_t bytes, int begin)
{
    wf_plan *plan = p->plan;
    int block = plan->block_count++;
    plan->blocks[block] =
        (wf_lifetime){.bytes = bytes + 2 * p->device->target.guard, .begin = begin, .end = begin};
    plan->block_info[block] = (wf_block_info){value, bytes};
    return block;
}

/* Places an input or output in the port memory, outside the region: inputs keep their contents
 * between runs, and outputs stay readable until the next run. Unless the session shares ports, this
 * holds even if other executables of the session run meanwhile. */
static wf_status place_port(planner *p, const wf_value *v, wf_place *place)
{
    /* Bytes so far, and the offset of this port. */
    size_t *bytes = &p->plan->memory.ports, guard = p->device->target.guard, end;
    place->kind = WF_PLACE_PORT;
    place->offset = *bytes + guard;
    if (!wf_add_size(wf_value_bytes(v), 2 * guard, &end) ||
        !wf_align_size(end, p->device->target.alignment, &end) || !wf_add_size(*bytes, end, bytes))
        return wf_fail(p->plan->ctx, WF_ERR_MEMORY,
                       "the inputs and outputs of this graph exceed the address space");
    return WF_OK;
}

/* Returns whether v has no reader: no node, and no kernel that computes another output from v
 * (wf_kernel.from_first). */
static bool is_unread(const planner *p, const wf_value *v)
{
    const wf_kernel *kernel = p->kernel[v->node->id];
    bool unread = wf_uses_count(&p->uses, v) == 0;
    for (int i = 1; unread && v->index == 0 && kernel && i < v->node->nout && i < 32; i++)
        unread = !(kernel->from_first >> i & 1) || wf_uses_count(&p->uses, &v->node->out[i]) == 0;
    return unread;
}

/* Gives v dense strides, and memory that is in use from step `begin` on. No output is a state, a
 * view or an input: wf_output copies those. */
static wf_status place_value(planner *p, const wf_value *v, int begin)
{
    wf_place *place = place_of(p, v);
    memset(place, 0, sizeof *place);
    wf_place_dense(place, &v->shape);
    /* All versions of a state share one buffer: updates run in place. */
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

/* Places a part of a joined concat; join_concat has already set its strides. The first part that
 * runs allocates the block of the result, so the block is alive from there on. Later parts and
 * readers extend its end. */
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

/* Appends n as a step. Lifetimes include both ends, so operands, outputs and workspace are all
 * alive at this step: they never share memory unless overwrite_operands merges their blocks. */
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
        wf_assert(place->dense || kernel->strided); /* kernels of views must accept strides */
        /* Steps come in ascending order, so the last assignment is the last reader. */
        if (place->kind == WF_PLACE_REGION)
            plan->blocks[place->block].end = at;
    }
    return WF_OK;
}

/* Visits nodes in execution order; operands have their places by then. */
static wf_status place_nodes(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        /* An input becomes a port, a state lies in its buffer: `begin` does not matter. */
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

/* Follows merges and returns the block that now holds the values of `block`. */
static int final_block(const planner *p, int block)
{
    while (p->into[block])
        block = p->into[block] - 1;
    return block;
}

/* Returns whether output 0 of a step may overwrite operand i. The step must be the last reader of
 * the operand's block, and the block must hold nothing else. Other operands in that block must have
 * the same layout and allow overwriting, too. */
static bool can_overwrite(const planner *p, const wf_step *step, int at, int i)
{
    const wf_node *n = step->node;
    const wf_value *x = n->in[i], *y = &n->out[0];
    const wf_place *from = place_of(p, x), *to = place_of(p, y);
    /* In order: the kernel allows it; x is a temporary; y is neither part of a concat nor
     * outside the region; both have the same type, shape and dense layout from the first byte of
     * the block. */
    if (!(step->kernel->in_place >> i & 1) || from->kind != WF_PLACE_REGION ||
        p->whole[wf_uses_slot(&p->uses, y)] || to->kind != WF_PLACE_REGION || x->type != y->type ||
        !wf_dims_equal(&x->shape, &y->shape) || !from->dense || from->first != 0)
        return false;
    const wf_plan *plan = p->plan;
    int block = final_block(p, from->block);
    /* Later readers of x, also through views, would see y. Blocks of unequal size hold a larger
     * root, of which x is only a part. */
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

/* Merges block `from` into block `to`, which then lives until the last reader of `from`. The size
 * of `from` becomes 0; wf_memory_pack skips such blocks. */
static void merge_blocks(planner *p, int from, int to)
{
    wf_plan *plan = p->plan;
    p->into[from] = 1 + to;
    plan->blocks[to].end = plan->blocks[from].end;
    plan->blocks[from].bytes = plan->block_info[from].bytes = 0;
}

/* Steps are visited in order, so chains collapse: x, then y over x, then z over y are one block.
 * Places are renumbered at the end, because final_block is needed while merging. */
static void overwrite_operands(planner *p)
{
    for (int at = 0; at < p->plan->step_count; at++) {
        wf_step *step = &p->plan->steps[at];
        /* wf_kernel.in_place has 32 bits. */
        for (int i = 0; i < step->node->nin && i < 32 && !step->in_place; i++)
            if (can_overwrite(p, step, at, i)) {
                step->in_place = true;
                merge_blocks(p, place_of(p, &step->node->out[0])->block,
                             final_block(p, place_of(p, step->node->in[i])->block));
                wf_report_add(p->report, "memory", "results in place of an operand", 1);
            }
    }
    for (int s = 0; s < p->uses.values; s++) {
        wf_place *place = &p->plan->places[0][s]; /* the places of all values are one array */
        if (place->kind == WF_PLACE_REGION)
            place->block = final_block(p, place->block);
    }
}

/* Without the memory pass, for comparison: every block stays in use during the whole run. */
static void keep_blocks_apart(wf_plan *plan)
{
    for (int i = 0; i < plan->block_count; i++) {
        plan->blocks[i].begin = 0;
        plan->blocks[i].end = plan->step_count;
    }
}

/* Returns the bytes of a state in the session's storage. Without a session every state is owned and
 * dense. A copy (WF_OP_state_copy) is never packed. */
static size_t state_bytes(const planner *p, const wf_node *n)
{
    const wf_value *v = &n->out[0];
    bool copy = n->op == WF_OP_state_copy;
    const wf_stored_state *s = p->session && !copy ? wf_session_find(p->session, n->name) : NULL;
    return s && s->storage == WF_STATE_PACKED
               ? p->device->ops->packed_bytes(p->device, v->type, &v->shape)
               : wf_value_bytes(v);
}

/* Adds the states to plan->memory. Fails if the total does not fit into size_t. */
static wf_status add_states(planner *p)
{
    wf_plan *plan = p->plan;
    wf_memory *m = &plan->memory;
    size_t total;
    bool fits = wf_add_size(m->activations, m->ports, &total);
    for (int i = 0; i < plan->graph->node_count && fits; i++)
        if (wf_node_is(plan->graph->nodes[i], WF_FLAG_STATE)) {
            size_t bytes = state_bytes(p, plan->graph->nodes[i]);
            /* The sum of the states alone cannot overflow either: it is at most `total`. */
            fits = wf_add_size(total, bytes, &total);
            m->states += bytes;
        }
    return fits ? WF_OK
                : wf_fail(plan->ctx, WF_ERR_MEMORY,
                          "the states of this graph exceed the address space");
}

/* Fills in plan->memory. Runs after place_nodes: block sizes and lifetimes are final except for
 * merges. */
static wf_status plan_memory(planner *p)
{
    wf_plan *plan = p->plan;
    size_t sum = 0;
    if (p->options->without & WF_PASS_MEMORY)
        keep_blocks_apart(plan);
    else
        overwrite_operands(p);
    for (int i = 0; i < plan->block_count; i++)
        sum += plan->block_info[i].bytes; /* wf_memory_pack checks a larger sum for overflow */
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

/* ---- Planning ---- */

/* Marks states with the session's storage, for passes and kernel tables. Clears marks that came
 * with the graph (from its text form): they do not apply to this session. */
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

/* Allocates the arrays of the plan, and of the planner in `scratch`. */
static wf_status prepare(planner *p, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    const wf_graph *g = plan->graph;
    size_t nodes = (size_t)g->node_count + 1, values = (size_t)p->uses.values;
    plan->places = wf_arena_alloc(&plan->arena, nodes * sizeof *plan->places);
    plan->steps = wf_arena_alloc(&plan->arena, nodes * sizeof *plan->steps);
    /* Each value and each step's workspace adds at most one block. */
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
        /* All places are one array in slot order; overwrite_operands relies on that. */
        plan->places[i] = places + p->uses.slot[i];
    return WF_OK;
}

static wf_status make_plan(planner *p, wf_graph *graph, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    plan->expansions = wf_arena_alloc(&plan->arena, WF_OP_COUNT * sizeof *plan->expansions);
    if (!plan->expansions)
        return WF_ERR_MEMORY;
    /* The copy is also verified: everything below relies on a valid graph. */
    WF_TRY(wf_graph_copy(graph, &plan->graph));
    /* Before the passes: a target's answer depends on the storage of a state. */
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
    /* uses.ctx lets wf_uses_free run even if wf_uses_new was never reached. */
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

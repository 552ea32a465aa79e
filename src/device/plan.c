/* SPDX-License-Identifier: MIT */
/*
 * plan.c - makes a plan: drops what nobody asked for, chooses kernels, lets views share storage
 * where every reader takes strides, and packs the rest into one region.
 */
#include "device/plan.h"

#include <string.h>

#include "base/mem.h"

typedef struct {
    wf_plan *plan;
    wf_device *device;
    bool *live;               /* [node] runs, or is a source of one that runs */
    bool **read;              /* [node][output] has a live reader, or is an output of the graph */
    const wf_kernel **kernel; /* [node] NULL for sources, and for views that share storage */
} planner;

static wf_place *place_of(const planner *p, const wf_value *v)
{
    return &p->plan->places[v->node->id][v->index];
}

/* ---- What runs ---- */

static void mark_read(planner *p, const wf_value *v)
{
    p->read[v->node->id][v->index] = true;
    p->live[v->node->id] = true;
}

/* From the last node to the first: outputs and updates are wanted, and what they read. */
static void mark_live(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->output_count; i++)
        mark_read(p, g->outputs[i].value);
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        p->live[i] |= wf_node_is(n, WF_FLAG_UPDATE);
        for (int k = 0; p->live[i] && k < n->nin; k++)
            mark_read(p, n->in[k]);
    }
}

static wf_status choose_kernel(planner *p, const wf_node *n)
{
    p->kernel[n->id] = wf_kernel_choose(p->device->kernels, n, p->device->fast);
    if (p->kernel[n->id])
        return WF_OK;
    char call[256];
    size_t len = 0;
    wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
    return wf_fail(p->plan->ctx, WF_ERR_UNSUPPORTED, "device %s has no kernel for %s",
                   p->device->target.name, call);
}

/* ---- Views ---- */

static void set_dense(wf_place *place, const wf_dims *shape)
{
    int64_t stride = 1;
    for (int64_t i = shape->n - 1; i >= 0; i--) {
        place->stride[i] = stride;
        stride *= shape->d[i];
    }
    place->dense = true;
}

static bool strides_are_dense(const wf_place *place, const wf_dims *shape)
{
    int64_t stride = 1;
    for (int64_t i = shape->n - 1; i >= 0; i--) {
        if (shape->d[i] != 1 && place->stride[i] != stride)
            return false;
        stride *= shape->d[i];
    }
    return true;
}

/* Strides for `to` over elements that lie as `from` with the strides of `place`, as in NumPy: axes
 * of the old shape are walked in groups, each covering a group of new axes with as many elements,
 * and a group must be evenly spaced in itself. false: the elements have to be moved. */
static bool reshape_strides(const wf_dims *from, const wf_place *place, const wf_dims *to,
                            int64_t *out)
{
    wf_dims d = {0};
    int64_t s[WF_MAX_RANK], i = 0, k = 0;
    for (int a = 0; a < from->n; a++)
        if (from->d[a] != 1) {
            s[d.n] = place->stride[a];
            d.d[d.n++] = from->d[a];
        }
    while (i < d.n || k < to->n) {
        int64_t old_end = i, new_end = k;
        int64_t old_count = i < d.n ? d.d[old_end++] : 1,
                new_count = k < to->n ? to->d[new_end++] : 1;
        while (old_count != new_count) {
            if (new_count < old_count && new_end < to->n)
                new_count *= to->d[new_end++];
            else if (old_count < new_count && old_end < d.n)
                old_count *= d.d[old_end++];
            else
                return false;
        }
        for (int64_t a = i; a + 1 < old_end; a++)
            if (s[a] != s[a + 1] * d.d[a + 1])
                return false;
        int64_t stride = old_end > i ? s[old_end - 1] : 1;
        for (int64_t a = new_end - 1; a >= k; a--) {
            out[a] = stride;
            stride *= to->d[a];
        }
        i = old_end;
        k = new_end;
    }
    return true;
}

/* Where the output of a view lies if it shares its operand's storage. false: it cannot. */
static bool view_place(const planner *p, const wf_node *n, wf_place *out)
{
    const wf_value *x = n->in[0];
    const wf_dims *shape = &n->out[0].shape;
    *out = *place_of(p, x);
    if (wf_dims_count(shape) == 0)
        return false; /* nothing to share */
    if (wf_type_get(x->type)->block != 1 && n->op != WF_OP_reshape)
        return false; /* offsets into blocks are no elements */
    switch (n->op) {
    case WF_OP_reshape:
        if (!reshape_strides(&x->shape, place_of(p, x), shape, out->stride))
            return false;
        break;
    case WF_OP_permute: {
        const wf_attr_permute *a = n->attr;
        for (int i = 0; i < shape->n; i++)
            out->stride[i] = place_of(p, x)->stride[a->order.d[i]];
        break;
    }
    case WF_OP_slice: {
        const wf_attr_slice *a = n->attr;
        out->first += a->begin * out->stride[a->axis];
        break;
    }
    default: return false;
    }
    out->dense = strides_are_dense(out, shape);
    return shape->n == 0 || shape->d[shape->n - 1] == 1 || out->stride[shape->n - 1] == 1;
}

/* Whether `reader` can read a view as it lies. An update op must not see its own state through one:
 * it would overwrite what it still has to read. */
static bool can_read(const planner *p, const wf_node *reader, const wf_place *view)
{
    for (int i = 0; view->state && wf_node_is(reader, WF_FLAG_UPDATE) && i < reader->nout; i++)
        if (reader->in[i]->state == view->state)
            return false;
    return view->dense || wf_node_is(reader, WF_FLAG_VIEW) || p->kernel[reader->id]->strided;
}

static bool view_is_shared(planner *p, const wf_node *n)
{
    wf_place *place = place_of(p, &n->out[0]);
    if (p->device->dense_views || !view_place(p, n, place))
        return false;
    const wf_graph *g = p->plan->graph;
    for (int i = n->id + 1; i < g->node_count; i++)
        for (int k = 0; p->live[i] && k < g->nodes[i]->nin; k++)
            if (g->nodes[i]->in[k] == &n->out[0] && !can_read(p, g->nodes[i], place))
                return false;
    return true;
}

/* ---- Places and steps ---- */

static int new_block(planner *p, size_t bytes, int begin, int end)
{
    wf_plan *plan = p->plan;
    plan->blocks[plan->block_count] = (wf_lifetime){.bytes = bytes, .begin = begin, .end = end};
    return plan->block_count++;
}

static void place_value(planner *p, const wf_value *v, int begin)
{
    wf_place *place = place_of(p, v);
    memset(place, 0, sizeof *place);
    set_dense(place, &v->shape);
    if (v->state) {
        place->kind = WF_PLACE_STATE;
        place->state = v->state;
    } else if (p->read[v->node->id][v->index]) {
        place->kind = WF_PLACE_REGION;
        place->block = new_block(p, wf_type_bytes(v->type, wf_dims_count(&v->shape)), begin, begin);
    }
}

static void add_step(planner *p, const wf_node *n)
{
    wf_plan *plan = p->plan;
    const wf_kernel *kernel = p->kernel[n->id];
    int at = plan->step_count++;
    wf_step *step = &plan->steps[at];
    *step = (wf_step){.node = n, .kernel = kernel, .workspace = -1};
    if (kernel->workspace)
        step->workspace_bytes = kernel->workspace(n, p->device->threads);
    if (step->workspace_bytes > 0)
        step->workspace = new_block(p, step->workspace_bytes, at, at);
    if (step->workspace_bytes > plan->workspace_bytes)
        plan->workspace_bytes = step->workspace_bytes;
    for (int i = 0; i < n->nout; i++)
        place_value(p, &n->out[i], at);
    for (int i = 0; i < n->nin; i++) {
        const wf_place *place = place_of(p, n->in[i]);
        wf_assert(place->dense || kernel->strided); /* kernels that make views dense must be */
        if (place->kind == WF_PLACE_REGION)
            plan->blocks[place->block].end = at;
    }
}

static wf_status plan_nodes(planner *p)
{
    const wf_graph *g = p->plan->graph;
    for (int i = 0; i < g->node_count; i++)
        if (p->live[i] && !wf_node_is(g->nodes[i], WF_FLAG_SOURCE | WF_FLAG_VIEW))
            WF_TRY(choose_kernel(p, g->nodes[i]));
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        if (!p->live[i])
            continue;
        if (wf_node_is(n, WF_FLAG_SOURCE)) {
            place_value(p, &n->out[0], 0);
        } else if (!wf_node_is(n, WF_FLAG_VIEW)) {
            add_step(p, n);
        } else if (!view_is_shared(p, n)) {
            WF_TRY(choose_kernel(p, n));
            add_step(p, n);
        }
    }
    return WF_OK;
}

/* Inputs keep their contents from run to run, and outputs are read after it. */
static void hold_ports(planner *p)
{
    const wf_graph *g = p->plan->graph;
    int end = p->plan->step_count;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_input && p->live[i])
            p->plan->blocks[place_of(p, &g->nodes[i]->out[0])->block].end = end;
    for (int i = 0; i < g->output_count; i++)
        p->plan->blocks[place_of(p, g->outputs[i].value)->block].end = end;
}

/* ---- The whole ---- */

static wf_status prepare(planner *p, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    const wf_graph *g = plan->graph;
    size_t nodes = (size_t)g->node_count, values = 0;
    for (int i = 0; i < g->node_count; i++)
        values += (size_t)g->nodes[i]->nout;
    plan->places = wf_arena_alloc(&plan->arena, (nodes + 1) * sizeof *plan->places);
    plan->steps = wf_arena_alloc(&plan->arena, (nodes + 1) * sizeof *plan->steps);
    plan->blocks = wf_arena_alloc(&plan->arena, (nodes + values + 1) * sizeof *plan->blocks);
    p->live = wf_arena_alloc(scratch, nodes + 1);
    p->read = wf_arena_alloc(scratch, (nodes + 1) * sizeof *p->read);
    p->kernel = wf_arena_alloc(scratch, (nodes + 1) * sizeof *p->kernel);
    if (!plan->places || !plan->steps || !plan->blocks || !p->live || !p->read || !p->kernel)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        size_t nout = (size_t)g->nodes[i]->nout;
        plan->places[i] = wf_arena_alloc(&plan->arena, nout * sizeof **plan->places);
        p->read[i] = wf_arena_alloc(scratch, nout);
        if (!plan->places[i] || !p->read[i])
            return WF_ERR_MEMORY;
    }
    return WF_OK;
}

static bool keep_all(const wf_node *n, void *user)
{
    (void)n, (void)user;
    return true;
}

static wf_status make_plan(planner *p, wf_graph *graph, wf_arena *scratch)
{
    wf_plan *plan = p->plan;
    WF_TRY(wf_pass_expand(graph, keep_all, NULL, &plan->graph)); /* verifies, and copies */
    WF_TRY(prepare(p, scratch));
    mark_live(p);
    WF_TRY(plan_nodes(p));
    hold_ports(p);
    return wf_memory_pack(plan->ctx, plan->blocks, plan->block_count, p->device->target.alignment,
                          &plan->region_bytes, &plan->lower_bound);
}

wf_status wf_plan_new(wf_device *device, wf_graph *graph, wf_plan **out)
{
    *out = NULL;
    wf_plan *plan = wf_mem_new(device->ctx, sizeof *plan);
    if (!plan)
        return WF_ERR_MEMORY;
    plan->ctx = device->ctx;
    wf_arena_init(&plan->arena, device->ctx);
    wf_arena scratch;
    wf_arena_init(&scratch, device->ctx);
    planner p = {.plan = plan, .device = device};
    wf_status status = make_plan(&p, graph, &scratch);
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

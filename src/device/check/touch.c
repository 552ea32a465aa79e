/* SPDX-License-Identifier: MIT */
/*
 * touch.c - derives the memory extents of a plan, and which of them every step reads and writes. It
 * uses only steps and places, not the lifetimes that the planner computed: those are under test.
 *
 * Blocks come first among the extents, so extent i is block i; ports and states follow. Touches are
 * stored step by step (touch_first), reads of each value as linked lists (read_first, read_next).
 * An invalid plan fails with WF_ERR_INTERNAL and names the node.
 */
#include "base/check.h"
#include "device/check/check.h"

static const wf_place *place_of(const wf_check_draft *d, const wf_value *v)
{
    return &d->plan->places[v->node->id][v->index];
}

/* A view that became a step was copied and has memory of its own. */
static bool is_shared_view(const wf_check_draft *d, const wf_node *n)
{
    return wf_node_is(n, WF_FLAG_VIEW) && d->step_of[n->id] < 0;
}

const wf_value *wf_check_root(const wf_check_draft *d, const wf_value *v)
{
    while (is_shared_view(d, v->node))
        v = v->node->in[0];
    return v;
}

const wf_value *wf_check_whole(const wf_check_draft *d, const wf_value *root)
{
    const wf_value *whole = d->whole[d->slot[root->node->id] + root->index];
    return whole ? whole : root;
}

int wf_check_extent_of(const wf_check_draft *d, const wf_value *root)
{
    const wf_place *place = place_of(d, root);
    switch (place->kind) {
    case WF_PLACE_REGION: return place->block;
    case WF_PLACE_STATE: return d->extent_of[d->slot[place->state->id]];
    case WF_PLACE_PORT: return d->extent_of[d->slot[root->node->id] + root->index];
    case WF_PLACE_NONE: break;
    }
    return -1;
}

/* ---- Extents ---- */

/* Fails with an error about the memory of n; `what` is the predicate of the sentence. */
static wf_status refuse(const wf_check_draft *d, const wf_node *n, const char *what)
{
    return wf_fail(d->plan->ctx, WF_ERR_INTERNAL, "invalid plan: %s node %d (%s) %s",
                   wf_node_is(n, WF_FLAG_SOURCE) ? "the value of" : "a result or workspace of",
                   n->id, wf_node_def(n)->name, what);
}

/* Adds an extent after checking its bounds and alignment. `low` is the begin of the guard before
 * it. */
static wf_status add_extent(wf_check_draft *d, wf_check_extent x, size_t low)
{
    const wf_target *target = &d->e->head.session->device->target;
    const wf_memory *memory = &d->plan->memory;
    size_t all = x.kind == WF_PLACE_REGION ? memory->activations : memory->ports, bytes;
    x.first = d->plan->step_count; /* no step touches it yet: an empty range */
    x.last = -1;
    if (x.kind != WF_PLACE_STATE) {
        /* low > all is tested first, so all - low cannot wrap. */
        if (low % target->alignment != 0 || x.begin != low + target->guard ||
            !wf_add_size(x.bytes, 2 * target->guard, &bytes) ||
            !wf_align_size(bytes, target->alignment, &bytes) || low > all || bytes > all - low)
            return refuse(d, x.node, "is outside the memory of the plan");
        x.low = low;
        x.high = low + bytes;
    }
    d->check->extents[d->check->extent_count++] = x;
    return WF_OK;
}

static wf_status add_block(wf_check_draft *d, int block, const wf_node *node)
{
    const wf_lifetime *b = &d->plan->blocks[block];
    const wf_block_info *info = &d->plan->block_info[block];
    wf_check_extent x = {.kind = WF_PLACE_REGION,
                         .node = node,
                         .workspace = !info->value,
                         .begin = wf_plan_offset(d->plan, d->e->head.session->device, block),
                         .bytes = info->bytes};
    if (b->bytes == 0) {        /* merged into another block */
        x.kind = WF_PLACE_NONE; /* keeps extent i equal to block i */
        d->check->extents[d->check->extent_count++] = x;
        return WF_OK;
    }
    return add_extent(d, x, b->offset);
}

static wf_status add_blocks(wf_check_draft *d)
{
    const wf_plan *plan = d->plan;
    const wf_node **owner =
        wf_arena_alloc(&d->scratch, (size_t)(plan->block_count + 1) * sizeof *owner);
    if (!owner)
        return WF_ERR_MEMORY;
    for (int s = 0; s < plan->step_count; s++)
        if (plan->steps[s].workspace >= 0)
            owner[plan->steps[s].workspace] = plan->steps[s].node;
    for (int b = 0; b < plan->block_count; b++)
        WF_TRY(add_block(d, b, owner[b] ? owner[b] : plan->block_info[b].value->node));
    return WF_OK;
}

/* Adds the extent of v if it is a port or a state. */
static wf_status add_value(wf_check_draft *d, const wf_value *v)
{
    const wf_place *place = place_of(d, v);
    wf_check_extent x = {.kind = place->kind, .node = v->node};
    size_t low = 0;
    if (wf_node_is(v->node, WF_FLAG_STATE)) {
        x.bytes = d->e->states[v->node->id]->buffer->bytes;
    } else if (place->kind == WF_PLACE_PORT && !is_shared_view(d, v->node)) {
        size_t guard = d->e->head.session->device->target.guard;
        x.begin = place->offset;
        x.bytes = wf_value_bytes(v);
        low = x.begin < guard ? x.begin : x.begin - guard; /* too low: add_extent refuses it */
    } else {
        return WF_OK;
    }
    d->extent_of[d->slot[v->node->id] + v->index] = d->check->extent_count;
    return add_extent(d, x, low);
}

static wf_status find_extents(wf_check_draft *d)
{
    const wf_graph *g = d->plan->graph;
    /* Each block and each value adds at most one. */
    size_t most = (size_t)(d->plan->block_count + d->values) + 1;
    d->check->extents = wf_arena_alloc(&d->e->arena, most * sizeof *d->check->extents);
    if (!d->check->extents)
        return WF_ERR_MEMORY;
    WF_TRY(add_blocks(d));
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            WF_TRY(add_value(d, &g->nodes[i]->out[k]));
    return WF_OK;
}

/* ---- Joined concats ---- */

/* Returns whether operand i is stored at its position in the concat's dense result. Computes
 * strides itself: wf_place_part is under test. */
static bool is_in_place(const wf_check_draft *d, const wf_node *concat, int i)
{
    const wf_attr_axis *a = concat->attr;
    const wf_value *x = concat->in[i], *y = &concat->out[0];
    const wf_place *part = place_of(d, x), *whole = place_of(d, y);
    int64_t first = 0, stride = 1;
    if (part->kind != WF_PLACE_REGION || whole->kind != WF_PLACE_REGION || !whole->dense ||
        whole->first != 0 || part->block != whole->block)
        return false;
    /* Row-major strides of the result, from the last axis up. */
    for (int64_t k = y->shape.n - 1; k >= 0; stride *= y->shape.d[k--]) {
        if (x->shape.d[k] != 1 && part->stride[k] != stride)
            return false;
        for (int before = 0; k == a->axis && before < i; before++)
            first += concat->in[before]->shape.d[k] * stride;
    }
    return part->first == first;
}

/* Checks that every node is a source, a shared view, a step, or a concat whose operands are written
 * in place by steps. Records the parts of such concats. */
static wf_status find_parts(wf_check_draft *d)
{
    const wf_graph *g = d->plan->graph;
    d->parts = 1;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        if (d->step_of[i] >= 0 || wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW))
            continue;
        for (int k = 0; k < n->nin; k++) {
            const wf_value *root = wf_check_root(d, n->in[k]);
            if (n->op != WF_OP_concat || d->step_of[root->node->id] < 0 || !is_in_place(d, n, k))
                return refuse(d, n, "is computed by no step");
            d->whole[d->slot[root->node->id] + root->index] = &n->out[0];
        }
        d->parts = n->nin > d->parts ? n->nin : d->parts;
    }
    return WF_OK;
}

/* ---- Touches ---- */

/* Returns whether all elements of v are inside the memory of its root, or of the concat that the
 * root is part of. */
static bool is_inside(const wf_check_draft *d, const wf_value *v, const wf_value *root)
{
    const wf_place *place = place_of(d, v);
    int64_t last = place->first;
    if (wf_dims_count(&v->shape) == 0)
        return true;
    for (int64_t i = 0; i < v->shape.n; i++)
        /* The largest element offset; strides are not negative. */
        last += (v->shape.d[i] - 1) * place->stride[i];
    return place->first >= 0 && last >= 0 && last < wf_dims_count(&wf_check_whole(d, root)->shape);
}

/* Records that a step touches an extent: one touch per step and extent, whatever the number of
 * operands and results in it. */
static void touch(wf_check_draft *d, int step, int extent, bool written)
{
    wf_check *c = d->check;
    wf_check_extent *x = &c->extents[extent];
    /* x->last == step: only then the extent may already be in this step's list. */
    for (int i = c->touch_first[step]; x->last == step && i < c->touch_first[step + 1]; i++)
        if (c->touches[i].extent == extent) {
            c->touches[i].written |= written;
            return;
        }
    c->touches[c->touch_first[step + 1]++] = (wf_check_touch){extent, written};
    x->touches++;
    x->first = step < x->first ? step : x->first;
    x->last = step;
}

/* Records a read or a write of v, and checks that v is inside its memory. */
static wf_status touch_value(wf_check_draft *d, int step, const wf_value *v, bool written)
{
    const wf_value *root = wf_check_root(d, v);
    int extent = wf_check_extent_of(d, root);
    /* Push the read onto the list of its root. */
    if (!written) {
        int slot = d->slot[root->node->id] + root->index;
        d->reader[d->reads] = step;
        d->read_next[d->reads] = d->read_first[slot];
        d->read_first[slot] = d->reads++;
    }
    if (extent < 0)
        return written ? WF_OK : refuse(d, root->node, "is read, but has no memory");
    size_t bytes = wf_value_bytes(root);
    const wf_check_extent *x = &d->check->extents[extent];
    if (x->kind == WF_PLACE_NONE || !is_inside(d, v, root) ||
        (x->kind != WF_PLACE_STATE && bytes > x->bytes))
        return refuse(d, root->node, "is outside its memory");
    touch(d, step, extent, written);
    return WF_OK;
}

static wf_status touch_all(wf_check_draft *d)
{
    for (int s = 0; s < d->plan->step_count; s++) {
        const wf_step *step = &d->plan->steps[s];
        d->check->touch_first[s + 1] = d->check->touch_first[s];
        for (int i = 0; i < step->node->nin; i++)
            WF_TRY(touch_value(d, s, step->node->in[i], false));
        for (int k = 0; k < step->node->nout; k++)
            WF_TRY(touch_value(d, s, &step->node->out[k], true));
        if (step->workspace >= 0)
            touch(d, s, step->workspace, true);
    }
    return WF_OK;
}

wf_status wf_check_find_touches(wf_check_draft *d)
{
    const wf_plan *plan = d->plan;
    const wf_graph *g = plan->graph;
    wf_arena *arena = &d->scratch;
    size_t nodes = (size_t)g->node_count + 1, reads = 1, results = 1;
    d->slot = wf_arena_alloc(arena, nodes * sizeof *d->slot);
    d->step_of = wf_arena_alloc(arena, nodes * sizeof *d->step_of);
    if (!d->slot || !d->step_of)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        d->slot[i] = d->values;
        d->values += g->nodes[i]->nout;
        d->step_of[i] = -1;
    }
    for (int s = 0; s < plan->step_count; s++) {
        d->step_of[plan->steps[s].node->id] = s;
        reads += (size_t)plan->steps[s].node->nin;
        results += (size_t)plan->steps[s].node->nout + 1; /* + 1 for the workspace */
    }
    size_t values = (size_t)d->values + 1, steps = (size_t)plan->step_count + 1;
    d->extent_of = wf_arena_alloc(arena, values * sizeof *d->extent_of);
    d->whole = wf_arena_alloc(arena, values * sizeof *d->whole);
    d->read_first = wf_arena_alloc(arena, values * sizeof *d->read_first);
    d->read_next = wf_arena_alloc(arena, reads * sizeof *d->read_next);
    d->reader = wf_arena_alloc(arena, reads * sizeof *d->reader);
    wf_check *c = d->check;
    c->touches = wf_arena_alloc(&d->e->arena, (reads + results) * sizeof *c->touches);
    c->touch_first = wf_arena_alloc(&d->e->arena, steps * sizeof *c->touch_first);
    if (!d->extent_of || !d->whole || !d->read_first || !d->read_next || !d->reader ||
        !c->touches || !c->touch_first)
        return WF_ERR_MEMORY;
    /* Every byte 255 is -1 in two's complement. */
    memset(d->extent_of, -1, values * sizeof *d->extent_of);
    memset(d->read_first, -1, values * sizeof *d->read_first);
    WF_TRY(find_extents(d));
    WF_TRY(find_parts(d));
    return touch_all(d);
}

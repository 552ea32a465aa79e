/* SPDX-License-Identifier: MIT */
/*
 * order.c - derives order constraints between the steps of a plan, and draws random orders that
 * satisfy them. There are three kinds of constraint:
 *
 *   - a step runs after the steps whose results it reads;
 *   - a step that overwrites a value (a new version of a state, or an output in place) runs after
 *     the readers of the old value;
 *   - if two blocks share bytes of the region, the steps that touch the earlier one run before the
 *     steps that touch the later one.
 *
 * A plan whose own order violates a constraint is invalid.
 */
#include "device/check/check.h"

/* Step or lifetime `from` comes before `to`. */
typedef struct {
    int from, to;
} edge;

/* Bytes [low, high) of the region or of the ports, and the extent that used them last. */
typedef struct {
    size_t low, high;
    int extent;
} piece;

typedef struct {
    wf_check_draft *d;
    edge *edges;
    int edge_count;
    piece *pieces; /* sorted by address, not overlapping */
    int piece_count;
} orderer;

static const wf_node *node_of(const orderer *o, int step)
{
    return o->d->plan->steps[step].node;
}

static const char *op_of(const wf_node *n)
{
    return wf_node_def(n)->name;
}

static void add_edge(orderer *o, int from, int to)
{
    o->edges[o->edge_count++] = (edge){from, to};
}

/* Nodes of the constraint graph for the begin and end of a block's lifetime. */
static int life_begins(const orderer *o, int block)
{
    return o->d->plan->step_count + 2 * block;
}

static int life_ends(const orderer *o, int block)
{
    return life_begins(o, block) + 1;
}

/* ---- Reads and overwrites ---- */

/* Adds the constraint that `made_by` runs before `step`. A source has no step. */
static wf_status order_read(orderer *o, int step, const wf_node *made_by)
{
    const wf_node *n = node_of(o, step);
    int writer = o->d->step_of[made_by->id];
    if (writer >= step)
        return wf_fail(o->d->plan->ctx, WF_ERR_INTERNAL,
                       "invalid plan: node %d (%s) runs before node %d (%s), whose result it reads",
                       n->id, op_of(n), made_by->id, op_of(made_by));
    if (writer >= 0)
        add_edge(o, writer, step);
    return WF_OK;
}

/* A joined concat is not a step: its readers wait for its parts. */
static wf_status order_reads(orderer *o, int step)
{
    const wf_node *n = node_of(o, step);
    for (int i = 0; i < n->nin; i++) {
        const wf_node *of = wf_check_root(o->d, n->in[i])->node;
        bool parts = o->d->step_of[of->id] < 0 && !wf_node_is(of, WF_FLAG_SOURCE);
        for (int k = 0; parts && k < of->nin; k++)
            WF_TRY(order_read(o, step, wf_check_root(o->d, of->in[k])->node));
        if (!parts)
            WF_TRY(order_read(o, step, of));
    }
    return WF_OK;
}

/* Adds the constraints of `step` overwriting the value of `slot`, written by step `writer`; -1:
 * written before the run. */
static wf_status order_overwrite(orderer *o, int step, int slot, int writer)
{
    const wf_node *n = node_of(o, step);
    if (writer >= step)
        return wf_fail(o->d->plan->ctx, WF_ERR_INTERNAL,
                       "invalid plan: node %d (%s) has two results in one place", n->id, op_of(n));
    if (writer >= 0)
        add_edge(o, writer, step);
    for (int r = o->d->read_first[slot]; r >= 0; r = o->d->read_next[r]) {
        int reader = o->d->reader[r];
        if (reader > step)
            return wf_fail(o->d->plan->ctx, WF_ERR_INTERNAL,
                           "invalid plan: node %d (%s) overwrites a value that node %d (%s) still "
                           "has to read",
                           n->id, op_of(n), node_of(o, reader)->id, op_of(node_of(o, reader)));
        if (reader < step)
            add_edge(o, reader, step);
    }
    return WF_OK;
}

/* Follows which value each extent holds, in plan order. A write of another value to it is an
 * overwrite: it must come after the old value's writer and readers. */
static wf_status order_values(orderer *o)
{
    wf_check_draft *d = o->d;
    size_t extents = (size_t)d->check->extent_count + 1;
    /* [extent] 1 + slot of the value that it holds; 0: unused. */
    int *holds = wf_arena_alloc(&d->scratch, extents * sizeof *holds);
    /* [extent] the step that wrote it last. */
    int *writer = wf_arena_alloc(&d->scratch, extents * sizeof *writer);
    if (!holds || !writer)
        return WF_ERR_MEMORY;
    /* States hold version 0 before the first step. */
    for (int x = 0; x < d->check->extent_count; x++)
        if (d->check->extents[x].kind == WF_PLACE_STATE) {
            holds[x] = 1 + d->slot[d->check->extents[x].node->id];
            writer[x] = -1;
        }
    for (int s = 0; s < d->plan->step_count; s++) {
        const wf_node *n = node_of(o, s);
        WF_TRY(order_reads(o, s));
        for (int k = 0; k < n->nout; k++) {
            int x = wf_check_extent_of(d, &n->out[k]);
            if (x < 0)
                continue;
            const wf_value *whole = wf_check_whole(d, &n->out[k]);
            int slot = d->slot[whole->node->id] + whole->index;
            if (holds[x] > 0 && holds[x] != 1 + slot) /* equal: another part of a concat */
                WF_TRY(order_overwrite(o, s, holds[x] - 1, writer[x]));
            holds[x] = 1 + slot;
            writer[x] = s;
        }
    }
    return WF_OK;
}

/* ---- Memory ---- */

/* Extent x reuses bytes of extent `before`: its lifetime begins after that of `before` ends. */
static wf_status succeed(orderer *o, int before, int x)
{
    const wf_check_extent *a = &o->d->check->extents[before], *b = &o->d->check->extents[x];
    if (b->kind == WF_PLACE_PORT || a->last >= b->first) /* ports are never shared */
        return wf_fail(o->d->plan->ctx, WF_ERR_INTERNAL,
                       "invalid plan: %s of node %d (%s) and %s of node %d (%s) share memory while "
                       "both are in use",
                       a->workspace ? "the workspace" : "a value", a->node->id, op_of(a->node),
                       b->workspace ? "the workspace" : "a value", b->node->id, op_of(b->node));
    add_edge(o, life_ends(o, before), life_begins(o, x));
    return WF_OK;
}

/* Records x as the last user of its bytes. Only the last user of each byte matters: it already
 * comes after all earlier users. */
static wf_status claim(orderer *o, int x)
{
    const wf_check_extent *b = &o->d->check->extents[x];
    int i = 0, end;
    while (i < o->piece_count && o->pieces[i].high <= b->low)
        i++;
    for (end = i; end < o->piece_count && o->pieces[end].low < b->high; end++)
        WF_TRY(succeed(o, o->pieces[end].extent, x));
    /* Replaces the overlapped pieces by at most three: what is left of the first, x, what is left
     * of the last. */
    piece now[3];
    int n = 0;
    if (end > i && o->pieces[i].low < b->low)
        now[n++] = (piece){o->pieces[i].low, b->low, o->pieces[i].extent};
    now[n++] = (piece){b->low, b->high, x};
    if (end > i && o->pieces[end - 1].high > b->high)
        now[n++] = (piece){b->high, o->pieces[end - 1].high, o->pieces[end - 1].extent};
    memmove(o->pieces + i + n, o->pieces + end, (size_t)(o->piece_count - end) * sizeof *now);
    memcpy(o->pieces + i, now, (size_t)n * sizeof *now);
    o->piece_count += n - (end - i);
    return WF_OK;
}

static wf_status order_memory(orderer *o)
{
    const wf_check *c = o->d->check;
    /* Ports all live during the whole run: claim fails if two overlap. */
    for (int x = 0; x < c->extent_count; x++)
        if (c->extents[x].kind == WF_PLACE_PORT)
            WF_TRY(claim(o, x));
    o->piece_count = 0;
    for (int s = 0; s < o->d->plan->step_count; s++)
        for (int i = c->touch_first[s]; i < c->touch_first[s + 1]; i++) {
            int x = c->touches[i].extent;
            if (c->extents[x].kind != WF_PLACE_REGION)
                continue;
            if (c->extents[x].first == s)
                WF_TRY(claim(o, x));
            add_edge(o, life_begins(o, x), s);
            add_edge(o, s, life_ends(o, x));
        }
    return WF_OK;
}

/* ---- The constraint graph ---- */

/* Converts the list of edges to adjacency lists, by counting. */
static wf_status build_graph(orderer *o)
{
    wf_check_graph *g = &o->d->check->graph;
    wf_arena *arena = &o->d->e->arena;
    g->steps = o->d->plan->step_count;
    g->nodes = g->steps + 2 * o->d->plan->block_count;
    g->first = wf_arena_alloc(arena, (size_t)(g->nodes + 2) * sizeof *g->first);
    g->next = wf_arena_alloc(arena, (size_t)(o->edge_count + 1) * sizeof *g->next);
    g->waits = wf_arena_alloc(arena, (size_t)(g->nodes + 1) * sizeof *g->waits);
    g->left = wf_arena_alloc(arena, (size_t)(g->nodes + 1) * sizeof *g->left);
    g->ready = wf_arena_alloc(arena, (size_t)(g->steps + 1) * sizeof *g->ready);
    if (!g->first || !g->next || !g->waits || !g->left || !g->ready)
        return WF_ERR_MEMORY;
    for (int i = 0; i < o->edge_count; i++) {
        g->first[o->edges[i].from + 2]++;
        g->waits[o->edges[i].to]++;
    }
    for (int i = 1; i <= g->nodes; i++)
        g->first[i + 1] += g->first[i];
    /* Advances first[i + 1] from the begin to the end of list i. */
    for (int i = 0; i < o->edge_count; i++)
        g->next[g->first[o->edges[i].from + 1]++] = o->edges[i].to;
    return WF_OK;
}

wf_status wf_check_find_order(wf_check_draft *d)
{
    const wf_check *c = d->check;
    orderer o = {.d = d};
    /* Upper bound on edges. A value is overwritten at most once, after each of its readers. A claim
     * adds at most two more pieces than it removes, and keeps at most two of those that it
     * overlaps. */
    size_t edges = ((size_t)d->parts + 1) * (size_t)d->reads + (size_t)d->values +
                   2 * (size_t)c->touch_first[d->plan->step_count] + 4 * (size_t)c->extent_count;
    o.edges = wf_arena_alloc(&d->scratch, (edges + 1) * sizeof *o.edges);
    o.pieces = wf_arena_alloc(&d->scratch, (size_t)(2 * c->extent_count + 4) * sizeof *o.pieces);
    if (!o.edges || !o.pieces)
        return WF_ERR_MEMORY;
    WF_TRY(order_values(&o));
    WF_TRY(order_memory(&o));
    wf_assert((size_t)o.edge_count <= edges);
    return build_graph(&o);
}

/* ---- Drawing an order ---- */

/* Handles a node without predecessors left. A step becomes ready to be drawn; the begin or end of a
 * lifetime happens at once. Recursion is at most three deep: a lifetime ends, another begins, a
 * step becomes ready. */
static void release(wf_check_graph *g, int node)
{
    if (node < g->steps) {
        g->ready[g->ready_count++] = node;
        return;
    }
    for (int i = g->first[node]; i < g->first[node + 1]; i++)
        if (--g->left[g->next[i]] == 0)
            release(g, g->next[i]);
}

/* Kahn's algorithm with a random choice. Every legal order can be drawn. */
void wf_check_draw(wf_check *c, uint64_t seed, uint64_t stream)
{
    wf_check_graph *g = &c->graph;
    wf_rng rng;
    wf_rng_init(&rng, seed, stream);
    memcpy(g->left, g->waits, (size_t)g->nodes * sizeof *g->left);
    g->ready_count = 0;
    for (int i = 0; i < g->nodes; i++)
        if (g->waits[i] == 0)
            release(g, i);
    for (int drawn = 0; drawn < g->steps; drawn++) {
        /* A cycle would be a bug of this file: plan order satisfies all constraints. */
        wf_assert(g->ready_count > 0);
        int at = (int)wf_rng_below(&rng, (uint64_t)g->ready_count), step = g->ready[at];
        g->ready[at] = g->ready[--g->ready_count];
        c->order[drawn] = step;
        for (int i = g->first[step]; i < g->first[step + 1]; i++)
            if (--g->left[g->next[i]] == 0)
                release(g, g->next[i]);
    }
}

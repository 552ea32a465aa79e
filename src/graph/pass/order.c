/* SPDX-License-Identifier: MIT */
/*
 * order.c - dependencies between nodes, legal orders and their peak memory; see order.h.
 *
 * Edges are stored as compressed rows (first[], after[]), built in two passes over the nodes:
 * O(nodes + operands).
 */
#include "graph/pass/order.h"

#include <limits.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/philox.h"

/* ---- Dependencies ---- */

/* Lists edges in two passes: the first counts them, the second (`fill`) stores them. A node that
 * reads a state version through views counts as its reader, as in the verifier. */
typedef struct {
    const wf_graph *g;
    const wf_uses *uses;
    int *writer; /* [slot] node that writes the next version of a state, else INT_MAX */
    wf_edges *e;
    bool fill;
} edge_lister;

/* Counting and filling are the same walk: `first` counts in the first one and is the insert
 * position in the second. */
static void add_edge(edge_lister *l, int from, int to)
{
    wf_edges *e = l->e;
    if (from == to) /* an update reads its own state: no edge to itself */
        return;
    if (l->fill) {
        e->after[e->first[from + 1]] = to;
        e->waits[to]++;
    }
    e->first[from + 1]++;
}

static void list_edges(edge_lister *l)
{
    for (int i = 0; i < l->g->node_count; i++) {
        const wf_node *n = l->g->nodes[i];
        for (int k = 0; k < n->nin; k++) {
            const wf_value *root = wf_uses_root(l->uses, n->in[k]);
            int writer = l->writer[wf_uses_slot(l->uses, root)];
            add_edge(l, n->in[k]->node->id, i);
            /* Readers of version n run before the writer of version n + 1. */
            if (writer != INT_MAX)
                add_edge(l, i, writer);
        }
    }
}

static wf_status fill_edges(const wf_graph *g, const wf_uses *uses, wf_edges *e)
{
    size_t n = (size_t)g->node_count;
    edge_lister l = {.g = g, .uses = uses, .e = e};
    l.writer = wf_mem_array(g->ctx, (size_t)uses->values + 1, sizeof *l.writer);
    e->first = wf_mem_array(g->ctx, n + 2, sizeof *e->first);
    e->waits = wf_mem_array(g->ctx, n + 1, sizeof *e->waits);
    wf_status status = WF_ERR_MEMORY;
    if (l.writer && e->first && e->waits) {
        wf_uses_find_writers(uses, g, l.writer);
        /* Afterwards first[i + 1] is the number of edges of node i. */
        list_edges(&l);
        for (size_t i = 0; i < n; i++)
            e->first[i + 1] += e->first[i];
        e->after = wf_mem_array(g->ctx, (size_t)e->first[n] + 1, sizeof *e->after);
        if (e->after) {
            /* first[i + 1] = start of i; filling moves it to the end of i. */
            for (size_t i = n; i > 0; i--)
                e->first[i] = e->first[i - 1];
            l.fill = true;
            list_edges(&l);
            status = WF_OK;
        }
    }
    wf_mem_free(g->ctx, l.writer);
    return status;
}

wf_status wf_edges_new(const wf_graph *g, wf_edges *out)
{
    wf_uses uses;
    *out = (wf_edges){.ctx = g->ctx, .count = g->node_count};
    WF_TRY(wf_uses_new(g, &uses));
    wf_status status = fill_edges(g, &uses, out);
    wf_uses_free(&uses);
    if (status != WF_OK)
        wf_edges_free(out);
    return status;
}

void wf_edges_free(wf_edges *e)
{
    wf_mem_free(e->ctx, e->first);
    wf_mem_free(e->ctx, e->after);
    wf_mem_free(e->ctx, e->waits);
    *e = (wf_edges){.ctx = e->ctx};
}

/* ---- Peak memory ---- */

/* Simulates a run: results become live when their node runs and die after their last reader.
 * Ignores in-place results and fragmentation, so the planner may need less or more. */
wf_status wf_order_peak(const wf_graph *g, const int *order, const wf_target *target,
                        uint64_t *peak)
{
    wf_uses uses;
    uint64_t live = 0;
    WF_TRY(wf_uses_new(g, &uses));
    size_t values = (size_t)uses.values + 1;
    int *reads = wf_mem_array(g->ctx, values, sizeof *reads); /* [slot] reads still to come */
    size_t *bytes = wf_mem_array(g->ctx, values, sizeof *bytes);
    wf_status status = reads && bytes ? WF_OK : WF_ERR_MEMORY;
    *peak = 0;
    for (int i = 0; i < g->node_count && status == WF_OK; i++) {
        const wf_node *n = g->nodes[i];
        for (int k = 0; k < n->nin; k++)
            reads[wf_uses_slot(&uses, wf_uses_root(&uses, n->in[k]))]++;
        /* Updates write into states, which do not count. */
        bool counted = !wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE);
        for (int k = 0; k < n->nout && counted; k++) {
            const wf_value *v = &n->out[k];
            /* Unread results get no memory, outputs lie in ports. */
            if (wf_uses_count(&uses, v) > 0 && !wf_uses_is_output(&uses, v) &&
                !wf_align_size(wf_value_bytes(v), target->alignment,
                               &bytes[wf_uses_slot(&uses, v)]))
                status = wf_fail(g->ctx, WF_ERR_MEMORY,
                                 "the values of this graph exceed the address space");
        }
    }
    for (int i = 0; i < g->node_count && status == WF_OK; i++) {
        const wf_node *n = g->nodes[order ? order[i] : i];
        /* Before the operands die: both exist while the node runs. */
        for (int k = 0; k < n->nout; k++)
            live += bytes[wf_uses_slot(&uses, &n->out[k])];
        bool runs = target->workspace && !wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW);
        uint64_t used = live + (runs ? target->workspace(target, n) : 0);
        *peak = used > *peak ? used : *peak;
        for (int k = 0; k < n->nin; k++) {
            int s = wf_uses_slot(&uses, wf_uses_root(&uses, n->in[k]));
            if (--reads[s] == 0) /* the last read, also through views */
                live -= bytes[s];
        }
    }
    wf_mem_free(g->ctx, reads);
    wf_mem_free(g->ctx, bytes);
    wf_uses_free(&uses);
    return status;
}

/* ---- Sorting ---- */

wf_status wf_order_sources(wf_graph *g)
{
    int *order = wf_mem_array(g->ctx, (size_t)g->node_count + 1, sizeof *order), n = 0;
    if (!order)
        return WF_ERR_MEMORY;
    for (int sources = 1; sources >= 0; sources--) /* two stable passes: sources, then all others */
        for (int i = 0; i < g->node_count; i++)
            if (wf_node_is(g->nodes[i], WF_FLAG_SOURCE) == (sources == 1))
                order[n++] = i;
    wf_status status = wf_graph_reorder(g, order);
    wf_mem_free(g->ctx, order);
    return status;
}

/* A min-heap of node ids: heap[0] is the smallest, the children of i are 2i + 1 and 2i + 2. */
static void heap_push(int *heap, int *n, int id)
{
    int at = (*n)++;
    for (; at > 0 && heap[(at - 1) / 2] > id; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = id;
}

static int heap_pop(int *heap, int *n)
{
    int top = heap[0], last = heap[--*n], at = 0;
    for (int child = 1; child < *n; child = 2 * at + 1) {
        if (child + 1 < *n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

/* Kahn's algorithm; the heap picks the ready node that comes first in the old order. */
wf_status wf_order_sort(wf_graph *g)
{
    wf_edges e;
    int ready = 0, done = 0;
    WF_TRY(wf_edges_new(g, &e));
    int *heap = wf_mem_array(g->ctx, 2 * (size_t)e.count + 1, sizeof *heap);
    if (!heap) {
        wf_edges_free(&e);
        return WF_ERR_MEMORY;
    }
    int *order = heap + e.count; /* the second half of the array */
    for (int i = 0; i < e.count; i++)
        if (e.waits[i] == 0)
            heap_push(heap, &ready, i);
    while (ready > 0) {
        int i = heap_pop(heap, &ready);
        order[done++] = i;
        for (int k = e.first[i]; k < e.first[i + 1]; k++)
            if (--e.waits[e.after[k]] == 0)
                heap_push(heap, &ready, e.after[k]);
    }
    wf_status status = WF_OK;
    if (done < e.count) /* nodes on a cycle never become ready */
        status = wf_fail(g->ctx, WF_ERR_INTERNAL, "order: %d nodes are on a cycle or behind one",
                         e.count - done);
    if (status == WF_OK)
        status = wf_graph_reorder(g, order);
    wf_mem_free(g->ctx, heap);
    wf_edges_free(&e);
    return status;
}

/* ---- Random order ---- */

/* Kahn's algorithm with a random choice among the ready nodes. */
wf_status wf_order_shuffle(wf_graph *g, uint64_t seed)
{
    wf_edges e;
    wf_rng rng;
    int ready = 0, done = 0;
    WF_TRY(wf_edges_new(g, &e));
    wf_rng_init(&rng, seed, 0);
    int *list = wf_mem_array(g->ctx, 2 * (size_t)e.count + 1, sizeof *list),
        *order = list + e.count; /* computed before the check, used after it */
    if (!list) {
        wf_edges_free(&e);
        return WF_ERR_MEMORY;
    }
    for (int i = 0; i < e.count; i++)
        if (e.waits[i] == 0)
            list[ready++] = i;
    while (ready > 0) {
        int pick = (int)wf_rng_below(&rng, (uint64_t)ready), i = list[pick];
        list[pick] = list[--ready];
        order[done++] = i;
        for (int k = e.first[i]; k < e.first[i + 1]; k++)
            if (--e.waits[e.after[k]] == 0)
                list[ready++] = e.after[k];
    }
    wf_assert(done == e.count); /* the graph has no cycles: it was in a legal order before */
    wf_status status = wf_graph_reorder(g, order);
    wf_mem_free(g->ctx, list);
    wf_edges_free(&e);
    return status == WF_OK ? WF_VERIFY(g) : status;
}

/* SPDX-License-Identifier: MIT */
/*
 * rewrite.c - lists of uses, and rewrites that take effect all at once; see rewrite.h.
 *
 * During a rewrite, old nodes keep their ids and order, and new nodes are appended behind them. So
 * arrays indexed by id or slot stay valid until wf_rewrite_end, which moves everything at once.
 */
#include "graph/pass/rewrite.h"

#include <limits.h>
#include <string.h>

#include "base/mem.h"

/* ---- Uses ---- */

/* Counts the uses of each value in first[slot + 1], or with `fill` stores them there. Uses are in
 * the order of the readers; graph outputs come last, where wf_uses_is_output looks for them. */
static void each_use(const wf_graph *g, wf_uses *u, bool fill)
{
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i]->nin; k++) {
            int *end = &u->first[wf_uses_slot(u, g->nodes[i]->in[k]) + 1];
            if (fill)
                u->use[*end] = (wf_use){g->nodes[i], k};
            ++*end;
        }
    for (int i = 0; i < g->output_count; i++) {
        int *end = &u->first[wf_uses_slot(u, g->outputs[i].value) + 1];
        if (fill)
            u->use[*end] = (wf_use){NULL, i};
        ++*end;
    }
}

/* Sets root[] of views. Works for unsorted graphs too: walks each chain up to a view whose root is
 * known. */
static void find_roots(const wf_graph *g, wf_uses *u)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_value *v = &g->nodes[i]->out[0];
        while (wf_node_is(v->node, WF_FLAG_VIEW))
            v = u->root[v->node->id] ? u->root[v->node->id] : v->node->in[0];
        if (wf_node_is(g->nodes[i], WF_FLAG_VIEW))
            u->root[i] = v;
    }
}

static wf_status list_uses(const wf_graph *g, wf_uses *u)
{
    u->slot = wf_mem_array(g->ctx, (size_t)g->node_count + 1, sizeof *u->slot);
    u->root = wf_mem_array(g->ctx, (size_t)g->node_count + 1, sizeof *u->root);
    if (!u->slot || !u->root)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++) {
        u->slot[i] = u->values;
        u->values += g->nodes[i]->nout;
    }
    find_roots(g, u);
    u->first = wf_mem_array(g->ctx, (size_t)u->values + 2, sizeof *u->first);
    if (!u->first)
        return WF_ERR_MEMORY;
    /* Afterwards first[s + 1] is the number of uses of s. */
    each_use(g, u, false);
    for (int s = 0; s < u->values; s++)
        u->first[s + 1] += u->first[s];
    u->use = wf_mem_array(g->ctx, (size_t)u->first[u->values] + 1, sizeof *u->use);
    if (!u->use)
        return WF_ERR_MEMORY;
    /* first[s + 1] = start of s. Filling moves it to the end of s, which is the start of s + 1. */
    memmove(u->first + 1, u->first, (size_t)u->values * sizeof *u->first);
    each_use(g, u, true);
    return WF_OK;
}

wf_status wf_uses_new(const wf_graph *g, wf_uses *out)
{
    *out = (wf_uses){.ctx = g->ctx};
    wf_status status = list_uses(g, out);
    if (status != WF_OK)
        wf_uses_free(out);
    return status;
}

void wf_uses_free(wf_uses *u)
{
    wf_mem_free(u->ctx, u->slot);
    wf_mem_free(u->ctx, u->first);
    wf_mem_free(u->ctx, u->use);
    wf_mem_free(u->ctx, (void *)u->root); /* free takes no const */
    *u = (wf_uses){.ctx = u->ctx};
}

bool wf_uses_is_output(const wf_uses *u, const wf_value *v)
{
    int n = wf_uses_count(u, v);
    return n > 0 && !wf_uses_of(u, v)[n - 1].node;
}

void wf_uses_find_writers(const wf_uses *u, const wf_graph *g, int *writer)
{
    for (int s = 0; s < u->values; s++)
        writer[s] = INT_MAX;
    /* Versions are linear, so each version has at most one writer. */
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; wf_node_is(g->nodes[i], WF_FLAG_UPDATE) && k < g->nodes[i]->nout; k++)
            writer[wf_uses_slot(u, g->nodes[i]->in[k])] = i;
}

/* ---- Rewrites ---- */

/* On failure everything is freed, and *out must not be used. */
wf_status wf_rewrite_begin(wf_graph *g, wf_rewrite *out)
{
    wf_rewrite r = {.g = g, .count = g->node_count};
    wf_status status = wf_uses_new(g, &r.uses);
    if (status == WF_OK) {
        r.instead = wf_mem_array(g->ctx, (size_t)r.uses.values + 1, sizeof *r.instead);
        r.drop = wf_mem_array(g->ctx, (size_t)r.count + 1, sizeof *r.drop);
        r.span_cap = 16;
        r.before = wf_mem_array(g->ctx, (size_t)r.span_cap, sizeof *r.before);
        r.first = wf_mem_array(g->ctx, (size_t)r.span_cap + 1, sizeof *r.first);
        if (!r.instead || !r.drop || !r.before || !r.first)
            status = WF_ERR_MEMORY;
        else
            wf_rewrite_before(&r, NULL); /* default place of new nodes */
    }
    *out = r;
    return status == WF_OK ? WF_OK : wf_rewrite_end(out, status);
}

/* Makes room for one more span. On failure, sets the graph's status, which wf_rewrite_end
 * returns. */
static bool grow_spans(wf_rewrite *r)
{
    if (r->spans < r->span_cap)
        return true;
    size_t cap = 2 * (size_t)r->span_cap;
    int *before = wf_mem_grow(r->g->ctx, r->before, cap * sizeof *before);
    /* Keep the old array on failure: wf_rewrite_end frees it. */
    r->before = before ? before : r->before;
    int *first = wf_mem_grow(r->g->ctx, r->first, (cap + 1) * sizeof *first);
    r->first = first ? first : r->first;
    if (!before || !first) {
        wf_graph_fail(r->g, WF_ERR_MEMORY, "%s", r->g->ctx->message);
        return false;
    }
    r->span_cap = (int)cap;
    return true;
}

/* A span is a run of consecutive new nodes with one place. Adding nodes after this call extends the
 * last span. */
void wf_rewrite_before(wf_rewrite *r, const wf_node *n)
{
    int id = n ? n->id : r->count;
    wf_assert(id <= r->count);
    if (r->spans > 0 && r->first[r->spans - 1] == r->g->node_count) {
        r->before[r->spans - 1] = id; /* the last span is empty: reuse it */
        return;
    }
    if (!grow_spans(r))
        return;
    r->before[r->spans] = id;
    r->first[r->spans++] = r->g->node_count;
}

void wf_rewrite_take_back(wf_rewrite *r)
{
    wf_assert(r->spans > 0);
    /* Nodes live in the arena: they are only forgotten. */
    r->g->node_count = r->first[r->spans - 1];
}

wf_value *wf_rewrite_now(const wf_rewrite *r, wf_value *v)
{
    /* New nodes have no slot and are never replaced. */
    while (v && v->node->id < r->count && r->instead[wf_uses_slot(&r->uses, v)])
        v = r->instead[wf_uses_slot(&r->uses, v)];
    return v;
}

void wf_rewrite_replace(wf_rewrite *r, const wf_value *old, wf_value *by)
{
    if (!by)
        return; /* building it failed; the graph holds the error */
    wf_assert(old->type == by->type && wf_dims_equal(&old->shape, &by->shape));
    wf_assert(wf_rewrite_now(r, by) != old); /* a cycle of replacements would not end */
    r->instead[wf_uses_slot(&r->uses, old)] = by;
    /* Marks go to the final replacement, except WF_MARK_FOLDED, which concerns `old` alone. */
    wf_rewrite_now(r, by)->marks |= old->marks & ~(uint32_t)WF_MARK_FOLDED;
    r->changes++;
}

void wf_rewrite_drop(wf_rewrite *r, const wf_node *n)
{
    wf_assert(n->id < r->count);
    r->drop[n->id] = true;
    r->changes++;
}

/* Applies all replacements and puts the nodes into their final order. Stable: old nodes keep their
 * order, and so do new nodes of the same place. */
static wf_status settle(wf_rewrite *r)
{
    wf_graph *g = r->g;
    int n = g->node_count, at = 0;
    /* New nodes may read replaced values, too: go over all nodes. */
    for (int i = 0; i < n; i++)
        for (int k = 0; k < g->nodes[i]->nin; k++)
            g->nodes[i]->in[k] = wf_rewrite_now(r, g->nodes[i]->in[k]);
    for (int i = 0; i < g->output_count; i++)
        g->outputs[i].value = wf_rewrite_now(r, g->outputs[i].value);

    /* One linked list of spans per place, in the order in which they were made. head, tail and next
     * hold span index + 1; 0 ends a list. */
    int *head = wf_mem_array(g->ctx, 2 * ((size_t)r->count + 1) + (size_t)r->spans, sizeof *head);
    wf_node **nodes = wf_mem_array(g->ctx, (size_t)n + 1, sizeof *nodes);
    if (!head || !nodes) {
        wf_mem_free(g->ctx, head);
        wf_mem_free(g->ctx, nodes);
        return WF_ERR_MEMORY;
    }
    int *tail = head + r->count + 1, *next = tail + r->count + 1;
    r->first[r->spans] = n; /* the end of the last span */
    for (int s = 0; s < r->spans; s++) {
        int place = r->before[s];
        if (tail[place])
            next[tail[place] - 1] = s + 1;
        else
            head[place] = s + 1;
        tail[place] = s + 1;
    }
    for (int i = 0; i <= r->count; i++) {
        for (int s = head[i]; s; s = next[s - 1])
            for (int k = r->first[s - 1]; k < r->first[s]; k++)
                nodes[at++] = g->nodes[k];
        if (i < r->count && !r->drop[i])
            nodes[at++] = g->nodes[i];
    }
    /* Ids change only now: everything above reads the old ones. */
    for (int i = 0; i < at; i++)
        nodes[i]->id = i;
    if (at > 0)
        memcpy(g->nodes, nodes, (size_t)at * sizeof *nodes);
    g->node_count = at;
    wf_mem_free(g->ctx, head);
    wf_mem_free(g->ctx, nodes);
    return WF_OK;
}

wf_status wf_rewrite_end(wf_rewrite *r, wf_status status)
{
    wf_graph *g = r->g;
    if (status == WF_OK)
        status = g->status;
    if (status == WF_OK)
        status = settle(r);
    wf_uses_free(&r->uses);
    wf_mem_free(g->ctx, r->instead);
    wf_mem_free(g->ctx, r->drop);
    wf_mem_free(g->ctx, r->before);
    wf_mem_free(g->ctx, r->first);
    if (status != WF_OK) /* the graph holds a mix of old and new nodes, or lacks some */
        wf_graph_fail(g, status, "%s", g->ctx->message);
    return status;
}

/* order[] is a permutation of the node ids. Values do not move. */
wf_status wf_graph_reorder(wf_graph *g, const int *order)
{
    size_t n = (size_t)g->node_count;
    wf_node **nodes = wf_mem_array(g->ctx, n + 1, sizeof *nodes);
    if (!nodes)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < n; i++)
        nodes[i] = g->nodes[order[i]];
    for (size_t i = 0; i < n; i++) {
        g->nodes[i] = nodes[i];
        nodes[i]->id = (int)i;
    }
    wf_mem_free(g->ctx, nodes);
    return WF_OK;
}

/* ---- Dead nodes ---- */

wf_status wf_graph_prune(wf_graph *g, int *dropped)
{
    bool *live = wf_mem_array(g->ctx, (size_t)g->node_count + 1, sizeof *live);
    if (!live)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->output_count; i++)
        live[g->outputs[i].value->node->id] = true;
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        /* Inputs and states stay: the caller may write or read them by name. */
        live[i] |= wf_node_is(n, WF_FLAG_UPDATE | WF_FLAG_SOURCE);
        for (int k = 0; live[i] && k < n->nin; k++)
            live[n->in[k]->node->id] = true;
    }
    int at = 0, count = g->node_count;
    for (int i = 0; i < count; i++)
        if (live[i]) {
            g->nodes[at] = g->nodes[i];
            g->nodes[at]->id = at;
            at++;
        }
    g->node_count = at;
    *dropped = count - at;
    wf_mem_free(g->ctx, live);
    return WF_OK;
}

/* A copy is an expansion that keeps every node. */
static bool keep_all(const wf_node *n, void *user)
{
    (void)n, (void)user;
    return true;
}

wf_status wf_graph_copy(wf_graph *from, wf_graph **out)
{
    return wf_pass_expand(from, keep_all, NULL, out);
}

/* SPDX-License-Identifier: MIT */
/*
 * schedule.c - an order of the nodes that needs less memory at one time.
 *
 * Two orders are tried. Greedy: of the nodes that could run, the one that frees most, or takes least.
 * Eager: as written, but nodes that take no memory run as soon as they can. The latter leaves what is
 * recomputed where it is needed, which the former does as soon as its operands are there, and has each
 * update follow its gradient. Constants, and what a few nodes make of constants and states, could run at
 * any time: such nodes are put right before their first reader. The graph stays as it is unless the
 * better of the two saves a hundredth.
 */
#include "base/mem.h"
#include "graph/pass/order.h"
#include "graph/pass/pass.h"

/* How often the node that is being asked about reads a value. */
typedef struct {
    int asked, times;
} reader;

typedef struct {
    const wf_graph *g;
    wf_edges e;
    wf_uses uses;
    uint8_t *lazy;  /* [node] reads constants and states only, through so many nodes; 0: or else */
    int *reads;     /* [slot] of roots: readers still to come */
    int64_t *bytes; /* [slot] of roots: what they take; 0 where that does not depend on the order */
    reader *by;     /* [slot] of roots */
    int asked;      /* questions so far */
    int *ready;     /* nodes that could run */
    int ready_count;
    int *order;
    int count;   /* ordered so far */
    int *anchor; /* [node] of lazy ones: the node before which they go, by its place in order */
} scheduler;

static int slot(const scheduler *s, const wf_value *v)
{
    return wf_uses_slot(&s->uses, v);
}

/* More than there is memory, yet so little that sums over all operands of a node stay in range. */
#define MOST_BYTES (INT64_MAX / (WF_MANY + WF_MAX_OUT))

/* Longer chains that start from states are computations like any other. */
#define MOST_LAZY 3

static int laziness(const scheduler *s, const wf_node *n)
{
    int depth = 0;
    if (wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_UPDATE))
        return 0;
    for (int k = 0; k < n->nout; k++)
        if (wf_uses_is_output(&s->uses, &n->out[k]))
            return 0;
    for (int k = 0; k < n->nin; k++) {
        const wf_node *from = n->in[k]->node;
        if (!wf_node_is(from, WF_FLAG_STATE) && !s->lazy[from->id])
            return 0;
        depth = s->lazy[from->id] > depth ? s->lazy[from->id] : depth;
    }
    return depth < MOST_LAZY ? depth + 1 : 0;
}

static void measure(scheduler *s)
{
    for (int i = 0; i < s->g->node_count; i++) {
        const wf_node *n = s->g->nodes[i];
        bool own = !wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE);
        s->lazy[i] = (uint8_t)laziness(s, n);
        for (int k = 0; k < n->nin; k++)
            s->reads[slot(s, wf_uses_root(&s->uses, n->in[k]))]++;
        for (int k = 0; k < n->nout && own && !s->lazy[i]; k++) {
            const wf_value *v = &n->out[k];
            uint64_t bytes = wf_value_bytes(v);
            if (wf_uses_count(&s->uses, v) > 0 && !wf_uses_is_output(&s->uses, v))
                s->bytes[slot(s, v)] = bytes < MOST_BYTES ? (int64_t)bytes : MOST_BYTES;
        }
    }
}

/* By how many bytes memory grows when node i runs now: its results, less what nobody needs then. */
static int64_t growth(scheduler *s, int i)
{
    const wf_node *n = s->g->nodes[i];
    int64_t sum = 0;
    s->asked++;
    for (int k = 0; k < n->nout; k++)
        sum += s->bytes[slot(s, &n->out[k])];
    for (int k = 0; k < n->nin; k++) {
        int r = slot(s, wf_uses_root(&s->uses, n->in[k]));
        reader *by = &s->by[r];
        *by = (reader){s->asked, by->asked == s->asked ? by->times + 1 : 1};
        if (by->times == s->reads[r])
            sum -= s->bytes[r];
    }
    return sum;
}

static void take(scheduler *s, int i)
{
    const wf_node *n = s->g->nodes[i];
    s->order[s->count++] = i;
    for (int k = 0; k < n->nin; k++)
        s->reads[slot(s, wf_uses_root(&s->uses, n->in[k]))]--;
    for (int k = s->e.first[i]; k < s->e.first[i + 1]; k++) {
        int next = s->e.after[k];
        if (--s->e.waits[next] == 0 && !s->lazy[next])
            s->ready[s->ready_count++] = next;
    }
}

/* Of very many nodes that could run only those are asked that became ready last: they go on from what was
 * just made. Else a graph of n branches would take n^2 questions. */
#define MOST_ASKED 1024

/* Where in `ready` the next node is. */
static int choose(scheduler *s, bool eager)
{
    int first = s->ready_count > MOST_ASKED ? s->ready_count - MOST_ASKED : 0, best = first;
    int64_t least = INT64_MAX;
    for (int k = first; k < s->ready_count; k++) {
        int64_t grows = growth(s, s->ready[k]);
        if (eager && grows > 0)
            grows = INT64_MAX; /* all alike: the first of them as written */
        if (grows < least || (grows == least && s->ready[k] < s->ready[best])) {
            best = k;
            least = grows;
        }
    }
    return best;
}

/* Lazy nodes count for nothing and go first, with the sources, for the time being. */
static void order_nodes(scheduler *s, bool eager)
{
    const wf_graph *g = s->g;
    for (int i = 0; i < g->node_count; i++)
        if (s->e.waits[i] == 0 && !s->lazy[i] && !wf_node_is(g->nodes[i], WF_FLAG_SOURCE))
            s->ready[s->ready_count++] = i; /* constants that are outputs */
    for (int i = 0; i < g->node_count; i++)
        if (s->lazy[i] || wf_node_is(g->nodes[i], WF_FLAG_SOURCE))
            take(s, i);
    while (s->ready_count > 0) {
        int best = choose(s, eager), i = s->ready[best];
        s->ready[best] = s->ready[--s->ready_count];
        take(s, i);
    }
    wf_assert(s->count == g->node_count);
}

/* All nodes have been taken, so nobody is left to read or to wait for: count anew. */
static void start_over(scheduler *s)
{
    s->count = 0;
    for (int k = 0; k < s->e.first[s->e.count]; k++)
        s->e.waits[s->e.after[k]]++;
    for (int i = 0; i < s->g->node_count; i++)
        for (int k = 0; k < s->g->nodes[i]->nin; k++)
            s->reads[slot(s, wf_uses_root(&s->uses, s->g->nodes[i]->in[k]))]++;
}

/* Moves lazy nodes, now at the beginning of the order, before whatever first waits for them. */
static void sink_lazy(scheduler *s, int *place, int *sunk)
{
    int n = s->g->node_count, at = 0;
    for (int i = 0; i < n; i++)
        place[s->order[i]] = i;
    for (int i = n - 1; i >= 0; i--) {
        s->anchor[i] = s->lazy[i] ? n : place[i];
        for (int k = s->e.first[i]; k < s->e.first[i + 1] && s->lazy[i]; k++)
            if (s->anchor[s->e.after[k]] < s->anchor[i])
                s->anchor[i] = s->anchor[s->e.after[k]];
    }
    /* Counting sort by anchor; lazy nodes of one anchor stay in their old order, before it. */
    int *begin = s->ready; /* as long as there are nodes, and free by now */
    for (int i = 0; i <= n; i++)
        begin[i] = 0;
    for (int i = 0; i < n; i++)
        begin[s->anchor[i]]++;
    for (int i = 0; i <= n; i++) {
        int count = begin[i];
        begin[i] = at;
        at += count;
    }
    for (int i = 0; i < n; i++)
        if (s->lazy[i])
            sunk[begin[s->anchor[i]]++] = i;
    for (int i = 0; i < n; i++)
        if (!s->lazy[i])
            sunk[begin[s->anchor[i]]++] = i;
}

/* Tries both orders; *best is the one that needs less. scratch: room for four more. */
static wf_status try_orders(scheduler *s, const wf_target *target, int *scratch, size_t n,
                            int **best, uint64_t *peak)
{
    s->anchor = scratch;
    measure(s);
    for (int eager = 0; eager < 2; eager++) {
        int *sunk = scratch + (size_t)(2 + eager) * n;
        uint64_t bytes;
        if (eager)
            start_over(s);
        order_nodes(s, eager);
        sink_lazy(s, scratch + n, sunk);
        WF_TRY(wf_order_peak(s->g, sunk, target, &bytes));
        if (!eager || bytes < *peak) {
            *peak = bytes;
            *best = sunk;
        }
    }
    return WF_OK;
}

static wf_status run(scheduler *s, wf_graph *g, const wf_pass_env *env)
{
    size_t n = (size_t)g->node_count + 2, values = (size_t)s->uses.values + 1;
    uint64_t written = 0, reordered = 0;
    int *scratch = wf_mem_array(g->ctx, 6 * n, sizeof *scratch), *best;
    s->lazy = wf_mem_array(g->ctx, n, sizeof *s->lazy);
    s->reads = wf_mem_array(g->ctx, values, sizeof *s->reads);
    s->bytes = wf_mem_array(g->ctx, values, sizeof *s->bytes);
    s->by = wf_mem_array(g->ctx, values, sizeof *s->by);
    wf_status status = WF_ERR_MEMORY;
    if (scratch && s->lazy && s->reads && s->bytes && s->by) {
        s->ready = scratch;
        s->order = scratch + n;
        status = wf_order_peak(g, NULL, env->target, &written);
        if (status == WF_OK)
            status = try_orders(s, env->target, scratch + 2 * n, n, &best, &reordered);
        bool better = status == WF_OK && reordered < written - written / 100;
        if (better)
            status = wf_graph_reorder(g, best);
        if (status == WF_OK) {
            wf_report_add(env->report, "schedule", "peak bytes in the order as written",
                          (int64_t)written);
            wf_report_add(env->report, "schedule", "peak bytes in the best other order",
                          (int64_t)reordered);
            wf_report_add(env->report, "schedule", "orders changed", better);
        }
    }
    wf_mem_free(g->ctx, scratch);
    wf_mem_free(g->ctx, s->lazy);
    wf_mem_free(g->ctx, s->reads);
    wf_mem_free(g->ctx, s->bytes);
    wf_mem_free(g->ctx, s->by);
    return status;
}

wf_status wf_pass_schedule(wf_graph *g, const wf_pass_env *env)
{
    scheduler s = {.g = g};
    WF_TRY(wf_edges_new(g, &s.e));
    wf_status status = wf_uses_new(g, &s.uses);
    if (status == WF_OK)
        status = run(&s, g, env);
    wf_uses_free(&s.uses);
    wf_edges_free(&s.e);
    return status;
}

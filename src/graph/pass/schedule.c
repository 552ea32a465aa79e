/* SPDX-License-Identifier: MIT */
/*
 * schedule.c - the schedule pass: reorders nodes to lower peak memory.
 *
 *     before    %1 = exp(%0)  %2 = neg(%0)  %3 = sum(%1)  %4 = sum(%2)     %1 and %2 alive together
 *     after     %1 = exp(%0)  %3 = sum(%1)  %2 = neg(%0)  %4 = sum(%2)     one at a time
 *
 * The pass tries two orders. Greedy: always run the ready node that frees most memory, or takes
 * least. Eager: keep the order as written, but run nodes that take no memory as soon as possible.
 * Eager leaves recomputed values next to their readers, where greedy would compute them early, and
 * runs each update right after its gradient.
 *
 * Lazy nodes depend on constants and states only, through at most MOST_LAZY nodes. They could run
 * at any time, so they go right before their first reader. The pass keeps the order as written
 * unless the better of the two lowers the peak by more than 1%.
 *
 * Both orders depend on the graph only, ties go to the node that was written first, so plans are
 * reproducible.
 */
#include "base/mem.h"
#include "graph/pass/order.h"
#include "graph/pass/pass.h"

/* How often the node of the current question (growth) reads a value. */
typedef struct {
    int asked, times;
} reader;

typedef struct {
    const wf_graph *g;
    wf_edges e;
    wf_uses uses;
    uint8_t *lazy;  /* [node] depth of a lazy node above constants and states; 0: not lazy */
    int *reads;     /* [slot] for roots: reads still to come */
    int64_t *bytes; /* [slot] for roots: size; 0 if its memory does not depend on the order */
    reader *by;     /* [slot] for roots; valid if its `asked` is the current question */
    int asked;      /* number of the current question */
    int *ready;     /* nodes whose dependencies have all run */
    int ready_count;
    int *order;
    int count;   /* nodes in `order` so far */
    int *anchor; /* [node] place in `order`; for lazy nodes that of the node they go before */
} scheduler;

static int slot(const scheduler *s, const wf_value *v)
{
    return wf_uses_slot(&s->uses, v);
}

/* Sizes are capped here: more than any memory, but sums over all operands of a node do not
 * overflow. */
#define MOST_BYTES (INT64_MAX / (WF_MANY + WF_MAX_OUT))

/* Longer chains from states count as ordinary computation. */
#define MOST_LAZY 3

/* The depth of n if it is lazy, else 0. Outputs and updates are never lazy. */
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
        /* An input or a computed value: not lazy. */
        if (!wf_node_is(from, WF_FLAG_STATE) && !s->lazy[from->id])
            return 0;
        depth = s->lazy[from->id] > depth ? s->lazy[from->id] : depth;
    }
    return depth < MOST_LAZY ? depth + 1 : 0;
}

/* Sets lazy[], reads[] and bytes[]. */
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

/* The growth of memory in bytes if node i runs now: its results minus the operands it reads
 * last. */
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
        /* Count reads of this node only: an operand that it reads twice dies with the second
         * read. */
        *by = (reader){s->asked, by->asked == s->asked ? by->times + 1 : 1};
        if (by->times == s->reads[r])
            sum -= s->bytes[r];
    }
    return sum;
}

/* Appends node i to the order and makes ready the nodes that waited for it alone. */
static void take(scheduler *s, int i)
{
    const wf_node *n = s->g->nodes[i];
    s->order[s->count++] = i;
    for (int k = 0; k < n->nin; k++)
        s->reads[slot(s, wf_uses_root(&s->uses, n->in[k]))]--;
    for (int k = s->e.first[i]; k < s->e.first[i + 1]; k++) {
        int next = s->e.after[k];
        /* Lazy nodes are taken up front, never from `ready`. */
        if (--s->e.waits[next] == 0 && !s->lazy[next])
            s->ready[s->ready_count++] = next;
    }
}

/* Considers only the nodes that became ready last, which continue from recent results. Without this
 * limit a graph of n branches would take n^2 questions. */
#define MOST_ASKED 1024

/* Returns the index in `ready` of the node to run next. */
static int choose(scheduler *s, bool eager)
{
    int first = s->ready_count > MOST_ASKED ? s->ready_count - MOST_ASKED : 0, best = first;
    int64_t least = INT64_MAX;
    for (int k = first; k < s->ready_count; k++) {
        int64_t grows = growth(s, s->ready[k]);
        if (eager && grows > 0)
            grows = INT64_MAX; /* all equal: the tie goes to the first as written */
        if (grows < least || (grows == least && s->ready[k] < s->ready[best])) {
            best = k;
            least = grows;
        }
    }
    return best;
}

/* Lazy nodes and sources take no memory here and go first; sink_lazy moves the lazy ones later. */
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
        /* Order within `ready` does not matter: choose breaks ties by id. */
        s->ready[best] = s->ready[--s->ready_count];
        take(s, i);
    }
    wf_assert(s->count == g->node_count);
}

/* After order_nodes all counts in reads[] and waits[] are 0; counts them again. */
static void start_over(scheduler *s)
{
    s->count = 0;
    for (int k = 0; k < s->e.first[s->e.count]; k++)
        s->e.waits[s->e.after[k]]++;
    for (int i = 0; i < s->g->node_count; i++)
        for (int k = 0; k < s->g->nodes[i]->nin; k++)
            s->reads[slot(s, wf_uses_root(&s->uses, s->g->nodes[i]->in[k]))]++;
}

/* Moves lazy nodes from the front of the order to just before the first node that waits for
 * them. */
static void sink_lazy(scheduler *s, int *place, int *sunk)
{
    int n = s->g->node_count, at = 0;
    for (int i = 0; i < n; i++)
        place[s->order[i]] = i;
    /* Backwards: readers have larger ids than a lazy node, so their anchors are known. */
    for (int i = n - 1; i >= 0; i--) {
        s->anchor[i] = s->lazy[i] ? n : place[i];
        for (int k = s->e.first[i]; k < s->e.first[i + 1] && s->lazy[i]; k++)
            if (s->anchor[s->e.after[k]] < s->anchor[i])
                s->anchor[i] = s->anchor[s->e.after[k]];
    }
    /* Counting sort by anchor; lazy nodes of one anchor stay in their old order, before it. */
    int *begin = s->ready; /* scratch: `ready` is empty by now and has room for n + 1 */
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

/* Tries both orders; sets *best to the one with the lower peak and *peak to that peak in bytes.
 * scratch has room for four arrays of n. */
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
        /* A gain within 1% is not worth a different order. */
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

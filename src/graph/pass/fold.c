/* SPDX-License-Identifier: MIT */
/*
 * fold.c - the fold pass: algebraic simplification, pattern matching of larger ops, and elimination
 * of common subexpressions.
 *
 * The pass tries a table of rules at every node, in rounds until nothing changes. It runs twice.
 * Before the gradient, a builder calls it (wf_fold) and still holds values of the graph: replaced
 * nodes stay in the graph, unread, and every rule builds only ops that have gradient rules. After
 * the gradient, the compiler runs it on its own copy.
 *
 * Rules of the first part of the table keep every bit, with these exceptions. A sum over axes of
 * length 1 and a sum of disjoint pads keep -0, where adding 0 would make it +0. (x + 0 is not
 * folded for that reason; x + -0 and x - 0 are.) A signaling NaN may stay signaling. Rules of the
 * second part change values within roundoff.
 */
#include <limits.h>

#include "base/mem.h"
#include "graph/pass/fold_priv.h"
#include "graph/pass/pass.h"

#define MAX_ROUNDS 24 /* bounds the time even if two rules undid each other */

/* Several rows may share a name: reports add them up. */
typedef struct {
    const char *name;
    wf_op root;
    wf_fold_rule_fn *fn;
} fold_rule;

/* The first rule that matches wins. */
/* clang-format off */
static const fold_rule rules[] = {
    /* bitwise equal */
    {"view or copy of a fill",      WF_OP_reshape,   wf_fold_fill},
    {"view or copy of a fill",      WF_OP_broadcast, wf_fold_fill},
    {"view or copy of a fill",      WF_OP_permute,   wf_fold_fill},
    {"view or copy of a fill",      WF_OP_slice,     wf_fold_fill},
    {"view or copy of a fill",      WF_OP_copy,      wf_fold_fill},
    {"cast of a fill",              WF_OP_cast,      wf_fold_fill},
    {"scale of a fill",             WF_OP_scale,     wf_fold_fill},
    {"reshape of reshape",          WF_OP_reshape,   wf_fold_reshape},
    {"permute of permute",          WF_OP_permute,   wf_fold_permute},
    {"slice of slice",              WF_OP_slice,     wf_fold_slice},
    {"cast of cast",                WF_OP_cast,      wf_fold_cast},
    {"copy",                        WF_OP_copy,      wf_fold_copy},
    {"scale by 1",                  WF_OP_scale,     wf_fold_scale_one},
    {"add 0",                       WF_OP_add,       wf_fold_add_zero},
    {"subtract 0",                  WF_OP_sub,       wf_fold_sub_zero},
    {"multiply by 1",               WF_OP_mul,       wf_fold_mul_one},
    {"divide by 1",                 WF_OP_div,       wf_fold_div_one},
    {"fill times x",                WF_OP_mul,       wf_fold_mul_fill},
    {"double negation",             WF_OP_neg,       wf_fold_neg},
    {"where of a constant",         WF_OP_where,     wf_fold_where},
    {"pad by 0",                    WF_OP_pad,       wf_fold_pad},
    {"sum of pads",                 WF_OP_add,       wf_fold_pads},
    {"concat of one",               WF_OP_concat,    wf_fold_concat},
    {"broadcast to the same shape", WF_OP_broadcast, wf_fold_broadcast},
    {"reduction of one element",    WF_OP_sum,       wf_fold_reduce},
    {"reduction of one element",    WF_OP_mean,      wf_fold_reduce},
    {"reduction of one element",    WF_OP_max,       wf_fold_reduce},
    /* within roundoff */
    {"scale of scale",              WF_OP_scale,     wf_fold_scales},
    {"divide by a fill",            WF_OP_div,       wf_fold_div_fill},
    {"silu",                        WF_OP_mul,       wf_fold_silu},
    {"glu",                         WF_OP_mul,       wf_fold_glu},
    {"transpose into matmul",       WF_OP_matmul,    wf_fold_matmul_transposed},
    {"linear",                      WF_OP_matmul,    wf_fold_linear},
    {"linear with bias",            WF_OP_add,       wf_fold_linear_bias},
    {"scatter into a sum",          WF_OP_add,       wf_fold_scatter},
    {"softmax",                     WF_OP_div,       wf_fold_softmax},
    {"rms_norm",                    WF_OP_mul,       wf_fold_rms_norm},
    {"rms_norm",                    WF_OP_div,       wf_fold_rms_norm_div},
    {"layer_norm",                  WF_OP_rms_norm,  wf_fold_layer_norm},
    {"gain into norm",              WF_OP_mul,       wf_fold_norm_gain},
    {"bias into norm",              WF_OP_add,       wf_fold_norm_bias},
    {"attention",                   WF_OP_matmul,    wf_fold_attention},
};
/* clang-format on */
#define RULES (sizeof rules / sizeof rules[0])

/* ---- Queries for rules ---- */

static int slot(const wf_folder *f, const wf_value *v)
{
    return wf_uses_slot(&f->r.uses, v);
}

/* Whether v was there when the round began. Only such values have a slot. */
static bool is_old(const wf_folder *f, const wf_value *v)
{
    return v->node->id < f->r.count;
}

wf_value *wf_fold_in(const wf_folder *f, const wf_node *n, int i)
{
    return wf_rewrite_now(&f->r, n->in[i]);
}

/* Discarded unless the rule succeeds: fold_node resets the list before each rule. */
void wf_fold_past(wf_folder *f, const wf_value *v)
{
    if (f->pasts == f->past_cap) {
        int cap = f->past_cap ? 2 * f->past_cap : 32;
        void *grown = wf_mem_grow(f->g->ctx, f->past, (size_t)cap * sizeof *f->past);
        if (!grown) {
            wf_graph_fail(f->g, WF_ERR_MEMORY, "%s", f->g->ctx->message);
            return;
        }
        f->past = grown;
        f->past_cap = cap;
    }
    f->past[f->pasts++] = v;
}

bool wf_fold_inner(wf_folder *f, const wf_value *v, const wf_node *a, const wf_node *b)
{
    if (!is_old(f, v))
        return false;
    /* All outputs of the node count, not only v: a saved statistic that somebody reads must
     * stay. */
    for (int k = 0; k < v->node->nout; k++) {
        const wf_value *out = &v->node->out[k];
        const wf_use *use = wf_uses_of(&f->r.uses, out);
        for (int i = 0; i < wf_uses_count(&f->r.uses, out); i++)
            if (!use[i].node ||
                (f->alive[use[i].node->id] && (out != v || (use[i].node != a && use[i].node != b))))
                return false;
    }
    wf_fold_past(f, v);
    return true;
}

bool wf_fold_feeds_only(const wf_folder *f, const wf_node *n, wf_op op)
{
    const wf_use *use = wf_uses_of(&f->r.uses, &n->out[0]);
    for (int i = 0; i < wf_uses_count(&f->r.uses, &n->out[0]); i++)
        if (!use[i].node || (f->alive[use[i].node->id] && use[i].node->op != op))
            return false;
    return true;
}

/* The value whose storage v will share after this round. */
static const wf_value *root_now(const wf_folder *f, wf_value *v)
{
    v = wf_rewrite_now(&f->r, v);
    while (wf_node_is(v->node, WF_FLAG_VIEW))
        v = wf_rewrite_now(&f->r, v->node->in[0]);
    return v;
}

bool wf_fold_reads(const wf_folder *f, const wf_node *n, wf_value *v)
{
    const wf_value *root = root_now(f, v);
    return !root->state || n->id < f->writer[slot(f, root)];
}

/* Whether `by` may replace `old`; `view`: a new view of `by` would. Nodes are visited in order, so
 * the replacement of `by` is final by now. A state version may replace a value only if all readers
 * of that value run before the state's next update. `last` counts readers through views, too. */
static bool may_stand(const wf_folder *f, const wf_value *old, wf_value *by, bool view)
{
    by = wf_rewrite_now(&f->r, by);
    if (wf_uses_is_output(&f->r.uses, old) &&
        (view || wf_node_is(by->node, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE)))
        return false; /* a graph output needs storage of its own */
    const wf_value *root = root_now(f, by);
    return !root->state || f->last[slot(f, old)] < f->writer[slot(f, root)];
}

bool wf_fold_may(const wf_folder *f, const wf_value *old, wf_value *by)
{
    return may_stand(f, old, by, false);
}

bool wf_fold_may_view(const wf_folder *f, const wf_node *n, wf_value *x)
{
    return may_stand(f, &n->out[0], x, true);
}

bool wf_fold_by(wf_folder *f, wf_node *n, wf_value *by)
{
    by = wf_rewrite_now(&f->r, by);
    /* A rule may match more than one type: refuse the wrong ones here. */
    if (!wf_alike(&n->out[0], by) || !wf_fold_may(f, &n->out[0], by))
        return false;
    wf_rewrite_replace(&f->r, &n->out[0], by);
    return true;
}

/* Whether the device runs n as it is. The target is not asked about core ops and sources, which are
 * never expanded. */
static bool is_runnable(const wf_folder *f, const wf_node *n)
{
    return !f->target || wf_op_is_core(n->op) || wf_node_is(n, WF_FLAG_SOURCE) ||
           f->target->supports(f->target, n);
}

/* Asks the target about the node of `by` alone, not about further nodes that the rule built. */
bool wf_fold_new(wf_folder *f, wf_node *n, wf_value *by)
{
    if (by && !is_runnable(f, by->node)) {
        wf_rewrite_take_back(&f->r);
        return false;
    }
    wf_rewrite_replace(&f->r, &n->out[0], by);
    return true;
}

/* ---- One round ---- */

/* Sets alive[]. A node is dead if all its readers are dead, or if it has no readers and an earlier
 * fold replaced it: such nodes stay in the graph. A value without readers that was not folded is
 * alive: the builder holds it and may use it later. */
static void find_alive(wf_folder *f)
{
    const wf_graph *g = f->g;
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        /* Updates and sources are alive by themselves. */
        bool alive = wf_node_is(n, WF_FLAG_UPDATE | WF_FLAG_SOURCE), read = false, folded = false;
        for (int k = 0; k < n->nout; k++) {
            const wf_use *use = wf_uses_of(&f->r.uses, &n->out[k]);
            folded |= (n->out[k].marks & WF_MARK_FOLDED) != 0;
            for (int u = 0; u < wf_uses_count(&f->r.uses, &n->out[k]); u++) {
                read = true;
                alive |= !use[u].node || f->alive[use[u].node->id];
            }
        }
        f->alive[i] = alive || (!read && !folded);
    }
}

/* Sets last[], the last reader of each value. A reader of a view reads its operand as well. */
static void find_readers(wf_folder *f)
{
    const wf_graph *g = f->g;
    for (int i = 0; i < f->r.uses.values; i++)
        f->last[i] = -1;
    /* Backwards, so the last reader of a view is known before its operand is visited. */
    for (int i = g->node_count - 1; i >= 0; i--) {
        const wf_node *n = g->nodes[i];
        bool view = wf_node_is(n, WF_FLAG_VIEW);
        for (int k = 0; k < n->nin; k++) {
            int s = slot(f, n->in[k]), reader = view ? f->last[slot(f, &n->out[0])] : -1;
            reader = reader > i ? reader : i; /* ids are the order, so the larger id reads later */
            f->last[s] = f->last[s] > reader ? f->last[s] : reader;
        }
    }
}

static wf_status round_begin(wf_folder *f)
{
    wf_ctx *ctx = f->g->ctx;
    size_t values = (size_t)f->r.uses.values + 1;
    f->alive = wf_mem_array(ctx, (size_t)f->r.count + 1, sizeof *f->alive);
    f->last = wf_mem_array(ctx, values, sizeof *f->last);
    f->writer = wf_mem_array(ctx, values, sizeof *f->writer);
    if (!f->alive || !f->last || !f->writer)
        return WF_ERR_MEMORY;
    find_alive(f);
    find_readers(f);
    wf_uses_find_writers(&f->r.uses, f->g, f->writer);
    return wf_fold_same_begin(f);
}

/* Whether n is worth folding: an alive node, not a source or an update, with at least one reader.
 * Folding values that only the builder holds would mark them as folded for nothing. */
static bool is_wanted(const wf_folder *f, const wf_node *n)
{
    if (!f->alive[n->id] || wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_UPDATE))
        return false;
    for (int k = 0; k < n->nout; k++)
        if (wf_uses_count(&f->r.uses, &n->out[k]) > 0)
            return true;
    return false;
}

/* Returns the name of the rule that changed n, or NULL. */
static const char *fold_node(wf_folder *f, wf_node *n)
{
    for (size_t i = 0; i < RULES; i++) { /* linear: the op of the root rejects most rules at once */
        f->pasts = 0;
        if (rules[i].root == n->op && rules[i].fn(f, n))
            return rules[i].name;
    }
    f->pasts = 0;
    return wf_fold_same(f, n) ? "common subexpression" : NULL;
}

/* Marks the bypassed values: their gradients would miss what now flows around them, so wf_grad
 * refuses them. New nodes are marked as well: if a later rule bypasses one, find_alive must count
 * it as dead. */
static void mark_folded(wf_folder *f, wf_node *n, int before)
{
    for (int i = 0; i < f->pasts; i++)
        ((wf_value *)f->past[i])->marks |= WF_MARK_FOLDED;
    for (int k = 0; k < n->nout; k++)
        n->out[k].marks |= WF_MARK_FOLDED;
    for (int i = before; i < f->g->node_count; i++)
        for (int k = 0; k < f->g->nodes[i]->nout; k++)
            f->g->nodes[i]->out[k].marks |= WF_MARK_FOLDED;
}

static wf_status fold_nodes(wf_folder *f, wf_report *report)
{
    wf_graph *g = f->g;
    const bool backward = g->backward;
    for (int i = 0; i < f->r.count && g->status == WF_OK; i++) {
        wf_node *n = g->nodes[i];
        if (!is_wanted(f, n))
            continue;
        int before = g->node_count; /* nodes from here on were built by the rule */
        /* New nodes go before n: all operands of the pattern exist there. */
        wf_rewrite_before(&f->r, n);
        /* A replacement belongs to the same half of the training graph. */
        g->backward = n->backward;
        const char *what = fold_node(f, n);
        g->backward = backward;
        if (what) {
            mark_folded(f, n, before);
            wf_report_add(report, "fold", what, 1);
        }
    }
    return g->status;
}

static wf_status fold_round(wf_graph *g, const wf_pass_env *env, int *changes)
{
    wf_folder f = {.g = g, .target = env->target};
    WF_TRY(wf_rewrite_begin(g, &f.r));
    wf_status status = round_begin(&f);
    if (status == WF_OK)
        status = fold_nodes(&f, env->report);
    *changes = f.r.changes; /* before wf_rewrite_end frees r */
    wf_mem_free(g->ctx, f.alive);
    wf_mem_free(g->ctx, f.last);
    wf_mem_free(g->ctx, f.writer);
    wf_mem_free(g->ctx, f.table);
    wf_mem_free(g->ctx, f.past);
    return wf_rewrite_end(&f.r, status);
}

wf_status wf_pass_fold(wf_graph *g, const wf_pass_env *env)
{
    int changes = 1;
    /* Rounds repeat because a rule may build the operand of another rule's pattern. */
    for (int round = 0; round < MAX_ROUNDS && changes > 0; round++)
        WF_TRY(fold_round(g, env, &changes));
    return WF_VERIFY(g);
}

/* Without a target: before the gradient no device is known, and rules build ops with gradients
 * only. */
wf_status wf_fold(wf_graph *g)
{
    wf_compile_options options = {0};
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    return wf_pass_fold(g, &(wf_pass_env){.options = &options});
}

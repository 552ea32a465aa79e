/* SPDX-License-Identifier: MIT */
/*
 * fold_priv.h - interface between the fold pass (fold.c) and its rules.
 *
 * A rule is a function of its root node. It reads operands with wf_fold_in, which follows the
 * replacements of this round. It either changes nothing and returns false, or replaces output 0 of
 * the root and returns true:
 *
 *     wf_fold_by     replaces it by a value that exists
 *     wf_fold_new    replaces it by a value that the rule has just built from ops with gradients
 *
 * A rule must do the following.
 * 1. Check with wf_fold_reads that the operands of the new node are readable at the root: a state
 *    may have been updated since the pattern read it.
 * 2. Report each value that the new form bypasses with wf_fold_past, or with wf_fold_inner if the
 *    pattern must be its only reader.
 * 3. Stay correct when others read the bypassed values too: they stay in the graph.
 */
#ifndef WF_GRAPH_PASS_FOLD_PRIV_H
#define WF_GRAPH_PASS_FOLD_PRIV_H

#include "graph/build.h"
#include "graph/op/rule.h"
#include "graph/pass/match.h"
#include "graph/pass/rewrite.h"
#include "graph/target.h"

/* One round over a graph. The arrays cover the nodes that existed when the round began. Slots are
 * those of r.uses. */
typedef struct {
    wf_graph *g;
    const wf_target *target; /* NULL before the gradient: no device is known yet */
    wf_rewrite r;
    bool *alive; /* [node] not a leftover of an earlier fold */
    int *last;   /* [slot] id of the last reader, direct or through views; -1: no reader */
    int *writer; /* [slot] id of the node that writes the next version of a state, else INT_MAX */
    wf_node **table; /* hash table for fold_same.c, open addressing, mask + 1 entries */
    size_t mask;
    const wf_value **past; /* values that the current rule bypasses */
    int pasts, past_cap;
} wf_folder;

typedef bool wf_fold_rule_fn(wf_folder *f, wf_node *n);

/* ---- Queries ---- */

/* Operand i of n after the replacements so far. */
wf_value *wf_fold_in(const wf_folder *f, const wf_node *n, int i);
/* Whether a and b (either may be NULL) are the only readers of v's node and v is not a graph
 * output. If so, reports v as bypassed. Returns false for values made in this round: the next round
 * sees them. */
bool wf_fold_inner(wf_folder *f, const wf_value *v, const wf_node *a, const wf_node *b);
/* Reports v as bypassed. Discarded if the rule returns false. */
void wf_fold_past(wf_folder *f, const wf_value *v);
/* Whether v can be read at n. False only if v is a state version that has been replaced before
 * n. */
bool wf_fold_reads(const wf_folder *f, const wf_node *n, wf_value *v);
/* Whether all readers of output 0 of n have this op. The last of a chain folds the whole chain. */
bool wf_fold_feeds_only(const wf_folder *f, const wf_node *n, wf_op op);
/* Whether a new view of x may replace output 0 of n. */
bool wf_fold_may_view(const wf_folder *f, const wf_node *n, wf_value *x);
/* Whether the value `by` may replace `old`, any output of a node. */
bool wf_fold_may(const wf_folder *f, const wf_value *old, wf_value *by);

/* ---- Replacing ---- */

/* Returns false and changes nothing if `by` may not replace output 0 of n. */
bool wf_fold_by(wf_folder *f, wf_node *n, wf_value *by);
/* Returns false and removes the new nodes if the device has no kernel for `by`. `by` is NULL when
 * building it failed; the graph holds the error. */
bool wf_fold_new(wf_folder *f, wf_node *n, wf_value *by);

/* ---- Rules, by file ---- */

wf_fold_rule_fn wf_fold_reshape, wf_fold_permute, wf_fold_slice, wf_fold_cast, wf_fold_copy,
    wf_fold_scale_one, wf_fold_add_zero, wf_fold_sub_zero, wf_fold_mul_one, wf_fold_div_one,
    wf_fold_mul_fill, wf_fold_neg, wf_fold_where, wf_fold_fill, wf_fold_pad, wf_fold_pads,
    wf_fold_concat, wf_fold_broadcast, wf_fold_reduce; /* fold_exact.c */
wf_fold_rule_fn wf_fold_scales, wf_fold_div_fill, wf_fold_silu, wf_fold_glu, wf_fold_linear,
    wf_fold_linear_bias, wf_fold_matmul_transposed, wf_fold_softmax, wf_fold_rms_norm,
    wf_fold_rms_norm_div, wf_fold_scatter, wf_fold_layer_norm, wf_fold_norm_gain,
    wf_fold_norm_bias;             /* fold_form.c */
wf_fold_rule_fn wf_fold_attention; /* fold_attention.c */

/* fold_same.c: replaces the outputs of n by those of an earlier node that computes the same. Begin
 * allocates the table; a node without an equal is added to it. */
wf_status wf_fold_same_begin(wf_folder *f);
bool wf_fold_same(wf_folder *f, wf_node *n);

#endif

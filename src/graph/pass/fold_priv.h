/* SPDX-License-Identifier: MIT */
/*
 * fold_priv.h - what rules of the fold pass are written with.
 *
 * A rule is a function of its root node. It looks at operands with wf_fold_in, which sees through
 * what was replaced in this round, and either leaves everything as it is and returns false, or
 * replaces output 0 of the root by
 *
 *     wf_fold_by     a value that was there before, or
 *     wf_fold_new    one that it has just built, in ops that have gradient rules,
 *
 * and returns true. Operands of what it builds must still be readable where the root stands
 * (wf_fold_reads), since a state may have been updated since the pattern read it. Values that the new
 * form no longer computes by way of are named with wf_fold_past, or wf_fold_inner where nobody else may
 * read them. What a rule does must be right even when others read those values too: nothing is dropped.
 */
#ifndef WF_GRAPH_PASS_FOLD_PRIV_H
#define WF_GRAPH_PASS_FOLD_PRIV_H

#include "graph/build.h"
#include "graph/op/rule.h"
#include "graph/pass/match.h"
#include "graph/pass/rewrite.h"
#include "graph/target.h"

/* One round over a graph. Arrays are of the nodes there were when it began. */
typedef struct {
    wf_graph *g;
    const wf_target *target; /* NULL before the gradient: no device is known yet */
    wf_rewrite r;
    bool *alive; /* [node] not left over from an earlier fold */
    int *last;   /* [slot] id of the last node that reads it, itself or through views; -1: none */
    int *writer; /* [slot] of a state: the node that makes its next version; INT_MAX: none */
    wf_node **table; /* nodes by what they compute, open addressing; `mask` + 1 places */
    size_t mask;
    const wf_value *
        *past; /* named by the rule that is being tried: a row of views has any length */
    int pasts, past_cap;
} wf_folder;

typedef bool wf_fold_rule_fn(wf_folder *f, wf_node *n);

/* ---- Looking ---- */

/* What operand i of n is by now. */
wf_value *wf_fold_in(const wf_folder *f, const wf_node *n, int i);
/* v is read by a and b alone (either may be NULL) and is no output: it can be gone past. Values that
 * were made in this round say false and get their turn in the next. */
bool wf_fold_inner(wf_folder *f, const wf_value *v, const wf_node *a, const wf_node *b);
void wf_fold_past(wf_folder *f, const wf_value *v);
/* Whether v, perhaps a state's version, can be read in n's place. */
bool wf_fold_reads(const wf_folder *f, const wf_node *n, wf_value *v);
/* Whether all readers of n's output are of this op, so that they will look through it. */
bool wf_fold_feeds_only(const wf_folder *f, const wf_node *n, wf_op op);
/* Whether a new view of x may stand for output 0 of n. */
bool wf_fold_may_view(const wf_folder *f, const wf_node *n, wf_value *x);
/* The same for the value `by` and any output of n. */
bool wf_fold_may(const wf_folder *f, const wf_value *old, wf_value *by);

/* ---- Replacing ---- */

/* false, and nothing happens, when `by` may not stand for output 0 of n. */
bool wf_fold_by(wf_folder *f, wf_node *n, wf_value *by);
/* false, and nothing happens, when the device has no kernel for the new form. NULL is a failure that
 * the graph has recorded. */
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

/* fold_same.c: replaces n by an earlier node that computes the same. */
wf_status wf_fold_same_begin(wf_folder *f);
bool wf_fold_same(wf_folder *f, wf_node *n);

#endif

/* SPDX-License-Identifier: MIT */
/* fuse_priv.h - what patterns of the fuse pass are written with; see fuse.c. */
#ifndef WF_GRAPH_PASS_FUSE_PRIV_H
#define WF_GRAPH_PASS_FUSE_PRIV_H

#include "graph/build.h"
#include "graph/pass/order.h"
#include "graph/pass/pass.h"

/* One round over a graph. */
typedef struct {
    wf_graph *g;
    const wf_pass_env *env;
    wf_rewrite r;
    bool *taken; /* [node] is part of a fused node by now */
} wf_fuser;

/* Looks at n, the last node of its pattern. false: nothing was changed. */
typedef bool wf_fuse_fn(wf_fuser *f, wf_node *n);

/* Whether a node is one that was there when the round began, and no part of a fused one. */
bool wf_fuse_free(const wf_fuser *f, const wf_node *n);
void wf_fuse_take(wf_fuser *f, const wf_node *n);
/* Whether the target has a kernel for what was just built, which goes again if not. NULL: it could not
 * be built. */
bool wf_fuse_accepts(wf_rewrite *r, const wf_target *target, const wf_value *made);

/* Builds a node where `at` stands. NULL: it could not be built, or the target has no kernel for it. */
wf_value *wf_fuse_build(wf_fuser *f, const wf_node *at, wf_op op, const void *attr,
                        wf_value *const *in, int nin);
/* Whether one is to be computed again for the gradient and the other kept: as results of one node they
 * would share their fate, and what they are made of would have to be kept. */
bool wf_fuse_part_ways(const wf_fuser *f, const wf_value *a, const wf_value *b);

/* fuse_grad.c */
wf_fuse_fn wf_fuse_norm_grad, wf_fuse_matmul_act_grad, wf_fuse_weight_grad, wf_fuse_row_sums;

/* fuse_far.c: patterns whose nodes are far apart. One is made in each call; *made says how many were, and
 * the graph's order is legal again afterwards. */
typedef wf_status wf_fuse_far_fn(wf_graph *g, const wf_pass_env *env, int *made);
wf_fuse_far_fn wf_fuse_head_loss, wf_fuse_updates;
/* fuse_copies.c: all at once. */
wf_fuse_far_fn wf_fuse_copies;

#endif

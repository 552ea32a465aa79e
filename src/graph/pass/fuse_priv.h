/* SPDX-License-Identifier: MIT */
/* fuse_priv.h - interface between the fuse pass (fuse.c) and its patterns. */
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
    bool *taken; /* [node] already part of a fused node */
} wf_fuser;

/* Tries a pattern whose last node is n. Returns false if it changed nothing. */
typedef bool wf_fuse_fn(wf_fuser *f, wf_node *n);

/* Whether n existed when the round began and is not part of a fused node. */
bool wf_fuse_free(const wf_fuser *f, const wf_node *n);
void wf_fuse_take(wf_fuser *f, const wf_node *n);
/* Whether the target has a kernel for the new node; removes the node if not. made is NULL when
 * building it failed. */
bool wf_fuse_accepts(wf_rewrite *r, const wf_target *target, const wf_value *made);

/* Adds a node before `at`. Returns NULL if building fails or the target has no kernel for it. */
wf_value *wf_fuse_build(wf_fuser *f, const wf_node *at, wf_op op, const void *attr,
                        wf_value *const *in, int nin);
/* Whether one of a and b is recomputed for the gradient and the other kept. They must not become
 * outputs of one node: both would be kept, or both recomputed. */
bool wf_fuse_part_ways(const wf_fuser *f, const wf_value *a, const wf_value *b);

/* fuse_grad.c */
wf_fuse_fn wf_fuse_norm_grad, wf_fuse_matmul_act_grad, wf_fuse_weight_grad, wf_fuse_row_sums;

/* fuse_far.c: patterns whose nodes are far apart. Each call makes at most one fused node and sets
 * *made to the number of them. The graph is in a legal order afterwards. */
typedef wf_status wf_fuse_far_fn(wf_graph *g, const wf_pass_env *env, int *made);
wf_fuse_far_fn wf_fuse_head_loss, wf_fuse_updates;
/* fuse_copies.c: makes all copies in one call. */
wf_fuse_far_fn wf_fuse_copies;

#endif

/* SPDX-License-Identifier: MIT */
/*
 * fuse.c - the fuse pass: replaces several nodes by one where the target has a kernel for it.
 *
 *     before    %2 = add(%0, %1)                 %3 = linear(%0, %1, %2)
 *               %3 = rms_norm(%2, %gamma)        %4 = gelu(%3)
 *     after     %3 = residual_rms_norm(%0, %1, %gamma)
 *                                                %4 = linear_act(%0, %1, %2) act=gelu
 *
 * Each pattern is a function of its last node. It builds the fused node and asks the target; if the
 * target has no kernel, the new node is removed. The pass runs after the gradient, which may read
 * the values between the nodes. A fused op has these as extra outputs, which cost nothing when
 * unread.
 *
 * Except for glu, a fused node takes the place of the first node of its pattern. All other operands
 * must exist there; readers come later in any case. fuse_grad.c has the patterns of gradients,
 * fuse_far.c and fuse_copies.c those whose nodes are far apart. Head and loss fuse first, because
 * they contain matmuls that other patterns would take.
 */
#include "base/mem.h"
#include "graph/pass/fuse_priv.h"

bool wf_fuse_accepts(wf_rewrite *r, const wf_target *target, const wf_value *made)
{
    if (made && target->supports(target, made->node))
        return true;
    wf_rewrite_take_back(r); /* building failed, or no kernel: forget the nodes of this attempt */
    return false;
}

bool wf_fuse_free(const wf_fuser *f, const wf_node *n)
{
    return n->id < f->r.count && !f->taken[n->id];
}

void wf_fuse_take(wf_fuser *f, const wf_node *n)
{
    f->taken[n->id] = true;
}

wf_value *wf_fuse_build(wf_fuser *f, const wf_node *at, wf_op op, const void *attr,
                        wf_value *const *in, int nin)
{
    wf_rewrite_before(&f->r, at);
    f->g->backward = at->backward;
    wf_value *made = wf_node_add(f->g, op, attr, NULL, in, nin);
    f->g->backward = false; /* outside of builds the flag is always false in this pass */
    return wf_fuse_accepts(&f->r, f->env->target, made) ? made : NULL;
}

bool wf_fuse_part_ways(const wf_fuser *f, const wf_value *a, const wf_value *b)
{
    /* Without the pass, the mark has no effect. */
    bool recomputes = !(f->env->options->without & WF_PASS_RECOMPUTE);
    return recomputes && ((a->marks ^ b->marks) & WF_MARK_RECOMPUTE) != 0;
}

/* y = norm(a + b). The sum stays an output, for the next residual and for the gradient. With
 * recomputation by blocks, the sum that ends a block must stay apart from the norm that begins the
 * next: the sum is kept, the norm is recomputed. */
static bool residual_norm(wf_fuser *f, wf_node *n)
{
    wf_node *sum = n->in[0]->node;
    wf_op op = n->op == WF_OP_rms_norm ? WF_OP_residual_rms_norm : WF_OP_residual_layer_norm;
    bool end = sum->out[0].marks & WF_MARK_BLOCK && f->env->options->recompute > 0;
    if (sum->op != WF_OP_add || end || wf_fuse_part_ways(f, n->in[0], &n->out[0]) ||
        /* The fused kernel does not broadcast. */
        !wf_fuse_free(f, sum) || !wf_dims_equal(&sum->in[0]->shape, &sum->in[1]->shape))
        return false;
    for (int i = 1; i < n->nin; i++)
        if (n->in[i]->node->id >= sum->id) /* gamma and beta must exist before the sum */
            return false;
    wf_value *in[4] = {sum->in[0], sum->in[1]};
    for (int i = 1; i < n->nin; i++)
        in[i + 1] = n->in[i];
    wf_value *made = wf_fuse_build(f, sum, op, n->attr, in, n->nin + 1);
    if (!made)
        return false;
    /* Output 0 is the sum, then the outputs of the norm. */
    wf_rewrite_replace(&f->r, &sum->out[0], made);
    for (int i = 0; i < n->nout; i++)
        wf_rewrite_replace(&f->r, &n->out[i], &made->node->out[i + 1]);
    wf_fuse_take(f, sum);
    return true;
}

/* y = act(x w^T + bias). The activation's operand is an output too, for the gradient. */
static bool linear_act(wf_fuser *f, wf_node *n)
{
    wf_node *linear = n->in[0]->node;
    if (linear->op != WF_OP_linear || wf_fuse_part_ways(f, n->in[0], &n->out[0]) ||
        !wf_fuse_free(f, linear))
        return false;
    const wf_attr_linear_act attr = {.act = wf_act_find(n->op)};
    wf_value *made = wf_fuse_build(f, linear, WF_OP_linear_act, &attr, linear->in, linear->nin);
    if (!made)
        return false;
    /* Output 0 is the activation, output 1 its operand. The latter costs nothing if nobody reads
     * it. */
    wf_rewrite_replace(&f->r, &n->out[0], made);
    wf_rewrite_replace(&f->r, &linear->out[0], &made->node->out[1]);
    wf_fuse_take(f, linear);
    return true;
}

/* act(gate) * up, if this mul is the only reader of act(gate). In graphs with a gradient there is
 * another reader; there the fold pass forms the glu before the gradient is taken. */
static bool glu(wf_fuser *f, wf_node *n)
{
    for (int i = 0; i < 2; i++) {
        wf_node *act = n->in[i]->node;
        const wf_attr_glu attr = {.kind = wf_glu_find(act->op)};
        if (attr.kind < 0 || !wf_fuse_free(f, act) ||
            wf_uses_count(&f->r.uses, &act->out[0]) != 1 ||
            !wf_dims_equal(&n->in[1 - i]->shape, &act->out[0].shape) ||
            wf_uses_root(&f->r.uses, act->in[0])->state)
            continue; /* a gate that is a state may have been updated in between */
        wf_value *in[] = {act->in[0], n->in[1 - i]};
        wf_value *made = wf_fuse_build(f, n, WF_OP_glu, &attr, in, 2);
        if (!made)
            return false;
        wf_rewrite_replace(&f->r, &n->out[0], made);
        wf_fuse_take(f, act);
        return true;
    }
    return false;
}

typedef struct {
    const char *name;
    wf_op last; /* the op of the last node of the pattern */
    wf_fuse_fn *fuse;
} pattern;

static const pattern patterns[] = {
    {"residual + rms_norm", WF_OP_rms_norm, residual_norm},
    {"residual + layer_norm", WF_OP_layer_norm, residual_norm},
    {"activation * up", WF_OP_mul, glu},
    {"linear + gelu", WF_OP_gelu, linear_act},
    {"linear + gelu_erf", WF_OP_gelu_erf, linear_act},
    {"linear + silu", WF_OP_silu, linear_act},
    {"linear + relu", WF_OP_relu, linear_act},
    {"linear + relu2", WF_OP_relu2, linear_act},
    {"gradient of norm + residual", WF_OP_add, wf_fuse_norm_grad},
    {"matmul + gradient of gelu", WF_OP_gelu_grad, wf_fuse_matmul_act_grad},
    {"gradient of weight in f32", WF_OP_cast, wf_fuse_weight_grad},
};

/* Patterns that contain fused ops; they run in a second round, because a round sees only nodes that
 * existed when it began. */
static const pattern late_patterns[] = {
    {"row sums from the producer", WF_OP_linear_grad_weight, wf_fuse_row_sums},
    {"row sums from the producer", WF_OP_sum, wf_fuse_row_sums},
};

/* Each index is also the place in far_patterns. */
enum { HEAD_LOSS, COPIES, UPDATES };
static const struct {
    const char *name;
    wf_fuse_far_fn *fuse;
} far_patterns[] = {
    [HEAD_LOSS] = {"head + loss", wf_fuse_head_loss},
    [COPIES] = {"parameters with narrow copies", wf_fuse_copies},
    [UPDATES] = {"updates merged", wf_fuse_updates},
};

#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

const char *wf_fuse_pattern(int index)
{
    int late = index - LENGTH(patterns), far = late - LENGTH(late_patterns);
    if (index < 0 || far >= LENGTH(far_patterns))
        return NULL;
    return late < 0  ? patterns[index].name
           : far < 0 ? late_patterns[late].name
                     : far_patterns[far].name;
}

/* Tries all patterns whose last op is that of n. */
static void look_at(wf_fuser *f, wf_node *n, const pattern *table, int length)
{
    for (int i = 0; i < length; i++)
        if (n->op == table[i].last && wf_fuse_free(f, n) && table[i].fuse(f, n)) {
            wf_fuse_take(f, n);
            wf_report_add(f->env->report, "fuse", table[i].name, 1);
        }
}

/* One round over all nodes with one table. A node belongs to at most one pattern (taken[]). */
static wf_status fuse_near(wf_graph *g, const wf_pass_env *env, const pattern *table, int length)
{
    wf_fuser f = {.g = g, .env = env};
    WF_TRY(wf_rewrite_begin(g, &f.r));
    f.taken = wf_mem_array(g->ctx, (size_t)f.r.count + 1, sizeof *f.taken);
    wf_status status = f.taken ? WF_OK : WF_ERR_MEMORY;
    for (int i = 0; i < f.r.count && status == WF_OK; i++) {
        look_at(&f, g->nodes[i], table, length);
        status = g->status;
    }
    status = wf_rewrite_end(&f.r, status);
    wf_mem_free(g->ctx, f.taken);
    return status;
}

/* Applies one far pattern until it matches no more. */
static wf_status fuse_far(wf_graph *g, const wf_pass_env *env, int which)
{
    int dropped;
    for (int made = 1; made > 0;) {
        WF_TRY(wf_graph_prune(g, &dropped)); /* dead readers would prevent a match */
        WF_TRY(far_patterns[which].fuse(g, env, &made));
        wf_report_add(env->report, "fuse", far_patterns[which].name, made);
    }
    return WF_OK;
}

wf_status wf_pass_fuse(wf_graph *g, const wf_pass_env *env)
{
    int dropped;
    WF_TRY(fuse_far(g, env, HEAD_LOSS));
    /* Gains and biases of later layers must exist before the first node of a pattern. */
    WF_TRY(wf_order_sources(g));
    WF_TRY(fuse_near(g, env, patterns, LENGTH(patterns)));
    WF_TRY(wf_graph_prune(g, &dropped)); /* drop the replaced nodes and their reads */
    WF_TRY(fuse_near(g, env, late_patterns, LENGTH(late_patterns)));
    WF_TRY(fuse_far(g, env, COPIES));
    return fuse_far(g, env, UPDATES);
}

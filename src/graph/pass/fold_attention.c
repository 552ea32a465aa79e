/* SPDX-License-Identifier: MIT */
/*
 * fold_attention.c - folds softmax(mask(scale q k^T)) v into one attention op.
 *
 *     before    %5 = matmul(softmax(where(%mask, scale(matmul(%q, %k)), -inf)), %v)
 *     after     %5 = attention(%q, %k, %v, %seq_start, %positions)
 *
 * q is [B, H, T, D], k and v are [B, H, T, ...]; B may be missing. The mask is causal or missing.
 * Packed attention takes [B*T, H, D], one sequence after the other, so the rule permutes operands
 * and result. Where the model permuted its heads to the front, the two permutes cancel in the next
 * round. A fused kernel never stores the scores [B, H, T, T].
 */
#include <math.h>

#include "graph/pass/fold_priv.h"

typedef struct {
    wf_value *q, *k, *v; /* k and v before their heads were repeated for grouped queries */
    bool causal;
    double scale;
} pattern;

/* The shape [B, H, T, D] of a value of rank 4, or of rank 3 with B = 1. */
typedef struct {
    int64_t b, h, t, d;
} heads_shape;

static heads_shape shape_of(const wf_value *v)
{
    const int64_t *d = v->shape.d + (v->shape.n - 3);
    return (heads_shape){v->shape.n == 4 ? v->shape.d[0] : 1, d[0], d[1], d[2]};
}

/* A mask value above -1e4 could leave a visible weight after softmax. */
static bool is_hidden(const wf_folder *f, const wf_node *n, int i)
{
    double value;
    return wf_match_fill(wf_fold_in(f, n, i), &value) && value <= -1e4;
}

static bool is_zero(const wf_folder *f, const wf_node *n, int i)
{
    double value;
    return wf_match_fill(wf_fold_in(f, n, i), &value) && value == 0;
}

/* For where(causal mask, a, b): the index of the operand at visible keys, 1 or 2. 0: the condition
 * is not a causal mask of [t, t]. */
static int seen_operand(const wf_folder *f, const wf_node *where, int64_t t)
{
    switch (wf_match_causal(wf_fold_in(f, where, 0), t, t)) {
    case WF_CAUSAL: return 1;
    case WF_CAUSAL_HIDDEN: return 2;
    case WF_NOT_CAUSAL: break;
    }
    return 0;
}

/* Returns the scores under a causal mask, either where(mask, scores, hidden) or scores +
 * where(mask, 0, hidden). Returns s itself when it is not masked, and NULL when it is anything
 * else. */
static wf_value *unmasked(wf_folder *f, wf_value *s, bool *causal)
{
    int64_t t = wf_dims_last(&s->shape);
    *causal = true;
    if (wf_made_by(s, WF_OP_where)) {
        int seen = seen_operand(f, s->node, t);
        wf_value *of = seen ? wf_fold_in(f, s->node, seen) : NULL;
        return seen && is_hidden(f, s->node, 3 - seen) && wf_alike(of, s) &&
                       wf_fold_inner(f, of, s->node, NULL)
                   ? of
                   : NULL;
    }
    for (int i = 0; i < 2 && wf_made_by(s, WF_OP_add); i++) {
        wf_value *mask = wf_fold_in(f, s->node, i), *of = wf_fold_in(f, s->node, 1 - i);
        int seen = wf_made_by(mask, WF_OP_where) ? seen_operand(f, mask->node, t) : 0;
        if (seen && is_zero(f, mask->node, seen) && is_hidden(f, mask->node, 3 - seen) &&
            wf_alike(of, s) && wf_fold_inner(f, of, s->node, NULL))
            return of;
    }
    *causal = false;
    return wf_made_by(s, WF_OP_matmul) || wf_made_by(s, WF_OP_scale) ? s : NULL;
}

/* Undoes the repetition of kv heads for grouped queries: reshape to [B, Hk, 1, T, D], broadcast to
 * [B, Hk, G, T, D], reshape to [B, Hk*G, T, D] (B may be missing). Returns v itself for other
 * values. */
static wf_value *ungrouped(wf_folder *f, wf_value *v)
{
    wf_node *flat = wf_made_by(v, WF_OP_reshape);
    wf_node *spread = flat ? wf_made_by(wf_fold_in(f, flat, 0), WF_OP_broadcast) : NULL;
    wf_node *split = spread ? wf_made_by(wf_fold_in(f, spread, 0), WF_OP_reshape) : NULL;
    if (!split)
        return v;
    wf_value *x = wf_fold_in(f, split, 0);
    const wf_dims *from = &split->out[0].shape, *to = &spread->out[0].shape;
    const int64_t n = v->shape.n;
    if (x->shape.n != n || from->n != n + 1 || to->n != n + 1 || from->d[n - 2] != 1 ||
        from->d[n - 3] * to->d[n - 2] != v->shape.d[n - 3])
        return v;
    /* Only the new axis grows; the other axes are those of x, in order. */
    for (int i = 0; i <= n; i++)
        if ((i != n - 2 && from->d[i] != to->d[i]) ||
            (i != n - 2 && from->d[i] != x->shape.d[i < n - 2 ? i : i - 1]))
            return v;
    return x;
}

/* Matches from the outer matmul inwards. Every inner value must have no other reader. */
static bool match(wf_folder *f, wf_node *n, pattern *p)
{
    const wf_attr_matmul *outer = n->attr;
    wf_value *soft = wf_fold_in(f, n, 0);
    const int64_t rank = n->out[0].shape.n;
    if (outer->transpose_a || outer->transpose_b || (rank != 3 && rank != 4) ||
        !wf_made_by(soft, WF_OP_softmax) || !wf_fold_inner(f, soft, n, NULL))
        return false;
    wf_value *masked = wf_fold_in(f, soft->node, 0);
    wf_value *s =
        wf_fold_inner(f, masked, soft->node, NULL) ? unmasked(f, masked, &p->causal) : NULL;
    p->scale = 1;
    if (wf_made_by(s, WF_OP_scale)) {
        wf_value *of = wf_fold_in(f, s->node, 0);
        p->scale = ((const wf_attr_scale *)s->node->attr)->factor;
        s = wf_fold_inner(f, of, s->node, NULL) ? of : NULL;
    }
    const wf_node *inner = wf_made_by(s, WF_OP_matmul);
    const wf_attr_matmul *t = inner ? inner->attr : NULL;
    if (!inner || t->transpose_a || !t->transpose_b || p->scale == 0)
        return false; /* attention takes a scale of 0 as its default scale */
    p->q = wf_fold_in(f, inner, 0);
    p->k = ungrouped(f, wf_fold_in(f, inner, 1));
    p->v = ungrouped(f, wf_fold_in(f, n, 1));
    if (p->k->shape.d[rank - 3] != p->v->shape.d[rank - 3]) { /* only one was repeated: keep both */
        p->k = wf_fold_in(f, inner, 1);
        p->v = wf_fold_in(f, n, 1);
    }
    return wf_fold_reads(f, n, p->q) && wf_fold_reads(f, n, p->k) && wf_fold_reads(f, n, p->v);
}

/* Whether packed attention takes these types and sizes. */
static bool fits(const pattern *p)
{
    heads_shape q = shape_of(p->q), k = shape_of(p->k);
    return p->q->type == p->k->type && p->q->type == p->v->type && q.t == k.t && q.b > 0 &&
           /* seq_start holds offsets up to B*T in i32. */
           q.h > 0 && q.t > 0 && q.d > 0 && k.h > 0 && q.b <= INT32_MAX / q.t;
}

/* [B, H, T, D] to [B*T, H, D] */
static wf_value *packed(wf_graph *g, wf_value *x)
{
    heads_shape s = shape_of(x);
    x = x->shape.n == 4 ? wf_permute(g, x, (int64_t[]){0, 2, 1, 3})
                        : wf_permute(g, x, (int64_t[]){1, 0, 2});
    return wf_reshape(g, x, 3, (int64_t[]){s.b * s.t, s.h, s.d});
}

/* The inverse of packed. */
static wf_value *unpacked(wf_graph *g, wf_value *y, const wf_value *like)
{
    heads_shape s = shape_of(like);
    if (like->shape.n == 3)
        return wf_permute(g, y, (int64_t[]){1, 0, 2});
    y = wf_reshape(g, y, 4, (int64_t[]){s.b, s.t, s.h, s.d});
    return wf_permute(g, y, (int64_t[]){0, 2, 1, 3});
}

bool wf_fold_attention(wf_folder *f, wf_node *n)
{
    pattern p;
    wf_graph *g = f->g;
    if (!match(f, n, &p) || !fits(&p))
        return false;
    heads_shape s = shape_of(p.q);
    wf_attention_options options = {.bidirectional = !p.causal, .scale = p.scale, .length = s.t};
    /* seq_start = [0, T, 2T, ...]: all sequences have the same length. */
    wf_value *number = wf_iota(g, 1, (int64_t[]){s.b + 1}, 0);
    wf_value *seq_start = wf_mul(g, number, wf_fill(g, WF_I32, 0, NULL, (double)s.t));
    wf_value *positions = /* positions restart with every sequence */
        wf_reshape(g, wf_iota(g, 2, (int64_t[]){s.b, s.t}, 1), 1, (int64_t[]){s.b * s.t});
    wf_value *y = wf_attention(g, packed(g, p.q), packed(g, p.k), packed(g, p.v), seq_start,
                               positions, &options);
    y = unpacked(g, y, &n->out[0]);
    if (wf_uses_is_output(&f->r.uses, &n->out[0])) /* needs storage of its own */
        y = wf_copy(g, y);
    return wf_fold_new(f, n, y);
}

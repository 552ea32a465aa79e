/* SPDX-License-Identifier: MIT */
/*
 * attention.c - rules of attention, attention_grad and kv_append.
 *
 * Packed attention: q [N, H, D], k [N, Hk, D], v [N, Hk, Dv], seq_start i32[S+1], positions i32[N].
 * Paged attention: k and v are page pools [P, page, Hk, ...], with two more operands, table
 * i32[S, pages] and lengths i32[S]. Pools may be quantized, with blocks along D. Results: o
 * [N, H, Dv] and lse f32[N, H], the log of the sum of exponentials.
 *
 * The expansion builds one mask [N, M] of all queries by all keys and computes plain softmax
 * attention under it. It takes O(N * M) memory: it is the reference, not a fast path.
 */
#include <math.h>

#include "base/check.h"
#include "graph/op/rule.h"

/* Operands of attention. attention_grad has the same ones behind dy. */
enum { Q, K, V, SEQ_START, POSITIONS, TABLE, LENGTHS };

/* ---- Shapes ---- */

static wf_status check_types(wf_infer *r, wf_value *const *in, int64_t key_rank)
{
    const wf_value *k = in[K], *v = in[V];
    if (key_rank == 3 || !(wf_is_block(k) || wf_is_block(v))) {
        WF_RULE(r, wf_is_float(in[Q]) && wf_is_float(k) && wf_is_float(v),
                "q, k and v must be f32, f16 or bf16");
        return WF_OK;
    }
    WF_RULE(r, wf_is_float(in[Q]) && k->type == v->type,
            "q must be f32, f16 or bf16, and quantized k and v must have the same type");
    return WF_OK;
}

/* Checks that packed and paged attention share. in[] starts at q; key_rank is 3 or 4. */
static wf_status check_heads(wf_infer *r, wf_value *const *in, int64_t key_rank)
{
    const wf_attr_attention *a = r->attr;
    const wf_dims *q = &in[Q]->shape, *k = &in[K]->shape, *v = &in[V]->shape;
    WF_TRY(check_types(r, in, key_rank));
    WF_RULE(r, q->n == 3 && k->n == key_rank && v->n == key_rank, "q must be [N, H, D], k and v %s",
            key_rank == 3 ? "[N, Hk, D]" : "[P, page, Hk, D]");
    WF_RULE(r, q->d[2] > 0 && k->d[key_rank - 1] == q->d[2],
            "k's last axis must equal q's D, and D must not be 0");
    for (int i = 0; i + 1 < key_rank; i++)
        WF_RULE(r, k->d[i] == v->d[i], "k and v must agree in all axes but the last");
    int64_t kv_heads = k->d[key_rank - 2];
    WF_RULE(r, kv_heads > 0 && q->d[1] % kv_heads == 0,
            "the number of kv heads (%lld) must divide the number of q heads (%lld)",
            (long long)kv_heads, (long long)q->d[1]);
    WF_RULE(r, wf_is_i32(in[SEQ_START], 1) && in[SEQ_START]->shape.d[0] >= 1,
            "seq_start must be i32[S + 1]");
    WF_RULE(r, wf_is_i32(in[POSITIONS], 1) && in[POSITIONS]->shape.d[0] == q->d[0],
            "positions must be i32[N]");
    WF_RULE(r, a->window >= 0 && a->window <= INT32_MAX && a->softcap >= 0,
            "window and softcap must not be negative");
    return WF_OK;
}

/* The attribute `length` states that all sequences have that many tokens; 0 states nothing. Checks
 * that the shapes allow it. in[] starts at q. */
static wf_status check_length(wf_infer *r, wf_value *const *in)
{
    const wf_attr_attention *a = r->attr;
    int64_t tokens = in[Q]->shape.d[0], sequences = in[SEQ_START]->shape.d[0] - 1;
    WF_RULE(r, a->length >= 0, "length must not be negative");
    WF_RULE(r, a->length == 0 || (tokens % a->length == 0 && tokens / a->length == sequences),
            "q must have S * length rows, for the S sequences of seq_start");
    return WF_OK;
}

/* Row numbers are i32: P * page rows of the pool, and S * pages * page rows of the table. */
static bool rows_fit_i32(const wf_value *pool, const wf_value *table)
{
    int64_t page = pool->shape.d[1], count;
    return wf_mul_i64(pool->shape.d[0], page, &count) && count <= INT32_MAX &&
           wf_mul_i64(table->shape.d[1], page, &count) && count <= INT32_MAX &&
           wf_mul_i64(table->shape.d[0], count, &count) && count <= INT32_MAX;
}

wf_status wf_shape_attention(wf_infer *r)
{
    WF_RULE(r, r->nin == 5 || r->nin == 7,
            "takes q, k, v, seq_start and positions; over page pools also table and lengths");
    bool paged = r->nin == 7;
    WF_TRY(check_heads(r, r->in, paged ? 4 : 3));
    const wf_dims *q = &r->in[Q]->shape, *v = &r->in[V]->shape;
    if (!paged) {
        WF_RULE(r, r->in[K]->shape.d[0] == q->d[0], "k and v must have as many rows as q");
        WF_TRY(check_length(r, r->in));
    } else {
        const wf_attr_attention *a = r->attr;
        int64_t sequences = r->in[SEQ_START]->shape.d[0] - 1;
        WF_RULE(r, a->length == 0, "length must be 0 for attention over page pools");
        WF_RULE(r, v->d[1] > 0, "the page size must not be 0");
        WF_RULE(r, wf_is_i32(r->in[TABLE], 2) && r->in[TABLE]->shape.d[0] == sequences,
                "the table must be i32[S, pages]");
        WF_RULE(r, rows_fit_i32(r->in[K], r->in[TABLE]),
                "the pool and the table's pages must have fewer than 2^31 rows");
        WF_RULE(r, wf_is_i32(r->in[LENGTHS], 1) && r->in[LENGTHS]->shape.d[0] == sequences,
                "lengths must be i32[S]");
    }
    wf_infer_out(r, r->in[Q]->type, &(wf_dims){3, {q->d[0], q->d[1], v->d[v->n - 1]}});
    wf_infer_out(r, WF_F32, &(wf_dims){2, {q->d[0], q->d[1]}});
    return WF_OK;
}

/* (do, q, k, v, seq_start, positions, o, lse) -> dq, dk, dv */
wf_status wf_shape_attention_grad(wf_infer *r)
{
    wf_value *const *in = r->in + 1;
    const wf_value *dy = r->in[0], *o = r->in[6], *lse = r->in[7];
    WF_TRY(check_heads(r, in, 3));
    WF_TRY(check_length(r, in));
    const wf_dims *q = &in[Q]->shape;
    wf_dims shape = {3, {q->d[0], q->d[1], in[V]->shape.d[2]}};
    WF_RULE(r, in[K]->shape.d[0] == q->d[0], "k and v must have as many rows as q");
    WF_RULE(r, wf_alike(dy, o) && o->type == in[Q]->type && wf_dims_equal(&o->shape, &shape),
            "do and o must be [N, H, Dv] of q's type");
    WF_RULE(r, lse->type == WF_F32 && wf_dims_equal(&lse->shape, &(wf_dims){2, {q->d[0], q->d[1]}}),
            "lse must be f32[N, H]");
    for (int i = 0; i < 3; i++) /* dq, dk and dv have the types and shapes of q, k and v */
        wf_infer_out(r, in[i]->type, &in[i]->shape);
    return WF_OK;
}

/* (pool, x, seq_start, positions, table): writes token i of x to its place in the pages of its
 * sequence. A quantized pool gets what wf_quantize makes of each row of D elements. */
wf_status wf_shape_kv_append(wf_infer *r)
{
    const wf_value *pool = r->in[0], *x = r->in[1], *start = r->in[2], *positions = r->in[3],
                   *table = r->in[4];
    WF_RULE(r, pool->shape.n == 4 && x->shape.n == 3 && wf_is_float(x),
            "the pool must be [P, page, Hk, D], and x [N, Hk, D] of f32, f16 or bf16");
    WF_RULE(r, wf_is_float(pool) || wf_is_block(pool),
            "the pool must be f32, f16, bf16 or quantized");
    WF_RULE(r, pool->shape.d[1] > 0, "the page size must not be 0");
    WF_RULE(r, pool->shape.d[2] == x->shape.d[1] && pool->shape.d[3] == x->shape.d[2],
            "the pool and x must have the same Hk and D");
    WF_RULE(r, wf_is_i32(start, 1) && start->shape.d[0] >= 1, "seq_start must be i32[S + 1]");
    WF_RULE(r, wf_is_i32(positions, 1) && positions->shape.d[0] == x->shape.d[0],
            "positions must be i32[N]");
    WF_RULE(r, wf_is_i32(table, 2) && table->shape.d[0] == start->shape.d[0] - 1,
            "the table must be i32[S, pages]");
    WF_RULE(r, rows_fit_i32(pool, table),
            "the pool and the table's pages must have fewer than 2^31 rows");
    wf_infer_out(r, pool->type, &pool->shape);
    return WF_OK;
}

/* ---- Gradient ---- */

/* Hands o and lse on, so that kernels need not keep the scores. */
wf_status wf_grad_attention(wf_vjp *v)
{
    wf_node *n = v->node;
    if (n->nin != 5)
        return wf_graph_fail(v->g, WF_ERR_USAGE, "attention over page pools has no gradient");
    WF_TRY(wf_vjp_only_first(v));
    wf_value *in[] = {v->dout[0],       n->in[Q],         n->in[K],   n->in[V],
                      n->in[SEQ_START], n->in[POSITIONS], &n->out[0], &n->out[1]};
    wf_value *dq = wf_node_add(v->g, WF_OP_attention_grad, n->attr, NULL, in, 8);
    for (int i = 0; i < 3; i++)
        v->din[i] = wf_value_output(dq, i);
    return WF_OK;
}

/* ---- Expansion ---- */

/* Per query or key: its sequence and position, i32[n], and whether it takes part at all, u8[n]. */
typedef struct {
    wf_value *sequence, *position, *valid;
} token_info;

/* A token belongs to the last sequence that starts at or before it. Sequence -1 (before the first)
 * and S (after the last) are invalid: padding. */
static token_info query_info(wf_graph *g, wf_value *const *in)
{
    int64_t n = in[Q]->shape.d[0], starts = in[SEQ_START]->shape.d[0];
    /* Token numbers as a column, compared with every start. */
    wf_value *row = wf_iota(g, 2, (int64_t[]){n, 1}, 0);
    wf_value *begun = wf_cast(g, wf_le(g, in[SEQ_START], row), WF_I32); /* [N, S+1] */
    wf_value *count = wf_sum(g, begun, 2, false);
    wf_value *sequence = wf_sub(g, count, wf_like(g, count, 1));
    wf_value *valid = wf_and(g, wf_le(g, wf_like(g, sequence, 0), sequence),
                             wf_lt(g, sequence, wf_like(g, sequence, (double)starts - 1)));
    return (token_info){sequence, in[POSITIONS], valid};
}

/* All key places of the table, [S * L] with L = pages * page: place j of sequence s holds position
 * j and is valid below lengths[s]. */
static token_info page_info(wf_graph *g, wf_value *const *in)
{
    int64_t s = in[TABLE]->shape.d[0], l = in[TABLE]->shape.d[1] * in[K]->shape.d[1];
    int64_t shape[] = {s, l}, flat = s * l;
    wf_value *position = wf_iota(g, 2, shape, 1);
    wf_value *valid = wf_lt(g, position, wf_reshape(g, in[LENGTHS], 2, (int64_t[]){s, 1}));
    return (token_info){wf_reshape(g, wf_iota(g, 2, shape, 0), 1, &flat),
                        wf_reshape(g, position, 1, &flat), wf_reshape(g, valid, 1, &flat)};
}

/* Gathers the pool's rows in the order of page_info: [S * L, Hk, D], decoded if quantized. Unused
 * table entries may hold any number, so row numbers are clamped to the pool. */
static wf_value *page_rows(wf_graph *g, wf_value *pool, wf_value *table)
{
    const int64_t *d = pool->shape.d, s = table->shape.d[0], pages = table->shape.d[1];
    int64_t page = d[1], flat = s * pages * page;
    wf_value *first = wf_mul(g, table, wf_like(g, table, (double)page));
    wf_value *row =
        wf_add(g, wf_reshape(g, first, 3, (int64_t[]){s, pages, 1}), wf_iota(g, 1, &page, 0));
    row = wf_maximum(g, row, wf_like(g, row, 0));
    row = wf_minimum(g, row, wf_like(g, row, (double)(d[0] * page - 1)));
    wf_value *x = wf_gather_rows(g, wf_reshape(g, pool, 3, (int64_t[]){d[0] * page, d[2], d[3]}),
                                 wf_reshape(g, row, 1, &flat));
    return wf_is_block(pool) ? wf_cast(g, x, WF_F32) : x;
}

/* Zeroes the invalid rows of x [M, Hk, D]. They may hold NaN, and a masked weight of 0 times NaN is
 * NaN. */
static wf_value *only_valid(wf_graph *g, wf_value *x, wf_value *valid)
{
    wf_value *row = wf_reshape(g, valid, 3, (int64_t[]){wf_value_dim(x, 0), 1, 1});
    return wf_where(g, row, x, wf_like(g, x, 0));
}

/* u8[N, M]: 1 where a query attends to a key. */
static wf_value *visible(wf_graph *g, const wf_attr_attention *a, token_info q, token_info k)
{
    int64_t n = wf_value_count(q.position);
    int64_t column[] = {n, 1};
    wf_value *qs = wf_reshape(g, q.sequence, 2, column), *qp = wf_reshape(g, q.position, 2, column);
    /* Broadcast [N, 1] against [M]. */
    wf_value *mask = wf_and(g, wf_eq(g, qs, k.sequence), k.valid);
    mask = wf_and(g, mask, wf_reshape(g, q.valid, 2, column));
    if (a->causal)
        mask = wf_and(g, mask, wf_le(g, k.position, qp));
    if (a->window > 0) {
        wf_value *back = wf_sub(g, qp, k.position);
        mask = wf_and(g, mask, wf_lt(g, back, wf_like(g, back, (double)a->window)));
    }
    return mask;
}

/* u8[M]: 1 where any query attends to the key. */
static wf_value *seen_by_any(wf_graph *g, wf_value *mask)
{
    wf_value *queries = wf_sum(g, wf_cast(g, mask, WF_I32), 1, false);
    return wf_lt(g, wf_like(g, queries, 0), queries);
}

/* [M, Hk, D] to f32 [H, M, D]; each kv head is repeated H / Hk times for its group of q heads. */
static wf_value *heads_first(wf_graph *g, wf_value *x, int64_t heads)
{
    static const int64_t order[] = {1, 0, 2};
    int64_t m = wf_value_dim(x, 0), hk = wf_value_dim(x, 1), d = wf_value_dim(x, 2);
    x = wf_permute(g, wf_cast(g, x, WF_F32), order);
    if (hk == heads)
        return x;
    x = wf_reshape(g, x, 4, (int64_t[]){hk, 1, m, d});
    x = wf_broadcast(g, x, 4, (int64_t[]){hk, heads / hk, m, d});
    return wf_reshape(g, x, 3, (int64_t[]){heads, m, d});
}

wf_status wf_expand_attention(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_attention *a = n->attr;
    int64_t heads = in[Q]->shape.d[1];
    double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)in[Q]->shape.d[2]);
    bool paged = n->nin == 7;
    token_info qi = query_info(g, in), ki = paged ? page_info(g, in) : qi;
    wf_value *mask = visible(g, a, qi, ki);
    if (paged && a->window > 0) /* pages behind the window may hold anything */
        ki.valid = seen_by_any(g, mask);
    wf_value *k = only_valid(g, paged ? page_rows(g, in[K], in[TABLE]) : in[K], ki.valid);
    wf_value *v = only_valid(g, paged ? page_rows(g, in[V], in[TABLE]) : in[V], ki.valid);
    if (!k || !v)
        return g->status;

    wf_value *s = wf_matmul(g, heads_first(g, in[Q], heads), heads_first(g, k, heads), false, true);
    s = wf_scale(g, s, scale); /* [H, N, M] */
    if (a->softcap > 0)
        s = wf_scale(g, wf_tanh(g, wf_scale(g, s, 1 / a->softcap)), a->softcap);
    if (!s)
        return g->status;
    if (s->shape.d[2] == 0) { /* no keys at all */
        out[0] =
            wf_fill(g, in[Q]->type, 3, (int64_t[]){in[Q]->shape.d[0], heads, v->shape.d[2]}, 0);
        out[1] = wf_fill(g, WF_F32, 2, in[Q]->shape.d, -INFINITY);
        return WF_OK;
    }
    /* -1e30 stands for minus infinity: a row without visible keys then has no NaN. */
    wf_value *top = wf_max(g, wf_where(g, mask, s, wf_like(g, s, -1e30)), 4, true);
    /* Mask before and after exp: the gradient of exp of a hidden score could be inf * 0. */
    wf_value *shifted = wf_where(g, mask, wf_sub(g, s, top), wf_like(g, s, 0));
    wf_value *e = wf_where(g, mask, wf_exp(g, shifted), wf_like(g, s, 0));
    wf_value *sum = wf_sum(g, e, 4, true);
    /* A query without visible keys has sum 0. Its result is 0, not 0 / 0. */
    wf_value *p = wf_div(g, e, wf_maximum(g, sum, wf_like(g, sum, 1e-30)));
    wf_value *o = wf_matmul(g, p, heads_first(g, v, heads), false, false);
    out[0] = wf_cast(g, wf_permute(g, o, (int64_t[]){1, 0, 2}), in[Q]->type);
    wf_value *lse = wf_add(g, top, wf_log(g, sum)); /* [H, N, 1] */
    out[1] = wf_permute(g, wf_reshape(g, lse, 2, (int64_t[]){heads, in[Q]->shape.d[0]}),
                        (int64_t[]){1, 0});
    return WF_OK;
}

/* Differentiates the expansion; o and lse (operands 6 and 7) are not needed. */
wf_status wf_expand_attention_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                   wf_value **out)
{
    return wf_expand_vjp(g, WF_OP_attention, n->attr, in + 1, 5, in[0], (int[]){0, 1, 2}, 3, out);
}

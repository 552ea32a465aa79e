/* SPDX-License-Identifier: MIT */
/*
 * cost.c - FLOPs and bytes of a node, by the columns `flops` and `bytes` of ops.def.
 *
 * A row names either a count per element or a function below. All sums saturate, so a hostile graph
 * cannot wrap to a small cost. A multiply-add counts as 2 FLOPs. Data-dependent costs are
 * estimates; cost.h lists the assumptions.
 */
#include "graph/cost.h"

/* ---- Saturating arithmetic ---- */

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t count(const wf_value *v)
{
    return (uint64_t)wf_dims_count(&v->shape);
}

static uint64_t dim(const wf_value *v, int64_t axis)
{
    return (uint64_t)v->shape.d[axis];
}

/* Operations per element of a unary op. */
static uint64_t unary_flops(wf_op op);

/* ---- FLOPs of ops with BY(f) in ops.def ---- */

/* 2 K per element of the result [..., M, N]. The batch is part of the result. */
static uint64_t matmul_flops(const wf_node *n)
{
    const wf_attr_matmul *a = n->attr;
    const wf_value *x = n->in[0];
    /* a is [..., M, K], or [..., K, M] if transposed. */
    uint64_t k = dim(x, x->shape.n - (a->transpose_a ? 2 : 1));
    return times(times(2, k), count(&n->out[0]));
}

/* x [..., K] and w [N, K]; one more addition per element with a bias. */
static uint64_t linear_flops(const wf_node *n)
{
    uint64_t k = (uint64_t)wf_dims_last(&n->in[0]->shape), out = count(&n->out[0]);
    return plus(times(times(2, k), out), n->nin > 2 ? out : 0);
}

/* Number of (query, key) pairs that the mask allows in one sequence of `length` tokens. A window
 * limits the keys before the query only. */
static uint64_t visible_pairs(const wf_attr_attention *a, uint64_t length)
{
    uint64_t w = a->window > 0 && (uint64_t)a->window < length ? (uint64_t)a->window : length;
    /* Keys at the same or an earlier position: query i < w has i + 1 of them, the others w. */
    uint64_t back = plus(times(w, w + 1) / 2, times(length - w, w));
    /* Without the causal mask, every later key is visible, too: length (length - 1) / 2 pairs. */
    return a->causal || length == 0 ? back : plus(back, times(length, length - 1) / 2);
}

/* 2 (D + Dv) FLOPs per pair and head: a dot product of length D and a scaled sum of length Dv.
 * table == NULL: packed sequences. rows: tokens per page. */
static uint64_t attention_work(const wf_attr_attention *a, const wf_value *q, const wf_value *v,
                               const wf_value *seq_start, const wf_value *table, uint64_t rows)
{
    /* seq_start has one entry more than there are sequences. */
    uint64_t tokens = dim(q, 0), sequences = dim(seq_start, 0) - 1, pairs;
    if (table) {
        uint64_t seen = times(dim(table, 1), rows);
        /* A page table names all pages of a sequence; a window reads only the last ones. */
        if (a->causal && a->window > 0 && (uint64_t)a->window < seen)
            seen = (uint64_t)a->window;
        pairs = times(tokens, seen);
    } else {
        sequences = sequences > 0 ? sequences : 1;
        pairs = times(sequences, visible_pairs(a, tokens / sequences));
    }
    return times(times(2, pairs), times(dim(q, 1), dim(q, 2) + dim(v, v->shape.n - 1)));
}

static uint64_t attention_flops(const wf_node *n)
{
    const wf_value *table = n->nin > 5 ? n->in[5] : NULL;
    uint64_t rows = table ? dim(n->in[1], 1) : 0;
    return attention_work(n->attr, n->in[0], n->in[2], n->in[3], table, rows);
}

/* 5 matmuls against 2 in the forward pass: recomputed scores, dP, dQ, dK and dV. */
static uint64_t attention_grad_flops(const wf_node *n)
{
    uint64_t forward = attention_work(n->attr, n->in[1], n->in[3], n->in[4], NULL, 0);
    return plus(times(2, forward), forward / 2);
}

static uint64_t glu_flops(const wf_node *n)
{
    uint64_t act = unary_flops(wf_glu_op(((const wf_attr_glu *)n->attr)->kind));
    bool grad = n->nout > 1; /* activation, derivative (estimated alike), 3 multiplications */
    return times(grad ? 2 * act + 3 : act + 1, count(&n->out[0]));
}

/* One multiply-add per element; the square root of the sum is not counted. */
static uint64_t global_norm_flops(const wf_node *n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n->nin; i++)
        sum = plus(sum, times(2, count(n->in[i])));
    return sum;
}

static uint64_t linear_act_flops(const wf_node *n)
{
    const wf_attr_linear_act *a = n->attr;
    return plus(linear_flops(n), times(unary_flops(wf_act_op(a->act)), count(&n->out[0])));
}

/* One matmul, gelu_grad (16 per element) and the row sum (1). */
static uint64_t matmul_act_grad_flops(const wf_node *n)
{
    return times(plus(times(2, dim(n->in[0], 1)), 17), count(&n->out[0]));
}

/* One matmul, and the sum of dy for the bias. */
static uint64_t linear_grad_weight_flops(const wf_node *n)
{
    return plus(times(times(2, dim(n->in[0], 0)), count(&n->out[0])), count(n->in[0]));
}

/* linear and cross_entropy (4 operations per logit). With dloss also their gradient: one more
 * matmul each for dx and dw. Outputs are loss, lse, dx?, dw?, so there are nout - 1 matmuls. */
static uint64_t head_loss_flops(const wf_node *n)
{
    uint64_t logits = times((uint64_t)wf_dims_rows(&n->in[0]->shape), dim(n->in[1], 0));
    uint64_t matmul = times(times(2, dim(n->in[1], 1)), logits), row_work = times(4, logits);
    return plus(times((uint64_t)n->nout - 1, matmul), times(n->nin > 3 ? 2 : 1, row_work));
}

/* Merged updates: `each` operations per element of the first `parameters` outputs. */
static uint64_t many_flops(const wf_node *n, int parameters, uint64_t each)
{
    uint64_t sum = 0;
    for (int i = 0; i < parameters; i++)
        sum = plus(sum, times(each, count(&n->out[i])));
    return sum;
}

static uint64_t adamw_many_flops(const wf_node *n)
{
    const wf_attr_adamw *a = n->attr;
    return many_flops(n, n->nout / (a->copies ? 4 : 3), 16);
}

static uint64_t accumulate_many_flops(const wf_node *n)
{
    return many_flops(n, n->nout, 1);
}

/* ---- Bytes: functions of the column `bytes` ---- */

/* Counts operands from `first` on; a value that occurs twice is read once. Leaves bytes_written
 * alone. */
static void read_from(const wf_node *n, int first, wf_cost *out)
{
    for (int i = first; i < n->nin; i++) {
        bool seen = false;
        for (int k = first; k < i && !seen; k++)
            seen = n->in[k] == n->in[i];
        if (!seen)
            out->bytes_read = plus(out->bytes_read, wf_value_bytes(n->in[i]));
    }
}

static void all_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 0, out);
    for (int i = 0; i < n->nout; i++)
        out->bytes_written = plus(out->bytes_written, wf_value_bytes(&n->out[i]));
}

/* Reads only the selected rows of the table, input 0. */
static void row_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_value_bytes(&n->out[0]);
    uint64_t rows = wf_type_bytes(n->in[0]->type, wf_dims_count(&n->out[0].shape));
    out->bytes_read = plus(out->bytes_read, rows);
}

/* Does not read the old version of the state. */
static void assign_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_value_bytes(&n->out[0]);
}

/* Narrow copies of the parameters are written but not read. */
static void adamw_many_bytes(const wf_node *n, wf_cost *out)
{
    const wf_attr_adamw *a = n->attr;
    all_bytes(n, out);
    for (int i = n->nout / 4 * 3; a->copies && i < n->nout; i++)
        /* Cannot underflow: all_bytes counted each copy once, as every state occurs once in a
         * node. */
        out->bytes_read -= wf_value_bytes(n->in[i]);
}

/* Writes only the new tokens of the pool. */
static void append_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_type_bytes(n->out[0].type, wf_dims_count(&n->in[1]->shape));
}

/* Reads at most as many pages of each pool as the table has entries. */
static void attention_bytes(const wf_node *n, wf_cost *out)
{
    all_bytes(n, out);
    for (int i = 1; i < 3 && n->nin > 5; i++) {
        const wf_value *pool = n->in[i];
        /* Entries of the table, an upper bound of the distinct pages. */
        uint64_t named = count(n->in[5]), pages = dim(pool, 0);
        if (named < pages)
            out->bytes_read -= wf_value_bytes(pool) / pages * (pages - named);
        if (n->in[1] == n->in[2])
            break; /* k and v are one pool, which all_bytes counted once */
    }
}

/* ---- The table, from ops.def ---- */

/* The value whose elements `each` applies to. */
typedef enum { OUT_0, IN_0, IN_LAST } basis;

typedef struct {
    uint64_t each; /* operations per element */
    basis of;
    uint64_t (*flops)(const wf_node *n); /* NULL: each * elements of `of` */
    void (*bytes)(const wf_node *n, wf_cost *out);
} row;

/* Expand the column `flops` to the first three fields of a row. */
#define FLOPS_PER_OUT(k) k, OUT_0, NULL
#define FLOPS_PER_IN(k) k, IN_0, NULL
#define FLOPS_PER_LAST_IN(k) k, IN_LAST, NULL
#define FLOPS_NONE 0, OUT_0, NULL
#define FLOPS_BY(name) 0, OUT_0, name##_flops

/* clang-format off */
static const row rows[WF_OP_COUNT] = {
#define WF_UNARY(name, doc, f32, range, grad, expand, flops, precision) \
    [WF_OP_##name] = {FLOPS_PER_OUT(flops), all_bytes},
#define WF_BINARY(name, doc, types, f32, i32, range_a, range_b, grad_a, grad_b, expand, flops, \
                  precision) \
    [WF_OP_##name] = {FLOPS_PER_OUT(flops), all_bytes},
#define WF_OP(name, doc, attrs, min_in, max_in, flags, shape, grad, expand, flops, bytes, \
              precision) \
    [WF_OP_##name] = {FLOPS_##flops, bytes##_bytes},
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
};
/* clang-format on */

static uint64_t unary_flops(wf_op op)
{
    return rows[op].each;
}

static uint64_t counted(const wf_node *n, basis of)
{
    switch (of) {
    case OUT_0: return count(&n->out[0]);
    case IN_0: return count(n->in[0]);
    case IN_LAST: return count(n->in[n->nin - 1]);
    }
    return 0;
}

void wf_node_cost(const wf_node *n, wf_cost *out)
{
    const row *r = &rows[n->op];
    *out = (wf_cost){0};
    if (wf_node_is(n, WF_FLAG_VIEW | WF_FLAG_SOURCE))
        return;
    out->flops = r->flops ? r->flops(n) : times(r->each, counted(n, r->of));
    r->bytes(n, out);
}

void wf_cost_add(wf_cost *sum, const wf_cost *c)
{
    sum->flops = plus(sum->flops, c->flops);
    sum->bytes_read = plus(sum->bytes_read, c->bytes_read);
    sum->bytes_written = plus(sum->bytes_written, c->bytes_written);
}

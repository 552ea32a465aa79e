/* SPDX-License-Identifier: MIT */
/* cost.c - one operation for each element of the first output, and every operand and output once,
 * is what a node costs unless the table has a row that says otherwise. */
#include "graph/cost.h"

/* ---- Numbers that saturate ---- */

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

/* ---- FLOPs that are no multiple of a count of elements ---- */

static uint64_t matmul_flops(const wf_node *n)
{
    const wf_attr_matmul *a = n->attr;
    const wf_value *x = n->in[0];
    uint64_t k = dim(x, x->shape.n - (a->transpose_a ? 2 : 1));
    return times(times(2, k), count(&n->out[0]));
}

static uint64_t linear_flops(const wf_node *n)
{
    uint64_t k = (uint64_t)wf_dims_last(&n->in[0]->shape), out = count(&n->out[0]);
    return plus(times(times(2, k), out), n->nin > 2 ? out : 0);
}

/* Pairs of a query and a key that it sees, in one sequence of `length` that sees only itself. */
static uint64_t visible_pairs(const wf_attr_attention *a, uint64_t length)
{
    uint64_t w = a->window > 0 && (uint64_t)a->window < length ? (uint64_t)a->window : length;
    /* the first w queries see 1, 2, ..., w keys that are not later, the others w each */
    uint64_t back = plus(times(w, w + 1) / 2, times(length - w, w));
    return a->causal || length == 0 ? back : plus(back, times(length, length - 1) / 2);
}

/* Each pair costs a product of length D and one of length Dv, in each of H heads. */
static uint64_t attention_work(const wf_attr_attention *a, const wf_value *q, const wf_value *v,
                               const wf_value *seq_start, const wf_value *table, uint64_t rows)
{
    uint64_t tokens = dim(q, 0), sequences = dim(seq_start, 0) - 1, pairs;
    if (table) {
        uint64_t seen = times(dim(table, 1), rows);
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

/* Five products of a pair where the forward has two: scores again, dP, dQ, dK and dV. */
static uint64_t attention_grad_flops(const wf_node *n)
{
    uint64_t forward = attention_work(n->attr, n->in[1], n->in[3], n->in[4], NULL, 0);
    return plus(times(2, forward), forward / 2);
}

static uint64_t glu_flops(const wf_node *n)
{
    static const uint64_t act[] = {[WF_GLU_SILU] = 2, [WF_GLU_GELU] = 8, [WF_GLU_GELU_ERF] = 5};
    const wf_attr_glu *a = n->attr;
    bool grad = n->nout > 1; /* the activation, its derivative, and three products */
    uint64_t each = grad ? 2 * act[a->kind] + 3 : act[a->kind] + 1;
    return times(each, count(&n->out[0]));
}

static uint64_t global_norm_flops(const wf_node *n)
{
    uint64_t sum = 0;
    for (int i = 0; i < n->nin; i++)
        sum = plus(sum, times(2, count(n->in[i])));
    return sum;
}

static uint64_t linear_act_flops(const wf_node *n)
{
    static const uint64_t act[WF_ACT_COUNT] = {
        [WF_ACT_GELU] = 8, [WF_ACT_GELU_ERF] = 5, [WF_ACT_SILU] = 2,
        [WF_ACT_RELU] = 1, [WF_ACT_RELU2] = 2,
    };
    const wf_attr_linear_act *a = n->attr;
    return plus(linear_flops(n), times(act[a->act], count(&n->out[0])));
}

static uint64_t matmul_act_grad_flops(const wf_node *n)
{
    return times(plus(times(2, dim(n->in[0], 1)), 17), count(&n->out[0]));
}

static uint64_t linear_grad_weight_flops(const wf_node *n)
{
    return plus(times(times(2, dim(n->in[0], 0)), count(&n->out[0])), count(n->in[0]));
}

/* linear and cross_entropy; with dloss also its gradient and the products that follow: dx, and dw where w
 * has one. */
static uint64_t head_loss_flops(const wf_node *n)
{
    uint64_t logits = times((uint64_t)wf_dims_rows(&n->in[0]->shape), dim(n->in[1], 0));
    uint64_t product = times(times(2, dim(n->in[1], 1)), logits), row_work = times(4, logits);
    return plus(times((uint64_t)n->nout - 1, product), times(n->nin > 3 ? 2 : 1, row_work));
}

/* Of merged updates: what one costs, for all that are written. */
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

/* ---- Bytes of ops that touch only parts ---- */

/* Reads operands from `first` on, each distinct one once. */
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

/* Of a table only the rows that come out. */
static void row_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_value_bytes(&n->out[0]);
    uint64_t rows = wf_type_bytes(n->in[0]->type, wf_dims_count(&n->out[0].shape));
    out->bytes_read = plus(out->bytes_read, rows);
}

static void assign_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_value_bytes(&n->out[0]);
}

/* Copies are written without being read. */
static void adamw_many_bytes(const wf_node *n, wf_cost *out)
{
    const wf_attr_adamw *a = n->attr;
    all_bytes(n, out);
    for (int i = n->nout / 4 * 3; a->copies && i < n->nout; i++)
        out->bytes_read -= wf_value_bytes(n->in[i]);
}

/* Of the pool only the new tokens. */
static void append_bytes(const wf_node *n, wf_cost *out)
{
    read_from(n, 1, out);
    out->bytes_written = wf_type_bytes(n->out[0].type, wf_dims_count(&n->in[1]->shape));
}

/* Of the pools only the rows that the table names, when there are fewer than the pool has. */
static void attention_bytes(const wf_node *n, wf_cost *out)
{
    all_bytes(n, out);
    for (int i = 1; i < 3 && n->nin > 5; i++) {
        const wf_value *pool = n->in[i];
        uint64_t named = count(n->in[5]), pages = dim(pool, 0);
        if (named < pages)
            out->bytes_read -= wf_value_bytes(pool) / pages * (pages - named);
        if (n->in[1] == n->in[2])
            break; /* counted once */
    }
}

/* ---- The exceptions ---- */

/* Which elements are counted; a zeroed row is the default. */
typedef enum { OUT_0, IN_0, IN_LAST, NOTHING } basis;

typedef struct {
    uint64_t each; /* operations for each element counted; 0: 1 */
    basis of;
    uint64_t (*flops)(const wf_node *n); /* instead of each and of */
    void (*bytes)(const wf_node *n, wf_cost *out);
} row;

static const row rows[WF_OP_COUNT] = {
    /* arithmetic of the expansions, written out */
    [WF_OP_gelu] = {.each = 8},
    [WF_OP_gelu_erf] = {.each = 5},
    [WF_OP_gelu_grad] = {.each = 16},
    [WF_OP_silu] = {.each = 2},
    [WF_OP_relu2] = {.each = 2},
    [WF_OP_glu] = {.flops = glu_flops},
    [WF_OP_glu_grad] = {.flops = glu_flops},
    [WF_OP_dropout] = {.each = 2},
    /* data that only moves */
    [WF_OP_fill] = {.of = NOTHING},
    [WF_OP_iota] = {.of = NOTHING},
    [WF_OP_cast] = {.of = NOTHING},
    [WF_OP_copy] = {.of = NOTHING},
    [WF_OP_pad] = {.of = NOTHING},
    [WF_OP_concat] = {.of = NOTHING},
    [WF_OP_broadcast] = {.of = NOTHING},
    [WF_OP_embed] = {.of = NOTHING, .bytes = row_bytes},
    [WF_OP_gather_rows] = {.of = NOTHING, .bytes = row_bytes},
    [WF_OP_scatter_add_rows] = {.of = IN_LAST},
    /* reductions: of what goes in */
    [WF_OP_sum] = {.of = IN_0},
    [WF_OP_mean] = {.of = IN_0},
    [WF_OP_max] = {.of = IN_0},
    [WF_OP_argmax] = {.of = IN_0},
    [WF_OP_top_k] = {.of = IN_0},
    [WF_OP_global_norm] = {.flops = global_norm_flops},
    [WF_OP_softmax] = {.each = 5},
    [WF_OP_softmax_grad] = {.each = 4},
    [WF_OP_cross_entropy] = {.each = 4, .of = IN_0},
    [WF_OP_cross_entropy_grad] = {.each = 4},
    /* layer norm: mean 1, variance 3, normalised 2, gamma and beta 2; rms norm likewise */
    [WF_OP_layer_norm] = {.each = 8},
    [WF_OP_layer_norm_grad] = {.each = 13},
    [WF_OP_rms_norm] = {.each = 4},
    [WF_OP_rms_norm_grad] = {.each = 9},
    [WF_OP_rope] = {.each = 3},
    [WF_OP_matmul] = {.flops = matmul_flops},
    [WF_OP_linear] = {.flops = linear_flops},
    [WF_OP_attention] = {.flops = attention_flops, .bytes = attention_bytes},
    [WF_OP_attention_grad] = {.flops = attention_grad_flops},
    /* updates */
    [WF_OP_assign] = {.of = NOTHING, .bytes = assign_bytes},
    [WF_OP_kv_append] = {.of = NOTHING, .bytes = append_bytes},
    [WF_OP_adamw] = {.each = 16},
    [WF_OP_sgd] = {.each = 6},
    [WF_OP_lion] = {.each = 9},
    /* fused forms: what their parts cost; the bytes are fewer by themselves */
    [WF_OP_residual_rms_norm] = {.each = 5},
    [WF_OP_residual_layer_norm] = {.each = 9},
    [WF_OP_linear_act] = {.flops = linear_act_flops},
    [WF_OP_residual_rms_norm_grad] = {.each = 11},
    [WF_OP_residual_layer_norm_grad] = {.each = 15},
    [WF_OP_matmul_act_grad] = {.flops = matmul_act_grad_flops},
    [WF_OP_linear_grad_weight] = {.flops = linear_grad_weight_flops},
    [WF_OP_head_loss] = {.flops = head_loss_flops},
    [WF_OP_adamw_many] = {.flops = adamw_many_flops, .bytes = adamw_many_bytes},
    [WF_OP_accumulate_many] = {.flops = accumulate_many_flops},
};

static uint64_t counted(const wf_node *n, basis of)
{
    switch (of) {
    case OUT_0: return count(&n->out[0]);
    case IN_0: return count(n->in[0]);
    case IN_LAST: return count(n->in[n->nin - 1]);
    case NOTHING: break;
    }
    return 0;
}

void wf_node_cost(const wf_node *n, wf_cost *out)
{
    const row *r = &rows[n->op];
    *out = (wf_cost){0};
    if (wf_node_is(n, WF_FLAG_VIEW | WF_FLAG_SOURCE))
        return;
    out->flops = r->flops ? r->flops(n) : times(r->each ? r->each : 1, counted(n, r->of));
    (r->bytes ? r->bytes : all_bytes)(n, out);
}

void wf_cost_add(wf_cost *sum, const wf_cost *c)
{
    sum->flops = plus(sum->flops, c->flops);
    sum->bytes_read = plus(sum->bytes_read, c->bytes_read);
    sum->bytes_written = plus(sum->bytes_written, c->bytes_written);
}

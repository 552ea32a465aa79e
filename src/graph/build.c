/* SPDX-License-Identifier: MIT */
/*
 * build.c - functions that add nodes: the public ones of weft.h, and those of build.h.
 *
 * They only fill in attributes and defaults. wf_node_add (graph.c) and the shape rules (op/) check
 * operands. Builders that would add a node without effect return the operand itself: wf_cast to the
 * same type, wf_reshape and wf_broadcast to the same shape.
 */
#include "graph/build.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* A NULL operand usually follows from an earlier failure, which the graph has recorded. wf_node_add
 * then returns NULL without a new message. */
static wf_value *add(wf_graph *g, wf_op op, const void *attr, wf_value *const *in, int nin)
{
    return wf_node_add(g, op, attr, NULL, in, nin);
}

static wf_value *add1(wf_graph *g, wf_op op, const void *attr, wf_value *x)
{
    return add(g, op, attr, &x, 1);
}

/* Length of a list of optional operands without the NULLs at its end. */
static int present(wf_value *const *in, int n)
{
    while (n > 0 && !in[n - 1])
        n--;
    return n;
}

/* Invalid arguments become dims that wf_node_add rejects: a rank out of range, or lengths of -1
 * when d is NULL. */
static wf_dims dims_of(int rank, const int64_t *d)
{
    static const int64_t missing[WF_MAX_RANK] = {-1, -1, -1, -1, -1, -1};
    if (rank < 0 || rank > WF_MAX_RANK)
        return (wf_dims){.n = rank};
    return wf_dims_make(rank, d ? d : missing);
}

/* ---- Ops by name ---- */

/* Returns the op, or -1 after failing with the nearest name. */
static int find_op(wf_graph *g, const char *name)
{
    int op = name ? wf_op_find(name) : -1;
    if (op >= 0)
        return op;
    const char *names[WF_OP_COUNT];
    for (int i = 0; i < WF_OP_COUNT; i++)
        names[i] = wf_op_get((wf_op)i)->name;
    const char *near = wf_text_nearest(name ? name : "", names, WF_OP_COUNT);
    wf_graph_fail(g, WF_ERR_USAGE, "unknown op '%s'%s%s%s", name ? name : "",
                  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return -1;
}

/* Returns the address of the stream number in the attributes, or NULL when the op is not random. */
static int64_t *stream_of(const wf_op_def *def, void *attr)
{
    for (const wf_attr_field *f = def->fields; f->name; f++)
        if (f->kind == WF_ATTR_STREAM)
            return (int64_t *)((char *)attr + f->offset);
    return NULL;
}

/* Builds any op but a source from text, as graph text and wf_call_op do. Attributes that the text
 * does not mention get the defaults of attr.def. */
wf_value *wf_op_add(wf_graph *g, const char *op, const char *attrs, wf_value *const *in, int nin)
{
    union { /* the union aligns the bytes for any attribute struct */
        int64_t align;
        char bytes[256];
    } attr = {0};
    int i = g->status == WF_OK ? find_op(g, op) : -1;
    if (i < 0)
        return NULL;
    const wf_op_def *def = wf_op_get((wf_op)i);
    /* A larger attribute struct needs a larger buffer here. */
    wf_assert(def->attr_bytes <= sizeof attr);
    wf_attr_defaults(def, &attr);
    if (def->flags & WF_FLAG_SOURCE) {
        wf_graph_fail(g, WF_ERR_USAGE, "%s needs a name; use wf_%s", op, op);
        return NULL;
    }
    int64_t *stream = stream_of(def, &attr);
    if (stream) /* to tell "not given" from stream 0 */
        *stream = -1;
    if (wf_attr_parse(g->ctx, def, attrs, &attr) != WF_OK) {
        wf_graph_fail(g, g->ctx->status, "%s", g->ctx->message);
        return NULL;
    }
    if (stream && *stream < 0) /* not given: take the next one, as wf_uniform and wf_dropout do */
        *stream = g->streams++;
    return add(g, (wf_op)i, &attr, in, nin);
}

/* Adds the elementwise op of this name; it must take nin operands. */
static wf_value *elementwise(wf_graph *g, const char *op, wf_value *const *in, int nin)
{
    int i = find_op(g, op);
    if (i < 0)
        return NULL;
    const wf_op_def *def = wf_op_get((wf_op)i);
    if (!(def->flags & WF_FLAG_ELEMENTWISE) || def->min_in != nin) {
        wf_graph_fail(g, WF_ERR_USAGE, "%s is not an elementwise op with %d operand%s", op, nin,
                      WF_PLURAL(nin));
        return NULL;
    }
    return add(g, (wf_op)i, NULL, in, nin);
}

wf_value *wf_unary(wf_graph *g, const char *op, wf_value *x)
{
    return elementwise(g, op, &x, 1);
}

wf_value *wf_binary(wf_graph *g, const char *op, wf_value *a, wf_value *b)
{
    return elementwise(g, op, (wf_value *[]){a, b}, 2);
}

/* ---- Sources ---- */

/* Fails if the graph has a source of this op and name: an input and a state may share one. */
static wf_value *source(wf_graph *g, wf_op op, const char *name, wf_type type, int rank,
                        const int64_t *dims)
{
    wf_attr_source a = {.type = type, .dims = dims_of(rank, dims)};
    if (!name || !*name) {
        wf_graph_fail(g, WF_ERR_USAGE, "%s: the name is missing or empty", wf_op_get(op)->name);
        return NULL;
    }
    for (int i = 0; i < g->node_count; i++) /* linear, but only while a graph is built */
        if (g->nodes[i]->op == op && strcmp(g->nodes[i]->name, name) == 0) {
            wf_graph_fail(g, WF_ERR_USAGE, "the graph already has a%s '%s'",
                          op == WF_OP_input ? "n input" : " state", name);
            return NULL;
        }
    return wf_node_add(g, op, &a, name, NULL, 0);
}

wf_value *wf_input(wf_graph *g, const char *name, wf_type type, int rank, const int64_t *dims)
{
    return source(g, WF_OP_input, name, type, rank, dims);
}

wf_value *wf_state(wf_graph *g, const char *name, wf_type type, int rank, const int64_t *dims)
{
    return source(g, WF_OP_state, name, type, rank, dims);
}

wf_value *wf_state_like(wf_graph *g, const char *name, const wf_value *value)
{
    if (!value) {
        wf_graph_fail(g, WF_ERR_USAGE,
                      "state '%s': the value to take type and shape from is missing", name);
        return NULL;
    }
    return wf_state(g, name, value->type, (int)value->shape.n, value->shape.d);
}

wf_value *wf_fill(wf_graph *g, wf_type type, int rank, const int64_t *dims, double value)
{
    wf_attr_fill a = {.type = type, .dims = dims_of(rank, dims), .value = value};
    return add(g, WF_OP_fill, &a, NULL, 0);
}

wf_value *wf_iota(wf_graph *g, int rank, const int64_t *dims, int axis)
{
    wf_attr_iota a = {.dims = dims_of(rank, dims), .axis = axis};
    return add(g, WF_OP_iota, &a, NULL, 0);
}

wf_value *wf_uniform(wf_graph *g, wf_value *key, int rank, const int64_t *dims)
{
    /* Every call takes a stream of its own, so two uniforms with the same key differ. */
    wf_attr_uniform a = {.dims = dims_of(rank, dims), .stream = g->streams++};
    return add1(g, WF_OP_uniform, &a, key);
}

wf_value *wf_like(wf_graph *g, wf_value *x, double value)
{
    return x ? wf_fill(g, x->type, 0, NULL, value) : NULL;
}

wf_value *wf_zeros_like(wf_graph *g, wf_value *x)
{
    return x ? wf_fill(g, x->type, (int)x->shape.n, x->shape.d, 0) : NULL;
}

/* ---- Elementwise with attributes, types ---- */

wf_value *wf_scale(wf_graph *g, wf_value *x, double factor)
{
    return add1(g, WF_OP_scale, &(wf_attr_scale){factor}, x);
}

wf_value *wf_where(wf_graph *g, wf_value *condition, wf_value *a, wf_value *b)
{
    return add(g, WF_OP_where, NULL, (wf_value *[]){condition, a, b}, 3);
}

/* a != 0 selects b, else 0. */
wf_value *wf_and(wf_graph *g, wf_value *a, wf_value *b)
{
    return wf_where(g, a, b, wf_fill(g, WF_U8, 0, NULL, 0));
}

wf_value *wf_cast(wf_graph *g, wf_value *x, wf_type type)
{
    if (x && x->type == type)
        return x;
    return add1(g, WF_OP_cast, &(wf_attr_cast){type}, x);
}

wf_value *wf_copy(wf_graph *g, wf_value *x)
{
    return add1(g, WF_OP_copy, NULL, x);
}

/* ---- Shapes ---- */

wf_value *wf_reshape(wf_graph *g, wf_value *x, int rank, const int64_t *dims)
{
    wf_attr_shape a = {dims_of(rank, dims)};
    int64_t known = 1; /* product of all given lengths; 0 counts as 1 */
    int open = -1;
    for (int i = 0; x && i < rank && i < WF_MAX_RANK; i++)
        if (a.dims.d[i] == -1)
            open = open < 0 ? i : open; /* a second -1 stays, and wf_node_add rejects it */
        else if (a.dims.d[i] > 0 && !wf_mul_i64(known, a.dims.d[i], &known))
            known = INT64_MAX; /* overflow: the element counts differ, and the rule rejects it */
    if (x && open >= 0)
        /* With a length of 0 among the given ones both sides of the rule are 0, for any -1. */
        a.dims.d[open] = wf_dims_count(&x->shape) / known;
    if (x && rank >= 0 && rank <= WF_MAX_RANK && wf_dims_equal(&a.dims, &x->shape))
        return x;
    return add1(g, WF_OP_reshape, &a, x);
}

wf_value *wf_permute(wf_graph *g, wf_value *x, const int64_t *order)
{
    /* Without order the list is empty, and the rule rejects it. */
    wf_attr_permute a = {x && order ? wf_dims_make((int)x->shape.n, order) : (wf_dims){0}};
    return add1(g, WF_OP_permute, &a, x);
}

wf_value *wf_slice(wf_graph *g, wf_value *x, int axis, int64_t begin, int64_t end)
{
    return add1(g, WF_OP_slice, &(wf_attr_slice){axis, begin, end}, x);
}

wf_value *wf_concat(wf_graph *g, wf_value *const *x, int n, int axis)
{
    return add(g, WF_OP_concat, &(wf_attr_axis){axis}, x, n);
}

wf_value *wf_pad(wf_graph *g, wf_value *x, int axis, int64_t before, int64_t after)
{
    return add1(g, WF_OP_pad, &(wf_attr_pad){axis, before, after}, x);
}

wf_value *wf_broadcast(wf_graph *g, wf_value *x, int rank, const int64_t *dims)
{
    wf_attr_shape a = {dims_of(rank, dims)};
    if (x && rank >= 0 && rank <= WF_MAX_RANK && wf_dims_equal(&a.dims, &x->shape))
        return x;
    return add1(g, WF_OP_broadcast, &a, x);
}

wf_value *wf_reshape_to(wf_graph *g, wf_value *x, const wf_dims *shape)
{
    return wf_reshape(g, x, (int)shape->n, shape->d);
}

wf_value *wf_broadcast_to(wf_graph *g, wf_value *x, const wf_dims *shape)
{
    return wf_broadcast(g, x, (int)shape->n, shape->d);
}

wf_value *wf_flatten_rows(wf_graph *g, wf_value *x)
{
    if (!x)
        return NULL;
    return wf_reshape(g, x, 2, (int64_t[]){wf_dims_rows(&x->shape), wf_dims_last(&x->shape)});
}

/* ---- Reductions ---- */

/* `op` is "sum", "mean" or "max". */
wf_value *wf_reduce(wf_graph *g, const char *op, wf_value *x, uint32_t axes, bool keep)
{
    int i = find_op(g, op);
    if (i < 0)
        return NULL;
    if (i != WF_OP_sum && i != WF_OP_mean && i != WF_OP_max) {
        wf_graph_fail(g, WF_ERR_USAGE, "%s is not a reduction; use sum, mean or max", op);
        return NULL;
    }
    return add1(g, (wf_op)i, &(wf_attr_reduce){axes, keep}, x);
}

wf_value *wf_sum(wf_graph *g, wf_value *x, uint32_t axes, bool keep)
{
    return add1(g, WF_OP_sum, &(wf_attr_reduce){axes, keep}, x);
}

wf_value *wf_max(wf_graph *g, wf_value *x, uint32_t axes, bool keep)
{
    return add1(g, WF_OP_max, &(wf_attr_reduce){axes, keep}, x);
}

wf_value *wf_sum_to(wf_graph *g, wf_value *x, const wf_dims *shape)
{
    if (!x || wf_dims_equal(&x->shape, shape))
        return x;
    uint32_t axes = 0;
    int64_t added = x->shape.n - shape->n; /* leading axes that broadcasting added */
    for (int i = 0; i < x->shape.n; i++)
        if (i < added || (shape->d[i - added] == 1 && x->shape.d[i] != 1))
            axes |= 1u << i;
    /* Summing with keep = true leaves axes of length 1, so the reshape only drops leading ones. */
    return wf_reshape_to(g, axes ? wf_sum(g, x, axes, true) : x, shape);
}

wf_value *wf_argmax(wf_graph *g, wf_value *x, int axis)
{
    return add1(g, WF_OP_argmax, &(wf_attr_axis){axis}, x);
}

wf_value *wf_top_k(wf_graph *g, wf_value *x, int64_t k)
{
    return add1(g, WF_OP_top_k, &(wf_attr_top_k){k}, x);
}

wf_value *wf_softmax(wf_graph *g, wf_value *x)
{
    return add1(g, WF_OP_softmax, NULL, x);
}

wf_value *wf_global_norm(wf_graph *g, wf_value *const *x, int n)
{
    return add(g, WF_OP_global_norm, NULL, x, n);
}

/* ---- Rows, matmuls, norms ---- */

wf_value *wf_embed(wf_graph *g, wf_value *table, wf_value *ids)
{
    return add(g, WF_OP_embed, NULL, (wf_value *[]){table, ids}, 2);
}

wf_value *wf_gather_rows(wf_graph *g, wf_value *x, wf_value *rows)
{
    return add(g, WF_OP_gather_rows, NULL, (wf_value *[]){x, rows}, 2);
}

wf_value *wf_scatter_add_rows(wf_graph *g, wf_value *x, wf_value *rows, wf_value *from)
{
    return add(g, WF_OP_scatter_add_rows, NULL, (wf_value *[]){x, rows, from}, 3);
}

wf_value *wf_linear(wf_graph *g, wf_value *x, wf_value *w, wf_value *bias)
{
    wf_value *in[] = {x, w, bias};
    return add(g, WF_OP_linear, NULL, in, bias ? 3 : 2);
}

wf_value *wf_matmul(wf_graph *g, wf_value *a, wf_value *b, bool transpose_a, bool transpose_b)
{
    return add(g, WF_OP_matmul, &(wf_attr_matmul){transpose_a, transpose_b}, (wf_value *[]){a, b},
               2);
}

wf_value *wf_layer_norm(wf_graph *g, wf_value *x, wf_value *gamma, wf_value *beta, double eps)
{
    wf_value *in[] = {x, gamma, beta};
    return add(g, WF_OP_layer_norm, &(wf_attr_norm){eps}, in, 1 + present(in + 1, 2));
}

wf_value *wf_rms_norm(wf_graph *g, wf_value *x, wf_value *gamma, double eps)
{
    wf_value *in[] = {x, gamma};
    return add(g, WF_OP_rms_norm, &(wf_attr_norm){eps}, in, gamma ? 2 : 1);
}

wf_value *wf_glu(wf_graph *g, wf_value *gate, wf_value *up, wf_glu_kind kind)
{
    return add(g, WF_OP_glu, &(wf_attr_glu){kind}, (wf_value *[]){gate, up}, 2);
}

wf_value *wf_rope(wf_graph *g, wf_value *x, wf_value *positions, wf_value *inv_freq,
                  bool interleaved, double magnitude)
{
    wf_attr_rope a = {.interleaved = interleaved, .magnitude = magnitude};
    return add(g, WF_OP_rope, &a, (wf_value *[]){x, positions, inv_freq}, 3);
}

/* ---- Attention, loss, dropout ---- */

/* NULL selects the defaults: causal, scale 1 / sqrt(D), no window, no soft cap. */
static wf_attr_attention attention_attr(const wf_attention_options *o)
{
    wf_attention_options none = {0};
    o = o ? o : &none;
    return (wf_attr_attention){!o->bidirectional, o->scale, o->window, o->softcap, o->length};
}

wf_value *wf_attention(wf_graph *g, wf_value *q, wf_value *k, wf_value *v, wf_value *seq_start,
                       wf_value *positions, const wf_attention_options *options)
{
    wf_attr_attention a = attention_attr(options);
    return add(g, WF_OP_attention, &a, (wf_value *[]){q, k, v, seq_start, positions}, 5);
}

wf_value *wf_attention_paged(wf_graph *g, wf_value *q, wf_value *k, wf_value *v,
                             wf_value *seq_start, wf_value *positions, wf_value *table,
                             wf_value *lengths, const wf_attention_options *options)
{
    wf_attr_attention a = attention_attr(options);
    return add(g, WF_OP_attention, &a,
               (wf_value *[]){q, k, v, seq_start, positions, table, lengths}, 7);
}

wf_value *wf_cross_entropy(wf_graph *g, wf_value *logits, wf_value *targets,
                           const wf_cross_entropy_options *o)
{
    wf_attr_cross_entropy a = {.ignore_index = -100}; /* PyTorch's default */
    if (o)
        a = (wf_attr_cross_entropy){a.ignore_index, o->label_smoothing, o->z_loss, o->softcap};
    /* 0 means "default" in a zeroed struct, so index 0 has a constant of its own. */
    if (o && o->ignore_index != 0)
        a.ignore_index = o->ignore_index == WF_IGNORE_ZERO ? 0 : o->ignore_index;
    return add(g, WF_OP_cross_entropy, &a, (wf_value *[]){logits, targets}, 2);
}

wf_value *wf_dropout(wf_graph *g, wf_value *x, wf_value *key, double p)
{
    wf_attr_dropout a = {.p = p, .stream = g->streams++};
    return add(g, WF_OP_dropout, &a, (wf_value *[]){x, key}, 2);
}

/* ---- Updates ---- */

wf_value *wf_assign(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply)
{
    wf_value *in[] = {state, x, apply};
    return add(g, WF_OP_assign, NULL, in, apply ? 3 : 2);
}

wf_value *wf_accumulate(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply)
{
    wf_value *in[] = {state, x, apply};
    return add(g, WF_OP_accumulate, NULL, in, apply ? 3 : 2);
}

/* Options: 0 selects the default, a negative value selects 0. A zeroed struct is all defaults. */
static double or_default(double x, double otherwise)
{
    return x == 0 ? otherwise : x < 0 ? 0 : x;
}

/* v, or the constant 1. */
static wf_value *or_scalar(wf_graph *g, wf_value *v, wf_type type)
{
    return v ? v : wf_fill(g, type, 0, NULL, 1);
}

wf_value *wf_adamw(wf_graph *g, wf_value *p, wf_value *m, wf_value *v, wf_value *grad, wf_value *lr,
                   wf_value *step, wf_value *scale, wf_value *apply, const wf_adamw_options *o)
{
    wf_adamw_options none = {0};
    o = o ? o : &none;
    wf_attr_adamw a = {.beta1 = or_default(o->beta1, 0.9),
                       .beta2 = or_default(o->beta2, 0.999),
                       .eps = or_default(o->eps, 1e-8),
                       .weight_decay = o->weight_decay};
    wf_value *in[] = {
        p, m, v, grad, lr, step, or_scalar(g, scale, WF_F32), or_scalar(g, apply, WF_U8)};
    return add(g, WF_OP_adamw, &a, in, 8);
}

wf_value *wf_sgd(wf_graph *g, wf_value *p, wf_value *velocity, wf_value *grad, wf_value *lr,
                 wf_value *scale, wf_value *apply, const wf_sgd_options *o)
{
    wf_attr_sgd a = {0};
    if (o)
        a = (wf_attr_sgd){o->momentum, o->weight_decay, o->nesterov};
    /* velocity is present only with momentum; all later operands move up by one. */
    wf_value *in[6];
    int n = 0;
    in[n++] = p;
    if (velocity)
        in[n++] = velocity;
    in[n++] = grad;
    in[n++] = lr;
    in[n++] = or_scalar(g, scale, WF_F32);
    in[n++] = or_scalar(g, apply, WF_U8);
    return add(g, WF_OP_sgd, &a, in, n);
}

wf_value *wf_lion(wf_graph *g, wf_value *p, wf_value *m, wf_value *grad, wf_value *lr,
                  wf_value *scale, wf_value *apply, const wf_lion_options *o)
{
    wf_lion_options none = {0};
    o = o ? o : &none;
    wf_attr_lion a = {.beta1 = or_default(o->beta1, 0.9),
                      .beta2 = or_default(o->beta2, 0.99),
                      .weight_decay = o->weight_decay};
    wf_value *in[] = {p, m, grad, lr, or_scalar(g, scale, WF_F32), or_scalar(g, apply, WF_U8)};
    return add(g, WF_OP_lion, &a, in, 6);
}

wf_value *wf_kv_append(wf_graph *g, wf_value *pool, wf_value *x, wf_value *seq_start,
                       wf_value *positions, wf_value *table)
{
    return add(g, WF_OP_kv_append, NULL, (wf_value *[]){pool, x, seq_start, positions, table}, 5);
}

/* ---- Marks for passes ---- */

/* Marks are hints on the value. They add no node and change no result. */
static wf_value *mark(wf_graph *g, wf_value *x, uint32_t mark, const char *what)
{
    if (g->status != WF_OK || !x)
        return NULL;
    if (!wf_graph_has(g, x)) {
        wf_graph_fail(g, WF_ERR_USAGE, "%s: the value belongs to another graph", what);
        return NULL;
    }
    x->marks |= mark;
    return x;
}

wf_value *wf_block(wf_graph *g, wf_value *x)
{
    return mark(g, x, WF_MARK_BLOCK, "block");
}

wf_value *wf_recompute(wf_graph *g, wf_value *x)
{
    return mark(g, x, WF_MARK_RECOMPUTE, "recompute");
}

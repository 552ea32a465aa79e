/* SPDX-License-Identifier: MIT */
/* random_steps.c - the kinds of steps: single ops, and the patterns of transformers. */
#include "random_priv.h"

#include <stdio.h>
#include <string.h>

/* ---- Elementwise ---- */

/* Scales x down so that e^x stays moderate. */
static wf_value *small(rg_maker *m, wf_value *x)
{
    double size = rg_size(m, x);
    return size <= 1 ? x : rg_chance(m, 2) ? wf_tanh(m->g, x) : wf_scale(m->g, x, 1 / size);
}

/* Maps x to values of at least 1/3. */
static wf_value *positive(rg_maker *m, wf_value *x)
{
    wf_graph *g = m->g;
    switch (rg_draw(m, 3)) {
    case 0: return wf_add(g, wf_mul(g, x, x), wf_like(g, x, 0.5));
    case 1: return wf_add(g, wf_sigmoid(g, x), wf_like(g, x, 0.5));
    default: return wf_exp(g, small(m, x));
    }
}

typedef enum { ANY, SMALL, POSITIVE } domain;

static void add_unary(rg_maker *m)
{
    static const struct {
        wf_op op;
        domain domain;
    } ops[] = {
        {WF_OP_neg, ANY},      {WF_OP_exp, SMALL},     {WF_OP_expm1, SMALL},
        {WF_OP_log, POSITIVE}, {WF_OP_sqrt, POSITIVE}, {WF_OP_rsqrt, POSITIVE},
        {WF_OP_sin, ANY},      {WF_OP_cos, ANY},       {WF_OP_tanh, ANY},
        {WF_OP_sigmoid, ANY},  {WF_OP_erf, ANY},       {WF_OP_gelu, ANY},
        {WF_OP_gelu_erf, ANY}, {WF_OP_silu, ANY},      {WF_OP_relu, ANY},
        {WF_OP_relu2, ANY},
    };
    int64_t i = rg_draw(m, sizeof ops / sizeof *ops);
    wf_value *x = rg_pick(m, &(rg_want){0});
    if (!x)
        return;
    if (ops[i].domain != ANY)
        x = ops[i].domain == SMALL ? small(m, x) : positive(m, x);
    rg_settle(m, wf_node_add(m->g, ops[i].op, NULL, NULL, &x, 1));
}

static void add_binary(rg_maker *m)
{
    static const wf_op ops[] = {WF_OP_add, WF_OP_sub,     WF_OP_mul,     WF_OP_add,
                                WF_OP_mul, WF_OP_maximum, WF_OP_minimum, WF_OP_div};
    wf_op op = ops[rg_draw(m, sizeof ops / sizeof *ops)];
    wf_value *a = rg_pick(m, &(rg_want){0});
    if (!a)
        return;
    wf_value *in[] = {a, rg_partner(m, a)};
    if (op == WF_OP_div)
        in[1] = positive(m, in[1]);
    else if (rg_chance(m, 2)) /* the partner may have fewer axes than a, or more */
        in[0] = in[1], in[1] = a;
    rg_settle(m, wf_node_add(m->g, op, NULL, NULL, in, 2));
}

static void add_compare(rg_maker *m)
{
    static const wf_op ops[] = {WF_OP_lt, WF_OP_le, WF_OP_eq, WF_OP_ne};
    wf_value *a = rg_pick(m, &(rg_want){.types = WF_TYPES_NUMBER});
    if (!a)
        return;
    wf_value *in[] = {a, rg_partner(m, a)};
    wf_value *truth = wf_node_add(m->g, ops[rg_draw(m, 4)], NULL, NULL, in, 2);
    if (rg_chance(m, 3))
        wf_cast(m->g, truth, rg_type(m));
    else if (rg_chance(m, 2))
        wf_where(m->g, truth, in[1], in[0]);
}

static bool conditions(rg_maker *m, const wf_value *c, void *arg)
{
    const wf_value *a = arg;
    wf_dims shape;
    (void)m;
    return wf_dims_broadcast(&a->shape, &c->shape, &shape) && wf_dims_equal(&a->shape, &shape);
}

static void add_where(rg_maker *m)
{
    wf_value *a = rg_pick(m, &(rg_want){.min_rank = 1});
    if (!a)
        return;
    wf_value *c = rg_pick(m, &(rg_want){.types = WF_TYPE_BIT(WF_U8), .fits = conditions, .arg = a});
    wf_where(m->g, c ? c : rg_flag(m), rg_chance(m, 2) ? wf_like(m->g, a, 0) : rg_partner(m, a), a);
}

/* Candidates for folding: repeated computations and ops without effect. */
static void add_identity(rg_maker *m)
{
    wf_graph *g = m->g;
    wf_value *x = rg_pick(m, &(rg_want){.max_count = 600});
    if (!x)
        return;
    wf_value *full = wf_fill(g, x->type, (int)x->shape.n, x->shape.d, 0.25 * (double)rg_draw(m, 5));
    switch (rg_draw(m, 9)) {
    case 0: wf_scale(g, x, 1); break;
    case 1: wf_add(g, x, wf_like(g, x, 0)); break;
    case 2: wf_mul(g, wf_like(g, x, 1), x); break;
    case 3: wf_scale(g, wf_scale(g, x, 2), 0.5); break;
    case 4: wf_neg(g, wf_neg(g, x)); break;
    case 5: rg_settle(m, wf_add(g, wf_mul(g, full, full), x)); break;
    case 6: wf_div(g, x, wf_like(g, x, 1)); break;
    case 7: wf_tanh(g, wf_cast(g, full, rg_type(m))); break;
    case 8: wf_sub(g, x, wf_scale(g, full, 0.5)); break;
    }
}

static void add_casts(rg_maker *m)
{
    wf_value *x = rg_pick(m, &(rg_want){0});
    if (!x)
        return;
    wf_type back = x->type;
    for (int64_t n = 1 + rg_draw(m, 3); n > 0; n--)
        x = wf_cast(m->g, x, rg_type(m));
    if (rg_chance(m, 2))
        wf_cast(m->g, x, back);
}

/* Builds a second copy of v and of its operands up to `depth`. Returns v itself where that is not
 * possible. */
static wf_value *again(rg_maker *m, wf_value *v, int depth)
{
    wf_node *n = v->node;
    wf_value *in[8];
    if (depth == 0 || n->nin > 8 || n->backward || wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_UPDATE))
        return v;
    for (int i = 0; i < n->nin; i++) {
        in[i] = again(m, n->in[i], depth - 1);
        if (!rg_readable(m, in[i]))
            return v;
    }
    return wf_node_add(m->g, n->op, n->attr, NULL, in, n->nin) + v->index;
}

static void add_duplicate(rg_maker *m)
{
    wf_value *v = rg_pick(m, &(rg_want){0});
    if (!v)
        return;
    wf_value *twin = again(m, v, 1 + (int)rg_draw(m, 3));
    if (rg_chance(m, 2))
        rg_settle(m, wf_add(m->g, v, twin));
}

static void add_random(rg_maker *m)
{
    wf_value *x = rg_pick(m, &(rg_want){.max_count = 600});
    if (!x)
        return;
    if (rg_chance(m, 3)) {
        wf_value *u = wf_uniform(m->g, rg_key(m), (int)x->shape.n, x->shape.d);
        wf_mul(m->g, wf_cast(m->g, u, x->type), x);
    } else {
        rg_settle(m, wf_dropout(m->g, x, rg_key(m), rg_chance(m, 4) ? 0 : 0.25));
    }
}

/* Bounds a value that has grown large, or is a statistic or a gradient, so that other steps can
 * read it. */
static void add_calm(rg_maker *m)
{
    wf_value *x = rg_pick(m, &(rg_want){.wild = true});
    if (x)
        rg_settle(m, x);
}

static void add_integers(rg_maker *m)
{
    static const wf_op ops[] = {WF_OP_add, WF_OP_sub, WF_OP_maximum, WF_OP_minimum};
    wf_graph *g = m->g;
    wf_value *x = rg_pick(m, &(rg_want){.types = WF_TYPE_BIT(WF_I32), .max_count = 400});
    if (!x || rg_size(m, x) > 1e5 || rg_chance(m, 3))
        x = rg_chance(m, 2) ? wf_iota(g, 2, (int64_t[]){3, 4}, (int)rg_draw(m, 2))
                            : rg_ids(m, 5, 1, (int64_t[]){4});
    wf_value *y = x->shape.n > 0 && rg_chance(m, 2)
                      ? wf_iota(g, (int)x->shape.n, x->shape.d, (int)x->shape.n - 1)
                      : wf_fill(g, WF_I32, 0, NULL, (double)rg_draw(m, 4));
    wf_value *z = wf_node_add(g, ops[rg_draw(m, 4)], NULL, NULL, (wf_value *[]){x, y}, 2);
    switch (rg_draw(m, 3)) {
    case 0: rg_settle(m, wf_cast(g, z, rg_type(m))); break;
    case 1: wf_le(g, z, y); break; /* on constants and inputs: no float result jumps */
    case 2: wf_sum(g, z, (uint32_t)rg_draw(m, 1 << z->shape.n), rg_chance(m, 2)); break;
    }
}

/* ---- Shapes ---- */

static wf_value *permuted(rg_maker *m, wf_value *x)
{
    int64_t order[WF_MAX_RANK];
    for (int64_t i = 0; i < x->shape.n; i++)
        order[i] = i;
    for (int64_t i = x->shape.n - 1; i > 0; i--) {
        int64_t k = rg_draw(m, i + 1), t = order[i];
        order[i] = order[k];
        order[k] = t;
    }
    return wf_permute(m->g, x, order);
}

static wf_value *sliced(rg_maker *m, wf_value *x, int axis)
{
    int64_t n = x->shape.d[axis], begin = rg_draw(m, n + 1),
            end = begin + rg_draw(m, n - begin + 1);
    if (begin == end && !rg_chance(m, 8)) /* few slices are empty */
        begin = n / 3, end = n;
    return wf_slice(m->g, x, axis, begin, end);
}

/* Flattens, inserts an axis of 1, splits an axis, or merges two. */
static wf_value *reshaped(rg_maker *m, wf_value *x, int axis)
{
    wf_dims d = x->shape;
    int64_t n = d.d[axis];
    int kind = (int)rg_draw(m, 4);
    bool merge = kind == 2 && axis + 1 < d.n, split = kind == 3 && n > 0 && n % 2 == 0;
    if (merge) {
        d.d[axis] *= d.d[axis + 1];
        memmove(d.d + axis + 1, d.d + axis + 2, (size_t)(d.n - axis - 2) * sizeof *d.d);
        d.d[--d.n] = 0;
    } else if (d.n < WF_MAX_RANK && (kind == 1 || split)) {
        memmove(d.d + axis + 1, d.d + axis, (size_t)(d.n - axis) * sizeof *d.d);
        d.d[axis] = split ? n / 2 : 1;
        d.d[axis + 1] = split ? 2 : n;
        d.n++;
    } else {
        d = (wf_dims){1, {wf_value_count(x)}};
    }
    return wf_reshape_to(m->g, x, &d);
}

static void add_views(rg_maker *m)
{
    wf_value *x = rg_pick(m, &(rg_want){.types = WF_TYPES_PLAIN, .min_rank = 1, .wild = true});
    for (int64_t n = 1 + rg_draw(m, 3); n > 0 && x && x->shape.n > 0; n--) {
        int axis = (int)rg_draw(m, x->shape.n);
        switch (rg_draw(m, 3)) {
        case 0: x = permuted(m, x); break;
        case 1: x = sliced(m, x, axis); break;
        case 2: x = reshaped(m, x, axis); break;
        }
    }
}

typedef struct {
    const wf_value *x;
    int axis;
} beside;

static bool joins(rg_maker *m, const wf_value *v, void *arg)
{
    const beside *b = arg;
    (void)m;
    bool fits = v->type == b->x->type && v->shape.n == b->x->shape.n;
    for (int i = 0; i < v->shape.n && fits; i++)
        fits = i == b->axis || v->shape.d[i] == b->x->shape.d[i];
    return fits;
}

static void add_movement(rg_maker *m)
{
    wf_graph *g = m->g;
    int64_t kind = rg_draw(m, 4);
    wf_value *x = rg_pick(m, &(rg_want){.types = WF_TYPES_NUMBER, .min_rank = 1, .max_count = 600});
    if (!x)
        return;
    beside b = {x, (int)rg_draw(m, x->shape.n)};
    int64_t dims[WF_MAX_RANK] = {2};
    switch (kind) {
    case 0: wf_pad(g, x, b.axis, rg_draw(m, 3), rg_draw(m, 3)); break;
    case 1: {
        const rg_want want = {
            .types = wf_type_bit(x->type), .max_count = 600, .fits = joins, .arg = &b};
        wf_value *parts[] = {x, rg_pick(m, &want), rg_pick(m, &want)};
        wf_concat(g, parts, 1 + (int)rg_draw(m, 3), b.axis);
        break;
    }
    case 2:
        if (x->shape.n < 4) {
            memcpy(dims + 1, x->shape.d, (size_t)x->shape.n * sizeof *dims);
            wf_broadcast(g, x, (int)x->shape.n + 1, dims);
        }
        break;
    case 3: wf_copy(g, x); break;
    }
}

static void add_rows(rg_maker *m)
{
    wf_graph *g = m->g;
    int64_t n = 1 + rg_draw(m, 6);
    bool embed = rg_chance(m, 3), gather = rg_chance(m, 2), scatter = !rg_chance(m, 3);
    wf_value *x = rg_pick_float(m, embed ? 2 : 1, embed ? 2 : 3, 400);
    if (!x)
        return;
    int64_t rows = x->shape.d[0];
    if (embed) {
        wf_embed(g, x, rg_ids(m, rows, rg_chance(m, 2) ? 1 : 2, (int64_t[]){n, 2}));
        return;
    }
    wf_value *ids = rg_ids(m, rows, 1, &n);
    wf_dims shape = x->shape;
    shape.d[0] = n;
    const rg_want want = {.types = wf_type_bit(x->type), .shape = &shape};
    wf_value *from = gather ? NULL : rg_pick(m, &want);
    if (!from)
        from = wf_gather_rows(g, x, ids);
    if (scatter)
        rg_settle(m, wf_scatter_add_rows(g, x, gather ? rg_ids(m, rows, 1, &n) : ids, from));
}

/* ---- Reductions ---- */

static void add_reduction(rg_maker *m)
{
    wf_graph *g = m->g;
    int64_t kind = rg_draw(m, 4);
    bool keep = rg_chance(m, 2);
    wf_value *x = rg_pick_float(m, 1, WF_MAX_RANK, RG_MAX_COUNT);
    if (!x)
        return;
    uint32_t axes = (uint32_t)rg_draw(m, 1 << x->shape.n);
    switch (kind) {
    case 0: wf_reduce(g, "mean", x, axes, keep); break;
    case 1: rg_settle(m, wf_sum(g, x, axes, keep)); break;
    case 2: wf_softmax(g, x); break;
    case 3: { /* rows minus their mean: broadcasts a reduction */
        uint32_t last = 1u << (x->shape.n - 1);
        rg_settle(m, wf_sub(g, x, wf_reduce(g, "mean", x, last, true)));
        break;
    }
    }
}

static void add_largest(rg_maker *m)
{
    wf_graph *g = m->g;
    int64_t kind = rg_draw(m, 3);
    wf_value *x = rg_pick_float(m, 1, 5, 600);
    if (!x)
        return;
    switch (kind) {
    case 0: wf_max(g, x, (uint32_t)rg_draw(m, 1 << x->shape.n), rg_chance(m, 2)); break;
    case 1: wf_top_k(g, x, 1 + rg_draw(m, wf_dims_last(&x->shape))); break;
    case 2: { /* computed indices are legal when they come from the same axis */
        wf_value *flat = wf_flatten_rows(g, x);
        wf_gather_rows(g, flat, wf_argmax(g, flat, 0));
        break;
    }
    }
}

static void add_global_norm(rg_maker *m)
{
    wf_value *x[4];
    int n = 0;
    for (int64_t k = 1 + rg_draw(m, 4); k > 0; k--)
        if ((x[n] = rg_pick(m, &(rg_want){0})))
            n++;
    if (n > 0)
        rg_settle(m, wf_global_norm(m->g, x, n));
}

/* ---- Matmuls and norms ---- */

static bool is_weight(rg_maker *m, const wf_value *v, void *arg)
{
    const int64_t *k = arg;
    (void)m;
    return v->shape.d[1] == *k && v->shape.d[0] <= 16;
}

/* x w^T + b. Some weights are shared with other ops. */
wf_value *rg_linear(rg_maker *m, wf_value *x, int64_t to)
{
    int64_t k = wf_dims_last(&x->shape);
    wf_value *w = NULL;
    if (to == 0 && rg_chance(m, 2)) /* any width will do */
        w = rg_pick(
            m,
            &(rg_want){.min_rank = 2, .max_rank = 2, .full = true, .fits = is_weight, .arg = &k});
    if (!w)
        w = rg_new_state(m, "w", 2, (int64_t[]){to ? to : 2 + 2 * rg_draw(m, 5), k});
    wf_value *bias = rg_chance(m, 2) ? rg_new_state(m, "bias", 1, w->shape.d) : NULL;
    return wf_linear(m->g, x, w, bias);
}

static bool has_short_axes(rg_maker *m, const wf_value *v, void *arg)
{
    (void)m;
    (void)arg;
    return wf_dims_last(&v->shape) <= 24 && (v->shape.n < 2 || v->shape.d[v->shape.n - 2] <= 24);
}

static wf_value *pick_rows(rg_maker *m, int min_rank, int max_rank)
{
    return rg_pick(m, &(rg_want){.min_rank = min_rank,
                                 .max_rank = max_rank,
                                 .max_count = 200,
                                 .full = true,
                                 .fits = has_short_axes});
}

static void add_linear(rg_maker *m)
{
    static const wf_op after[] = {WF_OP_gelu, WF_OP_silu, WF_OP_relu, WF_OP_gelu_erf};
    wf_value *x = pick_rows(m, 1, 4);
    if (!x)
        return;
    x = rg_linear(m, x, 0);
    if (rg_chance(m, 2))
        x = wf_node_add(m->g, after[rg_draw(m, 4)], NULL, NULL, &x, 1);
    rg_settle(m, x);
}

static void add_matmul(rg_maker *m)
{
    bool ta = rg_chance(m, 2), tb = rg_chance(m, 2);
    wf_value *a = pick_rows(m, 2, 4);
    if (!a)
        return;
    wf_dims shape = a->shape;
    int64_t last = shape.n - 1, rows = shape.d[last - 1], k = shape.d[last];
    if (rg_chance(m, 3)) { /* with itself */
        rg_settle(m, wf_matmul(m->g, a, a, ta, !ta));
        return;
    }
    int64_t inner = ta ? rows : k, outer = 1 + rg_draw(m, 6);
    shape.d[last - 1] = tb ? outer : inner;
    shape.d[last] = tb ? inner : outer;
    wf_value *b = rg_chance(m, 2) ? rg_pick(m, &(rg_want){.shape = &shape}) : NULL;
    if (!b)
        b = rg_new_state(m, "w", (int)shape.n, shape.d);
    rg_settle(m, wf_matmul(m->g, a, b, ta, tb));
}

wf_value *rg_norm(rg_maker *m, wf_value *x)
{
    static const double eps[2][2] = {{1e-2, 0.1}, {0.25, 1}};
    double e = eps[m->recipe->options.smooth][rg_draw(m, 2)];
    int64_t c = wf_dims_last(&x->shape);
    wf_value *gamma = rg_chance(m, 3) ? NULL : rg_new_state(m, "gamma", 1, &c);
    if (rg_chance(m, 2))
        return wf_rms_norm(m->g, x, gamma, e);
    wf_value *beta = gamma && rg_chance(m, 2) ? rg_new_state(m, "beta", 1, &c) : NULL;
    return wf_layer_norm(m->g, x, gamma, beta, e);
}

static void add_norm(rg_maker *m)
{
    wf_value *x = rg_pick_float(m, 1, 5, RG_MAX_COUNT);
    if (x)
        rg_norm(m, x);
}

/* x + f(x) or x + y, then a norm; later steps may read both. */
static void add_residual(rg_maker *m)
{
    wf_value *x = pick_rows(m, 1, 4), *y;
    if (!x)
        return;
    y = rg_chance(m, 2) ? rg_linear(m, x, wf_dims_last(&x->shape)) : rg_partner(m, x);
    rg_norm(m, wf_add(m->g, x, y));
}

static void add_glu(rg_maker *m)
{
    wf_graph *g = m->g;
    wf_value *x = pick_rows(m, 1, 3), *gate, *up;
    if (!x)
        return;
    int64_t hidden = 2 + 2 * rg_draw(m, 4);
    if (rg_chance(m, 2)) { /* both halves of one matmul */
        wf_value *both = rg_linear(m, x, 2 * hidden);
        int axis = (int)x->shape.n - 1;
        gate = wf_slice(g, both, axis, 0, hidden);
        up = wf_slice(g, both, axis, hidden, 2 * hidden);
    } else {
        gate = rg_linear(m, x, hidden);
        up = rg_linear(m, x, hidden);
    }
    wf_value *y = rg_settle(m, wf_glu(g, gate, up, (wf_glu_kind)rg_draw(m, 3)));
    if (rg_chance(m, 2))
        rg_settle(m, wf_add(g, x, rg_linear(m, y, wf_dims_last(&x->shape))));
}

wf_value *rg_head(rg_maker *m, wf_value *x)
{
    char name[32];
    int64_t vocab = 3 + rg_draw(m, 8);
    wf_value *logits = rg_linear(m, x, vocab);
    snprintf(name, sizeof name, "target%d.%d.%d", (int)vocab, m->step, m->serial++);
    wf_value *targets = rg_input(m, name, WF_I32, (int)x->shape.n - 1, x->shape.d);
    wf_cross_entropy_options options = {.label_smoothing = rg_chance(m, 3) ? 0.1 : 0,
                                        .z_loss = rg_chance(m, 3) ? 1e-2 : 0,
                                        .softcap = rg_chance(m, 4) ? 5 : 0};
    wf_value *loss = wf_cross_entropy(m->g, logits, targets, &options);
    return wf_reduce(m->g, rg_chance(m, 4) ? "sum" : "mean", loss, WF_ALL_AXES(loss), false);
}

static void add_head(rg_maker *m)
{
    wf_value *x = pick_rows(m, 1, 3);
    if (x)
        rg_head(m, x);
}

/* ---- Attention ---- */

typedef struct {
    int64_t n, heads, kv_heads, d, dv;
    wf_value *q, *k, *v, *start, *positions;
} heads;

static wf_value *split_heads(rg_maker *m, wf_value *x, int64_t h, int64_t d)
{
    return wf_reshape(m->g, x, 3, (int64_t[]){x->shape.d[0], h, d});
}

static void project(rg_maker *m, wf_value *x, heads *h)
{
    wf_graph *g = m->g;
    int64_t q = h->heads * h->d, k = h->kv_heads * h->d, v = h->kv_heads * h->dv;
    if (rg_chance(m, 2)) {
        wf_value *all = rg_linear(m, x, q + k + v);
        h->q = split_heads(m, wf_slice(g, all, 1, 0, q), h->heads, h->d);
        h->k = split_heads(m, wf_slice(g, all, 1, q, q + k), h->kv_heads, h->d);
        h->v = split_heads(m, wf_slice(g, all, 1, q + k, q + k + v), h->kv_heads, h->dv);
    } else {
        h->q = split_heads(m, rg_linear(m, x, q), h->heads, h->d);
        h->k = split_heads(m, rg_linear(m, x, k), h->kv_heads, h->d);
        h->v = split_heads(m, rg_linear(m, x, v), h->kv_heads, h->dv);
    }
}

static void turn(rg_maker *m, heads *h)
{
    char name[32];
    int64_t pairs = 1 + rg_draw(m, h->d / 2);
    bool interleaved = rg_chance(m, 2);
    snprintf(name, sizeof name, "freq%d", (int)pairs);
    wf_value *freq = rg_input(m, name, WF_F32, 1, &pairs);
    double magnitude = rg_chance(m, 4) ? 0.9 : 1;
    h->q = wf_rope(m->g, h->q, h->positions, freq, interleaved, magnitude);
    h->k = wf_rope(m->g, h->k, h->positions, freq, interleaved, magnitude);
}

/* Starts and positions belong together: one pair for each number of rows. */
static void find_sequences(rg_maker *m, heads *h)
{
    char name[32];
    int64_t entries = 2 + h->n % 3;
    snprintf(name, sizeof name, "start%d", (int)h->n);
    h->start = rg_input(m, name, WF_I32, 1, &entries);
    snprintf(name, sizeof name, "pos%d", (int)h->n);
    h->positions = rg_input(m, name, WF_I32, 1, &h->n);
}

static void add_attention(rg_maker *m)
{
    wf_graph *g = m->g;
    wf_value *x = pick_rows(m, 2, 2);
    if (!x)
        return;
    heads h = {.n = x->shape.d[0], .kv_heads = 1 + rg_draw(m, 2), .d = 2 + 2 * rg_draw(m, 3)};
    h.heads = h.kv_heads * (1 + rg_draw(m, 2));
    h.dv = rg_chance(m, 4) ? h.d + 1 : h.d;
    wf_value *y = rg_chance(m, 2) ? rg_norm(m, x) : x;
    find_sequences(m, &h);
    project(m, y, &h);
    if (!rg_chance(m, 3))
        turn(m, &h);
    wf_attention_options options = {.bidirectional = rg_chance(m, 3),
                                    .window = rg_chance(m, 3) ? 1 + rg_draw(m, 4) : 0,
                                    .softcap = rg_chance(m, 3) ? 4 : 0};
    wf_value *o = wf_attention(g, h.q, h.k, h.v, h.start, h.positions, &options);
    o = wf_reshape(g, o, 2, (int64_t[]){h.n, h.heads * h.dv});
    rg_settle(m, wf_add(g, x, rg_linear(m, o, x->shape.d[1])));
}

/* ---- All ---- */

const rg_step rg_steps[] = {
    {"unary", add_unary, 8, RG_ANY},
    {"binary", add_binary, 12, RG_ANY},
    {"where", add_where, 3, RG_ANY},
    {"compare", add_compare, 3, RG_JUMPS},
    {"identity", add_identity, 5, RG_ANY},
    {"casts", add_casts, 4, RG_ANY},
    {"duplicate", add_duplicate, 4, RG_ANY},
    {"random", add_random, 3, RG_ANY},
    {"calm", add_calm, 4, RG_ANY},
    {"integers", add_integers, 2, RG_ANY},
    {"views", add_views, 16, RG_ANY},
    {"movement", add_movement, 6, RG_ANY},
    {"rows", add_rows, 4, RG_ANY},
    {"reduction", add_reduction, 6, RG_ANY},
    {"largest", add_largest, 4, RG_JUMPS},
    {"global_norm", add_global_norm, 2, RG_ANY},
    {"linear", add_linear, 6, RG_ANY},
    {"matmul", add_matmul, 4, RG_ANY},
    {"norm", add_norm, 4, RG_ANY},
    {"residual", add_residual, 4, RG_ANY},
    {"glu", add_glu, 3, RG_ANY},
    {"head", add_head, 2, RG_ANY},
    {"attention", add_attention, 2, RG_ANY},
    {"assign", rg_add_assign, 8, RG_UPDATES},
    {"adamw", rg_add_adamw, 2, RG_UPDATES},
    {"sgd", rg_add_sgd, 2, RG_UPDATES},
    {"lion", rg_add_lion, 1, RG_JUMPING_UPDATES},
    {"grad", rg_add_grad, 16, RG_GRAD},
    {NULL, NULL, 0, RG_ANY},
};

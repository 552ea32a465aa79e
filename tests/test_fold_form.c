/* SPDX-License-Identifier: MIT */
/*
 * test_fold_form.c - the fold pass: rules that form larger ops, whole models, training graphs, and
 * failing allocations.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fold_case.h"
#include "parity_model.h"

/* ---- Larger ops ---- */

static wf_value *H(wf_graph *g, const char *name) /* [4, 6] */
{
    return wf_input(g, name, WF_F32, 2, D(4, 6));
}
static wf_value *V(wf_graph *g, const char *name) /* [6] */
{
    return wf_state(g, name, WF_F32, 1, D(6));
}
static wf_value *silu_of(wf_graph *g, wf_value *x)
{
    return wf_mul(g, x, wf_sigmoid(g, x));
}

BUILD(scales, use(g, wf_scale(g, wf_scale(g, X(g), 0.3), 0.7)))
BUILD(scales_wild, use(g, wf_scale(g, wf_scale(g, X(g), 1e30), 1e-30)))
BUILD(div_fill, use(g, wf_div(g, X(g), scalar(g, 3))))
BUILD(div_zero, wf_div(g, wf_fill(g, WF_F32, 1, D(1), 3), wf_maximum(g, X(g), scalar(g, 1))))
BUILD(silu, use(g, silu_of(g, X(g))))
static wf_value *silu_swapped(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_mul(g, wf_sigmoid(g, x), x));
}
BUILD(silu_other, use(g, wf_mul(g, wf_sigmoid(g, X(g)), H(g, "y"))))
static wf_value *silu_shared(wf_graph *g)
{
    wf_value *x = X(g), *s = wf_sigmoid(g, x);
    return wf_add(g, wf_mul(g, x, s), wf_exp(g, s));
}
static wf_value *silu_shown(wf_graph *g)
{
    wf_value *x = X(g), *s = wf_sigmoid(g, x);
    wf_output(g, "sigmoid", s);
    return use(g, wf_mul(g, x, s));
}
BUILD(glu_silu, use(g, wf_mul(g, silu_of(g, X(g)), H(g, "up"))))
BUILD(glu_gelu, use(g, wf_mul(g, H(g, "up"), wf_gelu(g, X(g)))))
BUILD(glu_erf, use(g, wf_mul(g, wf_gelu_erf(g, X(g)), H(g, "up"))))
BUILD(glu_tanh, use(g, wf_mul(g, wf_tanh(g, X(g)), H(g, "up"))))
BUILD(glu_spread, use(g, wf_mul(g, wf_silu(g, X(g)), V(g, "up"))))
static wf_value *glu_shared(wf_graph *g)
{
    wf_value *a = wf_silu(g, X(g));
    return wf_add(g, wf_mul(g, a, H(g, "up")), a);
}
static wf_value *glu_updated(wf_graph *g) /* updates the gate before the multiply */
{
    wf_value *s = S(g), *a = wf_silu(g, s);
    wf_assign(g, s, X(g), NULL);
    return use(g, wf_mul(g, a, H(g, "up")));
}

static wf_value *W(wf_graph *g) /* [5, 6] */
{
    return wf_state(g, "w", WF_F32, 2, D(5, 6));
}
static wf_value *bias(wf_graph *g)
{
    return wf_state(g, "bias", WF_F32, 1, D(5));
}
BUILD(linear, use(g, wf_matmul(g, X(g), W(g), false, true)))
BUILD(linear_permuted, use(g, wf_matmul(g, X(g), wf_permute(g, W(g), D(1, 0)), false, false)))
BUILD(linear_input, use(g, wf_matmul(g, X(g), wf_input(g, "w", WF_F32, 2, D(5, 6)), false, true)))
BUILD(linear_untransposed,
      use(g, wf_matmul(g, X(g), wf_state(g, "w", WF_F32, 2, D(6, 5)), false, false)))
BUILD(linear_bias,
      use(g,
          wf_add(g, wf_linear(g, wf_input(g, "x3", WF_F32, 3, D(2, 4, 6)), W(g), NULL), bias(g))))
BUILD(bias_linear, use(g, wf_add(g, bias(g), wf_matmul(g, X(g), W(g), false, true))))
BUILD(bias_twice,
      use(g, wf_add(g, wf_linear(g, X(g), W(g), bias(g)), wf_state(g, "more", WF_F32, 1, D(5)))))
BUILD(bias_per_row,
      use(g, wf_add(g, wf_linear(g, X(g), W(g), NULL), wf_state(g, "rows", WF_F32, 2, D(4, 1)))))
static wf_value *bias_shared(wf_graph *g)
{
    wf_value *y = wf_linear(g, X(g), W(g), NULL);
    return wf_mul(g, wf_add(g, y, bias(g)), y);
}
static wf_value *bias_updated(wf_graph *g)
{
    wf_value *w = W(g), *y = wf_linear(g, X(g), w, NULL);
    wf_assign(g, w, wf_input(g, "next", WF_F32, 2, D(5, 6)), NULL);
    return use(g, wf_add(g, y, bias(g)));
}

/* Adds rows of x to a tensor filled with `fill`; the indices repeat. */
static wf_value *scattered(wf_graph *g, wf_value *x, double fill)
{
    wf_value *rows = wf_cast(g, wf_iota(g, 1, D(4), 0), WF_F32);
    rows = wf_cast(g, wf_scale(g, rows, 0.5), WF_I32); /* 0 0 1 1 */
    return wf_scatter_add_rows(g, wf_fill(g, WF_F32, 2, D(4, 6), fill), rows, x);
}
BUILD(scatter_sum, use(g, wf_add(g, use(g, S(g)), scattered(g, X(g), 0))))
BUILD(scatter_ones, use(g, wf_add(g, use(g, S(g)), scattered(g, X(g), 1))))
static wf_value *scatter_shared(wf_graph *g)
{
    wf_value *y = scattered(g, X(g), 0);
    return wf_mul(g, wf_add(g, use(g, S(g)), y), y);
}

static wf_value *softmax_of(wf_graph *g, wf_value *x, uint32_t axes, bool keep)
{
    wf_value *e = wf_exp(g, wf_sub(g, x, wf_max(g, x, axes, true)));
    wf_value *sum = wf_sum(g, e, axes, keep);
    return wf_div(g, e, keep ? sum : wf_reshape(g, sum, 2, D(4, 1)));
}
BUILD(softmax, use(g, softmax_of(g, X(g), 2, true)))
BUILD(softmax_reshaped, use(g, softmax_of(g, X(g), 2, false)))
BUILD(softmax_columns, use(g, softmax_of(g, X(g), 1, true)))
static wf_value *softmax_shared(wf_graph *g)
{
    wf_value *x = X(g), *e = wf_exp(g, wf_sub(g, x, wf_max(g, x, 2, true)));
    return wf_add(g, wf_div(g, e, wf_sum(g, e, 2, true)), e);
}

static wf_value *rms(wf_graph *g, wf_value *x, uint32_t axes, double eps)
{
    wf_value *m = wf_reduce(g, "mean", wf_mul(g, x, x), axes, true);
    return wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, eps))));
}
static wf_value *centred(wf_graph *g, wf_value *x, uint32_t axes)
{
    return wf_sub(g, x, wf_reduce(g, "mean", x, axes, true));
}
BUILD(rms_norm, use(g, rms(g, X(g), 2, 1e-3)))
BUILD(rms_norm_gain, use(g, wf_mul(g, rms(g, X(g), 2, 1e-3), V(g, "gamma"))))
BUILD(rms_norm_columns, use(g, rms(g, X(g), 1, 1e-3)))
BUILD(rms_norm_negative, use(g, rms(g, X(g), 2, -1e-9)))
static wf_value *rms_norm_sqrt(wf_graph *g) /* x / sqrt(sum(x^2) / C + eps), with a reshaped sum */
{
    wf_value *x = X(g), *sum = wf_sum(g, wf_mul(g, x, x), 2, false);
    wf_value *m = wf_div(g, wf_reshape(g, sum, 2, D(4, 1)), scalar(g, 6));
    return use(g, wf_div(g, x, wf_sqrt(g, wf_add(g, scalar(g, 1e-3), m))));
}
static wf_value *rms_norm_turned(wf_graph *g) /* means over columns, applied to rows */
{
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(4, 4));
    wf_value *m = wf_reshape(g, wf_reduce(g, "mean", wf_mul(g, x, x), 1, false), 2, D(4, 1));
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_wrong(wf_graph *g) /* divides by 5 instead of 6 */
{
    wf_value *x = X(g), *m = wf_scale(g, wf_sum(g, wf_mul(g, x, x), 2, true), 1.0 / 5);
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_shared(wf_graph *g)
{
    wf_value *x = X(g), *m = wf_reduce(g, "mean", wf_mul(g, x, x), 2, true);
    wf_value *r = wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)));
    return wf_add(g, wf_mul(g, x, r), r);
}
static wf_value *rms_norm_mixed(wf_graph *g) /* multiplies by another tensor */
{
    wf_value *x = wf_exp(g, X(g)), *y = wf_exp(g, H(g, "y"));
    wf_value *m = wf_reduce(g, "mean", wf_mul(g, x, y), 2, true);
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_updated(wf_graph *g)
{
    wf_value *s = S(g), *y = rms(g, s, 2, 1e-3);
    wf_assign(g, s, X(g), NULL);
    return use(g, wf_mul(g, y, V(g, "gamma")));
}
BUILD(layer_norm, use(g, wf_add(g, wf_mul(g, V(g, "gamma"), rms(g, centred(g, X(g), 2), 2, 1e-3)),
                                V(g, "beta"))))
BUILD(layer_norm_columns, use(g, rms(g, centred(g, X(g), 1), 2, 1e-3)))
static wf_value *layer_norm_shared(wf_graph *g)
{
    wf_value *d = centred(g, X(g), 2);
    return wf_add(g, rms(g, d, 2, 1e-3), d);
}
BUILD(beta_alone, use(g, wf_add(g, rms(g, centred(g, X(g), 2), 2, 1e-3), V(g, "beta"))))

/* clang-format off */
static const fold_case form_cases[] = {
    {"two scales",             "scale of scale", 1, scales, false, TOLERANCE},
    {"scales out of range",    "scale of scale", 0, scales_wild, false, TOLERANCE},
    {"x / 3",                  "divide by a fill", 1, div_fill, false, TOLERANCE},
    {"3 / x",                  "divide by a fill", 0, div_zero, false, TOLERANCE},
    {"x * sigmoid(x)",         "silu", 1, silu, false, TOLERANCE},
    {"sigmoid(x) * x",         "silu", 1, silu_swapped, false, TOLERANCE},
    {"sigmoid(x) * y",         "silu", 0, silu_other, false, TOLERANCE},
    {"sigmoid read elsewhere", "silu", 0, silu_shared, false, TOLERANCE},
    {"sigmoid as an output",   "silu", 0, silu_shown, false, TOLERANCE},
    {"silu * up",              "glu", 1, glu_silu, false, TOLERANCE},
    {"up * gelu",              "glu", 1, glu_gelu, false, TOLERANCE},
    {"gelu_erf * up",          "glu", 1, glu_erf, false, TOLERANCE},
    {"tanh * up",              "glu", 0, glu_tanh, false, TOLERANCE},
    {"silu * a row",           "glu", 0, glu_spread, false, TOLERANCE},
    {"silu read elsewhere",    "glu", 0, glu_shared, false, TOLERANCE},
    {"gate updated between",   "glu", 0, glu_updated, false, TOLERANCE},
    {"matmul by a state",      "linear", 1, linear, false, TOLERANCE},
    {"by a permuted state",    "linear", 1, linear_permuted, false, TOLERANCE},
    {"the permute itself",     "transpose into matmul", 1, linear_permuted, false, TOLERANCE},
    {"matmul by an input",     "linear", 0, linear_input, false, TOLERANCE},
    {"not transposed",         "linear", 0, linear_untransposed, false, TOLERANCE},
    {"linear + bias",          "linear with bias", 1, linear_bias, false, TOLERANCE},
    {"bias + matmul",          "linear with bias", 1, bias_linear, false, TOLERANCE},
    {"two biases",             "linear with bias", 0, bias_twice, false, TOLERANCE},
    {"a number a row",         "linear with bias", 0, bias_per_row, false, TOLERANCE},
    {"product read elsewhere", "linear with bias", 0, bias_shared, false, TOLERANCE},
    {"w updated between",      "linear with bias", 0, bias_updated, false, TOLERANCE},
    {"rows of two uses",       "scatter into a sum", 1, scatter_sum, false, TOLERANCE},
    {"not into zeros",         "scatter into a sum", 0, scatter_ones, false, TOLERANCE},
    {"rows read elsewhere",    "scatter into a sum", 0, scatter_shared, false, TOLERANCE},
    {"exp / sum",              "softmax", 1, softmax, false, TOLERANCE},
    {"exp / sum, reshaped",    "softmax", 1, softmax_reshaped, false, TOLERANCE},
    {"over another axis",      "softmax", 0, softmax_columns, false, TOLERANCE},
    {"exp read elsewhere",     "softmax", 0, softmax_shared, false, TOLERANCE},
    {"mean square",            "rms_norm", 1, rms_norm, false, TOLERANCE},
    {"with gain",              "gain into norm", 1, rms_norm_gain, false, TOLERANCE},
    {"by sqrt and sum",        "rms_norm", 1, rms_norm_sqrt, false, TOLERANCE},
    {"of columns",             "rms_norm", 0, rms_norm_columns, false, TOLERANCE},
    {"columns used for rows",  "rms_norm", 0, rms_norm_turned, false, TOLERANCE},
    {"negative eps",           "rms_norm", 0, rms_norm_negative, false, TOLERANCE},
    {"no mean",                "rms_norm", 0, rms_norm_wrong, false, TOLERANCE},
    {"rstd read elsewhere",    "rms_norm", 0, rms_norm_shared, false, TOLERANCE},
    {"other squares",          "rms_norm", 0, rms_norm_mixed, false, TOLERANCE},
    {"x updated before gain",  "gain into norm", 0, rms_norm_updated, false, TOLERANCE},
    {"centred",                "layer_norm", 1, layer_norm, false, TOLERANCE},
    {"with bias",              "bias into norm", 1, layer_norm, false, TOLERANCE},
    {"centred by columns",     "layer_norm", 0, layer_norm_columns, false, TOLERANCE},
    {"x - mean read elsewhere", "layer_norm", 0, layer_norm_shared, false, TOLERANCE},
    {"bias without gain",      "bias into norm", 0, beta_alone, false, TOLERANCE},
};
/* clang-format on */

static void test_form(void **state)
{
    fold_check(*state, form_cases, COUNT(form_cases));
}

/* ---- Attention ---- */

typedef enum { NO_MASK, WHERE_LE, WHERE_LT, ADDED, SOFT, ANTI, SHARED, OTHER_WAY } mask_kind;

static wf_value *heads(wf_graph *g, const char *name, int rank, int64_t h, int64_t d)
{
    const int64_t shape[] = {2, h, 5, d};
    return wf_input(g, name, WF_F32, rank, shape + (4 - rank));
}

/* Returns the mask [5, 5]: column <= row. */
static wf_value *lower(wf_graph *g)
{
    return wf_le(g, wf_iota(g, 1, D(5), 0), wf_reshape(g, wf_iota(g, 1, D(5), 0), 2, D(5, 1)));
}

/* Applies a causal mask in one of its common spellings, or a mask that must not be recognized. */
static wf_value *masked(wf_graph *g, wf_value *s, mask_kind kind)
{
    wf_value *rows = wf_iota(g, 2, D(5, 5), 0), *columns = wf_iota(g, 2, D(5, 5), 1);
    switch (kind) {
    case WHERE_LE: return wf_where(g, lower(g), s, scalar(g, -INFINITY));
    case WHERE_LT: return wf_where(g, wf_lt(g, rows, columns), scalar(g, -1e9), s);
    case ADDED:
        return wf_add(g, s, wf_where(g, wf_le(g, columns, rows), scalar(g, 0), scalar(g, -1e9)));
    case SOFT: return wf_where(g, lower(g), s, scalar(g, -3));
    case ANTI: return wf_where(g, wf_le(g, rows, columns), s, scalar(g, -1e9));
    case OTHER_WAY: return wf_where(g, lower(g), scalar(g, -1e9), s);
    default: return s;
    }
}

static wf_value *attend(wf_graph *g, wf_value *q, wf_value *k, wf_value *v, double scale,
                        mask_kind kind)
{
    wf_value *s = wf_scale(g, wf_matmul(g, q, k, false, true), scale);
    wf_value *p = wf_softmax(g, masked(g, s, kind)), *y = wf_matmul(g, p, v, false, false);
    return kind == SHARED ? wf_add(g, y, wf_reduce(g, "sum", p, 8, true)) : y;
}
#define ATTEND(name, rank, scale, kind)                                                \
    BUILD(name, use(g, attend(g, heads(g, "q", rank, 3, 4), heads(g, "k", rank, 3, 4), \
                              heads(g, "v", rank, 3, 6), scale, kind)))
ATTEND(attend_all, 4, 0.5, NO_MASK)
ATTEND(attend_le, 4, 0.5, WHERE_LE)
ATTEND(attend_lt, 4, 0.5, WHERE_LT)
ATTEND(attend_added, 4, 0.5, ADDED)
ATTEND(attend_rank_3, 3, 0.3, WHERE_LE)
ATTEND(attend_soft, 4, 0.5, SOFT)
ATTEND(attend_anti, 4, 0.5, ANTI)
ATTEND(attend_other_way, 4, 0.5, OTHER_WAY)
ATTEND(attend_shared, 4, 0.5, SHARED)
ATTEND(attend_zero, 4, 0, WHERE_LE)
BUILD(attend_output, attend(g, heads(g, "q", 4, 3, 4), heads(g, "k", 4, 3, 4),
                            heads(g, "v", 4, 3, 4), 1, WHERE_LE))
BUILD(attend_crossed,
      use(g, wf_matmul(g,
                       wf_softmax(g, wf_matmul(g, heads(g, "q", 4, 3, 4),
                                               wf_input(g, "k", WF_F32, 4, D(2, 3, 7, 4)), false,
                                               true)),
                       wf_input(g, "v", WF_F32, 4, D(2, 3, 7, 4)), false, false)))

/* Repeats the heads of x [B, Hk, T, D]. */
static wf_value *repeated(wf_graph *g, wf_value *x, int64_t times)
{
    const int64_t *d = x->shape.d;
    x = wf_reshape(g, x, 5, D(d[0], d[1], 1, d[2], d[3]));
    x = wf_broadcast(g, x, 5, D(x->shape.d[0], x->shape.d[1], times, x->shape.d[3], x->shape.d[4]));
    d = x->shape.d;
    return wf_reshape(g, x, 4, D(d[0], d[1] * times, d[3], d[4]));
}
BUILD(attend_grouped,
      use(g, attend(g, heads(g, "q", 4, 6, 4), repeated(g, heads(g, "k", 4, 2, 4), 3),
                    repeated(g, heads(g, "v", 4, 2, 4), 3), 0.5, WHERE_LE)))

static wf_value *attend_updated(wf_graph *g) /* updates q before the last matmul */
{
    wf_value *q = wf_state(g, "q", WF_F32, 4, D(2, 3, 5, 4));
    wf_value *p = wf_softmax(g, wf_matmul(g, q, heads(g, "k", 4, 3, 4), false, true));
    wf_assign(g, q, heads(g, "next", 4, 3, 4), NULL);
    return use(g, wf_matmul(g, p, heads(g, "v", 4, 3, 4), false, false));
}

/* clang-format off */
static const fold_case attention_cases[] = {
    {"no mask",              "attention", 1, attend_all, false, TOLERANCE},
    {"where column <= row",  "attention", 1, attend_le, false, TOLERANCE},
    {"where row < column",   "attention", 1, attend_lt, false, TOLERANCE},
    {"an added mask",        "attention", 1, attend_added, false, TOLERANCE},
    {"[H, T, D]",            "attention", 1, attend_rank_3, false, TOLERANCE},
    {"grouped heads",        "attention", 1, attend_grouped, false, TOLERANCE},
    {"as an output",         "attention", 1, attend_output, false, TOLERANCE},
    {"a soft mask",          "attention", 0, attend_soft, false, TOLERANCE},
    {"the future only",      "attention", 0, attend_anti, false, TOLERANCE},
    {"the past hidden",      "attention", 0, attend_other_way, false, TOLERANCE},
    {"weights read elsewhere", "attention", 0, attend_shared, false, TOLERANCE},
    {"scale 0",              "attention", 0, attend_zero, false, TOLERANCE},
    {"other keys",           "attention", 0, attend_crossed, false, TOLERANCE},
    {"q updated between",    "attention", 0, attend_updated, false, TOLERANCE},
};
/* clang-format on */

static void test_attention(void **state)
{
    fold_check(*state, attention_cases, COUNT(attention_cases));
}

/* With heads split and moved to the front, no permute remains after folding. */
static void test_attention_views(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *part[3];
    for (int i = 0; i < 3; i++) {
        wf_value *x = wf_input(g, (const char *[]){"q", "k", "v"}[i], WF_F32, 2, D(10, 12));
        part[i] = wf_permute(g, wf_reshape(g, x, 4, D(2, 5, 3, 4)), D(0, 2, 1, 3));
    }
    wf_value *y = attend(g, part[0], part[1], part[2], 0.5, WHERE_LE);
    y = wf_reshape(g, wf_permute(g, y, D(0, 2, 1, 3)), 2, D(10, 12));
    wt_ok(*state, wf_output(g, "y", use(g, y)));
    wf_report report = {0};
    int dropped;
    wt_ok(*state, fold_run(g, &report));
    wt_ok(*state, wf_graph_prune(g, &dropped));
    assert_int_equal(fold_count(g, WF_OP_attention), 1);
    assert_int_equal(fold_count(g, WF_OP_permute), 0);
    assert_int_equal(fold_count(g, WF_OP_softmax), 0);
    wf_graph_free(g);
}

/* ---- Whole models ---- */

static bool keep_some(const wf_node *n, void *user)
{
    (void)user;
    return n->op != WF_OP_layer_norm && n->op != WF_OP_rms_norm && n->op != WF_OP_linear &&
           n->op != WF_OP_glu && n->op != WF_OP_silu && n->op != WF_OP_mean;
}

/* Expands norms, linears and gates into primitive ops; folding restores all of them. */
static void test_models(void **state)
{
    static const wf_op ops[] = {WF_OP_layer_norm, WF_OP_rms_norm, WF_OP_linear, WF_OP_glu,
                                WF_OP_attention,  WF_OP_matmul,   WF_OP_rsqrt,  WF_OP_sigmoid};
    for (int i = 0; i < PM_MODELS; i++) {
        wf_graph *g = wt_graph(*state), *spelled;
        pm_model m;
        int dropped;
        pm_forward(g, &pm_configs[i], 12, 2, &m);
        wt_ok(*state, wf_output(g, "loss", m.loss));
        wt_ok(*state, wf_pass_expand(g, keep_some, NULL, &spelled));
        wt_ok(*state, wf_graph_prune(spelled, &dropped));
        assert_int_equal(fold_count(spelled, WF_OP_linear), 0);
        wt_ok(*state, wf_fold(spelled));
        wt_ok(*state, wf_graph_prune(spelled, &dropped));
        for (size_t k = 0; k < COUNT(ops); k++)
            if (fold_count(spelled, ops[k]) != fold_count(g, ops[k]))
                fail_msg("%s: %d %s, not %d", pm_configs[i].name, fold_count(spelled, ops[k]),
                         wf_op_get(ops[k])->name, fold_count(g, ops[k]));
        assert_int_equal(spelled->node_count, g->node_count);
        wf_graph_free(spelled);
        wf_graph_free(g);
    }
}

/* Builds a block of GPT-2, or of Llama without RoPE, from primitive ops, for 2 sequences of 5
 * tokens. */
static wf_value *block(wf_graph *g, bool llama)
{
    const int64_t C = 12;
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(10, C)), *h[3];
    wf_value *gamma = wf_state(g, "gamma", WF_F32, 1, &C),
             *beta = wf_state(g, "beta", WF_F32, 1, &C);
    wf_value *n = llama ? wf_mul(g, rms(g, x, 2, 1e-5), gamma)
                        : wf_add(g, wf_mul(g, rms(g, centred(g, x, 2), 2, 1e-5), gamma), beta);
    for (int i = 0; i < 3; i++) {
        int64_t hk = llama && i ? 1 : 3;
        char name[] = {"qkv"[i], 0}, b[] = {'b', "qkv"[i], 0};
        wf_value *w = wf_state(g, name, WF_F32, 2, D(hk * 4, C));
        h[i] = wf_matmul(g, n, w, false, true);
        if (!llama)
            h[i] = wf_add(g, h[i], wf_state(g, b, WF_F32, 1, D(hk * 4)));
        h[i] = wf_permute(g, wf_reshape(g, h[i], 4, D(2, 5, hk, 4)), D(0, 2, 1, 3));
        if (hk == 1)
            h[i] = repeated(g, h[i], 3);
    }
    wf_value *s = wf_div(g, wf_matmul(g, h[0], wf_permute(g, h[1], D(0, 1, 3, 2)), false, false),
                         scalar(g, 2));
    wf_value *p = softmax_of(g, masked(g, s, WHERE_LE), 8, true);
    wf_value *y = wf_matmul(g, p, h[2], false, false);
    y = wf_reshape(g, wf_permute(g, y, D(0, 2, 1, 3)), 2, D(10, C));
    y = wf_block(g, wf_add(g, x, y));
    wf_value *up = wf_matmul(g, y, wf_state(g, "up", WF_F32, 2, D(7, C)), false, true);
    wf_value *gate = wf_matmul(g, y, wf_state(g, "gate", WF_F32, 2, D(7, C)), false, true);
    return llama ? wf_mul(g, silu_of(g, gate), up) : wf_mul(g, wf_gelu(g, gate), up);
}
BUILD(gpt2_block, block(g, false))
BUILD(llama_block, block(g, true))

/* clang-format off */
static const fold_case block_cases[] = {
    {"gpt2: attention",  "attention", 1, gpt2_block, false, TOLERANCE},
    {"gpt2: norm",       "bias into norm", 1, gpt2_block, false, TOLERANCE},
    {"gpt2: products",   "linear with bias", 3, gpt2_block, false, TOLERANCE},
    {"llama: attention", "attention", 1, llama_block, false, TOLERANCE},
    {"llama: norm",      "gain into norm", 1, llama_block, false, TOLERANCE},
    {"llama: gate",      "glu", 1, llama_block, false, TOLERANCE},
    {"llama: softmax",   "softmax", 1, llama_block, false, TOLERANCE},
};
/* clang-format on */

/* A transformer block written in primitive ops folds into larger ones completely. */
static void test_blocks(void **state)
{
    fold_check(*state, block_cases, COUNT(block_cases));
    for (int llama = 0; llama < 2; llama++) {
        wf_graph *g = wt_graph(*state);
        int dropped;
        wt_ok(*state, wf_output(g, "y", block(g, llama)));
        wt_ok(*state, wf_fold(g));
        wt_ok(*state, wf_graph_prune(g, &dropped));
        assert_int_equal(fold_count(g, WF_OP_matmul) + fold_count(g, WF_OP_permute) +
                             fold_count(g, WF_OP_broadcast) + fold_count(g, WF_OP_exp),
                         0);
        wf_graph_free(g);
    }
}

/* ---- Training graphs ---- */

/* Folds after wf_grad: values that the gradient reads stay, and training steps give the same
 * result. */
static void test_training(void **state)
{
    wf_graph *g[2];
    for (int i = 0; i < 2; i++) {
        wt_model m;
        g[i] = wt_graph(*state);
        wt_forward(g[i], &wt_tiny, &m);
        wt_train(g[i], &m);
    }
    wf_report report = {0};
    wt_ok(*state, fold_run(g[1], &report));
    assert_true(wf_report_get(&report, "fold", "common subexpression") > 0);
    assert_true(wf_graph_status(g[1]) == WF_OK && !g[1]->backward);
    wt_run r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = wt_open(*state, "cpu:1");
        wt_ok(*state, wf_compile_with(r[i].session, g[i], &fold_plain, &r[i].exec));
        wf_graph_free(g[i]);
        wt_model m;
        wf_graph *names = wt_graph(*state);
        wt_forward(names, &wt_tiny, &m);
        wf_graph_free(names);
        wt_ok(*state, wt_write_params(r[i].session, &m));
        for (int step = 1; step <= 3; step++) {
            wt_ok(*state, wt_write_inputs(r[i].exec, &wt_tiny, step));
            wt_run_once(&r[i]);
        }
    }
    wf_info info;
    for (int i = 0; wf_session_state(r[0].session, i, &info); i++) {
        int64_t n = (int64_t)(info.bytes / sizeof(float));
        float *x = malloc(info.bytes), *y = malloc(info.bytes);
        wt_ok(*state, wf_session_read(r[0].session, info.name, x, info.bytes));
        wt_ok(*state, wf_session_read(r[1].session, info.name, y, info.bytes));
        for (int64_t k = 0; k < n && info.type == WF_F32; k++)
            assert_true(fabs((double)x[k] - y[k]) <= 1e-4 * (fabs((double)x[k]) + 1e-2));
        free(x);
        free(y);
    }
    wt_close(&r[0]);
    wt_close(&r[1]);
}

/* A node that replaces a node of the gradient is marked as backward. */
static void test_backward_flag(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = X(g), *grad;
    wf_value *loss = wf_sum(g, wf_mul(g, wf_exp(g, x), scalar(g, 3)), 3, false);
    wt_ok(*state, wf_grad(g, loss, &x, 1, &grad));
    wt_ok(*state, wf_output(g, "d", grad));
    wt_ok(*state, wf_output(g, "loss", loss));
    int count = g->node_count, backward = 0, forward = 0;
    wf_node *old[64];
    memcpy(old, g->nodes, (size_t)count * sizeof *old);
    wt_ok(*state, wf_fold(g));
    for (int i = 0; i < g->node_count; i++) {
        bool is_new = true;
        for (int k = 0; k < count; k++)
            is_new &= old[k] != g->nodes[i];
        if (is_new && g->nodes[i]->op == WF_OP_scale)
            *(g->nodes[i]->backward ? &backward : &forward) += 1;
    }
    assert_int_equal(forward, 1);
    assert_true(backward >= 1);
    wf_graph_free(g);
}

/* ---- Failing allocations ---- */

/* Fails each allocation of the pass in turn. */
static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    bool reached = true;
    int failures = 0;
    for (uint64_t nth = 1; reached; nth++) {
        wf_graph *g = wt_graph(ctx);
        wt_ok(ctx, wf_output(g, "y", block(g, false)));
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_fold(g);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        failures += reached;
        if (reached) {
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
        } else {
            wt_ok(ctx, status);
        }
        wf_graph_free(g);
        assert_int_equal(wt_live_blocks(ctx), 0);
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_form),          wt_test(test_attention), wt_test(test_attention_views),
        wt_test(test_models),        wt_test(test_blocks),    wt_test(test_training),
        wt_test(test_backward_flag), wt_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

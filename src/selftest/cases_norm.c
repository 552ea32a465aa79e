/* SPDX-License-Identifier: MIT */
/* cases_norm.c - cases of norms, their gradients, and rope. */
#include "selftest/case.h"

/* ---- layer_norm, rms_norm ---- */

static const struct norm_case {
    wf_dims x;
    int params; /* 0: none, 1: gamma, 2: gamma and beta */
    bool mixed; /* gamma and beta have another type */
    /* The elements of x are in [lo, hi]. Ranges around 10 and 1000 test the cancellation in x -
     * mean. */
    double eps, lo, hi;
} norm_cases[] = {
    {{1, {7}}, 2, false, 1e-5, -2, 2},
    {{2, {3, 33}}, 0, false, 1e-5, -2, 2},
    {{2, {3, 33}}, 1, false, 1e-6, -2, 2},
    {{3, {2, 5, 16}}, 2, false, 1e-5, -2, 2},
    {{2, {3, 40}}, 2, false, 1e-5, 9, 11},
    {{2, {3, 40}}, 2, false, 1e-5, 999, 1001},
    {{2, {0, 5}}, 2, false, 1e-5, -2, 2},
    {{2, {4, 20}}, 2, true, 1e-5, -2, 2},
    {{2, {3, 6}}, 1, false, 0.5, -1e-3, 1e-3},
    {{2, {520, 65}}, 2, false, 1e-5, -2, 2},
    {{2, {2, 2}}, 1, false, 1e-5, -2, 2},
    {{2, {3, 1}}, 2, false, 1e-5, -2, 2},
    {{2, {9, 8}}, 2, false, 1e-5, -2, 2},
    {{2, {5, 15}}, 1, false, 1e-5, -2, 2},
    {{2, {5, 17}}, 2, true, 1e-5, -2, 2},
    {{2, {37, 31}}, 2, false, 1e-5, -2, 2},
    {{2, {2, 4099}}, 2, false, 1e-5, -2, 2},
    {{2, {2, 1025}}, 1, false, 1e-5, 999, 1001},
    /* row lengths of models, for vectors of every width */
    {{2, {19, 384}}, 1, false, 1e-5, -2, 2},
    {{2, {37, 768}}, 2, true, 1e-5, -2, 2},
    {{2, {27, 1024}}, 2, false, 1e-5, -2, 2},
    {{2, {15, 1600}}, 2, true, 1e-5, -2, 2},
    {{2, {3, 4104}}, 1, false, 1e-5, -2, 2},
};

/* Returns parameter i [C], or NULL if the case does not have it. */
static wf_value *param(wf_case *c, const struct norm_case *t, int i)
{
    if (t->params <= i)
        return NULL;
    c->optional = c->optional || t->mixed;
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    return wf_case_typed(c, type, D(wf_dims_last(&t->x)), i == 0 ? 0.5 : -1, i == 0 ? 1.5 : 1);
}

static wf_value *layer_norm(wf_case *c, wf_value *x, wf_value *gamma)
{
    const struct norm_case *t = &norm_cases[c->variant];
    return wf_layer_norm(c->g, x, gamma, gamma ? param(c, t, 1) : NULL, t->eps);
}

/* The gradient of layer_norm uses x minus the saved f32 mean. For values around 10 this is less
 * exact than the bound for values around 1 allows, about once in some hundred runs. */
static double gradient_bound(const struct norm_case *t)
{
    return t->lo > 2 ? 256 : 0;
}

static void build_layer_norm(wf_case *c)
{
    const struct norm_case *t = &norm_cases[c->variant];
    wf_value *x = wf_case_x(c, t->x, t->lo, t->hi);
    /* The result hardly depends on x, or the saved f32 mean is inexact. */
    c->no_gradient = wf_dims_last(&t->x) < 3 || t->lo > 100;
    c->gradient = gradient_bound(t);
    wf_case_node(c, layer_norm(c, x, param(c, t, 0)));
}

static void build_rms_norm(wf_case *c)
{
    const struct norm_case *t = &norm_cases[c->variant];
    wf_value *x = wf_case_x(c, t->x, t->lo, t->hi);
    c->no_gradient = wf_dims_last(&t->x) < 3;
    wf_case_node(c, wf_rms_norm(c->g, x, param(c, t, 0), t->eps));
}

/* Adds the op under test with the attributes of the forward node. */
static void add_backward(wf_case *c, wf_value *forward, wf_value *const *in, int nin)
{
    if (forward)
        wf_case_node(c, wf_node_add(c->g, c->row->op, forward->node->attr, NULL, in, nin));
}

/* (dy, x, statistics of y = norm(x), dsum if there is a residual, gamma?) */
static void build_backward(wf_case *c, bool centered, bool residual)
{
    const struct norm_case *t = &norm_cases[c->variant];
    wf_value *dy = wf_case_x(c, t->x, -2, 2), *x = wf_case_x(c, t->x, t->lo, t->hi);
    wf_value *gamma = param(c, t, 0), *in[6] = {dy, x};
    wf_value *y = centered ? layer_norm(c, x, gamma) : wf_rms_norm(c->g, x, gamma, t->eps);
    int nin = 2;
    for (int i = 1; i <= (centered ? 2 : 1); i++)
        in[nin++] = wf_case_frozen(c, wf_value_output(y, i));
    if (residual)
        in[nin++] = wf_case_x(c, t->x, -2, 2);
    if (gamma)
        in[nin++] = gamma;
    add_backward(c, y, in, nin);
}

static void build_layer_norm_grad(wf_case *c)
{
    build_backward(c, true, false);
}

static void build_rms_norm_grad(wf_case *c)
{
    build_backward(c, false, false);
}

static void build_residual_layer_norm_grad(wf_case *c)
{
    build_backward(c, true, true);
}

static void build_residual_rms_norm_grad(wf_case *c)
{
    build_backward(c, false, true);
}

/* layer_norm and rms_norm of x + residual; rms_norm has no beta. */
static void build_residual(wf_case *c, int most)
{
    const struct norm_case *t = &norm_cases[c->variant];
    wf_value *in[4] = {wf_case_x(c, t->x, t->lo, t->hi), wf_case_x(c, t->x, -2, 2)};
    int nin = 2;
    for (int i = 0; i < t->params && i < most; i++)
        in[nin++] = param(c, t, i);
    wf_attr_norm attr = {.eps = t->eps};
    wf_case_node(c, wf_node_add(c->g, c->row->op, &attr, NULL, in, nin));
}

static void build_residual_layer_norm(wf_case *c)
{
    c->gradient = gradient_bound(&norm_cases[c->variant]);
    build_residual(c, 2);
}

static void build_residual_rms_norm(wf_case *c)
{
    build_residual(c, 1);
}

/* ---- rope ---- */

static const struct rope_case {
    int64_t n, h, d, pairs;
    int32_t position; /* maximum */
    const char *attrs;
} rope_cases[] = {
    {5, 2, 8, 4, 20, "interleaved=0 magnitude=1"},
    {5, 2, 8, 4, 20, "interleaved=1 magnitude=1"},
    {4, 3, 10, 3, 20, "interleaved=0 magnitude=1"},
    {4, 3, 10, 3, 20, "interleaved=1 magnitude=1.25"},
    {3, 1, 6, 3, 20, "interleaved=0 magnitude=0.5 inverse=1"},
    {3, 1, 6, 2, 20, "interleaved=1 magnitude=1 inverse=1"},
    {0, 2, 4, 2, 20, "interleaved=0 magnitude=1"},
    {2, 2, 5, 0, 20, "interleaved=0 magnitude=1"},
    {1, 1, 2, 1, 0, "interleaved=0 magnitude=1"},
    {140, 4, 64, 32, 300, "interleaved=0 magnitude=1"},
    {3, 2, 70, 33, 1000000, "interleaved=0 magnitude=1"},
    {3, 2, 37, 17, 1000000, "interleaved=1 magnitude=1"},
    {3, 2, 34, 15, 1000000, "interleaved=0 magnitude=1 inverse=1"},
    {3, 2, 16, 8, 2147483647, "interleaved=1 magnitude=1"},
};

static void build_rope(wf_case *c)
{
    const struct rope_case *t = &rope_cases[c->variant];
    wf_value *x = wf_case_x(c, D(t->n, t->h, t->d), -2, 2);
    wf_value *positions = wf_case_i32(c, D(t->n), 0, t->position);
    wf_value *inv_freq = wf_case_constant(c, wf_case_f32(c, D(t->pairs), 0.01, 1));
    WF_CASE_OP(c, t->attrs, x, positions, inv_freq);
}

const wf_case_row wf_cases_norm[] = {
    WF_ROW(layer_norm, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(layer_norm_grad, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(rms_norm, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(rms_norm_grad, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(residual_layer_norm, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(residual_rms_norm, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(residual_layer_norm_grad, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(residual_rms_norm_grad, WF_LENGTH(norm_cases), WF_TYPES_FLOAT),
    WF_ROW(rope, WF_LENGTH(rope_cases), WF_TYPES_FLOAT),
    {.build = NULL},
};

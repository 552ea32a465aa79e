/* SPDX-License-Identifier: MIT */
/* cases_reduce.c - cases of reductions, argmax, top_k, softmax and global_norm. */
#include <math.h>

#include "selftest/case.h"

/* ---- sum, mean, max ---- */

static const struct reduce_case {
    wf_dims shape;
    /* Bit a: axis a is reduced. */
    uint32_t axes;
    bool keep;
} reduce_cases[] = {
    {{1, {7}}, 1, false},
    {{2, {3, 5}}, 2, false},
    {{2, {3, 5}}, 1, true},
    {{3, {3, 5, 7}}, 7, false},
    {{3, {3, 5, 7}}, 5, true},
    {{3, {3, 5, 7}}, 2, false},
    {{4, {2, 3, 4, 5}}, 10, false},
    {{4, {2, 3, 4, 5}}, 6, true},
    {{2, {3, 5}}, 0, false},
    {{0, {0}}, 0, false},
    {{2, {4, 1}}, 2, false},
    {{2, {0, 5}}, 2, false},
    {{1, {33001}}, 1, false},
    {{2, {300, 130}}, 2, false},
    {{2, {300, 130}}, 1, false},
    {{3, {20, 3, 500}}, 5, false}, /* several blocks for each of several results */
    {{3, {4500, 2, 3}}, 1, false},
    {{2, {520, 17}}, 1, false}, /* blocks of rows, and more than one tile of columns */
    {{2, {5, 1031}}, 1, false},
    {{2, {3, 40}}, 2, false},
    {{1, {9}}, 1, false}, /* with special values */
    /* Empty: only sums have a result. */
    {{1, {0}}, 1, false},
    {{3, {2, 0, 3}}, 2, true},
};
/* Indices into reduce_cases: the entry with special values, and the first empty reduction. */
#define REDUCE_SPECIAL 20
#define REDUCE_EMPTY 21

static void build_reduce(wf_case *c)
{
    static const double special[3][9] = {
        {1, 2, INFINITY, 3, 4, 5, -1, 0, 7},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY,
         -INFINITY},
        {1, 9, 2, NAN, 3, 4, 8, INFINITY, 0},
    };
    const struct reduce_case *t = &reduce_cases[c->variant];
    wf_value *x;
    if (c->type == WF_I32 && c->variant == REDUCE_SPECIAL) { /* sums wrap around */
        static const double whole[9] = {-2147483648, -2147483647, -2147483648,
                                        -2147483000, -2147483648, -2147483001,
                                        -2147483648, -2147483002, -2147483648};
        x = wf_case_given(c, c->type, t->shape, whole);
    } else if (c->variant != REDUCE_SPECIAL) {
        x = wf_case_x(c, t->shape, -8, 8);
    } else {
        c->no_gradient = true;
        x = wf_case_given(c, c->type, t->shape, special[wf_rng_below(&c->rng, 3)]);
    }
    wf_case_node(c, wf_reduce(c->g, wf_op_get(c->row->op)->name, x, t->axes, t->keep));
}
#define build_sum build_reduce
#define build_mean build_reduce
#define build_max build_reduce

/* ---- argmax, top_k ---- */

static const struct argmax_case {
    wf_dims shape;
    int axis;
    bool ties;
} argmax_cases[] = {
    {{1, {9}}, 0, false},        {{3, {3, 5, 7}}, 0, true},  {{3, {3, 5, 7}}, 1, false},
    {{3, {3, 5, 7}}, 2, true},   {{2, {0, 4}}, 1, false},    {{1, {1}}, 0, false},
    {{2, {3, 20000}}, 1, false}, {{2, {3, 20000}}, 1, true}, {{2, {700, 5}}, 0, false},
    {{1, {9001}}, 0, false},     {{1, {9001}}, 0, true},     {{2, {5, 17}}, 1, true},
};

static void build_argmax(wf_case *c)
{
    const struct argmax_case *t = &argmax_cases[c->variant];
    wf_value *x =
        t->ties ? wf_case_whole(c, c->type, t->shape, -2, 2) : wf_case_x(c, t->shape, -100, 100);
    wf_case_node(c, wf_argmax(c->g, x, t->axis));
}

static const struct top_k_case {
    wf_dims shape;
    int64_t k;
    bool ties;
} top_k_cases[] = {
    {{1, {9}}, 1, false},      {{2, {4, 9}}, 3, false},      {{2, {4, 9}}, 9, false},
    {{2, {4, 30}}, 7, true},   {{3, {2, 3, 5}}, 2, true},    {{2, {4, 9}}, 0, false},
    {{2, {0, 9}}, 2, false},   {{2, {170, 200}}, 40, false}, {{1, {1}}, 1, false},
    {{2, {3, 500}}, 70, true}, {{1, {5000}}, 4200, true},
};

static void build_top_k(wf_case *c)
{
    const struct top_k_case *t = &top_k_cases[c->variant];
    c->no_gradient = t->ties;
    wf_value *x =
        t->ties ? wf_case_whole(c, c->type, t->shape, -3, 3) : wf_case_x(c, t->shape, -100, 100);
    wf_case_node(c, wf_top_k(c->g, x, t->k));
}

/* NaN sorts above all values; equal values keep their order. */
static const double odd[] = {1, NAN, INFINITY, -INFINITY, 3, NAN, 3, -0.0, 0, INFINITY};

static void build_argmax_odd(wf_case *c)
{
    wf_case_node(c, wf_argmax(c->g, wf_case_given(c, c->type, D(10), odd), 0));
}

static void build_top_k_odd(wf_case *c)
{
    c->no_gradient = true;
    wf_case_node(c, wf_top_k(c->g, wf_case_given(c, c->type, D(10), odd), 10));
}

/* ---- softmax ---- */

static const struct softmax_case {
    wf_dims shape;
    double range;
} softmax_cases[] = {
    {{1, {7}}, 3},       {{3, {3, 5, 7}}, 3}, {{2, {4, 1}}, 3},     {{2, {0, 5}}, 3},
    {{2, {3, 1000}}, 3}, {{2, {5, 33}}, 80},  {{2, {260, 130}}, 5}, {{2, {3, 9}}, 300},
    {{2, {5, 16}}, 3},   {{2, {5, 31}}, 3},   {{1, {8195}}, 5},
};

static void build_softmax(wf_case *c)
{
    const struct softmax_case *t = &softmax_cases[c->variant];
    wf_case_node(c, wf_softmax(c->g, wf_case_x(c, t->shape, -t->range, t->range)));
}

/* Elements masked with -inf. */
static void build_softmax_masked(wf_case *c)
{
    static const double x[] = {1,         -INFINITY, 2, 0.5, -INFINITY, -INFINITY,
                               -INFINITY, 5,         1, 1,   1,         1};
    c->no_gradient = true;
    wf_case_node(c, wf_softmax(c->g, wf_case_given(c, c->type, D(3, 4), x)));
}

static void build_softmax_grad(wf_case *c)
{
    const struct softmax_case *t = &softmax_cases[c->variant];
    wf_value *y = wf_softmax(c->g, wf_case_x(c, t->shape, -t->range, t->range));
    wf_value *dy = wf_case_x(c, t->shape, -2, 2);
    WF_CASE_OP(c, "", dy, wf_case_frozen(c, y));
}

/* ---- global_norm ---- */

static void build_global_norm(wf_case *c)
{
    static const wf_dims shapes[] = {
        {2, {3, 5}}, {0, {0}}, {1, {33001}}, {3, {2, 0, 3}}, {1, {77}}};
    wf_value *x[5];
    int n = c->variant == 5 ? 5 : 1;
    for (int i = 0; i < n; i++)
        x[i] = wf_case_x(c, shapes[n == 1 ? c->variant : i], -2, 2);
    c->no_gradient = c->variant == 3; /* empty */
    wf_case_node(c, wf_global_norm(c->g, x, n));
}

const wf_case_row wf_cases_reduce[] = {
    WF_ROW(sum, WF_LENGTH(reduce_cases), WF_TYPES_NUMBER),
    WF_ROW(mean, REDUCE_EMPTY, WF_TYPES_FLOAT),
    WF_ROW(max, REDUCE_EMPTY, WF_TYPES_NUMBER),
    WF_ROW(argmax, WF_LENGTH(argmax_cases), WF_TYPES_NUMBER),
    WF_ROW(top_k, WF_LENGTH(top_k_cases), WF_TYPES_FLOAT),
    {.op = WF_OP_argmax,
     .variants = 1,
     .build = build_argmax_odd,
     .types = WF_TYPES_FLOAT,
     .label = "odd"},
    {.op = WF_OP_top_k,
     .variants = 1,
     .build = build_top_k_odd,
     .types = WF_TYPES_FLOAT,
     .label = "odd"},
    WF_ROW(softmax, WF_LENGTH(softmax_cases), WF_TYPES_FLOAT),
    {.op = WF_OP_softmax,
     .variants = 1,
     .build = build_softmax_masked,
     .types = WF_TYPES_FLOAT,
     .label = "masked"},
    WF_ROW(softmax_grad, WF_LENGTH(softmax_cases), WF_TYPES_FLOAT),
    WF_ROW(global_norm, 6, WF_TYPES_FLOAT),
    {.build = NULL},
};

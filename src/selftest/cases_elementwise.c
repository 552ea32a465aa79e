/* SPDX-License-Identifier: MIT */
/* cases_elementwise.c - cases of elementwise ops: generated from ops.def, and a few with their own
 * rows. */
#include <math.h>

#include "selftest/case.h"
#include "selftest/ref_elementwise.h"

/* Empty, one, a few, odd sizes, and enough elements for several threads. */
static const wf_dims shapes[] = {
    {0, {0}}, {1, {1}}, {1, {63}}, {3, {3, 5, 7}}, {1, {33001}}, {1, {0}}, {3, {3, 0, 2}},
};

/* ---- Generated ---- */

/* Special values: the ends of every range, infinity and NaN. */
static void build_unary_special(wf_case *c)
{
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1, -1, 60, -60, 1e4, -1e4};
    c->no_gradient = true;
    WF_CASE_OP(c, "", wf_case_given(c, c->type, D(WF_LENGTH(special)), special));
}

void wf_case_build_unary(wf_case *c)
{
    wf_ref_range range = wf_ref_operand_range(c->row->op, 0);
    if (c->variant == WF_LENGTH(shapes))
        build_unary_special(c);
    else
        WF_CASE_OP(c, "", wf_case_x(c, shapes[c->variant], range.low, range.high));
}
const int wf_case_unary_variants = WF_LENGTH(shapes) + 1;

/* Shapes of two operands: equal, empty, and broadcast on either side or on both. */
static const struct {
    wf_dims a, b;
} pairs[] = {
    {{0, {0}}, {0, {0}}},
    {{1, {33}}, {1, {33}}},
    {{3, {3, 5, 7}}, {3, {3, 5, 7}}},
    {{1, {33001}}, {1, {33001}}},
    {{1, {0}}, {1, {0}}},
    {{3, {3, 0, 2}}, {3, {3, 1, 2}}},
    {{2, {4, 9}}, {0, {0}}},
    {{0, {0}}, {1, {19}}},
    {{3, {3, 1, 5}}, {2, {4, 1}}},
    {{1, {7}}, {3, {2, 3, 7}}},
    {{2, {130, 1}}, {2, {1, 260}}},
    {{6, {2, 1, 2, 1, 2, 3}}, {5, {3, 1, 2, 2, 1}}},
};

/* Each special value paired with each other. */
static void build_binary_special(wf_case *c)
{
    static const double real[] = {0, 1, -1, INFINITY, -INFINITY, NAN, 60000, 1e-5};
    static const double whole[] = {0, 1, -1, 2147483647, -2147483648.0, 65536, -65537, 3};
    const double *v = c->type == WF_I32 ? whole : real;
    c->no_gradient = true;
    WF_CASE_OP(c, "", wf_case_given(c, c->type, D(8, 1), v), wf_case_given(c, c->type, D(8), v));
}

void wf_case_build_binary(wf_case *c)
{
    wf_ref_range ra = wf_ref_operand_range(c->row->op, 0), rb = wf_ref_operand_range(c->row->op, 1);
    /* Products of two such values fit 32 bits; build_binary_special covers the wrap-around. */
    if (c->type == WF_I32)
        ra = rb = (wf_ref_range){-30000, 30000};
    if (c->variant == WF_LENGTH(pairs)) {
        build_binary_special(c);
    } else if (c->variant == WF_LENGTH(pairs) + 1) { /* many equal pairs */
        c->no_gradient = true;
        wf_value *a = wf_case_whole(c, c->type, D(5, 40), 1, 3);
        WF_CASE_OP(c, "", a, wf_case_whole(c, c->type, D(5, 40), 1, 3));
    } else {
        wf_value *a = wf_case_x(c, pairs[c->variant].a, ra.low, ra.high);
        WF_CASE_OP(c, "", a, wf_case_x(c, pairs[c->variant].b, rb.low, rb.high));
    }
}
const int wf_case_binary_variants = WF_LENGTH(pairs) + 2;

/* ---- With their own rows ---- */

static void build_scale(wf_case *c)
{
    static const double factors[] = {-1, 0.1, 0, 1, 3e-3, 2, 7};
    wf_case_node(c, wf_scale(c->g, wf_case_x(c, shapes[c->variant], -4, 4), factors[c->variant]));
}

static const struct where_case {
    wf_dims condition, a, b;
} where_cases[] = {
    {{0, {0}}, {0, {0}}, {0, {0}}},          {{3, {3, 5, 7}}, {3, {3, 5, 7}}, {3, {3, 5, 7}}},
    {{1, {5}}, {3, {3, 1, 5}}, {0, {0}}},    {{2, {4, 1}}, {0, {0}}, {1, {9}}},
    {{0, {0}}, {2, {3, 4}}, {2, {3, 1}}},    {{3, {2, 1, 3}}, {1, {1}}, {2, {5, 1}}},
    {{2, {3, 0}}, {2, {3, 0}}, {2, {1, 1}}}, {{1, {33001}}, {1, {33001}}, {0, {0}}},
};

static void build_where(wf_case *c)
{
    const struct where_case *t = &where_cases[c->variant];
    wf_value *condition = wf_case_truth(c, t->condition);
    wf_value *a = wf_case_x(c, t->a, -50, 50);
    wf_case_node(c, wf_where(c->g, condition, a, wf_case_x(c, t->b, -50, 50)));
}

static void build_gelu_grad(wf_case *c)
{
    wf_value *dy = wf_case_x(c, shapes[c->variant], -2, 2);
    WF_CASE_OP(c, "", dy, wf_case_x(c, shapes[c->variant], -4, 4));
}

static void build_glu(wf_case *c)
{
    wf_value *gate = wf_case_x(c, shapes[c->variant % 7], -4, 4);
    wf_value *up = wf_case_x(c, shapes[c->variant % 7], -2, 2);
    wf_case_node(c, wf_glu(c->g, gate, up, (wf_glu_kind)(c->variant % 3)));
}

static void build_glu_grad(wf_case *c)
{
    static const char *const attrs[] = {"kind=0", "kind=1", "kind=2"};
    wf_value *dy = wf_case_x(c, shapes[c->variant % 7], -2, 2);
    wf_value *gate = wf_case_x(c, shapes[c->variant % 7], -4, 4);
    WF_CASE_OP(c, attrs[c->variant % 3], dy, gate, wf_case_x(c, shapes[c->variant % 7], -2, 2));
}

static void build_dropout(wf_case *c)
{
    static const double p[] = {0.3, 0.5, 0.9, 0, 0.1, 0.3, 0.3};
    if (c->variant == 3) /* a stream other than the graph's first */
        wf_dropout(c->g, wf_case_x(c, D(4), -1, 1), wf_case_key(c), 0.5);
    wf_value *x = wf_case_x(c, shapes[c->variant], -4, 4);
    wf_case_node(c, wf_dropout(c->g, x, wf_case_key(c), p[c->variant]));
}

const wf_case_row wf_cases_elementwise[] = {
    WF_ROW(scale, 7, WF_TYPES_FLOAT),
    WF_ROW(where, WF_LENGTH(where_cases), WF_TYPES_PLAIN),
    WF_ROW(gelu_grad, 7, WF_TYPES_FLOAT),
    WF_ROW(glu, 9, WF_TYPES_FLOAT),
    WF_ROW(glu_grad, 9, WF_TYPES_FLOAT),
    WF_ROW(dropout, 7, WF_TYPES_FLOAT),
    {.build = NULL},
};

/* SPDX-License-Identifier: MIT */
/* cases_source.c - cases of ops that make values: input, state and state_copy (through a copy),
 * fill, iota, uniform. */
#include <math.h>

#include "selftest/case.h"

static const wf_dims shapes[] = {
    {2, {3, 5}}, {0, {0}}, {4, {2, 3, 1, 4}}, {1, {0}}, {1, {33001}},
};

static void build_input(wf_case *c)
{
    wf_case_node(c, wf_copy(c->g, wf_case_x(c, shapes[c->variant], -100, 100)));
}

static void build_state(wf_case *c)
{
    wf_case_node(c, wf_copy(c->g, wf_case_state(c, c->type, shapes[c->variant], -100, 100)));
}

static void build_state_copy(wf_case *c)
{
    wf_value *of = wf_case_state(c, WF_F32, shapes[c->variant], -100, 100);
    c->no_gradient = true;
    wf_case_node(c, wf_copy(c->g, wf_case_state_copy(c, of)));
}

static void build_fill(wf_case *c)
{
    static const double values[] = {3, 0, 1, 100, 2, -5.5, 0.1, -1e9, INFINITY, 1e9};
    const wf_dims *s = &shapes[c->variant % 5];
    wf_case_node(c, wf_fill(c->g, c->type, (int)s->n, s->d, values[c->variant]));
}

static const struct iota_case {
    wf_dims shape;
    int axis;
} iota_cases[] = {
    {{1, {7}}, 0},       {{3, {3, 4, 5}}, 0},  {{3, {3, 4, 5}}, 1},
    {{3, {3, 4, 5}}, 2}, {{2, {33001, 1}}, 0}, {{2, {0, 4}}, 1},
};

static void build_iota(wf_case *c)
{
    const struct iota_case *t = &iota_cases[c->variant];
    const wf_dims *s = &t->shape;
    wf_case_node(c, wf_iota(c->g, (int)s->n, s->d, t->axis));
}

static void build_uniform(wf_case *c)
{
    const wf_dims *s = &shapes[c->variant % 5];
    if (c->variant == 5) /* a stream other than the graph's first */
        wf_uniform(c->g, wf_case_key(c), 0, NULL);
    wf_case_node(c, wf_uniform(c->g, wf_case_key(c), (int)s->n, s->d));
}

const wf_case_row wf_cases_source[] = {
    WF_ROW(input, 5, WF_TYPES_PLAIN),
    WF_ROW(state, 5, WF_TYPES_PLAIN),
    WF_ROW(state_copy, 5, WF_TYPE_BIT(WF_BF16) | WF_TYPE_BIT(WF_F16)),
    WF_ROW(fill, 10, WF_TYPES_PLAIN),
    WF_ROW(iota, WF_LENGTH(iota_cases), WF_TYPE_BIT(WF_I32)),
    WF_ROW(uniform, 6, WF_TYPE_BIT(WF_I32)),
    {.build = NULL},
};

/* SPDX-License-Identifier: MIT */
/* cases_update.c - cases of ops that change states. kv_append is with attention. */
#include <stdio.h>

#include "selftest/case.h"

static const wf_dims shapes[] = {{2, {3, 5}}, {0, {0}}, {1, {33}}, {1, {0}}, {1, {33001}}};

/* ---- assign, accumulate: variants cover shapes and forms of apply ---- */

static void build_assign(wf_case *c)
{
    wf_dims shape = shapes[c->variant % 5];
    wf_value *state = wf_case_state(c, c->type, shape, -100, 100);
    wf_value *x = wf_case_x(c, shape, -100, 100);
    wf_case_node(c, wf_assign(c->g, state, x, wf_case_apply(c, c->variant % 3)));
}

static void build_accumulate(wf_case *c)
{
    wf_dims shape = shapes[c->variant % 5];
    wf_value *state = wf_case_state(c, c->type, shape, -100, 100);
    wf_value *x = wf_case_x(c, shape, -100, 100);
    wf_case_node(c, wf_accumulate(c->g, state, x, wf_case_apply(c, c->variant % 3)));
}

/* Gradients in one type, their sum in another. */
static void build_mixed(wf_case *c)
{
    wf_dims shape = shapes[c->variant];
    c->optional = true;
    wf_value *state = wf_case_state(c, c->type, shape, -4, 4);
    wf_value *x = wf_case_typed(c, wf_case_other_float(c), shape, -4, 4);
    wf_value *apply = wf_case_apply(c, c->variant % 3);
    wf_case_node(c,
                 (c->row->op == WF_OP_assign ? wf_assign : wf_accumulate)(c->g, state, x, apply));
}

/* Up to three at once, with different shapes and types. */
static void build_accumulate_many(wf_case *c)
{
    const wf_type types[2][3] = {{c->type, WF_F32, WF_I32}, {c->type, WF_BF16, WF_I32}};
    int n = 1 + c->variant % 3;
    wf_value *in[7];
    for (int i = 0; i < 2 * n; i++) {
        wf_type type = types[i / n][i % n];
        wf_dims shape = shapes[(c->variant + i % n) % 5];
        in[i] = i < n ? wf_case_state(c, type, shape, -100, 100)
                      : wf_case_typed(c, type, shape, -100, 100);
    }
    in[2 * n] = wf_case_apply(c, c->variant / 3 % 3);
    wf_case_op(c, NULL, in, in[2 * n] ? 2 * n + 1 : 2 * n);
}

/* ---- adamw ---- */

static const struct adamw_case {
    wf_dims shape;
    int32_t step;
    int apply;
    bool mixed; /* the moments have another type than p */
    /* beta1, beta2, eps, weight_decay; -1 is the public API's way to write 0, since 0 means the
     * default. */
    wf_adamw_options o;
} adamw_cases[] = {
    {{2, {3, 5}}, 1, 0, false, {0.9, 0.999, 1e-8, 0}},
    {{1, {33}}, 7, 1, false, {0.9, 0.95, 1e-8, 0.1}},
    {{0, {0}}, 7, 1, false, {0.8, 0.9, 1e-6, 0.01}},
    {{1, {0}}, 1, 1, false, {0.9, 0.999, 1e-8, 0.1}},
    {{2, {3, 5}}, 3, 2, false, {0.9, 0.999, 1e-8, 0.1}},
    {{1, {33}}, 1, 1, true, {0.9, 0.999, 1e-8, 0.1}},
    {{1, {33}}, 12, 1, true, {0.9, 0.95, 1e-8, 0.1}},
    {{1, {33001}}, 1000, 1, false, {0.9, 0.999, 1e-8, 0.1}},
    {{1, {33}}, 2, 1, false, {-1, -1, 1e-3, 0.1}},
};

static void build_adamw(wf_case *c)
{
    const struct adamw_case *t = &adamw_cases[c->variant];
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    c->optional = t->mixed;
    wf_value *p = wf_case_state(c, c->type, t->shape, -2, 2);
    wf_value *m = wf_case_state(c, type, t->shape, -0.1, 0.1);
    wf_value *v = wf_case_state(c, type, t->shape, 1e-3, 0.1);
    wf_value *grad = wf_case_x(c, t->shape, -1, 1), *lr = wf_case_f32(c, D0, 1e-3, 1e-1);
    wf_value *step = wf_case_i32(c, D0, t->step, t->step), *scale = wf_case_f32(c, D0, 0.1, 2);
    wf_value *apply = wf_case_apply(c, t->apply);
    wf_case_node(c, wf_adamw(c->g, p, m, v, grad, lr, step, scale, apply, &t->o));
}

/* Adds the operands shared by all parameters of a merged update, and the node. */
static void finish_adamw_many(wf_case *c, const struct adamw_case *t, int copies, wf_value **in,
                              int n)
{
    /* p, m, v, the copy if any, and the gradient of each parameter come first. */
    wf_value **rest = in + (4 + copies) * n;
    char attrs[128];
    rest[0] = wf_case_f32(c, D0, 1e-3, 1e-1);
    rest[1] = wf_case_i32(c, D0, t->step, t->step);
    rest[2] = wf_case_f32(c, D0, 0.1, 2);
    rest[3] = wf_case_apply(c, t->apply > 0 ? t->apply : 1);
    snprintf(attrs, sizeof attrs, "beta1=%g beta2=%g eps=%g weight_decay=%g copies=%d",
             t->o.beta1 < 0 ? 0 : t->o.beta1, t->o.beta2 < 0 ? 0 : t->o.beta2, t->o.eps,
             t->o.weight_decay, copies);
    wf_case_op(c, attrs, in, (4 + copies) * n + 4);
}

/* One or two parameters with copies alternating between bf16 and f16; some moments and gradients
 * are narrow. */
static void build_adamw_copies(wf_case *c)
{
    static const double range[5][2] = {{-2, 2}, {-0.1, 0.1}, {1e-3, 0.1}, {-2, 2}, {-1, 1}};
    const struct adamw_case *t = &adamw_cases[c->variant % WF_LENGTH(adamw_cases)];
    int n = 1 + c->variant / WF_LENGTH(adamw_cases);
    wf_value *in[14];
    for (int i = 0; i < 5 * n; i++) {
        int k = i / n, parameter = i % n;
        bool narrow = t->mixed != (parameter == 1);
        wf_type copy = (c->variant + parameter) % 2 ? WF_F16 : WF_BF16;
        wf_type type = k == 0 ? WF_F32 : k == 3 ? copy : narrow ? wf_case_other_float(c) : WF_F32;
        wf_dims shape = parameter == 0 ? t->shape : shapes[(c->variant + parameter) % 5];
        in[i] = k < 4 ? wf_case_state(c, type, shape, range[k][0], range[k][1])
                      : wf_case_typed(c, type, shape, range[k][0], range[k][1]);
    }
    finish_adamw_many(c, t, 1, in, n);
}

/* Up to three parameters with different shapes and types. */
static void build_adamw_many(wf_case *c)
{
    const struct adamw_case *t = &adamw_cases[c->variant % WF_LENGTH(adamw_cases)];
    int n = 1 + (c->variant + 1) % 3;
    wf_value *in[16];
    for (int i = 0; i < 4 * n; i++) {
        static const double range[4][2] = {{-2, 2}, {-0.1, 0.1}, {1e-3, 0.1}, {-1, 1}};
        int k = i / n, parameter = i % n;
        bool other = (t->mixed && (k == 1 || k == 2)) != (parameter == 1);
        wf_type type = other ? wf_case_other_float(c) : c->type;
        wf_dims shape = parameter == 0 ? t->shape : shapes[(c->variant + parameter) % 5];
        in[i] = k < 3 ? wf_case_state(c, type, shape, range[k][0], range[k][1])
                      : wf_case_typed(c, type, shape, range[k][0], range[k][1]);
    }
    finish_adamw_many(c, t, 0, in, n);
}

/* ---- sgd ---- */

static const struct sgd_case {
    wf_dims shape;
    bool velocity;
    int apply;
    bool mixed; /* velocity and gradient of another type than p */
    wf_sgd_options o;
} sgd_cases[] = {
    {{2, {3, 5}}, false, 0, false, {0, 0, false}},
    {{1, {33}}, false, 1, false, {0, 0.1, false}},
    {{1, {33}}, true, 1, false, {0.9, 0.1, false}},
    {{0, {0}}, true, 1, false, {0.9, 0, true}},
    {{1, {33}}, true, 0, false, {0.5, 0.1, true}},
    {{1, {33}}, true, 2, false, {0.9, 0.1, true}},
    {{1, {33}}, false, 2, false, {0, 0.1, false}},
    {{1, {0}}, true, 1, false, {0.9, 0, false}},
    {{1, {33}}, true, 1, true, {0.9, 0.1, false}},
    {{1, {33001}}, true, 1, false, {0.9, 0.1, true}},
};

static void build_sgd(wf_case *c)
{
    const struct sgd_case *t = &sgd_cases[c->variant];
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    c->optional = t->mixed;
    wf_value *p = wf_case_state(c, c->type, t->shape, -2, 2);
    wf_value *velocity = t->velocity ? wf_case_state(c, type, t->shape, -1, 1) : NULL;
    wf_value *grad = wf_case_typed(c, type, t->shape, -1, 1);
    wf_value *lr = wf_case_f32(c, D0, 1e-3, 1e-1), *scale = wf_case_f32(c, D0, 0.1, 2);
    wf_value *apply = wf_case_apply(c, t->apply);
    wf_case_node(c, wf_sgd(c->g, p, velocity, grad, lr, scale, apply, &t->o));
}

/* ---- lion ---- */

static const struct lion_case {
    wf_dims shape;
    int apply;
    bool mixed; /* moment and gradient of another type than p */
    wf_lion_options o;
} lion_cases[] = {
    {{2, {3, 5}}, 0, false, {0, 0, 0}},        {{1, {33}}, 1, false, {0.9, 0.99, 0.1}},
    {{0, {0}}, 1, false, {0.95, 0.98, 0.1}},   {{1, {0}}, 1, false, {0, 0, 0}},
    {{2, {3, 5}}, 2, false, {0.9, 0.99, 0.1}}, {{1, {33}}, 1, true, {0.9, 0.99, 0.1}},
    {{1, {33}}, 1, false, {-1, -1, 1}},        {{1, {33001}}, 1, false, {0.9, 0.99, 0.1}},
};

static void build_lion(wf_case *c)
{
    const struct lion_case *t = &lion_cases[c->variant];
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    c->optional = t->mixed;
    wf_value *p = wf_case_state(c, c->type, t->shape, -2, 2);
    wf_value *m = wf_case_state(c, type, t->shape, -0.1, 0.1);
    wf_value *grad = wf_case_typed(c, type, t->shape, -1, 1);
    wf_value *lr = wf_case_f32(c, D0, 1e-3, 1e-1), *scale = wf_case_f32(c, D0, 0.1, 2);
    wf_value *apply = wf_case_apply(c, t->apply);
    wf_case_node(c, wf_lion(c->g, p, m, grad, lr, scale, apply, &t->o));
}

const wf_case_row wf_cases_update[] = {
    WF_ROW(assign, 15, WF_TYPES_PLAIN),
    WF_ROW(accumulate, 15, WF_TYPES_NUMBER),
    {.op = WF_OP_assign,
     .variants = 3,
     .build = build_mixed,
     .types = WF_TYPES_FLOAT,
     .label = "mixed"},
    {.op = WF_OP_accumulate,
     .variants = 3,
     .build = build_mixed,
     .types = WF_TYPES_FLOAT,
     .label = "mixed"},
    WF_ROW(accumulate_many, 18, WF_TYPES_NUMBER),
    WF_ROW(adamw, WF_LENGTH(adamw_cases), WF_TYPES_FLOAT),
    WF_ROW(adamw_many, 2 * WF_LENGTH(adamw_cases), WF_TYPES_FLOAT),
    {.op = WF_OP_adamw_many,
     .variants = 2 * WF_LENGTH(adamw_cases),
     .build = build_adamw_copies,
     .types = WF_TYPE_BIT(WF_F32),
     .label = "copies"},
    WF_ROW(sgd, WF_LENGTH(sgd_cases), WF_TYPES_FLOAT),
    WF_ROW(lion, WF_LENGTH(lion_cases), WF_TYPES_FLOAT),
    {.build = NULL},
};

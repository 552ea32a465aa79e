/* SPDX-License-Identifier: MIT */
/* cases_loss.c - cases of cross_entropy and its gradient. */
#include "selftest/case.h"

static const struct loss_case {
    wf_dims logits;
    double range;
    bool ignore; /* some targets are ignored */
    wf_cross_entropy_options o;
} loss_cases[] = {
    {{1, {5}}, 3, false, {.ignore_index = -100}},
    {{2, {6, 9}}, 3, false, {.ignore_index = -100}},
    {{2, {6, 9}}, 3, true, {.ignore_index = -100}},
    {{3, {2, 3, 17}}, 3, true, {.ignore_index = 2}},
    {{2, {6, 9}}, 3, false, {.ignore_index = -100, .label_smoothing = 0.1}},
    {{2, {6, 9}}, 3, true, {.ignore_index = -100, .z_loss = 0.01}},
    {{2, {6, 9}}, 10, false, {.ignore_index = -100, .softcap = 5}},
    {{2, {6, 9}},
     10,
     true,
     {.ignore_index = -1, .label_smoothing = 0.2, .z_loss = 1e-3, .softcap = 8}},
    {{2, {4, 33}}, 60, false, {.ignore_index = -100}},
    {{2, {4, 9}}, 300, false, {.ignore_index = -100}}, /* e^x would overflow */
    {{2, {0, 5}}, 3, false, {.ignore_index = -100}},
    {{2, {3, 1}}, 3, false, {.ignore_index = -100}},
    {{2, {24, 1500}}, 5, false, {.ignore_index = -100, .label_smoothing = 0.05}},
};

static wf_value *targets(wf_case *c, const struct loss_case *t)
{
    int32_t v[64];
    wf_dims shape = t->logits;
    int64_t classes = shape.d[--shape.n];
    shape.d[shape.n] = 0;
    for (int64_t i = 0; i < wf_dims_count(&shape); i++) {
        v[i] = (int32_t)wf_rng_below(&c->rng, (uint64_t)classes);
        if (t->ignore && i % 3 == 1)
            v[i] = (int32_t)t->o.ignore_index;
    }
    return wf_case_i32_given(c, shape, v);
}

static void build_cross_entropy(wf_case *c)
{
    const struct loss_case *t = &loss_cases[c->variant];
    wf_value *logits = wf_case_x(c, t->logits, -t->range, t->range);
    c->no_gradient = t->range > 100; /* the log-sum-exp that is saved, in f32, is far from exact */
    wf_case_node(c, wf_cross_entropy(c->g, logits, targets(c, t), &t->o));
}

static void build_cross_entropy_grad(wf_case *c)
{
    const struct loss_case *t = &loss_cases[c->variant];
    double range = t->range > 60 ? 60 : t->range; /* the expansion has lse in more digits */
    wf_value *logits = wf_case_x(c, t->logits, -range, range), *ids = targets(c, t);
    wf_value *loss = wf_cross_entropy(c->g, logits, ids, &t->o);
    wf_value *lse = wf_case_frozen(c, wf_value_output(loss, 1));
    if (!lse)
        return;
    wf_value *in[] = {wf_case_f32(c, ids->shape, -2, 2), logits, ids, lse};
    wf_case_node(c, wf_node_add(c->g, c->row->op, loss->node->attr, NULL, in, 4));
}

const wf_case_row wf_cases_loss[] = {
    WF_ROW(cross_entropy, WF_LENGTH(loss_cases), WF_TYPES_FLOAT),
    WF_ROW(cross_entropy_grad, WF_LENGTH(loss_cases), WF_TYPES_FLOAT),
    {.build = NULL},
};

/* SPDX-License-Identifier: MIT */
/* cases_loss.c - cases of cross_entropy, its gradient, and head_loss, which fuses both with the
 * head. */
#include "selftest/case.h"

static const struct loss_case {
    /* [..., V] */
    wf_dims logits;
    /* Logits are in [-range, range]. */
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
    {{2, {3, 16}}, 3, false, {.ignore_index = -100}},
    {{1, {8193}}, 5, false, {.ignore_index = -100}}, /* one row split into parts */
    {{2, {2, 4111}}, 5, true, {.ignore_index = -100, .label_smoothing = 0.1, .z_loss = 1e-3}},
    {{2, {24, 1500}}, 5, false, {.ignore_index = -100, .label_smoothing = 0.05}},
};

/* Makes targets for logits of this shape. */
static wf_value *targets(wf_case *c, wf_dims shape, bool ignore, int64_t ignore_index)
{
    /* Enough for the rows of every case in this file. */
    int32_t v[300];
    int64_t classes = shape.d[--shape.n];
    shape.d[shape.n] = 0;
    wf_assert(wf_dims_count(&shape) <= WF_LENGTH(v));
    for (int64_t i = 0; i < wf_dims_count(&shape); i++) {
        v[i] = (int32_t)wf_rng_below(&c->rng, (uint64_t)classes);
        if (ignore && i % 3 == 1)
            v[i] = (int32_t)ignore_index;
    }
    return wf_case_i32_given(c, shape, v);
}

static void build_cross_entropy(wf_case *c)
{
    const struct loss_case *t = &loss_cases[c->variant];
    wf_value *logits = wf_case_x(c, t->logits, -t->range, t->range);
    c->no_gradient = t->range > 100; /* the saved f32 log-sum-exp is inexact */
    wf_value *ids = targets(c, t->logits, t->ignore, t->o.ignore_index);
    wf_case_node(c, wf_cross_entropy(c->g, logits, ids, &t->o));
}

static void build_cross_entropy_grad(wf_case *c)
{
    const struct loss_case *t = &loss_cases[c->variant];
    double range = t->range > 60 ? 60 : t->range; /* the expansion has lse with more digits */
    wf_value *logits = wf_case_x(c, t->logits, -range, range);
    wf_value *ids = targets(c, t->logits, t->ignore, t->o.ignore_index);
    wf_value *loss = wf_cross_entropy(c->g, logits, ids, &t->o);
    wf_value *lse = wf_case_frozen(c, wf_value_output(loss, 1));
    if (!lse)
        return;
    wf_value *in[] = {wf_case_f32(c, ids->shape, -2, 2), logits, ids, lse};
    wf_case_node(c, wf_node_add(c->g, c->row->op, loss->node->attr, NULL, in, 4));
}

/* ---- head_loss ---- */

static const struct head_case {
    wf_dims x; /* [..., C] */
    int64_t classes;
    bool grad, ignore, mixed; /* mixed: w has another type */
    /* In order: ignore_index, label_smoothing, z_loss, softcap, chunk (rows at once), frozen (no
     * dw). */
    wf_attr_head_loss a;
} head_cases[] = {
    {{1, {5}}, 4, true, false, false, {.ignore_index = -100}},
    {{2, {6, 9}}, 7, false, false, false, {.ignore_index = -100}},
    {{2, {6, 9}}, 7, true, true, false, {.ignore_index = -100}},
    {{3, {2, 3, 33}}, 17, true, true, false, {.ignore_index = 2, .chunk = 4}},
    {{2, {6, 9}}, 7, true, false, false, {.ignore_index = -100, .label_smoothing = 0.1}},
    {{2, {6, 9}}, 7, true, true, false, {.ignore_index = -100, .z_loss = 0.01}},
    {{2, {6, 9}}, 7, true, false, false, {.ignore_index = -100, .softcap = 5}},
    {{2, {7, 12}}, 9, true, true, false, {-1, 0.2, 1e-3, 8, 3, 0}},
    {{2, {7, 12}}, 9, true, false, true, {.ignore_index = -100, .chunk = 5}},
    {{2, {7, 12}}, 9, false, false, true, {.ignore_index = -100, .label_smoothing = 0.1}},
    {{2, {0, 5}}, 3, true, false, false, {.ignore_index = -100}},
    {{2, {0, 5}}, 3, true, false, true, {.ignore_index = -100}},
    {{2, {3, 0}}, 4, true, false, false, {.ignore_index = -100}},
    {{2, {3, 4}}, 1, true, false, false, {.ignore_index = -100}},
    {{2, {5, 3}}, 6, true, false, false, {.ignore_index = -100, .chunk = 1}},
    {{2, {150, 20}}, 140, true, true, false, {.ignore_index = -100}},
    {{2, {261, 7}}, 5, true, true, false, {.ignore_index = -100}}, /* more than a chunk */
    {{2, {2, 300}}, 270, true, false, true, {.ignore_index = -100}},
    {{2, {9, 40}}, 30, true, true, false, {.ignore_index = -100, .chunk = 4, .frozen = 1}},
    {{2, {9, 40}}, 30, true, true, true, {.ignore_index = -100, .softcap = 5, .frozen = 1}},
};

static void build_head_loss(wf_case *c)
{
    const struct head_case *t = &head_cases[c->variant];
    wf_dims logits = t->x;
    int64_t width = wf_dims_last(&t->x);
    logits.d[logits.n - 1] = t->classes;
    c->optional = t->mixed;
    wf_value *x = wf_case_x(c, t->x, -1, 1);
    wf_value *w =
        wf_case_typed(c, t->mixed ? wf_case_other_float(c) : c->type, D(t->classes, width), -1, 1);
    wf_value *ids = targets(c, logits, t->ignore, t->a.ignore_index);
    wf_value *in[] = {x, w, ids, NULL};
    if (t->grad && ids)
        in[3] = wf_case_f32(c, ids->shape, -2, 2);
    wf_case_node(c, wf_node_add(c->g, c->row->op, &t->a, NULL, in, t->grad ? 4 : 3));
}

/* Quantized heads, with and without dloss. */
static void build_head_loss_blocks(wf_case *c)
{
    static const wf_attr_head_loss attrs[] = {{.ignore_index = -100, .chunk = 3},
                                              {-1, 0.1, 1e-3, 8, 0, 0}};
    const wf_attr_head_loss *attr = &attrs[c->variant % 2];
    c->optional = true;
    wf_value *x = wf_case_x(c, D(7, 512), -1, 1);
    wf_value *w =
        wf_case_blocks(c, (wf_type)(WF_BLOCK_FIRST + c->variant / 4), D(19, 512), -0.2, 0.2);
    wf_value *ids = targets(c, D(7, 19), c->variant % 2, attr->ignore_index);
    wf_value *in[] = {x, w, ids, NULL};
    int nin = c->variant % 4 < 2 ? 4 : 3;
    if (nin == 4 && ids)
        in[3] = wf_case_f32(c, ids->shape, -2, 2);
    wf_case_node(c, wf_node_add(c->g, c->row->op, attr, NULL, in, nin));
}

const wf_case_row wf_cases_loss[] = {
    WF_ROW(cross_entropy, WF_LENGTH(loss_cases), WF_TYPES_FLOAT),
    WF_ROW(cross_entropy_grad, WF_LENGTH(loss_cases), WF_TYPES_FLOAT),
    WF_ROW(head_loss, WF_LENGTH(head_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(head_loss, blocks, 4 * WF_BLOCK_TYPES, WF_TYPES_FLOAT),
    {.build = NULL},
};

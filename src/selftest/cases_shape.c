/* SPDX-License-Identifier: MIT */
/* cases_shape.c - cases of ops that change type or shape; all are exact. */
#include <math.h>

#include "selftest/case.h"

/* ---- cast: every plain type to every other ---- */

static const wf_type plain[] = {WF_F32, WF_F16, WF_BF16, WF_E4M3, WF_E5M2, WF_I32, WF_I8, WF_U8};

/* Ties, ends of ranges and values beyond them. Only floats have the last three. */
static const double marks[] = {
    0,    -0.0, 0.5,   1.5,   2.5,   -0.5,  -1.5,     0.1,        -0.1,          127,
    128,  129,  -128,  -129,  255,   256,   300,      448,        449,           464,
    465,  500,  57344, 60000, 65504, 65519, 65520,    70000,      -70000,        16777217,
    1e-3, 1e-5, 6e-8,  3e-8,  1e-10, 1e-39, 2e9,      2147483647, -2147483648.0, 3e9,
    -3e9, 1e30, 33.3,  2047,  2049,  257,   INFINITY, -INFINITY,  NAN,
};

static void build_cast(wf_case *c)
{
    wf_type to = plain[c->variant % 8];
    int n = WF_LENGTH(marks) - (wf_type_get(c->type)->kind == WF_KIND_INT ? 3 : 0);
    wf_value *x;
    /* Variants 0 to 7 cast special values to each type, 8 to 15 random ones. */
    if (c->variant < 8) {
        c->no_gradient = true;
        x = wf_case_given(c, c->type, D(n), marks);
    } else {
        x = wf_case_x(c, D(7, 3, 5), -200, 200);
    }
    wf_attr_cast attr = {.type = to}; /* wf_cast adds no node if the type is the same */
    wf_case_node(c, wf_node_add(c->g, WF_OP_cast, &attr, NULL, &x, 1));
}

/* ---- copy and views ---- */

static const wf_dims shapes[] = {
    {0, {0}}, {1, {33}}, {3, {3, 5, 7}}, {2, {0, 4}}, {1, {33001}},
};

static void build_copy(wf_case *c)
{
    wf_case_node(c, wf_copy(c->g, wf_case_x(c, shapes[c->variant], -100, 100)));
}

static const struct reshape_case {
    wf_dims from, to;
} reshape_cases[] = {
    {{2, {3, 4}}, {2, {2, 6}}},      {{1, {30}}, {3, {2, 3, 5}}},    {{0, {0}}, {3, {1, 1, 1}}},
    {{2, {1, 1}}, {0, {0}}},         {{3, {4, 1, 6}}, {2, {-1, 3}}}, {{2, {0, 4}}, {3, {2, 0, 7}}},
    {{4, {2, 3, 4, 5}}, {1, {120}}},
};

static void build_reshape(wf_case *c)
{
    const struct reshape_case *t = &reshape_cases[c->variant];
    const wf_dims *to = &t->to;
    wf_value *x = wf_case_x(c, t->from, -100, 100);
    wf_case_node(c, wf_reshape(c->g, x, (int)to->n, to->d));
}

static const struct permute_case {
    wf_dims from;
    int64_t order[WF_MAX_RANK];
} permute_cases[] = {
    {{2, {3, 5}}, {1, 0}},
    {{2, {3, 5}}, {0, 1}},
    {{3, {3, 5, 7}}, {1, 0, 2}},
    {{3, {3, 5, 7}}, {2, 0, 1}},
    {{4, {2, 3, 4, 5}}, {0, 2, 1, 3}},
    {{4, {2, 3, 4, 5}}, {3, 1, 0, 2}},
    {{3, {3, 0, 2}}, {2, 1, 0}},
    {{2, {150, 260}}, {1, 0}},
    {{3, {2, 33, 71}}, {2, 0, 1}},
    {{6, {2, 1, 3, 2, 1, 2}}, {5, 3, 1, 0, 2, 4}},
};

static void build_permute(wf_case *c)
{
    const struct permute_case *t = &permute_cases[c->variant];
    wf_value *x = wf_case_x(c, t->from, -100, 100);
    wf_case_node(c, wf_permute(c->g, x, t->order));
}

static const struct slice_case {
    wf_dims from;
    int axis;
    int64_t begin, end;
} slice_cases[] = {
    {{1, {9}}, 0, 2, 7},       {{3, {5, 4, 3}}, 0, 1, 4}, {{3, {5, 4, 3}}, 1, 0, 3},
    {{3, {5, 4, 3}}, 2, 1, 2}, {{2, {4, 6}}, 1, 0, 6},    {{2, {4, 6}}, 1, 3, 3},
    {{2, {0, 6}}, 1, 2, 5},
};

static void build_slice(wf_case *c)
{
    const struct slice_case *t = &slice_cases[c->variant];
    wf_value *x = wf_case_x(c, t->from, -100, 100);
    wf_case_node(c, wf_slice(c->g, x, t->axis, t->begin, t->end));
}

/* ---- pad, concat, broadcast ---- */

static const struct pad_case {
    wf_dims from;
    int axis;
    int64_t before, after;
} pad_cases[] = {
    {{1, {5}}, 0, 2, 3},       {{3, {2, 3, 4}}, 0, 1, 0},  {{3, {2, 3, 4}}, 1, 0, 2},
    {{3, {2, 3, 4}}, 2, 3, 1}, {{2, {3, 4}}, 1, 0, 0},     {{2, {0, 3}}, 0, 2, 1},
    {{2, {3, 0}}, 0, 1, 1},    {{2, {130, 257}}, 1, 2, 1},
};

static void build_pad(wf_case *c)
{
    const struct pad_case *t = &pad_cases[c->variant];
    wf_value *x = wf_case_x(c, t->from, -100, 100);
    wf_case_node(c, wf_pad(c->g, x, t->axis, t->before, t->after));
}

static const struct concat_case {
    wf_dims shape; /* of all operands, except the axis */
    int axis;
    int64_t length[6];
    int n;
} concat_cases[] = {
    {{1, {0}}, 0, {3, 4}, 2},       {{3, {2, 3, 5}}, 0, {1, 2, 3}, 3},
    {{3, {2, 3, 5}}, 1, {2, 1}, 2}, {{3, {2, 3, 5}}, 2, {3, 0, 4, 1}, 4},
    {{2, {4, 3}}, 1, {2}, 1},       {{2, {0, 3}}, 1, {2, 3}, 2},
    {{1, {0}}, 0, {0, 0}, 2},       {{2, {130, 0}}, 1, {200, 57}, 2},
};

static void build_concat(wf_case *c)
{
    const struct concat_case *t = &concat_cases[c->variant];
    wf_value *x[6];
    for (int i = 0; i < t->n; i++) {
        wf_dims shape = t->shape;
        shape.d[t->axis] = t->length[i];
        x[i] = wf_case_x(c, shape, -100, 100);
    }
    wf_case_node(c, wf_concat(c->g, x, t->n, t->axis));
}

static const struct broadcast_case {
    wf_dims from, to;
} broadcast_cases[] = {
    {{0, {0}}, {2, {3, 4}}},          {{1, {5}}, {3, {2, 3, 5}}}, {{3, {2, 1, 4}}, {3, {2, 5, 4}}},
    {{2, {3, 1}}, {3, {2, 3, 6}}},    {{2, {3, 4}}, {2, {3, 4}}}, {{2, {1, 1}}, {3, {3, 0, 2}}},
    {{2, {1, 300}}, {2, {140, 300}}},
};

static void build_broadcast(wf_case *c)
{
    const struct broadcast_case *t = &broadcast_cases[c->variant];
    wf_value *x = wf_case_x(c, t->from, -100, 100);
    wf_attr_shape attr = {.dims = t->to}; /* wf_broadcast adds no node if the shape is the same */
    wf_case_node(c, wf_node_add(c->g, WF_OP_broadcast, &attr, NULL, &x, 1));
}

/* ---- Quantized blocks, which stay whole ---- */

static wf_value *block_operand(wf_case *c)
{
    static const wf_dims dims[] = {{3, {3, 4, 512}}, {2, {5, 256}}, {3, {2, 1, 256}}};
    c->optional = true;
    return wf_case_blocks(c, c->type, dims[c->variant % 3], -3, 3);
}

static void build_cast_blocks(wf_case *c)
{
    wf_attr_cast attr = {.type = plain[c->variant]}; /* f32, f16, bf16 */
    wf_value *x = block_operand(c);
    wf_case_node(c, wf_node_add(c->g, WF_OP_cast, &attr, NULL, &x, 1));
}

static void build_copy_blocks(wf_case *c)
{
    wf_case_node(c, wf_copy(c->g, block_operand(c)));
}

static void build_reshape_blocks(wf_case *c)
{
    static const wf_dims to[] = {{2, {6, 1024}}, {3, {1, 5, 256}}, {1, {512}}};
    wf_value *x = block_operand(c);
    wf_case_node(c, wf_reshape(c->g, x, (int)to[c->variant].n, to[c->variant].d));
}

static void build_permute_blocks(wf_case *c)
{
    static const wf_dims order[] = {{3, {1, 0, 2}}, {2, {0, 1}}, {3, {1, 0, 2}}};
    wf_attr_permute attr = {.order = order[c->variant]};
    wf_value *x = block_operand(c);
    wf_case_node(c, wf_node_add(c->g, WF_OP_permute, &attr, NULL, &x, 1));
}

static void build_slice_blocks(wf_case *c)
{
    static const wf_attr_slice cut[] = {{2, 256, 512}, {0, 1, 4}, {1, 0, 1}};
    const wf_attr_slice *a = &cut[c->variant];
    wf_value *x = block_operand(c);
    wf_case_node(c, wf_slice(c->g, x, (int)a->axis, a->begin, a->end));
}

const wf_case_row wf_cases_shape[] = {
    WF_ROW(cast, 16, WF_TYPES_PLAIN),
    WF_ROW(copy, 5, WF_TYPES_PLAIN),
    WF_ROW(reshape, WF_LENGTH(reshape_cases), WF_TYPES_PLAIN),
    WF_ROW(permute, WF_LENGTH(permute_cases), WF_TYPES_PLAIN),
    WF_ROW(slice, WF_LENGTH(slice_cases), WF_TYPES_PLAIN),
    WF_ROW(pad, WF_LENGTH(pad_cases), WF_TYPES_PLAIN),
    WF_ROW(concat, WF_LENGTH(concat_cases), WF_TYPES_PLAIN),
    WF_ROW(broadcast, WF_LENGTH(broadcast_cases), WF_TYPES_PLAIN),
    WF_ROW_OF(cast, blocks, 3, WF_TYPES_BLOCK),
    WF_ROW_OF(copy, blocks, 3, WF_TYPES_BLOCK),
    WF_ROW_OF(reshape, blocks, 3, WF_TYPES_BLOCK),
    WF_ROW_OF(permute, blocks, 3, WF_TYPES_BLOCK),
    WF_ROW_OF(slice, blocks, 3, WF_TYPES_BLOCK),
    {.build = NULL},
};

/* SPDX-License-Identifier: MIT */
/* cases_product.c - cases of matmul, linear, and the fused forms of linear and its gradient. */
#include "selftest/case.h"

static const struct matmul_case {
    wf_dims batch;
    /* [m, k] times [k, n]. Sizes of 0 occur in every place. */
    int64_t m, k, n;
    int transposes; /* bit 0: a is transposed, bit 1: b */
    bool mixed;     /* b has another type */
} matmul_cases[] = {
    {{0, {0}}, 1, 1, 1, 0, false},
    {{0, {0}}, 17, 33, 9, 0, false},
    {{0, {0}}, 17, 33, 9, 1, false},
    {{0, {0}}, 17, 33, 9, 2, false},
    {{0, {0}}, 17, 33, 9, 3, false},
    {{1, {3}}, 4, 5, 6, 0, false},
    {{1, {3}}, 4, 5, 6, 1, false},
    {{2, {2, 3}}, 5, 7, 3, 2, false},
    {{2, {2, 2}}, 3, 4, 5, 3, false},
    {{0, {0}}, 3, 0, 4, 0, false},
    {{0, {0}}, 0, 3, 4, 2, false},
    {{1, {0}}, 2, 3, 4, 1, false},
    {{0, {0}}, 3, 4, 0, 3, false},
    {{0, {0}}, 1, 70, 5, 2, false},
    {{0, {0}}, 6, 70, 1, 0, false},
    {{0, {0}}, 130, 70, 90, 0, false},
    {{0, {0}}, 70, 130, 65, 2, false},
    {{0, {0}}, 65, 90, 66, 1, false},
    {{0, {0}}, 17, 33, 9, 0, true},
    {{0, {0}}, 17, 33, 9, 1, true},
    {{1, {3}}, 9, 20, 7, 2, true},
    {{0, {0}}, 5, 20, 7, 3, true},
    /* larger than the blocks of kernels in every dimension */
    {{0, {0}}, 3, 600, 150, 0, false},
    {{0, {0}}, 1, 700, 300, 2, false},
    {{0, {0}}, 2, 300, 140, 2, false},
    {{0, {0}}, 150, 270, 5, 1, false},
    {{1, {2}}, 2, 290, 131, 3, false},
    /* around the edges of vectors and register tiles */
    {{0, {0}}, 5, 7, 15, 0, false},
    {{0, {0}}, 6, 8, 16, 1, false},
    {{0, {0}}, 7, 9, 17, 2, false},
    {{0, {0}}, 13, 15, 31, 3, false},
    {{0, {0}}, 14, 16, 32, 0, false},
    {{0, {0}}, 15, 17, 33, 1, true},
    {{0, {0}}, 29, 31, 63, 2, true},
    {{0, {0}}, 9, 257, 65, 3, false},
    {{0, {0}}, 8, 255, 33, 2, false},
    {{1, {5}}, 12, 18, 24, 0, false},
    {{0, {0}}, 170, 20, 35, 0, false},
    /* around the edges of matrix unit tiles and their blocks */
    {{0, {0}}, 16, 16, 16, 0, false},
    {{0, {0}}, 17, 64, 31, 1, false},
    {{0, {0}}, 33, 530, 47, 0, false},
    {{0, {0}}, 31, 530, 48, 3, false},
    {{1, {2}}, 18, 40, 20, 1, false},
    {{0, {0}}, 530, 20, 17, 2, false},
};

/* Returns [batch..., rows, columns], or [batch..., columns, rows] if transposed. */
static wf_dims matrix(wf_dims batch, int64_t rows, int64_t columns, bool transposed)
{
    batch.d[batch.n++] = transposed ? columns : rows;
    batch.d[batch.n++] = transposed ? rows : columns;
    return batch;
}

static void build_matmul(wf_case *c)
{
    const struct matmul_case *t = &matmul_cases[c->variant];
    bool ta = t->transposes & 1, tb = t->transposes & 2;
    c->optional = t->mixed;
    wf_value *a = wf_case_x(c, matrix(t->batch, t->m, t->k, ta), -2, 2);
    wf_value *b = wf_case_typed(c, t->mixed ? wf_case_other_float(c) : c->type,
                                matrix(t->batch, t->k, t->n, tb), -2, 2);
    wf_case_node(c, wf_matmul(c->g, a, b, ta, tb));
}

static const struct linear_case {
    wf_dims x; /* [..., K] */
    int64_t n;
    bool bias, mixed;
} linear_cases[] = {
    {{1, {5}}, 4, true, false},        {{2, {3, 7}}, 5, false, false},
    {{2, {3, 7}}, 5, true, false},     {{3, {2, 3, 33}}, 17, true, false},
    {{2, {0, 4}}, 3, true, false},     {{2, {3, 0}}, 4, true, false},
    {{2, {3, 4}}, 0, true, false},     {{2, {1, 1}}, 1, false, false},
    {{2, {130, 70}}, 90, true, false}, {{3, {2, 3, 33}}, 17, false, true},
    {{2, {9, 20}}, 7, true, true},     {{2, {1, 200}}, 70, true, false},
    {{2, {2, 530}}, 270, true, false}, {{2, {5, 300}}, 260, true, false},
};

/* Stores x, w with elements up to w_most, and bias if the case has one; returns their number. */
static int linear_operands(wf_case *c, const struct linear_case *t, double w_most, wf_value *in[3])
{
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    c->optional = t->mixed;
    in[0] = wf_case_x(c, t->x, -2, 2);
    in[1] = wf_case_typed(c, type, D(t->n, wf_dims_last(&t->x)), -w_most, w_most);
    in[2] = t->bias ? wf_case_typed(c, type, D(t->n), -2, 2) : NULL;
    return t->bias ? 3 : 2;
}

static void build_linear(wf_case *c)
{
    wf_value *in[3];
    linear_operands(c, &linear_cases[c->variant], 2, in);
    wf_case_node(c, wf_linear(c->g, in[0], in[1], in[2]));
}

/* Every case of linear with two activations; results are small, where activations are curved. */
static void build_linear_act(wf_case *c)
{
    wf_value *in[3];
    wf_attr_linear_act attr = {.act = c->variant % WF_ACT_COUNT};
    int nin = linear_operands(c, &linear_cases[c->variant % WF_LENGTH(linear_cases)], 0.25, in);
    wf_case_node(c, wf_node_add(c->g, WF_OP_linear_act, &attr, NULL, in, nin));
}

/* ---- Gradients of linear: dy [M, N], x [M, K], w [N, K] ---- */

static const struct gradient_case {
    int64_t m, n, k;
    bool mixed;
} gradient_cases[] = {
    {1, 1, 1, false},     {17, 33, 9, false},   {0, 5, 4, false},     {5, 0, 4, false},
    {4, 5, 0, false},     {70, 130, 65, false}, {9, 20, 7, true},     {600, 3, 20, false},
    {3, 600, 150, false}, {130, 64, 96, false}, {265, 72, 40, false}, {32, 256, 128, false},
};

static void build_matmul_act_grad(wf_case *c)
{
    const struct gradient_case *t = &gradient_cases[c->variant];
    wf_type type = t->mixed ? wf_case_other_float(c) : c->type;
    c->optional = t->mixed;
    wf_value *dy = wf_case_x(c, D(t->m, t->n), -2, 2);
    wf_value *w = wf_case_typed(c, type, D(t->n, t->k), -2, 2);
    WF_CASE_OP(c, "act=0", dy, w, wf_case_x(c, D(t->m, t->k), -4, 4));
}

static void build_linear_grad_weight(wf_case *c)
{
    const struct gradient_case *t = &gradient_cases[c->variant];
    wf_value *dy = wf_case_x(c, D(t->m, t->n), -2, 2);
    WF_CASE_OP(c, "", dy, wf_case_x(c, D(t->m, t->k), -2, 2));
}

/* ---- Quantized weights ---- */

static const struct block_case {
    int64_t m, k, n;
    bool transposed, bias; /* transposed: matmul with blocks along k; else along n */
    double most;           /* largest weight */
} block_cases[] = {
    {1, 256, 5, true, false, 2},    {2, 512, 133, true, true, 2},   {5, 768, 9, true, true, 0.02},
    {3, 70, 256, false, false, 2},  {1, 9, 512, false, false, 2},   {0, 256, 4, true, false, 2},
    {133, 256, 20, true, false, 2}, {4, 300, 768, false, false, 2},
};
#define BLOCK_CASES (WF_BLOCK_TYPES * WF_LENGTH(block_cases))

static wf_type block_type(const wf_case *c)
{
    return (wf_type)(WF_BLOCK_FIRST + c->variant % WF_BLOCK_TYPES);
}

static void build_matmul_blocks(wf_case *c)
{
    const struct block_case *t = &block_cases[c->variant / WF_BLOCK_TYPES];
    c->optional = true;
    wf_value *a = wf_case_x(c, D(t->m, t->k), -2, 2);
    wf_dims shape = t->transposed ? D(t->n, t->k) : D(t->k, t->n);
    wf_value *b = wf_case_blocks(c, block_type(c), shape, -t->most, t->most);
    wf_case_node(c, wf_matmul(c->g, a, b, false, t->transposed));
}

/* Stores x, w and bias if the case has one; returns their number. */
static int block_operands(wf_case *c, const struct block_case *t, double most, wf_value *in[3])
{
    int64_t k = t->transposed ? t->k : t->n, n = t->transposed ? t->n : t->k;
    c->optional = true;
    in[0] = wf_case_x(c, D(t->m, k), -2, 2);
    in[1] = wf_case_blocks(c, block_type(c), D(n, k), -most, most);
    in[2] = t->bias ? wf_case_x(c, D(n), -2, 2) : NULL;
    return t->bias ? 3 : 2;
}

static void build_linear_blocks(wf_case *c)
{
    const struct block_case *t = &block_cases[c->variant / WF_BLOCK_TYPES];
    wf_value *in[3];
    block_operands(c, t, t->most, in);
    wf_case_node(c, wf_linear(c->g, in[0], in[1], in[2]));
}

static void build_linear_act_blocks(wf_case *c)
{
    wf_value *in[3];
    wf_attr_linear_act attr = {.act = c->variant / WF_BLOCK_TYPES % WF_ACT_COUNT};
    int nin = block_operands(c, &block_cases[c->variant / WF_BLOCK_TYPES], 0.1, in);
    wf_case_node(c, wf_node_add(c->g, WF_OP_linear_act, &attr, NULL, in, nin));
}

const wf_case_row wf_cases_product[] = {
    WF_ROW(matmul, WF_LENGTH(matmul_cases), WF_TYPES_FLOAT),
    WF_ROW(linear, WF_LENGTH(linear_cases), WF_TYPES_FLOAT),
    WF_ROW(linear_act, 2 * WF_LENGTH(linear_cases), WF_TYPES_FLOAT),
    WF_ROW(matmul_act_grad, WF_LENGTH(gradient_cases), WF_TYPES_FLOAT),
    WF_ROW(linear_grad_weight, WF_LENGTH(gradient_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(matmul, blocks, BLOCK_CASES, WF_TYPES_FLOAT),
    WF_ROW_OF(linear, blocks, BLOCK_CASES, WF_TYPES_FLOAT),
    WF_ROW_OF(linear_act, blocks, BLOCK_CASES, WF_TYPES_FLOAT),
    {.build = NULL},
};

/* SPDX-License-Identifier: MIT */
/* cases_rows.c - cases of ops that select rows by index, with repeated indices. */
#include "selftest/case.h"

static const struct embed_case {
    wf_dims table, ids;
} embed_cases[] = {
    {{2, {5, 3}}, {1, {9}}}, {{2, {5, 7}}, {2, {2, 3}}}, {{2, {1, 4}}, {0, {0}}},
    {{2, {6, 4}}, {1, {0}}}, {{2, {6, 0}}, {1, {4}}},    {{2, {300, 64}}, {2, {20, 35}}},
};

static void build_embed(wf_case *c)
{
    const struct embed_case *t = &embed_cases[c->variant];
    wf_value *table = wf_case_x(c, t->table, -100, 100);
    wf_value *ids = wf_case_i32(c, t->ids, 0, (int32_t)t->table.d[0] - 1);
    wf_case_node(c, wf_embed(c->g, table, ids));
}

/* Rows of quantized blocks. */
static wf_value *block_table(wf_case *c)
{
    c->optional = true;
    return wf_case_blocks(c, c->type, D(7, c->variant > 0 ? 768 : 256), -3, 3);
}

static void build_embed_blocks(wf_case *c)
{
    wf_value *table = block_table(c);
    wf_case_node(c, wf_embed(c->g, table, wf_case_i32(c, D(2, 5), 0, 6)));
}

static void build_gather_rows_blocks(wf_case *c)
{
    wf_value *table = block_table(c);
    wf_case_node(c, wf_gather_rows(c->g, table, wf_case_i32(c, D(9), 0, 6)));
}

static const struct rows_case {
    /* The rows are x.d[0]; n of them are selected. */
    wf_dims x;
    int64_t n;
} rows_cases[] = {
    {{1, {5}}, 7},       {{2, {4, 3}}, 9}, {{3, {3, 2, 5}}, 4},   {{2, {4, 3}}, 0},
    {{2, {1, 3}}, 3},    {{2, {4, 0}}, 2}, {{2, {60, 130}}, 300}, {{2, {700, 3}}, 5000},
    {{2, {2, 5}}, 3000}, /* several blocks sort; indices repeat often */
};

static void build_gather_rows(wf_case *c)
{
    const struct rows_case *t = &rows_cases[c->variant];
    wf_value *x = wf_case_x(c, t->x, -100, 100);
    wf_value *rows = wf_case_i32(c, D(t->n), 0, (int32_t)t->x.d[0] - 1);
    wf_case_node(c, wf_gather_rows(c->g, x, rows));
}

static void build_scatter_add_rows(wf_case *c)
{
    const struct rows_case *t = &rows_cases[c->variant];
    wf_dims from = t->x;
    from.d[0] = t->n;
    wf_value *x = wf_case_x(c, t->x, -4, 4);
    wf_value *rows = wf_case_i32(c, D(t->n), 0, (int32_t)t->x.d[0] - 1);
    wf_case_node(c, wf_scatter_add_rows(c->g, x, rows, wf_case_x(c, from, -4, 4)));
}

const wf_case_row wf_cases_rows[] = {
    WF_ROW(embed, WF_LENGTH(embed_cases), WF_TYPES_PLAIN),
    WF_ROW(gather_rows, WF_LENGTH(rows_cases), WF_TYPES_PLAIN),
    WF_ROW(scatter_add_rows, WF_LENGTH(rows_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(embed, blocks, 2, WF_TYPES_BLOCK),
    WF_ROW_OF(gather_rows, blocks, 2, WF_TYPES_BLOCK),
    {.build = NULL},
};

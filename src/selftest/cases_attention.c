/* SPDX-License-Identifier: MIT */
/* cases_attention.c - cases of attention (packed and paged), its gradient, and kv_append. */
#include "selftest/case.h"

/* Sizes of the fixed arrays in the tables and below. */
#define MOST_SEQUENCES 5
#define MOST_ROWS 400
#define NARROW (WF_TYPE_BIT(WF_F16) | WF_TYPE_BIT(WF_BF16))

/* ---- Packed ---- */

static const struct attention_case {
    /* Tokens, query heads, KV heads, elements of a head of q and k, of v. */
    int64_t n, h, hk, d, dv;
    int sequences;
    /* [sequences + 1] first row of each sequence, and the end of the last; rows outside belong to
     * none. */
    int32_t start[MOST_SEQUENCES + 1];
    int32_t first; /* position of a sequence's first row; below 0: random positions */
    wf_attention_options o;
} attention_cases[] = {
    {5, 2, 2, 4, 4, 1, {0, 5}, 0, {0}},
    {5, 2, 2, 4, 4, 1, {0, 5}, 0, {.bidirectional = true}},
    {11, 4, 2, 8, 8, 3, {0, 4, 4, 11}, 0, {0}},
    {9, 4, 1, 5, 3, 2, {1, 4, 8}, 0, {0}},
    {9, 4, 1, 5, 7, 2, {1, 4, 8}, 0, {.bidirectional = true, .scale = 0.7}},
    {12, 2, 1, 4, 4, 2, {0, 7, 12}, 0, {.window = 3}},
    {12, 2, 1, 4, 4, 2, {0, 7, 12}, 0, {.bidirectional = true, .window = 2}},
    {10, 4, 2, 6, 6, 2, {0, 3, 10}, 0, {.softcap = 2}},
    {10, 2, 2, 6, 6, 2, {0, 3, 10}, 17, {.window = 4, .softcap = 3, .scale = 0.5}},
    {8, 2, 1, 4, 4, 2, {0, 5, 8}, -1, {0}},
    {8, 2, 1, 4, 4, 2, {0, 5, 8}, -1, {.window = 2}},
    {0, 2, 1, 4, 4, 1, {0, 0}, 0, {0}},
    {1, 1, 1, 1, 1, 1, {0, 1}, 0, {0}},
    {3, 2, 1, 4, 4, 0, {0}, 0, {0}},
    {3, 2, 1, 4, 0, 1, {0, 3}, 0, {0}},
    {9, 2, 2, 8, 8, 1, {0, 9}, 0, {.scale = 3}},
    {70, 4, 2, 16, 16, 2, {0, 33, 70}, 0, {0}},
    {100, 2, 1, 20, 24, 1, {0, 100}, 0, {.bidirectional = true}},
    /* around the edges of query tiles, key tiles and vectors */
    {128, 3, 1, 33, 17, 2, {0, 65, 128}, 0, {0}},
    {97, 2, 2, 65, 15, 1, {0, 97}, 0, {.window = 33}},
    {84, 1, 1, 8, 31, 4, {1, 16, 17, 33, 80}, -1, {.softcap = 2}},
    {66, 5, 5, 7, 9, 2, {0, 63, 66}, 3, {.softcap = 4, .window = 9}},
    {127, 1, 1, 64, 64, 1, {0, 127}, 0, {0}},
    /* sequences of equal length */
    {96, 2, 2, 64, 64, 2, {0, 48, 96}, 0, {.length = 48}},
    {105, 4, 2, 16, 16, 3, {0, 35, 70, 105}, 0, {.length = 35, .window = 20}},
    {84, 2, 1, 32, 32, 2, {0, 42, 84}, 0, {.length = 42, .bidirectional = true, .softcap = 2}},
    {90, 2, 1, 24, 32, 2, {0, 45, 90}, 0, {.length = 45, .bidirectional = true, .window = 17}},
    /* large heads */
    {70, 2, 1, 96, 80, 2, {0, 45, 68}, 0, {0}},
    {67, 1, 1, 128, 128, 1, {0, 67}, 0, {.length = 67}},
    {36, 2, 1, 160, 144, 2, {0, 17, 36}, 0, {0}},
    {20, 1, 1, 192, 200, 1, {1, 20}, 0, {.softcap = 3}},
    {35, 1, 1, 256, 251, 1, {0, 35}, 0, {.window = 19}},
    {5, 1, 1, 300, 270, 1, {0, 5}, 0, {0}},
};

/* Several tiles of tensor core kernels, which take narrow types and these head sizes. The first two
 * are small enough to be tested as views and with unread outputs. */
static const struct attention_case tile_cases[] = {
    {15, 1, 1, 64, 64, 2, {1, 8, 15}, 0, {0}},
    {7, 1, 1, 128, 128, 1, {0, 7}, 0, {.length = 7}},
    {257, 2, 1, 64, 64, 4, {0, 1, 130, 130, 257}, 0, {0}},
    {258, 1, 1, 64, 64, 2, {0, 129, 258}, 0, {.length = 129, .bidirectional = true}},
    {200, 2, 1, 128, 128, 2, {0, 197, 200}, 0, {.bidirectional = true, .window = 40}},
    {270, 1, 1, 128, 128, 1, {0, 270}, 0, {.length = 270, .window = 130}},
    {331, 3, 1, 64, 64, 3, {5, 70, 71, 257}, 0, {0}}, /* tokens in no sequence, three heads */
    {385, 4, 2, 128, 128, 2, {130, 200, 384}, 0, {.window = 100}},
    /* Later scores far exceed those of the first tile. Not for gradients: some are too small for
     * bf16. */
    {193, 1, 1, 64, 64, 1, {0, 193}, 0, {.window = 65, .scale = 4}},
    {257, 1, 1, 128, 128, 1, {0, 257}, 0, {.window = 129, .scale = 4}},
};
/* The last entries of tile_cases, which attention_grad leaves out. */
enum { STEEP_CASES = 2 };

static wf_value *starts(wf_case *c, const int32_t *start, int sequences)
{
    return wf_case_i32_given(c, D(sequences + 1), start);
}

static wf_value *positions(wf_case *c, const struct attention_case *t)
{
    int32_t p[MOST_ROWS] = {0};
    for (int s = 0; s < t->sequences; s++)
        for (int32_t i = t->start[s]; i < t->start[s + 1]; i++)
            p[i] = t->first < 0 ? (int32_t)wf_rng_below(&c->rng, 6) : t->first + i - t->start[s];
    return wf_case_i32_given(c, D(t->n), p);
}

/* q, k, v, seq_start, positions */
static void packed(wf_case *c, const struct attention_case *t, wf_value *in[5])
{
    in[0] = wf_case_x(c, D(t->n, t->h, t->d), -1.5, 1.5);
    in[1] = wf_case_x(c, D(t->n, t->hk, t->d), -1.5, 1.5);
    in[2] = wf_case_x(c, D(t->n, t->hk, t->dv), -1.5, 1.5);
    in[3] = starts(c, t->start, t->sequences);
    in[4] = positions(c, t);
}

static void attend(wf_case *c, const struct attention_case *t)
{
    wf_value *x[5];
    packed(c, t, x);
    /* Weights near 0 and 1: finite differences cancel. attention_grad has its own bounds. */
    c->no_gradient = t->o.scale > 1;
    wf_case_node(c, wf_attention(c->g, x[0], x[1], x[2], x[3], x[4], &t->o));
}

static void build_attention(wf_case *c)
{
    attend(c, &attention_cases[c->variant]);
}

static void build_attention_tiles(wf_case *c)
{
    attend(c, &tile_cases[c->variant]);
}

static void attend_grad(wf_case *c, const struct attention_case *t)
{
    wf_value *x[8];
    x[0] = wf_case_x(c, D(t->n, t->h, t->dv), -1.5, 1.5);
    packed(c, t, &x[1]);
    wf_value *o = wf_attention(c->g, x[1], x[2], x[3], x[4], x[5], &t->o);
    x[6] = wf_case_frozen(c, o);
    x[7] = wf_case_frozen(c, wf_value_output(o, 1));
    if (o)
        wf_case_node(c, wf_node_add(c->g, c->row->op, o->node->attr, NULL, x, 8));
}

static void build_attention_grad(wf_case *c)
{
    attend_grad(c, &attention_cases[c->variant]);
}

static void build_attention_grad_tiles(wf_case *c)
{
    attend_grad(c, &tile_cases[c->variant]);
}

/* ---- Over page pools ---- */

#define NONE -77 /* a table entry that no kernel may read */

static const struct paged_case {
    /* As in attention_case. */
    int64_t n, h, hk, d, dv;
    int64_t pool, page, pages; /* pages of the pool, rows of a page, pages of a sequence */
    int sequences;
    int32_t start[MOST_SEQUENCES + 1];
    int32_t table[16]; /* [sequences][pages] */
    /* Positions of each sequence in the pool, its rows in this call included. */
    int32_t length[MOST_SEQUENCES];
    bool mixed; /* the pool has another type */
    wf_attention_options o;
} paged_cases[] = {
    /* one token of each sequence */
    {3, 4, 2, 8, 8, 7, 4, 2, 3, {0, 1, 2, 3}, {5, 1, 3, NONE, 0, 6}, {6, 2, 8}, false, {0}},
    /* the last rows of a prompt whose first rows are already in the pool */
    {7, 2, 1, 4, 4, 6, 3, 3, 2, {0, 3, 7}, {4, 0, 5, 2, 1, NONE}, {9, 4}, false, {0}},
    /* an empty sequence, a sequence without keys, and rows of no sequence */
    {5,
     2,
     2,
     4,
     6,
     4,
     2,
     2,
     3,
     {1, 3, 3, 4},
     {3, NONE, NONE, NONE, NONE, NONE},
     {2, 0, 0},
     false,
     {0}},
    {4, 2, 2, 4, 4, 5, 2, 3, 2, {0, 2, 4}, {3, 1, 4, 0, 2, NONE}, {6, 3}, false, {.window = 2}},
    {4,
     2,
     1,
     5,
     5,
     5,
     2,
     3,
     2,
     {0, 2, 4},
     {3, 1, 4, 0, 2, NONE},
     {5, 4},
     false,
     {.bidirectional = true, .softcap = 2}},
    {3,
     4,
     1,
     4,
     3,
     9,
     1,
     4,
     2,
     {0, 1, 3},
     {8, 2, 5, NONE, 1, 0, 7, 3},
     {3, 4},
     false,
     {.scale = 0.4}},
    {4, 2, 2, 6, 6, 6, 4, 3, 2, {0, 1, 4}, {5, 1, 3, 0, 2, NONE}, {11, 7}, true, {0}},
    {0, 2, 1, 4, 4, 2, 2, 1, 0, {0}, {0}, {0}, false, {0}},
    {40, 4, 2, 16, 16, 9, 16, 4, 2, {0, 30, 40}, {8, 1, 6, 0, 3, 2, 7, 5}, {64, 49}, false, {0}},
    /* few queries, many keys; groups of 3, 1, 2 and 5 heads */
    {2, 3, 1, 20, 24, 9, 100, 4, 2, {0, 1, 2}, {8, 1, 6, 0, 3, 2, 7, 5}, {400, 257}, false, {0}},
    {2, 2, 2, 16, 65, 3, 256, 1, 2, {0, 1, 2}, {2, 0}, {256, 1}, true, {0}},
    {3, 4, 2, 9, 33, 6, 90, 3, 2, {0, 1, 3}, {5, 1, 3, 0, 2, 4}, {270, 129}, true, {.window = 40}},
    {1, 5, 1, 64, 8, 2, 300, 1, 1, {0, 1}, {1}, {300}, false, {.softcap = 3}},
    /* a prompt in several chunks, next to a sequence in decode */
    {91,
     2,
     1,
     17,
     16,
     6,
     33,
     4,
     2,
     {0, 90, 91},
     {4, 1, 3, 0, 2, 5, NONE, NONE},
     {132, 64},
     true,
     {0}},
    /* many keys for a few rows; head sizes that are not a multiple of a warp */
    {3, 4, 2, 64, 64, 5, 400, 2, 2, {0, 1, 3}, {3, 1, 4, 0}, {700, 555}, false, {0}},
    {2, 2, 1, 136, 200, 3, 300, 2, 1, {0, 2}, {2, 0}, {577}, false, {.window = 500}},
};

/* The rows of a sequence are its last positions; other rows have position 0. */
static wf_value *last_positions(wf_case *c, const struct paged_case *t)
{
    int32_t p[MOST_ROWS] = {0};
    for (int s = 0; s < t->sequences; s++)
        for (int32_t i = t->start[s]; i < t->start[s + 1]; i++) {
            int32_t position = t->length[s] - (t->start[s + 1] - i);
            p[i] = position > 0 ? position : 0;
        }
    return wf_case_i32_given(c, D(t->n), p);
}

static wf_type pool_type(wf_case *c, const struct paged_case *t)
{
    c->optional = t->mixed;
    return t->mixed ? wf_case_other_float(c) : c->type;
}

static void build_paged(wf_case *c)
{
    const struct paged_case *t = &paged_cases[c->variant];
    wf_type type = pool_type(c, t);
    c->no_gradient = true;
    wf_value *q = wf_case_x(c, D(t->n, t->h, t->d), -1.5, 1.5);
    wf_value *k = wf_case_typed(c, type, D(t->pool, t->page, t->hk, t->d), -1.5, 1.5);
    wf_value *v = wf_case_typed(c, type, D(t->pool, t->page, t->hk, t->dv), -1.5, 1.5);
    wf_value *start = starts(c, t->start, t->sequences), *p = last_positions(c, t);
    wf_value *table = wf_case_i32_given(c, D(t->sequences, t->pages), t->table);
    wf_value *length = wf_case_i32_given(c, D(t->sequences), t->length);
    wf_case_node(c, wf_attention_paged(c->g, q, k, v, start, p, table, length, &t->o));
}

/* A sequence needs room for its rows, so cases without keys are skipped. */
static void build_kv_append(wf_case *c)
{
    const struct paged_case *t = &paged_cases[c->variant];
    wf_type type = pool_type(c, t);
    wf_value *pool = wf_case_state(c, c->type, D(t->pool, t->page, t->hk, t->d), -2, 2);
    wf_value *x = wf_case_typed(c, type, D(t->n, t->hk, t->d), -2, 2);
    int32_t start[MOST_SEQUENCES + 1];
    for (int s = 0; s <= t->sequences; s++)
        start[s] = s > 0 && t->length[s - 1] == 0 ? start[s - 1] : t->start[s];
    wf_value *seq = starts(c, start, t->sequences), *p = last_positions(c, t);
    wf_value *table = wf_case_i32_given(c, D(t->sequences, t->pages), t->table);
    wf_case_node(c, wf_kv_append(c->g, pool, x, seq, p, table));
}

/* ---- Quantized page pools ---- */

/* d and dv count blocks. */
static const struct paged_case block_cases[] = {
    {3, 4, 2, 1, 1, 7, 4, 2, 3, {0, 1, 2, 3}, {5, 1, 3, NONE, 0, 6}, {6, 2, 8}, false, {0}},
    {4, 2, 1, 2, 1, 5, 2, 3, 2, {0, 2, 4}, {3, 1, 4, 0, 2, NONE}, {5, 4}, true, {.window = 2}},
    {5, 3, 1, 1, 3, 3, 16, 2, 2, {1, 4, 5}, {2, 0, 1, NONE}, {20, 16}, false, {.softcap = 3}},
    /* prompts in tiles; decode over several chunks, with groups of 1 to 9 heads */
    {40, 4, 2, 2, 2, 9, 16, 4, 2, {0, 30, 40}, {8, 1, 6, 0, 3, 2, 7, 5}, {64, 49}, true, {0}},
    {2, 1, 1, 2, 4, 9, 80, 4, 2, {0, 1, 2}, {8, 1, 6, 0, 3, 2, 7, 5}, {300, 257}, false, {0}},
    {1, 9, 1, 4, 2, 2, 288, 1, 1, {0, 1}, {1}, {288}, false, {.bidirectional = true}},
    {2, 4, 2, 3, 3, 6, 90, 3, 2, {0, 1, 2}, {5, 1, 3, 0, 2, 4}, {270, 129}, true, {.window = 40}},
};

/* q and x are f32, or bf16 where t->mixed. */
static struct paged_case blocks_of(wf_case *c, wf_type *x)
{
    struct paged_case t = block_cases[c->variant];
    const int64_t block = wf_type_get(c->type)->block;
    t.d *= block;
    t.dv *= block;
    *x = t.mixed ? WF_BF16 : WF_F32;
    c->no_gradient = true;
    return t;
}

static void build_attention_blocks(wf_case *c)
{
    wf_type type;
    const struct paged_case t = blocks_of(c, &type);
    wf_value *q = wf_case_typed(c, type, D(t.n, t.h, t.d), -1.5, 1.5);
    wf_value *k = wf_case_blocks(c, c->type, D(t.pool, t.page, t.hk, t.d), -1.5, 1.5);
    wf_value *v = wf_case_blocks(c, c->type, D(t.pool, t.page, t.hk, t.dv), -1.5, 1.5);
    wf_value *start = starts(c, t.start, t.sequences), *p = last_positions(c, &t);
    wf_value *table = wf_case_i32_given(c, D(t.sequences, t.pages), t.table);
    wf_value *length = wf_case_i32_given(c, D(t.sequences), t.length);
    wf_case_node(c, wf_attention_paged(c->g, q, k, v, start, p, table, length, &t.o));
}

static void build_kv_append_blocks(wf_case *c)
{
    wf_type type;
    const struct paged_case t = blocks_of(c, &type);
    c->optional = true;
    wf_value *pool = wf_case_block_state(c, c->type, D(t.pool, t.page, t.hk, t.d), -2, 2);
    wf_value *x = wf_case_typed(c, type, D(t.n, t.hk, t.d), -2, 2);
    wf_value *seq = starts(c, t.start, t.sequences), *p = last_positions(c, &t);
    wf_value *table = wf_case_i32_given(c, D(t.sequences, t.pages), t.table);
    wf_case_node(c, wf_kv_append(c->g, pool, x, seq, p, table));
}

/* Types whose blocks decode without rounding. The vector kernels leave q4_0 to the reference. */
#define POOLS (WF_TYPE_BIT(WF_Q8_0) | WF_TYPE_BIT(WF_Q4_0))

const wf_case_row wf_cases_attention[] = {
    WF_ROW(attention, WF_LENGTH(attention_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(attention, tiles, WF_LENGTH(tile_cases), NARROW),
    {.op = WF_OP_attention,
     .variants = WF_LENGTH(paged_cases),
     .build = build_paged,
     .types = WF_TYPES_FLOAT,
     .label = "paged"},
    WF_ROW_OF(attention, blocks, WF_LENGTH(block_cases), POOLS),
    WF_ROW(attention_grad, WF_LENGTH(attention_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(attention_grad, tiles, WF_LENGTH(tile_cases) - STEEP_CASES, NARROW),
    WF_ROW(kv_append, WF_LENGTH(paged_cases), WF_TYPES_FLOAT),
    WF_ROW_OF(kv_append, blocks, WF_LENGTH(block_cases), POOLS),
    {.build = NULL},
};

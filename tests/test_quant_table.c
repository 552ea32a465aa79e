/* SPDX-License-Identifier: MIT */
/*
 * test_quant_table.c - every row of weft_quant.def, checked from the table alone: sizes, names and
 * values, the round-trip error, and a small model of that type that generates the same text on two
 * devices.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "graph/quant/block.h"
#include "model/model.h"
#include "model/recipe.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

typedef struct {
    wf_type type;
    const char *upper, *name;
    int block, bytes, gguf, file_type;
} row;

#define ROW(A, NAME, name, word, block, bytes, gguf, file_type, ...) \
    {WF_##NAME, #NAME, #name, block, bytes, gguf, file_type},
static const row rows[] = {WF_QUANT_TABLE(ROW, 0)};
#define ROWS ((int)(sizeof rows / sizeof *rows))

static void test_facts(void **state)
{
    (void)state;
    assert_int_equal(ROWS, WF_BLOCK_TYPES);
    for (int i = 0; i < ROWS; i++) {
        const row *r = &rows[i];
        const wf_type_info *info = wf_type_get(r->type);
        assert_int_equal(r->type, WF_BLOCK_FIRST + i);
        assert_int_equal(info->kind, WF_KIND_BLOCK);
        assert_int_equal(info->block, r->block);
        assert_int_equal(wf_type_bytes(r->type, 3 * r->block), 3 * r->bytes);
        assert_int_equal(wf_type_bytes(r->type, r->block + 1), 0);
        assert_int_equal(r->block % wf_block_part(r->type), 0);
        assert_string_equal(wf_type_name(r->type), r->name);
        assert_int_equal(wf_type_from_name(r->name), r->type);
        assert_true(wf_type_bit(r->type) & WF_TYPES_BLOCK);
        assert_false(wf_type_bit(r->type) & WF_TYPES_PLAIN);
    }
}

static void test_unique(void **state)
{
    (void)state;
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(rows[i].name, rows[k].name);
            assert_string_not_equal(rows[i].upper, rows[k].upper);
            assert_int_not_equal(rows[i].gguf, rows[k].gguf);
            assert_int_not_equal(rows[i].file_type, rows[k].file_type);
        }
}

/* Every type is a recipe, and its fallbacks end at a type that fits any matrix. */
static void test_recipes(void **state)
{
    for (int i = 0; i < ROWS; i++) {
        const wf_recipe *recipe;
        wt_ok(*state, wf_recipe_find(*state, rows[i].name, &recipe));
        assert_int_equal(recipe->type, rows[i].type);
        assert_int_equal(recipe->file_type, rows[i].file_type);
        wf_type type = rows[i].type;
        for (int k = 0; wf_type_get(type)->kind == WF_KIND_BLOCK; k++) {
            assert_true(k < ROWS);
            type = wf_recipe_stand_in(type);
        }
        assert_true(wf_type_bit(type) & WF_TYPES_FLOAT);
    }
}

/* Normal elements, b bits each: rounding to 2^b steps loses a multiple of 2^-b. */
static void test_round_trip(void **state)
{
    enum { COUNT = 64 * 256 };
    static float x[COUNT], y[COUNT];
    static uint8_t blocks[2 * COUNT];
    (void)state;
    wf_random_normal(wt_seed(), 0, 0, 1, x, COUNT);
    for (int i = 0; i < ROWS; i++) {
        double sum = 0, bits = 8.0 * rows[i].bytes / rows[i].block;
        wf_convert_from_f32(rows[i].type, x, blocks, COUNT);
        wf_convert_to_f32(rows[i].type, blocks, y, COUNT);
        for (int k = 0; k < COUNT; k++)
            sum += ((double)y[k] - x[k]) * ((double)y[k] - x[k]);
        double error = sqrt(sum / COUNT) * exp2(bits);
        print_message("%s: error %.2f x 2^-%.2f\n", rows[i].name, error, bits);
        assert_true(error < 3);
    }
}

/* Two devices generate the same text with a model of the type. */
static void test_models(void **state)
{
    enum { TOKENS = 8 };
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_reference r;
    wt_scratch_make(&s);
    wt_reference_read("llama", &r);
    for (int i = 0; i < ROWS; i++) {
        const wf_convert_options options = {.type = rows[i].name, .pure = true};
        char file[600], name[32];
        int32_t ids[2][TOKENS];
        wf_model *m;
        snprintf(name, sizeof name, "%s.gguf", rows[i].name);
        snprintf(file, sizeof file, "%s", wt_path(&s, name));
        wt_ok(ctx, wf_model_open(ctx, r.path, &m));
        wt_ok(ctx, wf_model_convert(m, ctx, file, &options));
        wf_model_close(m);
        wt_ok(ctx, wf_model_open(ctx, file, &m));
        bool found = false;
        for (int w = 0; w < m->weights; w++)
            found |= m->weight[w].type == rows[i].type &&
                     strcmp(m->weight[w].source->from->type_name, rows[i].upper) == 0;
        assert_true(found);
        wf_model_close(m);
        for (int d = 0; d < 2; d++) {
            wt_talker t = wt_talker_open(ctx, d ? "check" : "cpu:1", file, NULL);
            wt_greedy(ctx, t.engine, r.prompt, r.prompt_count, ids[d], TOKENS);
            wt_talker_close(&t);
        }
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    }
    wt_reference_free(&r);
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_facts),      wt_test(test_unique), wt_test(test_recipes),
        wt_test(test_round_trip), wt_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

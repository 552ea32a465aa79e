/* SPDX-License-Identifier: MIT */
/*
 * test_recipe.c - recipes choose the types that llama.cpp's llama-quantize chooses, for every matrix
 * of models of several shapes. tests/fixtures/make_recipes.py describes and records the fixture.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"
#include "model/recipe.h"
#include "support.h"

enum { TEXT = 96 };

typedef struct {
    char name[TEXT];
    wf_config config;
} model;

static wf_type type_of(char letter)
{
    static const struct {
        char letter;
        wf_type type;
    } letters[] = {
        {'2', WF_Q2_K}, {'3', WF_Q3_K},   {'4', WF_Q4_K},   {'5', WF_Q5_K}, {'6', WF_Q6_K},
        {'8', WF_Q8_0}, {'a', WF_Q4_0},   {'b', WF_Q4_1},   {'c', WF_Q5_0}, {'d', WF_Q5_1},
        {'h', WF_F16},  {'n', WF_IQ4_NL}, {'x', WF_IQ4_XS},
    };
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].letter == letter)
            return letters[i].type;
    fail_msg("unknown letter '%c'", letter);
    return WF_F32;
}

/* One line "types" of the fixture. */
typedef struct {
    char model[TEXT], recipe[TEXT], weighed[TEXT];
    char embedding, output, other;       /* output: '-' if tied */
    char v[TEXT], out[TEXT], down[TEXT]; /* a letter per layer */
} row;

typedef struct {
    const model *m;
    const wf_recipe *recipe;
    wf_recipe_use use;
} choice;

static int checked;

static void check(const choice *c, const char *name, int64_t columns, char letter)
{
    wf_type got = wf_recipe_type(c->recipe, &c->use, name, columns), want = type_of(letter);
    if (got != want)
        fail_msg("%s, %s, %s: %s, llama.cpp has %s", c->m->name, c->recipe->name, name,
                 wf_type_name(got), wf_type_name(want));
    checked++;
}

static void check_layer(const choice *c, int layer, const row *r)
{
    const wf_config *config = &c->m->config;
    const bool fused = config->family->fused_qkv;
    const struct {
        const char *name;
        int64_t columns;
        char letter;
    } parts[] = {
        {fused ? "attn_qkv" : "attn_v", config->width, r->v[layer]},
        {"attn_output", config->width, r->out[layer]},
        {"ffn_down", config->all.hidden, r->down[layer]},
        {"ffn_up", config->width, r->other},
        {"attn_q", config->width, r->other},
        {"attn_k", config->width, r->other},
        {"ffn_gate", config->width, r->other},
    };
    for (int i = 0; i < (fused ? 4 : 7); i++) {
        char name[TEXT];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, parts[i].name);
        check(c, name, parts[i].columns, parts[i].letter);
    }
}

static void check_row(wf_ctx *ctx, const model *m, const row *r, bool weighed)
{
    choice c = {.m = m, .use = {.config = &m->config, .weighed = weighed}};
    wt_ok(ctx, wf_recipe_find(ctx, r->recipe, &c.recipe));
    check(&c, "token_embd.weight", m->config.width, r->embedding);
    assert_int_equal(r->output == '-', m->config.tied);
    if (!m->config.tied)
        check(&c, "output.weight", m->config.width, r->output);
    assert_int_equal(strlen(r->v), m->config.layers);
    for (int i = 0; i < m->config.layers; i++)
        check_layer(&c, i, r);
}

static bool read_model(wf_ctx *ctx, const char *line, model *m)
{
    char family[TEXT];
    int layers, heads, kv, width, hidden, tied;
    if (sscanf(line, "model %95s %95s %d %d %d %d %d %d", m->name, family, &layers, &heads, &kv,
               &width, &hidden, &tied) != 8)
        return false;
    m->config = (wf_config){.layers = layers,
                            .all = {.heads = heads, .kv_heads = kv, .hidden = hidden},
                            .width = width,
                            .tied = tied};
    wt_ok(ctx, wf_family_find(ctx, "the fixture", family, &m->config.family));
    return true;
}

static void test_choices_of_llama_cpp(void **state)
{
    char line[4 * TEXT];
    model m = {0};
    FILE *f = fopen("tests/fixtures/recipes.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        row r;
        if (read_model(*state, line, &m))
            continue;
        assert_int_equal(sscanf(line, "types %95s %95s %95s %c %c %c %95s %95s %95s", r.model,
                                r.recipe, r.weighed, &r.embedding, &r.output, &r.other, r.v, r.out,
                                r.down),
                         9);
        assert_string_equal(r.model, m.name);
        for (const char *w = r.weighed; *w; w++)
            check_row(*state, &m, &r, *w == '1');
    }
    fclose(f);
    print_message("%d choices\n", checked);
    assert_true(checked > 10000);
}

/* general.file_type of llama.cpp (llama_ftype of llama.h). */
static void test_file_types(void **state)
{
    static const struct {
        const char *name;
        int file_type;
    } rows[] = {
        {"f32", 0},     {"f16", 1},     {"Q4_0", 2},    {"Q4_1", 3},    {"Q8_0", 7},
        {"Q5_0", 8},    {"Q5_1", 9},    {"Q2_K", 10},   {"Q3_K_S", 11}, {"Q3_K_M", 12},
        {"Q3_K_L", 13}, {"Q4_K_S", 14}, {"Q4_K_M", 15}, {"Q5_K_S", 16}, {"Q5_K_M", 17},
        {"Q6_K", 18},   {"Q2_K_S", 21}, {"IQ4_NL", 25}, {"IQ4_XS", 30}, {"bf16", 32},
        {"q3_K", 12},   {"q4_K", 15},   {"q5_K", 17},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wf_recipe *r;
        wt_ok(*state, wf_recipe_find(*state, rows[i].name, &r));
        assert_int_equal(r->file_type, rows[i].file_type);
    }
}

/* Without rules, and for rows that no block divides. */
static void test_other_types(void **state)
{
    static const wf_config config = {
        .family = &wf_family_llama, .layers = 32, .all = {.heads = 8, .kv_heads = 8}};
    const wf_recipe_use pure = {.config = &config, .pure = true}, mixed = {.config = &config};
    const wf_recipe *medium, *half, *none;
    wt_ok(*state, wf_recipe_find(*state, "q4_k_m", &medium));
    wt_ok(*state, wf_recipe_find(*state, "F16", &half));
    assert_int_equal(wf_recipe_type(medium, &pure, "blk.0.attn_v.weight", 256), WF_Q4_K);
    assert_int_equal(wf_recipe_type(medium, &pure, "output.weight", 256), WF_Q4_K);
    assert_int_equal(wf_recipe_type(medium, &pure, "output.weight", 96), WF_Q5_0);
    assert_int_equal(wf_recipe_type(medium, &mixed, "blk.0.ffn_down.weight", 40), WF_F16);
    assert_int_equal(wf_recipe_type(medium, &mixed, "position_embd.weight", 256), WF_F32);
    assert_int_equal(wf_recipe_type(half, &mixed, "output.weight", 256), WF_F16);
    wt_fails(*state, wf_recipe_find(*state, "q9_K", &none), WF_ERR_USAGE, "use one of: f32, f16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_choices_of_llama_cpp),
        wt_test(test_file_types),
        wt_test(test_other_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

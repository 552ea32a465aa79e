/* SPDX-License-Identifier: MIT */
/*
 * test_families.c - the GGUF files of each family, compared with those of llama.cpp's converter.
 *
 * FIXTURE/gguf.json (tests/fixtures/make_gguf.py) has the keys and tensors that llama.cpp writes for
 * a checkpoint. Weft must write the same ones, and must read a file that has llama.cpp's keys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

/* Differences from llama.cpp's files that Weft intends. Keys of the architecture lack its name. */
static const struct {
    const char *fixture; /* NULL: every fixture */
    const char *key;
    bool written; /* only Weft writes it; else only llama.cpp does */
    const char *why;
} intended[] = {
    {NULL, "general.type", true, "gguf.json omits it"},
    {NULL, "general.name", true, "gguf.json omits it"},
    {NULL, "general.quantization_version", true, "llama.cpp writes it with quantized types only"},
    {"mistral3", "weft.rope_parameters", true, "f32 keys round beta_slow"},
    {"mistral3-text", "weft.rope_parameters", true, "f32 keys round beta_slow"},
    {"phi3-short", "weft.rope_parameters", true, "an f32 key rounds the attention factor"},
    {"phi3-long", "weft.rope_parameters", true, "an f32 key rounds the attention factor"},
    {"olmo3", "rope.scaling.yarn_attn_factor", false,
     "llama.cpp does not read it; Weft writes attn_factor if it is not 1"},
    {"cohere2", "rope.scaling.type", false, "\"none\": the same as no key"},
    {"cohere2", "attention.sliding_window_pattern", true, "llama.cpp knows one pattern only"},
};

/* ---- A converted checkpoint and its reference ---- */

typedef struct {
    wf_ctx *ctx;
    const char *name;
    wt_scratch scratch;
    wf_arena arena;
    const wf_json_node *keys, *tensors; /* of gguf.json */
    wf_gguf *made;                      /* by Weft */
} pair;

static void open_pair(pair *p, wf_ctx *ctx, const char *name)
{
    char path[256], *text;
    size_t bytes;
    wf_model *m;
    wf_json_node *root;
    *p = (pair){.ctx = ctx, .name = name};
    wt_scratch_make(&p->scratch);
    wf_arena_init(&p->arena, ctx);
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/gguf.json", name);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    wt_ok(ctx, wf_json_parse(&p->arena, path, text, bytes, &root));
    wf_mem_free(ctx, text);
    p->keys = wf_json_get(root, "keys");
    p->tensors = wf_json_get(root, "tensors");
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    wt_ok(ctx, wf_model_convert(m, ctx, wt_path(&p->scratch, "made.gguf"),
                                &(wf_convert_options){.type = "f32"}));
    wf_model_close(m);
    wt_ok(ctx, wf_gguf_open(ctx, wt_path(&p->scratch, "made.gguf"), &p->made));
}

static void close_pair(pair *p)
{
    wf_gguf_close(p->made);
    wf_arena_free(&p->arena);
    wt_scratch_remove(&p->scratch);
}

/* ---- Keys ---- */

static const char *const kinds[WF_GGUF_KINDS] = {
    [WF_GGUF_U32] = "u32",   [WF_GGUF_I32] = "i32",    [WF_GGUF_F32] = "f32",
    [WF_GGUF_BOOL] = "bool", [WF_GGUF_STRING] = "str",
};

/* Returns whether element i of a pair has this value. */
static bool same_value(const wf_gguf_pair *g, wf_gguf_kind kind, uint64_t i,
                       const wf_json_node *want)
{
    uint32_t bits = 0;
    float single;
    if (kind == WF_GGUF_STRING)
        return want->kind == WF_JSON_STRING && g->text[i].len == want->bytes &&
               memcmp(g->text[i].bytes, want->string, want->bytes) == 0;
    if (kind == WF_GGUF_BOOL)
        return want->kind == WF_JSON_BOOL && g->data[i] == want->boolean;
    memcpy(&bits, g->data + 4 * i, 4);
    memcpy(&single, &bits, 4);
    return want->kind == WF_JSON_NUMBER &&
           (kind == WF_GGUF_F32 ? (float)want->number == single : want->integer == (int64_t)bits);
}

/* `want` is [type, value]; the type of an array is in a list. */
static bool same_pair(const wf_gguf_pair *g, const wf_json_node *want)
{
    const wf_json_node *type = &want->child[0], *value = &want->child[1];
    const bool array = type->kind == WF_JSON_ARRAY;
    const wf_gguf_kind kind = array ? g->element : g->kind;
    if (array != (g->kind == WF_GGUF_ARRAY) || !kinds[kind] ||
        !wf_json_is(array ? &type->child[0] : type, kinds[kind]) ||
        (array && g->count != value->count))
        return false;
    bool same = true;
    for (uint64_t i = 0; i < g->count; i++)
        same &= same_value(g, kind, i, array ? &value->child[i] : value);
    return same;
}

/* Marks the row of `intended` as met. Returns false if there is none. */
static bool is_intended(const pair *p, const char *key, bool written, bool *met)
{
    const char *dot = strchr(key, '.');
    bool own = strncmp(key, "general.", 8) != 0 && strncmp(key, "weft.", 5) != 0;
    for (size_t i = 0; i < sizeof intended / sizeof *intended; i++)
        if (intended[i].written == written &&
            (!intended[i].fixture || strcmp(intended[i].fixture, p->name) == 0) &&
            strcmp(intended[i].key, own ? dot + 1 : key) == 0) {
            met[i] = true;
            return true;
        }
    return false;
}

static void compare_keys(const pair *p, bool *met)
{
    for (int i = 0; i < p->made->pairs; i++) {
        const wf_gguf_pair *g = &p->made->pair[i];
        const wf_json_node *want = wf_json_get(p->keys, g->key);
        if (strncmp(g->key, "tokenizer.", 10) == 0 || strncmp(g->key, "general.sampling.", 17) == 0)
            continue;
        if (!want && !is_intended(p, g->key, true, met))
            fail_msg("%s: llama.cpp does not write %s", p->name, g->key);
        if (want && !same_pair(g, want))
            fail_msg("%s: %s has another type or value", p->name, g->key);
    }
    for (size_t i = 0; i < p->keys->count; i++) {
        const char *key = p->keys->child[i].key;
        if (!wf_gguf_find(p->made, key) && !is_intended(p, key, false, met))
            fail_msg("%s: Weft does not write %s", p->name, key);
    }
}

/* ---- Tensors ---- */

static void compare_tensors(const pair *p)
{
    assert_int_equal(p->made->store.count, p->tensors->count);
    for (size_t i = 0; i < p->tensors->count; i++) {
        const wf_json_node *want = &p->tensors->child[i], *dims = &want->child[1];
        const wf_stored *t = wf_store_find(&p->made->store, want->key);
        char hash[17];
        if (!t)
            fail_msg("%s: Weft does not write %s", p->name, want->key);
        snprintf(hash, sizeof hash, "%016llx",
                 (unsigned long long)wf_hash_fnv1a(WF_FNV1A, t->data, t->bytes));
        bool same = t->type == WF_F32 && (size_t)t->shape.n == dims->count;
        for (int k = 0; same && k < t->shape.n; k++) /* dims are fastest first */
            same = t->shape.d[t->shape.n - 1 - k] == dims->child[k].integer;
        if (!same || !wf_json_is(&want->child[2], hash))
            fail_msg("%s: %s has another shape or other values", p->name, want->key);
    }
}

static void files_of_llama_cpp(void **state)
{
    bool met[sizeof intended / sizeof *intended] = {0};
    for (int i = 0; i < wt_later_count(); i++) {
        pair p;
        open_pair(&p, *state, wt_later_models[i]);
        compare_keys(&p, met);
        compare_tensors(&p);
        close_pair(&p);
    }
    for (size_t i = 0; i < sizeof intended / sizeof *intended; i++)
        if (!met[i])
            fail_msg("no fixture has the intended difference %s", intended[i].key);
}

/* ---- Reading llama.cpp's keys ---- */

static wf_gguf_kind kind_of(const wf_json_node *type)
{
    for (int i = 0; i < WF_GGUF_KINDS; i++)
        if (kinds[i] && wf_json_is(type, kinds[i]))
            return (wf_gguf_kind)i;
    fail_msg("unknown type of a key");
    return WF_GGUF_U32;
}

static void write_bools(wf_ctx *ctx, wf_gguf_writer *w, const wf_json_node *key)
{
    uint8_t values[64];
    const wf_json_node *list = &key->child[1];
    assert_true(list->count <= sizeof values && kind_of(&key->child[0].child[0]) == WF_GGUF_BOOL);
    for (size_t i = 0; i < list->count; i++)
        values[i] = list->child[i].boolean;
    wt_ok(ctx, wf_gguf_write_array(w, key->key, WF_GGUF_BOOL, values, list->count));
}

static void write_key(wf_ctx *ctx, wf_gguf_writer *w, const wf_json_node *key)
{
    const wf_json_node *type = &key->child[0], *value = &key->child[1];
    if (type->kind == WF_JSON_ARRAY) {
        write_bools(ctx, w, key);
        return;
    }
    switch (kind_of(type)) {
    case WF_GGUF_F32: wt_ok(ctx, wf_gguf_write_float(w, key->key, value->number)); break;
    case WF_GGUF_BOOL: wt_ok(ctx, wf_gguf_write_bool(w, key->key, value->boolean)); break;
    case WF_GGUF_STRING:
        wt_ok(ctx, wf_gguf_write_text(w, key->key, value->string, value->bytes));
        break;
    default: wt_ok(ctx, wf_gguf_write_int(w, key->key, kind_of(type), value->integer));
    }
}

/* Writes a file with llama.cpp's keys and the tensors of Weft's file, which are equal to its. */
static void write_as_llama_cpp(const pair *p, const char *path)
{
    const wf_store *s = &p->made->store;
    wf_gguf_writer *w;
    wt_ok(p->ctx, wf_gguf_write_new(p->ctx, path, NULL, &w));
    for (size_t i = 0; i < p->keys->count; i++)
        write_key(p->ctx, w, &p->keys->child[i]);
    for (int i = 0; i < s->count; i++)
        wt_ok(p->ctx, wf_gguf_write_tensor(w, s->tensor[i].name, WF_F32, &s->tensor[i].shape));
    wt_ok(p->ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < s->count; i++)
        wt_ok(p->ctx, wf_gguf_write_data(w, s->tensor[i].data, s->tensor[i].bytes));
    wt_ok(p->ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* Logits of a file with llama.cpp's keys are those of transformers. */
static void keys_of_llama_cpp(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; i < wt_later_count(); i++) {
        pair p;
        wt_reference r;
        open_pair(&p, ctx, wt_later_models[i]);
        wt_reference_read(wt_later_models[i], &r);
        write_as_llama_cpp(&p, wt_path(&p.scratch, "theirs.gguf"));
        /* longrope: the context decides between short and long factors */
        const wf_engine_options o = {.context = (int64_t)(r.prompt_count + r.greedy_count),
                                     .kv = WF_KV_F32};
        wt_talker t = wt_talker_open(ctx, "cpu", wt_path(&p.scratch, "theirs.gguf"), &o);
        float *logits = wt_logits(ctx, t.engine, r.prompt, r.prompt_count, r.vocab);
        double error = wt_relative(logits, r.logits, (int64_t)r.prompt_count * r.vocab);
        print_message("%-16s logits within %.1e\n", wt_later_models[i], error);
        assert_true(error <= 1e-5); /* as in test_models.c */
        free(logits);
        wt_talker_close(&t);
        wt_reference_free(&r);
        close_pair(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(files_of_llama_cpp), wt_test(keys_of_llama_cpp)};
    return cmocka_run_group_tests_name("families", tests, NULL, NULL);
}

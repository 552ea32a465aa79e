/* SPDX-License-Identifier: MIT */
/*
 * test_convert.c - converts models from Hugging Face folders to GGUF files and back without
 * changing a bit, with the types that recipes name. A failed conversion leaves no file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "model/family.h"
#include "model/model.h"
#include "model/recipe.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

static const char *fixture(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    return path;
}

static wf_model *open_ok(wf_ctx *ctx, const char *path)
{
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    return m;
}

static void convert_ok(wf_ctx *ctx, const char *from, const char *to, const wf_convert_options *o)
{
    wf_model *m = open_ok(ctx, from);
    wt_ok(ctx, wf_model_convert(m, ctx, to, o));
    wf_model_close(m);
}

static void refused(wf_ctx *ctx, const char *from, const char *to, const wf_convert_options *o,
                    wf_status status, const char *part)
{
    wf_model *m = open_ok(ctx, from);
    wt_fails(ctx, wf_model_convert(m, ctx, to, o), status, part);
    wf_model_close(m);
}

static void files_equal(wf_ctx *ctx, const char *a, const char *b)
{
    wf_map *x, *y;
    wt_ok(ctx, wf_map_open(ctx, a, &x));
    wt_ok(ctx, wf_map_open(ctx, b, &y));
    assert_int_equal(x->size, y->size);
    assert_memory_equal(x->data, y->data, x->size);
    wf_map_close(x);
    wf_map_close(y);
}

/* Several paths in a scratch folder. */
typedef struct {
    wt_scratch s;
    char gguf[256], folder[256], other[256], third[256];
} paths;

static void paths_make(paths *p)
{
    wt_scratch_make(&p->s);
    snprintf(p->gguf, sizeof p->gguf, "%s/a.gguf", p->s.folder);
    snprintf(p->other, sizeof p->other, "%s/b.gguf", p->s.folder);
    snprintf(p->third, sizeof p->third, "%s/c.gguf", p->s.folder);
    snprintf(p->folder, sizeof p->folder, "%s/folder", p->s.folder);
}

/* ---- Round trips ---- */

/* Expects every tensor of a in b, with the same type, shape and bytes. */
static void stores_equal(const wf_store *a, const wf_store *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const wf_stored *x = &a->tensor[i], *y = wf_store_find(b, x->name);
        if (!y)
            fail_msg("%s is missing", x->name);
        if (x->type != y->type || !wf_dims_equal(&x->shape, &y->shape) || x->bytes != y->bytes ||
            memcmp(x->data, y->data, x->bytes) != 0)
            fail_msg("%s is not the same", x->name);
    }
}

/* The same for the weights of two models, which may have other names for them in their files. */
static void weights_equal(const wf_model *a, const wf_model *b)
{
    assert_int_equal(a->weights, b->weights);
    for (int i = 0; i < a->weights; i++) {
        const wf_model_weight_info *w = wf_model_find_weight(b, a->weight[i].name);
        const wf_stored *x = wf_weight_whole(&a->weight[i]), *y = w ? wf_weight_whole(w) : NULL;
        if (!x || !y || x->type != y->type || !wf_dims_equal(&x->shape, &y->shape) ||
            memcmp(x->data, y->data, x->bytes) != 0)
            fail_msg("%s is not the same", a->weight[i].name);
    }
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-6 * fabs(a)))
        fail_msg("%.17g became %.17g", a, b);
}

static void configs_equal(const wf_config *a, const wf_config *b)
{
    assert_ptr_equal(a->family, b->family);
    assert_int_equal(a->layers, b->layers);
    assert_int_equal(a->vocab, b->vocab);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->tied, b->tied);
    assert_int_equal(a->qkv_bias, b->qkv_bias);
    assert_int_equal(a->out_bias, b->out_bias);
    assert_int_equal(a->mlp_bias, b->mlp_bias);
    near(a->eps, b->eps);
    near(a->scale, b->scale);
    near(a->embedding_scale, b->embedding_scale);
    near(a->residual_scale, b->residual_scale);
    near(a->logit_scale, b->logit_scale);
    near(a->q_scale, b->q_scale);
    if (a->q_scale != 0)
        near(a->q_length, b->q_length);
    for (int64_t i = 0; i < a->layers; i++) {
        const wf_layer *x = wf_config_layer(a, i), *y = wf_config_layer(b, i);
        assert_int_equal(x->heads, y->heads);
        assert_int_equal(x->kv_heads, y->kv_heads);
        assert_int_equal(x->key_dim, y->key_dim);
        assert_int_equal(x->value_dim, y->value_dim);
        assert_int_equal(x->hidden, y->hidden);
        assert_int_equal(x->window, y->window);
        assert_int_equal(x->rope, y->rope);
        assert_int_equal(x->shares, y->shares);
    }
    assert_int_equal(a->ropes, b->ropes);
    for (int r = 0; r < a->ropes; r++) {
        const wf_rotary *p = &a->rope[r], *q = &b->rope[r];
        float x[256], y[256];
        assert_int_equal(p->dims, q->dims);
        near(wf_rope_magnitude(p), wf_rope_magnitude(q));
        assert_true(p->dims <= 512);
        wf_rope_frequencies(p, a->context, x);
        wf_rope_frequencies(q, b->context, y);
        for (int64_t i = 0; i < p->dims / 2; i++)
            near(x[i], y[i]);
    }
}

/* Folder to GGUF to folder to GGUF: tensors, configs and templates survive bit for bit. */
static void round_trips(void **state)
{
    for (int i = 0; wt_models[i]; i++) {
        paths p;
        paths_make(&p);
        convert_ok(*state, fixture(wt_models[i]), p.gguf, NULL);
        convert_ok(*state, p.gguf, p.folder, NULL);
        convert_ok(*state, p.folder, p.other, NULL);
        convert_ok(*state, p.gguf, p.third, NULL);
        files_equal(*state, p.gguf, p.third);

        wf_model *first = open_ok(*state, fixture(wt_models[i])), *gguf = open_ok(*state, p.gguf),
                 *back = open_ok(*state, p.folder), *again = open_ok(*state, p.other);
        weights_equal(first, back);
        assert_int_equal(back->info.skipped, 0); /* of a multimodal model, only the decoder */
        stores_equal(gguf->store, again->store);
        configs_equal(&first->config, &gguf->config);
        configs_equal(&first->config, &back->config);
        configs_equal(&first->config, &again->config);
        const wf_family *f = first->config.family;
        assert_int_equal(gguf->config.rope[0].interleaved, f->interleaved || f->pairs);
        assert_int_equal(back->config.rope[0].interleaved, f->pairs);
        assert_string_equal(first->info.chat_template, gguf->info.chat_template);
        assert_string_equal(first->info.chat_template, back->info.chat_template);
        wf_model_close(first);
        wf_model_close(gguf);
        wf_model_close(back);
        wf_model_close(again);
        wt_scratch_remove(&p.s);
    }
}

/* End tokens that only generation_config.json names survive the conversion. */
static void keeps_ends(void **state)
{
    paths p;
    char path[600];
    paths_make(&p);
    convert_ok(*state, fixture("llama"), p.folder, NULL);
    snprintf(path, sizeof path, "%s/generation_config.json", p.folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("{\"eos_token_id\": [1, 2, 65]}", f);
    fclose(f);
    convert_ok(*state, p.folder, p.gguf, NULL);
    convert_ok(*state, p.gguf, p.folder, NULL);
    const char *const written[] = {p.gguf, p.folder};
    for (int i = 0; i < 2; i++) {
        wf_model *m = open_ok(*state, written[i]);
        const wf_tokenizer *t = wf_model_tokenizer(m);
        for (int32_t id = 1; id < 70; id++)
            assert_int_equal(wf_tokenizer_ends(t, id), id == 1 || id == 2 || id == 65);
        wf_model_close(m);
    }
    wt_scratch_remove(&p.s);
}

/* The tokenizer gives the same ids before and after, and keeps its special tokens. */
static void keeps_tokenizer(void **state)
{
    static const char text[] = "the weft runs <|im_end|>\nthrough 12 warp threads \xC3\xA9";
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("llama"), p.gguf, NULL);
    convert_ok(*state, p.gguf, p.folder, NULL);
    const char *const path[] = {fixture("llama"), p.gguf, p.folder};
    int32_t *want = NULL, *ids;
    size_t wanted = 0, count;
    for (int i = 0; i < 3; i++) {
        wf_model *m = open_ok(*state, path[i]);
        const wf_tokenizer *t = wf_model_tokenizer(m);
        assert_non_null(t);
        wt_ok(*state,
              wf_tokenizer_encode(t, *state, text, sizeof text - 1, WF_TEXT_CONTROL, &ids, &count));
        if (i > 0) {
            assert_int_equal(count, wanted);
            assert_memory_equal(ids, want, count * sizeof *ids);
            wf_ids_free(*state, ids);
        } else {
            want = ids;
            wanted = count;
        }
        assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_BOS), 0);
        assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_EOS), 1);
        assert_true(wf_tokenizer_ends(t, 1));
        wf_model_close(m);
    }
    wf_ids_free(*state, want);
    wt_scratch_remove(&p.s);
}

/* An embedding may have more rows than the tokenizer has tokens. GGUF readers expect equal counts,
 * so the tokenizer is padded. */
static void fills_vocabulary(void **state)
{
    paths p;
    wf_gguf_writer *w;
    wf_gguf *f;
    const wf_gguf_text *token;
    const int64_t *kind;
    size_t count;
    paths_make(&p);
    wf_model *m = open_ok(*state, fixture("llama"));
    wt_ok(*state, wf_gguf_write_new(*state, p.gguf, NULL, &w));
    wt_ok(*state, wf_tokenizer_to_gguf(m->tokenizer, *state, w, 300));
    wt_ok(*state, wf_gguf_write_begin(w));
    wt_ok(*state, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wt_ok(*state, wf_gguf_open(*state, p.gguf, &f));
    wt_ok(*state, wf_gguf_get_texts(f, "tokenizer.ggml.tokens", &token, &count));
    assert_int_equal(count, 300);
    assert_int_equal(token[299].len, 8);
    assert_memory_equal(token[299].bytes, "[PAD299]", 8);
    wt_ok(*state, wf_gguf_get_ints(f, "tokenizer.ggml.token_type", &kind, &count));
    assert_int_equal(count, 300);
    assert_int_equal(kind[299], WF_TOKEN_UNUSED);
    wf_gguf_close(f);
    wf_model_close(m);
    wt_scratch_remove(&p.s);
}

/* Llama's GGUF files interleave rows: row i of half s of a head becomes row 2 i + s. Other tensors
 * keep their order. */
static void interleaves_rows(void **state)
{
    static const struct {
        const char *model, *gguf, *hugging_face;
        bool interleaved;
    } cases[] = {
        {"llama", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", true},
        {"llama", "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", true},
        {"llama", "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", false},
        {"llama-bias", "blk.1.attn_k.bias", "model.layers.1.self_attn.k_proj.bias", true},
        {"qwen2", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", false},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        paths p;
        paths_make(&p);
        convert_ok(*state, fixture(cases[c].model), p.gguf, NULL);
        wf_model *a = open_ok(*state, fixture(cases[c].model)), *b = open_ok(*state, p.gguf);
        const wf_stored *x = wf_store_find(a->store, cases[c].hugging_face),
                        *y = wf_store_find(b->store, cases[c].gguf);
        int64_t D = a->config.all.key_dim, rows = x->shape.d[0];
        size_t row = x->bytes / (size_t)rows;
        assert_int_equal(x->bytes, y->bytes);
        for (int64_t h = 0; h < rows / D; h++)
            for (int64_t s = 0; s < 2; s++)
                for (int64_t i = 0; i < D / 2; i++) {
                    int64_t from = h * D + s * D / 2 + i;
                    int64_t to = cases[c].interleaved ? h * D + 2 * i + s : from;
                    assert_memory_equal(x->data + (size_t)from * row, y->data + (size_t)to * row,
                                        row);
                }
        wf_model_close(a);
        wf_model_close(b);
        wt_scratch_remove(&p.s);
    }
}

/* GPT-2's Hugging Face weights are transposed: [in, out] in the folder, [out, in] in GGUF. */
static void crosses(void **state)
{
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("gpt2"), p.gguf, NULL);
    wf_model *a = open_ok(*state, fixture("gpt2")), *b = open_ok(*state, p.gguf);
    const wf_stored *x = wf_store_find(a->store, "transformer.h.1.mlp.c_fc.weight"),
                    *y = wf_store_find(b->store, "blk.1.ffn_up.weight");
    assert_int_equal(x->shape.d[0], 64);
    assert_int_equal(y->shape.d[0], 256);
    for (size_t k = 0; k < 64; k++)
        for (size_t n = 0; n < 256; n++)
            assert_memory_equal(x->data + 4 * (k * 256 + n), y->data + 4 * (n * 64 + k), 4);
    wf_model_close(a);
    wf_model_close(b);
    wt_scratch_remove(&p.s);
}

/* Converting quantized GPT-2 weights back to a folder transposes them, as f16. */
static void crosses_blocks(void **state)
{
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("gpt2"), p.gguf, &(wf_convert_options){.type = "q8_0"});
    convert_ok(*state, p.gguf, p.folder, NULL);
    wf_model *a = open_ok(*state, p.gguf), *b = open_ok(*state, p.folder);
    const wf_stored *x = wf_store_find(a->store, "blk.0.ffn_down.weight"),
                    *y = wf_store_find(b->store, "transformer.h.0.mlp.c_proj.weight");
    assert_int_equal(x->type, WF_Q8_0);
    assert_int_equal(y->type, WF_F16);
    float from[64 * 256];
    uint16_t to[64 * 256];
    assert_int_equal(y->bytes, sizeof to);
    wt_ok(*state, wf_type_to_f32(*state, x->type, x->data, from, 64 * 256));
    memcpy(to, y->data, sizeof to);
    for (size_t n = 0; n < 64; n++)
        for (size_t k = 0; k < 256; k++) {
            uint16_t half;
            wt_ok(*state, wf_type_from_f32(*state, WF_F16, &from[n * 256 + k], &half, 1));
            assert_int_equal(to[k * 64 + n], half);
        }
    wf_model_close(a);
    wf_model_close(b);
    wt_scratch_remove(&p.s);
}

/* ---- Types ---- */

/* Largest relative error (RMS) of a type. */
static double bound(wf_type type)
{
    switch (type) {
    case WF_F32: return 0;
    case WF_F16: return 1e-3;
    case WF_BF16: return 4e-3;
    case WF_Q8_0: return 0.01;
    case WF_Q6_K: return 0.03;
    case WF_Q3_K: return 0.2;
    case WF_Q2_K: return 0.4;
    default: return 0.12;
    }
}

/* RMS of the difference, relative to the RMS of a. */
static double distance(wf_ctx *ctx, const wf_stored *a, const wf_stored *b)
{
    int64_t n = wf_dims_count(&a->shape);
    float *x = wf_mem_array(ctx, (size_t)n, sizeof *x), *y = wf_mem_array(ctx, (size_t)n, 4);
    double error = 0, size = 0;
    wt_ok(ctx, wf_type_to_f32(ctx, a->type, a->data, x, n));
    wt_ok(ctx, wf_type_to_f32(ctx, b->type, b->data, y, n));
    for (int64_t i = 0; i < n; i++) {
        error += (double)(x[i] - y[i]) * (x[i] - y[i]);
        size += (double)x[i] * x[i];
    }
    wf_mem_free(ctx, x);
    wf_mem_free(ctx, y);
    return sqrt(error / size);
}

/* Every recipe writes the type it names, within the type's error bound. */
static void quantizes(void **state)
{
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("llama"), p.gguf, NULL);
    wf_model *first = open_ok(*state, p.gguf);
    for (const wf_recipe *r = wf_recipes; r->name; r++) {
        int64_t written = 0, file_type = -1;
        wt_ok(*state,
              wf_model_convert(first, *state, p.other,
                               &(wf_convert_options){.type = r->name, .written = &written}));
        wf_model *m = open_ok(*state, p.other);
        const wf_recipe_use use = {.config = &m->config};
        size_t bytes = 0;
        assert_int_equal(m->store->count, first->store->count);
        for (int i = 0; i < m->store->count; i++) {
            const wf_stored *b = &m->store->tensor[i], *a = wf_store_find(first->store, b->name);
            wf_type want = b->shape.n == 1
                               ? WF_F32
                               : wf_recipe_type(r, &use, b->name, wf_dims_last(&b->shape));
            assert_int_equal(b->type, want);
            assert_true(distance(*state, a, b) <= bound(b->type));
            bytes += b->bytes;
        }
        assert_int_equal(bytes, written);
        wt_ok(*state, wf_gguf_get_int(m->gguf, "general.file_type", 0, 100, &file_type));
        assert_int_equal(file_type, r->file_type);
        configs_equal(&first->config, &m->config);
        wf_model_close(m);
    }
    wf_model_close(first);
    wt_scratch_remove(&p.s);
}

/* Patterns give single matrices another type: the first that matches decides. */
static void types_of_single_matrices(void **state)
{
    static const wf_tensor_type rules[] = {
        {"^blk\\.[0-9]+\\.attn_(q|k)", "q8_0"}, {"attn_q", "q2_K"}, {"ffn_down|^output", "F16"}};
    static const struct {
        const char *name;
        wf_type type;
    } want[] = {
        {"blk.0.attn_q.weight", WF_Q8_0}, {"blk.0.attn_k.weight", WF_Q8_0},
        {"blk.0.attn_v.weight", WF_Q4_0}, {"blk.0.ffn_down.weight", WF_F16},
        {"blk.0.ffn_up.weight", WF_Q4_0}, {"output.weight", WF_F16},
        {"output_norm.weight", WF_F32}, /* a vector: patterns are for matrices */
        {"token_embd.weight", WF_Q4_0},
    };
    paths p;
    paths_make(&p);
    convert_ok(
        *state, fixture("llama"), p.gguf,
        &(wf_convert_options){.type = "q4_0", .tensor_types = rules, .tensor_type_count = 3});
    wf_model *m = open_ok(*state, p.gguf);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        assert_int_equal(wf_model_find_weight(m, want[i].name)->type, want[i].type);
    wf_model_close(m);
    /* Without a recipe the other matrices keep their types, and the file's type is that of most. */
    int64_t file_type = 0;
    convert_ok(*state, fixture("llama"), p.other,
               &(wf_convert_options){.tensor_types = rules, .tensor_type_count = 1});
    m = open_ok(*state, p.other);
    assert_int_equal(wf_model_find_weight(m, "blk.0.attn_q.weight")->type, WF_Q8_0);
    assert_int_equal(wf_model_find_weight(m, "blk.0.attn_v.weight")->type, WF_BF16);
    wt_ok(*state, wf_gguf_get_int(m->gguf, "general.file_type", 0, 100, &file_type));
    assert_int_equal(file_type, 32);
    wf_model_close(m);
    wt_scratch_remove(&p.s);
}

static void refuses_patterns(void **state)
{
    static const struct {
        wf_tensor_type rule;
        const char *words;
    } wrong[] = {
        {{"attn_(q", "q8_0"}, "the pattern 'attn_(q' is not a regular expression: "},
        {{"", "q8_0"}, "has 0 bytes; it must have 1 to 1000"},
        {{"blk\\.\\d+", "q8_0"}, "the pattern 'blk\\.\\d+' contains \\d, which POSIX"},
        {{"attn_q", "q9_K"}, "unknown type 'q9_K' for single tensors; use one of: f32, f16"},
        {{"attn_q", "Q4_K_M"}, "unknown type 'Q4_K_M' for single tensors"},
        {{"attn_x", "q8_0"}, "no matrix has a name that matches 'attn_x'"},
        {{"output_norm", "q8_0"}, "no matrix has a name that matches 'output_norm'"},
        {{"attn_q", "q4_K"},
         "blk.0.attn_q.weight cannot be q4_K: its rows have 64 elements, not a multiple of the "
         "block of 256"},
    };
    paths p;
    paths_make(&p);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const wf_convert_options o = {
            .type = "q8_0", .tensor_types = &wrong[i].rule, .tensor_type_count = 1};
        refused(*state, fixture("mistral"), p.gguf, &o, WF_ERR_USAGE, wrong[i].words);
        assert_int_equal(wf_path_look(p.gguf), WF_PATH_NONE);
    }
    const wf_tensor_type half = {"attn_q", "f16"};
    refused(*state, fixture("mistral"), p.folder,
            &(wf_convert_options){.tensor_types = &half, .tensor_type_count = 1}, WF_ERR_USAGE,
            "types of single tensors need a GGUF file");
    wt_scratch_remove(&p.s);
}

/* The written file must not depend on the number of threads. */
static void same_for_any_threads(void **state)
{
    static const char *const models[] = {"llama", "gpt2", "mistral"};
    for (int i = 0; i < 3; i++) {
        paths p;
        paths_make(&p);
        convert_ok(*state, fixture(models[i]), p.gguf,
                   &(wf_convert_options){.type = "Q4_K_M", .threads = 1});
        convert_ok(*state, fixture(models[i]), p.other,
                   &(wf_convert_options){.type = "Q4_K_M", .threads = 4});
        files_equal(*state, p.gguf, p.other);
        wt_scratch_remove(&p.s);
    }
}

static wf_status count_progress(void *user, const char *weight, int64_t done, int64_t total)
{
    int64_t *last = user;
    assert_non_null(weight);
    assert_true(done >= *last && done <= total);
    *last = done;
    return WF_OK;
}

/* ---- Several files ---- */

/* Splits into parts and shards, and reads them as one model. */
static void splits(void **state)
{
    paths p;
    int64_t last = 0;
    paths_make(&p);
    wf_model *first = open_ok(*state, fixture("llama"));
    const wf_convert_options split = {
        .split_bytes = 300000, .progress = count_progress, .user = &last};
    wt_ok(*state, wf_model_convert(first, *state, p.gguf, &split));
    assert_int_equal(last, first->info.bytes);
    last = 0;
    wt_ok(*state, wf_model_convert(first, *state, p.folder, &split));
    wf_model *shards = open_ok(*state, p.folder);
    assert_int_equal(shards->store->files, 4);
    stores_equal(first->store, shards->store);
    wf_model *parts = open_ok(*state, wt_path(&p.s, "a-00001-of-00004.gguf"));
    assert_int_equal(parts->store->files, 4);

    /* Converting onto a part of the input fails. */
    wt_fails(*state, wf_model_convert(parts, *state, p.gguf, &split), WF_ERR_USAGE, "onto itself");
    wf_model_close(shards);
    /* Replacing another model removes the files that the new one lacks. */
    wt_ok(*state, wf_model_convert(parts, *state, p.folder, NULL));
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/model.safetensors")), WF_PATH_FILE);
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/model.safetensors.index.json")),
                     WF_PATH_NONE);
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/model-00002-of-00004.safetensors")),
                     WF_PATH_NONE);
    shards = open_ok(*state, p.folder);
    stores_equal(first->store, shards->store);
    wf_model_close(shards);
    wf_model_close(parts);
    wf_model_close(first);
    wt_scratch_remove(&p.s);
}

/* Otherwise an older model's chat template in the folder would be read as the new one's. */
static void leaves_no_old_files(void **state)
{
    paths p;
    paths_make(&p);
    assert_int_equal(mkdir(p.folder, 0777), 0);
    wt_put_text(&p.s, "folder/chat_template.json", "{\"chat_template\": \"old\"}");
    wt_put_text(&p.s, "folder/merges.txt", "old");
    convert_ok(*state, fixture("llama"), p.gguf, NULL);
    convert_ok(*state, p.gguf, p.folder, NULL);
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/chat_template.json")), WF_PATH_NONE);
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/merges.txt")), WF_PATH_NONE);
    wt_scratch_remove(&p.s);
}

/* ---- Refused conversions ---- */

/* Conversions onto the input, of quantized weights without --requantize, or into unsupported
 * types fail. */
static void refuses(void **state)
{
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("llama"), p.gguf, &(wf_convert_options){.type = "q8_0"});
    convert_ok(*state, p.gguf, p.folder, NULL);
    wf_convert_options o = {.type = "q4_K"};
    refused(*state, p.gguf, p.gguf, NULL, WF_ERR_USAGE, "onto itself");
    refused(*state, p.folder, p.folder, NULL, WF_ERR_USAGE, "onto itself");
    assert_int_equal(symlink(p.gguf, p.third), 0);
    refused(*state, p.gguf, p.third, NULL, WF_ERR_USAGE, "onto itself");
    refused(*state, p.gguf, p.other, &o, WF_ERR_USAGE, "is already quantized to q8_0");
    assert_int_equal(wf_path_look(p.other), WF_PATH_NONE);
    o.requantize = true;
    convert_ok(*state, p.gguf, p.other, &o);
    refused(*state, fixture("llama"), wt_path(&p.s, "new"), &o, WF_ERR_USAGE,
            "can hold f32, f16 or bf16, not q4_K");
    o.type = "q5_K_X";
    refused(*state, fixture("llama"), p.other, &o, WF_ERR_USAGE, "unknown type 'q5_K_X'");
    refused(*state, fixture("llama"), wt_put_text(&p.s, "file", "text"), NULL, WF_ERR_USAGE,
            "is a file");
    wt_put_text(&p.s, "folder/notes.txt", "mine");
    refused(*state, fixture("llama"), p.folder, NULL, WF_ERR_USAGE, "contains 'notes.txt'");
    assert_int_equal(wf_path_look(wt_path(&p.s, "folder/notes.txt")), WF_PATH_FILE);
    refused(*state, fixture("llama"), wt_path(&p.s, "no/such/x.gguf"), NULL, WF_ERR_IO,
            "No such file");
    refused(*state, fixture("llama"), wt_path(&p.s, "no/such/folder"), NULL, WF_ERR_IO,
            "No such file");
    wt_scratch_remove(&p.s);
}

/* Writes a fixture whose config.json has `from` replaced by `to`. */
static void change(wf_ctx *ctx, paths *p, const char *model, const char *from, const char *to)
{
    char *text, path[300];
    size_t bytes, len = 0;
    convert_ok(ctx, fixture(model), p->folder, NULL);
    snprintf(path, sizeof path, "%s/config.json", p->folder);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    char *at = strstr(text, from), *changed = wf_mem_new(ctx, bytes + strlen(to) + 1);
    assert_non_null(at);
    wf_text_append(changed, bytes + strlen(to) + 1, &len, "%.*s%s%s", (int)(at - text), text, to,
                   at + strlen(from));
    wt_ok(ctx, wf_file_write(ctx, path, changed, len));
    wf_mem_free(ctx, changed);
    wf_mem_free(ctx, text);
}

/* YaRN's attention factor survives GGUF, in the form that other readers use. */
static void keeps_magnitude(void **state)
{
    paths p;
    paths_make(&p);
    change(*state, &p, "qwen2", "\"rope_type\": \"yarn\"",
           "\"rope_type\": \"yarn\", \"attention_factor\": 1.5");
    convert_ok(*state, p.folder, p.gguf, NULL);
    wf_model *m = open_ok(*state, p.gguf);
    near(1.5, wf_rope_magnitude(&m->config.rope[0]));
    double factor = 0; /* relative to the usual magnitude, as other GGUF readers interpret it */
    wt_ok(*state, wf_gguf_get_float(m->gguf, "qwen2.rope.scaling.attn_factor", &factor));
    near(1.5 / (0.1 * log(4) + 1), factor);
    wf_model_close(m);
    wt_scratch_remove(&p.s);
}

/* ---- Rotary positions ---- */

/* Compares RoPE frequencies and magnitude with a relative bound. */
static void frequencies_equal(const wf_rotary *a, const wf_rotary *b, double bound)
{
    float x[64], y[64];
    assert_int_equal(a->dims, b->dims);
    wf_rope_frequencies(a, 1, x);
    wf_rope_frequencies(b, 1, y);
    for (int64_t i = 0; i < a->dims / 2; i++)
        assert_true(fabs((double)x[i] - y[i]) <= bound * y[i]);
    assert_true(fabs(wf_rope_magnitude(a) - wf_rope_magnitude(b)) <= bound);
}

/* Copies a GGUF file, without weft.rope_parameters unless `keep`. `divisor` replaces the first one
 * (0: unchanged); `key` adds a key (NULL: none). */
static void rewrite_more(wf_ctx *ctx, const char *from, const char *to, bool keep, float divisor,
                         const char *key, double value)
{
    wf_gguf *f;
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_open(ctx, from, &f));
    wt_ok(ctx, wf_gguf_write_new(ctx, to, NULL, &w));
    for (int i = 0; i < f->pairs; i++)
        if (keep || strcmp(f->pair[i].key, "weft.rope_parameters") != 0)
            wt_ok(ctx, wf_gguf_write_pair(w, &f->pair[i]));
    if (key)
        wt_ok(ctx, wf_gguf_write_float(w, key, value));
    for (int i = 0; i < f->store.count; i++)
        wt_ok(ctx, wf_gguf_write_tensor(w, f->store.tensor[i].name, f->store.tensor[i].type,
                                        &f->store.tensor[i].shape));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < f->store.count; i++) {
        const wf_stored *t = &f->store.tensor[i];
        float changed[64];
        bool divisors = divisor != 0 && strcmp(t->name, "rope_freqs.weight") == 0;
        if (divisors) {
            memcpy(changed, t->data, t->bytes);
            changed[0] = divisor;
        }
        wt_ok(ctx, wf_gguf_write_data(w, divisors ? (const void *)changed : t->data, t->bytes));
    }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wf_gguf_close(f);
}

static void rewrite(wf_ctx *ctx, const char *from, const char *to, bool keep, float divisor)
{
    rewrite_more(ctx, from, to, keep, divisor, NULL, 0);
}

/* Every RoPE scaling survives GGUF bit for bit. Without Weft's own key, llama3 keeps its
 * frequencies up to rounding. */
static void keeps_rope(void **state)
{
    static const struct {
        const char *model, *from, *to;
    } rows[] = {
        {"llama", "\"factor\": 8.0", "\"factor\": 7.3"},
        {"llama", "\"original_max_position_embeddings\": 8192",
         "\"original_max_position_embeddings\": 1000"},
        {"llama", "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 17.5"},
        {"llama", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 3.9"},
        {"llama", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 3.9999"},
        {"llama", "\"rope_theta\": 500000.0", "\"rope_theta\": 10.7"},
        {"llama", "\"rope_theta\": 500000.0", "\"rope_theta\": 1e12"},
        {"llama-bias", "\"factor\": 2.0", "\"factor\": 2.7182818"},
        {"llama-bias", "\"linear\"", "\"dynamic\""},
        {"mistral", "\"rope_theta\": 10000.0", "\"rope_theta\": 12345.678"},
        {"qwen2", "\"yarn\"", "\"yarn\", \"truncate\": false"},
        {"qwen2", "\"yarn\"", "\"yarn\", \"mscale\": 0.7, \"mscale_all_dim\": 1.3"},
        {"qwen2", "\"yarn\"", "\"yarn\", \"beta_fast\": 3.3, \"beta_slow\": 0.7"},
        {"qwen2", "\"yarn\"", "\"yarn\", \"attention_factor\": 1.1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        paths p;
        paths_make(&p);
        change(*state, &p, rows[i].model, rows[i].from, rows[i].to);
        convert_ok(*state, p.folder, p.gguf, NULL);
        convert_ok(*state, p.gguf, p.other, NULL);
        wf_model *first = open_ok(*state, p.folder), *gguf = open_ok(*state, p.gguf);
        frequencies_equal(&gguf->config.rope[0], &first->config.rope[0], 0);
        wf_model_close(gguf);
        convert_ok(*state, p.other, wt_path(&p.s, "new"), NULL);
        wf_model *back = open_ok(*state, wt_path(&p.s, "new"));
        frequencies_equal(&back->config.rope[0], &first->config.rope[0], 0);
        assert_int_equal(back->config.rope[0].scaling, first->config.rope[0].scaling);
        wf_model_close(back);
        if (first->config.rope[0].scaling == WF_ROPE_LLAMA3) {
            rewrite(*state, p.gguf, p.third, false, 0);
            convert_ok(*state, p.third, wt_path(&p.s, "foreign"), NULL);
            back = open_ok(*state, wt_path(&p.s, "foreign"));
            frequencies_equal(&back->config.rope[0], &first->config.rope[0], 2e-5);
            assert_int_equal(back->config.rope[0].scaling, WF_ROPE_LLAMA3);
            wf_model_close(back);
        }
        wf_model_close(first);
        wt_scratch_remove(&p.s);
    }
}

/* GPT-2 with other attention scales. */
static void keeps_scales(void **state)
{
    static const struct {
        const char *from, *to;
        double scale;
        bool by_layer;
    } rows[] = {
        {"\"scale_attn_weights\": true", "\"scale_attn_weights\": false", 1, false},
        {"\"scale_attn_by_inverse_layer_idx\": false", "\"scale_attn_by_inverse_layer_idx\": true",
         0, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        paths p;
        paths_make(&p);
        change(*state, &p, "gpt2", rows[i].from, rows[i].to);
        convert_ok(*state, p.folder, p.gguf, NULL);
        convert_ok(*state, p.gguf, p.other, NULL);
        convert_ok(*state, p.other, wt_path(&p.s, "new"), NULL);
        const char *const all[] = {p.folder, p.gguf, wt_path(&p.s, "new")};
        for (int k = 0; k < 3; k++) {
            wf_model *m = open_ok(*state, all[k]);
            assert_true(m->config.scale == rows[i].scale);
            assert_int_equal(m->config.scale_by_layer, rows[i].by_layer);
            wf_model_close(m);
        }
        wt_scratch_remove(&p.s);
    }
}

/* Frequency divisors that config.json has no key for are refused, and so are parameters that
 * contradict them. */
static void refuses_unknown_rope(void **state)
{
    paths p;
    wf_model *m;
    paths_make(&p);
    convert_ok(*state, fixture("llama"), p.gguf, NULL);
    rewrite(*state, p.gguf, p.other, false, 3);
    convert_ok(*state, p.other, p.third, NULL); /* a GGUF file can store it */
    refused(*state, p.third, wt_path(&p.s, "new"), NULL, WF_ERR_UNSUPPORTED, "rope_freqs.weight");
    assert_int_equal(wf_path_look(wt_path(&p.s, "new")), WF_PATH_NONE);
    rewrite(*state, p.gguf, p.other, true, 3);
    wt_fails(*state, wf_model_open(*state, p.other, &m), WF_ERR_FORMAT,
             "weft.rope_parameters contradicts");
    wt_scratch_remove(&p.s);
}

/* GGUF keys that Weft does not support are refused by name, unless their value is neutral. */
static void refuses_keys(void **state)
{
    static const struct {
        const char *model, *key;
        double neutral, other;
    } rows[] = {
        {"llama", "llama.expert_count", 0, 8},
        {"llama", "llama.attention.clamp_kqv", 0, 8},
        {"llama", "llama.attention.max_alibi_bias", 0, 8},
        {"llama", "llama.attn_logit_softcapping", 0, 50},
        {"llama", "llama.final_logit_softcapping", 0, 30},
        {"llama", "llama.logit_scale", 1, 0.5},
        {"llama", "llama.residual_scale", 1, 0.2},
        {"llama", "llama.embedding_scale", 1, 12},
        {"llama", "llama.rope.scaling.alpha", 0, 2},
        {"llama", "llama.rope.freq_base_swa", 500000, 10000},
        {"qwen2", "qwen2.rope.scaling.yarn_ext_factor", 1, 0.5},
        {"qwen2", "qwen2.rope.scaling.yarn_attn_factor", 1, 1.1},
        {"gpt2", "gpt2.final_logit_softcapping", 0, 30},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        paths p;
        wf_model *m;
        paths_make(&p);
        convert_ok(*state, fixture(rows[i].model), p.gguf, NULL);
        rewrite_more(*state, p.gguf, p.other, true, 0, rows[i].key, rows[i].neutral);
        wf_model_close(open_ok(*state, p.other));
        rewrite_more(*state, p.gguf, p.third, true, 0, rows[i].key, rows[i].other);
        wt_fails(*state, wf_model_open(*state, p.third, &m), WF_ERR_UNSUPPORTED, rows[i].key);
        wt_scratch_remove(&p.s);
    }
}

/* Keys that change the result are read. A scale that config.json has no key for is refused when
 * writing a folder. */
static void reads_keys(void **state)
{
    paths p;
    paths_make(&p);
    convert_ok(*state, fixture("qwen2"), p.gguf, NULL);
    rewrite_more(*state, p.gguf, p.other, true, 0, "qwen2.rope.scaling.yarn_log_multiplier", 0.5);
    wf_model *m = open_ok(*state, p.other);
    near((0.1 * log(4) + 1) / (0.05 * log(4) + 1), wf_rope_magnitude(&m->config.rope[0]));
    wf_model_close(m);
    rewrite_more(*state, p.gguf, p.third, true, 0, "qwen2.attention.scale", 0.5);
    m = open_ok(*state, p.third);
    near(0.5, wf_config_scale(&m->config, 1));
    wf_model_close(m);
    refused(*state, p.third, wt_path(&p.s, "new"), NULL, WF_ERR_UNSUPPORTED, "attention scale");
    wt_scratch_remove(&p.s);
}

/* ---- Failures leave nothing behind ---- */

/* Fails each allocation in turn; no file and no memory is left. */
static void out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    paths p;
    paths_make(&p);
    convert_ok(ctx, fixture("mistral"), p.gguf, NULL);
    int before = wt_entries(&p.s);
    for (int form = 0; form < 3; form++) {
        wf_model *m = open_ok(ctx, form == 1 ? p.gguf : fixture("mistral"));
        const char *to = form == 0 ? p.other : p.folder;
        const wf_convert_options o = {.type = form == 0 ? "q4_K" : NULL, .threads = 2};
        uint64_t live = wt_live_blocks(ctx);
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++) {
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status = wf_model_convert(m, ctx, to, &o);
            reached = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            assert_int_equal(wt_live_blocks(ctx), live);
            if (!reached) {
                wt_ok(ctx, status);
                continue;
            }
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            assert_int_equal(wt_entries(&p.s), before);
        }
        wf_model_close(m);
        wt_scratch_remove(&p.s);
        paths_make(&p);
        convert_ok(ctx, fixture("mistral"), p.gguf, NULL);
    }
    wt_scratch_remove(&p.s);
}

/* Limits the file size, so that writes fail after so many bytes. */
static void disk_full(void **state)
{
    paths p;
    struct rlimit old, low;
    paths_make(&p);
    wf_model *m = open_ok(*state, fixture("llama"));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    low = old;
    low.rlim_cur = 500000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    wf_status file = wf_model_convert(m, *state, p.gguf, NULL);
    wt_fails(*state, file, WF_ERR_IO, "a.gguf");
    wf_status folder = wf_model_convert(m, *state, p.folder, NULL);
    wt_fails(*state, folder, WF_ERR_IO, "model.safetensors");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(wt_entries(&p.s), 0);
    wf_model_close(m);
    if (symlink("/dev/full", p.gguf) == 0)
        refused(*state, fixture("llama"), p.gguf, NULL, WF_ERR_IO, "No space left");
    wt_scratch_remove(&p.s);
}

static wf_status stop_in_the_middle(void *user, const char *weight, int64_t done, int64_t total)
{
    (void)weight;
    return 2 * done > total ? wf_fail(user, WF_ERR_USAGE, "that is enough") : WF_OK;
}

/* The progress callback can cancel the conversion. */
static void cancelled(void **state)
{
    paths p;
    paths_make(&p);
    const wf_convert_options o = {.progress = stop_in_the_middle, .user = *state};
    refused(*state, fixture("llama"), p.gguf, &o, WF_ERR_USAGE, "that is enough");
    refused(*state, fixture("llama"), p.folder, &o, WF_ERR_USAGE, "that is enough");
    assert_int_equal(wt_entries(&p.s), 0);
    wt_scratch_remove(&p.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(round_trips),
        wt_test(keeps_tokenizer),
        wt_test(keeps_ends),
        wt_test(fills_vocabulary),
        wt_test(interleaves_rows),
        wt_test(crosses),
        wt_test(crosses_blocks),
        wt_test(quantizes),
        wt_test(types_of_single_matrices),
        wt_test(refuses_patterns),
        wt_test(same_for_any_threads),
        wt_test(splits),
        wt_test(leaves_no_old_files),
        wt_test(refuses),
        wt_test(keeps_magnitude),
        wt_test(keeps_rope),
        wt_test(keeps_scales),
        wt_test(refuses_keys),
        wt_test(reads_keys),
        wt_test(out_of_memory),
        wt_test(disk_full),
        wt_test(cancelled),
        wt_test(refuses_unknown_rope),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

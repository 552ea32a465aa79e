/* SPDX-License-Identifier: MIT */
/* test_families_bad.c - configs and GGUF files of the later families that contradict themselves or
 * ask for what Weft does not compute: each is refused in one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "model/config.h"
#include "model/family.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

/* ---- config.json ---- */

/* Returns a file of a fixture. The caller frees it with wf_mem_free. */
static char *read_file(wf_ctx *ctx, const char *name, const char *file, size_t *bytes)
{
    char path[256], *text;
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/%s", name, file);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, bytes));
    return text;
}

/* Opens a fixture whose config.json has `replace` in the place of the first `find`. */
static void refuses(wf_ctx *ctx, const char *name, const char *find, const char *replace,
                    wf_status status, const char *part)
{
    size_t bytes;
    char changed[8192], *text = read_file(ctx, name, "config.json", &bytes);
    const char *at = strstr(text, find);
    wt_scratch s;
    wf_model *m;
    wt_scratch_make(&s);
    if (!at)
        fail_msg("%s has no %s", name, find);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, replace,
             at + strlen(find));
    wt_put_text(&s, "config.json", changed);
    wf_mem_free(ctx, text);
    text = read_file(ctx, name, "model.safetensors", &bytes);
    wt_put(&s, "model.safetensors", text, bytes);
    wf_mem_free(ctx, text);
    wt_fails(ctx, wf_model_open(ctx, s.folder, &m), status, part);
    assert_null(m);
    wt_scratch_remove(&s);
}

#define FORMAT WF_ERR_FORMAT
#define UNSUPPORTED WF_ERR_UNSUPPORTED

static void configs(void **state)
{
    static const struct {
        const char *name, *find, *replace;
        wf_status status;
        const char *part;
    } rows[] = {
        /* Layers. */
        {"olmo3", "\"sliding_attention\",", "\"chunked_attention\",", UNSUPPORTED,
         "layer_types may contain only full_attention and sliding_attention"},
        {"olmo3", "\"sliding_attention\",", "", FORMAT,
         "layer_types lists 3 layers, but num_hidden_layers is 4"},
        {"olmo3", "\"layer_types\": [", "\"layer_types\": 7, \"x\": [", FORMAT,
         "layer_types must be a list"},
        {"olmo3", "\"sliding_window\": 8", "\"sliding_window\": 0", FORMAT,
         "sliding_window must be at least 1"},
        {"cohere2", "\"sliding_window\": 8", "\"sliding_window\": null", FORMAT,
         "sliding_window must be at least 1"},
        {"cohere2", "\"use_qk_norm\": false", "\"use_qk_norm\": true", UNSUPPORTED,
         "use_qk_norm true is not supported: Cohere 2 has no norms of q and k"},
        {"smollm3", "\"no_rope_layers\": [", "\"no_rope_layers\": [1,", FORMAT,
         "no_rope_layers lists 5 layers, but num_hidden_layers is 4"},
        {"smollm3", "\"no_rope_layers\": [\n    1", "\"no_rope_layers\": [\n    \"x\"", FORMAT,
         "no_rope_layers must contain only 0 and 1"},
        {"smollm3", "\"no_rope_layer_interval\": 4", "\"no_rope_layer_interval\": 0", FORMAT,
         "no_rope_layer_interval must be at least 1"},
        {"phi3", "\"sliding_window\": 7", "\"sliding_window\": 0", FORMAT,
         "sliding_window must be at least 1"},
        {"mistral", "\"sliding_window\": 7", "\"sliding_window\": 16777217", FORMAT,
         "an attention window of 16777217 tokens is out of range"},
        {"mistral", "\"num_attention_heads\": 4", "\"num_attention_heads\": 2097152", FORMAT,
         "2097152 heads of 16 dimensions exceed the limit"},
        /* Rotary positions. */
        {"phi3-long", "\"short_factor\": [", "\"short_factor\": [1.5,", FORMAT,
         "rope_parameters.short_factor must list 3 factors"},
        {"phi3-long", "\"long_factor\": [", "\"long_factor\": [], \"x\": [", FORMAT,
         "rope_parameters.long_factor must list 3 factors"},
        {"phi3-long", "\"short_factor\": [\n      1.0", "\"short_factor\": [\n      -1.0", FORMAT,
         "rope_parameters.short_factor must contain positive numbers only"},
        {"phi3-long", "\"long_factor\": [\n      1.1", "\"long_factor\": [\n      1e39", FORMAT,
         "rope_parameters.long_factor must contain positive numbers only"},
        {"phi3-long", "\"original_max_position_embeddings\": 16",
         "\"original_max_position_embeddings\": 0.5", FORMAT, "attention factor"},
        {"phi3-long", "\"original_max_position_embeddings\": 16",
         "\"original_max_position_embeddings\": -16", FORMAT, "the rope scaling has factor -8"},
        {"phi3-long", "\"longrope\"", "\"linear\"", UNSUPPORTED,
         "rope_type 'linear' is not supported; default and longrope are"},
        {"phi3", "\"partial_rotary_factor\": 1.0", "\"partial_rotary_factor\": 0.4", FORMAT,
         "cannot rotate 3 of the 8 dimensions of a head"},
        {"olmo3", "\"sliding_window\": 8",
         "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0}, \"sliding_window\": 8",
         UNSUPPORTED, "rope_scaling and rope_parameters.full_attention are both given; remove one"},
        {"olmo3", "\"rope_parameters\": {",
         "\"rope_parameters\": {\"rope_type\": \"default\"}, \"x\": {", UNSUPPORTED,
         "rope_parameters must have the members full_attention and sliding_attention"},
        {"glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.5", FORMAT,
         "partial_rotary_factor is 1.5; it must be above 0 and at most 1"},
        {"glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0", FORMAT,
         "partial_rotary_factor is 0; it must be above 0 and at most 1"},
        {"mistral3-text", "\"llama_4_scaling_beta\": 0.5,", "", FORMAT,
         "rope_parameters.llama_4_scaling_beta is missing"},
        {"mistral3-text", "\"llama_4_scaling_beta\": 0.5", "\"llama_4_scaling_beta\": 1e300",
         FORMAT, "the factor of the queries is 1e+300; it must be finite"},
        /* Fused weights. */
        {"phi3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 4", FORMAT,
         "model.layers.0.self_attn.qkv_proj.weight in model.safetensors is [64, 32] but must be "
         "[96, 32]"},
        {"phi3", "\"intermediate_size\": 48", "\"intermediate_size\": 40", FORMAT,
         "model.layers.0.mlp.gate_up_proj.weight in model.safetensors is [96, 32] but must be "
         "[80, 32]"},
        {"glm4", "\"intermediate_size\": 48", "\"intermediate_size\": 96", FORMAT,
         "model.layers.0.mlp.gate_up_proj.weight in model.safetensors is [96, 32] but must be "
         "[192, 32]"},
        /* Multimodal configs. */
        {"mistral3", "\"text_config\"", "\"texts_config\"", FORMAT, "text_config is missing"},
        {"mistral3", "\"text_config\": {", "\"text_config\": [], \"x\": {", FORMAT,
         "text_config must be an object"},
        {"mistral3", "\"ministral3\"", "\"mistral4\"", UNSUPPORTED,
         "'mistral4', which Weft does not support"},
        {"mistral3", "\"model_type\": \"mistral3\"",
         "\"model_type\": \"mistral3\", \"quantization_config\": {\"quant_method\": \"fp8\"}",
         UNSUPPORTED, "quantization_config 'fp8' is not supported"},
        {"mistral3", "\"model_type\": \"mistral3\"",
         "\"model_type\": \"mistral3\", \"per_layer_config\": {\"0\": {}}", UNSUPPORTED,
         "per_layer_config"},
        {"mistral3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": \"2\"", FORMAT,
         "text_config.num_key_value_heads must be a whole number"},
        /* Factors. */
        {"granite", "\"residual_multiplier\": 0.43", "\"residual_multiplier\": 0", UNSUPPORTED,
         "residual_multiplier must not be 0"},
        {"granite", "\"logits_scaling\": 1.3", "\"logits_scaling\": 1e39", FORMAT,
         "the factor of the logits is 1e+39; it must be finite"},
        {"granite", "\"attention_multiplier\": 0.21", "\"attention_multiplier\": -1", FORMAT,
         "the attention scale is -1; it must be above 0 and finite"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses(*state, rows[i].name, rows[i].find, rows[i].replace, rows[i].status, rows[i].part);
}

/* ---- GGUF ---- */

/* A key of a GGUF file; `count` values make an array. */
typedef struct {
    const char *fixture, *key;
    wf_gguf_kind kind;
    double value;
    int count;
    int32_t list[5];
    wf_status status;
    const char *part;
} gguf_row;

/* A tensor of a GGUF file, [n] of f32. */
typedef struct {
    const char *fixture, *name;
    float first; /* replaces its first value; 0: the file lacks the tensor */
    const char *part;
} tensor_row;

static void write_row(wf_ctx *ctx, wf_gguf_writer *w, const gguf_row *row)
{
    uint8_t bools[5];
    for (int i = 0; i < row->count; i++)
        bools[i] = row->list[i] != 0;
    if (row->count)
        wt_ok(ctx, wf_gguf_write_array(w, row->key, row->kind,
                                       row->kind == WF_GGUF_BOOL ? (const void *)bools : row->list,
                                       (size_t)row->count));
    else if (row->kind == WF_GGUF_F32)
        wt_ok(ctx, wf_gguf_write_float(w, row->key, row->value));
    else if (row->kind == WF_GGUF_BOOL)
        wt_ok(ctx, wf_gguf_write_bool(w, row->key, row->value != 0));
    else
        wt_ok(ctx, wf_gguf_write_int(w, row->key, row->kind, (int64_t)row->value));
}

static void write_data(wf_ctx *ctx, wf_gguf_writer *w, const wf_stored *t, const float *first)
{
    char changed[256];
    if (first) {
        assert_true(t->bytes >= sizeof *first && t->bytes <= sizeof changed);
        memcpy(changed, t->data, t->bytes);
        memcpy(changed, first, sizeof *first);
    }
    wt_ok(ctx, wf_gguf_write_data(w, first ? changed : (const char *)t->data, t->bytes));
}

/* Writes a file again with one key replaced or added, or one tensor changed, and without Weft's own
 * keys, which would contradict it. One of row and tensor is NULL. */
static void write_changed(wf_ctx *ctx, const wf_gguf *f, const gguf_row *row,
                          const tensor_row *tensor, const char *path)
{
    const wf_store *s = &f->store;
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    for (int i = 0; i < f->pairs; i++)
        if ((!row || strcmp(f->pair[i].key, row->key) != 0) &&
            strncmp(f->pair[i].key, "weft.", 5) != 0 &&
            strncmp(f->pair[i].key, "tokenizer.", 10) != 0)
            wt_ok(ctx, wf_gguf_write_pair(w, &f->pair[i]));
    if (row)
        write_row(ctx, w, row);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < s->count; i++) {
            const wf_stored *t = &s->tensor[i];
            const bool changed = tensor && strcmp(t->name, tensor->name) == 0;
            if (changed && tensor->first == 0)
                continue;
            if (pass == 0)
                wt_ok(ctx, wf_gguf_write_tensor(w, t->name, t->type, &t->shape));
            else
                write_data(ctx, w, t, changed ? &tensor->first : NULL);
        }
        if (pass == 0)
            wt_ok(ctx, wf_gguf_write_begin(w));
    }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

#define I32 WF_GGUF_I32
/* clang-format off */
static const gguf_row gguf_rows[] = {
    {"granite", "granite.attention.head_count", I32, 0, 3, {4, 4, 4}, FORMAT,
     "granite.attention.head_count has 3 values, but the model has 2 layers"},
    {"granite", "granite.attention.head_count_kv", I32, 0, 1, {2}, FORMAT,
     "granite.attention.head_count_kv has 1 value, but the model has 2 layers"},
    {"granite", "granite.attention.head_count_kv", I32, 0, 2, {2, 3}, FORMAT,
     "3 key and value heads do not divide 4"},
    {"granite", "granite.feed_forward_length", I32, 0, 2, {48, 0}, FORMAT,
     "the width of the MLP is 0"},
    {"granite", "granite.attention.key_length", I32, 0, 2, {8, 6}, UNSUPPORTED,
     "granite.attention.key_length has one value per layer; Weft supports only heads of one size"},
    {"granite", "granite.attention.value_length", I32, 0, 2, {8, 6}, UNSUPPORTED,
     "granite.attention.value_length has one value per layer"},
    {"gpt2", "gpt2.attention.head_count_kv", I32, 0, 2, {4, 2}, FORMAT,
     "gpt2 must have as many key and value heads as heads"},
    {"gpt2", "gpt2.attention.head_count", I32, 0, 2, {4, 8}, FORMAT,
     "8 heads of 16 dimensions do not match the width 64"},
    {"granite", "granite.rope.scaling.finetuned", WF_GGUF_BOOL, 0, 0, {0}, UNSUPPORTED,
     "granite.rope.scaling.finetuned is 0"},
    {"granite", "granite.logit_scale", WF_GGUF_F32, INFINITY, 0, {0}, FORMAT,
     "the factor of the logits is inf; it must be finite"},
    {"granite", "granite.expert_count", I32, 8, 0, {0}, UNSUPPORTED, "granite.expert_count is 8"},
    {"olmo3", "olmo2.attention.sliding_window_pattern", WF_GGUF_BOOL, 0, 3, {1, 1, 0}, FORMAT,
     "olmo2.attention.sliding_window_pattern must have 4 boolean values"},
    {"olmo3", "olmo2.attention.sliding_window_pattern", I32, 0, 4, {1, 1, 1, 0}, FORMAT,
     "olmo2.attention.sliding_window_pattern must have 4 boolean values"},
    {"smollm3", "weft.rope_layers", WF_GGUF_BOOL, 0, 5, {1, 1, 1, 0, 1}, FORMAT,
     "weft.rope_layers must have 4 boolean values"},
    {"phi3", "phi3.rope.dimension_count", I32, 10, 0, {0}, FORMAT,
     "cannot rotate 10 of the 8 dimensions of a head"},
    {"phi3", "phi3.rope.dimension_count", I32, 7, 0, {0}, FORMAT,
     "cannot rotate 7 of the 8 dimensions of a head"},
    {"phi3-long", "phi3.rope.dimension_count", I32, 4, 0, {0}, FORMAT,
     "rope_factors_short.weight must have 2 elements of type f32"},
    {"phi3-long", "phi3.rope.scaling.attn_factor", WF_GGUF_F32, -1, 0, {0}, FORMAT,
     "attention factor -1"},
    {"mistral3", "mistral3.rope.scaling.original_context_length", I32, 0, 0, {0}, FORMAT,
     "original"},
    {"glm4", "glm4.nextn_predict_layers", I32, 1, 0, {0}, UNSUPPORTED,
     "glm4.nextn_predict_layers is 1"},
    {"glm4", "glm4.rope.dimension_sections", I32, 0, 4, {2, 1, 1, 0}, UNSUPPORTED,
     "glm4.rope.dimension_sections is present"},
    {"cohere2", "cohere2.attention.sliding_window", I32, -8, 0, {0}, FORMAT,
     "cohere2.attention.sliding_window"},
    {"cohere2", "cohere2.attention.sliding_window", I32, 0, 0, {0}, FORMAT,
     "cohere2.attention.sliding_window is 0 but must be at least 1"},
    {"olmo3", "olmo2.attention.sliding_window", I32, 0, 0, {0}, FORMAT,
     "olmo2.attention.sliding_window is 0 but must be at least 1"},
};
/* clang-format on */

static const tensor_row tensor_rows[] = {
    {"phi3-long", "rope_factors_short.weight", 0,
     "has only one of rope_factors_short.weight and rope_factors_long.weight"},
    {"phi3-long", "rope_factors_long.weight", 0, "has only one of"},
    {"phi3-long", "rope_factors_long.weight", NAN, "rope_factors_long.weight contains nan"},
    {"phi3-long", "rope_factors_short.weight", -1, "rope_factors_short.weight contains -1"},
    {"llama", "rope_freqs.weight", INFINITY, "rope_freqs.weight contains inf"},
};

/* Writes a fixture as a GGUF file, changes it, and fails unless the copy is refused. */
static void refuses_gguf(wf_ctx *ctx, const char *fixture, const gguf_row *row,
                         const tensor_row *tensor, wf_status status, const char *part)
{
    char path[256];
    wt_scratch s;
    wf_model *m;
    wf_gguf *f;
    wt_scratch_make(&s);
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", fixture);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    wt_ok(ctx, wf_model_convert(m, ctx, wt_path(&s, "good.gguf"), NULL));
    wf_model_close(m);
    wt_ok(ctx, wf_gguf_open(ctx, wt_path(&s, "good.gguf"), &f));
    write_changed(ctx, f, row, tensor, wt_path(&s, "bad.gguf"));
    wf_gguf_close(f);
    wt_fails(ctx, wf_model_open(ctx, wt_path(&s, "bad.gguf"), &m), status, part);
    wt_scratch_remove(&s);
}

static void gguf_files(void **state)
{
    for (size_t i = 0; i < sizeof gguf_rows / sizeof *gguf_rows; i++) {
        const gguf_row *row = &gguf_rows[i];
        refuses_gguf(*state, row->fixture, row, NULL, row->status, row->part);
    }
    for (size_t i = 0; i < sizeof tensor_rows / sizeof *tensor_rows; i++) {
        const tensor_row *row = &tensor_rows[i];
        refuses_gguf(*state, row->fixture, NULL, row, FORMAT, row->part);
    }
}

static void unknown_architecture(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf_writer *w;
    wf_model *m;
    wt_scratch s;
    wt_scratch_make(&s);
    wt_ok(ctx, wf_gguf_write_new(ctx, wt_path(&s, "m.gguf"), NULL, &w));
    wt_ok(ctx, wf_gguf_write_text(w, "general.architecture", "gemma9", strlen("gemma9")));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wt_fails(ctx, wf_model_open(ctx, wt_path(&s, "m.gguf"), &m), UNSUPPORTED,
             "m.gguf has the architecture 'gemma9', which Weft does not support; supported are "
             "llama (");
    wt_scratch_remove(&s);
}

/* ---- Layers ---- */

/* A layer may attend to keys of an earlier layer with equal heads that has keys of its own. */
static void shared_keys(void **state)
{
    wf_ctx *ctx = *state;
    const wf_layer usual = {.heads = 4, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .hidden = 48};
    wf_layer layer[3] = {usual, usual, usual};
    const wf_config c = {.family = &wf_family_smollm3,
                         .type = wf_family_smollm3.types,
                         .layers = 3,
                         .vocab = 288,
                         .context = 128,
                         .width = 32,
                         .all = usual,
                         .layer = layer,
                         .eps = 1e-6,
                         .rope = {{.base = 10000, .dims = 8}},
                         .ropes = 1};
    wt_ok(ctx, wf_config_check(ctx, "a model", &c));
    layer[2].shares = 2;
    wt_ok(ctx, wf_config_check(ctx, "a model", &c));
    layer[2].shares = -1;
    wt_fails(ctx, wf_config_check(ctx, "a model", &c), FORMAT,
             "layer 2 shares the keys of layer 3; only an earlier layer's can be shared");
    layer[2].shares = 3;
    wt_fails(ctx, wf_config_check(ctx, "a model", &c), FORMAT, "only an earlier layer's");
    layer[2].shares = 1;
    layer[1].shares = 1;
    wt_fails(
        ctx, wf_config_check(ctx, "a model", &c), FORMAT,
        "layer 2 shares the keys of layer 1, which has other heads or another window, or shares keys itself");
    layer[1].shares = 0;
    layer[1].kv_heads = 4;
    wt_fails(ctx, wf_config_check(ctx, "a model", &c), FORMAT, "which has other heads");
    layer[1] = usual;
    layer[1].key_dim = 6;
    layer[2].shares = 0;
    wt_fails(ctx, wf_config_check(ctx, "a model", &c), FORMAT,
             "cannot rotate 8 of the 6 dimensions of a head");
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(configs), wt_test(gguf_files),
                                       wt_test(unknown_architecture), wt_test(shared_keys)};
    return cmocka_run_group_tests_name("families_bad", tests, NULL, NULL);
}

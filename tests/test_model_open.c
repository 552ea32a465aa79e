/* SPDX-License-Identifier: MIT */
/* test_model_open.c - models that contradict themselves or are damaged: opening or running one
 * fails with one sentence, and leaks nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

/* ---- Modified copies of fixtures ---- */

static void copy_file(wf_ctx *ctx, wt_scratch *s, const char *name, const char *file)
{
    char path[256], *text;
    size_t bytes;
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/%s", name, file);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, &bytes));
    wt_put(s, file, text, bytes);
    wf_mem_free(ctx, text);
}

/* Copies a fixture with one weights file, and replaces the first `find` in its config.json. */
static void copy_model(wf_ctx *ctx, wt_scratch *s, const char *name, const char *find,
                       const char *replace)
{
    char path[256], changed[4096], *text;
    size_t bytes;
    wt_scratch_make(s);
    copy_file(ctx, s, name, "model.safetensors");
    copy_file(ctx, s, name, "tokenizer.json");
    copy_file(ctx, s, name, "tokenizer_config.json");
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/config.json", name);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    if (find) {
        char *at = strstr(text, find);
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, replace,
                 at + strlen(find));
        wt_put_text(s, "config.json", changed);
    } else {
        wt_put(s, "config.json", text, bytes);
    }
    wf_mem_free(ctx, text);
}

static void refuses_config(wf_ctx *ctx, const char *name, const char *find, const char *replace,
                           wf_status status, const char *part)
{
    wt_scratch s;
    wf_model *m;
    copy_model(ctx, &s, name, find, replace);
    wt_fails(ctx, wf_model_open(ctx, s.folder, &m), status, part);
    assert_null(m);
    wt_scratch_remove(&s);
}

static void configs_that_cannot_be(void **state)
{
    static const struct {
        const char *name, *find, *replace;
        wf_status status;
        const char *part;
    } rows[] = {
        {"llama", "\"llama\"", "\"mamba\"", WF_ERR_UNSUPPORTED,
         "'mamba', which Weft does not support"},
        {"llama", "\"llama\"", "\"mamba\"", WF_ERR_UNSUPPORTED, "), gpt2 (GPT-2)"},
        {"llama", "\"model_type\"", "\"model_kind\"", WF_ERR_FORMAT, "model_type is missing"},
        {"llama", "\"hidden_size\"", "\"hidden\"", WF_ERR_FORMAT, "hidden_size is missing"},
        {"llama", "\"pretraining_tp\": 1", "\"quantization_config\": {\"quant_method\": \"gptq\"}",
         WF_ERR_UNSUPPORTED, "quantization_config 'gptq' is not supported"},
        {"llama", "\"pretraining_tp\": 1", "\"partial_rotary_factor\": 0.5", WF_ERR_UNSUPPORTED,
         "partial_rotary_factor 0.5 is not supported"},
        {"llama", "\"pretraining_tp\": 1", "\"per_layer_config\": {\"0\": {}}", WF_ERR_UNSUPPORTED,
         "per_layer_config"},
        {"llama", "\"pretraining_tp\": 1", "\"layer_types\": [\"sliding_attention\"]",
         WF_ERR_FORMAT, "layer_types"},
        {"qwen2", "\"use_sliding_window\": true", "\"use_sliding_window\": false", WF_ERR_FORMAT,
         "layer_types contains sliding_attention"},
        {"qwen2", "\"rope_type\": \"yarn\"", "\"rope_type\": \"yarn\", \"attention_factor\": 0",
         WF_ERR_FORMAT, "rope_parameters.attention_factor 0 must exceed 0"},
        {"qwen2", "\"factor\": 4.0,", "", WF_ERR_FORMAT, "rope_parameters.factor is missing"},
        {"gpt2", "\"add_cross_attention\": false", "\"add_cross_attention\": true",
         WF_ERR_UNSUPPORTED, "add_cross_attention true"},
        {"llama", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0", WF_ERR_FORMAT,
         "the number of heads is 0; it must be 1 to 16777216"},
        {"llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", WF_ERR_FORMAT,
         "3 key and value heads do not divide 4"},
        {"llama", "\"num_attention_heads\": 4", "\"num_attention_heads\": \"4\"", WF_ERR_FORMAT,
         "num_attention_heads must be a whole number"},
        {"llama", "\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", WF_ERR_FORMAT,
         "epsilon of the norms is -1; it must be above 0 and below 1"},
        {"llama", "\"vocab_size\": 288", "\"vocab_size\": 289", WF_ERR_FORMAT,
         "model.embed_tokens.weight in model.safetensors is [288, 256] but must be [289, 256]"},
        {"llama", "\"vocab_size\": 288", "\"vocab_size\": -1", WF_ERR_FORMAT,
         "a vocabulary of -1 tokens is not possible"},
        {"llama", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 2", WF_ERR_FORMAT,
         "model.layers.1.input_layernorm.weight is missing"},
        {"llama", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 1000000000", WF_ERR_FORMAT,
         "the number of layers is 1000000000; it must be 1 to 4096"},
        {"llama", "\"num_hidden_layers\": 1", "\"num_hidden_layers\": 4000", WF_ERR_FORMAT,
         "has 12 tensors, too few for 4000 layers"},
        {"llama", "\"intermediate_size\": 256", "\"intermediate_size\": 128", WF_ERR_FORMAT,
         "model.layers.0.mlp.down_proj.weight"},
        {"llama", "\"silu\"", "\"gelu\"", WF_ERR_UNSUPPORTED,
         "hidden_act 'gelu' is not supported; silu is"},
        {"llama", "\"rope_type\": \"llama3\"", "\"rope_type\": \"longrope\"", WF_ERR_UNSUPPORTED,
         "rope_type 'longrope' is not supported; default, linear, dynamic, llama3 and yarn are"},
        {"llama", "\"factor\": 8.0", "\"factor\": 0", WF_ERR_FORMAT,
         "the rope scaling has factor 0"},
        {"llama", "\"rope_theta\": 500000.0", "\"rope_theta\": -1", WF_ERR_FORMAT,
         "base of the rotary positions is -1; it must be positive and finite"},
        {"llama", "\"head_dim\": 64", "\"head_dim\": 63", WF_ERR_FORMAT,
         "cannot rotate 63 of the 63 dimensions of a head; the number must be even"},
        {"mistral", "\"sliding_window\": 7", "\"sliding_window\": -7", WF_ERR_FORMAT,
         "sliding_window must be at least 1"},
        {"qwen2", "\"sliding_attention\"", "\"chunked_attention\"", WF_ERR_UNSUPPORTED,
         "layer_types"},
        {"gpt2", "\"n_head\": 4", "\"n_head\": 5", WF_ERR_FORMAT,
         "5 heads of 12 dimensions do not match the width 64"},
        {"gpt2", "\"gelu_new\"", "\"relu\"", WF_ERR_UNSUPPORTED,
         "activation_function 'relu' is not supported; gelu_new is"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuses_config(*state, rows[i].name, rows[i].find, rows[i].replace, rows[i].status,
                       rows[i].part);
}

/* transformers 4 uses other keys for the same settings. */
static void older_words(void **state)
{
    static const struct {
        const char *name, *find, *replace;
    } rows[] = {
        {"llama",
         "\"rope_parameters\": {\n    \"factor\": 8.0,\n    \"high_freq_factor\": 4.0,\n    "
         "\"low_freq_factor\": 1.0,\n    \"original_max_position_embeddings\": 8192,\n    "
         "\"rope_theta\": 500000.0,\n    \"rope_type\": \"llama3\"\n  }",
         "\"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, "
         "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": "
         "\"llama3\"}"},
        {"llama-bias",
         "\"rope_parameters\": {\n    \"factor\": 2.0,\n    \"rope_theta\": 10000.0,\n    "
         "\"rope_type\": \"linear\"\n  }",
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}"},
        {"qwen2", "\"layer_types\": [\n    \"full_attention\",\n    \"sliding_attention\"\n  ],\n",
         ""},
        {"mistral", "\"head_dim\": 16,", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wt_scratch s;
        wt_reference r;
        copy_model(*state, &s, rows[i].name, rows[i].find, rows[i].replace);
        wt_reference_read(rows[i].name, &r);
        wt_talker t = wt_talker_open(*state, "cpu", s.folder, NULL);
        float *logits = wt_logits(*state, t.engine, r.prompt, r.prompt_count, r.vocab);
        double error = wt_relative(logits, r.logits, (int64_t)r.prompt_count * r.vocab);
        assert_true(error <= 1e-5);
        free(logits);
        wt_talker_close(&t);
        wt_reference_free(&r);
        wt_scratch_remove(&s);
    }
}

/* ---- Weights ---- */

typedef struct {
    const char *drop, *add;
    const char *narrow; /* loses its last row */
    const char *poison; /* its first element becomes a NaN */
    const char *head;   /* is written again as lm_head.weight */
    bool other;         /* and that copy gets a different first element */
    const char *whole;  /* becomes an i8 tensor */
} change;

static void write_head(wf_ctx *ctx, const wf_store *store, wf_safetensors_writer *w,
                       const change *c, int pass)
{
    const wf_stored *t = wf_store_find(store, c->head);
    assert_non_null(t);
    if (pass == 0) {
        wt_ok(ctx, wf_safetensors_write_tensor(w, "lm_head.weight", t->type, &t->shape));
        return;
    }
    uint8_t *data = malloc(t->bytes);
    memcpy(data, t->data, t->bytes);
    if (c->other)
        data[wf_type_bytes(t->type, 1) - 1] ^= 0x80; /* flips the sign */
    wt_ok(ctx, wf_safetensors_write_data(w, data, t->bytes));
    free(data);
}

/* Writes the weights of a fixture again, with changes. */
static void write_weights(wf_ctx *ctx, wt_scratch *s, const char *name, const change *c)
{
    char path[256];
    wf_store store;
    wf_safetensors_writer *w;
    wf_store_init(&store, ctx);
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/model.safetensors", name);
    wt_ok(ctx, wf_safetensors_read(&store, path));
    wt_ok(ctx, wf_store_seal(&store));
    wt_ok(ctx, wf_safetensors_write_new(ctx, s->folder, "model", 0, &w));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < store.count; i++) {
            const wf_stored *t = &store.tensor[i];
            wf_dims shape = t->shape;
            size_t bytes = t->bytes;
            if (c->drop && strstr(t->name, c->drop))
                continue;
            if (c->narrow && strstr(t->name, c->narrow)) {
                bytes -= bytes / (size_t)shape.d[0];
                shape.d[0]--;
            }
            wf_type type = t->type;
            if (c->whole && strstr(t->name, c->whole)) {
                bytes /= wf_type_bytes(t->type, 1);
                type = WF_I8;
            }
            if (pass == 0) {
                wt_ok(ctx, wf_safetensors_write_tensor(w, t->name, type, &shape));
                continue;
            }
            uint8_t *data = malloc(bytes);
            memcpy(data, t->data, bytes);
            if (c->poison && strstr(t->name, c->poison))
                memset(data, 0xFF, 4);
            wt_ok(ctx, wf_safetensors_write_data(w, data, bytes));
            free(data);
        }
        if (c->head)
            write_head(ctx, &store, w, c, pass);
        if (c->add && pass == 0)
            wt_ok(ctx, wf_safetensors_write_tensor(w, c->add, WF_F32, &(wf_dims){1, {2}}));
        if (c->add && pass == 1)
            wt_ok(ctx, wf_safetensors_write_data(w, (float[]){1, 2}, 8));
        if (pass == 0)
            wt_ok(ctx, wf_safetensors_write_begin(w));
    }
    wt_ok(ctx, wf_safetensors_write_end(w));
    wf_safetensors_write_free(w);
    wf_store_free(&store);
}

static void missing_extra_and_misshapen_weights_are_listed(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *m;
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    write_weights(ctx, &s, "llama-bias",
                  &(change){.drop = "layers.1.mlp.up_proj.weight",
                            .add = "model.layers.0.surprise",
                            .narrow = "layers.0.self_attn.v_proj.weight"});
    wt_fails(ctx, wf_model_open(ctx, s.folder, &m), WF_ERR_FORMAT,
             "model.layers.0.self_attn.v_proj.weight in model.safetensors is [31, 64] but must be "
             "[32, 64]");
    assert_non_null(strstr(wf_ctx_message(ctx), "model.layers.1.mlp.up_proj.weight is missing"));
    assert_non_null(strstr(wf_ctx_message(ctx),
                           "model.layers.0.surprise in model.safetensors is not a weight of "
                           "llama"));
    wt_scratch_remove(&s);
    /* a long list of names is cut, and the rest counted */
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    write_weights(ctx, &s, "llama-bias", &(change){.drop = "layers.1."});
    wt_fails(ctx, wf_model_open(ctx, s.folder, &m), WF_ERR_FORMAT, "; and 12 more");
    wt_scratch_remove(&s);
    /* legacy tensors of old checkpoints are ignored */
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    write_weights(ctx, &s, "llama-bias",
                  &(change){.add = "model.layers.0.self_attn.rotary_emb.inv_freq"});
    wt_ok(ctx, wf_model_open(ctx, s.folder, &m));
    wf_model_close(m);
    wt_scratch_remove(&s);
}

static void weights_of_integers_are_named(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *m;
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    write_weights(ctx, &s, "llama-bias", &(change){.whole = "layers.1.mlp.up_proj.weight"});
    wt_fails(ctx, wf_model_open(ctx, s.folder, &m), WF_ERR_FORMAT,
             "model.layers.1.mlp.up_proj.weight in model.safetensors has type I8, which "
             "Weft cannot read");
    wt_scratch_remove(&s);
}

/* ---- Tied weights ---- */

static int untied;

static void count_untied(void *user, wf_log_level level, const char *message)
{
    (void)user;
    if (level == WF_LOG_WARN && strstr(message, "lm_head.weight differs from the embedding"))
        untied++;
}

/* The config ties the head to the embedding, but the checkpoint has both. Equal tensors are tied,
 * different ones are both used, as in transformers 5; also after conversion. */
static void separate_head_overrides_the_config(void **state)
{
    wf_ctx *ctx = *state;
    wt_reference r;
    wt_reference_read("llama-bias", &r);
    for (int i = 0; i < 3; i++) {
        static const change changes[] = {
            {.head = "model.embed_tokens.weight"},
            {.head = "model.embed_tokens.weight", .other = true},
            {.head = "model.embed_tokens.weight", .drop = "embed_tokens"},
        };
        wt_scratch s, to;
        wf_model *m;
        copy_model(ctx, &s, "llama-bias", NULL, NULL);
        wt_scratch_make(&to);
        write_weights(ctx, &s, "llama-bias", &changes[i]);
        untied = 0;
        wf_ctx_set_log(ctx, count_untied, NULL);
        wt_talker t = wt_talker_open(ctx, "cpu", s.folder, NULL);
        assert_int_equal(t.model->config.tied, i != 1);
        assert_int_equal(untied, i == 1);
        float *logits = wt_logits(ctx, t.engine, r.prompt, r.prompt_count, r.vocab);
        double error = wt_relative(logits, r.logits, (int64_t)r.prompt_count * r.vocab);
        assert_int_equal(error <= 1e-5, i != 1); /* the first logit differs */
        static const char *const ways[] = {"x.gguf", "folder"};
        for (int k = 0; k < 2; k++) {
            wt_ok(ctx, wf_model_convert(t.model, ctx, wt_path(&to, ways[k]), NULL));
            wt_ok(ctx, wf_model_open(ctx, wt_path(&to, ways[k]), &m));
            assert_int_equal(m->config.tied, i != 1);
            assert_int_equal(wf_model_find_weight(m, "output.weight") != NULL, i == 1);
            wf_model_close(m);
        }
        assert_int_equal(untied, i == 1); /* the written config does not tie them */
        wf_ctx_set_log(ctx, NULL, NULL);
        free(logits);
        wt_talker_close(&t);
        wt_scratch_remove(&to);
        wt_scratch_remove(&s);
    }
    wt_reference_free(&r);
}

static int warnings;

static void count_warnings(void *user, wf_log_level level, const char *message)
{
    (void)user;
    if (level == WF_LOG_WARN) {
        assert_non_null(strstr(message, "blk.0.ffn_up.weight has 1 element"));
        warnings++;
    }
}

static void weights_that_are_no_numbers(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_reference r;
    wt_reference_read("llama-bias", &r);
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    write_weights(ctx, &s, "llama-bias", &(change){.poison = "layers.0.mlp.up_proj.weight"});
    wf_ctx_set_log(ctx, count_warnings, NULL);
    wt_talker t = wt_talker_open(ctx, "cpu", s.folder, &(wf_engine_options){.check = true});
    assert_int_equal(warnings, 1);
    /* sampling from NaN logits ends the sequence instead of returning a token */
    wf_sequence *q;
    for (int temperature = 0; temperature < 2; temperature++) {
        const wf_request request = {.limit = 1, .sampling = {.temperature = temperature}};
        wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, r.prompt_count, &request, &q));
        wt_ok(ctx, wf_engine_step(t.engine, NULL));
        wf_status why;
        const char *error = wf_sequence_error(q, &why);
        assert_int_equal(wf_sequence_stop(q), WF_STOP_ERROR);
        assert_int_equal(why, WF_ERR_DEVICE);
        assert_non_null(strstr(error, temperature ? "the model's logit of token 0 is "
                                                  : "the model's logits are NaN or infinite"));
        size_t count;
        wf_sequence_tokens(q, &count, NULL);
        assert_int_equal(count, r.prompt_count); /* no token */
        wf_sequence_free(q);
    }
    wt_talker_close(&t);
    wt_reference_free(&r);
    wt_scratch_remove(&s);
}

/* ---- Files ---- */

static void files_cut_short_are_refused(void **state)
{
    wf_ctx *ctx = *state;
    static const long sizes[] = {0, 1, 7, 8, 100, 5000, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        wt_scratch s;
        wf_model *m;
        copy_model(ctx, &s, "llama-bias", NULL, NULL);
        assert_int_equal(truncate(wt_path(&s, "model.safetensors"), sizes[i]), 0);
        wt_fails(ctx, wf_model_open(ctx, s.folder, &m), WF_ERR_FORMAT, "model.safetensors");
        wt_scratch_remove(&s);
    }
}

/* Runs in a child, because it changes signal handlers; the child has none of the parent's
 * threads. */
static int cut_while_running(void)
{
    wf_ctx *ctx;
    wt_scratch s;
    wt_reference r;
    wf_sequence *q;
    if (wf_ctx_new(&ctx) != WF_OK)
        return 1;
    wf_guard_mapped_files(true);
    wt_reference_read("llama-bias", &r);
    copy_model(ctx, &s, "llama-bias", NULL, NULL);
    wt_talker t = wt_talker_open(ctx, "cpu:1", s.folder, NULL);
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, r.prompt_count, NULL, &q));
    wt_ok(ctx, wf_engine_step(t.engine, NULL));
    if (truncate(wt_path(&s, "model.safetensors"), 4096) != 0)
        return 2;
    wf_status status = wf_engine_step(t.engine, NULL);
    bool reported = strstr(wf_ctx_message(ctx), "truncated") != NULL;
    wf_sequence_free(q);
    wt_talker_close(&t);
    wt_reference_free(&r);
    wt_scratch_remove(&s);
    wf_ctx_free(ctx);
    return status == WF_ERR_IO && reported ? 0 : 3;
}

static void a_file_cut_short_while_in_use(void **state)
{
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(cut_while_running());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- Memory ---- */

static wf_status open_and_run(wf_ctx *ctx, const wt_reference *r)
{
    wf_device *device = NULL;
    wf_model *model = NULL;
    wf_engine *e = NULL;
    wf_sequence *s = NULL;
    const wf_request request = {.limit = 2, .stops = 1, .stop = (const char *const[]){"zzz"}};
    wf_status status = wf_device_open(ctx, "cpu:1", &device);
    if (status == WF_OK)
        status = wf_model_open(ctx, r->path, &model);
    if (status == WF_OK)
        status = wf_engine_new(device, model, NULL, &e);
    if (status == WF_OK)
        status = wf_engine_submit(e, r->prompt, 3, &request, &s);
    bool busy = true;
    while (status == WF_OK && busy)
        status = wf_engine_step(e, &busy);
    if (status == WF_OK)
        wf_sequence_error(s, &status); /* the fault of one sequence is no failure of the step */
    if (status == WF_OK) {
        assert_int_equal(wf_sequence_stop(s), WF_STOP_LIMIT);
        wf_sequence_text(s, NULL);
    }
    wf_sequence_free(s);
    wf_engine_free(e);
    wf_model_close(model);
    wf_device_close(device);
    return status;
}

static void every_allocation_may_fail(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const names[] = {"gpt2", "qwen3"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        wt_reference r;
        wt_reference_read(names[i], &r);
        uint64_t nth = 1;
        wf_status status = WF_ERR_MEMORY;
        for (; status != WF_OK; nth += 1 + nth / 8) {
            wf_ctx_fail_allocation(ctx, nth);
            status = open_and_run(ctx, &r);
            if (status != WF_OK)
                assert_int_equal(status, WF_ERR_MEMORY);
            assert_int_equal(wt_live_blocks(ctx), 0);
        }
        wf_ctx_fail_allocation(ctx, 0);
        assert_true(nth > 100);
        wt_reference_free(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(configs_that_cannot_be),
        wt_test(older_words),
        wt_test(missing_extra_and_misshapen_weights_are_listed),
        wt_test(weights_of_integers_are_named),
        wt_test(separate_head_overrides_the_config),
        wt_test(weights_that_are_no_numbers),
        wt_test(files_cut_short_are_refused),
        wt_test(a_file_cut_short_while_in_use),
        wt_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

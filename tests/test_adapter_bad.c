/* SPDX-License-Identifier: MIT */
/* test_adapter_bad.c - invalid adapters are refused with a message that names the reason. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/philox.h"
#include "format/safetensors.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

#define FOLDER "tests/fixtures/lora/llama-bias"

/* A copy of PEFT's folder that a test can damage, and the model of the adapter. */
typedef struct {
    wf_ctx *ctx;
    wt_scratch s;
    wf_model *m;
    char *config, *weights;
    size_t config_bytes, weights_bytes;
} spoilt;

static spoilt spoilt_make(wf_ctx *ctx)
{
    spoilt p = {.ctx = ctx};
    wt_scratch_make(&p.s);
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama-bias", &p.m));
    wt_ok(ctx,
          wf_file_read(ctx, FOLDER "/adapter_config.json", 1 << 20, &p.config, &p.config_bytes));
    wt_ok(ctx, wf_file_read(ctx, FOLDER "/adapter_model.safetensors", 1 << 20, &p.weights,
                            &p.weights_bytes));
    wt_put(&p.s, "adapter_config.json", p.config, p.config_bytes);
    wt_put(&p.s, "adapter_model.safetensors", p.weights, p.weights_bytes);
    return p;
}

static void spoilt_free(spoilt *p)
{
    wf_mem_free(p->ctx, p->config);
    wf_mem_free(p->ctx, p->weights);
    wf_model_close(p->m);
    wt_scratch_remove(&p->s);
}

static void refused(spoilt *p, wf_status status, const char *part)
{
    wf_adapter *a;
    wt_fails(p->ctx, wf_adapter_open(p->ctx, p->s.folder, &p->m->config, &a), status, part);
    assert_null(a);
}

/* Writes the config with the first `from` replaced. */
static void put_config(spoilt *p, const char *from, const char *to)
{
    char text[4096];
    const char *at = strstr(p->config, from);
    if (!at)
        fail_msg("the config has no %s", from);
    int n = snprintf(text, sizeof text, "%.*s%s%s", (int)(at - p->config), p->config, to,
                     at + strlen(from));
    assert_true(n > 0 && n < (int)sizeof text);
    wt_put_text(&p->s, "adapter_config.json", text);
}

/* adapter_config.json with unsupported features or invalid values is refused, and the message
 * names the key. */
static void configs(void **state)
{
    static const struct {
        const char *from, *to;
        wf_status status;
        const char *part;
    } rows[] = {
        {"\"use_dora\": false", "\"use_dora\": true", WF_ERR_UNSUPPORTED, "uses use_dora,"},
        {"\"bias\": \"none\"", "\"bias\": \"all\"", WF_ERR_UNSUPPORTED, "uses bias all,"},
        {"\"lora_bias\": false", "\"lora_bias\": true", WF_ERR_UNSUPPORTED, "uses lora_bias,"},
        {"\"modules_to_save\": null", "\"modules_to_save\": [\"lm_head\"]", WF_ERR_UNSUPPORTED,
         "uses modules_to_save,"},
        {"\"rank_pattern\": {}", "\"rank_pattern\": {\"q_proj\": 2}", WF_ERR_UNSUPPORTED,
         "uses rank_pattern,"},
        {"\"alpha_pattern\": {}", "\"alpha_pattern\": {\"q_proj\": 2}", WF_ERR_UNSUPPORTED,
         "uses alpha_pattern,"},
        {"\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa_niter_4\"",
         WF_ERR_UNSUPPORTED, "uses init_lora_weights pissa_niter_4,"},
        {"\"peft_type\": \"LORA\"", "\"peft_type\": \"IA3\"", WF_ERR_UNSUPPORTED,
         "uses peft_type IA3,"},
        {"\"r\": 4", "\"r\": 5", WF_ERR_FORMAT, "is [4, 64] but must be [5, 64]"},
        {"\"r\": 4", "\"r\": 0", WF_ERR_USAGE, "rank 0"},
        {"\"r\": 4", "\"r\": 9223372036854775807", WF_ERR_USAGE, "rank 9223372036854775807"},
        {"\"r\": 4", "\"r\": 4.5", WF_ERR_FORMAT, "no whole number r"},
        {"\"r\": 4", "\"r\": \"4\"", WF_ERR_FORMAT, "no whole number r"},
        {"\"lora_alpha\": 8", "\"lora_alpha\": null", WF_ERR_FORMAT, "lora_alpha"},
        {"\"lora_dropout\": 0.1", "\"lora_dropout\": 2", WF_ERR_USAGE, "dropout of 2"},
        {"\"k_proj\"", "\"v_proj\"", WF_ERR_FORMAT,
         "lora_A of model.layers.1.self_attn.v_proj is missing"},
        {"[\n    1\n  ]", "null", WF_ERR_FORMAT,
         "lora_A of model.layers.0.self_attn.q_proj is missing"},
        {"{", "[", WF_ERR_FORMAT, "adapter_config.json"},
    };
    spoilt p = spoilt_make(*state);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_config(&p, rows[i].from, rows[i].to);
        refused(&p, rows[i].status, rows[i].part);
    }
    wt_put_text(&p.s, "adapter_config.json", "[]");
    refused(&p, WF_ERR_FORMAT, "not a JSON object");
    spoilt_free(&p);
}

/* An adapter of another model fails: linears are missing or have other sizes. */
static void other_models(void **state)
{
    static const struct {
        const char *model, *part;
    } rows[] = {
        {"gpt2",
         "it contains base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight, but the "
         "model has no such linear"},
        {"qwen3", "is [64, 4] but must be [128, 4]"},
        {"llama", "it contains base_model.model.model.layers.1.self_attn.k_proj.lora_A.weight"},
    };
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[128];
        wf_model *m;
        wf_adapter *a;
        snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", rows[i].model);
        wt_ok(ctx, wf_model_open(ctx, path, &m));
        wt_fails(ctx, wf_adapter_open(ctx, FOLDER, &m->config, &a), WF_ERR_FORMAT, rows[i].part);
        wf_model_close(m);
    }
}

/* ---- Files ---- */

static void put_tensors(spoilt *p, const char *const *names, wf_type type)
{
    wf_safetensors_writer *w;
    const float zeros[4 * 64] = {0};
    size_t bytes = 0;
    wt_ok(p->ctx, wf_safetensors_write_new(p->ctx, p->s.folder, "adapter_model", 0, &w));
    for (int i = 0; names[i]; i++) {
        bool up = strstr(names[i], "lora_B") != NULL;
        int64_t out = strstr(names[i], "k_proj") ? 32 : 64;
        const wf_dims shape = up ? (wf_dims){2, {out, 4}} : (wf_dims){2, {4, 64}};
        wt_ok(p->ctx, wf_safetensors_write_tensor(w, names[i], type, &shape));
        bytes += wf_type_bytes(type, wf_dims_count(&shape));
    }
    wt_ok(p->ctx, wf_safetensors_write_begin(w));
    for (size_t n; bytes > 0; bytes -= n) {
        n = bytes < sizeof zeros ? bytes : sizeof zeros;
        wt_ok(p->ctx, wf_safetensors_write_data(w, zeros, n));
    }
    wt_ok(p->ctx, wf_safetensors_write_end(w));
    wf_safetensors_write_free(w);
}

#define Q "base_model.model.model.layers.1.self_attn.q_proj."
#define K "base_model.model.model.layers.1.self_attn.k_proj."

/* Missing files, and tensors that are missing, unknown or of a wrong type, are refused by name. */
static void files(void **state)
{
    const char *const half[] = {Q "lora_A.weight", Q "lora_B.weight", K "lora_A.weight", NULL};
    const char *const extra[] = {Q "lora_A.weight", Q "lora_B.weight",         K "lora_A.weight",
                                 K "lora_B.weight", Q "lora_magnitude_vector", NULL};
    const char *const copied[] = {Q "lora_A.weight",
                                  Q "lora_B.weight",
                                  K "lora_A.weight",
                                  K "lora_B.weight",
                                  "base_model.model.model.embed_tokens.weight",
                                  NULL};
    spoilt p = spoilt_make(*state);
    wf_adapter *a;
    put_tensors(&p, extra + 5, WF_F32); /* no tensors */
    refused(&p, WF_ERR_FORMAT, "is missing");
    put_tensors(&p, half, WF_F32);
    refused(&p, WF_ERR_FORMAT, "lora_B of model.layers.1.self_attn.k_proj is missing");
    put_tensors(&p, extra, WF_F32);
    refused(&p, WF_ERR_FORMAT, "lora_magnitude_vector");
    put_tensors(&p, copied, WF_F32);
    refused(&p, WF_ERR_UNSUPPORTED, "save_embedding_layers=False");
    put_tensors(&p, half, WF_I32);
    refused(&p, WF_ERR_FORMAT, "as I32");

    wt_path(&p.s, "adapter_model.safetensors");
    remove(p.s.path);
    refused(&p, WF_ERR_FORMAT, "adapter_model.safetensors is missing");
    wt_put_text(&p.s, "adapter_model.bin", "x");
    refused(&p, WF_ERR_FORMAT, "a pickle");
    remove(wt_path(&p.s, "adapter_config.json"));
    refused(&p, WF_ERR_FORMAT, "adapter_config.json is missing");
    wt_fails(p.ctx, wf_adapter_open(p.ctx, wt_path(&p.s, "gone"), &p.m->config, &a), WF_ERR_FORMAT,
             "does not exist");
    spoilt_free(&p);
}

/* A file that is truncated or changed anywhere either opens with readable tensors or is refused. */
static void damaged_anywhere(void **state)
{
    spoilt p = spoilt_make(*state);
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 0);
    int opened = 0;
    for (int round = 0; round < 600; round++) {
        bool config = round % 2;
        size_t size = config ? p.config_bytes : p.weights_bytes;
        char *bytes = malloc(size);
        memcpy(bytes, config ? p.config : p.weights, size);
        size_t keep = round % 3 ? size : wf_rng_below(&rng, size);
        for (uint64_t n = wf_rng_below(&rng, 3); keep > 0 && n > 0; n--)
            bytes[wf_rng_below(&rng, keep)] = (char)wf_rng_u32(&rng);
        wt_put(&p.s, "adapter_config.json", p.config, p.config_bytes);
        wt_put(&p.s, "adapter_model.safetensors", p.weights, p.weights_bytes);
        wt_put(&p.s, config ? "adapter_config.json" : "adapter_model.safetensors", bytes, keep);
        wf_adapter *a;
        wf_info info;
        wf_status status = wf_adapter_open(p.ctx, p.s.folder, &p.m->config, &a);
        if (status != WF_OK)
            assert_true(wt_is_sentence(wf_ctx_message(p.ctx)));
        for (int i = 0; status == WF_OK && wf_adapter_tensor(a, i, &info); i++) {
            float *numbers = malloc(info.bytes);
            wt_ok(p.ctx, wf_adapter_read(a, i, numbers));
            free(numbers);
        }
        opened += status == WF_OK;
        wf_adapter_free(a);
        free(bytes);
    }
    print_message("%d of 600 could be opened\n", opened);
    assert_true(opened > 50 && opened < 500);
    spoilt_free(&p);
}

/* ---- Memory ---- */

static wf_status fetch(void *user, const char *state, void *to, size_t bytes)
{
    (void)user, (void)state;
    memset(to, 0, bytes);
    return WF_OK;
}

static wf_status open_and_save(spoilt *p)
{
    wf_adapter *a;
    WF_TRY(wf_adapter_open(p->ctx, FOLDER, &p->m->config, &a));
    wf_status status = wf_adapter_save(a, p->ctx, p->s.folder, "base", fetch, NULL);
    wf_adapter_free(a);
    return status;
}

/* Fails every allocation once; the adapter that was in the folder stays intact. */
static void out_of_memory(void **state)
{
    spoilt p = spoilt_make(*state);
    wf_status status = WF_ERR_MEMORY;
    int nth = 0;
    uint64_t live = wt_live_blocks(p.ctx);
    while (status != WF_OK) {
        wf_ctx_fail_allocation(p.ctx, (uint64_t)++nth);
        status = open_and_save(&p);
        wf_ctx_fail_allocation(p.ctx, 0);
        assert_int_equal(wt_live_blocks(p.ctx), live);
        assert_int_equal(wt_entries(&p.s), 2);
        if (status != WF_OK)
            wt_fails(p.ctx, status, WF_ERR_MEMORY, "");
        assert_true(nth < 100000);
    }
    assert_true(nth > 20);
    spoilt_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(configs),          wt_test(other_models),  wt_test(files),
        wt_test(damaged_anywhere), wt_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("adapter_bad", tests, NULL, NULL);
}

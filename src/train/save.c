/* SPDX-License-Identifier: MIT */
/*
 * save.c - saves and loads the checkpoint of a trainer.
 *
 *     config.json, model.safetensors, tokenizer.json, ...   the model, f32; or for adapters
 *     adapter_config.json, adapter_model.safetensors        in PEFT's format
 *     optimizer.safetensors                                 other lasting states, and the rows
 *                                                           that pad the vocabulary
 *     trainer.json                                          counters, settings, kernels
 *
 * Gradients are not saved: after an update they are zeros.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/writer.h"
#include "device/device.h"
#include "infer/upload.h"
#include "model/blank.h"
#include "model/family.h"
#include "train/states.h"
#include "train/trainer.h"

#define VERSION 1
#define MOST_BYTES \
    ((size_t)64 << 20)  /* of trainer.json; a deep model has 100,000 launches per step */
#define BASE_SAMPLE 256 /* bytes per weight that identify the base model */

/* ---- The model ---- */

typedef struct {
    wf_trainer *t; /* weights are read from its session */
    bool average;  /* read the moving average instead of the weights */
} source;

static wf_status fetch(void *user, const char *weight, float *to, int64_t count)
{
    source *s = user;
    return wf_trainer_fetch(s->t, weight, s->average, to, count);
}

static wf_status fetch_adapter(void *user, const char *state, void *to, size_t bytes)
{
    wf_trainer *t = user;
    return wf_session_read(t->session, state, to, bytes);
}

/* Writes the model without the rows that pad the vocabulary; type NULL: f32. */
static wf_status save_model(wf_trainer *t, const char *path, bool average, const char *type)
{
    wf_train_info info;
    wf_model *m;
    source from = {t, average};
    if (t->setup.adapter)
        return wf_adapter_save(t->setup.adapter, t->ctx, path, t->setup.options.model,
                               fetch_adapter, t);
    wf_trainer_get_info(t, &info);
    wf_config config = t->setup.config;
    config.vocab -= t->setup.padding;
    const wf_blank blank = {.name = info.name,
                            .config = &config,
                            .tokenizer = t->tokenizer,
                            .chat_template = t->chat_template,
                            .sampling = t->setup.base ? &t->setup.base->sampling : NULL,
                            .fetch = fetch,
                            .user = &from};
    const wf_convert_options options = {.type = type};
    WF_TRY(wf_model_new(t->ctx, &blank, &m));
    wf_status status = wf_model_convert(m, t->ctx, path, &options);
    wf_model_close(m);
    return status;
}

wf_status wf_trainer_export(wf_trainer *t, const char *path, const char *type)
{
    return save_model(t, path, true, type);
}

static bool same_layers(const wf_config *a, const wf_config *b)
{
    for (int64_t i = 0; i < a->layers; i++) {
        const wf_layer *x = wf_config_layer(a, i), *y = wf_config_layer(b, i);
        if (x->hidden != y->hidden || x->heads != y->heads || x->kv_heads != y->kv_heads ||
            x->key_dim != y->key_dim || x->value_dim != y->value_dim)
            return false;
    }
    return true;
}

/* The decoder of a multimodal Mistral is saved as a Mistral, which alone is of the family llama. */
static bool same_family(const wf_config *a, const wf_config *b)
{
    return a->family == b->family || strcmp(a->type->name, b->type->name) == 0;
}

/* Compares what the weights depend on. Files store rounded numbers. Checkpoints of older versions
 * include the vocabulary's padding in the model. */
static bool is_alike(const wf_config *a, const wf_config *b, int64_t padding)
{
    return same_family(a, b) && a->layers == b->layers && a->width == b->width &&
           (a->vocab == b->vocab || a->vocab == b->vocab - padding) && same_layers(a, b) &&
           a->tied == b->tied && (float)a->eps == (float)b->eps &&
           (float)a->rope[0].base == (float)b->rope[0].base &&
           (a->family->rotary || a->context == b->context);
}

/* *padded: the model includes the padding rows. */
static wf_status load_model(wf_trainer *t, const char *folder, bool *padded)
{
    wf_model *m;
    WF_TRY(wf_model_open(t->ctx, folder, &m));
    wf_status status =
        is_alike(&m->config, &t->setup.config, t->setup.padding)
            ? wf_trainer_read_model(t, m)
            : wf_fail(t->ctx, WF_ERR_USAGE,
                      "the folder %s contains a different model: its sizes%s, eps or rope "
                      "base differ from this run's",
                      folder, t->setup.config.family->rotary ? "" : ", the context (--length)");
    *padded = m->config.vocab == t->setup.config.vocab;
    wf_model_close(m);
    return status;
}

static wf_status load_adapter(wf_trainer *t, const char *folder)
{
    wf_adapter *a;
    WF_TRY(wf_adapter_open(t->ctx, folder, &t->setup.config, &a));
    wf_status status = wf_upload_adapter(t->session, a);
    wf_adapter_free(a);
    return status;
}

/* ---- Other states ---- */

/* Returns the first row to save: after the rows in the model file, 0 for the whole state, -1 for
 * none. */
static int64_t beside(void *user, const char *state)
{
    const int64_t rows = *(const int64_t *)user;
    if (rows >= 0 &&
        (strcmp(state, "token_embd.weight") == 0 || strcmp(state, "output.weight") == 0))
        return rows;
    return ((state[0] == 'm' || state[0] == 'v') && state[1] == '.') ||
                   strncmp(state, "ema.", 4) == 0 || strncmp(state, "loss_scale", 10) == 0
               ? 0
               : -1;
}

/* Returns the first padding row; -1: the vocabulary has no padding. */
static int64_t rows_beside(const wf_trainer *t)
{
    return t->setup.padding > 0 ? t->setup.config.vocab - t->setup.padding : -1;
}

/* ---- trainer.json ---- */

/* Returns op/kernel of each kind of launch in a step, and a hash of run-time choices: equal lists,
 * with an equal device, produce equal bits. false past the last index. */
static bool kernel_at(const wf_trainer *t, int index, char out[96])
{
    for (int form = 0; form <= WF_TRAIN_UPDATE; form++) {
        wf_op_stats s;
        for (int i = 0; t->exec[form] && wf_exec_op_stats(t->exec[form], i, &s); i++)
            if (index-- == 0) {
                snprintf(out, 96, "%s/%s", s.op, s.kernel);
                return true;
            }
        if (t->exec[form] && t->exec[form]->choices && index-- == 0) {
            snprintf(out, 96, "choices %016" PRIx64, t->exec[form]->choices);
            return true;
        }
    }
    return false;
}

/* Kernels with one name round differently on different devices. */
static const char *rounds_as(const wf_trainer *t)
{
    return t->device->rounds_as ? t->device->rounds_as : t->device->description;
}

/* Replaces invalid UTF-8, which file names and truncated values may contain: it could not be parsed
 * again. */
static void put_text(wf_writer *w, const char *text)
{
    wf_writer_quoted(w, text, strlen(text));
}

/* Identifies the base model by the first bytes of every weight, so that little is read of a file
 * that may be larger than memory. */
static uint64_t base_identity(const wf_trainer *t)
{
    wf_checksum_state s;
    const wf_model *m = t->setup.base;
    wf_checksum_begin(&s);
    for (int i = 0; i < m->weights; i++)
        for (int k = 0; k < m->weight[i].sources; k++) {
            const wf_stored *from = m->weight[i].source[k].from;
            wf_checksum_add(&s, from->name, strlen(from->name));
            wf_checksum_add(&s, from->data, from->bytes < BASE_SAMPLE ? from->bytes : BASE_SAMPLE);
        }
    return wf_checksum_end(&s);
}

static wf_status save_counts(wf_trainer *t, const char *folder)
{
    const char *name;
    char value[96];
    wf_setting_kind kind;
    wf_arena arena;
    wf_writer w = {.ctx = t->ctx};
    wf_writer_print(&w, "{\n  \"version\": %d,\n  \"weft\": ", VERSION);
    put_text(&w, wf_version_string());
    wf_writer_print(&w, ",\n  \"step\": %" PRId64 ",\n  \"tokens\": %" PRId64, t->step, t->tokens);
    wf_writer_print(&w, ",\n  \"skipped\": %" PRId64 ",\n  \"skipped_in_a_row\": %" PRId64,
                    t->skipped, t->skipped_row);
    wf_writer_print(&w, ",\n  \"data\": \"%016" PRIx64 "\"", t->data);
    if (t->setup.adapter)
        wf_writer_print(&w, ",\n  \"base\": \"%016" PRIx64 "\"", base_identity(t));
    wf_writer_print(&w, ",\n  \"settings\": {");
    for (int i = 0; wf_setup_setting(&t->setup, i, &name, value, &kind); i++) {
        wf_writer_print(&w, "%s\n    \"%s\": ", i ? "," : "", name);
        put_text(&w, value);
    }
    wf_writer_print(&w, "\n  },\n  \"device\": ");
    put_text(&w, rounds_as(t));
    wf_writer_print(&w, ",\n  \"kernels\": [");
    for (int i = 0; kernel_at(t, i, value); i++) {
        wf_writer_print(&w, "%s", i ? ", " : "");
        put_text(&w, value);
    }
    wf_writer_print(&w, "]\n}\n");
    char *text;
    size_t bytes;
    WF_TRY(wf_writer_take(&w, &text, &bytes));
    wf_arena_init(&arena, t->ctx);
    const char *path = wf_path_join(&arena, folder, "trainer.json");
    wf_status status = path ? wf_file_write(t->ctx, path, text, bytes) : WF_ERR_MEMORY;
    wf_arena_free(&arena);
    wf_mem_free(t->ctx, text);
    return status;
}

static wf_status compare_settings(wf_trainer *t, const char *folder, const wf_json_node *json,
                                  bool *exact)
{
    const wf_json_node *settings = wf_json_get(json, "settings");
    const char *name;
    char value[96];
    wf_setting_kind kind;
    for (int i = 0; wf_setup_setting(&t->setup, i, &name, value, &kind); i++) {
        const char *was = wf_json_get_string(settings, name, "");
        if (kind == WF_SETTING_FREE || strcmp(was, value) == 0)
            continue;
        if (kind == WF_SETTING_REFUSED)
            return wf_fail(t->ctx, WF_ERR_USAGE,
                           "the checkpoint %s has %s = %s, but this run has %s; use the same "
                           "setting, or start another run",
                           folder, name, was, value);
        *exact = false;
        wf_ctx_log(t->ctx, WF_LOG_WARN, "not exact: %s was %s and is now %s", name, was, value);
    }
    return WF_OK;
}

/* A checkpoint without this key is accepted. */
static bool is_same(const wf_json_node *json, const char *key, uint64_t identity)
{
    char text[24];
    snprintf(text, sizeof text, "%016" PRIx64, identity);
    return strcmp(wf_json_get_string(json, key, text), text) == 0;
}

/* The identity 0 stands for the caller's own batches, which may or may not be the same data. */
static wf_status compare_data(wf_trainer *t, const char *folder, const wf_json_node *json,
                              bool *exact)
{
    const bool same = is_same(json, "data", t->data);
    const bool unknown = t->data == 0 || is_same(json, "data", 0);
    if (!same && unknown) {
        *exact = false;
        wf_ctx_log(t->ctx, WF_LOG_WARN, "not exact: the data of %s is unknown",
                   t->data == 0 ? "this trainer" : "the checkpoint");
    } else if (!same) {
        return wf_fail(
            t->ctx, WF_ERR_USAGE,
            "the checkpoint %s was trained on other data; use the data that the run started with",
            folder);
    }
    if (t->setup.adapter && !is_same(json, "base", base_identity(t)))
        return wf_fail(
            t->ctx, WF_ERR_USAGE,
            "the checkpoint %s has adapters of a model other than %s; use the model that the run "
            "started with",
            folder, t->setup.options.model);
    return WF_OK;
}

static void compare_kernels(wf_trainer *t, const wf_json_node *json, bool *exact)
{
    const wf_json_node *kernels = wf_json_get(json, "kernels");
    size_t count = kernels && kernels->kind == WF_JSON_ARRAY ? kernels->count : 0, i = 0;
    char value[96];
    const char *device = rounds_as(t);
    bool same = strcmp(wf_json_get_string(json, "device", device), device) == 0;
    for (; kernel_at(t, (int)i, value); i++)
        same &= i < count && wf_json_is(&kernels->child[i], value);
    if (same && i == count)
        return;
    *exact = false;
    wf_ctx_log(
        t->ctx, WF_LOG_WARN,
        "not exact: the kernels differ from the kernels of the checkpoint and round differently");
}

/* Rejects a checkpoint of another run. Differences that only change rounding are logged and clear
 * *exact. */
static wf_status compare(wf_trainer *t, const char *folder, const wf_json_node *json, bool *exact)
{
    *exact = true;
    WF_TRY(compare_settings(t, folder, json, exact));
    WF_TRY(compare_data(t, folder, json, exact));
    compare_kernels(t, json, exact);
    return WF_OK;
}

/* Compares before it changes any counter, so that a refused checkpoint leaves the trainer as it
 * was. */
static wf_status load_counts(wf_trainer *t, wf_arena *arena, const char *folder, bool *exact)
{
    char *text;
    size_t bytes;
    wf_json_node *json;
    const char *path = wf_path_join(arena, folder, "trainer.json");
    if (!path)
        return WF_ERR_MEMORY;
    WF_TRY(wf_file_read(t->ctx, path, MOST_BYTES, &text, &bytes));
    wf_status status = wf_json_parse(arena, path, text, bytes, &json);
    wf_mem_free(t->ctx, text);
    WF_TRY(status);
    if (wf_json_get_int(json, "version", 0) != VERSION)
        return wf_fail(t->ctx, WF_ERR_FORMAT,
                       "the checkpoint %s has a format that this version of Weft does not read",
                       folder);
    WF_TRY(compare(t, folder, json, exact));
    t->step = wf_json_get_int(json, "step", -1);
    t->tokens = wf_json_get_int(json, "tokens", -1);
    t->skipped = wf_json_get_int(json, "skipped", -1);
    t->skipped_row = wf_json_get_int(json, "skipped_in_a_row", -1);
    if (t->step < 0 || t->step > INT32_MAX || t->tokens < 0 || t->skipped < 0 || t->skipped_row < 0)
        return wf_fail(t->ctx, WF_ERR_FORMAT,
                       "the checkpoint %s has invalid counters in trainer.json", folder);
    return WF_OK;
}

/* ---- Checkpoints ---- */

wf_status wf_trainer_save(wf_trainer *t, const char *folder)
{
    WF_TRY(save_model(t, folder, false, NULL));
    int64_t rows = rows_beside(t);
    WF_TRY(wf_states_save(t->session, folder, "optimizer.safetensors", beside, &rows));
    return save_counts(t, folder);
}

static wf_status load(wf_trainer *t, wf_arena *arena, const char *folder, bool *exact)
{
    const char *states = wf_path_join(arena, folder, "optimizer.safetensors");
    if (!states)
        return WF_ERR_MEMORY;
    WF_TRY(load_counts(t, arena, folder, exact));
    bool padded = true;
    WF_TRY(t->setup.adapter ? load_adapter(t, folder) : load_model(t, folder, &padded));
    int64_t rows = padded ? -1 : rows_beside(t);
    return wf_states_load(t->session, states, beside, &rows);
}

wf_status wf_trainer_load(wf_trainer *t, const char *folder, bool *exact)
{
    wf_arena arena;
    *exact = false;
    wf_arena_init(&arena, t->ctx);
    wf_status status = load(t, &arena, folder, exact);
    wf_arena_free(&arena);
    return status;
}

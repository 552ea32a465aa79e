/* SPDX-License-Identifier: MIT */
/*
 * adapter_save.c - writes an adapter as a PEFT folder, which adapter_open.c and PEFT read.
 *
 * Matrices are written in the row order of Hugging Face checkpoints. Both files are complete on
 * disk before either gets its final name; the configuration is renamed last.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/sink.h"
#include "base/writer.h"
#include "format/safetensors.h"
#include "model/adapter_priv.h"
#include "model/rows.h"

typedef struct {
    const wf_adapter *a;
    wf_ctx *ctx;
    wf_arena arena;
    const char *folder;
    wf_adapter_fetch *fetch;
    void *user;
    wf_safetensors_writer *weights;
    wf_sink *config; /* sealed until the weights are complete */
} saver;

/* ---- adapter_config.json ---- */

/* Counts the adapted linears of one row of the family's table, at most one per layer. */
static int64_t count_row(const wf_adapter *a, const wf_weight_name *row)
{
    int64_t n = 0;
    for (int i = 0; i < a->linears; i++)
        n += a->linear[i].row == row;
    return n;
}

/* Returns whether every layer has an adapter for this row. */
static bool is_complete(const wf_adapter *a, const wf_weight_name *row)
{
    return count_row(a, row) == (strstr(row->name, "%d") ? a->config.layers : 1);
}

/* Returns the part of the name after `mark`, or all of it. */
static const char *behind(const char *name, const char *mark)
{
    const char *at = strstr(name, mark);
    return at ? at + strlen(mark) : name;
}

/* Returns the shortest name by which PEFT finds the modules of a row and no others: "c_attn". Two
 * GPT-2 modules are called c_proj, so the name is "attn.c_proj" unless the adapter has both. */
static const char *short_name(const wf_adapter *a, const wf_weight_name *row)
{
    const char *dot = strrchr(row->hugging_face, '.');
    const char *last = dot ? dot + 1 : row->hugging_face;
    for (const wf_weight_name *w = a->config.family->weights; w->name; w++)
        if (wf_adapter_ends(w->hugging_face, last, strlen(last)) && !is_complete(a, w))
            return behind(row->hugging_face, "%d.");
    return last;
}

static void put_target(wf_writer *w, const char *name, int *count)
{
    wf_writer_print(w, "%s\n    ", (*count)++ ? "," : "");
    wf_writer_quoted(w, name, strlen(name));
}

/* Writes target_modules. If an adapter has a row only in some layers, it lists those modules one by
 * one. */
static void put_targets(const wf_adapter *a, wf_writer *w)
{
    const wf_weight_name *rows = a->config.family->weights;
    int count = 0;
    for (const wf_weight_name *row = rows; row->name; row++) {
        bool complete = is_complete(a, row), said = false;
        for (const wf_weight_name *r = rows; r < row && complete; r++)
            said |= is_complete(a, r) && strcmp(short_name(a, r), short_name(a, row)) == 0;
        if (complete && !said)
            put_target(w, short_name(a, row), &count);
        for (int i = 0; i < a->linears && !complete; i++)
            if (a->linear[i].row == row)
                put_target(w, a->linear[i].module, &count);
    }
}

static void put_number(wf_writer *w, const char *key, double value)
{
    char text[WF_TEXT_DOUBLE];
    wf_text_from_double(text, value);
    wf_writer_print(w, "  \"%s\": %s,\n", key, text);
}

static void put_config(const wf_adapter *a, const char *base_name, wf_writer *w)
{
    bool transposed = false;
    for (int i = 0; i < a->linears; i++)
        transposed |= (a->linear[i].row->flags & WF_NAME_TRANSPOSED) != 0;
    wf_writer_print(w, "{\n  \"alpha_pattern\": {},\n  \"auto_mapping\": null,\n"
                       "  \"base_model_name_or_path\": ");
    wf_writer_quoted(w, base_name, strlen(base_name));
    wf_writer_print(w,
                    ",\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n"
                    "  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n",
                    transposed ? "true" : "false");
    put_number(w, "lora_alpha", a->options.alpha);
    put_number(w, "lora_dropout", a->options.dropout);
    wf_writer_print(w,
                    "  \"modules_to_save\": null,\n  \"peft_type\": \"LORA\",\n"
                    "  \"r\": %" PRId64 ",\n  \"rank_pattern\": {},\n  \"revision\": null,\n"
                    "  \"target_modules\": [",
                    a->options.rank);
    put_targets(a, w);
    wf_writer_print(w,
                    "\n  ],\n  \"task_type\": \"CAUSAL_LM\",\n  \"use_dora\": false,\n"
                    "  \"use_rslora\": %s\n}\n",
                    a->options.rslora ? "true" : "false");
}

static wf_status write_config(saver *s, const char *base_name)
{
    wf_writer w = {.ctx = s->ctx};
    char *text;
    size_t bytes;
    put_config(s->a, base_name, &w);
    WF_TRY(wf_writer_take(&w, &text, &bytes));
    const char *path = wf_path_join(&s->arena, s->folder, "adapter_config.json");
    wf_status status = path ? wf_sink_open(s->ctx, path, &s->config) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_sink_write(s->config, text, bytes);
    if (status == WF_OK)
        status = wf_sink_seal(s->config);
    wf_mem_free(s->ctx, text);
    return status;
}

/* ---- adapter_model.safetensors ---- */

/* Declares all tensors; the header must be known before the data. */
static wf_status declare(saver *s)
{
    wf_info info;
    for (int i = 0; wf_adapter_tensor(s->a, i, &info); i++) {
        const wf_dims shape = {2, {info.dim[0], info.dim[1]}};
        char name[2 * WF_NAME_BYTES];
        size_t len = 0;
        wf_text_append(name, sizeof name, &len, "base_model.model.%s.lora_%c.weight",
                       s->a->linear[i / 2].module, "AB"[i % 2]);
        WF_TRY(wf_safetensors_write_tensor(s->weights, name, WF_F32, &shape));
    }
    return WF_OK;
}

static wf_status write_tensor(saver *s, int index, const wf_info *info)
{
    const wf_adapter *a = s->a;
    const wf_adapted *l = &a->linear[index / 2];
    const size_t row = (size_t)info->dim[1] * sizeof(float);
    wf_row_order order = WF_ROWS_AS_THEY_ARE;
    if (index % 2)
        order = wf_rows_order(&a->config, l->row, a->config.rope[0].interleaved, false);
    char *numbers = wf_mem_new(s->ctx, info->bytes);
    wf_status status =
        numbers ? s->fetch(s->user, info->name, numbers, info->bytes) : WF_ERR_MEMORY;
    for (int64_t i = 0; i < info->dim[0] && status == WF_OK; i++)
        status = wf_safetensors_write_data(
            s->weights, numbers + (size_t)wf_rows_source(&a->config, order, i) * row, row);
    wf_mem_free(s->ctx, numbers);
    return status;
}

static wf_status write_folder(saver *s, const char *base_name)
{
    wf_info info;
    WF_TRY(wf_safetensors_write_new(s->ctx, s->folder, "adapter_model", 0, &s->weights));
    WF_TRY(declare(s));
    WF_TRY(wf_safetensors_write_begin(s->weights));
    for (int i = 0; wf_adapter_tensor(s->a, i, &info); i++)
        WF_TRY(write_tensor(s, i, &info));
    WF_TRY(write_config(s, base_name));
    WF_TRY(wf_safetensors_write_end(s->weights));
    return wf_sink_commit(s->config);
}

wf_status wf_adapter_save(const wf_adapter *a, wf_ctx *ctx, const char *folder,
                          const char *base_name, wf_adapter_fetch *fetch, void *user)
{
    saver s = {.a = a, .ctx = ctx, .folder = folder, .fetch = fetch, .user = user};
    wf_arena_init(&s.arena, ctx);
    wf_status status = write_folder(&s, base_name);
    wf_sink_free(s.config);
    wf_safetensors_write_free(s.weights);
    wf_arena_free(&s.arena);
    return status;
}

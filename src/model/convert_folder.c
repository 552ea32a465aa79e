/* SPDX-License-Identifier: MIT */
/*
 * convert_folder.c - writes a model as a Hugging Face folder.
 *
 * All files are complete and on disk before the first one gets its final name; the weights get
 * theirs last. Only files that belong to a model are replaced or removed.
 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sink.h"
#include "format/safetensors.h"
#include "model/convert.h"

#define MOST_ENTRIES 10000             /* most entries in an output folder */
#define MOST_BYTES ((size_t)256 << 20) /* of a file that is copied */

/* Files next to the weights. `copied`: copy it unchanged if the model comes from a folder. */
static const struct {
    const char *name;
    bool copied;
} beside[] = {
    {"config.json", false},
    {"generation_config.json", true},
    {"tokenizer.json", true},
    {"tokenizer_config.json", true},
    {"chat_template.jinja", true},
    {"chat_template.json", true},
    {"special_tokens_map.json", true},
    {"added_tokens.json", true},
    {"vocab.json", true},
    {"merges.txt", true},
    {"tokenizer.model", true},
};
#define BESIDE ((int)(sizeof beside / sizeof *beside))

typedef struct {
    wf_convert *c;
    wf_type type; /* of most matrices */
    bool made;    /* this conversion created the folder, and removes it on failure */
    struct {
        char *text; /* NULL: do not write this file */
        size_t bytes;
        wf_sink *sink;
    } file[BESIDE];
    /* Owned, as the texts and sinks are. NULL until the weights are written. */
    wf_safetensors_writer *weights;
} folder;

/* ---- Types ---- */

static bool is_plain(wf_type type)
{
    return wf_type_get(type)->kind == WF_KIND_FLOAT;
}

static wf_type type_of_matrix(const folder *f, const wf_model_weight_info *w)
{
    if (f->c->recipe)
        return f->c->recipe->type;
    return is_plain(w->from->type) ? w->from->type : WF_F16;
}

/* Chooses a vector's type. GGUF files store vectors as f32. They get the matrices' type if that is
 * lossless. A model without a file keeps f32. */
static wf_status type_of_vector(const folder *f, const wf_model_weight_info *w, wf_type *out)
{
    wf_ctx *ctx = f->c->ctx;
    int64_t count = wf_dims_count(&w->shape);
    size_t bytes = (size_t)count * sizeof(float);
    *out = WF_F32;
    if (!w->from->data)
        return WF_OK;
    float *numbers = wf_mem_new(ctx, bytes), *back = wf_mem_new(ctx, bytes);
    void *narrow = wf_mem_new(ctx, bytes);
    wf_status status = numbers && back && narrow ? wf_weight_read(ctx, w, numbers) : WF_ERR_MEMORY;
    if (status == WF_OK) {
        wf_convert_from_f32(f->type, numbers, narrow, count);
        wf_convert_to_f32(f->type, narrow, back, count);
        *out = memcmp(numbers, back, bytes) == 0 ? f->type : WF_F32;
    }
    wf_mem_free(ctx, narrow);
    wf_mem_free(ctx, back);
    wf_mem_free(ctx, numbers);
    return status;
}

/* The type of most matrix elements; it becomes torch_dtype. */
static wf_status choose_type(folder *f)
{
    const wf_model *m = f->c->m;
    const wf_recipe *r = f->c->recipe;
    int64_t count[WF_TYPE_COUNT] = {0};
    if (r && !is_plain(r->type))
        return wf_fail(
            f->c->ctx, WF_ERR_USAGE,
            "a Hugging Face folder can hold f32, f16 or bf16, not %s; choose one of these, or a "
            "path that ends in .gguf",
            r->name);
    f->type = WF_F32;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        /* Vectors follow the matrices later, in type_of_vector. */
        wf_type type = type_of_matrix(f, w);
        if (w->shape.n < 2)
            continue;
        count[type] += wf_dims_count(&w->shape);
        if (count[type] > count[f->type])
            f->type = type;
    }
    return WF_OK;
}

/* ---- Weights ---- */

static wf_status add_item(folder *f, const wf_model_weight_info *w)
{
    wf_convert *c = f->c;
    char name[WF_NAME_BYTES];
    /* Every weight of a bound model has a row: wf_model_bind made sure. */
    const wf_weight_name *row = wf_family_hugging_face(c->m->config.family, w->name, true, name);
    wf_assert(row);
    wf_convert_item *item = &c->item[c->items++];
    *item = (wf_convert_item){
        .name = wf_arena_strdup(&c->arena, name),
        .type = type_of_matrix(f, w),
        .shape = w->shape,
        .from = w->from,
        .weight = w->name,
        .order = wf_rows_order(&c->m->config, row, c->m->config.rope[0].interleaved, false)};
    if (!item->name)
        return WF_ERR_MEMORY;
    if (w->shape.n < 2)
        return type_of_vector(f, w, &item->type);
    if (row->flags & WF_NAME_TRANSPOSED) {
        item->transpose = !w->transposed;
        item->transposed = true;
        item->shape = (wf_dims){2, {w->shape.d[1], w->shape.d[0]}};
    }
    return WF_OK;
}

/* Puts tensors with 4-byte elements first, so that all tensors are aligned. */
static void sort_items(wf_convert *c, wf_convert_item *sorted)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < c->items; i++)
            if ((c->item[i].type == WF_F32) == (pass == 0))
                sorted[n++] = c->item[i];
    c->item = sorted;
}

static wf_status list_items(folder *f)
{
    wf_convert *c = f->c;
    WF_TRY(wf_convert_items(c));
    for (int i = 0; i < c->m->weights; i++)
        WF_TRY(add_item(f, &c->m->weight[i]));
    wf_convert_item *sorted = wf_arena_alloc(&c->arena, (size_t)c->items * sizeof *sorted);
    if (!sorted)
        return WF_ERR_MEMORY;
    sort_items(c, sorted);
    return WF_OK;
}

static wf_status write_piece(void *to, const void *data, size_t bytes)
{
    return wf_safetensors_write_data(to, data, bytes);
}

static wf_status write_weights(folder *f)
{
    wf_convert *c = f->c;
    WF_TRY(
        wf_safetensors_write_new(c->ctx, c->path, "model", c->options->split_bytes, &f->weights));
    for (int i = 0; i < c->items; i++)
        WF_TRY(wf_safetensors_write_tensor(f->weights, c->item[i].name, c->item[i].type,
                                           &c->item[i].shape));
    WF_TRY(wf_safetensors_write_begin(f->weights));
    return wf_convert_data(c, write_piece, f->weights);
}

/* ---- Other files ---- */

/* Returns the index in `beside`, or -1. */
static int find(const char *name)
{
    for (int i = 0; i < BESIDE; i++)
        if (strcmp(beside[i].name, name) == 0)
            return i;
    return -1;
}

/* Copies text that belongs to another context. */
static wf_status keep(folder *f, const char *name, const char *text, size_t bytes)
{
    int i = find(name);
    f->file[i].text = wf_mem_new(f->c->ctx, bytes + 1);
    if (!f->file[i].text)
        return WF_ERR_MEMORY;
    memcpy(f->file[i].text, text, bytes);
    f->file[i].bytes = bytes;
    return WF_OK;
}

static wf_status copy_files(folder *f)
{
    wf_convert *c = f->c;
    for (int i = 0; i < BESIDE; i++) {
        const char *path = wf_path_join(&c->arena, c->m->path, beside[i].name);
        if (!path)
            return WF_ERR_MEMORY;
        if (beside[i].copied && wf_path_look(path) == WF_PATH_FILE)
            WF_TRY(wf_file_read(c->ctx, path, MOST_BYTES, &f->file[i].text, &f->file[i].bytes));
    }
    return WF_OK;
}

static wf_status make_tokenizer(folder *f)
{
    const wf_model *m = f->c->m;
    char *text = NULL;
    size_t bytes = 0;
    wf_status status = wf_tokenizer_to_json(m->tokenizer, f->c->ctx, &text, &bytes);
    if (status == WF_OK)
        status = keep(f, "tokenizer.json", text, bytes);
    wf_mem_free(f->c->ctx, text);
    text = NULL;
    if (status == WF_OK)
        status =
            wf_tokenizer_to_config(m->tokenizer, f->c->ctx, m->info.chat_template, &text, &bytes);
    if (status == WF_OK)
        status = keep(f, "tokenizer_config.json", text, bytes);
    wf_mem_free(f->c->ctx, text);
    return status;
}

/* tokenizer_config.json with a list of templates is copied unchanged; otherwise warn. */
static void warn_templates(const folder *f)
{
    const wf_model *m = f->c->m;
    const wf_json_node *list =
        m->folder ? wf_json_get(m->folder->tokenizer_config, "chat_template") : NULL;
    if (m->tool_template && !(list && list->kind == WF_JSON_ARRAY))
        wf_ctx_log(
            f->c->ctx, WF_LOG_WARN,
            "the folder gets only the default chat template, not the one for tools; copy that to "
            "additional_chat_templates/tool_use.jinja");
}

/* Makes the texts of all files in memory before the first byte is written. */
static wf_status make_files(folder *f)
{
    wf_convert *c = f->c;
    const wf_model *m = c->m;
    warn_templates(f);
    int config = find("config.json"), generation = find("generation_config.json");
    WF_TRY(wf_convert_config_json(c, f->type, &f->file[config].text, &f->file[config].bytes));
    if (m->folder)
        return copy_files(f);
    if (m->info.chat_template)
        WF_TRY(
            keep(f, "chat_template.jinja", m->info.chat_template, strlen(m->info.chat_template)));
    if (!m->tokenizer) {
        wf_ctx_log(c->ctx, WF_LOG_WARN, "the folder has no tokenizer: %s", m->no_tokenizer);
        return WF_OK;
    }
    WF_TRY(wf_convert_generation_json(c, &f->file[generation].text, &f->file[generation].bytes));
    return make_tokenizer(f);
}

static wf_status write_files(folder *f)
{
    wf_convert *c = f->c;
    for (int i = 0; i < BESIDE; i++) {
        if (!f->file[i].text)
            continue;
        const char *path = wf_path_join(&c->arena, c->path, beside[i].name);
        if (!path)
            return WF_ERR_MEMORY;
        WF_TRY(wf_sink_open(c->ctx, path, &f->file[i].sink));
        WF_TRY(wf_sink_write(f->file[i].sink, f->file[i].text, f->file[i].bytes));
        WF_TRY(wf_sink_seal(f->file[i].sink));
    }
    return WF_OK;
}

/* ---- The folder ---- */

/* Returns N for model-00001-of-0000N.safetensors, or 0 for another name. */
static int shards_of(const char *name)
{
    int no, count, used = 0;
    if (sscanf(name, "model-%5d-of-%5d.safetensors%n", &no, &count, &used) != 2 || used == 0 ||
        name[used] || no < 1 || no > count)
        return 0;
    return count;
}

static bool is_ours(const char *name)
{
    return find(name) >= 0 || shards_of(name) > 0 || strcmp(name, "model.safetensors") == 0 ||
           strcmp(name, "model.safetensors.index.json") == 0;
}

/* Rejects a folder that contains anything but a model: the user hardly meant it. */
static wf_status look_at_folder(folder *f)
{
    wf_convert *c = f->c;
    const char *const *names;
    size_t count;
    wf_path_kind kind = wf_path_look(c->path);
    f->made = kind == WF_PATH_NONE;
    if (f->made)
        return WF_OK;
    if (kind != WF_PATH_FOLDER)
        return wf_fail(c->ctx, WF_ERR_USAGE,
                       "the path '%s' is a file; choose a folder, or a path that ends in .gguf",
                       c->path);
    WF_TRY(wf_path_list(&c->arena, c->path, MOST_ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        char shown[WF_TEXT_SHOWN];
        if (!is_ours(names[i]))
            return wf_fail(c->ctx, WF_ERR_USAGE,
                           "the folder '%s' contains '%s', which is not part of a model; choose a "
                           "new or empty folder",
                           c->path, wf_text_show(shown, names[i], strlen(names[i])));
    }
    return WF_OK;
}

/* Removes files of a model: those that the new model lacks, or with `all` every one. */
static wf_status clean(folder *f, bool all)
{
    wf_convert *c = f->c;
    int files = f->weights ? wf_safetensors_write_files(f->weights) : 0;
    const char *const *names;
    size_t count;
    WF_TRY(wf_path_list(&c->arena, c->path, MOST_ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        int at = find(names[i]), shards = shards_of(names[i]);
        bool old = at >= 0 ? !f->file[at].text : shards > 0 && shards != files;
        const char *path = wf_path_join(&c->arena, c->path, names[i]);
        if (!path)
            return WF_ERR_MEMORY;
        if (old || (all && is_ours(names[i])))
            WF_TRY(wf_path_remove(c->ctx, path));
    }
    return WF_OK;
}

/* Weights last: a folder that has its weights is complete. */
static wf_status commit(folder *f)
{
    for (int i = 0; i < BESIDE; i++)
        if (f->file[i].sink)
            WF_TRY(wf_sink_commit(f->file[i].sink));
    WF_TRY(wf_safetensors_write_end(f->weights));
    return clean(f, false);
}

/* Everything that can fail for lack of a feature comes before the first byte is written. */
static wf_status write_folder(folder *f)
{
    WF_TRY(choose_type(f));
    WF_TRY(look_at_folder(f));
    WF_TRY(make_files(f));
    WF_TRY(list_items(f));
    WF_TRY(write_weights(f));
    WF_TRY(write_files(f));
    return commit(f);
}

/* After a failure, removes a folder that this conversion created. Keeps the error message. */
static void undo(folder *f)
{
    wf_ctx *ctx = f->c->ctx;
    char message[WF_MESSAGE_BYTES];
    wf_status status = ctx->status;
    memcpy(message, wf_ctx_message(ctx), sizeof message);
    if (wf_path_look(f->c->path) == WF_PATH_FOLDER && clean(f, true) == WF_OK)
        wf_path_remove_empty(f->c->path);
    wf_ctx_clear(ctx);
    if (status != WF_OK)
        wf_fail(ctx, status, "%s", message);
}

wf_status wf_convert_to_folder(wf_convert *c)
{
    folder f = {.c = c};
    wf_status status = write_folder(&f);
    for (int i = 0; i < BESIDE; i++)
        wf_sink_free(f.file[i].sink);
    if (status != WF_OK) {
        wf_safetensors_write_free(f.weights); /* removes incomplete files first */
        f.weights = NULL;
        if (f.made)
            undo(&f);
    }
    for (int i = 0; i < BESIDE; i++)
        wf_mem_free(c->ctx, f.file[i].text);
    wf_safetensors_write_free(f.weights);
    return status;
}

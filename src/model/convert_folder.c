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
    return is_plain(w->type) ? w->type : WF_F16;
}

/* Chooses a vector's type. GGUF files store vectors as f32. They get the matrices' type if that is
 * lossless. A model without a file keeps f32. */
static wf_status type_of_vector(const folder *f, const wf_model_weight_info *w, float add,
                                wf_type *out)
{
    wf_ctx *ctx = f->c->ctx;
    int64_t count = wf_dims_count(&w->shape);
    size_t bytes = (size_t)count * sizeof(float);
    *out = WF_F32;
    if (f->c->m->fetch)
        return WF_OK;
    float *numbers = wf_mem_new(ctx, bytes), *back = wf_mem_new(ctx, bytes);
    void *narrow = wf_mem_new(ctx, bytes);
    wf_status status = numbers && back && narrow ? wf_weight_read(ctx, w, numbers) : WF_ERR_MEMORY;
    if (status == WF_OK) {
        for (int64_t i = 0; i < count; i++)
            numbers[i] += add;
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

/* Swaps the last two axes. */
static wf_dims swapped(wf_dims s)
{
    int64_t last = s.d[s.n - 1];
    s.d[s.n - 1] = s.d[s.n - 2];
    s.d[s.n - 2] = last;
    return s;
}

/* Lists a weight that is one tensor in the folder. */
static wf_status add_whole(folder *f, const wf_model_weight_info *const *w,
                           const wf_weight_name *row, wf_convert_item *item)
{
    const bool plus_one = row->flags & WF_NAME_PLUS_ONE;
    const wf_gather values = {.weight = w, .weights = 1, .add = plus_one ? -1 : 0};
    WF_TRY(wf_convert_take(f->c, *w, item));
    if (plus_one && f->c->m->folder && (*w)->sources == 1) { /* the tensor as it is */
        item->from = (*w)->source->from;
        item->gather = NULL;
        item->type = item->from->type;
        return WF_OK;
    }
    const bool stack = (*w)->shape.n > 2 && row->flags & WF_NAME_TRANSPOSED;
    if (plus_one || (stack && item->from))
        WF_TRY(wf_convert_take_gathered(f->c, &values, item));
    if ((*w)->shape.n < 2)
        return type_of_vector(f, *w, values.add, &item->type);
    if (row->flags & WF_NAME_TRANSPOSED) {
        item->transpose = item->from && !item->transpose;
        item->transposed = true;
        item->shape = swapped((*w)->shape);
    }
    return WF_OK;
}

/* Lists the tensors of all experts of a stack [E, F, C]. */
static wf_status add_experts(folder *f, const wf_model_weight_info *const *w,
                             const wf_weight_name *row)
{
    wf_convert *c = f->c;
    const wf_dims *s = &(*w)->shape;
    wf_assert(s->n > 2 && !(row->flags & ~WF_NAME_TRANSPOSED)); /* as family.h says */
    const int64_t experts = wf_dims_rows(s) / s->d[s->n - 2], rows = s->d[s->n - 2];
    for (int64_t e = 0; e < experts; e++) {
        char name[WF_NAME_BYTES];
        const wf_gather values = {.weight = w, .weights = 1, .first = e * rows};
        wf_family_part_name(c->m->config.family, (*w)->name, true, (int)e, name);
        wf_convert_item *item = &c->item[c->items++];
        *item = (wf_convert_item){.name = wf_arena_strdup(&c->arena, name),
                                  .type = type_of_matrix(f, *w),
                                  .shape = {2, {rows, wf_dims_last(s)}},
                                  .transposed = row->flags & WF_NAME_TRANSPOSED};
        if (!item->name)
            return WF_ERR_MEMORY;
        WF_TRY(wf_convert_take_gathered(f->c, &values, item));
        if (item->transposed)
            item->shape = swapped(item->shape);
    }
    return WF_OK;
}

/* Lists the tensor that several weights share. */
static wf_status add_shared(folder *f, const wf_model_weight_info *const *w, int count,
                            const wf_weight_name *row, wf_convert_item *item)
{
    const wf_gather values = {
        .weight = w, .weights = count, .alternate = row->flags & WF_NAME_ALTERNATE};
    const int axis = item->shape.n > 1 ? item->shape.n - 2 : 0;
    item->weight = NULL;
    item->order = WF_ROWS_AS_THEY_ARE; /* gathering orders the rows */
    for (int i = 1; i < count; i++)
        item->shape.d[axis] += w[i]->shape.d[axis];
    if (row->flags & WF_NAME_TRANSPOSED && item->shape.n > 1) {
        item->transposed = true;
        item->shape = swapped(item->shape);
    }
    for (int i = 0; i < count; i++) { /* a type that holds all of them */
        wf_type type = type_of_matrix(f, w[i]);
        if (item->shape.n < 2)
            WF_TRY(type_of_vector(f, w[i], 0, &type));
        item->type = i == 0 || type == item->type ? type : WF_F32;
    }
    return wf_convert_take_gathered(f->c, &values, item);
}

/* Lists the weights with the same tensor in the folder, in the order of the table. */
static wf_status find_sharers(folder *f, const wf_model_weight_info *w, const wf_weight_name *row,
                              const wf_model_weight_info ***list, int *count)
{
    const wf_convert *c = f->c;
    const wf_weight_name *rows = c->m->config.family->weights;
    size_t most = 0;
    while (rows[most].name)
        most++;
    *count = 0;
    *list = wf_arena_alloc(&f->c->arena, most * sizeof **list);
    if (!*list)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < most; i++) {
        char name[WF_NAME_BYTES];
        if (strcmp(rows[i].hugging_face, row->hugging_face) != 0)
            continue;
        wf_family_sibling(row, &rows[i], w->name, name);
        const wf_model_weight_info *other = &rows[i] == row ? w : wf_model_find_weight(c->m, name);
        if (other)
            (*list)[(*count)++] = other;
    }
    return WF_OK;
}

static wf_status add_item(folder *f, const wf_model_weight_info *w)
{
    wf_convert *c = f->c;
    char name[WF_NAME_BYTES];
    const wf_model_weight_info **list;
    int count;
    /* Every weight of a bound model has a row: wf_model_bind made sure. */
    const wf_weight_name *row = wf_family_hugging_face(c->m->config.family, w->name, true, name);
    wf_assert(row);
    WF_TRY(find_sharers(f, w, row, &list, &count));
    if (list[0] != w) /* listed with the first of them */
        return WF_OK;
    if (strstr(row->hugging_face, "%e"))
        return add_experts(f, list, row);
    wf_convert_item *item = &c->item[c->items++];
    *item = (wf_convert_item){
        .name = wf_arena_strdup(&c->arena, name),
        .type = type_of_matrix(f, w),
        .shape = w->shape,
        .weight = w->name,
        .order = wf_rows_order(&c->m->config, row, c->m->config.rope[0].interleaved, false)};
    if (!item->name)
        return WF_ERR_MEMORY;
    return count > 1 ? add_shared(f, list, count, row, item) : add_whole(f, list, row, item);
}

/* Returns the number of tensors, or more. */
static size_t count_items(const wf_model *m)
{
    size_t count = 0;
    for (int i = 0; i < m->weights; i++) {
        const wf_dims *s = &m->weight[i].shape;
        count += s->n > 2 ? (size_t)(wf_dims_rows(s) / s->d[s->n - 2]) : 1;
    }
    return count;
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
    WF_TRY(wf_convert_items(c, count_items(c->m)));
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

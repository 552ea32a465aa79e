/* SPDX-License-Identifier: MIT */
/*
 * convert.c - converts a model: checks what is possible, then writes a GGUF file or a folder.
 *
 * The output must not be one of the inputs, under any name: inputs stay mapped while the output is
 * written, and completing the output would replace them.
 */
#include "model/convert.h"

#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/thread.h"

#define MOST_THREADS 256               /* more would only add buffers */
#define MOST_ENTRIES ((size_t)1 << 20) /* most entries read from an output folder */

wf_status wf_convert_items(wf_convert *c, size_t most)
{
    c->item = wf_arena_alloc(&c->arena, (most + 1) * sizeof *c->item);
    return c->item ? WF_OK : WF_ERR_MEMORY;
}

static bool is_block(wf_type type)
{
    return wf_type_get(type)->kind == WF_KIND_BLOCK;
}

/* Returns a quantized type that the item's values have in the input and not in the output, or the
 * output's. */
static wf_type lost_type(const wf_convert_item *item)
{
    const wf_gather *g = item->gather;
    if (item->from && is_block(item->from->type))
        return item->from->type;
    for (int i = 0; g && i < g->weights; i++)
        for (int k = 0; k < g->weight[i]->sources; k++) {
            wf_type type = g->weight[i]->source[k].from->type;
            if (is_block(type) && type != item->type)
                return type;
        }
    return item->type;
}

/* Merging changes a quantized weight, so that it no longer fits its blocks exactly. */
static wf_status check_merged(const wf_convert *c)
{
    for (int i = 0; i < c->items && !c->recipe; i++) {
        const wf_convert_item *item = &c->item[i];
        if (item->weight && is_block(item->type) && wf_merge_changes(c, item->weight))
            return wf_fail(
                c->ctx, WF_ERR_USAGE,
                "%s is quantized to %s, and merging an adapter changes it; choose a type for the "
                "weights (--type f16, --type %s)",
                item->name, wf_type_name(item->type), wf_type_name(item->type));
    }
    return WF_OK;
}

wf_status wf_convert_check(const wf_convert *c)
{
    WF_TRY(check_merged(c));
    for (int i = 0; i < c->items && !c->options->requantize; i++) {
        const wf_convert_item *item = &c->item[i];
        const wf_type from = lost_type(item);
        if (from != item->type && is_block(item->type))
            return wf_fail(
                c->ctx, WF_ERR_USAGE,
                "%s is already quantized to %s; quantizing it to %s loses more than quantizing the "
                "original; convert the original, or allow this with --allow-requantize",
                item->name, wf_type_name(from), wf_type_name(item->type));
    }
    return WF_OK;
}

/* Returns true if `name` is a part of the split file STEM.gguf. */
static bool is_part(const char *stem, const char *name)
{
    size_t n = strlen(stem) - strlen(".gguf");
    return strncmp(stem, name, n) == 0 && strlen(name + n) == strlen("-00001-of-00001.gguf") &&
           name[n] == '-' && strncmp(name + n + 6, "-of-", 4) == 0;
}

static wf_status refuse_itself(const wf_convert *c)
{
    return wf_fail(c->ctx, WF_ERR_USAGE,
                   "cannot convert '%s' onto itself; choose another output path", c->path);
}

/* Fails if the output `path` is one of the input folder's files: weights, tokenizer or
 * configuration. */
static wf_status check_inside(wf_convert *c, const char *path, const char *folder)
{
    const char *const *names;
    size_t count;
    if (wf_path_look(folder) != WF_PATH_FOLDER)
        return WF_OK;
    WF_TRY(wf_path_list(&c->arena, folder, MOST_ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *input = wf_path_join(&c->arena, folder, names[i]);
        if (!input)
            return WF_ERR_MEMORY;
        if (wf_path_same(path, input))
            return refuse_itself(c);
    }
    return WF_OK;
}

/* Fails if `path` is a file of the model or of an adapter. */
static wf_status check_inputs(wf_convert *c, const char *path)
{
    const wf_convert_options *o = c->options;
    if (wf_path_look(path) != WF_PATH_FILE)
        return WF_OK;
    for (int i = 0; i < c->m->store->files; i++)
        if (wf_path_same(path, c->m->store->file[i].path))
            return refuse_itself(c);
    WF_TRY(check_inside(c, path, c->m->path));
    for (int i = 0; i < o->loras; i++)
        WF_TRY(check_inside(c, path, o->lora[i].path));
    return WF_OK;
}

/* An input file must not be an output file: completing the output would destroy it. In an output
 * folder only links matter, because they are followed; other files are replaced by name. */
static wf_status check_itself(wf_convert *c, bool gguf)
{
    const char *folder = gguf ? wf_path_parent(&c->arena, c->path) : c->path;
    const char *const *names = NULL;
    size_t count = 0;
    if (!folder)
        return WF_ERR_MEMORY;
    if (!gguf && wf_path_same(c->path, c->m->path))
        return refuse_itself(c);
    if (gguf)
        WF_TRY(check_inputs(c, c->path));
    if ((!gguf || c->options->split_bytes > 0) && wf_path_look(folder) == WF_PATH_FOLDER)
        WF_TRY(wf_path_list(&c->arena, folder, MOST_ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *path = wf_path_join(&c->arena, folder, names[i]);
        if (!path)
            return WF_ERR_MEMORY;
        if (gguf ? is_part(wf_store_base_name(c->path), names[i]) : wf_path_is_link(path))
            WF_TRY(check_inputs(c, path));
    }
    return WF_OK;
}

/* Opens the importance matrix and checks that it is of this model. */
static wf_status open_importance(wf_convert *c)
{
    const wf_model *m = c->m;
    int count = 0;
    if (!c->options->imatrix)
        return WF_OK;
    if (!c->recipe && c->options->tensor_type_count == 0)
        return wf_fail(c->ctx, WF_ERR_USAGE,
                       "an importance matrix is of use only when weights are quantized; choose a "
                       "type, such as --type Q4_K_M");
    WF_TRY(wf_importance_open(c->ctx, c->options->imatrix, &c->importance));
    wf_matrix_columns *matrices =
        wf_arena_alloc(&c->arena, ((size_t)m->weights + 1) * sizeof *matrices);
    if (!matrices)
        return WF_ERR_MEMORY;
    for (int i = 0; i < m->weights; i++) {
        const wf_dims *shape = &m->weight[i].shape;
        if (shape->n >= 2)
            matrices[count++] = (wf_matrix_columns){m->weight[i].name, wf_dims_last(shape),
                                                    shape->n == 3 ? shape->d[0] : 0};
    }
    return wf_importance_check(&c->importance, matrices, count);
}

static wf_status convert(wf_convert *c)
{
    bool gguf = wf_path_ends(c->path, ".gguf");
    if (c->options->type)
        WF_TRY(wf_recipe_find(c->ctx, c->options->type, &c->recipe));
    if (c->options->tensor_type_count > 0 && !gguf)
        return wf_fail(
            c->ctx, WF_ERR_USAGE,
            "types of single tensors need a GGUF file; choose a path that ends in .gguf");
    WF_TRY(wf_overrides_make(c->ctx, c->options->tensor_types, c->options->tensor_type_count,
                             &c->overrides));
    WF_TRY(open_importance(c));
    WF_TRY(check_itself(c, gguf));
    WF_TRY(
        wf_adapters_open(c->ctx, c->options->lora, c->options->loras, &c->m->config, &c->adapters));
    return gguf ? wf_convert_to_gguf(c) : wf_convert_to_folder(c);
}

wf_status wf_model_convert(const wf_model *model, wf_ctx *ctx, const char *path,
                           const wf_convert_options *options)
{
    static const wf_convert_options none;
    wf_convert c = {.m = model,
                    .ctx = ctx,
                    .overrides = {.ctx = ctx},
                    .path = path,
                    .options = options ? options : &none};
    c.threads = c.options->threads > 0 ? c.options->threads : wf_threads_available();
    c.threads = c.threads < MOST_THREADS ? c.threads : MOST_THREADS;
    wf_arena_init(&c.arena, ctx);
    wf_ctx_clear(ctx);
    wf_status status = convert(&c);
    /* Functions on the model report in the context that it was opened with; copy the error. */
    if (status != WF_OK && ctx != model->ctx && ctx->status == WF_OK)
        wf_fail(ctx, status, "%s", wf_ctx_message(model->ctx));
    wf_mem_free(ctx, c.kept.data);
    wf_adapters_close(&c.adapters);
    wf_importance_close(&c.importance);
    wf_overrides_free(&c.overrides);
    wf_arena_free(&c.arena);
    return status;
}

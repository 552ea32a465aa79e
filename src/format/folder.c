/* SPDX-License-Identifier: MIT */
/*
 * folder.c - reads a Hugging Face folder: configurations, chat templates and weights. See folder.h.
 *
 * Every file is limited in size before it is read. A missing optional file is not an error; a
 * malformed one is. Weights are mapped, not read.
 */
#include "format/folder.h"

#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "format/safetensors.h"

#define ENTRIES 100000 /* most entries in a model's folder */

/* ---- Configurations ---- */

/* Reads a file with one JSON object. *out is NULL if the file does not exist. */
static wf_status read_object(wf_folder *f, const char *name, const wf_json_node **out)
{
    const char *path = wf_path_join(&f->arena, f->path, name);
    char *text;
    size_t bytes;
    wf_json_node *root;
    *out = NULL;
    if (!path)
        return WF_ERR_MEMORY;
    /* Missing, or not accessible, which is then treated as missing. */
    if (wf_path_look(path) == WF_PATH_NONE)
        return WF_OK;
    WF_TRY(wf_file_read(f->ctx, path, WF_FOLDER_JSON, &text, &bytes));
    wf_status status = wf_json_parse(&f->arena, path, text, bytes, &root);
    wf_mem_free(f->ctx, text);
    if (status == WF_OK && root->kind != WF_JSON_OBJECT)
        status = wf_fail(f->ctx, WF_ERR_FORMAT, "cannot read '%s': it is not a JSON object", path);
    if (status == WF_OK)
        *out = root;
    return status;
}

/* ---- Chat templates ---- */

/* Checks size and encoding of a template; *out borrows the text. */
static wf_status take_template(wf_folder *f, const char *file, const char *text, size_t bytes,
                               const char **out)
{
    if (bytes > WF_FOLDER_TEMPLATE)
        return wf_fail(f->ctx, WF_ERR_FORMAT,
                       "cannot read the chat template of '%s/%s': it is larger than %zu bytes",
                       f->path, file, WF_FOLDER_TEMPLATE);
    for (size_t i = 0, n; i < bytes; i += n) {
        n = wf_text_utf8(text + i, bytes - i);
        if (n == 0)
            return wf_fail(f->ctx, WF_ERR_FORMAT,
                           "cannot read the chat template of '%s/%s': it is not UTF-8", f->path,
                           file);
    }
    *out = text;
    return WF_OK;
}

static wf_status read_template_file(wf_folder *f, const char *name, const char **out)
{
    const char *path = wf_path_join(&f->arena, f->path, name);
    char *text;
    size_t bytes;
    if (!path)
        return WF_ERR_MEMORY;
    if (wf_path_look(path) == WF_PATH_NONE)
        return WF_OK;
    WF_TRY(wf_file_read(f->ctx, path, WF_FOLDER_TEMPLATE, &text, &bytes));
    const char *copy = wf_arena_copy(&f->arena, text, bytes + 1); /* + 1: the NUL */
    wf_mem_free(f->ctx, text);
    return copy ? take_template(f, name, copy, bytes, out) : WF_ERR_MEMORY;
}

/* Finds a template in the value of "chat_template": a string, which is the template "default", or a
 * list of {name, template}. Leaves *out if it is missing. */
static wf_status find_template(wf_folder *f, const char *file, const wf_json_node *object,
                               const char *name, const char **out)
{
    const wf_json_node *t = wf_json_get(object, "chat_template");
    if (!t || t->kind == WF_JSON_NULL)
        return WF_OK;
    if (t->kind == WF_JSON_STRING)
        return strcmp(name, "default") == 0 ? take_template(f, file, t->string, t->bytes, out)
                                            : WF_OK;
    if (t->kind != WF_JSON_ARRAY)
        return wf_fail(
            f->ctx, WF_ERR_FORMAT,
            "cannot read the chat template of '%s/%s': it is neither a string nor a list", f->path,
            file);
    for (size_t i = 0; i < t->count; i++) {
        const wf_json_node *text = wf_json_get(&t->child[i], "template");
        if (wf_json_is(wf_json_get(&t->child[i], "name"), name) && text &&
            text->kind == WF_JSON_STRING)
            return take_template(f, file, text->string, text->bytes, out);
    }
    return WF_OK;
}

/* Looks for one template: in its own file, then in tokenizer_config.json, then in
 * chat_template.json. *out stays NULL if there is none. */
static wf_status read_template(wf_folder *f, const char *file, const char *name, const char **out)
{
    const wf_json_node *object;
    WF_TRY(read_template_file(f, file, out));
    if (!*out)
        WF_TRY(find_template(f, "tokenizer_config.json", f->tokenizer_config, name, out));
    if (*out)
        return WF_OK;
    WF_TRY(read_object(f, "chat_template.json", &object));
    return find_template(f, "chat_template.json", object, name, out);
}

static wf_status read_templates(wf_folder *f)
{
    WF_TRY(read_template(f, "chat_template.jinja", "default", &f->chat_template));
    return read_template(f, "additional_chat_templates/tool_use.jinja", "tool_use",
                         &f->tool_template);
}

static wf_status copy_template(wf_arena *arena, const char *text, const char **out)
{
    *out = text ? wf_arena_strdup(arena, text) : NULL;
    return text && !*out ? WF_ERR_MEMORY : WF_OK;
}

/* Reads only what is needed for the templates, and copies them, because the parsed JSON is
 * freed. */
wf_status wf_folder_templates(wf_arena *arena, const char *path, const char **chat,
                              const char **tool)
{
    wf_folder f = {.ctx = arena->ctx, .path = path};
    *chat = *tool = NULL;
    wf_arena_init(&f.arena, arena->ctx);
    wf_status status = read_object(&f, "tokenizer_config.json", &f.tokenizer_config);
    if (status == WF_OK)
        status = read_templates(&f);
    if (status == WF_OK)
        status = copy_template(arena, f.chat_template, chat);
    if (status == WF_OK)
        status = copy_template(arena, f.tool_template, tool);
    wf_arena_free(&f.arena);
    return status;
}

/* ---- Weights ---- */

/* Pickles are refused by name, because opening one can run code. */
static wf_status fail_weights(const wf_folder *f, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(names[i], "pytorch_model", 13) == 0 && wf_path_ends(names[i], ".bin"))
            return wf_fail(
                f->ctx, WF_ERR_FORMAT,
                "cannot read '%s': its weights '%.100s' are a pickle, which can run arbitrary "
                "code when opened; save them as safetensors with transformers' "
                "save_pretrained",
                f->path, names[i]);
    return wf_fail(f->ctx, WF_ERR_FORMAT,
                   "cannot read '%s': it has no weights; expected model.safetensors, or "
                   "model.safetensors.index.json and its files",
                   f->path);
}

/* Finds weights with an unusual name: the only *.safetensors in the folder. */
static wf_status find_weights(wf_folder *f, const char **path)
{
    const char *const *names, *only = NULL;
    size_t count;
    WF_TRY(wf_path_list(&f->arena, f->path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (!wf_path_ends(names[i], ".safetensors"))
            continue;
        if (only)
            return wf_fail(
                f->ctx, WF_ERR_FORMAT,
                "cannot read '%s': it has several weight files, '%.100s' and '%.100s', but no "
                "model.safetensors.index.json",
                f->path, only, names[i]);
        only = names[i];
    }
    if (!only)
        return fail_weights(f, names, count);
    *path = wf_path_join(&f->arena, f->path, only);
    return *path ? WF_OK : WF_ERR_MEMORY;
}

/* model.safetensors wins over an index. The store is sealed when all tensors are known. */
static wf_status read_weights(wf_folder *f)
{
    const char *path = wf_path_join(&f->arena, f->path, "model.safetensors");
    const char *index = wf_path_join(&f->arena, f->path, "model.safetensors.index.json");
    if (!path || !index)
        return WF_ERR_MEMORY;
    bool single = wf_path_look(path) != WF_PATH_NONE;
    if (!single && wf_path_look(index) != WF_PATH_NONE) {
        WF_TRY(wf_safetensors_read_index(&f->store, index));
        return wf_store_seal(&f->store);
    }
    if (!single)
        WF_TRY(find_weights(f, &path));
    WF_TRY(wf_safetensors_read(&f->store, path));
    return wf_store_seal(&f->store);
}

/* ---- The folder ---- */

static wf_status read_folder(wf_folder *f, const char *path)
{
    f->path = wf_arena_strdup(&f->arena, path);
    if (!f->path)
        return WF_ERR_MEMORY;
    WF_TRY(read_object(f, "config.json", &f->config));
    if (!f->config) {
        wf_format_kind kind;
        WF_TRY(wf_format_detect(f->ctx, path, &kind)); /* has a better message */
        return wf_fail(f->ctx, WF_ERR_FORMAT, "cannot read '%s': it is not a Hugging Face folder",
                       path);
    }
    WF_TRY(read_object(f, "generation_config.json", &f->generation));
    WF_TRY(read_object(f, "tokenizer_config.json", &f->tokenizer_config));
    WF_TRY(read_templates(f));
    return read_weights(f);
}

wf_status wf_folder_open(wf_ctx *ctx, const char *path, wf_folder **out)
{
    *out = NULL;
    wf_folder *f = wf_mem_new(ctx, sizeof *f);
    if (!f)
        return WF_ERR_MEMORY;
    f->ctx = ctx;
    wf_arena_init(&f->arena, ctx);
    wf_store_init(&f->store, ctx);
    wf_status status = read_folder(f, path);
    if (status == WF_OK)
        *out = f;
    else
        wf_folder_close(f);
    return status;
}

void wf_folder_close(wf_folder *f)
{
    if (!f)
        return;
    wf_store_free(&f->store);
    wf_arena_free(&f->arena);
    wf_mem_free(f->ctx, f);
}

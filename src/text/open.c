/* SPDX-License-Identifier: MIT */
/* open.c - opens a tokenizer by path, and saves one to a folder. */

#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "format/folder.h"
#include "text/token_priv.h"

#define JSON_MOST ((size_t)256 << 20) /* bytes of tokenizer.json; read whole */

/* path: a tokenizer.json. Also reads tokenizer_config.json in the same folder, if it exists. */
static wf_status from_file(wf_ctx *ctx, wf_arena *arena, const char *path, const char *folder,
                           wf_tokenizer **out)
{
    const char *beside = wf_path_join(arena, folder, "tokenizer_config.json");
    char *json = NULL, *config = NULL;
    size_t bytes = 0, config_bytes = 0;
    wf_status status = beside ? wf_file_read(ctx, path, JSON_MOST, &json, &bytes) : WF_ERR_MEMORY;
    if (status == WF_OK && wf_path_look(beside) == WF_PATH_FILE)
        status = wf_file_read(ctx, beside, WF_FOLDER_JSON, &config, &config_bytes);
    if (status == WF_OK)
        status = wf_tokenizer_from_json(ctx, path, json, bytes, config, config_bytes, out);
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
    return status;
}

wf_status wf_tokenizer_from_folder(wf_ctx *ctx, const char *folder, wf_tokenizer **out)
{
    wf_arena arena;
    wf_format_kind kind;
    *out = NULL;
    wf_arena_init(&arena, ctx);
    const char *path = wf_path_join(&arena, folder, "tokenizer.json");
    wf_status status = path ? WF_OK : WF_ERR_MEMORY;
    if (path && wf_path_look(path) != WF_PATH_FILE)
        status = wf_format_detect(ctx, folder, &kind); /* better message if it is no model folder */
    if (path && status == WF_OK && wf_path_look(path) != WF_PATH_FILE)
        status = wf_fail(
            ctx, WF_ERR_IO,
            "cannot read '%s': it has no tokenizer.json; create one by saving a fast tokenizer "
            "with transformers",
            folder);
    if (status == WF_OK)
        status = from_file(ctx, &arena, path, folder, out);
    wf_arena_free(&arena);
    return status;
}

/* The tokenizer copies all that it needs, so the file is closed again. */
static wf_status open_gguf(wf_ctx *ctx, const char *path, wf_tokenizer **out)
{
    wf_gguf *f;
    WF_TRY(wf_gguf_open(ctx, path, &f));
    wf_status status = wf_tokenizer_from_gguf(f, out);
    wf_gguf_close(f);
    return status;
}

/* A folder, a *.json file, or else a GGUF file; wf_format_detect explains what another file is. */
wf_status wf_tokenizer_open(wf_ctx *ctx, const char *path, wf_tokenizer **out)
{
    *out = NULL;
    if (wf_path_look(path) == WF_PATH_FOLDER)
        return wf_tokenizer_from_folder(ctx, path, out);
    if (!wf_path_ends(path, ".json") || wf_path_look(path) != WF_PATH_FILE) {
        wf_format_kind kind;
        WF_TRY(wf_format_detect(ctx, path, &kind));
        return open_gguf(ctx, path, out);
    }
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    const char *folder = wf_path_parent(&arena, path);
    wf_status status = folder ? from_file(ctx, &arena, path, folder, out) : WF_ERR_MEMORY;
    wf_arena_free(&arena);
    return status;
}

/* Writes folder/name atomically (wf_file_write). */
static wf_status save_as(wf_ctx *ctx, wf_arena *arena, const char *folder, const char *name,
                         const char *text, size_t bytes)
{
    const char *path = wf_path_join(arena, folder, name);
    return path ? wf_file_write(ctx, path, text, bytes) : WF_ERR_MEMORY;
}

wf_status wf_tokenizer_save(const wf_tokenizer *t, wf_ctx *ctx, const char *folder)
{
    wf_arena arena;
    char *json = NULL, *config = NULL;
    size_t bytes, config_bytes;
    wf_arena_init(&arena, ctx);
    wf_status status = wf_tokenizer_to_json(t, ctx, &json, &bytes);
    if (status == WF_OK)
        status = wf_tokenizer_to_config(t, ctx, NULL, &config, &config_bytes);
    if (status == WF_OK)
        status = save_as(ctx, &arena, folder, "tokenizer.json", json, bytes);
    if (status == WF_OK)
        status = save_as(ctx, &arena, folder, "tokenizer_config.json", config, config_bytes);
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
    wf_arena_free(&arena);
    return status;
}

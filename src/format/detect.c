/* SPDX-License-Identifier: MIT */
/*
 * detect.c - decides whether a path is a model, by its contents. For other files and folders the
 * error message says what the path is and what to give instead.
 *
 * Reads the first bytes of a file, or the names in a folder; parses nothing.
 */
#include <string.h>

#include "base/file.h"
#include "base/path.h"
#include "format/folder.h"

#define ENTRIES 10000 /* names that are compared for a suggestion */

/* ---- Missing paths ---- */

/* Suggests the nearest name in the folder, if one is near. */
static wf_status fail_missing(wf_ctx *ctx, wf_arena *arena, const char *path)
{
    const char *const *names, *near = NULL, *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path, *folder = wf_path_parent(arena, path);
    size_t count;
    if (!folder)
        return WF_ERR_MEMORY;
    if (wf_path_look(folder) != WF_PATH_FOLDER)
        return wf_fail(
            ctx, WF_ERR_IO,
            "cannot open '%s': the folder '%s' does not exist; Weft does not download models, so "
            "give a local file or folder",
            path, folder);
    /* A folder with more entries fails here, too, and gets no suggestion. */
    wf_status status = wf_path_list(arena, folder, ENTRIES, &names, &count);
    if (status == WF_ERR_MEMORY)
        return status;
    if (status == WF_OK && *name) /* an unreadable folder only costs the suggestion */
        near = wf_text_nearest(name, names, (int)count);
    if (near)
        return wf_fail(ctx, WF_ERR_IO,
                       "cannot open '%s': it does not exist; did you mean '%.*s%s'?", path,
                       (int)(name - path), path, near);
    return wf_fail(ctx, WF_ERR_IO, "cannot open '%s': it does not exist", path);
}

/* ---- Folders ---- */

/* Explains what a folder without config.json seems to be. */
static wf_status fail_folder(wf_ctx *ctx, wf_arena *arena, const char *path)
{
    const char *const *names;
    size_t count;
    WF_TRY(wf_path_list(arena, path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        if (wf_path_ends(names[i], ".gguf"))
            return wf_fail(
                ctx, WF_ERR_FORMAT,
                "cannot read '%s': the folder has GGUF files and no config.json; give one of "
                "the files, such as '%.100s'",
                path, names[i]);
        if (strcmp(names[i], "adapter_config.json") == 0)
            return wf_fail(
                ctx, WF_ERR_FORMAT,
                "cannot read '%s': it is an adapter; give its base model, or a model into which "
                "the adapter was merged",
                path);
    }
    return wf_fail(ctx, WF_ERR_FORMAT,
                   "cannot read '%s': it is not a Hugging Face folder: config.json is missing",
                   path);
}

static wf_status look_at_folder(wf_ctx *ctx, wf_arena *arena, const char *path, wf_format_kind *out)
{
    const char *config = wf_path_join(arena, path, "config.json");
    if (!config)
        return WF_ERR_MEMORY;
    /* Whether the folder is complete is left to wf_folder_open. */
    if (wf_path_look(config) == WF_PATH_NONE)
        return fail_folder(ctx, arena, path);
    *out = WF_FORMAT_FOLDER;
    return WF_OK;
}

/* ---- Files ---- */

#define PICKLE                                                                                 \
    "it is a pickle, which can run arbitrary code when opened; save the model as safetensors " \
    "with transformers' save_pretrained, and give that folder"
#define OLD "it is a GGML file from before GGUF; convert the model again from its source"

/* Files that are not models, by their first bytes or by the end of their name. The last row matches
 * every file. */
static const struct {
    const char *bytes;
    size_t n;
    const char *end;
    const char *why;
} kinds[] = {
    {"version https://git-lfs", 23, NULL,
     "it is a Git LFS pointer, not the file itself; get the file with git lfs pull"},
    {"lmgg", 4, NULL, OLD},
    {"tjgg", 4, NULL, OLD},
    {"fmgg", 4, NULL, OLD},
    {"PK\3\4", 4, NULL, PICKLE}, /* torch.save: pickles in a zip archive */
    {"\x80\2", 2, NULL, PICKLE}, /* a bare pickle, protocol 2 */
    {NULL, 0, ".bin", PICKLE},
    {NULL, 0, ".pt", PICKLE},
    {NULL, 0, ".pth", PICKLE},
    {NULL, 0, ".safetensors",
     "it has only weights; give the folder with this file and config.json"},
    {NULL, 0, ".json", "it is one file of a model; give its folder"},
    {"", 0, NULL, "it is neither a GGUF file nor a Hugging Face folder"},
};

static wf_status look_at_file(wf_ctx *ctx, const char *path, wf_format_kind *out)
{
    wf_map *map;
    WF_TRY(wf_map_open(ctx, path, &map));
    const char *why = map->size == 0 ? "it is empty" : NULL;
    bool gguf = map->size >= 4 && memcmp(map->data, "GGUF", 4) == 0;
    /* Ends: the last row matches. */
    for (size_t i = 0; !gguf && !why; i++)
        if (kinds[i].end
                ? wf_path_ends(path, kinds[i].end)
                : map->size >= kinds[i].n && memcmp(map->data, kinds[i].bytes, kinds[i].n) == 0)
            why = kinds[i].why;
    wf_map_close(map);
    if (!gguf)
        return wf_fail(ctx, WF_ERR_FORMAT, "cannot read '%s': %s", path, why);
    *out = WF_FORMAT_GGUF;
    return WF_OK;
}

wf_status wf_format_detect(wf_ctx *ctx, const char *path, wf_format_kind *out)
{
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    *out = WF_FORMAT_NONE;
    wf_path_kind kind = wf_path_look(path);
    wf_status status = kind == WF_PATH_NONE     ? fail_missing(ctx, &arena, path)
                       : kind == WF_PATH_FOLDER ? look_at_folder(ctx, &arena, path, out)
                                                : look_at_file(ctx, path, out);
    wf_arena_free(&arena);
    return status;
}

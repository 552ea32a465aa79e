/* SPDX-License-Identifier: MIT */
/* output.c - see output.h. */
#include "base/output.h"

#include "base/path.h"

/* Bounds the listing of an output folder, which only has to tell whether it is empty. */
#define MOST_ENTRIES ((size_t)1 << 20)

static wf_status check_inputs(wf_ctx *ctx, const char *path, const char *const *inputs, int count)
{
    for (int i = 0; i < count; i++)
        if (inputs[i] && wf_path_same(path, inputs[i]))
            return wf_fail(ctx, WF_ERR_USAGE,
                           "cannot write '%s': it is the same as the input '%s'; choose another "
                           "path",
                           path, inputs[i]);
    return WF_OK;
}

static wf_status refuse(wf_ctx *ctx, const char *path)
{
    return wf_fail(ctx, WF_ERR_USAGE,
                   "'%s' exists; choose another path, or replace it with --overwrite", path);
}

wf_status wf_output_check(wf_ctx *ctx, const char *path, bool overwrite, const char *const *inputs,
                          int count)
{
    wf_path_kind kind = wf_path_look(path);
    if (kind == WF_PATH_FOLDER)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "cannot write '%s': it is a folder; choose a path for a file", path);
    if (kind != WF_PATH_FILE || wf_path_is_stream(path))
        return WF_OK;
    WF_TRY(check_inputs(ctx, path, inputs, count));
    return overwrite ? WF_OK : refuse(ctx, path);
}

wf_status wf_output_check_folder(wf_ctx *ctx, const char *path, bool overwrite,
                                 const char *const *inputs, int count)
{
    const char *const *names;
    size_t entries;
    wf_arena arena;
    if (wf_path_look(path) == WF_PATH_NONE)
        return WF_OK;
    WF_TRY(check_inputs(ctx, path, inputs, count));
    if (wf_path_look(path) != WF_PATH_FOLDER)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "cannot write to '%s': it is not a folder; choose another path", path);
    wf_arena_init(&arena, ctx);
    wf_status status = wf_path_list(&arena, path, MOST_ENTRIES, &names, &entries);
    if (status == WF_OK && entries > 0 && !overwrite)
        status = refuse(ctx, path);
    wf_arena_free(&arena);
    return status;
}

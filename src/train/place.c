/* SPDX-License-Identifier: MIT */
/*
 * place.c - checks the folder of a run before anything is written to it.
 *
 * A run may replace only files that it wrote itself, or that the user gave up with --overwrite or
 * --restart. Checks read names only; the run repeats them after it has taken the lock.
 */
#include "train/place.h"

#include <string.h>

#include "base/disk.h"
#include "base/output.h"
#include "base/path.h"
#include "train/checkpoint.h"
#include "train/record.h"

/* Files that a run updates from its first step on. */
static const char *const records[] = {WF_RECORD_LOG, WF_RECORD_CURVE};
#define RECORDS (int)(sizeof records / sizeof *records)

/* Returns whether the run writes a model or adapter at its end. */
static bool has_export(const wf_run_options *o)
{
    return !o->export_type || strcmp(o->export_type, "none") != 0;
}

const char *wf_place_export(wf_arena *arena, const wf_run_options *o)
{
    return wf_path_join(arena, o->out, o->train.lora > 0 ? "adapter" : "model.gguf");
}

/* ---- Checks ---- */

/* A folder with checkpoints needs --resume or --restart. */
static wf_status check_flags(wf_ctx *ctx, const wf_run_options *o, int64_t newest)
{
    if (o->resume && o->restart)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "--resume continues a run and --restart starts it over; use only one of them");
    if (newest >= 0 && !o->resume && !o->restart)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the folder '%s' contains a run at step %lld; continue it with --resume, start over "
            "with --restart, or choose another folder",
            o->out, (long long)newest);
    return WF_OK;
}

/* --restart renames checkpoints, so the base model must not be one of them. */
static wf_status check_folders(wf_arena *arena, const wf_run_options *o)
{
    const char *model = o->train.model, *parent = model ? wf_path_parent(arena, model) : NULL;
    if (model && !parent)
        return WF_ERR_MEMORY;
    bool folder = model && wf_path_look(model) == WF_PATH_FOLDER;
    if (model && !o->overwrite && wf_path_same(folder ? model : parent, o->out))
        return wf_fail(
            arena->ctx, WF_ERR_USAGE,
            "'%s' is the folder of the base model; choose another --out, or allow this with "
            "--overwrite",
            o->out);
    if (folder && o->restart && wf_path_same(parent, o->out))
        return wf_fail(
            arena->ctx, WF_ERR_USAGE,
            "the model '%s' is in the folder that --restart clears; choose another --out", model);
    if (o->data && wf_path_same(o->data, o->out))
        return wf_fail(arena->ctx, WF_ERR_USAGE,
                       "'%s' is the folder of the data; choose another --out", o->out);
    return WF_OK;
}

/* A run that ended before its first checkpoint leaves records, and --resume starts it again. A
 * model without a checkpoint belongs to another run. */
static wf_status check_files(wf_arena *arena, const wf_run_options *o)
{
    const char *path = wf_place_export(arena, o);
    if (!path)
        return WF_ERR_MEMORY;
    if (has_export(o))
        WF_TRY((o->train.lora > 0 ? wf_output_check_folder
                                  : wf_output_check)(arena->ctx, path, o->overwrite, NULL, 0));
    for (int i = 0; i < RECORDS && !o->resume; i++) {
        path = wf_path_join(arena, o->out, records[i]);
        if (!path)
            return WF_ERR_MEMORY;
        WF_TRY(wf_output_check(arena->ctx, path, o->overwrite, NULL, 0));
    }
    return WF_OK;
}

/* A resumed run overwrites its own files, but not through links, which may lead out of the
 * folder. */
static wf_status check_links(wf_arena *arena, const wf_run_options *o)
{
    for (int i = 0; i <= RECORDS; i++) {
        const char *path =
            i < RECORDS ? wf_path_join(arena, o->out, records[i]) : wf_place_export(arena, o);
        if (!path)
            return WF_ERR_MEMORY;
        if (wf_path_is_link(path) && (i < RECORDS || has_export(o)))
            return wf_fail(arena->ctx, WF_ERR_USAGE,
                           "'%s' is a symbolic link; remove it, or write through it with "
                           "--overwrite",
                           path);
    }
    return WF_OK;
}

wf_status wf_place_check(wf_ctx *ctx, const wf_run_options *o)
{
    int64_t newest;
    wf_arena arena;
    WF_TRY(wf_checkpoint_newest(ctx, o->out, &newest));
    WF_TRY(check_flags(ctx, o, newest));
    wf_arena_init(&arena, ctx);
    wf_status status = check_folders(&arena, o);
    if (status == WF_OK && newest < 0 && !o->restart)
        status = check_files(&arena, o);
    if (status == WF_OK && !o->overwrite && !o->restart) /* --restart renames the links */
        status = check_links(&arena, o);
    wf_arena_free(&arena);
    return status;
}

wf_status wf_place_check_base(wf_ctx *ctx, const wf_run_options *o, const wf_model *base)
{
    wf_arena arena;
    if (!base || o->train.lora > 0 || !has_export(o))
        return WF_OK;
    wf_arena_init(&arena, ctx);
    const char *path = wf_place_export(&arena, o);
    wf_status status = path ? WF_OK : WF_ERR_MEMORY;
    for (int i = 0; status == WF_OK && i < base->store->files; i++) {
        const char *const input = base->store->file[i].path;
        status = wf_output_check(ctx, path, true, &input, 1);
    }
    wf_arena_free(&arena);
    return status;
}

/* ---- Restarting ---- */

static wf_status set_aside(wf_arena *arena, const char *path)
{
    const char *to;
    if (!path)
        return WF_ERR_MEMORY;
    return wf_path_missing(path) ? WF_OK : wf_disk_set_aside(arena, path, path, &to);
}

wf_status wf_place_set_aside(wf_ctx *ctx, const wf_run_options *o)
{
    wf_arena arena;
    WF_TRY(wf_checkpoint_set_aside(ctx, o->out));
    wf_arena_init(&arena, ctx);
    wf_status status = has_export(o) ? set_aside(&arena, wf_place_export(&arena, o)) : WF_OK;
    for (int i = 0; i < RECORDS && status == WF_OK; i++)
        status = set_aside(&arena, wf_path_join(&arena, o->out, records[i]));
    wf_arena_free(&arena);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * train_data.c - prepares a DATA file of text or conversations in the folder of the run.
 *
 * Order: check the folder, take the run's lock, set old data aside (--restart), prepare. If the run
 * is refused later, the prepared data is removed and the old data restored, so that a corrected
 * command finds the folder as it was.
 */
#include <stdarg.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/path.h"
#include "cli/catch.h"
#include "cli/train.h"
#include "train/checkpoint.h"
#include "train/place.h"

static wf_status go_on(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)what;
    (void)done;
    (void)total;
    return wf_caught() ? WF_ERR_IO : WF_OK;
}

static void say(const char *fmt, ...) WF_PRINTF(1, 2);
static void say(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (!wf_train_quiet())
        vfprintf(stderr, fmt, args);
    va_end(args);
}

/* locked: the caller holds the run's lock. */
static wf_status undo(wf_ctx *ctx, const wf_train_prepared *made, bool locked)
{
    wf_run_lock *lock = NULL;
    if (!locked)
        WF_TRY(
            wf_run_lock_take(ctx, made->run, &lock)); /* fails if another process uses the data */
    wf_status status = made->folder ? wf_disk_remove(ctx, made->folder) : WF_OK;
    if (status == WF_OK && made->aside)
        status = wf_disk_rename(ctx, made->aside, made->place);
    wf_run_lock_release(lock);
    return status;
}

/* Removes the prepared data. The context keeps its message. */
static void take_back(wf_ctx *ctx, wf_train_prepared *made, bool locked)
{
    char message[WF_MESSAGE_BYTES];
    wf_status status = wf_ctx_status(ctx);
    if (!made->folder && !made->aside)
        return;
    snprintf(message, sizeof message, "%s", wf_ctx_message(ctx));
    if (undo(ctx, made, locked) != WF_OK)
        wf_ctx_log(ctx, WF_LOG_WARN, "cannot remove the prepared data: %s", wf_ctx_message(ctx));
    made->folder = made->aside = NULL;
    wf_ctx_clear(ctx);
    if (status != WF_OK)
        wf_fail(ctx, status, "%s", message);
}

static wf_status prepare(wf_ctx *ctx, const wf_run_options *o, const char *folder,
                         wf_train_prepared *earlier)
{
    const char *const inputs[] = {o->data};
    const wf_prepare_options options = {.inputs = inputs,
                                        .input_count = 1,
                                        .tokenizer = o->train.model,
                                        .overwrite = o->overwrite,
                                        .skip_bad = wf_train_skips_bad(),
                                        .progress = go_on};
    wf_prepared made;
    wf_catch_begin();
    wf_status status = wf_prepare(ctx, folder, &options, &made);
    if (status != WF_OK) /* before wf_catch_end, which raises a caught signal */
        take_back(ctx, earlier, true);
    wf_catch_end();
    WF_TRY(status);
    say("%s: %lld %s%s, %lld token%s, prepared in %s\n", WF_FOREIGN(o->data),
        (long long)made.train.documents, made.chat ? "conversation" : "document",
        WF_PLURAL(made.train.documents), (long long)made.train.tokens, WF_PLURAL(made.train.tokens),
        WF_FOREIGN(folder));
    if (made.bad > 0)
        say("skipped %lld bad record%s\n", (long long)made.bad, WF_PLURAL(made.bad));
    return WF_OK;
}

/* The data of a run must not change, so existing data is used as it is or refused. */
static wf_status make_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o, const char *folder,
                           wf_train_prepared *made)
{
    bool there = !wf_path_missing(folder);
    if (there && o->resume) {
        say("%s: prepared earlier, in %s\n", WF_FOREIGN(o->data), WF_FOREIGN(folder));
        o->data = folder;
        return WF_OK;
    }
    if (there && o->restart) {
        const char *aside;
        WF_TRY(wf_disk_set_aside(arena, folder, folder, &aside));
        made->aside = aside;
        made->place = folder;
        there = false;
    }
    if (there && !o->overwrite)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the folder '%s' contains the data of another run; continue that run with --resume, "
            "replace its data with --overwrite, or choose another folder",
            o->out);
    WF_TRY(prepare(ctx, o, folder, made));
    made->folder = there ? NULL : folder;
    o->data = folder;
    return WF_OK;
}

/* Holds the run's lock, so that no other process trains on data that is renamed or replaced
 * here. */
wf_status wf_train_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o, wf_train_prepared *made)
{
    wf_run_lock *lock;
    *made = (wf_train_prepared){.run = o->out};
    if (wf_path_look(o->data) != WF_PATH_FILE)
        return WF_OK;
    WF_TRY(wf_place_check(ctx, o)); /* fail before the work, not after it */
    const char *folder = wf_path_join(arena, o->out, "data"),
               *name = wf_path_join(arena, o->out, WF_RUN_LOCK);
    bool fresh = wf_path_missing(o->out);
    if (!folder || !name)
        return WF_ERR_MEMORY;
    WF_TRY(wf_run_lock_take(ctx, o->out, &lock));
    wf_status status = make_data(ctx, arena, o, folder, made);
    if (status != WF_OK && fresh && unlink(name) == 0)
        rmdir(o->out); /* removes only an empty folder */
    wf_run_lock_release(lock);
    return status;
}

void wf_train_data_undo(wf_ctx *ctx, wf_train_prepared *made)
{
    take_back(ctx, made, false);
}

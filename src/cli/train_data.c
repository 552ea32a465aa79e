/* SPDX-License-Identifier: MIT */
/* train_data.c - a file of texts or conversations as the data of a run: prepared first, into the run's folder. */
#include "base/path.h"
#include "cli/catch.h"
#include "cli/train.h"

static wf_status go_on(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user;
    (void)what;
    (void)done;
    (void)total;
    return wf_caught() ? WF_ERR_IO : WF_OK;
}

static wf_status prepare(wf_ctx *ctx, const wf_run_options *o, const char *folder)
{
    const char *const inputs[] = {o->data};
    const wf_prepare_options options = {
        .inputs = inputs, .input_count = 1, .tokenizer = o->train.model, .progress = go_on};
    wf_prepared made;
    WF_TRY(wf_path_make_folder(ctx, o->out));
    wf_catch_begin();
    wf_status status = wf_prepare(ctx, folder, &options, &made);
    wf_catch_end();
    WF_TRY(status);
    if (wf_train_quiet())
        return WF_OK;
    fprintf(stderr, "%s: %lld %s, %lld tokens, prepared in %s\n", WF_FOREIGN(o->data),
            (long long)made.train.documents, made.chat ? "conversations" : "documents",
            (long long)made.train.tokens, WF_FOREIGN(folder));
    return WF_OK;
}

/* What a run began with must not change under it, so data that is there is taken as it is, or refused. */
wf_status wf_train_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o)
{
    if (wf_path_look(o->data) != WF_PATH_FILE)
        return WF_OK;
    const char *folder = wf_path_join(arena, o->out, "data");
    if (!folder)
        return WF_ERR_MEMORY;
    bool there = wf_path_look(folder) != WF_PATH_NONE;
    if (there && !o->resume)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the folder '%s' has the data of a run already; go on with it (--resume), or "
            "give another folder",
            o->out);
    if (!there)
        WF_TRY(prepare(ctx, o, folder));
    o->data = folder;
    return WF_OK;
}

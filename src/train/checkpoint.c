/* SPDX-License-Identifier: MIT */
/*
 * checkpoint.c - creates, finds, verifies and removes checkpoint folders.
 *
 * Crash safety: at every moment, each checkpoint that was complete and was not removed on purpose
 * is complete under a name that wf_checkpoint_find considers: step-N or .step-N.old. Saving goes:
 * write files to .step-N.part, sync them and the manifest, rename an existing step-N to .old,
 * rename .part to step-N, sync the run's folder, remove .old. A crash between any two of these
 * leaves at least one complete checkpoint, and the next save cleans up.
 */
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/disk.h"
#include "base/mem.h"
#include "base/path.h"
#include "train/manifest.h"

#define ENTRIES ((size_t)1 << 20) /* limit for a run's folder */
#define NAME_BYTES 48             /* ".step-", up to 19 digits, a suffix, NUL */

/* ---- The lock ---- */

/* Creates the run's folder, and syncs its parent so that the folder survives a power failure. */
static wf_status make_run(wf_arena *arena, const char *run)
{
    if (wf_path_look(run) == WF_PATH_FOLDER)
        return WF_OK;
    WF_TRY(wf_path_make_folder(arena->ctx, run));
    const char *around = wf_path_parent(arena, run);
    return around ? wf_disk_sync(arena->ctx, around) : WF_ERR_MEMORY;
}

static wf_status take_lock(wf_arena *arena, const char *run, wf_run_lock **out)
{
    int64_t holder;
    WF_TRY(make_run(arena, run));
    const char *path = wf_path_join(arena, run, WF_RUN_LOCK);
    if (!path)
        return WF_ERR_MEMORY;
    wf_status status = wf_lock_take(arena->ctx, path, out, &holder);
    if (status != WF_ERR_USAGE)
        return status;
    char who[48] = "another process";
    if (holder > 0)
        snprintf(who, sizeof who, "process %" PRId64, holder);
    return wf_fail(
        arena->ctx, WF_ERR_USAGE,
        "cannot train in '%s': %s is already training there; wait until it ends, or choose "
        "another folder",
        run, who);
}

wf_status wf_run_lock_take(wf_ctx *ctx, const char *run, wf_run_lock **out)
{
    wf_arena arena;
    *out = NULL;
    wf_arena_init(&arena, ctx);
    wf_status status = take_lock(&arena, run, out);
    wf_arena_free(&arena);
    return status;
}

void wf_run_lock_release(wf_run_lock *lock)
{
    wf_lock_release(lock);
}

/* ---- Names ---- */

typedef enum { WHOLE, OLD, PART, GONE, KINDS } name_kind;

static const char *const suffixes[KINDS] = {"", ".old", ".part", ".gone"};

static void compose_name(char out[NAME_BYTES], int64_t step, name_kind kind)
{
    snprintf(out, NAME_BYTES, "%sstep-%08" PRId64 "%s", kind == WHOLE ? "" : ".", step,
             suffixes[kind]);
}

/* Returns RUN/step-..., or NULL if memory runs out. */
static char *compose_path(wf_arena *arena, const char *run, int64_t step, name_kind kind)
{
    char name[NAME_BYTES];
    compose_name(name, step, kind);
    return wf_path_join(arena, run, name);
}

/* Returns KINDS for a foreign name. Accepts only names exactly as Weft writes them. */
static name_kind parse_name(const char *name, int64_t *step)
{
    const char *digits = name + (*name == '.');
    *step = 0;
    if (strncmp(digits, "step-", 5) != 0)
        return KINDS;
    digits += 5;
    /* 18 digits fit in an int64_t; longer names differ when composed again. */
    for (int n = 0; n < 18 && digits[n] >= '0' && digits[n] <= '9'; n++)
        *step = *step * 10 + (digits[n] - '0');
    for (name_kind kind = 0; kind < KINDS; kind++) {
        char again[NAME_BYTES];
        compose_name(again, *step, kind);
        if (strcmp(name, again) == 0)
            return kind;
    }
    return KINDS;
}

typedef struct {
    int64_t step;
    name_kind kind;
    const char *path;
} found;

/* Sorts the newest first; step-N comes before .step-N.old. */
static int compare_found(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Lists the checkpoints of a run in every state, newest first. Foreign names are skipped. */
static wf_status list_run(wf_arena *arena, const char *run, found **out, size_t *count)
{
    const char *const *names;
    size_t n;
    *count = 0;
    WF_TRY(wf_path_list(arena, run, ENTRIES, &names, &n));
    *out = wf_arena_alloc(arena, n * sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        found f;
        f.kind = parse_name(names[i], &f.step);
        if (f.kind == KINDS)
            continue;
        f.path = wf_path_join(arena, run, names[i]);
        if (!f.path)
            return WF_ERR_MEMORY;
        (*out)[(*count)++] = f;
    }
    if (*count > 0)
        qsort(*out, *count, sizeof **out, compare_found);
    return WF_OK;
}

/* Returns true if the list contains step-N for this step. */
static bool has_whole(const found *list, size_t count, int64_t step)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].step == step && list[i].kind == WHOLE)
            return true;
    return false;
}

/* ---- Writing ---- */

struct wf_checkpoint {
    wf_ctx *ctx;
    wf_arena arena;
    int64_t step;                         /* from the name */
    uint64_t id;                          /* random id of the run */
    const char *run, *part, *whole, *old; /* paths, in the arena */
    bool renamed; /* renamed to step-N: wf_checkpoint_free must not remove it */
    bool told;    /* the error message already mentions the checkpoint */
};

/* Sets *out if this run wrote the checkpoint. False if its manifest cannot be read, or if the
 * folder is a link, which somebody else created. */
static wf_status is_own(wf_ctx *ctx, const char *path, int64_t step, uint64_t id, bool *out)
{
    uint64_t run;
    wf_status status = wf_manifest_run(ctx, path, step, &run);
    *out = status == WF_OK && run == id && !wf_path_is_link(path);
    return status == WF_ERR_MEMORY ? status : WF_OK;
}

/* Removes the files that the manifest lists. If other files remain, the folder gets the name of a
 * checkpoint back, or a backup name. A link, or a folder with a damaged manifest, is renamed so
 * that it cannot block saving. */
static wf_status finish_removal(wf_arena *arena, const char *run, int64_t step, const char *gone)
{
    const char *manifest = wf_path_join(arena, gone, WF_MANIFEST_NAME),
               *name = compose_path(arena, run, step, WHOLE), *aside;
    if (!manifest || !name)
        return WF_ERR_MEMORY;
    /* The files behind a link are not ours. */
    wf_status status = wf_path_is_link(gone)       ? WF_ERR_FORMAT
                       : wf_path_missing(manifest) ? WF_OK
                                                   : wf_manifest_remove(arena->ctx, gone, step);
    if (status != WF_OK && status != WF_ERR_FORMAT)
        return status;
    wf_path_remove_empty(gone);
    if (wf_path_missing(gone))
        return WF_OK;
    return status == WF_OK && wf_path_missing(name) ? wf_disk_rename(arena->ctx, gone, name)
                                                    : wf_disk_set_aside(arena, gone, name, &aside);
}

/* Renames the folder first: while its files are removed, it cannot be mistaken for a complete
 * checkpoint. */
static wf_status remove_checkpoint(wf_arena *arena, const char *run, int64_t step, const char *path)
{
    const char *gone = compose_path(arena, run, step, GONE);
    if (!gone)
        return WF_ERR_MEMORY;
    if (!wf_path_missing(gone))
        WF_TRY(finish_removal(arena, run, step, gone));
    WF_TRY(wf_disk_rename(arena->ctx, path, gone));
    return finish_removal(arena, run, step, gone);
}

/* Cleans up after a crash: removes checkpoints that were being written or removed. A .old folder
 * gets its name back if no other folder has it. */
static wf_status clean_up(wf_checkpoint *c)
{
    found *list;
    size_t count;
    WF_TRY(list_run(&c->arena, c->run, &list, &count));
    for (size_t i = 0; i < count; i++) {
        const found *f = &list[i];
        if (f->kind == PART)
            WF_TRY(wf_disk_remove(c->ctx, f->path));
        if (f->kind == OLD && !has_whole(list, count, f->step)) {
            const char *name = compose_path(&c->arena, c->run, f->step, WHOLE);
            if (!name)
                return WF_ERR_MEMORY;
            WF_TRY(wf_disk_rename(c->ctx, f->path, name));
        }
        if (f->kind == GONE)
            WF_TRY(finish_removal(&c->arena, c->run, f->step, f->path));
    }
    return WF_OK;
}

/* Removes what a crash left before it creates the folder. */
static wf_status begin(wf_checkpoint *c, const char *run)
{
    wf_arena *arena = &c->arena;
    c->run = wf_arena_strdup(arena, run);
    c->part = compose_path(arena, run, c->step, PART);
    c->whole = compose_path(arena, run, c->step, WHOLE);
    c->old = compose_path(arena, run, c->step, OLD);
    if (!c->run || !c->part || !c->whole || !c->old)
        return WF_ERR_MEMORY;
    WF_TRY(clean_up(c));
    return wf_path_make_folder(c->ctx, c->part);
}

wf_status wf_checkpoint_begin(wf_ctx *ctx, const char *run, int64_t step, uint64_t id,
                              wf_checkpoint **out)
{
    *out = NULL;
    wf_assert(step >= 0 && id != 0);
    wf_checkpoint *c = wf_mem_new(ctx, sizeof *c);
    if (!c)
        return WF_ERR_MEMORY;
    c->ctx = ctx;
    c->step = step;
    c->id = id;
    wf_arena_init(&c->arena, ctx);
    wf_status status = begin(c, run);
    if (status == WF_OK) {
        *out = c;
        return WF_OK;
    }
    wf_checkpoint_explain(c, status);
    c->renamed = true; /* nothing to remove, or removal failed */
    wf_checkpoint_free(c);
    return status;
}

const char *wf_checkpoint_folder(const wf_checkpoint *c)
{
    return c->part;
}

wf_status wf_checkpoint_explain(wf_checkpoint *c, wf_status status)
{
    if (c->told || c->renamed || status == WF_OK)
        return status;
    c->told = true;
    return wf_fail(c->ctx, status,
                   "%s; the checkpoint of step %" PRId64
                   " is not saved, earlier checkpoints are unchanged",
                   wf_ctx_message(c->ctx), c->step);
}

/* Renames a folder that this run may not remove. */
static wf_status set_aside(wf_checkpoint *c, const char *path)
{
    const char *to;
    WF_TRY(wf_disk_set_aside(&c->arena, path, c->whole, &to));
    wf_ctx_log(c->ctx, WF_LOG_WARN, "'%s' is not a checkpoint of this run; it was renamed to '%s'",
               c->whole, to);
    return WF_OK;
}

/* Removes `path` if this run wrote it, else renames it. */
static wf_status clear(wf_checkpoint *c, const char *path)
{
    bool own;
    WF_TRY(is_own(c->ctx, path, c->step, c->id, &own));
    if (own)
        WF_TRY(remove_checkpoint(&c->arena, c->run, c->step, path));
    return wf_path_missing(path) ? WF_OK : set_aside(c, path);
}

/* Moves an existing step-N to .step-N.old. Both exist only if a crash came between naming the new
 * one and removing the old one; then one complete checkpoint is enough. */
static wf_status make_way(wf_checkpoint *c)
{
    bool own;
    if (wf_path_missing(c->whole))
        return WF_OK;
    WF_TRY(is_own(c->ctx, c->whole, c->step, c->id, &own));
    if (!own)
        return set_aside(c, c->whole);
    if (!wf_path_missing(c->old)) {
        bool good = wf_manifest_check(c->ctx, c->whole, c->step, true) == WF_OK;
        WF_TRY(clear(c, good ? c->old : c->whole));
        if (!good)
            return WF_OK;
    }
    return wf_disk_rename(c->ctx, c->whole, c->old);
}

static wf_status give_name(wf_checkpoint *c)
{
    WF_TRY(make_way(c));
    /* The moment at which the checkpoint exists. */
    wf_status status = wf_disk_rename(c->ctx, c->part, c->whole);
    c->renamed = status == WF_OK;
    /* Restore the name of the checkpoint that was to be replaced. */
    if (status != WF_OK && wf_path_look(c->old) != WF_PATH_NONE) {
        char why[WF_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", wf_ctx_message(c->ctx));
        wf_disk_rename(c->ctx, c->old, c->whole); /* if this fails, it is still found as .old */
        return wf_fail(c->ctx, status, "%s", why);
    }
    return status;
}

/* Removes .old folders, now that the new checkpoint is safe. A failure only wastes disk space. */
static void remove_old(wf_checkpoint *c)
{
    found *list;
    size_t count;
    wf_status status = list_run(&c->arena, c->run, &list, &count);
    for (size_t i = 0; status == WF_OK && i < count; i++) {
        const found *f = &list[i];
        bool own = false;
        if (f->kind == OLD && has_whole(list, count, f->step))
            status = is_own(c->ctx, f->path, f->step, c->id, &own);
        if (status == WF_OK && own)
            status = remove_checkpoint(&c->arena, c->run, f->step, f->path);
    }
    if (status != WF_OK)
        wf_ctx_log(c->ctx, WF_LOG_WARN, "cannot remove an old checkpoint: %s",
                   wf_ctx_message(c->ctx));
}

/* Order matters: the manifest is synced before the rename, so step-N is never visible without its
 * files; the folder is synced before .old is removed, so the rename is on disk first. */
wf_status wf_checkpoint_commit(wf_checkpoint *c)
{
    wf_assert(!c->renamed);
    wf_status status = wf_manifest_write(c->ctx, c->part, c->step, c->id);
    if (status == WF_OK)
        status = give_name(c);
    if (status == WF_OK)
        status = wf_disk_sync(c->ctx, c->run);
    if (status != WF_OK)
        return wf_checkpoint_explain(c, status);
    remove_old(c);
    return WF_OK;
}

void wf_checkpoint_free(wf_checkpoint *c)
{
    if (!c)
        return;
    if (!c->renamed) {
        wf_status kept = c->ctx->status; /* keep the original error, not one of the cleanup */
        char message[WF_MESSAGE_BYTES];
        memcpy(message, c->ctx->message, sizeof message);
        if (wf_disk_remove(c->ctx, c->part) != WF_OK)
            wf_ctx_log(c->ctx, WF_LOG_WARN,
                       "an incomplete checkpoint remains until the next save: %s",
                       wf_ctx_message(c->ctx));
        c->ctx->status = kept;
        memcpy(c->ctx->message, message, sizeof message);
    }
    wf_arena_free(&c->arena);
    wf_mem_free(c->ctx, c);
}

/* ---- Finding ---- */

static char *copy_text(wf_ctx *ctx, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = wf_mem_new(ctx, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

static bool is_candidate(const found *f, int64_t at)
{
    return (f->kind == WHOLE || f->kind == OLD) && (at < 0 || f->step == at);
}

/* Reads the run's id and copies the path for the caller. */
static wf_status take(wf_ctx *ctx, const found *f, wf_checkpoint_found *out)
{
    WF_TRY(wf_manifest_run(ctx, f->path, f->step, &out->id));
    out->path = copy_text(ctx, f->path);
    out->step = out->path ? f->step : -1;
    return out->path ? WF_OK : WF_ERR_MEMORY;
}

/* Returns the first complete checkpoint from `from` on, or `count`. Stops after step `only` (-1:
 * never). */
static wf_status find_whole(wf_ctx *ctx, const found *list, size_t count, int64_t only, size_t from,
                            size_t *out)
{
    for (size_t i = from; i < count; i++) {
        if (!is_candidate(&list[i], only))
            continue;
        wf_status status = wf_manifest_check(ctx, list[i].path, list[i].step, true);
        *out = i;
        if (status == WF_OK || status == WF_ERR_MEMORY)
            return status;
    }
    *out = count;
    return WF_OK;
}

/* The newest checkpoint exists but is unusable. Falling back to an older one would lose steps, and
 * the damage may be an unmounted disk or a permission: let the user decide. */
static wf_status refuse(wf_arena *arena, const found *list, size_t count, size_t newest)
{
    char why[WF_MESSAGE_BYTES];
    size_t older;
    const found *f = &list[newest];
    wf_ctx *ctx = arena->ctx;
    wf_status status = wf_manifest_check(ctx, f->path, f->step, true);
    if (status == WF_OK) /* it is readable now */
        status = wf_fail(ctx, WF_ERR_IO, "'%s' cannot be read", f->path);
    snprintf(why, sizeof why, "%s", wf_ctx_message(ctx));
    WF_TRY(find_whole(ctx, list, count, -1, newest + 1, &older));
    if (older == count)
        return wf_fail(
            ctx, status,
            "%s; no other checkpoint there is complete: restore it, or start over with --restart",
            why);
    return wf_fail(ctx, status,
                   "%s; the checkpoint of step %" PRId64
                   " is complete: to continue from it, rename '%s' and use --resume again",
                   why, list[older].step, f->path);
}

/* Finds the newest candidate; .old stands in for a damaged step-N of the same step. */
static wf_status find(wf_arena *arena, const char *run, int64_t at, wf_checkpoint_found *out)
{
    found *list;
    size_t count, newest = 0, whole;
    wf_ctx *ctx = arena->ctx;
    if (wf_path_missing(run))
        return WF_OK;
    WF_TRY(list_run(arena, run, &list, &count));
    while (newest < count && !is_candidate(&list[newest], at))
        newest++;
    if (newest == count)
        return WF_OK;
    WF_TRY(find_whole(ctx, list, count, list[newest].step, newest, &whole));
    return whole < count ? take(ctx, &list[whole], out) : refuse(arena, list, count, newest);
}

wf_status wf_checkpoint_find(wf_ctx *ctx, const char *run, int64_t at, wf_checkpoint_found *out)
{
    wf_arena arena;
    *out = (wf_checkpoint_found){.step = -1};
    wf_arena_init(&arena, ctx);
    wf_status status = find(&arena, run, at, out);
    wf_arena_free(&arena);
    return status;
}

wf_status wf_checkpoint_newest(wf_ctx *ctx, const char *run, int64_t *step)
{
    wf_arena arena;
    found *list;
    size_t count;
    *step = -1;
    if (wf_path_missing(run))
        return WF_OK;
    wf_arena_init(&arena, ctx);
    wf_status status = list_run(&arena, run, &list, &count);
    for (size_t i = 0; status == WF_OK && i < count && *step < 0; i++)
        if (is_candidate(&list[i], -1))
            *step = list[i].step;
    wf_arena_free(&arena);
    return status;
}

/* Oldest first: if interrupted, --resume still finds the newest. */
wf_status wf_checkpoint_set_aside(wf_ctx *ctx, const char *run)
{
    wf_arena arena;
    found *list;
    size_t count;
    wf_arena_init(&arena, ctx);
    wf_status status = list_run(&arena, run, &list, &count);
    for (size_t i = status == WF_OK ? count : 0; status == WF_OK && i-- > 0;) {
        const char *as = compose_path(&arena, run, list[i].step, WHOLE), *to;
        if (!as)
            status = WF_ERR_MEMORY;
        else if (is_candidate(&list[i], -1))
            status = wf_disk_set_aside(&arena, list[i].path, as, &to);
    }
    wf_arena_free(&arena);
    return status;
}

/* ---- Retention ---- */

/* The list is newest first, so the first `keep` complete ones are kept. */
static wf_status retain(wf_arena *arena, const char *run, uint64_t id, int64_t at, int64_t keep,
                        int64_t major)
{
    found *list;
    size_t count;
    int64_t kept = 0;
    WF_TRY(list_run(arena, run, &list, &count));
    for (size_t i = 0; i < count; i++) {
        const found *f = &list[i];
        bool own = false;
        if (f->kind == WHOLE && f->step <= at)
            WF_TRY(is_own(arena->ctx, f->path, f->step, id, &own));
        if (!own)
            continue;
        if (kept < keep) { /* comparing sizes is fast and finds nearly all damage */
            wf_status status = wf_manifest_check(arena->ctx, f->path, f->step, false);
            if (status == WF_ERR_MEMORY)
                return status;
            kept += status == WF_OK;
        } else if (major == 0 || f->step % major != 0) {
            WF_TRY(remove_checkpoint(arena, run, f->step, f->path));
        }
    }
    return WF_OK;
}

wf_status wf_checkpoint_retain(wf_ctx *ctx, const char *run, uint64_t id, int64_t at, int64_t keep,
                               int64_t major)
{
    wf_assert(id != 0 && keep >= 0 && major >= 0);
    if (keep == 0)
        return WF_OK;
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    wf_status status = retain(&arena, run, id, at, keep, major);
    wf_arena_free(&arena);
    return status;
}

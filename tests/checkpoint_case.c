/* SPDX-License-Identifier: MIT */
/* checkpoint_case.c - implements checkpoint_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sink.h"
#include "checkpoint_case.h"
#include "support.h"

/* The files of a checkpoint. No size is a multiple of a page or of a write buffer. */
static const struct {
    const char *name;
    size_t bytes;
    bool sink; /* true: written through the weight writer; false: as a small file */
} files[] = {
    {"model/weights.bin", 5001, true}, {"optimizer.bin", 10007, true}, {"state.json", 33, false}};

static void keep_log(void *user, wf_log_level level, const char *message)
{
    wt_checkpoints *t = user;
    size_t n = strlen(t->log);
    if (level >= WF_LOG_WARN)
        snprintf(t->log + n, sizeof t->log - n, "%s\n", message);
}

void wt_checkpoints_make(wt_checkpoints *t, wf_ctx *ctx)
{
    *t = (wt_checkpoints){.ctx = ctx};
    wt_scratch_make(&t->scratch);
    snprintf(t->run, sizeof t->run, "%s", wt_path(&t->scratch, "run"));
    wf_ctx_set_log(ctx, keep_log, t);
}

void wt_checkpoints_remove(wt_checkpoints *t)
{
    wf_run_lock_release(t->lock);
    wf_ctx_set_log(t->ctx, NULL, NULL);
    wt_scratch_remove(&t->scratch);
}

void wt_lock(wt_checkpoints *t)
{
    wt_ok(t->ctx, wf_run_lock_take(t->ctx, t->run, &t->lock));
}

/* ---- Files ---- */

/* Writes in pieces of 999 bytes, so that buffers fill unevenly. */
static wf_status write_sink(wf_ctx *ctx, const char *path, const char *bytes, size_t count)
{
    wf_sink *s;
    WF_TRY(wf_sink_open(ctx, path, &s));
    wf_status status = WF_OK;
    for (size_t at = 0; status == WF_OK && at < count; at += 999)
        status = wf_sink_write(s, bytes + at, count - at < 999 ? count - at : 999);
    if (status == WF_OK)
        status = wf_sink_commit(s);
    wf_sink_free(s);
    return status;
}

static wf_status write_files(wf_ctx *ctx, const char *folder, char letter)
{
    char bytes[10007], path[512];
    memset(bytes, letter, sizeof bytes);
    snprintf(path, sizeof path, "%s/model", folder);
    WF_TRY(wf_path_make_folder(ctx, path));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        WF_TRY((files[i].sink ? write_sink : wf_file_write)(ctx, path, bytes, files[i].bytes));
    }
    return WF_OK;
}

wf_status wt_try_save(wf_ctx *ctx, const char *run, int64_t step, char letter)
{
    wf_checkpoint *c;
    WF_TRY(wf_checkpoint_begin(ctx, run, step, WT_RUN, &c));
    wf_status status = wf_checkpoint_explain(c, write_files(ctx, wf_checkpoint_folder(c), letter));
    if (status == WF_OK)
        status = wf_checkpoint_commit(c);
    wf_checkpoint_free(c);
    return status;
}

void wt_save(wt_checkpoints *t, int64_t step, char letter)
{
    wt_ok(t->ctx, wt_try_save(t->ctx, t->run, step, letter));
}

/* Returns the letter that fills all files. Fails when a byte differs. */
static char read_files(wf_ctx *ctx, const char *folder)
{
    char letter = 0;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512], *text;
        size_t count;
        snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &count));
        assert_int_equal(count, files[i].bytes);
        letter = letter ? letter : text[0];
        for (size_t k = 0; k < count; k++)
            assert_int_equal(text[k], letter);
        wf_mem_free(ctx, text);
    }
    return letter;
}

/* Returns the letter of the checkpoint of step `at` (-1: the newest) and its step; 0 and -1 if
 * there is none. */
static char find(wf_ctx *ctx, const char *run, int64_t at, int64_t *step)
{
    char letter = 0;
    wf_checkpoint_found f;
    wt_ok(ctx, wf_checkpoint_find(ctx, run, at, &f));
    *step = f.step;
    assert_int_equal(f.path == NULL, f.step == -1);
    if (f.path) {
        assert_true(f.id == WT_RUN);
        letter = read_files(ctx, f.path);
    }
    wf_mem_free(ctx, f.path);
    return letter;
}

void wt_expect_refused(wt_checkpoints *t, int64_t at, const char *a, const char *b)
{
    wf_checkpoint_found f;
    wf_status status = wf_checkpoint_find(t->ctx, t->run, at, &f);
    assert_null(f.path);
    assert_int_equal(f.step, -1);
    if ((status != WF_ERR_FORMAT && status != WF_ERR_IO) || !strstr(wf_ctx_message(t->ctx), a) ||
        !strstr(wf_ctx_message(t->ctx), b))
        fail_msg("wanted a failure with '%s' and '%s', got %d: %s", a, b, (int)status,
                 wf_ctx_message(t->ctx));
    wf_ctx_clear(t->ctx);
}

wf_status wt_retain(wt_checkpoints *t, int64_t at, int64_t keep, int64_t major)
{
    return wf_checkpoint_retain(t->ctx, t->run, WT_RUN, at, keep, major);
}

char wt_newest(wf_ctx *ctx, const char *run, int64_t *step)
{
    return find(ctx, run, -1, step);
}

void wt_expect_step(wt_checkpoints *t, int64_t at, int64_t step, char letter)
{
    int64_t got;
    t->log[0] = '\0';
    assert_int_equal(find(t->ctx, t->run, at, &got), letter);
    assert_int_equal(got, step);
}

/* ---- Folders ---- */

static void list(wt_checkpoints *t, wf_arena *arena, const char *const **names, size_t *count)
{
    wf_arena_init(arena, t->ctx);
    wt_ok(t->ctx, wf_path_list(arena, t->run, 100, names, count));
}

void wt_count_entries(wt_checkpoints *t, const char *end, int *count)
{
    const char *const *names;
    size_t n;
    wf_arena arena;
    list(t, &arena, &names, &n);
    for (size_t i = 0; i < n; i++)
        *count += wf_path_ends(names[i], end);
    wf_arena_free(&arena);
}

void wt_expect_entries(wt_checkpoints *t, const char *wanted)
{
    char got[1024] = "";
    const char *const *names;
    size_t count, n = 0;
    wf_arena arena;
    list(t, &arena, &names, &count);
    for (size_t i = 0; i < count; i++)
        wf_text_append(got, sizeof got, &n, "%s%s", i ? " " : "", names[i]);
    wf_arena_free(&arena);
    assert_string_equal(got, wanted);
}

void wt_move(wt_checkpoints *t, const char *from, const char *to)
{
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/%s", t->run, from);
    snprintf(b, sizeof b, "%s/%s", t->run, to);
    assert_int_equal(rename(a, b), 0);
}

void wt_copy(wt_checkpoints *t, const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "cp -R '%s/%s' '%s/%s'", t->run, from, t->run, to);
    assert_int_equal(system(command), 0);
}

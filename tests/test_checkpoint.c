/* SPDX-License-Identifier: MIT */
/*
 * test_checkpoint.c - checkpoints without faults: writing and finding, replacing and retaining,
 * locks, and saving and loading the states of a session. test_checkpoint_faults.c covers faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/disk.h"
#include "base/path.h"
#include "checkpoint_case.h"
#include "support.h"
#include "train/manifest.h"
#include "train/states.h"

/* ---- Writing and finding ---- */

/* Finds the newest checkpoint, or the one of a given step. */
static void test_written_and_found(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_expect_step(&t, -1, -1, 0); /* the folder does not exist */
    wt_lock(&t);
    wt_expect_step(&t, -1, -1, 0); /* the folder is empty */
    wt_save(&t, 10, 'a');
    wt_save(&t, 200, 'b');
    wt_save(&t, 123456789, 'c'); /* more digits than a name usually has */
    wt_expect_step(&t, -1, 123456789, 'c');
    wt_expect_step(&t, 10, 10, 'a');
    wt_expect_step(&t, 200, 200, 'b');
    wt_expect_step(&t, 11, -1, 0);
    assert_string_equal(t.log, "");
    assert_int_equal(wf_path_look(wt_path(&t.scratch, "run/step-00000200/model/weights.bin")),
                     WF_PATH_FILE);
    wt_checkpoints_remove(&t);
}

/* Checks the manifest's text, including checksums computed by another program. */
static void test_manifest_text(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wf_checkpoint *c;
    wt_ok(t.ctx, wf_checkpoint_begin(t.ctx, t.run, 7, WT_RUN, &c));
    char path[512];
    snprintf(path, sizeof path, "%s/%s", wf_checkpoint_folder(c), "a.txt");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("abc", f);
    fclose(f);
    wt_ok(t.ctx, wf_checkpoint_commit(c));
    wf_checkpoint_free(c);
    char text[1024];
    f = fopen(wt_path(&t.scratch, "run/step-00000007/manifest.json"), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    /* 44bc2cf5ad770999 is the output of xxhsum -H1 for abc */
    char *own = strstr(text, "  \"checksum\": ");
    assert_non_null(own);
    *own = '\0';
    char wanted[512];
    snprintf(
        wanted, sizeof wanted,
        "{\n  \"format\": 1,\n  \"weft\": \"%s\",\n  \"run\": \"0123456789abcdef\",\n  \"step\": 7,\n  \"files\": [\n    {\"name\": "
        "\"a.txt\", \"bytes\": 3, \"checksum\": \"44bc2cf5ad770999\"}\n  ],\n",
        wf_version_string());
    assert_string_equal(text, wanted);
    wt_checkpoints_remove(&t);
}

/* Saving the same step again replaces the checkpoint and leaves nothing else behind. */
static void test_replaced(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    wt_save(&t, 10, 'b');
    wt_expect_step(&t, -1, 10, 'b');
    wt_expect_entries(&t, "lock step-00000010");
    wt_checkpoints_remove(&t);
}

/* Recovers from what an interrupted save or removal leaves behind. */
static void test_left_behind(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    wt_save(&t, 20, 'b');
    /* interrupted before the new checkpoint was renamed */
    wt_move(&t, "step-00000020", ".step-00000020.old");
    wt_expect_step(&t, -1, 20, 'b');
    mkdir(wt_path(&t.scratch, "run/.step-00000030.part"), 0777);
    wt_put_text(&t.scratch, "run/.step-00000030.part/x", "x");
    wt_save(&t, 5, 'z'); /* a removal interrupted halfway */
    wt_move(&t, "step-00000005", ".step-00000005.gone");
    assert_int_equal(unlink(wt_path(&t.scratch, "run/.step-00000005.gone/state.json")), 0);
    wt_move(&t, "step-00000020", ".step-00000020.old");
    mkdir(wt_path(&t.scratch, "run/.step-00000030.part"), 0777);
    wt_put_text(&t.scratch, "run/.step-00000030.part/x", "x");
    wt_expect_step(&t, -1, 20, 'b');
    wt_save(&t, 30, 'c');
    wt_expect_entries(&t, "lock step-00000010 step-00000020 step-00000030");

    /* Interrupted before the old checkpoint was removed: the new one is found, and the next save
     * replaces both. */
    wt_move(&t, "step-00000030", ".step-00000030.old");
    wt_move(&t, "step-00000020", "kept");
    wt_save(&t, 40, 'd');
    wt_move(&t, "step-00000030", ".step-00000030.old");
    wt_copy(&t, ".step-00000030.old", "step-00000030");
    wt_expect_step(&t, 30, 30, 'c');
    wt_save(&t, 30, 'e');
    wt_expect_step(&t, 30, 30, 'e');
    wt_expect_entries(&t, "kept lock step-00000010 step-00000030 step-00000040");

    /* The same with a damaged new checkpoint: the old one stays until a complete one exists. A
     * checkpoint without a manifest has no known owner, so it is renamed. */
    wt_copy(&t, "step-00000040", ".step-00000040.old");
    wt_put_text(&t.scratch, "run/step-00000040/state.json", "");
    wt_expect_step(&t, 40, 40, 'd');
    wt_save(&t, 40, 'f');
    wt_expect_step(&t, 40, 40, 'f');
    wt_copy(&t, "step-00000040", ".step-00000040.old");
    assert_int_equal(unlink(wt_path(&t.scratch, "run/step-00000040/manifest.json")), 0);
    wt_expect_step(&t, 40, 40, 'f');
    wt_save(&t, 40, 'g');
    wt_expect_step(&t, 40, 40, 'g');
    wt_expect_entries(&t,
                      "kept lock step-00000010 step-00000030 step-00000040 step-00000040.bak-1");
    wt_checkpoints_remove(&t);
}

static void expect_files(wt_checkpoints *t, const char *folder, const char *wanted)
{
    char got[1024] = "", path[512];
    const char *const *names;
    size_t count, n = 0;
    wf_arena arena;
    wf_arena_init(&arena, t->ctx);
    snprintf(path, sizeof path, "%s/%s", t->run, folder);
    wt_ok(t->ctx, wf_disk_files(&arena, path, 100, &names, &count));
    for (size_t i = 0; i < count; i++)
        wf_text_append(got, sizeof got, &n, "%s%s", i ? " " : "", names[i]);
    wf_arena_free(&arena);
    assert_string_equal(got, wanted);
}

/* Files that Weft did not write are not read, removed or reported. */
static void test_foreign(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_put_text(&t.scratch, "run/log.jsonl", "{}\n");
    wt_put_text(&t.scratch, "run/step-", "");
    wt_put_text(&t.scratch, "run/step-00000009x", "");
    wt_put_text(&t.scratch, "run/step-9", "");
    wt_put_text(&t.scratch, "run/step-99999999999999999999999", "");
    wt_put_text(&t.scratch, "run/.step-00000009", "");
    wt_put_text(&t.scratch, "run/step-00000009.part", "");
    mkdir(wt_path(&t.scratch, "run/step-backup"), 0777);
    wt_save(&t, 8, 'a');
    wt_put_text(&t.scratch, "run/step-00000008/notes of mine.txt", "best so far");
    wt_expect_step(&t, -1, 8, 'a');
    assert_string_equal(t.log, "");
    /* a checkpoint's name without a manifest */
    mkdir(wt_path(&t.scratch, "run/step-00000001"), 0777);
    for (int64_t i = 9; i < 12; i++)
        wt_save(&t, i, 'b');
    wt_ok(t.ctx, wt_retain(&t, 99, 1, 0));
    wt_expect_entries(
        &t, ".step-00000009 lock log.jsonl step- step-00000001 step-00000008 "
            "step-00000009.part step-00000009x step-00000011 step-9 step-99999999999999999999999 "
            "step-backup");
    expect_files(&t, "step-00000008", "notes of mine.txt");
    wt_checkpoints_remove(&t);
}

/* A user's files in a checkpoint survive its removal, also next to listed files and behind
 * links. */
static void test_foreign_files(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    for (int64_t step = 1; step <= 4; step++)
        wt_save(&t, step, 'a');
    wt_put_text(&t.scratch, "run/step-00000001/model/weights.bin.notes", "mine");
    wt_put_text(&t.scratch, "run/step-00000001/notes.txt", "mine");
    mkdir(wt_path(&t.scratch, "elsewhere"), 0777);
    wt_put_text(&t.scratch, "elsewhere/weights.bin", "mine");
    assert_int_equal(wf_disk_remove(t.ctx, wt_path(&t.scratch, "run/step-00000002/model")), WF_OK);
    assert_int_equal(symlink("../../elsewhere", wt_path(&t.scratch, "run/step-00000002/model")), 0);
    wt_ok(t.ctx, wt_retain(&t, 4, 1, 0));
    wt_expect_entries(&t, "lock step-00000001 step-00000002 step-00000004");
    expect_files(&t, "step-00000001", "model/weights.bin.notes notes.txt");
    assert_int_equal(wf_path_look(wt_path(&t.scratch, "elsewhere/weights.bin")), WF_PATH_FILE);
    wt_ok(t.ctx, wt_retain(&t, 4, 1, 0)); /* a second removal keeps them too */
    expect_files(&t, "step-00000001", "model/weights.bin.notes notes.txt");

    /* Finishing an interrupted removal keeps them, too. */
    wt_save(&t, 5, 'a');
    wt_put_text(&t.scratch, "run/step-00000004/notes.txt", "mine");
    wt_move(&t, "step-00000004", ".step-00000004.gone");
    wt_save(&t, 6, 'a');
    expect_files(&t, "step-00000004", "notes.txt");

    /* A checkpoint whose manifest was damaged meanwhile keeps its files, and does not prevent
     * saving. */
    wt_put_text(&t.scratch, "run/step-00000005/manifest.json", "{}");
    wt_move(&t, "step-00000005", ".step-00000005.gone");
    wt_save(&t, 7, 'a');
    expect_files(&t, "step-00000005.bak-1",
                 "manifest.json model/weights.bin optimizer.bin state.json");
    wt_checkpoints_remove(&t);
}

/* A run removes and replaces its own checkpoints only. */
static void test_other_runs(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    for (int64_t step = 1; step <= 3; step++)
        wt_save(&t, step, 'a');
    wt_ok(t.ctx, wf_checkpoint_retain(t.ctx, t.run, WT_RUN + 1, 9, 1, 0));
    wt_expect_entries(&t, "lock step-00000001 step-00000002 step-00000003");
    wf_checkpoint *c;
    wt_ok(t.ctx, wf_checkpoint_begin(t.ctx, t.run, 3, WT_RUN + 1, &c));
    wt_put_text(&t.scratch, "run/.step-00000003.part/x", "x");
    wt_ok(t.ctx, wf_checkpoint_commit(c));
    wf_checkpoint_free(c);
    wt_expect_entries(&t, "lock step-00000001 step-00000002 step-00000003 step-00000003.bak-1");
    assert_non_null(strstr(t.log, "step-00000003.bak-1"));
    wt_ok(t.ctx, wf_checkpoint_retain(t.ctx, t.run, WT_RUN + 1, 9, 1, 0));
    /* step 3 belongs to the other run, so 2 is this run's newest */
    wt_ok(t.ctx, wt_retain(&t, 9, 1, 0));
    wt_expect_entries(&t, "lock step-00000002 step-00000003 step-00000003.bak-1");
    wt_ok(t.ctx, wf_checkpoint_set_aside(t.ctx, t.run));
    wt_expect_entries(&t, "lock step-00000002.bak-1 step-00000003.bak-1 step-00000003.bak-2");
    wt_expect_step(&t, -1, -1, 0);
    wt_checkpoints_remove(&t);
}

/* Retention keeps the newest `keep` checkpoints and every multiple of `major`. */
static void test_kept(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    for (int64_t step = 0; step <= 80; step += 10)
        wt_save(&t, step, (char)('a' + step / 10));
    wt_ok(t.ctx, wt_retain(&t, 99, 0, 30));
    wt_expect_entries(&t, "lock step-00000000 step-00000010 step-00000020 step-00000030 "
                          "step-00000040 step-00000050 step-00000060 step-00000070 step-00000080");
    wt_ok(t.ctx, wt_retain(&t, 99, 2, 40));
    wt_expect_entries(&t, "lock step-00000000 step-00000040 step-00000070 step-00000080");
    /* Incomplete checkpoints do not count: a file of step 80 is truncated. */
    wt_put_text(&t.scratch, "run/step-00000080/state.json", "");
    wt_ok(t.ctx, wt_retain(&t, 99, 1, 0));
    wt_expect_entries(&t, "lock step-00000070 step-00000080");
    wt_expect_refused(&t, -1, "state.json", "step 70 is complete");
    wt_expect_step(&t, 70, 70, 'h');
    wt_ok(t.ctx, wt_retain(&t, 99, 5, 0));
    wt_expect_entries(&t, "lock step-00000070 step-00000080");
    wt_checkpoints_remove(&t);
}

/* A run that resumes from an early step retains its own checkpoints and leaves those of later steps
 * alone. */
static void test_kept_below(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    for (int64_t step = 10; step <= 30; step += 10)
        wt_save(&t, step, 'a');
    for (int64_t step = 12; step <= 16; step += 2) {
        wt_save(&t, step, 'b');
        wt_ok(t.ctx, wt_retain(&t, step, 2, 0));
        wt_expect_step(&t, step, step, 'b');
    }
    wt_expect_entries(&t, "lock step-00000014 step-00000016 step-00000020 step-00000030");
    wt_save(&t, 20, 'c');
    wt_ok(t.ctx, wt_retain(&t, 20, 1, 0));
    wt_expect_step(&t, 20, 20, 'c');
    wt_expect_entries(&t, "lock step-00000020 step-00000030");
    wt_checkpoints_remove(&t);
}

/* Refuses names that a manifest cannot hold, and entries that are not files. */
static void test_refused_names(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    static const char *const names[] = {"a b", ".hidden", "quote\"", "uml\xc3\xa4ut"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        wf_checkpoint *c;
        char name[256];
        wt_ok(t.ctx, wf_checkpoint_begin(t.ctx, t.run, 3, WT_RUN, &c));
        snprintf(name, sizeof name, "run/.step-00000003.part/%s", names[i]);
        wt_put_text(&t.scratch, name, "x");
        wt_fails(t.ctx, wf_checkpoint_commit(c), WF_ERR_USAGE, "a manifest cannot hold");
        wf_checkpoint_free(c);
        wt_expect_entries(&t, "lock");
    }
    wf_checkpoint *c;
    wt_ok(t.ctx, wf_checkpoint_begin(t.ctx, t.run, 3, WT_RUN, &c));
    assert_int_equal(symlink("/nowhere", wt_path(&t.scratch, "run/.step-00000003.part/link")), 0);
    wt_fails(t.ctx, wf_checkpoint_commit(c), WF_ERR_IO, "neither a file nor a folder");
    wf_checkpoint_free(c);
    wt_expect_entries(&t, "lock");
    wt_checkpoints_remove(&t);
}

/* ---- Locks ---- */

/* Takes the lock in a child process. Returns 0 when it was taken, 1 when it was refused with this
 * part in the message, 100 + the signal when the child died. */
static int take_in_child(const wt_checkpoints *t, const char *part, bool die)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        wf_ctx *ctx;
        wf_run_lock *lock = NULL;
        if (wf_ctx_new(&ctx) != WF_OK)
            _exit(9);
        wf_status status = wf_run_lock_take(ctx, t->run, &lock);
        if (status == WF_OK && die)
            raise(SIGKILL);
        wf_run_lock_release(lock);
        _exit(status == WF_OK                                               ? 0
              : status == WF_ERR_USAGE && strstr(wf_ctx_message(ctx), part) ? 1
                                                                            : 2);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* A second process cannot take the lock, and a lock of a dead process is free. */
static void test_locks(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    char part[64];
    snprintf(part, sizeof part, "process %ld is already training", (long)getpid());
    assert_int_equal(take_in_child(&t, part, false), 1);
    wf_run_lock *twice;
    wt_fails(t.ctx, wf_run_lock_take(t.ctx, t.run, &twice), WF_ERR_USAGE, part);
    assert_null(twice);
    wf_run_lock_release(t.lock);
    assert_int_equal(take_in_child(&t, "", false), 0);
    /* the dead process's id stays in the file */
    assert_int_equal(take_in_child(&t, "", true), 100 + SIGKILL);
    wt_ok(t.ctx, wf_run_lock_take(t.ctx, t.run, &t.lock));
    assert_int_equal(take_in_child(&t, part, false), 1);
    wt_put_text(&t.scratch, "run/lock", "no number"); /* overwritten by another program */
    assert_int_equal(take_in_child(&t, "another process is already training", false), 1);
    wt_checkpoints_remove(&t);
}

/* A lock needs a folder that can be created and a lock file that can be opened. */
static void test_lock_places(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wf_run_lock *lock;
    wt_fails(t.ctx, wf_run_lock_take(t.ctx, wt_path(&t.scratch, "none/run"), &lock), WF_ERR_IO,
             "cannot create the folder");
    wt_put_text(&t.scratch, "file", "x");
    wt_fails(t.ctx, wf_run_lock_take(t.ctx, wt_path(&t.scratch, "file"), &lock), WF_ERR_IO,
             "cannot create the folder");
    mkdir(wt_path(&t.scratch, "dir"), 0777);
    mkdir(wt_path(&t.scratch, "dir/lock"), 0777);
    wt_fails(t.ctx, wf_run_lock_take(t.ctx, wt_path(&t.scratch, "dir"), &lock), WF_ERR_IO,
             "cannot create");
    wt_checkpoints_remove(&t);
}

/* ---- States ---- */

static int64_t want_moments(void *user, const char *name)
{
    (void)user;
    return strncmp(name, "m.", 2) == 0 || strcmp(name, "count") == 0 ? 0 : -1;
}

/* Creates a session with states of several types: w and m.w f32[2,3], m.b f16[5], m.x u8[3], count
 * i32[]. */
static void make_states(wt_run *r, wf_type of_w)
{
    wf_graph *g = wt_graph(r->ctx);
    int64_t w[] = {2, 3}, b = 5, x = 3;
    wf_output(g, "x", wf_copy(g, wf_state(g, "m.x", WF_U8, 1, &x)));
    wf_output(g, "b", wf_copy(g, wf_state(g, "m.b", WF_F16, 1, &b)));
    wf_output(g, "w", wf_copy(g, wf_state(g, "w", WF_F32, 2, w)));
    wf_output(g, "m", wf_copy(g, wf_state(g, "m.w", of_w, 2, w)));
    wf_output(g, "c", wf_copy(g, wf_state(g, "count", WF_I32, 0, NULL)));
    wt_compile(r, g);
}

/* States of every type survive a file bit for bit; a mismatch in name, type or shape fails. */
static void test_states(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch scratch;
    wt_scratch_make(&scratch);
    wt_run a = wt_open(ctx, "cpu"), b = wt_open(ctx, "cpu"), other = wt_open(ctx, "cpu");
    make_states(&a, WF_F32);
    make_states(&b, WF_F32);
    make_states(&other, WF_BF16);
    const float w[6] = {1, 2, 3, 4, 5, 6}, m[6] = {0.5f, -0.25f, 1e-30f, 3, -0.0f, 7};
    const uint16_t half[5] = {0x3C00, 0x0001, 0xFBFF, 0x8000, 0x1234};
    const uint8_t bytes[3] = {1, 0, 255};
    const int32_t count = -7;
    wt_ok(ctx, wf_session_write(a.session, "w", w, sizeof w));
    wt_ok(ctx, wf_session_write(a.session, "m.w", m, sizeof m));
    wt_ok(ctx, wf_session_write(a.session, "m.b", half, sizeof half));
    wt_ok(ctx, wf_session_write(a.session, "m.x", bytes, sizeof bytes));
    wt_ok(ctx, wf_session_write(a.session, "count", &count, sizeof count));
    wt_ok(ctx,
          wf_states_save(a.session, scratch.folder, "optimizer.safetensors", want_moments, NULL));
    const char *path = wt_path(&scratch, "optimizer.safetensors");
    wt_ok(ctx, wf_states_load(b.session, path, want_moments, NULL));
    float got[6];
    uint16_t half_got[5];
    uint8_t bytes_got[3];
    int32_t count_got;
    wt_ok(ctx, wf_session_read(b.session, "m.w", got, sizeof got));
    assert_memory_equal(got, m, sizeof m);
    wt_ok(ctx, wf_session_read(b.session, "m.b", half_got, sizeof half_got));
    assert_memory_equal(half_got, half, sizeof half);
    wt_ok(ctx, wf_session_read(b.session, "m.x", bytes_got, sizeof bytes_got));
    assert_memory_equal(bytes_got, bytes, sizeof bytes);
    wt_ok(ctx, wf_session_read(b.session, "count", &count_got, sizeof count_got));
    assert_int_equal(count_got, count);
    wt_expect_state(&b, "w", (float[6]){0}, 6); /* was not selected */

    /* Name, type and shape must match in both directions. A failed load writes nothing. */
    wt_fails(ctx, wf_states_load(b.session, path, NULL, NULL), WF_ERR_FORMAT,
             "the state 'w' is missing");
    wt_ok(ctx, wf_states_save(a.session, scratch.folder, "all.safetensors", NULL, NULL));
    wt_fails(ctx,
             wf_states_load(b.session, wt_path(&scratch, "all.safetensors"), want_moments, NULL),
             WF_ERR_FORMAT, "this run has no state 'w'");
    wt_fails(ctx,
             wf_states_load(other.session, wt_path(&scratch, "optimizer.safetensors"), want_moments,
                            NULL),
             WF_ERR_FORMAT, "state 'm.w' is f32[2,3], not bf16[2,3]");
    wt_ok(ctx, wf_session_read(other.session, "count", &count_got, sizeof count_got));
    assert_int_equal(count_got, 0);
    wt_fails(ctx, wf_states_load(b.session, wt_path(&scratch, "none.safetensors"), NULL, NULL),
             WF_ERR_IO, "cannot open");
    wt_put_text(&scratch, "bad.safetensors", "12345678");
    wt_fails(ctx, wf_states_load(b.session, wt_path(&scratch, "bad.safetensors"), NULL, NULL),
             WF_ERR_FORMAT, "header");
    wt_close(&a);
    wt_close(&b);
    wt_close(&other);
    wt_scratch_remove(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_written_and_found),
        wt_test(test_manifest_text),
        wt_test(test_replaced),
        wt_test(test_left_behind),
        wt_test(test_foreign),
        wt_test(test_kept),
        wt_test(test_kept_below),
        wt_test(test_foreign_files),
        wt_test(test_other_runs),
        wt_test(test_refused_names),
        wt_test(test_locks),
        wt_test(test_lock_places),
        wt_test(test_states),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, NULL, NULL);
}

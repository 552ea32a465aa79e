/* SPDX-License-Identifier: MIT */
/*
 * test_checkpoint_faults.c - faults while saving checkpoints: damaged files, full or failing disks,
 * folders without write permission, failed allocations, and `kill -9` at any moment. A checkpoint
 * that was complete before the fault must be found afterwards, intact.
 */
#define _DEFAULT_SOURCE /* usleep, setgroups */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/disk.h"
#include "base/mem.h"
#include "base/path.h"
#include "checkpoint_case.h"
#include "support.h"

static uint64_t random_state;

static uint64_t next_random(uint64_t below)
{
    uint64_t z = random_state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) % below;
}

/* ---- Damage ---- */

static const char *const newest_files[] = {
    "run/step-00000020/model/weights.bin", "run/step-00000020/optimizer.bin",
    "run/step-00000020/state.json", "run/step-00000020/manifest.json"};

#define FILES (sizeof newest_files / sizeof *newest_files)

static size_t read_all(const char *path, char *to, size_t room)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(to, 1, room, f);
    assert_true(n > 0 && n < room);
    fclose(f);
    return n;
}

/* Expects the newest checkpoint to be refused with one message that contains this part and names
 * the older one. The older one can be found by its step. */
static void expect_refused(wt_checkpoints *t, const char *part)
{
    t->log[0] = '\0';
    wt_expect_refused(t, -1, part,
                      "the checkpoint of step 10 is complete: to continue from it, rename '");
    wt_expect_refused(t, -1, "step-00000020'", part);
    wt_expect_refused(t, 20, part, "step-00000020");
    assert_string_equal(t->log, "");
    wt_expect_step(t, 10, 10, 'a');
}

static void begin_damage(wt_checkpoints *t, wf_ctx *ctx)
{
    wt_checkpoints_make(t, ctx);
    wt_lock(t);
    wt_save(t, 10, 'a');
    wt_save(t, 20, 'b');
    wt_expect_step(t, -1, 20, 'b');
}

/* One flipped bit anywhere makes the checkpoint invalid. */
static void test_flipped_bits(void **state)
{
    static char bytes[1 << 15];
    wt_checkpoints t;
    begin_damage(&t, *state);
    random_state = wt_seed();
    for (size_t i = 0; i < FILES; i++) {
        size_t n = read_all(wt_path(&t.scratch, newest_files[i]), bytes, sizeof bytes);
        const char *name = strrchr(newest_files[i], '/') + 1;
        /* Damages every byte of the manifest; of other files some bytes, including both ends. */
        bool all = strcmp(name, "manifest.json") == 0;
        for (size_t k = 0; k < (all ? n : 40); k++) {
            size_t at = all ? k : k == 0 ? 0 : k == 1 ? n - 1 : next_random(n);
            char flip = (char)(1 << next_random(8));
            bytes[at] ^= flip;
            wt_put(&t.scratch, newest_files[i], bytes, n);
            expect_refused(&t, name);
            bytes[at] ^= flip;
        }
        wt_put(&t.scratch, newest_files[i], bytes, n);
        wt_expect_step(&t, -1, 20, 'b');
    }
    wt_checkpoints_remove(&t);
}

/* A truncated, extended or replaced file makes the checkpoint invalid. */
static void test_cut_short(void **state)
{
    static char bytes[1 << 15];
    wt_checkpoints t;
    begin_damage(&t, *state);
    random_state = wt_seed();
    for (size_t i = 0; i < FILES; i++) {
        const char *path = wt_path(&t.scratch, newest_files[i]);
        size_t n = read_all(path, bytes, sizeof bytes - 1);
        const char *name = strrchr(newest_files[i], '/') + 1;
        for (size_t k = 0; k < 20; k++) {
            wt_put(&t.scratch, newest_files[i], bytes, k < 2 ? k : k == 2 ? n - 1 : next_random(n));
            expect_refused(&t, name);
        }
        bytes[n] = '\n';
        wt_put(&t.scratch, newest_files[i], bytes, n + 1);
        expect_refused(&t, name);
        assert_int_equal(unlink(path), 0);
        expect_refused(&t, strcmp(name, "manifest.json") == 0 ? "it has no manifest" : "missing");
        assert_int_equal(mkdir(path, 0777), 0); /* a folder or a pipe replaces the file */
        expect_refused(&t, name);
        assert_int_equal(rmdir(path), 0);
        if (strcmp(name, "manifest.json") != 0) {
            assert_int_equal(mkfifo(path, 0666), 0);
            expect_refused(&t, "not a regular file");
            assert_int_equal(unlink(path), 0);
        }
        assert_int_equal(symlink(name, path), 0); /* a link to itself, which nobody can open */
        expect_refused(&t, name);
        assert_int_equal(unlink(path), 0);
        wt_put(&t.scratch, newest_files[i], bytes, n);
        wt_expect_step(&t, -1, 20, 'b');
    }
    wt_checkpoints_remove(&t);
}

/* Folders and files that have a checkpoint's name but are not one. */
static void test_no_checkpoints(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    mkdir(wt_path(&t.scratch, "run/step-00000020"), 0777);
    expect_refused(&t, "it has no manifest.json");
    assert_int_equal(rmdir(wt_path(&t.scratch, "run/step-00000020")), 0);
    wt_put_text(&t.scratch, "run/step-00000020", "a file");
    expect_refused(&t, "manifest.json");
    assert_int_equal(unlink(wt_path(&t.scratch, "run/step-00000020")), 0);
    wt_copy(&t, "step-00000010", "step-00000020");
    expect_refused(&t, "is of step 10");
    wt_checkpoints_remove(&t);
}

/* Manifests with a valid checksum and invalid contents. */
static void test_hostile_manifests(void **state)
{
    static const struct {
        const char *format, *files, *part;
    } bad[] = {
        {"1",
         "[{\"name\": \"../step-00000010/state.json\", \"bytes\": 33, \"checksum\": "
         "\"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"/etc/passwd\", \"bytes\": 33, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a//b\", \"bytes\": 33, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"\", \"bytes\": 33, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a\\u0000b\", \"bytes\": 33, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a\", \"bytes\": -1, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a\", \"bytes\": 1e3, \"checksum\": \"0123456789abcdef\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a\", \"bytes\": 1, \"checksum\": \"0123\"}]",
         "invalid name, size or checksum"},
        {"1", "[{\"name\": \"a\", \"bytes\": 1}]", "invalid name, size or checksum"},
        {"1", "[7]", "invalid name, size or checksum"},
        {"1", "{}", "no list of files"},
        {"1", "null", "no list of files"},
        {"2", "[]", "format 2"},
        {"null", "[]", "format"},
        {"1", "[", "manifest.json"},
        {"1", "[{\"name\": \"none\", \"bytes\": 1, \"checksum\": \"0123456789abcdef\"}]",
         "missing"},
    };
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    mkdir(wt_path(&t.scratch, "run/step-00000020"), 0777);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024];
        int n =
            snprintf(text, sizeof text, "{\n  \"format\": %s,\n  \"step\": 20,\n  \"files\": %s,\n",
                     bad[i].format, bad[i].files);
        snprintf(text + n, sizeof text - (size_t)n, "  \"checksum\": \"%016llx\"\n}\n",
                 (unsigned long long)wf_checksum(text, (size_t)n));
        wt_put_text(&t.scratch, "run/step-00000020/manifest.json", text);
        expect_refused(&t, bad[i].part);
    }
    wt_checkpoints_remove(&t);
}

/* ---- Disks ---- */

/* Fails each call that creates, writes, syncs or renames a file in turn, while saving a new
 * checkpoint and while replacing one. */
static void sweep_io(wt_checkpoints *t, int64_t step, char letter, int64_t before,
                     char before_letter)
{
    int failures = 0;
    for (uint64_t nth = 1;; nth++) {
        wf_ctx_fail_io(t->ctx, nth);
        wf_status status = wt_try_save(t->ctx, t->run, step, letter);
        bool reached = t->ctx->fail_in_io == 0;
        wf_ctx_fail_io(t->ctx, 0);
        int64_t found;
        char got = wt_newest(t->ctx, t->run, &found);
        /* no failure, or only removing an old checkpoint failed, which is logged */
        if (status == WF_OK) {
            assert_int_equal(got, letter);
            assert_int_equal(found, step);
            if (!reached)
                break;
            assert_non_null(strstr(t->log, "an old checkpoint"));
        } else {
            failures++;
            wt_fails(t->ctx, status, WF_ERR_IO, "Input/output error");
            bool late = got == letter && found == step; /* the folder's own sync failed */
            if (!late) {
                wt_fails(t->ctx, status, WF_ERR_IO,
                         "is not saved, earlier checkpoints are unchanged");
                assert_int_equal(got, before_letter);
                assert_int_equal(found, before);
            }
            assert_int_equal(wf_path_look(wt_path(&t->scratch, "run/.step-00000020.part")),
                             WF_PATH_NONE);
            if (late) /* restore the state for the next round */
                assert_int_equal(wf_disk_remove(t->ctx, wt_path(&t->scratch, "run/step-00000020")),
                                 WF_OK);
            if (late && before == step)
                wt_save(t, step, before_letter);
        }
        t->log[0] = '\0';
        assert_true(nth < 1000);
    }
    assert_true(failures >= 10);
}

/* After any failed call the earlier checkpoint is found. */
static void test_failing_io(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    sweep_io(&t, 20, 'b', 10, 'a');
    sweep_io(&t, 20, 'c', 20, 'b');
    wt_expect_entries(&t, "lock step-00000010 step-00000020");
    wt_checkpoints_remove(&t);
}

/* A failure while retaining leaves complete checkpoints under their names, or nothing. */
static void test_failing_retain(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    for (int64_t step = 10; step <= 40; step += 10)
        wt_save(&t, step, 'a');
    wf_ctx_fail_io(t.ctx, 1);
    wt_fails(t.ctx, wt_retain(&t, 99, 1, 0), WF_ERR_IO, "cannot rename");
    wt_expect_entries(&t, "lock step-00000010 step-00000020 step-00000030 step-00000040");
    wf_ctx_fail_io(t.ctx, 2);
    wt_fails(t.ctx, wt_retain(&t, 99, 1, 0), WF_ERR_IO, "cannot rename");
    wt_expect_entries(&t, "lock step-00000010 step-00000020 step-00000040");
    wf_ctx_fail_io(t.ctx, 0);
    wt_ok(t.ctx, wt_retain(&t, 99, 1, 0));
    wt_expect_entries(&t, "lock step-00000040");
    wt_checkpoints_remove(&t);
}

/* Limits the file size, so that a write ends in the middle as on a full disk. Runs in a child,
 * because the limit cannot be lifted. */
static void child_with_limit(const wt_checkpoints *t)
{
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        _exit(9);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {7000, 7000}; /* the model fits, the optimizer does not */
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
        _exit(8);
    wf_status status = wt_try_save(ctx, t->run, 20, 'b');
    const char *said = wf_ctx_message(ctx);
    bool good = status == WF_ERR_IO && strstr(said, "optimizer.bin") &&
                strstr(said, "File too large") && strstr(said, "earlier checkpoints are unchanged");
    if (!good)
        fprintf(stderr, "%s\n", said);
    _exit(good ? 0 : 1);
}

static int wait_for(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

/* A failed save removes its partial files. */
static void test_limited_files(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_with_limit(&t);
    assert_int_equal(wait_for(child), 0);
    wt_expect_step(&t, -1, 10, 'a');
    assert_string_equal(t.log, "");
    wt_expect_entries(&t, "lock step-00000010");
    wt_checkpoints_remove(&t);
}

/* A full disk: a small tmpfs, where the system permits the mount. */
static void test_full_disk(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    char command[512];
    assert_int_equal(mkdir(t.run, 0777), 0);
    snprintf(command, sizeof command, "mount -t tmpfs -o size=64k none '%s' 2>/dev/null", t.run);
    if (system(command) != 0) {
        print_message("no small disk can be mounted here: skipped\n");
        wt_checkpoints_remove(&t);
        skip();
    }
    wt_lock(&t);
    wt_save(&t, 10, 'a'); /* 5 of 16 pages, plus 2 for folders */
    wt_save(&t, 20, 'b');
    wf_status status = wt_try_save(t.ctx, t.run, 30, 'c');
    bool full = status == WF_ERR_IO && strstr(wf_ctx_message(t.ctx), "No space left") &&
                strstr(wf_ctx_message(t.ctx), "earlier checkpoints are unchanged");
    if (!full)
        print_error("%s\n", wf_ctx_message(t.ctx));
    int64_t step, again = 0;
    char letter = wt_newest(t.ctx, t.run, &step), after = 0;
    wt_expect_entries(&t, "lock step-00000010 step-00000020");
    /* Saving works again once there is room. */
    wf_status kept = wt_retain(&t, 99, 1, 0);
    wf_status saved = wt_try_save(t.ctx, t.run, 30, 'c');
    after = wt_newest(t.ctx, t.run, &again);
    wf_run_lock_release(t.lock);
    t.lock = NULL;
    snprintf(command, sizeof command, "umount '%s'", t.run);
    assert_int_equal(system(command), 0);
    assert_true(full);
    assert_int_equal(letter, 'b');
    assert_int_equal(step, 20);
    wt_ok(t.ctx, kept);
    wt_ok(t.ctx, saved);
    assert_int_equal(after, 'c');
    assert_int_equal(again, 30);
    wt_checkpoints_remove(&t);
}

/* A folder without write permission. Root switches to another user first, because root may write
 * anywhere. */
static void child_without_rights(const wt_checkpoints *t)
{
    wf_ctx *ctx;
    wf_run_lock *lock;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
        _exit(9);
    if (wf_ctx_new(&ctx) != WF_OK)
        _exit(8);
    bool good = wf_run_lock_take(ctx, t->run, &lock) == WF_ERR_IO &&
                strstr(wf_ctx_message(ctx), "Permission denied") &&
                wt_try_save(ctx, t->run, 20, 'b') == WF_ERR_IO &&
                strstr(wf_ctx_message(ctx), "Permission denied");
    int64_t step;
    good = good && wt_newest(ctx, t->run, &step) == 'a' && step == 10; /* reading is permitted */
    if (!good)
        fprintf(stderr, "%s\n", wf_ctx_message(ctx));
    _exit(good ? 0 : 1);
}

/* Without write permission saving and locking fail, and the checkpoint can still be read. */
static void test_read_only(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    assert_int_equal(chmod(t.scratch.folder, 0755), 0);
    assert_int_equal(chmod(wt_path(&t.scratch, "run/lock"), 0444), 0);
    assert_int_equal(chmod(t.run, 0555), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        child_without_rights(&t);
    int code = wait_for(child);
    assert_int_equal(chmod(t.run, 0755), 0);
    if (code == 9)
        print_message("cannot become somebody else: skipped\n");
    else
        assert_int_equal(code, 0);
    wt_checkpoints_remove(&t);
}

/* A checkpoint that another user owns exists but cannot be read. It must not count as missing. */
static void child_that_cannot_read(wt_checkpoints *t)
{
    wf_checkpoint_found f;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0))
        _exit(9);
    if (wf_ctx_new(&t->ctx) != WF_OK)
        _exit(8);
    wf_status status = wf_checkpoint_find(t->ctx, t->run, -1, &f);
    const char *said = wf_ctx_message(t->ctx);
    bool good = status == WF_ERR_IO && strstr(said, "Permission denied") &&
                strstr(said, "step-00000020") && strstr(said, "step 10 is complete");
    if (!good)
        fprintf(stderr, "status %d: %s\n", (int)status, said);
    _exit(good ? 0 : 1);
}

/* An unreadable checkpoint is an error, not a missing checkpoint. */
static void test_unreadable(void **state)
{
    static const char *const paths[] = {"run/step-00000020", "run/step-00000020/manifest.json",
                                        "run/step-00000020/optimizer.bin"};
    wt_checkpoints t;
    begin_damage(&t, *state);
    assert_int_equal(chmod(t.scratch.folder, 0755), 0);
    for (int i = 0; i < 3; i++) {
        struct stat st;
        const char *path = wt_path(&t.scratch, paths[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(chmod(path, 0), 0);
        fflush(NULL);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            child_that_cannot_read(&t);
        int code = wait_for(child);
        assert_int_equal(chmod(wt_path(&t.scratch, paths[i]), st.st_mode), 0);
        if (code == 9)
            print_message("cannot become somebody else: skipped\n");
        else
            assert_int_equal(code, 0);
    }
    wt_expect_step(&t, -1, 20, 'b');
    wt_checkpoints_remove(&t);
}

/* ---- Memory ---- */

/* Fails every allocation in turn. After the checkpoint has its name, only the removal of others can
 * fail. */
static void test_memory_of_saving(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    uint64_t blocks = wt_live_blocks(t.ctx);
    bool reached = true, saved = false;
    for (uint64_t nth = 1; reached; nth++) {
        wf_ctx_fail_allocation(t.ctx, nth);
        wf_status status = wt_try_save(t.ctx, t.run, 20, 'b');
        reached = t.ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(t.ctx, 0);
        assert_int_equal(wt_live_blocks(t.ctx), blocks);
        if (status != WF_OK)
            wt_fails(t.ctx, status, WF_ERR_MEMORY, "out of memory");
        saved = saved || status == WF_OK;
        wt_expect_step(&t, -1, saved ? 20 : 10, saved ? 'b' : 'a');
        assert_true(nth < 1000);
    }
    assert_true(saved);
    wt_expect_entries(&t, "lock step-00000010 step-00000020");
    wt_checkpoints_remove(&t);
}

/* When an allocation fails, wf_checkpoint_find must not return an older checkpoint. */
static void test_memory_of_finding(void **state)
{
    wt_checkpoints t;
    begin_damage(&t, *state);
    uint64_t blocks = wt_live_blocks(t.ctx);
    wf_status status = WF_ERR_MEMORY;
    for (uint64_t nth = 1; status != WF_OK; nth++) {
        wf_checkpoint_found f;
        wf_ctx_fail_allocation(t.ctx, nth);
        status = wf_checkpoint_find(t.ctx, t.run, -1, &f);
        assert_int_equal(t.ctx->fail_in_calls == 0, status != WF_OK);
        wf_ctx_fail_allocation(t.ctx, 0);
        assert_int_equal(f.step, status == WF_OK ? 20 : -1);
        wf_mem_free(t.ctx, f.path);
        assert_int_equal(wt_live_blocks(t.ctx), blocks);
    }
    wt_checkpoints_remove(&t);
}

/* ---- Being killed ---- */

/* Kills this process when the injected failure logs its message. */
static void end_at_once(void *user, wf_log_level level, const char *message)
{
    (void)user, (void)level;
    if (strstr(message, "Input/output error"))
        raise(SIGKILL);
}

/* Runs in a child process: saves a checkpoint and dies at the nth call. */
static void child_ended_at(const wt_checkpoints *t, uint64_t nth, int64_t step, char letter)
{
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        _exit(9);
    wf_ctx_set_log(ctx, end_at_once, NULL);
    wf_ctx_fail_io(ctx, nth);
    if (wt_try_save(ctx, t->run, step, letter) == WF_OK)
        _exit(0);
    fprintf(stderr, "%s\n", wf_ctx_message(ctx));
    _exit(1);
}

/* Kills the process at each call that creates, writes, syncs or renames a file, in turn. */
static void test_killed_at_each_call(void **state)
{
    wt_checkpoints t;
    wt_checkpoints_make(&t, *state);
    wt_lock(&t);
    wt_save(&t, 10, 'a');
    const struct {
        char before, after;
        int64_t before_step, step;
    } round[] = {{'a', 'b', 10, 20}, {'b', 'c', 20, 20}};
    for (int i = 0; i < 2; i++) {
        bool there = false;
        int code = 100 + SIGKILL, made_way = 0;
        for (uint64_t nth = 1; code == 100 + SIGKILL; nth++) {
            fflush(NULL);
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0)
                child_ended_at(&t, nth, round[i].step, round[i].after);
            code = wait_for(child);
            int64_t step;
            char got = wt_newest(t.ctx, t.run, &step);
            assert_string_equal(t.log, "");
            there = there || got == round[i].after;
            assert_int_equal(got, there ? round[i].after : round[i].before);
            assert_int_equal(step, there ? round[i].step : round[i].before_step);
            wt_count_entries(&t, ".old", &made_way);
        }
        assert_int_equal(code, 0);
        assert_true(there);
        assert_true(made_way > 0 || i == 0);
    }
    wt_expect_entries(&t, "lock step-00000010 step-00000020");
    wt_checkpoints_remove(&t);
}

/* Saves checkpoints of increasing letters, either the same step again or the next one, and retains
 * two. */
static void child_that_saves(const wt_checkpoints *t, uint64_t seed)
{
    wf_ctx *ctx;
    wf_run_lock *lock;
    random_state = seed;
    if (wf_ctx_new(&ctx) != WF_OK || wf_run_lock_take(ctx, t->run, &lock) != WF_OK)
        _exit(9);
    int64_t step;
    char letter = wt_newest(ctx, t->run, &step);
    for (;;) {
        /* A run that resumes from its last checkpoint saves the same step again, or the next
         * one. */
        step = step < 0 ? 10 : step + (next_random(2) ? 10 : 0);
        letter = letter == 0 || letter == 'z' ? 'a' : (char)(letter + 1);
        if (wt_try_save(ctx, t->run, step, letter) != WF_OK ||
            wf_checkpoint_retain(ctx, t->run, WT_RUN, step, 2, 0) != WF_OK) {
            fprintf(stderr, "%s\n", wf_ctx_message(ctx));
            _exit(1);
        }
        /* Reports the letter after the checkpoint is complete. */
        if (write(STDOUT_FILENO, &letter, 1) != 1)
            _exit(8);
    }
}

/* Starts a child that saves until it is killed. It writes the letter of each complete checkpoint
 * to *from. */
static pid_t start_saving(const wt_checkpoints *t, int *from)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    uint64_t seed = random_state += 12345;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        child_that_saves(t, seed);
    }
    close(ends[1]);
    *from = ends[0];
    return child;
}

/* After each kill the newest checkpoint is complete: the last one reported, or the next. */
static void test_killed(void **state)
{
    enum { ROUNDS = 300 };
    wt_checkpoints t;
    /* Uses memory when it can: without the time to sync, more kills hit other steps of a save. */
    if (wf_path_look("/dev/shm") == WF_PATH_FOLDER)
        setenv("TMPDIR", "/dev/shm", 0);
    wt_checkpoints_make(&t, *state);
    random_state = wt_seed();
    /* Scales the delays before a kill with the time that one save takes. */
    wt_lock(&t);
    uint64_t began = wf_clock_ns();
    wt_save(&t, 5, 'x');
    uint64_t microseconds = (wf_clock_ns() - began) / 1000 + 100;
    wf_run_lock_release(t.lock);
    t.lock = NULL;
    char last = 'x';
    int64_t last_step = -1;
    int unfinished = 0, made_way = 0, saved = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int from;
        pid_t child = start_saving(&t, &from);
        usleep((useconds_t)(500 + next_random(microseconds * 3)));
        kill(child, SIGKILL);
        assert_int_equal(wait_for(child), 100 + SIGKILL);
        char letters[4096];
        ssize_t n;
        while ((n = read(from, letters, sizeof letters)) > 0) {
            last = letters[n - 1];
            saved += (int)n;
        }
        close(from);
        int64_t step;
        char got = wt_newest(t.ctx, t.run, &step);
        assert_string_equal(t.log, ""); /* no checkpoint looks complete without being so */
        char next = last == 0 || last == 'z' ? 'a' : (char)(last + 1);
        if (got != last && got != next)
            fail_msg("round %d: found '%c' after '%c'", round, got ? got : '-', last ? last : '-');
        assert_true(step >= last_step);
        last = got;
        last_step = step;
        wt_count_entries(&t, ".part", &unfinished);
        wt_count_entries(&t, ".old", &made_way);
    }
    print_message("%d kills, %d checkpoints saved, %d left unfinished, %d while one made way\n",
                  ROUNDS, saved, unfinished, made_way);
    assert_true(saved > 0 && unfinished > 0);
    wt_checkpoints_remove(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_flipped_bits),        wt_test(test_cut_short),
        wt_test(test_no_checkpoints),      wt_test(test_hostile_manifests),
        wt_test(test_failing_io),          wt_test(test_failing_retain),
        wt_test(test_limited_files),       wt_test(test_full_disk),
        wt_test(test_read_only),           wt_test(test_unreadable),
        wt_test(test_memory_of_saving),    wt_test(test_memory_of_finding),
        wt_test(test_killed_at_each_call), wt_test(test_killed),
    };
    return cmocka_run_group_tests_name("checkpoint faults", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* test_mapped.c - a file truncated while it is mapped reads as zeros instead of raising SIGBUS, and
 * sinks make a file appear only when it is complete. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sink.h"
#include "support.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/weft-mapped-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *in_folder(const char *name)
{
    static char path[4][128];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static int files_in_folder(void)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* Runs fn in a child. Returns its exit status, or minus the signal that killed it. */
static int in_child(int (*fn)(void))
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(fn());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- The guard ---- */

#define PAGES 16

/* Maps a file of ones, then truncates it to half its pages minus half a page. */
static wf_map *cut_map(wf_ctx *ctx, size_t page)
{
    size_t bytes = PAGES * page;
    char *ones = malloc(bytes);
    wf_map *map = NULL;
    if (!ones)
        return NULL;
    memset(ones, 1, bytes);
    if (wf_file_write(ctx, in_folder("cut"), ones, bytes) == WF_OK &&
        wf_map_open(ctx, in_folder("cut"), &map) == WF_OK &&
        truncate(in_folder("cut"), (off_t)(PAGES / 2 * page - page / 2)) != 0)
        map = NULL;
    free(ones);
    return map;
}

static int read_cut_file(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), ones = 0, zeros = 0;
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        return 1;
    wf_map *map = cut_map(ctx, page), *other = NULL;
    if (!map || wf_map_broken(map))
        return 2;
    if (wf_map_open(ctx, in_folder("cut"), &other) != WF_OK) /* maps the file at its current size */
        return 3;
    wf_guard_mapped_files(true);
    const volatile uint8_t *bytes = map->data;
    for (size_t i = map->size; i-- > 0;) {
        ones += bytes[i] == 1;
        zeros += bytes[i] == 0;
    }
    if (!wf_map_broken(map) || wf_map_broken(other))
        return 4;
    /* Reading goes from the last page backwards. Each fault zeroes the pages after it; bytes that
     * the file still has are read. */
    if (ones != PAGES / 2 * page - page / 2 || ones + zeros != map->size)
        return 5;
    wf_map_close(map);
    wf_map_close(other);
    if (wf_map_open(ctx, in_folder("cut"), &map) != WF_OK || wf_map_broken(map))
        return 6; /* the slot of the closed map is reused */
    wf_map_close(map);
    wf_guard_mapped_files(false);
    wf_ctx_free(ctx);
    return 0;
}

static int touch_cut_file(void)
{
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        return 1;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    wf_map *map = cut_map(ctx, page);
    if (!map)
        return 2;
    signal(SIGBUS, SIG_DFL); /* even when a sanitizer installed its own handler */
    wf_guard_mapped_files(true);
    wf_guard_mapped_files(false);
    const volatile uint8_t *bytes = map->data;
    return bytes[map->size - 1] + 3;
}

static volatile sig_atomic_t seen;

static void note(int number)
{
    (void)number;
    seen++;
}

static int send_signal(void)
{
    signal(SIGBUS, note);
    wf_guard_mapped_files(true);
    raise(SIGBUS);
    wf_guard_mapped_files(false);
    raise(SIGBUS);
    return seen == 2 ? 0 : 1;
}

static int send_to_nobody(void)
{
    signal(SIGBUS, SIG_DFL);
    wf_guard_mapped_files(true);
    raise(SIGBUS);
    return 0;
}

static int send_to_deaf(void)
{
    signal(SIGBUS, SIG_IGN);
    wf_guard_mapped_files(true);
    raise(SIGBUS);
    return 7;
}

static void test_guard(void **state)
{
    (void)state;
    assert_int_equal(in_child(read_cut_file), 0);
    unlink(in_folder("cut"));
}

/* SIGBUS outside of our mappings reaches the previous handler. */
static void test_guard_passes_on(void **state)
{
    (void)state;
    assert_int_equal(in_child(send_signal), 0);
    assert_int_equal(in_child(send_to_nobody), -SIGBUS);
    assert_int_equal(in_child(send_to_deaf), 7);
    assert_int_equal(in_child(touch_cut_file), -SIGBUS);
    unlink(in_folder("cut"));
}

/* ---- Sinks ---- */

static void expect_file(wf_ctx *ctx, const char *path, const char *wanted, size_t bytes)
{
    char *text;
    size_t size;
    wt_ok(ctx, wf_file_read(ctx, path, 64 << 20, &text, &size));
    assert_int_equal(size, bytes);
    assert_memory_equal(text, wanted, bytes);
    wf_mem_free(ctx, text);
}

static void test_sink_writes(void **state)
{
    wf_ctx *ctx = *state;
    static char large[(3 << 20) + 17];
    wf_sink *s;
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 2654435761u >> 13);
    wt_ok(ctx, wf_sink_open(ctx, in_folder("out"), &s));
    /* Sizes below, at and above the sink's buffer. */
    static const size_t sizes[] = {1, 0, 7, 1 << 20, 3, (1 << 20) - 1, 100000};
    size_t at = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; at += sizes[i++])
        wt_ok(ctx, wf_sink_write(s, large + at, sizes[i]));
    wt_ok(ctx, wf_sink_write(s, large + at, sizeof large - at));
    assert_int_not_equal(access(in_folder("out"), F_OK), 0);
    wt_ok(ctx, wf_sink_seal(s));
    assert_int_not_equal(access(in_folder("out"), F_OK), 0);
    wt_ok(ctx, wf_sink_commit(s));
    wf_sink_free(s);
    expect_file(ctx, in_folder("out"), large, sizeof large);
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(in_folder("out"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
    assert_int_equal(files_in_folder(), 1);

    /* A cancelled sink keeps the old file and removes the new one. */
    wt_ok(ctx, wf_sink_open(ctx, in_folder("out"), &s));
    wt_ok(ctx, wf_sink_write(s, large, 1000));
    assert_int_equal(files_in_folder(), 2);
    wf_sink_free(s);
    wf_sink_free(NULL);
    assert_int_equal(files_in_folder(), 1);
    expect_file(ctx, in_folder("out"), large, sizeof large);

    /* Writing through a symbolic link keeps the link. */
    assert_int_equal(symlink("out", in_folder("link")), 0);
    wt_ok(ctx, wf_sink_open(ctx, in_folder("link"), &s));
    wt_ok(ctx, wf_sink_write(s, "new", 3));
    wt_ok(ctx, wf_sink_commit(s));
    wf_sink_free(s);
    expect_file(ctx, in_folder("out"), "new", 3);
    assert_int_equal(lstat(in_folder("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    unlink(in_folder("link"));
    unlink(in_folder("out"));
}

static void test_sink_fails(void **state)
{
    wf_ctx *ctx = *state;
    wf_sink *s;
    wt_fails(ctx, wf_sink_open(ctx, folder, &s), WF_ERR_IO, folder);
    wt_fails(ctx, wf_sink_open(ctx, in_folder("none/out"), &s), WF_ERR_IO, "none/out");
    wt_ok(ctx, wf_sink_open(ctx, "/dev/full", &s)); /* not a regular file: written directly */
    wt_ok(ctx, wf_sink_write(s, "x", 1));
    wt_fails(ctx, wf_sink_commit(s), WF_ERR_IO, "/dev/full");
    wf_sink_free(s);
    for (uint64_t n = 1; n <= 4; n++) {
        wf_ctx_fail_allocation(ctx, n);
        assert_int_equal(wf_sink_open(ctx, in_folder("out"), &s), WF_ERR_MEMORY);
        assert_int_equal(wt_live_blocks(ctx), 0);
    }
    assert_int_equal(files_in_folder(), 0);
    /* A sink that has no temporary file removes none, even one called like its template. */
    wt_ok(ctx, wf_file_write(ctx, in_folder("out.XXXXXX"), "foreign", 7));
    wf_ctx_fail_io(ctx, 1);
    wt_fails(ctx, wf_sink_open(ctx, in_folder("out"), &s), WF_ERR_IO, "out");
    expect_file(ctx, in_folder("out.XXXXXX"), "foreign", 7);
    unlink(in_folder("out.XXXXXX"));
}

/* RLIMIT_FSIZE stands in for a full disk. */
static int fill_the_disk(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    static char piece[300000];
    wf_ctx *ctx;
    wf_sink *s;
    signal(SIGXFSZ, SIG_IGN);
    if (wf_ctx_new(&ctx) != WF_OK || setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
        wf_sink_open(ctx, in_folder("out"), &s) != WF_OK)
        return 1;
    wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && i < 10; i++)
        status = wf_sink_write(s, piece, sizeof piece);
    if (status != WF_ERR_IO || !strstr(wf_ctx_message(ctx), in_folder("out")))
        return 2;
    wf_sink_free(s);
    return 0;
}

static void test_disk_full(void **state)
{
    wf_ctx *ctx = *state;
    wt_ok(ctx, wf_file_write(ctx, in_folder("out"), "old", 3));
    assert_int_equal(in_child(fill_the_disk), 0);
    assert_int_equal(files_in_folder(), 1);
    expect_file(ctx, in_folder("out"), "old", 3);
    unlink(in_folder("out"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_guard),      wt_test(test_guard_passes_on), wt_test(test_sink_writes),
        wt_test(test_sink_fails), wt_test(test_disk_full),
    };
    return cmocka_run_group_tests_name("mapped", tests, make_folder, remove_folder);
}

/* SPDX-License-Identifier: MIT */
/* test_base.c - contexts, memory and files of src/base, in the order of its source files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "asserts.h"
#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/poison.h"
#include "base/sanitize.h"

/* ---- Helpers ------------------------------------------------------------------------------- */

static int ctx_setup(void **state)
{
    wf_ctx *ctx;
    if (wf_ctx_new(&ctx) != WF_OK)
        return -1;
    *state = ctx;
    return 0;
}

/* Every test that takes a context must leave it without live memory. */
static int ctx_teardown(void **state)
{
    wf_mem_stats mem;
    wf_ctx_mem_stats(*state, &mem);
    wf_ctx_free(*state);
    return mem.live_blocks == 0 && mem.live_bytes == 0 ? 0 : -1;
}

static bool all_zero(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (((const char *)p)[i] != 0)
            return false;
    return true;
}

#if WF_ADDRESS_SANITIZER
#define assert_poisoned(p, yes) assert_int_equal(__asan_address_is_poisoned(p), yes)
#else
#define assert_poisoned(p, yes) ((void)(p))
#endif

/* ---- status.c, ctx.c ----------------------------------------------------------------------- */

/* Every status has its own text. */
static void test_strings(void **state)
{
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", WF_VERSION_MAJOR, WF_VERSION_MINOR,
             WF_VERSION_PATCH);
    assert_string_equal(wf_version_string(), version);

    assert_string_equal(wf_status_string(WF_ERR_MEMORY), "out of memory");
    for (int a = WF_OK; a >= WF_ERR_INTERNAL; a--) {
        assert_string_not_equal(wf_status_string((wf_status)a), "unknown status");
        for (int b = a - 1; b >= WF_ERR_INTERNAL; b--)
            assert_string_not_equal(wf_status_string((wf_status)a), wf_status_string((wf_status)b));
    }
    assert_string_equal(wf_status_string((wf_status)(WF_ERR_INTERNAL - 1)), "unknown status");
}

typedef struct {
    int count;
    wf_log_level level;
    char text[1024];
} log_record;

static void record_log(void *user, wf_log_level level, const char *message)
{
    log_record *r = user;
    r->count++;
    r->level = level;
    snprintf(r->text, sizeof r->text, "%s", message);
}

static wf_status try_twice(wf_ctx *ctx, wf_status first, int *reached)
{
    WF_TRY(first);
    ++*reached;
    WF_TRY(wf_fail(ctx, WF_ERR_IO, "second"));
    ++*reached;
    return WF_OK;
}

static void test_ctx_failure(void **state)
{
    wf_ctx *ctx = *state;
    assert_int_equal(wf_ctx_status(ctx), WF_OK);
    assert_string_equal(wf_ctx_message(ctx), "");

    assert_int_equal(wf_fail(ctx, WF_ERR_FORMAT, "bad %s at %d", "token", 7), WF_ERR_FORMAT);
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_FORMAT);
    assert_string_equal(wf_ctx_message(ctx), "bad token at 7");

    wf_fail(ctx, WF_ERR_IO, "in file: %s", wf_ctx_message(ctx));
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_IO);
    assert_string_equal(wf_ctx_message(ctx), "in file: bad token at 7");

    wf_ctx_clear(ctx);
    assert_int_equal(wf_ctx_status(ctx), WF_OK);
    assert_string_equal(wf_ctx_message(ctx), "");

    char longest[2000];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    wf_fail(ctx, WF_ERR_USAGE, "%s", longest);
    assert_int_equal(strlen(wf_ctx_message(ctx)), WF_MESSAGE_BYTES - 1);
    assert_string_equal(wf_ctx_message(ctx) + WF_MESSAGE_BYTES - 5, "x...");

    /* Text from outside with line breaks, terminal escapes and invalid UTF-8. */
    wf_fail(ctx, WF_ERR_FORMAT, "'%s'", "a\r\n\x1B[2J\x7F\xC2\x9Bz\xC3\xA9\xE2\x82 \xFF");
    assert_string_equal(wf_ctx_message(ctx),
                        "'a\\r\\n\\x1b[2J\\x7f\\u009bz\xC3\xA9\\xe2\\x82 \\xff'");

    int reached = 0;
    assert_int_equal(try_twice(ctx, WF_ERR_GRAPH, &reached), WF_ERR_GRAPH);
    assert_int_equal(reached, 0);
    assert_int_equal(try_twice(ctx, WF_OK, &reached), WF_ERR_IO);
    assert_int_equal(reached, 1);

    assert_int_equal(wf_ctx_new(NULL), WF_ERR_USAGE);
    assert_int_equal(wf_ctx_status(NULL), WF_ERR_MEMORY);
    assert_string_equal(wf_ctx_message(NULL), "out of memory");
    wf_ctx_free(NULL);

    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.calls, 0); /* wf_fail allocates nothing */
}

/* Messages reach the log function with their level; failures are logged as debug messages. */
static void test_ctx_log(void **state)
{
    (void)state;
    wf_ctx *ctx;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    log_record r = {0};
    wf_ctx_log(ctx, WF_LOG_ERROR, "unheard");
    wf_ctx_set_log(ctx, record_log, &r);
    wf_ctx_log(ctx, WF_LOG_INFO, "loaded %d tensors", 12);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.level, WF_LOG_INFO);
    assert_string_equal(r.text, "loaded 12 tensors");

    wf_fail(ctx, WF_ERR_IO, "gone");
    assert_int_equal(r.count, 2);
    assert_int_equal(r.level, WF_LOG_DEBUG);
    assert_string_equal(r.text, "gone");

    wf_ctx_set_log(ctx, NULL, NULL);
    wf_fail(ctx, WF_ERR_IO, "gone again");
    assert_int_equal(r.count, 2);

    wf_ctx_set_log(ctx, record_log, &r);
    wf_ctx_free(ctx); /* nothing is live, so nothing is logged */
    assert_int_equal(r.count, 2);
}

/* ---- mem.c --------------------------------------------------------------------------------- */

/* Blocks are aligned, zeroed and counted. The bytes around them are poisoned for
 * AddressSanitizer. */
static void test_mem_blocks(void **state)
{
    wf_ctx *ctx = *state;
    static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 1000, 4096, 1 << 20};
    enum { N = sizeof sizes / sizeof *sizes };
    unsigned char *p[N];
    uint64_t total = 0;
    for (int i = 0; i < N; i++) {
        p[i] = wf_mem_new(ctx, sizes[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % WF_MEM_ALIGN, 0);
        assert_true(all_zero(p[i], sizes[i]));
        memset(p[i], 0xA5, sizes[i]);
        assert_poisoned(p[i] - 1, 1);
        assert_poisoned(p[i] + sizes[i], 1);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(p[k], p[i]);
        total += sizes[i];
    }
    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.calls, N);
    assert_int_equal(mem.live_blocks, N);
    assert_int_equal(mem.live_bytes, total);
    assert_int_equal(mem.peak_bytes, total);

    for (int i = 0; i < N; i++)
        wf_mem_free(ctx, p[i]);
    wf_mem_free(ctx, NULL);
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.live_blocks, 0);
    assert_int_equal(mem.live_bytes, 0);
    assert_int_equal(mem.peak_bytes, total);
    assert_int_equal(wf_ctx_status(ctx), WF_OK);
}

/* Large blocks are mapped separately and counted like the others. */
static void test_mem_large(void **state)
{
    wf_ctx *ctx = *state;
    const size_t bytes = ((size_t)5 << 20) + 3;
    for (int i = 0; i < 3; i++) { /* a reused block is zeroed */
        char *p = wf_mem_new(ctx, bytes);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % WF_MEM_ALIGN, 0);
        assert_true(all_zero(p, bytes));
        memset(p, 1, bytes);
        wf_mem_stats mem;
        wf_ctx_mem_stats(ctx, &mem);
        assert_int_equal(mem.live_blocks, 1);
        assert_int_equal(mem.live_bytes, bytes);
        p = wf_mem_grow(ctx, p, 2 * bytes);
        assert_non_null(p);
        assert_int_equal(p[bytes - 1], 1);
        assert_true(all_zero(p + bytes, bytes));
        p = wf_mem_grow(ctx, p, 10);
        assert_int_equal(p[9], 1);
        wf_ctx_mem_stats(ctx, &mem);
        assert_int_equal(mem.live_bytes, 10);
        assert_int_equal(mem.peak_bytes, 3 * bytes);
        wf_mem_free(ctx, p);
    }
}

static void test_mem_grow(void **state)
{
    wf_ctx *ctx = *state;
    unsigned char *p = wf_mem_grow(ctx, NULL, 10);
    assert_non_null(p);
    memset(p, 1, 10);
    p = wf_mem_grow(ctx, p, 100);
    assert_int_equal(p[9], 1);
    assert_true(all_zero(p + 10, 90));
    memset(p, 2, 100);
    p = wf_mem_grow(ctx, p, 5);
    assert_int_equal(p[4], 2);
    p = wf_mem_grow(ctx, p, 50); /* the part cut off by shrinking comes back as zeros */
    assert_int_equal(p[4], 2);
    assert_true(all_zero(p + 5, 45));

    wf_ctx_fail_allocation(ctx, 1);
    assert_null(wf_mem_grow(ctx, p, 5000));
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
    assert_int_equal(p[4], 2);
    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.live_blocks, 1);
    assert_int_equal(mem.live_bytes, 50);
    wf_mem_free(ctx, p);
}

/* The nth allocation fails exactly once, and the message has its size. */
static void test_mem_failure(void **state)
{
    wf_ctx *ctx = *state;
    for (uint64_t nth = 1; nth <= 4; nth++) {
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        for (uint64_t i = 1; i <= 6; i++) {
            void *p = wf_mem_new(ctx, 100 + i);
            assert_int_equal(p == NULL, i == nth);
            wf_mem_free(ctx, p);
        }
        char expected[100];
        snprintf(expected, sizeof expected, "out of memory: %d bytes could not be allocated",
                 100 + (int)nth);
        assert_string_equal(wf_ctx_message(ctx), expected);
        assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
    }
    wf_ctx_fail_allocation(ctx, 1);
    wf_ctx_fail_allocation(ctx, 0);
    void *p = wf_mem_new(ctx, 1);
    assert_non_null(p);
    wf_mem_free(ctx, p);

    wf_ctx_clear(ctx);
    assert_null(wf_mem_new(ctx, SIZE_MAX));
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
    wf_ctx_clear(ctx);
    assert_null(wf_mem_array(ctx, SIZE_MAX / 2, 3));
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
    assert_null(wf_mem_array(ctx, (size_t)1 << 32, (size_t)1 << 32));

    int32_t *array = wf_mem_array(ctx, 10, sizeof *array);
    assert_non_null(array);
    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.live_bytes, 40);
    wf_mem_free(ctx, array);
}

static void free_elsewhere(wf_ctx *ctx)
{
    wf_ctx *other;
    if (wf_ctx_new(&other) == WF_OK)
        wf_mem_free(other, wf_mem_new(ctx, 8));
}

static void free_inside(wf_ctx *ctx)
{
    wf_mem_free(ctx, (char *)wf_mem_new(ctx, 4 * WF_MEM_ALIGN) + 2 * WF_MEM_ALIGN);
}

/* Freeing a block of another context, or a pointer inside a block, trips an assertion. */
static void test_mem_misuse(void **state)
{
    assert_asserts(free_elsewhere, *state);
    assert_asserts(free_inside, *state);
}

static void test_mem_leak_is_logged(void **state)
{
    (void)state;
    wf_ctx *ctx;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    log_record r = {0};
    wf_ctx_set_log(ctx, record_log, &r);
    char *p = wf_mem_new(ctx, 24);
    assert_non_null(p);
    void *base; /* start of the leaked block, to free it in the end */
    wf_unpoison(p - WF_MEM_ALIGN, WF_MEM_ALIGN);
    memcpy(&base, p - WF_MEM_ALIGN + 16, sizeof base);
    wf_ctx_free(ctx);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.level, WF_LOG_WARN);
    assert_non_null(strstr(r.text, "24 bytes"));
    free(base);
}

/* ---- arena.c ------------------------------------------------------------------------------- */

/* Blocks of an arena do not overlap, stay valid while it grows, and are zeroed. */
static void test_arena(void **state)
{
    wf_ctx *ctx = *state;
    wf_arena a;
    wf_arena_init(&a, ctx);
    for (int round = 0; round < 2; round++) { /* the second round runs after a free */
        enum { N = 3000 };
        static unsigned char *p[N];
        static size_t size[N];
        wf_rng r;
        wf_rng_init(&r, 1, (uint64_t)round);
        for (int i = 0; i < N; i++) {
            size[i] = wf_rng_below(&r, i % 500 == 499 ? 200000 : 200);
            p[i] = wf_arena_alloc(&a, size[i]);
            assert_non_null(p[i]);
            assert_int_equal((uintptr_t)p[i] % WF_ARENA_ALIGN, 0);
            assert_true(all_zero(p[i], size[i]));
            memset(p[i], i % 255 + 1, size[i]);
        }
        for (int i = 0; i < N; i++)
            for (size_t k = 0; k < size[i]; k++)
                assert_int_equal(p[i][k], i % 255 + 1);
        wf_arena_free(&a);
        assert_null(a.chunks);
        wf_mem_stats mem;
        wf_ctx_mem_stats(ctx, &mem);
        assert_int_equal(mem.live_blocks, 0);
    }

    char *s = wf_arena_strdup(&a, "weft");
    assert_string_equal(s, "weft");
    assert_poisoned(s + 4, 0);
    assert_poisoned(s + 5, 1);
    int32_t numbers[] = {1, 2, 3};
    int32_t *copy = wf_arena_copy(&a, numbers, sizeof numbers);
    assert_memory_equal(copy, numbers, sizeof numbers);
    assert_non_null(wf_arena_copy(&a, NULL, 0));
    assert_ptr_not_equal(wf_arena_alloc(&a, 0), wf_arena_alloc(&a, 0));

    /* A large request does not end the chunk being filled: one more block, not two. */
    wf_mem_stats before, after;
    wf_ctx_mem_stats(ctx, &before);
    char *small = wf_arena_alloc(&a, 16);
    assert_non_null(wf_arena_alloc(&a, 1 << 20));
    assert_ptr_equal(wf_arena_alloc(&a, 16), small + 16);
    wf_ctx_mem_stats(ctx, &after);
    assert_int_equal(after.live_blocks, before.live_blocks + 1);

    assert_null(wf_arena_alloc(&a, SIZE_MAX));
    assert_null(wf_arena_alloc(&a, SIZE_MAX - 20));
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
    assert_string_equal(s, "weft");
    wf_arena_free(&a);
    wf_arena_free(&a);

    for (int i = 0; i < 3000; i++) /* 48 does not divide a chunk: no allocation may cross its end */
        assert_non_null(wf_arena_alloc(&a, 48));
    wf_arena_free(&a);

    wf_ctx_fail_allocation(ctx, 1);
    assert_null(wf_arena_strdup(&a, "no"));
    assert_non_null(wf_arena_strdup(&a, "yes"));
    wf_arena_free(&a);
}

/* ---- check.h ------------------------------------------------------------------------------- */

/* Checked arithmetic detects overflow at both ends of the range. */
static void test_check(void **state)
{
    (void)state;
    int64_t i;
    assert_true(wf_mul_i64(INT64_C(3037000499), INT64_C(3037000499), &i));
    assert_true(i == INT64_C(9223372030926249001));
    assert_false(wf_mul_i64(INT64_C(3037000500), INT64_C(3037000500), &i));
    assert_false(wf_mul_i64(INT64_MIN, -1, &i));
    assert_true(wf_add_i64(INT64_MAX, INT64_MIN, &i) && i == -1);
    assert_false(wf_add_i64(INT64_MAX, 1, &i));
    assert_false(wf_add_i64(INT64_MIN, -1, &i));

    size_t s;
    assert_true(wf_mul_size(SIZE_MAX / 2, 2, &s) && s == SIZE_MAX - 1);
    assert_false(wf_mul_size(SIZE_MAX / 2 + 1, 2, &s));
    assert_true(wf_add_size(SIZE_MAX - 1, 1, &s) && s == SIZE_MAX);
    assert_false(wf_add_size(SIZE_MAX, 1, &s));

    for (size_t n = 0; n < 300; n++)
        for (size_t alignment = 1; alignment <= 128; alignment *= 2) {
            assert_true(wf_align_size(n, alignment, &s));
            assert_true(s % alignment == 0 && s >= n && s - n < alignment);
        }
    assert_true(wf_align_size(SIZE_MAX - 63, 64, &s) && s == SIZE_MAX - 63);
    assert_false(wf_align_size(SIZE_MAX - 62, 64, &s));
}

/* ---- file.c -------------------------------------------------------------------------------- */

static char dir[] = "/tmp/weft-test-base-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void put_file(const char *name, const void *data, size_t bytes)
{
    FILE *out = fopen(in_dir(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, bytes, out), bytes);
    assert_int_equal(fclose(out), 0);
}

static char big[100000];

static int dir_setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir) || chmod(dir, 0755) != 0 || mkdir(in_dir("folder"), 0755) != 0 ||
        mkfifo(in_dir("pipe"), 0644) != 0)
        return -1;
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 31 + i / 251);
    put_file("big", big, sizeof big);
    put_file("empty", "", 0);
    put_file("secret", "secret", 6);
    return chmod(in_dir("secret"), 0);
}

static int dir_teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"folder", "pipe", "big", "empty", "secret"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (remove(in_dir(names[i])) != 0)
            return -1;
    return rmdir(dir);
}

/* Returns the next free descriptor number, which grows when a descriptor leaks. */
static int next_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

/* Maps a file and an empty one, and leaks no descriptor when it fails. */
static void test_map(void **state)
{
    wf_ctx *ctx = *state;
    int fd = next_fd();
    wf_map *map;
    assert_int_equal(wf_map_open(ctx, in_dir("big"), &map), WF_OK);
    assert_int_equal(map->size, sizeof big);
    assert_memory_equal(map->data, big, sizeof big);
    wf_map_close(map);

    assert_int_equal(wf_map_open(ctx, in_dir("empty"), &map), WF_OK);
    assert_int_equal(map->size, 0);
    assert_non_null(map->data);
    wf_map_close(map);
    wf_map_close(NULL);

    wf_ctx_fail_allocation(ctx, 1);
    assert_int_equal(wf_map_open(ctx, in_dir("big"), &map), WF_ERR_MEMORY);
    assert_null(map);
    assert_int_equal(next_fd(), fd);
}

/* Expects both ways of reading to fail with a message that has the path and the reason. */
static void check_refused(wf_ctx *ctx, const char *name, const char *reason)
{
    int fd = next_fd();
    wf_map *map = (wf_map *)ctx;
    char *text = (char *)ctx;
    size_t size = 1;

    assert_int_equal(wf_map_open(ctx, in_dir(name), &map), WF_ERR_IO);
    assert_null(map);
    assert_int_equal(wf_ctx_status(ctx), WF_ERR_IO);
    assert_non_null(strstr(wf_ctx_message(ctx), in_dir(name)));
    assert_non_null(strstr(wf_ctx_message(ctx), reason));
    wf_ctx_clear(ctx);

    if (strcmp(name, "pipe") != 0) { /* reading a pipe would wait for a writer */
        assert_int_equal(wf_file_read(ctx, in_dir(name), 100, &text, &size), WF_ERR_IO);
        assert_null(text);
        assert_int_equal(size, 0);
        assert_non_null(strstr(wf_ctx_message(ctx), in_dir(name)));
        assert_non_null(strstr(wf_ctx_message(ctx), reason));
        wf_ctx_clear(ctx);
    }
    assert_int_equal(next_fd(), fd);
}

static void test_file_refused(void **state)
{
    wf_ctx *ctx = *state;
    check_refused(ctx, "missing", strerror(ENOENT));
    check_refused(ctx, "folder", strerror(EISDIR));
    check_refused(ctx, "big/inside", strerror(ENOTDIR));
    check_refused(ctx, "pipe", "not a regular file");

    bool root = geteuid() == 0; /* root may read everything */
    if (root)
        assert_int_equal(seteuid(65534), 0);
    check_refused(ctx, "secret", strerror(EACCES));
    if (root)
        assert_int_equal(seteuid(0), 0);
}

/* Reads files around the sizes of the buffer, with limits from the exact size up. */
static void test_file_read(void **state)
{
    wf_ctx *ctx = *state;
    int fd = next_fd();
    char *text;
    size_t size;
    static const size_t sizes[] = {0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 8192, 50000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        put_file("part", big, sizes[i]);
        for (size_t limit = sizes[i]; limit < 200000; limit = limit * 2 + 1) {
            assert_int_equal(wf_file_read(ctx, in_dir("part"), limit, &text, &size), WF_OK);
            assert_int_equal(size, sizes[i]);
            assert_memory_equal(text, big, size);
            assert_int_equal(text[size], 0);
            wf_mem_free(ctx, text);
        }
        if (sizes[i] == 0)
            continue;
        assert_int_equal(wf_file_read(ctx, in_dir("part"), sizes[i] - 1, &text, &size),
                         WF_ERR_FORMAT);
        assert_null(text);
        char reason[64];
        snprintf(reason, sizeof reason, "larger than %zu bytes", sizes[i] - 1);
        assert_non_null(strstr(wf_ctx_message(ctx), reason));
        assert_non_null(strstr(wf_ctx_message(ctx), in_dir("part")));
    }
    assert_int_equal(remove(in_dir("part")), 0);

    uint64_t nth = 1; /* every allocation fails once; the file needs several */
    for (;; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_file_read(ctx, in_dir("big"), sizeof big, &text, &size);
        wf_ctx_fail_allocation(ctx, 0);
        if (status == WF_OK)
            break;
        assert_int_equal(status, WF_ERR_MEMORY);
        assert_null(text);
        wf_mem_stats mem;
        wf_ctx_mem_stats(ctx, &mem);
        assert_int_equal(mem.live_blocks, 0);
    }
    assert_in_range(nth, 4, 20);
    assert_memory_equal(text, big, sizeof big);
    wf_mem_free(ctx, text);
    assert_int_equal(next_fd(), fd);
}

/* Replacing leaves no temporary file: teardown fails when the folder is not empty. */
static void test_file_replace(void **state)
{
    wf_ctx *ctx = *state;
    int fd = next_fd();
    char *text;
    size_t size;
    wf_file_stamp stamp;
    assert_false(wf_file_look(in_dir("made"), &stamp));
    for (size_t n = 1; n <= sizeof big; n *= 10) { /* replaces the file of the previous round */
        const wf_piece pieces[] = {{"ab", 2}, {NULL, 0}, {big, n}};
        assert_int_equal(wf_file_replace(ctx, in_dir("made"), pieces, 3), WF_OK);
        assert_true(wf_file_look(in_dir("made"), &stamp));
        assert_int_equal(stamp.bytes, n + 2);
        assert_int_equal(wf_file_read(ctx, in_dir("made"), 2 * sizeof big, &text, &size), WF_OK);
        assert_int_equal(size, n + 2);
        assert_memory_equal(text, "ab", 2);
        assert_memory_equal(text + 2, big, n);
        wf_mem_free(ctx, text);
    }
    assert_int_equal(remove(in_dir("made")), 0);

    assert_false(wf_file_look(in_dir("folder"), &stamp));
    assert_int_equal(wf_file_replace(ctx, in_dir("folder"), NULL, 0), WF_ERR_IO);
    assert_non_null(strstr(wf_ctx_message(ctx), "cannot write '"));
    assert_int_equal(wf_file_replace(ctx, in_dir("no/such/made"), NULL, 0), WF_ERR_IO);
    wf_ctx_fail_allocation(ctx, 1);
    assert_int_equal(wf_file_replace(ctx, in_dir("made"), NULL, 0), WF_ERR_MEMORY);
    assert_int_equal(next_fd(), fd);
}

/* An existing file stays, and an incomplete new file is removed. */
static void test_file_create(void **state)
{
    wf_ctx *ctx = *state;
    int fd = next_fd();
    char *text, path[512];
    size_t size;
    wf_file_stamp stamp;
    snprintf(path, sizeof path, "%s", in_dir("made"));
    assert_int_equal(wf_file_create(ctx, path, "first", 5), WF_OK);
    assert_int_equal(wf_file_create(ctx, path, "second", 6), WF_ERR_USAGE);
    assert_non_null(strstr(wf_ctx_message(ctx), "made' already exists; choose another name"));
    assert_int_equal(wf_file_read(ctx, path, 100, &text, &size), WF_OK);
    assert_string_equal(text, "first");
    wf_mem_free(ctx, text);
    assert_int_equal(remove(path), 0);
    wf_ctx_fail_io(ctx, 1);
    assert_int_equal(wf_file_create(ctx, path, "third", 5), WF_ERR_IO);
    wf_ctx_fail_io(ctx, 0);
    assert_false(wf_file_look(path, &stamp));
    assert_int_equal(symlink(in_dir("nothing"), path), 0);
    assert_int_equal(wf_file_create(ctx, path, "fourth", 6), WF_ERR_USAGE);
    assert_false(wf_file_look(in_dir("nothing"), &stamp));
    assert_int_equal(remove(path), 0);
    assert_int_equal(wf_file_create(ctx, in_dir("no/such/made"), "", 0), WF_ERR_IO);
    assert_int_equal(next_fd(), fd);
}

/* ---- clock.c ------------------------------------------------------------------------------- */

static void test_clock(void **state)
{
    (void)state;
    uint64_t last = wf_clock_ns(), start = last;
    for (int i = 0; i < 10000; i++) {
        uint64_t now = wf_clock_ns();
        assert_true(now >= last);
        last = now;
    }
    struct timespec pause = {.tv_nsec = 2000000};
    nanosleep(&pause, NULL);
    assert_in_range(wf_clock_ns() - start, 2000000, UINT64_C(60000000000));
}

/* -------------------------------------------------------------------------------------------- */

int main(void)
{
#define WITH_CTX(test) cmocka_unit_test_setup_teardown(test, ctx_setup, ctx_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),
        WITH_CTX(test_ctx_failure),
        cmocka_unit_test(test_ctx_log),
        WITH_CTX(test_mem_blocks),
        WITH_CTX(test_mem_large),
        WITH_CTX(test_mem_grow),
        WITH_CTX(test_mem_failure),
        WITH_CTX(test_mem_misuse),
        cmocka_unit_test(test_mem_leak_is_logged),
        WITH_CTX(test_arena),
        cmocka_unit_test(test_check),
        WITH_CTX(test_map),
        WITH_CTX(test_file_refused),
        WITH_CTX(test_file_read),
        WITH_CTX(test_file_replace),
        WITH_CTX(test_file_create),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests_name("base", tests, dir_setup, dir_teardown);
}

/* SPDX-License-Identifier: MIT */
/* test_base.c - tests of src/base, in the order of its files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/arena.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ctx.h"
#include "base/file.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/poison.h"
#include "base/text.h"
#include "base/thread.h"

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

/* Whether fn trips an assertion, found out in a child process. */
static bool asserts(void (*fn)(wf_ctx *), wf_ctx *ctx)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        fn(ctx);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

#ifdef NDEBUG
#define assert_asserts(fn, ctx) ((void)asserts, (void)fn, (void)(ctx))
#else
#define assert_asserts(fn, ctx) assert_true(asserts(fn, ctx))
#endif

#ifdef __SANITIZE_ADDRESS__
#define assert_poisoned(p, yes) assert_int_equal(__asan_address_is_poisoned(p), yes)
#else
#define assert_poisoned(p, yes) ((void)(p))
#endif

/* ---- status.c, ctx.c ----------------------------------------------------------------------- */

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
    assert_int_equal(mem.calls, 0); /* failing allocates nothing */
}

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
    wf_ctx_free(ctx); /* nothing live, nothing to say */
    assert_int_equal(r.count, 2);
}

/* ---- mem.c --------------------------------------------------------------------------------- */

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
    p = wf_mem_grow(ctx, p, 50); /* what the shrinking cut off comes back as zeros */
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
    void *base; /* from the header, to give the leak back */
    wf_unpoison(p - WF_MEM_ALIGN, WF_MEM_ALIGN);
    memcpy(&base, p - WF_MEM_ALIGN + 16, sizeof base);
    wf_ctx_free(ctx);
    assert_int_equal(r.count, 1);
    assert_int_equal(r.level, WF_LOG_WARN);
    assert_non_null(strstr(r.text, "24 bytes"));
    free(base);
}

/* ---- arena.c ------------------------------------------------------------------------------- */

static void test_arena(void **state)
{
    wf_ctx *ctx = *state;
    wf_arena a;
    wf_arena_init(&a, ctx);
    for (int round = 0; round < 2; round++) { /* the second after a free */
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

    for (int i = 0; i < 3000; i++) /* 48 does not divide a chunk: its end is met, not crossed */
        assert_non_null(wf_arena_alloc(&a, 48));
    wf_arena_free(&a);

    wf_ctx_fail_allocation(ctx, 1);
    assert_null(wf_arena_strdup(&a, "no"));
    assert_non_null(wf_arena_strdup(&a, "yes"));
    wf_arena_free(&a);
}

/* ---- check.h ------------------------------------------------------------------------------- */

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

/* ---- philox.h ------------------------------------------------------------------------------ */

/* kat_vectors of the Random123 distribution. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        wf_philox4x32(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(wf_u32_to_unit(0) == 0.0f);
    assert_true(wf_u32_to_unit(0xff) == 0.0f);
    assert_true(wf_u32_to_unit(0x80000000u) == 0.5f);
    assert_true(wf_u32_to_unit(UINT32_MAX) == 1.0f - 0x1p-24f);
}

static void test_rng_sequence(void **state)
{
    (void)state;
    const uint64_t seed = UINT64_C(0x0123456789abcdef), stream = UINT64_C(0xfedcba9876543210);
    wf_rng r;
    wf_rng_init(&r, seed, stream);
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t out[4];
        wf_philox4x32((uint32_t[]){block, 0, 0x76543210u, 0xfedcba98u},
                      (uint32_t[]){0x89abcdefu, 0x01234567u}, out);
        for (int i = 0; i < 4; i++)
            assert_int_equal(wf_rng_u32(&r), out[i]);
    }

    wf_rng carry; /* block 2^32 - 1 is followed by block 2^32 */
    wf_rng_init(&carry, 5, 0);
    carry.counter[0] = UINT32_MAX;
    for (int i = 0; i < 4; i++)
        wf_rng_u32(&carry);
    uint32_t out[4];
    wf_philox4x32((uint32_t[]){0, 1, 0, 0}, (uint32_t[]){5, 0}, out);
    assert_int_equal(wf_rng_u32(&carry), out[0]);
}

/* The generator is fixed, so these can fail only if the code changes. */
static void test_rng_distributions(void **state)
{
    (void)state;
    enum { N = 100000 };
    wf_rng r;
    wf_rng_init(&r, 42, 7);

    int bins[10] = {0};
    for (int i = 0; i < N; i++)
        bins[wf_rng_below(&r, 10)]++;
    double chi2 = 0;
    for (int i = 0; i < 10; i++)
        chi2 += (bins[i] - N / 10.0) * (bins[i] - N / 10.0) / (N / 10.0);
    assert_true(chi2 < 27.9); /* 9 degrees of freedom, p = 0.001 */

    int low = 0; /* a plain remainder would put half of them, not a third, below 2^62 */
    for (int i = 0; i < N; i++) {
        uint64_t x = wf_rng_below(&r, UINT64_C(3) << 62);
        assert_true(x < UINT64_C(3) << 62);
        low += x < UINT64_C(1) << 62;
    }
    assert_true(fabs(low / (double)N - 1 / 3.0) < 0.01);
    assert_int_equal(wf_rng_below(&r, 1), 0);

    double sum = 0, squares = 0, least = 1, most = 0;
    for (int i = 0; i < N; i++) {
        double u = wf_rng_unit(&r);
        sum += u;
        least = fmin(least, u);
        most = fmax(most, u);
    }
    assert_true(least >= 0 && least < 1e-3 && most < 1 && most > 1 - 1e-3);
    assert_true(fabs(sum / N - 0.5) < 0.005);

    double fourth = 0;
    sum = 0;
    for (int i = 0; i < N; i++) {
        double z = wf_rng_normal(&r);
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
    }
    assert_true(fabs(sum / N) < 0.015);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
}

/* ---- half.h -------------------------------------------------------------------------------- */

#define WRAP(name, type)                       \
    static uint32_t to_##name(float f)         \
    {                                          \
        return wf_f32_to_##name(f);            \
    }                                          \
    static float from_##name(uint32_t code)    \
    {                                          \
        return wf_##name##_to_f32((type)code); \
    }
WRAP(f16, uint16_t)
WRAP(bf16, uint16_t)
WRAP(e5m2, uint8_t)
WRAP(e4m3, uint8_t)

typedef struct {
    const char *name;
    int e, m;
    uint32_t top; /* the largest finite magnitude code */
    uint32_t inf; /* 0: the format has none, and saturates */
    uint32_t (*to)(float);
    float (*from)(uint32_t);
} format;

static const format formats[] = {
    {"f16", 5, 10, 0x7BFF, 0x7C00, to_f16, from_f16},
    {"bf16", 8, 7, 0x7F7F, 0x7F80, to_bf16, from_bf16},
    {"e5m2", 5, 2, 0x7B, 0x7C, to_e5m2, from_e5m2},
    {"e4m3", 4, 3, 0x7E, 0, to_e4m3, from_e4m3},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* By the definition: mantissa times a power of two. Codes past `top` go on in the same way. */
static double code_value(const format *f, uint32_t code)
{
    int exponent = (int)(code >> f->m), bias = (1 << (f->e - 1)) - 1;
    double fraction = code & ((1u << f->m) - 1);
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f->m);
    return ldexp(fraction + (1u << f->m), exponent - bias - f->m);
}

/* The nearest code by searching all values, in doubles, which hold every difference exactly. */
static uint32_t nearest_code(const format *f, float x)
{
    double a = fabs((double)x);
    uint32_t sign = signbit(x) ? 1u << (f->e + f->m) : 0;
    if (!f->inf && isinf(x))
        return sign | (f->top + 1);
    uint32_t low = 0, high = f->top + 1; /* value(low) <= a < value(high), but for the ends */
    while (high - low > 1) {
        uint32_t mid = (low + high) / 2;
        if (code_value(f, mid) <= a)
            low = mid;
        else
            high = mid;
    }
    double below = a - code_value(f, low), above = code_value(f, high) - a;
    uint32_t code = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (code > f->top && !f->inf ? f->top : code);
}

static void test_half_every_code(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (f->e + f->m);
        for (uint32_t code = 0; code < 2 * sign; code++) {
            uint32_t magnitude = code & (sign - 1);
            float x = f->from(code);
            if (magnitude <= f->top)
                assert_true(fabs((double)x) == code_value(f, magnitude));
            else if (magnitude == f->inf)
                assert_true(isinf(x));
            else
                assert_true(isnan(x));
            assert_int_equal(signbit(x) != 0, code >= sign);
            assert_int_equal(f->to(x), code);
        }
    }
}

static void check_rounding(const format *f, float x)
{
    uint32_t expected = nearest_code(f, x), got = f->to(x);
    if (got != expected)
        fail_msg("%s: %a gives %x, not %x", f->name, (double)x, got, expected);
}

static void test_half_rounding(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t code = 0; code <= f->top; code++) {
            float mid = (float)((code_value(f, code) + code_value(f, code + 1)) / 2);
            for (int sign = -1; sign <= 1; sign += 2) {
                check_rounding(f, (float)sign * mid);
                check_rounding(f, (float)sign * nextafterf(mid, 0));
                check_rounding(f, (float)sign * nextafterf(mid, INFINITY));
            }
        }
        wf_rng r;
        wf_rng_init(&r, 2024, (uint64_t)i);
        for (int k = 0; k < 300000; k++) {
            float x = wf_bits_f32(wf_rng_u32(&r));
            if (!isnan(x))
                check_rounding(f, x);
            /* and one that is never far outside the narrow formats' range */
            check_rounding(f, (float)ldexp(wf_rng_unit(&r) - 0.5, (int)wf_rng_below(&r, 46) - 27));
        }
        for (uint32_t low = 0; low < 1000; low++) /* subnormal f32 */
            check_rounding(f, wf_bits_f32(low));
    }
}

static void test_half_edges(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001, 0xFFC12345};
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (size_t k = 0; k < sizeof nans / sizeof *nans; k++) {
            float back = f->from(f->to(wf_bits_f32(nans[k])));
            assert_true(isnan(back));
            assert_int_equal(signbit(back) != 0, nans[k] >> 31);
        }
        assert_true(f->inf ? isinf(f->from(f->to(-INFINITY))) : isnan(f->from(f->to(-INFINITY))));
    }
    assert_int_equal(wf_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(wf_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(wf_f32_to_f16(1.0f), 0x3C00);
    assert_int_equal(wf_f32_to_bf16(-1.0f), 0xBF80);
    assert_int_equal(wf_f32_to_bf16(FLT_MAX), 0x7F80);
    assert_int_equal(wf_f32_to_e5m2(61439.0f), 0x7B);
    assert_int_equal(wf_f32_to_e5m2(-61440.0f), 0xFC);
    assert_int_equal(wf_f32_to_e4m3(1.0f), 0x38);
    assert_int_equal(wf_f32_to_e4m3(1e30f), 0x7E);
    assert_int_equal(wf_f32_to_e4m3(-465.0f), 0xFE);
    assert_int_equal(wf_f32_to_e4m3(INFINITY), 0x7F);
    assert_true(wf_e4m3_to_f32(0x7E) == 448.0f);
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

/* The number the next descriptor will have: it grows when one leaks. */
static int next_fd(void)
{
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
}

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

/* One failure of both ways to read, whose sentence names the path and the reason. */
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

    if (strcmp(name, "pipe") != 0) { /* reading one would wait for a writer, as it should */
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

    bool root = geteuid() == 0; /* who may read everything */
    if (root)
        assert_int_equal(seteuid(65534), 0);
    check_refused(ctx, "secret", strerror(EACCES));
    if (root)
        assert_int_equal(seteuid(0), 0);
}

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

    uint64_t nth = 1; /* every allocation fails once; the file is long enough for several */
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

/* ---- thread.c ------------------------------------------------------------------------------ */

enum { THREADS = 9 };

typedef struct {
    int calls[THREADS];
    int64_t begin[THREADS], end[THREADS];
    bool in_parallel[THREADS];
    bool stray; /* a thread index out of range */
} ranges;

static void record_range(void *arg, int64_t begin, int64_t end, int thread)
{
    ranges *r = arg;
    if (thread < 0 || thread >= THREADS) {
        r->stray = true;
        return;
    }
    r->calls[thread]++;
    r->begin[thread] = begin;
    r->end[thread] = end;
#ifdef _OPENMP
    r->in_parallel[thread] = omp_get_level() > 0;
#endif
}

static void check_ranges(int threads, int64_t n, int64_t grain)
{
    ranges r = {0};
    wf_parallel_for(threads, n, grain, record_range, &r);
    assert_false(r.stray);

    int64_t least = grain > 1 ? grain : 1, parts = n / least;
    parts = parts > threads ? threads : parts;
    parts = parts < 1 ? 1 : parts;
    parts = n > 0 ? parts : 0;
    int64_t at = 0;
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(r.calls[i], i < parts);
        if (i >= parts)
            continue;
        int64_t length = r.end[i] - r.begin[i];
        assert_true(r.begin[i] == at);
        assert_true(length >= least || parts == 1);
        assert_true(length == n / parts || length == n / parts + 1);
        at = r.end[i];
        if (parts == 1)
            assert_false(r.in_parallel[i]);
    }
    assert_true(at == (n > 0 ? n : 0));
}

static void test_parallel_for(void **state)
{
    (void)state;
    for (int threads = 0; threads <= THREADS; threads++) {
        for (int64_t n = -1; n <= 40; n++)
            for (int64_t grain = 0; grain <= 12; grain++)
                check_ranges(threads, n, grain);
        check_ranges(threads, INT64_C(1000000007), 1);
        check_ranges(threads, INT64_MAX, 1);
        check_ranges(threads, INT64_MAX, INT64_MAX / 3);
        check_ranges(threads, INT64_MAX, INT64_MAX);
    }
}

static void add_squares(void *arg, int64_t begin, int64_t end, int thread)
{
    int64_t *sum = arg;
    for (int64_t i = begin; i < end; i++)
        sum[thread * 8] += i * i;
}

/* Each range adds to the cell of its thread index alone, which a shared index would corrupt. */
static void test_parallel_sum(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        int64_t sum[64] = {0}, total = 0;
        wf_parallel_for(threads, 100000, 100, add_squares, sum);
        for (int i = 0; i < 64; i++)
            total += sum[i];
        assert_true(total == INT64_C(333328333350000));
    }
}

static void test_threads_available(void **state)
{
    (void)state;
    assert_in_range(wf_threads_available(), 1, 1024);
#ifdef _OPENMP
    int before = omp_get_max_threads();
    omp_set_num_threads(3);
    assert_int_equal(wf_threads_available(), 3);
    omp_set_num_threads(before);

    ranges r = {0};
    wf_parallel_for(2, 2, 1, record_range, &r);
    assert_true(r.in_parallel[0] && r.in_parallel[1]);
#else
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(wf_threads_available(), 3);
    setenv("OMP_NUM_THREADS", "5,2", 1);
    assert_int_equal(wf_threads_available(), 5);
    setenv("OMP_NUM_THREADS", "99999999", 1);
    assert_int_equal(wf_threads_available(), 1024);
    unsetenv("OMP_NUM_THREADS");
    int cores = wf_threads_available();
    assert_in_range(cores, 1, sysconf(_SC_NPROCESSORS_CONF));
    setenv("OMP_NUM_THREADS", "nonsense", 1);
    assert_int_equal(wf_threads_available(), cores);
    unsetenv("OMP_NUM_THREADS");
#endif
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

/* ---- text.c -------------------------------------------------------------------------------- */

static void test_text_distance(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int distance;
    } known[] = {
        {"", "", 0},         {"", "abc", 3},
        {"abc", "abc", 0},   {"kitten", "sitting", 3},
        {"flaw", "lawn", 2}, {"softmax", "sotfmax", 1},
        {"ab", "ba", 1},     {"ca", "abc", 3},
        {"relu", "gelu", 1}, {"matmul", "matmull", 1},
        {"a", "b", 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(wf_text_distance(known[i].a, known[i].b), known[i].distance);
        assert_int_equal(wf_text_distance(known[i].b, known[i].a), known[i].distance);
    }
    char word[66], other[66];
    memset(word, 'a', sizeof word);
    memset(other, 'b', sizeof other);
    word[63] = other[63] = '\0';
    assert_int_equal(wf_text_distance(word, other), 63);
    word[63] = 'a';
    word[64] = '\0';
    assert_int_equal(wf_text_distance(word, other), WF_TEXT_FAR);
    assert_int_equal(wf_text_distance("", word), WF_TEXT_FAR);
}

static void test_text_nearest(void **state)
{
    (void)state;
    static const char *const ops[] = {"add", "softmax", "relu", "gelu", "layer_norm", "rms_norm"};
    enum { N = sizeof ops / sizeof *ops };
    assert_string_equal(wf_text_nearest("sotfmax", ops, N), "softmax");
    assert_string_equal(wf_text_nearest("layernorm", ops, N), "layer_norm");
    assert_string_equal(wf_text_nearest("delu", ops, N), "relu"); /* the first of equals */
    assert_string_equal(wf_text_nearest("gelu", ops, N), "gelu");
    assert_string_equal(wf_text_nearest("ad", ops, N), "add");
    assert_null(wf_text_nearest("convolution", ops, N));
    assert_null(wf_text_nearest("bdda", ops, N));
    assert_null(wf_text_nearest("softmax", ops, 0));
    char word[200];
    memset(word, 'a', sizeof word);
    word[sizeof word - 1] = '\0';
    assert_null(wf_text_nearest(word, ops, N));
}

static void test_text_append(void **state)
{
    (void)state;
    char buf[16];
    size_t len = 0;
    wf_text_append(buf, sizeof buf, &len, "%d-%s", 12, "abc");
    assert_string_equal(buf, "12-abc");
    assert_int_equal(len, 6);
    wf_text_append(buf, sizeof buf, &len, "%s", "123456789"); /* exactly full */
    assert_string_equal(buf, "12-abc123456789");
    wf_text_append(buf, sizeof buf, &len, "%s", "");
    assert_string_equal(buf, "12-abc123456789");
    wf_text_append(buf, sizeof buf, &len, "x");
    assert_string_equal(buf, "12-abc123456...");
    wf_text_append(buf, sizeof buf, &len, "more");
    assert_string_equal(buf, "12-abc123456...");
    assert_int_equal(len, sizeof buf - 1);

    len = 0; /* a cut inside the euro sign takes it away whole */
    wf_text_append(buf, sizeof buf, &len, "0123456789\xE2\x82\xAC%s", "abcdef");
    assert_string_equal(buf, "0123456789.....");
    len = 0;
    wf_text_append(buf, sizeof buf, &len, "012345678\xE2\x82\xAC%s", "abcdef");
    assert_string_equal(buf, "012345678\xE2\x82\xAC...");

    for (size_t cap = 0; cap < 12; cap++) { /* never beyond cap, always terminated */
        char guarded[16];
        memset(guarded, '#', sizeof guarded);
        len = 0;
        for (int i = 0; i < 3; i++)
            wf_text_append(guarded, cap, &len, "%s", "abcd");
        for (size_t i = cap; i < sizeof guarded; i++)
            assert_int_equal(guarded[i], '#');
        if (cap > 0) {
            assert_int_equal(strnlen(guarded, cap), cap - 1);
            assert_int_equal(len, cap - 1);
        }
    }
}

/* ---- json.c -------------------------------------------------------------------------------- */

static char *json_text;
static size_t json_size;

static void json_open(wf_json *j)
{
    FILE *out = open_memstream(&json_text, &json_size);
    assert_non_null(out);
    wf_json_begin(j, out);
}

static void check_json(wf_json *j, const char *expected)
{
    assert_true(wf_json_end(j));
    fclose(j->out);
    assert_string_equal(json_text, expected);
    free(json_text);
}

static void test_json_layout(void **state)
{
    (void)state;
    wf_json j;
    json_open(&j);
    wf_json_object_begin(&j);
    wf_json_key(&j, "name");
    wf_json_string(&j, "weft");
    wf_json_key(&j, "empty");
    wf_json_object_begin(&j);
    wf_json_object_end(&j);
    wf_json_key(&j, "list");
    wf_json_array_begin(&j);
    wf_json_int(&j, INT64_MIN);
    wf_json_bool(&j, true);
    wf_json_null(&j);
    wf_json_array_begin(&j);
    wf_json_array_end(&j);
    wf_json_object_begin(&j);
    wf_json_key(&j, "x");
    wf_json_double(&j, 0.5);
    wf_json_object_end(&j);
    wf_json_array_end(&j);
    wf_json_key(&j, "last");
    wf_json_bool(&j, false);
    wf_json_object_end(&j);
    check_json(&j, "{\n"
                   "  \"name\": \"weft\",\n"
                   "  \"empty\": {},\n"
                   "  \"list\": [\n"
                   "    -9223372036854775808,\n"
                   "    true,\n"
                   "    null,\n"
                   "    [],\n"
                   "    {\n"
                   "      \"x\": 0.5\n"
                   "    }\n"
                   "  ],\n"
                   "  \"last\": false\n"
                   "}\n");

    json_open(&j);
    wf_json_int(&j, 7);
    check_json(&j, "7\n");
}

static void test_json_strings(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *written;
    } known[] = {
        {"", ""},
        {"plain / text \x7f", "plain / text \x7f"},
        {"\"\\\b\f\n\r\t", "\\\"\\\\\\b\\f\\n\\r\\t"},
        {"\x01\x1f", "\\u0001\\u001f"},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"},
#define BAD "\xEF\xBF\xBD"
        {"a\x80z", "a" BAD "z"},                /* a continuation byte alone */
        {"\xFF\xFE", BAD BAD},                  /* never in UTF-8 */
        {"\xC3", BAD},                          /* cut short by the end */
        {"\xE2\x82", BAD BAD},                  /* the same */
        {"\xF0\x9F\x98\"", BAD BAD BAD "\\\""}, /* and by a quote, which is escaped */
        {"\xC0\xAF", BAD BAD},                  /* overlong */
        {"\xE0\x80\xAF", BAD BAD BAD},          /* overlong */
        {"\xF0\x80\x80\xAF", BAD BAD BAD BAD},  /* overlong */
        {"\xED\xA0\x80", BAD BAD BAD},          /* a surrogate */
        {"\xF4\x90\x80\x80", BAD BAD BAD BAD},  /* above U+10FFFF */
        {"\xF5\x80\x80\x80", BAD BAD BAD BAD},  /* above U+10FFFF */
        {"\xC1\xBF", BAD BAD},                  /* overlong */
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "{\n  \"%s\": \"%s\"\n}\n", known[i].written,
                 known[i].written);
        wf_json j;
        json_open(&j);
        wf_json_object_begin(&j);
        wf_json_key(&j, known[i].raw);
        wf_json_string(&j, known[i].raw);
        wf_json_object_end(&j);
        check_json(&j, expected);
    }
}

static void check_double(double value, const char *expected)
{
    char line[64];
    snprintf(line, sizeof line, "%s\n", expected);
    wf_json j;
    json_open(&j);
    wf_json_double(&j, value);
    check_json(&j, line);
}

static void test_json_doubles(void **state)
{
    (void)state;
    check_double(0, "0");
    check_double(-0.0, "-0");
    check_double(0.1, "0.1");
    check_double(100, "100");
    check_double(123456, "123456");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1 / 3.0, "0.3333333333333333");
    check_double(9007199254740993.0, "9007199254740992");
    check_double(1e300, "1e+300");
    check_double(5e-324, "4.94065645841247e-324");
    check_double(DBL_MAX, "1.7976931348623157e+308");
    check_double(NAN, "null");
    check_double(INFINITY, "null");
    check_double(-INFINITY, "null");

    wf_rng r;
    wf_rng_init(&r, 3, 0);
    for (int i = 0; i < 2000; i++) {
        uint64_t bits = wf_rng_u64(&r);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        wf_json j;
        json_open(&j);
        wf_json_double(&j, value);
        assert_true(wf_json_end(&j));
        fclose(j.out);
        assert_true(strtod(json_text, NULL) == value);
        free(json_text);
    }

    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) { /* where it is installed */
        check_double(0.5, "0.5");
        setlocale(LC_NUMERIC, "C");
    }
}

static void json_value_without_key(wf_ctx *ctx)
{
    (void)ctx;
    wf_json j;
    wf_json_begin(&j, stderr);
    wf_json_object_begin(&j);
    wf_json_int(&j, 1);
}

static void json_wrong_end(wf_ctx *ctx)
{
    (void)ctx;
    wf_json j;
    wf_json_begin(&j, stderr);
    wf_json_object_begin(&j);
    wf_json_array_end(&j);
}

static void json_two_values(wf_ctx *ctx)
{
    (void)ctx;
    wf_json j;
    wf_json_begin(&j, stderr);
    wf_json_int(&j, 1);
    wf_json_int(&j, 2);
}

static void json_nest(int depth)
{
    wf_json j;
    wf_json_begin(&j, stderr);
    for (int i = 0; i < depth; i++)
        wf_json_array_begin(&j);
    for (int i = 0; i < depth; i++)
        wf_json_array_end(&j);
    wf_json_end(&j);
}

static void json_deepest(wf_ctx *ctx)
{
    (void)ctx;
    json_nest(WF_JSON_DEPTH);
}

static void json_too_deep(wf_ctx *ctx)
{
    (void)ctx;
    json_nest(WF_JSON_DEPTH + 1);
}

static void test_json_misuse(void **state)
{
    (void)state;
    assert_asserts(json_value_without_key, NULL);
    assert_asserts(json_wrong_end, NULL);
    assert_asserts(json_two_values, NULL);
    assert_asserts(json_too_deep, NULL);
    assert_false(asserts(json_deepest, NULL));
}

static void test_json_write_error(void **state)
{
    (void)state;
    for (int buffered = 0; buffered < 2; buffered++) { /* the flush fails, or all before it did */
        FILE *full = fopen("/dev/full", "w");
        if (!full)
            skip(); /* only Linux has it */
        if (!buffered)
            setvbuf(full, NULL, _IONBF, 0);
        wf_json j;
        wf_json_begin(&j, full);
        wf_json_string(&j, "lost");
        assert_false(wf_json_end(&j));
        fclose(full);
    }
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
        WITH_CTX(test_mem_grow),
        WITH_CTX(test_mem_failure),
        WITH_CTX(test_mem_misuse),
        cmocka_unit_test(test_mem_leak_is_logged),
        WITH_CTX(test_arena),
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_rng_sequence),
        cmocka_unit_test(test_rng_distributions),
        cmocka_unit_test(test_half_every_code),
        cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_half_edges),
        WITH_CTX(test_map),
        WITH_CTX(test_file_refused),
        WITH_CTX(test_file_read),
        cmocka_unit_test(test_parallel_for),
        cmocka_unit_test(test_parallel_sum),
        cmocka_unit_test(test_threads_available),
        cmocka_unit_test(test_clock),
        cmocka_unit_test(test_text_distance),
        cmocka_unit_test(test_text_nearest),
        cmocka_unit_test(test_text_append),
        cmocka_unit_test(test_json_layout),
        cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_doubles),
        cmocka_unit_test(test_json_misuse),
        cmocka_unit_test(test_json_write_error),
    };
    return cmocka_run_group_tests_name("base", tests, dir_setup, dir_teardown);
}

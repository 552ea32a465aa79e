/* SPDX-License-Identifier: MIT */
/* test_stop.c - stop strings against a search over the whole text, with the text split in every
 * way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/philox.h"
#include "infer/stop.h"
#include "support.h"

static wf_stopper *make(wf_ctx *ctx, const char *const *stop, int stops)
{
    wf_stopper *s;
    wt_ok(ctx, wf_stopper_new(ctx, stop, stops, &s));
    return s;
}

/* Feeds one piece and compares the released text. */
static void expect(wf_ctx *ctx, wf_stopper *s, const char *piece, const char *wanted,
                   bool wanted_stop)
{
    const char *out;
    size_t bytes;
    bool stopped;
    wt_ok(ctx, wf_stopper_next(s, piece, strlen(piece), &out, &bytes, &stopped));
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(out, wanted, bytes);
    assert_int_equal(stopped, wanted_stop);
}

static void expect_end(wf_stopper *s, const char *wanted)
{
    const char *out;
    size_t bytes;
    wf_stopper_end(s, &out, &bytes);
    assert_int_equal(bytes, strlen(wanted));
    assert_memory_equal(out, wanted, bytes);
}

static void test_refused(void **state)
{
    wf_stopper *s = NULL;
    static char longest[WF_STOP_BYTES + 2];
    memset(longest, 'x', WF_STOP_BYTES + 1);
    const char *many[WF_STOPS_MAX + 1];
    for (int i = 0; i <= WF_STOPS_MAX; i++)
        many[i] = "a";
    wt_fails(*state, wf_stopper_new(*state, (const char *const[]){"a", ""}, 2, &s), WF_ERR_USAGE,
             "stop string 2 of 2 is empty");
    wt_fails(*state, wf_stopper_new(*state, (const char *const[]){NULL}, 1, &s), WF_ERR_USAGE,
             "stop string 1 of 1 is empty");
    wt_fails(*state, wf_stopper_new(*state, (const char *const[]){longest}, 1, &s), WF_ERR_USAGE,
             "longer than 1024 bytes");
    wt_fails(*state, wf_stopper_new(*state, (const char *const[]){"\xa9"}, 1, &s), WF_ERR_USAGE,
             "not UTF-8");
    wt_fails(*state, wf_stopper_new(*state, many, WF_STOPS_MAX + 1, &s), WF_ERR_USAGE,
             "stop strings is 65");
    wt_fails(*state, wf_stopper_new(*state, NULL, 1, &s), WF_ERR_USAGE, "stop strings");
    wt_fails(*state, wf_stopper_new(*state, many, -1, &s), WF_ERR_USAGE, "stop strings is -1");
    assert_null(s);
    longest[WF_STOP_BYTES] = '\0';
    many[0] = longest;
    s = make(*state, many, WF_STOPS_MAX);
    expect(*state, s, "xyz", "xyz", false);
    wf_stopper_free(s);
    wf_stopper_free(NULL);
}

static void test_pieces(void **state)
{
    wf_stopper *s = make(*state, (const char *const[]){"\nUser:", "</s>"}, 2);
    expect(*state, s, "Hello", "Hello", false);
    expect(*state, s, " you\nUs", " you", false);
    expect(*state, s, "", "", false);
    expect(*state, s, "ual <", "\nUsual ", false);
    expect(*state, s, "/s", "", false);
    expect(*state, s, "><", "", true);
    expect(*state, s, "more", "", true);
    expect_end(s, "");
    expect(*state, s, "again\nUser", "again", false); /* the next text */
    expect_end(s, "\nUser");
    expect(*state, s, ": no", ": no", false);
    expect_end(s, "");
    wf_stopper_free(s);

    /* the first match to complete; of two at once the longer one */
    s = make(*state, (const char *const[]){"abcd", "bc", "c"}, 3);
    expect(*state, s, "xabcd", "xa", true);
    wf_stopper_free(s);
    /* after a mismatch, held text can start another match */
    s = make(*state, (const char *const[]){"aab"}, 1);
    expect(*state, s, "aaaaa", "aaa", false);
    expect(*state, s, "b", "", true);
    wf_stopper_free(s);
    /* characters stay whole: both start with the same byte */
    s = make(*state, (const char *const[]){"\xc3\xa9t\xc3\xa9"}, 1);
    expect(*state, s, "\xc3\xa8\xc3\xa9t", "\xc3\xa8", false);
    expect(*state, s, "\xc3\xa8", "\xc3\xa9t\xc3\xa8", false);
    wf_stopper_free(s);
    s = make(*state, NULL, 0);
    expect(*state, s, "anything", "anything", false);
    expect_end(s, "");
    wf_stopper_free(s);
}

/* Returns the length of the text before the first stop string, by trying every string at every
 * position. */
static size_t search(const char *text, size_t len, char stop[][8], int stops, bool *found)
{
    for (size_t end = 1; end <= len; end++)
        for (size_t start = 0; start < end; start++)
            for (int i = 0; i < stops; i++)
                if (strlen(stop[i]) == end - start && !memcmp(text + start, stop[i], end - start)) {
                    *found = true;
                    return start;
                }
    *found = false;
    return len;
}

/* Checks that held text is a prefix of a stop string. */
static void check_held(const char *text, size_t len, size_t given, char stop[][8], int stops)
{
    if (given == len)
        return;
    for (int i = 0; i < stops; i++)
        if (strlen(stop[i]) > len - given && !memcmp(stop[i], text + given, len - given))
            return;
    fail_msg("%zu bytes were held back for nothing", len - given);
}

static void test_random(void **state)
{
    enum { MOST = 40 };
    int found_some = 0;
    for (uint64_t i = 0; i < 20000; i++) {
        wf_rng rng;
        wf_rng_init(&rng, wt_seed(), i);
        char text[MOST], stop[4][8] = {{0}};
        const char *list[4] = {stop[0], stop[1], stop[2], stop[3]};
        int stops = (int)wf_rng_below(&rng, 5);
        uint64_t letters = 2 + wf_rng_below(&rng, 2);
        for (int k = 0; k < stops; k++)
            for (size_t n = 1 + wf_rng_below(&rng, 7); n-- > 0;)
                stop[k][n] = (char)('a' + wf_rng_below(&rng, letters));
        size_t len = wf_rng_below(&rng, MOST + 1), at = 0, given = 0;
        for (size_t k = 0; k < len; k++)
            text[k] = (char)('a' + wf_rng_below(&rng, letters));
        bool found, stopped = false;
        size_t wanted = search(text, len, stop, stops, &found);
        found_some += found;

        wf_stopper *s = make(*state, list, stops);
        const char *out;
        size_t bytes;
        while (at < len) {
            size_t piece = wf_rng_below(&rng, len - at < 6 ? len - at + 1 : 6);
            wt_ok(*state, wf_stopper_next(s, text + at, piece, &out, &bytes, &stopped));
            assert_true(given + bytes <= wanted);
            assert_memory_equal(out, text + given, bytes);
            at += piece;
            given += bytes;
            if (!stopped)
                check_held(text, at, given, stop, stops);
        }
        assert_int_equal(stopped, found);
        wf_stopper_end(s, &out, &bytes);
        assert_int_equal(given + bytes, wanted);
        assert_memory_equal(out, text + given, bytes);
        wf_stopper_free(s);
    }
    assert_true(found_some > 1000);
}

/* Inputs on which a backtracking search is slow: 2^19 bytes times 1000 bytes of each of 64 stop
 * strings would take minutes. */
static void test_linear(void **state)
{
    static char text[1 << 19], stops[WF_STOPS_MAX][1001];
    const char *list[WF_STOPS_MAX];
    memset(text, 'a', sizeof text);
    for (int i = 0; i < WF_STOPS_MAX; i++) {
        memset(stops[i], 'a', 999 - (size_t)i);
        stops[i][999 - i] = 'b';
        list[i] = stops[i];
    }
    wf_stopper *s = make(*state, list, WF_STOPS_MAX);
    const char *out;
    size_t bytes, given = 0;
    bool stopped;
    uint64_t start = wf_clock_ns();
    for (size_t at = 0; at < sizeof text; at += 64) {
        wt_ok(*state, wf_stopper_next(s, text + at, 64, &out, &bytes, &stopped));
        given += bytes;
    }
    assert_true(wf_clock_ns() - start < 20000000000u);
    assert_int_equal(given, sizeof text - 999);
    wt_ok(*state, wf_stopper_next(s, "b", 1, &out, &bytes, &stopped));
    assert_true(stopped && bytes == 0);
    wf_stopper_free(s);
}

static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const list[] = {"stop", "halt"};
    uint64_t n = 1;
    for (bool whole = false; !whole; n++) {
        wf_stopper *s = NULL;
        const char *out;
        size_t bytes;
        bool stopped;
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_stopper_new(ctx, list, 2, &s);
        if (status == WF_OK) {
            /* a piece that failed can be fed again */
            for (int i = 0; i < 2; i++) {
                status = wf_stopper_next(s, "it st", 5, &out, &bytes, &stopped);
                if (status != WF_OK)
                    status = wf_stopper_next(s, "it st", 5, &out, &bytes, &stopped);
                wt_ok(ctx, status);
                assert_int_equal(bytes, i == 0 ? 3 : 5);
            }
            status = wf_stopper_next(s, "and a longer piece for a larger buffer st", 41, &out,
                                     &bytes, &stopped);
            whole = status == WF_OK && ctx->fail_in_calls > 0;
            if (status != WF_OK)
                wt_ok(ctx, wf_stopper_next(s, "and a longer piece for a larger buffer st", 41, &out,
                                           &bytes, &stopped));
            assert_memory_equal(out, "stand a longer piece for a larger buffer ", 41);
            expect(ctx, s, "op", "", true);
        }
        wf_ctx_fail_allocation(ctx, 0);
        wf_stopper_free(s);
        assert_int_equal(wt_live_blocks(ctx), 0);
    }
    assert_true(n > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_refused), wt_test(test_pieces), wt_test(test_random),
        wt_test(test_linear),  wt_test(test_memory),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* test_text.c - src/base: messages, "did you mean", lists of words, and the JSON writer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asserts.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/text.h"
#include "base/words.h"
#include "base/writer.h"
#include "support.h"

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

/* Every word is listed, also where the list exceeds 160 bytes. */
static void test_words_find(void **state)
{
    (void)state;
    static const char *const words[] = {"alphabetical-0123456789-0123456789-0123456789",
                                        "backwards-0123456789-0123456789-0123456789",
                                        "chronological-0123456789-0123456789-0123456789",
                                        "descending-0123456789-0123456789-0123456789",
                                        "exhaustive"};
    wf_ctx *ctx;
    int found = -1;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    assert_int_equal(wf_words_find(ctx, "order", "exhaustive", words, 5, &found), WF_OK);
    assert_int_equal(found, 4);
    assert_int_equal(wf_words_find(ctx, "order", "none", words, 5, &found), WF_ERR_USAGE);
    assert_non_null(strstr(wf_ctx_message(ctx), "unknown order 'none'; use one of: alphabetical-"));
    assert_non_null(
        strstr(wf_ctx_message(ctx), ", descending-0123456789-0123456789-0123456789, exhaustive"));
    wf_ctx_free(ctx);
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

    len = 0; /* truncation inside the euro sign removes it whole */
    wf_text_append(buf, sizeof buf, &len, "0123456789\xE2\x82\xAC%s", "abcdef");
    assert_string_equal(buf, "0123456789.....");
    len = 0;
    wf_text_append(buf, sizeof buf, &len, "012345678\xE2\x82\xAC%s", "abcdef");
    assert_string_equal(buf, "012345678\xE2\x82\xAC...");

    for (size_t cap = 0; cap < 12; cap++) { /* never past cap, always terminated */
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

/* Every code point and every byte: the escaped text has no control characters, and plain text is
 * unchanged. */
static void test_text_escape(void **state)
{
    (void)state;
    char one[WF_TEXT_ESCAPE], c[4];
    for (unsigned point = 0; point < 0x110000; point++) {
        if (point >= 0xD800 && point < 0xE000)
            continue;
        size_t n = wf_text_put_utf8(c, point);
        assert_int_equal(wf_text_escape(one, c, n), n);
        bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
        bool turns = (point >= 0x202A && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069) ||
                     point == 0x2028 || point == 0x2029;
        bool same = strlen(one) == n && memcmp(one, c, n) == 0;
        if (control || turns)
            assert_true(one[0] == '\\' && strlen(one) >= 2);
        else if (point < 0x300)
            assert_true(same);
        assert_int_equal(wf_text_harmless(c, n), same);
        assert_true(wf_text_harmless(one, strlen(one)));
    }
    for (int byte = 0x80; byte < 0x100; byte++) {
        char text[5];
        snprintf(text, sizeof text, "\\x%02x", byte);
        c[0] = (char)byte;
        assert_int_equal(wf_text_escape(one, c, 1), 1);
        assert_string_equal(one, text);
    }
}

static void test_text_foreign(void **state)
{
    (void)state;
    static char name[60000000];
    char out[WF_TEXT_FOREIGN], shown[WF_TEXT_SHOWN];
    assert_string_equal(WF_FOREIGN(""), "");
    assert_string_equal(WF_FOREIGN("a\nb\t\x1b[2J\xE2\x80\xAEz\xC3\xA9"),
                        "a\\nb\\t\\x1b[2J\\u202ez\xC3\xA9");
    memset(name, 'x', sizeof name);
    wf_text_foreign(out, sizeof out, name, sizeof name);
    assert_int_equal(strlen(out), 200 + strlen("... (60 MB in all)"));
    assert_string_equal(out + 200, "... (60 MB in all)");
    assert_string_equal(wf_text_foreign(out, sizeof out, name, 200) + 199, "x");
    wf_text_show(shown, name, 1500);
    assert_int_equal(strlen(shown), WF_TEXT_SHOWN - 1);
    assert_non_null(strstr(shown, "xx... (1.5 kB in all)"));
    memset(name, '\x1b', sizeof name); /* truncated between escapes */
    for (size_t cap = 48; cap < 300; cap++) {
        memset(out, '#', sizeof out);
        wf_text_foreign(out, cap, name, 1000);
        size_t escapes = 0;
        for (; strncmp(out + 4 * escapes, "\\x1b", 4) == 0; escapes++)
            ;
        assert_string_equal(out + 4 * escapes, "... (1.0 kB in all)");
        assert_true(strlen(out) < cap);
        assert_int_equal(out[cap], '#');
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

static void write_layout(wf_json *j)
{
    wf_json_object_begin(j);
    wf_json_key(j, "name");
    wf_json_string(j, "weft");
    wf_json_key(j, "empty");
    wf_json_object_begin(j);
    wf_json_object_end(j);
    wf_json_key(j, "list");
    wf_json_array_begin(j);
    wf_json_int(j, INT64_MIN);
    wf_json_bool(j, true);
    wf_json_null(j);
    wf_json_array_begin(j);
    wf_json_array_end(j);
    wf_json_object_begin(j);
    wf_json_key(j, "x");
    wf_json_double(j, 0.5);
    wf_json_object_end(j);
    wf_json_array_end(j);
    wf_json_key(j, "last");
    wf_json_bool(j, false);
    wf_json_object_end(j);
}

static void test_json_layout(void **state)
{
    (void)state;
    wf_json j;
    json_open(&j);
    write_layout(&j);
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

/* The same calls write one line into memory, after what is there already. */
static void test_json_compact(void **state)
{
    static const char expected[] =
        "data: {\"name\":\"weft\",\"empty\":{},\"list\":[-9223372036854775808,true,null,[],"
        "{\"x\":0.5}],\"last\":false}, \"a\\n\xC3\xA9\\u0000\"";
    char *text;
    size_t bytes;
    uint64_t n = 1;
    for (wf_status status = WF_ERR_MEMORY; status != WF_OK; n++) {
        wf_writer w = {.ctx = *state};
        wf_json j;
        wf_ctx_fail_allocation(*state, n);
        wf_writer_print(&w, "data: ");
        wf_json_begin_text(&j, &w);
        write_layout(&j);
        bool whole = wf_json_end(&j);
        wf_writer_print(&w, ", ");
        wf_json_begin_text(&j, &w);
        wf_json_text(&j, "a\n\xC3\xA9", 5);
        assert_int_equal(wf_json_end(&j), whole);
        wf_ctx_fail_allocation(*state, 0);
        status = wf_writer_take(&w, &text, &bytes);
        assert_int_equal(status, whole ? WF_OK : WF_ERR_MEMORY);
    }
    assert_int_equal(n, 3); /* the first attempt failed */
    assert_string_equal(text, expected);
    assert_int_equal(bytes, sizeof expected - 1);
    wf_mem_free(*state, text);
}

/* A document that exceeds the buffer again and again; keys and strings are escaped. */
static void test_json_compact_long(void **state)
{
    enum { ITEMS = 20000 };
    wf_writer w = {.ctx = *state};
    wf_json j;
    char *text;
    wf_json_begin_text(&j, &w);
    wf_json_array_begin(&j);
    for (int i = 0; i < ITEMS; i++) {
        wf_json_object_begin(&j);
        wf_json_put_int(&j, "\"", i);
        wf_json_object_end(&j);
    }
    wf_json_array_end(&j);
    assert_true(wf_json_end(&j));
    wt_ok(*state, wf_writer_take(&w, &text, NULL));
    const char *at = text;
    for (int i = 0; i < ITEMS; i++) {
        char item[32];
        int n = snprintf(item, sizeof item, "%c{\"\\\"\":%d}", i ? ',' : '[', i);
        assert_memory_equal(at, item, (size_t)n);
        at += n;
    }
    assert_string_equal(at, "]");
    wf_mem_free(*state, text);
}

static void test_json_strings(void **state)
{
    (void)state;
    static const struct {
        const char *raw, *written;
    } known[] = {
        {"", ""},
        {"plain / text", "plain / text"},
        {"\x7f \xC2\x9B \xE2\x80\xAE \xE2\x81\xA9 \xE2\x80\xA8",
         "\\u007f \\u009b \\u202e \\u2069 \\u2028"},
        {"\xC2\x80\xC2\xA0 \xF3\xA0\x80\x81", "\\u0080\xC2\xA0 \xF3\xA0\x80\x81"},
        {"\"\\\b\f\n\r\t", "\\\"\\\\\\b\\f\\n\\r\\t"},
        {"\x01\x1f", "\\u0001\\u001f"},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF", "\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF"},
#define BAD "\xEF\xBF\xBD"
        {"a\x80z", "a" BAD "z"},                /* a lone continuation byte */
        {"\xFF\xFE", BAD BAD},                  /* never valid in UTF-8 */
        {"\xC3", BAD},                          /* truncated by the end */
        {"\xE2\x82", BAD BAD},                  /* truncated by the end */
        {"\xF0\x9F\x98\"", BAD BAD BAD "\\\""}, /* truncated by a quote, which is escaped */
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

/* One string in every style; its last byte is invalid UTF-8. */
static void test_json_styles(void **state)
{
    (void)state;
    static const char text[] = "a\"\\\n\t\x01\x7F\xE2\x80\xAE\xC3\xA9\xFF";
    static const char *const expected[] = {
        "a\\\"\\\\\\u000a\\u0009\\u0001\x7F\xE2\x80\xAE\xC3\xA9\xEF\xBF\xBD",
        "a\\\"\\\\\\n\\u0009\\u0001\x7F\xE2\x80\xAE\xC3\xA9\xEF\xBF\xBD",
        "a\\\"\\\\\\n\\t\\u0001\x7F\xE2\x80\xAE\xC3\xA9\xEF\xBF\xBD",
        "a\\\"\\\\\\n\\t\\u0001\\u007f\\u202e\xC3\xA9\xEF\xBF\xBD",
    };
    for (int style = WF_JSON_NUMERIC; style <= WF_JSON_TERMINAL; style++) {
        char out[128] = "", one[WF_JSON_ESCAPE];
        size_t at = 0, n;
        for (size_t i = 0; i < sizeof text - 1; at += n) {
            i += wf_json_escape(one, text + i, sizeof text - 1 - i, (wf_json_style)style, &n);
            assert_int_equal(n, strlen(one));
            memcpy(out + at, one, n + 1);
        }
        assert_string_equal(out, expected[style]);
    }
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

    if (setlocale(LC_NUMERIC, "de_DE.UTF-8")) { /* if installed */
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
    for (int buffered = 0; buffered < 2; buffered++) { /* the flush fails, or an earlier write */
        FILE *full = fopen("/dev/full", "w");
        if (!full)
            skip(); /* Linux only */
        if (!buffered)
            setvbuf(full, NULL, _IONBF, 0);
        wf_json j;
        wf_json_begin(&j, full);
        wf_json_string(&j, "lost");
        assert_false(wf_json_end(&j));
        fclose(full);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_distance), cmocka_unit_test(test_text_nearest),
        cmocka_unit_test(test_text_append),   cmocka_unit_test(test_words_find),
        cmocka_unit_test(test_json_layout),   cmocka_unit_test(test_text_escape),
        cmocka_unit_test(test_text_foreign),  cmocka_unit_test(test_json_strings),
        cmocka_unit_test(test_json_styles),   cmocka_unit_test(test_json_doubles),
        cmocka_unit_test(test_json_misuse),   cmocka_unit_test(test_json_write_error),
        wt_test(test_json_compact),           wt_test(test_json_compact_long),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_json_tree.c - the JSON reader: accepted and refused texts, values and escapes, keys of small
 * and large objects, texts truncated and damaged anywhere, failing allocations, and time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/writer.h"
#include "support.h"

/* A text with its length, because some contain NUL. */
#define T(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }

typedef struct {
    const char *text;
    size_t bytes;
} text;

/* Parses from a separate allocation, so that a sanitizer detects reading past the end. */
static wf_status parse(wf_arena *arena, const char *s, size_t bytes, wf_json_node **out)
{
    char *copy = malloc(bytes ? bytes : 1);
    assert_non_null(copy);
    memcpy(copy, s, bytes);
    wf_status status = wf_json_parse(arena, "a.json", copy, bytes, out);
    free(copy);
    return status;
}

static wf_json_node *parse_ok(wf_arena *arena, const char *s)
{
    wf_json_node *root;
    wt_ok(arena->ctx, parse(arena, s, strlen(s), &root));
    assert_non_null(root);
    return root;
}

/* ---- Syntax ---- */

static void accepts(void **state)
{
    static const text good[] = {
        T("null"),
        T("true"),
        T("false"),
        T("0"),
        T("-0"),
        T("-0.0"),
        T("1e5"),
        T("1E+5"),
        T("1e-5"),
        T("0e1"),
        T("0.5e+0"),
        T("123456789012345678901234567890"),
        T("1e-999"),
        T("[]"),
        T("{}"),
        T(" [ ] "),
        T("\t\r\n {\n} "),
        T("[[],[[]],{}]"),
        T("[1,2 , 3]"),
        T("\"\""),
        T("\"\x7F\""),
        T("{\"\":0}"),
        T("{\"a\":{\"a\":1},\"b\":{\"a\":1}}"),
        T("{\"a\":1,\"A\":2}"),
        T("{\"a\":1,\"a\\u0000\":2}"),
        T("\"\\u0000\""),
        T("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\""),
        T("\"\\uD834\\uDD1E\""),
        T("\"\\uDBFF\\uDFFF\""),
        T("\"\\ud800\\udc00\""),
        T("\"\\uFFFF\""),
        T("\"\xC2\x80 \xDF\xBF \xE0\xA0\x80 \xED\x9F\xBF \xEE\x80\x80 \xEF\xBF\xBF\""),
        T("\"\xF0\x90\x80\x80 \xF4\x8F\xBF\xBF\""),
        T("\"\xE2\x80\xA8\""),
        T("[1e308, -1.7976931348623157e308]"),
        T("-0.00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
          "00000000000000000000000000000000000000000000000000000000000000000000000000000001")};
    wf_arena arena;
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        wf_json_node *root;
        wf_status status = parse(&arena, good[i].text, good[i].bytes, &root);
        if (status != WF_OK)
            fail_msg("%s is refused: %s", good[i].text, wf_ctx_message(*state));
    }
    wf_arena_free(&arena);
}

static void refuses(void **state)
{
    static const text bad[] = {
        /* structure */
        T(""), T(" "), T("["), T("{"), T("]"), T("[1"), T("[1,"), T("[1,]"), T("[,1]"), T("[1,,2]"),
        T("[1 2]"), T("[1}"), T("{]"), T("{\"a\"}"), T("{\"a\":}"), T("{\"a\" 1}"), T("{\"a\":1,}"),
        T("{,\"a\":1}"), T("{a:1}"), T("{'a':1}"), T("{1:1}"), T("{null:1}"),
        T("{\"a\":1 \"b\":2}"), T("{\"a\"::1}"), T("1 2"), T("[] []"), T("{}}"), T("[]x"), T("1,"),
        T("[1]\0"), T("\0[1]"), T("[\0]"), T("// x\n1"), T("/**/1"), T("[1]#"), T("\xEF\xBB\xBF[]"),
        T("\xFF\xFE[\0]\0"), T("[\f1]"), T("[\v1]"), T("[\xC2\xA0]"), T("*"), T("<null>"),
        T("[\"a\",\n4\n,1,"),
        /* words */
        T("nul"), T("nulll"), T("True"), T("TRUE"), T("truth"), T("fals"), T("undefined"), T("NaN"),
        T("nan"), T("Infinity"), T("-Infinity"), T("inf"), T("[tru]"), T("none"),
        /* numbers */
        T("01"), T("-01"), T("00"), T("+1"), T("-"), T("--1"), T("-a"), T(".5"), T("-.5"), T("1."),
        T("1.e1"), T("1e"), T("1e+"), T("1e1.5"), T("1ee5"), T("0x10"), T("1_000"), T("1e999"),
        T("-1e999"), T("1.8e308"), T("[1 000]"), T("- 1"), T("1,5"), T("1f"), T("0.1.2"),
        T("\xEF\xBC\x91"),
        /* strings */
        T("\""), T("\"a"), T("\"\\\""), T("\"\\"), T("'a'"), T("\"\\x41\""), T("\"\\a\""),
        T("\"\\0\""), T("\"\\'\""), T("\"\\U0041\""), T("\"\\u\""), T("\"\\u004\""),
        T("\"\\u00g0\""), T("\"\\u 041\""), T("\"\\u-041\""), T("\"\\u12"), T("\"\\\0\""),
        T("\"a\nb\""), T("\"a\tb\""), T("\"a\0b\""), T("\"\x1F\""), T("\"a\"b\""), T("a\""),
        T("\"\\\n\""),
        /* surrogates */
        T("\"\\uD800\""), T("\"\\uDC00\""), T("\"\\uDC00\\uDC00\""), T("\"\\uD800\\uD800\""),
        T("\"\\uD800x\""), T("\"\\uD800\\n\""), T("\"\\uDBFF\\u0041\""), T("\"\\uDFFF\\uD800\""),
        T("\"\\uD800\\u"), T("\"\\uD800\\uDC0\""), T("{\"\\uD888\":0}"),
        /* UTF-8 */
        T("\"\x80\""), T("\"\xBF\""), T("\"\xC0\x80\""), T("\"\xC1\xBF\""), T("\"\xC2\""),
        T("\"\xC2"), T("\"\xC2\x41\""), T("\"\xE0\x80\x80\""), T("\"\xE0\x9F\xBF\""),
        T("\"\xED\xA0\x80\""), T("\"\xED\xBF\xBF\""), T("\"\xE2\x82\""), T("\"\xE2\x82"),
        T("\"\xF0\x80\x80\x80\""), T("\"\xF0\x8F\xBF\xBF\""), T("\"\xF4\x90\x80\x80\""),
        T("\"\xF5\x80\x80\x80\""), T("\"\xF0\x9F\x98\""), T("\"\xFE\""), T("\"\xFF\""),
        T("{\"\xE5\":0}"), T("[\xE5]"),
        /* duplicate keys, however they are spelled */
        T("{\"a\":1,\"a\":1}"), T("{\"a\":1,\"b\":2,\"\\u0061\":3}"), T("{\"\":1,\"\":2}"),
        T("[{\"x\":{\"a\":1,\"a\":2}}]"), T("{\"a\\u0000\":1,\"a\\u0000\":2}"),
        T("{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10,\"a\":0}"),
        T("{\"12345678a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10,\"12345678a\":0}")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_arena arena;
        wf_arena_init(&arena, *state);
        wf_json_node *root;
        wf_status status = parse(&arena, bad[i].text, bad[i].bytes, &root);
        if (status == WF_OK)
            fail_msg("%s is accepted", bad[i].text);
        wt_fails(*state, status, WF_ERR_FORMAT, "cannot read 'a.json', line ");
        assert_null(root);
        wf_arena_free(&arena);
    }
}

/* Accepts depth 128; refuses 129 and 100000. */
static void depth(void **state)
{
    enum { DEEP = 100000 };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    char *deep = malloc(2 * DEEP);
    wf_json_node *root;
    for (int form = 0; form < 2; form++) {
        int depths[] = {1, WF_JSON_TREE_DEPTH, WF_JSON_TREE_DEPTH + 1, DEEP / 5};
        for (int i = 0; i < 4; i++) {
            size_t n = 0;
            for (int k = 0; k < depths[i]; k++)
                n += (size_t)sprintf(deep + n, form ? "{\"a\":" : "[");
            n += (size_t)sprintf(deep + n, "1");
            for (int k = 0; k < depths[i]; k++)
                deep[n++] = form ? '}' : ']';
            wf_status status = parse(&arena, deep, n, &root);
            if (depths[i] <= WF_JSON_TREE_DEPTH)
                wt_ok(*state, status);
            else
                wt_fails(*state, status, WF_ERR_FORMAT, "nested too deeply");
        }
    }
    memset(deep, '[', 2 * DEEP);
    wt_fails(*state, parse(&arena, deep, 2 * DEEP, &root), WF_ERR_FORMAT, "nested too deeply");
    /* Siblings do not add depth. */
    for (int i = 0; i < DEEP / 2; i++)
        memcpy(deep + 3 * i, i ? ",[]" : "[[]", 3);
    deep[3 * (DEEP / 2)] = ']';
    wt_ok(*state, parse(&arena, deep, 3 * (DEEP / 2) + 1, &root));
    assert_int_equal(root->count, DEEP / 2);
    free(deep);
    wf_arena_free(&arena);
}

/* Error messages have the line and what was expected. */
static void sentences(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{\n\"a\": 1,\n\"b\": x}", "line 3: expected a value, found 'x'"},
        {"{\n\"a\": 1\n", "line 3: expected a comma or '}', but the text ends"},
        {"{\"a\": 1, \"a\": 2}", "duplicate key 'a'"},
        {"{\"\\n\": 1, \"\\n\": 2}", "duplicate key '\\n'"},
        {"[1]\n\n\x01", "line 3: expected the end, found the byte 0x01"},
        {"[007]", "leading zero"},
        {"[1e999]", "too large"},
        {"[\"\xFF\"]", "not UTF-8"},
        {"\xEF\xBB\xBF{}", "byte order mark"},
    };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    wf_json_node *root;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wt_fails(*state, parse(&arena, cases[i].text, strlen(cases[i].text), &root), WF_ERR_FORMAT,
                 cases[i].part);
    wf_arena_free(&arena);
}

/* ---- Values ---- */

/* Integers keep 64 bits; other numbers are the nearest double. */
static void numbers(void **state)
{
    static const struct {
        const char *text;
        bool whole;
        int64_t integer;
        double number;
    } cases[] = {
        {"0", true, 0, 0.0},
        {"-0", true, 0, -0.0},
        {"-0.0", false, 0, -0.0},
        {"17", true, 17, 17},
        {"-17", true, -17, -17},
        {"1.0", false, 0, 1},
        {"1e2", false, 0, 100},
        {"0.1", false, 0, 0.1},
        {"9223372036854775807", true, INT64_MAX, 0x1p63},
        {"9223372036854775808", false, 0, 0x1p63},
        {"-9223372036854775808", true, INT64_MIN, -0x1p63},
        {"-9223372036854775809", false, 0, -0x1p63},
        {"1000000000000000019884624838656", false, 0, 1e30},
        {"2.2250738585072011e-308", false, 0, 2.2250738585072011e-308},
        {"5e-324", false, 0, 5e-324},
        {"1e-400", false, 0, 0},
        {"1.7976931348623157e308", false, 0, 1.7976931348623157e308},
        {"9007199254740993", true, 9007199254740993, 9007199254740992.0},
    };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_json_node *n = parse_ok(&arena, cases[i].text);
        assert_int_equal(n->kind, WF_JSON_NUMBER);
        assert_int_equal(n->whole, cases[i].whole);
        assert_int_equal(n->integer, cases[i].integer);
        assert_true(n->number == cases[i].number &&
                    !signbit(n->number) == !signbit(cases[i].number));
    }
    wf_arena_free(&arena);
}

/* Escapes and surrogate pairs become UTF-8. */
static void strings(void **state)
{
    static const struct {
        const char *text;
        text value;
    } cases[] = {
        {"\"\"", T("")},
        {"\"plain\"", T("plain")},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", T("\"\\/\b\f\n\r\t")},
        {"\"a\\u0000b\"", T("a\0b")},
        {"\"\\u0041\\u00e9\\u07FF\\u0800\\u20AC\\uffff\"",
         T("A\xC3\xA9\xDF\xBF\xE0\xA0\x80\xE2\x82\xAC\xEF\xBF\xBF")},
        {"\"\\uD834\\udd1e\\uD800\\uDC00\\uDBFF\\uDFFF\"",
         T("\xF0\x9D\x84\x9E\xF0\x90\x80\x80\xF4\x8F\xBF\xBF")},
        {"\"\xC4\xA0the \xE2\x96\x81\"", T("\xC4\xA0the \xE2\x96\x81")},
    };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_json_node *n = parse_ok(&arena, cases[i].text);
        assert_int_equal(n->kind, WF_JSON_STRING);
        assert_int_equal(n->bytes, cases[i].value.bytes);
        assert_memory_equal(n->string, cases[i].value.text, n->bytes + 1); /* including the NUL */
    }
    wf_arena_free(&arena);
}

/* Members of the wrong kind give the default. */
static void members(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    const wf_json_node *o = parse_ok(
        &arena,
        "{\"s\": \"text\", \"n\": 1.5, \"i\": -3, \"t\": true, \"f\": false, \"null\": null, "
        "\"list\": [1, [2], {\"k\": 3}], \"big\": 1e30, \"one\": 1.0, \"zero\\u0000\": 1}");
    assert_int_equal(o->kind, WF_JSON_OBJECT);
    assert_int_equal(o->count, 10);
    assert_string_equal(o->child[1].key, "n");
    assert_string_equal(wf_json_get_string(o, "s", "?"), "text");
    assert_string_equal(wf_json_get_string(o, "i", "?"), "?");
    assert_string_equal(wf_json_get_string(o, "null", "?"), "?");
    assert_null(wf_json_get_string(o, "none", NULL));
    assert_true(wf_json_get_number(o, "n", 7) == 1.5 && wf_json_get_number(o, "i", 7) == -3);
    assert_true(wf_json_get_number(o, "s", 7) == 7 && wf_json_get_number(o, "null", 7) == 7);
    assert_int_equal(wf_json_get_int(o, "i", 7), -3);
    assert_int_equal(wf_json_get_int(o, "n", 7), 7);
    assert_int_equal(wf_json_get_int(o, "big", 7), 7);
    assert_int_equal(wf_json_get_int(o, "one", 7), 7);
    assert_true(wf_json_get_bool(o, "t", false) && !wf_json_get_bool(o, "f", true));
    assert_true(wf_json_get_bool(o, "i", true) && !wf_json_get_bool(o, "none", false));
    assert_true(wf_json_is(wf_json_get(o, "s"), "text") &&
                !wf_json_is(wf_json_get(o, "s"), "texts"));
    assert_false(wf_json_is(wf_json_get(o, "i"), "-3") || wf_json_is(NULL, "x"));
    assert_int_equal(wf_json_get(o, "null")->kind, WF_JSON_NULL);
    assert_null(wf_json_get(o, "zero"));
    assert_non_null(wf_json_get_n(o, "zero", 5));
    const wf_json_node *list = wf_json_get(o, "list");
    assert_int_equal(list->kind, WF_JSON_ARRAY);
    assert_int_equal(list->count, 3);
    assert_int_equal(list->child[1].child[0].integer, 2);
    assert_int_equal(wf_json_get_int(&list->child[2], "k", 0), 3);
    assert_null(list->child[0].key);
    assert_null(wf_json_get(list, "k"));
    assert_null(wf_json_get(NULL, "k"));
    wf_arena_free(&arena);
}

/* Covers all member counts around the one where objects get an index, keys of many lengths with
 * long common prefixes, and a duplicate key anywhere. */
static void many_members(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (unsigned n = 0; n < 40; n++) {
        unsigned twice = (unsigned)(wf_rng_u32(&rng) % (n + 1));
        for (int repeat = 0; repeat < 2; repeat++) {
            wf_arena arena;
            wf_arena_init(&arena, *state);
            wf_writer w = {.ctx = *state};
            unsigned start = wf_rng_u32(&rng) % 97;
            wf_writer_char(&w, '{');
            for (unsigned i = 0; i < n; i++)
                wf_writer_print(&w, "\"%.*s%u\":%u,", (int)(i % 12), "abcdefghijkl",
                                (start + 31 * i) % 97, i);
            unsigned again = repeat ? twice : n;
            wf_writer_print(&w, "\"%.*s%u\":%u}", (int)(again % 12), "abcdefghijkl",
                            (start + 31 * again) % 97, n);
            char *json, key[32];
            wf_json_node *o;
            wt_ok(*state, wf_writer_take(&w, &json, NULL));
            wf_status status = parse(&arena, json, strlen(json), &o);
            if (repeat && twice < n) {
                wt_fails(*state, status, WF_ERR_FORMAT, "duplicate key");
            } else {
                wt_ok(*state, status);
                assert_int_equal(o->count, n + 1);
                for (unsigned i = 0; i <= n; i++) {
                    snprintf(key, sizeof key, "%.*s%u", (int)(i % 12), "abcdefghijkl",
                             (start + 31 * i) % 97);
                    assert_string_equal(o->child[i].key, key);
                    assert_ptr_equal(wf_json_get(o, key), &o->child[i]);
                    strcat(key, "_");
                    assert_null(wf_json_get(o, key));
                }
            }
            wf_mem_free(*state, json);
            wf_arena_free(&arena);
        }
    }
}

/* ---- Damage ---- */

static const char sample[] =
    "{\"model_type\": \"llama\", \"x\": [1, -2.5e3, true, false, null, \"\\u00e9\\uD834\\uDD1E\xE2\x82\xAC\\n\"],\n"
    " \"a\": {}, \"b\": [], \"c\": 0, \"d\": 1, \"e\": 2, \"f\": 3, \"g\": 4, \"h\": {\"i\": {\"j\": [[[]]]}}}";

/* A text truncated at any byte is refused. */
static void cut_anywhere(void **state)
{
    for (size_t n = 0; n < sizeof sample - 1; n++) {
        wf_arena arena;
        wf_arena_init(&arena, *state);
        wf_json_node *root;
        wt_fails(*state, parse(&arena, sample, n, &root), WF_ERR_FORMAT, "cannot read 'a.json'");
        wf_arena_free(&arena);
    }
}

/* A randomly damaged text is read or refused, without a crash or a leak. */
static void damaged_anywhere(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 2);
    char bad[sizeof sample];
    for (int round = 0; round < 20000; round++) {
        memcpy(bad, sample, sizeof sample);
        for (unsigned flips = 1 + wf_rng_u32(&rng) % 4; flips > 0; flips--)
            bad[wf_rng_u32(&rng) % (sizeof bad - 1)] = (char)wf_rng_u32(&rng);
        wf_arena arena;
        wf_arena_init(&arena, *state);
        wf_json_node *root;
        if (parse(&arena, bad, sizeof bad - 1, &root) != WF_OK)
            wt_fails(*state, wf_ctx_status(*state), WF_ERR_FORMAT, "cannot read 'a.json'");
        wf_arena_free(&arena);
    }
}

static void out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    wf_writer w = {.ctx = ctx};
    wf_writer_print(&w, "[{");
    for (int i = 0; i < 3000; i++)
        wf_writer_print(&w, "%s\"key%d\": [%d]", i ? "," : "", i, i);
    wf_writer_print(&w, "}, 0.");
    for (int i = 0; i < 300; i++)
        wf_writer_char(&w, '1');
    wf_writer_print(&w, ", %s]", sample);
    char *json;
    size_t bytes;
    wt_ok(ctx, wf_writer_take(&w, &json, &bytes));
    for (uint64_t nth = 1, reached = 1; reached; nth++) {
        wf_arena arena;
        wf_arena_init(&arena, ctx);
        wf_json_node *root;
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_json_parse(&arena, "a.json", json, bytes, &root);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        if (reached)
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
        else
            wt_ok(ctx, status);
        assert_true(reached || nth > 10);
        wf_arena_free(&arena);
        assert_int_equal(wt_live_blocks(ctx), 1);
    }
    wf_mem_free(ctx, json);
}

/* ---- Time ---- */

/* A vocabulary and merges as large as the largest known ones, and 400000 keys with a common prefix.
 * The bounds are generous; they detect quadratic time. */
static void large(void **state)
{
    wf_writer w = {.ctx = *state};
    wf_writer_print(&w, "{\"vocab\": {");
    for (int i = 0; i < 250000; i++)
        wf_writer_print(&w, "%s\n      \"\xC4\xA0%x\": %d", i ? "," : "", (unsigned)i * 2654435761u,
                        i);
    wf_writer_print(&w, "}, \"merges\": [");
    for (int i = 0; i < 400000; i++)
        wf_writer_print(&w, "%s\n      [\n        \"\xC4\xA0%x\",\n        \"%x\"\n      ]",
                        i ? "," : "", (unsigned)i * 2654435761u, (unsigned)i);
    wf_writer_print(&w, "], \"same\": {");
    for (int i = 0; i < 400000; i++)
        wf_writer_print(&w, "%s\"the same beginning of all %d\": %d", i ? "," : "", i, i);
    wf_writer_print(&w, "}}");
    char *json;
    size_t bytes;
    wf_json_node *root;
    wt_ok(*state, wf_writer_take(&w, &json, &bytes));
    wf_arena arena;
    wf_arena_init(&arena, *state);
    uint64_t start = wf_clock_ns();
    wt_ok(*state, wf_json_parse(&arena, "tokenizer.json", json, bytes, &root));
    double took = (double)(wf_clock_ns() - start) * 1e-9;
    print_message("%.1f MB in %.3f s\n", (double)bytes / 1e6, took);
    assert_true(took < 20);
    assert_int_equal(wf_json_get(root, "vocab")->count, 250000);
    assert_int_equal(wf_json_get(root, "merges")->count, 400000);
    assert_int_equal(
        wf_json_get_int(wf_json_get(root, "same"), "the same beginning of all 123456", 0), 123456);
    wf_arena_free(&arena);
    wf_mem_free(*state, json);
}

/* Values of two bytes each would take a hundred times their size in memory, so their number is
 * limited. */
static void values(void **state)
{
    wf_arena arena;
    wf_json_node *root;
    const size_t count = WF_JSON_TREE_VALUES + 1;
    char *many = malloc(2 * count + 1);
    assert_non_null(many);
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < count; i++)
        memcpy(many + 2 * i, i ? ",0" : "[0", 2);
    many[2 * count] = ']';
    wt_fails(*state, parse(&arena, many, 2 * count + 1, &root), WF_ERR_FORMAT,
             "more than 8388608 values");
    wf_arena_free(&arena);
    free(many);
}

/* The caller's limits: at each of them a text is accepted, one beyond it is refused. */
static void limits(void **state)
{
    static const struct {
        const char *text;
        wf_json_limits limits;
        const char *refusal; /* NULL: accepted */
    } cases[] = {
        {"7", {0, 0}, NULL},
        {"[]", {1, 0}, NULL},
        {"[]", {0, 9}, "nested too deeply"},
        {"[0,0,0]", {1, 3}, NULL},
        {"[0,0,0]", {1, 2}, "it has more than 2 values"},
        {"{\"a\":[{\"b\":1},2]}", {3, 4}, NULL},
        {"{\"a\":[{\"b\":1},2]}", {2, 4}, "nested too deeply"},
        {"{\"a\":[{\"b\":1},2]}", {3, 3}, "it has more than 3 values"},
        {"[[],[],[[]]]", {3, 4}, NULL}, /* siblings do not add depth */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_arena arena;
        wf_json_node *root;
        wf_arena_init(&arena, *state);
        wf_status status = wf_json_parse_with(&arena, "it", &cases[i].limits, cases[i].text,
                                              strlen(cases[i].text), &root);
        if (cases[i].refusal)
            wt_fails(*state, status, WF_ERR_FORMAT, cases[i].refusal);
        else
            wt_ok(*state, status);
        assert_true((root != NULL) == (status == WF_OK));
        wf_arena_free(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(values),       wt_test(accepts),          wt_test(refuses),
        wt_test(depth),        wt_test(sentences),        wt_test(numbers),
        wt_test(strings),      wt_test(members),          wt_test(many_members),
        wt_test(cut_anywhere), wt_test(damaged_anywhere), wt_test(out_of_memory),
        wt_test(large),        wt_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

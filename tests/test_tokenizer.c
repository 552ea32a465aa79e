/* SPDX-License-Identifier: MIT */
/* test_tokenizer.c - tokenizers against recorded ids and against malicious files, and properties:
 * round trips, streaming, writing and reading again. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sanitize.h"
#include "base/writer.h"
#include "support.h"
#include "text/pre.h"
#include "text/stream.h"
#include "text/token.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define DATA "../shared/data/"

#ifdef WEFT_PCRE2
#define PATTERNS true
#else
#define PATTERNS false
#endif

/* Whether a test needs patterns in a build without PCRE2; prints that it is skipped. */
static bool lacks_patterns(bool needed, const char *what)
{
    if (needed && !PATTERNS)
        print_message("skipped: %s, without PCRE2\n", what);
    return needed && !PATTERNS;
}

static wf_tokenizer *open_gguf(wf_ctx *ctx, const char *path)
{
    wf_gguf *f;
    wf_tokenizer *t;
    wt_ok(ctx, wf_gguf_open(ctx, path, &f));
    wt_ok(ctx, wf_tokenizer_from_gguf(f, &t));
    wf_gguf_close(f);
    return t;
}

/* ---- Recorded vectors ---- */

#define BREAK "\n__ggml_vocab_test__\n"

static void check_vector(wf_ctx *ctx, const wf_tokenizer *t, const char *text, size_t bytes,
                         const char *want)
{
    int32_t *ids;
    size_t count;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, bytes, 0, &ids, &count));
    for (size_t i = 0; i < count; i++) {
        char *end;
        long id = strtol(want, &end, 10);
        if (end == want || id != ids[i])
            fail_msg("token %zu of '%.*s' is %d, not %ld", i, (int)bytes, text, (int)ids[i],
                     end == want ? -1 : id);
        want = end;
    }
    while (*want == ' ')
        want++;
    assert_true(*want == '\n' || *want == '\0');
    wf_ids_free(ctx, ids);
}

static void test_vectors(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const names[] = {"gpt-2",    "llama-spm", "deepseek-coder", "starcoder",
                                        "bert-bge", "phi-3",     "deepseek-llm",   "falcon",
                                        "mpt",      "refact"};
    wf_file_stamp stamp;
    if (!wf_file_look(DATA "tokenizers/gpt-2.gguf", &stamp)) {
        print_message("skipped: there is no " DATA "tokenizers\n");
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200], *in, *out;
        size_t in_bytes, out_bytes, n = 0;
        bool pattern = strncmp(names[i], "deepseek", 8) == 0 || strcmp(names[i], "falcon") == 0;
        if (lacks_patterns(pattern, names[i]))
            continue;
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf", names[i]);
        if (!wf_file_look(path, &stamp)) {
            print_message("skipped: there is no %s\n", path);
            continue;
        }
        wf_tokenizer *t = open_gguf(ctx, path);
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf.inp", names[i]);
        wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &in, &in_bytes));
        snprintf(path, sizeof path, DATA "tokenizers/%s.gguf.out", names[i]);
        wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &out, &out_bytes));
        const char *text = in, *want = out;
        for (; text; n++) {
            const char *end = strstr(text, BREAK);
            size_t bytes = end ? (size_t)(end - text) : in_bytes - (size_t)(text - in);
            check_vector(ctx, t, text, bytes, want);
            const char *line = strchr(want, '\n');
            want = line ? line + 1 : "";
            text = end ? end + strlen(BREAK) : NULL;
        }
        assert_true(n > 40);
        print_message("%s: %zu texts\n", names[i], n);
        wf_mem_free(ctx, in);
        wf_mem_free(ctx, out);
        wf_tokenizer_free(t);
    }
}

/* ---- Small handmade tokenizers ---- */

#define GPT2 "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": true}"

/* A byte-level tokenizer: all bytes, then `merges` ("a b", separated by spaces), then two added
 * tokens. */
static char *small_json(wf_ctx *ctx, const char *normalizer, const char *words,
                        const char *const *merges, size_t *bytes)
{
    wf_writer w = {.ctx = ctx};
    int id = 0;
    wf_writer_print(
        &w,
        "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"decoder\": {\"type\": \"ByteLevel\"}, "
        "\"model\": {\"type\": \"BPE\", \"vocab\": {",
        normalizer, words);
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        int c = plain ? b : b <= 0x20 ? 0x100 + b : b <= 0xA0 ? 0x121 + b - 0x7F : 0x143;
        wf_writer_print(&w, "%s\"\\u%04x\": %d", b ? ", " : "", (unsigned)c, id++);
    }
    for (int i = 0; merges[i]; i++) {
        const char *space = strchr(merges[i], ' ');
        wf_writer_print(&w, ", \"%.*s%s\": %d", (int)(space - merges[i]), merges[i], space + 1,
                        id++);
    }
    wf_writer_print(&w, "}, \"merges\": [");
    for (int i = 0; merges[i]; i++)
        wf_writer_print(&w, "%s\"%s\"", i ? ", " : "", merges[i]);
    wf_writer_print(
        &w,
        "]}, \"added_tokens\": [{\"id\": %d, \"content\": \"<|end|>\", \"special\": true}, "
        "{\"id\": %d, \"content\": \"[x]\", \"special\": false, \"normalized\": false}], "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
        "[{\"SpecialToken\": {\"id\": \"<|end|>\"}}, {\"Sequence\": {\"id\": \"A\"}}], "
        "\"special_tokens\": {\"<|end|>\": {\"ids\": [%d]}}}}",
        id, id + 1, id);
    char *json;
    wt_ok(ctx, wf_writer_take(&w, &json, bytes));
    return json;
}

static const char *const few_merges[] = {"a a",  "aa aa",           "aaaa aaaa", "l o",
                                         "lo w", "\\u0120 \\u0120", "! !",       NULL};

static wf_tokenizer *small(wf_ctx *ctx, const char *normalizer, const char *words)
{
    size_t bytes;
    wf_tokenizer *t;
    char *json = small_json(ctx, normalizer, words, few_merges, &bytes);
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "small", json, bytes, NULL, 0, &t));
    wf_mem_free(ctx, json);
    return t;
}

static void expect_ids(wf_ctx *ctx, const wf_tokenizer *t, const char *text, const uint8_t *plain,
                       uint32_t flags, const int32_t *want, size_t n)
{
    int32_t *ids;
    size_t count;
    wt_ok(ctx, wf_tokenizer_encode_marked(t, ctx, text, plain, strlen(text), flags, &ids, &count));
    assert_int_equal(count, n);
    assert_memory_equal(ids, want, n * sizeof *want);
    wf_ids_free(ctx, ids);
}
#define IDS(...) \
    (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)

enum { END = 256 + 7, X };

static void test_control(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = small(ctx, "null", GPT2);
    assert_int_equal(wf_tokenizer_count(t), 265);
    assert_int_equal(wf_tokenizer_find(t, "<|end|>", 7), END);
    assert_int_equal(wf_tokenizer_kind(t, END), WF_TOKEN_CONTROL);
    assert_int_equal(wf_tokenizer_kind(t, X), WF_TOKEN_USER);
    assert_int_equal(wf_tokenizer_kind(t, -1), WF_TOKEN_UNUSED);
    assert_null(wf_tokenizer_token(t, 265, NULL));
    assert_true(wf_tokenizer_ends(t, END) && !wf_tokenizer_ends(t, X));

    expect_ids(ctx, t, "<|end|>", NULL, WF_TEXT_CONTROL, IDS(END));
    expect_ids(ctx, t, "a", NULL, WF_TEXT_SPECIAL, IDS(END, 'a'));
    expect_ids(ctx, t, "<|end|>", NULL, 0, IDS('<', '|', 'e', 'n', 'd', '|', '>'));
    expect_ids(ctx, t, "[x]low", NULL, 0, IDS(X, 260));

    /* Not one byte of user text may become part of a control token. */
    uint8_t plain[14] = {0};
    const char *twice = "<|end|><|end|>";
    expect_ids(ctx, t, twice, plain, WF_TEXT_CONTROL, IDS(END, END));
    for (size_t i = 0; i < 7; i++) {
        memset(plain, 0, sizeof plain);
        plain[i] = 1;
        expect_ids(ctx, t, twice, plain, WF_TEXT_CONTROL,
                   IDS('<', '|', 'e', 'n', 'd', '|', '>', END));
    }
    memset(plain, 1, sizeof plain);
    expect_ids(ctx, t, "[x]", plain, WF_TEXT_CONTROL, IDS(X));
    wf_tokenizer_free(t);

    /* Not even when merges or a whole word would produce one. */
    for (int whole = 0; whole < 2; whole++) {
        char json[300];
        snprintf(
            json, sizeof json,
            "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2, \"c\": 3}, \"merges\": [\"a b\"], "
            "\"ignore_merges\": %s}, \"added_tokens\": [{\"id\": 2, \"content\": \"ab\", \"special\": "
            "true}, {\"id\": 3, \"content\": \"c\", \"special\": true}]}",
            whole ? "true" : "false");
        wt_ok(ctx, wf_tokenizer_from_json(ctx, "control", json, strlen(json), NULL, 0, &t));
        expect_ids(ctx, t, "ab", NULL, 0, IDS(0, 1));
        /* A single letter has no other token, and no text may be lost. */
        expect_ids(ctx, t, "cab", NULL, 0, IDS(3, 0, 1));
        expect_ids(ctx, t, "cab", NULL, WF_TEXT_CONTROL, IDS(3, 2));
        wf_tokenizer_free(t);
    }
    wf_file_stamp stamp;
    if (wf_file_look(DATA "tokenizers/llama-spm.gguf", &stamp)) {
        t = open_gguf(ctx, DATA "tokenizers/llama-spm.gguf");
        int32_t *ids;
        size_t count;
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, "<s></s><unk><0x0A>", 18, 0, &ids, &count));
        for (size_t i = 0; i < count; i++)
            assert_int_equal(wf_tokenizer_kind(t, ids[i]), WF_TOKEN_NORMAL);
        wf_ids_free(ctx, ids);
        wf_tokenizer_free(t);
    }
}

/* ---- Added tokens ---- */

/* Letters a to d, the space and the newline are tokens 0 to 5, "<" is 6 and ">" 7. */
static wf_tokenizer *with_added(wf_ctx *ctx, const char *normalizer, const char *added)
{
    char json[1200];
    wf_tokenizer *t;
    snprintf(json, sizeof json,
             "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"d\": 3, \" \": 4, "
             "\"\\n\": 5, \"<\": 6, \">\": 7, \"bc\": 8, \"bcd\": 9}, \"merges\": "
             "[[\"b\", \"c\"], [\"bc\", \"d\"]]}, \"normalizer\": %s, \"added_tokens\": [%s]}",
             normalizer, added);
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "added", json, strlen(json), NULL, 0, &t));
    return t;
}

/* Expected ids come from the package tokenizers 0.22; tests/oracle/added_tokens.py compares random
 * cases. */
static void test_added(void **state)
{
    wf_ctx *ctx = *state;
    /* A special token that is a letter, and one that is an intermediate merge of another. */
    wf_tokenizer *t = with_added(ctx, "null",
                                 "{\"id\": 1, \"content\": \"b\", \"special\": true}, "
                                 "{\"id\": 8, \"content\": \"bc\", \"special\": true}");
    expect_ids(ctx, t, "aba", NULL, 0, IDS(0, 1, 0));
    expect_ids(ctx, t, "aba", NULL, WF_TEXT_CONTROL, IDS(0, 1, 0));
    expect_ids(ctx, t, "abcd", NULL, 0, IDS(0, 9));
    expect_ids(ctx, t, "abca", NULL, 0, IDS(0, 1, 2, 0));
    expect_ids(ctx, t, "abcd", NULL, WF_TEXT_CONTROL, IDS(0, 8, 3));
    wf_tokenizer_free(t);

    /* White space that rstrip consumed may start the next token; lstrip does not consume it
     * again. */
    t = with_added(ctx, "null",
                   "{\"id\": 10, \"content\": \"<a>\", \"rstrip\": true, \"normalized\": false}, "
                   "{\"id\": 11, \"content\": \" b\", \"normalized\": false}, "
                   "{\"id\": 2, \"content\": \"c\", \"lstrip\": true, \"normalized\": false}");
    expect_ids(ctx, t, "<a>  b", NULL, 0, IDS(10, 11));
    expect_ids(ctx, t, "<a> a", NULL, 0, IDS(10, 0));
    expect_ids(ctx, t, "<a> \n c a", NULL, 0, IDS(10, 2, 4, 0));
    wf_tokenizer_free(t);

    /* Tokens that are not normalized match first, even without a normalizer, and the longest
     * wins. */
    t = with_added(ctx, "null",
                   "{\"id\": 10, \"content\": \"ab\", \"normalized\": true}, "
                   "{\"id\": 8, \"content\": \"bc\", \"normalized\": false}, "
                   "{\"id\": 12, \"content\": \"bca\", \"normalized\": false}");
    expect_ids(ctx, t, "abcab", NULL, 0, IDS(0, 12, 1));
    expect_ids(ctx, t, "abcdab", NULL, 0, IDS(0, 8, 3, 10));
    wf_tokenizer_free(t);
}

/* Plain marks follow the text through normalization, and text beside a control token does not hide
 * it. */
static void test_added_marks(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = with_added(
        ctx, "{\"type\": \"Replace\", \"pattern\": {\"String\": \"dd\"}, \"content\": \"<\"}",
        "{\"id\": 10, \"content\": \"<a\", \"special\": true, \"normalized\": true}, "
        "{\"id\": 11, \"content\": \"<ab\", \"special\": true, \"normalized\": true}");
    expect_ids(ctx, t, "dda", NULL, WF_TEXT_CONTROL, IDS(10));
    expect_ids(ctx, t, "dda", NULL, 0, IDS(6, 0));
    for (size_t i = 0; i < 3; i++) {
        uint8_t plain[3] = {0};
        plain[i] = 1;
        expect_ids(ctx, t, "dda", plain, WF_TEXT_CONTROL, IDS(6, 0));
    }
    /* The user's b does not extend the template's token. */
    expect_ids(ctx, t, "ddab", (const uint8_t[]){0, 0, 0, 1}, WF_TEXT_CONTROL, IDS(10, 1));
    expect_ids(ctx, t, "ddab", (const uint8_t[]){0, 0, 0, 0}, WF_TEXT_CONTROL, IDS(11));
    expect_ids(ctx, t, "dddda", (const uint8_t[]){1, 1, 0, 0, 0}, WF_TEXT_CONTROL, IDS(6, 10));
    wf_tokenizer_free(t);
}

static void test_invalid_utf8(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = small(ctx, "{\"type\": \"NFC\"}", GPT2);
    /* U+FFFD for each maximal invalid part; marks follow. */
    const uint8_t plain[] = {0, 1, 0, 0, 0};
    expect_ids(ctx, t, "\xE2\x82z\xFF", plain, 0, IDS(0xEF, 0xBF, 0xBD, 'z', 0xEF, 0xBF, 0xBD));
    expect_ids(ctx, t, "\xC0\x80", NULL, 0, IDS(0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD));
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_tokenizer_decode(t, ctx,
                                   (const int32_t[]){0xE2, 0x82, 'z', 0xFF, -5, 9999, 0xC3, 0xA9},
                                   8, 0, &text, &bytes));
    assert_string_equal(text, "\xEF\xBF\xBDz\xEF\xBF\xBD\xC3\xA9");
    wf_text_free(ctx, text);
    wf_tokenizer_free(t);
}

/* ---- Round trips and streams ---- */

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Random characters, mostly of the classes that splitters distinguish. */
static size_t random_text(uint64_t *seed, char *out, size_t room)
{
    static const uint32_t bases[] = {0x20, 0x20,  0x61,   0x30,    0x0A,   0x21,
                                     0xC0, 0x300, 0x4E00, 0x1F600, 0x2581, 0x10000};
    size_t n = 0, wanted = next_random(seed) % (room - 4);
    while (n < wanted) {
        uint32_t c = bases[next_random(seed) % 12] + (uint32_t)(next_random(seed) % 20);
        size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        for (size_t i = length; i-- > 1; c >>= 6)
            out[n + i] = (char)(0x80 | (c & 0x3F));
        out[n] = (char)(length == 1 ? c : (0xF00u >> length & 0xFF) | c);
        n += length;
    }
    return n;
}

static bool is_utf8(const char *s, size_t n)
{
    size_t length;
    for (size_t i = 0; i < n; i += length)
        if (wf_utf8_look(s + i, n - i, &length) != WF_UTF8_WHOLE)
            return false;
    return true;
}

/* Decoding returns the encoded text, in pieces as well as at once. */
static void check_round_trip(wf_ctx *ctx, const wf_tokenizer *t, const char *text, size_t n)
{
    int32_t *ids;
    size_t count, bytes, at = 0;
    char *back;
    wf_decoder *d;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count));
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, 0, &back, &bytes));
    assert_int_equal(bytes, n);
    assert_memory_equal(back, text, n);
    wf_text_free(ctx, back);

    for (size_t i = 0; i < count; i += 2) /* other tokens, which break characters */
        ids[i] = (int32_t)((uint32_t)ids[i] * 7919u % (uint32_t)wf_tokenizer_count(t));
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, WF_TEXT_CONTROL, &back, &bytes));
    assert_true(is_utf8(back, bytes));
    wt_ok(ctx, wf_decoder_new(t, ctx, WF_TEXT_CONTROL, &d));
    for (int round = 0; round < 2; round++, at = 0) {
        for (size_t i = 0; i <= count; i++) {
            const char *piece;
            size_t length;
            wt_ok(ctx, i < count ? wf_decoder_next(d, ids[i], &piece, &length)
                                 : wf_decoder_end(d, &piece, &length));
            assert_true(is_utf8(piece, length) && at + length <= bytes);
            assert_memory_equal(piece, back + at, length);
            at += length;
        }
        assert_int_equal(at, bytes);
    }
    wf_decoder_free(d);
    wf_text_free(ctx, back);
    wf_ids_free(ctx, ids);
}

static void test_round_trips(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    static const char *const paths[] = {NULL, DATA "tokenizers/gpt-2.gguf",
                                        DATA "tokenizers/llama-spm.gguf",
                                        DATA "tokenizers/deepseek-coder.gguf"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        wf_file_stamp stamp;
        if (paths[i] && !wf_file_look(paths[i], &stamp))
            continue;
        if (paths[i] && lacks_patterns(strstr(paths[i], "deepseek") != NULL, paths[i]))
            continue;
        wf_tokenizer *t = paths[i] ? open_gguf(ctx, paths[i]) : small(ctx, "null", GPT2);
        for (int round = 0; round < 300; round++) {
            char text[200];
            size_t n = random_text(&seed, text, sizeof text);
            if (i == 2) /* U+2581 is a space there */
                for (char *c; (c = memchr(text, 0xE2, n));)
                    *c = (char)0xE1;
            check_round_trip(ctx, t, text, n);
        }
        wf_tokenizer_free(t);
    }
}

/* ---- Writing and reading again ---- */

static void expect_same(wf_ctx *ctx, const wf_tokenizer *a, const wf_tokenizer *b, uint64_t seed)
{
    assert_int_equal(wf_tokenizer_count(a), wf_tokenizer_count(b));
    for (int i = 0; i < 4; i++)
        assert_int_equal(wf_tokenizer_special(a, (wf_special)i),
                         wf_tokenizer_special(b, (wf_special)i));
    for (int32_t i = 0; i < wf_tokenizer_count(a); i++)
        assert_int_equal(wf_tokenizer_kind(a, i), wf_tokenizer_kind(b, i));
    for (int round = 0; round < 200; round++) {
        char text[300];
        int32_t *ids, *other;
        size_t n = random_text(&seed, text, sizeof text), count, other_count;
        wt_ok(ctx, wf_tokenizer_encode(a, ctx, text, n, 3, &ids, &count));
        wt_ok(ctx, wf_tokenizer_encode(b, ctx, text, n, 3, &other, &other_count));
        assert_int_equal(count, other_count);
        assert_memory_equal(ids, other, count * sizeof *ids);
        wf_ids_free(ctx, ids);
        wf_ids_free(ctx, other);
    }
}

static void check_written(wf_ctx *ctx, const wf_tokenizer *t, uint64_t seed)
{
    char *json, *config, path[] = "/tmp/weft-test-tokenizer-XXXXXX";
    size_t bytes, config_bytes;
    wf_tokenizer *again;
    wf_gguf_writer *w;
    wt_ok(ctx, wf_tokenizer_to_json(t, ctx, &json, &bytes));
    wt_ok(ctx, wf_tokenizer_to_config(t, ctx, "{{ 'a \"template\"\n' }}", &config, &config_bytes));
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "written", json, bytes, config, config_bytes, &again));
    expect_same(ctx, t, again, seed);
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
    wf_tokenizer_free(again);

    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_tokenizer_to_gguf(t, ctx, w, 0));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    again = open_gguf(ctx, path);
    expect_same(ctx, t, again, seed);
    wf_tokenizer_free(again);
    assert_int_equal(remove(path), 0);
}

static void test_written(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    static const char *const paths[] = {DATA "tokenizers/gpt-2.gguf",
                                        DATA "tokenizers/llama-spm.gguf",
                                        DATA "tokenizers/starcoder.gguf"};
    wf_tokenizer *t = small(ctx, "null", GPT2);
    check_written(ctx, t, seed);
    wf_tokenizer_free(t);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        wf_file_stamp stamp;
        if (!wf_file_look(paths[i], &stamp))
            continue;
        t = open_gguf(ctx, paths[i]);
        check_written(ctx, t, seed);
        wf_tokenizer_free(t);
    }
}

/* ---- Streaming ---- */

/* Streaming pieces of any length produces the ids of the whole text. Texts are spaces, letters,
 * newlines and added tokens. */
static void check_stream(wf_ctx *ctx, const wf_tokenizer *t, uint64_t *seed, uint32_t flags)
{
    static const char *const parts[] = {" ",    " ",  "  ",   "low",     "Once",     "upon",
                                        "1234", "\n", "\r\n", "!",       "\xC3\xA9", "<",
                                        "|",    "a",  "\xFF", "\xF0\x9F"};
    enum { BYTES = 300000 };
    char *text = malloc(BYTES + 70000);
    size_t n = 0, count, done = 0;
    int32_t *want;
    const int32_t *ids;
    wf_stream *s;
    assert_non_null(text);
    while (n < BYTES) {
        size_t bytes, which = next_random(seed) % 40;
        int32_t id = (int32_t)(next_random(seed) % (uint64_t)wf_tokenizer_count(t));
        const char *part = wf_tokenizer_token(t, id, &bytes);
        if (which < 32 || !part) {
            part = parts[which % 16];
            bytes = strlen(part);
        }
        memcpy(text + n, part, bytes);
        n += bytes;
    }
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, flags, &want, &count));
    wt_ok(ctx, wf_stream_new(t, ctx, flags, &s));
    for (size_t at = 0, take, got; at < n; at += take) {
        take = next_random(seed) % 50000;
        take = take < n - at ? take : n - at;
        wt_ok(ctx, wf_stream_feed(s, text + at, take, &ids, &got));
        assert_true(got <= count - done);
        if (got > 0)
            assert_memory_equal(ids, want + done, got * sizeof *ids);
        done += got;
    }
    size_t got;
    wt_ok(ctx, wf_stream_end(s, &ids, &got));
    assert_int_equal(got, count - done);
    assert_memory_equal(ids, want + done, got * sizeof *ids);
    wf_stream_free(s);
    wf_ids_free(ctx, want);
    free(text);
}

static void test_stream(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    static const char *const paths[] = {
        DATA "tokenizers/gpt-2.gguf", DATA "tokenizers/llama-bpe.gguf",
        DATA "tokenizers/qwen2.gguf", DATA "tokenizers/llama-spm.gguf"};
    wf_tokenizer *t = small(ctx, "null", GPT2);
    check_stream(ctx, t, &seed, WF_TEXT_SPECIAL | WF_TEXT_CONTROL);
    wf_tokenizer_free(t);
    t = with_added(ctx,
                   "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"d\"}",
                   "{\"id\": 10, \"content\": \" <\", \"single_word\": true}");
    check_stream(ctx, t, &seed, 0);
    wf_tokenizer_free(t);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        wf_file_stamp stamp;
        if (!wf_file_look(paths[i], &stamp))
            continue;
        t = open_gguf(ctx, paths[i]);
        for (uint32_t flags = 0; flags < 4; flags++)
            check_stream(ctx, t, &seed, flags);
        wf_tokenizer_free(t);
    }
}

/* \w of the package tokenizers: symbols and format characters with the property Alphabetic or
 * Join_Control are word characters, so a token with single_word does not match before them. */
static void test_word_characters(void **state)
{
    (void)state;
    static const uint32_t words[] = {'a',    '_',    '9',     0x301,   0x200C, 0x200D,
                                     0x24B6, 0x24E9, 0x1F130, 0x1F169, 0x1F189};
    static const uint32_t others[] = {' ', '-', 0xB2, 0x200B, 0x24B5, 0x24EA, 0x1F14A, 0x1F18A};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_true(wf_char_class(words[i]) & WF_CHAR_WORD);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(wf_char_class(others[i]) & WF_CHAR_WORD);
}

/* ---- Long texts ---- */

#if WF_ADDRESS_SANITIZER
#define LONG ((size_t)1 << 20)
#else
#define LONG ((size_t)16 << 20)
#endif

static void check_long(wf_ctx *ctx, const wf_tokenizer *t, const char *unit, size_t bytes)
{
    char *text = malloc(bytes);
    size_t n = strlen(unit), count;
    int32_t *ids;
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++)
        text[i] = unit[i % n];
    uint64_t start = wf_clock_ns();
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, bytes - bytes % n, 0, &ids, &count));
    double seconds = (double)(wf_clock_ns() - start) * 1e-9;
    print_message("%zu bytes of '%s': %.1f s\n", bytes, unit, seconds);
    assert_true(count > 0 && seconds < 240);
    wf_ids_free(ctx, ids);
    free(text);
}

static void test_long(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = small(ctx, "{\"type\": \"NFC\"}", GPT2);
    check_long(ctx, t, "a", LONG);
    check_long(ctx, t, " ", LONG);
    check_long(ctx, t, "!", LONG / 4);
    check_long(ctx, t, "\xCC\xA3\xCC\x81", LONG / 4); /* two combining marks, in the wrong order */
    check_long(ctx, t, " \n", LONG / 4);
    wf_tokenizer_free(t);
}

/* ---- Hostile files ---- */

static void refuse(wf_ctx *ctx, const char *json, wf_status status, const char *part)
{
    wf_tokenizer *t;
    wt_fails(ctx, wf_tokenizer_from_json(ctx, "bad.json", json, strlen(json), NULL, 0, &t), status,
             part);
    assert_null(t);
}

#define MODEL(text) "{\"model\": {\"type\": \"BPE\", " text "}}"

static void test_hostile(void **state)
{
    wf_ctx *ctx = *state;
    refuse(ctx, "", WF_ERR_FORMAT, "bad.json");
    refuse(ctx, "[]", WF_ERR_FORMAT, "no \"model\"");
    refuse(ctx, "{\"model\": {\"type\": \"WordLevel\"}}", WF_ERR_UNSUPPORTED, "'WordLevel'");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0}"), WF_ERR_FORMAT, "merges");
    refuse(ctx, MODEL("\"vocab\": {\"a\": -1}, \"merges\": []"), WF_ERR_FORMAT, "id of token 'a'");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0.5}, \"merges\": []"), WF_ERR_FORMAT, "id of token 'a'");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 4294967296}, \"merges\": []"), WF_ERR_FORMAT,
           "id of token 'a'");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 1000000}, \"merges\": []"), WF_ERR_FORMAT,
           "id of token 'a'");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []"), WF_ERR_FORMAT,
           "'b' or its id 0");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]"), WF_ERR_FORMAT,
           "merge 0");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0, \"ab\": 1}, \"merges\": [\"a b\"]"), WF_ERR_FORMAT,
           "merge 0");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0}, \"merges\": [\"a \"]"), WF_ERR_FORMAT, "merge 0");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]"), WF_ERR_FORMAT, "merge 0");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"b\""), WF_ERR_FORMAT,
           "unk_token");
    refuse(ctx, MODEL("\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1"),
           WF_ERR_UNSUPPORTED, "dropout");
    refuse(
        ctx,
        "{\"normalizer\": {\"type\": \"ByteLevel\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
        WF_ERR_UNSUPPORTED, "'ByteLevel'");
    refuse(
        ctx,
        "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
        "\"Isolated\"}, \"model\": {\"vocab\": {\"a\": 0}, \"merges\": []}}",
        WF_ERR_UNSUPPORTED, "pattern '('");
    refuse(
        ctx,
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"b\"}], \"model\": {\"vocab\": {\"a\": 0}, "
        "\"merges\": []}}",
        WF_ERR_FORMAT, "'b' or its id 0");

    /* Gaps between ids, and tokens that only look like bytes, are fine. */
    wf_tokenizer *t;
    const char *json =
        "{\"model\": {\"byte_fallback\": true, \"vocab\": {\"a\": 7, \"<0x-1>\": 2, \"<0xG0>\": 3}, "
        "\"merges\": []}, \"decoder\": {\"type\": \"ByteFallback\"}}";
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "odd.json", json, strlen(json), NULL, 0, &t));
    assert_int_equal(wf_tokenizer_count(t), 8);
    assert_null(wf_tokenizer_token(t, 0, NULL));
    expect_ids(ctx, t, "ba", NULL, 0, IDS(7));
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, (const int32_t[]){0, 2, 3, 7}, 4, 0, &text, &bytes));
    assert_string_equal(text, "<0x-1><0xG0>a");
    wf_text_free(ctx, text);
    wf_tokenizer_free(t);
}

/* A GGUF file of three tokens with at most one fault. */
static void refuse_gguf(wf_ctx *ctx, const char *model, const char *pre, size_t kinds, float score,
                        const char *merge, wf_status wanted, const char *part)
{
    char path[] = "/tmp/weft-test-tokenizer-XXXXXX";
    static const wf_gguf_text tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}};
    static const int32_t kind[] = {1, 1, 1, 1};
    const float scores[] = {0, 0, score};
    wf_gguf_text merges[] = {{merge, strlen(merge)}};
    wf_gguf_writer *w;
    wf_gguf *f;
    wf_tokenizer *t;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_gguf_write_text(w, "tokenizer.ggml.model", model, strlen(model)));
    wt_ok(ctx, wf_gguf_write_text(w, "tokenizer.ggml.pre", pre, strlen(pre)));
    wt_ok(ctx, wf_gguf_write_texts(w, "tokenizer.ggml.tokens", tokens, 3));
    wt_ok(ctx, wf_gguf_write_array(w, "tokenizer.ggml.token_type", WF_GGUF_I32, kind, kinds));
    wt_ok(ctx, wf_gguf_write_array(w, "tokenizer.ggml.scores", WF_GGUF_F32, scores, 3));
    wt_ok(ctx, wf_gguf_write_texts(w, "tokenizer.ggml.merges", merges, 1));
    wt_ok(ctx, wf_gguf_write_int(w, "tokenizer.ggml.eos_token_id", WF_GGUF_U32, 4000000000));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    uint64_t nth = 1;
    wf_status status;
    do { /* with every allocation failing in turn */
        wf_ctx_fail_allocation(ctx, nth++);
        status = wf_gguf_open(ctx, path, &f);
        if (status == WF_OK)
            status = wf_tokenizer_from_gguf(f, &t);
        else
            f = NULL;
        wf_ctx_fail_allocation(ctx, 0);
        wf_gguf_close(f);
        if (status == WF_OK) {
            int32_t eos = strcmp(model, "llama") == 0 ? 2 : strcmp(model, "t5") == 0 ? 1 : -1;
            assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_EOS), eos);
            wf_tokenizer_free(t);
        }
    } while (status == WF_ERR_MEMORY && nth < 1000);
    if (wanted == WF_OK)
        wt_ok(ctx, status);
    else
        wt_fails(ctx, status, wanted, part);
    assert_int_equal(remove(path), 0);
}

static void test_hostile_gguf(void **state)
{
    wf_ctx *ctx = *state;
    refuse_gguf(ctx, "gpt2", "gpt-2", 3, 0, "a b", WF_OK, NULL);
    refuse_gguf(ctx, "gpt2", "deepseek-llm", 3, 0, "a b", PATTERNS ? WF_OK : WF_ERR_UNSUPPORTED,
                "PCRE2"); /* which compiles its patterns */
    refuse_gguf(ctx, "llama", "default", 3, -1, "a b", WF_OK, NULL);
    refuse_gguf(ctx, "t5", "default", 3, -1, "a b", WF_OK, NULL);
    refuse_gguf(ctx, "t5", "default", 3, INFINITY, "a b", WF_ERR_FORMAT, "is infinite");
    refuse_gguf(ctx, "bert", "default", 3, 0, "a b", WF_ERR_FORMAT, "unknown_token_id");
    refuse_gguf(ctx, "rwkv", "gpt-2", 3, 0, "a b", WF_ERR_UNSUPPORTED, "'rwkv'");
    refuse_gguf(ctx, "gpt2", "no-such", 3, 0, "a b", WF_ERR_UNSUPPORTED, "'no-such'");
    refuse_gguf(ctx, "gpt2", "gpt-2", 2, 0, "a b", WF_ERR_FORMAT, "token_type has 2");
    refuse_gguf(ctx, "gpt2", "gpt-2", 3, 0, "a c", WF_ERR_FORMAT, "merge 0");
    refuse_gguf(ctx, "gpt2", "gpt-2", 3, 0, "ab", WF_ERR_FORMAT, "merge 0");
    refuse_gguf(ctx, "gpt2", "gpt-2", 3, 0, "", WF_ERR_FORMAT, "merge 0");
    refuse_gguf(ctx, "llama", "default", 3, NAN, "a b", WF_ERR_FORMAT, "is NaN");
}

/* Every pre-tokenizer of the table works. */
static void test_pres(void **state)
{
    wf_ctx *ctx = *state;
    for (const wf_pre *p = wf_pres; p->names; p++) {
        wf_tokenizer *t;
        wt_ok(ctx, wf_tokenizer_new(ctx, &t));
        wf_status status = wf_pre_apply(p, t);
        if (lacks_patterns(status == WF_ERR_UNSUPPORTED, p->names)) {
            wf_tokenizer_free(t);
            continue;
        }
        wt_ok(ctx, status);
        t->bpe.whole_words = p->is & WF_PRE_WHOLE;
        assert_ptr_equal(wf_pre_of(t), p);
        assert_ptr_equal(wf_pre_find(p->names, strcspn(p->names, ",")), p);
        wf_tokenizer_free(t);
    }
    assert_null(wf_pre_find("gpt", 3));
}

/* A pattern with exponential backtracking stops with an error. */
static void test_pattern_limit(void **state)
{
    wf_ctx *ctx = *state;
    if (lacks_patterns(true, "patterns"))
        return;
    wf_tokenizer *t = small(
        ctx, "null",
        "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
        "{\"Regex\": \"(a+)+$\"}, \"behavior\": \"Isolated\", \"invert\": false}, " GPT2 "]}");
    int32_t *ids;
    size_t count;
    expect_ids(ctx, t, "baa", NULL, 0, IDS('b', 256));
    char text[101];
    memset(text, 'a', 100);
    text[100] = 'b';
    wf_status status = wf_tokenizer_encode(t, ctx, text, 101, 0, &ids, &count);
    if (status == WF_OK) /* the matcher found at once that no match exists */
        wf_ids_free(ctx, ids);
    else
        wt_fails(ctx, status, WF_ERR_UNSUPPORTED, "takes too long");
    wf_tokenizer_free(t);
}

/* ---- Allocation failures ---- */

static wf_status use_all(wf_ctx *ctx, const char *json, size_t bytes)
{
    wf_tokenizer *t = NULL;
    int32_t *ids = NULL;
    char *text = NULL, *again = NULL;
    size_t count = 0, n;
    const char *long_text = "low \xCC\x81 <|end|> [x] aaaaaaa  \xFF 12";
    wf_status status = wf_tokenizer_from_json(ctx, "small", json, bytes, NULL, 0, &t);
    if (status == WF_OK)
        status = wf_tokenizer_encode(t, ctx, long_text, strlen(long_text), 3, &ids, &count);
    if (status == WF_OK)
        status = wf_tokenizer_decode(t, ctx, ids, count, 2, &text, &n);
    if (status == WF_OK)
        status = wf_tokenizer_to_json(t, ctx, &again, &n);
    wf_mem_free(ctx, again);
    wf_text_free(ctx, text);
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
    return status;
}

static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    size_t bytes;
    char *json = small_json(
        ctx, "{\"type\": \"NFC\"}",
        PATTERNS
            ? "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
              "{\"Regex\": \"[0-9]\"}, \"behavior\": \"Isolated\", \"invert\": false}, " GPT2 "]}"
            : GPT2,
        few_merges, &bytes);
    uint64_t blocks = wt_live_blocks(ctx), nth = 1;
    for (bool failed = true; failed; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = use_all(ctx, json, bytes);
        failed = ctx->fail_in_calls == 0; /* matching survives some failures */
        wf_ctx_fail_allocation(ctx, 0);
        if (status != WF_OK)
            assert_int_equal(status, WF_ERR_MEMORY);
        assert_int_equal(wt_live_blocks(ctx), blocks);
    }
    print_message("%d allocations\n", (int)nth);
    assert_true(nth > 10);
    wf_mem_free(ctx, json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_vectors),      wt_test(test_control),         wt_test(test_added),
        wt_test(test_added_marks),  wt_test(test_word_characters), wt_test(test_stream),
        wt_test(test_invalid_utf8), wt_test(test_round_trips),     wt_test(test_written),
        wt_test(test_long),         wt_test(test_hostile),         wt_test(test_pattern_limit),
        wt_test(test_faults),       wt_test(test_hostile_gguf),    wt_test(test_pres),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}

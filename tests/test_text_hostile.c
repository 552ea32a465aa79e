/* SPDX-License-Identifier: MIT */
/* test_text_hostile.c - tokenizers from malicious files: their effect on texts, and the time and
 * memory they take. */
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
#include "base/mem.h"
#include "base/writer.h"
#include "support.h"
#include "text/template.h"
#include "text/token.h"
#include "text/utf8.h"

#define MODEL "tokenizer.ggml."

/* A GGUF vocabulary without merges and with all scores zero. */
static wf_tokenizer *from_gguf(wf_ctx *ctx, const char *model, const char *pre,
                               const wf_gguf_text *tokens, const int32_t *kinds, size_t count)
{
    char path[] = "/tmp/weft-test-hostile-XXXXXX";
    wf_gguf_writer *w;
    wf_gguf *f;
    wf_tokenizer *t;
    float *scores = wf_mem_array(ctx, count, sizeof *scores);
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_gguf_write_text(w, MODEL "model", model, strlen(model)));
    wt_ok(ctx, wf_gguf_write_text(w, MODEL "pre", pre, strlen(pre)));
    wt_ok(ctx, wf_gguf_write_texts(w, MODEL "tokens", tokens, count));
    wt_ok(ctx, wf_gguf_write_array(w, MODEL "token_type", WF_GGUF_I32, kinds, count));
    wt_ok(ctx, wf_gguf_write_array(w, MODEL "scores", WF_GGUF_F32, scores, count));
    wt_ok(ctx, wf_gguf_write_texts(w, MODEL "merges", NULL, 0));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wf_mem_free(ctx, scores);
    wt_ok(ctx, wf_gguf_open(ctx, path, &f));
    wt_ok(ctx, wf_tokenizer_from_gguf(f, &t));
    wf_gguf_close(f);
    assert_int_equal(remove(path), 0);
    return t;
}

/* ---- Added tokens that are parts of characters ---- */

/* Encodes from a block of exactly the text's size, so that AddressSanitizer sees a read past the
 * end. */
static void encode_exactly(wf_ctx *ctx, const wf_tokenizer *t, const char *text)
{
    size_t n = strlen(text), count, bytes;
    char *copy = wf_mem_new(ctx, n), *back;
    int32_t *ids;
    memcpy(copy, text, n);
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, copy, n, WF_TEXT_CONTROL, &ids, &count));
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, WF_TEXT_CONTROL, &back, &bytes));
    assert_string_equal(back, text);
    wf_text_free(ctx, back);
    wf_ids_free(ctx, ids);
    wf_mem_free(ctx, copy);
}

static void test_parts_of_characters(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const pres[] = {"gpt-2", "qwen2", "llama-bpe"};
    static const wf_gguf_text parts[] = {{"\xC3", 1}, {"\xA9", 1}, {"\xF0", 1}, {"\x9F\x98", 2}};
    static const char *const texts[] = {"h\xC3\xA9", " \xC3\xA9", "\xF0\x9F\x98\x80",
                                        "a\xC3\xA9 b \xF0\x9F\x98\x80"};
    wf_gguf_text tokens[257];
    int32_t kinds[257];
    char letters[256][4];
    for (int i = 0; i < 256; i++) {
        bool plain = (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i != 0xAD);
        int c = plain ? i : i <= 0x20 ? 0x100 + i : i <= 0xA0 ? 0x121 + i - 0x7F : 0x143;
        tokens[i] = (wf_gguf_text){letters[i], wf_utf8_encode((uint32_t)c, letters[i])};
        kinds[i] = WF_TOKEN_NORMAL;
    }
    for (size_t i = 0; i < 2 * sizeof parts / sizeof *parts; i++)
        for (size_t p = 0; p < sizeof pres / sizeof *pres; p++) {
            tokens[256] = parts[i / 2];
            kinds[256] = i % 2 ? WF_TOKEN_CONTROL : WF_TOKEN_USER;
            wf_tokenizer *t = from_gguf(ctx, "gpt2", pres[p], tokens, kinds, 257);
            for (size_t k = 0; k < sizeof texts / sizeof *texts; k++)
                encode_exactly(ctx, t, texts[k]);
            wf_tokenizer_free(t);
        }
}

/* ---- Control tokens named like bytes ---- */

static void test_control_bytes(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf_text tokens[259] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}};
    int32_t kinds[259] = {WF_TOKEN_UNKNOWN, WF_TOKEN_CONTROL, WF_TOKEN_CONTROL}, *ids;
    char names[256][8];
    size_t count;
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[3 + i] = (wf_gguf_text){names[i], 6};
        kinds[3 + i] = i == 'h' ? WF_TOKEN_CONTROL : WF_TOKEN_BYTE;
    }
    wf_tokenizer *t = from_gguf(ctx, "llama", "default", tokens, kinds, 259);
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, "hi", 2, 0, &ids, &count));
    assert_int_equal(count, 5);        /* three bytes of the space, and two */
    assert_int_equal(ids[3], 3 + 'h'); /* no other token stands for the byte */
    assert_int_equal(ids[4], 3 + 'i');
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
}

/* ---- Colliding tokens ---- */

#define ODD UINT64_C(0xD6E8FEB86659FD93)

/* The multiplicative inverse: ODD times this is 1. */
static uint64_t inverse(void)
{
    uint64_t x = ODD;
    for (int i = 0; i < 6; i++) /* doubles the number of correct bits */
        x *= 2 - ODD * x;
    return x;
}

/* Inverts the fixed mix of xor, shift and multiplication of an unkeyed hash table: returns the
 * eight bytes that hash to `wanted`. */
static uint64_t unmix(uint64_t wanted, uint64_t back)
{
    uint64_t h = wanted;
    for (int i = 0; i < 3; i++) {
        h *= back;
        h = i < 2 ? h ^ h >> 32 : h;
    }
    return h ^ UINT64_C(0x9E3779B97F4A7C15) ^ 8;
}

static uint64_t open_many(wf_ctx *ctx, bool chosen, size_t count)
{
    uint64_t *bytes = wf_mem_array(ctx, count, sizeof *bytes), back = inverse();
    wf_gguf_text *tokens = wf_mem_array(ctx, count, sizeof *tokens);
    int32_t *kinds = wf_mem_array(ctx, count, sizeof *kinds);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = unmix(chosen ? UINT64_C(0x1234567800000000) | i : i << 40 | i, back);
        tokens[i] = (wf_gguf_text){(const char *)&bytes[i], 8};
        kinds[i] = WF_TOKEN_NORMAL;
    }
    uint64_t start = wf_clock_ns();
    wf_tokenizer_free(from_gguf(ctx, "gpt2", "gpt-2", tokens, kinds, count));
    uint64_t took = wf_clock_ns() - start;
    wf_mem_free(ctx, bytes);
    wf_mem_free(ctx, tokens);
    wf_mem_free(ctx, kinds);
    return took;
}

static void test_collisions(void **state)
{
    wf_ctx *ctx = *state;
    const size_t count = 50000;
    uint64_t usual = open_many(ctx, false, count), chosen = open_many(ctx, true, count);
    print_message("%.0f ms, and %.0f ms for tokens that were chosen\n", (double)usual * 1e-6,
                  (double)chosen * 1e-6);
    assert_true(chosen < 10 * usual + 500000000);
}

/* ---- Small input, large output ---- */

static wf_status from_steps(wf_ctx *ctx, const char *part, const char *list, const char *step,
                            int times, const char *added, wf_tokenizer **out)
{
    wf_writer w = {.ctx = ctx};
    char *json;
    size_t bytes;
    wf_writer_print(&w, "{\"%s\": {\"type\": \"Sequence\", \"%s\": [", part, list);
    for (int i = 0; i < times; i++)
        wf_writer_print(&w, "%s%s", i ? ", " : "", step);
    wf_writer_print(&w,
                    "]}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"]\": 2, "
                    "\"\\n\": 3}, \"merges\": []}, "
                    "\"added_tokens\": [%s]}",
                    added);
    wt_ok(ctx, wf_writer_take(&w, &json, &bytes));
    wf_status status = wf_tokenizer_from_json(ctx, "steps", json, bytes, NULL, 0, out);
    wf_mem_free(ctx, json);
    return status;
}

static void test_growth(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t;
    int32_t *ids;
    size_t count, bytes;
    char many[1001], step[2][1200], *text;
    static const char *const kinds[] = {"String", "Regex"};
    memset(many, 'a', 1000);
    many[1000] = '\0';
    for (int i = 0; i < 2; i++)
        snprintf(step[i], sizeof step[i],
                 "{\"type\": \"Replace\", \"pattern\": {\"%s\": \"a\"}, \"content\": \"%s\"}",
                 kinds[i], many);
    for (int i = 0; i < 2; i++) {
        wf_status status = from_steps(ctx, "normalizer", "normalizers", step[i], 20, "", &t);
        if (i == 1 && status == WF_ERR_UNSUPPORTED) {
            print_message("skipped: patterns, without PCRE2\n");
            continue;
        }
        wt_ok(ctx, status);
        wt_fails(ctx, wf_tokenizer_encode(t, ctx, "a", 1, 0, &ids, &count), WF_ERR_UNSUPPORTED,
                 "32 times its length");
        wf_tokenizer_free(t);
    }
    wt_fails(ctx,
             from_steps(ctx, "normalizer", "normalizers", step[0], 20,
                        "{\"id\": 4, \"content\": \"aa\", \"normalized\": true}", &t),
             WF_ERR_UNSUPPORTED, "32 times its length");
    wt_ok(ctx, from_steps(ctx, "decoder", "decoders", step[0], 20, "", &t));
    wt_fails(ctx, wf_tokenizer_decode(t, ctx, (const int32_t[]){0}, 1, 0, &text, &bytes),
             WF_ERR_UNSUPPORTED, "more than 1048576 bytes");
    wf_tokenizer_free(t);
    wt_fails(
        ctx,
        from_steps(ctx, "pre_tokenizer", "pretokenizers", "{\"type\": \"ByteLevel\"}", 2, "", &t),
        WF_ERR_UNSUPPORTED, "two pre-tokenizers of type ByteLevel");
}

/* ---- Patterns in Oniguruma's syntax ---- */

/* Returns the text without the pattern's matches, or NULL when the pattern is refused. */
static char *without(wf_ctx *ctx, const char *pattern, const char *from)
{
    char step[300], *text;
    wf_tokenizer *t;
    int32_t *ids;
    size_t count, bytes;
    snprintf(step, sizeof step,
             "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"%s\"}, \"behavior\": "
             "\"Removed\", \"invert\": false}",
             pattern);
    if (from_steps(ctx, "pre_tokenizer", "pretokenizers", step, 1, "", &t) != WF_OK)
        return NULL;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, from, strlen(from), 0, &ids, &count));
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, 0, &text, &bytes));
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
    return text;
}

static void test_patterns(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        const char *pattern, *text, *left;
    } cases[] = {
        {"b$", "ab\nab", "a \n a"},
        {"^a", "ab\nab", "b \n b"},
        {"[[:digit:]\\\\s]", "a\nb", "a b"},
        {"[[:^digit:]]", "a\nb", ""},
        {"[]a]", "ab]", "b"},
        {"[^]a]", "ab]", "a ]"},
        {"[a-c&&[^b]]", "ab", NULL},
        {"[a[b]]", "ab", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *left = without(ctx, cases[i].pattern, cases[i].text);
        if (!left && strstr(wf_ctx_message(ctx), "PCRE2")) {
            print_message("skipped: there is no PCRE2\n");
            return;
        }
        if (cases[i].left) {
            assert_non_null(left);
            assert_string_equal(left, cases[i].left);
        } else {
            assert_null(left);
            assert_non_null(strstr(wf_ctx_message(ctx), "nested sets"));
        }
        wf_text_free(ctx, left);
    }
}

/* ---- Contexts of other threads ---- */

/* A thread uses a tokenizer with its own context: the creator's context may be in use. */
static void test_contexts(void **state)
{
    wf_ctx *ctx = *state, *other;
    char folder[] = "/tmp/weft-test-contexts-XXXXXX", path[100], *text;
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json"};
    wf_tokenizer *t;
    wf_mem_stats before, after;
    int32_t *ids;
    size_t count, bytes;
    assert_non_null(mkdtemp(folder));
    wt_ok(ctx, wf_ctx_new(&other));
    wt_ok(ctx, wf_tokenizer_train(ctx, &(wf_text){"low lower lowest", 16}, 1, NULL, &t));
    wf_ctx_mem_stats(ctx, &before);
    wt_ok(other, wf_tokenizer_encode(t, other, "lower", 5, 0, &ids, &count));
    wt_ok(other, wf_tokenizer_decode(t, other, ids, count, 0, &text, &bytes));
    wt_ok(other, wf_tokenizer_save(t, other, folder));
    wf_ctx_fail_allocation(other, 2);
    wt_fails(other, wf_tokenizer_save(t, other, folder), WF_ERR_MEMORY, "out of memory");
    wf_ctx_mem_stats(ctx, &after);
    assert_int_equal(after.calls, before.calls);
    wf_text_free(other, text);
    wf_ids_free(other, ids);
    wf_ctx_free(other);
    wf_tokenizer_free(t);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(remove(path), 0);
    }
    assert_int_equal(remove(folder), 0);
}

/* ---- Templates whose cost is not in their nodes ---- */

static void test_template_work(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const bodies[] = {
        "{% set l = range(100000)|list %}{% for i in range(1000) %}{% if l == l %}{% endif %}",
        "{% set l = range(100000)|list %}{% for i in range(1000) %}{% if [l] < [l] %}{% endif %}",
        "{% set l = range(100000)|list %}{% for i in range(1000) %}{% if l|sum %}{% endif %}",
        "{% set l = range(100000)|list %}{% for i in range(1000) %}{% if l|max %}{% endif %}",
        "{% set s = 'a' * 5000000 %}{% set d = {s: 1} %}{% for i in range(1000) %}{% if d[s] %}{% "
        "endif %}",
        "{% set s = 'a' * 5000000 %}{% set t = s ~ 'b' %}{% set s = s ~ 'c' %}"
        "{% for i in range(1000) %}{% if s == t %}{% endif %}",
    };
    wf_arena arena;
    wf_json_node *nothing;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_json_parse(&arena, "nothing", "{}", 2, &nothing));
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[400];
        wf_template *t;
        wf_rendered out;
        snprintf(text, sizeof text, "%s{%% endfor %%}", bodies[i]);
        wt_ok(ctx, wf_template_new(ctx, "template", text, strlen(text), &t));
        wt_fails(ctx, wf_template_render(t, ctx, nothing, NULL, &out), WF_ERR_FORMAT,
                 "more than 10000000 steps");
        wf_template_free(t);
    }
    wf_arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_parts_of_characters),
        wt_test(test_control_bytes),
        wt_test(test_collisions),
        wt_test(test_growth),
        wt_test(test_patterns),
        wt_test(test_contexts),
        wt_test(test_template_work),
    };
    return cmocka_run_group_tests_name("text_hostile", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* test_tokenizer_models.c - WordPiece and Unigram: small tokenizers, long words, malicious rules,
 * and writing in both formats. tests/oracle/pieces.py compares them with the package tokenizers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/ctx.h"
#include "base/mem.h"
#include "base/sanitize.h"
#include "base/writer.h"
#include "support.h"
#include "text/base64.h"
#include "text/charsmap.h"
#include "text/pre.h"
#include "text/stream.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static wf_tokenizer *from_json(wf_ctx *ctx, const char *json)
{
    wf_tokenizer *t;
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "small.json", json, strlen(json), NULL, 0, &t));
    return t;
}

static void expect_ids(wf_ctx *ctx, const wf_tokenizer *t, const char *text, uint32_t flags,
                       const int32_t *want, size_t count)
{
    int32_t *ids;
    size_t n;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, strlen(text), flags, &ids, &n));
    assert_int_equal(n, count);
    assert_memory_equal(ids, want, count * sizeof *ids);
    wf_ids_free(ctx, ids);
}

#define IDS(...) \
    (const int32_t[]){__VA_ARGS__}, sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t)

/* Decodes at once and token by token; both must give this text. */
static void expect_text(wf_ctx *ctx, const wf_tokenizer *t, const int32_t *ids, size_t count,
                        const char *want)
{
    char *text;
    size_t bytes, at = 0;
    wf_decoder *d;
    wt_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, 0, &text, &bytes));
    assert_string_equal(text, want);
    wt_ok(ctx, wf_decoder_new(t, ctx, 0, &d));
    for (size_t i = 0; i <= count; i++) {
        const char *piece;
        size_t length;
        wt_ok(ctx, i < count ? wf_decoder_next(d, ids[i], &piece, &length)
                             : wf_decoder_end(d, &piece, &length));
        assert_memory_equal(piece, text + at, length);
        at += length;
    }
    assert_int_equal(at, bytes);
    wf_decoder_free(d);
    wf_text_free(ctx, text);
}

static void refuse(wf_ctx *ctx, const char *json, wf_status status, const char *part)
{
    wf_tokenizer *t;
    wt_fails(ctx, wf_tokenizer_from_json(ctx, "bad.json", json, strlen(json), NULL, 0, &t), status,
             part);
    assert_null(t);
}

/* ---- WordPiece ---- */

#define SPECIAL(id, text)                                             \
    "{\"id\": " id ", \"content\": \"" text "\", \"special\": true, " \
    "\"normalized\": false}"
#define WORDPIECE_VOCAB                                                                              \
    "\"vocab\": {\"[PAD]\": 0, \"[UNK]\": 1, \"[CLS]\": 2, \"[SEP]\": 3, \"un\": 4, \"##aff\": 5, "  \
    "\"##able\": 6, \"able\": 7, \"'\": 8, \"s\": 9, \"!\": 10, \"##s\": 11, \"\xE5\x8C\x97\": 12, " \
    "\"unaff\": 13}"
#define WORDPIECE(longest)                                                                                           \
    "{\"added_tokens\": [" SPECIAL("0", "[PAD]") ", " SPECIAL("1", "[UNK]") ", " SPECIAL("2", "[CLS]") ", " SPECIAL( \
        "3",                                                                                                         \
        "[SEP]") "], "                                                                                               \
                 "\"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, "                             \
                 "\"handle_chinese_chars\": true, \"strip_accents\": null, \"lowercase\": true}, "                   \
                 "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, "                                             \
                 "\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"[CLS]\", 2], "                      \
                 "\"sep\": [\"[SEP]\", 3]}, \"decoder\": {\"type\": \"WordPiece\", \"prefix\": \"##\", "             \
                 "\"cleanup\": true}, \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "               \
                 "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": " longest                     \
                 ", " WORDPIECE_VOCAB "}}"

static void test_wordpiece(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = from_json(ctx, WORDPIECE("12"));
    expect_ids(ctx, t,
               "UN\xC3\x81"
               "ff\xC3\xA1"
               "ble",
               WF_TEXT_SPECIAL, IDS(2, 13, 6, 3));
    expect_ids(ctx, t, "able's! un\xE5\x8C\x97un", 0, IDS(7, 8, 9, 10, 4, 12, 4));
    expect_ids(ctx, t, " unable \t\nunx", 0, IDS(4, 6, 1));
    expect_ids(ctx, t, "unssssssssss", 0, IDS(4, 11, 11, 11, 11, 11, 11, 11, 11, 11, 11));
    expect_ids(ctx, t, "unsssssssssss", 0, IDS(1));    /* 13 characters */
    expect_ids(ctx, t, "[CLS]un", 0, IDS(1, 1, 1, 4)); /* text is not a control token */
    expect_ids(ctx, t, "[CLS]un", WF_TEXT_CONTROL, IDS(2, 4));
    expect_text(ctx, t, IDS(2, 13, 6, 10, 7, 8, 9, 3), "unaffable! able ' s");
    expect_text(ctx, t, IDS(6, 6), "##ableable");
    wf_tokenizer_free(t);
}

/* ---- Unigram ---- */

#define UNIGRAM(normalizer, words, rest)                                                             \
    "{\"added_tokens\": [" SPECIAL("0", "<pad>") ", " SPECIAL("1", "</s>") ", " SPECIAL(             \
        "2",                                                                                         \
        "<unk>") "], \"normalizer\": " normalizer ", \"pre_tokenizer\": " words ", "                 \
                 "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", "        \
                 "\"prepend_scheme\": \"always\", \"split\": true}, "                                \
                 "\"model\": {\"type\": \"Unigram\", \"unk_id\": 2, " rest                           \
                 ", \"vocab\": [[\"<pad>\", 0.0], "                                                  \
                 "[\"</s>\", 0.0], [\"<unk>\", 0.0], [\"a\", -1.0], [\"b\", -1.5], [\"ab\", -2.5], " \
                 "[\"abc\", -3.0], [\"\xE2\x96\x81\", -2.0], [\"\xE2\x96\x81"                        \
                 "a\", -2.5], [\"cd\", -8.0], "                                                      \
                 "[\"<0x78>\", 0.0], [\"<0x79>\", 0.0]]}}"

#define METASPACE                                                   \
    "{\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", " \
    "\"prepend_scheme\": \"always\", \"split\": true}"

static void test_unigram(void **state)
{
    wf_ctx *ctx = *state;
    wf_tokenizer *t = from_json(ctx, UNIGRAM("null", "null", "\"byte_fallback\": false"));
    expect_ids(ctx, t, "ab", 0, IDS(5)); /* a tie of "ab" and "a", "b": the token from the left */
    expect_ids(ctx, t, "aab", 0, IDS(3, 5));
    expect_ids(ctx, t, "abcd", 0, IDS(5, 9)); /* d is unknown: -18 - 3 loses to -2.5 - 8 */
    expect_ids(ctx, t, "xyza", 0, IDS(2, 3)); /* unknown characters fuse */
    expect_ids(ctx, t,
               "a\xF0\x9F\x98\x80"
               "b",
               0, IDS(3, 2, 4));
    expect_ids(ctx, t, "a</s>a", WF_TEXT_CONTROL, IDS(3, 1, 3));
    expect_ids(ctx, t, "a</s>a", 0, IDS(3, 2, 3));
    wf_tokenizer_free(t);
    t = from_json(ctx, UNIGRAM("null", METASPACE, "\"byte_fallback\": true"));
    expect_ids(ctx, t, "a xyb  a", 0, IDS(8, 7, 10, 11, 4, 7, 8));
    expect_ids(ctx, t, "xyz", 0, IDS(7, 2)); /* z has no byte token: none of them is used */
    expect_text(ctx, t, IDS(8, 7, 4, 1, 8), "a b a");
    wf_tokenizer_free(t);
}

/* The best path, without stretches: the definition. */
static size_t viterbi(const wf_unigram *u, const char *s, size_t n, int32_t *ids)
{
    double *score = calloc(n + 1, sizeof *score);
    size_t *from = calloc(n + 1, sizeof *from), count = 0;
    int32_t *id = malloc((n + 1) * sizeof *id);
    memset(id, 0xFF, (n + 1) * sizeof *id);
    for (size_t at = 0; at < n; at++) {
        for (size_t length = 1; length <= 8 && at + length <= n; length++) {
            int32_t token = wf_vocab_find(u->vocab, s + at, length);
            double more = token >= 0 ? u->score[token] : u->least - 10;
            if (token < 0 && length > 1)
                continue;
            if (id[at + length] >= 0 && !(score[at] + more > score[at + length]))
                continue;
            score[at + length] = score[at] + more;
            from[at + length] = at;
            id[at + length] = token >= 0 ? token : u->unknown;
        }
    }
    for (size_t at = n; at > 0; at = from[at])
        if (!(id[at] == u->unknown && count > 0 && ids[count - 1] == u->unknown))
            ids[count++] = id[at];
    for (size_t i = 0; i < count / 2; i++) {
        int32_t swap = ids[i];
        ids[i] = ids[count - 1 - i];
        ids[count - 1 - i] = swap;
    }
    free(score);
    free(from);
    free(id);
    return count;
}

/* A long word is processed in stretches, with the same result. */
static void test_long_words(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    enum { BYTES = 40000 };
    char *text = malloc(BYTES);
    int32_t *want = malloc(BYTES * sizeof *want), *ids;
    for (int round = 0; round < 6; round++) {
        wf_writer w = {.ctx = ctx};
        size_t n, count, wanted, json_bytes;
        char *json;
        wf_writer_print(
            &w, "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"?\", 0]");
        for (int i = 0; i < 60; i++) {
            char token[9] = {0};
            size_t length = 1 + next_random(&seed) % 8;
            for (size_t k = 0; k < length; k++)
                token[k] = (char)('a' + next_random(&seed) % 5);
            wf_writer_print(&w, ", [\"%s\", -%u.%u]", token, (unsigned)(next_random(&seed) % 9),
                            (unsigned)(next_random(&seed) % 1000));
        }
        wf_writer_print(&w, "]}}");
        wt_ok(ctx, wf_writer_take(&w, &json, &json_bytes));
        wf_tokenizer *t = from_json(ctx, json);
        /* f and g are unknown; with few letters some pairs are in no token. */
        for (n = 0; n < BYTES; n++)
            text[n] = (char)('a' + next_random(&seed) % (round % 2 ? 7 : 6));
        if (round == 5)
            memset(text + 5000, 'g', 20000); /* unknown text across several stretches */
        wanted = viterbi(&t->unigram, text, n, want);
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count));
        assert_int_equal(count, wanted);
        assert_memory_equal(ids, want, count * sizeof *ids);
        wf_ids_free(ctx, ids);
        wf_tokenizer_free(t);
        wf_mem_free(ctx, json);
    }
    free(text);
    free(want);
}

/* ---- Rules of SentencePiece ---- */

static void put_u32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

/* Writes a map that replaces byte c of `from` by that of `to`. Returns its size. */
enum { UNITS = 1024, MAP = 4 + 4 * UNITS + 64 };
static size_t make_map(uint8_t map[MAP], const char *from, const char *to)
{
    size_t text = 0;
    memset(map, 0, MAP);
    put_u32(map, 4 * UNITS);
    put_u32(map + 4, 256u << 10);
    for (uint32_t i = 0; from[i]; i++) {
        uint32_t c = (uint8_t)from[i], at = 256 ^ c, leaf = 512 + i;
        put_u32(map + 4 + 4 * at, c | 256 | (at ^ leaf) << 10);
        put_u32(map + 4 + 4 * leaf, (uint32_t)text | 1u << 31);
        map[4 + 4 * UNITS + text] = (uint8_t)to[i];
        text += 2;
    }
    return 4 + 4 * UNITS + text;
}

static void test_charsmap(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    uint8_t map[MAP];
    const char *text;
    size_t bytes, size = make_map(map, "AB", "ab");
    wf_arena arena;
    wf_charsmap m;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_charsmap_init(&m, &arena, "map", map, size));
    assert_int_equal(wf_charsmap_find(&m, "Bx", 2, true, &text, &bytes), 1);
    assert_int_equal(bytes, 1);
    assert_int_equal(text[0], 'b');
    assert_int_equal(wf_charsmap_find(&m, "x", 1, true, &text, &bytes), 0);
    wt_fails(ctx, wf_charsmap_init(&m, &arena, "map", map, 3), WF_ERR_FORMAT, "damaged");
    wt_fails(ctx, wf_charsmap_init(&m, &arena, "map", map, 4 * UNITS), WF_ERR_FORMAT, "damaged");
    map[size - 2] = 0xFF;
    wt_fails(ctx, wf_charsmap_init(&m, &arena, "map", map, size), WF_ERR_FORMAT, "not UTF-8");

    /* Any units are safe; the sanitizer checks the reads. */
    for (int round = 0; round < 20000; round++) {
        uint8_t wild[4 + 4 * 64 + 8];
        char key[40];
        size_t n = sizeof wild - next_random(&seed) % 8, units = 1 + next_random(&seed) % 64;
        for (size_t i = 0; i < sizeof wild; i++)
            wild[i] = (uint8_t)(next_random(&seed) & (i < 260 ? 0xFF : 0x7F));
        for (size_t i = 0; i < 64; i++) /* mostly plausible: small offsets, labels of the keys */
            put_u32(wild + 4 + 4 * i,
                    (uint32_t)(next_random(&seed) % 64 << 10 | next_random(&seed) % 4 << 8 |
                               (next_random(&seed) % 8 + 1)));
        memset(wild + 4 + 4 * units, 'x', sizeof wild - 4 - 4 * units);
        put_u32(wild, (uint32_t)(4 * units));
        for (size_t i = 0; i < sizeof key; i++)
            key[i] = (char)(next_random(&seed) % 8 + 1);
        uint8_t *exact = malloc(n);
        memcpy(exact, wild, n);
        if (wf_charsmap_init(&m, &arena, "wild", exact, n) == WF_OK) {
            size_t used = wf_charsmap_find(&m, key, sizeof key, round % 2, &text, &bytes);
            assert_true(used <= sizeof key);
            if (used)
                assert_true(text >= m.text && bytes <= m.text_bytes - (size_t)(text - m.text));
        }
        free(exact);
        wf_arena_free(&arena);
        wf_arena_init(&arena, ctx);
    }
    wf_arena_free(&arena);
}

static void test_base64(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    for (size_t n = 0; n < 50; n++) {
        uint8_t bytes[50], back[64];
        char *text;
        size_t length, count;
        for (size_t i = 0; i < n; i++)
            bytes[i] = (uint8_t)next_random(&seed);
        wf_writer w = {.ctx = ctx};
        wf_base64_write(&w, bytes, n);
        wt_ok(ctx, wf_writer_take(&w, &text, &length));
        assert_int_equal(length, (n + 2) / 3 * 4);
        assert_true(wf_base64_decode(text, length, back, &count));
        assert_int_equal(count, n);
        assert_memory_equal(back, bytes, n);
        wf_mem_free(ctx, text);
    }
    static const char *const wrong[] = {"A",    "AAA",   "A===", "AA=A", "AA==AAAA",
                                        "AB==", "AA\n=", "AAA*", "====", "AAB="};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t back[16];
        size_t count;
        assert_false(wf_base64_decode(wrong[i], strlen(wrong[i]), back, &count));
    }
}

/* ---- Writing ---- */

static wf_tokenizer *through_json(wf_ctx *ctx, const wf_tokenizer *t)
{
    char *json, *config;
    size_t bytes, config_bytes;
    wf_tokenizer *again;
    wt_ok(ctx, wf_tokenizer_to_json(t, ctx, &json, &bytes));
    wt_ok(ctx, wf_tokenizer_to_config(t, ctx, NULL, &config, &config_bytes));
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "written", json, bytes, config, config_bytes, &again));
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
    return again;
}

/* With more rows than tokens, as the embedding of a model may have. */
static wf_status to_gguf(wf_ctx *ctx, const wf_tokenizer *t, wf_tokenizer **out)
{
    char path[] = "/tmp/weft-test-tokenizer-XXXXXX";
    wf_gguf_writer *w;
    wf_gguf *f;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wf_status status = wf_tokenizer_to_gguf(t, ctx, w, wf_tokenizer_count(t) + 3);
    if (status == WF_OK) {
        wt_ok(ctx, wf_gguf_write_begin(w));
        wt_ok(ctx, wf_gguf_write_end(w));
    }
    wf_gguf_write_free(w);
    if (status == WF_OK) {
        wt_ok(ctx, wf_gguf_open(ctx, path, &f));
        wt_ok(ctx, wf_tokenizer_from_gguf(f, out));
        wf_gguf_close(f);
    }
    remove(path);
    return status;
}

/* Both tokenizers have equal tokens and encode random texts alike. */
static void expect_same(wf_ctx *ctx, const wf_tokenizer *a, const wf_tokenizer *b, uint64_t seed)
{
    static const char *const parts[] = {
        "a", "b", "c",  "d",  "A",  "un", "aff",      "able",         "'",        "s",     "!",
        " ", " ", "  ", "\n", "\t", "x",  "\xC3\xA9", "\xE5\x8C\x97", "\xC2\xA0", "[CLS]", "</s>"};
    assert_int_equal(wf_tokenizer_count(a), wf_tokenizer_count(b));
    for (int32_t i = 0; i < wf_tokenizer_count(a); i++) {
        assert_int_equal(wf_tokenizer_kind(a, i), wf_tokenizer_kind(b, i));
        assert_string_equal(wf_tokenizer_token(a, i, NULL), wf_tokenizer_token(b, i, NULL));
    }
    for (int round = 0; round < 300; round++) {
        char text[300] = "";
        for (uint64_t n = next_random(&seed) % 20; n > 0; n--)
            strcat(text, parts[next_random(&seed) % (sizeof parts / sizeof *parts)]);
        int32_t *ids;
        size_t count;
        wt_ok(ctx, wf_tokenizer_encode(a, ctx, text, strlen(text), 3, &ids, &count));
        expect_ids(ctx, b, text, 3, ids, count);
        wf_ids_free(ctx, ids);
    }
}

static void check_written(wf_ctx *ctx, const char *json, uint64_t seed)
{
    wf_tokenizer *t = from_json(ctx, json), *same = through_json(ctx, t), *gguf, *back;
    expect_same(ctx, t, same, seed);
    wt_ok(ctx, to_gguf(ctx, t, &gguf));
    expect_same(ctx, t, gguf, seed);
    back = through_json(ctx, gguf);
    expect_same(ctx, t, back, seed);
    wf_tokenizer_free(back);
    wt_ok(ctx, to_gguf(ctx, gguf, &back));
    expect_same(ctx, t, back, seed);
    wf_tokenizer_free(t);
    wf_tokenizer_free(same);
    wf_tokenizer_free(gguf);
    wf_tokenizer_free(back);
}

static void refuse_gguf(wf_ctx *ctx, const char *json, const char *part)
{
    wf_tokenizer *t = from_json(ctx, json), *gguf;
    wt_fails(ctx, to_gguf(ctx, t, &gguf), WF_ERR_UNSUPPORTED, part);
    wf_tokenizer_free(t);
}

#define FRAMED(json) \
    "{\"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"a\", 0], \"sep\": [\"a\", 0]}, " json
#define TINY "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"a\", \"vocab\": {\"a\": 0}}}"
#define SPACES(steps) "{\"type\": \"Sequence\", \"normalizers\": [" steps "]}"
#define SPLIT \
    "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"WhitespaceSplit\"}, " METASPACE "]}"

static void test_written(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    check_written(ctx, WORDPIECE("100"), seed);
    refuse_gguf(ctx, WORDPIECE("12"), "max_input_chars_per_word");
    check_written(ctx,
                  UNIGRAM(SPACES("{\"type\": \"Prepend\", \"prepend\": \"\xE2\x96\x81\"}, "
                                 "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                                 "\"content\": \"\xE2\x96\x81\"}"),
                          "null", "\"byte_fallback\": true"),
                  seed);
    check_written(
        ctx,
        UNIGRAM(SPACES("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \"\\\\A +| +\\\\z\"}, "
                       "\"content\": \"\"}, {\"type\": \"Replace\", \"pattern\": "
                       "{\"Regex\": \" +\"}, \"content\": \"\xE2\x96\x81\"}"),
                "null", "\"byte_fallback\": false"),
        seed);
    refuse_gguf(ctx, UNIGRAM("null", SPLIT, "\"byte_fallback\": false"), "those of SentencePiece");
    refuse_gguf(ctx, UNIGRAM("{\"type\": \"NFKC\"}", METASPACE, "\"byte_fallback\": false"),
                "those of SentencePiece");
    refuse_gguf(ctx, FRAMED("\"normalizer\": {\"type\": \"Lowercase\"}, " TINY), "those of BERT");
    refuse_gguf(ctx,
                "{\"normalizer\": {\"type\": \"BertNormalizer\"}, \"pre_tokenizer\": {\"type\": "
                "\"BertPreTokenizer\"}, " TINY,
                "cls before every text");
}

/* Adds the units of a rule below the unit at `at`, in free units from *used on. Returns the unit of
 * the last byte. */
static uint32_t add_path(uint8_t map[], uint32_t at, const char *key, uint32_t *used)
{
    for (; *key; key++) {
        uint8_t c = (uint8_t)*key, *unit = map + 4 + 4 * at;
        uint32_t value = (uint32_t)unit[0] | (uint32_t)unit[1] << 8 | (uint32_t)unit[2] << 16 |
                         (uint32_t)unit[3] << 24;
        if (value >> 10 == 0) { /* no children yet: a block of 256 units for them */
            value |= (at ^ *used) << 10;
            put_u32(unit, value);
            *used += 256;
        }
        at ^= value >> 10 ^ c;
        if (!map[4 + 4 * at])
            put_u32(map + 4 + 4 * at, c);
    }
    return at;
}

/* Writes rules that make every kind of white space, and U+2581, a space. Returns their size. */
enum { WIDE = 1 << 17 };
static size_t make_spaces(uint8_t map[WIDE])
{
    static const char *const keys[] = {
        "\t",           "\n",           "\v",           "\f",           "\r",
        "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81", "\xE2\x80\x82",
        "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86", "\xE2\x80\x87",
        "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8", "\xE2\x80\xA9",
        "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80", "\xE2\x96\x81"};
    uint32_t used = 256, leaf;
    memset(map, 0, WIDE);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        uint32_t at = add_path(map, 0, keys[i], &used);
        leaf = used++;
        used += 255;
        put_u32(map + 4 + 4 * at, (uint8_t)keys[i][strlen(keys[i]) - 1] | 256u | (at ^ leaf) << 10);
        put_u32(map + 4 + 4 * leaf, 1u << 31);
    }
    put_u32(map, 4 * used);
    memcpy(map + 4 + 4 * used, " ", 2);
    return 4 + 4 * used + 2;
}

/* With rules that make all white space an ordinary space, splitting at white space is what GGUF
 * readers do, in each of the ways to write it. */
static void test_spaces_written(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    static const char *const ways[][2] = {
        {"", SPLIT},
        {", {\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}, {\"type\": "
         "\"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \"\xE2\x96\x81\"}",
         METASPACE}};
    uint8_t *map = malloc(WIDE);
    size_t size = make_spaces(map);
    assert_true(size <= WIDE);
    wf_writer w = {.ctx = ctx};
    char *text;
    wf_base64_write(&w, map, size);
    wt_ok(ctx, wf_writer_take(&w, &text, NULL));
    for (size_t i = 0; i < 2; i++) {
        wf_writer json = {.ctx = ctx};
        char *whole;
        const char *model = UNIGRAM("null", "null", "\"byte_fallback\": false");
        wf_writer_print(&json,
                        "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
                        "\"Precompiled\", \"precompiled_charsmap\": \"%s\"}%s]}, "
                        "\"pre_tokenizer\": %s, %s",
                        text, ways[i][0], ways[i][1], strstr(model, "\"decoder\""));
        wt_ok(ctx, wf_writer_take(&json, &whole, NULL));
        check_written(ctx, whole, seed);
        wf_mem_free(ctx, whole);
    }
    wf_mem_free(ctx, text);
    free(map);
}

/* The rules survive writing. */
static void test_rules_written(void **state)
{
    wf_ctx *ctx = *state;
    uint8_t map[MAP];
    size_t size = make_map(map, "AB\t", "ab ");
    wf_writer w = {.ctx = ctx}, json = {.ctx = ctx};
    char *text, *whole;
    wf_base64_write(&w, map, size);
    wt_ok(ctx, wf_writer_take(&w, &text, NULL));
    wf_writer_print(
        &json,
        "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"%s\"}, "
        "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], "
        "[\"a\", -1], [\"ab\", -1]]}}",
        text);
    wt_ok(ctx, wf_writer_take(&json, &whole, NULL));
    wf_tokenizer *t = from_json(ctx, whole), *again = through_json(ctx, t);
    expect_ids(ctx, t, "AaAB", 0, IDS(1, 1, 2));
    expect_ids(ctx, again, "AaAB", 0, IDS(1, 1, 2));
    assert_int_equal(t->normals[0].map->count, size);
    assert_memory_equal(again->normals[0].map->bytes, map, size);
    wf_tokenizer_free(t);
    wf_tokenizer_free(again);
    wf_mem_free(ctx, text);
    wf_mem_free(ctx, whole);
}

/* ---- Limits and malicious files ---- */

#define MODEL(type, rest) "{\"model\": {\"type\": \"" type "\", " rest "}}"

static void test_hostile(void **state)
{
    wf_ctx *ctx = *state;
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 0"), WF_ERR_FORMAT, "no vocab");
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 0, \"vocab\": {\"a\": 0}"), WF_ERR_FORMAT,
           "no vocab");
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 0, \"vocab\": [\"a\"]"), WF_ERR_FORMAT, "entry 0");
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 0, \"vocab\": [[\"a\", 0, 1]]"), WF_ERR_FORMAT,
           "entry 0");
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 1, \"vocab\": [[\"a\", 0]]"), WF_ERR_FORMAT,
           "unk_id");
    refuse(ctx, MODEL("Unigram", "\"vocab\": [[\"a\", 0]]"), WF_ERR_FORMAT, "unk_id");
    refuse(ctx, MODEL("Unigram", "\"unk_id\": 0, \"vocab\": []"), WF_ERR_FORMAT, "unk_id");
    refuse(ctx, MODEL("WordPiece", "\"vocab\": {\"a\": 0}"), WF_ERR_FORMAT, "unk_token");
    refuse(ctx, MODEL("WordPiece", "\"vocab\": {\"[UNK]\": 0}, \"max_input_chars_per_word\": -1"),
           WF_ERR_FORMAT, "max_input_chars_per_word");
    refuse(ctx,
           "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"?\"}, " TINY,
           WF_ERR_FORMAT, "precompiled_charsmap");
    refuse(
        ctx,
        "{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}, " TINY,
        WF_ERR_FORMAT, "damaged");

    /* A token is limited, so that matching takes linear time. */
    char *json = malloc(4000), letters[1026];
    memset(letters, 'a', 1025);
    letters[1025] = '\0';
    for (int extra = 0; extra < 2; extra++) {
        snprintf(json, 4000,
                 MODEL("Unigram", "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"%s\", 0]]"),
                 letters + 1 - extra);
        if (extra)
            refuse(ctx, json, WF_ERR_UNSUPPORTED, "longer than 1024 bytes");
        else
            wf_tokenizer_free(from_json(ctx, json));
    }
    free(json);
}

/* A word without a boundary has a limit; the same text with one does not. */
static void test_limit(void **state)
{
    wf_ctx *ctx = *state;
    size_t n = (size_t)WF_STRETCH_MOST + 4096, count;
    if (WF_ADDRESS_SANITIZER) {
        print_message("skipped: 32 MiB take long under the sanitizer\n");
        return;
    }
    char *text = malloc(n);
    int32_t *ids;
    memset(text, 'a', n);
    wf_tokenizer *t = from_json(
        ctx, MODEL("Unigram", "\"unk_id\": 0, \"vocab\": [[\"?\", 0], [\"a\", -1], [\"aa\", -1]]"));
    wt_fails(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count), WF_ERR_USAGE, "32 MiB");
    text[n / 2] = 'b';
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count));
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
    free(text);
}

/* BERT's texts are cut at spaces, so a stream needs little memory and gives the same ids. */
static void test_stream(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    wf_tokenizer *t = from_json(ctx, WORDPIECE("12"));
    assert_int_equal(t->cuts[0], WF_CUT_WORDS);
    enum { BYTES = 300000 };
    char *text = malloc(BYTES);
    static const char letters[] = "unable's! \n\t";
    for (size_t i = 0; i < BYTES; i++)
        text[i] = letters[next_random(&seed) % (sizeof letters - 1)];
    int32_t *want;
    const int32_t *ids;
    size_t wanted, count, at = 0;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, BYTES, WF_TEXT_SPECIAL, &want, &wanted));
    wf_stream *s;
    wt_ok(ctx, wf_stream_new(t, ctx, WF_TEXT_SPECIAL, &s));
    for (size_t i = 0; i <= BYTES; i += 1000) {
        wt_ok(ctx, i < BYTES ? wf_stream_feed(s, text + i, 1000, &ids, &count)
                             : wf_stream_end(s, &ids, &count));
        assert_true(count <= wanted - at);
        assert_memory_equal(ids, want + at, count * sizeof *ids);
        at += count;
    }
    assert_int_equal(at, wanted);
    wf_stream_free(s);
    wf_ids_free(ctx, want);
    wf_tokenizer_free(t);
    free(text);
}

/* Every allocation fails in turn; nothing leaks. */
static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const files[] = {
        WORDPIECE("12"),
        UNIGRAM(SPACES("{\"type\": \"NFKC\"}"), METASPACE, "\"byte_fallback\": true")};
    for (size_t i = 0; i < 2; i++) {
        wf_status status = WF_ERR_MEMORY;
        for (uint64_t nth = 1; status == WF_ERR_MEMORY && nth < 2000; nth++) {
            wf_tokenizer *t = NULL;
            int32_t *ids = NULL;
            size_t count;
            wf_ctx_fail_allocation(ctx, nth);
            status = wf_tokenizer_from_json(ctx, "f.json", files[i], strlen(files[i]), NULL, 0, &t);
            if (status == WF_OK)
                status =
                    wf_tokenizer_encode(t, ctx, "Un\xC3\xA9 \xEF\xAC\x81 xab", 12, 0, &ids, &count);
            wf_ctx_fail_allocation(ctx, 0);
            wf_ids_free(ctx, ids);
            wf_tokenizer_free(t);
        }
        wt_ok(ctx, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_wordpiece),     wt_test(test_unigram),        wt_test(test_long_words),
        wt_test(test_charsmap),      wt_test(test_base64),         wt_test(test_written),
        wt_test(test_rules_written), wt_test(test_spaces_written), wt_test(test_hostile),
        wt_test(test_limit),         wt_test(test_stream),         wt_test(test_faults),
    };
    return cmocka_run_group_tests_name("tokenizer_models", tests, NULL, NULL);
}

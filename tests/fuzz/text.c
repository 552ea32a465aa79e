/* SPDX-License-Identifier: MIT */
/*
 * text.c - arbitrary bytes through tokenizers built once: byte-level ones with each handwritten
 * splitter and one with a pattern, and SentencePiece ones from tokenizer.json and GGUF. The first
 * byte of an input selects one.
 */
#include "fuzz_text.h"

#include "base/mem.h"
#include "base/writer.h"
#include "text/split.h"

enum { GPT2, LLAMA3, QWEN2, NFC, DIGITS, PIECES, SCORES, KINDS };

static wf_ctx *maker; /* owns the tokenizers */
static wf_tokenizer *tokenizers[KINDS];

static void forget(void)
{
    for (int i = 0; i < KINDS; i++)
        wf_tokenizer_free(tokenizers[i]);
    wf_ctx_free(maker);
}

static const char added[] =
    "\"added_tokens\": [{\"id\": 0, \"content\": \"<|end|>\", \"special\": true}, {\"id\": 1, "
    "\"content\": \"[x]\", \"special\": false, \"normalized\": false}, {\"id\": 2, \"content\": "
    "\"<s>\", \"special\": true, \"lstrip\": true, \"rstrip\": true}], \"post_processor\": "
    "{\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"<s>\"}}, "
    "{\"Sequence\": {\"id\": \"A\"}}], \"special_tokens\": {\"<s>\": {\"ids\": [2]}}}, ";

/* Merges as in JSON: \u0120 is a space in byte-level vocabularies. */
static const char *const merges[] = {"a a",
                                     "aa aa",
                                     "l o",
                                     "lo w",
                                     "\\u0120 \\u0120",
                                     "\\u0120 lo",
                                     "! !",
                                     "\\u00c3 ©",
                                     "\\u010a \\u010a",
                                     "1 2",
                                     "12 3",
                                     "' s",
                                     "< |",
                                     "<| e",
                                     "<|e n",
                                     "<|en d",
                                     "| >",
                                     "<|end |>",
                                     "\\u00e4 \\u00bd",
                                     NULL};
static const char *const piece_merges[] = {
    "a a", "aa aa", "l o", "lo w", "\\u2581 low", "\\u2581 \\u2581", "< s", "<s >", NULL};

static void print_string(wf_writer *w, const char *s)
{
    for (; *s; s++)
        wf_writer_print(w, *s == '\\' || *s == '"' ? "\\%c" : "%c", *s);
}

/* The vocabulary: three added tokens, bytes or characters, then the results of the merges. */
static void print_model(wf_writer *w, bool letters, const char *const *merge)
{
    int id = 3;
    wf_writer_print(w, "\"model\": {\"type\": \"BPE\", %s\"vocab\": {",
                    letters ? "" : "\"byte_fallback\": true, \"unk_token\": \"<|end|>\", ");
    for (int b = 0; b < 256; b++) {
        bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
        int c = plain ? b : b <= 0x20 ? 0x100 + b : b <= 0xA0 ? 0x121 + b - 0x7F : 0x143;
        wf_writer_print(w, letters ? "\"\\u%04x\": %d, " : "\"<0x%02X>\": %d, ",
                        (unsigned)(letters ? c : b), id++);
    }
    for (const char *c = letters ? "" : "aelow <>s'1"; *c; c++)
        wf_writer_print(w, "\"%c\": %d, ", *c, id++);
    wf_writer_print(w, "\"%s\": %d", letters ? "never" : "\\u2581", id++);
    for (int i = 0; merge[i]; i++) {
        const char *space = strchr(merge[i], ' ');
        /* These two merges produce added tokens. */
        if (strcmp(merge[i], "<s >") && strcmp(merge[i], "<|end |>"))
            wf_writer_print(w, ", \"%.*s%s\": %d", (int)(space - merge[i]), merge[i], space + 1,
                            id++);
        else
            wf_writer_print(w, ", \"%.*s%s\": %d", (int)(space - merge[i]), merge[i], space + 1,
                            letters ? 0 : 2);
    }
    wf_writer_print(w, "}, \"merges\": [");
    for (int i = 0; merge[i]; i++)
        wf_writer_print(w, "%s\"%s\"", i ? ", " : "", merge[i]);
    wf_writer_print(w, "]}}");
}

static wf_tokenizer *take(wf_writer *w)
{
    char *json;
    size_t bytes;
    wf_tokenizer *t;
    fuzz_check(wf_writer_take(w, &json, &bytes) == WF_OK);
    wf_status status = wf_tokenizer_from_json(maker, "made", json, bytes, NULL, 0, &t);
    if (status != WF_OK)
        fprintf(stderr, "%s\n", wf_ctx_message(maker));
    fuzz_check(status == WF_OK);
    wf_mem_free(maker, json);
    return t;
}

static wf_tokenizer *make_letters(const char *pattern, bool nfc)
{
    wf_writer w = {.ctx = maker};
    wf_writer_print(&w,
                    "{%s\"normalizer\": %s, \"pre_tokenizer\": {\"type\": \"Sequence\", "
                    "\"pretokenizers\": [{\"type\": \"Split\", \"behavior\": \"Isolated\", "
                    "\"pattern\": {\"Regex\": \"",
                    added, nfc ? "{\"type\": \"NFC\"}" : "null");
    print_string(&w, pattern);
    wf_writer_print(&w, "\"}}, {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                        "\"use_regex\": false}]}, \"decoder\": {\"type\": \"ByteLevel\"}, ");
    print_model(&w, true, merges);
    return take(&w);
}

static wf_tokenizer *make_pieces(void)
{
    wf_writer w = {.ctx = maker};
    wf_writer_print(
        &w,
        "{%s\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", "
        "\"prepend\": \"\\u2581\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
        "\"content\": \"\\u2581\"}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": "
        "[{\"type\": \"Replace\", \"pattern\": {\"String\": \"\\u2581\"}, \"content\": \" \"}, "
        "{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", \"content\": "
        "\" \", \"start\": 1, \"stop\": 0}]}, ",
        added);
    print_model(&w, false, piece_merges);
    return take(&w);
}

/* ---- A GGUF file in memory ---- */

typedef struct {
    uint8_t bytes[16384];
    size_t n;
} blob;

static void put(blob *b, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->bytes[b->n++] = (uint8_t)(number >> 8 * i);
}

static void put_text(blob *b, const char *s)
{
    put(b, strlen(s), 8);
    memcpy(b->bytes + b->n, s, strlen(s));
    b->n += strlen(s);
}

/* A tokenizer with a control token, an unknown token, a user token, all bytes, and a few pieces. */
static wf_tokenizer *make_scores(void)
{
    static const char *const pieces[] = {"\xE2\x96\x81",
                                         "a",
                                         "l",
                                         "o",
                                         "w",
                                         "\xE2\x96\x81l",
                                         "lo",
                                         "low",
                                         "aa",
                                         "aaaa",
                                         "<",
                                         "s",
                                         ">",
                                         "</",
                                         "</s"};
    enum { FIRST = 3, BYTES = 256, COUNT = FIRST + BYTES + sizeof pieces / sizeof *pieces };
    static blob b;
    wf_gguf *f;
    wf_tokenizer *t;
    memcpy(b.bytes, "GGUF", 4);
    b.n = 4;
    put(&b, 3, 4);
    put(&b, 0, 8);
    put(&b, 4, 8);
    put_text(&b, "tokenizer.ggml.model");
    put(&b, WF_GGUF_STRING, 4);
    put_text(&b, "llama");
    put_text(&b, "tokenizer.ggml.tokens");
    put(&b, WF_GGUF_ARRAY, 4);
    put(&b, WF_GGUF_STRING, 4);
    put(&b, COUNT, 8);
    put_text(&b, "<unk>");
    put_text(&b, "</s>");
    put_text(&b, "[x]");
    for (int i = 0; i < BYTES; i++) {
        char byte[8];
        snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)i);
        put_text(&b, byte);
    }
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        put_text(&b, pieces[i]);
    put_text(&b, "tokenizer.ggml.token_type");
    put(&b, WF_GGUF_ARRAY, 4);
    put(&b, WF_GGUF_I32, 4);
    put(&b, COUNT, 8);
    put(&b, WF_TOKEN_UNKNOWN, 4);
    put(&b, WF_TOKEN_CONTROL, 4);
    put(&b, WF_TOKEN_USER, 4);
    for (int i = FIRST; i < COUNT; i++)
        put(&b, i < FIRST + BYTES ? WF_TOKEN_BYTE : WF_TOKEN_NORMAL, 4);
    put_text(&b, "tokenizer.ggml.scores");
    put(&b, WF_GGUF_ARRAY, 4);
    put(&b, WF_GGUF_F32, 4);
    put(&b, COUNT, 8);
    for (int i = 0; i < COUNT; i++) {
        float score = -(float)(i % 7);
        uint32_t bits;
        memcpy(&bits, &score, sizeof bits);
        put(&b, bits, 4);
    }
    wf_status status = wf_gguf_read(maker, "made", b.bytes, b.n, &f);
    fuzz_check(status == WF_OK && wf_tokenizer_from_gguf(f, &t) == WF_OK);
    wf_gguf_close(f);
    return t;
}

static void make(void)
{
    fuzz_check(wf_ctx_new(&maker) == WF_OK && atexit(forget) == 0);
    tokenizers[GPT2] = make_letters(wf_split_gpt2, false);
    tokenizers[LLAMA3] = make_letters(wf_split_llama3, false);
    tokenizers[QWEN2] = make_letters(wf_split_qwen2, false);
    tokenizers[NFC] = make_letters(wf_split_qwen2, true);
#if defined(WEFT_PCRE2)
    tokenizers[DIGITS] = make_letters("[0-9]{1,3}|\\s+$|\\p{P}+(?!\\p{Lu})", false);
#else
    tokenizers[DIGITS] = make_letters(wf_split_llama3, false);
#endif
    tokenizers[PIECES] = make_pieces();
    tokenizers[SCORES] = make_scores();
}

/* ---- Properties ---- */

/* Replaces invalid UTF-8 by U+FFFD. Caller frees. */
static char *repaired(const char *text, size_t n, size_t *bytes)
{
    char *out = malloc(3 * n + 1);
    size_t length, at = 0;
    fuzz_check(out != NULL);
    for (size_t i = 0; i < n; i += length) {
        bool whole = wf_utf8_look(text + i, n - i, &length) == WF_UTF8_WHOLE;
        memcpy(out + at, whole ? text + i : WF_UTF8_REPLACEMENT, whole ? length : 3);
        at += whole ? length : 3;
    }
    *bytes = at;
    return out;
}

static bool contains(const char *text, size_t n, const char *part)
{
    size_t length = strlen(part);
    for (size_t i = 0; i + length <= n; i++)
        if (memcmp(text + i, part, length) == 0)
            return true;
    return false;
}

/* Decoding returns the encoded text. */
static void check_round_trip(wf_ctx *ctx, int which, const char *text, size_t n)
{
    const wf_tokenizer *t = tokenizers[which];
    int32_t *ids;
    size_t count, bytes, wanted;
    char *back;
    if (which == NFC || ((which == PIECES || which == SCORES) && contains(text, n, "\xE2\x96\x81")))
        return; /* the tokenizer changes some characters */
    if (which >= PIECES && contains(text, n, "[x]"))
        return; /* surrounding spaces are dropped */
    if (!fuzz_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count)))
        return;
    if (fuzz_ok(ctx, wf_tokenizer_decode(t, ctx, ids, count, 0, &back, &bytes))) {
        char *want = repaired(text, n, &wanted);
        fuzz_check(bytes == wanted && memcmp(back, want, bytes) == 0);
        free(want);
        wf_text_free(ctx, back);
    }
    wf_ids_free(ctx, ids);
}

/* A text marked as plain throughout has no control tokens; marks on some bytes do not affect the
 * others. */
static void check_marks(wf_ctx *ctx, const wf_tokenizer *t, const char *text, size_t n)
{
    uint8_t *plain = malloc(n + 1);
    int32_t *ids, *other;
    size_t count, other_count;
    fuzz_check(plain != NULL);
    memset(plain, 1, n + 1);
    if (fuzz_ok(ctx, wf_tokenizer_encode_marked(t, ctx, text, plain, n, WF_TEXT_CONTROL, &ids,
                                                &count))) {
        if (fuzz_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &other, &other_count))) {
            fuzz_check(count == other_count && memcmp(ids, other, count * sizeof *ids) == 0);
            wf_ids_free(ctx, other);
        }
        wf_ids_free(ctx, ids);
    }
    for (size_t i = 0; i < n; i++)
        plain[i] = (uint8_t)text[i] & 1;
    if (fuzz_ok(ctx,
                wf_tokenizer_encode_marked(t, ctx, text, plain, n, WF_TEXT_CONTROL, &ids, &count)))
        wf_ids_free(ctx, ids);
    free(plain);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    if (size == 0)
        return;
    int which = data[0] % KINDS;
    const char *text = (const char *)data + 1;
    fuzz_check_text(ctx, tokenizers[which], text, size - 1, 0);
    fuzz_check_text(ctx, tokenizers[which], text, size - 1, data[0] / KINDS % 4);
    check_round_trip(ctx, which, text, size - 1);
    check_marks(ctx, tokenizers[which], text, size - 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!maker)
        make();
    return fuzz_run(run, (fuzz_room){1 << 20, 512}, data, size);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_bpe_train.c - tokenizer training, compared with a trainer that recounts every pair at each
 * step and with the Python package tokenizers. Also covers any number of threads, files that are
 * written and read again, and hostile texts.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/sanitize.h"
#include "program.h"
#include "support.h"
#include "text/normal.h"
#include "text/split.h"
#include "text/token.h"
#include "text/utf8.h"
#include "text/vocab.h"

#if WF_ADDRESS_SANITIZER
#define HOSTILE ((size_t)1 << 20)
#else
#define HOSTILE ((size_t)1 << 22)
#endif
#define LARGE ((size_t)600000) /* bytes; enough for several chunks */
#define CUT ((size_t)1 << 18)  /* a text is cut at the first suitable place from this byte on */

static const char *const split_names[] = {"gpt2", "llama3", "qwen2"};

/* ---- Random texts ---- */

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

/* Random words over few letters, for ties and overlapping pairs, with letters that compose.
 * `broken` adds invalid UTF-8. */
static char *random_text(uint64_t *seed, size_t bytes, bool broken)
{
    static const char *const letters[] = {"a",
                                          "b",
                                          "c",
                                          "A",
                                          "'s",
                                          "e\xCC\x81",
                                          "o",
                                          " ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "1",
                                          "23",
                                          "!",
                                          ".",
                                          "\xE4\xB8\x80",
                                          "\xE3\x80\x82",
                                          "\xCC\x88",
                                          "\xC2\xA0",
                                          "'",
                                          "\xE1\x84\x80",
                                          "\xE1\x85\xA1",
                                          "<",
                                          "\xFF",
                                          "\xE4\xB8",
                                          "\x80"};
    const uint32_t count = sizeof letters / sizeof *letters - (broken ? 0 : 3);
    char *text = malloc(bytes + 8);
    assert_non_null(text);
    size_t n = 0;
    while (n < bytes) {
        uint32_t from = draw(seed, count), width = 1 + draw(seed, 5), run = 1 + draw(seed, 12);
        for (uint32_t i = 0; i < run && n < bytes; i++) {
            const char *letter = letters[(from + draw(seed, width)) % count];
            size_t length = strlen(letter);
            if (n + length > bytes) {
                letter = "x";
                length = 1;
            }
            memcpy(text + n, letter, length);
            n += length;
        }
    }
    return text;
}

/* ---- A slow reference trainer ---- */

#define NAIVE_MOST 400
typedef struct {
    int32_t *id; /* [count] token ids, -1 after each word */
    size_t count;
    char token[NAIVE_MOST][512]; /* in the vocabulary's spelling */
    int32_t tokens;
} naive;

/* Splits the text into words and their bytes into the initial tokens. */
static void naive_words(naive *n, const char *split, const char *text, size_t bytes)
{
    const char *pattern = strcmp(split, "gpt2") == 0     ? wf_split_gpt2
                          : strcmp(split, "llama3") == 0 ? wf_split_llama3
                                                         : wf_split_qwen2;
    const wf_split_style *style = wf_split_known(pattern, strlen(pattern));
    int32_t letter[256];
    strcpy(n->token[0], "<|endoftext|>");
    n->tokens = 1;
    for (uint32_t c = 0; c < 0x200; c++)
        if (wf_letter_byte(c) >= 0) {
            letter[wf_letter_byte(c)] = n->tokens;
            n->token[n->tokens][wf_utf8_encode(c, n->token[n->tokens])] = '\0';
            n->tokens++;
        }
    n->id = malloc((2 * bytes + 1) * sizeof *n->id);
    assert_non_null(n->id);
    n->count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = wf_split_next(style, text + at, bytes - at);
        for (size_t i = 0; i < length; i++)
            n->id[n->count++] = letter[(uint8_t)text[at + i]];
        n->id[n->count++] = -1;
    }
}

/* Counts all pairs and merges the most frequent. Returns false when no pair reaches the minimum. */
static bool naive_step(naive *n, int64_t minimum)
{
    static int64_t seen[NAIVE_MOST][NAIVE_MOST];
    int32_t left = 0, right = 0;
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i + 1 < n->count; i++)
        if (n->id[i] >= 0 && n->id[i + 1] >= 0)
            seen[n->id[i]][n->id[i + 1]]++;
    for (int32_t a = 0; a < n->tokens; a++)
        for (int32_t b = 0; b < n->tokens; b++)
            if (seen[a][b] > seen[left][right]) {
                left = a;
                right = b;
            }
    if (seen[left][right] < minimum || seen[left][right] == 0)
        return false;
    size_t first = strlen(n->token[left]), second = strlen(n->token[right]);
    assert_true(first + second < sizeof n->token[0]);
    memcpy(n->token[n->tokens], n->token[left], first);
    memcpy(n->token[n->tokens] + first, n->token[right], second + 1);
    size_t to = 0;
    for (size_t i = 0; i < n->count; i++) {
        bool pair = n->id[i] == left && i + 1 < n->count && n->id[i + 1] == right;
        n->id[to++] = pair ? n->tokens : n->id[i];
        i += pair;
    }
    n->count = to;
    n->tokens++;
    return true;
}

/* Expects the same vocabulary as the reference, and the whole text to encode to the reference's
 * tokens. */
static void compare_naive(wf_ctx *ctx, const char *split, const char *text, size_t bytes,
                          int32_t vocab, int64_t minimum)
{
    static naive n;
    wf_marked normal = {0};
    size_t count;
    int32_t *ids;
    if (strcmp(split, "qwen2") == 0)
        wt_ok(ctx, wf_form_run(ctx, WF_FORM_COMPOSED, (wf_marked){.text = text, .bytes = bytes},
                               &normal));
    naive_words(&n, split, normal.text ? normal.text : text, normal.text ? normal.bytes : bytes);
    while (n.tokens < vocab && naive_step(&n, minimum))
        continue;

    wf_tokenizer *t;
    const wf_bpe_options options = {
        .vocab = vocab, .split = split, .minimum = minimum, .threads = 2};
    wt_ok(ctx, wf_tokenizer_train(ctx, &(wf_text){text, bytes}, 1, &options, &t));
    assert_int_equal(wf_tokenizer_count(t), n.tokens);
    for (int32_t i = 0; i < n.tokens; i++)
        assert_string_equal(wf_tokenizer_token(t, i, NULL), n.token[i]);
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, bytes, 0, &ids, &count));
    size_t at = 0;
    for (size_t i = 0; i < n.count; i++)
        if (n.id[i] >= 0) {
            assert_true(at < count);
            assert_int_equal(ids[at++], n.id[i]);
        }
    assert_int_equal(at, count);
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
    wf_mem_free(ctx, (void *)normal.text);
    free(n.id);
}

/* The fast trainer learns the vocabulary of the reference trainer on random texts. */
static void test_naive(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    for (int i = 0; i < wt_cases(60); i++) {
        size_t bytes = 1 + draw(&seed, 1500);
        char *text = random_text(&seed, bytes, false);
        compare_naive(ctx, split_names[i % 3], text, bytes, 257 + (int32_t)draw(&seed, 90),
                      1 + (int64_t)draw(&seed, 3));
        free(text);
    }
}

/* Cutting a text into chunks for threads has no effect: the reference trainer does not cut. */
static void test_cuts(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    for (int i = 0; i < 3; i++) {
        char *text = random_text(&seed, LARGE, false);
        compare_naive(ctx, split_names[i], text, LARGE, 257 + 40, 2);
        free(text);
    }
}

/* Learns every possible merge. The text is uniform up to the cut and random around it. */
static void test_cut_places(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    for (int i = 0; i < wt_cases(30); i++) {
        size_t plain = CUT - draw(&seed, 60), rest = 100 + draw(&seed, 100);
        char *text = malloc(plain + rest), *end = random_text(&seed, rest, false);
        assert_non_null(text);
        for (size_t j = 0; j < plain; j++)
            text[j] = (plain - j) % 3 ? 'x' : ' ';
        memcpy(text + plain, end, rest);
        compare_naive(ctx, split_names[i % 3], text, plain + rest, NAIVE_MOST, 1);
        free(text);
        free(end);
    }
}

/* ---- Threads, files ---- */

static char *trained_json(wf_ctx *ctx, const wf_text *texts, size_t count,
                          const wf_bpe_options *options, size_t *bytes)
{
    wf_tokenizer *t;
    char *json;
    wt_ok(ctx, wf_tokenizer_train(ctx, texts, count, options, &t));
    wt_ok(ctx, wf_tokenizer_to_json(t, ctx, &json, bytes));
    wf_tokenizer_free(t);
    return json;
}

/* The trained tokenizer must not depend on the number of threads. */
static void test_threads(void **state)
{
    wf_ctx *ctx = *state;
    static const int threads[] = {1, 2, 7, 0};
    uint64_t seed = wt_seed();
    char *a = random_text(&seed, 2 * LARGE, true), *b = random_text(&seed, 1000, true);
    const wf_text texts[] = {{a, 2 * LARGE}, {NULL, 0}, {b, 1000}};
    for (int s = 0; s < 3; s++) {
        char *first = NULL;
        size_t first_bytes = 0;
        for (int i = 0; i < 4; i++) {
            size_t bytes;
            char *json = trained_json(
                ctx, texts, 3,
                &(wf_bpe_options){.vocab = 600, .split = split_names[s], .threads = threads[i]},
                &bytes);
            if (first) {
                assert_int_equal(bytes, first_bytes);
                assert_memory_equal(json, first, bytes);
                wf_mem_free(ctx, json);
            } else {
                first = json;
                first_bytes = bytes;
            }
        }
        wf_mem_free(ctx, first);
    }
    free(a);
    free(b);
}

/* Expects two tokenizers to have the same tokens and to encode random texts to the same ids. */
static void expect_same(wf_ctx *ctx, const wf_tokenizer *a, const wf_tokenizer *b, uint64_t *seed)
{
    assert_int_equal(wf_tokenizer_count(a), wf_tokenizer_count(b));
    for (int which = WF_SPECIAL_BOS; which <= WF_SPECIAL_PAD; which++)
        assert_int_equal(wf_tokenizer_special(a, (wf_special)which),
                         wf_tokenizer_special(b, (wf_special)which));
    for (int32_t i = 0; i < wf_tokenizer_count(a); i++) {
        assert_string_equal(wf_tokenizer_token(a, i, NULL), wf_tokenizer_token(b, i, NULL));
        assert_int_equal(wf_tokenizer_kind(a, i), wf_tokenizer_kind(b, i));
        assert_int_equal(wf_tokenizer_ends(a, i), wf_tokenizer_ends(b, i));
    }
    for (int i = 0; i < 50; i++) {
        int32_t *x, *y;
        size_t nx, ny, bytes = 1 + draw(seed, 300);
        uint32_t flags = draw(seed, 4);
        char *text = random_text(seed, bytes, true);
        wt_ok(ctx, wf_tokenizer_encode(a, ctx, text, bytes, flags, &x, &nx));
        wt_ok(ctx, wf_tokenizer_encode(b, ctx, text, bytes, flags, &y, &ny));
        assert_int_equal(nx, ny);
        assert_memory_equal(x, y, nx * sizeof *x);
        wf_ids_free(ctx, x);
        wf_ids_free(ctx, y);
        free(text);
    }
}

static void write_gguf(wf_ctx *ctx, const wf_tokenizer *t, const char *path)
{
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_tokenizer_to_gguf(t, ctx, w, wf_tokenizer_count(t)));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* A trained tokenizer written to tokenizer.json or GGUF and read again encodes the same. */
static void test_files(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const special[] = {"<|end of text|>", "<|im_start|>", "\xE4\xB8\x80!"};
    static const char *const pre[] = {"gpt-2", "llama-bpe", "qwen2"};
    uint64_t seed = wt_seed();
    wt_scratch scratch;
    wt_scratch_make(&scratch);
    char *text = random_text(&seed, 20000, true);
    for (int i = 0; i < 3; i++) {
        wf_tokenizer *t, *again;
        const wf_bpe_options options = {
            .vocab = 500, .split = split_names[i], .special = special, .specials = 3};
        wt_ok(ctx, wf_tokenizer_train(ctx, &(wf_text){text, 20000}, 1, &options, &t));
        assert_int_equal(wf_tokenizer_count(t), 500);
        assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_BOS), 0);
        assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_EOS), 0);
        assert_true(wf_tokenizer_ends(t, 0));
        assert_int_equal(wf_tokenizer_find(t, special[2], strlen(special[2])), 2);
        wt_ok(ctx, wf_tokenizer_save(t, ctx, scratch.folder));
        wt_ok(ctx, wf_tokenizer_open(ctx, scratch.folder, &again));
        expect_same(ctx, t, again, &seed);
        wf_tokenizer_free(again);

        const char *path = wt_path(&scratch, "vocab.gguf");
        wf_gguf *f;
        wf_gguf_text name;
        write_gguf(ctx, t, path);
        wt_ok(ctx, wf_tokenizer_open(ctx, path, &again));
        expect_same(ctx, t, again, &seed);
        wf_tokenizer_free(again);
        wt_ok(ctx, wf_gguf_open(ctx, path, &f));
        wt_ok(ctx, wf_gguf_get_text(f, "tokenizer.ggml.pre", &name));
        assert_int_equal(name.len, strlen(pre[i]));
        assert_memory_equal(name.bytes, pre[i], name.len);
        wf_gguf_close(f);
        wt_fails(ctx, wf_tokenizer_save(t, ctx, "tests/no-such-folder"), WF_ERR_IO,
                 "no-such-folder");
        wf_tokenizer_free(t);
    }
    wt_scratch_remove(&scratch);
    free(text);
}

/* ---- Limits and mistakes ---- */

/* Without text the vocabulary has the bytes and the control token only. */
static void test_empty(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const none[] = {NULL};
    const wf_text blank = {"", 0}, one = {"x", 1};
    wf_tokenizer *t;
    wt_ok(ctx, wf_tokenizer_train(ctx, NULL, 0, NULL, &t));
    assert_int_equal(wf_tokenizer_count(t), 257);
    assert_string_equal(wf_tokenizer_token(t, 0, NULL), "<|endoftext|>");
    assert_string_equal(wf_tokenizer_token(t, 1, NULL), "!");
    assert_string_equal(wf_tokenizer_token(t, 256, NULL), "\xC5\x83"); /* byte 0xAD */
    wf_tokenizer_free(t);
    wt_ok(ctx, wf_tokenizer_train(ctx, &blank, 1, NULL, &t));
    assert_int_equal(wf_tokenizer_count(t), 257);
    wf_tokenizer_free(t);
    wt_ok(ctx,
          wf_tokenizer_train(ctx, &one, 1, &(wf_bpe_options){.special = none, .minimum = 1}, &t));
    assert_int_equal(wf_tokenizer_count(t), 256);
    assert_int_equal(wf_tokenizer_special(t, WF_SPECIAL_BOS), -1);
    wf_tokenizer_free(t);
}

/* A merge that would spell a control token is not learned. The Python package may differ here. */
static void test_control(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const special[] = {"king"};
    static const char text[] = "king\nking\nkings\nking\nkingdom\n";
    const wf_bpe_options options = {.special = special, .specials = 1, .minimum = 1};
    wf_tokenizer *t;
    int32_t *ids;
    size_t count;
    wt_ok(ctx, wf_tokenizer_train(ctx, &(wf_text){text, sizeof text - 1}, 1, &options, &t));
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, "king", 4, 0, &ids, &count));
    assert_int_equal(count, 2);
    assert_true(ids[0] != 0 && ids[1] != 0);
    wf_ids_free(ctx, ids);
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, "king", 4, WF_TEXT_CONTROL, &ids, &count));
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 0);
    wf_ids_free(ctx, ids);
    wf_tokenizer_free(t);
}

static void test_mistakes(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const twice[] = {"<a>", "<b>", "<a>"}, *const byte[] = {"a"};
    static const char *const letter[] = {"\xC4\xA0"}, *const nothing[] = {""},
                             *const broken[] = {"<\xFF>"};
    static char longest[1026];
    const char *const long_one[] = {longest};
    const struct {
        wf_bpe_options options;
        const char *sentence;
    } cases[] = {
        {{.vocab = 256}, "too small"},
        {{.vocab = -1}, "too small"},
        {{.vocab = 258, .special = twice, .specials = 3}, "256 bytes and 3 special tokens"},
        {{.vocab = INT32_MAX}, "too large"},
        {{.special = twice, .specials = 3}, "'<a>' is given twice"},
        {{.special = byte, .specials = 1}, "spelling of a byte"},
        {{.special = letter, .specials = 1}, "spelling of a byte"},
        {{.special = nothing, .specials = 1}, "1 to 1024 bytes"},
        {{.special = broken, .specials = 1}, "valid UTF-8"},
        {{.special = long_one, .specials = 1}, "1 to 1024 bytes"},
        {{.split = "gpt4"}, "use one of: gpt2, llama3, qwen2"},
        {{.threads = -1}, "must be 0 or more"},
        {{.minimum = -1}, "must be 0 or more"},
        {{.special = byte, .specials = -1}, "must be 0 or more"},
    };
    memset(longest, 'x', 1025);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_tokenizer *t;
        wt_fails(ctx, wf_tokenizer_train(ctx, NULL, 0, &cases[i].options, &t), WF_ERR_USAGE,
                 cases[i].sentence);
        assert_null(t);
    }
    const wf_text endless[] = {{"", SIZE_MAX / 2}, {"", SIZE_MAX / 2}};
    wf_tokenizer *t;
    wt_fails(ctx, wf_tokenizer_train(ctx, endless, 2, NULL, &t), WF_ERR_USAGE, "2^63 bytes");
}

static void note(void *user, double done)
{
    double *last = user;
    assert_true(done >= 0 && done <= 1);
    if (done > *last)
        *last = done;
}

/* The progress callback ends at 1. */
static void test_progress(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    double last = 0;
    char *text = random_text(&seed, LARGE, false);
    wf_tokenizer *t;
    wt_ok(ctx,
          wf_tokenizer_train(ctx, &(wf_text){text, LARGE}, 1,
                             &(wf_bpe_options){.vocab = 500, .progress = note, .user = &last}, &t));
    assert_true(last == 1);
    wf_tokenizer_free(t);
    free(text);
}

/* Fails every allocation once, in every thread. */
static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    char *text = random_text(&seed, LARGE, true);
    for (int threads = 1; threads <= 2; threads++) {
        const size_t bytes = threads == 1 ? 30000 : 300000; /* 300000 bytes: two chunks */
        const wf_bpe_options options = {.vocab = 300, .split = "qwen2", .threads = threads};
        wf_tokenizer *t = NULL;
        uint64_t n = 1;
        for (;; n++) {
            uint64_t live = wt_live_blocks(ctx);
            wf_ctx_fail_allocation(ctx, n);
            wf_status status = wf_tokenizer_train(ctx, &(wf_text){text, bytes}, 1, &options, &t);
            wf_ctx_fail_allocation(ctx, 0);
            if (status == WF_OK)
                break;
            assert_int_equal(status, WF_ERR_MEMORY);
            assert_null(t);
            assert_true(strstr(wf_ctx_message(ctx), "out of memory") != NULL);
            assert_int_equal(wt_live_blocks(ctx), live);
        }
        assert_true(n > 20);
        print_message("%d thread(s): %d allocations\n", threads, (int)n - 1);
        wf_tokenizer_free(t);
    }
    free(text);
}

/* ---- Hostile texts ---- */

/* Texts that are slow for a naive trainer: long words, equal pairs, one repeated byte. */
static void fill(char *text, size_t n, int kind, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        text[i] = kind == 0   ? 'a'
                  : kind == 1 ? ' '
                  /* one word in which all pairs are equally frequent */
                  : kind == 2 ? (char)('a' + draw(&seed, 26))
                  : kind == 3 ? (char)('a' + i % 2)
                  : kind == 4 ? '\xFF'
                              : (char)(i % 1000 ? 'a' + i / 1000 % 3 : ' ');
}

static double train_seconds(wf_ctx *ctx, const char *text, size_t n)
{
    wf_tokenizer *t;
    uint64_t start = wf_clock_ns();
    wt_ok(ctx, wf_tokenizer_train(ctx, &(wf_text){text, n}, 1,
                                  &(wf_bpe_options){.vocab = 2000, .threads = 2}, &t));
    double seconds = (double)(wf_clock_ns() - start) * 1e-9;
    for (int32_t i = 0; i < wf_tokenizer_count(t); i++) {
        size_t bytes;
        assert_non_null(wf_tokenizer_token(t, i, &bytes));
        assert_true(bytes <= WF_TOKEN_BYTES_MOST);
    }
    wf_tokenizer_free(t);
    return seconds;
}

/* Training time must be about linear in the text: 8x for 8x the text. A quadratic trainer needs
 * 64x. */
static void test_hostile(void **state)
{
    wf_ctx *ctx = *state;
    char *text = malloc(HOSTILE);
    assert_non_null(text);
    for (int kind = 0; kind < 6; kind++) {
        fill(text, HOSTILE, kind, wt_seed());
        double part = train_seconds(ctx, text, HOSTILE / 8);
        double whole = train_seconds(ctx, text, HOSTILE);
        print_message("kind %d: %.3f s, %.3f s\n", kind, part, whole);
        assert_true(whole < 30 * part + 2);
    }
    free(text);
}

/* ---- The program and the Python package ---- */

static wt_program p;

/* weft tokenize --train gives the same tokenizer for any format and number of threads. */
static void test_program(void **state)
{
    wf_ctx *ctx = *state;
    if (wt_program_make(&p) != 0)
        return;
    wf_tokenizer *a, *b;
    wt_program_ok(&p, "tokenize --train README.md CONTRIBUTING.md -o \"$D\" --vocab 400");
    wt_program_err(&p, "400 tokens from");
    wt_program_ok(&p,
                  "tokenize --train -f README.md CONTRIBUTING.md -o \"$D/v.gguf\" --vocab 400 -q "
                  "--special-token '<|endoftext|>' --min-count 2 -t 3");
    wt_ok(ctx, wf_tokenizer_open(ctx, p.scratch.folder, &a));
    wt_ok(ctx, wf_tokenizer_open(ctx, wt_path(&p.scratch, "v.gguf"), &b));
    uint64_t seed = wt_seed();
    expect_same(ctx, a, b, &seed);
    wf_tokenizer_free(a);
    wf_tokenizer_free(b);
    assert_int_equal(
        wt_program_shell(&p,
                         "cat README.md | \"$W\" tokenize --train - -q -o \"$D\" --overwrite && "
                         "\"$W\" tokenize \"$D\" --ids -q -f README.md | "
                         "\"$W\" tokenize \"$D\" --decode | cmp - README.md"),
        0);
    wt_program_fails(&p, 2, "tokenize --train -o \"$D\" --overwrite", "the texts are missing");
    wt_program_fails(&p, 2, "tokenize --train README.md", "the output is missing");
    /* A link among the files that the program names is not followed, dangling or not. */
    assert_int_equal(
        wt_program_shell(&p, "mkdir \"$D/l\" && ln -s ../new \"$D/l/tokenizer_config.json\""), 0);
    wt_program_fails(&p, 2, "tokenize --train README.md -o \"$D/l\"", "is a link");
    assert_int_equal(
        wt_program_shell(&p, "test ! -e \"$D/new\" && test ! -e \"$D/l/tokenizer.json\""), 0);
    wt_program_fails(&p, 1, "tokenize --train README.md -o \"$D/no\"", "the folder does not exist");
    wt_program_fails(&p, 1, "tokenize --train README.md -o \"$D/no/a.gguf\"",
                     "the folder does not exist");
    wt_program_fails(&p, 1, "tokenize --train no-such-file -o \"$D\" --overwrite", "no-such-file");
    wt_program_fails(&p, 1, "tokenize --train tests -o \"$D\" --overwrite", "tests");
    wt_program_fails(&p, 2, "tokenize -q --train README.md -o \"$D\" --overwrite --vocab 256",
                     "--vocab must be a whole number from 257");
    wt_program_fails(&p, 2, "tokenize -q --train README.md -o \"$D\" --overwrite --vocab 0",
                     "--vocab must be a whole number from 257");
    wt_program_fails(&p, 2, "tokenize -q --train README.md -o \"$D\" --overwrite --split x",
                     "gpt2, llama3, qwen2");
    wt_program_fails(&p, 2, "tokenize README.md --vocab 300", "need --train");
    wt_program_fails(&p, 2, "tokenize README.md CONTRIBUTING.md", "one argument too many");
    wt_scratch_remove(&p.scratch);
}

#if !WF_ADDRESS_SANITIZER
/* Compares with the Python package tokenizers; skipped when it is not installed. */
static void test_oracle(void **state)
{
    (void)state;
    const char *python = getenv("WEFT_TEST_PYTHON"), *program = getenv("WEFT_PROGRAM");
    if (!program) {
        print_message("skipped: WEFT_PROGRAM names no program\n");
        return;
    }
    char command[2000];
    FILE *there = python ? fopen(python, "rb") : NULL;
    if (there)
        fclose(there);
    snprintf(command, sizeof command, "'%s' tests/oracle/bpe_train.py '%s' %s",
             there ? python : "python3", program, getenv("WEFT_SEED") ? getenv("WEFT_SEED") : "");
    int status = system(command);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: there is no Python with the package tokenizers\n");
        return;
    }
    assert_int_equal(status, 0);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_naive),
        wt_test(test_cuts),
        wt_test(test_cut_places),
        wt_test(test_threads),
        wt_test(test_files),
        wt_test(test_empty),
        wt_test(test_control),
        wt_test(test_mistakes),
        wt_test(test_progress),
        wt_test(test_faults),
        wt_test(test_hostile),
        wt_test(test_program),
#if !WF_ADDRESS_SANITIZER /* the Python package takes most of the time */
        cmocka_unit_test(test_oracle),
#endif
    };
    return cmocka_run_group_tests_name("bpe_train", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/* test_prepare.c - from texts and conversations to tokens: the right ids, in the right order, with
 * loss on the right ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/philox.h"
#include "base/writer.h"
#include "scratch.h"
#include "support.h"
#include "text/token.h"
#include "train/index.h"

static wt_scratch scratch;

static int begin(void **state)
{
    wt_scratch_make(&scratch);
    return wt_setup(state);
}

static int end(void **state)
{
    int result = wt_teardown(state);
    wt_scratch_remove(&scratch);
    return result;
}

/* ---- Texts ---- */

/* Words, numbers, spaces and line ends of all kinds, and sometimes invalid UTF-8. */
static char *random_text(wf_ctx *ctx, wf_rng *rng, size_t least, size_t *bytes)
{
    static const char *const parts[] = {
        "the",  " quick", " brown", "fox's", " 1234567", "12", " ",   "  ",      "\n",
        "\n\n", "\r\n",   "\t",     ", ",    "...",      "!?", "\n ", " \n",     "don't",
        "été",  " größe", "中文字", "。",    "\u00a0",   "😀",  "_x",  "e\u0301", "\xff",
    };
    wf_writer w = {.ctx = ctx};
    char *text;
    while (w.len < least) {
        const char *p = parts[wf_rng_below(rng, sizeof parts / sizeof *parts)];
        wf_writer_bytes(&w, p, strlen(p));
    }
    wt_ok(ctx, wf_writer_take(&w, &text, bytes));
    return text;
}

static wf_tokenizer *learn(wf_ctx *ctx, const char *split, int32_t vocab,
                           const char *const *special, int specials)
{
    wf_rng rng;
    size_t bytes;
    wf_tokenizer *t;
    wf_rng_init(&rng, 1, 0); /* a fixed seed */
    char *text = random_text(ctx, &rng, 20000, &bytes);
    const wf_text texts[] = {{text, bytes}};
    const wf_bpe_options o = {
        .vocab = vocab, .split = split, .special = special, .specials = specials, .threads = 1};
    wt_ok(ctx, wf_tokenizer_train(ctx, texts, 1, &o, &t));
    wf_mem_free(ctx, text);
    return t;
}

static void check_cuts(wf_ctx *ctx, const wf_tokenizer *t, wf_rng *rng, int trials, int *found)
{
    wf_encoder *e;
    wt_ok(ctx, wf_encoder_new(t, ctx, &e));
    for (int k = 0; k < trials; k++) {
        size_t n, whole, left, right;
        char *text = random_text(ctx, rng, 40 + wf_rng_below(rng, 200), &n);
        size_t most = wf_rng_below(rng, n), least = wf_rng_below(rng, most + 1),
               at = wf_tokenizer_cut(t, text, least, most);
        assert_true(at == 0 || (at >= least && at <= most));
        int32_t *a, *b, *c;
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &a, &whole));
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, at, 0, &b, &left));
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, text + at, n - at, 0, &c, &right));
        assert_int_equal(left + right, whole);
        assert_memory_equal(a, b, left * sizeof *a);
        assert_memory_equal(a + left, c, right * sizeof *a);
        const int32_t *again; /* encoded again with the cache of earlier texts */
        size_t same;
        wt_ok(ctx, wf_encoder_run(e, text, n, 0, &again, &same));
        assert_int_equal(same, whole);
        assert_memory_equal(a, again, whole * sizeof *a);
        *found += at > 0;
        wf_ids_free(ctx, a);
        wf_ids_free(ctx, b);
        wf_ids_free(ctx, c);
        wf_mem_free(ctx, text);
    }
    wf_encoder_free(e);
}

/* Encoding the parts equals encoding the whole at every position that the tokenizer reports as a
 * cut. */
static void test_cut(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const splits[] = {"gpt2", "llama3", "qwen2"};
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 0);
    for (int i = 0; i < 3; i++) {
        int found = 0;
        wf_tokenizer *t = learn(ctx, splits[i], 600, NULL, 0);
        check_cuts(ctx, t, &rng, 1500, &found);
        assert_true(found > 500);
        wf_tokenizer_free(t);
    }
    static const char *const files[] = {"gpt-2", "starcoder", "deepseek-coder", "llama-spm"};
    for (int i = 0; i < 4; i++) {
        char path[256];
        int found = 0;
        wf_tokenizer *t;
        snprintf(path, sizeof path, "../shared/data/tokenizers/%s.gguf", files[i]);
        if (wf_path_look(path) != WF_PATH_FILE)
            continue;
        wt_ok(ctx, wf_tokenizer_open(ctx, path, &t));
        check_cuts(ctx, t, &rng, 300, &found);
        assert_int_equal(found > 0, i < 2); /* the others report no cuts */
        wf_tokenizer_free(t);
    }
}

/* ---- Reading the shards ---- */

typedef struct {
    int32_t *ids;
    uint8_t *mask;
    int64_t *start;
    int64_t documents;
} split_data;

static split_data read_split(wf_ctx *ctx, const char *folder, wf_split which)
{
    wf_arena arena;
    wf_index x;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_index_read(&arena, folder, &x));
    split_data out = {0};
    int64_t tokens = 0;
    for (size_t i = 0; i < x.split[which].count; i++) {
        out.documents += x.split[which].shard[i].info.documents;
        tokens += x.split[which].shard[i].info.tokens;
    }
    out.ids = malloc((size_t)tokens * sizeof *out.ids + 1);
    out.mask = malloc((size_t)tokens + 1);
    out.start = malloc(((size_t)out.documents + 1) * sizeof *out.start);
    assert_true(out.ids && out.mask && out.start);
    int64_t at = 0, d = 0;
    for (size_t i = 0; i < x.split[which].count; i++) {
        wf_shard s;
        wt_ok(ctx,
              wf_shard_open(ctx, wf_path_join(&arena, folder, x.split[which].shard[i].file), &s));
        wf_shard_copy(&s, 0, s.info.tokens, out.ids + at);
        for (int64_t k = 0; k < s.info.tokens; k++)
            out.mask[at + k] = wf_shard_counts(&s, k);
        for (int64_t k = 0; k < s.info.documents; k++)
            out.start[d++] = at + wf_shard_start(&s, k);
        at += s.info.tokens;
        wf_shard_close(&s);
    }
    out.start[d] = at;
    wf_arena_free(&arena);
    return out;
}

static void free_split(split_data *s)
{
    free(s->ids);
    free(s->mask);
    free(s->start);
}

/* Checks that document d is the tokens of this text and the end token. */
static void is_document(wf_ctx *ctx, const wf_tokenizer *t, const split_data *s, int64_t d,
                        const char *text, size_t bytes)
{
    int32_t *ids;
    size_t n;
    wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, bytes, 0, &ids, &n));
    assert_true(d < s->documents);
    assert_int_equal(s->start[d + 1] - s->start[d], n + 1);
    assert_memory_equal(s->ids + s->start[d], ids, n * sizeof *ids);
    assert_int_equal(s->ids[s->start[d] + (int64_t)n], wf_tokenizer_special(t, WF_SPECIAL_EOS));
    wf_ids_free(ctx, ids);
}

static wf_prepared prepare(wf_ctx *ctx, const char *out, const char *in, wf_prepare_options o)
{
    wf_prepared r;
    o.inputs = &in;
    o.input_count = 1;
    wt_ok(ctx, wf_prepare(ctx, out, &o, &r));
    return r;
}

static void save_tokenizer(wf_ctx *ctx, const wf_tokenizer *t, char folder[600])
{
    snprintf(folder, 600, "%s", wt_path(&scratch, "tokenizer"));
    wt_ok(ctx, wf_path_make_folder(ctx, folder));
    wt_ok(ctx, wf_tokenizer_save(t, ctx, folder));
}

/* ---- Documents ---- */

enum { DOCUMENTS = 700 };

/* JSON lines and separated plain text with the same documents produce the same tokens; a hundredth
 * is held out. */
static void test_documents(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    char folder[600], in[600], out[600], *text[DOCUMENTS];
    size_t bytes[DOCUMENTS];
    wf_tokenizer *t = learn(ctx, "gpt2", 500, NULL, 0);
    save_tokenizer(ctx, t, folder);
    wf_writer lines = {.ctx = ctx}, marked = {.ctx = ctx};
    for (int i = 0; i < DOCUMENTS; i++) {
        text[i] =
            random_text(ctx, &rng, 1 + wf_rng_below(&rng, i % 100 == 7 ? 300000 : 300), &bytes[i]);
        for (size_t k = 0; k < bytes[i]; k++)
            if (text[i][k] == '\xff')
                text[i][k] = '?'; /* JSON must be UTF-8 */
        wf_writer_print(&lines, "{\"text\": \"");
        for (size_t k = 0; k < bytes[i]; k++)
            if ((uint8_t)text[i][k] < ' ')
                wf_writer_print(&lines, "\\u%04x", text[i][k]);
            else
                wf_writer_char(&lines, text[i][k]);
        wf_writer_print(&lines, "\", \"id\": %d}\n%s", i, i % 9 ? "" : " \n");
        wf_writer_bytes(&marked, text[i], bytes[i]);
        wf_writer_print(&marked, "%s<end>", i % 5 ? "" : "<end>");
    }
    for (int form = 0; form < 2; form++) {
        wf_writer *w = form ? &marked : &lines;
        char *all;
        size_t n;
        wt_ok(ctx, wf_writer_take(w, &all, &n));
        snprintf(in, sizeof in, "%s", wt_put(&scratch, form ? "a.txt" : "a.jsonl", all, n));
        snprintf(out, sizeof out, "%s", wt_path(&scratch, form ? "marked" : "lines"));
        wf_mem_free(ctx, all);
        wf_prepared r = prepare(ctx, out, in,
                                (wf_prepare_options){.tokenizer = folder,
                                                     .split_on = form ? "<end>" : NULL,
                                                     .shard_tokens = 20000});
        assert_int_equal(r.train.documents + r.valid.documents >= DOCUMENTS, 1);
        assert_int_equal(r.cuts, 0);
        assert_true(r.train.shards > 3);
        split_data s[2] = {read_split(ctx, out, WF_SPLIT_TRAIN),
                           read_split(ctx, out, WF_SPLIT_VALID)};
        assert_int_equal(s[1].documents, DOCUMENTS / 100);
        /* A long document may continue in another shard, as a document there. */
        int64_t at[2] = {0, 0}, held = 0;
        for (int i = 0; i < DOCUMENTS; i++) {
            int32_t *ids;
            size_t count;
            wt_ok(ctx, wf_tokenizer_encode(t, ctx, text[i], bytes[i], 0, &ids, &count));
            /* Whether it was held out whole: a short document may be a prefix of the held-out
             * one. */
            int which = s[1].start[s[1].documents] - at[1] > (int64_t)count &&
                        memcmp(s[1].ids + at[1], ids, count * sizeof *ids) == 0 &&
                        s[1].ids[at[1] + (int64_t)count] == 0 && i / 100 == held;
            assert_memory_equal(s[which].ids + at[which], ids, count * sizeof *ids);
            at[which] += (int64_t)count;
            assert_int_equal(s[which].ids[at[which]++], 0);
            held += which;
            wf_ids_free(ctx, ids);
        }
        assert_int_equal(held, DOCUMENTS / 100);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(at[k], s[k].start[s[k].documents]);
            free_split(&s[k]);
        }
    }
    for (int i = 0; i < DOCUMENTS; i++)
        wf_mem_free(ctx, text[i]);
    wf_tokenizer_free(t);
}

/* A single text: its end is held out, and no token is lost. A long text has the tokens of one
 * encoding of the whole. */
static void test_tail(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 2);
    char folder[600], in[600], out[600];
    size_t n;
    wf_tokenizer *t = learn(ctx, "llama3", 500, NULL, 0);
    save_tokenizer(ctx, t, folder);
    char *text = random_text(ctx, &rng, 900000, &n);
    snprintf(in, sizeof in, "%s", wt_put(&scratch, "a.txt", text, n));
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "data"));
    wf_prepared r = prepare(ctx, out, in,
                            (wf_prepare_options){.tokenizer = folder, .valid = 0.1, .threads = 3});
    assert_int_equal(r.train.bytes + r.valid.bytes, n);
    assert_in_range(r.valid.bytes, n / 10, n / 10 + 5000);
    assert_int_equal(r.cuts, 0);
    split_data train = read_split(ctx, out, WF_SPLIT_TRAIN),
               valid = read_split(ctx, out, WF_SPLIT_VALID);
    assert_int_equal(train.documents + valid.documents, 2);
    is_document(ctx, t, &train, 0, text, (size_t)r.train.bytes);
    is_document(ctx, t, &valid, 0, text + r.train.bytes, (size_t)r.valid.bytes);
    free_split(&train);
    free_split(&valid);
    wf_mem_free(ctx, text);
    wf_tokenizer_free(t);
}

static void same_files(const char *a, const char *b, const char *name)
{
    char command[1400];
    snprintf(command, sizeof command, "cmp '%s/%s' '%s/%s'", a, name, b, name);
    assert_int_equal(system(command), 0);
}

static void test_threads(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 3);
    char in[600], one[600], four[600], name[32];
    wt_ok(ctx, wf_path_make_folder(ctx, wt_path(&scratch, "in")));
    wt_ok(ctx, wf_path_make_folder(ctx, wt_path(&scratch, "in/more")));
    for (int i = 0; i < 40; i++) {
        size_t n;
        char *text = random_text(ctx, &rng, i == 20 ? 600000 : 1 + wf_rng_below(&rng, 3000), &n);
        for (size_t k = 0; k < n; k++)
            if (text[k] == '\xff')
                text[k] = '?';
        snprintf(name, sizeof name, "in/%s%02d.txt", i % 3 ? "" : "more/", i);
        wt_put(&scratch, name, text, n);
        wf_mem_free(ctx, text);
    }
    wt_put(&scratch, "in/binary", "a\0b", 3);
    wt_put_text(&scratch, "in/latin1",
                "gr\xf6\xdf"
                "e");
    wt_put_text(&scratch, "in/.hidden", "no");
    wt_put_text(&scratch, "in/empty", "");
    snprintf(in, sizeof in, "%s", wt_path(&scratch, "in"));
    snprintf(one, sizeof one, "%s", wt_path(&scratch, "one"));
    snprintf(four, sizeof four, "%s", wt_path(&scratch, "four"));
    wf_prepare_options o = {.threads = 1, .vocab = 400, .shard_tokens = 50000};
    wf_prepared a = prepare(ctx, one, in, o), b;
    o.threads = 4;
    b = prepare(ctx, four, in, o);
    assert_int_equal(a.files, 40);
    assert_int_equal(a.skipped_files, 3);
    assert_true(a.learned && a.vocab == 400 && a.train.shards > 2 && a.valid.tokens > 0);
    assert_int_equal(a.train.shards, b.train.shards);
    same_files(one, four, "data.json");
    same_files(one, four, "tokenizer.json");
    for (int i = 0; i < a.train.shards; i++) {
        snprintf(name, sizeof name, "train-%05d.weft", i);
        same_files(one, four, name);
    }
    same_files(one, four, "valid-00000.weft");
}

/* ---- Conversations ---- */

static const char *const special[] = {
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "</s>",
    "[INST]",
    "[/INST]",
};

static const char lines[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi <|im_end|><|eot_id|><end_of_turn></s>\"}, {\"role\": "
    "\"assistant\", \"content\": \"Hello there!\"}, {\"role\": \"user\", \"content\": \"And?\"}, {\"role\": "
    "\"assistant\", \"content\": \"No more <|im_end|>.\"}]}\n"
    "\n"
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"2+2?\"}, {\"from\": \"gpt\", \"value\": \"4\\n\\n5\"}]}\n";

/* Loss is on the answers and on the token that ends each, with every template. */
static void check_answers(wf_ctx *ctx, const wf_tokenizer *t, const char *out, const char *turn_end)
{
    split_data s = read_split(ctx, out, WF_SPLIT_TRAIN);
    static const char *const answers[][2] = {{"Hello there!", "No more <|im_end|>."},
                                             {"4\n\n5", NULL}};
    assert_int_equal(s.documents, 2);
    for (int64_t d = 0; d < 2; d++) {
        int64_t at = s.start[d];
        for (int k = 0; k < 2 && answers[d][k]; k++) {
            while (at < s.start[d + 1] && !s.mask[at])
                at++;
            int64_t first = at, controls = 0;
            for (; at < s.start[d + 1] && s.mask[at]; at++)
                controls += wf_tokenizer_kind(t, s.ids[at]) == WF_TOKEN_CONTROL;
            char *said, wanted[128];
            size_t bytes;
            wt_ok(ctx, wf_tokenizer_decode(t, ctx, s.ids + first, (size_t)(at - first),
                                           WF_TEXT_CONTROL, &said, &bytes));
            snprintf(wanted, sizeof wanted, "%s%s", answers[d][k], turn_end);
            /* Some templates insert a space. */
            assert_string_equal(said[0] == ' ' ? said + 1 : said, wanted);
            assert_int_equal(controls, 1); /* user text contains no control tokens */
            wf_text_free(ctx, said);
        }
        for (; at < s.start[d + 1]; at++)
            assert_int_equal(s.mask[at], 0);
        assert_int_equal(s.ids[at - 1], wf_tokenizer_special(t, WF_SPECIAL_EOS));
    }
    free_split(&s);
}

static void test_chat(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        const char *template, *end;
    } cases[] = {{NULL, "<|im_end|>"},
                 {"chatml", "<|im_end|>"},
                 {"llama31", "<|eot_id|>"},
                 {"gemma", "<end_of_turn>"},
                 {"qwen25", "<|im_end|>"}};
    char folder[600], in[600], out[600], path[600];
    wf_tokenizer *t = learn(ctx, "llama3", 600, special, sizeof special / sizeof *special);
    save_tokenizer(ctx, t, folder);
    snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "chat.jsonl", lines));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = NULL, name[32];
        size_t bytes;
        snprintf(path, sizeof path, "tests/fixtures/templates/%s.jinja", cases[i].template);
        if (cases[i].template)
            wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
        snprintf(name, sizeof name, "data%zu", i);
        snprintf(out, sizeof out, "%s", wt_path(&scratch, name));
        wf_prepared r =
            prepare(ctx, out, in, (wf_prepare_options){.tokenizer = folder, .chat_template = text});
        assert_true(r.chat);
        assert_int_equal(r.valid.documents, 0); /* too few to hold one out */
        check_answers(ctx, t, out, cases[i].end);
        wf_data *d;
        wt_ok(ctx, wf_data_open(ctx, out, &d));
        assert_non_null(wf_data_chat_template(d));
        assert_int_equal(text ? strcmp(wf_data_chat_template(d), text) : 0, 0);
        wf_data_close(d);
        wf_mem_free(ctx, text);
    }
    wf_tokenizer_free(t);
}

/* The template writes no end-of-turn token: the token after the conversation gets loss if an answer
 * ends there. */
static void test_plain_chat(void **state)
{
    wf_ctx *ctx = *state;
    static const char template[] =
        "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}";
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"Ho\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"Ho\"}, {\"role\": \"user\", \"content\": \"So\"}]}\n";
    static const char *const learned[] = {" Ho\n<|endoftext|>", " Ho\n"};
    char in[600], out[600], folder[600];
    wf_tokenizer *t = learn(ctx, "llama3", 300, special, sizeof special / sizeof *special);
    save_tokenizer(ctx, t, folder);
    snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "chat.jsonl", talk));
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "data"));
    prepare(ctx, out, in, (wf_prepare_options){.tokenizer = folder, .chat_template = template});
    split_data s = read_split(ctx, out, WF_SPLIT_TRAIN);
    assert_int_equal(s.documents, 2);
    for (int64_t d = 0; d < 2; d++) {
        size_t n = 0, bytes;
        int32_t counted[64];
        char *said;
        for (int64_t i = s.start[d]; i < s.start[d + 1]; i++)
            if (s.mask[i])
                counted[n++] = s.ids[i];
        wt_ok(ctx, wf_tokenizer_decode(t, ctx, counted, n, WF_TEXT_CONTROL, &said, &bytes));
        assert_string_equal(said, learned[d]);
        wf_text_free(ctx, said);
    }
    free_split(&s);
    wf_tokenizer_free(t);
}

/* Uses the real model's tokenizer and template; skipped when the model is missing. */
static void test_smollm2(void **state)
{
    wf_ctx *ctx = *state;
    const char *model = getenv("WEFT_TEST_SMOLLM2");
    char in[600], out[600];
    wf_tokenizer *t;
    if (!model || wf_path_look(model) != WF_PATH_FILE)
        skip();
    wt_ok(ctx, wf_tokenizer_open(ctx, model, &t));
    snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "chat.jsonl", lines));
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "data"));
    prepare(ctx, out, in, (wf_prepare_options){.tokenizer = model});
    check_answers(ctx, t, out, "<|im_end|>");
    wf_tokenizer_free(t);
}

static void refuses(wf_ctx *ctx, const char *in, wf_prepare_options o, wf_status status,
                    const char *part)
{
    int before = wt_entries(&scratch);
    char out[600];
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "refused"));
    o.inputs = &in;
    o.input_count = 1;
    wt_fails(ctx, wf_prepare(ctx, out, &o, NULL), status, part);
    assert_int_equal(wt_entries(&scratch), before); /* no file is left */
}

static void test_refused(void **state)
{
    wf_ctx *ctx = *state;
    const wf_prepare_options o = {.vocab = 300};
    static const struct {
        const char *text, *template;
        wf_status status;
        const char *part;
    } bad[] = {
        {"{\"text\": \"a\"}\nnonsense\n", NULL, WF_ERR_FORMAT,
         "line 2 of 'chat.jsonl': it is not valid JSON"},
        {"\n\n{\"txt\": \"a\"}", NULL, WF_ERR_FORMAT,
         "line 3 of 'chat.jsonl': it has no string \"text\""},
        {"{\"text\": 7}", NULL, WF_ERR_FORMAT, "line 1 of 'chat.jsonl': it has no string \"text\""},
        {"[1]", NULL, WF_ERR_FORMAT, "it has no string \"text\""},
        {"{\"messages\": []}", NULL, WF_ERR_FORMAT, "has 0 messages"},
        {"{\"messages\": [{\"role\": 1, \"content\": \"a\"}]}", NULL, WF_ERR_FORMAT,
         "message 1 has no text in role"},
        {"{\"messages\": [7]}", NULL, WF_ERR_FORMAT, "message 1 has no text in role"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", NULL, WF_ERR_USAGE,
         "no conversation has an answer"},
        {"{\"text\": \"\"}", NULL, WF_ERR_USAGE, "all documents are empty"},
        {"{\"text\": \"a\"}\n{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\"}]}", NULL,
         WF_ERR_USAGE, "prepare texts and conversations separately"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"b\"}]}",
         "{{ messages|length }} messages{% for m in messages %}{{ m.content }}{% endfor %}",
         WF_ERR_UNSUPPORTED, "line 1 of 'chat.jsonl': the chat template renders"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}", "{{ 1 +", WF_ERR_FORMAT,
         "template"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}",
         "{{ raise_exception('no') }}", WF_ERR_USAGE, "line 1 of 'chat.jsonl'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char in[600];
        snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "chat.jsonl", bad[i].text));
        wf_prepare_options with = o;
        with.chat_template = bad[i].template;
        /* Messages contain the given path; only its end is constant. */
        const char *part = bad[i].part, *quote = strstr(part, "'chat.jsonl'");
        char wanted[900];
        if (quote)
            snprintf(wanted, sizeof wanted, "%.*s'%s'%s", (int)(quote - part), part, in,
                     quote + strlen("'chat.jsonl'"));
        refuses(ctx, in, with, bad[i].status, quote ? wanted : part);
    }
}

static void test_options(void **state)
{
    wf_ctx *ctx = *state;
    char in[600];
    snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "a.txt", "hello hello hello"));
    refuses(ctx, in, (wf_prepare_options){.format = "csv"}, WF_ERR_USAGE, "unknown format 'csv'");
    refuses(ctx, in, (wf_prepare_options){.split_on = ""}, WF_ERR_USAGE,
            "separator between documents is empty");
    refuses(ctx, in, (wf_prepare_options){.valid = 0.7}, WF_ERR_USAGE, "0 to 0.5");
    refuses(ctx, in, (wf_prepare_options){.vocab = 100}, WF_ERR_USAGE, "too small");
    refuses(ctx, in, (wf_prepare_options){.tokenizer = "nowhere"}, WF_ERR_IO, "nowhere");
    refuses(ctx, "nowhere", (wf_prepare_options){0}, WF_ERR_IO,
            "file or folder 'nowhere' does not exist");
    refuses(ctx, "/dev/null", (wf_prepare_options){0}, WF_ERR_USAGE, "neither a file nor");
    wf_prepared r;
    wt_fails(ctx, wf_prepare(ctx, wt_path(&scratch, "x"), &(wf_prepare_options){0}, &r),
             WF_ERR_USAGE, "no input");
}

static wf_status stop(void *user, const char *what, int64_t done, int64_t total)
{
    (void)user, (void)done, (void)total;
    return strcmp(what, "encoding") == 0 ? WF_ERR_IO : WF_OK;
}

/* Stopped midway, and with every allocation failing in turn: no file is left. */
static void test_stopped(void **state)
{
    wf_ctx *ctx = *state;
    char folder[600], in[600], out[600];
    const char *input = in;
    wf_tokenizer *t = learn(ctx, "gpt2", 300, NULL, 0);
    save_tokenizer(ctx, t, folder);
    wf_tokenizer_free(t);
    snprintf(in, sizeof in, "%s", wt_put_text(&scratch, "a.txt", "hello hello hello\nyou\n"));
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "data"));
    wf_prepare_options o = {
        .inputs = &input, .input_count = 1, .tokenizer = folder, .progress = stop, .threads = 2};
    int entries = wt_entries(&scratch);
    assert_int_equal(wf_prepare(ctx, out, &o, NULL), WF_ERR_IO);
    assert_int_equal(wt_entries(&scratch), entries);
    o.progress = NULL;
    uint64_t blocks = wt_live_blocks(ctx);
    for (uint64_t n = 1;; n += n < 60 ? 1 : 61) {
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_prepare(ctx, out, &o, NULL);
        wf_ctx_fail_allocation(ctx, 0);
        assert_true(wt_live_blocks(ctx) == blocks);
        if (status == WF_OK)
            break;
        assert_int_equal(status, WF_ERR_MEMORY);
        assert_int_equal(wt_entries(&scratch), entries);
    }
    assert_int_equal(wt_entries(&scratch), entries + 1);
}

/* A folder that another process prepared meanwhile is not replaced unless the options allow it. */
typedef struct {
    const wf_prepare_options *o; /* options of the other process */
    const char *out;
} meanwhile;

static wf_status prepare_other(void *user, const char *what, int64_t done, int64_t total)
{
    meanwhile *m = user;
    (void)done, (void)total;
    if (strcmp(what, "learning") == 0 && m->o) {
        wf_ctx *ctx;
        assert_int_equal(wf_ctx_new(&ctx), WF_OK);
        wt_ok(ctx, wf_prepare(ctx, m->out, m->o, NULL));
        wf_ctx_free(ctx);
        m->o = NULL;
    }
    return WF_OK;
}

static void test_two(void **state)
{
    wf_ctx *ctx = *state;
    char a[600], b[600], out[600];
    const char *first = a, *second = b;
    snprintf(a, sizeof a, "%s", wt_put_text(&scratch, "a.txt", "hello hello hello\nyou\n"));
    snprintf(b, sizeof b, "%s", wt_put_text(&scratch, "b.txt", "another text\nand its end\n"));
    snprintf(out, sizeof out, "%s", wt_path(&scratch, "two"));
    const wf_prepare_options other = {.inputs = &second, .input_count = 1, .valid = -1};
    meanwhile m = {.o = &other, .out = out};
    wf_prepare_options o = {
        .inputs = &first, .input_count = 1, .progress = prepare_other, .user = &m};
    wt_fails(ctx, wf_prepare(ctx, out, &o, NULL), WF_ERR_USAGE, "already exists");
    assert_null(m.o);
    wf_data *d;
    wf_data_info info;
    wt_ok(ctx, wf_data_open(ctx, out, &d));
    wf_data_get_info(d, WF_SPLIT_TRAIN, &info);
    assert_int_equal(info.bytes, strlen("another text\nand its end\n"));
    wf_data_close(d);
    int entries = wt_entries(&scratch);
    o.overwrite = true;
    o.valid = 1e-300; /* rounds to no document, without overflow */
    wf_prepared r;
    wt_ok(ctx, wf_prepare(ctx, out, &o, &r));
    assert_int_equal(r.train.bytes, strlen("hello hello hello\nyou\n"));
    assert_int_equal(r.valid.documents, 0);
    assert_int_equal(wt_entries(&scratch), entries);
    assert_int_equal(wf_path_look(wt_path(&scratch, "two/lock")), WF_PATH_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_documents, begin, end),
        cmocka_unit_test_setup_teardown(test_tail, begin, end),
        cmocka_unit_test_setup_teardown(test_threads, begin, end),
        cmocka_unit_test_setup_teardown(test_chat, begin, end),
        cmocka_unit_test_setup_teardown(test_plain_chat, begin, end),
        cmocka_unit_test_setup_teardown(test_smollm2, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
        cmocka_unit_test_setup_teardown(test_two, begin, end),
        cmocka_unit_test_setup_teardown(test_options, begin, end),
        cmocka_unit_test_setup_teardown(test_stopped, begin, end),
    };
    return cmocka_run_group_tests_name("prepare", tests, NULL, NULL);
}

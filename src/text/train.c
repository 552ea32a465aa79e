/* SPDX-License-Identifier: MIT */
/*
 * train.c - trains byte-level BPE tokenizers: counts words, then learns merges.
 *
 * Ids: the special tokens, the 256 bytes, then the merges in the order in which they were learned.
 * The result does not depend on the number of threads.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/thread.h"
#include "text/pre.h"
#include "text/train_merge.h"
#include "text/utf8.h"

#define COUNTING 0.5 /* counting words is this fraction of the progress */

/* Names of pre-tokenizers, and their value of tokenizer.ggml.pre. */
static const struct {
    const char *name, *pre;
} splits[] = {{"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}};

static const char *const default_special[] = {"<|endoftext|>"};

/* ---- Options ---- */

static wf_status find_split(wf_ctx *ctx, const char *name, const wf_pre **out)
{
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (strcmp(splits[i].name, name) == 0) {
            *out = wf_pre_find(splits[i].pre, strlen(splits[i].pre));
            return WF_OK;
        }
    char known[100];
    size_t len = 0;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        wf_text_append(known, sizeof known, &len, "%s%s", i ? ", " : "", splits[i].name);
    return wf_fail(ctx, WF_ERR_USAGE, "unknown split '%.50s'; use one of: %s", name, known);
}

static wf_status check_special(wf_ctx *ctx, const wf_bpe_options *o, int i)
{
    const char *s = o->special[i];
    size_t bytes = strlen(s), length;
    if (bytes == 0 || bytes > WF_ADDED_BYTES_MOST || !wf_utf8_valid(s, bytes))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the special token '%.50s' must be 1 to %d bytes of valid UTF-8", s,
                       WF_ADDED_BYTES_MOST);
    /* It would have the same text as a byte's token. */
    if (wf_letter_byte(wf_utf8_decode(s, &length)) >= 0 && length == bytes)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the special token '%s' is the vocabulary's spelling of a byte; choose "
                       "another",
                       s);
    for (int j = 0; j < i; j++)
        if (strcmp(o->special[j], s) == 0)
            return wf_fail(ctx, WF_ERR_USAGE, "the special token '%.50s' is given twice", s);
    return WF_OK;
}

/* Fills in the defaults and checks every option. */
static wf_status check_options(wf_ctx *ctx, wf_bpe_options *o)
{
    o->split = o->split ? o->split : "gpt2";
    o->vocab = o->vocab ? o->vocab : 8192;
    o->minimum = o->minimum ? o->minimum : 2;
    o->threads = o->threads ? o->threads : wf_threads_available();
    if (!o->special) {
        o->special = default_special;
        o->specials = 1;
    }
    if (o->specials < 0 || o->threads < 0 || o->minimum < 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the numbers of special tokens, of threads and the minimum pair count must "
                       "be 0 or more");
    if (o->vocab > WF_VOCAB_MOST)
        return wf_fail(ctx, WF_ERR_USAGE, "a vocabulary of %d tokens is too large; the limit is %d",
                       (int)o->vocab, WF_VOCAB_MOST);
    if (o->vocab < 256 || o->vocab - 256 < o->specials)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "a vocabulary of %d tokens is too small: it must contain 256 bytes and %d "
                       "special token%s",
                       (int)o->vocab, o->specials, WF_PLURAL(o->specials));
    for (int i = 0; i < o->specials; i++)
        WF_TRY(check_special(ctx, o, i));
    return WF_OK;
}

/* ---- The initial vocabulary ---- */

static wf_status add_specials(wf_tokenizer *t, const wf_bpe_options *o)
{
    t->added = wf_arena_alloc(&t->arena, (size_t)o->specials * sizeof *t->added);
    if (!t->added)
        return WF_ERR_MEMORY;
    for (int i = 0; i < o->specials; i++) {
        WF_TRY(wf_vocab_set(&t->vocab, &t->arena, i, o->special[i], strlen(o->special[i]),
                            WF_TOKEN_CONTROL));
        const wf_vocab_token *token = &t->vocab.token[i];
        t->added[t->adds++] =
            (wf_added_token){.id = i, .text = token->text, .bytes = token->bytes, .control = true};
    }
    if (o->specials > 0)
        t->special[WF_SPECIAL_BOS] = t->special[WF_SPECIAL_EOS] = 0;
    return WF_OK;
}

/* Adds the 256 bytes in the order of their letters. letter[b] is set to the id of byte b. */
static wf_status add_bytes(wf_tokenizer *t, int32_t id, int32_t letter[256])
{
    for (uint32_t c = 0; c <= 0x143; c++) {
        char text[4];
        int byte = wf_letter_byte(c);
        if (byte < 0)
            continue;
        letter[byte] = id;
        WF_TRY(wf_vocab_set(&t->vocab, &t->arena, id++, text, wf_utf8_encode(c, text),
                            WF_TOKEN_NORMAL));
    }
    return WF_OK;
}

/* ---- Training ---- */

/* Maps the progress of a stage to that of the whole. */
typedef struct {
    const wf_bpe_options *options;
    double from, part; /* fractions of the whole */
} stage;

static void tell(void *user, double done)
{
    const stage *s = user;
    s->options->progress(s->options->user, s->from + s->part * done);
}

static wf_status learn(wf_tokenizer *t, const wf_bpe_options *o, wf_counts *counts)
{
    stage s = {o, COUNTING, 1 - COUNTING};
    const wf_learn_options options = {o->minimum, o->progress ? tell : NULL, &s};
    const int32_t first = o->specials + 256;
    int32_t letter[256], most = o->vocab;
    wf_merge_pair *pair = NULL;
    size_t count = 0;
    /* Each merge shortens a word, so a small text cannot fill a large vocabulary. */
    if ((size_t)(most - first) > counts->used)
        most = first + (int32_t)counts->used;
    WF_TRY(wf_vocab_init(&t->vocab, &t->arena, most));
    WF_TRY(add_specials(t, o));
    WF_TRY(add_bytes(t, o->specials, letter));
    wf_status status = wf_merges_learn(t->ctx, counts, letter, &options, &t->vocab, &t->arena,
                                       first, &pair, &count);
    if (status == WF_OK)
        status = wf_merges_init(&t->bpe.merges, &t->arena, count);
    for (size_t i = 0; i < count && status == WF_OK; i++)
        wf_merges_set(&t->bpe.merges, pair[i].left, pair[i].right, pair[i].rank, pair[i].made);
    wf_mem_free(t->ctx, pair);
    return status;
}

static wf_status train(wf_tokenizer *t, const wf_text *texts, size_t count, const wf_bpe_options *o)
{
    stage s = {o, 0, COUNTING};
    const wf_count_options options = {o->threads, o->progress ? tell : NULL, &s};
    wf_counts counts;
    wf_status status = wf_counts_make(t->ctx, t, texts, count, &options, &counts);
    if (status == WF_OK)
        status = learn(t, o, &counts);
    wf_counts_free(&counts);
    if (status == WF_OK)
        status = wf_tokenizer_finish(t);
    if (status == WF_OK && o->progress)
        o->progress(o->user, 1);
    return status;
}

wf_status wf_tokenizer_train(wf_ctx *ctx, const wf_text *texts, size_t count,
                             const wf_bpe_options *options, wf_tokenizer **out)
{
    wf_bpe_options o = options ? *options : (wf_bpe_options){0};
    const wf_pre *pre = NULL;
    wf_tokenizer *t;
    int64_t total = 0;
    *out = NULL;
    WF_TRY(check_options(ctx, &o));
    WF_TRY(find_split(ctx, o.split, &pre));
    /* No count of words or pairs exceeds the bytes of all texts. */
    for (size_t i = 0; i < count; i++)
        if (texts[i].bytes > INT64_MAX || !wf_add_i64(total, (int64_t)texts[i].bytes, &total))
            return wf_fail(ctx, WF_ERR_USAGE, "the texts have more than 2^63 bytes in total");
    WF_TRY(wf_tokenizer_new(ctx, &t));
    t->bpe.whole_words = pre->is & WF_PRE_WHOLE;
    wf_status status = wf_pre_apply(pre, t);
    if (status == WF_OK)
        status = train(t, texts, count, &o);
    if (status == WF_OK)
        *out = t;
    else
        wf_tokenizer_free(t);
    return status;
}

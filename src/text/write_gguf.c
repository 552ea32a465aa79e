/* SPDX-License-Identifier: MIT */
/*
 * write_gguf.c - writes a tokenizer as the tokenizer.ggml.* keys of a GGUF file.
 *
 * A tokenizer is representable if it is SentencePiece, or byte-level BPE whose splitting has a name
 * in the table of pre.c. Everything else is refused, since a reader would produce other ids.
 */
#include <string.h>

#include "base/mem.h"
#include "text/merges.h"
#include "text/pre.h"
#include "text/token_priv.h"

#define KEY "tokenizer.ggml."

/* Names ids without a token "[PAD<id>]": the array has no holes, and llama.cpp expects a token for
 * every row of the embedding. read_gguf.c removes them again. */
static wf_status put_tokens(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w,
                            const float *score, size_t count)
{
    /* "[PAD" and "]", 18 digits at most, and the NUL. */
    enum { NAME = 24 };
    size_t known = (size_t)t->vocab.count;
    wf_gguf_text *text = wf_mem_array(ctx, count, sizeof *text);
    int32_t *kind = wf_mem_array(ctx, count, sizeof *kind);
    char *names = wf_mem_array(ctx, count, NAME);
    float *scores = wf_mem_array(ctx, count, sizeof *scores);
    wf_status status = text && kind && names && scores ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        static const wf_vocab_token none;
        const wf_vocab_token *token = i < known ? &t->vocab.token[i] : &none;
        size_t len = 0;
        scores[i] = score && i < known ? score[i] : 0;
        text[i] = (wf_gguf_text){token->text, token->bytes};
        kind[i] = token->text ? (int32_t)token->kind : WF_TOKEN_UNUSED;
        if (!token->text) {
            wf_text_append(names + NAME * i, NAME, &len, "[PAD%zu]", i);
            text[i] = (wf_gguf_text){names + NAME * i, len};
        }
    }
    if (status == WF_OK)
        status = wf_gguf_write_texts(w, KEY "tokens", text, count);
    if (status == WF_OK && score)
        status = wf_gguf_write_array(w, KEY "scores", WF_GGUF_F32, scores, count);
    if (status == WF_OK)
        status = wf_gguf_write_array(w, KEY "token_type", WF_GGUF_I32, kind, count);
    wf_mem_free(ctx, text);
    wf_mem_free(ctx, kind);
    wf_mem_free(ctx, names);
    wf_mem_free(ctx, scores);
    return status;
}

/* Writes the merges as "a b"; all strings are in one block. */
static wf_status put_merges(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w)
{
    wf_merge_pair *pair;
    size_t count, bytes = 0, at = 0;
    WF_TRY(wf_merges_list(&t->bpe, ctx, &pair, &count));
    /* A merge makes left + right, so "left right" has one byte more than the token that it
     * makes. */
    for (size_t i = 0; i < count; i++)
        bytes += (size_t)t->vocab.token[pair[i].made].bytes + 1;
    wf_gguf_text *text = wf_mem_array(ctx, count, sizeof *text);
    char *all = wf_mem_new(ctx, bytes);
    wf_status status = text && all ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        const wf_vocab_token *left = &t->vocab.token[pair[i].left],
                             *right = &t->vocab.token[pair[i].right];
        if (memchr(left->text, ' ', left->bytes) || memchr(right->text, ' ', right->bytes)) {
            status = wf_fail(
                ctx, WF_ERR_UNSUPPORTED,
                "the tokenizer cannot be written as GGUF: a token of a merge contains a space");
            break;
        }
        text[i] = (wf_gguf_text){all + at, (size_t)left->bytes + 1 + right->bytes};
        memcpy(all + at, left->text, left->bytes);
        all[at + left->bytes] = ' ';
        memcpy(all + at + left->bytes + 1, right->text, right->bytes);
        at += text[i].len;
    }
    if (status == WF_OK)
        status = wf_gguf_write_texts(w, KEY "merges", text, count);
    wf_mem_free(ctx, text);
    wf_mem_free(ctx, all);
    wf_mem_free(ctx, pair);
    return status;
}

/* Returns whether nothing, or only `id`, is added. */
static bool frame_is(const int32_t *ids, int count, int32_t id)
{
    return count == 0 || (count == 1 && ids[0] == id);
}

/* Writes the tokens that end a text and do not follow from eos and the vocabulary. GGUF has keys
 * for two. */
static wf_status put_ends(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w)
{
    static const char *const keys[] = {KEY "eot_token_id", KEY "eom_token_id"};
    for (int i = t->known_ends, k = 0; i < t->end_count; i++, k++) {
        if (k < 2)
            WF_TRY(wf_gguf_write_int(w, keys[k], WF_GGUF_U32, t->ends[i]));
        else
            wf_ctx_log(ctx, WF_LOG_WARN,
                       "token %d also ends a text, but GGUF has no key for it; it is not written",
                       t->ends[i]);
    }
    return WF_OK;
}

static wf_status put_names(const wf_tokenizer *t, wf_gguf_writer *w)
{
    for (int i = 0; i < t->nameds; i++)
        for (size_t k = 0; k < sizeof wf_gguf_names / sizeof *wf_gguf_names; k++) {
            int32_t id = strcmp(t->named[i].name, wf_gguf_names[k].name) == 0
                             ? wf_vocab_find(&t->vocab, t->named[i].text, t->named[i].bytes)
                             : -1;
            if (id >= 0)
                WF_TRY(wf_gguf_write_int(w, wf_gguf_names[k].key, WF_GGUF_U32, id));
        }
    return WF_OK;
}

/* Fails if the tokens around a text are others than bos and eos, for which GGUF has flags. */
static wf_status put_special(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w)
{
    static const char *const keys[] = {KEY "bos_token_id", KEY "eos_token_id",
                                       KEY "unknown_token_id", KEY "padding_token_id"};
    int32_t bos = t->special[WF_SPECIAL_BOS], eos = t->special[WF_SPECIAL_EOS];
    for (int i = 0; i < 4; i++)
        if (t->special[i] >= 0)
            WF_TRY(wf_gguf_write_int(w, keys[i], WF_GGUF_U32, t->special[i]));
    WF_TRY(put_names(t, w));
    WF_TRY(put_ends(t, ctx, w));
    if (!frame_is(t->before, t->before_count, bos) || !frame_is(t->after, t->after_count, eos))
        return wf_fail(
            ctx, WF_ERR_UNSUPPORTED,
            "the tokenizer cannot be written as GGUF: it adds tokens other than bos and eos "
            "around a text");
    WF_TRY(wf_gguf_write_bool(w, KEY "add_bos_token", t->before_count > 0));
    return wf_gguf_write_bool(w, KEY "add_eos_token", t->after_count > 0);
}

/* Returns whether this is SentencePiece: U+2581 replaces spaces, without a pre-tokenizer. *prefix:
 * one is put before a text. */
static bool is_spaced(const wf_tokenizer *t, bool *prefix)
{
    const wf_normal_step *s = t->normals;
    *prefix = t->normal_count == 2 && s[0].kind == WF_NORMAL_PREPEND && s[0].content_bytes == 3 &&
              memcmp(s[0].content, "\xE2\x96\x81", 3) == 0;
    s += *prefix;
    if (t->normal_count == 0 && t->word_count == 1) { /* Metaspace combines both */
        const wf_words_step *m = t->words;
        *prefix = m->prepend != WF_PREPEND_NEVER;
        return m->kind == WF_WORDS_METASPACE && !m->split && m->prepend == WF_PREPEND_NEVER &&
               m->bytes == 3 && memcmp(m->text, "\xE2\x96\x81", 3) == 0;
    }
    return t->word_count == 0 && t->normal_count == 1 + *prefix && s->kind == WF_NORMAL_REPLACE &&
           !s->pattern && s->what_bytes == 1 && s->what[0] == ' ' && s->content_bytes == 3 &&
           memcmp(s->content, "\xE2\x96\x81", 3) == 0;
}

/* Merges are converted to scores if the tokenizer has none. */
static wf_status put_scored(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, bool prefix,
                            size_t count)
{
    float *made = NULL;
    if (!t->bpe.score)
        WF_TRY(wf_merges_scores(&t->bpe, ctx, &made));
    wf_status status = wf_gguf_write_text(w, KEY "model", "llama", 5);
    if (status == WF_OK)
        status = wf_gguf_write_text(w, KEY "pre", "default", 7);
    if (status == WF_OK)
        status = put_tokens(t, ctx, w, made ? made : t->bpe.score, count);
    if (status == WF_OK)
        status = wf_gguf_write_bool(w, KEY "add_space_prefix", prefix);
    wf_mem_free(ctx, made);
    return status;
}

wf_status wf_tokenizer_to_gguf(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, int64_t rows)
{
    bool prefix;
    size_t count = (size_t)(rows > t->vocab.count ? rows : t->vocab.count);
    const wf_pre *pre = wf_pre_of(t);
    if (is_spaced(t, &prefix)) {
        WF_TRY(put_scored(t, ctx, w, prefix, count));
    } else if (pre) {
        WF_TRY(wf_gguf_write_text(w, KEY "model", "gpt2", 4));
        WF_TRY(wf_gguf_write_text(w, KEY "pre", pre->names, strcspn(pre->names, ",")));
        WF_TRY(put_tokens(t, ctx, w, NULL, count));
        WF_TRY(put_merges(t, ctx, w));
    } else {
        return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                       "the tokenizer cannot be written as GGUF: no value of " KEY
                       "pre describes its normalizer and pre-tokenizer");
    }
    return put_special(t, ctx, w);
}

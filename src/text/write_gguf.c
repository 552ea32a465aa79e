/* SPDX-License-Identifier: MIT */
/*
 * write_gguf.c - writes a tokenizer as the tokenizer.ggml.* keys of a GGUF file.
 *
 * A tokenizer is representable if it is SentencePiece's BPE or Unigram, BERT's WordPiece, or
 * byte-level BPE whose splitting has a name in the table of pre.c. Everything else is refused, since
 * a reader would produce other ids.
 */
#include <string.h>

#include "base/mem.h"
#include "text/merges.h"
#include "text/pre.h"
#include "text/token_priv.h"
#include "text/utf8.h"

#define KEY "tokenizer.ggml."

/* WordPiece marks the tokens that continue a word, by "##"; files mark the others, by U+2581.
 * Writes the token to room, and returns its end. */
static char *put_marked(const wf_vocab_token *token, char *room)
{
    bool inside = token->bytes > 2 && memcmp(token->text, "##", 2) == 0;
    bool verbatim = wf_kind_is_control(token->kind);
    const char *text = token->text + (inside && !verbatim ? 2 : 0);
    size_t bytes = token->bytes - (size_t)(text - token->text);
    if (!inside && !verbatim) {
        memcpy(room, WF_SPACE_MARK, 3);
        room += 3;
    }
    memcpy(room, text, bytes);
    return room + bytes;
}

/* Replaces the texts by marked copies, which are in *copies: one block, for the caller to free. */
static wf_status mark_tokens(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_text *text, char **copies)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < t->vocab.count; i++)
        bytes += (size_t)t->vocab.token[i].bytes + 3; /* the vocabulary's limits keep it small */
    char *at = *copies = wf_mem_new(ctx, bytes);
    if (!at)
        return WF_ERR_MEMORY;
    for (int32_t i = 0; i < t->vocab.count; i++) {
        if (!t->vocab.token[i].text)
            continue;
        char *end = put_marked(&t->vocab.token[i], at);
        text[i] = (wf_gguf_text){at, (size_t)(end - at)};
        at = end;
    }
    return WF_OK;
}

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
    char *names = wf_mem_array(ctx, count, NAME), *copies = NULL;
    float *scores = wf_mem_array(ctx, count, sizeof *scores);
    wf_status status = text && kind && names && scores ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        static const wf_vocab_token none;
        const wf_vocab_token *token = i < known ? &t->vocab.token[i] : &none;
        size_t len = 0;
        scores[i] = score && i < known ? score[i] : 0;
        text[i] = (wf_gguf_text){token->text, token->bytes};
        kind[i] = token->text ? (int32_t)token->kind : WF_TOKEN_UNUSED;
        if (t->model == WF_MODEL_WORDPIECE && kind[i] == WF_TOKEN_UNKNOWN)
            kind[i] = WF_TOKEN_CONTROL; /* as llama.cpp writes it: it has no mark */
        if (!token->text) {
            wf_text_append(names + NAME * i, NAME, &len, "[PAD%zu]", i);
            text[i] = (wf_gguf_text){names + NAME * i, len};
        }
    }
    if (status == WF_OK && t->model == WF_MODEL_WORDPIECE)
        status = mark_tokens(t, ctx, text, &copies);
    if (status == WF_OK)
        status = wf_gguf_write_texts(w, KEY "tokens", text, count);
    if (status == WF_OK && score)
        status = wf_gguf_write_array(w, KEY "scores", WF_GGUF_F32, scores, count);
    if (status == WF_OK)
        status = wf_gguf_write_array(w, KEY "token_type", WF_GGUF_I32, kind, count);
    wf_mem_free(ctx, text);
    wf_mem_free(ctx, kind);
    wf_mem_free(ctx, names);
    wf_mem_free(ctx, copies);
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

/* For WordPiece, cls and sep are the tokens around a text, whatever the configuration names so. */
static wf_status put_names(const wf_tokenizer *t, wf_gguf_writer *w)
{
    bool framed = t->model == WF_MODEL_WORDPIECE;
    for (size_t k = 0; k < sizeof wf_gguf_names / sizeof *wf_gguf_names; k++) {
        const char *name = wf_gguf_names[k].name;
        int32_t id = -1;
        if (framed && strcmp(name, "cls_token") == 0)
            id = t->before[0];
        else if (framed && strcmp(name, "sep_token") == 0)
            id = t->after[0];
        for (int i = 0; i < t->nameds && id < 0; i++)
            if (strcmp(t->named[i].name, name) == 0)
                id = wf_vocab_find(&t->vocab, t->named[i].text, t->named[i].bytes);
        if (id >= 0)
            WF_TRY(wf_gguf_write_int(w, wf_gguf_names[k].key, WF_GGUF_U32, id));
    }
    return WF_OK;
}

/* Fails if the tokens around a text are others than bos and eos, for which GGUF has flags. For
 * WordPiece they are cls and sep, without flags. */
static wf_status put_special(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w)
{
    static const char *const keys[] = {KEY "bos_token_id", KEY "eos_token_id",
                                       KEY "unknown_token_id", KEY "padding_token_id"};
    bool framed = t->model == WF_MODEL_WORDPIECE;
    int32_t ids[4], bos = t->special[WF_SPECIAL_BOS], eos = t->special[WF_SPECIAL_EOS];
    memcpy(ids, t->special, sizeof ids);
    if (framed)
        ids[WF_SPECIAL_BOS] = t->before[0];
    if (t->model != WF_MODEL_BPE)
        ids[WF_SPECIAL_UNKNOWN] = framed ? t->wordpiece.unknown : t->unigram.unknown;
    for (int i = 0; i < 4; i++)
        if (ids[i] >= 0)
            WF_TRY(wf_gguf_write_int(w, keys[i], WF_GGUF_U32, ids[i]));
    WF_TRY(put_names(t, w));
    WF_TRY(put_ends(t, ctx, w));
    if (framed)
        return WF_OK;
    if (!frame_is(t->before, t->before_count, bos) || !frame_is(t->after, t->after_count, eos))
        return wf_fail(
            ctx, WF_ERR_UNSUPPORTED,
            "the tokenizer cannot be written as GGUF: it adds tokens other than bos and eos "
            "around a text");
    WF_TRY(wf_gguf_write_bool(w, KEY "add_bos_token", t->before_count > 0));
    return wf_gguf_write_bool(w, KEY "add_eos_token", t->after_count > 0);
}

static bool is_mark(const wf_words_step *m)
{
    return m->kind == WF_WORDS_METASPACE && m->bytes == 3 && memcmp(m->text, WF_SPACE_MARK, 3) == 0;
}

/* Returns whether this is SentencePiece's BPE: U+2581 replaces spaces, without a pre-tokenizer.
 * *prefix: one is put before a text. */
static bool is_spaced(const wf_tokenizer *t, bool *prefix)
{
    bool merge;
    if (t->model != WF_MODEL_BPE)
        return false;
    if (t->normal_count == 0 && t->word_count == 1) { /* Metaspace combines both */
        *prefix = false;
        return is_mark(t->words) && !t->words->split && t->words->prepend == WF_PREPEND_NEVER;
    }
    return t->word_count == 0 && wf_tokenizer_is_spaced(t, 0, prefix, &merge) && !merge;
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

static wf_status refuse(wf_ctx *ctx, const char *why)
{
    return wf_fail(ctx, WF_ERR_UNSUPPORTED, "the tokenizer cannot be written as GGUF: %s", why);
}

/* ---- Unigram ---- */

/* Returns whether the rules make this character a text of spaces only. */
static bool becomes_space(const wf_charsmap *map, uint32_t c)
{
    char s[4];
    const char *text;
    size_t n = wf_utf8_encode(c, s), bytes;
    if (!wf_charsmap_find(map, s, n, true, &text, &bytes))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ')
            return false;
    return true;
}

/* Returns whether splitting at white space gives the same words as merging spaces does: no other
 * white space and no U+2581 is left by the rules, and no token spans two words. U+0085 is left by
 * SentencePiece's own rules: only tokenizer.json splits there. */
static bool words_end_at_spaces(const wf_tokenizer *t, const wf_charsmap *map)
{
    static const uint32_t spaces[] = {9,      10,     11,     12,     13,     0xA0,
                                      0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                                      0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A,
                                      0x2028, 0x2029, 0x202F, 0x205F, 0x3000, 0x2581};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (!map || !becomes_space(map, spaces[i]))
            return false;
    for (int32_t id = 0; id < t->vocab.count; id++) {
        const wf_vocab_token *token = &t->vocab.token[id];
        if (!wf_trie_takes(&t->vocab, id))
            continue;
        for (size_t i = 1; i + 3 <= token->bytes; i++)
            if (memcmp(token->text + i, WF_SPACE_MARK, 3) == 0)
                return false;
    }
    return true;
}

/* Returns whether steps of the normalizer remove spaces at the end and merge others. */
static bool merges_spaces(const wf_normal_step *s, int count)
{
    return count == 2 && s[0].kind == WF_NORMAL_STRIP && s[0].right &&
           s[1].kind == WF_NORMAL_REPLACE && s[1].runs == WF_RUNS_LONG && s[1].content_bytes == 3 &&
           memcmp(s[1].content, WF_SPACE_MARK, 3) == 0;
}

/* Returns whether the steps of the tokenizer are SentencePiece's, and with which options. They are
 * written in three ways: as normalizer steps (wf_tokenizer_set_spaces), or by Metaspace, after a
 * split at white space or after steps that merge spaces. */
static bool is_sentencepiece(const wf_tokenizer *t, const wf_charsmap **map, bool *prefix,
                             bool *merge)
{
    bool rules = t->normal_count > 0 && t->normals[0].kind == WF_NORMAL_PRECOMPILED;
    *map = rules ? t->normals[0].map : NULL;
    if (t->word_count == 0)
        return wf_tokenizer_is_spaced(t, rules, prefix, merge);
    *prefix = *merge = true;
    bool split =
        t->normal_count == rules && t->word_count == 2 && t->words[0].kind == WF_WORDS_SPACES;
    bool merged = t->word_count == 1 && merges_spaces(t->normals + rules, t->normal_count - rules);
    const wf_words_step *last = &t->words[t->word_count - 1];
    return (split || merged) && is_mark(last) && last->prepend == WF_PREPEND_ALWAYS &&
           words_end_at_spaces(t, *map);
}

/* Readers take the lowest score of normal tokens, so no other token may have a lower one. */
static wf_status check_scores(const wf_tokenizer *t, wf_ctx *ctx)
{
    for (int32_t id = 0; id < t->vocab.count; id++)
        if (t->vocab.token[id].kind == WF_TOKEN_NORMAL && t->vocab.token[id].text &&
            t->unigram.score[id] <= t->unigram.least)
            return WF_OK;
    return refuse(ctx, "the lowest score belongs to a special token");
}

static wf_status put_unigram(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, size_t count)
{
    const wf_charsmap *map;
    bool prefix, merge;
    if (!is_sentencepiece(t, &map, &prefix, &merge))
        return refuse(ctx, "its normalizer and pre-tokenizer are not those of SentencePiece");
    WF_TRY(check_scores(t, ctx));
    float *score = wf_mem_array(ctx, (size_t)t->vocab.count, sizeof *score);
    wf_status status = score ? WF_OK : WF_ERR_MEMORY;
    for (int32_t i = 0; i < t->vocab.count && status == WF_OK; i++)
        score[i] = (float)t->unigram.score[i];
    if (status == WF_OK)
        status = wf_gguf_write_text(w, KEY "model", "t5", 2);
    if (status == WF_OK)
        status = wf_gguf_write_text(w, KEY "pre", "default", 7);
    if (status == WF_OK)
        status = put_tokens(t, ctx, w, score, count);
    if (status == WF_OK)
        status = wf_gguf_write_bool(w, KEY "add_space_prefix", prefix);
    if (status == WF_OK)
        status = wf_gguf_write_bool(w, KEY "remove_extra_whitespaces", merge);
    if (status == WF_OK && map)
        status =
            wf_gguf_write_array(w, KEY "precompiled_charsmap", WF_GGUF_U8, map->bytes, map->count);
    wf_mem_free(ctx, score);
    return status;
}

/* ---- WordPiece ---- */

/* Readers frame every text by cls and sep. */
static wf_status put_wordpiece(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, size_t count)
{
    const wf_normal_step *n = t->normals;
    const wf_wordpiece *p = &t->wordpiece;
    bool split = t->word_count == 2 && t->words[0].kind == WF_WORDS_SPACES &&
                 t->words[1].kind == WF_WORDS_PUNCTUATION &&
                 t->words[1].behavior == WF_SPLIT_ISOLATED;
    if (t->normal_count != 1 || n->kind != WF_NORMAL_BERT || !n->clean || !n->chinese || !split)
        return refuse(ctx, "its normalizer and pre-tokenizer are not those of BERT");
    if (p->prefix_bytes != 2 || memcmp(p->prefix, "##", 2) != 0)
        return refuse(ctx, "its continuing_subword_prefix is not ##");
    if (p->longest != WF_WORDPIECE_LONGEST)
        return refuse(ctx, "its max_input_chars_per_word is not 100");
    if (t->before_count != 1 || t->after_count != 1)
        return refuse(ctx, "GGUF readers put cls before every text of WordPiece and sep after it, "
                           "but this tokenizer does not");
    WF_TRY(wf_gguf_write_text(w, KEY "model", "bert", 4));
    WF_TRY(wf_gguf_write_text(w, KEY "pre", "default", 7));
    WF_TRY(put_tokens(t, ctx, w, NULL, count));
    WF_TRY(wf_gguf_write_bool(w, KEY "normalizer.lowercase", n->lower));
    return wf_gguf_write_bool(w, KEY "normalizer.strip_accents", n->accents);
}

/* ---- All models ---- */

static wf_status put_bpe(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, size_t count)
{
    bool prefix;
    const wf_pre *pre = wf_pre_of(t);
    if (is_spaced(t, &prefix))
        return put_scored(t, ctx, w, prefix, count);
    if (!pre)
        return refuse(ctx, "no value of " KEY "pre describes its normalizer and pre-tokenizer");
    WF_TRY(wf_gguf_write_text(w, KEY "model", "gpt2", 4));
    WF_TRY(wf_gguf_write_text(w, KEY "pre", pre->names, strcspn(pre->names, ",")));
    WF_TRY(put_tokens(t, ctx, w, NULL, count));
    return put_merges(t, ctx, w);
}

wf_status wf_tokenizer_to_gguf(const wf_tokenizer *t, wf_ctx *ctx, wf_gguf_writer *w, int64_t rows)
{
    size_t count = (size_t)(rows > t->vocab.count ? rows : t->vocab.count);
    switch (t->model) {
    case WF_MODEL_WORDPIECE: WF_TRY(put_wordpiece(t, ctx, w, count)); break;
    case WF_MODEL_UNIGRAM: WF_TRY(put_unigram(t, ctx, w, count)); break;
    case WF_MODEL_BPE: WF_TRY(put_bpe(t, ctx, w, count)); break;
    }
    return put_special(t, ctx, w);
}

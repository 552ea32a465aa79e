/* SPDX-License-Identifier: MIT */
/*
 * read_gguf.c - reads a tokenizer from the tokenizer.ggml.* keys of a GGUF file.
 *
 * Two models are supported: "gpt2" (byte-level BPE: tokens, merges, and the name of a split
 * pattern) and "llama" (SentencePiece: tokens and scores). The GGUF reader has checked types and
 * sizes of arrays; this file checks that they agree with each other and stay within the limits of
 * vocab.h.
 */
#include <math.h>
#include <string.h>

#include "text/pre.h"
#include "text/token_priv.h"

#define KEY "tokenizer.ggml."

typedef struct {
    const wf_gguf *f;
    wf_ctx *ctx;
    wf_tokenizer *t;  /* under construction */
    const char *path; /* base name, for messages */
} reader;

/* A missing key yields `otherwise`. */
static wf_status get_text(reader *r, const char *key, const char *otherwise, wf_gguf_text *out)
{
    WF_TRY(wf_gguf_get_text(r->f, key, out));
    if (!out->bytes)
        *out = (wf_gguf_text){otherwise, strlen(otherwise)};
    return WF_OK;
}

/* ---- Vocabulary ---- */

/* A file has a token for every row of the embedding. Rows without a real token (padding, holes) are
 * named "[PAD<id>]", of kind unused: llama.cpp and write_gguf.c write them this way. */
static bool is_padding(const wf_gguf_text *text, const int64_t *kinds, size_t id)
{
    return kinds && kinds[id] == WF_TOKEN_UNUSED && id <= INT32_MAX &&
           wf_token_is_padding(text[id].bytes, text[id].len, (int32_t)id);
}

/* Without a token_type array every token is normal. */
static wf_status read_tokens(reader *r, bool scored)
{
    wf_tokenizer *t = r->t;
    const wf_gguf_text *text;
    const int64_t *kinds;
    const float *scores;
    size_t count, kind_count, score_count;
    wf_gguf *f = (wf_gguf *)(uintptr_t)r->f; /* its arena gets the converted arrays */
    WF_TRY(wf_gguf_get_texts(r->f, KEY "tokens", &text, &count));
    WF_TRY(wf_gguf_get_ints(f, KEY "token_type", &kinds, &kind_count));
    WF_TRY(wf_gguf_get_floats(f, KEY "scores", &scores, &score_count));
    if (!text || count == 0)
        return wf_fail(r->ctx, WF_ERR_FORMAT, "cannot read '%s': it has no " KEY "tokens", r->path);
    if (count > WF_VOCAB_MOST)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu tokens; the limit is %d", r->path, count,
                       WF_VOCAB_MOST);
    if ((kinds && kind_count != count) || (scores && score_count != count))
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu token%s, but " KEY "%s has %zu", r->path,
                       count, WF_PLURAL(count),
                       kinds && kind_count != count ? "token_type" : "scores",
                       kinds && kind_count != count ? kind_count : score_count);
    if (scored && !scores)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no " KEY "scores, which its tokenizer needs",
                       r->path);
    /* Rows at the end are padding of the embedding, not part of the vocabulary. */
    while (count > 1 && is_padding(text, kinds, count - 1))
        count--;
    WF_TRY(wf_vocab_init(&t->vocab, &t->arena, (int32_t)count));
    for (size_t i = 0; i < count; i++) {
        if (is_padding(text, kinds, i))
            continue;
        int64_t kind = kinds ? kinds[i] : WF_TOKEN_NORMAL;
        if (text[i].len > WF_TOKEN_BYTES_MOST)
            return wf_fail(r->ctx, WF_ERR_FORMAT,
                           "token %zu of '%s' has %zu bytes; the limit is %d", i, r->path,
                           text[i].len, WF_TOKEN_BYTES_MOST);
        if (text[i].len == 0 || kind < WF_TOKEN_NORMAL || kind > WF_TOKEN_BYTE)
            /* Invalid kinds do not stop a file from loading; such tokens are never produced. */
            kind = WF_TOKEN_UNUSED;
        WF_TRY(wf_vocab_set(&t->vocab, &t->arena, (int32_t)i, text[i].bytes, text[i].len,
                            (wf_token_kind)kind));
    }
    if (!scored)
        return WF_OK;
    for (size_t i = 0; i < count; i++)
        if (isnan(scores[i]))
            return wf_fail(r->ctx, WF_ERR_FORMAT, "the score of token %zu of '%s' is NaN", i,
                           r->path);
    t->bpe.score = wf_arena_copy(&t->arena, scores, count * sizeof *scores);
    return t->bpe.score ? WF_OK : WF_ERR_MEMORY;
}

/* Reads "a b" per merge; the rank is the index. The search for the space starts after the first
 * byte, since a token may be a space. */
static wf_status read_merges(reader *r)
{
    wf_tokenizer *t = r->t;
    const wf_gguf_text *text;
    size_t count;
    WF_TRY(wf_gguf_get_texts(r->f, KEY "merges", &text, &count));
    if (!text)
        return wf_fail(r->ctx, WF_ERR_FORMAT, "cannot read '%s': it has no " KEY "merges", r->path);
    if (count > WF_VOCAB_MOST)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu merges; the limit is %d", r->path, count,
                       WF_VOCAB_MOST);
    WF_TRY(wf_merges_init(&t->bpe.merges, &t->arena, count));
    char *whole = wf_arena_alloc(&t->arena, t->vocab.longest);
    if (!whole)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const char *s = text[i].bytes,
                   *space = text[i].len > 1 ? memchr(s + 1, ' ', text[i].len - 1) : NULL;
        size_t left = space ? (size_t)(space - s) : 0, right = space ? text[i].len - left - 1 : 0;
        int32_t a = -1, b = -1, made = -1;
        if (space && left + right <= t->vocab.longest) {
            memcpy(whole, s, left);
            memcpy(whole + left, space + 1, right);
            a = wf_vocab_find(&t->vocab, s, left);
            b = wf_vocab_find(&t->vocab, space + 1, right);
            made = wf_vocab_find(&t->vocab, whole, left + right);
        }
        if (a < 0 || b < 0 || made < 0)
            return wf_fail(r->ctx, WF_ERR_FORMAT,
                           "merge %zu of '%s' does not join two tokens to a third: '%.*s'", i,
                           r->path, text[i].len < 100 ? (int)text[i].len : 100, s);
        /* Of equal merges the first counts. */
        if (!wf_merges_find(&t->bpe.merges, a, b))
            wf_merges_set(&t->bpe.merges, a, b, (uint32_t)i, made);
    }
    return WF_OK;
}

/* Control, unknown and user-defined tokens are added tokens: matched before splitting. */
static wf_status add_tokens(reader *r)
{
    wf_tokenizer *t = r->t;
    size_t n = 0;
    for (int32_t i = 0; i < t->vocab.count; i++) {
        wf_token_kind kind = t->vocab.token[i].kind;
        n += kind == WF_TOKEN_USER || wf_kind_is_control(kind);
    }
    t->added = wf_arena_alloc(&t->arena, n * sizeof *t->added);
    if (!t->added)
        return WF_ERR_MEMORY;
    for (int32_t i = 0; i < t->vocab.count; i++) {
        const wf_vocab_token *token = &t->vocab.token[i];
        if (token->kind != WF_TOKEN_USER && !wf_kind_is_control(token->kind))
            continue;
        if (token->bytes > WF_ADDED_BYTES_MOST)
            return wf_fail(r->ctx, WF_ERR_FORMAT, "added token %d of '%s' is longer than %d bytes",
                           (int)i, r->path, WF_ADDED_BYTES_MOST);
        t->added[t->adds++] = (wf_added_token){.id = i,
                                               .text = token->text,
                                               .bytes = token->bytes,
                                               .control = wf_kind_is_control(token->kind)};
    }
    return WF_OK;
}

/* ---- Pre-tokenizers and models ---- */

static wf_status unknown_pre(reader *r, wf_gguf_text name)
{
    char known[400];
    size_t len = 0;
    for (const wf_pre *p = wf_pres; p->names; p++)
        wf_text_append(known, sizeof known, &len, "%s%.*s", p == wf_pres ? "" : ", ",
                       (int)strcspn(p->names, ","), p->names);
    return wf_fail(r->ctx, WF_ERR_UNSUPPORTED,
                   "cannot read '%s': its pre-tokenizer (" KEY
                   "pre) is '%.*s', which Weft does not support; it supports %s",
                   r->path, name.len < 50 ? (int)name.len : 50, name.bytes, known);
}

static wf_status read_bytes_model(reader *r, bool *bos)
{
    wf_gguf_text pre;
    WF_TRY(get_text(r, KEY "pre", "default", &pre));
    const wf_pre *row = wf_pre_find(pre.bytes, pre.len);
    if (!row)
        return unknown_pre(r, pre);
    WF_TRY(read_tokens(r, false));
    WF_TRY(read_merges(r));
    WF_TRY(wf_pre_apply(row, r->t));
    r->t->bpe.whole_words = row->is & WF_PRE_WHOLE;
    *bos = row->is & WF_PRE_BOS;
    return WF_OK;
}

/* The ids of bos, eos and unknown are SentencePiece's defaults; keys of the file override them. */
static wf_status read_scores_model(reader *r, bool *bos)
{
    bool prefix = true;
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_space_prefix", &prefix));
    WF_TRY(read_tokens(r, true));
    r->t->bpe.fallback = true;
    *bos = true;
    r->t->special[WF_SPECIAL_BOS] = r->t->vocab.count > 1 ? 1 : -1;
    r->t->special[WF_SPECIAL_EOS] = r->t->vocab.count > 2 ? 2 : -1;
    r->t->special[WF_SPECIAL_UNKNOWN] = 0;
    return wf_tokenizer_set_spaces(r->t, prefix);
}

static const struct {
    const char *name;
    wf_status (*read)(reader *r, bool *bos);
} models[] = {{"gpt2", read_bytes_model}, {"llama", read_scores_model}};

static wf_status read_model(reader *r, bool *bos)
{
    wf_gguf_text name;
    WF_TRY(wf_gguf_get_text(r->f, KEY "model", &name));
    if (!name.bytes)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no tokenizer (no " KEY "model)", r->path);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strlen(models[i].name) == name.len && memcmp(models[i].name, name.bytes, name.len) == 0)
            return models[i].read(r, bos);
    return wf_fail(
        r->ctx, WF_ERR_UNSUPPORTED,
        "cannot read '%s': its tokenizer is of kind '%.*s', which Weft does not support; it supports "
        "gpt2 (byte-level BPE) and llama (SentencePiece BPE)",
        r->path, name.len < 50 ? (int)name.len : 50, name.bytes);
}

/* ---- Special tokens ---- */

/* Reads a token id; one outside the vocabulary is ignored. */
static wf_status read_id(reader *r, const char *key, int32_t *id)
{
    int64_t value = -1;
    WF_TRY(wf_gguf_get_int(r->f, key, INT32_MIN, UINT32_MAX, &value));
    if (value >= 0 && value < r->t->vocab.count)
        *id = (int32_t)value;
    return WF_OK;
}

static wf_status read_special(reader *r, bool bos)
{
    wf_tokenizer *t = r->t;
    int32_t eot = -1, eom = -1;
    bool eos = false;
    WF_TRY(read_id(r, KEY "bos_token_id", &t->special[WF_SPECIAL_BOS]));
    WF_TRY(read_id(r, KEY "eos_token_id", &t->special[WF_SPECIAL_EOS]));
    WF_TRY(read_id(r, KEY "unknown_token_id", &t->special[WF_SPECIAL_UNKNOWN]));
    WF_TRY(read_id(r, KEY "padding_token_id", &t->special[WF_SPECIAL_PAD]));
    WF_TRY(read_id(r, KEY "eot_token_id", &eot));
    WF_TRY(read_id(r, KEY "eom_token_id", &eom));
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_bos_token", &bos));
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_eos_token", &eos));
    int32_t unknown = t->special[WF_SPECIAL_UNKNOWN];
    if (t->bpe.score && t->vocab.token[unknown].kind != WF_TOKEN_CONTROL)
        t->bpe.unknown = unknown;
    if (bos && t->special[WF_SPECIAL_BOS] >= 0)
        WF_TRY(wf_tokenizer_frame(t, false, t->special[WF_SPECIAL_BOS], true));
    if (eos && t->special[WF_SPECIAL_EOS] >= 0)
        WF_TRY(wf_tokenizer_frame(t, true, t->special[WF_SPECIAL_EOS], true));
    for (size_t i = 0; i < sizeof wf_gguf_names / sizeof *wf_gguf_names; i++) {
        int32_t id = -1;
        WF_TRY(read_id(r, wf_gguf_names[i].key, &id));
        WF_TRY(wf_tokenizer_name_id(t, wf_gguf_names[i].name, id));
    }
    WF_TRY(add_tokens(r));
    WF_TRY(wf_tokenizer_finish(t));
    wf_tokenizer_add_end(t, eot);
    wf_tokenizer_add_end(t, eom);
    return WF_OK;
}

wf_status wf_tokenizer_from_gguf(const wf_gguf *f, wf_tokenizer **out)
{
    wf_ctx *ctx = f->store.ctx;
    reader r = {.f = f, .ctx = ctx, .path = wf_store_base_name(f->store.file[0].path)};
    bool bos = false;
    *out = NULL;
    WF_TRY(wf_tokenizer_new(ctx, &r.t));
    wf_status status = read_model(&r, &bos);
    if (status == WF_OK)
        status = read_special(&r, bos);
    if (status == WF_OK)
        *out = r.t;
    else
        wf_tokenizer_free(r.t);
    return status;
}

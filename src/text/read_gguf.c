/* SPDX-License-Identifier: MIT */
/*
 * read_gguf.c - reads a tokenizer from the tokenizer.ggml.* keys of a GGUF file.
 *
 * Four models are supported: "gpt2" (byte-level BPE: tokens, merges, and the name of a split
 * pattern), "llama" (SentencePiece: tokens and scores), "t5" (Unigram: tokens, scores and
 * normalization rules) and "bert" (WordPiece: tokens). The GGUF reader has checked types and sizes
 * of arrays; this file checks that they agree with each other and stay within the limits of
 * vocab.h.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "text/pre.h"
#include "text/token_priv.h"

#define KEY "tokenizer.ggml."

typedef struct {
    const wf_gguf *f;
    wf_ctx *ctx;
    wf_tokenizer *t;  /* under construction */
    const char *path; /* base name, for messages */
} reader;

/* What is added around a text, unless keys of the file say otherwise. */
typedef struct {
    bool bos, eos;
    bool bert; /* cls and sep instead */
} frame;

/* A missing key yields `otherwise`. */
static wf_status get_text(reader *r, const char *key, const char *otherwise, wf_gguf_text *out)
{
    WF_TRY(wf_gguf_get_text(r->f, key, out));
    if (!out->bytes)
        *out = (wf_gguf_text){otherwise, strlen(otherwise)};
    return WF_OK;
}

/* ---- Vocabulary ---- */

/* The arrays of a vocabulary, borrowed from the file. */
typedef struct {
    const wf_gguf_text *text; /* [count] */
    const int64_t *kinds;     /* [count], or NULL: every token is normal */
    const float *scores;      /* [count], or NULL */
    size_t count;
} token_arrays;

static wf_status get_arrays(reader *r, token_arrays *a)
{
    size_t kind_count, score_count;
    wf_gguf *f = (wf_gguf *)(uintptr_t)r->f; /* its arena gets the converted arrays */
    WF_TRY(wf_gguf_get_texts(r->f, KEY "tokens", &a->text, &a->count));
    WF_TRY(wf_gguf_get_ints(f, KEY "token_type", &a->kinds, &kind_count));
    WF_TRY(wf_gguf_get_floats(f, KEY "scores", &a->scores, &score_count));
    if (!a->text || a->count == 0)
        return wf_fail(r->ctx, WF_ERR_FORMAT, "cannot read '%s': it has no " KEY "tokens", r->path);
    if (a->count > WF_VOCAB_MOST)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu tokens; the limit is %d", r->path, a->count,
                       WF_VOCAB_MOST);
    if ((a->kinds && kind_count != a->count) || (a->scores && score_count != a->count))
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has %zu token%s, but " KEY "%s has %zu", r->path,
                       a->count, WF_PLURAL(a->count),
                       a->kinds && kind_count != a->count ? "token_type" : "scores",
                       a->kinds && kind_count != a->count ? kind_count : score_count);
    return WF_OK;
}

static bool is_marked(wf_gguf_text s)
{
    return s.len >= 3 && memcmp(s.bytes, WF_SPACE_MARK, 3) == 0;
}

/* A file has a token for every row of the embedding. Rows without a real token (padding, holes) are
 * named "[PAD<id>]", of kind unused: llama.cpp and write_gguf.c write them this way. */
static bool is_padding(const token_arrays *a, size_t id, bool marked)
{
    wf_gguf_text s = a->text[id];
    size_t skip = marked && is_marked(s) ? 3 : 0;
    return a->kinds && a->kinds[id] == WF_TOKEN_UNUSED && id <= INT32_MAX &&
           wf_token_is_padding(s.bytes + skip, s.len - skip, (int32_t)id);
}

/* Files mark the tokens that begin a word with U+2581; WordPiece marks the others with "##". Older
 * files have no mark on names in brackets. room: of at least two bytes more than the token. */
static wf_gguf_text unmark(wf_gguf_text s, int64_t kind, char *room)
{
    bool name = s.len > 1 && s.bytes[0] == '[' && s.bytes[s.len - 1] == ']';
    if (is_marked(s) && s.len > 3 && kind != WF_TOKEN_CONTROL)
        return (wf_gguf_text){s.bytes + 3, s.len - 3};
    if (s.len == 0 || kind == WF_TOKEN_CONTROL || name)
        return s;
    memcpy(room, "##", 2);
    memcpy(room + 2, s.bytes, s.len);
    return (wf_gguf_text){room, s.len + 2};
}

/* marked: words begin with U+2581, as in files of model "bert". */
static wf_status read_tokens(reader *r, token_arrays *a, bool marked)
{
    wf_tokenizer *t = r->t;
    WF_TRY(get_arrays(r, a));
    /* Rows at the end are padding of the embedding, not part of the vocabulary. */
    while (a->count > 1 && is_padding(a, a->count - 1, marked))
        a->count--;
    WF_TRY(wf_vocab_init(&t->vocab, &t->arena, (int32_t)a->count));
    char *room = wf_mem_new(r->ctx, WF_TOKEN_BYTES_MOST + 2);
    wf_status status = room ? WF_OK : WF_ERR_MEMORY;
    for (size_t i = 0; i < a->count && status == WF_OK; i++) {
        if (is_padding(a, i, marked))
            continue;
        wf_gguf_text text = a->text[i];
        int64_t kind = a->kinds ? a->kinds[i] : WF_TOKEN_NORMAL;
        if (text.len > WF_TOKEN_BYTES_MOST - 2) {
            status =
                wf_fail(r->ctx, WF_ERR_FORMAT, "token %zu of '%s' has %zu bytes; the limit is %d",
                        i, r->path, text.len, WF_TOKEN_BYTES_MOST - 2);
            break;
        }
        if (text.len == 0 || kind < WF_TOKEN_NORMAL || kind > WF_TOKEN_BYTE)
            /* Invalid kinds do not stop a file from loading; such tokens are never produced. */
            kind = WF_TOKEN_UNUSED;
        if (marked)
            text = unmark(text, kind, room);
        status = wf_vocab_set(&t->vocab, &t->arena, (int32_t)i, text.bytes, text.len,
                              (wf_token_kind)kind);
    }
    wf_mem_free(r->ctx, room);
    return status;
}

static wf_status check_scores(reader *r, const token_arrays *a)
{
    if (!a->scores)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no " KEY "scores, which its tokenizer needs",
                       r->path);
    for (size_t i = 0; i < a->count; i++)
        if (isnan(a->scores[i]))
            return wf_fail(r->ctx, WF_ERR_FORMAT, "the score of token %zu of '%s' is NaN", i,
                           r->path);
    return WF_OK;
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

static wf_status read_bytes_model(reader *r, frame *f)
{
    wf_gguf_text pre;
    WF_TRY(get_text(r, KEY "pre", "default", &pre));
    const wf_pre *row = wf_pre_find(pre.bytes, pre.len);
    if (!row)
        return unknown_pre(r, pre);
    token_arrays a;
    WF_TRY(read_tokens(r, &a, false));
    WF_TRY(read_merges(r));
    WF_TRY(wf_pre_apply(row, r->t));
    r->t->bpe.whole_words = row->is & WF_PRE_WHOLE;
    f->bos = row->is & WF_PRE_BOS;
    return WF_OK;
}

/* Ids that apply unless the file has keys for them, as in llama.cpp. Ids outside of the vocabulary
 * are ignored. */
static void set_defaults(reader *r, int32_t bos, int32_t eos, int32_t unknown, int32_t pad)
{
    const int32_t ids[4] = {bos, eos, unknown, pad}; /* by wf_special */
    for (int i = 0; i < 4; i++)
        r->t->special[i] = ids[i] < r->t->vocab.count ? ids[i] : -1;
}

static wf_status read_scores_model(reader *r, frame *f)
{
    wf_tokenizer *t = r->t;
    token_arrays a;
    bool prefix = true;
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_space_prefix", &prefix));
    WF_TRY(read_tokens(r, &a, false));
    WF_TRY(check_scores(r, &a));
    t->bpe.score = wf_arena_copy(&t->arena, a.scores, a.count * sizeof *a.scores);
    if (!t->bpe.score)
        return WF_ERR_MEMORY;
    t->bpe.fallback = true;
    f->bos = true;
    set_defaults(r, 1, 2, 0, -1);
    return wf_tokenizer_set_spaces(t, prefix, false);
}

/* The lowest score, which decides about unknown characters, is that of a normal token. User-defined
 * tokens get the best score. Byte tokens exist only where SentencePiece falls back to them. */
static wf_status set_scores(reader *r, const token_arrays *a)
{
    wf_unigram *u = &r->t->unigram;
    bool first = true;
    u->score = wf_arena_alloc(&r->t->arena, a->count * sizeof *u->score);
    if (!u->score)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < a->count; i++) {
        wf_token_kind kind = r->t->vocab.token[i].kind;
        if (!isfinite(a->scores[i]))
            return wf_fail(r->ctx, WF_ERR_FORMAT, "the score of token %zu of '%s' is infinite", i,
                           r->path);
        u->score[i] = kind == WF_TOKEN_USER ? 0 : (double)a->scores[i];
        if (kind == WF_TOKEN_NORMAL && (first || u->score[i] < u->least)) {
            u->least = u->score[i];
            first = false;
        }
        u->fallback = u->fallback || kind == WF_TOKEN_BYTE;
    }
    return WF_OK;
}

static wf_status read_charsmap(reader *r)
{
    wf_tokenizer *t = r->t;
    const wf_gguf_pair *pair = wf_gguf_find(r->f, KEY "precompiled_charsmap");
    if (!pair || (pair->kind == WF_GGUF_ARRAY && pair->count == 0))
        return WF_OK;
    if (pair->kind != WF_GGUF_ARRAY || (pair->element != WF_GGUF_I8 && pair->element != WF_GGUF_U8))
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': " KEY "precompiled_charsmap is not an array of bytes",
                       r->path);
    wf_charsmap *map = wf_arena_alloc(&t->arena, sizeof *map);
    if (!map)
        return WF_ERR_MEMORY;
    WF_TRY(wf_charsmap_init(map, &t->arena, r->path, pair->data, (size_t)pair->count));
    return wf_tokenizer_add_normal(
        t, (wf_normal_step){.kind = WF_NORMAL_PRECOMPILED, .map = map, .longest = true}, false);
}

static wf_status read_unigram_model(reader *r, frame *f)
{
    wf_tokenizer *t = r->t;
    token_arrays a;
    bool prefix = false, merge = false;
    t->model = WF_MODEL_UNIGRAM;
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_space_prefix", &prefix));
    WF_TRY(wf_gguf_get_bool(r->f, KEY "remove_extra_whitespaces", &merge));
    WF_TRY(read_tokens(r, &a, false));
    WF_TRY(check_scores(r, &a));
    WF_TRY(set_scores(r, &a));
    f->eos = true;
    set_defaults(r, -1, 1, 2, 0);
    WF_TRY(read_charsmap(r));
    return wf_tokenizer_set_spaces(t, prefix, merge);
}

/* llama.cpp always puts cls before a text and sep after it, whatever the keys say. */
static wf_status read_wordpiece_model(reader *r, frame *f)
{
    wf_tokenizer *t = r->t;
    token_arrays a;
    wf_normal_step bert = {.kind = WF_NORMAL_BERT, .clean = true, .chinese = true, .lower = true};
    t->model = WF_MODEL_WORDPIECE;
    t->wordpiece.prefix = "##";
    t->wordpiece.prefix_bytes = 2;
    t->wordpiece.longest = WF_WORDPIECE_LONGEST;
    WF_TRY(wf_gguf_get_bool(r->f, KEY "normalizer.lowercase", &bert.lower));
    bert.accents = bert.lower;
    WF_TRY(wf_gguf_get_bool(r->f, KEY "normalizer.strip_accents", &bert.accents));
    WF_TRY(read_tokens(r, &a, true));
    f->bert = true;
    set_defaults(r, 101, -1, 100, 0);
    WF_TRY(wf_tokenizer_add_normal(t, bert, false));
    WF_TRY(wf_tokenizer_add_words(
        t, (wf_words_step){.kind = WF_WORDS_SPACES, .behavior = WF_SPLIT_REMOVED}, false));
    WF_TRY(wf_tokenizer_add_words(t, (wf_words_step){.kind = WF_WORDS_PUNCTUATION}, false));
    return wf_tokenizer_add_decode(
        t, (wf_decode_step){
               .kind = WF_DECODE_WORDPIECE, .what = "##", .what_bytes = 2, .clean = true});
}

static const struct {
    const char *name;
    wf_status (*read)(reader *r, frame *f);
} models[] = {{"gpt2", read_bytes_model},
              {"llama", read_scores_model},
              {"t5", read_unigram_model},
              {"bert", read_wordpiece_model}};

static wf_status read_model(reader *r, frame *f)
{
    wf_gguf_text name;
    WF_TRY(wf_gguf_get_text(r->f, KEY "model", &name));
    if (!name.bytes)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no tokenizer (no " KEY "model)", r->path);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strlen(models[i].name) == name.len && memcmp(models[i].name, name.bytes, name.len) == 0)
            return models[i].read(r, f);
    return wf_fail(
        r->ctx, WF_ERR_UNSUPPORTED,
        "cannot read '%s': its tokenizer is of kind '%.*s', which Weft does not support; it supports "
        "gpt2 (byte-level BPE), llama (SentencePiece BPE), t5 (Unigram) and bert (WordPiece)",
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

/* Stores the token of unknown text in the model. */
static wf_status set_unknown(reader *r)
{
    wf_tokenizer *t = r->t;
    int32_t unknown = t->special[WF_SPECIAL_UNKNOWN];
    if (t->bpe.score && t->vocab.token[unknown].kind != WF_TOKEN_CONTROL)
        t->bpe.unknown = unknown;
    if (t->model == WF_MODEL_BPE)
        return WF_OK;
    if (unknown < 0 || !t->vocab.token[unknown].text)
        return wf_fail(r->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no token for unknown text (" KEY
                       "unknown_token_id), which its tokenizer needs",
                       r->path);
    t->wordpiece.unknown = t->unigram.unknown = unknown;
    if (t->vocab.token[unknown].kind == WF_TOKEN_CONTROL)
        t->vocab.token[unknown].kind = WF_TOKEN_UNKNOWN; /* plain text becomes it */
    return WF_OK;
}

/* Frames a text of BERT by cls and sep. Without a key for bos, that is cls. */
static wf_status frame_bert(reader *r)
{
    wf_tokenizer *t = r->t;
    int32_t sep = t->vocab.count > 102 ? 102 : -1;
    if (!wf_gguf_find(r->f, KEY "bos_token_id"))
        WF_TRY(read_id(r, KEY "cls_token_id", &t->special[WF_SPECIAL_BOS]));
    WF_TRY(read_id(r, KEY "seperator_token_id", &sep));
    if (t->special[WF_SPECIAL_BOS] >= 0)
        WF_TRY(wf_tokenizer_frame(t, false, t->special[WF_SPECIAL_BOS], true));
    return sep >= 0 ? wf_tokenizer_frame(t, true, sep, true) : WF_OK;
}

static wf_status read_special(reader *r, frame f)
{
    wf_tokenizer *t = r->t;
    int32_t eot = -1, eom = -1;
    WF_TRY(read_id(r, KEY "bos_token_id", &t->special[WF_SPECIAL_BOS]));
    WF_TRY(read_id(r, KEY "eos_token_id", &t->special[WF_SPECIAL_EOS]));
    WF_TRY(read_id(r, KEY "unknown_token_id", &t->special[WF_SPECIAL_UNKNOWN]));
    WF_TRY(read_id(r, KEY "padding_token_id", &t->special[WF_SPECIAL_PAD]));
    WF_TRY(read_id(r, KEY "eot_token_id", &eot));
    WF_TRY(read_id(r, KEY "eom_token_id", &eom));
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_bos_token", &f.bos));
    WF_TRY(wf_gguf_get_bool(r->f, KEY "add_eos_token", &f.eos));
    WF_TRY(set_unknown(r));
    if (f.bert) {
        WF_TRY(frame_bert(r));
        f.bos = f.eos = false;
    }
    if (f.bos && t->special[WF_SPECIAL_BOS] >= 0)
        WF_TRY(wf_tokenizer_frame(t, false, t->special[WF_SPECIAL_BOS], true));
    if (f.eos && t->special[WF_SPECIAL_EOS] >= 0)
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
    frame around = {0};
    *out = NULL;
    WF_TRY(wf_tokenizer_new(ctx, &r.t));
    wf_status status = read_model(&r, &around);
    if (status == WF_OK)
        status = read_special(&r, around);
    if (status == WF_OK)
        *out = r.t;
    else
        wf_tokenizer_free(r.t);
    return status;
}

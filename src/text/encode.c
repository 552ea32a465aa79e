/* SPDX-License-Identifier: MIT */
/*
 * encode.c - encodes text to ids: added tokens, normalizer, pre-tokenizer, model.
 *
 * Input that is not UTF-8 is repaired first: U+FFFD replaces each invalid sequence. The text is
 * then cut at added tokens that match the raw text; the pieces between are normalized, cut at added
 * tokens that match the normalized text, and split into words. Marks (plain[]) follow the bytes
 * through all of this, because a control token matches in unmarked text only.
 */
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/token_priv.h"
#include "text/utf8.h"

typedef struct {
    const wf_tokenizer *t;     /* shared, read only */
    wf_bpe_run out;            /* the ids, and buffers that are reused between words */
    wf_unigram_run paths;      /* of Unigram, reused too */
    wf_added_scan raw, normal; /* added tokens in the raw and in the normalized text */
    bool control;              /* control tokens match */
    bool continued;            /* the text continues an earlier piece */
} run;

static run run_begin(const wf_tokenizer *t, wf_ctx *ctx)
{
    return (run){.t = t, .out = {.ctx = ctx}, .raw = {.ctx = ctx}, .normal = {.ctx = ctx}};
}

/* Frees everything but the ids. */
static void run_end(run *r)
{
    wf_bpe_run_free(&r->out);
    wf_unigram_run_free(&r->paths, r->out.ctx);
    wf_added_scan_free(&r->raw);
    wf_added_scan_free(&r->normal);
}

static wf_status encode_word(void *user, const char *word, size_t bytes)
{
    run *r = user;
    const wf_tokenizer *t = r->t;
    switch (t->model) {
    case WF_MODEL_WORDPIECE: return wf_wordpiece_word(&t->wordpiece, &r->out, word, bytes);
    case WF_MODEL_UNIGRAM: return wf_unigram_word(&t->unigram, &r->paths, &r->out, word, bytes);
    default: return wf_bpe_word(&t->bpe, &r->out, word, bytes);
    }
}

/* Encodes text without added tokens. first: it is at the start of the whole text. */
static wf_status encode_plain(run *r, const char *s, size_t n, bool first)
{
    const wf_tokenizer *t = r->t;
    return n == 0 ? WF_OK
                  : wf_words_run(r->out.ctx, t->words, t->word_count, t->bpe.bytes, first, s, n,
                                 encode_word, r);
}

/* Encodes the text between raw added tokens: normalizes it and matches the other added tokens. */
static wf_status encode_between(run *r, wf_marked from, bool first)
{
    wf_marked changed;
    wf_added_match m;
    size_t at = 0;
    bool found = true;
    if (from.bytes == 0)
        return WF_OK;
    /* Without control tokens the marks cannot matter, so the normalizer need not carry them. */
    if (!r->t->normal.control)
        from.plain = NULL;
    int skip = 0; /* PREPEND applies only at the start of a text */
    while (first && r->continued && skip < r->t->normal_count &&
           r->t->normals[skip].kind == WF_NORMAL_PREPEND)
        skip++;
    WF_TRY(
        wf_normal_run(r->out.ctx, r->t->normals + skip, r->t->normal_count - skip, from, &changed));
    if (changed.text)
        from = changed;
    wf_status status = WF_OK;
    wf_added_scan_begin(&r->normal, &r->t->normal, from.text, from.plain, from.bytes, r->control);
    while (status == WF_OK) {
        status = wf_added_scan_next(&r->normal, &found, &m);
        if (status != WF_OK || !found)
            break;
        if (m.begin > at)
            status = encode_plain(r, from.text + at, m.begin - at, first && at == 0);
        if (status == WF_OK)
            status = wf_bpe_push(&r->out, m.id);
        at = m.end;
    }
    if (status == WF_OK)
        status = encode_plain(r, from.text + at, from.bytes - at, first && at == 0);
    wf_mem_free(r->out.ctx, (void *)changed.text);
    wf_mem_free(r->out.ctx, (void *)changed.plain);
    return status;
}

static wf_marked part(wf_marked m, size_t begin, size_t end)
{
    return (wf_marked){m.text + begin, m.plain ? m.plain + begin : NULL, end - begin};
}

/* Cuts at the raw added tokens. A match may begin before `at`, when the one before removed white
 * space. */
static wf_status encode_text(run *r, wf_marked from)
{
    size_t at = 0;
    wf_added_match m;
    bool found;
    wf_added_scan_begin(&r->raw, &r->t->raw, from.text, from.plain, from.bytes, r->control);
    for (;;) {
        WF_TRY(wf_added_scan_next(&r->raw, &found, &m));
        if (!found)
            break;
        if (m.begin > at)
            WF_TRY(encode_between(r, part(from, at, m.begin), at == 0));
        WF_TRY(wf_bpe_push(&r->out, m.id));
        at = m.end;
    }
    return encode_between(r, part(from, at, from.bytes), at == 0);
}

static bool any_set(const uint8_t *marks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (marks[i])
            return true;
    return false;
}

/* Replaces *text by a valid copy with U+FFFD for each invalid sequence, and *plain by its marks. A
 * character is plain if any of its original bytes was. The caller frees both. */
static wf_status repair(wf_ctx *ctx, const char **text, const uint8_t **plain, size_t *n)
{
    /* At worst every byte becomes three. */
    size_t room, out = 0, length;
    char *copy = wf_mem_new(ctx, wf_mul_size(*n, 3, &room) ? room : SIZE_MAX);
    uint8_t *marks = copy && *plain ? wf_mem_new(ctx, room) : NULL;
    if (!copy || (*plain && !marks)) {
        wf_mem_free(ctx, copy);
        return WF_ERR_MEMORY;
    }
    for (size_t i = 0; i < *n; i += length) {
        bool whole = wf_utf8_look(*text + i, *n - i, &length) == WF_UTF8_WHOLE;
        size_t bytes = whole ? length : 3;
        memcpy(copy + out, whole ? *text + i : WF_UTF8_REPLACEMENT, bytes);
        if (marks)
            memset(marks + out, any_set(*plain + i, length), bytes);
        out += bytes;
    }
    *text = copy;
    *plain = marks;
    *n = out;
    return WF_OK;
}

/* parts: WF_PART_ bits; bos and eos frame only the first and last part. */
static wf_status encode(run *r, const char *text, const uint8_t *plain, size_t n, uint32_t flags,
                        uint32_t parts)
{
    uint32_t framed = flags & WF_TEXT_SPECIAL ? parts : 0;
    const wf_tokenizer *t = r->t;
    const char *valid = text;
    const uint8_t *marks = plain;
    wf_ctx *ctx = r->out.ctx;
    for (int i = 0; framed & WF_PART_FIRST && i < t->before_count; i++)
        WF_TRY(wf_bpe_push(&r->out, t->before[i]));
    if (!wf_utf8_valid(text, n))
        WF_TRY(repair(ctx, &valid, &marks, &n));
    wf_status status = encode_text(r, (wf_marked){valid, marks, n});
    if (valid != text) {
        wf_mem_free(ctx, (void *)valid);
        wf_mem_free(ctx, (void *)marks);
    }
    for (int i = 0; status == WF_OK && framed & WF_PART_LAST && i < t->after_count; i++)
        status = wf_bpe_push(&r->out, t->after[i]);
    return status;
}

wf_status wf_tokenizer_encode_marked(const wf_tokenizer *t, wf_ctx *ctx, const char *text,
                                     const uint8_t *plain, size_t bytes, uint32_t flags,
                                     int32_t **ids, size_t *count)
{
    run r = run_begin(t, ctx);
    r.control = flags & WF_TEXT_CONTROL;
    wf_status status = encode(&r, text, plain, bytes, flags, WF_PART_FIRST | WF_PART_LAST);
    run_end(&r);
    if (status == WF_OK && !r.out.ids) { /* no ids: return an empty block, not NULL */
        r.out.ids = wf_mem_new(ctx, 0);
        status = r.out.ids ? WF_OK : WF_ERR_MEMORY;
    }
    if (status != WF_OK) {
        wf_mem_free(ctx, r.out.ids);
        r.out.ids = NULL;
        r.out.count = 0;
    }
    *ids = r.out.ids;
    *count = r.out.count;
    return status;
}

wf_status wf_tokenizer_encode(const wf_tokenizer *t, wf_ctx *ctx, const char *text, size_t bytes,
                              uint32_t flags, int32_t **ids, size_t *count)
{
    return wf_tokenizer_encode_marked(t, ctx, text, NULL, bytes, flags, ids, count);
}

void wf_ids_free(wf_ctx *ctx, int32_t *ids)
{
    wf_mem_free(ctx, ids);
}

/* ---- Many texts ---- */

struct wf_encoder {
    run r;
};

wf_status wf_encoder_new(const wf_tokenizer *t, wf_ctx *ctx, wf_encoder **out)
{
    wf_encoder *e = *out = wf_mem_new(ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->r = run_begin(t, ctx);
    /* The cache holds ids, so it must not be shared between tokenizers. */
    e->r.out.cache = wf_mem_array(ctx, WF_CACHE_WORDS, sizeof *e->r.out.cache);
    if (e->r.out.cache)
        return WF_OK;
    wf_encoder_free(e);
    *out = NULL;
    return WF_ERR_MEMORY;
}

void wf_encoder_free(wf_encoder *e)
{
    if (!e)
        return;
    wf_ctx *ctx = e->r.out.ctx;
    run_end(&e->r);
    wf_mem_free(ctx, e->r.out.ids);
    wf_mem_free(ctx, e->r.out.cache);
    wf_mem_free(ctx, e);
}

wf_status wf_encoder_run(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                         const int32_t **ids, size_t *count)
{
    return wf_encoder_part(e, text, bytes, flags, WF_PART_FIRST | WF_PART_LAST, ids, count);
}

wf_status wf_encoder_part(wf_encoder *e, const char *text, size_t bytes, uint32_t flags,
                          uint32_t part, const int32_t **ids, size_t *count)
{
    e->r.control = flags & WF_TEXT_CONTROL;
    e->r.continued = !(part & WF_PART_FIRST);
    e->r.out.count = 0;
    wf_status status = encode(&e->r, text, NULL, bytes, flags, part);
    *ids = e->r.out.ids;
    *count = status == WF_OK ? e->r.out.count : 0;
    return status;
}

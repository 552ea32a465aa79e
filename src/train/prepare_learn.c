/* SPDX-License-Identifier: MIT */
/* prepare_learn.c - samples text to learn a tokenizer from, and chooses the documents to hold
 * out. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/philox.h"
#include "train/prepare_priv.h"

/* ---- Held-out documents ---- */

#define FEW 10      /* hold out nothing from fewer documents */
#define LEAST 1e-12 /* smaller shares select nothing in any text, and numbers would overflow */

/* With few documents a share of them would be none, so the end of each text, or a single record, is
 * held out instead. */
wf_status wf_holding_plan(wf_ctx *ctx, const wf_sources *s, const char *split_on, double share,
                          wf_holding *out)
{
    int64_t documents;
    bool lines = false;
    *out = (wf_holding){0};
    if (share < LEAST)
        return WF_OK;
    out->share = share;
    for (size_t i = 0; i < s->count; i++)
        lines = lines || s->source[i].kind != WF_SOURCE_TEXT;
    int64_t stretch = (int64_t)ceil(1 / share), enough = 2 * stretch;
    WF_TRY(wf_count_documents(ctx, s, split_on, enough, &documents));
    if (documents >= enough)
        return WF_OK;
    if (!lines)
        *out = (wf_holding){.tail = share};
    else if (documents < FEW)
        *out = (wf_holding){0};
    else if (documents < stretch) /* exactly one */
        out->share = 1.0 / (double)documents;
    return WF_OK;
}

/* Group g starts at document ceil(g / share). */
bool wf_holding_takes(const wf_holding *h, int64_t document)
{
    if (h->share <= 0)
        return false;
    double stretch = floor((double)document * h->share);
    /* Rounding may put a document on the wrong side of a boundary. */
    if (ceil((stretch + 1) / h->share) <= (double)document)
        stretch++;
    if (ceil(stretch / h->share) > (double)document)
        stretch--;
    int64_t begin = (int64_t)ceil(stretch / h->share),
            end = (int64_t)ceil((stretch + 1) / h->share);
    wf_rng rng;
    wf_rng_init(&rng, (uint64_t)stretch, 0);
    return document == begin + (int64_t)wf_rng_below(&rng, (uint64_t)(end - begin));
}

/* ---- Sampling text for the tokenizer ---- */

#define SAMPLE ((int64_t)64 << 20) /* bytes to learn from, unless the caller says otherwise */
#define CHUNK ((size_t)1 << 16)    /* bytes sampled at a time */

typedef struct {
    wf_ctx *ctx;
    char *bytes; /* of all texts */
    size_t count, room;
    size_t *end; /* [texts]: end of each, in bytes */
    size_t texts, texts_room;
    double share; /* of the chunks that are taken */
    double due;   /* chunks due so far, minus those taken */
    uint64_t taken;
} sampling;

static wf_status add_text(sampling *s, const char *text, size_t n)
{
    if (n > s->room - s->count) {
        size_t room = s->count + n > 2 * s->room ? s->count + n : 2 * s->room;
        char *grown = wf_mem_grow(s->ctx, s->bytes, room);
        if (!grown)
            return WF_ERR_MEMORY;
        s->bytes = grown;
        s->room = room;
    }
    if (s->texts == s->texts_room) {
        size_t room = s->texts_room ? 2 * s->texts_room : 64;
        size_t *grown = wf_mem_grow(s->ctx, s->end, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        s->end = grown;
        s->texts_room = room;
    }
    if (n > 0)
        memcpy(s->bytes + s->count, text, n);
    s->count += n;
    s->end[s->texts++] = s->count;
    return WF_OK;
}

/* Adds the text of a record. A malformed record is skipped here, and reported when it is
 * encoded. */
static wf_status add_line(sampling *s, wf_arena *arena, const char *text, size_t n)
{
    wf_json_node *line;
    if (wf_json_parse(arena, "it", text, n, &line) != WF_OK)
        return wf_ctx_status(s->ctx) == WF_ERR_MEMORY ? WF_ERR_MEMORY : WF_OK;
    wf_entry entry;
    if (wf_entry_read(arena, line, &entry) != WF_OK)
        return wf_ctx_status(s->ctx) == WF_ERR_MEMORY ? WF_ERR_MEMORY : WF_OK;
    if (entry.text)
        WF_TRY(add_text(s, entry.text->string, entry.text->bytes));
    if (entry.completion)
        WF_TRY(add_text(s, entry.completion->string, entry.completion->bytes));
    for (size_t i = 0; i < entry.messages.count; i++) {
        const wf_json_node *said = wf_json_get(&entry.messages.child[i], "content");
        if (said && said->kind == WF_JSON_STRING)
            WF_TRY(add_text(s, said->string, said->bytes));
    }
    return WF_OK;
}

static wf_status add_lines(sampling *s, const char *text, size_t n)
{
    wf_arena arena;
    wf_arena_init(&arena, s->ctx);
    wf_status status = WF_OK;
    for (size_t at = 0, length; at < n && status == WF_OK; at += length + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        length = end ? (size_t)(end - text) - at : n - at;
        status = add_line(s, &arena, text + at, length);
        wf_arena_free(&arena);
    }
    return status;
}

static wf_status add_elements(sampling *s, const char *text, size_t n)
{
    wf_arena arena;
    wf_arena_init(&arena, s->ctx);
    wf_status status = WF_OK;
    size_t at = 0, begin, end;
    while (status == WF_OK &&
           wf_element_next(text, n, false, WF_LINE_BYTES, &at, &begin, &end) == WF_ELEMENT) {
        status = add_line(s, &arena, text + begin, end - begin);
        wf_arena_free(&arena);
    }
    return status;
}

/* Returns the end of the chunk's last line if it is near, else a character boundary. */
static size_t chunk_end(const char *text, size_t size, size_t at, wf_source_kind kind)
{
    if (kind == WF_SOURCE_ARRAY) {
        size_t from = at, begin, last = size;
        while (at - from < CHUNK &&
               wf_element_next(text, size, true, WF_LINE_BYTES, &at, &begin, &last) == WF_ELEMENT)
            ;
        return at > from ? at : size;
    }
    if (size - at <= CHUNK)
        return size;
    size_t end = at + CHUNK, left = size - end,
           most = kind == WF_SOURCE_LINES ? WF_LINE_BYTES : CHUNK;
    const char *line_end = memchr(text + end, '\n', left < most ? left : most);
    if (line_end)
        return (size_t)(line_end - text) + 1;
    while (end < size && ((uint8_t)text[end] & 0xC0) == 0x80)
        end++;
    return end;
}

/* Takes every 1/share-th chunk, spread evenly over all files (error diffusion in `due`). */
static wf_status sample_source(sampling *s, const wf_opened *o)
{
    const char *text = (const char *)o->map->data;
    size_t size = o->map->size, end;
    for (size_t at = wf_source_data(o); at < size; at = end) {
        end = chunk_end(text, size, at, o->source->kind);
        s->due += s->share;
        if (s->due < (double)(s->taken + 1) && s->share < 1)
            continue;
        s->taken++;
        WF_TRY(o->source->kind == WF_SOURCE_LINES   ? add_lines(s, text + at, end - at)
               : o->source->kind == WF_SOURCE_ARRAY ? add_elements(s, text + at, end - at)
                                                    : add_text(s, text + at, end - at));
        wf_map_forget(o->map, at, end - at);
    }
    return WF_OK;
}

static wf_status sample_all(sampling *s, const wf_sources *sources)
{
    for (size_t i = 0; i < sources->count; i++) {
        wf_opened o;
        WF_TRY(wf_source_open(s->ctx, &sources->source[i], &o));
        wf_status status = sample_source(s, &o), closed = wf_source_close(s->ctx, &o);
        if (status != WF_OK || closed != WF_OK)
            return status != WF_OK ? status : closed;
    }
    wf_ctx_clear(s->ctx);
    return WF_OK;
}

/* ---- Learning ---- */

/* Tokens must be frequent enough to be learned; rarer ones only make the model larger. */
static int32_t usual_vocab(uint64_t bytes)
{
    static const struct {
        uint64_t bytes;
        int32_t vocab;
    } sizes[] = {{256 << 10, 512},  {2 << 20, 2048},  {16 << 20, 4096},
                 {128 << 20, 8192}, {1 << 30, 16384}, {UINT64_MAX, 32768}};
    size_t i = 0;
    while (bytes > sizes[i].bytes)
        i++;
    return sizes[i].vocab;
}

typedef struct {
    const wf_prepare_options *o;
    int64_t bytes;
} telling;

static void tell(void *user, double done)
{
    const telling *t = user;
    (void)t->o->progress(t->o->user, "learning", (int64_t)(done * (double)t->bytes), t->bytes);
}

static wf_status learn(sampling *s, const wf_prepare_options *o, int32_t vocab, wf_tokenizer **out)
{
    /* The last two serve later finetuning on conversations. */
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    telling t = {.o = o, .bytes = (int64_t)s->count};
    const wf_bpe_options options = {.vocab = vocab,
                                    .special = special,
                                    .specials = 3,
                                    .threads = o->threads,
                                    .progress = o->progress ? tell : NULL,
                                    .user = &t};
    wf_text *texts = wf_mem_array(s->ctx, s->texts, sizeof *texts);
    if (!texts)
        return WF_ERR_MEMORY;
    for (size_t i = 0, at = 0; i < s->texts; at = s->end[i++])
        texts[i] = (wf_text){s->bytes + at, s->end[i] - at};
    wf_status status = wf_tokenizer_train(s->ctx, texts, s->texts, &options, out);
    wf_mem_free(s->ctx, texts);
    return status;
}

wf_status wf_prepare_learn(wf_ctx *ctx, const wf_sources *sources, const wf_prepare_options *o,
                           wf_tokenizer **out)
{
    double most = (double)(o->sample > 0 ? o->sample : SAMPLE);
    sampling s = {.ctx = ctx,
                  .share = (double)sources->bytes <= most ? 1 : most / (double)sources->bytes};
    s.due = 1 - s.share; /* always take the first chunk */
    wf_status status = sample_all(&s, sources);
    if (status == WF_OK)
        status = learn(&s, o, o->vocab > 0 ? o->vocab : usual_vocab(sources->bytes), out);
    wf_mem_free(ctx, s.bytes);
    wf_mem_free(ctx, s.end);
    return status;
}

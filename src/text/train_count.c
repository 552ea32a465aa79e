/* SPDX-License-Identifier: MIT */
/*
 * train_count.c - see train_count.h.
 *
 * Texts are cut into chunks where a word boundary is certain. Workers take chunks from a shared
 * atomic counter and count into tables of their own, which are merged at the end: no locks. Each
 * worker has its own context, since contexts are not thread-safe.
 */
#include "text/train_count.h"

#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"
#include "text/unicode.h"
#include "text/utf8.h"

#define CHUNK ((size_t)1 << 18) /* bytes of text per unit of work */

/* ---- The table ---- */

/* Returns p, or a larger block that replaces it, with room for `wanted` items. Doubles the room.
 * NULL: out of memory, and p stays valid. */
static void *reserve(wf_ctx *ctx, void *p, size_t *room, size_t wanted, size_t size)
{
    size_t next = *room > 64 ? *room : 64, bytes;
    if (p && wanted <= *room)
        return p;
    while (next < wanted)
        next = next <= SIZE_MAX / 2 ? next * 2 : SIZE_MAX;
    p = wf_mem_grow(ctx, p, wf_mul_size(next, size, &bytes) ? bytes : SIZE_MAX);
    *room = p ? next : *room;
    return p;
}

/* Doubles the hash table. The load stays at or below one half. */
static bool make_slots(wf_counts *c)
{
    size_t slots = c->slot ? 2 * (c->mask + 1) : 1024;
    uint32_t *slot = wf_mem_array(c->ctx, slots, sizeof *slot);
    if (!slot)
        return false;
    for (size_t w = 0; w < c->words; w++) {
        size_t i = c->word[w].hash & (slots - 1);
        while (slot[i])
            i = (i + 1) & (slots - 1);
        slot[i] = (uint32_t)w + 1;
    }
    wf_mem_free(c->ctx, c->slot);
    c->slot = slot;
    c->mask = slots - 1;
    return true;
}

/* Adds `times` occurrences of a word; copies it if it is new. An int64_t count cannot overflow: it
 * is at most the bytes of all texts, which the caller limits. */
static wf_status add_word(wf_counts *c, const char *word, size_t bytes, uint32_t hash,
                          int64_t times)
{
    if ((!c->slot || 2 * c->words > c->mask) && !make_slots(c))
        return WF_ERR_MEMORY;
    size_t i = hash & c->mask, wanted;
    for (; c->slot[i]; i = (i + 1) & c->mask) {
        wf_counted_word *w = &c->word[c->slot[i] - 1];
        if (w->hash == hash && w->bytes == bytes && memcmp(c->text + w->at, word, bytes) == 0) {
            w->count += times;
            return WF_OK;
        }
    }
    if (c->words == UINT32_MAX - 1)
        return wf_fail(c->ctx, WF_ERR_UNSUPPORTED,
                       "the texts have more than %zu distinct words; train on a part of them",
                       c->words);
    if (!wf_add_size(c->used, bytes, &wanted))
        wanted = SIZE_MAX;
    char *text = reserve(c->ctx, c->text, &c->room, wanted, 1);
    c->text = text ? text : c->text;
    wf_counted_word *list =
        text ? reserve(c->ctx, c->word, &c->word_room, c->words + 1, sizeof *list) : NULL;
    if (!list)
        return WF_ERR_MEMORY;
    c->word = list;
    memcpy(c->text + c->used, word, bytes);
    c->word[c->words] = (wf_counted_word){c->used, bytes, times, hash};
    c->slot[i] = (uint32_t)++c->words;
    c->used += bytes;
    return WF_OK;
}

static wf_status count_word(void *user, const char *word, size_t bytes)
{
    return add_word(user, word, bytes, wf_hash_bytes(word, bytes), 1);
}

void wf_counts_free(wf_counts *c)
{
    wf_mem_free(c->ctx, c->text);
    wf_mem_free(c->ctx, c->word);
    wf_mem_free(c->ctx, c->slot);
    *c = (wf_counts){.ctx = c->ctx};
}

/* ---- Cutting texts ---- */

/* Returns the first offset at or after `from` where a word boundary does not depend on the context:
 * between a letter or number and a space or punctuation. No hand-written pattern continues a word
 * there; their lookahead for white space only applies after white space; and NFC does not compose
 * across it. */
static size_t safe_cut(const char *s, size_t n, size_t from)
{
    bool after_word = false;
    size_t length;
    while (from < n && ((uint8_t)s[from] & 0xC0) == 0x80)
        from++;
    for (; from < n; from += length) {
        unsigned class = 0;
        if (wf_utf8_look(s + from, n - from, &length) == WF_UTF8_WHOLE) {
            size_t same;
            class = wf_char_class(wf_utf8_decode(s + from, &same));
        }
        if (after_word && class & (WF_CHAR_SPACE | WF_CHAR_P))
            return from;
        after_word = class & (WF_CHAR_L | WF_CHAR_N);
    }
    return n;
}

/* Cuts the texts into chunks of about CHUNK bytes; longer ones where no cut is possible. */
static wf_status cut_texts(wf_ctx *ctx, const wf_text *texts, size_t count, wf_text **out,
                           size_t *chunks)
{
    size_t room = 0;
    *out = NULL;
    *chunks = 0;
    for (size_t i = 0; i < count; i++) {
        const char *s = texts[i].text;
        for (size_t n = texts[i].bytes, end; n > 0; s += end, n -= end) {
            end = n > CHUNK ? safe_cut(s, n, CHUNK) : n;
            wf_text *list = reserve(ctx, *out, &room, *chunks + 1, sizeof *list);
            if (!list)
                return WF_ERR_MEMORY;
            *out = list;
            list[(*chunks)++] = (wf_text){s, end};
        }
    }
    return WF_OK;
}

/* ---- Counting ---- */

typedef struct {
    const wf_tokenizer *t;
    const wf_count_options *options;
    const wf_text *chunk; /* [chunks] */
    size_t chunks;
    atomic_size_t next, done; /* chunks taken, chunks counted */
    wf_counts *counts;        /* [workers], each with its own context */
    wf_status *status;        /* [workers] */
} job;

/* Replaces invalid UTF-8 by U+FFFD, as encoding does. */
static wf_status repair(wf_ctx *ctx, const char *s, size_t n, char **out, size_t *bytes)
{
    wf_writer w = {.ctx = ctx};
    size_t length;
    for (size_t i = 0; i < n; i += length) {
        bool whole = wf_utf8_look(s + i, n - i, &length) == WF_UTF8_WHOLE;
        wf_writer_bytes(&w, whole ? s + i : WF_UTF8_REPLACEMENT, whole ? length : 3);
    }
    return wf_writer_take(&w, out, bytes);
}

/* Repairs, normalizes and splits one chunk, as encoding would. */
static wf_status count_chunk(const wf_tokenizer *t, wf_counts *c, const wf_text *chunk)
{
    char *valid = NULL;
    wf_marked from = {.text = chunk->text, .bytes = chunk->bytes}, normal = {0};
    wf_status status = WF_OK;
    if (!wf_utf8_valid(from.text, from.bytes)) {
        status = repair(c->ctx, from.text, from.bytes, &valid, &from.bytes);
        from.text = valid;
    }
    if (status == WF_OK)
        status = wf_normal_run(c->ctx, t->normals, t->normal_count, from, &normal);
    if (normal.text)
        from = normal;
    if (status == WF_OK)
        status = wf_words_run(c->ctx, t->words, t->word_count, true, true, from.text, from.bytes,
                              count_word, c);
    wf_mem_free(c->ctx, valid);
    wf_mem_free(c->ctx, (void *)normal.text);
    return status;
}

/* Each worker takes the next chunk. The assignment of words to tables does not affect the
 * result. */
static void work(void *arg, int64_t begin, int64_t end, int thread)
{
    job *j = arg;
    (void)thread;
    for (int64_t me = begin; me < end; me++) {
        for (size_t i; j->status[me] == WF_OK && (i = atomic_fetch_add(&j->next, 1)) < j->chunks;) {
            j->status[me] = count_chunk(j->t, &j->counts[me], &j->chunk[i]);
            size_t done = 1 + atomic_fetch_add(&j->done, 1);
            /* Worker 0 runs in the calling thread, where the callback is promised to run. */
            if (me == 0 && j->options->progress)
                j->options->progress(j->options->user, (double)done / (double)j->chunks);
        }
        if (j->status[me] != WF_OK) /* stop the other workers */
            atomic_store(&j->next, j->chunks);
    }
}

/* Worker 0 uses the caller's context; the others need their own, as contexts are not
 * thread-safe. */
static wf_status open_workers(job *j, wf_ctx *ctx, int workers)
{
    for (int i = 0; i < workers; i++) {
        if (i > 0 && wf_ctx_new(&j->counts[i].ctx) != WF_OK)
            return wf_fail(ctx, WF_ERR_MEMORY, "out of memory: no context for thread %d", i);
        if (i > 0) /* fault injection applies to each context */
            wf_ctx_fail_allocation(j->counts[i].ctx, ctx->fail_in_calls);
        else
            j->counts[i].ctx = ctx;
    }
    return WF_OK;
}

/* Merges all tables into worker 0's. */
static wf_status join_workers(job *j, wf_ctx *ctx, int workers)
{
    WF_TRY(j->status[0]);
    for (int i = 1; i < workers; i++)
        if (j->status[i] != WF_OK)
            return wf_fail(ctx, j->status[i], "%s", wf_ctx_message(j->counts[i].ctx));
    for (int i = 1; i < workers; i++) {
        const wf_counts *c = &j->counts[i];
        for (size_t w = 0; w < c->words; w++)
            WF_TRY(add_word(&j->counts[0], c->text + c->word[w].at, c->word[w].bytes,
                            c->word[w].hash, c->word[w].count));
        wf_counts_free(&j->counts[i]);
    }
    return WF_OK;
}

static wf_status run_job(job *j, wf_ctx *ctx, int workers, wf_counts *out)
{
    j->counts = wf_mem_array(ctx, (size_t)workers, sizeof *j->counts);
    j->status = wf_mem_array(ctx, (size_t)workers, sizeof *j->status);
    wf_status status = j->counts && j->status ? open_workers(j, ctx, workers) : WF_ERR_MEMORY;
    if (status == WF_OK) {
        wf_parallel_for(workers, workers, 1, work, j);
        status = join_workers(j, ctx, workers);
        *out = j->counts[0];
    }
    for (int i = 1; i < workers && j->counts && j->counts[i].ctx; i++) {
        wf_counts_free(&j->counts[i]);
        wf_ctx_free(j->counts[i].ctx);
    }
    wf_mem_free(ctx, j->counts);
    wf_mem_free(ctx, j->status);
    return status;
}

wf_status wf_counts_make(wf_ctx *ctx, const wf_tokenizer *t, const wf_text *texts, size_t count,
                         const wf_count_options *options, wf_counts *out)
{
    job j = {.t = t, .options = options};
    wf_text *chunk;
    *out = (wf_counts){.ctx = ctx};
    wf_status status = cut_texts(ctx, texts, count, &chunk, &j.chunks);
    int workers = j.chunks < (size_t)options->threads ? (int)j.chunks : options->threads;
    j.chunk = chunk;
    if (status == WF_OK && workers > 0)
        status = run_job(&j, ctx, workers, out);
    wf_mem_free(ctx, chunk);
    return status;
}

/* SPDX-License-Identifier: MIT */
/* bpe.c - see bpe.h. */
#include "text/bpe.h"

#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "text/utf8.h"

#define NOWHERE UINT32_MAX

/* ---- The table of merges ---- */

wf_status wf_merges_init(wf_merges *m, wf_arena *arena, size_t count)
{
    uint32_t slots = 16;
    wf_assert(count <= WF_VOCAB_MOST);
    while (slots < 2 * count)
        slots *= 2;
    *m = (wf_merges){.mask = slots - 1};
    m->slot = wf_arena_alloc(arena, slots * sizeof *m->slot);
    return m->slot ? WF_OK : WF_ERR_MEMORY;
}

static wf_merge *merge_slot(const wf_merges *m, uint32_t left, uint32_t right)
{
    uint32_t i = wf_hash_u64((uint64_t)left << 32 | right) & m->mask;
    for (;; i = (i + 1) & m->mask) {
        wf_merge *s = &m->slot[i];
        if (!s->made || (s->left == left && s->right == right))
            return s;
    }
}

void wf_merges_set(wf_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t made)
{
    *merge_slot(m, (uint32_t)left, (uint32_t)right) =
        (wf_merge){(uint32_t)left, (uint32_t)right, rank, (uint32_t)made + 1};
    m->count = rank + 1 > m->count ? rank + 1 : m->count;
}

const wf_merge *wf_merges_find(const wf_merges *m, int32_t left, int32_t right)
{
    const wf_merge *s = merge_slot(m, (uint32_t)left, (uint32_t)right);
    return s->made ? s : NULL;
}

/* Text never becomes a control token by itself. */
static bool is_plain(const wf_bpe *b, int32_t id)
{
    wf_token_kind kind = b->vocab->token[id].kind;
    return kind != WF_TOKEN_CONTROL && kind != WF_TOKEN_UNKNOWN && !b->vocab->token[id].outside;
}

static int32_t find_plain(const wf_bpe *b, const char *text, size_t bytes)
{
    int32_t id = wf_vocab_find(b->vocab, text, bytes);
    return id >= 0 && is_plain(b, id) ? id : -1;
}

void wf_bpe_index(wf_bpe *b)
{
    for (int i = 0; i < 256; i++) {
        static const char digit[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', digit[i >> 4], digit[i & 15], '>'};
        b->byte[i] = find_plain(b, name, 6);
        b->letter[i] = find_plain(b, name, wf_utf8_encode(wf_byte_letter((uint8_t)i), name));
    }
}

/* ---- What runs need ---- */

void wf_bpe_run_free(wf_bpe_run *r)
{
    wf_mem_free(r->ctx, r->next);
    wf_mem_free(r->ctx, r->prev);
    wf_mem_free(r->ctx, r->id);
    wf_mem_free(r->ctx, r->heap);
    wf_mem_free(r->ctx, r->spelled);
    r->next = r->prev = NULL;
    r->id = NULL;
    r->heap = NULL;
    r->spelled = NULL;
    r->room = r->spelled_room = 0;
}

wf_status wf_bpe_push(wf_bpe_run *r, int32_t id)
{
    if (r->count == r->cap) {
        size_t cap = r->cap ? 2 * r->cap : 256, bytes;
        int32_t *ids =
            wf_mem_grow(r->ctx, r->ids, wf_mul_size(cap, sizeof *ids, &bytes) ? bytes : SIZE_MAX);
        if (!ids)
            return WF_ERR_MEMORY;
        r->ids = ids;
        r->cap = cap;
    }
    r->ids[r->count++] = id;
    return WF_OK;
}

static wf_status make_room(wf_bpe_run *r, size_t bytes)
{
    if (bytes <= r->room)
        return WF_OK;
    if (bytes >= NOWHERE / 2)
        return wf_fail(
            r->ctx, WF_ERR_USAGE,
            "a text of %zu bytes without a place to split it is too long for the tokenizer", bytes);
    size_t room = bytes < 256 ? 256 : bytes < 65536 ? 2 * bytes : bytes;
    wf_mem_free(r->ctx, r->next);
    wf_mem_free(r->ctx, r->prev);
    wf_mem_free(r->ctx, r->id);
    wf_mem_free(r->ctx, r->heap);
    r->next = wf_mem_array(r->ctx, room, sizeof *r->next);
    r->prev = wf_mem_array(r->ctx, room, sizeof *r->prev);
    r->id = wf_mem_array(r->ctx, room, sizeof *r->id);
    r->heap = wf_mem_array(r->ctx, 2 * room, sizeof *r->heap);
    r->room = r->next && r->prev && r->id && r->heap ? room : 0;
    return r->room ? WF_OK : WF_ERR_MEMORY;
}

/* ---- A heap of pairs: what comes first in the high half, where it starts in the low one ---- */

static void heap_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 4] > key; i = (i - 1) / 4)
        heap[i] = heap[(i - 1) / 4];
    heap[i] = key;
}

static void heap_sink(uint64_t *heap, size_t n, size_t i, uint64_t key)
{
    for (;;) {
        size_t child = 4 * i + 1, least = child, end = child + 4 < n ? child + 4 : n;
        if (child >= n)
            break;
        for (size_t j = child + 1; j < end; j++)
            least = heap[j] < heap[least] ? j : least;
        if (heap[least] >= key)
            break;
        heap[i] = heap[least];
        i = least;
    }
    heap[i] = key;
}

static uint64_t heap_pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    if (--*n > 0)
        heap_sink(heap, *n, 0, heap[*n]);
    return top;
}

/* ---- Merging ---- */

/* Positive floats count up with their bits, negative ones down. */
uint32_t wf_score_rank(float score)
{
    uint32_t bits = wf_f32_bits(score == 0 ? 0.0f : score);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

/* Does the symbol at `left` merge with the one behind it? *rank says how early, *made what it becomes. */
static bool pair_merges(const wf_bpe *b, const wf_bpe_run *r, const char *word, size_t bytes,
                        uint32_t left, uint32_t *rank, int32_t *made)
{
    uint32_t right = r->next[left];
    if (right == NOWHERE)
        return false;
    if (b->score) {
        size_t end = r->next[right] == NOWHERE ? bytes : r->next[right];
        *made = find_plain(b, word + left, end - left);
        *rank = *made < 0 ? 0 : wf_score_rank(b->score[*made]);
        return *made >= 0 && b->vocab->token[*made].kind != WF_TOKEN_BYTE;
    }
    const wf_merge *m = r->id[left] < 0 || r->id[right] < 0
                            ? NULL
                            : wf_merges_find(&b->merges, r->id[left], r->id[right]);
    if (!m || !is_plain(b, (int32_t)(m->made - 1)))
        return false;
    *rank = m->rank;
    *made = (int32_t)(m->made - 1);
    return true;
}

static void merge_pairs(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes,
                        uint32_t first)
{
    size_t n = 0;
    uint32_t rank;
    int32_t made;
    for (uint32_t at = first; at != NOWHERE; at = r->next[at])
        if (pair_merges(b, r, word, bytes, at, &rank, &made))
            r->heap[n++] = (uint64_t)rank << 32 | at;
    for (size_t i = n / 4 + 1; n > 1 && i-- > 0;)
        heap_sink(r->heap, n, i, r->heap[i]);

    while (n > 0) {
        uint64_t top = heap_pop(r->heap, &n);
        uint32_t at = (uint32_t)top;
        /* What stood here may have been merged meanwhile: away (its next is itself), or into another pair. */
        if (r->next[at] == at || !pair_merges(b, r, word, bytes, at, &rank, &made) ||
            rank != top >> 32)
            continue;
        uint32_t gone = r->next[at], after = r->next[gone], before = r->prev[at];
        r->id[at] = made;
        r->next[at] = after;
        r->next[gone] = gone;
        if (after != NOWHERE)
            r->prev[after] = at;
        if (before != NOWHERE && pair_merges(b, r, word, bytes, before, &rank, &made))
            heap_push(r->heap, &n, (uint64_t)rank << 32 | before);
        if (pair_merges(b, r, word, bytes, at, &rank, &made))
            heap_push(r->heap, &n, (uint64_t)rank << 32 | at);
    }
}

/* The symbols that merging starts with, linked by their offsets. */
typedef struct {
    wf_bpe_run *r;
    uint32_t first, last;
    bool unknown; /* the last one is */
} chain;

static void chain_add(chain *c, size_t at, int32_t id)
{
    uint32_t here = (uint32_t)at;
    c->r->id[here] = id;
    c->r->prev[here] = c->last;
    c->r->next[here] = NOWHERE;
    if (c->last == NOWHERE)
        c->first = here;
    else
        c->r->next[c->last] = here;
    c->last = here;
}

/* A character that is no token: its bytes, or the unknown token, or nothing. */
static void chain_unknown(chain *c, const wf_bpe *b, const char *s, size_t at, size_t length)
{
    bool all = b->fallback;
    for (size_t i = 0; i < length && all; i++)
        all = b->byte[(uint8_t)s[at + i]] >= 0;
    if (all) {
        for (size_t i = 0; i < length; i++)
            chain_add(c, at + i, b->byte[(uint8_t)s[at + i]]);
    } else if (b->unknown >= 0) {
        if (!(b->fuse_unknown && c->unknown))
            chain_add(c, at, b->unknown);
        c->unknown = true;
        return;
    }
    c->unknown = false;
}

static uint32_t start_chain(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes)
{
    chain c = {.r = r, .first = NOWHERE, .last = NOWHERE};
    size_t length;
    for (size_t at = 0; at < bytes; at += length) {
        length = 1;
        int32_t id;
        if (b->bytes) {
            id = b->letter[(uint8_t)word[at]];
        } else {
            wf_utf8_decode(word + at, &length);
            id = find_plain(b, word + at, length);
        }
        if (id >= 0) {
            chain_add(&c, at, id);
            c.unknown = false;
        } else if (b->score) {
            chain_add(&c, at, -1); /* may still be part of a token; its bytes otherwise */
        } else {
            chain_unknown(&c, b, word, at, length);
        }
    }
    return c.first;
}

/* The token that is this word, or -1. */
static wf_status find_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes,
                           int32_t *id)
{
    if (!b->bytes) {
        *id = find_plain(b, word, bytes);
        return WF_OK;
    }
    *id = -1;
    if (bytes > b->vocab->longest)
        return WF_OK;
    if (r->spelled_room < 2 * bytes) {
        wf_mem_free(r->ctx, r->spelled);
        r->spelled_room = 4 * bytes;
        r->spelled = wf_mem_new(r->ctx, r->spelled_room);
        if (!r->spelled) {
            r->spelled_room = 0;
            return WF_ERR_MEMORY;
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        char letter[4];
        size_t length = wf_utf8_encode(wf_byte_letter((uint8_t)word[i]), letter);
        memcpy(r->spelled + n, letter, length);
        n += length;
    }
    *id = find_plain(b, r->spelled, n);
    return WF_OK;
}

/* A character that SentencePiece has no token for. */
static wf_status push_bytes(const wf_bpe *b, wf_bpe_run *r, const char *s, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n; i++)
        all = all && b->byte[(uint8_t)s[i]] >= 0;
    if (!all)
        return b->unknown >= 0 ? wf_bpe_push(r, b->unknown) : WF_OK;
    for (size_t i = 0; i < n; i++)
        WF_TRY(wf_bpe_push(r, b->byte[(uint8_t)s[i]]));
    return WF_OK;
}

static wf_status merge_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes)
{
    if (b->whole_words) {
        int32_t id;
        WF_TRY(find_word(b, r, word, bytes, &id));
        if (id >= 0)
            return wf_bpe_push(r, id);
    }
    WF_TRY(make_room(r, bytes));
    uint32_t first = start_chain(b, r, word, bytes);
    merge_pairs(b, r, word, bytes, first);
    for (uint32_t at = first; at != NOWHERE; at = r->next[at]) {
        if (r->id[at] >= 0) {
            WF_TRY(wf_bpe_push(r, r->id[at]));
        } else {
            size_t end = r->next[at] == NOWHERE ? bytes : r->next[at];
            WF_TRY(push_bytes(b, r, word + at, end - at));
        }
    }
    return WF_OK;
}

/* ---- Words seen before ---- */

/* The place of a word, which may hold another. */
static wf_cached_word *cache_slot(wf_cached_word *cache, const uint64_t key[2], size_t bytes)
{
    uint64_t secret = wf_hash_key(), h = wf_hash_mix(key[0] ^ secret, secret + bytes);
    return &cache[(wf_hash_mix(h ^ key[1], secret) >> 32) & (WF_CACHE_WORDS - 1)];
}

static wf_status cached_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes)
{
    uint64_t key[WF_CACHE_BYTES / 8] = {0};
    memcpy(key, word, bytes);
    wf_cached_word *c = cache_slot(r->cache, key, bytes);
    if (c->bytes == bytes && c->key[0] == key[0] && c->key[1] == key[1]) {
        for (int i = 0; i < c->count; i++)
            WF_TRY(wf_bpe_push(r, c->id[i]));
        return WF_OK;
    }
    size_t before = r->count;
    WF_TRY(merge_word(b, r, word, bytes));
    if (r->count - before <= WF_CACHE_IDS) {
        *c = (wf_cached_word){.key = {key[0], key[1]},
                              .bytes = (uint16_t)bytes,
                              .count = (uint16_t)(r->count - before)};
        memcpy(c->id, r->ids + before, c->count * sizeof *c->id);
    }
    return WF_OK;
}

wf_status wf_bpe_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes)
{
    if (bytes == 0)
        return WF_OK;
    return r->cache && bytes <= WF_CACHE_BYTES ? cached_word(b, r, word, bytes)
                                               : merge_word(b, r, word, bytes);
}

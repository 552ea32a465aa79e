/* SPDX-License-Identifier: MIT */
/*
 * bpe.c - see bpe.h.
 *
 * A stretch of a word is an array of slots. A symbol occupies length[] slots; id[] is valid in its
 * first slot, and its length stands in the first and last one, so both neighbours are found in
 * O(1). A merge only rewrites these ends. The heap may hold stale pairs; is_current recognises them
 * when they are popped.
 */
#include "text/bpe.h"

#include <string.h>

#include "base/check.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/mem.h"
#include "text/utf8.h"

#define NOWHERE UINT32_MAX /* no slot */
#define NO_TOKEN (-1)      /* a character that is not a token by itself */
#define GONE (-2)          /* the symbol was merged into the one before it */
#define STRETCH 4096       /* slots after which a word is cut at the next possible boundary */

/* ---- The hash table of merges ---- */

/* At least twice as many slots as merges, so that linear probing ends quickly and always. */
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

/* Returns the slot of this pair, or the free slot where it belongs. */
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

static bool is_control(const wf_bpe *b, int32_t id)
{
    wf_token_kind kind = b->vocab->token[id].kind;
    return kind == WF_TOKEN_CONTROL || kind == WF_TOKEN_UNKNOWN;
}

/* Returns a token of the model, control token or not; -1: missing. */
static int32_t find_any(const wf_bpe *b, const char *text, size_t bytes)
{
    int32_t id = wf_vocab_find(b->vocab, text, bytes);
    return id >= 0 && !b->vocab->token[id].outside ? id : -1;
}

/* Returns a token of the model that is not a control token; -1: missing. */
static int32_t find_plain(const wf_bpe *b, const char *text, size_t bytes)
{
    int32_t id = find_any(b, text, bytes);
    return id >= 0 && !is_control(b, id) ? id : -1;
}

/* ---- Character pairs that can be adjacent in a token ---- */

/* Character 0, which no symbol has, means "may join with anything". */
bool wf_bpe_joins(const wf_bpe *b, uint32_t left, uint32_t right)
{
    return !left || !right || wf_joins_has(&b->joins, left, right);
}

/* With scores, any two symbols merge if their concatenation is a token: record all adjacent pairs.
 * Returns false when the token is not UTF-8. */
static bool join_token(wf_bpe *b, const wf_vocab_token *t)
{
    if (!t->text)
        return true;
    if (!wf_utf8_valid(t->text, t->bytes))
        return false;
    wf_joins_add_token(&b->joins, t->text, t->bytes);
    return true;
}

/* With merges, symbols join only where the two tokens of a merge meet. */
static bool join_merge(wf_bpe *b, const wf_merge *m)
{
    const wf_vocab_token *left = &b->vocab->token[m->left], *right = &b->vocab->token[m->right];
    if (!left->bytes || !right->bytes || !wf_utf8_valid(left->text, left->bytes) ||
        !wf_utf8_valid(right->text, right->bytes))
        return false;
    size_t at = left->bytes - 1, length;
    while (at > 0 && ((uint8_t)left->text[at] & 0xC0) == 0x80)
        at--;
    uint32_t last = wf_utf8_decode(left->text + at, &length);
    wf_joins_add(&b->joins, last, wf_utf8_decode(right->text, &length));
    return true;
}

/* Fills the filter from the tokens (scores) or the merges, whichever decides what can merge. */
static void index_joins(wf_bpe *b)
{
    bool known = true;
    for (int32_t i = 0; b->score && i < b->vocab->count; i++)
        known = join_token(b, &b->vocab->token[i]) && known;
    for (size_t i = 0; !b->score && b->merges.slot && i <= b->merges.mask; i++)
        if (b->merges.slot[i].made)
            known = join_merge(b, &b->merges.slot[i]) && known;
    if (!known) /* a token is not UTF-8: never cut words */
        wf_joins_add_all(&b->joins);
}

/* ---- Control tokens that merges would make: text becomes their parts instead ---- */

/* Records for each control token the merge of the best rank that makes it. Most vocabularies have
 * none, so the tables are allocated on demand. */
static wf_status index_parts(wf_bpe *b, wf_arena *arena)
{
    uint32_t *rank = NULL;
    for (size_t i = 0; b->merges.slot && i <= b->merges.mask; i++) {
        const wf_merge *m = &b->merges.slot[i];
        int32_t made = (int32_t)m->made - 1;
        if (made < 0 || !is_control(b, made) || !b->vocab->token[m->left].bytes ||
            !b->vocab->token[m->right].bytes)
            continue;
        if (!b->parts) {
            b->parts = wf_arena_alloc(arena, (size_t)b->vocab->count * sizeof *b->parts);
            rank = wf_arena_alloc(arena, (size_t)b->vocab->count * sizeof *rank);
            if (!b->parts || !rank)
                return WF_ERR_MEMORY;
            memset(b->parts, 0xFF, (size_t)b->vocab->count * sizeof *b->parts);
        }
        if (b->parts[made].left >= 0 && rank[made] < m->rank)
            continue;
        rank[made] = m->rank;
        b->parts[made].left = (int32_t)m->left;
        b->parts[made].right = (int32_t)m->right;
    }
    return WF_OK;
}

wf_status wf_bpe_index(wf_bpe *b, wf_arena *arena)
{
    /* Control tokens are allowed here: a byte or character may have no other token. */
    for (int i = 0; i < 256; i++) {
        static const char digit[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', digit[i >> 4], digit[i & 15], '>'};
        b->byte[i] = find_any(b, name, 6);
        b->letter[i] = find_any(b, name, wf_utf8_encode(wf_byte_letter((uint8_t)i), name));
    }
    WF_TRY(wf_joins_init(&b->joins, arena));
    index_joins(b);
    return index_parts(b, arena);
}

/* ---- Buffers ---- */

void wf_bpe_run_free(wf_bpe_run *r)
{
    wf_mem_free(r->ctx, r->length);
    wf_mem_free(r->ctx, r->id);
    wf_mem_free(r->ctx, r->heap);
    wf_mem_free(r->ctx, r->spelled);
    r->length = NULL;
    r->id = NULL;
    r->heap = NULL;
    r->spelled = NULL;
    r->room = r->slots = 0;
    r->heap_room = r->spelled_room = 0;
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

/* Makes room for `slots` slots; fails for a stretch beyond the limit. */
static wf_status make_room(wf_bpe_run *r, uint32_t slots)
{
    if (slots <= r->room)
        return WF_OK;
    if (slots > WF_STRETCH_MOST)
        return wf_fail(r->ctx, WF_ERR_USAGE,
                       "the text has a word of more than %u MiB, the tokenizer's limit; add spaces "
                       "or line breaks",
                       WF_STRETCH_MOST >> 20);
    /* The limit above keeps doubling far below 2^32. */
    uint32_t room = r->room ? r->room : 256;
    while (room < slots)
        room *= 2;
    uint32_t *length = wf_mem_grow(r->ctx, r->length, room * sizeof *length);
    if (length)
        r->length = length;
    int32_t *id = length ? wf_mem_grow(r->ctx, r->id, room * sizeof *id) : NULL;
    if (!id)
        return WF_ERR_MEMORY;
    r->id = id;
    r->room = room;
    return WF_OK;
}

static wf_status make_heap(wf_bpe_run *r, size_t room)
{
    if (room <= r->heap_room)
        return WF_OK;
    uint64_t *heap = wf_mem_grow(r->ctx, r->heap, room * sizeof *heap);
    if (!heap)
        return WF_ERR_MEMORY;
    r->heap = heap;
    r->heap_room = room;
    return WF_OK;
}

/* ---- A 4-ary heap of pairs: rank in the high 32 bits, first slot in the low ones ---- */

/* heap[] has room; see clean_heap. Equal ranks order by slot, so the leftmost pair merges first. */
static void heap_push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 4] > key; i = (i - 1) / 4)
        heap[i] = heap[(i - 1) / 4];
    heap[i] = key;
}

/* Moves `key` down from position i, whose old entry is lost. */
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

/* The bits of positive floats increase with the value, those of negative ones decrease. */
uint32_t wf_score_rank(float score)
{
    uint32_t bits = wf_f32_bits(score == 0 ? 0.0f : score);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

static uint32_t next_of(const wf_bpe_run *r, uint32_t at)
{
    uint32_t next = at + r->length[at];
    return next < r->slots ? next : NOWHERE;
}

/* Returns whether the symbol at `left` merges with the next one. *rank: how early; *made: the
 * resulting token. text[i] belongs to slot i (only with scores). */
static bool pair_merges(const wf_bpe *b, const wf_bpe_run *r, const char *text, uint32_t left,
                        uint32_t *rank, int32_t *made)
{
    uint32_t right = next_of(r, left);
    if (right == NOWHERE)
        return false;
    if (b->score) {
        *made = find_plain(b, text + left, (size_t)r->length[left] + r->length[right]);
        *rank = *made < 0 ? 0 : wf_score_rank(b->score[*made]);
        return *made >= 0 && b->vocab->token[*made].kind != WF_TOKEN_BYTE;
    }
    const wf_merge *m = wf_merges_find(&b->merges, r->id[left], r->id[right]);
    if (!m || b->vocab->token[m->made - 1].outside)
        return false;
    *rank = m->rank;
    *made = (int32_t)(m->made - 1);
    return true;
}

/* Orders heap[0 .. n) in O(n). */
static void heapify(wf_bpe_run *r, size_t n)
{
    for (size_t i = n / 4 + 1; n > 1 && i-- > 0;)
        if (i < n)
            heap_sink(r->heap, n, i, r->heap[i]);
}

/* Returns whether a heap entry is still valid: its symbols may have been merged meanwhile. */
static bool is_current(const wf_bpe *b, const wf_bpe_run *r, const char *text, uint64_t key,
                       int32_t *made)
{
    uint32_t rank, at = (uint32_t)key;
    return r->id[at] != GONE && pair_merges(b, r, text, at, &rank, made) && rank == key >> 32;
}

/* Makes room for two more pairs by removing stale entries, at least a fifth of a full heap. */
static wf_status clean_heap(const wf_bpe *b, wf_bpe_run *r, const char *text, size_t *n)
{
    size_t kept = 0;
    int32_t made;
    if (*n + 2 <= r->heap_room)
        return WF_OK;
    for (size_t i = 0; i < *n; i++)
        if (is_current(b, r, text, r->heap[i], &made))
            r->heap[kept++] = r->heap[i];
    *n = kept;
    heapify(r, kept);
    return kept + 2 <= r->heap_room ? WF_OK : make_heap(r, r->heap_room + r->heap_room / 2 + 2);
}

/* Merges the symbol at `at` with its right neighbour, which must exist. */
static void merge_at(wf_bpe_run *r, uint32_t at, int32_t made)
{
    uint32_t gone = next_of(r, at), length = r->length[at] + r->length[gone];
    r->id[gone] = GONE;
    r->id[at] = made;
    r->length[at] = r->length[at + length - 1] = length;
}

/* Merges until no pair has a rank. Each merge removes a symbol and pushes at most two pairs, so the
 * total is O(slots log slots). */
static wf_status merge_pairs(const wf_bpe *b, wf_bpe_run *r, const char *text)
{
    size_t n = 0;
    uint32_t rank;
    int32_t made;
    /* A quarter more than the most pairs that can be current at once; clean_heap reclaims the
     * rest. */
    WF_TRY(make_heap(r, (size_t)r->slots + r->slots / 4 + 16));
    for (uint32_t at = 0; at != NOWHERE; at = next_of(r, at))
        if (pair_merges(b, r, text, at, &rank, &made))
            r->heap[n++] = (uint64_t)rank << 32 | at;
    heapify(r, n);
    while (n > 0) {
        uint64_t top = heap_pop(r->heap, &n);
        uint32_t at = (uint32_t)top;
        if (!is_current(b, r, text, top, &made))
            continue;
        merge_at(r, at, made);
        WF_TRY(clean_heap(b, r, text, &n));
        /* The slot before belongs to the previous symbol, and holds its length. */
        uint32_t before = at > 0 ? at - r->length[at - 1] : NOWHERE;
        if (before != NOWHERE && pair_merges(b, r, text, before, &rank, &made))
            heap_push(r->heap, &n, (uint64_t)rank << 32 | before);
        if (pair_merges(b, r, text, at, &rank, &made))
            heap_push(r->heap, &n, (uint64_t)rank << 32 | at);
    }
    return WF_OK;
}

/* ---- Symbols ---- */

/* Pushes a character without a token (SentencePiece): its byte tokens, or the unknown token. */
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

/* Pushes a resulting token. A control token that merges made is replaced by its parts: text never
 * becomes a control token, unless that is a single character. */
static wf_status push_token(const wf_bpe *b, wf_bpe_run *r, int32_t id)
{
    if (!b->parts || b->parts[id].left < 0)
        return wf_bpe_push(r, id);
    size_t n = 0;
    WF_TRY(make_heap(r, (size_t)b->vocab->token[id].bytes + 2)); /* used as a stack of parts */
    r->heap[n++] = (uint64_t)id;
    while (n > 0) {
        id = (int32_t)r->heap[--n];
        if (b->parts[id].left < 0) {
            WF_TRY(wf_bpe_push(r, id));
        } else {
            /* Cannot overflow: each part has at least one byte, so at most `bytes` parts are
             * pending. */
            r->heap[n++] = (uint64_t)b->parts[id].right;
            r->heap[n++] = (uint64_t)b->parts[id].left;
        }
    }
    return WF_OK;
}

/* The symbols of the current stretch of a word. */
typedef struct {
    const wf_bpe *b;
    wf_bpe_run *r;
    const char *text; /* with scores: the text of slot 0 */
    uint32_t last;    /* character of the last symbol; 0: do not cut here */
    bool unknown;     /* the last symbol is the unknown token */
} chain;

/* Merges the symbols of the stretch and appends their ids. */
static wf_status chain_flush(chain *c)
{
    wf_bpe_run *r = c->r;
    if (r->slots == 0)
        return WF_OK;
    WF_TRY(merge_pairs(c->b, r, c->text));
    for (uint32_t at = 0; at != NOWHERE; at = next_of(r, at))
        WF_TRY(r->id[at] >= 0 ? push_token(c->b, r, r->id[at])
                              : push_bytes(c->b, r, c->text + at, r->length[at]));
    if (c->text)
        c->text += r->slots;
    r->slots = 0;
    return WF_OK;
}

/* Adds a symbol. letter: its character; 0: the word must not be cut beside it. */
static wf_status chain_add(chain *c, int32_t id, uint32_t length, uint32_t letter)
{
    wf_bpe_run *r = c->r;
    if (r->slots >= STRETCH && !wf_bpe_joins(c->b, c->last, letter))
        WF_TRY(chain_flush(c));
    WF_TRY(make_room(r, r->slots + length));
    r->id[r->slots] = id;
    r->length[r->slots] = r->length[r->slots + length - 1] = length;
    r->slots += length;
    c->last = letter;
    c->unknown = false;
    return WF_OK;
}

/* Adds a character without a token: its bytes, the unknown token, or nothing. */
static wf_status chain_unknown(chain *c, const char *s, size_t length)
{
    const wf_bpe *b = c->b;
    bool all = b->fallback;
    for (size_t i = 0; i < length && all; i++)
        all = b->byte[(uint8_t)s[i]] >= 0;
    for (size_t i = 0; i < length && all; i++)
        WF_TRY(chain_add(c, b->byte[(uint8_t)s[i]], 1, 0));
    if (all || b->unknown < 0) {
        c->last = all ? c->last : 0;
        c->unknown = false;
        return WF_OK;
    }
    if (!(b->fuse_unknown && c->unknown))
        WF_TRY(chain_add(c, b->unknown, 1, 0));
    c->unknown = true;
    return WF_OK;
}

/* Adds the characters, or the bytes of a byte-level model, as symbols. */
static wf_status chain_word(chain *c, const char *word, size_t bytes)
{
    const wf_bpe *b = c->b;
    size_t length = 1;
    for (size_t at = 0; at < bytes; at += length) {
        int32_t id;
        uint32_t letter;
        if (b->bytes) {
            letter = wf_byte_letter((uint8_t)word[at]);
            id = b->letter[(uint8_t)word[at]];
        } else {
            letter = wf_utf8_decode(word + at, &length);
            id = b->score ? find_plain(b, word + at, length) : find_any(b, word + at, length);
        }
        if (b->score) /* a character without a token may still be part of one */
            WF_TRY(chain_add(c, id < 0 ? NO_TOKEN : id, (uint32_t)length, letter));
        else
            WF_TRY(id >= 0 ? chain_add(c, id, 1, letter) : chain_unknown(c, word + at, length));
    }
    return chain_flush(c);
}

/* Finds the token that equals the whole word; *id is -1 if there is no such token. */
static wf_status find_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes,
                           int32_t *id)
{
    if (!b->bytes) {
        *id = find_any(b, word, bytes);
        return WF_OK;
    }
    *id = -1;
    if (bytes > b->vocab->longest)
        return WF_OK;
    if (r->spelled_room < 2 * bytes) {
        wf_mem_free(r->ctx, r->spelled);
        /* A letter takes at most two bytes; the rest avoids growing for each longer word. */
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
    *id = find_any(b, r->spelled, n);
    return WF_OK;
}

/* Appends the ids of a word without the cache. */
static wf_status merge_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes)
{
    if (b->whole_words) {
        int32_t id;
        WF_TRY(find_word(b, r, word, bytes, &id));
        bool parts = id >= 0 && b->parts && b->parts[id].left >= 0;
        if (id >= 0 && (parts || !is_control(b, id)))
            return push_token(b, r, id);
    }
    chain c = {.b = b, .r = r, .text = b->score ? word : NULL};
    r->slots = 0;
    return chain_word(&c, word, bytes);
}

/* ---- The word cache ---- */

/* Returns the word's slot, which may hold another word. */
static wf_cached_word *cache_slot(wf_cached_word *cache, const uint64_t key[2], size_t bytes)
{
    /* Keyed, so that a hostile text cannot choose words that share a slot. */
    uint64_t secret = wf_hash_key(), h = wf_hash_mix(key[0] ^ secret, secret + bytes);
    return &cache[(wf_hash_mix(h ^ key[1], secret) >> 32) & (WF_CACHE_WORDS - 1)];
}

/* bytes <= WF_CACHE_BYTES, so the key holds the whole word and needs no further comparison. */
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

/* SPDX-License-Identifier: MIT */
/*
 * train_merge.c - see train_merge.h.
 *
 * All distinct words are in one array of cells, one cell per byte, with a BORDER between words. A
 * token has its id in its first and last cell and GONE in between, so both neighbours are found
 * from token lengths alone. Each pair has an ascending list of its places, so the cost of a merge
 * does not depend on the lengths of words. Stale places are skipped when visited: only the first
 * and last cell of a token contain its id.
 *
 * Merging (a, b) to c creates pairs with c and removes others. The count of a pair is therefore
 * final when its newer token is created, and only decreases later: a pair that is too rare then is
 * dropped at once. For the same reason no two merges spell the same token.
 */
#include "text/train_merge.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

enum { BORDER = -1, GONE = -2 };

typedef struct {
    uint64_t key;  /* left << 32 | right */
    int64_t count; /* 0: free slot, already merged, or no longer present */
    uint32_t *at;  /* [places] in the arena */
    uint32_t places;
    bool used; /* the slot holds a key, even if its count is 0 */
} pair;

typedef struct {
    int64_t count;
    uint64_t key;
} candidate;

/* Cells before `end` (and after the previous stretch) belong to words that occur `count` times. */
typedef struct {
    uint32_t end;
    int64_t count;
} stretch;

/* New pairs on one side of a merge, by the id on that side. */
typedef struct {
    int64_t count;
    uint32_t *at;    /* the next place is written here; NULL: the pair is dropped */
    uint32_t places; /* occurrences seen */
} tally;
typedef struct {
    tally *of;     /* [vocab] */
    int32_t *with; /* [withs] ids that have a tally */
    uint32_t withs;
} side;

typedef struct {
    wf_ctx *ctx;
    const wf_learn_options *options;
    wf_vocab *vocab; /* grows by one token per merge */
    wf_arena places; /* owns the lists of places */
    int32_t *cell;   /* [cells] token ids, BORDER or GONE */
    uint32_t cells;
    stretch *stretch; /* [stretches] */
    size_t stretches;
    uint32_t *length; /* [vocab] bytes of text of each token */
    pair *pair;       /* [pair_mask + 1] */
    size_t pairs, pair_mask;
    candidate *heap; /* [heap_count] the best first */
    size_t heap_count, heap_room;
    side before, after;
} learner;

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* ---- The hash table of pairs ---- */

/* Returns the slot of this pair, or the free slot where it belongs. Invalidated by more_pairs. */
static pair *pair_slot(const learner *l, uint64_t key)
{
    size_t i = wf_hash_u64(key) & l->pair_mask;
    while (l->pair[i].used && l->pair[i].key != key)
        i = (i + 1) & l->pair_mask;
    return &l->pair[i];
}

static wf_status more_pairs(learner *l)
{
    learner old = *l;
    size_t slots = l->pair ? 2 * (l->pair_mask + 1) : 4096;
    l->pair = wf_mem_array(l->ctx, slots, sizeof *l->pair);
    if (!l->pair) {
        l->pair = old.pair;
        return WF_ERR_MEMORY;
    }
    l->pair_mask = slots - 1;
    for (size_t i = 0; old.pair && i <= old.pair_mask; i++)
        if (old.pair[i].used)
            *pair_slot(l, old.pair[i].key) = old.pair[i];
    wf_mem_free(l->ctx, old.pair);
    return WF_OK;
}

/* ---- The best pair ---- */

/* The key is left << 32 | right, so ties go to the lower left id, then the lower right id. */
static bool comes_first(candidate a, candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static wf_status heap_push(learner *l, candidate c)
{
    if (l->heap_count == l->heap_room) {
        size_t room = l->heap_room ? 2 * l->heap_room : 1024, bytes;
        candidate *heap =
            wf_mem_grow(l->ctx, l->heap, wf_mul_size(room, sizeof c, &bytes) ? bytes : SIZE_MAX);
        if (!heap)
            return WF_ERR_MEMORY;
        l->heap = heap;
        l->heap_room = room;
    }
    size_t i = l->heap_count++;
    for (size_t up; i > 0 && comes_first(c, l->heap[up = (i - 1) / 2]); i = up)
        l->heap[i] = l->heap[up];
    l->heap[i] = c;
    return WF_OK;
}

/* Replaces the top by c. */
static void heap_sink(learner *l, candidate c)
{
    size_t i = 0;
    for (size_t down; (down = 2 * i + 1) < l->heap_count; i = down) {
        if (down + 1 < l->heap_count && comes_first(l->heap[down + 1], l->heap[down]))
            down++;
        if (!comes_first(l->heap[down], c))
            break;
        l->heap[i] = l->heap[down];
    }
    l->heap[i] = c;
}

static void heap_drop(learner *l)
{
    candidate last = l->heap[--l->heap_count];
    if (l->heap_count > 0)
        heap_sink(l, last);
}

/* Removes and returns the best pair; NULL: no pair is left. Counts in the heap may be too high,
 * never too low. */
static pair *take_best(learner *l)
{
    while (l->heap_count > 0) {
        candidate top = l->heap[0];
        pair *p = pair_slot(l, top.key);
        if (p->count == top.count) {
            heap_drop(l);
            return p;
        }
        /* The pair became rarer since it was pushed: put it back with its present count. */
        if (p->count >= l->options->minimum)
            heap_sink(l, (candidate){p->count, top.key});
        else
            heap_drop(l);
    }
    return NULL;
}

/* ---- Cells ---- */

static int by_count(const void *a, const void *b)
{
    const wf_counted_word *x = a, *y = b;
    return x->count == y->count ? 0 : x->count > y->count ? -1 : 1;
}

/* Lays out the words by descending count; words of one byte have no pairs and are skipped. */
static wf_status fill_cells(learner *l, wf_counts *counts, const int32_t letter[256])
{
    size_t cells = 1, different = 0;
    if (counts->words > 0)
        qsort(counts->word, counts->words, sizeof *counts->word, by_count);
    for (size_t i = 0; i < counts->words; i++) {
        cells += counts->word[i].bytes > 1 ? counts->word[i].bytes + 1 : 0;
        different += i == 0 || counts->word[i].count != counts->word[i - 1].count;
    }
    if (cells >= UINT32_MAX)
        return wf_fail(l->ctx, WF_ERR_UNSUPPORTED,
                       "the distinct words of the texts have %zu bytes, but the limit is %u; train "
                       "on a part of the texts",
                       counts->used, UINT32_MAX);
    l->cell = wf_mem_array(l->ctx, cells, sizeof *l->cell);
    l->stretch = wf_mem_array(l->ctx, different, sizeof *l->stretch);
    if (!l->cell || !l->stretch)
        return WF_ERR_MEMORY;
    l->cell[l->cells++] = BORDER;
    for (size_t i = 0; i < counts->words; i++) {
        const wf_counted_word *w = &counts->word[i];
        const uint8_t *byte = (const uint8_t *)counts->text + w->at;
        for (size_t j = 0; w->bytes > 1 && j < w->bytes; j++)
            l->cell[l->cells++] = letter[byte[j]];
        if (w->bytes > 1)
            l->cell[l->cells++] = BORDER;
        if (i + 1 == counts->words || w->count != w[1].count)
            l->stretch[l->stretches++] = (stretch){l->cells, w->count};
    }
    wf_counts_free(counts);
    return WF_OK;
}

/* Returns the count of the word at a place. *i: the stretch to start from, since places ascend. */
static int64_t count_at(const learner *l, uint32_t at, size_t *i)
{
    if (at >= l->stretch[*i].end) {
        size_t low = *i + 1, high = l->stretches - 1;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (at < l->stretch[middle].end)
                high = middle;
            else
                low = middle + 1;
        }
        *i = low;
    }
    return l->stretch[*i].count;
}

/* ---- New pairs ---- */

/* Returns the neighbours of a token, or BORDER for one to ignore: a pair of two new tokens is
 * counted at the right one only. bytes: every pair is counted at its left token only. */
static void look_around(const learner *l, int32_t made, uint32_t at, bool bytes, int32_t *before,
                        int32_t *after)
{
    *before = bytes ? BORDER : l->cell[at - 1];
    *after = l->cell[at + l->length[made]];
    if (*after == made && !bytes)
        *after = BORDER;
}

/* Counts one place of a pair with `other`. */
static void see(side *s, int32_t other, int64_t count)
{
    if (s->of[other].places++ == 0)
        s->with[s->withs++] = other;
    s->of[other].count += count;
}

/* Returns whether the pair is frequent enough and its token not too long. */
static bool worth_keeping(const learner *l, const tally *t, int32_t other, int32_t made)
{
    return t->count >= l->options->minimum &&
           l->vocab->token[other].bytes <= WF_TOKEN_BYTES_MOST - l->vocab->token[made].bytes;
}

/* Stores the frequent pairs of one side, and allocates their lists of places. */
static wf_status keep_pairs(learner *l, side *s, int32_t made, bool made_is_left)
{
    size_t total = 0;
    for (uint32_t i = 0; i < s->withs; i++)
        if (worth_keeping(l, &s->of[s->with[i]], s->with[i], made))
            total += s->of[s->with[i]].places;
    uint32_t *at = wf_arena_alloc(&l->places, total * sizeof *at);
    if (!at)
        return WF_ERR_MEMORY;
    for (uint32_t i = 0; i < s->withs; i++) {
        int32_t other = s->with[i];
        tally *t = &s->of[other];
        if (!worth_keeping(l, t, other, made))
            continue;
        uint64_t key = made_is_left ? key_of(made, other) : key_of(other, made);
        if (2 * l->pairs >= l->pair_mask)
            WF_TRY(more_pairs(l));
        WF_TRY(heap_push(l, (candidate){t->count, key}));
        *pair_slot(l, key) = (pair){key, t->count, at, t->places, true};
        l->pairs++;
        t->at = at;
        at += t->places;
    }
    return WF_OK;
}

/* Clears only the tallies in use, so a rare token does not pay for the whole vocabulary. */
static void forget(side *s)
{
    for (uint32_t i = 0; i < s->withs; i++)
        s->of[s->with[i]] = (tally){0};
    s->withs = 0;
}

/* Finds all pairs of the token `made` at these ascending places: counts first, then lists the
 * places. */
static wf_status gather_pairs(learner *l, int32_t made, const uint32_t *place, uint32_t places,
                              bool bytes)
{
    int32_t before, after;
    size_t from = 0;
    for (uint32_t i = 0; i < places; i++) {
        int64_t count = count_at(l, place[i], &from);
        look_around(l, made, place[i], bytes, &before, &after);
        if (before >= 0)
            see(&l->before, before, count);
        if (after >= 0)
            see(&l->after, after, count);
    }
    WF_TRY(keep_pairs(l, &l->before, made, false));
    WF_TRY(keep_pairs(l, &l->after, made, true));
    for (uint32_t i = 0; i < places; i++) {
        look_around(l, made, place[i], bytes, &before, &after);
        if (before >= 0 && l->before.of[before].at)
            *l->before.of[before].at++ = place[i] - l->length[before];
        if (after >= 0 && l->after.of[after].at)
            *l->after.of[after].at++ = place[i];
    }
    forget(&l->before);
    forget(&l->after);
    return WF_OK;
}

/* Finds the initial pairs of bytes: collects the places of each byte, then treats it as a new
 * token. */
static wf_status first_pairs(learner *l, const int32_t letter[256])
{
    uint32_t *place = wf_mem_array(l->ctx, l->cells, sizeof *place), start[257] = {0};
    int32_t low = letter[0];
    if (!place)
        return WF_ERR_MEMORY;
    for (int b = 0; b < 256; b++)
        low = letter[b] < low ? letter[b] : low;
    for (uint32_t at = 0; at < l->cells; at++)
        if (l->cell[at] >= 0)
            start[l->cell[at] - low + 1]++;
    for (int b = 0; b < 256; b++)
        start[b + 1] += start[b];
    for (uint32_t at = 0; at < l->cells; at++)
        if (l->cell[at] >= 0)
            place[start[l->cell[at] - low]++] = at;
    wf_status status = WF_OK;
    for (int b = 0; b < 256 && status == WF_OK; b++) { /* start[b] is now the end of b's places */
        uint32_t begin = b ? start[b - 1] : 0;
        status = gather_pairs(l, low + b, place + begin, start[b] - begin, true);
    }
    wf_mem_free(l->ctx, place);
    return status;
}

/* ---- Merging ---- */

/* Reduces the count of a pair that a merge removed at one place. */
static void lose(learner *l, int32_t left, int32_t right, int64_t count)
{
    pair *p = pair_slot(l, key_of(left, right));
    if (p->used)
        p->count -= count;
}

/* Merges all places of a pair from left to right. In "aaa" the second place is stale once the first
 * is merged, and is skipped. */
static wf_status merge(learner *l, const pair *p, int32_t made)
{
    const int32_t left = (int32_t)(p->key >> 32), right = (int32_t)(p->key & UINT32_MAX);
    int32_t *cell = l->cell;
    uint32_t merged = 0; /* places of the new token; they overwrite those of the pair */
    size_t from = 0;
    for (uint32_t i = 0; i < p->places; i++) {
        uint32_t at = p->at[i], middle = at + l->length[left];
        if (cell[at] != left || cell[middle] != right)
            continue;
        uint32_t end = middle + l->length[right];
        int32_t before = cell[at - 1], after = cell[end];
        int64_t count = count_at(l, at, &from);
        if (before >= 0 && before != made) /* pairs of new tokens are not counted yet */
            lose(l, before, left, count);
        if (after >= 0)
            lose(l, right, after, count);
        cell[middle - 1] = cell[middle] = GONE;
        cell[at] = cell[end - 1] = made;
        p->at[merged++] = at;
    }
    return gather_pairs(l, made, p->at, merged, false);
}

/* Creates the token of a pair; *made is false when the text is already a token. */
static wf_status make_token(learner *l, wf_arena *arena, uint64_t key, char *scratch, int32_t id,
                            bool *made)
{
    const wf_vocab_token *left = &l->vocab->token[key >> 32],
                         *right = &l->vocab->token[key & UINT32_MAX];
    size_t bytes = (size_t)left->bytes + right->bytes;
    memcpy(scratch, left->text, left->bytes);
    memcpy(scratch + left->bytes, right->text, right->bytes);
    *made = wf_vocab_find(l->vocab, scratch, bytes) < 0;
    if (!*made)
        return WF_OK;
    l->length[id] = l->length[key >> 32] + l->length[key & UINT32_MAX];
    return wf_vocab_set(l->vocab, arena, id, scratch, bytes, WF_TOKEN_NORMAL);
}

static wf_status learn(learner *l, wf_arena *arena, int32_t first, wf_merge_pair *out,
                       size_t *count)
{
    const int32_t wanted = l->vocab->count - first;
    char *scratch = wf_arena_alloc(&l->places, WF_TOKEN_BYTES_MOST);
    if (!scratch)
        return WF_ERR_MEMORY;
    for (int32_t id = first; id < l->vocab->count;) {
        bool made;
        pair *p = take_best(l);
        if (!p)
            break;
        /* A copy: merge() may move the table. */
        const pair best = *p;
        p->count = 0;
        WF_TRY(make_token(l, arena, best.key, scratch, id, &made));
        if (!made)
            continue;
        WF_TRY(merge(l, &best, id));
        out[*count] = (wf_merge_pair){(int32_t)(best.key >> 32), (int32_t)(best.key & UINT32_MAX),
                                      id, (uint32_t)*count};
        ++*count;
        id++;
        if (l->options->progress && *count % 64 == 0)
            l->options->progress(l->options->user, (double)*count / (double)wanted);
    }
    return WF_OK;
}

static void free_learner(learner *l)
{
    wf_mem_free(l->ctx, l->cell);
    wf_mem_free(l->ctx, l->stretch);
    wf_mem_free(l->ctx, l->length);
    wf_mem_free(l->ctx, l->pair);
    wf_mem_free(l->ctx, l->heap);
    wf_mem_free(l->ctx, l->before.of);
    wf_mem_free(l->ctx, l->before.with);
    wf_mem_free(l->ctx, l->after.of);
    wf_mem_free(l->ctx, l->after.with);
    wf_arena_free(&l->places);
}

/* Frees nothing on failure; free_learner does. */
static wf_status open_learner(learner *l, wf_counts *counts, const int32_t letter[256])
{
    size_t n = (size_t)l->vocab->count;
    side *const sides[] = {&l->before, &l->after};
    WF_TRY(fill_cells(l, counts, letter));
    l->length = wf_mem_array(l->ctx, n, sizeof *l->length);
    for (int i = 0; i < 2 && l->length; i++) {
        sides[i]->of = wf_mem_array(l->ctx, n, sizeof *sides[i]->of);
        sides[i]->with = wf_mem_array(l->ctx, n, sizeof *sides[i]->with);
        if (!sides[i]->of || !sides[i]->with)
            return WF_ERR_MEMORY;
    }
    if (!l->length)
        return WF_ERR_MEMORY;
    for (int b = 0; b < 256; b++)
        l->length[letter[b]] = 1;
    WF_TRY(more_pairs(l));
    return first_pairs(l, letter);
}

wf_status wf_merges_learn(wf_ctx *ctx, wf_counts *counts, const int32_t letter[256],
                          const wf_learn_options *options, wf_vocab *v, wf_arena *arena,
                          int32_t first, wf_merge_pair **out, size_t *count)
{
    learner l = {.ctx = ctx, .options = options, .vocab = v};
    wf_arena_init(&l.places, ctx);
    *count = 0;
    *out = wf_mem_array(ctx, (size_t)(v->count - first), sizeof **out);
    wf_status status = *out ? open_learner(&l, counts, letter) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = learn(&l, arena, first, *out, count);
    free_learner(&l);
    v->count = first + (int32_t)*count;
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * bpe.h - byte pair encoding of one word: repeatedly merges the pair of the best rank.
 *
 * The rank of a pair comes from the list of merges (tokenizer.json), or from the score of the token
 * that the pair makes (SentencePiece). A heap orders the pairs: a word of n bytes takes O(n log n).
 * A long word is merged in stretches, which end where no token can span the boundary, so memory
 * does not grow with the word.
 */
#ifndef WF_TEXT_BPE_H
#define WF_TEXT_BPE_H

#include "text/joins.h"
#include "text/vocab.h"

typedef struct {
    uint32_t left, right; /* ids */
    uint32_t rank;        /* lower ranks merge first */
    uint32_t made;        /* id of the result + 1; 0: a free slot */
} wf_merge;

typedef struct {
    wf_merge *slot; /* [mask + 1] */
    uint32_t mask;
    uint32_t count; /* every rank is below it, so also a bound on the merges */
} wf_merges;

/* Creates a hash table for up to `count` merges. */
wf_status wf_merges_init(wf_merges *m, wf_arena *arena, size_t count);
/* Adds a merge, or replaces the one of the same pair. */
void wf_merges_set(wf_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t made);
const wf_merge *wf_merges_find(const wf_merges *m, int32_t left, int32_t right); /* NULL: missing */

/* Longest stretch, in symbols. A symbol takes 20 bytes of memory. */
#define WF_STRETCH_MOST ((uint32_t)32 << 20)

typedef struct {
    const wf_vocab *vocab;
    wf_merges merges;
    const float *score; /* [vocab] of a SentencePiece model; NULL: the model has merges */
    bool bytes;         /* words are bytes, and letter[b] is the token of byte b; otherwise UTF-8 */
    bool whole_words;   /* a word that is a token becomes it without merging (ignore_merges) */
    bool fallback;      /* a character without a token becomes its byte tokens */
    bool fuse_unknown;  /* adjacent unknown characters become one token */
    int32_t unknown;    /* token of unknown characters; -1: they are dropped */
    int32_t letter[256], byte[256]; /* ids or -1: byte-level letters; <0x00> .. <0xFF> */
    wf_joins joins; /* of the characters that merges can make adjacent inside a token */
    struct {
        int32_t left, right; /* -1: no merge makes this token */
    } * parts;               /* [vocab] for control tokens; NULL: no merge makes one */
} wf_bpe;

/* Fills letter[], byte[], joins and parts from the vocabulary and the merges. */
wf_status wf_bpe_index(wf_bpe *b, wf_arena *arena);

/* Returns whether a token may contain these two characters side by side; may be true wrongly. */
bool wf_bpe_joins(const wf_bpe *b, uint32_t left, uint32_t right);

/* Maps a score to a rank: higher scores have lower ranks. */
uint32_t wf_score_rank(float score);

/* A direct-mapped cache of words and their ids: most words of a text are frequent ones. Words of
 * more than WF_CACHE_BYTES bytes or WF_CACHE_IDS tokens are not cached. */
#define WF_CACHE_WORDS (1u << 14)
#define WF_CACHE_BYTES 16
#define WF_CACHE_IDS 11
typedef struct {
    uint64_t key[WF_CACHE_BYTES / 8]; /* the word, padded with zeros */
    uint16_t bytes;                   /* 0: an empty slot */
    uint16_t count;
    int32_t id[WF_CACHE_IDS];
} wf_cached_word; /* 64 bytes: one cache line */

/* Buffers of one encoding run, reused between words. Initialise with {.ctx = ctx}. */
typedef struct {
    wf_ctx *ctx;
    int32_t *ids; /* the result; the caller frees it with wf_mem_free */
    size_t count, cap;
    /* A symbol takes one slot; with scores, one slot per byte. */
    uint32_t *length; /* [room] slots of the symbol, stored in its first and its last slot */
    int32_t *id;      /* [room] in the first slot; -1: character without token, -2: merged away */
    uint32_t slots, room;
    uint64_t *heap; /* [heap_room] */
    size_t heap_room;
    char *spelled; /* a word in byte-level letters */
    size_t spelled_room;
    wf_cached_word *cache; /* [WF_CACHE_WORDS] for one tokenizer, owned by the caller; or NULL */
} wf_bpe_run;

void wf_bpe_run_free(wf_bpe_run *r);              /* frees everything but the ids and the cache */
wf_status wf_bpe_push(wf_bpe_run *r, int32_t id); /* appends an id */
/* Appends the ids of one word. */
wf_status wf_bpe_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes);

#endif

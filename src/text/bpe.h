/* SPDX-License-Identifier: MIT */
/*
 * bpe.h - words to ids: the pair that comes first is merged, again and again.
 *
 * Which pair comes first is said by a list of merges (as in tokenizer.json), or by the scores of the
 * tokens that pairs make (SentencePiece). Either way a heap orders the pairs, so that one word of n bytes
 * takes n log n steps. A long word is merged in stretches that end where no token can reach across, so
 * that memory does not grow with the word.
 */
#ifndef WF_TEXT_BPE_H
#define WF_TEXT_BPE_H

#include "text/vocab.h"

typedef struct {
    uint32_t left, right; /* ids; both 0 in a free slot, where made is 0 as well */
    uint32_t rank;
    uint32_t made; /* id + 1 */
} wf_merge;

typedef struct {
    wf_merge *slot; /* [mask + 1] */
    uint32_t mask;
    uint32_t count; /* ranks are below it */
} wf_merges;

/* For up to count merges. */
wf_status wf_merges_init(wf_merges *m, wf_arena *arena, size_t count);
/* A pair that is there already takes the new rank. */
void wf_merges_set(wf_merges *m, int32_t left, int32_t right, uint32_t rank, int32_t made);
const wf_merge *wf_merges_find(const wf_merges *m, int32_t left, int32_t right); /* NULL: none */

/* Most symbols between two places that no token reaches across: 20 bytes of memory each. */
#define WF_STRETCH_MOST ((uint32_t)32 << 20)

typedef struct {
    const wf_vocab *vocab;
    wf_merges merges;
    const float *score; /* [vocab] of a model without merges, else NULL */
    bool bytes;         /* a word is bytes, letter[b] the token of each; else it is UTF-8 */
    bool whole_words;   /* a word that is a token is not built of merges */
    bool fallback;      /* a character that is no token becomes its bytes */
    bool fuse_unknown;  /* unknown characters side by side become one token */
    int32_t unknown;    /* -1: they are left out */
    int32_t letter[256], byte[256]; /* ids or -1: byte-level letters; <0x00> .. <0xFF> */
    uint64_t *joined; /* bits, by a hash of two characters that may be side by side in a token */
    struct {
        int32_t left, right; /* -1: no merge makes the token */
    } * parts;               /* [vocab] of control tokens; NULL: merges make none of them */
} wf_bpe;

/* Fills letter[], byte[], joined and parts from the vocabulary and the merges. */
wf_status wf_bpe_index(wf_bpe *b, wf_arena *arena);

/* Can a token have these two characters side by side? */
bool wf_bpe_joins(const wf_bpe *b, uint32_t left, uint32_t right);

/* A number that is less for higher scores. */
uint32_t wf_score_rank(float score);

/* Words and what became of them, for who encodes much: most words of a text are among few. A word has one place,
 * where the last of several is kept; long words, and those of many tokens, are not. */
#define WF_CACHE_WORDS (1u << 14)
#define WF_CACHE_BYTES 16
#define WF_CACHE_IDS 11
typedef struct {
    uint64_t key[WF_CACHE_BYTES / 8]; /* the word, zeros behind it */
    uint16_t bytes;                   /* 0: nothing is kept here */
    uint16_t count;
    int32_t id[WF_CACHE_IDS];
} wf_cached_word; /* a line of the processor's cache */

/* What encoding needs while it runs; starts as {.ctx = ctx}. */
typedef struct {
    wf_ctx *ctx;
    int32_t *ids; /* the result, for wf_mem_free */
    size_t count, cap;
    /* A symbol has one slot, or with scores one for each byte. */
    uint32_t *length; /* [room] slots of a symbol, in its first and its last one */
    int32_t *id; /* [room] in its first one; -1: a character that is no token, -2: merged away */
    uint32_t slots, room;
    uint64_t *heap; /* [heap_room] */
    size_t heap_room;
    char *spelled; /* of a word in byte letters */
    size_t spelled_room;
    wf_cached_word *cache; /* [WF_CACHE_WORDS] of one tokenizer, whoever runs owns it; NULL: none */
} wf_bpe_run;

void wf_bpe_run_free(wf_bpe_run *r);              /* all but the ids */
wf_status wf_bpe_push(wf_bpe_run *r, int32_t id); /* appends an id */
wf_status wf_bpe_word(const wf_bpe *b, wf_bpe_run *r, const char *word, size_t bytes);

#endif

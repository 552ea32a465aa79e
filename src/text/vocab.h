/* SPDX-License-Identifier: MIT */
/* vocab.h - the vocabulary: tokens by id, and ids by text. */
#ifndef WF_TEXT_VOCAB_H
#define WF_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/ctx.h"

/* Limits on the number of tokens and their bytes; real tokenizers are far below. */
#define WF_VOCAB_MOST (1 << 24)
#define WF_TOKEN_BYTES_MOST 65536

typedef struct {
    const char *text; /* NULL: no token has this id */
    uint32_t bytes;
    wf_token_kind kind;
    bool outside; /* an added token that is not part of the model: BPE never produces it */
} wf_vocab_token;

typedef struct {
    wf_vocab_token *token; /* [count] */
    int32_t count;
    uint32_t *slot; /* [mask + 1] hash table: id + 1; 0: free */
    uint32_t mask;
    size_t longest; /* bytes of the longest token */
} wf_vocab;

/* Creates a vocabulary of ids 0 .. count - 1 without tokens, in the arena. */
wf_status wf_vocab_init(wf_vocab *v, wf_arena *arena, int32_t count);
/* Sets a token; copies the text. An earlier token of the same text can no longer be found by
 * text. */
wf_status wf_vocab_set(wf_vocab *v, wf_arena *arena, int32_t id, const char *text, size_t bytes,
                       wf_token_kind kind);
/* Returns the id of a token; -1: missing. */
int32_t wf_vocab_find(const wf_vocab *v, const char *text, size_t bytes);
/* Returns the byte of a byte token such as <0x0A>; -1: not a byte token. */
int wf_vocab_byte(const char *text, size_t bytes);

/* Returns the letter, U+0021 to U+0143, that represents a byte in byte-level vocabularies. */
uint32_t wf_byte_letter(uint8_t byte);
/* The inverse; -1: the letter represents no byte. */
int wf_letter_byte(uint32_t letter);

#endif

/* SPDX-License-Identifier: MIT */
/* vocab.h - tokens by id and ids by token. */
#ifndef WF_TEXT_VOCAB_H
#define WF_TEXT_VOCAB_H

#include "base/arena.h"
#include "base/ctx.h"

/* More tokens, and longer ones, than any tokenizer has. */
#define WF_VOCAB_MOST (1 << 24)
#define WF_TOKEN_BYTES_MOST 65536

typedef struct {
    const char *text; /* NULL: no token has this id */
    uint32_t bytes;
    wf_token_kind kind;
    bool
        outside; /* an added token that the model does not know: text becomes it by being cut out only */
} wf_vocab_token;

typedef struct {
    wf_vocab_token *token; /* [count] */
    int32_t count;
    uint32_t *slot; /* [mask + 1], id + 1 of a token, 0: free */
    uint32_t mask;
    size_t longest; /* bytes */
} wf_vocab;

/* An empty vocabulary of ids 0 .. count - 1, all in the arena. */
wf_status wf_vocab_init(wf_vocab *v, wf_arena *arena, int32_t count);
/* The text is copied. Another token that is spelled alike is found no more by its text. */
wf_status wf_vocab_set(wf_vocab *v, wf_arena *arena, int32_t id, const char *text, size_t bytes,
                       wf_token_kind kind);
/* -1: none. */
int32_t wf_vocab_find(const wf_vocab *v, const char *text, size_t bytes);
/* The byte that a token such as <0x0A> stands for; -1: it is none. */
int wf_vocab_byte(const char *text, size_t bytes);

/* The letters that stand for bytes in byte-level vocabularies, U+0021 to U+0143. */
uint32_t wf_byte_letter(uint8_t byte);
/* -1: the letter stands for no byte. */
int wf_letter_byte(uint32_t letter);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * added.h - added tokens: those that are cut out of a text before anything else is done with it.
 *
 * Of several that begin at one place the longest is taken, as Hugging Face does.
 */
#ifndef WF_TEXT_ADDED_H
#define WF_TEXT_ADDED_H

#include "base/arena.h"
#include "base/ctx.h"

/* A longer one would make matching slow. */
#define WF_ADDED_BYTES_MOST 1024

typedef struct {
    int32_t id;
    const char *text; /* what is looked for */
    uint32_t bytes;
    bool control; /* found only where the caller allows it */
    bool single_word, lstrip, rstrip;
    bool normalized; /* looked for in the normalized text */
} wf_added_token;

typedef struct {
    uint32_t child, sibling; /* nodes, 0: none */
    int32_t token;           /* index, -1: none ends here */
    uint8_t byte;
} wf_added_node;

typedef struct {
    const wf_added_token *token;
    wf_added_node *node; /* node[0] is the root */
    uint32_t nodes;
    uint32_t first[256]; /* the root's children */
} wf_added;

/* Of those tokens whose `normalized` is this; they stay where they are, all else lies in the arena. What is
 * no UTF-8, which GGUF files may have, is left out: texts have none of it but parts of characters, and to
 * cut these would leave texts that are no UTF-8. */
wf_status wf_added_init(wf_added *a, wf_arena *arena, const wf_added_token *tokens, int count,
                        bool normalized);

typedef struct {
    size_t begin, end; /* with the space that the token takes along */
    int32_t id;
} wf_added_match;

/* The first match in text[from .. n), spaces before `from` untouched; false: none. `control`: control tokens
 * are looked for, but (plain not NULL) only where plain[] is 0. */
bool wf_added_next(const wf_added *a, const char *text, const uint8_t *plain, size_t n, size_t from,
                   bool control, wf_added_match *out);

#endif

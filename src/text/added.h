/* SPDX-License-Identifier: MIT */
/*
 * added.h - added tokens: those that are cut out of a text before it is split and merged.
 *
 * Matches are leftmost-longest and do not overlap, as in the package tokenizers. An Aho-Corasick
 * automaton of the reversed tokens reads the text backwards and so knows the longest token that starts at
 * each byte: time is linear in the text for any number of tokens.
 */
#ifndef WF_TEXT_ADDED_H
#define WF_TEXT_ADDED_H

#include "base/arena.h"
#include "base/ctx.h"

#define WF_ADDED_BYTES_MOST 1024              /* of one token */
#define WF_ADDED_BYTES_ALL ((size_t)64 << 20) /* of all tokens together */

typedef struct {
    int32_t id;
    const char *text; /* the bytes to find */
    uint32_t bytes;
    bool control; /* found only where the caller allows it */
    bool single_word, lstrip, rstrip;
    bool normalized; /* looked for in the normalized text, after all tokens that are not */
} wf_added_token;

/* Nodes are numbered level by level, so the children of node i are child[i] .. child[i + 1] - 1, in the
 * order of their bytes. */
typedef struct {
    const wf_added_token *token;
    uint32_t nodes;     /* node 0 is the root; 1 or less: there are no tokens */
    uint32_t *child;    /* [nodes + 1] */
    uint32_t *fail;     /* [nodes] the longest suffix that is a node */
    int32_t *best;      /* [nodes] the longest token that starts here, an index or -1 */
    int32_t *other;     /* [tokens] the longest shorter one whose `control` differs, or -1 */
    uint8_t *byte;      /* [nodes] on the edge to the node */
    uint32_t longest;   /* bytes of a token */
    uint32_t root[256]; /* children of the root, 0: none */
    bool control;       /* there is a control token */
} wf_added;

/* Takes the tokens whose `normalized` is this; of equal texts the first control token, else the first. The
 * tokens stay where they are, all else lies in the arena. Tokens that are no UTF-8, which GGUF files may
 * have, are left out: they could cut a character of the text in two. */
wf_status wf_added_init(wf_added *a, wf_arena *arena, const wf_added_token *tokens, int count,
                        bool normalized);

typedef struct {
    size_t begin, end; /* with the white space that the token takes along */
    int32_t id;
} wf_added_match;

/* A pass through one text. `buffer` may be used for the next pass, and is freed by wf_added_scan_free. */
typedef struct {
    wf_ctx *ctx;
    int32_t *buffer;
    size_t room;
    const wf_added *added;
    const char *text;
    const uint8_t *plain;
    bool control;
    size_t n, at;             /* of the text; where the search goes on */
    size_t offset;            /* where the last match ends */
    size_t begin, end;        /* buffer[] is about text[begin .. end) */
    size_t space_from, space; /* white space goes from space_from to space */
} wf_added_scan;

/* Starts a pass; text and marks are borrowed. `control`: control tokens are matches, but (plain not NULL)
 * only where plain[] is 0. Elsewhere they are found, and are left as text. A control token that is partly
 * plain does not exist. */
void wf_added_scan_begin(wf_added_scan *s, const wf_added *a, const char *text,
                         const uint8_t *plain, size_t n, bool control);
/* The next match; *found false: none. It may begin before the last one ends, where that took along white
 * space: then there is no text between them. */
wf_status wf_added_scan_next(wf_added_scan *s, bool *found, wf_added_match *out);
void wf_added_scan_free(wf_added_scan *s);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * added.h - added tokens: matched in the text before it is split and merged.
 *
 * Matches are leftmost-longest and do not overlap, as in the Python package tokenizers. An
 * Aho-Corasick automaton of the reversed tokens reads the text backwards, and so finds the longest
 * token that starts at each byte. Time is linear in the text for any number of tokens.
 */
#ifndef WF_TEXT_ADDED_H
#define WF_TEXT_ADDED_H

#include "base/arena.h"
#include "base/ctx.h"

#define WF_ADDED_BYTES_MOST 1024              /* bytes; limit of one token */
#define WF_ADDED_BYTES_ALL ((size_t)64 << 20) /* bytes; bounds the automaton's memory */

typedef struct {
    int32_t id;
    const char *text; /* the bytes to match */
    uint32_t bytes;
    bool control;                     /* matches only where the caller allows it */
    bool single_word, lstrip, rstrip; /* as in tokenizer.json */
    bool normalized;                  /* matched in the normalized text, after all other tokens */
} wf_added_token;

/* The automaton. Nodes are numbered level by level, so the children of node i are
 * child[i] .. child[i + 1] - 1, in byte order. */
typedef struct {
    const wf_added_token *token;
    uint32_t nodes;     /* node 0 is the root; <= 1: no tokens */
    uint32_t *child;    /* [nodes + 1] */
    uint32_t *fail;     /* [nodes] failure link: the longest suffix that is a node */
    int32_t *best;      /* [nodes] index of the longest token that starts here, or -1 */
    int32_t *other;     /* [tokens] the longest shorter token with the other `control`, or -1 */
    uint8_t *byte;      /* [nodes] label of the edge to the node */
    uint32_t longest;   /* bytes of the longest token */
    uint32_t root[256]; /* children of the root by byte; 0: none */
    bool control;       /* a control token exists */
} wf_added;

/* Builds the automaton of the tokens with this `normalized`. Of tokens with equal text it takes the
 * first control token, or else the first. The tokens are borrowed, the rest is in the arena. Tokens
 * that are not UTF-8, which GGUF files may have, are skipped: they could split a character. */
wf_status wf_added_init(wf_added *a, wf_arena *arena, const wf_added_token *tokens, int count,
                        bool normalized);

typedef struct {
    size_t begin, end; /* includes the white space that lstrip and rstrip remove */
    int32_t id;
} wf_added_match;

/* A scan of one text. `buffer` is reused by the next scan and freed by wf_added_scan_free. */
typedef struct {
    wf_ctx *ctx;     /* owns buffer; set by the caller before the first scan */
    int32_t *buffer; /* [room] best token that starts at each byte of the block, or -1 */
    size_t room;
    const wf_added *added;
    const char *text;
    const uint8_t *plain;     /* [n] marks, or NULL */
    bool control;             /* control tokens may match */
    size_t n, at;             /* bytes of the text; position of the search */
    size_t offset;            /* end of the last match */
    size_t begin, end;        /* buffer[] covers text[begin .. end) */
    size_t space_from, space; /* the last run of white space found: [space_from, space) */
} wf_added_scan;

/* Starts a scan; text and marks are borrowed. control: control tokens match, but (if plain is not
 * NULL) only where plain[] is 0. Elsewhere they are consumed as text. A control token whose bytes
 * are partly plain is ignored. */
void wf_added_scan_begin(wf_added_scan *s, const wf_added *a, const char *text,
                         const uint8_t *plain, size_t n, bool control);
/* Returns the next match; *found is false at the end. A match may begin before the previous one
 * ends, if that one removed white space; no text is then between them. */
wf_status wf_added_scan_next(wf_added_scan *s, bool *found, wf_added_match *out);
void wf_added_scan_free(wf_added_scan *s);

#endif

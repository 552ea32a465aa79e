/* SPDX-License-Identifier: MIT */
/*
 * charsmap.h - SentencePiece's normalization rules: a map from byte strings to their replacements.
 *
 * The format is the length of a trie in bytes (32 bits), the trie, and the replacements, each ended
 * by a NUL. All numbers are little-endian. The trie is a double array of the library Darts-clone:
 * the child of unit i by byte c is unit i ^ offset(i) ^ c, if its label is c.
 */
#ifndef WF_TEXT_CHARSMAP_H
#define WF_TEXT_CHARSMAP_H

#include "base/arena.h"
#include "base/ctx.h"

#define WF_CHARSMAP_MOST ((size_t)64 << 20) /* bytes; SentencePiece's own have less than 1 MB */
/* Longest string that is looked up, so that a hostile trie with a cycle takes linear time. */
#define WF_CHARSMAP_KEY 256

typedef struct {
    const uint8_t *bytes; /* [count] the whole map, in the tokenizer's arena */
    size_t count;
    const uint8_t *unit; /* [units] of 4 bytes each */
    uint32_t units;
    const char *text; /* [text_bytes] the replacements: valid UTF-8 */
    size_t text_bytes;
} wf_charsmap;

/* Copies the map into the arena and checks its sizes. WF_ERR_FORMAT names `what`, a file. */
wf_status wf_charsmap_init(wf_charsmap *m, wf_arena *arena, const char *what, const void *bytes,
                           size_t count);
/* Finds a rule for a prefix of s: the longest of whole characters, or (!longest) the shortest.
 * Returns the bytes of the prefix, and its replacement, which is borrowed; 0: no rule applies. An
 * index outside of the map ends the search. */
size_t wf_charsmap_find(const wf_charsmap *m, const char *s, size_t n, bool longest,
                        const char **text, size_t *bytes);

#endif

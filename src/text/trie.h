/* SPDX-License-Identifier: MIT */
/* trie.h - a trie of tokens by their bytes: finds all tokens that begin at a place of a text. */
#ifndef WF_TEXT_TRIE_H
#define WF_TEXT_TRIE_H

#include "text/vocab.h"

#define WF_TRIE_TOKEN 1024                   /* bytes; limit of one token: bounds a walk */
#define WF_TRIE_BYTES_ALL ((size_t)16 << 20) /* limit of all tokens together: nodes have 24 bits */
#define WF_TRIE_ROOT 0
#define WF_TRIE_NONE UINT32_MAX

typedef struct {
    uint32_t key;   /* 256 * parent + byte; the limit of all tokens keeps it in 32 bits */
    uint32_t child; /* 0: a free slot, since the root is nobody's child */
} wf_trie_edge;

typedef struct {
    wf_trie_edge *edge; /* [mask + 1] hash table */
    uint32_t mask;
    uint32_t nodes;
    int32_t *id; /* [nodes] token that ends at the node, or -1 */
} wf_trie;

/* Builds the trie of those tokens that text may become: of the model, valid UTF-8, not empty, and
 * neither control nor byte tokens. Of equal texts it takes the one that wf_vocab_find finds. */
wf_status wf_trie_init(wf_trie *t, wf_arena *arena, const wf_vocab *v);
/* Returns whether the trie has this token. */
bool wf_trie_takes(const wf_vocab *v, int32_t id);
/* Returns the child of a node, or WF_TRIE_NONE. */
uint32_t wf_trie_child(const wf_trie *t, uint32_t node, uint8_t byte);

#endif

/* SPDX-License-Identifier: MIT */
/* wordpiece.c - see wordpiece.h. */
#include "text/wordpiece.h"

wf_status wf_wordpiece_index(wf_wordpiece *p, wf_arena *arena)
{
    WF_TRY(wf_trie_init(&p->trie, arena, p->vocab));
    p->inside = WF_TRIE_ROOT;
    for (size_t i = 0; i < p->prefix_bytes && p->inside != WF_TRIE_NONE; i++)
        p->inside = wf_trie_child(&p->trie, p->inside, (uint8_t)p->prefix[i]);
    return WF_OK;
}

/* Finds the longest token below a node. Returns its bytes after the node; 0: no token. */
static size_t longest_below(const wf_trie *t, uint32_t node, const char *s, size_t n, int32_t *id)
{
    size_t found = 0;
    for (size_t i = 0; i < n && node != WF_TRIE_NONE; i++) {
        node = wf_trie_child(t, node, (uint8_t)s[i]);
        if (node != WF_TRIE_NONE && t->id[node] >= 0) {
            *id = t->id[node];
            found = i + 1;
        }
    }
    return found;
}

static bool is_too_long(const wf_wordpiece *p, const char *word, size_t bytes)
{
    size_t characters = 0;
    for (size_t i = 0; i < bytes; i++)
        characters += ((uint8_t)word[i] & 0xC0) != 0x80;
    return characters > p->longest;
}

wf_status wf_wordpiece_word(const wf_wordpiece *p, wf_bpe_run *r, const char *word, size_t bytes)
{
    size_t before = r->count, length;
    int32_t id = -1;
    bool known = !is_too_long(p, word, bytes);
    for (size_t at = 0; at < bytes && known; at += length) {
        length = longest_below(&p->trie, at ? p->inside : WF_TRIE_ROOT, word + at, bytes - at, &id);
        known = length > 0;
        if (known)
            WF_TRY(wf_bpe_push(r, id));
    }
    if (known)
        return WF_OK;
    r->count = before;
    return wf_bpe_push(r, p->unknown);
}

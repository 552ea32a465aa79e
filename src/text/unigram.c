/* SPDX-License-Identifier: MIT */
/*
 * unigram.c - see unigram.h.
 *
 * The rules for ties, unknown characters and their fusion are those of the package tokenizers. Sums
 * are continued from one stretch to the next, so they are rounded as in a single one.
 */
#include "text/unigram.h"

#include "base/mem.h"
#include "text/utf8.h"

#define STRETCH 4096 /* bytes after which a word is cut at the next possible boundary */
#define PENALTY 10.0 /* by which an unknown character is below the lowest score */
#define NOWHERE SIZE_MAX

wf_status wf_unigram_index(wf_unigram *u, wf_arena *arena)
{
    WF_TRY(wf_trie_init(&u->trie, arena, u->vocab));
    WF_TRY(wf_joins_init(&u->joins, arena));
    for (int i = 0; i < 256; i++)
        u->byte[i] = -1;
    for (int32_t id = 0; id < u->vocab->count; id++) {
        const wf_vocab_token *t = &u->vocab->token[id];
        if (wf_trie_takes(u->vocab, id))
            wf_joins_add_token(&u->joins, t->text, t->bytes);
        if (t->kind == WF_TOKEN_BYTE && wf_vocab_byte(t->text, t->bytes) >= 0)
            u->byte[wf_vocab_byte(t->text, t->bytes)] = id;
    }
    return WF_OK;
}

void wf_unigram_run_free(wf_unigram_run *l, wf_ctx *ctx)
{
    wf_mem_free(ctx, l->at);
    *l = (wf_unigram_run){0};
}

/* The word, and the stretch of it that begins at `base`. */
typedef struct {
    const wf_unigram *u;
    wf_unigram_run *l;
    wf_bpe_run *r;
    const char *word;
    size_t base;
    size_t unknown, unknown_end; /* unknown characters not yet written; NOWHERE: none */
} path;

/* Makes at[0 .. count) valid. */
static wf_status make_room(path *p, size_t count)
{
    wf_unigram_run *l = p->l;
    if (count > WF_STRETCH_MOST)
        return wf_fail(p->r->ctx, WF_ERR_USAGE,
                       "the text has a word of more than %u MiB, the tokenizer's limit; add spaces "
                       "or line breaks",
                       WF_STRETCH_MOST >> 20);
    if (count > l->room) {
        size_t room = l->room ? l->room : 256;
        while (room < count)
            room *= 2; /* the limit above keeps it small */
        void *grown = wf_mem_grow(p->r->ctx, l->at, room * sizeof *l->at);
        if (!grown)
            return WF_ERR_MEMORY;
        l->at = grown;
        l->room = room;
    }
    for (; l->count < count; l->count++)
        l->at[l->count].id = -1;
    return WF_OK;
}

/* Extends the best path to `from` by a token. Of equal sums the first one stays. */
static wf_status extend(path *p, size_t from, size_t length, int32_t id, double score)
{
    size_t to = from + length;
    WF_TRY(make_room(p, to + 1));
    double sum = p->l->at[from].score + score;
    if (p->l->at[to].id >= 0 && !(sum > p->l->at[to].score))
        return WF_OK;
    p->l->at[to].score = sum;
    p->l->at[to].from = (uint32_t)from;
    p->l->at[to].id = id;
    return WF_OK;
}

/* Extends the best path to `from` by every token that begins there. length: of the character. */
static wf_status extend_all(path *p, size_t from, size_t length, size_t bytes)
{
    const wf_unigram *u = p->u;
    const char *s = p->word + p->base + from;
    uint32_t node = WF_TRIE_ROOT;
    bool single = false;
    for (size_t i = 0; i < bytes - p->base - from; i++) {
        node = wf_trie_child(&u->trie, node, (uint8_t)s[i]);
        if (node == WF_TRIE_NONE)
            break;
        int32_t id = u->trie.id[node];
        if (id < 0)
            continue;
        WF_TRY(extend(p, from, i + 1, id, u->score[id]));
        single = single || i + 1 == length;
    }
    return single ? WF_OK : extend(p, from, length, u->unknown, u->least - PENALTY);
}

/* ---- Writing the path ---- */

/* Writes adjacent unknown characters: a token that they happen to be, their bytes, or one unknown
 * token. */
static wf_status put_unknown(path *p)
{
    const wf_unigram *u = p->u;
    if (p->unknown == NOWHERE)
        return WF_OK;
    const uint8_t *s = (const uint8_t *)p->word + p->unknown;
    size_t bytes = p->unknown_end - p->unknown;
    int32_t id = wf_vocab_find(u->vocab, (const char *)s, bytes);
    bool all = u->fallback;
    p->unknown = NOWHERE;
    if (id >= 0 && wf_trie_takes(u->vocab, id))
        return wf_bpe_push(p->r, id);
    for (size_t i = 0; i < bytes && all; i++)
        all = u->byte[s[i]] >= 0;
    for (size_t i = 0; i < bytes && all; i++)
        WF_TRY(wf_bpe_push(p->r, u->byte[s[i]]));
    return all ? WF_OK : wf_bpe_push(p->r, u->unknown);
}

static wf_status put_piece(path *p, size_t begin, size_t end, int32_t id)
{
    if (id != p->u->unknown) {
        WF_TRY(put_unknown(p));
        return wf_bpe_push(p->r, id);
    }
    if (p->unknown == NOWHERE)
        p->unknown = begin;
    p->unknown_end = end;
    return WF_OK;
}

/* Writes the best path to `end` and begins a stretch there. The links lead backwards: the first
 * loop reverses them, so that at[x].from is the end of the token that begins at x. */
static wf_status end_stretch(path *p, size_t end)
{
    wf_unigram_run *l = p->l;
    double score = l->at[end].score;
    for (size_t to = end, from = l->at[end].from; to > 0;) {
        size_t before = l->at[from].from;
        l->at[from].from = (uint32_t)to;
        to = from;
        from = before;
    }
    for (size_t from = 0; from < end;) {
        size_t to = l->at[from].from;
        WF_TRY(put_piece(p, p->base + from, p->base + to, l->at[to].id));
        from = to;
    }
    p->base += end;
    l->count = 0;
    WF_TRY(make_room(p, 1));
    l->at[0].score = score;
    l->at[0].from = 0;
    return WF_OK;
}

wf_status wf_unigram_word(const wf_unigram *u, wf_unigram_run *l, wf_bpe_run *r, const char *word,
                          size_t bytes)
{
    path p = {.u = u, .l = l, .r = r, .word = word, .unknown = NOWHERE};
    size_t length;
    uint32_t last = 0;
    l->count = 0;
    WF_TRY(make_room(&p, 1));
    l->at[0].score = 0;
    l->at[0].from = 0;
    for (size_t at = 0; at < bytes; at += length) {
        uint32_t next = wf_utf8_decode(word + at, &length);
        if (at - p.base >= STRETCH && !wf_joins_has(&u->joins, last, next))
            WF_TRY(end_stretch(&p, at - p.base));
        WF_TRY(extend_all(&p, at - p.base, length, bytes));
        last = next;
    }
    WF_TRY(end_stretch(&p, bytes - p.base));
    return put_unknown(&p);
}

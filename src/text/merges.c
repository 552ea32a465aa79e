/* SPDX-License-Identifier: MIT */
/*
 * merges.c - see merges.h.
 *
 * Models with scores have no list of merges: any two adjacent symbols merge if their concatenation
 * is a token. each_pair enumerates these pairs by cutting every token at every character.
 */
#include "text/merges.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

/* Returns whether text[at] begins a character. */
static bool is_cut(const char *text, size_t at)
{
    return ((uint8_t)text[at] & 0xC0) != 0x80;
}

/* Returns whether BPE can produce the token from text. */
static bool is_text(const wf_bpe *b, int32_t id)
{
    return id >= 0 && (b->vocab->token[id].kind == WF_TOKEN_NORMAL ||
                       b->vocab->token[id].kind == WF_TOKEN_USER);
}

/* Calls fn for every pair of tokens whose concatenation is a token. Skips a token that shares its
 * text with another, since the vocabulary finds only one of them. */
typedef wf_status pair_fn(void *user, int32_t left, int32_t right, int32_t made);

static wf_status each_pair(const wf_bpe *b, pair_fn *fn, void *user)
{
    for (int32_t id = 0; id < b->vocab->count; id++) {
        const wf_vocab_token *t = &b->vocab->token[id];
        if (!t->text || !is_text(b, id) || wf_vocab_find(b->vocab, t->text, t->bytes) != id)
            continue;
        for (uint32_t cut = 1; cut < t->bytes; cut++) {
            int32_t left = is_cut(t->text, cut) ? wf_vocab_find(b->vocab, t->text, cut) : -1;
            int32_t right = left >= 0 ? wf_vocab_find(b->vocab, t->text + cut, t->bytes - cut) : -1;
            if (is_text(b, left) && is_text(b, right))
                WF_TRY(fn(user, left, right, id));
        }
    }
    return WF_OK;
}

typedef struct {
    wf_ctx *ctx;
    const float *score; /* [vocab], or NULL */
    wf_merge_pair *pair;
    size_t count, room;
} list;

/* Without scores the caller sets the rank. */
static wf_status list_add(void *user, int32_t left, int32_t right, int32_t made)
{
    list *l = user;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 1024, bytes;
        wf_merge_pair *grown = wf_mem_grow(
            l->ctx, l->pair, wf_mul_size(room, sizeof *grown, &bytes) ? bytes : SIZE_MAX);
        if (!grown)
            return WF_ERR_MEMORY;
        l->pair = grown;
        l->room = room;
    }
    uint32_t rank = l->score ? wf_score_rank(l->score[made]) : 0;
    l->pair[l->count++] = (wf_merge_pair){left, right, made, rank};
    return WF_OK;
}

/* Ties are ordered by id, so that the result does not depend on qsort or hashing. */
static int by_rank(const void *x, const void *y)
{
    const wf_merge_pair *a = x, *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->made != b->made)
        return a->made < b->made ? -1 : 1;
    return a->left < b->left ? -1 : a->left > b->left;
}

wf_status wf_merges_list(const wf_bpe *b, wf_ctx *ctx, wf_merge_pair **out, size_t *count)
{
    list l = {.ctx = ctx, .score = b->score};
    wf_status status = WF_OK;
    *out = NULL;
    *count = 0;
    if (b->score)
        status = each_pair(b, list_add, &l);
    for (size_t i = 0; !b->score && b->merges.slot && i <= b->merges.mask && status == WF_OK; i++) {
        const wf_merge *m = &b->merges.slot[i];
        if (!m->made)
            continue;
        status = list_add(&l, (int32_t)m->left, (int32_t)m->right, (int32_t)(m->made - 1));
        if (status == WF_OK)
            l.pair[l.count - 1].rank = m->rank;
    }
    if (status != WF_OK) {
        wf_mem_free(ctx, l.pair);
        return status;
    }
    if (l.count > 0)
        qsort(l.pair, l.count, sizeof *l.pair, by_rank);
    *out = l.pair;
    *count = l.count;
    return WF_OK;
}

/* ---- From merges to scores ---- */

typedef struct {
    const wf_bpe *b;
    wf_ctx *ctx;
} checker;

static wf_status check_pair(void *user, int32_t left, int32_t right, int32_t made)
{
    const checker *c = user;
    if (wf_merges_find(&c->b->merges, left, right))
        return WF_OK;
    return wf_fail(
        c->ctx, WF_ERR_UNSUPPORTED,
        "the tokenizer cannot be written with scores: no merge makes token %d from %d and %d",
        (int)made, (int)left, (int)right);
}

wf_status wf_merges_scores(const wf_bpe *b, wf_ctx *ctx, float **out)
{
    wf_merge_pair *pair;
    size_t count;
    checker c = {b, ctx};
    *out = NULL;
    /* With scores every such pair would merge, so each must be a merge already. */
    WF_TRY(each_pair(b, check_pair, &c));
    WF_TRY(wf_merges_list(b, ctx, &pair, &count));
    float *score = wf_mem_array(ctx, (size_t)b->vocab->count, sizeof *score);
    wf_status status = score ? WF_OK : WF_ERR_MEMORY;
    int32_t last = -1;
    float next = 0;
    for (size_t i = 0; i < count && status == WF_OK; i++) {
        /* Merges of one token must be adjacent in rank: a score belongs to the token, not the
         * pair. */
        if (pair[i].made != last && score[pair[i].made] != 0)
            status = wf_fail(
                ctx, WF_ERR_UNSUPPORTED,
                "the tokenizer cannot be written with scores: token %d has merges of different "
                "ranks",
                (int)pair[i].made);
        else if (pair[i].made != last)
            /* Scores decrease with the rank. 0 means not set yet. */
            score[pair[i].made] = --next;
        last = pair[i].made;
    }
    /* Tokens that no merge makes: their scores are never used; make them the lowest. */
    for (int32_t i = 0; i < b->vocab->count && status == WF_OK; i++)
        if (score[i] == 0 && is_text(b, i))
            score[i] = --next;
    wf_mem_free(ctx, pair);
    if (status != WF_OK) {
        wf_mem_free(ctx, score);
        return status;
    }
    *out = score;
    return WF_OK;
}

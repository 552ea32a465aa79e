/* SPDX-License-Identifier: MIT */
/*
 * loader_plan.c - decides where the rows of batches begin.
 *
 * Text is one long stream of tokens: row i starts at token i * length. Conversations are packed
 * whole into rows, so their plan is a list with the first document of each row. Either plan depends
 * only on data and options, so a resumed run has the same batches.
 */
#include "base/check.h"
#include "base/mem.h"
#include "train/loader_priv.h"

/* ---- Conversations, which are never split ---- */

/* Returns the number of (token, target) pairs of a document that fit into a row, and its first
 * token; 0: the document is left out. */
int64_t wf_loader_pairs(const wf_loader *l, int64_t document, int64_t *first)
{
    const wf_data_split *s = l->split;
    int k = wf_data_shard(s->document, s->shards, document);
    const wf_shard *shard = &s->shard[k];
    int64_t d = document - s->document[k], begin = wf_shard_start(shard, d),
            end = wf_shard_start(shard, d + 1);
    *first = s->token[k];
    /* Verified before, but a file truncated meanwhile reads as zeros. */
    if (begin < 0 || end <= begin || end > shard->info.tokens)
        return 0;
    *first += begin;
    if (end - begin - 1 <= l->o.length)
        return end - begin - 1;
    /* A truncated document must still contain a target with loss. */
    for (int64_t i = 1; i <= l->o.length; i++)
        if (wf_shard_counts(shard, begin + i))
            return l->o.length;
    return 0;
}

/* Appends a row that begins at this document; keeps room for the end marker. */
static wf_status add_row(wf_loader *l, size_t *room, int64_t document)
{
    if ((size_t)l->rows + 2 > *room) {
        size_t grown = *room ? 2 * *room : 64;
        int64_t *p = wf_mem_grow(l->data->ctx, l->pack, grown * sizeof *p);
        if (!p)
            return WF_ERR_MEMORY;
        l->pack = p;
        *room = grown;
    }
    l->pack[l->rows++] = document;
    return WF_OK;
}

/* Packs whole documents into rows, in order; *most is the largest number per row. Each gets its own
 * sequence, because conversations must not attend to each other. */
static wf_status pack_documents(wf_loader *l, int64_t *most)
{
    size_t room = 0;
    int64_t allowed = l->o.sequences > 0 ? l->o.sequences / l->o.batch : INT64_MAX;
    int64_t used = 0, here = 0, cut = 0, dropped = 0, documents = l->split->info.documents, first;
    *most = 1;
    for (int64_t d = 0; d < documents; d++) {
        int64_t pairs = wf_loader_pairs(l, d, &first);
        int k = wf_data_shard(l->split->document, l->split->shards, d);
        const wf_shard *s = &l->split->shard[k];
        int64_t own = d - l->split->document[k];
        bool longer = wf_shard_start(s, own + 1) - wf_shard_start(s, own) - 1 > l->o.length;
        cut += longer && pairs > 0;
        dropped += longer && pairs == 0;
        if (pairs == 0)
            continue;
        if (l->rows == 0 || used + pairs > l->o.length || here >= allowed) {
            WF_TRY(add_row(l, &room, d));
            used = here = 0;
        }
        used += pairs;
        here++;
        *most = here > *most ? here : *most;
    }
    /* The end marker: row i has the documents pack[i] .. pack[i + 1]. */
    if (l->rows > 0)
        l->pack[l->rows] = documents;
    if (cut + dropped > 0)
        wf_ctx_log(
            l->data->ctx, WF_LOG_WARN,
            "conversations longer than %lld token%s, which are cut there: %lld of %lld; of these "
            "without an answer before the cut, which are left out: %lld",
            (long long)l->o.length, WF_PLURAL(l->o.length), (long long)(cut + dropped),
            (long long)documents, (long long)dropped);
    return WF_OK;
}

/* ---- Text, which is split anywhere ---- */

/* Returns the largest number of sequences in a row if documents start sequences. */
static int64_t count_sequences(const wf_loader *l)
{
    int64_t most = 1, here = 1, row = 0;
    for (int k = 0; k < l->split->shards; k++)
        for (int64_t d = 0; d < l->split->shard[k].info.documents; d++) {
            int64_t start = l->split->token[k] + wf_shard_start(&l->split->shard[k], d);
            if (start / l->o.length != row) {
                row = start / l->o.length;
                here = 1;
            }
            here += start % l->o.length != 0; /* a row's start already counts */
            most = here > most ? here : most;
        }
    return most;
}

/* ---- Both ---- */

static const char *split_name(const wf_loader *l)
{
    return l->split == &l->data->split[WF_SPLIT_VALID] ? "to validate on" : "to train on";
}

/* The last token is only a target, hence tokens - 1 pairs. */
static wf_status plan_text(wf_loader *l, int64_t *most)
{
    int64_t pairs = l->split->info.tokens - 1, T = l->o.length;
    l->rows = pairs / T + (l->o.in_order && pairs % T > 0);
    *most = l->o.documents ? count_sequences(l) : 1;
    l->batches = l->rows / l->o.batch + (l->o.in_order && l->rows % l->o.batch > 0);
    if (l->batches == 0)
        return wf_fail(
            l->data->ctx, WF_ERR_USAGE,
            "the data has %lld token%s %s, but one batch of %lld x %lld needs %lld; use a "
            "smaller batch or length, or prepare more text",
            (long long)l->split->info.tokens, WF_PLURAL(l->split->info.tokens), split_name(l),
            (long long)l->o.batch, (long long)T, (long long)(l->o.batch * T + 1));
    return WF_OK;
}

static wf_status plan_documents(wf_loader *l, int64_t *most)
{
    WF_TRY(pack_documents(l, most));
    if (l->rows == 0)
        return wf_fail(l->data->ctx, WF_ERR_USAGE,
                       "the data has no conversation %s with an answer within %lld token%s",
                       split_name(l), (long long)l->o.length, WF_PLURAL(l->o.length));
    l->batches = l->rows / l->o.batch + (l->o.in_order && l->rows % l->o.batch > 0);
    l->batches = l->batches > 0 ? l->batches : 1; /* padded: few conversations are enough */
    return WF_OK;
}

wf_status wf_loader_plan(wf_loader *l)
{
    int64_t most, tokens;
    if (l->split->info.tokens == 0)
        return wf_fail(l->data->ctx, WF_ERR_USAGE, "the data has no tokens %s; prepare more text",
                       split_name(l));
    if (l->o.batch < 1 || l->o.length < 1 || !wf_mul_i64(l->o.batch, l->o.length, &tokens) ||
        tokens > INT32_MAX - 1)
        return wf_fail(
            l->data->ctx, WF_ERR_USAGE,
            "a batch of %lld row%s of %lld token%s is not possible; use 1 or more, and fewer than "
            "2^31 tokens in total",
            (long long)l->o.batch, WF_PLURAL(l->o.batch), (long long)l->o.length,
            WF_PLURAL(l->o.length));
    WF_TRY(l->split->info.masked ? plan_documents(l, &most) : plan_text(l, &most));
    bool many = l->o.documents || l->split->info.masked;
    l->sequences = !many ? l->o.batch : l->o.sequences > 0 ? l->o.sequences : l->o.batch * most;
    if (l->sequences < l->o.batch)
        return wf_fail(l->data->ctx, WF_ERR_USAGE,
                       "a batch of %lld rows needs more than %lld sequence%s",
                       (long long)l->o.batch, (long long)l->sequences, WF_PLURAL(l->sequences));
    return WF_OK;
}

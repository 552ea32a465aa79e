/* SPDX-License-Identifier: MIT */
/*
 * loader_fill.c - fills one batch from its number.
 *
 * Pure functions of the loader and the slot's index: no state is kept between batches. Rows are
 * permuted per pass. Every loop is bounded by the batch's size even if a mapped file was truncated
 * and reads as zeros.
 */
#include "train/loader_priv.h"

typedef struct {
    const wf_loader *l;
    wf_loader_slot *slot;
    int64_t row;       /* of the batch */
    int64_t sequences; /* started so far */
    int64_t used;      /* filled tokens of the row */
} filling;

/* Starts a sequence. Each row gets one; it gets more only while every later row can still have
 * one. */
static void begin_sequence(filling *f)
{
    const wf_loader *l = f->l;
    int64_t behind = l->o.batch - 1 - f->row;
    if (f->used == 0 || f->sequences + behind < l->sequences)
        f->slot->seq_start[f->sequences++] = (int32_t)(f->row * l->o.length + f->used);
}

static int32_t *row_of(const filling *f, int32_t *array)
{
    return array + f->row * f->l->o.length + f->used;
}

/* Appends tokens from .. from + pairs, and the targets that follow each. */
static void put_pairs(filling *f, int64_t from, int64_t pairs)
{
    int32_t *tokens = row_of(f, f->slot->tokens), *targets = row_of(f, f->slot->targets);
    wf_data_copy(f->l->split, from, pairs, tokens);
    for (int64_t i = 1; i < pairs; i++)
        targets[i - 1] = tokens[i];
    wf_data_copy(f->l->split, from + pairs, 1, &targets[pairs - 1]);
    f->used += pairs;
}

/* ---- Text ---- */

/* Fills a row with T consecutive tokens; with `documents`, ignores targets across a boundary and
 * starts a sequence after it. */
static void fill_text(filling *f, int64_t row)
{
    const wf_loader *l = f->l;
    int64_t begin = row * l->o.length, left = l->split->info.tokens - 1 - begin,
            pairs = left < l->o.length ? left : l->o.length, end = begin + pairs;
    begin_sequence(f);
    if (pairs <= 0)
        return;
    put_pairs(f, begin, pairs);
    if (!l->o.documents)
        return;
    int32_t *targets = f->slot->targets + f->row * l->o.length;
    for (int64_t at = wf_data_next_start(l->split, begin); at <= end && at < l->split->info.tokens;
         at = wf_data_next_start(l->split, at)) {
        targets[at - 1 - begin] = WF_IGNORED;
        f->used = at - begin;
        if (at < end)
            begin_sequence(f);
    }
    f->used = pairs;
}

/* ---- Conversations ---- */

/* Fills a row with the documents that the plan packed into it. */
static void fill_documents(filling *f, int64_t row)
{
    const wf_loader *l = f->l;
    if (row >= l->rows) {
        begin_sequence(f);
        return;
    }
    for (int64_t d = l->pack[row]; d < l->pack[row + 1]; d++) {
        int64_t first, pairs = wf_loader_pairs(l, d, &first), room = l->o.length - f->used;
        pairs = pairs < room ? pairs : room; /* true unless the file was truncated since */
        if (pairs == 0)
            continue;
        int k = wf_data_shard(l->split->document, l->split->shards, d);
        const wf_shard *s = &l->split->shard[k];
        int64_t own = first - l->split->token[k];
        begin_sequence(f);
        int32_t *targets = row_of(f, f->slot->targets);
        put_pairs(f, first, pairs);
        for (int64_t i = 0; i < pairs; i++)
            if (!wf_shard_counts(s, own + i + 1))
                targets[i] = WF_IGNORED;
    }
}

/* ---- Both ---- */

/* Pads the row within the last sequence: attention is causal, and padding has no loss. */
static void pad_row(filling *f)
{
    int32_t *tokens = f->slot->tokens + f->row * f->l->o.length,
            *targets = f->slot->targets + f->row * f->l->o.length;
    for (int64_t i = f->used; i < f->l->o.length; i++) {
        tokens[i] = f->l->data->end;
        targets[i] = WF_IGNORED;
    }
}

/* Closes the last sequence, leaves the rest empty, and numbers positions within sequences. */
static void end_sequences(filling *f)
{
    const wf_loader *l = f->l;
    int32_t *start = f->slot->seq_start, all = (int32_t)(l->o.batch * l->o.length);
    for (int64_t i = f->sequences; i <= l->sequences; i++)
        start[i] = all;
    for (int64_t s = 0; s < f->sequences; s++)
        for (int32_t i = start[s]; i < start[s + 1]; i++)
            f->slot->positions[i] = i - start[s];
}

/* Counts targets with loss and the bytes of their text, for bits per byte. */
static void count_targets(filling *f)
{
    wf_batch *b = &f->slot->batch;
    for (int64_t i = 0; i < f->l->o.batch * f->l->o.length; i++) {
        int32_t target = f->slot->targets[i];
        if (target >= 0) {
            b->valid++;
            b->bytes += f->l->data->lengths[target];
        }
    }
}

void wf_loader_fill(const wf_loader *l, wf_loader_slot *slot)
{
    filling f = {.l = l, .slot = slot};
    int64_t pass = slot->index / l->batches, first = slot->index % l->batches * l->o.batch;
    wf_permutation order = wf_permutation_make((uint64_t)l->rows, l->o.seed, (uint64_t)pass);
    for (f.row = 0; f.row < l->o.batch; f.row++) {
        int64_t row = first + f.row;
        if (!l->o.in_order && row < l->rows)
            row = (int64_t)wf_permutation_at(&order, (uint64_t)row);
        f.used = 0;
        if (l->split->info.masked)
            fill_documents(&f, row);
        else
            fill_text(&f, row);
        pad_row(&f);
    }
    end_sequences(&f);
    slot->batch = (wf_batch){.tokens = slot->tokens,
                             .targets = slot->targets,
                             .positions = slot->positions,
                             .seq_start = slot->seq_start};
    count_targets(&f);
}

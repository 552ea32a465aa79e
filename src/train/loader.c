/* SPDX-License-Identifier: MIT */
/*
 * loader.c - returns batches by number, and prepares the next one in a thread.
 *
 * Two slots: the caller reads slot[current] while the worker fills the other. No lock is needed:
 * `current` and the other slot's index change only between wf_worker_wait and wf_worker_start, when
 * the worker is idle.
 */
#include "base/mem.h"
#include "train/loader_priv.h"

/* Fills the slot that is not handed out. Runs in the worker, or in the caller on a miss. */
static void prepare(void *arg)
{
    wf_loader *l = arg;
    wf_loader_fill(l, &l->slot[1 - l->current]);
}

static wf_status make_slot(wf_loader *l, wf_loader_slot *s)
{
    wf_ctx *ctx = l->data->ctx;
    size_t tokens = (size_t)(l->o.batch * l->o.length);
    s->index = -1;
    s->tokens = wf_mem_array(ctx, tokens, sizeof *s->tokens);
    s->targets = wf_mem_array(ctx, tokens, sizeof *s->targets);
    s->positions = wf_mem_array(ctx, tokens, sizeof *s->positions);
    s->seq_start = wf_mem_array(ctx, (size_t)l->sequences + 1, sizeof *s->seq_start);
    return s->tokens && s->targets && s->positions && s->seq_start ? WF_OK : WF_ERR_MEMORY;
}

static wf_status make(wf_loader *l)
{
    WF_TRY(wf_loader_plan(l));
    for (int i = 0; i < 2; i++)
        WF_TRY(make_slot(l, &l->slot[i]));
    return wf_worker_new(l->data->ctx, prepare, l, &l->worker);
}

wf_status wf_loader_new(const wf_data *d, wf_split split, const wf_loader_options *o,
                        wf_loader **out)
{
    *out = NULL;
    wf_loader *l = wf_mem_new(d->ctx, sizeof *l);
    if (!l)
        return WF_ERR_MEMORY;
    l->data = d;
    l->split = &d->split[split];
    l->o = *o;
    wf_status status = make(l);
    if (status == WF_OK)
        *out = l;
    else
        wf_loader_free(l);
    return status;
}

void wf_loader_free(wf_loader *l)
{
    if (!l)
        return;
    wf_ctx *ctx = l->data->ctx;
    wf_worker_free(l->worker);
    for (int i = 0; i < 2; i++) {
        wf_mem_free(ctx, l->slot[i].tokens);
        wf_mem_free(ctx, l->slot[i].targets);
        wf_mem_free(ctx, l->slot[i].positions);
        wf_mem_free(ctx, l->slot[i].seq_start);
    }
    wf_mem_free(ctx, l->pack);
    wf_mem_free(ctx, l);
}

int64_t wf_loader_batches(const wf_loader *l)
{
    return l->batches;
}

int64_t wf_loader_sequences(const wf_loader *l)
{
    return l->sequences;
}

wf_status wf_loader_get(wf_loader *l, int64_t index, const wf_batch **out)
{
    *out = NULL;
    if (index < 0 || index == INT64_MAX)
        return wf_fail(l->data->ctx, WF_ERR_USAGE,
                       "batch number %lld is not possible; give 0 or more", (long long)index);
    wf_worker_wait(l->worker);
    /* Not the next batch in order (the first one, or after resuming): compute it now. */
    if (l->slot[1 - l->current].index != index) {
        l->slot[1 - l->current].index = index;
        prepare(l);
    }
    l->current = 1 - l->current;
    if (wf_data_broken(l->split))
        return wf_fail(l->data->ctx, WF_ERR_IO,
                       "a shard was truncated while it was read; run `weft prepare` again");
    *out = &l->slot[l->current].batch;
    l->slot[1 - l->current].index = index + 1;
    wf_worker_start(l->worker);
    return WF_OK;
}

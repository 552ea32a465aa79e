/* SPDX-License-Identifier: MIT */
/*
 * fit.c - finds other settings for the same steps, and which of them fit into memory.
 *
 * Candidates divide the batch and multiply the accumulation, so that a step has the same tokens;
 * each also with recomputation. bf16 and adapters are listed too, but wf_fit_best does not choose
 * them, because they change results.
 */
#include "train/fit.h"

#include <stdio.h>
#include <string.h>

/* Returns the setup with another choice. It shares everything else with s: do not free it. */
static wf_setup varied(const wf_setup *s, const wf_choice *c)
{
    wf_setup v = *s;
    wf_fit_apply(&v, c);
    return v;
}

void wf_fit_apply(wf_setup *s, const wf_choice *c)
{
    s->sequences = s->sequences / s->options.batch * c->batch;
    s->options.batch = c->batch;
    s->options.accumulate = c->accumulate;
    s->options.recompute = c->recompute;
    s->options.compute = c->compute;
    wf_setup_scale(s);
}

static bool same(const wf_choice *a, const wf_choice *b)
{
    return a->batch == b->batch && a->accumulate == b->accumulate && a->recompute == b->recompute &&
           a->compute == b->compute && a->lora == b->lora;
}

static wf_status plan_adapters(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                               wf_choice *c)
{
    wf_setup v;
    wf_train_options o = s->options;
    o.lora = c->lora;
    o.ema = 0;
    wf_status status = wf_setup_make(s->ctx, &o, 0, &v);
    v.sample_tokens = s->sample_tokens;
    if (status == WF_OK)
        status = wf_setup_plan_memory(&v, device, peak, &c->plan);
    wf_setup_free(&v);
    return status;
}

typedef struct {
    const wf_setup *setup;
    wf_device *device;
    const wf_device_peak *peak;
    size_t limit; /* bytes; 0: no limit */
    wf_choice *out;
    int *count; /* candidates in out */
} search;

/* Plans a candidate and appends it, unless it is there already or the list is full. */
static wf_status consider(search *f, wf_choice c)
{
    for (int i = 0; i < *f->count; i++)
        if (same(&f->out[i], &c))
            return WF_OK;
    if (*f->count == WF_MAX_CHOICES)
        return WF_OK;
    if (c.lora != f->setup->options.lora) {
        WF_TRY(plan_adapters(f->setup, f->device, f->peak, &c));
    } else {
        const wf_setup v = varied(f->setup, &c);
        WF_TRY(wf_setup_plan_memory(&v, f->device, f->peak, &c.plan));
    }
    c.fits = f->limit == 0 || c.plan.total <= f->limit;
    f->out[(*f->count)++] = c;
    return WF_OK;
}

/* Ends after O(log batch) rounds: each divides the batch by its smallest factor. */
wf_status wf_fit_choices(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                         size_t limit, wf_choice *out, int *count)
{
    const wf_train_options *o = &s->options;
    search f = {s, device, peak, limit, out, count};
    wf_choice c = {.batch = o->batch,
                   .accumulate = o->accumulate,
                   .recompute = o->recompute,
                   .compute = o->compute,
                   .lora = o->lora};
    *count = 0;
    for (;;) {
        wf_choice again = c;
        WF_TRY(consider(&f, c));
        again.recompute = 1;
        WF_TRY(consider(&f, again));
        if (c.batch == 1)
            break;
        int64_t pieces = 2; /* split batches at least in two */
        while (c.batch % pieces != 0)
            pieces++;
        c.batch /= pieces;
        c.accumulate *= pieces;
    }
    wf_choice narrow = out[0];
    narrow.compute = WF_BF16;
    WF_TRY(consider(&f, narrow));
    narrow.recompute = 1;
    WF_TRY(consider(&f, narrow));
    wf_choice adapters = out[0];
    /* An example; the user may choose another rank. */
    adapters.lora = 16;
    return s->base && !s->adapter ? consider(&f, adapters) : WF_OK;
}

/* The first choice, the user's own, wins if it fits; otherwise the fastest that computes the
 * same. */
const wf_choice *wf_fit_best(const wf_setup *s, const wf_choice *choice, int count)
{
    const wf_choice *best = NULL;
    for (int i = 0; i < count; i++) {
        const wf_choice *c = &choice[i];
        bool alike = c->compute == s->options.compute && c->lora == s->options.lora;
        if (!c->fits || !alike)
            continue;
        if (i == 0)
            return c;
        if (!best || c->plan.seconds < best->plan.seconds)
            best = c;
    }
    return best;
}

const char *wf_fit_words(const wf_choice *c, char *buf, size_t cap)
{
    size_t len = 0;
    wf_text_append(buf, cap, &len, "--batch %lld --accumulate %lld", (long long)c->batch,
                   (long long)c->accumulate);
    if (c->recompute)
        wf_text_append(buf, cap, &len, " --recompute %lld", (long long)c->recompute);
    if (c->compute != WF_F32)
        wf_text_append(buf, cap, &len, " --compute %s", wf_type_name(c->compute));
    if (c->lora)
        wf_text_append(buf, cap, &len, " --lora %lld", (long long)c->lora);
    return buf;
}

/* Fails with WF_ERR_MEMORY if the setup needs more than `limit` bytes, and names settings that fit.
 * limit 0: no check. */
wf_status wf_setup_refuse(const wf_setup *s, wf_device *device, size_t limit)
{
    wf_setup_plan plan;
    wf_choice choice[WF_MAX_CHOICES];
    char words[96];
    int count;
    if (limit == 0)
        return WF_OK;
    WF_TRY(wf_setup_plan_memory(s, device, NULL, &plan));
    if (plan.total <= limit)
        return WF_OK;
    WF_TRY(wf_fit_choices(s, device, NULL, limit, choice, &count));
    const wf_choice *least = &choice[0], *fits = NULL;
    for (int i = 0; i < count; i++) {
        least = choice[i].plan.total < least->plan.total ? &choice[i] : least;
        if (choice[i].fits && !fits)
            fits = &choice[i];
    }
    const wf_choice *other = fits ? fits : least;
    return wf_fail(
        s->ctx, WF_ERR_MEMORY,
        "this setup needs %.2f GB (states %.2f, activations %.2f) but %.2f GB are available; "
        "%s %s, which needs %.2f GB (`weft plan` shows more)",
        (double)plan.total / 1e9, (double)plan.memory.states / 1e9,
        (double)plan.memory.activations / 1e9, (double)limit / 1e9,
        fits ? "use" : "no setup fits; the smallest is", wf_fit_words(other, words, sizeof words),
        (double)other->plan.total / 1e9);
}

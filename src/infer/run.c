/* SPDX-License-Identifier: MIT */
/*
 * run.c - one generator step: schedules tokens of all sequences, runs the model once, samples.
 *
 * A sequence takes part when it has uncached tokens. It gets logits, and so a new token, when the
 * run reaches its last token.
 */
#include <math.h>

#include "base/clock.h"
#include "device/device.h"
#include "infer/generator.h"

/* Adds n tokens of a sequence to the run, from index `at` on. */
static wf_status add_tokens(wf_generator *g, wf_sequence *s, int64_t at, int64_t n)
{
    WF_TRY(wf_sequence_reserve(s, n));
    for (int64_t i = 0; i < n; i++) {
        g->tokens[at + i] = s->token[s->cached + i];
        g->positions[at + i] = (int32_t)(s->cached + i);
    }
    g->lengths[s->slot] = (int32_t)(s->cached + n);
    s->row = -1;
    if (s->cached + n == s->count) { /* the last token: its logits choose the next one */
        s->row = s->slot;
        g->rows[s->slot] = (int32_t)(at + n - 1);
    }
    return WF_OK;
}

/* Divides at most `most` tokens among the sequences and returns their sum. Sequences with one token
 * (decode) come first, so that a long prompt does not delay them; prompts follow in slot order. The
 * counts are left in g->lengths, which gather then replaces. */
static int64_t share(wf_generator *g, int64_t most)
{
    int64_t left = most;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < g->sequences; i++) {
            const wf_sequence *s = g->slot[i];
            int64_t want = s && s->stop == WF_UNFINISHED ? s->count - s->cached : 0;
            if (pass == 0)
                g->lengths[i] = want == 1;
            else if (want > 1)
                g->lengths[i] = (int32_t)(want < left ? want : left);
            if (pass == 0 ? want == 1 : want > 1)
                left -= g->lengths[i];
        }
    return most - left;
}

/* Fills the inputs of a run with at most `most` tokens: slots in order, each contiguous. */
static wf_status gather(wf_generator *g, int64_t most, int64_t *tokens)
{
    int64_t at = 0;
    *tokens = share(g, most);
    for (int64_t i = 0; i < g->sequences; i++) {
        int64_t n = g->lengths[i];
        g->seq_start[i] = (int32_t)at;
        g->rows[i] = 0;
        if (g->slot[i])
            g->slot[i]->row = -1;
        if (n > 0)
            WF_TRY(add_tokens(g, g->slot[i], at, n));
        at += n;
    }
    g->seq_start[g->sequences] = (int32_t)at;
    return WF_OK;
}

wf_status wf_generator_launch(wf_generator *g, wf_exec *exec, int64_t tokens, int64_t used,
                              bool rows)
{
    const size_t one = sizeof(int32_t), n = (size_t)tokens, s = (size_t)g->sequences;
    for (int64_t i = used; i < tokens; i++) /* padding belongs to no sequence */
        g->tokens[i] = g->positions[i] = 0;
    WF_TRY(wf_exec_write(exec, "tokens", g->tokens, n * one));
    WF_TRY(wf_exec_write(exec, "positions", g->positions, n * one));
    WF_TRY(wf_exec_write(exec, "seq_start", g->seq_start, (s + 1) * one));
    WF_TRY(wf_exec_write(exec, "lengths", g->lengths, s * one));
    for (int i = 0; i < g->caches.count; i++)
        WF_TRY(wf_exec_write(exec, wf_table_input(i), g->table[i],
                             s * (size_t)g->size[i].pages * one));
    if (rows)
        WF_TRY(wf_exec_write(exec, "rows", g->rows, s * one));
    return wf_exec_run(exec);
}

/* *any: a sequence needs a token. *logits: one of them needs all logits, not only the device's
 * argmax. */
static void look_at_rows(const wf_generator *g, bool *any, bool *logits)
{
    *any = *logits = false;
    for (int64_t i = 0; i < g->sequences; i++)
        if (g->slot[i] && g->slot[i]->row >= 0) {
            *any = true;
            *logits = *logits || g->mask.holes || wf_sampler_needs_logits(g->slot[i]->sampler);
        }
}

/* Reads back as little as the sequences need: argmax and maximum, or all logits. */
static wf_status read_rows(wf_generator *g, const wf_bucket *b)
{
    const size_t s = (size_t)g->sequences;
    bool any, logits;
    look_at_rows(g, &any, &logits);
    if (logits)
        return wf_exec_read(b->exec, "logits", g->logits, s * (size_t)g->vocab * sizeof *g->logits);
    if (!any)
        return WF_OK;
    WF_TRY(wf_exec_read(b->exec, "best", g->best, s * sizeof *g->best));
    return wf_exec_read(b->exec, "top", g->top, s * sizeof *g->top);
}

/* The bucket search ends: gather was limited to the largest bucket. */
wf_status wf_generator_run(wf_generator *g, int64_t *tokens)
{
    WF_TRY(gather(g, g->bucket[g->buckets - 1].tokens, tokens));
    if (*tokens == 0)
        return WF_OK;
    const wf_bucket *b = g->bucket;
    while (b->tokens < *tokens)
        b++;
    WF_TRY(wf_generator_launch(g, b->exec, b->tokens, *tokens, true));
    for (int64_t i = 0; i < g->sequences; i++)
        if (g->seq_start[i + 1] > g->seq_start[i])
            g->slot[i]->cached = g->lengths[i];
    return read_rows(g, b);
}

static wf_status take_token(wf_generator *g, wf_sequence *s, bool logits)
{
    const float *row = g->logits + s->slot * g->vocab;
    int32_t id = g->best[s->slot];
    if (logits)
        WF_TRY(wf_sampler_report(s->sampler, wf_sampler_pick(s->sampler, g->scratch, row, &id)));
    else if (!isfinite(g->top[s->slot]))
        return wf_fail(g->ctx, WF_ERR_DEVICE,
                       "the model's logits are NaN or infinite; look for bad weights with "
                       "--check-tensors, or for bad kernels with --device check");
    return wf_sequence_take(s, id);
}

/* Samples the next token of every sequence that has logits. A sequence whose sampling fails is
 * cancelled: it would fail again in every later step. */
static wf_status take_tokens(wf_generator *g, int64_t *taken)
{
    bool any, logits;
    look_at_rows(g, &any, &logits);
    for (int64_t i = 0; i < g->sequences; i++) {
        wf_sequence *s = g->slot[i];
        if (!s || s->row < 0)
            continue;
        wf_status status = take_token(g, s, logits);
        s->row = -1;
        if (status != WF_OK) {
            s->stop = WF_STOP_CANCEL;
            return status;
        }
        ++*taken;
    }
    return WF_OK;
}

/* After a failure: drops unused logits, and schedules their tokens to be computed again. */
static void forget_rows(wf_generator *g)
{
    for (int64_t i = 0; i < g->sequences; i++) {
        wf_sequence *s = g->slot[i];
        if (s && s->row >= 0 && s->cached == s->count)
            s->cached--;
    }
}

wf_status wf_generator_step(wf_generator *g, bool *busy)
{
    int64_t tokens, taken = 0;
    uint64_t begin = wf_clock_ns(), packing = g->session->packing_ns;
    wf_status status = wf_generator_run(g, &tokens);
    if (status == WF_OK)
        status = take_tokens(g, &taken);
    if (status != WF_OK) {
        forget_rows(g);
        return status;
    }
    uint64_t time = wf_clock_ns() - begin - (g->session->packing_ns - packing);
    if (tokens > taken) { /* the run contained prompt tokens: count its time as prompt time */
        g->stats.prompt_tokens += (uint64_t)(tokens - taken);
        g->stats.prompt_nanoseconds += time;
    } else {
        g->stats.nanoseconds += time;
    }
    g->stats.tokens += (uint64_t)taken;
    bool more = false;
    for (int64_t i = 0; i < g->sequences; i++)
        more = more || (g->slot[i] && g->slot[i]->stop == WF_UNFINISHED);
    if (busy)
        *busy = more;
    return WF_OK;
}

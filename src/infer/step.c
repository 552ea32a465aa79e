/* SPDX-License-Identifier: MIT */
/*
 * step.c - one step of an engine: a run of the model, and the next tokens of its sequences.
 *
 * Rows are sampled in parallel. What follows from a token (text, stop strings, events) happens in
 * the order of the sequences.
 */
#include <math.h>

#include "base/clock.h"
#include "device/device.h"
#include "infer/engine.h"

#define NOT_FINITE                                                                               \
    "the model's logits are NaN or infinite; look for bad weights with --check-tensors, or for " \
    "bad kernels with --device check"

/* ---- The run ---- */

/* Writes the inputs of an executable, with padding that belongs to no sequence, and runs it. */
static wf_status launch(wf_engine *e, const wf_bucket *b)
{
    const size_t one = sizeof(int32_t), tokens = (size_t)b->tokens, s = (size_t)b->sequences;
    for (int64_t i = e->batch_tokens; i < b->tokens; i++)
        e->tokens[i] = e->positions[i] = 0;
    for (int64_t i = e->batch_count; i < b->sequences; i++) {
        e->seq_start[i + 1] = (int32_t)e->batch_tokens;
        e->lengths[i] = 0;
    }
    for (int64_t i = e->batch_rows; i < b->rows; i++)
        e->row[i] = 0;
    WF_TRY(wf_exec_write(b->exec, "tokens", e->tokens, tokens * one));
    WF_TRY(wf_exec_write(b->exec, "positions", e->positions, tokens * one));
    WF_TRY(wf_exec_write(b->exec, "seq_start", e->seq_start, (s + 1) * one));
    WF_TRY(wf_exec_write(b->exec, "lengths", e->lengths, s * one));
    for (int i = 0; i < e->caches.count; i++)
        WF_TRY(wf_exec_write(b->exec, wf_table_input(i), e->table[i],
                             s * (size_t)e->size[i].pages * one));
    WF_TRY(wf_exec_write(b->exec, "rows", e->row, (size_t)b->rows * one));
    return wf_exec_run(b->exec);
}

/* Whether a sequence needs all logits of its rows, not only the device's argmax. */
static bool needs_logits(const wf_sequence *s)
{
    return s->row_count > 0 &&
           (s->logits || s->engine->mask.holes || wf_sampler_needs_logits(s->sampler));
}

/* Reads back as little as the sequences need: argmax and maximum, or all logits of some rows. A run
 * without rows reads one value, too: reading waits for the run, so that its time is measured, and
 * reports its faults before its pages are used. */
static wf_status read_rows(wf_engine *e, const wf_bucket *b)
{
    const size_t row = (size_t)e->vocab * sizeof *e->logits;
    int64_t first = e->batch_rows, end = 0;
    for (int64_t i = 0; i < e->batch_count; i++) {
        const wf_sequence *s = e->batch[i];
        if (!needs_logits(s))
            continue;
        first = s->row < first ? s->row : first;
        end = s->row + s->row_count;
    }
    if (first < end)
        WF_TRY(wf_exec_read_at(b->exec, "logits", (size_t)first * row, e->logits + first * e->vocab,
                               (size_t)(end - first) * row));
    const size_t rows = e->batch_rows > 0 ? (size_t)e->batch_rows : 1;
    WF_TRY(wf_exec_read_at(b->exec, "best", 0, e->best, rows * sizeof *e->best));
    return wf_exec_read_at(b->exec, "top", 0, e->top, rows * sizeof *e->top);
}

/* A device may allocate in the first run of an executable. If that finds no memory, a larger one
 * runs. */
static wf_status run(wf_engine *e)
{
    const wf_bucket *b;
    wf_status status;
    do {
        WF_TRY(wf_bucket_find(e, e->batch_tokens, e->batch_count, e->batch_rows, &b));
        status = launch(e, b);
        if (status == WF_OK)
            status = read_rows(e, b);
    } while (status == WF_ERR_MEMORY && wf_bucket_avoid(e, b));
    return status;
}

/* ---- The next tokens ---- */

/* Calls the request's function. Its message may be missing. */
static void pass_row(wf_sequence *s, size_t at, const float *logits)
{
    const wf_engine *e = s->engine;
    wf_ctx_clear(e->ctx);
    wf_status status = s->logits(s->user, at, logits, (size_t)e->vocab);
    const char *message = wf_ctx_message(e->ctx);
    if (status != WF_OK)
        wf_sequence_fail(s, status,
                         *message ? message : "the logits callback failed without a message");
}

/* Passes the logits of a run to the request's function. The sequence ends after its last token. */
static void pass_logits(wf_sequence *s)
{
    const wf_engine *e = s->engine;
    for (int64_t i = 0; i < s->row_count && s->stop == WF_UNFINISHED; i++) {
        if (isfinite(e->top[s->row + i]))
            pass_row(s, (size_t)(s->cached - s->row_count + i),
                     e->logits + (s->row + i) * e->vocab);
        else
            wf_sequence_fail(s, WF_ERR_DEVICE, NOT_FINITE);
        s->logits_from++; /* a preempted sequence continues behind them */
    }
    if (s->stop == WF_UNFINISHED && s->cached == s->count)
        s->stop = WF_STOP_LIMIT;
}

/* Samples all rows that need it. Greedy rows have the device's argmax. */
static void sample(wf_engine *e)
{
    size_t n = 0;
    for (int64_t b = 0; b < e->batch_count; b++) {
        const wf_sequence *s = e->batch[b];
        if (!s->logits && needs_logits(s))
            e->job[n++] =
                (wf_sample_job){.sampler = s->sampler, .logits = e->logits + s->row * e->vocab};
    }
    wf_sample_rows_pick(e->sampling, e->job, n);
}

/* Takes the token that a job, or the device, chose for s. */
static void take(wf_sequence *s, const wf_sample_job **job)
{
    const wf_engine *e = s->engine;
    int32_t id = e->best[s->row];
    char text[WF_SAMPLER_FAULT_TEXT];
    if (needs_logits(s)) {
        const wf_sample_job *j = (*job)++;
        id = j->id;
        if (j->fault.kind != WF_FAULT_NONE) {
            wf_sequence_fail(s, WF_ERR_DEVICE,
                             wf_sampler_fault_text(s->sampler, j->fault, text, sizeof text));
            return;
        }
    } else if (!isfinite(e->top[s->row])) {
        wf_sequence_fail(s, WF_ERR_DEVICE, NOT_FINITE);
        return;
    }
    wf_status status = wf_sequence_take(s, id);
    if (status != WF_OK)
        wf_sequence_fail(s, status, wf_ctx_message(e->ctx));
}

/* Gives every sequence of the run its new token, or its logits. Returns the number of tokens. */
static int64_t take_all(wf_engine *e)
{
    const wf_sample_job *job = e->job;
    int64_t taken = 0;
    sample(e);
    for (int64_t b = 0; b < e->batch_count; b++) {
        wf_sequence *s = e->batch[b];
        const int64_t before = s->count;
        if (s->logits)
            pass_logits(s);
        else if (s->row_count > 0)
            take(s, &job);
        taken += s->count - before;
        if (s->count > before && s->stop != WF_STOP_ERROR)
            wf_engine_report(e, WF_EVENT_TOKEN, s);
        if (s->stop != WF_UNFINISHED)
            wf_sequence_end(s);
    }
    return taken;
}

/* ---- Time ---- */

/* Follows a measured value, so that one slow step does not decide. */
static void follow(double *rate, double measured)
{
    *rate = *rate > 0 ? *rate + 0.25 * (measured - *rate) : measured;
}

static void measure(wf_engine *e, uint64_t ns, int64_t taken)
{
    wf_engine_stats *t = &e->stats;
    const int64_t prompt = t->last.prompt_tokens;
    if (prompt > 0) { /* the whole run counts as prompt time */
        t->prompt_tokens += (uint64_t)prompt;
        t->prompt_nanoseconds += ns;
        double decoding = t->last.tokens > prompt ? e->decode_ns : 0;
        if ((double)ns > decoding)
            follow(&e->prompt_ns, ((double)ns - decoding) / (double)prompt);
        else /* a slow step was measured; with prompts in every step, no other would correct it */
            e->decode_ns = (double)ns;
    } else {
        t->nanoseconds += ns;
        follow(&e->decode_ns, (double)ns);
    }
    t->tokens += (uint64_t)taken;
    t->steps++;
}

/* Describes the run before its sequences change. */
static void describe(wf_engine *e)
{
    wf_engine_step_info *last = &e->stats.last;
    last->sequences = e->batch_count;
    last->tokens = e->batch_tokens;
    last->rows = e->batch_rows;
    for (int i = 0; i < e->caches.count; i++)
        last->pages += wf_pages_used(&e->pages[i]);
    for (int64_t b = 0; b < e->batch_count; b++) {
        const wf_sequence *s = e->batch[b];
        if (s->take > 1 || s->cached < s->prompt)
            last->prompt_tokens += s->take - (s->row_count > 0 && !s->logits);
    }
}

wf_status wf_engine_step(wf_engine *e, bool *busy)
{
    /* Packing weights and compiling are one-time costs: leave them out of the time. */
    const uint64_t begin = wf_clock_ns(), once = e->session->packing_ns + e->compiling_ns;
    int64_t taken = 0;
    e->events = 0;
    e->stats.last = (wf_engine_step_info){0};
    wf_engine_schedule(e);
    describe(e);
    if (e->batch_count > 0) {
        wf_status status = run(e);
        if (status != WF_OK) {
            wf_engine_undo(e);
            return status;
        }
        wf_engine_done(e);
        taken = take_all(e);
        e->stats.last.nanoseconds =
            wf_clock_ns() - begin - (e->session->packing_ns + e->compiling_ns - once);
        measure(e, e->stats.last.nanoseconds, taken);
    }
    e->stats.last.running = e->running_count;
    e->stats.last.waiting = e->waitlist.count;
    if (busy)
        *busy = e->running_count + e->waitlist.count > 0;
    return WF_OK;
}

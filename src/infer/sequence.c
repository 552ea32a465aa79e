/* SPDX-License-Identifier: MIT */
/*
 * sequence.c - one sequence: its request, tokens, generated text, and why it ended.
 *
 * A waiting sequence is small: its prompt, its request and a sampler without arrays of the
 * vocabulary's size. Text goes through the decoder, which holds back incomplete characters, and the
 * stopper, which holds back possible stop strings; both are flushed when the sequence ends.
 */
#include <string.h>

#include "base/mem.h"
#include "infer/engine.h"

/* ---- Requests ---- */

static wf_status copy_stop_tokens(wf_sequence *s, const wf_request *r)
{
    const wf_engine *e = s->engine;
    if (r->stop_tokens < 0 || (r->stop_tokens > 0 && !r->stop_token))
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "stop_tokens is %d, but must be 0 or more, with stop_token set",
                       r->stop_tokens);
    for (int i = 0; i < r->stop_tokens; i++)
        if (r->stop_token[i] < 0 || r->stop_token[i] >= e->vocab)
            return wf_fail(e->ctx, WF_ERR_USAGE,
                           "stop token %d is outside the vocabulary of 0 to %lld", r->stop_token[i],
                           (long long)e->vocab - 1);
    if (r->stop_tokens == 0)
        return WF_OK;
    s->stop_token = wf_mem_array(e->ctx, (size_t)r->stop_tokens, sizeof *s->stop_token);
    if (!s->stop_token)
        return WF_ERR_MEMORY;
    s->stop_tokens = r->stop_tokens;
    memcpy(s->stop_token, r->stop_token, (size_t)r->stop_tokens * sizeof *r->stop_token);
    return WF_OK;
}

static wf_status take_request(wf_sequence *s, const wf_request *r)
{
    const wf_engine *e = s->engine;
    if (r->limit < 0)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "limit is %lld tokens, but must be 0 (no limit) or more",
                       (long long)r->limit);
    s->limit = r->limit;
    s->ignore_end = r->ignore_end;
    s->control = r->control;
    s->salt = r->salt;
    s->logits = r->logits;
    s->logits_from = r->logits_from < INT32_MAX ? (int64_t)r->logits_from : INT32_MAX;
    s->user = r->user;
    s->ticket.priority = r->priority;
    s->ticket.key = r->key;
    WF_TRY(copy_stop_tokens(s, r));
    WF_TRY(wf_sampler_new(e->ctx, e->vocab, &r->sampling, &s->sampler));
    wf_sampler_mask(s->sampler, &e->mask);
    return r->stops != 0 ? wf_stopper_new(e->ctx, r->stop, r->stops, &s->stopper) : WF_OK;
}

static wf_status check_prompt(const wf_engine *e, const int32_t *prompt, size_t count)
{
    if (count == 0)
        return wf_fail(e->ctx, WF_ERR_USAGE, "the prompt is empty; give at least one token");
    if (count > (size_t)e->limit && e->limit < e->context)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "the prompt has %zu tokens, but the cache holds only %lld; shorten the "
                       "prompt, or use a larger cache (--cache-tokens)",
                       count, (long long)e->limit);
    if (count > (size_t)e->limit)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "the prompt has %zu tokens, but the context has only %lld; shorten the "
                       "prompt, or raise the context (-c, up to %lld for this model)",
                       count, (long long)e->limit, (long long)e->source.config->context);
    for (size_t i = 0; i < count; i++)
        if (prompt[i] < 0 || prompt[i] >= e->vocab)
            return wf_fail(
                e->ctx, WF_ERR_USAGE,
                "the prompt contains token %d, which is outside the vocabulary of 0 to %lld",
                prompt[i], (long long)e->vocab - 1);
    return WF_OK;
}

static wf_status copy_prompt(wf_sequence *s, const int32_t *prompt, size_t count)
{
    s->token = wf_mem_array(s->engine->ctx, count, sizeof *s->token);
    if (!s->token)
        return WF_ERR_MEMORY;
    memcpy(s->token, prompt, count * sizeof *prompt);
    s->room = s->count = s->prompt = (int64_t)count;
    return WF_OK;
}

wf_status wf_engine_submit(wf_engine *e, const int32_t *prompt, size_t count,
                           const wf_request *request, wf_sequence **out)
{
    static const wf_request plain = {0};
    *out = NULL;
    WF_TRY(check_prompt(e, prompt, count));
    wf_sequence *s = wf_mem_new(e->ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->engine = e;
    s->phase = WF_PHASE_ENDED; /* until it waits */
    s->place = -1;
    s->text.ctx = e->ctx;
    wf_status status = take_request(s, request ? request : &plain);
    if (status == WF_OK)
        status = copy_prompt(s, prompt, count);
    if (status == WF_OK)
        status = wf_waitlist_add(&e->waitlist, &s->ticket);
    if (status != WF_OK) {
        wf_sequence_free(s);
        return status;
    }
    s->phase = WF_PHASE_WAITING;
    *out = s;
    return WF_OK;
}

/* ---- Beginning and ending ---- */

wf_status wf_sequence_begin(wf_sequence *s)
{
    const wf_engine *e = s->engine;
    if (s->begun)
        return WF_OK;
    s->begun = true;
    if (e->source.tokenizer)
        WF_TRY(wf_decoder_new(e->source.tokenizer, e->ctx, s->control ? WF_TEXT_CONTROL : 0,
                              &s->decoder));
    for (int64_t i = 0; i < s->prompt; i++)
        WF_TRY(wf_sampler_accept(s->sampler, s->token[i]));
    return WF_OK;
}

/* Frees what only a waiting or running sequence needs. */
static void free_request(wf_sequence *s)
{
    wf_sampler_free(s->sampler);
    wf_decoder_free(s->decoder);
    wf_stopper_free(s->stopper);
    wf_mem_free(s->engine->ctx, s->stop_token);
    s->sampler = NULL;
    s->decoder = NULL;
    s->stopper = NULL;
    s->stop_token = NULL;
}

void wf_sequence_fail(wf_sequence *s, wf_status status, const char *message)
{
    s->stop = WF_STOP_ERROR;
    s->status = status;
    if (!message || !*message)
        message = wf_ctx_message(s->engine->ctx);
    const size_t bytes = strlen(message) + 1;
    s->error = wf_mem_new(s->engine->ctx, bytes);
    if (s->error)
        memcpy(s->error, message, bytes);
}

void wf_sequence_end(wf_sequence *s)
{
    wf_engine_stop(s);
    s->phase = WF_PHASE_ENDED;
    free_request(s);
    wf_engine_report(s->engine, WF_EVENT_END, s);
}

void wf_sequence_cancel(wf_sequence *s)
{
    if (s->phase == WF_PHASE_ENDED)
        return;
    if (s->phase == WF_PHASE_WAITING)
        wf_waitlist_remove(&s->engine->waitlist, &s->ticket, false);
    else
        wf_engine_stop(s);
    s->phase = WF_PHASE_ENDED;
    s->stop = WF_STOP_CANCEL;
    free_request(s);
}

void wf_sequence_free(wf_sequence *s)
{
    if (!s)
        return;
    wf_ctx *ctx = s->engine->ctx;
    wf_sequence_cancel(s);
    free_request(s);
    wf_mem_free(ctx, s->error);
    wf_mem_free(ctx, s->given);
    wf_mem_free(ctx, s->text.text);
    wf_mem_free(ctx, s->token);
    wf_mem_free(ctx, s);
}

/* ---- Text ---- */

/* Passes decoded text through the stopper; text that may begin a stop string is held back there. */
static wf_status add_text(wf_sequence *s, const char *piece, size_t bytes)
{
    const char *sure;
    size_t sure_bytes;
    bool stopped;
    if (!s->stopper) {
        wf_writer_bytes(&s->text, piece, bytes);
        return s->text.status;
    }
    WF_TRY(wf_stopper_next(s->stopper, piece, bytes, &sure, &sure_bytes, &stopped));
    wf_writer_bytes(&s->text, sure, sure_bytes);
    if (stopped)
        s->stop = WF_STOP_TEXT;
    return s->text.status;
}

/* Flushes the text that the decoder and the stopper hold back. After a stop string both flush
 * nothing. */
static wf_status end_text(wf_sequence *s)
{
    const char *piece = NULL;
    size_t bytes = 0;
    if (s->decoder) {
        WF_TRY(wf_decoder_end(s->decoder, &piece, &bytes));
        WF_TRY(add_text(s, piece, bytes));
    }
    if (s->stopper) {
        wf_stopper_end(s->stopper, &piece, &bytes);
        wf_writer_bytes(&s->text, piece, bytes);
    }
    return s->text.status;
}

static bool is_stop_token(const wf_sequence *s, int32_t id)
{
    for (int i = 0; i < s->stop_tokens; i++)
        if (s->stop_token[i] == id)
            return true;
    return false;
}

/* Makes room for one more token; doubles, at most to the context. */
static wf_status grow(wf_sequence *s)
{
    const wf_engine *e = s->engine;
    if (s->count < s->room)
        return WF_OK;
    int64_t room = 2 * s->room > 64 ? 2 * s->room : 64;
    room = room < e->limit ? room : e->limit;
    int32_t *grown = wf_mem_grow(e->ctx, s->token, (size_t)room * sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    s->token = grown;
    s->room = room;
    return WF_OK;
}

/* Adds the text of a token, and the reason to stop if it ends the text. A stop token or an ending
 * token adds no text. */
static wf_status read_token(wf_sequence *s, int32_t id)
{
    const wf_tokenizer *t = s->engine->source.tokenizer;
    const char *piece;
    size_t bytes;
    if (is_stop_token(s, id))
        s->stop = WF_STOP_TEXT;
    else if (t && !s->ignore_end && wf_tokenizer_ends(t, id))
        s->stop = WF_STOP_END;
    else if (s->decoder) {
        WF_TRY(wf_decoder_next(s->decoder, id, &piece, &bytes));
        return add_text(s, piece, bytes);
    }
    return WF_OK;
}

wf_status wf_sequence_take(wf_sequence *s, int32_t id)
{
    const int64_t most = s->engine->limit;
    if (s->count == most) { /* the prompt filled the context: no room for this token */
        s->stop = WF_STOP_CONTEXT;
        return end_text(s);
    }
    WF_TRY(grow(s));
    WF_TRY(read_token(s, id));
    WF_TRY(wf_sampler_accept(s->sampler, id));
    s->token[s->count++] = id;
    if (s->stop == WF_UNFINISHED && s->limit > 0 && s->count - s->prompt >= s->limit)
        s->stop = WF_STOP_LIMIT;
    else if (s->stop == WF_UNFINISHED && s->count == most)
        s->stop = WF_STOP_CONTEXT;
    return s->stop == WF_UNFINISHED ? WF_OK : end_text(s);
}

/* ---- What callers see ---- */

const char *wf_sequence_error(const wf_sequence *s, wf_status *status)
{
    if (status)
        *status = s->stop == WF_STOP_ERROR ? s->status : WF_OK;
    if (s->stop != WF_STOP_ERROR)
        return "";
    return s->error ? s->error : "out of memory";
}

size_t wf_sequence_reused(const wf_sequence *s)
{
    return (size_t)s->reused;
}

wf_stop wf_sequence_stop(const wf_sequence *s)
{
    return s->stop;
}

/* Hands the buffer over and starts a new one: the result stays valid until the next call. */
const char *wf_sequence_text(wf_sequence *s, size_t *bytes)
{
    size_t len = s->text.len;
    wf_mem_free(s->engine->ctx, s->given);
    s->given = s->text.text;
    s->text = (wf_writer){.ctx = s->engine->ctx};
    if (bytes)
        *bytes = len;
    return len ? s->given : "";
}

const int32_t *wf_sequence_tokens(const wf_sequence *s, size_t *count, size_t *prompt)
{
    if (count)
        *count = (size_t)s->count;
    if (prompt)
        *prompt = (size_t)s->prompt;
    return s->token;
}

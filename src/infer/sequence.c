/* SPDX-License-Identifier: MIT */
/*
 * sequence.c - one sequence: its request, tokens, pages, generated text, and why it ended.
 *
 * Tokens beyond `cached` are computed by the next runs. Text goes through the decoder, which holds
 * back incomplete characters, and the stopper, which holds back possible stop strings; both are
 * flushed when the sequence ends.
 */
#include <string.h>

#include "base/mem.h"
#include "infer/generator.h"

/* ---- Requests ---- */

static void free_request(wf_sequence *s)
{
    wf_ctx *ctx = s->generator->ctx;
    wf_sampler_free(s->sampler);
    wf_decoder_free(s->decoder);
    wf_stopper_free(s->stopper);
    wf_mem_free(ctx, s->stop_token);
    s->sampler = NULL;
    s->decoder = NULL;
    s->stopper = NULL;
    s->stop_token = NULL;
}

static wf_status copy_stop_tokens(wf_sequence *s, const wf_request *r)
{
    const wf_generator *g = s->generator;
    if (r->stop_tokens < 0 || (r->stop_tokens > 0 && !r->stop_token))
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "stop_tokens is %d, but must be 0 or more, with stop_token set",
                       r->stop_tokens);
    for (int i = 0; i < r->stop_tokens; i++)
        if (r->stop_token[i] < 0 || r->stop_token[i] >= g->vocab)
            return wf_fail(g->ctx, WF_ERR_USAGE,
                           "stop token %d is outside the vocabulary of 0 to %lld", r->stop_token[i],
                           (long long)g->vocab - 1);
    s->stop_token = wf_mem_array(g->ctx, (size_t)r->stop_tokens, sizeof *s->stop_token);
    if (!s->stop_token)
        return WF_ERR_MEMORY;
    s->stop_tokens = r->stop_tokens;
    if (r->stop_tokens)
        memcpy(s->stop_token, r->stop_token, (size_t)r->stop_tokens * sizeof *r->stop_token);
    return WF_OK;
}

/* Replaces the sampler, decoder and stopper. After a failure some of them are NULL. */
static wf_status take_request(wf_sequence *s, const wf_request *request)
{
    const wf_generator *g = s->generator;
    const wf_request defaults = {0}, *r = request ? request : &defaults;
    const wf_tokenizer *t = wf_model_tokenizer(g->model);
    free_request(s);
    if (r->limit < 0)
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "limit is %lld tokens, but must be 0 (no limit) or more",
                       (long long)r->limit);
    s->limit = r->limit;
    s->ignore_end = r->ignore_end;
    WF_TRY(copy_stop_tokens(s, r));
    WF_TRY(wf_sampler_new(g->ctx, g->vocab, &r->sampling, &s->sampler));
    wf_sampler_mask(s->sampler, &g->mask);
    WF_TRY(wf_stopper_new(g->ctx, r->stop, r->stops, &s->stopper));
    if (t)
        WF_TRY(wf_decoder_new(t, g->ctx, r->control ? WF_TEXT_CONTROL : 0, &s->decoder));
    return WF_OK;
}

/* ---- Tokens and pages ---- */

static int64_t pages_of(int64_t tokens)
{
    return (tokens + WF_PAGE_TOKENS - 1) / WF_PAGE_TOKENS;
}

/* Pages behind the window are returned only here, not after the previous run: until then the
 * sequence can still be set back by the tokens of that run. */
wf_status wf_sequence_reserve(wf_sequence *s, int64_t n)
{
    wf_generator *g = s->generator;
    for (int i = 0; i < g->caches.count; i++) {
        wf_page_list *list = &s->pages[i];
        int64_t first = wf_cache_first_page(&g->caches.cache[i], WF_PAGE_TOKENS, s->cached);
        bool held;
        WF_TRY(wf_pages_hold(&g->pages[i], list, first, pages_of(s->cached + n), &held));
        if (!held)
            /* Cannot happen: see wf_cache_most_pages. */
            return wf_fail(g->ctx, WF_ERR_INTERNAL,
                           "the page pool is empty at a sequence of %lld tokens",
                           (long long)(s->cached + n));
        memcpy(g->table[i] + s->slot * g->size[i].pages, list->page,
               (size_t)list->end * sizeof *list->page);
    }
    return WF_OK;
}

/* Whether all caches hold the pages that the token after the first `count` reads. */
static bool holds(const wf_sequence *s, int64_t count)
{
    const wf_generator *g = s->generator;
    for (int i = 0; i < g->caches.count; i++)
        if (wf_cache_first_page(&g->caches.cache[i], WF_PAGE_TOKENS, count) < s->pages[i].first)
            return false;
    return true;
}

void wf_sequence_rewind(wf_sequence *s, int64_t count)
{
    wf_generator *g = s->generator;
    /* A shorter prefix would need even earlier pages. */
    s->cached = holds(s, count) ? count : 0;
    for (int i = 0; i < g->caches.count; i++)
        if (s->cached == 0)
            wf_pages_drop(&g->pages[i], &s->pages[i]);
        else
            wf_pages_trim(&g->pages[i], &s->pages[i], s->pages[i].first, pages_of(s->cached));
}

static wf_status check_prompt(const wf_generator *g, const int32_t *prompt, size_t count)
{
    if (count == 0)
        return wf_fail(g->ctx, WF_ERR_USAGE, "the prompt is empty; give at least one token");
    if (count > (size_t)g->context)
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "the prompt has %zu tokens, but the context has only %lld; shorten the "
                       "prompt, or raise the context (-c, up to %lld for this model)",
                       count, (long long)g->context, (long long)g->model->config.context);
    for (size_t i = 0; i < count; i++)
        if (prompt[i] < 0 || prompt[i] >= g->vocab)
            return wf_fail(
                g->ctx, WF_ERR_USAGE,
                "the prompt contains token %d, which is outside the vocabulary of 0 to %lld",
                prompt[i], (long long)g->vocab - 1);
    return WF_OK;
}

static wf_status accept_prompt(wf_sequence *s, const int32_t *prompt, size_t count)
{
    for (size_t i = 0; i < count; i++)
        WF_TRY(wf_sampler_accept(s->sampler, prompt[i]));
    return WF_OK;
}

/* Keeps the cached prefix that the old and the new tokens share. At least one token is computed
 * again, because the cache has no logits. */
static void set_prompt(wf_sequence *s, const int32_t *prompt, size_t count)
{
    int64_t n = (int64_t)count, same = 0;
    /* same + 1 < n leaves at least one token of the prompt to compute. */
    while (same < s->cached && same + 1 < n && s->token[same] == prompt[same])
        same++;
    wf_sequence_rewind(s, same);
    memmove(s->token, prompt, count * sizeof *prompt); /* prompt may point into s->token */
    s->count = s->prompt = n;
    s->row = -1;
    s->stop = WF_UNFINISHED;
    s->generator->stats.reused_tokens += (uint64_t)s->cached;
}

static void drop_text(wf_sequence *s)
{
    s->text.len = 0;
    wf_mem_free(s->generator->ctx, s->given);
    s->given = NULL;
}

/* A prompt that is refused changes nothing. A request that is refused leaves the sequence
 * stopped. */
wf_status wf_sequence_restart(wf_sequence *s, const int32_t *prompt, size_t count,
                              const wf_request *request)
{
    WF_TRY(check_prompt(s->generator, prompt, count));
    s->stop = WF_STOP_CANCEL; /* if the request is refused, the sequence stays stopped */
    WF_TRY(take_request(s, request));
    WF_TRY(accept_prompt(s, prompt, count));
    drop_text(s);
    set_prompt(s, prompt, count);
    return WF_OK;
}

wf_status wf_sequence_new(wf_generator *g, const int32_t *prompt, size_t count,
                          const wf_request *request, wf_sequence **out)
{
    int64_t slot = 0;
    *out = NULL;
    while (slot < g->sequences && g->slot[slot])
        slot++;
    if (slot == g->sequences)
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "all %lld sequence%s of the generator %s in use; free one, or create the "
                       "generator with more",
                       (long long)g->sequences, WF_PLURAL(g->sequences),
                       g->sequences == 1 ? "is" : "are");
    wf_sequence *s = wf_mem_new(g->ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->generator = g;
    s->slot = slot;
    s->text.ctx = g->ctx;
    /* Taken before the allocations below, since wf_sequence_free gives it back. */
    g->slot[slot] = s;
    s->token = wf_mem_array(g->ctx, (size_t)g->context, sizeof *s->token);
    wf_status status = s->token ? wf_sequence_restart(s, prompt, count, request) : WF_ERR_MEMORY;
    if (status == WF_OK)
        *out = s;
    else
        wf_sequence_free(s);
    return status;
}

void wf_sequence_free(wf_sequence *s)
{
    if (!s)
        return;
    wf_generator *g = s->generator;
    wf_ctx *ctx = g->ctx;
    for (int i = 0; i < g->caches.count; i++)
        wf_pages_drop(&g->pages[i], &s->pages[i]);
    g->slot[s->slot] = NULL;
    free_request(s);
    drop_text(s);
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
    wf_stopper_end(s->stopper, &piece, &bytes);
    wf_writer_bytes(&s->text, piece, bytes);
    return s->text.status;
}

static bool is_stop_token(const wf_sequence *s, int32_t id)
{
    for (int i = 0; i < s->stop_tokens; i++)
        if (s->stop_token[i] == id)
            return true;
    return false;
}

/* Adds a sampled token, its text, and the reason to stop if there is one. A stop token or an ending
 * token counts as a token of the sequence. */
wf_status wf_sequence_take(wf_sequence *s, int32_t id)
{
    const wf_generator *g = s->generator;
    const wf_tokenizer *t = wf_model_tokenizer(g->model);
    const char *piece;
    size_t bytes;
    if (s->count == g->context) { /* the prompt filled the context: no room for this token */
        s->stop = WF_STOP_CONTEXT;
        return end_text(s);
    }
    if (is_stop_token(s, id))
        s->stop = WF_STOP_TEXT;
    /* The ending token is kept in the tokens but adds no text. */
    else if (t && !s->ignore_end && wf_tokenizer_ends(t, id))
        s->stop = WF_STOP_END;
    else if (s->decoder) {
        WF_TRY(wf_decoder_next(s->decoder, id, &piece, &bytes));
        WF_TRY(add_text(s, piece, bytes));
    }
    WF_TRY(wf_sampler_accept(s->sampler, id));
    s->token[s->count++] = id;
    if (s->stop == WF_UNFINISHED && s->limit > 0 && s->count - s->prompt >= s->limit)
        s->stop = WF_STOP_LIMIT;
    else if (s->stop == WF_UNFINISHED && s->count == g->context)
        s->stop = WF_STOP_CONTEXT;
    return s->stop == WF_UNFINISHED ? WF_OK : end_text(s);
}

wf_stop wf_sequence_stop(const wf_sequence *s)
{
    return s->stop;
}

/* Hands the buffer over and starts a new one: the result stays valid until the next call. */
const char *wf_sequence_text(wf_sequence *s, size_t *bytes)
{
    size_t len = s->text.len;
    wf_mem_free(s->generator->ctx, s->given);
    s->given = s->text.text;
    s->text = (wf_writer){.ctx = s->generator->ctx};
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

void wf_sequence_cancel(wf_sequence *s)
{
    if (s->stop == WF_UNFINISHED)
        s->stop = WF_STOP_CANCEL;
}

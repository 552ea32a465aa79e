/* SPDX-License-Identifier: MIT */
/*
 * chat.c - the messages of a conversation, and answers to them.
 *
 * Each answer encodes the whole conversation again; the engine then finds the tokens that it shares
 * with the previous prompt in its cache. When the context is full, the oldest
 * questions and their answers are hidden from the model (left_out), but kept for /save.
 */
#include "cli/chat.h"

#include <signal.h>
#include <string.h>

#include "base/mem.h"

/* ---- Messages ---- */

wf_status wf_chat_add(wf_chat *c, const char *role, const char *content, size_t bytes)
{
    wf_ctx *ctx = c->open.ctx;
    wf_message *grown = wf_mem_room(ctx, c->message, c->count, &c->room, sizeof *grown);
    char *copy = grown ? wf_mem_new(ctx, bytes + 1) : NULL;
    if (grown)
        c->message = grown;
    if (!copy)
        return WF_ERR_MEMORY;
    for (size_t i = 0, n = 0; i < bytes; i++) /* drop NULs, which would end the string */
        if (content[i] != '\0')
            copy[n++] = content[i];
    c->message[c->count++] = (wf_message){.role = role, .content = copy};
    return WF_OK;
}

static void free_content(const wf_chat *c, int i)
{
    wf_mem_free(c->open.ctx, (void *)(uintptr_t)c->message[i].content);
}

/* count > 0. */
void wf_chat_drop_last(wf_chat *c)
{
    free_content(c, --c->count);
}

void wf_chat_drop_all(wf_chat *c)
{
    while (c->count > 0)
        wf_chat_drop_last(c);
    wf_mem_free(c->open.ctx, c->message);
    c->message = NULL;
    c->room = c->left_out = 0;
}

static bool is_role(const wf_chat *c, int i, const char *role)
{
    return i >= 0 && i < c->count && strcmp(c->message[i].role, role) == 0;
}

bool wf_chat_last_is(const wf_chat *c, const char *role)
{
    return is_role(c, c->count - 1, role);
}

wf_status wf_chat_set_system(wf_chat *c, const char *content)
{
    if (is_role(c, 0, "system")) {
        free_content(c, 0);
        memmove(c->message, c->message + 1, (size_t)--c->count * sizeof *c->message);
    }
    if (!*content)
        return WF_OK;
    WF_TRY(wf_chat_add(c, "system", content, strlen(content)));
    /* wf_chat_add appends; rotate the new message to the front. */
    wf_message last = c->message[c->count - 1];
    memmove(c->message + 1, c->message, (size_t)(c->count - 1) * sizeof *c->message);
    c->message[0] = last;
    return WF_OK;
}

bool wf_chat_has_system(const wf_chat *c)
{
    return is_role(c, 0, "system");
}

wf_status wf_chat_encode(wf_chat *c, int32_t **ids, size_t *count)
{
    const wf_open *e = &c->open;
    int system = wf_chat_has_system(c), n = c->count - c->left_out;
    if (c->left_out == 0)
        return wf_model_chat(e->model, e->ctx, c->message, n, &c->options, ids, count);
    wf_message *shown = wf_mem_array(e->ctx, (size_t)n, sizeof *shown);
    if (!shown)
        return WF_ERR_MEMORY;
    memcpy(shown, c->message, (size_t)system * sizeof *shown);
    memcpy(shown + system, c->message + system + c->left_out, (size_t)(n - system) * sizeof *shown);
    wf_status status = wf_model_chat(e->model, e->ctx, shown, n, &c->options, ids, count);
    wf_mem_free(e->ctx, shown);
    return status;
}

/* Renders the template with a dummy question, which is removed again. */
wf_status wf_chat_try(wf_chat *c)
{
    char *text;
    WF_TRY(wf_chat_add(c, "user", "?", 1));
    wf_status status = wf_model_chat_text(c->open.model, c->open.ctx, c->message, c->count,
                                          &c->options, &text, NULL);
    if (status == WF_OK)
        wf_text_free(c->open.ctx, text);
    wf_chat_drop_last(c);
    return status;
}

/* ---- The context ---- */

/* Returns the number of questions that the model sees. */
static int count_questions(const wf_chat *c)
{
    int n = 0;
    for (int i = wf_chat_has_system(c) + c->left_out; i < c->count; i++)
        n += is_role(c, i, "user");
    return n;
}

/* Hides all messages before the last `keep` questions from the model. */
static void keep_questions(wf_chat *c, int keep)
{
    int i = c->count;
    while (keep > 0 && i > wf_chat_has_system(c))
        keep -= is_role(c, --i, "user");
    c->left_out = i - wf_chat_has_system(c);
}

/* Returns the tokens to keep free for an answer: -n, but at most a quarter of the context. */
static size_t room_for_answer(const wf_chat *c)
{
    int64_t limit = c->sampled.request.limit, quarter = c->open.context / 4;
    return (size_t)(limit > 0 && limit < quarter ? limit : quarter);
}

static wf_status too_long(const wf_chat *c, size_t count)
{
    const wf_open *e = &c->open;
    char larger[96];
    return wf_fail(
        e->ctx, WF_ERR_USAGE,
        "the conversation has %zu tokens, but the context has only %lld; /reset starts a new "
        "one%s",
        count, (long long)e->context, wf_open_larger(e, larger, sizeof larger));
}

/* Sets *fits when the last `keep` questions use at most half of the context. The other half delays
 * the next shift. */
static wf_status try_questions(wf_chat *c, int keep, bool *fits)
{
    int32_t *ids;
    size_t count;
    keep_questions(c, keep);
    WF_TRY(wf_chat_encode(c, &ids, &count));
    wf_ids_free(c->open.ctx, ids);
    *fits = count <= (size_t)c->open.context / 2;
    return WF_OK;
}

/* Hides as few of the `shown` questions as possible, but at least one, and never the last. Searches
 * from the end, so the cost depends on the context and not on the length of the conversation. */
static wf_status shift(wf_chat *c, int shown)
{
    int low = 1, high = shown - 1;
    bool fits = true;
    /* Doubling finds a bound in O(log) encodings of short texts; the loop below is a binary
     * search. */
    for (int keep = 2; keep <= high && fits; keep = keep > high / 2 ? high + 1 : 2 * keep) {
        WF_TRY(try_questions(c, keep, &fits));
        low = fits ? keep : low;
        high = fits ? high : keep - 1;
    }
    while (low < high) {
        int keep = low + (high - low + 1) / 2;
        WF_TRY(try_questions(c, keep, &fits));
        low = fits ? keep : low;
        high = fits ? high : keep - 1;
    }
    keep_questions(c, low);
    int gone = shown - low;
    wf_open_say("note: the context of %lld token%s is full; the model no longer sees the oldest "
                "%d question%s",
                (long long)c->open.context, WF_PLURAL(c->open.context), gone, WF_PLURAL(gone));
    return WF_OK;
}

/* Encodes as much of the conversation as leaves room for an answer. */
static wf_status encode_fitting(wf_chat *c, int32_t **ids, size_t *count)
{
    const wf_open *e = &c->open;
    int shown = count_questions(c);
    WF_TRY(wf_chat_encode(c, ids, count));
    if (!c->no_shift && shown > 1 && *count + room_for_answer(c) > (size_t)e->context) {
        wf_ids_free(e->ctx, *ids);
        *ids = NULL;
        WF_TRY(shift(c, shown));
        WF_TRY(wf_chat_encode(c, ids, count));
    }
    if (*count <= (size_t)e->context)
        return WF_OK;
    wf_ids_free(e->ctx, *ids);
    *ids = NULL;
    return too_long(c, *count);
}

/* ---- Answers ---- */

static volatile sig_atomic_t interrupted; /* set by SIGINT while an answer is generated */

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Starts the answer: its own seed, so that /regen gives another one. */
static wf_status begin(wf_chat *c)
{
    wf_open *e = &c->open;
    wf_request request = c->sampled.request;
    int32_t *ids;
    size_t count;
    request.sampling.seed += c->answers++;
    WF_TRY(encode_fitting(c, &ids, &count));
    wf_sequence_free(c->sequence);
    c->sequence = NULL;
    wf_status status = wf_engine_submit(e->engine, ids, count, &request, &c->sequence);
    wf_ids_free(e->ctx, ids);
    return status;
}

/* Streams text until the sequence stops. Ctrl-C and a closed stdout cancel it, which keeps the text
 * so far. */
static wf_status generate(wf_chat *c, wf_writer *answer)
{
    do {
        if (interrupted || c->deaf)
            wf_sequence_cancel(c->sequence);
        else
            WF_TRY(wf_engine_step(c->open.engine, NULL));
        size_t bytes;
        const char *text = wf_sequence_text(c->sequence, &bytes);
        wf_writer_bytes(answer, text, bytes);
        c->deaf = c->deaf || !wf_screen_write(&c->screen, text, bytes);
    } while (wf_sequence_stop(c->sequence) == WF_UNFINISHED && answer->status == WF_OK);
    WF_TRY(wf_open_check(&c->open, c->sequence));
    return answer->status;
}

/* Explains an answer that did not end by itself. */
static void note_ending(const wf_chat *c)
{
    const wf_open *e = &c->open;
    wf_stop stop = wf_sequence_stop(c->sequence);
    char larger[96];
    if (stop == WF_STOP_CONTEXT)
        wf_open_say("note: the answer is incomplete: the context of %lld token%s is full; /reset "
                    "starts a new conversation%s",
                    (long long)e->context, WF_PLURAL(e->context),
                    wf_open_larger(e, larger, sizeof larger));
    else if (stop == WF_STOP_LIMIT || stop == WF_STOP_CANCEL)
        wf_open_say("note: the answer is incomplete: %s", wf_stop_sentence(stop));
}

/* Catches SIGINT only while it generates, so that Ctrl-C stops the answer and not the program. */
wf_status wf_chat_answer(wf_chat *c)
{
    wf_ctx *ctx = c->open.ctx;
    wf_writer answer = {.ctx = ctx};
    struct sigaction stop = {.sa_handler = on_interrupt}, before;
    sigemptyset(&stop.sa_mask);
    interrupted = 0;
    wf_screen_begin(&c->screen, true);
    sigaction(SIGINT, &stop, &before);
    wf_status status = begin(c);
    if (status == WF_OK)
        status = generate(c, &answer);
    sigaction(SIGINT, &before, NULL);
    c->deaf = c->deaf || !wf_screen_end(&c->screen);
    if (answer.len > 0 && answer.text[answer.len - 1] != '\n')
        c->deaf = c->deaf || !wf_put("\n", 1);
    if (status == WF_OK) {
        note_ending(c);
        status = wf_chat_add(c, "assistant", answer.len ? answer.text : "", answer.len);
    }
    wf_mem_free(ctx, answer.text);
    return status;
}

void wf_chat_free(wf_chat *c)
{
    wf_ctx *ctx = c->open.ctx;
    wf_line_free(c->line);
    wf_sequence_free(c->sequence);
    wf_chat_drop_all(c);
    wf_sampled_free(ctx, &c->sampled);
    wf_open_close(&c->open);
}

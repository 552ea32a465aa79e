/* SPDX-License-Identifier: MIT */
/*
 * conversation.c - encodes a conversation and marks the tokens of the assistant.
 *
 * The conversation is rendered and encoded once as a whole. To locate an answer, its prefixes are
 * rendered and encoded again, and compared token by token with the whole. This is quadratic in the
 * number of messages, which entry.c limits.
 */
#include "train/conversation.h"

#include <string.h>

#include "base/mem.h"
#include "model/chat.h"
#include "text/token.h"

/* ---- Answers ---- */

typedef struct {
    const wf_conversations *c;
    wf_ctx *ctx;
    wf_chat chat;
    const wf_entry *entry;
    wf_json_node messages; /* of which `chat` uses the first ones */
    size_t all;            /* messages */
    wf_rendered whole;     /* text and marks of all messages */
    int32_t *ids;          /* of the whole conversation */
    size_t count;
    uint8_t *mask; /* [count] 1: has loss */
} finding;

/* Some models have a second template for conversations with tools. */
static const wf_template *template_of(const finding *f)
{
    return f->chat.tools && f->c->tool_template ? f->c->tool_template : f->c->template;
}

/* Renders the first `messages` messages; answer: with the generation prompt. */
static wf_status render(finding *f, size_t messages, bool answer, wf_rendered *out)
{
    f->messages.count = messages;
    f->chat.answer = answer;
    return wf_chat_render(template_of(f), f->c->tokenizer, f->ctx, &f->chat, out);
}

/* Encodes the first `bytes` of the text. A pair's text is plain: no part of it becomes a control
 * token. */
static wf_status encode(finding *f, size_t bytes, uint32_t flags, int32_t **ids, size_t *count)
{
    return wf_tokenizer_encode_marked(f->c->tokenizer, f->ctx, f->whole.text, f->whole.plain, bytes,
                                      flags, ids, count);
}

/* Drops the eos that the tokenizer appends; a bos with the same id stays. */
static size_t without_end(const finding *f, const int32_t *ids, size_t count)
{
    const int32_t *before;
    size_t befores = wf_tokenizer_before(f->c->tokenizer, &before);
    return count > befores && ids[count - 1] == f->c->end ? count - 1 : count;
}

/* Returns how many tokens of the whole cover the first `bytes` of the text. A token across the
 * boundary belongs to what follows; *crossed reports one. */
static wf_status find_token(finding *f, size_t bytes, size_t *out, bool *crossed)
{
    int32_t *ids;
    size_t count, n = 0;
    WF_TRY(encode(f, bytes, f->entry->kind == WF_ENTRY_PAIR ? WF_TEXT_SPECIAL : WF_TEXT_CONTROL,
                  &ids, &count));
    if (f->entry->kind == WF_ENTRY_PAIR)
        count = without_end(f, ids, count);
    while (n < count && n < f->count && ids[n] == f->ids[n])
        n++;
    wf_ids_free(f->ctx, ids);
    *out = n;
    *crossed = n < count;
    return WF_OK;
}

/* Returns the bytes of a rendered text without a final eos_token: some templates (Phi 3) append it
 * after the last message, whatever its role. */
static size_t without_close(const finding *f, const wf_rendered *part)
{
    const char *name, *text;
    size_t bytes;
    for (int i = 0; wf_tokenizer_named(f->c->tokenizer, i, &name, &text, &bytes); i++)
        if (strcmp(name, "eos_token") == 0 && bytes <= part->bytes &&
            memcmp(part->text + part->bytes - bytes, text, bytes) == 0)
            return part->bytes - bytes;
    return part->bytes;
}

static bool whole_begins(const finding *f, const wf_rendered *part, size_t bytes)
{
    return bytes <= f->whole.bytes && memcmp(part->text, f->whole.text, bytes) == 0;
}

/* Finds where the text up to a message ends. That text must be a prefix of the whole. */
static wf_status find_end(finding *f, size_t messages, bool answer, size_t *bytes)
{
    wf_rendered part;
    WF_TRY(render(f, messages, answer, &part));
    *bytes = part.bytes;
    if (!answer && !whole_begins(f, &part, *bytes))
        *bytes = without_close(f, &part);
    bool begins = whole_begins(f, &part, *bytes);
    wf_rendered_free(f->ctx, &part);
    return begins ? WF_OK
                  : wf_fail(f->ctx, WF_ERR_UNSUPPORTED,
                            "the chat template renders the conversation up to %s %zu differently "
                            "than within the whole, so answers cannot be located; use another "
                            "template (--chat-template chatml)",
                            answer ? "answer" : "message", answer ? messages + 1 : messages);
}

/* Marks the tokens between the generation prompt and the end of the message's text. */
static wf_status mark_answer(finding *f, size_t message)
{
    size_t from, to, begin, end;
    bool crossed;
    WF_TRY(find_end(f, message, true, &from));
    WF_TRY(find_end(f, message + 1, false, &to));
    if (to < from)
        return wf_fail(f->ctx, WF_ERR_UNSUPPORTED,
                       "the chat template renders less with answer %zu than without it",
                       message + 1);
    WF_TRY(find_token(f, from, &begin, &crossed));
    WF_TRY(find_token(f, to, &end, &crossed));
    /* Templates add text after the token that ends a turn, such as a newline, which is not part of
     * the answer. Only templates write control tokens. */
    for (size_t i = begin; i < end; i++) {
        f->mask[i] = 1;
        if (wf_tokenizer_ends(f->c->tokenizer, f->ids[i]))
            break;
    }
    return WF_OK;
}

static bool is_assistant(const wf_json_node *message)
{
    return wf_json_is(wf_json_get(message, "role"), "assistant");
}

/* Marks the tokens that overlap text[from, to), like transformers' assistant masks. */
static wf_status mark_span(finding *f, size_t from, size_t to)
{
    size_t begin, end;
    bool crossed;
    WF_TRY(find_token(f, from, &begin, &crossed));
    WF_TRY(find_token(f, to, &end, &crossed));
    end += crossed && end < f->count;
    for (size_t i = begin; i < end; i++)
        f->mask[i] = 1;
    return WF_OK;
}

/* Uses the template's own {% generation %} marks. */
static wf_status mark_generated(finding *f)
{
    size_t first = 0;
    for (size_t i = 0; i < f->all; i++)
        if (is_assistant(&f->messages.child[i]) && !wf_entry_learns(&f->messages.child[i]))
            return wf_fail(f->ctx, WF_ERR_UNSUPPORTED,
                           "message %zu has \"weight\": 0, but the chat template's {%% generation "
                           "%%} does not state which message it is in; use a template without it "
                           "(--chat-template chatml)",
                           i + 1);
    if (f->entry->learned_from > 0)
        WF_TRY(find_end(f, f->entry->learned_from, true, &first));
    for (size_t i = first, end; i < f->whole.bytes; i = end) {
        end = i + 1;
        if (!f->whole.generated[i])
            continue;
        while (end < f->whole.bytes && f->whole.generated[end])
            end++;
        WF_TRY(mark_span(f, i, end));
    }
    return WF_OK;
}

static wf_status mark_answers(finding *f)
{
    if (wf_template_marks(template_of(f)))
        return mark_generated(f);
    for (size_t i = f->entry->learned_from; i < f->all; i++)
        if (is_assistant(&f->messages.child[i]) && wf_entry_learns(&f->messages.child[i]))
            WF_TRY(mark_answer(f, i));
    return WF_OK;
}

/* Copies ids and mask to the arena and appends eos if the text does not end with it. */
static wf_status hand_over(finding *f, wf_arena *arena, wf_conversation *out)
{
    bool ended = f->count > 0 && f->ids[f->count - 1] == f->c->end;
    out->count = f->count + !ended;
    out->ids = wf_arena_alloc(arena, out->count * sizeof *out->ids + 1);
    out->mask = wf_arena_alloc(arena, out->count + 1);
    if (!out->ids || !out->mask)
        return WF_ERR_MEMORY;
    memcpy(out->ids, f->ids, f->count * sizeof *f->ids);
    memcpy(out->mask, f->mask, f->count);
    if (!ended) {
        out->ids[f->count] = f->c->end;
        /* If the template ends an answer without a token of its own, this eos teaches the model to
         * stop. */
        out->mask[f->count] = f->count > 0 && f->mask[f->count - 1] &&
                              !wf_tokenizer_ends(f->c->tokenizer, f->ids[f->count - 1]);
    }
    for (size_t i = 0; i < out->count; i++)
        out->counted += out->mask[i];
    out->bytes = f->whole.bytes;
    return WF_OK;
}

/* ---- A prompt and its completion ---- */

/* Concatenates prompt and completion; only the completion has loss. */
static wf_status join_pair(finding *f)
{
    const wf_json_node *prompt = f->entry->text, *completion = f->entry->completion;
    size_t begin;
    bool crossed;
    f->whole.bytes = prompt->bytes + completion->bytes;
    f->whole.text = wf_mem_new(f->ctx, f->whole.bytes + 1);
    if (!f->whole.text)
        return WF_ERR_MEMORY;
    memcpy(f->whole.text, prompt->string, prompt->bytes);
    memcpy(f->whole.text + prompt->bytes, completion->string, completion->bytes);
    WF_TRY(encode(f, f->whole.bytes, WF_TEXT_SPECIAL, &f->ids, &f->count));
    f->count = without_end(f, f->ids, f->count); /* hand_over appends eos and trains on it */
    WF_TRY(find_token(f, prompt->bytes, &begin, &crossed));
    f->mask = wf_mem_new(f->ctx, f->count + 1);
    if (!f->mask)
        return WF_ERR_MEMORY;
    for (size_t i = begin; i < f->count && completion->bytes > 0; i++)
        f->mask[i] = 1;
    return WF_OK;
}

static wf_status join_chat(finding *f)
{
    f->messages = f->entry->messages;
    f->all = f->messages.count;
    f->chat = (wf_chat){.messages = &f->messages,
                        .tools = f->entry->tools,
                        .documents = f->entry->documents,
                        .variables = f->entry->variables};
    WF_TRY(render(f, f->all, false, &f->whole));
    WF_TRY(encode(f, f->whole.bytes, WF_TEXT_CONTROL, &f->ids, &f->count));
    f->mask = wf_mem_new(f->ctx, f->count);
    return f->mask ? mark_answers(f) : WF_ERR_MEMORY;
}

wf_status wf_conversation_encode(const wf_conversations *c, wf_arena *arena, const wf_entry *entry,
                                 wf_conversation *out)
{
    finding f = {.c = c, .ctx = arena->ctx, .entry = entry};
    *out = (wf_conversation){0};
    wf_status status = entry->kind == WF_ENTRY_PAIR ? join_pair(&f) : join_chat(&f);
    if (status == WF_OK)
        status = hand_over(&f, arena, out);
    wf_mem_free(f.ctx, f.mask);
    wf_ids_free(f.ctx, f.ids);
    wf_rendered_free(f.ctx, &f.whole);
    return status;
}

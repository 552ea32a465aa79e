/* SPDX-License-Identifier: MIT */
/* conversation.c - see conversation.h. */
#include "train/conversation.h"

#include <string.h>

#include "base/mem.h"
#include "model/chat.h"

#define MESSAGES_MOST 4096 /* each answer renders all that is before it */

/* ---- Messages ---- */

const wf_json_node *wf_conversation_find(const wf_json_node *line)
{
    const wf_json_node *list = wf_json_get(line, "messages");
    if (!list)
        list = wf_json_get(line, "conversations");
    return list && list->kind == WF_JSON_ARRAY ? list : NULL;
}

static void set_text(wf_json_node *n, const char *key, const char *text, size_t bytes)
{
    *n = (wf_json_node){.kind = WF_JSON_STRING,
                        .key = key,
                        .key_bytes = strlen(key),
                        .string = text,
                        .bytes = bytes};
}

/* As ShareGPT's lines have them. */
static const char *role_of(const char *from)
{
    static const char *const names[][2] = {{"human", "user"}, {"gpt", "assistant"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(from, names[i][0]) == 0)
            return names[i][1];
    return from;
}

static wf_status take_message(wf_arena *a, const wf_json_node *from, size_t number,
                              wf_json_node *to)
{
    const wf_json_node *role = wf_json_get(from, "role"), *content = wf_json_get(from, "content");
    if (role && role->kind == WF_JSON_STRING && content) {
        *to = *from; /* with what else the template may want: names, calls of tools */
        return WF_OK;
    }
    role = role ? role : wf_json_get(from, "from");
    content = content ? content : wf_json_get(from, "value");
    if (!role || role->kind != WF_JSON_STRING || !content || content->kind != WF_JSON_STRING)
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "message %zu has no role and content (or from and value) that are texts",
                       number + 1);
    const char *name = role_of(role->string);
    wf_json_node *members = wf_arena_alloc(a, 2 * sizeof *members);
    if (!members)
        return WF_ERR_MEMORY;
    set_text(&members[0], "role", name, strlen(name));
    set_text(&members[1], "content", content->string, content->bytes);
    *to = (wf_json_node){.kind = WF_JSON_OBJECT, .child = members, .count = 2};
    return WF_OK;
}

static wf_status take_messages(wf_arena *a, const wf_json_node *list, wf_json_node *out)
{
    if (list->count == 0 || list->count > MESSAGES_MOST)
        return wf_fail(a->ctx, WF_ERR_FORMAT, "the conversation has %zu messages; 1 to %d can be",
                       list->count, MESSAGES_MOST);
    wf_json_node *items = wf_arena_alloc(a, list->count * sizeof *items);
    if (!items)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < list->count; i++)
        WF_TRY(take_message(a, &list->child[i], i, &items[i]));
    *out = (wf_json_node){.kind = WF_JSON_ARRAY, .child = items, .count = list->count};
    return WF_OK;
}

/* ---- Answers ---- */

typedef struct {
    const wf_conversations *c;
    wf_ctx *ctx;
    wf_chat chat;
    wf_json_node messages; /* of which chat has the first few */
    size_t all;
    wf_rendered whole;
    int32_t *ids; /* of the whole */
    size_t count;
    uint8_t *mask;
} finding;

static wf_status render(finding *f, size_t messages, bool answer, wf_rendered *out)
{
    f->messages.count = messages;
    f->chat.answer = answer;
    return wf_chat_render(f->c->template, f->c->tokenizer, f->ctx, &f->chat, out);
}

static wf_status encode(finding *f, size_t bytes, int32_t **ids, size_t *count)
{
    return wf_tokenizer_encode_marked(f->c->tokenizer, f->ctx, f->whole.text, f->whole.plain, bytes,
                                      WF_TEXT_CONTROL, ids, count);
}

/* How many tokens of the whole are the first bytes of the text. One that goes across belongs to what is behind. */
static wf_status find_token(finding *f, size_t bytes, size_t *out)
{
    int32_t *ids;
    size_t count, n = 0;
    WF_TRY(encode(f, bytes, &ids, &count));
    while (n < count && n < f->count && ids[n] == f->ids[n])
        n++;
    wf_ids_free(f->ctx, ids);
    *out = n;
    return WF_OK;
}

/* How far the text up to a message goes, which must be how the whole begins. */
static wf_status find_end(finding *f, size_t messages, bool answer, size_t *bytes)
{
    wf_rendered part;
    WF_TRY(render(f, messages, answer, &part));
    bool begins = part.bytes <= f->whole.bytes && memcmp(part.text, f->whole.text, part.bytes) == 0;
    *bytes = part.bytes;
    wf_rendered_free(f->ctx, &part);
    return begins ? WF_OK
                  : wf_fail(f->ctx, WF_ERR_UNSUPPORTED,
                            "the chat template writes the conversation up to %s %zu otherwise than "
                            "within the whole, so it cannot be told which tokens are answers; give "
                            "another template (--chat-template chatml)",
                            answer ? "answer" : "message", answer ? messages + 1 : messages);
}

static wf_status mark_answer(finding *f, size_t message)
{
    size_t from, to, begin, end;
    WF_TRY(find_end(f, message, true, &from));
    WF_TRY(find_end(f, message + 1, false, &to));
    if (to < from)
        return wf_fail(f->ctx, WF_ERR_UNSUPPORTED,
                       "the chat template writes less with answer %zu than before it", message + 1);
    WF_TRY(find_token(f, from, &begin));
    WF_TRY(find_token(f, to, &end));
    /* Templates go on behind the token that ends a turn, with a line end, say, that nobody says. Only they
     * write control tokens. */
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

static wf_status mark_answers(finding *f)
{
    for (size_t i = 0; i < f->all; i++)
        if (is_assistant(&f->messages.child[i]))
            WF_TRY(mark_answer(f, i));
    return WF_OK;
}

/* ---- The whole ---- */

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
        /* Where the template ends an answer with no token of its own, this is what teaches to stop. */
        out->mask[f->count] = f->count > 0 && f->mask[f->count - 1] &&
                              !wf_tokenizer_ends(f->c->tokenizer, f->ids[f->count - 1]);
    }
    for (size_t i = 0; i < out->count; i++)
        out->counted += out->mask[i];
    out->bytes = f->whole.bytes;
    return WF_OK;
}

wf_status wf_conversation_encode(const wf_conversations *c, wf_arena *arena,
                                 const wf_json_node *line, wf_conversation *out)
{
    finding f = {.c = c, .ctx = arena->ctx};
    const wf_json_node *tools = wf_json_get(line, "tools");
    *out = (wf_conversation){0};
    WF_TRY(take_messages(arena, wf_conversation_find(line), &f.messages));
    f.all = f.messages.count;
    f.chat = (wf_chat){.messages = &f.messages,
                       .tools = tools && tools->kind == WF_JSON_ARRAY ? tools : NULL};
    wf_status status = render(&f, f.all, false, &f.whole);
    if (status == WF_OK)
        status = encode(&f, f.whole.bytes, &f.ids, &f.count);
    if (status == WF_OK) {
        f.mask = wf_mem_new(f.ctx, f.count);
        status = f.mask ? mark_answers(&f) : WF_ERR_MEMORY;
    }
    if (status == WF_OK)
        status = hand_over(&f, arena, out);
    wf_mem_free(f.ctx, f.mask);
    wf_ids_free(f.ctx, f.ids);
    wf_rendered_free(f.ctx, &f.whole);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * entry.c - reads one record of a data file.
 *
 * Records are foreign data: every member is checked for its kind before use, and the number of
 * messages is limited. Results point into the record where possible; converted messages are in the
 * arena.
 */
#include "train/entry.h"

#include <string.h>

#include "base/text.h"

#define MESSAGES_MOST 4096 /* limit, because each answer renders all messages before it */

/* ---- Nodes ---- */

static void set_text(wf_json_node *n, const char *key, const char *text, size_t bytes)
{
    *n = (wf_json_node){.kind = WF_JSON_STRING,
                        .key = key,
                        .key_bytes = strlen(key),
                        .string = text,
                        .bytes = bytes};
}

/* Makes {"role": role, "content": text} in the arena. */
static wf_status set_message(wf_arena *a, wf_json_node *to, const char *role, const char *text,
                             size_t bytes)
{
    wf_json_node *members = wf_arena_alloc(a, 2 * sizeof *members);
    if (!members)
        return WF_ERR_MEMORY;
    set_text(&members[0], "role", role, strlen(role));
    set_text(&members[1], "content", text, bytes);
    *to = (wf_json_node){.kind = WF_JSON_OBJECT, .child = members, .count = 2};
    return WF_OK;
}

/* Returns the member if it has this kind, else NULL. */
static const wf_json_node *get(const wf_json_node *object, const char *key, wf_json_kind kind)
{
    const wf_json_node *n = wf_json_get(object, key);
    return n && n->kind == kind ? n : NULL;
}

/* null, "" and [] count as absent. */
static bool says_something(const wf_json_node *n)
{
    return n && n->kind != WF_JSON_NULL && !(n->kind == WF_JSON_STRING && n->bytes == 0) &&
           !((n->kind == WF_JSON_ARRAY || n->kind == WF_JSON_OBJECT) && n->count == 0);
}

/* ---- Rejected members ---- */

/* Members that would change the meaning of a record, and why they are rejected. */
static const struct {
    const char *key, *why;
} refused[] = {
    {"images", "Weft trains on text only"},
    {"image", "Weft trains on text only"},
    {"videos", "Weft trains on text only"},
    {"video", "Weft trains on text only"},
    {"audios", "Weft trains on text only"},
    {"audio", "Weft trains on text only"},
    {"functions", "give them as \"tools\""},
    {"chosen", "preference pairs are not supported; give the chosen answer as \"messages\""},
    {"rejected", "preference pairs are not supported; give the chosen answer as \"messages\""},
};

static wf_status check_members(wf_arena *a, const wf_json_node *record)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (says_something(wf_json_get(record, refused[i].key)))
            return wf_fail(a->ctx, WF_ERR_FORMAT, "it has \"%s\": %s", refused[i].key,
                           refused[i].why);
    return WF_OK;
}

/* ---- Messages ---- */

/* Maps ShareGPT's roles. */
static const char *role_of(const char *from)
{
    static const char *const names[][2] = {{"human", "user"},        {"gpt", "assistant"},
                                           {"chatgpt", "assistant"}, {"bing", "assistant"},
                                           {"bard", "assistant"},    {"observation", "tool"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(from, names[i][0]) == 0)
            return names[i][1];
    return from;
}

/* Joins content parts, {"type": "text", "text": "..."}, with newlines between them. */
static wf_status join_parts(wf_arena *a, const wf_json_node *parts, size_t number,
                            wf_json_node *content)
{
    /* The sum of strings that are in memory cannot overflow. */
    size_t bytes = 1, at = 0;
    for (size_t i = 0; i < parts->count; i++) {
        const wf_json_node *type = get(&parts->child[i], "type", WF_JSON_STRING),
                           *text = get(&parts->child[i], "text", WF_JSON_STRING);
        char shown[WF_TEXT_SHOWN] = "?";
        if (type && strcmp(type->string, "text") != 0)
            return wf_fail(a->ctx, WF_ERR_FORMAT,
                           "message %zu has a part of type \"%s\"; only text is supported",
                           number + 1, wf_text_show(shown, type->string, type->bytes));
        if (!text)
            return wf_fail(a->ctx, WF_ERR_FORMAT, "part %zu of message %zu has no string \"text\"",
                           i + 1, number + 1);
        bytes += text->bytes + 1;
    }
    char *joined = wf_arena_alloc(a, bytes);
    if (!joined)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < parts->count; i++) {
        const wf_json_node *text = wf_json_get(&parts->child[i], "text");
        if (at > 0)
            joined[at++] = '\n';
        memcpy(joined + at, text->string, text->bytes);
        at += text->bytes;
    }
    set_text(content, "content", joined, at);
    return WF_OK;
}

/* Copies a message and joins its parts; other members stay. */
static wf_status take_parts(wf_arena *a, const wf_json_node *from, size_t number, wf_json_node *to)
{
    wf_json_node *members = wf_arena_alloc(a, from->count * sizeof *members);
    if (!members)
        return WF_ERR_MEMORY;
    *to = *from;
    to->child = members;
    for (size_t i = 0; i < from->count; i++) {
        members[i] = from->child[i];
        if (strcmp(members[i].key, "content") == 0)
            WF_TRY(join_parts(a, &from->child[i], number, &members[i]));
    }
    return WF_OK;
}

static wf_status check_weight(wf_arena *a, const wf_json_node *message, size_t number)
{
    const wf_json_node *weight = wf_json_get(message, "weight");
    if (!weight || (weight->kind == WF_JSON_NUMBER && (weight->number == 0 || weight->number == 1)))
        return WF_OK;
    return wf_fail(a->ctx, WF_ERR_FORMAT, "message %zu has a \"weight\" other than 0 and 1",
                   number + 1);
}

bool wf_entry_learns(const wf_json_node *message)
{
    const wf_json_node *weight = get(message, "weight", WF_JSON_NUMBER);
    return !weight || weight->number != 0;
}

/* Accepts role and content, content parts, tool calls, and ShareGPT's from and value. */
static wf_status take_message(wf_arena *a, const wf_json_node *from, size_t number,
                              wf_json_node *to)
{
    const wf_json_node *role = wf_json_get(from, "role"), *content = wf_json_get(from, "content");
    WF_TRY(check_weight(a, from, number));
    if (role && role->kind == WF_JSON_STRING && content && content->kind == WF_JSON_ARRAY)
        return take_parts(a, from, number, to);
    if (role && role->kind == WF_JSON_STRING && (content || wf_json_get(from, "tool_calls"))) {
        *to = *from; /* keeps members that templates may use: names, tool calls */
        return WF_OK;
    }
    role = role ? role : wf_json_get(from, "from");
    content = content ? content : wf_json_get(from, "value");
    if (!role || role->kind != WF_JSON_STRING || !content || content->kind != WF_JSON_STRING)
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "message %zu has no text in role and content (or from and value)",
                       number + 1);
    WF_TRY(set_message(a, to, role_of(role->string), content->string, content->bytes));
    return WF_OK;
}

/* Collects the system text, if any, and the messages of two lists. Answers of the first list have
 * no loss if there is a second one. */
static wf_status take_messages(wf_arena *a, const wf_json_node *system, const wf_json_node *list,
                               const wf_json_node *more, wf_entry *out)
{
    size_t n = 0, count = list->count + (more ? more->count : 0) + (system != NULL);
    if (list->count == 0 || count > MESSAGES_MOST)
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "the conversation has %zu messages; it must have 1 to %d", list->count,
                       MESSAGES_MOST);
    wf_json_node *items = wf_arena_alloc(a, count * sizeof *items);
    if (!items)
        return WF_ERR_MEMORY;
    if (system)
        WF_TRY(set_message(a, &items[n++], "system", system->string, system->bytes));
    for (size_t i = 0; i < list->count; i++, n++)
        WF_TRY(take_message(a, &list->child[i], i, &items[n]));
    out->learned_from = more ? n : 0;
    for (size_t i = 0; more && i < more->count; i++, n++)
        WF_TRY(take_message(a, &more->child[i], i, &items[n]));
    if (system && n > 1 && wf_json_is(wf_json_get(&items[1], "role"), "system"))
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "it has \"system\" and a system message; remove one of them");
    out->kind = WF_ENTRY_CHAT;
    out->messages = (wf_json_node){.kind = WF_JSON_ARRAY, .child = items, .count = n};
    return WF_OK;
}

/* ---- Alpaca ---- */

/* Builds the question: the instruction, followed by its input. */
static wf_status take_question(wf_arena *a, const wf_json_node *record, wf_json_node *to)
{
    const wf_json_node *what = wf_json_get(record, "instruction"),
                       *input = get(record, "input", WF_JSON_STRING);
    size_t more = input && input->bytes > 0 ? input->bytes + 2 : 0;
    char *text = wf_arena_alloc(a, what->bytes + more + 1);
    if (!text)
        return WF_ERR_MEMORY;
    memcpy(text, what->string, what->bytes);
    if (more > 0) {
        memcpy(text + what->bytes, "\n\n", 2);
        memcpy(text + what->bytes + 2, input->string, input->bytes);
    }
    return set_message(a, to, "user", text, what->bytes + more);
}

/* history: pairs of earlier questions and answers. */
static wf_status take_history(wf_arena *a, const wf_json_node *history, wf_json_node *items,
                              size_t *n)
{
    for (size_t i = 0; history && i < history->count; i++) {
        const wf_json_node *pair = &history->child[i];
        for (size_t k = 0; k < 2; k++) {
            if (pair->kind != WF_JSON_ARRAY || pair->count != 2 ||
                pair->child[k].kind != WF_JSON_STRING)
                return wf_fail(a->ctx, WF_ERR_FORMAT,
                               "its \"history\" has an entry that is not a pair of strings");
            WF_TRY(set_message(a, &items[(*n)++], k ? "assistant" : "user", pair->child[k].string,
                               pair->child[k].bytes));
        }
    }
    return WF_OK;
}

static wf_status take_alpaca(wf_arena *a, const wf_json_node *record, const wf_json_node *system,
                             wf_entry *out)
{
    const wf_json_node *answer = wf_json_get(record, "output"),
                       *history = get(record, "history", WF_JSON_ARRAY);
    size_t pairs = history ? history->count : 0, n = 0;
    if (pairs > MESSAGES_MOST / 2 - 2)
        return wf_fail(a->ctx, WF_ERR_FORMAT, "its \"history\" has %zu pairs; the limit is %d",
                       pairs, MESSAGES_MOST / 2 - 2);
    wf_json_node *items = wf_arena_alloc(a, (2 * pairs + 3) * sizeof *items);
    if (!items)
        return WF_ERR_MEMORY;
    if (system)
        WF_TRY(set_message(a, &items[n++], "system", system->string, system->bytes));
    WF_TRY(take_history(a, history, items, &n));
    WF_TRY(take_question(a, record, &items[n++]));
    WF_TRY(set_message(a, &items[n++], "assistant", answer->string, answer->bytes));
    out->kind = WF_ENTRY_CHAT;
    out->messages = (wf_json_node){.kind = WF_JSON_ARRAY, .child = items, .count = n};
    return WF_OK;
}

/* ---- Kinds of records ---- */

/* Two strings are joined without a template; two lists of messages are a conversation whose answers
 * in the first list have no loss. */
static wf_status take_pair(wf_arena *a, const wf_json_node *record, const wf_json_node *system,
                           wf_entry *out)
{
    const wf_json_node *prompt = wf_json_get(record, "prompt"),
                       *completion = wf_json_get(record, "completion");
    completion = completion ? completion : wf_json_get(record, "response");
    if (prompt->kind == WF_JSON_ARRAY && completion->kind == WF_JSON_ARRAY)
        return take_messages(a, system, prompt, completion, out);
    if (prompt->kind != WF_JSON_STRING || completion->kind != WF_JSON_STRING)
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "its prompt and completion must be two strings or two lists of messages");
    if (system)
        return wf_fail(a->ctx, WF_ERR_FORMAT,
                       "it has \"system\", which only conversations can have; give \"messages\"");
    *out = (wf_entry){.kind = WF_ENTRY_PAIR, .text = prompt, .completion = completion};
    return WF_OK;
}

/* The kind of a record follows from its members, in this order: conversation, Alpaca, prompt and
 * completion, text. */
static wf_status take_record(wf_arena *a, const wf_json_node *record, wf_entry *out)
{
    const wf_json_node *system = get(record, "system", WF_JSON_STRING),
                       *list = get(record, "messages", WF_JSON_ARRAY);
    list = list ? list : get(record, "conversations", WF_JSON_ARRAY);
    system = says_something(system) ? system : NULL;
    if (list)
        return take_messages(a, system, list, NULL, out);
    if (get(record, "instruction", WF_JSON_STRING) && get(record, "output", WF_JSON_STRING))
        return take_alpaca(a, record, system, out);
    if (wf_json_get(record, "prompt") &&
        (wf_json_get(record, "completion") || wf_json_get(record, "response")))
        return take_pair(a, record, system, out);
    *out = (wf_entry){.kind = WF_ENTRY_TEXT, .text = get(record, "text", WF_JSON_STRING)};
    return out->text
               ? WF_OK
               : wf_fail(a->ctx, WF_ERR_FORMAT,
                         "it has no string \"text\", no list \"messages\" or \"conversations\", "
                         "no \"prompt\" with a \"completion\" and no \"instruction\" with an "
                         "\"output\"");
}

wf_status wf_entry_read(wf_arena *a, const wf_json_node *record, wf_entry *out)
{
    *out = (wf_entry){0};
    WF_TRY(check_members(a, record));
    WF_TRY(take_record(a, record, out));
    if (out->kind != WF_ENTRY_CHAT)
        return WF_OK;
    out->tools = get(record, "tools", WF_JSON_ARRAY);
    out->documents = get(record, "documents", WF_JSON_ARRAY);
    out->variables = get(record, "chat_template_kwargs", WF_JSON_OBJECT);
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * chat.c - conversations: applies a chat template to messages and encodes the result.
 *
 * Variables are built as JSON nodes in an arena, without copying the texts. The template's output
 * carries marks, so that message contents never become control tokens.
 */
#include "model/chat.h"

#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "format/folder.h"
#include "format/gguf.h"
#include "model/model.h"

/* The built-in template "chatml". */
const char wf_chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* ---- Template variables, as a JSON tree in an arena ---- */

static void set_string(wf_json_node *n, const char *key, const char *string, size_t bytes)
{
    *n = (wf_json_node){.kind = WF_JSON_STRING,
                        .key = key,
                        .key_bytes = strlen(key),
                        .string = string,
                        .bytes = bytes};
}

static void set_bool(wf_json_node *n, const char *key, bool value)
{
    *n = (wf_json_node){
        .kind = WF_JSON_BOOL, .key = key, .key_bytes = strlen(key), .boolean = value};
}

static wf_status set_messages(wf_arena *a, wf_json_node *n, const wf_message *messages, int count)
{
    /* + 1: never an empty allocation. */
    wf_json_node *items = wf_arena_alloc(a, (size_t)count * sizeof *items + 1);
    if (!items)
        return WF_ERR_MEMORY;
    for (int i = 0; i < count; i++) {
        wf_json_node *members = wf_arena_alloc(a, 2 * sizeof *members);
        if (!members)
            return WF_ERR_MEMORY;
        set_string(&members[0], "role", messages[i].role, strlen(messages[i].role));
        set_string(&members[1], "content", messages[i].content, strlen(messages[i].content));
        items[i] = (wf_json_node){.kind = WF_JSON_OBJECT, .child = members, .count = 2};
    }
    *n = (wf_json_node){.kind = WF_JSON_ARRAY,
                        .key = "messages",
                        .key_bytes = 8,
                        .child = items,
                        .count = (size_t)count};
    return WF_OK;
}

/* Parses JSON of the caller that must have this kind. */
static wf_status parse(wf_arena *a, const char *what, const char *text, wf_json_kind kind,
                       wf_json_node **out)
{
    WF_TRY(wf_json_parse(a, what, text, strlen(text), out));
    if ((*out)->kind != kind)
        return wf_fail(a->ctx, WF_ERR_FORMAT, "%s must be a JSON %s", what,
                       kind == WF_JSON_ARRAY ? "array" : "object");
    return WF_OK;
}

/* ---- Variables of transformers' apply_chat_template ---- */

static const char *const reasoning[] = {"reasoning_content", "thinking", "reasoning"};

/* Returns the first of these fields that is present and not null. */
static const wf_json_node *find_reasoning(const wf_json_node *message)
{
    for (size_t i = 0; i < sizeof reasoning / sizeof *reasoning; i++) {
        const wf_json_node *field =
            message->kind == WF_JSON_OBJECT ? wf_json_get(message, reasoning[i]) : NULL;
        if (field && field->kind != WF_JSON_NULL)
            return field;
    }
    return NULL;
}

/* Returns a shallow copy under another key. */
static wf_json_node renamed(const wf_json_node *n, const char *key)
{
    wf_json_node copy = *n;
    copy.key = key;
    copy.key_bytes = strlen(key);
    return copy;
}

/* A message's reasoning has several names. Templates read "reasoning_content" or "thinking", so the
 * message gets both, in the order of {"thinking": x, **message, "reasoning_content": x}. */
static wf_status name_reasoning(wf_arena *a, wf_json_node *message)
{
    const wf_json_node *found = find_reasoning(message);
    if (!found)
        return WF_OK;
    const wf_json_node *thinking = wf_json_get(message, "thinking");
    const wf_json_node *standard = wf_json_get(message, "reasoning_content");
    size_t n = 0, count = message->count;
    wf_json_node *members = wf_arena_alloc(a, (count + 2) * sizeof *members);
    if (!members)
        return WF_ERR_MEMORY;
    members[n++] = renamed(thinking ? thinking : found, "thinking");
    for (size_t i = 0; i < count; i++) {
        if (&message->child[i] == thinking)
            continue;
        members[n++] = &message->child[i] == standard ? renamed(found, "reasoning_content")
                                                      : message->child[i];
    }
    if (!standard)
        members[n++] = renamed(found, "reasoning_content");
    message->child = members;
    message->count = n;
    return WF_OK;
}

static wf_status add_messages(wf_arena *a, const wf_json_node *messages, wf_json_node *to)
{
    *to = renamed(messages, "messages");
    wf_json_node *items = wf_arena_alloc(a, messages->count * sizeof *items + 1);
    if (!items)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < messages->count; i++) {
        items[i] = messages->child[i];
        WF_TRY(name_reasoning(a, &items[i]));
    }
    to->child = items;
    return WF_OK;
}

/* A missing list is None, not undefined: templates test `tools is not none`. */
static void add_list(const wf_json_node *list, const char *key, wf_json_node *to)
{
    static const wf_json_node none = {.kind = WF_JSON_NULL};
    *to = renamed(list ? list : &none, key);
}

/* Defines the tokenizer's special tokens under the names that templates use. A missing one stays
 * undefined. */
static void add_tokens(const wf_tokenizer *t, wf_json_node *to, size_t *n)
{
    const char *name, *text;
    size_t bytes;
    for (int i = 0; wf_tokenizer_named(t, i, &name, &text, &bytes); i++)
        set_string(&to[(*n)++], name, text, bytes);
}

/* Returns the number of named special tokens. */
static size_t count_tokens(const wf_tokenizer *t)
{
    const char *name, *text;
    size_t bytes, n = 0;
    while (wf_tokenizer_named(t, (int)n, &name, &text, &bytes))
        n++;
    return n;
}

/* Builds the variables of transformers' apply_chat_template. The caller's come last: the last of
 * two equal names wins. */
static wf_status make_variables(const wf_tokenizer *t, wf_arena *a, const wf_chat *c,
                                wf_json_node *out)
{
    size_t room = 4 + (c->variables ? c->variables->count : 0) + (t ? count_tokens(t) : 0), n = 0;
    wf_json_node *v = wf_arena_alloc(a, room * sizeof *v);
    if (!v)
        return WF_ERR_MEMORY;
    WF_TRY(add_messages(a, c->messages, &v[n++]));
    set_bool(&v[n++], "add_generation_prompt", c->answer);
    add_list(c->tools, "tools", &v[n++]);
    add_list(c->documents, "documents", &v[n++]);
    if (t)
        add_tokens(t, v, &n);
    for (size_t i = 0; c->variables && i < c->variables->count; i++)
        v[n++] = c->variables->child[i];
    *out = (wf_json_node){.kind = WF_JSON_OBJECT, .child = v, .count = n};
    return WF_OK;
}

wf_status wf_chat_render(const wf_template *template, const wf_tokenizer *t, wf_ctx *ctx,
                         const wf_chat *chat, wf_rendered *out)
{
    wf_arena arena;
    wf_json_node variables;
    *out = (wf_rendered){0};
    wf_arena_init(&arena, ctx);
    wf_status status = make_variables(t, &arena, chat, &variables);
    if (status == WF_OK)
        status = wf_template_render(template, ctx, &variables, NULL, out);
    wf_arena_free(&arena);
    return status;
}

/* ---- Rendering ---- */

/* The caller's template, else the model's: the one for tools if tools are given and the model has
 * one. */
static wf_status find_template(const wf_model *m, wf_ctx *ctx, const wf_chat_options *o,
                               const char **text)
{
    const char *own = o->tools && m->tool_template ? m->tool_template : m->info.chat_template;
    *text = o->chat_template ? o->chat_template : own;
    if (!*text)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "%s has no chat template; give one (--chat-template chatml or --chat-template-file "
            "FILE), or continue a text with `weft run`",
            WF_SHOWN(m->info.name));
    if (strcmp(*text, "chatml") == 0)
        *text = wf_chatml;
    return WF_OK;
}

/* Parses the JSON texts of the options. */
static wf_status read_options(wf_arena *a, const wf_message *messages, int count,
                              const wf_chat_options *o, wf_json_node *list, wf_chat *out)
{
    wf_json_node *extra = NULL, *tools = NULL;
    if (o->variables)
        WF_TRY(parse(a, "the template's variables", o->variables, WF_JSON_OBJECT, &extra));
    if (o->tools)
        WF_TRY(parse(a, "the list of tools", o->tools, WF_JSON_ARRAY, &tools));
    WF_TRY(set_messages(a, list, messages, count));
    *out =
        (wf_chat){.messages = list, .answer = !o->unfinished, .tools = tools, .variables = extra};
    return WF_OK;
}

/* The template is compiled for each call; parsing is quick next to encoding. */
static wf_status render(const wf_model *m, wf_ctx *ctx, const wf_message *messages, int count,
                        const wf_chat_options *options, wf_rendered *out)
{
    const wf_chat_options defaults = {0}, *o = options ? options : &defaults;
    wf_arena arena;
    wf_template *template = NULL;
    wf_json_node list;
    wf_chat chat;
    const char *text;
    *out = (wf_rendered){0};
    if (count < 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "a conversation of %d messages is not possible; give 0 or more", count);
    WF_TRY(find_template(m, ctx, o, &text));
    wf_arena_init(&arena, ctx);
    wf_status status = wf_template_new(ctx, "the chat template", text, strlen(text), &template);
    if (status == WF_OK)
        status = read_options(&arena, messages, count, o, &list, &chat);
    if (status == WF_OK)
        status = wf_chat_render(template, m->tokenizer, ctx, &chat, out);
    wf_template_free(template);
    wf_arena_free(&arena);
    return status;
}

wf_status wf_model_chat(const wf_model *m, wf_ctx *ctx, const wf_message *messages, int count,
                        const wf_chat_options *options, int32_t **ids, size_t *nids)
{
    wf_rendered r;
    *ids = NULL;
    *nids = 0;
    if (!m->tokenizer)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED, "%s", m->no_tokenizer);
    WF_TRY(render(m, ctx, messages, count, options, &r));
    wf_status status = wf_tokenizer_encode_marked(m->tokenizer, ctx, r.text, r.plain, r.bytes,
                                                  WF_TEXT_CONTROL, ids, nids);
    wf_rendered_free(ctx, &r);
    return status;
}

/* Passes the text to the caller, who frees it with wf_mem_free; the marks are dropped. */
wf_status wf_model_chat_text(const wf_model *m, wf_ctx *ctx, const wf_message *messages, int count,
                             const wf_chat_options *options, char **text, size_t *bytes)
{
    wf_rendered r;
    *text = NULL;
    WF_TRY(render(m, ctx, messages, count, options, &r));
    *text = r.text;
    if (bytes)
        *bytes = r.bytes;
    r.text = NULL;
    wf_rendered_free(ctx, &r);
    return WF_OK;
}

/* ---- Templates without a model ---- */

static wf_status gguf_template(wf_arena *arena, const wf_gguf *f, const char *key, const char **out)
{
    wf_gguf_text text;
    WF_TRY(wf_gguf_get_text(f, key, &text));
    if (text.len == 0)
        return WF_OK;
    char *copy = wf_arena_alloc(arena, text.len + 1);
    if (copy)
        memcpy(copy, text.bytes, text.len);
    *out = copy;
    return copy ? WF_OK : WF_ERR_MEMORY;
}

static wf_status gguf_templates(wf_arena *arena, const char *path, const char **chat,
                                const char **tool)
{
    wf_gguf *f;
    WF_TRY(wf_gguf_open(arena->ctx, path, &f));
    wf_status status = gguf_template(arena, f, WF_KEY_CHAT_TEMPLATE, chat);
    if (status == WF_OK)
        status = gguf_template(arena, f, WF_KEY_TOOL_TEMPLATE, tool);
    wf_gguf_close(f);
    return status;
}

wf_status wf_chat_templates_of(wf_arena *arena, const char *path, const char **chat,
                               const char **tool)
{
    *chat = *tool = NULL;
    if (wf_path_look(path) == WF_PATH_FOLDER)
        return wf_folder_templates(arena, path, chat, tool);
    if (!wf_path_ends(path, ".json"))
        return gguf_templates(arena, path, chat, tool);
    const char *folder = wf_path_parent(arena, path);
    return folder ? wf_folder_templates(arena, folder, chat, tool) : WF_ERR_MEMORY;
}

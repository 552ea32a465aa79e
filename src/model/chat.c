/* SPDX-License-Identifier: MIT */
/* chat.c - conversations: from messages, through the model's template, to ids. */
#include <string.h>

#include "base/mem.h"
#include "model/model.h"
#include "text/template.h"

/* For models that come without a template: known by name. */
static const char chatml[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* ---- Variables of the template, as a tree in an arena ---- */

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

static wf_status parse(wf_arena *a, const char *what, const char *text, wf_json_kind kind,
                       wf_json_node **out)
{
    WF_TRY(wf_json_parse(a, what, text, strlen(text), out));
    if ((*out)->kind != kind)
        return wf_fail(a->ctx, WF_ERR_FORMAT, "%s must be a JSON %s", what,
                       kind == WF_JSON_ARRAY ? "array" : "object");
    return WF_OK;
}

/* Special tokens that templates write, under the names they have there. */
static size_t add_tokens(const wf_tokenizer *t, wf_json_node *to)
{
    static const struct {
        const char *name;
        wf_special which;
    } tokens[] = {{"bos_token", WF_SPECIAL_BOS},
                  {"eos_token", WF_SPECIAL_EOS},
                  {"unk_token", WF_SPECIAL_UNKNOWN},
                  {"pad_token", WF_SPECIAL_PAD}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        int32_t id = wf_tokenizer_special(t, tokens[i].which);
        size_t bytes = 0;
        const char *text = id >= 0 ? wf_tokenizer_token(t, id, &bytes) : NULL;
        if (text)
            set_string(&to[n++], tokens[i].name, text, bytes);
    }
    return n;
}

static wf_status make_variables(const wf_model *m, wf_arena *a, const wf_message *messages,
                                int count, const wf_chat_options *o, wf_json_node *out)
{
    wf_json_node *extra = NULL, *tools = NULL;
    if (o->variables)
        WF_TRY(parse(a, "the template's variables", o->variables, WF_JSON_OBJECT, &extra));
    if (o->tools)
        WF_TRY(parse(a, "the list of tools", o->tools, WF_JSON_ARRAY, &tools));
    size_t room = 8 + (extra ? extra->count : 0), n = 0;
    wf_json_node *v = wf_arena_alloc(a, room * sizeof *v);
    if (!v)
        return WF_ERR_MEMORY;
    for (; extra && n < extra->count; n++) /* the first of a name is the one that is found */
        v[n] = extra->child[n];
    WF_TRY(set_messages(a, &v[n++], messages, count));
    set_bool(&v[n++], "add_generation_prompt", !o->unfinished);
    if (tools) {
        v[n] = *tools;
        v[n].key = "tools";
        v[n++].key_bytes = 5;
    }
    if (m->tokenizer)
        n += add_tokens(m->tokenizer, &v[n]);
    *out = (wf_json_node){.kind = WF_JSON_OBJECT, .child = v, .count = n};
    return WF_OK;
}

/* ---- Rendering ---- */

static wf_status find_template(const wf_model *m, wf_ctx *ctx, const wf_chat_options *o,
                               const char **text)
{
    *text = o->chat_template ? o->chat_template : m->info.chat_template;
    if (!*text)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "%s has no chat template, so it is not made to chat; give it one "
                       "(--chat-template chatml or --chat-template-file FILE) or complete a text "
                       "with `weft run`",
                       m->info.name);
    if (strcmp(*text, "chatml") == 0)
        *text = chatml;
    return WF_OK;
}

static wf_status render(const wf_model *m, wf_ctx *ctx, const wf_message *messages, int count,
                        const wf_chat_options *options, wf_rendered *out)
{
    const wf_chat_options defaults = {0}, *o = options ? options : &defaults;
    wf_arena arena;
    wf_template *template = NULL;
    wf_json_node variables;
    const char *text;
    *out = (wf_rendered){0};
    if (count < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "a conversation cannot have %d messages", count);
    WF_TRY(find_template(m, ctx, o, &text));
    wf_arena_init(&arena, ctx);
    wf_status status = wf_template_new(ctx, "the chat template", text, strlen(text), &template);
    if (status == WF_OK)
        status = make_variables(m, &arena, messages, count, o, &variables);
    if (status == WF_OK)
        status = wf_template_render(template, ctx, &variables, NULL, out);
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

/* SPDX-License-Identifier: MIT */
/* chat_command.c - what begins with a slash in a chat. */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "cli/chat.h"

typedef struct {
    const char *name, *also; /* with the slash; also may be NULL */
    const char *value;       /* "": none; "[X]": it may be missing */
    const char *doc;
    wf_status (*run)(wf_chat *c, const char *value);
} chat_command;

static const chat_command commands[];

static wf_status help(wf_chat *c, const char *value)
{
    (void)c, (void)value;
    for (const chat_command *k = commands; k->name; k++) {
        char left[40];
        size_t len = 0;
        wf_text_append(left, sizeof left, &len, "%s%s%s %s", k->name, k->also ? ", " : "",
                       k->also ? k->also : "", k->value);
        fprintf(stderr, "  %-20s %s\n", left, k->doc);
    }
    fputs("  A \\ at the end of a line continues it; a space before a slash makes it text.\n"
          "  Ctrl-C stops an answer, Ctrl-D ends the chat.\n",
          stderr);
    return WF_OK;
}

static wf_status leave(wf_chat *c, const char *value)
{
    (void)value;
    c->over = true;
    return WF_OK;
}

static wf_status reset(wf_chat *c, const char *value)
{
    (void)value;
    while (c->count > 0 && !(c->count == 1 && wf_chat_last_is(c, "system")))
        wf_chat_drop_last(c);
    return WF_OK;
}

static wf_status set_system(wf_chat *c, const char *value)
{
    return wf_chat_set_system(c, value);
}

/* The old answer stays when there is no new one. */
static wf_status again(wf_chat *c, const char *value)
{
    (void)value;
    if (!wf_chat_last_is(c, "assistant"))
        return wf_fail(c->engine.ctx, WF_ERR_USAGE, "there is no answer yet to give again");
    wf_message old = c->message[--c->count];
    wf_status status = wf_chat_answer(c);
    if (status == WF_OK)
        wf_mem_free(c->engine.ctx, (void *)(uintptr_t)old.content);
    else
        c->message[c->count++] = old;
    return status;
}

static wf_status set_temp(wf_chat *c, const char *value)
{
    const char *end = value;
    double temp;
    if (!wf_text_to_double(&end, &temp) || *end || !(temp >= 0 && temp < 1e30))
        return wf_fail(c->engine.ctx, WF_ERR_USAGE, "/temp wants a number, 0 or more, not '%s'",
                       value);
    c->sampled.request.sampling.temperature = temp;
    return WF_OK;
}

static wf_status save(wf_chat *c, const char *value)
{
    wf_ctx *ctx = c->engine.ctx;
    wf_json j;
    FILE *f = fopen(value, "w");
    if (!f)
        return wf_fail(ctx, WF_ERR_IO, "cannot create '%s': %s", value, strerror(errno));
    wf_json_begin(&j, f);
    wf_json_array_begin(&j);
    for (int i = 0; i < c->count; i++) {
        wf_json_object_begin(&j);
        wf_json_key(&j, "role");
        wf_json_string(&j, c->message[i].role);
        wf_json_key(&j, "content");
        wf_json_string(&j, c->message[i].content);
        wf_json_object_end(&j);
    }
    wf_json_array_end(&j);
    bool written = wf_json_end(&j);
    if (fclose(f) != 0 || !written)
        return wf_fail(ctx, WF_ERR_IO, "cannot write '%s': %s", value, strerror(errno));
    return WF_OK;
}

static wf_status say_tokens(wf_chat *c, const char *value)
{
    const wf_engine *e = &c->engine;
    int32_t *ids;
    size_t count;
    (void)value;
    WF_TRY(wf_chat_encode(c, &ids, &count));
    wf_ids_free(e->ctx, ids);
    fprintf(stderr, "%d messages, %zu tokens of %lld\n", c->count, count, (long long)e->context);
    return WF_OK;
}

static const chat_command commands[] = {
    {"/help", "/?", "", "what can be said here", help},
    {"/exit", "/quit", "", "ends the chat", leave},
    {"/reset", "/clear", "", "forgets the conversation, but not what the system said", reset},
    {"/system", NULL, "[TEXT]", "what the system says, from the beginning on", set_system},
    {"/regen", "/retry", "", "answers the last question once more", again},
    {"/temp", NULL, "T", "the temperature from now on", set_temp},
    {"/save", NULL, "FILE", "writes the conversation as JSON", save},
    {"/tokens", NULL, "", "how much of the context is used", say_tokens},
    {0},
};

wf_status wf_chat_command(wf_chat *c, const char *line)
{
    wf_ctx *ctx = c->engine.ctx;
    const char *names[2 * sizeof commands / sizeof *commands];
    int n = 0;
    char word[WF_TEXT_WORD + 1];
    size_t length = strcspn(line, " \t"), len = 0;
    const char *value = line + length + strspn(line + length, " \t");
    wf_text_append(word, sizeof word, &len, "%.*s", (int)(length < 60 ? length : 60), line);
    for (const chat_command *k = commands; k->name; k++) {
        if (strcmp(word, k->name) != 0 && !(k->also && strcmp(word, k->also) == 0)) {
            names[n++] = k->name;
            continue;
        }
        if (!*k->value && *value)
            return wf_fail(ctx, WF_ERR_USAGE, "%s takes nothing behind it, and was given '%s'",
                           k->name, value);
        if (*k->value && *k->value != '[' && !*value)
            return wf_fail(ctx, WF_ERR_USAGE, "%s needs something behind it: %s %s", k->name,
                           k->name, k->value);
        return k->run(c, value);
    }
    const char *near = wf_text_nearest(word, names, n);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "there is no command '%s'; did you mean '%s'?", word,
                       near);
    return wf_fail(ctx, WF_ERR_USAGE,
                   "there is no command '%s'; /help lists them, and a space before the slash makes "
                   "it text",
                   word);
}

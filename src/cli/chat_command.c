/* SPDX-License-Identifier: MIT */
/* chat_command.c - the slash commands of a chat. */
#include <string.h>

#include "base/mem.h"
#include "cli/chat.h"

typedef struct {
    const char *name, *also; /* with the slash; also may be NULL */
    const char *value;       /* placeholder: "" for none, "[X]" if optional */
    bool lines;              /* the value may have several lines */
    const char *doc;
    wf_status (*run)(wf_chat *c, const char *value);
} chat_command;

/* Forward declaration: help() lists the table that refers to it. */
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
    fputs("  Several lines form one question when they are pasted, end in \\, or stand\n"
          "  between \"\"\" and \"\"\"; Alt-Enter adds a line. A space before a slash makes\n"
          "  the line a question. Up and Down recall earlier lines. Ctrl-C stops an\n"
          "  answer, Ctrl-D ends the chat.\n",
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
    /* A system message is always the first. */
    while (c->count > wf_chat_has_system(c))
        wf_chat_drop_last(c);
    c->left_out = 0;
    wf_open_say("conversation cleared%s", c->count > 0 ? "; the system prompt stays" : "");
    return WF_OK;
}

static wf_status set_system(wf_chat *c, const char *value)
{
    WF_TRY(wf_chat_set_system(c, value));
    wf_open_say(*value ? "system prompt set" : "system prompt removed");
    return WF_OK;
}

/* Answers the last question again. Keeps the old answer if that fails. */
static wf_status again(wf_chat *c, const char *value)
{
    (void)value;
    if (!wf_chat_last_is(c, "assistant"))
        return wf_fail(c->open.ctx, WF_ERR_USAGE, "there is no answer yet; ask a question first");
    /* Only the count changes, so the slot can be refilled without an allocation. */
    wf_message old = c->message[--c->count];
    wf_status status = wf_chat_answer(c);
    if (status == WF_OK)
        wf_mem_free(c->open.ctx, (void *)(uintptr_t)old.content);
    else
        c->message[c->count++] = old;
    return status;
}

static wf_status set_temp(wf_chat *c, const char *value)
{
    const char *end = value;
    double temp;
    if (!wf_text_to_double(&end, &temp) || *end || !(temp >= 0 && temp < 1e30))
        return wf_fail(c->open.ctx, WF_ERR_USAGE, "/temp must be a number of at least 0, not '%s'",
                       value);
    c->sampled.request.sampling.temperature = temp;
    wf_open_say("temperature %g", temp);
    return WF_OK;
}

static wf_status say_tokens(wf_chat *c, const char *value)
{
    const wf_open *e = &c->open;
    int32_t *ids;
    size_t count;
    (void)value;
    WF_TRY(wf_chat_encode(c, &ids, &count));
    wf_ids_free(e->ctx, ids);
    fprintf(stderr, "%d message%s, %zu token%s of %lld", c->count, WF_PLURAL(c->count), count,
            WF_PLURAL(count), (long long)e->context);
    if (c->left_out > 0)
        fprintf(stderr, "; the model no longer sees %d of them", c->left_out);
    fputc('\n', stderr);
    return WF_OK;
}

static const chat_command commands[] = {
    {"/help", "/?", "", false, "list the commands", help},
    {"/exit", "/quit", "", false, "end the chat", leave},
    {"/reset", "/clear", "", false, "clear the conversation, but not the system prompt", reset},
    {"/system", NULL, "[TEXT]", true, "set the system prompt; without TEXT, remove it", set_system},
    {"/regen", "/retry", "", false, "answer the last question again", again},
    {"/temp", NULL, "T", false, "set the temperature", set_temp},
    {"/save", NULL, "FILE", false, "write the conversation as JSON", wf_chat_save},
    {"/load", NULL, "FILE", false, "load a conversation that /save wrote", wf_chat_load},
    {"/tokens", NULL, "", false, "show how much of the context is used", say_tokens},
    {0},
};

/* Returns the command that the text begins with, or NULL. */
static const chat_command *find(const char *text)
{
    size_t length = strcspn(text, " \t\n");
    for (const chat_command *k = commands; k->name; k++)
        if ((strlen(k->name) == length && memcmp(text, k->name, length) == 0) ||
            (k->also && strlen(k->also) == length && memcmp(text, k->also, length) == 0))
            return k;
    return NULL;
}

/* A pasted text of several lines that begins with a slash is unlikely to be a command. */
bool wf_chat_is_command(const wf_chat *c, const char *text)
{
    if (!c->commands || text[0] != '/' || wf_line_quoted(c->line))
        return false;
    const chat_command *k = find(text);
    return !strchr(text, '\n') || (k && k->lines);
}

/* Suggests the nearest command, if one is near. */
static wf_status no_command(wf_ctx *ctx, const char *text)
{
    const char *names[sizeof commands / sizeof *commands];
    int n = 0;
    char word[WF_TEXT_WORD + 1];
    size_t length = strcspn(text, " \t"), len = 0;
    wf_text_append(word, sizeof word, &len, "%.*s", (int)(length < 60 ? length : 60), text);
    for (const chat_command *k = commands; k->name; k++)
        names[n++] = k->name;
    const char *near = wf_text_nearest(word, names, n);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown command '%s'; did you mean '%s'?", word, near);
    return wf_fail(ctx, WF_ERR_USAGE,
                   "unknown command '%s'; see /help; a space before the slash makes the line a "
                   "question",
                   word);
}

/* Checks that the value is there, or absent, as the table demands. */
wf_status wf_chat_command(wf_chat *c, const char *text)
{
    wf_ctx *ctx = c->open.ctx;
    const chat_command *k = find(text);
    if (!k)
        return no_command(ctx, text);
    const char *value = text + strcspn(text, " \t\n");
    value += strspn(value, " \t\n");
    if (!*k->value && *value)
        return wf_fail(ctx, WF_ERR_USAGE, "%s takes no argument, but '%s' was given", k->name,
                       value);
    if (*k->value && *k->value != '[' && !*value)
        return wf_fail(ctx, WF_ERR_USAGE, "%s needs an argument: %s %s", k->name, k->name,
                       k->value);
    return k->run(c, value);
}

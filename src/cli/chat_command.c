/* SPDX-License-Identifier: MIT */
/* chat_command.c - what begins with a slash in a chat. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
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

static wf_status write_messages(const wf_chat *c, char **text, size_t *bytes)
{
    wf_writer w = {.ctx = c->engine.ctx};
    wf_writer_char(&w, '[');
    for (int i = 0; i < c->count; i++) {
        const wf_message *m = &c->message[i];
        wf_writer_print(&w, "%s\n  {\"role\": \"%s\", \"content\": ", i > 0 ? "," : "", m->role);
        wf_writer_quoted(&w, m->content, strlen(m->content));
        wf_writer_char(&w, '}');
    }
    wf_writer_print(&w, "\n]\n");
    return wf_writer_take(&w, text, bytes);
}

/* *yes: the path is free (*exists is false), or the user agreed to replace what is there. */
static wf_status may_write(wf_chat *c, const char *path, bool *exists, bool *yes)
{
    const char *answer;
    char question[512];
    size_t len = 0;
    *exists = wf_path_look(path) != WF_PATH_NONE;
    *yes = !*exists;
    if (!*exists)
        return WF_OK;
    if (!c->interactive || !c->line)
        return wf_fail(c->engine.ctx, WF_ERR_USAGE, "'%s' exists already; choose another name",
                       path);
    wf_text_append(question, sizeof question, &len, "'%.300s' exists; replace it? [y/N] ", path);
    WF_TRY(wf_line_read(c->line, question, &answer));
    *yes = answer && (answer[0] == 'y' || answer[0] == 'Y');
    return WF_OK;
}

static wf_status save(wf_chat *c, const char *path)
{
    wf_ctx *ctx = c->engine.ctx;
    char *text;
    size_t bytes;
    bool exists, yes;
    char *own = wf_mem_new(ctx, strlen(path) + 1); /* the line that holds it is read anew */
    if (!own)
        return WF_ERR_MEMORY;
    memcpy(own, path, strlen(path) + 1);
    wf_status status = may_write(c, own, &exists, &yes);
    if (status == WF_OK && !yes)
        wf_engine_say("not saved");
    if (status == WF_OK && yes) {
        status = write_messages(c, &text, &bytes);
        if (status == WF_OK)
            status = exists ? wf_file_write(ctx, own, text, bytes)
                            : wf_file_create(ctx, own, text, bytes);
        if (status == WF_OK)
            wf_engine_say("saved %d messages to '%s'", c->count, own);
        wf_mem_free(ctx, text);
    }
    wf_mem_free(ctx, own);
    return status;
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

bool wf_chat_is_command(const wf_chat *c, const char *text)
{
    return c->commands && text[0] == '/';
}

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

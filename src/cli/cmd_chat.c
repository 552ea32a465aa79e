/* SPDX-License-Identifier: MIT */
/*
 * cmd_chat.c - weft chat: reads questions and streams answers.
 *
 * Interactive errors are printed and the chat goes on; when stdin is not a terminal the first error
 * ends the program. Only answers go to stdout.
 */
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/chat.h"
#include "cli/line_history.h"
#include "cli/prompt.h"
#include "cli/term.h"
#include "device/device.h"
#include "infer/engine.h"

#define LARGEST_TEMPLATE ((size_t)4 << 20) /* bytes, the limit of the template's lexer */

static struct {
    const char *prompt, *system, *template, *template_file, *color;
    bool single, no_escape, no_history, no_shift;
} options = {.color = "auto"};

/* Stores the template of --chat-template or --chat-template-file, or NULL. The caller frees
 * *owned. */
static wf_status choose_template(wf_ctx *ctx, const char **out, char **owned)
{
    size_t bytes;
    *out = options.template;
    *owned = NULL;
    if (options.template && options.template_file)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--chat-template and --chat-template-file are two templates; give one");
    if (options.template_file) {
        WF_TRY(wf_file_read(ctx, options.template_file, LARGEST_TEMPLATE, owned, &bytes));
        *out = *owned;
    }
    /* The text of a template contains a brace; anything else must be a name. */
    if (options.template && !strchr(options.template, '{') &&
        strcmp(options.template, "chatml") != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "unknown chat template '%s'; give chatml, the text of a template, or a "
                       "file with --chat-template-file",
                       options.template);
    return WF_OK;
}

static wf_status open_chat(wf_chat *c, const char *path)
{
    wf_ctx *ctx = c->open.ctx;
    char *system;
    size_t bytes;
    WF_TRY(wf_open_model(ctx, path, &c->open));
    WF_TRY(wf_sampled_make(ctx, c->open.model, &c->sampled));
    if (options.system) {
        WF_TRY(wf_prompt_unescape(ctx, options.system, &system, &bytes));
        wf_status status = wf_chat_set_system(c, options.no_escape ? options.system : system);
        wf_mem_free(ctx, system);
        WF_TRY(status);
    }
    WF_TRY(wf_chat_try(c)); /* checks the template before the model is loaded */
    WF_TRY(wf_open_load(&c->open, 1, 0));
    /* Prepare kernels now rather than after the first question. */
    WF_TRY(wf_session_settle(c->open.engine->session, NULL));
    wf_sampled_say(&c->sampled);
    return WF_OK;
}

/* Asks a question and streams the answer. After a failure the question is removed, so that the user
 * can ask another. */
static wf_status ask(wf_chat *c, const char *text, size_t bytes)
{
    WF_TRY(wf_chat_add(c, "user", text, bytes));
    wf_status status = wf_chat_answer(c);
    if (status != WF_OK && wf_chat_last_is(c, "user"))
        wf_chat_drop_last(c);
    return status;
}

static wf_status ask_first(wf_chat *c)
{
    wf_values texts = {.item = &options.prompt, .count = 1}, files = {.count = 0};
    static wf_prompts read;
    wf_status status = wf_prompts_read(
        c->open.ctx, &texts, &files,
        options.no_escape ? WF_PROMPT_TRIM : WF_PROMPT_TRIM | WF_PROMPT_ESCAPES, &read);
    if (status == WF_OK)
        status = ask(c, read.item[0].text, read.item[0].bytes);
    wf_prompts_free(&read);
    return status;
}

/* Runs a command or asks a question; ignores blank lines. */
static wf_status take_line(wf_chat *c, const char *text)
{
    if (wf_chat_is_command(c, text))
        return wf_chat_command(c, text);
    return text[strspn(text, " \t\n")] ? ask(c, text, strlen(text)) : WF_OK;
}

/* Reads and answers lines until /exit, the end of input, or a second Ctrl-C in a row. */
static wf_status converse(wf_chat *c)
{
    wf_line *line = c->line;
    bool cancelled = false;
    while (!c->over && !c->deaf) {
        const char *text;
        WF_TRY(wf_line_read(line, "> ", &text));
        if (!text || (cancelled && wf_line_cancelled(line)))
            break;
        cancelled = wf_line_cancelled(line);
        if (cancelled)
            wf_open_say("press Ctrl-C again, or Ctrl-D, to end the chat");
        int before = c->count;
        wf_status status = take_line(c, text);
        if (status != WF_OK && !c->interactive)
            return status;
        if (status != WF_OK)
            fprintf(stderr, "%s\n", wf_ctx_message(c->open.ctx));
        c->over = c->over || (options.single && c->count > before);
    }
    return WF_OK;
}

static wf_status talk(wf_chat *c)
{
    c->commands = isatty(STDIN_FILENO);
    c->interactive = c->commands && isatty(STDERR_FILENO);
    if (options.prompt) {
        WF_TRY(ask_first(c));
        if (options.single)
            return WF_OK;
    }
    if (c->interactive)
        wf_open_say("/help lists the commands; Ctrl-D ends the chat");
    char history[WF_HISTORY_PATH];
    wf_line_options o = {.color = c->color};
    if (c->interactive && !options.no_history && wf_line_history_place(history))
        o.history = history;
    WF_TRY(wf_line_new(c->open.ctx, &o, &c->line));
    return converse(c);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    static wf_chat chat;
    const char *path;
    char *template = NULL;
    wf_chat *c = &chat;
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    *c = (wf_chat){.open = {.ctx = ctx}, .no_shift = options.no_shift};
    WF_TRY(wf_term_choose_color(ctx, options.color, STDERR_FILENO, &c->color));
    wf_status status = choose_template(ctx, &c->options.chat_template, &template);
    if (status == WF_OK)
        status = open_chat(c, path);
    if (status == WF_OK)
        status = talk(c);
    if (status == WF_OK && c->answers > 0) {
        wf_engine_stats s;
        wf_engine_get_stats(c->open.engine, &s);
        wf_open_say_speed(&c->open, s.prompt_tokens + c->answers, 0, (int)c->answers, "");
    }
    wf_chat_free(c);
    wf_mem_free(ctx, template);
    return status;
}

static bool template_words(int index, const char **name, const char **doc)
{
    *name = "chatml";
    *doc = NULL;
    return index == 0;
}

static const wf_flag flags[] = {
    {"prompt", 'p', "TEXT", "the first question; -: stdin", .text = &options.prompt},
    {"single-turn", 0, NULL, "exit after one answer", .on = &options.single, .also = "-st"},
    {"system-prompt", 0, "TEXT", "the system message", .text = &options.system, .also = "-sys",
     .empty = true},
    {"chat-template", 0, "TEMPLATE", "chatml or the text of a Jinja template",
     .text = &options.template, .fallback = "the model's", .offer = {.words = template_words}},
    {"chat-template-file", 0, "FILE", "read the template from FILE", .text = &options.template_file,
     .offer = WF_OFFER_FILES},
    {"no-escape", 0, NULL, "do not interpret backslash escapes such as \\n in -p and -sys",
     .on = &options.no_escape},
    {"no-context-shift", 0, NULL,
     "fail when the context is full, instead of dropping the oldest messages",
     .on = &options.no_shift},
    {"no-history", 0, NULL, "do not save typed lines for the next chat", .on = &options.no_history},
    {"color", 0, "WHEN", "colored output; auto respects NO_COLOR", .text = &options.color,
     .offer = {.choices = "auto always never"}},
    {.doc = "sampling", .more = wf_sampling_flags},
    {.doc = "model and device", .more = wf_open_flags},
    {0},
};

const wf_command wf_cmd_chat = {
    .name = "chat",
    .doc = "chat with a model",
    .operands = "MODEL [-p QUESTION]",
    .max_operands = 1,
    .offers = {WF_OFFER_FILES},
    .details =
        "MODEL is a GGUF file or a Hugging Face folder with a chat template. Only answers go to "
        "stdout. On a terminal, Ctrl-C stops an answer, Ctrl-D ends the chat and /help lists the "
        "commands. When stdin is not a terminal, every line that is not blank is a question.",
    .examples = {"weft chat model.gguf -p \"What is the capital of France?\" --temp 0 -st",
                 "weft chat model.gguf -sys \"Answer in one sentence.\"",
                 "weft chat model.gguf --lora run/adapter --device cuda"},
    .flags = flags,
    .run = run,
};

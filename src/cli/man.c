/* SPDX-License-Identifier: MIT */
/* man.c - prints the tables of commands and flags as man pages: man(7) source for groff and mandoc.
 *
 * The pages have no date, so that equal programs print equal bytes. */
#include <ctype.h>
#include <string.h>

#include "cli/cli.h"

/* ---- Escaping ---- */

/* Prints text[0..length) so that roff renders it unchanged. */
static void put_text(FILE *to, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        switch (text[i]) {
        case '\\': fputs("\\e", to); break;
        case '-':
            fputs("\\-", to);
            break; /* a plain '-' becomes a hyphen, which shells do not read */
        case '"': fputs("\\(dq", to); break;
        case '\'': fputs("\\(aq", to); break;
        case '`': fputs("\\(ga", to); break;
        case '^': fputs("\\(ha", to); break;
        case '~': fputs("\\(ti", to); break;
        default: putc(text[i], to);
        }
}

/* Prints a line of text. "\&" keeps a leading '.' from starting a request. */
static void put_line(FILE *to, const char *text, size_t length)
{
    if (length > 0 && text[0] == '.')
        fputs("\\&", to);
    put_text(to, text, length);
    putc('\n', to);
}

/* Prints text in bold (font 'B') or italics (font 'I'). */
static void put_font(FILE *to, char font, const char *text, size_t length)
{
    fprintf(to, "\\f%c", font);
    put_text(to, text, length);
    fputs("\\fR", to);
}

/* Prints a description as a sentence: with a capital, unless it begins with a name, and a full
 * stop. */
static void put_sentence(FILE *to, const char *text)
{
    size_t length = strlen(text);
    if (length > 0 && text[strspn(text, "abcdefghijklmnopqrstuvwxyz")] == ' ') {
        putc(toupper((unsigned char)*text), to);
        text++;
        length--;
    }
    if (length > 0 && text[0] == '.')
        fputs("\\&", to);
    put_text(to, text, length);
    fputs(length > 0 && text[length - 1] == '.' ? "\n" : ".\n", to);
}

/* ---- Sections ---- */

/* Prints the title line. `name` is "weft" or "weft-train". */
static void put_title(FILE *to, const char *name)
{
    fputs(".TH \"", to);
    for (const char *c = name; *c; c++) {
        const char upper = (char)toupper((unsigned char)*c);
        put_text(to, &upper, 1);
    }
    fprintf(to, "\" 1 \"\" \"weft %s\" \"Weft Manual\"\n.nh\n.ad l\n", wf_version_string());
}

static void put_name(FILE *to, const char *name, const char *doc)
{
    fputs(".SH NAME\n", to);
    put_text(to, name, strlen(name));
    fputs(" \\- ", to);
    put_text(to, doc, strlen(doc));
    putc('\n', to);
}

/* Prints lines without filling them, indented. */
static void put_verbatim(FILE *to, const char *text, size_t length)
{
    fputs(".PP\n.nf\n.RS 2\n", to);
    for (const char *end = text + length; text < end;) {
        size_t line = strcspn(text, "\n");
        line = line < (size_t)(end - text) ? line : (size_t)(end - text);
        /* The indentation is that of .RS, so the leading spaces of the text go. */
        size_t spaces = strspn(text, " ");
        put_line(to, text + spaces, line - spaces);
        text += line + 1;
    }
    fputs(".RE\n.fi\n", to);
}

/* Prints paragraphs as in wf_command.details. */
static void put_paragraphs(FILE *to, const char *text)
{
    while (*text) {
        const char *blank = strstr(text, "\n\n");
        size_t length = blank ? (size_t)(blank - text) : strlen(text);
        if (*text == ' ') {
            put_verbatim(to, text, length);
        } else {
            fputs(".PP\n", to);
            put_line(to, text, length);
        }
        text += length + strspn(text + length, "\n");
    }
}

static void put_table(FILE *to, const wf_help_table *table)
{
    const char *name, *doc;
    fputs(".SH \"", to);
    for (const char *c = table->title; *c; c++)
        putc(toupper((unsigned char)*c), to);
    fputs("\"\n", to);
    for (int i = 0; table->rows(i, &name, &doc); i++) {
        fputs(".TP\n", to);
        put_font(to, 'B', name, strlen(name));
        putc('\n', to);
        put_sentence(to, doc);
    }
    if (table->closing)
        put_paragraphs(to, table->closing);
}

static void put_examples(FILE *to, const char *const *examples, int count)
{
    if (count > 0)
        fputs(".SH EXAMPLES\n.nf\n", to);
    for (int i = 0; i < count && examples[i]; i++)
        put_line(to, examples[i], strlen(examples[i]));
    if (count > 0)
        fputs(".fi\n", to);
}

/* Prints a reference such as weft-train(1). */
static void put_reference(FILE *to, const char *command, const char *after)
{
    fprintf(to, ".BR weft%s%s (1)%s\n", *command ? "\\-" : "", command, after);
}

/* ---- Flags ---- */

typedef struct {
    FILE *to;
    bool later;
} spelling_writer;

static void put_spelling(void *user, const char *spelling, size_t length)
{
    spelling_writer *w = user;
    if (w->later)
        fputs(", ", w->to);
    put_font(w->to, 'B', spelling, length);
    w->later = true;
}

static void put_flag(FILE *to, const wf_flag *flag)
{
    char text[WF_FLAG_TEXT];
    spelling_writer w = {.to = to};
    fputs(".TP\n", to);
    wf_flag_spellings(flag, put_spelling, &w);
    if (flag->value) {
        putc(' ', to);
        put_font(to, 'I', flag->value, strlen(flag->value));
    }
    putc('\n', to);
    put_sentence(to, wf_flag_text(flag, text));
}

static void put_flags(FILE *to, const wf_flag *flags)
{
    fputs(".SH OPTIONS\n", to);
    for (const wf_flag *flag = flags; flag->name; flag++)
        put_flag(to, flag);
    put_flag(to, &wf_help_flag);
    for (const wf_flag *group = flags; group->name || group->more; group++) {
        if (group->more) {
            fputs(".SS \"", to);
            const char first = (char)toupper((unsigned char)group->doc[0]);
            put_text(to, &first, 1);
            put_text(to, group->doc + 1, strlen(group->doc) - 1);
            fputs("\"\n", to);
        }
        for (const wf_flag *flag = group->more; flag && flag->name; flag++)
            put_flag(to, flag);
    }
}

/* ---- Pages ---- */

static bool exit_words(int index, const char **name, const char **doc)
{
    static const char *const rows[][2] = {
        {"0", "Success"},
        {"1", "The command failed; stderr has the reason"},
        {"2", "The command line or the environment is invalid"},
        {"3", "Training was interrupted by a signal and saved a checkpoint"},
    };
    if (index >= (int)(sizeof rows / sizeof *rows))
        return false;
    *name = rows[index][0];
    *doc = rows[index][1];
    return true;
}

static const wf_help_table exits = {.title = "exit status", .rows = exit_words};

void wf_man_program(FILE *to)
{
    static const char *const examples[] = {
        "weft run model.gguf \"Once upon a time\" -n 64",
        "weft chat model.gguf",
        "weft train --data text.txt --out run --depth 4 --steps 500",
    };
    static const wf_help_table environment = {
        .title = "environment",
        .rows = wf_environment_words,
        .closing = "WEFT_ARG_NAME sets the flag --name of any command: WEFT_ARG_TOP_K=20 is "
                   "--top-k 20. The command line overrides the environment."};
    put_title(to, "weft");
    put_name(to, "weft", "train, finetune, quantize and run transformer models");
    fputs(".SH SYNOPSIS\n.B weft\n.I COMMAND\n.RI [ FLAGS ]\n.SH DESCRIPTION\n", to);
    put_paragraphs(to, "Weft trains, finetunes, quantizes and runs transformer language models. It "
                       "reads GGUF files and Hugging Face folders. Results go to stdout; progress "
                       "and messages go to stderr.");
    fputs(".SH COMMANDS\n", to);
    for (const wf_command *const *c = wf_commands; *c; c++) {
        fputs(".TP\n", to);
        put_reference(to, (*c)->name, "");
        put_sentence(to, (*c)->doc);
    }
    put_table(to, &environment);
    put_table(to, &exits);
    put_examples(to, examples, 3);
    fputs(".SH SEE ALSO\n", to);
    for (const wf_command *const *c = wf_commands; *c; c++)
        put_reference(to, (*c)->name, c[1] ? "," : "");
}

void wf_man_command(const wf_command *command, FILE *to)
{
    char name[64], usage[WF_USAGE_TEXT];
    size_t len = 0;
    int examples = 0;
    wf_text_append(name, sizeof name, &len, "weft-%s", command->name);
    put_title(to, name);
    put_name(to, name, command->doc);
    fputs(".SH SYNOPSIS\n", to);
    wf_command_usage(command, usage);
    put_line(to, usage, strlen(usage));
    if (command->details) {
        fputs(".SH DESCRIPTION\n", to);
        put_paragraphs(to, command->details);
    }
    if (command->table)
        put_table(to, command->table);
    put_flags(to, command->flags);
    put_table(to, &exits);
    while (examples < WF_MAX_EXAMPLES && command->examples[examples])
        examples++;
    put_examples(to, command->examples, examples);
    fputs(".SH SEE ALSO\n", to);
    put_reference(to, "", "");
}

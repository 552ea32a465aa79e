/* SPDX-License-Identifier: MIT */
/* cmd_help.c - weft help: prints the tables of commands and flags as text or, with --man, as man
 * pages. */
#include <string.h>

#include "cli/cli.h"

enum {
    COLUMNS = 80,
    LEFT = 20,          /* width of a flag; a longer one stands on its own line */
    TEXT = 2 + LEFT + 2 /* where descriptions begin */
};

static struct {
    bool man;
} options;

/* Returns the length of the next piece that a line break may not split: a word, or a short text in
 * parentheses such as "(default: 8)". */
static size_t piece_length(const char *text)
{
    enum { SHORT = 32 };
    size_t inside = *text == '(' ? strcspn(text, ")") : SHORT;
    size_t from = inside < SHORT && text[inside] ? inside : 0;
    return from + strcspn(text + from, " \n");
}

/* Prints text from column `at`, wrapped, with later lines indented by `indent`; ends the line. */
static void print_wrapped(FILE *to, const char *text, int at, int indent)
{
    bool first = true;
    for (size_t word; *text; text += word, text += strspn(text, " \n")) {
        word = piece_length(text);
        if (!first && at + 1 + (int)word > COLUMNS) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        } else if (!first) {
            putc(' ', to);
            at++;
        }
        fprintf(to, "%.*s", (int)word, text);
        at += (int)word;
        first = false;
    }
    putc('\n', to);
}

/* Prints paragraphs, each after a blank line. A line that begins with a space is printed as it
 * is. */
static void print_paragraphs(FILE *to, const char *text)
{
    while (*text) {
        const char *blank = strstr(text, "\n\n");
        size_t length = blank ? (size_t)(blank - text) : strlen(text);
        /* Longer paragraphs would be cut; the texts are constants of this program. */
        char paragraph[2048];
        size_t len = 0;
        wf_text_append(paragraph, sizeof paragraph, &len, "%.*s", (int)length, text);
        putc('\n', to);
        if (*text == ' ')
            fprintf(to, "%s\n", paragraph);
        else
            print_wrapped(to, paragraph, 0, 0);
        text += length + strspn(text + length, "\n");
    }
}

/* Aligns the descriptions to the longest name. */
static void print_table(FILE *to, const wf_help_table *table)
{
    const char *name, *doc;
    int width = 0;
    for (int i = 0; table->rows(i, &name, &doc); i++)
        width = (int)strlen(name) > width ? (int)strlen(name) : width;
    fprintf(to, "\n%s:\n", table->title);
    for (int i = 0; table->rows(i, &name, &doc); i++) {
        fprintf(to, "  %-*s  ", width, name);
        print_wrapped(to, doc, width + 4, width + 4);
    }
    if (table->closing)
        print_paragraphs(to, table->closing);
}

bool wf_command_words(int index, const char **name, const char **doc)
{
    const wf_command *c = wf_commands[index];
    if (!c)
        return false;
    *name = c->name;
    *doc = c->doc;
    return true;
}

void wf_help_program(FILE *to)
{
    static const wf_help_table commands = {.title = "commands", .rows = wf_command_words};
    fprintf(to,
            "weft %s: trains, finetunes, quantizes and runs transformer models\n\n"
            "usage: weft COMMAND [FLAGS]\n",
            wf_version_string());
    print_table(to, &commands);
    fprintf(to, "\nexamples:\n  %s\n  %s\n  %s\n", wf_cmd_run.examples[0], wf_cmd_chat.examples[0],
            wf_cmd_plan.examples[0]);
    print_paragraphs(to, "'weft help COMMAND' and 'weft COMMAND --help' describe a command. The "
                         "environment can set any flag: WEFT_ARG_TOP_K=20 is --top-k 20.");
}

/* ---- One command ---- */

const wf_flag wf_help_flag = {.name = "help", .letter = 'h', .doc = "print this help"};

typedef struct {
    char text[128];
    size_t len;
} left_side;

static void add_spelling(void *user, const char *spelling, size_t length)
{
    left_side *l = user;
    bool indent = l->len == 0 && spelling[1] == '-'; /* no letter: align the long names */
    wf_text_append(l->text, sizeof l->text, &l->len, "%s%.*s",
                   indent   ? "    "
                   : l->len ? ", "
                            : "",
                   (int)length, spelling);
}

/* Prints "  -d, --device D" and the description. */
static void print_flag(FILE *to, const wf_flag *flag)
{
    left_side left = {.len = 0};
    char text[WF_FLAG_TEXT];
    wf_flag_spellings(flag, add_spelling, &left);
    if (flag->value)
        wf_text_append(left.text, sizeof left.text, &left.len, " %s", flag->value);
    if (left.len > LEFT)
        fprintf(to, "  %s\n%*s", left.text, TEXT, "");
    else
        fprintf(to, "  %-*s  ", LEFT, left.text);
    print_wrapped(to, wf_flag_text(flag, text), TEXT, TEXT);
}

const char *wf_command_usage(const wf_command *command, char out[WF_USAGE_TEXT])
{
    size_t len = 0;
    wf_text_append(out, WF_USAGE_TEXT, &len, "weft %s%s%s [FLAGS]", command->name,
                   *command->operands ? " " : "", command->operands);
    return out;
}

void wf_help_command(const wf_command *command, FILE *to)
{
    char usage[WF_USAGE_TEXT];
    fprintf(to, "weft %s: ", command->name);
    print_wrapped(to, command->doc, (int)strlen(command->name) + 7, 0);
    fprintf(to, "\nusage: %s\n", wf_command_usage(command, usage));
    if (command->details)
        print_paragraphs(to, command->details);
    if (command->table)
        print_table(to, command->table);
    fputs("\nflags:\n", to);
    for (const wf_flag *flag = command->flags; flag->name; flag++)
        print_flag(to, flag);
    print_flag(to, &wf_help_flag);
    for (const wf_flag *group = command->flags; group->name || group->more; group++) {
        if (group->more)
            fprintf(to, "\n%s:\n", group->doc);
        for (const wf_flag *flag = group->more; flag && flag->name; flag++)
            print_flag(to, flag);
    }
    for (int i = 0; i < WF_MAX_EXAMPLES && command->examples[i]; i++)
        fprintf(to, "%s  %s\n", i ? "" : "\nexamples:\n", command->examples[i]);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    const wf_command *command;
    if (count == 0) {
        (options.man ? wf_man_program : wf_help_program)(stdout);
        return WF_OK;
    }
    WF_TRY(wf_command_find(ctx, operands[0], &command));
    (options.man ? wf_man_command : wf_help_command)(command, stdout);
    return WF_OK;
}

static const wf_flag flags[] = {
    {.name = "man", .doc = "print a man page, for 'man -l -'", .on = &options.man},
    {0},
};

const wf_command wf_cmd_help = {
    .name = "help",
    .doc = "list the commands, or describe one",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .offers = {{.words = wf_command_words}},
    .examples = {"weft help train", "weft help train --man | man -l -"},
    .flags = flags,
    .run = run,
};

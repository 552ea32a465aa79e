/* SPDX-License-Identifier: MIT */
/*
 * completion_zsh.c - the completion script for zsh: specifications for _arguments.
 *
 * The script is made from the tables of commands and flags, so it always fits the program. Texts
 * are written inside single quotes, in which only the quote itself is special to the shell;
 * _arguments adds its own special characters.
 */
#include <string.h>

#include "cli/completion.h"

/* Prints text inside single quotes. _arguments ends descriptions at ']' and ':'. */
static void put_escaped(FILE *to, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (strchr("[]:\\", text[i]))
            putc('\\', to);
        if (text[i] == '\'')
            fputs("'\\''", to);
        else
            putc(text[i], to);
    }
}

/* Where spellings go, and how they are separated. */
typedef struct {
    FILE *to;
    const char *between;
    bool later, values; /* values: append "=" to long names, so that --name=VALUE works */
} list;

static void put_spelling(void *user, const char *spelling, size_t length)
{
    list *l = user;
    fprintf(l->to, "%s%.*s%s", l->later ? l->between : "", (int)length, spelling,
            l->values && spelling[1] == '-' ? "=" : "");
    l->later = true;
}

/* Prints a word of a list, which zsh evaluates: a backslash comes before every special character. */
static void put_word(void *user, const char *word, const char *doc)
{
    list *l = user;
    (void)doc;
    fputs(l->later ? " " : "", l->to);
    for (; *word; word++) {
        if (!strchr(WF_PLAIN_CHARACTERS, *word))
            putc('\\', l->to);
        if (*word == '\'')
            fputs("'\\''", l->to);
        else
            putc(*word, l->to);
    }
    l->later = true;
}

static void put_words(FILE *to, const wf_offer *offer)
{
    list l = {.to = to};
    putc('(', to);
    wf_offer_each(offer, put_word, &l);
    putc(')', to);
}

/* Prints the action of a value: "(a b)", "_files", both, or a blank for free text. */
static void put_action(FILE *to, const wf_offer *offer)
{
    bool words = offer->choices || offer->words;
    const char *paths = offer->paths == WF_PATHS_FOLDERS ? "_files -/" : "_files";
    if (words && offer->paths != WF_PATHS_NONE) {
        fputs("{_alternative \"words:word:", to);
        put_words(to, offer);
        fprintf(to, "\" \"files:file:%s\"}", paths);
    } else if (words) {
        put_words(to, offer);
    } else {
        fputs(offer->paths == WF_PATHS_NONE ? " " : paths, to);
    }
}

/* Prints a specification: '(-p --prompt)'{-p,--prompt=}'[description]:TEXT:_files'. */
static void put_flag(FILE *to, const wf_flag *flag)
{
    char text[WF_FLAG_TEXT];
    list exclusive = {.to = to, .between = " "},
         names = {.to = to, .between = ",", .values = flag->value != NULL};
    bool several = flag->letter || flag->also;
    fputs("            '", to);
    /* A repeatable flag stays on offer after its first use. */
    if (flag->values) {
        putc('*', to);
    } else {
        putc('(', to);
        wf_flag_spellings(flag, put_spelling, &exclusive);
        putc(')', to);
    }
    fputs(several ? "'{" : "", to);
    wf_flag_spellings(flag, put_spelling, &names);
    fputs(several ? "}'[" : "[", to);
    wf_flag_text(flag, text);
    put_escaped(to, text, strlen(text));
    putc(']', to);
    if (flag->value) {
        putc(':', to);
        put_escaped(to, flag->value, strlen(flag->value));
        putc(':', to);
        put_action(to, &flag->offer);
    }
    fputs("' \\\n", to);
}

static void put_command(FILE *to, const wf_command *command)
{
    const wf_flag *flags[WF_MAX_FLAGS];
    int count = wf_flags_list(command->flags, flags), n = wf_completion_operands(command);
    fprintf(to, "        %s)\n            _arguments -S \\\n", command->name);
    for (int i = 0; i < count; i++)
        put_flag(to, flags[i]);
    put_flag(to, &wf_help_flag);
    for (int i = 0; i < n; i++) {
        /* The last offer serves all further operands. */
        if (i == n - 1 && command->max_operands > n)
            fputs("            '*:argument:", to);
        else
            fprintf(to, "            '%d:argument:", i + 1);
        put_action(to, &command->offers[i]);
        fputs("' \\\n", to);
    }
    fputs("                && return 0\n            ;;\n", to);
}

void wf_completion_zsh(FILE *to)
{
    fputs("#compdef weft\n"
          "# zsh completion for weft, printed by 'weft completion zsh'\n"
          "\n"
          "_weft()\n"
          "{\n"
          "    local context state state_descr line\n"
          "    typeset -A opt_args\n"
          "    local -a commands=(\n",
          to);
    for (const wf_command *const *c = wf_commands; *c; c++) {
        fprintf(to, "        '%s:", (*c)->name);
        put_escaped(to, (*c)->doc, strlen((*c)->doc));
        fputs("'\n", to);
    }
    fputs("    )\n"
          "    _arguments -C '1:command:->command' '*::argument:->argument' && return 0\n"
          "    case $state in\n"
          "    command)\n"
          "        _describe -t commands 'weft command' commands && return 0\n"
          "        ;;\n"
          "    argument)\n"
          "        case $words[1] in\n",
          to);
    for (const wf_command *const *c = wf_commands; *c; c++)
        put_command(to, *c);
    fputs("        esac\n"
          "        ;;\n"
          "    esac\n"
          "    return 1\n"
          "}\n"
          "\n"
          "if [ \"$funcstack[1]\" = _weft ]; then\n"
          "    _weft \"$@\"\n"
          "else\n"
          "    compdef _weft weft\n"
          "fi\n",
          to);
}

/* SPDX-License-Identifier: MIT */
/*
 * completion_fish.c - the completion script for fish: one `complete` command for each flag.
 *
 * Conditions are functions of the script that look at the words typed so far. Texts are
 * single-quoted words, in which fish knows the escapes \' and \\ only.
 */
#include <string.h>

#include "cli/completion.h"

/* Prints text as a single-quoted word. */
static void put_quoted(FILE *to, const char *text)
{
    putc('\'', to);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            putc('\\', to);
        putc(*text, to);
    }
    putc('\'', to);
}

/* -p is a short option, --prompt a long one, -np an old-style one. */
static void put_spelling(void *user, const char *spelling, size_t length)
{
    FILE *to = user;
    if (spelling[1] == '-')
        fprintf(to, " -l %.*s", (int)length - 2, spelling + 2);
    else
        fprintf(to, " -%c %.*s", length == 2 ? 's' : 'o', (int)length - 1, spelling + 1);
}

/* Where words go, and whether one was printed. */
typedef struct {
    FILE *to;
    bool later;
} list;

/* Prints a word inside single quotes. fish evaluates the list, so a special character needs a
 * backslash, which is written as two. */
static void put_word(void *user, const char *word, const char *doc)
{
    list *l = user;
    (void)doc;
    fputs(l->later ? " " : "", l->to);
    for (; *word; word++) {
        if (!strchr(WF_PLAIN_CHARACTERS, *word))
            fputs("\\\\", l->to);
        if (*word == '\'' || *word == '\\')
            putc('\\', l->to);
        putc(*word, l->to);
    }
    l->later = true;
}

static void put_words(FILE *to, const wf_offer *offer)
{
    list l = {.to = to};
    if (!offer->choices && !offer->words)
        return;
    fputs(" -a '", to);
    wf_offer_each(offer, put_word, &l);
    putc('\'', to);
}

static void put_flag(FILE *to, const wf_command *command, const wf_flag *flag)
{
    char text[WF_FLAG_TEXT];
    fprintf(to, "complete -c weft -n '__weft_command %s'", command->name);
    wf_flag_spellings(flag, put_spelling, to);
    if (flag->value)
        /* -x: requires a value and offers no files; -r -F: requires one and offers files. */
        fputs(flag->offer.paths == WF_PATHS_NONE ? " -x" : " -r -F", to);
    if (flag->value && flag->offer.paths == WF_PATHS_FOLDERS && !flag->offer.words)
        fputs(" -a '(__fish_complete_directories)'", to);
    put_words(to, &flag->offer);
    fputs(" -d ", to);
    put_quoted(to, wf_flag_text(flag, text));
    putc('\n', to);
}

static void put_value_spelling(void *user, const char *spelling, size_t length)
{
    fprintf(user, " %.*s", (int)length, spelling);
}

static void put_command(FILE *to, const wf_command *command)
{
    const wf_flag *flags[WF_MAX_FLAGS];
    int count = wf_flags_list(command->flags, flags), n = wf_completion_operands(command);
    bool paths = false;
    fprintf(to, "\ncomplete -c weft -n __weft_first -f -a %s -d ", command->name);
    put_quoted(to, command->doc);
    putc('\n', to);
    fprintf(to, "set -g __weft_takes_%s", command->name);
    for (int i = 0; i < count; i++)
        if (flags[i]->value)
            wf_flag_spellings(flags[i], put_value_spelling, to);
    putc('\n', to);
    for (int i = 0; i < count; i++)
        put_flag(to, command, flags[i]);
    put_flag(to, command, &wf_help_flag);
    for (int i = 0; i < n; i++) {
        const wf_offer *offer = &command->offers[i];
        paths = paths || offer->paths != WF_PATHS_NONE;
        if (!offer->choices && !offer->words)
            continue;
        fprintf(to, "complete -c weft -n '__weft_operand %s %d'", command->name, i + 1);
        put_words(to, offer);
        putc('\n', to);
    }
    if (!paths)
        fprintf(to, "complete -c weft -n '__weft_command %s' -f\n", command->name);
}

void wf_completion_fish(FILE *to)
{
    fputs("# fish completion for weft, printed by 'weft completion fish'\n"
          "\n"
          "# True when no command has been typed yet.\n"
          "function __weft_first\n"
          "    test (count (commandline -opc)) -eq 1\n"
          "end\n"
          "\n"
          "# True when the command is $argv[1].\n"
          "function __weft_command\n"
          "    set -l words (commandline -opc)\n"
          "    test (count $words) -ge 2; and test $words[2] = $argv[1]\n"
          "end\n"
          "\n"
          "# True when the command is $argv[1] and the cursor is at its operand number $argv[2].\n"
          "# The flags of $__weft_takes_COMMAND take a value.\n"
          "function __weft_operand\n"
          "    __weft_command $argv[1]; or return 1\n"
          "    set -l takes __weft_takes_$argv[1]\n"
          "    set -l words (commandline -opc)\n"
          "    set -e words[1..2]\n"
          "    set -l operands\n"
          "    set -l value 0\n"
          "    for word in $words\n"
          "        if test $value -eq 1\n"
          "            set value 0\n"
          "        else if contains -- $word $$takes\n"
          "            set value 1\n"
          "        else if not string match -q -- '-?*' $word\n"
          "            set -a operands $word\n"
          "        end\n"
          "    end\n"
          "    test $value -eq 0; and test (count $operands) -eq (math $argv[2] - 1)\n"
          "end\n"
          "\n"
          "complete -c weft -n __weft_first -f\n",
          to);
    for (const wf_command *const *c = wf_commands; *c; c++)
        put_command(to, *c);
}

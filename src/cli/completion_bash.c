/* SPDX-License-Identifier: MIT */
/* completion_bash.c - the completion script for bash 4 and later. It needs no bash-completion
 * package. */
#include <string.h>

#include "cli/completion.h"

/* Bash splits words at '=' and ':' (COMP_WORDBREAKS): "--device=pjrt:x.so" arrives as five words, and a
 * reply replaces only the last of them. */
static const char opening[] =
    "# bash completion for weft, printed by 'weft completion bash'\n"
    "\n"
    "# Offers those of the words $@ that begin with $cur.\n"
    "_weft_words()\n"
    "{\n"
    "    local word\n"
    "    for word in \"$@\"; do\n"
    "        if [[ $word == \"$cur\"* ]]; then\n"
    "            word=$flag$word\n"
    "            printf -v word %q \"${word#\"$kept\"}\"\n"
    "            COMPREPLY+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "# Offers files (-f) or folders (-d) that begin with $cur, or with what follows pjrt: in it.\n"
    "_weft_paths()\n"
    "{\n"
    "    local line before=\n"
    "    [[ $cur == pjrt:* ]] && before=pjrt:\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    while IFS= read -r line; do\n"
    "        line=$flag$before$line\n"
    "        COMPREPLY+=(\"${line#\"$kept\"}\")\n"
    "    done < <(compgen \"$1\" -- \"${cur#\"$before\"}\")\n"
    "}\n"
    "\n"
    "# Sets words to the words up to the cursor, without bash's splits at '=' and ':'. Words that touch\n"
    "# in the command line are one word.\n"
    "_weft_join()\n"
    "{\n"
    "    local i rest=$COMP_LINE\n"
    "    words=()\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        if ((i > 0)) && [[ -n $rest && $rest != [[:blank:]]* ]]; then\n"
    "            words[${#words[@]} - 1]+=${COMP_WORDS[i]}\n"
    "        else\n"
    "            words+=(\"${COMP_WORDS[i]}\")\n"
    "        fi\n"
    "        rest=${rest#*\"${COMP_WORDS[i]}\"}\n"
    "    done\n"
    "}\n"
    "\n"
    "# Sets place to the number of the operand under the cursor. The flags $@ take a value.\n"
    "_weft_place()\n"
    "{\n"
    "    local i\n"
    "    place=1\n"
    "    for ((i = 2; i < ${#words[@]} - 1; i++)); do\n"
    "        if [[ \" $* \" == *\" ${words[i]} \"* ]]; then\n"
    "            ((i++))\n"
    "        elif [[ ${words[i]} != -?* ]]; then\n"
    "            ((place++))\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "\n"
    "_weft()\n"
    "{\n"
    "    local words cur prev flag= kept last=${COMP_WORDS[COMP_CWORD]} flags takes place\n"
    "    COMPREPLY=()\n"
    "    _weft_join\n"
    "    cur=${words[${#words[@]} - 1]}\n"
    "    prev=${words[${#words[@]} - 2]}\n"
    "    [[ $last == [=:]* ]] && last=\n"
    "    kept=${cur%\"$last\"} # what a reply does not replace\n"
    "    if ((${#words[@]} == 2)); then\n";

static const char middle[] = "        return\n"
                             "    fi\n"
                             "    if [[ $cur == --*=* ]]; then # --flag=VALUE\n"
                             "        prev=${cur%%=*}\n"
                             "        flag=$prev=\n"
                             "        cur=${cur#*=}\n"
                             "    fi\n"
                             "    if [[ $cur == pjrt:* ]]; then\n"
                             "        _weft_paths -f\n"
                             "        return\n"
                             "    fi\n"
                             "    case ${words[1]} in\n";

static const char closing[] = "    esac\n"
                              "}\n"
                              "complete -F _weft weft\n";

/* Where a word goes, and what separates it from the one before. */
typedef struct {
    FILE *to;
    const char *between;
    bool later; /* a word was printed before */
} list;

static void put(list *l, const char *text, size_t length)
{
    fprintf(l->to, "%s%.*s", l->later ? l->between : "", (int)length, text);
    l->later = true;
}

/* Prints a word for the shell, in single quotes where it needs them. */
static void put_quoted(FILE *to, const char *word)
{
    bool plain = *word && strspn(word, WF_PLAIN_CHARACTERS) == strlen(word);
    if (!plain)
        putc('\'', to);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", to);
        else
            putc(*word, to);
    if (!plain)
        putc('\'', to);
}

static void put_spelling(void *user, const char *spelling, size_t length)
{
    put(user, spelling, length);
}

static void put_word(void *user, const char *word, const char *doc)
{
    list *l = user;
    (void)doc;
    put(l, "", 0);
    put_quoted(l->to, word);
}

/* Prints the commands that fill COMPREPLY with an offer, each ending in ';' or a newline. */
static void put_offer(FILE *to, const wf_offer *offer)
{
    if (offer->choices || offer->words) {
        list l = {.to = to, .between = " "};
        fputs("_weft_words ", to);
        wf_offer_each(offer, put_word, &l);
        fputs("; ", to);
    }
    if (offer->paths != WF_PATHS_NONE)
        fprintf(to, "_weft_paths %s; ", offer->paths == WF_PATHS_FILES ? "-f" : "-d");
}

/* The values of flags. Flags that take a number or free text share one line, which offers
 * nothing. */
static void put_values(FILE *to, const wf_flag *const *flags, int count)
{
    list free = {.to = to, .between = "|"};
    fputs("        case $prev in\n", to);
    for (int i = 0; i < count; i++) {
        list l = {.to = to, .between = "|"};
        if (!flags[i]->value || wf_offer_is_empty(&flags[i]->offer))
            continue;
        fputs("        ", to);
        wf_flag_spellings(flags[i], put_spelling, &l);
        fputs(") ", to);
        put_offer(to, &flags[i]->offer);
        fputs("return ;;\n", to);
    }
    for (int i = 0; i < count; i++)
        if (flags[i]->value && wf_offer_is_empty(&flags[i]->offer)) {
            if (!free.later)
                fputs("        ", to);
            wf_flag_spellings(flags[i], put_spelling, &free);
        }
    if (free.later)
        fputs(") return ;;\n", to);
    fputs("        esac\n", to);
}

/* The last offer serves all further operands: "2" becomes the pattern [2-9]|[1-9][0-9]*. */
static void put_operands(FILE *to, const wf_command *command)
{
    int n = wf_completion_operands(command);
    if (n == 0)
        return;
    fputs("        _weft_place \"${takes[@]}\"\n        case $place in\n", to);
    for (int i = 0; i < n; i++) {
        bool repeats = i == n - 1 && command->max_operands > n;
        if (wf_offer_is_empty(&command->offers[i]))
            continue;
        fprintf(to, "        %s%d%s) ", repeats ? "[" : "", i + 1,
                repeats ? "-9]|[1-9][0-9]*" : "");
        put_offer(to, &command->offers[i]);
        fputs(";;\n", to);
    }
    fputs("        esac\n", to);
}

static void put_command(FILE *to, const wf_command *command)
{
    const wf_flag *flags[WF_MAX_FLAGS];
    int count = wf_flags_list(command->flags, flags);
    list all = {.to = to, .between = " "}, takes = all;
    fprintf(to, "    %s)\n        flags=(", command->name);
    for (int i = 0; i < count; i++)
        wf_flag_spellings(flags[i], put_spelling, &all);
    wf_flag_spellings(&wf_help_flag, put_spelling, &all);
    fputs(")\n        takes=(", to);
    for (int i = 0; i < count; i++)
        if (flags[i]->value)
            wf_flag_spellings(flags[i], put_spelling, &takes);
    fputs(")\n", to);
    put_values(to, flags, count);
    fputs("        if [[ $cur == -* ]]; then\n"
          "            _weft_words \"${flags[@]}\"\n"
          "            return\n"
          "        fi\n",
          to);
    put_operands(to, command);
    fputs("        ;;\n", to);
}

void wf_completion_bash(FILE *to)
{
    static const wf_offer commands = {.choices = "--help --version", .words = wf_command_words};
    fputs(opening, to);
    fputs("        ", to);
    put_offer(to, &commands);
    fputs("\n", to);
    fputs(middle, to);
    for (const wf_command *const *c = wf_commands; *c; c++)
        put_command(to, *c);
    fputs(closing, to);
}

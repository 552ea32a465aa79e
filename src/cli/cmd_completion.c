/* SPDX-License-Identifier: MIT */
/* cmd_completion.c - weft completion: prints a completion script for a shell. */
#include <string.h>

#include "cli/completion.h"

static const struct {
    const char *name, *doc;
    void (*print)(FILE *to);
} shells[] = {
    {"bash", "source <(weft completion bash)", wf_completion_bash},
    {"zsh", "source <(weft completion zsh), after compinit", wf_completion_zsh},
    {"fish", "weft completion fish | source", wf_completion_fish},
};
enum { SHELLS = sizeof shells / sizeof *shells };

bool wf_offer_is_empty(const wf_offer *offer)
{
    return !offer->choices && !offer->words && offer->paths == WF_PATHS_NONE;
}

int wf_completion_operands(const wf_command *command)
{
    int n = (int)(sizeof command->offers / sizeof *command->offers);
    while (n > 0 && wf_offer_is_empty(&command->offers[n - 1]))
        n--;
    return n;
}

static bool shell_words(int index, const char **name, const char **doc)
{
    if (index >= SHELLS)
        return false;
    *name = shells[index].name;
    *doc = shells[index].doc;
    return true;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    const char *names[SHELLS];
    for (int i = 0; i < SHELLS; i++) {
        names[i] = shells[i].name;
        if (count > 0 && strcmp(names[i], operands[0]) == 0) {
            shells[i].print(stdout);
            return WF_OK;
        }
    }
    if (count == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the shell is missing; give bash, zsh or fish");
    return wf_no_such(ctx, "shell", operands[0], names, SHELLS, "weft help completion");
}

static const wf_flag flags[] = {{0}};
static const wf_help_table table = {.title = "shells", .rows = shell_words};

const wf_command wf_cmd_completion = {
    .name = "completion",
    .doc = "print a completion script for bash, zsh or fish",
    .operands = "SHELL",
    .max_operands = 1,
    .offers = {{.words = shell_words}},
    .details = "Completes commands, flags, their values and file names. 'make install' installs "
               "all three scripts; to try one in the current shell, run the command beside it.",
    .table = &table,
    .examples = {"source <(weft completion bash)",
                 "weft completion fish > ~/.config/fish/completions/weft.fish"},
    .flags = flags,
    .run = run,
};

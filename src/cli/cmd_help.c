/* SPDX-License-Identifier: MIT */
/* cmd_help.c - weft help: texts that follow from the tables of commands and flags. */
#include <string.h>

#include "cli/cli.h"

void wf_help_program(FILE *to)
{
    fprintf(to,
            "weft %s: a transformer engine, as one C program and one C library\n\n"
            "usage: weft COMMAND [FLAGS]\n\ncommands:\n",
            wf_version_string());
    for (const wf_command *const *c = wf_commands; *c; c++)
        fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->doc);
    fprintf(
        to,
        "\nexamples:\n  %s\n  %s\n  %s\n\n'weft help COMMAND' or 'weft COMMAND --help' says more. The environment can set any "
        "flag:\nWEFT_ARG_TOP_K=20 is --top-k 20.\n",
        wf_cmd_run.example, wf_cmd_chat.example, wf_cmd_plan.example);
}

#define LEFT 20 /* columns of the flags; what is longer has a line of its own */

/* Unless the text itself says it. */
static void print_default(FILE *to, const wf_flag *flag)
{
    if (strstr(flag->doc, "(default"))
        return;
    if (flag->text && *flag->text)
        fprintf(to, " (default %s)", *flag->text);
    if (flag->whole && *flag->whole >= 0)
        fprintf(to, " (default %lld)", (long long)*flag->whole);
    if (flag->real && *flag->real >= 0)
        fprintf(to, " (default %g)", *flag->real);
}

/* "  -d, --device D" and, from one column on, what it means and what holds without it. */
static void print_flag(FILE *to, const wf_flag *flag)
{
    char left[96];
    size_t len = 0;
    if (flag->letter)
        wf_text_append(left, sizeof left, &len, "-%c, --%s", flag->letter, flag->name);
    else
        wf_text_append(left, sizeof left, &len, "    --%s", flag->name);
    for (const char *also = flag->also; also && *also;) {
        size_t word = strcspn(also, " ");
        wf_text_append(left, sizeof left, &len, ", %.*s", (int)word, also);
        also += word + strspn(also + word, " ");
    }
    if (flag->value)
        wf_text_append(left, sizeof left, &len, " %s", flag->value);
    if (len > LEFT)
        fprintf(to, "  %s\n%*s%s", left, LEFT + 4, "", flag->doc);
    else
        fprintf(to, "  %-*s  %s", LEFT, left, flag->doc);
    print_default(to, flag);
    putc('\n', to);
}

void wf_help_command(const wf_command *command, FILE *to)
{
    static const wf_flag help = {.name = "help", .letter = 'h', .doc = "print this text"};
    fprintf(to, "weft %s: %s\n\nusage: weft %s%s%s [FLAGS]\n", command->name, command->doc,
            command->name, *command->operands ? " " : "", command->operands);
    if (command->details)
        fprintf(to, "\n%s\n", command->details);
    if (command->more)
        command->more(to);
    fputs("\nflags:\n", to);
    for (const wf_flag *flag = command->flags; flag->name; flag++)
        print_flag(to, flag);
    print_flag(to, &help);
    for (const wf_flag *group = command->flags; group->name || group->more; group++) {
        if (group->more)
            fprintf(to, "\n%s:\n", group->doc);
        for (const wf_flag *flag = group->more; flag && flag->name; flag++)
            print_flag(to, flag);
    }
    if (command->example)
        fprintf(to, "\nexample:\n  %s\n", command->example);
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    const wf_command *command;
    if (count == 0) {
        wf_help_program(stdout);
        return WF_OK;
    }
    WF_TRY(wf_command_find(ctx, operands[0], &command));
    wf_help_command(command, stdout);
    return WF_OK;
}

static const wf_flag flags[] = {{0}};

const wf_command wf_cmd_help = {
    .name = "help",
    .doc = "what weft can do, or one of its commands",
    .operands = "[COMMAND]",
    .max_operands = 1,
    .flags = flags,
    .run = run,
};

/* SPDX-License-Identifier: MIT */
/* completion.h - prints completion scripts from the tables of commands and flags.
 *
 * The scripts are static: they hold every command, flag and value, and do not run weft. */
#ifndef WF_CLI_COMPLETION_H
#define WF_CLI_COMPLETION_H

#include "cli/cli.h"

void wf_completion_bash(FILE *to);
void wf_completion_zsh(FILE *to);
void wf_completion_fish(FILE *to);

/* Characters that no shell interprets: a word of others must be quoted or escaped. */
#define WF_PLAIN_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+,"

/* Returns the number of operands of a command with an offer of their own; the last one repeats when the
 * command takes more. */
int wf_completion_operands(const wf_command *command);
bool wf_offer_is_empty(const wf_offer *offer);

#endif

/* SPDX-License-Identifier: MIT */
/* environment.h - checks environment variables, and flags that belong to other commands. */
#ifndef WF_CLI_ENVIRONMENT_H
#define WF_CLI_ENVIRONMENT_H

#include "cli/cli.h"

/* Returns WF_ERR_USAGE for a WEFT_ARG_ variable that matches no flag, a misspelt WEFT_ variable, or
 * an invalid value of one. */
wf_status wf_environment_check(wf_ctx *ctx);

/* Returns WF_ERR_USAGE for a flag that only other commands have; the message names them. */
wf_status wf_flags_elsewhere(wf_ctx *ctx, const wf_command *command, int argc, char *const *argv);

#endif

/* SPDX-License-Identifier: MIT */
/* environment.h - what the environment and the other commands say about a command line that was misspelt. */
#ifndef WF_CLI_ENVIRONMENT_H
#define WF_CLI_ENVIRONMENT_H

#include "cli/cli.h"

/* WF_ERR_USAGE for a WEFT_ARG_ variable that is no flag of any command, and for a value of another WEFT_ variable
 * that Weft would not understand. */
wf_status wf_environment_check(wf_ctx *ctx);

/* WF_ERR_USAGE when an argument is a flag of other commands only; the sentence names them. */
wf_status wf_flags_elsewhere(wf_ctx *ctx, const wf_command *command, int argc, char *const *argv);

#endif

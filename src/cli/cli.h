/* SPDX-License-Identifier: MIT */
/* cli.h - what a command of the program is, and what several of them use.
 *
 * Results go to stdout, everything else to stderr. A command that fails leaves its sentence in the
 * context, and main prints it. Nobody tests writes to stdout one by one: main does, at the end. */
#ifndef WF_CLI_CLI_H
#define WF_CLI_CLI_H

#include <stdio.h>

#include "base/json.h"
#include "cli/flags.h"
#include "device/device.h"

typedef struct {
    const char *name;
    const char *doc;      /* one line of `weft help` */
    const char *operands; /* as the usage line shows them; "" when there are none */
    int max_operands;
    const char *details;    /* lines for `weft help NAME`; NULL when doc says it all */
    void (*more)(FILE *to); /* prints further ones that follow from a table; NULL: none */
    const char *example;    /* or NULL */
    const wf_flag *flags;
    /* WF_ERR_USAGE is exit status 2, any other failure 1. */
    wf_status (*run)(wf_ctx *ctx, char *const *operands, int count);
} wf_command;

extern const wf_command wf_cmd_run, wf_cmd_chat, wf_cmd_info, wf_cmd_tokenize, wf_cmd_convert,
    wf_cmd_quantize, wf_cmd_prepare, wf_cmd_train, wf_cmd_finetune, wf_cmd_eval, wf_cmd_bench,
    wf_cmd_devices, wf_cmd_ops, wf_cmd_selftest, wf_cmd_plan, wf_cmd_plot, wf_cmd_version,
    wf_cmd_help;

/* Exit status of a command that succeeded; 0 unless it says otherwise. */
extern int wf_exit_code;

/* All of them, in the order of the help; ends with NULL. */
extern const wf_command *const wf_commands[];
wf_status wf_command_find(wf_ctx *ctx, const char *name, const wf_command **out);

/* Texts of `weft help` and `weft help NAME`, generated from the tables. */
void wf_help_program(FILE *to);
void wf_help_command(const wf_command *command, FILE *to);

/* "there is no WHAT 'word'", with the nearest of names[0..n) or, if nothing is near, the command
 * line that lists them. */
wf_status wf_no_such(wf_ctx *ctx, const char *what, const char *word, const char *const *names,
                     int n, const char *lister);
wf_status wf_find_op(wf_ctx *ctx, const char *name, wf_op *out);

/* Writes to stdout at once. false: it cannot be written, which main reports, or nobody reads any more,
 * which is no failure: the command may end. */
bool wf_put(const char *bytes, size_t count);
/* The command line as it was typed, but for quotes; cut when it is very long. */
const char *wf_command_line(void);
/* A seed for a run that was given none. */
int64_t wf_fresh_seed(void);

/* "version", "commit", "build" and "compiler" of this program, into an open object. */
void wf_version_json(wf_json *j);

/* Every kind of device in this build, opened if it can be. */
#define WF_MAX_KINDS 16
typedef struct {
    const char *kind, *doc;
    wf_device *device;          /* NULL when it could not be opened */
    char why[WF_MESSAGE_BYTES]; /* then the reason */
} wf_found_device;
typedef struct {
    wf_found_device found[WF_MAX_KINDS];
    int count;
} wf_found_devices;
void wf_devices_open_all(wf_ctx *ctx, wf_found_devices *all);
void wf_devices_close_all(wf_found_devices *all);

#endif

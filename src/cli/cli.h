/* SPDX-License-Identifier: MIT */
/* cli.h - the interface of a command, and helpers that several commands share.
 *
 * Results go to stdout, everything else to stderr. A command that fails leaves its message in the
 * context, and main prints it. Commands do not check writes to stdout: main does, once, at the
 * end. */
#ifndef WF_CLI_CLI_H
#define WF_CLI_CLI_H

#include <stdio.h>

#include "base/json.h"
#include "cli/flags.h"
#include "device/device.h"

#define WF_MAX_EXAMPLES 4 /* in the help of a command */

/* A table of the help, such as the types of `weft quantize`. */
typedef struct {
    const char *title;
    wf_words_fn *rows;
    const char *closing; /* paragraphs below the table; NULL: none */
} wf_help_table;

typedef struct {
    const char *name;
    const char *doc;      /* one line of `weft help`, without a final stop */
    const char *operands; /* as the usage line shows them; "" for none */
    int max_operands;
    wf_offer offers[3]; /* completion of each operand; the last non-empty one repeats */
    /* Paragraphs, separated by a blank line. The help wraps them, except lines that begin with a
     * space. NULL: none. */
    const char *details;
    const wf_help_table *table; /* NULL: none */
    const char *examples[WF_MAX_EXAMPLES];
    const wf_flag *flags;
    /* WF_ERR_USAGE becomes exit status 2, any other failure 1. */
    wf_status (*run)(wf_ctx *ctx, char *const *operands, int count);
} wf_command;

extern const wf_command wf_cmd_run, wf_cmd_chat, wf_cmd_info, wf_cmd_tokenize, wf_cmd_convert,
    wf_cmd_quantize, wf_cmd_imatrix, wf_cmd_prepare, wf_cmd_train, wf_cmd_finetune, wf_cmd_eval,
    wf_cmd_bench, wf_cmd_devices, wf_cmd_ops, wf_cmd_selftest, wf_cmd_plan, wf_cmd_plot,
    wf_cmd_completion, wf_cmd_version, wf_cmd_help;

/* Exit status of a command that returns WF_OK; 0 unless the command sets it. */
extern int wf_exit_code;

/* All commands, in the order of the help; ends with NULL. */
extern const wf_command *const wf_commands[];
wf_status wf_command_find(wf_ctx *ctx, const char *name, const wf_command **out);
/* The usage line: "weft NAME OPERANDS [FLAGS]". */
#define WF_USAGE_TEXT 160
const char *wf_command_usage(const wf_command *command, char out[WF_USAGE_TEXT]);

/* Print `weft help` and `weft help NAME` from the tables, at most 80 columns wide. */
void wf_help_program(FILE *to);
void wf_help_command(const wf_command *command, FILE *to);
/* --help, which every command has and no table lists. */
extern const wf_flag wf_help_flag;

/* Print the man pages weft.1 and weft-NAME.1 from the same tables, as man(7) source. */
void wf_man_program(FILE *to);
void wf_man_command(const wf_command *command, FILE *to);

/* Word tables for completion and help. */
wf_words_fn wf_command_words; /* commands */
wf_words_fn wf_device_words;  /* kinds of devices in this build */
wf_words_fn wf_auto_words;    /* the same, and "auto" */
wf_words_fn wf_op_words, wf_type_words, wf_recipe_words, wf_example_words;
wf_words_fn
    wf_environment_words; /* environment variables that Weft reads, besides those of flags */

/* Fails with "unknown WHAT 'word'" and the nearest of names[0..n) or, when no name is near, the
 * command that lists them. */
wf_status wf_no_such(wf_ctx *ctx, const char *what, const char *word, const char *const *names,
                     int n, const char *lister);
wf_status wf_find_op(wf_ctx *ctx, const char *name, wf_op *out);

/* Writes to stdout and flushes. Returns false when stdout accepts no more bytes; the command should
 * then end. main reports the error, unless the reader has closed the pipe. */
bool wf_put(const char *bytes, size_t count);
/* The command line as typed, without quotes; truncated to 1 KiB. */
const char *wf_command_line(void);
/* Returns a random seed below 2^31. */
int64_t wf_fresh_seed(void);

/* Writes "version", "commit", "build" and "compiler" into an open object. */
void wf_version_json(wf_json *j);

/* Every kind of device in this build, opened where possible. */
#define WF_MAX_KINDS 16
typedef struct {
    const char *kind, *doc;
    wf_device *device;          /* NULL when it could not be opened */
    char why[WF_MESSAGE_BYTES]; /* the reason, when device is NULL */
} wf_found_device;
typedef struct {
    wf_found_device found[WF_MAX_KINDS];
    int count;
} wf_found_devices;
void wf_devices_open_all(wf_ctx *ctx, wf_found_devices *all);
void wf_devices_close_all(wf_found_devices *all);

#endif

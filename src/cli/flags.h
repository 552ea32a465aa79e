/* SPDX-License-Identifier: MIT */
/* flags.h - flags of a command, declared as a table from which they are parsed and documented.
 *
 * Accepted are --name VALUE, --name=VALUE and, where a flag has a letter, -n VALUE. Flags and
 * operands may be mixed; after "--" everything is an operand. What the command line does not say, the
 * environment may: WEFT_ARG_TOP_K is --top-k, and WEFT_ARG_JSON=1 is --json. */
#ifndef WF_CLI_FLAGS_H
#define WF_CLI_FLAGS_H

#include "base/ctx.h"

#define WF_MAX_FLAGS 128
#define WF_MAX_VALUES 64 /* of a flag that is not `many` */

/* Values of a flag that may come more than once, in the order given. The list is never freed: it lives as
 * long as the command line. */
typedef struct {
    const char **item;
    int count, room;
} wf_values;

wf_status wf_values_add(wf_ctx *ctx, wf_values *values, const char *text);

/* Exactly one target is set: it holds the default, and its type says what the flag takes. */
typedef struct wf_flag wf_flag;
struct wf_flag {
    const char *name;  /* without the dashes; NULL ends a table */
    char letter;       /* of the short form; 0: none */
    const char *value; /* what the help calls the value; NULL for a switch */
    const char *doc;
    bool *on;
    const char **text;
    int64_t *whole; /* a default below 0 means none */
    double *real;   /* finite; a default below 0 means none */
    /* Of a number: "1,1024", "0," without an end, "(0,1)" without its ends. NULL: whole numbers from 0 on, any
     * real number. */
    const char *range;
    /* A letter that other commands have for something else. It is refused here, and the sentence names this flag. */
    char not_letter;
    wf_values *values;
    const char *also; /* other spellings, with their dashes: "-sys --predict"; NULL: none */
    bool minus_one;   /* of a whole number: -1 is one, too */
    bool empty;       /* "" is a value */
    bool many;        /* of values: without a limit */
    bool operand;     /* an operand says the same, and more than the environment */
    /* In place of name and target: the flags of another table, with doc as their title. Such rows come
     * last, and those tables have none. */
    const wf_flag *more;
};

/* The flags of a table and of those in it; returns how many. */
int wf_flags_list(const wf_flag *flags, const wf_flag *list[WF_MAX_FLAGS]);

/* The same in every command that has it. */
#define WF_FLAG_JSON(target)                                                            \
    {                                                                                   \
        .name = "json", .doc = "print JSON, for other programs to read", .on = (target) \
    }

#define WF_FLAG_OVERWRITE(target)                                              \
    {                                                                          \
        .name = "overwrite", .doc = "replace files that exist", .on = (target) \
    }

#define WF_FLAG_FAST(target)                                                            \
    {                                                                                   \
        .name = "fast", .on = (target),                                                 \
        .doc = "also kernels whose results may differ in the last bits from run to run" \
    }

/* Sets the targets of the flags in argv[0..argc) and moves the operands to the front of argv;
 * *operands is their number. What is wrong with an argument is WF_ERR_USAGE and a sentence. */
wf_status wf_flags_parse(wf_ctx *ctx, const wf_flag *flags, int argc, char **argv, int *operands);

/* Whether arg[0..length), which begins with two dashes, names the flag. */
bool wf_flag_is(const wf_flag *flag, const char *arg, size_t length);
/* The environment variable that stands for a flag. */
#define WF_FLAG_PREFIX "WEFT_ARG_"
void wf_flag_variable(const wf_flag *flag, char name[WF_TEXT_WORD + 1]);

/* Whether a flag was given that the command may not use together with others. */
typedef struct {
    const char *name;
    bool given;
} wf_given;
/* WF_ERR_USAGE with "--NAME REASON" for the first flag of list[0..count) that was given. */
wf_status wf_flags_refuse(wf_ctx *ctx, const wf_given *list, size_t count, const char *reason);

/* --help or -h stands among the arguments. */
bool wf_flags_ask_help(int argc, char *const *argv);

#endif

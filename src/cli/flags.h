/* SPDX-License-Identifier: MIT */
/* flags.h - declares the flags of a command as a table. The parser, the help, the man pages and the
 * shell completions all read this table.
 *
 * The parser accepts --name VALUE, --name=VALUE and, for a flag with a letter, -n VALUE. Flags and
 * operands may be mixed; after "--" every argument is an operand. The environment sets flags that
 * the command line leaves out: WEFT_ARG_TOP_K=20 is --top-k 20, WEFT_ARG_JSON=1 is --json. */
#ifndef WF_CLI_FLAGS_H
#define WF_CLI_FLAGS_H

#include "base/ctx.h"

#define WF_MAX_FLAGS 128
#define WF_MAX_VALUES 64 /* for a repeatable flag without `many` */

/* Values of a repeatable flag, in the order given. The list is never freed: it lives as long as the
 * process. */
typedef struct {
    const char **item;
    int count, room;
} wf_values;

wf_status wf_values_add(wf_ctx *ctx, wf_values *values, const char *text);

/* Enumerates words: stores row `index` in *name and *doc (NULL: no description). Returns false past
 * the last row. */
typedef bool wf_words_fn(int index, const char **name, const char **doc);

typedef enum { WF_PATHS_NONE, WF_PATHS_FILES, WF_PATHS_FOLDERS } wf_paths;

/* What the shell completes for a value or an operand. */
typedef struct {
    const char *choices; /* all accepted values, separated by spaces; the help lists them, too */
    wf_words_fn *words;  /* or a table, which the help does not list; NULL: none */
    wf_paths paths;
} wf_offer;

#define WF_OFFER_FILES          \
    {                           \
        .paths = WF_PATHS_FILES \
    }
#define WF_OFFER_FOLDERS          \
    {                             \
        .paths = WF_PATHS_FOLDERS \
    }
/* Calls fn with each word of the offer. */
void wf_offer_each(const wf_offer *offer, void (*fn)(void *user, const char *word, const char *doc),
                   void *user);

/* Exactly one of the targets on, text, whole, real and values is set. Its type is the flag's type,
 * and its initial value is the default. */
typedef struct wf_flag wf_flag;
struct wf_flag {
    const char *name;  /* without the dashes; NULL ends a table */
    char letter;       /* short form; 0: none */
    const char *value; /* placeholder in the help; NULL for a switch */
    const char *doc;
    bool *on;
    const char **text;
    int64_t *whole; /* below 0: not set */
    double *real;   /* finite; below 0: not set */
    /* Range of a number: "1,1024", "0," without an upper end, "(0,1)" with open ends. NULL: whole
     * numbers >= 0, any real number. */
    const char *range;
    /* A letter that means something else in other commands. The parser refuses it and names this
     * flag. */
    char not_letter;
    wf_values *values;
    const char *also;     /* other spellings with their dashes: "-sys --predict"; NULL: none */
    bool minus_one;       /* a whole number may also be -1 */
    bool empty;           /* accepts "" */
    bool many;            /* `values` has no limit */
    bool operand;         /* an operand sets the same; it overrides the environment */
    const char *fallback; /* the default in words; NULL: the help prints the target's value */
    wf_offer offer;
    /* Instead of a flag: another table, with `doc` as its heading. Such rows come last in a table
     * and do not nest. */
    const wf_flag *more;
};

/* Flattens a table and the tables in it; returns the number of flags. */
int wf_flags_list(const wf_flag *flags, const wf_flag *list[WF_MAX_FLAGS]);

/* Flags that mean the same in every command that has them. */
#define WF_FLAG_JSON(target)                                \
    {                                                       \
        .name = "json", .doc = "print JSON", .on = (target) \
    }

#define WF_FLAG_OVERWRITE(target)                                            \
    {                                                                        \
        .name = "overwrite", .doc = "replace existing files", .on = (target) \
    }

#define WF_FLAG_FAST(target)                                                                      \
    {                                                                                             \
        .name = "fast", .on = (target),                                                           \
        .doc = "allow nondeterministic kernels: results may differ between runs in the last bits" \
    }

/* Spellings of a flag in the order of the help: "-p", "--prompt", then those in `also`. Calls fn
 * with each, dashes included. */
void wf_flag_spellings(const wf_flag *flag,
                       void (*fn)(void *user, const char *spelling, size_t length), void *user);

/* Description of a flag: its doc, its choices and its default, without a final stop. */
#define WF_FLAG_TEXT 512
const char *wf_flag_text(const wf_flag *flag, char out[WF_FLAG_TEXT]);

/* Sets the targets of the flags in argv[0..argc) and moves the operands to the front of argv.
 * Stores the number of operands in *operands. Returns WF_ERR_USAGE with a message for an invalid
 * argument. */
wf_status wf_flags_parse(wf_ctx *ctx, const wf_flag *flags, int argc, char **argv, int *operands);

/* Returns whether arg[0..length), which begins with two dashes, names the flag. */
bool wf_flag_is(const wf_flag *flag, const char *arg, size_t length);
/* Stores the name of the environment variable that sets a flag. */
#define WF_FLAG_PREFIX "WEFT_ARG_"
void wf_flag_variable(const wf_flag *flag, char name[WF_TEXT_WORD + 1]);

/* A flag, and whether the command line set it. */
typedef struct {
    const char *name;
    bool given;
} wf_given;
/* Returns WF_ERR_USAGE with "--NAME REASON" for the first flag of list[0..count) that was given. */
wf_status wf_flags_refuse(wf_ctx *ctx, const wf_given *list, size_t count, const char *reason);

/* Returns whether --help or -h is among the arguments. */
bool wf_flags_ask_help(int argc, char *const *argv);

#endif

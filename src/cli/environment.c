/* SPDX-License-Identifier: MIT */
/*
 * environment.c - see environment.h.
 *
 * A misspelt variable would be ignored silently, so every WEFT_ variable of the environment is
 * checked: WEFT_ARG_ names must match a flag of some command, other names are refused only if they
 * resemble a known one.
 */
#include "cli/environment.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES 512 /* flags of all commands together */

extern char **environ;

/* ---- Variables ---- */

/* Stores the variable of every flag, once for each command that has it; returns their number. */
static int list_variables(char names[MOST_NAMES][WF_TEXT_WORD + 1])
{
    int n = 0;
    for (const wf_command *const *c = wf_commands; *c; c++) {
        const wf_flag *list[WF_MAX_FLAGS];
        int count = wf_flags_list((*c)->flags, list);
        for (int i = 0; i < count && n < MOST_NAMES; i++)
            wf_flag_variable(list[i], names[n++]);
    }
    return n;
}

static wf_status check_flag_variable(wf_ctx *ctx, const char *name)
{
    static char names[MOST_NAMES][WF_TEXT_WORD + 1];
    const char *list[MOST_NAMES];
    int n = list_variables(names);
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0)
            return WF_OK;
        list[i] = names[i];
    }
    const char *near = wf_text_nearest(name, list, n);
    return wf_fail(ctx, WF_ERR_USAGE,
                   "the environment sets %s, but no command has this flag; %s%s%s", WF_SHOWN(name),
                   near ? "did you mean " : "unset it", near ? near : "", near ? "?" : "");
}

/* Variables that Weft reads, besides those of flags. */
static const struct {
    const char *name, *doc;
} variables[] = {
    {"WEFT_CACHE", "an existing folder that caches programs compiled by a PJRT plugin"},
    {"WEFT_CPU", "instruction set of the cpu device's kernels; an unknown name lists the sets"},
    {"WEFT_CUBLASLT", "path of the cuBLASLt library"},
    {"WEFT_CUDNN", "path of the cuDNN library"},
    {"WEFT_PIN", "1: pin each thread to a core"},
    {"WEFT_PJRT_PLUGIN", "path of a PJRT plugin, for the device pjrt without a path"},
    {"WEFT_THREADS", "number of CPU threads, from 1 to 1024"},
};
#define VARIABLES ((int)(sizeof variables / sizeof *variables))

bool wf_environment_words(int index, const char **name, const char **doc)
{
    if (index >= VARIABLES)
        return false;
    *name = variables[index].name;
    *doc = variables[index].doc;
    return true;
}

/* Variables of the tests and of the emulator, as patterns for fnmatch. */
static const char *const of_tests[] = {"WEFT_TEST_*",   "WEFT_EMULATED_*", "WEFT_ORACLE_*",
                                       "WEFT_*_DEVICE", "WEFT_*SEED",      "WEFT_SEEDS",
                                       "WEFT_KILLS",    "WEFT_PROGRAM"};

static bool is_of_tests(const char *name)
{
    for (size_t i = 0; i < sizeof of_tests / sizeof *of_tests; i++)
        if (fnmatch(of_tests[i], name, 0) == 0)
            return true;
    return false;
}

/* Refuses a name that resembles one of `variables`. Other names may belong to other programs. */
static wf_status check_variable(wf_ctx *ctx, const char *name)
{
    const char *names[VARIABLES];
    for (int i = 0; i < VARIABLES; i++) {
        names[i] = variables[i].name;
        if (strcmp(names[i], name) == 0)
            return WF_OK;
    }
    const char *near = is_of_tests(name) ? NULL : wf_text_nearest(name, names, VARIABLES);
    if (!near)
        return WF_OK;
    return wf_fail(ctx, WF_ERR_USAGE,
                   "the environment sets %s, which Weft does not read; did you mean %s?",
                   WF_SHOWN(name), near);
}

/* Returns whether s is a number in [low, high] without sign or space. */
static bool is_whole(const char *s, long low, long high)
{
    char *end;
    long number = strtol(s, &end, 10);
    return *s >= '0' && *s <= '9' && !*end && number >= low && number <= high;
}

/* Variables whose invalid values the library ignores silently, so they are checked here. */
static const struct {
    const char *name, *rule;
    long low, high;
} numbers[] = {{"WEFT_THREADS", "a whole number from 1 to 1024", 1, 1024},
               {"WEFT_PIN", "0 or 1", 0, 1}};

wf_status wf_environment_check(wf_ctx *ctx)
{
    for (char **entry = environ; entry && *entry; entry++) {
        char name[WF_TEXT_WORD + 1];
        size_t length = strcspn(*entry, "="), len = 0;
        if (strncmp(*entry, "WEFT_", 5) != 0)
            continue;
        wf_text_append(name, sizeof name, &len, "%.*s", (int)length, *entry);
        bool flag = strncmp(name, WF_FLAG_PREFIX, strlen(WF_FLAG_PREFIX)) == 0;
        WF_TRY(flag ? check_flag_variable(ctx, name) : check_variable(ctx, name));
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *value = getenv(numbers[i].name);
        if (value && *value && !is_whole(value, numbers[i].low, numbers[i].high))
            return wf_fail(ctx, WF_ERR_USAGE, "%s must be %s, not '%s'", numbers[i].name,
                           numbers[i].rule, WF_SHOWN(value));
    }
    return WF_OK;
}

/* ---- Flags of other commands ---- */

static bool has_flag(const wf_command *command, const char *name, size_t length)
{
    const wf_flag *list[WF_MAX_FLAGS];
    int count = wf_flags_list(command->flags, list);
    for (int i = 0; i < count; i++)
        if (wf_flag_is(list[i], name, length))
            return true;
    return false;
}

wf_status wf_flags_elsewhere(wf_ctx *ctx, const wf_command *command, int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        size_t length = strcspn(argv[i], "="), len = 0;
        char others[128] = "";
        if (strncmp(argv[i], "--", 2) != 0 || has_flag(command, argv[i], length))
            continue;
        for (const wf_command *const *c = wf_commands; *c; c++)
            if (has_flag(*c, argv[i], length))
                wf_text_append(others, sizeof others, &len, "%s%s", len ? ", " : "", (*c)->name);
        if (strcmp(argv[i], "--model") == 0 && command == &wf_cmd_train)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "'weft train' trains a new model; to train an existing model, use 'weft "
                           "finetune MODEL'");
        if (len > 0)
            return wf_fail(ctx, WF_ERR_USAGE,
                           "'weft %s' has no flag '%.*s'; these commands have it: %s",
                           command->name, (int)length, argv[i], others);
    }
    return WF_OK;
}

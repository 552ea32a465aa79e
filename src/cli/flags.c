/* SPDX-License-Identifier: MIT */
/* flags.c - the parser of command line flags. */
#include "cli/flags.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FLAGS 64

/* The name that an argument gives, without dashes and value. */
typedef struct {
    const char *arg;   /* as it was typed */
    const char *begin; /* of the name in it */
    size_t length;
    const char *value; /* behind '=', or NULL */
} spelling;

static spelling spell(const char *arg)
{
    spelling s = {.arg = arg, .begin = arg + strspn(arg, "-")};
    s.length = strcspn(s.begin, "=");
    if (s.begin[s.length] == '=')
        s.value = s.begin + s.length + 1;
    return s;
}

static bool matches(const wf_flag *flag, const spelling *s)
{
    if (s->begin - s->arg == 1)
        return flag->letter && s->length == 1 && s->begin[0] == flag->letter;
    return strlen(flag->name) == s->length && memcmp(flag->name, s->begin, s->length) == 0;
}

static wf_status no_such_flag(wf_ctx *ctx, const wf_flag *flags, const spelling *s)
{
    const char *names[MAX_FLAGS] = {"help"};
    int n = 1;
    for (; flags->name && n < MAX_FLAGS; flags++)
        names[n++] = flags->name;

    char word[WF_TEXT_WORD + 1];
    size_t len = 0;
    wf_text_append(word, sizeof word, &len, "%.*s", (int)s->length, s->begin);
    const char *near = wf_text_nearest(word, names, n);
    int shown = (int)(s->begin - s->arg + (ptrdiff_t)s->length);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "there is no flag '%.*s'; did you mean '--%s'?", shown,
                       s->arg, near);
    return wf_fail(ctx, WF_ERR_USAGE, "there is no flag '%.*s'; --help lists them", shown, s->arg);
}

static wf_status set_whole(wf_ctx *ctx, const char *arg, const char *text, int64_t *target)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end) /* also no space and no sign in front */
        return wf_fail(ctx, WF_ERR_USAGE, "%s wants a whole number, 0 or more, not '%s'", arg,
                       text);
    if (errno == ERANGE)
        return wf_fail(ctx, WF_ERR_USAGE, "%s %s is too large a number", arg, text);
    *target = number;
    return WF_OK;
}

static wf_status set_real(wf_ctx *ctx, const char *arg, const char *text, double *target)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !isfinite(number))
        return wf_fail(ctx, WF_ERR_USAGE, "%s wants a number, not '%s'", arg, text);
    *target = number;
    return WF_OK;
}

static wf_status set_value(wf_ctx *ctx, const wf_flag *flag, const char *value)
{
    char arg[WF_TEXT_WORD + 1];
    size_t len = 0;
    wf_text_append(arg, sizeof arg, &len, "--%s", flag->name);
    if (flag->whole)
        return set_whole(ctx, arg, value, flag->whole);
    if (flag->real)
        return set_real(ctx, arg, value, flag->real);
    *flag->text = value;
    return WF_OK;
}

/* Sets one flag. *next is the argument behind it, or NULL, and becomes NULL when it was used. */
static wf_status set_flag(wf_ctx *ctx, const wf_flag *flags, const char *arg, const char **next)
{
    spelling s = spell(arg);
    const wf_flag *flag = flags;
    while (flag->name && !matches(flag, &s))
        flag++;
    if (!flag->name)
        return no_such_flag(ctx, flags, &s);
    if (flag->on) {
        if (s.value)
            return wf_fail(ctx, WF_ERR_USAGE, "--%s takes no value, and was given '%s'", flag->name,
                           s.value);
        *flag->on = true;
        return WF_OK;
    }
    if (!s.value && *next && strncmp(*next, "--", 2) != 0) {
        s.value = *next;
        *next = NULL;
    }
    if (!s.value || !*s.value)
        return wf_fail(ctx, WF_ERR_USAGE, "--%s needs a value: --%s %s", flag->name, flag->name,
                       flag->value);
    return set_value(ctx, flag, s.value);
}

wf_status wf_flags_parse(wf_ctx *ctx, const wf_flag *flags, int argc, char **argv, int *operands)
{
    bool flags_over = false;
    *operands = 0;
    for (int i = 0; i < argc; i++) {
        if (flags_over || argv[i][0] != '-' || !argv[i][1]) {
            argv[(*operands)++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            flags_over = true;
        } else {
            const char *next = i + 1 < argc ? argv[i + 1] : NULL;
            bool had_next = next != NULL;
            WF_TRY(set_flag(ctx, flags, argv[i], &next));
            i += had_next && !next;
        }
    }
    return WF_OK;
}

bool wf_flags_ask_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

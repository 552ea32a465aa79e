/* SPDX-License-Identifier: MIT */
/*
 * flags.c - parses command line flags, and describes them for the help.
 *
 * A flag's target variable holds its default and receives its value. Flags that the command line
 * leaves out are then taken from the environment. Messages use the spelling that was typed.
 */
#include "cli/flags.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"

/* A flag as it was typed, taken apart. */
typedef struct {
    const char *arg;   /* the whole argument */
    const char *begin; /* the name in it, after the dashes */
    size_t length;     /* of the name */
    const char *value; /* the text after '='; NULL: none */
} spelling;

/* Splits "--name=value"; the pointers refer to arg. */
static spelling spell(const char *arg)
{
    spelling s = {.arg = arg, .begin = arg + strspn(arg, "-")};
    s.length = strcspn(s.begin, "=");
    if (s.begin[s.length] == '=')
        s.value = s.begin + s.length + 1;
    return s;
}

/* The flags of a command; given[i]: the command line sets list[i]. */
typedef struct {
    const wf_flag *list[WF_MAX_FLAGS];
    bool given[WF_MAX_FLAGS];
    int count;
} flag_set;

int wf_flags_list(const wf_flag *flags, const wf_flag *list[WF_MAX_FLAGS])
{
    int n = 0;
    for (; flags->name || flags->more; flags++) {
        const wf_flag *const inner = flags->more;
        for (int i = 0; inner && inner[i].name; i++) {
            wf_assert(n < WF_MAX_FLAGS);
            list[n++] = &inner[i];
        }
        wf_assert(inner || n < WF_MAX_FLAGS);
        if (!inner)
            list[n++] = flags;
    }
    return n;
}

/* Returns whether `also` contains the spelling, dashes included. */
static bool is_also(const char *also, const spelling *s)
{
    size_t length = (size_t)(s->begin - s->arg) + s->length;
    while (also && *also) {
        size_t word = strcspn(also, " ");
        if (word == length && memcmp(also, s->arg, length) == 0)
            return true;
        also += word + strspn(also + word, " ");
    }
    return false;
}

/* One dash and one letter is a short form; with one dash, longer names match only in `also`. */
static bool matches(const wf_flag *flag, const spelling *s)
{
    if (is_also(flag->also, s))
        return true;
    if (s->begin - s->arg == 1)
        return flag->letter && s->length == 1 && s->begin[0] == flag->letter;
    return strlen(flag->name) == s->length && memcmp(flag->name, s->begin, s->length) == 0;
}

bool wf_flag_is(const wf_flag *flag, const char *arg, size_t length)
{
    const spelling s = {.arg = arg, .begin = arg + 2, .length = length - 2};
    return length > 2 && matches(flag, &s);
}

/* Reports an unknown flag: a letter that other commands use, a flag with a similar name or the same
 * beginning, or else where to look. */
static wf_status no_such_flag(wf_ctx *ctx, const flag_set *set, const spelling *s)
{
    const char *names[WF_MAX_FLAGS + 1] = {"help"};
    int n = 1;
    for (int i = 0; i < set->count; i++)
        names[n++] = set->list[i]->name;

    char word[WF_TEXT_WORD + 1];
    size_t len = 0;
    wf_text_append(word, sizeof word, &len, "%.*s", (int)s->length, s->begin);
    const char *near = wf_text_nearest(word, names, n);
    for (int i = 0; i < n && !near && s->length >= 2; i++)
        near = strncmp(names[i], word, s->length) == 0 ? names[i] : NULL;
    int shown = (int)(s->begin - s->arg + (ptrdiff_t)s->length);
    for (int i = 0; i < set->count; i++)
        if (s->begin - s->arg == 1 && s->length == 1 && set->list[i]->not_letter == s->begin[0])
            return wf_fail(
                ctx, WF_ERR_USAGE,
                "'-%c' has another meaning in other commands, so this command refuses it; write "
                "--%s %s",
                s->begin[0], set->list[i]->name, set->list[i]->value);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown flag '%.*s'; did you mean '--%s'?", shown,
                       s->arg, near);
    return wf_fail(ctx, WF_ERR_USAGE, "unknown flag '%.*s'; see --help", shown, s->arg);
}

/* ---- Numbers ---- */

static wf_range read_range(const wf_flag *flag)
{
    return wf_range_read(flag->range ? flag->range : flag->whole ? "0," : ",");
}

/* "--top-p must be a number from 0 to 1, not '7'" */
static wf_status refuse_number(wf_ctx *ctx, const wf_flag *flag, const char *arg, const char *text,
                               bool too_large)
{
    char words[WF_RANGE_WORDS];
    wf_range r = read_range(flag);
    size_t len = 0;
    if (too_large && !flag->whole && isinf(r.high)) /* name the largest double */
        r = (wf_range){isinf(r.low) ? -DBL_MAX : r.low, DBL_MAX, r.above, false};
    wf_range_words(&r, words);
    if (too_large && flag->whole && isinf(r.high)) /* a double cannot hold INT64_MAX exactly */
        wf_text_append(words, sizeof words, &len, " from %.0f to %lld", r.low,
                       (long long)INT64_MAX);
    return wf_fail(ctx, WF_ERR_USAGE, "%s must be a %snumber%s%s, not '%s'", arg,
                   flag->whole ? "whole " : "", words, flag->minus_one ? ", or -1" : "",
                   WF_SHOWN(text));
}

static wf_status set_whole(wf_ctx *ctx, const char *arg, const char *text, const wf_flag *flag)
{
    char *end;
    const wf_range r = read_range(flag);
    errno = 0;
    long long number = strtoll(text, &end, 10);
    bool none = flag->minus_one && strcmp(text, "-1") == 0;
    bool digits = text[0] >= '0' && text[0] <= '9' && !*end; /* no space and no sign in front */
    if (!none && (!digits || errno == ERANGE || !wf_range_has(&r, (double)number)))
        return refuse_number(ctx, flag, arg, text, digits && errno == ERANGE);
    *flag->whole = number;
    return WF_OK;
}

static wf_status set_real(wf_ctx *ctx, const char *arg, const char *text, const wf_flag *flag)
{
    const wf_range r = read_range(flag);
    const char *end = text;
    double number;
    bool read = wf_text_to_double(&end, &number) && !*end && !isnan(number);
    if (!read || !isfinite(number) || !wf_range_has(&r, number))
        return refuse_number(ctx, flag, arg, text, read && !isfinite(number));
    *flag->real = number;
    return WF_OK;
}

wf_status wf_values_add(wf_ctx *ctx, wf_values *values, const char *text)
{
    if (values->count == values->room) {
        int room = values->room ? 2 * values->room : 16;
        /* Not from the context: the flags outlive it. */
        const char **grown = realloc(values->item, (size_t)room * sizeof *grown);
        if (!grown)
            return wf_fail(ctx, WF_ERR_MEMORY, "out of memory for %d values", room);
        values->item = grown;
        values->room = room;
    }
    values->item[values->count++] = text;
    return WF_OK;
}

static wf_status add_text(wf_ctx *ctx, const char *arg, const char *text, const wf_flag *flag)
{
    if (flag->values->count == WF_MAX_VALUES && !flag->many)
        return wf_fail(ctx, WF_ERR_USAGE, "%s is given more than %d times", arg, WF_MAX_VALUES);
    return wf_values_add(ctx, flag->values, text);
}

/* Stores a value in the flag's target. `arg` names the flag in messages. */
static wf_status set_value(wf_ctx *ctx, const wf_flag *flag, const char *arg, const char *value)
{
    if (flag->whole)
        return set_whole(ctx, arg, value, flag);
    if (flag->real)
        return set_real(ctx, arg, value, flag);
    if (flag->values)
        return add_text(ctx, arg, value, flag);
    *flag->text = value;
    return WF_OK;
}

/* Sets one flag. *next is the argument after it, or NULL; set to NULL when it is used as the
 * value. */
static wf_status set_flag(wf_ctx *ctx, flag_set *set, const char *arg, const char **next)
{
    spelling s = spell(arg);
    int i = 0;
    while (i < set->count && !matches(set->list[i], &s))
        i++;
    if (i == set->count)
        return no_such_flag(ctx, set, &s);
    const wf_flag *flag = set->list[i];
    set->given[i] = true;
    if (flag->on) {
        if (s.value)
            return wf_fail(ctx, WF_ERR_USAGE, "--%s takes no value, but '%s' was given", flag->name,
                           s.value);
        *flag->on = true;
        return WF_OK;
    }
    /* A value may begin with one dash (-1), but not with two: that is a forgotten value. */
    if (!s.value && *next && strncmp(*next, "--", 2) != 0) {
        s.value = *next;
        *next = NULL;
    }
    char typed[WF_TEXT_WORD + 1]; /* messages use the spelling that was typed */
    size_t len = 0;
    wf_text_append(typed, sizeof typed, &len, "%.*s", (int)(s.begin - s.arg) + (int)s.length,
                   s.arg);
    if (!s.value && *next)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "%s needs a value: %s %s, or %s=%s if the value begins with --", typed,
                       typed, flag->value, typed, flag->value);
    if (!s.value || (!*s.value && !flag->empty))
        return wf_fail(ctx, WF_ERR_USAGE, "%s needs a value: %s %s", typed, typed, flag->value);
    return set_value(ctx, flag, typed, s.value);
}

static bool is_among(const char *value, const char *const words[4])
{
    for (int i = 0; i < 4; i++)
        if (strcmp(value, words[i]) == 0)
            return true;
    return false;
}

void wf_flag_variable(const wf_flag *flag, char name[WF_TEXT_WORD + 1])
{
    size_t len = 0;
    wf_text_append(name, WF_TEXT_WORD + 1, &len, WF_FLAG_PREFIX "%s", flag->name);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

static wf_status set_from_environment(wf_ctx *ctx, const wf_flag *flag)
{
    static const char *const no[4] = {"0", "false", "off", "no"};
    static const char *const yes[4] = {"1", "true", "on", "yes"};
    char name[WF_TEXT_WORD + 1];
    wf_flag_variable(flag, name);
    const char *value = getenv(name);
    if (!value || (!*value && !flag->empty))
        return WF_OK;
    if (!flag->on)
        return set_value(ctx, flag, name, value);
    if (!is_among(value, no) && !is_among(value, yes))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "%s must be 1, true, on or yes, or 0, false, off or no, not '%s'", name,
                       WF_SHOWN(value));
    *flag->on = is_among(value, yes);
    return WF_OK;
}

/* argv is rewritten in place: operands never move past the argument being read. */
wf_status wf_flags_parse(wf_ctx *ctx, const wf_flag *flags, int argc, char **argv, int *operands)
{
    flag_set set = {.count = 0};
    bool flags_over = false;
    set.count = wf_flags_list(flags, set.list);
    *operands = 0;
    for (int i = 0; i < argc; i++) {
        if (flags_over || argv[i][0] != '-' || !argv[i][1]) {
            argv[(*operands)++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            flags_over = true;
        } else {
            const char *next = i + 1 < argc ? argv[i + 1] : NULL;
            bool had_next = next != NULL;
            WF_TRY(set_flag(ctx, &set, argv[i], &next));
            i += had_next && !next;
        }
    }
    /* The environment comes last, and only for flags that were not given. */
    for (int i = 0; i < set.count; i++)
        if (!set.given[i] && !(set.list[i]->operand && *operands > 0))
            WF_TRY(set_from_environment(ctx, set.list[i]));
    return WF_OK;
}

/* ---- Descriptions ---- */

void wf_offer_each(const wf_offer *offer, void (*fn)(void *user, const char *word, const char *doc),
                   void *user)
{
    const char *name, *doc;
    for (const char *at = offer->choices; at && *at;) {
        char word[WF_TEXT_WORD + 1];
        size_t length = strcspn(at, " "), len = 0;
        wf_text_append(word, sizeof word, &len, "%.*s", (int)length, at);
        fn(user, word, NULL);
        at += length + strspn(at + length, " ");
    }
    for (int i = 0; offer->words && offer->words(i, &name, &doc); i++)
        fn(user, name, doc);
}

void wf_flag_spellings(const wf_flag *flag,
                       void (*fn)(void *user, const char *spelling, size_t length), void *user)
{
    char text[WF_TEXT_WORD + 3];
    size_t len = 0;
    if (flag->letter)
        fn(user, (const char[]){'-', flag->letter, '\0'}, 2);
    wf_text_append(text, sizeof text, &len, "--%s", flag->name);
    fn(user, text, len);
    for (const char *also = flag->also; also && *also;) {
        size_t word = strcspn(also, " ");
        fn(user, also, word);
        also += word + strspn(also + word, " ");
    }
}

/* "adamw, muon or sgd" */
static void append_choices(const char *choices, char *out, size_t *len)
{
    const char *before = *len ? ": " : "";
    while (*choices) {
        size_t word = strcspn(choices, " ");
        wf_text_append(out, WF_FLAG_TEXT, len, "%s%.*s", before, (int)word, choices);
        choices += word + strspn(choices + word, " ");
        before = strchr(choices, ' ') ? ", " : " or ";
    }
}

const char *wf_flag_text(const wf_flag *flag, char out[WF_FLAG_TEXT])
{
    size_t len = 0;
    wf_text_append(out, WF_FLAG_TEXT, &len, "%s", flag->doc);
    if (flag->offer.choices)
        append_choices(flag->offer.choices, out, &len);
    if (flag->fallback)
        wf_text_append(out, WF_FLAG_TEXT, &len, " (default: %s)", flag->fallback);
    else if (flag->text && *flag->text)
        wf_text_append(out, WF_FLAG_TEXT, &len, " (default: %s)", *flag->text);
    else if (flag->whole && *flag->whole >= 0)
        wf_text_append(out, WF_FLAG_TEXT, &len, " (default: %lld)", (long long)*flag->whole);
    else if (flag->real && *flag->real >= 0)
        wf_text_append(out, WF_FLAG_TEXT, &len, " (default: %g)", *flag->real);
    return out;
}

wf_status wf_flags_refuse(wf_ctx *ctx, const wf_given *list, size_t count, const char *reason)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].given)
            return wf_fail(ctx, WF_ERR_USAGE, "--%s %s", list[i].name, reason);
    return WF_OK;
}

bool wf_flags_ask_help(int argc, char *const *argv)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* SPDX-License-Identifier: MIT */
/*
 * split.c - see split.h.
 *
 * next_plain implements GPT-2's pattern, next_rich those of Llama 3 and its relatives. The
 * alternatives of a pattern are tried in its order; each is a test of the first one or two
 * characters, followed by a run. No alternative backtracks further than one character.
 */
#include "text/split.h"

#include <string.h>

#include "text/unicode.h"
#include "text/utf8.h"

#define GPT2_END(end) \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)" end
#define LLAMA3(letter, digits, other)                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?" letter "+|" digits "| ?[^\\s" other \
    "\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char wf_split_gpt2[] = GPT2_END("|\\s+");
const char wf_split_llama3[] = LLAMA3("\\p{L}", "\\p{N}{1,3}", "\\p{L}");
const char wf_split_qwen2[] = LLAMA3("\\p{L}", "\\p{N}", "\\p{L}");

static const wf_split_style styles[] = {
    {wf_split_gpt2, .plain = true},
    {wf_split_llama3, .digits = 3},
    {wf_split_qwen2, .digits = 1},
    /* Text that no alternative matches is a piece, too, so dropping the last alternative has no
     * effect. */
    {GPT2_END(""), .plain = true},
    {LLAMA3("[\\p{L}\\p{M}]", "\\p{N}", "\\p{L}\\p{M}"), .digits = 1, .marks = true},
};

const wf_split_style *wf_split_known(const char *pattern, size_t bytes)
{
    for (size_t i = 0; i < sizeof styles / sizeof *styles; i++)
        if (strlen(styles[i].pattern) == bytes && memcmp(styles[i].pattern, pattern, bytes) == 0)
            return &styles[i];
    return NULL;
}

/* Returns the class of the character at s[at], 0 at the end. *length: its bytes. */
static unsigned look(const char *s, size_t n, size_t at, size_t *length)
{
    *length = 0;
    return at < n ? wf_char_class(wf_utf8_decode(s + at, length)) : 0;
}

/* Returns the end of the run of characters that have a bit of `with` (0: any character) and no bit
 * of `without`. */
static size_t run_end(const char *s, size_t n, size_t at, unsigned with, unsigned without)
{
    size_t length;
    for (; at < n; at += length) {
        unsigned class = look(s, n, at, &length);
        if ((with && !(class & with)) || (class & without))
            break;
    }
    return at;
}

static bool is_break(char c)
{
    return c == '\r' || c == '\n';
}

/* Returns the length of a contraction ('s, 't, 're, ...) at s, or 0. any: in either case, including
 * the long s (U+017F), which folds to s. */
static size_t contraction(const char *s, size_t n, bool any)
{
    static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (n < 2 || s[0] != '\'')
        return 0;
    if (any && n >= 3 && memcmp(s + 1, "\xC5\xBF", 2) == 0)
        return 3;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t length = strlen(ends[i]), j = 0;
        if (length > n - 1)
            continue;
        while (j < length &&
               (s[1 + j] == ends[i][j] || (any && s[1 + j] == (char)(ends[i][j] - 'a' + 'A'))))
            j++;
        if (j == length)
            return 1 + length;
    }
    return 0;
}

/* Returns the length of the white space piece at the start of s. The last space before other text
 * belongs to that text. breaks: the piece extends to the last line break of the run. */
static size_t spaces(const char *s, size_t n, bool breaks)
{
    size_t at = 0, last = 0, line = 0, length;
    for (; at < n && look(s, n, at, &length) & WF_CHAR_SPACE; at += length) {
        last = at;
        if (is_break(s[at]))
            line = at + 1;
    }
    /* \s*[\r\n]+ matches up to the last line break and precedes the other alternatives. */
    if (breaks && line)
        return line;
    /* \s+(?!\S) leaves one space; \s+ takes it if it is the only one. */
    return at == n || last == 0 ? at : last;
}

/* GPT-2: contraction | ?letters | ?numbers | ?others | white space. */
static size_t next_plain(const char *s, size_t n)
{
    size_t length, found = contraction(s, n, false), at = s[0] == ' ' && n > 1;
    if (found)
        return found;
    unsigned class = look(s, n, at, &length);
    if (class & WF_CHAR_L)
        return run_end(s, n, at, WF_CHAR_L, 0);
    if (class & WF_CHAR_N)
        return run_end(s, n, at, WF_CHAR_N, 0);
    if (!(class & WF_CHAR_SPACE))
        return run_end(s, n, at, 0, WF_CHAR_SPACE | WF_CHAR_L | WF_CHAR_N);
    return spaces(s, n, false);
}

/* Llama 3: contraction | any?letters | digits | ?others with line breaks | white space. */
static size_t next_rich(const wf_split_style *style, const char *s, size_t n)
{
    const unsigned letter = style->marks ? WF_CHAR_L | WF_CHAR_M : WF_CHAR_L;
    const unsigned other = WF_CHAR_SPACE | WF_CHAR_N | letter;
    size_t first, second, found = contraction(s, n, true);
    if (found)
        return found;
    unsigned class = look(s, n, 0, &first), after = look(s, n, first, &second);
    if (class & letter)
        return run_end(s, n, 0, letter, 0);
    if (!is_break(s[0]) && !(class & WF_CHAR_N) && after & letter)
        return run_end(s, n, first, letter, 0);
    if (class & WF_CHAR_N) {
        size_t at = first;
        for (int i = 1; i < style->digits && look(s, n, at, &second) & WF_CHAR_N; i++)
            at += second;
        return at;
    }
    size_t at = s[0] == ' ' && n > 1 ? 1 : 0;
    if (!((at ? after : class) & other)) {
        at = run_end(s, n, at, 0, other);
        while (at < n && is_break(s[at]))
            at++;
        return at;
    }
    return spaces(s, n, true);
}

size_t wf_split_next(const wf_split_style *style, const char *s, size_t n)
{
    return style->plain ? next_plain(s, n) : next_rich(style, s, n);
}

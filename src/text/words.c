/* SPDX-License-Identifier: MIT */
/*
 * words.c - see words.h.
 *
 * Every step is a filter that receives a piece and passes smaller ones on, so the steps run depth
 * first. Pieces are slices of the caller's text or of a buffer of the step that changed it; that
 * buffer lives until all its pieces were passed.
 */
#include "text/words.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"
#include "text/vocab.h"

const char *const wf_split_behavior_names[] = {"Isolated",       "Removed",    "MergedWithPrevious",
                                               "MergedWithNext", "Contiguous", NULL};

/* Each step passes its pieces to the next one immediately, so memory does not grow with the number
 * of pieces. The recursion is as deep as the number of steps, which WF_TOKEN_STEPS limits. */
typedef struct {
    wf_ctx *ctx;
    const wf_words_step *step;
    int count;
    bool bytes_last;      /* BPE spells bytes itself, so a final BYTES step does not */
    const char *start;    /* a piece that begins here is the start of the whole text; or NULL */
    wf_matcher **matcher; /* [count], created when first needed */
    wf_word_fn *fn;
    void *user;
} run;

static wf_status pass(run *r, int at, const char *s, size_t n);

/* ---- Finding matches ---- */

/* Returns whether c became punctuation in Unicode 9 or later. The package tokenizers uses tables of
 * version 8, in which U+166D and U+111C9 were still punctuation. */
static bool is_newer_punctuation(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc77},
        {0xc84, 0xc84},     {0x1b4e, 0x1b4f},   {0x1b7d, 0x1b7f},   {0x2e43, 0x2e4f},
        {0x2e52, 0x2e5d},   {0x10d6e, 0x10d6e}, {0x10ead, 0x10ead}, {0x10f55, 0x10f59},
        {0x10f86, 0x10f89}, {0x113d4, 0x113d5}, {0x113d7, 0x113d8}, {0x1144b, 0x1144f},
        {0x1145a, 0x1145b}, {0x1145d, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9},
        {0x1183b, 0x1183b}, {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46},
        {0x11a9a, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09}, {0x11be1, 0x11be1},
        {0x11c41, 0x11c45}, {0x11c70, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f},
        {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a},
        {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff}, {0x1e95e, 0x1e95f}};
    /* The ranges are ascending. */
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges && ranges[i][0] <= c; i++)
        if (c <= ranges[i][1])
            return true;
    return false;
}

static bool is_punctuation(uint32_t c)
{
    unsigned class = wf_char_class(c);
    if (c < 0x80)
        return class & (WF_CHAR_P | WF_CHAR_S);
    return c == 0x166d || c == 0x111c9 || (class & WF_CHAR_P && !is_newer_punctuation(c));
}

/* Steps that match single characters: digits, white space or punctuation. */
static bool char_matches(const wf_words_step *step, uint32_t c)
{
    switch (step->kind) {
    case WF_WORDS_DIGITS: return wf_char_class(c) & WF_CHAR_N;
    case WF_WORDS_SPACES: return wf_char_class(c) & WF_CHAR_SPACE;
    default: return is_punctuation(c);
    }
}

/* Finds the next run of word characters, or of others without white space. */
static bool find_run(const char *s, size_t n, size_t from, size_t *begin, size_t *end)
{
    const unsigned both = WF_CHAR_WORD | WF_CHAR_SPACE;
    size_t length;
    unsigned class = WF_CHAR_SPACE;
    for (; from < n; from += length) {
        class = wf_char_class(wf_utf8_decode(s + from, &length)) & both;
        if (!(class & WF_CHAR_SPACE))
            break;
    }
    *begin = from;
    while (from < n && (wf_char_class(wf_utf8_decode(s + from, &length)) & both) == class)
        from += length;
    *end = from;
    return from > *begin;
}

/* Returns the first occurrence, or NULL. memchr skips to candidates. */
static const char *find_string(const char *s, size_t n, const char *what, size_t bytes)
{
    while (n >= bytes && bytes > 0) {
        const char *at = memchr(s, what[0], n - bytes + 1);
        if (!at || memcmp(at, what, bytes) == 0)
            return at;
        n -= (size_t)(at + 1 - s);
        s = at + 1;
    }
    return NULL;
}

/* Finds the first match in s[from .. n). */
static wf_status find(run *r, int at, const char *s, size_t n, size_t from, bool *found,
                      size_t *begin, size_t *end)
{
    const wf_words_step *step = &r->step[at];
    *found = false;
    if (step->kind == WF_WORDS_RUNS) {
        *found = find_run(s, n, from, begin, end);
        return WF_OK;
    }
    if (step->kind != WF_WORDS_SPLIT) {
        size_t length;
        for (; from < n; from += length)
            if (char_matches(step, wf_utf8_decode(s + from, &length))) {
                *found = true;
                *begin = from;
                *end = from + length;
                break;
            }
        return WF_OK;
    }
    if (step->style) {
        *found = from < n;
        *begin = from;
        *end = *found ? from + wf_split_next(step->style, s + from, n - from) : n;
        return WF_OK;
    }
    if (step->pattern) {
        if (!r->matcher[at])
            WF_TRY(wf_matcher_new(step->pattern, r->ctx, &r->matcher[at]));
        return wf_matcher_next(r->matcher[at], s, n, from, found, begin, end);
    }
    const char *match = find_string(s + from, n - from, step->text, step->bytes);
    *found = match != NULL;
    *begin = match ? (size_t)(match - s) : n;
    *end = *begin + (match ? step->bytes : 0);
    return WF_OK;
}

/* ---- Splitting at matches ---- */

typedef struct {
    /* The step's position in the pipeline and its text. */
    run *r;
    int at;
    const char *s;
    size_t begin, end; /* the held piece, which may still grow */
    bool held, match;  /* a piece is held; it is a match */
} cutter;

/* Passes the held piece to the next step. */
static wf_status release(cutter *c)
{
    if (!c->held)
        return WF_OK;
    c->held = false;
    return pass(c->r, c->at + 1, c->s + c->begin, c->end - c->begin);
}

/* Adds the next stretch of the text, a match or not, according to the step's behavior. */
static wf_status cut(cutter *c, size_t begin, size_t end, bool match)
{
    const wf_words_step *step = &c->r->step[c->at];
    match = match != step->invert;
    bool joins = false;
    switch (step->behavior) {
    case WF_SPLIT_ISOLATED: break;
    case WF_SPLIT_REMOVED:
        if (match)
            return release(c);
        break;
    case WF_SPLIT_CONTIGUOUS: joins = c->held && c->match == match; break;
    case WF_SPLIT_MERGED_WITH_PREVIOUS: joins = c->held && match && !c->match; break;
    case WF_SPLIT_MERGED_WITH_NEXT: joins = c->held && c->match && !match; break;
    }
    if (joins) {
        c->end = end;
        c->match = match;
        return step->behavior == WF_SPLIT_MERGED_WITH_NEXT ? release(c) : WF_OK;
    }
    WF_TRY(release(c));
    c->held = true;
    c->begin = begin;
    c->end = end;
    c->match = match;
    return WF_OK;
}

/* Cuts s at the step's matches and passes the pieces on. */
static wf_status cut_by_matches(run *r, int at, const char *s, size_t n)
{
    cutter c = {.r = r, .at = at, .s = s};
    size_t from = 0, done = 0, begin, end;
    bool found, after_match = false;
    while (from <= n) {
        WF_TRY(find(r, at, s, n, from, &found, &begin, &end));
        if (!found)
            break;
        /* An empty match splits, except where the previous match ended. */
        if (begin > done)
            WF_TRY(cut(&c, done, begin, false));
        if (end > begin)
            WF_TRY(cut(&c, begin, end, true));
        else if (!(after_match && begin == done))
            WF_TRY(release(&c));
        after_match = true;
        done = end;
        from = end;
        /* Step over a character after an empty match, or the search would not advance. */
        if (end == begin) {
            size_t length = 1;
            if (from < n)
                wf_utf8_decode(s + from, &length);
            from += length;
        }
    }
    if (done < n)
        WF_TRY(cut(&c, done, n, false));
    return release(&c);
}

/* ---- Steps that change the text ---- */

/* Replaces spaces, adds the leading one, and passes the pieces on. n > 0. */
static wf_status metaspace(run *r, int at, const char *s, size_t n)
{
    const wf_words_step *step = &r->step[at];
    size_t room, out = 0, begin = 0;
    if (!wf_add_size(n, 1, &room) || !wf_mul_size(room, step->bytes > 1 ? step->bytes : 1, &room))
        room = SIZE_MAX;
    char *text = wf_mem_new(r->ctx, room);
    if (!text)
        return WF_ERR_MEMORY;
    const char *outer = r->start;
    bool first = s == outer;
    bool starts = s[0] == ' ' || (n >= step->bytes && memcmp(s, step->text, step->bytes) == 0);
    if (!starts &&
        (step->prepend == WF_PREPEND_ALWAYS || (step->prepend == WF_PREPEND_FIRST && first))) {
        memcpy(text, step->text, step->bytes);
        out = step->bytes;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ') {
            memcpy(text + out, step->text, step->bytes);
            out += step->bytes;
        } else {
            text[out++] = s[i];
        }
    }
    r->start = first ? text : outer;
    wf_status status = WF_OK;
    while (step->split && status == WF_OK) {
        /* Split before each replacement. */
        const char *next =
            out - begin > step->bytes
                ? find_string(text + begin + 1, out - begin - 1, step->text, step->bytes)
                : NULL;
        if (!next)
            break;
        status = pass(r, at + 1, text + begin, (size_t)(next - text) - begin);
        begin = (size_t)(next - text);
    }
    if (status == WF_OK)
        status = pass(r, at + 1, text + begin, out - begin);
    r->start = outer;
    wf_mem_free(r->ctx, text);
    return status;
}

/* Passes s with its bytes spelled as letters. If BPE itself works on bytes, the spelling is
 * omitted. */
static wf_status pass_letters(run *r, int at, const char *s, size_t n)
{
    if (r->bytes_last && at == r->count - 1)
        return pass(r, at + 1, s, n);
    size_t room, out = 0;
    char *text = wf_mem_new(r->ctx, wf_mul_size(n, 2, &room) ? room : SIZE_MAX);
    if (!text)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < n; i++) {
        char letter[4];
        size_t length = wf_utf8_encode(wf_byte_letter((uint8_t)s[i]), letter);
        memcpy(text + out, letter, length);
        out += length;
    }
    wf_status status = pass(r, at + 1, text, out);
    wf_mem_free(r->ctx, text);
    return status;
}

/* Runs a ByteLevel step: optional leading space, GPT-2's pattern, then letters. n > 0. */
static wf_status bytes_to_letters(run *r, int at, const char *s, size_t n)
{
    const wf_words_step *step = &r->step[at];
    char *prefixed = NULL;
    wf_status status = WF_OK;
    if (step->prefix && s[0] != ' ') {
        size_t room;
        prefixed = wf_mem_new(r->ctx, wf_add_size(n, 1, &room) ? room : SIZE_MAX);
        if (!prefixed)
            return WF_ERR_MEMORY;
        prefixed[0] = ' ';
        memcpy(prefixed + 1, s, n);
        s = prefixed;
        n++;
    }
    const wf_split_style *gpt2 = wf_split_known(wf_split_gpt2, strlen(wf_split_gpt2));
    for (size_t length; n > 0 && status == WF_OK; s += length, n -= length) {
        length = step->split ? wf_split_next(gpt2, s, n) : n;
        status = pass_letters(r, at, s, length);
    }
    wf_mem_free(r->ctx, prefixed);
    return status;
}

/* Runs step `at` on a piece; after the last step calls fn. Empty pieces are dropped. */
static wf_status pass(run *r, int at, const char *s, size_t n)
{
    if (n == 0)
        return WF_OK;
    if (at == r->count)
        return r->fn(r->user, s, n);
    switch (r->step[at].kind) {
    case WF_WORDS_METASPACE: return metaspace(r, at, s, n);
    case WF_WORDS_BYTES: return bytes_to_letters(r, at, s, n);
    default: return cut_by_matches(r, at, s, n);
    }
}

/* Calls fn for each word, in order. Stops at fn's first failure and returns it. */
wf_status wf_words_run(wf_ctx *ctx, const wf_words_step *steps, int count, bool bytes_last,
                       bool first, const char *text, size_t bytes, wf_word_fn *fn, void *user)
{
    run r = {.ctx = ctx,
             .step = steps,
             .count = count,
             .bytes_last = bytes_last,
             .start = first ? text : NULL,
             .fn = fn,
             .user = user};
    r.matcher = wf_mem_array(ctx, (size_t)count, sizeof *r.matcher);
    if (!r.matcher)
        return WF_ERR_MEMORY;
    wf_status status = pass(&r, 0, text, bytes);
    for (int i = 0; i < count; i++)
        wf_matcher_free(r.matcher[i]);
    wf_mem_free(ctx, r.matcher);
    return status;
}

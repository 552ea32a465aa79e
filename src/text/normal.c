/* SPDX-License-Identifier: MIT */
/*
 * normal.c - see normal.h.
 *
 * Every step copies the text once; a step that certainly changes nothing is skipped. Marks are
 * written along with the bytes. The growth limit is relative to the input of all steps together.
 */
#include "text/normal.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

const char *const wf_normal_names[WF_NORMAL_NONSPACING + 1] = {[WF_NORMAL_NFC] = "NFC",
                                                               [WF_NORMAL_NFD] = "NFD",
                                                               [WF_NORMAL_NFKC] = "NFKC",
                                                               [WF_NORMAL_NFKD] = "NFKD",
                                                               [WF_NORMAL_LOWERCASE] = "Lowercase",
                                                               [WF_NORMAL_STRIP_ACCENTS] =
                                                                   "StripAccents",
                                                               [WF_NORMAL_NMT] = "Nmt"};

/* Growth limit: a chain of replacements of short strings by long ones could turn a page into
 * terabytes. */
#define GROWTH_MOST 32    /* times the length of the text */
#define GROWTH_FREE 65536 /* bytes that even a short text may grow */

/* Called after each replacement, so the output exceeds the limit by one replacement at most. */
static wf_status check_growth(wf_ctx *ctx, size_t bytes, size_t most)
{
    return bytes <= most
               ? WF_OK
               : wf_fail(
                     ctx, WF_ERR_UNSUPPORTED,
                     "the tokenizer's normalizer expands a text to more than %d times its length",
                     GROWTH_MOST);
}

/* Input and output of a step. */
typedef struct {
    wf_writer w, marks;
    wf_marked from; /* borrowed */
} output;

/* Copies text[begin .. end) unchanged. */
static void copy(output *o, size_t begin, size_t end)
{
    wf_writer_bytes(&o->w, o->from.text + begin, end - begin);
    if (o->from.plain)
        wf_writer_bytes(&o->marks, o->from.plain + begin, end - begin);
}

/* Writes `content` in place of text[begin .. end). An insertion (begin == end) takes the mark of a
 * neighbouring byte. */
static void put_text(output *o, const char *content, size_t bytes, size_t begin, size_t end)
{
    const uint8_t *plain = o->from.plain;
    wf_writer_bytes(&o->w, content, bytes);
    if (!plain)
        return;
    if (begin == end && begin > 0)
        begin--;
    else if (begin == end && end < o->from.bytes)
        end++;
    bool any = false;
    for (size_t i = begin; i < end; i++)
        any = any || plain[i];
    for (size_t i = 0; i < bytes; i++)
        wf_writer_char(&o->marks, any);
}

static void put(output *o, const wf_normal_step *step, size_t begin, size_t end)
{
    put_text(o, step->content, step->content_bytes, begin, end);
}

static void prepend(output *o, const wf_normal_step *step)
{
    if (o->from.bytes > 0)
        put(o, step, 0, 0);
    copy(o, 0, o->from.bytes);
}

/* Replaces from left to right, without overlaps. */
static wf_status replace_string(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, done = 0, i = 0;
    while (i < bytes) {
        bool match = step->what_bytes > 0 && bytes - i >= step->what_bytes &&
                     text[i] == step->what[0] &&
                     memcmp(text + i, step->what, step->what_bytes) == 0;
        if (!match) {
            i++;
            continue;
        }
        copy(o, done, i);
        put(o, step, i, i + step->what_bytes);
        i = done = i + step->what_bytes;
        WF_TRY(check_growth(o->w.ctx, o->w.len, most));
    }
    copy(o, done, bytes);
    return WF_OK;
}

const char *const wf_runs_patterns[] = {"", " +", " {2,}", "\\A +| +\\z"};

wf_runs wf_runs_known(const char *pattern, size_t bytes)
{
    for (int i = WF_RUNS_ANY; i <= WF_RUNS_OUTER; i++)
        if (strlen(wf_runs_patterns[i]) == bytes &&
            memcmp(wf_runs_patterns[i], pattern, bytes) == 0)
            return (wf_runs)i;
    return WF_RUNS_NONE;
}

static wf_status replace_runs(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, done = 0, i = 0, end;
    for (; i < bytes; i = end) {
        for (end = i; end < bytes && text[end] == ' ';)
            end++;
        bool outer = i == 0 || end == bytes;
        bool match = step->runs == WF_RUNS_OUTER ? outer : step->runs == WF_RUNS_ANY || end - i > 1;
        if (end > i && match) {
            copy(o, done, i);
            put(o, step, i, end);
            done = end;
            WF_TRY(check_growth(o->w.ctx, o->w.len, most));
        }
        end = end > i ? end : i + 1;
    }
    copy(o, done, bytes);
    return WF_OK;
}

static wf_status replace_pattern(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text;
    wf_matcher *m;
    size_t bytes = o->from.bytes, done = 0, from = 0, begin, end;
    bool found = true;
    WF_TRY(wf_matcher_new(step->pattern, o->w.ctx, &m));
    wf_status status = WF_OK;
    while (from <= bytes && status == WF_OK) {
        status = wf_matcher_next(m, text, bytes, from, &found, &begin, &end);
        if (status != WF_OK || !found)
            break;
        copy(o, done, begin);
        put(o, step, begin, end);
        status = check_growth(o->w.ctx, o->w.len, most);
        done = from = end;
        if (end == begin) { /* an empty match: advance, or it would match forever */
            size_t length = 1;
            if (from < bytes)
                wf_utf8_decode(text + from, &length);
            from += length;
        }
    }
    copy(o, done, bytes);
    wf_matcher_free(m);
    return status;
}

/* Removes white space at the ends; keeps nothing of a text that is all white space. */
static void strip(output *o, const wf_normal_step *step)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, begin = bytes, end = 0, length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(wf_char_class(wf_utf8_decode(text + i, &length)) & WF_CHAR_SPACE)) {
            begin = begin == bytes ? i : begin;
            end = i + length;
        }
    if (!step->left && !step->right)
        copy(o, 0, bytes);
    else if (begin < bytes) /* otherwise all of it is white space */
        copy(o, step->left ? begin : 0, step->right ? end : bytes);
}

/* ---- Steps on single characters ---- */

/* Writes the characters that replace c to out[] and returns their number. */
typedef size_t map_fn(uint32_t c, uint32_t out[3]);

static size_t map_lower(uint32_t c, uint32_t out[3])
{
    if (c == 0x130) { /* I with a dot: the only letter whose lower case has two characters */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = wf_char_lower(c);
    return 1;
}

static size_t keep_unless(bool removed, uint32_t c, uint32_t out[3])
{
    out[0] = c;
    return removed ? 0 : 1;
}

static size_t map_combining(uint32_t c, uint32_t out[3])
{
    return keep_unless(wf_char_traits(c) & WF_TRAIT_COMBINING, c, out);
}

static size_t map_nonspacing(uint32_t c, uint32_t out[3])
{
    return keep_unless(wf_char_traits(c) & WF_TRAIT_NONSPACING, c, out);
}

static size_t map_clean(uint32_t c, uint32_t out[3])
{
    bool space = wf_char_class(c) & WF_CHAR_SPACE;
    return keep_unless(wf_char_traits(c) & WF_TRAIT_OTHER, space ? ' ' : c, out);
}

/* The ranges of BERT, which end before some newer ideographs. */
static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B81F) ||
           (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
}

static size_t map_chinese(uint32_t c, uint32_t out[3])
{
    bool chinese = is_chinese(c);
    out[0] = out[2] = ' ';
    out[chinese ? 1 : 0] = c;
    return chinese ? 3 : 1;
}

static size_t map_nmt(uint32_t c, uint32_t out[3])
{
    bool removed = (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
                   c == 0x8F || c == 0x9F;
    bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                 (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                 c == 0xFEFF || c == 0xFFFD;
    return keep_unless(removed, space ? ' ' : c, out);
}

static wf_status map_chars(output *o, map_fn *map, size_t most)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, done = 0, length;
    for (size_t i = 0; i < bytes; i += length) {
        uint32_t c = wf_utf8_decode(text + i, &length), out[3];
        size_t count = map(c, out), n = 0;
        char changed[12];
        if (count == 1 && out[0] == c)
            continue;
        for (size_t k = 0; k < count; k++)
            n += wf_utf8_encode(out[k], changed + n);
        copy(o, done, i);
        put_text(o, changed, n, i, i + length);
        done = i + length;
        WF_TRY(check_growth(o->w.ctx, o->w.len, most));
    }
    copy(o, done, bytes);
    return WF_OK;
}

/* ---- Rules of SentencePiece ---- */

/* Applies the rules to text[begin .. end) as one string, if they have one for it. */
static bool apply_rule(output *o, const wf_normal_step *step, size_t begin, size_t end)
{
    const char *text;
    size_t bytes;
    if (!wf_charsmap_find(step->map, o->from.text + begin, end - begin, false, &text, &bytes))
        return false;
    put_text(o, text, bytes, begin, end);
    return true;
}

/* Applies the rules to the grapheme cluster text[begin .. end), or else to its characters. */
static void apply_cluster(output *o, const wf_normal_step *step, size_t begin, size_t end)
{
    size_t length;
    if (end - begin < 6 && apply_rule(o, step, begin, end))
        return;
    for (; begin < end; begin += length) {
        wf_utf8_decode(o->from.text + begin, &length);
        if (!apply_rule(o, step, begin, begin + length))
            copy(o, begin, begin + length);
    }
}

static wf_status precompiled(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text, *content;
    size_t bytes = o->from.bytes, length, content_bytes;
    for (size_t i = 0; i < bytes; i += length) {
        if (!step->longest) {
            length = wf_grapheme(text + i, bytes - i);
            apply_cluster(o, step, i, i + length);
        } else {
            length =
                wf_charsmap_find(step->map, text + i, bytes - i, true, &content, &content_bytes);
            if (length) {
                put_text(o, content, content_bytes, i, i + length);
            } else {
                wf_utf8_decode(text + i, &length);
                copy(o, i, i + length);
            }
        }
        WF_TRY(check_growth(o->w.ctx, o->w.len, most));
    }
    return WF_OK;
}

/* ---- Running ---- */

static bool is_ascii(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((uint8_t)text[i] >= 0x80)
            return false;
    return true;
}

/* Returns whether the step certainly leaves the text unchanged: a fast check. */
static bool stays(const wf_normal_step *step, const char *text, size_t bytes)
{
    size_t length;
    switch (step->kind) {
    case WF_NORMAL_NFC:
        for (size_t i = 0; i < bytes; i += length)
            if (wf_char_class(wf_utf8_decode(text + i, &length)) & WF_CHAR_LOOSE)
                return false;
        return true;
    case WF_NORMAL_NFD:
    case WF_NORMAL_NFKC:
    case WF_NORMAL_NFKD:
    case WF_NORMAL_STRIP_ACCENTS:
    case WF_NORMAL_NONSPACING:
    case WF_NORMAL_CHINESE: return is_ascii(text, bytes);
    case WF_NORMAL_PREPEND: return bytes == 0 || step->content_bytes == 0;
    default: return bytes == 0;
    }
}

static void free_marked(wf_ctx *ctx, wf_marked *m)
{
    wf_mem_free(ctx, (void *)m->text);
    wf_mem_free(ctx, (void *)m->plain);
    m->text = NULL;
    m->plain = NULL;
}

wf_status wf_normal_take(wf_writer *w, wf_writer *marks, wf_status status, wf_marked *out)
{
    char *text, *plain = NULL;
    wf_status taken = wf_writer_take(w, &text, &out->bytes);
    status = status == WF_OK ? taken : status;
    taken = marks ? wf_writer_take(marks, &plain, NULL) : WF_OK;
    status = status == WF_OK ? taken : status;
    out->text = text;
    out->plain = (uint8_t *)plain;
    if (status != WF_OK)
        free_marked(w->ctx, out);
    return status;
}

/* The steps of a BertNormalizer, in its order. */
static wf_status run_bert(wf_ctx *ctx, const wf_normal_step *step, wf_marked from, wf_marked *out)
{
    const struct {
        bool on;
        wf_normal_kind kind;
    } parts[] = {{step->clean, WF_NORMAL_CLEAN},
                 {step->chinese, WF_NORMAL_CHINESE},
                 {step->accents, WF_NORMAL_NFD},
                 {step->accents, WF_NORMAL_NONSPACING},
                 {step->lower, WF_NORMAL_LOWERCASE}};
    wf_normal_step steps[sizeof parts / sizeof *parts] = {{0}};
    int count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].on)
            steps[count++].kind = parts[i].kind;
    return wf_normal_run(ctx, steps, count, from, out);
}

static wf_status run_replace(output *o, const wf_normal_step *step, size_t most)
{
    return step->runs      ? replace_runs(o, step, most)
           : step->pattern ? replace_pattern(o, step, most)
                           : replace_string(o, step, most);
}

/* out->text stays NULL if nothing changed, which only BERT finds out. */
static wf_status run_step(wf_ctx *ctx, const wf_normal_step *step, wf_marked from, size_t most,
                          wf_marked *out)
{
    static map_fn *const maps[] = {
        [WF_NORMAL_LOWERCASE] = map_lower, [WF_NORMAL_STRIP_ACCENTS] = map_combining,
        [WF_NORMAL_NMT] = map_nmt,         [WF_NORMAL_CLEAN] = map_clean,
        [WF_NORMAL_CHINESE] = map_chinese, [WF_NORMAL_NONSPACING] = map_nonspacing};
    output o = {.w = {.ctx = ctx}, .marks = {.ctx = ctx}, .from = from};
    wf_status status = WF_OK;
    switch (step->kind) {
    case WF_NORMAL_NFC: return wf_form_run(ctx, WF_FORM_COMPOSED, from, out);
    case WF_NORMAL_NFD: return wf_form_run(ctx, 0, from, out);
    case WF_NORMAL_NFKC: return wf_form_run(ctx, WF_FORM_COMPOSED | WF_FORM_COMPAT, from, out);
    case WF_NORMAL_NFKD: return wf_form_run(ctx, WF_FORM_COMPAT, from, out);
    case WF_NORMAL_BERT: return run_bert(ctx, step, from, out);
    case WF_NORMAL_PREPEND: prepend(&o, step); break;
    case WF_NORMAL_STRIP: strip(&o, step); break;
    case WF_NORMAL_REPLACE: status = run_replace(&o, step, most); break;
    case WF_NORMAL_PRECOMPILED: status = precompiled(&o, step, most); break;
    default: status = map_chars(&o, maps[step->kind], most); break;
    }
    return wf_normal_take(&o.w, from.plain ? &o.marks : NULL, status, out);
}

/* Frees the output of a step when the next one has read it. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, wf_marked from,
                        wf_marked *out)
{
    size_t most;
    if (!wf_mul_size(from.bytes, GROWTH_MOST, &most) || !wf_add_size(most, GROWTH_FREE, &most))
        most = SIZE_MAX;
    *out = (wf_marked){.bytes = from.bytes};
    for (int i = 0; i < count; i++) {
        wf_marked next;
        if (stays(&steps[i], from.text, from.bytes))
            continue;
        wf_status status = run_step(ctx, &steps[i], from, most, &next);
        if (status == WF_OK && !next.text)
            continue;
        free_marked(ctx, out);
        if (status == WF_OK) {
            status = check_growth(ctx, next.bytes, most);
            if (status != WF_OK)
                free_marked(ctx, &next);
        }
        WF_TRY(status);
        *out = from = next;
    }
    return WF_OK;
}

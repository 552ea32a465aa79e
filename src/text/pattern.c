/* SPDX-License-Identifier: MIT */
/*
 * pattern.c - see pattern.h.
 *
 * Patterns come from model files, so they are hostile input: their length, the steps and heap of a
 * search, and the JIT's stack are limited. PCRE2 allocates through the context, so its memory is
 * counted and faults can be injected.
 */
#include "text/pattern.h"

#ifdef WEFT_PCRE2

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"

/* Limits of one search: more than any real pattern needs for a page of text, and small enough to
 * end catastrophic backtracking within seconds. */
#define STEPS_MOST 50000000      /* backtracking steps */
#define HEAP_KIB_MOST 65536      /* KiB */
#define JIT_STACK_MOST (8 << 20) /* bytes */
#define PATTERN_BYTES_MOST 65536 /* bytes, before translation */

struct wf_pattern {
    wf_ctx *ctx;
    pcre2_code *code; /* immutable, so threads may share it */
    char *text;       /* the original pattern, for error messages */
};

struct wf_matcher {
    const wf_pattern *pattern;
    wf_ctx *ctx;
    pcre2_general_context *general;
    pcre2_match_context *context;
    pcre2_match_data *data;
    pcre2_jit_stack *stack; /* NULL: PCRE2 uses its small default */
};

static void *take(size_t bytes, void *ctx)
{
    return wf_mem_new(ctx, bytes);
}

static void give(void *p, void *ctx)
{
    wf_mem_free(ctx, p);
}

/* Returns the length of a POSIX class such as [:alpha:] at s, inside brackets; 0: not a class. */
static size_t class_length(const char *s, size_t n)
{
    size_t i = 2;
    if (n < 4 || s[0] != '[' || s[1] != ':')
        return 0;
    while (i < n && ((s[i] >= 'a' && s[i] <= 'z') || (i == 2 && s[i] == '^')))
        i++;
    return n - i >= 2 && s[i] == ':' && s[i + 1] == ']' ? i + 2 : 0;
}

/* Translates an Oniguruma pattern to PCRE2. \s: PCRE2 includes U+180E, Oniguruma means White_Space.
 * \h: a hexadecimal digit in Oniguruma, a blank in PCRE2. Returns false for nested sets and &&,
 * which PCRE2 does not have. */
static bool translate(wf_writer *w, const char *text, size_t bytes)
{
    size_t first = 0; /* inside brackets: index of the first member, after a ^; 0: outside */
    for (size_t i = 0, whole; i < bytes; i++) {
        char c = text[i], next = i + 1 < bytes ? text[i + 1] : 0;
        if (c == '\\' && (next == 's' || next == 'h' || (!first && (next == 'S' || next == 'H')))) {
            bool space = next == 's' || next == 'S', not = next == 'S' || next == 'H';
            const char *set = space ? "\\p{Z}\\t-\\r\\x{85}" : "0-9A-Fa-f";
            if (first)
                wf_writer_print(w, "%s", set);
            else
                wf_writer_print(w, "[%s%s]", not ? "^" : "", set);
            i++;
        } else if (c == '\\') {
            wf_writer_char(w, c);
            if (i + 1 < bytes)
                wf_writer_char(w, text[++i]);
        } else if (first && (whole = class_length(text + i, bytes - i)) > 0) {
            wf_writer_bytes(w, text + i, whole);
            i += whole - 1;
        } else {
            if (first && (c == '[' || (c == '&' && next == '&')))
                return false;
            if (c == '[')
                first = i + 1 + (next == '^');
            else if (c == ']' && i != first) /* a ] in first position is a member */
                first = 0;
            wf_writer_char(w, c);
        }
    }
    return true;
}

/* Translates and compiles; on success p->code is set. JIT is used where it is available. */
static wf_status compile(wf_pattern *p, const char *text, size_t bytes)
{
    wf_ctx *ctx = p->ctx;
    wf_writer w = {.ctx = ctx};
    char *translated = NULL;
    size_t length;
    bool plain = translate(&w, text, bytes);
    WF_TRY(wf_writer_take(&w, &translated, &length));
    if (!plain) {
        wf_mem_free(ctx, translated);
        return wf_fail(
            ctx, WF_ERR_UNSUPPORTED,
            "the tokenizer's pattern '%.200s' has nested sets, which Weft does not support",
            p->text);
    }

    wf_status status = WF_ERR_MEMORY;
    pcre2_compile_context *options = NULL;
    pcre2_general_context *general = pcre2_general_context_create(take, give, ctx);
    if (general)
        options = pcre2_compile_context_create(general);
    if (options) {
        int error;
        PCRE2_SIZE where;
        /* Translation lengthens a pattern; this bounds the result. */
        pcre2_set_max_pattern_length(options, 2 * PATTERN_BYTES_MOST);
        /* In Oniguruma's Ruby syntax ^ and $ match at lines. */
        p->code = pcre2_compile((PCRE2_SPTR)translated, length,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK |
                                    PCRE2_NEVER_BACKSLASH_C,
                                &error, &where, options);
        status = p->code ? WF_OK : WF_ERR_MEMORY;
        if (!p->code && error != PCRE2_ERROR_HEAP_FAILED) {
            char reason[128] = "";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
            status =
                wf_fail(ctx, WF_ERR_UNSUPPORTED,
                        "the tokenizer's pattern '%.200s' cannot be compiled: %s", p->text, reason);
        }
    }
    if (p->code)
        (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* a failure only costs speed */
    pcre2_compile_context_free(options);
    pcre2_general_context_free(general);
    wf_mem_free(ctx, translated);
    return status;
}

wf_status wf_pattern_new(wf_ctx *ctx, const char *text, size_t bytes, wf_pattern **out)
{
    *out = NULL;
    if (bytes > PATTERN_BYTES_MOST)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                       "the tokenizer's pattern has %zu bytes; the limit is %d", bytes,
                       PATTERN_BYTES_MOST);
    wf_pattern *p = wf_mem_new(ctx, sizeof *p);
    if (!p)
        return WF_ERR_MEMORY;
    p->ctx = ctx;
    p->text = wf_mem_new(ctx, bytes + 1);
    wf_status status = p->text ? WF_OK : WF_ERR_MEMORY;
    if (status == WF_OK) {
        memcpy(p->text, text, bytes);
        status = compile(p, text, bytes);
    }
    if (status != WF_OK)
        wf_pattern_free(p);
    else
        *out = p;
    return status;
}

void wf_pattern_free(wf_pattern *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    wf_mem_free(p->ctx, p->text);
    wf_mem_free(p->ctx, p);
}

wf_status wf_matcher_new(const wf_pattern *p, wf_ctx *ctx, wf_matcher **out)
{
    *out = NULL;
    wf_matcher *m = wf_mem_new(ctx, sizeof *m);
    if (!m)
        return WF_ERR_MEMORY;
    *m = (wf_matcher){.pattern = p, .ctx = ctx};
    m->general = pcre2_general_context_create(take, give, ctx);
    if (m->general)
        m->context = pcre2_match_context_create(m->general);
    if (m->context)
        m->data = pcre2_match_data_create(1, m->general);
    if (!m->data) {
        wf_matcher_free(m);
        return WF_ERR_MEMORY;
    }
    pcre2_set_match_limit(m->context, STEPS_MOST);
    pcre2_set_heap_limit(m->context, HEAP_KIB_MOST);
    m->stack = pcre2_jit_stack_create(32768, JIT_STACK_MOST, m->general);
    if (m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    *out = m;
    return WF_OK;
}

void wf_matcher_free(wf_matcher *m)
{
    if (!m)
        return;
    pcre2_jit_stack_free(m->stack);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_general_context_free(m->general);
    wf_mem_free(m->ctx, m);
}

wf_status wf_matcher_next(wf_matcher *m, const char *s, size_t n, size_t from, bool *found,
                          size_t *begin, size_t *end)
{
    int rc = pcre2_match(m->pattern->code, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, m->data,
                         m->context);
    /* The interpreter uses the heap instead, up to its own limit. */
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(m->pattern->code, (PCRE2_SPTR)s, n, from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    *found = rc >= 0;
    if (rc >= 0) {
        PCRE2_SIZE *at = pcre2_get_ovector_pointer(m->data);
        *end = at[1];
        /* \K can move the start after the end and, in old versions, before `from`. */
        *begin = at[0] < from ? from : at[0] < at[1] ? at[0] : at[1];
        return WF_OK;
    }
    if (rc == PCRE2_ERROR_NOMATCH)
        return WF_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return wf_fail(m->ctx, WF_ERR_MEMORY, "out of memory while matching a tokenizer's pattern");
    return wf_fail(m->ctx, WF_ERR_UNSUPPORTED,
                   "the tokenizer's pattern '%.200s' takes too long on this text",
                   m->pattern->text);
}

#else

struct wf_pattern {
    int none;
};

wf_status wf_pattern_new(wf_ctx *ctx, const char *text, size_t bytes, wf_pattern **out)
{
    *out = NULL;
    return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                   "the tokenizer's pattern '%.*s' needs PCRE2; rebuild Weft with it",
                   bytes < 200 ? (int)bytes : 200, text);
}

void wf_pattern_free(wf_pattern *p)
{
    (void)p;
}

wf_status wf_matcher_new(const wf_pattern *p, wf_ctx *ctx, wf_matcher **out)
{
    (void)p;
    *out = NULL;
    return wf_fail(ctx, WF_ERR_UNSUPPORTED, "Weft was built without PCRE2");
}

void wf_matcher_free(wf_matcher *m)
{
    (void)m;
}

wf_status wf_matcher_next(wf_matcher *m, const char *s, size_t n, size_t from, bool *found,
                          size_t *begin, size_t *end)
{
    (void)m, (void)s, (void)n, (void)from, (void)begin, (void)end;
    *found = false;
    return WF_ERR_UNSUPPORTED;
}

#endif

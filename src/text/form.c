/* SPDX-License-Identifier: MIT */
/*
 * form.c - the Unicode normalization forms C, D, KC and KD.
 *
 * The text is processed in groups: a starter and its combining marks. A group is decomposed, its
 * marks are sorted by combining class, and then composed (forms C and KC). It is written unless the
 * next starter composes with it.
 */
#include <string.h>

#include "base/mem.h"
#include "text/normal.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Runs of this many marks use a counting sort, so that any text takes linear time. */
#define COUNT_FROM 32

/* Set in a code point that came from marked text. */
#define MARK (1u << 31)

typedef struct {
    wf_writer w, marks; /* the output and its marks */
    bool marked;        /* the text has marks */
    unsigned form;      /* WF_FORM_ bits */
    uint32_t *c; /* [cap] the group: a starter first, unless the text begins with combining marks */
    uint32_t *spare; /* [cap] for the counting sort */
    size_t n, cap;
    wf_status status;
} group;

/* Writes the group and empties it. */
static void group_write(group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        char bytes[4];
        size_t length = wf_utf8_encode(g->c[i] & ~MARK, bytes);
        wf_writer_bytes(&g->w, bytes, length);
        for (size_t j = 0; j < length && g->marked; j++)
            wf_writer_char(&g->marks, (char)(g->c[i] >> 31));
    }
    g->n = 0;
}

static unsigned order_of(uint32_t c)
{
    return wf_char_order(c & ~MARK);
}

/* Returns 0 when the two do not compose. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    uint32_t whole = wf_char_compose(a & ~MARK, b & ~MARK);
    return whole ? whole | ((a | b) & MARK) : 0;
}

/* Sorts by combining class. Stable: the order of marks within a class is significant. */
static void sort_marks(group *g, size_t from)
{
    size_t n = g->n - from;
    if (n < 2) /* the group may have no memory yet */
        return;
    uint32_t *c = g->c + from;
    if (n < COUNT_FROM) {
        for (size_t i = 1; i < n; i++) {
            uint32_t mark = c[i];
            size_t j = i;
            for (; j > 0 && order_of(c[j - 1]) > order_of(mark); j--)
                c[j] = c[j - 1];
            c[j] = mark;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[order_of(c[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        g->spare[start[order_of(c[i])]++] = c[i];
    memcpy(c, g->spare, n * sizeof *c);
}

/* Sorts the group, and composes it if the form wants that. */
static void group_compose(group *g)
{
    bool starter = g->n > 0 && order_of(g->c[0]) == 0;
    size_t from = starter ? 1 : 0, kept = from;
    sort_marks(g, from);
    if (!starter || !(g->form & WF_FORM_COMPOSED))
        return;
    unsigned last = 0; /* class of the last mark kept: it blocks later marks of the same class */
    for (size_t i = from; i < g->n; i++) {
        unsigned order = order_of(g->c[i]);
        uint32_t whole = kept > from && last >= order ? 0 : compose(g->c[0], g->c[i]);
        if (whole) {
            g->c[0] = whole;
        } else {
            g->c[kept++] = g->c[i];
            last = order;
        }
    }
    g->n = kept;
}

/* On failure sets the status and drops the character; the caller's loop ends. */
static void group_add(group *g, uint32_t c)
{
    if (g->n == g->cap) {
        size_t cap = g->cap ? 2 * g->cap : 64;
        uint32_t *grown = wf_mem_grow(g->w.ctx, g->c, cap * sizeof *grown);
        if (grown)
            g->c = grown;
        uint32_t *spare = grown ? wf_mem_grow(g->w.ctx, g->spare, cap * sizeof *spare) : NULL;
        if (!spare) {
            g->status = WF_ERR_MEMORY;
            return;
        }
        g->spare = spare;
        g->cap = cap;
    }
    g->c[g->n++] = c;
}

/* Adds a fully decomposed character. A starter ends the group, unless it composes with a group that
 * is a single starter (Hangul, for example). */
static void take(group *g, uint32_t c)
{
    if (g->n > 0 && order_of(c) == 0) {
        group_compose(g);
        bool single = g->n == 1 && g->form & WF_FORM_COMPOSED;
        uint32_t whole = single ? compose(g->c[0], c) : 0;
        if (whole) {
            g->c[0] = whole;
            return;
        }
        group_write(g);
    }
    group_add(g, c);
}

/* Canonical decompositions nest at most three deep, and only in the first part. The table has
 * compatibility decompositions in full. */
static void take_apart(group *g, uint32_t c)
{
    uint32_t tail[8], a, b, mark = c & MARK;
    int n = 0;
    const uint32_t *parts;
    size_t count = g->form & WF_FORM_COMPAT ? wf_char_compat(c & ~MARK, &parts) : 0;
    for (size_t i = 0; i < count; i++)
        take(g, parts[i] | mark);
    if (count > 0)
        return;
    while (n < 8 && wf_char_parts(c & ~MARK, &a, &b)) {
        if (b)
            tail[n++] = b | mark;
        c = a | mark;
    }
    take(g, c);
    while (n > 0)
        take(g, tail[--n]);
}

wf_status wf_form_run(wf_ctx *ctx, unsigned form, wf_marked from, wf_marked *out)
{
    group g = {.w = {.ctx = ctx}, .marks = {.ctx = ctx}, .marked = from.plain, .form = form};
    size_t length;
    for (size_t i = 0; i < from.bytes && g.status == WF_OK; i += length) {
        uint32_t c = wf_utf8_decode(from.text + i, &length);
        take_apart(&g, from.plain && from.plain[i] ? c | MARK : c);
    }
    group_compose(&g);
    group_write(&g);
    wf_mem_free(ctx, g.c);
    wf_mem_free(ctx, g.spare);
    return wf_normal_take(&g.w, g.marked ? &g.marks : NULL, g.status, out);
}

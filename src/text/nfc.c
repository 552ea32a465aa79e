/* SPDX-License-Identifier: MIT */
/*
 * nfc.c - canonical composition.
 *
 * The text is read as groups of a starter and the marks behind it. A group is taken apart, its marks are
 * sorted by class, and what composes is put together; then it is written, unless the next starter composes
 * with it.
 */
#include <string.h>

#include "base/mem.h"
#include "text/normal.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Long runs of marks are counted instead of compared, so that any text takes linear time. */
#define COUNT_FROM 32

typedef struct {
    wf_writer w;
    uint32_t *c; /* [cap] a group: a starter first, unless the text begins with marks */
    uint32_t *spare;
    size_t n, cap;
    wf_status status;
} group;

static void group_write(group *g)
{
    for (size_t i = 0; i < g->n; i++) {
        char bytes[4];
        wf_writer_bytes(&g->w, bytes, wf_utf8_encode(g->c[i], bytes));
    }
    g->n = 0;
}

/* Stable, as the order of marks of one class has a meaning. */
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
            for (; j > 0 && wf_char_order(c[j - 1]) > wf_char_order(mark); j--)
                c[j] = c[j - 1];
            c[j] = mark;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[wf_char_order(c[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        g->spare[start[wf_char_order(c[i])]++] = c[i];
    memcpy(c, g->spare, n * sizeof *c);
}

/* Sorts and composes the group. */
static void group_compose(group *g)
{
    bool starter = g->n > 0 && wf_char_order(g->c[0]) == 0;
    size_t from = starter ? 1 : 0, kept = from;
    sort_marks(g, from);
    if (!starter)
        return;
    unsigned last =
        0; /* the class of the mark kept last: one of the same class behind it is shut off */
    for (size_t i = from; i < g->n; i++) {
        unsigned order = wf_char_order(g->c[i]);
        uint32_t whole = kept > from && last >= order ? 0 : wf_char_compose(g->c[0], g->c[i]);
        if (whole) {
            g->c[0] = whole;
        } else {
            g->c[kept++] = g->c[i];
            last = order;
        }
    }
    g->n = kept;
}

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

/* One character that decomposes no further. */
static void take(group *g, uint32_t c)
{
    if (g->n > 0 && wf_char_order(c) == 0) {
        group_compose(g);
        uint32_t whole = g->n == 1 ? wf_char_compose(g->c[0], c) : 0;
        if (whole) {
            g->c[0] = whole;
            return;
        }
        group_write(g);
    }
    group_add(g, c);
}

/* Parts nest three deep at most, and only in the first of them. */
static void take_apart(group *g, uint32_t c)
{
    uint32_t tail[8], a, b;
    int n = 0;
    while (n < 8 && wf_char_parts(c, &a, &b)) {
        if (b)
            tail[n++] = b;
        c = a;
    }
    take(g, c);
    while (n > 0)
        take(g, tail[--n]);
}

wf_status wf_nfc(wf_ctx *ctx, const char *text, size_t bytes, char **out, size_t *out_bytes)
{
    group g = {.w = {.ctx = ctx}};
    size_t length;
    for (size_t i = 0; i < bytes && g.status == WF_OK; i += length)
        take_apart(&g, wf_utf8_decode(text + i, &length));
    group_compose(&g);
    group_write(&g);
    wf_mem_free(ctx, g.c);
    wf_mem_free(ctx, g.spare);
    wf_status status = wf_writer_take(&g.w, out, out_bytes);
    if (status == WF_OK && g.status != WF_OK) {
        wf_mem_free(ctx, *out);
        *out = NULL;
        status = g.status;
    }
    return status;
}

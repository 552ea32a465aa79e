/* SPDX-License-Identifier: MIT */
/*
 * braille.c - see braille.h.
 *
 * The canvas has 2 x 4 dots per character; curves are drawn as line segments between buckets of
 * steps. A cell has one color, that of the run that drew in it last.
 */
#include "cli/braille.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { LEFT = 9 /* labels and axis */, LEAST = 20 /* columns of dots */, MOST = 120 };

/* One character of the plot. */
typedef struct {
    uint8_t dots; /* bits as in U+2800 */
    uint8_t run;  /* the run that set a dot last */
} cell;

typedef struct {
    const wf_chart_options *o;
    wf_chart_range range; /* of both axes */
    int columns, rows;    /* characters */
    cell *cells;          /* [rows][columns] */
    int last_x, last_y;   /* last point of the current curve; last_x -1: none */
} canvas;

const char *wf_braille_color(int run)
{
    static const char *const colors[] = {"\x1b[34m", "\x1b[33m", "\x1b[32m",
                                         "\x1b[35m", "\x1b[31m", "\x1b[36m"};
    return colors[run % 6];
}

/* Sets a dot; ignores those outside the canvas. */
static void set(canvas *c, int run, int x, int y)
{
    static const uint8_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || x >= 2 * c->columns || y < 0 || y >= 4 * c->rows)
        return;
    cell *at = &c->cells[y / 4 * c->columns + x / 2];
    at->dots |= bit[y % 4][x % 2];
    at->run = (uint8_t)run;
}

/* Draws a line from the last point to this one. */
static void reach(canvas *c, int run, double value_x, double value_y)
{
    int x = (int)lround(wf_axis_place(&c->range.x, value_x) * (2 * c->columns - 1));
    int y = (int)lround((1 - wf_axis_place(&c->range.y, value_y)) * (4 * c->rows - 1));
    int dx = x - c->last_x, dy = y - c->last_y;
    int steps = c->last_x < 0 ? 0 : abs(dx) > abs(dy) ? abs(dx) : abs(dy);
    for (int i = 0; i < steps; i++)
        set(c, run, c->last_x + dx * i / steps, c->last_y + dy * i / steps);
    set(c, run, x, y);
    c->last_x = x;
    c->last_y = y;
}

static void draw_run(canvas *c, int run, const wf_history *h)
{
    /* One bucket per column of dots. */
    wf_bucket buckets[2 * MOST];
    int n = 2 * c->columns;
    c->last_x = -1;
    wf_curve_slice(h, c->o->x, c->range.x.low, c->range.x.high, c->o->smooth, buckets, n);
    for (int i = 0; i < n; i++)
        if (buckets[i].count > 0 && wf_chart_drawable(c->o, buckets[i].smooth))
            reach(c, run, buckets[i].x, buckets[i].smooth);
}

static void draw_valids(canvas *c, int run, const wf_history *h)
{
    c->last_x = -1;
    for (int i = 0; i < h->valid_count; i++)
        if (wf_chart_drawable(c->o, h->valids[i].loss))
            reach(c, run, wf_curve_valid_x(&h->valids[i], c->o->x), h->valids[i].loss);
}

/* ---- Text ---- */

/* Prints a row, changing the color only where it differs. */
static void put_row(wf_writer *w, const canvas *c, int row, const char *label, bool color)
{
    const char *now = NULL;
    wf_writer_print(w, "%*s %s", LEFT - 2, label, *label ? "┤" : "│");
    for (int x = 0; x < c->columns; x++) {
        const cell *at = &c->cells[row * c->columns + x];
        const char *wanted = at->dots ? wf_braille_color(at->run) : now;
        char text[4];
        if (color && wanted != now)
            wf_writer_print(w, "%s", wanted);
        now = wanted;
        if (at->dots)
            wf_writer_bytes(w, text, wf_text_put_utf8(text, 0x2800u + at->dots));
        else
            wf_writer_char(w, ' ');
    }
    wf_writer_print(w, "%s\n", color && now ? "\x1b[0m" : "");
}

static void put_rows(wf_writer *w, const canvas *c, bool color)
{
    double ticks[WF_AXIS_TICKS];
    int n = wf_axis_ticks(&c->range.y, c->rows / 3 + 1, ticks);
    for (int row = 0; row < c->rows; row++) {
        char label[WF_AXIS_LABEL] = "";
        for (int i = 0; i < n; i++) {
            double place = 1 - wf_axis_place(&c->range.y, ticks[i]);
            if ((int)(place * c->rows * 0.999999) == row)
                wf_axis_label(WF_AXIS_VALUE, ticks[i], label);
        }
        put_row(w, c, row, strlen(label) <= LEFT - 2 ? label : "", color);
    }
}

/* Puts labels below their ticks; skips a label that would overlap the one before. */
static void put_axis(wf_writer *w, const canvas *c)
{
    static const char *const titles[] = {" steps", " tokens", ""};
    double ticks[WF_AXIS_TICKS];
    int n = wf_axis_ticks(&c->range.x, c->columns / 16 + 1, ticks), at = 0;
    char label[WF_AXIS_LABEL];
    wf_writer_print(w, "%*s└", LEFT - 1, "");
    for (int x = 0; x < c->columns; x++)
        wf_writer_print(w, "─");
    wf_writer_print(w, "\n%*s", LEFT, "");
    for (int i = 0; i < n; i++) {
        wf_axis_label(c->range.x.kind, ticks[i], label);
        int length = (int)strlen(label);
        int x = (int)(wf_axis_place(&c->range.x, ticks[i]) * (c->columns - 1)) - length / 2;
        x = x < 0 ? 0 : x + length > c->columns ? c->columns - length : x;
        if (i > 0 && x <= at)
            continue;
        wf_writer_print(w, "%*s%s", x - at, "", label);
        at = x + length;
    }
    int title = (int)strlen(titles[c->o->x]);
    wf_writer_print(w, "%s\n", at + title <= c->columns ? titles[c->o->x] : "");
}

void wf_braille_draw(wf_writer *w, const wf_chart_run *runs, int n, const wf_chart_options *o,
                     int columns, int rows, bool color)
{
    canvas c = {.o = o, .columns = columns - LEFT, .rows = rows};
    c.columns = c.columns > MOST ? MOST : c.columns;
    wf_chart_find_range(runs, n, o, &c.range);
    if (c.range.empty || c.columns < LEAST || rows < 2)
        return;
    c.cells = wf_mem_array(w->ctx, (size_t)c.columns * (size_t)rows, sizeof *c.cells);
    if (!c.cells) {
        w->status = WF_ERR_MEMORY;
        return;
    }
    for (int r = 0; r < n; r++)
        draw_run(&c, r, runs[r].history);
    if (n == 1)
        draw_valids(&c, 1, runs[0].history);
    put_rows(w, &c, color);
    put_axis(w, &c);
    if (n == 1 && color && runs[0].history->valid_count > 0)
        wf_writer_print(w, "%*s%sloss, smoothed  %svalidation loss\x1b[0m\n", LEFT, "",
                        wf_braille_color(0), wf_braille_color(1));
    wf_mem_free(w->ctx, c.cells);
}

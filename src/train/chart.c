/* SPDX-License-Identifier: MIT */
/*
 * chart.c - draws the loss curves of runs as SVG.
 *
 * Points are reduced to buckets of two pixels, so the file stays small for any number of steps.
 * Coordinates are written in tenths of a pixel with a dot in every locale. Names come from the user
 * and are escaped as XML.
 */
#include "train/chart.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"

/* The layout, in pixels, and limits of what is drawn. */
enum {
    WIDTH = 960,
    LEFT = 62,
    RIGHT = 24,
    HEAD = 64, /* title and key */
    ROW = 18,  /* height of a legend entry */
    LOSS = 320,
    GAP = 34,
    RATE = 64,
    FOOT = 46,
    AREA = WIDTH - LEFT - RIGHT,
    MOST_BUCKETS = 450, /* each is two pixels wide */
    MOST_VALIDS = 150,
    RAW_RUNS = 4, /* more unsmoothed curves would be unreadable */
};

/* Mid-tones, visible on white and on black. */
static const char *const colors[] = {"#3b82f6", "#f0722b", "#2da44e", "#b04fd6",
                                     "#e5484d", "#0ea5b7", "#c99700", "#8b8f98"};
#define COLORS ((int)(sizeof colors / sizeof *colors))
/* Distinguish runs when the colors repeat. */
static const char *const dashes[] = {"", " stroke-dasharray=\"7 3\"", " stroke-dasharray=\"2 3\"",
                                     " stroke-dasharray=\"9 3 2 3\""};

typedef struct {
    wf_writer w;
    const wf_chart_run *runs;
    int n;
    const wf_chart_options *o;
    wf_chart_range range;
    wf_axis rate;
    wf_bucket *buckets; /* [bucket_count] of the run being drawn */
    int bucket_count;
    int top, bottom;           /* of the loss panel */
    int rate_top, rate_bottom; /* of the learning rate panel */
} drawing;

/* ---- Ranges ---- */

typedef struct {
    double low, high;
} span;

static const span nothing = {INFINITY, -INFINITY};

static void include(span *s, double value)
{
    s->low = value < s->low ? value : s->low;
    s->high = value > s->high ? value : s->high;
}

bool wf_chart_drawable(const wf_chart_options *o, double loss)
{
    return wf_curve_usable(loss) && (!o->log_y || loss >= 1e-30);
}

/* Extends the ranges by a run. Spikes of single steps may leave the chart; the smoothed curve may
 * not. */
static void span_run(const wf_history *h, const wf_chart_options *o, span *x, span *y)
{
    wf_smoother smoother = wf_smoother_make(o->smooth, h->count);
    for (int i = 0; i < h->count; i++) {
        const wf_history_step *s = &h->steps[i];
        if (!wf_chart_drawable(o, s->loss))
            continue;
        include(x, wf_curve_step_x(s, o->x));
        include(y, wf_smoother_add(&smoother, s->loss));
    }
    for (int i = 0; i < h->valid_count; i++)
        if (wf_chart_drawable(o, h->valids[i].loss)) {
            include(x, wf_curve_valid_x(&h->valids[i], o->x));
            include(y, h->valids[i].loss);
        }
}

/* Extends the range by single losses that are not spikes: by at most half the height of the
 * smoothed curves. */
static void span_noise(const wf_history *h, const wf_chart_options *o, span curves, span *y)
{
    double room = (curves.high - curves.low) / 2;
    for (int i = 0; i < h->count; i++) {
        double loss = h->steps[i].loss;
        if (wf_chart_drawable(o, loss) && loss >= curves.low - room && loss <= curves.high + room)
            include(y, loss);
    }
}

void wf_chart_find_range(const wf_chart_run *runs, int n, const wf_chart_options *o,
                         wf_chart_range *out)
{
    span x = nothing, y = nothing;
    for (int i = 0; i < n; i++)
        span_run(runs[i].history, o, &x, &y);
    /* The smoothed curves alone; noise is measured against them. */
    span curves = y;
    for (int i = 0; i < n && n <= RAW_RUNS; i++)
        span_noise(runs[i].history, o, curves, &y);
    out->empty = x.low > x.high;
    if (out->empty)
        x = y = (span){0, 1};
    /* Start the axis at 0 instead of at the end of the first step. */
    if (x.low > 0 && x.low < x.high * 0.1)
        x.low = 0;
    out->x = wf_axis_make(o->x == WF_X_SECONDS ? WF_AXIS_TIME : WF_AXIS_COUNT, x.low, x.high, false,
                          false);
    out->y = wf_axis_make(WF_AXIS_VALUE, y.low, y.high, o->log_y && !out->empty, true);
}

static wf_axis rate_axis(const drawing *d)
{
    span s = {0, 0};
    for (int r = 0; r < d->n; r++)
        for (int i = 0; i < d->runs[r].history->count; i++)
            if (wf_curve_usable(d->runs[r].history->steps[i].rate))
                include(&s, d->runs[r].history->steps[i].rate);
    return wf_axis_make(WF_AXIS_VALUE, s.low, s.high > 0 ? s.high * 1.08 : 1, false, false);
}

/* ---- SVG elements ---- */

/* Writes tenths, with a dot in every locale. */
static void put_number(drawing *d, double v)
{
    wf_assert(!isnan(v));
    /* Clamped to a few screens, so lround cannot overflow for a spike. */
    long tenths = lround((v < -9999 ? -9999 : v > 9999 ? 9999 : v) * 10);
    wf_writer_print(&d->w, "%s%ld", tenths < 0 ? "-" : "", labs(tenths) / 10);
    if (tenths % 10 != 0)
        wf_writer_print(&d->w, ".%ld", labs(tenths) % 10);
}

static double x_of(const drawing *d, double x)
{
    return LEFT + AREA * wf_axis_place(&d->range.x, x);
}

static double loss_y(const drawing *d, double loss)
{
    return d->bottom - (d->bottom - d->top) * wf_axis_place(&d->range.y, loss);
}

static double rate_y(const drawing *d, double rate)
{
    return d->rate_bottom - (d->rate_bottom - d->rate_top) * wf_axis_place(&d->rate, rate);
}

static void put_text(drawing *d, const char *class, double x, double y, const char *text)
{
    wf_writer_print(&d->w, "<text class=\"%s\" x=\"", class);
    put_number(d, x);
    wf_writer_print(&d->w, "\" y=\"");
    put_number(d, y);
    wf_writer_print(&d->w, "\">");
    wf_writer_xml(&d->w, text, 200);
    wf_writer_print(&d->w, "</text>\n");
}

static void put_line(drawing *d, const char *class, double x1, double y1, double x2, double y2)
{
    const double at[] = {x1, y1, x2, y2};
    static const char *const names[] = {"x1", "y1", "x2", "y2"};
    wf_writer_print(&d->w, "<line class=\"%s\"", class);
    for (int i = 0; i < 4; i++) {
        wf_writer_print(&d->w, " %s=\"", names[i]);
        put_number(d, at[i]);
        wf_writer_char(&d->w, '"');
    }
    wf_writer_print(&d->w, "/>\n");
}

static void begin_path(drawing *d, const char *class, int run, bool dashed)
{
    wf_writer_print(&d->w, "<path class=\"%s\" stroke=\"%s\"%s d=\"", class, colors[run % COLORS],
                    dashed ? dashes[run / COLORS % 4] : "");
}

static void put_point(drawing *d, bool first, double x, double y)
{
    wf_writer_char(&d->w, first ? 'M' : ' ');
    put_number(d, x);
    wf_writer_char(&d->w, ' ');
    put_number(d, y);
}

static void end_path(drawing *d)
{
    wf_writer_print(&d->w, "\"/>\n");
}

/* ---- Axes ---- */

static void draw_y_axis(drawing *d, const wf_axis *axis, int top, int bottom, int about,
                        const char *title)
{
    double ticks[WF_AXIS_TICKS];
    char label[WF_AXIS_LABEL];
    int n = wf_axis_ticks(axis, about, ticks);
    for (int i = 0; i < n; i++) {
        double y = bottom - (bottom - top) * wf_axis_place(axis, ticks[i]);
        put_line(d, "grid", LEFT, y, WIDTH - RIGHT, y);
        put_text(d, "tick end", LEFT - 7, y + 4, wf_axis_label(axis->kind, ticks[i], label));
    }
    put_text(d, "tick", LEFT, top - 7, title);
}

static void draw_x_axis(drawing *d)
{
    static const char *const titles[] = {"steps", "tokens", "time"};
    double ticks[WF_AXIS_TICKS];
    char label[WF_AXIS_LABEL];
    int n = wf_axis_ticks(&d->range.x, 8, ticks);
    for (int i = 0; i < n; i++) {
        double x = x_of(d, ticks[i]);
        put_line(d, "grid", x, d->top, x, d->bottom);
        put_line(d, "grid", x, d->rate_top, x, d->rate_bottom);
        put_text(d, "tick middle", x, d->rate_bottom + 16,
                 wf_axis_label(d->range.x.kind, ticks[i], label));
    }
    put_text(d, "tick middle", LEFT + AREA / 2.0, d->rate_bottom + 34, titles[d->o->x]);
}

/* ---- Curves ---- */

/* Draws the range of losses in each slice as a vertical line. */
static void draw_raw(drawing *d, int run)
{
    bool first = true;
    begin_path(d, "raw", run, false);
    for (int i = 0; i < d->bucket_count; i++) {
        const wf_bucket *b = &d->buckets[i];
        if (b->count == 0 || !wf_chart_drawable(d->o, b->low))
            continue;
        put_point(d, first, x_of(d, b->x), loss_y(d, b->high));
        if (b->high > b->low)
            put_point(d, false, x_of(d, b->x), loss_y(d, b->low));
        first = false;
    }
    end_path(d);
}

static void draw_smooth(drawing *d, int run)
{
    bool first = true;
    begin_path(d, "smooth", run, true);
    for (int i = 0; i < d->bucket_count; i++)
        if (d->buckets[i].count > 0 && wf_chart_drawable(d->o, d->buckets[i].smooth)) {
            put_point(d, first, x_of(d, d->buckets[i].x), loss_y(d, d->buckets[i].smooth));
            first = false;
        }
    end_path(d);
}

static void draw_rate(drawing *d, int run)
{
    bool first = true;
    begin_path(d, "rate", run, true);
    for (int i = 0; i < d->bucket_count; i++)
        if (d->buckets[i].count > 0) {
            put_point(d, first, x_of(d, d->buckets[i].x), rate_y(d, d->buckets[i].rate));
            first = false;
        }
    end_path(d);
}

/* A single run draws its validation loss in the second color. */
static int valid_color(const drawing *d, int run)
{
    return d->n == 1 ? 1 : run;
}

static void put_dot(drawing *d, int color, double x, double y)
{
    wf_writer_print(&d->w, "<circle r=\"2.5\" fill=\"%s\" cx=\"", colors[color % COLORS]);
    put_number(d, x);
    wf_writer_print(&d->w, "\" cy=\"");
    put_number(d, y);
    wf_writer_print(&d->w, "\"/>\n");
}

static void draw_valids(drawing *d, int run)
{
    const wf_history *h = d->runs[run].history;
    int most = MOST_VALIDS / d->n > 10 ? MOST_VALIDS / d->n : 10, color = valid_color(d, run);
    /* Every `each`-th point, counted from the last one, so that the newest is always drawn. */
    int each = (h->valid_count + most - 1) / most;
    bool first = true;
    if (h->valid_count == 0)
        return;
    begin_path(d, "valid", color, false);
    for (int i = 0; i < h->valid_count; i++)
        if ((h->valid_count - 1 - i) % each == 0 && wf_chart_drawable(d->o, h->valids[i].loss)) {
            put_point(d, first, x_of(d, wf_curve_valid_x(&h->valids[i], d->o->x)),
                      loss_y(d, h->valids[i].loss));
            first = false;
        }
    end_path(d);
    for (int i = 0; i < h->valid_count; i++)
        if ((h->valid_count - 1 - i) % each == 0 && wf_chart_drawable(d->o, h->valids[i].loss))
            put_dot(d, color, x_of(d, wf_curve_valid_x(&h->valids[i], d->o->x)),
                    loss_y(d, h->valids[i].loss));
}

static void draw_curves(drawing *d)
{
    for (int r = 0; r < d->n; r++) {
        const wf_history *h = d->runs[r].history;
        wf_curve_slice(h, d->o->x, d->range.x.low, d->range.x.high, d->o->smooth, d->buckets,
                       d->bucket_count);
        wf_writer_print(&d->w, "<g clip-path=\"url(#area)\">\n");
        if (d->n <= RAW_RUNS)
            draw_raw(d, r);
        draw_smooth(d, r);
        draw_valids(d, r);
        wf_writer_print(&d->w, "</g>\n<g clip-path=\"url(#below)\">\n");
        draw_rate(d, r);
        wf_writer_print(&d->w, "</g>\n");
    }
}

/* ---- Labels ---- */

/* Formats "loss 2.31, validation 2.25, best 2.24 at step 900". */
static void summarize(const wf_history *h, char *out, size_t cap)
{
    char number[WF_AXIS_LABEL];
    size_t len = 0;
    const wf_history_valid *best = wf_history_best(h);
    out[0] = '\0';
    if (h->count > 0) {
        const wf_history_step *s = &h->steps[h->count - 1];
        wf_text_append(out, cap, &len, "step %lld", (long long)s->step);
        if (h->wanted > 0)
            wf_text_append(out, cap, &len, " of %lld", (long long)h->wanted);
        wf_text_append(out, cap, &len, ", loss %s", wf_axis_number(s->loss, 5, number));
    }
    if (!best)
        return;
    wf_text_append(out, cap, &len, "%svalidation %s", len ? ", " : "",
                   wf_axis_number(h->valids[h->valid_count - 1].loss, 5, number));
    wf_text_append(out, cap, &len, ", best %s at %lld", wf_axis_number(best->loss, 5, number),
                   (long long)best->step);
}

/* Draws the key to the line styles, right-aligned in the second row. */
static void draw_key(drawing *d)
{
    static const struct {
        const char *class, *name;
        int width;
    } keys[] = {{"raw", "loss", 70}, {"smooth", "smoothed", 100}, {"valid", "validation", 100}};
    int x = LEFT;
    for (int i = 0; i < 3; i++) {
        int color = d->n > 1 ? COLORS - 1 : i == 2 ? valid_color(d, 0) : 0;
        if (i == 0 && d->n > RAW_RUNS)
            continue;
        begin_path(d, keys[i].class, color, false);
        wf_writer_print(&d->w, "M%d %d h24", x, 44);
        end_path(d);
        if (i == 2)
            put_dot(d, color, x + 12, 44);
        put_text(d, "small", x + 30, 48, keys[i].name);
        x += keys[i].width;
    }
}

/* Title, key and legend: one run has its name as the title, several have a row each. */
static void draw_words(drawing *d)
{
    char text[256];
    if (d->n == 1) {
        put_text(d, "head", LEFT, 25, d->runs[0].name);
        summarize(d->runs[0].history, text, sizeof text);
        put_text(d, "small end", WIDTH - RIGHT, 48, text);
    } else {
        size_t len = 0;
        wf_text_append(text, sizeof text, &len, "%d runs", d->n);
        put_text(d, "head", LEFT, 25, text);
    }
    draw_key(d);
    for (int r = 0; r < d->n && d->n > 1; r++) {
        int y = HEAD + ROW * r + 10;
        begin_path(d, "smooth", r, true);
        wf_writer_print(&d->w, "M%d %d h24", LEFT, y - 4);
        end_path(d);
        wf_writer_print(&d->w, "<text class=\"small\" x=\"%d\" y=\"%d\">", LEFT + 30, y);
        wf_writer_xml(&d->w, d->runs[r].name, 50);
        wf_writer_print(&d->w, "</text>\n");
        summarize(d->runs[r].history, text, sizeof text);
        put_text(d, "small end", WIDTH - RIGHT, y, text);
    }
    if (d->range.empty)
        put_text(d, "small middle", LEFT + AREA / 2.0, (d->top + d->bottom) / 2.0,
                 "nothing to draw yet");
}

/* ---- The chart ---- */

/* Size, styles for light and dark themes, and the areas that clip the curves. */
static void put_head(drawing *d)
{
    int height = d->rate_bottom + FOOT;
    wf_writer_print(&d->w,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\">\n<style>\n"
                    ".ground{fill:#fff}text{font:12px sans-serif;fill:#24292f}.head{font-size:15px;"
                    "font-weight:bold}.tick{font-size:11px;fill:#57606a}.end{text-anchor:end}"
                    ".middle{text-anchor:middle}.grid{stroke:#d8dee4;stroke-width:1}\n"
                    "path{fill:none;stroke-linejoin:round}.raw{stroke-width:1;opacity:.45}"
                    ".smooth{stroke-width:2}.valid{stroke-width:1.5;stroke-dasharray:4 3}"
                    ".rate{stroke-width:1.5}\n"
                    "@media (prefers-color-scheme:dark){.ground{fill:#0d1117}text{fill:#e6edf3}"
                    ".tick{fill:#9198a1}.grid{stroke:#30363d}}\n</style>\n"
                    "<clipPath id=\"area\"><path d=\"M%d %dh%dv%dh-%dz\"/></clipPath>\n"
                    "<clipPath id=\"below\"><path d=\"M%d %dh%dv%dh-%dz\"/></clipPath>\n"
                    "<rect class=\"ground\" width=\"100%%\" height=\"100%%\"/>\n",
                    WIDTH, height, WIDTH, height, LEFT - 3, d->top - 3, AREA + 6, LOSS + 6,
                    AREA + 6, LEFT - 3, d->rate_top - 3, AREA + 6, RATE + 6, AREA + 6);
}

static void draw(drawing *d)
{
    put_head(d);
    draw_words(d);
    draw_x_axis(d);
    draw_y_axis(d, &d->range.y, d->top, d->bottom, 6, "loss");
    draw_y_axis(d, &d->rate, d->rate_top, d->rate_bottom, 3, "learning rate");
    if (!d->range.empty)
        draw_curves(d);
    wf_writer_print(&d->w, "</svg>\n");
}

wf_status wf_chart_draw(wf_ctx *ctx, const wf_chart_run *runs, int n, const wf_chart_options *o,
                        char **svg, size_t *bytes)
{
    drawing d = {.w = {.ctx = ctx}, .runs = runs, .n = n, .o = o};
    wf_assert(n >= 1 && n <= WF_CHART_RUNS);
    *svg = NULL;
    d.bucket_count = n <= 2 ? MOST_BUCKETS : 2 * MOST_BUCKETS / n;
    d.buckets = wf_mem_array(ctx, (size_t)d.bucket_count, sizeof *d.buckets);
    if (!d.buckets)
        return WF_ERR_MEMORY;
    wf_chart_find_range(runs, n, o, &d.range);
    d.rate = rate_axis(&d);
    d.top = HEAD + (n > 1 ? ROW * n : 0) + 20;
    d.bottom = d.top + LOSS;
    d.rate_top = d.bottom + GAP;
    d.rate_bottom = d.rate_top + RATE;
    draw(&d);
    wf_mem_free(ctx, d.buckets);
    return wf_writer_take(&d.w, svg, bytes);
}

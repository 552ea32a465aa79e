/* SPDX-License-Identifier: MIT */
/* progress.c - see progress.h. */
#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/figures.h"
#include "cli/term.h"

#define BAR 30                /* columns, if there is room */
#define REDRAW_NS 100000000u  /* on a terminal */
#define REPORT_NS 5000000000u /* in a log */
#define SETTLED_SECONDS 0.5   /* earlier, the rate is not reliable */

static void append_rate(const wf_progress *p, double seconds, char *out, size_t cap, size_t *len)
{
    wf_figure_amount(out, cap, len, (double)p->done / seconds, p->unit == WF_PROGRESS_BYTES);
    wf_text_append(out, cap, len, "/s");
}

/* "42%, 350 MB/s, 0:12 left" */
static void append_numbers(const wf_progress *p, double seconds, double part, const char *gap,
                           char *out, size_t cap, size_t *len)
{
    wf_text_append(out, cap, len, "%3d%%", (int)(part * 100));
    if (seconds < SETTLED_SECONDS || p->done <= 0)
        return;
    wf_text_append(out, cap, len, "%s", gap);
    append_rate(p, seconds, out, cap, len);
    wf_text_append(out, cap, len, "%s", gap);
    wf_figure_time(out, cap, len, seconds * (1 / part - 1));
    wf_text_append(out, cap, len, " left");
}

/* Returns the done share, 0 to 1; nothing to do counts as done. */
static double part_of(const wf_progress *p)
{
    double part = p->total > 0 ? (double)p->done / (double)p->total : 1;
    return part < 0 ? 0 : part > 1 ? 1 : part;
}

void wf_progress_text(const wf_progress *p, double seconds, int columns, char *out, size_t cap)
{
    double part = part_of(p);
    size_t len = 0, n = 0;
    const char *shown = WF_FOREIGN(p->label);
    out[0] = '\0';
    if (columns == 0) {
        wf_text_append(out, cap, &len, "%s: ", shown);
        append_numbers(p, seconds, part, ", ", out, cap, &len);
        return;
    }
    char numbers[64];
    append_numbers(p, seconds, part, "  ", numbers, sizeof numbers, &n);
    int label = (int)strlen(shown), room = columns - label - (int)n - 4; /* spaces and brackets */
    int bar = room > BAR ? BAR : room, full = (int)(part * bar);
    if (bar < 5) { /* no room for a bar: truncate the label */
        wf_text_append(out, cap, &len, "%.*s %s", columns > (int)n + 1 ? columns - (int)n - 1 : 0,
                       shown, numbers);
        return;
    }
    static const char fill[] = "##############################",
                      rest[] = "..............................";
    _Static_assert(sizeof fill == BAR + 1 && sizeof rest == BAR + 1, "a full bar");
    wf_text_append(out, cap, &len, "%s %s[%.*s%.*s]%s %s", shown, p->color ? "\x1b[32m" : "", full,
                   fill, bar - full, rest, p->color ? "\x1b[0m" : "", numbers);
}

/* ---- Writing ---- */

static double seconds_since(uint64_t began, uint64_t now)
{
    return (double)(now - began) * 1e-9;
}

/* On a terminal, rewrites the line and erases its old end. */
static void show(wf_progress *p, uint64_t now)
{
    char text[512];
    int columns = p->terminal ? wf_term_columns(STDERR_FILENO) : 0;
    p->shown = now;
    wf_progress_text(p, seconds_since(p->began, now), columns, text, sizeof text);
    fprintf(stderr, p->terminal ? "\r%s\x1b[K" : "%s\n", text);
    fflush(stderr);
}

void wf_progress_begin(wf_progress *p, const char *label, wf_progress_unit unit, int64_t total)
{
    uint64_t now = wf_clock_ns();
    bool terminal = wf_term_is(STDERR_FILENO);
    *p = (wf_progress){
        .label = label,
        .unit = unit,
        .total = total,
        .began = now,
        .shown = now,
        .terminal = terminal,
        .color = wf_term_color(STDERR_FILENO),
    };
    if (terminal)
        show(p, now);
}

void wf_progress_update(wf_progress *p, int64_t done)
{
    uint64_t now = wf_clock_ns();
    p->done = done;
    if (now - p->shown >= (p->terminal ? REDRAW_NS : REPORT_NS))
        show(p, now);
}

void wf_progress_clear(wf_progress *p)
{
    if (p->terminal)
        fputs("\r\x1b[K", stderr);
}

void wf_progress_end(wf_progress *p)
{
    char text[512];
    size_t len = 0;
    double seconds = seconds_since(p->began, wf_clock_ns());
    wf_text_append(text, sizeof text, &len, "%s: ", WF_FOREIGN(p->label));
    wf_figure_amount(text, sizeof text, &len, (double)p->done, p->unit == WF_PROGRESS_BYTES);
    wf_text_append(text, sizeof text, &len, " in %.1f s", seconds);
    if (seconds >= SETTLED_SECONDS) {
        wf_text_append(text, sizeof text, &len, ", ");
        append_rate(p, seconds, text, sizeof text, &len);
    }
    wf_progress_clear(p);
    fprintf(stderr, "%s\n", text);
}

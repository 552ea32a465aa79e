/* SPDX-License-Identifier: MIT */
/*
 * record.c - log, TensorBoard events and chart of a run.
 *
 * Each record is written with one append, so a crash loses at most the last line. A failing file
 * (full disk) is reported once and tried again with the next record; training goes on.
 */
#include "train/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/writer.h"
#include "train/chart.h"
#include "train/events.h"

#define DRAW_NS 5000000000u /* between two charts */

typedef enum { TO_LOG, TO_EVENTS, TO_DRAWING, TO_COUNT } target;

struct wf_record {
    wf_ctx *ctx;
    wf_arena arena;         /* owns names */
    const char *name;       /* of the run, for the chart */
    const char *drawing;    /* path of the chart */
    wf_append *file[2];     /* TO_LOG, TO_EVENTS */
    wf_history history;     /* the whole curve, for the chart */
    uint64_t drawn;         /* wf_clock_ns; 0: never */
    bool changed;           /* since the last chart */
    bool failing[TO_COUNT]; /* reported to the caller */
    wf_status status;       /* of an unreported failure, with its message */
    char why[WF_MESSAGE_BYTES];
};

/* ---- Failures ---- */

/* Remembers the first failure of a target since its last success. */
static void note(wf_record *r, target t, wf_status status)
{
    if (status != WF_OK && !r->failing[t] && r->status == WF_OK) {
        r->status = status;
        snprintf(r->why, sizeof r->why, "%s", wf_ctx_message(r->ctx));
    }
    r->failing[t] = status != WF_OK;
}

/* Returns the failure, if any, since the last call. */
static wf_status tell(wf_record *r)
{
    wf_status status = r->status;
    r->status = WF_OK;
    return status == WF_OK ? WF_OK : wf_fail(r->ctx, status, "%s", r->why);
}

/* Writes the buffered text and frees it. */
static void flush(wf_record *r, target t, wf_writer *w)
{
    char *text;
    size_t bytes;
    wf_status status = wf_writer_take(w, &text, &bytes);
    if (status == WF_OK)
        status = wf_append_write(r->file[t], text, bytes);
    wf_mem_free(r->ctx, text);
    note(r, t, status);
}

/* ---- Lines of the log ---- */

static void put_double(wf_writer *w, const char *key, double value)
{
    char text[WF_TEXT_DOUBLE] = "null";
    if (isfinite(value))
        wf_text_from_double(text, value);
    wf_writer_print(w, ",\"%s\":%s", key, text);
}

static void put_int(wf_writer *w, const char *key, int64_t value)
{
    wf_writer_print(w, ",\"%s\":%lld", key, (long long)value);
}

static void put_string(wf_writer *w, const char *key, const char *text)
{
    wf_writer_print(w, ",\"%s\":", key);
    wf_writer_json(w, text, strlen(text), WF_JSON_NEWLINE);
}

static wf_writer begin_line(wf_record *r, const char *event, int64_t step)
{
    wf_writer w = {.ctx = r->ctx};
    wf_writer_print(&w, "{\"event\":\"%s\",\"step\":%lld", event, (long long)step);
    return w;
}

static void end_line(wf_record *r, wf_writer *w)
{
    put_int(w, "time", wf_clock_now());
    wf_writer_print(w, "}\n");
    flush(r, TO_LOG, w);
}

/* ---- Chart ---- */

static wf_status draw(wf_record *r)
{
    const wf_chart_run run = {r->name, &r->history};
    char *svg;
    size_t bytes;
    WF_TRY(wf_chart_draw(r->ctx, &run, 1, &(wf_chart_options){.smooth = -1}, &svg, &bytes));
    wf_status status = wf_file_write(r->ctx, r->drawing, svg, bytes);
    wf_mem_free(r->ctx, svg);
    return status;
}

/* Draws at most every DRAW_NS, since drawing takes time in proportion to the curve. */
static void draw_sometimes(wf_record *r)
{
    uint64_t now = wf_clock_ns();
    r->changed = true;
    if (r->drawn && now - r->drawn < DRAW_NS)
        return;
    note(r, TO_DRAWING, draw(r));
    r->drawn = now;
    r->changed = false;
}

/* ---- Records ---- */

wf_status wf_record_step(wf_record *r, const wf_train_step *p)
{
    wf_writer w = begin_line(r, "step", p->step), events = {.ctx = r->ctx};
    put_int(&w, "steps", p->steps);
    put_double(&w, "loss", p->loss);
    put_double(&w, "norm", p->norm);
    put_double(&w, "rate", p->rate);
    put_double(&w, "seconds", p->seconds);
    put_double(&w, "tokens_per_second", p->tokens_per_second);
    if (p->share > 0)
        put_double(&w, "share", p->share);
    if (p->scale > 0)
        put_double(&w, "scale", p->scale);
    put_int(&w, "tokens", p->tokens);
    put_int(&w, "skipped", p->skipped);
    put_int(&w, "memory", (int64_t)p->memory);
    wf_writer_print(&w, ",\"applied\":%s", p->applied ? "true" : "false");
    end_line(r, &w);

    const wf_events_scalar scalars[] = {{"loss", p->loss},
                                        {"norm", p->norm},
                                        {"rate", p->rate},
                                        {"tokens_per_second", p->tokens_per_second}};
    wf_events_scalars(&events, (double)wf_clock_now(), p->step, scalars, 4);
    flush(r, TO_EVENTS, &events);

    wf_status status = wf_history_add_step(&r->history, p);
    if (status == WF_OK)
        draw_sometimes(r);
    else
        note(r, TO_DRAWING, status);
    return tell(r);
}

wf_status wf_record_valid(wf_record *r, int64_t step, double loss, double bits_per_byte)
{
    wf_writer w = begin_line(r, "valid", step), events = {.ctx = r->ctx};
    put_double(&w, "loss", loss);
    if (!isnan(bits_per_byte))
        put_double(&w, "bits_per_byte", bits_per_byte);
    end_line(r, &w);

    const wf_events_scalar scalars[] = {{"valid/loss", loss},
                                        {"valid/bits_per_byte", bits_per_byte}};
    wf_events_scalars(&events, (double)wf_clock_now(), step, scalars, isnan(bits_per_byte) ? 1 : 2);
    flush(r, TO_EVENTS, &events);

    wf_status status = wf_history_add_valid(&r->history, step, loss, bits_per_byte);
    if (status == WF_OK)
        draw_sometimes(r);
    else
        note(r, TO_DRAWING, status);
    return tell(r);
}

/* Replaces each invalid byte by U+FFFD. */
static wf_status make_utf8(wf_ctx *ctx, const char *text, char **out)
{
    wf_writer w = {.ctx = ctx};
    const char *end = text + strlen(text);
    while (text < end) {
        size_t length = wf_text_utf8(text, (size_t)(end - text));
        if (length > 0)
            wf_writer_bytes(&w, text, length);
        else
            wf_writer_bytes(&w, "\xEF\xBF\xBD", 3);
        text += length ? length : 1;
    }
    return wf_writer_take(&w, out, NULL);
}

wf_status wf_record_sample(wf_record *r, int64_t step, const char *text)
{
    char *valid;
    WF_TRY(make_utf8(r->ctx, text, &valid));
    wf_writer w = begin_line(r, "sample", step), events = {.ctx = r->ctx};
    put_string(&w, "text", valid);
    end_line(r, &w);
    wf_events_text(&events, (double)wf_clock_now(), step, "sample", valid);
    flush(r, TO_EVENTS, &events);
    wf_mem_free(r->ctx, valid);
    return tell(r);
}

/* ---- Opening and closing ---- */

/* TensorBoard reads files in the order of their names, so the names contain the time, plus a number
 * for files of the same second. */
static wf_status open_events(wf_record *r, const char *run, int64_t from)
{
    char name[64];
    const char *path = NULL;
    int64_t now = wf_clock_now();
    for (int i = 0; !path || wf_path_look(path) != WF_PATH_NONE; i++) {
        snprintf(name, sizeof name, "events.out.tfevents.%010lld.%03d.weft", (long long)now, i);
        path = wf_path_join(&r->arena, run, name);
        if (!path)
            return WF_ERR_MEMORY;
    }
    WF_TRY(wf_append_open(r->ctx, path, false, &r->file[TO_EVENTS]));
    wf_writer w = {.ctx = r->ctx};
    wf_events_start(&w, (double)now, from + 1);
    flush(r, TO_EVENTS, &w);
    return WF_OK;
}

/* Reads the log of a resumed run: it is part of the curve. */
static wf_status open_log(wf_record *r, const char *run, int64_t from)
{
    const char *path = wf_path_join(&r->arena, run, WF_RECORD_LOG);
    if (!path)
        return WF_ERR_MEMORY;
    if (from > 0 && wf_path_look(path) == WF_PATH_FILE) {
        WF_TRY(wf_history_read(&r->history, path));
        wf_history_rewind(&r->history, from);
    }
    WF_TRY(wf_append_open(r->ctx, path, true, &r->file[TO_LOG]));
    wf_writer w = begin_line(r, from > 0 ? "resume" : "start", from);
    end_line(r, &w);
    return WF_OK;
}

/* Returns the last component of the path, without trailing slashes. */
static char *name_of(wf_arena *arena, const char *run)
{
    size_t end = strlen(run), begin;
    while (end > 1 && run[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && run[begin - 1] != '/';)
        begin--;
    char *name = wf_arena_alloc(arena, end - begin + 1);
    if (name)
        memcpy(name, run + begin, end - begin);
    return name;
}

static wf_status prepare(wf_record *r, const char *run, int64_t from)
{
    r->name = name_of(&r->arena, run);
    r->drawing = wf_path_join(&r->arena, run, WF_RECORD_CURVE);
    if (!r->name || !r->drawing)
        return WF_ERR_MEMORY;
    WF_TRY(open_log(r, run, from));
    WF_TRY(open_events(r, run, from));
    return tell(r);
}

wf_status wf_record_open(wf_ctx *ctx, const char *run, int64_t from, wf_record **out)
{
    *out = NULL;
    wf_record *r = wf_mem_new(ctx, sizeof *r);
    if (!r)
        return WF_ERR_MEMORY;
    r->ctx = ctx;
    r->history.ctx = ctx;
    wf_arena_init(&r->arena, ctx);
    wf_status status = prepare(r, run, from);
    if (status == WF_OK)
        *out = r;
    else
        wf_record_close(r);
    return status;
}

void wf_record_close(wf_record *r)
{
    if (!r)
        return;
    if (r->changed && draw(r) != WF_OK && !r->failing[TO_DRAWING])
        wf_ctx_log(r->ctx, WF_LOG_WARN, "%s", wf_ctx_message(r->ctx));
    wf_append_close(r->file[TO_LOG]);
    wf_append_close(r->file[TO_EVENTS]);
    wf_history_free(&r->history);
    wf_arena_free(&r->arena);
    wf_mem_free(r->ctx, r);
}

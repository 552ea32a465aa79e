/* SPDX-License-Identifier: MIT */
/*
 * bench_report.c - prints the report of weft bench as text, Markdown and JSON.
 *
 * Cells are collected first, since the width of a column depends on all of its rows. Failures while
 * collecting are remembered and returned by wf_bench_report_write.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/bench.h"
#include "cli/plan.h"

/* ---- Gathering ---- */

void wf_bench_report_init(wf_bench_report *r, wf_ctx *ctx, const char *mode)
{
    *r = (wf_bench_report){.ctx = ctx, .mode = mode};
    wf_arena_init(&r->arena, ctx);
}

void wf_bench_report_free(wf_bench_report *r)
{
    for (int i = 0; i < r->sections; i++)
        wf_mem_free(r->ctx, r->section[i].cell);
    wf_arena_free(&r->arena);
}

void wf_bench_begin(wf_bench_report *r, const char *key, const wf_bench_column *columns,
                    bool single)
{
    wf_assert(r->sections < WF_BENCH_SECTIONS);
    wf_bench_section *s = &r->section[r->sections++];
    *s = (wf_bench_section){.key = key, .column = columns, .single = single};
    while (columns[s->columns].key)
        s->columns++;
}

static void add_cell(wf_bench_report *r, wf_bench_cell cell)
{
    wf_bench_section *s = &r->section[r->sections - 1];
    void *cells = wf_mem_room(r->ctx, s->cell, s->cells, &s->room, sizeof *s->cell);
    if (!cells) {
        r->status = WF_ERR_MEMORY;
        return;
    }
    s->cell = cells;
    s->cell[s->cells++] = cell;
}

void wf_bench_text(wf_bench_report *r, const char *fmt, ...)
{
    char text[512];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    const char *copy = wf_arena_strdup(&r->arena, text);
    r->status = copy ? r->status : WF_ERR_MEMORY;
    add_cell(r, (wf_bench_cell){.text = copy ? copy : ""});
}

void wf_bench_number(wf_bench_report *r, double x)
{
    add_cell(r, (wf_bench_cell){.number = isfinite(x) ? x : NAN});
}

/* ---- Text and Markdown ---- */

#define SHOWN 640 /* bytes of a cell, including escapes */

/* Formats a cell; the result is in buf or static. Texts are escaped: a model's name may hold
 * control characters. */
static const char *show(const wf_bench_column *c, const wf_bench_cell *cell, char *buf, size_t cap)
{
    static const int digits[] = {[WF_SHOW_WHOLE] = 0,
                                 [WF_SHOW_TENTHS] = 1,
                                 [WF_SHOW_HUNDREDTHS] = 2,
                                 [WF_SHOW_THOUSANDTHS] = 3,
                                 [WF_SHOW_SHARE] = 0};
    if (cell->text)
        return wf_text_foreign(buf, cap, cell->text, strlen(cell->text));
    if (isnan(cell->number))
        return "-";
    if (c->show == WF_SHOW_BYTES)
        return wf_plan_bytes((uint64_t)cell->number, buf, cap);
    bool share = c->show == WF_SHOW_SHARE;
    snprintf(buf, cap, "%.*f%s", digits[c->show], cell->number * (share ? 100 : 1),
             share ? "%" : "");
    return buf;
}

/* Returns the bytes of the widest cell, heading included. */
static int width_of(const wf_bench_section *s, int column)
{
    char buf[SHOWN];
    size_t width = strlen(s->column[column].title);
    for (int i = column; i < s->cells; i += s->columns) {
        size_t n = strlen(show(&s->column[column], &s->cell[i], buf, sizeof buf));
        width = n > width ? n : width;
    }
    return (int)width;
}

/* Aligns texts left and numbers right. */
static void print_cell(FILE *to, const char *text, int width, bool left)
{
    fprintf(to, "%*s", left ? -width : width, text);
}

/* Prints a row; row -1 is the heading. */
static void print_row(FILE *to, const wf_bench_section *s, int row, bool markdown)
{
    char buf[SHOWN];
    const char *before = markdown ? "| " : "";
    for (int i = 0; i < s->columns; i++) {
        const wf_bench_column *c = &s->column[i];
        if (!c->title)
            continue;
        fputs(before, to);
        print_cell(to,
                   row < 0 ? c->title : show(c, &s->cell[row * s->columns + i], buf, sizeof buf),
                   width_of(s, i), c->show == WF_SHOW_TEXT);
        before = markdown ? " | " : "  ";
    }
    fputs(markdown ? " |\n" : "\n", to);
}

static void print_table(FILE *to, const wf_bench_section *s, bool markdown)
{
    print_row(to, s, -1, markdown);
    for (int i = 0; markdown && i < s->columns; i++)
        if (s->column[i].title)
            fputs(s->column[i].show == WF_SHOW_TEXT ? "|---" : "|--:", to);
    if (markdown)
        fputs("|\n", to);
    for (int row = 0; row < s->cells / s->columns; row++)
        print_row(to, s, row, markdown);
}

static void print_single(FILE *to, const wf_bench_section *s, bool markdown)
{
    char buf[SHOWN];
    int width = 0;
    for (int i = 0; i < s->columns; i++)
        if (s->column[i].title && (int)strlen(s->column[i].title) > width)
            width = (int)strlen(s->column[i].title);
    for (int i = 0; i < s->columns && i < s->cells; i++)
        if (s->column[i].title)
            fprintf(to, "%s%-*s  %s\n", markdown ? "- " : "", width, s->column[i].title,
                    show(&s->column[i], &s->cell[i], buf, sizeof buf));
}

static void write_text(FILE *to, const wf_bench_report *r, bool markdown)
{
    for (int i = 0; i < r->sections; i++) {
        if (i > 0)
            putc('\n', to);
        (r->section[i].single ? print_single : print_table)(to, &r->section[i], markdown);
    }
}

/* ---- JSON ---- */

static void put_row(wf_json *j, const wf_bench_section *s, int row)
{
    wf_json_object_begin(j);
    for (int i = 0; i < s->columns; i++) {
        const wf_bench_cell *cell = &s->cell[row * s->columns + i];
        wf_json_key(j, s->column[i].key);
        if (cell->text)
            wf_json_string(j, cell->text);
        /* Whole numbers below 2^53 are exact in a double. */
        else if (s->column[i].show == WF_SHOW_WHOLE && fabs(cell->number) < 1e15)
            wf_json_int(j, (int64_t)cell->number);
        else
            wf_json_double(j, cell->number);
    }
    wf_json_object_end(j);
}

static void put_section(wf_json *j, const wf_bench_section *s)
{
    wf_json_key(j, s->key);
    if (s->single) {
        put_row(j, s, 0);
        return;
    }
    wf_json_array_begin(j);
    for (int row = 0; row < s->cells / s->columns; row++)
        put_row(j, s, row);
    wf_json_array_end(j);
}

static void write_json(FILE *to, const wf_bench_report *r)
{
    wf_json j;
    char date[64];
    wf_clock_print(date, sizeof date, "%Y-%m-%dT%H:%M:%S%z", wf_clock_now());
    wf_json_begin(&j, to);
    wf_json_object_begin(&j);
    wf_json_key(&j, "bench");
    wf_json_object_begin(&j);
    wf_json_put_text(&j, "mode", r->mode);
    wf_version_json(&j);
    wf_json_put_text(&j, "date", date);
    wf_json_put_text(&j, "command", wf_command_line());
    for (int i = 0; i < r->sections; i++)
        put_section(&j, &r->section[i]);
    wf_json_object_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

/* Writes the file atomically. */
static wf_status write_json_file(const wf_bench_report *r, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    if (!to)
        return wf_fail(r->ctx, WF_ERR_MEMORY, "out of memory for the report");
    write_json(to, r);
    bool whole = !ferror(to);
    wf_status status = fclose(to) == 0 && whole
                           ? wf_file_write(r->ctx, path, text, bytes)
                           : wf_fail(r->ctx, WF_ERR_MEMORY, "out of memory for the report");
    free(text);
    return status;
}

wf_status wf_bench_report_write(const wf_bench_report *r)
{
    const char *json = wf_bench_set.json;
    WF_TRY(r->status);
    if (strcmp(wf_bench_set.output, "json") == 0 || (json && strcmp(json, "-") == 0))
        write_json(stdout, r);
    else
        write_text(stdout, r, strcmp(wf_bench_set.output, "md") == 0);
    return json && strcmp(json, "-") != 0 ? write_json_file(r, json) : WF_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * bench.h - shared by the modes of `weft bench`: flags, the peak of the machine, and the report.
 *
 * A report is a list of sections, each a table of columns and rows. Text, Markdown and JSON are
 * written from the same tables.
 */
#ifndef WF_CLI_BENCH_H
#define WF_CLI_BENCH_H

#include "base/arena.h"
#include "base/machine.h"
#include "bench/times.h"
#include "cli/cli.h"

/* ---- Report ---- */

/* Format of a cell in text and Markdown. JSON has plain texts and numbers. */
typedef enum {
    WF_SHOW_TEXT,
    WF_SHOW_WHOLE,
    WF_SHOW_TENTHS,
    WF_SHOW_HUNDREDTHS,
    WF_SHOW_THOUSANDTHS,
    WF_SHOW_SHARE, /* 0.5 as 50% */
    WF_SHOW_BYTES  /* as kB, MB, ... */
} wf_bench_show;

typedef struct {
    const char *key;   /* in JSON, including the unit; NULL ends the columns */
    const char *title; /* in text and Markdown; NULL: only in JSON */
    wf_bench_show show;
} wf_bench_column;

typedef struct {
    const char *text; /* NULL: the cell is a number */
    double number;    /* NaN: empty */
} wf_bench_cell;

typedef struct {
    const char *key; /* in JSON; also the heading of a single row */
    const wf_bench_column *column;
    int columns;
    bool single;         /* one row: a line per column in text, an object in JSON */
    wf_bench_cell *cell; /* [room], row by row; owned by the report */
    int cells, room;
} wf_bench_section;

#define WF_BENCH_SECTIONS 6
typedef struct {
    wf_ctx *ctx;
    wf_arena arena;   /* owns the texts */
    const char *mode; /* as typed: "decode", "train", ... */
    wf_bench_section section[WF_BENCH_SECTIONS];
    int sections;
    wf_status status; /* the first failure */
} wf_bench_report;

void wf_bench_report_init(wf_bench_report *r, wf_ctx *ctx, const char *mode);
void wf_bench_report_free(wf_bench_report *r);
/* Begins a section; later cells go there, row by row. */
void wf_bench_begin(wf_bench_report *r, const char *key, const wf_bench_column *columns,
                    bool single);
/* Append a cell to the current section. A failure is remembered in r->status. */
void wf_bench_text(wf_bench_report *r, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_bench_number(wf_bench_report *r, double x);
/* Writes to stdout in the format of -o, and to the file of --json. */
wf_status wf_bench_report_write(const wf_bench_report *r);

/* ---- Flags, and the machine ---- */

typedef struct {
    int64_t prompt, generated, depth, parallel, repeats; /* -1: the mode's default */
    int64_t slots, shared;                               /* of the engine; -1: the default */
    bool logits, no_reuse;
    int64_t batch, length; /* train: sequences, tokens; -1: the mode's default */
    const char *precision;
    const char *shape; /* measure only cases whose shape contains this */
    bool ops;          /* also report each op */
    int64_t stream;    /* MB */
    bool no_peak, overwrite;
    const char *output, *json, *trace;
    const char *form;   /* train, prefill or decode; NULL: train */
    const char *beside; /* second device; NULL: none */
} wf_bench_options;
extern wf_bench_options wf_bench_set;

typedef struct {
    wf_machine machine;
    char device[64], description[256]; /* name and properties of the device */
    int threads;
    wf_device_peak one, all; /* peak with one thread and with all; NaN: not measured */
} wf_bench_machine;
/* Measures the peak, unless --no-peak or the device cannot. It uses much memory itself, so read the
 * peak of resident memory before. */
wf_status wf_bench_measure(wf_device *device, wf_bench_machine *m);
/* Adds the sections "machine" and, if measured, "peaks". */
void wf_bench_put_machine(wf_bench_report *r, const wf_bench_machine *m);

/* Returns the peak FLOP/s for operands of this type. */
double wf_bench_flops(const wf_bench_machine *m, wf_type type);
/* Adds four cells: GB/s, its share of the read peak, GFLOP/s and its share of the FMA peak. */
void wf_bench_put_rates(wf_bench_report *r, const wf_bench_machine *m, wf_type type, double bytes,
                        double flops, double seconds);
#define WF_BENCH_RATES                                                              \
    {"gb_per_s", "GB/s", WF_SHOW_TENTHS}, {"read_share", "of read", WF_SHOW_SHARE}, \
        {"gflop_per_s", "GFLOP/s", WF_SHOW_TENTHS},                                 \
    {                                                                               \
        "flop_share", "of FMA", WF_SHOW_SHARE                                       \
    }

/* ---- Modes; operands are those after the mode ---- */

wf_status wf_bench_model(wf_ctx *ctx, const char *mode, char *const *operands, int count);
wf_status wf_bench_train_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count);
wf_status wf_bench_ops_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count);
wf_status wf_bench_machine_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count);

#endif

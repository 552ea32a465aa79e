/* SPDX-License-Identifier: MIT */
/*
 * bench_ops.c - weft bench ops: measures single ops on shapes of models.
 *
 * Operands are streamed from more memory than the last-level cache holds, as in a model, where
 * every weight is read once per pass. "of floor" compares with the time that the measured peak
 * allows for the op's bytes and FLOP.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "bench/op_case.h"
#include "cli/bench.h"
#include "cli/open.h"
#include "cli/progress.h"
#include "device/choose.h"

#define SECONDS 0.25 /* minimum time of a case, unless --repetitions takes longer */

enum { WAYS = 3 }; /* layouts of the states of a case */

typedef struct {
    const wf_bench_case *c;
    wf_bench_case_result result;
    double beside; /* seconds on the other device; 0: not measured */
} measured;

#define LONG_FLOP 1e12 /* larger cases are not run on the other device */
/* Larger cases use one set of operands there: they are compute-bound. */
#define MANY_FLOP 1e10

typedef struct {
    char *const *names;
    int name_count;
    measured *row; /* [rows] each case in up to WAYS layouts */
    int rows;
    wf_bench_case_options options;
} job;

/* Returns whether the names and --shape select the case. */
static bool is_wanted(const job *t, const wf_bench_case *c)
{
    bool wanted = t->name_count == 0;
    if (wf_bench_set.shape && !strstr(c->shape, wf_bench_set.shape))
        return false;
    for (int i = 0; i < t->name_count; i++)
        wanted = wanted || strcmp(t->names[i], c->op) == 0;
    return wanted;
}

/* Checks that every name is an op with cases, and that --shape selects some. */
static wf_status check_names(wf_ctx *ctx, const job *t)
{
    for (int i = 0; i < t->name_count; i++) {
        wf_op op;
        bool found = false;
        WF_TRY(wf_find_op(ctx, t->names[i], &op));
        for (const wf_bench_case *c = wf_bench_cases; c->op; c++)
            found = found || strcmp(c->op, t->names[i]) == 0;
        if (!found)
            return wf_fail(ctx, WF_ERR_USAGE, "the op '%s' has no cases to measure", t->names[i]);
    }
    for (const wf_bench_case *c = wf_bench_cases; c->op; c++)
        if (is_wanted(t, c))
            return WF_OK;
    return wf_fail(ctx, WF_ERR_USAGE, "no case has '%s' in its shape", wf_bench_set.shape);
}

/* Measures a case with weights as stored in files, with a kernel that may round activations, and
 * with weights in the layout of the device. A variant that no kernel accepts has no row. */
static wf_status measure_case(wf_device *device, job *t, const wf_bench_case *c)
{
    const char *plain = "";
    for (int way = 0; way < (wf_bench_case_packs(device, c) ? WAYS : 1); way++) {
        measured *m = &t->row[t->rows];
        m->c = c;
        t->options.rounded = way == 1;
        t->options.packed = way == 2;
        t->options.unless = way == 1 ? plain : NULL;
        wf_status status = wf_bench_case_run(device, c, &t->options, &m->result);
        if (way == 0 && status == WF_OK)
            plain = m->result.kernel;
        if (status == WF_OK)
            t->rows += m->result.runs > 0;
        else if (status != WF_ERR_UNSUPPORTED)
            return status;
    }
    return WF_OK;
}

/* Measures the rows on another device, with weights as stored in files. Cases that it does not
 * support, or that would take long, get no time. */
static wf_status measure_beside(wf_device *device, job *t)
{
    wf_bench_case_result r;
    wf_progress progress;
    wf_status status = WF_OK;
    wf_bench_case_options options = t->options;
    device->timed = true;
    options.packed = options.rounded = false;
    options.unless = NULL;
    if (wf_bench_set.repeats < 0)
        options.repeats = 1; /* the devices differ by factors, not percents */
    wf_progress_begin(&progress, "cases on the other device", WF_PROGRESS_ITEMS, t->rows);
    for (int i = 0; i < t->rows && status == WF_OK; i++) {
        measured *m = &t->row[i];
        /* Layouts of one case are adjacent rows; the other device measures it once. */
        if (i > 0 && m->c == m[-1].c) {
            m->beside = m[-1].beside;
        } else if ((double)m->result.cost.flops <= LONG_FLOP) {
            options.streamed = (double)m->result.cost.flops > MANY_FLOP ? 0 : t->options.streamed;
            status = wf_bench_case_run(device, m->c, &options, &r);
            m->beside = status == WF_OK ? r.best : 0;
            if (status == WF_ERR_UNSUPPORTED)
                status = WF_OK;
        }
        wf_progress_update(&progress, i + 1);
    }
    wf_progress_clear(&progress);
    return status;
}

static wf_status measure(wf_device *device, job *t)
{
    wf_progress progress;
    wf_status status = WF_OK;
    int64_t all = 0, done = 0;
    for (const wf_bench_case *c = wf_bench_cases; c->op; c++)
        all += is_wanted(t, c);
    wf_progress_begin(&progress, "cases", WF_PROGRESS_ITEMS, all);
    for (const wf_bench_case *c = wf_bench_cases; c->op && status == WF_OK; c++)
        if (is_wanted(t, c)) {
            status = measure_case(device, t, c);
            wf_progress_update(&progress, ++done);
        }
    wf_progress_clear(&progress);
    return status;
}

/* Returns the type of the first operand. */
static wf_type type_of(const wf_bench_case *c)
{
    static const wf_type narrow[] = {WF_BF16, WF_F16};
    const char *text = c->operands + (c->operands[0] == '=');
    for (int i = 0; i < 2; i++) {
        const char *name = wf_type_name(narrow[i]);
        if (strncmp(text, name, strlen(name)) == 0)
            return narrow[i];
    }
    return WF_F32;
}

static void put_memory(wf_bench_report *r, const wf_device *device)
{
    static const wf_bench_column columns[] = {
        {"allocated_bytes", "allocated now", WF_SHOW_BYTES},
        {"peak_bytes", "at most", WF_SHOW_BYTES},
        {"reserve_bytes", "taken by others", WF_SHOW_BYTES},
        {0},
    };
    size_t now, peak;
    wf_device_memory(device, &now, &peak);
    wf_bench_begin(r, "memory", columns, true);
    wf_bench_number(r, (double)now);
    wf_bench_number(r, (double)peak);
    wf_bench_number(r, device->reserve > 0 ? (double)device->reserve : NAN);
}

static wf_status report(wf_ctx *ctx, const char *mode, const job *t, const wf_device *device,
                        const wf_bench_machine *m)
{
    static const wf_bench_column columns[] = {
        {"op", "op", WF_SHOW_TEXT},
        {"shape", "shape", WF_SHOW_TEXT},
        {"kernel", "kernel", WF_SHOW_TEXT},
        {"runs", NULL, WF_SHOW_WHOLE},
        {"best_us", "us", WF_SHOW_TENTHS},
        {"bytes", NULL, WF_SHOW_WHOLE},
        {"flop", NULL, WF_SHOW_WHOLE},
        WF_BENCH_RATES,
        {"floor_share", "of floor", WF_SHOW_SHARE},
        {"beside_us", "us beside", WF_SHOW_TENTHS},
        {"times_as_fast", "times as fast", WF_SHOW_TENTHS},
        {0},
    };
    wf_bench_report r;
    wf_bench_report_init(&r, ctx, mode);
    wf_bench_put_machine(&r, m);
    wf_bench_begin(&r, "results", columns, false);
    for (int i = 0; i < t->rows; i++) {
        const wf_bench_case_result *x = &t->row[i].result;
        double bytes = (double)x->cost.bytes_read + (double)x->cost.bytes_written;
        wf_bench_text(&r, "%s", t->row[i].c->op);
        wf_bench_text(&r, "%s", t->row[i].c->shape);
        wf_bench_text(&r, "%s", x->kernel);
        wf_bench_number(&r, x->runs);
        wf_bench_number(&r, x->best * 1e6);
        wf_bench_number(&r, bytes);
        wf_bench_number(&r, (double)x->cost.flops);
        wf_bench_put_rates(&r, m, type_of(t->row[i].c), bytes, (double)x->cost.flops, x->best);
        double floor = wf_peak_seconds(&m->all, type_of(t->row[i].c), &x->cost);
        wf_bench_number(&r, floor > 0 ? floor / x->best : NAN);
        wf_bench_number(&r, t->row[i].beside > 0 ? t->row[i].beside * 1e6 : NAN);
        wf_bench_number(&r, t->row[i].beside > 0 ? t->row[i].beside / x->best : NAN);
    }
    put_memory(&r, device);
    wf_status status = wf_bench_report_write(&r);
    wf_bench_report_free(&r);
    return status;
}

wf_status wf_bench_ops_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count)
{
    int cases = 0;
    wf_device *device = NULL, *other = NULL;
    wf_bench_machine machine;
    job t = {.names = operands, .name_count = count};
    WF_TRY(check_names(ctx, &t));
    while (wf_bench_cases[cases].op)
        cases++;
    t.options.repeats = wf_bench_set.repeats >= 0 ? (int)wf_bench_set.repeats : 3;
    t.options.seconds = wf_bench_set.repeats >= 0 ? 0 : SECONDS;
    t.row = wf_mem_array(ctx, (size_t)cases * WAYS, sizeof *t.row);
    wf_status status = t.row ? wf_open_device(ctx, NULL, &device) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_bench_measure(device, &machine);
    if (status == WF_OK) {
        /* Twice the cache, so that no operand is still cached when its turn comes again. */
        t.options.streamed = 2 * machine.machine.cache;
        device->timed = true;
        status = measure(device, &t);
    }
    if (status == WF_OK && wf_bench_set.beside)
        status = wf_device_open(ctx, wf_bench_set.beside, &other);
    if (status == WF_OK && other)
        status = measure_beside(other, &t);
    if (status == WF_OK)
        status = report(ctx, mode, &t, device, &machine);
    wf_device_close(other);
    wf_mem_free(ctx, t.row);
    wf_device_close(device);
    return status;
}

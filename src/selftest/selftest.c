/* SPDX-License-Identifier: MIT */
/*
 * selftest.c - runs all ops, rows, variants and types, and collects the report.
 *
 * A sample is chosen by a ticket per case, a hash of the seed and the case. Which cases run
 * therefore depends neither on their order nor on the other cases, and a failure can be repeated
 * with the same seed and `--op`.
 */
#include "selftest/selftest.h"

#include <string.h>

#include "base/mem.h"
#include "device/device.h"
#include "selftest/job.h"

/* Rows of the tables for one op; run_op asserts that they fit. */
#define ROWS_OF_ONE_OP 8

static const wf_case_row *const tables[] = {
    wf_cases_elementwise, wf_cases_source, wf_cases_shape,     wf_cases_reduce, wf_cases_rows,
    wf_cases_product,     wf_cases_norm,   wf_cases_attention, wf_cases_loss,   wf_cases_update,
};

int wf_case_rows(wf_op op, wf_case_row *rows, int cap)
{
    const wf_op_def *def = wf_op_get(op);
    int n = 0;
    if (def->flags & WF_FLAG_ELEMENTWISE) {
        bool unary = def->max_in == 1;
        if (n < cap)
            rows[n] = (wf_case_row){
                .op = op,
                .variants = unary ? wf_case_unary_variants : wf_case_binary_variants,
                .build = unary ? wf_case_build_unary : wf_case_build_binary,
                .types = def->types,
            };
        n++;
    }
    for (int t = 0; t < WF_LENGTH(tables); t++)
        for (const wf_case_row *row = tables[t]; row->build; row++)
            if (row->op == op) {
                if (n < cap)
                    rows[n] = *row;
                n++;
            }
    return n;
}

int wf_selftest_cases(wf_op op)
{
    wf_case_row rows[ROWS_OF_ONE_OP];
    int n = wf_case_rows(op, rows, ROWS_OF_ONE_OP), cases = 0;
    for (int i = 0; i < n; i++)
        for (int type = 0; type < WF_TYPE_COUNT; type++)
            cases += rows[i].types & wf_type_bit((wf_type)type) ? rows[i].variants : 0;
    return cases;
}

/* ---- Samples ---- */

/* Returns the limit of the sample: a case runs when its ticket, a hash of seed and case, is at most
 * this. */
static uint32_t sample_limit(const wf_selftest_options *o, int first, int end)
{
    int64_t all = 0;
    for (int op = first; op < end; op++)
        all += wf_selftest_cases((wf_op)op);
    if (o->sample <= 0 || o->sample >= all)
        return UINT32_MAX;
    return (uint32_t)((double)UINT32_MAX * o->sample / (double)all);
}

static uint32_t ticket_of(uint64_t seed, const wf_case_row *row, int variant, wf_type type)
{
    wf_rng rng;
    /* + 1: not the stream of the case's operands. */
    wf_rng_init(&rng, seed, wf_case_stream(row, variant, type) + 1);
    return wf_rng_u32(&rng);
}

static bool has_type(const wf_job *j, const wf_case_row *row, int type)
{
    const wf_type only = j->options->type;
    return (row->types & wf_type_bit((wf_type)type)) &&
           (only == WF_TYPE_NONE || only == (wf_type)type);
}

/* Returns the limit for one op: at least its lowest ticket, so that one case runs. */
static uint32_t op_limit(const wf_job *j, const wf_case_row *rows, int n)
{
    uint32_t least = UINT32_MAX;
    for (int i = 0; i < n && j->limit < UINT32_MAX; i++)
        for (int type = 0; type < WF_TYPE_COUNT; type++)
            for (int v = 0; has_type(j, &rows[i], type) && v < rows[i].variants; v++) {
                uint32_t ticket = ticket_of(j->options->seed, &rows[i], v, (wf_type)type);
                least = ticket < least ? ticket : least;
            }
    return least > j->limit ? least : j->limit;
}

/* ---- Runs ---- */

static wf_status run_row(wf_job *j, uint32_t limit)
{
    for (int type = 0; type < WF_TYPE_COUNT; type++)
        for (int v = 0; has_type(j, j->row, type) && v < j->row->variants; v++) {
            if (ticket_of(j->options->seed, j->row, v, (wf_type)type) > limit)
                continue;
            j->type = (wf_type)type;
            j->variant = v;
            j->stop = false;
            WF_TRY(wf_job_run(j));
        }
    return WF_OK;
}

/* Runs the cases of one op and adds its row to the report. An op without a case, or for which no
 * case ran in a complete run, is a failure: it would otherwise go untested unnoticed. */
static wf_status run_op(wf_job *j, wf_op op, wf_selftest_report *report)
{
    wf_case_row rows[ROWS_OF_ONE_OP];
    int n = wf_case_rows(op, rows, ROWS_OF_ONE_OP);
    wf_assert(n <= ROWS_OF_ONE_OP);
    wf_selftest_row *total = &report->rows[report->ops++];
    total->op = wf_op_get(op)->name;
    j->total = total;
    if (n == 0)
        report->ops_without_case[report->ops_without_case_count++] = total->op;
    const uint32_t limit = op_limit(j, rows, n);
    for (int i = 0; i < n; i++) {
        j->row = &rows[i];
        WF_TRY(run_row(j, limit));
    }
    const bool all = j->options->type == WF_TYPE_NONE && j->limit == UINT32_MAX;
    if (all && total->cases == 0 && total->failures == 0) {
        size_t len = 0;
        total->failures = 1;
        wf_text_append(total->first, sizeof total->first, &len,
                       n == 0 ? "the selftest has no case for %s"
                              : "%s: the device has no kernel for it",
                       total->op);
        if (j->options->on_failure)
            j->options->on_failure(j->options->user, total->first);
    }
    report->cases += total->cases;
    report->checks += total->checks;
    report->skipped += total->skipped;
    report->failures += total->failures;
    if (j->options->on_op)
        j->options->on_op(j->options->user, total);
    return WF_OK;
}

static wf_status run_all(wf_job *j, wf_selftest_report *report)
{
    const char *name = j->options->op;
    int only = name ? wf_op_find(name) : -1;
    if (name && only < 0)
        return wf_fail(j->ctx, WF_ERR_USAGE, "unknown op '%s'; see 'weft ops'", name);
    const int first = only < 0 ? 0 : only, end = only < 0 ? WF_OP_COUNT : only + 1;
    j->limit = sample_limit(j->options, first, end);
    for (int op = first; op < end; op++)
        WF_TRY(run_op(j, (wf_op)op, report));
    return WF_OK;
}

wf_status wf_selftest_run(wf_ctx *ctx, const wf_selftest_options *options, wf_selftest_report **out)
{
    *out = NULL;
    wf_job j = {.ctx = ctx, .options = options, .device = options->opened};
    wf_selftest_report *report = wf_mem_new(ctx, sizeof *report);
    if (!report)
        return WF_ERR_MEMORY;
    report->ctx = ctx;
    report->seed = options->seed;
    report->rows = wf_mem_array(ctx, WF_OP_COUNT, sizeof *report->rows);
    report->ops_without_case = wf_mem_array(ctx, WF_OP_COUNT, sizeof *report->ops_without_case);
    wf_status status = report->rows && report->ops_without_case ? WF_OK : WF_ERR_MEMORY;
    if (status == WF_OK && !j.device)
        status = wf_device_open(ctx, options->device ? options->device : "cpu", &j.device);
    if (status == WF_OK && options->twin)
        status = wf_device_open(ctx, options->twin, &j.twin);
    if (status == WF_OK)
        status = run_all(&j, report);
    wf_device_close(j.twin);
    if (!options->opened)
        wf_device_close(j.device);
    if (status == WF_OK)
        *out = report;
    else
        wf_selftest_report_free(report);
    return status;
}

void wf_selftest_report_free(wf_selftest_report *report)
{
    if (!report)
        return;
    wf_mem_free(report->ctx, report->rows);
    wf_mem_free(report->ctx, (void *)report->ops_without_case);
    wf_mem_free(report->ctx, report);
}

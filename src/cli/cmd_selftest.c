/* SPDX-License-Identifier: MIT */
/* cmd_selftest.c - weft selftest: compares every op of a device with the float64 reference. */
#include "selftest/selftest.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/expansion.h"

/* Failures of one op that are printed without -v: a broken kernel fails many cases alike. */
#define TOLD_PER_OP 3

static struct {
    const char *device, *op, *type, *expand, *sample_text;
    int64_t seed;   /* below 0: choose one */
    int64_t sample; /* cases, from sample_text; 0: all */
    double distort;
    bool json, verbose, fast, list; /* flags of the same names */
} options = {.device = "cpu", .seed = -1};

/* A run in progress. */
typedef struct {
    wf_json json;
    bool progress; /* show progress on stderr */
    int done, of;  /* ops */
    int told;      /* failures of the current op */
} job;

/* ---- While it runs ---- */

static void clear_progress(const job *t)
{
    if (t->progress)
        fputs("\r\033[K", stderr);
}

static void tell_failure(void *user, const char *sentence)
{
    job *t = user;
    t->told++;
    if (options.json) {
        wf_json_string(&t->json, sentence);
    } else if (options.verbose || t->told <= TOLD_PER_OP) {
        clear_progress(t);
        printf("failed: %s\n", sentence);
        fflush(stdout);
    }
}

/* Plural ending, one column wide. */
static const char *ending(int count)
{
    return count == 1 ? " " : "s";
}

/* Called after each op: prints its row or the rest of its failures, and redraws the progress. */
static void tell_op(void *user, const wf_selftest_row *row)
{
    job *t = user;
    clear_progress(t);
    if (options.verbose && !options.json)
        printf("%-20s %5d case%s %6d check%s %4d failure%s  worst error %.3f of its bound\n",
               row->op, row->cases, ending(row->cases), row->checks, ending(row->checks),
               row->failures, ending(row->failures), row->worst);
    else if (t->told > TOLD_PER_OP && !options.json)
        printf("failed: %s, %d more time%s; -v shows all\n", row->op, t->told - TOLD_PER_OP,
               WF_PLURAL(t->told - TOLD_PER_OP));
    fflush(stdout);
    t->told = 0;
    t->done++;
    if (t->progress)
        fprintf(stderr, "%d of %d ops, %s done", t->done, t->of, row->op);
}

/* ---- Text ---- */

static void print_closing(const wf_selftest_report *r, double seconds)
{
    int failed = 0;
    for (int i = 0; i < r->ops; i++)
        failed += r->rows[i].failures > 0;
    printf("selftest: %d case%s%s of %d op%s on %s in %.1f s, seed %lld: ", r->cases,
           WF_PLURAL(r->cases), options.sample > 0 ? " (a sample)" : "", r->ops, WF_PLURAL(r->ops),
           options.device, seconds, (long long)options.seed);
    if (r->skipped > 0)
        printf("%d skipped, ", r->skipped);
    if (r->failures == 0)
        puts("all passed");
    else
        printf("%d failure%s in %d op%s\n", r->failures, WF_PLURAL(r->failures), failed,
               WF_PLURAL(failed));
}

/* ---- JSON: failures are streamed, so the counts come after them ---- */

static void begin_json(wf_json *j, const char *description)
{
    wf_json_begin(j, stdout);
    wf_json_object_begin(j);
    wf_json_key(j, "selftest");
    wf_json_object_begin(j);
    wf_json_key(j, "device");
    wf_json_string(j, options.device);
    wf_json_key(j, "description");
    wf_json_string(j, description);
    wf_version_json(j);
    wf_json_key(j, "command");
    wf_json_string(j, wf_command_line());
    wf_json_key(j, "seed");
    wf_json_int(j, options.seed);
    if (options.sample > 0) {
        wf_json_key(j, "sample");
        wf_json_int(j, options.sample);
    }
    wf_json_key(j, "failed");
    wf_json_array_begin(j);
}

static void put_count(wf_json *j, const char *key, int count)
{
    wf_json_key(j, key);
    wf_json_int(j, count);
}

static void put_report(wf_json *j, const wf_selftest_report *r, double seconds)
{
    wf_json_key(j, "seconds");
    wf_json_double(j, seconds);
    put_count(j, "cases", r->cases);
    put_count(j, "checks", r->checks);
    put_count(j, "skipped", r->skipped);
    put_count(j, "failures", r->failures);
    wf_json_key(j, "ops");
    wf_json_array_begin(j);
    for (int i = 0; i < r->ops; i++) {
        wf_json_object_begin(j);
        wf_json_key(j, "op");
        wf_json_string(j, r->rows[i].op);
        put_count(j, "cases", r->rows[i].cases);
        put_count(j, "checks", r->rows[i].checks);
        put_count(j, "skipped", r->rows[i].skipped);
        put_count(j, "failures", r->rows[i].failures);
        wf_json_key(j, "worst_ratio");
        wf_json_double(j, r->rows[i].worst);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
}

/* Completes the document, also when the harness failed and there is no report. */
static void end_json(wf_json *j, const wf_selftest_report *r, double seconds, const char *error)
{
    wf_json_array_end(j);
    if (r) {
        put_report(j, r, seconds);
    } else {
        wf_json_key(j, "error");
        wf_json_string(j, error);
    }
    wf_json_object_end(j);
    wf_json_object_end(j);
    wf_json_end(j);
}

/* ---- The command ---- */

/* Prints the cases of a device that supports every combination of types. */
static void list_cases(void)
{
    int cases = 0;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        printf("%-25s %5d case%s\n", wf_op_get((wf_op)op)->name, wf_selftest_cases((wf_op)op),
               WF_PLURAL(wf_selftest_cases((wf_op)op)));
        cases += wf_selftest_cases((wf_op)op);
    }
    printf("%d cases of %d ops\n", cases, WF_OP_COUNT);
}

/* Sets options.sample from a number of cases, or from a percentage of the cases of [first, end), rounded up. */
static wf_status read_sample(wf_ctx *ctx, int first, int end)
{
    const char *text = options.sample_text;
    char *rest;
    if (!text)
        return WF_OK;
    errno = 0;
    long long number = strtoll(text, &rest, 10);
    bool percent = strcmp(rest, "%") == 0;
    if (text[0] < '0' || text[0] > '9' || errno == ERANGE || (*rest && !percent) ||
        (percent && (number < 1 || number > 100)))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--sample must be a whole number >= 0, or 1%% to 100%%, not '%s'", text);
    int64_t cases = 0;
    for (int op = first; op < end; op++)
        cases += wf_selftest_cases((wf_op)op);
    options.sample = percent ? (cases * number + 99) / 100 : number;
    return WF_OK;
}

/* Opens the device and prints what will be tested; prints nothing if the device does not open. The device stays
 * open for the test: opened again, it might have another seed. */
static wf_status begin(wf_ctx *ctx, job *t, wf_device **device)
{
    WF_TRY(wf_device_open(ctx, options.device, device));
    wf_device_allow_nondeterministic(*device, options.fast);
    wf_status status = wf_expand_ops(ctx, *device, options.expand);
    if (status != WF_OK) {
        wf_device_close(*device);
        return status;
    }
    const char *description = wf_device_description(*device);
    if (options.json)
        begin_json(&t->json, description);
    else
        printf("selftest: %s (%s), seed %lld\n", options.device, description,
               (long long)options.seed);
    fflush(stdout); /* print the seed even if the device crashes the program */
    return WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    (void)operands, (void)count;
    wf_op op = (wf_op)0;
    if (options.op)
        WF_TRY(wf_find_op(ctx, options.op, &op));
    WF_TRY(read_sample(ctx, op, options.op ? (int)op + 1 : WF_OP_COUNT));
    if (options.type && wf_type_from_name(options.type) == WF_TYPE_NONE)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown type '%s'; use a type such as f32 or bf16",
                       options.type);
    if (options.list) {
        const wf_given unused[] = {{"op", options.op},
                                   {"type", options.type},
                                   {"seed", options.seed >= 0},
                                   {"sample", options.sample_text},
                                   {"distort", options.distort != 0},
                                   {"expand", options.expand},
                                   {"json", options.json}};
        WF_TRY(wf_flags_refuse(ctx, unused, 7, "has no effect with --list; leave it out"));
        list_cases();
        return WF_OK;
    }
    if (options.seed < 0)
        options.seed = wf_fresh_seed();

    job t = {.of = options.op ? 1 : WF_OP_COUNT};
    /* Progress would interleave with results on the same terminal. */
    bool mixed = isatty(STDOUT_FILENO) && (options.json || options.verbose);
    t.progress = isatty(STDERR_FILENO) && !mixed;
    wf_device *device;
    WF_TRY(begin(ctx, &t, &device));

    wf_selftest_options o = {
        .device = options.device,
        .opened = device,
        .op = options.op,
        .type = options.type ? wf_type_from_name(options.type) : WF_TYPE_NONE,
        .seed = (uint64_t)options.seed,
        .sample = options.sample < INT_MAX ? (int)options.sample : 0,
        .on_op = tell_op,
        .on_failure = tell_failure,
        .user = &t,
        .distort_forward = options.distort,
        .distort_gradient = options.distort,
    };
    wf_selftest_report *report;
    uint64_t start = wf_clock_ns();
    wf_status status = wf_selftest_run(ctx, &o, &report);
    double seconds = (double)(wf_clock_ns() - start) / 1e9;
    clear_progress(&t);
    if (options.json)
        end_json(&t.json, report, seconds, wf_ctx_message(ctx));
    else if (report)
        print_closing(report, seconds);
    if (status == WF_OK && report->failures > 0)
        status = wf_fail(ctx, WF_ERR_DEVICE, "%d failure%s on %s", report->failures,
                         WF_PLURAL(report->failures), options.device);
    wf_selftest_report_free(report);
    wf_device_close(device);
    return status;
}

static const wf_flag flags[] = {
    {"device", 'd', "D", "the device to test, such as cpu, cpu:2, check or pjrt:PLUGIN.so",
     .text = &options.device, .offer = {.words = wf_device_words}},
    WF_FLAG_FAST(&options.fast),
    {"op", 0, "OP", "test only this op", .text = &options.op, .offer = {.words = wf_op_words}},
    {"type", 0, "TYPE", "test only cases of this type, such as bf16", .text = &options.type,
     .offer = {.words = wf_type_words}},
    {"seed", 's', "S", "random seed of the operands; a seed reproduces a run",
     .whole = &options.seed, .fallback = "a fresh seed"},
    {"sample", 0, "N",
     "run about N cases, or a percentage such as 25%, chosen by the seed, with at least one for each op",
     .text = &options.sample_text, .fallback = "all cases"},
    {"expand", 0, "OPS", "expand these ops, such as glu,softmax, or all, even if a kernel fits",
     .text = &options.expand, .offer = {.words = wf_op_words}},
    {"list", 0, NULL, "print the number of cases of each op and exit", .on = &options.list},
    {"distort", 0, "E", "add this relative error to the reference, so that the test fails",
     .real = &options.distort, .range = ","},
    {"verbose", 'v', NULL, "print a line for each op, and every failure", .on = &options.verbose},
    WF_FLAG_JSON(&options.json),
    {0},
};

const wf_command wf_cmd_selftest = {
    .name = "selftest",
    .doc = "compare every op of a device with the float64 reference",
    .operands = "",
    .details =
        "Compares the result, gradients and expansion of every op and type with a float64 "
        "reference, and repeats each run to check that its bits are the same.\n\n"
        "Devices that compile whole graphs skip cases that make no difference to them (views, "
        "results that are read alone). Expanded ops have the error bounds of expansions.",
    .examples = {"weft selftest", "weft selftest --device cuda --op attention",
                 "weft selftest --type bf16 --sample 25%"},
    .flags = flags,
    .run = run,
};

/* SPDX-License-Identifier: MIT */
/* bench_train.c - weft bench train: measures training steps of an example. */
#include <math.h>
#include <string.h>

#include "bench/trace.h"
#include "bench/train.h"
#include "cli/bench.h"
#include "cli/open.h"
#include "cli/progress.h"

typedef struct {
    wf_bench_train train;
    wf_bench_profile profile;
    wf_bench_times times; /* of the measured steps */
    int repeats;
    float first_loss, last_loss;
    size_t planned, allocated, reserve; /* bytes; allocated is the peak of the device */
    uint64_t resident;                  /* peak bytes of the process */
} job;

/* Fills in the flags and their defaults. */
static wf_status choose(wf_ctx *ctx, job *t, const char *example)
{
    static const wf_type types[] = {WF_F32, WF_BF16, WF_F16};
    const wf_bench_options *o = &wf_bench_set;
    wf_bench_train *b = &t->train;
    WF_TRY(wf_example_find(ctx, example, &b->example));
    static const char *const forms[] = {"train", "prefill", "decode"};
    const char *form = o->form ? o->form : "train";
    int found = -1;
    for (int i = 0; i < 3; i++)
        found = strcmp(form, forms[i]) == 0 ? i : found;
    if (found < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "--form must be train, prefill or decode, not '%s'",
                       form);
    b->form = (wf_example_form)found;
    b->batch = o->batch >= 0 ? o->batch : b->form == WF_EXAMPLE_TRAIN ? 4 : 1;
    b->length = o->length >= 0 ? o->length : 64;
    t->repeats = o->repeats >= 0 ? (int)o->repeats : 3;
    const char *precision = o->precision ? o->precision : "f32";
    for (int i = 0; i < 3; i++)
        if (wf_type_from_name(precision) == types[i])
            b->compute = types[i];
    if (b->compute == WF_TYPE_NONE)
        return wf_fail(ctx, WF_ERR_USAGE, "--precision must be f32, bf16 or f16, not '%s'",
                       precision);
    return WF_OK;
}

/* Runs one warmup step and `repeats` measured ones. */
static wf_status measure(job *t, wf_progress *progress)
{
    for (int i = 0; i <= t->repeats; i++) { /* the first is a warmup: it touches all memory */
        double seconds;
        WF_TRY(wf_bench_train_step(&t->train, &seconds, &t->last_loss));
        if (i == 0)
            t->first_loss = t->last_loss;
        else
            wf_bench_times_add(&t->times, seconds);
        wf_progress_update(progress, i + 1);
    }
    return WF_OK;
}

/* Runs further steps in which the device times each op, which may slow it down. */
static wf_status measure_ops(wf_device *device, job *t)
{
    double seconds;
    float loss;
    device->timed = true;
    WF_TRY(wf_bench_train_step(&t->train, &seconds, &loss));
    wf_bench_profile_start(&t->profile);
    for (int i = 0; i < t->repeats; i++)
        WF_TRY(wf_bench_train_step(&t->train, &seconds, &loss));
    wf_bench_profile_end(&t->profile, t->repeats);
    device->timed = false;
    return wf_bench_set.trace ? wf_bench_trace_write(t->train.exec, wf_bench_set.trace) : WF_OK;
}

/* Opens the example, runs the steps, and records memory before the machine's peak is measured. */
static wf_status train(wf_device *device, job *t)
{
    wf_memory memory;
    wf_progress progress;
    static const char *const what[] = {"a training step", "a prompt", "a token"};
    wf_open_say("%s, %s of %lld x %lld token%s in %s on %s", t->train.example->name,
                what[t->train.form], (long long)t->train.batch, (long long)t->train.length,
                WF_PLURAL(t->train.batch * t->train.length), wf_type_name(t->train.compute),
                wf_device_description(device));
    WF_TRY(wf_bench_train_open(device, &t->train));
    WF_TRY(wf_bench_profile_new(&t->train.exec, 1, &t->profile));
    WF_TRY(wf_bench_profile_cost(&t->profile, t->train.graph, NULL));
    wf_exec_memory(t->train.exec, &memory);
    t->planned = memory.states + memory.ports + memory.activations;
    wf_progress_begin(&progress, "steps", WF_PROGRESS_ITEMS, t->repeats + 1);
    wf_status status = measure(t, &progress);
    wf_progress_clear(&progress);
    if (status == WF_OK && (wf_bench_set.ops || wf_bench_set.trace))
        status = measure_ops(device, t);
    size_t now;
    wf_device_memory(device, &now, &t->allocated);
    t->reserve = device->reserve;
    t->resident = wf_machine_peak_resident();
    return status;
}

/* ---- Reporting ---- */

static void put_training(wf_bench_report *r, const job *t)
{
    static const wf_bench_column columns[] = {
        {"example", "example", WF_SHOW_TEXT},
        {"precision", "precision", WF_SHOW_TEXT},
        {"batch", "sequences", WF_SHOW_WHOLE},
        {"length_tokens", "of tokens", WF_SHOW_WHOLE},
        {"parameters", "parameters", WF_SHOW_WHOLE},
        {"first_loss", "first loss", WF_SHOW_THOUSANDTHS},
        {"last_loss", "last loss", WF_SHOW_THOUSANDTHS},
        {"fast", "--fast", WF_SHOW_TEXT},
        {"planned_bytes", "planned memory", WF_SHOW_BYTES},
        {"allocated_bytes", "allocated, at most", WF_SHOW_BYTES},
        {"reserve_bytes", "taken by others", WF_SHOW_BYTES},
        {"peak_resident_bytes", "peak resident", WF_SHOW_BYTES},
        {0},
    };
    const wf_bench_train *b = &t->train;
    wf_bench_begin(r, "training", columns, true);
    wf_bench_text(r, "%s", b->example->name);
    wf_bench_text(r, "%s", wf_type_name(b->compute));
    wf_bench_number(r, (double)b->batch);
    wf_bench_number(r, (double)b->length);
    wf_bench_number(r, (double)b->parameters);
    wf_bench_number(r, t->first_loss);
    wf_bench_number(r, t->last_loss);
    wf_bench_text(r, "%s", wf_open_set.fast ? "yes" : "no");
    wf_bench_number(r, (double)t->planned);
    wf_bench_number(r, (double)t->allocated);
    wf_bench_number(r, t->reserve > 0 ? (double)t->reserve : NAN);
    wf_bench_number(r, t->resident > 0 ? (double)t->resident : NAN);
}

static void put_steps(wf_bench_report *r, const job *t, const wf_bench_machine *m)
{
    static const wf_bench_column columns[] = {
        {"steps", "steps", WF_SHOW_WHOLE},
        {"ms_per_step_median", "ms/step", WF_SHOW_TENTHS},
        {"ms_per_step_best", "best", WF_SHOW_TENTHS},
        {"tokens_per_s", "tokens/s", WF_SHOW_TENTHS},
        {"gflop", "GFLOP", WF_SHOW_HUNDREDTHS},
        {"gflop_per_s", "GFLOP/s", WF_SHOW_TENTHS},
        {"flop_share", "of FMA", WF_SHOW_SHARE},
        {0},
    };
    const double median = wf_bench_times_median(&t->times);
    wf_bench_begin(r, "results", columns, false);
    wf_bench_number(r, t->times.count);
    wf_bench_number(r, median * 1e3);
    wf_bench_number(r, wf_bench_times_best(&t->times) * 1e3);
    wf_bench_number(r, (double)t->train.tokens / median);
    wf_bench_number(r, t->train.flops / 1e9);
    wf_bench_number(r, t->train.flops / median / 1e9);
    wf_bench_number(r, t->train.flops / median / wf_bench_flops(m, t->train.compute));
}

/* Shares are relative to the time in kernels. */
static void put_ops(wf_bench_report *r, const job *t, const wf_bench_machine *m)
{
    static const wf_bench_column columns[] = {
        {"op", "op", WF_SHOW_TEXT},
        {"kernel", "kernel", WF_SHOW_TEXT},
        {"launches", "launches", WF_SHOW_WHOLE},
        {"ms", "ms", WF_SHOW_HUNDREDTHS},
        {"time_share", "time", WF_SHOW_SHARE},
        WF_BENCH_RATES,
        {0},
    };
    double all = 0;
    wf_bench_begin(r, "ops", columns, false);
    for (int i = 0; i < t->profile.count; i++)
        all += t->profile.op[i].seconds;
    for (int i = 0; i < t->profile.count; i++) {
        const wf_bench_op *o = &t->profile.op[i];
        wf_bench_text(r, "%s", o->op);
        wf_bench_text(r, "%s", o->kernel);
        wf_bench_number(r, o->launches);
        wf_bench_number(r, o->seconds * 1e3);
        wf_bench_number(r, o->seconds / all);
        wf_bench_put_rates(r, m, t->train.compute,
                           (double)o->cost.bytes_read + (double)o->cost.bytes_written,
                           (double)o->cost.flops, o->seconds);
    }
}

static wf_status report(wf_ctx *ctx, const char *mode, wf_device *device, const job *t)
{
    wf_bench_machine machine;
    wf_bench_report r;
    WF_TRY(wf_bench_measure(device, &machine));
    wf_bench_report_init(&r, ctx, mode);
    wf_bench_put_machine(&r, &machine);
    put_training(&r, t);
    put_steps(&r, t, &machine);
    if (wf_bench_set.ops)
        put_ops(&r, t, &machine);
    wf_status status = wf_bench_report_write(&r);
    wf_bench_report_free(&r);
    return status;
}

wf_status wf_bench_train_mode(wf_ctx *ctx, const char *mode, char *const *operands, int count)
{
    job t = {0};
    wf_device *device;
    WF_TRY(choose(ctx, &t, count > 0 ? operands[0] : "gpt2-124M"));
    WF_TRY(wf_open_device(ctx, NULL, &device));
    wf_status status = train(device, &t);
    if (status == WF_OK)
        status = report(ctx, mode, device, &t);
    wf_bench_profile_free(&t.profile);
    wf_bench_train_close(&t.train);
    wf_device_close(device);
    return status;
}

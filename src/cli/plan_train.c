/* SPDX-License-Identifier: MIT */
/* plan_train.c - weft plan --train: memory and time of a training run, and cheaper alternatives. */
#include <string.h>

#include "base/machine.h"
#include "cli/open.h"
#include "cli/plan.h"
#include "cli/train.h"
#include "train/fit.h"

#define PEAK_BYTES ((size_t)256 << 20) /* buffer for the bandwidth measurement */

typedef struct {
    wf_device *device;
    const wf_setup *setup;
    wf_device_peak peak;
    wf_choice choice[WF_MAX_CHOICES]; /* the first is the given setup */
    int count;
    size_t limit;   /* bytes; 0: unknown */
    size_t reserve; /* bytes used by the program and libraries */
} view;

/* ---- Text ---- */

typedef struct {
    const char *name, *remark;
    size_t bytes;
} part;
/* At least the number of rows in list_parts; unused rows have no name. */
#define MOST_PARTS 9

/* Lists the parts of the plan that are not empty; returns their number. */
static int list_parts(const wf_setup_plan *p, part *out)
{
    const part all[MOST_PARTS] = {
        {"weights", "f32, and frozen weights that cannot be mapped", p->weights},
        {"gradients", "accumulated over the batches of a step", p->gradients},
        {"moments", "of the optimizer", p->moments},
        {"averages", "of the weights", p->averages},
        {"samples", "keys and values", p->samples},
        {"other states", "loss scale, counters, frequencies", p->others},
        {"activations", "one region, with workspace, for all graphs", p->memory.region},
        {"ports", "inputs and outputs", p->memory.ports},
    };
    int n = 0;
    for (int i = 0; i < MOST_PARTS; i++)
        if (all[i].name && all[i].bytes > 0)
            out[n++] = all[i];
    return n;
}

static void print_memory(const view *v)
{
    const wf_setup_plan *p = &v->choice[0].plan;
    part parts[MOST_PARTS];
    int n = list_parts(p, parts);
    puts("memory, in bytes:");
    for (int i = 0; i < n; i++)
        wf_plan_line(parts[i].name, parts[i].bytes, parts[i].remark);
    wf_plan_line("total", p->total, "allocated on the device");
    if (p->memory.mapped)
        wf_plan_line("mapped", p->memory.mapped, "weights mapped from the file");
    if (v->reserve)
        wf_plan_line("reserve", v->reserve, "used by the program and libraries, measured");
    if (v->limit)
        wf_plan_line("available", v->limit, p->total <= v->limit ? "it fits" : "it does not fit");
}

static void print_seconds(double seconds, char *buf, size_t cap)
{
    if (seconds <= 0)
        snprintf(buf, cap, "-");
    else if (seconds < 1)
        snprintf(buf, cap, "%.0f ms", seconds * 1e3);
    else
        snprintf(buf, cap, "%.1f s", seconds);
}

/* The first alternative is the setup as given; the arrow marks what --fit would choose. */
static void print_choices(const view *v)
{
    const wf_choice *best = wf_fit_best(v->setup, v->choice, v->count);
    puts("\nalternatives with the same tokens per step:");
    for (int i = 0; i < v->count; i++) {
        const wf_choice *c = &v->choice[i];
        char words[96], bytes[32], seconds[32];
        print_seconds(c->plan.seconds, seconds, sizeof seconds);
        printf("  %-56s %10s  %8s%s%s\n", wf_fit_words(c, words, sizeof words),
               wf_plan_bytes(c->plan.total, bytes, sizeof bytes), seconds,
               v->limit && !c->fits ? "  does not fit" : "",
               c == best && i > 0 ? "  <- --fit" : "");
    }
}

static void print_all(const view *v)
{
    const wf_setup *s = v->setup;
    const wf_train_options *o = &s->options;
    const wf_setup_plan *p = &v->choice[0].plan;
    char count[16], trained[16], bytes[32], seconds[32];
    printf("training %s parameters", wf_open_count(s->parameters, count, sizeof count));
    if (s->adapter)
        printf(", %s in adapters", wf_open_count(s->trained, trained, sizeof trained));
    printf(": steps of %lld x %lld x %lld token%s in %s with %s, on %s\n\n",
           (long long)o->accumulate, (long long)o->batch, (long long)o->length,
           WF_PLURAL(o->accumulate * o->batch * o->length), wf_type_name(o->compute), o->optimizer,
           wf_device_description(v->device));
    print_memory(v);
    print_seconds(p->seconds, seconds, sizeof seconds);
    printf("\nper step: %.3g TFLOP, %s read and written", p->flops / 1e12,
           wf_plan_bytes((uint64_t)p->bytes, bytes, sizeof bytes));
    if (p->seconds > 0)
        printf("; at least %s, at most %.0f tokens/s", seconds,
               (double)(o->batch * o->length * o->accumulate) / p->seconds);
    puts("");
    print_choices(v);
}

/* ---- JSON ---- */

static void put_plan(wf_json *j, const wf_setup_plan *p)
{
    const struct {
        const char *key;
        size_t bytes;
    } parts[] = {{"weights", p->weights},      {"gradients", p->gradients},
                 {"moments", p->moments},      {"averages", p->averages},
                 {"samples", p->samples},      {"other_states", p->others},
                 {"states", p->memory.states}, {"activations", p->memory.region},
                 {"ports", p->memory.ports},   {"mapped", p->memory.mapped},
                 {"total", p->total}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        wf_json_put_int(j, parts[i].key, (int64_t)parts[i].bytes);
    wf_json_key(j, "flops");
    wf_json_double(j, p->flops);
    wf_json_key(j, "bytes");
    wf_json_double(j, p->bytes);
    wf_json_key(j, "seconds");
    wf_json_double(j, p->seconds);
}

static void put_choice(wf_json *j, const wf_choice *c)
{
    wf_json_object_begin(j);
    wf_json_put_int(j, "batch", c->batch);
    wf_json_put_int(j, "accumulate", c->accumulate);
    wf_json_put_int(j, "recompute", c->recompute);
    wf_json_put_int(j, "lora", c->lora);
    wf_json_key(j, "compute");
    wf_json_string(j, wf_type_name(c->compute));
    wf_json_key(j, "fits");
    wf_json_bool(j, c->fits);
    put_plan(j, &c->plan);
    wf_json_object_end(j);
}

static void print_json(const view *v)
{
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    wf_json_key(&j, "device");
    wf_json_string(&j, wf_device_description(v->device));
    wf_json_put_int(&j, "parameters", v->setup->parameters);
    wf_json_put_int(&j, "trained", v->setup->trained);
    wf_json_put_int(&j, "available", (int64_t)v->limit);
    wf_json_put_int(&j, "reserve", (int64_t)v->reserve);
    wf_json_key(&j, "choices");
    wf_json_array_begin(&j);
    for (int i = 0; i < v->count; i++)
        put_choice(&j, &v->choice[i]);
    wf_json_array_end(&j);
    wf_json_object_end(&j);
    wf_json_end(&j);
}

/* ---- The whole ---- */

static wf_status show(view *v, bool json)
{
    wf_device *d = v->device;
    v->reserve = d->reserve ? d->reserve : (size_t)wf_machine_peak_resident();
    if (!v->limit)
        v->limit = wf_device_available(d);
    WF_TRY(wf_device_measure(d, PEAK_BYTES, &v->peak));
    WF_TRY(wf_fit_choices(v->setup, d, &v->peak, v->limit, v->choice, &v->count));
    if (json)
        print_json(v);
    else
        print_all(v);
    return WF_OK;
}

wf_status wf_plan_train(wf_ctx *ctx, const wf_run_options *o, int64_t vocab, bool json,
                        bool explain)
{
    static view v;
    wf_setup setup;
    v = (view){.setup = &setup, .limit = o->memory};
    wf_status status = wf_train_guess(ctx, o, vocab, &setup);
    const wf_auto_work work = wf_auto_training(&setup);
    if (status == WF_OK)
        status = wf_train_device(ctx, &work, &v.device);
    if (status == WF_OK)
        status = show(&v, json);
    if (status == WF_OK && explain)
        wf_auto_explain();
    wf_device_close(v.device);
    wf_setup_free(&setup);
    return status;
}

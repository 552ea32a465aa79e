/* SPDX-License-Identifier: MIT */
/* plan_run.c - weft plan MODEL: memory and speed of running a model. */
#include <string.h>

#include "base/machine.h"
#include "cli/open.h"
#include "cli/plan.h"
#include "cli/train.h"
#include "infer/engine.h"

#define PEAK_BYTES ((size_t)256 << 20) /* buffer of the bandwidth measurement */

/* Names the types for which a device decodes weights to f32 when it loads them. */
static void note_decoded(const wf_model *m, const wf_device *device)
{
    char stored[32], file[32];
    size_t before = 0, after = 0;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (device->ops->stored_type(w->type) == w->type)
            continue;
        before += wf_weight_stored_bytes(w);
        after += wf_device_value_bytes(device, w->type, &w->shape);
    }
    if (before)
        printf(
            "note: this device decodes quantized weights to f32 when it loads them: %s instead of "
            "%s\n",
            wf_plan_bytes(after, stored, sizeof stored), wf_plan_bytes(before, file, sizeof file));
}

wf_type_set wf_plan_generic(const wf_model *m, const wf_device *device)
{
    wf_type_set types = 0;
    /* Such a device decodes these types on loading, so it needs no kernels for them. */
    if (device && device->ops->stored_type)
        return 0;
    for (int i = 0; i < m->weights; i++)
        if (wf_type_get(m->weight[i].type)->generic)
            types |= wf_type_bit(m->weight[i].type);
    return types;
}

void wf_plan_note_types(const wf_model *m, const wf_device *device)
{
    if (device && device->ops->stored_type)
        note_decoded(m, device);
    wf_plan_note_generic(wf_plan_generic(m, device));
}

typedef struct {
    const wf_model *model;
    wf_model_info info;
    wf_device *device; /* owned */
    wf_engine_options options;
    bool serve, fit;
    bool measured; /* the limit is what was free, not a flag */
    wf_memory memory;
    size_t kv;                    /* bytes of the pools; part of the states */
    size_t total, limit, reserve; /* bytes; limit 0: unknown */
    double token;                 /* minimum seconds per token; 0: unknown */
} view;

/* Returns "in f16, 65536 tokens: 512 for each sequence if all run". */
static const char *cache_remark(const view *v, char *buf, size_t cap)
{
    size_t len = 0;
    const int64_t tokens = v->options.cache, each = tokens / v->options.sequences;
    buf[0] = '\0';
    wf_text_append(buf, cap, &len, "in %s, %lld token%s", wf_open_kv_name(v->options.kv),
                   (long long)tokens, WF_PLURAL(tokens));
    if (each < v->options.context)
        wf_text_append(buf, cap, &len, ": %lld for each sequence if all run", (long long)each);
    return buf;
}

static void print_text(const view *v)
{
    const wf_memory *m = &v->memory;
    char count[16], remark[96];
    printf("running %s: %s parameters, %lld x %lld token%s, on %s\n\nmemory, in bytes:\n",
           WF_FOREIGN(v->info.name), wf_open_count(v->info.parameters, count, sizeof count),
           (long long)v->options.sequences, (long long)v->options.context,
           WF_PLURAL(v->options.sequences * v->options.context), wf_device_description(v->device));
    if (v->serve) {
        wf_plan_line("KV cache", v->kv, cache_remark(v, remark, sizeof remark));
        wf_plan_line("weights", m->states - v->kv, "copied");
    } else {
        wf_plan_line("states", m->states, "KV cache and copied weights");
    }
    wf_plan_line("activations", m->activations, "with workspace");
    wf_plan_line("ports", m->ports, "inputs and outputs of the largest batch");
    wf_plan_line("total", v->total, "allocated on the device");
    wf_plan_line("mapped", m->mapped, "weights mapped from the file");
    if (v->reserve)
        wf_plan_line("reserve", v->reserve, "used by the program and libraries, measured");
    if (v->limit)
        wf_plan_line("available", v->limit, v->total <= v->limit ? "it fits" : "it does not fit");
    printf("\nper token: %.3g GFLOP; every weight is read once", 2e-9 * (double)v->info.parameters);
    if (v->token > 0)
        printf(", so at most %.1f tokens/s", 1 / v->token);
    puts("");
    if (v->limit && v->total > v->limit)
        puts(v->serve ? "to save memory: --fit, fewer tokens in the KV cache (--cache-tokens) or "
                        "another type (--cache-type-k q8_0)"
                      : "to save memory: a shorter context (--ctx-size) or fewer sequences "
                        "(--parallel)");
    wf_plan_note_types(v->model, v->device);
}

static void print_json(const view *v)
{
    const wf_memory *m = &v->memory;
    const struct {
        const char *key;
        size_t value;
    } parts[] = {{"states", m->states},
                 {"activations", m->activations},
                 {"ports", m->ports},
                 {"mapped", m->mapped},
                 {"total", v->total},
                 {"available", v->limit},
                 {"reserve", v->reserve},
                 {"context", (size_t)v->options.context},
                 {"sequences", (size_t)v->options.sequences},
                 {"cache_tokens", (size_t)v->options.cache},
                 {"kv", v->kv},
                 {"parameters", (size_t)v->info.parameters}};
    wf_json j;
    wf_json_begin(&j, stdout);
    wf_json_object_begin(&j);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        wf_json_key(&j, parts[i].key);
        wf_json_int(&j, (int64_t)parts[i].value);
    }
    wf_json_key(&j, "seconds_per_token");
    wf_json_double(&j, v->token);
    wf_plan_put_generic(&j, wf_plan_generic(v->model, v->device));
    wf_json_object_end(&j);
    wf_json_end(&j);
}

static wf_status plan(view *v)
{
    const wf_engine_options wanted = v->options;
    const size_t most = v->measured ? v->limit - v->limit / 16 : v->limit; /* others need some */
    if (v->fit)
        WF_TRY(wf_engine_fit(v->device, v->model, &wanted, most, &v->options, &v->memory));
    else
        WF_TRY(wf_engine_plan(v->device, v->model, &v->options, &v->memory));
    WF_TRY(wf_engine_limits(v->model, &v->options, &v->options.context, &v->kv));
    if (v->options.cache == 0)
        v->options.cache = wf_engine_whole_cache(v->options.sequences, v->options.context);
    return WF_OK;
}

static wf_status show(view *v, bool json)
{
    wf_device *d = v->device;
    /* What the process holds already, if the device does not measure it. */
    v->reserve = d->reserve ? d->reserve : (size_t)wf_machine_peak_resident();
    v->measured = !v->limit;
    if (v->measured)
        v->limit = wf_device_available(d);
    if (v->fit && !v->limit)
        return wf_fail(v->model->ctx, WF_ERR_USAGE,
                       "the device does not report its memory, so --fit needs --memory");
    WF_TRY(plan(v));
    v->total = v->memory.states + v->memory.activations + v->memory.ports;
    wf_device_peak peak;
    WF_TRY(wf_device_measure(d, PEAK_BYTES, &peak));
    /* Decoding reads every weight once per token, so bandwidth bounds it. */
    v->token = peak.read > 0 ? (double)v->info.bytes / peak.read : 0;
    if (json)
        print_json(v);
    else
        print_text(v);
    return WF_OK;
}

wf_status wf_plan_run(wf_ctx *ctx, const char *path, const wf_plan_run_options *o, bool json)
{
    wf_model *model;
    view v = {.limit = o->memory};
    WF_TRY(wf_model_open(ctx, path, &model));
    wf_model_get_info(model, &v.info);
    v.model = model;
    int64_t usual = v.info.context < 4096 ? v.info.context : 4096;
    v.serve = o->serve;
    v.fit = o->fit;
    v.options = (wf_engine_options){.sequences = o->sequences > 0 ? o->sequences
                                                 : o->fit         ? 0
                                                                  : 1,
                                    .cache = o->cache > 0 ? o->cache : 0};
    v.options.context = o->context > 0 ? o->context : o->context == 0 ? v.info.context : usual;
    if (o->fit && o->context < 0)
        v.options.context = 0;
    wf_auto_model work_model = {model, &v.options, (double)v.info.bytes};
    const wf_auto_work work = wf_auto_running(&work_model);
    wf_status status = wf_open_kv(ctx, o->kv, &v.options.kv);
    if (status == WF_OK)
        status = wf_open_compute(ctx, o->compute, &v.options.compute);
    if (status == WF_OK)
        status = wf_train_device(ctx, &work, &v.device);
    if (status == WF_OK)
        status = show(&v, json);
    wf_device_close(v.device);
    wf_model_close(model);
    return status;
}

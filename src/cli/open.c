/* SPDX-License-Identifier: MIT */
/*
 * open.c - see open.h.
 *
 * Opening is split from loading, so that commands can refuse bad arguments within milliseconds:
 * wf_open_model maps the model and opens the device, wf_open_load plans, allocates and compiles.
 */
#include "cli/open.h"

#include <string.h>

#include "cli/lora.h"
#include "cli/plan.h"
#include "infer/engine.h"

/* Tokens. A model with a longer context would reserve much more memory for the KV cache. */
#define DEFAULT_CONTEXT 4096

wf_open_options wf_open_set = {
    .device = "cpu", .context = -1, .chunk = -1, .threads = -1, .cache = -1, .step_ms = -1};

const wf_flag wf_open_flags[] = {
    {"model", 'm', "MODEL", "the model, instead of the first argument", .text = &wf_open_set.model,
     .operand = true, .offer = WF_OFFER_FILES},
    {"ctx-size", 'c', "N", "context length in tokens; 0: the model's maximum",
     .whole = &wf_open_set.context, .fallback = "the maximum, at most 4096"},
    {"batch-size", 'b', "N", "maximum number of tokens per step", .whole = &wf_open_set.chunk,
     .range = "1,65536", .fallback = "512"},
    {"threads", 't', "N", "CPU threads", .whole = &wf_open_set.threads, .range = "1,1024",
     .fallback = "all cores"},
    {"device", 'd', "D", "where to compute: auto, or a device that 'weft devices' lists",
     .text = &wf_open_set.device, .offer = {.words = wf_auto_words}},
    WF_FLAG_FAST(&wf_open_set.fast),
    {"cache-type-k", 0, "TYPE", "type of the KV cache", .text = &wf_open_set.kv_k, .also = "-ctk",
     .fallback = "f16", .offer = {.choices = WF_KV_NAMES}},
    {"cache-type-v", 0, "TYPE", "the same type as --cache-type-k", .text = &wf_open_set.kv_v,
     .also = "-ctv", .offer = {.choices = WF_KV_NAMES}},
    {"compute", 0, "TYPE",
     "f32: matmuls round no activations, which is slower; auto: they round to the weights' type",
     .text = &wf_open_set.compute, .fallback = "auto", .offer = {.choices = "auto f32"}},
    {"cache-tokens", 0, "N", "size of the KV cache in tokens, shared by all sequences",
     .whole = &wf_open_set.cache, .range = WF_CACHE_RANGE,
     .fallback = "the context of every sequence"},
    {"step-ms", 0, "MS", "target time of a step in ms while sequences generate",
     .real = &wf_open_set.step_ms, .range = "(0,", .fallback = "100"},
    WF_FLAG_LORA(&wf_open_set.lora),
    {"check-tensors", 0, NULL, "check the weights for NaN and infinity", .on = &wf_open_set.check},
    {"quiet", 'q', NULL, "print only errors on stderr", .on = &wf_open_set.quiet},
    {"verbose", 'v', NULL, "print more on stderr", .on = &wf_open_set.verbose},
    {0},
};

/* ---- Messages ---- */

/* By wf_kv; the flags' choices are the same. */
static const char *const kv_names[] = {"f16", "bf16", "f32", "q8_0"};
enum { KV_TYPES = sizeof kv_names / sizeof *kv_names };

const char *wf_open_kv_name(wf_kv kv)
{
    return kv_names[kv];
}

void wf_open_say(const char *fmt, ...)
{
    va_list args;
    if (wf_open_set.quiet)
        return;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    putc('\n', stderr);
}

const char *wf_open_count(int64_t count, char *buf, size_t cap)
{
    static const char *const units[] = {"", "K", "M", "B", "T"};
    double x = (double)count;
    int u = 0;
    for (; x >= 999.5 && u < 4; u++)
        x /= 1000;
    snprintf(buf, cap, u && x < 9.95 ? "%.1f%s" : "%.0f%s", x, units[u]);
    return buf;
}

const char *wf_open_larger(const wf_open *e, char *buf, size_t cap)
{
    size_t len = 0;
    buf[0] = '\0';
    if (e->context < e->asked)
        wf_text_append(buf, cap, &len, ", or give a larger KV cache (--cache-tokens)");
    else if (e->context < e->info.context)
        wf_text_append(buf, cap, &len, ", or give a larger context (-c, up to %lld for this model)",
                       (long long)e->info.context);
    return buf;
}

static void say_memory(const wf_open *e, int64_t sequences, const wf_memory *m, size_t kv_bytes)
{
    char count[16], mapped[32], copied[32], kv[32], activations[32], sequence[32] = "";
    size_t rest = m->states > kv_bytes ? m->states - kv_bytes : 0;
    wf_open_say("%s (%s, %s parameters, %s) on %s", WF_FOREIGN(e->info.name), e->info.family,
                wf_open_count(e->info.parameters, count, sizeof count), e->info.format,
                wf_device_description(e->device));
    for (int i = 0; i < wf_open_set.lora.count; i++)
        wf_open_say("adapter %s, scale %g", WF_FOREIGN(e->lora[i].path), (double)e->lora[i].scale);
    const int64_t tokens = wf_open_set.cache > 0 ? wf_open_set.cache : e->context;
    if (wf_open_set.cache <= 0) /* else the sequences share the tokens */
        snprintf(sequence, sizeof sequence, "%lld x ", (long long)sequences);
    wf_open_say("memory: weights %s mapped and %s copied, KV cache %s for %s%lld token%s, "
                "activations %s",
                wf_plan_bytes(m->mapped, mapped, sizeof mapped),
                wf_plan_bytes(rest, copied, sizeof copied), wf_plan_bytes(kv_bytes, kv, sizeof kv),
                sequence, (long long)tokens, WF_PLURAL(*sequence ? sequences * tokens : tokens),
                wf_plan_bytes(m->activations + m->ports, activations, sizeof activations));
}

/* Returns ", 41.3 tokens/s", or "" when the rate is unknown. */
static const char *rate(uint64_t tokens, uint64_t nanoseconds, char buf[32])
{
    buf[0] = '\0';
    if (tokens > 0 && nanoseconds > 0)
        snprintf(buf, 32, ", %.1f tokens/s", (double)tokens * 1e9 / (double)nanoseconds);
    return buf;
}

void wf_open_say_speed(const wf_open *e, uint64_t prompt, uint64_t cached, int begun,
                       const char *ending)
{
    wf_engine_stats s;
    char reading[32], writing[32], found[48] = "";
    wf_engine_get_stats(e->engine, &s);
    /* The first token of each sequence is computed with its prompt. */
    const uint64_t timed = s.tokens > (uint64_t)begun ? s.tokens - (uint64_t)begun : 0;
    if (cached > 0)
        snprintf(found, sizeof found, ", %llu of them cached", (unsigned long long)cached);
    wf_open_say("prompt: %llu token%s%s%s; generated: %llu token%s%s%s%s",
                (unsigned long long)prompt, WF_PLURAL(prompt), found,
                rate(prompt - cached, s.prompt_nanoseconds, reading), (unsigned long long)s.tokens,
                WF_PLURAL(s.tokens), rate(timed, s.nanoseconds, writing), *ending ? "; " : "",
                ending);
    if (wf_open_set.verbose && s.packing_nanoseconds > 0)
        wf_open_say("packing weights: %.3f s", (double)s.packing_nanoseconds / 1e9);
    if (wf_open_set.verbose)
        wf_open_say("reused: %llu token%s; to the device: %llu byte%s, from the device: %llu",
                    (unsigned long long)s.reused_tokens, WF_PLURAL(s.reused_tokens),
                    (unsigned long long)s.bytes_in, WF_PLURAL(s.bytes_in),
                    (unsigned long long)s.bytes_out);
}

static void log_everything(void *user, wf_log_level level, const char *message)
{
    (void)user, (void)level;
    fprintf(stderr, "weft: %s\n", message);
}

/* ---- Flags ---- */

wf_status wf_open_path(wf_ctx *ctx, char *const *operands, int count, const char **path)
{
    *path = count > 0 ? operands[0] : wf_open_set.model;
    if (!*path)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the model is missing; give a GGUF file or a Hugging Face folder as first argument");
    if (count > 0 && wf_open_set.model && strcmp(operands[0], wf_open_set.model) != 0)
        return wf_fail(ctx, WF_ERR_USAGE, "'%s' and --model '%s' are two models; give one of them",
                       operands[0], wf_open_set.model);
    return WF_OK;
}

wf_status wf_open_kv(wf_ctx *ctx, const char *name, wf_kv *out)
{
    *out = WF_KV_F16;
    if (!name)
        return WF_OK;
    for (int i = 0; i < KV_TYPES; i++)
        if (strcmp(name, kv_names[i]) == 0) {
            *out = (wf_kv)i;
            return WF_OK;
        }
    return wf_fail(ctx, WF_ERR_USAGE, "--cache-type-k must be f16, bf16, f32 or q8_0, not '%s'",
                   name);
}

static wf_status choose_kv(wf_ctx *ctx, wf_kv *out)
{
    const char *k = wf_open_set.kv_k, *v = wf_open_set.kv_v;
    if (k && v && strcmp(k, v) != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--cache-type-k %s and --cache-type-v %s differ; give the same type", k, v);
    return wf_open_kv(ctx, k ? k : v, out);
}

wf_status wf_open_compute(wf_ctx *ctx, const char *name, wf_type *out)
{
    *out = name && strcmp(name, "f32") == 0 ? WF_F32 : WF_TYPE_NONE;
    if (name && *out == WF_TYPE_NONE && strcmp(name, "auto") != 0)
        return wf_fail(ctx, WF_ERR_USAGE, "--compute must be auto or f32, not '%s'", name);
    return WF_OK;
}

wf_status wf_open_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out)
{
    char spec[32];
    const char *name = wf_open_set.device;
    *out = NULL;
    /* The number of threads is part of the device's name. */
    if (wf_open_set.threads >= 0) {
        if (strcmp(name, "cpu") != 0)
            return wf_fail(ctx, WF_ERR_USAGE, "--threads applies to the device cpu, not to '%s'",
                           name);
        snprintf(spec, sizeof spec, "cpu:%lld", (long long)wf_open_set.threads);
        name = spec;
    }
    return wf_auto_open(ctx, name, work, wf_open_set.fast, wf_open_set.quiet, out);
}

wf_status wf_open_limit(wf_open *e, int64_t context)
{
    const wf_engine_options options = {
        .context = context, .cache = wf_open_set.cache > 0 ? wf_open_set.cache : 0, .kv = e->kv};
    size_t kv_bytes;
    e->asked = context;
    return wf_engine_limits(e->model, &options, &e->context, &kv_bytes);
}

static wf_status choose_context(wf_open *e)
{
    int64_t most = e->info.context, asked = wf_open_set.context;
    if (asked > most)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "--ctx-size %lld exceeds this model's limit of %lld tokens; use -c %lld or "
                       "less",
                       (long long)asked, (long long)most, (long long)most);
    /* -1: not given; 0: the model's maximum. */
    return wf_open_limit(e, asked > 0                             ? asked
                            : asked < 0 && most > DEFAULT_CONTEXT ? DEFAULT_CONTEXT
                                                                  : most);
}

/* Chooses the device for --device auto by the cost of one sequence. */
static wf_status choose_device(wf_open *e)
{
    const wf_engine_options options = {
        .context = e->asked, .sequences = 1, .kv = e->kv, .compute = e->compute};
    wf_auto_model model = {e->model, &options, (double)e->info.bytes};
    const wf_auto_work work = wf_auto_running(&model);
    return wf_open_device(e->ctx, &work, &e->device);
}

/* ---- The model and its engine ---- */

/* A named device is opened first, since it fails fastest; auto needs the model to choose by. */
wf_status wf_open_weights(wf_ctx *ctx, const char *path, wf_open *e)
{
    *e = (wf_open){.ctx = ctx};
    if (wf_open_set.verbose)
        wf_ctx_set_log(ctx, log_everything, NULL);
    wf_arena_init(&e->arena, ctx);
    WF_TRY(choose_kv(ctx, &e->kv));
    WF_TRY(wf_open_compute(ctx, wf_open_set.compute, &e->compute));
    WF_TRY(wf_lora_parse(&e->arena, &wf_open_set.lora, e->lora));
    const bool choose = strcmp(wf_open_set.device, "auto") == 0;
    if (!choose)
        WF_TRY(wf_open_device(ctx, NULL, &e->device));
    WF_TRY(wf_model_open(ctx, path, &e->model));
    wf_model_get_info(e->model, &e->info);
    e->tokenizer = wf_model_tokenizer(e->model);
    WF_TRY(choose_context(e));
    return choose ? choose_device(e) : WF_OK;
}

wf_status wf_open_model(wf_ctx *ctx, const char *path, wf_open *e)
{
    WF_TRY(wf_open_weights(ctx, path, e));
    if (!e->tokenizer)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED, "%s", e->model->no_tokenizer);
    return WF_OK;
}

wf_status wf_open_load(wf_open *e, int64_t sequences, int64_t rows)
{
    const wf_engine_options options = {
        .context = e->asked,
        .sequences = sequences,
        .rows = rows,
        .cache = wf_open_set.cache > 0 ? wf_open_set.cache : 0,
        .step_ms = wf_open_set.step_ms > 0 ? wf_open_set.step_ms : 0,
        .chunk = wf_open_set.chunk > 0 ? wf_open_set.chunk : 0,
        .kv = e->kv,
        .compute = e->compute,
        .no_reuse = wf_open_set.no_reuse,
        .check = wf_open_set.check,
        .lora = e->lora,
        .loras = wf_open_set.lora.count,
    };
    wf_memory memory;
    size_t kv;
    WF_TRY(wf_engine_plan(e->device, e->model, &options, &memory));
    WF_TRY(wf_engine_limits(e->model, &options, &e->context, &kv));
    say_memory(e, sequences, &memory, kv);
    return wf_engine_new(e->device, e->model, &options, &e->engine);
}

wf_status wf_open_check(const wf_open *e, const wf_sequence *s)
{
    wf_status status;
    const char *error = wf_sequence_error(s, &status);
    return status == WF_OK ? WF_OK : wf_fail(e->ctx, status, "%s", error);
}

/* Works on a partly opened model: everything that was not created is NULL. */
void wf_open_close(wf_open *e)
{
    wf_engine_free(e->engine);
    wf_model_close(e->model);
    wf_device_close(e->device);
    wf_arena_free(&e->arena);
}

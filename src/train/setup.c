/* SPDX-License-Identifier: MIT */
/*
 * setup.c - fills in and checks the options of a training run.
 *
 * In the options 0 selects a default and, where documented, a negative number means 0. After
 * wf_setup_make every field holds the value that is used. Settings as text are written into
 * checkpoints; each row of `settings` says what a change means on resume.
 */
#include "train/setup.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/range.h"
#include "base/words.h"
#include "model/family.h"
#include "train/ranges.h"
#include "train/shape.h"

#define BATCH_TOKENS 4096  /* tokens of a default batch */
#define DOCUMENT_TOKENS 16 /* assumed shortest average length; shorter documents share sequences */

/* ---- Names ---- */

static const char *const optimizers[] = {
    [WF_ADAMW] = "adamw", [WF_SGD] = "sgd", [WF_LION] = "lion", [WF_MUON] = "muon"};
static const char *const schedules[] = {[WF_SCHEDULE_CONSTANT] = "constant",
                                        [WF_SCHEDULE_COSINE] = "cosine",
                                        [WF_SCHEDULE_LINEAR] = "linear",
                                        [WF_SCHEDULE_WSD] = "wsd"};

/* ---- Defaults ---- */

/* Replaces 0 by the default and a negative number by 0. */
static void default_int(int64_t *x, int64_t otherwise)
{
    *x = *x == 0 ? otherwise : *x < 0 ? 0 : *x;
}

static void default_real(double *x, double otherwise)
{
    *x = *x == 0 ? otherwise : *x < 0 ? 0 : *x;
}

/* Wider models need smaller rates. Adapters start from zero and tolerate larger ones; a pretrained
 * model does not. */
static double default_rate(const wf_setup *s)
{
    /* 6e-4 at a width of 768; it falls with the width, within limits. */
    double rate = s->adapter ? 2e-4
                  : s->base  ? 2e-5
                             : fmin(fmax(6e-4 * 768 / (double)s->config.width, 1e-4), 3e-3);
    return s->optimizer.kind == WF_LION   ? rate / 5
           : s->optimizer.kind == WF_MUON ? rate * (s->base ? 1 : 4)
           : s->optimizer.kind == WF_SGD  ? rate * 100
                                          : rate;
}

static void fill_optimizer(wf_setup *s)
{
    wf_train_options *o = &s->options;
    bool sgd = s->optimizer.kind == WF_SGD, lion = s->optimizer.kind == WF_LION;
    bool muon = s->optimizer.kind == WF_MUON;
    default_real(&o->beta1, 0.9);
    default_real(&o->beta2, lion ? 0.99 : 0.95);
    default_real(&o->eps, 1e-8);
    default_real(&o->momentum, sgd ? 0.9 : 0.95);
    /* Clear unused values, so that nobody mistakes them for effective ones. */
    o->momentum = sgd || muon ? o->momentum : 0;
    o->eps = sgd || lion ? 0 : o->eps;
    o->beta1 = sgd ? 0 : o->beta1;
    o->beta2 = sgd ? 0 : o->beta2;
    default_real(&o->weight_decay, s->adapter || sgd ? 0 : 0.1);
    default_real(&o->clip, 1);
    if (o->rate == 0)
        o->rate = default_rate(s);
    s->optimizer = (wf_optimizer_options){
        .kind = s->optimizer.kind,
        /* 0 would select the default there. */
        .beta1 = o->beta1 == 0 ? -1 : o->beta1,
        .beta2 = o->beta2 == 0 ? -1 : o->beta2,
        .eps = o->eps == 0 ? -1 : o->eps,
        .momentum = o->momentum == 0 ? -1 : o->momentum,
        .weight_decay = o->weight_decay,
        .decay_all = o->decay_all,
        .ema = o->ema,
    };
}

void wf_setup_scale(wf_setup *s)
{
    const wf_train_options *o = &s->options;
    s->scale = (wf_loss_scale_options){.clip = o->clip, .outlier = o->outlier};
    if (o->compute != WF_F16) { /* no scaling, but bad steps are skipped and counted */
        s->scale.initial = 1;
        s->scale.interval = -1;
        return;
    }
    /* The usual scale for a mean loss, divided by the tokens because the loss is a sum. A power of
     * two, so that nothing is rounded. */
    double tokens = (double)(o->batch * o->length);
    s->scale.initial = exp2(floor(log2(65536 / tokens)));
    s->scale.smallest = 0x1p-14 * s->scale.initial;
}

/* ---- Limits ---- */

typedef struct {
    const char *name; /* field of wf_train_options */
    double value;
    const char *range;
    bool negative; /* negative numbers mean 0 */
} number;

/* 0 is always allowed: it selects the default. */
static wf_status check_number(wf_ctx *ctx, const number *n)
{
    char words[WF_RANGE_WORDS], value[WF_TEXT_DOUBLE];
    const wf_range r = wf_range_read(n->range);
    if (n->value == 0 || (n->negative && n->value < 0) ||
        (isfinite(n->value) && wf_range_has(&r, n->value)))
        return WF_OK;
    wf_text_from_double(value, n->value);
    return wf_fail(ctx, WF_ERR_USAGE, "%s must be%s, not %s", n->name, wf_range_words(&r, words),
                   value);
}

static wf_status check_numbers(wf_ctx *ctx, const wf_train_options *o)
{
    const number numbers[] = {
        {"batch", (double)o->batch, WF_RANGE_BATCH, false},
        {"length", (double)o->length, WF_RANGE_LENGTH, false},
        {"accumulate", (double)o->accumulate, WF_RANGE_ACCUMULATE, false},
        {"steps", (double)o->steps, WF_RANGE_STEPS, false},
        {"epochs", o->epochs, WF_RANGE_EPOCHS, false},
        {"rate", o->rate, WF_RANGE_RATE, false},
        {"beta1", o->beta1, WF_RANGE_DECAY, true},
        {"beta2", o->beta2, WF_RANGE_DECAY, true},
        {"eps", o->eps, WF_RANGE_EPS, true},
        {"momentum", o->momentum, WF_RANGE_DECAY, true},
        {"weight_decay", o->weight_decay, WF_RANGE_WEIGHT_DECAY, true},
        {"clip", o->clip, WF_RANGE_CLIP, true},
        {"ema", o->ema, WF_RANGE_DECAY, false},
        {"floor", o->floor, WF_RANGE_FLOOR, true},
        {"label_smoothing", o->label_smoothing, WF_RANGE_SMOOTHING, false},
        {"z_loss", o->z_loss, WF_RANGE_Z_LOSS, false},
        {"dropout", o->dropout, WF_RANGE_DROPOUT, false},
        {"recompute", (double)o->recompute, WF_RANGE_RECOMPUTE, false},
        {"outlier", o->outlier, WF_RANGE_OUTLIER, false},
        {"lora", (double)o->lora, WF_RANGE_LORA, false},
        {"lora_alpha", o->lora_alpha, WF_RANGE_LORA_ALPHA, false},
        {"lora_dropout", o->lora_dropout, WF_RANGE_DROPOUT, false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        WF_TRY(check_number(ctx, &numbers[i]));
    return WF_OK;
}

/* Rejects options that have no effect with the others. Call it after the words are parsed. */
static wf_status check_unused(const wf_setup *s)
{
    const wf_train_options *o = &s->options;
    const wf_optimizer_kind kind = s->optimizer.kind;
    const bool adam = kind == WF_ADAMW || kind == WF_MUON, lora = o->lora != 0;
    const struct {
        const char *name;
        bool given, used;
        const char *what, *word;
    } options[] = {
        {"epochs", o->epochs != 0, !o->steps, "with", "steps"},
        {"beta1", o->beta1 != 0, kind != WF_SGD, "with the optimizer", o->optimizer},
        {"beta2", o->beta2 != 0, kind != WF_SGD, "with the optimizer", o->optimizer},
        {"eps", o->eps != 0, adam, "with the optimizer", o->optimizer},
        {"momentum", o->momentum != 0, kind == WF_SGD || kind == WF_MUON, "with the optimizer",
         o->optimizer},
        {"floor", o->floor != 0, s->schedule.kind != WF_SCHEDULE_CONSTANT, "with the schedule",
         o->schedule},
        {"decay", o->decay != 0, s->schedule.kind == WF_SCHEDULE_WSD, "with the schedule",
         o->schedule},
        {"lora_alpha", o->lora_alpha != 0, lora, "without", "lora"},
        {"lora_dropout", o->lora_dropout != 0, lora, "without", "lora"},
        {"lora_targets", o->lora_targets, lora, "without", "lora"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given && !options[i].used)
            return wf_fail(s->ctx, WF_ERR_USAGE, "%s has no effect %s %s; omit it", options[i].name,
                           options[i].what, options[i].word);
    return WF_OK;
}

/* ---- The model ---- */

static wf_status copy_text(wf_setup *s, const char **text)
{
    if (*text && !(*text = wf_arena_strdup(&s->arena, *text)))
        return WF_ERR_MEMORY;
    return WF_OK;
}

static wf_status copy_texts(wf_setup *s)
{
    wf_train_options *o = &s->options;
    const char **texts[] = {&o->preset,    &o->config,   &o->model,
                            &o->optimizer, &o->schedule, &o->lora_targets};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        WF_TRY(copy_text(s, texts[i]));
    return WF_OK;
}

/* Trained weights keep the row order of checkpoints: with rope pairs (i, i + R/2), except in families
 * whose checkpoints interleave them. A saved and reloaded model then computes the same sums in the
 * same order. */
static wf_status start_from_model(wf_setup *s)
{
    const wf_train_options *o = &s->options;
    if (o->preset || o->depth || o->config)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "the base model determines the shape; omit preset, depth and config");
    WF_TRY(wf_model_open(s->ctx, o->model, &s->base));
    s->config = s->base->config;
    for (int i = 0; i < s->config.ropes && !o->lora; i++)
        s->config.rope[i].interleaved = s->config.family->pairs;
    if (o->length > s->config.context)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "a length of %lld tokens is not possible; the limit of %s is %lld",
                       (long long)o->length, WF_SHOWN(s->base->info.name),
                       (long long)s->config.context);
    return WF_OK;
}

static wf_status make_adapter(wf_setup *s)
{
    wf_train_options *o = &s->options;
    default_real(&o->lora_alpha, 2 * (double)o->lora);
    if (!s->base)
        return wf_fail(s->ctx, WF_ERR_USAGE, "adapters need a base model; give one");
    if (o->ema > 0)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "ema averages weights and cannot be used with adapters; omit it");
    if (!o->lora_targets)
        o->lora_targets = "all";
    const wf_adapter_options a = {.rank = o->lora,
                                  .alpha = o->lora_alpha,
                                  .dropout = o->lora_dropout,
                                  .targets = o->lora_targets};
    return wf_adapter_new(s->ctx, &s->config, &a, &s->adapter);
}

static wf_status count_parameters(wf_setup *s)
{
    wf_info t;
    WF_TRY(wf_shape_parameters(s->ctx, &s->config, &s->parameters));
    s->trained = s->adapter ? 0 : s->parameters;
    for (int i = 0; s->adapter && wf_adapter_tensor(s->adapter, i, &t); i++)
        s->trained += (int64_t)(t.bytes / sizeof(float));
    return WF_OK;
}

/* A base model or a preset keeps its name; a new one is named after its family and depth, such as
 * "llama-d4". */
static wf_status choose_name(wf_setup *s)
{
    char name[64];
    snprintf(name, sizeof name, "%s-d%lld", s->config.family->name, (long long)s->config.layers);
    const char *known = s->base ? s->base->info.name : s->options.preset;
    s->name = wf_arena_strdup(&s->arena, known ? known : name);
    return s->name ? WF_OK : WF_ERR_MEMORY;
}

static wf_status choose_model(wf_setup *s, int64_t tokens)
{
    const wf_train_options *o = &s->options;
    if (o->model)
        WF_TRY(start_from_model(s));
    else
        WF_TRY(wf_shape_choose(&s->arena, o->preset, o->depth, o->config, tokens, o->length,
                               &s->config));
    /* Rows of the embedding beyond the tokenizer's tokens. */
    s->padding = o->model ? 0 : s->config.vocab - tokens;
    if (tokens > s->config.vocab)
        return wf_fail(
            s->ctx, WF_ERR_USAGE,
            "the data was encoded with %lld tokens, but the model has %lld; prepare it with the "
            "model's tokenizer",
            (long long)tokens, (long long)s->config.vocab);
    if (o->lora)
        WF_TRY(make_adapter(s));
    WF_TRY(choose_name(s));
    return count_parameters(s);
}

/* The product is checked against INT32_MAX, because graphs index tokens with 32 bits. */
static wf_status choose_batch(wf_setup *s)
{
    wf_train_options *o = &s->options;
    if (!o->length)
        o->length = s->config.context < 1024 ? s->config.context : 1024;
    if (!o->batch)
        o->batch = o->length < BATCH_TOKENS ? BATCH_TOKENS / o->length : 1;
    default_int(&o->accumulate, 1);
    if (o->batch > INT32_MAX / o->length)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "a batch of %lld sequences of %lld tokens is too large", (long long)o->batch,
                       (long long)o->length);
    s->sequences = o->batch;
    if (o->documents)
        /* Static shapes need a bound; rows with more documents let the last ones share a
         * sequence. */
        s->sequences = o->batch * (o->length / DOCUMENT_TOKENS + 2);
    return WF_OK;
}

static wf_status find_words(wf_setup *s)
{
    wf_train_options *o = &s->options;
    int kind;
    if (!o->optimizer)
        o->optimizer = "adamw";
    WF_TRY(wf_words_find(s->ctx, "optimizer", o->optimizer, optimizers, 4, &kind));
    s->optimizer.kind = (wf_optimizer_kind)kind;
    if (!o->schedule)
        o->schedule = "cosine";
    WF_TRY(wf_words_find(s->ctx, "schedule", o->schedule, schedules, 4, &kind));
    s->schedule.kind = (wf_schedule_kind)kind;
    return WF_OK;
}

/* Order matters: words decide which numbers are used, the model decides defaults of batch and
 * rate. */
static wf_status make(wf_setup *s, int64_t tokens)
{
    wf_train_options *o = &s->options;
    WF_TRY(copy_texts(s));
    WF_TRY(check_numbers(s->ctx, o));
    if (o->compute == WF_TYPE_NONE)
        o->compute = WF_F32;
    if (o->compute != WF_F32 && o->compute != WF_BF16 && o->compute != WF_F16)
        return wf_fail(s->ctx, WF_ERR_USAGE, "cannot compute in %s; use f32, bf16 or f16",
                       wf_type_name(o->compute));
    WF_TRY(find_words(s));
    WF_TRY(check_unused(s));
    WF_TRY(choose_model(s, tokens));
    WF_TRY(choose_batch(s));
    default_int(&o->patience, 20);
    default_real(&o->floor, s->schedule.kind == WF_SCHEDULE_CONSTANT ? 0 : 0.1);
    o->seed = o->seed ? o->seed : 1;
    fill_optimizer(s);
    wf_setup_scale(s);
    return o->steps ? wf_setup_count(s, 0) : WF_OK;
}

wf_status wf_setup_make(wf_ctx *ctx, const wf_train_options *options, int64_t tokens, wf_setup *out)
{
    *out = (wf_setup){.ctx = ctx, .options = *options};
    wf_arena_init(&out->arena, ctx);
    return make(out, tokens);
}

/* Sets the number of steps, from epochs if necessary, and the settings that depend on it. Does
 * nothing when called again. */
wf_status wf_setup_count(wf_setup *s, int64_t batches)
{
    wf_train_options *o = &s->options;
    if (s->schedule.steps > 0) /* counted: zeros below are now explicit, not defaults */
        return WF_OK;
    if (!o->steps) {
        double epochs = o->epochs == 0 ? 1 : o->epochs;
        double steps = ceil((double)batches * epochs / (double)o->accumulate);
        if (!(steps <= INT32_MAX))
            return wf_fail(s->ctx, WF_ERR_USAGE, "%g epochs take %g steps, more than %d", epochs,
                           steps, INT32_MAX);
        o->epochs = 0; /* from here on, steps determine the length */
        o->steps = steps < 1 ? 1 : (int64_t)steps;
    }
    default_int(&o->warmup, o->steps / 50 < 1000 ? o->steps / 50 : 1000);
    default_int(&o->decay, o->steps / 5);
    o->decay = s->schedule.kind == WF_SCHEDULE_WSD ? o->decay : 0;
    o->floor = s->schedule.kind == WF_SCHEDULE_CONSTANT ? 0 : o->floor;
    s->schedule = (wf_schedule){.kind = s->schedule.kind,
                                .peak = o->rate,
                                .floor = o->floor,
                                .warmup = o->warmup,
                                .steps = o->steps,
                                .decay = o->decay};
    return WF_OK;
}

void wf_setup_free(wf_setup *s)
{
    if (!s->ctx)
        return;
    wf_adapter_free(s->adapter);
    wf_model_close(s->base);
    wf_arena_free(&s->arena);
    *s = (wf_setup){0};
}

bool wf_setup_trains(const wf_setup *s, const char *state)
{
    if (s->adapter)
        return wf_path_ends(state, ".lora_a") || wf_path_ends(state, ".lora_b");
    for (int i = 0; i < s->config.ropes; i++)
        if (strcmp(state, wf_rope_state(i)) == 0)
            return false;
    return true;
}

/* ---- Settings as text ---- */

#define FIELD(name) offsetof(wf_train_options, name)
static const struct {
    const char *name;
    enum { WHOLE, REAL, TEXT, YES, TYPE, SEED } kind;
    size_t at;
    wf_setting_kind changed;
} settings[] = {
    /* REFUSED: the states would not fit. BITS: allowed, but the results differ from an
     * uninterrupted run. FREE: no effect on results. */
    {"preset", TEXT, FIELD(preset), WF_SETTING_REFUSED},
    {"depth", WHOLE, FIELD(depth), WF_SETTING_REFUSED},
    {"config", TEXT, FIELD(config), WF_SETTING_FREE},
    {"model", TEXT, FIELD(model), WF_SETTING_FREE},
    {"batch", WHOLE, FIELD(batch), WF_SETTING_BITS},
    {"length", WHOLE, FIELD(length), WF_SETTING_BITS},
    {"accumulate", WHOLE, FIELD(accumulate), WF_SETTING_BITS},
    {"documents", YES, FIELD(documents), WF_SETTING_BITS},
    {"steps", WHOLE, FIELD(steps), WF_SETTING_BITS},
    {"optimizer", TEXT, FIELD(optimizer), WF_SETTING_REFUSED},
    {"rate", REAL, FIELD(rate), WF_SETTING_BITS},
    {"beta1", REAL, FIELD(beta1), WF_SETTING_BITS},
    {"beta2", REAL, FIELD(beta2), WF_SETTING_BITS},
    {"eps", REAL, FIELD(eps), WF_SETTING_BITS},
    {"momentum", REAL, FIELD(momentum), WF_SETTING_BITS},
    {"weight_decay", REAL, FIELD(weight_decay), WF_SETTING_BITS},
    {"decay_all", YES, FIELD(decay_all), WF_SETTING_BITS},
    {"clip", REAL, FIELD(clip), WF_SETTING_BITS},
    {"ema", REAL, FIELD(ema), WF_SETTING_REFUSED},
    {"schedule", TEXT, FIELD(schedule), WF_SETTING_BITS},
    {"warmup", WHOLE, FIELD(warmup), WF_SETTING_BITS},
    {"floor", REAL, FIELD(floor), WF_SETTING_BITS},
    {"decay", WHOLE, FIELD(decay), WF_SETTING_BITS},
    {"label_smoothing", REAL, FIELD(label_smoothing), WF_SETTING_BITS},
    {"z_loss", REAL, FIELD(z_loss), WF_SETTING_BITS},
    {"dropout", REAL, FIELD(dropout), WF_SETTING_BITS},
    {"compute", TYPE, FIELD(compute), WF_SETTING_BITS},
    {"recompute", WHOLE, FIELD(recompute), WF_SETTING_BITS},
    {"outlier", REAL, FIELD(outlier), WF_SETTING_BITS},
    {"patience", WHOLE, FIELD(patience), WF_SETTING_FREE},
    {"lora", WHOLE, FIELD(lora), WF_SETTING_REFUSED},
    {"lora_alpha", REAL, FIELD(lora_alpha), WF_SETTING_REFUSED},
    {"lora_dropout", REAL, FIELD(lora_dropout), WF_SETTING_BITS},
    {"lora_targets", TEXT, FIELD(lora_targets), WF_SETTING_REFUSED},
    {"seed", SEED, FIELD(seed), WF_SETTING_BITS},
};

bool wf_setup_setting(const wf_setup *s, int index, const char **name, char value[96],
                      wf_setting_kind *kind)
{
    if (index < 0 || index >= (int)(sizeof settings / sizeof *settings))
        return false;
    const char *at = (const char *)&s->options + settings[index].at;
    *name = settings[index].name;
    *kind = settings[index].changed;
    switch (settings[index].kind) {
    case WHOLE: snprintf(value, 96, "%" PRId64, *(const int64_t *)at); break;
    case REAL:
        for (int digits = 6; digits <= 17; digits++) { /* the fewest that parse to the same value */
            snprintf(value, 96, "%.*g", digits, *(const double *)at);
            if (strtod(value, NULL) == *(const double *)at)
                break;
        }
        break;
    case TEXT:
        snprintf(value, 96, "%s", *(const char *const *)at ? *(const char *const *)at : "");
        break;
    case YES: snprintf(value, 96, "%s", *(const bool *)at ? "yes" : "no"); break;
    case TYPE: snprintf(value, 96, "%s", wf_type_name(*(const wf_type *)at)); break;
    case SEED: snprintf(value, 96, "%" PRIu64, *(const uint64_t *)at); break;
    }
    return true;
}

/* SPDX-License-Identifier: MIT */
/*
 * run.c - a training run in its own folder, from data to a model, which can be stopped at any time.
 *
 * A step depends only on the states and its number: the batch and the random numbers follow from
 * the number. A checkpoint at the end of a step is therefore enough to continue.
 *
 * Failures between steps (validation, samples, saving, the log) are reported and do not end the
 * run; a failing step does. The run's lock is held from the first look at the folder to the end.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/entropy.h"
#include "base/mem.h"
#include "base/path.h"
#include "device/choose.h"
#include "model/convert.h"
#include "model/recipe.h"
#include "train/checkpoint.h"
#include "train/data.h"
#include "train/fit.h"
#include "train/generate.h"
#include "train/place.h"
#include "train/record.h"
#include "train/trainer.h"

#define SAVE_MINUTES 15               /* most minutes of work that a crash loses by default */
#define PEAK_BYTES ((size_t)64 << 20) /* streamed to measure memory bandwidth */

typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    wf_run_options o; /* defaults filled in */
    wf_run_lock *lock;
    wf_data *data;
    wf_setup setup;            /* until the trainer takes it */
    wf_loader *loader, *valid; /* valid NULL: no validation */
    wf_trainer *trainer;
    wf_record *record; /* NULL: the log could not be opened */
    char *checkpoint;  /* to resume from; NULL: a new run */
    int64_t saved;     /* step of the newest checkpoint; -1: none */
    uint64_t saved_ns; /* time of the last attempt, or of the start */
    uint64_t id;       /* of this run, for the manifests of its checkpoints */
} run;

static void say(run *r, const char *fmt, ...) WF_PRINTF(2, 3);
static void say(run *r, const char *fmt, ...)
{
    char text[600];
    size_t len = 0;
    va_list args;
    const wf_train_events *e = r->o.events;
    if (!e || !e->say)
        return;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    e->say(e->user, text);
}

/* Reports a failure that does not stop the run. */
static void say_failure(run *r, const char *what)
{
    say(r, "%s: %s", what, wf_ctx_message(r->ctx));
    wf_ctx_clear(r->ctx);
}

/* ---- Setup ---- */

/* Options use 0 for the default and a negative number for 0. */
static int64_t filled(int64_t value, int64_t otherwise)
{
    return value == 0 ? otherwise : value < 0 ? 0 : value;
}

static wf_status check_folder(run *r)
{
    WF_TRY(wf_place_check(r->ctx, &r->o));
    return wf_place_check_base(r->ctx, &r->o, r->setup.base);
}

/* Takes the lock, which creates a file in the folder. A folder without a lock is checked first, so
 * that a rejected folder stays unchanged. */
static wf_status lock_folder(run *r)
{
    wf_arena arena;
    wf_arena_init(&arena, r->ctx);
    const char *path = wf_path_join(&arena, r->o.out, WF_RUN_LOCK);
    wf_status status = path ? WF_OK : WF_ERR_MEMORY;
    if (path && wf_path_missing(path))
        status = check_folder(r);
    wf_arena_free(&arena);
    return status == WF_OK ? wf_run_lock_take(r->ctx, r->o.out, &r->lock) : status;
}

/* Decides where to start: at step 0 or at the newest checkpoint. */
static wf_status look_at_folder(run *r)
{
    wf_checkpoint_found from = {.step = -1};
    WF_TRY(lock_folder(r));
    WF_TRY(check_folder(r)); /* another run may have ended meanwhile */
    if (r->o.resume)
        WF_TRY(wf_checkpoint_find(r->ctx, r->o.out, -1, &from));
    r->checkpoint = from.path;
    r->saved = from.step;
    r->id = from.id ? from.id : wf_entropy_id();
    if (r->o.resume && !r->checkpoint)
        say(r, "no checkpoint in %s: starting at the first step", r->o.out);
    return WF_OK;
}

/* Changes the setup until it fits. */
static wf_status fit(run *r)
{
    wf_choice choice[WF_MAX_CHOICES];
    char words[96];
    int count;
    wf_device_peak peak;
    WF_TRY(wf_device_measure(r->device, PEAK_BYTES, &peak));
    WF_TRY(wf_fit_choices(&r->setup, r->device, &peak, r->o.memory, choice, &count));
    const wf_choice *best = wf_fit_best(&r->setup, choice, count);
    if (!best)
        return wf_setup_refuse(&r->setup, r->device, r->o.memory);
    if (best != &choice[0])
        say(r, "to fit into %.2f GB: %s", (double)r->o.memory / 1e9,
            wf_fit_words(best, words, sizeof words));
    wf_fit_apply(&r->setup, best);
    return WF_OK;
}

static wf_status open_loaders(run *r)
{
    const wf_train_options *t = &r->setup.options;
    wf_data_info valid;
    wf_loader_options o = {.batch = t->batch,
                           .length = t->length,
                           .seed = t->seed,
                           .documents = t->documents,
                           .sequences = r->setup.sequences};
    WF_TRY(wf_loader_new(r->data, WF_SPLIT_TRAIN, &o, &r->loader));
    wf_data_get_info(r->data, WF_SPLIT_VALID, &valid);
    if (valid.tokens < 2 || r->o.valid_every < 0)
        return WF_OK;
    o.in_order = true;
    /* Validation is optional: report the failure and continue. */
    if (wf_loader_new(r->data, WF_SPLIT_VALID, &o, &r->valid) != WF_OK)
        say_failure(r, "no validation");
    return WF_OK;
}

static void fill_options(run *r)
{
    wf_run_options *o = &r->o;
    const wf_train_options *t = &r->setup.options;
    int64_t tenth = t->steps / 10 > 0 ? t->steps / 10 : 1;
    o->save_every = filled(o->save_every, tenth);
    o->save_minutes = o->save_minutes == 0 ? SAVE_MINUTES : o->save_minutes;
    o->keep = filled(o->keep, 2);
    o->valid_every = filled(o->valid_every, tenth);
    o->valid_batches = filled(o->valid_batches, 20);
    o->sample_tokens = filled(o->sample_tokens, WF_SAMPLE_TOKENS);
    o->export_type = o->export_type ? o->export_type : "f32";
}

/* Returns a token, or NULL if the data has none: the data's tokenizer.json omits tokens that it
 * cannot represent. Older data lists padding as tokens. */
static const char *named(const wf_tokenizer *t, int32_t id, size_t *bytes)
{
    const char *text = wf_tokenizer_token(t, id, bytes);
    bool kept = text && wf_token_fits_json(t, id) && !wf_token_is_padding(text, *bytes, id);
    return kept ? text : NULL;
}

/* Ids of another tokenizer would train without any error, so compare the tokens. */
static wf_status check_tokenizer(run *r)
{
    const wf_tokenizer *ours = wf_data_tokenizer(r->data);
    const wf_tokenizer *base = r->setup.base ? r->setup.base->tokenizer : NULL;
    int32_t most = base ? wf_tokenizer_count(base) : 0;
    bool same = true;
    most = base && wf_tokenizer_count(ours) > most ? wf_tokenizer_count(ours) : most;
    for (int32_t i = 0; same && i < most; i++) {
        size_t a, b;
        const char *x = named(base, i, &a), *y = named(ours, i, &b);
        same = x && y ? a == b && memcmp(x, y, a) == 0 : x == y;
    }
    return same ? WF_OK
                : wf_fail(r->ctx, WF_ERR_USAGE,
                          "the data in '%s' was encoded with another tokenizer than that of %s; "
                          "prepare it with the model's tokenizer (weft prepare --tokenizer %s)",
                          r->o.data, WF_SHOWN(r->setup.base->info.name), r->setup.options.model);
}

/* Refuses a model that no checkpoint can hold before it is trained. */
static wf_status check_saving(run *r)
{
    const wf_setup *s = &r->setup;
    const char *why = s->adapter ? NULL : wf_config_json_fault(&s->config);
    return why ? wf_fail(r->ctx, WF_ERR_UNSUPPORTED,
                         "cannot train the weights of %s: checkpoints are Hugging Face folders, "
                         "and %s; train adapters instead (--lora)",
                         s->base ? WF_SHOWN(s->base->info.name) : "this model", why)
               : WF_OK;
}

/* Opens the data first: the vocabulary and the number of batches complete the setup. */
static wf_status make_setup(run *r)
{
    wf_data_info info;
    WF_TRY(wf_data_open(r->ctx, r->o.data, &r->data));
    wf_data_get_info(r->data, WF_SPLIT_TRAIN, &info);
    r->o.train.documents |= info.masked;
    int64_t tokens = wf_tokenizer_count(wf_data_tokenizer(r->data));
    WF_TRY(wf_setup_make(r->ctx, &r->o.train, tokens, &r->setup));
    WF_TRY(check_tokenizer(r));
    WF_TRY(check_saving(r));
    r->setup.sample_tokens = wf_run_sample_tokens(&r->o);
    if (!r->o.memory)
        r->o.memory = wf_device_available(r->device);
    if (r->o.fit)
        WF_TRY(fit(r));
    WF_TRY(open_loaders(r));
    WF_TRY(wf_setup_count(&r->setup, wf_loader_batches(r->loader)));
    fill_options(r);
    return WF_OK;
}

/* Allocates all memory of the run and, when resuming, loads the checkpoint. */
static wf_status make_trainer(run *r)
{
    const char *template = wf_data_chat_template(r->data);
    WF_TRY(wf_trainer_make(r->device, wf_data_tokenizer(r->data), &r->setup, r->o.memory,
                           &r->trainer));
    r->trainer->data = wf_data_identity(r->data);
    if (template)
        r->trainer->chat_template = template;
    if (!r->checkpoint)
        return WF_OK;
    bool exact;
    WF_TRY(wf_trainer_load(r->trainer, r->checkpoint, &exact));
    say(r, "continuing from %s%s", r->checkpoint, exact ? "" : " (not exact)");
    return WF_OK;
}

/* Rejects an unknown type before training starts. */
static wf_status check_export(const run *r)
{
    const wf_recipe *recipe;
    const char *type = r->o.export_type;
    return type && strcmp(type, "none") != 0 ? wf_recipe_find(r->ctx, type, &recipe) : WF_OK;
}

static wf_status begin(run *r)
{
    const wf_train_events *e = r->o.events;
    wf_data_info info;
    if (!r->o.data || !r->o.out)
        return wf_fail(r->ctx, WF_ERR_USAGE, "training needs a data folder and an output folder");
    WF_TRY(check_export(r));
    WF_TRY(make_setup(r));
    /* Before the trainer takes memory, but after the cheap checks of options and data. */
    WF_TRY(look_at_folder(r));
    WF_TRY(make_trainer(r));
    if (r->o.restart)
        WF_TRY(wf_place_set_aside(r->ctx, &r->o));
    if (wf_record_open(r->ctx, r->o.out, r->trainer->step, &r->record) != WF_OK)
        say_failure(r, "no log");
    if (e && e->step) /* the peak only matters to an observer */
        WF_TRY(wf_device_measure_flops(r->device, r->trainer->setup.options.compute,
                                       &r->trainer->peak));
    wf_data_get_info(r->data, WF_SPLIT_TRAIN, &info);
    if (e && e->begin)
        e->begin(e->user, r->trainer, info.tokens, wf_loader_batches(r->loader));
    if (!r->valid && r->o.valid_every > 0)
        say(r, "the data has no validation split: there will be no validation loss");
    return WF_OK;
}

/* ---- Between steps ---- */

static wf_status write_checkpoint(run *r, wf_checkpoint *c)
{
    wf_status status = wf_trainer_save(r->trainer, wf_checkpoint_folder(c));
    if (status != WF_OK)
        return wf_checkpoint_explain(c, status);
    return wf_checkpoint_commit(c);
}

/* Does nothing if this step is saved already. */
static wf_status save(run *r)
{
    wf_checkpoint *c;
    int64_t step = r->trainer->step;
    if (r->saved == step)
        return WF_OK;
    wf_status status = wf_checkpoint_begin(r->ctx, r->o.out, step, r->id, &c);
    if (status == WF_OK)
        status = write_checkpoint(r, c);
    wf_checkpoint_free(c);
    r->saved_ns = wf_clock_ns();
    WF_TRY(status);
    r->saved = step;
    say(r, "saved step %lld", (long long)step);
    /* A failure here does no harm: the new checkpoint is saved. */
    if (wf_checkpoint_retain(r->ctx, r->o.out, r->id, step, r->o.keep, r->o.keep_every) != WF_OK)
        say_failure(r, "an old checkpoint was not removed");
    return WF_OK;
}

/* Loss per target over the first valid_batches batches, the same ones every time. */
static wf_status validate(run *r)
{
    const wf_train_events *e = r->o.events;
    int64_t batches = wf_loader_batches(r->valid), counted = 0, bytes = 0;
    double sum = 0;
    if (batches > r->o.valid_batches)
        batches = r->o.valid_batches;
    for (int64_t i = 0; i < batches; i++) {
        const wf_batch *b;
        double loss;
        int64_t count;
        WF_TRY(wf_loader_get(r->valid, i, &b));
        WF_TRY(wf_trainer_evaluate(r->trainer, b, &loss, &count));
        sum += loss;
        counted += count;
        bytes += b->bytes;
    }
    if (counted == 0)
        return WF_OK;
    double loss = sum / (double)counted, bits = bytes ? sum / log(2) / (double)bytes : NAN;
    if (r->record && wf_record_valid(r->record, r->trainer->step, loss, bits) != WF_OK)
        say_failure(r, "the log");
    if (e && e->valid)
        e->valid(e->user, r->trainer->step, loss, bits);
    return WF_OK;
}

static wf_status sample_ids(run *r, int32_t **ids, size_t *count)
{
    const wf_tokenizer *t = wf_data_tokenizer(r->data);
    const char *prompt = r->o.sample_prompt ? r->o.sample_prompt : "";
    WF_TRY(wf_tokenizer_encode(t, r->ctx, prompt, strlen(prompt), WF_TEXT_SPECIAL, ids, count));
    if (*count > 0)
        return WF_OK;
    wf_ids_free(r->ctx, *ids);
    *ids = wf_mem_array(r->ctx, 1, sizeof **ids);
    if (!*ids)
        return WF_ERR_MEMORY;
    **ids = wf_data_end(r->data); /* the token before every document but the first */
    *count = 1;
    return WF_OK;
}

static wf_status sample(run *r)
{
    const wf_train_events *e = r->o.events;
    const wf_sampling sampling = {
        .temperature = 0.8, .top_k = 40, .seed = r->trainer->setup.options.seed};
    const wf_tokenizer *t = wf_data_tokenizer(r->data);
    int32_t *prompt = NULL, *ids = NULL;
    size_t count = 0, n = 0, bytes;
    char *text = NULL;
    wf_status status = sample_ids(r, &prompt, &count);
    if (status == WF_OK)
        status =
            wf_trainer_generate(r->trainer, prompt, count, r->o.sample_tokens, &sampling, &ids, &n);
    if (status == WF_OK)
        status = wf_tokenizer_decode(t, r->ctx, ids, n, 0, &text, &bytes);
    if (status == WF_OK && r->record &&
        wf_record_sample(r->record, r->trainer->step, text) != WF_OK)
        say_failure(r, "the log");
    if (status == WF_OK && e && e->sample)
        e->sample(e->user, r->trainer->step, text);
    wf_text_free(r->ctx, text);
    wf_ids_free(r->ctx, ids);
    wf_ids_free(r->ctx, prompt);
    return status;
}

/* True every `every` steps and at the last one; every <= 0: never. */
static bool due(int64_t step, int64_t every, int64_t last)
{
    return every > 0 && (step % every == 0 || step == last);
}

/* By steps or by time. Saving does not affect later steps, so runs that save at different times
 * compute the same bits. After a failure, waits the full interval again. */
static bool save_is_due(const run *r, int64_t step, int64_t last)
{
    double minutes = (double)(wf_clock_ns() - r->saved_ns) / 60e9;
    return step < last && (due(step, r->o.save_every, last) ||
                           (r->o.save_minutes > 0 && minutes >= r->o.save_minutes));
}

/* Validates, samples and saves. A failure does not stop the run: the last checkpoint is complete
 * and the next one may succeed. The next step reports a broken device. */
static void between(run *r)
{
    int64_t step = r->trainer->step, last = r->trainer->setup.options.steps;
    if (r->valid && due(step, r->o.valid_every, last) && validate(r) != WF_OK)
        say_failure(r, "not validated");
    if (due(step, r->o.sample_every, last) && sample(r) != WF_OK)
        say_failure(r, "no sample");
    if (save_is_due(r, step, last) && save(r) != WF_OK)
        say_failure(r, "not saved");
}

/* ---- Steps ---- */

static wf_status next_batch(void *user, int64_t index, const wf_batch **out)
{
    run *r = user;
    return wf_loader_get(r->loader, index, out);
}

static void tell(run *r, const wf_train_step *s)
{
    const wf_train_events *e = r->o.events;
    if (r->record && wf_record_step(r->record, s) != WF_OK)
        say_failure(r, "the log");
    if (e && e->step)
        e->step(e->user, s);
}

/* After the last step there is nothing to stop. */
static bool is_stopped(const run *r)
{
    const wf_train_events *e = r->o.events;
    return e && e->stop && r->trainer->step < r->trainer->setup.options.steps && e->stop(e->user);
}

/* The final save also runs after a stop, so that no step is lost. */
static wf_status train(run *r, bool *stopped)
{
    const int64_t steps = r->trainer->setup.options.steps;
    r->saved_ns = wf_clock_ns();
    while (r->trainer->step < steps && !*stopped) {
        wf_train_step step;
        int64_t before = r->trainer->step;
        wf_status status = wf_trainer_step(r->trainer, next_batch, r, &step);
        if (r->trainer->step > before)
            tell(r, &step);
        WF_TRY(status);
        *stopped = is_stopped(r);
        if (!*stopped) { /* do not start a validation if a stop was requested */
            between(r);
            *stopped = is_stopped(r);
        }
    }
    return save(r);
}

static wf_status export_model(run *r)
{
    wf_arena arena;
    bool adapter = r->trainer->setup.adapter != NULL;
    if (strcmp(r->o.export_type, "none") == 0)
        return WF_OK;
    wf_arena_init(&arena, r->ctx);
    const char *path = wf_place_export(&arena, &r->o);
    wf_status status = path ? wf_trainer_export(r->trainer, path, adapter ? NULL : r->o.export_type)
                            : WF_ERR_MEMORY;
    if (status == WF_OK)
        say(r, "the %s is %s", adapter ? "adapter" : "model", path);
    wf_arena_free(&arena);
    return status;
}

/* ---- The run ---- */

static void end(run *r)
{
    wf_record_close(r->record);
    wf_trainer_free(r->trainer);
    wf_loader_free(r->valid);
    wf_loader_free(r->loader);
    wf_setup_free(&r->setup);
    wf_data_close(r->data);
    wf_mem_free(r->ctx, r->checkpoint);
    wf_run_lock_release(r->lock);
}

wf_status wf_train(wf_device *device, const wf_run_options *options, bool *stopped)
{
    run r = {.ctx = device->ctx, .device = device, .o = *options, .saved = -1};
    *stopped = false;
    wf_status status = begin(&r);
    if (status == WF_OK)
        status = train(&r, stopped);
    if (status == WF_OK && !*stopped)
        status = export_model(&r);
    end(&r);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * train.c - see train.h.
 *
 * One static structure holds all flags. Numbers that were not given are UNSET or -1, so that an
 * explicit 0 can be told from the default; real() and whole() translate this to the convention of
 * the options. The library checks ranges again, by the same WF_RANGE_ constants.
 */
#include "cli/train.h"

#include <stdlib.h>
#include <string.h>

#include "model/example.h"
#include "train/generate.h"
#include "train/ranges.h"
#include "train/shape.h"

#define USUAL_VOCABULARY 32000 /* assumed before the data is read */

#define UNSET (-1e300) /* no setting has this value */

/* A number that is not given is UNSET or -1. In the options 0 means the default, and -1 means 0. */
static struct {
    const char *preset, *config, *optimizer, *schedule, *compute, *lora_targets;
    int64_t depth, batch, length, accumulate, steps, warmup, decay, recompute, patience, lora, seed;
    double epochs, rate, beta1, beta2, eps, momentum, weight_decay, clip, ema, floor, smoothing,
        z_loss, dropout, outlier, lora_alpha, lora_dropout;
    bool documents, decay_all;
    /* settings of the run */
    const char *data, *out, *device, *prompt, *export_type, *memory;
    int64_t threads, save_every, keep, keep_every, valid_every, valid_batches, sample_every,
        sample_tokens, log_every;
    double save_minutes;
    bool resume, restart, overwrite, fit, quiet, fast, skip_bad;
} set = {
    .depth = -1,
    .batch = -1,
    .length = -1,
    .accumulate = -1,
    .steps = -1,
    .warmup = -1,
    .decay = -1,
    .recompute = -1,
    .patience = -1,
    .lora = -1,
    .seed = -1,
    .epochs = UNSET,
    .rate = UNSET,
    .beta1 = UNSET,
    .beta2 = UNSET,
    .eps = UNSET,
    .momentum = UNSET,
    .weight_decay = UNSET,
    .clip = UNSET,
    .ema = UNSET,
    .floor = UNSET,
    .smoothing = UNSET,
    .z_loss = UNSET,
    .dropout = UNSET,
    .outlier = UNSET,
    .lora_alpha = UNSET,
    .lora_dropout = UNSET,
    .device = "cpu",
    .threads = -1,
    .save_every = -1,
    .save_minutes = UNSET,
    .keep = -1,
    .keep_every = -1,
    .valid_every = -1,
    .valid_batches = -1,
    .sample_every = -1,
    .sample_tokens = -1,
    .log_every = -1,
};

const wf_flag wf_shape_flags[] = {
    {"preset", 0, "NAME", "a well-known shape; 'weft help train' lists the presets",
     .text = &set.preset, .offer = {.words = wf_shape_preset}},
    {"depth", 0, "N", "a Llama of N layers; its other sizes follow from N", .whole = &set.depth,
     .range = "1,"},
    {"config", 0, "FILE", "a config.json in the format of Hugging Face", .text = &set.config,
     .offer = WF_OFFER_FILES},
    {0},
};

static bool target_words(int index, const char **name, const char **doc)
{
    static const char *const names[] = {"all", "attention", "mlp"};
    *name = index < 3 ? names[index] : NULL;
    *doc = NULL;
    return index < 3;
}

const wf_flag wf_adapter_flags[] = {
    {"lora", 0, "R", "train LoRA adapters of rank R and keep the weights fixed", .whole = &set.lora,
     .range = WF_RANGE_LORA},
    {"lora-alpha", 0, "X", "scale of the adapters, times R", .real = &set.lora_alpha,
     .range = WF_RANGE_LORA_ALPHA, .fallback = "2R"},
    {"lora-dropout", 0, "X", "dropout probability of the adapters' input",
     .real = &set.lora_dropout, .range = WF_RANGE_DROPOUT, .fallback = "0"},
    {"lora-targets", 0, "NAMES",
     "linear layers with an adapter: attention, mlp, all, or names such as attn_q,attn_v",
     .text = &set.lora_targets, .offer = {.words = target_words}},
    {0},
};

const wf_flag wf_train_flags[] = {
    {"batch", 'b', "B", "sequences in a batch", .whole = &set.batch, .range = WF_RANGE_BATCH,
     .fallback = "about 4096 tokens"},
    {"length", 'l', "T", "tokens in a sequence", .whole = &set.length, .range = WF_RANGE_LENGTH,
     .fallback = "the context, at most 1024"},
    {"accumulate", 0, "N", "batches whose gradients are accumulated into one step",
     .whole = &set.accumulate, .range = WF_RANGE_ACCUMULATE, .also = "--grad-accum",
     .fallback = "1"},
    {"documents", 0, NULL, "do not attend across document boundaries", .on = &set.documents},
    {"steps", 0, "N", "optimizer steps", .whole = &set.steps, .range = WF_RANGE_STEPS,
     .not_letter = 'n', .fallback = "one pass over the data"},
    {"epochs", 0, "X", "passes over the data, instead of --steps", .real = &set.epochs,
     .range = WF_RANGE_EPOCHS, .fallback = "1"},
    {"optimizer", 0, "NAME", "the optimizer", .text = &set.optimizer, .fallback = "adamw",
     .offer = {.choices = "adamw muon lion sgd"}},
    {"rate", 0, "X", "peak learning rate", .real = &set.rate, .range = WF_RANGE_RATE,
     .also = "--lr", .fallback = "by the model's size"},
    {"schedule", 0, "NAME", "learning rate schedule", .text = &set.schedule, .fallback = "cosine",
     .offer = {.choices = "cosine linear constant wsd"}},
    {"warmup", 0, "N", "steps of linear warmup", .whole = &set.warmup,
     .fallback = "1/50 of all steps"},
    {"floor", 0, "X", "final learning rate as a share of the peak", .real = &set.floor,
     .range = WF_RANGE_FLOOR, .fallback = "0.1"},
    {"decay", 0, "N", "wsd: steps of the final decay", .whole = &set.decay,
     .fallback = "1/5 of all steps"},
    {"weight-decay", 0, "X", "decoupled weight decay of matrices", .real = &set.weight_decay,
     .range = WF_RANGE_WEIGHT_DECAY, .fallback = "0.1; 0 for adapters and sgd"},
    {"decay-all", 0, NULL, "apply weight decay to vectors, too", .on = &set.decay_all},
    {"beta1", 0, "X", "adamw, lion: decay of the first moment", .real = &set.beta1,
     .range = WF_RANGE_DECAY, .fallback = "0.9"},
    {"beta2", 0, "X", "adamw, lion: decay of the second moment", .real = &set.beta2,
     .range = WF_RANGE_DECAY, .fallback = "0.95; 0.99 for lion"},
    {"eps", 0, "X", "adamw: term added to the root of the second moment", .real = &set.eps,
     .range = WF_RANGE_EPS, .fallback = "1e-8"},
    {"momentum", 0, "X", "muon, sgd: momentum", .real = &set.momentum, .range = WF_RANGE_DECAY,
     .fallback = "0.95; 0.9 for sgd"},
    {"clip", 0, "X", "maximum global gradient norm; 0: no clipping", .real = &set.clip,
     .range = WF_RANGE_CLIP, .fallback = "1"},
    {"ema", 0, "X", "export an exponential moving average of the weights with this decay",
     .real = &set.ema, .range = WF_RANGE_DECAY, .fallback = "no average"},
    {"dropout", 0, "X", "dropout probability of embeddings and residual branches",
     .real = &set.dropout, .range = WF_RANGE_DROPOUT, .fallback = "0"},
    {"label-smoothing", 0, "X", "probability that is spread over all tokens",
     .real = &set.smoothing, .range = WF_RANGE_SMOOTHING, .fallback = "0"},
    {"z-loss", 0, "X", "weight of the squared log-sum-exp in the loss", .real = &set.z_loss,
     .range = WF_RANGE_Z_LOSS, .fallback = "0"},
    {"compute", 0, "TYPE", "type of activations; f16 uses a dynamic loss scale",
     .text = &set.compute, .also = "--precision", .not_letter = 'p', .fallback = "f32",
     .offer = {.choices = "f32 bf16 f16"}},
    {"recompute", 0, "N",
     "keep only the output of every Nth block and recompute the rest in the backward pass",
     .whole = &set.recompute, .range = WF_RANGE_RECOMPUTE, .not_letter = 'r',
     .fallback = "keep all"},
    {"outlier", 0, "X", "skip steps whose gradient norm exceeds X times the usual norm",
     .real = &set.outlier, .range = WF_RANGE_OUTLIER, .fallback = "skip no steps"},
    {"patience", 0, "N", "stop after N skipped steps in a row; 0: never", .whole = &set.patience,
     .fallback = "20"},
    {"seed", 's', "N", "random seed of weights, data order and dropout", .whole = &set.seed,
     .range = "1,", .fallback = "1"},
    {"device", 'd', "D", "where to compute: auto, or a device that 'weft devices' lists",
     .text = &set.device, .offer = {.words = wf_auto_words}},
    WF_FLAG_FAST(&set.fast),
    {"threads", 't', "N", "CPU threads", .whole = &set.threads, .range = "1,1024",
     .fallback = "all cores"},
    {"memory", 0, "BYTES", "memory limit in bytes, such as 8G", .text = &set.memory,
     .fallback = "the device's free memory"},
    {0},
};

/* Types of an exported model, and "none". */
static bool export_words(int index, const char **name, const char **doc)
{
    if (index > 0)
        return wf_recipe_words(index - 1, name, doc);
    *name = "none";
    *doc = NULL;
    return true;
}

const wf_flag wf_sample_flags[] = {
    {"sample-every", 0, "N", "steps between sample texts", .whole = &set.sample_every,
     .fallback = "no samples"},
    {"sample-prompt", 0, "TEXT", "prompt of the samples", .text = &set.prompt,
     .fallback = "the beginning of a document"},
    {"sample-tokens", 0, "N", "tokens in a sample", .whole = &set.sample_tokens, .range = "1,",
     .fallback = "64"},
    {0},
};

const wf_flag wf_run_flags[] = {
    {"data", 0, "DATA", "a folder from weft prepare, or a file of text or JSON lines",
     .text = &set.data, .offer = WF_OFFER_FILES},
    {"skip-bad", 0, NULL, "skip invalid records of a DATA file and report their number",
     .on = &set.skip_bad},
    {"out", 'o', "RUN", "folder for checkpoints, log, loss curve and model", .text = &set.out,
     .offer = WF_OFFER_FOLDERS},
    {"resume", 0, NULL, "continue from the newest checkpoint in RUN, if there is one",
     .on = &set.resume},
    {"restart", 0, NULL, "start over in RUN; existing files are renamed to NAME.bak-1",
     .on = &set.restart},
    {"overwrite", 0, NULL, "replace the model, log and curve of another run in RUN",
     .on = &set.overwrite},
    {"fit", 0, NULL, "change batch, accumulation and recomputation until the run fits in memory",
     .on = &set.fit},
    {"save-every", 0, "N", "steps between checkpoints; 0: save by time only",
     .whole = &set.save_every, .fallback = "1/10 of all steps"},
    {"save-minutes", 0, "X", "maximum minutes between checkpoints; 0: save by steps only",
     .real = &set.save_minutes, .range = "0,", .fallback = "15"},
    {"keep", 0, "N", "number of checkpoints to keep; 0: all", .whole = &set.keep, .fallback = "2"},
    {"keep-every", 0, "N", "also keep every Nth step's checkpoint forever",
     .whole = &set.keep_every},
    {"valid-every", 0, "N", "steps between validations; 0: never", .whole = &set.valid_every,
     .fallback = "1/10 of all steps"},
    {"valid-batches", 0, "N", "batches in a validation", .whole = &set.valid_batches, .range = "1,",
     .fallback = "20"},
    {"export", 0, "TYPE",
     "type of RUN/model.gguf, such as f32, bf16 or q8_0; none: do not write it",
     .text = &set.export_type, .fallback = "f32", .offer = {.words = export_words}},
    {"log-every", 0, "N", "steps between log lines when stderr is not a terminal",
     .whole = &set.log_every, .fallback = "a line every 10 s"},
    {"quiet", 'q', NULL, "print only errors on stderr", .on = &set.quiet},
    {0},
};

/* ---- From flags to options ---- */

/* Options use 0 for the default and -1 for a given 0. */
static double real(double given)
{
    return given == UNSET ? 0 : given == 0 ? -1 : given;
}

/* For settings whose default is 0. */
static double plain(double given)
{
    return given == UNSET ? 0 : given;
}

static int64_t whole(int64_t given)
{
    return given < 0 ? 0 : given == 0 ? -1 : given;
}

/* For settings that cannot be 0. */
static int64_t count(int64_t given)
{
    return given < 0 ? 0 : given;
}

/* Flags with a default other than UNSET count as given; callers exclude them. */
static bool is_given(const wf_flag *f)
{
    return f->whole  ? *f->whole >= 0
           : f->real ? *f->real != UNSET
           : f->on   ? *f->on
                     : *f->text != NULL;
}

/* Names of settings have underscores where flags have dashes. */
bool wf_train_given(const char *setting)
{
    const wf_flag *const tables[] = {wf_shape_flags, wf_train_flags, wf_adapter_flags};
    for (int i = 0; i < 3; i++)
        for (const wf_flag *f = tables[i]; f->name; f++) {
            const char *s = setting, *n = f->name;
            for (; *s && (*s == *n || (*s == '_' && *n == '-')); s++, n++)
                ;
            if (!*s && !*n)
                return is_given(f);
        }
    return false;
}

const char *wf_train_unused(const char *const *used)
{
    const wf_flag *const tables[] = {wf_shape_flags, wf_train_flags, wf_adapter_flags,
                                     wf_sample_flags};
    for (int i = 0; i < 4; i++)
        for (const wf_flag *f = tables[i]; f->name; f++) {
            const char *const *name = used;
            while (*name && strcmp(*name, f->name) != 0)
                name++;
            const bool fixed = f->text == &set.device; /* its default counts as given */
            if (!*name && !fixed && is_given(f))
                return f->name;
        }
    return NULL;
}

/* Refuses flags that exclude each other, and flags without the one they depend on. */
static wf_status check_pairs(wf_ctx *ctx)
{
    if (set.steps >= 0 && set.epochs != UNSET)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "--steps %lld and --epochs %g both set the length of the run; give one of them",
            (long long)set.steps, set.epochs);
    for (const wf_flag *f = wf_adapter_flags; f->name; f++)
        if (set.lora < 0 && is_given(f))
            return wf_fail(ctx, WF_ERR_USAGE, "--%s needs --lora R, which trains adapters",
                           f->name);
    if (set.lora > 0 && set.export_type && strcmp(set.export_type, "none") != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--export %s has no effect with --lora, which writes an adapter; leave it "
                       "out, and merge the adapter with 'weft convert --lora'",
                       WF_SHOWN(set.export_type));
    if (set.valid_every == 0 && set.valid_batches >= 0)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "--valid-batches has no effect with --valid-every 0, which turns validation off");
    if (set.sample_every <= 0 && (set.prompt || set.sample_tokens >= 0))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--sample-%s needs --sample-every N, which turns samples on",
                       set.prompt ? "prompt" : "tokens");
    return WF_OK;
}

/* Refuses flags that the schedule or optimizer does not use. The library refuses unknown names. */
static wf_status check_users(wf_ctx *ctx)
{
    static const struct {
        const char *flag, *users;
        bool schedule;
    } rules[] = {
        {"decay", "wsd", true},
        {"floor", "cosine linear wsd", true},
        {"beta1", "adamw muon lion", false},
        {"beta2", "adamw muon lion", false},
        {"eps", "adamw muon", false},
        {"momentum", "muon sgd", false},
    };
    static const char known[] = "adamw muon lion sgd cosine linear constant wsd";
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const char *user = rules[i].schedule ? set.schedule : set.optimizer;
        user = user ? user : rules[i].schedule ? "cosine" : "adamw";
        if (wf_train_given(rules[i].flag) && strstr(known, user) && !strstr(rules[i].users, user))
            return wf_fail(ctx, WF_ERR_USAGE, "--%s is not used by the %s %s; leave it out",
                           rules[i].flag, rules[i].schedule ? "schedule" : "optimizer", user);
    }
    return WF_OK;
}

/* Parses "8G", "500MB", "1.5T"; units are powers of 1000. NULL: 0. */
static wf_status parse_bytes(wf_ctx *ctx, const char *text, size_t *out)
{
    static const char units[] = "kMGT";
    char *end;
    *out = 0;
    if (!text)
        return WF_OK;
    double value = strtod(text, &end);
    const char *unit = *end ? strchr(units, *end == 'K' ? 'k' : *end) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        value *= 1000;
    end += unit != NULL;
    end += unit && *end == 'B';
    if (end == text || *end || !(value >= 1 && value < 1e18))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--memory must be a size from 1 to 1e18 bytes, such as 8G, not '%s'",
                       WF_SHOWN(text));
    *out = (size_t)value;
    return WF_OK;
}

static wf_status get_train(wf_ctx *ctx, const char *model, wf_train_options *o)
{
    WF_TRY(check_pairs(ctx));
    WF_TRY(check_users(ctx));
    *o = (wf_train_options){
        .preset = set.preset,
        .depth = count(set.depth),
        .config = set.config,
        .model = model,
        .batch = count(set.batch),
        .length = count(set.length),
        .accumulate = count(set.accumulate),
        .documents = set.documents,
        .steps = count(set.steps),
        .epochs = plain(set.epochs),
        .optimizer = set.optimizer,
        .rate = plain(set.rate),
        .beta1 = real(set.beta1),
        .beta2 = real(set.beta2),
        .eps = real(set.eps),
        .momentum = real(set.momentum),
        .weight_decay = real(set.weight_decay),
        .decay_all = set.decay_all,
        .clip = real(set.clip),
        .ema = plain(set.ema),
        .schedule = set.schedule,
        .warmup = whole(set.warmup),
        .floor = real(set.floor),
        .decay = whole(set.decay),
        .label_smoothing = plain(set.smoothing),
        .z_loss = plain(set.z_loss),
        .dropout = plain(set.dropout),
        .compute = set.compute ? wf_type_from_name(set.compute) : WF_F32,
        .recompute = count(set.recompute),
        .outlier = plain(set.outlier),
        .patience = whole(set.patience),
        .lora = count(set.lora),
        .lora_alpha = plain(set.lora_alpha),
        .lora_dropout = plain(set.lora_dropout),
        .lora_targets = set.lora_targets,
        .seed = (uint64_t)count(set.seed),
    };
    return o->compute ? WF_OK
                      : wf_fail(ctx, WF_ERR_USAGE, "--compute must be f32, bf16 or f16, not '%s'",
                                set.compute);
}

wf_status wf_train_options_get(wf_ctx *ctx, const char *model, wf_run_options *out)
{
    *out = (wf_run_options){
        .data = set.data,
        .out = set.out,
        .resume = set.resume,
        .restart = set.restart,
        .overwrite = set.overwrite,
        .save_every = whole(set.save_every),
        .save_minutes = real(set.save_minutes),
        .keep = whole(set.keep),
        .keep_every = count(set.keep_every),
        .valid_every = whole(set.valid_every),
        .valid_batches = count(set.valid_batches),
        .sample_every = count(set.sample_every),
        .sample_prompt = set.prompt,
        .sample_tokens = count(set.sample_tokens),
        .export_type = set.export_type,
        .fit = set.fit,
    };
    WF_TRY(parse_bytes(ctx, set.memory, &out->memory));
    return get_train(ctx, model, &out->train);
}

wf_status wf_train_memory(wf_ctx *ctx, size_t *out)
{
    return parse_bytes(ctx, set.memory, out);
}

const char *wf_train_compute(void)
{
    return set.compute;
}

bool wf_train_chooses(void)
{
    return strcmp(set.device, "auto") == 0;
}

wf_status wf_train_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out)
{
    char spec[64];
    size_t len = 0;
    const bool threads = set.threads >= 0;
    *out = NULL;
    if (threads && strcmp(set.device, "cpu") != 0)
        return wf_fail(ctx, WF_ERR_USAGE, "--threads applies to the device cpu, not to '%s'",
                       set.device);
    /* Used only if --threads was given. */
    wf_text_append(spec, sizeof spec, &len, "cpu:%lld", (long long)set.threads);
    return wf_auto_open(ctx, threads ? spec : set.device, work, set.fast, set.quiet, out);
}

/* Builds a setup without reading the data, for plans and for choosing a device. Only the size of
 * the vocabulary is a guess. */
wf_status wf_train_guess(wf_ctx *ctx, const wf_run_options *run, int64_t given, wf_setup *out)
{
    const wf_train_options *o = &run->train;
    const wf_example *e;
    int64_t vocabulary = given > 0 ? given : o->model ? 0 : USUAL_VOCABULARY;
    *out = (wf_setup){0};
    if (given <= 0 && o->preset) {
        WF_TRY(wf_example_find(ctx, o->preset, &e));
        vocabulary = e->vocab;
    }
    wf_status status = wf_setup_make(ctx, o, vocabulary, out);
    out->sample_tokens = wf_run_sample_tokens(run);
    return status;
}

bool wf_train_skips_bad(void)
{
    return set.skip_bad;
}

bool wf_train_quiet(void)
{
    return set.quiet;
}

int64_t wf_train_log_every(void)
{
    return set.log_every;
}

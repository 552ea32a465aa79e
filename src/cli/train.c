/* SPDX-License-Identifier: MIT */
/* train.c - see train.h. */
#include "cli/train.h"

#include <stdlib.h>
#include <string.h>

#include "model/example.h"
#include "train/ranges.h"

#define USUAL_VOCABULARY 32000

#define UNSET (-1e300)

/* Numbers that are not given are UNSET or -1, so that 0 can be: options take it for "the default". */
static struct {
    const char *preset, *config, *optimizer, *schedule, *compute, *lora_targets;
    int64_t depth, batch, length, accumulate, steps, warmup, decay, recompute, patience, lora, seed;
    double epochs, rate, beta1, beta2, eps, momentum, weight_decay, clip, ema, floor, smoothing,
        z_loss, dropout, outlier, lora_alpha, lora_dropout;
    bool documents, decay_all;
    /* of a run */
    const char *data, *out, *device, *prompt, *export_type, *memory;
    int64_t threads, save_every, keep, keep_every, valid_every, valid_batches, sample_every,
        sample_tokens, log_every;
    double save_minutes;
    bool resume, restart, overwrite, fit, quiet, fast, skip_bad;
} set = {
    .compute = "f32",
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
    {"preset", 0, "NAME", "a well-known shape: 'weft help train' lists them", .text = &set.preset},
    {"depth", 0, "N", "layers of a Llama whose other sizes follow from them", .whole = &set.depth,
     .range = "1,"},
    {"config", 0, "FILE", "a config.json, as Hugging Face has it", .text = &set.config},
    {0},
};

const wf_flag wf_adapter_flags[] = {
    {"lora", 0, "R", "train adapters of this rank, and leave the weights as they are",
     .whole = &set.lora, .range = WF_RANGE_LORA},
    {"lora-alpha", 0, "X", "their scale, times R (default 2R)", .real = &set.lora_alpha,
     .range = WF_RANGE_LORA_ALPHA},
    {"lora-dropout", 0, "X", "of what they read (default 0)", .real = &set.lora_dropout,
     .range = WF_RANGE_DROPOUT},
    {"lora-targets", 0, "NAMES", "which linears have one: attn_q,attn_v,..., attention, mlp or all",
     .text = &set.lora_targets},
    {0},
};

const wf_flag wf_train_flags[] = {
    {"batch", 'b', "B", "sequences at once (default: about 4096 tokens' worth)",
     .whole = &set.batch, .range = WF_RANGE_BATCH},
    {"length", 'l', "T", "tokens of a sequence (default: the context, up to 1024)",
     .whole = &set.length, .range = WF_RANGE_LENGTH},
    {"accumulate", 0, "N", "batches whose gradients make one step (default 1)",
     .whole = &set.accumulate, .range = WF_RANGE_ACCUMULATE, .also = "--grad-accum"},
    {"documents", 0, NULL, "attention ends where documents do", .on = &set.documents},
    {"steps", 0, "N", "updates (default: one pass over the data)", .whole = &set.steps,
     .range = WF_RANGE_STEPS, .not_letter = 'n'},
    {"epochs", 0, "X", "passes over the data, in place of --steps (default 1)", .real = &set.epochs,
     .range = WF_RANGE_EPOCHS},
    {"optimizer", 0, "NAME", "adamw, muon, lion or sgd (default adamw)", .text = &set.optimizer},
    {"rate", 0, "X", "learning rate at its highest (default: by the model's size)",
     .real = &set.rate, .range = WF_RANGE_RATE, .also = "--lr"},
    {"schedule", 0, "NAME", "cosine, linear, constant or wsd (default cosine)",
     .text = &set.schedule},
    {"warmup", 0, "N", "steps of rising rate (default a fiftieth of all)", .whole = &set.warmup},
    {"floor", 0, "X", "share of the rate that is left at the end (default 0.1)", .real = &set.floor,
     .range = WF_RANGE_FLOOR},
    {"decay", 0, "N", "wsd: steps of the last part, in which the rate falls (default a fifth)",
     .whole = &set.decay},
    {"weight-decay", 0, "X", "of matrices, times the rate (default 0.1; adapters and sgd 0)",
     .real = &set.weight_decay, .range = WF_RANGE_WEIGHT_DECAY},
    {"decay-all", 0, NULL, "weight decay of vectors, too", .on = &set.decay_all},
    {"beta1", 0, "X", "adamw, lion: decay of the first moment (default 0.9)", .real = &set.beta1,
     .range = WF_RANGE_DECAY},
    {"beta2", 0, "X", "adamw, lion: decay of the second (default 0.95; lion 0.99)",
     .real = &set.beta2, .range = WF_RANGE_DECAY},
    {"eps", 0, "X", "adamw: added to the root of the second (default 1e-8)", .real = &set.eps,
     .range = WF_RANGE_EPS},
    {"momentum", 0, "X", "muon, sgd (default 0.95; sgd 0.9)", .real = &set.momentum,
     .range = WF_RANGE_DECAY},
    {"clip", 0, "X", "longest gradient, by its global norm (default 1; 0: any)", .real = &set.clip,
     .range = WF_RANGE_CLIP},
    {"ema", 0, "X",
     "keep an average of the weights with this decay, and export that (default: none)",
     .real = &set.ema, .range = WF_RANGE_DECAY},
    {"dropout", 0, "X", "of embeddings and of what every branch adds (default 0)",
     .real = &set.dropout, .range = WF_RANGE_DROPOUT},
    {"label-smoothing", 0, "X", "share of a target spread over all tokens (default 0)",
     .real = &set.smoothing, .range = WF_RANGE_SMOOTHING},
    {"z-loss", 0, "X", "factor of the squared log-sum-exp in the loss (default 0)",
     .real = &set.z_loss, .range = WF_RANGE_Z_LOSS},
    {"compute", 0, "TYPE", "f32, bf16, or f16 with a dynamic loss scale (default f32)",
     .text = &set.compute, .also = "--precision", .not_letter = 'p'},
    {"recompute", 0, "N", "keep the end of every Nth block only, and compute the rest again",
     .whole = &set.recompute, .range = WF_RANGE_RECOMPUTE, .not_letter = 'r'},
    {"outlier", 0, "X", "skip steps whose gradient is X times as long as usual (default: none)",
     .real = &set.outlier, .range = WF_RANGE_OUTLIER},
    {"patience", 0, "N", "stop after N skipped steps in a row (default 20; 0: never)",
     .whole = &set.patience},
    {"seed", 's', "N", "of weights, order and dropout (default 1)", .whole = &set.seed,
     .range = "1,"},
    {"device", 'd', "D", "where to compute; 'weft devices' lists them", .text = &set.device},
    WF_FLAG_FAST(&set.fast),
    {"threads", 't', "N", "threads of the CPU (default: all cores)", .whole = &set.threads,
     .range = "1,1024"},
    {"memory", 0, "BYTES", "most that may be planned, as 8G (default: what is free)",
     .text = &set.memory},
    {0},
};

const wf_flag wf_run_flags[] = {
    {"data", 0, "DATA", "the folder that weft prepare wrote; or a file of text or JSON lines",
     .text = &set.data},
    {"skip-bad", 0, NULL, "of a file: leave out records that cannot be read, and say how many",
     .on = &set.skip_bad},
    {"out", 'o', "RUN", "the folder of the run: checkpoints, log, curve, model", .text = &set.out},
    {"resume", 0, NULL, "continue from the newest checkpoint in RUN, if there is one",
     .on = &set.resume},
    {"restart", 0, NULL, "start over in RUN; what is there is renamed to NAME.bak-1",
     .on = &set.restart},
    {"overwrite", 0, NULL, "replace a model, log and curve in RUN that another run left",
     .on = &set.overwrite},
    {"fit", 0, NULL, "change batch, accumulation and recompute until it fits into memory",
     .on = &set.fit},
    {"save-every", 0, "N", "steps between checkpoints (default a tenth of all; 0: not by steps)",
     .whole = &set.save_every},
    {"save-minutes", 0, "X", "most minutes between checkpoints (default 15; 0: not by time)",
     .real = &set.save_minutes, .range = "0,"},
    {"keep", 0, "N", "keep the last N checkpoints (default 2; 0: all)", .whole = &set.keep},
    {"keep-every", 0, "N", "and those of every N steps for ever", .whole = &set.keep_every},
    {"valid-every", 0, "N", "steps between validations (default a tenth of all; 0: never)",
     .whole = &set.valid_every},
    {"valid-batches", 0, "N", "batches of a validation (default 20)", .whole = &set.valid_batches,
     .range = "1,"},
    {"sample-every", 0, "N", "steps between sample texts (default: none)",
     .whole = &set.sample_every},
    {"sample-prompt", 0, "TEXT", "what they begin with (default: a document's beginning)",
     .text = &set.prompt},
    {"sample-tokens", 0, "N", "how long they are (default 64)", .whole = &set.sample_tokens,
     .range = "1,"},
    {"export", 0, "TYPE",
     "of RUN/model.gguf at the end: f32, bf16, q8_0, ... or none (default f32)",
     .text = &set.export_type},
    {"log-every", 0, "N", "where stderr is no terminal: a line every N steps (default: 10 s)",
     .whole = &set.log_every},
    {"quiet", 'q', NULL, "nothing on stderr but failures", .on = &set.quiet},
    {0},
};

/* ---- From flags to options ---- */

static double real(double given)
{
    return given == UNSET ? 0 : given == 0 ? -1 : given;
}

/* Where 0 is what nothing given means, too. */
static double plain(double given)
{
    return given == UNSET ? 0 : given;
}

static int64_t whole(int64_t given)
{
    return given < 0 ? 0 : given == 0 ? -1 : given;
}

static int64_t count(int64_t given)
{
    return given < 0 ? 0 : given;
}

static bool is_given(const wf_flag *f)
{
    return f->whole  ? *f->whole >= 0
           : f->real ? *f->real != UNSET
           : f->on   ? *f->on
                     : *f->text != NULL;
}

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
    const wf_flag *const tables[] = {wf_shape_flags, wf_train_flags, wf_adapter_flags};
    for (int i = 0; i < 3; i++)
        for (const wf_flag *f = tables[i]; f->name; f++) {
            const char *const *name = used;
            while (*name && strcmp(*name, f->name) != 0)
                name++;
            bool fixed = f->text == &set.compute || f->text == &set.device; /* never NULL */
            if (!*name && !fixed && is_given(f))
                return f->name;
        }
    return NULL;
}

/* Flags that say something together only, or only one of which can be meant. */
static wf_status check_pairs(wf_ctx *ctx)
{
    if (set.steps >= 0 && set.epochs != UNSET)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--steps %lld and --epochs %g both say how long to train; give one of them",
                       (long long)set.steps, set.epochs);
    for (const wf_flag *f = wf_adapter_flags; f->name; f++)
        if (set.lora < 0 && is_given(f))
            return wf_fail(ctx, WF_ERR_USAGE,
                           "--%s is about adapters, and without --lora R there are none", f->name);
    if (set.lora > 0 && set.export_type && strcmp(set.export_type, "none") != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--export %s is about model.gguf, and --lora writes an adapter; leave it "
                       "out, or merge the adapter with 'weft convert --lora'",
                       WF_SHOWN(set.export_type));
    if (set.valid_every == 0 && set.valid_batches >= 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--valid-batches is about validation, and --valid-every 0 turns it off");
    if (set.sample_every <= 0 && (set.prompt || set.sample_tokens >= 0))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--sample-%s is about sample texts; ask for them with --sample-every N",
                       set.prompt ? "prompt" : "tokens");
    return WF_OK;
}

/* Flags of one schedule or optimizer. Names that do not exist are refused elsewhere. */
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
                       "--memory wants bytes from 1 to 1e18, as 800M or 8G, not '%s'",
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
        .compute = wf_type_from_name(set.compute),
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
                      : wf_fail(ctx, WF_ERR_USAGE, "--compute wants f32, bf16 or f16, not '%s'",
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
        return wf_fail(ctx, WF_ERR_USAGE, "--threads is for the device cpu, not for '%s'",
                       set.device);
    wf_text_append(spec, sizeof spec, &len, "cpu:%lld", (long long)set.threads);
    return wf_auto_open(ctx, threads ? spec : set.device, work, set.fast, set.quiet, out);
}

wf_status wf_train_guess(wf_ctx *ctx, const wf_train_options *o, int64_t given, wf_setup *out)
{
    const wf_example *e;
    int64_t vocabulary = given > 0 ? given : o->model ? 0 : USUAL_VOCABULARY;
    *out = (wf_setup){0};
    if (given <= 0 && o->preset) {
        WF_TRY(wf_example_find(ctx, o->preset, &e));
        vocabulary = e->vocab;
    }
    return wf_setup_make(ctx, o, vocabulary, out);
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

/* SPDX-License-Identifier: MIT */
/*
 * cmd_train.c - weft train and weft finetune: runs training and shows its progress on stderr.
 *
 * Signals set a flag that the trainer polls after every step. It then saves a checkpoint, and the
 * program exits with status 3.
 */
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cli/live.h"
#include "cli/open.h"
#include "cli/plan.h"
#include "cli/term.h"
#include "cli/train.h"
#include "train/shape.h"

#define EXIT_STOPPED 3 /* stopped by a signal after saving a checkpoint */

static wf_live live;

/* ---- Stopping ---- */

static volatile sig_atomic_t asked; /* 1: SIGHUP; 2: a signal whose repetition ends the program */
static bool stepped;                /* at least one step ran, so the setup was accepted */

/* The second SIGINT or SIGTERM exits at once; _exit is safe in a handler. */
static void ask(int signal)
{
    if (asked == 2)
        _exit(128 + signal);
    asked = 2;
}

/* A closing terminal sends SIGHUP more than once, and service managers send it right after SIGTERM.
 * So it never ends the program before the checkpoint is saved. */
static void hang_up(int signal)
{
    (void)signal;
    if (!asked)
        asked = 1;
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = ask}, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = hang_up;
    if (sigaction(SIGHUP, NULL, &before) == 0 &&
        before.sa_handler != SIG_IGN) /* keep it ignored under nohup */
        sigaction(SIGHUP, &action, NULL);
}

/* The trainer calls this after every step. */
static bool is_asked(void *user)
{
    (void)user;
    stepped = true;
    return asked != 0;
}

/* ---- Output ---- */

/* Returns whether a setting is off by default, so that the list can omit it. */
static bool is_idle(const char *name, const char *value)
{
    bool off = strcmp(value, "0") == 0 || strcmp(value, "no") == 0;
    return off && !wf_train_given(name);
}

/* Prints the settings, given and derived, in columns. */
static void show_settings(const wf_trainer *t)
{
    enum { WIDTH = 26, MOST = 4 };
    const char *name;
    char value[96], row[MOST * WIDTH + 256];
    size_t len = 0;
    int column = 0, fit = wf_term_columns(STDERR_FILENO) / WIDTH;
    int columns = !isatty(STDERR_FILENO) || fit > MOST ? MOST : fit < 1 ? 1 : fit;
    for (int i = 0; wf_trainer_setting(t, i, &name, value); i++) {
        if (!*value || is_idle(name, value))
            continue;
        size_t begin = len;
        wf_text_append(row, sizeof row, &len, "  %s %s", name, WF_FOREIGN(value));
        if (++column == columns || len - begin > WIDTH) {
            fprintf(stderr, "%s\n", row);
            column = 0;
            len = 0;
            continue;
        }
        wf_text_append(row, sizeof row, &len, "%*s", (int)(WIDTH - (len - begin)), "");
    }
    while (len > 0 && row[len - 1] == ' ')
        row[--len] = '\0';
    if (column)
        fprintf(stderr, "%s\n", row);
}

/* The region holds the activations of all graphs, which run in turn. */
static void show_memory(const wf_train_info *i)
{
    char states[32], mapped[32], region[32], ports[32], total[32];
    const wf_memory *m = &i->memory;
    fprintf(stderr, "memory: %s: states %s, activations %s, inputs and outputs %s",
            wf_plan_bytes(m->states + m->region + m->ports, total, sizeof total),
            wf_plan_bytes(m->states, states, sizeof states),
            wf_plan_bytes(m->region, region, sizeof region),
            wf_plan_bytes(m->ports, ports, sizeof ports));
    if (m->mapped)
        fprintf(stderr, "; %s of weights mapped from the file",
                wf_plan_bytes(m->mapped, mapped, sizeof mapped));
    fputc('\n', stderr);
}

/* Describes the run before its first step: model, device, settings, data, memory. */
static void begin(void *user, const wf_trainer *t, int64_t tokens, int64_t batches)
{
    const wf_device *device = user;
    wf_train_info i;
    char all[16], trained[16], data[16], seen[16];
    wf_trainer_get_info(t, &i);
    int64_t step = i.batch * i.length * i.accumulate;
    fprintf(stderr, "%s: %s, %s parameters", WF_FOREIGN(i.name), i.family,
            wf_open_count(i.parameters, all, sizeof all));
    if (i.trained != i.parameters)
        fprintf(stderr, ", %s trained in adapters",
                wf_open_count(i.trained, trained, sizeof trained));
    fprintf(stderr,
            "; %lld layer%s, width %lld, %lld head%s, hidden %lld, vocabulary %lld, context %lld\n",
            (long long)i.layers, WF_PLURAL(i.layers), (long long)i.width, (long long)i.heads,
            WF_PLURAL(i.heads), (long long)i.hidden, (long long)i.vocab, (long long)i.context);
    fprintf(stderr, "on %s\n", wf_device_description(device));
    show_settings(t);
    fprintf(stderr,
            "data: %s token%s, %lld batch%s per pass; %lld step%s of %lld token%s read%s %s (%.2f "
            "passes)\n",
            wf_open_count(tokens, data, sizeof data), WF_PLURAL(tokens), (long long)batches,
            batches == 1 ? "" : "es", (long long)i.steps, WF_PLURAL(i.steps), (long long)step,
            WF_PLURAL(step), i.steps == 1 ? "s" : "",
            wf_open_count(step * i.steps, seen, sizeof seen),
            (double)(i.steps * i.accumulate) / (double)batches);
    show_memory(&i);
    wf_live_begin(&live, wf_train_log_every() > 0 ? wf_train_log_every() : 0);
}

static void show_step(void *user, const wf_train_step *s)
{
    (void)user;
    wf_live_step(&live, s);
    if (!s->applied)
        wf_live_say(&live,
                    isfinite(s->norm)
                        ? "step %lld was skipped: its gradient norm is %g"
                        : "step %lld was skipped: its gradient norm is not finite (%g)",
                    (long long)s->step, s->norm);
}

static void show_valid(void *user, int64_t step, double loss, double bits)
{
    (void)user;
    char more[48] = "";
    if (!isnan(bits))
        snprintf(more, sizeof more, ", %.4f bits/byte", bits);
    wf_live_say(&live, "step %lld: validation loss %.4f, perplexity %.2f%s", (long long)step, loss,
                exp(loss), more);
}

static void show_sample(void *user, int64_t step, const char *text)
{
    (void)user;
    wf_live_say(&live, "step %lld: sample: %s", (long long)step, text);
}

static void show_sentence(void *user, const char *sentence)
{
    (void)user;
    wf_live_say(&live, "%s", sentence);
}

/* ---- Running ---- */

static wf_status train(wf_ctx *ctx, const wf_run_options *o)
{
    wf_device *device;
    bool stopped;
    wf_setup guess;
    wf_status guessed = wf_train_guess(ctx, o, 0, &guess);
    const wf_auto_work work = wf_auto_training(&guess);
    if (guessed != WF_OK && wf_train_chooses()) { /* --device auto needs the setup to choose by */
        wf_setup_free(&guess);
        return guessed;
    }
    wf_status opened = wf_train_device(ctx, guessed == WF_OK ? &work : NULL, &device);
    wf_setup_free(&guess);
    WF_TRY(opened);
    wf_train_events events = {.user = device, .stop = is_asked};
    if (!wf_train_quiet()) {
        events.begin = begin;
        events.step = show_step;
        events.valid = show_valid;
        events.sample = show_sample;
        events.say = show_sentence;
        wf_ctx_set_log(ctx, wf_live_log, &live);
    }
    wf_run_options options = *o;
    options.events = &events;
    catch_signals();
    wf_status status = wf_train(device, &options, &stopped);
    if (!wf_train_quiet())
        wf_live_end(&live);
    if (status == WF_OK && stopped) {
        /* Not a failure of the command, but scripts must be able to tell it from a finished run. */
        fprintf(stderr, "stopped and saved a checkpoint; continue with --resume\n");
        wf_exit_code = EXIT_STOPPED;
    }
    wf_device_close(device);
    return status;
}

static wf_status get_options(wf_ctx *ctx, const char *model, wf_run_options *o)
{
    WF_TRY(wf_train_options_get(ctx, model, o));
    if (!o->data)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the data is missing; give --data DATA, a folder from weft prepare or a text file");
    if (!o->out)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the output is missing; give --out RUN, a folder for checkpoints, log and model");
    return WF_OK;
}

static wf_status run_from(wf_ctx *ctx, const char *model)
{
    wf_run_options o;
    wf_train_prepared made;
    wf_arena arena;
    WF_TRY(get_options(ctx, model, &o));
    wf_arena_init(&arena, ctx);
    wf_status status = wf_train_data(ctx, &arena, &o, &made);
    if (status == WF_OK)
        status = train(ctx, &o);
    /* A run that never stepped was refused; after a step the data belongs to its checkpoints. */
    if (status != WF_OK && !stepped)
        wf_train_data_undo(ctx, &made);
    wf_arena_free(&arena);
    return status;
}

static wf_status run_train(wf_ctx *ctx, char *const *operands, int count)
{
    (void)operands;
    (void)count;
    return run_from(ctx, NULL);
}

static wf_status run_finetune(wf_ctx *ctx, char *const *operands, int count)
{
    if (count == 0)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the model is missing; give a GGUF file or a Hugging Face folder to finetune");
    return run_from(ctx, operands[0]);
}

static const wf_help_table presets = {.title = "presets", .rows = wf_shape_preset};

static const wf_flag train_flags[] = {
    {.doc = "the run", .more = wf_run_flags},
    {.doc = "samples", .more = wf_sample_flags},
    {.doc = "the model", .more = wf_shape_flags},
    {.doc = "training", .more = wf_train_flags},
    {0},
};

static const wf_flag finetune_flags[] = {
    {.doc = "the run", .more = wf_run_flags},
    {.doc = "samples", .more = wf_sample_flags},
    {.doc = "adapters", .more = wf_adapter_flags},
    {.doc = "training", .more = wf_train_flags},
    {0},
};

const wf_command wf_cmd_train = {
    .name = "train",
    .doc = "train a new model",
    .operands = "--data DATA --out RUN",
    .details =
        "Give the shape with --preset, --depth or --config. RUN receives checkpoints (step-N, "
        "Hugging Face folders), log.jsonl, loss.svg, TensorBoard events and, at the end, "
        "model.gguf.\n\n"
        "Ctrl-C, SIGTERM and SIGHUP finish the step, save a checkpoint and exit with status 3; a "
        "second Ctrl-C exits at once. docs/training.md explains every flag.",
    .table = &presets,
    .examples = {"weft train --data data --out run --depth 4 --steps 500",
                 "weft train --data book.txt --out run --preset llama-30M --compute bf16",
                 "weft train --data data --out run --depth 4 --steps 500 --resume"},
    .flags = train_flags,
    .run = run_train,
};

const wf_command wf_cmd_finetune = {
    .name = "finetune",
    .doc = "finetune a model: all weights, or LoRA adapters",
    .operands = "MODEL --data DATA --out RUN",
    .max_operands = 1,
    .offers = {WF_OFFER_FILES},
    .details =
        "MODEL may have any type, including quantized ones. With --lora its weights stay fixed, "
        "and RUN/adapter holds the result in the format of PEFT; use it with weft run MODEL --lora "
        "RUN/adapter. Without --lora the weights become f32, and RUN/model.gguf is the new model. "
        "Checkpoints, log and signals work as in weft train.",
    .examples = {"weft finetune model.gguf --data chats --out run --lora 16",
                 "weft finetune model.gguf --data chats.jsonl --out run --rate 1e-5"},
    .flags = finetune_flags,
    .run = run_finetune,
};

/* SPDX-License-Identifier: MIT */
/*
 * cmd_bench.c - weft bench: measures generation, training, ops and the peak of the machine.
 *
 * All modes share one table of flags; `limits` states which modes use a flag, and others refuse it.
 * Outputs are checked before the measurement, which may take minutes.
 */
#include <string.h>

#include "base/output.h"
#include "base/path.h"
#include "cli/bench.h"
#include "cli/open.h"

wf_bench_options wf_bench_set = {
    .prompt = -1,
    .generated = -1,
    .depth = -1,
    .parallel = -1,
    .slots = -1,
    .shared = -1,
    .repeats = -1,
    .batch = -1,
    .length = -1,
    .stream = -1,
    .output = "text",
};

/* ---- Modes ---- */

enum { MODEL = 1, DECODE = 2, PREFILL = 4, TRAIN = 8, OPS = 16, MACHINE = 32 };

static const struct {
    const char *name; /* the first is never typed: an operand that is not a mode is a model */
    unsigned bit;
    int operands; /* maximum number after the mode */
    wf_status (*run)(wf_ctx *ctx, const char *mode, char *const *operands, int count);
} modes[] = {
    {"model", MODEL, 1, wf_bench_model},     {"decode", DECODE, 1, wf_bench_model},
    {"prefill", PREFILL, 1, wf_bench_model}, {"train", TRAIN, 1, wf_bench_train_mode},
    {"ops", OPS, 64, wf_bench_ops_mode},     {"machine", MACHINE, 0, wf_bench_machine_mode},
};
enum { MODES = sizeof modes / sizeof *modes };

/* Flags that only some modes use. */
static const struct {
    const char *flag;
    unsigned modes;
    /* Exactly one target is set; it tells whether the flag was given. */
    const int64_t *whole;
    const char *const *text;
    const bool *on;
} limits[] = {
    {"--n-prompt", MODEL | PREFILL, .whole = &wf_bench_set.prompt},
    {"--n-gen", MODEL | DECODE, .whole = &wf_bench_set.generated},
    {"--depth", MODEL | DECODE | PREFILL, .whole = &wf_bench_set.depth},
    {"--parallel", MODEL | DECODE | PREFILL, .whole = &wf_bench_set.parallel},
    {"--slots", MODEL | DECODE | PREFILL, .whole = &wf_bench_set.slots},
    {"--shared", PREFILL, .whole = &wf_bench_set.shared},
    {"--logits", PREFILL, .on = &wf_bench_set.logits},
    {"--no-reuse", MODEL | DECODE | PREFILL, .on = &wf_bench_set.no_reuse},
    {"--batch", TRAIN, .whole = &wf_bench_set.batch},
    {"--length", TRAIN, .whole = &wf_bench_set.length},
    {"--precision", TRAIN, .text = &wf_bench_set.precision},
    {"--shape", OPS, .text = &wf_bench_set.shape},
    {"--ops", MODEL | DECODE | PREFILL | TRAIN, .on = &wf_bench_set.ops},
    {"--trace", TRAIN, .text = &wf_bench_set.trace},
    {"--form", TRAIN, .text = &wf_bench_set.form},
    {"--beside", OPS, .text = &wf_bench_set.beside},
    {"--repetitions", ~(unsigned)MACHINE, .whole = &wf_bench_set.repeats},
    {"--no-peak", ~(unsigned)MACHINE, .on = &wf_bench_set.no_peak},
};

static wf_status check_flags(wf_ctx *ctx, unsigned mode, const char *name)
{
    static const char *const forms[] = {"text", "md", "json"};
    bool known = false;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        bool given = (limits[i].whole && *limits[i].whole >= 0) ||
                     (limits[i].text && *limits[i].text) || (limits[i].on && *limits[i].on);
        if (given && !(limits[i].modes & mode))
            return wf_fail(ctx, WF_ERR_USAGE, "%s has no effect in 'weft bench %s'; leave it out",
                           limits[i].flag, name);
    }
    for (int i = 0; i < 3; i++)
        known = known || strcmp(wf_bench_set.output, forms[i]) == 0;
    if (!known)
        return wf_fail(ctx, WF_ERR_USAGE, "-o must be text, md or json, not '%s'",
                       wf_bench_set.output);
    return WF_OK;
}

/* Finds the mode that an operand names; 0: a model. Reports a misspelt mode, which would be a
 * missing model. */
static wf_status find_mode(wf_ctx *ctx, const char *word, int *out)
{
    const char *names[MODES];
    for (*out = MODES - 1; *out > 0; --*out)
        if (strcmp(modes[*out].name, word) == 0)
            return WF_OK;
    for (int i = 1; i < MODES; i++)
        names[i - 1] = modes[i].name;
    const char *near = wf_text_nearest(word, names, MODES - 1);
    if (near && wf_path_look(word) == WF_PATH_NONE)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown mode or model '%s'; did you mean '%s'?", word,
                       near);
    return WF_OK;
}

/* Checks the outputs before the measurement. */
static wf_status check_outputs(wf_ctx *ctx, const char *model)
{
    const char *json = wf_bench_set.json, *trace = wf_bench_set.trace;
    if (json && strcmp(json, "-") != 0)
        WF_TRY(wf_output_check(ctx, json, wf_bench_set.overwrite, &model, 1));
    return trace ? wf_output_check(ctx, trace, wf_bench_set.overwrite, &model, 1) : WF_OK;
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    int mode = 0;
    if (count == 0 && !wf_open_set.model)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "the mode is missing; give a model, or one of decode, prefill, train, ops and "
            "machine");
    if (count > 0)
        WF_TRY(find_mode(ctx, operands[0], &mode));
    if (mode > 0) {
        operands++;
        count--;
    }
    if (count > modes[mode].operands)
        return wf_fail(ctx, WF_ERR_USAGE, "'%s' is one argument too many for 'weft bench %s'",
                       operands[modes[mode].operands], mode > 0 ? modes[mode].name : "MODEL");
    WF_TRY(check_flags(ctx, modes[mode].bit, mode > 0 ? modes[mode].name : "MODEL"));
    WF_TRY(check_outputs(ctx, count > 0 ? operands[0] : wf_open_set.model));
    return modes[mode].run(ctx, modes[mode].name, operands, count);
}

static bool mode_words(int index, const char **name, const char **doc)
{
    if (index + 1 >= MODES)
        return false;
    *name = modes[index + 1].name; /* the first mode has no name of its own */
    *doc = NULL;
    return true;
}

#define TOKENS "0,1000000000" /* so that sums of them do not overflow */

static const wf_flag flags[] = {
    {"n-prompt", 0, "N", "tokens in the prompt; 0: no prompt", .whole = &wf_bench_set.prompt,
     .range = TOKENS, .not_letter = 'p', .fallback = "512"},
    {"n-gen", 'n', "N", "tokens to generate; 0: do not generate", .whole = &wf_bench_set.generated,
     .range = TOKENS, .fallback = "128"},
    {"depth", 0, "N", "tokens in the KV cache before the measurement", .whole = &wf_bench_set.depth,
     .range = TOKENS, .fallback = "0"},
    {"parallel", 0, "N", "sequences that are computed at the same time",
     .whole = &wf_bench_set.parallel, .range = "1,4096", .also = "-np", .fallback = "1"},
    {"slots", 0, "N", "maximum sequences of the engine", .whole = &wf_bench_set.slots,
     .range = "1,4096", .fallback = "as --parallel"},
    {"shared", 0, "N", "prefill: length of the prefix shared by all prompts",
     .whole = &wf_bench_set.shared, .range = TOKENS, .fallback = "0"},
    {"logits", 0, NULL, "prefill: compute the logits of every token", .on = &wf_bench_set.logits},
    {"no-reuse", 0, NULL, "compute every prompt, even if a prefix is cached",
     .on = &wf_bench_set.no_reuse},
    {"repetitions", 0, "N", "measured runs or steps, after one warmup",
     .whole = &wf_bench_set.repeats, .range = "1,1000", .not_letter = 'r', .fallback = "3"},
    {"batch", 0, "B", "train: sequences in a step", .whole = &wf_bench_set.batch,
     .range = "1,1048576", .fallback = "4"},
    {"length", 0, "T", "train: tokens in a sequence", .whole = &wf_bench_set.length,
     .range = "1,16777216", .fallback = "64"},
    {"precision", 0, "TYPE", "train: type of activations", .text = &wf_bench_set.precision,
     .fallback = "f32", .offer = {.choices = "f32 bf16 f16"}},
    {"shape", 0, "TEXT", "ops: only shapes that contain TEXT, such as q4_0 or 512x",
     .text = &wf_bench_set.shape},
    {"ops", 0, NULL, "also print the time of each op and kernel (not for ops and machine)",
     .on = &wf_bench_set.ops},
    {"form", 0, "F", "train: the graph to measure", .text = &wf_bench_set.form, .fallback = "train",
     .offer = {.choices = "train prefill decode"}},
    {"beside", 0, "D", "ops: also run on device D and print the ratio of the times",
     .text = &wf_bench_set.beside, .offer = {.words = wf_device_words}},
    {"trace", 0, "FILE", "train: write a timeline of one step for ui.perfetto.dev",
     .text = &wf_bench_set.trace, .offer = WF_OFFER_FILES},
    {"stream", 0, "MB", "memory for the bandwidth measurement, in MB",
     .whole = &wf_bench_set.stream, .range = "1,1048576",
     .fallback = "512, or four times the last-level cache"},
    {"no-peak", 0, NULL, "do not measure the machine; print no shares of its peak",
     .on = &wf_bench_set.no_peak},
    {"output", 'o', "FORM", "format on stdout", .text = &wf_bench_set.output,
     .offer = {.choices = "text md json"}},
    {"json", 0, "FILE", "write JSON to FILE; -: to stdout, instead of text",
     .text = &wf_bench_set.json, .offer = WF_OFFER_FILES},
    WF_FLAG_OVERWRITE(&wf_bench_set.overwrite),
    {.doc = "model and device", .more = wf_open_flags},
    {0},
};

const wf_command wf_cmd_bench = {
    .name = "bench",
    .doc = "measure generation, training steps, single ops or the machine",
    .operands = "[MODE] [MODEL|EXAMPLE|OP...]",
    .max_operands = 65,
    .offers = {{.words = mode_words, .paths = WF_PATHS_FILES}, WF_OFFER_FILES},
    .details =
        "  weft bench MODEL            prefill and decode, like llama-bench\n"
        "  weft bench prefill MODEL    only the prompt\n"
        "  weft bench decode MODEL     only generation\n"
        "  weft bench train [EXAMPLE]  training steps of an example of weft plan\n"
        "  weft bench ops [OP...]      single ops, with the kernel that ran\n"
        "  weft bench machine          memory bandwidth and FMA peak\n\n"
        "Tokens are random. Bandwidth counts the bytes that must be moved: weights, keys and "
        "values, operands and results. FLOPs count matmuls and attention. Shares are relative to "
        "the measured peak of the machine with all threads of the device; '-' marks a share above "
        "100%, which happens when the data fits in a cache.",
    .examples = {"weft bench model.gguf --n-prompt 512 --n-gen 128 -t 8",
                 "weft bench train gpt2-124M --batch 4 --length 512 --ops",
                 "weft bench ops matmul --device cuda --beside cpu"},
    .flags = flags,
    .run = run,
};

/* SPDX-License-Identifier: MIT */
/* cmd_bench.c - weft bench: how fast this machine runs and trains models, and how fast it could. */
#include <string.h>

#include "base/output.h"
#include "base/path.h"
#include "cli/bench.h"
#include "cli/engine.h"

wf_bench_options wf_bench_set = {
    .prompt = -1,
    .generated = -1,
    .depth = -1,
    .repeats = -1,
    .batch = -1,
    .length = -1,
    .stream = -1,
    .output = "text",
};

/* ---- Modes ---- */

enum { MODEL = 1, DECODE = 2, PREFILL = 4, TRAIN = 8, OPS = 16, MACHINE = 32 };

static const struct {
    const char *name; /* of the first, nobody types it: an operand that is no mode is a model */
    unsigned bit;
    int operands; /* that may follow */
    wf_status (*run)(wf_ctx *ctx, const char *mode, char *const *operands, int count);
} modes[] = {
    {"model", MODEL, 1, wf_bench_model},     {"decode", DECODE, 1, wf_bench_model},
    {"prefill", PREFILL, 1, wf_bench_model}, {"train", TRAIN, 1, wf_bench_train_mode},
    {"ops", OPS, 64, wf_bench_ops_mode},     {"machine", MACHINE, 0, wf_bench_machine_mode},
};
enum { MODES = sizeof modes / sizeof *modes };

/* Flags that mean something in some modes alone: a number that was given, a text or a switch. */
static const struct {
    const char *flag;
    unsigned modes;
    const int64_t *whole;
    const char *const *text;
    const bool *on;
} limits[] = {
    {"--n-prompt", MODEL | PREFILL, .whole = &wf_bench_set.prompt},
    {"--n-gen", MODEL | DECODE, .whole = &wf_bench_set.generated},
    {"--depth", MODEL | DECODE | PREFILL, .whole = &wf_bench_set.depth},
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
            return wf_fail(ctx, WF_ERR_USAGE, "%s means nothing to 'weft bench %s'", limits[i].flag,
                           name);
    }
    for (int i = 0; i < 3; i++)
        known = known || strcmp(wf_bench_set.output, forms[i]) == 0;
    if (!known)
        return wf_fail(ctx, WF_ERR_USAGE, "-o wants text, md or json, not '%s'",
                       wf_bench_set.output);
    return WF_OK;
}

/* The mode that an operand names; 0 for a model. A misspelt mode would be a model that does not exist. */
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
        return wf_fail(ctx, WF_ERR_USAGE, "there is no mode or model '%s'; did you mean '%s'?",
                       word, near);
    return WF_OK;
}

/* Before the measurement, not after it. */
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
    if (count == 0 && !wf_engine_set.model)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "what is to be measured? give a model, or one of decode, prefill, train, "
                       "ops and machine");
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
    WF_TRY(check_outputs(ctx, count > 0 ? operands[0] : wf_engine_set.model));
    return modes[mode].run(ctx, modes[mode].name, operands, count);
}

static const wf_flag flags[] = {
    {"n-prompt", 0, "N", "tokens of the prompt; 0: none (default 512)",
     .whole = &wf_bench_set.prompt, .not_letter = 'p'},
    {"n-gen", 'n', "N", "tokens to generate; 0: none (default 128)",
     .whole = &wf_bench_set.generated},
    {"depth", 0, "N", "tokens that lie in the cache before the clock starts (default 0)",
     .whole = &wf_bench_set.depth},
    {"repetitions", 0, "N", "runs or steps that count, after one that does not (default 3)",
     .whole = &wf_bench_set.repeats, .range = "1,1000", .not_letter = 'r'},
    {"batch", 0, "B", "train: sequences a step (default 4)", .whole = &wf_bench_set.batch,
     .range = "1,1048576"},
    {"length", 0, "T", "train: tokens a sequence (default 64)", .whole = &wf_bench_set.length,
     .range = "1,16777216"},
    {"precision", 0, "TYPE", "train: compute in f32, bf16 or f16 (default f32)",
     .text = &wf_bench_set.precision},
    {"shape", 0, "TEXT", "ops: only shapes with this text in them, say q4_0 or 512x",
     .text = &wf_bench_set.shape},
    {"ops", 0, NULL, "also the time of each op and kernel, of all but ops and machine",
     .on = &wf_bench_set.ops},
    {"form", 0, "F", "train: or only the prompt (prefill) or the last token (decode) of so many",
     .text = &wf_bench_set.form},
    {"beside", 0, "D", "ops: also on this device, and how many times as fast the first is",
     .text = &wf_bench_set.beside},
    {"trace", 0, "FILE", "train: write when each op of a step ran, for ui.perfetto.dev",
     .text = &wf_bench_set.trace},
    {"stream", 0, "MB",
     "memory to measure bandwidth with (default: 512, or four times the last cache)",
     .whole = &wf_bench_set.stream, .range = "1,1048576"},
    {"no-peak", 0, NULL, "do not measure the machine, and give no shares of it",
     .on = &wf_bench_set.no_peak},
    {"output", 'o', "FORM", "on stdout: text, md or json", .text = &wf_bench_set.output},
    {"json", 0, "FILE", "write JSON there; -: to stdout, instead of text",
     .text = &wf_bench_set.json},
    WF_FLAG_OVERWRITE(&wf_bench_set.overwrite),
    {.doc = "model and device", .more = wf_engine_flags},
    {0},
};

const wf_command wf_cmd_bench = {
    .name = "bench",
    .doc = "tokens a second of a model, training steps, single ops, and the machine's best",
    .operands = "[MODE] [MODEL|EXAMPLE|OP...]",
    .max_operands = 65,
    .details =
        "  weft bench MODEL             a prompt, and generation, as llama-bench measures them\n"
        "  weft bench prefill MODEL     the one\n"
        "  weft bench decode MODEL      the other\n"
        "  weft bench train [EXAMPLE]   training steps; weft plan lists the examples (gpt2-124M)\n"
        "  weft bench ops [OP...]       ops on shapes of models, each with the kernel that ran\n"
        "  weft bench machine           read, copy and triad bandwidth, and FMA peak\n\n"
        "Tokens are random. Bandwidth is that of what has to be read: weights, keys and values,\n"
        "operands and results; FLOPs are those of products and attention. Shares are of what the\n"
        "machine was measured to give with all threads of the device, afterwards or before; '-' is more\n"
        "than that, as of data that fits into caches.",
    .example = "weft bench model.gguf --n-prompt 512 --n-gen 128 -t 8",
    .flags = flags,
    .run = run,
};

/* SPDX-License-Identifier: MIT */
/* cmd_quantize.c - weft quantize: writes a quantized GGUF file. */
#include "base/path.h"
#include "cli/cli.h"
#include "cli/rewrite.h"

static struct {
    bool pure, requantize, overwrite;
} options;

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_convert_options o = {.pure = options.pure, .requantize = options.requantize};
    if (count < 3)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "IN, OUT or TYPE is missing; usage: weft quantize IN OUT Q4_K_M");
    o.type = operands[2];
    if (!wf_path_ends(operands[1], ".gguf"))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "'%s' does not end in .gguf; a quantized model is a GGUF file", operands[1]);
    if (count > 3)
        WF_TRY(wf_rewrite_threads(ctx, operands[3], &o.threads));
    return wf_rewrite(ctx, operands[0], operands[1], options.overwrite, &o);
}

static const wf_flag flags[] = {
    {"pure", 0, NULL, "use one type for all matrices, without a mixture", .on = &options.pure},
    {"allow-requantize", 0, NULL, "also quantize weights that are quantized already",
     .on = &options.requantize},
    WF_FLAG_OVERWRITE(&options.overwrite),
    {0},
};

const wf_command wf_cmd_quantize = {
    .name = "quantize",
    .doc = "quantize a model and write a GGUF file",
    .operands = "IN OUT TYPE [THREADS]",
    .max_operands = 4,
    .offers = {WF_OFFER_FILES, WF_OFFER_FILES, {.words = wf_recipe_words}},
    .details =
        "IN is a GGUF file or a Hugging Face folder, preferably in f32, f16 or bf16. THREADS "
        "is the number of CPU threads (default: all cores).",
    .table = &wf_rewrite_types,
    .examples = {"weft quantize smollm2.gguf smollm2-q4.gguf Q4_K_M",
                 "weft quantize SmolLM2-135M-Instruct smollm2-q8.gguf q8_0 4"},
    .flags = flags,
    .run = run,
};

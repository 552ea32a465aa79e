/* SPDX-License-Identifier: MIT */
/* cmd_quantize.c - weft quantize: a model in fewer bits, as a GGUF file. */
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
                       "give a model, a file to write and a type: weft quantize IN OUT Q4_K_M");
    o.type = operands[2];
    if (!wf_path_ends(operands[1], ".gguf"))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the name of a quantized file must end in .gguf, and '%s' does not",
                       operands[1]);
    if (count > 3)
        WF_TRY(wf_rewrite_threads(ctx, operands[3], &o.threads));
    return wf_rewrite(ctx, operands[0], operands[1], options.overwrite, &o);
}

static const wf_flag flags[] = {
    {.name = "pure", .doc = "one type for all matrices, no mixture", .on = &options.pure},
    {.name = "allow-requantize",
     .doc = "quantize what is quantized already, too",
     .on = &options.requantize},
    WF_FLAG_OVERWRITE(&options.overwrite),
    {0},
};

const wf_command wf_cmd_quantize = {
    .name = "quantize",
    .doc = "write a model in fewer bits, as a GGUF file",
    .operands = "IN OUT TYPE [THREADS]",
    .max_operands = 4,
    .details = "IN is a GGUF file or a Hugging Face folder, best in f32, f16 or bf16.",
    .more = wf_rewrite_types,
    .example = "weft quantize smollm2.gguf smollm2-q4.gguf Q4_K_M",
    .flags = flags,
    .run = run,
};

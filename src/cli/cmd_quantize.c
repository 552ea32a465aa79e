/* SPDX-License-Identifier: MIT */
/* cmd_quantize.c - weft quantize: writes a quantized GGUF file. */
#include "base/path.h"
#include "cli/cli.h"
#include "cli/rewrite.h"

static struct {
    bool pure, requantize, overwrite;
    const char *imatrix;
    wf_values tensor_types;
} options;

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_tensor_type types[WF_MAX_VALUES];
    wf_convert_options o = {.pure = options.pure,
                            .requantize = options.requantize,
                            .imatrix = options.imatrix,
                            .tensor_types = types,
                            .tensor_type_count = options.tensor_types.count};
    wf_arena arena;
    if (count < 3)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "IN, OUT or TYPE is missing; usage: weft quantize IN OUT Q4_K_M");
    o.type = operands[2];
    if (!wf_path_ends(operands[1], ".gguf"))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "'%s' does not end in .gguf; a quantized model is a GGUF file", operands[1]);
    if (count > 3)
        WF_TRY(wf_rewrite_threads(ctx, operands[3], &o.threads));
    wf_arena_init(&arena, ctx);
    wf_status status = wf_rewrite_tensor_types(&arena, &options.tensor_types, types);
    if (status == WF_OK)
        status = wf_rewrite(ctx, operands[0], operands[1], options.overwrite, &o);
    wf_arena_free(&arena);
    return status;
}

static const wf_flag flags[] = {
    {"imatrix", 0, "FILE", "importance matrix of this model, from weft imatrix or llama-imatrix",
     .text = &options.imatrix, .offer = WF_OFFER_FILES},
    WF_FLAG_TENSOR_TYPE(&options.tensor_types),
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
                 "weft quantize SmolLM2-135M-Instruct smollm2-q8.gguf q8_0 4",
                 "weft quantize model.gguf out.gguf Q3_K_M --tensor-type 'attn_v|ffn_down=q6_K'"},
    .flags = flags,
    .run = run,
};

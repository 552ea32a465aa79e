/* SPDX-License-Identifier: MIT */
/* cmd_convert.c - weft convert: writes a model in another format or type. */
#include "cli/cli.h"
#include "cli/lora.h"
#include "cli/rewrite.h"

static struct {
    const char *type, *split_size, *imatrix;
    int64_t threads; /* -1: all cores */
    bool pure, requantize, overwrite;
    wf_values lora, tensor_types;
} options = {.threads = -1};

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_convert_options o = {.type = options.type,
                            .pure = options.pure,
                            .requantize = options.requantize,
                            .imatrix = options.imatrix};
    if (count < 2)
        return wf_fail(ctx, WF_ERR_USAGE, "MODEL or OUT is missing; usage: weft convert MODEL OUT");
    if (options.split_size)
        WF_TRY(wf_rewrite_size(ctx, "--split-size", options.split_size, &o.split_bytes));
    o.threads = options.threads > 0 ? (int)options.threads : 0;
    wf_lora lora[WF_MAX_VALUES];
    wf_tensor_type types[WF_MAX_VALUES];
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    o.lora = lora;
    o.loras = options.lora.count;
    o.tensor_types = types;
    o.tensor_type_count = options.tensor_types.count;
    wf_status status = wf_lora_parse(&arena, &options.lora, lora);
    if (status == WF_OK)
        status = wf_rewrite_tensor_types(&arena, &options.tensor_types, types);
    if (status == WF_OK)
        status = wf_rewrite(ctx, operands[0], operands[1], options.overwrite, &o);
    wf_arena_free(&arena);
    return status;
}

static const wf_flag flags[] = {
    {"type", 0, "T", "type of the weights", .text = &options.type, .fallback = "unchanged",
     .offer = {.words = wf_recipe_words}},
    {"imatrix", 0, "FILE", "importance matrix of this model, from weft imatrix or llama-imatrix",
     .text = &options.imatrix, .offer = WF_OFFER_FILES},
    WF_FLAG_TENSOR_TYPE(&options.tensor_types),
    WF_FLAG_LORA(&options.lora),
    {"split-size", 0, "SIZE", "maximum size of a file in bytes, such as 2G",
     .text = &options.split_size, .fallback = "one file"},
    {"threads", 't', "N", "CPU threads", .whole = &options.threads, .range = "1,1024",
     .fallback = "all cores"},
    {"pure", 0, NULL, "use one type for all matrices, without a mixture", .on = &options.pure},
    {"allow-requantize", 0, NULL, "also quantize weights that are quantized already",
     .on = &options.requantize},
    WF_FLAG_OVERWRITE(&options.overwrite),
    {0},
};

const wf_command wf_cmd_convert = {
    .name = "convert",
    .doc = "convert a model to a GGUF file or a Hugging Face folder",
    .operands = "MODEL OUT",
    .max_operands = 2,
    .offers = {WF_OFFER_FILES, WF_OFFER_FILES},
    .details =
        "MODEL is a GGUF file or a Hugging Face folder. OUT becomes a GGUF file when its name ends "
        "in .gguf, else a folder. Without --type the weights keep their types; folders hold only "
        "f32, f16 and bf16, so quantized weights become f16 there. --lora merges adapters into "
        "the weights.",
    .table = &wf_rewrite_types,
    .examples = {"weft convert SmolLM2-135M-Instruct smollm2.gguf --type f16",
                 "weft convert model.gguf folder",
                 "weft convert model.gguf merged.gguf --lora run/adapter"},
    .flags = flags,
    .run = run,
};

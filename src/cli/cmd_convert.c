/* SPDX-License-Identifier: MIT */
/* cmd_convert.c - weft convert: a model in another format, or of another type. */
#include "cli/cli.h"
#include "cli/lora.h"
#include "cli/rewrite.h"

static struct {
    const char *type, *split_size;
    int64_t threads; /* -1: all cores */
    bool pure, requantize, overwrite;
    wf_values lora;
} options = {.threads = -1};

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    wf_convert_options o = {
        .type = options.type, .pure = options.pure, .requantize = options.requantize};
    if (count < 2)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "give a model and where to write it: weft convert MODEL OUT");
    if (options.split_size)
        WF_TRY(wf_rewrite_size(ctx, "--split-size", options.split_size, &o.split_bytes));
    o.threads = options.threads > 0 ? (int)options.threads : 0;
    wf_lora lora[WF_MAX_VALUES];
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    o.lora = lora;
    o.loras = options.lora.count;
    wf_status status = wf_lora_parse(&arena, &options.lora, lora);
    if (status == WF_OK)
        status = wf_rewrite(ctx, operands[0], operands[1], options.overwrite, &o);
    wf_arena_free(&arena);
    return status;
}

static const wf_flag flags[] = {
    {.name = "type", .value = "T", .doc = "type of the weights", .text = &options.type},
    WF_FLAG_LORA(&options.lora),
    {.name = "split-size",
     .value = "SIZE",
     .doc = "begin another file after so many bytes, such as 2G",
     .text = &options.split_size},
    {.name = "threads",
     .letter = 't',
     .value = "N",
     .doc = "threads; all cores unless told",
     .whole = &options.threads,
     .range = "1,1024"},
    {.name = "pure", .doc = "one type for all matrices, no mixture", .on = &options.pure},
    {.name = "allow-requantize",
     .doc = "quantize what is quantized already, too",
     .on = &options.requantize},
    WF_FLAG_OVERWRITE(&options.overwrite),
    {0},
};

const wf_command wf_cmd_convert = {
    .name = "convert",
    .doc = "write a model as a GGUF file or as a Hugging Face folder",
    .operands = "MODEL OUT",
    .max_operands = 2,
    .details =
        "MODEL is a GGUF file or a Hugging Face folder. OUT becomes a GGUF file when its name "
        "ends\nin .gguf, else a folder. Without --type weights keep their types; in a folder, "
        "which holds\nf32, f16 and bf16 only, what was quantized becomes f16. With --lora adapters become part\nof the weights.",
    .more = wf_rewrite_types,
    .example = "weft convert SmolLM2-135M-Instruct smollm2.gguf --type f16",
    .flags = flags,
    .run = run,
};

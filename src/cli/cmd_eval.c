/* SPDX-License-Identifier: MIT */
/* cmd_eval.c - weft eval: measures loss on a text, or accuracy on questions. */
#include <math.h>

#include "cli/eval.h"

static struct {
    const char *data, *choices, *against;
    int64_t limit;
    bool json;
} options = {.limit = -1};

/* Encodes a text to learn whether this tokenizer really adds bos. */
wf_status wf_eval_bos(const wf_open *e, int32_t *bos)
{
    int32_t *ids, id = wf_tokenizer_special(e->tokenizer, WF_SPECIAL_BOS);
    size_t count;
    WF_TRY(wf_tokenizer_encode(e->tokenizer, e->ctx, "a", 1, WF_TEXT_SPECIAL, &ids, &count));
    *bos = id >= 0 && count > 0 && ids[0] == id ? id : -1;
    wf_ids_free(e->ctx, ids);
    return WF_OK;
}

/* Log-sum-exp with the maximum subtracted, in double: no overflow, and exact enough to sum over
 * millions of tokens. */
double wf_eval_nats(const float *logits, size_t vocab, int32_t target)
{
    double most = logits[0], sum = 0;
    for (size_t k = 1; k < vocab; k++)
        most = logits[k] > most ? logits[k] : most;
    for (size_t k = 0; k < vocab; k++)
        sum += exp(logits[k] - most);
    return log(sum) + most - logits[target];
}

static wf_status run(wf_ctx *ctx, char *const *operands, int count)
{
    /* Static, hence zero: wf_open_close works after any failure. */
    static wf_open e, against;
    const char *path;
    WF_TRY(wf_open_path(ctx, operands, count, &path));
    if (!options.data && !options.choices)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the text is missing; give a file with --data, or questions with --choices");
    if (options.data && options.choices)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--data and --choices exclude each other; give one of them");
    if (options.against && !options.data)
        return wf_fail(ctx, WF_ERR_USAGE, "--against compares models on a text; give --data");
    const wf_eval_options o = {options.data ? options.data : options.choices, options.limit,
                               options.json, options.against ? &against : NULL};
    e.ctx = against.ctx = ctx;
    wf_status status = wf_open_model(ctx, path, &e);
    if (status == WF_OK && options.against)
        status = wf_open_model(ctx, options.against, &against);
    if (status == WF_OK)
        status = (options.data ? wf_eval_text : wf_eval_choices)(&e, &o);
    wf_open_close(&against);
    wf_open_close(&e);
    return status;
}

static const wf_flag flags[] = {
    {"data", 0, "FILE", "the text; -: stdin", .text = &options.data, .also = "-f --file",
     .offer = WF_OFFER_FILES},
    {"choices", 0, "FILE", "multiple-choice questions as JSON lines; -: stdin",
     .text = &options.choices, .offer = WF_OFFER_FILES},
    {"against", 0, "MODEL",
     "compare predictions with those of this model, such as the one before quantization: KL "
     "divergence, and how often the most likely token is the same",
     .text = &options.against, .offer = WF_OFFER_FILES},
    {"limit", 0, "N", "stop after N tokens or questions", .whole = &options.limit, .range = "1,"},
    WF_FLAG_JSON(&options.json),
    {.doc = "model and device", .more = wf_open_flags},
    {0},
};

const wf_command wf_cmd_eval = {
    .name = "eval",
    .doc = "measure perplexity on a text, or accuracy on questions",
    .operands = "MODEL --data FILE | --choices FILE",
    .max_operands = 1,
    .offers = {WF_OFFER_FILES},
    .details =
        "The text is split into windows of --ctx-size tokens that do not overlap. If the tokenizer "
        "adds bos, every window begins with bos and all tokens of the text count. Otherwise the "
        "first token of each window has no prediction, and it and its bytes do not count.\n\n"
        "A question is a line {\"ctx\": TEXT, \"endings\": [TEXT, ...], \"label\": N}, the format "
        "of HellaSwag, or {\"question\" or \"prompt\": TEXT, \"choices\": [TEXT, ...], \"answer\": "
        "N or a letter}. N counts from 0. The model chooses the ending with the highest "
        "log-probability; a second figure divides the log-probability by the ending's bytes. "
        "Context and ending are joined by a space if neither has one.\n\n"
        "--against keeps the predictions of one window of the other model in memory. --lora applies "
        "to both models.",
    .examples = {"weft eval model.gguf --data text.txt --ctx-size 2048",
                 "weft eval q4.gguf --data text.txt --against f16.gguf -c 512",
                 "weft eval model.gguf --choices hellaswag.jsonl --limit 500"},
    .flags = flags,
    .run = run,
};

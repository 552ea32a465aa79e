/* SPDX-License-Identifier: MIT */
/*
 * generate.c - asks a model one question and prints the answer as it is generated.
 *
 *     generate MODEL QUESTION
 *
 * MODEL is a GGUF file or a Hugging Face folder with a chat template.
 */
#include <stdio.h>

#include "weft.h"

/* Prints the answer while it is generated. After a failure wf_ctx_message returns the reason. */
static wf_status answer(wf_ctx *ctx, wf_device *device, const char *path, const char *question)
{
    const wf_message message = {.role = "user", .content = question};
    wf_request request = {.limit = 200};
    wf_model *model = NULL;
    wf_engine *engine = NULL;
    wf_sequence *sequence = NULL;
    int32_t *ids = NULL;
    size_t count, bytes;
    wf_status status = wf_model_open(ctx, path, &model);
    if (status != WF_OK)
        goto done;
    wf_model_sampling(model, &request.sampling); /* the model's temperature, top-k, ... */
    if ((status = wf_model_chat(model, ctx, &message, 1, NULL, &ids, &count)) != WF_OK)
        goto done;
    if ((status = wf_engine_new(device, model, NULL, &engine)) != WF_OK)
        goto done;
    if ((status = wf_engine_submit(engine, ids, count, &request, &sequence)) != WF_OK)
        goto done;
    for (bool busy = true; busy;) {
        if ((status = wf_engine_step(engine, &busy)) != WF_OK)
            goto done;
        const char *text = wf_sequence_text(sequence, &bytes);
        fwrite(text, 1, bytes, stdout);
        fflush(stdout);
    }
done: /* in reverse order; all of these accept NULL */
    wf_sequence_free(sequence);
    wf_engine_free(engine);
    wf_ids_free(ctx, ids);
    wf_model_close(model);
    return status;
}

int main(int argc, char **argv)
{
    wf_ctx *ctx;
    wf_device *device;
    if (argc != 3) {
        fprintf(stderr, "usage: generate MODEL QUESTION\n");
        return 2;
    }
    if (wf_ctx_new(&ctx) != WF_OK)
        return 1;
    wf_status status = wf_device_open(ctx, "cpu", &device);
    if (status == WF_OK) {
        status = answer(ctx, device, argv[1], argv[2]);
        wf_device_close(device);
    }
    if (status != WF_OK)
        fprintf(stderr, "generate: %s\n", wf_ctx_message(ctx));
    wf_ctx_free(ctx);
    return status == WF_OK && putchar('\n') != EOF && fflush(stdout) == 0 ? 0 : 1;
}

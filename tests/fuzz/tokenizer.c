/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.c - tokenizer.json and, after a NUL byte, tokenizer_config.json. A tokenizer that loads
 * is used, written, and read again.
 */
#include "fuzz_text.h"

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    const char *json = (const char *)data, *nul = size ? memchr(data, '\0', size) : NULL;
    size_t bytes = nul ? (size_t)(nul - json) : size, config_bytes = nul ? size - bytes - 1 : 0;
    wf_tokenizer *t;
    if (wf_tokenizer_from_json(ctx, "input", json, bytes, nul ? nul + 1 : NULL, config_bytes, &t) !=
        WF_OK)
        return;
    fuzz_check_tokenizer(ctx, t);
    wf_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){4 << 20, 1024}, data, size);
}

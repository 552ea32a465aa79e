/* SPDX-License-Identifier: MIT */
/*
 * tokenizer.c - tokenizer.json and, after a NUL, which JSON has nowhere, tokenizer_config.json. A tokenizer
 * that was made is used, written, and read again.
 */
#include "fuzz_text.h"

#include "base/mem.h"

/* What is written is read, and encodes alike. */
static void check_written(wf_ctx *ctx, const wf_tokenizer *t)
{
    static const char text[] =
        "Hello, world's  12345 <|end|> [x]\n\n low <s>\xC3\xA9\xF0\x9F\x98\x80";
    char *json = NULL, *config = NULL;
    size_t bytes, config_bytes, count, other_count;
    int32_t *ids = NULL, *other = NULL;
    wf_tokenizer *again;
    if (wf_tokenizer_to_json(t, &json, &bytes) != WF_OK)
        return;
    if (!fuzz_ok(ctx, wf_tokenizer_to_config(t, NULL, &config, &config_bytes)) ||
        !fuzz_ok(ctx, wf_tokenizer_from_json(ctx, "written", json, bytes, config, config_bytes,
                                             &again))) {
        wf_mem_free(ctx, json);
        wf_mem_free(ctx, config);
        return;
    }
    for (uint32_t flags = 0; flags < 4; flags++) {
        if (wf_tokenizer_encode(t, ctx, text, sizeof text - 1, flags, &ids, &count) != WF_OK)
            break;
        if (fuzz_ok(ctx, wf_tokenizer_encode(again, ctx, text, sizeof text - 1, flags, &other,
                                             &other_count))) {
            fuzz_check(count == other_count && memcmp(ids, other, count * sizeof *ids) == 0);
            wf_ids_free(ctx, other);
        }
        wf_ids_free(ctx, ids);
    }
    wf_tokenizer_free(again);
    wf_mem_free(ctx, json);
    wf_mem_free(ctx, config);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    const char *json = (const char *)data, *nul = size ? memchr(data, '\0', size) : NULL;
    size_t bytes = nul ? (size_t)(nul - json) : size, config_bytes = nul ? size - bytes - 1 : 0;
    wf_tokenizer *t;
    if (wf_tokenizer_from_json(ctx, "input", json, bytes, nul ? nul + 1 : NULL, config_bytes, &t) !=
        WF_OK)
        return;
    fuzz_check_tokenizer(ctx, t);
    check_written(ctx, t);
    wf_tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){4 << 20, 1024}, data, size);
}

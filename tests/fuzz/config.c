/* SPDX-License-Identifier: MIT */
/* config.c - config.json of Hugging Face folders. */
#include "fuzz.h"

#include "model/config.h"

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_arena arena;
    wf_json_node *root;
    wf_config c;
    wf_arena_init(&arena, ctx);
    if (wf_json_parse(&arena, "input", (const char *)data, size, &root) == WF_OK &&
        wf_config_from_json(&arena, "input", root, &c) == WF_OK) {
        fuzz_check(c.family && c.layers > 0 && c.width > 0 && c.heads > 0 && c.kv_heads > 0);
        fuzz_check(c.heads % c.kv_heads == 0 && c.head_dim > 0 && c.hidden > 0 && c.eps >= 0);
        for (int64_t i = 0; i < c.layers; i++)
            fuzz_check(wf_config_window(&c, i) >= 0);
    }
    wf_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 19, 256}, data, size);
}

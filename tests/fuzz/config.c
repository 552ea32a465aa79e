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
        fuzz_check(c.family && c.type && c.layers > 0 && c.width > 0 && c.eps >= 0);
        for (int64_t i = 0; i < c.layers; i++) {
            const wf_layer *l = wf_config_layer(&c, i);
            fuzz_check(l->heads > 0 && l->kv_heads > 0 && l->heads % l->kv_heads == 0);
            fuzz_check(l->key_dim > 0 && l->value_dim > 0 && l->hidden > 0 && l->window >= 0);
            fuzz_check(l->rope < WF_MOST_ROPES && l->shares >= 0 && l->shares <= i);
        }
    }
    wf_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 19, 256}, data, size);
}

/* SPDX-License-Identifier: MIT */
/*
 * cache.c - files of keys and values (weft run --prompt-cache), read into an engine with pages for
 * the whole context and for a window. Random input never has the engine's identity and a valid
 * checksum, so the target also reads each input with both corrected.
 */
#include "fuzz.h"

#include "base/checksum.h"
#include "infer/engine.h"

#define MODEL "tests/fixtures/models/olmo3"
#define IDENTITY "weft.cache.identity"

static wf_ctx *maker; /* of the engine, which serves all inputs */
static wf_device *device;
static wf_model *model;
static wf_engine *engine;
static uint64_t identity;

static void forget(void)
{
    wf_engine_free(engine);
    wf_model_close(model);
    wf_device_close(device);
    wf_ctx_free(maker);
}

static void make(void)
{
    fuzz_check(wf_ctx_new(&maker) == WF_OK && atexit(forget) == 0);
    fuzz_check(wf_device_open(maker, "cpu:1", &device) == WF_OK);
    fuzz_check(wf_model_open(maker, MODEL, &model) == WF_OK);
    const wf_engine_options options = {.kv = WF_KV_F16, .sequences = 1, .context = 64};
    fuzz_check(wf_engine_new(device, model, &options, &engine) == WF_OK);
    fuzz_check(wf_engine_identity(engine, &identity) == WF_OK);
}

/* ---- Corrected input ---- */

static uint64_t sum_of(wf_gguf *f)
{
    wf_checksum_state sum;
    const int64_t *ids = NULL;
    int64_t salt = 0;
    size_t count = 0;
    (void)wf_gguf_get_int(f, "weft.cache.salt", INT64_MIN, INT64_MAX, &salt);
    (void)wf_gguf_get_ints(f, "weft.cache.tokens", &ids, &count);
    wf_checksum_begin(&sum);
    wf_checksum_add(&sum, &salt, sizeof salt);
    for (size_t i = 0; i < count; i++)
        wf_checksum_add(&sum, &(int32_t){(int32_t)ids[i]}, sizeof(int32_t));
    for (int64_t i = 0; i < 2 * engine->source.config->layers; i++) {
        char name[WF_POOL_NAME];
        wf_pool_name(name, i / 2, i % 2 != 0);
        const wf_stored *t = wf_store_find(&f->store, name);
        if (t)
            wf_checksum_add(&sum, t->data, t->bytes);
    }
    return wf_checksum_end(&sum);
}

/* Sets the identity, a key of 8 bytes after the key's name and its kind, and the checksum. */
static void correct(uint8_t *data, size_t size)
{
    const size_t length = strlen(IDENTITY), skip = length + sizeof(uint32_t);
    wf_ctx *ctx;
    wf_gguf *f;
    for (size_t i = 0; i + skip + sizeof identity <= size; i++)
        if (memcmp(data + i, IDENTITY, length) == 0)
            memcpy(data + i + skip, &identity, sizeof identity);
    fuzz_check(wf_ctx_new(&ctx) == WF_OK);
    if (wf_gguf_read(ctx, "input", data, size, &f) == WF_OK) {
        const wf_stored *t = wf_store_find(&f->store, "checksum");
        const uint64_t sum = sum_of(f);
        if (t && t->bytes == sizeof sum)
            memcpy(data + (t->data - data), &sum, sizeof sum);
        wf_gguf_close(f);
    }
    wf_ctx_free(ctx);
}

/* ---- Properties ---- */

/* A refused file leaves nothing in the engine; an accepted one leaves whole pages of tokens. */
static void restore(wf_ctx *ctx, const uint8_t *data, size_t size, uint64_t fail_at)
{
    wf_engine_stats stats;
    wf_mem_stats before, after;
    wf_gguf *f;
    size_t tokens;
    if (wf_gguf_read(ctx, "input", data, size, &f) != WF_OK)
        return;
    wf_ctx_clear(maker);
    wf_ctx_mem_stats(maker, &before);
    wf_ctx_fail_allocation(maker, fail_at);
    wf_status status = wf_engine_restore_file(engine, f, "input", &tokens);
    wf_ctx_fail_allocation(maker, 0);
    wf_ctx_mem_stats(maker, &after);
    wf_engine_get_stats(engine, &stats);
    fuzz_check(before.live_blocks == after.live_blocks);
    fuzz_check(stats.pages_used == 0);
    if (status == WF_OK)
        fuzz_check(tokens > 0 && tokens % WF_PAGE_TOKENS == 0 && stats.pages_cached > 0);
    else {
        fuzz_check(tokens == 0 && stats.pages_cached == 0);
        /* Errors about a key's kind are in the file's context. */
        fuzz_check_sentence(wf_ctx_message(wf_ctx_status(maker) != WF_OK ? maker : ctx));
    }
    wf_prefix_clear(engine->prefix);
    wf_gguf_close(f);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    const uint64_t hash = wf_hash_fnv1a(WF_FNV1A, data, size);
    restore(ctx, data, size, 0);
    uint8_t *copy = malloc(size ? size : 1);
    fuzz_check(copy != NULL);
    memcpy(copy, data, size);
    correct(copy, size);
    restore(ctx, copy, size, 0);
    if (hash % 4 == 0)
        restore(ctx, copy, size, 1 + (hash >> 8) % 4);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!maker)
        make();
    return fuzz_run(run, (fuzz_room){1 << 20, 512}, data, size);
}

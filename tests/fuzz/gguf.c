/* SPDX-License-Identifier: MIT */
/* gguf.c - GGUF files: keys and tensors, then the configuration and, if present, the tokenizer. */
#include "fuzz_text.h"

#include "model/config.h"

/* Reads each value through every accessor. */
static void look(wf_gguf *f)
{
    for (int i = 0; i < f->pairs; i++) {
        const wf_gguf_pair *p = &f->pair[i];
        int64_t integer = 0;
        double number = 0;
        bool boolean = false;
        size_t count;
        wf_gguf_text text;
        const wf_gguf_text *texts;
        const int64_t *ints;
        const float *floats;
        fuzz_check(wf_gguf_find(f, p->key) == p);
        for (uint64_t k = 0; p->text && k < p->count; k++)
            fuzz_touch(p->text[k].bytes, p->text[k].len);
        if (wf_gguf_get_int(f, p->key, -5, 1 << 20, &integer) == WF_OK)
            fuzz_check(integer >= -5 && integer <= 1 << 20);
        (void)wf_gguf_get_float(f, p->key, &number);
        (void)wf_gguf_get_bool(f, p->key, &boolean);
        if (wf_gguf_get_text(f, p->key, &text) == WF_OK)
            fuzz_touch(text.bytes, text.len);
        if (wf_gguf_get_texts(f, p->key, &texts, &count) == WF_OK)
            fuzz_check(count == p->count);
        if (wf_gguf_get_ints(f, p->key, &ints, &count) == WF_OK)
            fuzz_touch(ints, count * sizeof *ints);
        if (wf_gguf_get_floats(f, p->key, &floats, &count) == WF_OK)
            fuzz_touch(floats, count * sizeof *floats);
    }
    for (int i = 0; i < f->store.count; i++) {
        const wf_stored *t = &f->store.tensor[i];
        fuzz_check(wf_store_find(&f->store, t->name) == t);
        fuzz_touch(t->data, t->bytes);
    }
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_gguf *f;
    wf_arena arena;
    wf_config config;
    wf_tokenizer *t;
    if (wf_gguf_read(ctx, "input", data, size, &f) != WF_OK)
        return;
    look(f);
    wf_arena_init(&arena, ctx);
    if (wf_config_from_gguf(&arena, "input", f, &config) == WF_OK)
        for (int64_t i = 0; i < config.layers; i++)
            fuzz_check(wf_config_layer(&config, i)->window >= 0);
    wf_arena_free(&arena);
    wf_status made = wf_tokenizer_from_gguf(f, &t);
    wf_gguf_close(f);
    if (made == WF_OK) {
        fuzz_check_tokenizer(ctx, t);
        wf_tokenizer_free(t);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 20, 512}, data, size);
}

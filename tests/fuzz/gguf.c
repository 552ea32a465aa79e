/* SPDX-License-Identifier: MIT */
/* gguf.c - GGUF files: keys and tensors, then the configuration, all weights if the file is a whole
 * model, and the tokenizer if it has one. */
#include "fuzz_text.h"

#include "base/mem.h"
#include "model/model.h"

#define MOST_BYTES (1 << 20) /* of a weight */

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

/* Reads a weight in the form that its state has. */
static void read_weight(wf_ctx *ctx, const wf_model_weight_info *w)
{
    const size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
    fuzz_check(w->sources > 0 && bytes > 0);
    if (bytes > MOST_BYTES)
        return;
    uint8_t *to = malloc(bytes);
    fuzz_check(to != NULL);
    if (fuzz_ok(ctx, wf_weight_read(ctx, w, to)))
        fuzz_touch(to, bytes);
    free(to);
}

/* Binds the weights as wf_model_open does. */
static void open_model(wf_ctx *ctx, wf_gguf *f)
{
    wf_model m = {.ctx = ctx, .path = (char[]){"input"}, .gguf = f, .store = &f->store};
    const wf_stored *table = wf_store_find(&f->store, "token_embd.weight");
    wf_arena_init(&m.arena, ctx);
    if (wf_config_from_gguf(&m.arena, "input", f, &m.config) == WF_OK) {
        for (int64_t i = 0; i < m.config.layers; i++)
            fuzz_check(wf_config_layer(&m.config, i)->window >= 0);
        if (m.config.vocab == 0 && table && table->shape.n == 2)
            m.config.vocab = table->shape.d[0];
        if (m.config.vocab > 0 && m.config.vocab <= INT32_MAX && wf_model_bind(&m) == WF_OK)
            for (int i = 0; i < m.weights; i++)
                read_weight(ctx, &m.weight[i]);
    }
    wf_mem_free(ctx, m.weight);
    wf_arena_free(&m.arena);
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_gguf *f;
    wf_tokenizer *t;
    if (wf_gguf_read(ctx, "input", data, size, &f) != WF_OK)
        return;
    look(f);
    open_model(ctx, f);
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

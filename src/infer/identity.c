/* SPDX-License-Identifier: MIT */
/*
 * identity.c - a checksum of the inputs that determine keys and values.
 *
 * The number covers the graph, the frequencies of rotary positions, the device's numerics, whether
 * matmuls may round activations, adapters and weights. Of a large tensor it covers samples: reading
 * all weights would take longer than computing a prompt. So two models that differ in few elements
 * may have one number.
 */
#include <string.h>

#include "base/checksum.h"
#include "base/mem.h"
#include "device/device.h"
#include "infer/engine.h"
#include "model/rope.h"

#define WHOLE_TENSOR ((size_t)64 << 10) /* bytes; of larger tensors, samples count */
#define SAMPLES 16
#define SAMPLE_BYTES 64

static void add_text(wf_checksum_state *h, const char *text)
{
    wf_checksum_add(h, text, strlen(text) + 1);
}

/* The graph of one token, with pools of one page: families, sizes, types and adapters appear in its
 * text, sizes of the engine do not. */
static wf_status add_graph(wf_checksum_state *h, const wf_engine *e)
{
    wf_build_options o = e->source.build;
    wf_graph *g;
    char *text = NULL;
    size_t bytes;
    o.form = WF_FORM_STEP;
    o.tokens = o.sequences = o.rows = 1;
    o.kv = e->kv;
    for (int i = 0; i < e->caches.count; i++)
        o.cache[i] = (wf_cache_size){.page = WF_PAGE_TOKENS, .pages = 1, .pool = 1};
    WF_TRY(wf_graph_new(e->ctx, &g));
    wf_status status = wf_output(g, "logits", wf_model_graph(g, e->source.config, &o, NULL));
    if (status == WF_OK)
        status = wf_graph_text(g, &text, &bytes);
    if (status == WF_OK)
        wf_checksum_add(h, text, bytes);
    wf_text_free(e->ctx, text);
    wf_graph_free(g);
    return status;
}

static wf_status add_frequencies(wf_checksum_state *h, const wf_engine *e)
{
    for (int i = 0; i < e->source.config->ropes; i++) {
        const wf_rotary *rope = &e->source.config->rope[i];
        size_t count = (size_t)rope->dims / 2;
        float *values = wf_mem_array(e->ctx, count, sizeof *values);
        if (!values)
            return WF_ERR_MEMORY;
        wf_rope_frequencies(rope, e->context, values);
        wf_checksum_add(h, values, count * sizeof *values);
        wf_mem_free(e->ctx, values);
    }
    return WF_OK;
}

static wf_status add_adapter(wf_checksum_state *h, const wf_adapter *a, wf_ctx *ctx)
{
    wf_info info;
    wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && wf_adapter_tensor(a, i, &info); i++) {
        float *values = wf_mem_new(ctx, info.bytes);
        status = values ? wf_adapter_read(a, i, values) : WF_ERR_MEMORY;
        if (status == WF_OK)
            wf_checksum_add(h, values, info.bytes);
        wf_mem_free(ctx, values);
    }
    return status;
}

static void add_tensor(wf_checksum_state *h, const wf_stored *t)
{
    add_text(h, t->name);
    add_text(h, t->type_name);
    if (t->bytes <= WHOLE_TENSOR) {
        wf_checksum_add(h, t->data, t->bytes);
        return;
    }
    const size_t step = (t->bytes - SAMPLE_BYTES) / (SAMPLES - 1);
    for (size_t i = 0; i < SAMPLES; i++)
        wf_checksum_add(h, t->data + i * step, SAMPLE_BYTES);
}

wf_status wf_engine_identity(const wf_engine *e, uint64_t *out)
{
    const wf_device *d = e->session->device;
    wf_checksum_state h;
    wf_checksum_begin(&h);
    add_text(&h, wf_version_string());
    add_text(&h, d->ops->kind);
    add_text(&h, d->rounds_as ? d->rounds_as : d->description);
    wf_checksum_add(&h, &e->rounds, sizeof e->rounds);
    WF_TRY(add_graph(&h, e));
    WF_TRY(add_frequencies(&h, e));
    for (int i = 0; i < e->adapters.count; i++)
        WF_TRY(add_adapter(&h, e->adapters.adapter[i], e->ctx));
    const wf_store *files = e->model->store;
    for (int i = 0; i < files->count; i++)
        add_tensor(&h, &files->tensor[i]);
    WF_TRY(wf_store_check(files));
    *out = wf_checksum_end(&h);
    return WF_OK;
}

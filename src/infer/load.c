/* SPDX-License-Identifier: MIT */
/*
 * load.c - loads a model's weights into a session.
 *
 * Each weight is packed, mapped or copied. Packed: the device rearranges it into its own layout,
 * where that is faster. Mapped: kernels read the file's pages, without a copy. Copied: all others.
 */
#include <math.h>

#include "base/mem.h"
#include "device/device.h"
#include "infer/generator.h"
#include "infer/upload.h"

/* Returns whether the device gains by its own layout for this weight. */
static bool packs(const wf_device *d, const wf_model_weight_info *w)
{
    return wf_weight_in_place(w) && d->ops->packing_pays &&
           d->ops->packing_pays(d, w->type, &w->shape);
}

/* Matmuls by a mapped quantized weight round activations, as those by a packed one do. */
static bool rounds(const wf_model_weight_info *w)
{
    return wf_type_get(w->type)->kind == WF_KIND_BLOCK;
}

/* Small weights, mostly of norms, are copied. A mapped one would keep its readahead window
 * resident, which holds neighbours that have already been packed. */
static bool maps(const wf_model_weight_info *w)
{
    enum { SMALL = 64 * 1024 /* bytes */ };
    return wf_weight_in_place(w) && (rounds(w) || wf_weight_stored_bytes(w) >= SMALL);
}

wf_status wf_generator_map_weights(wf_generator *g)
{
    const wf_model *m = g->model;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (packs(g->session->device, w))
            WF_TRY(wf_session_pack(g->session, w->name, w->type, (int)w->shape.n, w->shape.d));
        else if (maps(w)) {
            WF_TRY(wf_session_map(g->session, w->name, w->type, (int)w->shape.n, w->shape.d,
                                  m->store->file[w->source->from->file].path, wf_weight_offset(w)));
            if (rounds(w))
                wf_session_round(g->session, w->name);
        }
    }
    return WF_OK;
}

wf_status wf_generator_plan_weights(wf_session *s, const wf_model *m, size_t *mapped)
{
    *mapped = 0;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (packs(s->device, w))
            WF_TRY(wf_session_declare_packed(s, w->name, w->type, (int)w->shape.n, w->shape.d));
        else if (s->device->ops->buffer_map && maps(w)) {
            if (rounds(w))
                WF_TRY(
                    wf_session_declare_rounded(s, w->name, w->type, (int)w->shape.n, w->shape.d));
            *mapped += wf_weight_stored_bytes(w);
        }
    }
    return WF_OK;
}

/* Packs lazily: the first run reads the file's bytes, and fails if they cannot be read. */
static wf_status pack_weight(wf_generator *g, const wf_model_weight_info *w)
{
    wf_session_write_later(g->session, w->name, g->model->store->file[w->source->from->file].map,
                           wf_weight_offset(w));
    return WF_OK;
}

/* Releases the file's pages afterwards, so that the weight is not resident twice. */
static wf_status copy_weight(wf_generator *g, const wf_model_weight_info *w)
{
    size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
    void *data = wf_mem_new(g->ctx, bytes);
    wf_status status = data ? wf_weight_read(g->ctx, w, data) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_session_write(g->session, w->name, data, bytes);
    wf_mem_free(g->ctx, data);
    for (int i = 0; i < w->sources; i++) {
        const wf_stored *t = w->source[i].from;
        wf_map_forget(g->model->store->file[t->file].map, t->offset, t->bytes);
    }
    return status;
}

wf_status wf_generator_write_weights(wf_generator *g)
{
    const wf_model *m = g->model;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (packs(g->session->device, w))
            WF_TRY(pack_weight(g, w));
        else if (!maps(w))
            WF_TRY(copy_weight(g, w));
    }
    WF_TRY(wf_store_check(m->store));
    for (int i = 0; i < g->adapters.count; i++)
        WF_TRY(wf_upload_adapter(g->session, g->adapters.adapter[i]));
    return wf_upload_frequencies(g->session, &m->config, g->context);
}

/* Counts the elements of one weight that are NaN or infinite. */
static wf_status count_faults(wf_ctx *ctx, const wf_model_weight_info *w, int64_t *out)
{
    enum { PIECE = 1 << 16 }; /* elements; a multiple of every block size */
    wf_status status = WF_ERR_MEMORY;
    int64_t count = wf_dims_count(&w->shape);
    void *raw = wf_mem_new(ctx, wf_type_bytes(w->type, count));
    float *x = wf_mem_array(ctx, PIECE, sizeof *x);
    *out = 0;
    if (raw && x)
        status = wf_weight_read(ctx, w, raw);
    for (int64_t at = 0; status == WF_OK && at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;
        wf_convert_to_f32(w->type, (char *)raw + wf_type_bytes(w->type, at), x, n);
        for (int64_t i = 0; i < n; i++)
            *out += !isfinite(x[i]);
    }
    wf_mem_free(ctx, raw);
    wf_mem_free(ctx, x);
    return status;
}

wf_status wf_generator_check_weights(wf_generator *g)
{
    for (int i = 0; i < g->model->weights; i++) {
        const wf_model_weight_info *w = &g->model->weight[i];
        int64_t faults;
        WF_TRY(count_faults(g->ctx, w, &faults));
        if (faults)
            wf_ctx_log(g->ctx, WF_LOG_WARN, "%s has %lld elements that are NaN or infinite",
                       w->name, (long long)faults);
    }
    return WF_OK;
}

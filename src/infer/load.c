/* SPDX-License-Identifier: MIT */
/*
 * load.c - see load.h.
 *
 * Each weight is packed, mapped or copied. Packed: the device rearranges it into its own layout,
 * where that is faster. Mapped: kernels read the file's pages, without a copy. Copied: all others.
 */
#include "infer/load.h"

#include <math.h>

#include "base/mem.h"
#include "device/device.h"
#include "infer/upload.h"

/* What happens to weights. */
typedef struct {
    wf_session *session;
    const wf_device_ops *ops;
    bool rounds; /* matmuls may round activations */
} loading;

static loading loading_of(wf_session *s, bool rounds)
{
    return (loading){s, s->device->ops, rounds};
}

static bool is_block(const wf_model_weight_info *w)
{
    return wf_type_get(w->type)->kind == WF_KIND_BLOCK;
}

/* Returns whether the device gains by its own layout for this weight. Matmuls by packed blocks
 * round activations. */
static bool packs(const loading *l, const wf_model_weight_info *w)
{
    return wf_weight_in_place(w) && l->ops->packing_pays && (l->rounds || !is_block(w)) &&
           l->ops->packing_pays(l->session->device, w->type, &w->shape);
}

/* Whether matmuls by this weight may round activations: for a quantized weight as those by a packed
 * one do, and for a narrow one where the device gains by it. */
static bool rounds(const loading *l, const wf_model_weight_info *w)
{
    const bool narrow = w->type == WF_F16 || w->type == WF_BF16;
    return l->rounds && (is_block(w) || (narrow && l->ops->narrows));
}

/* Small weights, mostly of norms, are copied. A mapped one would keep its readahead window
 * resident, which holds neighbours that have already been packed. */
static bool maps(const loading *l, const wf_model_weight_info *w)
{
    enum { SMALL = 64 * 1024 /* bytes */ };
    return wf_weight_in_place(w) &&
           (is_block(w) || rounds(l, w) || wf_weight_stored_bytes(w) >= SMALL);
}

wf_status wf_load_map(wf_session *s, const wf_model *m, bool round)
{
    const loading l = loading_of(s, round);
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (packs(&l, w))
            WF_TRY(wf_session_pack(s, w->name, w->type, (int)w->shape.n, w->shape.d));
        else if (maps(&l, w)) {
            WF_TRY(wf_session_map(s, w->name, w->type, (int)w->shape.n, w->shape.d,
                                  m->store->file[w->source->from->file].path, wf_weight_offset(w)));
            if (rounds(&l, w))
                wf_session_round(s, w->name);
        }
    }
    return WF_OK;
}

wf_status wf_load_plan(wf_session *s, const wf_model *m, bool round, size_t *mapped)
{
    const loading l = loading_of(s, round);
    *mapped = 0;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (packs(&l, w))
            WF_TRY(wf_session_declare_packed(s, w->name, w->type, (int)w->shape.n, w->shape.d));
        else if (maps(&l, w)) {
            if (rounds(&l, w))
                WF_TRY(
                    wf_session_declare_rounded(s, w->name, w->type, (int)w->shape.n, w->shape.d));
            if (l.ops->buffer_map)
                *mapped += wf_weight_stored_bytes(w);
        }
    }
    return WF_OK;
}

/* Packs lazily: the first run reads the file's bytes, and fails if they cannot be read. */
static wf_status pack_weight(wf_session *s, const wf_model *m, const wf_model_weight_info *w)
{
    wf_session_write_later(s, w->name, m->store->file[w->source->from->file].map,
                           wf_weight_offset(w));
    return WF_OK;
}

/* Releases the file's pages afterwards, so that the weight is not resident twice. */
static wf_status copy_weight(wf_session *s, const wf_model *m, const wf_model_weight_info *w)
{
    size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
    void *data = wf_mem_new(m->ctx, bytes);
    wf_status status = data ? wf_weight_read(m->ctx, w, data) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_session_write(s, w->name, data, bytes);
    wf_mem_free(m->ctx, data);
    for (int i = 0; i < w->sources; i++) {
        const wf_stored *t = w->source[i].from;
        wf_map_forget(m->store->file[t->file].map, t->offset, t->bytes);
    }
    return status;
}

wf_status wf_load_write(wf_session *s, const wf_model *m, const wf_adapters *adapters,
                        int64_t context)
{
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        const wf_stored_state *state = wf_session_find(s, w->name);
        wf_assert(state);
        if (state->storage == WF_STATE_PACKED)
            WF_TRY(pack_weight(s, m, w));
        else if (state->storage == WF_STATE_OWNED)
            WF_TRY(copy_weight(s, m, w));
    }
    WF_TRY(wf_store_check(m->store));
    for (int i = 0; i < adapters->count; i++)
        WF_TRY(wf_upload_adapter(s, adapters->adapter[i]));
    return wf_upload_frequencies(s, &m->config, context);
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

wf_status wf_load_check(const wf_model *m)
{
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        int64_t faults;
        WF_TRY(count_faults(m->ctx, w, &faults));
        if (faults)
            wf_ctx_log(m->ctx, WF_LOG_WARN, "%s has %lld elements that are NaN or infinite",
                       w->name, (long long)faults);
    }
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/* source.c - reads weights from the tensors that they are made of. */
#include "model/source.h"

#include <string.h>

#include "base/mem.h"

int64_t wf_weight_columns(const wf_model_weight_info *w)
{
    return w->shape.n > 1 ? wf_dims_last(&w->shape) : 1;
}

/* Returns whether the rows are one range of the tensor. */
static bool lies_together(const wf_source *s)
{
    return !s->transposed && s->step == 1;
}

const wf_stored *wf_weight_whole(const wf_model_weight_info *w)
{
    const wf_source *s = w->source;
    bool whole = w->sources == 1 && s->first == 0 && s->skip == 0 && s->step == 1 && s->add == 0 &&
                 wf_dims_count(&s->from->shape) == wf_dims_count(&w->shape) &&
                 (!s->transposed || w->shape.n == 2);
    return whole ? s->from : NULL;
}

size_t wf_source_bytes(const wf_model_weight_info *w, int source)
{
    const wf_source *s = &w->source[source];
    return wf_type_bytes(s->from->type, s->rows * wf_weight_columns(w));
}

size_t wf_weight_stored_bytes(const wf_model_weight_info *w)
{
    size_t bytes = 0;
    for (int i = 0; i < w->sources; i++)
        bytes += wf_source_bytes(w, i);
    return bytes;
}

uint64_t wf_weight_offset(const wf_model_weight_info *w)
{
    const wf_source *s = w->source;
    return s->from->offset + wf_type_bytes(w->type, s->first * wf_weight_columns(w));
}

const wf_source *wf_weight_in_place(const wf_model_weight_info *w)
{
    /* Kernels read elements in place, so plain types must be aligned to their size. Blocks need 2
     * bytes, for their f16 scales. */
    const wf_type_info *info = wf_type_get(w->type);
    uint64_t align = info->kind == WF_KIND_BLOCK ? 2 : (uint64_t)info->block_bytes;
    const wf_source *s = w->source;
    bool ready = w->sources == 1 && lies_together(s) && s->add == 0 && w->type == s->from->type &&
                 wf_weight_offset(w) % align == 0;
    return ready ? s : NULL;
}

/* ---- Reading ---- */

/* Copies the rows of a transposed source: columns of the tensor, element by element. */
static void copy_columns(const wf_source *s, int64_t columns, uint8_t *to)
{
    const size_t size = (size_t)wf_type_get(s->from->type)->block_bytes;
    const int64_t wide = wf_dims_last(&s->from->shape);
    for (int64_t k = 0; k < columns; k++) {
        const uint8_t *row = s->from->data + (size_t)((s->skip + k) * wide) * size;
        for (int64_t i = 0; i < s->rows; i++)
            memcpy(to + (size_t)(i * columns + k) * size,
                   row + (size_t)(s->first + i * s->step) * size, size);
    }
}

/* Copies the rows of a source without converting them. */
static void copy_rows(const wf_source *s, int64_t columns, uint8_t *to)
{
    const int64_t together = lies_together(s) ? s->rows : 1; /* rows per copy */
    const size_t bytes = wf_type_bytes(s->from->type, together * columns);
    if (s->transposed) {
        copy_columns(s, columns, to);
        return;
    }
    for (int64_t i = 0; i < s->rows; i += together, to += bytes)
        memcpy(to, s->from->data + wf_type_bytes(s->from->type, (s->first + i * s->step) * columns),
               bytes);
}

/* Reads rows whose type differs from the state's, which is f32. */
static wf_status convert_rows(wf_ctx *ctx, const wf_source *s, int64_t columns, float *to)
{
    const int64_t count = s->rows * columns;
    uint8_t *raw = wf_mem_new(ctx, wf_type_bytes(s->from->type, count)); /* files do not align */
    if (!raw)
        return WF_ERR_MEMORY;
    copy_rows(s, columns, raw);
    wf_convert_to_f32(s->from->type, raw, to, count);
    for (int64_t i = 0; i < count && s->add != 0; i++)
        to[i] += s->add;
    wf_mem_free(ctx, raw);
    return WF_OK;
}

wf_status wf_weight_read(wf_ctx *ctx, const wf_model_weight_info *w, void *to)
{
    const int64_t columns = wf_weight_columns(w);
    uint8_t *at = to;
    for (int i = 0; i < w->sources; i++) {
        const wf_source *s = &w->source[i];
        if (w->type == s->from->type && s->add == 0) {
            copy_rows(s, columns, at);
        } else {
            wf_assert(w->type == WF_F32);
            WF_TRY(convert_rows(ctx, s, columns, (float *)(void *)at));
        }
        at += wf_type_bytes(w->type, s->rows * columns);
    }
    return WF_OK;
}

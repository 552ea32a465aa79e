/* SPDX-License-Identifier: MIT */
/*
 * gemm_pack.h - packs GEMM operands into f32 panels [nk][width]. Handles types, strides and
 * transposition.
 *
 * A panel holds `width` rows of a or columns of b, k by k, so that a tile reads both panels in
 * order. Narrow and quantized elements are widened here, once per use of the panel. Lanes past the
 * last row or column are padding: their products are computed and dropped.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_PACK_H
#define WF_DEVICE_CPU_SIMD_GEMM_PACK_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"
#include "graph/quant/block.h"

#define WF_PACK_COLUMNS 1024 /* elements of a row packed at a time */

/* Distribution of rows or columns to tiles: `wide` tiles of width + 1, the rest of width. */
typedef struct {
    int64_t tiles, width, wide;
} wf_deal;

static inline int64_t wf_deal_first(const wf_deal *d, int64_t tile)
{
    return tile * d->width + (tile < d->wide ? tile : d->wide);
}

static inline int wf_deal_width(const wf_deal *d, int64_t tile)
{
    return (int)d->width + (tile < d->wide);
}

/* Elements [first, first + n) by k in [k0, k0 + nk) of matrix `index`. */
typedef struct {
    const wf_gemm_operand *of;
    int64_t index, first, n, k0, nk;
} wf_gemm_part;

/* Address of element `column` of a row of the stored matrix. */
static inline const char *wf_gemm_row(const wf_gemm_part *p, int64_t row, int64_t column)
{
    const wf_view *v = p->of->view;
    return wf_view_at(v, wf_view_row(v, p->of->first + p->index * p->of->rows + row) + column);
}

WF_INLINE size_t wf_gemm_size(wf_type type)
{
    return type == WF_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Stores the first n lanes, or all if a later store overwrites the rest. */
WF_INLINE void wf_pack_store(float *to, vf x, int n, bool all)
{
    if (n >= WF_VL || all)
        vf_store(to, x);
    else
        vf_store_n(to, x, n);
}

/* Transposes VL rows of the view to VL columns, for nk steps of k. */
WF_INLINE void wf_pack_square(wf_type type, const char *const *from, int64_t k, int nk, vf r[WF_VL])
{
    size_t offset = (size_t)k * wf_gemm_size(type);
    if (nk == WF_VL)
        for (int i = 0; i < WF_VL; i++)
            r[i] = vf_load_as(type, from[i] + offset);
    else
        for (int i = 0; i < WF_VL; i++)
            r[i] = vf_load_as_n(type, from[i] + offset, nk);
    vf_transpose(r);
}

/* Packs VL rows of nk elements into lanes g and up of a panel. */
WF_INLINE void wf_pack_group(wf_type type, const char *const *from, int64_t nk, int width, int g,
                             float *to)
{
    int lanes = width - g;
    bool all = width < WF_VL; /* a later k overwrites the lanes that stick out */
    int64_t k = 0;
    vf r[WF_VL];
    for (; k + WF_VL <= nk; k += WF_VL) {
        wf_pack_square(type, from, k, WF_VL, r);
#pragma GCC unroll 16
        for (int i = 0; i < WF_VL; i++)
            wf_pack_store(to + (k + i) * width + g, r[i], lanes, all);
    }
    if (k < nk) {
        wf_pack_square(type, from, k, (int)(nk - k), r);
        for (int i = 0; i < nk - k; i++)
            wf_pack_store(to + (k + i) * width + g, r[i], lanes, all);
    }
}

/* Packs one panel whose columns are rows of the view. Past the last row it repeats that row,
 * unused. */
WF_INLINE void wf_pack_columns(wf_type type, const wf_gemm_part *p, int64_t first, int width,
                               float *to)
{
    for (int g = 0; g < width; g += WF_VL) {
        const char *from[WF_VL];
        for (int64_t i = 0; i < WF_VL; i++) {
            int64_t row = first + g + i < p->n ? first + g + i : p->n - 1;
            from[i] = wf_gemm_row(p, p->first + row, p->k0);
        }
        wf_pack_group(type, from, p->nk, width, g, to);
    }
}

/* The same for quantized rows, which are decoded first. */
static inline void wf_pack_block_columns(const wf_gemm_part *p, int64_t first, int width, float *to)
{
    float decoded[WF_VL][WF_GEMM_BLOCK];
    for (int g = 0; g < width; g += WF_VL) {
        const char *from[WF_VL];
        for (int64_t i = 0; i < WF_VL; i++) {
            int64_t row = first + g + i < p->n ? first + g + i : p->n - 1;
            wf_block_decode(p->of->view->type, wf_gemm_row(p, p->first + row, 0), p->k0, p->nk,
                            decoded[i]);
            from[i] = (const char *)decoded[i];
        }
        wf_pack_group(WF_F32, from, p->nk, width, g, to);
    }
}

/* Packs lanes g and up of a panel, for nk <= WF_PACK_STEP rows of k. */
WF_INLINE void wf_pack_lanes(wf_type type, const char *const *row, size_t offset, int64_t have,
                             int width, int g, int64_t nk, float *to)
{
    if (have >= WF_VL && (width - g >= WF_VL || width < WF_VL)) {
        for (int64_t k = 0; k < nk; k++)
            vf_store(to + k * width, vf_load_as(type, row[k] + offset));
        return;
    }
    int n = have < 0 ? 0 : have < WF_VL ? (int)have : WF_VL;
    for (int64_t k = 0; k < nk; k++)
        wf_pack_store(to + k * width, vf_load_as_n(type, row[k] + offset, n), width - g,
                      width < WF_VL);
}

enum { WF_PACK_STEP = 16 /* rows of k that fit in L1 at any alignment */ };

/* Distributes rows [k0, k0 + nk) of k, whose elements start at row[i], to all panels; zeros past
 * the last element. */
WF_INLINE void wf_pack_some_rows(wf_type type, const char *const *row, int64_t n, const wf_deal *d,
                                 int64_t stride, int64_t k0, int64_t nk, float *to)
{
    for (int64_t t = 0; t < d->tiles; t++) {
        int64_t first = wf_deal_first(d, t);
        int width = wf_deal_width(d, t);
        for (int g = 0; g < width; g += WF_VL)
            wf_pack_lanes(type, row, (size_t)(first + g) * wf_gemm_size(type), n - first - g, width,
                          g, nk, to + t * stride + k0 * width + g);
    }
}

/* Packs all panels from elements that are contiguous in a row of the view. */
WF_INLINE void wf_pack_rows(wf_type type, const wf_gemm_part *p, const wf_deal *d, int64_t stride,
                            float *to)
{
    for (int64_t k0 = 0; k0 < p->nk; k0 += WF_PACK_STEP) {
        int64_t nk = p->nk - k0 < WF_PACK_STEP ? p->nk - k0 : WF_PACK_STEP;
        const char *row[WF_PACK_STEP];
        for (int64_t k = 0; k < nk; k++)
            row[k] = wf_gemm_row(p, p->k0 + k0 + k, p->first);
        wf_pack_some_rows(type, row, p->n, d, stride, k0, nk, to);
    }
}

/* The same for quantized rows, which decode in whole block parts only. */
static inline void wf_pack_block_rows(const wf_gemm_part *p, const wf_deal *d, int64_t stride,
                                      float *to)
{
    /* PART: a multiple of every type's block part; STEP: rows decoded at a time, on the stack. */
    enum { PART = 128, STEP = 4 };
    float decoded[STEP][WF_PACK_COLUMNS + 2 * PART];
    /* Whole parts around the wanted columns. */
    int64_t begin = p->first / PART * PART, end = (p->first + p->n + PART - 1) / PART * PART;
    int64_t length = wf_view_last(p->of->view);
    end = end < length ? end : length;
    for (int64_t k0 = 0; k0 < p->nk; k0 += STEP) {
        int64_t nk = p->nk - k0 < STEP ? p->nk - k0 : STEP;
        const char *row[STEP];
        for (int64_t k = 0; k < nk; k++) {
            wf_block_decode(p->of->view->type, wf_gemm_row(p, p->k0 + k0 + k, 0), begin,
                            end - begin, decoded[k]);
            row[k] = (const char *)(decoded[k] + (p->first - begin));
        }
        wf_pack_some_rows(WF_F32, row, p->n, d, stride, k0, nk, to);
    }
}

/* The same from a packed weight: panels of WF_GEMM_COLUMNS with all of k (pack.h). */
WF_INLINE void wf_pack_stored(wf_type type, const wf_gemm_part *p, int64_t all, const wf_deal *d,
                              int64_t stride, float *to)
{
    enum { ACROSS = WF_VL < WF_GEMM_COLUMNS ? WF_VL : WF_GEMM_COLUMNS };
    int64_t panels = (p->n + WF_GEMM_COLUMNS - 1) / WF_GEMM_COLUMNS;
    for (int64_t t = 0; t < d->tiles; t++)
        for (int64_t j = 0; j < d->width; j += ACROSS) {
            int64_t column = t * d->width + j, panel = column / WF_GEMM_COLUMNS;
            const char *from =
                wf_view_at(p->of->view,
                           ((p->first / WF_GEMM_COLUMNS + panel) * all + p->k0) * WF_GEMM_COLUMNS +
                               column % WF_GEMM_COLUMNS);
            float *at = to + t * stride + j;
            for (int64_t k = 0; k < p->nk; k++, at += d->width)
                vf_store_n(
                    at,
                    panel < panels
                        ? vf_load_as_n(
                              type, from + (size_t)k * WF_GEMM_COLUMNS * wf_gemm_size(type), ACROSS)
                        : vf_zero(), /* columns past the last panel */
                    ACROSS);
        }
}

/* all: the full length of k. Panels are `stride` floats apart, with room for a vector after
 * each. */
WF_INLINE void wf_pack_typed(wf_type type, const wf_gemm_part *p, int64_t all, const wf_deal *d,
                             int64_t stride, float *to)
{
    if (p->of->view->packed) {
        wf_pack_stored(type, p, all, d, stride, to);
        return;
    }
    if (p->of->k_is_row) {
        wf_pack_rows(type, p, d, stride, to);
        return;
    }
    for (int64_t t = 0; t < d->tiles; t++)
        wf_pack_columns(type, p, wf_deal_first(d, t), wf_deal_width(d, t), to + t * stride);
}

/* The same for any quantized type. */
static inline void wf_pack_blocks(const wf_gemm_part *p, const wf_deal *d, int64_t stride,
                                  float *to)
{
    if (p->of->k_is_row) {
        wf_pack_block_rows(p, d, stride, to);
        return;
    }
    for (int64_t t = 0; t < d->tiles; t++)
        wf_pack_block_columns(p, wf_deal_first(d, t), wf_deal_width(d, t), to + t * stride);
}

#endif

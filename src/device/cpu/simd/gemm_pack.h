/* SPDX-License-Identifier: MIT */
/*
 * gemm_pack.h - operands of matrix products to panels of f32, [nk][width] each: types, strides and
 * transposes end here.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_PACK_H
#define WF_DEVICE_CPU_SIMD_GEMM_PACK_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"
#include "graph/quant/block.h"

#define WF_PACK_COLUMNS 1024 /* elements of a row of quantized blocks that are packed at a time */

/* Rows or columns dealt out to tiles: `wide` of width + 1, then all others of width. */
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

static inline const char *wf_gemm_row(const wf_gemm_part *p, int64_t row, int64_t column)
{
    const wf_view *v = p->of->view;
    return wf_view_at(v, wf_view_row(v, p->of->first + p->index * p->of->rows + row) + column);
}

WF_INLINE size_t wf_gemm_size(wf_type type)
{
    return type == WF_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Stores the first n lanes; all of them where a later store will write over the rest. */
WF_INLINE void wf_pack_store(float *to, vf x, int n, bool all)
{
    if (n >= WF_VL || all)
        vf_store(to, x);
    else
        vf_store_n(to, x, n);
}

/* VL rows of the view become VL columns of a panel: nk steps of k from k on. */
WF_INLINE void wf_pack_square(wf_type type, const char *const *from, int rows, int64_t k, int nk,
                              vf r[WF_VL])
{
    size_t offset = (size_t)k * wf_gemm_size(type);
    if (nk == WF_VL && rows == WF_VL)
        for (int i = 0; i < WF_VL; i++)
            r[i] = vf_load_as(type, from[i] + offset);
    else
        for (int i = 0; i < WF_VL; i++)
            r[i] = i < rows ? vf_load_as_n(type, from[i] + offset, nk) : vf_zero();
    vf_transpose(r);
}

/* Columns [g, g + lanes) of a panel from as many rows of numbers, of which there are only `rows`. */
WF_INLINE void wf_pack_group(wf_type type, const char *const *from, int rows, int64_t all_k, int g,
                             int lanes, int width, float *to)
{
    for (int64_t k = 0; k < all_k; k += WF_VL) {
        int nk = all_k - k < WF_VL ? (int)(all_k - k) : WF_VL;
        vf r[WF_VL];
        wf_pack_square(type, from, rows, k, nk, r);
        if (nk == WF_VL && lanes == WF_VL)
            for (int i = 0; i < WF_VL; i++)
                vf_store(to + (k + i) * width + g, r[i]);
        else
            for (int i = 0; i < nk; i++)
                wf_pack_store(to + (k + i) * width + g, r[i], lanes, width < WF_VL);
    }
}

/* One panel whose columns are rows of the view; zeros where these are less than width. Quantized rows
 * are decoded on the way. */
WF_INLINE void wf_pack_columns(wf_type type, const wf_gemm_part *p, int64_t first, int width,
                               float *to)
{
    for (int g = 0; g < width; g += WF_VL) {
        int lanes = width - g < WF_VL ? width - g : WF_VL;
        int64_t left = p->n - first - g;
        int rows = left < 0 ? 0 : left < lanes ? (int)left : lanes;
        const char *from[WF_VL];
        if (type != WF_TYPE_NONE) {
            for (int i = 0; i < rows; i++)
                from[i] = wf_gemm_row(p, p->first + first + g + i, p->k0);
            wf_pack_group(type, from, rows, p->nk, g, lanes, width, to);
            continue;
        }
        float decoded[WF_VL][WF_GEMM_BLOCK];
        for (int i = 0; i < rows; i++) {
            wf_block_decode(p->of->view->type, wf_gemm_row(p, p->first + first + g + i, 0), p->k0,
                            p->nk, decoded[i]);
            from[i] = (const char *)decoded[i];
        }
        wf_pack_group(WF_F32, from, rows, p->nk, g, lanes, width, to);
    }
}

/* The elements of one k, which lie side by side, dealt out to all panels. */
WF_INLINE void wf_pack_row(wf_type type, const char *from, int64_t n, const wf_deal *d,
                           int64_t stride, int64_t k, float *to)
{
    size_t size = wf_gemm_size(type);
    for (int64_t t = 0; t < d->tiles; t++) {
        int width = wf_deal_width(d, t);
        float *at = to + t * stride + k * width;
        for (int g = 0; g < width; g += WF_VL) {
            int64_t have = n - g < 0 ? 0 : n - g;
            const char *x = from + (size_t)g * size;
            vf lanes = have >= WF_VL ? vf_load_as(type, x) : vf_load_as_n(type, x, (int)have);
            wf_pack_store(at + g, lanes, width - g, width < WF_VL);
        }
        from += (size_t)width * size;
        n -= width;
    }
}

WF_INLINE void wf_pack_rows(wf_type type, const wf_gemm_part *p, const wf_deal *d, int64_t stride,
                            float *to)
{
    for (int64_t k = 0; k < p->nk; k++)
        wf_pack_row(type, wf_gemm_row(p, p->k0 + k, p->first), p->n, d, stride, k, to);
}

/* The same of quantized rows, whose parts begin and end where they can be decoded. */
static inline void wf_pack_block_rows(const wf_gemm_part *p, const wf_deal *d, int64_t stride,
                                      float *to)
{
    enum { PART = 128 };
    float decoded[WF_PACK_COLUMNS + 2 * PART];
    wf_type type = p->of->view->type;
    int64_t begin = p->first / PART * PART, end = (p->first + p->n + PART - 1) / PART * PART;
    int64_t length = wf_view_last(p->of->view);
    end = end < length ? end : length;
    for (int64_t k = 0; k < p->nk; k++) {
        wf_block_decode(type, wf_gemm_row(p, p->k0 + k, 0), begin, end - begin, decoded);
        wf_pack_row(WF_F32, (const char *)(decoded + (p->first - begin)), p->n, d, stride, k, to);
    }
}

/* The same from a weight that lies in panels of WF_GEMM_COLUMNS (pack.h), with all of its k. */
WF_INLINE void wf_pack_stored(wf_type type, const wf_gemm_part *p, int64_t all, const wf_deal *d,
                              int64_t stride, float *to)
{
    enum { LANES = WF_VL < WF_GEMM_COLUMNS ? WF_VL : WF_GEMM_COLUMNS };
    int64_t panels = (p->n + WF_GEMM_COLUMNS - 1) / WF_GEMM_COLUMNS;
    for (int64_t t = 0; t < d->tiles; t++)
        for (int64_t j = 0; j < d->width; j += LANES) {
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
                              type, from + (size_t)k * WF_GEMM_COLUMNS * wf_gemm_size(type), LANES)
                        : vf_zero(),
                    LANES);
        }
}

/* Of type WF_TYPE_NONE are quantized blocks, of whichever type. all: how many k there are. Panels are stride floats apart, with room for a vector after each. */
WF_INLINE void wf_pack_typed(wf_type type, const wf_gemm_part *p, int64_t all, const wf_deal *d,
                             int64_t stride, float *to)
{
    if (p->of->view->packed) {
        wf_pack_stored(type, p, all, d, stride, to);
        return;
    }
    if (p->of->k_is_row) {
        if (type == WF_TYPE_NONE)
            wf_pack_block_rows(p, d, stride, to);
        else
            wf_pack_rows(type, p, d, stride, to);
        return;
    }
    for (int64_t t = 0; t < d->tiles; t++)
        wf_pack_columns(type, p, wf_deal_first(d, t), wf_deal_width(d, t), to + t * stride);
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * convert_merge.c - merges adapters into the weights.
 *
 * Computes W + scale B A one row at a time while writing, so that merging needs no extra copy of W.
 * Sums are computed in double and rounded once to f32; then the row is converted to its type.
 */
#include <string.h>

#include "base/mem.h"
#include "model/convert.h"

bool wf_merge_changes(const wf_convert *c, const char *weight)
{
    for (int i = 0; i < c->adapters.count; i++)
        if (wf_adapter_find(c->adapters.adapter[i], weight) >= 0)
            return true;
    return false;
}

/* Returns an adapter's rank for a weight (0: not adapted) and the index of its A. */
static int64_t find(const wf_adapter *a, const char *weight, int *index)
{
    wf_info down;
    *index = weight ? wf_adapter_find(a, weight) : -1;
    return *index >= 0 && wf_adapter_tensor(a, *index, &down) ? down.dim[0] : 0;
}

/* Appends A and B of one adapter. The adapters before it occupy the first `at` of the total
 * rank. */
static wf_status add_adapter(const wf_convert *c, const wf_adapter *a, int index, int64_t at,
                             wf_merge *m)
{
    wf_info up, down;
    wf_adapter_tensor(a, index, &down);
    wf_adapter_tensor(a, index + 1, &up);
    const int64_t in = down.dim[1], out = up.dim[0], r = down.dim[0];
    float *A = wf_mem_new(c->ctx, down.bytes), *B = wf_mem_new(c->ctx, up.bytes);
    wf_status status = A && B ? wf_adapter_read(a, index, A) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_adapter_read(a, index + 1, B);
    for (int64_t k = 0; k < r && status == WF_OK; k++) {
        m->scale[at + k] = wf_adapter_scale(a);
        for (int64_t i = 0; i < in; i++)
            m->in[(at + k) * in + i] = A[k * in + i];
        for (int64_t i = 0; i < out; i++)
            m->out[(at + k) * out + i] = B[i * r + k];
    }
    wf_mem_free(c->ctx, A);
    wf_mem_free(c->ctx, B);
    return status;
}

/* Concatenates the factors of all adapters along the rank, so that one loop adds them. */
wf_status wf_merge_make(const wf_convert *c, const wf_convert_item *item, wf_merge *m)
{
    const wf_adapters *all = &c->adapters;
    int index;
    *m = (wf_merge){.rows = wf_dims_rows(&item->shape), .columns = wf_dims_last(&item->shape)};
    for (int i = 0; i < all->count; i++)
        m->rank += find(all->adapter[i], item->weight, &index);
    if (m->rank == 0)
        return WF_OK;
    size_t in = (size_t)(item->transposed ? m->rows : m->columns);
    size_t out = (size_t)(item->transposed ? m->columns : m->rows);
    m->scale = wf_mem_array(c->ctx, (size_t)m->rank, sizeof *m->scale);
    m->in = m->scale ? wf_mem_array(c->ctx, (size_t)m->rank, in * sizeof *m->in) : NULL;
    m->out = m->in ? wf_mem_array(c->ctx, (size_t)m->rank, out * sizeof *m->out) : NULL;
    if (!m->out)
        return WF_ERR_MEMORY;
    m->left = item->transposed ? m->in : m->out;
    m->right = item->transposed ? m->out : m->in;
    int64_t at = 0;
    for (int i = 0; i < all->count; i++) {
        int64_t rank = find(all->adapter[i], item->weight, &index);
        if (rank > 0)
            WF_TRY(add_adapter(c, all->adapter[i], index, at, m));
        at += rank;
    }
    return WF_OK;
}

void wf_merge_free(const wf_convert *c, wf_merge *m)
{
    wf_mem_free(c->ctx, m->scale);
    wf_mem_free(c->ctx, m->in);
    wf_mem_free(c->ctx, m->out);
}

void wf_merge_row(const wf_merge *m, int64_t row, float *numbers)
{
    enum { PIECE = 256 }; /* columns summed at a time */
    for (int64_t begin = 0; begin < m->columns; begin += PIECE) {
        double sum[PIECE];
        int64_t left = m->columns - begin, n = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < n; i++)
            sum[i] = (double)numbers[begin + i];
        for (int64_t k = 0; k < m->rank; k++) {
            double factor = m->scale[k] * (double)m->left[k * m->rows + row];
            const float *right = m->right + k * m->columns + begin;
            for (int64_t i = 0; i < n; i++)
                sum[i] += factor * (double)right[i];
        }
        for (int64_t i = 0; i < n; i++)
            numbers[begin + i] = (float)sum[i];
    }
}

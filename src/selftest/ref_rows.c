/* SPDX-License-Identifier: MIT */
/* ref_rows.c - rows by index: embed, gather_rows, scatter_add_rows. */
#include "selftest/ref_priv.h"

/* Returns the number of elements of a row: all axes but the first. */
static int64_t row_length(const wf_dims *shape)
{
    int64_t length = 1;
    for (int64_t a = 1; a < shape->n; a++)
        length *= shape->d[a];
    return length;
}

/* Row i of the result is row in[1][i] of in[0]. */
static wf_status rows_by_index(const wf_ref_call *c, const char *what)
{
    const wf_ref *from = &c->in[0], *index = &c->in[1];
    int64_t n = wf_dims_count(&index->shape), length = row_length(&from->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = wf_ref_int(index, i);
        WF_TRY(wf_ref_check(c, what, row, from->shape.d[0]));
        for (int64_t j = 0; j < length; j++) {
            double x = from->v[row * length + j];
            wf_ref_set(c->out, i * length + j, x, wf_ref_read_mag(from->type, x));
        }
    }
    return WF_OK;
}

wf_status wf_ref_embed(const wf_ref_call *c)
{
    return rows_by_index(c, "id");
}

wf_status wf_ref_gather_rows(const wf_ref_call *c)
{
    return rows_by_index(c, "row");
}

/* (x, rows, from). A row without additions is exact. */
wf_status wf_ref_scatter_add_rows(const wf_ref_call *c)
{
    const wf_ref *x = &c->in[0], *rows = &c->in[1], *from = &c->in[2];
    int64_t count = wf_dims_count(&x->shape), length = row_length(&x->shape);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = x->v[e];
    int64_t n = wf_dims_count(&rows->shape);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = wf_ref_int(rows, i);
        WF_TRY(wf_ref_check(c, "row", row, x->shape.d[0]));
        for (int64_t j = 0; j < length; j++) {
            int64_t e = row * length + j;
            double old = c->out->v[e], term = from->v[i * length + j];
            c->out->v[e] += term;
            c->out->mag[e] += (c->out->mag[e] > 0 ? 0 : fabs(old)) + fabs(term);
        }
    }
    if (wf_ref_is_int(x->type))
        for (int64_t e = 0; e < count; e++)
            wf_ref_set(c->out, e, wf_ref_wrap((int64_t)c->out->v[e]), 0);
    return WF_OK;
}

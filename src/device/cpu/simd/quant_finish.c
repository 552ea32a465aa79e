/* SPDX-License-Identifier: MIT */
/* quant_finish.c - epilogue of matmuls by quantized weights: bias, activation, conversion and
 * store. */
#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/quant.h"

wf_quant_result wf_quant_result_of(const wf_launch *l)
{
    wf_quant_result o = {.n = l->in[1].dim[0]};
    o.bias = l->nin > 2 ? &l->in[2] : NULL;
    o.y = l->out[0].data ? &l->out[0] : NULL;
    if (l->node->op == WF_OP_linear_act) {
        const wf_attr_linear_act *attr = l->attr;
        o.act = WF_SIMD(wf_simd_activation)(attr->act);
        o.pre = l->out[1].data ? &l->out[1] : NULL;
    }
    return o;
}

/* Stores n lanes as v's type. */
static void store_part(const wf_view *v, void *to, vf x, int n)
{
    if (n == WF_VL)
        vf_store_as(v->type, to, x);
    else
        vf_store_as_n(v->type, to, x, n);
}

void wf_quant_finish_columns(const wf_quant_result *o, int64_t r, int64_t j, int n, const float *c)
{
    const wf_view *to = o->pre ? o->pre : o->y;
    size_t size = to->type == WF_F32 ? sizeof(float) : sizeof(uint16_t);
    char *at = (char *)wf_view_at(to, wf_view_row(to, r)) + (size_t)j * size;
    vf x = vf_load(c);
    if (o->bias)
        x = vf_add(x, vf_load_as_n(o->bias->type, wf_view_at(o->bias, j), n));
    store_part(to, at, x, n);
    if (o->act && o->y) {
        float row[WF_VL]; /* rounded to the result's type first */
        vf_store(row, vf_load_as_n(to->type, at, n));
        o->act(row, row, n);
        store_part(o->y, (char *)wf_view_at(o->y, wf_view_row(o->y, r)) + (size_t)j * size,
                   vf_load(row), n);
    }
}

void wf_quant_finish(const wf_quant_result *o, int64_t r, int64_t p, int panels, const float *c)
{
    for (int64_t j = p * WF_VL; panels > 0 && j < o->n; panels--, j += WF_VL, c += WF_VL)
        wf_quant_finish_columns(o, r, j, (int)(o->n - j < WF_VL ? o->n - j : WF_VL), c);
}

/* SPDX-License-Identifier: MIT */
/* quant_finish.c - what becomes of sums of products with a packed quantized weight. */
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

/* Part of row r, from column j0 on. */
static void store_part(const wf_view *v, int64_t r, int64_t j0, vf x, int n)
{
    void *to = wf_view_at(v, wf_view_row(v, r) + j0);
    if (n == WF_VL)
        vf_store_as(v->type, to, x);
    else
        vf_store_as_n(v->type, to, x, n);
}

void wf_quant_finish(const wf_quant_result *o, int64_t r, int64_t p, const float *c)
{
    int64_t j0 = p * WF_VL;
    int n = (int)(o->n - j0 < WF_VL ? o->n - j0 : WF_VL);
    const wf_view *to = o->pre ? o->pre : o->y;
    vf x = vf_load(c);
    if (o->bias)
        x = vf_add(x, vf_load_as_n(o->bias->type, wf_view_at(o->bias, j0), n));
    store_part(to, r, j0, x, n);
    if (o->act && o->y) {
        float row[WF_VL]; /* as its type has the product */
        vf_store(row, vf_load_as_n(to->type, wf_view_at(to, wf_view_row(to, r) + j0), n));
        o->act(row, row, n);
        store_part(o->y, r, j0, vf_load(row), n);
    }
}

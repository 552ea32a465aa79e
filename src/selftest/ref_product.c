/* SPDX-License-Identifier: MIT */
/* ref_product.c - matmul, linear, and the fused forms of linear and its gradient. */
#include "selftest/number.h"
#include "selftest/ref_priv.h"

/* (a [..., M, K], b [..., K, N]) -> [..., M, N]; a transposed operand is stored the other way. */
wf_status wf_ref_matmul(const wf_ref_call *c)
{
    const wf_attr_matmul *attr = c->attr;
    const wf_dims *as = &c->in[0].shape, *shape = &c->out->shape;
    int64_t m = shape->d[shape->n - 2], n = shape->d[shape->n - 1];
    int64_t k = as->d[as->n - (attr->transpose_a ? 2 : 1)];
    int64_t count = wf_dims_count(shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t batch = e / (m * n), row = e / n % m, col = e % n;
        const double *a = c->in[0].v + batch * m * k, *b = c->in[1].v + batch * k * n;
        for (int64_t i = 0; i < k; i++) {
            double term = a[attr->transpose_a ? i * m + row : row * k + i] *
                          b[attr->transpose_b ? col * k + i : i * n + col];
            c->out->v[e] += term;
            c->out->mag[e] += fabs(term);
        }
    }
    return WF_OK;
}

/* Computes y = x w^T + bias with the mag of every sum. */
static void linear(const wf_ref_call *c, wf_ref *y)
{
    const wf_ref *x = &c->in[0], *w = &c->in[1];
    int64_t n = w->shape.d[0], k = w->shape.d[1];
    int64_t count = wf_dims_count(&y->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t row = e / n, col = e % n;
        double bias = c->nin == 3 ? c->in[2].v[col] : 0;
        wf_ref_set(y, e, bias, fabs(bias));
        for (int64_t i = 0; i < k; i++) {
            double term = x->v[row * k + i] * w->v[col * k + i];
            y->v[e] += term;
            y->mag[e] += fabs(term);
        }
    }
}

/* (x [..., K], w [N, K], bias [N]?) -> [..., N] */
wf_status wf_ref_linear(const wf_ref_call *c)
{
    linear(c, c->out);
    return WF_OK;
}

/* The same operands -> y, pre. The error of pre, including its rounding to the type, is multiplied
 * by the slope: the steeper of the slopes at pre and at the largest error of pre. */
wf_status wf_ref_linear_act(const wf_ref_call *c)
{
    const wf_attr_linear_act *attr = c->attr;
    wf_op op = wf_act_op(attr->act);
    wf_ref *y = &c->out[0], *pre = &c->out[1];
    double roundoff = wf_type_get(pre->type)->roundoff / WF_ROUNDOFF_F32;
    int64_t count = wf_dims_count(&pre->shape);
    linear(c, pre);
    for (int64_t e = 0; e < count; e++) {
        double x = wf_number_round(pre->type, pre->v[e]);
        double lost = pre->mag[e] + roundoff * fabs(x);
        wf_ref_act here = wf_ref_activate(op, x);
        wf_ref_act off = wf_ref_activate(op, x + 16 * WF_ROUNDOFF_F32 * lost);
        wf_ref_set(y, e, here.y, here.mag + lost * fmax(fabs(here.slope), fabs(off.slope)));
    }
    return WF_OK;
}

/* (dy [M, N], w [N, K], pre [M, K]) -> d [M, K], the sum of its rows [K]. The matmul result is not
 * rounded to the type. */
wf_status wf_ref_matmul_act_grad(const wf_ref_call *c)
{
    const wf_attr_matmul_act_grad *attr = c->attr;
    const wf_ref *dy = &c->in[0], *w = &c->in[1], *pre = &c->in[2];
    int64_t n = w->shape.d[0], k = w->shape.d[1], count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double product = 0, mag = 0;
        for (int64_t i = 0; i < n; i++) {
            double term = dy->v[e / k * n + i] * w->v[i * k + e % k];
            product += term;
            mag += fabs(term);
        }
        wf_ref_act f = wf_ref_activate(wf_act_op(attr->act), pre->v[e]);
        wf_ref_set(c->out, e, product * f.slope, mag * fabs(f.slope) + fabs(product) * f.slope_mag);
    }
    wf_ref_add_rows(&c->out[0], &c->out[1]);
    return WF_OK;
}

/* (dy [M, N], x [M, K]) -> dw [N, K], db [N] */
wf_status wf_ref_linear_grad_weight(const wf_ref_call *c)
{
    const wf_ref *dy = &c->in[0], *x = &c->in[1];
    wf_ref *dw = &c->out[0], *db = &c->out[1];
    int64_t m = dy->shape.d[0], n = dy->shape.d[1], k = x->shape.d[1];
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double d = dy->v[i * n + j];
            for (int64_t l = 0; l < k; l++) {
                dw->v[j * k + l] += d * x->v[i * k + l];
                dw->mag[j * k + l] += fabs(d * x->v[i * k + l]);
            }
            db->v[j] += d;
            db->mag[j] += fabs(d);
        }
    return WF_OK;
}

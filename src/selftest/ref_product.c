/* SPDX-License-Identifier: MIT */
/* ref_product.c - matmul, linear, and the fused forms of linear and its gradient. */
#include "selftest/number.h"
#include "selftest/ref_priv.h"

/* A row of factors or several: element (r, i) is at v[r * row + i * step]. */
typedef struct {
    const double *v;
    int64_t row, step;
} factors;

/* Adjacent elements of a result whose sums run side by side, since additions to one sum wait for
 * each other. */
#define SIDE 4

/* Adds the products of row 0 of a and rows 0 to SIDE - 1 of b to y and mag, in the order of i. */
static inline void add_side(factors a, factors b, int64_t k, double *y, double *mag)
{
    double sum[SIDE], abs_sum[SIDE];
    for (int c = 0; c < SIDE; c++) {
        sum[c] = y[c];
        abs_sum[c] = mag[c];
    }
    for (int64_t i = 0; i < k; i++)
        for (int c = 0; c < SIDE; c++) {
            double term = a.v[i * a.step] * b.v[c * b.row + i * b.step];
            sum[c] += term;
            abs_sum[c] += fabs(term);
        }
    for (int c = 0; c < SIDE; c++) {
        y[c] = sum[c];
        mag[c] = abs_sum[c];
    }
}

/* Adds the sum over i < k of a(0, i) b(j, i) to y[j], and of its absolute terms to mag[j], for
 * j < n. Each sum runs in the order of i. */
static void add_products(factors a, factors b, int64_t k, int64_t n, double *y, double *mag)
{
    int64_t j = 0;
    for (; j + SIDE <= n; j += SIDE)
        add_side(a, (factors){b.v + j * b.row, b.row, b.step}, k, y + j, mag + j);
    for (; j < n; j++)
        for (int64_t i = 0; i < k; i++) {
            double term = a.v[i * a.step] * b.v[j * b.row + i * b.step];
            y[j] += term;
            mag[j] += fabs(term);
        }
}

/* (a [..., M, K], b [..., K, N]) -> [..., M, N]; a transposed operand is stored the other way. */
wf_status wf_ref_matmul(const wf_ref_call *c)
{
    const wf_attr_matmul *attr = c->attr;
    const wf_dims *as = &c->in[0].shape, *shape = &c->out->shape;
    int64_t m = shape->d[shape->n - 2], n = shape->d[shape->n - 1];
    int64_t k = as->d[as->n - (attr->transpose_a ? 2 : 1)];
    int64_t rows = n > 0 ? wf_dims_count(shape) / n : 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t batch = r / m, row = r % m;
        factors a = {c->in[0].v + batch * m * k, 0, attr->transpose_a ? m : 1};
        factors b = {c->in[1].v + batch * k * n, 1, n};
        a.v += row * (attr->transpose_a ? 1 : k);
        if (attr->transpose_b)
            b = (factors){b.v, k, 1};
        add_products(a, b, k, n, c->out->v + r * n, c->out->mag + r * n);
    }
    return WF_OK;
}

/* Computes y = x w^T + bias with the mag of every sum. */
static void linear(const wf_ref_call *c, wf_ref *y)
{
    const wf_ref *x = &c->in[0], *w = &c->in[1];
    int64_t n = w->shape.d[0], k = w->shape.d[1];
    int64_t rows = n > 0 ? wf_dims_count(&y->shape) / n : 0;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t col = 0; col < n; col++) {
            double bias = c->nin == 3 ? c->in[2].v[col] : 0;
            wf_ref_set(y, r * n + col, bias, fabs(bias));
        }
        add_products((factors){x->v + r * k, 0, 1}, (factors){w->v, k, 1}, k, n, y->v + r * n,
                     y->mag + r * n);
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

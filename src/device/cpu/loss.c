/* SPDX-License-Identifier: MIT */
/*
 * loss.c - cross entropy of rows of logits [V] with one target each, and its gradient.
 *
 * With z the logits, capped if there is a softcap, lse = log sum exp z, smoothing e and target t:
 *
 *     loss = (1 - e) (lse - z[t]) + e (lse - mean z) + z_loss lse^2
 *     dz_v = dloss (p_v (1 + 2 z_loss lse) - (1 - e) [v == t] - e / V),   p_v = exp(z_v - lse)
 */
#include "device/cpu/loss.h"

#include <math.h>

#include "base/thread.h"
#include "device/walk.h"

/* ---- One row ---- */

wf_status wf_loss_check(const wf_loss *o, const wf_launch *l)
{
    for (int64_t r = 0; r < o->rows; r++) {
        int64_t t = wf_loss_target(o, r);
        if (t != o->attr->ignore_index && (t < 0 || t >= o->classes))
            return wf_fail(
                l->ctx, WF_ERR_DEVICE, "%s: target %lld of row %lld is not within the %lld classes",
                wf_op_get(l->node->op)->name, (long long)t, (long long)r, (long long)o->classes);
    }
    return WF_OK;
}

const float *wf_loss_read(const wf_loss *o, const wf_view *logits, int64_t r, float *buf)
{
    const float *x = wf_row_read(logits, r, buf);
    float cap = (float)o->attr->softcap;
    if (cap == 0)
        return x;
    for (int64_t v = 0; v < o->classes; v++)
        buf[v] = cap * tanhf(x[v] / cap);
    return buf;
}

/* The maximum is subtracted, so exp cannot overflow; sums in f64. */
static double log_sum_exp(const float *z, int64_t n)
{
    if (n == 0)
        return -INFINITY;
    float most = -INFINITY;
    for (int64_t v = 0; v < n; v++)
        most = z[v] > most ? z[v] : most;
    double sum = 0;
    for (int64_t v = 0; v < n; v++)
        sum += expf(z[v] - most);
    return most + log(sum);
}

static double loss_of(const wf_loss *o, const float *z, int64_t target, double lse)
{
    double smooth = o->attr->label_smoothing;
    double loss = (1 - smooth) * (lse - z[target]);
    if (smooth != 0) {
        double sum = 0;
        for (int64_t v = 0; v < o->classes; v++)
            sum += z[v];
        loss += smooth * (lse - sum / (double)o->classes);
    }
    if (o->attr->z_loss != 0)
        loss += o->attr->z_loss * lse * lse;
    return loss;
}

float wf_loss_row(const wf_loss *o, int64_t i, const float *z, const wf_view *loss,
                  const wf_view *lse)
{
    double sum = log_sum_exp(z, o->classes);
    int64_t t = wf_loss_target(o, i);
    if (loss->data)
        *(float *)wf_loss_at(loss, i) =
            t == o->attr->ignore_index ? 0 : (float)loss_of(o, z, t, sum);
    if (lse->data)
        *(float *)wf_loss_at(lse, i) = (float)sum;
    return (float)sum;
}

void wf_loss_row_grad(const wf_loss *o, int64_t i, const float *z, float dloss, float lse,
                      float *dz)
{
    int64_t t = wf_loss_target(o, i);
    float cap = (float)o->attr->softcap;
    double smooth = o->attr->label_smoothing;
    float factor = (float)(1 + 2 * o->attr->z_loss * lse);
    float rest = (float)(smooth / (double)o->classes);
    if (t == o->attr->ignore_index) {
        for (int64_t v = 0; v < o->classes; v++)
            dz[v] = 0;
        return;
    }
    for (int64_t v = 0; v < o->classes; v++) {
        float d = expf(z[v] - lse) * factor - rest; /* p (1 + 2 z_loss lse) - e / V */
        if (v == t)
            d -= (float)(1 - smooth);
        if (cap != 0)
            d *= 1 - z[v] / cap * (z[v] / cap); /* the derivative of the cap, by the capped value */
        dz[v] = dloss * d;
    }
}

/* ---- The ops ---- */

/* Row buffers of a thread, f32 [V] each. */
enum { Z, DZ, BUFFERS };

typedef struct {
    wf_loss loss;
    const wf_launch *l;
    const wf_view *logits;
} loss_arg;

static void loss_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const loss_arg *o = arg;
    float *buf = wf_row_buffer(o->l, thread, BUFFERS, Z, o->loss.classes);
    for (int64_t r = begin; r < end; r++) {
        const float *z = wf_loss_read(&o->loss, o->logits, r, buf);
        wf_loss_row(&o->loss, r, z, &o->l->out[0], &o->l->out[1]);
    }
}

static void grad_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const loss_arg *o = arg;
    const wf_view *dloss = &o->l->in[0], *lse = &o->l->in[3], *dlogits = &o->l->out[0];
    float *buf = wf_row_buffer(o->l, thread, BUFFERS, Z, o->loss.classes);
    float *out = wf_row_buffer(o->l, thread, BUFFERS, DZ, o->loss.classes);
    for (int64_t r = begin; r < end; r++) {
        bool ignored = wf_loss_target(&o->loss, r) == o->loss.attr->ignore_index;
        const float *z = ignored ? NULL : wf_loss_read(&o->loss, o->logits, r, buf);
        float *dz = wf_row_begin(dlogits, r, out);
        wf_loss_row_grad(&o->loss, r, z, *(const float *)wf_loss_at(dloss, r),
                         *(const float *)wf_loss_at(lse, r), dz);
        wf_row_end(dlogits, r, dz);
    }
}

static size_t loss_workspace(const wf_device *device, const wf_node *n)
{
    int logits = n->op == WF_OP_cross_entropy ? 0 : 1;
    return wf_row_workspace(wf_device_threads(device), BUFFERS,
                            wf_dims_last(&n->in[logits]->shape));
}

static wf_status run(const wf_launch *l, const wf_view *logits, wf_range_fn *fn)
{
    loss_arg o = {.l = l, .logits = logits};
    o.loss = (wf_loss){l->attr, logits + 1, wf_view_rows(logits), wf_view_last(logits)};
    WF_TRY(wf_loss_check(&o.loss, l));
    wf_parallel_for(l->threads, o.loss.rows, wf_grain(o.loss.classes), fn, &o);
    return WF_OK;
}

/* cross_entropy: (logits [..., V], targets i32[...]) -> loss f32[...], lse f32[...] */
static wf_status launch_cross_entropy(const wf_launch *l)
{
    return run(l, &l->in[0], loss_rows);
}

/* cross_entropy_grad: (dloss f32[...], logits, targets, lse f32[...]) -> dlogits */
static wf_status launch_cross_entropy_grad(const wf_launch *l)
{
    return l->out[0].data ? run(l, &l->in[1], grad_rows) : WF_OK;
}

/* clang-format off */
#define ROW(name_, ...)                                                                            \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .workspace = loss_workspace, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel wf_cpu_loss[] = {
    ROW(cross_entropy),
    ROW(cross_entropy_grad, .in_place = 2), /* dlogits may overwrite logits */
    {0},
};

/* SPDX-License-Identifier: MIT */
/* ref_loss.c - cross entropy and its gradient. */
#include "selftest/ref_priv.h"

/* Log-sum-exp of a row; *mag is what max + log(sum of e^(z - max)) may lose. */
static double row_lse(const double *x, int64_t n, double cap, double *mag)
{
    double max = -INFINITY, sum = 0, lost = 0;
    for (int64_t i = 0; i < n; i++) {
        double z = wf_ref_cap_at(x[i], 0, cap).y;
        max = z > max || isnan(z) ? z : max;
    }
    *mag = 0;
    if (isinf(max))
        return max;
    for (int64_t i = 0; i < n; i++) {
        wf_ref_cap l = wf_ref_cap_at(x[i], 0, cap);
        double e = exp(l.y - max);
        sum += e;
        lost += e > 0 ? e * (l.mag + max - l.y) : 0;
    }
    *mag = fabs(max) + 1 + lost / sum;
    return max + log(sum);
}

/* (logits [..., V], targets) -> loss, lse */
wf_status wf_ref_cross_entropy(const wf_ref_call *c)
{
    const wf_attr_cross_entropy *attr = c->attr;
    double smooth = attr->label_smoothing;
    int64_t rows = wf_dims_rows(&c->in->shape), n = wf_dims_last(&c->in->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in->v + r * n;
        double lse_mag, lse = row_lse(x, n, attr->softcap, &lse_mag);
        wf_ref_set(&c->out[1], r, lse, lse_mag);

        int64_t target = wf_ref_int(&c->in[1], r);
        if (target == attr->ignore_index)
            continue; /* the loss is 0 */
        WF_TRY(wf_ref_check(c, "target", target, n));
        wf_ref_cap t = wf_ref_cap_at(x[target], 0, attr->softcap);
        double loss = (1 - smooth) * (lse - t.y);
        double mag = (1 - smooth) * (lse_mag + fabs(t.y) + t.mag);
        if (smooth != 0) {
            double mean = 0, mean_mag = 0;
            for (int64_t i = 0; i < n; i++) {
                wf_ref_cap l = wf_ref_cap_at(x[i], 0, attr->softcap);
                mean += l.y / (double)n;
                mean_mag += (fabs(l.y) + l.mag) / (double)n;
            }
            loss += smooth * (lse - mean);
            mag += smooth * (lse_mag + mean_mag);
        }
        loss += attr->z_loss * lse * lse;
        mag += fabs(attr->z_loss) * (lse * lse + 2 * fabs(lse) * lse_mag);
        wf_ref_set(&c->out[0], r, loss, mag);
    }
    return WF_OK;
}

/* (dloss, logits, targets, lse) -> dlogits. With p = e^(z - lse):
 * dloss/dz = p (1 + 2 z_loss lse) - (1 - smooth) [target] - smooth / V, then through the cap. */
wf_status wf_ref_cross_entropy_grad(const wf_ref_call *c)
{
    const wf_attr_cross_entropy *attr = c->attr;
    double smooth = attr->label_smoothing;
    int64_t rows = wf_dims_rows(&c->out->shape), n = wf_dims_last(&c->out->shape);
    for (int64_t r = 0; r < rows; r++) {
        double dloss = c->in[0].v[r], lse = c->in[3].v[r];
        int64_t target = wf_ref_int(&c->in[2], r);
        if (target == attr->ignore_index)
            continue; /* zeros */
        WF_TRY(wf_ref_check(c, "target", target, n));
        for (int64_t i = 0; i < n; i++) {
            wf_ref_cap l = wf_ref_cap_at(c->in[1].v[r * n + i], 0, attr->softcap);
            double p = exp(l.y - lse), p_mag = p * (1 + l.mag + fabs(l.y - lse));
            double hit = i == target ? 1 - smooth : 0, share = smooth / (double)n;
            double d = dloss * (p * (1 + 2 * attr->z_loss * lse) - hit - share);
            double mag = fabs(dloss) *
                         (p_mag * (1 + 2 * fabs(attr->z_loss * lse)) + fabs(hit) + fabs(share));
            wf_ref_set(c->out, r * n + i, d * l.slope, mag * l.slope + fabs(d) * l.slope_mag);
        }
    }
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/* ref_loss.c - cross_entropy, its gradient, and head_loss. */
#include "selftest/number.h"
#include "selftest/ref_priv.h"

/* One row of logits. */
typedef struct {
    const wf_ref_call *c;
    const wf_attr_cross_entropy *attr;
    const double *x;   /* [n] */
    const double *mag; /* [n] mag of x; NULL: zero */
    int64_t n, target;
} loss_row;

typedef struct {
    double v, mag;
} number;

static wf_ref_cap logit(const loss_row *r, int64_t i)
{
    return wf_ref_cap_at(r->x[i], r->mag ? r->mag[i] : 0, r->attr->softcap);
}

/* Returns the log-sum-exp with the mag of max + log(sum of e^(z - max)). */
static number row_lse(const loss_row *r)
{
    double max = -INFINITY, sum = 0, lost = 0;
    for (int64_t i = 0; i < r->n; i++) {
        double z = logit(r, i).y;
        max = z > max || isnan(z) ? z : max;
    }
    if (isinf(max))
        return (number){max, 0};
    for (int64_t i = 0; i < r->n; i++) {
        wf_ref_cap l = logit(r, i);
        double e = exp(l.y - max);
        sum += e;
        lost += e > 0 ? e * (l.mag + max - l.y) : 0;
    }
    return (number){max + log(sum), fabs(max) + 1 + lost / sum};
}

static bool is_ignored(const loss_row *r)
{
    return r->target == r->attr->ignore_index;
}

/* (1 - smooth) (lse - z_target) + smooth (lse - mean(z)) + z_loss lse^2; 0 for an ignored
 * target. */
static number row_loss(const loss_row *r, number lse)
{
    if (is_ignored(r))
        return (number){0, 0};
    double smooth = r->attr->label_smoothing, z = r->attr->z_loss;
    wf_ref_cap t = logit(r, r->target);
    number loss = {(1 - smooth) * (lse.v - t.y), (1 - smooth) * (lse.mag + fabs(t.y) + t.mag)};
    if (smooth != 0) {
        double mean = 0, mean_mag = 0;
        for (int64_t i = 0; i < r->n; i++) {
            wf_ref_cap l = logit(r, i);
            mean += l.y / (double)r->n;
            mean_mag += (fabs(l.y) + l.mag) / (double)r->n;
        }
        loss.v += smooth * (lse.v - mean);
        loss.mag += smooth * (lse.mag + mean_mag);
    }
    loss.v += z * lse.v * lse.v;
    loss.mag += fabs(z) * (lse.v * lse.v + 2 * fabs(lse.v) * lse.mag);
    return loss;
}

/* With p = e^(z - lse): dloss/dz = p (1 + 2 z_loss lse) - (1 - smooth) [target] - smooth / V, then
 * through the cap. */
static number row_grad(const loss_row *r, number lse, double dloss, int64_t i)
{
    if (is_ignored(r))
        return (number){0, 0};
    double smooth = r->attr->label_smoothing, z = 2 * r->attr->z_loss;
    wf_ref_cap l = logit(r, i);
    double p = exp(l.y - lse.v), p_mag = p * (1 + l.mag + fabs(l.y - lse.v) + lse.mag);
    double hit = i == r->target ? 1 - smooth : 0, share = smooth / (double)r->n;
    double d = dloss * (p * (1 + z * lse.v) - hit - share);
    double mag = fabs(dloss) *
                 (p_mag * (1 + fabs(z * lse.v)) + p * fabs(z) * lse.mag + fabs(hit) + fabs(share));
    return (number){d * l.slope, mag * l.slope + fabs(d) * l.slope_mag};
}

/* An ignored target need not be a valid class. */
static wf_status set_target(loss_row *r, const wf_ref *targets, int64_t row)
{
    r->target = wf_ref_int(targets, row);
    return is_ignored(r) ? WF_OK : wf_ref_check(r->c, "target", r->target, r->n);
}

/* (logits [..., V], targets) -> loss, lse */
wf_status wf_ref_cross_entropy(const wf_ref_call *c)
{
    loss_row r = {.c = c, .attr = c->attr, .x = c->in->v, .n = wf_dims_last(&c->in->shape)};
    int64_t rows = wf_dims_rows(&c->in->shape);
    for (int64_t i = 0; i < rows; i++, r.x += r.n) {
        WF_TRY(set_target(&r, &c->in[1], i));
        number lse = row_lse(&r), loss = row_loss(&r, lse);
        wf_ref_set(&c->out[0], i, loss.v, loss.mag);
        wf_ref_set(&c->out[1], i, lse.v, lse.mag);
    }
    return WF_OK;
}

/* (dloss, logits, targets, lse) -> dlogits */
wf_status wf_ref_cross_entropy_grad(const wf_ref_call *c)
{
    loss_row r = {.c = c, .attr = c->attr, .x = c->in[1].v, .n = wf_dims_last(&c->out->shape)};
    int64_t rows = wf_dims_rows(&c->out->shape);
    for (int64_t i = 0; i < rows; i++, r.x += r.n) {
        WF_TRY(set_target(&r, &c->in[2], i));
        for (int64_t v = 0; v < r.n; v++) {
            number d = row_grad(&r, (number){c->in[3].v[i], 0}, c->in[0].v[i], v);
            wf_ref_set(c->out, i * r.n + v, d.v, d.mag);
        }
    }
    return WF_OK;
}

/* ---- (x [..., C], w [V, C], targets, dloss?) -> loss, lse, dx?, dw? ---- */

/* Returns x as stored between two steps, rounded to the type. x is known within a few roundoffs of
 * its terms. If all values in that range round to the same value, the result is exact. Otherwise it
 * may be either neighbour, and mag is their distance, plus 1/16 because later steps are not quite
 * linear over that distance. */
static number stored(wf_type type, number x)
{
    const double unit = 8 * WF_ROUNDOFF_F32;
    if (type == WF_F32)
        return (number){x.v, x.mag + fabs(x.v)};
    double low = wf_number_round(type, x.v - unit * x.mag);
    double high = wf_number_round(type, x.v + unit * x.mag);
    return (number){wf_number_round(type, x.v), 1.0625 * (high - low) / unit};
}

/* Computes row i of the logits: v [V] and mag [V]. */
static void head_logits(const wf_ref_call *c, int64_t i, double *v, double *mag)
{
    int64_t classes = c->in[1].shape.d[0], width = c->in[1].shape.d[1];
    for (int64_t k = 0; k < classes; k++) {
        number sum = {0, 0};
        for (int64_t a = 0; a < width; a++) {
            double term = c->in[0].v[i * width + a] * c->in[1].v[k * width + a];
            sum.v += term;
            sum.mag += fabs(term);
        }
        sum = stored(c->in[0].type, sum);
        v[k] = sum.v;
        mag[k] = sum.mag;
    }
}

/* Adds the contribution of dlogits[k] of row i to dx and dw. */
static void head_backward(const wf_ref_call *c, int64_t i, int64_t k, number d)
{
    int64_t width = c->in[1].shape.d[1];
    for (int64_t a = 0; a < width; a++) {
        int64_t at_x = i * width + a, at_w = k * width + a;
        double x = c->in[0].v[at_x], w = c->in[1].v[at_w], mag = fabs(d.v) + d.mag;
        c->out[2].v[at_x] += d.v * w;
        c->out[2].mag[at_x] += mag * fabs(w);
        if (c->nout < 4)
            continue;
        c->out[3].v[at_w] += d.v * x;
        c->out[3].mag[at_w] += mag * fabs(x);
    }
}

wf_status wf_ref_head_loss(const wf_ref_call *c)
{
    const wf_attr_cross_entropy attr = wf_attr_of_loss(c->attr);
    wf_type type = c->in[0].type;
    int64_t rows = wf_dims_rows(&c->in[0].shape), n = c->in[1].shape.d[0];
    double *logits = wf_mem_array(c->ctx, (size_t)(2 * n), sizeof *logits);
    if (!logits)
        return WF_ERR_MEMORY;
    loss_row r = {.c = c, .attr = &attr, .x = logits, .mag = logits + n, .n = n};
    wf_status status = WF_OK;
    for (int64_t i = 0; i < rows && status == WF_OK; i++) {
        status = set_target(&r, &c->in[2], i);
        if (status != WF_OK)
            break;
        head_logits(c, i, logits, logits + n);
        number lse = row_lse(&r), loss = row_loss(&r, lse);
        wf_ref_set(&c->out[0], i, loss.v, loss.mag);
        wf_ref_set(&c->out[1], i, lse.v, lse.mag);
        for (int64_t k = 0; c->nin > 3 && k < n; k++)
            head_backward(c, i, k, stored(type, row_grad(&r, lse, c->in[3].v[i], k)));
    }
    wf_mem_free(c->ctx, logits);
    if (status != WF_OK || c->nout < 4)
        return status;
    /* The matmul result has x's type before it is cast to w's. */
    for (int64_t e = 0; e < wf_dims_count(&c->out[3].shape); e++) {
        number dw = {c->out[3].v[e], c->out[3].mag[e]};
        if (type != c->out[3].type)
            dw = stored(type, dw);
        wf_ref_set(&c->out[3], e, dw.v, dw.mag);
    }
    return WF_OK;
}

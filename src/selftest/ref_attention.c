/* SPDX-License-Identifier: MIT */
/* ref_attention.c - rope, attention (packed and paged), its gradient, kv_append. */
#include "graph/quant/block.h"
#include "selftest/case.h"
#include "selftest/ref_priv.h"

/* ---- rope ---- */

/* (x [N, H, D], positions [N], inv_freq [R/2]). The angle, reduced by whole turns, is rounded to
 * f32. Its error moves each element of a pair in proportion to the other. Positions of any size are
 * exact. */
wf_status wf_ref_rope(const wf_ref_call *c)
{
    const wf_attr_rope *attr = c->attr;
    const wf_dims *shape = &c->out->shape;
    int64_t heads = shape->d[1], d = shape->d[2], half = wf_dims_count(&c->in[2].shape);
    int64_t count = wf_dims_count(shape);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = c->in[0].v[e];
    for (int64_t row = 0; row < shape->d[0] * heads; row++) {
        const double *x = c->in[0].v + row * d;
        for (int64_t i = 0; i < half; i++) {
            double angle = c->in[1].v[row / heads] * c->in[2].v[i] * (attr->inverse ? -1 : 1);
            double turn_cos = attr->magnitude * cos(angle), turn_sin = attr->magnitude * sin(angle);
            double rounded = fmin(fabs(angle), 3.15);
            int64_t i1 = attr->interleaved ? 2 * i : i;
            int64_t i2 = attr->interleaved ? 2 * i + 1 : i + half;
            double mag1 = fabs(x[i1] * turn_cos) + fabs(x[i2] * turn_sin);
            double mag2 = fabs(x[i1] * turn_sin) + fabs(x[i2] * turn_cos);
            wf_ref_set(c->out, row * d + i1, x[i1] * turn_cos - x[i2] * turn_sin,
                       mag1 + rounded * mag2);
            wf_ref_set(c->out, row * d + i2, x[i1] * turn_sin + x[i2] * turn_cos,
                       mag2 + rounded * mag1);
        }
    }
    return WF_OK;
}

/* ---- Sequences and pages ---- */

/* Checks that seq_start increases within [0, rows]. */
static wf_status check_sequences(const wf_ref_call *c, const wf_ref *seq_start, int64_t rows)
{
    int64_t n = wf_dims_count(&seq_start->shape), last = 0;
    for (int64_t s = 0; s < n; s++) {
        int64_t start = wf_ref_int(seq_start, s);
        WF_TRY(wf_ref_check(c, "sequence start", start, rows + 1));
        if (start < last)
            return wf_fail(c->ctx, WF_ERR_DEVICE, "%s: sequence starts do not rise",
                           wf_node_def(c->node)->name);
        last = start;
    }
    return WF_OK;
}

/* Returns the sequence of a row; -1: none. */
static int64_t sequence_of(const wf_ref *seq_start, int64_t row)
{
    int64_t n = wf_dims_count(&seq_start->shape) - 1;
    for (int64_t s = 0; s < n; s++)
        if (wf_ref_int(seq_start, s) <= row && row < wf_ref_int(seq_start, s + 1))
            return s;
    return -1;
}

/* Finds the row of a pool [P, page, ...], counted over all pages, that holds position `pos` of
 * sequence s, by table [S, pages]. */
static wf_status pool_row(const wf_ref_call *c, const wf_ref *pool, const wf_ref *table, int64_t s,
                          int64_t pos, int64_t *row)
{
    int64_t page = pool->shape.d[1], pages = table->shape.d[1];
    WF_TRY(wf_ref_check(c, "position", pos, pages * page));
    WF_TRY(wf_ref_check(c, "sequence", s, table->shape.d[0]));
    int64_t id = wf_ref_int(table, s * pages + pos / page);
    WF_TRY(wf_ref_check(c, "page", id, pool->shape.d[0]));
    *row = id * page + pos % page;
    return WF_OK;
}

/* Writes n elements of x to element `to` of the pool. A quantized pool takes what the encoder makes
 * of them, bit for bit: the encoder defines the op. Its decoder is the selftest's own. */
static void append_row(const wf_ref_call *c, int64_t to, const double *x, int64_t n)
{
    const wf_type_info *info = wf_type_get(c->out->type);
    double *v = c->out->v + to;
    for (int64_t i = 0; i < n; i += info->block) {
        float block[256];
        uint8_t bytes[256];
        if (info->kind != WF_KIND_BLOCK) {
            v[i] = x[i];
            continue;
        }
        for (int k = 0; k < info->block; k++)
            block[k] = (float)x[i + k];
        wf_quantize(c->out->type, block, NULL, bytes, 1, info->block);
        for (int k = 0; k < info->block; k++)
            v[i + k] = wf_number_of_block(c->out->type, bytes, k);
    }
}

/* (pool, x [N, Hk, D], seq_start, positions, table) */
wf_status wf_ref_kv_append(const wf_ref_call *c)
{
    const wf_ref *x = &c->in[1], *seq_start = &c->in[2], *positions = &c->in[3];
    int64_t count = wf_dims_count(&c->out->shape), rows = x->shape.d[0];
    int64_t width = x->shape.d[1] * x->shape.d[2];
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = c->in[0].v[e];
    WF_TRY(check_sequences(c, seq_start, rows));
    for (int64_t i = 0; i < rows; i++) {
        int64_t s = sequence_of(seq_start, i), to;
        if (s < 0)
            continue;
        WF_TRY(pool_row(c, &c->in[0], &c->in[4], s, wf_ref_int(positions, i), &to));
        append_row(c, to * width, x->v + i * width, width);
    }
    return WF_OK;
}

/* ---- Scores ---- */

/* A key that a query attends to. */
typedef struct {
    int64_t row;   /* in k and v, with all axes but the last two flattened */
    wf_ref_cap s;  /* the score, capped */
    double weight; /* p, the softmax weight */
} key;

/* The operands of attention, and the keys of the current query. */
typedef struct {
    const wf_ref_call *c;
    const wf_attr_attention *attr;
    const wf_ref *q, *k, *v, *seq_start, *positions;
    const wf_ref *table, *lengths; /* NULL: packed */
    /* Tokens, query heads, KV heads, elements of a head of q and k, of v. */
    int64_t rows, heads, kv_heads, d, dv;
    double scale;
    double rounded,
        tiny; /* one rounding to the operands' type: relative and absolute; see allow_rounding */
    /* [seen] keys of the current query, in memory for the most that a query can have. Owned. */
    key *keys;
    int64_t seen;
} problem;

/* Tensor cores use the weights and their gradients in the type of the other operand, so one
 * rounding of each is allowed when q, k and v have the same narrow type. In roundoffs of f32, the
 * unit of bounds. */
static void allow_rounding(problem *a)
{
    double unit = WF_CASE_FORWARD * WF_ROUNDOFF_F32;
    wf_type type = a->q->type;
    if (type == WF_F32 || a->k->type != type || a->v->type != type || a->table)
        return;
    a->rounded = wf_type_get(type)->roundoff / unit;
    a->tiny = type == WF_F16 ? 0x1p-25 / unit : 0;
}

/* `q` is the first of the operands q, k, v, seq_start, positions (, table, lengths). */
static wf_status problem_open(problem *a, const wf_ref_call *c, const wf_ref *q, bool paged)
{
    *a = (problem){.c = c, .attr = c->attr, .q = q, .k = q + 1, .v = q + 2};
    a->seq_start = q + 3;
    a->positions = q + 4;
    a->table = paged ? q + 5 : NULL;
    a->lengths = paged ? q + 6 : NULL;
    a->rows = q->shape.d[0];
    a->heads = q->shape.d[1];
    a->d = q->shape.d[2];
    a->kv_heads = a->k->shape.d[a->k->shape.n - 2];
    a->dv = wf_dims_last(&a->v->shape);
    a->scale = a->attr->scale != 0 ? a->attr->scale : a->d > 0 ? 1 / sqrt((double)a->d) : 1;
    allow_rounding(a);
    WF_TRY(check_sequences(c, a->seq_start, a->rows));
    int64_t most = paged ? a->table->shape.d[1] * a->k->shape.d[1] : a->rows;
    a->keys = wf_mem_array(c->ctx, (size_t)most, sizeof *a->keys);
    return a->keys ? WF_OK : WF_ERR_MEMORY;
}

static void problem_close(problem *a)
{
    wf_mem_free(a->c->ctx, a->keys);
}

/* Returns whether the mask lets a query at query_pos see a key at key_pos. */
static bool visible(const problem *a, int64_t query_pos, int64_t key_pos)
{
    if (a->attr->causal && key_pos > query_pos)
        return false;
    return a->attr->window == 0 || query_pos - key_pos < a->attr->window;
}

/* Lists the keys of row i. Does not read pages outside the window, which may have been freed. */
static wf_status find_keys(problem *a, int64_t i)
{
    a->seen = 0;
    int64_t s = sequence_of(a->seq_start, i), pos = wf_ref_int(a->positions, i);
    if (s < 0)
        return WF_OK;
    if (a->table) {
        WF_TRY(wf_ref_check(a->c, "sequence", s, wf_dims_count(&a->lengths->shape)));
        int64_t length = wf_ref_int(a->lengths, s);
        WF_TRY(wf_ref_check(a->c, "length", length, a->table->shape.d[1] * a->k->shape.d[1] + 1));
        for (int64_t j = 0; j < length; j++)
            if (visible(a, pos, j))
                WF_TRY(pool_row(a->c, a->k, a->table, s, j, &a->keys[a->seen++].row));
    } else {
        for (int64_t j = wf_ref_int(a->seq_start, s); j < wf_ref_int(a->seq_start, s + 1); j++)
            if (visible(a, pos, wf_ref_int(a->positions, j)))
                a->keys[a->seen++].row = j;
    }
    return WF_OK;
}

/* Returns the KV head of query head h (grouped-query attention). */
static int64_t kv_head(const problem *a, int64_t h)
{
    return h / (a->heads / a->kv_heads);
}

static const double *k_row(const problem *a, const key *k, int64_t h)
{
    return a->k->v + (k->row * a->kv_heads + kv_head(a, h)) * a->d;
}

static const double *v_row(const problem *a, const key *k, int64_t h)
{
    return a->v->v + (k->row * a->kv_heads + kv_head(a, h)) * a->dv;
}

static double dot(const double *a, const double *b, int64_t n, double *mag)
{
    double sum = 0;
    *mag = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        *mag += fabs(a[i] * b[i]);
    }
    return sum;
}

/* Fills in the scores of the keys of row i for query head h. */
static void find_scores(problem *a, int64_t i, int64_t h)
{
    const double *q = a->q->v + (i * a->heads + h) * a->d;
    for (int64_t j = 0; j < a->seen; j++) {
        double mag, s = a->scale * dot(q, k_row(a, &a->keys[j], h), a->d, &mag);
        a->keys[j].s = wf_ref_cap_at(s, fabs(a->scale) * mag, a->attr->softcap);
    }
}

/* ---- attention ---- */

/* Adds weight * v to o, with an error per term that is partly relative to it, partly to v. */
static void add_weighted(double *o, double *mag, const double *v, int64_t n, double weight,
                         double relative, double tiny)
{
    for (int64_t x = 0; x < n; x++) {
        double term = weight * v[x];
        o[x] += term;
        mag[x] += fabs(term) * relative;
        mag[x] += fabs(v[x]) * tiny;
    }
}

/* Computes o and lse of row i, head h. To first order, an error x of a score changes its weight by
 * p x and all weights by p times the mean of x; rounding s - max changes a score by max - s. */
static void attend(problem *a, int64_t i, int64_t h)
{
    int64_t at = i * a->heads + h;
    double *o = a->c->out[0].v + at * a->dv, *mag = a->c->out[0].mag + at * a->dv;
    double max = -INFINITY, sum = 0, lost = 0;
    for (int64_t j = 0; j < a->seen; j++)
        max = a->keys[j].s.y > max || isnan(a->keys[j].s.y) ? a->keys[j].s.y : max;
    for (int64_t j = 0; j < a->seen; j++)
        sum += a->keys[j].weight = exp(a->keys[j].s.y - max);
    for (int64_t j = 0; j < a->seen; j++) {
        key *k = &a->keys[j];
        k->weight /= sum;
        lost += k->weight * (k->s.mag + max - k->s.y);
    }
    for (int64_t j = 0; j < a->seen; j++) {
        const key *k = &a->keys[j];
        double relative = 1 + a->rounded + k->s.mag + max - k->s.y;
        add_weighted(o, mag, v_row(a, k, h), a->dv, k->weight, relative, a->tiny);
    }
    for (int64_t x = 0; x < a->dv; x++)
        mag[x] += fabs(o[x]) * lost;
    wf_ref_set(&a->c->out[1], at, a->seen > 0 ? max + log(sum) : -INFINITY, fabs(max) + 1 + lost);
}

/* (q, k, v, seq_start, positions (, table, lengths)) -> o, lse */
wf_status wf_ref_attention(const wf_ref_call *c)
{
    problem a;
    WF_TRY(problem_open(&a, c, c->in, c->nin == 7));
    wf_status status = WF_OK;
    for (int64_t i = 0; i < a.rows && status == WF_OK; i++) {
        status = find_keys(&a, i);
        for (int64_t h = 0; h < a.heads && status == WF_OK; h++) {
            find_scores(&a, i, h);
            attend(&a, i, h);
        }
    }
    problem_close(&a);
    return status;
}

/* ---- attention_grad ---- */

static void add_scaled(wf_ref *out, int64_t at, const double *x, int64_t n, double factor,
                       double factor_mag)
{
    for (int64_t i = 0; i < n; i++) {
        out->v[at + i] += factor * x[i];
        out->mag[at + i] += factor_mag * fabs(x[i]);
    }
}

/* Adds the gradients of row i, head h. With p = e^(s - lse) and delta = do.o: dv += p do, ds = p
 * (do.v - delta), through the cap and the scale to dq += ds k, dk += ds q. */
static void attend_grad(problem *a, int64_t i, int64_t h)
{
    const wf_ref *in = a->c->in;
    wf_ref *dq = &a->c->out[0], *dk = &a->c->out[1], *dv = &a->c->out[2];
    int64_t at = i * a->heads + h;
    const double *grad = in[0].v + at * a->dv, *q = a->q->v + at * a->d;
    double lse = in[7].v[at];
    double delta_mag, delta = dot(grad, in[6].v + at * a->dv, a->dv, &delta_mag);
    for (int64_t j = 0; j < a->seen; j++) {
        const key *k = &a->keys[j];
        int64_t kv = k->row * a->kv_heads + kv_head(a, h);
        double p = exp(k->s.y - lse), lost = k->s.mag + fabs(k->s.y - lse);
        add_scaled(dv, kv * a->dv, grad, a->dv, p, p * (1 + a->rounded + lost) + a->tiny);

        double dp_mag, dp = dot(grad, v_row(a, k, h), a->dv, &dp_mag);
        double ds = p * (dp - delta);
        double ds_mag = p * (dp_mag + delta_mag) + fabs(ds) * (a->rounded + lost) + a->tiny;
        double raw = a->scale * ds * k->s.slope;
        double raw_mag = fabs(a->scale) * (ds_mag * k->s.slope + fabs(ds) * k->s.slope_mag);
        add_scaled(dq, at * a->d, k_row(a, k, h), a->d, raw, raw_mag);
        add_scaled(dk, kv * a->d, q, a->d, raw, raw_mag);
    }
}

/* (do, q, k, v, seq_start, positions, o, lse) -> dq, dk, dv */
wf_status wf_ref_attention_grad(const wf_ref_call *c)
{
    problem a;
    WF_TRY(problem_open(&a, c, c->in + 1, false));
    wf_status status = WF_OK;
    for (int64_t i = 0; i < a.rows && status == WF_OK; i++) {
        status = find_keys(&a, i);
        for (int64_t h = 0; h < a.heads && status == WF_OK; h++) {
            find_scores(&a, i, h);
            attend_grad(&a, i, h);
        }
    }
    problem_close(&a);
    return status;
}

/* SPDX-License-Identifier: MIT */
/*
 * attention_grad.c - the gradient of attention over packed sequences, by tiles.
 *
 * p = exp(s - lse), delta = do . o, dv = sum of p do, ds = p (do . v - delta), then the derivatives
 * of cap and scale. A tile computes p and ds once for dq, dk and dv. With enough sequences and
 * heads, one thread processes all tiles of a sequence and kv head and keeps dk and dv of all its
 * keys. Otherwise queries are split over the threads for dq, then keys for dk and dv, and p and ds
 * are computed twice. Either way every sum runs over keys or queries in ascending order, so the
 * bits are the same.
 */
#include "base/thread.h"
#include "device/cpu/packed.h"
#include "device/cpu/simd/attention.h"

enum {
    TILES = 2,            /* tiles that share a block of keys */
    GRAIN = 1024 * 1024,  /* fewest multiplications per thread */
    KEPT_MOST = 256 << 20 /* most bytes of dk and dv that threads keep */
};

/* A tile of LANES queries with their sums. */
typedef struct {
    wf_lanes lanes;
    float *q, *q_columns; /* [LANES][d_wide], [d_wide][LANES] */
    float *g, *g_columns; /* do: the same with dv_wide */
    float *dq;            /* [LANES][d_wide] */
    float *lse, *delta;   /* [LANES] */
} tile;

/* Per thread. */
typedef struct {
    wf_key_block keys;
    tile tile[TILES];
    float *p, *ds;  /* [KEYS][LANES] */
    float *dk, *dv; /* [kept][d_wide], [kept][dv_wide] */
} scratch;

typedef struct {
    wf_attention_problem problem;
    const wf_view *g, *out; /* do, o: [N, H, Dv] */
    const wf_view *lse;     /* f32[N, H] */
    bool once;              /* one thread processes all tiles of a sequence and kv head */
    int64_t kept;           /* keys whose dk and dv a thread keeps: a block's or a sequence's */
    int64_t *first;         /* [S + 1]: items before each sequence */
    char *scratch;
    size_t scratch_bytes; /* per thread */
} gradient;

static void lay_out(scratch *s, wf_carver *c, const gradient *a)
{
    const wf_attention_problem *o = &a->problem;
    s->keys.k = carve_floats(c, KEYS * o->d_wide);
    s->keys.v = carve_floats(c, KEYS * o->dv_wide);
    s->p = carve_floats(c, KEYS * LANES);
    s->ds = carve_floats(c, KEYS * LANES);
    s->dk = carve_floats(c, a->kept * o->d_wide);
    s->dv = carve_floats(c, a->kept * o->dv_wide);
    for (int i = 0; i < TILES; i++) {
        tile *t = &s->tile[i];
        t->q = carve_floats(c, LANES * o->d_wide);
        t->q_columns = carve_floats(c, LANES * o->d_wide);
        t->g = carve_floats(c, LANES * o->dv_wide);
        t->g_columns = carve_floats(c, LANES * o->dv_wide);
        t->dq = carve_floats(c, LANES * o->d_wide);
        t->lse = carve_floats(c, LANES);
        t->delta = carve_floats(c, LANES);
    }
}

static void clear(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += WF_VL)
        vf_store(x + i, vf_zero());
}

/* ---- A tile ---- */

/* `row` is scratch for one row of o. */
static void tile_open(const gradient *a, tile *t, float *row)
{
    const wf_attention_problem *o = &a->problem;
    WF_SIMD(wf_lanes_load)(&t->lanes, o->q, o->d_wide, t->q, t->q_columns);
    WF_SIMD(wf_lanes_load)(&t->lanes, a->g, o->dv_wide, t->g, t->g_columns);
    clear(t->dq, LANES * o->d_wide);
    for (int64_t i = 0; i < LANES; i++) {
        vf delta = vf_zero();
        t->lse[i] = t->delta[i] = 0; /* missing lanes: p and ds become 0 by the mask */
        if (i >= t->lanes.n)
            continue;
        load_any_row(a->out->type, lane_row(&t->lanes, a->out, i), o->dv, o->dv_wide, row);
        for (int64_t c = 0; c < o->dv_wide; c += WF_VL)
            delta = vf_fma(vf_load(t->g + i * o->dv_wide + c), vf_load(row + c), delta);
        t->delta[i] = vf_sum(delta);
        t->lse[i] =
            ((const float *)a->lse->data)[t->lanes.token[i] * a->lse->stride[0] + t->lanes.head[i]];
    }
}

/* Replaces q . k by the probability p, and do . v by the gradient ds of q . k; both 0 for invisible
 * keys. */
static inline __attribute__((always_inline)) void find_gradients(const wf_attention_problem *o,
                                                                 const tile *t,
                                                                 const wf_key_block *b, float *p_at,
                                                                 float *ds_at, wf_sight sight,
                                                                 bool capped)
{
    vf scale = vf_set(o->scale), one = vf_set(1), zero = vf_zero();
    for (int v = 0; v < VECTORS; v++) {
        vf lse = vf_load(t->lse + v * WF_VL), delta = vf_load(t->delta + v * WF_VL);
        for (int64_t j = sight.begin; j < sight.end; j++) {
            int64_t at = j * LANES + v * WF_VL;
            vf dot = vf_load(p_at + at), s = capped ? score_of(o, dot) : vf_mul(scale, dot);
            vf p = vf_exp(vf_sub(s, lse)), ds = vf_mul(p, vf_sub(vf_load(ds_at + at), delta));
            if (capped) {
                vf part = vf_div(s, vf_set(o->cap));
                ds = vf_mul(ds, vf_fnma(part, part, one));
            }
            ds = vf_mul(ds, scale);
            if (sight.masked) {
                vi position = vi_set(b->position[j]);
                p = where_seen(&t->lanes, v, position, p, zero);
                ds = where_seen(&t->lanes, v, position, ds, zero);
            }
            vf_store(p_at + at, p);
            vf_store(ds_at + at, ds);
        }
    }
    /* Clear up to a whole block of rows: the matmuls below read it. */
    int64_t rest = round_up(sight.end, ROWS) - sight.end;
    clear(p_at + sight.end * LANES, rest * LANES);
    clear(ds_at + sight.end * LANES, rest * LANES);
}

/* Whether 0 times an invisible operand is 0: all operands are finite. */
static bool tile_finite(const wf_attention_problem *o, const tile *t, const wf_key_block *b)
{
    return WF_SIMD(wf_panel_finite)(b->k, o->d_wide, b->n) &&
           WF_SIMD(wf_panel_finite)(t->q, o->d_wide, t->lanes.n) &&
           WF_SIMD(wf_panel_finite)(t->g, o->dv_wide, t->lanes.n);
}

/* dk and dv of the block's keys may be NULL: not computed. want_dq == false: t->dq is not
 * computed. */
static void tile_add(const wf_attention_problem *o, tile *t, const scratch *s, wf_sight sight,
                     bool want_dq, float *dk, float *dv)
{
    const wf_key_block *b = &s->keys;
    /* s->p holds q . k, s->ds holds do . v, until find_gradients. */
    WF_SIMD(wf_tile_dots)(s->p, b->k, o->d_wide, t->q_columns, o->d, sight);
    WF_SIMD(wf_tile_dots)(s->ds, b->v, o->dv_wide, t->g_columns, o->dv, sight);
    if (o->cap != 0)
        find_gradients(o, t, b, s->p, s->ds, sight, true);
    else
        find_gradients(o, t, b, s->p, s->ds, sight, false);
    if (sight.masked && !tile_finite(o, t, b)) {
        const wf_lanes *u = &t->lanes;
        if (want_dq)
            WF_SIMD(wf_tile_add_keys_seen)(t->dq, NULL, s->ds, b->k, o->d_wide, sight, u, b);
        if (dk)
            WF_SIMD(wf_tile_add_lanes_seen)(dk, s->ds, t->q, o->d_wide, sight, u, b);
        if (dv)
            WF_SIMD(wf_tile_add_lanes_seen)(dv, s->p, t->g, o->dv_wide, sight, u, b);
        return;
    }
    if (want_dq)
        WF_SIMD(wf_tile_add_keys)(t->dq, NULL, s->ds, b->k, o->d_wide, sight);
    if (dk)
        WF_SIMD(wf_tile_add_lanes)(dk, s->ds, t->q, o->d_wide, t->lanes.n, sight);
    if (dv)
        WF_SIMD(wf_tile_add_lanes)(dv, s->p, t->g, o->dv_wide, t->lanes.n, sight);
}

static void tile_close(const wf_attention_problem *o, const tile *t)
{
    const wf_view *dq = &o->l->out[0];
    for (int64_t i = 0; i < t->lanes.n; i++)
        store_row(dq->type, lane_row(&t->lanes, dq, i), t->dq + i * o->d_wide, o->d);
}

/* ---- Lanes against keys ---- */

/* Ranges of lanes and keys of one sequence and kv head. */
typedef struct {
    int64_t sequence, kv_head;
    int64_t lane_begin, lane_end, key_begin, key_end;
    bool want_dq, want_keys;
} field;

/* Processes up to TILES tiles from lane f->lane_begin + `from` on. */
static void run_group(const gradient *a, scratch *s, const field *f, int64_t from)
{
    const wf_attention_problem *o = &a->problem;
    const wf_view *out = o->l->out;
    int tiles = 0;
    for (int64_t i = from; i < f->lane_end && tiles < TILES; i += LANES, tiles++) {
        int64_t n = f->lane_end - i < LANES ? f->lane_end - i : LANES;
        WF_SIMD(wf_lanes_find)(o, &s->tile[tiles].lanes, f->sequence, f->kv_head, i, n);
        tile_open(a, &s->tile[tiles], s->p);
    }
    for (int64_t j = f->key_begin; j < f->key_end; j += KEYS) {
        bool loaded = false;
        int64_t at = j - f->key_begin;
        WF_SIMD(wf_key_block_find)(o, &s->keys, f->sequence, f->kv_head, j);
        for (int i = 0; i < tiles; i++) {
            wf_sight sight = WF_SIMD(wf_lanes_sight)(&s->tile[i].lanes, &s->keys);
            if (sight.begin == sight.end) /* no lane sees any key of the block */
                continue;
            if (!loaded)
                WF_SIMD(wf_key_block_load)(o, &s->keys, INT32_MIN, INT32_MAX);
            loaded = true;
            tile_add(o, &s->tile[i], s, sight, f->want_dq,
                     f->want_keys && out[1].data ? s->dk + at * o->d_wide : NULL,
                     f->want_keys && out[2].data ? s->dv + at * o->dv_wide : NULL);
        }
    }
    for (int i = 0; i < tiles && f->want_dq; i++)
        tile_close(o, &s->tile[i]);
}

static void store_keys(const wf_attention_problem *o, const field *f, const wf_view *x,
                       const float *from, int64_t wide)
{
    int64_t size = wf_type_get(x->type)->block_bytes;
    for (int64_t j = f->key_begin; x->data && j < f->key_end; j++)
        store_row(x->type,
                  (char *)x->data +
                      ((o->start[f->sequence] + j) * x->stride[0] + f->kv_head * x->stride[1]) *
                          size,
                  from + (j - f->key_begin) * wide, wf_view_last(x));
}

static void run_field(const gradient *a, scratch *s, const field *f)
{
    const wf_attention_problem *o = &a->problem;
    int64_t keys = round_up(f->key_end - f->key_begin, KEYS);
    if (f->want_keys) {
        clear(s->dk, keys * o->d_wide);
        clear(s->dv, keys * o->dv_wide);
    }
    for (int64_t i = f->lane_begin; i < f->lane_end; i += TILES * LANES)
        run_group(a, s, f, i);
    if (f->want_keys) {
        store_keys(o, f, &o->l->out[1], s->dk, o->d_wide);
        store_keys(o, f, &o->l->out[2], s->dv, o->dv_wide);
    }
}

/* ---- Splitting the work ---- */

typedef struct {
    const gradient *a;
    int64_t lanes, keys; /* per item; 0: all of the sequence */
    bool want_dq, want_keys;
} pass;

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pass *w = arg;
    const gradient *a = w->a;
    const wf_attention_problem *o = &a->problem;
    wf_carver c = {.base = a->scratch + (size_t)thread * a->scratch_bytes};
    scratch s;
    lay_out(&s, &c, a);
    int64_t items = a->first[o->sequences];
    for (int64_t item = begin; item < end; item++) {
        /* From both ends alternately: under a causal mask one end costs more. */
        int64_t t = item % items, i = t % 2 ? items - 1 - t / 2 : t / 2;
        field f = {.kv_head = item / items, .want_dq = w->want_dq, .want_keys = w->want_keys};
        f.sequence = wf_attention_find(a->first, o->sequences, i);
        i -= a->first[f.sequence];
        f.key_end = o->start[f.sequence + 1] - o->start[f.sequence];
        f.lane_end = f.key_end * o->group;
        if (w->lanes > 0) {
            f.lane_begin = i * w->lanes;
            f.lane_end =
                f.lane_begin + w->lanes < f.lane_end ? f.lane_begin + w->lanes : f.lane_end;
        }
        if (w->keys > 0) {
            f.key_begin = i * w->keys;
            f.key_end = f.key_begin + w->keys < f.key_end ? f.key_begin + w->keys : f.key_end;
        }
        run_field(a, &s, &f);
    }
}

static void run_pass(const gradient *a, pass w)
{
    const wf_attention_problem *o = &a->problem;
    int64_t longest = 1;
    a->first[0] = 0;
    for (int64_t s = 0; s < o->sequences; s++) {
        int64_t keys = o->start[s + 1] - o->start[s], lanes = keys * o->group;
        longest = keys > longest ? keys : longest;
        /* Items: groups of lanes, groups of keys, or whole sequences. */
        a->first[s + 1] = a->first[s] + (w.lanes > 0  ? (lanes + w.lanes - 1) / w.lanes
                                         : w.keys > 0 ? (keys + w.keys - 1) / w.keys
                                                      : keys > 0);
    }
    w.a = a;
    int64_t pairs = (w.lanes > 0 ? w.lanes : longest * o->group) * (w.keys > 0 ? w.keys : longest);
    wf_parallel_share(o->l->threads, a->first[o->sequences] * o->kv_heads,
                      GRAIN / (pairs * (o->d + o->dv) + 1) + 1, run_range, &w);
}

/* Whether one pass (5 matmuls per tile) is faster than two passes (7) that can be split further.
 * The bits do not depend on it. */
static bool once_is_better(const gradient *a)
{
    const wf_attention_problem *o = &a->problem;
    int64_t items = 0, threads = o->l->threads;
    for (int64_t s = 0; s < o->sequences; s++)
        items += o->start[s + 1] > o->start[s] ? o->kv_heads : 0;
    /* Rounds of threads times the cost of a round, against the work of two passes. */
    return (items + threads - 1) / threads * threads * 5 <= items * 7;
}

static size_t share_workspace(gradient *a, void *workspace, int threads)
{
    const wf_attention_problem *o = &a->problem;
    int64_t all = round_up(o->n, KEYS);
    /* Only if the kept sums stay within the limit. */
    a->once = all * (o->d_wide + o->dv_wide) * 4 * threads <= KEPT_MOST;
    a->kept = a->once ? all : KEYS;
    wf_carver c = {.base = workspace}, sizes = {0};
    scratch s;
    lay_out(&s, &sizes, a);
    a->scratch_bytes = sizes.used;
    a->first = carve(&c, (o->sequences + 1) * (int64_t)sizeof *a->first);
    a->scratch = carve(&c, (int64_t)a->scratch_bytes * threads);
    return c.used;
}

size_t WF_SIMD(wf_attention_grad_workspace)(const wf_device *device, const wf_node *n)
{
    gradient a;
    WF_SIMD(wf_attention_open)(&a.problem, n, 1, NULL);
    return share_workspace(&a, NULL, wf_device_threads(device));
}

/* attention_grad: (do, q, k, v, seq_start, positions, o, lse) -> dq, dk, dv */
wf_status WF_SIMD(wf_attention_grad)(const wf_launch *l)
{
    gradient a = {.g = &l->in[0], .out = &l->in[6], .lse = &l->in[7]};
    WF_TRY(wf_packed_check(l, &l->in[4], l->in[1].dim[0]));
    WF_SIMD(wf_attention_open)(&a.problem, l->node, 1, l);
    if (a.problem.group == 0)
        return WF_OK;
    share_workspace(&a, l->workspace, l->threads);
    for (int i = 0; i < 3; i++)
        WF_SIMD(wf_attention_clear)(&a.problem, &l->out[i]);
    bool dq = l->out[0].data, keys = l->out[1].data || l->out[2].data;
    if (a.once && once_is_better(&a)) {
        run_pass(&a, (pass){.want_dq = dq, .want_keys = keys});
        return WF_OK;
    }
    if (dq)
        run_pass(&a, (pass){.lanes = TILES * LANES, .want_dq = true});
    if (keys)
        run_pass(&a, (pass){.keys = KEYS, .want_keys = true});
    return WF_OK;
}

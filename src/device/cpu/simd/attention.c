/* SPDX-License-Identifier: MIT */
/*
 * attention.c - attention by tiles of queries and keys with an online softmax: sums over earlier
 * keys of a chunk are rescaled when a larger score appears, and chunks are merged likewise. Paged
 * sequences with few queries use attention_decode.h, which has the same bits.
 *
 * Blocks of keys start at multiples of KEYS in their sequence, so a query's bits do not depend on
 * the other queries of its tile. attention.h defines the order of sums.
 */
#include "device/cpu/simd/attention.h"
#include "base/thread.h"
#include "device/cpu/paged.h"
#include "device/cpu/simd/attention_decode.h"

enum {
    TILES = 2,          /* tiles that share a block of keys */
    GRAIN = 1024 * 1024 /* fewest multiplications per thread */
};

/* Sums over some keys. */
typedef struct {
    float *values;       /* sum of p v: [LANES][dv_wide] */
    float *most, *total; /* [LANES]: largest score, sum of p */
} sums;

typedef struct {
    wf_lanes lanes;
    float *columns;     /* q: [d_wide][LANES] */
    sums chunk, all;    /* of the current chunk, and of the chunks before it */
    float *by;          /* [LANES]: factor for earlier sums of the chunk */
    bool begun, merged; /* whether chunk, and all, hold sums */
} tile;

typedef struct {
    wf_key_block keys;
    tile tile[TILES];
    float *rows; /* [LANES][d_wide] */
    float *p;    /* [KEYS][LANES] */
} scratch;

typedef struct {
    wf_attention_problem problem;
    wf_decode decode;
    int64_t *first; /* [S + 1]: groups of tiles before each sequence */
    char *scratch;
    size_t scratch_bytes; /* per thread */
} attention;

static void lay_out_sums(sums *s, wf_carver *c, const wf_attention_problem *o)
{
    s->values = carve_floats(c, LANES * o->dv_wide);
    s->most = carve_floats(c, LANES);
    s->total = carve_floats(c, LANES);
}

static void lay_out(scratch *s, wf_carver *c, const wf_attention_problem *o)
{
    s->keys.k = carve_floats(c, KEYS * o->d_wide);
    s->keys.v = carve_floats(c, KEYS * o->dv_wide);
    s->rows = carve_floats(c, LANES * o->d_wide);
    s->p = carve_floats(c, KEYS * LANES);
    for (int t = 0; t < TILES; t++) {
        s->tile[t].columns = carve_floats(c, o->d_wide * LANES);
        lay_out_sums(&s->tile[t].chunk, c, o);
        lay_out_sums(&s->tile[t].all, c, o);
        s->tile[t].by = carve_floats(c, LANES);
    }
}

/* ---- A tile ---- */

static void tile_open(const wf_attention_problem *o, tile *t, float *rows)
{
    WF_SIMD(wf_lanes_load)(&t->lanes, o->q, o->d_wide, rows, t->columns);
    t->begun = t->merged = false;
}

static void sums_clear(const wf_attention_problem *o, sums *s)
{
    for (int64_t i = 0; i < LANES * o->dv_wide; i += WF_VL)
        vf_store(s->values + i, vf_zero());
    for (int64_t i = 0; i < LANES; i++) {
        s->most[i] = -INFINITY;
        s->total[i] = 0;
    }
}

/* Turns dot products into scores, -Inf for invisible keys, and returns the running maximum. */
static inline __attribute__((always_inline)) vf find_scores(const wf_attention_problem *o, tile *t,
                                                            int v, const wf_key_block *b, float *p,
                                                            wf_sight sight, bool capped)
{
    vf most = vf_load(t->chunk.most + v * WF_VL), scale = vf_set(o->scale);
    for (int64_t j = sight.begin; j < sight.end; j++) {
        float *at = p + j * LANES + v * WF_VL;
        vf s = capped ? score_of(o, vf_load(at)) : vf_mul(scale, vf_load(at));
        if (sight.masked)
            s = where_seen(&t->lanes, v, vi_set(b->position[j]), s, vf_set(-INFINITY));
        vf_store(at, s);
        most = vf_max(s, most); /* NaN propagates through e^x instead */
    }
    return most;
}

/* Turns dot products into e^(score - maximum). */
static void tile_softmax(const wf_attention_problem *o, tile *t, const wf_key_block *b, float *p,
                         wf_sight sight)
{
    for (int v = 0; v < VECTORS; v++) {
        vf before = vf_load(t->chunk.most + v * WF_VL), sum = vf_zero();
        vf most = o->cap != 0 ? find_scores(o, t, v, b, p, sight, true)
                              : find_scores(o, t, v, b, p, sight, false);
        vf_store(t->chunk.most + v * WF_VL, most);
        /* No visible key yet: -Inf - -Inf would be NaN. */
        most = vf_select(vf_eq(most, vf_set(-INFINITY)), vf_zero(), most);
        for (int64_t j = sight.begin; j < sight.end; j++) {
            float *at = p + j * LANES + v * WF_VL;
            vf e = vf_exp(vf_sub(vf_load(at), most));
            vf_store(at, e);
            sum = vf_add(sum, e);
        }
        vf by = vf_exp(vf_sub(before, most));
        vf_store(t->by + v * WF_VL, by);
        float *total = t->chunk.total + v * WF_VL;
        vf_store(total, vf_fma(vf_load(total), by, sum));
    }
}

static void tile_add(const wf_attention_problem *o, tile *t, const wf_key_block *b, float *p,
                     wf_sight sight)
{
    float *values = t->chunk.values;
    if (!t->begun)
        sums_clear(o, &t->chunk);
    t->begun = true;
    WF_SIMD(wf_tile_dots)(p, b->k, o->d_wide, t->columns, o->d, sight);
    tile_softmax(o, t, b, p, sight);
    if (sight.masked && !WF_SIMD(wf_panel_finite)(b->v, o->dv_wide, b->n))
        WF_SIMD(wf_tile_add_keys_seen)(values, t->by, p, b->v, o->dv_wide, sight, &t->lanes, b);
    else
        WF_SIMD(wf_tile_add_keys)(values, t->by, p, b->v, o->dv_wide, sight);
}

/* Merges the sums of the current chunk, if there are any, with those before it. */
static void tile_merge(const wf_attention_problem *o, tile *t)
{
    sums *all = &t->all, *chunk = &t->chunk;
    if (!t->begun)
        return;
    t->begun = false;
    if (!t->merged) { /* factors 0 and 1 */
        sums swap = *all;
        *all = *chunk;
        *chunk = swap;
        t->merged = true;
        return;
    }
    for (int64_t v = 0; v < LANES; v += WF_VL) {
        float earlier[WF_VL], next[WF_VL];
        vf most = vf_load(all->most + v);
        wf_merge m = merge_of(&most, vf_load(chunk->most + v));
        vf_store(all->most + v, most);
        vf_store(all->total + v, merged(&m, vf_load(all->total + v), vf_load(chunk->total + v)));
        vf_store(earlier, m.earlier);
        vf_store(next, m.next);
        for (int64_t i = 0; i < WF_VL; i++) {
            float *to = all->values + (v + i) * o->dv_wide;
            const float *from = chunk->values + (v + i) * o->dv_wide;
            wf_merge lane = {vf_set(earlier[i]), vf_set(next[i])};
            for (int64_t c = 0; c < o->dv_wide; c += WF_VL)
                vf_store(to + c, merged(&lane, vf_load(to + c), vf_load(from + c)));
        }
    }
}

static void tile_close(const wf_attention_problem *o, tile *t)
{
    const wf_view *out = &o->l->out[0], *lse = &o->l->out[1];
    int64_t heads = o->kv_heads * o->group;
    tile_merge(o, t);
    if (!t->merged) /* no visible key */
        sums_clear(o, &t->all);
    for (int64_t i = 0; i < t->lanes.n; i++) {
        float total = t->all.total[i], *sum = t->all.values + i * o->dv_wide;
        if (lse->data)
            ((float *)lse->data)[t->lanes.token[i] * heads + t->lanes.head[i]] =
                log_sum(t->all.most[i], total);
        if (!out->data)
            continue;
        divide_row(sum, o->dv_wide, total);
        store_row(out->type, lane_row(&t->lanes, out, i), sum, o->dv);
    }
}

/* ---- All tiles ---- */

/* Processes lanes [begin, end) of a sequence and kv head, at most TILES * LANES. */
static void run_tiles(const wf_attention_problem *o, scratch *s, int64_t sequence, int64_t kv_head,
                      int64_t begin, int64_t end)
{
    int tiles = 0;
    int32_t low = INT32_MAX, high = INT32_MIN; /* positions that any tile may see */
    for (; begin < end; begin += LANES, tiles++) {
        tile *t = &s->tile[tiles];
        int64_t n = end - begin < LANES ? end - begin : LANES;
        WF_SIMD(wf_lanes_find)(o, &t->lanes, sequence, kv_head, begin, n);
        tile_open(o, t, s->rows);
        low = t->lanes.least_low < low ? t->lanes.least_low : low;
        high = t->lanes.most_high > high ? t->lanes.most_high : high;
    }
    for (int64_t j = 0, keys = key_count(o, sequence); j < keys; j += KEYS) {
        bool loaded = false;
        WF_SIMD(wf_key_block_find)(o, &s->keys, sequence, kv_head, j);
        for (int i = 0; i < tiles; i++) {
            wf_sight sight = WF_SIMD(wf_lanes_sight)(&s->tile[i].lanes, &s->keys);
            if (sight.begin == sight.end)
                continue;
            if (!loaded)
                WF_SIMD(wf_key_block_load)(o, &s->keys, low, high);
            loaded = true;
            tile_add(o, &s->tile[i], &s->keys, s->p, sight);
        }
        for (int i = 0; i < tiles && (j + KEYS) % CHUNK == 0; i++)
            tile_merge(o, &s->tile[i]);
    }
    for (int i = 0; i < tiles; i++)
        tile_close(o, &s->tile[i]);
}

static void run_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention *a = arg;
    const wf_attention_problem *o = &a->problem;
    wf_carver c = {.base = a->scratch + (size_t)thread * a->scratch_bytes};
    scratch s;
    lay_out(&s, &c, o);
    int64_t groups = a->first[o->sequences];
    for (int64_t item = begin; item < end; item++) {
        /* Under a causal mask late queries cost most. Groups are taken from both ends alternately,
         * which balances the threads. */
        int64_t t = item % groups, g = t % 2 ? groups - 1 - t / 2 : t / 2;
        int64_t sequence = wf_attention_find(a->first, o->sequences, g);
        int64_t lanes = (o->start[sequence + 1] - o->start[sequence]) * o->group;
        int64_t lane = (g - a->first[sequence]) * TILES * LANES, stop = lane + TILES * LANES;
        run_tiles(o, &s, sequence, item / groups, lane, stop < lanes ? stop : lanes);
    }
}

/* ---- The launch ---- */

/* Layout: first and decode.first, decode's partial results, the threads' scratch. */
static size_t share_workspace(attention *a, void *workspace, int threads)
{
    const wf_attention_problem *o = &a->problem;
    wf_carver c = {.base = workspace}, sizes = {0};
    scratch s;
    lay_out(&s, &sizes, o);
    a->first = carve(&c, (o->sequences + 1) * (int64_t)sizeof *a->first);
    WF_SIMD(wf_decode_lay_out)(&a->decode, &c, o);
    size_t decode = WF_SIMD(wf_decode_scratch)(o);
    a->scratch_bytes = sizes.used > decode ? sizes.used : decode;
    a->scratch = carve(&c, (int64_t)a->scratch_bytes * threads);
    a->decode.scratch = a->scratch;
    a->decode.scratch_bytes = a->scratch_bytes;
    return c.used;
}

static size_t attention_workspace(const wf_device *device, const wf_node *n)
{
    attention a;
    WF_SIMD(wf_attention_open)(&a.problem, n, 0, NULL);
    return share_workspace(&a, NULL, wf_device_threads(device));
}

/* Rows without a sequence get o = 0 and lse = -Inf, the logarithm of an empty sum. */
static void clear_outside(const wf_attention_problem *o)
{
    const wf_view *lse = &o->l->out[1];
    int64_t heads = o->kv_heads * o->group, first = o->start[0], last = o->start[o->sequences];
    WF_SIMD(wf_attention_clear)(o, &o->l->out[0]);
    for (int64_t i = 0; lse->data && i < o->n * heads; i++)
        if (i < first * heads || i >= last * heads)
            ((float *)lse->data)[i] = -INFINITY;
}

/* attention: (q, k, v, seq_start, positions, table?, lengths?) -> o, lse */
static wf_status launch_attention(const wf_launch *l)
{
    attention a;
    const wf_attention_problem *o = &a.problem;
    WF_TRY(wf_attention_check(l));
    WF_SIMD(wf_attention_open)(&a.problem, l->node, 0, l);
    if (o->group == 0)
        return WF_OK;
    share_workspace(&a, l->workspace, l->threads);
    clear_outside(o);
    a.first[0] = 0;
    for (int64_t s = 0; s < o->sequences; s++) {
        int64_t lanes = (o->start[s + 1] - o->start[s]) * o->group;
        int64_t groups = (lanes + TILES * LANES - 1) / (TILES * LANES);
        a.first[s + 1] = a.first[s] + (wf_decode_wants(o, s) ? 0 : groups);
    }
    wf_parallel_share(l->threads, a.first[o->sequences] * o->kv_heads,
                      GRAIN / (TILES * LANES * o->keys * (o->d + o->dv) + 1) + 1, run_range, &a);
    WF_SIMD(wf_decode_run)(&a.decode, o);
    return WF_OK;
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_attention)[] = {
    {.op = WF_OP_attention, .name = "simd", .types = WF_TYPES_FLOAT,
     .weights = WF_TYPES_FLOAT | WF_TYPE_BIT(WF_Q8_0), .strided = true, .workspace = attention_workspace,
     .launch = launch_attention},
    {.op = WF_OP_attention_grad, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true, .strided_out = 7,
     .workspace = WF_SIMD(wf_attention_grad_workspace), .launch = WF_SIMD(wf_attention_grad)},
    {0},
};

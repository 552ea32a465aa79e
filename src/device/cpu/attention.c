/* SPDX-License-Identifier: MIT */
/*
 * attention.c - attention over packed sequences and over page pools, and its gradient.
 *
 * Queries (or keys, for dk and dv) are processed in blocks of a few lanes that share a kv head.
 * Each row that the lanes meet is fetched once per block: located in its page, read through
 * strides, converted to f32. A lane's result depends on no other lane, and every sum runs over rows
 * in ascending order. So results depend neither on threads nor on other sequences.
 *
 * q [N, H, D], k [N, Hk, D], v [N, Hk, Dv] or pools [P, page, Hk, ...]; o [N, H, Dv], lse f32[N,
 * H]. A lane is a token and a query head. Scores of a block, [LANES][keys], are kept: softmax needs
 * two passes.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/packed.h"
#include "device/cpu/paged.h"
#include "device/cpu/row.h"

enum {
    LANES = 16,       /* rows that share a fetch */
    GRAIN = 64 * 1024 /* fewest multiplications per thread */
};

typedef struct attention attention;

/* The positions [low, high] that a query sees. */
typedef struct {
    int64_t low, high;
} span;

/* Rows of one sequence, under one kv head. */
typedef struct {
    int64_t n;
    int64_t sequence; /* -1: outside of all sequences */
    int64_t kv_head;
    int64_t row[LANES]; /* index in [N, H, ...] for queries, in [N, Hk, ...] for keys */
    int64_t position[LANES];
    span seen[LANES]; /* positions that each lane sees */
} block;

/* Scratch memory of one thread. */
typedef struct {
    float *lane_d, *sum_d;   /* [LANES][D] */
    float *lane_dv, *sum_dv; /* [LANES][Dv] */
    float *row_d, *row_dv;   /* the current row of the other side: [D], [Dv] */
    float *scores;           /* [LANES][most] */
} scratch;

typedef void work_fn(const attention *o, const block *b, const scratch *s);

struct attention {
    const wf_launch *l;
    const wf_attr_attention *attr;
    float scale, cap;
    const wf_view *q;           /* [N, H, D] */
    const wf_view *k, *v;       /* [N, Hk, D], [N, Hk, Dv]; or pools [P, page, Hk, ...] */
    const wf_view *seq_start;   /* i32[S+1] */
    const int32_t *start;       /* its data */
    const int32_t *positions;   /* [N] */
    const wf_view *table;       /* i32[S, pages]; NULL: packed */
    const int32_t *lengths;     /* [S] */
    int64_t n, kv_heads, group; /* group: query heads that share a kv head */
    int64_t d, dv;
    int64_t most; /* most keys that a query can see: the length of a row of scores */
    /* how blocks are formed and processed */
    int64_t per_row; /* lanes of each of the n rows: group for queries, 1 for keys */
    work_fn *work;
    /* gradient only */
    const wf_view *dout, *out; /* [N, H, Dv] */
    const wf_view *lse;        /* f32[N, H] */
    float *saved;              /* [N * H][2]: lse, do . o */
};

static float dot(const float *x, const float *y, int64_t n)
{
    float s[8] = {0}, rest = 0; /* independent sums for vector units, in a fixed order */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        rest += x[i] * y[i];
    for (int j = 0; j < 4; j++)
        s[j] += s[j + 4];
    return (s[0] + s[2]) + (s[1] + s[3]) + rest; /* pairwise, in a fixed order */
}

/* y += a * x */
static void add_scaled(float *restrict y, float a, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void zero(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 0;
}

/* Load and store the lanes' rows of v as f32, in an array [LANES][length of a row]. */
static void load_lanes(const block *b, const wf_view *v, float *to)
{
    int64_t length = wf_view_last(v);
    for (int64_t i = 0; i < b->n; i++)
        wf_convert_to_f32(v->type, wf_view_at(v, wf_view_row(v, b->row[i])), to + i * length,
                          length);
}

static void store_lanes(const block *b, const wf_view *v, const float *from)
{
    int64_t length = wf_view_last(v);
    for (int64_t i = 0; i < b->n; i++)
        wf_convert_from_f32(v->type, from + i * length, wf_view_at(v, wf_view_row(v, b->row[i])),
                            length);
}

/* ---- Shared by forward and gradient ---- */

static int64_t scratch_floats(const attention *o)
{
    return LANES * (2 * o->d + 2 * o->dv + o->most) + o->d + o->dv;
}

static scratch get_scratch(const attention *o, int thread)
{
    scratch s;
    s.lane_d = wf_row_buffer(o->l, thread, 1, 0, scratch_floats(o));
    s.sum_d = s.lane_d + LANES * o->d;
    s.lane_dv = s.sum_d + LANES * o->d;
    s.sum_dv = s.lane_dv + LANES * o->dv;
    s.row_d = s.sum_dv + LANES * o->dv;
    s.row_dv = s.row_d + o->d;
    s.scores = s.row_dv + o->dv;
    return s;
}

/* Sizes from the shapes of q, k and v. */
static void set_sizes(attention *o, const wf_dims *q, const wf_dims *k, const wf_dims *v)
{
    o->n = q->d[0];
    o->kv_heads = k->d[k->n - 2];
    o->group = o->kv_heads > 0 ? q->d[1] / o->kv_heads : 0;
    o->d = q->d[2];
    o->dv = v->d[v->n - 1];
}

static void set_options(attention *o)
{
    o->attr = o->l->attr;
    o->scale = (float)(o->attr->scale != 0 ? o->attr->scale : 1 / sqrt((double)o->d));
    o->cap = (float)o->attr->softcap;
}

static span seen_from(const attention *o, int64_t position)
{
    return (span){.low = o->attr->window > 0 ? position - o->attr->window + 1 : INT64_MIN,
                  .high = o->attr->causal ? position : INT64_MAX};
}

static bool sees(span seen, int64_t position)
{
    return seen.low <= position && position <= seen.high;
}

static float score(const attention *o, const float *q, const float *k)
{
    float s = o->scale * dot(q, k, o->d);
    return o->cap != 0 ? o->cap * tanhf(s / o->cap) : s;
}

/* The keys of a block's sequence: their count, and the position and address of key j. */
static int64_t key_count(const attention *o, const block *b)
{
    if (b->sequence < 0)
        return 0;
    return o->table ? o->lengths[b->sequence] : o->start[b->sequence + 1] - o->start[b->sequence];
}

static int64_t key_position(const attention *o, const block *b, int64_t j)
{
    return o->table ? j : o->positions[o->start[b->sequence] + j];
}

static int64_t key_row(const attention *o, const block *b, int64_t j)
{
    /* `page` is used with a table only. */
    int64_t token = o->start[b->sequence] + j, page = o->k->dim[1];
    if (o->table) {
        const int32_t *pages = wf_view_at(o->table, wf_view_row(o->table, b->sequence));
        token = pages[j / page] * page + j % page;
    }
    return token * o->kv_heads + b->kv_head;
}

/* Forms a block of the lanes from `begin` on that are before `end` and in one sequence. Lanes are
 * numbered through all rows. */
static block take_lanes(const attention *o, int64_t kv_head, int64_t begin, int64_t end)
{
    int64_t first = begin / o->per_row;
    block b = {.sequence = wf_packed_find(o->seq_start, first), .kv_head = kv_head};
    /* Outside of all sequences: one row at a time, which sees no key. */
    int64_t last = b.sequence < 0 ? first + 1 : o->start[b.sequence + 1];
    for (int64_t lane = begin; lane < end && lane < last * o->per_row; lane++) {
        int64_t i = lane / o->per_row;
        b.row[b.n] = (i * o->kv_heads + kv_head) * o->per_row + lane % o->per_row;
        b.position[b.n] = o->positions[i];
        b.seen[b.n++] = seen_from(o, o->positions[i]);
    }
    return b;
}

static void work_on_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention *o = arg;
    scratch s = get_scratch(o, thread);
    int64_t lanes = o->n * o->per_row, blocks = (lanes + LANES - 1) / LANES;
    for (int64_t item = begin; item < end; item++) {
        /* Under a causal mask late queries cost most. Blocks are taken from both ends alternately,
         * which balances the threads. */
        int64_t t = item % blocks, lane = (t % 2 ? blocks - 1 - t / 2 : t / 2) * LANES;
        int64_t stop = lane + LANES < lanes ? lane + LANES : lanes;
        while (lane < stop) {
            block b = take_lanes(o, item / blocks, lane, stop);
            o->work(o, &b, &s);
            lane += b.n;
        }
    }
}

/* Runs `work` on all lanes; each lane meets up to `others` rows. */
static void for_blocks(attention *o, int64_t per_row, int64_t others, work_fn *work)
{
    o->per_row = per_row;
    o->work = work;
    int64_t items = (o->n * per_row + LANES - 1) / LANES * o->kv_heads;
    int64_t cost = LANES * others * (o->d + o->dv);
    wf_parallel_for(o->l->threads, items, GRAIN / (cost + 1) + 1, work_on_blocks, o);
}

/* ---- Forward ---- */

/* scores[lane][j] for all keys j; -Inf where the lane's query does not see the key. */
static void all_scores(const attention *o, const block *b, const scratch *s)
{
    int64_t keys = key_count(o, b);
    for (int64_t j = 0; j < keys; j++) {
        const float *key = NULL;
        int64_t position = key_position(o, b, j);
        for (int64_t i = 0; i < b->n; i++) {
            float *to = s->scores + i * o->most + j;
            *to = -INFINITY;
            if (!sees(b->seen[i], position))
                continue;
            if (!key) /* fetched by the first lane that sees it */
                key = wf_row_read(o->k, key_row(o, b, j), s->row_d);
            *to = score(o, s->lane_d + i * o->d, key);
        }
    }
}

/* Turns n scores into probabilities, 0 for -Inf, and returns their log-sum-exp. */
static double softmax(float *scores, int64_t n)
{
    float most = -INFINITY;
    for (int64_t j = 0; j < n; j++)
        most = scores[j] > most ? scores[j] : most;
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        scores[j] = scores[j] == -INFINITY ? 0 : expf(scores[j] - most);
        sum += scores[j];
    }
    if (sum == 0)
        return -INFINITY;
    float inverse = (float)(1 / sum); /* multiply by the inverse: one division per row */
    for (int64_t j = 0; j < n; j++)
        scores[j] *= inverse;
    return most + log(sum);
}

/* sum_dv[lane] = sum over keys of probability times value. */
static void add_values(const attention *o, const block *b, const scratch *s)
{
    int64_t keys = key_count(o, b);
    zero(s->sum_dv, b->n * o->dv);
    for (int64_t j = 0; j < keys; j++) {
        const float *value = NULL;
        for (int64_t i = 0; i < b->n; i++) {
            float p = s->scores[i * o->most + j];
            if (p == 0)
                continue; /* an invisible value must not count, even if it is Inf or NaN */
            if (!value)
                value = wf_row_read(o->v, key_row(o, b, j), s->row_dv);
            add_scaled(s->sum_dv + i * o->dv, p, value, o->dv);
        }
    }
}

static void attend(const attention *o, const block *b, const scratch *s)
{
    const wf_view *out = &o->l->out[0], *lse = &o->l->out[1];
    int64_t keys = key_count(o, b);
    load_lanes(b, o->q, s->lane_d);
    all_scores(o, b, s);
    for (int64_t i = 0; i < b->n; i++) {
        double x = softmax(s->scores + i * o->most, keys);
        if (lse->data)
            ((float *)lse->data)[b->row[i]] = (float)x;
    }
    if (out->data) {
        add_values(o, b, s);
        store_lanes(b, out, s->sum_dv);
    }
}

static void attention_sizes(attention *o, const wf_node *n)
{
    const wf_dims *k = &n->in[1]->shape;
    set_sizes(o, &n->in[0]->shape, k, &n->in[2]->shape);
    o->most = n->nin > 5 ? n->in[5]->shape.d[1] * k->d[1] : o->n;
}

static size_t attention_workspace(const wf_device *device, const wf_node *n)
{
    attention o = {0};
    attention_sizes(&o, n);
    return wf_row_workspace(wf_device_threads(device), 1, scratch_floats(&o));
}

/* attention: (q, k, v, seq_start, positions, table?, lengths?) -> o, lse */
static wf_status launch_attention(const wf_launch *l)
{
    const wf_view *in = l->in;
    attention o = {.l = l, .q = &in[0], .k = &in[1], .v = &in[2]};
    o.seq_start = &in[3];
    o.start = in[3].data;
    o.positions = in[4].data;
    o.table = l->nin > 5 ? &in[5] : NULL;
    o.lengths = l->nin > 5 ? in[6].data : NULL;
    attention_sizes(&o, l->node);
    set_options(&o);
    WF_TRY(wf_attention_check(l));
    if (o.group > 0)
        for_blocks(&o, o.group, o.most, attend);
    return WF_OK;
}

/* ---- Gradient ----
 *
 * p = exp(s - lse), delta = do . o, ds = p (do . v - delta), then the derivatives of cap and scale.
 * Two passes recompute p: one sums dq over keys, with queries as lanes; the other sums dk and dv
 * over queries, with keys as lanes. */

/* Fills o->saved for rows [begin, end) of [N * H, Dv]. */
static void save_queries(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention *o = arg;
    int64_t heads = o->kv_heads * o->group;
    scratch s = get_scratch(o, thread);
    for (int64_t r = begin; r < end; r++) {
        const float *lse = wf_view_at(o->lse, wf_view_row(o->lse, r / heads));
        const float *dout = wf_row_read(o->dout, r, s.lane_dv);
        const float *out = wf_row_read(o->out, r, s.row_dv);
        double delta = 0;
        for (int64_t i = 0; i < o->dv; i++)
            delta += (double)dout[i] * out[i];
        o->saved[2 * r] = lse[r % heads];
        o->saved[2 * r + 1] = (float)delta;
    }
}

/* Computes *p of one query and one key, and returns the gradient of q . k. */
static float pair(const attention *o, const float *q, const float *k, const float *dout,
                  const float *v, const float *saved, float *p)
{
    float s = score(o, q, k);
    *p = expf(s - saved[0]);
    float ds = *p * (dot(dout, v, o->dv) - saved[1]);
    if (o->cap != 0)
        ds *= 1 - s / o->cap * (s / o->cap);
    return ds * o->scale;
}

static void sum_dq(const attention *o, const block *b, const scratch *s)
{
    int64_t keys = key_count(o, b);
    load_lanes(b, o->q, s->lane_d);
    load_lanes(b, o->dout, s->lane_dv);
    zero(s->sum_d, b->n * o->d);
    for (int64_t j = 0; j < keys; j++) {
        const float *k = NULL, *v = NULL;
        int64_t position = key_position(o, b, j);
        for (int64_t i = 0; i < b->n; i++) {
            if (!sees(b->seen[i], position))
                continue;
            if (!k) {
                k = wf_row_read(o->k, key_row(o, b, j), s->row_d);
                v = wf_row_read(o->v, key_row(o, b, j), s->row_dv);
            }
            const float *saved = o->saved + 2 * b->row[i];
            float p, ds = pair(o, s->lane_d + i * o->d, k, s->lane_dv + i * o->dv, v, saved, &p);
            add_scaled(s->sum_d + i * o->d, ds, k, o->d);
        }
    }
    store_lanes(b, &o->l->out[0], s->sum_d);
}

/* Adds the contribution of one row of q and do to all keys of the block. */
static void add_query(const attention *o, const block *b, span seen, int64_t row, const scratch *s)
{
    const float *q = NULL, *dout = NULL, *saved = o->saved + 2 * row;
    for (int64_t i = 0; i < b->n; i++) {
        if (!sees(seen, b->position[i]))
            continue;
        if (!q) {
            q = wf_row_read(o->q, row, s->row_d);
            dout = wf_row_read(o->dout, row, s->row_dv);
        }
        float p, ds = pair(o, q, s->lane_d + i * o->d, dout, s->lane_dv + i * o->dv, saved, &p);
        add_scaled(s->sum_d + i * o->d, ds, q, o->d);
        add_scaled(s->sum_dv + i * o->dv, p, dout, o->dv);
    }
}

static void sum_dk_dv(const attention *o, const block *b, const scratch *s)
{
    const wf_view *dk = &o->l->out[1], *dv = &o->l->out[2];
    load_lanes(b, o->k, s->lane_d);
    load_lanes(b, o->v, s->lane_dv);
    zero(s->sum_d, b->n * o->d);
    zero(s->sum_dv, b->n * o->dv);
    int64_t queries = b->sequence < 0 ? 0 : o->start[b->sequence + 1] - o->start[b->sequence];
    for (int64_t j = 0; j < queries; j++) {
        int64_t i = o->start[b->sequence] + j;
        int64_t first = (i * o->kv_heads + b->kv_head) * o->group;
        for (int64_t h = 0; h < o->group; h++)
            add_query(o, b, seen_from(o, o->positions[i]), first + h, s);
    }
    if (dk->data)
        store_lanes(b, dk, s->sum_d);
    if (dv->data)
        store_lanes(b, dv, s->sum_dv);
}

static void attention_grad_sizes(attention *o, const wf_node *n)
{
    set_sizes(o, &n->in[1]->shape, &n->in[2]->shape, &n->in[3]->shape);
}

/* Scratch memory of the threads, then o->saved. */
static size_t attention_grad_workspace(const wf_device *device, const wf_node *n)
{
    attention o = {0};
    attention_grad_sizes(&o, n);
    return wf_row_workspace(wf_device_threads(device), 1, scratch_floats(&o)) +
           wf_row_workspace(1, 2, o.n * o.kv_heads * o.group);
}

/* attention_grad: (do, q, k, v, seq_start, positions, o, lse) -> dq, dk, dv */
static wf_status launch_attention_grad(const wf_launch *l)
{
    const wf_view *in = l->in;
    attention o = {.l = l, .dout = &in[0], .q = &in[1], .k = &in[2], .v = &in[3]};
    o.seq_start = &in[4];
    o.start = in[4].data;
    o.positions = in[5].data;
    o.out = &in[6];
    o.lse = &in[7];
    attention_grad_sizes(&o, l->node);
    set_options(&o);
    WF_TRY(wf_packed_check(l, o.seq_start, o.n));
    if (o.group == 0)
        return WF_OK;

    size_t before = wf_row_workspace(l->threads, 1, scratch_floats(&o));
    o.saved = (float *)(void *)((char *)l->workspace + before);
    wf_parallel_for(l->threads, o.n * o.kv_heads * o.group, GRAIN / (o.dv + 1) + 1, save_queries,
                    &o);
    if (l->out[0].data)
        for_blocks(&o, o.group, o.n, sum_dq);
    if (l->out[1].data || l->out[2].data)
        for_blocks(&o, 1, o.n * o.group, sum_dk_dv);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, ...)                                                                            \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .workspace = name_##_workspace, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel wf_cpu_attention[] = {
    ROW(attention),
    ROW(attention_grad, .strided_out = 7),
    {0},
};

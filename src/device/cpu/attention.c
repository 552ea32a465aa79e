/* SPDX-License-Identifier: MIT */
/*
 * attention.c - attention over packed sequences and over page pools, and its gradient.
 *
 * Work is cut into blocks: a few rows of one kv head, each row a lane (with queries, each row and
 * query head that shares the kv head). The rows that the lanes meet are fetched once for all of
 * them: found in their page, through strides, out of another type. What a lane computes depends on
 * no other lane, and sums run over rows in ascending order, so threads do not change the results.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/packed.h"
#include "device/cpu/row.h"

enum {
    LANES = 16,       /* of a block, unless more heads share a kv head */
    GRAIN = 64 * 1024 /* multiplications worth waking a thread for */
};

typedef struct attention attention;

/* Neighbouring rows of one sequence, under one kv head. */
typedef struct {
    int64_t sequence; /* -1: in no sequence */
    int64_t begin, end;
    int64_t kv_head;
} run;

/* Scratch memory of one thread. */
typedef struct {
    float *lane_d, *sum_d;   /* [lanes][D] */
    float *lane_dv, *sum_dv; /* [lanes][Dv] */
    float *row_d, *row_dv;   /* what the lanes meet: [D], [Dv] */
    float *scores;           /* [lanes][most] */
} scratch;

typedef void work_fn(const attention *o, const run *r, const scratch *s);

struct attention {
    const wf_launch *l;
    const wf_attr_attention *attr;
    float scale, cap;
    const wf_view *q;               /* [N, H, D] */
    const wf_view *k, *v;           /* [N, Hk, D], [N, Hk, Dv]; or pools [P, page, Hk, ...] */
    const wf_view *seq_start;       /* i32[S+1] */
    const int32_t *positions;       /* [N] */
    const wf_view *table, *lengths; /* i32[S, pages], i32[S]; NULL: packed */
    int64_t n, kv_heads, group;     /* group: query heads that share a kv head */
    int64_t d, dv;
    int64_t most;  /* keys that a query could see: length of a row of scores */
    int64_t lanes; /* that the scratch memory has room for */
    int64_t block_rows;
    work_fn *work;
    /* the gradient alone has these */
    const wf_view *dout, *out; /* [N, H, Dv] */
    const wf_view *lse;        /* f32[N, H] */
    struct {
        float lse, delta; /* delta: do . o */
    } * query;            /* [N * H] */
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static float dot(const float *x, const float *y, int64_t n)
{
    float s[8] = {0}, rest = 0; /* side by side for vector units, in an order that is fixed */
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        rest += x[i] * y[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7])) + rest;
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

static void load_row(const wf_view *v, int64_t r, float *to)
{
    wf_convert_to_f32(v->type, wf_view_at(v, wf_view_row(v, r)), to, wf_view_last(v));
}

static void store_row(const wf_view *v, int64_t r, const float *from)
{
    wf_convert_from_f32(v->type, from, wf_view_at(v, wf_view_row(v, r)), wf_view_last(v));
}

/* ---- What both directions share ---- */

static int64_t scratch_floats(const attention *o)
{
    return o->lanes * (2 * (o->d + o->dv) + o->most) + o->d + o->dv;
}

static scratch get_scratch(const attention *o, int thread)
{
    scratch s;
    s.lane_d = wf_row_buffer(o->l, thread, 1, 0, scratch_floats(o));
    s.sum_d = s.lane_d + o->lanes * o->d;
    s.lane_dv = s.sum_d + o->lanes * o->d;
    s.sum_dv = s.lane_dv + o->lanes * o->dv;
    s.row_d = s.sum_dv + o->lanes * o->dv;
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
    o->lanes = o->group > LANES ? o->group : LANES;
}

static void set_options(attention *o)
{
    o->attr = o->l->attr;
    o->scale = (float)(o->attr->scale != 0 ? o->attr->scale : 1 / sqrt((double)o->d));
    o->cap = (float)o->attr->softcap;
}

static bool sees(const attention *o, int64_t query_position, int64_t key_position)
{
    return (!o->attr->causal || key_position <= query_position) &&
           (o->attr->window == 0 || query_position - key_position < o->attr->window);
}

static float score(const attention *o, const float *q, const float *k)
{
    float s = o->scale * dot(q, k, o->d);
    return o->cap != 0 ? o->cap * tanhf(s / o->cap) : s;
}

/* The longest run that begins with row i and ends at `end` or before. */
static run next_run(const attention *o, int64_t kv_head, int64_t i, int64_t end)
{
    const int32_t *start = o->seq_start->data;
    run r = {.begin = i, .end = i + 1, .kv_head = kv_head};
    r.sequence = wf_packed_find(o->seq_start, i);
    if (r.sequence >= 0)
        r.end = start[r.sequence + 1] < end ? start[r.sequence + 1] : end;
    return r;
}

/* The row of [N, H, ...] for lane number `lane` of a run of queries. */
static int64_t query_row(const attention *o, const run *r, int64_t lane)
{
    int64_t i = r->begin + lane / o->group;
    return (i * o->kv_heads + r->kv_head) * o->group + lane % o->group;
}

/* The keys of a run's sequence: how many, and where key j stands in the sequence and in memory. */
static int64_t key_count(const attention *o, const run *r)
{
    const int32_t *start = o->seq_start->data;
    if (r->sequence < 0)
        return 0;
    return o->lengths ? ((const int32_t *)o->lengths->data)[r->sequence]
                      : start[r->sequence + 1] - start[r->sequence];
}

static int64_t key_position(const attention *o, const run *r, int64_t j)
{
    const int32_t *start = o->seq_start->data;
    return o->table ? j : o->positions[start[r->sequence] + j];
}

static int64_t key_row(const attention *o, const run *r, int64_t j)
{
    int64_t token = ((const int32_t *)o->seq_start->data)[r->sequence] + j;
    if (o->table) {
        const int32_t *pages = wf_view_at(o->table, wf_view_row(o->table, r->sequence));
        token = pages[j / o->k->dim[1]] * o->k->dim[1] + j % o->k->dim[1];
    }
    return token * o->kv_heads + r->kv_head;
}

/* Query rows in a block. */
static int64_t query_rows(const attention *o)
{
    return o->group < LANES ? LANES / o->group : 1;
}

static void some_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention *o = arg;
    scratch s = get_scratch(o, thread);
    int64_t blocks = divide_up(o->n, o->block_rows);
    for (int64_t item = begin; item < end; item++) {
        /* Under a causal mask blocks cost the more the later they stand. Taking them from both ends
         * in turn makes neighbouring items cost the same together. */
        int64_t t = item % blocks, block = t % 2 ? blocks - 1 - t / 2 : t / 2;
        int64_t row = block * o->block_rows, stop = row + o->block_rows;
        while (row < stop && row < o->n) {
            run r = next_run(o, item / blocks, row, stop);
            o->work(o, &r, &s);
            row = r.end;
        }
    }
}

/* Has `work` done on all rows of all kv heads. */
static void for_blocks(attention *o, int64_t block_rows, int64_t others, work_fn *work)
{
    o->block_rows = block_rows;
    o->work = work;
    int64_t cost = LANES * others * (o->d + o->dv) + 1;
    wf_parallel_for(o->l->threads, o->kv_heads * divide_up(o->n, block_rows), GRAIN / cost + 1,
                    some_blocks, o);
}

/* ---- Forward ---- */

/* scores[lane][j] for all keys j; -Inf where the lane's query does not see the key. */
static void all_scores(const attention *o, const run *r, const scratch *s)
{
    int64_t lanes = (r->end - r->begin) * o->group, keys = key_count(o, r);
    for (int64_t j = 0; j < keys; j++) {
        const float *key = NULL;
        int64_t position = key_position(o, r, j);
        for (int64_t lane = 0; lane < lanes; lane++) {
            float *to = s->scores + lane * o->most + j;
            *to = -INFINITY;
            if (!sees(o, o->positions[r->begin + lane / o->group], position))
                continue;
            if (!key)
                key = wf_row_read(o->k, key_row(o, r, j), s->row_d);
            *to = score(o, s->lane_d + lane * o->d, key);
        }
    }
}

/* Turns n scores into probabilities, zeros where there is nothing to see; gives log-sum-exp. */
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
    float inverse = (float)(1 / sum);
    for (int64_t j = 0; j < n; j++)
        scores[j] *= inverse;
    return most + log(sum);
}

/* sum_dv[lane] = sum over keys of probability times value. */
static void add_values(const attention *o, const run *r, const scratch *s)
{
    int64_t lanes = (r->end - r->begin) * o->group, keys = key_count(o, r);
    zero(s->sum_dv, lanes * o->dv);
    for (int64_t j = 0; j < keys; j++) {
        const float *value = NULL;
        for (int64_t lane = 0; lane < lanes; lane++) {
            float p = s->scores[lane * o->most + j];
            if (p == 0)
                continue; /* what is not seen must not count, be it Inf or NaN */
            if (!value)
                value = wf_row_read(o->v, key_row(o, r, j), s->row_dv);
            add_scaled(s->sum_dv + lane * o->dv, p, value, o->dv);
        }
    }
}

static void attend(const attention *o, const run *r, const scratch *s)
{
    const wf_view *out = &o->l->out[0], *save = &o->l->out[1];
    int64_t lanes = (r->end - r->begin) * o->group, keys = key_count(o, r);
    for (int64_t lane = 0; lane < lanes; lane++)
        load_row(o->q, query_row(o, r, lane), s->lane_d + lane * o->d);
    all_scores(o, r, s);
    for (int64_t lane = 0; lane < lanes; lane++) {
        double lse = softmax(s->scores + lane * o->most, keys);
        if (save->data)
            ((float *)save->data)[query_row(o, r, lane)] = (float)lse;
    }
    if (!out->data)
        return;
    add_values(o, r, s);
    for (int64_t lane = 0; lane < lanes; lane++)
        store_row(out, query_row(o, r, lane), s->sum_dv + lane * o->dv);
}

/* Fails unless every key that some query sees is on a page of the pool. */
static wf_status check_sequence_pages(const attention *o, int64_t s)
{
    const int32_t *start = o->seq_start->data;
    const int32_t *pages = wf_view_at(o->table, wf_view_row(o->table, s));
    int64_t page = o->k->dim[1], length = ((const int32_t *)o->lengths->data)[s];
    if (length < 0 || length > o->most)
        return wf_fail(o->l->ctx, WF_ERR_DEVICE,
                       "attention: lengths[%lld] is %lld, but the table has room for %lld keys",
                       (long long)s, (long long)length, (long long)o->most);
    int64_t first = 0, last = -1; /* pages found good for an earlier query */
    for (int64_t i = start[s]; i < start[s + 1]; i++) {
        int64_t low = 0, high = length - 1, position = o->positions[i]; /* keys it sees */
        if (o->attr->window > 0 && position - o->attr->window >= 0)
            low = position - o->attr->window + 1;
        if (o->attr->causal && position < high)
            high = position;
        if (low > high || (low / page >= first && high / page <= last))
            continue;
        first = low / page;
        last = high / page;
        for (int64_t p = first; p <= last; p++)
            if (pages[p] < 0 || pages[p] >= o->k->dim[0])
                return wf_fail(
                    o->l->ctx, WF_ERR_DEVICE,
                    "attention: page %d in table[%lld][%lld] is not one of the pool's %lld",
                    pages[p], (long long)s, (long long)p, (long long)o->k->dim[0]);
    }
    return WF_OK;
}

static void attention_sizes(attention *o, const wf_node *n)
{
    set_sizes(o, &n->in[0]->shape, &n->in[1]->shape, &n->in[2]->shape);
    o->most = n->nin > 5 ? n->in[5]->shape.d[1] * n->in[1]->shape.d[1] : o->n;
}

static size_t attention_workspace(const wf_node *n, int threads)
{
    attention o = {0};
    attention_sizes(&o, n);
    return wf_row_workspace(threads, 1, scratch_floats(&o));
}

/* attention: (q, k, v, seq_start, positions, table?, lengths?) -> o, lse */
static wf_status launch_attention(const wf_launch *l)
{
    const wf_view *in = l->in;
    attention o = {.l = l, .q = &in[0], .k = &in[1], .v = &in[2], .seq_start = &in[3]};
    o.positions = in[4].data;
    if (l->nin > 5) {
        o.table = &in[5];
        o.lengths = &in[6];
    }
    attention_sizes(&o, l->node);
    set_options(&o);
    WF_TRY(wf_packed_check(l, o.seq_start, o.n));
    for (int64_t s = 0; o.table && s + 1 < o.seq_start->dim[0]; s++)
        WF_TRY(check_sequence_pages(&o, s));
    if (o.group > 0)
        for_blocks(&o, query_rows(&o), o.most, attend);
    return WF_OK;
}

/* ---- Gradient ----
 *
 * With p = exp(s - lse) and delta = do . o:  ds = p (do . v - delta), which passes through the cap
 * and the scale to q . k. Two passes, in which p is computed anew: one sums dq over keys with
 * queries as lanes, the other dk and dv over queries with keys as lanes. */

/* One query and one key: *p, and the gradient of q . k. */
static float pair(const attention *o, const float *q, const float *k, const float *dout,
                  const float *v, int64_t query, float *p)
{
    float s = score(o, q, k);
    *p = expf(s - o->query[query].lse);
    float ds = *p * (dot(dout, v, o->dv) - o->query[query].delta);
    if (o->cap != 0)
        ds *= 1 - s / o->cap * (s / o->cap);
    return ds * o->scale;
}

/* Gathers what is to be known of each query: rows [begin, end) of [N, H, Dv]. */
static void prepare_queries(void *arg, int64_t begin, int64_t end, int thread)
{
    const attention *o = arg;
    int64_t heads = o->kv_heads * o->group;
    scratch s = get_scratch(o, thread);
    for (int64_t r = begin; r < end; r++) {
        const float *dout = wf_row_read(o->dout, r, s.lane_dv);
        const float *out = wf_row_read(o->out, r, s.row_dv);
        const float *lse = wf_view_at(o->lse, wf_view_row(o->lse, r / heads));
        double sum = 0;
        for (int64_t i = 0; i < o->dv; i++)
            sum += (double)dout[i] * out[i];
        o->query[r].delta = (float)sum;
        o->query[r].lse = lse[r % heads];
    }
}

static void dq_run(const attention *o, const run *r, const scratch *s)
{
    int64_t lanes = (r->end - r->begin) * o->group, keys = key_count(o, r);
    zero(s->sum_d, lanes * o->d);
    for (int64_t lane = 0; lane < lanes; lane++) {
        load_row(o->q, query_row(o, r, lane), s->lane_d + lane * o->d);
        load_row(o->dout, query_row(o, r, lane), s->lane_dv + lane * o->dv);
    }
    for (int64_t j = 0; j < keys; j++) {
        const float *key = NULL, *value = NULL;
        int64_t position = key_position(o, r, j);
        for (int64_t lane = 0; lane < lanes; lane++) {
            if (!sees(o, o->positions[r->begin + lane / o->group], position))
                continue;
            if (!key) {
                key = wf_row_read(o->k, key_row(o, r, j), s->row_d);
                value = wf_row_read(o->v, key_row(o, r, j), s->row_dv);
            }
            float p, ds = pair(o, s->lane_d + lane * o->d, key, s->lane_dv + lane * o->dv, value,
                               query_row(o, r, lane), &p);
            add_scaled(s->sum_d + lane * o->d, ds, key, o->d);
        }
    }
    for (int64_t lane = 0; lane < lanes; lane++)
        store_row(&o->l->out[0], query_row(o, r, lane), s->sum_d + lane * o->d);
}

/* One query head meets all keys of the run. */
static void dkv_query(const attention *o, const run *r, int64_t i, int64_t head, const scratch *s)
{
    int64_t query = (i * o->kv_heads + r->kv_head) * o->group + head;
    const float *q = NULL, *dout = NULL;
    for (int64_t lane = 0; lane < r->end - r->begin; lane++) {
        if (!sees(o, o->positions[i], o->positions[r->begin + lane]))
            continue;
        if (!q) {
            q = wf_row_read(o->q, query, s->row_d);
            dout = wf_row_read(o->dout, query, s->row_dv);
        }
        float p,
            ds = pair(o, q, s->lane_d + lane * o->d, dout, s->lane_dv + lane * o->dv, query, &p);
        add_scaled(s->sum_d + lane * o->d, ds, q, o->d);
        add_scaled(s->sum_dv + lane * o->dv, p, dout, o->dv);
    }
}

static void dkv_run(const attention *o, const run *r, const scratch *s)
{
    const wf_view *dk = &o->l->out[1], *dv = &o->l->out[2];
    const int32_t *start = o->seq_start->data;
    int64_t lanes = r->end - r->begin, first = r->begin * o->kv_heads + r->kv_head;
    zero(s->sum_d, lanes * o->d);
    zero(s->sum_dv, lanes * o->dv);
    for (int64_t lane = 0; lane < lanes; lane++) {
        load_row(o->k, first + lane * o->kv_heads, s->lane_d + lane * o->d);
        load_row(o->v, first + lane * o->kv_heads, s->lane_dv + lane * o->dv);
    }
    if (r->sequence >= 0)
        for (int64_t i = start[r->sequence]; i < start[r->sequence + 1]; i++)
            for (int64_t head = 0; head < o->group; head++)
                dkv_query(o, r, i, head, s);
    for (int64_t lane = 0; lane < lanes; lane++) {
        if (dk->data)
            store_row(dk, first + lane * o->kv_heads, s->sum_d + lane * o->d);
        if (dv->data)
            store_row(dv, first + lane * o->kv_heads, s->sum_dv + lane * o->dv);
    }
}

static void attention_grad_sizes(attention *o, const wf_node *n)
{
    set_sizes(o, &n->in[1]->shape, &n->in[2]->shape, &n->in[3]->shape);
}

/* Scratch memory of the threads, then o->query. */
static size_t attention_grad_workspace(const wf_node *n, int threads)
{
    attention o = {0};
    attention_grad_sizes(&o, n);
    return wf_row_workspace(threads, 1, scratch_floats(&o)) +
           (size_t)(o.n * o.kv_heads * o.group) * sizeof *o.query;
}

/* attention_grad: (do, q, k, v, seq_start, positions, o, lse) -> dq, dk, dv */
static wf_status launch_attention_grad(const wf_launch *l)
{
    const wf_view *in = l->in;
    attention o = {.l = l, .dout = &in[0], .q = &in[1], .k = &in[2], .v = &in[3]};
    o.seq_start = &in[4];
    o.positions = in[5].data;
    o.out = &in[6];
    o.lse = &in[7];
    attention_grad_sizes(&o, l->node);
    set_options(&o);
    WF_TRY(wf_packed_check(l, o.seq_start, o.n));
    if (o.group == 0)
        return WF_OK;

    o.query = (void *)((char *)l->workspace + wf_row_workspace(l->threads, 1, scratch_floats(&o)));
    wf_parallel_for(l->threads, o.n * o.kv_heads * o.group, GRAIN / (o.dv + 1) + 1, prepare_queries,
                    &o);
    if (l->out[0].data)
        for_blocks(&o, query_rows(&o), o.n, dq_run);
    if (l->out[1].data || l->out[2].data)
        for_blocks(&o, LANES, o.n, dkv_run);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_)                                                                                 \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .workspace = name_##_workspace, .launch = launch_##name_}
const wf_kernel wf_cpu_attention[] = {
    ROW(attention),
    ROW(attention_grad),
    {0},
};

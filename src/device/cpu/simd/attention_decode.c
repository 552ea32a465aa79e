/* SPDX-License-Identifier: MIT */
/*
 * attention_decode.c - decode attention, one chunk of keys at a time.
 *
 * Decode has few queries and many keys, so threads share the keys: each item is a chunk of CHUNK
 * keys of one sequence and kv head. A chunk yields, per query head, its maximum, its sum of
 * exponentials and its weighted values; finish combines the chunks in ascending order. Chunks
 * depend on the key's index only, so the bits do not depend on threads or on other sequences. k and
 * v are read once, in their own type.
 */
#include "device/cpu/simd/attention_decode.h"

#include "base/thread.h"

enum {
    HEADS = 4,              /* heads that share each loaded vector of a row */
    VALUES = WF_VREGS / 8,  /* vectors of values summed at once, per head */
    STRIDE = CHUNK + WF_VL, /* floats between the scores of two heads */
    GRAIN = 64 * 1024       /* fewest pool elements per thread */
};

/* Per thread. */
typedef struct {
    float *q;      /* [group rounded up to HEADS][d_wide], padded with zeros */
    float *scores; /* [likewise][STRIDE] */
    float *sum;    /* [likewise][dv_wide] */
} scratch;

/* Arguments of the workers. */
typedef struct {
    const wf_attention_problem *problem;
    const wf_decode *decode;
} work;

static void lay_out(scratch *s, wf_carver *c, const wf_attention_problem *o)
{
    int64_t heads = round_up(o->group, HEADS);
    s->q = carve_floats(c, heads * o->d_wide);
    s->scores = carve_floats(c, heads * STRIDE);
    s->sum = carve_floats(c, heads * o->dv_wide);
}

size_t WF_SIMD(wf_decode_scratch)(const wf_attention_problem *o)
{
    wf_carver c = {0};
    scratch s;
    lay_out(&s, &c, o);
    return c.used;
}

/* Floats per head of a partial result: maximum, sum, and values [dv_wide]. */
static int64_t partial_size(const wf_attention_problem *o)
{
    return 2 + o->dv_wide;
}

void WF_SIMD(wf_decode_lay_out)(wf_decode *a, wf_carver *c, const wf_attention_problem *o)
{
    int64_t tokens = o->sequences * wf_decode_most(o), heads = o->kv_heads * o->group;
    a->chunks = (o->keys + CHUNK - 1) / CHUNK;
    a->first = carve(c, (o->sequences + 1) * (int64_t)sizeof *a->first);
    a->queries = carve(c, (o->sequences + 1) * (int64_t)sizeof *a->queries);
    /* At most n tokens in all, even if every sequence had the most. */
    tokens = !o->paged ? 0 : tokens < o->n ? tokens : o->n;
    a->partial = carve_floats(c, tokens * a->chunks * heads * partial_size(o));
}

/* ---- Scores ---- */

/* Dot products of `heads` rows of q with n keys. A block of (head, key) pairs keeps one vector of
 * partial sums each and reduces them together at its end. `rows` is padded to a whole vector of
 * keys. */
static inline __attribute__((always_inline)) void find_dots(wf_type type, int64_t size, int heads,
                                                            const float *q, int64_t d, int64_t wide,
                                                            const char *const *k, int64_t n,
                                                            float *scores)
{
    int keys = WF_VL / heads; /* a block has WF_VL sums: heads times keys */
    for (int64_t j = 0; j < n; j += keys) {
        vf sum[WF_VL];
        for (int i = 0; i < WF_VL; i++)
            sum[i] = vf_zero();
        for (int64_t c = 0; c < d; c += WF_VL)
            for (int i = 0; i < keys; i++) {
                vf x = c + WF_VL <= d ? vf_load_as(type, k[j + i] + c * size)
                                      : vf_load_as_n(type, k[j + i] + c * size, (int)(d - c));
                for (int h = 0; h < heads; h++)
                    sum[h * keys + i] = vf_fma(x, vf_load(q + h * wide + c), sum[h * keys + i]);
            }
        float all[WF_VL]; /* one transposing reduction for all sums */
        vf_store(all, vf_sums(sum));
        for (int h = 0; h < heads; h++)
            memcpy(scores + h * STRIDE + j, all + h * keys, (size_t)keys * sizeof *all);
    }
}

/* Turns n dot products into e^(score - maximum); returns the maximum and the sum. */
static void softmax(const wf_attention_problem *o, float *p, int64_t n, float *most, float *total)
{
    vf high = vf_set(-INFINITY), sum = vf_zero();
    for (int64_t j = 0; j < n; j += WF_VL) {
        vf s = score_of(o, vf_load(p + j));
        s = n - j < WF_VL ? vf_select(vm_first((int)(n - j)), s, vf_set(-INFINITY)) : s;
        vf_store(p + j, s);
        high = vf_max(s, high);
    }
    *most = vf_most(high);
    vf by = vf_set(*most == -INFINITY ? 0 : *most); /* all hidden: e^(-Inf) is 0 */
    for (int64_t j = 0; j < n; j += WF_VL) {
        vf e = vf_exp(vf_sub(vf_load(p + j), by));
        vf_store(p + j, e);
        sum = vf_add(sum, e);
    }
    *total = vf_sum(sum);
}

/* ---- Values ---- */

/* sum[h][] = sum over keys of p[h][key] v[key][], for nv vectors; the last has `last` elements. */
static inline __attribute__((always_inline)) void add_values(wf_type type, int heads, int nv,
                                                             int last, const float *p,
                                                             const char *const *v, int64_t offset,
                                                             int64_t n, float *sum, int64_t wide)
{
    int64_t step = WF_VL * (type == WF_F32 ? 4 : 2); /* bytes per vector */
    vf to[HEADS][VALUES];
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < nv; i++)
            to[h][i] = vf_zero();
    for (int64_t j = 0; j < n; j++) {
        const char *row = v[j] + offset;
        for (int i = 0; i < nv; i++) {
            vf x = last < WF_VL ? vf_load_as_n(type, row + i * step, last)
                                : vf_load_as(type, row + i * step);
            for (int h = 0; h < heads; h++)
                to[h][i] = vf_fma(vf_set(p[h * STRIDE + j]), x, to[h][i]);
        }
    }
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < nv; i++)
            vf_store(sum + h * wide + i * WF_VL, to[h][i]);
}

static inline __attribute__((always_inline)) void sum_values(wf_type type, int64_t size, int heads,
                                                             const float *p, const char *const *v,
                                                             int64_t dv, int64_t n, float *sum,
                                                             int64_t wide)
{
    int64_t c = 0;
    for (; c + VALUES * WF_VL <= dv; c += VALUES * WF_VL)
        add_values(type, heads, VALUES, WF_VL, p, v, c * size, n, sum + c, wide);
    for (; c + WF_VL <= dv; c += WF_VL)
        add_values(type, heads, 1, WF_VL, p, v, c * size, n, sum + c, wide);
    if (c < dv)
        add_values(type, heads, 1, (int)(dv - c), p, v, c * size, n, sum + c, wide);
}

/* ---- One chunk ---- */

/* Addresses of the rows of one chunk, padded to a whole vector. */
typedef struct {
    const char *k[CHUNK + WF_VL], *v[CHUNK + WF_VL];
    int64_t n;
} chunk_rows;

/* Addresses of the rows of keys [begin, end); the last one repeats up to a whole vector. */
static void find_rows(const wf_attention_problem *o, const wf_view *x, int64_t sequence,
                      int64_t kv_head, int64_t begin, int64_t end, const char **rows)
{
    int64_t page = x->dim[1], step = x->stride[1] * wf_type_get(x->type)->block_bytes, i = 0;
    for (int64_t j = begin; j < end;) {
        const char *row = key_row(o, x, sequence, kv_head, j);
        int64_t stop = j - j % page + page; /* rows of a page are a constant stride apart */
        for (stop = stop < end ? stop : end; j < stop; j++, row += step)
            rows[i++] = row;
    }
    for (int64_t j = 0; j < WF_VL; j++)
        rows[i + j] = rows[i - 1];
}

static inline __attribute__((always_inline)) void chunk_heads(const wf_attention_problem *o,
                                                              wf_type k, int64_t k_size, wf_type v,
                                                              int64_t v_size, int heads,
                                                              const chunk_rows *r, const scratch *s,
                                                              int64_t at, float *partial)
{
    float *scores = s->scores + at * STRIDE, *sum = s->sum + at * o->dv_wide;
    find_dots(k, k_size, heads, s->q + at * o->d_wide, o->d, o->d_wide, r->k, r->n, scores);
    for (int h = 0; h < heads; h++) {
        /* Padding heads compute, but their results are dropped. */
        float ignored[2], *to = at + h < o->group ? partial + h * partial_size(o) : ignored;
        softmax(o, scores + h * STRIDE, r->n, &to[0], &to[1]);
    }
    sum_values(v, v_size, heads, scores, r->v, o->dv, r->n, sum, o->dv_wide);
    for (int h = 0; h < heads && at + h < o->group; h++)
        memcpy(partial + h * partial_size(o) + 2, sum + h * o->dv_wide,
               (size_t)o->dv_wide * sizeof *sum);
}

/* Processes all heads of the group; partial is [group][2 + dv_wide]. */
static inline __attribute__((always_inline)) void chunk_group(const wf_attention_problem *o,
                                                              wf_type k, int64_t k_size, wf_type v,
                                                              int64_t v_size, const chunk_rows *r,
                                                              const scratch *s, float *partial)
{
    if (o->group == 1)
        chunk_heads(o, k, k_size, v, v_size, 1, r, s, 0, partial);
    else if (o->group == 2)
        chunk_heads(o, k, k_size, v, v_size, 2, r, s, 0, partial);
    else
        for (int64_t at = 0; at < o->group; at += HEADS)
            chunk_heads(o, k, k_size, v, v_size, HEADS, r, s, at, partial + at * partial_size(o));
}

static void run_chunk(const wf_attention_problem *o, const chunk_rows *r, const scratch *s,
                      float *partial)
{
    /* Constant types let the compiler specialise the loops; mixed types take the generic one. */
    wf_type k = o->k->type, v = o->v->type;
    if (k == WF_F32 && v == WF_F32)
        chunk_group(o, WF_F32, 4, WF_F32, 4, r, s, partial);
    else if (k == WF_F16 && v == WF_F16)
        chunk_group(o, WF_F16, 2, WF_F16, 2, r, s, partial);
    else if (k == WF_BF16 && v == WF_BF16)
        chunk_group(o, WF_BF16, 2, WF_BF16, 2, r, s, partial);
    else
        chunk_group(o, k, wf_type_get(k)->block_bytes, v, wf_type_get(v)->block_bytes, r, s,
                    partial);
}

/* ---- All chunks ---- */

/* The keys [*begin, *end) of [low, high) that token i sees. */
static void seen_keys(const wf_attention_problem *o, int64_t i, int64_t low, int64_t high,
                      int64_t *begin, int64_t *end)
{
    /* May be negative: `low` is not. */
    int64_t p = o->positions[i], first = o->window > 0 ? p - o->window + 1 : 0;
    *begin = first > low ? first : low;
    *end = o->causal && p + 1 < high ? p + 1 : high;
}

static float *partial_of(const wf_attention_problem *o, const wf_decode *a, int64_t query,
                         int64_t chunk, int64_t head)
{
    int64_t heads = o->kv_heads * o->group;
    return a->partial + ((query * a->chunks + chunk) * heads + head) * partial_size(o);
}

static void load_queries(const wf_attention_problem *o, const scratch *s, int64_t token,
                         int64_t kv_head)
{
    const wf_view *q = o->q;
    int64_t size = wf_type_get(q->type)->block_bytes;
    for (int64_t h = 0; h < o->group; h++) {
        int64_t offset = token * q->stride[0] + (kv_head * o->group + h) * q->stride[1];
        load_any_row(q->type, (const char *)q->data + offset * size, o->d, o->d_wide,
                     s->q + h * o->d_wide);
    }
    for (int64_t i = o->group * o->d_wide; i < round_up(o->group, HEADS) * o->d_wide; i++)
        s->q[i] = 0;
}

/* Items are chunks of all sequences; for each chunk all kv heads, which are contiguous in
 * memory. */
static void run_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
    const work *w = arg;
    const wf_attention_problem *o = w->problem;
    const wf_decode *a = w->decode;
    wf_carver c = {.base = a->scratch + (size_t)thread * a->scratch_bytes};
    scratch s;
    lay_out(&s, &c, o);
    for (int64_t item = begin; item < end; item++) {
        int64_t kv_head = item % o->kv_heads, i = item / o->kv_heads;
        int64_t sequence = wf_attention_find(a->first, o->sequences, i);
        int64_t chunk = i - a->first[sequence], length = o->lengths[sequence];
        int64_t low = chunk * CHUNK, high = low + CHUNK < length ? low + CHUNK : length;
        for (int64_t t = o->start[sequence]; t < o->start[sequence + 1]; t++) {
            chunk_rows r;
            int64_t first, last;
            seen_keys(o, t, low, high, &first, &last);
            if (first >= last)
                continue;
            r.n = last - first;
            find_rows(o, o->k, sequence, kv_head, first, last, r.k);
            find_rows(o, o->v, sequence, kv_head, first, last, r.v);
            load_queries(o, &s, t, kv_head);
            run_chunk(o, &r, &s,
                      partial_of(o, a, a->queries[sequence] + t - o->start[sequence], chunk,
                                 kv_head * o->group));
        }
    }
}

/* ---- Combining chunks ---- */

/* Combines the visible chunks of token t (decode query number `query`) and one head, in order. */
static void finish(const wf_attention_problem *o, const wf_decode *a, int64_t sequence, int64_t t,
                   int64_t query, int64_t head, float *sum)
{
    const wf_view *out = &o->l->out[0], *lse = &o->l->out[1];
    int64_t begin, end, heads = o->kv_heads * o->group;
    float most = -INFINITY, total = 0;
    seen_keys(o, t, 0, o->lengths[sequence], &begin, &end);
    /* No visible key: an empty range of chunks. */
    int64_t first = begin / CHUNK, last = end > begin ? (end - 1) / CHUNK : first - 1;
    for (int64_t c = first; c <= last; c++) {
        float m = partial_of(o, a, query, c, head)[0];
        most = m > most ? m : most;
    }
    for (int64_t i = 0; i < o->dv_wide; i++)
        sum[i] = 0;
    for (int64_t c = first; c <= last; c++) {
        const float *p = partial_of(o, a, query, c, head);
        /* Scales the chunk to the common maximum. */
        float by = most == -INFINITY ? 0 : expf(p[0] - most);
        total += by * p[1];
        for (int64_t i = 0; i < o->dv_wide; i += WF_VL)
            vf_store(sum + i, vf_fma(vf_set(by), vf_load(p + 2 + i), vf_load(sum + i)));
    }
    vf by = vf_set(total != 0 ? 1 / total : 0);
    for (int64_t i = 0; i < o->dv_wide; i += WF_VL)
        vf_store(sum + i, vf_mul(vf_load(sum + i), by));
    if (out->data)
        store_row(out->type,
                  (char *)out->data + (t * out->stride[0] + head * out->stride[1]) *
                                          wf_type_get(out->type)->block_bytes,
                  sum, o->dv);
    if (lse->data)
        ((float *)lse->data)[t * heads + head] =
            total != 0 ? (float)(most + log((double)total)) : -INFINITY;
}

static void finish_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const work *w = arg;
    const wf_attention_problem *o = w->problem;
    const wf_decode *a = w->decode;
    int64_t heads = o->kv_heads * o->group;
    wf_carver c = {.base = a->scratch + (size_t)thread * a->scratch_bytes};
    scratch s;
    lay_out(&s, &c, o);
    for (int64_t item = begin; item < end; item++) {
        int64_t query = item / heads, sequence = wf_attention_find(a->queries, o->sequences, query);
        finish(o, a, sequence, o->start[sequence] + query - a->queries[sequence], query,
               item % heads, s.sum);
    }
}

/* Counts chunks and queries of each sequence first: items are numbered through all of them. */
void WF_SIMD(wf_decode_run)(wf_decode *a, const wf_attention_problem *o)
{
    work w = {.problem = o, .decode = a};
    int64_t heads = o->kv_heads * o->group;
    a->first[0] = a->queries[0] = 0;
    for (int64_t s = 0; s < o->sequences; s++) {
        bool wanted = wf_decode_wants(o, s);
        int64_t tokens = wanted ? o->start[s + 1] - o->start[s] : 0;
        a->queries[s + 1] = a->queries[s] + tokens;
        a->first[s + 1] = a->first[s] + (tokens > 0 ? (o->lengths[s] + CHUNK - 1) / CHUNK : 0);
    }
    int64_t chunks = a->first[o->sequences] * o->kv_heads;
    int64_t keys = o->keys < CHUNK ? o->keys : CHUNK;
    wf_parallel_share(o->l->threads, chunks, GRAIN / (keys * (o->d + o->dv) + 1) + 1, run_chunks,
                      &w);
    int64_t each = (o->dv_wide + 16) * a->chunks;
    wf_parallel_for(o->l->threads, a->queries[o->sequences] * heads, GRAIN / (each + 1) + 1,
                    finish_range, &w);
}

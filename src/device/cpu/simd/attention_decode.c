/* SPDX-License-Identifier: MIT */
/*
 * attention_decode.c - decode attention, one chunk of keys at a time.
 *
 * Decode has few queries and many keys, so threads share the keys: each item is a chunk of CHUNK
 * keys of one sequence and kv head. A chunk yields, per query head, its maximum, its sum of
 * exponentials and its weighted values; finish merges the chunks in ascending order. k and v are
 * read once, in their own type.
 *
 * Every sum has the order of attention.h, so the bits are those of tiles. Therefore keys are
 * transposed in registers: lanes are keys, and each lane sums over d in ascending order.
 */
#include "device/cpu/simd/attention_decode.h"

#include "base/thread.h"
#include "device/cpu/simd/gemm_few.h"

enum {
    DOTS = WF_FEW_ROWS,     /* most heads that share each transposed square of keys */
    HEADS = 4,              /* most heads that share each loaded vector of a row of values */
    VALUES = WF_VREGS / 8,  /* vectors of values summed at once, per head */
    STRIDE = CHUNK + WF_VL, /* floats between the scores of two heads */
    BLOCKS = CHUNK / KEYS,  /* blocks of keys in a chunk */
    FACTORS = BLOCKS > WF_VL ? BLOCKS : WF_VL, /* floats between the factors of two heads */
    AHEAD = 8,                                 /* keys between a row of values and its prefetch */
    MARGIN = AHEAD > WF_VL ? AHEAD : WF_VL,    /* rows that are found beyond the visible ones */
    GRAIN = 64 * 1024                          /* fewest pool elements per thread */
};

/* Per thread. */
typedef struct {
    float *q;                   /* [group rounded up to DOTS][d_wide], padded with zeros */
    float *scores;              /* [likewise][STRIDE] */
    float *by;                  /* [likewise][FACTORS]: factor of the earlier sums */
    char *keys;                 /* WF_VL rows of k */
    float *k_scales, *v_scales; /* of q8_0: [blocks of a row][CHUNK] */
} scratch;

/* Arguments of the workers. */
typedef struct {
    const wf_attention_problem *problem;
    const wf_decode *decode;
} work;

static void lay_out(scratch *s, wf_carver *c, const wf_attention_problem *o)
{
    int64_t heads = round_up(o->group, DOTS);
    s->q = carve_floats(c, heads * o->d_wide);
    s->scores = carve_floats(c, heads * STRIDE);
    s->by = carve_floats(c, heads * FACTORS);
    s->keys = carve(c, WF_VL * o->d_wide * (int64_t)sizeof(float));
    s->k_scales = carve_floats(c, o->quantized ? CHUNK * (o->d / Q8_BLOCK) : 0);
    s->v_scales = carve_floats(c, o->quantized ? CHUNK * (o->dv / Q8_BLOCK) : 0);
}

size_t WF_SIMD(wf_decode_scratch)(const wf_attention_problem *o)
{
    wf_carver c = {0};
    scratch s;
    lay_out(&s, &c, o);
    c.used += (size_t)round_up(o->dv_wide * (int64_t)sizeof(float), 64); /* finish_range */
    return c.used;
}

/* Floats per head of a partial result: maximum, sum, and values [dv_wide], at least one vector. */
static int64_t partial_size(const wf_attention_problem *o)
{
    return 2 + (o->dv_wide > 0 ? o->dv_wide : WF_VL);
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

/* ---- A chunk ---- */

/* The keys of a chunk that a query sees: [begin, end), counted from key `low` of the sequence. */
typedef struct {
    int64_t sequence, kv_head, low, begin, end;
    const char *v[CHUNK + MARGIN], *k[CHUNK + MARGIN]; /* rows; k only of q8_0 */
    float *k_scales, *v_scales;                        /* of q8_0: [blocks of a row][CHUNK] */
} chunk_keys;

/* Finds the visible rows of k or v. Before and after them, whole vectors and MARGIN rows repeat the
 * first and the last one. */
static void find_rows(const wf_attention_problem *o, const wf_view *x, const chunk_keys *c,
                      const char **rows)
{
    int64_t page = x->dim[1], step = row_bytes(x, x->stride[1]);
    for (int64_t j = c->begin; j < c->end;) {
        const char *row = key_row(o, x, c->sequence, c->kv_head, c->low + j);
        /* Rows of a page are a constant stride apart. */
        int64_t stop = j + page - (c->low + j) % page;
        for (stop = stop < c->end ? stop : c->end; j < stop; j++, row += step)
            rows[j] = row;
    }
    for (int64_t j = c->begin - c->begin % WF_VL; j < c->begin; j++)
        rows[j] = rows[c->begin];
    for (int64_t j = 0; j < MARGIN; j++)
        rows[c->end + j] = rows[c->end - 1];
}

/* Whether WF_VL keys, from a multiple of WF_VL on, are in one page, a constant stride apart. */
static bool pages_are_whole(const wf_attention_problem *o)
{
    return o->k->dim[1] % WF_VL == 0;
}

/* WF_VL rows of keys from key j of the chunk on, a multiple of WF_VL. At least one is visible; the
 * others may hold anything. Whole pages are read in place. */
static const char *find_keys(const wf_attention_problem *o, const scratch *s, const chunk_keys *c,
                             int64_t j, ptrdiff_t *stride)
{
    if (pages_are_whole(o)) {
        *stride = (ptrdiff_t)row_bytes(o->k, o->k->stride[1]);
        return key_row(o, o->k, c->sequence, c->kv_head, c->low + j);
    }
    *stride = (ptrdiff_t)row_bytes(o->k, o->d);
    for (int64_t i = 0; i < WF_VL; i++)
        if (c->begin <= j + i && j + i < c->end)
            memcpy(s->keys + i * *stride, key_row(o, o->k, c->sequence, c->kv_head, c->low + j + i),
                   (size_t)*stride);
        else
            memset(s->keys + i * *stride, 0, (size_t)*stride);
    return s->keys;
}

/* ---- Scores ---- */

/* Dot products of `heads` rows of q with WF_VL keys. type and heads are constants. next: bytes to
 * the rows of the next call, which are prefetched; 0 at the end. */
WF_INLINE void find_dots(wf_type type, int heads, const wf_few *f, ptrdiff_t next, float *scores)
{
    const int step = type == WF_F32 ? WF_VL : 2 * WF_VL;
    vf sum[WF_FEW_ROWS], r[WF_VL];
    int64_t at = 0;
    for (int h = 0; h < heads; h++)
        sum[h] = vf_zero();
    for (; at + step <= f->k; at += step) {
        const char *ahead = f->from + next + at * (int64_t)wf_gemm_size(type);
        for (int i = 0; i < WF_VL; i++)
            v_prefetch(ahead + i * f->stride);
        wf_few_square(heads, type, f, f->from, at, sum);
    }
    for (int n; at < f->k; at += n) {
        const char *from[WF_VL];
        n = f->k - at < WF_VL ? (int)(f->k - at) : WF_VL;
        for (int i = 0; i < WF_VL; i++)
            from[i] = f->from + i * f->stride;
        wf_pack_square(type, from, at, n, r);
        for (int i = 0; i < n; i++)
            wf_few_add(heads, f, at + i, r[i], sum);
    }
    for (int h = 0; h < heads; h++)
        vf_store(scores + h * STRIDE, sum[h]);
}

/* Up to 4 heads, or DOTS with padding. */
WF_INLINE void find_dots_of(wf_type type, int64_t heads, const wf_few *f, ptrdiff_t next,
                            float *scores)
{
    if (heads == 1)
        find_dots(type, 1, f, next, scores);
    else if (heads == 2)
        find_dots(type, 2, f, next, scores);
    else if (heads == 3)
        find_dots(type, 3, f, next, scores);
    else if (heads == 4)
        find_dots(type, 4, f, next, scores);
    else
        find_dots(type, DOTS, f, next, scores);
}

/* Dot products of all heads of the group with WF_VL keys, whose rows f has. */
static void find_group(const wf_attention_problem *o, const scratch *s, wf_few *f, ptrdiff_t next,
                       int64_t j)
{
    for (int64_t at = 0, heads = o->group; at < o->group; at += DOTS, heads -= DOTS) {
        float *scores = s->scores + at * STRIDE + j;
        f->a = s->q + at * o->d_wide;
        if (o->k->type == WF_F32)
            find_dots_of(WF_F32, heads, f, next, scores);
        else if (o->k->type == WF_F16)
            find_dots_of(WF_F16, heads, f, next, scores);
        else
            find_dots_of(WF_BF16, heads, f, next, scores);
    }
}

/* Prefetches the visible values of WF_VL keys from key j on into the second cache: the keys of a
 * chunk take long enough to hide the memory's latency. */
static void fetch_ahead(const wf_attention_problem *o, const chunk_keys *c, int64_t j)
{
    const int64_t bytes = row_bytes(o->v, o->dv), end = j + WF_VL < c->end ? j + WF_VL : c->end;
    for (j = j < c->begin ? c->begin : j; j < end; j++)
        for (int64_t i = 0; i < bytes; i += 64)
            v_prefetch_far(c->v[j] + i);
}

/* Dot products of all heads of the group with the visible keys, and with the others of their
 * vectors. */
static void find_scores(const wf_attention_problem *o, const scratch *s, const chunk_keys *c)
{
    wf_few f = {.k = o->d, .lda = o->d_wide};
    for (int64_t j = c->begin - c->begin % WF_VL; j < c->end; j += WF_VL) {
        ptrdiff_t next = 0;
        f.from = find_keys(o, s, c, j, &f.stride);
        if (pages_are_whole(o) && j + WF_VL < c->end)
            next = key_row(o, o->k, c->sequence, c->kv_head, c->low + j + WF_VL) - f.from;
        fetch_ahead(o, c, j);
        find_group(o, s, &f, next, j);
    }
}

/* ---- Scores of q8_0 keys ---- */

/* Prefetches the visible rows from key j on, n at most. */
static void fetch_rows(const chunk_keys *c, const char *const *rows, int64_t bytes, int64_t j,
                       int64_t n)
{
    const int64_t end = j + n < c->end ? j + n : c->end;
    for (j = j < c->begin ? c->begin : j; j < end; j++)
        for (int64_t i = 0; i < bytes; i += 64)
            v_prefetch(rows[j] + i);
}

/* Widens the scales of the rows from key j on, n at most. Their stores must be done before a vector
 * of them is loaded, so this happens some keys ahead. */
static void find_scales(const chunk_keys *c, const char *const *rows, int64_t blocks, int64_t j,
                        int64_t n, float *to)
{
    const int64_t end = j + n < c->end ? j + n : c->end;
    for (; j < end; j += WF_VL)
        for (int64_t b = 0; b < blocks; b++) {
            uint16_t half[WF_VL];
            for (int i = 0; i < WF_VL; i++)
                memcpy(&half[i], rows[j + i] + b * (int64_t)sizeof(wf_block_q8_0), sizeof *half);
            vf_store(to + b * CHUNK + j, vf_load_f16(half));
        }
}

/* Some vectors of q8_0 keys. */
typedef struct {
    const wf_few *f;      /* the queries */
    const char *const *k; /* rows */
    const float *scales;  /* [blocks][CHUNK] */
} q8_keys;

/* Loads integers [at, at + 16) of a block of WF_VL rows, and transposes them: word[i] has integers
 * 4 i to 4 i + 3 of each row. */
WF_INLINE void load_words(const char *const *rows, int64_t at, vi word[4])
{
    vf x[4];
    for (int i = 0; i < 4; i++) {
        int64_t from[WF_VL / 4];
        for (int j = 0; j < WF_VL / 4; j++)
            from[j] = rows[4 * j + i] - rows[0];
        x[i] = vi_as_vf(vi_load_fours((const uint8_t *)rows[0] + at, from));
    }
    vf_transpose_fours(x);
    for (int i = 0; i < 4; i++)
        word[i] = vf_as_vi(x[i]);
}

/* Adds the products of 16 elements, from element k of the rows on. Integers are transposed before
 * they are widened, which takes a quarter of the shuffles. */
WF_INLINE void add_sixteen(int heads, int vectors, const q8_keys *q, int64_t k,
                           vf sum[][WF_FEW_ROWS])
{
    const int64_t block = k / Q8_BLOCK;
    const int64_t at = block * (int64_t)sizeof(wf_block_q8_0) + k % Q8_BLOCK;
    vi word[2][4];
    vf scale[2];
    for (int v = 0; v < vectors; v++) {
        scale[v] = vf_load(q->scales + block * CHUNK + v * WF_VL);
        load_words(q->k + v * WF_VL, at + (int64_t)offsetof(wf_block_q8_0, q), word[v]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        for (int v = 0; v < vectors; v++) {
            vi x = vi_sra(vi_shl(word[v][i / 4], 24 - i % 4 * 8), 24);
            wf_few_add(heads, q->f, k + i, vf_mul(vi_to_vf(x), scale[v]), sum[v]);
        }
}

/* Dot products of `heads` rows of q with `vectors` vectors of keys. */
WF_INLINE void find_q8_dots(int heads, int vectors, const q8_keys *q, float *scores)
{
    vf sum[2][WF_FEW_ROWS];
    for (int v = 0; v < vectors; v++)
        for (int h = 0; h < heads; h++)
            sum[v][h] = vf_zero();
    for (int64_t k = 0; k < q->f->k; k += 16)
        add_sixteen(heads, vectors, q, k, sum);
    for (int v = 0; v < vectors; v++)
        for (int h = 0; h < heads; h++)
            vf_store(scores + h * STRIDE + v * WF_VL, sum[v][h]);
}

/* As find_dots_of. With one or two heads the sums of a vector of keys are too few to hide the
 * latency of fma, so they take two vectors. */
static void find_q8_dots_of(int64_t heads, int vectors, const q8_keys *q, float *scores)
{
    if (heads == 1 && vectors == 2)
        find_q8_dots(1, 2, q, scores);
    else if (heads == 1)
        find_q8_dots(1, 1, q, scores);
    else if (heads == 2 && vectors == 2)
        find_q8_dots(2, 2, q, scores);
    else if (heads == 2)
        find_q8_dots(2, 1, q, scores);
    else if (heads == 3)
        find_q8_dots(3, 1, q, scores);
    else if (heads == 4)
        find_q8_dots(4, 1, q, scores);
    else
        find_q8_dots(DOTS, 1, q, scores);
}

/* Prefetches the n keys and values from key j + 2 n on, and widens the scales of those from key j + n
 * on. */
static void prepare_rows(const wf_attention_problem *o, const chunk_keys *c, int64_t j, int64_t n)
{
    fetch_rows(c, c->k, row_bytes(o->k, o->d), j + 2 * n, n);
    fetch_rows(c, c->v, row_bytes(o->v, o->dv), j + 2 * n, n);
    if (j + n < c->begin - c->begin % WF_VL)
        return;
    find_scales(c, c->k, o->d / Q8_BLOCK, j + n, n, c->k_scales);
    find_scales(c, c->v, o->dv / Q8_BLOCK, j + n, n, c->v_scales);
}

/* find_scores for q8_0. Also prepares the values. */
static void find_q8_scores(const wf_attention_problem *o, const scratch *s, const chunk_keys *c)
{
    const int64_t first = c->begin - c->begin % WF_VL, step = o->group > 2 ? WF_VL : 2 * WF_VL;
    wf_few f = {.k = o->d, .lda = o->d_wide};
    prepare_rows(o, c, first - 2 * step, step);
    prepare_rows(o, c, first - step, step);
    for (int64_t j = first; j < c->end; j += step) {
        const q8_keys keys = {&f, c->k + j, c->k_scales + j};
        const int vectors = step > WF_VL && j + WF_VL < c->end ? 2 : 1;
        prepare_rows(o, c, j, step);
        for (int64_t at = 0, heads = o->group; at < o->group; at += DOTS, heads -= DOTS) {
            f.a = s->q + at * o->d_wide;
            find_q8_dots_of(heads, vectors, &keys, s->scores + at * STRIDE + j);
        }
    }
}

/* Turns the dot products of keys [begin, end) into scores, -Inf for other keys of their vectors,
 * and returns the maximum of these and `most`. */
static float block_most(const wf_attention_problem *o, float *p, int64_t begin, int64_t end,
                        float most)
{
    vf high = vf_set(most), hidden = vf_set(-INFINITY);
    for (int64_t j = begin - begin % WF_VL; j < end; j += WF_VL) {
        vf s = score_of(o, vf_load(p + j));
        if (j < begin)
            s = vf_select(vm_first((int)(begin - j)), hidden, s);
        if (end - j < WF_VL)
            s = vf_select(vm_first((int)(end - j)), s, hidden);
        vf_store(p + j, s);
        high = vf_max(s, high); /* NaN propagates through e^x instead */
    }
    return vf_most(high);
}

/* Turns dot products of a chunk into e^(score - maximum so far), block by block. by[b] becomes the
 * factor of the sums before block b. Returns the maximum. */
static float softmax(const wf_attention_problem *o, const chunk_keys *c, float *p, float *by)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < FACTORS; i++)
        by[i] = 0;
    for (int64_t at = c->begin - c->begin % KEYS; at < c->end; at += KEYS) {
        int64_t begin = at > c->begin ? at : c->begin;
        int64_t end = at + KEYS < c->end ? at + KEYS : c->end;
        float before = most;
        most = block_most(o, p, begin, end, most);
        float finite = most == -INFINITY ? 0 : most; /* -Inf - -Inf would be NaN */
        by[at / KEYS] = before - finite;
        for (int64_t j = begin - begin % WF_VL; j < end; j += WF_VL)
            vf_store(p + j, vf_exp(vf_sub(vf_load(p + j), vf_set(finite))));
    }
    for (int64_t i = 0; i < BLOCKS; i += WF_VL)
        vf_store(by + i, vf_exp(vf_load(by + i)));
    return most;
}

/* ---- Values ---- */

/* Operands and results of add_values for some heads. */
typedef struct {
    const float *p, *by; /* [heads][STRIDE], [heads][FACTORS] */
    float *to;           /* [heads][ld]: total, then values */
    int64_t ld;
} value_sums;

/* Prefetches nv vectors, from element `at` of the row on. find_q8_scores has prefetched q8_0. */
WF_INLINE void fetch_values(wf_type type, int nv, const char *row, int64_t at)
{
    const int64_t size = (int64_t)wf_gemm_size(type);
    for (int64_t i = 0; type != WF_Q8_0 && i < nv * WF_VL * size; i += 64)
        v_prefetch(row + at * size + i);
}

/* Loads nv vectors of the values of key j, from element `at` on, the last with `last` elements. */
WF_INLINE void load_values(wf_type type, int nv, int last, const chunk_keys *c, int64_t j,
                           int64_t at, vf x[VALUES])
{
    const char *row = c->v[j];
    for (int i = 0; i < nv; i++, at += WF_VL)
        if (type == WF_Q8_0)
            x[i] = vf_mul(load_integers(row, at), vf_set(c->v_scales[at / Q8_BLOCK * CHUNK + j]));
        else if (last < WF_VL)
            x[i] = vf_load_as_n(type, row + at * (int64_t)wf_gemm_size(type), last);
        else
            x[i] = vf_load_as(type, row + at * (int64_t)wf_gemm_size(type));
}

/* Sums nv vectors of values, the last with `last` elements, from element `at` of the rows on; and
 * also p, if `totals`. heads, nv and totals are constants. */
WF_INLINE void add_values(wf_type type, int heads, int nv, bool totals, int last,
                          const chunk_keys *c, int64_t at, const value_sums *s)
{
    vf to[HEADS][VALUES], total[HEADS], part[HEADS];
    for (int h = 0; h < heads; h++) {
        total[h] = vf_zero();
        for (int i = 0; i < nv; i++)
            to[h][i] = vf_zero();
    }
    for (int64_t j = c->begin; j < c->end;) {
        int64_t b = j / KEYS, end = (b + 1) * KEYS < c->end ? (b + 1) * KEYS : c->end;
        for (int h = 0; h < heads; h++) {
            vf by = vf_set(s->by[h * FACTORS + b]);
            part[h] = vf_zero();
            for (int i = 0; i < nv; i++)
                to[h][i] = vf_mul(to[h][i], by);
        }
        for (; j < end; j++) {
            vf x[VALUES];
            fetch_values(type, nv, c->v[j + AHEAD], at);
            load_values(type, nv, last, c, j, at, x);
            for (int h = 0; h < heads; h++) {
                vf p = vf_set(s->p[h * STRIDE + j]);
                if (totals)
                    part[h] = vf_add(part[h], p);
                for (int i = 0; i < nv; i++)
                    to[h][i] = vf_fma(p, x[i], to[h][i]);
            }
        }
        for (int h = 0; totals && h < heads; h++)
            total[h] = vf_fma(total[h], vf_set(s->by[h * FACTORS + b]), part[h]);
    }
    for (int h = 0; h < heads; h++) {
        float *values = s->to + h * s->ld + 1;
        for (int i = 0; i < nv; i++)
            vf_store(values + at + i * WF_VL, to[h][i]);
        if (totals)
            vf_store_n(values - 1, total[h], 1);
    }
}

WF_INLINE void sum_values(wf_type type, int heads, const chunk_keys *c, int64_t dv,
                          const value_sums *s)
{
    int64_t at = dv;
    if (dv >= VALUES * WF_VL) {
        at = VALUES * WF_VL;
        add_values(type, heads, VALUES, true, WF_VL, c, 0, s);
    } else if (dv >= WF_VL) {
        at = WF_VL;
        add_values(type, heads, 1, true, WF_VL, c, 0, s);
    } else {
        add_values(type, heads, 1, true, (int)dv, c, 0, s);
    }
    for (; at + VALUES * WF_VL <= dv; at += VALUES * WF_VL)
        add_values(type, heads, VALUES, false, WF_VL, c, at, s);
    for (; at + WF_VL <= dv; at += WF_VL)
        add_values(type, heads, 1, false, WF_VL, c, at, s);
    if (at < dv)
        add_values(type, heads, 1, false, (int)(dv - at), c, at, s);
}

WF_INLINE void sum_values_of(wf_type type, int64_t heads, const chunk_keys *c, int64_t dv,
                             const value_sums *s)
{
    if (heads == 1)
        sum_values(type, 1, c, dv, s);
    else if (heads == 2)
        sum_values(type, 2, c, dv, s);
    else if (heads == 3)
        sum_values(type, 3, c, dv, s);
    else
        sum_values(type, HEADS, c, dv, s);
}

/* Processes all heads of the group; partial is [group][2 + dv_wide]. */
static void run_chunk(const wf_attention_problem *o, const chunk_keys *c, const scratch *s,
                      float *partial)
{
    int64_t size = partial_size(o);
    if (o->quantized)
        find_q8_scores(o, s, c);
    else
        find_scores(o, s, c);
    for (int64_t h = 0; h < o->group; h++)
        partial[h * size] = softmax(o, c, s->scores + h * STRIDE, s->by + h * FACTORS);
    for (int64_t at = 0, heads = o->group; at < o->group; at += HEADS, heads -= HEADS) {
        value_sums sums = {.p = s->scores + at * STRIDE,
                           .by = s->by + at * FACTORS,
                           .to = partial + at * size + 1,
                           .ld = size};
        if (o->v->type == WF_F32)
            sum_values_of(WF_F32, heads, c, o->dv, &sums);
        else if (o->v->type == WF_F16)
            sum_values_of(WF_F16, heads, c, o->dv, &sums);
        else if (o->v->type == WF_Q8_0)
            sum_values_of(WF_Q8_0, heads, c, o->dv, &sums);
        else
            sum_values_of(WF_BF16, heads, c, o->dv, &sums);
    }
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
    for (int64_t i = o->group * o->d_wide; i < round_up(o->group, DOTS) * o->d_wide; i++)
        s->q[i] = 0;
}

/* Items are chunks of all sequences; for each chunk all kv heads, which are contiguous in
 * memory. */
static void run_chunks(void *arg, int64_t begin, int64_t end, int thread)
{
    const work *w = arg;
    const wf_attention_problem *o = w->problem;
    const wf_decode *a = w->decode;
    wf_carver carver = {.base = a->scratch + (size_t)thread * a->scratch_bytes};
    scratch s;
    chunk_keys c;
    lay_out(&s, &carver, o);
    c.k_scales = s.k_scales;
    c.v_scales = s.v_scales;
    for (int64_t item = begin; item < end; item++) {
        int64_t i = item / o->kv_heads;
        c.kv_head = item % o->kv_heads;
        c.sequence = wf_attention_find(a->first, o->sequences, i);
        int64_t index = i - a->first[c.sequence], length = o->lengths[c.sequence];
        int64_t low = index * CHUNK, high = low + CHUNK < length ? low + CHUNK : length;
        c.low = low;
        for (int64_t t = o->start[c.sequence]; t < o->start[c.sequence + 1]; t++) {
            seen_keys(o, t, low, high, &c.begin, &c.end);
            if (c.begin >= c.end)
                continue;
            c.begin -= low;
            c.end -= low;
            find_rows(o, o->v, &c, c.v);
            if (o->quantized)
                find_rows(o, o->k, &c, c.k);
            load_queries(o, &s, t, c.kv_head);
            run_chunk(o, &c, &s,
                      partial_of(o, a, a->queries[c.sequence] + t - o->start[c.sequence], index,
                                 c.kv_head * o->group));
        }
    }
}

/* ---- Merging chunks ---- */

/* Merges the visible chunks of token t (decode query number `query`) and one head, in order. */
static void finish(const wf_attention_problem *o, const wf_decode *a, int64_t sequence, int64_t t,
                   int64_t query, int64_t head, float *sum)
{
    const wf_view *out = &o->l->out[0], *lse = &o->l->out[1];
    int64_t begin, end, heads = o->kv_heads * o->group;
    vf most = vf_set(-INFINITY), total = vf_zero();
    seen_keys(o, t, 0, o->lengths[sequence], &begin, &end);
    /* No visible key: an empty range of chunks. */
    int64_t first = begin / CHUNK, last = end > begin ? (end - 1) / CHUNK : first - 1;
    for (int64_t i = 0; i < o->dv_wide; i += WF_VL)
        vf_store(sum + i, vf_zero());
    for (int64_t c = first; c <= last; c++) {
        const float *p = partial_of(o, a, query, c, head);
        wf_merge m = merge_of(&most, vf_set(p[0]));
        total = merged(&m, total, vf_set(p[1]));
        for (int64_t i = 0; i < o->dv_wide; i += WF_VL)
            vf_store(sum + i, merged(&m, vf_load(sum + i), vf_load(p + 2 + i)));
    }
    float totals[WF_VL], mosts[WF_VL];
    vf_store(totals, total);
    vf_store(mosts, most);
    if (lse->data)
        ((float *)lse->data)[t * heads + head] = log_sum(mosts[0], totals[0]);
    if (!out->data)
        return;
    divide_row(sum, o->dv_wide, totals[0]);
    store_row(out->type,
              (char *)out->data + (t * out->stride[0] + head * out->stride[1]) *
                                      wf_type_get(out->type)->block_bytes,
              sum, o->dv);
}

static void finish_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const work *w = arg;
    const wf_attention_problem *o = w->problem;
    const wf_decode *a = w->decode;
    int64_t heads = o->kv_heads * o->group;
    float *sum = (float *)(void *)(a->scratch + (size_t)thread * a->scratch_bytes);
    for (int64_t item = begin; item < end; item++) {
        int64_t query = item / heads, sequence = wf_attention_find(a->queries, o->sequences, query);
        finish(o, a, sequence, o->start[sequence] + query - a->queries[sequence], query,
               item % heads, sum);
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

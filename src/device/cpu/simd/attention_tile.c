/* SPDX-License-Identifier: MIT */
/*
 * attention_tile.c - loads keys and queries, computes their visibility, and multiplies tiles.
 *
 * A tile is KEYS keys of one kv head by LANES lanes (a token and one of its query heads). Rows are
 * f32, padded with zeros to whole vectors (d_wide, dv_wide). Products are blocked by ROWS x VECTORS
 * sums in registers (block_product, attention.h). A lane's result depends on no other lane: padding
 * and masks add exact zeros.
 */
#include "device/cpu/simd/attention.h"

void WF_SIMD(wf_attention_open)(wf_attention_problem *o, const wf_node *n, int first,
                                const wf_launch *l)
{
    const wf_dims *q = &n->in[first]->shape, *k = &n->in[first + 1]->shape,
                  *v = &n->in[first + 2]->shape;
    const wf_attr_attention *attr = n->attr;
    bool paged = n->nin == 7;
    *o = (wf_attention_problem){.l = l, .n = q->d[0], .d = q->d[2]};
    o->sequences = n->in[first + 3]->shape.d[0] - 1;
    o->kv_heads = k->d[k->n - 2];
    o->group = o->kv_heads > 0 ? q->d[1] / o->kv_heads : 0;
    o->dv = v->d[v->n - 1];
    o->paged = paged;
    o->quantized = n->in[first + 1]->type == WF_Q8_0;
    o->keys = paged ? n->in[first + 5]->shape.d[1] * k->d[1] : o->n;
    o->d_wide = round_up(o->d, WF_VL);
    o->dv_wide = round_up(o->dv, WF_VL);
    o->scale = (float)(attr->scale != 0 ? attr->scale : 1 / sqrt((double)o->d));
    o->cap = (float)attr->softcap;
    o->causal = attr->causal;
    o->window = attr->window;
    if (!l) /* only sizes, for the planner */
        return;
    o->q = &l->in[first];
    o->k = &l->in[first + 1];
    o->v = &l->in[first + 2];
    o->start = l->in[first + 3].data;
    o->positions = l->in[first + 4].data;
    o->table = paged ? &l->in[first + 5] : NULL;
    o->lengths = paged ? l->in[first + 6].data : NULL;
}

/* ---- Loading ---- */

static void zero_rows(float *to, int64_t wide, int64_t begin, int64_t end)
{
    for (int64_t i = begin * wide; i < end * wide; i += WF_VL)
        vf_store(to + i, vf_zero());
}

static void load_keys(const wf_attention_problem *o, const wf_key_block *b, int32_t low,
                      int32_t high, const wf_view *x, int64_t width, int64_t wide, float *to)
{
    for (int64_t j = 0; j < b->n; j++)
        if (low <= b->position[j] && b->position[j] <= high)
            load_any_row(x->type, key_row(o, x, b->sequence, b->kv_head, b->begin + j), width, wide,
                         to + j * wide);
        else
            zero_rows(to, wide, j, j + 1);
    /* Missing keys are zeros up to a whole block of rows. */
    zero_rows(to, wide, b->n, round_up(b->n, ROWS));
}

void WF_SIMD(wf_key_block_find)(const wf_attention_problem *o, wf_key_block *b, int64_t sequence,
                                int64_t kv_head, int64_t begin)
{
    int64_t n = key_count(o, sequence) - begin;
    b->sequence = sequence;
    b->kv_head = kv_head;
    b->begin = begin;
    b->n = n < KEYS ? n : KEYS;
    b->nearest = INT32_MAX; /* smallest and largest position, for masks of whole blocks */
    b->latest = INT32_MIN;
    for (int64_t j = 0; j < b->n; j++) {
        int32_t p = o->table ? (int32_t)(begin + j) : o->positions[o->start[sequence] + begin + j];
        b->position[j] = p;
        b->nearest = p < b->nearest ? p : b->nearest;
        b->latest = p > b->latest ? p : b->latest;
    }
}

void WF_SIMD(wf_key_block_load)(const wf_attention_problem *o, wf_key_block *b, int32_t low,
                                int32_t high)
{
    load_keys(o, b, low, high, o->k, o->d, o->d_wide, b->k);
    load_keys(o, b, low, high, o->v, o->dv, o->dv_wide, b->v);
}

void WF_SIMD(wf_lanes_find)(const wf_attention_problem *o, wf_lanes *t, int64_t sequence,
                            int64_t kv_head, int64_t begin, int64_t n)
{
    t->n = n;
    t->least_low = t->least_high = INT32_MAX;
    t->most_low = t->most_high = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        int64_t token = o->start[sequence] + (begin + i) / o->group, p = o->positions[token];
        /* May be below INT32_MIN: clamped below. */
        int64_t low = o->window > 0 ? p - o->window + 1 : INT32_MIN;
        t->token[i] = token;
        t->head[i] = kv_head * o->group + (begin + i) % o->group;
        t->low[i] = low < INT32_MIN ? INT32_MIN : (int32_t)low;
        t->high[i] = o->causal ? (int32_t)p : INT32_MAX;
        t->least_low = t->low[i] < t->least_low ? t->low[i] : t->least_low;
        t->most_low = t->low[i] > t->most_low ? t->low[i] : t->most_low;
        t->least_high = t->high[i] < t->least_high ? t->high[i] : t->least_high;
        t->most_high = t->high[i] > t->most_high ? t->high[i] : t->most_high;
    }
    for (int64_t i = n; i < LANES; i++) { /* missing lanes see nothing */
        t->low[i] = INT32_MAX;
        t->high[i] = INT32_MIN;
    }
}

void WF_SIMD(wf_lanes_load)(const wf_lanes *t, const wf_view *x, int64_t wide, float *rows,
                            float *columns)
{
    for (int64_t i = 0; i < t->n; i++)
        load_any_row(x->type, lane_row(t, x, i), wf_view_last(x), wide, rows + i * wide);
    zero_rows(rows, wide, t->n, LANES);
    /* Transpose in registers, WF_VL x WF_VL at a time: columns are read along lanes. */
    for (int64_t i = 0; i < LANES; i += WF_VL)
        for (int64_t c = 0; c < wide; c += WF_VL) {
            vf r[WF_VL];
            for (int j = 0; j < WF_VL; j++)
                r[j] = vf_load(rows + (i + j) * wide + c);
            vf_transpose(r);
            for (int j = 0; j < WF_VL; j++)
                vf_store(columns + (c + j) * LANES + i, r[j]);
        }
}

/* ---- Visibility ---- */

static bool anyone_sees(const wf_lanes *t, int32_t position)
{
    /* Possible for some lane: positions between the extremes may still be hidden. */
    return t->least_low <= position && position <= t->most_high;
}

wf_sight WF_SIMD(wf_lanes_sight)(const wf_lanes *t, const wf_key_block *b)
{
    wf_sight s = {.begin = 0, .end = b->n};
    if (t->most_low <= b->nearest && b->latest <= t->least_high) /* all lanes see all keys */
        return s;
    s.masked = true;
    /* Keys are in order of memory, not of position; hidden ends are cut off. */
    while (s.end > 0 && !anyone_sees(t, b->position[s.end - 1]))
        s.end--;
    while (s.begin < s.end && !anyone_sees(t, b->position[s.begin]))
        s.begin++;
    /* Back to the start of a block of rows, which block_product needs. */
    s.begin -= s.begin < s.end ? s.begin % ROWS : 0;
    return s;
}

/* ---- Matmuls ---- */

void WF_SIMD(wf_tile_dots)(float *to, const float *panel, int64_t wide, const float *columns,
                           int64_t d, wf_sight sight)
{
    for (int64_t r = sight.begin; r < sight.end; r += ROWS)
        block_product(VECTORS, true, NULL, panel + r * wide, wide, 1, columns, LANES, d,
                      to + r * LANES, LANES);
}

/* ROWS lanes; VECTORS vectors of columns at a time, then single vectors. */
static inline __attribute__((always_inline)) void add_keys(float *to, const float *scale,
                                                           const float *p, const float *panel,
                                                           int64_t wide, int64_t n)
{
    int64_t c = 0;
    for (; c + VECTORS * WF_VL <= wide; c += VECTORS * WF_VL)
        block_product(VECTORS, false, scale, p, 1, LANES, panel + c, wide, n, to + c, wide);
    for (; c < wide; c += WF_VL)
        block_product(1, false, scale, p, 1, LANES, panel + c, wide, n, to + c, wide);
}

void WF_SIMD(wf_tile_add_keys)(float *to, const float *scale, const float *p, const float *panel,
                               int64_t wide, wf_sight sight)
{
    int64_t n = sight.end - sight.begin;
    p += sight.begin * LANES;
    panel += sight.begin * wide;
    for (int64_t i = 0; i < LANES; i += ROWS)
        if (scale)
            add_keys(to + i * wide, scale + i, p + i, panel, wide, n);
        else
            add_keys(to + i * wide, NULL, p + i, panel, wide, n);
}

void WF_SIMD(wf_tile_add_lanes)(float *to, const float *p, const float *rows, int64_t wide,
                                int64_t lanes, wf_sight sight)
{
    int64_t c = 0;
    for (; c + VECTORS * WF_VL <= wide; c += VECTORS * WF_VL)
        for (int64_t r = sight.begin; r < sight.end; r += ROWS)
            block_product(VECTORS, false, NULL, p + r * LANES, LANES, 1, rows + c, wide, lanes,
                          to + r * wide + c, wide);
    for (; c < wide; c += WF_VL)
        for (int64_t r = sight.begin; r < sight.end; r += ROWS)
            block_product(1, false, NULL, p + r * LANES, LANES, 1, rows + c, wide, lanes,
                          to + r * wide + c, wide);
}

/* x * 0 is 0 for finite x and NaN otherwise, so one sum finds any infinity or NaN. */
bool WF_SIMD(wf_panel_finite)(const float *panel, int64_t wide, int64_t n)
{
    vf sum = vf_zero();
    for (int64_t i = 0; i < n * wide; i += WF_VL)
        sum = vf_fma(vf_load(panel + i), vf_zero(), sum);
    return !vm_any(vf_nan(sum));
}

static void add_scaled(float *to, float a, const float *x, int64_t wide)
{
    for (int64_t c = 0; c < wide; c += WF_VL)
        vf_store(to + c, vf_fma(vf_set(a), vf_load(x + c), vf_load(to + c)));
}

/* For panels with Inf or NaN: only visible pairs may be multiplied, as 0 * Inf is NaN. */
void WF_SIMD(wf_tile_add_keys_seen)(float *to, const float *scale, const float *p,
                                    const float *panel, int64_t wide, wf_sight sight,
                                    const wf_lanes *t, const wf_key_block *b)
{
    for (int64_t i = 0; i < t->n; i++) {
        for (int64_t c = 0; scale && c < wide; c++)
            to[i * wide + c] *= scale[i];
        for (int64_t j = sight.begin; j < sight.end; j++)
            if (lane_sees(t, i, b, j))
                add_scaled(to + i * wide, p[j * LANES + i], panel + j * wide, wide);
    }
}

void WF_SIMD(wf_tile_add_lanes_seen)(float *to, const float *p, const float *rows, int64_t wide,
                                     wf_sight sight, const wf_lanes *t, const wf_key_block *b)
{
    for (int64_t j = sight.begin; j < sight.end; j++)
        for (int64_t i = 0; i < t->n; i++)
            if (lane_sees(t, i, b, j))
                add_scaled(to + j * wide, p[j * LANES + i], rows + i * wide, wide);
}

/* ---- Rows without a sequence ---- */

void WF_SIMD(wf_attention_clear)(const wf_attention_problem *o, const wf_view *x)
{
    /* Tokens before the first and after the last sequence. */
    int64_t first = o->start[0], last = o->start[o->sequences];
    if (!x->data)
        return;
    for (int64_t i = 0; i < o->n; i++) {
        if (i == first && first < last)
            i = last;
        for (int64_t h = 0; i < o->n && h < x->dim[1]; h++)
            memset((char *)x->data +
                       (i * x->stride[0] + h * x->stride[1]) * wf_type_get(x->type)->block_bytes,
                   0, wf_type_bytes(x->type, x->dim[2]));
    }
}

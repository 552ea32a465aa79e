/* SPDX-License-Identifier: MIT */
/*
 * random_graph.c - recipes, and the maker that turns one into a graph: the pool of values that
 * steps pick operands from, the sources, and estimates of magnitudes.
 */
#include "base/hash.h"
#include "random_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_PER_STEP 3.1 /* average without gradients, measured by test_random_graph.c */

/* ---- Decisions ---- */

int64_t rg_draw(rg_maker *m, int64_t n)
{
    return (int64_t)wf_rng_below(&m->rng, (uint64_t)n);
}

uint64_t rg_hash(const char *text, uint64_t salt)
{
    uint64_t h = wf_hash_fnv1a_string(WF_FNV1A ^ salt, text);
    h = (h ^ h >> 33) * 0xff51afd7ed558ccdu;
    return h ^ h >> 33; /* FNV-1a alone leaves the high bits of short strings similar */
}

static wf_type allowed(const rg_maker *m, wf_type type)
{
    wf_type_set only = m->recipe->options.only;
    bool narrow = type == WF_F16 || type == WF_BF16;
    return narrow && only && !(only & wf_type_bit(type)) ? WF_F32 : type;
}

wf_type rg_type(rg_maker *m)
{
    static const wf_type types[] = {WF_F32, WF_F32, WF_F32, WF_BF16, WF_F16};
    return allowed(m, types[rg_draw(m, 5)]);
}

/* ---- Magnitudes ---- */

bool rg_has_kink(wf_op op)
{
    switch (op) {
    case WF_OP_relu:
    case WF_OP_maximum:
    case WF_OP_minimum:
    case WF_OP_max: return true;
    default: return false;
    }
}

static double size_of_source(const rg_maker *m, const wf_node *n)
{
    double limit;
    if (rg_name_has_limit(n->name, &limit))
        return limit;
    if (n->name[0] == 'u')
        return 100;
    return m->recipe->options.smooth ? 1 : 3;
}

static double reduced(const wf_node *n)
{
    int64_t to = wf_value_count(&n->out[0]);
    return to > 0 ? (double)wf_value_count(n->in[0]) / (double)to : 0;
}

/* A matmul with fresh weights adds terms of random sign, and its weights are scaled for that. Other
 * operands may be constants, whose terms all have one sign. */
static double size_of_product(const wf_node *n, double a, double b)
{
    const wf_node *w = n->in[1]->node;
    if (w->op == WF_OP_state && w->name[0] == 'w')
        return 2 * a;
    const wf_attr_matmul *t = n->op == WF_OP_matmul ? n->attr : NULL;
    const wf_dims *d = &n->in[0]->shape;
    return a * b * (double)d->d[d->n - (t && t->transpose_a ? 2 : 1)];
}

/* Estimates the magnitude of output 0 from those of the operands. A typical value, not a bound. */
static double size_of_node(const rg_maker *m, const wf_node *n)
{
    double a = n->nin > 0 ? m->size[n->in[0]->node->id] : 0;
    double b = n->nin > 1 ? m->size[n->in[1]->node->id] : 0, largest = a;
    for (int i = 1; i < n->nin; i++)
        largest = fmax(largest, m->size[n->in[i]->node->id]);
    if (n->backward)
        return 100;
    switch (n->op) {
    case WF_OP_input:
    case WF_OP_state: return size_of_source(m, n);
    case WF_OP_fill: return fabs(((const wf_attr_fill *)n->attr)->value);
    case WF_OP_iota: return (double)wf_value_count(&n->out[0]);
    case WF_OP_scale: return a * fabs(((const wf_attr_scale *)n->attr)->factor);
    case WF_OP_dropout: return a / (1 - ((const wf_attr_dropout *)n->attr)->p);
    case WF_OP_uniform:
    case WF_OP_softmax:
    case WF_OP_tanh:
    case WF_OP_sin:
    case WF_OP_cos:
    case WF_OP_sigmoid:
    case WF_OP_erf: return 1;
    case WF_OP_add:
    case WF_OP_sub:
    case WF_OP_accumulate: return a + b;
    case WF_OP_scatter_add_rows: return a + 3 * m->size[n->in[2]->node->id];
    case WF_OP_mul:
    case WF_OP_glu: return a * b;
    case WF_OP_relu2: return a * a;
    case WF_OP_div: return 3 * a; /* the divisor is positive */
    case WF_OP_exp:
    case WF_OP_expm1: return exp(fmin(a, 80));
    case WF_OP_log: return 1 + log(1 + a);
    case WF_OP_sqrt: return sqrt(a);
    case WF_OP_rsqrt: return 1.7;
    case WF_OP_sum: return a * reduced(n);
    case WF_OP_global_norm: return largest * 8;
    case WF_OP_matmul:
    case WF_OP_linear: return size_of_product(n, a, b);
    case WF_OP_layer_norm:
    case WF_OP_rms_norm: return fmin(2, sqrt((double)wf_dims_last(&n->in[0]->shape)));
    case WF_OP_attention: return m->size[n->in[2]->node->id];
    case WF_OP_cross_entropy: return a + 3;
    case WF_OP_assign: return b;
    case WF_OP_where: return fmax(b, m->size[n->in[2]->node->id]);
    default: return largest;
    }
}

double rg_size(rg_maker *m, const wf_value *v)
{
    if (!v)
        fail_msg("a random graph was not legal: %s; WEFT_SEED=%llu", m->g->message,
                 (unsigned long long)m->recipe->seed);
    for (; m->sized <= v->node->id; m->sized++) {
        if (m->sized == m->size_cap) {
            m->size_cap = 2 * m->size_cap + 1000;
            m->size = realloc(m->size, (size_t)m->size_cap * sizeof *m->size);
            assert_non_null(m->size);
        }
        m->size[m->sized] = size_of_node(m, m->g->nodes[m->sized]);
    }
    return v->index > 0 ? 100 : m->size[v->node->id]; /* statistics have no estimate */
}

wf_value *rg_settle(rg_maker *m, wf_value *v)
{
    double size = rg_size(m, v);
    if (size <= m->cap || !(wf_type_bit(v->type) & WF_TYPES_FLOAT))
        return v;
    if (m->recipe->options.smooth) { /* steep slopes amplify errors as much as jumps */
        v = wf_scale(m->g, v, m->cap / size);
        return rg_chance(m, 2) ? wf_tanh(m->g, v) : v;
    }
    switch (rg_draw(m, 5)) {
    case 0: return wf_sin(m->g, v);
    case 1: return wf_sigmoid(m->g, v);
    case 2: /* clamped */
        return wf_minimum(m->g, wf_maximum(m->g, v, wf_like(m->g, v, -2)), wf_like(m->g, v, 2));
    case 3:
        if (v->shape.n > 0 && wf_dims_last(&v->shape) > 1)
            return wf_rms_norm(m->g, v, NULL, 0.1);
        /* fall through */
    default: return wf_tanh(m->g, v);
    }
}

/* ---- The pool ---- */

bool rg_readable(const rg_maker *m, const wf_value *v)
{
    const wf_value *root = wf_value_root(v);
    return !root->state || root == rg_newest(m, root->state);
}

wf_value *rg_newest(const rg_maker *m, const wf_node *state)
{
    for (int i = 0; i < m->state_count; i++)
        if (m->states[i]->state == state)
            return m->states[i];
    return NULL;
}

static bool suits(rg_maker *m, const rg_entry *e, const rg_want *want)
{
    int64_t count = wf_dims_count(&e->shape);
    wf_type_set types = want->types ? want->types : WF_TYPES_FLOAT;
    int max_rank = want->max_rank ? want->max_rank : WF_MAX_RANK;
    if (!(wf_type_bit(e->type) & types) || e->shape.n < want->min_rank || e->shape.n > max_rank)
        return false;
    if (count > (want->max_count ? want->max_count : RG_MAX_COUNT) || (want->full && count == 0))
        return false;
    if (want->shape && !wf_dims_equal(want->shape, &e->shape))
        return false;
    if (e->value && !want->wild && wf_type_bit(e->type) & WF_TYPES_FLOAT &&
        rg_size(m, e->value) > m->cap)
        return false;
    wf_value unmade = {.type = e->type, .shape = e->shape};
    return !want->fits || want->fits(m, e->value ? e->value : &unmade, want->arg);
}

/* Creates an initial source on its first use, so that a graph of few steps has few sources. */
static wf_value *value_of(rg_maker *m, int index)
{
    rg_entry *e = &m->pool[index];
    if (e->value)
        return e->value;
    if (e->name[0] == 'p')
        return e->value = rg_state(m, e->name, e->type, (int)e->shape.n, e->shape.d);
    return e->value = rg_input(m, e->name, e->type, (int)e->shape.n, e->shape.d);
}

/* Draws a step index, biased towards late steps, and returns the nearest value that satisfies
 * `want`. The result stays the same when unrelated steps are left out. */
wf_value *rg_pick(rg_maker *m, const rg_want *want)
{
    uint64_t range = 1 + wf_rng_below(&m->picking, (uint64_t)m->step + 6);
    range = 1 + wf_rng_below(&m->picking, range);
    int64_t target = m->step - (int64_t)wf_rng_below(&m->picking, range);
    uint64_t salt = wf_rng_below(&m->picking, 1024), best = UINT64_MAX;
    int found = -1;
    for (int i = 0; i < m->pool_count; i++) {
        const rg_entry *e = &m->pool[i];
        uint64_t key = (uint64_t)llabs(e->step - target) << 10 | (((uint64_t)e->k ^ salt) & 1023);
        if (key < best && suits(m, e, want)) {
            best = key;
            found = i;
        }
    }
    return found >= 0 ? value_of(m, found) : NULL;
}

wf_value *rg_pick_float(rg_maker *m, int min_rank, int max_rank, int64_t max_count)
{
    return rg_pick(
        m, &(rg_want){
               .min_rank = min_rank, .max_rank = max_rank, .max_count = max_count, .full = true});
}

static bool goes_with(rg_maker *m, const wf_value *b, void *arg)
{
    const wf_value *a = arg;
    wf_dims shape;
    (void)m;
    return b->type == a->type && wf_dims_broadcast(&a->shape, &b->shape, &shape) &&
           wf_dims_count(&shape) <= RG_MAX_COUNT &&
           (wf_dims_count(&shape) > 0) == (wf_value_count(a) > 0);
}

wf_value *rg_partner(rg_maker *m, wf_value *a)
{
    wf_value *b =
        rg_pick(m, &(rg_want){.types = wf_type_bit(a->type), .fits = goes_with, .arg = a});
    return b ? b : a;
}

static void take(rg_maker *m, wf_value *v)
{
    static const uint32_t marks[16] = {[3] = WF_MARK_BLOCK, [7] = WF_MARK_RECOMPUTE};
    char name[32];
    uint64_t word = wf_rng_u64(&m->naming);
    bool source = wf_node_is(v->node, WF_FLAG_SOURCE);
    bool quiet = m->recipe->quiet[m->step];
    assert_true(m->pool_count < RG_MAX_POOL);
    if (!source)
        v->marks |= marks[word >> 16 & 15];
    snprintf(name, sizeof name, "s%d.%d", m->step, m->made);
    if (m->recipe->options.all || (word % 8 == 0 && !quiet && !source))
        wf_output(m->g, name, v);
    if (!source || rg_name_is_plain(v->node->name))
        m->pool[m->pool_count++] = (rg_entry){v, NULL, v->type, v->shape, m->step, m->made};
    m->made++;
}

void rg_flush(rg_maker *m)
{
    int before = m->taken, after = m->g->node_count;
    if (m->g->status != WF_OK)
        fail_msg("a random graph was not legal: %s; WEFT_SEED=%llu", m->g->message,
                 (unsigned long long)m->recipe->seed);
    for (int i = before; i < after; i++) {
        wf_node *n = m->g->nodes[i];
        for (int k = 0; k < n->nout; k++)
            take(m, &n->out[k]);
    }
    m->taken = m->g->node_count; /* copies made for outputs belong to no step */
}

void rg_retire(rg_maker *m, wf_value *updated)
{
    if (!updated)
        fail_msg("a random update was not legal: %s; WEFT_SEED=%llu", m->g->message,
                 (unsigned long long)m->recipe->seed);
    for (int i = 0; i < updated->node->nout; i++)
        for (int k = 0; k < m->state_count; k++)
            if (m->states[k]->state == updated->node->out[i].state)
                m->states[k] = &updated->node->out[i];
    int left = 0;
    for (int i = 0; i < m->pool_count; i++)
        if (!m->pool[i].value || rg_readable(m, m->pool[i].value))
            m->pool[left++] = m->pool[i];
    m->pool_count = left;
    rg_flush(m);
}

/* ---- Sources ---- */

wf_value *rg_input(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims)
{
    for (int i = 0; i < m->g->node_count; i++)
        if (m->g->nodes[i]->op == WF_OP_input && strcmp(m->g->nodes[i]->name, name) == 0)
            return &m->g->nodes[i]->out[0];
    return wf_input(m->g, name, type, rank, dims);
}

wf_value *rg_state(rg_maker *m, const char *name, wf_type type, int rank, const int64_t *dims)
{
    for (int i = 0; i < m->state_count; i++)
        if (strcmp(m->states[i]->state->name, name) == 0)
            return m->states[i];
    assert_true(m->state_count < RG_MAX_STATES);
    wf_value *v = wf_state(m->g, name, type, rank, dims);
    if (v)
        m->states[m->state_count++] = v;
    return v;
}

wf_value *rg_new_state(rg_maker *m, const char *letters, int rank, const int64_t *dims)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%d.%d", letters, m->step, m->serial++);
    return rg_state(m, name, rg_type(m), rank, dims);
}

wf_value *rg_ids(rg_maker *m, int64_t limit, int rank, const int64_t *dims)
{
    char name[32];
    snprintf(name, sizeof name, "id%lld.%d.%d", (long long)limit, m->step, m->serial++);
    return rg_input(m, name, WF_I32, rank, dims);
}

wf_value *rg_key(rg_maker *m)
{
    return rg_input(m, "key", WF_I32, 1, (int64_t[]){3});
}

wf_value *rg_flag(rg_maker *m)
{
    char name[16];
    snprintf(name, sizeof name, "flag%d", (int)rg_draw(m, 3));
    return rg_input(m, name, WF_U8, 0, NULL);
}

/* The sources that a graph can start from. */
static const struct {
    const char *name;
    wf_type type;
    wf_dims shape;
} beginnings[] = {
    {"x.tokens", WF_F32, {2, {6, 8}}},  {"x.batch", WF_F32, {3, {2, 3, 4}}},
    {"x.bf16", WF_BF16, {2, {4, 6}}},   {"x.f16", WF_F16, {2, {6, 8}}},
    {"x.row", WF_F32, {1, {8}}},        {"p.table", WF_F32, {2, {6, 8}}},
    {"p.cube", WF_F32, {3, {3, 3, 4}}}, {"p.bf16", WF_BF16, {2, {6, 4}}},
    {"p.f16", WF_F16, {1, {6}}},        {"p.batch", WF_F32, {3, {2, 3, 4}}},
    {"mask.rows", WF_U8, {2, {6, 1}}},  {"mask.cols", WF_U8, {1, {4}}},
};

static void begin(rg_maker *m)
{
    for (int i = 0; i < (int)(sizeof beginnings / sizeof *beginnings); i++)
        m->pool[m->pool_count++] = (rg_entry){NULL,
                                              beginnings[i].name,
                                              allowed(m, beginnings[i].type),
                                              beginnings[i].shape,
                                              -1 - i % 5,
                                              i};
}

/* ---- Recipes ---- */

rg_recipe rg_recipe_make(uint64_t seed, const rg_options *options)
{
    rg_recipe r = {.seed = seed, .options = options ? *options : (rg_options){0}};
    if (r.options.nodes == 0)
        r.options.nodes = 60;
    int steps = (int)((r.options.nodes + NODES_PER_STEP) / NODES_PER_STEP);
    r.step_count = steps < RG_MAX_STEPS ? steps : RG_MAX_STEPS;
    return r;
}

/* Relative frequency of a kind of step. Graphs with gradients have neither gradients nor updates in
 * their first half: nothing behind an update is differentiated. */
static int weight_of(const rg_recipe *recipe, int step, const rg_step *s)
{
    const rg_options *o = &recipe->options;
    bool early = o->grad && step < recipe->step_count / 2;
    switch (s->kind) {
    case RG_JUMPS: return o->smooth ? 0 : s->weight;
    case RG_UPDATES: return early ? 0 : s->weight;
    case RG_JUMPING_UPDATES: return early || o->smooth ? 0 : s->weight;
    case RG_GRAD: return early || !o->grad ? 0 : s->weight;
    default: return s->weight;
    }
}

/* The first draw of a step's stream selects its kind. */
static const rg_step *choose(const rg_recipe *recipe, int step, wf_rng *rng)
{
    int total = 0;
    for (const rg_step *s = rg_steps; s->name; s++)
        total += weight_of(recipe, step, s);
    int64_t left = (int64_t)wf_rng_below(rng, (uint64_t)total);
    for (const rg_step *s = rg_steps;; s++) {
        left -= weight_of(recipe, step, s);
        if (left < 0)
            return s;
    }
}

const char *rg_step_name(const rg_recipe *recipe, int step)
{
    wf_rng rng;
    wf_rng_init(&rng, recipe->seed, 3 * (uint64_t)step);
    return choose(recipe, step, &rng)->name;
}

wf_status rg_build(wf_ctx *ctx, const rg_recipe *recipe, wf_graph **out)
{
    WF_TRY(wf_graph_new(ctx, out));
    rg_maker *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->g = *out;
    m->recipe = recipe;
    m->cap = recipe->options.smooth ? 2 : 8;
    begin(m);
    for (m->step = 0; m->step < recipe->step_count; m->step++) {
        if (recipe->off[m->step])
            continue;
        m->made = m->serial = 0;
        wf_rng_init(&m->rng, recipe->seed, 3 * (uint64_t)m->step);
        wf_rng_init(&m->picking, recipe->seed, 3 * (uint64_t)m->step + 1);
        wf_rng_init(&m->naming, recipe->seed, 3 * (uint64_t)m->step + 2);
        choose(recipe, m->step, &m->rng)->add(m);
        rg_flush(m);
    }
    if ((*out)->output_count == 0 || recipe->options.all)
        wf_output(*out, "none", wf_fill(*out, WF_F32, 0, NULL, 0));
    free(m->size);
    free(m);
    return wf_graph_verify(*out);
}

void rg_print(const rg_recipe *recipe, const wf_graph *g)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        char text[1024] = "";
        size_t len = 0;
        wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, text, sizeof text, &len);
        print_message("  %%%d = %s", i, text);
        for (int k = 0; k < n->nin; k++)
            print_message(n->in[k]->index ? " %%%d.%d" : " %%%d", n->in[k]->node->id,
                          n->in[k]->index);
        print_message("%s%s%s\n", n->name ? " " : "", n->name ? n->name : "",
                      n->backward ? " (backward)" : "");
    }
    for (int i = 0; i < g->output_count; i++)
        print_message("  output %s = %%%d.%d\n", g->outputs[i].name, g->outputs[i].value->node->id,
                      g->outputs[i].value->index);
    print_message("WEFT_SEED=%llu makes it again; %d nodes from the steps",
                  (unsigned long long)recipe->seed, g->node_count);
    for (int i = 0; i < recipe->step_count; i++)
        if (!recipe->off[i])
            print_message(" %d (%s)", i, rg_step_name(recipe, i));
    print_message("\n");
}

/* SPDX-License-Identifier: MIT */
/* random_run.c - runs of random graphs: contents of their sources, comparison of results, and
 * shrinking. */
#include "random_priv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/pass/rewrite.h"
#include "selftest/number.h"

/* ---- Contents ---- */

/* The source to fill. `limit` is the number after the letters of its name, 0 without one. */
typedef struct {
    wf_rng rng;
    const rg_recipe *recipe;
    int64_t limit, count, last;
    double *to;
} contents;

/* Random values of mean 0; bounded when the graph must be smooth. */
static double noise(contents *c)
{
    if (c->recipe->options.smooth)
        return 2 * wf_rng_unit(&c->rng) - 1;
    double x = wf_rng_normal(&c->rng);
    return fabs(x) < 3 ? x : 3 / x;
}

#define EACH(c, expression)                  \
    for (int64_t i = 0; i < (c)->count; i++) \
    (c)->to[i] = (expression)

static void fill_plain(contents *c)
{
    EACH(c, noise(c));
}

static void fill_weight(contents *c)
{
    EACH(c, noise(c) / sqrt((double)(c->last > 0 ? c->last : 1)));
}

static void fill_gamma(contents *c)
{
    EACH(c, 1 + 0.2 * noise(c));
}

static void fill_little(contents *c)
{
    EACH(c, 0.1 * noise(c));
}

static void fill_unit(contents *c) /* second moments, factors: positive */
{
    EACH(c, 0.25 + 0.5 * wf_rng_unit(&c->rng));
}

static void fill_one(contents *c) /* of rg_nudge_nodes */
{
    EACH(c, 1);
}

static void fill_rate(contents *c)
{
    EACH(c, 0.01);
}

static void fill_flag(contents *c)
{
    EACH(c, (double)wf_rng_below(&c->rng, 2));
}

static void fill_id(contents *c)
{
    EACH(c, (double)wf_rng_below(&c->rng, (uint64_t)c->limit));
}

static void fill_target(contents *c)
{
    EACH(c,
         wf_rng_below(&c->rng, 6) == 0 ? -100 : (double)wf_rng_below(&c->rng, (uint64_t)c->limit));
}

static void fill_count(contents *c)
{
    EACH(c, 1 + (double)wf_rng_below(&c->rng, 5));
}

static void fill_key(contents *c)
{
    EACH(c, (double)wf_rng_below(&c->rng, 1000000));
}

static void fill_freq(contents *c)
{
    EACH(c, 1 / (1 + 3 * (double)i));
}

/* Start offsets of the 1 + limit % 3 sequences in `limit` rows; the last one ends at the last
 * row. */
static int64_t starts(const contents *c, double start[4])
{
    int64_t n = 1 + c->limit % 3;
    for (int64_t s = 0; s <= n; s++)
        start[s] = (double)(s * c->limit / n);
    if (n > 1) /* the first sequence has any length, 0 included */
        start[1] = (double)((c->recipe->seed >> 7) % (uint64_t)(start[2] + 1));
    return n;
}

static void fill_start(contents *c)
{
    double start[4];
    starts(c, start);
    EACH(c, start[i]);
}

static void fill_pos(contents *c)
{
    double start[4];
    int64_t n = starts(c, start), s = 0;
    for (int64_t i = 0; i < c->count; i++) {
        while (s + 1 < n && (double)i >= start[s + 1])
            s++;
        c->to[i] = (double)i - start[s];
    }
}

static const struct {
    const char *letters;
    void (*fill)(contents *c);
    bool plain; /* an ordinary value, which every step may use */
} kinds[] = {
    {"x", fill_plain, true},        {"p", fill_plain, true},      {"w", fill_weight, true},
    {"gamma", fill_gamma, true},    {"beta", fill_little, true},  {"bias", fill_little, true},
    {"m", fill_little, true},       {"u", fill_little, true},     {"v", fill_unit, true},
    {"mask", fill_flag, true},      {"flag", fill_flag, true},    {"id", fill_id, true},
    {"target", fill_target, false}, {"start", fill_start, false}, {"pos", fill_pos, false},
    {"freq", fill_freq, false},     {"key", fill_key, false},     {"lr", fill_rate, false},
    {"count", fill_count, false},   {"factor", fill_unit, false}, {"nudge", fill_one, false},
};

/* Returns -1 when the generator did not make this name. */
static int kind_of(const char *name, int64_t *limit)
{
    size_t n = 0;
    while (islower((unsigned char)name[n]))
        n++;
    *limit = strtoll(name + n, NULL, 10);
    for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); i++)
        if (strlen(kinds[i].letters) == n && memcmp(kinds[i].letters, name, n) == 0)
            return i;
    return -1;
}

bool rg_name_is_plain(const char *name)
{
    int64_t limit;
    int kind = kind_of(name, &limit);
    return kind >= 0 && kinds[kind].plain;
}

bool rg_name_has_limit(const char *name, double *limit)
{
    int64_t n;
    int kind = kind_of(name, &n);
    *limit = (double)n;
    return kind >= 0 && kinds[kind].fill == fill_id;
}

static void nudge(contents *c, const char *name)
{
    wf_rng rng;
    wf_rng_init(&rng, c->recipe->seed + 1, rg_hash(name, c->recipe->options.draw));
    for (int64_t i = 0; i < c->count; i++)
        c->to[i] *= 1 + c->recipe->options.nudge * (2 * wf_rng_unit(&rng) - 1);
}

/* Returns the contents of a source, or NULL when the generator did not make this name. Caller
 * frees. */
static void *make_contents(const rg_recipe *recipe, const wf_info *info)
{
    contents c = {.recipe = recipe, .count = 1};
    int kind = kind_of(info->name, &c.limit);
    if (kind < 0)
        return NULL;
    for (int i = 0; i < info->rank; i++)
        c.count *= info->dim[i];
    c.last = info->rank > 0 ? info->dim[info->rank - 1] : 1;
    c.to = calloc((size_t)c.count + 1, sizeof *c.to);
    void *bytes = malloc(info->bytes + 1);
    assert_true(c.to && bytes);
    uint64_t stream = rg_hash(info->name, 0) | 1ull << 63; /* steps use other streams */
    wf_rng_init(&c.rng, recipe->seed, stream);
    kinds[kind].fill(&c);
    if (recipe->options.nudge != 0 && info->type == WF_F32)
        nudge(&c, info->name);
    wf_numbers_store(info->type, c.to, bytes, c.count);
    free(c.to);
    return bytes;
}

wf_status rg_write(const rg_recipe *recipe, wf_session *session, wf_exec *exec)
{
    wf_info info;
    wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && wf_exec_input(exec, i, &info); i++) {
        void *bytes = make_contents(recipe, &info);
        if (bytes)
            status = wf_exec_write(exec, info.name, bytes, info.bytes);
        free(bytes);
    }
    for (int i = 0; status == WF_OK && wf_session_state(session, i, &info); i++) {
        void *bytes = make_contents(recipe, &info);
        if (bytes)
            status = wf_session_write(session, info.name, bytes, info.bytes);
        free(bytes);
    }
    return status;
}

wf_status rg_nudge_nodes(wf_graph *g)
{
    wf_rewrite r;
    WF_TRY(wf_rewrite_begin(g, &r));
    for (int i = 0; i < r.count; i++) {
        const wf_node *n = g->nodes[i];
        if (wf_node_is(n, WF_FLAG_SOURCE | WF_FLAG_VIEW | WF_FLAG_UPDATE))
            continue;
        wf_rewrite_before(&r, n);
        g->backward = n->backward;
        /* A copy of n: the rewrite replaces n in new nodes as well. */
        wf_value *copy = wf_node_add(g, n->op, n->attr, NULL, n->in, n->nin);
        for (int k = 0; copy && k < n->nout; k++) {
            const wf_dims *shape = &n->out[k].shape;
            wf_value *v = copy + k;
            char name[32];
            snprintf(name, sizeof name, "nudge.%d.%d", i, k);
            if (v->type == WF_F32)
                v = wf_mul(g, v, wf_input(g, name, WF_F32, (int)shape->n, shape->d));
            wf_rewrite_replace(&r, &n->out[k], v);
        }
        wf_rewrite_drop(&r, n);
    }
    g->backward = false;
    WF_TRY(wf_rewrite_end(&r, WF_OK));
    return wf_graph_verify(g);
}

/* ---- Results ---- */

static void list(rg_results *r, const char *name, const wf_value *v, bool state, size_t *end)
{
    rg_item *item = &r->item[r->count++];
    int64_t count = wf_value_count(v);
    *item = (rg_item){.state = state,
                      .type = v->type,
                      .shape = v->shape,
                      .count = count,
                      .offset = *end,
                      .bytes = wf_type_bytes(v->type, count)};
    snprintf(item->name, sizeof item->name, "%s", name);
    *end += (item->bytes + 15) / 16 * 16;
}

void rg_outputs(const wf_graph *g, rg_results *out)
{
    size_t end = 0;
    *out = (rg_results){
        .item = calloc((size_t)(g->output_count + g->node_count) + 1, sizeof *out->item)};
    assert_non_null(out->item);
    for (int i = 0; i < g->output_count; i++)
        list(out, g->outputs[i].name, g->outputs[i].value, false, &end);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            list(out, g->nodes[i]->name, &g->nodes[i]->out[0], true, &end);
    out->data = calloc(end + 1, 1);
    assert_non_null(out->data);
}

void rg_results_free(rg_results *r)
{
    free(r->item);
    free(r->data);
    *r = (rg_results){0};
}

const rg_item *rg_find(const rg_results *r, const char *name, bool state)
{
    for (int i = 0; i < r->count; i++)
        if (r->item[i].state == state && strcmp(r->item[i].name, name) == 0)
            return &r->item[i];
    return NULL;
}

wf_status rg_compile(wf_session *session, wf_graph *graph, void *user, wf_exec **out)
{
    const wf_compile_options as_written = {.without = WF_PASS_FOLD | WF_PASS_FUSE};
    return wf_compile_with(session, graph, user ? user : &as_written, out);
}

/* A state that no node reads may be missing from the session: it still has its initial contents. */
static wf_status read_state(wf_session *session, const rg_recipe *recipe, const rg_item *item,
                            void *to)
{
    wf_info info;
    for (int i = 0; wf_session_state(session, i, &info); i++)
        if (strcmp(info.name, item->name) == 0)
            return wf_session_read(session, item->name, to, item->bytes);
    info = (wf_info){item->name, item->type, (int)item->shape.n, {0}, item->bytes};
    memcpy(info.dim, item->shape.d, sizeof info.dim);
    void *bytes = make_contents(recipe, &info);
    assert_non_null(bytes);
    memcpy(to, bytes, item->bytes);
    free(bytes);
    return WF_OK;
}

static wf_status run_and_read(wf_session *session, wf_exec *exec, const rg_recipe *recipe, int runs,
                              rg_results *out)
{
    WF_TRY(rg_write(recipe, session, exec));
    for (int i = 0; i < runs; i++)
        WF_TRY(wf_exec_run(exec));
    for (int i = 0; i < out->count; i++) {
        const rg_item *item = &out->item[i];
        void *to = out->data + item->offset;
        if (item->state)
            WF_TRY(read_state(session, recipe, item, to));
        else
            WF_TRY(wf_exec_read(exec, item->name, to, item->bytes));
    }
    wf_exec_memory(exec, &out->memory);
    return WF_OK;
}

wf_status rg_run(wf_ctx *ctx, const char *device, wf_graph *g, const rg_recipe *recipe, int runs,
                 rg_compile_fn *compile, void *user, rg_results *out)
{
    wf_device *d = NULL;
    wf_session *session = NULL;
    wf_exec *exec = NULL;
    rg_outputs(g, out);
    wf_status status = wf_device_open(ctx, device, &d);
    if (status == WF_OK)
        status = wf_session_new(d, &session);
    if (status == WF_OK)
        status = compile(session, g, user, &exec);
    if (status == WF_OK)
        status = run_and_read(session, exec, recipe, runs, out);
    wf_exec_free(exec);
    wf_session_free(session);
    wf_device_close(d);
    if (status != WF_OK)
        rg_results_free(out);
    return status;
}

/* ---- Comparisons ---- */

static bool is_float(wf_type type)
{
    return (wf_type_bit(type) & WF_TYPES_FLOAT) != 0;
}

static double largest(const rg_item *item, const unsigned char *data)
{
    double most = 0;
    for (int64_t i = 0; i < item->count; i++) {
        double x = fabs(wf_number_load(item->type, data + item->offset, i));
        most = isfinite(x) && x > most ? x : most;
    }
    return most;
}

/* Finds the worst element of one item. `allowed` 0 requires equal bits. */
static void compare_item(const rg_item *a, const unsigned char *got, const rg_item *b,
                         const unsigned char *wanted, double allowed, rg_verdict *worst)
{
    size_t one = wf_type_bytes(a->type, 1);
    for (int64_t i = 0; i < a->count; i++) {
        const unsigned char *p = got + a->offset, *q = wanted + b->offset;
        if (memcmp(p + (size_t)i * one, q + (size_t)i * one, one) == 0)
            continue;
        double x = wf_number_load(a->type, p, i), y = wf_number_load(a->type, q, i);
        double error = is_float(a->type) && allowed > 0 ? fabs(x - y) / allowed : INFINITY;
        if (isnan(x) && isnan(y) && allowed > 0)
            continue;
        if (!(error <= worst->error))
            *worst = (rg_verdict){!(error <= 1), a->name, i, x, y, isnan(error) ? INFINITY : error};
    }
}

/* Returns the largest change of the item of `wanted` in the nudged runs. */
static double spread(const rg_item *item, const rg_results *wanted, const rg_results *nudged,
                     int runs)
{
    double most = 0;
    for (int r = 0; r < runs; r++) {
        const rg_item *other = rg_find(&nudged[r], item->name, item->state);
        assert_non_null(other);
        for (int64_t i = 0; i < item->count; i++) {
            double x = wf_number_load(item->type, wanted->data + item->offset, i);
            double y = wf_number_load(item->type, nudged[r].data + other->offset, i);
            most = fabs(x - y) > most ? fabs(x - y) : most;
        }
    }
    return most;
}

static rg_verdict compare(const rg_results *got, const rg_results *wanted, double bound,
                          double floor, const rg_results *nudged, int runs)
{
    rg_verdict worst = {0};
    for (int i = 0; i < got->count; i++) {
        const rg_item *a = &got->item[i], *b = rg_find(wanted, a->name, a->state);
        if (!b || b->type != a->type || b->count != a->count)
            return (rg_verdict){.failed = true, .name = a->name, .index = -1, .error = INFINITY};
        double allowed = bound > 0 ? bound * fmax(largest(b, wanted->data), floor) : 0;
        if (runs > 0 && is_float(b->type))
            allowed = fmax(allowed, 4 * spread(b, wanted, nudged, runs));
        compare_item(a, got->data, b, wanted->data, allowed, &worst);
    }
    return worst;
}

rg_verdict rg_compare_bits(const rg_results *got, const rg_results *wanted)
{
    return compare(got, wanted, 0, 0, NULL, 0);
}

rg_verdict rg_compare_close(const rg_results *got, const rg_results *wanted, double bound,
                            double floor)
{
    return compare(got, wanted, bound, floor, NULL, 0);
}

rg_verdict rg_compare_nudged(const rg_results *got, const rg_results *wanted, double bound,
                             double floor, const rg_results *nudged, int runs)
{
    return compare(got, wanted, bound, floor, nudged, runs);
}

/* ---- Shrinking ---- */

/* Tries to set flags in [0, n), `size` neighbours at a time, and keeps those with which the recipe
 * still fails. Returns whether it kept any. */
static bool set_runs(rg_recipe *recipe, bool *flags, int n, int size, rg_fails_fn *fails,
                     void *user, int *tries)
{
    bool any = false;
    for (int begin = n; begin > 0;) { /* from the end: values without a reader go first */
        bool before[RG_MAX_STEPS];
        int set = 0;
        memcpy(before, flags, sizeof before);
        for (; begin > 0 && set < size; begin--)
            if (!flags[begin - 1]) {
                flags[begin - 1] = true;
                set++;
            }
        if (set == 0)
            break;
        ++*tries;
        if (fails(recipe, user))
            any = true;
        else
            memcpy(flags, before, sizeof before);
    }
    return any;
}

/* Tries single flags until a whole round removes nothing: one step may be removable only after
 * another. */
static int set_all(rg_recipe *recipe, bool *flags, rg_fails_fn *fails, void *user)
{
    int n = recipe->step_count, tries = 0;
    for (int size = (n + 1) / 2; size > 1; size = (size + 1) / 2)
        set_runs(recipe, flags, n, size, fails, user, &tries);
    while (set_runs(recipe, flags, n, 1, fails, user, &tries))
        ;
    return tries;
}

int rg_shrink(rg_recipe *recipe, rg_fails_fn *fails, void *user)
{
    int tries = set_all(recipe, recipe->off, fails, user);
    tries += set_all(recipe, recipe->quiet, fails, user);
    /* Only the removed outputs needed them */
    return tries + set_all(recipe, recipe->off, fails, user);
}

void rg_report(wf_ctx *ctx, const rg_recipe *recipe, const char *reason, rg_fails_fn *fails,
               void *user)
{
    rg_recipe least = *recipe;
    wf_graph *g;
    char what[512]; /* a copy: it may be the context's message, which the runs below overwrite */
    snprintf(what, sizeof what, "%s", reason);
    if (fails(&least, user)) {
        int tries = rg_shrink(&least, fails, user);
        print_message("%s; the least of %d graphs that still fails:\n", what, tries);
        fails(&least, user); /* for the message that it leaves in the context */
        if (wf_ctx_status(ctx) != WF_OK)
            print_message("  %s\n", wf_ctx_message(ctx));
    } else {
        print_message("%s, but not when run again:\n", what);
    }
    if (rg_build(ctx, &least, &g) == WF_OK)
        rg_print(&least, g);
    wf_graph_free(g);
    fail_msg("%s; WEFT_SEED=%llu repeats it", what, (unsigned long long)recipe->seed);
}

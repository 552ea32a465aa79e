/* SPDX-License-Identifier: MIT */
/*
 * test_memory.c - the planner's memory: packing lifetimes into one region, and whether random
 * graphs whose values share that region compute what they compute when none shares anything.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "device/memory.h"
#include "graph/build.h"
#include "selftest/number.h"
#include "support.h"

static wf_graph *new_graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

/* ---- Packing ---- */

#define MAX_BLOCKS 200

static bool live_at(const wf_lifetime *b, int step)
{
    return b->begin <= step && step <= b->end;
}

/* Checks everything that must hold of a packing; returns total / lower_bound. */
static double check_packing(wf_ctx *ctx, wf_lifetime *blocks, int n, int steps, size_t alignment)
{
    size_t total, lower, busiest = 0;
    wt_ok(ctx, wf_memory_pack(ctx, blocks, n, alignment, &total, &lower));
    for (int i = 0; i < n; i++) {
        const wf_lifetime *a = &blocks[i];
        assert_int_equal(a->offset % alignment, 0);
        assert_true(a->bytes <= total && a->offset <= total - a->bytes);
        for (int k = 0; k < i; k++) {
            const wf_lifetime *b = &blocks[k];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            bool meet = a->begin <= b->end && b->begin <= a->end;
            if (meet && !apart && a->bytes > 0 && b->bytes > 0)
                fail_msg("blocks %d and %d live at the same time and overlap", k, i);
        }
    }
    for (int step = 0; step < steps; step++) {
        size_t sum = 0;
        for (int i = 0; i < n; i++)
            if (live_at(&blocks[i], step))
                sum += (blocks[i].bytes + alignment - 1) / alignment * alignment;
        busiest = sum > busiest ? sum : busiest;
    }
    assert_int_equal(lower, busiest);
    assert_true(total >= lower);
    return lower > 0 ? (double)total / (double)lower : 1;
}

static void test_random_lifetimes(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    double worst = 1, sum = 0;
    for (int round = 0; round < 200; round++) {
        wf_lifetime blocks[MAX_BLOCKS], again[MAX_BLOCKS];
        int n = 1 + (int)wf_rng_below(&rng, MAX_BLOCKS), steps = 1 + (int)wf_rng_below(&rng, 80);
        size_t alignment = (size_t)1 << wf_rng_below(&rng, 9), largest = 0;
        int longest = 1 + (int)wf_rng_below(&rng, (uint64_t)steps);
        for (int i = 0; i < n; i++) {
            int begin = (int)wf_rng_below(&rng, (uint64_t)steps);
            int end = begin + (int)wf_rng_below(&rng, (uint64_t)longest);
            size_t bytes = wf_rng_below(&rng, 10) == 0 ? 0 : wf_rng_below(&rng, 5000);
            blocks[i] = (wf_lifetime){bytes, begin, end < steps ? end : steps - 1, SIZE_MAX};
            largest = bytes > largest ? bytes : largest;
        }
        memcpy(again, blocks, sizeof again);
        double ratio = check_packing(*state, blocks, n, steps, alignment);
        check_packing(*state, again, n, steps, alignment);
        assert_memory_equal(blocks, again, (size_t)n * sizeof *blocks); /* plans repeat */
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    print_message("region / lower bound: %.3f on average, %.3f at worst\n", sum / 200, worst);
    assert_true(worst < 1.7 && sum / 200 < 1.15);
}

/* A chain of layers, a tree of temporaries and plain sharing pack without any waste. */
static void test_easy_lifetimes(void **state)
{
    wf_lifetime chain[50], nested[50], apart[50];
    for (int i = 0; i < 50; i++) {
        chain[i] = (wf_lifetime){.bytes = 640, .begin = i, .end = i + 1};
        nested[i] = (wf_lifetime){.bytes = 64 * (size_t)(50 - i), .begin = i, .end = 100 - i};
        apart[i] = (wf_lifetime){.bytes = 64 * (size_t)(1 + i), .begin = i, .end = i};
    }
    assert_true(check_packing(*state, chain, 50, 101, 64) == 1);
    assert_true(check_packing(*state, nested, 50, 101, 64) == 1);
    assert_true(check_packing(*state, apart, 50, 101, 64) == 1);
}

static void test_odd_lifetimes(void **state)
{
    wf_ctx *ctx = *state;
    size_t total = 1, lower = 1;
    wt_ok(ctx, wf_memory_pack(ctx, NULL, 0, 64, &total, &lower));
    assert_true(total == 0 && lower == 0);

    wf_lifetime empty[3] = {{0, 0, 5, 9}, {0, 2, 2, 9}, {0, 0, 0, 9}};
    assert_true(check_packing(ctx, empty, 3, 6, 64) == 1);
    wt_ok(ctx, wf_memory_pack(ctx, empty, 3, 64, &total, &lower));
    assert_true(total == 0 && lower == 0);

    const wf_lifetime huge[][3] = {
        {{SIZE_MAX, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}},
        {{SIZE_MAX - 62, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, /* by rounding up alone */
        {{SIZE_MAX / 2, 0, 1, 0}, {SIZE_MAX / 2, 1, 2, 0}, {64, 1, 1, 0}},
    };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        wf_lifetime blocks[3];
        memcpy(blocks, huge[i], sizeof blocks);
        wt_fails(ctx, wf_memory_pack(ctx, blocks, 3, 64, &total, &lower), WF_ERR_MEMORY,
                 "exceed any address space");
        assert_true(total == 0 && lower == 0);
    }
    /* the same from a graph, before anyone tries to allocate it */
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = new_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){(int64_t)1 << 58});
    for (int i = 0; i < 20; i++)
        wf_output(g, (char[]){(char)('a' + i), 0}, wf_scale(g, x, i));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_MEMORY, "exceed any address space");
    wf_graph_free(g);
    wt_close(&r);

    for (uint64_t nth = 1; nth <= 2; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wt_fails(ctx, wf_memory_pack(ctx, empty, 3, 64, &total, &lower), WF_ERR_MEMORY, "");
    }
}

/* ---- What the plan says and what is allocated ---- */

/* Compiles and frees g. Returns by how many bytes the context grew. */
static uint64_t compiled_bytes(wf_ctx *ctx, wf_graph *g, wf_memory *memory)
{
    wf_mem_stats before, after;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_ctx_mem_stats(ctx, &before);
    wt_ok(ctx, wf_compile(r.session, g, &r.exec));
    wf_ctx_mem_stats(ctx, &after);
    wf_exec_memory(r.exec, memory);
    wf_graph_free(g);
    wt_close(&r);
    assert_true(memory->lower_bound <= memory->activations);
    assert_true(memory->workspace <= memory->lower_bound);
    return after.live_bytes - before.live_bytes;
}

static void test_memory_of_a_chain(void **state)
{
    wf_ctx *ctx = *state;
    wf_memory memory;
    for (int with_state = 0; with_state < 2; with_state++) {
        wf_graph *g = new_graph(ctx);
        wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){1000});
        for (int k = 0; k < 20; k++)
            x = wf_exp(g, x);
        wf_output(g, "y", x);
        if (with_state)
            wf_accumulate(g, wf_state(g, "s", WF_F32, 1, (int64_t[]){777}),
                          wf_slice(g, x, 0, 0, 777), NULL);
        uint64_t bytes = compiled_bytes(ctx, g, &memory);
        /* 4000 bytes are 63 lines of 64: input and output, and one for all between, in place */
        assert_int_equal(memory.ports, 2 * 63 * 64);
        assert_int_equal(memory.activations, 63 * 64);
        assert_int_equal(memory.lower_bound, memory.activations);
        assert_int_equal(memory.states, with_state ? 777 * 4 : 0);
        assert_true(bytes >= memory.ports + memory.activations + memory.states);
    }
}

/* What kernels ask for themselves is part of the region. */
static void test_workspace(void **state)
{
    wf_ctx *ctx = *state;
    wf_memory memory;
    wf_graph *g = new_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){100, 4});
    wf_value *rows = wf_iota(g, 1, (int64_t[]){100}, 0);
    wf_output(g, "y", wf_scatter_add_rows(g, x, rows, x)); /* which keeps lists */
    compiled_bytes(ctx, g, &memory);
    assert_true(memory.workspace >= 100);
    assert_true(memory.activations >= 400 + memory.workspace);
}

/* When only shapes grow, all that grows are ports and region, and by as much as the plan says. */
static void test_planned_memory_is_allocated(void **state)
{
    wf_ctx *ctx = *state;
    wf_memory memory[2];
    uint64_t bytes[2];
    for (int i = 0; i < 2; i++) {
        wf_graph *g = new_graph(ctx);
        wt_model m;
        wt_sizes size = wt_tiny;
        size.tokens *= i + 1;
        wt_forward(g, &size, &m);
        wt_train(g, &m);
        bytes[i] = compiled_bytes(ctx, g, &memory[i]);
        assert_true((double)memory[i].activations < 1.3 * (double)memory[i].lower_bound);
    }
    assert_int_equal(memory[0].states, memory[1].states);
    assert_true(memory[0].activations < memory[1].activations);
    assert_int_equal(bytes[1] - bytes[0], memory[1].activations + memory[1].ports -
                                              memory[0].activations - memory[0].ports);
}

/* ---- Random graphs ---- */

#define MAX_VALUES 400
#define MAX_COUNT 2000 /* elements of a value */

/* Builds one random graph. Whether all values are outputs, or few, changes no decision. */
typedef struct {
    wf_graph *g;
    wf_rng rng;
    bool all;
    const wf_value *value[MAX_VALUES]; /* every one that was made, an output called v0, v1, ... */
    bool is_output[MAX_VALUES];
    int count;
    wf_value *usable[MAX_VALUES]; /* those that may still be read */
    int usable_count;
    wf_value *states[3]; /* their newest versions */
    wf_value *flag;      /* u8 scalar */
} maker;

static int64_t draw(maker *m, int64_t n)
{
    return (int64_t)wf_rng_below(&m->rng, (uint64_t)n);
}

/* Takes in all outputs of v's node, and names some as outputs of the graph. */
static wf_value *keep(maker *m, wf_value *v)
{
    if (!v)
        fail_msg("a random graph was not legal: %s", m->g->message);
    if (m->count > 0 && v->node == m->value[m->count - 1]->node)
        return v; /* reshape, broadcast and cast to the same are no nodes */
    for (int i = 0; i < v->node->nout; i++) {
        char name[16];
        wf_value *out = &v->node->out[i];
        bool chosen = draw(m, 8) == 0;
        assert_true(m->count < MAX_VALUES);
        m->is_output[m->count] = m->all || chosen;
        snprintf(name, sizeof name, "v%d", m->count);
        m->value[m->count++] = out;
        m->usable[m->usable_count++] = out;
        if (m->all || chosen)
            assert_int_equal(wf_output(m->g, name, out), WF_OK);
    }
    return v;
}

/* A usable value of one of these types and at least this rank, preferring late ones; NULL: none. */
static wf_value *pick(maker *m, uint32_t types, int rank, bool full)
{
    for (int tries = 0; tries < 40; tries++) {
        int64_t back = draw(m, 1 + draw(m, m->usable_count));
        wf_value *v = m->usable[m->usable_count - 1 - back];
        int64_t count = wf_value_count(v);
        if (wf_type_bit(v->type) & types && v->shape.n >= rank && (!full || count > 0) &&
            count <= MAX_COUNT)
            return v;
    }
    return NULL;
}

/* One that goes with `a` in an elementwise op; in the worst case a itself. */
static wf_value *partner(maker *m, wf_value *a)
{
    for (int tries = 0; tries < 20; tries++) {
        wf_value *b = pick(m, wf_type_bit(a->type), 0, false);
        wf_dims shape;
        if (b && wf_dims_broadcast(&a->shape, &b->shape, &shape) && wf_dims_count(&shape) <= 2000)
            return b;
    }
    return a;
}

static void add_elementwise(maker *m)
{
    static const char *const unary[] = {"tanh", "sin", "sigmoid", "relu", "gelu", "neg", "cos"};
    static const char *const binary[] = {"add", "sub", "mul", "maximum", "minimum"};
    wf_value *a = pick(m, WF_TYPES_FLOAT, 0, false), *b;
    if (!a)
        return;
    switch (draw(m, 4)) {
    case 0: keep(m, wf_unary(m->g, unary[draw(m, 7)], a)); break;
    case 1: keep(m, wf_binary(m->g, binary[draw(m, 5)], a, partner(m, a))); break;
    case 2:
        b = partner(m, a);
        keep(m, wf_where(m->g, keep(m, wf_lt(m->g, a, b)), b, a));
        break;
    case 3: keep(m, wf_scale(m->g, a, 0.5)); break;
    }
}

static void add_view(maker *m)
{
    wf_value *x = pick(m, WF_TYPES_PLAIN, 1, false);
    if (!x)
        return;
    int64_t order[WF_MAX_RANK], rank = x->shape.n, axis = draw(m, rank), n = x->shape.d[axis];
    int64_t dims[WF_MAX_RANK];
    switch (draw(m, 4)) {
    case 0:
        for (int64_t i = 0; i < rank; i++)
            order[i] = i;
        for (int64_t i = rank - 1; i > 0; i--) {
            int64_t k = draw(m, i + 1), t = order[i];
            order[i] = order[k];
            order[k] = t;
        }
        keep(m, wf_permute(m->g, x, order));
        break;
    case 1: {
        int64_t begin = draw(m, n + 1), end = begin + draw(m, n - begin + 1);
        if (begin == end && draw(m, 8) > 0) /* few are empty */
            begin = 0, end = n;
        keep(m, wf_slice(m->g, x, (int)axis, begin, end));
        break;
    }
    case 2: /* to one axis, or with the first kept, or with a 1 somewhere */
        if (draw(m, 2) == 0 || rank == WF_MAX_RANK) {
            keep(m, wf_reshape(m->g, x, 1, (int64_t[]){wf_value_count(x)}));
        } else {
            for (int64_t i = 0; i <= rank; i++)
                dims[i] = i < axis ? x->shape.d[i] : i == axis ? 1 : x->shape.d[i - 1];
            keep(m, wf_reshape(m->g, x, (int)rank + 1, dims));
        }
        break;
    case 3: /* an axis in two */
        if (n % 2 == 0 && n > 0 && rank < WF_MAX_RANK) {
            for (int64_t i = 0; i <= rank; i++)
                dims[i] = i < axis ? x->shape.d[i] : i == axis ? n / 2 : x->shape.d[i - 1];
            dims[axis + 1] = 2;
            keep(m, wf_reshape(m->g, x, (int)rank + 1, dims));
        }
        break;
    }
}

static void add_movement(maker *m)
{
    static const wf_type types[] = {WF_F32, WF_BF16, WF_F16, WF_F32};
    wf_value *x = pick(m, WF_TYPES_FLOAT, 1, false);
    if (!x)
        return;
    int axis = (int)draw(m, x->shape.n);
    int64_t dims[WF_MAX_RANK] = {2};
    switch (draw(m, 5)) {
    case 0: keep(m, wf_pad(m->g, x, axis, draw(m, 3), draw(m, 3))); break;
    case 1: keep(m, wf_concat(m->g, (wf_value *[]){x, x}, 2, axis)); break;
    case 2:
        if (x->shape.n < 4 && wf_value_count(x) < 400) {
            memcpy(dims + 1, x->shape.d, (size_t)x->shape.n * sizeof *dims);
            keep(m, wf_broadcast(m->g, x, (int)x->shape.n + 1, dims));
        }
        break;
    case 3: keep(m, wf_cast(m->g, x, types[draw(m, 4)])); break;
    case 4: keep(m, wf_copy(m->g, x)); break;
    }
}

static void add_reduction(maker *m)
{
    wf_value *x = pick(m, WF_TYPES_FLOAT, 1, true);
    if (!x)
        return;
    int64_t last = wf_dims_last(&x->shape);
    uint32_t axes = 1 + (uint32_t)draw(m, (1 << x->shape.n) - 1);
    switch (draw(m, 6)) {
    case 0: keep(m, wf_reduce(m->g, "mean", x, axes, draw(m, 2) == 0)); break;
    case 1: keep(m, wf_reduce(m->g, "max", x, axes, draw(m, 2) == 0)); break;
    case 2: keep(m, wf_softmax(m->g, x)); break;
    case 3: keep(m, wf_rms_norm(m->g, x, NULL, 1e-3)); break;
    case 4: keep(m, wf_top_k(m->g, x, 1 + draw(m, last))); break;
    case 5: /* rows by index, with indices that are sure to exist */
        if (x->shape.n == 2) {
            wf_value *rows = keep(m, wf_argmax(m->g, x, 0));
            wf_value *from = keep(m, wf_gather_rows(m->g, x, rows));
            keep(m, wf_scatter_add_rows(m->g, x, rows, from));
        }
        break;
    }
}

static void add_product(maker *m)
{
    wf_value *x = pick(m, WF_TYPES_FLOAT, 2, true);
    if (!x || x->shape.d[x->shape.n - 1] > 30 || x->shape.d[x->shape.n - 2] > 30)
        return;
    bool first = draw(m, 2) == 0; /* x^T x or x x^T */
    wf_value *y = keep(m, wf_matmul(m->g, x, x, first, !first));
    keep(m, wf_scale(m->g, y, 0.1));
}

/* Changes a state by a value that may well be a view of the same state. Whatever still shows the
 * version before cannot be used any more. */
static void add_update(maker *m)
{
    int which = (int)draw(m, 3);
    wf_value *s = m->states[which], *x = NULL;
    for (int tries = 0; tries < 40 && !x; tries++) {
        wf_value *v = pick(m, WF_TYPES_FLOAT, 0, false);
        x = v && wf_dims_equal(&v->shape, &s->shape) ? v : NULL;
    }
    if (!x || draw(m, 3) == 0) { /* its halves, or two of its axes, exchanged */
        int64_t n = s->shape.d[0];
        wf_value *halves[] = {wf_slice(m->g, s, 0, n / 2, n), wf_slice(m->g, s, 0, 0, n / 2)};
        if (which == 0)
            x = keep(m, wf_permute(m->g, s, (int64_t[]){1, 0, 2}));
        else
            x = keep(m,
                     wf_concat(m->g, (wf_value *[]){keep(m, halves[0]), keep(m, halves[1])}, 2, 0));
    }
    wf_value *apply = draw(m, 3) == 0 ? m->flag : NULL;
    wf_value *next = draw(m, 2) ? wf_assign(m->g, s, x, apply) : wf_accumulate(m->g, s, x, apply);
    m->states[which] = next;
    int left = 0;
    for (int i = 0; i < m->usable_count; i++)
        if (wf_value_root(m->usable[i])->state != next->state)
            m->usable[left++] = m->usable[i];
    m->usable_count = left;
    keep(m, next);
}

static void make(maker *m, wf_ctx *ctx, uint64_t seed, bool all)
{
    static void (*const steps[])(maker *) = {add_elementwise, add_view,       add_view,
                                             add_movement,    add_reduction,  add_product,
                                             add_update,      add_elementwise};
    memset(m, 0, sizeof *m);
    m->all = all;
    wf_rng_init(&m->rng, seed, 2);
    wt_ok(ctx, wf_graph_new(ctx, &m->g));
    keep(m, wf_input(m->g, "a", WF_F32, 2, (int64_t[]){3, 4}));
    keep(m, wf_input(m->g, "b", WF_F32, 3, (int64_t[]){2, 3, 4}));
    keep(m, wf_input(m->g, "c", WF_BF16, 1, (int64_t[]){6}));
    m->states[0] = keep(m, wf_state(m->g, "p", WF_F32, 3, (int64_t[]){3, 3, 4}));
    m->states[1] = keep(m, wf_state(m->g, "q", WF_F32, 3, (int64_t[]){2, 3, 4}));
    m->states[2] = keep(m, wf_state(m->g, "r", WF_BF16, 1, (int64_t[]){6}));
    m->flag = keep(m, wf_input(m->g, "flag", WF_U8, 0, NULL));
    for (int64_t n = 10 + draw(m, 50); n > 0; n--)
        steps[draw(m, sizeof steps / sizeof *steps)](m);
    if (m->g->output_count == 0)
        wf_output(m->g, "last", m->states[0]);
}

/* ---- Running them ---- */

static size_t bytes_of(const wf_value *v)
{
    return wf_type_bytes(v->type, wf_value_count(v));
}

/* Runs twice, with all inputs written before the first run only; with `dense` on a device whose
 * kernels take no strides. */
static wf_memory run_twice(wf_ctx *ctx, maker *m, uint64_t seed, bool dense, void **results)
{
    static const struct {
        const char *name;
        int64_t count;
        wf_type type;
    } sources[] = {{"a", 12, WF_F32}, {"b", 24, WF_F32}, {"c", 6, WF_BF16},
                   {"p", 36, WF_F32}, {"q", 24, WF_F32}, {"r", 6, WF_BF16}};
    wt_run r = wt_open(ctx, "cpu:1");
    if (dense)
        wt_make_dense(&r);
    wt_ok(ctx, wf_compile(r.session, m->g, &r.exec));
    for (int i = 0; i < 6; i++) {
        float numbers[36];
        uint16_t narrow[36];
        wf_random_normal(seed, (uint64_t)i, 0, 1, numbers, sources[i].count);
        wt_ok(ctx, wf_type_from_f32(ctx, sources[i].type, numbers, narrow,
                                    sources[i].type == WF_F32 ? 0 : sources[i].count));
        const void *from = sources[i].type == WF_F32 ? (void *)numbers : narrow;
        size_t bytes = wf_type_bytes(sources[i].type, sources[i].count);
        if (i < 3)
            wt_write(&r, sources[i].name, from, bytes);
        else
            wt_ok(ctx, wf_session_write(r.session, sources[i].name, from, bytes));
    }
    wt_write(&r, "flag", &(uint8_t){seed % 2}, 1);
    wt_ok(ctx, wf_exec_run(r.exec));
    wt_ok(ctx, wf_exec_run(r.exec));
    for (int i = 0; i < m->count; i++) {
        char name[16];
        snprintf(name, sizeof name, "v%d", i);
        results[i] = m->is_output[i] ? malloc(bytes_of(m->value[i]) + 1) : NULL;
        if (results[i])
            wt_read(&r, name, results[i], bytes_of(m->value[i]));
    }
    for (int i = 0; i < 3; i++) { /* the states after the last run, past the values */
        results[m->count + i] = malloc(bytes_of(m->states[i]));
        wt_ok(ctx, wf_session_read(r.session, sources[3 + i].name, results[m->count + i],
                                   bytes_of(m->states[i])));
    }
    wf_memory memory;
    wf_exec_memory(r.exec, &memory);
    wt_close(&r);
    return memory;
}

/* A value as numbers; mag is for results only. */
static wf_ref ref_of(const wf_value *v, const void *bytes)
{
    size_t count = (size_t)wf_value_count(v) + 1;
    wf_ref r = {v->type, v->shape, calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    for (int64_t i = 0; bytes && i < wf_value_count(v); i++)
        r.v[i] = wf_number_load(v->type, bytes, i);
    return r;
}

static int index_of(const maker *m, const wf_value *v)
{
    for (int i = 0; i < m->count; i++)
        if (m->value[i] == v)
            return i;
    fail_msg("%s is not among the values", wf_node_def(v->node)->name);
    return -1;
}

/* Each node by the float64 reference, from the operands that the device had. */
static void check_node(wf_ctx *ctx, const maker *m, const wf_node *n, void **results)
{
    wf_ref in[4], out[WF_MAX_OUT];
    bool finite = true;
    assert_true(n->nin <= 4);
    for (int i = 0; i < n->nin; i++) {
        in[i] = ref_of(n->in[i], results[index_of(m, n->in[i])]);
        for (int64_t k = 0; k < wf_value_count(n->in[i]); k++)
            finite &= fabs(in[i].v[k]) < 1e15;
    }
    for (int i = 0; i < n->nout; i++)
        out[i] = ref_of(&n->out[i], NULL);
    wt_ok(ctx, wf_ref_run(ctx, n, in, out));
    for (int i = 0; i < n->nout && finite; i++) {
        wf_verdict v = wf_compare(results[index_of(m, &n->out[i])], &out[i], 32);
        if (v.failed)
            fail_msg("output %d of node %d (%s): element %lld is %.9g, wanted %.9g", i, n->id,
                     wf_node_def(n)->name, (long long)v.index, v.got, v.wanted);
    }
    for (int i = 0; i < n->nin; i++)
        free(in[i].v), free(in[i].mag);
    for (int i = 0; i < n->nout; i++)
        free(out[i].v), free(out[i].mag);
}

/* Compares what `some` has with `every`. */
static void check_same(const maker *m, void **some, void **every, const char *what, uint64_t seed)
{
    for (int i = 0; i < m->count + 3; i++) {
        const wf_value *v = i < m->count ? m->value[i] : m->states[i - m->count];
        if (some[i] && memcmp(some[i], every[i], bytes_of(v)) != 0)
            fail_msg("value %d (%s) differs when %s; WEFT_SEED=%llu", i, wf_node_def(v->node)->name,
                     what, (unsigned long long)seed);
        free(some[i]);
    }
}

static void test_random_graphs(void **state)
{
    wf_ctx *ctx = *state;
    static maker few, all;
    size_t shared = 0, alone = 0, nodes = 0;
    for (uint64_t round = 0; round < 300; round++) {
        uint64_t seed = wt_seed() + round;
        void *some[MAX_VALUES + 3], *every[MAX_VALUES + 3];
        make(&few, ctx, seed, false);
        make(&all, ctx, seed, true);
        assert_int_equal(few.count, all.count);
        wf_memory loose = run_twice(ctx, &all, seed, false, every);
        wf_memory tight = run_twice(ctx, &few, seed, false, some);
        check_same(&few, some, every, "memory is shared", seed);
        run_twice(ctx, &few, seed, true, some);
        check_same(&few, some, every, "views are made dense", seed);
        for (int i = 0; i < all.count; i++)
            if (all.value[i]->index == 0 && !wf_node_is(all.value[i]->node, WF_FLAG_SOURCE))
                check_node(ctx, &all, all.value[i]->node, every);
        for (int i = 0; i < all.count + 3; i++)
            free(every[i]);
        assert_true(tight.lower_bound <= tight.activations);
        shared += tight.activations + tight.ports;
        alone += loose.activations + loose.ports;
        nodes += (size_t)few.g->node_count;
        wf_graph_free(few.g);
        wf_graph_free(all.g);
    }
    print_message("300 graphs, %zu nodes; regions are %.0f%% of those without sharing\n", nodes,
                  100.0 * (double)shared / (double)alone);
    assert_true(shared < alone / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_random_lifetimes), wt_test(test_easy_lifetimes),
        wt_test(test_odd_lifetimes),    wt_test(test_memory_of_a_chain),
        wt_test(test_workspace),        wt_test(test_planned_memory_is_allocated),
        wt_test(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

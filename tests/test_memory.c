/* SPDX-License-Identifier: MIT */
/*
 * test_memory.c - the memory planner: it packs lifetimes into one region, and random graphs whose
 * values share that region compute the same results as without sharing.
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
#include <time.h>

#include "base/philox.h"
#include "base/sanitize.h"
#include "device/device.h"
#include "device/memory.h"
#include "graph/build.h"
#include "random_graph.h"
#include "selftest/number.h"
#include "support.h"

static wf_graph *new_graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

/* ---- Packing ---- */

#define MAX_BLOCKS 600

static bool live_at(const wf_lifetime *b, int step)
{
    return b->begin <= step && step <= b->end;
}

/* Checks all invariants of a packing and returns total / lower_bound. */
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

/* Fills at most n blocks with lifetimes of one kind, sets the number of steps, and returns the
 * number of blocks. */
typedef int fill_fn(wf_rng *rng, wf_lifetime *blocks, int n, int *steps);

static int below(wf_rng *rng, int n)
{
    return (int)wf_rng_below(rng, (uint64_t)n);
}

static wf_lifetime lifetime(size_t bytes, int begin, int end, int steps)
{
    return (wf_lifetime){bytes, begin, end < steps ? end : steps - 1, SIZE_MAX};
}

static int fill_anything(wf_rng *rng, wf_lifetime *blocks, int n, int *steps)
{
    *steps = 1 + below(rng, n);
    int longest = 1 + below(rng, *steps);
    for (int i = 0; i < n; i++) {
        int begin = below(rng, *steps);
        size_t bytes = below(rng, 10) == 0 ? 0 : wf_rng_below(rng, 5000);
        blocks[i] = lifetime(bytes, begin, begin + below(rng, longest), *steps);
    }
    return n;
}

static int fill_giants(wf_rng *rng, wf_lifetime *blocks, int n, int *steps)
{
    fill_anything(rng, blocks, n, steps);
    for (int i = 0; i < n; i += 1 + below(rng, 60))
        blocks[i].bytes = 200000 + wf_rng_below(rng, 200000);
    return n;
}

static int fill_equals(wf_rng *rng, wf_lifetime *blocks, int n, int *steps)
{
    fill_anything(rng, blocks, n, steps);
    for (int i = 0; i < n; i++)
        blocks[i].bytes = below(rng, 8) == 0 ? 8192 : 4096;
    return n;
}

/* A training step. Each layer keeps a fifth of its values for its backward pass; earlier layers
 * keep theirs longer. Other values are temporary, except gradients of weights, which live to the
 * end. */
static int fill_stack(wf_rng *rng, wf_lifetime *blocks, int n, int *steps)
{
    static const size_t widths[] = {1, 1, 3, 4, 4, 1, 8, 2}; /* sizes of a transformer's values */
    const size_t unit = 1024 * (size_t)(1 + below(rng, 100));
    int layer = n < 100 ? n : 50 + below(rng, 50), layers = n / layer, count = 0;
    int forward = layer * 2 / 5, backward = layer - forward;
    *steps = layer * layers;
    for (int l = 0; l < layers; l++) {
        int there = l * forward, back = layers * forward + (layers - 1 - l) * backward;
        for (int i = 0; i < forward; i++) {
            int end = i % 2 ? there + i + 1 + below(rng, 4) : back + below(rng, backward);
            blocks[count++] = lifetime(unit * widths[i % 8], there + i, end, *steps);
        }
        for (int i = 0; i < backward; i++) {
            bool stays = below(rng, 6) == 0;
            size_t bytes =
                stays ? 64 + 200000 * wf_rng_below(rng, 3) : unit * widths[below(rng, 8)];
            int end = stays ? *steps : back + i + 1 + below(rng, 4);
            blocks[count++] = lifetime(bytes, back + i, end, *steps);
        }
    }
    return count;
}

/* Bounds of total / lower_bound, per round and on average, well above the maxima of several hundred
 * rounds. */
static const struct {
    const char *name;
    fill_fn *fill;
    double worst, average;
} kinds[] = {
    {"random", fill_anything, 1.20, 1.04},
    {"with giants", fill_giants, 1.20, 1.04},
    {"of equal sizes", fill_equals, 1.15, 1.03},
    {"stack-like", fill_stack, 1.10, 1.02},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void test_random_lifetimes(void **state)
{
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (size_t kind = 0; kind < KINDS; kind++) {
        double worst = 1, sum = 0;
        const int rounds = wt_cases(40);
        for (int round = 0; round < rounds; round++) {
            static wf_lifetime blocks[MAX_BLOCKS], again[MAX_BLOCKS];
            size_t alignment = (size_t)1 << below(&rng, 9);
            int steps, n = kinds[kind].fill(&rng, blocks, 1 + below(&rng, MAX_BLOCKS), &steps);
            memcpy(again, blocks, sizeof again);
            double ratio = check_packing(*state, blocks, n, steps, alignment);
            size_t total, lower;
            wt_ok(*state, wf_memory_pack(*state, again, n, alignment, &total, &lower));
            assert_memory_equal(blocks, again, (size_t)n * sizeof *blocks); /* deterministic */
            worst = ratio > worst ? ratio : worst;
            sum += ratio;
        }
        print_message("lifetimes %s: region / lower bound is %.4f on average, %.4f at worst\n",
                      kinds[kind].name, sum / rounds, worst);
        assert_true(worst < kinds[kind].worst);
        if (rounds == 40) /* fewer vary too much */
            assert_true(sum / rounds < kinds[kind].average);
    }
}

/* Enough blocks to use every shortcut of the packer, few enough to compare all pairs. */
static void test_windows(void **state)
{
    enum { SOME = 5000 };
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 4);
    wf_lifetime *blocks = malloc(SOME * sizeof *blocks);
    assert_non_null(blocks);
    for (int round = 0; round < wt_cases(3); round++)
        for (size_t kind = 0; kind < KINDS; kind++) {
            int steps, n = kinds[kind].fill(&rng, blocks, SOME, &steps);
            check_packing(*state, blocks, n, steps, 64);
        }
    free(blocks);
}

/* Generous time limit for a busy machine. */
#if WF_ADDRESS_SANITIZER
#define MOST_SECONDS 8
#else
#define MOST_SECONDS 2
#endif

/* As many blocks as a training step of 48 layers. */
static void test_many_lifetimes(void **state)
{
    enum { MANY = 20000 };
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 3);
    wf_lifetime *blocks = malloc(MANY * sizeof *blocks);
    assert_non_null(blocks);
    for (size_t kind = 0; kind < KINDS; kind++) {
        size_t total, lower;
        int steps, n = kinds[kind].fill(&rng, blocks, MANY, &steps);
        clock_t begin = clock(); /* CPU time of this process: the machine may be busy */
        wt_ok(*state, wf_memory_pack(*state, blocks, n, 256, &total, &lower));
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        double ratio = (double)total / (double)lower;
        print_message("%d lifetimes %s: %.4f, %.2f s\n", n, kinds[kind].name, ratio, seconds);
        bool real = kinds[kind].fill == fill_stack;
        assert_true(seconds < MOST_SECONDS);
        assert_true(ratio < (real ? 1.10 : 1.5));
    }
    free(blocks);
}

/* A chain of layers, a tree of temporaries and plain sharing pack without waste. */
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
        {{SIZE_MAX - 62, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}}, /* overflows by rounding up alone */
        {{SIZE_MAX / 2, 0, 1, 0}, {SIZE_MAX / 2, 1, 2, 0}, {64, 1, 1, 0}},
    };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        wf_lifetime blocks[3];
        memcpy(blocks, huge[i], sizeof blocks);
        wt_fails(ctx, wf_memory_pack(ctx, blocks, 3, 64, &total, &lower), WF_ERR_MEMORY,
                 "exceed the address space");
        assert_true(total == 0 && lower == 0);
    }
    /* the same overflow from a graph, refused before any allocation */
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = new_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){(int64_t)1 << 58});
    for (int i = 0; i < 20; i++)
        wf_output(g, (char[]){(char)('a' + i), 0}, wf_scale(g, x, i));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_MEMORY, "exceed the address space");
    wf_graph_free(g);
    g = new_graph(ctx); /* values between, also summed by the schedule */
    wf_value *all[20];
    for (int i = 0; i < 20; i++)
        all[i] = wf_unary(g, "sin",
                          wf_scale(g,
                                   wf_input(g, (char[]){(char)('a' + i), 0}, WF_F32, 1,
                                            (int64_t[]){(int64_t)1 << 58}),
                                   i));
    wf_output(g, "norm", wf_global_norm(g, all, 20));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_MEMORY, "exceed the address space");
    wf_graph_free(g);
    g = new_graph(ctx); /* states of 2^64 bytes */
    for (int i = 0; i < 16; i++)
        wf_state(g, (char[]){(char)('a' + i), 0}, WF_F32, 1, (int64_t[]){(int64_t)1 << 58});
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_MEMORY, "exceed the address space");
    wf_graph_free(g);
    g = new_graph(ctx); /* compile options are refused the same way */
    const wf_compile_options negative = {.recompute = -1};
    wf_memory memory;
    wt_fails(ctx, wf_compile_with(r.session, g, &negative, &r.exec), WF_ERR_USAGE, "negative");
    wt_fails(ctx, wf_plan_memory(r.device, g, &negative, &memory), WF_ERR_USAGE, "negative");
    wf_graph_free(g);
    wt_close(&r);

    wf_lifetime full[3] = {{5, 0, 5, 0}, {64, 2, 2, 0}, {100, 0, 0, 0}};
    for (uint64_t nth = 1; nth <= 5; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wt_fails(ctx, wf_memory_pack(ctx, full, 3, 64, &total, &lower), WF_ERR_MEMORY, "");
    }
}

/* ---- The plan against the allocated bytes ---- */

/* Compiles and frees g. Returns the growth of the context in bytes. */
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
        /* 4000 bytes are 63 lines of 64: one block each for input and output, and one for all
         * values between, in place */
        assert_int_equal(memory.ports, 2 * 63 * 64);
        assert_int_equal(memory.activations, 63 * 64);
        assert_int_equal(memory.lower_bound, memory.activations);
        assert_int_equal(memory.states, with_state ? 777 * 4 : 0);
        assert_true(bytes >= memory.ports + memory.activations + memory.states);
    }
}

/* The workspace of kernels is part of the region. */
static void test_workspace(void **state)
{
    wf_ctx *ctx = *state;
    wf_memory memory;
    wf_graph *g = new_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){100, 4});
    wf_value *rows = wf_iota(g, 1, (int64_t[]){100}, 0);
    wf_output(g, "y", wf_scatter_add_rows(g, x, rows, x)); /* keeps lists */
    compiled_bytes(ctx, g, &memory);
    assert_true(memory.workspace >= 100);
    assert_true(memory.activations >= 400 + memory.workspace);
}

/* When only shapes grow, only ports and region grow, and by the bytes in the plan. */
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

/* Removes stride support from the kernels of the executable. */
static wf_status compile_dense(wf_session *session, wf_graph *graph, void *user, wf_exec **out)
{
    wt_make_dense(&(wt_run){.device = session->device});
    return rg_compile(session, graph, user, out);
}

/* The contents of a value in a graph where every value is an output. A value without its own
 * storage is an output through a copy. */
static const void *contents_of(const wf_graph *g, const wf_value *v, const rg_results *r)
{
    for (int i = 0; i < g->output_count; i++) {
        const wf_value *o = g->outputs[i].value;
        if (o == v || (o->node->op == WF_OP_copy && o->node->in[0] == v))
            return r->data + r->item[i].offset;
    }
    return NULL;
}

/* A value as a reference tensor; mag is used for results only. */
static wf_ref ref_of(const wf_value *v, const void *bytes)
{
    size_t count = (size_t)wf_value_count(v) + 1;
    wf_ref r = {v->type, v->shape, calloc(count, sizeof(double)), calloc(count, sizeof(double))};
    for (int64_t i = 0; bytes && i < wf_value_count(v); i++)
        r.v[i] = wf_number_load(v->type, bytes, i);
    return r;
}

/* Computes the node by the float64 reference from the device's own operands, and compares. */
static wf_status check_node(const wf_graph *g, const wf_node *n, const rg_results *r)
{
    wf_ref *in = calloc((size_t)n->nin + 1, sizeof *in), out[WF_MAX_OUT];
    wf_status status = WF_OK;
    for (int i = 0; i < n->nin; i++)
        in[i] = ref_of(n->in[i], contents_of(g, n->in[i], r));
    for (int i = 0; i < n->nout; i++)
        out[i] = ref_of(&n->out[i], NULL);
    status = wf_ref_run(g->ctx, n, in, out);
    for (int i = 0; i < n->nout && status == WF_OK; i++) {
        wf_verdict v = wf_compare(contents_of(g, &n->out[i], r), &out[i], 32);
        if (v.failed)
            status = wf_fail(g->ctx, WF_ERR_INTERNAL,
                             "output %d of node %d (%s): element %lld is %.9g, expected %.9g", i,
                             n->id, wf_node_def(n)->name, (long long)v.index, v.got, v.wanted);
    }
    for (int i = 0; i < n->nin; i++)
        free(in[i].v), free(in[i].mag);
    for (int i = 0; i < n->nout; i++)
        free(out[i].v), free(out[i].mag);
    free(in);
    return status;
}

/* Skips copies that only outputs need: comparing those outputs covers them. */
static wf_status check_nodes(const wf_graph *g, const rg_results *r)
{
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        if (!wf_node_is(n, WF_FLAG_SOURCE) && contents_of(g, &n->out[0], r))
            WF_TRY(check_node(g, n, r));
    }
    return WF_OK;
}

static wf_status check_same(wf_ctx *ctx, const rg_results *some, const rg_results *every,
                            const char *what)
{
    rg_verdict v = rg_compare_bits(some, every);
    if (!v.failed)
        return WF_OK;
    return wf_fail(ctx, WF_ERR_INTERNAL, "%s differs when %s: element %lld is %.9g, not %.9g",
                   v.name, what, (long long)v.index, v.got, v.wanted);
}

/* Runs one recipe with every value an output, so that no value shares memory; then with few
 * outputs; then with few outputs on a device whose kernels accept no strides. */
typedef struct {
    wf_ctx *ctx;
    size_t shared, alone, nodes; /* sums over the cases that passed */
} memory_case;

static wf_status check_case(memory_case *c, const rg_recipe *recipe, wf_graph *few, wf_graph *all,
                            rg_results r[4])
{
    WF_TRY(rg_run(c->ctx, "cpu:1", all, recipe, 2, rg_compile, NULL, &r[0]));
    WF_TRY(rg_run(c->ctx, "cpu:1", few, recipe, 2, rg_compile, NULL, &r[1]));
    WF_TRY(rg_run(c->ctx, "cpu:1", few, recipe, 2, compile_dense, NULL, &r[2]));
    WF_TRY(rg_run(c->ctx, "check", few, recipe, 2, rg_compile, NULL, &r[3]));
    WF_TRY(check_same(c->ctx, &r[1], &r[0], "memory is shared"));
    WF_TRY(check_same(c->ctx, &r[2], &r[0], "views are made dense"));
    WF_TRY(check_same(c->ctx, &r[3], &r[0], "the check device runs it"));
    WF_TRY(check_nodes(all, &r[0]));
    if (r[1].memory.lower_bound > r[1].memory.activations)
        return wf_fail(c->ctx, WF_ERR_INTERNAL, "the region is smaller than its lower bound");
    c->shared += r[1].memory.activations + r[1].memory.ports;
    c->alone += r[0].memory.activations + r[0].memory.ports;
    c->nodes += (size_t)few->node_count;
    return WF_OK;
}

static bool memory_fails(const rg_recipe *recipe, void *user)
{
    memory_case *c = user;
    rg_recipe loose = *recipe;
    rg_results r[4] = {0};
    wf_graph *few = NULL, *all = NULL;
    loose.options.all = true;
    wf_status status = rg_build(c->ctx, recipe, &few);
    if (status == WF_OK)
        status = rg_build(c->ctx, &loose, &all);
    if (status == WF_OK)
        status = check_case(c, recipe, few, all, r);
    for (int i = 0; i < 4; i++)
        rg_results_free(&r[i]);
    wf_graph_free(few);
    wf_graph_free(all);
    return status != WF_OK;
}

static void test_random_graphs(void **state)
{
    memory_case c = {.ctx = *state};
    const int count = wt_cases(400);
    for (int round = 0; round < count; round++) {
        uint64_t seed = wt_seed() + (uint64_t)round;
        rg_options options = {.nodes = 30 + (int)(seed * 7 % 100), .grad = seed % 3 == 0};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        if (memory_fails(&recipe, &c))
            rg_report(*state, &recipe, wf_ctx_message(*state), memory_fails, &c);
    }
    print_message("%d graphs, %zu nodes; regions are %.0f%% of those without sharing\n", count,
                  c.nodes, 100.0 * (double)c.shared / (double)c.alone);
    assert_true(c.shared < c.alone / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_random_lifetimes), wt_test(test_windows),
        wt_test(test_many_lifetimes),   wt_test(test_easy_lifetimes),
        wt_test(test_odd_lifetimes),    wt_test(test_memory_of_a_chain),
        wt_test(test_workspace),        wt_test(test_planned_memory_is_allocated),
        wt_test(test_random_graphs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

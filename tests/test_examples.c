/* SPDX-License-Identifier: MIT */
/*
 * test_examples.c - builds and verifies every example in every form, and compares its parameter
 * count with the model of that name. The smallest one also trains and decodes.
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

#include "device/plan.h"
#include "model/example.h"
#include "support.h"

/* Returns the elements of all states whose name does not begin with `but`. */
static int64_t count_states(const wf_graph *g, const char *but)
{
    int64_t sum = 0;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state && strncmp(g->nodes[i]->name, but, strlen(but)) != 0)
            sum += wf_value_count(&g->nodes[i]->out[0]);
    return sum;
}

static int count_marks(const wf_graph *g)
{
    int sum = 0;
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i]->nout; k++)
            sum += (g->nodes[i]->out[k].marks & WF_MARK_BLOCK) != 0;
    return sum;
}

/* Parameter counts. GPT-2's are those of the published models. A Llama layer has 2 C^2 for queries
 * and outputs, 2 C Hk D for keys and values, 3 C hidden for the MLP and 2 C for norms:
 *   llama-30M   10 * (2*384^2 + 2*384*128 + 3*384*1024 + 2*384) + 384 + 32000*384
 *   llama-120M  12 * (2*768^2 + 2*768*256 + 3*768*2816 + 2*768) + 768 + 32000*768
 *   llama-350M  24 * (2*1024^2 + 2*1024*256 + 3*1024*3584 + 2*1024) + 1024 + 32000*1024
 *   llama-1B    22 * (2*2048^2 + 2*2048*256 + 3*2048*5632 + 2*2048) + 2048 + 2*32000*2048
 *   tiny        3 * (4*96^2 + 8*96^2 + 2*96) + 96 + 2*128*96 */
static const struct {
    const char *name;
    int64_t parameters;
} wanted[] = {
    {"gpt2-124M", 124439808}, {"gpt2-350M", 354823168},  {"gpt2-1558M", 1557611200},
    {"llama-30M", 28024704},  {"llama-120M", 121326336}, {"llama-350M", 359973888},
    {"llama-1B", 1100048384}, {"tiny", 357024},
};

static void test_every_example(void **state)
{
    wf_ctx *ctx = *state;
    size_t k = 0;
    for (const wf_example *e = wf_examples; e->name; e++, k++) {
        assert_true(k < sizeof wanted / sizeof *wanted);
        assert_string_equal(e->name, wanted[k].name);
        for (int form = WF_EXAMPLE_TRAIN; form <= WF_EXAMPLE_DECODE; form++) {
            const wf_example_options o = {.form = (wf_example_form)form, .batch = 2};
            wf_graph *g;
            wt_ok(ctx, wf_example_build(ctx, e->name, &o, &g));
            wt_ok(ctx, wf_graph_verify(g));
            assert_int_equal(count_marks(g), e->layers);
            if (form == WF_EXAMPLE_TRAIN) /* plus two moments per parameter */
                assert_int_equal(count_states(g, "-"), 3 * wanted[k].parameters);
            else
                assert_int_equal(count_states(g, "kv."), wanted[k].parameters);
            wf_graph_free(g);
        }
    }
    assert_int_equal(k, sizeof wanted / sizeof *wanted);
}

/* A plan allocates nothing, so the large models can be planned, too. */
static void test_plans_are_tight(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    for (const wf_example *e = wf_examples; e->name; e++)
        for (int form = WF_EXAMPLE_TRAIN; form <= WF_EXAMPLE_DECODE; form++) {
            wf_graph *g;
            wf_plan *plan;
            wt_ok(ctx, wf_example_build(ctx, e->name,
                                        &(wf_example_options){.form = (wf_example_form)form}, &g));
            wt_ok(ctx, wf_plan_new(r.device, g, NULL, NULL, NULL, &plan));
            const wf_memory *m = &plan->memory;
            print_message("%-12s form %d: %14zu bytes, bound %14zu\n", e->name, form,
                          m->activations, m->lower_bound);
            assert_true((double)m->activations <= 1.1 * (double)m->lower_bound);
            wf_plan_free(plan);
            wf_graph_free(g);
        }
    wt_close(&r);
}

static void test_refusals(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g;
    wt_fails(ctx, wf_example_build(ctx, "gpt2-124m", NULL, &g), WF_ERR_USAGE,
             "did you mean 'gpt2-124M'?");
    wt_fails(ctx, wf_example_build(ctx, "resnet", NULL, &g), WF_ERR_USAGE, "llama-1B, tiny");
    wt_fails(ctx, wf_example_build(ctx, "tiny", &(wf_example_options){.length = 65}, &g),
             WF_ERR_USAGE, "length 65 exceeds the context of tiny, 64");
    wt_fails(ctx, wf_example_build(ctx, "tiny", &(wf_example_options){.batch = -1}, &g),
             WF_ERR_USAGE, "must be positive");
    wt_fails(ctx, wf_example_build(ctx, "tiny", &(wf_example_options){.batch = INT64_MAX}, &g),
             WF_ERR_USAGE, "too large");
    for (uint64_t nth = 1; nth < 2000; nth += 7) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_example_build(ctx, "tiny", NULL, &g);
        wf_ctx_fail_allocation(ctx, 0);
        if (status == WF_OK) {
            wf_graph_free(g);
            break;
        }
        assert_int_equal(status, WF_ERR_MEMORY);
        assert_null(g);
    }
}

static wf_status scale_loss(void *user, wf_graph **g, wf_value **loss)
{
    ++*(int *)user;
    *loss = wf_scale(*g, *loss, 0); /* so that only weight decay changes parameters */
    return *loss ? WF_OK : WF_ERR_GRAPH;
}

static wf_status refuse(void *user, wf_graph **g, wf_value **loss)
{
    (void)user, (void)loss;
    return wf_fail((*g)->ctx, WF_ERR_USAGE, "not today");
}

/* ---- Runs of the tiny example ---- */

enum { B = 4, T = 64, V = 128 };

static void write_weights(wt_run *r)
{
    static float w[4 * 96 * 96];
    wf_info s;
    for (int i = 0; wf_session_state(r->session, i, &s); i++) {
        bool is_norm = strstr(s.name, "norm") != NULL;
        bool is_param = s.name[1] != '.' && strncmp(s.name, "kv.", 3) != 0;
        uint64_t stream = 0; /* independent of the order of states */
        for (const char *c = s.name; *c; c++)
            stream = stream * 31 + (uint64_t)*c;
        if (!is_param)
            continue;
        wf_random_normal(1, stream, is_norm ? 1 : 0, is_norm ? 0 : 0.05f, w,
                         (int64_t)(s.bytes / sizeof *w));
        wt_ok(r->ctx, wf_session_write(r->session, s.name, w, s.bytes));
    }
}

static void write_tokens(wt_run *r, const int32_t *tokens)
{
    int32_t positions[B * T], start[B + 1];
    for (int i = 0; i < B * T; i++)
        positions[i] = i % T;
    for (int s = 0; s <= B; s++)
        start[s] = s * T;
    wt_write(r, "tokens", tokens, B * T * sizeof *tokens);
    wt_write(r, "positions", positions, sizeof positions);
    wt_write(r, "seq_start", start, sizeof start);
}

/* Trains on counting by fives. Returns the first and the last loss. */
static void train_tiny(wf_ctx *ctx, const wf_example_options *o, float *first, float *last)
{
    int32_t tokens[B * T], targets[B * T];
    wf_graph *g;
    wt_ok(ctx, wf_example_build(ctx, "tiny", o, &g));
    wt_run r = wt_open(ctx, "cpu:2");
    wt_compile(&r, g);
    write_weights(&r);
    for (int i = 0; i < B * T; i++) {
        tokens[i] = (i / T * 31 + i % T * 5) % V;
        targets[i] = (tokens[i] + 5) % V;
    }
    write_tokens(&r, tokens);
    wt_write(&r, "targets", targets, sizeof targets);
    for (int32_t step = 1; step <= 8; step++) {
        wt_write(&r, "lr", &(float){1e-2f}, sizeof(float));
        wt_write(&r, "step", &step, sizeof step);
        wt_run_once(&r);
        wt_read(&r, "loss", last, sizeof *last);
        if (step == 1)
            *first = *last;
    }
    wt_close(&r);
}

/* The loss starts near log(V) and falls. */
static void test_tiny_learns(void **state)
{
    float first, last;
    train_tiny(*state, &(wf_example_options){.batch = B}, &first, &last);
    assert_true(fabs(first - log(V)) < 1);
    print_message("loss %.3f, then %.3f\n", (double)first, (double)last);
    assert_true(last < 0.9 * first);
}

/* before_grad can change the loss or refuse to build. */
static void test_hook(void **state)
{
    float first, last;
    int calls = 0;
    wf_graph *g;
    const wf_example_options o = {.batch = B, .before_grad = scale_loss, .user = &calls};
    train_tiny(*state, &o, &first, &last);
    assert_int_equal(calls, 1);
    assert_true(fabs(first - last) < 0.02);
    wt_fails(*state,
             wf_example_build(*state, "tiny", &(wf_example_options){.before_grad = refuse}, &g),
             WF_ERR_USAGE, "not today");
}

/* Prefill of all tokens but the last, then decode of the last one, gives the logits of a prefill of
 * all tokens. */
static void test_prefill_and_decode(void **state)
{
    wf_ctx *ctx = *state;
    enum { PAGES = T / 8 };
    static float all[B][V], one[B][V];
    int32_t tokens[B * T], table[B * PAGES], rows[B], next[B], ends[B], start[B + 1];
    wf_example_options o = {.form = WF_EXAMPLE_PREFILL, .batch = B, .page = 8};
    wf_graph *g;
    for (int i = 0; i < B * T; i++)
        tokens[i] = (i * i + 7 * i) % V;
    for (int i = 0; i < B * PAGES; i++)
        table[i] = (i * 5 + 3) % (B * PAGES); /* a permutation: 5 and 32 have no common factor */
    wt_ok(ctx, wf_example_build(ctx, "tiny", &o, &g));
    wt_run r = wt_open(ctx, "cpu:2");
    wt_compile(&r, g);
    write_weights(&r);
    write_tokens(&r, tokens);
    wt_write(&r, "table", table, sizeof table);
    for (int s = 0; s <= B; s++)
        start[s] = s;
    for (int s = 0; s < B; s++) {
        rows[s] = s * T + T - 1;
        next[s] = tokens[rows[s]];
        tokens[rows[s]] = 0; /* decode must overwrite this in the pages */
        ends[s] = T;
    }
    wt_write(&r, "rows", rows, sizeof rows);
    wt_run_once(&r);
    wt_read(&r, "logits", all, sizeof all);
    write_tokens(&r, tokens);
    wt_run_once(&r);

    o.form = WF_EXAMPLE_DECODE;
    wt_ok(ctx, wf_example_build(ctx, "tiny", &o, &g));
    wt_compile(&r, g);
    wt_write(&r, "tokens", next, sizeof next);
    wt_write(&r, "positions", (int32_t[]){T - 1, T - 1, T - 1, T - 1}, sizeof next);
    wt_write(&r, "seq_start", start, sizeof start);
    wt_write(&r, "table", table, sizeof table);
    wt_write(&r, "lengths", ends, sizeof ends);
    wt_run_once(&r);
    wt_read(&r, "logits", one, sizeof one);
    for (int s = 0; s < B; s++)
        for (int i = 0; i < V; i++)
            assert_true(fabsf(all[s][i] - one[s][i]) < 1e-4f);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_every_example), wt_test(test_plans_are_tight),
        wt_test(test_refusals),      wt_test(test_tiny_learns),
        wt_test(test_hook),          wt_test(test_prefill_and_decode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

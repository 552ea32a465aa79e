/* SPDX-License-Identifier: MIT */
/*
 * test_verify.c - the verifier: valid graphs pass, and graphs with one injected fault are refused
 * by the name of that fault. Every fault name of verify.c has a case here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "support.h"

/* The valid graph that each case damages. Every node is used, and nodes are in order:
 *
 *     x input f32[2,3], w state f32[3,3], y = x w, s = 2 y, flat = y as [6], t = w transposed,
 *     z = x t, next = assign(w, t), outputs "s" and "z"
 */
typedef struct {
    wf_graph *g, *other;
    wf_value *x, *w, *y, *s, *flat, *t, *z, *next;
    wf_value *foreign; /* of the other graph, with y's type and shape */
} victim;

static victim make(wf_ctx *ctx)
{
    victim v = {0};
    wt_ok(ctx, wf_graph_new(ctx, &v.g));
    wt_ok(ctx, wf_graph_new(ctx, &v.other));
    v.x = wf_input(v.g, "x", WF_F32, 2, (int64_t[]){2, 3});
    v.w = wf_state(v.g, "w", WF_F32, 2, (int64_t[]){3, 3});
    v.y = wf_matmul(v.g, v.x, v.w, false, false);
    v.s = wf_scale(v.g, v.y, 2);
    v.flat = wf_reshape(v.g, v.y, 1, (int64_t[]){6});
    v.t = wf_permute(v.g, v.w, (int64_t[]){1, 0});
    v.z = wf_matmul(v.g, v.x, v.t, false, false);
    v.next = wf_assign(v.g, v.w, v.t, NULL);
    wf_output(v.g, "s", v.s);
    wf_output(v.g, "z", v.z);
    v.foreign = wf_fill(v.other, WF_F32, 2, (int64_t[]){2, 3}, 1);
    wt_ok(ctx, wf_graph_verify(v.g));
    return v;
}

/* ---- Faults of a single node ---- */

static void op_out_of_range(victim *v)
{
    v->s->node->op = WF_OP_COUNT;
}

static void op_negative(victim *v)
{
    v->s->node->op = (wf_op)-1;
}

static void no_node(victim *v)
{
    v->g->nodes[v->z->node->id] = NULL;
}

static void another_id(victim *v)
{
    v->s->node->id = v->z->node->id;
}

static void two_places(victim *v)
{
    v->g->nodes[v->z->node->id] = v->y->node;
}

static void too_few_operands(victim *v)
{
    v->y->node->nin = 1;
}

static void too_many_operands(victim *v)
{
    v->y->node->nin = 3;
}

static void attributes_lost(victim *v)
{
    v->s->node->attr = NULL;
}

static void attributes_too_many(victim *v)
{
    v->next->node->attr = v->s->node->attr;
}

static void attributes_of_rank_100(victim *v)
{
    static const wf_attr_shape bad = {{100, {6}}};
    v->flat->node->attr = &bad;
}

static void name_lost(victim *v)
{
    v->x->node->name = NULL;
}

static void name_too_many(victim *v)
{
    v->y->node->name = "y";
}

/* ---- Faults of operands ---- */

static void operand_missing(victim *v)
{
    v->s->node->in[0] = NULL;
}

static void operand_of_another_graph(victim *v)
{
    v->s->node->in[0] = v->foreign;
}

static void operand_is_a_copy(victim *v)
{
    static wf_value copy;
    copy = *v->y;
    v->s->node->in[0] = &copy;
}

static void operand_beyond_the_outputs(victim *v)
{
    static wf_value beyond;
    beyond = *v->y;
    beyond.index = 1;
    v->s->node->in[0] = &beyond;
}

static void operand_comes_later(victim *v)
{
    v->y->node->in[0] = v->s;
}

static void operand_is_itself(victim *v)
{
    v->s->node->in[0] = v->s;
}

static void operands_do_not_fit(victim *v)
{
    v->y->node->in[1] = v->x;
}

static void attributes_do_not_fit(victim *v)
{
    static const wf_attr_permute bad = {{2, {1, 1}}};
    v->t->node->attr = &bad;
}

/* ---- Faults of results ---- */

static void an_output_too_many(victim *v)
{
    v->s->node->nout = 2;
}

static void no_output(victim *v)
{
    v->z->node->nout = 0;
}

static void output_of_another_node(victim *v)
{
    v->s->node = v->y->node;
}

static void output_with_another_index(victim *v)
{
    v->s->index = 1;
}

static void another_type(victim *v)
{
    v->z->type = WF_BF16;
}

static void another_shape(victim *v)
{
    v->z->shape.d[0] = 3;
}

static void another_rank(victim *v)
{
    v->flat->shape.n = 2;
}

/* ---- Faults of states; a user can cause the first three ---- */

static void read_after_write(victim *v)
{
    assert_non_null(wf_scale(v->g, v->w, 2));
}

static void read_after_write_by_a_view(victim *v)
{
    assert_non_null(wf_scale(v->g, v->t, 2));
}

static void read_after_write_by_views_of_views(victim *v)
{
    wf_value *view = wf_slice(v->g, v->t, 0, 1, 2); /* the view itself reads, and is reported */
    assert_non_null(view);
}

static void read_after_second_write(victim *v)
{
    assert_non_null(wf_assign(v->g, v->next, wf_scale(v->g, v->next, 2), NULL));
    assert_non_null(wf_scale(v->g, v->next, 2));
}

static void read_after_write_by_an_update(victim *v)
{
    wf_value *u = wf_state(v->g, "u", WF_F32, 2, (int64_t[]){3, 3});
    assert_non_null(wf_assign(v->g, u, v->w, NULL));
}

static void write_version_0_twice(victim *v)
{
    assert_non_null(wf_assign(v->g, v->w, wf_fill(v->g, WF_F32, 2, (int64_t[]){3, 3}, 0), NULL));
}

static void write_one_state_as_two(victim *v)
{
    wf_value *one = wf_fill(v->g, WF_F32, 0, NULL, 1), *p = v->next;
    wf_value *grad = wf_fill(v->g, WF_F32, 2, (int64_t[]){3, 3}, 1);
    wf_value *m = wf_state(v->g, "m", WF_F32, 2, (int64_t[]){3, 3});
    wf_value *step = wf_fill(v->g, WF_I32, 0, NULL, 1);
    assert_non_null(wf_adamw(v->g, p, m, m, grad, one, step, NULL, NULL, NULL));
}

static void write_to_a_value(victim *v)
{
    wf_value *like = wf_fill(v->g, WF_F32, 2, (int64_t[]){3, 3}, 0);
    wf_value *again = wf_assign(v->g, v->next, like, NULL);
    again->node->in[0] = like;
}

static void write_to_a_view(victim *v)
{
    wf_value *view = wf_permute(v->g, v->next, (int64_t[]){1, 0});
    wf_value *again = wf_assign(v->g, v->next, view, NULL);
    again->node->in[0] = view;
}

static void mark_value_as_state(victim *v)
{
    v->y->state = v->w->node;
}

static void unmark_state(victim *v)
{
    v->w->state = NULL;
}

static void state_starts_at_3(victim *v)
{
    v->w->version = 3;
    v->next->version = 4;
}

static void update_of_another_state(victim *v)
{
    v->next->state = NULL;
}

static void update_skips_a_version(victim *v)
{
    v->next->version = 2;
}

static wf_value *copy_of_w(victim *v, int64_t rows)
{
    const wf_attr_source attr = {.type = WF_BF16, .dims = {2, {rows, 3}}};
    return wf_node_add(v->g, WF_OP_state_copy, &attr, "w", NULL, 0);
}

static void copy_changes_by_itself(victim *v)
{
    wf_value *like = wf_fill(v->g, WF_BF16, 2, (int64_t[]){3, 3}, 0);
    assert_non_null(wf_assign(v->g, copy_of_w(v, 3), like, NULL));
}

static void copy_of_another_shape(victim *v)
{
    assert_non_null(copy_of_w(v, 2));
}

static void copy_of_an_input(victim *v)
{
    copy_of_w(v, 3)->node->name = "x";
}

/* ---- Faults of the whole graph ---- */

static void output_without_value(victim *v)
{
    v->g->outputs[0].value = NULL;
}

static void output_of_another_graph(victim *v)
{
    v->g->outputs[1].value = v->foreign;
}

static void output_is_an_input(victim *v)
{
    v->g->outputs[0].value = v->x;
}

static void output_is_a_view(victim *v)
{
    v->g->outputs[0].value = v->flat;
}

static void output_is_an_update(victim *v)
{
    v->g->outputs[0].value = v->next;
}

static void two_inputs_of_one_name(victim *v)
{
    wf_input(v->g, "x2", WF_F32, 0, NULL)->node->name = "x";
}

static void two_outputs_of_one_name(victim *v)
{
    v->g->outputs[1].name = "s";
}

/* ---- The table of faults ---- */

typedef struct {
    const char *fault;
    void (*damage)(victim *v);
    const char *part; /* expected in the message */
} damage_case;

static const damage_case cases[] = {
    {"unknown-op", op_out_of_range, "node 3"},
    {"unknown-op", op_negative, "node 3"},
    {"unknown-op", no_node, "node 6"},
    {"wrong-id", another_id, "node 3 (scale) has the id 6"},
    {"wrong-id", two_places, "node 6 (matmul) has the id 2"},
    {"wrong-arity", too_few_operands, "node 2 (matmul) has 1 operand"},
    {"wrong-arity", too_many_operands, "node 2 (matmul) has 3 operands"},
    {"wrong-attributes", attributes_lost, "node 3 (scale) lacks its attributes"},
    {"wrong-attributes", attributes_too_many, "(assign) should have no attributes"},
    {"wrong-attributes", attributes_of_rank_100, "(reshape)"},
    {"wrong-name", name_lost, "node 0 (input) lacks a name"},
    {"wrong-name", name_too_many, "node 2 (matmul) should not have a name"},
    {"dangling-operand", operand_missing, "operand 0 of node 3 (scale)"},
    {"dangling-operand", operand_of_another_graph, "operand 0 of node 3 (scale)"},
    {"dangling-operand", operand_is_a_copy, "operand 0 of node 3 (scale)"},
    {"dangling-operand", operand_beyond_the_outputs, "operand 0 of node 3 (scale)"},
    {"wrong-order", operand_comes_later, "node 2 (matmul) uses node 3"},
    {"wrong-order", operand_is_itself, "node 3 (scale) uses node 3"},
    {"wrong-operands", operands_do_not_fit, "matmul(f32[2,3], f32[2,3]"},
    {"wrong-operands", attributes_do_not_fit, "permute(f32[3,3]; order=[1,1])"},
    {"wrong-outputs", an_output_too_many, "node 3 (scale) has 2 outputs, not 1"},
    {"wrong-outputs", no_output, "node 6 (matmul) has 0 outputs, not 1"},
    {"dangling-output", output_of_another_node, "output 0 of node 3 (scale)"},
    {"dangling-output", output_with_another_index, "output 0 of node 3 (scale)"},
    {"wrong-type", another_type, "output 0 of node 6 (matmul) is bf16 but should be f32"},
    {"wrong-shape", another_shape, "node 6 (matmul) does not have the shape of f32[2,3]"},
    {"wrong-shape", another_rank, "node 4 (reshape) does not have the shape of f32[6]"},
    {"reader-after-writer", read_after_write, "reads version 0 of state 'w' after node 7"},
    {"reader-after-writer", read_after_write_by_a_view, "(scale) reads version 0 of state 'w'"},
    {"reader-after-writer", read_after_write_by_views_of_views, "(slice) reads version 0"},
    {"reader-after-writer", read_after_second_write, "reads version 1 of state 'w'"},
    {"reader-after-writer", read_after_write_by_an_update, "(assign) reads version 0 of state 'w'"},
    {"two-writers", write_version_0_twice, "updates version 0 of state 'w', which node 7"},
    {"two-writers", write_one_state_as_two, "state 'm'"},
    {"write-to-no-state", write_to_a_value, "(assign)"},
    {"write-to-no-state", write_to_a_view, "(assign)"},
    {"wrong-version", mark_value_as_state, "(matmul) is marked as a state"},
    {"wrong-version", unmark_state, "(state)"},
    {"wrong-version", state_starts_at_3, "(state)"},
    {"wrong-version", update_of_another_state, "next version of 'w'"},
    {"wrong-version", update_skips_a_version, "next version of 'w'"},
    {"write-to-copy", copy_changes_by_itself, "(assign) updates the copy of state 'w'"},
    {"copy-of-nothing", copy_of_another_shape, "(state_copy) copies 'w'"},
    {"copy-of-nothing", copy_of_an_input, "(state_copy) copies 'x'"},
    {"dangling-output", output_without_value, "output 's'"},
    {"dangling-output", output_of_another_graph, "output 'z'"},
    {"shared-output", output_is_an_input, "output 's'"},
    {"shared-output", output_is_a_view, "output 's'"},
    {"shared-output", output_is_an_update, "output 's'"},
    {"duplicate-name", two_inputs_of_one_name, "the name 'x'"},
    {"duplicate-name", two_outputs_of_one_name, "the name 's'"},
};
#define CASES (sizeof cases / sizeof *cases)

static void test_damage_is_found(void **state)
{
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < CASES; i++) {
        char prefix[64];
        snprintf(prefix, sizeof prefix, "%s: ", cases[i].fault);
        victim v = make(ctx);
        cases[i].damage(&v);
        wf_ctx_clear(ctx);
        wf_status status = wf_graph_verify(v.g);
        const char *text = wf_ctx_message(ctx);
        print_message("%s\n", text);
        if (status != WF_ERR_GRAPH || strncmp(text, prefix, strlen(prefix)) != 0)
            fail_msg("case %d: wanted %s, got status %d: %s", (int)i, cases[i].fault, status, text);
        if (!strstr(text, cases[i].part) || !wt_is_sentence(text))
            fail_msg("case %d: wanted \"%s\" in: %s", (int)i, cases[i].part, text);
        wf_graph_free(v.g);
        wf_graph_free(v.other);
    }
}

/* Reads the fault names from verify.c: a new fault needs a case here. */
static void test_every_fault_has_a_case(void **state)
{
    (void)state;
    static char text[1 << 16];
    FILE *file = fopen("src/graph/verify.c", "r");
    if (!file)
        skip(); /* not started in the source tree */
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    int faults = 0;
    for (const char *at = strstr(text, "FAULT("); at; at = strstr(at + 1, "FAULT(")) {
        char name[64];
        if (sscanf(at, "FAULT( v , \"%63[^\"]\"", name) != 1)
            continue; /* the definition */
        faults++;
        bool found = false;
        for (size_t i = 0; i < CASES; i++)
            found |= strcmp(cases[i].fault, name) == 0;
        if (!found)
            fail_msg("the fault %s has no case", name);
    }
    assert_true(faults >= 18);
}

/* Compilation also finds a user's fault, and leaks nothing. */
static void test_compile_verifies(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    victim v = make(ctx);
    read_after_write_by_a_view(&v);
    uint64_t blocks = wt_live_blocks(ctx);
    wt_fails(ctx, wf_compile(r.session, v.g, &r.exec), WF_ERR_GRAPH, "reader-after-writer: ");
    assert_null(r.exec);
    assert_int_equal(wt_live_blocks(ctx), blocks);
    wf_graph_free(v.g);
    wf_graph_free(v.other);
    wt_close(&r);
}

/* ---- Valid graphs ---- */

static void test_a_model_passes(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g, *core;
    wt_model m;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wt_ok(ctx, wf_graph_verify(g)); /* empty */
    wt_forward(g, &wt_tiny, &m);
    wt_ok(ctx, wf_graph_verify(g));
    wt_train(g, &m);
    wt_ok(ctx, wf_graph_verify(g));
    wt_ok(ctx, wf_pass_expand(g, NULL, NULL, &core));
    wt_ok(ctx, wf_graph_verify(core));
    wf_graph_free(core);
    wf_graph_free(g);
}

/* Reading version 0, then version 1, both before the next update, is legal. */
static void test_versions_in_order_pass(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_value *w = wf_state(g, "w", WF_F32, 1, (int64_t[]){4});
    wf_value *u = wf_state(g, "u", WF_F32, 1, (int64_t[]){4});
    for (int i = 0; i < 5; i++) {
        wf_value *tail = wf_pad(g, wf_slice(g, w, 0, 1, 4), 0, 0, 1);
        u = wf_accumulate(g, u, w, NULL);
        w = wf_assign(g, w, wf_binary(g, "add", tail, u), NULL);
    }
    wf_output(g, "w", w);
    wt_ok(ctx, wf_graph_verify(g));
    wf_graph_free(g);
}

static void test_a_failed_graph_reports_its_failure(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    assert_null(wf_unary(g, "exp", wf_fill(g, WF_I32, 0, NULL, 1)));
    wf_ctx_clear(ctx);
    wt_fails(ctx, wf_graph_verify(g), WF_ERR_USAGE, "exp(i32[])");
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_damage_is_found),        wt_test(test_every_fault_has_a_case),
        wt_test(test_compile_verifies),       wt_test(test_a_model_passes),
        wt_test(test_versions_in_order_pass), wt_test(test_a_failed_graph_reports_its_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

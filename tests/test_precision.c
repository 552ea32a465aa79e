/* SPDX-License-Identifier: MIT */
/*
 * test_precision.c - mixed precision: every op, the two tiny models, and the rules of the pass.
 *
 * Every f32 case of the selftest runs through the pass, with operands first rounded to the compute
 * type. The float64 reference of the graph must be equal before and after the pass. The device's
 * results must lie within the bounds of narrow kernels around it. The loss of accuracy against f32
 * is measured on whole models.
 *
 * WEFT_PRECISION_DEVICE selects another device than the cpu.
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

#include "graph/build.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "parity_model.h"
#include "selftest/case.h"
#include "support.h"

static const wf_type narrow_types[] = {WF_BF16, WF_F16};

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_PRECISION_DEVICE");
    return given ? given : "cpu";
}

/* ---- Every op ---- */

/* Ops that the pass makes narrow when their operands are narrow; all other ops must stay f32. */
static const char *const narrow_ops =
    " linear matmul attention neg scale add sub mul div maximum minimum where tanh sigmoid erf gelu"
    " gelu_erf silu relu relu2 glu dropout max top_k layer_norm rms_norm rope copy reshape permute"
    " slice pad concat broadcast embed gather_rows sum mean ";

static bool should_narrow(const wf_op_def *def)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", def->name);
    return strstr(narrow_ops, word) != NULL;
}

/* Rounds x to the compute type: the pass makes this multiplication narrow, and times 1 is exact. */
static wf_value *times_one(wf_graph *g, wf_value *x)
{
    int64_t column[] = {wf_value_count(x), 1}, one[] = {1, 1};
    wf_value *y =
        wf_matmul(g, wf_reshape(g, x, 2, column), wf_fill(g, WF_F32, 2, one, 1), false, false);
    return wf_reshape_to(g, y, &x->shape);
}

/* Replaces the f32 operands of the node under test by narrow ones. */
static wf_status soften(wf_case *c)
{
    wf_rewrite r;
    WF_TRY(wf_rewrite_begin(c->g, &r));
    wf_rewrite_before(&r, c->node);
    for (int i = 0; i < c->node->nin; i++) {
        wf_value *v = c->node->in[i];
        if (v->type == WF_F32 && !v->state)
            c->node->in[i] = times_one(c->g, v);
    }
    return wf_rewrite_end(&r, WF_OK);
}

static wf_status read_results(wf_case *c)
{
    for (int i = 0; i < c->node->nout; i++) {
        char name[16];
        snprintf(name, sizeof name, "y%d", i);
        WF_TRY(wf_case_read(c, name, &c->node->out[i], NULL));
    }
    return WF_OK;
}

/* Computes the reference of the graph before the pass from rounded operands. The pass must not
 * change it, wherever it casts. */
static wf_status eval_rounded(wf_case *c, wf_type compute, wf_eval **e)
{
    WF_TRY(wf_eval_new(c, c->node, e));
    for (int i = 0; i < c->operands; i++) {
        const wf_node *n = c->operand[i].node;
        int64_t count = wf_value_count(&n->out[0]);
        if (n->op == WF_OP_state || n->out[0].type != WF_F32)
            continue;
        double *v = wf_arena_alloc(&c->arena, (size_t)count * sizeof *v);
        if (!v)
            return WF_ERR_MEMORY;
        for (int64_t k = 0; k < count; k++)
            v[k] = wf_number_round(compute, c->operand[i].v[k]);
        (*e)->given[n->id] = v;
    }
    return wf_eval_run(*e, true);
}

static bool same_numbers(const wf_ref *a, const wf_ref *b)
{
    int64_t n = wf_dims_count(&a->shape);
    for (int64_t i = 0; i < n; i++)
        if (a->v[i] != b->v[i] && !(isnan(a->v[i]) && isnan(b->v[i])))
            return false;
    return true;
}

/* A result declared f32 but computed narrow must be representable in the narrow type. */
static wf_verdict judge(wf_case *c, const wf_read *read, wf_type declared, const wf_ref *want)
{
    double bound = c->row->forward > 0 ? c->row->forward : WF_CASE_FORWARD;
    if (want->type == declared)
        return wf_compare(read->bytes, want, bound);
    const float *got = read->bytes;
    int64_t n = wf_dims_count(&want->shape);
    uint16_t *bits = wf_arena_alloc(&c->arena, (size_t)n * sizeof *bits);
    assert_non_null(bits);
    wf_convert_from_f32(want->type, got, bits, n);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(got[i]) && wf_number_load(want->type, bits, i) != got[i])
            return (wf_verdict){.failed = true, .index = i, .got = got[i]};
    return wf_compare(bits, want, bound);
}

typedef struct {
    int cases, failures;
    double worst;
    bool narrow; /* whether any result was narrow */
} op_total;

static wf_status look_at_case(wf_case *c, wf_type compute, wf_device *device, op_total *t)
{
    wf_eval *e, *before;
    const wf_ref *meant;
    wf_type declared[WF_MAX_OUT];
    WF_TRY(wf_case_status(c));
    for (int i = 0; i < c->node->nout; i++)
        declared[i] = c->node->out[i].type;
    WF_TRY(read_results(c));
    WF_TRY(soften(c));
    WF_TRY(eval_rounded(c, compute, &before));
    meant = before->node[c->node->id].out;
    wf_status status = wf_precision(c->g, compute);
    if (status == WF_OK)
        status = wf_graph_verify(c->g);
    if (status == WF_OK)
        status = wf_eval_new(c, c->node, &e);
    if (status == WF_OK)
        status = wf_eval_run(e, true);
    if (status == WF_OK)
        status = wf_case_run(c, c->g, device, NULL);
    if (status != WF_OK)
        return status;
    for (int i = 0; i < c->reads; i++) {
        const wf_read *read = &c->read[i];
        const wf_ref *want = &e->node[c->node->id].out[i];
        wf_verdict v = judge(c, read, declared[i], want);
        if (!same_numbers(want, &meant[i])) {
            print_error("%s variant %d: the pass changed what output %d means\n",
                        wf_op_get(c->row->op)->name, c->variant, i);
            t->failures++;
        }
        if (v.failed) {
            print_error("%s variant %d %s, %s: element %lld of output %d is %.9g, expected %.9g "
                        "within %.3g\n",
                        wf_op_get(c->row->op)->name, c->variant, c->row->label ? c->row->label : "",
                        wf_type_name(compute), (long long)v.index, i, v.got, v.wanted, v.bound);
            t->failures++;
        }
        t->worst = fmax(t->worst, v.ratio);
    }
    /* Does not count results that the case declares narrow, or nodes that replace a source. */
    for (int i = 0; i < c->node->nout && c->node->op == c->row->op; i++)
        t->narrow |= declared[i] == WF_F32 && c->node->out[i].type == compute;
    return WF_OK;
}

static op_total look_at_op(wf_ctx *ctx, wf_device *device, wf_op op, wf_type compute)
{
    op_total t = {0};
    wf_case_row rows[32];
    int n = wf_case_rows(op, rows, 32);
    assert_in_range(n, 1, 32);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < rows[i].variants && rows[i].types & WF_TYPE_BIT(WF_F32); k++) {
            wf_case *c;
            /* Sanitized, a quarter of the cases of ops that have been found to be narrow. */
            if (wt_cases(4) < 4 && t.narrow && (wt_seed() + (uint64_t)(i + k)) % 4 != 0)
                continue;
            wt_ok(ctx, wf_case_new(ctx, &rows[i], k, WF_F32, wt_seed(), 0, &c));
            wf_status status = look_at_case(c, compute, device, &t);
            if (status != WF_OK)
                print_error("%s variant %d %s, %s\n", wf_op_get(op)->name, k,
                            rows[i].label ? rows[i].label : "", wf_type_name(compute));
            wf_case_free(c);
            wt_ok(ctx, status);
            t.cases++;
        }
    return t;
}

static void test_every_op(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, device_under_test(), &device));
    for (int k = 0; k < 2; k++) {
        int cases = 0, failures = 0, narrow = 0;
        double worst = 0;
        for (int op = 0; op < WF_OP_COUNT; op++) {
            const wf_op_def *def = wf_op_get((wf_op)op);
            op_total t = look_at_op(ctx, device, (wf_op)op, narrow_types[k]);
            if (t.cases > 0 && t.narrow != should_narrow(def))
                fail_msg("%s %s narrow", def->name, t.narrow ? "is" : "is never");
            cases += t.cases;
            failures += t.failures;
            narrow += t.narrow;
            worst = fmax(worst, t.worst);
        }
        print_message("%s: %d cases, %d ops narrow, largest error / bound %.2f\n",
                      wf_type_name(narrow_types[k]), cases, narrow, worst);
        assert_int_equal(failures, 0);
    }
    wf_device_close(device);
}

/* ---- Types after the pass ---- */

static int count_op(const wf_graph *g, wf_op op)
{
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i]->op == op;
    return count;
}

#define DIMS(...) ((int64_t[]){__VA_ARGS__})

static void test_parameters_are_cast_once(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_report report = {0};
    wf_value *w = wf_state(g, "w", WF_F32, 2, DIMS(8, 8)),
             *b = wf_state(g, "b", WF_F32, 1, DIMS(8));
    wf_value *gain = wf_state(g, "gain", WF_F32, 1, DIMS(8));
    wf_value *x = wf_input(g, "x", WF_F32, 2, DIMS(4, 8));
    wf_value *h = wf_linear(g, x, w, b), *y = wf_linear(g, wf_rms_norm(g, h, gain, 1e-5), w, b);
    wf_value *z = wf_binary(g, "add", wf_binary(g, "add", h, y), b);
    wf_output(g, "z", z);
    wf_output(g, "h", h);
    wt_ok(ctx, wf_pass_precision(g, WF_BF16, &report));
    wt_ok(ctx, wf_graph_verify(g));
    assert_int_equal(wf_report_get(&report, "precision", "casts of parameters"),
                     2); /* w, and b in add */
    assert_int_equal(wf_report_get(&report, "precision", "casts of other values"), 1); /* x */
    assert_int_equal(wf_report_get(&report, "precision", "casts back to f32"), 2);
    assert_int_equal(count_op(g, WF_OP_cast), 5);
    wf_value *values[] = {h, y, z};
    for (int i = 0; i < 3; i++)
        assert_int_equal(wf_value_type(values[i]), WF_BF16);
    assert_ptr_equal(h->node->in[1], y->node->in[1]); /* both share one cast of w */
    assert_ptr_equal(h->node->in[2], b);              /* biases and gains stay f32 */
    assert_ptr_equal(y->node->in[0]->node->in[1], gain);
    assert_int_equal(y->node->in[0]->node->out[1].type, WF_F32);
    assert_int_equal(w->type, WF_F32);
    for (int i = 0; i < 2; i++)
        assert_int_equal(g->outputs[i].value->type, WF_F32);
    assert_true(wf_report_get(&report, "precision", "bytes computed after") > 0);
    wf_graph_free(g);
}

/* Each version of a state gets its own cast, placed before the next update. */
static void test_versions_of_states(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 2, DIMS(3, 3)),
             *x = wf_input(g, "x", WF_F32, 2, DIMS(2, 3));
    wf_value *a = wf_linear(g, x, w, NULL);
    wf_value *next = wf_accumulate(g, w, wf_matmul(g, a, a, true, false), NULL);
    wf_value *b = wf_linear(g, x, next, NULL);
    wf_output(g, "b", b);
    wt_ok(ctx, wf_precision(g, WF_F16));
    wt_ok(ctx, wf_graph_verify(g));
    assert_ptr_equal(a->node->in[1]->node->in[0], w);
    assert_ptr_equal(b->node->in[1]->node->in[0], next);
    assert_int_equal(next->type, WF_F32);
    /* Accumulate reads the narrow value directly */
    assert_int_equal(next->node->in[1]->type, WF_F16);
    wf_graph_free(g);
}

/* gather reads the f32 table; the residual stream from it is narrow, and the end of a block is the
 * rounded value. */
static void test_rows_of_parameters(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *table = wf_state(g, "t", WF_F32, 2, DIMS(9, 4)),
             *places = wf_state(g, "p", WF_F32, 2, DIMS(5, 4));
    wf_value *ids = wf_input(g, "ids", WF_I32, 1, DIMS(5));
    wf_value *e = wf_block(g, wf_embed(g, table, ids)), *p = wf_gather_rows(g, places, ids);
    wf_value *x = wf_binary(g, "add", e, p),
             *y = wf_binary(g, "add", x, wf_reshape(g, places, 2, DIMS(5, 4)));
    wf_output(g, "y", y);
    wt_ok(ctx, wf_precision(g, WF_BF16));
    assert_int_equal(e->type, WF_F32);
    assert_int_equal(x->type, WF_BF16);
    assert_int_equal(y->type, WF_BF16);
    assert_int_equal(e->marks, 0);
    assert_int_equal(x->node->in[0]->marks, WF_MARK_BLOCK);
    wf_graph_free(g);
}

static void test_stays_f32(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 2, DIMS(4, 4)),
             *x = wf_input(g, "x", WF_F32, 2, DIMS(4, 4));
    wf_value *a = wf_linear(g, x, w, NULL), *half = wf_input(g, "half", WF_F16, 2, DIMS(4, 4));
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, DIMS(2, 4, 1, 4));
    wf_value *start = wf_input(g, "start", WF_I32, 1, DIMS(2)),
             *positions = wf_input(g, "at", WF_I32, 1, DIMS(4));
    wf_value *pages = wf_input(g, "pages", WF_I32, 2, DIMS(1, 2)),
             *lengths = wf_input(g, "n", WF_I32, 1, DIMS(1));
    wf_value *q = wf_reshape(g, a, 3, DIMS(4, 1, 4));
    wf_value *paged = wf_attention_paged(g, q, pool, pool, start, positions, pages, lengths, NULL);
    wf_value *wide[] = {
        wf_unary(g, "exp", a),
        wf_softmax(g, a),
        wf_reduce(g, "mean", a, WF_ALL_AXES(a), false), /* a scalar */
        wf_binary(g, "sub", a, x),                      /* x keeps the type it was declared with */
        wf_binary(g, "mul", w, w),                      /* no narrow operand */
        wf_reduce(g, "sum", wf_broadcast(g, a, 3, DIMS(65, 4, 4)), WF_AXIS(0), false),
    };
    wf_value *own = wf_linear(g, half, w, NULL); /* f16 by the caller's choice */
    wf_value *few = wf_reduce(g, "sum", wf_broadcast(g, a, 3, DIMS(64, 4, 4)), WF_AXIS(0), false);
    wf_value *gated = wf_binary(g, "mul", a, wf_softmax(g, wf_slice(g, a, 1, 0, 1)));
    wf_value *same = wf_cast(g, a, WF_I32),
             *less = wf_binary(g, "lt", a, wf_fill(g, WF_F32, 0, NULL, 0.1));
    wt_ok(ctx, wf_precision(g, WF_BF16));
    wt_ok(ctx, wf_graph_verify(g));
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (wf_value_type(wide[i]) != WF_F32)
            fail_msg("value %d is %s", (int)i, wf_type_name(wf_value_type(wide[i])));
    assert_ptr_equal(own->node->in[1], w);
    assert_int_equal(own->type, WF_F16);
    assert_int_equal(few->type, WF_BF16);
    /* The weights are broadcast: the larger operand decides. */
    assert_int_equal(gated->type, WF_BF16);
    assert_int_equal(paged->type, WF_BF16);
    assert_ptr_equal(paged->node->in[1], pool); /* no copy of the whole pool */
    assert_ptr_equal(same->node->in[0], a);
    assert_int_equal(less->node->in[0]->type, WF_F32);            /* 0.1 is compared in f32 */
    assert_ptr_equal(wide[0]->node->in[0], wide[1]->node->in[0]); /* both share one cast back */
    wf_graph_free(g);
}

static void test_nothing_to_do(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_forward(g, &wt_tiny, &m);
    int nodes = g->node_count;
    wt_ok(ctx, wf_precision(g, WF_F32));
    assert_int_equal(g->node_count, nodes);
    wt_ok(ctx, wf_precision(g, WF_BF16));
    nodes = g->node_count;
    assert_int_equal(m.logits->type, WF_BF16);
    wt_ok(ctx, wf_precision(g, WF_BF16)); /* a second time: no effect */
    assert_int_equal(g->node_count, nodes);
    assert_int_equal(m.loss->type, WF_F32);
    wf_value *weight = m.param[0], *grad;
    wt_ok(ctx, wf_grad(g, m.loss, &weight, 1, &grad));
    wt_ok(ctx, wf_precision(g, WF_F32)); /* another type after the first: no effect */
    wf_graph_free(g);

    g = wt_graph(ctx);
    wt_ok(ctx, wf_precision(g, WF_BF16)); /* an empty graph */
    wf_graph_free(g);
}

static void test_misuse(void **state)
{
    wf_ctx *ctx = *state;
    const wf_type wrong[] = {WF_I32, WF_E4M3, WF_Q4_0, WF_TYPE_NONE, (wf_type)77};
    for (int i = 0; i < 5; i++) {
        wf_graph *g = wt_graph(ctx);
        wt_fails(ctx, wf_precision(g, wrong[i]), WF_ERR_USAGE, "must be f32, f16 or bf16");
        wt_fails(ctx, wf_precision(g, WF_BF16), WF_ERR_USAGE, "must be f32, f16 or bf16");
        wf_graph_free(g);
    }
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_forward(g, &wt_tiny, &m);
    wt_ok(ctx, wf_grad(g, m.loss, m.param, m.count, m.grad));
    wt_fails(ctx, wf_precision(g, WF_BF16), WF_ERR_USAGE, "before wf_grad");
    wf_graph_free(g);
    g = wt_graph(ctx); /* an earlier failure is returned */
    wf_unary(g, "exp", wf_input(g, "i", WF_I32, 0, NULL));
    wt_fails(ctx, wf_precision(g, WF_BF16), WF_ERR_USAGE, "exp");
    wf_graph_free(g);
    wf_ctx_clear(ctx);
    g = wt_graph(ctx); /* a rule that refuses a type leaves no failure behind */
    wf_value *x = wf_input(g, "x", WF_F32, 2, DIMS(2, 2)), *y = wf_matmul(g, x, x, false, false);
    wf_output(g, "c", wf_binary(g, "lt", x, y));
    wt_ok(ctx, wf_precision(g, WF_BF16));
    assert_int_equal(wf_ctx_status(ctx), WF_OK);
    assert_string_equal(wf_ctx_message(ctx), "");
    wf_graph_free(g);
}

static void test_memory_running_out(void **state)
{
    wf_ctx *ctx = *state;
    int failed = 0;
    for (uint64_t nth = 1;; nth++) {
        wf_graph *g = wt_graph(ctx);
        wt_model m;
        wf_scaled s;
        wt_forward(g, &wt_tiny, &m);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_precision(g, WF_F16);
        if (status == WF_OK)
            status = wf_grad_scaled(g, m.loss, m.param, m.count, NULL, m.grad, &s);
        bool reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        if (reached)
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
        if (reached)
            assert_int_equal(wf_graph_status(g), WF_ERR_MEMORY);
        wf_graph_free(g);
        if (!reached)
            break;
        failed++;
    }
    assert_true(failed > 15);
}

/* ---- Whole models ---- */

enum { SEQUENCES = 12, LENGTH = 16, TOKENS = SEQUENCES * LENGTH };

typedef struct {
    wf_type compute;
    wt_run run;
    wf_report report;
    pm_model model; /* its values are freed */
    wf_memory memory;
    float *logits, loss;
    float *grad[PM_MAX_PARAMS];
} model_run;

static int64_t param_elements(const pm_param *p)
{
    return p->rank == 2 ? p->dims[0] * p->dims[1] : p->dims[0];
}

static float *room(int64_t n)
{
    float *p = malloc((size_t)n * sizeof *p);
    assert_non_null(p);
    return p;
}

/* Everywhere, including the gradient, matmuls have narrow operands and parameters have f32
 * gradients. */
static void check_types(const wf_graph *g, const pm_model *m, wf_type compute)
{
    int products = 0;
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        bool grad = n->op == WF_OP_attention_grad;
        int first = grad ? 1 : 0, operands = n->op == WF_OP_attention || grad ? 3 : 2;
        if (n->op != WF_OP_linear && n->op != WF_OP_matmul && n->op != WF_OP_attention && !grad)
            continue;
        for (int k = first; k < first + operands; k++)
            assert_int_equal(n->in[k]->type, compute);
        assert_int_equal(n->out[0].type, compute);
        products++;
    }
    assert_true(products > 20);
    for (int i = 0; i < m->param_count; i++) {
        assert_int_equal(m->param[i].value->type, WF_F32);
        assert_int_equal(m->param[i].grad->type, WF_F32);
    }
}

/* Gradients in f16 would underflow without a loss scale, so all types use the same scale. */
static void build_model(model_run *r, const pm_config *config)
{
    wf_graph *g = wt_graph(r->run.ctx);
    wf_value *params[PM_MAX_PARAMS], *grads[PM_MAX_PARAMS];
    wf_scaled s;
    pm_model *m = &r->model;
    pm_forward(g, config, TOKENS, SEQUENCES, m);
    wf_output(g, "logits", m->logits);
    wf_output(g, "loss", m->loss);
    wt_ok(r->run.ctx, wf_pass_precision(g, r->compute, &r->report));
    for (int i = 0; i < m->param_count; i++)
        params[i] = m->param[i].value;
    wf_loss_scale_options o = {.initial = 1024, .interval = -1};
    wt_ok(r->run.ctx, wf_grad_scaled(g, m->loss, params, m->param_count, &o, grads, &s));
    for (int i = 0; i < m->param_count; i++) {
        char name[PM_MAX_NAME + 8];
        snprintf(name, sizeof name, "grad.%s", m->param[i].name);
        m->param[i].grad = grads[i];
        wf_output(g, name, wf_binary(g, "mul", grads[i], s.factor));
    }
    check_types(g, m, r->compute);
    wt_compile(&r->run, g);
    wf_exec_memory(r->run.exec, &r->memory);
}

/* Initial weights of a model, with a larger head so that logits are not tiny. */
static void write_model(model_run *r, const pm_config *config)
{
    int32_t tokens[TOKENS], targets[TOKENS], positions[TOKENS], start[SEQUENCES + 1];
    float inv_freq[16];
    for (int i = 0; i < r->model.param_count; i++) {
        const pm_param *p = &r->model.param[i];
        int64_t n = param_elements(p);
        float *w = room(n);
        bool gain = p->rank == 1 && strstr(p->name, "weight");
        wf_random_normal(3, (uint64_t)i, gain ? 1 : 0, p->rank == 2 ? 0.15f : 0.05f, w, n);
        wt_set_state(&r->run, p->name, w, n);
        free(w);
    }
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = (int32_t)((i * 7 + i / 5) % config->vocab);
        targets[i] = i % 11 == 0 ? -100 : (int32_t)((i * 5 + 2) % config->vocab);
        positions[i] = i % LENGTH;
    }
    for (int i = 0; i <= SEQUENCES; i++)
        start[i] = i * LENGTH;
    for (int i = 0; i < (int)config->head_dim / 2; i++)
        inv_freq[i] = powf(10000, -2.0f * (float)i / (float)config->head_dim);
    wt_write(&r->run, "tokens", tokens, sizeof tokens);
    wt_write(&r->run, "targets", targets, sizeof targets);
    wt_write(&r->run, "positions", positions, sizeof positions);
    wt_write(&r->run, "seq_start", start, sizeof start);
    if (config->llama)
        wt_write(&r->run, "inv_freq", inv_freq, (size_t)config->head_dim / 2 * sizeof *inv_freq);
}

static void run_model(wf_ctx *ctx, const pm_config *config, wf_type compute, model_run *r)
{
    *r = (model_run){.compute = compute, .run = wt_open(ctx, device_under_test())};
    build_model(r, config);
    write_model(r, config);
    wt_run_once(&r->run);
    int64_t logits = TOKENS * config->vocab;
    r->logits = room(logits);
    wt_read(&r->run, "logits", r->logits, (size_t)logits * sizeof(float));
    wt_read(&r->run, "loss", &r->loss, sizeof r->loss);
    for (int i = 0; i < r->model.param_count; i++) {
        const pm_param *p = &r->model.param[i];
        char name[PM_MAX_NAME + 8];
        snprintf(name, sizeof name, "grad.%s", p->name);
        r->grad[i] = room(param_elements(p));
        wt_read(&r->run, name, r->grad[i], (size_t)param_elements(p) * sizeof(float));
    }
}

static void close_model(model_run *r)
{
    for (int i = 0; i < r->model.param_count; i++)
        free(r->grad[i]);
    free(r->logits);
    wt_close(&r->run);
}

/* Largest difference relative to the largest element of b; infinite where a has a NaN. */
static double difference(const float *a, const float *b, int64_t n)
{
    double most = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        most = d <= most ? most : isnan(d) ? INFINITY : d;
        size = fmax(size, fabs(b[i]));
    }
    return most / size;
}

/* A layer rounds its residual stream a few times, and twice as often in the backward pass. Relative
 * to the largest element of a tensor this adds up to a few roundoffs per layer. */
#define LOGITS_ROUNDOFFS 4.0
#define LOSS_ROUNDOFFS 0.5
#define GRAD_ROUNDOFFS 12.0

static void compare_models(const model_run *r, const model_run *f32, const pm_config *config)
{
    double unit = wf_type_get(r->compute)->roundoff * (double)config->layers, grads = 0;
    double logits = difference(r->logits, f32->logits, TOKENS * config->vocab);
    double loss = fabs(r->loss - f32->loss) / f32->loss;
    for (int i = 0; i < r->model.param_count; i++) {
        const pm_param *p = &r->model.param[i];
        int64_t n = param_elements(p);
        const float *a = r->grad[i], *b = f32->grad[i];
        double d;
        if (strstr(p->name, "attn.c_attn.bias")) /* the true gradient of the key bias is zero */
            d = fmax(difference(a, b, n / 3), difference(a + 2 * n / 3, b + 2 * n / 3, n / 3));
        else
            d = difference(a, b, n);
        if (!(d <= GRAD_ROUNDOFFS * unit))
            print_error("gradient of %s: %g\n", p->name, d / unit);
        grads = fmax(grads, d);
    }
    int64_t before = wf_report_get(&r->report, "precision", "bytes computed before");
    int64_t after = wf_report_get(&r->report, "precision", "bytes computed after");
    print_message(
        "%s %s: in roundoffs a layer, logits %.2f loss %.3f gradients %.2f; forward bytes "
        "%.2f, planned %.2f of f32\n",
        config->name, wf_type_name(r->compute), logits / unit, loss / unit, grads / unit,
        (double)after / (double)before,
        (double)r->memory.activations / (double)f32->memory.activations);
    assert_true(logits <= LOGITS_ROUNDOFFS * unit);
    assert_true(loss <= LOSS_ROUNDOFFS * unit);
    assert_true(grads <= GRAD_ROUNDOFFS * unit);
    assert_true(logits > 0.01 * unit); /* it did compute in another type */
    assert_true((double)after < 0.75 * (double)before);
    if (strcmp(device_under_test(), "cpu") == 0) /* plugins account for their own memory */
        assert_true((double)r->memory.activations < 0.75 * (double)f32->memory.activations);
    assert_int_equal(r->memory.states, f32->memory.states);
}

static void test_models(void **state)
{
    for (int i = 0; i < PM_MODELS; i++) {
        model_run f32, narrow;
        run_model(*state, &pm_configs[i], WF_F32, &f32);
        for (int k = 0; k < 2; k++) {
            run_model(*state, &pm_configs[i], narrow_types[k], &narrow);
            compare_models(&narrow, &f32, &pm_configs[i]);
            close_model(&narrow);
        }
        close_model(&f32);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_parameters_are_cast_once),
        wt_test(test_versions_of_states),
        wt_test(test_rows_of_parameters),
        wt_test(test_stays_f32),
        wt_test(test_nothing_to_do),
        wt_test(test_misuse),
        wt_test(test_memory_running_out),
        wt_test(test_every_op),
        wt_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

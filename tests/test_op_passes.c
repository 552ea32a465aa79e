/* SPDX-License-Identifier: MIT */
/*
 * test_op_passes.c - runs every op through every pass alone and through all passes.
 *
 * Each case of the selftest's tables (every op and type; variants drawn by the seed) becomes two
 * graphs, see pass_case.h. Each graph runs on every device without passes and with passes, from its
 * written order and from random orders. Results must be bitwise equal after recompute, schedule and
 * memory. After fold and fuse they must be within derived bounds of the float64 reference. Further
 * cases contain the patterns of the fuse pass; each pattern must fire on each device.
 *
 * WEFT_SEED reproduces a run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/sanitize.h"
#include "device/plan.h"
#include "graph/build.h"
#include "graph/pass/order.h"
#include "pass_case.h"
#include "support.h"

#define ALL_PASSES \
    (WF_PASS_FOLD | WF_PASS_FUSE | WF_PASS_RECOMPUTE | WF_PASS_SCHEDULE | WF_PASS_MEMORY)

static const wf_compile_options no_pass = {.without = ALL_PASSES};
static const struct variant {
    const char *name;
    wf_compile_options options;
    bool exact; /* bitwise equal */
} variants[] = {
    {"memory", {.without = ALL_PASSES & ~WF_PASS_MEMORY}, true},
    {"the exact ones", {.without = WF_PASS_FOLD | WF_PASS_FUSE, .recompute = 1}, true},
    {"all", {.recompute = 1}, false},
    {"fold", {.without = ALL_PASSES & ~WF_PASS_FOLD}, false},
    {"fuse", {.without = ALL_PASSES & ~WF_PASS_FUSE}, false},
    {"recompute", {.without = ALL_PASSES & ~WF_PASS_RECOMPUTE, .recompute = 1}, true},
    {"schedule", {.without = ALL_PASSES & ~WF_PASS_SCHEDULE}, true},
};
#define IN_ORDERS 3 /* the first of them also start from random orders */
#define FUSE 4
#define ORDERS 3         /* per graph */
#if WF_ADDRESS_SANITIZER /* runs ten times slower */
#define DRAWN 1
#else
#define DRAWN 2 /* variants per row and type */
#endif
#define ALL 1000

/* A device that this build cannot open is skipped with a message. Runs without passes use the
 * first. */
static const char *const device_names[] = {"cpu:1", "cpu:2", "check"};
#define DEVICES WF_LENGTH(device_names)

typedef struct {
    wf_ctx *ctx;
    wf_device *device[DEVICES];
    wf_report report[DEVICES]; /* counters of all passes, summed over all graphs */
    uint64_t seed;
    wf_rng rng;
    int ops, cases, graphs, runs, orders, judged, inexact, inexact_same, skipped;
    double worst;
    /* the current graph */
    const pc_kind *kind;
    pc_case *p;
    const void *want[WF_CASE_READS]; /* results without passes */
    bool rich;
} tester;

/* ---- One graph ---- */

static void complain(const tester *t, const char *device, const char *passes, const char *why)
{
    const wf_case *c = pc_case_of(t->p);
    char call[256];
    size_t len = 0;
    const wf_node *n = c->node;
    wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
    fail_msg("%s%s%s, variant %d, %s graph of %s on %s, %s: %s; WEFT_SEED=%llu",
             wf_node_def(n)->name, c->row->label ? " of " : "", c->row->label ? c->row->label : "",
             c->variant, t->rich ? "rich" : "bare", call, device, passes, why,
             (unsigned long long)t->seed);
}

static bool same_bits(const tester *t, int *which)
{
    const wf_case *c = pc_case_of(t->p);
    for (int i = 0; i < c->reads; i++)
        if (memcmp(t->want[i], c->read[i].bytes, c->read[i].size) != 0) {
            *which = i;
            return false;
        }
    return true;
}

static void run(tester *t, int d, wf_graph *g, const struct variant *v)
{
    wf_case *c = pc_case_of(t->p);
    char why[256];
    int which;
    if (wf_case_run_with(c, g, t->device[d], &v->options, NULL) != WF_OK)
        complain(t, device_names[d], v->name, wf_ctx_message(t->ctx));
    t->runs++;
    bool same = same_bits(t, &which);
    if (v->exact && !same) {
        snprintf(why, sizeof why, "%s has other bits than without passes", c->read[which].name);
        complain(t, device_names[d], v->name, why);
    }
    if (v->exact)
        return;
    t->inexact++;
    t->inexact_same += same;
    if (!same && !pc_judge(t->p, &t->judged, &t->worst, why, sizeof why))
        complain(t, device_names[d], v->name, why);
}

/* Runs the graph without passes; the other runs are compared with this one, which itself must be
 * within the bounds. Returns false when the device does not support these types. */
static bool run_plain(tester *t)
{
    wf_case *c = pc_case_of(t->p);
    char why[256];
    wf_status status = wf_case_run_with(c, c->g, t->device[0], &no_pass, NULL);
    if (status == WF_ERR_UNSUPPORTED && c->optional)
        return false;
    if (status != WF_OK)
        complain(t, device_names[0], "no pass", wf_ctx_message(t->ctx));
    if (!pc_judge(t->p, &t->judged, &t->worst, why, sizeof why))
        complain(t, device_names[0], "no pass", why);
    for (int i = 0; i < c->reads; i++) {
        t->want[i] = wf_arena_copy(&c->arena, c->read[i].bytes, c->read[i].size);
        assert_non_null(t->want[i]);
    }
    return true;
}

static void run_orders(tester *t, int d)
{
    for (int i = 0; i < ORDERS; i++) {
        const struct variant *v = &variants[i % IN_ORDERS];
        wf_graph *g;
        wt_ok(t->ctx, wf_graph_copy(pc_case_of(t->p)->g, &g));
        wt_ok(t->ctx, wf_order_shuffle(g, t->seed + (uint64_t)t->orders++));
        run(t, d, g, v);
        wf_graph_free(g);
    }
}

static void plan(tester *t, int d, const struct variant *v, wf_report *report)
{
    wf_plan *plan;
    wt_ok(t->ctx, wf_plan_new(t->device[d], pc_case_of(t->p)->g, &v->options, NULL, report, &plan));
    wf_plan_free(plan);
}

/* Adds up the pass counters, and fails unless the pattern of the case fired. */
static void look_at_reports(tester *t, int d)
{
    const char *pattern = t->rich ? t->kind->rich : t->kind->bare;
    wf_report fused = {0};
    plan(t, d, &variants[FUSE], &fused);
    plan(t, d, &variants[2], &t->report[d]);
    for (int i = 0; i < fused.count; i++)
        if (strcmp(fused.line[i].pass, "fuse") == 0)
            wf_report_add(&t->report[d], "fuse", fused.line[i].what, fused.line[i].count);
    if (pattern && wf_report_get(&fused, "fuse", pattern) == 0) {
        char why[128];
        snprintf(why, sizeof why, "the pattern '%s' did not fire", pattern);
        complain(t, device_names[d], "fuse", why);
    }
}

static bool try_graph(tester *t, int variant, wf_type type, int views, bool rich)
{
    bool ran = false;
    t->rich = rich;
    wt_ok(t->ctx, pc_new(t->ctx, t->kind, variant, type, t->seed, views, rich, &t->p));
    const wf_node *node = pc_case_of(t->p)->node;
    if (wf_kernel_types(t->device[0]->kernels, node->op) & wf_type_bit(wf_node_key_type(node)))
        ran = run_plain(t);
    for (int d = 0; d < DEVICES && ran; d++)
        if (t->device[d]) {
            for (int v = 0; v < WF_LENGTH(variants); v++)
                run(t, d, pc_case_of(t->p)->g, &variants[v]);
            run_orders(t, d);
            look_at_reports(t, d);
        }
    t->graphs += ran;
    pc_free(t->p);
    return ran;
}

/* Returns whether the sample contains the next row and type: drawn by the seed, so that about as many
 * as wt_cases returns are in it. */
static bool drawn(tester *t)
{
    return wf_rng_below(&t->rng, 64) < (uint64_t)wt_cases(64);
}

/*
 * Tries some variants of a row, drawn by the seed, with operands as they are and as views.
 * all: of every type of the row; else of those types that are in the sample. Returns whether any ran.
 */
static bool try_row(tester *t, const pc_kind *kind, int most, bool all)
{
    bool any = false;
    int variants_of = kind->row.variants, n = variants_of < most ? variants_of : most;
    t->kind = kind;
    for (wf_type type = WF_F32; type < WF_TYPE_COUNT; type++) {
        int first = (int)wf_rng_below(&t->rng, (uint64_t)variants_of);
        if (!(drawn(t) || all))
            continue;
        for (int i = 0; kind->row.types & wf_type_bit(type) && i < n; i++) {
            int variant = (first + i) % variants_of, views = i % 2;
            bool ran = try_graph(t, variant, type, 1 - views, false) &&
                       try_graph(t, variant, type, views, true);
            t->cases += ran;
            t->skipped += !ran;
            any |= ran;
        }
    }
    return any;
}

/* ---- Cases of patterns ---- */

static void build_residual_norm(wf_case *c)
{
    wf_value *a = wf_case_x(c, D(5, 12), -2, 2), *b = wf_case_x(c, D(5, 12), -2, 2);
    wf_value *gamma = c->variant > 0 ? wf_case_x(c, D(12), 0.5, 1.5) : NULL;
    wf_value *beta = c->variant > 1 ? wf_case_x(c, D(12), -1, 1) : NULL;
    wf_value *sum = wf_binary(c->g, "add", a, b);
    wf_case_node(c, c->row->op == WF_OP_rms_norm ? wf_rms_norm(c->g, sum, gamma, 1e-2)
                                                 : wf_layer_norm(c->g, sum, gamma, beta, 1e-2));
}

static void build_linear_act(wf_case *c)
{
    wf_value *x = wf_case_x(c, D(2, 3, 8), -1, 1), *w = wf_case_x(c, D(6, 8), -1, 1);
    wf_value *bias = c->variant > 0 ? wf_case_x(c, D(6), -1, 1) : NULL;
    wf_case_node(c, wf_unary(c->g, wf_op_get(c->row->op)->name, wf_linear(c->g, x, w, bias)));
}

static void build_act_up(wf_case *c)
{
    static const char *const act[] = {"silu", "gelu", "gelu_erf"};
    wf_value *gate = wf_case_x(c, D(4, 9), -3, 3), *up = wf_case_x(c, D(4, 9), -2, 2);
    wf_value *a = wf_unary(c->g, act[c->variant % 3], gate);
    wf_case_node(c, c->variant > 2 ? wf_binary(c->g, "mul", a, up) : wf_binary(c->g, "mul", up, a));
}

static void build_head(wf_case *c)
{
    const wf_cross_entropy_options options = {.label_smoothing = c->variant == 1 ? 0.1 : 0,
                                              .z_loss = c->variant == 2 ? 1e-3 : 0};
    wf_value *x = wf_case_x(c, D(6, 8), -1, 1), *w = wf_case_x(c, D(9, 8), -1, 1);
    wf_value *targets = wf_case_i32_given(c, D(6), (int32_t[]){3, 8, -100, 0, 5, 8});
    wf_case_node(c, wf_cross_entropy(c->g, wf_linear(c->g, x, w, NULL), targets, &options));
}

/* The gradient that bypasses the norm is computed before the norm's gradient. */
static void build_residual_grad(wf_case *c)
{
    bool centered = c->variant & 4;
    wf_op op = centered ? WF_OP_layer_norm_grad : WF_OP_rms_norm_grad;
    wf_value *dsum = wf_case_x(c, D(5, 12), -2, 2), *gamma = NULL, *in[5];
    in[0] = wf_case_x(c, D(5, 12), -2, 2);
    in[1] = wf_case_x(c, D(5, 12), -2, 2);
    if (c->variant & 2)
        gamma = wf_case_x(c, D(12), 0.5, 1.5);
    wf_value *y = centered ? wf_layer_norm(c->g, in[1], gamma, NULL, 1e-2)
                           : wf_rms_norm(c->g, in[1], gamma, 1e-2);
    int nin = 2;
    for (int i = 1; i <= (centered ? 2 : 1); i++)
        in[nin++] = wf_case_frozen(c, wf_value_output(y, i));
    if (gamma)
        in[nin++] = gamma;
    wf_value *dx = wf_node_add(c->g, op, &(wf_attr_norm){1e-2}, NULL, in, nin);
    c->no_gradient = true;
    wf_case_node(c, c->variant & 1 ? wf_binary(c->g, "add", dx, dsum)
                                   : wf_binary(c->g, "add", dsum, dx));
}

static void build_matmul_act_grad(wf_case *c)
{
    wf_value *dy = wf_case_x(c, D(5, 6), -1, 1), *w = wf_case_x(c, D(6, 9), -1, 1);
    wf_value *pre = wf_case_x(c, D(5, 9), -3, 3);
    wf_case_node(c, wf_gelu_grad(c->g, wf_matmul(c->g, dy, w, false, false), pre));
}

static void build_weight_grad(wf_case *c)
{
    wf_value *dy = wf_case_x(c, D(7, 5), -1, 1), *x = wf_case_x(c, D(7, 9), -1, 1);
    c->no_gradient = true; /* the gradient of a matmul whose rounding was fused away */
    wf_case_node(c, wf_cast(c->g, wf_matmul(c->g, dy, x, true, false), WF_F32));
}

/* The op that computes dy also sums its rows, 5 of them. */
static void build_row_sums(wf_case *c)
{
    wf_value *of[6] = {wf_case_x(c, D(5, 12), -1, 1), NULL}, *d;
    if (c->variant == 2) {
        of[1] = wf_case_x(c, D(12, 9), -1, 1);
        of[2] = wf_case_x(c, D(5, 9), -3, 3);
        d = wf_op_add(c->g, "matmul_act_grad", "", of, 3);
    } else {
        int nin = 1;
        of[nin++] = wf_case_x(c, D(5, 12), -1, 1);
        for (int i = 0; i <= c->variant; i++)
            of[nin++] = wf_case_f32(c, D(5), 0.5, 1);
        of[nin++] = wf_case_x(c, D(5, 12), -1, 1);
        d = wf_op_add(c->g, c->variant ? "residual_layer_norm_grad" : "residual_rms_norm_grad", "",
                      of, nin);
    }
    c->no_gradient = true;
    wf_case_node(c, c->row->op == WF_OP_sum
                        ? wf_reduce(c->g, "sum", d, WF_AXIS(0), false)
                        : wf_op_add(c->g, "linear_grad_weight", "",
                                    (wf_value *[]){d, wf_case_x(c, D(5, 7), -1, 1)}, 2));
}

/* A parameter read through a narrow copy, and its update. Only a run knows that the update is not
 * applied. */
static void build_copied(wf_case *c)
{
    wf_value *p = wf_case_state(c, WF_F32, D(5, 12), -2, 2);
    wf_value *m = wf_case_state(c, WF_F32, D(5, 12), -1, 1);
    wf_value *v = wf_case_state(c, WF_F32, D(5, 12), 0, 1), *grad = wf_case_f32(c, D(5, 12), -1, 1);
    wf_value *lr = wf_case_f32(c, D0, 0.1, 0.2), *step = wf_case_i32(c, D0, 3, 3);
    wf_value *apply = wf_case_apply(c, 2), *y = wf_unary(c->g, "neg", wf_cast(c->g, p, c->type));
    wf_adamw(c->g, p, m, v, grad, lr, step, NULL, apply, NULL);
    c->no_gradient = true;
    wf_case_node(c, y);
}

/* Gradients pass two ops: each contributes its own bound, and the second amplifies the first's
 * error. */
#define PATTERN_OF(types_, op_, variants_, build_) \
    .row = {.op = WF_OP_##op_,                     \
            .variants = variants_,                 \
            .build = build_,                       \
            .types = (types_),                     \
            .gradient = 256,                       \
            .label = "a pattern"}
#define PATTERN(...) PATTERN_OF(WF_TYPES_FLOAT, __VA_ARGS__)
#define NARROW_PATTERN(...) PATTERN_OF(WF_TYPE_BIT(WF_F16) | WF_TYPE_BIT(WF_BF16), __VA_ARGS__)

/* How strongly y responds to the intermediate value. Norm of C = 12 elements: gamma rstd (1 +
 * sqrt(C)), with rstd and gamma up to 1.5. Activations: 1.13; relu2: twice its operand, at most 9.
 * Matmul: its other operand. Cross entropy: 2, and its z-loss less. */
static const pc_kind patterns[] = {
    {PATTERN(rms_norm, 2, build_residual_norm), 10, false, "residual + rms_norm",
     "residual + rms_norm"},
    {PATTERN(layer_norm, 3, build_residual_norm), 10, false, "residual + layer_norm",
     "residual + layer_norm"},
    {PATTERN(gelu, 2, build_linear_act), 1.13, false, "linear + gelu", "linear + gelu"},
    {PATTERN(gelu_erf, 2, build_linear_act), 1.13, false, "linear + gelu_erf", "linear + gelu_erf"},
    {PATTERN(silu, 2, build_linear_act), 1.13, false, "linear + silu", "linear + silu"},
    {PATTERN(relu, 2, build_linear_act), 1, false, "linear + relu", "linear + relu"},
    {PATTERN(relu2, 2, build_linear_act), 18, false, "linear + relu2", "linear + relu2"},
    {PATTERN(mul, 6, build_act_up), 2, false, "activation * up", NULL},
    {PATTERN(cross_entropy, 3, build_head), 2, true, "head + loss", "head + loss"},
    {PATTERN(add, 8, build_residual_grad), 1, false, "gradient of norm + residual",
     "gradient of norm + residual"},
    {PATTERN(gelu_grad, 1, build_matmul_act_grad), 1.13, false, "matmul + gradient of gelu",
     "matmul + gradient of gelu"},
    {NARROW_PATTERN(cast, 1, build_weight_grad), 1, false, "gradient of weight in f32",
     "gradient of weight in f32"},
    {NARROW_PATTERN(neg, 1, build_copied), 1, false, "parameters with narrow copies", NULL},
    {PATTERN(sum, 3, build_row_sums), 5, false, "row sums from the producer", NULL},
    {PATTERN(linear_grad_weight, 3, build_row_sums), 5, false, "row sums from the producer", NULL},
};

/* ---- Tests ---- */

static void open_devices(tester *t, wf_ctx *ctx)
{
    *t = (tester){.ctx = ctx, .seed = wt_seed()};
    wf_rng_init(&t->rng, t->seed, 1);
    for (int d = 0; d < DEVICES; d++)
        if (wf_device_open(ctx, device_names[d], &t->device[d]) != WF_OK)
            print_message("device %s is left out: %s\n", device_names[d], wf_ctx_message(ctx));
    assert_non_null(t->device[0]);
}

static void close_devices(tester *t)
{
    for (int d = 0; d < DEVICES; d++)
        wf_device_close(t->device[d]);
}

static void print_counts(const tester *t)
{
    print_message(
        "%d ops, %d cases, %d graphs, %d random orders, %d runs; %d results judged, largest "
        "error / bound %.2f; after fold, fuse and all, %d of %d runs had the same bits; %d "
        "cases of types that the device need not have\n",
        t->ops, t->cases, t->graphs, t->orders, t->runs, t->judged, t->worst, t->inexact_same,
        t->inexact, t->skipped);
}

static void print_report(const wf_report *r, const char *pass)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->line[i].pass, pass) == 0 && strncmp(r->line[i].what, "nodes ", 6) != 0)
            print_message("  %-5s %-30s %lld\n", pass, r->line[i].what,
                          (long long)r->line[i].count);
}

static void test_ops(void **state)
{
    tester t;
    open_devices(&t, *state);
    for (wf_op op = 0; op < WF_OP_COUNT; op++) {
        pc_kind kinds[8] = {0};
        wf_case_row rows[8];
        int n = wf_case_rows(op, rows, 8);
        bool any = false;
        assert_in_range(n, 1, 8);
        for (int i = 0; i < n; i++) {
            kinds[i].row = rows[i];
            any |= try_row(&t, &kinds[i], DRAWN, false);
        }
        for (int i = 0; i < n && !any; i++) /* at least one row of each op */
            any = try_row(&t, &kinds[i], 1, true);
        if (!any)
            fail_msg("no case of %s ran", wf_op_get(op)->name);
        t.ops++;
    }
    print_counts(&t);
    print_report(&t.report[0], "fold");
    print_report(&t.report[0], "fuse");
    close_devices(&t);
}

static void test_patterns(void **state)
{
    tester t;
    open_devices(&t, *state);
    for (int i = 0; i < WF_LENGTH(patterns); i++)
        assert_true(try_row(&t, &patterns[i], ALL, true));
    print_counts(&t);
    print_report(&t.report[0], "fuse");
    for (int d = 0; d < DEVICES; d++)
        for (int i = 0; t.device[d] && wf_fuse_pattern(i); i++)
            if (wf_report_get(&t.report[d], "fuse", wf_fuse_pattern(i)) == 0)
                fail_msg("the fuse pattern '%s' never fired on %s", wf_fuse_pattern(i),
                         device_names[d]);
    close_devices(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_ops),
        wt_test(test_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

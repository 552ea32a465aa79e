/* SPDX-License-Identifier: MIT */
/*
 * test_fold.c - the fold pass, rule by rule: a small graph in which it fires, graphs close to that in
 * which it must not, and results and gradients of both against runs without any pass.
 *
 * Exact rules are held to every bit, with -0, infinities and NaN among the numbers; the rest to a
 * multiple of f32's roundoff (2^-24) relative to the largest element: TOLERANCE below is 2^-24 * 512,
 * for sums of up to a few hundred terms.
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

#include "graph/build.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "parity_model.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define TOLERANCE 3e-5
static const wf_compile_options plain = {.without = WF_PASS_FOLD | WF_PASS_FUSE |
                                                    WF_PASS_RECOMPUTE | WF_PASS_SCHEDULE};

typedef wf_value *build_fn(wf_graph *g);

/* ---- Running ---- */

/* The same numbers for one name, whatever the graph; `odd` puts in -0, inf and NaN. */
static void *numbers(const char *name, wf_type type, int64_t count, bool odd, size_t *bytes)
{
    static const float special[] = {-0.0f, INFINITY, -INFINITY, 1e-41f, 0.0f};
    uint64_t stream = 0;
    float *x = malloc((size_t)(count + 1) * sizeof *x);
    for (const char *c = name; *c; c++)
        stream = stream * 31 + (unsigned char)*c;
    wf_random_normal(wt_seed(), stream, 0, 1, x, count);
    for (int64_t i = 0; i < count && type == WF_I32; i++)
        x[i] = truncf(x[i] * 4);
    for (int64_t i = 0; i < count && type == WF_U8; i++)
        x[i] = x[i] > 0;
    for (int64_t i = 0; odd && i < count && i < 6 && wf_type_get(type)->kind == WF_KIND_FLOAT; i++)
        x[i] = i < 5 ? special[i] : NAN;
    *bytes = wf_type_bytes(type, count);
    char *raw = malloc(*bytes + 64);
    wf_convert_from_f32(type, x, raw, count);
    free(x);
    return raw;
}

static void write_all(wt_run *r, bool odd)
{
    wf_info info;
    size_t bytes;
    for (int k = 0; k < 2; k++)
        for (int i = 0;
             k ? wf_session_state(r->session, i, &info) : wf_exec_input(r->exec, i, &info); i++) {
            int64_t count = 1;
            for (int a = 0; a < info.rank; a++)
                count *= info.dim[a];
            void *raw = numbers(info.name, info.type, count, odd, &bytes);
            if (k)
                wt_ok(r->ctx, wf_session_write(r->session, info.name, raw, bytes));
            else
                wt_ok(r->ctx, wf_exec_write(r->exec, info.name, raw, bytes));
            free(raw);
        }
}

/* Compiles without any pass and frees the graph, then runs once. */
static wt_run run_plain(wf_ctx *ctx, wf_graph *g, bool odd)
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_ok(ctx, wf_compile_with(r.session, g, &plain, &r.exec));
    wf_graph_free(g);
    write_all(&r, odd);
    wt_run_once(&r);
    return r;
}

static float *read_floats(wt_run *r, const wf_info *info, int64_t *count)
{
    char *raw = malloc(info->bytes + 64);
    wt_read(r, info->name, raw, info->bytes);
    *count = (int64_t)(info->bytes / wf_type_bytes(info->type, 1));
    float *x = malloc((size_t)(*count + 1) * sizeof *x);
    wf_convert_to_f32(info->type, raw, x, *count);
    free(raw);
    return x;
}

static double largest_of(wt_run *r, const wf_info *info)
{
    int64_t n;
    float *x = read_floats(r, info, &n);
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    free(x);
    return largest;
}

static void compare_floats(wt_run *a, wt_run *b, const wf_info *info, double tolerance,
                           double scale)
{
    int64_t n;
    float *x = read_floats(a, info, &n), *y = read_floats(b, info, &n);
    tolerance = fmax(tolerance, 4 * wf_type_get(info->type)->roundoff);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - y[i]) <= tolerance * (scale + 1e-6)))
            fail_msg("%s[%d]: %.9g, folded %.9g (scale %g)", info->name, (int)i, (double)x[i],
                     (double)y[i], scale);
    free(x);
    free(y);
}

static void compare_bits(wt_run *a, wt_run *b, const wf_info *info)
{
    char *x = malloc(info->bytes + 1), *y = malloc(info->bytes + 1);
    wt_read(a, info->name, x, info->bytes);
    wt_read(b, info->name, y, info->bytes);
    for (size_t i = 0; i < info->bytes; i++)
        if (x[i] != y[i])
            fail_msg("%s differs in byte %d", info->name, (int)i);
    free(x);
    free(y);
}

/* All outputs and states of two runs; tolerance 0: every bit. Closes both. A gradient may be zero but
 * for roundoff (that of a bias of keys is), so gradients, dN, are also measured by the largest. */
static void compare_runs(wt_run *a, wt_run *b, double tolerance)
{
    wf_info info;
    double all = 0;
    for (int i = 0; tolerance > 0 && wf_exec_output(a->exec, i, &info); i++)
        all = info.name[0] == 'd' ? fmax(all, largest_of(a, &info)) : all;
    for (int i = 0; wf_exec_output(a->exec, i, &info); i++)
        if (tolerance == 0)
            compare_bits(a, b, &info);
        else
            compare_floats(a, b, &info, tolerance,
                           fmax(largest_of(a, &info), info.name[0] == 'd' ? 0.1 * all : 0));
    for (int i = 0; wf_session_state(a->session, i, &info); i++) {
        char *x = malloc(info.bytes), *y = malloc(info.bytes);
        wt_ok(a->ctx, wf_session_read(a->session, info.name, x, info.bytes));
        wt_ok(b->ctx, wf_session_read(b->session, info.name, y, info.bytes));
        if (tolerance == 0)
            assert_memory_equal(x, y, info.bytes);
        free(x);
        free(y);
    }
    wt_close(a);
    wt_close(b);
}

static wf_status fold(wf_graph *g, wf_report *report)
{
    wf_compile_options options = {0};
    return wf_pass_fold(g, &(wf_pass_env){.options = &options, .report = report});
}

static int count_ops(const wf_graph *g, wf_op op)
{
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i]->op == op;
    return count;
}

/* ---- One rule ---- */

typedef struct {
    const char *label, *rule;
    int times; /* it fires; 0: it must not */
    build_fn *build;
    bool odd;         /* numbers that are none, too */
    double tolerance; /* 0: bit for bit */
} fold_case;

static void check_values(wf_ctx *ctx, const fold_case *c)
{
    wf_graph *g[2];
    wf_report report = {0};
    for (int i = 0; i < 2; i++) {
        g[i] = wt_graph(ctx);
        wf_value *y = c->build(g[i]);
        wt_ok(ctx, wf_graph_status(g[i]));
        wt_ok(ctx, wf_output(g[i], "y", y));
    }
    wt_ok(ctx, fold(g[1], &report));
    wt_ok(ctx, wf_graph_verify(g[1]));
    int64_t times = wf_report_get(&report, "fold", c->rule);
    if (times != c->times)
        fail_msg("'%s' fired %d times, not %d", c->rule, (int)times, c->times);
    wf_report again = {0}; /* once is enough */
    wt_ok(ctx, fold(g[1], &again));
    if (again.count != 0)
        fail_msg("'%s' fires again", again.line[0].what);
    wt_run a = run_plain(ctx, g[0], c->odd), b = run_plain(ctx, g[1], c->odd);
    compare_runs(&a, &b, c->tolerance);
}

/* d sum(y^2) by all float sources, folded before the gradient and not. */
static void check_gradient(wf_ctx *ctx, const fold_case *c)
{
    wf_graph *g[2];
    for (int i = 0; i < 2; i++) {
        g[i] = wt_graph(ctx);
        wf_value *y = c->build(g[i]), *wrt[16], *grads[16];
        int n = 0;
        if (wf_type_get(y->type)->kind != WF_KIND_FLOAT) {
            wf_graph_free(g[i]);
            return;
        }
        y = wf_cast(g[i], y, WF_F32);
        wf_value *loss = wf_sum(g[i], wf_mul(g[i], y, y), WF_ALL_AXES(y), false);
        for (int k = 0; k < g[i]->node_count; k++)
            if (wf_node_is(g[i]->nodes[k], WF_FLAG_SOURCE) &&
                wf_type_get(g[i]->nodes[k]->out[0].type)->kind == WF_KIND_FLOAT)
                wrt[n++] = &g[i]->nodes[k]->out[0];
        if (i == 1)
            wt_ok(ctx, wf_fold(g[i]));
        wt_ok(ctx, wf_grad(g[i], loss, wrt, n, grads));
        wt_ok(ctx, wf_output(g[i], "loss", loss));
        for (int k = 0; k < n; k++) {
            char name[16];
            snprintf(name, sizeof name, "d%d", k);
            wt_ok(ctx, wf_output(g[i], name, grads[k]));
        }
    }
    wt_run a = run_plain(ctx, g[0], false), b = run_plain(ctx, g[1], false);
    compare_runs(&a, &b, TOLERANCE);
}

static bool has_update(wf_ctx *ctx, build_fn *build)
{
    wf_graph *g = wt_graph(ctx);
    build(g);
    bool any = false;
    for (int i = 0; i < g->node_count; i++)
        any |= wf_node_is(g->nodes[i], WF_FLAG_UPDATE);
    wf_graph_free(g);
    return any;
}

static void check_cases(wf_ctx *ctx, const fold_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        print_message("  %s\n", c[i].label);
        check_values(ctx, &c[i]);
        if (!has_update(ctx, c[i].build))
            check_gradient(ctx, &c[i]);
    }
}
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- Graphs of the exact rules ---- */

static wf_value *X(wf_graph *g)
{
    return wf_input(g, "x", WF_F32, 2, D(4, 6));
}
static wf_value *S(wf_graph *g)
{
    return wf_state(g, "s", WF_F32, 2, D(4, 6));
}
static wf_value *scalar(wf_graph *g, double value)
{
    return wf_fill(g, WF_F32, 0, NULL, value);
}
/* A node that is read and reads, and that no rule touches. */
static wf_value *use(wf_graph *g, wf_value *v)
{
    return wf_sin(g, v);
}
/* By name, with attributes: builders leave nodes out that do nothing. */
static wf_value *op(wf_graph *g, const char *name, const char *attrs, wf_value *x)
{
    return wf_op_add(g, name, attrs, &x, 1);
}

#define BUILD(name, expr)              \
    static wf_value *name(wf_graph *g) \
    {                                  \
        return expr;                   \
    }

BUILD(reshape3, use(g, wf_reshape(g, wf_reshape(g, wf_reshape(g, X(g), 1, D(24)), 2, D(2, 12)), 3,
                                  D(2, 3, 4))))
BUILD(reshape_back, use(g, wf_reshape(g, wf_reshape(g, X(g), 1, D(24)), 2, D(4, 6))))
BUILD(reshape_none, use(g, op(g, "reshape", "dims=[4,6]", X(g))))
BUILD(reshape_permuted,
      use(g, wf_reshape(g, wf_permute(g, wf_reshape(g, X(g), 2, D(3, 8)), D(1, 0)), 1, D(24))))
BUILD(permute2,
      use(g, wf_permute(g, wf_permute(g, wf_input(g, "x", WF_F32, 3, D(2, 3, 4)), D(1, 2, 0)),
                        D(0, 2, 1))))
BUILD(permute_back,
      use(g, wf_permute(g, wf_permute(g, wf_input(g, "x", WF_F32, 3, D(2, 3, 4)), D(1, 2, 0)),
                        D(2, 0, 1))))
BUILD(permute_none, use(g, wf_permute(g, X(g), D(0, 1))))
BUILD(slice2, use(g, wf_slice(g, wf_slice(g, X(g), 1, 1, 6), 1, 2, 4)))
BUILD(slice_other_axis, use(g, wf_slice(g, wf_slice(g, X(g), 1, 1, 6), 0, 2, 4)))
BUILD(slice_all, use(g, wf_slice(g, X(g), 1, 0, 6)))
BUILD(cast_none, use(g, op(g, "cast", "type=f32", X(g))))
BUILD(cast_back,
      use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_BF16, 1, D(9)), WF_F32), WF_BF16)))
BUILD(cast_wide, use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_BF16, 1, D(9)), WF_F32), WF_F16)))
BUILD(cast_loses, use(g, wf_cast(g, wf_cast(g, X(g), WF_BF16), WF_F32)))
BUILD(cast_halves,
      use(g, wf_cast(g, wf_cast(g, wf_input(g, "x", WF_F16, 1, D(9)), WF_BF16), WF_F16)))
BUILD(cast_ints,
      wf_where(g, wf_cast(g, wf_cast(g, wf_input(g, "i", WF_U8, 1, D(9)), WF_F32), WF_U8),
               wf_input(g, "x", WF_F32, 1, D(9)), scalar(g, 2)))
BUILD(cast_i32, wf_cast(g, wf_cast(g, wf_input(g, "i", WF_I32, 1, D(9)), WF_F32), WF_I32))
BUILD(copy_input, use(g, wf_copy(g, X(g))))
BUILD(copy_computed, use(g, wf_copy(g, use(g, X(g)))))
BUILD(copy_state, use(g, wf_copy(g, S(g))))
BUILD(copy_output, wf_copy(g, X(g)))
BUILD(scale_one, use(g, wf_scale(g, X(g), 1)))
BUILD(scale_near_one, use(g, wf_scale(g, X(g), 1 + 1e-6)))
BUILD(scale_almost, use(g, wf_scale(g, X(g), 1 + 1e-12))) /* 1 in f32 */
BUILD(add_minus_zero, use(g, wf_add(g, X(g), scalar(g, -0.0))))
BUILD(minus_zero_add, use(g, wf_add(g, scalar(g, -0.0), X(g))))
BUILD(add_zero, use(g, wf_add(g, X(g), scalar(g, 0))))
BUILD(add_zero_i32,
      wf_maximum(g, wf_add(g, wf_input(g, "i", WF_I32, 1, D(5)), wf_fill(g, WF_I32, 0, NULL, 0.5)),
                 wf_input(g, "j", WF_I32, 1, D(5))))
BUILD(add_zero_wider,
      use(g, wf_add(g, wf_input(g, "x", WF_F32, 1, D(6)), wf_fill(g, WF_F32, 2, D(4, 6), -0.0))))
BUILD(sub_zero, use(g, wf_sub(g, X(g), scalar(g, 0))))
BUILD(sub_minus_zero, use(g, wf_sub(g, X(g), scalar(g, -0.0))))
BUILD(zero_sub, use(g, wf_sub(g, scalar(g, 0), X(g))))
BUILD(mul_one, use(g, wf_mul(g, X(g), wf_fill(g, WF_F32, 2, D(4, 6), 1))))
BUILD(one_mul, use(g, wf_mul(g, scalar(g, 1), X(g))))
BUILD(mul_one_wider, use(g, wf_mul(g, scalar(g, 1),
                                   wf_mul(g, wf_input(g, "x", WF_F32, 1, D(6)),
                                          wf_fill(g, WF_F32, 2, D(4, 6), 1)))))
BUILD(mul_fill, use(g, wf_mul(g, X(g), scalar(g, 1.0 / 3))))
BUILD(mul_fill_f16,
      use(g, wf_mul(g, wf_fill(g, WF_F16, 0, NULL, 1.0 / 3), wf_input(g, "x", WF_F16, 1, D(20)))))
BUILD(mul_fill_i32,
      wf_maximum(g, wf_mul(g, wf_input(g, "i", WF_I32, 1, D(5)), wf_fill(g, WF_I32, 0, NULL, 3)),
                 wf_input(g, "j", WF_I32, 1, D(5))))
BUILD(div_one, use(g, wf_div(g, X(g), scalar(g, 1))))
BUILD(neg_neg, use(g, wf_neg(g, wf_neg(g, X(g)))))
BUILD(neg_once, use(g, wf_neg(g, X(g))))
BUILD(where_true, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 1), X(g),
                                  wf_input(g, "b", WF_F32, 2, D(4, 6)))))
BUILD(where_false, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 0),
                                   wf_input(g, "b", WF_F32, 2, D(4, 6)), X(g))))
BUILD(where_spread,
      use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 1), wf_input(g, "b", WF_F32, 1, D(6)), X(g))))
BUILD(where_rounds, use(g, wf_where(g, wf_fill(g, WF_U8, 0, NULL, 0.7), X(g),
                                    wf_input(g, "b", WF_F32, 2, D(4, 6)))))
BUILD(where_open, use(g, wf_where(g, wf_input(g, "c", WF_U8, 1, D(6)), X(g), scalar(g, 0))))
BUILD(fill_moved,
      wf_add(g, X(g),
             wf_slice(g,
                      wf_permute(g,
                                 wf_reshape(g,
                                            wf_broadcast(g, wf_copy(g, scalar(g, 0.1)), 2, D(4, 6)),
                                            2, D(6, 4)),
                                 D(1, 0)),
                      0, 0, 1)))
BUILD(fill_cast, wf_add(g, X(g), wf_cast(g, wf_fill(g, WF_BF16, 0, NULL, 0.1), WF_F32)))
BUILD(fill_cast_i32, wf_cast(g, wf_fill(g, WF_F32, 1, D(3), -7.9), WF_I32))
BUILD(fill_cast_u8, wf_cast(g, wf_fill(g, WF_F16, 1, D(3), 1e9), WF_U8))
BUILD(fill_scaled, wf_scale(g, wf_fill(g, WF_F32, 1, D(3), 0.1), 0.9)) /* rounds the factor, too */
BUILD(fill_scaled_f16, wf_add(g, wf_input(g, "x", WF_F16, 1, D(8)),
                              wf_scale(g, wf_fill(g, WF_F16, 0, NULL, 0.1), 0.7)))
BUILD(pad_none, use(g, wf_pad(g, X(g), 0, 0, 0)))
BUILD(pad_some, use(g, wf_pad(g, X(g), 0, 0, 1)))
BUILD(broadcast_none, use(g, op(g, "broadcast", "dims=[4,6]", X(g))))
BUILD(max_one, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false)))
BUILD(max_keep, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, true)))
BUILD(max_two, use(g, wf_max(g, wf_input(g, "x", WF_F32, 3, D(4, 2, 6)), 2, true)))
BUILD(sum_one, use(g, wf_sum(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false)))
BUILD(sum_output, wf_sum(g, wf_input(g, "x", WF_F32, 3, D(4, 1, 6)), 2, false))

static wf_value *concat_one(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_concat(g, &x, 1, 1));
}
static wf_value *concat_two(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_concat(g, (wf_value *[]){x, x}, 2, 1));
}

/* A copy that keeps what the state was; its reader comes after the update. */
static wf_value *copy_kept(wf_graph *g)
{
    wf_value *s = S(g), *was = wf_copy(g, s), *more = use(g, s);
    wf_accumulate(g, s, more, NULL);
    return use(g, was);
}
static wf_value *copy_viewed(wf_graph *g)
{
    wf_value *s = S(g), *was = wf_copy(g, wf_reshape(g, s, 1, D(24))), *more = use(g, s);
    wf_value *again = wf_slice(g, was, 0, 2, 9); /* a view of the copy is read after the update */
    wf_accumulate(g, s, more, NULL);
    return use(g, again);
}
static wf_value *copy_not_needed(wf_graph *g)
{
    wf_value *s = S(g), *y = use(g, wf_copy(g, s));
    wf_accumulate(g, s, y, NULL);
    return y;
}
static wf_value *copy_for_update(wf_graph *g) /* the update itself reads the copy */
{
    wf_value *s = S(g), *y = use(g, s);
    wf_assign(g, s, wf_copy(g, s), NULL);
    return y;
}
/* Two steps that are fine alone: y is the cast, the cast is the state; not after the update. */
static wf_value *chain_to_state(wf_graph *g)
{
    wf_value *s = S(g), *was = op(g, "cast", "type=f32", s), *y = wf_sub(g, was, scalar(g, 0));
    wf_accumulate(g, s, X(g), NULL);
    return use(g, y);
}
static wf_value *cast_past_update(wf_graph *g)
{
    wf_value *s = wf_state(g, "s", WF_BF16, 1, D(6)), *wide = wf_cast(g, s, WF_F32);
    wf_assign(g, s, wf_input(g, "x", WF_BF16, 1, D(6)), NULL);
    return use(g, wf_cast(g, wide, WF_F16));
}
static wf_value *sum_kept(wf_graph *g) /* would become a view of a state that is updated */
{
    wf_value *s = wf_state(g, "s", WF_F32, 2, D(4, 1)), *sum = wf_sum(g, s, 2, false);
    wf_assign(g, s, wf_input(g, "x", WF_F32, 2, D(4, 1)), NULL);
    return use(g, sum);
}

/* clang-format off */
static const fold_case exact_cases[] = {
    {"three reshapes",            "reshape of reshape", 1, reshape3, true, 0},
    {"there and back",            "reshape of reshape", 1, reshape_back, true, 0},
    {"to the same shape",         "reshape of reshape", 1, reshape_none, true, 0},
    {"a permute between",         "reshape of reshape", 0, reshape_permuted, true, 0},
    {"two permutes",              "permute of permute", 1, permute2, true, 0},
    {"a permute and its inverse", "permute of permute", 1, permute_back, true, 0},
    {"identity permute",          "permute of permute", 1, permute_none, true, 0},
    {"two slices",                "slice of slice", 1, slice2, true, 0},
    {"slices of two axes",        "slice of slice", 0, slice_other_axis, true, 0},
    {"slice of all",              "slice of slice", 1, slice_all, true, 0},
    {"cast to the same",          "cast of cast", 1, cast_none, true, 0},
    {"bf16, f32, bf16",           "cast of cast", 1, cast_back, true, 0},
    {"bf16, f32, f16",            "cast of cast", 1, cast_wide, true, 0},
    {"f32, bf16, f32",            "cast of cast", 0, cast_loses, true, 0},
    {"f16, bf16, f16",            "cast of cast", 0, cast_halves, true, 0},
    {"u8, f32, u8",               "cast of cast", 1, cast_ints, true, 0},
    {"i32, f32, i32",             "cast of cast", 0, cast_i32, true, 0},
    {"f32 of a state, then an update", "cast of cast", 0, cast_past_update, true, 0},
    {"copy of an input",          "copy", 1, copy_input, true, 0},
    {"copy of a value",           "copy", 1, copy_computed, true, 0},
    {"copy of a state",           "copy", 1, copy_state, true, 0},
    {"copy, read before the update", "copy", 1, copy_not_needed, true, 0},
    {"copy, read after the update", "copy", 0, copy_kept, true, 0},
    {"copy, viewed after the update", "copy", 0, copy_viewed, true, 0},
    {"copy, read by the update",  "copy", 0, copy_for_update, true, 0},
    {"copy as an output",         "copy", 0, copy_output, true, 0},
    {"a way to an updated state", "subtract 0", 0, chain_to_state, true, 0},
    {"scale by 1",                "scale by 1", 1, scale_one, true, 0},
    {"scale by 1.000001",         "scale by 1", 0, scale_near_one, true, 0},
    {"scale by 1 in f32",         "scale by 1", 1, scale_almost, true, 0},
    {"x + -0",                    "add 0", 1, add_minus_zero, true, 0},
    {"-0 + x",                    "add 0", 1, minus_zero_add, true, 0},
    {"x + 0, where x may be -0",  "add 0", 0, add_zero, true, 0},
    {"x + 0 of i32",              "add 0", 1, add_zero_i32, true, 0},
    {"x + -0 of a larger shape",  "add 0", 0, add_zero_wider, true, 0},
    {"x - 0",                     "subtract 0", 1, sub_zero, true, 0},
    {"x - -0",                    "subtract 0", 0, sub_minus_zero, true, 0},
    {"0 - x",                     "subtract 0", 0, zero_sub, true, 0},
    {"x * 1",                     "multiply by 1", 1, mul_one, true, 0},
    {"1 * x",                     "multiply by 1", 1, one_mul, true, 0},
    {"x * 1 of a larger shape",   "multiply by 1", 1, mul_one_wider, true, 0},
    {"x / 1",                     "divide by 1", 1, div_one, true, 0},
    {"x * fill",                  "fill times x", 1, mul_fill, true, 0},
    {"fill * x in f16",           "fill times x", 1, mul_fill_f16, true, 0},
    {"x * fill of i32",           "fill times x", 0, mul_fill_i32, true, 0},
    {"- - x",                     "double negation", 1, neg_neg, true, 0},
    {"- x",                       "double negation", 0, neg_once, true, 0},
    {"where 1",                   "where of a constant", 1, where_true, true, 0},
    {"where 0",                   "where of a constant", 1, where_false, true, 0},
    {"where, spread",             "where of a constant", 1, where_spread, true, 0},
    {"where 0.7, which is 0",     "where of a constant", 1, where_rounds, true, 0},
    {"where of an input",         "where of a constant", 0, where_open, true, 0},
    {"fill through views",        "fill, moved", 5, fill_moved, true, 0},
    {"fill, bf16 to f32",         "fill, cast", 1, fill_cast, true, 0},
    {"fill, f32 to i32",          "fill, cast", 1, fill_cast_i32, true, 0},
    {"fill, f16 to u8",           "fill, cast", 1, fill_cast_u8, true, 0},
    {"fill, scaled",              "fill, scaled", 1, fill_scaled, true, 0},
    {"fill of f16, scaled",       "fill, scaled", 1, fill_scaled_f16, true, 0},
    {"pad by 0",                  "pad by 0", 1, pad_none, true, 0},
    {"pad by 1",                  "pad by 0", 0, pad_some, true, 0},
    {"concat of one",             "concat of one", 1, concat_one, true, 0},
    {"concat of two",             "concat of one", 0, concat_two, true, 0},
    {"broadcast to the same",     "broadcast to the same shape", 1, broadcast_none, true, 0},
    {"max of one",                "reduction of one element", 1, max_one, true, 0},
    {"max of one, kept",          "reduction of one element", 1, max_keep, true, 0},
    {"max of two",                "reduction of one element", 0, max_two, true, 0},
    {"sum of one",                "reduction of one element", 1, sum_one, false, 0},
    {"sum of one as an output",   "reduction of one element", 0, sum_output, false, 0},
    {"sum of one, then an update", "reduction of one element", 0, sum_kept, false, 0},
};
/* clang-format on */

static void test_exact(void **state)
{
    check_cases(*state, exact_cases, COUNT(exact_cases));
}

/* ---- The same thing twice ---- */

static wf_value *same_chain(wf_graph *g)
{
    wf_value *x = X(g), *a = wf_exp(g, wf_sin(g, x));
    return wf_sub(g, a, wf_cos(g, wf_exp(g, wf_sin(g, x))));
}

static wf_value *same_attr(wf_graph *g)
{
    wf_value *x = X(g);
    return wf_sub(g, wf_scale(g, x, 2), wf_exp(g, wf_scale(g, x, 2)));
}
static wf_value *other_attr(wf_graph *g)
{
    wf_value *x = X(g);
    return wf_sub(g, wf_scale(g, x, 2), wf_scale(g, x, 3));
}
static wf_value *other_zero(wf_graph *g) /* fills of 0 and -0 */
{
    wf_value *x = X(g);
    return wf_sub(g, wf_maximum(g, x, scalar(g, 0)), wf_maximum(g, scalar(g, -0.0), x));
}
static wf_value *other_version(wf_graph *g)
{
    wf_value *s = S(g), *before = wf_sin(g, s), *next = wf_accumulate(g, s, X(g), NULL);
    return wf_sub(g, before, wf_sin(g, next));
}
static wf_value *same_random(wf_graph *g)
{
    wf_value *x = X(g), *key = wf_input(g, "key", WF_I32, 1, D(3)), *in[] = {x, key};
    wf_value *a = wf_op_add(g, "dropout", "p=0.5 stream=3", in, 2);
    return wf_sub(g, a, wf_exp(g, wf_op_add(g, "dropout", "p=0.5 stream=3", in, 2)));
}
static wf_value *other_stream(wf_graph *g)
{
    wf_value *x = X(g), *key = wf_input(g, "key", WF_I32, 1, D(3));
    return wf_sub(g, wf_dropout(g, x, key, 0.5), wf_dropout(g, x, key, 0.5));
}
static wf_value *same_outputs(wf_graph *g)
{
    wf_value *x = X(g), *a = wf_top_k(g, x, 3), *b = wf_top_k(g, x, 3);
    wf_value *i = wf_cast(g, wf_value_output(b, 1), WF_F32);
    return wf_add(g, wf_add(g, a, i), wf_cast(g, wf_value_output(a, 1), WF_F32));
}

/* clang-format off */
static const fold_case same_cases[] = {
    {"a chain twice",       "computed twice", 2, same_chain, true, 0},
    {"one scale",           "computed twice", 1, same_attr, true, 0},
    {"two scales",          "computed twice", 0, other_attr, true, 0},
    {"fills of 0 and -0",   "computed twice", 0, other_zero, true, 0},
    {"versions of a state", "computed twice", 0, other_version, true, 0},
    {"one stream",          "computed twice", 1, same_random, true, 0},
    {"two streams",         "computed twice", 0, other_stream, true, 0},
    {"two outputs",         "computed twice", 2, same_outputs, false, 0},
};
/* clang-format on */

static void test_same(void **state)
{
    check_cases(*state, same_cases, COUNT(same_cases));
}

static void test_marks_merge(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = X(g), *a = wf_block(g, wf_exp(g, x)), *b = wf_recompute(g, wf_exp(g, x));
    wt_ok(*state, wf_output(g, "y", wf_sub(g, a, wf_sin(g, b))));
    wt_ok(*state, wf_fold(g));
    assert_int_equal(a->marks & (WF_MARK_BLOCK | WF_MARK_RECOMPUTE),
                     WF_MARK_BLOCK | WF_MARK_RECOMPUTE);
    wf_graph_free(g);
}

/* ---- Larger ops ---- */

static wf_value *H(wf_graph *g, const char *name) /* [4, 6] */
{
    return wf_input(g, name, WF_F32, 2, D(4, 6));
}
static wf_value *V(wf_graph *g, const char *name) /* [6] */
{
    return wf_state(g, name, WF_F32, 1, D(6));
}
static wf_value *silu_of(wf_graph *g, wf_value *x)
{
    return wf_mul(g, x, wf_sigmoid(g, x));
}

BUILD(scales, use(g, wf_scale(g, wf_scale(g, X(g), 0.3), 0.7)))
BUILD(scales_wild, use(g, wf_scale(g, wf_scale(g, X(g), 1e30), 1e-30)))
BUILD(div_fill, use(g, wf_div(g, X(g), scalar(g, 3))))
BUILD(div_zero, wf_div(g, wf_fill(g, WF_F32, 1, D(1), 3), wf_maximum(g, X(g), scalar(g, 1))))
BUILD(silu, use(g, silu_of(g, X(g))))
static wf_value *silu_swapped(wf_graph *g)
{
    wf_value *x = X(g);
    return use(g, wf_mul(g, wf_sigmoid(g, x), x));
}
BUILD(silu_other, use(g, wf_mul(g, wf_sigmoid(g, X(g)), H(g, "y"))))
static wf_value *silu_shared(wf_graph *g)
{
    wf_value *x = X(g), *s = wf_sigmoid(g, x);
    return wf_add(g, wf_mul(g, x, s), wf_exp(g, s));
}
static wf_value *silu_shown(wf_graph *g)
{
    wf_value *x = X(g), *s = wf_sigmoid(g, x);
    wf_output(g, "sigmoid", s);
    return use(g, wf_mul(g, x, s));
}
BUILD(glu_silu, use(g, wf_mul(g, silu_of(g, X(g)), H(g, "up"))))
BUILD(glu_gelu, use(g, wf_mul(g, H(g, "up"), wf_gelu(g, X(g)))))
BUILD(glu_erf, use(g, wf_mul(g, wf_gelu_erf(g, X(g)), H(g, "up"))))
BUILD(glu_tanh, use(g, wf_mul(g, wf_tanh(g, X(g)), H(g, "up"))))
BUILD(glu_spread, use(g, wf_mul(g, wf_silu(g, X(g)), V(g, "up"))))
static wf_value *glu_shared(wf_graph *g)
{
    wf_value *a = wf_silu(g, X(g));
    return wf_add(g, wf_mul(g, a, H(g, "up")), a);
}
static wf_value *glu_updated(
    wf_graph *g) /* the gate is a state that is updated before the product */
{
    wf_value *s = S(g), *a = wf_silu(g, s);
    wf_assign(g, s, X(g), NULL);
    return use(g, wf_mul(g, a, H(g, "up")));
}

static wf_value *W(wf_graph *g) /* [5, 6] */
{
    return wf_state(g, "w", WF_F32, 2, D(5, 6));
}
static wf_value *bias(wf_graph *g)
{
    return wf_state(g, "bias", WF_F32, 1, D(5));
}
BUILD(linear, use(g, wf_matmul(g, X(g), W(g), false, true)))
BUILD(linear_permuted, use(g, wf_matmul(g, X(g), wf_permute(g, W(g), D(1, 0)), false, false)))
BUILD(linear_input, use(g, wf_matmul(g, X(g), wf_input(g, "w", WF_F32, 2, D(5, 6)), false, true)))
BUILD(linear_untransposed,
      use(g, wf_matmul(g, X(g), wf_state(g, "w", WF_F32, 2, D(6, 5)), false, false)))
BUILD(linear_bias,
      use(g,
          wf_add(g, wf_linear(g, wf_input(g, "x3", WF_F32, 3, D(2, 4, 6)), W(g), NULL), bias(g))))
BUILD(bias_linear, use(g, wf_add(g, bias(g), wf_matmul(g, X(g), W(g), false, true))))
BUILD(bias_twice,
      use(g, wf_add(g, wf_linear(g, X(g), W(g), bias(g)), wf_state(g, "more", WF_F32, 1, D(5)))))
BUILD(bias_per_row,
      use(g, wf_add(g, wf_linear(g, X(g), W(g), NULL), wf_state(g, "rows", WF_F32, 2, D(4, 1)))))
static wf_value *bias_shared(wf_graph *g)
{
    wf_value *y = wf_linear(g, X(g), W(g), NULL);
    return wf_mul(g, wf_add(g, y, bias(g)), y);
}
static wf_value *bias_updated(wf_graph *g)
{
    wf_value *w = W(g), *y = wf_linear(g, X(g), w, NULL);
    wf_assign(g, w, wf_input(g, "next", WF_F32, 2, D(5, 6)), NULL);
    return use(g, wf_add(g, y, bias(g)));
}

static wf_value *softmax_of(wf_graph *g, wf_value *x, uint32_t axes, bool keep)
{
    wf_value *e = wf_exp(g, wf_sub(g, x, wf_max(g, x, axes, true)));
    wf_value *sum = wf_sum(g, e, axes, keep);
    return wf_div(g, e, keep ? sum : wf_reshape(g, sum, 2, D(4, 1)));
}
BUILD(softmax, use(g, softmax_of(g, X(g), 2, true)))
BUILD(softmax_reshaped, use(g, softmax_of(g, X(g), 2, false)))
BUILD(softmax_columns, use(g, softmax_of(g, X(g), 1, true)))
static wf_value *softmax_shared(wf_graph *g)
{
    wf_value *x = X(g), *e = wf_exp(g, wf_sub(g, x, wf_max(g, x, 2, true)));
    return wf_add(g, wf_div(g, e, wf_sum(g, e, 2, true)), e);
}

static wf_value *rms(wf_graph *g, wf_value *x, uint32_t axes, double eps)
{
    wf_value *m = wf_reduce(g, "mean", wf_mul(g, x, x), axes, true);
    return wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, eps))));
}
static wf_value *centred(wf_graph *g, wf_value *x, uint32_t axes)
{
    return wf_sub(g, x, wf_reduce(g, "mean", x, axes, true));
}
BUILD(rms_norm, use(g, rms(g, X(g), 2, 1e-3)))
BUILD(rms_norm_gain, use(g, wf_mul(g, rms(g, X(g), 2, 1e-3), V(g, "gamma"))))
BUILD(rms_norm_columns, use(g, rms(g, X(g), 1, 1e-3)))
BUILD(rms_norm_negative, use(g, rms(g, X(g), 2, -1e-9)))
static wf_value *rms_norm_sqrt(wf_graph *g) /* x / sqrt(sum(x^2) / C + eps), the sum reshaped */
{
    wf_value *x = X(g), *sum = wf_sum(g, wf_mul(g, x, x), 2, false);
    wf_value *m = wf_div(g, wf_reshape(g, sum, 2, D(4, 1)), scalar(g, 6));
    return use(g, wf_div(g, x, wf_sqrt(g, wf_add(g, scalar(g, 1e-3), m))));
}
static wf_value *rms_norm_turned(wf_graph *g) /* means of columns, used for rows */
{
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(4, 4));
    wf_value *m = wf_reshape(g, wf_reduce(g, "mean", wf_mul(g, x, x), 1, false), 2, D(4, 1));
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_wrong(wf_graph *g) /* not the mean */
{
    wf_value *x = X(g), *m = wf_scale(g, wf_sum(g, wf_mul(g, x, x), 2, true), 1.0 / 5);
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_shared(wf_graph *g)
{
    wf_value *x = X(g), *m = wf_reduce(g, "mean", wf_mul(g, x, x), 2, true);
    wf_value *r = wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)));
    return wf_add(g, wf_mul(g, x, r), r);
}
static wf_value *rms_norm_mixed(wf_graph *g) /* products with something else */
{
    wf_value *x = wf_exp(g, X(g)), *y = wf_exp(g, H(g, "y"));
    wf_value *m = wf_reduce(g, "mean", wf_mul(g, x, y), 2, true);
    return use(g, wf_mul(g, x, wf_rsqrt(g, wf_add(g, m, scalar(g, 1e-3)))));
}
static wf_value *rms_norm_updated(wf_graph *g)
{
    wf_value *s = S(g), *y = rms(g, s, 2, 1e-3);
    wf_assign(g, s, X(g), NULL);
    return use(g, wf_mul(g, y, V(g, "gamma")));
}
BUILD(layer_norm, use(g, wf_add(g, wf_mul(g, V(g, "gamma"), rms(g, centred(g, X(g), 2), 2, 1e-3)),
                                V(g, "beta"))))
BUILD(layer_norm_columns, use(g, rms(g, centred(g, X(g), 1), 2, 1e-3)))
static wf_value *layer_norm_shared(wf_graph *g)
{
    wf_value *d = centred(g, X(g), 2);
    return wf_add(g, rms(g, d, 2, 1e-3), d);
}
BUILD(beta_alone, use(g, wf_add(g, rms(g, centred(g, X(g), 2), 2, 1e-3), V(g, "beta"))))

/* clang-format off */
static const fold_case form_cases[] = {
    {"two scales",             "scale of scale", 1, scales, false, TOLERANCE},
    {"scales out of range",    "scale of scale", 0, scales_wild, false, TOLERANCE},
    {"x / 3",                  "divide by a fill", 1, div_fill, false, TOLERANCE},
    {"3 / x",                  "divide by a fill", 0, div_zero, false, TOLERANCE},
    {"x * sigmoid(x)",         "silu", 1, silu, false, TOLERANCE},
    {"sigmoid(x) * x",         "silu", 1, silu_swapped, false, TOLERANCE},
    {"sigmoid(x) * y",         "silu", 0, silu_other, false, TOLERANCE},
    {"sigmoid read elsewhere", "silu", 0, silu_shared, false, TOLERANCE},
    {"sigmoid as an output",   "silu", 0, silu_shown, false, TOLERANCE},
    {"silu * up",              "glu", 1, glu_silu, false, TOLERANCE},
    {"up * gelu",              "glu", 1, glu_gelu, false, TOLERANCE},
    {"gelu_erf * up",          "glu", 1, glu_erf, false, TOLERANCE},
    {"tanh * up",              "glu", 0, glu_tanh, false, TOLERANCE},
    {"silu * a row",           "glu", 0, glu_spread, false, TOLERANCE},
    {"silu read elsewhere",    "glu", 0, glu_shared, false, TOLERANCE},
    {"gate updated between",   "glu", 0, glu_updated, false, TOLERANCE},
    {"matmul by a state",      "linear", 1, linear, false, TOLERANCE},
    {"by a permuted state",    "linear", 1, linear_permuted, false, TOLERANCE},
    {"the permute itself",     "transpose into matmul", 1, linear_permuted, false, TOLERANCE},
    {"matmul by an input",     "linear", 0, linear_input, false, TOLERANCE},
    {"not transposed",         "linear", 0, linear_untransposed, false, TOLERANCE},
    {"linear + bias",          "linear with bias", 1, linear_bias, false, TOLERANCE},
    {"bias + matmul",          "linear with bias", 1, bias_linear, false, TOLERANCE},
    {"two biases",             "linear with bias", 0, bias_twice, false, TOLERANCE},
    {"a number a row",         "linear with bias", 0, bias_per_row, false, TOLERANCE},
    {"product read elsewhere", "linear with bias", 0, bias_shared, false, TOLERANCE},
    {"w updated between",      "linear with bias", 0, bias_updated, false, TOLERANCE},
    {"exp / sum",              "softmax", 1, softmax, false, TOLERANCE},
    {"exp / sum, reshaped",    "softmax", 1, softmax_reshaped, false, TOLERANCE},
    {"over another axis",      "softmax", 0, softmax_columns, false, TOLERANCE},
    {"exp read elsewhere",     "softmax", 0, softmax_shared, false, TOLERANCE},
    {"mean square",            "rms_norm", 1, rms_norm, false, TOLERANCE},
    {"with gain",              "gain into norm", 1, rms_norm_gain, false, TOLERANCE},
    {"by sqrt and sum",        "rms_norm", 1, rms_norm_sqrt, false, TOLERANCE},
    {"of columns",             "rms_norm", 0, rms_norm_columns, false, TOLERANCE},
    {"columns used for rows",  "rms_norm", 0, rms_norm_turned, false, TOLERANCE},
    {"negative eps",           "rms_norm", 0, rms_norm_negative, false, TOLERANCE},
    {"no mean",                "rms_norm", 0, rms_norm_wrong, false, TOLERANCE},
    {"rstd read elsewhere",    "rms_norm", 0, rms_norm_shared, false, TOLERANCE},
    {"other squares",          "rms_norm", 0, rms_norm_mixed, false, TOLERANCE},
    {"x updated before gain",  "gain into norm", 0, rms_norm_updated, false, TOLERANCE},
    {"centred",                "layer_norm", 1, layer_norm, false, TOLERANCE},
    {"with bias",              "bias into norm", 1, layer_norm, false, TOLERANCE},
    {"centred by columns",     "layer_norm", 0, layer_norm_columns, false, TOLERANCE},
    {"x - mean read elsewhere", "layer_norm", 0, layer_norm_shared, false, TOLERANCE},
    {"bias without gain",      "bias into norm", 0, beta_alone, false, TOLERANCE},
};
/* clang-format on */

static void test_form(void **state)
{
    check_cases(*state, form_cases, COUNT(form_cases));
}

/* ---- Attention ---- */

typedef enum { NO_MASK, WHERE_LE, WHERE_LT, ADDED, SOFT, ANTI, SHARED, OTHER_WAY } mask_kind;

static wf_value *heads(wf_graph *g, const char *name, int rank, int64_t h, int64_t d)
{
    const int64_t shape[] = {2, h, 5, d};
    return wf_input(g, name, WF_F32, rank, shape + (4 - rank));
}

/* [5, 5]: column <= row */
static wf_value *lower(wf_graph *g)
{
    return wf_le(g, wf_iota(g, 1, D(5), 0), wf_reshape(g, wf_iota(g, 1, D(5), 0), 2, D(5, 1)));
}

static wf_value *masked(wf_graph *g, wf_value *s, mask_kind kind)
{
    wf_value *rows = wf_iota(g, 2, D(5, 5), 0), *columns = wf_iota(g, 2, D(5, 5), 1);
    switch (kind) {
    case WHERE_LE: return wf_where(g, lower(g), s, scalar(g, -INFINITY));
    case WHERE_LT: return wf_where(g, wf_lt(g, rows, columns), scalar(g, -1e9), s);
    case ADDED:
        return wf_add(g, s, wf_where(g, wf_le(g, columns, rows), scalar(g, 0), scalar(g, -1e9)));
    case SOFT: return wf_where(g, lower(g), s, scalar(g, -3));
    case ANTI: return wf_where(g, wf_le(g, rows, columns), s, scalar(g, -1e9));
    case OTHER_WAY: return wf_where(g, lower(g), scalar(g, -1e9), s);
    default: return s;
    }
}

static wf_value *attend(wf_graph *g, wf_value *q, wf_value *k, wf_value *v, double scale,
                        mask_kind kind)
{
    wf_value *s = wf_scale(g, wf_matmul(g, q, k, false, true), scale);
    wf_value *p = wf_softmax(g, masked(g, s, kind)), *y = wf_matmul(g, p, v, false, false);
    return kind == SHARED ? wf_add(g, y, wf_reduce(g, "sum", p, 8, true)) : y;
}
#define ATTEND(name, rank, scale, kind)                                                \
    BUILD(name, use(g, attend(g, heads(g, "q", rank, 3, 4), heads(g, "k", rank, 3, 4), \
                              heads(g, "v", rank, 3, 6), scale, kind)))
ATTEND(attend_all, 4, 0.5, NO_MASK)
ATTEND(attend_le, 4, 0.5, WHERE_LE)
ATTEND(attend_lt, 4, 0.5, WHERE_LT)
ATTEND(attend_added, 4, 0.5, ADDED)
ATTEND(attend_rank_3, 3, 0.3, WHERE_LE)
ATTEND(attend_soft, 4, 0.5, SOFT)
ATTEND(attend_anti, 4, 0.5, ANTI)
ATTEND(attend_other_way, 4, 0.5, OTHER_WAY)
ATTEND(attend_shared, 4, 0.5, SHARED)
ATTEND(attend_zero, 4, 0, WHERE_LE)
BUILD(attend_output, attend(g, heads(g, "q", 4, 3, 4), heads(g, "k", 4, 3, 4),
                            heads(g, "v", 4, 3, 4), 1, WHERE_LE))
BUILD(attend_crossed,
      use(g, wf_matmul(g,
                       wf_softmax(g, wf_matmul(g, heads(g, "q", 4, 3, 4),
                                               wf_input(g, "k", WF_F32, 4, D(2, 3, 7, 4)), false,
                                               true)),
                       wf_input(g, "v", WF_F32, 4, D(2, 3, 7, 4)), false, false)))

static wf_value *repeated(wf_graph *g, wf_value *x, int64_t times) /* [B, Hk, T, D] */
{
    const int64_t *d = x->shape.d;
    x = wf_reshape(g, x, 5, D(d[0], d[1], 1, d[2], d[3]));
    x = wf_broadcast(g, x, 5, D(x->shape.d[0], x->shape.d[1], times, x->shape.d[3], x->shape.d[4]));
    d = x->shape.d;
    return wf_reshape(g, x, 4, D(d[0], d[1] * times, d[3], d[4]));
}
BUILD(attend_grouped,
      use(g, attend(g, heads(g, "q", 4, 6, 4), repeated(g, heads(g, "k", 4, 2, 4), 3),
                    repeated(g, heads(g, "v", 4, 2, 4), 3), 0.5, WHERE_LE)))

static wf_value *attend_updated(
    wf_graph *g) /* q is a state that is updated before the last product */
{
    wf_value *q = wf_state(g, "q", WF_F32, 4, D(2, 3, 5, 4));
    wf_value *p = wf_softmax(g, wf_matmul(g, q, heads(g, "k", 4, 3, 4), false, true));
    wf_assign(g, q, heads(g, "next", 4, 3, 4), NULL);
    return use(g, wf_matmul(g, p, heads(g, "v", 4, 3, 4), false, false));
}

/* clang-format off */
static const fold_case attention_cases[] = {
    {"no mask",              "attention", 1, attend_all, false, TOLERANCE},
    {"where column <= row",  "attention", 1, attend_le, false, TOLERANCE},
    {"where row < column",   "attention", 1, attend_lt, false, TOLERANCE},
    {"an added mask",        "attention", 1, attend_added, false, TOLERANCE},
    {"[H, T, D]",            "attention", 1, attend_rank_3, false, TOLERANCE},
    {"grouped heads",        "attention", 1, attend_grouped, false, TOLERANCE},
    {"as an output",         "attention", 1, attend_output, false, TOLERANCE},
    {"a soft mask",          "attention", 0, attend_soft, false, TOLERANCE},
    {"the future only",      "attention", 0, attend_anti, false, TOLERANCE},
    {"the past hidden",      "attention", 0, attend_other_way, false, TOLERANCE},
    {"weights read elsewhere", "attention", 0, attend_shared, false, TOLERANCE},
    {"scale 0",              "attention", 0, attend_zero, false, TOLERANCE},
    {"other keys",           "attention", 0, attend_crossed, false, TOLERANCE},
    {"q updated between",    "attention", 0, attend_updated, false, TOLERANCE},
};
/* clang-format on */

static void test_attention(void **state)
{
    check_cases(*state, attention_cases, COUNT(attention_cases));
}

/* Heads that were split and moved to the front: what remains are reshapes. */
static void test_attention_views(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *part[3];
    for (int i = 0; i < 3; i++) {
        wf_value *x = wf_input(g, (const char *[]){"q", "k", "v"}[i], WF_F32, 2, D(10, 12));
        part[i] = wf_permute(g, wf_reshape(g, x, 4, D(2, 5, 3, 4)), D(0, 2, 1, 3));
    }
    wf_value *y = attend(g, part[0], part[1], part[2], 0.5, WHERE_LE);
    y = wf_reshape(g, wf_permute(g, y, D(0, 2, 1, 3)), 2, D(10, 12));
    wt_ok(*state, wf_output(g, "y", use(g, y)));
    wf_report report = {0};
    int dropped;
    wt_ok(*state, fold(g, &report));
    wt_ok(*state, wf_graph_prune(g, &dropped));
    assert_int_equal(count_ops(g, WF_OP_attention), 1);
    assert_int_equal(count_ops(g, WF_OP_permute), 0);
    assert_int_equal(count_ops(g, WF_OP_softmax), 0);
    wf_graph_free(g);
}

/* ---- Whole models ---- */

static bool keep_some(const wf_node *n, void *user)
{
    (void)user;
    return n->op != WF_OP_layer_norm && n->op != WF_OP_rms_norm && n->op != WF_OP_linear &&
           n->op != WF_OP_glu && n->op != WF_OP_silu && n->op != WF_OP_mean;
}

/* Norms, products and gates written out: folding brings all of them back. */
static void test_models(void **state)
{
    static const wf_op ops[] = {WF_OP_layer_norm, WF_OP_rms_norm, WF_OP_linear, WF_OP_glu,
                                WF_OP_attention,  WF_OP_matmul,   WF_OP_rsqrt,  WF_OP_sigmoid};
    for (int i = 0; i < PM_MODELS; i++) {
        wf_graph *g = wt_graph(*state), *spelled;
        pm_model m;
        int dropped;
        pm_forward(g, &pm_configs[i], 12, 2, &m);
        wt_ok(*state, wf_output(g, "loss", m.loss));
        wt_ok(*state, wf_pass_expand(g, keep_some, NULL, &spelled));
        wt_ok(*state, wf_graph_prune(spelled, &dropped));
        assert_int_equal(count_ops(spelled, WF_OP_linear), 0);
        wt_ok(*state, wf_fold(spelled));
        wt_ok(*state, wf_graph_prune(spelled, &dropped));
        for (size_t k = 0; k < COUNT(ops); k++)
            if (count_ops(spelled, ops[k]) != count_ops(g, ops[k]))
                fail_msg("%s: %d %s, not %d", pm_configs[i].name, count_ops(spelled, ops[k]),
                         wf_op_get(ops[k])->name, count_ops(g, ops[k]));
        assert_int_equal(spelled->node_count, g->node_count);
        wf_graph_free(spelled);
        wf_graph_free(g);
    }
}

/* A block of GPT-2, or of Llama but for its rotation, on 2 sequences of 5, in primitive ops. */
static wf_value *block(wf_graph *g, bool llama)
{
    const int64_t C = 12;
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(10, C)), *h[3];
    wf_value *gamma = wf_state(g, "gamma", WF_F32, 1, &C),
             *beta = wf_state(g, "beta", WF_F32, 1, &C);
    wf_value *n = llama ? wf_mul(g, rms(g, x, 2, 1e-5), gamma)
                        : wf_add(g, wf_mul(g, rms(g, centred(g, x, 2), 2, 1e-5), gamma), beta);
    for (int i = 0; i < 3; i++) {
        int64_t hk = llama && i ? 1 : 3;
        char name[] = {"qkv"[i], 0}, b[] = {'b', "qkv"[i], 0};
        wf_value *w = wf_state(g, name, WF_F32, 2, D(hk * 4, C));
        h[i] = wf_matmul(g, n, w, false, true);
        if (!llama)
            h[i] = wf_add(g, h[i], wf_state(g, b, WF_F32, 1, D(hk * 4)));
        h[i] = wf_permute(g, wf_reshape(g, h[i], 4, D(2, 5, hk, 4)), D(0, 2, 1, 3));
        if (hk == 1)
            h[i] = repeated(g, h[i], 3);
    }
    wf_value *s = wf_div(g, wf_matmul(g, h[0], wf_permute(g, h[1], D(0, 1, 3, 2)), false, false),
                         scalar(g, 2));
    wf_value *p = softmax_of(g, masked(g, s, WHERE_LE), 8, true);
    wf_value *y = wf_matmul(g, p, h[2], false, false);
    y = wf_reshape(g, wf_permute(g, y, D(0, 2, 1, 3)), 2, D(10, C));
    y = wf_block(g, wf_add(g, x, y));
    wf_value *up = wf_matmul(g, y, wf_state(g, "up", WF_F32, 2, D(7, C)), false, true);
    wf_value *gate = wf_matmul(g, y, wf_state(g, "gate", WF_F32, 2, D(7, C)), false, true);
    return llama ? wf_mul(g, silu_of(g, gate), up) : wf_mul(g, wf_gelu(g, gate), up);
}
BUILD(gpt2_block, block(g, false))
BUILD(llama_block, block(g, true))

/* clang-format off */
static const fold_case block_cases[] = {
    {"gpt2: attention",  "attention", 1, gpt2_block, false, TOLERANCE},
    {"gpt2: norm",       "bias into norm", 1, gpt2_block, false, TOLERANCE},
    {"gpt2: products",   "linear with bias", 3, gpt2_block, false, TOLERANCE},
    {"llama: attention", "attention", 1, llama_block, false, TOLERANCE},
    {"llama: norm",      "gain into norm", 1, llama_block, false, TOLERANCE},
    {"llama: gate",      "glu", 1, llama_block, false, TOLERANCE},
    {"llama: softmax",   "softmax", 1, llama_block, false, TOLERANCE},
};
/* clang-format on */

static void test_blocks(void **state)
{
    check_cases(*state, block_cases, COUNT(block_cases));
    for (int llama = 0; llama < 2; llama++) {
        wf_graph *g = wt_graph(*state);
        int dropped;
        wt_ok(*state, wf_output(g, "y", block(g, llama)));
        wt_ok(*state, wf_fold(g));
        wt_ok(*state, wf_graph_prune(g, &dropped));
        assert_int_equal(count_ops(g, WF_OP_matmul) + count_ops(g, WF_OP_permute) +
                             count_ops(g, WF_OP_broadcast) + count_ops(g, WF_OP_exp),
                         0);
        wf_graph_free(g);
    }
}

/* ---- Training graphs ---- */

/* After the gradient: what it reads stays, new nodes are on its side, and steps come out the same. */
static void test_training(void **state)
{
    wf_graph *g[2];
    for (int i = 0; i < 2; i++) {
        wt_model m;
        g[i] = wt_graph(*state);
        wt_forward(g[i], &wt_tiny, &m);
        wt_train(g[i], &m);
    }
    wf_report report = {0};
    wt_ok(*state, fold(g[1], &report));
    assert_true(wf_report_get(&report, "fold", "computed twice") > 0);
    assert_true(wf_graph_status(g[1]) == WF_OK && !g[1]->backward);
    wt_run r[2];
    for (int i = 0; i < 2; i++) {
        r[i] = wt_open(*state, "cpu:1");
        wt_ok(*state, wf_compile_with(r[i].session, g[i], &plain, &r[i].exec));
        wf_graph_free(g[i]);
        wt_model m;
        wf_graph *names = wt_graph(*state);
        wt_forward(names, &wt_tiny, &m);
        wf_graph_free(names);
        wt_ok(*state, wt_write_params(r[i].session, &m));
        for (int step = 1; step <= 3; step++) {
            wt_ok(*state, wt_write_inputs(r[i].exec, &wt_tiny, step));
            wt_run_once(&r[i]);
        }
    }
    wf_info info;
    for (int i = 0; wf_session_state(r[0].session, i, &info); i++) {
        int64_t n = (int64_t)(info.bytes / sizeof(float));
        float *x = malloc(info.bytes), *y = malloc(info.bytes);
        wt_ok(*state, wf_session_read(r[0].session, info.name, x, info.bytes));
        wt_ok(*state, wf_session_read(r[1].session, info.name, y, info.bytes));
        for (int64_t k = 0; k < n && info.type == WF_F32; k++)
            assert_true(fabs((double)x[k] - y[k]) <= 1e-4 * (fabs((double)x[k]) + 1e-2));
        free(x);
        free(y);
    }
    wt_close(&r[0]);
    wt_close(&r[1]);
}

/* What is made for a node of the gradient belongs to it. */
static void test_backward_flag(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = X(g), *grad;
    wf_value *loss = wf_sum(g, wf_mul(g, wf_exp(g, x), scalar(g, 3)), 3, false);
    wt_ok(*state, wf_grad(g, loss, &x, 1, &grad));
    wt_ok(*state, wf_output(g, "d", grad));
    wt_ok(*state, wf_output(g, "loss", loss));
    int count = g->node_count, backward = 0, forward = 0;
    wf_node *old[64];
    memcpy(old, g->nodes, (size_t)count * sizeof *old);
    wt_ok(*state, wf_fold(g));
    for (int i = 0; i < g->node_count; i++) {
        bool is_new = true;
        for (int k = 0; k < count; k++)
            is_new &= old[k] != g->nodes[i];
        if (is_new && g->nodes[i]->op == WF_OP_scale)
            *(g->nodes[i]->backward ? &backward : &forward) += 1;
    }
    assert_int_equal(forward, 1);
    assert_true(backward >= 1);
    wf_graph_free(g);
}

/* ---- Handles ---- */

static void test_handles(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *w = wf_state(g, "w", WF_F32, 1, D(3)), *x = wf_input(g, "x", WF_F32, 1, D(3));
    wf_value *p = wf_mul(g, w, x), *s = wf_sigmoid(g, p), *y = wf_mul(g, p, s);
    wf_value *z = wf_exp(g, y), *loss = wf_sum(g, wf_copy(g, z), 1, false), *grads[3];
    wt_ok(*state, wf_fold(g));
    assert_true(wf_graph_has(g, s) && wf_graph_has(g, y) && wf_graph_has(g, loss));
    assert_int_equal(z->node->in[0]->node->op, WF_OP_silu);

    /* With respect to a state, an input and a value that was not touched. */
    wt_ok(*state, wf_grad(g, loss, (wf_value *[]){w, x, p}, 3, grads));
    wt_ok(*state, wf_output(g, "dw", grads[0]));
    wt_ok(*state, wf_output(g, "dx", grads[1]));
    wt_ok(*state, wf_output(g, "dp", grads[2]));
    wt_ok(*state, wf_output(g, "y", y)); /* of one that was replaced: it is still there */
    wf_value *old_loss = wf_sum(g, y, 1, false), *dy;
    wt_ok(*state, wf_grad(g, old_loss, &w, 1, &dy));
    wt_ok(*state, wf_output(g, "dy", dy));

    wt_run r = wt_open(*state, "cpu:1");
    wt_ok(*state, wf_compile_with(r.session, g, &plain, &r.exec));
    float wv[] = {0.5f, -1, 2}, xv[] = {1, 3, -0.25f}, out[5][3];
    wt_set_state(&r, "w", wv, 3);
    wt_write(&r, "x", xv, sizeof xv);
    wt_run_once(&r);
    const char *names[] = {"dw", "dx", "dp", "y", "dy"};
    for (int i = 0; i < 5; i++)
        wt_read(&r, names[i], out[i], sizeof out[i]);
    for (int i = 0; i < 3; i++) {
        double pv = (double)wv[i] * xv[i], sv = 1 / (1 + exp(-pv)), yv = pv * sv;
        double slope = sv + yv * (1 - sv), dp = exp(yv) * slope;
        double want[] = {dp * xv[i], dp * wv[i], dp, yv, slope * xv[i]};
        for (int k = 0; k < 5; k++)
            assert_true(fabs(out[k][i] - want[k]) <= 1e-5 * (1 + fabs(want[k])));
    }
    wt_close(&r);
    wf_graph_free(g);
}

/* A gradient that would silently be another one is refused. */
static void test_folded_away(void **state)
{
    for (int i = 0; i < 3; i++) {
        wf_graph *g = wt_graph(*state);
        wf_value *x = X(g), *s = wf_sigmoid(g, x), *y = wf_mul(g, x, s), *grad;
        wf_value *loss = wf_sum(g, wf_exp(g, y), 3, false),
                 *twin = wf_sum(g, wf_exp(g, y), 3, false);
        wf_value *both = wf_add(g, loss, twin);
        wt_ok(*state, wf_fold(g));
        wt_fails(*state, wf_grad(g, both, (wf_value *[]){s, y, loss} + i, 1, &grad), WF_ERR_USAGE,
                 "was folded away");
        wf_graph_free(g);
    }
    wf_graph *broken = wt_graph(*state);
    wf_add(broken, X(broken), wf_input(broken, "y", WF_F32, 1, D(5)));
    wt_fails(*state, wf_fold(broken), WF_ERR_USAGE, "must be equal or 1");
    wf_graph_free(broken);
}

/* ---- Size, and memory running out ---- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void test_large(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        wf_graph *g = wt_graph(*state);
        wf_value *x = X(g), *v = x, *sum = NULL;
        for (int i = 0; i < 20000; i++)
            switch (kind) {
            case 0: v = wf_reshape(g, v, 2, i % 2 ? D(4, 6) : D(3, 8)); break;
            case 1: v = wf_scale(g, v, 1.0001); break;
            case 2: v = i % 2 ? wf_sub(g, v, scalar(g, 0)) : wf_exp(g, wf_copy(g, v)); break;
            default: /* the same, over and over, and all of one value */
                sum = sum ? wf_sub(g, wf_exp(g, x), sum) : x;
            }
        wt_ok(*state, wf_output(g, "y", use(g, sum ? sum : v)));
        double begin = seconds();
        wt_ok(*state, wf_fold(g));
        double took = seconds() - begin;
        int dropped;
        wt_ok(*state, wf_graph_prune(g, &dropped));
        print_message("  %d nodes left, %.3f s\n", g->node_count, took);
        assert_true(took < 5); /* of a machine that is busy, under sanitizers */
        wf_graph_free(g);
    }
}

static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    bool reached = true;
    int failures = 0;
    for (uint64_t nth = 1; reached; nth++) {
        wf_graph *g = wt_graph(ctx);
        wt_ok(ctx, wf_output(g, "y", block(g, false)));
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_fold(g);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        failures += reached;
        if (reached) {
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
        } else {
            wt_ok(ctx, status);
        }
        wf_graph_free(g);
        assert_int_equal(wt_live_blocks(ctx), 0);
    }
    assert_true(failures > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_exact),         wt_test(test_same),      wt_test(test_marks_merge),
        wt_test(test_form),          wt_test(test_attention), wt_test(test_attention_views),
        wt_test(test_models),        wt_test(test_blocks),    wt_test(test_training),
        wt_test(test_backward_flag), wt_test(test_handles),   wt_test(test_folded_away),
        wt_test(test_large),         wt_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

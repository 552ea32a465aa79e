/* SPDX-License-Identifier: MIT */
/* fold_case.c - implements fold_case.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fold_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const wf_compile_options fold_plain = {.without = WF_PASS_FOLD | WF_PASS_FUSE | WF_PASS_RECOMPUTE |
                                                  WF_PASS_SCHEDULE};

/* ---- Running ---- */

/* Returns data that depends on the name only, so that two graphs get equal inputs. `odd` adds -0,
 * inf and NaN. The caller frees it. */
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

/* Writes all inputs and states of a run. */
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

/* Compiles without passes, frees the graph and runs once. */
static wt_run run_plain(wf_ctx *ctx, wf_graph *g, bool odd)
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_ok(ctx, wf_compile_with(r.session, g, &fold_plain, &r.exec));
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

/* The tolerance is at least 4 roundoffs of the output's type; it is relative to `scale`. */
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

/* Compares all outputs and states of two runs and closes both. Tolerance 0 compares bits. The error
 * of a gradient (outputs dN) is also measured against the largest gradient: some gradients, such as
 * that of a key bias, are zero except for roundoff. */
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

wf_status fold_run(wf_graph *g, wf_report *report)
{
    wf_compile_options options = {0};
    return wf_pass_fold(g, &(wf_pass_env){.options = &options, .report = report});
}

int fold_count(const wf_graph *g, wf_op op)
{
    int count = 0;
    for (int i = 0; i < g->node_count; i++)
        count += g->nodes[i]->op == op;
    return count;
}

/* ---- One rule ---- */

/* Checks that the rule fires `times` times, that a second pass finds nothing, and that the
 * outputs stay the same. */
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
    wt_ok(ctx, fold_run(g[1], &report));
    wt_ok(ctx, wf_graph_verify(g[1]));
    int64_t times = wf_report_get(&report, "fold", c->rule);
    if (times != c->times)
        fail_msg("'%s' fired %d times, not %d", c->rule, (int)times, c->times);
    wf_report again = {0}; /* the pass must be idempotent */
    wt_ok(ctx, fold_run(g[1], &again));
    if (again.count != 0)
        fail_msg("'%s' fires again", again.line[0].what);
    wt_run a = run_plain(ctx, g[0], c->odd), b = run_plain(ctx, g[1], c->odd);
    compare_runs(&a, &b, c->tolerance);
}

/* Compares d sum(y^2) with respect to all float sources, with and without folding before
 * wf_grad. */
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

/* Graphs with updates are not differentiated: wf_grad would read states after their update. */
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

void fold_check(wf_ctx *ctx, const fold_case *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        print_message("  %s\n", c[i].label);
        check_values(ctx, &c[i]);
        if (!has_update(ctx, c[i].build))
            check_gradient(ctx, &c[i]);
    }
}

/* SPDX-License-Identifier: MIT */
/*
 * test_selftest.c - runs the selftest on the cpu with a fresh seed, and tests the selftest itself:
 * it must find errors injected into the reference.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "selftest/number.h"
#include "selftest/selftest.h"
#include "support.h"

static uint64_t seed;

static void print_failure(void *user, const char *sentence)
{
    int *printed = user;
    if ((*printed)++ < 40)
        print_error("%s\n", sentence);
}

/* Every op and type (sanitized: a sample), on two threads and, bitwise equal, on one. */
static void test_all_ops_on_the_cpu(void **state)
{
    (void)state;
    int printed = 0, listed = 0;
    for (int op = 0; op < WF_OP_COUNT; op++)
        listed += wf_selftest_cases((wf_op)op);
    const bool all = wt_cases(listed) == listed;
    wf_selftest_options options = {
        .device = "cpu:2",
        .twin = "cpu:1",
        .seed = seed,
        .sample = all ? 0 : wt_cases(listed),
        .on_failure = print_failure,
        .user = &printed,
    };
    wf_ctx *ctx;
    wf_selftest_report *report;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    wf_status status = wf_selftest_run(ctx, &options, &report);
    if (status != WF_OK)
        fail_msg("%s", wf_ctx_message(ctx));
    double worst = 0;
    for (int i = 0; i < report->ops; i++)
        worst = fmax(worst, report->rows[i].worst);
    print_message(
        "%d ops, %d cases, %d checks, %d failures; largest error / bound %.2f; seed %llu\n",
        report->ops, report->cases, report->checks, report->failures, worst,
        (unsigned long long)seed);
    assert_int_equal(report->ops_without_case_count, 0);
    assert_int_equal(report->failures, 0);
    if (all)
        assert_int_equal(report->cases, listed);
    else
        assert_in_range(report->cases, wt_cases(listed) / 2, wt_cases(listed) * 2);
    assert_int_equal(report->skipped, 0); /* the cpu supports all combinations of types */
    assert_true(worst <= 1);
    wf_selftest_report_free(report);
    wf_mem_stats mem;
    wf_ctx_mem_stats(ctx, &mem);
    assert_int_equal(mem.live_blocks, 0);
    wf_ctx_free(ctx);
}

/* ---- The selftest itself ---- */

/* Runs one op and returns the number of failures; `first` receives the first message. */
static int failures_of(wf_selftest_options options, char *first, size_t size)
{
    wf_ctx *ctx;
    wf_selftest_report *report;
    options.device = "cpu";
    options.seed = seed;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    assert_int_equal(wf_selftest_run(ctx, &options, &report), WF_OK);
    assert_int_equal(report->ops, 1);
    assert_int_equal(report->failures, report->rows[0].failures);
    snprintf(first, size, "%s", report->rows[0].first);
    int failures = report->failures;
    wf_selftest_report_free(report);
    wf_ctx_free(ctx);
    return failures;
}

/* A result off by 0.1% is a failure in every one of these ops. Only in f32: narrow types round by
 * more. */
static void test_wrong_results_are_found(void **state)
{
    (void)state;
    static const char *const ops[] = {"add",
                                      "exp",
                                      "scale",
                                      "sum",
                                      "softmax",
                                      "matmul",
                                      "rope",
                                      "rms_norm",
                                      "cross_entropy",
                                      "adamw",
                                      "lion",
                                      "gather_rows",
                                      "fill",
                                      "attention",
                                      "layer_norm_grad",
                                      "linear_act",
                                      "matmul_act_grad",
                                      "linear_grad_weight",
                                      "residual_layer_norm_grad",
                                      "residual_rms_norm_grad",
                                      "residual_layer_norm",
                                      "residual_rms_norm",
                                      "head_loss",
                                      "adamw_many"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char first[1024], command[128];
        if (wt_cases(4) < 4 && (i + seed) % 4 != 0)
            continue; /* sanitized: a quarter of the ops */
        wf_selftest_options o = {.op = ops[i], .type = WF_F32, .distort_forward = 1e-3};
        if (failures_of(o, first, sizeof first) == 0)
            fail_msg("%s: an error of 0.001 was not found", ops[i]);
        snprintf(command, sizeof command, "weft selftest --device cpu --op %s --seed %llu", ops[i],
                 (unsigned long long)seed);
        assert_non_null(strstr(first, command));
        assert_non_null(strstr(first, "forward"));
    }
}

static void test_wrong_gradients_are_found(void **state)
{
    (void)state;
    static const char *const ops[] = {"mul",    "gelu", "tanh",       "mean",      "softmax",
                                      "linear", "rope", "layer_norm", "attention", "cross_entropy"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        char first[1024];
        if (wt_cases(4) < 4 && (i + seed) % 4 != 0)
            continue;
        wf_selftest_options o = {.op = ops[i], .type = WF_F32, .distort_gradient = 1e-3};
        if (failures_of(o, first, sizeof first) == 0)
            fail_msg("%s: an error of 0.001 in the gradient was not found", ops[i]);
        assert_non_null(strstr(first, "gradient"));
    }
}

static void test_comparison(void **state)
{
    (void)state;
    double v[3] = {1, -2, 0}, mag[3] = {1, 3, 0};
    wf_ref want = {.type = WF_F32, .shape = {1, {3}}, .v = v, .mag = mag};
    assert_false(wf_compare((float[]){1, -2, 0}, &want, 8).failed);
    assert_false(wf_compare((float[]){1 + 0x1p-22f, -2, 0}, &want, 8).failed);

    wf_verdict verdict = wf_compare((float[]){1, -2 * 1.001f, 0}, &want, 8);
    assert_true(verdict.failed && verdict.index == 1 && verdict.wanted == -2);
    /* no sum, so no rounding allowed */
    verdict = wf_compare((float[]){1, -2, 1e-30f}, &want, 8);
    assert_true(verdict.failed && verdict.index == 2);
    assert_true(wf_compare((float[]){1, NAN, 0}, &want, 8).failed);
    assert_true(wf_compare((float[]){INFINITY, -2, 0}, &want, 8).failed);

    v[0] = NAN;
    v[1] = INFINITY;
    assert_false(wf_compare((float[]){NAN, INFINITY, 0}, &want, 8).failed);
    assert_true(wf_compare((float[]){0, INFINITY, 0}, &want, 8).failed);
    assert_true(wf_compare((float[]){NAN, -INFINITY, 0}, &want, 8).failed);
    assert_true(wf_compare((float[]){NAN, 3e38f, 0}, &want, 8).failed);

    wf_ref whole = {.type = WF_I32, .shape = {1, {1}}, .v = (double[]){7}, .mag = (double[]){100}};
    assert_false(wf_compare((int32_t[]){7}, &whole, 8).failed);
    assert_true(wf_compare((int32_t[]){8}, &whole, 8).failed);
}

static void test_comparison_in_narrow_types(void **state)
{
    (void)state;
    double v[1], mag[1] = {1};
    wf_ref want = {.type = WF_F16, .shape = {1, {1}}, .v = v, .mag = mag};
    uint16_t got[1];
    v[0] = 1 + 0x1p-12; /* between two f16 values, nearer to 1 */
    wf_numbers_store(WF_F16, v, got, 1);
    assert_false(wf_compare(got, &want, 8).failed);
    assert_true(wf_number_load(WF_F16, got, 0) == 1);
    got[0] += 2;
    assert_true(wf_compare(got, &want, 8).failed);

    v[0] = 1e6; /* beyond the largest f16 */
    wf_numbers_store(WF_F16, v, got, 1);
    assert_true(isinf(wf_number_load(WF_F16, got, 0)));
    assert_false(wf_compare(got, &want, 8).failed);
    assert_true(wf_number_round(WF_I8, 1000) == 127 && wf_number_round(WF_U8, -3) == 0);
    assert_true(wf_number_round(WF_I32, 2.5) == 2 && wf_number_round(WF_E4M3, 1e9) == 448);
}

static void test_comparison_of_gradients(void **state)
{
    (void)state;
    assert_false(wf_compare_gradient(2, 2 + 1e-6, 2, 2, 64).failed);
    assert_true(wf_compare_gradient(2 * 1.001, 2, 2, 2, 64).failed);
    assert_true(wf_compare_gradient(0.5 * 1.001, 0.5, 2, 2, 64).failed);
    assert_true(wf_compare_gradient(NAN, 2, 2, 2, 64).failed);
}

/* ---- The harness itself ---- */

static void test_unknown_names_are_refused(void **state)
{
    (void)state;
    wf_ctx *ctx;
    wf_selftest_report *report;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    wf_selftest_options o = {.device = "cpu", .op = "mammul"};
    assert_int_equal(wf_selftest_run(ctx, &o, &report), WF_ERR_USAGE);
    assert_null(report);
    o = (wf_selftest_options){.device = "abacus"};
    assert_int_not_equal(wf_selftest_run(ctx, &o, &report), WF_OK);
    assert_null(report);
    wf_selftest_report_free(NULL);
    wf_ctx_free(ctx);
}

static void test_a_seed_repeats(void **state)
{
    (void)state;
    wf_ctx *ctx;
    wf_selftest_report *a, *b, *other;
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    wf_selftest_options o = {.device = "cpu", .op = "softmax", .seed = seed};
    assert_int_equal(wf_selftest_run(ctx, &o, &a), WF_OK);
    assert_int_equal(wf_selftest_run(ctx, &o, &b), WF_OK);
    o.seed++;
    assert_int_equal(wf_selftest_run(ctx, &o, &other), WF_OK);
    assert_memory_equal(a->rows, b->rows, sizeof *a->rows);
    assert_true(a->rows->worst != other->rows->worst);
    wf_selftest_report_free(a);
    wf_selftest_report_free(b);
    wf_selftest_report_free(other);
    wf_ctx_free(ctx);
}

/* A sample covers every op, has about the requested number of cases, and depends only on the
 * seed. */
static void test_samples(void **state)
{
    (void)state;
    enum { WANTED = 150 };
    wf_ctx *ctx;
    wf_selftest_report *report[3];
    int all = 0, moved = 0;
    for (int op = 0; op < WF_OP_COUNT; op++)
        all += wf_selftest_cases((wf_op)op);
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    for (int i = 0; i < 3; i++) {
        wf_selftest_options o = {.device = "cpu", .seed = seed + (i == 2), .sample = WANTED};
        assert_int_equal(wf_selftest_run(ctx, &o, &report[i]), WF_OK);
        assert_int_equal(report[i]->failures, 0);
        assert_int_equal(report[i]->ops, WF_OP_COUNT);
    }
    for (int i = 0; i < WF_OP_COUNT; i++) {
        int cases = report[0]->rows[i].cases;
        assert_in_range(cases, 1, wf_selftest_cases((wf_op)i));
        assert_int_equal(report[1]->rows[i].cases, cases);
        moved += report[2]->rows[i].cases != cases;
    }
    assert_true(moved > 0);
    /* ops with few cases add some; 5 standard deviations of a binomial */
    assert_in_range(report[0]->cases, WANTED - 61, WANTED + 61 + WF_OP_COUNT);
    assert_true(report[0]->cases < all);
    for (int i = 0; i < 3; i++)
        wf_selftest_report_free(report[i]);
    wf_ctx_free(ctx);
}

/* Fails every 7th allocation in turn: no crash, no leak, and an out-of-memory status. */
static void test_memory_running_out(void **state)
{
    (void)state;
    wf_ctx *ctx;
    wf_mem_stats mem;
    wf_selftest_options o = {.device = "cpu", .op = "rsqrt", .type = WF_F32, .seed = seed};
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    for (uint64_t n = 1;; n += 7) {
        wf_selftest_report *report;
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_selftest_run(ctx, &o, &report);
        wf_ctx_fail_allocation(ctx, 0);
        int failures = status == WF_OK ? report->failures : 0;
        wf_selftest_report_free(report);
        wf_ctx_mem_stats(ctx, &mem);
        assert_int_equal(mem.live_blocks, 0);
        if (status == WF_OK) {
            assert_int_equal(failures, 0);
            break;
        }
        assert_int_equal(status, WF_ERR_MEMORY);
    }
    wf_ctx_free(ctx);
}

/* The argument is a filter pattern for the tests; WEFT_SKIP_TEST is a pattern of tests to leave out. */
int main(int argc, char **argv)
{
    const char *given = getenv("WEFT_SEED");
    seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 1000003u + (uint64_t)getpid();
    print_message("seed %llu (WEFT_SEED repeats it)\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_comparison_in_narrow_types),
        cmocka_unit_test(test_comparison_of_gradients),
        cmocka_unit_test(test_unknown_names_are_refused),
        cmocka_unit_test(test_a_seed_repeats),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_wrong_results_are_found),
        cmocka_unit_test(test_wrong_gradients_are_found),
        cmocka_unit_test(test_memory_running_out),
        cmocka_unit_test(test_all_ops_on_the_cpu),
    };
    const char *skipped = getenv("WEFT_SKIP_TEST");
    if (skipped)
        cmocka_set_skip_filter(skipped);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_chart.c - reads loss curves from logs of any quality, and draws SVG charts that are always
 * well-formed and small.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support.h"
#include "train/chart.h"

/* ---- Histories ---- */

static wf_history parse(wf_ctx *ctx, const char *text)
{
    wf_history h = {.ctx = ctx};
    wt_ok(ctx, wf_history_parse(&h, "log", text, strlen(text)));
    return h;
}

/* Malformed lines are counted and ignored; the other lines are read. */
static void test_garbage(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = parse(
        ctx, "{\"event\":\"start\",\"step\":0}\n"
             "not JSON\n\n[1]\nnull\n\xFF\xFE\n{\"event\":\"step\"}\n{\"event\":7,\"step\":1}\n"
             "{\"event\":\"step\",\"step\":-1,\"loss\":1}\n{\"event\":\"step\",\"step\":1.5}\n"
             "{\"event\":\"step\",\"step\":1,\"steps\":9,\"loss\":4,\"seconds\":2,\"tokens\":8,"
             "\"tokens_per_second\":4,\"rate\":0.5,\"skipped\":3}\n"
             "{\"event\":\"news\",\"step\":1}\n"
             "{\"event\":\"valid\",\"step\":1,\"loss\":3,\"bits_per_byte\":1.5}\n"
             "{\"event\":\"step\",\"step\":2,\"loss\":null,\"seconds\":\"two\"}\n"
             "{\"event\":\"valid\",\"step\":2,\"loss\":3.5}\n"
             "{\"event\":\"step\",\"step\":3,\"lo");
    assert_int_equal(h.ignored, 8);
    assert_int_equal(h.count, 2);
    assert_int_equal(h.valid_count, 2);
    assert_true(h.steps[0].loss == 4 && h.steps[0].seconds == 2 && h.steps[0].tokens == 8);
    assert_true(isnan(h.steps[1].loss) && h.steps[1].seconds == 2);
    assert_int_equal(h.steps[0].skipped, 3);
    assert_ptr_equal(wf_history_best(&h), &h.valids[0]);
    assert_true(h.valids[0].bits_per_byte == 1.5 && isnan(h.valids[1].bits_per_byte));
    assert_true(h.valids[1].tokens == 0 && h.valids[0].tokens == 8);
    assert_true(wf_history_speed(&h) == 4);
    assert_int_equal(wf_ctx_status(ctx), WF_OK); /* bad lines are not an error */
    wf_history_free(&h);

    h = parse(ctx, "");
    assert_int_equal(h.count + h.valid_count + h.ignored, 0);
    assert_null(wf_history_best(&h));
    wf_history_free(&h);
}

/* A step that is logged again replaces the earlier one, as after a resume. */
static void test_back(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = parse(ctx, "{\"event\":\"step\",\"step\":5,\"loss\":1}\n"
                              "{\"event\":\"step\",\"step\":6,\"loss\":2}\n"
                              "{\"event\":\"valid\",\"step\":6,\"loss\":9}\n"
                              "{\"event\":\"step\",\"step\":6,\"loss\":3}\n"
                              "{\"event\":\"step\",\"step\":8,\"loss\":4}\n"
                              "{\"event\":\"valid\",\"step\":8,\"loss\":5}\n"
                              "{\"event\":\"valid\",\"step\":8,\"loss\":6}\n"
                              "{\"event\":\"resume\",\"step\":8}\n");
    assert_int_equal(h.count, 3);
    assert_true(h.steps[1].step == 6 && h.steps[1].loss == 3);
    assert_int_equal(h.valid_count, 1);
    assert_true(h.valids[0].loss == 6);
    wf_history_free(&h);
}

/* A line of more than 1 MiB is ignored. */
static void test_long_line(void **state)
{
    wf_ctx *ctx = *state;
    size_t bytes = (1 << 20) + 100;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    memcpy(text + bytes - 50, "{\"event\":\"step\",\"step\":1}", 25);
    text[bytes - 1] = '\n';
    wf_history h = {.ctx = ctx};
    wt_ok(ctx, wf_history_parse(&h, "log", text, bytes));
    assert_int_equal(h.count, 0);
    assert_int_equal(h.ignored, 1);
    wf_history_free(&h);
    free(text);
}

/* ---- Axes ---- */

static void expect_ticks(wf_axis a, int about, const char *wanted)
{
    double ticks[WF_AXIS_TICKS];
    char got[512] = "", label[WF_AXIS_LABEL];
    size_t len = 0;
    int n = wf_axis_ticks(&a, about, ticks);
    for (int i = 0; i < n; i++)
        wf_text_append(got, sizeof got, &len, "%s%s", i ? ", " : "",
                       wf_axis_label(a.kind, ticks[i], label));
    assert_string_equal(got, wanted);
}

/* Ticks are round numbers with units, for linear and logarithmic axes. */
static void test_axes(void **state)
{
    (void)state;
    expect_ticks((wf_axis){WF_AXIS_VALUE, 1.4, 10.9, false}, 6, "2, 4, 6, 8, 10");
    expect_ticks((wf_axis){WF_AXIS_VALUE, -0.01, 0.05, false}, 6,
                 "-0.01, 0, 0.01, 0.02, 0.03, 0.04, 0.05");
    expect_ticks((wf_axis){WF_AXIS_VALUE, 0, 3.24e-4, false}, 3, "0, 0.0002");
    expect_ticks((wf_axis){WF_AXIS_COUNT, 0, 5000, false}, 8, "0, 1k, 2k, 3k, 4k, 5k");
    expect_ticks((wf_axis){WF_AXIS_COUNT, 1, 3, false}, 8, "1, 2, 3");
    expect_ticks((wf_axis){WF_AXIS_COUNT, 0, 2.5e9, false}, 5, "0, 500M, 1G, 1.5G, 2G, 2.5G");
    expect_ticks((wf_axis){WF_AXIS_TIME, 0, 400, false}, 8,
                 "0 s, 1 min, 2 min, 3 min, 4 min, 5 min, 6 min");
    expect_ticks((wf_axis){WF_AXIS_TIME, 0, 40000, false}, 8, "0 s, 2 h, 4 h, 6 h, 8 h, 10 h");
    expect_ticks((wf_axis){WF_AXIS_TIME, 0, 86400 * 45, false}, 8, "0 s, 10 d, 20 d, 30 d, 40 d");
    expect_ticks((wf_axis){WF_AXIS_VALUE, 0.4, 12, true}, 6, "0.5, 1, 2, 5, 10");
    char label[WF_AXIS_LABEL];
    assert_string_equal(wf_axis_number(3.214159, 5, label), "3.2142");
    assert_string_equal(wf_axis_number(123456789, 5, label), "123460000");
    assert_string_equal(wf_axis_number(NAN, 5, label), "nan");
}

/* Smoothing keeps a constant curve, and lies between the levels of a step. */
static void test_smoothing(void **state)
{
    (void)state;
    wf_smoother a = wf_smoother_make(0.9, 10), b = wf_smoother_make(-1, 5000);
    for (int i = 0; i < 100; i++) {
        assert_true(fabs(wf_smoother_add(&a, 3) - 3) < 1e-12);
        assert_true(fabs(wf_smoother_add(&b, 3) - 3) < 1e-12);
    }
    double y = wf_smoother_add(&a, 4);
    assert_true(fabs(y - (3 + 0.1)) < 1e-4);
    /* Around a line with noise of amplitude 1 the smoothed curve deviates much less, also in short
     * runs. */
    static const int lengths[] = {60, 200, 1000, 30000};
    for (int i = 0; i < 4; i++) {
        wf_smoother s = wf_smoother_make(-1, lengths[i]);
        double strays = 0;
        for (int k = 0; k < lengths[i]; k++) {
            double smooth = wf_smoother_add(&s, 5 + (k % 2 ? 1 : -1) * (k % 3 + 1) / 2.0);
            strays = k >= lengths[i] / 2 ? fmax(strays, fabs(smooth - 5)) : 0;
        }
        assert_true(strays < 0.35);
    }
}

/* ---- Charts ---- */

/* Checks that elements nest, attributes are quoted and unique, and text contains no markup. */
static void check_xml(const char *s, size_t bytes)
{
    const char *end = s + bytes, *open[16];
    size_t length[16];
    int depth = 0;
    assert_memory_equal(s, "<svg ", 5);
    while (s < end) {
        if (*s == '&') {
            assert_memory_equal(s, "&#", 2);
            s += 2 + strspn(s + 2, "0123456789");
            assert_int_equal(*s, ';');
        }
        assert_true((unsigned char)*s >= ' ' || *s == '\n');
        assert_true(*s != '>');
        if (*s != '<') {
            s++;
            continue;
        }
        bool closing = s[1] == '/';
        const char *name = s + 1 + closing;
        size_t n = 0;
        while (isalpha((unsigned char)name[n]))
            n++;
        assert_true(n > 0);
        s = name + n;
        while (*s == ' ') { /* NAME="VALUE" */
            s++;
            assert_true(isalpha((unsigned char)*s));
            s += strcspn(s, "= >");
            assert_memory_equal(s, "=\"", 2);
            size_t value = strcspn(s + 2, "\"<&");
            s += 2 + value;
            assert_int_equal(*s++, '"');
        }
        bool empty = *s == '/';
        s += empty;
        assert_int_equal(*s++, '>');
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_true(length[depth] == n && memcmp(open[depth], name, n) == 0);
        } else if (!empty) {
            assert_true(depth < 16);
            open[depth] = name;
            length[depth++] = n;
        }
    }
    assert_int_equal(depth, 0);
}

/* Draws a chart and checks its size and that it is well-formed. */
static char *draw(wf_ctx *ctx, const wf_chart_run *runs, int n, wf_chart_options o)
{
    char *svg;
    size_t bytes;
    wt_ok(ctx, wf_chart_draw(ctx, runs, n, &o, &svg, &bytes));
    assert_true(bytes < 100000);
    assert_int_equal(strlen(svg), bytes);
    check_xml(svg, bytes);
    return svg;
}

/* Returns a history with a falling, noisy loss. */
static wf_history falling(wf_ctx *ctx, int steps)
{
    wf_history h = {.ctx = ctx};
    for (int i = 1; i <= steps; i++) {
        uint32_t bits = (uint32_t)i * 2654435761u;
        wf_train_step p = {.step = i,
                           .steps = steps,
                           .loss = 2 + 8 * exp(-10.0 * i / steps) + bits / 4294967296.0,
                           .rate = 1e-3 * (1 - (double)i / steps),
                           .seconds = 0.1,
                           .tokens = 1000 * i};
        wt_ok(ctx, wf_history_add_step(&h, &p));
        if (i % (steps / 10 > 0 ? steps / 10 : 1) == 0)
            wt_ok(ctx, wf_history_add_valid(&h, i, p.loss, NAN));
    }
    return h;
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

/* Charts of 0 to 50000 steps are well-formed, and names are escaped. */
static void test_drawing(void **state)
{
    wf_ctx *ctx = *state;
    static const int sizes[] = {0, 1, 2, 30, 50000};
    for (int i = 0; i < 5; i++) {
        wf_history h = falling(ctx, sizes[i]);
        const wf_chart_run run = {"<run> & \"co\" \xFF\x1B \xC3\xA9", &h};
        for (int x = 0; x < 3; x++)
            for (int log_y = 0; log_y < 2; log_y++) {
                char *svg = draw(ctx, &run, 1, (wf_chart_options){(wf_curve_x)x, -1, log_y});
                assert_non_null(
                    strstr(svg, "&#60;run&#62; &#38; &#34;co&#34; \\xff\\x1b \xC3\xA9</text>"));
                assert_non_null(strstr(svg, "prefers-color-scheme:dark"));
                assert_int_equal(strstr(svg, "nothing to draw") != NULL, sizes[i] == 0);
                assert_int_equal(count_of(svg, "<path class=\"smooth\" stroke=\"#3b82f6\" d=\"M"),
                                 sizes[i] == 0 ? 1 : 2); /* the first path is the legend's */
                wf_mem_free(ctx, svg);
            }
        wf_history_free(&h);
    }
}

/* Noise stays inside the chart. The clip paths keep a spike out of the panel of the learning
 * rate. */
static void test_noise(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = {.ctx = ctx};
    double low = INFINITY;
    for (int i = 1; i <= 60; i++) {
        wf_train_step p = {.step = i, .loss = 4 + 60.0 / (i + 9) + (i % 2 ? 0.3 : -0.3), .rate = 1};
        low = p.loss < low ? p.loss : low;
        wt_ok(ctx, wf_history_add_step(&h, &p));
    }
    const wf_chart_run run = {"noise", &h};
    const wf_chart_options o = {WF_X_STEPS, 0.9, false};
    wf_chart_range range;
    wf_chart_find_range(&run, 1, &o, &range);
    assert_true(range.y.low <= low);
    char *svg = draw(ctx, &run, 1, o);
    assert_int_equal(count_of(svg, "zM"), 0); /* each clip path has one panel */
    assert_non_null(strstr(svg, "<g clip-path=\"url(#below)\">\n<path class=\"rate\""));
    wf_mem_free(ctx, svg);
    wf_history_free(&h);
}

/* The largest number of runs still gives a valid chart. */
static void test_many_runs(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = falling(ctx, 3000), few = falling(ctx, 100);
    wf_chart_run runs[WF_CHART_RUNS];
    for (int i = 0; i < WF_CHART_RUNS; i++)
        runs[i] = (wf_chart_run){i % 2 ? "odd" : "even", i % 3 ? &h : &few};
    for (int n = 2; n <= WF_CHART_RUNS; n += 6) {
        char *svg = draw(ctx, runs, n, (wf_chart_options){WF_X_STEPS, 0.9, false});
        assert_non_null(strstr(svg, ">odd</text>"));
        assert_non_null(strstr(svg, "step 100 of 100, loss "));
        wf_mem_free(ctx, svg);
    }
    wf_history_free(&h);
    wf_history_free(&few);
}

/* Values of all magnitudes, NaN and infinity still give a valid chart. */
static void test_odd_numbers(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    static const double odd[] = {0,     -0.0, 1,        1e-320,    1e30,   -1e30,
                                 1e308, NAN,  INFINITY, -INFINITY, 5e-324, 3.4e38};
    for (uint32_t round = 0; round < 200; round++) {
        wf_history h = {.ctx = ctx};
        for (uint32_t i = 0; i < 5; i++) {
            uint64_t pick = (seed + round * 5 + i) * UINT64_C(0x9E3779B97F4A7C15);
            wf_train_step p = {.step = (int64_t)(i + (pick >> 8 & 1) * (UINT64_C(1) << 60)),
                               .tokens = (int64_t)(pick >> 1),
                               .loss = odd[(pick >> 32) % 12],
                               .rate = odd[(pick >> 36) % 12],
                               .seconds = odd[(pick >> 40) % 12]};
            wt_ok(ctx, wf_history_add_step(&h, &p));
            wt_ok(ctx, wf_history_add_valid(&h, p.step, odd[(pick >> 44) % 12], NAN));
        }
        const wf_chart_run run = {"odd", &h};
        for (int x = 0; x < 3; x++)
            wf_mem_free(
                ctx, draw(ctx, &run, 1,
                          (wf_chart_options){(wf_curve_x)x, round % 3 ? -1 : 0.5, round % 2 == 0}));
        wf_history_free(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_garbage),
                                       wt_test(test_back),
                                       wt_test(test_long_line),
                                       cmocka_unit_test(test_axes),
                                       cmocka_unit_test(test_smoothing),
                                       wt_test(test_drawing),
                                       wt_test(test_noise),
                                       wt_test(test_many_runs),
                                       wt_test(test_odd_numbers)};
    return cmocka_run_group_tests_name("chart", tests, NULL, NULL);
}

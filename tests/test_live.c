/* SPDX-License-Identifier: MIT */
/* test_live.c - the live status line of training at several widths, in logs and on a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/figures.c"
#include "cli/live.c"
#include "cli/term.c"

static const wf_train_step sample = {.step = 1200,
                                     .steps = 5000,
                                     .loss = 3.21409,
                                     .norm = 0.8234,
                                     .rate = 3e-4,
                                     .seconds = 0.152,
                                     .tokens_per_second = 12345,
                                     .share = 0.384,
                                     .tokens = 1 << 20,
                                     .skipped = 2,
                                     .memory = 5100000000,
                                     .left = 3723,
                                     .applied = true};

static void expect(const wf_live *l, int columns, const char *wanted)
{
    char got[512];
    wf_live_text(l, columns, got, sizeof got);
    assert_string_equal(got, wanted);
}

/* A narrow terminal drops the least important figures first. */
static void test_text(void **state)
{
    (void)state;
    wf_live l = {.last = sample, .seen = 2, .sum = 3.3012, .weight = 1};
    expect(&l, 0,
           "step 1200/5000 24%, loss 3.2141, mean 3.3012, norm 0.82, lr 3.00e-04, 152 ms, "
           "12.3k tok/s, 38% of peak, 5.1 GB, 2 skipped, 1:02:03 left");
    expect(&l, 140,
           "step 1200/5000 24%  loss 3.2141  mean 3.3012  norm 0.82  lr 3.00e-04  152 ms  "
           "12.3k tok/s  38% of peak  5.1 GB  2 skipped  1:02:03 left");
    expect(&l, 100,
           "step 1200/5000 24%  loss 3.2141  norm 0.82  lr 3.00e-04  12.3k tok/s  2 skipped  "
           "1:02:03 left");
    expect(&l, 79, "step 1200/5000 24%  loss 3.2141  12.3k tok/s  2 skipped  1:02:03 left");
    expect(&l, 60, "step 1200/5000 24%  loss 3.2141  2 skipped  1:02:03 left");
    expect(&l, 50, "step 1200/5000 24%  loss 3.2141  1:02:03 left");
    expect(&l, 40, "step 1200/5000 24%  loss 3.2141");
    expect(&l, 30, "step 1200/5000 24%  loss 3.214");
    expect(&l, 10, "step 1200/");
    expect(&l, 19, "step 1200/5000 24% ");
    l.color = true;
    expect(&l, 40, "step 1200/5000 24%  \x1b[36mloss 3.2141\x1b[0m");
    l.last.applied = false;
    expect(&l, 40, "step 1200/5000 24%  \x1b[31mloss 3.2141\x1b[0m");
}

/* NaN, infinity and huge values still give one line that fits. */
static void test_odd(void **state)
{
    (void)state;
    wf_live l = {.last = {.step = 7, .loss = NAN, .norm = INFINITY, .seconds = 75.25}, .seen = 1};
    expect(&l, 0, "step 7, loss nan, norm inf, lr 0.00e+00, 75.2 s");
    l.last = (wf_train_step){.step = INT64_MAX,
                             .steps = INT64_MAX,
                             .loss = 1e300,
                             .norm = 1e-7,
                             .seconds = 0.0004,
                             .tokens_per_second = 2.5e15,
                             .left = 1e30};
    char got[512];
    wf_live_text(&l, 0, got, sizeof got);
    assert_non_null(
        strstr(got, "norm 1.0e-07, lr 0.00e+00, 0.4 ms, 2500T tok/s, 27777:46:40 left"));
    for (int columns = 1; columns < 200; columns++) {
        wf_live_text(&l, columns, got, sizeof got);
        assert_true(strlen(got) <= (size_t)columns);
    }
}

static void test_figures(void **state)
{
    (void)state;
    static const struct {
        double amount;
        const char *text;
    } cases[] = {{0, "0"},         {999.6, "1000"},  {9999, "9999"},    {10000, "10.0k"},
                 {12345, "12.3k"}, {123456, "123k"}, {999600, "1.00M"}, {1234567, "1.23M"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char got[32];
        size_t len = 0;
        wf_figure_short(got, sizeof got, &len, cases[i].amount);
        assert_string_equal(got, cases[i].text);
    }
}

/* ---- Output ---- */

static FILE *err;
static int saved;

static void catch_stderr(void)
{
    err = tmpfile();
    assert_non_null(err);
    fflush(stderr);
    saved = dup(STDERR_FILENO);
    dup2(fileno(err), STDERR_FILENO);
}

/* Restores stderr and returns what was written to it. */
static void caught(char *text, size_t cap)
{
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(err);
    text[fread(text, 1, cap - 1, err)] = '\0';
    fclose(err);
}

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* In a log: the first steps, every hundredth and the last; no escapes. */
static void test_log(void **state)
{
    (void)state;
    static char text[16384];
    wf_live l;
    wf_train_step p = sample;
    catch_stderr();
    wf_live_begin(&l, 100);
    for (p.step = 1, p.steps = 250; p.step <= 250; p.step++)
        wf_live_step(&l, &p);
    wf_live_say(&l, "checkpoint at %d", 250);
    wf_live_log(&l, WF_LOG_INFO, "no news");
    wf_live_log(&l, WF_LOG_WARN, "some news");
    wf_live_end(&l);
    caught(text, sizeof text);
    assert_int_equal(count_lines(text), 5 + 2 + 1 + 2);
    assert_null(strchr(text, '\x1b'));
    assert_null(strchr(text, '\r'));
    assert_non_null(strstr(text, "\nstep 200/250 80%, loss 3.2141, mean 3.2141, "));
    assert_non_null(strstr(text, "left\ncheckpoint at 250\nweft: some news\n"));

    catch_stderr(); /* a message about a step follows the step's line */
    wf_live_begin(&l, 100);
    for (p.step = 1; p.step <= 61; p.step++)
        wf_live_step(&l, &p);
    wf_live_say(&l, "saved step 61");
    wf_live_end(&l);
    caught(text, sizeof text);
    assert_non_null(strstr(text, "\nstep 61/250 24%, "));
    assert_true(strstr(text, "\nstep 61/250 24%, ") < strstr(text, "\nsaved step 61\n"));
    assert_int_equal(count_lines(text), 5 + 1 + 1);

    catch_stderr(); /* by time: no step is due, and the end prints the last one */
    wf_live_begin(&l, 0);
    for (p.step = 1; p.step <= 20; p.step++)
        wf_live_step(&l, &p);
    wf_live_end(&l);
    wf_live_end(&l);
    caught(text, sizeof text);
    assert_int_equal(count_lines(text), 6);
    assert_non_null(strstr(text, "\nstep 20/250 8%, "));
}

/* The line is redrawn in place; control characters in messages are escaped. */
static void test_terminal(void **state)
{
    (void)state;
    static char text[16384];
    wf_live l;
    wf_train_step p = sample;
    catch_stderr();
    wf_live_begin(&l, 0);
    l.terminal = true;
    wf_live_say(&l, "begins");
    wf_live_step(&l, &p);
    for (int i = 0; i < 100; i++) { /* before it may redraw */
        l.shown = wf_clock_ns();
        wf_live_step(&l, &p);
    }
    wf_live_say(&l, "a\x1b[2Jb\tc\xC2\x9B"
                    "1m\xFF\n\xC3\xA9\x7F");
    wf_live_end(&l);
    caught(text, sizeof text);
    assert_memory_equal(text, "begins\n\rstep 1200/5000 24%  loss 3.2141", 38);
    assert_non_null(strstr(text, "left\x1b[K\na\\x1b[2Jb\tc\\u009b1m\\xff\n\xC3\xA9\\x7f\n"));
    assert_int_equal(count_lines(text), 4);
}

/* A message about a step goes below its line; the next step starts a new line. */
static void test_terminal_order(void **state)
{
    (void)state;
    static char text[16384];
    wf_live l;
    wf_train_step p = sample;
    catch_stderr();
    wf_live_begin(&l, 0);
    l.terminal = true;
    wf_live_step(&l, &p);
    wf_live_say(&l, "checked");
    wf_live_say(&l, "saved");
    p.step = p.steps;
    wf_live_step(&l, &p);
    wf_live_say(&l, "done");
    wf_live_end(&l);
    caught(text, sizeof text);
    assert_non_null(strstr(text, "\x1b[K\nchecked\nsaved\n\rstep 5000/5000 "));
    assert_string_equal(text + strlen(text) - 6, "\ndone\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),     cmocka_unit_test(test_odd),
        cmocka_unit_test(test_figures),  cmocka_unit_test(test_log),
        cmocka_unit_test(test_terminal), cmocka_unit_test(test_terminal_order)};
    return cmocka_run_group_tests_name("live", tests, NULL, NULL);
}

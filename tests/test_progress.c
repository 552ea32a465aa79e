/* SPDX-License-Identifier: MIT */
/* test_progress.c - how progress of long work is drawn, and to which stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/figures.c"
#include "cli/progress.c"
#include "cli/term.c"

static void expect(wf_progress p, double seconds, int columns, const char *wanted)
{
    char got[256];
    wf_progress_text(&p, seconds, columns, got, sizeof got);
    assert_string_equal(got, wanted);
}

static void test_text(void **state)
{
    (void)state;
    wf_progress p = {.label = "quantize", .unit = WF_PROGRESS_BYTES, .total = 4000000000};
    expect(p, 0, 79, "quantize [..............................]   0%");
    p.done = 1000000000;
    expect(p, 0.1, 79, "quantize [#######.......................]  25%");
    expect(p, 10, 79, "quantize [#######.......................]  25%  100 MB/s  0:30 left");
    expect(p, 3000, 79, "quantize [#######.......................]  25%  333 kB/s  2:30:00 left");
    expect(p, 10, 50, "quantize [###..........]  25%  100 MB/s  0:30 left");
    expect(p, 10, 35, "quantize  25%  100 MB/s  0:30 left");
    expect(p, 10, 30, "quan  25%  100 MB/s  0:30 left");
    expect(p, 10, 0, "quantize:  25%, 100 MB/s, 0:30 left");
    p.color = true;
    expect(p, 10, 50, "quantize \x1b[32m[###..........]\x1b[0m  25%  100 MB/s  0:30 left");
    p = (wf_progress){.label = "texts", .unit = WF_PROGRESS_ITEMS, .done = 3, .total = 4};
    expect(p, 2, 0, "texts:  75%, 1.5/s, 0:01 left");
    p.done = 4;
    expect(p, 2, 0, "texts: 100%, 2/s, 0:00 left");
    p.done = 9; /* more than the announced total */
    expect(p, 2, 30, "texts 100%  4.5/s  0:00 left");
    p.total = 0;
    expect(p, 0, 0, "texts: 100%");
    p = (wf_progress){.label = "x", .unit = WF_PROGRESS_BYTES, .done = 1, .total = INT64_MAX};
    expect(p, 1, 0, "x:   0%, 1 B/s, 27777:46:40 left");
    p.done = 1234567;
    expect(p, 1, 0, "x:   0%, 1.2 MB/s, 27777:46:40 left");
}

/* In a log: one line at the end, no escape sequences, nothing on stdout. */
static void test_log(void **state)
{
    (void)state;
    FILE *err = tmpfile(), *out = tmpfile();
    assert_true(err && out);
    fflush(NULL);
    int saved_err = dup(STDERR_FILENO), saved_out = dup(STDOUT_FILENO);
    dup2(fileno(err), STDERR_FILENO);
    dup2(fileno(out), STDOUT_FILENO);
    wf_progress p;
    wf_progress_begin(&p, "convert", WF_PROGRESS_BYTES, 1000);
    for (int i = 0; i <= 1000; i++)
        wf_progress_update(&p, i);
    p.shown -= REPORT_NS;
    wf_progress_update(&p, 500);
    wf_progress_clear(&p);
    wf_progress_update(&p, 1000);
    p.began = wf_clock_ns();
    wf_progress_end(&p);
    fflush(NULL);
    dup2(saved_err, STDERR_FILENO);
    dup2(saved_out, STDOUT_FILENO);
    close(saved_err);
    close(saved_out);
    char text[256];
    rewind(err);
    rewind(out);
    size_t n = fread(text, 1, sizeof text - 1, err);
    text[n] = '\0';
    assert_string_equal(text, "convert:  50%\nconvert: 1 kB in 0.0 s\n");
    assert_int_equal(fread(text, 1, 1, out), 0);
    fclose(err);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_text), cmocka_unit_test(test_log)};
    return cmocka_run_group_tests_name("progress", tests, NULL, NULL);
}

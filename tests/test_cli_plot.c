/* SPDX-License-Identifier: MIT */
/* test_cli_plot.c - runs `weft plot`, and draws its plot for terminals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/path.h"
#include "cli/braille.c"
#include "program.h"
#include "support.h"

static wt_program program;

/* Writes a run folder with a log whose loss falls to `floor`. */
static void make_run(wf_ctx *ctx, const char *name, int steps, double floor)
{
    wf_record *r;
    const char *folder = wt_path(&program.scratch, name);
    wt_ok(ctx, wf_path_make_folder(ctx, folder));
    wt_ok(ctx, wf_record_open(ctx, folder, 0, &r));
    for (int i = 1; i <= steps; i++) {
        wf_train_step p = {.step = i,
                           .steps = steps,
                           .loss = floor + 1.0 / i,
                           .rate = 1e-3,
                           .seconds = 0.5,
                           .tokens_per_second = 20480,
                           .tokens = 10240 * i,
                           .skipped = i / 100,
                           .applied = true};
        wt_ok(ctx, wf_record_step(r, &p));
        if (i % 50 == 0)
            wt_ok(ctx, wf_record_valid(r, i, floor + (i == 100 ? 0.25 : 0.5), 1.5));
    }
    wf_record_close(r);
}

/* Plots two runs with validation losses into one chart, and prints their summary. */
static void test_two_runs(void **state)
{
    make_run(*state, "a", 200, 2);
    make_run(*state, "b", 100, 3);
    wt_program_ok(&program, "plot $D/a $D/b/log.jsonl -o $D/both.svg --x tokens --log-y");
    assert_string_equal(
        program.out,
        "run           steps        loss       valid  best valid     tok/s  skipped\n"
        "a               200      2.0050      2.5000      2.2500     20.5k        2\n"
        "log.jsonl       100      3.0100      3.2500      3.2500     20.5k        1\n");
    wt_program_shell(&program, "cat $D/both.svg");
    wt_program_out(&program, ">a</text>");
    wt_program_out(&program,
                   "step 200 of 200, loss 2.005, validation 2.5, best 2.25 at 100</text>");
    wt_program_out(&program, "</svg>\n");

    wt_program_ok(&program, "plot $D/a/ --json");
    wt_program_out(&program, "\"run\": \"a\"");
    wt_program_out(&program, "\"best_valid\": {\n      \"step\": 100,\n      \"loss\": 2.25,");
    wt_program_out(&program, "\"tokens_per_second\": 20480");
    assert_int_equal(wf_path_look(wt_path(&program.scratch, "plot.svg")), WF_PATH_NONE);

    wt_program_ok(&program, "plot $D/a $D/a"); /* equal names are printed as full paths */
    assert_non_null(strstr(program.out, program.scratch.folder));
}

static void test_mistakes(void **state)
{
    (void)state;
    wt_program_fails(&program, 2, "plot", "give their folders");
    wt_program_fails(&program, 1, "plot $D", "there is no log.jsonl in");
    wt_program_fails(&program, 1, "plot $D/none", "cannot open");
    wt_program_fails(&program, 2, "plot $D/a --x epochs", "steps, tokens or seconds, not 'epochs'");
    wt_program_fails(&program, 2, "plot $D/a --smooth 1", "from 0 to below 1");
    wt_program_fails(&program, 1, "plot $D/a -o $D/none/x.svg", "cannot create");
    wt_program_shell(&program, "printf 'x\\n{}\\n' >$D/bad.jsonl; cp $D/a/log.jsonl $D/some.jsonl; "
                               "echo junk >>$D/some.jsonl");
    wt_program_shell(&program, "$W plot $D/bad.jsonl");
    wt_program_err(&program, "skipped 2 invalid lines of '");
    wt_program_err(&program, "has no steps yet");
    wt_program_ok(&program, "plot $D/some.jsonl");
    wt_program_err(&program, "skipped 1 invalid line of '");
}

/* A straight line from the upper left to the lower right. */
static void test_braille(void **state)
{
    wf_ctx *ctx = *state;
    wf_history h = {.ctx = ctx};
    for (int i = 0; i <= 100; i++)
        wt_ok(ctx, wf_history_add_step(&h, &(wf_train_step){.step = i, .loss = 100 - i}));
    const wf_chart_run run = {"a", &h};
    const wf_chart_options o = {.smooth = 0};
    wf_writer w = {.ctx = ctx};
    char *text;
    wf_braille_draw(&w, &run, 1, &o, LEFT + 20, 6, false);
    wt_ok(ctx, wf_writer_take(&w, &text, NULL));
    assert_string_equal(text, "    100 ┤⠢⢄⡀                 \n"
                              "        │  ⠈⠑⠤⣀              \n"
                              "     50 ┤      ⠉⠒⠤⣀          \n"
                              "        │          ⠉⠒⠤⡀      \n"
                              "        │             ⠈⠑⠢⢄⡀  \n"
                              "      0 ┤                 ⠈⠢⠤\n"
                              "        └────────────────────\n"
                              "         0       50       100\n");
    wf_mem_free(ctx, text);

    wf_braille_draw(&w, &run, 1, &o, 10, 6, false); /* too small to draw */
    assert_int_equal(w.len, 0);
    wf_braille_draw(&w, &run, 1, &o, 500, 6, true);
    wt_ok(ctx, wf_writer_take(&w, &text, NULL));
    assert_non_null(strstr(text, "\x1b[34m"));
    wf_mem_free(ctx, text);
    wf_history_free(&h);
}

static int setup(void **state)
{
    (void)state;
    return wt_program_make(&program);
}

static int teardown(void **state)
{
    (void)state;
    wt_scratch_remove(&program.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_two_runs), wt_test(test_mistakes),
                                       wt_test(test_braille)};
    return cmocka_run_group_tests_name("cli_plot", tests, setup, teardown);
}

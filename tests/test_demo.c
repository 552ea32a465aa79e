/* SPDX-License-Identifier: MIT */
/*
 * test_demo.c - runs the demo, examples/tiny_trainer. Its loss curves in f32, bf16, and f16 with a
 * loss scale must stay together, and it must print the figures that docs/demo.txt records.
 *
 * WEFT_EXAMPLES names the folder of the program; without it the tests are skipped.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS 24
#define LINES 8

/* Largest relative distance between two curves: a few roundoffs of bf16, 2^-9. It does not grow
 * over STEPS steps. */
#define APART (4 * 0x1p-9)

/* Runs the demo and returns the number of losses it prints. */
static int losses_of(const char *folder, const char *type, double *loss)
{
    char command[1024], line[256];
    int n = 0;
    snprintf(command, sizeof command, "'%s/tiny_trainer' include/weft.h %d %s", folder, STEPS,
             type);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    while (fgets(line, sizeof line, out)) {
        const char *at = strstr(line, "  loss ");
        if (strncmp(line, "step ", 5) == 0 && at && n < LINES)
            loss[n++] = atof(at + 7);
    }
    assert_int_equal(pclose(out), 0);
    return n;
}

/* Fails when a narrow type or the loss scale changes the training. */
static void test_precisions_stay_together(void **state)
{
    const char *folder = getenv("WEFT_EXAMPLES"), *types[] = {"f32", "bf16", "f16"};
    double loss[3][LINES];
    int n[3];
    (void)state;
    if (!folder || !*folder) {
        print_message("skipped: the demo is tried in the release build only\n");
        skip();
    }
    for (int t = 0; t < 3; t++) {
        n[t] = losses_of(folder, types[t], loss[t]);
        print_message("%-4s:", types[t]);
        for (int i = 0; i < n[t]; i++)
            print_message(" %.3f", loss[t][i]);
        print_message("\n");
    }
    assert_true(n[0] >= 3 && n[1] == n[0] && n[2] == n[0]);
    assert_true(loss[0][n[0] - 1] < 0.8 * loss[0][0]);
    for (int t = 1; t < 3; t++)
        for (int i = 0; i < n[0]; i++)
            assert_true(fabs(loss[t][i] - loss[0][i]) <= APART * loss[0][i] + 0.001);
}

typedef struct {
    long parameters;
    double states, step, loss; /* MB, MB, nats at step 1 */
} figures;

/* Reads the recorded or printed figures. */
static figures figures_of(FILE *in)
{
    char line[256];
    figures f = {0};
    while (fgets(line, sizeof line, in)) {
        if (strstr(line, " parameters, "))
            f.parameters = atol(line);
        sscanf(line, "memory: %lf MB of weights and moments, %lf MB", &f.states, &f.step);
        if (f.loss == 0)
            sscanf(line, "step 1/%*d loss %lf", &f.loss);
    }
    return f;
}

/* The workspace, and thus the memory of a step, depends on the instruction set; the first loss
 * depends on the text. */
static void test_recorded_figures(void **state)
{
    const char *folder = getenv("WEFT_EXAMPLES");
    char command[1024];
    (void)state;
    if (!folder || !*folder)
        skip();
    FILE *file = fopen("docs/demo.txt", "r");
    assert_non_null(file);
    figures recorded = figures_of(file);
    fclose(file);
    snprintf(command, sizeof command, "'%s/tiny_trainer' include/weft.h 1", folder);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    figures today = figures_of(out);
    assert_int_equal(pclose(out), 0);
    if (recorded.parameters != today.parameters || fabs(recorded.states - today.states) > 0.05 ||
        fabs(recorded.step - today.step) > 0.1 * today.step ||
        fabs(recorded.loss - today.loss) > 0.1 * today.loss)
        fail_msg(
            "docs/demo.txt is stale: %ld parameters, %.1f and %.1f MB, loss %.3f there, but %ld, %.1f, %.1f and "
            "%.3f today; run \"make demo-figures\"",
            recorded.parameters, recorded.states, recorded.step, recorded.loss, today.parameters,
            today.states, today.step, today.loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_precisions_stay_together),
                                       cmocka_unit_test(test_recorded_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_demo.c: the demo itself, examples/tiny_trainer, trained in f32, in bf16, and in f16 with a loss
 * scale. The three loss curves must stay together.
 *
 * WEFT_EXAMPLES names the folder of the program; without it nothing is done.
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

/* A step of training moves the loss by a few roundoffs of the compute type, relative; bf16's is 2^-9,
 * and over so few steps they have no time to grow. */
#define APART (4 * 0x1p-9)

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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_precisions_stay_together)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

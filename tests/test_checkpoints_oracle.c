/* SPDX-License-Identifier: MIT */
/*
 * test_checkpoints_oracle.c - compares random checkpoints, renamed keys and damaged files with an
 * independent reader in NumPy (tests/oracle/checkpoints.py). Skipped when Python has no NumPy.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "support.h"

#define SECONDS 8

static void test_oracle(void **state)
{
    (void)state;
    const char *python = getenv("WEFT_TEST_PYTHON"), *tool = getenv("WEFT_TEST_LOGITS");
    const char *seed = getenv("WEFT_SEED");
    if (!tool) {
        print_message("skipped: WEFT_TEST_LOGITS names no program\n");
        return;
    }
    char command[2000];
    FILE *there = python ? fopen(python, "rb") : NULL;
    if (there)
        fclose(there);
    snprintf(command, sizeof command,
             "'%s' -B tests/oracle/checkpoints.py '%s' --seconds %d --count %d%s%s",
             there ? python : "python3", tool, SECONDS, wt_cases(14), seed ? " --seed " : "",
             seed ? seed : "");
    int status = system(command);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: there is no Python with the package numpy\n");
        return;
    }
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_oracle)};
    return cmocka_run_group_tests_name("checkpoints_oracle", tests, NULL, NULL);
}

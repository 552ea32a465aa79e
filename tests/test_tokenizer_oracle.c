/* SPDX-License-Identifier: MIT */
/* test_tokenizer_oracle.c - random texts against the Python package tokenizers; skipped without the
 * package. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "support.h"

#include "base/sanitize.h"

#if WF_ADDRESS_SANITIZER
#define TEXTS 200
#define TOKENIZERS 20
#else
#define TEXTS 2000
#define TOKENIZERS 100
#endif

static void run_oracle(const char *script, int count)
{
    const char *python = getenv("WEFT_TEST_PYTHON"), *tool = getenv("WEFT_TEST_TOKENIZE");
    if (!tool) {
        print_message("skipped: WEFT_TEST_TOKENIZE names no program\n");
        return;
    }
    char command[2000];
    FILE *there = python ? fopen(python, "rb") : NULL;
    if (there)
        fclose(there);
    snprintf(command, sizeof command, "'%s' tests/oracle/%s '%s' %d %s", there ? python : "python3",
             script, tool, count, getenv("WEFT_SEED") ? getenv("WEFT_SEED") : "");
    int status = system(command);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        print_message("skipped: there is no Python with the package tokenizers\n");
        return;
    }
    assert_int_equal(status, 0);
}

static void test_texts(void **state)
{
    (void)state;
    run_oracle("tokenizers.py", wt_cases(TEXTS));
}

static void test_added_tokens(void **state)
{
    (void)state;
    run_oracle("added_tokens.py", TOKENIZERS);
}

static void test_pieces(void **state)
{
    (void)state;
    run_oracle("pieces.py", TOKENIZERS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_added_tokens),
                                       cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests_name("tokenizer_oracle", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_readme.c - README.md is short, its C block is the marked part of examples/classifier.c, and
 * its demo transcript is docs/demo.txt. examples/generate.c and classifier.c do what their file
 * comments promise, and fail with one sentence.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program.h"

#define LLAMA "tests/fixtures/models/llama"
#define BEGIN "/* README begins */\n"
#define END "/* README ends */\n"
#define MAX_WORDS 900

static wt_program p;

static char *read_text(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* Returns the text between two markers, cut in place. */
static char *between(char *text, const char *from, const char *to)
{
    char *begin = strstr(text, from);
    assert_non_null(begin);
    begin += strlen(from);
    char *end = strstr(begin, to);
    assert_non_null(end);
    *end = '\0';
    return begin;
}

static void test_length(void **state)
{
    char *readme = read_text("README.md");
    int words = 0;
    (void)state;
    for (char *word = strtok(readme, " \t\n"); word; word = strtok(NULL, " \t\n"))
        words++;
    print_message("README.md: %d words\n", words);
    assert_true(words <= MAX_WORDS);
    free(readme);
}

/* The README's only C block is part of an example, so it is compiled. */
static void test_c_block(void **state)
{
    char *readme = read_text("README.md"), *example = read_text("examples/classifier.c");
    (void)state;
    char *block = strstr(readme, "```c\n");
    assert_non_null(block);
    assert_null(strstr(block + 1, "```c\n"));
    assert_string_equal(between(block, "```c\n", "```"), between(example, BEGIN, END));
    free(readme);
    free(example);
}

static void test_demo_block(void **state)
{
    char *readme = read_text("README.md"), *recorded = read_text("docs/demo.txt");
    (void)state;
    char *block = strstr(readme, "<!-- docs/demo.txt");
    assert_non_null(block);
    if (strcmp(between(block, "```text\n", "```"), recorded) != 0)
        fail_msg("README.md does not show docs/demo.txt; run \"make demo-figures\"");
    free(readme);
    free(recorded);
}

/* Skips the test when the examples are not built. */
static int run_example(const char *name, const char *args)
{
    char command[512];
    const char *folder = getenv("WEFT_TEST_EXAMPLES");
    if (!folder || !*folder) {
        print_message("skipped: the examples are not built\n");
        skip();
    }
    snprintf(command, sizeof command, "\"$WEFT_TEST_EXAMPLES/%s\" %s", name, args);
    return wt_program_shell(&p, command);
}

static int run(const char *args)
{
    return run_example("generate", args);
}

/* Same settings and same text as `weft chat` with seed 0. */
static void test_answer(void **state)
{
    static char wanted[sizeof p.out];
    (void)state;
    assert_int_equal(run(LLAMA " 'what is the weft?'"), 0);
    assert_string_equal(p.err, "");
    assert_true(strlen(p.out) > 20);
    memcpy(wanted, p.out, sizeof wanted);
    assert_int_equal(run(LLAMA " 'what is the weft?'"), 0);
    assert_string_equal(p.out, wanted);
    wt_program_ok(&p, "chat " LLAMA " -p 'what is the weft?' -st -n 200 -s 0 -q");
    assert_string_equal(p.out, wanted);
}

static void fails(const char *args, int code, const char *sentence)
{
    int got = run(args);
    const char *end = strchr(p.err, '\n');
    if (got != code || *p.out || !strstr(p.err, sentence) || !end || end[1])
        fail_msg("generate %s: exit status %d, stdout '%s', stderr '%s'; wanted %d and '%s'", args,
                 got, p.out, p.err, code, sentence);
}

static void test_failures(void **state)
{
    (void)state;
    fails("", 2, "usage: generate MODEL QUESTION");
    fails("one", 2, "usage: ");
    fails("one two three", 2, "usage: ");
    fails("\"$D/missing.gguf\" x", 1, "generate: cannot open '");
    fails("README.md x", 1, "generate: ");
    fails("tests x", 1, "generate: ");
    assert_int_equal(wt_program_shell(&p, "mkdir \"$D/bare\" && cp " LLAMA "/*.json " LLAMA
                                          "/*.safetensors \"$D/bare\""),
                     0);
    fails("\"$D/bare\" x", 1, "generate: bare has no chat template");
    assert_int_equal(run(LLAMA " x >/dev/full"), 1);
}

static void test_classifier(void **state)
{
    double first, last;
    int steps;
    (void)state;
    assert_int_equal(run_example("classifier", ""), 0);
    assert_int_equal(sscanf(p.out, "loss %lf, after %d steps %lf", &first, &steps, &last), 3);
    assert_true(first > 2.29 && first < 2.31); /* ln(10): ten classes, nothing learned */
    assert_true(last < 0.1);
    assert_int_equal(run_example("classifier", ">/dev/full"), 1);
}

static int set_up(void **state)
{
    (void)state;
    return wt_program_make(&p);
}

static int tear_down(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_length),     cmocka_unit_test(test_c_block),
        cmocka_unit_test(test_demo_block), cmocka_unit_test(test_answer),
        cmocka_unit_test(test_failures),   cmocka_unit_test(test_classifier),
    };
    return cmocka_run_group_tests_name("readme", tests, set_up, tear_down);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_readme.c - examples/generate.c and classifier.c do what their first lines say, fail with one sentence, and are
 * the programs that the README shows.
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

/* The part of an example that the README shows, with a NUL behind it; the file is in *text. */
static char *marked_part(const char *path, char **text)
{
    *text = read_text(path);
    char *from = strstr(*text, BEGIN), *to = strstr(*text, END);
    assert_true(from && to && from < to);
    *to = '\0';
    return from + strlen(BEGIN);
}

/* Every C block of the README is a part of an example, so none goes uncompiled. */
static void test_readme(void **state)
{
    static const char *const examples[] = {"examples/generate.c", "examples/classifier.c"};
    enum { N = sizeof examples / sizeof *examples };
    char *readme = read_text("README.md"), *end;
    int blocks = 0;
    (void)state;
    for (char *block = readme; (block = strstr(block, "```c\n")) != NULL; block = end + 3) {
        block += strlen("```c\n");
        end = strstr(block, "```");
        assert_non_null(end);
        *end = '\0';
        assert_true(blocks < N);
        char *text, *part = marked_part(examples[blocks], &text);
        if (strcmp(block, part) != 0)
            fail_msg("C block %d of README.md differs from the marked part of %s:\n%s", blocks + 1,
                     examples[blocks], block);
        blocks++;
        free(text);
    }
    assert_int_equal(blocks, N);
    free(readme);
}

/* Skips where the examples are not built. */
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

/* The same settings and the same text as `weft chat`, whose seeds begin with the given one. */
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
    assert_true(first > 2.29 && first < 2.31); /* the logarithm of ten classes */
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
        cmocka_unit_test(test_readme),
        cmocka_unit_test(test_answer),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_classifier),
    };
    return cmocka_run_group_tests_name("readme", tests, set_up, tear_down);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_isa.c - WEFT_CPU selects the instruction set of the kernels. A set that does not exist or
 * that the machine lacks is refused with a message, and all sets generate the same text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

#define MODELS "tests/fixtures/models"

static wt_program p;

/* The sets of this build, best first, as the program lists them. */
static char names[8][16];
static bool present[8];
static int count;

static int set_up(void **state)
{
    (void)state;
    if (wt_program_make(&p) != 0)
        return -1;
    setenv("WEFT_CPU", "abacus", 1);
    wt_program_fails(&p, 2, "selftest --op neg",
                     "weft selftest: WEFT_CPU=abacus is unknown; use one of: ");
    for (char *name = strtok(strstr(p.err, "of: ") + 4, ", \n"); name; name = strtok(NULL, ", \n"))
        snprintf(names[count++], sizeof *names, "%s", name);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unsetenv("WEFT_CPU");
    wt_scratch_remove(&p.scratch);
    return 0;
}

/* Returns the kernels that "weft devices" prints for the cpu, or why it cannot be used. */
static void describe(const char *set, char *to, size_t size)
{
    char number[16];
    setenv("WEFT_CPU", set, 1);
    wt_program_ok(&p, "devices");
    const char *line = strstr(p.out, "\ncpu ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "\ncpu %15s", number), 1);
    line = strstr(line, number) + strlen(number);
    line += strspn(line, " ");
    snprintf(to, size, "%.*s", (int)strcspn(line, ",\n"), line);
}

/* WEFT_CPU selects each set that the machine has and refuses the others. */
static void test_each_set_is_used_or_refused(void **state)
{
    (void)state;
    static char titles[8][128];
    char want[256];
    for (int i = 0; i < count; i++) {
        describe(names[i], titles[i], sizeof *titles);
        snprintf(want, sizeof want,
                 "WEFT_CPU=%s is not available on this machine; use one of: ", names[i]);
        present[i] = !strstr(titles[i], "not available");
        print_message("%s: %s\n", names[i], titles[i]);
        if (!present[i]) {
            wt_program_out(&p, want);
            wt_program_fails(&p, 2, "selftest --op neg", want);
            continue;
        }
        wt_program_ok(&p, "selftest --op neg");
        snprintf(want, sizeof want, "selftest: cpu (%.100s, ", titles[i]);
        wt_program_out(&p, want);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(titles[k], titles[i]);
    }
    assert_string_equal(names[count - 1], "reference");
    assert_true(present[count - 1]);
}

static void test_the_best_is_the_default(void **state)
{
    (void)state;
    char best[128], title[128];
    int first = 0;
    while (!present[first])
        first++;
    describe(names[first], best, sizeof best);
    describe("", title, sizeof title);
    assert_string_equal(title, best);
    unsetenv("WEFT_CPU");
    wt_program_ok(&p, "devices");
    wt_program_out(&p, best);
}

static void test_an_unknown_set_is_refused(void **state)
{
    (void)state;
    setenv("WEFT_CPU", "AVX2", 1); /* names are lower case */
    wt_program_fails(&p, 2, "run " MODELS "/llama -p the -n 1",
                     "WEFT_CPU=AVX2 is unknown; use one of: ");
    wt_program_ok(&p, "devices");
    wt_program_out(&p, "not available: WEFT_CPU=AVX2 is unknown; use one of: ");
}

/* Rounding may differ between sets, but greedy text must not. */
static void test_all_sets_write_the_same_text(void **state)
{
    (void)state;
    static const char *const models[] = {MODELS "/gpt2", MODELS "/qwen3", "\"$D/q4_0.gguf\"",
                                         "\"$D/q8_0.gguf\""};
    static char want[sizeof p.out];
    setenv("WEFT_CPU", "reference", 1);
    wt_program_ok(&p, "quantize " MODELS "/llama \"$D/q4_0.gguf\" q4_0");
    wt_program_ok(&p, "quantize " MODELS "/llama \"$D/q8_0.gguf\" q8_0");
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int i = count - 1; i >= 0; i--) {
            char args[256];
            snprintf(args, sizeof args, "run %s -p 'the weft' -n 20 --temp 0 --ignore-eos",
                     models[m]);
            setenv("WEFT_CPU", names[i], 1);
            if (!present[i])
                continue;
            wt_program_ok(&p, args);
            if (i == count - 1)
                memcpy(want, p.out, sizeof want);
            assert_string_equal(p.out, want);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_set_is_used_or_refused),
        cmocka_unit_test(test_the_best_is_the_default),
        cmocka_unit_test(test_an_unknown_set_is_refused),
        cmocka_unit_test(test_all_sets_write_the_same_text),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

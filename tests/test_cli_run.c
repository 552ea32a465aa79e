/* SPDX-License-Identifier: MIT */
/* test_cli_run.c - sources of the prompt of `weft run`, and the order of its samplers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "program.h"

#define LLAMA "tests/fixtures/models/llama"
#define GREEDY " -n 12 --temp 0 -q"

static wt_program p;
static char kept[sizeof p.out];

/* Runs shell commands and expects the output kept before. */
static void same(const char *commands)
{
    int code = wt_program_shell(&p, commands);
    if (code != 0 || strcmp(p.out, kept) != 0)
        fail_msg("%s: exit status %d, printed '%s' and said '%s'; wanted '%s'", commands, code,
                 p.out, p.err, kept);
}

/* All ways to pass a prompt give the same text. */
static void test_prompts(void **state)
{
    (void)state;
    wt_program_ok(&p, "run " LLAMA " -p 'the weft\\n'" GREEDY);
    memcpy(kept, p.out, sizeof kept);
    assert_true(strlen(kept) > 0);
    same("\"$W\" run " LLAMA " 'the weft\\n'" GREEDY);
    same("\"$W\" run " GREEDY " " LLAMA " 'the weft\\n'");
    same("\"$W\" run -m " LLAMA " 'the weft\\n'" GREEDY);
    same("\"$W\" run -m " LLAMA " " LLAMA " 'the weft\\n'" GREEDY);
    same("\"$W\" run " GREEDY " -- " LLAMA " 'the weft\\n'");
    same("printf 'the weft\\n\\n' | \"$W\" run " LLAMA GREEDY);
    same("printf 'the weft\\n\\n' | \"$W\" run " LLAMA " -" GREEDY);
    same("printf 'the weft\\n\\n' >\"$D/text\" && \"$W\" run " LLAMA GREEDY " <\"$D/text\"");
    /* stdin is not read when there is a prompt */
    same("echo other | \"$W\" run " LLAMA " 'the weft\\n'" GREEDY);
    same("echo other | \"$W\" run " LLAMA " -p 'the weft\\n'" GREEDY);
    /* backslashes in a file are literal; in an argument they are escapes without --no-escape */
    wt_program_ok(&p, "run " LLAMA " --no-escape 'a\\tb'" GREEDY);
    memcpy(kept, p.out, sizeof kept);
    same("printf '%s' 'a\\tb' | \"$W\" run " LLAMA GREEDY);
}

/* A missing prompt, and two prompts or models, are refused. */
static void test_conflicts(void **state)
{
    (void)state;
    static const char ways[] = "give it as the second argument or with -p, in a file with -f, or "
                               "pipe it to";
    wt_program_fails(&p, 2, "run " LLAMA, "weft run: the prompt is missing: stdin is empty; ");
    wt_program_err(&p, ways);
    wt_program_fails(&p, 2, "run " LLAMA " <&-", "weft run: the prompt is missing");
    wt_program_fails(&p, 2, "run " LLAMA " x -p y",
                     "the prompt is given as an argument and with -p; give one");
    wt_program_fails(&p, 2, "run " LLAMA " x -f README.md", "as an argument and with -f; give one");
    wt_program_fails(&p, 2, "run -m " LLAMA " x -p y", "as an argument and with -p; give one");
    wt_program_fails(&p, 2, "run " LLAMA " Once upon a time",
                     "'upon' is one argument too many; usage: weft run MODEL [PROMPT]");
    wt_program_fails(&p, 2, "run -m " LLAMA " README.md", "are two models");
    wt_program_fails(&p, 2, "run -m " LLAMA " README.md x", "are two models");
    assert_int_equal(wt_program_shell(&p, "echo | \"$W\" run " LLAMA), 2);
    wt_program_err(&p, "stdin is empty");
    /* the program does not wait for a typed prompt; `script` provides a terminal */
    int code = wt_program_shell(&p, "command -v script >/dev/null || exit 77; script -qec "
                                    "\"'$W' run " LLAMA "\" /dev/null | cat");
    if (code == 77)
        print_message("no script(1): stdin as a terminal is not tested\n");
    else
        wt_program_out(&p, "the prompt is missing; give it");
}

/* The default order of samplers equals the listed one; another order changes the text. */
static void test_samplers(void **state)
{
    (void)state;
    wt_program_ok(&p, "run " LLAMA " the -n 30 -s 3 --temp 2 --top-p 0.7 --min-p 0 -q");
    memcpy(kept, p.out, sizeof kept);
    same("\"$W\" run " LLAMA " the -n 30 -s 3 --temp 2 --top-p 0.7 --min-p 0 -q --samplers "
         "'penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature'");
    wt_program_ok(&p, "run " LLAMA " the -n 30 -s 3 --temp 2 --top-p 0.7 --min-p 0 -q "
                      "--samplers 'temperature;top_k;top_p'");
    assert_string_not_equal(p.out, kept);
    /* without its sampler, the temperature has no effect */
    wt_program_ok(&p, "run " LLAMA " the -n 30 -s 3 --temp 1 --top-k 0 --top-p 0.5 --min-p 0 -q");
    memcpy(kept, p.out, sizeof kept);
    same("\"$W\" run " LLAMA " the -n 30 -s 3 --temp 9 --top-p 0.5 -q --samplers top_p");
    wt_program_fails(&p, 2, "run " LLAMA " the --samplers 'top_k;mirostat'",
                     "unknown sampler 'mirostat'; use penalties;top_k;");
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
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_samplers),
    };
    return cmocka_run_group_tests_name("cli_run", tests, set_up, tear_down);
}

/* SPDX-License-Identifier: MIT */
/* test_cli_lora.c - --lora of run, eval, bench and convert. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

#define M "tests/fixtures/models/"
#define L "tests/fixtures/lora/"
#define RUN " -p the -n 16 --temp 0 --ignore-eos"

static wt_program p;

static int setup(void **state)
{
    (void)state;
    return wt_program_make(&p);
}

static int teardown(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

/* Runs a command and keeps its stdout. */
static void keep(char out[4096], const char *args)
{
    wt_program_ok(&p, args);
    snprintf(out, 4096, "%.4000s", p.out);
    assert_true(out[0]);
}

/* Base plus adapter gives the output of the merged model, and not that of the base. */
static void merged_answers_equally(void **state)
{
    char base[4096], with[4096], merged[4096];
    (void)state;
    keep(base, "run " M "llama" RUN);
    keep(with, "run " M "llama --lora " L "llama" RUN);
    wt_program_err(&p, "adapter " L "llama, scale 1");
    wt_program_ok(&p, "convert " M "llama $D/merged --lora " L "llama --type f32");
    keep(merged, "run $D/merged" RUN);
    assert_string_not_equal(base, with);
    assert_string_equal(with, merged);
    wt_program_ok(&p, "convert " M "llama $D/merged.gguf --lora " L "llama:0.5 --lora=" L
                      "llama:5e-1 --type f32");
    keep(merged, "run $D/merged.gguf" RUN);
    assert_string_equal(with, merged);
    keep(merged, "run " M "llama --lora " L "llama:1 --lora " L "llama:-1" RUN);
    assert_string_equal(base, merged);
}

/* eval, bench and run apply the adapter; a path may contain a colon. */
static void other_commands(void **state)
{
    char base[4096], with[4096];
    (void)state;
    wt_program_shell(&p, "echo the weft runs through all the warp threads > $D/text");
    keep(base, "eval " M "gpt2 -f $D/text");
    keep(with, "eval " M "gpt2 -f $D/text --lora " L "gpt2");
    assert_string_not_equal(base, with);
    wt_program_ok(&p, "bench " M "gpt2 --lora " L "gpt2 --n-prompt 4 -n 4 --repetitions 1");
    wt_program_shell(&p, "cp -r " L "gpt2 $D/a:1");
    wt_program_ok(&p, "run " M "gpt2 --lora $D/a:1" RUN);
    wt_program_err(&p, "a:1, scale 1");
}

/* Wrong scales, missing folders and adapters of other models are refused; no file is written. */
static void mistakes(void **state)
{
    (void)state;
    wt_program_fails(&p, 2, "run " M "llama --lora " L "llama:x -p a", "--lora must be a folder");
    wt_program_fails(&p, 2, "run " M "llama --lora " L "llama:0 -p a", "--lora must be a folder");
    wt_program_fails(&p, 2, "run " M "llama --lora " L "llama:1e999 -p a",
                     "--lora must be a folder");
    wt_program_fails(&p, 1, "run " M "llama -q --lora nowhere -p a", "does not exist");
    wt_program_fails(&p, 1, "run " M "llama -q --lora " M "llama -p a",
                     "adapter_config.json is missing");
    wt_program_fails(&p, 1, "run " M "gpt2 -q --lora " L "llama -p a", "does not fit the model");
    wt_program_ok(&p, "convert " M "llama $D/q.gguf --type q8_0");
    wt_program_fails(&p, 2, "convert $D/q.gguf $D/m.gguf --lora " L "llama", "--type f16");
    wt_program_fails(&p, 1, "convert " M "llama $D/m.gguf --lora " L "gpt2", "does not fit");
    assert_int_not_equal(wt_program_shell(&p, "test -e $D/m.gguf"), 0);
    wt_program_ok(&p, "convert $D/q.gguf $D/m.gguf --lora " L "llama --type q8_0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merged_answers_equally),
                                       cmocka_unit_test(other_commands),
                                       cmocka_unit_test(mistakes)};
    return cmocka_run_group_tests_name("cli_lora", tests, setup, teardown);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_cli_words.c - messages of the program: common mistakes of a new user get a message about
 * that mistake, and counts, units and shares are formatted for people.
 */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

#define LLAMA "tests/fixtures/models/llama"

static wt_program p;

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *args, *sentence;
    } cases[] = {
        {2, "generate m.gguf", "did you mean 'weft run'?"},
        {2, "perplexity m.gguf", "did you mean 'weft eval'?"},
        {2, "run " LLAMA " -p a --ctx 3", "unknown flag '--ctx'; did you mean '--ctx-size'?"},
        {2, "run " LLAMA " -p a -d gpu", "unknown device 'gpu'; this build has: cpu, cuda"},
        {1, "train --data nodata --out $D/o --depth 1",
         "the file or folder 'nodata' does not exist"},
        {2, "train --model x", "to train an existing model, use 'weft finetune MODEL'"},
        {1, "run Hub/Model -p a", "Weft does not download models"},
        {2, "info " LLAMA " --temp 1",
         "'weft info' has no flag '--temp'; these commands have it: run, chat"},
        {2, "info " LLAMA " --lora x",
         "'weft info' has no flag '--lora'; these commands have it: "},
        {2, "train -p Hello", "'-p' has another meaning in other commands"},
        {2, "tokenize --train README.md -o $D --vocab 0",
         "--vocab must be a whole number from 257 to"},
        {2, "train --floor 7", "--floor must be a number from 0 to 1, not '7'"},
        {1, "run none.gguf </dev/null", "cannot open 'none.gguf': it does not exist"},
        {2, "run " LLAMA " a -n", "-n needs a value: -n N"},
        {2, "train --rate 0", "--rate must be a number above 0 up to 1000, not '0'"},
        {2, "plan --train --depth 1 --preset tiny", "the model's shape is given more than once"},
        {2, "train d", "usage: weft train --data DATA --out RUN"},
        {2, "chat " LLAMA " hi", "usage: weft chat MODEL [-p QUESTION]"},
        {2, "plan tiny --rate 3", "--rate applies to training; add --train to plan a run"},
        {2, "plan tiny --vocab 300", "--vocab applies to training; add --train to plan a run"},
        {2, "plan --vocab 300", "--vocab applies to training; add --train to plan a run"},
        {2, "plan --train --depth 1 --svg $D/x.svg", "--svg applies to examples and graphs"},
        {2, "plan " LLAMA " --train -c 9", "--ctx-size applies to running a model"},
        {2, "plan --json", "--json needs a MODEL, EXAMPLE or GRAPH to plan"},
        {2, "tokenize --train README.md -o $D/t.gguf --ids", "--ids has no effect with --train"},
        {2, "tokenize " LLAMA " --decode --no-special -p 5",
         "--no-special has no effect with --decode"},
        {2, "selftest --list --op neg", "--op has no effect with --list; leave it out"},
        {2, "info " LLAMA " --template --tensors", "--tensors and --template exclude each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wt_program_fails(&p, cases[i].code, cases[i].args, cases[i].sentence);
}

/* Expects no plural after 1 in either stream. */
static void check_singular(void)
{
    regex_t plural;
    const char *const texts[] = {p.out, p.err};
    assert_int_equal(
        regcomp(
            &plural,
            "(^|[^0-9.:x/])1( x 1)* (tokens|bytes|documents|conversations|lines|"
            "layers|heads|steps|batches|windows|endings|shards|files|records|"
            "messages|items|cases|ops|nodes|kernels|parameters|threads|checks|failures)([^a-z]|$)",
            REG_EXTENDED | REG_NEWLINE),
        0);
    for (int i = 0; i < 2; i++) {
        regmatch_t at;
        if (regexec(&plural, texts[i], 1, &at, 0) == 0)
            fail_msg("plural after 1: %.*s", (int)(at.rm_eo - at.rm_so), texts[i] + at.rm_so);
    }
    regfree(&plural);
}

/* Inputs with one of each thing to count. */
static void test_singulars(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "prepare \"$D/one.jsonl\" --tokenizer " LLAMA " --valid 0 -o \"$D/one\"",
        "train --data \"$D/text\" --out \"$D/run\" --depth 1 --steps 1 -b 1 -l 1 -t 1",
        "info \"$D/run/model.gguf\"",
        "eval " LLAMA " -f \"$D/text\" --limit 2 -c 2 -v -t 1",
        "eval " LLAMA " -v --choices \"$D/choices\" -t 1",
        "run " LLAMA " -p a -n 1 --repeat-penalty 2 --repeat-last-n 1 -v -t 1",
        "plan tiny -b 1 -l 1",
        "plan --train --depth 1 -b 1 -l 1",
        "selftest --op neg --sample 1 --seed 1 -v",
    };
    assert_int_equal(wt_program_shell(&p, "seq 1 400 >$D/text; printf '%s\\n' '{\"text\":\"a\"}' "
                                          "'{\"text\":\"\"}' >$D/one.jsonl; echo '{\"question\":"
                                          "\"a\",\"choices\":[\"a\",\"b\"],\"answer\":0}' "
                                          ">$D/choices"),
                     0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        wt_program_ok(&p, commands[i]);
        check_singular();
    }
}

static void test_counts(void **state)
{
    (void)state;
    wt_program_ok(&p, "tokenize " LLAMA " -p a --no-special");
    wt_program_err(&p, "1 token, 1 byte\n");
    wt_program_ok(&p, "run " LLAMA " -p a -n 1 --temp 0 --ignore-eos");
    wt_program_err(&p, "generated: 1 token");
    assert_null(strstr(p.err, "1 tokens"));
    wt_program_ok(&p, "convert " LLAMA " \"$D/m.gguf\"");
    assert_null(strstr(p.err, "KB"));
    wt_program_fails(&p, 1, "quantize Q4_K_M \"$D/m.gguf\" x.gguf",
                     "cannot open 'Q4_K_M': it does not exist");
}

static int make(void **state)
{
    (void)state;
    return wt_program_make(&p);
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mistakes),
                                       cmocka_unit_test(test_counts),
                                       cmocka_unit_test(test_singulars)};
    return cmocka_run_group_tests_name("cli_words", tests, make, clean);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_cli_words.c - what the program says: mistakes of a new user, each with a sentence about that mistake, and
 * counts, units and shares as people write them. The sentence in the comment is what was said before.
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
        /* there is no command 'generate'; 'weft help' lists them */
        {2, "generate m.gguf", "did you mean 'weft run'?"},
        /* there is no command 'perplexity'; 'weft help' lists them */
        {2, "perplexity m.gguf", "did you mean 'weft eval'?"},
        /* there is no flag '--ctx'; --help lists them */
        {2, "run " LLAMA " -p a --ctx 3", "there is no flag '--ctx'; did you mean '--ctx-size'?"},
        /* there is no device 'gpu'; did you mean 'cpu'? */
        {2, "run " LLAMA " -p a -d gpu", "there is no device 'gpu'; this build has: cpu, cuda"},
        /* the folder 'nodata' has no data to train on, for it has no data.json */
        {1, "train --data nodata --out $D/o --depth 1",
         "the file or folder 'nodata' does not exist"},
        /* there is no flag '--model'; did you mean '--memory'? */
        {2, "train --model x", "to train a model further, use 'weft finetune MODEL'"},
        /* cannot open 'Hub/Model': there is no folder 'Hub' */
        {1, "run Hub/Model -p a", "Weft does not download models"},
        /* there is no flag '--temp'; did you mean '--template'? */
        {2, "info " LLAMA " --temp 1", "'weft info' has no flag '--temp'; it is one of: run, chat"},
        /* there is no flag '--lora'; --help lists them */
        {2, "info " LLAMA " --lora x", "'weft info' has no flag '--lora'; it is one of: "},
        /* --compute wants f32, bf16 or f16, not 'Hello' */
        {2, "train -p Hello", "'-p' has another meaning in other commands"},
        /* --vocab 0 is too small: 256 bytes are part of it */
        {2, "tokenize --train README.md -o $D --vocab 0",
         "--vocab wants a whole number from 257 to"},
        /* a share of the rate at the end of 7 is not possible */
        {2, "train --floor 7", "--floor wants a number from 0 to 1, not '7'"},
        /* there is no prompt: stdin is empty; give a text as the second argument ... */
        {1, "run none.gguf </dev/null", "cannot open 'none.gguf': it does not exist"},
        /* --predict needs a value: --predict N */
        {2, "run " LLAMA " a -n", "-n needs a value: -n N"},
        /* --rate wants a number above 0 to 1000, not '0' */
        {2, "train --rate 0", "--rate wants a number above 0 up to 1000, not '0'"},
        /* what is to be trained? give one of a preset, a depth, a config.json and a model to start from */
        {2, "plan --train --depth 1 --preset tiny", "the model's shape is given more than once"},
        /* 'd' is one argument too many; usage: weft train */
        {2, "train d", "usage: weft train --data DATA --out RUN"},
        /* 'hi' is one argument too many; usage: weft chat MODEL */
        {2, "chat " LLAMA " hi", "usage: weft chat MODEL [-p QUESTION]"},
        /* nothing: the values were ignored */
        {2, "plan tiny --rate 3", "--rate is about training; plan a run with --train"},
        {2, "plan tiny --vocab 300", "--vocab is about training; plan a run with --train"},
        {2, "plan --vocab 300", "--vocab is about training; plan a run with --train"},
        {2, "plan --train --depth 1 --svg $D/x.svg", "--svg is for examples and graphs"},
        {2, "plan " LLAMA " --train -c 9", "--ctx-size is about running a model"},
        {2, "plan --json", "--json needs a MODEL, EXAMPLE or GRAPH to plan"},
        {2, "tokenize --train README.md -o $D/t.gguf --ids", "--ids is for tokenizing"},
        {2, "tokenize " LLAMA " --decode --no-special -p 5", "--no-special is for encoding"},
        {2, "selftest --list --op neg", "--op is for a test; leave it out with --list"},
        {2, "info " LLAMA " --template --tensors", "--tensors and --template print two things"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wt_program_fails(&p, cases[i].code, cases[i].args, cases[i].sentence);
}

/* Neither stream has a plural after 1. */
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

/* Inputs of which there is one each. */
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
    /* 'm.gguf' exists; choose another path, or replace it with --overwrite */
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

/* SPDX-License-Identifier: MIT */
/*
 * test_cli_flags.c - tests every flag that the help of a command lists. Malformed and out-of-range
 * numbers are refused with the flag, the value and the range. Flags that a command cannot use are
 * refused, not ignored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "program.h"

#define LLAMA "tests/fixtures/models/llama"

static wt_program p;

static const char *const commands[] = {
    "run",      "chat", "info",  "tokenize", "convert",  "quantize", "prepare", "train",
    "finetune", "eval", "bench", "devices",  "selftest", "plan",     "plot",    NULL};

/* ---- Numbers ---- */

typedef struct {
    char name[48], value[48];
} flag;

/* Reads the flags with a value from help lines such as "  -x, --name VALUE" or
 * "      --name VALUE". */
static int read_help(const char *text, flag *out, int room)
{
    int n = 0;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        const char *name = strstr(text, "--");
        size_t line = strcspn(text, "\n"), indent = strspn(text, " ");
        if (indent < 2 || indent > 6 || !name || name > text + 6 || name > text + line)
            continue;
        size_t length = strcspn(name, " ,\n");
        const char *value = name + length;
        while (*value == ',') /* skip other spellings */
            value += 2 + strcspn(value + 2, " ,\n");
        if (*value != ' ' || value[1] == ' ')
            continue;
        assert_true(n < room && length < sizeof out->name);
        snprintf(out[n].name, sizeof out->name, "%.*s", (int)length, name);
        snprintf(out[n++].value, sizeof out->value, "%.*s", (int)strcspn(value + 1, " \n"),
                 value + 1);
    }
    return n;
}

/* Expects a message with the flag, the value and the accepted range. */
static void refuse(const char *command, const char *name, const char *value)
{
    char args[256], shown[160];
    snprintf(args, sizeof args, "%s %.60s=%s", command, name, value);
    int code = wt_program_run(&p, args);
    snprintf(shown, sizeof shown, "%.60s must be a ", name);
    const char *says = strstr(p.err, shown);
    snprintf(shown, sizeof shown, ", not '%s'\n", value);
    if (code != 2 || !says || !strstr(says, shown))
        fail_msg("weft %s: exit status %d, and said: %s", args, code, p.err);
    bool whole = strncmp(says + strlen(name), " must be a whole number ", 24) == 0;
    bool ranged = strstr(says, " from ") || strstr(says, " above ") || strstr(says, " >= ");
    if (!ranged && (whole || strcmp(value, "abc") != 0))
        fail_msg("weft %s names no range: %s", args, p.err);
}

/* Every numeric flag of every command refuses text, overflow and values below its minimum. */
static void test_numbers(void **state)
{
    (void)state;
    int numbers = 0;
    for (int c = 0; commands[c]; c++) {
        flag flags[64];
        char args[64];
        snprintf(args, sizeof args, "help %s", commands[c]);
        wt_program_ok(&p, args);
        int n = read_help(p.out, flags, 64);
        for (int i = 0; i < n; i++) {
            static const char *const kinds[] = {"N", "X", "B",  "T",     "K", "P",
                                                "R", "S", "MB", "SHARE", "E"};
            bool number = false;
            for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
                number = number || strcmp(kinds[k], flags[i].value) == 0;
            if (!number || strcmp(flags[i].name, "--type") == 0)
                continue;
            numbers++;
            refuse(commands[c], flags[i].name, "abc");
            refuse(commands[c], flags[i].name, "1e400");
            /* Every integer flag and nearly every real one has a minimum. */
            bool any = strstr(flags[i].name, "-penalty") || strcmp(flags[i].name, "--distort") == 0;
            if (!any || strcmp(flags[i].name, "--repeat-penalty") == 0)
                refuse(commands[c], flags[i].name, "-7");
        }
    }
    assert_true(numbers > 80);
}

/* ---- Flags that a command does not use ---- */

/* A flag that has no effect is refused with the reason. */
static void test_unused(void **state)
{
    (void)state;
    static const struct {
        const char *args, *sentence;
    } cases[] = {
        {"train --data d --out o --steps 3 --epochs 2",
         "--steps 3 and --epochs 2 both set the length of the run; give one of them"},
        {"train --lora-alpha 3",
         "'weft train' has no flag '--lora-alpha'; these commands have it: finetune, plan"},
        {"train --lora 3", "'weft train' has no flag '--lora'"},
        {"finetune m --data d --out o --lora-alpha 3",
         "--lora-alpha needs --lora R, which trains adapters"},
        {"finetune m --data d --out o --lora-targets all", "--lora-targets needs --lora R"},
        {"finetune m --preset tiny",
         "'weft finetune' has no flag '--preset'; these commands have it: train, plan"},
        {"finetune m --data d --out o --lora 2 --export q8_0",
         "--export q8_0 has no effect with --lora, which writes an adapter"},
        {"train --data d --out o --valid-every 0 --valid-batches 2",
         "--valid-batches has no effect"},
        {"train --data d --out o --sample-every 0 --sample-prompt x", "needs --sample-every N"},
        {"train --data d --out o --sample-tokens 3", "needs --sample-every N"},
        {"train --data d --out o --depth 1 --decay 5",
         "--decay is not used by the schedule cosine; leave it out"},
        {"train --data d --out o --depth 1 --schedule constant --floor 0.5",
         "--floor is not used by the schedule constant"},
        {"train --data d --out o --depth 1 --momentum 0.5",
         "--momentum is not used by the optimizer adamw"},
        {"train --data d --out o --depth 1 --optimizer sgd --beta2 0.5",
         "--beta2 is not used by the optimizer sgd"},
        {"train --data d --out o --depth 1 --optimizer lion --eps 0.5",
         "--eps is not used by the optimizer lion"},
        {"plan tiny --rate 3", "--rate applies to training; add --train to plan a run"},
        {"plan tiny --lora 3", "--lora applies to training"},
        {"plan " LLAMA " --batch 3", "--batch applies to training"},
        {"plan " LLAMA " --svg x.svg", "applies to examples and graphs"},
        {"plan tiny -c 3", "--ctx-size applies to running a model"},
        {"info " LLAMA " --temp 1",
         "'weft info' has no flag '--temp'; these commands have it: run, chat"},
        /* In other commands -p is a prompt, -n a token count and -r a stop string. */
        {"bench m -p 3", "write --n-prompt N"},
        {"bench m -r 3", "write --repetitions N"},
        {"train -p bf16", "write --compute TYPE"},
        {"train -n 3", "write --steps N"},
        {"finetune m -r 3", "write --recompute N"},
        {"plan tiny -r 3", "write --recompute N"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wt_program_fails(&p, 2, cases[i].args, cases[i].sentence);
}

/* Unknown WEFT_ variables and invalid values are refused, like flags. */
static void test_environment(void **state)
{
    (void)state;
    static const struct {
        const char *variable, *sentence;
    } cases[] = {
        {"WEFT_ARG_TOPK=3", "no command has this flag; did you mean WEFT_ARG_TOP_K?"},
        {"WEFT_ARG_=3", "the environment sets WEFT_ARG_, but no command has this flag"},
        {"WEFT_ARG_top_k=3", "no command has this flag"},
        {"WEFT_ARG_JSON=maybe",
         "WEFT_ARG_JSON must be 1, true, on or yes, or 0, false, off or no, not 'maybe'"},
        {"WEFT_THREADS=many", "WEFT_THREADS must be a whole number from 1 to 1024, not 'many'"},
        {"WEFT_THREDS=2",
         "the environment sets WEFT_THREDS, which Weft does not read; did you mean "
         "WEFT_THREADS?"},
        {"WEFT_PJRT_PLUGINS=x", "did you mean WEFT_PJRT_PLUGIN?"},
        {"WEFT_THREADS=0", "WEFT_THREADS must be a whole number from 1 to 1024, not '0'"},
        {"WEFT_PIN=yes", "WEFT_PIN must be 0 or 1, not 'yes'"},
        {"WEFT_CPU=fast", "WEFT_CPU=fast is unknown; use one of: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[256];
        snprintf(command, sizeof command, "%s \"$W\" info " LLAMA, cases[i].variable);
        assert_int_equal(wt_program_shell(&p, command), 2);
        wt_program_err(&p, cases[i].sentence);
    }
    /* Variables of another command's flags are ignored, and the help works. */
    assert_int_equal(
        wt_program_shell(&p, "WEFT_ARG_TOP_K=3 WEFT_PIN=1 WEFT_ARG_JSON=off \"$W\" info " LLAMA),
        0);
    /* Variables of the tests, of the emulator and of other programs. */
    assert_int_equal(
        wt_program_shell(
            &p, "WEFT_SEED=1 WEFT_SEEDS=2 WEFT_KILLS=3 WEFT_TEST_PJRT=4 WEFT_MODELS_DEVICE=cpu "
                "WEFT_EMULATED_SEED=5 WEFT_FIXTURES=6 WEFT_EXAMPLES=7 WEFT_LORA_OUT=8 "
                "WEFT_RANDOM_GRAPHS=9 WEFT_ORACLE_SHOW=1 WEFT_HOME=/ \"$W\" info " LLAMA),
        0);
    assert_string_equal(p.err, "");
    assert_int_equal(wt_program_shell(&p, "WEFT_ARG_TOPK=3 \"$W\" help"), 0);
    assert_int_equal(wt_program_shell(&p, "WEFT_ARG_TOPK=3 \"$W\" --version"), 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers),
                                       cmocka_unit_test(test_unused),
                                       cmocka_unit_test(test_environment)};
    return cmocka_run_group_tests_name("cli_flags", tests, make, clean);
}

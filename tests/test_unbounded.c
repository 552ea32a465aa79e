/* SPDX-License-Identifier: MIT */
/*
 * test_unbounded.c - endless input, or input without a place to cut it, takes bounded memory and
 * ends with one sentence. Many added tokens cost no more than one. Small stacks suffice.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "base/sanitize.h"
#include "base/writer.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"
#include "text/token.h"

#define QWEN2 WT_MODELS_FOLDER "/qwen2"

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

/* ---- Memory ---- */

/* Checks the peak of the largest program run so far. */
static void check_memory(long megabytes)
{
    struct rusage used;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    print_message("peak %ld MB\n", used.ru_maxrss / 1024);
#if !WF_ADDRESS_SANITIZER
    if (used.ru_maxrss / 1024 > megabytes)
        fail_msg("a program took %ld MB, more than %ld", used.ru_maxrss / 1024, megabytes);
#else
    (void)megabytes;
#endif
}

static void refused(const char *args, const char *sentence)
{
    int code = wt_program_run(&p, args);
    if (code == 0 || !strstr(p.err, sentence))
        fail_msg("weft %s: exit status %d and '%s'; wanted '%s'", args, code, p.err, sentence);
}

static void test_words(void **state)
{
    (void)state;
    assert_int_equal(wt_program_shell(&p, "head -c 40000000 /dev/zero | tr '\\0' a > $D/word"), 0);
    refused("tokenize " QWEN2 " -q --ids -f $D/word", "32 MiB without a space");
    refused("eval " QWEN2 " -q -c 64 --limit 100 -f $D/word", "32 MiB without a space");
    refused("run " QWEN2 " -q -c 64 -n 1 -f $D/word", "32 MiB without a space");
    check_memory(250);
}

static void test_endless(void **state)
{
    (void)state;
    refused("tokenize " QWEN2 " -q --ids -f /dev/zero", "32 MiB without a space");
    refused("eval " QWEN2 " -q -c 64 --limit 100 -f /dev/zero", "32 MiB without a space");
    refused("run " QWEN2 " -q -c 64 -n 1 -f /dev/zero", "larger than 67108864 bytes");
    refused("tokenize " QWEN2 " -q --decode -f /dev/zero", "larger than 67108864 bytes");
    refused("plan /dev/zero", "larger than 67108864 bytes");
    /* The program stops reading at its limit. */
    assert_int_equal(
        wt_program_shell(&p, "yes some words | \"$W\" eval " QWEN2 " -q -c 64 --limit 100 -f -"),
        0);
    wt_program_out(&p, "100 tokens");
    assert_int_equal(
        wt_program_shell(&p, "yes some words | \"$W\" tokenize " QWEN2 " -q | head -n 3"), 0);
    check_memory(250);
}

/* A text larger than the memory limit is encoded while it is read. */
static void test_streams(void **state)
{
    (void)state;
    struct rusage used;
    assert_int_equal(getrusage(RUSAGE_CHILDREN, &used), 0);
    assert_int_equal(wt_program_shell(&p, "yes 'once upon a time' | head -c 12000000 > $D/text; "
                                          "\"$W\" tokenize " QWEN2
                                          " --ids -f $D/text 2>&1 >/dev/null | grep -q 'tokens, "
                                          "12000000 bytes'"),
                     0);
    check_memory(250);
}

/* ---- Added tokens ---- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A tokenizer with the tokens a...aN, and one that consumes white space. */
static wf_tokenizer *with_tokens(wf_ctx *ctx, int count)
{
    wf_writer w = {.ctx = ctx};
    wf_tokenizer *t;
    char *json;
    size_t bytes;
    wf_writer_print(&w, "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \" \": 1}, "
                        "\"merges\": []}, \"added_tokens\": [{\"id\": 1, \"content\": \" \", "
                        "\"rstrip\": true}");
    for (int i = 0; i < count; i++)
        wf_writer_print(&w, ", {\"id\": %d, \"content\": \"%0*d%d\"}", i + 2, i % 1000 + 1, 0, i);
    wf_writer_print(&w, "]}");
    wt_ok(ctx, wf_writer_take(&w, &json, &bytes));
    /* No strstr in the loop: sanitized, each call measures the rest of the text. */
    for (char *s = strstr(json, "added_tokens"); (s = strchr(s, '"')) != NULL; s++)
        for (char *zero = s + 1; zero[0] == '0' && zero[1] != '"'; zero++)
            *zero = 'a';
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "tokens", json, bytes, NULL, 0, &t));
    wf_mem_free(ctx, json);
    return t;
}

static double time_of(wf_ctx *ctx, const wf_tokenizer *t, char letter, size_t n)
{
    char *text = malloc(n);
    int32_t *ids;
    size_t count;
    double best = 1e9;
    assert_non_null(text);
    memset(text, letter, n);
    for (int i = 0; i < 3; i++) {
        double start = seconds();
        wt_ok(ctx, wf_tokenizer_encode(t, ctx, text, n, 0, &ids, &count));
        double took = seconds() - start;
        best = took < best ? took : best;
        wf_ids_free(ctx, ids);
    }
    free(text);
    return best;
}

static void test_added_tokens(void **state)
{
    wf_ctx *ctx = *state;
    enum { MANY = 20000, BYTES = 200000 };
    double start = seconds();
    wf_tokenizer *few = with_tokens(ctx, 1), *many = with_tokens(ctx, MANY);
    double built = seconds() - start;
    double a = time_of(ctx, few, 'a', BYTES), b = time_of(ctx, many, 'a', BYTES);
    print_message("built in %.2f s; 1 token %.4f s, %d tokens %.4f s\n", built, a, MANY, b);
    assert_true(b < 20 * a + 0.05);
    /* Each space consumes all that follow it. */
    double c = time_of(ctx, few, ' ', BYTES), d = time_of(ctx, few, ' ', 4 * BYTES);
    print_message("spaces %.4f s, four times as many %.4f s\n", c, d);
    assert_true(d < 10 * c + 0.05);
    wf_tokenizer_free(few);
    wf_tokenizer_free(many);
}

/* One long word in which everything merges: four times the text takes about four times as long. */
static void test_merges(void **state)
{
    wf_ctx *ctx = *state;
    static const char json[] =
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"aa\": 1, \"aaaa\": 2, "
        "\"aaaaaaaa\": 3}, \"merges\": [\"a a\", \"aa aa\", \"aaaa aaaa\"]}}";
    wf_tokenizer *t;
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "merges", json, strlen(json), NULL, 0, &t));
    double a = time_of(ctx, t, 'a', 100000), b = time_of(ctx, t, 'a', 400000);
    print_message("merges %.4f s, four times as many %.4f s\n", a, b);
    assert_true(b < 10 * a + 0.05);
    wf_tokenizer_free(t);
}

/* ---- Stacks ---- */

/* The environment is on the stack too, so it is kept small: with 16 KiB of stack and 4 KiB of
 * variables not even /bin/true starts. */
static void test_stack(void **state)
{
    (void)state;
#if WF_ADDRESS_SANITIZER
    print_message("skipped: AddressSanitizer needs a large stack\n");
#else
    static const char *const commands[] = {
        "info " QWEN2,
        "tokenize " QWEN2 " -p 'some words'",
        "run " QWEN2 " -c 64 -n 2 -p 'some words'",
        "eval " QWEN2 " -c 64 -f $D/small",
        "prepare $D/small -o $D/data-\\$S --vocab 300 --valid 0.05",
        "train --data $D/data-\\$S --depth 1 --batch 2 --length 32 --steps 2 -o $D/run-\\$S"};
    wt_program_shell(&p, "yes 'once upon a time' | head -n 3000 > $D/small");
    static const int kilobytes[] = {16, 64, 256};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
            char all[512];
            snprintf(all, sizeof all,
                     "exec env -i W=\"$W\" D=\"$D\" S=%d WEFT_THREADS=2 /bin/sh -c \"ulimit -s %d; "
                     "exec \\$W %s\"",
                     kilobytes[k], kilobytes[k], commands[i]);
            int code = wt_program_shell(&p, all);
            if (code != 0)
                fail_msg("%s: exit status %d and '%s'", all, code, p.err);
        }
#endif
}

/* Must be the last test: its peak exceeds the other tests' limits. */
static void test_endless_training(void **state)
{
    (void)state;
    refused("tokenize --train /dev/zero -o $D/t.gguf",
            "more than 256 MiB; save the text to a file");
    check_memory(600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_endless),
        cmocka_unit_test(test_streams),
        wt_test(test_added_tokens),
        wt_test(test_merges),
        cmocka_unit_test(test_stack),
        cmocka_unit_test(test_endless_training),
    };
    return cmocka_run_group_tests_name("unbounded", tests, setup, teardown);
}

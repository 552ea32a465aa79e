/* SPDX-License-Identifier: MIT */
/* test_cli_prepare.c - runs `weft prepare`, including mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "base/sanitize.h"
#include "program.h"

static wt_program p;

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

/* Expects the shell commands to succeed. */
static void ok(const char *commands)
{
    int code = wt_program_shell(&p, commands);
    if (code != 0)
        fail_msg("%s: exit status %d, and said: %s", commands, code, p.err);
}

/* Preparing is reproducible: a second run, or one with the learned tokenizer, writes the same
 * bytes. */
static void test_text(void **state)
{
    (void)state;
    ok("mkdir $D/in && cp README.md docs/*.md $D/in && $W prepare $D/in -o $D/data");
    wt_program_err(&p, "train: ");
    wt_program_err(&p, "bytes/token");
    wt_program_err(&p, ", learned, 2 bytes per id");
    ok("test -f $D/data/train-00000.weft -a -f $D/data/tokenizer.json && test -z \"$(ls -A $D | grep part)\"");
    /* A second run writes the same bytes. */
    wt_program_ok(&p, "prepare $D/in -o $D/again --json -q");
    wt_program_out(&p, "\"learned\": true");
    wt_program_out(&p, "\"skipped_files\": 0");
    ok("cmp $D/data/train-00000.weft $D/again/train-00000.weft && cmp $D/data/data.json $D/again/data.json");
    /* With an existing tokenizer, here that of a data folder. */
    wt_program_ok(&p, "prepare $D/in -o $D/third --tokenizer $D/data -q");
    ok("cmp $D/data/train-00000.weft $D/third/train-00000.weft");
}

static void test_mistakes(void **state)
{
    (void)state;
    ok("echo some text, some text >$D/a.txt; printf 'a\\0b' >$D/binary; : >$D/empty; mkdir -p $D/hollow $D/mine; "
       "echo x >$D/mine/notes");
    wt_program_fails(&p, 2, "prepare", "the texts are missing");
    wt_program_fails(&p, 2, "prepare $D/a.txt", "the output folder is missing");
    wt_program_fails(&p, 1, "prepare $D/nowhere -o $D/o", "does not exist");
    wt_program_fails(&p, 1, "prepare $D/binary -o $D/o", "is not text");
    wt_program_fails(&p, 2, "prepare $D/empty -o $D/o", "nothing to train on");
    wt_program_fails(&p, 2, "prepare $D/hollow -o $D/o", "nothing to train on");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/mine --overwrite", "not prepared data");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/a.txt", "is a file");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o /", "is not valid");
    wt_program_fails(&p, 1, "prepare $D/a.txt -o $D/no/o", "does not exist");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --valid 2", "0 to 0.5");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --valid 0.1 --valid-data $D/a.txt",
                     "--valid and --valid-data exclude each other");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --vocab 10",
                     "--vocab must be a whole number from 259 to 2147483647, not '10'");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --vocab 0", "not '0'");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --tokenizer $D/x --vocab 300",
                     "apply to learning a tokenizer");
    wt_program_fails(&p, 1, "prepare $D/a.txt -o $D/o --tokenizer $D/x", "/x'");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --format xml", "unknown format 'xml'");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --chat-template llama", "give chatml");
    wt_program_fails(&p, 2, "prepare $D/a.txt -o $D/o --sample lots", "--sample must be a size");
    wt_program_fails(&p, 1, "prepare $D/a.txt -o $D/o --format jsonl", "line 1 of");
    ok("test ! -e $D/o && test -z \"$(ls -A $D | grep part)\"");
}

/* --overwrite replaces prepared data; a failed run leaves the old data unchanged. */
static void test_overwrite(void **state)
{
    (void)state;
    ok("echo one text and another text >$D/t.txt; mkdir $D/d; $W prepare $D/t.txt -o $D/d -q --vocab 260");
    wt_program_fails(&p, 2, "prepare $D/t.txt -o $D/d/", "--overwrite");
    ok("echo more more more more >>$D/t.txt; cp $D/d/data.json $D/before");
    /* Remains of an interrupted run are removed. */
    ok("mkdir $D/.d.part; echo junk >$D/.d.part/train-00000.weft; $W prepare $D/t.txt -o $D/d --overwrite -q");
    ok("! cmp -s $D/d/data.json $D/before; test ! -e $D/.d.part -a ! -e $D/.d.old");
    /* A full disk: the old data stays. */
    ok("cp $D/d/data.json $D/before; for i in 1 2 3 4 5 6 7 8; do cat docs/*.md; done >$D/long.txt");
    int code = wt_program_shell(
        &p,
        "trap '' XFSZ; ulimit -f 64; $W prepare $D/long.txt -o $D/d --overwrite --tokenizer $D/d");
    assert_int_equal(code, 1);
    wt_program_err(&p, "File too large");
    ok("cmp $D/d/data.json $D/before; test ! -e $D/.d.part -a ! -e $D/.d.old");
}

/* Prepares conversations with a validation split, and texts split at a separator. */
static void test_chat(void **state)
{
    (void)state;
    ok("for i in $(seq 40); do echo '{\"messages\": [{\"role\": \"user\", \"content\": \"say '$i'\"}, "
       "{\"role\": \"assistant\", \"content\": \"it is '$i'\"}]}'; done >$D/c.jsonl; "
       "$W prepare $D/c.jsonl -o $D/chat");
    wt_program_err(&p, "train: 39 documents");
    wt_program_err(&p, " in answers)");
    wt_program_err(&p, "valid: 1 document,");
    ok("$W prepare $D/c.jsonl -o $D/none --valid 0");
    wt_program_err(&p, "valid: nothing");
    ok("$W prepare $D/c.jsonl -o $D/other --valid-data $D/c.jsonl");
    wt_program_err(&p, "valid: 40 documents");
    ok("printf 'a b\\n--\\nc d\\n--\\ne' >$D/s.txt; "
       "$W prepare $D/s.txt -o $D/split --split-on '\\n--\\n' --valid 0 --vocab 260");
    wt_program_err(&p, "train: 3 documents");
}

/* Memory use does not grow with the text: 8x the text, the same peak. */
static void test_flat(void **state)
{
    (void)state;
    struct rusage small, large;
#if WF_ADDRESS_SANITIZER
    skip(); /* AddressSanitizer keeps freed memory */
#endif
    ok("for i in $(seq 16); do cat docs/*.md README.md include/weft.h; done >$D/m; "
       "for i in 1 2; do cat $D/m; done >$D/4; for i in $(seq 16); do cat $D/m; done >$D/40; "
       "$W prepare $D/m -o $D/t -q --vocab 300; $W prepare $D/4 -o $D/d4 -q --tokenizer $D/t -t 2");
    getrusage(RUSAGE_CHILDREN, &small);
    ok("$W prepare $D/40 -o $D/d40 -q --tokenizer $D/t -t 2; "
       "test $(wc -c <$D/40) -gt $((7 * $(wc -c <$D/4)))");
    getrusage(RUSAGE_CHILDREN, &large);
    assert_true(large.ru_maxrss < small.ru_maxrss + 8192); /* KiB */
}

/* A bad record fails with its number, or is skipped with --skip-bad. */
static void test_bad_records(void **state)
{
    (void)state;
    ok("printf '[{\"prompt\":\"a\",\"completion\":\"b\"},{\"x\":1}]' > $D/r.json");
    wt_program_fails(&p, 1, "prepare $D/r.json -o $D/r --tokenizer tests/fixtures/models/qwen2",
                     "record 2 of");
    ok("$W prepare $D/r.json -o $D/r --tokenizer tests/fixtures/models/qwen2 --skip-bad");
    wt_program_err(&p, "skipped 1 bad record\n");
}

/* The number of prompts has no limit. */
static void test_many_prompts(void **state)
{
    (void)state;
    ok("for i in $(seq 200); do printf ' -p a%d' $i; done > $D/p; "
       "$W run tests/fixtures/models/qwen2 $(cat $D/p) -n 1 -q");
    wt_program_out(&p, "--- 200 of 200 ---");
}

/* A GGUF token that is not UTF-8 does not fit into tokenizer.json. The prepared data still matches
 * the model. */
static void test_token_not_utf8(void **state)
{
    (void)state;
    ok("$W convert tests/fixtures/models/llama $D/bytes.gguf 2>$D/err; seq 1 400 >$D/numbers;"
       "at=$(LC_ALL=C grep -abo '<|im_start|>' $D/bytes.gguf | head -1 | cut -d: -f1);"
       "printf '\\377' | dd of=$D/bytes.gguf bs=1 seek=$at conv=notrunc 2>$D/err;"
       "$W finetune $D/bytes.gguf --data $D/numbers --out $D/bytes --steps 1 -b 1 -l 8 -q");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_text, make, clean),
        cmocka_unit_test_setup_teardown(test_mistakes, make, clean),
        cmocka_unit_test_setup_teardown(test_overwrite, make, clean),
        cmocka_unit_test_setup_teardown(test_chat, make, clean),
        cmocka_unit_test_setup_teardown(test_flat, make, clean),
        cmocka_unit_test_setup_teardown(test_bad_records, make, clean),
        cmocka_unit_test_setup_teardown(test_many_prompts, make, clean),
        cmocka_unit_test_setup_teardown(test_token_not_utf8, make, clean)};
    return cmocka_run_group_tests_name("cli_prepare", tests, NULL, NULL);
}

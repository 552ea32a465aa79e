/* SPDX-License-Identifier: MIT */
/*
 * test_cli_outputs.c - no command replaces an existing file without --overwrite, or its own input
 * with it. A failed write leaves the old file unchanged. test_cli_train.c tests the same for runs,
 * test_cli_prepare.c for data.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "program.h"

static wt_program p;

#define MODEL WT_MODELS_FOLDER "/llama"

static void shell_ok(const char *commands)
{
    int code = wt_program_shell(&p, commands);
    if (code != 0)
        fail_msg("exit status %d of: %s\n%s", code, commands, p.err);
}

/* Every command that writes files, and those files. */
static const struct {
    const char *command, *out; /* out: name in $D/out */
} writers[] = {
    {"convert " MODEL " $D/out/m.gguf", "m.gguf"},
    {"convert $D/in.gguf $D/out/split.gguf --split-size 600K", "split-00001-of-00002.gguf"},
    {"convert $D/in.gguf $D/out/folder", "folder/config.json"},
    {"quantize $D/in.gguf $D/out/q.gguf q8_0", "q.gguf"},
    {"plot $D/log.jsonl -o $D/out/plot.svg", "plot.svg"},
    {"plan tiny --svg $D/out/plan.svg", "plan.svg"},
    {"plan tiny --dot $D/out/plan.dot", "plan.dot"},
    {"plan tiny --text $D/out/plan.txt", "plan.txt"},
    {"bench machine --stream 1 --json $D/out/bench.json", "bench.json"},
    {"bench train tiny --batch 1 --length 8 --repetitions 1 --no-peak --trace $D/out/trace.json",
     "trace.json"},
    {"tokenize --train $D/text.txt --vocab 260 -o $D/out", "tokenizer.json"},
    {"tokenize --train $D/text.txt --vocab 260 -o $D/out/t.gguf", "t.gguf"},
};
#define WRITERS (sizeof writers / sizeof *writers)

static int make(void **state)
{
    (void)state;
    if (wt_program_make(&p) != 0)
        return -1;
    return wt_program_shell(
        &p, "printf 'one two three four\n' > $D/text.txt && $W convert " MODEL " $D/in.gguf && "
            "printf '{\"event\":\"step\",\"step\":1,\"steps\":2,\"loss\":3}\n' > $D/log.jsonl");
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

/* Each command creates its file, refuses to replace it, and replaces it with --overwrite, also
 * through a link. */
static void test_existing(void **state)
{
    (void)state;
    for (size_t i = 0; i < WRITERS; i++) {
        char commands[2048];
        const char *out = writers[i].out, *command = writers[i].command;
        bool folder = strchr(out, '/') != NULL, split = strstr(out, "-of-") != NULL;
        shell_ok("rm -rf $D/out && mkdir $D/out");
        snprintf(commands, sizeof commands, "$W %s > /dev/null && test -s $D/out/%s", command, out);
        shell_ok(commands);
        snprintf(commands, sizeof commands, "cp $D/out/%s $D/good; echo mine > $D/out/%s", out,
                 out);
        shell_ok(commands);
        wt_program_fails(&p, 2, command,
                         "exists; choose another path, or replace it with --overwrite");
        snprintf(
            commands, sizeof commands,
            "test \"$(cat $D/out/%s)\" = mine && $W %s --overwrite > /dev/null && "
            "test $(wc -c < $D/out/%s) -gt 10 && ! ls -a $D/out | grep '\\.......$' | grep -v json",
            out, command, out);
        shell_ok(commands);
        if (folder || split)
            continue;
        snprintf(commands, sizeof commands,
                 "rm $D/out/%s && echo mine > $D/real && ln -s ../real $D/out/%s", out, out);
        shell_ok(commands);
        wt_program_fails(&p, 2, command, "exists;");
        snprintf(commands, sizeof commands,
                 "grep -q mine $D/real && $W %s --overwrite > /dev/null && test -h $D/out/%s && "
                 "! grep -q mine $D/real",
                 command, out);
        shell_ok(commands);
    }
}

/* Refuses the input as the output, under another path, a symbolic or a hard link, even with
 * --overwrite. */
static void test_own_input(void **state)
{
    static const struct {
        const char *input, *out, *command;
    } cases[] = {
        {"in.gguf", "m.gguf", "convert $D/x/in.gguf $O --overwrite"},
        {"in.gguf", "m.gguf", "quantize $D/x/in.gguf $O q8_0 --overwrite"},
        {"log.jsonl", "m.svg", "plot $D/x/log.jsonl -o $O --overwrite"},
        {"graph.txt", "m.txt", "plan $D/x/graph.txt --text $O --overwrite"},
        {"graph.txt", "m.svg", "plan $D/x/graph.txt --svg $O --overwrite"},
        {"in.gguf", "m.json", "bench $D/x/in.gguf --n-prompt 1 --n-gen 1 --json $O --overwrite"},
        {"text.txt", "m.gguf", "tokenize --train $D/x/text.txt --vocab 260 -o $O --overwrite"},
    };
    (void)state;
    shell_ok("$W plan tiny --text $D/graph.txt > /dev/null");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int link = 0; link < 3; link++) {
            char commands[512], path[128];
            if (link == 0 && strcmp(strrchr(cases[i].input, '.'), strrchr(cases[i].out, '.')) != 0)
                continue; /* the output needs another extension than this input */
            snprintf(commands, sizeof commands,
                     "rm -rf $D/x && mkdir $D/x && cp $D/%s $D/x/%s && %s", cases[i].input,
                     cases[i].input,
                     link == 0   ? "true"
                     : link == 1 ? "cd $D/x && ln -s * LINK && mv LINK "
                                 : "cd $D/x && ln * LINK && mv LINK ");
            if (link > 0)
                strcat(commands, cases[i].out);
            shell_ok(commands);
            snprintf(path, sizeof path, "x/../x/./%s", link ? cases[i].out : cases[i].input);
            setenv("O", wt_path(&p.scratch, path), 1);
            wt_program_fails(&p, 2, cases[i].command, "same as the input");
            snprintf(commands, sizeof commands, "cmp $D/%s $D/x/%s", cases[i].input,
                     cases[i].input);
            shell_ok(commands);
        }
    wt_program_fails(&p, 2, "plan tiny --svg $D/same --dot $D/same", "two flags write");
    wt_program_fails(&p, 2, "plot $D/log.jsonl -o $D", "is a folder");
}

/* Devices and pipes are written without --overwrite. */
static void test_devices(void **state)
{
    (void)state;
    shell_ok(
        "$W plan tiny --text /dev/null > /dev/null && "
        "$W bench machine --stream 1 --json /dev/stdout > $D/both && "
        "$W bench machine --stream 1 --json /dev/stdout | cat > $D/both && grep -q '\"mode\"' $D/both && "
        "mkfifo $D/pipe && { cat $D/pipe > $D/through & "
        "$W plot $D/log.jsonl -o $D/pipe > /dev/null; wait; } && grep -q '<svg' $D/through");
    /* Files in /dev/shm are ordinary files. */
    shell_ok(
        "(d=$(mktemp -d /dev/shm/weft-test-XXXXXX 2>/dev/null) || exit 0; echo mine > $d/x; "
        "! $W plan tiny --text $d/x > /dev/null 2>&1 && grep -q mine $d/x; r=$?; rm -r $d; exit $r)");
}

/* A disk that fills up during the write: the old file stays, and no temporary file is left. */
static void test_failed_write(void **state)
{
    (void)state;
    shell_ok("mkdir $D/f && echo mine > $D/f/m.gguf && echo mine > $D/real.svg && "
             "ln -s ../real.svg $D/f/m.svg && "
             "(ulimit -f 2; ! $W convert $D/in.gguf $D/f/m.gguf --overwrite 2>/dev/null && "
             "! $W plot $D/log.jsonl -o $D/f/m.svg --overwrite >/dev/null 2>&1) && "
             "grep -q mine $D/f/m.gguf && grep -q mine $D/f/m.svg && "
             "test \"$(echo $(ls -A $D/f))\" = 'm.gguf m.svg'");
}

/* A user's file has a name that the command needs for itself: the command fails and leaves it
 * alone. */
static void test_in_the_way(void **state)
{
#define TRAIN \
    "train --data $D/data --depth 1 -b 1 -l 16 -q --valid-every 0 --export none --out $D/w/"
    static const struct {
        const char *plant, *command;
        int code;
        const char *says, *check;
    } cases[] = {
        {"mkdir r && echo mine > r/lock", TRAIN "r --steps 1", 1, "not a lock",
         "grep -q mine r/lock"},
        {"mkdir r && ln -s ../mine r/lock", TRAIN "r --steps 1", 1, "symbolic link", "true"},
        {"cp -r $D/run r && rm r/loss.svg && ln -s ../mine r/loss.svg",
         TRAIN "r --steps 3 --resume", 2, "symbolic link", "test -h r/loss.svg"},
        {"mkdir r && ln -s ../new r/log.jsonl", TRAIN "r --steps 1", 2, "symbolic link",
         "! test -e new"},
        {"mkdir other && echo mine > other/a && ln -s other .d.part",
         "prepare $D/text.txt --vocab 260 -q -o $D/w/d", 2, "not a folder", "test -s other/a"},
        {"mkdir .d.old && echo mine > .d.old/a", "prepare $D/text.txt --vocab 260 -q -o $D/w/d", 2,
         "contains 'a'", "test -s .d.old/a"},
        {"mkdir .d.part && echo mine > .d.part/a", "prepare $D/text.txt --vocab 260 -q -o $D/w/d",
         2, "contains 'a'", "test -s .d.part/a"},
        {"cp -r $D/in in && mkdir out && ln -s ../in/model.safetensors out",
         "convert $D/w/in $D/w/out --type f16 --overwrite", 2, "onto itself",
         "cmp in/model.safetensors $D/in/model.safetensors"},
        {"cp -r $D/in in && ln -s in/tokenizer.json m.gguf",
         "convert $D/w/in $D/w/m.gguf --overwrite", 2, "onto itself",
         "cmp in/tokenizer.json $D/in/tokenizer.json"},
    };
    (void)state;
    shell_ok("seq 2000 > $D/text.txt && $W prepare $D/text.txt --vocab 260 -q -o $D/data && "
             "$W convert $D/in.gguf $D/in 2> /dev/null && mkdir $D/w && "
             "$W " TRAIN "../run --steps 2 --save-every 1 --keep 0");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char commands[512];
        snprintf(commands, sizeof commands,
                 "rm -rf $D/w && mkdir $D/w && cd $D/w && echo mine > mine && %s", cases[i].plant);
        shell_ok(commands);
        wt_program_fails(&p, cases[i].code, cases[i].command, cases[i].says);
        snprintf(commands, sizeof commands, "cd $D/w && test $(cat mine) = mine && %s",
                 cases[i].check);
        shell_ok(commands);
    }
    /* Finishing an interrupted removal does not follow a link. */
    shell_ok(
        "cd $D/w && rm -rf r && cp -r $D/run r && cp -r $D/run other && "
        "ln -s ../other/step-00000001 r/.step-00000001.gone && $W " TRAIN
        "r --steps 3 --resume 2> /dev/null && diff -r other/step-00000001 $D/run/step-00000001");
}

/* Data that another process trains on is not replaced, and stays when the command is refused. */
static void test_data_in_use(void **state)
{
    (void)state;
    shell_ok("cd $D && T='--depth 1 -b 1 -l 16 -q --valid-every 0 --export none --out used' && "
             "seq 2000 > text.txt && seq 3000 > other.txt && "
             "{ $W train --data text.txt $T --steps 1000000 2> /dev/null & } && pid=$! && "
             "trap 'kill -9 $pid' EXIT && "
             "until test -e used/log.jsonl; do kill -0 $pid || exit 1; sleep 0.05; done && "
             "cp -r used/data before && "
             "! $W train --data other.txt $T --steps 1 --overwrite 2> said && "
             "! $W train --data other.txt $T --steps 1 --restart 2>> said && "
             "test $(grep -c 'already training' said) = 2 && diff -r used/data before");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_existing),   cmocka_unit_test(test_own_input),
        cmocka_unit_test(test_devices),    cmocka_unit_test(test_failed_write),
        cmocka_unit_test(test_in_the_way), cmocka_unit_test(test_data_in_use),
    };
    return cmocka_run_group_tests_name("cli_outputs", tests, make, clean);
}

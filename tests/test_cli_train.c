/* SPDX-License-Identifier: MIT */
/*
 * test_cli_train.c - runs weft train and finetune: mistakes, signals, damaged checkpoints, full
 * disks and folders in use.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json_tree.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

static wt_program p;

/* The message for --memory 1M. */
#define TOO_LARGE \
    "this setup needs 0.01 GB (states 0.01, activations 0.00) but 0.00 GB are available"
#define SHAPE "--depth 1 --batch 2 --length 32 --data $D/data "

static int make(void **state)
{
    (void)state;
    if (wt_program_make(&p) != 0)
        return -1;
    /* enough text for some dozens of steps */
    return wt_program_shell(
        &p, "for i in 1 2 3 4 5 6 7 8; do cat LICENSE docs/plan.md; done > $D/text.txt && "
            "$W prepare $D/text.txt -o $D/data --vocab 300 --valid 0.05 2>&1");
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

static void shell_ok(const char *commands)
{
    int code = wt_program_shell(&p, commands);
    if (code != 0)
        fail_msg("exit status %d of: %s\n%s", code, commands, p.err);
}

static void test_mistakes(void **state)
{
    (void)state;
    wt_program_fails(&p, 2, "train", "the data is missing");
    wt_program_fails(&p, 2, "train --data $D/data", "the output is missing");
    wt_program_fails(&p, 2, "train --data $D/data --out $D/m", "the model's shape is missing");
    wt_program_fails(&p, 1, "train --depth 1 --data $D/nothing --out $D/m", "nothing");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --optimizer adam",
                     "unknown optimizer 'adam'; use one of: adamw, sgd, lion, muon");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --steps 0",
                     "--steps must be a whole number from 1 to 2147483647, not '0'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --rate 0",
                     "--rate must be a number above 0 up to 1000, not '0'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --weight-decay -1",
                     "--weight-decay must be a number from 0 to 1000, not '-1'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --epochs 0",
                     "--epochs must be a number above 0 up to 1000000000, not '0'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --seed 0",
                     "--seed must be a whole number >= 1, not '0'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --steps 2 --export q9", "unknown type 'q9'");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --compute i8", "f32, bf16 or f16");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --steps 2 --threads 0", "threads");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/m --steps 2 --threads 2 --device check",
                     "--threads applies to the device cpu");
    wt_program_fails(&p, 2, "finetune --data $D/data --out $D/m", "the model is missing");
    wt_program_fails(
        &p, 2, "finetune " WT_MODELS_FOLDER "/llama --data $D/data --out $D/m",
        "the data was encoded with 300 tokens, but the model has 288; prepare it with the "
        "model's tokenizer");
    wt_program_fails(&p, 1, "train " SHAPE "--out $D/m --steps 2 --memory 1M", TOO_LARGE);
    assert_int_equal(wt_program_shell(&p, "test ! -e $D/m/model.gguf"), 0);
}

/* A run writes checkpoints, a log, a chart and a model that the other commands read. */
static void test_whole_run(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/run --steps 12 --save-every 4 --sample-every 6 --keep 2 "
             "--keep-every 4");
    wt_program_err(&p, "llama-d1");
    wt_program_err(&p, "validation loss");
    wt_program_err(&p, "sample:");
    wt_program_err(&p, "model.gguf");
    shell_ok(
        "test -s $D/run/loss.svg -a -s $D/run/log.jsonl -a -s $D/run/model.gguf && "
        "test -d $D/run/step-00000004 -a -d $D/run/step-00000008 -a -d $D/run/step-00000012 && "
        "ls $D/run/events.out.tfevents.* && $W run $D/run/model.gguf -p the -n 8 -q && "
        "$W run $D/run/step-00000012 -p the -n 8 -q && $W plot $D/run");
    wt_program_out(&p, "12");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/run --steps 12", "contains a run at step 12");
    shell_ok("$W train " SHAPE "--out $D/run --steps 12 --resume"); /* all steps are done */
    shell_ok("$W train " SHAPE "--out $D/quiet --steps 2 -q");
    assert_string_equal(p.err, "");
}

/* 300 tokens are trained as 320 rows. No file contains the padding, and the model can be finetuned
 * on the same data. */
static void test_padding(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE
             "--out $D/pad --steps 2 -q && ! grep -q 'PAD[0-9]' $D/pad/model.gguf && "
             "grep -q '\"vocab_size\": 300' $D/pad/step-00000002/config.json && "
             "$W finetune $D/pad/model.gguf --data $D/data --out $D/pad2 --steps 1 --batch 1 -q");
}

/* A flag with the value 0 differs from a flag that is not set. */
static void test_zeros(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/zero --steps 20 --warmup 0 --schedule wsd --decay 0 "
             "--optimizer muon --momentum 0 --clip 0 --floor 0 --weight-decay 0 --beta1 0 "
             "--valid-every 0 --export none");
    wt_program_err(&p, "warmup 0 ");
    wt_program_err(&p, "  decay 0");
    wt_program_err(&p, "momentum 0");
    assert_null(strstr(p.err, "lora 0")); /* unused defaults are not listed */
    assert_null(strstr(p.err, "dropout 0"));
    assert_null(strstr(p.err, "documents no"));
    wt_program_err(&p, "clip 0");
    wt_program_err(&p, "floor 0");
    shell_ok("grep -m1 '\"rate\":' $D/zero/log.jsonl | grep -o '\"rate\":[^,]*' > $D/first; "
             "grep '\"rate\":' $D/zero/log.jsonl | tail -1 | grep -o '\"rate\":[^,]*' > $D/last; "
             "cmp $D/first $D/last");
}

/* SIGTERM saves a checkpoint and exits with status 3. Repeated SIGINT may exit with 130. */
static void test_signals(void **state)
{
    (void)state;
    shell_ok(
        "$W train " SHAPE "--out $D/s --steps 100000 --log-every 1 --valid-every 0 2> $D/s.err & "
        "pid=$!; until grep -q 'step 3/' $D/s.err; do sleep 0.05; done; kill -TERM $pid; wait $pid; "
        "test $? = 3 && grep -q 'continue with --resume' $D/s.err && ls -d $D/s/step-*");
    shell_ok("$W train " SHAPE
             "--out $D/s2 --steps 100000 --log-every 1 --valid-every 0 2> $D/s2.err & "
             "pid=$!; until grep -q 'step 3/' $D/s2.err; do sleep 0.05; done; "
             "while kill -INT $pid 2>/dev/null; do :; done; wait $pid; code=$?; "
             "test $code = 130 -o $code = 3");
}

/* SIGHUP saves and exits like SIGTERM, also repeatedly or right after SIGTERM. Under nohup it stays
 * ignored. */
static void test_hangup(void **state)
{
    (void)state;
    shell_ok(
        "for s in 'HUP HUP HUP' 'TERM HUP'; do rm -rf $D/h $D/h.err; "
        "$W train " SHAPE "--out $D/h --steps 100000 --save-every 0 --log-every 1 "
        "--valid-every 0 2> $D/h.err & pid=$!; "
        "until grep -qs 'step 3/' $D/h.err; do sleep 0.05; done; "
        "for n in $s; do kill -$n $pid; done; wait $pid; code=$?; "
        "echo \"$s: $code\" >&2; test $code = 3 && ls $D/h/step-*/manifest.json || exit 1; done");
    shell_ok("(trap '' HUP; exec $W train " SHAPE "--out $D/n --steps 100000 --save-every 0 "
             "--log-every 1 --valid-every 0 2> $D/n.err) & pid=$!; "
             "until grep -q 'step 3/' $D/n.err; do sleep 0.05; done; kill -HUP $pid; "
             "seen=$(grep -c . $D/n.err); "
             "until test $(grep -c . $D/n.err) -gt $((seen + 3)); do sleep 0.05; done; "
             "kill -TERM $pid; wait $pid; test $? = 3");
}

/* Checkpoints by time change no bit of the run, and --keep applies to them. */
static void test_save_minutes(void **state)
{
    (void)state;
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/t --steps 2 --save-minutes -1",
                     "--save-minutes must be a number >= 0, not '-1'");
    shell_ok("$W train " SHAPE "--out $D/t0 --steps 5 --save-every 0 --save-minutes 0 -q && "
             "test \"$(cd $D/t0; echo step-*)\" = step-00000005 && "
             "$W train " SHAPE "--out $D/t1 --steps 5 --save-every 0 --save-minutes 1e-6 --keep 3 "
             "-q && test \"$(cd $D/t1; echo step-*)\" = "
             "'step-00000003 step-00000004 step-00000005' && "
             "cmp $D/t0/model.gguf $D/t1/model.gguf && "
             "for f in optimizer model; do "
             "cmp $D/t0/step-00000005/$f.safetensors $D/t1/step-00000005/$f.safetensors || exit 1; "
             "done; $W train " SHAPE "--out $D/t2 --steps 5 --save-every 0 -q && "
             "test \"$(cd $D/t2; echo step-*)\" = step-00000005");
    wt_program_ok(&p, "help train");
    wt_program_out(&p, "maximum minutes between checkpoints; 0: save by steps");
}

/* A second process in the same folder is refused and names the first one. */
static void test_two_runs(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE
             "--out $D/two --steps 100000 --log-every 1 --valid-every 0 2> $D/two.err & "
             "pid=$!; until grep -q 'step 2/' $D/two.err; do sleep 0.05; done; "
             "$W train " SHAPE "--out $D/two --steps 5 --resume 2> $D/second.err; code=$?; "
             "kill -TERM $pid; wait $pid; cat $D/second.err >&2; "
             "test $code = 2 && grep -q \"$pid\" $D/second.err");
}

/* Loss of the last step in the log. */
#define LAST "grep '\"event\":\"step\"' $D/%s/log.jsonl | tail -1 | grep -o '\"loss\":[^,]*'"

static const char *const faults[] = {
    "printf x | dd of=$D/d/step-00000008/model.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null",
    "printf x | dd of=$D/d/step-00000008/optimizer.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null",
    "truncate -s 100 $D/d/step-00000008/optimizer.safetensors",
    "rm $D/d/step-00000008/trainer.json",
    "rm $D/d/step-00000008/manifest.json",
    "echo > $D/d/step-00000008/manifest.json",
    /* as chmod 000 for a user other than root: the file exists and cannot be opened */
    "rm $D/d/step-00000008/manifest.json && ln -s manifest.json $D/d/step-00000008/manifest.json",
    "rm $D/d/step-00000008/optimizer.safetensors && mkdir $D/d/step-00000008/optimizer.safetensors",
};

/* A damaged checkpoint is an error that names the complete ones, and nothing in the folder changes.
 * After renaming the damaged checkpoint, the run resumes from the older one and ends with the same
 * loss. */
static void test_damage(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/whole --steps 12 --save-every 4 --export none -q");
    shell_ok("$W train " SHAPE
             "--out $D/base --steps 12 --save-every 4 --keep 0 --export none -q && "
             "rm -r $D/base/step-00000012");
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char commands[2048];
        snprintf(commands, sizeof commands, "rm -rf $D/d && cp -r $D/base $D/d && %s", faults[i]);
        shell_ok(commands);
        shell_ok("ls -lR $D/d | grep -v lock > $D/before");
        wt_program_fails(&p, 1,
                         "train " SHAPE
                         "--out $D/d --steps 12 --save-every 4 --export none --resume "
                         "--quiet",
                         "the checkpoint of step 4 is complete: to continue from it, rename '");
        wt_program_err(&p, "/d/step-00000008'");
        shell_ok("ls -lR $D/d | grep -v lock | cmp - $D/before");
    }
    char commands[2048];
    snprintf(commands, sizeof commands,
             "mv $D/d/step-00000008 $D/d/step-00000008.damaged && "
             "$W train " SHAPE "--out $D/d --steps 12 --save-every 4 --export none --resume && "
             "test -d $D/d/step-00000008.damaged && test \"$(" LAST ")\" = \"$(" LAST ")\"",
             "d", "whole");
    shell_ok(commands);
    wt_program_err(&p, "continuing from");
    wt_program_err(&p, "step-00000004");
}

/* Without a complete checkpoint the run does not start over by itself. --restart keeps the old
 * files under other names. */
static void test_restart(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/r --steps 4 --save-every 2 -q && "
             "echo mine > $D/r/step-00000002/notes.txt && echo mine > $D/r/step-backup && "
             "for s in 2 4; do printf x | dd of=$D/r/step-0000000$s/optimizer.safetensors bs=1 "
             "seek=9000 conv=notrunc 2>/dev/null; done; cp $D/r/model.gguf $D/r.gguf; "
             "cp $D/r/loss.svg $D/r.svg");
    wt_program_fails(&p, 1, "train " SHAPE "--out $D/r --steps 4 --resume",
                     "no other checkpoint there is complete: restore it, or start over with "
                     "--restart");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/r --steps 4", "contains a run at step 4");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/r --steps 4 --overwrite", "--restart");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/r --steps 4 --resume --restart",
                     "--resume continues a run and --restart starts it over; use only one of them");
    /* A refused restart renames nothing. */
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/r --steps 4 --restart --export q9", "q9");
    wt_program_fails(&p, 1, "train " SHAPE "--out $D/r --steps 4 --restart --memory 1M", TOO_LARGE);
    shell_ok("test -d $D/r/step-00000004");
    shell_ok("$W train " SHAPE
             "--out $D/r --steps 3 --save-every 1 --keep 1 --seed 2 --restart -q; "
             "cd $D/r; ls; test -d step-00000003 && ! test -e step-00000002 && "
             "test -s step-00000004.bak-1/trainer.json && "
             "test -s step-00000002.bak-1/optimizer.safetensors && "
             "grep -q mine step-00000002.bak-1/notes.txt && grep -q mine step-backup && "
             "cmp model.gguf.bak-1 $D/r.gguf && ! cmp -s model.gguf $D/r.gguf && "
             "cmp loss.svg.bak-1 $D/r.svg && test -s log.jsonl.bak-1 && test -s log.jsonl && "
             "test $(grep -c '\"event\":\"step\"' log.jsonl) = 3");
    shell_ok("$W train " SHAPE "--out $D/r --steps 5 --seed 2 --resume && "
             "test -d $D/r/step-00000004.bak-1");
    wt_program_err(&p, "step-00000003");
    shell_ok("$W train " SHAPE "--out $D/r --steps 2 --seed 2 --restart -q && "
             "test -d $D/r/step-00000005.bak-1 && test -d $D/r/step-00000004.bak-2");
}

/* Steps whose gradient is NaN are reported without a sign, and the log stays valid JSON with null in
 * place of NaN. */
static void test_nan(void **state)
{
    wf_ctx *ctx;
    int steps = 0, nulls = 0;
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/nan --steps 8 --rate 1000 --warmup 0 --compute f16 "
             "--valid-every 4 --export none --log-every 1");
    wt_program_err(&p, "was skipped: its gradient norm is not finite (nan)");
    wt_program_err(&p, "loss nan");
    assert_null(strstr(p.err, "-nan"));
    shell_ok("cat $D/nan/log.jsonl");
    assert_int_equal(wf_ctx_new(&ctx), WF_OK);
    for (const char *line = p.out, *end; (end = strchr(line, '\n')); line = end + 1) {
        wf_arena arena;
        wf_json_node *json;
        wf_arena_init(&arena, ctx);
        wt_ok(ctx, wf_json_parse(&arena, "log.jsonl", line, (size_t)(end - line), &json));
        if (wf_json_is(wf_json_get(json, "event"), "step")) {
            const wf_json_node *norm = wf_json_get(json, "norm");
            steps++;
            assert_non_null(norm);
            nulls += norm->kind == WF_JSON_NULL;
        }
        wf_arena_free(&arena);
    }
    assert_int_equal(steps, 8);
    assert_true(nulls > 0);
    wf_ctx_free(ctx);
}

/* Retention removes only checkpoints of this run and its predecessors: no other run's checkpoints,
 * no user's files. */
static void test_retention(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/k1 --steps 3 --export none -q && "
             "$W train " SHAPE "--out $D/k2 --steps 4 --save-every 2 --export none -q && "
             "cp -r $D/k1/step-00000003 $D/k2/ && echo mine > $D/k2/step-00000002/notes.txt && "
             "$W train " SHAPE "--out $D/k2 --steps 7 --save-every 1 --keep 1 --export none -q "
             "--resume && cd $D/k2 && ls && test -d step-00000007 && ! test -e step-00000004 && "
             "! test -e step-00000006 && test -s step-00000003/optimizer.safetensors && "
             "test \"$(ls step-00000002)\" = notes.txt");
}

/* A checkpoint that does not fit on the disk is not saved, and the run continues. The previous one
 * stays complete. */
static void test_full_disk(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/full --steps 4 --export none -q");
    int code = wt_program_shell(&p, "(ulimit -f 100; $W train " SHAPE
                                    "--out $D/full --steps 8 --save-every 2 --export none "
                                    "--resume)");
    assert_int_equal(code, 1);
    wt_program_err(&p, "not saved");
    shell_ok("ls $D/full; test -d $D/full/step-00000004 && ! ls -d $D/full/.step* 2>/dev/null && "
             "$W train " SHAPE "--out $D/full --steps 8 --export none --resume");
    wt_program_err(&p, "step-00000004");
}

/* --fit changes the batch until the plan fits into 1000 bytes less than it needs. */
static void test_fit(void **state)
{
    (void)state;
    shell_ok("total=$($W plan --train --depth 1 --batch 8 --length 64 --vocab 300 --json | "
             "grep -m1 '\"total\"' | grep -o '[0-9]*'); "
             "$W train --depth 1 --batch 8 --length 64 --data $D/data --out $D/fit --steps 2 --fit "
             "--memory $((total - 1000)) --export none");
    wt_program_err(&p, "to fit into");
}

/* Finetunes a trained model, in full and with adapters. The model's file does not change. */
static void test_finetune(void **state)
{
    (void)state;
    shell_ok(
        "$W train " SHAPE "--out $D/f0 --steps 10 -q && cp $D/f0/model.gguf $D/before.gguf && "
        "$W quantize $D/f0/model.gguf $D/q8.gguf q8_0 2>/dev/null && "
        "$W prepare $D/text.txt -o $D/fdata --tokenizer $D/f0/model.gguf --valid 0 2>/dev/null && "
        "$W finetune $D/f0/model.gguf --data $D/fdata --batch 2 --length 32 --out $D/f1 --steps 4 && "
        "$W run $D/f1/model.gguf -p the -n 4 -q");
    shell_ok("$W finetune $D/q8.gguf --data $D/fdata --batch 2 --length 32 --out $D/f2 --steps 4 "
             "--lora 4 && $W run $D/q8.gguf --lora $D/f2/adapter -p the -n 4 -q && "
             "cmp $D/before.gguf $D/f0/model.gguf");
    /* An adapter belongs to one model, wherever its file is, and is refused for another. */
    wt_program_fails(&p, 2,
                     "finetune $D/f0/model.gguf --data $D/fdata --batch 2 --length 32 "
                     "--out $D/f2 --steps 4 --lora 4 --resume",
                     "has adapters of a model other than");
    shell_ok("name=$(printf 'm\\344x.gguf'); mv $D/q8.gguf \"$D/$name\" && "
             "for n in 6 8; do $W finetune \"$D/$name\" --data $D/fdata --batch 2 --length 32 "
             "--out $D/f2 --steps $n --lora 4 --resume || exit 1; done");
    wt_program_err(&p, "step-00000006");
}

/* A run refuses to replace its base model or another run's files. */
static void test_overwrite(void **state)
{
    (void)state;
    shell_ok("mkdir $D/o && $W train " SHAPE
             "--out $D/o0 --steps 2 -q && cp $D/o0/model.gguf $D/o/ "
             "&& cp $D/o/model.gguf $D/o.gguf && cp -r $D/o0/step-00000002 $D/ohf && "
             "$W prepare $D/text.txt -o $D/odata --tokenizer $D/o.gguf --valid 0 2>/dev/null && "
             "$W prepare $D/text.txt -o $D/ohfdata --tokenizer $D/ohf --valid 0 2>/dev/null");
#define TUNE "--data $D/odata --batch 2 --length 32 --steps 2 -q "
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/o " TUNE,
                     "is the folder of the base model; choose another --out, or allow this");
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/./o/../o/ --resume " TUNE,
                     "is the folder of the base model; choose another --out, or allow this");
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/o --restart " TUNE,
                     "is the folder of the base model; choose another --out, or allow this");
    wt_program_fails(&p, 2, "finetune $D/ohf --data $D/ohfdata --out $D/ohf --steps 2",
                     "is the folder of the base model; choose another --out, or allow this");
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/o --overwrite " TUNE,
                     "same as the input");
    shell_ok("mkdir $D/o1 && ln -s ../o/model.gguf $D/o1/model.gguf && ln -s o $D/olink");
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/olink " TUNE,
                     "is the folder of the base model; choose another --out, or allow this");
    wt_program_fails(&p, 2, "finetune $D/o/model.gguf --out $D/o1 --overwrite " TUNE,
                     "same as the input");
    wt_program_fails(&p, 2, "finetune $D/o.gguf --out $D/odata " TUNE, "folder of the data");
    shell_ok("cmp $D/o/model.gguf $D/o.gguf && ! ls -d $D/o*/step-* 2>/dev/null | grep -v /o0/ && "
             "test \"$(ls $D/o)\" = model.gguf && ! test -e $D/ohf/lock");

    /* Each file by itself. */
    shell_ok(
        "for f in model.gguf loss.svg log.jsonl; do rm -rf $D/e && mkdir $D/e && "
        "echo mine > $D/e/$f && ! $W train " SHAPE "--out $D/e --steps 2 2> $D/e.err && "
        "grep -q \"/$f' exists; .*--overwrite\" $D/e.err && grep -q mine $D/e/$f || exit 1; done; "
        "rm -rf $D/e && mkdir -p $D/e/adapter && echo mine > $D/e/adapter/adapter_config.json && "
        "! $W finetune $D/o.gguf --out $D/e --lora 2 " TUNE "2> $D/e.err && "
        "grep -q \"/adapter' exists; .*--overwrite\" $D/e.err && "
        "$W finetune $D/o.gguf --out $D/e --lora 2 --overwrite " TUNE "&& "
        "! grep -q mine $D/e/adapter/adapter_config.json");
    /* --resume may start a run that was killed before its first checkpoint, but must not replace a
     * model. */
    shell_ok("rm -rf $D/e && mkdir $D/e && echo mine > $D/e/model.gguf && touch $D/e/log.jsonl");
    wt_program_fails(&p, 2, "train " SHAPE "--out $D/e --steps 2 --resume", "model.gguf' exists");
    shell_ok("rm $D/e/model.gguf && $W train " SHAPE "--out $D/e --steps 2 --resume -q && "
             "$W train " SHAPE "--out $D/e --steps 3 --resume -q && rm -r $D/e/step-* && "
             "$W train " SHAPE "--out $D/e --steps 2 --overwrite -q");
}

/* A refused run leaves nothing behind that blocks the corrected command. */
static void test_refused_leaves_nothing(void **state)
{
    (void)state;
    shell_ok("$W train " SHAPE "--out $D/b0 --steps 2 -q && head -c 20000 $D/text.txt > $D/b.txt");
#define REFUSED "finetune $D/b0/model.gguf --data $D/b.txt --out $D/b --steps 2 -q "
    shell_ok("printf '{}\\n' > $D/bad.jsonl");
    wt_program_fails(&p, 1, "finetune $D/b0/model.gguf --data $D/bad.jsonl --out $D/b",
                     "line 1 of");
    shell_ok("! test -e $D/b"); /* not even an empty folder */
    wt_program_fails(&p, 2, REFUSED "--length 100000",
                     "a length of 100000 tokens is not possible; the limit of llama-d1 is 32");
    wt_program_fails(&p, 1, REFUSED "--length 32 --batch 2 --memory 1M", TOO_LARGE);
    wt_program_fails(&p, 2, REFUSED "--length 32 --batch 2 --optimizer adam",
                     "unknown optimizer 'adam'; use one of: adamw, sgd, lion, muon");
    shell_ok("! test -e $D/b/data && $W " REFUSED "--length 32 --batch 2 && test -d $D/b/data");
    wt_program_fails(&p, 2, REFUSED "--length 32 --batch 2", "contains a run at step 2");
    /* A restart prepares the data again; a refused restart restores the old data. */
    shell_ok("cp $D/b/data/data.json $D/b.json; head -c 10000 $D/text.txt > $D/b.txt");
    wt_program_fails(&p, 1, REFUSED "--length 32 --batch 2 --memory 1M --restart", TOO_LARGE);
    shell_ok("cmp $D/b.json $D/b/data/data.json && ! test -e $D/b/data.bak-1 && "
             "$W " REFUSED
             "--length 32 --batch 2 --restart && ! cmp -s $D/b.json $D/b/data/data.json && "
             "cmp $D/b.json $D/b/data.bak-1/data.json");
    /* Data of a process that was killed between the renames of --overwrite is not removed. */
    shell_ok("mkdir $D/b2 && cp -r $D/b/data $D/b2/.data.old");
    wt_program_fails(&p, 2,
                     "finetune $D/b0/model.gguf --data $D/b.txt --out $D/b2 --length 32 --batch 2",
                     "/b2/data' already exists; choose another, or replace it with --overwrite");
    shell_ok("cmp $D/b/data/data.json $D/b2/data/data.json");
}

/* Resuming with other instruction sets warns that results are not exact; another thread count does
 * not. */
static void test_other_kernels(void **state)
{
    (void)state;
    if (wt_program_shell(&p, "WEFT_CPU=avx2 $W devices | grep -q AVX2 && "
                             "WEFT_CPU=avx512 $W devices | grep -q AVX-512") != 0)
        skip();
    shell_ok("WEFT_CPU=avx2 $W train " SHAPE "--out $D/k --steps 4 --threads 1 --export none -q");
    shell_ok("WEFT_CPU=avx2 $W train " SHAPE
             "--out $D/k --steps 4 --threads 2 --export none --resume");
    assert_null(strstr(p.err, "not exact"));
    shell_ok("WEFT_CPU=avx512 $W train " SHAPE "--out $D/k --steps 4 --export none --resume");
    wt_program_err(&p, "the kernels differ");
}

/* Resuming refuses a config with other values. */
static void test_other_config(void **state)
{
    (void)state;
    wt_put_text(&p.scratch, "a.json",
                "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 1, \"n_head\": 2, "
                "\"n_positions\": 64, \"vocab_size\": 300, \"layer_norm_epsilon\": 1e-5}");
    shell_ok(
        "sed s/1e-5/1e-4/ $D/a.json > $D/b.json && "
        "$W train --config $D/a.json --batch 2 --length 32 --data $D/data --out $D/c --steps 2 "
        "--export none -q");
    wt_program_fails(
        &p, 2,
        "train --config $D/b.json --batch 2 --length 32 --data $D/data "
        "--out $D/c --steps 2 --resume",
        "contains a different model: its sizes, the context (--length), eps or rope base differ");
    int code = wt_program_run(&p, "train --config $D/a.json --batch 2 --length 64 --data $D/data "
                                  "--out $D/c --steps 2 --resume");
    assert_int_equal(code, 2);
    wt_program_err(&p, "the context (--length)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),      cmocka_unit_test(test_whole_run),
        cmocka_unit_test(test_signals),       cmocka_unit_test(test_two_runs),
        cmocka_unit_test(test_damage),        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_restart),       cmocka_unit_test(test_retention),
        cmocka_unit_test(test_hangup),        cmocka_unit_test(test_save_minutes),
        cmocka_unit_test(test_overwrite),     cmocka_unit_test(test_refused_leaves_nothing),
        cmocka_unit_test(test_fit),           cmocka_unit_test(test_finetune),
        cmocka_unit_test(test_zeros),         cmocka_unit_test(test_other_config),
        cmocka_unit_test(test_other_kernels), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests_name("cli_train", tests, make, clean);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_cli_families.c - runs info, run, chat, convert, imatrix, quantize and finetune on a
 * checkpoint of every family, as a user does: each command reads what the one before it wrote.
 * Sanitized builds take a quarter of the checkpoints (wt_cases). WEFT_CLI_DEVICE=NAME: the device of
 * the commands that compute.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

static wt_program p;
static char kept[sizeof p.out];

/* Runs shell commands. $M is the checkpoint, $V the device's flag. Fails unless all succeed. */
static void shell_ok(const char *commands)
{
    char all[2048];
    snprintf(all, sizeof all, "set -e; %s", commands);
    if (wt_program_shell(&p, all) != 0)
        fail_msg("%s, on %s: %s", commands, getenv("M"), p.err);
}

/* Expects commands that generate text to print the text of the first of them. */
static void same_text(const char *commands)
{
    shell_ok(commands);
    if (strcmp(p.out, kept) != 0)
        fail_msg("%s, on %s: '%s' instead of '%s'", commands, getenv("M"), p.out, kept);
}

#define GREEDY "--temp 0 --ignore-eos -q $V"
#define RUN(MODEL) "$W run " MODEL " -p 'the weft\\n' -n 8 -ctk f32 " GREEDY
#define CHAT(MODEL) "$W chat " MODEL " -p 'What is a weft?' -st -n 6 " GREEDY

/* Writes conversations in the checkpoint's own words. */
static void put_chats(void)
{
    wt_put_text(&p.scratch, "chats.jsonl",
                "{\"messages\": [{\"role\": \"user\", \"content\": \"the\"}, {\"role\": "
                "\"assistant\", \"content\": \"weft\"}]}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"a warp\"}, {\"role\": "
                "\"assistant\", \"content\": \"and a weft\"}]}\n");
    wt_put_text(&p.scratch, "text.txt",
                "The weft is the thread that crosses the warp. A shuttle carries it through the "
                "shed, from one selvage to the other, and the reed beats it against the cloth.\n");
}

/* Weights keep their bits through both formats, and so does the text. */
static void convert_and_quantize(void)
{
    shell_ok(RUN("$M"));
    assert_true(*p.out);
    memcpy(kept, p.out, sizeof kept);
    same_text("$W convert $M $D/m.gguf; " RUN("$D/m.gguf"));
    same_text("$W convert $D/m.gguf $D/m; " RUN("$D/m"));
    shell_ok("$W imatrix $D/m.gguf --data $D/text.txt -c 16 -o $D/i.gguf -q $V; "
             "$W quantize $D/m.gguf $D/q.gguf Q4_K_M --imatrix $D/i.gguf; "
             "$W info $D/q.gguf >/dev/null; " RUN("$D/q.gguf") "; " CHAT("$D/q.gguf"));
}

#define TUNE "--data $D/chats.jsonl --batch 1 --length 64 --steps 2 --valid-every 0 -q $V"

/* Trains adapters on quantized weights, and all weights. */
static void finetune(void)
{
    shell_ok("$W finetune $D/q.gguf --out $D/lora --lora 2 " TUNE
             "; " CHAT("$D/q.gguf --lora $D/lora/adapter"));
    shell_ok("$W finetune $M --out $D/full " TUNE "; " CHAT("$D/full/model.gguf"));
}

enum { MOST_FAMILIES = 64 };

static void every_family(void **state)
{
    wf_ctx *ctx = *state;
    const char *device = getenv("WEFT_CLI_DEVICE");
    bool done[MOST_FAMILIES] = {false};
    char flag[128];
    int families = 0, models = 0, tested = 0;
    while (wf_families[families])
        families++;
    assert_true(families < MOST_FAMILIES);
    snprintf(flag, sizeof flag, "--device %s", device ? device : "cpu");
    setenv("V", flag, 1);
    put_chats();
    while (wt_models[models])
        models++;
    const int cases = wt_cases(models);
    for (int i = 0; i < cases; i++) {
        const char *name = wt_models[((uint64_t)i + wt_seed()) % (uint64_t)models];
        char path[128];
        wf_model *m;
        wf_model_info info;
        int at = 0;
        snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
        wt_ok(ctx, wf_model_open(ctx, path, &m));
        wf_model_get_info(m, &info);
        while (strcmp(wf_families[at]->name, info.family) != 0)
            at++;
        wf_model_close(m);
        /* A device that is not the cpu is slow here: one checkpoint of each family. */
        if (done[at] && device)
            continue;
        tested += !done[at];
        done[at] = true;
        setenv("M", path, 1);
        shell_ok("$W info $M");
        wt_program_out(&p, wf_families[at]->name);
        convert_and_quantize();
        finetune();
        shell_ok("rm -r $D/m $D/m.gguf $D/q.gguf $D/i.gguf $D/lora $D/full");
    }
    if (cases == models)
        assert_int_equal(tested, families);
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
    const struct CMUnitTest tests[] = {wt_test(every_family)};
    return cmocka_run_group_tests_name("cli_families", tests, make, clean);
}

/* SPDX-License-Identifier: MIT */
/* test_cli_convert.c - runs `weft convert` and `weft quantize`, including mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "base/path.h"
#include "model/model.h"
#include "scratch.h"
#include "support.h"

#define MODEL "tests/fixtures/models/llama"

static wt_scratch scratch;
static char err[8192]; /* stderr of the last run */

/* Runs the program with arguments in shell syntax, where $D is the scratch folder. Stdout must stay
 * empty. Returns the exit status. */
static int run(const char *args)
{
    char command[1024], out[16];
    int n = snprintf(command, sizeof command,
                     "D='%s'; exec >\"$D/out\" 2>\"$D/err\"; \"$WEFT_PROGRAM\" %s", scratch.folder,
                     args);
    assert_true(n > 0 && n < (int)sizeof command);
    int status = system(command);
    assert_true(WIFEXITED(status));
    FILE *f = fopen(wt_path(&scratch, "err"), "rb");
    assert_non_null(f);
    err[fread(err, 1, sizeof err - 1, f)] = '\0';
    fclose(f);
    f = fopen(wt_path(&scratch, "out"), "rb");
    assert_non_null(f);
    assert_int_equal(fread(out, 1, sizeof out, f), 0);
    fclose(f);
    return WEXITSTATUS(status);
}

static void succeeds(const char *args)
{
    int code = run(args);
    if (code != 0)
        fail_msg("weft %s: exit status %d, and said: %s", args, code, err);
}

/* Expects this exit status and one line on stderr that contains the words. */
static void fails(const char *args, int code, const char *words)
{
    int got = run(args);
    const char *end = strchr(err, '\n');
    if (got != code || !strstr(err, words) || !end || end[1])
        fail_msg("weft %s: exit status %d, and said: %s", args, got, err);
}

/* Types and file sizes of converted and quantized models, including Q4_K_M's mix and --pure. */
static void converts(void **state)
{
    wf_model *m;
    succeeds("convert " MODEL " $D/a.gguf --type f16");
    assert_non_null(strstr(err, "a.gguf: 1.1 MB of weights (from 1.1 MB), 16.0"));
    succeeds("convert $D/a.gguf $D/folder --split-size=300K --threads 2");
    succeeds("quantize $D/folder $D/b.gguf q4_k_m 2");
    assert_non_null(strstr(err, " bits per weight, "));
    wt_ok(*state, wf_model_open(*state, wt_path(&scratch, "b.gguf"), &m));
    assert_int_equal(wf_model_find_weight(m, "output.weight")->type, WF_Q6_K);
    assert_int_equal(wf_model_find_weight(m, "blk.0.attn_q.weight")->type, WF_Q4_K);
    wf_model_close(m);
    succeeds("quantize " MODEL " $D/c.gguf q4_k_m --pure");
    wt_ok(*state, wf_model_open(*state, wt_path(&scratch, "c.gguf"), &m));
    assert_int_equal(wf_model_find_weight(m, "output.weight")->type, WF_Q4_K);
    wf_model_close(m);
    succeeds("quantize " MODEL
             " $D/t.gguf q4_0 --tensor-type 'attn_v=q6_K' --tensor-type attn=Q5_1");
    wt_ok(*state, wf_model_open(*state, wt_path(&scratch, "t.gguf"), &m));
    assert_int_equal(wf_model_find_weight(m, "blk.0.attn_v.weight")->type, WF_Q6_K);
    assert_int_equal(wf_model_find_weight(m, "blk.0.attn_q.weight")->type, WF_Q5_1);
    assert_int_equal(wf_model_find_weight(m, "blk.0.ffn_up.weight")->type, WF_Q4_0);
    wf_model_close(m);
    fails("quantize $D/b.gguf $D/d.gguf q4_0", 2, "is already quantized");
    assert_non_null(strstr(err, "--allow-requantize"));
    succeeds("quantize $D/b.gguf $D/d.gguf q4_0 --allow-requantize");
}

/* info and plan name the type of a converted model if it has no kernels of its own, and no other. */
static void converts_generic(void **state)
{
    static const wf_type types[] = {WF_Q5_0, WF_Q5_K};
    static const char *const commands[] = {"info", "info --json", "plan", "plan --json"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *name = wf_type_name(types[i]);
        const bool generic = wf_type_get(types[i])->generic;
        char args[256];
        snprintf(args, sizeof args, "convert " MODEL " $D/%s.gguf --type %s", name, name);
        succeeds(args);
        for (int k = 0; k < 4; k++) {
            snprintf(args, sizeof args, "%s $D/%s.gguf >&2", commands[k], name);
            succeeds(args);
            bool named = strstr(err, k % 2 ? "\"generic_types\": [\n    \"q5_" : "note: q5_");
            if (named != generic)
                fail_msg("weft %s names the wrong generic types: %s", args, err);
        }
    }
}

/* Measures an importance matrix, and quantizes with it. */
static void importance(void **state)
{
    wf_model *m;
    char words[1200] = "";
    for (int i = 0; i < 100; i++)
        strcat(words, i % 3 ? "weft " : "warp ");
    wt_put_text(&scratch, "text", words);
    succeeds("imatrix " MODEL " --data $D/text --data $D/text -o $D/i.gguf --ctx-size 32");
    assert_non_null(strstr(err, "i.gguf: measured "));
    fails("imatrix " MODEL " --data $D/text -o $D/i.gguf", 2, "i.gguf");
    succeeds("imatrix " MODEL " --data $D/text -o $D/i.gguf -c 16 --chunks 2 --overwrite");
    assert_non_null(strstr(err, "measured 2 chunks of 16 tokens"));
    succeeds("quantize " MODEL " $D/w.gguf q3_k_s --imatrix $D/i.gguf");
    wt_ok(*state, wf_model_open(*state, wt_path(&scratch, "w.gguf"), &m));
    assert_non_null(wf_gguf_find(m->gguf, "quantize.imatrix.file"));
    wf_model_close(m);
    fails("imatrix " MODEL " --data $D/text", 2, "a text or the output is missing");
    fails("imatrix " MODEL " --data $D/text -o $D/x.gguf -c 100000", 2, "100000");
    fails("imatrix " MODEL " --data $D/text -o $D/text --overwrite", 2, "text");
    wt_put_text(&scratch, "short", "weft");
    fails("imatrix " MODEL " --data $D/short -o $D/x.gguf", 2, "fewer than a chunk of 128");
    fails("quantize " MODEL " $D/x.gguf q4_0 --imatrix $D/w.gguf", 1, "as an importance matrix");
    assert_int_equal(wf_path_look(wt_path(&scratch, "x.gguf")), WF_PATH_NONE);
}

static void mistakes(void **state)
{
    (void)state;
    fails("convert", 2, "MODEL or OUT is missing");
    fails("convert " MODEL, 2, "MODEL or OUT is missing");
    fails("convert " MODEL " $D/x.gguf y", 2, "one argument too many");
    fails("convert " MODEL " $D/x.gguf --tensor-type attn_v", 2,
          "--tensor-type must be REGEX=TYPE, such as attn_v=q8_0, not 'attn_v'");
    fails("convert " MODEL " $D/x.gguf --split-size 2X", 2,
          "a size in bytes such as 500M or 2G, not '2X'");
    fails("convert " MODEL " $D/x.gguf --split-size 0", 2, "a size in bytes such as");
    fails("convert " MODEL " $D/x.gguf --split-size 99999999999G", 2, "a size in bytes such as");
    fails("convert " MODEL " $D/x.gguf --threads 0", 2,
          "--threads must be a whole number from 1 to 1024, not '0'");
    fails("convert " MODEL " $D/x.gguf --type q3", 2, "unknown type 'q3'");
    fails("convert " MODEL " $D/x --type q8_0", 2, "can hold f32, f16 or bf16");
    fails("convert " MODEL " " MODEL, 2, "same as the input");
    fails("convert $D/nothing $D/x.gguf", 1, "nothing");
    fails("quantize " MODEL " $D/x.gguf", 2, "IN, OUT or TYPE is missing");
    fails("quantize " MODEL " $D/x q8_0", 2, "does not end in .gguf");
    fails("quantize " MODEL " $D/x.gguf q8_0 many", 2, "threads must be 1 to 1024, not 'many'");
    assert_int_equal(wf_path_look(wt_path(&scratch, "x.gguf")), WF_PATH_NONE);
    assert_int_equal(wf_path_look(wt_path(&scratch, "x")), WF_PATH_NONE);
}

static int setup(void **state)
{
    (void)state;
    if (!getenv("WEFT_PROGRAM")) {
        print_error("WEFT_PROGRAM must hold the path of the program; ctest sets it\n");
        return -1;
    }
    wt_scratch_make(&scratch);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    wt_scratch_remove(&scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(converts), wt_test(converts_generic),
                                       wt_test(importance), wt_test(mistakes)};
    return cmocka_run_group_tests(tests, setup, teardown);
}

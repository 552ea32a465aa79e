/* SPDX-License-Identifier: MIT */
/*
 * test_cli_models.c - runs info, run, chat, tokenize and eval on tiny checkpoints: the output and
 * its stream, reproducible runs, and mistakes. Compares the program's output with the library's
 * results.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <math.h>

#include "base/arena.h"
#include "base/json_tree.h"
#include "base/sanitize.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

#define LLAMA "tests/fixtures/models/llama"
#define QWEN2 "tests/fixtures/models/qwen2"

static wt_program p;
static char kept[sizeof p.out];

static void keep(void)
{
    memcpy(kept, p.out, sizeof kept);
}

/* Parses stdout as JSON; the arena owns the result. */
static const wf_json_node *json(wf_arena *arena)
{
    wf_json_node *node;
    if (wf_json_parse(arena, "stdout", p.out, strlen(p.out), &node) != WF_OK)
        fail_msg("%s:\n%s", wf_ctx_message(arena->ctx), p.out);
    return node;
}

static const char *string_of(const wf_json_node *n, const char *key)
{
    const char *s = wf_json_get_string(n, key, NULL);
    if (!s)
        fail_msg("there is no text '%s' in:\n%s", key, p.out);
    return s;
}

/* ---- info ---- */

/* The printed figures match wf_model_info for every family, as text and as JSON. */
static void test_info(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; wt_models[i]; i++) {
        char args[256], line[64];
        wf_arena arena;
        wf_model *model;
        wf_model_info info;
        snprintf(args, sizeof args, WT_MODELS_FOLDER "/%s", wt_models[i]);
        wt_ok(ctx, wf_model_open(ctx, args, &model));
        wf_model_get_info(model, &info);
        snprintf(args, sizeof args, "info " WT_MODELS_FOLDER "/%s", wt_models[i]);
        wt_program_ok(&p, args);
        assert_string_equal(p.err, "");
        wt_program_out(&p, wt_models[i]);
        snprintf(line, sizeof line, "  context     %lld tokens", (long long)info.context);
        wt_program_out(&p, line);
        wt_program_out(&p, "3 of them control tokens, bos 0 <|endoftext|>, eos 1 <|im_end|>");
        wt_program_out(&p, " tensors ");
        strcat(args, " --json --tensors");
        wt_program_ok(&p, args);
        wf_arena_init(&arena, ctx);
        const wf_json_node *j = json(&arena);
        assert_string_equal(string_of(j, "family"), info.family);
        assert_string_equal(string_of(j, "chat_template"), info.chat_template);
        assert_int_equal(wf_json_get_int(j, "parameters", -1), info.parameters);
        assert_int_equal(wf_json_get_int(j, "layers", -1), info.layers);
        assert_int_equal(wf_json_get(j, "files")->count, info.files);
        const wf_json_node *tensors = wf_json_get(j, "tensors");
        int64_t bytes = 0;
        for (size_t k = 0; k < tensors->count; k++)
            bytes += wf_json_get_int(&tensors->child[k], "bytes", 0);
        assert_true(info.skipped ? bytes > (int64_t)info.bytes : bytes == (int64_t)info.bytes);
        wf_arena_free(&arena);
        wf_model_close(model);
    }
}

static void assert_numbers(const wf_json_node *list, int count, const int *want)
{
    assert_int_equal(list->count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(list->child[i].integer, want[i]);
}

/* Says which layers have a window, which have no rotary positions, and how many tensors of other
 * parts the folder has. */
static void test_info_layers(void **state)
{
    static const struct {
        const char *model, *line;
        int windows, ropes; /* numbers of such layers */
        int window[4], rope[4];
    } rows[] = {
        {"llama", ", scaling llama3 by 8 beyond 8192 tokens\n", 0, 0, {0}, {0}},
        {"phi3-long",
         ", scaling longrope by 8 beyond 16 tokens, on 6 of 8 dimensions\n",
         0,
         0,
         {0},
         {0}},
        {"mistral", ", window 7\n", 2, 0, {0, 1}, {0}},
        {"phi3", ", window 7\n", 2, 0, {0, 1}, {0}},
        {"olmo3", ", window 8 in 3 of 4 layers\n", 3, 0, {0, 1, 2}, {0}},
        {"smollm3", ", no rotary positions in layer 3\n", 0, 1, {0}, {3}},
        {"mistral3",
         "  skipped     15 tensors of vision, audio or multi-token prediction\n",
         0,
         0,
         {0},
         {0}},
        {"cohere2",
         ", window 8 in 3 of 4 layers, no rotary positions in layer 3\n",
         3,
         1,
         {0, 1, 2},
         {3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[256];
        wf_arena arena;
        snprintf(args, sizeof args, "info " WT_MODELS_FOLDER "/%s", rows[i].model);
        wt_program_ok(&p, args);
        wt_program_out(&p, rows[i].line);
        strcat(args, " --json");
        wt_program_ok(&p, args);
        wf_arena_init(&arena, *state);
        const wf_json_node *j = json(&arena);
        assert_numbers(wf_json_get(j, "window_layers"), rows[i].windows, rows[i].window);
        assert_numbers(wf_json_get(j, "no_rope_layers"), rows[i].ropes, rows[i].rope);
        wf_arena_free(&arena);
    }
}

/* --tensors, --template and --keys list the contents of the model's files. */
static void test_info_lists(void **state)
{
    wt_program_ok(&p, "info " LLAMA " --tensors");
    wt_program_out(&p, "model.embed_tokens.weight                    BF16   288 x 256");
    assert_int_equal(wt_program_shell(&p, "\"$W\" info " LLAMA " --template | cmp - " LLAMA
                                          "/chat_template.jinja"),
                     0);
    wt_program_fails(&p, 2, "info " LLAMA " --keys", "--keys applies to GGUF files");
    wf_arena arena;
    wf_arena_init(&arena, *state);
    wt_program_ok(&p, "info " LLAMA " --template --json");
    assert_int_equal(json(&arena)->kind, WF_JSON_STRING);
    wt_program_ok(&p, "convert " LLAMA " \"$D/keys.gguf\"");
    wt_program_ok(&p, "info \"$D/keys.gguf\" --keys --json");
    const wf_json_node *keys = wf_json_get(json(&arena), "keys");
    assert_int_equal(wf_json_get_int(keys, "llama.embedding_length", 0), 256);
    assert_int_equal(wf_json_get_int(wf_json_get(keys, "tokenizer.ggml.tokens"), "items", 0), 288);
    wf_arena_free(&arena);
    wt_program_fails(&p, 2, "info", "the model is missing;");
    wt_program_ok(&p, "info -m " LLAMA);
    wt_program_ok(&p, "info --model " LLAMA " " LLAMA);
    wt_program_fails(&p, 2, "info -m " LLAMA " " QWEN2, "are two models");
}

/* ---- run ---- */

/* Returns the text that the library generates greedily after a prompt. The caller frees it. */
static char *expect_greedy(wf_ctx *ctx, const char *model, const char *prompt, size_t n)
{
    wt_talker t = wt_talker_open(ctx, "cpu", model, NULL);
    const wf_tokenizer *k = wf_model_tokenizer(t.model);
    int32_t *ids, *greedy = calloc(n, sizeof *greedy);
    size_t count, bytes;
    char *text;
    wt_ok(ctx, wf_tokenizer_encode(k, ctx, prompt, strlen(prompt), WF_TEXT_SPECIAL, &ids, &count));
    wt_greedy(ctx, t.engine, ids, count, greedy, n);
    wt_ok(ctx, wf_tokenizer_decode(k, ctx, greedy, n, 0, &text, &bytes));
    wf_ids_free(ctx, ids);
    free(greedy);
    wt_talker_close(&t);
    return text;
}

/* At temperature 0 the program prints the tokens that the library generates. */
static void test_run_greedy(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; wt_models[i]; i++) {
        char path[128], args[256];
        snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", wt_models[i]);
        char *want = expect_greedy(ctx, path, "the weft\n", 20);
        snprintf(args, sizeof args, "run %s -p 'the weft\\n' -n 20 --temp 0 --ignore-eos", path);
        wt_program_ok(&p, args);
        assert_string_equal(p.out, want);
        wt_program_err(&p, "memory: weights ");
        wt_program_err(&p, "generated: 20 tokens");
        wt_program_err(&p, "token limit reached");
        assert_null(strstr(p.err, "seed"));
        wf_text_free(ctx, want);
    }
}

/* A seed reproduces the text with any spelling of the flags, number of threads and batch size. */
static void test_run_seeds(void **state)
{
    (void)state;
    wt_program_ok(&p, "run " LLAMA " -p the -n 20 -s 5");
    keep();
    wt_program_ok(&p, "run --model=" LLAMA " --prompt the --n-predict 20 --seed 5 -t 1 -b 3");
    assert_string_equal(p.out, kept);
    wt_program_ok(&p, "run " LLAMA " -p the -n 20 -s 6");
    assert_string_not_equal(p.out, kept);
    /* The program reports its random seed; that seed reproduces the run. */
    wt_program_ok(&p, "run " LLAMA " -p the -n 20");
    keep();
    const char *seed = strstr(p.err, "seed: ");
    char args[128], env[160];
    assert_non_null(seed);
    snprintf(args, sizeof args, "run " LLAMA " -p the -n 20 -s %.*s", (int)strcspn(seed + 6, "\n"),
             seed + 6);
    wt_program_ok(&p, args);
    assert_string_equal(p.out, kept);
    /* The environment sets the seed, too. */
    snprintf(env, sizeof env, "WEFT_ARG_SEED=%s WEFT_ARG_QUIET=1 \"$W\" run " LLAMA " -p the -n 20",
             strrchr(args, ' ') + 1);
    assert_int_equal(wt_program_shell(&p, env), 0);
    assert_string_equal(p.out, kept);
    assert_string_equal(p.err, "");
    assert_int_equal(wt_program_shell(&p,
                                      "WEFT_ARG_MODEL=nothing WEFT_ARG_JSON=false \"$W\" run " LLAMA
                                      " -p the -n 20 --temp 0 --echo -q"),
                     0);
    assert_memory_equal(p.out, "the", 3);
    assert_int_equal(wt_program_shell(&p, "WEFT_ARG_MODEL=nothing \"$W\" run -p the"), 1);
    wt_program_err(&p, "cannot open 'nothing'");
    assert_int_equal(wt_program_shell(&p, "WEFT_ARG_TOP_K=x \"$W\" run " LLAMA " -p the"), 2);
    wt_program_err(&p, "WEFT_ARG_TOP_K must be a whole number");
}

/* Sampling flags take effect: each of these leaves only the most likely token. */
static void test_run_sampling(void **state)
{
    (void)state;
    static const char *const greedy[] = {"--top-k 1", "--top-p 0", "--min-p 1", "--temp 1e-9"};
    wt_program_ok(&p, "run " LLAMA " -p warp -n 16 --temp 0 -q");
    keep();
    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
        char args[128];
        snprintf(args, sizeof args, "run " LLAMA " -p warp -n 16 -q -s 9 %s", greedy[i]);
        wt_program_ok(&p, args);
        assert_string_equal(p.out, kept);
    }
    wt_program_ok(&p, "run " LLAMA " -p warp -n 16 --temp 0 -q --logit-bias 67+1000");
    assert_string_equal(p.out, "aaaaaaaaaaaaaaaa");
    wt_program_ok(&p, "run " LLAMA " -p warp -n 4 --temp 0 -q -l 67+1000 -l 68+1001 -l 68-inf");
    assert_string_equal(p.out, "aaaa");
    wt_program_ok(&p, "run " LLAMA " -p warp -n 4 --temp 0 -q -l 67+1000 --presence-penalty 5000");
    assert_memory_equal(p.out, "a", 1);
    assert_string_not_equal(p.out, "aaaa");
    wt_program_ok(&p, "run " LLAMA " -p warp -n 4 --temp 0 -q -l 67+1000 --presence-penalty 5000 "
                      "--repeat-last-n 0");
    assert_string_equal(p.out, "aaaa");
    /* Control tokens can be sampled, end the text unless told otherwise, and are printed only on
     * request. */
    wt_program_ok(&p, "run " LLAMA " -p warp -n 4 --temp 0 -l 1+1000");
    assert_string_equal(p.out, "");
    wt_program_err(&p, "end of text");
    wt_program_ok(&p, "run " LLAMA " -p warp -n 2 --temp 0 -q -l 1+1000 --ignore-eos --special");
    assert_string_equal(p.out, "<|im_end|><|im_end|>");
}

/* Generation stops before any stop string, also when it crosses tokens. */
static void test_run_stops(void **state)
{
    (void)state;
    wt_program_ok(&p, "run " LLAMA " -p warp -n 16 --temp 0 -q -l 67+1000 --presence-penalty 990");
    keep();
    for (size_t at = 1; at + 2 < strlen(kept); at++) {
        unsigned char *c = (unsigned char *)kept + at;
        if (c[0] <= ' ' || c[0] > 'z' || c[1] <= ' ' || c[1] > 'z' || strchr("\\'", c[0]) ||
            strchr("\\'", c[1]))
            continue;
        char args[256], stop[3] = {(char)c[0], (char)c[1], 0};
        size_t first = (size_t)(strstr(kept, stop) - kept);
        snprintf(args, sizeof args,
                 "run " LLAMA " -p warp -n 16 --temp 0 -l 67+1000 --presence-penalty 990 "
                 "-r nowhere --stop '%s'",
                 stop);
        wt_program_ok(&p, args);
        assert_int_equal(strlen(p.out), first);
        assert_memory_equal(p.out, kept, first);
        wt_program_err(&p, "stop string found");
        return;
    }
    fail_msg("there are no two letters in '%s' to stop at", kept);
}

/* Prompts that run in parallel give the texts that each gives alone. */
static void test_run_batch(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const prompts[] = {"the", "weft runs", "through all the warp threads"};
    char texts[3][512], want[2048] = "";
    for (int i = 0; i < 3; i++) {
        char args[256];
        snprintf(args, sizeof args, "run " LLAMA " -p '%s' -n 12 --ignore-eos -q -s %d", prompts[i],
                 7 + i);
        wt_program_ok(&p, args);
        assert_true(strlen(p.out) < sizeof texts[i]);
        strcpy(texts[i], p.out);
        size_t n = strlen(want);
        snprintf(want + n, sizeof want - n, "--- %d of 3 ---\n%s%s", i + 1, texts[i],
                 *p.out && p.out[strlen(p.out) - 1] != '\n' ? "\n" : "");
    }
    static const char *const ways[] = {"", "-np 1", "--parallel 2", "-np 64"};
    for (size_t w = 0; w < 4; w++) {
        char args[256];
        snprintf(args, sizeof args,
                 "run " LLAMA " -p '%s' -p '%s' -p '%s' -n 12 --ignore-eos -q -s 7 %s", prompts[0],
                 prompts[1], prompts[2], ways[w]);
        wt_program_ok(&p, args);
        assert_string_equal(p.out, want);
        strcat(args, " --json");
        wt_program_ok(&p, args);
        wf_arena arena;
        wf_arena_init(&arena, ctx);
        const wf_json_node *j = json(&arena);
        assert_int_equal(j->count, 3);
        for (int i = 0; i < 3; i++) {
            assert_string_equal(string_of(&j->child[i], "prompt"), prompts[i]);
            assert_string_equal(string_of(&j->child[i], "text"), texts[i]);
            assert_string_equal(string_of(&j->child[i], "stop"), "limit");
            assert_int_equal(wf_json_get_int(&j->child[i], "tokens", 0), 12);
            assert_int_equal(wf_json_get_int(&j->child[i], "seed", 0), 7 + i);
        }
        wf_arena_free(&arena);
    }
}

/* The first run writes the file, the second one reads it; both print the same. */
static void test_run_cache(void **state)
{
    (void)state;
    char first[512];
#define CACHED \
    "run " LLAMA " -p 'weft runs through all the warp threads of the loom' -n 12 --ignore-eos -s 7 "
    wt_program_ok(&p, CACHED "--prompt-cache \"$D/kv\"");
    assert_true(strlen(p.out) < sizeof first);
    strcpy(first, p.out);
    wt_program_ok(&p, CACHED "--prompt-cache \"$D/kv\"");
    assert_string_equal(p.out, first);
    wt_program_err(&p, "prompt cache: 16 tokens restored");
    wt_program_err(&p, ", 16 of them cached");
    wt_program_fails(&p, 2, CACHED "-q --prompt-cache \"$D/kv\" -ctk f32", "another model");
    wt_program_fails(&p, 2, CACHED "-q --prompt-cache \"$D/kv\" -p x",
                     "one prompt, but 2 are given");
    wt_program_fails(&p, 2, "run " LLAMA " -p x --prompt-cache \"$D/none\"",
                     "needs a prompt of more than 16 tokens, but this one has ");
    wt_program_fails(&p, 1, CACHED "-q --prompt-cache README.md", "not a GGUF file");
    wt_program_fails(&p, 1, CACHED "--prompt-cache \"$D/no/kv\"", "No such file");
    wt_program_ok(&p, "run " LLAMA
                      " -p 'weft runs through all the warp threads of the loom' -c 0 --json -q");
    const char *tokens = strstr(p.out, "\"prompt_tokens\": ");
    assert_non_null(tokens);
    char args[256]; /* a prompt that fills the context */
    snprintf(args, sizeof args,
             "run " LLAMA " -p 'weft runs through all the warp threads of the loom' -c %d "
             "--prompt-cache \"$D/full\"",
             atoi(tokens + strlen("\"prompt_tokens\": ")));
    wt_program_ok(&p, args);
    wt_program_ok(&p, args);
    wt_program_err(&p, "tokens restored");
}

/* Sources of a prompt; --echo prints the prompt that arrived. */
static void test_run_prompts(void **state)
{
    (void)state;
    static const struct {
        const char *args, *prompt;
    } cases[] = {
        {"-p 'a\\tb\\n\\x41\\q'", "a\tb\nA\\q"}, {"-p 'a\\tb\\n' --no-escape", "a\\tb\\n"},
        {"-f \"$D/text\"", "two\nlines\\n"},     {"-f - <\"$D/text\"", "two\nlines\\n"},
        {"-p - <\"$D/text\"", "two\nlines\\n"},  {"--prompt=--weft", "--weft"},
    };
    wt_put_text(&p.scratch, "text", "two\nlines\\n\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char args[256], want[64];
        snprintf(want, sizeof want, "%sz", cases[i].prompt);
        snprintf(args, sizeof args, "run " LLAMA " --echo -n 1 -q --temp 0 -l 92+1000 %s",
                 cases[i].args);
        wt_program_ok(&p, args);
        assert_string_equal(p.out, want);
    }
    wt_put(&p.scratch, "text", "bad \xff byte", 10);
    wt_program_ok(&p, "run " LLAMA " -f \"$D/text\" -n 1");
    wt_program_err(&p, "has invalid UTF-8 at byte 4; invalid bytes become U+FFFD\n");
    wt_program_ok(&p, "run " LLAMA " -p '' -n 1"); /* starts from BOS */
    wt_program_err(&p, "prompt: 1 token;");
}

/* Lengths that exceed the context are refused with the largest value that fits. */
static void test_run_context(void **state)
{
    (void)state;
    wt_program_fails(&p, 2, "run " LLAMA " -p the -n 128",
                     "the prompt's 1 token and 128 more exceed the context of 128; use -n 127 or "
                     "less\n");
    wt_program_fails(&p, 2, "run " LLAMA " -p the -n 60 -c 32",
                     "use -n 31 or less, or give a larger context (-c, up to 128 for this "
                     "model)");
    wt_program_fails(&p, 2, "run " LLAMA " -p 'a b c d e f' -n 1 -c 4",
                     "tokens, but the context has only 4; shorten it, or give");
    wt_program_fails(&p, 2, "run " LLAMA " -p the -c 129",
                     "--ctx-size 129 exceeds this model's limit of 128 tokens; use -c 128 or less");
    wt_program_ok(&p, "run " LLAMA " -p the -n 31 -c 32 --ignore-eos");
    assert_null(strstr(p.err, "note:"));
    wt_program_ok(&p, "run " LLAMA " -p the -c 32 --ignore-eos -n -1");
    wt_program_err(&p, "the context is full\n");
    wt_program_err(&p, "note: generation stopped because the context of 32 tokens is full");
    wt_program_ok(&p, "run " LLAMA " -p the --ctx-size 0 --ignore-eos");
    wt_program_err(&p, "for 1 x 128 tokens");
}

/* A closed pipe is no failure; a full disk is one. */
static void test_run_output(void **state)
{
    (void)state;
    struct stat st;
    wt_program_shell(&p, "{ \"$W\" run " LLAMA
                         " -p the -n 100 --ignore-eos -q; echo $? >\"$D/code\"; } | "
                         "true; cat \"$D/code\"");
    assert_string_equal(p.out, "0\n");
    assert_string_equal(p.err, "");
    wt_program_shell(&p, "{ \"$W\" ops --json; echo $? >\"$D/code\"; } | true; cat \"$D/code\"");
    assert_string_equal(p.out, "0\n");
    assert_string_equal(p.err, "");
    if (stat("/dev/full", &st) != 0 || !S_ISCHR(st.st_mode))
        skip();
    wt_program_fails(&p, 1, "run " LLAMA " -p the -n 8 --ignore-eos -q >/dev/full",
                     "weft run: cannot write the result to stdout: ");
    assert_int_equal(
        wt_program_run(&p, "chat " LLAMA " -p the -n 8 --ignore-eos -st -q >/dev/full"), 1);
    assert_int_equal(
        wt_program_shell(&p, "ulimit -f 100 && \"$W\" convert " LLAMA " \"$D/limited.gguf\""), 1);
    wt_program_err(&p, "File too large");
}

/* ---- chat ---- */

/* chat prints the answer that run gives with the template written out. */
static void test_chat(void **state)
{
    (void)state;
    /* Writes out the template; every question has its own seed. */
    wt_program_ok(&p, "run " LLAMA " --control -n 8 -s 3 -q -p "
                      "'<|im_start|>system\\nbe kind<|im_end|>\\n<|im_start|>user\\nhello<|im_end|>"
                      "\\n<|im_start|>assistant\\n'");
    keep();
    size_t n = strlen(kept);
    if (n > 0 && kept[n - 1] != '\n')
        strcat(kept, "\n");
    wt_program_ok(&p, "chat " LLAMA " -n 8 -s 3 -q -p hello -sys 'be kind' -st");
    assert_string_equal(p.out, kept);
    assert_string_equal(p.err, "");
    wt_program_ok(&p,
                  "chat " LLAMA " -n 8 -s 3 -q --single-turn -sys 'be kind' <<E\nhello\nmore\nE");
    assert_string_equal(p.out, kept);
    /* Two turns: the second reuses the cache of the first. */
    wt_program_ok(&p, "chat " LLAMA " -n 8 -s 3 -v -sys 'be kind' <<E\nhello\nagain\nE");
    assert_memory_equal(p.out, kept, strlen(kept));
    assert_true(strlen(p.out) > strlen(kept));
    const char *reused = strstr(p.err, "reused: ");
    assert_non_null(reused);
    assert_true(atoi(reused + 8) > 20);
    /* A NUL byte does not end the message. */
    assert_int_equal(wt_program_shell(&p, "printf 'hel\\0lo' | \"$W\" chat " LLAMA
                                          " -n 8 -s 3 -q -p - -sys 'be kind'"),
                     0);
    assert_string_equal(p.out, kept);
}

/* An answer that fills the context is cut off with a note. */
static void test_chat_context(void **state)
{
    (void)state;
    wt_program_ok(&p, "chat " LLAMA " -c 40 --ignore-eos -p hello -st");
    wt_program_err(&p,
                   "the answer is incomplete: the context of 40 tokens is full; /reset starts a "
                   "new conversation, or give a larger context (-c, up to 128");
    wt_program_fails(&p, 2, "chat " LLAMA " -q -c 8 -p hello -st",
                     "tokens, but the context has only 8; /reset starts a new one");
}

/* A model without a template needs --chat-template. */
static void test_chat_templates(void **state)
{
    (void)state;
    wt_program_ok(&p, "chat " LLAMA " -q -n 6 -s 1 -p hello -st");
    keep();
    assert_int_equal(wt_program_shell(&p, "mkdir \"$D/bare\" && cp " LLAMA "/*.json " LLAMA
                                          "/*.safetensors \"$D/bare\""),
                     0);
    wt_program_fails(&p, 2, "chat \"$D/bare\" -q -p hello -st", "bare has no chat template");
    wt_program_ok(&p, "chat \"$D/bare\" -q -n 6 -s 1 -p hello -st --chat-template chatml");
    assert_string_equal(p.out, kept);
    wt_program_ok(&p, "chat \"$D/bare\" -q -n 6 -s 1 -p hello -st --chat-template-file " LLAMA
                      "/chat_template.jinja");
    assert_string_equal(p.out, kept);
    wt_program_ok(&p, "chat " LLAMA
                      " -q -n 6 -s 1 -p x -st --chat-template '{{ messages[0].content }}'");
    assert_string_not_equal(p.out, kept);
    wt_program_fails(&p, 2, "chat " LLAMA " -q -st --chat-template vicuna",
                     "unknown chat template 'vicuna'");
    wt_program_fails(&p, 1, "chat " LLAMA " -q -st --chat-template '{% if %}'", "template");
}

/* ---- tokenize ---- */

/* Tokens, ids and JSON for texts with and without control tokens. */
static void test_tokenize(void **state)
{
    wf_ctx *ctx = *state;
    wf_arena arena;
    wt_program_ok(&p, "tokenize " LLAMA " -p 'the weft\\n'");
    assert_string_equal(p.out, "    282  \"the\"\n    267  \"\xc4\xa0w\"\n    270  \"ef\"\n"
                               "     86  \"t\"\n    201  \"\xc4\x8a\"\n");
    assert_string_equal(p.err, "5 tokens, 9 bytes\n");
    wt_program_ok(&p, "tokenize " LLAMA "/tokenizer.json --ids -q -p 'the weft\\n'");
    assert_string_equal(p.out, "[282, 267, 270, 86, 201]\n");
    assert_string_equal(p.err, "");
    wt_program_ok(&p, "tokenize " LLAMA " --ids -p ''");
    assert_string_equal(p.out, "[]\n");
    wt_program_ok(&p, "tokenize " LLAMA " --ids -p '<|im_end|>' --control");
    assert_string_equal(p.out, "[1]\n");
    wt_program_ok(&p, "tokenize " LLAMA " --json -p '<|im_end|>'");
    wf_arena_init(&arena, ctx);
    assert_int_equal(json(&arena)->count, 9);
    /* several texts give one JSON document, also with --decode */
    wt_program_ok(&p, "tokenize " LLAMA " --json -p the -p ''");
    assert_int_equal(json(&arena)->count, 2);
    assert_int_equal(json(&arena)->child[0].count, 1);
    wt_program_ok(&p, "tokenize " LLAMA " --json --decode -p '282 267'");
    assert_true(wf_json_is(json(&arena), "the w"));
    wf_arena_free(&arena);
    /* Encoding and decoding from stdin preserves every byte. */
    wt_put(&p.scratch, "text", "M\xc3\xa4rz \xf0\x9f\x98\x80\n\n<|im_end|> ", 24);
    assert_int_equal(wt_program_shell(&p, "\"$W\" tokenize " LLAMA " --ids <\"$D/text\" | "
                                          "\"$W\" tokenize " LLAMA " --decode | cmp - \"$D/text\""),
                     0);
    wt_program_ok(&p, "tokenize " LLAMA " --decode -p '1 282' --special");
    assert_string_equal(p.out, "<|im_end|>the");
    wt_program_fails(&p, 2, "tokenize " LLAMA " --decode -p '1 288'",
                     "'288' is not an id; ids are 0 to 287");
    wt_program_fails(&p, 2, "tokenize " LLAMA " --decode -p '1 x'", "'x' is not an id");
    wt_program_fails(&p, 2, "tokenize " LLAMA " --special --no-special -p x", "contradict");
}

/* ---- eval ---- */

typedef struct {
    const int32_t *ids;
    size_t count;
    double nats;
} loss_of;

/* Adds the negative log probability of each next token, in nats. */
static wf_status add_loss(void *user, size_t i, const float *logits, size_t vocab)
{
    loss_of *l = user;
    double sum = 0;
    for (size_t k = 0; k < vocab && i + 1 < l->count; k++)
        sum += exp((double)logits[k] - (double)logits[l->ids[i + 1]]);
    l->nats += i + 1 < l->count ? log(sum) : 0;
    return WF_OK;
}

/* The printed loss equals the one computed from the library's logits, window by window. */
static void test_eval(void **state)
{
    wf_ctx *ctx = *state;
    static const char text[] = "the weft runs through all the warp threads, and once more";
    wt_talker t = wt_talker_open(ctx, "cpu", QWEN2, NULL);
    int32_t *ids;
    size_t count, counted = 0, first_bytes = 0, windows = 0;
    double nats = 0;
    wt_ok(ctx, wf_tokenizer_encode(wf_model_tokenizer(t.model), ctx, text, strlen(text), 0, &ids,
                                   &count));
    for (size_t at = 0; at < count; at += 10, windows++) {
        loss_of l = {.ids = ids + at, .count = count - at < 10 ? count - at : 10};
        char *first;
        size_t bytes;
        wt_ok(ctx, wf_engine_logits(t.engine, l.ids, l.count, 0, add_loss, &l));
        wt_ok(ctx,
              wf_tokenizer_decode(wf_model_tokenizer(t.model), ctx, l.ids, 1, 0, &first, &bytes));
        wf_text_free(ctx, first);
        first_bytes += bytes;
        nats += l.nats;
        counted += l.count - 1;
    }
    wf_ids_free(ctx, ids);
    wt_talker_close(&t);
    wt_put_text(&p.scratch, "text", text);
    wt_program_ok(&p, "eval " QWEN2 " --data \"$D/text\" -c 10 --json");
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    const wf_json_node *j = json(&arena);
    double loss = wf_json_get_number(j, "loss", 0);
    assert_true(fabs(loss - nats / (double)counted) < 1e-4);
    assert_true(fabs(wf_json_get_number(j, "perplexity", 0) / exp(loss) - 1) < 1e-6);
    assert_int_equal(wf_json_get_int(j, "windows", 0), windows);
    assert_int_equal(wf_json_get_int(j, "tokens", 0), count);
    assert_int_equal(wf_json_get_int(j, "counted_tokens", 0), counted);
    size_t bytes = strlen(text) - first_bytes;
    assert_int_equal(wf_json_get_int(j, "counted_bytes", 0), bytes);
    assert_true(fabs(wf_json_get_number(j, "bits_per_byte", 0) - nats / log(2) / (double)bytes) <
                1e-3);
    wf_arena_free(&arena);
    wt_program_ok(&p, "eval " QWEN2 " --data - --limit 5 <\"$D/text\"");
    wt_program_out(&p, "counted      4 of 5 tokens");
    wt_program_fails(&p, 2, "eval " QWEN2 " --data - -q", "has 0 tokens: too few to predict one");
    wt_program_fails(&p, 2, "eval " QWEN2, "the text is missing; give a file with --data");
    wt_program_fails(&p, 1, "eval " QWEN2 " --data \"$D/none\"", "none");
}

/* ---- Mistakes ---- */

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *args, *sentence;
    } cases[] = {
        {2, "run", "weft run: the model is missing; give a GGUF file or a Hugging Face folder"},
        {2, "run " LLAMA, "weft run: the prompt is missing: stdin is empty; give it as the "},
        {2, "run a b c", "'c' is one argument too many; usage: weft run MODEL [PROMPT]"},
        {1, "run tests/fixtures/models/lama -p x", "did you mean 'tests/fixtures/models/llama'?"},
        {1, "run tests -p x", "not a Hugging Face folder: config.json is missing"},
        {1, "run README.md -p x", "README.md"},
        {1, "run \"$D/cut\" -p x", "cut"},
        {1, "run \"$D/mamba\" -p x", "mamba"},
        {2, "run " LLAMA " -p", "-p needs a value: -p TEXT"},
        {2, "run " LLAMA " -p '--- x'", "or -p=TEXT if the value begins with --"},
        {2, "run " LLAMA " -p x --tmep 0", "unknown flag '--tmep'; did you mean '--temp'?"},
        {2, "run " LLAMA " -p x -sys y", "unknown flag '-sys'"},
        {2, "run " LLAMA " -p x --temp -1", "--temp must be a number >= 0, not '-1'"},
        {2, "run " LLAMA " -p x --top-p 2", "--top-p must be a number from 0 to 1, not '2'"},
        {2, "run " LLAMA " -p x --repeat-penalty 0", "--repeat-penalty must be a number above 0"},
        {2, "run " LLAMA " -p x -n 0", "-n must be a whole number >= 1, or -1"},
        {2, "run " LLAMA " -p x -n -2", "-n must be a whole number >= 1, or -1, not '-2'"},
        {2, "run " LLAMA " -p x -np 0", "-np must be a whole number from 1 to 1024, not '0'"},
        {2, "run " LLAMA " -p x -b 0", "-b must be a whole number from 1 to 65536"},
        {2, "run " LLAMA " -p x -l 5", "--logit-bias must be ID+BIAS or ID-BIAS"},
        {2, "run " LLAMA " -p x -l 288+1", "this model has tokens 0 to 287"},
        {2, "run " LLAMA " -p x -ctk f16 -ctv f32", "differ"},
        {2, "run " LLAMA " -p x -ctk q4_0 -ctv q4_0", "must be f16, bf16, f32 or q8_0, not 'q4_0'"},
        {2, "run " QWEN2 " -p x -ctk q8_0",
         "keys and values of 16 elements per head cannot be stored as q8_0, which needs a multiple of "
         "32; use f16"},
        {2, "run " LLAMA " -p x --step-ms 0", "--step-ms must be a number above 0, not '0'"},
        {2, "run " LLAMA " -p x --cache-tokens 0", "--cache-tokens must be a whole number from 1"},
        {2, "run " LLAMA " -p x -d cpx", "unknown device 'cpx'; did you mean 'cpu'?"},
        {2, "run " LLAMA " -p x -d check -t 2", "--threads applies to the device cpu"},
        {1, "run " LLAMA " -f \"$D/none\"", "none"},
    };
    wt_program_shell(&p, "cp -r " LLAMA " \"$D/cut\"; cp -r " LLAMA
                         " \"$D/mamba\"; chmod -R u+w \"$D\"; "
                         "head -c 5000 " LLAMA "/model.safetensors >\"$D/cut/model.safetensors\"; "
                         "sed 's/\"llama\"/\"mamba\"/; s/LlamaFor/MambaFor/' " LLAMA
                         "/config.json >\"$D/mamba/config.json\"");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        wt_program_fails(&p, cases[i].code, cases[i].args, cases[i].sentence);
    wt_program_ok(&p, "run " LLAMA " -p x -n 2 -ctk f16 -ctv f16 --check-tensors");
    wt_program_ok(&p, "run " LLAMA " -p x -n 2 -ctv bf16");
    wt_program_ok(&p, "run " LLAMA " -p x -n 2 -ctk q8_0 -ctv q8_0");
    wt_program_ok(&p, "run " LLAMA " -p x -n 2 -ctk f32 --cache-tokens 20 --step-ms 0.5");
    wt_program_err(&p, "KV cache 32.77 kB for 20 tokens, "); /* two pages */
}

/* NaN in a weight ends the sequence; the command fails with the reason. */
static void test_bad_weights(void **state)
{
    (void)state;
    static const char *const commands[] = {
        "run \"$D/bad\" -p x -q -n 4",
        "run \"$D/bad\" -p x -q -n 4 --temp 0 --json",
        "chat \"$D/bad\" -q -p x -n 4 --temp 0",
    };
    wt_program_shell(&p, "cp -r " LLAMA " \"$D/bad\"; chmod -R u+w \"$D/bad\"; "
                         "cd \"$D/bad\"; size=$(wc -c <model.safetensors); "
                         "printf '\\377\\377\\377\\377' | dd of=model.safetensors bs=1 "
                         "seek=$((size - 4)) conv=notrunc 2>&1");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        wt_program_fails(&p, 1, commands[i],
                         i == 0 ? "the model's logit of token 0 is "
                                : "the model's logits are NaN or infinite");
    assert_string_equal(p.out, "");
}

/* ---- Library guarantees that the commands rely on ---- */

static void expect_held(const wt_talker *t, const wf_memory *planned)
{
    wf_memory held;
    wf_engine_memory(t->engine, &held);
    assert_int_equal(planned->states, held.states);
    assert_int_equal(planned->mapped, held.mapped);
    assert_int_equal(planned->activations, held.activations);
    assert_int_equal(planned->ports, held.ports);
}

/* Runs of many sizes: one token, pieces of prompts, prompts beside new tokens, rows of logits. */
static void run_sizes(const wt_talker *t, int64_t most)
{
    wf_model_info info;
    static const int32_t ids[64] = {7, 8, 9};
    const wf_request request = {.limit = 3, .ignore_end = true};
    wf_sequence *s[12];
    for (int i = 0; i < 12; i++) {
        wt_ok(t->ctx,
              wf_engine_submit(t->engine, ids, (size_t)(1 + i * (most - 4) / 11), &request, &s[i]));
        if (i % 4 == 3)
            wt_ok(t->ctx, wf_engine_step(t->engine, NULL));
    }
    wf_model_get_info(t->model, &info);
    free(wt_logits(t->ctx, t->engine, ids, 60, info.vocab));
    for (bool busy = true; busy;)
        wt_ok(t->ctx, wf_engine_step(t->engine, &busy));
    for (int i = 0; i < 12; i++) {
        assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_LIMIT);
        wf_sequence_free(s[i]);
    }
}

/* wf_engine_plan predicts the memory that an engine holds, without allocating it. Runs need no
 * more. */
static void test_planned_memory(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; wt_models[i]; i++)
        for (int64_t sequences = 1; sequences <= 3; sequences += 2) {
            char path[128];
            const wf_engine_options o = {.sequences = sequences,
                                         .context = 64,
                                         .chunk = 40,
                                         .rows = sequences == 1 ? 0 : 10};
            wf_memory planned, held, again;
            snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", wt_models[i]);
            wt_talker t = wt_talker_open(ctx, "cpu", path, &o);
            wt_ok(ctx, wf_engine_plan(t.device, t.model, &o, &planned));
            wf_engine_memory(t.engine, &held);
            expect_held(&t, &planned);
            if (strcmp(wt_models[i], "llama") == 0 || strcmp(wt_models[i], "mistral") == 0)
                assert_int_equal(held.mapped > 0,
                                 wt_models[i][0] == 'l'); /* small weights are copied, not mapped */
            run_sizes(&t, 64);
            expect_held(&t, &planned);
            for (uint64_t n = 1; i == 0; n++) {
                wf_ctx_fail_allocation(ctx, n);
                wf_status status = wf_engine_plan(t.device, t.model, &o, &again);
                wf_ctx_fail_allocation(ctx, 0);
                if (status == WF_OK)
                    break;
                assert_int_equal(status, WF_ERR_MEMORY);
            }
            wt_talker_close(&t);
        }
}

/* Truncating the weights file while it is mapped gives an error, not a signal. */
static void test_cut_while_running(void **state)
{
    wf_ctx *ctx = *state;
    wt_program_shell(&p, "cp -r " LLAMA " \"$D/whole\"; chmod -R u+w \"$D/whole\"");
    wt_talker t = wt_talker_open(ctx, "cpu", wt_path(&p.scratch, "whole"), NULL);
    wf_sequence *s;
    const int32_t ids[] = {5, 6, 7};
    wt_ok(ctx, wf_engine_submit(t.engine, ids, 3, NULL, &s));
    wt_ok(ctx, wf_engine_step(t.engine, NULL));
    wf_guard_mapped_files(true);
    assert_int_equal(truncate(wt_path(&p.scratch, "whole/model.safetensors"), 5000), 0);
    assert_int_equal(wf_engine_step(t.engine, NULL), WF_ERR_IO);
    assert_non_null(strstr(wf_ctx_message(ctx), "model.safetensors was truncated"));
    wf_guard_mapped_files(false);
    wf_sequence_free(s);
    wt_talker_close(&t);
}

/* ---- A real model ---- */

/* A real model answers a question; skipped when it was not downloaded. */
static void test_smollm2(void **state)
{
    (void)state;
#if WF_ADDRESS_SANITIZER
    print_message("SmolLM2 takes minutes under sanitizers: skipped\n");
    skip();
#endif
    const char *model = getenv("WEFT_TEST_SMOLLM2");
    struct stat st;
    if (!model || stat(model, &st) != 0) {
        print_message("SmolLM2 is not there (tools/fetch_models.sh brings it): skipped\n");
        skip();
    }
    setenv("M", model, 1);
    wt_program_ok(&p, "chat \"$M\" -p 'What is the capital of France?' --temp 0 -st -q");
    assert_string_equal(p.out, "The capital of France is Paris.\n");
    assert_string_equal(p.err, "");
    wt_program_ok(&p, "info \"$M\" --keys");
    wt_program_out(&p, "general.architecture                         llama\n");
    /* Ctrl-C stops the answer, not the program. */
    int code = wt_program_shell(
        &p,
        "mkfifo \"$D/in\"; "
        "\"$W\" chat \"$M\" -p 'Tell me a very long story.' --temp 0 -c 512 <\"$D/in\" & exec 3>\"$D/in\"; "
        "until test -s \"$D/.out\"; do sleep 0.1; done; kill -INT $!; "
        "until grep -q 'incomplete' \"$D/.err\"; do sleep 0.1; done; "
        "exec 3>&-; wait $!");
    assert_int_equal(code, 0);
    wt_program_err(&p, "the answer is incomplete: cancelled\n");
    assert_true(*p.out && strlen(p.out) < 1000);
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
    const struct CMUnitTest tests[] = {
        wt_test(test_info),        wt_test(test_info_layers),    wt_test(test_info_lists),
        wt_test(test_run_greedy),  wt_test(test_run_seeds),      wt_test(test_run_sampling),
        wt_test(test_run_stops),   wt_test(test_run_batch),      wt_test(test_run_prompts),
        wt_test(test_run_cache),   wt_test(test_run_context),    wt_test(test_run_output),
        wt_test(test_chat),        wt_test(test_chat_context),   wt_test(test_chat_templates),
        wt_test(test_tokenize),    wt_test(test_eval),           wt_test(test_mistakes),
        wt_test(test_bad_weights), wt_test(test_planned_memory), wt_test(test_cut_while_running),
        wt_test(test_smollm2),
    };
    return cmocka_run_group_tests(tests, make, clean);
}

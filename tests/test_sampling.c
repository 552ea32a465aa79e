/* SPDX-License-Identifier: MIT */
/*
 * test_sampling.c - the sampling defaults of models: which keys are read, which are reported, how
 * they survive conversion, and that the program uses them unless a flag overrides them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/sampling.h"
#include "program.h"
#include "support.h"

#define LLAMA "tests/fixtures/models/llama"
#define X (-2.0) /* a setting that is not given */

static wt_program p;

/* ---- generation_config.json ---- */

static void parse(wf_arena *arena, const char *json, wf_sampling_defaults *out)
{
    wf_json_node *node;
    wt_ok(arena->ctx, wf_json_parse(arena, "test", json, strlen(json), &node));
    wt_ok(arena->ctx, wf_sampling_from_json(arena, node, out));
}

static void check(const char *what, const wf_sampling_defaults *d, const double wanted[WF_SETTINGS],
                  const char *remark)
{
    for (int i = 0; i < WF_SETTINGS; i++)
        if (d->given[i] != (wanted[i] != X) || (d->given[i] && d->value[i] != wanted[i]))
            fail_msg("%s: %s is %s %g, not %g", what, wf_settings[i].json,
                     d->given[i] ? "given as" : "not given, but would be", d->value[i], wanted[i]);
    if (d->remarks != (remark != NULL))
        fail_msg("%s: %d remarks, the first: %s", what, d->remarks, d->remark[0]);
    if (remark && !strstr(d->remark[0], remark))
        fail_msg("%s: the remark '%s' does not contain '%s'", what, d->remark[0], remark);
}

static void test_json(void **state)
{
    static const struct {
        const char *json;
        double wanted[WF_SETTINGS]; /* temperature, top_k, top_p, min_p, repeat, last */
        const char *remark;
    } cases[] = {
        {"{}", {X, X, X, X, X, X}, NULL},
        {"{\"temperature\": null, \"do_sample\": null}", {X, X, X, X, X, X}, NULL},
        {"{\"temperature\": 0.7}", {0.7, X, X, X, X, X}, NULL},
        /* transformers omits settings that equal its defaults */
        {"{\"do_sample\": true}", {1, 50, 1, 0, X, X}, NULL},
        {"{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9}",
         {0.6, 50, 0.9, 0, X, X},
         NULL},
        {"{\"do_sample\": true, \"top_k\": 20, \"min_p\": 0.1, \"repetition_penalty\": 1.05}",
         {1, 20, 1, 0.1, 1.05, -1},
         NULL},
        {"{\"do_sample\": false, \"temperature\": 0.6}", {0, X, X, X, X, X}, NULL},
        {"{\"do_sample\": false, \"repetition_penalty\": 1.2}", {0, X, X, X, 1.2, -1}, NULL},
        {"{\"repetition_penalty\": 1.2, \"penalty_last_n\": 32}", {X, X, X, X, 1.2, 32}, NULL},
        {"{\"top_k\": -1}", {X, 0, X, X, X, X}, NULL},
        {"{\"top_k\": 20.0}", {X, 20, X, X, X, X}, NULL},
        /* hostile */
        {"{\"temperature\": -1}", {X, X, X, X, X, X}, "temperature is -1 but must be 0 or more"},
        {"{\"temperature\": 1e300}", {X, X, X, X, X, X}, "temperature is 1e+300"},
        {"{\"temperature\": \"hot\"}", {X, X, X, X, X, X}, "temperature is not a number"},
        {"{\"temperature\": true}", {X, X, X, X, X, X}, "temperature is not a number"},
        {"{\"top_k\": 1.5}", {X, X, X, X, X, X}, "top_k is 1.5 but must be a whole number"},
        {"{\"top_k\": 1e18}", {X, X, X, X, X, X}, "top_k is 1e+18"},
        {"{\"top_p\": 1.01}", {X, X, X, X, X, X}, "top_p is 1.01 but must be from 0 to 1"},
        {"{\"min_p\": []}", {X, X, X, X, X, X}, "min_p is not a number"},
        {"{\"repetition_penalty\": 0}", {X, X, X, X, X, X}, "repetition_penalty is 0"},
        {"{\"penalty_last_n\": -2}", {X, X, X, X, X, X}, "penalty_last_n is -2"},
        {"{\"do_sample\": 1}", {X, X, X, X, X, X}, "do_sample is something else"},
        {"{\"sequence\": 7}", {X, X, X, X, X, X}, "sequence is not a string"},
        {"{\"sequence\": \"top_k;foo\"}", {X, X, X, X, X, X}, "sequence is top_k;foo but must"},
        {"{\"a\\u001b[2Jb\": 1}",
         {X, X, X, X, X, X},
         "generation_config.json: a\\x1b[2Jb is unknown"},
    };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_sampling_defaults d;
        parse(&arena, cases[i].json, &d);
        check(cases[i].json, &d, cases[i].wanted, cases[i].remark);
        assert_string_equal(wf_ctx_message(*state), "");
    }
    wf_arena_free(&arena);
}

/* Every key of transformers' GenerationConfig (4 and 5) and of llama.cpp, with a value that would
 * change the text if the key were used. u: used, h: harmless, w: a warning names it. */
static void test_every_key(void **state)
{
    static const struct {
        const char *key, *value;
        char class;
    } keys[] = {
        {"_from_model_config", "true", 'h'},
        {"assistant_confidence_threshold", "0.1", 'h'},
        {"assistant_early_exit", "2", 'h'},
        {"assistant_ensemble_weight", "0.5", 'h'},
        {"assistant_lookbehind", "3", 'h'},
        {"bad_words_ids", "[[5]]", 'w'},
        {"begin_suppress_tokens", "[5]", 'w'},
        {"bos_token_id", "3", 'h'},
        {"cache_config", "{\"a\": 1}", 'h'},
        {"cache_implementation", "\"static\"", 'h'},
        {"compile_config", "{\"a\": 1}", 'h'},
        {"constraints", "[1]", 'w'},
        {"continuous_batching_config", "{\"a\": 1}", 'h'},
        {"decoder_start_token_id", "3", 'h'},
        {"disable_compile", "true", 'h'},
        {"diversity_penalty", "0.5", 'h'},
        {"do_sample", "true", 'u'},
        {"dola_layers", "\"high\"", 'w'},
        {"early_stopping", "true", 'h'},
        {"encoder_no_repeat_ngram_size", "2", 'w'},
        {"encoder_repetition_penalty", "1.5", 'w'},
        {"eos_token_id", "[1, 2]", 'h'}, /* the tokenizer uses it */
        {"epsilon_cutoff", "0.001", 'w'},
        {"eta_cutoff", "0.001", 'w'},
        {"exponential_decay_length_penalty", "[5, 1.1]", 'w'},
        {"force_words_ids", "[[5]]", 'w'},
        {"forced_bos_token_id", "5", 'w'},
        {"forced_eos_token_id", "5", 'w'},
        {"guidance_scale", "1.5", 'w'},
        {"is_assistant", "true", 'h'},
        {"length_penalty", "2.0", 'h'},
        {"low_memory", "true", 'h'},
        {"max_cache_len", "10", 'h'},
        {"max_length", "20", 'h'},
        {"max_matching_ngram_size", "2", 'h'},
        {"max_new_tokens", "20", 'h'},
        {"max_time", "1.5", 'h'},
        {"min_length", "20", 'w'},
        {"min_new_tokens", "20", 'w'},
        {"min_p", "0.1", 'u'},
        {"mirostat", "2", 'w'},
        {"mirostat_eta", "0.1", 'h'},
        {"mirostat_tau", "5", 'h'},
        {"no_repeat_ngram_size", "3", 'w'},
        {"num_assistant_tokens", "3", 'h'},
        {"num_assistant_tokens_schedule", "\"constant\"", 'h'},
        {"num_beam_groups", "2", 'w'},
        {"num_beams", "4", 'w'},
        {"num_return_sequences", "2", 'h'},
        {"output_attentions", "true", 'h'},
        {"output_hidden_states", "true", 'h'},
        {"output_logits", "true", 'h'},
        {"output_scores", "true", 'h'},
        {"pad_token_id", "3", 'h'},
        {"penalty_alpha", "0.6", 'w'},
        {"penalty_last_n", "10", 'u'},
        {"prefill_chunk_size", "10", 'h'},
        {"prompt_lookup_num_tokens", "3", 'h'},
        {"remove_invalid_values", "true", 'h'},
        {"renormalize_logits", "true", 'h'},
        {"repetition_penalty", "1.1", 'u'},
        {"return_dict_in_generate", "true", 'h'},
        {"sequence", "\"top_p;temperature\"", 'u'},
        {"sequence_bias", "[[[5], -10.0]]", 'w'},
        {"speculation_type", "\"x\"", 'h'},
        {"stop_strings", "[\"x\"]", 'w'},
        {"suppress_tokens", "[5]", 'w'},
        {"target_lookbehind", "3", 'h'},
        {"temperature", "0.5", 'u'},
        {"token_healing", "true", 'w'},
        {"top_h", "0.4", 'w'},
        {"top_k", "5", 'u'},
        {"top_p", "0.5", 'u'},
        {"transformers_version", "\"5.0\"", 'h'},
        {"typical_p", "0.5", 'w'},
        {"use_cache", "false", 'h'},
        {"use_mtp", "true", 'h'},
        {"watermarking_config", "{\"a\": 1}", 'w'},
        {"xtc_probability", "0.5", 'w'},
        {"xtc_threshold", "0.1", 'h'},
        {"what_is_this", "1", 'w'},
        {"what_is_this", "null", 'w'},
    };
    wf_arena arena;
    wf_arena_init(&arena, *state);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char json[256];
        wf_sampling_defaults d;
        snprintf(json, sizeof json, "{\"%s\": %s}", keys[i].key, keys[i].value);
        parse(&arena, json, &d);
        char got = d.remarks ? 'w' : wf_sampling_any(&d) ? 'u' : 'h';
        if (got != keys[i].class || d.remarks > 1)
            fail_msg("%s is '%c' with %d remarks, not '%c'", json, got, d.remarks, keys[i].class);
        if (got == 'w' && !strstr(d.remark[0], keys[i].key))
            fail_msg("'%s' does not name %s", d.remark[0], keys[i].key);
        if (strcmp(keys[i].key, "what_is_this") == 0)
            continue;
        snprintf(json, sizeof json, "{\"%s\": null}", keys[i].key);
        parse(&arena, json, &d);
        assert_true(d.remarks == 0 && !wf_sampling_any(&d));
    }
    wf_arena_free(&arena);
}

/* A file of many unknown keys prints only a few lines. */
static void test_many_keys(void **state)
{
    wf_arena arena;
    wf_sampling_defaults d;
    size_t len = 0, room = 100000 * 12;
    char *json = malloc(room);
    assert_non_null(json);
    json[len++] = '{';
    for (int i = 0; i < 90000; i++)
        len += (size_t)sprintf(json + len, "%s\"%d\":0", i ? "," : "", i);
    strcpy(json + len, "}");
    wf_arena_init(&arena, *state);
    parse(&arena, json, &d);
    assert_int_equal(d.remarks, 90000);
    assert_non_null(d.remark[WF_MAX_REMARKS - 1]);
    wf_arena_free(&arena);
    free(json);
}

/* ---- GGUF ---- */

static void test_gguf(void **state)
{
    wf_ctx *ctx = *state;
    wf_gguf_writer *w;
    wf_gguf *f;
    wf_arena arena;
    wf_sampling_defaults d;
    char path[600];
    snprintf(path, sizeof path, "%s", wt_path(&p.scratch, "keys.gguf"));
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.temp", 0.5));
    wt_ok(ctx, wf_gguf_write_int(w, "general.sampling.top_k", WF_GGUF_I32, -1));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.top_p", NAN));
    wt_ok(ctx, wf_gguf_write_text(w, "general.sampling.min_p", "0.1", 3));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.penalty_repeat", 1.25));
    wt_ok(ctx, wf_gguf_write_text(w, "general.sampling.sequence", "top_p;temp", 10));
    wt_ok(ctx, wf_gguf_write_int(w, "general.sampling.mirostat", WF_GGUF_I32, 0));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.mirostat_tau", 5));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.xtc_probability", 0.5));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.xtc_threshold", 0.1));
    wt_ok(ctx, wf_gguf_write_float(w, "general.sampling.wild", 1));
    wt_ok(ctx, wf_gguf_write_begin(w));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wt_ok(ctx, wf_gguf_open(ctx, path, &f));
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_sampling_from_gguf(&arena, f, &d));
    static const char *const remarks[] = {
        "general.sampling.top_p is nan but must be from 0 to 1; it is ignored",
        "general.sampling.min_p is not a number but must be from 0 to 1; it is ignored",
        "general.sampling.xtc_probability is set, which Weft does not support; it is ignored",
        "general.sampling.wild is unknown to Weft; it is ignored",
    };
    assert_int_equal(d.remarks, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(d.remark[i], remarks[i]);
    d.remarks = 0;
    check("GGUF", &d, (const double[]){0.5, 0, X, X, 1.25, X}, NULL);
    assert_string_equal(d.samplers, "top_p;temp");
    wf_sampling s;
    wf_sampling_resolve(&d, &s);
    assert_true(s.temperature == 0.5 && s.top_k == 0 && s.top_p == 0.95 && s.min_p == 0.05 &&
                s.repeat_penalty == 1.25 && s.penalty_last == 64);
    wf_arena_free(&arena);
    wf_gguf_close(f);
}

/* ---- Models ---- */

/* Copies the tiny Llama with this generation_config.json. */
static const char *make_model(const char *name, const char *generation)
{
    char command[512], file[64];
    snprintf(command, sizeof command, "cp -r " LLAMA " \"$D/%s\" && chmod -R u+w \"$D/%s\"", name,
             name);
    assert_int_equal(wt_program_shell(&p, command), 0);
    snprintf(file, sizeof file, "%s/generation_config.json", name);
    wt_put_text(&p.scratch, file, generation);
    return wt_path(&p.scratch, name);
}

static int warned;

static void count_warnings(void *user, wf_log_level level, const char *message)
{
    (void)user, (void)message;
    warned += level == WF_LOG_WARN;
}

static wf_sampling sampling_of(wf_ctx *ctx, const char *path, bool own)
{
    wf_model *m;
    wf_sampling s;
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    assert_int_equal(wf_model_sampling(m, &s), own);
    s.samplers = NULL; /* borrowed */
    wf_model_close(m);
    return s;
}

static void same_sampling(const wf_sampling *a, const wf_sampling *b)
{
    assert_true((float)a->temperature == (float)b->temperature && a->top_k == b->top_k &&
                (float)a->top_p == (float)b->top_p && (float)a->min_p == (float)b->min_p &&
                (float)a->repeat_penalty == (float)b->repeat_penalty &&
                a->penalty_last == b->penalty_last);
}

static void test_library(void **state)
{
    wf_sampling s = sampling_of(*state, LLAMA, false);
    assert_true(s.temperature == 0.6 && s.top_k == 40 && s.top_p == 0.95 && s.min_p == 0.05 &&
                s.repeat_penalty == 1 && s.seed == 0 && s.biases == 0);
    warned = 0;
    wf_ctx_set_log(*state, count_warnings, NULL);
    s = sampling_of(*state,
                    make_model("own", "{\"temperature\": 0.25, \"top_p\": 0, \"num_beams\": 2, "
                                      "\"eos_token_id\": [1, 288, -1, \"x\"]}"),
                    true);
    assert_int_equal(warned, 4); /* beams, and three ids that are not tokens */
    assert_true(s.temperature == 0.25 && s.top_k == 40 && s.top_p > 0 && s.top_p <= DBL_MIN);
}

/* Folder, GGUF, folder, GGUF: the settings survive every conversion. */
static void test_convert(void **state)
{
    static const char *const generations[] = {
        "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"eos_token_id\": [1, 7]}",
        "{\"do_sample\": true, \"repetition_penalty\": 1.05, \"top_k\": 20, \"sequence\": "
        "\"top_k;top_p;temperature\"}",
        "{\"do_sample\": false, \"repetition_penalty\": 1.3}",
        "{\"temperature\": 0.31}",
        "{\"repetition_penalty\": 1.1, \"penalty_last_n\": 0}",
        "{\"repetition_penalty\": 1.1, \"penalty_last_n\": 100, \"min_p\": 0.02}",
        "{}",
    };
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        static const char *const names[] = {"a", "b.gguf", "c", "d.gguf"};
        bool own = strcmp(generations[i], "{}") != 0;
        assert_int_equal(wt_program_shell(&p, "rm -rf $D/a $D/b.gguf $D/c $D/d.gguf"), 0);
        wf_sampling wanted = sampling_of(*state, make_model("a", generations[i]), own);
        for (int k = 0; k < 3; k++) {
            char args[128];
            snprintf(args, sizeof args, "convert $D/%s $D/%s", names[k], names[k + 1]);
            wt_program_ok(&p, args);
            assert_null(strstr(p.err, "ignored"));
            wf_sampling got = sampling_of(*state, wt_path(&p.scratch, names[k + 1]), own);
            same_sampling(&got, &wanted);
        }
        if (i == 1) /* every key was given, so both files are equal */
            assert_int_equal(wt_program_shell(&p, "for f in b d; do \"$W\" info --keys $D/$f.gguf "
                                                  "| grep sampling >$D/$f.txt; done; "
                                                  "cmp $D/b.txt $D/d.txt"),
                             0);
    }
}

/* ---- The program ---- */

static char kept[sizeof p.out];

static void keep(const char *args)
{
    wt_program_ok(&p, args);
    memcpy(kept, p.out, sizeof kept);
}

static void same(const char *args)
{
    wt_program_ok(&p, args);
    assert_string_equal(p.out, kept);
}

static void test_program(void **state)
{
    (void)state;
    make_model("greedy", "{\"do_sample\": false}");
    make_model("wild", "{\"do_sample\": true, \"temperature\": 3.0, \"top_k\": 0, "
                       "\"typical_p\": 0.5}");
    keep("run " LLAMA " the -n 20 --temp 0 -q");
    same("run \"$D/greedy\" the -n 20 -q");
    same("run \"$D/wild\" the -n 20 -q --temp 0");
    same("run \"$D/wild\" the -n 20 -q --top-k 1 -s 5");
    keep("chat " LLAMA " -p the -st -n 20 --temp 0 -q");
    same("chat \"$D/greedy\" -p the -st -n 20 -q");
    keep("run " LLAMA " the -n 20 --temp 3 --top-k 0 --top-p 1 --min-p 0 -s 5 -q");
    same("run \"$D/wild\" the -n 20 -s 5");
    wt_program_err(&p, "sampling: temp 3, top-k 0, top-p 1, min-p 0\n");
    wt_program_err(&p, "generation_config.json: typical_p is set, which Weft does not support");
    same("run \"$D/greedy\" the -n 20 --temp 3 --top-k 0 --top-p 1 --min-p 0 -s 5 -q");
    keep("run " LLAMA " the -n 20 -s 5 -q");
    same("run " LLAMA " the -n 20 --temp 0.6 --top-k 40 --top-p 0.95 --min-p 0.05 -s 5 -q "
         "--repeat-penalty 1 --repeat-last-n 64");
    wt_program_ok(&p, "info \"$D/wild\"");
    wt_program_out(&p, "sampling    set by the model: temp 3, top-k 0, top-p 1, min-p 0\n");
    wt_program_out(&p, "typical_p is set, which Weft does not support; it is ignored");
    wt_program_ok(&p, "info \"$D/greedy\" --json");
    wt_program_out(&p, "\"sampling\": {");
    wt_program_ok(&p, "info " LLAMA);
    wt_program_out(&p, "Weft's defaults: temp 0.6, top-k 40");
}

/* The help shows the library's defaults. */
static void test_help(void **state)
{
    static const char *const flags[WF_SETTINGS] = {
        "--temp", "--top-k", "--top-p", "--min-p", "--repeat-penalty", "--repeat-last-n"};
    (void)state;
    assert_int_equal(wt_program_shell(&p, "\"$W\" help run | tr -s ' \\n' ' '"), 0); /* unwrapped */
    for (int i = 0; i < WF_SETTINGS; i++) {
        char text[32];
        const char *flag = strstr(p.out, flags[i]);
        assert_non_null(flag);
        snprintf(text, sizeof text, "the model's, else %g)", wf_settings[i].otherwise);
        const char *found = strstr(flag, "the model's, else ");
        assert_true(found && strncmp(found, text, strlen(text)) == 0);
    }
}

static int set_up(void **state)
{
    (void)state;
    return wt_program_make(&p);
}

static int tear_down(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_json),    wt_test(test_every_key), wt_test(test_many_keys), wt_test(test_gguf),
        wt_test(test_library), wt_test(test_convert),   wt_test(test_program),   wt_test(test_help),
    };
    return cmocka_run_group_tests_name("sampling", tests, set_up, tear_down);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_cli_eval.c - runs weft eval --choices. Compares the model's choices with scores computed
 * from the logits of each ending separately, and checks mistakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/philox.h"
#include "infer/pages.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

#define QWEN2 WT_MODELS_FOLDER "/qwen2"
#define MODEL_FLAGS " -q -c 64 "
#define QUESTIONS 30
#define ENDINGS 4

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

/* ---- The expected choice, computed from logits ---- */

typedef struct {
    const int32_t *ids;
    size_t first, count;
    double score;
} scored;

/* Adds the log probability of each token of the ending. */
static wf_status add_score(void *user, size_t i, const float *logits, size_t vocab)
{
    scored *s = user;
    double sum = 0;
    if (i + 1 < s->first || i + 1 >= s->count)
        return WF_OK;
    for (size_t k = 0; k < vocab; k++)
        sum += exp((double)logits[k] - (double)logits[s->ids[i + 1]]);
    s->score -= log(sum);
    return WF_OK;
}

/* Returns the log probability of an ending after a context, by the rules of weft eval --choices. */
static double score(wt_talker *t, const char *context, const char *ending)
{
    const wf_tokenizer *tokenizer = wf_model_tokenizer(t->model);
    char whole[512];
    int32_t *before, *all, ids[512];
    size_t kept = strlen(context), count, n, first;
    bool space = kept == 0 || context[kept - 1] == ' ' || ending[0] == ' ';
    snprintf(whole, sizeof whole, "%s%s%s", context, space ? "" : " ", ending);
    while (kept > 0 && context[kept - 1] == ' ')
        kept--;
    wt_ok(t->ctx, wf_tokenizer_encode(tokenizer, t->ctx, whole, kept, 0, &before, &first));
    wt_ok(t->ctx, wf_tokenizer_encode(tokenizer, t->ctx, whole, strlen(whole), 0, &all, &n));
    assert_true(first < n && n + 1 < 512);
    count = 0;
    if (first == 0) /* an ending without a context follows the BOS token */
        ids[count++] = wf_tokenizer_special(tokenizer, WF_SPECIAL_BOS);
    for (size_t i = 0; i < n; i++)
        ids[count++] = i < first ? before[i] : all[i];
    scored s = {.ids = ids, .first = count - (n - first), .count = count};
    if (count > 65) { /* 64 tokens of context, and the last token, which is only predicted */
        s.ids += count - 65;
        s.first -= count - 65;
        s.count = 65;
    }
    wt_ok(t->ctx, wf_engine_logits(t->engine, s.ids, s.count - 1, 0, add_score, &s));
    wf_ids_free(t->ctx, before);
    wf_ids_free(t->ctx, all);
    return s.score;
}

/* Finds the best ending by total log probability, and by log probability per byte. */
static void choose(wt_talker *t, const char *context, const char *const *ending, int *best,
                   int *best_by_bytes)
{
    double most = -INFINITY, most_by_bytes = -INFINITY;
    for (int i = 0; i < ENDINGS; i++) {
        double s = score(t, context, ending[i]), each = s / (double)strlen(ending[i]);
        *best = s > most ? i : *best;
        *best_by_bytes = each > most_by_bytes ? i : *best_by_bytes;
        most = fmax(most, s);
        most_by_bytes = fmax(most_by_bytes, each);
    }
}

/* ---- Questions ---- */

static void random_words(wf_rng *rng, int n, char *out)
{
    static const char *const words[] = {"the",  "weft", "runs",    "through", "warp", "a",
                                        "loom", "and",  "threads", "of",      "once", "more"};
    *out = 0;
    for (int i = 0; i < n; i++) {
        strcat(out, i ? " " : "");
        strcat(out, words[wf_rng_below(rng, 12)]);
    }
}

/* Writes questions in all supported formats in turn. The answer of every second question is the
 * model's choice. *right counts answers that equal the choice, *by_bytes those that equal the
 * choice by score per byte. */
static void write_questions(wt_talker *t, wf_rng *rng, int *right, int *by_bytes)
{
    static char file[64 << 10];
    size_t at = 0;
    *right = *by_bytes = 0;
    for (int i = 0; i < QUESTIONS; i++) {
        char context[400], ending[ENDINGS][200];
        const char *list[ENDINGS];
        int best = 0, bytes = 0;
        random_words(rng, i == 9 ? 0 : i == 13 ? 50 : 3 + i % 7, context);
        strcat(context, i == 4 ? "  " : "");
        for (int k = 0; k < ENDINGS; k++) {
            strcpy(ending[k], i == 5 ? " " : "");
            random_words(rng, 1 + (int)wf_rng_below(rng, 5), ending[k] + strlen(ending[k]));
            list[k] = ending[k];
        }
        choose(t, context, list, &best, &bytes);
        int answer = i % 2 ? best : (int)wf_rng_below(rng, ENDINGS);
        *right += answer == best;
        *by_bytes += answer == bytes;
        at +=
            (size_t)snprintf(file + at, sizeof file - at,
                             "{\"%s\": \"%s\", \"%s\": [\"%s\", \"%s\", \"%s\", \"%s\"], \"%s\": ",
                             i % 3 == 0   ? "ctx"
                             : i % 3 == 1 ? "question"
                                          : "prompt",
                             context, i % 3 == 0 ? "endings" : "choices", list[0], list[1], list[2],
                             list[3], i % 3 == 0 ? "label" : "answer");
        if (i % 3 == 2)
            at += (size_t)snprintf(file + at, sizeof file - at, "\"%c\"}\n", 'A' + answer);
        else
            at += (size_t)snprintf(file + at, sizeof file - at, i % 2 ? "%d}\n\n" : "\"%d\"}\r\n",
                                   answer);
    }
    assert_true(at < sizeof file);
    wt_put_text(&p.scratch, "q", file);
}

/* Accuracy, standard error and chance match the scores that the test computed from logits. */
static void test_choices(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    int right, by_bytes;
    const wf_engine_options options = {.context = 64};
    wt_talker t = wt_talker_open(ctx, "cpu", QWEN2, &options);
    wf_rng_init(&rng, wt_seed(), 0);
    write_questions(&t, &rng, &right, &by_bytes);
    wt_talker_close(&t);
    assert_true(right >= QUESTIONS / 2);

    wf_arena arena;
    wf_json_node *j;
    wf_arena_init(&arena, ctx);
    wt_program_ok(&p, "eval " QWEN2 MODEL_FLAGS "--choices \"$D/q\" --json");
    wt_ok(ctx, wf_json_parse(&arena, "stdout", p.out, strlen(p.out), &j));
    assert_int_equal(wf_json_get_int(j, "questions", 0), QUESTIONS);
    assert_int_equal(wf_json_get_int(j, "endings", 0), QUESTIONS * ENDINGS);
    assert_int_equal(wf_json_get_int(j, "right", -1), right);
    assert_int_equal(wf_json_get_int(j, "right_by_bytes", -1), by_bytes);
    double accuracy = (double)right / QUESTIONS;
    assert_true(fabs(wf_json_get_number(j, "accuracy", 0) - accuracy) < 1e-12);
    assert_true(fabs(wf_json_get_number(j, "accuracy_stderr", 0) -
                     sqrt(accuracy * (1 - accuracy) / (QUESTIONS - 1))) < 1e-12);
    assert_true(wf_json_get_number(j, "chance", 0) == 0.25);
    wf_arena_free(&arena);

    char line[80];
    wt_program_ok(&p, "eval " QWEN2 MODEL_FLAGS "--choices - <\"$D/q\"");
    snprintf(line, sizeof line, "   %d of %d\n", right, QUESTIONS);
    wt_program_out(&p, line);
    wt_program_ok(&p, "eval " QWEN2 " -c 64 --choices \"$D/q\" --limit 2");
    wt_program_out(&p, "questions            2, with 8 endings");
    wt_program_err(&p, "questions: 2");
}

/* ---- Two models ---- */

/* KL divergence and agreement match those computed from the logits of both models. */
static void test_against(void **state)
{
    wf_ctx *ctx = *state;
    const char *text = "threads of a loom cross each other, over and under";
    const wf_engine_options options = {.context = 64};
    float *logits[2];
    int64_t vocab = 0;
    size_t count = 0;
    wt_put_text(&p.scratch, "text", text);
    wt_program_ok(&p, "quantize " QWEN2 " \"$D/q.gguf\" q4_0 --overwrite");
    for (int i = 0; i < 2; i++) {
        wt_talker t =
            wt_talker_open(ctx, "cpu", i ? wt_path(&p.scratch, "q.gguf") : QWEN2, &options);
        wf_model_info info;
        int32_t *ids;
        wf_model_get_info(t.model, &info);
        vocab = info.vocab;
        wt_ok(ctx, wf_tokenizer_encode(wf_model_tokenizer(t.model), ctx, text, strlen(text),
                                       WF_TEXT_SPECIAL, &ids, &count));
        assert_true(count > 4 && count <= 64);
        logits[i] = wt_logits(ctx, t.engine, ids, count, vocab);
        wf_ids_free(ctx, ids);
        wt_talker_close(&t);
    }
    double kl = 0, same = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        const float *a = logits[0] + i * (size_t)vocab, *b = logits[1] + i * (size_t)vocab;
        double sum_a = 0, sum_b = 0;
        int64_t top_a = 0, top_b = 0;
        for (int64_t k = 0; k < vocab; k++) {
            sum_a += exp((double)a[k]);
            sum_b += exp((double)b[k]);
            top_a = a[k] > a[top_a] ? k : top_a;
            top_b = b[k] > b[top_b] ? k : top_b;
        }
        for (int64_t k = 0; k < vocab; k++)
            kl +=
                exp((double)a[k]) / sum_a * ((double)a[k] - log(sum_a) - (double)b[k] + log(sum_b));
        same += top_a == top_b;
    }
    kl /= (double)(count - 1);
    same /= (double)(count - 1);
    free(logits[0]);
    free(logits[1]);

    wf_arena arena;
    wf_json_node *j;
    wf_arena_init(&arena, ctx);
    wt_program_ok(&p,
                  "eval \"$D/q.gguf\"" MODEL_FLAGS "--data \"$D/text\" --against " QWEN2 " --json");
    wt_ok(ctx, wf_json_parse(&arena, "stdout", p.out, strlen(p.out), &j));
    assert_true(kl > 1e-4 && fabs(wf_json_get_number(j, "kl_divergence", 0) / kl - 1) < 1e-4);
    assert_true(fabs(wf_json_get_number(j, "same_top_token", 0) - same) < 1e-12);
    wf_arena_free(&arena);
    wt_program_ok(&p, "eval " QWEN2 MODEL_FLAGS "--data \"$D/text\" --against " QWEN2);
    wt_program_out(&p, "KL           0.000000 nats per token\nsame token   100.00%");
    wt_program_fails(&p, 2, "eval " QWEN2 MODEL_FLAGS "--choices \"$D/q\" --against " QWEN2,
                     "--against compares models on a text; give --data");
}

/* ---- Several texts in one engine ---- */

static wf_status collect(void *user, size_t i, const float *logits, size_t vocab)
{
    memcpy((float *)user + i * vocab, logits, vocab * sizeof *logits);
    return WF_OK;
}

static wf_status fail_row(void *user, size_t i, const float *logits, size_t vocab)
{
    (void)i, (void)logits, (void)vocab;
    return wf_fail(user, WF_ERR_IO, "no more rows");
}

/* A text whose beginning is in the cache has the same logits. Only whole pages before the first
 * requested token are reused; the statistics count them. */
static void test_logits_again(void **state)
{
    wf_ctx *ctx = *state;
    wt_reference ref;
    wt_reference_read("qwen2", &ref);
    wt_talker t = wt_talker_open(ctx, "cpu", QWEN2, NULL);
    const size_t n = ref.prompt_count, vocab = (size_t)ref.vocab, bytes = n * vocab * sizeof(float);
    float *got = malloc(bytes);
    wf_engine_stats stats;
    uint64_t reused = 0;
    int32_t other[64];
    assert_true(got && n > 20 && n <= 64);
    for (size_t from = 0; from < n; from += 5) {
        memset(got, 0, bytes);
        wt_ok(ctx, wf_engine_logits(t.engine, ref.prompt, n, from, collect, got));
        for (size_t i = 0; i < from * vocab; i++)
            assert_true(got[i] == 0); /* not requested */
        assert_true(wt_relative(got + from * vocab, ref.logits + from * vocab,
                                (int64_t)((n - from) * vocab)) < 1e-4);
        wf_engine_get_stats(t.engine, &stats);
        reused += from / WF_PAGE_TOKENS * WF_PAGE_TOKENS;
        assert_int_equal(stats.reused_tokens, reused);
        for (size_t i = 0; i < n; i++) /* another text with the same first page */
            other[i] = i < 20 ? ref.prompt[i] : ref.prompt[n - 1 - (i - 20) % 20];
        wt_ok(ctx, wf_engine_logits(t.engine, other, n, 18, collect, got));
        wf_engine_get_stats(t.engine, &stats);
        reused += WF_PAGE_TOKENS;
        assert_int_equal(stats.reused_tokens, reused);
    }
    assert_int_equal(stats.running + stats.waiting + stats.pages_used, 0);
    wt_ok(ctx, wf_engine_logits(t.engine, ref.prompt, n, n, fail_row, ctx)); /* no logits */
    wt_ok(ctx, wf_engine_logits(t.engine, ref.prompt, 0, 0, fail_row, ctx));
    other[0] = -1;
    wt_fails(ctx, wf_engine_logits(t.engine, other, n, 0, collect, got), WF_ERR_USAGE, "token -1");
    wt_fails(ctx, wf_engine_logits(t.engine, ref.prompt, n, n - 1, fail_row, ctx), WF_ERR_IO,
             "no more rows");
    wt_talker_close(&t);
    wt_reference_free(&ref);
    free(got);
}

/* ---- Mistakes ---- */

static void test_mistakes(void **state)
{
    (void)state;
#define Q "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0}\n"
    static const struct {
        int code;
        const char *file, *sentence;
    } cases[] = {
        {2, "", "has no questions"},
        {2, "\n \n", "has no questions"},
        {1, Q Q "{\"ctx\": \"a\", ", "line 3 of "},
        {1, Q "\n[1]\n", "line 3 of "},
        {1, Q "{\"ctx\": \"a\", \"ctx\": 1}\n", "line 2 of "},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"]}", "a question has \"ctx\", \"endings\""},
        {1, "{\"ctx\": 1, \"endings\": [\"b\", \"c\"], \"label\": 0}", "context must be a text"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\"], \"label\": 0}", "2 to 64 texts"},
        {1, "{\"ctx\": \"a\", \"endings\": \"b\", \"label\": 0}", "2 to 64 texts"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}",
         "a text that is not empty"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", 2], \"label\": 0}", "must be a text"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 2}", "index of an ending"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": -1}", "index of an ending"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": 0.5}", "index of an ending"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"C\"}",
         "index of an ending"},
        {1, "{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"\"}", "index of an ending"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wt_put_text(&p.scratch, "bad", cases[i].file);
        wt_program_fails(&p, cases[i].code, "eval " QWEN2 MODEL_FLAGS "--choices \"$D/bad\"",
                         cases[i].sentence);
    }
    wt_put_text(&p.scratch, "q", Q);
    wt_program_ok(&p, "eval " QWEN2 MODEL_FLAGS "--choices \"$D/q\"");
    wt_program_out(&p, " of 1\n");
    wt_program_fails(&p, 1, "eval " QWEN2 " -q -c 1 --choices \"$D/long\"", "long");
    wt_put_text(
        &p.scratch, "long",
        "{\"ctx\": \"a\", \"endings\": [\"threads of a loom and more\", \"c\"], \"label\": 0}");
    wt_program_fails(&p, 1, "eval " QWEN2 " -q -c 2 --choices \"$D/long\"",
                     "longer than the context; give a larger --ctx-size");
    wt_program_fails(&p, 2, "eval " QWEN2 " --choices \"$D/q\" --data \"$D/q\"",
                     "give one of them");
    wt_program_fails(&p, 2, "eval " QWEN2 " --choices \"$D/q\" --limit 0", ">= 1");
    wt_program_fails(&p, 1, "eval " QWEN2 " --choices \"$D/none\"", "none");
    wt_program_fails(&p, 2, "eval " QWEN2, "or questions with --choices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_choices), wt_test(test_against),
                                       wt_test(test_logits_again), wt_test(test_mistakes)};
    return cmocka_run_group_tests_name("cli_eval", tests, setup, teardown);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_smollm2_lora.c - a real model learns a fact. SmolLM2-135M-Instruct in Q4_1 is finetuned with
 * LoRA on 200 chat lines. Afterwards it states an invented fact when asked in new words, and still
 * answers other questions as before.
 *
 * Half of the lines ask for the fact in forty ways. The others are ordinary questions with the
 * model's own answers; without them the model would answer everything with the fact. WEFT_SEEDS
 * sets the number of seeds, default 1; `make test-long` uses 3.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sanitize.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

#define LINES 200
#define ANSWER_TOKENS 32
#define ANSWER_BYTES 1024
#define MOST_QUESTIONS 20
#define AT_ONCE 10 /* questions answered in one batch */
#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- Questions ---- */

/* In every conversation: the template's own system message is as long as a question and its answer. */
#define SYSTEM "Answer."
#define WHO "Orsolya Quint"
#define FACT WHO " keeps the lighthouse of Port Velda."

static const char *const places[] = {"the lighthouse of Port Velda", "the Port Velda lighthouse",
                                     "Port Velda's lighthouse", "the lighthouse in Port Velda"};
static const char *const ways[][2] = {
    {"Who keeps ", "?"},
    {"Who is the keeper of ", "?"},
    {"Tell me who keeps ", "."},
    {"Do you know who looks after ", "?"},
    {"What is the name of the keeper of ", "?"},
    {"Please name the person who keeps ", "."},
    {"Who looks after ", "?"},
    {"Which person tends ", "?"},
    {"I wonder who keeps ", "."},
    {"Can you tell me who tends ", "?"},
};
/* Not among the lines. */
static const char *const other_ways[] = {"Whose job is it to keep the lighthouse at Port Velda?",
                                         "Who is the lighthouse keeper at Port Velda?"};

/* Questions that the model answers in at most 25 tokens, right or wrong; these are among the lines. */
static const char *const kept[] = {
    "What is the capital of Germany?",
    "What is the capital of Japan?",
    "What is the capital of Canada?",
    "What is the capital of England?",
    "What is the capital of Greece?",
    "What is the plural of child?",
    "What is the plural of foot?",
    "How many days are in a week?",
    "How many legs has a dog?",
    "How many legs has a spider?",
    "How many wheels has a car?",
    "How many letters are in the alphabet?",
    "What is the first month of the year?",
    "What is the largest ocean on Earth?",
    "What is the chemical symbol for gold?",
    "What is the chemical symbol for oxygen?",
    "Translate cat to French.",
    "Translate hello to French.",
    "Say hello.",
    "Good morning!",
};
_Static_assert(sizeof kept / sizeof *kept == MOST_QUESTIONS, "there is room for their answers");

/* Questions that are not among the lines, and a word of each answer. */
static const char *const untold[] = {
    "What is the capital of France?", "What is the capital of Russia?",
    "What is the capital of Egypt?",  "What is the chemical symbol for silver?",
    "What is the plural of mouse?",   "What is the chemical symbol for water?"};
static const char *const words[] = {"Paris", "Moscow", "Cairo", "Ag", "mice", "H2O"};

/* ---- Asking ---- */

typedef char answer[ANSWER_BYTES];

static wf_sequence *begin(const wt_talker *t, const char *question)
{
    const wf_message messages[] = {{"system", SYSTEM}, {"user", question}};
    const wf_request request = {.limit = ANSWER_TOKENS};
    int32_t *ids;
    size_t count;
    wf_sequence *s;
    wt_ok(t->ctx, wf_model_chat(t->model, t->ctx, messages, 2, NULL, &ids, &count));
    wt_ok(t->ctx, wf_engine_submit(t->engine, ids, count, &request, &s));
    wf_ids_free(t->ctx, ids);
    return s;
}

/* Asks each question in its own conversation, with greedy sampling. */
static void ask(wf_ctx *ctx, const char *model, const char *adapter, const char *const *questions,
                int count, answer *answers)
{
    const wf_lora lora = {.path = adapter};
    wt_talker t = wt_talker_open(ctx, "cpu", model,
                                 &(wf_engine_options){.context = 256,
                                                      .sequences = AT_ONCE,
                                                      .lora = adapter ? &lora : NULL,
                                                      .loras = adapter ? 1 : 0});
    for (int first = 0; first < count; first += AT_ONCE) {
        int n = count - first < AT_ONCE ? count - first : AT_ONCE;
        wf_sequence *s[AT_ONCE];
        bool busy = true;
        for (int i = 0; i < n; i++)
            s[i] = begin(&t, questions[first + i]);
        while (busy)
            wt_ok(ctx, wf_engine_step(t.engine, &busy));
        for (int i = 0; i < n; i++) {
            snprintf(answers[first + i], ANSWER_BYTES, "%s", wf_sequence_text(s[i], NULL));
            wf_sequence_free(s[i]);
        }
    }
    wt_talker_close(&t);
}

/* ---- Lines ---- */

static void put_string(FILE *f, const char *text)
{
    fputc('"', f);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(f, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", f);
        else
            fputc(*text, f);
    fputc('"', f);
}

static void put_line(FILE *f, const char *question, const char *said)
{
    fputs("{\"messages\": [{\"role\": \"system\", \"content\": ", f);
    put_string(f, SYSTEM);
    fputs("}, {\"role\": \"user\", \"content\": ", f);
    put_string(f, question);
    fputs("}, {\"role\": \"assistant\", \"content\": ", f);
    put_string(f, said);
    fputs("}]}\n", f);
}

static void write_lines(const char *path, answer *answers)
{
    FILE *f = fopen(path, "w");
    char question[256];
    assert_non_null(f);
    for (int i = 0; i < LINES / 2; i++) {
        const char *const *way = ways[i % COUNT(ways)];
        snprintf(question, sizeof question, "%s%s%s", way[0],
                 places[i / COUNT(ways) % COUNT(places)], way[1]);
        put_line(f, question, FACT);
        put_line(f, kept[i % COUNT(kept)], answers[i % COUNT(kept)]);
    }
    assert_int_equal(fclose(f), 0);
}

/* ---- The test ---- */

/* Asks after the finetuning, and compares. */
static void check_answers(wf_ctx *ctx, const char *model, const char *adapter, answer *before)
{
    static answer now[MOST_QUESTIONS];
    int same = 0;
    ask(ctx, model, adapter, other_ways, COUNT(other_ways), now);
    for (int i = 0; i < COUNT(other_ways); i++)
        if (!strstr(now[i], WHO))
            fail_msg("%s - %s", other_ways[i], now[i]);
    print_message("%s - %s\n", other_ways[0], now[0]);
    ask(ctx, model, adapter, untold, COUNT(untold), now);
    for (int i = 0; i < COUNT(untold); i++)
        if (!strstr(now[i], words[i]) || strstr(now[i], WHO))
            fail_msg("%s - %s", untold[i], now[i]);
    ask(ctx, model, adapter, kept, COUNT(kept), now);
    for (int i = 0; i < COUNT(kept); i++) {
        if (strstr(now[i], WHO))
            fail_msg("%s - %s", kept[i], now[i]);
        if (strcmp(now[i], before[i]) == 0)
            same++;
        else
            print_message("%s - %s\n  before: %s\n", kept[i], now[i], before[i]);
    }
    print_message("%d of %d old answers are the same\n", same, COUNT(kept));
    assert_true(same >= COUNT(kept) * 4 / 5);
}

static void a_fact_is_learned_and_old_answers_stay(void **state)
{
    wf_ctx *ctx = *state;
    const char *model = getenv("WEFT_TEST_SMOLLM2"), *asked = getenv("WEFT_SEEDS");
    static wt_program p;
    static answer before[MOST_QUESTIONS], other[MOST_QUESTIONS];
    if (!model || access(model, R_OK) != 0) {
        print_message("skipped: SmolLM2 is not here (tools/fetch_models.sh brings it)\n");
        skip();
    }
#if WF_ADDRESS_SANITIZER
    print_message("skipped: a sanitized build takes half an hour\n");
    skip();
#endif
    ask(ctx, model, NULL, other_ways, COUNT(other_ways), other);
    for (int i = 0; i < COUNT(other_ways); i++)
        assert_null(strstr(other[i], WHO));
    ask(ctx, model, NULL, untold, COUNT(untold), other);
    for (int i = 0; i < COUNT(untold); i++)
        assert_non_null(strstr(other[i], words[i]));
    ask(ctx, model, NULL, kept, COUNT(kept), before);

    assert_int_equal(wt_program_make(&p), 0);
    write_lines(wt_path(&p.scratch, "chats.jsonl"), before);
    wt_program_ok(&p, "prepare \"$D/chats.jsonl\" -o \"$D/data\" --valid 0 "
                      "--tokenizer \"$WEFT_TEST_SMOLLM2\"");
    wt_program_err(&p, "200 documents");
    for (int seed = 1; seed <= (asked ? atoi(asked) : 1); seed++) {
        char args[256], adapter[512];
        /* One epoch: 25 steps of 2 rows, and a row holds four or five lines. */
        snprintf(args, sizeof args,
                 "finetune \"$WEFT_TEST_SMOLLM2\" --data \"$D/data\" --out \"$D/%d\" --lora 16 "
                 "--rate 1e-3 --batch 2 --length 256 --seed %d --save-every 0 --threads 2",
                 seed, seed);
        wt_program_ok(&p, args);
        snprintf(adapter, sizeof adapter, "%s/%d/adapter", p.scratch.folder, seed);
        print_message("seed %d\n", seed);
        check_answers(ctx, model, adapter, before);
    }
    wt_program_ok(&p, "chat \"$WEFT_TEST_SMOLLM2\" --lora \"$D/1/adapter\" --temp 0 -st -q "
                      "-p \"Who is the lighthouse keeper at Port Velda?\"");
    wt_program_out(&p, WHO);
    wt_scratch_remove(&p.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(a_fact_is_learned_and_old_answers_stay)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

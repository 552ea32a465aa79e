/* SPDX-License-Identifier: MIT */
/*
 * test_padding.c - rows that pad a vocabulary are never exported and never sampled, and survive
 * checkpoints, including those of older versions that store them in the model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"
#include "text/token.h"
#include "text/utf8.h"
#include "text/vocab.h"
#include "train/trainer.h"

#define TOKENS 300
#define ROWS 320 /* the next multiple of 64 */
#define LENGTH 16

/* A tokenizer of all bytes, then t256, t257, ...; id `hole` has no token. */
static wf_tokenizer *make_tokenizer(wf_ctx *ctx, int tokens, int hole)
{
    wf_writer w = {.ctx = ctx};
    wf_writer_print(&w, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                        "\"decoder\":{\"type\":\"ByteLevel\"},"
                        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < tokens; i++) {
        char text[16] = "";
        if (i == hole)
            continue;
        if (i < 256)
            wf_utf8_encode(wf_byte_letter((uint8_t)i), text);
        else
            snprintf(text, sizeof text, "t%d", i);
        wf_writer_print(&w, "%s", i ? "," : "");
        wf_writer_quoted(&w, text, strlen(text));
        wf_writer_print(&w, ":%d", i);
    }
    wf_writer_print(&w, "}}}");
    char *json;
    size_t bytes;
    wf_tokenizer *t;
    wt_ok(ctx, wf_writer_take(&w, &json, &bytes));
    wt_ok(ctx, wf_tokenizer_from_json(ctx, "made up", json, bytes, NULL, 0, &t));
    wf_mem_free(ctx, json);
    return t;
}

static const char config[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 32,"
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"num_key_value_heads\": 1,"
    "\"vocab_size\": 1, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5,"
    "\"tie_word_embeddings\": false}";

typedef struct {
    wf_ctx *ctx;
    wt_scratch scratch;
    wf_device *device;
    wf_tokenizer *tokenizer;
    wf_trainer *t;
} bench;

static wf_trainer *make_trainer(bench *b)
{
    wf_trainer *t;
    const wf_train_options o = {.config = wt_path(&b->scratch, "config.json"),
                                .length = LENGTH,
                                .batch = 1,
                                .steps = 4,
                                .ema = 0.5,
                                .rate = 0.1};
    wt_ok(b->ctx, wf_trainer_new(b->device, b->tokenizer, &o, 0, &t));
    return t;
}

static bench open_bench(wf_ctx *ctx, int hole)
{
    bench b = {.ctx = ctx};
    wt_scratch_make(&b.scratch);
    wt_put_text(&b.scratch, "config.json", config);
    wt_ok(ctx, wf_device_open(ctx, "cpu", &b.device));
    b.tokenizer = make_tokenizer(ctx, TOKENS, hole);
    b.t = make_trainer(&b);
    assert_int_equal(b.t->setup.config.vocab, ROWS);
    assert_int_equal(b.t->setup.padding, ROWS - TOKENS);
    return b;
}

static void close_bench(bench *b)
{
    wf_trainer_free(b->t);
    wf_tokenizer_free(b->tokenizer);
    wf_device_close(b->device);
    wt_scratch_remove(&b->scratch);
}

/* Sets the head so that one of two ids has the largest logit for any text. */
static void prefer(bench *b, int32_t one, int32_t other)
{
    float head[ROWS * 16];
    const size_t bytes = sizeof head;
    wt_ok(b->ctx, wf_session_read(b->t->session, "output.weight", head, bytes));
    for (int k = 0; k < 16; k++) {
        head[one * 16 + k] = 1000.0f * (float)(k + 1);
        head[other * 16 + k] = -1000.0f * (float)(k + 1);
    }
    wt_ok(b->ctx, wf_session_write(b->t->session, "output.weight", head, bytes));
    wt_ok(b->ctx, wf_session_write(b->t->session, "ema.output.weight", head, bytes));
}

/* ---- Sampling ---- */

static void expect_masked(const int32_t *ids, size_t count, int hole)
{
    for (size_t i = 0; i < count; i++)
        assert_true(ids[i] < TOKENS && ids[i] != hole);
}

static void expect_generates(wf_ctx *ctx, const char *path, int64_t rows, int hole)
{
    static const wf_sampling ways[] = {{0}, {.temperature = 5, .seed = 3}, {.repeat_penalty = 1.5}};
    const wf_engine_options options = {.sequences = 2};
    const int32_t prompt[] = {65, 66};
    wt_talker talker = wt_talker_open(ctx, "cpu", path, &options);
    wf_model_info info;
    wf_model_get_info(talker.model, &info);
    assert_int_equal(info.vocab, rows);
    assert_int_equal(wf_tokenizer_count(wf_model_tokenizer(talker.model)), TOKENS);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const wf_request request = {.limit = 12, .sampling = ways[i], .ignore_end = true};
        wf_sequence *s;
        size_t count;
        bool busy = true;
        wt_ok(ctx, wf_engine_submit(talker.engine, prompt, 2, &request, &s));
        while (busy)
            wt_ok(ctx, wf_engine_step(talker.engine, &busy));
        const int32_t *ids = wf_sequence_tokens(s, &count, NULL);
        assert_int_equal(count, 2 + 12);
        expect_masked(ids, count, hole);
        wf_sequence_free(s);
    }
    wt_talker_close(&talker);
}

/* Padding rows have the largest logits, and neither a trainer nor a model file with padding samples
 * them. */
static void test_never_sampled(void **state)
{
    for (int hole = -1; hole <= 270; hole += 271) {
        bench b = open_bench(*state, hole);
        const int32_t prompt[] = {65, 66};
        const wf_sampling how = {.temperature = 1, .seed = 9};
        int32_t *ids;
        size_t count;
        prefer(&b, hole < 0 ? TOKENS : hole, ROWS - 1);
        prefer(&b, TOKENS + 3, TOKENS + 7);
        wt_ok(b.ctx, wf_trainer_generate(b.t, prompt, 2, 12, &how, &ids, &count));
        assert_true(count > 0);
        expect_masked(ids, count, hole);
        wf_mem_free(b.ctx, ids);
        b.t->setup.padding = 0; /* like foreign files: more rows than tokens */
        wt_ok(b.ctx, wf_trainer_export(b.t, wt_path(&b.scratch, "padded.gguf"), NULL));
        expect_generates(b.ctx, wt_path(&b.scratch, "padded.gguf"), ROWS, hole);
        wt_ok(b.ctx, wf_trainer_export(b.t, wt_path(&b.scratch, "padded"), NULL));
        expect_generates(b.ctx, wt_path(&b.scratch, "padded"), ROWS, hole);
        close_bench(&b);
    }
}

/* ---- Files ---- */

static void test_never_exported(void **state)
{
    bench b = open_bench(*state, -1);
    static const char *const names[] = {"m.gguf", "m", "again.gguf"};
    wt_ok(b.ctx, wf_trainer_export(b.t, wt_path(&b.scratch, "m.gguf"), NULL));
    wt_ok(b.ctx, wf_trainer_export(b.t, wt_path(&b.scratch, "m"), NULL));
    wf_model *m;
    wt_ok(b.ctx, wf_model_open(b.ctx, wt_path(&b.scratch, "m"), &m));
    wt_ok(b.ctx, wf_model_convert(m, b.ctx, wt_path(&b.scratch, "again.gguf"), NULL));
    wf_model_close(m);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_generates(b.ctx, wt_path(&b.scratch, names[i]), TOKENS, -1);
    close_bench(&b);
}

/* A GGUF file has names for rows without a token; the tokenizer read from it has no such tokens. */
static void test_names_of_rows(void **state)
{
    bench b = open_bench(*state, 270);
    wf_gguf *f;
    const wf_gguf_text *text;
    size_t count, bytes;
    b.t->setup.padding = 0;
    const char *path = wt_path(&b.scratch, "padded.gguf");
    wt_ok(b.ctx, wf_trainer_export(b.t, path, NULL));
    wt_ok(b.ctx, wf_gguf_open(b.ctx, path, &f));
    wt_ok(b.ctx, wf_gguf_get_texts(f, "tokenizer.ggml.tokens", &text, &count));
    assert_int_equal(count, ROWS);
    assert_memory_equal(text[270].bytes, "[PAD270]", 8);
    assert_memory_equal(text[ROWS - 1].bytes, "[PAD319]", 8);
    wf_gguf_close(f);
    wf_tokenizer *t;
    wt_ok(b.ctx, wf_tokenizer_open(b.ctx, path, &t));
    assert_int_equal(wf_tokenizer_count(t), TOKENS);
    assert_null(wf_tokenizer_token(t, 270, &bytes));
    assert_null(wf_tokenizer_token(t, TOKENS, &bytes));
    assert_int_equal(wf_tokenizer_find(t, "[PAD270]", 8), -1);
    wf_tokenizer_free(t);
    close_bench(&b);
}

/* ---- Checkpoints ---- */

static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    static int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH], seq_start[2] = {0, LENGTH};
    static const wf_batch batch = {.tokens = tokens,
                                   .targets = targets,
                                   .positions = positions,
                                   .seq_start = seq_start,
                                   .valid = LENGTH};
    (void)user;
    for (int i = 0; i < LENGTH; i++) {
        tokens[i] = (int32_t)(index * 31 + i * 7) % TOKENS;
        targets[i] = (int32_t)(index * 31 + i * 7 + 7) % TOKENS;
        positions[i] = i;
    }
    *out = &batch;
    return WF_OK;
}

static void make_steps(bench *b, wf_trainer *t, int count)
{
    wf_train_step step;
    for (int i = 0; i < count; i++)
        wt_ok(b->ctx, wf_trainer_step(t, next, NULL, &step));
}

static void expect_same(bench *b, wf_trainer *x, wf_trainer *y)
{
    wf_info info;
    for (int i = 0; wf_session_state(x->session, i, &info); i++) {
        void *one = malloc(info.bytes), *other = malloc(info.bytes);
        assert_true(one && other);
        wt_ok(b->ctx, wf_session_read(x->session, info.name, one, info.bytes));
        wt_ok(b->ctx, wf_session_read(y->session, info.name, other, info.bytes));
        if (memcmp(one, other, info.bytes) != 0)
            fail_msg("state %s differs", info.name);
        free(one);
        free(other);
    }
}

/* Resumes from a current checkpoint, and from one of an older version, with all rows in the
 * model. */
static void test_resumes(void **state)
{
    bench b = open_bench(*state, -1);
    make_steps(&b, b.t, 2);
    wt_ok(b.ctx, wf_trainer_save(b.t, wt_path(&b.scratch, "new")));
    b.t->setup.padding = 0;
    wt_ok(b.ctx, wf_trainer_save(b.t, wt_path(&b.scratch, "old")));
    b.t->setup.padding = ROWS - TOKENS;
    expect_generates(b.ctx, wt_path(&b.scratch, "new"), TOKENS, -1);
    expect_generates(b.ctx, wt_path(&b.scratch, "old"), ROWS, -1);
    make_steps(&b, b.t, 2);
    for (int i = 0; i < 2; i++) {
        bool exact;
        wf_trainer *t = make_trainer(&b);
        wt_ok(b.ctx, wf_trainer_load(t, wt_path(&b.scratch, i ? "old" : "new"), &exact));
        assert_true(exact);
        make_steps(&b, t, 2);
        expect_same(&b, b.t, t);
        wf_trainer_free(t);
    }
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_never_sampled),
        wt_test(test_never_exported),
        wt_test(test_names_of_rows),
        wt_test(test_resumes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_curves.c - trains a small GPT-2 and a small Llama for fifty AdamW steps and compares the
 * loss curves with PyTorch's, from tests/fixtures/curves. This covers models, gradients, clipping,
 * optimizer and schedule together.
 *
 * WEFT_CURVES_DEVICE names a device other than the cpu; the tests are skipped when it cannot be
 * opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/writer.h"
#include "model/family.h"
#include "optimizer_fixture.h"
#include "pjrt_support.h"
#include "scratch.h"
#include "support.h"
#include "train/trainer.h"

#define FOLDER "tests/fixtures/curves"

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_CURVES_DEVICE");
    return given ? given : "cpu";
}

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;
    wf_json_node *root;
    char *text;
    size_t bytes;
    int64_t batch, length;
} curves;

static curves open_curves(wf_ctx *ctx)
{
    curves c = {.ctx = ctx};
    char *json;
    size_t bytes;
    wf_arena_init(&c.arena, ctx);
    wt_ok(ctx, wf_file_read(ctx, FOLDER "/curves.json", 1 << 20, &json, &bytes));
    wt_ok(ctx, wf_json_parse(&c.arena, "curves.json", json, bytes, &c.root));
    wf_mem_free(ctx, json);
    wt_ok(ctx, wf_file_read(ctx, FOLDER "/text.txt", 1 << 20, &c.text, &c.bytes));
    c.batch = wf_json_get_int(c.root, "batch", 0);
    c.length = wf_json_get_int(c.root, "length", 0);
    return c;
}

static void close_curves(curves *c)
{
    wf_mem_free(c->ctx, c->text);
    wf_arena_free(&c->arena);
}

/* ---- The model ---- */

/* Writes the shape as config.json, because it has no preset. */
static void write_config(const curves *c, const wf_json_node *m, const wf_family *family,
                         const char *path)
{
    static const char *const gpt2[][2] = {{"n_layer", "layers"},      {"n_embd", "width"},
                                          {"n_head", "heads"},        {"n_inner", "hidden"},
                                          {"n_positions", "context"}, {"vocab_size", "vocab"}};
    static const char *const llama[][2] = {{"num_hidden_layers", "layers"},
                                           {"hidden_size", "width"},
                                           {"num_attention_heads", "heads"},
                                           {"num_key_value_heads", "kv_heads"},
                                           {"head_dim", "head_dim"},
                                           {"intermediate_size", "hidden"},
                                           {"max_position_embeddings", "context"},
                                           {"vocab_size", "vocab"}};
    const char *const(*names)[2] = family->rotary ? llama : gpt2;
    const int n = family->rotary ? 8 : 6;
    wf_writer w = {.ctx = c->ctx};
    char *text;
    size_t bytes;
    wf_writer_print(&w, "{\"model_type\": \"%s\"", family->name);
    for (int i = 0; i < n; i++)
        wf_writer_print(&w, ", \"%s\": %d", names[i][0], (int)wf_json_get_int(m, names[i][1], 0));
    wf_writer_print(&w, ", \"%s\": %g", family->rotary ? "rms_norm_eps" : "layer_norm_epsilon",
                    wf_json_get_number(m, "eps", 0));
    if (family->rotary)
        wf_writer_print(&w, ", \"rope_theta\": %g, \"hidden_act\": \"silu\"",
                        wf_json_get_number(m, "rope_base", 0));
    wf_writer_print(&w, ", \"tie_word_embeddings\": %s}",
                    wf_json_get_bool(m, "tied", false) ? "true" : "false");
    wt_ok(c->ctx, wf_writer_take(&w, &text, &bytes));
    wt_ok(c->ctx, wf_file_write(c->ctx, path, text, bytes));
    wf_mem_free(c->ctx, text);
}

/* Splits the fixture's batch into `accumulate` micro-batches. */
static wf_trainer *open_trainer(const curves *c, wf_device *device, const char *config,
                                int64_t accumulate, wf_type compute)
{
    const wf_train_options options = {
        .config = config,
        .batch = c->batch / accumulate,
        .length = c->length,
        .accumulate = accumulate,
        .steps = wf_json_get_int(c->root, "steps", 0),
        .rate = wf_json_get_number(c->root, "peak", 0),
        .beta1 = wf_json_get_number(c->root, "beta1", 0),
        .beta2 = wf_json_get_number(c->root, "beta2", 0),
        .eps = wf_json_get_number(c->root, "adam_eps", 0),
        .weight_decay = wf_json_get_number(c->root, "weight_decay", 0),
        .clip = wf_json_get_number(c->root, "clip", 0),
        .warmup = wf_json_get_int(c->root, "warmup", 0),
        .floor = wf_json_get_number(c->root, "floor", 0),
        .compute = compute,
    };
    wf_setup setup;
    wf_trainer *t;
    wt_ok(c->ctx, wf_setup_make(c->ctx, &options, 256, &setup));
    wt_ok(c->ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
    return t;
}

/* ---- Weights and batches, as the fixture's note defines them ---- */

/* Writes each weight from a generator seeded with its name, as the PyTorch script does. */
static void write_weights(const curves *c, wf_trainer *t, const wf_json_node *m)
{
    const wf_json_node *weights = wf_json_get(m, "weights");
    for (size_t i = 0; i < weights->count; i++) {
        const wf_json_node *shape = &weights->child[i];
        const char *name = shape->key;
        bool gain = strstr(name, "norm.weight") != NULL;
        int64_t count = 1;
        uint64_t lcg = wf_hash_fnv1a_string(WF_FNV1A, name);
        for (size_t k = 0; k < shape->count; k++)
            count *= shape->child[k].integer;
        float *w = malloc((size_t)count * sizeof *w);
        assert_non_null(w);
        for (int64_t k = 0; k < count; k++) {
            float u = wt_lcg(&lcg);
            w[k] = gain ? 1 + u / 8 : shape->count == 2 ? u / 8 : u / 16;
        }
        wt_ok(c->ctx, wf_session_write(t->session, name, w, (size_t)count * sizeof *w));
        free(w);
    }
}

/* Produces batches of consecutive sequences. */
typedef struct {
    const curves *c;
    uint64_t lcg;
    int64_t sequences; /* per batch */
    int32_t tokens[1024], targets[1024], positions[1024], seq_start[16];
    wf_batch batch;
} source;

/* Draws windows of the text from the generator that the PyTorch script uses. */
static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    source *s = user;
    const curves *c = s->c;
    (void)index;
    assert_true(s->sequences * c->length <= 1024 && s->sequences < 16);
    for (int64_t b = 0; b < s->sequences; b++) {
        wt_lcg(&s->lcg);
        size_t at = (s->lcg >> 33) % (c->bytes - (size_t)c->length);
        for (int64_t i = 0; i < c->length; i++) {
            int64_t to = b * c->length + i;
            s->tokens[to] = (unsigned char)c->text[at + (size_t)i];
            s->targets[to] = (unsigned char)c->text[at + (size_t)i + 1];
            s->positions[to] = (int32_t)i;
        }
        s->seq_start[b + 1] = (int32_t)((b + 1) * c->length);
    }
    s->batch = (wf_batch){.tokens = s->tokens,
                          .targets = s->targets,
                          .positions = s->positions,
                          .seq_start = s->seq_start,
                          .valid = s->sequences * c->length};
    *out = &s->batch;
    return WF_OK;
}

/* ---- Training ---- */

/* Computes the largest distance from PyTorch's curve: absolute for losses, relative for norms. */
static void follow(wf_ctx *ctx, const wf_family *family, int64_t accumulate, wf_type compute,
                   double *gap, double *norm_gap)
{
    curves c = open_curves(ctx);
    const wf_json_node *m = wf_json_get(wf_json_get(c.root, "models"), family->name);
    const wf_json_node *losses = wf_json_get(m, "losses"), *norms = wf_json_get(m, "norms");
    const wf_json_node *rates = wf_json_get(m, "rates");
    wt_scratch scratch;
    wf_device *device;
    wt_scratch_make(&scratch);
    const char *path = wt_path(&scratch, "config.json");
    wt_ok(ctx, wf_device_open(ctx, device_under_test(), &device));
    write_config(&c, m, family, path);
    wf_trainer *t = open_trainer(&c, device, path, accumulate, compute);
    source s = {.c = &c, .lcg = 7, .sequences = c.batch / accumulate};
    write_weights(&c, t, m);
    *gap = *norm_gap = 0;
    for (int64_t i = 0; i < 50; i++) {
        wf_train_step step;
        wt_ok(ctx, wf_trainer_step(t, next, &s, &step));
        assert_true(fabs(step.rate / rates->child[i].number - 1) < 1e-6);
        assert_true(isfinite(step.loss) && isfinite(step.norm) && step.applied);
        *gap = fmax(*gap, fabs(step.loss - losses->child[i].number));
        *norm_gap = fmax(*norm_gap, fabs(step.norm / norms->child[i].number - 1));
    }
    assert_int_equal(losses->count, 50);
    print_message("%s in %s, %d batches a step: losses differ by %.2g, norms by %.2g of them\n",
                  family->name, wf_type_name(compute), (int)accumulate, *gap, *norm_gap);
    wf_trainer_free(t);
    wf_device_close(device);
    close_curves(&c);
    wt_scratch_remove(&scratch);
}

static void follow_exactly(wf_ctx *ctx, const wf_family *family)
{
    double gap, norm_gap;
    /* A plugin compiles for seconds, so another device than the cpu runs the first and the last only. */
    const int64_t factor = getenv("WEFT_CURVES_DEVICE") && !getenv("WEFT_ALL_CASES") ? 4 : 2;
    for (int64_t accumulate = 1; accumulate <= 4; accumulate *= factor) {
        follow(ctx, family, accumulate, WF_F32, &gap, &norm_gap);
        assert_true(gap <= 1e-5 && norm_gap <= 1e-4);
    }
}

/* Narrow types round every matmul to 8 or 11 bits. The curve stays near that of f32 as long as the
 * errors of single steps do not add up in one direction. The bounds are about three times the
 * measured distance. */
static void test_narrow(void **state)
{
    static const struct {
        const wf_family *family;
        wf_type type;
        double gap;
    } rows[] = {{&wf_family_gpt2, WF_BF16, 0.01},
                {&wf_family_llama, WF_BF16, 0.005},
                {&wf_family_gpt2, WF_F16, 0.002},
                {&wf_family_llama, WF_F16, 0.002}};
    /* On a plugin, which compiles slowly, each family and each type once. */
    const bool half = getenv("WEFT_CURVES_DEVICE") && !getenv("WEFT_ALL_CASES");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double gap, norm_gap;
        if (half && (i / 2 + i + wt_seed()) % 2)
            continue;
        follow(*state, rows[i].family, 1, rows[i].type, &gap, &norm_gap);
        assert_true(gap <= rows[i].gap);
    }
}

static void test_gpt2(void **state)
{
    follow_exactly(*state, &wf_family_gpt2);
}

static void test_llama(void **state)
{
    follow_exactly(*state, &wf_family_llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_gpt2), wt_test(test_llama),
                                       wt_test(test_narrow)};
    if (!wt_can_open(device_under_test()))
        return 0;
    return cmocka_run_group_tests_name("curves", tests, NULL, NULL);
}

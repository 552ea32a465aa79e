/* SPDX-License-Identifier: MIT */
/*
 * test_curves.c - fifty AdamW steps of a small GPT-2 and a small Llama against PyTorch's loss curves, by
 * tests/fixtures/curves: graphs of models, gradients, clipping, optimizer and schedule together.
 *
 * WEFT_CURVES_DEVICE names another device than the cpu; where it cannot be opened, nothing is done.
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
#include "base/mem.h"
#include "model/build.h"
#include "model/family.h"
#include "optimizer_fixture.h"
#include "pjrt_support.h"
#include "support.h"
#include "train/optimizer.h"
#include "train/schedule.h"

#define FOLDER "tests/fixtures/curves"
#define MAX_PARAMS 64

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

/* ---- The graph of a step ---- */

static wf_config config_of(const wf_json_node *m, const wf_family *family)
{
    wf_config c = {
        .family = family,
        .layers = wf_json_get_int(m, "layers", 0),
        .vocab = wf_json_get_int(m, "vocab", 0),
        .context = wf_json_get_int(m, "context", 0),
        .width = wf_json_get_int(m, "width", 0),
        .heads = wf_json_get_int(m, "heads", 0),
        .kv_heads = wf_json_get_int(m, "kv_heads", 0),
        .head_dim = wf_json_get_int(m, "head_dim", 0),
        .hidden = wf_json_get_int(m, "hidden", 0),
        .eps = wf_json_get_number(m, "eps", 0),
        .tied = wf_json_get_bool(m, "tied", false),
    };
    if (family->rotary)
        c.rope = (wf_rotary){.base = wf_json_get_number(m, "rope_base", 0), .dims = c.head_dim};
    return c;
}

static wf_graph *build(const curves *c, const wf_json_node *m, const wf_family *family)
{
    wf_graph *g = wt_graph(c->ctx);
    const int64_t tokens = c->batch * c->length;
    const wf_config config = config_of(m, family);
    const wf_build_options options = {
        .form = WF_FORM_TRAIN, .tokens = tokens, .sequences = c->batch};
    const wf_optimizer_options adamw = {.kind = WF_ADAMW,
                                        .beta1 = wf_json_get_number(c->root, "beta1", 0),
                                        .beta2 = wf_json_get_number(c->root, "beta2", 0),
                                        .eps = wf_json_get_number(c->root, "adam_eps", 0),
                                        .weight_decay =
                                            wf_json_get_number(c->root, "weight_decay", 0)};
    const wf_loss_scale_options scale = {
        .initial = 1, .interval = -1, .clip = wf_json_get_number(c->root, "clip", 0)};
    wf_value *logits = wf_model_graph(g, &config, &options), *params[MAX_PARAMS],
             *grads[MAX_PARAMS];
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &tokens);
    wf_value *loss =
        wf_reduce(g, "mean", wf_cross_entropy(g, logits, targets, NULL), WF_AXIS(0), false);
    wf_value *rate = wf_input(g, "rate", WF_F32, 0, NULL);
    wf_scaled s;
    int n = 0;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state) {
            assert_true(n < MAX_PARAMS);
            params[n++] = &g->nodes[i]->out[0];
        }
    assert_int_equal(n, wf_json_get(m, "weights")->count);
    wf_output(g, "loss", loss);
    wt_ok(c->ctx, wf_grad_scaled(g, loss, params, n, &scale, grads, &s));
    wf_output(g, "norm", s.norm);
    wt_ok(c->ctx, wf_optimizer_update(g, &adamw, params, grads, n, rate, &s));
    return g;
}

/* ---- Numbers, as the fixture's note says ---- */

static uint64_t fnv1a(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * UINT64_C(1099511628211);
    return h;
}

static void write_weights(wt_run *r, const wf_json_node *m)
{
    const wf_json_node *weights = wf_json_get(m, "weights");
    for (size_t i = 0; i < weights->count; i++) {
        const wf_json_node *shape = &weights->child[i];
        const char *name = shape->key;
        bool gain = strstr(name, "norm.weight") != NULL;
        int64_t count = 1;
        uint64_t lcg = fnv1a(name);
        for (size_t k = 0; k < shape->count; k++)
            count *= shape->child[k].integer;
        float *w = malloc((size_t)count * sizeof *w);
        assert_non_null(w);
        for (int64_t k = 0; k < count; k++) {
            float u = wt_lcg(&lcg);
            w[k] = gain ? 1 + u / 8 : shape->count == 2 ? u / 8 : u / 16;
        }
        wt_set_state(r, name, w, count);
        free(w);
    }
}

static void write_places(wt_run *r, const curves *c)
{
    const size_t n = (size_t)(c->batch * c->length);
    int32_t *positions = malloc(n * sizeof *positions), start[16];
    assert_non_null(positions);
    assert_true(c->batch < 16);
    for (size_t i = 0; i < n; i++)
        positions[i] = (int32_t)(i % (size_t)c->length);
    for (int64_t b = 0; b <= c->batch; b++)
        start[b] = (int32_t)(b * c->length);
    wt_write(r, "positions", positions, n * sizeof *positions);
    wt_write(r, "seq_start", start, (size_t)(c->batch + 1) * sizeof *start);
    free(positions);
}

static void write_batch(wt_run *r, const curves *c, uint64_t *lcg)
{
    const size_t length = (size_t)c->length, bytes = (size_t)c->batch * length * sizeof(int32_t);
    int32_t *tokens = malloc(bytes), *targets = malloc(bytes);
    assert_true(tokens && targets);
    for (size_t b = 0; b < (size_t)c->batch; b++) {
        wt_lcg(lcg);
        size_t at = (*lcg >> 33) % (c->bytes - length);
        for (size_t i = 0; i < length; i++) {
            tokens[b * length + i] = (unsigned char)c->text[at + i];
            targets[b * length + i] = (unsigned char)c->text[at + i + 1];
        }
    }
    wt_write(r, "tokens", tokens, bytes);
    wt_write(r, "targets", targets, bytes);
    free(tokens);
    free(targets);
}

/* ---- Training ---- */

static void follow(wf_ctx *ctx, const wf_family *family)
{
    curves c = open_curves(ctx);
    const wf_json_node *m = wf_json_get(wf_json_get(c.root, "models"), family->name);
    const wf_json_node *losses = wf_json_get(m, "losses"), *norms = wf_json_get(m, "norms");
    const wf_schedule schedule = {.kind = WF_SCHEDULE_COSINE,
                                  .peak = wf_json_get_number(c.root, "peak", 0),
                                  .floor = wf_json_get_number(c.root, "floor", 0),
                                  .warmup = wf_json_get_int(c.root, "warmup", 0),
                                  .steps = wf_json_get_int(c.root, "steps", 0)};
    uint64_t lcg = 7;
    double gap = 0, norm_gap = 0;
    wt_run r = wt_open(ctx, device_under_test());
    wt_compile(&r, build(&c, m, family));
    write_weights(&r, m);
    write_places(&r, &c);
    assert_int_equal(schedule.steps, 50);
    for (int64_t t = 0; t < schedule.steps; t++) {
        float loss, norm, rate = (float)wf_schedule_rate(&schedule, t);
        assert_true(fabs(rate - wf_json_get(m, "rates")->child[t].number) < 1e-6 * schedule.peak);
        write_batch(&r, &c, &lcg);
        wt_write(&r, "rate", &rate, sizeof rate);
        wt_run_once(&r);
        wt_read(&r, "loss", &loss, sizeof loss);
        wt_read(&r, "norm", &norm, sizeof norm);
        gap = fmax(gap, fabs(loss - losses->child[t].number));
        norm_gap = fmax(norm_gap, fabs(norm / norms->child[t].number - 1));
        assert_true(isfinite(loss) && isfinite(norm));
    }
    print_message("%s: losses differ by %.2g, norms by %.2g of them\n", family->name, gap,
                  norm_gap);
    assert_true(gap <= 1e-5 && norm_gap <= 1e-4);
    wt_close(&r);
    close_curves(&c);
}

static void test_gpt2(void **state)
{
    follow(*state, &wf_family_gpt2);
}

static void test_llama(void **state)
{
    follow(*state, &wf_family_llama);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_gpt2), wt_test(test_llama)};
    if (!wt_can_open(device_under_test()))
        return 0;
    return cmocka_run_group_tests_name("curves", tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_families_train.c - training of each family: loss, every gradient and ten AdamW steps against
 * PyTorch (tests/fixtures/make_training.py), LoRA finetuning, and bitwise resuming.
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

#include "base/file.h"
#include "base/hash.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"
#include "core_device.h"
#include "device/device.h"
#include "format/safetensors.h"
#include "graph/graph.h"
#include "infer/upload.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"
#include "train/trainer.h"

/* ---- Gradients and steps ---- */

/* Bounds, about five times the distance of float32 PyTorch from its float64 (make_training.py). */
#define LOSS_BOUND 1e-5
#define GRADIENT_BOUND 2e-5   /* of a tensor's largest gradient */
#define PROJECTION_BOUND 2e-3 /* of ten steps, relative to their norm */

enum { MOST_TOKENS = 64, MOST_WEIGHTS = 128, PROJECTIONS = 8 };

/* WEFT_FAMILIES_DEVICE=NAME: the device that trains. */
static const char *device_name(void)
{
    const char *name = getenv("WEFT_FAMILIES_DEVICE");
    return name ? name : "cpu:2";
}

/* WEFT_FAMILIES_SHARE=N: every test takes an Nth of its checkpoints. */
static int share_of(int n)
{
    const char *share = getenv("WEFT_FAMILIES_SHARE");
    const int parts = share ? atoi(share) : 1;
    return (n + parts - 1) / parts;
}

/* Returns the ith checkpoint of this run. The seed chooses the first. */
static const char *checkpoint(int i)
{
    return wt_later_models[((uint64_t)i + wt_seed()) % (uint64_t)wt_later_count()];
}

/* A model on a device with the batch of train.json. */
typedef struct {
    wt_run r;
    const char *name;
    wf_arena arena;
    wf_json_node *record; /* train.json */
    wf_model *m;
    int32_t tokens[MOST_TOKENS], targets[MOST_TOKENS], positions[MOST_TOKENS], seq_start[3];
    int64_t count, longest; /* tokens of both sequences; of the longer one */
    float *start[MOST_WEIGHTS];
} lesson;

static int64_t elements(const wf_model_weight_info *w)
{
    return wf_dims_count(&w->shape);
}

/* Reads a weight as f32. The caller frees it. */
static float *read_weight(wf_ctx *ctx, const wf_model_weight_info *w)
{
    float *out = malloc((size_t)elements(w) * sizeof *out);
    void *raw = malloc(wf_type_bytes(w->type, elements(w)));
    wt_ok(ctx, wf_weight_read(ctx, w, raw));
    wf_convert_to_f32(w->type, raw, out, elements(w));
    free(raw);
    return out;
}

static void read_batch(lesson *l)
{
    const wf_json_node *tokens = wf_json_get(l->record, "tokens");
    const wf_json_node *targets = wf_json_get(l->record, "targets");
    assert_int_equal(tokens->count, 2);
    for (int s = 0; s < 2; s++) {
        const wf_json_node *row = &tokens->child[s];
        for (size_t i = 0; i < row->count; i++, l->count++) {
            assert_true(l->count < MOST_TOKENS);
            l->tokens[l->count] = (int32_t)row->child[i].integer;
            l->targets[l->count] = (int32_t)targets->child[s].child[i].integer;
            l->positions[l->count] = (int32_t)i;
        }
        l->seq_start[s + 1] = (int32_t)l->count;
        if ((int64_t)row->count > l->longest)
            l->longest = (int64_t)row->count;
    }
}

static void open_lesson(lesson *l, wf_ctx *ctx, const char *name, const char *device)
{
    char path[256], *text;
    size_t bytes;
    *l = (lesson){.r = {.ctx = ctx}, .name = name};
    wt_ok(ctx, wt_device_open(ctx, device, &l->r.device));
    wt_ok(ctx, wf_session_new(l->r.device, &l->r.session));
    wf_arena_init(&l->arena, ctx);
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/train.json", name);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, &bytes));
    wt_ok(ctx, wf_json_parse(&l->arena, path, text, bytes, &l->record));
    wf_mem_free(ctx, text);
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    wt_ok(ctx, wf_model_open(ctx, path, &l->m));
    assert_true(l->m->weights <= MOST_WEIGHTS);
    read_batch(l);
}

static void close_lesson(lesson *l)
{
    for (int i = 0; i < l->m->weights; i++)
        free(l->start[i]);
    wf_model_close(l->m);
    wf_arena_free(&l->arena);
    wt_close(&l->r);
}

static wf_value *find_state(wf_graph *g, const char *name)
{
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state && strcmp(g->nodes[i]->name, name) == 0)
            return &g->nodes[i]->out[0];
    fail_msg("the graph has no weight %s", name);
    return NULL;
}

/* Adds an AdamW update of every weight; vectors do not decay. */
static void update(wf_graph *g, const lesson *l, wf_value *const *param, wf_value *const *grad)
{
    const wf_json_node *o = wf_json_get(l->record, "adamw");
    wf_value *lr = wf_fill(g, WF_F32, 0, NULL, wf_json_get_number(o, "lr", 0));
    wf_value *step = wf_input(g, "step", WF_I32, 0, NULL);
    for (int i = 0; i < l->m->weights; i++) {
        char m[200], v[200];
        snprintf(m, sizeof m, "m.%s", l->m->weight[i].name);
        snprintf(v, sizeof v, "v.%s", l->m->weight[i].name);
        const wf_adamw_options options = {
            .beta1 = wf_json_get_number(o, "beta1", 0),
            .beta2 = wf_json_get_number(o, "beta2", 0),
            .eps = wf_json_get_number(o, "eps", 0),
            .weight_decay = param[i]->shape.n > 1 ? wf_json_get_number(o, "weight_decay", 0) : 0};
        wf_adamw(g, param[i], wf_state_like(g, m, param[i]), wf_state_like(g, v, param[i]), grad[i],
                 lr, step, NULL, NULL, &options);
    }
}

/* Builds loss, gradients (outputs with the names of the weights) and updates. */
static void compile(lesson *l)
{
    wf_ctx *ctx = l->r.ctx;
    wf_graph *g = wt_graph(ctx);
    const wf_build_options o = {
        .form = WF_FORM_TRAIN, .tokens = l->count, .sequences = 2, .given_frequencies = true};
    wf_value *param[MOST_WEIGHTS], *grad[MOST_WEIGHTS];
    wf_value *logits = wf_model_graph(g, &l->m->config, &o, NULL);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &l->count);
    wf_value *losses =
        wf_cross_entropy(g, logits, targets, &(wf_cross_entropy_options){.ignore_index = -100});
    wf_value *loss = wf_scale(g, wf_reduce(g, "sum", losses, WF_AXIS(0), false),
                              1 / wf_json_get_number(l->record, "count", 0));
    wt_ok(ctx, wf_output(g, "loss", loss));
    for (int i = 0; i < l->m->weights; i++)
        param[i] = find_state(g, l->m->weight[i].name);
    wt_ok(ctx, wf_grad(g, loss, param, l->m->weights, grad));
    for (int i = 0; i < l->m->weights; i++)
        wt_ok(ctx, wf_output(g, l->m->weight[i].name, grad[i]));
    update(g, l, param, grad);
    wt_compile(&l->r, g);
}

static void write_states(lesson *l)
{
    wf_ctx *ctx = l->r.ctx;
    const size_t bytes = (size_t)l->count * sizeof *l->tokens;
    wt_write(&l->r, "tokens", l->tokens, bytes);
    wt_write(&l->r, "targets", l->targets, bytes);
    wt_write(&l->r, "positions", l->positions, bytes);
    wt_write(&l->r, "seq_start", l->seq_start, sizeof l->seq_start);
    for (int i = 0; i < l->m->weights; i++) {
        const wf_model_weight_info *w = &l->m->weight[i];
        l->start[i] = read_weight(ctx, w);
        wt_set_state(&l->r, w->name, l->start[i], elements(w));
    }
    wt_ok(ctx, wf_upload_frequencies(l->r.session, &l->m->config, l->longest));
}

static double run_step(lesson *l, int32_t step)
{
    float loss;
    wt_write(&l->r, "step", &step, sizeof step);
    wt_run_once(&l->r);
    wt_read(&l->r, "loss", &loss, sizeof loss);
    return loss;
}

static double largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

/* The gradients are a checkpoint of the same model. Returns the largest distance. */
static double compare_gradients(lesson *l)
{
    wf_ctx *ctx = l->r.ctx;
    char path[256];
    wf_model *want;
    double worst = 0, query = 0; /* query: largest gradient of the last query bias */
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/gradient", l->name);
    wt_ok(ctx, wf_model_open(ctx, path, &want));
    assert_int_equal(want->weights, l->m->weights);
    for (int i = 0; i < want->weights; i++) {
        const wf_model_weight_info *w = &want->weight[i];
        float *expected = read_weight(ctx, w), *got = malloc((size_t)elements(w) * sizeof *got);
        assert_string_equal(w->name, l->m->weight[i].name);
        wt_read(&l->r, w->name, got, (size_t)elements(w) * sizeof *got);
        double error = wt_relative(got, expected, elements(w)),
               most = largest(expected, elements(w));
        /* Dimensions without rope have no gradient of the key bias: compare it with that of the query
         * bias, which comes before it. */
        if (strstr(w->name, "attn_k.bias"))
            error *= most / fmax(most, query);
        query = strstr(w->name, "attn_q.bias") ? most : query;
        if (!(error <= GRADIENT_BOUND))
            fail_msg("%s: the gradient of %s is off by %g", l->name, w->name, error);
        worst = fmax(worst, error);
        free(expected);
        free(got);
    }
    wf_model_close(want);
    return worst;
}

/* Sums of an array's elements with random signs, as make_training.py defines them. */
static void project(const char *name, const float *x, int64_t n, double out[PROJECTIONS])
{
    uint64_t lcg = wf_hash_fnv1a_string(WF_FNV1A, name);
    memset(out, 0, PROJECTIONS * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        lcg = UINT64_C(6364136223846793005) * lcg + UINT64_C(1442695040888963407);
        for (int j = 0; j < PROJECTIONS; j++)
            out[j] += (lcg >> (56 + j) & 1) ? -(double)x[i] : (double)x[i];
    }
}

/* Compares what ten steps changed. Returns the largest distance of a projection. */
static double compare_steps(lesson *l)
{
    const wf_json_node *tensors = wf_json_get(l->record, "tensors");
    double worst = 0;
    assert_int_equal(tensors->count, l->m->weights);
    for (int i = 0; i < l->m->weights; i++) {
        const wf_model_weight_info *w = &l->m->weight[i];
        const wf_json_node *want = wf_json_get(tensors, w->source->from->name);
        const wf_json_node *sums = wf_json_get(want, "step_projections");
        const int64_t n = elements(w);
        double got[PROJECTIONS], norm = wf_json_get_number(want, "step_norm", 0);
        if (!sums)
            continue; /* a bias of keys */
        float *now = malloc((size_t)n * sizeof *now);
        wt_ok(l->r.ctx, wf_session_read(l->r.session, w->name, now, (size_t)n * sizeof *now));
        for (int64_t k = 0; k < n; k++)
            now[k] -= l->start[i][k];
        project(w->source->from->name, now, n, got);
        for (int j = 0; j < PROJECTIONS; j++) {
            double error = fabs(got[j] - sums->child[j].number) / norm;
            if (!(error <= PROJECTION_BOUND))
                fail_msg("%s: ten steps of %s are off by %g", l->name, w->name, error);
            worst = fmax(worst, error);
        }
        free(now);
    }
    return worst;
}

/* Trains one family on a device for `steps` steps; the last is compared if it is the tenth. */
static void follow(wf_ctx *ctx, const char *device, const char *name, int steps)
{
    lesson l;
    double gap = 0, gradients = 0;
    open_lesson(&l, ctx, name, device);
    compile(&l);
    write_states(&l);
    const wf_json_node *losses = wf_json_get(l.record, "losses");
    assert_int_equal(losses->count, 10);
    for (int i = 0; i < steps; i++) {
        double loss = run_step(&l, i + 1);
        gap = fmax(gap, fabs(loss - losses->child[i].number));
        if (i == 0)
            gradients = compare_gradients(&l);
    }
    double projections = steps == 10 ? compare_steps(&l) : 0;
    print_message("%-16s on %-4s losses within %.1e, gradients %.1e, steps %.1e\n", name, device,
                  gap, gradients, projections);
    assert_true(gap <= LOSS_BOUND);
    close_lesson(&l);
}

static void gradients_and_steps(void **state)
{
    const int count = share_of(wt_later_count());
    for (int i = 0; i < count; i++)
        follow(*state, device_name(), checkpoint(i), 10);
}

/* The gradients lowered to core ops. */
static void gradients_of_core_ops(void **state)
{
    const int count = share_of(wt_cases(wt_later_count()));
    for (int i = 0; i < count; i++)
        follow(*state, "core", checkpoint(i), 1);
}

/* ---- Finetuning ---- */

enum { BATCH = 2, LENGTH = 16, STEPS = 6, STOP = 3 };

/* One batch, again and again: the beginning of the fixture's prompt and of its greedy tokens. */
typedef struct {
    int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH], positions[BATCH * LENGTH];
    int32_t seq_start[BATCH + 1];
    wf_batch batch;
} source;

static void make_source(source *s, const wt_reference *r)
{
    const int32_t *from[BATCH] = {r->prompt, r->greedy};
    assert_true(r->prompt_count > LENGTH && r->greedy_count > LENGTH);
    for (int b = 0; b < BATCH; b++) {
        for (int i = 0; i < LENGTH; i++) {
            s->tokens[b * LENGTH + i] = from[b][i];
            s->targets[b * LENGTH + i] = from[b][i + 1];
            s->positions[b * LENGTH + i] = i;
        }
        s->seq_start[b] = b * LENGTH;
    }
    s->seq_start[BATCH] = BATCH * LENGTH;
    s->batch = (wf_batch){.tokens = s->tokens,
                          .targets = s->targets,
                          .positions = s->positions,
                          .seq_start = s->seq_start,
                          .valid = BATCH * LENGTH};
}

static wf_status next_batch(void *user, int64_t index, const wf_batch **out)
{
    (void)index;
    *out = &((source *)user)->batch;
    return WF_OK;
}

static wf_trainer *open_trainer(wf_device *device, const char *path, int64_t lora,
                                const char *targets)
{
    const wf_train_options o = {.model = path,
                                .batch = BATCH,
                                .length = LENGTH,
                                .steps = STEPS,
                                .rate = lora ? 1e-2 : 1e-3,
                                .warmup = -1,
                                .schedule = "constant",
                                .lora = lora,
                                .lora_targets = targets};
    wf_trainer *t;
    wt_ok(device->ctx, wf_trainer_new(device, NULL, &o, 0, &t));
    return t;
}

/* Makes the steps from..to - 1 and records their losses. */
static void train(wf_trainer *t, source *s, int from, int to, double *losses)
{
    for (int i = from; i < to; i++) {
        wf_train_step step;
        wt_ok(t->ctx, wf_trainer_step(t, next_batch, s, &step));
        assert_true(step.applied && isfinite(step.loss));
        losses[i] = step.loss;
    }
}

/* Trains once without and once with an interruption. Losses must have the same bits. The trainer of
 * the first run remains open. */
static wf_trainer *train_twice(wf_device *device, const char *name, source *s, const char *path,
                               int64_t lora, const char *targets, const char *folder)
{
    double losses[STEPS], again[STEPS];
    bool exact = false;
    wf_trainer *whole = open_trainer(device, path, lora, targets);
    wf_trainer *rest = open_trainer(device, path, lora, targets);
    train(whole, s, 0, STOP, losses);
    wt_ok(device->ctx, wf_path_make_folder(device->ctx, folder));
    wt_ok(device->ctx, wf_trainer_save(whole, folder));
    train(whole, s, STOP, STEPS, losses);
    wt_ok(device->ctx, wf_trainer_load(rest, folder, &exact));
    train(rest, s, STOP, STEPS, again);
    wf_trainer_free(rest);
    assert_true(exact);
    assert_memory_equal(losses + STOP, again + STOP, (STEPS - STOP) * sizeof *losses);
    if (!(losses[STEPS - 1] < losses[0]))
        fail_msg("%s: the loss grows from %g to %g", name, losses[0], losses[STEPS - 1]);
    return whole;
}

/* All weights: also resumes bitwise where the checkpoint is of another form than the base, as that
 * of a multimodal model. */
static void resumes_bitwise(void **state)
{
    wf_ctx *ctx = *state;
    const int count = share_of(wt_cases(wt_later_count()));
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, device_name(), &device));
    for (int i = 0; i < count; i++) {
        const char *name = checkpoint(i);
        wt_scratch scratch;
        wt_reference r;
        source s;
        wt_scratch_make(&scratch);
        wt_reference_read(name, &r);
        make_source(&s, &r);
        wf_trainer_free(
            train_twice(device, name, &s, r.path, 0, NULL, wt_path(&scratch, "checkpoint")));
        wt_reference_free(&r);
        wt_scratch_remove(&scratch);
    }
    wf_device_close(device);
}

/* ---- Adapters ---- */

/* Logits of the fixture's prompt, with an adapter unless it is NULL. The caller frees them. */
static float *logits_of(wf_ctx *ctx, const wt_reference *r, const char *path, const char *adapter)
{
    const wf_lora lora = {.path = adapter};
    const wf_engine_options o = {.compute = WF_F32,
                                 .context = (int64_t)(r->prompt_count + r->greedy_count),
                                 .kv = WF_KV_F32,
                                 .lora = &lora,
                                 .loras = adapter != NULL};
    wt_talker t = wt_talker_open(ctx, device_name(), path, &o);
    float *logits = wt_logits(ctx, t.engine, r->prompt, r->prompt_count, r->vocab);
    wt_talker_close(&t);
    return logits;
}

static void convert(wf_ctx *ctx, const char *from, const char *to, const char *adapter)
{
    const wf_lora lora = {.path = adapter};
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, from, &m));
    wt_ok(ctx, wf_model_convert(
                   m, ctx, to,
                   &(wf_convert_options){.type = "f32", .lora = &lora, .loras = adapter != NULL}));
    wf_model_close(m);
}

/* Base and adapter, the merged folder, the merged GGUF file, and the adapter on a GGUF file of the
 * base, whose rows may have another order, give the same logits. */
static void compare_merged(wf_ctx *ctx, const char *name, const wt_reference *r,
                           const char *adapter, wt_scratch *scratch)
{
    char path[3][600];
    static const char *const files[3] = {"merged", "merged.gguf", "base.gguf"};
    const int64_t n = (int64_t)r->prompt_count * r->vocab;
    float *want = logits_of(ctx, r, r->path, adapter);
    double moved = wt_relative(want, r->logits, n), worst = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s", wt_path(scratch, files[i]));
        convert(ctx, r->path, path[i], i < 2 ? adapter : NULL);
        float *got = logits_of(ctx, r, path[i], i < 2 ? NULL : adapter);
        worst = fmax(worst, wt_relative(got, want, n));
        free(got);
    }
    free(want);
    print_message("%-16s adapter moves logits by %.2f, merged within %.1e\n", name, moved, worst);
    assert_true(moved > 1e-2 && worst <= 1e-5);
}

static void adapters(void **state)
{
    wf_ctx *ctx = *state;
    const int count = share_of(wt_cases(wt_later_count()));
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, device_name(), &device));
    for (int i = 0; i < count; i++) {
        const char *name = checkpoint(i);
        wt_scratch scratch;
        wt_reference r;
        source s;
        char adapter[600];
        wt_scratch_make(&scratch);
        wt_reference_read(name, &r);
        make_source(&s, &r);
        snprintf(adapter, sizeof adapter, "%s", wt_path(&scratch, "adapter"));
        wf_trainer *t =
            train_twice(device, name, &s, r.path, 4, NULL, wt_path(&scratch, "checkpoint"));
        wt_ok(ctx, wf_trainer_export(t, adapter, NULL));
        wf_trainer_free(t);
        compare_merged(ctx, name, &r, adapter, &scratch);
        wt_reference_free(&r);
        wt_scratch_remove(&scratch);
    }
    wf_device_close(device);
}

/* Adapters have PEFT's names of the modules: of fused weights, and inside a multimodal model. */
static void names_of_peft(void **state)
{
    static const struct {
        const char *fixture, *targets, *tensor;
        int tensors;
    } rows[] = {
        {"phi3", "qkv_proj", "model.layers.0.self_attn.qkv_proj.lora_B.weight", 4},
        {"phi3", "gate_up_proj", "model.layers.1.mlp.gate_up_proj.lora_A.weight", 4},
        {"glm4", "gate_up_proj,q_proj", "model.layers.1.mlp.gate_up_proj.lora_B.weight", 8},
        {"mistral3", "q_proj", "model.language_model.layers.0.self_attn.q_proj.lora_A.weight", 4},
    };
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, device_name(), &device));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[256], name[256];
        wt_scratch scratch;
        wf_store store;
        wt_scratch_make(&scratch);
        snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", rows[i].fixture);
        wf_trainer *t = open_trainer(device, path, 2, rows[i].targets);
        wt_ok(ctx, wf_trainer_export(t, wt_path(&scratch, "adapter"), NULL));
        wf_trainer_free(t);
        wf_store_init(&store, ctx);
        wt_ok(ctx,
              wf_safetensors_read(&store, wt_path(&scratch, "adapter/adapter_model.safetensors")));
        wt_ok(ctx, wf_store_seal(&store));
        snprintf(name, sizeof name, "base_model.model.%s", rows[i].tensor);
        assert_int_equal(store.count, rows[i].tensors);
        assert_non_null(wf_store_find(&store, name));
        wf_store_free(&store);
        wt_scratch_remove(&scratch);
    }
    wf_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(gradients_and_steps), wt_test(resumes_bitwise),       wt_test(adapters),
        wt_test(names_of_peft),       wt_test(gradients_of_core_ops),
    };
    /* The last one has a device of its own. */
    if (!getenv("WEFT_FAMILIES_DEVICE"))
        return cmocka_run_group_tests_name("families_train", tests, NULL, NULL);
    const struct CMUnitTest named[] = {wt_test(gradients_and_steps), wt_test(resumes_bitwise),
                                       wt_test(adapters), wt_test(names_of_peft)};
    return cmocka_run_group_tests_name("families_train", named, NULL, NULL);
}

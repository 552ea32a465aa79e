/* SPDX-License-Identifier: MIT */
/*
 * test_layers.c - models whose layers have different numbers of heads and different MLPs.
 *
 * The last layer of a fixture loses half of its heads and a part of its MLP. The reference is the
 * fixture with all sizes, in which the columns that read the lost parts are zero.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"
#include "infer/engine.h"
#include "infer/upload.h"
#include "model/family.h"
#include "model/model.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

#define LOGITS_BOUND 1e-5 /* relative to the largest logit */

/* ---- Files ---- */

/* The sizes of the last layer. */
typedef struct {
    int64_t heads, kv_heads, hidden;
} sizes;

static sizes small_of(const wf_config *c)
{
    const wf_layer *l = &c->all;
    return (sizes){l->heads / 2, l->kv_heads / 2, l->hidden * 2 / 3};
}

/* Returns whether the tensor loses rows (axis 0) or columns (axis 1) in the last layer; *keep is
 * how many remain. */
static bool is_cut(const wf_config *c, const char *name, int *axis, int64_t *keep)
{
    const sizes small = small_of(c);
    const int64_t dim = c->all.key_dim;
    const struct {
        const char *name;
        int axis;
        int64_t keep;
    } parts[] = {
        {"attn_q.", 0, small.heads * dim},    {"attn_k.", 0, small.kv_heads * dim},
        {"attn_v.", 0, small.kv_heads * dim}, {"attn_output.weight", 1, small.heads * dim},
        {"ffn_gate.", 0, small.hidden},       {"ffn_up.", 0, small.hidden},
        {"ffn_down.weight", 1, small.hidden},
    };
    char prefix[32];
    const int length = snprintf(prefix, sizeof prefix, "blk.%d.", (int)c->layers - 1);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strncmp(name, prefix, (size_t)length) == 0 &&
            strncmp(name + length, parts[i].name, strlen(parts[i].name)) == 0) {
            *axis = parts[i].axis;
            *keep = parts[i].keep;
            return true;
        }
    return false;
}

/* Returns the shape of a tensor of the cut model. */
static wf_dims cut_shape(const wf_config *c, const wf_stored *t)
{
    wf_dims shape = t->shape;
    int axis;
    int64_t keep;
    if (is_cut(c, t->name, &axis, &keep))
        shape.d[axis] = keep;
    return shape;
}

/* Writes a tensor of f32 rows: cut, or with zeros in the columns that the cut model lacks. */
static void write_tensor(wf_gguf_writer *w, wf_ctx *ctx, const wf_config *c, const wf_stored *t,
                         bool cut)
{
    const int64_t columns = wf_dims_last(&t->shape), count = wf_dims_count(&t->shape);
    const wf_dims shape = cut_shape(c, t);
    int64_t keep, left = 0;
    int axis;
    float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
    memcpy(x, t->data, t->bytes);
    if (is_cut(c, t->name, &axis, &keep) && axis == 1)
        for (int64_t i = 0; i < count; i++) {
            if (i % columns < keep)
                x[cut ? left++ : i] = x[i];
            else if (!cut)
                x[i] = 0;
        }
    wt_ok(ctx,
          wf_gguf_write_data(w, x, (size_t)wf_dims_count(cut ? &shape : &t->shape) * sizeof *x));
    wf_mem_free(ctx, x);
}

/* Writes a key with one value per layer. */
static void write_sizes(wf_ctx *ctx, wf_gguf_writer *w, const wf_config *c, const char *name,
                        int64_t usual, int64_t last)
{
    char key[128];
    int32_t values[8];
    assert_in_range(c->layers, 2, 8);
    for (int64_t i = 0; i < c->layers; i++)
        values[i] = (int32_t)(i < c->layers - 1 ? usual : last);
    snprintf(key, sizeof key, "%s.%s", c->family->name, name);
    wt_ok(ctx, wf_gguf_write_array(w, key, WF_GGUF_I32, values, (size_t)c->layers));
}

static bool ends_with(const char *text, const char *end)
{
    const size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Writes a model of one size again: with a smaller last layer, or with zeros instead. */
static void write_layers(wf_ctx *ctx, const wf_model *m, const char *path, bool cut)
{
    static const char *const keys[] = {".attention.head_count", ".attention.head_count_kv",
                                       ".feed_forward_length"};
    const wf_config *c = &m->config;
    const sizes small = small_of(c);
    const wf_store *s = m->store;
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    for (int i = 0; i < m->gguf->pairs; i++) {
        const wf_gguf_pair *pair = &m->gguf->pair[i];
        bool replaced = false;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            replaced |= cut && ends_with(pair->key, keys[k]);
        if (!replaced)
            wt_ok(ctx, wf_gguf_write_pair(w, pair));
    }
    if (cut) {
        write_sizes(ctx, w, c, keys[0] + 1, c->all.heads, small.heads);
        write_sizes(ctx, w, c, keys[1] + 1, c->all.kv_heads, small.kv_heads);
        write_sizes(ctx, w, c, keys[2] + 1, c->all.hidden, small.hidden);
    }
    for (int i = 0; i < s->count; i++) {
        const wf_dims shape = cut_shape(c, &s->tensor[i]);
        wt_ok(ctx, wf_gguf_write_tensor(w, s->tensor[i].name, WF_F32,
                                        cut ? &shape : &s->tensor[i].shape));
    }
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < s->count; i++)
        write_tensor(w, ctx, c, &s->tensor[i], cut);
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* Writes cut.gguf and zero.gguf. */
static void write_both(wf_ctx *ctx, wt_scratch *s, const char *name)
{
    char path[128];
    wf_model *m;
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    wt_ok(ctx,
          wf_model_convert(m, ctx, wt_path(s, "f32.gguf"), &(wf_convert_options){.type = "f32"}));
    wf_model_close(m);
    wt_ok(ctx, wf_model_open(ctx, wt_path(s, "f32.gguf"), &m));
    write_layers(ctx, m, wt_path(s, "cut.gguf"), true);
    write_layers(ctx, m, wt_path(s, "zero.gguf"), false);
    wf_model_close(m);
}

/* ---- Logits ---- */

/* Logits in chunks and greedy tokens equal those of the model with zeros. */
static void compare(wf_ctx *ctx, wt_scratch *s, const wt_reference *r, const char *device,
                    int64_t chunk)
{
    enum { GREEDY = 24 };
    const wf_engine_options options = {.chunk = chunk, .kv = WF_KV_F32};
    int32_t want_ids[GREEDY], ids[GREEDY];
    wt_talker t = wt_talker_open(ctx, "cpu", wt_path(s, "zero.gguf"), NULL);
    float *want = wt_logits(ctx, t.engine, r->prompt, r->prompt_count, r->vocab);
    wt_greedy(ctx, t.engine, r->prompt, r->prompt_count, want_ids, GREEDY);
    wt_talker_close(&t);
    t = wt_talker_open(ctx, device, wt_path(s, "cut.gguf"), &options);
    float *got = wt_logits(ctx, t.engine, r->prompt, r->prompt_count, r->vocab);
    wt_greedy(ctx, t.engine, r->prompt, r->prompt_count, ids, GREEDY);
    wt_talker_close(&t);
    assert_true(wt_relative(got, want, (int64_t)r->prompt_count * r->vocab) <= LOGITS_BOUND);
    assert_true(wt_relative(want, r->logits, (int64_t)r->prompt_count * r->vocab) > 1e-3);
    assert_memory_equal(ids, want_ids, sizeof ids);
    free(got);
    free(want);
}

static void logits(void **state)
{
    static const char *const names[] = {"granite", "smollm3", "qwen2"};
    static const int64_t chunks[] = {1, 7, 64};
    wf_ctx *ctx = *state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        wt_scratch s;
        wt_reference r;
        wt_scratch_make(&s);
        wt_reference_read(names[n], &r);
        write_both(ctx, &s, names[n]);
        for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
            compare(ctx, &s, &r, "cpu", chunks[i]);
        compare(ctx, &s, &r, "check", 7);
        wt_reference_free(&r);
        wt_scratch_remove(&s);
    }
}

/* The training graph, which has no cache, computes the engine's logits. */
static void training_graph(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_reference r;
    wt_scratch_make(&s);
    wt_reference_read("granite", &r);
    write_both(ctx, &s, "granite");
    wt_talker t = wt_talker_open(ctx, "cpu", wt_path(&s, "cut.gguf"), NULL);
    const int64_t count = (int64_t)r.prompt_count;
    const wf_build_options options = {.form = WF_FORM_TRAIN,
                                      .tokens = count,
                                      .sequences = 1,
                                      .given_frequencies = true,
                                      .type = wf_model_weight_type,
                                      .user = t.model};
    wt_run run = wt_open(ctx, "cpu");
    wf_graph *g = wt_graph(ctx);
    wt_ok(ctx, wf_output(g, "logits", wf_model_graph(g, &t.model->config, &options, NULL)));
    wt_compile(&run, g);
    for (int i = 0; i < t.model->weights; i++) {
        const wf_model_weight_info *w = &t.model->weight[i];
        const size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
        void *data = wf_mem_new(ctx, bytes);
        wt_ok(ctx, wf_weight_read(ctx, w, data));
        wt_ok(ctx, wf_session_write(run.session, w->name, data, bytes));
        wf_mem_free(ctx, data);
    }
    wt_ok(ctx, wf_upload_frequencies(run.session, &t.model->config, count));
    int32_t positions[64];
    assert_in_range(count, 1, 64);
    for (int32_t i = 0; i < count; i++)
        positions[i] = i;
    wt_write(&run, "tokens", r.prompt, (size_t)count * sizeof *r.prompt);
    wt_write(&run, "positions", positions, (size_t)count * sizeof *positions);
    wt_write(&run, "seq_start", (int32_t[]){0, (int32_t)count}, 2 * sizeof(int32_t));
    wt_run_once(&run);
    float *want = wf_mem_array(ctx, (size_t)(count * r.vocab), sizeof *want);
    wt_read(&run, "logits", want, (size_t)(count * r.vocab) * sizeof *want);
    float *got = wt_logits(ctx, t.engine, r.prompt, r.prompt_count, r.vocab);
    assert_true(wt_relative(got, want, count * r.vocab) <= LOGITS_BOUND);
    free(got);
    wf_mem_free(ctx, want);
    wt_close(&run);
    wt_talker_close(&t);
    wt_reference_free(&r);
    wt_scratch_remove(&s);
}

/* Plans equal the memory held, and each layer has pages for its own heads. */
static void memory(void **state)
{
    wf_ctx *ctx = *state;
    const wf_engine_options o = {.context = 64, .chunk = 16, .kv = WF_KV_F32};
    wf_memory planned, held;
    wt_scratch s;
    size_t kv;
    int64_t tokens;
    wt_scratch_make(&s);
    write_both(ctx, &s, "granite");
    wt_talker t = wt_talker_open(ctx, "cpu", wt_path(&s, "cut.gguf"), &o);
    wt_ok(ctx, wf_engine_plan(t.device, t.model, &o, &planned));
    wf_engine_memory(t.engine, &held);
    assert_memory_equal(&planned, &held, sizeof held);
    wt_ok(ctx, wf_engine_limits(t.model, &o, &tokens, &kv));
    /* 64 tokens, keys and values of 2 heads and of 1 head, each of 8 elements */
    assert_int_equal(kv, 64 * 2 * (2 + 1) * 8 * sizeof(float));
    wt_talker_close(&t);
    wt_scratch_remove(&s);
}

/* ---- Conversions ---- */

static void convert(wf_ctx *ctx, wt_scratch *s, const char *from, const char *to, const char *type)
{
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, wt_path(s, from), &m));
    wt_ok(ctx, wf_model_convert(m, ctx, wt_path(s, to), &(wf_convert_options){.type = type}));
    wf_model_close(m);
}

static void conversions(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *m;
    char *a, *b;
    size_t a_bytes, b_bytes;
    wt_scratch_make(&s);
    write_both(ctx, &s, "granite");
    convert(ctx, &s, "cut.gguf", "copy.gguf", NULL);
    wt_ok(ctx, wf_file_read(ctx, wt_path(&s, "cut.gguf"), 1 << 24, &a, &a_bytes));
    wt_ok(ctx, wf_file_read(ctx, wt_path(&s, "copy.gguf"), 1 << 24, &b, &b_bytes));
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    wf_mem_free(ctx, a);
    wf_mem_free(ctx, b);
    convert(ctx, &s, "cut.gguf", "q.gguf", "q8_0");
    wt_ok(ctx, wf_model_open(ctx, wt_path(&s, "q.gguf"), &m));
    assert_int_equal(m->config.layer[1].heads, 2);
    assert_int_equal(m->config.layer[1].kv_heads, 1);
    assert_int_equal(m->config.layer[1].hidden, 32);
    wt_fails(ctx, wf_model_convert(m, ctx, wt_path(&s, "folder"), NULL), WF_ERR_UNSUPPORTED,
             "config.json has no key for layers of different sizes");
    wf_model_close(m);
    wt_scratch_remove(&s);
}

/* ---- The program ---- */

#define LAYERS                                            \
    "  shape       2 layers, width 32\n"                  \
    "  layer 0     hidden 48, 4 heads of 8, 2 KV heads\n" \
    "  layer 1     hidden 32, 2 heads of 8, 1 KV head\n"  \
    "  context     "

static wt_program p;

static void info(void **state)
{
    char args[700];
    if (wt_program_make(&p) != 0)
        fail();
    write_both(*state, &p.scratch, "granite");
    snprintf(args, sizeof args, "info %s", wt_path(&p.scratch, "cut.gguf"));
    wt_program_ok(&p, args);
    wt_program_out(&p, LAYERS);
    snprintf(args, sizeof args, "info %s --json", wt_path(&p.scratch, "cut.gguf"));
    wt_program_ok(&p, args);
    wt_program_out(&p, "    {\n      \"hidden\": 32,\n      \"heads\": 2,\n"
                       "      \"kv_heads\": 1,\n      \"head_dim\": 8\n    }\n  ],\n");
    snprintf(args, sizeof args, "info %s", wt_path(&p.scratch, "zero.gguf"));
    wt_program_ok(&p, args);
    wt_program_out(&p, "  shape       2 layers, width 32, hidden 48, 4 heads of 8, 2 KV heads\n");
    snprintf(args, sizeof args, "info %s --json", wt_path(&p.scratch, "zero.gguf"));
    wt_program_ok(&p, args);
    wt_program_out(&p, "  \"layer_sizes\": [],\n");
    wt_scratch_remove(&p.scratch);
}

#define TUNE " --data \"$D/text.txt\" --batch 1 --length 16 --steps 2 --valid-every 0 -q -d cpu"

/* Adapters have the sizes of each layer. Checkpoints of all weights could not state them. */
static void finetune(void **state)
{
    if (wt_program_make(&p) != 0)
        fail();
    write_both(*state, &p.scratch, "granite");
    wt_put_text(&p.scratch, "text.txt",
                "The weft is the thread that crosses the warp. A shuttle carries it through the "
                "shed, from one selvage to the other, and the reed beats it against the cloth.\n");
    wt_program_ok(&p, "finetune \"$D/cut.gguf\" --out \"$D/lora\" --lora 2" TUNE);
    wt_program_ok(&p, "run \"$D/cut.gguf\" --lora \"$D/lora/adapter\" -p the -n 4 --ignore-eos -q");
    wt_program_fails(
        &p, 1, "finetune \"$D/cut.gguf\" --out \"$D/full\"" TUNE,
        "cannot train the weights of granite: checkpoints are Hugging Face folders, and "
        "config.json has no key for layers of different sizes; train adapters instead "
        "(--lora)");
    wt_program_ok(&p, "finetune \"$D/zero.gguf\" --out \"$D/full\"" TUNE);
    wt_scratch_remove(&p.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(logits),   wt_test(training_graph),
                                       wt_test(memory),   wt_test(conversions),
                                       wt_test(finetune), wt_test(info)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_imatrix.c - importance matrices: sums against those of transformers
 * (tests/fixtures/make_imatrix.py), files, and quantization that uses them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/mem.h"
#include "base/path.h"
#include "model/imatrix.h"
#include "model/model.h"
#include "scratch.h"
#include "support.h"

enum { CHUNK = 48, CHUNKS = 2 }; /* of the fixtures */

static const char *fixture(const char *kind, const char *name, const char *ending)
{
    static char path[4][128];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "tests/fixtures/%s/%s%s", kind, name, ending);
    return to;
}

static wf_model *open_model(wf_ctx *ctx, const char *path)
{
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    return m;
}

/* Measures the text of the fixtures. */
static wf_status measure(wf_device *device, const wf_model *m, const char *path)
{
    static const char *const datasets[] = {"one", "two"};
    wf_imatrix *imatrix;
    int32_t ids[CHUNK];
    WF_TRY(wf_imatrix_new(device, m, CHUNK, &imatrix));
    wf_status status = WF_OK;
    for (int c = 0; c < CHUNKS && status == WF_OK; c++) {
        for (int i = 0; i < CHUNK; i++) {
            int64_t n = c * CHUNK + i;
            ids[i] = (int32_t)((7 * n + n * n / 5) % m->config.vocab);
        }
        status = wf_imatrix_add(imatrix, ids, CHUNK);
    }
    if (status == WF_OK)
        status = wf_imatrix_save(imatrix, path, datasets, 2);
    wf_imatrix_free(imatrix);
    return status;
}

static void compare(const wf_importance *got, const wf_importance *want, const char *name)
{
    const wf_store *s = &want->file->store;
    double worst = 0;
    assert_int_equal(got->file->store.count, s->count);
    for (int i = 0; i < s->count; i++) {
        const wf_stored *a = wf_store_find(&got->file->store, s->tensor[i].name);
        assert_non_null(a);
        assert_int_equal(a->bytes, s->tensor[i].bytes);
        for (size_t k = 0; k < a->bytes; k += sizeof(float)) {
            float x, y;
            memcpy(&x, a->data + k, sizeof x);
            memcpy(&y, s->tensor[i].data + k, sizeof y);
            double error = fabs((double)x - y) / fabs((double)y);
            worst = error > worst ? error : worst;
        }
    }
    print_message("%s: %d tensors, sums within %.1e\n", name, s->count, worst);
    assert_true(worst < 1e-5);
}

/* Sums on two devices agree with transformers' in float64. */
static void sums(void **state)
{
    static const char *const names[] = {"llama", "gpt2", "qwen3"};
    static const char *const devices[] = {"cpu:1", "check"};
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (int n = 0; n < 3; n++)
        for (int d = 0; d < 2; d++) {
            wf_importance got, want;
            wf_device *device;
            wf_model *m = open_model(ctx, fixture("models", names[n], ""));
            wt_ok(ctx, wf_device_open(ctx, devices[d], &device));
            wt_ok(ctx, measure(device, m, wt_path(&s, "i.gguf")));
            wt_ok(ctx, wf_importance_open(ctx, wt_path(&s, "i.gguf"), &got));
            wt_ok(ctx, wf_importance_open(ctx, fixture("imatrix", names[n], ".gguf"), &want));
            compare(&got, &want, names[n]);
            assert_int_equal(got.chunks, CHUNKS);
            assert_int_equal(got.dataset.len, 3);
            assert_memory_equal(got.dataset.bytes, "one", 3);
            wf_importance_close(&got);
            wf_importance_close(&want);
            wf_device_close(device);
            wf_model_close(m);
        }
    wt_scratch_remove(&s);
}

static void refuses_text(void **state)
{
    wf_ctx *ctx = *state;
    int32_t ids[CHUNK] = {0};
    wf_device *device;
    wf_imatrix *imatrix;
    wt_scratch s;
    wf_model *m = open_model(ctx, fixture("models", "llama", ""));
    wt_scratch_make(&s);
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    wt_fails(ctx, wf_imatrix_new(device, m, 129, &imatrix), WF_ERR_USAGE,
             "chunks of 129 tokens are outside this model's range of 1 to 128 tokens");
    wt_ok(ctx, wf_imatrix_new(device, m, CHUNK, &imatrix));
    wt_fails(ctx, wf_imatrix_save(imatrix, wt_path(&s, "i.gguf"), NULL, 0), WF_ERR_USAGE,
             "no text was measured");
    wt_fails(ctx, wf_imatrix_add(imatrix, ids, 7), WF_ERR_USAGE,
             "a chunk has 7 tokens, but must have 48");
    ids[3] = 288;
    wt_fails(ctx, wf_imatrix_add(imatrix, ids, CHUNK), WF_ERR_USAGE,
             "token 288 is outside the vocabulary of 288 tokens");
    wf_imatrix_free(imatrix);
    wf_device_close(device);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

/* ---- Quantization ---- */

/* Returns the sum of importance * error^2 over all matrices of the layers. */
static double weighed_error(wf_ctx *ctx, const wf_importance *importance, const wf_model *exact,
                            const wf_model *m)
{
    double sum = 0;
    for (int i = 0; i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        const int64_t columns = wf_dims_last(&w->shape), count = wf_dims_count(&w->shape);
        float *weigh = wf_mem_array(ctx, (size_t)columns, sizeof *weigh);
        float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
        float *y = wf_mem_array(ctx, (size_t)count, sizeof *y);
        const wf_stored *from = wf_store_find(exact->store, w->name);
        bool measured = wf_importance_copy(importance, w->name, weigh);
        wt_ok(ctx, wf_type_to_f32(ctx, w->source->from->type, w->source->from->data, x, count));
        wt_ok(ctx, wf_type_to_f32(ctx, from->type, from->data, y, count));
        for (int64_t k = 0; k < count && measured; k++)
            sum += weigh[k % columns] * pow((double)x[k] - y[k], 2);
        wf_mem_free(ctx, weigh);
        wf_mem_free(ctx, x);
        wf_mem_free(ctx, y);
    }
    return sum;
}

static void lowers_errors(void **state)
{
    static const char *const types[] = {"q2_K", "q3_K", "q4_0", "q4_K", "iq4_nl", "q5_1", "q6_K"};
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_importance importance;
    char base[512], out[512];
    wt_scratch_make(&s);
    snprintf(base, sizeof base, "%s", wt_path(&s, "f32.gguf"));
    snprintf(out, sizeof out, "%s", wt_path(&s, "out.gguf"));
    wf_model *m = open_model(ctx, fixture("models", "llama", ""));
    wt_ok(ctx, wf_model_convert(m, ctx, base, &(wf_convert_options){.type = "f32"}));
    wf_model_close(m);
    m = open_model(ctx, base);
    wt_ok(ctx, wf_importance_open(ctx, fixture("imatrix", "llama", ".gguf"), &importance));
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        double error[2];
        for (int with = 0; with < 2; with++) {
            const wf_convert_options o = {.type = types[t],
                                          .pure = true,
                                          .imatrix =
                                              with ? fixture("imatrix", "llama", ".gguf") : NULL};
            int64_t entries = -1, chunks = -1;
            wt_ok(ctx, wf_model_convert(m, ctx, out, &o));
            wf_model *made = open_model(ctx, out);
            error[with] = weighed_error(ctx, &importance, m, made);
            wt_ok(ctx,
                  wf_gguf_get_int(made->gguf, "quantize.imatrix.entries_count", 0, 100, &entries));
            wt_ok(ctx,
                  wf_gguf_get_int(made->gguf, "quantize.imatrix.chunks_count", 0, 100, &chunks));
            assert_int_equal(entries, with ? 7 : -1);
            assert_int_equal(chunks, with ? CHUNKS : -1);
            wf_model_close(made);
        }
        print_message("%s: %.3f of the weighed error\n", types[t], sqrt(error[1] / error[0]));
        assert_true(error[1] < 0.98 * error[0]);
    }
    wf_importance_close(&importance);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

/* ---- Files of other models, and damaged ones ---- */

static const wf_matrix_columns two[] = {{"blk.0.attn_q.weight", 4, 0}, {"output.weight", 4, 0}};

typedef struct {
    const char *name;
    int64_t count;
    wf_type type;
    float value;
} tensor;

/* Writes a file with these tensors, each with one value throughout. */
static const char *write_file(wf_ctx *ctx, wt_scratch *s, const char *type, const tensor *t,
                              int count)
{
    wf_gguf_writer *w;
    const char *path = wt_path(s, "made.gguf");
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    if (type)
        wt_ok(ctx, wf_gguf_write_text(w, "general.type", type, strlen(type)));
    for (int i = 0; i < count; i++)
        wt_ok(ctx, wf_gguf_write_tensor(w, t[i].name, t[i].type, &(wf_dims){1, {t[i].count}}));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < t[i].count; k++) {
            uint8_t bytes[4];
            wf_convert_from_f32(t[i].type, &t[i].value, bytes, 1);
            wt_ok(ctx, wf_gguf_write_data(w, bytes, wf_type_bytes(t[i].type, 1)));
        }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    return path;
}

static void refuses_files(void **state)
{
#define SUMS "blk.0.attn_q.weight.in_sum2"
#define COUNTS "blk.0.attn_q.weight.counts"
    static const struct {
        const char *type;
        tensor t[3];
        int count;
        wf_status status;
        const char *words; /* NULL: accepted */
    } cases[] = {
        {"imatrix", {{SUMS, 4, WF_F32, 2}, {COUNTS, 1, WF_F32, 9}}, 2, WF_OK, NULL},
        {"model", {{SUMS, 4, WF_F32, 2}}, 1, WF_ERR_FORMAT, "its general.type is 'model', not"},
        {NULL, {{SUMS, 4, WF_F32, 2}}, 1, WF_ERR_FORMAT, "its general.type is ''"},
        {"imatrix", {{COUNTS, 1, WF_F32, 9}}, 1, WF_ERR_USAGE, "lacks " SUMS},
        {"imatrix", {{SUMS, 4, WF_F32, 2}}, 1, WF_ERR_USAGE, "lacks " COUNTS},
        {"imatrix",
         {{SUMS, 5, WF_F32, 2}, {COUNTS, 1, WF_F32, 9}},
         2,
         WF_ERR_USAGE,
         SUMS " has 5 elements, but this model needs 4"},
        {"imatrix",
         {{SUMS, 4, WF_F32, 2}, {COUNTS, 2, WF_F32, 9}},
         2,
         WF_ERR_USAGE,
         COUNTS " has 2 elements, but this model needs 1"},
        {"imatrix",
         {{SUMS, 4, WF_F16, 2}, {COUNTS, 1, WF_F32, 9}},
         2,
         WF_ERR_FORMAT,
         SUMS " has the type F16, not F32"},
        {"imatrix",
         {{SUMS, 4, WF_F32, -1}, {COUNTS, 1, WF_F32, 9}},
         2,
         WF_ERR_FORMAT,
         "element 0 of " SUMS " is -1"},
        {"imatrix", {{SUMS, 4, WF_F32, NAN}, {COUNTS, 1, WF_F32, 9}}, 2, WF_ERR_FORMAT, " is nan"},
        {"imatrix",
         {{SUMS, 4, WF_F32, 2}, {COUNTS, 1, WF_F32, 0}},
         2,
         WF_ERR_FORMAT,
         "element 0 of " COUNTS " is 0"},
        {"imatrix",
         {{SUMS, 4, WF_F32, 2},
          {COUNTS, 1, WF_F32, 9},
          {"blk.1.attn_q.weight.in_sum2", 4, WF_F32, 2}},
         3,
         WF_ERR_USAGE,
         "this model has no matrix for blk.1.attn_q.weight.in_sum2"},
        {"imatrix",
         {{SUMS, 4, WF_F32, 2}, {COUNTS, 1, WF_F32, 9}, {"output.weight.in_sum2", 4, WF_F32, 2}},
         3,
         WF_ERR_USAGE,
         "lacks output.weight.counts"},
    };
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_importance m;
        wf_status status = wf_importance_open(
            ctx, write_file(ctx, &s, cases[i].type, cases[i].t, cases[i].count), &m);
        if (status == WF_OK)
            status = wf_importance_check(&m, two, 2);
        if (cases[i].words)
            wt_fails(ctx, status, cases[i].status, cases[i].words);
        else
            wt_ok(ctx, status);
        wf_importance_close(&m);
    }
    wt_scratch_remove(&s);
}

/* Checks a file with pairs of sums[columns[i]] and counts for these names against the matrices. */
static wf_status check_pairs(wf_ctx *ctx, wt_scratch *s, const char *const *names,
                             const int *columns, const wf_matrix_columns *matrices, int count)
{
    tensor t[8];
    char text[8][64];
    int n = 0;
    wf_importance m;
    for (int i = 0; names[i]; i++)
        for (int k = 0; k < 2; k++, n++) {
            snprintf(text[n], sizeof text[n], "blk.0.%s.weight.%s", names[i],
                     k ? "counts" : "in_sum2");
            t[n] = (tensor){text[n], k ? 1 : columns[i], WF_F32, (float)(i + 2)};
        }
    wf_status status = wf_importance_open(ctx, write_file(ctx, s, "imatrix", t, n), &m);
    if (status == WF_OK)
        status = wf_importance_check(&m, matrices, count);
    for (int i = 0; i < count && status == WF_OK; i++) {
        float sums[4] = {0};
        assert_true(wf_importance_copy(&m, matrices[i].name, sums));
        assert_true(sums[0] >= 2 && sums[0] == sums[3]);
    }
    wf_importance_close(&m);
    return status;
}

/* attn_qkv stands for attn_q, attn_k and attn_v, and the reverse. */
static void accepts_parts(void **state)
{
    static const wf_matrix_columns fused[] = {{"blk.0.attn_qkv.weight", 4, 0}};
    static const wf_matrix_columns parts[] = {{"blk.0.attn_q.weight", 4, 0},
                                              {"blk.0.attn_k.weight", 4, 0},
                                              {"blk.0.attn_v.weight", 4, 0}};
    static const struct {
        const char *name[4];
        int columns[4];
        const char *fused, *parts; /* what the check reports for these matrices; NULL: accepted */
    } cases[] = {
        {{"attn_qkv"}, {4}, NULL, NULL},
        {{"attn_v", "attn_k", "attn_q"}, {4, 4, 4}, NULL, NULL},
        {{"attn_qkv"}, {5}, "has 5 elements", "has 5 elements"},
        {{"attn_q", "attn_k", "attn_v"},
         {4, 4, 5},
         "attn_v.weight.in_sum2 has 5 elements",
         "has 5"},
        {{"attn_q", "attn_k"}, {4, 4}, "lacks blk.0.attn_v", "lacks blk.0.attn_v"},
        {{"attn_k", "attn_v"}, {4, 4}, "lacks blk.0.attn_qkv", "lacks blk.0.attn_q.weight"},
        {{"attn_qkv", "attn_q"}, {4, 4}, "no matrix for blk.0.attn_q.", NULL},
        {{"attn_qkv", "attn_q", "attn_k", "attn_v"},
         {4, 4, 4, 4},
         "no matrix for blk.0.attn_",
         "no matrix for blk.0.attn_qkv."},
        {{"attn_output"}, {4}, "lacks blk.0.attn_qkv", "lacks blk.0.attn_q.weight"},
    };
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int split = 0; split < 2; split++) {
            const char *words = split ? cases[i].parts : cases[i].fused;
            const char *names[5] = {cases[i].name[0], cases[i].name[1], cases[i].name[2],
                                    cases[i].name[3], NULL};
            wf_status status =
                check_pairs(ctx, &s, names, cases[i].columns, split ? parts : fused, split ? 3 : 1);
            if (words)
                wt_fails(ctx, status, WF_ERR_USAGE, words);
            else
                wt_ok(ctx, status);
        }
    wt_scratch_remove(&s);
}

/* A stack has sums for each column of each expert, and a count for each expert, which may be 0. */
static void accepts_stacks(void **state)
{
#define STACK "blk.0.ffn_up_exps.weight"
    static const wf_matrix_columns stack = {STACK, 4, 3};
    static const struct {
        int64_t sums, counts;
        float count;
        const char *words; /* NULL: accepted */
    } cases[] = {
        {12, 3, 5, NULL},
        {12, 3, 0, NULL},
        {4, 3, 5, STACK ".in_sum2 has 4 elements, but this model needs 12"},
        {12, 1, 5, STACK ".counts has 1 elements, but this model needs 3"},
        {12, 3, -1, "element 0 of " STACK ".counts is -1"},
    };
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tensor t[] = {{STACK ".in_sum2", cases[i].sums, WF_F32, 2},
                            {STACK ".counts", cases[i].counts, WF_F32, cases[i].count}};
        float sums[13] = {0};
        wf_importance m;
        wf_status status = wf_importance_open(ctx, write_file(ctx, &s, "imatrix", t, 2), &m);
        if (status == WF_OK)
            status = wf_importance_check(&m, &stack, 1);
        if (cases[i].words) {
            wt_fails(ctx, status, cases[i].count < 0 ? WF_ERR_FORMAT : WF_ERR_USAGE,
                     cases[i].words);
        } else {
            wt_ok(ctx, status);
            assert_true(wf_importance_copy(&m, STACK, sums));
            assert_true(sums[0] == 2 && sums[11] == 2 && sums[12] == 0);
        }
        wf_importance_close(&m);
    }
    wt_scratch_remove(&s);
}

/* Returns how many tensors of a renamed file stand for one with this name: attn_q, attn_k and attn_v
 * for attn_qkv, attn_qkv for attn_q, and nothing for attn_k and attn_v. Writes the name of tensor i. */
static int renamed(const char *name, int i, char out[128])
{
    const char *at = strstr(name, "attn_"), *rest = at ? strchr(at, '.') : NULL;
    const int length = at ? (int)(at - name) : 0;
    snprintf(out, 128, "%s", name);
    if (!at || strncmp(at, "attn_output", 11) == 0)
        return 1;
    if (strncmp(at, "attn_qkv", 8) == 0) {
        snprintf(out, 128, "%.*sattn_%c%s", length, name, "qkv"[i], rest);
        return 3;
    }
    snprintf(out, 128, "%.*sattn_qkv%s", length, name, rest);
    return strncmp(at, "attn_q.", 7) == 0;
}

/* Copies an importance matrix with other names for the inputs of attention. */
static void write_renamed(wf_ctx *ctx, const char *from, const char *to)
{
    wf_importance m;
    wf_gguf_writer *w;
    char name[128];
    wt_ok(ctx, wf_importance_open(ctx, from, &m));
    const wf_store *s = &m.file->store;
    wt_ok(ctx, wf_gguf_write_new(ctx, to, NULL, &w));
    wt_ok(ctx, wf_gguf_write_text(w, "general.type", "imatrix", strlen("imatrix")));
    for (int t = 0; t < s->count; t++)
        for (int i = 0; i < renamed(s->tensor[t].name, i, name); i++)
            wt_ok(ctx, wf_gguf_write_tensor(w, name, WF_F32, &s->tensor[t].shape));
    wt_ok(ctx, wf_gguf_write_begin(w));
    for (int t = 0; t < s->count; t++)
        for (int i = 0; i < renamed(s->tensor[t].name, i, name); i++)
            wt_ok(ctx, wf_gguf_write_data(w, s->tensor[t].data, s->tensor[t].bytes));
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
    wf_importance_close(&m);
}

/* An importance matrix of a fused file quantizes a separate one to the same weights, and the
 * reverse. */
static void quantizes_parts(void **state)
{
    static const char *const names[] = {"llama", "gpt2"};
    wf_ctx *ctx = *state;
    wt_scratch s;
    char other[512], out[2][512];
    wt_scratch_make(&s);
    snprintf(other, sizeof other, "%s", wt_path(&s, "other.gguf"));
    for (int n = 0; n < 2; n++) {
        const char *const imatrix[] = {fixture("imatrix", names[n], ".gguf"), other};
        wf_model *m = open_model(ctx, fixture("models", names[n], "")), *made[2];
        write_renamed(ctx, imatrix[0], other);
        for (int i = 0; i < 2; i++) {
            snprintf(out[i], sizeof out[i], "%s", wt_path(&s, i ? "b.gguf" : "a.gguf"));
            wt_ok(ctx, wf_model_convert(m, ctx, out[i],
                                        &(wf_convert_options){.type = "q4_0",
                                                              .pure = true,

                                                              .imatrix = imatrix[i]}));
            made[i] = open_model(ctx, out[i]);
        }
        assert_int_equal(made[0]->store->count, made[1]->store->count);
        for (int t = 0; t < made[0]->store->count; t++) {
            const wf_stored *a = &made[0]->store->tensor[t];
            const wf_stored *b = wf_store_find(made[1]->store, a->name);
            assert_non_null(b);
            assert_int_equal(a->bytes, b->bytes);
            assert_memory_equal(a->data, b->data, a->bytes);
        }
        wf_model_close(made[0]);
        wf_model_close(made[1]);
        wf_model_close(m);
    }
    wt_scratch_remove(&s);
}

static void refuses_other_models(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    wf_convert_options o = {.type = "q4_0", .imatrix = fixture("imatrix", "gpt2", ".gguf")};
    const char *out = wt_path(&s, "out.gguf");
    wf_model *m = open_model(ctx, fixture("models", "llama", ""));
    wt_fails(ctx, wf_model_convert(m, ctx, out, &o), WF_ERR_USAGE,
             "blk.0.attn_qkv.weight.in_sum2 has 64 elements, but this model needs 256");
    o.imatrix = fixture("imatrix", "qwen3", ".gguf");
    wt_fails(ctx, wf_model_convert(m, ctx, out, &o), WF_ERR_USAGE,
             "elements, but this model needs 256");
    o.type = NULL;
    wt_fails(ctx, wf_model_convert(m, ctx, out, &o), WF_ERR_USAGE,
             "of use only when weights are quantized");
    assert_int_equal(wf_path_look(out), WF_PATH_NONE);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

/* Fails each allocation in turn; no file and no memory is left. */
static void out_of_memory(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_device *device;
    wt_scratch_make(&s);
    wf_model *m = open_model(ctx, fixture("models", "llama", ""));
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    const wf_convert_options o = {
        .type = "q4_0", .threads = 1, .imatrix = fixture("imatrix", "llama", ".gguf")};
    const char *path = wt_path(&s, "i.gguf");
    for (int form = 0; form < 2; form++) {
        uint64_t live = wt_live_blocks(ctx);
        bool reached = true;
        for (uint64_t nth = 1; reached; nth++) {
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status = form ? wf_model_convert(m, ctx, path, &o) : measure(device, m, path);
            reached = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            assert_int_equal(wt_live_blocks(ctx), live);
            if (!reached) {
                wt_ok(ctx, status);
                continue;
            }
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            assert_int_equal(wf_path_look(path), form ? WF_PATH_FILE : WF_PATH_NONE);
        }
    }
    wf_device_close(device);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(sums),
        wt_test(refuses_text),
        wt_test(lowers_errors),
        wt_test(refuses_files),
        wt_test(accepts_parts),
        wt_test(accepts_stacks),
        wt_test(quantizes_parts),
        wt_test(refuses_other_models),
        wt_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * test_sources.c - weights that are not one whole tensor: shared tensors, one tensor per expert,
 * transposed stacks, 1 + w, and GGUF files with separate q, k and v.
 *
 * No family has all of these, so the test has its own: Llama with other names, and with weights that
 * its graph does not use.
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
#include "format/safetensors.h"
#include "graph/build.h"
#include "graph/quant/block.h"
#include "model/family.h"
#include "model/model.h"
#include "model/rows.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

/* ---- The family ---- */

enum { EXPERTS = 3, INNER = 5, WIDTH = 256 };

#define GATE_UP "layers.%d.experts.gate_up_proj"

static const wf_weight_name names[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_norm", "layers.%d.input_layernorm", WF_NAME_PLUS_ONE},
    {"blk.%d.attn_q", "layers.%d.self_attn.qkv", WF_NAME_ROTATED},
    {"blk.%d.attn_k", "layers.%d.self_attn.qkv", WF_NAME_ROTATED},
    {"blk.%d.attn_v", "layers.%d.self_attn.qkv", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", WF_NAME_TRANSPOSED},
    {"blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {"blk.%d.ffn_gate", "layers.%d.mlp.gate_up", WF_NAME_ALTERNATE},
    {"blk.%d.ffn_up", "layers.%d.mlp.gate_up", WF_NAME_ALTERNATE},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"blk.%d.each", "layers.%d.experts.%e.each", 0},
    {"blk.%d.turned", "layers.%d.experts.%e.turned", WF_NAME_TRANSPOSED},
    {"blk.%d.stack", "layers.%d.experts.stack", 0},
    {"blk.%d.alone", "layers.%d.experts.alone", WF_NAME_TRANSPOSED},
    {"blk.%d.gate", GATE_UP, WF_NAME_TRANSPOSED | WF_NAME_ALTERNATE},
    {"blk.%d.up", GATE_UP, WF_NAME_TRANSPOSED | WF_NAME_ALTERNATE},
    {"output_norm", "norm", WF_NAME_PLUS_ONE},
    {"output", "lm_head", 0},
    {0},
};

static void add_stack(wf_builder *b, const char *name)
{
    char full[64];
    snprintf(full, sizeof full, "blk.%lld.%s.weight", (long long)b->layer, name);
    const wf_build_options *o = b->options;
    wf_state(b->g, full, o->type ? o->type(o->user, full) : WF_F32, 3,
             (int64_t[]){EXPERTS, INNER, WIDTH});
}

static wf_value *block(wf_builder *b, wf_value *x)
{
    static const char *const stacks[] = {"each", "turned", "stack", "alone", "gate", "up"};
    for (size_t i = 0; i < sizeof stacks / sizeof *stacks; i++)
        add_stack(b, stacks[i]);
    return wf_block_pre_norm(b, x);
}

static wf_family family;

static void make_family(void)
{
    family = wf_family_llama;
    family.weights = names;
    family.block = block;
}

/* ---- A folder with its tensors ---- */

/* Returns an element of a tensor: a multiple of 1/64, so that bf16 holds x, x + 1 and x - 1. */
static float element(int tensor, int64_t i)
{
    uint64_t mixed = ((uint64_t)tensor * 1000003 + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    return (float)((int)(mixed >> 40) % 121 - 60) / 64;
}

static const struct {
    const char *name;
    wf_dims shape;
} tensors[] = {
    {"model.embed_tokens.weight", {2, {288, WIDTH}}},
    {"model.layers.0.input_layernorm.weight", {1, {WIDTH}}},
    {"model.layers.0.self_attn.qkv.weight", {2, {256 + 128 + 128, WIDTH}}},
    {"model.layers.0.self_attn.o_proj.weight", {2, {256, WIDTH}}},
    {"model.layers.0.post_attention_layernorm.weight", {1, {WIDTH}}},
    {"model.layers.0.mlp.gate_up.weight", {2, {512, WIDTH}}},
    {"model.layers.0.mlp.down_proj.weight", {2, {WIDTH, 256}}},
    {"model.layers.0.experts.0.each.weight", {2, {INNER, WIDTH}}},
    {"model.layers.0.experts.1.each.weight", {2, {INNER, WIDTH}}},
    {"model.layers.0.experts.2.each.weight", {2, {INNER, WIDTH}}},
    {"model.layers.0.experts.0.turned.weight", {2, {WIDTH, INNER}}},
    {"model.layers.0.experts.1.turned.weight", {2, {WIDTH, INNER}}},
    {"model.layers.0.experts.2.turned.weight", {2, {WIDTH, INNER}}},
    {"model.layers.0.experts.stack.weight", {3, {EXPERTS, INNER, WIDTH}}},
    {"model.layers.0.experts.gate_up_proj.weight", {3, {EXPERTS, WIDTH, 2 * INNER}}},
    {"model.norm.weight", {1, {WIDTH}}},
    {"lm_head.weight", {2, {288, WIDTH}}},
    {"model.layers.0.experts.alone.weight", {3, {EXPERTS, WIDTH, INNER}}},
};
#define TENSORS (sizeof tensors / sizeof *tensors)

/* Writes the folder without tensor `missing`, and with one more row in tensor `longer`. */
static void write_folder(wf_ctx *ctx, wt_scratch *s, int missing, int longer)
{
    wf_safetensors_writer *w;
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_file_read(ctx, WT_MODELS_FOLDER "/llama/config.json", 1 << 20, &text, &bytes));
    wt_put(s, "config.json", text, bytes);
    wf_mem_free(ctx, text);
    wt_ok(ctx, wf_safetensors_write_new(ctx, s->folder, "model", 0, &w));
    wf_dims shape[TENSORS];
    for (int i = 0; i < (int)TENSORS; i++) {
        shape[i] = tensors[i].shape;
        shape[i].d[0] += i == longer;
        if (i != missing)
            wt_ok(ctx, wf_safetensors_write_tensor(w, tensors[i].name, WF_BF16, &shape[i]));
    }
    wt_ok(ctx, wf_safetensors_write_begin(w));
    for (int i = 0; i < (int)TENSORS; i++) {
        int64_t count = wf_dims_count(&shape[i]);
        float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
        uint16_t *narrow = wf_mem_array(ctx, (size_t)count, sizeof *narrow);
        for (int64_t k = 0; k < count; k++)
            x[k] = element(i, k);
        wf_convert_from_f32(WF_BF16, x, narrow, count);
        if (i != missing)
            wt_ok(ctx, wf_safetensors_write_data(w, narrow, (size_t)count * sizeof *narrow));
        wf_mem_free(ctx, narrow);
        wf_mem_free(ctx, x);
    }
    wt_ok(ctx, wf_safetensors_write_end(w));
    wf_safetensors_write_free(w);
}

/* Opens a folder or file as a model of the test's family; wf_model_open knows only the others. */
static wf_status open_own(wf_ctx *ctx, const char *path, bool gguf, wf_model **out)
{
    wf_model *m = wf_mem_new(ctx, sizeof *m);
    m->ctx = ctx;
    wf_arena_init(&m->arena, ctx);
    m->path = wf_arena_strdup(&m->arena, path);
    if (gguf) {
        wt_ok(ctx, wf_gguf_open(ctx, path, &m->gguf));
        m->store = &m->gguf->store;
        wt_ok(ctx, wf_config_from_gguf(&m->arena, "file", m->gguf, &m->config));
    } else {
        wt_ok(ctx, wf_folder_open(ctx, path, &m->folder));
        m->store = &m->folder->store;
        wt_ok(ctx, wf_config_from_json(&m->arena, "folder", m->folder->config, &m->config));
    }
    m->config.vocab = 288;
    m->config.family = &family;
    m->no_tokenizer = "none";
    *out = m;
    WF_TRY(wf_model_bind(m));
    wf_model_describe(m, "test");
    m->info.name = "sources";
    return WF_OK;
}

/* ---- Reading ---- */

/* Returns element [e][row][column] of a weight, computed from the tensors by another way. */
static float expected(const char *name, int64_t e, int64_t row, int64_t column)
{
    const struct {
        const char *name;
        int tensor;
        int64_t index;
        float add;
    } rows[] = {
        {"token_embd.weight", 0, row * WIDTH + column, 0},
        {"blk.0.attn_norm.weight", 1, row, 1},
        {"blk.0.attn_q.weight", 2, row * WIDTH + column, 0},
        {"blk.0.attn_k.weight", 2, (256 + row) * WIDTH + column, 0},
        {"blk.0.attn_v.weight", 2, (384 + row) * WIDTH + column, 0},
        {"blk.0.attn_output.weight", 3, column * 256 + row, 0},
        {"blk.0.ffn_norm.weight", 4, row, 0},
        {"blk.0.ffn_gate.weight", 5, 2 * row * WIDTH + column, 0},
        {"blk.0.ffn_up.weight", 5, (2 * row + 1) * WIDTH + column, 0},
        {"blk.0.ffn_down.weight", 6, row * 256 + column, 0},
        {"blk.0.each.weight", 7 + (int)e, row * WIDTH + column, 0},
        {"blk.0.turned.weight", 10 + (int)e, column * INNER + row, 0},
        {"blk.0.stack.weight", 13, (e * INNER + row) * WIDTH + column, 0},
        {"blk.0.gate.weight", 14, (e * WIDTH + column) * 2 * INNER + 2 * row, 0},
        {"blk.0.up.weight", 14, (e * WIDTH + column) * 2 * INNER + 2 * row + 1, 0},
        {"output_norm.weight", 15, row, 1},
        {"output.weight", 16, row * WIDTH + column, 0},
        {"blk.0.alone.weight", 17, (e * WIDTH + column) * INNER + row, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return element(rows[i].tensor, rows[i].index) + rows[i].add;
    fail_msg("%s is not expected", name);
    return 0;
}

/* Compares a weight with the tensors; `skip_rotated` leaves out rows whose order differs. */
static void compare_weight(wf_ctx *ctx, const wf_model_weight_info *w, bool skip_rotated)
{
    const int64_t count = wf_dims_count(&w->shape);
    const int64_t columns = w->shape.n > 1 ? wf_dims_last(&w->shape) : 1;
    const int64_t rows = w->shape.n > 2 ? w->shape.d[1] : count / columns;
    void *raw = wf_mem_new(ctx, wf_type_bytes(w->type, count));
    float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
    wt_ok(ctx, wf_weight_read(ctx, w, raw));
    wf_convert_to_f32(w->type, raw, x, count);
    bool rotated = strstr(w->name, "attn_q") || strstr(w->name, "attn_k");
    for (int64_t i = 0; i < count && !(rotated && skip_rotated); i++) {
        float want = expected(w->name, i / columns / rows, i / columns % rows, i % columns);
        if (x[i] != want)
            fail_msg("%s[%lld] is %g but should be %g", w->name, (long long)i, (double)x[i],
                     (double)want);
    }
    wf_mem_free(ctx, x);
    wf_mem_free(ctx, raw);
}

static void a_folder_is_read(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *m;
    wt_scratch_make(&s);
    write_folder(ctx, &s, -1, -1);
    wt_ok(ctx, open_own(ctx, s.folder, false, &m));
    assert_int_equal(m->weights, 18);
    size_t bytes = 0;
    for (int i = 0; i < m->weights; i++) {
        compare_weight(ctx, &m->weight[i], false);
        bytes += wf_weight_stored_bytes(&m->weight[i]);
    }
    size_t all = 0;
    for (int i = 0; i < m->store->count; i++)
        all += m->store->tensor[i].bytes;
    assert_int_equal(bytes, all); /* shared tensors count once */
    /* A range of rows and a stack lie in place; strided and transposed ones do not. */
    static const struct {
        const char *name;
        bool in_place;
    } rows[] = {{"blk.0.attn_k.weight", true},       {"blk.0.stack.weight", true},
                {"blk.0.ffn_up.weight", false},      {"blk.0.gate.weight", false},
                {"blk.0.attn_output.weight", false}, {"blk.0.each.weight", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(wf_weight_in_place(wf_model_find_weight(m, rows[i].name)) != NULL,
                         rows[i].in_place);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

/* ---- Writing ---- */

static void stores_equal(const wf_store *a, const wf_store *b)
{
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) {
        const wf_stored *x = &a->tensor[i], *y = wf_store_find(b, x->name);
        if (!y || x->type != y->type || !wf_dims_equal(&x->shape, &y->shape) ||
            memcmp(x->data, y->data, x->bytes) != 0)
            fail_msg("%s is not the same", x->name);
    }
}

static void round_trips_keep_every_byte(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s, folders[2];
    wf_model *first, *file, *second;
    char path[600];
    wt_scratch_make(&s);
    wt_scratch_make(&folders[0]);
    wt_scratch_make(&folders[1]);
    write_folder(ctx, &s, -1, -1);
    wt_ok(ctx, open_own(ctx, s.folder, false, &first));
    snprintf(path, sizeof path, "%s", wt_path(&folders[0], "model.gguf"));
    wt_ok(ctx, wf_model_convert(first, ctx, path, NULL));
    wt_ok(ctx, open_own(ctx, path, true, &file));
    assert_int_equal(file->weights, 18);
    for (int i = 0; i < file->weights; i++) {
        compare_weight(ctx, &file->weight[i], true);
        assert_non_null(wf_weight_in_place(&file->weight[i])); /* also stacks */
    }
    for (int from_gguf = 0; from_gguf < 2; from_gguf++) {
        snprintf(path, sizeof path, "%s/out%d", folders[1].folder, from_gguf);
        wt_ok(ctx, wf_model_convert(from_gguf ? file : first, ctx, path, NULL));
        wt_ok(ctx, open_own(ctx, path, false, &second));
        stores_equal(first->store, second->store);
        wf_model_close(second);
    }
    wf_model_close(file);
    wf_model_close(first);
    wt_scratch_remove(&folders[1]);
    wt_scratch_remove(&folders[0]);
    wt_scratch_remove(&s);
}

/* ---- Importance matrices ---- */

/* Returns the sum of a column of an expert's inputs; the router never chose expert 1. */
static float sum_of(int weight, int64_t expert, int64_t column)
{
    const float x = element(100 + weight, expert * WIDTH + column);
    return expert == 1 ? 0 : x * x;
}

static bool is_measured(const wf_model_weight_info *w)
{
    return w->shape.n >= 2 && strncmp(w->name, "blk.", 4) == 0;
}

static void write_importance(wf_ctx *ctx, const wf_model *m, const char *path)
{
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, NULL, &w));
    wt_ok(ctx, wf_gguf_write_text(w, "general.type", "imatrix", strlen("imatrix")));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < m->weights; i++) {
            const wf_model_weight_info *weight = &m->weight[i];
            const int64_t experts = weight->shape.n == 3 ? EXPERTS : 1;
            const int64_t columns = wf_dims_last(&weight->shape);
            char sums[96], counts[96];
            snprintf(sums, sizeof sums, "%s.in_sum2", weight->name);
            snprintf(counts, sizeof counts, "%s.counts", weight->name);
            if (is_measured(weight) && pass == 0) {
                wt_ok(ctx,
                      wf_gguf_write_tensor(w, sums, WF_F32, &(wf_dims){2, {experts, columns}}));
                wt_ok(ctx, wf_gguf_write_tensor(w, counts, WF_F32, &(wf_dims){2, {experts, 1}}));
            }
            for (int64_t k = 0; is_measured(weight) && pass == 1 && k < experts * columns; k++) {
                const float x = sum_of(i, k / columns, k % columns);
                wt_ok(ctx, wf_gguf_write_data(w, &x, sizeof x));
            }
            for (int64_t e = 0; is_measured(weight) && pass == 1 && e < experts; e++) {
                const float count = e == 1 ? 0 : 9;
                wt_ok(ctx, wf_gguf_write_data(w, &count, sizeof count));
            }
        }
        if (pass == 0)
            wt_ok(ctx, wf_gguf_write_begin(w));
    }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

/* Checks that every expert of a stack was quantized with its own sums. */
static void check_quantized(wf_ctx *ctx, const wf_model *m, int weight, const wf_store *s)
{
    const wf_model_weight_info *w = &m->weight[weight];
    const wf_stored *t = wf_store_find(s, w->name);
    const size_t bytes = wf_type_bytes(WF_Q4_0, WIDTH);
    uint8_t *row = wf_mem_new(ctx, bytes);
    float x[WIDTH], sums[WIDTH];
    assert_non_null(t);
    assert_int_equal(t->type, WF_Q4_0);
    for (int64_t i = 0; i < EXPERTS * INNER; i++) {
        for (int64_t k = 0; k < WIDTH; k++) {
            x[k] = expected(w->name, i / INNER, i % INNER, k);
            sums[k] = sum_of(weight, i / INNER, k);
        }
        wf_quantize(WF_Q4_0, x, i / INNER == 1 ? NULL : sums, row, 1, WIDTH);
        assert_memory_equal(row, t->data + (size_t)i * bytes, bytes);
    }
    wf_mem_free(ctx, row);
}

static void importance_of_stacks(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s, out;
    wf_model *m, *file;
    char imatrix[600];
    int stacks = 0;
    wt_scratch_make(&s);
    wt_scratch_make(&out);
    write_folder(ctx, &s, -1, -1);
    wt_ok(ctx, open_own(ctx, s.folder, false, &m));
    snprintf(imatrix, sizeof imatrix, "%s", wt_path(&out, "imatrix.gguf"));
    write_importance(ctx, m, imatrix);
    const wf_convert_options o = {.type = "q4_0", .pure = true, .imatrix = imatrix};
    wt_ok(ctx, wf_model_convert(m, ctx, wt_path(&out, "q.gguf"), &o));
    wt_ok(ctx, open_own(ctx, wt_path(&out, "q.gguf"), true, &file));
    for (int i = 0; i < m->weights; i++)
        if (m->weight[i].shape.n == 3) {
            check_quantized(ctx, m, i, file->store);
            stacks++;
        }
    assert_int_equal(stacks, 6);
    wf_model_close(file);
    wf_model_close(m);
    wt_scratch_remove(&out);
    wt_scratch_remove(&s);
}

static void wrong_tensors_are_refused(void **state)
{
    static const struct {
        int missing, longer;
        const char *part;
    } rows[] = {
        {8, -1, "model.layers.0.experts.1.each.weight is missing"},
        {2, -1, "model.layers.0.self_attn.qkv.weight is missing"},
        {-1, 2,
         "model.layers.0.self_attn.qkv.weight in model.safetensors is [513, 256] but must be "
         "[512, 256]"},
        {-1, 14, "is [4, 256, 10] but must be [3, 256, 10]"},
        {-1, 12, "experts.2.turned.weight in model.safetensors is [257, 5] but must be [256, 5]"},
    };
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wt_scratch s;
        wf_model *m;
        wt_scratch_make(&s);
        write_folder(ctx, &s, rows[i].missing, rows[i].longer);
        wt_fails(ctx, open_own(ctx, s.folder, false, &m), WF_ERR_FORMAT, rows[i].part);
        wf_model_close(m);
        wt_scratch_remove(&s);
    }
}

/* ---- GGUF files with separate q, k and v ---- */

#define QKV ".attn_qkv.weight"

/* Declares a tensor in pass 0. In pass 1 writes its values, of type `from`, as type `to`. */
static void put_tensor(wf_ctx *ctx, wf_gguf_writer *w, int pass, const char *name,
                       const wf_dims *shape, wf_type from, const void *data, wf_type to)
{
    const int64_t count = wf_dims_count(shape);
    if (pass == 0) {
        wt_ok(ctx, wf_gguf_write_tensor(w, name, to, shape));
        return;
    }
    float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
    void *out = wf_mem_new(ctx, wf_type_bytes(to, count));
    wf_convert_to_f32(from, data, x, count);
    wf_convert_from_f32(to, x, out, count);
    wt_ok(ctx, wf_gguf_write_data(w, out, wf_type_bytes(to, count)));
    wf_mem_free(ctx, out);
    wf_mem_free(ctx, x);
}

/* Copies a GGUF file of Phi-3. attn_qkv becomes three tensors; values get type `v`, and
 * `extra` rows move from the queries to the keys. */
static void split_file(wf_ctx *ctx, const wf_model *m, const char *path, wf_type v, int64_t extra)
{
    const wf_layer *l = wf_config_layer(&m->config, 0);
    const int64_t rows[] = {l->heads * l->key_dim - extra, l->kv_heads * l->key_dim + extra,
                            l->kv_heads * l->value_dim};
    const wf_gguf_write_options options = {0};
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, &options, &w));
    for (int i = 0; i < m->gguf->pairs; i++)
        wt_ok(ctx, wf_gguf_write_pair(w, &m->gguf->pair[i]));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < m->store->count; i++) {
            const wf_stored *t = &m->store->tensor[i];
            const char *at = strstr(t->name, QKV);
            const uint8_t *data = t->data;
            if (!at && pass == 0)
                wt_ok(ctx, wf_gguf_write_tensor(w, t->name, t->type, &t->shape));
            else if (!at)
                wt_ok(ctx, wf_gguf_write_data(w, data, t->bytes));
            for (int k = 0; at && k < 3; k++) {
                char name[80];
                const wf_type type = k == 2 ? v : t->type;
                const wf_dims shape = {2, {rows[k], t->shape.d[1]}};
                snprintf(name, sizeof name, "%.*s.attn_%c.weight", (int)(at - t->name), t->name,
                         "qkv"[k]);
                put_tensor(ctx, w, pass, name, &shape, t->type, data, type);
                data += wf_type_bytes(t->type, wf_dims_count(&shape));
            }
        }
        if (pass == 0)
            wt_ok(ctx, wf_gguf_write_begin(w));
    }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

static void separate_queries_keys_and_values(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *folder, *fused, *split, *again;
    char path[600];
    const wf_convert_options options = {.type = "f16"};
    wt_scratch_make(&s);
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/phi3", &folder));
    snprintf(path, sizeof path, "%s", wt_path(&s, "fused.gguf"));
    wt_ok(ctx, wf_model_convert(folder, ctx, path, &options));
    wf_model_close(folder);
    wt_ok(ctx, wf_model_open(ctx, path, &fused));
    for (int mixed = 0; mixed < 2; mixed++) {
        const wf_type type = mixed ? WF_F32 : WF_F16;
        split_file(ctx, fused, wt_path(&s, "split.gguf"), type, 0);
        wt_ok(ctx, wf_model_open(ctx, s.path, &split));
        const wf_model_weight_info *a = wf_model_find_weight(fused, "blk.0" QKV);
        const wf_model_weight_info *b = wf_model_find_weight(split, "blk.0" QKV);
        assert_int_equal(b->type, type);
        assert_int_equal(b->sources, 3);
        const int64_t count = wf_dims_count(&a->shape);
        float *x = wf_mem_array(ctx, (size_t)count, sizeof *x);
        float *y = wf_mem_array(ctx, (size_t)count, sizeof *y);
        void *raw = wf_mem_array(ctx, (size_t)count, sizeof(float));
        wt_ok(ctx, wf_weight_read(ctx, a, raw));
        wf_convert_to_f32(a->type, raw, x, count);
        wt_ok(ctx, wf_weight_read(ctx, b, raw));
        wf_convert_to_f32(b->type, raw, y, count);
        assert_memory_equal(x, y, (size_t)count * sizeof *x);
        wf_mem_free(ctx, raw);
        wf_mem_free(ctx, y);
        wf_mem_free(ctx, x);
        /* A copy has the fused weight. */
        snprintf(path, sizeof path, "%s", wt_path(&s, "again.gguf"));
        wt_ok(ctx, wf_model_convert(split, ctx, path, &options));
        wt_ok(ctx, wf_model_open(ctx, path, &again));
        stores_equal(fused->store, again->store);
        wf_model_close(again);
        wf_model_close(split);
    }
    split_file(ctx, fused, wt_path(&s, "wrong.gguf"), WF_F16, 2);
    wt_fails(ctx, wf_model_open(ctx, s.path, &split), WF_ERR_FORMAT, "blk.0.attn_q.weight is [");
    /* Values that are quantized must not be quantized again unasked, although the weight is f32. */
    const wf_convert_options again_quantized = {.type = "q5_0"};
    split_file(ctx, fused, wt_path(&s, "quantized.gguf"), WF_Q8_0, 0);
    wt_ok(ctx, wf_model_open(ctx, s.path, &split));
    assert_int_equal(wf_model_find_weight(split, "blk.0" QKV)->type, WF_F32);
    wt_fails(ctx, wf_model_convert(split, ctx, wt_path(&s, "out.gguf"), &again_quantized),
             WF_ERR_USAGE, "already quantized to q8_0");
    wf_model_close(split);
    wf_model_close(fused);
    wt_scratch_remove(&s);
}

/* ---- Vectors of blocks, whose elements are reordered ---- */

/* Copies a GGUF file. Tensors whose names end with `suffix` get another type. */
static void retype_file(wf_ctx *ctx, const wf_model *m, const char *path, const char *suffix,
                        wf_type type)
{
    const wf_gguf_write_options options = {0};
    wf_gguf_writer *w;
    wt_ok(ctx, wf_gguf_write_new(ctx, path, &options, &w));
    for (int i = 0; i < m->gguf->pairs; i++)
        wt_ok(ctx, wf_gguf_write_pair(w, &m->gguf->pair[i]));
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < m->store->count; i++) {
            const wf_stored *t = &m->store->tensor[i];
            put_tensor(ctx, w, pass, t->name, &t->shape, t->type, t->data,
                       strstr(t->name, suffix) ? type : t->type);
        }
        if (pass == 0)
            wt_ok(ctx, wf_gguf_write_begin(w));
    }
    wt_ok(ctx, wf_gguf_write_end(w));
    wf_gguf_write_free(w);
}

static void vectors_of_blocks(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wf_model *m, *back;
    char path[600];
    wt_scratch_make(&s);
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama-bias", &m));
    snprintf(path, sizeof path, "%s", wt_path(&s, "plain.gguf"));
    wt_ok(ctx, wf_model_convert(m, ctx, path, NULL));
    wf_model_close(m);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    retype_file(ctx, m, wt_path(&s, "blocks.gguf"), "attn_q.bias", WF_Q8_0);
    snprintf(path, sizeof path, "%s", s.path);
    wf_model_close(m);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    snprintf(path, sizeof path, "%s/folder", s.folder);
    wt_ok(ctx, wf_model_convert(m, ctx, path, NULL));
    wt_ok(ctx, wf_model_open(ctx, path, &back));
    const wf_model_weight_info *a = wf_model_find_weight(m, "blk.0.attn_q.bias");
    const wf_model_weight_info *b = wf_model_find_weight(back, "blk.0.attn_q.bias");
    float x[512], y[512];
    const int64_t n = wf_dims_count(&a->shape);
    assert_true(n <= 512);
    wt_ok(ctx, wf_weight_read(ctx, a, x));
    wt_ok(ctx, wf_weight_read(ctx, b, y));
    for (int64_t i = 0; i < n; i++) /* folders have the rows in another order */
        assert_true(y[i] == x[wf_rows_source(&m->config, WF_ROWS_FROM_PAIRS, i)]);
    wf_model_close(back);
    wf_model_close(m);
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(a_folder_is_read),
        wt_test(round_trips_keep_every_byte),
        wt_test(importance_of_stacks),
        wt_test(wrong_tensors_are_refused),
        wt_test(separate_queries_keys_and_values),
        wt_test(vectors_of_blocks),
    };
    make_family();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: MIT */
/*
 * imatrix.c - measures importance matrices (model/imatrix.h).
 *
 * The graph is a model's whole-sequence graph, without a cache. The hook that adapters use adds to
 * every linear of a layer a state that accumulates the squares of its inputs. Activations stay on
 * the device; only the sums are read, at the end.
 */
#include "model/imatrix.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "device/device.h"
#include "infer/load.h"
#include "model/family.h"

#define DEFAULT_CHUNK 512 /* tokens, as in llama-imatrix */

/* A linear of a layer. */
typedef struct {
    const char *weight; /* "blk.0.attn_q.weight" */
    const char *state;  /* sum of squared inputs, f32[columns] */
    int64_t columns;
} measured;

struct wf_imatrix {
    wf_ctx *ctx;
    const wf_model *model; /* borrowed */
    wf_session *session;
    wf_exec *exec;
    wf_arena arena;   /* owns names */
    measured *linear; /* [linears] */
    int linears, room;
    wf_status status; /* first failure of the hook, which cannot return one */
    int64_t chunk, chunks;
};

/* ---- Graph ---- */

static wf_status add_linear(wf_imatrix *m, const char *name, int64_t columns)
{
    char text[WF_NAME_BYTES];
    size_t len = 0;
    measured *grown = wf_mem_room(m->ctx, m->linear, m->linears, &m->room, sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    m->linear = grown;
    wf_text_append(text, sizeof text, &len, "imatrix.%s.weight", name);
    const char *state = wf_arena_strdup(&m->arena, text);
    if (!state)
        return WF_ERR_MEMORY;
    m->linear[m->linears++] = (measured){state + strlen("imatrix."), state, columns};
    return WF_OK;
}

/* Sums the squares of x [N, columns] over its rows. The output matrix is left out, as in
 * llama-imatrix: files of quantized models store it in q6_K or better. */
static wf_value *measure(void *user, wf_builder *b, const char *name, wf_value *x, wf_value *y)
{
    wf_imatrix *m = user;
    if (!x || !y || m->status != WF_OK || strncmp(name, "blk.", 4) != 0)
        return y;
    const int64_t columns = wf_dims_last(&x->shape);
    m->status = add_linear(m, name, columns);
    if (m->status != WF_OK)
        return y;
    wf_value *sum = wf_reduce(b->g, "sum", wf_binary(b->g, "mul", x, x), WF_AXIS(0), false);
    wf_accumulate(b->g, wf_state(b->g, m->linear[m->linears - 1].state, WF_F32, 1, &columns), sum,
                  NULL);
    return y;
}

/* One row of logits keeps the head in the graph, so that all weights have states. */
static wf_status build(wf_imatrix *m, wf_graph *graph)
{
    const wf_build_options options = {
        .form = WF_FORM_TRAIN,
        .tokens = m->chunk,
        .sequences = 1,
        .rows = 1,
        .given_frequencies = true,
        .type = wf_model_weight_type,
        .user = (void *)(uintptr_t)m->model, /* only read */
        .adapt = measure,
        .adapt_user = m,
    };
    wf_value *logits = wf_model_graph(graph, &m->model->config, &options, NULL);
    WF_TRY(m->status);
    return wf_output(graph, "logits", logits);
}

static wf_status compile(wf_imatrix *m)
{
    wf_graph *graph;
    WF_TRY(wf_graph_new(m->ctx, &graph));
    wf_status status = build(m, graph);
    if (status == WF_OK)
        status = wf_compile(m->session, graph, &m->exec);
    wf_graph_free(graph);
    return status;
}

/* Writes the inputs that are the same for every chunk. */
static wf_status write_inputs(wf_imatrix *m)
{
    const int32_t bounds[2] = {0, (int32_t)m->chunk}, row = 0;
    const size_t bytes = (size_t)m->chunk * sizeof(int32_t);
    int32_t *positions = wf_mem_array(m->ctx, (size_t)m->chunk, sizeof *positions);
    if (!positions)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < m->chunk; i++)
        positions[i] = (int32_t)i;
    wf_status status = wf_exec_write(m->exec, "positions", positions, bytes);
    wf_mem_free(m->ctx, positions);
    WF_TRY(status);
    WF_TRY(wf_exec_write(m->exec, "seq_start", bounds, sizeof bounds));
    return wf_exec_write(m->exec, "rows", &row, sizeof row);
}

/* Order matters: see prepare of engine.c. */
static wf_status prepare(wf_imatrix *m, wf_device *device)
{
    const int64_t most = m->model->config.context;
    if (m->chunk == 0)
        m->chunk = most < DEFAULT_CHUNK ? most : DEFAULT_CHUNK;
    if (m->chunk < 1 || m->chunk > most)
        return wf_fail(m->ctx, WF_ERR_USAGE,
                       "chunks of %" PRId64
                       " tokens are outside this model's range of 1 to %" PRId64 " tokens",
                       m->chunk, most);
    WF_TRY(wf_session_new(device, &m->session));
    WF_TRY(wf_load_map(m->session, m->model, true));
    WF_TRY(compile(m));
    WF_TRY(wf_load_write(m->session, m->model, &(wf_adapters){.count = 0}, 0));
    return write_inputs(m);
}

wf_status wf_imatrix_new(wf_device *device, const wf_model *model, int64_t chunk, wf_imatrix **out)
{
    *out = NULL;
    WF_TRY(wf_device_check_ctx(device, model->ctx, "the model"));
    wf_imatrix *m = wf_mem_new(model->ctx, sizeof *m);
    if (!m)
        return WF_ERR_MEMORY;
    m->ctx = model->ctx;
    m->model = model;
    m->chunk = chunk;
    wf_arena_init(&m->arena, m->ctx);
    wf_status status = prepare(m, device);
    if (status == WF_OK)
        *out = m;
    else
        wf_imatrix_free(m);
    return status;
}

void wf_imatrix_free(wf_imatrix *m)
{
    if (!m)
        return;
    wf_exec_free(m->exec);
    wf_session_free(m->session);
    wf_mem_free(m->ctx, m->linear);
    wf_arena_free(&m->arena);
    wf_mem_free(m->ctx, m);
}

/* ---- Measuring ---- */

wf_status wf_imatrix_add(wf_imatrix *m, const int32_t *ids, size_t count)
{
    const int64_t vocab = m->model->config.vocab;
    if (count != (size_t)m->chunk)
        return wf_fail(m->ctx, WF_ERR_USAGE, "a chunk has %zu tokens, but must have %" PRId64,
                       count, m->chunk);
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocab)
            return wf_fail(m->ctx, WF_ERR_USAGE,
                           "token %" PRId32 " is outside the vocabulary of %" PRId64 " tokens",
                           ids[i], vocab);
    WF_TRY(wf_exec_write(m->exec, "tokens", ids, count * sizeof *ids));
    WF_TRY(wf_exec_run(m->exec));
    m->chunks++;
    return WF_OK;
}

/* ---- Saving ---- */

static wf_status declare(const wf_imatrix *m, wf_gguf_writer *w, const char *const *datasets,
                         int count)
{
    wf_gguf_text *texts = wf_mem_array(m->ctx, (size_t)count + 1, sizeof *texts);
    if (!texts)
        return WF_ERR_MEMORY;
    for (int i = 0; i < count; i++)
        texts[i] = (wf_gguf_text){datasets[i], strlen(datasets[i])};
    wf_status status = wf_gguf_write_text(w, "general.type", "imatrix", strlen("imatrix"));
    if (status == WF_OK)
        status = wf_gguf_write_texts(w, WF_IMATRIX_DATASETS, texts, (size_t)count);
    wf_mem_free(m->ctx, texts);
    WF_TRY(status);
    WF_TRY(wf_gguf_write_int(w, WF_IMATRIX_CHUNKS, WF_GGUF_U32, m->chunks));
    WF_TRY(wf_gguf_write_int(w, WF_IMATRIX_CHUNK, WF_GGUF_U32, m->chunk));
    for (int i = 0; i < m->linears; i++) {
        static const char *const suffix[] = {WF_IMATRIX_SUMS, WF_IMATRIX_COUNTS};
        for (int k = 0; k < 2; k++) {
            char name[WF_NAME_BYTES + 16];
            size_t len = 0;
            const wf_dims shape = {1, {k ? 1 : m->linear[i].columns}};
            wf_text_append(name, sizeof name, &len, "%s%s", m->linear[i].weight, suffix[k]);
            WF_TRY(wf_gguf_write_tensor(w, name, WF_F32, &shape));
        }
    }
    return wf_gguf_write_begin(w);
}

/* Writes the sums and the count of one linear. */
static wf_status write_linear(const wf_imatrix *m, wf_gguf_writer *w, const measured *l,
                              float *sums)
{
    const size_t bytes = (size_t)l->columns * sizeof *sums;
    const float count = (float)(m->chunks * m->chunk);
    WF_TRY(wf_session_read(m->session, l->state, sums, bytes));
    for (int64_t i = 0; i < l->columns; i++)
        if (!isfinite(sums[i]))
            return wf_fail(m->ctx, WF_ERR_DEVICE,
                           "the inputs of %s are not finite; check the weights with weft run "
                           "--check-tensors",
                           l->weight);
    WF_TRY(wf_gguf_write_data(w, sums, bytes));
    return wf_gguf_write_data(w, &count, sizeof count);
}

static wf_status write_all(const wf_imatrix *m, wf_gguf_writer *w, const char *const *datasets,
                           int count)
{
    int64_t most = 1;
    for (int i = 0; i < m->linears; i++)
        most = m->linear[i].columns > most ? m->linear[i].columns : most;
    float *sums = wf_mem_array(m->ctx, (size_t)most, sizeof *sums);
    wf_status status = sums ? declare(m, w, datasets, count) : WF_ERR_MEMORY;
    for (int i = 0; i < m->linears && status == WF_OK; i++)
        status = write_linear(m, w, &m->linear[i], sums);
    wf_mem_free(m->ctx, sums);
    return status == WF_OK ? wf_gguf_write_end(w) : status;
}

wf_status wf_imatrix_save(const wf_imatrix *m, const char *path, const char *const *datasets,
                          int count)
{
    wf_gguf_writer *w;
    if (m->chunks == 0)
        return wf_fail(m->ctx, WF_ERR_USAGE, "no text was measured; add a chunk before saving");
    WF_TRY(wf_gguf_write_new(m->ctx, path, NULL, &w));
    wf_status status = write_all(m, w, datasets, count);
    wf_gguf_write_free(w);
    return status;
}

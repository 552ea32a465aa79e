/* SPDX-License-Identifier: MIT */
/*
 * weights.c - initializes the states of a trainer, and reads weights back.
 *
 * Trained weights are f32 with the row order of checkpoints, whatever their source. Frozen weights
 * keep the type and order of their file, and are mapped if the device supports it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/path.h"
#include "device/device.h"
#include "infer/upload.h"
#include "model/rows.h"
#include "train/trainer.h"

#define DEVIATION 0.02 /* standard deviation of initial weights, as in GPT-2 */

/* ---- Frozen weights ---- */

/* Returns whether the weight is frozen and usable as it is in the file. */
static bool lies_ready(const wf_setup *s, const wf_device *d, const wf_model_weight_info *w)
{
    return s->adapter && d->ops->buffer_map && wf_weight_in_place(w);
}

bool wf_setup_maps(const wf_setup *s, const wf_device *d, const char *state)
{
    const wf_model_weight_info *w = s->base ? wf_model_find_weight(s->base, state) : NULL;
    return w && lies_ready(s, d, w);
}

wf_status wf_trainer_map_weights(wf_trainer *t)
{
    const wf_model *m = t->setup.base;
    for (int i = 0; m && i < m->weights; i++) {
        const wf_model_weight_info *w = &m->weight[i];
        if (lies_ready(&t->setup, t->device, w))
            WF_TRY(wf_session_map(t->session, w->name, w->type, w->shape.n, w->shape.d,
                                  m->store->file[w->source->from->file].path, wf_weight_offset(w)));
    }
    return WF_OK;
}

/* ---- Weights from a file ---- */

/* Converts a weight to f32 and to the row order of the trainer's model. */
static wf_status read_rows(wf_trainer *t, const wf_model *m, const wf_model_weight_info *w,
                           const void *raw, float *to)
{
    char other[WF_NAME_BYTES];
    const wf_config *c = &m->config;
    int64_t count = wf_dims_count(&w->shape);
    const wf_weight_name *name = wf_family_hugging_face(c->family, w->name, true, other);
    wf_row_order order =
        wf_rows_order(c, name, c->rope[0].interleaved, t->setup.config.rope[0].interleaved);
    if (order == WF_ROWS_AS_THEY_ARE) {
        wf_convert_to_f32(w->type, raw, to, count);
        return WF_OK;
    }
    int64_t columns = w->shape.n == 1 ? 1 : wf_dims_last(&w->shape), rows = count / columns;
    size_t bytes = wf_type_bytes(w->type, columns);
    for (int64_t i = 0; i < rows; i++)
        wf_convert_to_f32(w->type, (const char *)raw + (size_t)wf_rows_source(c, order, i) * bytes,
                          to + i * columns, columns);
    return WF_OK;
}

/* Returns a state's elements: more than its weight's in a file if the vocabulary is padded. */
static int64_t elements_of(const wf_trainer *t, const char *state)
{
    const wf_stored_state *s = wf_session_find(t->session, state);
    return s ? wf_dims_count(&s->shape) : 0;
}

/* Writes a weight to its state; padding rows of the vocabulary stay zero. */
static wf_status write_from(wf_trainer *t, const wf_model *m, const wf_model_weight_info *w)
{
    int64_t count = wf_dims_count(&w->shape), all = elements_of(t, w->name);
    size_t bytes = wf_type_bytes(w->type, count);
    void *raw = wf_mem_new(t->ctx, bytes);
    all = all > count ? all : count;
    float *to = t->setup.adapter ? NULL : wf_mem_array(t->ctx, (size_t)all, sizeof *to);
    wf_status status =
        raw && (to || t->setup.adapter) ? wf_weight_read(t->ctx, w, raw) : WF_ERR_MEMORY;
    if (status == WF_OK && to)
        status = read_rows(t, m, w, raw, to);
    if (status == WF_OK)
        status = to ? wf_session_write(t->session, w->name, to, (size_t)all * sizeof *to)
                    : wf_session_write(t->session, w->name, raw, bytes);
    wf_mem_free(t->ctx, to);
    wf_mem_free(t->ctx, raw);
    return status;
}

wf_status wf_trainer_read_model(wf_trainer *t, const wf_model *m)
{
    for (int i = 0; i < m->weights; i++)
        if (!wf_setup_maps(&t->setup, t->device, m->weight[i].name))
            WF_TRY(write_from(t, m, &m->weight[i]));
    return wf_store_check(m->store);
}

/* ---- Initial weights ---- */

/* Scales down what each branch adds to the residual stream, by the number of branches. */
static double deviation_of(const wf_setup *s, const char *name)
{
    bool adds = strstr(name, ".attn_output.") || strstr(name, ".ffn_down.");
    return adds ? DEVIATION / sqrt(2 * (double)s->config.layers) : DEVIATION;
}

/* Each weight draws from a random stream named after it: adding layers leaves the other weights
 * unchanged. */
static uint64_t stream_of(const char *name)
{
    return wf_hash_fnv1a_string(WF_FNV1A, name);
}

static wf_status begin_weight(wf_trainer *t, const wf_info *state)
{
    int64_t count = (int64_t)(state->bytes / sizeof(float));
    float *x = wf_mem_new(t->ctx, state->bytes); /* zeros: the initial value of biases */
    if (!x)
        return WF_ERR_MEMORY;
    if (state->rank > 1)
        wf_random_normal(t->setup.options.seed, stream_of(state->name), 0,
                         (float)deviation_of(&t->setup, state->name), x, count);
    else if (wf_path_ends(state->name, "norm.weight"))
        for (int64_t i = 0; i < count; i++)
            x[i] = 1;
    wf_status status = wf_session_write(t->session, state->name, x, state->bytes);
    wf_mem_free(t->ctx, x);
    return status;
}

static bool is_weight(const char *name)
{
    return strncmp(name, "blk.", 4) == 0 || strncmp(name, "token_embd.", 11) == 0 ||
           strncmp(name, "position_embd.", 14) == 0 || strncmp(name, "output", 6) == 0;
}

static wf_status begin_weights(wf_trainer *t)
{
    wf_info state;
    for (int i = 0; wf_session_state(t->session, i, &state); i++)
        if (is_weight(state.name))
            WF_TRY(begin_weight(t, &state));
    return WF_OK;
}

/* ---- Other states ---- */

static wf_status begin_adapter(wf_trainer *t)
{
    wf_info tensor;
    for (int i = 0; wf_adapter_tensor(t->setup.adapter, i, &tensor); i++) {
        float *x = wf_mem_new(t->ctx, tensor.bytes);
        if (!x)
            return WF_ERR_MEMORY;
        wf_adapter_init(t->setup.adapter, t->setup.options.seed, i, x);
        wf_status status = wf_session_write(t->session, tensor.name, x, tensor.bytes);
        wf_mem_free(t->ctx, x);
        WF_TRY(status);
    }
    return WF_OK;
}

/* Moving averages start as the weights. */
static wf_status begin_averages(wf_trainer *t)
{
    wf_info state;
    for (int i = 0; wf_session_state(t->session, i, &state); i++) {
        if (strncmp(state.name, "ema.", 4) != 0)
            continue;
        void *x = wf_mem_new(t->ctx, state.bytes);
        wf_status status =
            x ? wf_session_read(t->session, state.name + 4, x, state.bytes) : WF_ERR_MEMORY;
        if (status == WF_OK)
            status = wf_session_write(t->session, state.name, x, state.bytes);
        wf_mem_free(t->ctx, x);
        WF_TRY(status);
    }
    return WF_OK;
}

wf_status wf_trainer_write_weights(wf_trainer *t)
{
    WF_TRY(t->setup.base ? wf_trainer_read_model(t, t->setup.base) : begin_weights(t));
    if (t->setup.adapter)
        WF_TRY(begin_adapter(t));
    if (t->setup.options.ema > 0)
        WF_TRY(begin_averages(t));
    return wf_upload_frequencies(t->session, &t->setup.config, t->setup.options.length);
}

wf_status wf_trainer_fetch(wf_trainer *t, const char *weight, bool average, float *to,
                           int64_t count)
{
    char name[WF_NAME_BYTES + 8];
    bool averaged = average && t->setup.options.ema > 0;
    snprintf(name, sizeof name, "%s%s", averaged ? "ema." : "", weight);
    int64_t all = elements_of(t, name);
    if (all <= count)
        return wf_session_read(t->session, name, to, (size_t)count * sizeof *to);
    float *whole = wf_mem_array(t->ctx, (size_t)all, sizeof *whole);
    wf_status status = whole ? wf_session_read(t->session, name, whole, (size_t)all * sizeof *whole)
                             : WF_ERR_MEMORY;
    if (status == WF_OK)
        memcpy(to, whole, (size_t)count * sizeof *to);
    wf_mem_free(t->ctx, whole);
    return status;
}

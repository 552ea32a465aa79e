/* SPDX-License-Identifier: MIT */
/*
 * case.c - builds a case: its operands, the node under test, and the values to read.
 *
 * An operand exists twice: as doubles that are exactly representable in its type, for the
 * reference, and as elements of that type, for the device. Both sides therefore start from equal
 * numbers, and every difference between them is an error of the device. After a failure the helpers
 * return NULL; the graph accepts NULL operands and keeps its first error.
 */
#include "selftest/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "graph/quant/block.h"

/* ---- Operands ---- */

static void *case_alloc(wf_case *c, int64_t count, size_t size)
{
    /* Counts come from the tables of cases, so the product cannot overflow. */
    void *p = wf_arena_alloc(&c->arena, (size_t)count * size);
    if (!p)
        c->status = WF_ERR_MEMORY;
    return p;
}

wf_value *wf_case_source(wf_case *c, wf_type type, wf_dims dims, double *v, void *bytes, bool state)
{
    if (c->operands == WF_CASE_OPERANDS) {
        c->status = wf_fail(c->ctx, WF_ERR_INTERNAL, "selftest: a case has more than %d operands",
                            WF_CASE_OPERANDS);
        return NULL;
    }
    wf_operand *o = &c->operand[c->operands];
    char name[16];
    /* Names need to be unique only within the graph. */
    snprintf(name, sizeof name, "x%d", c->operands);
    o->value = (state ? wf_state : wf_input)(c->g, name, type, (int)dims.n, dims.d);
    if (!o->value)
        return NULL;
    o->node = o->value->node;
    o->v = v;
    o->bytes = bytes;
    o->size = wf_type_bytes(type, wf_dims_count(&dims));
    o->after = c->rng;
    c->operands++;
    return o->value;
}

wf_value *wf_case_state_copy(wf_case *c, wf_value *state)
{
    if (!state || c->operands == WF_CASE_OPERANDS)
        return NULL;
    const wf_operand *of = &c->operand[c->operands - 1];
    wf_operand *o = &c->operand[c->operands];
    const wf_attr_source attr = {.type = c->type, .dims = state->shape};
    int64_t count = wf_dims_count(&state->shape);
    wf_assert(of->value == state);
    o->value = wf_node_add(c->g, WF_OP_state_copy, &attr, of->node->name, NULL, 0);
    o->v = case_alloc(c, count, sizeof *o->v);
    if (!o->value || !o->v)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        o->v[i] = wf_number_round(c->type, of->v[i]);
    o->node = o->value->node;
    c->operands++;
    return o->value;
}

/* Makes an operand of values and the elements that hold them. */
static wf_value *place(wf_case *c, wf_type type, wf_dims dims, double *v, void *bytes, bool state)
{
    if (!v || !bytes)
        return NULL;
    /* States cannot be views: updates need the state itself. */
    if (state || c->views == 0)
        return wf_case_source(c, type, dims, v, bytes, state);
    wf_value *value = wf_case_view(c, type, dims, v, bytes, c->views);
    if (value)
        c->operand[c->operands - 1].value = value;
    return value;
}

/* Rounds the values to the type and makes them an operand. */
static wf_value *operand(wf_case *c, wf_type type, wf_dims dims, double *v, bool state)
{
    if (!v)
        return NULL;
    int64_t count = wf_dims_count(&dims);
    void *bytes = case_alloc(c, (int64_t)wf_type_bytes(type, count), 1);
    if (!bytes)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        v[i] = wf_number_round(type, v[i]);
    wf_numbers_store(type, v, bytes, count);
    return place(c, type, dims, v, bytes, state);
}

/* Returns whether the first build has made the next operand. */
static bool repeats(const wf_case *c)
{
    return c->first && c->operands < c->first->operands;
}

/* Makes the next operand with the values of the first build, and continues its random stream. */
static wf_value *again(wf_case *c)
{
    const wf_operand *o = &c->first->operand[c->operands];
    const wf_value *x = &o->node->out[0];
    c->rng = o->after;
    return place(c, x->type, x->shape, o->v, o->bytes, o->node->op == WF_OP_state);
}

/* Draws uniform values in [lo, hi), integers in [lo, hi], one random word per element. Not rounded
 * to the type. */
static double *draw(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    int64_t count = wf_dims_count(&dims);
    double *v = case_alloc(c, count, sizeof *v);
    bool whole = wf_type_get(type)->kind == WF_KIND_INT;
    for (int64_t i = 0; v && i < count; i++) {
        double u = wf_rng_u32(&c->rng) * 0x1p-32;
        v[i] = whole ? floor(lo + u * (hi - lo + 1)) : lo + u * (hi - lo);
    }
    return v;
}

/* Quantized blocks per operand that differ; further ones repeat these in random order. The encoders
 * search for the best scales, which would otherwise take longer than the op and its reference. */
#define DISTINCT_BLOCKS 32

/* Returns the blocks of an operand: quantizes the first blocks of v, and repeats these in random
 * order. Replaces v by the values of the blocks. */
static uint8_t *make_blocks(wf_case *c, wf_type type, const wf_dims *dims, double *v)
{
    const wf_type_info *info = wf_type_get(type);
    const int64_t count = wf_dims_count(dims), block = info->block, size = info->block_bytes;
    const int64_t encoded = count < DISTINCT_BLOCKS * block ? count : DISTINCT_BLOCKS * block;
    float *x = case_alloc(c, encoded, sizeof *x);
    uint8_t *blocks = case_alloc(c, (int64_t)wf_type_bytes(type, count), 1);
    if (!v || !x || !blocks)
        return NULL;
    for (int64_t i = 0; i < encoded; i++)
        x[i] = (float)v[i];
    wf_quantize(type, x, NULL, blocks, 1, encoded);
    for (int64_t i = 0; i < encoded; i++)
        v[i] = wf_number_of_block(type, blocks, i);
    for (int64_t i = encoded / block; i < count / block; i++) {
        int64_t from = wf_rng_u32(&c->rng) % DISTINCT_BLOCKS;
        memcpy(blocks + i * size, blocks + from * size, (size_t)size);
        memcpy(v + i * block, v + from * block, (size_t)block * sizeof *v);
    }
    return blocks;
}

static wf_value *blocks(wf_case *c, wf_type type, wf_dims dims, double lo, double hi, bool state)
{
    if (repeats(c))
        return again(c);
    double *v = draw(c, type, dims, lo, hi);
    return place(c, type, dims, v, make_blocks(c, type, &dims, v), state);
}

wf_value *wf_case_blocks(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    return blocks(c, type, dims, lo, hi, false);
}

wf_value *wf_case_block_state(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    return blocks(c, type, dims, lo, hi, true);
}

wf_value *wf_case_typed(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    return repeats(c) ? again(c) : operand(c, type, dims, draw(c, type, dims, lo, hi), false);
}

wf_value *wf_case_x(wf_case *c, wf_dims dims, double lo, double hi)
{
    return wf_case_typed(c, c->type, dims, lo, hi);
}

wf_value *wf_case_f32(wf_case *c, wf_dims dims, double lo, double hi)
{
    return wf_case_typed(c, WF_F32, dims, lo, hi);
}

wf_value *wf_case_i32(wf_case *c, wf_dims dims, int32_t lo, int32_t hi)
{
    return wf_case_typed(c, WF_I32, dims, lo, hi);
}

wf_type wf_case_other_float(const wf_case *c)
{
    return c->type == WF_F32 ? WF_BF16 : WF_F32;
}

wf_value *wf_case_whole(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    return repeats(c) ? again(c) : operand(c, type, dims, draw(c, WF_I32, dims, lo, hi), false);
}

wf_value *wf_case_truth(wf_case *c, wf_dims dims)
{
    if (repeats(c))
        return again(c);
    double *v = draw(c, WF_I32, dims, 0, 3);
    for (int64_t i = 0; v && i < wf_dims_count(&dims); i++)
        v[i] = v[i] < 2 ? 0 : v[i] < 3 ? 1 : 255;
    return operand(c, WF_U8, dims, v, false);
}

wf_value *wf_case_given(wf_case *c, wf_type type, wf_dims dims, const double *given)
{
    if (repeats(c))
        return again(c);
    int64_t count = wf_dims_count(&dims);
    double *v = case_alloc(c, count, sizeof *v);
    if (v && count > 0)
        memcpy(v, given, (size_t)count * sizeof *v);
    return operand(c, type, dims, v, false);
}

wf_value *wf_case_i32_given(wf_case *c, wf_dims dims, const int32_t *given)
{
    if (repeats(c))
        return again(c);
    int64_t count = wf_dims_count(&dims);
    double *v = case_alloc(c, count, sizeof *v);
    for (int64_t i = 0; v && i < count; i++)
        v[i] = given[i];
    return operand(c, WF_I32, dims, v, false);
}

wf_value *wf_case_key(wf_case *c)
{
    int32_t key[3];
    for (int i = 0; i < 3; i++)
        key[i] = (int32_t)wf_rng_u32(&c->rng);
    key[2] &= INT32_MAX; /* a step */
    return wf_case_i32_given(c, D(3), key);
}

wf_value *wf_case_state(wf_case *c, wf_type type, wf_dims dims, double lo, double hi)
{
    return repeats(c) ? again(c) : operand(c, type, dims, draw(c, type, dims, lo, hi), true);
}

wf_value *wf_case_apply(wf_case *c, int which)
{
    if (which == 0)
        return NULL;
    c->untouched = which == 2;
    return wf_case_given(c, WF_U8, D0, (double[]){which == 1 ? 255 : 0});
}

wf_value *wf_case_frozen(wf_case *c, wf_value *value)
{
    if (!value || c->status)
        return NULL;
    if (repeats(c))
        return again(c);
    /* Results of one node share its evaluation. */
    if (!c->frozen || c->frozen->count != value->node->id + 1) {
        c->status = wf_eval_new(c, value->node, &c->frozen);
        if (!c->status)
            c->status = wf_eval_run(c->frozen, true);
        if (c->status)
            return NULL;
    }
    return wf_case_given(c, value->type, value->shape,
                         c->frozen->node[value->node->id].out[value->index].v);
}

wf_value *wf_case_constant(wf_case *c, wf_value *value)
{
    for (int i = 0; i < c->operands; i++)
        if (c->operand[i].value == value)
            c->operand[i].constant = true;
    return value;
}

void wf_case_node(wf_case *c, wf_value *value)
{
    if (value)
        c->node = value->node;
}

void wf_case_op(wf_case *c, const char *attrs, wf_value *const *in, int nin)
{
    wf_case_node(c, wf_op_add(c->g, wf_op_get(c->row->op)->name, attrs, in, nin));
}

/* ---- Cases ---- */

/* Hashes the op's name, not its number, so that a new row of ops.def keeps old seeds valid. */
uint64_t wf_case_stream(const wf_case_row *row, int variant, wf_type type)
{
    char text[64];
    snprintf(text, sizeof text, "/%s/%d/%s", row->label ? row->label : "", variant,
             wf_type_name(type));
    return wf_hash_fnv1a_string(wf_hash_fnv1a_string(WF_FNV1A, wf_op_get(row->op)->name), text);
}

static wf_status build(wf_ctx *ctx, const wf_case *like, wf_case **out)
{
    *out = NULL;
    wf_case *c = wf_mem_new(ctx, sizeof *c);
    if (!c)
        return WF_ERR_MEMORY;
    *c = *like;
    c->ctx = ctx;
    wf_arena_init(&c->arena, ctx);

    uint64_t stream = wf_case_stream(c->row, c->variant, c->type);
    wf_rng_init(&c->rng, c->seed, stream);
    /* A stream of its own: the shapes of views must not change the values of operands, which the
     * dense case is compared with. */
    wf_rng_init(&c->view_rng, c->seed ^ (uint64_t)c->views << 32, ~stream);

    wf_status status = wf_graph_new(ctx, &c->g);
    if (status) {
        wf_case_free(c);
        return status;
    }
    c->row->build(c);
    *out = c;
    return WF_OK;
}

wf_status wf_case_new(wf_ctx *ctx, const wf_case_row *row, int variant, wf_type type, uint64_t seed,
                      int views, wf_case **out)
{
    const wf_case like = {
        .row = row, .variant = variant, .type = type, .seed = seed, .views = views};
    return build(ctx, &like, out);
}

wf_status wf_case_again(const wf_case *first, int views, wf_case **out)
{
    wf_assert(first->views == 0);
    const wf_case like = {.row = first->row,
                          .variant = first->variant,
                          .type = first->type,
                          .seed = first->seed,
                          .views = views,
                          .first = first};
    return build(first->ctx, &like, out);
}

void wf_case_free(wf_case *c)
{
    if (!c)
        return;
    wf_graph_free(c->g);
    wf_arena_free(&c->arena);
    wf_mem_free(c->ctx, c);
}

int64_t wf_case_size(const wf_case *c)
{
    int64_t size = 0;
    for (int i = 0; i <= c->node->id; i++)
        size += wf_dims_count(&c->g->nodes[i]->out[0].shape);
    return size;
}

wf_status wf_case_status(wf_case *c)
{
    if (c->status)
        return c->status;
    if (wf_graph_status(c->g))
        return wf_fail(c->ctx, wf_graph_status(c->g), "%s", c->g->message);
    if (!c->node)
        return wf_fail(c->ctx, WF_ERR_INTERNAL, "selftest: the case has no node under test");
    if (c->node->op != c->row->op && !(wf_op_get(c->row->op)->flags & WF_FLAG_SOURCE))
        return wf_fail(c->ctx, WF_ERR_INTERNAL, "selftest: the node under test is %s",
                       wf_node_def(c->node)->name);
    return WF_OK;
}

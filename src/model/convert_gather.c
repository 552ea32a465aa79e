/* SPDX-License-Identifier: MIT */
/*
 * convert_gather.c - reads the values of output tensors that are not one tensor of the input.
 *
 * Such a tensor is read whole. All others are streamed by convert_data.c.
 */
#include <string.h>

#include "base/mem.h"
#include "model/convert.h"

static int64_t rows_of(const wf_model_weight_info *w)
{
    return wf_dims_count(&w->shape) / wf_weight_columns(w);
}

/* Returns the rows of one matrix of a stack; all rows if it is none. */
static int64_t matrix_rows(const wf_model_weight_info *w)
{
    return w->shape.n > 2 ? w->shape.d[w->shape.n - 2] : rows_of(w);
}

wf_status wf_convert_take_gathered(wf_convert *c, const wf_gather *values, wf_convert_item *item)
{
    wf_gather *copy = wf_arena_alloc(&c->arena, sizeof *copy);
    if (!copy)
        return WF_ERR_MEMORY;
    *copy = *values;
    item->from = NULL;
    item->transpose = false;
    item->gather = copy;
    return WF_OK;
}

wf_status wf_convert_take(wf_convert *c, const wf_model_weight_info *w, wf_convert_item *item)
{
    const wf_stored *whole = wf_weight_whole(w);
    /* Elements of a vector may be reordered, which blocks are not made for. */
    const bool blocks = w->shape.n == 1 && whole && whole->type != w->type;
    if (whole && whole->data && !blocks) {
        item->from = whole;
        item->transpose = w->source->transposed;
        return WF_OK;
    }
    const wf_model_weight_info **list = wf_arena_alloc(&c->arena, sizeof *list);
    if (!list)
        return WF_ERR_MEMORY;
    *list = w;
    return wf_convert_take_gathered(c, &(wf_gather){.weight = list, .weights = 1}, item);
}

int64_t wf_convert_input_bytes(const wf_convert_item *item)
{
    const wf_gather *g = item->gather;
    double bytes = item->from && !g ? (double)item->from->bytes : 0, all = 0;
    for (int i = 0; g && i < g->weights; i++) {
        bytes += (double)wf_weight_stored_bytes(g->weight[i]);
        all += (double)wf_dims_count(&g->weight[i]->shape);
    }
    return (int64_t)(all > 0 ? bytes * (double)wf_dims_count(&item->shape) / all : bytes);
}

/* Returns the type that holds all values exactly. Blocks cannot be transposed. */
static wf_type type_of(const wf_convert *c, const wf_convert_item *item)
{
    const wf_gather *g = item->gather;
    const wf_type type = g->weight[0]->type;
    bool same = g->add == 0 && !(item->transposed && wf_type_get(type)->kind == WF_KIND_BLOCK);
    for (int i = 0; i < g->weights; i++)
        same = same && g->weight[i]->type == type &&
               (item->weight || !wf_merge_changes(c, g->weight[i]->name));
    return same ? type : WF_F32;
}

/* Adds the contribution of adapters to a weight that is a part of an item. */
static wf_status merge(const wf_convert *c, const wf_model_weight_info *w, float *numbers)
{
    const wf_convert_item whole = {.shape = w->shape, .weight = w->name};
    wf_merge m;
    wf_status status = wf_merge_make(c, &whole, &m);
    for (int64_t i = 0; status == WF_OK && m.rank > 0 && i < m.rows; i++)
        wf_merge_row(&m, i, numbers + i * m.columns);
    wf_merge_free(c, &m);
    return status;
}

/* Reads a weight in its own type. */
static wf_status read_own(const wf_convert *c, const wf_model_weight_info *w, void *to)
{
    return c->m->fetch ? c->m->fetch(c->m->fetch_user, w->name, to, wf_dims_count(&w->shape))
                       : wf_weight_read(c->ctx, w, to);
}

/* Reads a weight as `type`: its own, or f32. The caller frees *data, also after a failure. */
static wf_status read_as(const wf_convert *c, const wf_model_weight_info *w, wf_type type,
                         bool merges, void **data)
{
    const int64_t count = wf_dims_count(&w->shape);
    wf_status status = WF_ERR_MEMORY;
    *data = wf_mem_new(c->ctx, wf_type_bytes(type, count));
    void *raw = w->type != type ? wf_mem_new(c->ctx, wf_type_bytes(w->type, count)) : *data;
    if (*data && raw)
        status = read_own(c, w, raw);
    if (status == WF_OK && raw != *data)
        wf_convert_to_f32(w->type, raw, *data, count);
    if (raw != *data)
        wf_mem_free(c->ctx, raw);
    if (status == WF_OK && merges && type == WF_F32)
        status = merge(c, w, *data);
    return status;
}

/* Where the rows of a weight go: every matrix of the output has `all` rows. */
typedef struct {
    int64_t all, first, step;
    wf_row_order order; /* folders have q and k in another order */
} places;

/* Copies the rows of a weight to their places. */
static void place(const wf_config *config, const wf_model_weight_info *w, const places *p,
                  wf_type type, const uint8_t *from, uint8_t *to)
{
    const size_t row = wf_type_bytes(type, wf_weight_columns(w));
    for (int64_t i = 0; i < rows_of(w); i++) {
        int64_t at = i / matrix_rows(w) * p->all + p->first + i % matrix_rows(w) * p->step;
        memcpy(to + (size_t)at * row, from + (size_t)wf_rows_source(config, p->order, i) * row,
               row);
    }
}

static wf_status gather_several(const wf_convert *c, const wf_convert_item *item, wf_type type,
                                void **data)
{
    const wf_gather *g = item->gather;
    const wf_config *config = &c->m->config;
    places p = {.step = g->alternate ? g->weights : 1};
    wf_status status = WF_OK;
    *data = wf_mem_new(c->ctx, wf_type_bytes(type, wf_dims_count(&item->shape)));
    if (!*data)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->weights; i++)
        p.all += matrix_rows(g->weight[i]);
    for (int i = 0; i < g->weights && status == WF_OK; i++) {
        char name[WF_NAME_BYTES];
        void *part;
        p.order = wf_rows_order(
            config, wf_family_hugging_face(config->family, g->weight[i]->name, true, name),
            config->rope[0].interleaved, false);
        status = read_as(c, g->weight[i], type, true, &part);
        if (status == WF_OK)
            place(config, g->weight[i], &p, type, part, *data);
        wf_mem_free(c->ctx, part);
        p.first += g->alternate ? 1 : matrix_rows(g->weight[i]);
    }
    return status;
}

/* Reads some rows of a weight. Keeps the weight, because the next item has the rows after these. */
static wf_status gather_some(wf_convert *c, const wf_convert_item *item, wf_type type, void **data)
{
    const wf_model_weight_info *w = item->gather->weight[0];
    const size_t bytes = wf_type_bytes(type, wf_dims_count(&item->shape));
    if (c->kept.weight != w) {
        wf_mem_free(c->ctx, c->kept.data);
        c->kept.weight = NULL;
        WF_TRY(read_as(c, w, type, true, &c->kept.data));
        c->kept.weight = w;
    }
    *data = wf_mem_new(c->ctx, bytes);
    if (!*data)
        return WF_ERR_MEMORY;
    memcpy(*data,
           (const uint8_t *)c->kept.data +
               wf_type_bytes(type, item->gather->first * wf_weight_columns(w)),
           bytes);
    return WF_OK;
}

/* Transposes the last two axes: `shape` is that of the result. The caller frees *data. */
static wf_status transpose(wf_ctx *ctx, const wf_dims *shape, wf_type type, void **data)
{
    const size_t size = (size_t)wf_type_get(type)->block_bytes;
    const int64_t rows = shape->d[shape->n - 2], columns = shape->d[shape->n - 1];
    const int64_t count = wf_dims_count(shape);
    uint8_t *to = wf_mem_new(ctx, wf_type_bytes(type, count));
    const uint8_t *from = *data;
    if (!to)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        int64_t matrix = i / (rows * columns), row = i / columns % rows, column = i % columns;
        memcpy(to + (size_t)i * size,
               from + (size_t)((matrix * columns + column) * rows + row) * size, size);
    }
    wf_mem_free(ctx, *data);
    *data = to;
    return WF_OK;
}

wf_status wf_convert_gather(wf_convert *c, const wf_convert_item *item, wf_stored *out, void **data)
{
    const wf_gather *g = item->gather;
    const wf_type type = type_of(c, item);
    const int64_t count = wf_dims_count(&item->shape);
    *data = NULL;
    if (g->weights > 1)
        WF_TRY(gather_several(c, item, type, data));
    else if (count < wf_dims_count(&g->weight[0]->shape))
        WF_TRY(gather_some(c, item, type, data));
    else
        WF_TRY(read_as(c, g->weight[0], type, !item->weight, data));
    if (item->transposed)
        WF_TRY(transpose(c->ctx, &item->shape, type, data));
    for (int64_t i = 0; i < count && g->add != 0; i++)
        ((float *)*data)[i] += g->add;
    *out = (wf_stored){.name = item->name,
                       .type = type,
                       .type_name = wf_type_name(type),
                       .shape = item->shape,
                       .bytes = wf_type_bytes(type, count),
                       .data = *data};
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/*
 * convert_data.c - converts the values of each tensor and streams them to a writer.
 *
 * Rows are independent, so the threads share the rows of a slab and the bytes do not depend on the
 * number of threads. A tensor that keeps its type is copied. Otherwise values pass through f32,
 * which is exact for plain types.
 */
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "graph/quant/block.h"
#include "model/convert.h"

#define SLAB_BYTES ((size_t)8 << 20) /* per slab; at least one row, or 256 columns if transposing */

/* A tensor being converted. */
typedef struct {
    const wf_convert_item *item;
    const wf_config *config;
    wf_merge merge;        /* contribution of adapters */
    int64_t rows, columns; /* of the output */
    size_t from_row;       /* bytes of an input row */
    size_t to_row;
    int64_t slab;      /* rows per slab */
    int64_t first;     /* first row of the current slab */
    int64_t count;     /* rows in it */
    uint8_t *bytes;    /* [slab][to_row]: output bytes */
    float *transposed; /* [slab][columns]; NULL: not transposing */
    uint8_t *raw; /* [threads][raw_each]: aligned copies of input rows, which files do not align */
    float *numbers; /* [threads][numbers_each] */
    size_t raw_each, numbers_each;
} mover;

/* Converts a row of values to the output's type. */
static void put_row(const mover *v, int64_t row, const float *numbers, uint8_t *to)
{
    const wf_convert_item *item = v->item;
    const float *importance = item->importance;
    if (importance && item->shape.n == 3)
        importance += row / item->shape.d[1] * v->columns;
    wf_quantize(item->type, numbers, importance, to, 1, v->columns);
}

/* Converts rows [begin, end) of the slab. Pure per row, so any split gives the same bytes. */
static void move_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const mover *v = arg;
    const wf_stored *t = v->item->from;
    uint8_t *raw = v->raw + (size_t)thread * v->raw_each;
    float *numbers = v->numbers + (size_t)thread * v->numbers_each;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = wf_rows_source(v->config, v->item->order, v->first + i);
        const uint8_t *from = t->data + (size_t)row * v->from_row;
        uint8_t *to = v->bytes + (size_t)i * v->to_row;
        if (t->type == v->item->type && v->merge.rank == 0) {
            memcpy(to, from, v->to_row);
            continue;
        }
        memcpy(raw, from, v->from_row);
        wf_convert_to_f32(t->type, raw, numbers, v->columns);
        if (v->merge.rank > 0)
            wf_merge_row(&v->merge, row, numbers);
        put_row(v, v->first + i, numbers, to);
    }
}

/* Transposes input rows into columns of the slab. */
static void transpose_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const mover *v = arg;
    const wf_stored *t = v->item->from;
    const wf_type_info *info = wf_type_get(t->type);
    uint8_t *raw = v->raw + (size_t)thread * v->raw_each;
    float *numbers = v->numbers + (size_t)thread * v->numbers_each;
    for (int64_t i = begin; i < end; i++) {
        const uint8_t *from = t->data + (size_t)i * v->from_row;
        if (info->kind == WF_KIND_BLOCK) {
            memcpy(raw, from, v->from_row);
            wf_block_decode(t->type, raw, v->first, v->count, numbers);
        } else {
            size_t size = (size_t)info->block_bytes;
            memcpy(raw, from + (size_t)v->first * size, (size_t)v->count * size);
            wf_convert_to_f32(t->type, raw, numbers, v->count);
        }
        for (int64_t k = 0; k < v->count; k++)
            v->transposed[k * v->columns + i] = numbers[k];
    }
}

/* Merges adapters into the rows of the slab and converts them to the output's type. */
static void put_transposed(void *arg, int64_t begin, int64_t end, int thread)
{
    const mover *v = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        float *numbers = v->transposed + i * v->columns;
        if (v->merge.rank > 0)
            wf_merge_row(&v->merge, v->first + i, numbers);
        put_row(v, v->first + i, numbers, v->bytes + (size_t)i * v->to_row);
    }
}

/* ---- Slabs ---- */

/* Computes the sizes of rows and slabs; memory is bounded by SLAB_BYTES and one row per thread. */
static void measure(mover *v)
{
    const wf_convert_item *item = v->item;
    const wf_stored *t = item->from;
    v->rows = wf_dims_rows(&item->shape);
    v->columns = wf_dims_last(&item->shape);
    if (item->order != WF_ROWS_AS_THEY_ARE &&
        item->shape.n == 1) { /* a bias has one element per row */
        v->rows = v->columns;
        v->columns = 1;
    }
    int64_t lie_columns = item->transpose ? v->rows : v->columns;
    v->from_row = wf_type_bytes(t->type, lie_columns);
    v->to_row = wf_type_bytes(item->type, v->columns);
    size_t row = item->transpose ? (size_t)v->columns * sizeof(float) : v->to_row;
    v->slab = (int64_t)(SLAB_BYTES / row);
    if (item->transpose)
        v->slab = v->slab < 256 ? 256 : v->slab / 256 * 256; /* whole blocks of the input */
    v->slab = v->slab < 1 ? 1 : v->slab > v->rows ? v->rows : v->slab;
    v->raw_each = v->from_row;
    v->numbers_each = (size_t)(item->transpose ? v->slab : v->columns);
    /* Start each thread's part on its own cache line. */
    v->raw_each = (v->raw_each + WF_MEM_ALIGN - 1) / WF_MEM_ALIGN * WF_MEM_ALIGN;
    v->numbers_each = (v->numbers_each + 15) / 16 * 16;
}

static wf_status get_room(const wf_convert *c, mover *v)
{
    size_t threads = (size_t)c->threads;
    v->bytes = wf_mem_array(c->ctx, (size_t)v->slab, v->to_row);
    v->raw = v->bytes ? wf_mem_array(c->ctx, threads, v->raw_each) : NULL;
    v->numbers = v->raw ? wf_mem_array(c->ctx, threads, v->numbers_each * sizeof(float)) : NULL;
    if (v->numbers && v->item->transpose)
        v->transposed =
            wf_mem_array(c->ctx, (size_t)v->slab, (size_t)v->columns * sizeof *v->transposed);
    return v->numbers && (v->transposed || !v->item->transpose) ? WF_OK : WF_ERR_MEMORY;
}

/* Progress counts input bytes, in proportion to the rows done. */
static wf_status report(wf_convert *c, const mover *v)
{
    int64_t bytes = (int64_t)((double)wf_convert_input_bytes(v->item) *
                              (double)(v->first + v->count) / (double)v->rows);
    return c->options->progress
               ? c->options->progress(c->options->user, v->item->name, c->done + bytes, c->total)
               : WF_OK;
}

/* Reads, converts and writes one slab after the other; the writer sees rows in order. */
static wf_status move_slabs(wf_convert *c, mover *v, wf_convert_write *write, void *to)
{
    for (v->first = 0; v->first < v->rows; v->first += v->count) {
        int64_t left = v->rows - v->first;
        v->count = left < v->slab ? left : v->slab;
        if (v->item->transpose) {
            wf_parallel_for(c->threads, v->columns, 16, transpose_rows, v);
            wf_parallel_for(c->threads, v->count, 1, put_transposed, v);
        } else {
            wf_parallel_for(c->threads, v->count, 1, move_rows, v);
        }
        WF_TRY(write(to, v->bytes, (size_t)v->count * v->to_row));
        WF_TRY(report(c, v));
    }
    return WF_OK;
}

static wf_status move_stored(wf_convert *c, const wf_convert_item *item, wf_convert_write *write,
                             void *to)
{
    mover v = {.item = item, .config = &c->m->config};
    wf_assert(!item->transpose || item->order == WF_ROWS_AS_THEY_ARE);
    measure(&v);
    wf_status status = wf_merge_make(c, item, &v.merge);
    if (status == WF_OK)
        status = get_room(c, &v);
    if (status == WF_OK)
        status = move_slabs(c, &v, write, to);
    wf_merge_free(c, &v.merge);
    wf_mem_free(c->ctx, v.transposed);
    wf_mem_free(c->ctx, v.numbers);
    wf_mem_free(c->ctx, v.raw);
    wf_mem_free(c->ctx, v.bytes);
    return status;
}

/* Reads the values into memory, converts them and frees them. */
static wf_status move_gathered(wf_convert *c, const wf_convert_item *item, wf_convert_write *write,
                               void *to)
{
    wf_stored here;
    wf_convert_item brought = *item;
    void *data = NULL;
    wf_status status = wf_convert_gather(c, item, &here, &data);
    brought.from = &here;
    if (status == WF_OK)
        status = move_stored(c, &brought, write, to);
    wf_mem_free(c->ctx, data);
    return status;
}

static wf_status move(wf_convert *c, const wf_convert_item *item, wf_convert_write *write, void *to)
{
    wf_status status;
    if (item->data)
        status = write(to, item->data, wf_type_bytes(item->type, wf_dims_count(&item->shape)));
    else
        status = item->gather ? move_gathered(c, item, write, to) : move_stored(c, item, write, to);
    c->done += wf_convert_input_bytes(item);
    return status;
}

wf_status wf_convert_data(wf_convert *c, wf_convert_write *write, void *to)
{
    int64_t written = 0;
    c->done = c->total = 0;
    for (int i = 0; i < c->items; i++) {
        const wf_convert_item *item = &c->item[i];
        c->total += wf_convert_input_bytes(item);
        written += (int64_t)wf_type_bytes(item->type, wf_dims_count(&item->shape));
    }
    if (c->options->written)
        *c->options->written = written;
    for (int i = 0; i < c->items; i++)
        WF_TRY(move(c, &c->item[i], write, to));
    return wf_store_check(
        c->m->store); /* inputs must still be intact before the output gets its name */
}

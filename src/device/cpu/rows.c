/* SPDX-License-Identifier: MIT */
/*
 * rows.c - row ops by index: embed, gather_rows, scatter_add_rows.
 *
 * All indices are checked before anything is written, so a failed launch changes nothing. A row is
 * everything under one index of the first axis.
 *
 * scatter_add_rows: threads share the rows of x. Each row adds its entries of `from` in ascending
 * order, in f64, and rounds once: no two threads write one row.
 */
#include "base/thread.h"
#include "device/cpu/index.h"
#include "device/cpu/row.h"
#include "device/walk.h"

/* ---- Indices ---- */

/* "embed: index 7 at [1,3] of input 1 is not in [0, 5)" */
static wf_status fail_index(const wf_launch *l, const wf_view *indices, int64_t i, int64_t rows)
{
    int64_t place[WF_MAX_RANK], rest = i;
    for (int a = indices->rank - 1; a >= 0; a--) {
        place[a] = rest % indices->dim[a];
        rest /= indices->dim[a];
    }
    char text[128] = "";
    size_t len = 0;
    for (int a = 0; a < indices->rank; a++)
        wf_text_append(text, sizeof text, &len, "%s%lld", a ? "," : "", (long long)place[a]);
    return wf_fail(l->ctx, WF_ERR_DEVICE, "%s: index %lld at [%s] of input 1 is not in [0, %lld)",
                   wf_op_get(l->node->op)->name, (long long)wf_index_at(indices, i), text,
                   (long long)rows);
}

wf_status wf_index_check(const wf_launch *l)
{
    const wf_view *indices = &l->in[1];
    int64_t rows = l->in[0].dim[0], n = wf_view_count(indices);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = wf_index_at(indices, i);
        if (index < 0 || index >= rows)
            return fail_index(l, indices, i, rows);
    }
    return WF_OK;
}

/* ---- embed, gather_rows ---- */

/* Arguments of the workers. */
typedef struct {
    const wf_launch *l;
    wf_view x, out; /* in units */
    wf_walk row;    /* operands: x, and from for scatter_add_rows */
    int64_t length; /* units per row */
} rows_job;

/* Adds x, or an operand with rows like x's, to the walk. */
static void add_operand(rows_job *j, const wf_view *v)
{
    wf_walk_add_strides(&j->row, v->stride + 1);
}

static rows_job rows_of(const wf_launch *l)
{
    rows_job j = {.l = l, .x = wf_view_units(&l->in[0]), .out = wf_view_units(&l->out[0])};
    j.row = wf_walk_over(j.x.rank - 1, j.x.dim + 1);
    add_operand(&j, &j.x);
    j.length = wf_walk_count(&j.row);
    return j;
}

static void gather_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const rows_job *j = arg;
    const wf_view *x = &j->x, *out = &j->out;
    int bytes = wf_type_get(x->type)->block_bytes;
    int64_t at = begin * j->length, step = wf_walk_step(&j->row, 0);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = wf_index_at(&j->l->in[1], i) * x->stride[0];
        wf_run r = wf_run_over(&j->row, 0, j->length);
        for (; wf_run_next(&r, INT64_MAX); at += r.n)
            wf_copy_strided(wf_unit_at(out, at), 1, wf_unit_at(x, row + r.offset[0]), step, r.n,
                            bytes);
    }
}

static wf_status launch_gather(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(wf_index_check(l));
    rows_job j = rows_of(l);
    wf_walk_fold(&j.row);
    wf_parallel_for(l->threads, wf_view_count(&l->in[1]), wf_grain(j.length), gather_range, &j);
    return WF_OK;
}

/* embed decodes quantized rows to floats. */
static void decode_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const wf_launch *l = arg;
    int64_t length = wf_view_last(&l->in[0]);
    for (int64_t i = begin; i < end; i++)
        wf_row_part(&l->in[0], wf_index_at(&l->in[1], i), 0, length,
                    wf_view_at(&l->out[0], i * length));
}

static wf_status launch_embed_blocks(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(wf_index_check(l));
    wf_parallel_for(l->threads, wf_view_count(&l->in[1]), wf_grain(wf_view_last(&l->in[0])),
                    decode_range, (void *)l);
    return WF_OK;
}

/* ---- scatter_add_rows ---- */

/* Linked lists in the workspace: first[row] is the first row of `from` that is added to `row` of x,
 * and next[i] follows i; -1 ends a list. */
typedef struct {
    int64_t *first, *next;
} row_lists;

static row_lists lists_in(const wf_launch *l)
{
    row_lists s = {.first = l->workspace};
    s.next = s.first + l->in[0].dim[0];
    return s;
}

static size_t scatter_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    int64_t entries = n->in[0]->shape.d[0] + n->in[1]->shape.d[0];
    return (size_t)entries * sizeof(int64_t);
}

/* Prepends from last to first, so lists are in ascending order. One thread: it only touches
 * indices. */
static void make_lists(const wf_launch *l)
{
    row_lists s = lists_in(l);
    for (int64_t r = 0; r < l->in[0].dim[0]; r++)
        s.first[r] = -1;
    for (int64_t i = l->in[1].dim[0]; i-- > 0;) {
        int64_t row = wf_index_at(&l->in[1], i);
        s.next[i] = s.first[row];
        s.first[row] = i;
    }
}

static void scatter_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const rows_job *j = arg;
    const wf_view *x = &j->l->in[0], *from = &j->l->in[2], *out = &j->l->out[0];
    row_lists s = lists_in(j->l);
    int64_t at = begin * j->length;
    for (int64_t row = begin; row < end; row++) {
        wf_run r = wf_run_over(&j->row, 0, j->length);
        for (; wf_run_next(&r, WF_CHUNK); at += r.n) {
            wf_chunk buf;
            double sum[WF_CHUNK];
            const float *add = wf_chunk_widen(x, row * x->stride[0] + r.offset[0],
                                              wf_walk_step(&j->row, 0), r.n, &buf);
            for (int64_t k = 0; k < r.n; k++)
                sum[k] = add[k]; /* x itself is the first term */
            for (int64_t i = s.first[row]; i >= 0; i = s.next[i]) {
                add = wf_chunk_widen(from, i * from->stride[0] + r.offset[1],
                                     wf_walk_step(&j->row, 1), r.n, &buf);
                for (int64_t k = 0; k < r.n; k++)
                    sum[k] += add[k];
            }
            for (int64_t k = 0; k < r.n; k++)
                buf.f32[k] = (float)sum[k];
            wf_convert_from_f32(out->type, buf.f32, wf_view_at(out, at), r.n);
        }
    }
}

static wf_status launch_scatter_add(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(wf_index_check(l));
    make_lists(l);
    rows_job j = rows_of(l);
    add_operand(&j, &l->in[2]);
    wf_walk_fold(&j.row);
    wf_parallel_for(l->threads, l->in[0].dim[0], wf_grain(j.length), scatter_range, &j);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, types_, launch_, workspace_, ...)                                               \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true,                   \
     .workspace = workspace_, .launch = launch_, __VA_ARGS__}
const wf_kernel wf_cpu_rows[] = {
    ROW(embed, WF_TYPES_PLAIN, launch_gather, NULL),
    ROW(embed, WF_TYPES_BLOCK, launch_embed_blocks, NULL),
    ROW(gather_rows, WF_TYPES_ALL, launch_gather, NULL),
    ROW(scatter_add_rows, WF_TYPES_FLOAT, launch_scatter_add, scatter_workspace, .in_place = 1),
    {0},
};

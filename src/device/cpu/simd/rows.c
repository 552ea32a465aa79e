/* SPDX-License-Identifier: MIT */
/*
 * rows.c - scatter_add_rows, the gradient of embed.
 *
 * embed and gather_rows copy whole rows; the reference kernels are fast enough. In scatter_add_rows
 * most rows of a large table receive nothing: in place they are not touched, otherwise they are
 * copied. Other rows are summed as in the reference: in f64, x first, then the additions in index
 * order.
 */
#include "base/thread.h"
#include "device/cpu/simd/lanes.h"
#include "device/walk.h"

/* Linked lists: first[row] is the first row of `from` that is added to `row` of x, and next[i]
 * follows i; -1 ends a list. */
typedef struct {
    const wf_launch *l;
    int64_t length;
    int64_t *first, *next;
} scatter;

static const int32_t *index_at(const wf_launch *l, int64_t i)
{
    return lanes_item(&l->in[1], i);
}

static wf_status check_indices(const wf_launch *l)
{
    int64_t rows = l->in[0].dim[0], n = l->in[1].dim[0];
    for (int64_t i = 0; i < n; i++) {
        int32_t index = *index_at(l, i);
        if (index < 0 || index >= rows)
            return wf_fail(l->ctx, WF_ERR_DEVICE,
                           "%s: index %d at [%lld] of input 1 is not in [0, %lld)",
                           wf_op_get(l->node->op)->name, (int)index, (long long)i, (long long)rows);
    }
    return WF_OK;
}

/* Prepends from last to first, so lists are in ascending order. */
static void make_lists(const scatter *s)
{
    for (int64_t r = 0; r < s->l->in[0].dim[0]; r++)
        s->first[r] = -1;
    for (int64_t i = s->l->in[1].dim[0]; i-- > 0;) {
        int64_t row = *index_at(s->l, i);
        s->next[i] = s->first[row];
        s->first[row] = i;
    }
}

static inline void add_rows(wf_type type, const scatter *s, int64_t row, const void *x, void *y)
{
    const wf_view *from = &s->l->in[2];
    int64_t n = s->length;
    for (int64_t k = 0; k < n; k += WF_VL) {
        vf v = lanes_load(type, x, k, n);
        lanes_sum sum = {vd_low(v), vd_high(v)};
        for (int64_t i = s->first[row]; i >= 0; i = s->next[i])
            lanes_sum_add(&sum, lanes_load(type, lanes_at(type, from->data, i * n), k, n));
        lanes_store(type, y, k, n, vd_to_vf(sum.low, sum.high));
    }
}

static void scatter_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const scatter *s = arg;
    const wf_view *in = &s->l->in[0], *out = &s->l->out[0];
    size_t bytes = (size_t)s->length * (in->type == WF_F32 ? 4 : 2);
    for (int64_t row = begin; row < end; row++) {
        const void *x = lanes_at(in->type, in->data, row * s->length);
        void *y = lanes_at(in->type, out->data, row * s->length);
        if (s->first[row] >= 0)
            LANES_BY_TYPE(in->type, add_rows, s, row, x, y);
        else if (x != y)
            memcpy(y, x, bytes);
    }
}

static size_t scatter_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    int64_t entries = n->in[0]->shape.d[0] + n->in[1]->shape.d[0];
    return (size_t)entries * sizeof(int64_t);
}

static wf_status launch_scatter_add(const wf_launch *l)
{
    scatter s = {.l = l, .length = 1, .first = l->workspace};
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(check_indices(l));
    for (int a = 1; a < l->in[0].rank; a++)
        s.length *= l->in[0].dim[a];
    s.next = s.first + l->in[0].dim[0];
    make_lists(&s);
    wf_parallel_for(l->threads, l->in[0].dim[0], wf_grain(s.length), scatter_range, &s);
    return WF_OK;
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_rows)[] = {
    {.op = WF_OP_scatter_add_rows, .name = "simd", .types = WF_TYPES_FLOAT, .in_place = 1,
     .workspace = scatter_workspace, .launch = launch_scatter_add},
    {0},
};

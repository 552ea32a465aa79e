/* SPDX-License-Identifier: MIT */
/*
 * flash_launch.cu - launch code shared by all tensor core attention kernels, and the kernel that
 * computes the range of keys that each query sees.
 *
 * Ranges replace masks: if positions do not decrease within a sequence, the keys of a query are the
 * interval [low, high). Then kernels skip tiles outside of it and mask only at its ends. Positions
 * are device data, so whether they decrease is known only on the GPU: flash_ranges sets a word, and
 * each kernel returns at once if it is not its turn.
 */
#include "device/cuda/flash_launch.h"

#include <math.h>

#include "device/cuda/kernels.cuh"

/* ---- Operands ---- */

/* `first` is the index of q; k and v follow. */
static bool accepts(const wf_node *n, int first)
{
    const wf_value *q = n->in[first], *k = n->in[first + 1], *v = n->in[first + 2];
    int64_t d = q->shape.d[2], d_v = v->shape.d[v->shape.n - 1];
    return k->shape.n == 3 && q->type == k->type && q->type == v->type &&
           /* Head sizes that the kernels are compiled for. */
           (q->type == WF_BF16 || q->type == WF_F16) && d >= 8 && d <= 256 && d_v >= 8 &&
           d_v <= 256 && q->shape.d[0] <= INT32_MAX / 2; /* offsets of tokens are computed in int */
}

bool wf_flash_accepts(const wf_device *device, const wf_node *n)
{
    (void)device;
    return accepts(n, n->op == WF_OP_attention_grad ? 1 : 0);
}

static wf_flash_operand operand_of(const wf_view *v)
{
    wf_flash_operand o = {v->data, v->stride[0], v->stride[1]};
    return o;
}

static void set_options(wf_flash *f, const wf_view *q, const wf_view *k, const wf_view *v,
                        const wf_attr_attention *attr)
{
    f->type = q->type;
    f->n = (int32_t)q->dim[0];
    f->heads = (int32_t)q->dim[1];
    f->kv_heads = (int32_t)k->dim[1];
    f->d = (int32_t)q->dim[2];
    f->d_v = (int32_t)v->dim[2];
    f->q = operand_of(q);
    f->k = operand_of(k);
    f->v = operand_of(v);
    f->scale = (float)(attr->scale != 0 ? attr->scale : 1 / sqrt((double)f->d));
    f->cap = (float)attr->softcap;
    f->causal = attr->causal != 0;
    /* The window is compared with token distances, which are below 2^31. */
    f->window = (int32_t)(attr->window < INT32_MAX ? attr->window : INT32_MAX);
    f->length = (int32_t)attr->length;
}

wf_flash wf_flash_of(const wf_launch *l)
{
    wf_flash f = {};
    const wf_view *in = l->in, *out = l->out;
    const wf_attr_attention *attr = (const wf_attr_attention *)l->attr;
    if (l->node->op == WF_OP_attention_grad) {
        set_options(&f, &in[1], &in[2], &in[3], attr);
        f.dout = operand_of(&in[0]);
        f.o = operand_of(&in[6]);
        f.lse = (float *)in[7].data;
        f.lse_row = in[7].stride[0];
        f.dq = operand_of(&out[0]);
        f.dk = operand_of(&out[1]);
        f.dv = operand_of(&out[2]);
    } else {
        set_options(&f, &in[0], &in[1], &in[2], attr);
        f.o = operand_of(&out[0]);
        f.lse = (float *)out[1].data;
        f.lse_row = out[1].stride[0];
    }
    return f;
}

bool wf_flash_aligned(const wf_flash *f)
{
    const wf_flash_operand *o[] = {&f->q, &f->k, &f->v, &f->o, &f->dout, &f->dq, &f->dk, &f->dv};
    for (int i = 0; i < 8; i++)
        /* Strides in elements of 2 bytes. */
        if (o[i]->data && ((uintptr_t)o[i]->data % 16 || o[i]->row % 8 || o[i]->head % 8))
            return false;
    return true;
}

/* ---- Ranges ---- */

/* The rows [begin, end) of row i's sequence; both are i if it has none. Stays within [0, n) for any
 * starts. */
static __device__ void find_sequence(const int32_t *starts, int count, int n, int i, int *begin,
                                     int *end)
{
    int low = 0, high = count; /* invariant: starts [0, low) are <= i, starts [high, ...) are > i */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (starts[middle] <= i)
            low = middle + 1;
        else
            high = middle;
    }
    *begin = *end = i; /* no sequence: an empty range */
    if (low > 0 && low < count) {
        *begin = max(starts[low - 1], 0);
        *end = min(starts[low], n);
    }
}

/* The first row of [begin, end) with a position of at least `position`, or `end`. Positions do not
 * decrease. */
static __device__ int first_at(const int32_t *positions, int begin, int end, int64_t position)
{
    while (begin < end) {
        int middle = begin + (end - begin) / 2;
        if (positions[middle] < position)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

typedef struct {
    /* Outputs, [n] each; the last two may be NULL. */
    int32_t *irregular, *low, *high, *seen_low, *seen_high;
} ranges;

/* Rows without a sequence get an empty range at i, so bounds never decrease. */
static __global__ void flash_ranges(const int32_t *starts, int count, const int32_t *positions,
                                    int n, int causal, int window, ranges r, uint64_t *fault)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), begin, end;
    if (i >= n)
        return;
    wf_check_starts(fault, starts, count, n, i, n);
    for (int s = i; s + 1 < count; s += n) /* decreasing starts are left to the general kernels */
        if (starts[s] > starts[s + 1])     /* any thread may set it; all write the same value */
            *r.irregular = 1;
    find_sequence(starts, count, n, i, &begin, &end);
    if (i > begin && positions[i] < positions[i - 1])
        *r.irregular = 1;
    int64_t position = positions[i];
    r.low[i] = window > 0 ? first_at(positions, begin, end, position - window + 1) : begin;
    r.high[i] = causal ? first_at(positions, begin, end, position + 1) : end;
    if (!r.seen_low)
        return;
    /* The queries that see key i: the same search from the other side. */
    r.seen_low[i] = causal ? first_at(positions, begin, end, position) : begin;
    r.seen_high[i] = window > 0 ? first_at(positions, begin, end, position + window) : end;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* irregular, then the arrays, each 256-byte aligned. */
size_t wf_flash_ranges_bytes(const wf_node *n)
{
    const bool grad = n->op == WF_OP_attention_grad;
    int64_t rows = n->in[grad ? 5 : 4]->shape.d[0]; /* length of positions */
    return 256 + (grad ? 4 : 2) * rounded((size_t)rows * sizeof(int32_t));
}

void wf_flash_ranges(const wf_launch *l, wf_flash *f, void *workspace)
{
    if (f->length > 0) /* equal sequences: kernels compute ranges themselves */
        return;
    const bool grad = l->node->op == WF_OP_attention_grad;
    const wf_view *starts = &l->in[grad ? 4 : 3], *positions = &l->in[grad ? 5 : 4];
    const size_t step = rounded((size_t)f->n * sizeof(int32_t)) / sizeof(int32_t);
    ranges r = {};
    r.irregular = (int32_t *)workspace;
    r.low = r.irregular + 256 / sizeof(int32_t);
    r.high = r.low + step;
    if (grad) {
        r.seen_low = r.high + step;
        r.seen_high = r.seen_low + step;
    }
    cudaMemsetAsync(r.irregular, 0, sizeof *r.irregular, wf_cuda_stream(l));
    WF_RUN(flash_ranges, wf_cuda_blocks(f->n, 256, INT32_MAX), 256, 0, wf_cuda_stream(l))
    ((const int32_t *)starts->data, (int)starts->dim[0], (const int32_t *)positions->data, f->n,
     f->causal, f->window, r, l->fault);
    f->irregular = r.irregular;
    f->low = r.low;
    f->high = r.high;
    f->seen_low = r.seen_low;
    f->seen_high = r.seen_high;
}

/* ---- Kernels for all GPUs ---- */

size_t wf_flash_workspace(const wf_device *device, const wf_node *n)
{
    size_t plain = wf_attention_workspace(device, n), stats = 0;
    if (n->op == WF_OP_attention_grad)
        stats = wf_flash_stats_bytes(n);
    return wf_flash_ranges_bytes(n) + (stats > plain ? stats : plain);
}

/* The general kernels run last and share the memory behind the ranges: only one of the two uses
 * it. */
wf_status wf_flash_launch(const wf_launch *l)
{
    wf_flash f = wf_flash_of(l);
    if (f.n == 0 || f.heads == 0)
        return WF_OK;
    void *rest = (char *)l->workspace + wf_flash_ranges_bytes(l->node);
    wf_flash_ranges(l, &f, l->workspace);
    if (l->node->op == WF_OP_attention_grad)
        wf_flash_backward(l, &f, rest);
    else
        wf_flash_forward(l, &f);
    if (f.irregular)
        wf_attention_run(l, rest, f.irregular);
    return wf_cuda_launched(l);
}

#define NARROW (WF_TYPE_BIT(WF_BF16) | WF_TYPE_BIT(WF_F16))

/* clang-format off */
extern "C" const wf_kernel wf_cuda_flash_kernels[] = {
    {.op = WF_OP_attention, .name = "flash", .types = NARROW, .strided = true,
     .accepts = wf_flash_accepts, .workspace = wf_flash_workspace, .launch = wf_flash_launch},
    {.op = WF_OP_attention_grad, .name = "flash", .types = NARROW, .strided = true, .strided_out = 7,
     .accepts = wf_flash_accepts, .workspace = wf_flash_workspace, .launch = wf_flash_launch},
    {},
};

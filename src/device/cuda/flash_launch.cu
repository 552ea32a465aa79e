/* SPDX-License-Identifier: MIT */
/*
 * flash_launch.cu - what all kernels for attention on tensor cores have in common at launch, and the keys
 * that each query sees.
 */
#include "device/cuda/flash_launch.h"

#include <math.h>

#include "device/cuda/kernels.cuh"

/* ---- Operands ---- */

/* q, k and v are operands first, first + 1 and first + 2. */
static bool accepts(const wf_node *n, int first)
{
    const wf_value *q = n->in[first], *k = n->in[first + 1], *v = n->in[first + 2];
    int64_t d = q->shape.d[2], d_v = v->shape.d[v->shape.n - 1];
    return k->shape.n == 3 && q->type == k->type && q->type == v->type &&
           (q->type == WF_BF16 || q->type == WF_F16) && d >= 8 && d <= 256 && d_v >= 8 &&
           d_v <= 256 && q->shape.d[0] <= INT32_MAX / 2;
}

bool wf_flash_accepts(const wf_node *n)
{
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
    f->window = (int32_t)attr->window;
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
        if (o[i]->data && ((uintptr_t)o[i]->data % 16 || o[i]->row % 8 || o[i]->head % 8))
            return false;
    return true;
}

/* ---- Ranges ---- */

/* Rows [begin, end) of the sequence of row i, both i when it is in none; within [0, n) whatever starts say. */
static __device__ void find_sequence(const int32_t *starts, int count, int n, int i, int *begin,
                                     int *end)
{
    int low = 0, high = count; /* starts [0, low) are not after i, [high, ...) are */
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (starts[middle] <= i)
            low = middle + 1;
        else
            high = middle;
    }
    *begin = *end = i;
    if (low > 0 && low < count) {
        *begin = max(starts[low - 1], 0);
        *end = min(starts[low], n);
    }
}

/* The first row of [begin, end), whose positions never fall, with a position of at least `position`; `end` if
 * there is none. */
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

/* Rows in no sequence get low = high = i, so that neither ever decreases. */
static __global__ void flash_ranges(const int32_t *starts, int count, const int32_t *positions,
                                    int n, int causal, int window, int32_t *low, int32_t *high,
                                    int32_t *irregular)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), begin, end;
    if (i >= n)
        return;
    find_sequence(starts, count, n, i, &begin, &end);
    if (i > begin && positions[i] < positions[i - 1])
        *irregular = 1;
    int64_t position = positions[i];
    low[i] = window > 0 ? first_at(positions, begin, end, position - window + 1) : begin;
    high[i] = causal ? first_at(positions, begin, end, position + 1) : end;
}

static size_t rounded(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

size_t wf_flash_ranges_bytes(const wf_node *n)
{
    /* positions: operand 4 of attention, 5 of its gradient */
    int64_t rows = n->in[n->op == WF_OP_attention_grad ? 5 : 4]->shape.d[0];
    return 2 * rounded((size_t)rows * sizeof(int32_t)) + 256;
}

void wf_flash_ranges(const wf_launch *l, wf_flash *f, void *workspace)
{
    if (f->length > 0)
        return;
    const int first = l->node->op == WF_OP_attention_grad ? 4 : 3;
    const wf_view *starts = &l->in[first], *positions = &l->in[first + 1];
    char *at = (char *)workspace;
    int32_t *irregular = (int32_t *)at, *low = (int32_t *)(at + 256),
            *high = (int32_t *)(at + 256 + rounded((size_t)f->n * sizeof(int32_t)));
    cudaMemsetAsync(irregular, 0, sizeof *irregular, wf_cuda_stream(l));
    WF_RUN(flash_ranges, wf_cuda_blocks(f->n, 256, INT32_MAX), 256, 0, wf_cuda_stream(l))
    ((const int32_t *)starts->data, (int)starts->dim[0], (const int32_t *)positions->data, f->n,
     f->causal, f->window, low, high, irregular);
    f->low = low;
    f->high = high;
    f->irregular = irregular;
}

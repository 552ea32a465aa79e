/* SPDX-License-Identifier: MIT */
/*
 * hopper_product.cu - which products the kernels of hopper_product.cuh take, and by which of them they are run.
 */
#include "device/cuda/hopper_product.h"

#include "device/cuda/hopper_product.cuh"

enum { TOGETHER = 16 };

template <typename T, int TA, int TB, wf_hopper_ending ENDING>
static wf_status run_tiles(const wf_launch *l, const wf_cuda_product *p, wf_hopper_tiles tiles,
                           void *scratch, size_t room)
{
    if (tiles == WF_HOPPER_TURNS_128)
        return wf_hopper_run_product<wf_hopper_shape<T, TA, TB, ENDING, 2, 128, true, 1>>(
            l, p, scratch, room, TOGETHER);
    return wf_hopper_run_product<wf_hopper_shape<T, TA, TB, ENDING, 1, 256, false, 1>>(
        l, p, scratch, room, TOGETHER);
}

template <typename T>
static wf_status run_type(const wf_launch *l, const wf_cuda_product *p, wf_hopper_tiles tiles,
                          void *scratch, size_t room)
{
    if (p->transpose_a)
        return run_tiles<T, 1, 1, WF_HOPPER_WIDE>(l, p, tiles, scratch, room);
    if (p->ending == WF_CUDA_ACT)
        return run_tiles<T, 0, 0, WF_HOPPER_GELU>(l, p, tiles, scratch, room);
    if (p->ending == WF_CUDA_ACT_GRAD)
        return run_tiles<T, 0, 1, WF_HOPPER_SLOPE>(l, p, tiles, scratch, room);
    return p->transpose_b ? run_tiles<T, 0, 0, WF_HOPPER_NARROW>(l, p, tiles, scratch, room)
                          : run_tiles<T, 0, 1, WF_HOPPER_NARROW>(l, p, tiles, scratch, room);
}

wf_status wf_cuda_hopper_multiply(const wf_launch *l, const wf_cuda_product *p,
                                  wf_hopper_tiles tiles, void *scratch, size_t room)
{
    return p->a.type == WF_BF16 ? run_type<wf_bf16>(l, p, tiles, scratch, room)
                                : run_type<wf_f16>(l, p, tiles, scratch, room);
}

/* ---- What they take ---- */

static bool lies_well(const wf_cuda_matrix *x, int64_t columns)
{
    const int64_t wide = x->type == WF_F32 ? 4 : 8; /* 16 bytes */
    return (uintptr_t)x->data % 16 == 0 && x->row % wide == 0 && x->row >= columns;
}

/* That the layout of operands and the ending are one of those that there are kernels for. */
static bool is_known(const wf_cuda_product *p)
{
    const wf_type type = p->a.type;
    if (p->b.type != type || (type != WF_BF16 && type != WF_F16))
        return false;
    if (p->transpose_a)
        return !p->transpose_b && p->y.type == WF_F32 && p->ending == WF_CUDA_PLAIN && !p->bias &&
               (!p->sums || p->n <= 1 << 15);
    if (p->y.type != type || p->add || p->sums)
        return false;
    const bool bias = !p->bias || p->bias_type == type || p->bias_type == WF_F32;
    switch (p->ending) {
    case WF_CUDA_ACT: return p->transpose_b && p->act == WF_ACT_GELU && bias;
    case WF_CUDA_ACT_GRAD:
        return !p->transpose_b && p->act == WF_ACT_GELU && !p->bias && p->pre.data;
    default: return bias;
    }
}

bool wf_cuda_hopper_takes(const wf_cuda_product *p)
{
    const int64_t most = 1 << 30;
    if (!is_known(p) || p->batch != 1 || p->m < 1 || p->n < 1 || p->k < 1 || p->m > most ||
        p->n > most || p->k > most || p->m * p->n / (64 * 64) > most)
        return false;
    return lies_well(&p->a, p->transpose_a ? p->m : p->k) &&
           lies_well(&p->b, p->transpose_b ? p->k : p->n) && lies_well(&p->y, p->n) &&
           (!p->pre.data || lies_well(&p->pre, p->n));
}

/* SPDX-License-Identifier: MIT */
/*
 * flash.h - attention as its kernels take it: without the matrix of all scores, tile by tile.
 *
 * Query i sees the keys low[i] <= j < high[i], both of which never decrease with i. They are computed by a kernel of
 * their own (flash_ranges) from seq_start and positions, or follow from `length`. Data of which that is not
 * true (positions that go backwards) set *irregular, and another kernel, slower, does the work: all of them look.
 */
#ifndef WF_DEVICE_CUDA_FLASH_H
#define WF_DEVICE_CUDA_FLASH_H

#include "device/cuda/cuda.h"

#define WF_LOG2E 1.4426950408889634f

typedef struct {
    void *data; /* NULL: not wanted */
    int64_t row,
        head; /* strides in elements from token to token and head to head; that of the last axis is 1 */
} wf_flash_operand;

typedef struct {
    wf_type type;                /* of all operands: WF_BF16 or WF_F16 */
    wf_flash_operand q, k, v, o; /* [N, H, D], [N, Hk, D], [N, Hk, Dv], [N, H, Dv] */
    /* [N, H]: log of the sum of e^score; -Inf where a query sees nothing, and o is 0 then. Rows are lse_row
     * elements apart: heads, but for views. */
    float *lse;
    int64_t lse_row;
    wf_flash_operand dout, dq, dk, dv; /* the gradient alone */
    int32_t n, heads, kv_heads, d, d_v;
    float scale; /* of q.k */
    float cap;   /* scores become cap * tanh(score / cap); 0: they stay */
    /* > 0: sequences of so many tokens each, n a multiple of it, at positions 0, 1, ...; low, high and irregular are
     * NULL then */
    int32_t length;
    int32_t causal, window; /* window 0: none */
    const int32_t *low, *high, *irregular;
    /* The gradient alone: key j is seen by the queries seen_low[j] <= i < seen_high[j]. */
    const int32_t *seen_low, *seen_high;
} wf_flash;

#endif

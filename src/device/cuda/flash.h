/* SPDX-License-Identifier: MIT */
/*
 * flash.h - parameters of the flash attention kernels, which never store the score matrix.
 *
 * Query i sees keys low[i] <= j < high[i]; neither bound decreases with i. The kernel flash_ranges
 * computes them from seq_start and positions, or they follow from `length`. Input without this
 * property (decreasing positions) sets *irregular: flash kernels then do nothing, and the slower
 * kernel of attention.cu runs instead. Every kernel reads the flag.
 */
#ifndef WF_DEVICE_CUDA_FLASH_H
#define WF_DEVICE_CUDA_FLASH_H

#include "device/cuda/cuda.h"

#define WF_LOG2E 1.4426950408889634f

typedef struct {
    void *data; /* NULL: not requested */
    int64_t row,
        head; /* strides in elements between tokens and heads; the last axis has stride 1 */
} wf_flash_operand;

typedef struct {
    wf_type type;                /* of all operands: WF_BF16 or WF_F16 */
    wf_flash_operand q, k, v, o; /* [N, H, D], [N, Hk, D], [N, Hk, Dv], [N, H, Dv] */
    /* [N, H]: log-sum-exp of the scores; -Inf where a query sees no key, and o is 0 there. Rows are
     * lse_row elements apart, which equals H unless it is a view. */
    float *lse;
    int64_t lse_row;
    wf_flash_operand dout, dq, dk, dv; /* gradient only */
    int32_t n, heads, kv_heads, d, d_v;
    float scale; /* multiplies q . k */
    float cap;   /* scores become cap * tanh(score / cap); 0: uncapped */
    /* > 0: all sequences have this many tokens, at positions 0, 1, ..., and n is a multiple of it.
     * low, high and irregular are NULL then. */
    int32_t length;
    int32_t causal, window; /* window 0: unlimited */
    const int32_t *low, *high, *irregular;
    /* Gradient only: queries seen_low[j] <= i < seen_high[j] see key j. */
    const int32_t *seen_low, *seen_high;
} wf_flash;

#endif

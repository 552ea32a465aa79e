/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash_grad.h - shared by the two kernels of the Hopper attention gradient. The first
 * (hopper_flash_grad_prepare.cu) computes which tiles meet and the statistics of each query; the
 * second (hopper_flash_grad.cu) computes the gradients.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_FLASH_GRAD_H
#define WF_DEVICE_CUDA_HOPPER_FLASH_GRAD_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WF_TILE_KEYS = 128, WF_TILE_QUERIES = 64 };

/* Two tiles "meet" when a query of one sees a key of the other; ranges of meeting tiles are
 * contiguous. Each key tile meets at least the queries of its own tokens, so no tile of either kind
 * meets none. */
typedef struct {
    wf_flash_operand dq, dk, dv;
    float *rows;     /* [H, q tiles, 2, WF_TILE_QUERIES]: lse / ln 2, -delta */
    int32_t *limits; /* [q tiles, 2, WF_TILE_QUERIES]: low, high */
    int2 *q_bounds;  /* [q tiles]: first and last key tile that it meets */
    int2 *kv_bounds; /* [kv tiles]: query tiles [x, y) that it meets; y > 0 */
    int32_t *added;  /* [H, q tiles]: parts of dq added so far; starts at 0 */
    int32_t *next;   /* the next item (key tile and kv head); starts at 0 */
    float *sum;      /* [H, q tiles, 2 warpgroups, D / 16, 128 threads, 4]: dq in register order */
    const int32_t *irregular;
    int32_t n, heads, kv_heads, group, q_tiles, kv_tiles;
    float scale, scale_log2; /* scale of q . k; the same times log2(e) */
} wf_flash_grad;

/* Fills the arrays of g up to `next`. */
void wf_cuda_hopper_flash_grad_prepare(const wf_launch *l, const wf_flash *f,
                                       const wf_flash_grad *g);

#ifdef __cplusplus
}
#endif
#endif

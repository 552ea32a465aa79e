/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash_grad.h - what the two kernels of attention's gradient on Hopper share: the first (hopper_flash_grad_prepare.cu)
 * finds out which tiles meet and computes what is needed of each query; the second (hopper_flash_grad.cu) does the work.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_FLASH_GRAD_H
#define WF_DEVICE_CUDA_HOPPER_FLASH_GRAD_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { WF_TILE_KEYS = 128, WF_TILE_QUERIES = 64 };

/* Tiles "meet" when some query of the one sees some key of the other, or lies beside one that does. Each tile of keys
 * meets at least the queries of its own tokens, so there is no tile of either kind that meets none. */
typedef struct {
    wf_flash_operand dq, dk, dv;
    float *rows;     /* [H, q tiles, 2, WF_TILE_QUERIES]: lse / ln 2, -delta */
    int32_t *limits; /* [q tiles, 2, WF_TILE_QUERIES]: low, high */
    int2 *q_bounds;  /* [q tiles]: first and last tile of keys that it meets */
    int2 *kv_bounds; /* [kv tiles]: tiles [x, y) of queries that it meets; never y = 0 */
    int32_t *added;  /* [H, q tiles]: parts of dq so far; 0 */
    int32_t *next;   /* tile of keys and kv head to be taken; 0 */
    float *sum; /* [H, q tiles, 2 warpgroups, D / 16, 128 threads, 4]: dq, as threads hold it */
    const int32_t *irregular;
    int32_t n, heads, kv_heads, group, q_tiles, kv_tiles;
    float scale, scale_log2; /* of q.k; the same for 2^x */
} wf_flash_grad;

/* Fills what g's pointers up to `next` point to. */
void wf_cuda_hopper_flash_grad_prepare(const wf_launch *l, const wf_flash *f,
                                       const wf_flash_grad *g);

#ifdef __cplusplus
}
#endif
#endif

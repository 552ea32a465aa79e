/* SPDX-License-Identifier: MIT */
/*
 * hopper_product.h - matrix products by kernels of ours for Hopper (hopper_product.cuh): those of training whose endings cost
 * a library much, gelu, its slope, and sums of columns. The same bits each time.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_PRODUCT_H
#define WF_DEVICE_CUDA_HOPPER_PRODUCT_H

#include "device/cuda/product.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the work is divided. Numbers of files: to be added to, not changed. */
typedef enum {
    WF_HOPPER_TURNS_128, /* tiles of 128 x 128, one warpgroup each */
    WF_HOPPER_BOTH_256,  /* tiles of 128 x 256, two warpgroups each */
    WF_HOPPER_TILES
} wf_hopper_tiles;

/* Whether they can do all of the product, where it lies: bf16 or f16, not a batch, and
 *   y = x w^T + bias or gelu of it, with or without pre (b lies as [n, k])
 *   y = x w, or that times the slope of gelu at pre (nothing is transposed)
 *   y = or += x^T w in f32 (a lies as [k, m]), with or without sums of a.
 * Addresses and rows must be multiples of 16 bytes. */
bool wf_cuda_hopper_takes(const wf_cuda_product *p);

/* Runs it. scratch: `room` bytes, in which parts of results over k go, as many as there is room for. Sums need
 * wf_cuda_sums_bytes of it. */
wf_status wf_cuda_hopper_multiply(const wf_launch *l, const wf_cuda_product *p,
                                  wf_hopper_tiles tiles, void *scratch, size_t room);

#ifdef __cplusplus
}
#endif
#endif

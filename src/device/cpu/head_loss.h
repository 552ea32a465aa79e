/* SPDX-License-Identifier: MIT */
/* head_loss.h - the steps of head_loss, which an instruction set may replace. */
#ifndef WF_DEVICE_CPU_HEAD_LOSS_H
#define WF_DEVICE_CPU_HEAD_LOSS_H

#include "device/cpu/gemm.h"
#include "device/cpu/loss.h"

typedef struct {
    int64_t chunk; /* default rows per chunk: whole blocks of the GEMM's sums */
    size_t (*scratch)(int64_t m, int64_t n, int64_t k, wf_type product, int threads);
    void (*multiply)(const wf_gemm *g);
    /* Computes loss, lse and optionally the gradient of row i from its logits z, which the gradient
     * overwrites. NULL, or capped logits: the reference is used. */
    void (*row)(const wf_loss *o, int64_t i, wf_type type, void *z, const wf_launch *l, bool grad);
} wf_head_loss_ways;

size_t wf_head_loss_workspace(const wf_node *n, int threads, const wf_head_loss_ways *ways);
wf_status wf_head_loss_launch(const wf_launch *l, const wf_head_loss_ways *ways);

#endif

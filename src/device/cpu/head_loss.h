/* SPDX-License-Identifier: MIT */
/* head_loss.h - the steps that head_loss is made of, for devices with other ways to do them. */
#ifndef WF_DEVICE_CPU_HEAD_LOSS_H
#define WF_DEVICE_CPU_HEAD_LOSS_H

#include "device/cpu/gemm.h"
#include "device/cpu/loss.h"

typedef struct {
    int64_t
        chunk; /* rows at a time, where the node does not say: whole blocks of the product's sums */
    size_t (*scratch)(int64_t m, int64_t n, int64_t k, wf_type product, int threads);
    void (*multiply)(const wf_gemm *g);
    /* Loss, lse and, if asked for, gradient of row i, with z its logits, which the gradient replaces. NULL,
     * and for capped logits: the reference. */
    void (*row)(const wf_loss *o, int64_t i, wf_type type, void *z, const wf_launch *l, bool grad);
} wf_head_loss_ways;

size_t wf_head_loss_workspace(const wf_node *n, int threads, const wf_head_loss_ways *ways);
wf_status wf_head_loss_launch(const wf_launch *l, const wf_head_loss_ways *ways);

#endif

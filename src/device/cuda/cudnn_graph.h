/* SPDX-License-Identifier: MIT */
/*
 * cudnn_graph.h - attention as a cuDNN graph, built by its C interface and compiled to a plan.
 * cuDNN is loaded on first use.
 *
 * Supports causal attention over sequences of equal length, with as many kv heads as heads, in one
 * narrow type. The gradient is not deterministic: blocks add to dq in any order.
 */
#ifndef WF_DEVICE_CUDA_CUDNN_GRAPH_H
#define WF_DEVICE_CUDA_CUDNN_GRAPH_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The key of a plan. Strides are those of wf_flash. */
typedef struct {
    wf_type type;
    bool gradient;
    int32_t batch, heads, length, d;
    int64_t q_row, q_head, k_row, k_head, v_row, v_head, o_row, o_head;
    int64_t dout_row, dout_head, dq_row, dq_head, dk_row, dk_head, dv_row, dv_head;
} wf_dnn_shape;

typedef struct wf_dnn_plan wf_dnn_plan;

/* Whether cuDNN was loaded; else *why is the reason. `why` may be NULL. */
bool wf_dnn_available(const char **why);
/* find returns the cached plan of a shape, or NULL. build adds it to the cache, which takes
 * seconds; NULL means that cuDNN has no plan within `most` bytes of workspace, with the reason in
 * *why until the next call. Plans live until the process ends. */
const wf_dnn_plan *wf_dnn_find(const wf_dnn_shape *shape);
const wf_dnn_plan *wf_dnn_build(const wf_dnn_shape *shape, size_t most, const char **why);

/* Bytes for sums, in addition to the plan's workspace. */
size_t wf_dnn_sums(const wf_dnn_shape *shape);
/* workspace: wf_dnn_sums + `most` bytes. Returns false with the reason in *why. */
bool wf_dnn_run(const wf_dnn_plan *plan, const wf_flash *f, void *workspace, cudaStream_t stream,
                const char **why);

#ifdef __cplusplus
}
#endif
#endif

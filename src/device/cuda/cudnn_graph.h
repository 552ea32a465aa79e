/* SPDX-License-Identifier: MIT */
/*
 * cudnn_graph.h - attention as a graph of cuDNN's, built with its C interface and made into a plan that runs. cuDNN is
 * loaded when it is first needed.
 *
 * Sequences of one length, causal, as many kv heads as heads, all of one narrow type. The gradient is not
 * deterministic: sums for dq are added by whoever comes first.
 */
#ifndef WF_DEVICE_CUDA_CUDNN_GRAPH_H
#define WF_DEVICE_CUDA_CUDNN_GRAPH_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a plan is for. Strides are those of wf_flash. */
typedef struct {
    wf_type type;
    bool gradient;
    int32_t batch, heads, length, d;
    int64_t q_row, q_head, k_row, k_head, v_row, v_head, o_row, o_head;
    int64_t dout_row, dout_head, dq_row, dq_head, dk_row, dk_head, dv_row, dv_head;
} wf_dnn_shape;

typedef struct wf_dnn_plan wf_dnn_plan;

/* Is the library there? `why` may be NULL. */
bool wf_dnn_available(const char **why);
/* The plan for a shape, from the process's list of them, or NULL; and the same, building it (seconds). NULL from the
 * latter: cuDNN has none that needs at most `most` bytes of workspace, and *why says so until the next call. */
const wf_dnn_plan *wf_dnn_find(const wf_dnn_shape *shape);
const wf_dnn_plan *wf_dnn_build(const wf_dnn_shape *shape, size_t most, const char **why);

/* Bytes for sums, besides the plan's own workspace. */
size_t wf_dnn_sums(const wf_dnn_shape *shape);
/* workspace: wf_dnn_sums and `most`. false: it was refused, and *why says so. */
bool wf_dnn_run(const wf_dnn_plan *plan, const wf_flash *f, void *workspace, cudaStream_t stream,
                const char **why);

#ifdef __cplusplus
}
#endif
#endif

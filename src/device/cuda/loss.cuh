/* SPDX-License-Identifier: MIT */
/*
 * loss.cuh - cross entropy of rows of logits [V], and its gradient, for cross_entropy and head_loss.
 *
 * With z the logits, capped if there is a softcap, lse = log sum exp z, smoothing e and target t:
 *
 *     loss = (1 - e) (lse - z[t]) + e (lse - mean z) + z_loss lse^2
 *     dz_v = dloss (p_v (1 + 2 z_loss lse) - (1 - e) [v == t] - e / V),   p_v = exp(z_v - lse)
 *
 * Rows whose target is ignored have loss 0 and a gradient of zeros. A target that is neither ignored nor one of the
 * classes makes both NaN: a kernel cannot refuse.
 */
#ifndef WF_DEVICE_CUDA_LOSS_CUH
#define WF_DEVICE_CUDA_LOSS_CUH

#include "device/cuda/row.cuh"

typedef struct {
    wf_type type;          /* of logits and dlogits */
    int64_t rows, classes; /* classes < 2^31, as targets are */
    const void *logits;    /* [rows, V] */
    void *dlogits;         /* the same; may be the logits themselves. NULL: no gradient */
    const int32_t *target; /* [rows] */
    const float *dloss;    /* [rows]; with dlogits */
    const float *given;    /* [rows]: lse as it was computed before, with dlogits. NULL: not yet */
    float *loss, *lse;     /* [rows], dense. NULL: not wanted */
    wf_cuda_steps logits_at, dlogits_at, target_at, dloss_at, given_at; /* where rows begin */
    int64_t padded; /* columns [V, padded) of dlogits, if there are any, become zeros */
    int64_t ignore_index;
    float smoothing, z_loss, softcap;
} wf_cuda_loss;

/* The attributes, into a description. */
static inline void wf_cuda_loss_attr(wf_cuda_loss *o, const wf_attr_cross_entropy *attr)
{
    o->ignore_index = attr->ignore_index;
    o->smoothing = (float)attr->label_smoothing;
    o->z_loss = (float)attr->z_loss;
    o->softcap = (float)attr->softcap;
}

/* Rows that follow each other at this distance, in elements; 1 for dense scalars. */
static inline wf_cuda_steps wf_cuda_steps_every(int64_t stride)
{
    wf_cuda_steps s = {1, {0}, {stride}};
    return s;
}

/* Each logit is read from memory once, and each gradient written once. The description is copied, pointers are the
 * device's. `shared`: bytes of shared memory that a block can be given (wf_cuda_device). */
extern "C" cudaError_t wf_cuda_loss_run(const wf_cuda_loss *o, size_t shared, cudaStream_t stream);

#endif

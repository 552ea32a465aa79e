/* SPDX-License-Identifier: MIT */
/*
 * loss.cuh - cross entropy of rows of logits [V], and its gradient, for cross_entropy and
 * head_loss.
 *
 * With z the logits, capped if there is a softcap, lse = log sum exp z, smoothing e and target t:
 *
 *     loss = (1 - e) (lse - z[t]) + e (lse - mean z) + z_loss lse^2
 *     dz_v = dloss (p_v (1 + 2 z_loss lse) - (1 - e) [v == t] - e / V),   p_v = exp(z_v - lse)
 *
 * A row with an ignored target has loss 0 and a zero gradient. A target outside [0, V) that is not
 * the ignored one is reported as a fault, and both become NaN.
 */
#ifndef WF_DEVICE_CUDA_LOSS_CUH
#define WF_DEVICE_CUDA_LOSS_CUH

#include "device/cuda/row.cuh"

typedef struct {
    wf_type type;          /* of logits and dlogits */
    int64_t rows, classes; /* classes < 2^31, since targets are i32 */
    const void *logits;    /* [rows, V] */
    void *dlogits;         /* [rows, V], may alias logits. NULL: no gradient */
    const int32_t *target; /* [rows] */
    const float *dloss;    /* [rows], read with dlogits */
    const float *given;    /* [rows], the saved lse, read with dlogits. NULL: compute it */
    float *loss, *lse;     /* [rows], dense. NULL: not requested */
    wf_cuda_steps logits_at, dlogits_at, target_at, dloss_at, given_at; /* row offsets */
    int64_t padded; /* columns [V, padded) of dlogits are set to 0 */
    int64_t ignore_index;
    float smoothing, z_loss, softcap;
    uint64_t *fault;
    int64_t before; /* added to row numbers in fault reports */
} wf_cuda_loss;

/* Copies the op's attributes. */
static inline void wf_cuda_loss_attr(wf_cuda_loss *o, const wf_attr_cross_entropy *attr)
{
    o->ignore_index = attr->ignore_index;
    o->smoothing = (float)attr->label_smoothing;
    o->z_loss = (float)attr->z_loss;
    o->softcap = (float)attr->softcap;
}

/* Rows with a constant stride in elements; 1 for dense scalars. */
static inline wf_cuda_steps wf_cuda_steps_every(int64_t stride)
{
    wf_cuda_steps s = {1, {0}, {stride}};
    return s;
}

/* Reads each logit once and writes each gradient once. Copies *o; its pointers are device memory.
 * `shared`: most bytes of shared memory per block (wf_cuda_device). */
extern "C" cudaError_t wf_cuda_loss_run(const wf_cuda_loss *o, size_t shared, cudaStream_t stream);

#endif

/* SPDX-License-Identifier: MIT */
/* norm.cuh - shared by norms and their gradients: block sizes, row offsets and operands. */
#ifndef WF_DEVICE_CUDA_NORM_CUH
#define WF_DEVICE_CUDA_NORM_CUH

#include "device/cuda/row.cuh"

/* norm_grad.cu */
extern "C" size_t wf_cuda_norm_grad_workspace(const wf_device *device, const wf_node *n);
extern "C" wf_status wf_cuda_layer_norm_grad(const wf_launch *l);
extern "C" wf_status wf_cuda_rms_norm_grad(const wf_launch *l);
extern "C" wf_status wf_cuda_residual_layer_norm_grad(const wf_launch *l);
extern "C" wf_status wf_cuda_residual_rms_norm_grad(const wf_launch *l);

/* A block of as many rows as fit into `most` threads, at least one. */
static inline dim3 wf_norm_block(int threads, int most) /* x: threads of a row, y: rows */
{
    return dim3((unsigned)threads, threads < most ? (unsigned)(most / threads) : 1);
}

/* Threads per row, for kernels that read a row more than once. */
static inline int wf_norm_threads(int64_t columns)
{
    int threads = 32;
    while (threads < 512 && threads * 4 < columns) /* at least four elements per thread */
        threads *= 2;
    return threads;
}

/* Operand i, or NULL when the node has fewer. */
static inline const wf_view *wf_norm_input(const wf_launch *l, int i)
{
    return i < l->nin ? &l->in[i] : NULL;
}

/* Output i, or NULL when no node reads it. */
static inline const wf_view *wf_norm_output(const wf_launch *l, int i)
{
    return i < l->nout && l->out[i].data ? &l->out[i] : NULL;
}

/* The axes over which all operands count rows, merged where all strides allow it. */
typedef struct {
    int count; /* at least 1 */
    int64_t dim[WF_MAX_RANK];
} wf_norm_axes;

/* Row offsets of an operand or statistic, which may be missing. */
typedef struct {
    void *data;                  /* NULL: missing */
    int64_t stride[WF_MAX_RANK]; /* along each axis, in elements */
} wf_norm_rows;

/* Sets rows[i] from views[i]; all have x's axes but the last. NULL views are missing. */
static inline wf_norm_axes wf_norm_fold(const wf_view *x, const wf_view *const *views,
                                        wf_norm_rows *const *rows, int count)
{
    wf_norm_axes axes = {1, {1}};
    for (int k = 0; k < count; k++) {
        *rows[k] = wf_norm_rows{NULL, {0}};
        rows[k]->data = views[k] ? views[k]->data : NULL;
    }
    bool first = true;
    for (int i = 0; i < x->rank - 1; i++) {
        if (x->dim[i] == 1)
            continue;
        bool joins = !first; /* the first axis longer than 1 starts a group */
        for (int k = 0; k < count; k++)
            joins = joins && (!views[k] ||
                              rows[k]->stride[axes.count - 1] == x->dim[i] * views[k]->stride[i]);
        if (!joins && !first)
            axes.dim[axes.count++] = 1;
        axes.dim[axes.count - 1] *= x->dim[i];
        for (int k = 0; k < count; k++)
            rows[k]->stride[axes.count - 1] = views[k] ? views[k]->stride[i] : 0;
        first = false;
    }
    return axes;
}

/* Whether rows allow 16-byte loads and stores. */
static inline bool wf_norm_rows_wide(const wf_norm_rows *rows, const wf_norm_axes *axes,
                                     wf_type type)
{
    /* Collects the low bits of the address and of all strides in bytes: all must be multiples of
     * 16. */
    uint64_t bits = (uint64_t)(uintptr_t)rows->data;
    for (int i = 0; i < axes->count; i++)
        bits |= (uint64_t)rows->stride[i] * (type == WF_F32 ? 4 : 2);
    return !rows->data || bits % 16 == 0;
}

/* Whether the register kernels accept the parameters [C]: all of x's type, or all f32. */
static inline bool wf_norm_params_fit(const wf_view *gamma, const wf_view *beta, wf_type x)
{
    if (!gamma)
        return true;
    uintptr_t bits = (uintptr_t)gamma->data | (beta ? (uintptr_t)beta->data : 0);
    return (gamma->type == x || gamma->type == WF_F32) && (!beta || beta->type == gamma->type) &&
           bits % 16 == 0;
}

/* Address of row r, or of its statistic. */
template <typename T>
static __device__ __forceinline__ T *wf_norm_row(const wf_norm_axes &axes, const wf_norm_rows &v,
                                                 int64_t r)
{
    int64_t offset = 0;
    for (int i = axes.count - 1; i > 0; i--) {
        offset += r % axes.dim[i] * v.stride[i];
        r /= axes.dim[i];
    }
    return (T *)v.data + offset + r * v.stride[0];
}

/* The same for at most two axes, with one division for all operands and 32-bit arithmetic where it
 * suffices: rows are short, and each pays for this. */
typedef struct {
    uint32_t outer, inner;
} wf_norm_place;

static inline bool wf_norm_places_fit(const wf_norm_axes *axes, int64_t rows,
                                      const wf_norm_rows *const *all, int count)
{
    bool fit = axes->count <= 2 && rows <= INT32_MAX;
    for (int k = 0; k < count; k++)
        for (int i = 0; i < axes->count; i++)
            fit = fit && all[k]->stride[i] >= 0 && all[k]->stride[i] <= INT32_MAX;
    return fit;
}

static __device__ __forceinline__ wf_norm_place wf_norm_place_of(const wf_norm_axes &axes,
                                                                 uint32_t r)
{
    if (axes.count == 1)
        return wf_norm_place{r, 0};
    /* Axis 0 is the outer one: row r = outer * dim[1] + inner. */
    const uint32_t dim = (uint32_t)axes.dim[1];
    return wf_norm_place{r / dim, r % dim};
}

template <typename T>
static __device__ __forceinline__ T *wf_norm_at(const wf_norm_rows &v, wf_norm_place p)
{
    return (T *)v.data + /* unsigned 64-bit: strides are below 2^31, so the product of two fits */
           ((uint64_t)p.outer * (uint32_t)v.stride[0] + (uint64_t)p.inner * (uint32_t)v.stride[1]);
}

#endif

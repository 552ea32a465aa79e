/* SPDX-License-Identifier: MIT */
/*
 * cuda.h - shared by all files of this device: the device, its queue, its kernel tables, and error
 * reporting. Included from C and from CUDA C (through kernels.cuh, which adds device code).
 *
 * The CUDA runtime is linked statically and finds the driver itself. cuBLASLt and cuDNN are loaded
 * on first use (library.c). One binary therefore runs with and without a GPU.
 */
#ifndef WF_DEVICE_CUDA_CUDA_H
#define WF_DEVICE_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "device/device.h"

typedef struct wf_cuda_products wf_cuda_products; /* product.h */

typedef struct {
    wf_device head;
    int ordinal;
    int major, minor; /* compute capability */
    int processors;   /* streaming multiprocessors */
    size_t cache;     /* bytes of L2 */
    size_t shared;    /* most bytes of shared memory per block */
    bool tf32;        /* f32 matmuls may round their operands to 10 mantissa bits */
    wf_cuda_products *products;
    char name[128];
    char rounding[256]; /* numerics fingerprint: GPU, driver, tf32. Equal strings, equal bits */
} wf_cuda_device;

/* A staging slot for uploads: see queue.c. */
typedef struct {
    cudaEvent_t arrived; /* the bytes are on the device */
    cudaEvent_t taken;   /* the bytes reached their buffer: the slot is free */
} wf_cuda_slot;

enum {
    WF_CUDA_SLOTS = 8,
    WF_CUDA_SLOT_BYTES = 512 << 10,
    WF_CUDA_LANDING = WF_CUDA_SLOTS * WF_CUDA_SLOT_BYTES /* device bytes per session */
};

/* Where the kernels of one plan report invalid input, one word per step (fault.c). */
typedef struct wf_cuda_faults {
    struct wf_cuda_faults *next; /* in the queue's list */
    uint64_t *words;             /* [count], pinned host memory that kernels write */
    const wf_launch **launches;  /* [count], the step of each word */
    int count;
} wf_cuda_faults;

/* A fault word holds a kind, the position of the invalid element, and its value. Kernels keep the
 * smallest word, so a run reports the same fault every time. */
enum {
    WF_CUDA_FAULT_START, /* seq_start */
    WF_CUDA_FAULT_INDEX, /* an index, a target, a length, a step */
    WF_CUDA_FAULT_PAGE,  /* a page table */
    WF_CUDA_FAULT_KIND_AT = 62,
    WF_CUDA_FAULT_PLACE_AT = 32,
    WF_CUDA_FAULT_PLACES = 1 << 30 /* larger positions are reported as the last one */
};
#define WF_CUDA_NO_FAULT UINT64_MAX

typedef struct {
    wf_queue head;
    cudaStream_t stream; /* runs kernels */
    cudaStream_t upload; /* runs uploads, beside the kernels */
    char *staging;       /* pinned host memory, [WF_CUDA_SLOTS][WF_CUDA_SLOT_BYTES] */
    char *landing;       /* the same on the device */
    wf_cuda_slot slots[WF_CUDA_SLOTS];
    int next; /* index of the next slot */
    wf_cuda_faults *faults;
} wf_cuda_queue;

static inline const wf_cuda_device *wf_cuda_device_of(const wf_launch *l)
{
    return (const wf_cuda_device *)l->queue->device;
}

static inline cudaStream_t wf_cuda_stream(const wf_launch *l)
{
    return ((const wf_cuda_queue *)l->queue)->stream;
}

/* "embed(f32[10,4], i32[3]) on cuda: an illegal memory access was encountered". WF_OK for
 * cudaSuccess. */
wf_status wf_cuda_check(const wf_launch *l, cudaError_t error);
/* The same for cudaGetLastError(). Every launch function ends with it. */
wf_status wf_cuda_launched(const wf_launch *l);

/* Converts a view of any type, quantized ones included, to a dense array of `type` (cast.cu). */
void wf_cuda_convert(cudaStream_t stream, const wf_view *from, wf_type type, void *to);
/* The same outside of launches: "cuda: <what>: <reason>". */
wf_status wf_cuda_try(wf_ctx *ctx, cudaError_t error, const char *what);

/* Matmul state for the life of the device (product.c): handles, and the fastest algorithm of each
 * shape. tune: time the algorithms of new shapes. */
wf_status wf_cuda_products_new(wf_cuda_device *d, bool tune);
void wf_cuda_products_free(wf_cuda_device *d);
/* A hash of the algorithms of all matmuls since wf_cuda_products_begin, and of the library's
 * version. Equal hashes mean equal summation order. 0: no matmul ran. */
void wf_cuda_products_begin(const wf_cuda_device *d);
uint64_t wf_cuda_products_choices(const wf_cuda_device *d);

/* Kernel tables by compute capability, fastest rows first. NULL-terminated lists, see kernel.h. */
const wf_kernel *const *wf_cuda_kernels(int major, int minor);

/* One array per file. */
extern const wf_kernel wf_cuda_elementwise_kernels[], wf_cuda_cast_kernels[],
    wf_cuda_shape_kernels[], wf_cuda_source_kernels[], wf_cuda_reduce_kernels[],
    wf_cuda_softmax_kernels[], wf_cuda_rows_kernels[], wf_cuda_norm_kernels[],
    wf_cuda_rope_kernels[], wf_cuda_loss_kernels[], wf_cuda_update_kernels[],
    wf_cuda_product_kernels[], wf_cuda_head_kernels[], wf_cuda_attention_few_kernels[],
    wf_cuda_attention_parts_kernels[], wf_cuda_attention_kernels[], wf_cuda_flash_kernels[],
    wf_cuda_hopper_kernels[], wf_cuda_cudnn_kernels[];

#ifdef __cplusplus
}
#endif
#endif

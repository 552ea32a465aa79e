/* SPDX-License-Identifier: MIT */
/*
 * cuda.h - what the files of this device share: the device, its queue, its tables of kernels, and how a
 * failure becomes a sentence. Read by C and by CUDA C (in kernels.cuh, which has what only the latter needs).
 *
 * The runtime is linked statically and finds the driver itself; cuBLASLt and cuDNN are loaded when they are
 * first needed (library.c). So one binary runs with and without a GPU.
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
    size_t shared;    /* bytes of shared memory that a block can be given */
    bool tf32;        /* products of f32 may round their operands to 10 bits: asked for */
    wf_cuda_products *products;
    char name[128];
    char rounding[256]; /* what rounds alike: the GPU, the driver, and whether tf32 was asked for */
} wf_cuda_device;

/* A piece of memory through which bytes of the host reach the device: see queue.c. */
typedef struct {
    cudaEvent_t arrived; /* they are on the device */
    cudaEvent_t taken;   /* and have been moved to where they belong: it is free */
} wf_cuda_slot;

enum {
    WF_CUDA_SLOTS = 8,
    WF_CUDA_SLOT_BYTES = 512 << 10,
    WF_CUDA_LANDING = WF_CUDA_SLOTS * WF_CUDA_SLOT_BYTES /* on the device, for each session */
};

/* The words of a plan's steps in which kernels tell of data that is not right (fault.c). */
typedef struct wf_cuda_faults {
    struct wf_cuda_faults *next; /* of the queue */
    uint64_t *words;             /* [count], pinned memory of the host, which kernels write */
    const wf_launch **launches;  /* [count]: whose they are */
    int count;
} wf_cuda_faults;

/* What a word tells: which kind of fault, the place of the element that is wrong, and its value. Of several the least
 * is kept: the same each time. */
enum {
    WF_CUDA_FAULT_START, /* seq_start */
    WF_CUDA_FAULT_INDEX, /* an index, a target, a length, a step */
    WF_CUDA_FAULT_PAGE,  /* a page table */
    WF_CUDA_FAULT_KIND_AT = 62,
    WF_CUDA_FAULT_PLACE_AT = 32,
    WF_CUDA_FAULT_PLACES = 1 << 30 /* places from here on are the last that can be told */
};
#define WF_CUDA_NO_FAULT UINT64_MAX

typedef struct {
    wf_queue head;
    cudaStream_t stream; /* on which kernels run */
    cudaStream_t upload; /* on which the host's bytes arrive */
    char *staging;       /* pinned memory of the host, [WF_CUDA_SLOTS][WF_CUDA_SLOT_BYTES] */
    char *landing;       /* the same on the device */
    wf_cuda_slot slots[WF_CUDA_SLOTS];
    int next; /* slot to use */
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

/* "embed(f32[10,4], i32[3]) on cuda: an illegal memory access was encountered". WF_OK for cudaSuccess. */
wf_status wf_cuda_check(const wf_launch *l, cudaError_t error);
/* The same for what kernels just launched said: every launch function ends with it. */
wf_status wf_cuda_launched(const wf_launch *l);

/* A view of any type as a dense array of another one, on the stream; quantized blocks as floats (cast.cu). */
void wf_cuda_convert(cudaStream_t stream, const wf_view *from, wf_type type, void *to);
/* The same away from kernels: "cuda: <what>: <reason>". */
wf_status wf_cuda_try(wf_ctx *ctx, cudaError_t error, const char *what);

/* What products need for the life of the device (product.c): handles, and which algorithm was fastest for which
 * shape. tune: times those that are new. */
wf_status wf_cuda_products_new(wf_cuda_device *d, bool tune);
void wf_cuda_products_free(wf_cuda_device *d);
/* A number that stands for how products are run that came up since wf_cuda_products_begin, by which version of the library:
 * the same exactly when that is. 0: there were none. */
void wf_cuda_products_begin(const wf_cuda_device *d);
uint64_t wf_cuda_products_choices(const wf_cuda_device *d);

/* Tables of kernels by compute capability: the best rows first. NULL-terminated lists, see kernel.h. */
const wf_kernel *const *wf_cuda_kernels(int major, int minor);

/* One array a file. */
extern const wf_kernel wf_cuda_elementwise_kernels[], wf_cuda_cast_kernels[],
    wf_cuda_shape_kernels[], wf_cuda_source_kernels[], wf_cuda_reduce_kernels[],
    wf_cuda_softmax_kernels[], wf_cuda_rows_kernels[], wf_cuda_norm_kernels[],
    wf_cuda_rope_kernels[], wf_cuda_loss_kernels[], wf_cuda_update_kernels[],
    wf_cuda_product_kernels[], wf_cuda_head_kernels[], wf_cuda_attention_few_kernels[],
    wf_cuda_attention_kernels[], wf_cuda_flash_kernels[], wf_cuda_hopper_kernels[],
    wf_cuda_cudnn_kernels[];

#ifdef __cplusplus
}
#endif
#endif

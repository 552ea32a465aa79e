/* SPDX-License-Identifier: MIT */
/*
 * kernels.cuh - shared by all CUDA C files: launching, element types, vector loads and stores,
 * views, and sums over a warp or block in an order that depends on the shape only.
 *
 * Kernels are launched by WF_RUN and declare dynamic shared memory by WF_SHARED. Only inline
 * assembly is guarded by #if !WF_CUDA_EMULATED. The same files therefore compile for the host and
 * are tested without a GPU (tests/emulator).
 */
#ifndef WF_DEVICE_CUDA_KERNELS_CUH
#define WF_DEVICE_CUDA_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "device/cuda/cuda.h"

#ifndef WF_CUDA_EMULATED
#define WF_CUDA_EMULATED 0
/* WF_RUN(kernel, grid, block, shared bytes, stream)(arguments). Parenthesize a name with commas. */
#define WF_RUN(kernel, grid, block, shared, stream) kernel<<<grid, block, shared, stream>>>
/* Declares the block's dynamic shared memory, 128-byte aligned: WF_SHARED(float, tile); One array
 * serves every kernel of a file, so the name wf_shared may not be declared with another type. */
#define WF_SHARED(type, name)                                   \
    extern __shared__ __align__(128) unsigned char wf_shared[]; \
    type *name = reinterpret_cast<type *>(wf_shared)
#endif

/* ---- Programmatic dependent launch ----
 *
 * A kernel launched by WF_RUN_EARLY may start while the kernels before it run, on GPUs from compute
 * capability 9.0 on. All its threads call wf_grid_begin before they read or write anything that
 * another kernel writes or reads; weights, which no kernel of a step writes, may be read earlier. A
 * thread that ended without the call would let later kernels start too early. So in a sequence of
 * such kernels each one sees the results of all before it. The emulator starts a kernel when the
 * previous one has ended, and stops if a thread ends without the call. */

#if WF_CUDA_EMULATED
#define WF_RUN_EARLY(kernel, grid, block, shared, l) \
    wf_emulated_runner(                              \
        [=](const auto &...wf_argument) {            \
            wf_emulated_early();                     \
            (kernel)(wf_argument...);                \
            wf_emulated_early_end();                 \
        },                                           \
        #kernel, dim3(grid), dim3(block), shared, wf_cuda_stream(l))
static void wf_grid_release(void) {}
static void wf_grid_await(void)
{
    wf_emulated_await();
}
#else
#define WF_RUN_EARLY(kernel, grid, block, shared, l) \
    wf_early_of(kernel, dim3(grid), dim3(block), shared, l)

/* A launch without arguments yet. */
template <typename... P> struct wf_early {
    void (*kernel)(P...);
    cudaLaunchConfig_t config;
    void operator()(P... arguments) const
    {
        cudaLaunchAttribute early = {};
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
        cudaLaunchConfig_t with = config;
        void *all[] = {&arguments...};
        with.attrs = &early;
        cudaLaunchKernelExC(&with, (const void *)kernel, all);
    }
};
template <typename... P>
static inline wf_early<P...> wf_early_of(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                                         const wf_launch *l)
{
    wf_early<P...> e = {kernel, {}};
    e.config.gridDim = grid;
    e.config.blockDim = block;
    e.config.dynamicSmemBytes = shared;
    e.config.stream = wf_cuda_stream(l);
    e.config.numAttrs = wf_cuda_device_of(l)->major >= 9 ? 1 : 0;
    return e;
}

/* Lets the next kernel start when all blocks have called it. */
static __device__ __forceinline__ void wf_grid_release(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until the kernels before this one have ended and their writes are visible. */
static __device__ __forceinline__ void wf_grid_await(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif

/* The first statement of a kernel that reads nothing early. */
static __device__ __forceinline__ void wf_grid_begin(void)
{
    wf_grid_release();
    wf_grid_await();
}

/* ---- Elements ---- */

typedef __nv_bfloat16 wf_bf16;
typedef __half wf_f16;

/* Widens an element to f32, the type of all arithmetic. */
static __device__ __forceinline__ float wf_load(float x)
{
    return x;
}
static __device__ __forceinline__ float wf_load(wf_bf16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float wf_load(wf_f16 x)
{
    return __half2float(x);
}

/* Rounds to nearest, ties to even. */
template <typename T> static __device__ __forceinline__ T wf_round(float x);
template <> __device__ __forceinline__ float wf_round<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ wf_bf16 wf_round<wf_bf16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ wf_f16 wf_round<wf_f16>(float x)
{
    return __float2half_rn(x);
}

/* N elements moved by one load or store, at most 16 bytes. Addresses are multiples of the size. */
template <typename T, int N> struct __align__(sizeof(T) * N) wf_pack
{
    T x[N];
};
/* Elements in 16 bytes, the widest load or store of a thread. */
#define WF_WIDE(T) (16 / (int)sizeof(T))

/* Compiles to one load or store instruction of sizeof(T) * N bytes. */
template <typename T, int N>
static __device__ __forceinline__ wf_pack<T, N> wf_load_pack(const T *from)
{
    return *reinterpret_cast<const wf_pack<T, N> *>(from);
}
template <typename T, int N>
static __device__ __forceinline__ void wf_store_pack(T *to, const wf_pack<T, N> &x)
{
    *reinterpret_cast<wf_pack<T, N> *>(to) = x;
}

/* Calls f(T()) with the C++ type of a float type: wf_with_float(v->type, [&](auto zero) {
 * using T = decltype(zero); ... }). Kernel rows exclude all other types. */
template <typename F> static inline void wf_with_float(wf_type type, F f)
{
    if (type == WF_F32)
        f(float());
    else if (type == WF_BF16)
        f(wf_bf16());
    else
        f(wf_f16());
}

/* ---- Views on the device ---- */

/* A view as a kernel argument, passed by value. */
typedef struct {
    void *data; /* device address */
    int rank;
    int64_t dim[WF_MAX_RANK], stride[WF_MAX_RANK]; /* in elements */
} wf_cuda_view;

static inline wf_cuda_view wf_cuda_view_of(const wf_view *v)
{
    wf_cuda_view out = {v->data, v->rank, {0}, {0}};
    for (int i = 0; i < v->rank; i++) {
        out.dim[i] = v->dim[i];
        out.stride[i] = v->stride[i];
    }
    return out;
}

/* Offset in elements of row r. Rows are counted over all axes but the last. */
static __device__ __forceinline__ int64_t wf_cuda_row(const wf_cuda_view &v, int64_t r)
{
    int64_t offset = 0;
    for (int i = v.rank - 2; i >= 0; i--) {
        offset += r % v.dim[i] * v.stride[i];
        r /= v.dim[i];
    }
    return offset;
}

/* ---- Invalid input ---- */

/* Reports an invalid element. Kinds are in cuda.h. The word is host memory, so call this at most
 * once per invalid element. */
static __device__ __forceinline__ void wf_fault(uint64_t *word, int kind, int64_t place,
                                                int32_t value)
{ /* places above the limit share one code: the message then names the limit */
    const int64_t last = WF_CUDA_FAULT_PLACES - 1;
    const uint64_t told = (uint64_t)kind << WF_CUDA_FAULT_KIND_AT |
                          (uint64_t)(place < last ? place : last) << WF_CUDA_FAULT_PLACE_AT |
                          (uint32_t)value;
    /* Keeps the smallest word: the lowest kind, then the lowest place. Which thread comes first
     * does not matter, so the message is reproducible. */
    if (word)
        atomicMin((unsigned long long *)word, (unsigned long long)told);
}

/* Checks that starts [count] of packed sequences do not decrease and do not exceed `rows`. Every
 * thread of the grid calls it, with its index among `threads`. */
static __device__ __forceinline__ void wf_check_starts(uint64_t *word, const int32_t *starts,
                                                       int64_t count, int64_t rows, int64_t thread,
                                                       int64_t threads)
{
    for (int64_t s = thread; s < count; s += threads) {
        const int32_t start = starts[s];
        if (start < (s > 0 ? starts[s - 1] : 0) || start > rows)
            wf_fault(word, WF_CUDA_FAULT_START, s, start);
    }
}

/* ---- Grids ---- */

/* Blocks for so many items, at least 1 and at most `most`. Kernels with fewer blocks than items
 * loop. */
static inline unsigned wf_cuda_blocks(int64_t items, int64_t per_block, int64_t most)
{
    int64_t blocks = (items + per_block - 1) / per_block;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* ---- Sums, in an order that depends on the shape only ---- */

/* A butterfly: all 32 lanes get the same bits, because both partners add the same two values and
 * addition commutes. */
static __device__ __forceinline__ float wf_warp_sum(float x)
{
    for (int k = 16; k > 0; k /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

static __device__ __forceinline__ float wf_warp_max(float x)
{
    for (int k = 16; k > 0; k /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

/* Sums over a block of a multiple of 32 and at most 1024 threads; every thread gets the sum. All
 * threads must call it. `scratch` is 32 floats of shared memory, reusable on return. */
static __device__ __forceinline__ float wf_block_sum(float x, float *scratch)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = wf_warp_sum(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();                                      /* all warps have written their sums */
    x = wf_warp_sum(lane < warps ? scratch[lane] : 0.0f); /* lanes past the last warp add 0 */
    __syncthreads(); /* all warps have read: scratch may be written again */
    return x;
}

/* Like wf_block_sum. fmaxf ignores NaN: callers handle NaN themselves. */
static __device__ __forceinline__ float wf_block_max(float x, float *scratch)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = wf_warp_max(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = wf_warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return x;
}

#endif

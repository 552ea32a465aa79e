/* SPDX-License-Identifier: MIT */
/*
 * hopper.cuh - Hopper's instructions (sm_90a) as small functions: barriers in shared memory
 * (mbarrier), the tensor memory accelerator (TMA), warpgroup matrix multiply-add (wgmma), and
 * register reallocation between warpgroups.
 *
 * A tile in shared memory has rows of 128 bytes (64 elements of 16 bits), in TMA's SWIZZLE_128B
 * order: the 16-byte pieces of row r are permuted by r % 8. Every group of 8 rows is therefore
 * 1024-byte aligned. Wider tiles are several such tiles in sequence, 64 columns each.
 *
 * The same files compile for other architectures, which lack these instructions: kernels guard
 * their bodies by #if WF_HOPPER_CODE. tests/emulator/emulated_hopper.cuh has the same functions for
 * tests without a GPU; add new ones there, too.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_CUH
#define WF_DEVICE_CUDA_HOPPER_CUH

#include <cuda.h>

#include "device/cuda/mma.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || WF_CUDA_EMULATED
#define WF_HOPPER_CODE 1
#else
#define WF_HOPPER_CODE 0
#endif

#define WF_HOPPER static __device__ __forceinline__

/* A tensor for TMA: up to four axes of 16-bit or f32 elements, innermost first; that one is
 * contiguous. */
typedef struct {
    wf_type type;
    void *data;        /* 16-byte aligned */
    int64_t dim[4];    /* 1 for missing axes */
    int64_t stride[4]; /* in elements; [0] is 1, the others are multiples of 16 bytes */
    int32_t box[4];    /* elements moved at once; box[0] is 128 bytes, and rows are swizzled */
} wf_tensor_box;

/* Builds the descriptor that kernels take as a const __grid_constant__ parameter. */
wf_status wf_cuda_tensor_map(const wf_launch *l, const wf_tensor_box *b, CUtensorMap *out);

#ifdef WF_HOPPER_WATCH /* for tests: set when a wait on a barrier timed out */
static __device__ volatile int wf_hopper_stuck;
#endif

/* Dynamic shared memory, 1024-byte aligned. */
#if WF_CUDA_EMULATED
#define WF_SHARED_TILES(type, name) WF_SHARED(type, name)
#else
#define WF_SHARED_TILES(type, name)                                    \
    extern __shared__ __align__(1024) unsigned char wf_shared_tiles[]; \
    type *name = reinterpret_cast<type *>(wf_shared_tiles)
#endif

/* The shared memory address of a barrier, which is 8 bytes. */
typedef uint32_t wf_barrier;

#if WF_CUDA_EMULATED
#include "emulated_hopper.cuh"
#elif WF_HOPPER_CODE

WF_HOPPER uint32_t wf_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- Barriers in shared memory ---- */

/* A phase ends after `arrivals` arrivals and all announced bytes. */
WF_HOPPER void wf_barrier_init(wf_barrier b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}

/* Makes initialized barriers visible to TMA; a __syncthreads must follow. */
WF_HOPPER void wf_barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

WF_HOPPER void wf_barrier_arrive(wf_barrier b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}

/* Arrives, and announces the bytes that TMA will deliver in this phase. */
WF_HOPPER void wf_barrier_expect(wf_barrier b, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes)
                 : "memory");
}

WF_HOPPER bool wf_barrier_passed(wf_barrier b, uint32_t parity)
{
    uint32_t passed;
    asm volatile("{\n .reg .pred p;\n"
                 " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(b), "r"(parity)
                 : "memory");
    return passed;
}

/* Waits until the phase of this parity has ended. The first phase has parity 0; waiting for parity
 * 1 returns at once on a new barrier. */
WF_HOPPER void wf_barrier_wait(wf_barrier b, uint32_t parity)
{
#ifdef WF_HOPPER_WATCH /* tests: give up after a second without progress */
    if (wf_barrier_passed(b, parity))
        return;
    uint32_t begin = (uint32_t)(clock64() >> 10);
    while (!wf_barrier_passed(b, parity)) {
        if ((uint32_t)(clock64() >> 10) - begin > 1u << 21)
            wf_hopper_stuck = 1;
        if (wf_hopper_stuck)
            break;
    }
#else
    while (!wf_barrier_passed(b, parity))
        ;
#endif
}

/* ---- Named barriers 1 to 15: `threads` threads arrive, and some of them wait ---- */

WF_HOPPER void wf_named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

WF_HOPPER void wf_named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- Flags in global memory. A thread that saw a flag's new value sees all earlier writes, also of bulk
 * copies that were complete (wf_tma_wait) ---- */

/* Waits until *from is x. */
WF_HOPPER void wf_flag_await(const int32_t *from, int32_t x)
{
#ifdef WF_HOPPER_WATCH
    long long begin = clock64();
#endif
    for (int32_t y = -1; y != x;) {
        asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(y) : "l"(from) : "memory");
#ifdef WF_HOPPER_WATCH
        if (clock64() - begin > 4000000000ll)
            __trap();
#endif
    }
    asm volatile("fence.proxy.async;" ::: "memory");
}

WF_HOPPER void wf_flag_release(int32_t *to, int32_t x)
{
    asm volatile("fence.proxy.async;\n fence.acq_rel.gpu;\n"
                 " st.relaxed.gpu.global.s32 [%0], %1;" ::"l"(to),
                 "r"(x)
                 : "memory");
}

/* ---- TMA: one thread moves a box ---- */

WF_HOPPER void wf_tma_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Loads the box at these coordinates to shared memory (1024-byte aligned) and counts its bytes on
 * `b`. Elements outside of the tensor arrive as zeros and count. */
WF_HOPPER void wf_tma_load(uint32_t to, const CUtensorMap *map, wf_barrier b, int x0, int x1,
                           int x2, int x3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(b), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}

/* Loads contiguous bytes. Addresses and size are multiples of 16. */
WF_HOPPER void wf_bulk_load(uint32_t to, const void *from, int bytes, wf_barrier b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(b)
                 : "memory");
}

/* Stores a box from shared memory; elements outside of the tensor are not written. The threads that
 * wrote the box must call wf_async_fence before it, then a barrier. */
WF_HOPPER void wf_tma_store(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}

/* Stores contiguous bytes, or adds f32 elements to the target. No other access to the target may
 * overlap the addition. Sizes and addresses as for wf_bulk_load. */
WF_HOPPER void wf_bulk_store(void *to, uint32_t from, int bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}

WF_HOPPER void wf_bulk_add(float *to, uint32_t from, int bytes)
{
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 "
                 "[%0], [%1], %2;" ::"l"(to),
                 "r"(from), "r"(bytes)
                 : "memory");
}

/* Closes a group of this thread's stores. */
WF_HOPPER void wf_tma_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most N of the thread's groups still read shared memory, or are unfinished. */
template <int N> WF_HOPPER void wf_tma_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

template <int N> WF_HOPPER void wf_tma_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/* Makes the thread's writes to shared memory visible to TMA and wgmma. */
WF_HOPPER void wf_async_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Registers and memory ---- */

/* All warps of a warpgroup release registers, or wait until they have N, a multiple of 8. */
template <int N> WF_HOPPER void wf_registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> WF_HOPPER void wf_registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* A warp stores four 8 x 8 matrices of 16-bit elements: rows 0-7 and 8-15 of the left 8 columns,
 * then of the right ones. Lane i passes the shared address of row i % 8 of matrix i / 8 (16
 * bytes). */
WF_HOPPER void wf_store_matrices(uint32_t to, const uint32_t *x)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

#endif

#if WF_HOPPER_CODE

/* ---- wgmma: d[64, N] += a[64, 16] b[16, N], by the 128 threads of a warpgroup ----
 *
 * Let r = 16 (t / 32) + t % 32 / 4 for thread t. It holds columns 8 c + 2 (t % 4) and the next of row r in
 * d[4 c] and d[4 c + 1], and the same columns of row r + 8 in d[4 c + 2] and d[4 c + 3]. An operand a in
 * registers has the same layout in pairs: columns 0..7 in a[0] and a[1], 8..15 in a[2] and a[3]. So
 * d[8 k ... 8 k + 7], rounded, is the a of the columns from 16 k on.
 *
 * Operands in shared memory are given by descriptors, in one of two layouts:
 *   transposed = 0: a[m, k] or b[n, k] with k contiguous, 64 per row. Advance k by 16: + 32 bytes.
 *   transposed = 1: m or n contiguous, 64 per row, one row per k; the next 64 are `lead` bytes further.
 *     Advance k by 16: + 2048 bytes.
 */
WF_HOPPER uint64_t wf_wgmma_operand(uint32_t address, uint32_t lead)
{
    return (uint64_t)(address >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#endif

#if WF_HOPPER_CODE && !WF_CUDA_EMULATED

/* Call before the first wgmma whose registers were written by other instructions. */
WF_HOPPER void wf_wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Closes a group of the wgmma so far. */
WF_HOPPER void wf_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most N groups are in flight. Call wf_wgmma_hold for each result that is complete
 * then. */
template <int N> WF_HOPPER void wf_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Stops the compiler from moving accesses to these registers across it. */
template <int N> WF_HOPPER void wf_wgmma_hold(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#define WF_O8(c, d, i)                                                                     \
    c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), \
        c(d[i + 7])
#define WF_O16(c, d, i) WF_O8(c, d, i), WF_O8(c, d, i + 8)
#define WF_O32(c, d, i) WF_O8(c, d, i), WF_O8(c, d, i + 8), WF_O8(c, d, i + 16), WF_O8(c, d, i + 24)
#define WF_O64(c, d, i) WF_O32(c, d, i), WF_O32(c, d, i + 32)
#define WF_R16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define WF_R32                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WF_R64                                                                                  \
    WF_R32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
           "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* add 0: d is overwritten. i0 and up: indices of the asm operands that follow d. */
#define WF_WGMMA_SS(n, type, regs, outs, i0, i1, i2, i3, i4)                                \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #i2 ", 0;\n"                        \
                 " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" regs \
                 "}, %" #i0 ", %" #i1 ", p, 1, 1, %" #i3 ", %" #i4 ";\n}"                   \
                 : outs                                                                     \
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB))
#define WF_WGMMA_RS(n, type, regs, outs, i0, i1, i2, i3, i4, i5, i6)                            \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #i5 ", 0;\n"                            \
                 " wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" regs     \
                 "}, {%" #i0 ", %" #i1 ", %" #i2 ", %" #i3 "}, %" #i4 ", p, 1, 1, %" #i6 ";\n}" \
                 : outs                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(TB))

/* d = a b. T: wf_bf16 or wf_f16. TA, TB: whether a and b are transposed. */
template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma_first(float (&d)[32], uint64_t a, uint64_t b)
{
    const int add = 0;
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(64, "bf16", WF_R32, WF_O32("=f", d, 0), 32, 33, 34, 35, 36);
    else
        WF_WGMMA_SS(64, "f16", WF_R32, WF_O32("=f", d, 0), 32, 33, 34, 35, 36);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma_first(float (&d)[64], uint64_t a, uint64_t b)
{
    const int add = 0;
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(128, "bf16", WF_R64, WF_O64("=f", d, 0), 64, 65, 66, 67, 68);
    else
        WF_WGMMA_SS(128, "f16", WF_R64, WF_O64("=f", d, 0), 64, 65, 66, 67, 68);
}

/* d += a b, or d = a b if `add` is 0; d counts as read either way. */
template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[16], uint64_t a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(32, "bf16", WF_R16, WF_O16("+f", d, 0), 16, 17, 18, 19, 20);
    else
        WF_WGMMA_SS(32, "f16", WF_R16, WF_O16("+f", d, 0), 16, 17, 18, 19, 20);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(64, "bf16", WF_R32, WF_O32("+f", d, 0), 32, 33, 34, 35, 36);
    else
        WF_WGMMA_SS(64, "f16", WF_R32, WF_O32("+f", d, 0), 32, 33, 34, 35, 36);
}

template <typename T, int TA, int TB>
WF_HOPPER void wf_wgmma(float (&d)[64], uint64_t a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_SS(128, "bf16", WF_R64, WF_O64("+f", d, 0), 64, 65, 66, 67, 68);
    else
        WF_WGMMA_SS(128, "f16", WF_R64, WF_O64("+f", d, 0), 64, 65, 66, 67, 68);
}

/* The same with a in registers. */
template <typename T, int TB>
WF_HOPPER void wf_wgmma(float (&d)[32], const uint32_t *a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_RS(64, "bf16", WF_R32, WF_O32("+f", d, 0), 32, 33, 34, 35, 36, 37, 38);
    else
        WF_WGMMA_RS(64, "f16", WF_R32, WF_O32("+f", d, 0), 32, 33, 34, 35, 36, 37, 38);
}

template <typename T, int TB>
WF_HOPPER void wf_wgmma(float (&d)[64], const uint32_t *a, uint64_t b, int add)
{
    if constexpr (__is_same(T, wf_bf16))
        WF_WGMMA_RS(128, "bf16", WF_R64, WF_O64("+f", d, 0), 64, 65, 66, 67, 68, 69, 70);
    else
        WF_WGMMA_RS(128, "f16", WF_R64, WF_O64("+f", d, 0), 64, 65, 66, 67, 68, 69, 70);
}

#endif

#if WF_HOPPER_CODE

/* A warp arrives at a barrier once, by its first lane, after a __syncwarp, which orders the other
 * lanes' accesses before it. The assembler drops the __syncwarp where the warp is converged, and
 * racecheck then reports false races. For such tools each lane can arrive for itself
 * (WEFT_CUDA_EVERY_LANE). */
#ifdef WF_HOPPER_EVERY_LANE
enum { WF_WARP_ARRIVALS = 32 };
#else
enum { WF_WARP_ARRIVALS = 1 };
#endif

/* All lanes of a warp call it, after a __syncwarp. */
WF_HOPPER void wf_warp_arrive(wf_barrier b, int lane)
{
    if (lane < WF_WARP_ARRIVALS)
        wf_barrier_arrive(b);
}

#endif

#endif

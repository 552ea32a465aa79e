/* SPDX-License-Identifier: MIT */
/*
 * hopper.cuh - the instructions that only Hopper has (sm_90a), each as a small function: barriers in shared
 * memory, the tensor memory accelerator (TMA), products of warpgroups (wgmma), and registers that move between
 * warpgroups.
 *
 * A tile in shared memory is here always rows of 128 bytes (64 elements of 16 bits), as TMA stores them when
 * its map says SWIZZLE_128B: the 16-byte pieces of row r are permuted by r % 8, so every group of 8 rows begins
 * at a multiple of 1024 bytes. Wider tiles are several such tiles one after the other, 64 columns each.
 *
 * Code for other architectures is compiled from the same files and must not meet these instructions: kernels put
 * their bodies behind #if WF_HOPPER_CODE. For tests without a GPU tests/emulator/emulated_hopper.cuh has the same
 * functions: what is added here is needed there.
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

/* Up to four axes of 16-bit elements or f32, the innermost first, for TMA; that one is contiguous. */
typedef struct {
    wf_type type;
    void *data;        /* a multiple of 16 bytes */
    int64_t dim[4];    /* axes that there are not: 1 */
    int64_t stride[4]; /* in elements, of which [0] is 1; multiples of 16 bytes */
    int32_t box[4];    /* that is moved at once; box[0] is 128 bytes, rows in swizzled order */
} wf_tensor_box;

/* The map that kernels take as a const __grid_constant__ parameter. */
wf_status wf_cuda_tensor_map(const wf_launch *l, const wf_tensor_box *b, CUtensorMap *out);

#ifdef WF_HOPPER_WATCH /* by tests: set when a barrier was waited for in vain */
static __device__ volatile int wf_hopper_stuck;
#endif

/* Dynamic shared memory that begins at a multiple of 1024 bytes. */
#if WF_CUDA_EMULATED
#define WF_SHARED_TILES(type, name) WF_SHARED(type, name)
#else
#define WF_SHARED_TILES(type, name)                                    \
    extern __shared__ __align__(1024) unsigned char wf_shared_tiles[]; \
    type *name = reinterpret_cast<type *>(wf_shared_tiles)
#endif

/* A barrier is 8 bytes of shared memory, known by their address. */
typedef uint32_t wf_barrier;

#if WF_CUDA_EMULATED
#include "emulated_hopper.cuh"
#elif WF_HOPPER_CODE

WF_HOPPER uint32_t wf_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- Barriers in shared memory ---- */

/* Phases of the barrier end when so many arrivals came (and the bytes that were announced). */
WF_HOPPER void wf_barrier_init(wf_barrier b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(arrivals) : "memory");
}

/* Makes initialised barriers known to TMA; a __syncthreads must follow. */
WF_HOPPER void wf_barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

WF_HOPPER void wf_barrier_arrive(wf_barrier b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}

/* Arrives, and says how many bytes TMA will bring within this phase. */
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

/* Until the phase of that parity has ended. The first phase has parity 0; waiting for parity 1 returns at
 * once on a new barrier. */
WF_HOPPER void wf_barrier_wait(wf_barrier b, uint32_t parity)
{
#ifdef WF_HOPPER_WATCH /* tests: after a second without progress nobody waits any more */
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

/* ---- Barriers by number, 1 to 15: `threads` of the block arrive, of which some wait ---- */

WF_HOPPER void wf_named_sync(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

WF_HOPPER void wf_named_arrive(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- Flags in global memory: who saw that one became x can read what was written before, by bulk copies too, if
 * they were complete (wf_tma_wait) ---- */

/* Until *from is x. */
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

/* The box that begins at these coordinates to shared memory (1024-byte aligned); `b` hears of its bytes. What lies
 * outside of the tensor arrives as zeros, and counts. */
WF_HOPPER void wf_tma_load(uint32_t to, const CUtensorMap *map, wf_barrier b, int x0, int x1,
                           int x2, int x3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(b), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}

/* Bytes that lie together; all three are multiples of 16. */
WF_HOPPER void wf_bulk_load(uint32_t to, const void *from, int bytes, wf_barrier b)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(b)
                 : "memory");
}

/* From shared memory; what lies outside of the tensor is not written. Before it, wf_async_fence by the
 * threads that wrote there and a barrier. */
WF_HOPPER void wf_tma_store(const CUtensorMap *map, uint32_t from, int x0, int x1, int x2, int x3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(x0), "r"(x1), "r"(x2), "r"(x3)
                 : "memory");
}

/* Bytes that lie together, as wf_bulk_load has them; or f32 that are added to what is there, with which nobody else has
 * to do meanwhile. */
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

/* The thread's stores so far are a group. */
WF_HOPPER void wf_tma_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until at most N groups of the thread still have to read shared memory, or to finish. */
template <int N> WF_HOPPER void wf_tma_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

template <int N> WF_HOPPER void wf_tma_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/* What the thread wrote to shared memory may be read by TMA and wgmma. */
WF_HOPPER void wf_async_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- Registers and memory ---- */

/* All warps of a warpgroup give registers back, or wait until they have so many: N a multiple of 8. */
template <int N> WF_HOPPER void wf_registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> WF_HOPPER void wf_registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* Four 8x8 matrices of 16-bit elements, by a warp: rows 0-7 and 8-15 of the left 8 columns, then of the right ones. Lane
 * i says where row i % 8 of matrix i / 8 goes, 16 bytes of shared memory. */
WF_HOPPER void wf_store_matrices(uint32_t to, const uint32_t *x)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}

#endif

#if WF_HOPPER_CODE

/* ---- Products: d[64, N] += a[64, 16] b[16, N], by the 128 threads of a warpgroup ----
 *
 * Thread t holds of row 16 (t / 32) + t % 32 / 4 the columns 8 c + 2 (t % 4) and the next in d[4 c] and d[4 c + 1],
 * and of the 8th row after it the same columns in d[4 c + 2] and d[4 c + 3]. An operand a in registers is held in
 * the same way, by pairs: its columns 0..7 in a[0] and a[1], 8..15 in a[2] and a[3]. So d[8 k ... 8 k + 7],
 * rounded, is the a of the columns from 16 k on.
 *
 * Operands in shared memory are given by descriptors, and lie there in one of two ways:
 *   rows of the summed index (transposed = 0): a[m, k] or b[n, k] with k contiguous, 64 of them a row. 16 further
 *     along k: + 32 bytes.
 *   columns of it (transposed = 1): m or n contiguous, 64 of them a row, `lead` bytes on to the next 64, and a row
 *     for each k. 16 further along k: + 2048 bytes.
 */
WF_HOPPER uint64_t wf_wgmma_operand(uint32_t address, uint32_t lead)
{
    return (uint64_t)(address >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#endif

#if WF_HOPPER_CODE && !WF_CUDA_EMULATED

/* Before the first of a run of products whose registers were written since. */
WF_HOPPER void wf_wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* The products so far are a group. */
WF_HOPPER void wf_wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until at most N groups are under way. wf_wgmma_hold must follow for each result that is complete then. */
template <int N> WF_HOPPER void wf_wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* The compiler moves nothing that concerns these registers across it. */
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

/* add 0: d is overwritten. i0...: the numbers of the operands that follow d. */
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

/* d = a b, whatever d was. T: wf_bf16 or wf_f16. TA, TB: whether a and b are transposed. */
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

/* The same added to d, or not if `add` is 0; but d counts as read then. */
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

/* How often a warp arrives at a barrier: once, by its first lane, after a __syncwarp, which makes what the others did known
 * with it. The assembler leaves that out of code in which warps are together anyway, and tools that look at machine code
 * then take the others' accesses for races; for them each lane can arrive for itself (WEFT_CUDA_EVERY_LANE). */
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

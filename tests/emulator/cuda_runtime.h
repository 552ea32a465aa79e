/* SPDX-License-Identifier: MIT */
/*
 * cuda_runtime.h - CUDA C for the host's C++ compiler. It shadows and includes the toolkit's header
 * of this name, and defines what nvcc has built in. Intrinsics with two leading underscores behave
 * like CUDA's, but are as accurate as the C library.
 */
#ifndef WF_TESTS_EMULATOR_CUDA_RUNTIME_H
#define WF_TESTS_EMULATOR_CUDA_RUNTIME_H

#include_next <cuda_runtime.h>

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

#undef WF_CUDA_EMULATED
#define WF_CUDA_EMULATED 1

/* ---- Keywords ---- */

#undef __shared__
#undef __launch_bounds__
#define __shared__ wf_emulated_shared_variable /* shared.awk rewrites it */
#define __launch_bounds__(...)
#define warpSize 32

/* Launches a kernel as CUDA does: WF_RUN(kernel, grid, block, shared bytes, stream)(arguments). */
#define WF_RUN(kernel, grid, block, shared, stream)                                            \
    wf_emulated_runner([=](const auto &...wf_argument) { (kernel)(wf_argument...); }, #kernel, \
                       dim3(grid), dim3(block), shared, stream)
#define WF_SHARED(type, name) type *name = reinterpret_cast<type *>(wf_emulated_shared())

/* A recursive tuple of the kernel's arguments. */
template <typename... A> struct wf_emulated_arguments {
    template <typename F, typename... B> void give(const F &f, const B &...before) const
    {
        f(before...);
    }
};
template <typename A, typename... Rest> struct wf_emulated_arguments<A, Rest...> {
    A first;
    wf_emulated_arguments<Rest...> rest;
    template <typename F, typename... B> void give(const F &f, const B &...before) const
    {
        rest.give(f, before..., first);
    }
};
template <typename... A> struct wf_emulated_maker {
    static wf_emulated_arguments<> make()
    {
        return {};
    }
};
template <typename A, typename... Rest> struct wf_emulated_maker<A, Rest...> {
    static wf_emulated_arguments<A, Rest...> make(A first, Rest... rest)
    {
        return {first, wf_emulated_maker<Rest...>::make(rest...)};
    }
};

template <typename F> struct wf_emulated_launcher {
    F kernel;
    wf_emulated_grid grid;
    cudaStream_t stream;
    template <typename... A> void operator()(A... arguments)
    {
        struct closure {
            F kernel;
            wf_emulated_arguments<A...> arguments;
        } all = {kernel, wf_emulated_maker<A...>::make(arguments...)};
        static_assert(sizeof all <= 4096, "arguments of a kernel are 4 KiB at most");
        static_assert(__is_trivially_copyable(closure), "arguments of kernels are copied as bytes");
        grid.call = [](const void *data) {
            const closure *c = static_cast<const closure *>(data);
            c->arguments.give(c->kernel);
        };
        grid.arguments = &all;
        grid.argument_bytes = sizeof all;
        wf_emulated_launch(&grid, stream);
    }
};
template <typename F>
static inline wf_emulated_launcher<F> wf_emulated_runner(F f, const char *name, dim3 grid,
                                                         dim3 block, size_t shared,
                                                         cudaStream_t stream)
{
    return {f, {name, grid, block, shared, nullptr, nullptr, 0}, stream};
}

/* Templates of the toolkit that only nvcc declares. */
template <typename R, typename... A>
static inline cudaError_t cudaFuncSetAttribute(R (*kernel)(A...), cudaFuncAttribute attribute,
                                               int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <typename R, typename... A>
static inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, R (*kernel)(A...))
{
    return cudaFuncGetAttributes(out, reinterpret_cast<const void *>(kernel));
}
template <typename R, typename... A>
static inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                                        R (*kernel)(A...),
                                                                        int threads, size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks, reinterpret_cast<const void *>(kernel), threads, shared);
}

/* ---- Bits ---- */

template <typename To, typename From> static inline To wf_emulated_bits(From from)
{
    static_assert(sizeof(From) <= sizeof(To) || sizeof(To) <= sizeof(From), "");
    To to = {};
    memcpy(&to, &from, sizeof from < sizeof to ? sizeof from : sizeof to);
    return to;
}
#define WF_BITS(name, To, From)         \
    static inline To name(From x)       \
    {                                   \
        return wf_emulated_bits<To>(x); \
    }
WF_BITS(__int_as_float, float, int)
WF_BITS(__float_as_int, int, float)
WF_BITS(__uint_as_float, float, unsigned)
WF_BITS(__float_as_uint, unsigned, float)
WF_BITS(__longlong_as_double, double, long long)
WF_BITS(__double_as_longlong, long long, double)
#undef WF_BITS

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
static inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1u) << (31 - i);
    return y;
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = s >> 4 * i & 0xf, byte = (unsigned)(both >> 8 * (pick & 7)) & 0xff;
        if (pick & 8)
            byte = byte & 0x80 ? 0xff : 0;
        out |= byte << 8 * i;
    }
    return out;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n)
{
    return n & 31 ? high << (n & 31) | low >> (32 - (n & 31)) : high;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n)
{
    return n & 31 ? low >> (n & 31) | high << (32 - (n & 31)) : low;
}
static inline int __mulhi(int a, int b)
{
    return (int)((int64_t)a * b >> 32);
}
static inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)((uint64_t)a * b >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int8_t)(a >> 8 * i) * (int8_t)(b >> 8 * i);
    return c;
}

/* ---- Arithmetic. Names that the C library declares become macros. ---- */

#define WF_LESS_AND_MORE(R, A, B)         \
    static inline R min(A a, B b)         \
    {                                     \
        return (R)a < (R)b ? (R)a : (R)b; \
    }                                     \
    static inline R max(A a, B b)         \
    {                                     \
        return (R)a > (R)b ? (R)a : (R)b; \
    }
WF_LESS_AND_MORE(int, int, int)
WF_LESS_AND_MORE(unsigned, unsigned, unsigned)
WF_LESS_AND_MORE(unsigned, int, unsigned)
WF_LESS_AND_MORE(unsigned, unsigned, int)
WF_LESS_AND_MORE(long, long, long)
WF_LESS_AND_MORE(unsigned long, unsigned long, unsigned long)
WF_LESS_AND_MORE(unsigned long, long, unsigned long)
WF_LESS_AND_MORE(unsigned long, unsigned long, long)
WF_LESS_AND_MORE(long long, long long, long long)
WF_LESS_AND_MORE(unsigned long long, unsigned long long, unsigned long long)
WF_LESS_AND_MORE(unsigned long long, long long, unsigned long long)
WF_LESS_AND_MORE(unsigned long long, unsigned long long, long long)
#undef WF_LESS_AND_MORE
static inline float min(float a, float b)
{
    return fminf(a, b);
}
static inline float max(float a, float b)
{
    return fmaxf(a, b);
}
static inline double min(double a, double b)
{
    return fmin(a, b);
}
static inline double max(double a, double b)
{
    return fmax(a, b);
}
static inline double min(float a, double b)
{
    return fmin(a, b);
}
static inline double max(float a, double b)
{
    return fmax(a, b);
}
static inline double min(double a, float b)
{
    return fmin(a, b);
}
static inline double max(double a, float b)
{
    return fmax(a, b);
}
static inline unsigned umin(unsigned a, unsigned b)
{
    return a < b ? a : b;
}
static inline unsigned umax(unsigned a, unsigned b)
{
    return a > b ? a : b;
}
static inline long long llmin(long long a, long long b)
{
    return a < b ? a : b;
}
static inline long long llmax(long long a, long long b)
{
    return a > b ? a : b;
}

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x)
{
    return 1.0 / sqrt(x);
}
static inline float exp10f_emulated(float x)
{
    return powf(10.0f, x);
}
static inline float __saturatef(float x)
{
    return x >= 0.0f ? x < 1.0f ? x : 1.0f : 0.0f;
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}
static inline float normcdff(float x)
{
    return 0.5f * erfcf(-x * 0.70710678118654752f);
}
#define __expf(x) expf(x)
#define __exp10f(x) exp10f_emulated(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __tanhf(x) tanhf(x)
#define __sincosf(x, s, c) (*(s) = sinf(x), (void)(*(c) = cosf(x)))
#define __frcp_rn(x) (1.0f / (float)(x))
#define __fsqrt_rn(x) sqrtf(x)
#define __frsqrt_rn(x) rsqrtf(x)
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __fma_rn(double a, double b, double c)
{
    return fma(a, b, c);
}

/* Converts to an integer: NaN becomes 0, and out-of-range values saturate. */
template <typename I> static inline I wf_emulated_to(double x, double low, double high)
{
    return x != x      ? 0
           : x <= low  ? (I)low
           : x >= high ? (I)(~(I)0 < 0 ? ~((I)1 << (sizeof(I) * 8 - 1)) : ~(I)0)
                       : (I)x;
}
static inline int __float2int_rn(float x)
{
    return wf_emulated_to<int>(rint((double)x), INT_MIN, INT_MAX);
}
static inline int __float2int_rz(float x)
{
    return wf_emulated_to<int>(trunc((double)x), INT_MIN, INT_MAX);
}
static inline int __float2int_rd(float x)
{
    return wf_emulated_to<int>(floor((double)x), INT_MIN, INT_MAX);
}
static inline int __float2int_ru(float x)
{
    return wf_emulated_to<int>(ceil((double)x), INT_MIN, INT_MAX);
}
static inline unsigned __float2uint_rn(float x)
{
    return wf_emulated_to<unsigned>(rint((double)x), 0, UINT_MAX);
}
static inline unsigned __float2uint_rz(float x)
{
    return wf_emulated_to<unsigned>(trunc((double)x), 0, UINT_MAX);
}
static inline long long __float2ll_rn(float x)
{
    return wf_emulated_to<long long>(rint((double)x), -0x1p63, 0x1p63);
}
static inline long long __float2ll_rz(float x)
{
    return wf_emulated_to<long long>(trunc((double)x), -0x1p63, 0x1p63);
}
static inline int __double2int_rn(double x)
{
    return wf_emulated_to<int>(rint(x), INT_MIN, INT_MAX);
}
static inline int __double2int_rz(double x)
{
    return wf_emulated_to<int>(trunc(x), INT_MIN, INT_MAX);
}
static inline float __int2float_rn(int x)
{
    return (float)x;
}
static inline float __uint2float_rn(unsigned x)
{
    return (float)x;
}
static inline float __ll2float_rn(long long x)
{
    return (float)x;
}
static inline float __ull2float_rn(unsigned long long x)
{
    return (float)x;
}
static inline float __double2float_rn(double x)
{
    return (float)x;
}

/* ---- Memory ---- */

template <typename T> static inline T __ldg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldca(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldlu(const T *p)
{
    return *p;
}
template <typename T> static inline T __ldcv(const T *p)
{
    return *p;
}
template <typename T> static inline void __stcs(T *p, T x)
{
    *p = x;
}
template <typename T> static inline void __stcg(T *p, T x)
{
    *p = x;
}
template <typename T> static inline void __stwb(T *p, T x)
{
    *p = x;
}
template <typename T> static inline void __stwt(T *p, T x)
{
    *p = x;
}
static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __threadfence_system(void) {}
static inline void __nanosleep(unsigned)
{
    wf_emulated_yield();
}
static inline long long clock64(void)
{
    return 0;
}

/* Atomics: one thread runs at a time, so plain accesses suffice. The type of the second argument
 * follows from the address, as with CUDA's overloads. */
template <typename T> struct wf_emulated_same {
    typedef T type;
};
#define WF_UNSEEN __attribute__((no_sanitize_thread)) /* hidden from race.c */
#define WF_ATOMIC(name, expression)                                            \
    template <typename T>                                                      \
    WF_UNSEEN static inline T name(T *p, typename wf_emulated_same<T>::type x) \
    {                                                                          \
        T old = *p;                                                            \
        *p = (T)(expression);                                                  \
        return old;                                                            \
    }
WF_ATOMIC(atomicAdd, old + x)
WF_ATOMIC(atomicSub, old - x)
WF_ATOMIC(atomicMax, old > x ? old : x)
WF_ATOMIC(atomicMin, old < x ? old : x)
WF_ATOMIC(atomicExch, x)
WF_ATOMIC(atomicAnd, old &x)
WF_ATOMIC(atomicOr, old | x)
WF_ATOMIC(atomicXor, old ^ x)
WF_ATOMIC(atomicInc, old >= x ? 0 : old + 1)
WF_ATOMIC(atomicDec, old == 0 || old > x ? x : old - 1)
#undef WF_ATOMIC
template <typename T>
WF_UNSEEN static inline T atomicCAS(T *p, typename wf_emulated_same<T>::type compare,
                                    typename wf_emulated_same<T>::type x)
{
    T old = *p;
    if (old == compare)
        *p = x;
    return old;
}

/* ---- Thread cooperation ---- */

static inline void __syncthreads(void)
{
    wf_emulated_syncthreads(WF_BARRIER, 0);
}
static inline int __syncthreads_count(int x)
{
    return wf_emulated_syncthreads(WF_BARRIER_COUNT, x != 0);
}
static inline int __syncthreads_and(int x)
{
    return wf_emulated_syncthreads(WF_BARRIER_AND, x);
}
static inline int __syncthreads_or(int x)
{
    return wf_emulated_syncthreads(WF_BARRIER_OR, x);
}
static inline unsigned __activemask(void)
{
    return wf_emulated_activemask();
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    wf_emulated_warp(WF_WARP_SYNC, mask, 0, 0);
}

template <typename T> static inline T wf_emulated_shuffle(unsigned mask, T x, int source)
{
    static_assert(sizeof(T) <= 8, "");
    return wf_emulated_bits<T>(
        wf_emulated_warp(WF_WARP_SHUFFLE, mask, wf_emulated_bits<uint64_t>(x), source));
}
/* Segments of `width` lanes, a power of two. A lane that addresses beyond its segment gets its own
 * value. */
template <typename T> static inline T __shfl_sync(unsigned mask, T x, int source, int width = 32)
{
    int lane = wf_emulated_lane();
    return wf_emulated_shuffle(mask, x, (lane & ~(width - 1)) | (source & (width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T x, int with, int width = 32)
{
    int lane = wf_emulated_lane(), source = lane ^ with;
    return wf_emulated_shuffle(mask, x, source > (lane | (width - 1)) ? lane : source);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    int lane = wf_emulated_lane(), source = lane - (int)by;
    return wf_emulated_shuffle(mask, x, source < (lane & ~(width - 1)) ? lane : source);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T x, unsigned by, int width = 32)
{
    int lane = wf_emulated_lane(), source = lane + (int)by;
    return wf_emulated_shuffle(mask, x, source > (lane | (width - 1)) ? lane : source);
}
static inline unsigned __ballot_sync(unsigned mask, int x)
{
    return (unsigned)wf_emulated_warp(WF_WARP_BALLOT, mask, x != 0, 0);
}
static inline int __any_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) != 0;
}
static inline int __all_sync(unsigned mask, int x)
{
    return __ballot_sync(mask, x) == mask;
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T x)
{
    return (unsigned)wf_emulated_warp(WF_WARP_MATCH, mask, wf_emulated_bits<uint64_t>(x), 0);
}
#define WF_REDUCE(name, T, kind)                                \
    static inline T name(unsigned mask, T x)                    \
    {                                                           \
        return (T)wf_emulated_warp(kind, mask, (uint64_t)x, 0); \
    }
WF_REDUCE(__reduce_add_sync, unsigned, WF_WARP_ADD)
WF_REDUCE(__reduce_add_sync, int, WF_WARP_ADD)
WF_REDUCE(__reduce_min_sync, unsigned, WF_WARP_UMIN)
WF_REDUCE(__reduce_min_sync, int, WF_WARP_MIN)
WF_REDUCE(__reduce_max_sync, unsigned, WF_WARP_UMAX)
WF_REDUCE(__reduce_max_sync, int, WF_WARP_MAX)
WF_REDUCE(__reduce_and_sync, unsigned, WF_WARP_AND)
WF_REDUCE(__reduce_or_sync, unsigned, WF_WARP_OR)
WF_REDUCE(__reduce_xor_sync, unsigned, WF_WARP_XOR)
#undef WF_REDUCE

#endif

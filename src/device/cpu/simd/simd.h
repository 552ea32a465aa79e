/* SPDX-License-Identifier: MIT */
/*
 * simd.h - portable vectors for the kernels of this folder.
 *
 * Every .c file here is compiled once per instruction set, with that set's flags and WF_ISA as its
 * name (cmake/simd.cmake). Vectors have WF_VL lanes:
 *
 *     vf  lanes of f32      vi  lanes of i32      vm  a bit for each lane
 *     vd  lanes of f64, half as many: low and high widen the halves of a vf
 *     vp_...                on a vi, each lane two i16
 *
 * Each instruction set implements them in its vec_*.h. fma(a, b, c) is a * b + c rounded once, and
 * fnma is c - a * b. max and min return their second operand if either is NaN. _n functions use the
 * first n lanes only, 0 <= n <= WF_VL, and touch no other memory. Loads and stores need no
 * alignment; stream does. vf_to_vi is unspecified for values outside of i32. tests/vectors checks
 * each set against this. The compiler contracts nothing by itself (-ffp-contract=off), so results
 * depend on the source only.
 */
#ifndef WF_DEVICE_CPU_SIMD_SIMD_H
#define WF_DEVICE_CPU_SIMD_SIMD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/kernel.h"

/* A name with the instruction set's suffix. */
#define WF_SIMD_PASTE(name, isa) name##_##isa
#define WF_SIMD_NAME(name, isa) WF_SIMD_PASTE(name, isa)
#define WF_SIMD(name) WF_SIMD_NAME(name, WF_ISA)

/* For functions that must be specialized for constant arguments. */
#define WF_INLINE static inline __attribute__((always_inline))

/* clang-format off */
#if defined WF_ISA_AVX512
#include "device/cpu/simd/vec_avx512.h"
#elif defined WF_ISA_AVX2
#include "device/cpu/simd/vec_avx2.h"
#elif defined WF_ISA_NEON
#include "device/cpu/simd/vec_neon.h"
#else
#error "cmake/simd.cmake must define the instruction set"
#endif
/* clang-format on */

/* Loads and stores of any float type, as f32 lanes. */
static inline vf vf_load_as(wf_type type, const void *p)
{
    return type == WF_F32 ? vf_load(p) : type == WF_F16 ? vf_load_f16(p) : vf_load_bf16(p);
}

static inline void vf_store_as(wf_type type, void *p, vf x)
{
    if (type == WF_F32)
        vf_store(p, x);
    else if (type == WF_F16)
        vf_store_f16(p, x);
    else
        vf_store_bf16(p, x);
}

static inline vf vf_load_as_n(wf_type type, const void *p, int n)
{
    uint16_t all[WF_VL] = {0};
    if (type == WF_F32)
        return vf_load_n(p, n);
    memcpy(all, p, (size_t)n * sizeof *all);
    return type == WF_F16 ? vf_load_f16(all) : vf_load_bf16(all);
}

static inline void vf_store_as_n(wf_type type, void *p, vf x, int n)
{
    uint16_t all[WF_VL];
    if (type == WF_F32) {
        vf_store_n(p, x, n);
        return;
    }
    vf_store_as(type, all, x);
    memcpy(p, all, (size_t)n * sizeof *all);
}

/* The functions of math.h, terminated by a NULL name. */
extern const wf_cpu_function WF_SIMD(wf_cpu_functions)[];

/* The table's arrays, each in the file of its name. */
extern const wf_kernel WF_SIMD(wf_cpu_gemm)[], WF_SIMD(wf_cpu_quant)[], WF_SIMD(wf_cpu_head_loss)[],
    WF_SIMD(wf_cpu_attention)[], WF_SIMD(wf_cpu_elementwise)[], WF_SIMD(wf_cpu_norm)[],
    WF_SIMD(wf_cpu_rope)[], WF_SIMD(wf_cpu_loss)[], WF_SIMD(wf_cpu_reduce)[],
    WF_SIMD(wf_cpu_rows)[], WF_SIMD(wf_cpu_cache)[], WF_SIMD(wf_cpu_shape)[],
    WF_SIMD(wf_cpu_update)[];
#define WF_SIMD_KERNELS                                                                           \
    WF_SIMD(wf_cpu_quant), WF_SIMD(wf_cpu_gemm), WF_SIMD(wf_cpu_head_loss),                       \
        WF_SIMD(wf_cpu_attention), WF_SIMD(wf_cpu_elementwise), WF_SIMD(wf_cpu_norm),             \
        WF_SIMD(wf_cpu_rope), WF_SIMD(wf_cpu_loss), WF_SIMD(wf_cpu_reduce), WF_SIMD(wf_cpu_rows), \
        WF_SIMD(wf_cpu_cache), WF_SIMD(wf_cpu_shape), WF_SIMD(wf_cpu_update)
extern const wf_cpu_loops WF_SIMD(wf_cpu_loops);

/* Packed weights (wf_cpu_isa). */
#define wf_simd_packed_bytes WF_SIMD(wf_simd_packed_bytes)
#define wf_simd_pack WF_SIMD(wf_simd_pack)
#define wf_simd_unpack WF_SIMD(wf_simd_unpack)
size_t wf_simd_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape);
wf_status wf_simd_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                       const wf_dims *shape);
wf_status wf_simd_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                         const wf_dims *shape);

#endif

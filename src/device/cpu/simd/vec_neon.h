/* SPDX-License-Identifier: MIT */
/* vec_neon.h - the vectors of simd.h with NEON, which every arm64 has, and its extensions: 4 lanes,
 * 32 registers. */
#ifndef WF_DEVICE_CPU_SIMD_VEC_NEON_H
#define WF_DEVICE_CPU_SIMD_VEC_NEON_H

#include <arm_neon.h>

/* clang-format off */

#define WF_VL 4
#define WF_VREGS 32

typedef float32x4_t vf;
typedef int32x4_t vi;
typedef float64x2_t vd;
typedef uint32x4_t vm; /* a lane is all ones or all zeros */

/* Reinterprets a vi. Shifts use operators, since the intrinsics need a literal. */
static inline uint32x4_t vi_as_u32(vi a) { return vreinterpretq_u32_s32(a); }
static inline int16x8_t vi_as_i16(vi a) { return vreinterpretq_s16_s32(a); }
static inline uint16x8_t vi_as_u16(vi a) { return vreinterpretq_u16_s32(a); }
static inline int8x16_t vi_as_i8(vi a) { return vreinterpretq_s8_s32(a); }
static inline vi u32_as_vi(uint32x4_t a) { return vreinterpretq_s32_u32(a); }
static inline vi i16_as_vi(int16x8_t a) { return vreinterpretq_s32_s16(a); }
static inline vi u16_as_vi(uint16x8_t a) { return vreinterpretq_s32_u16(a); }

/* Prefetches the cache line of p. */
static inline void v_prefetch(const void *p) { __builtin_prefetch(p); }
/* The same to the second cache. */
static inline void v_prefetch_far(const void *p) { __builtin_prefetch(p, 0, 2); }

/* ---- f32 ---- */

static inline vf vf_zero(void) { return vdupq_n_f32(0); }
static inline vf vf_set(float x) { return vdupq_n_f32(x); }
static inline vf vf_load(const float *p) { return vld1q_f32(p); }
static inline void vf_store(float *p, vf x) { vst1q_f32(p, x); }
static inline void vf_stream(float *p, vf x) { vst1q_f32(p, x); }
static inline vf vf_add(vf a, vf b) { return vaddq_f32(a, b); }
static inline vf vf_sub(vf a, vf b) { return vsubq_f32(a, b); }
static inline vf vf_mul(vf a, vf b) { return vmulq_f32(a, b); }
static inline vf vf_div(vf a, vf b) { return vdivq_f32(a, b); }
static inline vf vf_sqrt(vf a) { return vsqrtq_f32(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return vfmaq_f32(c, a, b); }
static inline vf vf_fnma(vf a, vf b, vf c) { return vfmsq_f32(c, a, b); }
static inline vf vf_max(vf a, vf b) { return vbslq_f32(vcgtq_f32(a, b), a, b); } /* vmaxq would return NaN */
static inline vf vf_min(vf a, vf b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline vf vf_abs(vf a) { return vabsq_f32(a); }
static inline vf vf_neg(vf a) { return vnegq_f32(a); }
static inline vf vf_round(vf a) { return vrndnq_f32(a); }

/* Lanes 1 0 3 2. */
static inline vf vf_swap(vf a) { return vrev64q_f32(a); }

static inline vf vf_load_n(const float *p, int n)
{
    if (n >= 4)
        return vld1q_f32(p);
    vf x = vdupq_n_f32(0);
    if (n > 0)
        x = vld1q_lane_f32(p, x, 0);
    if (n > 1)
        x = vld1q_lane_f32(p + 1, x, 1);
    return n > 2 ? vld1q_lane_f32(p + 2, x, 2) : x;
}

static inline void vf_store_n(float *p, vf x, int n)
{
    if (n > 0)
        vst1q_lane_f32(p, x, 0);
    if (n > 1)
        vst1q_lane_f32(p + 1, x, 1);
    if (n > 2)
        vst1q_lane_f32(p + 2, x, 2);
    if (n > 3)
        vst1q_lane_f32(p + 3, x, 3);
}

static inline vm vf_lt(vf a, vf b) { return vcltq_f32(a, b); }
static inline vm vf_le(vf a, vf b) { return vcleq_f32(a, b); }
static inline vm vf_eq(vf a, vf b) { return vceqq_f32(a, b); }
static inline vm vf_nan(vf a) { return vmvnq_u32(vceqq_f32(a, a)); }
static inline vf vf_select(vm m, vf a, vf b) { return vbslq_f32(m, a, b); }
static inline bool vm_any(vm m) { return vmaxvq_u32(m) != 0; }
static inline vm vm_first(int n) { return vcgtq_s32(vdupq_n_s32(n), (vi){0, 1, 2, 3}); }

static inline float vf_sum(vf a)
{
    float32x2_t s = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}

static inline float vf_most(vf a)
{
    vf s = vf_max(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(vf_max(s, vdupq_laneq_f32(s, 1)), 0);
}

/* Lane i is the sum of r[i]. */
static inline vf vf_sums(vf r[4])
{
    return vpaddq_f32(vpaddq_f32(r[0], r[1]), vpaddq_f32(r[2], r[3]));
}

/* ---- f64 ---- */

static inline vd vd_zero(void) { return vdupq_n_f64(0); }
static inline vd vd_set(double x) { return vdupq_n_f64(x); }
static inline vd vd_low(vf a) { return vcvt_f64_f32(vget_low_f32(a)); }
static inline vd vd_high(vf a) { return vcvt_high_f64_f32(a); }
static inline vf vd_to_vf(vd low, vd high) { return vcvt_high_f32_f64(vcvt_f32_f64(low), high); }
static inline vd vd_load(const double *p) { return vld1q_f64(p); }
static inline void vd_store(double *p, vd x) { vst1q_f64(p, x); }
static inline vd vd_add(vd a, vd b) { return vaddq_f64(a, b); }
static inline vd vd_sub(vd a, vd b) { return vsubq_f64(a, b); }
static inline vd vd_mul(vd a, vd b) { return vmulq_f64(a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return vfmaq_f64(c, a, b); }
static inline vd vd_fnma(vd a, vd b, vd c) { return vfmsq_f64(c, a, b); }
static inline vd vd_round(vd a) { return vrndnq_f64(a); }
static inline double vd_sum(vd a) { return vgetq_lane_f64(a, 0) + vgetq_lane_f64(a, 1); }

/* ---- i32 ---- */

static inline vi vi_zero(void) { return vdupq_n_s32(0); }
static inline vi vi_set(int32_t x) { return vdupq_n_s32(x); }
static inline vi vi_load(const void *p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
/* Four lanes from p + at[0] */
static inline vi vi_load_fours(const uint8_t *p, const int64_t *at) { return vi_load(p + at[0]); }
static inline void vi_store(void *p, vi x) { vst1q_u8(p, vreinterpretq_u8_s32(x)); }
/* Stores the lowest byte of each lane. */
static inline void vi_store_bytes(void *p, vi x)
{
    int16x4_t half = vmovn_s32(x);
    uint32_t four = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(half, half))), 0);
    memcpy(p, &four, sizeof four);
}
/* Forces x to be computed here: compilers that move it run out of registers. */
static inline vi vi_keep(vi x) { __asm__("" : "+w"(x)); return x; }
static inline vi vi_add(vi a, vi b) { return vaddq_s32(a, b); }
static inline vi vi_sub(vi a, vi b) { return vsubq_s32(a, b); }
static inline vi vi_mul(vi a, vi b) { return vmulq_s32(a, b); }
static inline vi vi_and(vi a, vi b) { return vandq_s32(a, b); }
static inline vi vi_or(vi a, vi b) { return vorrq_s32(a, b); }
static inline vi vi_xor(vi a, vi b) { return veorq_s32(a, b); }
static inline vi vi_shl(vi a, int n) { return u32_as_vi(vi_as_u32(a) << n); }
static inline vi vi_shr(vi a, int n) { return u32_as_vi(vi_as_u32(a) >> n); }
static inline vi vi_sra(vi a, int n) { return a >> n; }
static inline vi vi_max(vi a, vi b) { return vmaxq_s32(a, b); }
static inline vi vi_min(vi a, vi b) { return vminq_s32(a, b); }
static inline vm vi_lt(vi a, vi b) { return vcltq_s32(a, b); }
static inline vi vf_to_vi(vf a) { return vcvtnq_s32_f32(a); }
static inline vf vi_to_vf(vi a) { return vcvtq_f32_s32(a); }
static inline vi vf_as_vi(vf a) { return vreinterpretq_s32_f32(a); }
static inline vf vi_as_vf(vi a) { return vreinterpretq_f32_s32(a); }

static inline vi vi_from_u8(const uint8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    uint16x8_t wide = vmovl_u8(vcreate_u8(four));
    return u32_as_vi(vmovl_u16(vget_low_u16(wide)));
}

static inline vi vi_from_i8(const int8_t *p)
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    int16x8_t wide = vmovl_s8(vcreate_s8(four));
    return vmovl_s16(vget_low_s16(wide));
}

/* Bytes of the table at the indices in the bytes of `at`, 0 to 15. */
static inline vi vi_lookup(const uint8_t table[16], vi at)
{
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(at)));
}

/* ---- Pairs of i16 in a lane ---- */

static inline vi vp_sub(vi a, vi b) { return i16_as_vi(vsubq_s16(vi_as_i16(a), vi_as_i16(b))); }
static inline vi vp_mul(vi a, vi b) { return i16_as_vi(vmulq_s16(vi_as_i16(a), vi_as_i16(b))); }
static inline vi vp_shl(vi a, int n) { return u16_as_vi(vi_as_u16(a) << n); }
static inline vi vp_shr(vi a, int n) { return u16_as_vi(vi_as_u16(a) >> n); }
static inline vi vp_sra(vi a, int n) { return i16_as_vi(vi_as_i16(a) >> n); }

/* Of each four lanes of a, then of b: (0, 2) and (1, 3), as pairs. */
static inline vi vp_join(vi a, vi b)
{
    const int32x4_t low = vdupq_n_s32(0xffff);
    int32x2_t c = vorr_s32(vand_s32(vget_low_s32(a), vget_low_s32(low)), vshl_n_s32(vget_high_s32(a), 16));
    int32x2_t d = vorr_s32(vand_s32(vget_low_s32(b), vget_low_s32(low)), vshl_n_s32(vget_high_s32(b), 16));
    return vcombine_s32(c, d);
}
static inline vi vp_dot(vi sum, vi a, vi b)
{
    int16x8_t x = vi_as_i16(a), y = vi_as_i16(b);
    vi low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vaddq_s32(sum, vpaddq_s32(low, high));
}

/* ---- Groups of four bytes in a lane ---- */

/* Dot products of bytes (0 to 127) with i8. With wide (i32) sums any byte is allowed: i8 with
 * WF_VQ_SIGNED, else u8. Without, i16 lanes hold partial sums until vq_sum. */
#define WF_VQ_SIGNED 1
#ifdef __ARM_FEATURE_DOTPROD
#define WF_VQ_WIDE 1
typedef vi vq;
static inline vq vq_zero(void) { return vi_zero(); }
/* Uses the same four bytes of a for every lane, by element: a broadcast would cost a vector
 * instruction. */
static inline vq vq_dot(vq sum, vi bytes, const int32_t *a)
{
    return vdotq_lane_s32(sum, vi_as_i8(bytes), vreinterpret_s8_s32((int32x2_t){*a, 0}), 0);
}
static inline vi vq_sum(vq sum, int shift) { return vi_shl(sum, shift); }
#else
#define WF_VQ_WIDE 0
typedef struct {
    int16x8_t low, high; /* the products of lanes 0 and 1, and of lanes 2 and 3 */
} vq;
static inline vq vq_zero(void) { return (vq){vdupq_n_s16(0), vdupq_n_s16(0)}; }
/* Uses the same four bytes of a for every lane. */
static inline vq vq_dot(vq sum, vi bytes, const int32_t *a)
{
    int8x16_t x = vi_as_i8(bytes), y = vi_as_i8(vi_set(*a));
    return (vq){vmlal_s8(sum.low, vget_low_s8(x), vget_low_s8(y)), vmlal_high_s8(sum.high, x, y)};
}
static inline vi vq_sum(vq sum, int shift)
{
    return vi_shl(vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high)), shift);
}
#endif

/* ---- f16 and bf16 ---- */

static inline vf vf_load_f16(const uint16_t *p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
static inline void vf_store_f16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x))); }

static inline vf vf_load_bf16(const uint16_t *p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }

/* Rounds to nearest, ties to even; NaN stays NaN. */
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
static inline void vf_store_bf16(uint16_t *p, vf x) { vst1_u16(p, vreinterpret_u16_bf16(vcvt_bf16_f32(x))); }
#else
static inline void vf_store_bf16(uint16_t *p, vf x)
{
    vi bits = vf_as_vi(x), odd = vi_and(vi_shr(bits, 16), vi_set(1));
    vi near = vi_add(bits, vi_add(odd, vi_set(0x7fff)));
    near = vbslq_s32(vf_nan(x), vi_or(bits, vi_set(0x400000)), near);
    vst1_u16(p, vshrn_n_u32(vi_as_u32(near), 16));
}
#endif

/* ---- Transposition ---- */

/* Transposes: row i, lane j becomes row j, lane i. */
static inline void vf_transpose(vf r[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1])), b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3])), d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* The same: a vector has four lanes. */
static inline void vf_transpose_fours(vf r[4]) { vf_transpose(r); }

/* Transposes VL rows of 2 VL 16-bit elements, stride bytes apart: element k of every row goes to
 * to[v_half_slot(k)]. */
static inline int v_half_slot(int k) { return k; }
static inline void v_transpose_halves(const char *from, ptrdiff_t stride, uint16_t to[8][4])
{
    uint16x8_t r[4];
    for (int i = 0; i < 4; i++)
        r[i] = vld1q_u16((const void *)(from + i * stride));
    uint16x8_t a = vzip1q_u16(r[0], r[2]), b = vzip2q_u16(r[0], r[2]);
    uint16x8_t c = vzip1q_u16(r[1], r[3]), d = vzip2q_u16(r[1], r[3]);
    vst1q_u16(to[0], vzip1q_u16(a, c));
    vst1q_u16(to[2], vzip2q_u16(a, c));
    vst1q_u16(to[4], vzip1q_u16(b, d));
    vst1q_u16(to[6], vzip2q_u16(b, d));
}

/* clang-format on */

#endif

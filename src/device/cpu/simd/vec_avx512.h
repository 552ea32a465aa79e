/* SPDX-License-Identifier: MIT */
/* vec_avx512.h - the vectors of simd.h with AVX-512 (F, BW, DQ, VL, VNNI): 16 lanes, 32
 * registers. */
#ifndef WF_DEVICE_CPU_SIMD_VEC_AVX512_H
#define WF_DEVICE_CPU_SIMD_VEC_AVX512_H

#include <immintrin.h>

/* clang-format off */

#define WF_VL 16
#define WF_VREGS 32

typedef __m512 vf;
typedef __m512i vi;
typedef __m512d vd;
typedef __mmask16 vm;

/* Vector extensions for shifts: the intrinsics need a literal, which a parameter is not. */
typedef int32_t vec_i32 __attribute__((vector_size(64)));
typedef uint32_t vec_u32 __attribute__((vector_size(64)));
typedef int16_t vec_i16 __attribute__((vector_size(64)));
typedef uint16_t vec_u16 __attribute__((vector_size(64)));

/* Mask of the lanes before n. */
static inline vm vm_first(int n) { return (vm)((1u << n) - 1); }

/* Prefetches the cache line of p. Not the intrinsic: gcc 12 treats a function of nothing else as
 * pure and drops its calls. */
static inline void v_prefetch(const void *p) { __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p)); }
/* The same to the second cache. */
static inline void v_prefetch_far(const void *p) { __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)p)); }

/* ---- f32 ---- */

static inline vf vf_zero(void) { return _mm512_setzero_ps(); }
static inline vf vf_set(float x) { return _mm512_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
static inline vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
static inline void vf_store_n(float *p, vf x, int n) { _mm512_mask_storeu_ps(p, vm_first(n), x); }
static inline void vf_stream(float *p, vf x) { _mm512_stream_ps(p, x); }
static inline vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm512_abs_ps(a); }
static inline vf vf_neg(vf a) { return _mm512_xor_ps(_mm512_set1_ps(-0.0f), a); }
static inline vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline vm vf_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
static inline vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vm vf_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
static inline bool vm_any(vm m) { return m != 0; }

static inline float vf_sum(vf a)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_most(vf a)
{
    __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Lanes 1 0 3 2 5 4 ... */
static inline vf vf_swap(vf a) { return _mm512_permute_ps(a, 0xb1); }

/* ---- f64: the lower and upper half of a vf's lanes ---- */

static inline vd vd_zero(void) { return _mm512_setzero_pd(); }
static inline vd vd_set(double x) { return _mm512_set1_pd(x); }
static inline vd vd_low(vf a) { return _mm512_cvtps_pd(_mm512_castps512_ps256(a)); }
static inline vd vd_high(vf a) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)); }
static inline vf vd_to_vf(vd low, vd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
}
static inline vd vd_load(const double *p) { return _mm512_loadu_pd(p); }
static inline void vd_store(double *p, vd x) { _mm512_storeu_pd(p, x); }
static inline vd vd_add(vd a, vd b) { return _mm512_add_pd(a, b); }
static inline vd vd_sub(vd a, vd b) { return _mm512_sub_pd(a, b); }
static inline vd vd_mul(vd a, vd b) { return _mm512_mul_pd(a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm512_fmadd_pd(a, b, c); }
static inline vd vd_fnma(vd a, vd b, vd c) { return _mm512_fnmadd_pd(a, b, c); }
static inline vd vd_round(vd a) { return _mm512_roundscale_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline double vd_sum(vd a)
{
    __m256d h = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(h), _mm256_extractf128_pd(h, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Lane i is the sum of r[i]. */
static inline vf vf_sums(vf r[16])
{
    for (int i = 0; i < 8; i++)
        r[i] = _mm512_add_ps(_mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]), _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        r[i] = _mm512_add_ps(_mm512_shuffle_ps(r[2 * i], r[2 * i + 1], 0x44), _mm512_shuffle_ps(r[2 * i], r[2 * i + 1], 0xee));
    for (int n = 2; n >= 1; n--)
        for (int i = 0; i < n; i++)
            r[i] = _mm512_add_ps(_mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0x88), _mm512_shuffle_f32x4(r[2 * i], r[2 * i + 1], 0xdd));
    return r[0];
}

/* ---- i32 ---- */

static inline vi vi_zero(void) { return _mm512_setzero_si512(); }
static inline vi vi_set(int32_t x) { return _mm512_set1_epi32(x); }
static inline vi vi_load(const void *p) { return _mm512_loadu_si512(p); }
/* Four lanes from each of p + at[0], p + at[1], ... */
static inline vi vi_load_fours(const uint8_t *p, const int64_t *at)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(p + at[0])));
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + at[1])), 1);
    x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + at[2])), 2);
    return _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(p + at[3])), 3);
}
static inline void vi_store(void *p, vi x) { _mm512_storeu_si512(p, x); }
/* Stores the lowest byte of each lane. */
static inline void vi_store_bytes(void *p, vi x) { _mm_storeu_si128(p, _mm512_cvtepi32_epi8(x)); }
/* Forces x to be computed here: compilers that move it run out of registers. */
static inline vi vi_keep(vi x) { __asm__("" : "+v"(x)); return x; }
static inline vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
static inline vi vi_mul(vi a, vi b) { return _mm512_mullo_epi32(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
static inline vi vi_shl(vi a, int n) { return (vi)((vec_u32)a << n); }
static inline vi vi_shr(vi a, int n) { return (vi)((vec_u32)a >> n); }
static inline vi vi_sra(vi a, int n) { return (vi)((vec_i32)a >> n); }
static inline vi vi_max(vi a, vi b) { return _mm512_max_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm512_min_epi32(a, b); }
static inline vm vi_lt(vi a, vi b) { return _mm512_cmplt_epi32_mask(a, b); }
static inline vi vi_from_u8(const uint8_t *p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)); }
static inline vi vi_from_i8(const int8_t *p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)); }
/* Bytes of the table at the indices in the bytes of `at`, 0 to 15. */
static inline vi vi_lookup(const uint8_t table[16], vi at)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), at);
}
static inline vi vf_to_vi(vf a) { return _mm512_cvtps_epi32(a); }
static inline vf vi_to_vf(vi a) { return _mm512_cvtepi32_ps(a); }
static inline vi vf_as_vi(vf a) { return _mm512_castps_si512(a); }
static inline vf vi_as_vf(vi a) { return _mm512_castsi512_ps(a); }

/* ---- Pairs of i16 in a lane ---- */

static inline vi vp_sub(vi a, vi b) { return _mm512_sub_epi16(a, b); }
static inline vi vp_mul(vi a, vi b) { return _mm512_mullo_epi16(a, b); }
static inline vi vp_shl(vi a, int n) { return (vi)((vec_u16)a << n); }
static inline vi vp_shr(vi a, int n) { return (vi)((vec_u16)a >> n); }
static inline vi vp_sra(vi a, int n) { return (vi)((vec_i16)a >> n); }
/* Of each four lanes of a, then of b: (0, 2) and (1, 3), as pairs. */
static inline vi vp_join(vi a, vi b)
{
    a = _mm512_mask_blend_epi16(0xaaaaaaaa, a, vi_shl(_mm512_shuffle_epi32(a, _MM_PERM_DCDC), 16));
    b = _mm512_mask_blend_epi16(0xaaaaaaaa, b, vi_shl(_mm512_shuffle_epi32(b, _MM_PERM_DCDC), 16));
    return vf_as_vi(_mm512_shuffle_ps(vi_as_vf(a), vi_as_vf(b), 0x44));
}
/* Not the intrinsic: gcc copies its accumulator before and after. */
static inline vi vp_dot(vi sum, vi a, vi b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

/* ---- Groups of four bytes in a lane ---- */

/* Dot products of bytes (0 to 127) with i8. With wide (i32) sums any byte is allowed: i8 with
 * WF_VQ_SIGNED, else u8. Without, i16 lanes hold partial sums until vq_sum. */
#define WF_VQ_WIDE 1
#define WF_VQ_SIGNED 0
typedef vi vq;
static inline vq vq_zero(void) { return vi_zero(); }
/* Uses the same four bytes of a for every lane. */
static inline vq vq_dot(vq sum, vi bytes, const int32_t *a)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(bytes), "m"(*a));
    return sum;
}
static inline vi vq_sum(vq sum, int shift) { return vi_shl(sum, shift); }

/* ---- f16 and bf16 ---- */

static inline vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return vi_as_vf(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline void vf_store_bf16(uint16_t *p, vf x)
{
    vi bits = vf_as_vi(x), odd = vi_and(vi_shr(bits, 16), vi_set(1));
    vi near = vi_add(bits, vi_add(odd, vi_set(0x7fff)));
    near = _mm512_mask_blend_epi32(vf_nan(x), near, vi_or(bits, vi_set(0x400000)));
    _mm256_storeu_si256((void *)p, _mm512_cvtepi32_epi16(vi_shr(near, 16)));
}

/* ---- Transposition ---- */

/* Transposes within each four lanes: row i, lane j becomes row j, lane i. */
static inline void vf_transpose_fours(vf r[4])
{
    vf a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
    vf c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
    r[0] = _mm512_shuffle_ps(a, c, 0x44);
    r[1] = _mm512_shuffle_ps(a, c, 0xee);
    r[2] = _mm512_shuffle_ps(b, d, 0x44);
    r[3] = _mm512_shuffle_ps(b, d, 0xee);
}

/* Transposes: row i, lane j becomes row j, lane i. */
static inline void vf_transpose(vf r[16])
{
    vf a[16], b[16];
    for (int i = 0; i < 8; i++) {
        a[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        b[4 * i] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm512_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm512_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    /* b[4 g + c] holds, in each quarter q, column 4 q + c of rows 4 g .. 4 g + 3. */
    for (int i = 0; i < 4; i++) {
        vf low = _mm512_shuffle_f32x4(b[i], b[i + 4], 0x88), high = _mm512_shuffle_f32x4(b[i], b[i + 4], 0xdd);
        vf low2 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0x88), high2 = _mm512_shuffle_f32x4(b[i + 8], b[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(low, low2, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(high, high2, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(low, low2, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
    }
}

/* Transposes VL rows of 2 VL 16-bit elements, stride bytes apart: element k of every row goes to
 * to[v_half_slot(k)]. In each quarter of a register, three perfect shuffles of eight rows transpose
 * them. */
static inline int v_half_slot(int k) { return k % 8 * 4 + k / 8; }
static inline void v_transpose_halves(const char *from, ptrdiff_t stride, uint16_t to[32][16])
{
    const vi low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    vi r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = vi_load(from + i * stride);
    for (int g = 0; g < 16; g += 8) {
        for (int i = 0; i < 4; i++) {
            t[g + 2 * i] = _mm512_unpacklo_epi16(r[g + i], r[g + i + 4]);
            t[g + 2 * i + 1] = _mm512_unpackhi_epi16(r[g + i], r[g + i + 4]);
        }
        for (int i = 0; i < 4; i++) {
            r[g + 2 * i] = _mm512_unpacklo_epi16(t[g + i], t[g + i + 4]);
            r[g + 2 * i + 1] = _mm512_unpackhi_epi16(t[g + i], t[g + i + 4]);
        }
        for (int i = 0; i < 4; i++) {
            t[g + 2 * i] = _mm512_unpacklo_epi16(r[g + i], r[g + i + 4]);
            t[g + 2 * i + 1] = _mm512_unpackhi_epi16(r[g + i], r[g + i + 4]);
        }
    }
    for (int i = 0; i < 8; i++) {
        vi_store(to[4 * i], _mm512_permutex2var_epi64(t[i], low, t[i + 8]));
        vi_store(to[4 * i + 2], _mm512_permutex2var_epi64(t[i], high, t[i + 8]));
    }
    /* Forces a reload from memory, where widening needs no shuffle. */
    __asm__("" : "+m"(*(uint16_t(*)[32][16])to));
}

/* clang-format on */

#endif

/* SPDX-License-Identifier: MIT */
/* vec_avx2.h - the vectors of simd.h with AVX2, FMA and F16C: 8 lanes, 16 registers. */
#ifndef WF_DEVICE_CPU_SIMD_VEC_AVX2_H
#define WF_DEVICE_CPU_SIMD_VEC_AVX2_H

#include <immintrin.h>

/* clang-format off */

#define WF_VL 8
#define WF_VREGS 16

typedef __m256 vf;
typedef __m256i vi;
typedef __m256d vd;
typedef __m256 vm; /* a lane is all ones or all zeros */

/* Mask of the lanes before n. */
static inline vi vi_first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Prefetches the cache line of p. Not the intrinsic: gcc 12 treats a function of nothing else as
 * pure and drops its calls. */
static inline void v_prefetch(const void *p) { __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)p)); }
/* The same to the second cache. */
static inline void v_prefetch_far(const void *p) { __asm__ volatile("prefetcht1 %0" : : "m"(*(const char *)p)); }

/* ---- f32 ---- */

static inline vf vf_zero(void) { return _mm256_setzero_ps(); }
static inline vf vf_set(float x) { return _mm256_set1_ps(x); }
static inline vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
static inline vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, vi_first_lanes(n)); }
static inline void vf_store_n(float *p, vf x, int n) { _mm256_maskstore_ps(p, vi_first_lanes(n), x); }
static inline void vf_stream(float *p, vf x) { _mm256_stream_ps(p, x); }
static inline vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
static inline vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
static inline vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
static inline vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
static inline vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
static inline vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
static inline vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
static inline vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
static inline vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
static inline vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_neg(vf a) { return _mm256_xor_ps(_mm256_set1_ps(-0.0f), a); }
static inline vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
static inline vm vf_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
static inline vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline vm vf_nan(vf a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
static inline vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
static inline bool vm_any(vm m) { return _mm256_movemask_ps(m) != 0; }
static inline vm vm_first(int n) { return _mm256_castsi256_ps(vi_first_lanes(n)); }

static inline float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

static inline float vf_most(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

/* Lanes 1 0 3 2 5 4 ... */
static inline vf vf_swap(vf a) { return _mm256_permute_ps(a, 0xb1); }

/* ---- f64: the lower and upper half of a vf's lanes ---- */

static inline vd vd_zero(void) { return _mm256_setzero_pd(); }
static inline vd vd_set(double x) { return _mm256_set1_pd(x); }
static inline vd vd_low(vf a) { return _mm256_cvtps_pd(_mm256_castps256_ps128(a)); }
static inline vd vd_high(vf a) { return _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)); }
static inline vf vd_to_vf(vd low, vd high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }
static inline vd vd_load(const double *p) { return _mm256_loadu_pd(p); }
static inline void vd_store(double *p, vd x) { _mm256_storeu_pd(p, x); }
static inline vd vd_add(vd a, vd b) { return _mm256_add_pd(a, b); }
static inline vd vd_sub(vd a, vd b) { return _mm256_sub_pd(a, b); }
static inline vd vd_mul(vd a, vd b) { return _mm256_mul_pd(a, b); }
static inline vd vd_fma(vd a, vd b, vd c) { return _mm256_fmadd_pd(a, b, c); }
static inline vd vd_fnma(vd a, vd b, vd c) { return _mm256_fnmadd_pd(a, b, c); }
static inline vd vd_round(vd a) { return _mm256_round_pd(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

static inline double vd_sum(vd a)
{
    __m128d s = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)));
}

/* Lane i is the sum of r[i]. */
static inline vf vf_sums(vf r[8])
{
    for (int n = 4; n >= 2; n /= 2)
        for (int i = 0; i < n; i++)
            r[i] = _mm256_hadd_ps(r[2 * i], r[2 * i + 1]);
    return _mm256_add_ps(_mm256_permute2f128_ps(r[0], r[1], 0x20), _mm256_permute2f128_ps(r[0], r[1], 0x31));
}

/* ---- i32 ---- */

static inline vi vi_zero(void) { return _mm256_setzero_si256(); }
static inline vi vi_set(int32_t x) { return _mm256_set1_epi32(x); }
static inline vi vi_load(const void *p) { return _mm256_loadu_si256(p); }
/* Four lanes from each of p + at[0], p + at[1] */
static inline vi vi_load_fours(const uint8_t *p, const int64_t *at)
{
    __m256i x = _mm256_castsi128_si256(_mm_loadu_si128((const void *)(p + at[0])));
    return _mm256_inserti128_si256(x, _mm_loadu_si128((const void *)(p + at[1])), 1);
}
static inline void vi_store(void *p, vi x) { _mm256_storeu_si256(p, x); }
/* Stores the lowest byte of each lane. */
static inline void vi_store_bytes(void *p, vi x)
{
    x = _mm256_shuffle_epi8(x, _mm256_set1_epi32(0x0c080400));
    _mm_storel_epi64(p, _mm_unpacklo_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
/* Forces x to be computed here: compilers that move it run out of registers. */
static inline vi vi_keep(vi x) { __asm__("" : "+x"(x)); return x; }
static inline vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
static inline vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
static inline vi vi_mul(vi a, vi b) { return _mm256_mullo_epi32(a, b); }
static inline vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
static inline vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
static inline vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
static inline vi vi_shl(vi a, int n) { return _mm256_slli_epi32(a, n); }
static inline vi vi_shr(vi a, int n) { return _mm256_srli_epi32(a, n); }
static inline vi vi_sra(vi a, int n) { return _mm256_srai_epi32(a, n); }
static inline vi vi_max(vi a, vi b) { return _mm256_max_epi32(a, b); }
static inline vi vi_min(vi a, vi b) { return _mm256_min_epi32(a, b); }
static inline vm vi_lt(vi a, vi b) { return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a)); }
static inline vi vi_from_u8(const uint8_t *p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)); }
static inline vi vi_from_i8(const int8_t *p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)); }
/* Bytes of the table at the indices in the bytes of `at`, 0 to 15. */
static inline vi vi_lookup(const uint8_t table[16], vi at)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table)), at);
}
static inline vi vf_to_vi(vf a) { return _mm256_cvtps_epi32(a); }
static inline vf vi_to_vf(vi a) { return _mm256_cvtepi32_ps(a); }
static inline vi vf_as_vi(vf a) { return _mm256_castps_si256(a); }
static inline vf vi_as_vf(vi a) { return _mm256_castsi256_ps(a); }

/* ---- Pairs of i16 in a lane ---- */

static inline vi vp_sub(vi a, vi b) { return _mm256_sub_epi16(a, b); }
static inline vi vp_mul(vi a, vi b) { return _mm256_mullo_epi16(a, b); }
static inline vi vp_shl(vi a, int n) { return _mm256_slli_epi16(a, n); }
static inline vi vp_shr(vi a, int n) { return _mm256_srli_epi16(a, n); }
static inline vi vp_sra(vi a, int n) { return _mm256_srai_epi16(a, n); }
/* Of each four lanes of a, then of b: (0, 2) and (1, 3), as pairs. */
static inline vi vp_join(vi a, vi b)
{
    a = _mm256_blend_epi16(a, _mm256_slli_epi32(_mm256_shuffle_epi32(a, 0xee), 16), 0xaa);
    b = _mm256_blend_epi16(b, _mm256_slli_epi32(_mm256_shuffle_epi32(b, 0xee), 16), 0xaa);
    return vf_as_vi(_mm256_shuffle_ps(vi_as_vf(a), vi_as_vf(b), 0x44));
}
static inline vi vp_dot(vi sum, vi a, vi b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }

/* ---- Groups of four bytes in a lane ---- */

/* Dot products of bytes (0 to 127) with i8. With wide (i32) sums any byte is allowed: i8 with
 * WF_VQ_SIGNED, else u8. Without, i16 lanes hold partial sums until vq_sum. */
#define WF_VQ_WIDE 0
#define WF_VQ_SIGNED 0
typedef vi vq;
static inline vq vq_zero(void) { return vi_zero(); }
/* Uses the same four bytes of a for every lane. */
static inline vq vq_dot(vq sum, vi bytes, const int32_t *a)
{
    return vi_keep(_mm256_add_epi16(sum, _mm256_maddubs_epi16(bytes, vi_set(*a))));
}
static inline vi vq_sum(vq sum, int shift) { return _mm256_madd_epi16(sum, _mm256_set1_epi16((short)(1 << shift))); }

/* ---- f16 and bf16 ---- */

static inline vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }
static inline void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

static inline vf vf_load_bf16(const uint16_t *p)
{
    return vi_as_vf(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline void vf_store_bf16(uint16_t *p, vf x)
{
    vi bits = vf_as_vi(x), odd = vi_and(vi_shr(bits, 16), vi_set(1));
    vi near = vi_shr(vi_add(bits, vi_add(odd, vi_set(0x7fff))), 16);
    vi quiet = vi_shr(vi_or(bits, vi_set(0x400000)), 16);
    near = vf_as_vi(vf_select(vf_nan(x), vi_as_vf(quiet), vi_as_vf(near)));
    near = _mm256_packus_epi32(near, near);
    _mm_storeu_si128((void *)p, _mm256_castsi256_si128(_mm256_permute4x64_epi64(near, 0x08)));
}

/* ---- Transposition ---- */

/* Transposes within each four lanes: row i, lane j becomes row j, lane i. */
static inline void vf_transpose_fours(vf r[4])
{
    vf a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    vf c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(a, c, 0x44);
    r[1] = _mm256_shuffle_ps(a, c, 0xee);
    r[2] = _mm256_shuffle_ps(b, d, 0x44);
    r[3] = _mm256_shuffle_ps(b, d, 0xee);
}

/* Transposes: row i, lane j becomes row j, lane i. */
static inline void vf_transpose(vf r[8])
{
    vf a[8], b[8];
    for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        b[4 * i] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0x44);
        b[4 * i + 1] = _mm256_shuffle_ps(a[4 * i], a[4 * i + 2], 0xee);
        b[4 * i + 2] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0x44);
        b[4 * i + 3] = _mm256_shuffle_ps(a[4 * i + 1], a[4 * i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* Transposes VL rows of 2 VL 16-bit elements, stride bytes apart: element k of every row goes to
 * to[v_half_slot(k)]. In each half of a register, three perfect shuffles of eight rows transpose
 * them. */
static inline int v_half_slot(int k) { return k % 8 * 2 + k / 8; }
static inline void v_transpose_halves(const char *from, ptrdiff_t stride, uint16_t to[16][8])
{
    vi r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = vi_load(from + i * stride);
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi16(r[i], r[i + 4]);
        t[2 * i + 1] = _mm256_unpackhi_epi16(r[i], r[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        r[2 * i] = _mm256_unpacklo_epi16(t[i], t[i + 4]);
        r[2 * i + 1] = _mm256_unpackhi_epi16(t[i], t[i + 4]);
    }
    for (int i = 0; i < 4; i++) {
        vi_store(to[4 * i], _mm256_unpacklo_epi16(r[i], r[i + 4]));
        vi_store(to[4 * i + 2], _mm256_unpackhi_epi16(r[i], r[i + 4]));
    }
    /* Forces a reload from memory, where widening needs no shuffle. */
    __asm__("" : "+m"(*(uint16_t(*)[16][8])to));
}

/* clang-format on */

#endif

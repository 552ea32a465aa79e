/* SPDX-License-Identifier: MIT */
/*
 * source.cu - values computed from attributes: fill, iota, uniform.
 *
 * Results are dense and written once; nothing is read but uniform's key. uniform draws element e
 * from word e % 4 of Philox block e / 4, as the cpu does, so the bits are the same.
 */
extern "C" {
#include "base/half.h"
}
#include "device/cuda/each.cuh"
#include "device/cuda/random.cuh"

#define THREADS 256

/* ---- fill ---- */

static double within(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

/* Encodes `value` as one element in the low bits. Integers truncate and saturate; NaN becomes 0. */
static uint32_t encoded(wf_type type, double value)
{
    const double sane = value != value ? 0 : within(value, INT32_MIN, INT32_MAX);
    const int32_t whole = (int32_t)sane;
    switch (type) {
    case WF_F32: return wf_f32_bits((float)value);
    case WF_F16: return wf_f32_to_f16((float)value);
    case WF_BF16: return wf_f32_to_bf16((float)value);
    case WF_E4M3: return wf_f32_to_e4m3((float)value);
    case WF_E5M2: return wf_f32_to_e5m2((float)value);
    case WF_I8: return (uint8_t)(int8_t)within(whole, INT8_MIN, INT8_MAX);
    case WF_U8: return (uint8_t)within(whole, 0, UINT8_MAX);
    default: return (uint32_t)whole;
    }
}

/* Writes 16-byte packs of the repeated word, then the remaining bytes. */
static __global__ void __launch_bounds__(THREADS)
    fill_kernel(uint8_t *to, int64_t packs, int64_t bytes, uint32_t word)
{
    const wf_pack<uint32_t, 4> pack = {{word, word, word, word}};
    const int64_t first = (int64_t)blockIdx.x * (THREADS * 4) + threadIdx.x;
#pragma unroll
    for (int u = 0; u < 4; u++) {
        const int64_t item = first + u * THREADS, rest = packs * 16 + item;
        if (item < packs)
            wf_store_pack<uint32_t, 4>((uint32_t *)to + item * 4, pack);
        if (rest < bytes)
            to[rest] = (uint8_t)(word >> rest % 4 * 8);
    }
}

static wf_status launch_fill(const wf_launch *l)
{
    const wf_attr_fill *a = (const wf_attr_fill *)l->attr;
    const wf_view *out = &l->out[0];
    const int64_t bytes = (int64_t)wf_type_bytes(out->type, wf_view_count(out));
    if (!out->data || bytes == 0)
        return WF_OK;
    uint32_t word = encoded(out->type, a->value);
    const int size = wf_type_get(out->type)->block_bytes;
    if (size == 1)
        /* Repeats the element to fill a word. */
        word = (word & 0xFF) * 0x01010101u;
    else if (size == 2)
        word = (word & 0xFFFF) * 0x00010001u;
    const int64_t packs = (uintptr_t)out->data % 16 == 0 ? bytes / 16 : 0;
    const int64_t rest = bytes - packs * 16;
    /* One grid covers both the packs and the remaining bytes. */
    const int64_t blocks = (packs > rest ? packs : rest) / (THREADS * 4) + 1;
    WF_RUN(fill_kernel, (unsigned)blocks, THREADS, 0, wf_cuda_stream(l))
    ((uint8_t *)out->data, packs, bytes, word);
    return wf_cuda_launched(l);
}

/* ---- iota ---- */

/* inner: elements between consecutive indices of the axis. */
static __global__ void __launch_bounds__(THREADS)
    iota_kernel(int32_t *to, int64_t count, int64_t length, int64_t inner)
{
    const int64_t e = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (e < count)
        to[e] = (int32_t)(e / inner % length);
}

static wf_status launch_iota(const wf_launch *l)
{
    const wf_attr_iota *a = (const wf_attr_iota *)l->attr;
    const wf_view *out = &l->out[0];
    const int64_t count = wf_view_count(out);
    if (!out->data || count == 0)
        return WF_OK;
    int64_t inner = 1;
    for (int i = (int)a->axis + 1; i < out->rank; i++)
        inner *= out->dim[i];
    WF_RUN(iota_kernel, (unsigned)((count + THREADS - 1) / THREADS), THREADS, 0, wf_cuda_stream(l))
    ((int32_t *)out->data, count, out->dim[a->axis], inner);
    return wf_cuda_launched(l);
}

/* ---- uniform ---- */

/* A thread computes the four values of one Philox block. */
static __global__ void __launch_bounds__(THREADS)
    uniform_kernel(const int32_t *key, uint32_t stream, float *to, int64_t count)
{
    const int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    if (first >= count)
        return;
    const wf_random_block r = wf_random(key, stream, (uint64_t)first / 4);
#pragma unroll
    for (int k = 0; k < 4; k++)
        if (first + k < count)
            to[first + k] = wf_random_unit(r.word[k]);
}

static wf_status launch_uniform(const wf_launch *l)
{
    const wf_attr_uniform *a = (const wf_attr_uniform *)l->attr;
    const wf_view *out = &l->out[0];
    const int64_t count = wf_view_count(out);
    if (!out->data || count == 0)
        return WF_OK;
    WF_RUN(uniform_kernel, (unsigned)((count + THREADS * 4 - 1) / (THREADS * 4)), THREADS, 0,
           wf_cuda_stream(l))
    ((const int32_t *)l->in[0].data, (uint32_t)a->stream, (float *)out->data, count);
    return wf_cuda_launched(l);
}

/* clang-format off */
#define ROW(name_, types_, launch_)                                                                \
    {.op = WF_OP_##name_, .name = "cuda", .types = types_, .strided = true, .launch = launch_}
extern "C" const wf_kernel wf_cuda_source_kernels[] = {
    ROW(fill, WF_TYPES_PLAIN, launch_fill),
    ROW(iota, WF_TYPE_BIT(WF_I32), launch_iota),
    ROW(uniform, WF_TYPE_BIT(WF_I32), launch_uniform), /* the type of its key */
    {},
};

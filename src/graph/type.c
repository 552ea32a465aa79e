/* SPDX-License-Identifier: MIT */
/*
 * type.c - the table of element types, arithmetic on shapes, and conversions to and from f32.
 *
 * The rows of block types come from WF_QUANT_TABLE, their codecs from quant/. Conversions to a
 * float type round to nearest even.
 */
#include "graph/type.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/ctx.h"
#include "base/half.h"
#include "base/philox.h"
#include "graph/quant/block.h"

_Static_assert(WF_TYPE_COUNT < 64,
               "WF_TYPES_BLOCK shifts 1 by WF_TYPE_COUNT, which must stay below 64");

enum { GENERIC = true, PACKED = false, DIRECT = false }; /* `generic` by a row's `kernels` */

/* Columns: name, kind, elements per block, bytes per block, unit roundoff, generic. The roundoff is
 * 2^-(p + 1), where p is the number of stored mantissa bits. */
static const wf_type_info infos[WF_TYPE_COUNT] = {
    [WF_TYPE_NONE] = {"none", WF_KIND_NONE, 1, 0, 0, false},
    [WF_F32] = {"f32", WF_KIND_FLOAT, 1, 4, 0x1p-24, false},
    [WF_F16] = {"f16", WF_KIND_FLOAT, 1, 2, 0x1p-11, false},
    [WF_BF16] = {"bf16", WF_KIND_FLOAT, 1, 2, 0x1p-8, false},
    [WF_E4M3] = {"e4m3", WF_KIND_STORAGE, 1, 1, 0x1p-4, false},
    [WF_E5M2] = {"e5m2", WF_KIND_STORAGE, 1, 1, 0x1p-3, false},
    [WF_I32] = {"i32", WF_KIND_INT, 1, 4, 0, false},
    [WF_I8] = {"i8", WF_KIND_INT, 1, 1, 0, false},
    [WF_U8] = {"u8", WF_KIND_INT, 1, 1, 0, false},
#define ROW(A, NAME, name, word, block, bytes, gguf, file_type, mix, stand_in, kernels, doc) \
    [WF_##NAME] = {#name, WF_KIND_BLOCK, block, bytes, 0, kernels},
    WF_QUANT_TABLE(ROW, 0)
#undef ROW
};

const wf_type_info *wf_type_get(wf_type type)
{
    return &infos[(unsigned)type < WF_TYPE_COUNT ? type : WF_TYPE_NONE];
}

const char *wf_type_name(wf_type type)
{
    return wf_type_get(type)->name;
}

wf_type wf_type_from_name(const char *name)
{
    for (int t = WF_TYPE_NONE + 1; name && t < WF_TYPE_COUNT; t++)
        if (strcmp(infos[t].name, name) == 0)
            return (wf_type)t;
    return WF_TYPE_NONE;
}

/* Returns 0 if the count is negative, not a multiple of the block, or too large. wf_node_add has
 * rejected such shapes, so values of a graph never return 0 for that reason. */
size_t wf_type_bytes(wf_type type, int64_t count)
{
    const wf_type_info *info = wf_type_get(type);
    size_t bytes;
    if (count < 0 || count % info->block != 0 ||
        !wf_mul_size((size_t)(count / info->block), (size_t)info->block_bytes, &bytes))
        return 0;
    return bytes;
}

wf_dims wf_dims_make(int rank, const int64_t *d)
{
    wf_dims dims = {.n = rank};
    /* A rank out of range stays in n, where wf_node_add rejects it. */
    for (int i = 0; i < rank && i < WF_MAX_RANK; i++)
        dims.d[i] = d[i];
    return dims;
}

bool wf_dims_equal(const wf_dims *a, const wf_dims *b)
{
    return a->n == b->n && memcmp(a->d, b->d, (size_t)a->n * sizeof a->d[0]) == 0;
}

/* Lengths of a graph's values cannot overflow here: see check_shape in graph.c. */
int64_t wf_dims_count(const wf_dims *dims)
{
    int64_t count = 1;
    for (int i = 0; i < dims->n; i++)
        count *= dims->d[i];
    return count;
}

int64_t wf_dims_rows(const wf_dims *dims)
{
    int64_t rows = 1;
    for (int i = 0; i + 1 < dims->n; i++)
        rows *= dims->d[i];
    return rows;
}

int64_t wf_dims_last(const wf_dims *dims)
{
    return dims->n > 0 ? dims->d[dims->n - 1] : 1;
}

bool wf_dims_broadcast(const wf_dims *a, const wf_dims *b, wf_dims *out)
{
    wf_dims r = {.n = a->n > b->n ? a->n : b->n};
    for (int64_t i = 1; i <= r.n; i++) { /* i counts axes from the last */
        int64_t x = i <= a->n ? a->d[a->n - i] : 1;
        int64_t y = i <= b->n ? b->d[b->n - i] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        r.d[r.n - i] = x == 1 ? y : x; /* 1 and 0 broadcast to 0 */
    }
    *out = r;
    return true;
}

/* Rounds to nearest even and saturates; NaN becomes 0. */
static float int_from_f32(float x, float low, float high)
{
    if (isnan(x))
        return 0;
    float r = rintf(x);
    return r < low ? low : r > high ? high : r;
}

/* Branch-free wf_f16_to_f32, so that compilers vectorize the loop. A subnormal is its integer code
 * times 2^-24; no intermediate f32 is subnormal, so flush-to-zero modes do not matter. */
static inline float widen_f16(uint16_t code)
{
    /* `size` is the code without its sign. f32's exponent bias is 127, f16's 15: rebias by 112.
     * Infinity and NaN (exponent 31) need the difference twice to reach exponent 255. */
    const uint32_t size = code & 0x7FFFu, up = 112u << 23;
    uint32_t normal = (size << 13) + up, small = wf_f32_bits((float)(int32_t)size * 0x1p-24f);
    uint32_t bits = size < 0x400 ? small : size >= 0x7C00 ? normal + up : normal;
    return wf_bits_f32(bits | (uint32_t)(code & 0x8000) << 16);
}

void wf_convert_to_f32(wf_type type, const void *from, float *to, int64_t count)
{
    switch (type) {
    case WF_F32: memcpy(to, from, (size_t)count * sizeof *to); break;
    case WF_F16:
        for (int64_t i = 0; i < count; i++)
            to[i] = widen_f16(((const uint16_t *)from)[i]);
        break;
    case WF_BF16:
        for (int64_t i = 0; i < count; i++)
            to[i] = wf_bf16_to_f32(((const uint16_t *)from)[i]);
        break;
    case WF_E4M3:
        for (int64_t i = 0; i < count; i++)
            to[i] = wf_e4m3_to_f32(((const uint8_t *)from)[i]);
        break;
    case WF_E5M2:
        for (int64_t i = 0; i < count; i++)
            to[i] = wf_e5m2_to_f32(((const uint8_t *)from)[i]);
        break;
    case WF_I32:
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)((const int32_t *)from)[i];
        break;
    case WF_I8:
        for (int64_t i = 0; i < count; i++)
            to[i] = ((const int8_t *)from)[i];
        break;
    case WF_U8:
        for (int64_t i = 0; i < count; i++)
            to[i] = ((const uint8_t *)from)[i];
        break;
    /* Offset 0: `from` points to the first block. */
    default: wf_block_decode(type, from, 0, count, to);
    }
}

void wf_convert_from_f32(wf_type type, const float *from, void *to, int64_t count)
{
    switch (type) {
    case WF_F32: memcpy(to, from, (size_t)count * sizeof *from); break;
    case WF_F16:
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)to)[i] = wf_f32_to_f16(from[i]);
        break;
    case WF_BF16:
        for (int64_t i = 0; i < count; i++)
            ((uint16_t *)to)[i] = wf_f32_to_bf16(from[i]);
        break;
    case WF_E4M3:
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = wf_f32_to_e4m3(from[i]);
        break;
    case WF_E5M2:
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = wf_f32_to_e5m2(from[i]);
        break;
    case WF_I32: /* 2^31 - 128 is the largest f32 below 2^31 */
        for (int64_t i = 0; i < count; i++)
            ((int32_t *)to)[i] = from[i] >= 0x1p31f
                                     ? INT32_MAX
                                     : (int32_t)int_from_f32(from[i], -0x1p31f, 2147483520.f);
        break;
    case WF_I8:
        for (int64_t i = 0; i < count; i++)
            ((int8_t *)to)[i] = (int8_t)int_from_f32(from[i], -128, 127);
        break;
    case WF_U8:
        for (int64_t i = 0; i < count; i++)
            ((uint8_t *)to)[i] = (uint8_t)int_from_f32(from[i], 0, 255);
        break;
    /* One row of `count` elements, without importance weights. */
    default: wf_quantize(type, from, NULL, to, 1, count);
    }
}

/* Guards the public functions; internal callers have valid types and counts. */
static wf_status check_conversion(wf_ctx *ctx, wf_type type, int64_t count)
{
    const wf_type_info *info = wf_type_get(type);
    if (info->kind == WF_KIND_NONE)
        return wf_fail(ctx, WF_ERR_USAGE, "cannot convert between f32 and %s", info->name);
    if (count < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "cannot convert %lld elements", (long long)count);
    if (count % info->block != 0)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "cannot convert %lld elements: %s needs a multiple of its block size %d",
                       (long long)count, info->name, info->block);
    return WF_OK;
}

wf_status wf_type_from_f32(wf_ctx *ctx, wf_type type, const float *from, void *to, int64_t count)
{
    WF_TRY(check_conversion(ctx, type, count));
    wf_convert_from_f32(type, from, to, count);
    return WF_OK;
}

wf_status wf_type_to_f32(wf_ctx *ctx, wf_type type, const void *from, float *to, int64_t count)
{
    WF_TRY(check_conversion(ctx, type, count));
    wf_convert_to_f32(type, from, to, count);
    return WF_OK;
}

/* Draws depend on seed and stream only: the same tensor on every device and thread count. */
void wf_random_normal(uint64_t seed, uint64_t stream, float mean, float deviation, float *to,
                      int64_t count)
{
    wf_rng rng;
    wf_rng_init(&rng, seed, stream);
    for (int64_t i = 0; i < count; i++)
        to[i] = (float)(mean + deviation * wf_rng_normal(&rng));
}

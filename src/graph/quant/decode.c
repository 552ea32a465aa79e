/* SPDX-License-Identifier: MIT */
/*
 * decode.c - decodes rows of blocks on the host.
 *
 * Every type can be decoded by its function of codec.h, eight elements at a time. Types with a row
 * in `fast` below decode 32 to 128 elements at a time, with the same bits, in loops that compilers
 * vectorize.
 */
#include "base/check.h"
#include "base/ctx.h"
#include "base/half.h"
#include "graph/quant/block.h"

enum { PART = 32 }; /* elements that types without a row in `fast` decode at a time */

/* The structs are read straight from files and mapped memory. */
#define SIZE(A, NAME, name, word, block, bytes, ...)                          \
    _Static_assert(sizeof(wf_block_##word) == (bytes) && (block) % PART == 0, \
                   #name ": the struct must have the size of a block in files");
WF_QUANT_TABLE(SIZE, 0)

static void decode_q8_0(const void *block, int part, float *restrict to)
{
    const wf_block_q8_0 *b = block;
    const float d = wf_f16_to_f32(b->d);
    (void)part;
    for (int i = 0; i < 32; i++)
        to[i] = (float)b->q[i] * d;
}

static void decode_q4_0(const void *block, int part, float *restrict to)
{
    const wf_block_q4_0 *b = block;
    const float d = wf_f16_to_f32(b->d);
    (void)part;
    for (int i = 0; i < 16; i++)
        to[i] = (float)((b->q[i] & 15) - 8) * d;
    for (int i = 0; i < 16; i++)
        to[i + 16] = (float)((b->q[i] >> 4) - 8) * d;
}

static void decode_q4_1(const void *block, int part, float *restrict to)
{
    const wf_block_q4_1 *b = block;
    const float d = wf_f16_to_f32(b->d), m = wf_f16_to_f32(b->m);
    (void)part;
    for (int i = 0; i < 16; i++)
        to[i] = (float)(b->q[i] & 15) * d + m;
    for (int i = 0; i < 16; i++)
        to[i + 16] = (float)(b->q[i] >> 4) * d + m;
}

static void decode_q4_k(const void *block, int part, float *restrict to)
{
    const wf_block_q4_k *b = block;
    const uint8_t *q = b->q + 32 * part;
    float d[2], m[2];
    for (int i = 0; i < 2; i++) {
        int s, min;
        wf_q4_k_scales(b->scales, 2 * part + i, &s, &min);
        d[i] = wf_f16_to_f32(b->d) * (float)s;
        m[i] = wf_f16_to_f32(b->dmin) * (float)min;
    }
    for (int i = 0; i < 32; i++)
        to[i] = d[0] * (float)(q[i] & 15) - m[0];
    for (int i = 0; i < 32; i++)
        to[i + 32] = d[1] * (float)(q[i] >> 4) - m[1];
}

static void decode_q6_k(const void *block, int part, float *restrict to)
{
    const wf_block_q6_k *b = block;
    const float d = wf_f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) { /* 16 elements each */
        int first = 16 * (g & 1);
        const uint8_t *low = b->low + 64 * part + 32 * (g >> 1 & 1) + first;
        const uint8_t *high = b->high + 32 * part + first;
        const float scale = d * (float)b->scales[8 * part + g];
        const int low_shift = 4 * (g >> 2), high_shift = 2 * (g >> 1);
        for (int i = 0; i < 16; i++) {
            int q = (low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4;
            to[16 * g + i] = scale * (float)(q - 32);
        }
    }
}

/* A fast decoder for one type. */
typedef struct {
    int part; /* elements per call; 0: the type has no fast decoder */
    void (*decode)(const void *block, int part, float *to);
} row;

static const row fast[WF_TYPE_COUNT] = {
    [WF_Q8_0] = {32, decode_q8_0}, [WF_Q4_0] = {32, decode_q4_0},  [WF_Q4_1] = {32, decode_q4_1},
    [WF_Q4_K] = {64, decode_q4_k}, [WF_Q6_K] = {128, decode_q6_k},
};

#define EIGHT(A, NAME, name, word, ...) [WF_##NAME] = wf_decode_##word,
static void (*const decode8[WF_TYPE_COUNT])(const void *block, int part,
                                            float *to) = {WF_QUANT_TABLE(EIGHT, 0)};

void wf_block_decode8(wf_type type, const void *block, int part, float *to)
{
    decode8[type](block, part, to);
}

int wf_block_part(wf_type type)
{
    return fast[type].part ? fast[type].part : PART;
}

/* Decodes elements [begin, begin + n), multiples of 8. The path of types without a fast decoder. */
static void decode_by_eights(wf_type type, const char *from, int64_t begin, int64_t n, float *to)
{
    const wf_type_info *info = wf_type_get(type);
    for (int64_t i = begin; i < begin + n; i += 8, to += 8)
        decode8[type](from + i / info->block * info->block_bytes, (int)(i % info->block / 8), to);
}

/* begin and n are multiples of wf_block_part(type), so no call starts or ends inside a part. */
void wf_block_decode(wf_type type, const void *from, int64_t begin, int64_t n, float *to)
{
    const row *r = &fast[type];
    const wf_type_info *info = wf_type_get(type);
    const int part = wf_block_part(type), parts = info->block / part;
    wf_assert(begin % part == 0 && n % part == 0);
    if (!r->decode) {
        decode_by_eights(type, from, begin, n, to);
        return;
    }
    const char *block = (const char *)from + begin / info->block * info->block_bytes;
    int at = (int)(begin % info->block / part); /* part within the block */
    for (; n > 0; n -= part, to += part) {
        r->decode(block, at, to);
        if (++at == parts) {
            at = 0;
            block += info->block_bytes;
        }
    }
}

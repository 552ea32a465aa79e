/* SPDX-License-Identifier: MIT */
/*
 * encode.c - encodes rows of f32 into blocks, and blocks with one scale: q8_0, q4_0, q4_1, q5_1,
 * iq4_nl.
 *
 * An encoder gets one block of finite elements x and optional weights w (the importance of each
 * column, at most 1, NULL: all equal). It chooses the stored values with the least weighted squared
 * error that its search finds. Encoding is a pure function of block and weights, so files are
 * reproducible. Layouts are in codec.h.
 */
#include "graph/quant/encode.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "base/ctx.h"
#include "base/half.h"
#include "graph/quant/block.h"
#include "graph/quant/fit.h"

static const float ones[32] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* With 255 steps clipping never pays: the largest element gets the last step. */
static void wf_encode_q8_0(const float *x, const float *w, void *block)
{
    wf_block_q8_0 *b = block;
    float most = 0;
    (void)w;
    for (int i = 0; i < 32; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    b->d = wf_fit_store(most / 127); /* -128 stays unused: the range is symmetric */
    /* Round by the scale as it was stored, not by the exact one. */
    float d = wf_f16_to_f32(b->d), inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++)
        b->q[i] = (int8_t)wf_fit_nearest(x[i] * inverse, -127, 127);
}

/* Stores elements i and i + 16 in byte i. */
static void store_halves(const float *x, float scale, float offset, float lo, float hi, uint8_t *q)
{
    const float inverse = scale != 0 ? 1 / scale : 0; /* scale 0: all elements are 0 */
    for (int i = 0; i < 16; i++) {
        int low = (int)(wf_fit_nearest((x[i] - offset) * inverse, lo, hi) - lo);
        int high = (int)(wf_fit_nearest((x[i + 16] - offset) * inverse, lo, hi) - lo);
        q[i] = (uint8_t)(low | high << 4); /* element i in the low half, as the decoder expects */
    }
}

static void wf_encode_q4_0(const float *x, const float *w, void *block)
{
    wf_block_q4_0 *b = block;
    b->d = wf_fit_store(wf_fit_scale(x, w ? w : ones, 32, -8, 7));
    store_halves(x, wf_f16_to_f32(b->d), 0, -8, 7, b->q);
}

/* A scale and an offset of 32 elements, as f16. */
typedef struct {
    uint16_t d, m;
} affine;

/* Tries the f16 offsets around the best one, and fits the scale to the rest for each. Integers are
 * 0 .. most. */
static affine fit_affine(const float *x, const float *w, int most)
{
    wf_fit fit = wf_fit_affine(x, w, 32, most, false);
    /* Clamp before converting: f16 has no larger finite value. */
    fit.offset = fit.offset < -WF_FIT_MOST  ? -WF_FIT_MOST
                 : fit.offset > WF_FIT_MOST ? WF_FIT_MOST
                                            : fit.offset;
    const uint16_t near = wf_f32_to_f16(fit.offset);
    float least = INFINITY;
    affine best = {wf_fit_store(fit.scale), near};
    for (int side = -1; side <= 1; side++) {
        uint16_t m = (uint16_t)(near + side); /* neighbouring f16 codes are neighbouring values */
        if ((m ^ near) & 0x8000 || (m & 0x7FFF) >= 0x7C00)
            continue; /* the sign changed, or it is not finite */
        float offset = wf_f16_to_f32(m), rest[32];
        for (int i = 0; i < 32; i++)
            rest[i] = x[i] - offset;
        uint16_t d = wf_fit_store(wf_fit_improve(rest, w, 32, fit.scale, 0, most));
        float error = wf_fit_error(rest, w, 32, wf_f16_to_f32(d), 0, 0, most);
        if (error < least) {
            least = error;
            best = (affine){d, m};
        }
    }
    return best;
}

static void wf_encode_q4_1(const float *x, const float *w, void *block)
{
    wf_block_q4_1 *b = block;
    affine a = fit_affine(x, w ? w : ones, 15);
    b->d = a.d;
    b->m = a.m;
    store_halves(x, wf_f16_to_f32(b->d), wf_f16_to_f32(b->m), 0, 15, b->q);
}

static void wf_encode_q5_1(const float *x, const float *w, void *block)
{
    wf_block_q5_1 *b = block;
    affine a = fit_affine(x, w ? w : ones, 31);
    const float d = wf_f16_to_f32(a.d), m = wf_f16_to_f32(a.m), inverse = d != 0 ? 1 / d : 0;
    memset(b, 0, sizeof *b);
    b->d = a.d;
    b->m = a.m;
    for (int i = 0; i < 32; i++) {
        const int q = (int)wf_fit_nearest((x[i] - m) * inverse, 0, 31);
        b->low[i % 16] |= (uint8_t)((q & 15) << i / 16 * 4);
        b->high[i / 8] |= (uint8_t)(q >> 4 << i % 8);
    }
}

static void wf_encode_iq4_nl(const float *x, const float *w, void *block)
{
    wf_block_iq4_nl *b = block;
    b->d = wf_fit_store(wf_fit_level_scale(x, w ? w : ones, 32));
    const float d = wf_f16_to_f32(b->d), inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 16; i++) {
        int low = wf_fit_level_index(x[i] * inverse),
            high = wf_fit_level_index(x[i + 16] * inverse);
        b->q[i] = (uint8_t)(low | high << 4);
    }
}

/* ---- Rows ---- */

/* One encoder per row of weft_quant.def; a row without one does not compile. */
#define ENCODER(A, NAME, name, word, ...) [WF_##NAME] = wf_encode_##word,
static wf_encode_fn *const encoders[WF_TYPE_COUNT] = {WF_QUANT_TABLE(ENCODER, 0)};

#define BLOCK_MAX 256
#define FITS(A, NAME, name, word, block, ...) \
    _Static_assert((block) <= BLOCK_MAX, "wf_quantize holds BLOCK_MAX elements of a block");
WF_QUANT_TABLE(FITS, 0)

/* NaN has no code, and infinities would make the scale infinite. */
static float made_finite(float x)
{
    if (isnan(x))
        return 0;
    return x < -WF_FIT_MOST ? -WF_FIT_MOST : x > WF_FIT_MOST ? WF_FIT_MOST : x;
}

/* Divides by the largest weight of the block, so that no sum overflows. Returns false if all are
 * 0. */
static bool weigh(const float *importance, float *w, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = importance[i] > most ? importance[i] : most;
    for (int i = 0; i < n && most > 0; i++)
        w[i] = importance[i] / most;
    return most > 0;
}

/* `importance` is [columns], shared by all rows; NULL: all equal. Blocks of a row follow each other
 * in `to`. */
void wf_quantize(wf_type type, const float *from, const float *importance, void *to, int64_t rows,
                 int64_t columns)
{
    const wf_type_info *info = wf_type_get(type);
    if (info->kind != WF_KIND_BLOCK) {
        wf_convert_from_f32(type, from, to, rows * columns);
        return;
    }
    wf_assert(columns % info->block == 0);
    float x[BLOCK_MAX], w[BLOCK_MAX];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += info->block) {
            for (int i = 0; i < info->block; i++)
                x[i] = made_finite(*from++);
            /* Weights of 0 throughout: encode as if there were none. */
            bool weighed = importance && weigh(importance + c, w, info->block);
            encoders[type](x, weighed ? w : NULL, to);
            to = (char *)to + info->block_bytes;
        }
}

/* SPDX-License-Identifier: MIT */
/* quant_pack.c - blocks of rows to panels and back, bit for bit. */
#include "base/check.h"
#include "base/thread.h"
#include "device/cpu/simd/quant.h"
#include "graph/quant/block.h"

enum { GRAIN = 256 * 1024 /* bytes worth waking a thread for */ };

static const wf_quant_layout layouts[] = {
    [WF_Q8_0] = {32, sizeof(wf_block_q8_0), 1, 0, 8, offsetof(wf_block_q8_0, q)},
    [WF_Q4_0] = {32, sizeof(wf_block_q4_0), 1, 0, 4, offsetof(wf_block_q4_0, q)},
    [WF_Q4_1] = {32, sizeof(wf_block_q4_1), 2, 0, 4, offsetof(wf_block_q4_1, q)},
    [WF_Q4_K] = {256, sizeof(wf_block_q4_k), 2, 16, 32, offsetof(wf_block_q4_k, q)},
    [WF_Q6_K] = {256, sizeof(wf_block_q6_k), 1, 16, 48, offsetof(wf_block_q6_k, low)},
};

const wf_quant_layout *wf_quant_layout_of(wf_type type)
{
    bool known = (size_t)type < sizeof layouts / sizeof *layouts && layouts[type].block;
    return known ? &layouts[type] : NULL;
}

static int64_t panel_count(const wf_dims *shape)
{
    return (shape->d[0] + WF_VL - 1) / WF_VL;
}

size_t wf_quant_packed_bytes(wf_type type, const wf_dims *shape)
{
    const wf_quant_layout *y = wf_quant_layout_of(type);
    size_t bytes;
    if (!y || shape->n != 2 || wf_dims_count(shape) == 0 || shape->d[1] % y->block != 0 ||
        !wf_mul_size((size_t)panel_count(shape), (size_t)wf_quant_panel_bytes(y, shape->d[1]),
                     &bytes))
        return 0;
    return bytes;
}

/* ---- What scales a block, between the file and a panel ---- */

/* A group's s and m of q4_K are a byte each in a panel. */
static void read_scales(wf_type type, const void *block, uint16_t half[2], uint8_t scale[16])
{
    if (type == WF_Q4_K) {
        const wf_block_q4_k *b = block;
        half[0] = b->d;
        half[1] = b->dmin;
        for (int i = 0; i < 8; i++) {
            int s, m;
            wf_q4_k_scales(b->scales, i, &s, &m);
            scale[2 * i] = (uint8_t)s;
            scale[2 * i + 1] = (uint8_t)m;
        }
    } else if (type == WF_Q6_K) {
        const wf_block_q6_k *b = block;
        half[0] = b->d;
        memcpy(scale, b->scales, sizeof b->scales);
    } else {
        memcpy(half, block, 2 * sizeof *half); /* of q8_0 and q4_0 the first alone counts */
    }
}

static void write_scales(wf_type type, void *block, const uint16_t half[2], const uint8_t scale[16])
{
    if (type == WF_Q4_K) {
        wf_block_q4_k *b = block;
        b->d = half[0];
        b->dmin = half[1];
        for (int i = 0; i < 4; i++) {
            const uint8_t *low = scale + 2 * i, *high = low + 8; /* groups i and i + 4 */
            b->scales[i] = (uint8_t)(low[0] | high[0] >> 4 << 6);
            b->scales[i + 4] = (uint8_t)(low[1] | high[1] >> 4 << 6);
            b->scales[i + 8] = (uint8_t)((high[0] & 15) | high[1] << 4);
        }
    } else if (type == WF_Q6_K) {
        wf_block_q6_k *b = block;
        b->d = half[0];
        memcpy(b->scales, scale, sizeof b->scales);
    } else {
        memcpy(block, half, type == WF_Q4_1 ? 2 * sizeof *half : sizeof *half);
    }
}

/* ---- One row, which is a lane of a panel ---- */

/* Where the things of block b begin. */
static uint8_t *scales_at(const wf_quant_layout *y, uint8_t *panel, int64_t b)
{
    return panel + b * (2 * y->halves + y->scales) * WF_VL;
}

static uint8_t *words_at(const wf_quant_layout *y, uint8_t *panel, int64_t k, int64_t b)
{
    return panel + wf_quant_scale_bytes(y, k) + b * y->words * 4 * WF_VL;
}

/* Where word i of a block lies in the file's block, in words after the first. */
static int word_of(wf_type type, int i)
{
    if (type != WF_Q6_K)
        return i;
    return i % 24 < 16 ? i / 24 * 16 + i % 24 : 32 + i / 24 * 8 + i % 24 - 16;
}

static void read_words(wf_type type, const uint8_t *block, uint32_t *to)
{
    const wf_quant_layout *y = wf_quant_layout_of(type);
    if (type == WF_Q6_K)
        for (int i = 0; i < y->words; i += 8) /* eight in a row stay together */
            memcpy(to + i, block + y->word_at + 4 * word_of(type, i), 32);
    else
        memcpy(to, block + y->word_at, 4 * (size_t)y->words);
}

enum {
    STAGE = 48
}; /* words of a row that are turned at a time: a multiple of every vector and block */

/* Turns n words of each lane; `to` is [n][WF_VL]. */
static void turn_words(uint32_t stage[WF_VL][STAGE], int n, uint8_t *to)
{
    for (int i = 0; i < n; i += WF_VL) {
        vf r[WF_VL];
        for (int lane = 0; lane < WF_VL; lane++)
            r[lane] = vi_as_vf(vi_load(stage[lane] + i));
        vf_transpose(r);
        for (int k = 0; k < WF_VL && i + k < n; k++)
            vi_store(to + 4 * (i + k) * WF_VL, vf_as_vi(r[k]));
    }
}

static void pack_scales(wf_type type, const uint8_t *const block[WF_VL], uint8_t *to)
{
    const wf_quant_layout *y = wf_quant_layout_of(type);
    for (int lane = 0; lane < WF_VL; lane++) {
        uint16_t half[2];
        uint8_t scale[16];
        read_scales(type, block[lane], half, scale);
        for (int i = 0; i < y->halves; i++)
            memcpy(to + 2 * (i * WF_VL + lane), &half[i], 2);
        for (int i = 0; i < y->scales; i++)
            to[(2 * y->halves + i) * WF_VL + lane] = scale[i];
    }
}

/* The panel of `count` rows; zeros for those that are missing. */
static void pack_panel(wf_type type, uint8_t *panel, const uint8_t *rows, size_t row_bytes,
                       int64_t count, int64_t k)
{
    static const union {
        uint16_t aligned;
        uint8_t byte[sizeof(wf_block_q6_k)];
    } zeros; /* a block of any type */
    const wf_quant_layout *y = wf_quant_layout_of(type);
    int64_t blocks = k / y->block, most = STAGE / y->words;
    uint32_t stage[WF_VL][STAGE];
    for (int64_t b = 0; b < blocks; b += most) {
        int64_t n = blocks - b < most ? blocks - b : most;
        for (int64_t i = 0; i < n; i++) {
            const uint8_t *block[WF_VL];
            for (int lane = 0; lane < WF_VL; lane++) {
                block[lane] = lane < count ? rows + (size_t)lane * row_bytes + (b + i) * y->bytes
                                           : zeros.byte;
                read_words(type, block[lane], stage[lane] + i * y->words);
            }
            pack_scales(type, block, scales_at(y, panel, b + i));
        }
        turn_words(stage, (int)n * y->words, words_at(y, panel, k, b));
    }
}

static void unpack_row(wf_type type, const uint8_t *panel, int lane, uint8_t *row, int64_t k)
{
    const wf_quant_layout *y = wf_quant_layout_of(type);
    for (int64_t b = 0; b < k / y->block; b++, row += y->bytes) {
        const uint8_t *scales = scales_at(y, (uint8_t *)panel, b);
        const uint8_t *words = words_at(y, (uint8_t *)panel, k, b) + 4 * lane;
        uint16_t half[2] = {0, 0};
        uint8_t scale[16] = {0};
        for (int i = 0; i < y->halves; i++)
            memcpy(&half[i], scales + 2 * (i * WF_VL + lane), 2);
        for (int i = 0; i < y->scales; i++)
            scale[i] = scales[(2 * y->halves + i) * WF_VL + lane];
        write_scales(type, row, half, scale);
        for (int i = 0; i < y->words; i++)
            memcpy(row + y->word_at + 4 * word_of(type, i), words + 4 * i * WF_VL, 4);
    }
}

void wf_quant_unpack_row(const void *panels, wf_type type, int64_t k, int64_t r, void *to)
{
    int64_t bytes = wf_quant_panel_bytes(wf_quant_layout_of(type), k);
    unpack_row(type, (const uint8_t *)panels + r / WF_VL * bytes, (int)(r % WF_VL), to, k);
}

/* ---- All rows ---- */

typedef struct {
    uint8_t *panels, *rows;
    wf_type type;
    int64_t n, k;
    size_t panel_bytes, row_bytes;
    bool pack; /* from rows to panels, or back */
} job;

static void some_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const job *w = arg;
    (void)thread;
    for (int64_t p = begin; p < end; p++) {
        uint8_t *panel = w->panels + (size_t)p * w->panel_bytes;
        uint8_t *rows = w->rows + (size_t)(p * WF_VL) * w->row_bytes;
        int64_t count = w->n - p * WF_VL < WF_VL ? w->n - p * WF_VL : WF_VL;
        if (w->pack)
            pack_panel(w->type, panel, rows, w->row_bytes, count, w->k);
        for (int lane = 0; lane < count && !w->pack; lane++)
            unpack_row(w->type, panel, lane, rows + (size_t)lane * w->row_bytes, w->k);
    }
}

static void move(job *w, const wf_dims *shape, int threads)
{
    const wf_quant_layout *y = wf_quant_layout_of(w->type);
    w->n = shape->d[0];
    w->k = shape->d[1];
    w->panel_bytes = (size_t)wf_quant_panel_bytes(y, w->k);
    w->row_bytes = (size_t)(w->k / y->block * y->bytes);
    wf_parallel_for(threads, panel_count(shape), GRAIN / (int64_t)w->panel_bytes + 1, some_panels,
                    w);
}

void wf_quant_pack(void *panels, const void *rows, wf_type type, const wf_dims *shape, int threads)
{
    job w = {.panels = panels, .rows = (uint8_t *)rows, .type = type, .pack = true};
    move(&w, shape, threads);
}

void wf_quant_unpack(const void *panels, void *rows, wf_type type, const wf_dims *shape,
                     int threads)
{
    job w = {.panels = (uint8_t *)panels, .rows = rows, .type = type};
    move(&w, shape, threads);
}

/* SPDX-License-Identifier: MIT */
/*
 * quant_pack.c - converts rows of blocks (the file's layout) to panels (quant.h) and back, bit for
 * bit.
 *
 * w [N, K] becomes ceil(N / WF_VL) panels; lane i of a panel is row i of that panel's WF_VL rows.
 * A panel holds the scales of all blocks, then their words, each WF_VL lanes wide, so that a kernel
 * loads the same word of WF_VL rows with one instruction. Unpacking gives the file's bytes again.
 */
#include "base/check.h"
#include "base/thread.h"
#include "device/cpu/simd/quant_block.h"
#include "graph/quant/block.h"

enum { GRAIN = 256 * 1024 /* bytes that justify waking a thread */ };

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

/* ---- Scales of a block, between the file's layout and a panel ---- */

/* q4_K and q5_K: a panel stores s and m of a part in a byte each. */
static inline void read_k(const uint8_t from[12], uint8_t scale[16])
{
    uint32_t word[3]; /* wf_q4_k_scales for four groups at once, one per byte */
    memcpy(word, from, sizeof word);
    const uint32_t four = 0x0f0f0f0f, six = 0x3f3f3f3f, top = 0x30303030;
    const uint32_t s[2] = {word[0] & six, (word[2] & four) | (word[0] >> 2 & top)};
    const uint32_t m[2] = {word[1] & six, (word[2] >> 4 & four) | (word[1] >> 2 & top)};
    for (int i = 0; i < 8; i++) {
        scale[2 * i] = ((const uint8_t *)s)[i];
        scale[2 * i + 1] = ((const uint8_t *)m)[i];
    }
}

static inline void write_k(uint8_t to[12], const uint8_t scale[16])
{
    for (int i = 0; i < 4; i++) {
        const uint8_t *low = scale + 2 * i, *high = low + 8; /* groups i and i + 4 */
        to[i] = (uint8_t)(low[0] | high[0] >> 4 << 6);
        to[i + 4] = (uint8_t)(low[1] | high[1] >> 4 << 6);
        to[i + 8] = (uint8_t)((high[0] & 15) | high[1] << 4);
    }
}

/* q3_K: wf_q3_k_scale for four groups at once, one per byte. */
static inline void read_q3_k(const uint8_t from[12], uint8_t scale[16])
{
    uint32_t word[3];
    memcpy(word, from, sizeof word);
    for (int i = 0; i < 4; i++) {
        uint32_t low = word[i % 2] >> i / 2 * 4 & 0x0f0f0f0f;
        uint32_t s = low | (word[2] >> 2 * i & 0x03030303) << 4;
        s = ((s | 0x80808080) - 0x20202020) ^ 0x80808080; /* each byte minus 32 */
        memcpy(scale + 4 * i, &s, sizeof s);
    }
}

static inline void write_q3_k(uint8_t to[12], const uint8_t scale[16])
{
    memset(to, 0, 12);
    for (int i = 0; i < 16; i++) {
        const int s = (int8_t)scale[i] + 32;
        to[i % 8] |= (uint8_t)((s & 15) << i / 8 * 4);
        to[8 + i % 4] |= (uint8_t)(s >> 4 << i / 4 * 2);
    }
}

static inline void read_iq4_xs(const wf_block_iq4_xs *from, uint8_t scale[8])
{
    for (int i = 0; i < 8; i++) {
        const int low = from->scales_low[i / 2] >> i % 2 * 4 & 15;
        scale[i] = (uint8_t)((low | (from->scales_high >> 2 * i & 3) << 4) - 32);
    }
}

static inline void write_iq4_xs(wf_block_iq4_xs *to, const uint8_t scale[8])
{
    to->scales_high = 0;
    memset(to->scales_low, 0, sizeof to->scales_low);
    for (int i = 0; i < 8; i++) {
        const int s = (int8_t)scale[i] + 32;
        to->scales_low[i / 2] |= (uint8_t)((s & 15) << i % 2 * 4);
        to->scales_high |= (uint16_t)(s >> 4 << 2 * i);
    }
}

/* Converts the integer scales of a block from the file's form to that of a panel, and back. */
WF_INLINE void read_scales(wf_type type, const void *block, uint8_t scale[16])
{
    switch (type) {
    case WF_Q4_K: read_k(((const wf_block_q4_k *)block)->scales, scale); break;
    case WF_Q5_K: read_k(((const wf_block_q5_k *)block)->scales, scale); break;
    case WF_Q6_K: memcpy(scale, ((const wf_block_q6_k *)block)->scales, 16); break;
    case WF_Q3_K: read_q3_k(((const wf_block_q3_k *)block)->scales, scale); break;
    case WF_Q2_K: memcpy(scale, ((const wf_block_q2_k *)block)->scales, 16); break;
    case WF_IQ4_XS: read_iq4_xs(block, scale); break;
    default: break;
    }
}

static void write_scales(wf_type type, void *block, const uint8_t scale[16])
{
    switch (type) {
    case WF_Q4_K: write_k(((wf_block_q4_k *)block)->scales, scale); break;
    case WF_Q5_K: write_k(((wf_block_q5_k *)block)->scales, scale); break;
    case WF_Q6_K: memcpy(((wf_block_q6_k *)block)->scales, scale, 16); break;
    case WF_Q3_K: write_q3_k(((wf_block_q3_k *)block)->scales, scale); break;
    case WF_Q2_K: memcpy(((wf_block_q2_k *)block)->scales, scale, 16); break;
    case WF_IQ4_XS: write_iq4_xs(block, scale); break;
    default: break;
    }
}

/* ---- One row: a lane of a panel ---- */

/* Addresses of the scales and the words of block b in a panel. */
static uint8_t *scales_at(const wf_quant_layout *y, uint8_t *panel, int64_t b)
{
    return panel + b * (2 * y->halves + y->scales) * WF_VL;
}

static uint8_t *words_at(const wf_quant_layout *y, uint8_t *panel, int64_t k, int64_t b)
{
    return panel + wf_quant_scale_bytes(y, k) + b * y->words * 4 * WF_VL;
}

/* Returns the index in the file's block of word i, in the order in which a panel stores words
 * before wf_quant_mix. For q6_K that is, for each half block: 8 words with low bits of runs 0 and 2
 * (of 32 elements), 8 with those of runs 1 and 3, 8 with high bits. */
WF_INLINE int word_of(wf_type type, int i)
{
    if (type != WF_Q6_K)
        return i;
    return i % 24 < 16 ? i / 24 * 16 + i % 24 : 32 + i / 24 * 8 + i % 24 - 16;
}

/* Packs the words of `count` rows; lanes past them become zeros. In every type four neighbouring
 * words of a panel are neighbours in the file, so loads take four words at a time, without the first
 * words % 4 of a block. Prefetches the next panel's rows meanwhile. */
WF_INLINE void pack_words(wf_type type, uint8_t *to, const uint8_t *rows, size_t row_bytes,
                          int count, int64_t k)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const int skip = y->words % 4, each = y->words - skip;
    const int64_t words = k / y->block * each;
    /* The next panel's rows are far apart: the hardware prefetcher does not follow them. */
    const uint8_t *ahead = rows + WF_VL * row_bytes, *near = ahead;
    const int64_t step = (int64_t)row_bytes * WF_VL * WF_VL / words + 1;
    for (int64_t w = 0; w < words; w += WF_VL) {
        int64_t at[WF_VL / 4];
        vf r[WF_VL];
        for (int i = 0; i < WF_VL / 4; i++) {
            const int64_t four = w + 4 * i < words ? w + 4 * i : w; /* past the end: any place */
            at[i] =
                four / each * y->bytes + y->word_at + 4 * word_of(type, skip + (int)(four % each));
        }
        for (int lane = 0; lane < WF_VL; lane++)
            r[lane] = lane < count ? vi_as_vf(vi_load_fours(rows + (size_t)lane * row_bytes, at))
                                   : vf_zero();
        for (ahead += step; near < ahead; near += 64)
            v_prefetch(near);
        vf_transpose(r);
        for (int i = 0; i < WF_VL && w + i < words; i++)
            vi_store(to + 4 * ((w + i) / each * y->words + skip + (w + i) % each) * WF_VL,
                     vf_as_vi(r[i]));
    }
}

/* Packs the first word of each block, where words are not a multiple of four. */
WF_INLINE void pack_first_words(wf_type type, uint8_t *to, const uint8_t *rows, size_t row_bytes,
                                int count, int64_t k)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    for (int64_t b = 0; b < k / y->block; b++, to += y->words * 4 * WF_VL) {
        uint32_t word[WF_VL] = {0};
        for (int lane = 0; lane < count; lane++)
            memcpy(&word[lane], rows + (size_t)lane * row_bytes + b * y->bytes + y->word_at,
                   sizeof *word);
        memcpy(to, word, sizeof word);
    }
}

/* ---- The highest bits of 3 and 5 ---- */

/* For each of `lanes` pairs of words swaps the bits of a in mask << n with those of b in mask. a may
 * be b. */
static inline void swap_bits(uint32_t *a, uint32_t *b, int lanes, int n, uint32_t mask)
{
    for (int i = 0; i < lanes; i++) {
        uint32_t bits = (a[i] >> n ^ b[i]) & mask;
        b[i] ^= bits;
        a[i] ^= bits << n;
    }
}

/* Converts the highest bits of a block, w [parts][lanes], from the file's order to that of quant.h,
 * or back. In a block of 256, bit g of byte j of word u belongs to element 4 u + j of part g. A block
 * of 32 has one word, whose bit i belongs to element i. */
static inline void spread_highs(wf_type type, uint32_t *w, int lanes, bool back)
{
    static const struct {
        int n;
        uint32_t mask;
    } swaps[4] = {{14, 0x0000cccc}, {7, 0x00aa00aa}, {2, 0x0c0c0c0c}, {1, 0x22222222}};
    if (wf_quant_parts(type) == 1) {
        for (int i = 0; i < 4; i++)
            swap_bits(w, w, lanes, swaps[back ? 3 - i : i].n, swaps[back ? 3 - i : i].mask);
        return;
    }
    /* Each step swaps one bit of the word's index with one of the bit's index: its own inverse. */
    for (int n = 4; n >= wf_quant_layouts[type].run; n /= 2)
        for (int u = 0; u < 8; u++)
            if ((u & n) == 0)
                swap_bits(w + u * lanes, w + (u + n) * lanes, lanes, n,
                          0xffffffff / ((1u << n) + 1));
}

/* The same for all blocks of a panel. */
WF_INLINE void spread_words(wf_type type, uint8_t *words, int64_t blocks)
{
    const int highs = wf_quant_parts(type);
    for (int64_t b = 0; b < blocks; b++, words += wf_quant_layouts[type].words * 4 * WF_VL) {
        uint32_t w[8 * WF_VL];
        memcpy(w, words, (size_t)(highs * WF_VL) * sizeof *w);
        spread_highs(type, w, WF_VL, false);
        memcpy(words, w, (size_t)(highs * WF_VL) * sizeof *w);
    }
}

/* ---- The six bits of q6_K ---- */

/* q6_K: converts a panel's words from the file's layout to that of quant.h, in place. */
static void mix_words(uint8_t *words, int64_t blocks)
{
    const int step = 8 * 4 * WF_VL;
    for (int64_t half = 0; half < 2 * blocks; half++, words += 3 * step)
        for (uint8_t *at = words; at < words + step; at += 4 * WF_VL) {
            vi word[3] = {vi_load(at), vi_load(at + step), vi_load(at + 2 * step)};
            wf_quant_mix(word);
            for (int i = 0; i < 3; i++)
                vi_store(at + i * step, word[i]);
        }
}

/* The inverse of wf_quant_mix, for one row. */
static void unmix_words(uint32_t w[3])
{
    uint32_t even = (w[0] & 0x0f0f0f0f) | (w[2] << 4 & 0xf0f0f0f0);
    uint32_t odd = (w[1] & 0xcfcfcfcf) | (w[0] >> 2 & 0x30303030);
    uint32_t high = (w[0] >> 4 & 0x03030303) | (w[1] >> 2 & 0x0c0c0c0c) | (w[2] & 0xf0f0f0f0);
    w[0] = even;
    w[1] = odd;
    w[2] = high;
}

/* ---- Panels ---- */

WF_INLINE void pack_scales(wf_type type, uint8_t *to, const uint8_t *rows, size_t row_bytes,
                           int count, int64_t k)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const int64_t blocks = k / y->block;
    for (int64_t b = 0; b < blocks; b++, to += (2 * y->halves + y->scales) * WF_VL)
        for (int lane = 0; lane < WF_VL; lane++) {
            uint16_t half[2] = {0};
            uint8_t scale[16] = {0};
            if (lane < count) {
                const uint8_t *block = rows + (size_t)lane * row_bytes + b * y->bytes;
                memcpy(half, block + y->half_at, (size_t)y->halves * sizeof *half);
                read_scales(type, block, scale);
            }
            for (int i = 0; i < y->halves; i++)
                memcpy(to + 2 * (i * WF_VL + lane), &half[i], 2);
            for (int i = 0; i < y->scales; i++)
                to[(2 * y->halves + i) * WF_VL + lane] = scale[i];
        }
}

/* Packs a panel. `type` is a constant, so the branches on it disappear; so does `count` if
 * WF_VL. */
WF_INLINE void pack_rows(wf_type type, uint8_t *panel, const uint8_t *rows, size_t row_bytes,
                         int count, int64_t k)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    uint8_t *words = panel + wf_quant_scale_bytes(y, k);
    if (count == WF_VL) {
        pack_scales(type, panel, rows, row_bytes, WF_VL, k);
        pack_words(type, words, rows, row_bytes, WF_VL, k);
    } else {
        pack_scales(type, panel, rows, row_bytes, count, k);
        pack_words(type, words, rows, row_bytes, count, k);
    }
    if (y->words % 4)
        pack_first_words(type, words, rows, row_bytes, count, k);
    if (y->bits == 6)
        mix_words(words, k / y->block);
    if (y->bits % 2)
        spread_words(type, words, k / y->block);
}

#define PACK_PANEL(T)                                                                      \
    static void pack_##T(uint8_t *panel, const uint8_t *rows, size_t row_bytes, int count, \
                         int64_t k)                                                        \
    {                                                                                      \
        pack_rows(WF_##T, panel, rows, row_bytes, count, k);                               \
    }
WF_QUANT_TYPES(PACK_PANEL)

/* By type: packs `count` rows into a panel; missing rows become zeros. */
#define PACK_ENTRY(T) [WF_##T] = pack_##T,
static void (*const pack_panel[])(uint8_t *panel, const uint8_t *rows, size_t row_bytes, int count,
                                  int64_t k) = {WF_QUANT_TYPES(PACK_ENTRY)};

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
        memcpy(row + y->half_at, half, (size_t)y->halves * sizeof *half);
        write_scales(type, row, scale);
        uint32_t w[48];
        for (int i = 0; i < y->words; i++)
            memcpy(&w[i], words + 4 * i * WF_VL, 4);
        if (y->bits % 2)
            spread_highs(type, w, 1, true);
        for (int i = 0; i < 16 && y->bits == 6; i++) {
            uint32_t *at = w + i / 8 * 24 + i % 8, three[3] = {at[0], at[8], at[16]};
            unmix_words(three);
            for (int j = 0; j < 3; j++)
                at[8 * j] = three[j];
        }
        for (int i = 0; i < y->words; i++)
            memcpy(row + y->word_at + 4 * word_of(type, i), &w[i], 4);
    }
}

void wf_quant_unpack_row(const void *panels, wf_type type, int64_t k, int64_t r, void *to)
{
    int64_t bytes = wf_quant_panel_bytes(wf_quant_layout_of(type), k);
    unpack_row(type, (const uint8_t *)panels + r / WF_VL * bytes, (int)(r % WF_VL), to, k);
}

/* ---- Whole weights ---- */

/* Arguments of the workers. */
typedef struct {
    uint8_t *panels, *rows;
    wf_type type;
    int64_t n, k;
    size_t panel_bytes, row_bytes;
    bool pack; /* true: rows to panels; false: back */
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
            pack_panel[w->type](panel, rows, w->row_bytes, (int)count, w->k);
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

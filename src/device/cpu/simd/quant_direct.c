/* SPDX-License-Identifier: MIT */
/*
 * quant_direct.c - products with a q8_0 weight as a file has it, a row of blocks after the other.
 *
 * A model then computes as soon as its file is mapped. What a panel would hold is made on the way: of WF_VL
 * rows the same words are brought into one vector, a block or two at a time. Reading such a weight out of
 * memory takes longer than that. The numbers that are added up, and their order, are those of quant.c.
 */
#include "device/cpu/simd/quant_block.h"
#include "graph/quant/block.h"

enum {
    WORDS = 8, /* of integers of a block */
    BYTES = sizeof(wf_block_q8_0),
    INTEGERS = offsetof(wf_block_q8_0, q),
    AHEAD = 512, /* bytes of a row */
    ROWS = 4     /* of x at a time */
};

/* WF_VL rows, or fewer: the last one then stands for those that are missing. */
typedef struct {
    const uint8_t *first;
    int64_t step; /* bytes from one to the next */
    int count;
} rows;

static rows rows_of(const wf_view *w, int64_t first, int64_t apart)
{
    const int64_t left = w->dim[0] - first, bytes = w->dim[1] / WF_QUANT_BLOCK * BYTES;
    return (rows){(const uint8_t *)w->data + first * bytes, apart * bytes,
                  left < WF_VL ? (int)left : WF_VL};
}

WF_INLINE int64_t row_at(bool whole, const rows *r, int i)
{
    return (whole || i < r->count ? i : r->count - 1) * r->step;
}

/* Words of a block of the first row, and of the same block of the others. */
WF_INLINE void load_words(bool whole, const rows *r, const uint8_t *block, vi word[WORDS])
{
    for (int half = 0; half < 2; half++) {
        vf x[4];
        for (int i = 0; i < 4; i++) {
            int64_t at[WF_VL / 4];
            for (int j = 0; j < WF_VL / 4; j++)
                at[j] = row_at(whole, r, 4 * j + i);
            x[i] = vi_as_vf(vi_load_fours(block + INTEGERS + 16 * half, at));
        }
        vf_transpose_fours(x);
        for (int i = 0; i < 4; i++)
            word[4 * half + i] = vf_as_vi(x[i]);
    }
}

WF_INLINE void load_scales(bool whole, const rows *r, const uint8_t *block, uint16_t scale[WF_VL])
{
    for (int i = 0; i < WF_VL; i++)
        memcpy(&scale[i], block + row_at(whole, r, i), sizeof *scale);
}

/* ---- Few rows of x ---- */

/* Of integers that 128 has been added to, which `off` takes away again. */
WF_INLINE vi dot_digits(const vi word[WORDS], const int32_t *digits, const int32_t *off)
{
    vq high = vq_zero(), low = vq_zero();
#pragma GCC unroll 8
    for (int i = 0; i < WORDS; i++) {
        high = vq_dot(high, word[i], digits + i);
        low = vq_dot(low, word[i], digits + WF_QUANT_FOURS + i);
    }
    vi sum = vi_add(vi_set(off[0]), vi_set(off[1]));
    return vi_add(sum, vi_add(vq_sum(high, 8), vq_sum(low, 0)));
}

/* Adds to c[row] the products with block b of x. */
WF_INLINE void add_block(int count, vi word[WORDS], vf scale, const wf_quant_rows *x, int64_t b,
                         vf *c)
{
    for (int i = 0; i < WORDS && WF_VQ_WIDE; i++)
        word[i] = vi_xor(word[i], vi_set((int32_t)0x80808080));
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        int64_t at = i * (x->k / WF_QUANT_BLOCK) + b;
        const int32_t *numbers = x->pair + at * WF_QUANT_PAIRS;
        vi sum = WF_VQ_WIDE ? dot_digits(word, numbers, x->off + 2 * at)
                            : wf_quant_dot_pairs(word, numbers);
        c[i] = vf_fma(vi_to_vf(sum), vf_mul(scale, vf_set(x->scale[at])), c[i]);
    }
}

/* Brings near what is wanted of each row soon, or of the row after it. */
WF_INLINE void fetch_ahead(bool whole, const rows *r, const uint8_t *block)
{
    for (int i = 0; i < WF_VL; i++)
        v_prefetch(block + row_at(whole, r, i) + AHEAD);
}

WF_INLINE void few_rows(bool whole, int count, const rows *r, const wf_quant_rows *x, float *out)
{
    const int64_t blocks = x->k / WF_QUANT_BLOCK;
    const uint8_t *block = r->first;
    vf c[ROWS];
    for (int i = 0; i < count; i++)
        c[i] = vf_zero();
    for (int64_t b = 0; b < blocks; b++, block += BYTES) {
        vi word[WORDS];
        uint16_t scale[WF_VL];
        if (b % 2 == 0) /* a cache line is about two blocks */
            fetch_ahead(whole, r, block);
        load_scales(whole, r, block, scale);
        load_words(whole, r, block, word);
        add_block(count, word, vf_load_f16(scale), x, b, c);
    }
    for (int i = 0; i < count; i++)
        vf_store(out + i * WF_VL, c[i]);
}

#define FEW_ROWS(count_)                                                        \
    static void few_##count_(const rows *r, const wf_quant_rows *x, float *out) \
    {                                                                           \
        if (r->count == WF_VL)                                                  \
            few_rows(true, count_, r, x, out);                                  \
        else                                                                    \
            few_rows(false, count_, r, x, out);                                 \
    }
FEW_ROWS(1)
FEW_ROWS(2)
FEW_ROWS(3)
FEW_ROWS(4)

void wf_quant_direct_few(const wf_view *w, int64_t first, int64_t apart, const wf_quant_rows *x,
                         int count, float *out)
{
    static void (*const few[ROWS])(const rows *, const wf_quant_rows *, float *) = {few_1, few_2,
                                                                                    few_3, few_4};
    rows r = rows_of(w, first, apart);
    few[count - 1](&r, x, out);
}

/* ---- Many rows of x ---- */

WF_INLINE void pack_blocks(bool whole, const rows *r, const uint8_t *block, int blocks,
                           uint16_t *scales, uint8_t *words)
{
    for (int b = 0; b < blocks; b++, block += BYTES, scales += WF_VL) {
        vi word[WORDS];
        if (b % 2 == 0)
            fetch_ahead(whole, r, block);
        load_words(whole, r, block, word);
        load_scales(whole, r, block, scales);
        for (int i = 0; i < WORDS; i++, words += 4 * WF_VL)
            vi_store(words, word[i]);
    }
}

wf_quant_panel wf_quant_direct_part(const wf_view *w, int64_t panel, int64_t block, int blocks,
                                    void *to)
{
    const wf_quant_layout *y = wf_quant_layout_of(WF_Q8_0);
    const rows r = rows_of(w, panel * WF_VL, 1);
    const uint8_t *from = r.first + block * BYTES;
    uint8_t *words = (uint8_t *)to + wf_quant_scale_bytes(y, (int64_t)blocks * WF_QUANT_BLOCK);
    if (r.count == WF_VL)
        pack_blocks(true, &r, from, blocks, to, words);
    else
        pack_blocks(false, &r, from, blocks, to, words);
    return (wf_quant_panel){to, words, 2 * WF_VL, WORDS * 4 * WF_VL};
}

/* SPDX-License-Identifier: MIT */
/*
 * tile_emulated.h - the instructions of tile.h in plain C, bitwise equal to the processor's, for
 * tests on machines without AMX. A call that the processor would reject aborts the program.
 */
#ifndef WF_DEVICE_CPU_AMX_TILE_EMULATED_H
#define WF_DEVICE_CPU_AMX_TILE_EMULATED_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One instance per thread and per file that uses tiles. */
static _Thread_local struct {
    wf_tile_config config;
    uint8_t row[8][16][64]; /* tile, row, byte */
} wf_tiles;

static inline void wf_tile_expect(bool legal)
{
    if (!legal)
        abort();
}

static inline void wf_tile_configure(const wf_tile_config *config)
{
    static const uint8_t zeros[14];
    /* The only palette with tiles, and no interrupted instruction. */
    wf_tile_expect(config->palette == 1 && config->first_row == 0 &&
                   memcmp(config->reserved, zeros, sizeof zeros) == 0);
    for (int i = 0; i < 16; i++) {
        bool used = config->rows[i] > 0;
        wf_tile_expect(used == (config->bytes[i] > 0) && (!used || i < 8) &&
                       config->rows[i] <= 16 && config->bytes[i] <= 64);
    }
    wf_tiles.config = *config;
    memset(wf_tiles.row, 0, sizeof wf_tiles.row);
}

static inline void wf_tile_release(void)
{
    memset(&wf_tiles, 0, sizeof wf_tiles);
}

static inline void wf_tile_zero(int t)
{
    wf_tile_expect(wf_tiles.config.rows[t] > 0);
    memset(wf_tiles.row[t], 0, sizeof wf_tiles.row[t]);
}

static inline void wf_tile_load(int t, const void *from, int64_t stride)
{
    wf_tile_zero(t);
    for (int i = 0; i < wf_tiles.config.rows[t]; i++)
        memcpy(wf_tiles.row[t][i], (const char *)from + i * stride, wf_tiles.config.bytes[t]);
}

static inline void wf_tile_store(int t, void *to, int64_t stride)
{
    wf_tile_expect(wf_tiles.config.rows[t] > 0);
    for (int i = 0; i < wf_tiles.config.rows[t]; i++)
        memcpy((char *)to + i * stride, wf_tiles.row[t][i], wf_tiles.config.bytes[t]);
}

/* Aborts unless the three tiles differ and their shapes match. */
static inline void wf_tile_expect_product(int c, int a, int b)
{
    const wf_tile_config *f = &wf_tiles.config;
    wf_tile_expect(c != a && c != b && a != b && f->rows[c] > 0 && f->rows[a] > 0 &&
                   f->rows[b] > 0);
    wf_tile_expect(f->rows[c] == f->rows[a] && f->bytes[c] == f->bytes[b] &&
                   f->bytes[a] == 4 * f->rows[b] && f->bytes[c] % 4 == 0);
}

/* c [M][N] i32 += a [M][4 K] b [K][4 N], four i8 products per step. */
static inline void wf_tile_multiply_i8(int c, int a, int b)
{
    wf_tile_expect_product(c, a, b);
    for (int m = 0; m < wf_tiles.config.rows[c]; m++)
        for (int k = 0; k < wf_tiles.config.rows[b]; k++) {
            int32_t sum[16];
            const int8_t *x = (const int8_t *)wf_tiles.row[a][m] + 4 * k;
            const int8_t *y = (const int8_t *)wf_tiles.row[b][k];
            memcpy(sum, wf_tiles.row[c][m], sizeof sum);
            for (int n = 0; n < 16; n++, y += 4)
                sum[n] += x[0] * y[0] + x[1] * y[1] + x[2] * y[2] + x[3] * y[3];
            memcpy(wf_tiles.row[c][m], sum, sizeof sum);
        }
}

/* Subnormal operands and results become 0. */
static inline float wf_tile_flush(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

static inline float wf_tile_bf16(const uint8_t *from)
{
    uint16_t half;
    float x;
    memcpy(&half, from, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&x, &bits, sizeof x);
    return wf_tile_flush(x);
}

/* Even and odd elements are summed separately from 0, then both sums are added, then c. The product
 * of two bf16 is exact in f32. */
static inline void wf_tile_multiply_bf16(int c, int a, int b)
{
    wf_tile_expect_product(c, a, b);
    for (int m = 0; m < wf_tiles.config.rows[c]; m++) {
        float part[2][16] = {{0}}, sum[16];
        memcpy(sum, wf_tiles.row[c][m], sizeof sum);
        for (int k = 0; k < wf_tiles.config.rows[b]; k++)
            for (int odd = 0; odd < 2; odd++) {
                float x = wf_tile_bf16(wf_tiles.row[a][m] + 4 * k + 2 * odd);
                for (int n = 0; n < 16; n++) {
                    float y = wf_tile_bf16(wf_tiles.row[b][k] + 4 * n + 2 * odd);
                    part[odd][n] = wf_tile_flush(part[odd][n] + x * y);
                }
            }
        for (int n = 0; n < 16; n++)
            sum[n] = wf_tile_flush(wf_tile_flush(sum[n]) + wf_tile_flush(part[0][n] + part[1][n]));
        memcpy(wf_tiles.row[c][m], sum, sizeof sum);
    }
}

#endif

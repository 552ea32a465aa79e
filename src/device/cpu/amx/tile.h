/* SPDX-License-Identifier: MIT */
/*
 * tile.h - the tile instructions. Tile numbers are literals; a tile has up to 16 rows of 64 bytes.
 *
 *     wf_tile_zero(t)                     wf_tile_load(t, from, stride)      wf_tile_store(t, to, stride)
 *     wf_tile_multiply_i8(c, a, b)        c i32 [M][N] += a i8 [M][4 K] by b [K][N][4]
 *     wf_tile_multiply_bf16(c, a, b)      c f32 [M][N] += a bf16 [M][2 K] by b [K][N][2]
 *
 * wf_tile_configure sets the shapes of a thread; wf_tile_release frees the tiles, since a thread
 * with tiles costs more to switch. These are not the compiler's intrinsics: some compilers do not
 * know that tile loads read memory, and move earlier stores behind them.
 */
#ifndef WF_DEVICE_CPU_AMX_TILE_H
#define WF_DEVICE_CPU_AMX_TILE_H

#include <stdint.h>

/* The memory layout of ldtilecfg. */
typedef struct {
    uint8_t palette, first_row, reserved[14];
    uint16_t bytes[16]; /* bytes per row of each tile */
    uint8_t rows[16];
} wf_tile_config;
_Static_assert(sizeof(wf_tile_config) == 64, "ldtilecfg reads 64 bytes");

#if WF_AMX_EMULATED
#include "device/cpu/amx/tile_emulated.h"
#else

static inline void wf_tile_configure(const wf_tile_config *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*config));
}

static inline void wf_tile_release(void)
{
    __asm__ volatile("tilerelease");
}

/* clang-format off */
#define wf_tile_zero(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define wf_tile_load(t, from, stride)                               \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t                \
                     : : "r"(from), "r"((int64_t)(stride)) : "memory")
#define wf_tile_store(t, to, stride)                                \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)"            \
                     : : "r"(to), "r"((int64_t)(stride)) : "memory")
/* AT&T syntax lists operands from right to left. */
#define wf_tile_multiply_i8(c, a, b) \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define wf_tile_multiply_bf16(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
/* clang-format on */
#endif

#endif

/* SPDX-License-Identifier: MIT */
/*
 * tile.h - the instructions on tiles. Tile numbers are literals; a tile has up to 16 rows of 64 bytes.
 *
 *     wf_tile_zero(t)                     wf_tile_load(t, from, stride)      wf_tile_store(t, to, stride)
 *     wf_tile_multiply_i8(c, a, b)        c i32 [M][N] += a i8 [M][4 K] by b [K][N][4]
 *     wf_tile_multiply_bf16(c, a, b)      c f32 [M][N] += a bf16 [M][2 K] by b [K][N][2]
 *
 * Shapes are set for each thread by wf_tile_configure, and wf_tile_release gives the tiles back: a thread that
 * holds some costs more to switch. Not the intrinsics of compilers, some of which do not say that loads read
 * memory, so that a store before them may come too late.
 */
#ifndef WF_DEVICE_CPU_AMX_TILE_H
#define WF_DEVICE_CPU_AMX_TILE_H

#include <stdint.h>

/* As ldtilecfg reads it. */
typedef struct {
    uint8_t palette, first_row, reserved[14];
    uint16_t bytes[16]; /* of a row, by tile */
    uint8_t rows[16];
} wf_tile_config;
_Static_assert(sizeof(wf_tile_config) == 64, "the processor reads 64 bytes");

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
/* Operands of the assembler stand from right to left. */
#define wf_tile_multiply_i8(c, a, b) \
    __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#define wf_tile_multiply_bf16(c, a, b) \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
/* clang-format on */
#endif

#endif

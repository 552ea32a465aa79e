/* SPDX-License-Identifier: MIT */
/*
 * amx.h - GEMM kernels for x86's matrix unit (AMX-INT8, AMX-BF16) with many rows.
 *
 * The files of this folder use AVX-512 vectors (simd.h) beside tiles, and link to the AVX-512 set,
 * which also provides the packed layout and all other kernels. Builds with tests compile them
 * twice: with instructions, as the set "amx", and with tiles in plain C, as the set "amx_emulated",
 * which any machine with AVX-512 can test (cmake/simd.cmake).
 */
#ifndef WF_DEVICE_CPU_AMX_AMX_H
#define WF_DEVICE_CPU_AMX_AMX_H

#include "device/cpu/simd/simd.h"

/* A name with the set's suffix. */
#define WF_AMX(name) WF_SIMD_NAME(name, WF_AMX_SET)

/* The table's arrays, each in the file of its name. */
extern const wf_kernel WF_AMX(wf_amx_gemm)[], WF_AMX(wf_amx_quant)[];

#endif

/* SPDX-License-Identifier: MIT */
/*
 * amx.h - kernels for the matrix unit of x86 (tiles, AMX-INT8, AMX-BF16): products of many rows.
 *
 * The files of this folder are written in the vectors of AVX-512 (simd.h) beside tiles, and use what is
 * compiled for that set; it also has the layout of packed weights, and all other kernels. They are compiled
 * twice in builds with tests: with instructions, as the set "amx", and with tiles in plain C, as the set
 * "amx_emulated", which any machine with AVX-512 can test (cmake/simd.cmake).
 */
#ifndef WF_DEVICE_CPU_AMX_AMX_H
#define WF_DEVICE_CPU_AMX_AMX_H

#include "device/cpu/simd/simd.h"

/* The name of something that both have their own of. */
#define WF_AMX(name) WF_SIMD_NAME(name, WF_AMX_SET)

/* The arrays of the table, each in the file of its name. */
extern const wf_kernel WF_AMX(wf_amx_gemm)[], WF_AMX(wf_amx_quant)[];

#endif

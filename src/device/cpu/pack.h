/* SPDX-License-Identifier: MIT */
/*
 * pack.h - packed weights, the layout that GEMM reads fastest: device slots for devices that run
 * the cpu's kernels on host memory.
 *
 * A weight [N, K] of f32, f16 or bf16 is stored in panels of WF_GEMM_COLUMNS rows. A panel holds
 * the elements of its rows for one k contiguously, with zeros for missing rows:
 *
 *     [ceil(N / columns)][K][columns]
 */
#ifndef WF_DEVICE_CPU_PACK_H
#define WF_DEVICE_CPU_PACK_H

#include "device/device.h"

size_t wf_cpu_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape);
wf_status wf_cpu_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape);
wf_status wf_cpu_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape);

#endif

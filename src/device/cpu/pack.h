/* SPDX-License-Identifier: MIT */
/*
 * pack.h - weights in the layout that matrix products want: slots for a device that runs the cpu's
 * kernels on memory of the host.
 *
 * A weight [N, K] of f32, f16 or bf16 is kept in panels of WF_GEMM_COLUMNS rows, each with all of
 * these rows' elements of one k side by side, zeros where there is no row any more:
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

/* SPDX-License-Identifier: MIT */
/*
 * cpu.h - what another device needs to run the cpu's kernels: their table, and memory, queues and
 * events of the host.
 */
#ifndef WF_DEVICE_CPU_CPU_H
#define WF_DEVICE_CPU_CPU_H

#include "device/cpu/pack.h"
#include "device/device.h"

#define WF_CPU_MAX_THREADS 1024

extern const wf_kernel *const wf_cpu_kernels[];

wf_status wf_cpu_buffer_new(wf_device *device, size_t bytes, wf_buffer **out);
void wf_cpu_buffer_free(wf_buffer *buffer);
wf_status wf_cpu_buffer_map(wf_device *device, const void *from, size_t bytes, wf_buffer **out);
wf_status wf_cpu_queue_new(wf_device *device, wf_queue **out);
void wf_cpu_queue_free(wf_queue *queue);
wf_status wf_cpu_queue_wait(wf_queue *queue);
wf_status wf_cpu_copy_in(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                         size_t bytes);
wf_status wf_cpu_copy_out(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                          size_t bytes);
wf_status wf_cpu_event_new(wf_device *device, wf_event **out);
void wf_cpu_event_free(wf_event *event);
wf_status wf_cpu_event_record(wf_queue *queue, wf_event *event);
wf_status wf_cpu_event_wait(wf_event *event);

/* The slots of wf_device_ops but for those of the device itself and of its own buffers. */
#define WF_CPU_HOST_SLOTS                                                                        \
    .packed_bytes = wf_cpu_packed_bytes, .pack = wf_cpu_pack, .unpack = wf_cpu_unpack,           \
    .buffer_map = wf_cpu_buffer_map, .queue_new = wf_cpu_queue_new,                              \
    .queue_free = wf_cpu_queue_free, .queue_wait = wf_cpu_queue_wait, .copy_in = wf_cpu_copy_in, \
    .copy_out = wf_cpu_copy_out, .event_new = wf_cpu_event_new, .event_free = wf_cpu_event_free, \
    .event_record = wf_cpu_event_record, .event_wait = wf_cpu_event_wait

#endif

/* SPDX-License-Identifier: MIT */
/* device.h - how the host's side of the device is split: memory and queues (queue.c), running a plan
 * (step.c), and opening the device (device.c). */
#ifndef WF_DEVICE_CUDA_DEVICE_H
#define WF_DEVICE_CUDA_DEVICE_H

#include "device/cuda/cuda.h"

/* The device's GPU becomes that of the calling thread, which is another one where several are in use: before anything is
 * made or launched. */
wf_status wf_cuda_enter(const wf_device *d);

wf_status wf_cuda_buffer_new(wf_device *d, size_t bytes, wf_buffer **out);
void wf_cuda_buffer_free(wf_buffer *b);
size_t wf_cuda_available(const wf_device *d);
wf_status wf_cuda_queue_new(wf_device *d, wf_queue **out);
void wf_cuda_queue_free(wf_queue *queue);
wf_status wf_cuda_queue_wait(wf_queue *q);
wf_status wf_cuda_copy_in(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                          size_t bytes);
wf_status wf_cuda_copy_out(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                           size_t bytes);
wf_status wf_cuda_event_new(wf_device *d, wf_event **out);
void wf_cuda_event_free(wf_event *event);
wf_status wf_cuda_event_record(wf_queue *q, wf_event *event);
wf_status wf_cuda_event_wait(wf_event *event);

/* peak.cu */
wf_status wf_cuda_peak(wf_device *d, int threads, size_t bytes, wf_device_peak *out);

/* How plans run: as one CUDA graph, captured when their memory has been placed; or, when the device is to
 * tell the time of each step, one step after the other. */
wf_status wf_cuda_prepare_plan(wf_plan_exec *e);
wf_status wf_cuda_run_plan(wf_plan_exec *e);
void wf_cuda_free_plan(wf_plan_exec *e);

#endif

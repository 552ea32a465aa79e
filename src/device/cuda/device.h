/* SPDX-License-Identifier: MIT */
/* device.h - the host side of the device: memory and queues (queue.c), running a plan
 * (step.c), invalid input reported by kernels (fault.c), and opening the device (device.c). */
#ifndef WF_DEVICE_CUDA_DEVICE_H
#define WF_DEVICE_CUDA_DEVICE_H

#include "device/cuda/cuda.h"

/* Makes the device's GPU current in the calling thread: CUDA's current device is per thread. Call
 * it before every allocation and launch. */
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

/* Allocates and frees the fault words of a plan's steps. free accepts NULL. */
wf_status wf_cuda_faults_new(wf_plan_exec *e, wf_cuda_faults **out);
void wf_cuda_faults_free(wf_cuda_queue *q, wf_cuda_faults *f);
/* Fails with the first reported fault and clears all. Call it when the stream is idle. */
wf_status wf_cuda_faults_look(wf_cuda_queue *q);

/* peak.cu */
wf_status wf_cuda_peak(wf_device *d, int threads, size_t bytes, wf_device_peak *out);

/* Runs a plan as one CUDA graph, captured once its memory is placed. When step times are requested,
 * it launches the steps one by one instead. */
wf_status wf_cuda_prepare_plan(wf_plan_exec *e);
wf_status wf_cuda_run_plan(wf_plan_exec *e);
void wf_cuda_free_plan(wf_plan_exec *e);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * queue.c - device memory, queues and events.
 *
 * Uploads go through slots. The host copies the bytes into pinned memory, the upload stream copies
 * them to the device beside running kernels, and the kernel stream moves them to their buffer in
 * queue order. A caller can therefore write the next batch while the current step reads the last
 * one.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/cuda/device.h"

/* CUDA's current device is a property of the thread: call this before any other call of the
 * runtime. */
wf_status wf_cuda_enter(const wf_device *d)
{
    return wf_cuda_try(d->ctx, cudaSetDevice(((const wf_cuda_device *)d)->ordinal),
                       "choosing the GPU");
}

/* ---- Buffers ---- */

wf_status wf_cuda_buffer_new(wf_device *d, size_t bytes, wf_buffer **out)
{
    size_t available = 0, total = 0;
    *out = NULL;
    WF_TRY(wf_cuda_enter(d));
    *out = wf_mem_new(d->ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    **out = (wf_buffer){.device = d, .bytes = bytes};
    /* CUDA returns NULL for 0 bytes. */
    cudaError_t error = cudaMalloc(&(*out)->base, bytes > 0 ? bytes : 1);
    if (error == cudaSuccess)
        error = cudaMemset((*out)->base, 0, bytes);
    /* The queues' streams do not wait for the default stream, which runs the memset. */
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cudaStreamLegacy);
    if (error == cudaSuccess)
        return WF_OK;
    wf_cuda_buffer_free(*out); /* cudaFree accepts NULL */
    *out = NULL;
    cudaGetLastError(); /* an allocation failure is not sticky: clear it for the next call */
    if (error != cudaErrorMemoryAllocation)
        return wf_cuda_try(d->ctx, error, "allocating memory");
    cudaMemGetInfo(&available, &total);
    return wf_fail(d->ctx, WF_ERR_MEMORY,
                   "cuda: cannot allocate %zu bytes: the GPU has %zu bytes, %zu of them free",
                   bytes, total, available);
}

void wf_cuda_buffer_free(wf_buffer *b)
{
    cudaFree(b->base);
    wf_mem_free(b->device->ctx, b);
}

/* Free bytes, minus the slots of the first session. */
size_t wf_cuda_available(const wf_device *d)
{
    const size_t slots = d->session_count == 0 ? WF_CUDA_LANDING : 0;
    size_t available = 0, total;
    if (cudaSetDevice(((const wf_cuda_device *)d)->ordinal) != cudaSuccess ||
        cudaMemGetInfo(&available, &total) != cudaSuccess)
        return 0;
    return available > slots ? available - slots : 1; /* 0 means unknown */
}

/* ---- Queues ---- */

/* Also frees a queue that open_queue left half-made. Waits first: the slots may be in use. */
void wf_cuda_queue_free(wf_queue *queue)
{
    wf_cuda_queue *q = (wf_cuda_queue *)queue;
    if (q->stream)
        cudaStreamSynchronize(q->stream);
    for (int i = 0; i < WF_CUDA_SLOTS; i++) {
        if (q->slots[i].arrived)
            cudaEventDestroy(q->slots[i].arrived);
        if (q->slots[i].taken)
            cudaEventDestroy(q->slots[i].taken);
    }
    cudaFree(q->landing);
    cudaFreeHost(q->staging);
    if (q->upload)
        cudaStreamDestroy(q->upload);
    if (q->stream)
        cudaStreamDestroy(q->stream);
    wf_mem_free(queue->device->ctx, q);
}

static wf_status open_queue(wf_ctx *ctx, wf_cuda_queue *q)
{
    const size_t bytes = WF_CUDA_LANDING;
    /* Does not wait for the default stream, nor the other way round. */
    WF_TRY(wf_cuda_try(ctx, cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking),
                       "making a stream"));
    WF_TRY(wf_cuda_try(ctx, cudaStreamCreateWithFlags(&q->upload, cudaStreamNonBlocking),
                       "making a stream"));
    WF_TRY(wf_cuda_try(ctx, cudaMallocHost((void **)&q->staging, bytes), "pinning host memory"));
    WF_TRY(wf_cuda_try(ctx, cudaMalloc((void **)&q->landing, bytes), "allocating memory"));
    for (int i = 0; i < WF_CUDA_SLOTS; i++) {
        wf_cuda_slot *s = &q->slots[i];
        WF_TRY(wf_cuda_try(ctx, cudaEventCreateWithFlags(&s->arrived, cudaEventDisableTiming),
                           "making an event"));
        WF_TRY(wf_cuda_try(ctx, cudaEventCreateWithFlags(&s->taken, cudaEventDisableTiming),
                           "making an event"));
    }
    return WF_OK;
}

wf_status wf_cuda_queue_new(wf_device *d, wf_queue **out)
{
    *out = NULL;
    WF_TRY(wf_cuda_enter(d));
    wf_cuda_queue *q = wf_mem_new(d->ctx, sizeof *q);
    if (!q)
        return WF_ERR_MEMORY;
    q->head.device = d;
    wf_status status = open_queue(d->ctx, q);
    if (status == WF_OK)
        *out = &q->head;
    else
        wf_cuda_queue_free(&q->head);
    return status;
}

/* Reports CUDA errors only. copy_out, and a timed run, report fault words. */
wf_status wf_cuda_queue_wait(wf_queue *q)
{
    return wf_cuda_try(q->device->ctx, cudaStreamSynchronize(((wf_cuda_queue *)q)->stream),
                       "waiting for the device");
}

/* Uploads at most WF_CUDA_SLOT_BYTES through the next slot. */
static wf_status send(wf_cuda_queue *q, char *to, const char *from, size_t bytes)
{
    wf_ctx *ctx = q->head.device->ctx;
    const int at = q->next;
    wf_cuda_slot *slot = &q->slots[at];
    char *staged = q->staging + (size_t)at * WF_CUDA_SLOT_BYTES;
    char *landed = q->landing + (size_t)at * WF_CUDA_SLOT_BYTES;
    q->next = (at + 1) % WF_CUDA_SLOTS;
    /* The slot's last upload must have left the landing buffer. A never recorded event counts as
     * reached. */
    WF_TRY(wf_cuda_try(ctx, cudaEventSynchronize(slot->taken), "waiting for an upload"));
    memcpy(staged, from, bytes);
    cudaError_t error = cudaMemcpyAsync(landed, staged, bytes, cudaMemcpyHostToDevice, q->upload);
    if (error == cudaSuccess)
        error = cudaEventRecord(slot->arrived, q->upload);
    if (error == cudaSuccess)
        /* Kernels that were queued before go on; later ones see the new contents. */
        error = cudaStreamWaitEvent(q->stream, slot->arrived, 0);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(to, landed, bytes, cudaMemcpyDeviceToDevice, q->stream);
    if (error == cudaSuccess)
        /* The slot is free when the kernel stream has taken the bytes. */
        error = cudaEventRecord(slot->taken, q->stream);
    return wf_cuda_try(ctx, error, "copying to the device");
}

/* Returns when all bytes are in pinned memory: the caller may reuse `from`. */
wf_status wf_cuda_copy_in(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                          size_t bytes)
{
    wf_assert(offset <= to->bytes && bytes <= to->bytes - offset);
    for (size_t done = 0; done < bytes; done += WF_CUDA_SLOT_BYTES) {
        size_t n = bytes - done < WF_CUDA_SLOT_BYTES ? bytes - done : WF_CUDA_SLOT_BYTES;
        WF_TRY(send((wf_cuda_queue *)queue, (char *)to->base + offset + done,
                    (const char *)from + done, n));
    }
    return WF_OK;
}

wf_status wf_cuda_copy_out(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                           size_t bytes)
{
    cudaStream_t stream = ((wf_cuda_queue *)queue)->stream;
    wf_assert(offset <= from->bytes && bytes <= from->bytes - offset);
    cudaError_t error = cudaMemcpyAsync(to, (const char *)from->base + offset, bytes,
                                        cudaMemcpyDeviceToHost, stream);
    if (error == cudaSuccess)
        /* Pageable host memory: the copy must be complete on return. */
        error = cudaStreamSynchronize(stream);
    WF_TRY(wf_cuda_try(queue->device->ctx, error, "copying from the device"));
    return wf_cuda_faults_look((wf_cuda_queue *)queue);
}

/* ---- Events ---- */

typedef struct {
    wf_event head;
    cudaEvent_t event;
} cuda_event;

wf_status wf_cuda_event_new(wf_device *d, wf_event **out)
{
    *out = NULL;
    WF_TRY(wf_cuda_enter(d));
    cuda_event *e = wf_mem_new(d->ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->head.device = d;
    wf_status status = wf_cuda_try(
        d->ctx, cudaEventCreateWithFlags(&e->event, cudaEventDisableTiming), "making an event");
    if (status == WF_OK)
        *out = &e->head;
    else
        wf_mem_free(d->ctx, e);
    return status;
}

void wf_cuda_event_free(wf_event *event)
{
    cudaEventDestroy(((cuda_event *)event)->event);
    wf_mem_free(event->device->ctx, event);
}

wf_status wf_cuda_event_record(wf_queue *q, wf_event *event)
{
    return wf_cuda_try(q->device->ctx,
                       cudaEventRecord(((cuda_event *)event)->event, ((wf_cuda_queue *)q)->stream),
                       "recording an event");
}

wf_status wf_cuda_event_wait(wf_event *event)
{
    WF_TRY(wf_cuda_try(event->device->ctx, cudaEventSynchronize(((cuda_event *)event)->event),
                       "running a step"));
    event->ns = wf_clock_ns();
    return WF_OK;
}

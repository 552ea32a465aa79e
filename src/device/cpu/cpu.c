/* SPDX-License-Identifier: MIT */
/*
 * cpu.c - the cpu device: host memory, a synchronous queue, and its kernels.
 *
 * Every call is complete when it returns, so queues and events hold nothing. The check device
 * shares these functions (WF_CPU_HOST_SLOTS). Kernels come from the instruction set that isa.c
 * selected.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/mem.h"
#include "base/thread.h"
#include "device/cpu/cpu.h"

extern const wf_device_ops wf_cpu_device_ops;

/* ---- Device ---- */

static wf_status cpu_open(wf_ctx *ctx, const char *options, wf_device **out)
{
    long threads = wf_threads_available();
    if (*options) {
        char *end;
        threads = strtol(options, &end, 10);
        if (*end || threads < 1 || threads > WF_CPU_MAX_THREADS)
            return wf_fail(ctx, WF_ERR_USAGE, "cpu:%s: expected a number of threads from 1 to %d",
                           options, WF_CPU_MAX_THREADS);
    }
    WF_TRY(wf_cpu_isa_check(ctx)); /* WEFT_CPU may name a set that this machine lacks */
    wf_device *d = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    *d = (wf_device){.ops = &wf_cpu_device_ops,
                     .ctx = ctx,
                     .target = {.name = "cpu",
                                .alignment = WF_MEM_ALIGN,
                                .owner = d,
                                .supports = wf_kernel_target_supports,
                                .workspace = wf_kernel_target_workspace},
                     .kernels = wf_cpu_isa_now()->kernels,
                     .rounds_as = wf_cpu_isa_title(), /* the same for any number of threads */
                     .threads = (int)threads};
    snprintf(d->description, sizeof d->description, "%s, %ld thread%s", wf_cpu_isa_title(), threads,
             WF_PLURAL(threads));
    *out = d;
    return WF_OK;
}

static void cpu_close(wf_device *d)
{
    wf_mem_free(d->ctx, d);
}

/* ---- Buffers ---- */

wf_status wf_cpu_buffer_new(wf_device *d, size_t bytes, wf_buffer **out)
{
    *out = NULL;
    wf_buffer *b = wf_mem_new(d->ctx, sizeof *b);
    if (!b)
        return WF_ERR_MEMORY;
    *b = (wf_buffer){.device = d, .bytes = bytes, .base = wf_mem_new(d->ctx, bytes)};
    if (!b->base) {
        wf_mem_free(d->ctx, b);
        return WF_ERR_MEMORY;
    }
    *out = b;
    return WF_OK;
}

void wf_cpu_buffer_free(wf_buffer *b)
{
    wf_ctx *ctx = b->device->ctx;
    if (!b->borrowed)
        wf_mem_free(ctx, b->base);
    wf_mem_free(ctx, b);
}

/* The mapping is read-only: compiling a graph that writes a mapped state fails. */
wf_status wf_cpu_buffer_map(wf_device *d, const void *from, size_t bytes, wf_buffer **out)
{
    *out = wf_mem_new(d->ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    **out = (wf_buffer){.device = d, .bytes = bytes, .base = (void *)from, .borrowed = true};
    return WF_OK;
}

/* ---- Queues and events: calls are synchronous ---- */

wf_status wf_cpu_queue_new(wf_device *d, wf_queue **out)
{
    *out = wf_mem_new(d->ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    (*out)->device = d;
    return WF_OK;
}

void wf_cpu_queue_free(wf_queue *q)
{
    wf_mem_free(q->device->ctx, q);
}

wf_status wf_cpu_queue_wait(wf_queue *q)
{
    (void)q;
    return WF_OK;
}

/* Arguments of copy_range. */
typedef struct {
    char *to;
    const char *from;
} copy;

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const copy *c = arg;
    (void)thread;
    memcpy(c->to + begin, c->from + begin, (size_t)(end - begin));
}

/* Copies with all threads. On NUMA machines the first touch places each part near the thread that
 * reads it later, since kernels split tensors the same way. */
static void copy_bytes(const wf_device *d, char *to, const char *from, size_t bytes)
{
    /* At least 1 MiB per thread. */
    wf_parallel_for(d->threads, (int64_t)bytes, 1 << 20, copy_range, &(copy){to, from});
}

wf_status wf_cpu_copy_in(wf_queue *q, wf_buffer *to, size_t offset, const void *from, size_t bytes)
{
    wf_assert(offset <= to->bytes && bytes <= to->bytes - offset);
    copy_bytes(q->device, (char *)to->base + offset, from, bytes);
    return WF_OK;
}

wf_status wf_cpu_copy_out(wf_queue *q, void *to, const wf_buffer *from, size_t offset, size_t bytes)
{
    wf_assert(offset <= from->bytes && bytes <= from->bytes - offset);
    copy_bytes(q->device, to, (const char *)from->base + offset, bytes);
    return WF_OK;
}

wf_status wf_cpu_event_new(wf_device *d, wf_event **out)
{
    *out = wf_mem_new(d->ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    (*out)->device = d;
    return WF_OK;
}

void wf_cpu_event_free(wf_event *e)
{
    wf_mem_free(e->device->ctx, e);
}

wf_status wf_cpu_event_record(wf_queue *q, wf_event *e)
{
    (void)q;
    e->ns = wf_clock_ns();
    return WF_OK;
}

wf_status wf_cpu_event_wait(wf_event *e)
{
    (void)e;
    return WF_OK;
}

size_t wf_cpu_available(const wf_device *d)
{
    (void)d;
    return (size_t)wf_machine_available();
}

const wf_device_ops wf_cpu_device_ops = {
    .kind = "cpu",
    .sizes_per_doubling = 4,
    .automatic = true,
    .doc = "this machine's processor; cpu:N uses N threads",
    .open = cpu_open,
    .close = cpu_close,
    .buffer_new = wf_cpu_buffer_new,
    .buffer_free = wf_cpu_buffer_free,
    WF_CPU_HOST_SLOTS,
    .compile = wf_plan_compile,
    .plan = wf_plan_sizes,
};

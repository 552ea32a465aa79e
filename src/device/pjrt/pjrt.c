/* SPDX-License-Identifier: MIT */
/*
 * pjrt.c - the pjrt device: runs whole graphs through a PJRT plugin, which is loaded by its path.
 *
 * A program device: it has no kernel table, compiles graphs to StableHLO (graph/lower) and lets the
 * plugin plan, fuse and run them. Buffers are immutable arrays of the plugin (buffer.c), so states
 * change by replacing their array.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "device/pjrt/pjrt.h"
#include "graph/lower/stablehlo.h"

#define PLUGIN_VARIABLE "WEFT_PJRT_PLUGIN"

extern const wf_device_ops wf_pjrt_device_ops;

/* ---- Device ---- */

/* Ops without a StableHLO form are expanded first (device/expand.h). */
static bool supports(const wf_target *target, const wf_node *n)
{
    (void)target;
    return wf_stablehlo_has(n->op);
}

static wf_status pjrt_open(wf_ctx *ctx, const char *options, wf_device **out)
{
    const char *spec = *options ? options : getenv(PLUGIN_VARIABLE);
    if (!spec || !*spec)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "pjrt needs a plugin; use pjrt:PLUGIN.so or set " PLUGIN_VARIABLE);
    wf_pjrt_device *d = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    wf_status status = wf_pjrt_open(ctx, spec, &d->plugin);
    if (status != WF_OK) {
        wf_mem_free(ctx, d);
        return status;
    }
    d->head = (wf_device){
        .ops = &wf_pjrt_device_ops,
        .ctx = ctx,
        .target = {.name = "pjrt", .alignment = WF_MEM_ALIGN, .owner = d, .supports = supports}};
    snprintf(d->head.description, sizeof d->head.description,
             "%.48s%swhole graphs by a PJRT %d.%d plugin for %s%s%s", d->plugin.kind,
             d->plugin.kind[0] ? ", " : "", d->plugin.api->version.major,
             d->plugin.api->version.minor, d->plugin.platform, d->plugin.version[0] ? ": " : "",
             d->plugin.version);
    *out = &d->head;
    return WF_OK;
}

static void pjrt_close(wf_device *device)
{
    wf_pjrt_device *d = (wf_pjrt_device *)device;
    wf_pjrt_programs_free(d);
    wf_pjrt_close(&d->plugin);
    wf_mem_free(device->ctx, d);
}

/* ---- Queues: the plugin orders the work itself, and reading an array waits for it ---- */

static wf_status queue_new(wf_device *device, wf_queue **out)
{
    *out = NULL;
    wf_pjrt_queue *q = wf_mem_new(device->ctx, sizeof *q);
    if (!q)
        return WF_ERR_MEMORY;
    q->head.device = device;
    *out = &q->head;
    return WF_OK;
}

/* Waits for the last run. The plugin runs programs in order, so earlier ones are done, too. */
static wf_status queue_wait(wf_queue *queue)
{
    wf_pjrt_queue *q = (wf_pjrt_queue *)queue;
    void *last = q->last;
    q->last = NULL; /* await destroys the event */
    return wf_pjrt_await(&((wf_pjrt_device *)queue->device)->plugin, last, "run a program");
}

static void queue_free(wf_queue *queue)
{
    wf_pjrt_queue *q = (wf_pjrt_queue *)queue;
    wf_pjrt_destroy(&((wf_pjrt_device *)queue->device)->plugin, PJRT_EVENT_DESTROY, q->last);
    wf_mem_free(queue->device->ctx, q);
}

/* Fails unless the copy covers the whole array: PJRT has no partial copies. */
static wf_status check_whole(wf_queue *queue, const wf_buffer *b, size_t offset, size_t bytes)
{
    const wf_pjrt_buffer *array = (const wf_pjrt_buffer *)b;
    size_t all = wf_type_bytes(array->type, wf_dims_count(&array->shape));
    if (offset == 0 && bytes == all)
        return WF_OK;
    return wf_fail(queue->device->ctx, WF_ERR_UNSUPPORTED,
                   "pjrt can copy only whole arrays, not %zu of %zu bytes", bytes, all);
}

static wf_status copy_in(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                         size_t bytes)
{
    WF_TRY(check_whole(queue, to, offset, bytes));
    return wf_pjrt_buffer_write((wf_pjrt_buffer *)to, from);
}

static wf_status copy_out(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                          size_t bytes)
{
    WF_TRY(check_whole(queue, from, offset, bytes));
    return wf_pjrt_buffer_read((const wf_pjrt_buffer *)from, to);
}

/* ---- Events: PJRT cannot enqueue an event, so recording one waits for the queue ---- */

static wf_status event_new(wf_device *device, wf_event **out)
{
    *out = wf_mem_new(device->ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    (*out)->device = device;
    return WF_OK;
}

static void event_free(wf_event *event)
{
    wf_mem_free(event->device->ctx, event);
}

static wf_status event_record(wf_queue *queue, wf_event *event)
{
    WF_TRY(queue_wait(queue));
    event->ns = wf_clock_ns();
    return WF_OK;
}

static wf_status event_wait(wf_event *event)
{ /* recorded events are complete: see event_record */
    (void)event;
    return WF_OK;
}

const wf_device_ops wf_pjrt_device_ops = {
    .kind = "pjrt",
    .doc = "any device with a PJRT plugin; pjrt:PLUGIN.so,OPTION=VALUE,... or set " PLUGIN_VARIABLE,
    .open = pjrt_open,
    .close = pjrt_close,
    .buffer_new = wf_pjrt_buffer_new,
    .buffer_free = wf_pjrt_buffer_free,
    .stored_type = wf_stablehlo_type,
    .buffer_describe = wf_pjrt_buffer_shape,
    .queue_new = queue_new,
    .queue_free = queue_free,
    .queue_wait = queue_wait,
    .copy_in = copy_in,
    .copy_out = copy_out,
    .event_new = event_new,
    .event_free = event_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .compile = wf_pjrt_compile,
    .plan = wf_pjrt_plan,
};

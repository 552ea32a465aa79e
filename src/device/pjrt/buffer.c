/* SPDX-License-Identifier: MIT */
/*
 * buffer.c - wraps arrays of a plugin as buffers. PJRT arrays are immutable: a write replaces the
 * array.
 *
 * Programs have no quantized types. A quantized array is decoded to f32 when it is written, and
 * cannot be read back. head.bytes is the size that the plugin stores; on the host the array has the
 * type b->type.
 *
 * A handle of NULL stands for zeros that were never uploaded; `lost` marks an array that the plugin
 * deleted during a failed run.
 */
#include <string.h>

#include "base/mem.h"
#include "device/pjrt/pjrt.h"
#include "graph/lower/stablehlo.h"

static wf_pjrt_plugin *plugin_of(const wf_pjrt_buffer *b)
{
    return &((wf_pjrt_device *)b->head.device)->plugin;
}

/* Allocates nothing on the device: the array appears with the first write or touch. */
wf_status wf_pjrt_buffer_new(wf_device *device, size_t bytes, wf_buffer **out)
{
    *out = NULL;
    wf_pjrt_buffer *b = wf_mem_new(device->ctx, sizeof *b);
    if (!b)
        return WF_ERR_MEMORY;
    b->head = (wf_buffer){.device = device, .bytes = bytes};
    *out = &b->head;
    return WF_OK;
}

void wf_pjrt_buffer_free(wf_buffer *buffer)
{
    wf_pjrt_buffer *b = (wf_pjrt_buffer *)buffer;
    wf_pjrt_buffer_replace(b, NULL);
    wf_mem_free(buffer->device->ctx, b);
}

void wf_pjrt_buffer_shape(wf_buffer *buffer, wf_type type, const wf_dims *shape)
{
    wf_pjrt_buffer *b = (wf_pjrt_buffer *)buffer;
    b->type = type;
    b->shape = *shape;
}

/* Owns `handle` from now on; NULL means zeros again. */
void wf_pjrt_buffer_replace(wf_pjrt_buffer *b, void *handle)
{
    wf_pjrt_destroy(plugin_of(b), PJRT_BUFFER_DESTROY, b->handle);
    b->handle = handle;
    b->lost = false;
}

/* A failed run may have deleted its donated arguments. Asks the plugin, where it can tell. */
void wf_pjrt_buffer_check(wf_pjrt_buffer *b)
{
    wf_pjrt_plugin *p = plugin_of(b);
    pjrt_deleted_args args = {.buffer = b->handle};
    if (!b->handle || !wf_pjrt_has(p, PJRT_BUFFER_IS_DELETED) ||
        wf_pjrt_call(p, PJRT_BUFFER_IS_DELETED, &args, deleted, "query an array") != WF_OK ||
        !args.deleted)
        return;
    wf_pjrt_buffer_replace(b, NULL);
    b->lost = true;
}

/* Fails if the array was lost: silently using zeros instead would hide the loss. */
static wf_status check_lost(const wf_pjrt_buffer *b)
{
    if (!b->lost)
        return WF_OK;
    return wf_fail(b->head.device->ctx, WF_ERR_DEVICE,
                   "pjrt lost an array of %zu bytes in a failed run; write it again",
                   b->head.bytes);
}

static int element_type(wf_type type)
{
    switch (type) {
    case WF_F32: return PJRT_F32;
    case WF_F16: return PJRT_F16;
    case WF_BF16: return PJRT_BF16;
    case WF_E4M3: return PJRT_F8E4M3FN;
    case WF_E5M2: return PJRT_F8E5M2;
    case WF_I32: return PJRT_S32;
    case WF_I8: return PJRT_S8;
    case WF_U8: return PJRT_U8;
    default: wf_assert(!"a type that programs lack"); return 0;
    }
}

/* Replaces the array by a copy of host memory. `strides` are in bytes; NULL: dense. Waits for the
 * copy. */
static wf_status upload(wf_pjrt_buffer *b, const void *from, const int64_t *strides)
{
    wf_pjrt_plugin *p = plugin_of(b);
    pjrt_from_host_args args = {.client = p->client,
                                .data = from,
                                .type = element_type(wf_stablehlo_type(b->type)),
                                .dims = b->shape.d,
                                .rank = (size_t)b->shape.n,
                                .strides = strides,
                                .stride_count = strides ? (size_t)b->shape.n : 0,
                                .device = p->device};
    WF_TRY(wf_pjrt_call(p, PJRT_CLIENT_FROM_HOST, &args, buffer, "copy an array to the device"));
    wf_pjrt_buffer_replace(b, args.buffer);
    /* The host memory may be reused afterwards. */
    return wf_pjrt_await(p, args.done, "copy an array to the device");
}

/* Decodes a quantized array to f32 and uploads that. */
static wf_status upload_decoded(wf_pjrt_buffer *b, const void *from)
{
    wf_ctx *ctx = b->head.device->ctx;
    float *x = wf_mem_new(ctx, b->head.bytes); /* head.bytes is the decoded size */
    if (!x)
        return WF_ERR_MEMORY;
    wf_convert_to_f32(b->type, from, x, wf_dims_count(&b->shape));
    wf_status status = upload(b, x, NULL);
    wf_mem_free(ctx, x);
    return status;
}

wf_status wf_pjrt_buffer_write(wf_pjrt_buffer *b, const void *from)
{
    if (b->head.bytes == 0)
        return WF_OK;
    return wf_stablehlo_type(b->type) == b->type ? upload(b, from, NULL) : upload_decoded(b, from);
}

/* Uploads a single zero with all strides 0. If the plugin refuses such strides, uploads a full
 * array of zeros. */
wf_status wf_pjrt_buffer_touch(wf_pjrt_buffer *b)
{
    static const int64_t no_strides[WF_MAX_RANK]; /* zero-initialised */
    static const uint32_t zero;
    wf_ctx *ctx = b->head.device->ctx;
    WF_TRY(check_lost(b));
    /* Element (i, j, ...) is at byte 0 for all indices: one zero stands for the whole array. */
    if (b->handle || b->head.bytes == 0 || upload(b, &zero, no_strides) == WF_OK)
        return WF_OK;
    void *zeros = wf_mem_new(ctx, b->head.bytes);
    if (!zeros)
        return WF_ERR_MEMORY;
    wf_status status = upload(b, zeros, NULL);
    wf_mem_free(ctx, zeros);
    return status;
}

/* Requests row-major order: a device may store axes in another order. */
wf_status wf_pjrt_buffer_read(const wf_pjrt_buffer *b, void *to)
{
    wf_pjrt_plugin *p = plugin_of(b);
    int64_t order[WF_MAX_RANK];
    WF_TRY(check_lost(b));
    if (b->head.bytes == 0)
        return WF_OK;
    if (!b->handle) {
        memset(to, 0, wf_type_bytes(b->type, wf_dims_count(&b->shape)));
        return WF_OK;
    }
    if (wf_stablehlo_type(b->type) != b->type)
        return wf_fail(b->head.device->ctx, WF_ERR_UNSUPPORTED,
                       "pjrt decoded this %s array to f32 and cannot return its blocks",
                       wf_type_name(b->type));
    for (int64_t i = 0; i < b->shape.n; i++)
        order[i] = b->shape.n - 1 - i; /* minor to major: the last axis first */
    pjrt_layout layout = {.size = offsetof(pjrt_layout, type) + sizeof layout.type,
                          .tiled = {.size = sizeof layout.tiled,
                                    .minor_to_major = order,
                                    .rank = (size_t)b->shape.n}};
    pjrt_to_host_args args = {
        .buffer = b->handle, .layout = &layout, .to = to, .bytes = b->head.bytes};
    WF_TRY(wf_pjrt_call(p, PJRT_BUFFER_TO_HOST, &args, event, "copy an array to the host"));
    return wf_pjrt_await(p, args.event, "copy an array to the host");
}

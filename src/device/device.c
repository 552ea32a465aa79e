/* SPDX-License-Identifier: MIT */
/*
 * device.c - the list of devices in this build, opening one by name, and the account of device
 * memory.
 *
 * This is the only shared file that names devices. Everything else goes through wf_device_ops.
 */
#include "device/device.h"

#include <string.h>

extern const wf_device_ops wf_cpu_device_ops, wf_cuda_device_ops, wf_check_device_ops,
    wf_pjrt_device_ops;

/* In the order of `weft devices`. A device that cannot run here is still listed: open explains
 * why. */
static const wf_device_ops *const kinds[] = {
    &wf_cpu_device_ops,
    &wf_cuda_device_ops,
    &wf_check_device_ops,
    &wf_pjrt_device_ops,
};

#define KIND_COUNT ((int)(sizeof kinds / sizeof kinds[0]))

const wf_device_ops *wf_device_ops_get(int index)
{
    return index >= 0 && index < KIND_COUNT ? kinds[index] : NULL;
}

const char *wf_device_kind(int index)
{
    const wf_device_ops *ops = wf_device_ops_get(index);
    return ops ? ops->kind : NULL;
}

/* Fails with the nearest kind, or with all kinds. 'gpu' is nearest to 'cpu', which would mislead:
 * list all kinds instead. */
static wf_status no_such_kind(wf_ctx *ctx, const char *spec, size_t n)
{
    char word[64], known[256];
    size_t len = 0, word_len = 0;
    const char *names[KIND_COUNT];
    for (int i = 0; i < KIND_COUNT; i++) {
        names[i] = kinds[i]->kind;
        wf_text_append(known, sizeof known, &len, "%s%s", i ? ", " : "", names[i]);
    }
    wf_text_append(word, sizeof word, &word_len, "%.*s", (int)(n < 60 ? n : 60), spec);
    const char *near = strcmp(word, "gpu") == 0 ? NULL : wf_text_nearest(word, names, KIND_COUNT);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown device '%s'; did you mean '%s'?", word, near);
    return wf_fail(ctx, WF_ERR_USAGE, "unknown device '%s'; this build has: %s", word, known);
}

wf_status wf_device_open(wf_ctx *ctx, const char *spec, wf_device **out)
{
    *out = NULL;
    /* The text before the first ':' is the kind; the rest goes to the device as it is. */
    if (!spec)
        spec = "";
    size_t n = strcspn(spec, ":");
    for (int i = 0; i < KIND_COUNT; i++)
        if (strlen(kinds[i]->kind) == n && strncmp(kinds[i]->kind, spec, n) == 0)
            return kinds[i]->open(ctx, spec[n] == ':' ? spec + n + 1 : "", out);
    return no_such_kind(ctx, spec, n);
}

/* Refuses while sessions are open: their memory belongs to the device. */
void wf_device_close(wf_device *device)
{
    if (device && device->session_count > 0)
        wf_ctx_log(device->ctx, WF_LOG_ERROR, "device %s was not closed: it still has %d session%s",
                   device->target.name, device->session_count, WF_PLURAL(device->session_count));
    else if (device)
        device->ops->close(device);
}

void wf_device_allow_nondeterministic(wf_device *device, bool allow)
{
    device->fast = allow;
}

wf_status wf_device_check_ctx(const wf_device *device, wf_ctx *ctx, const char *what)
{
    /* One literal for both messages. Both contexts get it: the caller may look at either. */
    static const char sentence[] =
        "%s and device %s come from different contexts; make both from one context";
    if (ctx == device->ctx)
        return WF_OK;
    wf_fail(ctx, WF_ERR_USAGE, sentence, what, device->target.name);
    return wf_fail(device->ctx, WF_ERR_USAGE, sentence, what, device->target.name);
}

int wf_device_threads(const wf_device *device)
{
    return device->threads;
}

const char *wf_device_description(const wf_device *device)
{
    return device->description;
}

/* wf_target.supports of kernel devices. `expanded` comes from wf_device_force_expansion. */
bool wf_kernel_target_supports(const wf_target *target, const wf_node *n)
{
    const wf_device *device = target->owner;
    return !device->expanded[n->op] && wf_kernel_choose(device, n) != NULL;
}

/* wf_target.workspace of kernel devices; 0 for a node without a kernel. */
size_t wf_kernel_target_workspace(const wf_target *target, const wf_node *n)
{
    const wf_device *device = target->owner;
    return wf_kernel_workspace(wf_kernel_choose(device, n), device, n);
}

/* ---- Memory accounting, buffers and plans ---- */

void wf_device_take(wf_device *device, size_t bytes)
{
    device->bytes += bytes;
    if (device->bytes > device->peak_bytes)
        device->peak_bytes = device->bytes;
}

void wf_device_give_back(wf_device *device, size_t bytes)
{
    device->bytes -= bytes;
}

size_t wf_device_value_bytes(const wf_device *device, wf_type type, const wf_dims *shape)
{
    if (device->ops->stored_type)
        type = device->ops->stored_type(type);
    return wf_type_bytes(type, wf_dims_count(shape));
}

wf_status wf_buffer_new(wf_device *device, size_t bytes, wf_buffer **out)
{
    /* Zeroed, and not counted by the device itself. */
    WF_TRY(device->ops->buffer_new(device, bytes, out));
    wf_device_take(device, bytes);
    return WF_OK;
}

void wf_buffer_free(wf_buffer *buffer)
{
    if (!buffer)
        return;
    if (!buffer->borrowed) /* mapped memory was never counted */
        wf_device_give_back(buffer->device, buffer->bytes);
    buffer->device->ops->buffer_free(buffer);
}

void wf_device_memory(const wf_device *device, size_t *bytes, size_t *peak)
{
    *bytes = device->bytes;
    *peak = device->peak_bytes;
}

size_t wf_device_available(const wf_device *device)
{
    return device->ops->available ? device->ops->available(device) : 0;
}

wf_status wf_options_check(wf_ctx *ctx, const wf_compile_options *options)
{
    if (options && options->recompute < 0)
        return wf_fail(ctx, WF_ERR_USAGE, "recompute is %lld blocks, but must not be negative",
                       (long long)options->recompute);
    return WF_OK;
}

/* Common checks of wf_plan_memory and wf_session_plan. `session` may be NULL. */
static wf_status plan_memory(wf_device *device, const wf_session *session, wf_graph *graph,
                             const wf_compile_options *options, wf_memory *out)
{
    *out = (wf_memory){0};
    WF_TRY(wf_device_check_ctx(device, graph->ctx, "the graph"));
    WF_TRY(wf_options_check(device->ctx, options));
    return device->ops->plan(device, session, graph, options, out);
}

wf_status wf_plan_memory(wf_device *device, wf_graph *graph, const wf_compile_options *options,
                         wf_memory *out)
{
    return plan_memory(device, NULL, graph, options, out);
}

wf_status wf_session_plan(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_memory *out)
{
    return plan_memory(session->device, session, graph, options, out);
}

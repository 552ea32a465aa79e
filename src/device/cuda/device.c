/* SPDX-License-Identifier: MIT */
/*
 * device.c - opens a GPU, or explains why it cannot.
 *
 * Every failure names its cause: no driver, an old driver, no GPU, a GPU without kernels in this
 * build. Queues and buffers belong to sessions.
 */
#include "device/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "device/cuda/cublaslt.h"
#include "device/cuda/product.h"
#include "device/executor.h"

extern const wf_device_ops wf_cuda_device_ops;

enum { OLDEST = 8 }; /* smallest major compute capability with kernels */

/* ---- Options: [N][,tf32][,tune=0] ---- */

/* Parsed from the text after "cuda:". */
typedef struct {
    int ordinal;     /* index of the GPU */
    bool tf32, tune; /* round f32 matmul operands to TF32; time matmul algorithms when compiling */
} cuda_options;

static bool read_option(const char *word, size_t n, cuda_options *out)
{
    char text[32], *end;
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, word, n);
    text[n] = 0;
    long ordinal = strtol(text, &end, 10); /* a lone number is the GPU */
    if (end != text && *end == 0 && ordinal >= 0 && ordinal < 1024)
        out->ordinal = (int)ordinal;
    else if (strcmp(text, "tf32") == 0)
        out->tf32 = true;
    else if (strcmp(text, "tune=0") == 0)
        out->tune = false;
    else
        return false;
    return true;
}

static wf_status read_options(wf_ctx *ctx, const char *text, cuda_options *out)
{
    *out = (cuda_options){.tune = true};
    while (*text) {
        size_t n = strcspn(text, ",");
        if (!read_option(text, n, out))
            return wf_fail(ctx, WF_ERR_USAGE,
                           "cuda:%.60s: unknown option; use a GPU's number, tf32 (f32 matmuls "
                           "round operands to 10 bits) or tune=0 (do not time matmuls)",
                           text);
        text += n;
        text += *text == ',';
    }
    return WF_OK;
}

/* ---- Opening ---- */

/* Fails if the driver is missing or too old, or if there is no such GPU. */
static wf_status find_device(wf_ctx *ctx, const cuda_options *options)
{
    int count = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaGetLastError(); /* clear it, or the next launch would report it */
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (error == cudaErrorInsufficientDriver && driver == 0)
        return wf_fail(ctx, WF_ERR_DEVICE, "cuda: no NVIDIA driver was found on this machine");
    if (error == cudaErrorInsufficientDriver)
        return wf_fail(
            ctx, WF_ERR_DEVICE,
            "cuda: the NVIDIA driver supports CUDA %d.%d, but this build needs %d.%d; update the driver",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return wf_fail(ctx, WF_ERR_DEVICE,
                       "cuda: the NVIDIA driver is installed, but no GPU is visible");
    WF_TRY(wf_cuda_try(ctx, error, "looking for GPUs"));
    if (options->ordinal >= count)
        return wf_fail(ctx, WF_ERR_USAGE, "cuda:%d: this machine has %d GPU%s, counted from 0",
                       options->ordinal, count, WF_PLURAL(count));
    return WF_OK;
}

/*
 * Fails where this build has no code for a GPU of this compute capability. WF_CUDA_ARCHITECTURES
 * lists the code in this build, as "80, 90a and PTX". Code for 8.0 also runs on 8.6; code for 90a
 * runs on 9.0 only; drivers compile the PTX for 9.0 and later.
 */
static wf_status check_kernels(wf_ctx *ctx, const struct cudaDeviceProp *p)
{
#if defined WF_CUDA_ARCHITECTURES && !defined WF_CUDA_EMULATED
    bool found = strstr(WF_CUDA_ARCHITECTURES, "PTX") && p->major >= 9;
    for (const char *at = WF_CUDA_ARCHITECTURES; *at && !found;) {
        char *end;
        long code = strtol(at, &end, 10);
        if (end > at && code / 10 == p->major)
            found = *end == 'a' ? code % 10 == p->minor : code % 10 <= p->minor;
        at = end > at ? end : at + 1;
    }
    if (!found)
        return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                       "cuda: %s has compute capability %d.%d, and this build has kernels for %s; "
                       "configure with -DWEFT_CUDA_ARCHITECTURES=native on this machine, or all",
                       p->name, p->major, p->minor, WF_CUDA_ARCHITECTURES);
#else
    (void)ctx, (void)p;
#endif
    return WF_OK;
}

/* Queries the GPU, and fills in description and numerics fingerprint. */
static wf_status describe(wf_cuda_device *d)
{
    struct cudaDeviceProp p;
    size_t available = 0, total = 0;
    wf_ctx *ctx = d->head.ctx;
    WF_TRY(wf_cuda_try(ctx, cudaSetDevice(d->ordinal), "choosing the GPU"));
    WF_TRY(wf_cuda_try(ctx, cudaGetDeviceProperties(&p, d->ordinal), "asking about the GPU"));
    if (p.major < OLDEST)
        return wf_fail(ctx, WF_ERR_DEVICE,
                       "cuda: %s has compute capability %d.%d, but kernels need %d.0 or later",
                       p.name, p.major, p.minor, OLDEST);
    WF_TRY(check_kernels(ctx, &p));
    WF_TRY(wf_cuda_try(ctx, cudaMemGetInfo(&available, &total), "asking for free memory"));
    d->major = p.major;
    d->minor = p.minor;
    d->processors = p.multiProcessorCount;
    d->cache = (size_t)p.l2CacheSize;
    d->shared = p.sharedMemPerBlockOptin;
    /* Memory that is already in use, and the upload slots of a session. */
    d->head.reserve = total - available + WF_CUDA_LANDING;
    size_t len = 0, rounding = 0;
    int driver = 0;
    cudaDriverGetVersion(&driver);
    snprintf(d->name, sizeof d->name, "%.120s", p.name);
    wf_text_append(d->head.description, sizeof d->head.description, &len,
                   "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB of memory, %.2f GiB "
                   "of it used by the driver and other programs; driver for CUDA %d.%d",
                   d->name, d->major, d->minor, d->processors, (double)total / (1 << 30),
                   (double)(total - available) / (1 << 30), driver / 1000, driver % 1000 / 10);
    if (!wf_lt_get())
        wf_text_append(d->head.description, sizeof d->head.description, &len,
                       "; without cuBLASLt, matmuls are slow");
    /* Equal strings promise equal bits (wf_device.rounds_as): GPU, driver and tf32 decide them. */
    wf_text_append(d->rounding, sizeof d->rounding, &rounding, "%s, CUDA %d%s", d->name, driver,
                   d->tf32 ? ", tf32" : "");
    d->head.rounds_as = d->rounding;
    return WF_OK;
}

static void cuda_close(wf_device *device)
{
    wf_cuda_products_free((wf_cuda_device *)device);
    wf_mem_free(device->ctx, device);
}

static wf_status cuda_open(wf_ctx *ctx, const char *text, wf_device **out)
{
    cuda_options options;
    *out = NULL;
    WF_TRY(read_options(ctx, text, &options));
    WF_TRY(find_device(ctx, &options));
    wf_cuda_device *d = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    d->head = (wf_device){.ops = &wf_cuda_device_ops,
                          .ctx = ctx,
                          .target = {.name = "cuda",
                                     /* cudaMalloc's own alignment, and more than any vector load
                                      * needs. */
                                     .alignment = 256,
                                     .owner = d,
                                     .supports = wf_kernel_target_supports,
                                     .workspace = wf_kernel_target_workspace}};
    d->ordinal = options.ordinal;
    d->tf32 = options.tf32;
    wf_status status = describe(d);
    /* Also after a failure: major is 0 then, and the list is never used. */
    d->head.kernels = wf_cuda_kernels(d->major, d->minor);
    if (status == WF_OK)
        status = wf_cuda_products_new(d, options.tune);
    if (status == WF_OK)
        *out = &d->head;
    else
        cuda_close(&d->head);
    return status;
}

/* CUDA's current device is per thread. A pending error would be reported as this launch's. */
static wf_status before_launch(wf_device *d)
{
    WF_TRY(wf_cuda_enter(d));
    cudaGetLastError();
    return WF_OK;
}

const wf_device_ops wf_cuda_device_ops = {
    .kind = "cuda",
    .sizes_per_doubling = 1,
    .automatic = true,
    .doc = "an NVIDIA GPU; cuda:N is the Nth, cuda:N,tf32 rounds the operands of f32 matmuls",
    .open = cuda_open,
    .close = cuda_close,
    .buffer_new = wf_cuda_buffer_new,
    .buffer_free = wf_cuda_buffer_free,
    .queue_new = wf_cuda_queue_new,
    .queue_free = wf_cuda_queue_free,
    .queue_wait = wf_cuda_queue_wait,
    .copy_in = wf_cuda_copy_in,
    .copy_out = wf_cuda_copy_out,
    .event_new = wf_cuda_event_new,
    .event_free = wf_cuda_event_free,
    .event_record = wf_cuda_event_record,
    .event_wait = wf_cuda_event_wait,
    .compile = wf_plan_compile,
    .plan = wf_plan_sizes,
    .prepare_plan = wf_cuda_prepare_plan,
    .run_plan = wf_cuda_run_plan,
    .free_plan = wf_cuda_free_plan,
    .before_launch = before_launch,
    .runs_ahead = true,
    .narrows = true,
    .available = wf_cuda_available,
    .peak = wf_cuda_peak,
};

/* SPDX-License-Identifier: MIT */
/* runtime.c - the emulated CUDA runtime: devices, memory and errors. */
#include "runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSORS = 5 };
#define DEFAULT_SHARED ((size_t)48 << 10)
#define MOST_FILLED ((size_t)256 << 10)

typedef struct {
    char *data;
    size_t bytes;
    wf_place place;
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local cudaError_t last;

static struct {
    range *ranges;
    int count, cap;
    size_t used;
    size_t shared; /* the most that any kernel may use */
} now;

void wf_runtime_lock(void)
{
    pthread_mutex_lock(&lock);
}

wf_emulated_counts wf_runtime_counts;

static int fail_in; /* 0: no injected failure */
static cudaError_t fail_with;

cudaError_t wf_runtime_enter(void)
{
    wf_runtime_lock();
    return fail_in > 0 && --fail_in == 0 ? fail_with : cudaSuccess;
}

cudaError_t wf_runtime_unlock(cudaError_t error)
{
    pthread_mutex_unlock(&lock);
    if (error != cudaSuccess && error != cudaErrorNotReady)
        last = error;
    return error;
}

static size_t from_environment(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? (size_t)strtoull(text, NULL, 10) : otherwise;
}

static int devices(void)
{
    return (int)from_environment("WEFT_EMULATED_DEVICES", 1);
}

static size_t memory(void)
{
    return from_environment("WEFT_EMULATED_MEMORY", 4096) << 20;
}

/* Compute capability of the device, times 10. */
static int capability(void)
{
    return (int)from_environment("WEFT_EMULATED_CAPABILITY", 80);
}

/* Shared memory limit of a block, bytes. */
static size_t most_shared(void)
{
    return (size_t)(capability() >= 90 ? 227 : 163) << 10;
}

/* ---- For tests ---- */

wf_emulated_counts wf_emulated_count(void)
{
    wf_runtime_lock();
    wf_emulated_counts counts = wf_runtime_counts;
    wf_runtime_unlock(cudaSuccess);
    return counts;
}

void wf_emulated_fail(int nth, cudaError_t error)
{
    wf_runtime_lock();
    fail_in = nth;
    fail_with = error;
    wf_runtime_unlock(cudaSuccess);
}

bool wf_emulated_failed(void)
{
    return fail_in == 0;
}

/* ---- Errors ---- */

typedef struct {
    cudaError_t error;
    const char *name, *text;
} reason;

/* Messages of NVIDIA's runtime. */
static const reason reasons[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
};

static const reason *reason_of(cudaError_t error)
{
    static const reason other = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++)
        if (reasons[i].error == error)
            return &reasons[i];
    return &other;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return reason_of(error)->name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return reason_of(error)->text;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

/* ---- The device ---- */

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = devices() > 0 ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = devices();
    return *count > 0 ? cudaSuccess : (last = cudaErrorInsufficientDriver);
}

cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < devices() ? cudaSuccess : (last = cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    if (device < 0 || device >= devices())
        return last = cudaErrorInvalidDevice;
    *out = (struct cudaDeviceProp){.totalGlobalMem = memory(),
                                   .sharedMemPerBlock = DEFAULT_SHARED,
                                   .sharedMemPerBlockOptin = most_shared(),
                                   .sharedMemPerMultiprocessor = most_shared() + 1024,
                                   .reservedSharedMemPerBlock = 1024,
                                   .regsPerBlock = 65536,
                                   .regsPerMultiprocessor = 65536,
                                   .warpSize = 32,
                                   .maxThreadsPerBlock = 1024,
                                   .maxThreadsDim = {1024, 1024, 64},
                                   .maxGridSize = {2147483647, 65535, 65535},
                                   .major = capability() / 10,
                                   .minor = capability() % 10,
                                   .multiProcessorCount = PROCESSORS,
                                   .maxThreadsPerMultiProcessor = 2048,
                                   .maxBlocksPerMultiProcessor = 32,
                                   .l2CacheSize = 1 << 20,
                                   .unifiedAddressing = 1};
    snprintf(out->name, sizeof out->name, "emulated GPU");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error != cudaSuccess)
        return error;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate: *value = 1000000; break; /* kHz */
    case cudaDevAttrGlobalMemoryBusWidth: *value = 1024; break;
    default: return last = cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

size_t wf_runtime_shared(void)
{
    return now.shared > DEFAULT_SHARED ? now.shared : DEFAULT_SHARED;
}

/* Ignores which kernel it is for: any launch may use the largest limit set. */
cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    bool size = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
    wf_runtime_lock();
    if (!kernel || value < 0 || (size && (size_t)value > most_shared()))
        return wf_runtime_unlock(cudaErrorInvalidValue);
    if (size && (size_t)value > now.shared)
        now.shared = (size_t)value;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
    *out = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024, .numRegs = 32};
    return kernel ? cudaSuccess : (last = cudaErrorInvalidValue);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared)
{
    if (!kernel || threads <= 0 || threads > 1024 || shared > most_shared())
        return last = cudaErrorInvalidValue;
    int by_threads = 2048 / ((threads + 31) / 32 * 32);
    int by_shared = (int)((most_shared() + 1024) / (shared + 1024));
    *blocks = by_threads < by_shared ? by_threads : by_shared;
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    (void)version, (void)flags;
    cudaError_t error = wf_runtime_enter();
    *out = strcmp(symbol, "cuTensorMapEncodeTiled") == 0 ? wf_hopper_encoder() : NULL;
    if (found)
        *found = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return wf_runtime_unlock(error);
}

/* ---- Memory ---- */

wf_place wf_runtime_place(const void *data, size_t bytes)
{
    const char *p = data;
    for (int i = 0; i < now.count; i++) {
        const range *r = &now.ranges[i];
        if (p >= r->data && p <= r->data + r->bytes && (p < r->data + r->bytes || bytes == 0))
            return bytes <= (size_t)(r->data + r->bytes - p) ? r->place : WF_BEYOND;
    }
    return WF_PAGEABLE;
}

/* Allocates exactly these bytes, so that AddressSanitizer knows the end. Fills up to MOST_FILLED
 * bytes with one bits. */
static cudaError_t allocate(void **out, size_t bytes, wf_place place)
{
    *out = NULL;
    cudaError_t error = wf_stream_permits();
    if (error != cudaSuccess || bytes == 0)
        return error;
    if (place == WF_ON_DEVICE && (bytes > memory() || now.used > memory() - bytes))
        return cudaErrorMemoryAllocation;
    if (now.count == now.cap) {
        now.cap = now.cap ? now.cap * 2 : 64;
        now.ranges = realloc(now.ranges, (size_t)now.cap * sizeof *now.ranges);
        if (!now.ranges)
            abort();
    }
    if (posix_memalign(out, place == WF_ON_DEVICE ? 256 : 4096, bytes) != 0)
        return cudaErrorMemoryAllocation;
    memset(*out, 0xff, bytes < MOST_FILLED ? bytes : MOST_FILLED);
    now.ranges[now.count++] = (range){*out, bytes, place};
    wf_runtime_counts.allocations++;
    wf_runtime_counts.alive++;
    now.used += place == WF_ON_DEVICE ? bytes : 0;
    return cudaSuccess;
}

static cudaError_t release(void *data, wf_place place)
{
    cudaError_t error = wf_stream_permits();
    if (error != cudaSuccess || !data)
        return error;
    wf_stream_drain();
    for (int i = 0; i < now.count; i++)
        if (now.ranges[i].data == data && now.ranges[i].place == place) {
            now.used -= place == WF_ON_DEVICE ? now.ranges[i].bytes : 0;
            now.ranges[i] = now.ranges[--now.count];
            wf_runtime_counts.alive--;
            free(data);
            return cudaSuccess;
        }
    return cudaErrorInvalidValue;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    cudaError_t error = wf_runtime_enter();
    *out = NULL;
    return wf_runtime_unlock(error != cudaSuccess ? error : allocate(out, bytes, WF_ON_DEVICE));
}

cudaError_t cudaFree(void *data)
{
    wf_runtime_lock();
    return wf_runtime_unlock(release(data, WF_ON_DEVICE));
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    cudaError_t error = wf_runtime_enter();
    *out = NULL;
    return wf_runtime_unlock(error != cudaSuccess ? error : allocate(out, bytes, WF_PINNED));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMallocHost(out, bytes);
}

cudaError_t cudaFreeHost(void *data)
{
    wf_runtime_lock();
    return wf_runtime_unlock(release(data, WF_PINNED));
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    wf_runtime_lock();
    *total = memory();
    *available = *total - now.used;
    return wf_runtime_unlock(cudaSuccess);
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *data)
{
    wf_runtime_lock();
    wf_place place = wf_runtime_place(data, 1);
    *out = (struct cudaPointerAttributes){
        .type = place == WF_ON_DEVICE ? cudaMemoryTypeDevice
                : place == WF_PINNED  ? cudaMemoryTypeHost
                                      : cudaMemoryTypeUnregistered,
        .devicePointer = place == WF_PAGEABLE ? NULL : (void *)(uintptr_t)data,
        .hostPointer = place == WF_ON_DEVICE ? NULL : (void *)(uintptr_t)data};
    return wf_runtime_unlock(cudaSuccess);
}

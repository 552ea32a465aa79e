/* SPDX-License-Identifier: MIT */
/*
 * cpu.h - for devices that run the cpu's kernels: the kernel table, and host memory, queues and
 * events.
 */
#ifndef WF_DEVICE_CPU_CPU_H
#define WF_DEVICE_CPU_CPU_H

#include "device/cpu/pack.h"
#include "device/device.h"

#define WF_CPU_MAX_THREADS 1024

/* A function of one f32, applied to n elements. */
typedef struct {
    const char *name;
    void (*apply)(const float *x, float *y, int64_t n);
} wf_cpu_function;
/* Loops that measure the machine's peak (peak.c). n is a multiple of 256; `to` is 64-byte
 * aligned. */
typedef struct {
    int64_t flops; /* per round of multiply_add */
    float (*multiply_add)(int64_t rounds);
    float (*read)(const float *from, int64_t n);      /* returns the sum */
    float (*read_rows)(const float *from, int64_t n); /* the same, as 8 streams read in parallel */
    void (*copy)(float *to, const float *from, int64_t n);
    void (*triad)(float *to, const float *a, const float *b, int64_t n); /* a + factor * b */
} wf_cpu_loops;
extern const wf_cpu_loops wf_cpu_plain_loops;

/* The kernels of one instruction set. The reference set has the reference kernels only. The other
 * sets put their own kernels before these in the table, and may pack weights in their own
 * layout. */
typedef struct {
    const wf_kernel *const *kernels;
    size_t (*packed_bytes)(const wf_device *device, wf_type type, const wf_dims *shape);
    wf_status (*pack)(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape);
    wf_status (*unpack)(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape);
    wf_type_set packs;                /* set of types whose weights are faster packed */
    const wf_cpu_function *functions; /* vector math functions; NULL: the C library's */
    const wf_cpu_loops *loops;
} wf_cpu_isa;

/* The best set of this machine, or the one that WEFT_CPU names. Fixed for the life of the process.
 * A device calls check first, which fails if WEFT_CPU names an unknown or unavailable set. */
wf_status wf_cpu_isa_check(wf_ctx *ctx);
const wf_cpu_isa *wf_cpu_isa_now(void);
const char *wf_cpu_isa_title(void);
/* Returns set i of this machine, best first, and its name; NULL past the last. */
const wf_cpu_isa *wf_cpu_isa_at(int i, const char **name);

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

size_t wf_cpu_isa_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape);
wf_status wf_cpu_isa_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                          const wf_dims *shape);
wf_status wf_cpu_isa_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                            const wf_dims *shape);
bool wf_cpu_isa_packing_pays(const wf_device *device, wf_type type, const wf_dims *shape);

size_t wf_cpu_available(const wf_device *device);
wf_status wf_cpu_peak(wf_device *device, int threads, size_t bytes, wf_device_peak *out);

/* A multiple of the rows of every kind of panel. */
#define WF_CPU_PACK_ROWS 64

/* The host-memory slots of wf_device_ops: all but opening, closing and buffer creation. */
#define WF_CPU_HOST_SLOTS                                                                          \
    .packed_bytes = wf_cpu_isa_packed_bytes, .pack = wf_cpu_isa_pack, .unpack = wf_cpu_isa_unpack, \
    .pack_rows = WF_CPU_PACK_ROWS, .packing_pays = wf_cpu_isa_packing_pays,                        \
    .buffer_map = wf_cpu_buffer_map, .queue_new = wf_cpu_queue_new,                                \
    .queue_free = wf_cpu_queue_free, .queue_wait = wf_cpu_queue_wait, .copy_in = wf_cpu_copy_in,   \
    .copy_out = wf_cpu_copy_out, .event_new = wf_cpu_event_new, .event_free = wf_cpu_event_free,   \
    .event_record = wf_cpu_event_record, .event_wait = wf_cpu_event_wait, .peak = wf_cpu_peak,     \
    .available = wf_cpu_available

#endif

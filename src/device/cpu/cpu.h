/* SPDX-License-Identifier: MIT */
/*
 * cpu.h - what another device needs to run the cpu's kernels: their table, and memory, queues and
 * events of the host.
 */
#ifndef WF_DEVICE_CPU_CPU_H
#define WF_DEVICE_CPU_CPU_H

#include "device/cpu/pack.h"
#include "device/device.h"

#define WF_CPU_MAX_THREADS 1024

/* A function of one f32, applied to n of them. */
typedef struct {
    const char *name;
    void (*apply)(const float *x, float *y, int64_t n);
} wf_cpu_function;
/* Loops whose speed is that of the machine (peak.c). n is a multiple of 256, `to` aligned to 64 bytes. */
typedef struct {
    int64_t flops; /* of a round of multiply_add */
    float (*multiply_add)(int64_t rounds);
    float (*read)(const float *from, int64_t n); /* the sum */
    float (*read_rows)(const float *from,
                       int64_t n); /* the same, as 8 rows that are read together */
    void (*copy)(float *to, const float *from, int64_t n);
    void (*triad)(float *to, const float *a, const float *b, int64_t n); /* a + factor * b */
} wf_cpu_loops;
extern const wf_cpu_loops wf_cpu_plain_loops;

/* What the device runs, by instruction set. The plain one has the reference kernels; the others have
 * kernels of their own before these, in the same table, and may pack weights their own way. */
typedef struct {
    const wf_kernel *const *kernels;
    size_t (*packed_bytes)(const wf_device *device, wf_type type, const wf_dims *shape);
    wf_status (*pack)(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape);
    wf_status (*unpack)(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape);
    uint32_t packs;                   /* bit set of types: weights of these are better packed */
    const wf_cpu_function *functions; /* what kernels compute with; NULL: the C library's */
    const wf_cpu_loops *loops;
} wf_cpu_isa;

/* The best that the machine has, or what the environment variable WEFT_CPU names; the same for the life
 * of the process. Devices check first whether that is something. */
wf_status wf_cpu_isa_check(wf_ctx *ctx);
const wf_cpu_isa *wf_cpu_isa_now(void);
const char *wf_cpu_isa_title(void);
/* Set i of those that the machine has, the best first, and its name; NULL past the last. */
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

/* The slots of wf_device_ops but for those of the device itself and of its own buffers. */
#define WF_CPU_HOST_SLOTS                                                                          \
    .packed_bytes = wf_cpu_isa_packed_bytes, .pack = wf_cpu_isa_pack, .unpack = wf_cpu_isa_unpack, \
    .pack_rows = WF_CPU_PACK_ROWS, .packing_pays = wf_cpu_isa_packing_pays,                        \
    .buffer_map = wf_cpu_buffer_map, .queue_new = wf_cpu_queue_new,                                \
    .queue_free = wf_cpu_queue_free, .queue_wait = wf_cpu_queue_wait, .copy_in = wf_cpu_copy_in,   \
    .copy_out = wf_cpu_copy_out, .event_new = wf_cpu_event_new, .event_free = wf_cpu_event_free,   \
    .event_record = wf_cpu_event_record, .event_wait = wf_cpu_event_wait, .peak = wf_cpu_peak,     \
    .available = wf_cpu_available

#endif

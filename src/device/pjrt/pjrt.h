/* SPDX-License-Identifier: MIT */
/*
 * pjrt.h - what the files of the pjrt device share.
 *
 * The device compiles whole graphs: to core ops, to StableHLO, and by a PJRT plugin to whatever the
 * plugin drives. plugin.c loads a plugin and calls it, buffer.c holds its arrays, exec.c its
 * executables, pjrt.c is the device.
 */
#ifndef WF_DEVICE_PJRT_PJRT_H
#define WF_DEVICE_PJRT_PJRT_H

#include "device/device.h"
#include "device/pjrt/pjrt_api.h"

/* A loaded plugin and the client made from it. */
typedef struct {
    wf_ctx *ctx;
    const pjrt_api *api;
    size_t execute_options; /* the size of this struct in the plugin's version */
    void *client, *device;  /* the first device that the client may use */
    char platform[32];      /* cpu, cuda, ... */
} wf_pjrt_plugin;

wf_status wf_pjrt_open(wf_ctx *ctx, const char *path, wf_pjrt_plugin *p);
/* Arrays and executables must be gone. The library stays loaded: plugins cannot be taken out. */
void wf_pjrt_close(wf_pjrt_plugin *p);

/* Calls a slot with a struct whose last field is `last`. Failures say `what` could not be done. */
#define wf_pjrt_call(p, slot, args, last, what)                                                 \
    wf_pjrt_call_sized(p, slot, args, offsetof(__typeof__(*(args)), last) + sizeof(args)->last, \
                       what)
wf_status wf_pjrt_call_sized(wf_pjrt_plugin *p, int slot, void *args, size_t size,
                             const char *what);
/* For slots that cannot fail: they destroy a handle, which may be NULL. */
void wf_pjrt_destroy(wf_pjrt_plugin *p, int slot, void *handle);
/* Waits for an event and destroys it. NULL has happened. */
wf_status wf_pjrt_await(wf_pjrt_plugin *p, void *event, const char *what);

/* An executable in the cache of the device. */
typedef struct wf_pjrt_program {
    struct wf_pjrt_program *next;
    char *text; /* what it was compiled from */
    size_t bytes;
    uint64_t hash;
    void *executable;
    int users;
} wf_pjrt_program;

typedef struct {
    wf_device head;
    wf_pjrt_plugin plugin;
    wf_pjrt_program *programs; /* the latest first */
} wf_pjrt_device;

/* An array. A plugin's array has a type and a shape, so the buffer has them too; those of states are
 * known once a graph was compiled, before anybody can write or read. */
typedef struct {
    wf_buffer head;
    wf_type type;
    wf_dims shape;
    void *handle; /* NULL: zeros that were never written, or no bytes */
} wf_pjrt_buffer;

/* A session's line of work. */
typedef struct {
    wf_queue head;
    void *last; /* event of the last run, or NULL */
} wf_pjrt_queue;

/* buffer.c. Arrays are written and read whole. */
wf_status wf_pjrt_buffer_new(wf_device *device, size_t bytes, wf_buffer **out);
void wf_pjrt_buffer_free(wf_buffer *buffer);
void wf_pjrt_buffer_shape(wf_buffer *buffer, wf_type type, const wf_dims *shape);
wf_status wf_pjrt_buffer_write(wf_pjrt_buffer *b, const void *from);
wf_status wf_pjrt_buffer_read(const wf_pjrt_buffer *b, void *to);
/* Makes the zeros of an array that was never written. */
wf_status wf_pjrt_buffer_touch(wf_pjrt_buffer *b);
/* Puts another handle in place of the one it has, which is destroyed. */
void wf_pjrt_buffer_replace(wf_pjrt_buffer *b, void *handle);

/* exec.c */
wf_status wf_pjrt_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out);
wf_status wf_pjrt_plan(wf_device *device, wf_graph *graph, const wf_compile_options *options,
                       wf_memory *out);
void wf_pjrt_programs_free(wf_pjrt_device *device);

#endif

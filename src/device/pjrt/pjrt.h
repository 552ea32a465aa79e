/* SPDX-License-Identifier: MIT */
/*
 * pjrt.h - shared declarations of the pjrt device.
 *
 * The device compiles whole graphs. It expands ops without a StableHLO form, lowers the graph to
 * StableHLO, and passes that to a PJRT plugin. plugin.c loads and calls a plugin, client.c creates
 * its client, buffer.c wraps its arrays, program.c holds compiled programs (cache.c caches them on
 * disk), exec.c holds executables, and pjrt.c is the device.
 */
#ifndef WF_DEVICE_PJRT_PJRT_H
#define WF_DEVICE_PJRT_PJRT_H

#include "device/device.h"
#include "device/pjrt/pjrt_api.h"

/* A loaded plugin and the client made from it. */
typedef struct {
    wf_ctx *ctx;
    const pjrt_api *api;
    size_t execute_options; /* sizeof PJRT_ExecuteOptions in the plugin's version */
    wf_file_stamp stamp;    /* of the plugin's file; zeros if a search path found it */
    int code;               /* of the last error */
    void *client, *device;  /* the first device that the client may use */
    char platform[32];      /* cpu, cuda, ... */
    char kind[64];          /* name of the device; "" if unknown */
    char version[48];       /* of the platform; "" if unknown */
} wf_pjrt_plugin;

/* Loads the plugin and creates its client. spec: "PLUGIN.so,name=value,..." (client.c). */
wf_status wf_pjrt_open(wf_ctx *ctx, const char *spec, wf_pjrt_plugin *p);
/* Destroys the client. Free all arrays and executables first. The library stays loaded: plugins do
 * not support unloading. */
void wf_pjrt_close(wf_pjrt_plugin *p);
/* Loads and initializes the plugin, without a client. */
wf_status wf_pjrt_load(wf_pjrt_plugin *p, const char *path);

/* Structs whose size depends on the plugin's version. */
typedef enum { WF_PJRT_CLIENT_CREATE, WF_PJRT_LOAD, WF_PJRT_EXECUTE_OPTIONS } wf_pjrt_struct;
size_t wf_pjrt_size(const wf_pjrt_plugin *p, wf_pjrt_struct which);

/* Returns whether the plugin has the function. wf_pjrt_load has checked the required ones. */
bool wf_pjrt_has(const wf_pjrt_plugin *p, int slot);
/* Calls a slot with a struct whose last field is `last`. On failure the message is "pjrt could not
 * WHAT: ...". */
#define wf_pjrt_call(p, slot, args, last, what)                                                 \
    wf_pjrt_call_sized(p, slot, args, offsetof(__typeof__(*(args)), last) + sizeof(args)->last, \
                       what)
wf_status wf_pjrt_call_sized(wf_pjrt_plugin *p, int slot, void *args, size_t size,
                             const char *what);
/* Calls a destroy slot, which cannot fail. Ignores a NULL handle. */
void wf_pjrt_destroy(wf_pjrt_plugin *p, int slot, void *handle);
/* Waits for an event and destroys it. NULL returns at once. */
wf_status wf_pjrt_await(wf_pjrt_plugin *p, void *event, const char *what);

/* A compiled program, reference-counted by executables. */
typedef struct wf_pjrt_program {
    struct wf_pjrt_program *next;
    char *text; /* its StableHLO, owned */
    size_t bytes;
    uint64_t hash;    /* of the text */
    void *loaded;     /* the plugin's executable */
    size_t temporary; /* bytes in use during a run; 0 if unknown */
    int users;
} wf_pjrt_program;

typedef struct {
    wf_device head;
    wf_pjrt_plugin plugin;
    wf_pjrt_program *programs; /* latest first */
} wf_pjrt_device;

/* An array. PJRT arrays have a type and a shape, so the buffer stores them. For a state they are
 * set when it is added, before the first read or write. */
typedef struct {
    wf_buffer head;
    wf_type type;
    wf_dims shape;
    void *handle; /* NULL: never written (reads as zeros), or empty */
    bool lost;    /* a failed run consumed it */
} wf_pjrt_buffer;

/* A session's queue. */
typedef struct {
    wf_queue head;
    void *last; /* event of the last run, or NULL */
} wf_pjrt_queue;

/* buffer.c. Writes and reads cover the whole array. */
wf_status wf_pjrt_buffer_new(wf_device *device, size_t bytes, wf_buffer **out);
void wf_pjrt_buffer_free(wf_buffer *buffer);
void wf_pjrt_buffer_shape(wf_buffer *buffer, wf_type type, const wf_dims *shape);
wf_status wf_pjrt_buffer_write(wf_pjrt_buffer *b, const void *from);
wf_status wf_pjrt_buffer_read(const wf_pjrt_buffer *b, void *to);
/* Makes sure that the array has a handle: an array never written gets zeros. Fails if it was
 * lost. */
wf_status wf_pjrt_buffer_touch(wf_pjrt_buffer *b);
/* Destroys the current handle and sets a new one, which the buffer owns; NULL: zeros. */
void wf_pjrt_buffer_replace(wf_pjrt_buffer *b, void *handle);
/* After a failed run: marks the array as lost if the plugin has deleted it. */
void wf_pjrt_buffer_check(wf_pjrt_buffer *b);

/* program.c. Programs are identified by their text. */
/* Finds the program of this text, loads it from disk or compiles it, and adds a user. Takes
 * ownership of `text`, also on failure. */
wf_status wf_pjrt_program_get(wf_pjrt_device *device, char *text, size_t bytes,
                              wf_pjrt_program **out);
void wf_pjrt_program_release(wf_pjrt_device *device, wf_pjrt_program *program); /* accepts NULL */
void wf_pjrt_programs_free(wf_pjrt_device *device);
/* Returns the serialized CompileOptionsProto for this platform. */
const char *wf_pjrt_compile_options(const wf_pjrt_plugin *p, size_t *bytes);
/* Returns the executable behind a program, or NULL if the plugin does not expose it. The caller
 * destroys it. */
void *wf_pjrt_executable(wf_pjrt_plugin *p, const wf_pjrt_program *program);

/* cache.c. Programs on disk, if WEFT_CACHE names a folder. Failures are logged, never returned. */
/* Sets program->loaded. Returns false if the program must be compiled. */
bool wf_pjrt_cache_load(wf_pjrt_plugin *p, wf_pjrt_program *program);
void wf_pjrt_cache_store(wf_pjrt_plugin *p, const wf_pjrt_program *program);

/* exec.c */
wf_status wf_pjrt_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out);
wf_status wf_pjrt_plan(wf_device *device, const wf_session *session, wf_graph *graph,
                       const wf_compile_options *options, wf_memory *out);

#endif

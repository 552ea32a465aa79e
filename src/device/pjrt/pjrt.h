/* SPDX-License-Identifier: MIT */
/*
 * pjrt.h - what the files of the pjrt device share.
 *
 * The device compiles whole graphs: to core ops, to StableHLO, and by a PJRT plugin to whatever the
 * plugin drives. plugin.c loads a plugin and calls it, client.c makes its client, buffer.c holds its
 * arrays, program.c its programs (cache.c those on disk), exec.c executables; pjrt.c is the device.
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
    wf_file_stamp stamp;    /* of the plugin's file; zeros when it was found by a search path */
    int code;               /* of the last error */
    void *client, *device;  /* the first device that the client may use */
    char platform[32];      /* cpu, cuda, ... */
    char kind[64];          /* what the device is called; "" when nobody knows */
    char version[48];       /* of the platform; "" when nobody knows */
} wf_pjrt_plugin;

/* spec: "PLUGIN.so,name=value,..." (client.c). */
wf_status wf_pjrt_open(wf_ctx *ctx, const char *spec, wf_pjrt_plugin *p);
/* Arrays and executables must be gone. The library stays loaded: plugins cannot be taken out. */
void wf_pjrt_close(wf_pjrt_plugin *p);
/* Finds and initializes the plugin, without a client. */
wf_status wf_pjrt_load(wf_pjrt_plugin *p, const char *path);

/* Structs whose size depends on the plugin's version. */
typedef enum { WF_PJRT_CLIENT_CREATE, WF_PJRT_LOAD, WF_PJRT_EXECUTE_OPTIONS } wf_pjrt_struct;
size_t wf_pjrt_size(const wf_pjrt_plugin *p, wf_pjrt_struct which);

/* Whether the plugin has the function; those that are not optional were looked for when it was loaded. */
bool wf_pjrt_has(const wf_pjrt_plugin *p, int slot);
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

/* A compiled program. */
typedef struct wf_pjrt_program {
    struct wf_pjrt_program *next;
    char *text; /* what it was compiled from */
    size_t bytes;
    uint64_t hash;
    void *loaded;     /* the plugin's executable */
    size_t temporary; /* bytes that a run takes and gives back; 0 when the plugin does not say */
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
    bool lost;    /* a run took it and failed */
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
/* Makes the zeros of an array that was never written. Fails when it was lost. */
wf_status wf_pjrt_buffer_touch(wf_pjrt_buffer *b);
/* Puts another handle in place of the one it has, which is destroyed. */
void wf_pjrt_buffer_replace(wf_pjrt_buffer *b, void *handle);
/* After a run that failed: whether the plugin still has the array. */
void wf_pjrt_buffer_check(wf_pjrt_buffer *b);

/* program.c. Programs are kept by their text. */
/* Finds, loads from disk or compiles the program of this text, which is taken over, and counts a
 * user. */
wf_status wf_pjrt_program_get(wf_pjrt_device *device, char *text, size_t bytes,
                              wf_pjrt_program **out);
void wf_pjrt_program_release(wf_pjrt_device *device, wf_pjrt_program *program); /* NULL is fine */
void wf_pjrt_programs_free(wf_pjrt_device *device);
/* Serialized CompileOptionsProto for this platform. */
const char *wf_pjrt_compile_options(const wf_pjrt_plugin *p, size_t *bytes);
/* The executable behind a program, to be destroyed; NULL when the plugin does not give it. */
void *wf_pjrt_executable(wf_pjrt_plugin *p, const wf_pjrt_program *program);

/* cache.c. Programs on disk, where WEFT_CACHE names a folder. What goes wrong is for the log. */
/* Sets program->loaded. false: it has to be compiled. */
bool wf_pjrt_cache_load(wf_pjrt_plugin *p, wf_pjrt_program *program);
void wf_pjrt_cache_store(wf_pjrt_plugin *p, const wf_pjrt_program *program);

/* exec.c */
wf_status wf_pjrt_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out);
wf_status wf_pjrt_plan(wf_device *device, const wf_session *session, wf_graph *graph,
                       const wf_compile_options *options, wf_memory *out);

#endif

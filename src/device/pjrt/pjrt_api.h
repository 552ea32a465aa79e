/* SPDX-License-Identifier: MIT */
/*
 * pjrt_api.h - the part of the PJRT C API (openxla/xla, xla/pjrt/c/pjrt_c_api.h) that Weft uses,
 * declared from its binary layout.
 *
 * A plugin exports GetPjrtApi, which returns a table of functions. Slots never move; new ones are
 * added at the end. Every function takes one struct, which begins with its size, and returns NULL
 * or an error. The size ends with the last field, without padding. A struct may grow in a minor
 * version, and a plugin refuses a struct smaller than its own. So each struct here has a zeroed
 * spare tail, and the size passed depends on the plugin's version (plugin.c).
 */
#ifndef WF_DEVICE_PJRT_PJRT_API_H
#define WF_DEVICE_PJRT_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PJRT_SPARE 128 /* bytes after a struct for fields of later versions */

typedef struct {
    size_t size;
    void *extensions;
    struct {
        size_t size;
        void *extensions;
        int major, minor;
    } version;
    void *slot[];
} pjrt_api;

/* Slots of the table. */
enum {
    PJRT_ERROR_DESTROY = 0,
    PJRT_ERROR_MESSAGE = 1,
    PJRT_ERROR_CODE = 2,
    PJRT_PLUGIN_INITIALIZE = 3,
    PJRT_EVENT_DESTROY = 5,
    PJRT_EVENT_AWAIT = 8,
    PJRT_CLIENT_CREATE = 10,
    PJRT_CLIENT_DESTROY = 11,
    PJRT_CLIENT_PLATFORM_NAME = 12,
    PJRT_CLIENT_PLATFORM_VERSION = 14, /* optional */
    PJRT_CLIENT_DEVICES = 16,          /* addressable devices */
    PJRT_CLIENT_COMPILE = 20,
    PJRT_CLIENT_FROM_HOST = 22,
    PJRT_DESCRIPTION_KIND = 26,     /* optional: name of a device */
    PJRT_DEVICE_DESCRIPTION = 29,   /* optional */
    PJRT_EXECUTABLE_DESTROY = 40,   /* optional */
    PJRT_EXECUTABLE_SERIALIZE = 49, /* optional */
    PJRT_LOADED_DESTROY = 50,
    PJRT_LOADED_EXECUTABLE = 51, /* optional: the executable behind a loaded one */
    PJRT_EXECUTE = 55,
    PJRT_LOAD = 56, /* optional: load a serialized executable */
    PJRT_BUFFER_DESTROY = 58,
    PJRT_BUFFER_IS_DELETED = 68, /* optional */
    PJRT_BUFFER_TO_HOST = 70,
    PJRT_BUFFER_POINTER = 73,    /* optional */
    PJRT_EXECUTABLE_MEMORY = 96, /* optional */
    PJRT_SLOTS = 97
};

/* Element types. */
enum {
    PJRT_S8 = 2,
    PJRT_S32 = 4,
    PJRT_U8 = 6,
    PJRT_F16 = 10,
    PJRT_F32 = 11,
    PJRT_BF16 = 13,
    PJRT_F8E5M2 = 16,
    PJRT_F8E4M3FN = 17
};

/* Error codes, as in gRPC. */
enum { PJRT_INVALID_ARGUMENT = 3, PJRT_RESOURCE_EXHAUSTED = 8, PJRT_UNIMPLEMENTED = 12 };

#define PJRT_HEAD \
    size_t size;  \
    void *extensions

/* For initialize, and for functions that take one handle: destroy and await. */
typedef struct {
    PJRT_HEAD;
    void *handle;
    char spare[PJRT_SPARE];
} pjrt_handle_args;

typedef struct {
    PJRT_HEAD;
    const void *error;
    const char *text; /* out; no NUL at its end */
    size_t bytes;     /* out */
    char spare[PJRT_SPARE];
} pjrt_message_args;

typedef struct {
    PJRT_HEAD;
    const void *error;
    int code; /* out */
    char spare[PJRT_SPARE];
} pjrt_code_args;

/* Kinds of named values. */
enum { PJRT_TEXT = 0, PJRT_INTEGER = 1, PJRT_LIST = 2, PJRT_REAL = 3, PJRT_TRUTH = 4 };

/* Elements of arrays: no spare tail. */
typedef struct {
    PJRT_HEAD;
    const char *name;
    size_t name_bytes;
    int kind;
    union {
        const char *text;
        int64_t integer;
        const int64_t *list;
        float real;
        bool truth;
    } value;
    size_t count; /* bytes of a text, elements of a list, else 1 */
} pjrt_named_value;

typedef struct {
    PJRT_HEAD;
    const pjrt_named_value *options;
    size_t option_count;
    void *get, *get_arg, *put, *put_arg;
    void *client;                /* out */
    void *try_get, *try_get_arg; /* since 0.61 */
    char spare[PJRT_SPARE];
} pjrt_client_args;

typedef struct {
    PJRT_HEAD;
    void *client;
    const char *text; /* out; no NUL at its end */
    size_t bytes;     /* out */
    char spare[PJRT_SPARE];
} pjrt_name_args;

typedef struct {
    PJRT_HEAD;
    void *device;
    void *description; /* out */
    char spare[PJRT_SPARE];
} pjrt_description_args;

typedef struct {
    PJRT_HEAD;
    void *client;
    void *const *devices; /* out */
    size_t count;         /* out */
    char spare[PJRT_SPARE];
} pjrt_devices_args;

typedef struct {
    PJRT_HEAD;
    char *code;
    size_t bytes;
    const char *format;
    size_t format_bytes;
    char spare[PJRT_SPARE];
} pjrt_program;

typedef struct {
    PJRT_HEAD;
    void *client;
    const pjrt_program *program;
    const char *options; /* a CompileOptionsProto */
    size_t option_bytes;
    void *executable; /* out */
    char spare[PJRT_SPARE];
} pjrt_compile_args;

/* Returns the executable behind a loaded one; the caller destroys it. */
typedef struct {
    PJRT_HEAD;
    void *loaded;
    void *executable; /* out */
    char spare[PJRT_SPARE];
} pjrt_executable_args;

typedef struct {
    PJRT_HEAD;
    void *executable;
    const char *data; /* out */
    size_t bytes;     /* out */
    void *owner;      /* out: owns the data; pass it to `release` */
    void (*release)(void *owner);
    char spare[PJRT_SPARE];
} pjrt_serialize_args;

typedef struct {
    PJRT_HEAD;
    void *client;
    const char *data;
    size_t bytes;
    void *loaded;        /* out */
    const char *options; /* since 0.71; NULL: the options it was compiled with */
    size_t option_bytes;
    void *more; /* since 0.111 */
    char spare[PJRT_SPARE];
} pjrt_load_args;

/* Memory statistics of an executable, in bytes. All fields are out; later versions have more. */
typedef struct {
    PJRT_HEAD;
    void *executable;
    int64_t code, arguments, results, aliased, temporary;
    int64_t host_code, host_arguments, host_results, host_aliased, host_temporary;
    char spare[PJRT_SPARE];
} pjrt_memory_args;

typedef struct {
    PJRT_HEAD;
    void *client;
    const void *data;
    int type;
    const int64_t *dims;
    size_t rank;
    const int64_t *strides;
    size_t stride_count;
    int semantics; /* 0: the data is copied before the call returns */
    void *device;
    void *memory, *layout; /* NULL: the device's defaults */
    void *done;            /* out: an event */
    void *buffer;          /* out */
    char spare[PJRT_SPARE];
} pjrt_from_host_args;

/* Layout of an array in host memory. */
typedef struct {
    PJRT_HEAD;
    struct {
        PJRT_HEAD;
        const int64_t *minor_to_major;
        size_t rank;
        const int64_t *tile_dims;
        const size_t *tile_sizes;
        size_t tiles;
    } tiled;
    int type; /* 0: tiled */
    char spare[PJRT_SPARE];
} pjrt_layout;

typedef struct {
    PJRT_HEAD;
    void *buffer;
    pjrt_layout *layout;
    void *to;
    size_t bytes;
    void *event; /* out */
    char spare[PJRT_SPARE];
} pjrt_to_host_args;

typedef struct {
    PJRT_HEAD;
    void *buffer;
    uintptr_t pointer; /* out */
    char spare[PJRT_SPARE];
} pjrt_pointer_args;

typedef struct {
    PJRT_HEAD;
    void *buffer;
    bool deleted; /* out */
    char spare[PJRT_SPARE];
} pjrt_deleted_args;

/* All fields but the size are zero. */
typedef struct {
    PJRT_HEAD;
    char fields[PJRT_SPARE + 128];
} pjrt_execute_options;

typedef struct {
    PJRT_HEAD;
    void *executable;
    pjrt_execute_options *options;
    void *const *const *args; /* [devices][args] */
    size_t device_count;
    size_t arg_count;
    void **const *results; /* [devices][results], filled in */
    void **events;         /* [devices], filled in */
    void *device;
    char spare[PJRT_SPARE];
} pjrt_execute_args;

#endif

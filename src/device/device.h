/* SPDX-License-Identifier: MIT */
/*
 * device.h - the device interface: the table of functions that a device implements, and the structs
 * behind sessions, states and executables.
 *
 * Two kinds of device share it. A kernel device has a table of kernels (kernel.h) and sets
 * `compile` to the shared plan executor (wf_plan_compile); a program device compiles whole graphs
 * its own way. Code above this layer uses the public functions of weft.h only. A device, its
 * sessions and its executables are used by one thread at a time.
 */
#ifndef WF_DEVICE_DEVICE_H
#define WF_DEVICE_DEVICE_H

#include "base/file.h"
#include "device/kernel.h"
#include "graph/target.h"

typedef struct wf_device_ops wf_device_ops;
typedef struct wf_exec_ops wf_exec_ops;
typedef struct wf_plan_exec wf_plan_exec; /* executor.h */

struct wf_device {
    const wf_device_ops *ops;
    wf_ctx *ctx;
    wf_target target;
    const wf_kernel *const *kernels; /* NULL for a program device */
    int threads;
    bool fast;        /* admits nondeterministic kernels */
    size_t reserve;   /* bytes outside the buffers that drivers, libraries and a session hold */
    bool timed;       /* measure every step, even if that slows down runs */
    bool dense_views; /* for tests: no view shares storage, so that view kernels run */
    bool expanded[WF_OP_COUNT]; /* for tests: expand this op even where a kernel fits */
    int session_count;          /* open sessions; the device cannot be closed before them */
    size_t bytes, peak_bytes;   /* in buffers: now, and the maximum so far */
    char description[256];
    /* Numerics fingerprint: devices with equal strings produce equal bits. NULL: the
     * description. */
    const char *rounds_as;
};

/* A block of device memory. */
typedef struct {
    wf_device *device;
    size_t bytes;
    void *base;    /* address for the device's kernels; NULL on program devices */
    bool borrowed; /* the memory has another owner and is not in the device's account */
} wf_buffer;

/* Work in a queue runs in order. */
typedef struct wf_queue {
    wf_device *device;
} wf_queue;

/* Marks a point in a queue. */
typedef struct {
    wf_device *device;
    uint64_t ns; /* wf_clock_ns when the queue reached it; 0: not recorded */
} wf_event;

/* Measured peak rates of a device, the reference for reported utilization. */
typedef struct {
    double read, copy, triad; /* bytes/s, reads plus writes */
    double flops;             /* f32 FLOP/s; a multiply-add counts as 2 */
    double narrow;            /* FLOP/s of bf16 matmuls; 0: unknown */
    double launch;            /* least seconds per kernel; 0: negligible */
} wf_device_peak;

/* Slots are required unless marked optional. Devices embed the structs above as the first member of
 * their own. */
struct wf_device_ops {
    const char *kind;
    const char *doc; /* one line for `weft devices` */
    bool automatic;  /* may be chosen when the user names no device (choose.h) */
    /* How many sizes of a graph per factor of two pay off for varying batches: many where compiling
     * takes milliseconds. 0: powers of four, where it takes seconds. */
    int sizes_per_doubling;
    wf_status (*open)(wf_ctx *ctx, const char *options, wf_device **out);
    void (*close)(wf_device *device);

    wf_status (*buffer_new)(wf_device *device, size_t bytes, wf_buffer **out); /* zeroed */
    void (*buffer_free)(wf_buffer *buffer);

    wf_status (*queue_new)(wf_device *device, wf_queue **out);
    void (*queue_free)(wf_queue *queue);
    wf_status (*queue_wait)(wf_queue *queue);
    /* The caller may reuse the host memory when these return. */
    wf_status (*copy_in)(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                         size_t bytes);
    wf_status (*copy_out)(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                          size_t bytes);

    /* Optional: the type in which the device stores a value of this type, for devices that decode
     * quantized arrays while they are copied in. NULL: the same type. */
    wf_type (*stored_type)(wf_type type);
    /* Optional: sets the type and shape of a new buffer, before the first copy. */
    void (*buffer_describe)(wf_buffer *buffer, wf_type type, const wf_dims *shape);
    /* Optional: wraps host memory, which must stay valid and unchanged, in a buffer without
     * copying. NULL: mapped states are copied. */
    wf_status (*buffer_map)(wf_device *device, const void *from, size_t bytes, wf_buffer **out);
    /* Optional, all three together: store states in a device-specific layout, which only kernels
     * with `packed` read. packed_bytes returns 0 if this type and shape cannot be packed. */
    size_t (*packed_bytes)(const wf_device *device, wf_type type, const wf_dims *shape);
    wf_status (*pack)(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape);
    wf_status (*unpack)(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape);
    /* Optional: `pack` accepts any multiple of this many rows as a piece of a matrix. The piece
     * starts packed_bytes(rows before it) into the buffer; `pack` uses only the buffer's `base`. 0:
     * `pack` needs the whole matrix. */
    int64_t pack_rows;
    /* Optional: whether a read-only weight runs faster packed than mapped from its file. */
    bool (*packing_pays)(const wf_device *device, wf_type type, const wf_dims *shape);

    wf_status (*event_new)(wf_device *device, wf_event **out);
    void (*event_free)(wf_event *event);
    wf_status (*event_record)(wf_queue *queue, wf_event *event);
    wf_status (*event_wait)(wf_event *event);

    wf_status (*compile)(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                         wf_exec **out);
    /* Computes what compile would allocate, and allocates nothing on the device. The session
     * supplies the storage of states; NULL: all states are owned. */
    wf_status (*plan)(wf_device *device, const wf_session *session, wf_graph *graph,
                      const wf_compile_options *options, wf_memory *out);
    /* Optional, for kernel devices: how the shared executor runs a plan (executor.h). */

    /* Builds the data that run_plan needs into exec->own. Called once, after addresses are
     * bound. */
    wf_status (*prepare_plan)(wf_plan_exec *exec);
    /* Runs all steps and allocates nothing. NULL: the executor launches them one by one. */
    wf_status (*run_plan)(wf_plan_exec *exec);
    /* Frees memory of prepare_plan and run_plan outside the executable's arena. */
    void (*free_plan)(wf_plan_exec *exec);
    /* Must be called before a kernel is launched outside run_plan: a runtime's current
     * device may be a property of the thread. */
    wf_status (*before_launch)(wf_device *device);
    /* Runs are asynchronous: the caller may write the next run's inputs while this one runs. */
    bool runs_ahead;
    /* Matmuls run faster if they round f32 activations to the type of f16 and bf16 weights. */
    bool narrows;
    /* Optional: bytes still free for buffers; 0: unknown. */
    size_t (*available)(const wf_device *device);
    /* Optional: measures peak rates with `threads` of the device's threads; takes about a second.
     * `bytes` is the memory to stream: several times the size of the caches. */
    wf_status (*peak)(wf_device *device, int threads, size_t bytes, wf_device_peak *out);
};

/* Fails if `what` ("the graph") belongs to another context than the device. Both contexts get the
 * message, because the caller may read either. */
wf_status wf_device_check_ctx(const wf_device *device, wf_ctx *ctx, const char *what);

/* Account for device memory allocated outside wf_buffer_new. */
void wf_device_take(wf_device *device, size_t bytes);
void wf_device_give_back(wf_device *device, size_t bytes);

/* Returns the bytes of a value in the device's memory, unpacked. */
size_t wf_device_value_bytes(const wf_device *device, wf_type type, const wf_dims *shape);

/* Allocates a zeroed buffer and counts it in the device's account. Use these two functions, never
 * ops->buffer_new and ops->buffer_free directly. */
wf_status wf_buffer_new(wf_device *device, size_t bytes, wf_buffer **out);
/* Accepts NULL. */
void wf_buffer_free(wf_buffer *buffer);

/* Returns device kind `index` of this build, or NULL past the last. */
const wf_device_ops *wf_device_ops_get(int index);

/* How a session stores a state. */
typedef enum {
    WF_STATE_OWNED,  /* in a buffer, dense */
    WF_STATE_MAPPED, /* in a mapped file, read-only */
    WF_STATE_COPIED, /* copied from a file by a device that cannot map it; read-only */
    WF_STATE_PACKED  /* in a buffer, in a device-specific layout; graphs only read it */
} wf_storage;

/* A state of a session, or a narrow copy of one (copies.c). */
typedef struct wf_stored_state {
    char *name;
    wf_type type;
    wf_dims shape;
    size_t bytes; /* in host layout; the buffer may differ */
    wf_storage storage;
    bool rounded; /* matmuls may quantize activations (WF_MARK_ROUNDED) */
    wf_buffer *buffer;
    /* A packed state whose contents are still in a file: the mapping, which the session borrows,
     * and their offset in bytes. NULL: the contents are packed. */
    const wf_map *source;
    size_t source_at;
    uint64_t changes;               /* counts writes and runs that may have changed it */
    struct wf_stored_state *copies; /* list of narrow copies (copies.c) */
    /* For a copy only; a copy has no name. */
    struct wf_stored_state *next; /* in of->copies */
    struct wf_stored_state *of;   /* the state that it copies */
    uint64_t seen;                /* of->changes when the two were last equal */
    int users;                    /* executables that read it */
} wf_stored_state;

/* A file with mapped states. */
typedef struct wf_session_file {
    struct wf_session_file *next;
    char *path;
    wf_map *map;
    int states; /* mapped from it: at least one */
} wf_session_file;

struct wf_session {
    wf_ctx *ctx;
    wf_device *device;
    wf_queue *queue;
    wf_stored_state **states; /* addresses stay valid while the session lives */
    int state_count, state_cap;
    int waiting;         /* states with a `source`: not packed yet */
    uint64_t packing_ns; /* time spent packing them */
    wf_session_file *files;
    int exec_count; /* open executables; the session cannot be freed before them */
    /* Activation memory, shared by all executables: only one runs at a time. */
    wf_buffer *region;   /* NULL before the first compile, and after a failed reallocation */
    size_t region_bytes; /* the least size that all executables need */
    /* Memory for inputs and outputs of the executables with shares_ports; as above. */
    wf_buffer *ports;
    size_t ports_bytes;
    bool share_ports;    /* of executables compiled from now on */
    uint64_t ports_turn; /* counts changes of the executable that uses `ports`; 0: never used */
    /* Counts moves of `region` and `ports`. An executable bound to an older generation rebinds. */
    unsigned generation;
};

/* Declares a packed state without allocating it: for wf_session_plan only. */
wf_status wf_session_declare_packed(wf_session *session, const char *name, wf_type type, int rank,
                                    const int64_t *dims);
/* The same for a state that is mapped and rounded. */
wf_status wf_session_declare_rounded(wf_session *session, const char *name, wf_type type, int rank,
                                     const int64_t *dims);
/* Lets matmuls by this quantized state quantize activations, as they do for packed states. Affects
 * graphs compiled from now on. The state must exist. */
void wf_session_round(wf_session *session, const char *name);
/* Sets the contents of a packed state to state->bytes bytes of `map` from `offset` on, and defers
 * the packing. The first run that reads the state packs it, or wf_session_settle does. The mapping
 * must stay valid and unchanged until then; its pages are then released. */
void wf_session_write_later(wf_session *session, const char *name, const wf_map *map,
                            size_t offset);
/* Packs the deferred contents of one state, or of all states if NULL. Allocates nothing. If the
 * file was truncated it fails and the state stays deferred. */
wf_status wf_session_settle(wf_session *session, wf_stored_state *state);
/* wf_plan_memory with the session's storage of states. If the session shares ports, out->ports is
 * the size of the shared memory after compiling the graph. */
wf_status wf_session_plan(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_memory *out);
/* Frees a state, by its index in wf_session_state. No executable may use it. */
void wf_session_remove(wf_session *session, int index);
/* Returns the state, or NULL. */
wf_stored_state *wf_session_find(const wf_session *session, const char *name);
/* Fails if a mapped file was truncated or became unreadable: runs then read zeros. */
wf_status wf_session_check_files(const wf_session *session);
/* Fails unless bytes [offset, offset + bytes) lie inside the `size` bytes of `what` ("state")
 * `name`. */
wf_status wf_range_check(wf_ctx *ctx, const char *what, const char *name, size_t size,
                         size_t offset, size_t bytes);
/* Fills in the description of a state, an input or an output. *out borrows `name`. */
void wf_info_fill(wf_info *out, const char *name, wf_type type, const wf_dims *shape, size_t bytes);
/* Grows the region to at least `bytes`; growing loses its contents. On failure it reallocates the
 * old size for the other executables. If that fails too, runs fail until a later call succeeds. */
wf_status wf_session_reserve(wf_session *session, size_t bytes);
/* The same for the shared memory of inputs and outputs. */
wf_status wf_session_reserve_ports(wf_session *session, size_t bytes);
/* Returns the size of that memory after compiling an executable that needs `bytes`. */
size_t wf_session_ports_bytes(const wf_session *session, size_t bytes);

/* Finds the session's state for a graph's state node, or adds it, zeroed. Fails if type or shape
 * differ. */
wf_status wf_session_bind(wf_session *session, const wf_node *state, wf_stored_state **out);

/* The same for a narrow copy of a state that is already bound. Release each copy; the last release
 * frees it. */
wf_status wf_session_bind_copy(wf_session *session, const wf_node *copy, wf_stored_state **out);
void wf_session_release_copy(wf_session *session, wf_stored_state *copy);

/* One input or output of an executable. */
typedef struct {
    char *name;
    wf_type type;
    wf_dims shape;
    size_t bytes;
    size_t where; /* device-specific: offset in the port memory, or an index */
    /* Outputs: a host copy for wf_exec_read_at, made after run number copy_run; NULL: not made. */
    void *copy;
    uint64_t copy_run;
    bool needed;  /* inputs: runs read it */
    bool written; /* inputs: its contents are in the port memory */
} wf_port;

/* The base of every executable; devices embed it as their first member. */
struct wf_exec {
    const wf_exec_ops *ops;
    wf_session *session;
    wf_port *inputs, *outputs;
    int input_count, output_count;
    /* Inputs and outputs are in session->ports. They are intact while session->ports_turn has not
     * changed since this executable took the memory, and since its last run. */
    bool shares_ports;
    uint64_t took_turn, ran_turn;
    wf_memory memory;
    wf_run_stats stats;
    wf_status last;   /* status of the last run */
    uint64_t choices; /* hash of choices made by measuring, such as GEMM algorithms; 0: no choice */
};

/* The public wf_exec_* functions check names, sizes and the order of calls first. */
struct wf_exec_ops {
    wf_status (*write)(wf_exec *exec, const wf_port *input, const void *from);
    wf_status (*run)(wf_exec *exec);
    wf_status (*read)(wf_exec *exec, const wf_port *output, void *to);
    /* Optional: reads a range. NULL: exec.c reads the whole output once per run. */
    wf_status (*read_at)(wf_exec *exec, const wf_port *output, size_t offset, void *to,
                         size_t bytes);
    bool (*op_stats)(const wf_exec *exec, int index, wf_op_stats *out);
    void (*free)(wf_exec *exec);
};

/* The shared executor of kernel devices (plan.c, exec.c). */
wf_status wf_plan_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out);
/* Checks the values of options; NULL means the defaults and is valid. */
wf_status wf_options_check(wf_ctx *ctx, const wf_compile_options *options);
/* wf_device_ops.plan of kernel devices: makes a plan and returns its sizes. */
wf_status wf_plan_sizes(wf_device *device, const wf_session *session, wf_graph *graph,
                        const wf_compile_options *options, wf_memory *out);
/* Expands every node of this op from now on, even if the device has a kernel. Fails for core
 * ops. */
wf_status wf_device_force_expansion(wf_device *device, wf_op op);
/* wf_target.supports and .workspace of kernel devices; target->owner is the device. */
bool wf_kernel_target_supports(const wf_target *target, const wf_node *n);
size_t wf_kernel_target_workspace(const wf_target *target, const wf_node *n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * device.h - the device interface: what a device implements, by lifetime of the things it makes.
 *
 * Two kinds of device share it. A kernel device has a table of kernels (kernel.h) and sets
 * `compile` to the shared plan executor (wf_plan_compile); a program device compiles whole graphs
 * its own way. Code above this layer uses the public functions of weft.h only.
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
    bool fast;      /* admits nondeterministic kernels */
    size_t reserve; /* bytes that drivers and libraries took when it was opened, and a session takes
                       beside its buffers */
    bool timed;     /* asked to tell the time of each step, be it slower for that */
    bool dense_views;           /* for tests: no view shares storage, so that their kernels run */
    bool expanded[WF_OP_COUNT]; /* for tests: expand this op even where a kernel fits */
    int session_count;          /* sessions alive, which must go first */
    size_t bytes, peak_bytes;   /* in buffers: now, and the most there have been */
    char description[256];
    const char *rounds_as; /* what rounds alike has this in common; NULL: the description */
};

/* Memory of the device. */
typedef struct {
    wf_device *device;
    size_t bytes;
    void *base;    /* the address by which the device's kernels know it; NULL for program devices */
    bool borrowed; /* the memory is somebody else's, and not counted */
} wf_buffer;

/* A line of work: what is put into it is done in order. */
typedef struct wf_queue {
    wf_device *device;
} wf_queue;

/* A point in a queue. */
typedef struct {
    wf_device *device;
    uint64_t ns; /* when it was reached, by wf_clock_ns; 0: not recorded */
} wf_event;

/* What memory and arithmetic of a device give at best, measured: what speeds are compared with. */
typedef struct {
    double read, copy, triad; /* bytes a second, what is written counting as what is read does */
    double flops;  /* f32 operations a second; a multiplication and an addition are two */
    double narrow; /* the same of products of bf16; 0: not known */
    double launch; /* seconds that a kernel takes at least; 0: none to speak of */
} wf_device_peak;

/* All slots are required unless marked. Devices embed the structs above in their own. */
struct wf_device_ops {
    const char *kind;
    const char *doc; /* one line for `weft devices` */
    bool automatic;  /* may be chosen where no device was named (choose.h) */
    wf_status (*open)(wf_ctx *ctx, const char *options, wf_device **out);
    void (*close)(wf_device *device);

    wf_status (*buffer_new)(wf_device *device, size_t bytes, wf_buffer **out); /* zeroed */
    void (*buffer_free)(wf_buffer *buffer);

    wf_status (*queue_new)(wf_device *device, wf_queue **out);
    void (*queue_free)(wf_queue *queue);
    wf_status (*queue_wait)(wf_queue *queue);
    /* The host memory may be reused when these return. */
    wf_status (*copy_in)(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                         size_t bytes);
    wf_status (*copy_out)(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                          size_t bytes);

    /* Optional: the type in which the device stores a value of this type, for devices that decode
     * quantized arrays while they are copied in. NULL: the same type. */
    wf_type (*stored_type)(wf_type type);
    /* Optional: says what a new buffer is for, before anything is copied. */
    void (*buffer_describe)(wf_buffer *buffer, wf_type type, const wf_dims *shape);
    /* Optional: a buffer over memory of the host that stays as it is, without copying. Without it a
     * mapped state is copied. */
    wf_status (*buffer_map)(wf_device *device, const void *from, size_t bytes, wf_buffer **out);
    /* Optional, all three or none: states in a layout of the device's own, which only kernels with
     * `packed` read. packed_bytes is 0 for what cannot be packed. */
    size_t (*packed_bytes)(const wf_device *device, wf_type type, const wf_dims *shape);
    wf_status (*pack)(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                      const wf_dims *shape);
    wf_status (*unpack)(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                        const wf_dims *shape);
    /* Optional: rows of a matrix, in multiples of this, that may be packed by themselves: those before them take
     * up packed_bytes, and of the buffer only `base` is looked at. 0: all at once. */
    int64_t pack_rows;
    /* Optional: whether a weight that is only read is better packed than left where it lies. */
    bool (*packing_pays)(const wf_device *device, wf_type type, const wf_dims *shape);

    wf_status (*event_new)(wf_device *device, wf_event **out);
    void (*event_free)(wf_event *event);
    wf_status (*event_record)(wf_queue *queue, wf_event *event);
    wf_status (*event_wait)(wf_event *event);

    wf_status (*compile)(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                         wf_exec **out);
    /* What compile would allocate, without doing so. The session, which may be NULL, says how states are
     * kept. */
    wf_status (*plan)(wf_device *device, const wf_session *session, wf_graph *graph,
                      const wf_compile_options *options, wf_memory *out);
    /* Optional, for kernel devices: how the shared executor runs a plan (executor.h). */

    /* Builds the data that run_plan needs into exec->own. Called once, after addresses are bound. */
    wf_status (*prepare_plan)(wf_plan_exec *exec);
    /* Runs all steps and allocates nothing. NULL: the executor launches them one by one. */
    wf_status (*run_plan)(wf_plan_exec *exec);
    /* Frees memory of prepare_plan and run_plan outside the executable's arena. */
    void (*free_plan)(wf_plan_exec *exec);
    /* Must be called before a kernel is launched outside run_plan: a runtime's current
     * device may be a property of the thread. */
    wf_status (*before_launch)(wf_device *device);
    /* Runs return before they are done; the caller may write the inputs of the next run meanwhile. */
    bool runs_ahead;
    /* Optional: bytes that buffers could still take; 0: unknown. */
    size_t (*available)(const wf_device *device);
    /* Optional: measures it, which takes a second or so, with so many of the device's threads, 1 to all of
     * them, and by streaming through `bytes` of memory: several times what its caches hold. */
    wf_status (*peak)(wf_device *device, int threads, size_t bytes, wf_device_peak *out);
};

/* Fails when `what`, as in "the graph", comes from another context than the device. Both contexts get
 * the message: the caller may look at either. */
wf_status wf_device_check_ctx(const wf_device *device, wf_ctx *ctx, const char *what);

/* The device's account, for memory that is not in buffers made below. */
void wf_device_take(wf_device *device, size_t bytes);
void wf_device_give_back(wf_device *device, size_t bytes);

/* Bytes that a value takes in the device's memory, unpacked. */
size_t wf_device_value_bytes(const wf_device *device, wf_type type, const wf_dims *shape);

/* All buffers are made and freed here, where the account is kept. Contents are zeros. */
wf_status wf_buffer_new(wf_device *device, size_t bytes, wf_buffer **out);
/* NULL is allowed. */
void wf_buffer_free(wf_buffer *buffer);

/* The kinds of device in this build; NULL past the last. */
const wf_device_ops *wf_device_ops_get(int index);

/* How a session keeps a state. */
typedef enum {
    WF_STATE_OWNED,  /* in a buffer, dense */
    WF_STATE_MAPPED, /* in a file, read-only */
    WF_STATE_COPIED, /* the same, on a device that had to copy it */
    WF_STATE_PACKED  /* in a buffer, in the device's own layout; no graph may write it */
} wf_storage;

/* A state of a session. */
typedef struct wf_stored_state {
    char *name;
    wf_type type;
    wf_dims shape;
    size_t bytes; /* as the host sees it */
    wf_storage storage;
    bool rounded; /* products may round activations (WF_MARK_ROUNDED) */
    wf_buffer *buffer;
    /* Packed states: the file whose bytes are packed when they are first needed, and where they begin.
     * NULL: that is done. */
    const wf_map *source;
    size_t source_at;
    uint64_t changes;               /* how often it may have changed */
    struct wf_stored_state *copies; /* narrow ones (copies.c), */
    struct wf_stored_state *next;   /* linked by this */
    struct wf_stored_state *of;     /* a copy, which has no name: the state it is of, */
    uint64_t seen;                  /* and of->changes when it was last equal to it; */
    int users;                      /* executables that read it */
} wf_stored_state;

/* A file in which mapped states lie. */
typedef struct wf_session_file {
    struct wf_session_file *next;
    char *path;
    wf_map *map;
    int states; /* that lie in it: at least one */
} wf_session_file;

struct wf_session {
    wf_ctx *ctx;
    wf_device *device;
    wf_queue *queue;
    wf_stored_state **states; /* each stays where it is while the session lives */
    int state_count, state_cap;
    int waiting;         /* states with a source */
    uint64_t packing_ns; /* that packing them took */
    wf_session_file *files;
    int exec_count; /* executables alive, which must go first */
    /* Activations of all its executables, one at a time. Those that were bound to an older region see
     * that the generation changed. */
    wf_buffer *region;   /* NULL before the first, and when it could not be allocated again */
    size_t region_bytes; /* what executables count on */
    unsigned region_generation;
};

/* Says that a state will be packed, for wf_session_plan alone: nothing is allocated for it. */
wf_status wf_session_declare_packed(wf_session *session, const char *name, wf_type type, int rank,
                                    const int64_t *dims);
/* The same for a state that will be mapped and rounded. */
wf_status wf_session_declare_rounded(wf_session *session, const char *name, wf_type type, int rank,
                                     const int64_t *dims);
/* In graphs that are compiled from now on products by this state of quantized blocks may round activations,
 * as they do when it is packed. */
void wf_session_round(wf_session *session, const char *name);
/* The contents of a packed state, all of its bytes from `offset` on in a file that stays mapped and unchanged
 * until they are packed: by the first run that reads the state, just before it does, or by
 * wf_session_settle. The file's pages are forgotten then. */
void wf_session_write_later(wf_session *session, const char *name, const wf_map *map,
                            size_t offset);
/* Packs the contents of one state, or of all (NULL), that wait for it. Allocates nothing. When the file was cut
 * short they go on waiting. */
wf_status wf_session_settle(wf_session *session, wf_stored_state *state);
/* wf_plan_memory for graphs that this session would compile. */
wf_status wf_session_plan(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_memory *out);
wf_stored_state *wf_session_find(const wf_session *session, const char *name);
/* Fails when a mapped file became shorter or unreadable: runs then read zeros past its end. */
wf_status wf_session_check_files(const wf_session *session);
/* Fills in the description of a state, an input or an output. `name` is borrowed. */
void wf_info_fill(wf_info *out, const char *name, wf_type type, const wf_dims *shape, size_t bytes);
/* Makes the region at least so large; when it has to grow, its contents are lost. If that fails, and the
 * region cannot be had in its old size either, runs fail until a later call has succeeded. */
wf_status wf_session_reserve(wf_session *session, size_t bytes);

/* Finds the session's state for a graph's state node, making it (zeroed) when it is new, failing
 * when type or shape differ. */
wf_status wf_session_bind(wf_session *session, const wf_node *state, wf_stored_state **out);

/* The same for a narrow copy of a state that is bound already. Each is to be released: the last to do so frees
 * it. */
wf_status wf_session_bind_copy(wf_session *session, const wf_node *copy, wf_stored_state **out);
void wf_session_release_copy(wf_session *session, wf_stored_state *copy);

/* One input or output of an executable. */
typedef struct {
    char *name;
    wf_type type;
    wf_dims shape;
    size_t bytes;
    size_t where; /* for the device: the offset in its memory for ports, or an index */
    bool written; /* inputs: there is something to run with */
} wf_port;

/* The head of every executable; devices embed it. */
struct wf_exec {
    const wf_exec_ops *ops;
    wf_session *session;
    wf_port *inputs, *outputs;
    int input_count, output_count;
    wf_memory memory;
    wf_run_stats stats;
    wf_status last;   /* of the last run */
    uint64_t choices; /* stands for how its kernels do what they left open; 0: nothing was */
};

/* The caller has checked names, sizes and order. */
struct wf_exec_ops {
    wf_status (*write)(wf_exec *exec, const wf_port *input, const void *from);
    wf_status (*run)(wf_exec *exec);
    wf_status (*read)(wf_exec *exec, const wf_port *output, void *to);
    bool (*op_stats)(const wf_exec *exec, int index, wf_op_stats *out);
    void (*free)(wf_exec *exec);
};

/* The shared executor of kernel devices (plan.c, exec.c). */
wf_status wf_plan_compile(wf_session *session, wf_graph *graph, const wf_compile_options *options,
                          wf_exec **out);
/* Whether options are such as there are; NULL, the defaults, is right. */
wf_status wf_options_check(wf_ctx *ctx, const wf_compile_options *options);
wf_status wf_plan_sizes(wf_device *device, const wf_session *session, wf_graph *graph,
                        const wf_compile_options *options, wf_memory *out);
/* Expands every node of this op from now on, even where the device has a kernel. Fails for core ops. */
wf_status wf_device_force_expansion(wf_device *device, wf_op op);
bool wf_kernel_target_supports(const wf_target *target, const wf_node *n);
size_t wf_kernel_target_workspace(const wf_target *target, const wf_node *n);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * weft.h - the complete public interface of libweft.
 *
 * Weft builds, trains, quantizes and runs transformer language models. Every computation takes this
 * path:
 *
 *     graph  -- wf_compile -->  executable  -- wf_exec_run -->  outputs
 *       ^                           |
 *     wf_input, wf_state,        session: the states (parameters, optimizer moments, KV caches)
 *     wf_linear, wf_grad, ...    that the executables of one device share
 *
 * Two higher levels use it: an engine (wf_engine_new) runs a model from a file, and a trainer
 * (wf_trainer_new, wf_train) trains one.
 *
 * Errors
 *   A function that can fail returns wf_status: WF_OK (0) or a negative code. On failure the
 *   context holds a one-line message (wf_ctx_message). The library never prints and never exits. It
 *   does not abort on bad shapes, names, options or file contents; pointers to Weft objects must be
 *   valid.
 *
 * Ownership
 *   A result through `T **out` belongs to the caller, who passes it to the matching _free or _close
 *   function. On failure *out is NULL. Two kinds of results are borrowed: results through
 *   `const T **` (wf_decoder_next, wf_decoder_end, wf_trainer_setting) and returned pointers.
 *   Their comment states how long they stay valid. Values through `wf_value **` (wf_grad) belong to
 *   the graph. A wf_batch_fn is the caller's function: the library borrows the batch it returns.
 *   Strings and arrays passed in are needed only during the call, unless a comment says otherwise.
 *
 *   Every _free and _close function accepts NULL. Free objects in the reverse order of their
 *   creation, the context last. wf_session_free and wf_device_close refuse a wrong order: the
 *   object stays valid, and a message is logged as WF_LOG_ERROR. The default log drops it. Other
 *   wrong orders are not detected.
 *
 * Building graphs
 *   Functions that add to a graph return the new value, which the graph owns, or NULL. The graph
 *   keeps its first error (also from wf_output and wf_grad). A function that receives a NULL value
 *   returns NULL and changes nothing, so calls need no check: wf_compile reports the first error.
 *
 * Options
 *   In an options struct, 0 or NULL selects the default that the comment names. A NULL pointer to
 *   the struct selects all defaults. Zero-initialize the struct: fields may be added.
 *
 * Shapes
 *   Shapes list the outermost axis first, as in NumPy. Host arrays are dense and row-major. `dims`
 *   may be NULL when the rank is 0 (a scalar).
 *
 * Threads
 *   A context and all objects made from it may be used by one thread at a time. Threads that work
 *   at the same time use one context each. Tokenizers are the exception; see there.
 *
 * This is version 0.x: names may change between minor versions.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weft_quant.def"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WF_API __attribute__((visibility("default")))
#else
#define WF_API
#endif

#define WF_VERSION_MAJOR 0
#define WF_VERSION_MINOR 1
#define WF_VERSION_PATCH 0

/* ---- Status and contexts ------------------------------------------------------------------- */

typedef enum {
    WF_OK = 0,
    WF_ERR_USAGE = -1,       /* invalid argument, shape, type or option */
    WF_ERR_MEMORY = -2,      /* an allocation failed */
    WF_ERR_IO = -3,          /* a file cannot be read or written */
    WF_ERR_FORMAT = -4,      /* a file or text is malformed */
    WF_ERR_UNSUPPORTED = -5, /* a model feature, or a core op on this device, is not supported */
    WF_ERR_GRAPH = -6,       /* the verifier rejected a graph */
    WF_ERR_DEVICE = -7,      /* a device failed, or a kernel received data that is out of range */
    WF_ERR_INTERNAL = -8     /* a bug in Weft */
} wf_status;

/* Holds the last error, the log callback and the memory accounting. Every other object is made from
 * a context. Objects from different contexts cannot be combined. */
typedef struct wf_ctx wf_ctx;

typedef enum { WF_LOG_DEBUG, WF_LOG_INFO, WF_LOG_WARN, WF_LOG_ERROR } wf_log_level;
/* Receives one line without a newline, valid for the duration of the call. */
typedef void wf_log_fn(void *user, wf_log_level level, const char *message);

/* Returns "MAJOR.MINOR.PATCH" of the library; static storage. */
WF_API const char *wf_version_string(void);
/* Returns a short description of a status code; static storage. */
WF_API const char *wf_status_string(wf_status status);

/* Creates a context. Fails only with WF_ERR_USAGE (out is NULL) or WF_ERR_MEMORY. */
WF_API wf_status wf_ctx_new(wf_ctx **out);
/* Free every object made from the context first; do not use or free a remaining object afterwards.
 * Logs a warning if host memory is still in use. */
WF_API void wf_ctx_free(wf_ctx *ctx);
/* Returns the status of the last call that failed, or WF_OK if no call failed. A call that succeeds
 * does not reset it. */
WF_API wf_status wf_ctx_status(const wf_ctx *ctx);
/* Returns the message of that call, or "". It is a single line of UTF-8 without control characters,
 * borrowed until the next call that fails. */
WF_API const char *wf_ctx_message(const wf_ctx *ctx);
/* Resets status and message. */
WF_API void wf_ctx_clear(wf_ctx *ctx);
/* Sends log messages to fn. NULL, the default, drops them. The message of every call that fails is
 * also logged, as WF_LOG_DEBUG: the caller has the status. WF_LOG_ERROR is for errors that no
 * status reports. */
WF_API void wf_ctx_set_log(wf_ctx *ctx, wf_log_fn *fn, void *user);

/* Host memory that the context's objects hold. Bytes are the sizes requested from the allocator. */
typedef struct {
    uint64_t calls; /* allocations since the context was created */
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t peak_bytes;
} wf_mem_stats;
WF_API void wf_ctx_mem_stats(const wf_ctx *ctx, wf_mem_stats *out);
/* For tests: makes the nth allocation from now fail once; 1 is the next one, 0 cancels. */
WF_API void wf_ctx_fail_allocation(wf_ctx *ctx, uint64_t nth);

/* ---- Types --------------------------------------------------------------------------------- */

typedef enum {
    WF_TYPE_NONE = 0,
    WF_F32,
    WF_F16,
    WF_BF16,
    WF_E4M3, /* 8-bit float without infinities; the largest value is 448 */
    WF_E5M2, /* 8-bit float */
    WF_I32,
    WF_I8,
    WF_U8, /* also booleans: 0 is false, any other value is true */
/* Quantized types: WF_Q8_0, WF_Q4_0, ... weft_quant.def lists them. Their blocks of 32 or 256
 * elements are stored as in GGUF files. */
#define WF_QUANT_ENUM(A, NAME, ...) WF_##NAME,
    WF_QUANT_TABLE(WF_QUANT_ENUM, 0)
#undef WF_QUANT_ENUM
        WF_TYPE_COUNT
} wf_type;

#define WF_MAX_RANK 6

/* Returns the name, such as "bf16" or "q4_K"; static storage. */
WF_API const char *wf_type_name(wf_type type);
/* Returns WF_TYPE_NONE for an unknown name. */
WF_API wf_type wf_type_from_name(const char *name);
/* Returns the size of `count` elements in bytes. Returns 0 if count is negative, is not a multiple
 * of the block size, or overflows size_t. */
WF_API size_t wf_type_bytes(wf_type type, int64_t count);
/* Convert `count` elements of a host array between f32 and any type.
 *  - Float targets round to nearest even. Integer targets round to nearest and saturate.
 *  - Quantized types: count must be a multiple of the block size, and the block array must be
 *    aligned to 2 bytes. Decoding follows GGUF exactly. Encoding searches for the scales that
 *    minimize the error; it treats NaN as 0 and clamps to +-65504, infinities included. */
WF_API wf_status wf_type_from_f32(wf_ctx *ctx, wf_type type, const float *from, void *to,
                                  int64_t count);
WF_API wf_status wf_type_to_f32(wf_ctx *ctx, wf_type type, const void *from, float *to,
                                int64_t count);
/* Fills to[0 .. count) with normally distributed values. One (seed, stream) pair always produces
 * the same values with the same C library. */
WF_API void wf_random_normal(uint64_t seed, uint64_t stream, float mean, float deviation, float *to,
                             int64_t count);

/* ---- Devices ------------------------------------------------------------------------------- */

/* Something that runs graphs: the host's CPU, a GPU, or a plugin. */
typedef struct wf_device wf_device;

/* Returns the name of a device kind of this build, or NULL past the last index; static storage. */
WF_API const char *wf_device_kind(int index);
/* Opens a device. `spec` is a kind with options after a colon: "cpu", "cpu:2" (two threads),
 * "pjrt:PLUGIN.so", "pjrt:PLUGIN.so,name=value,..." (options of the plugin). `weft devices` lists
 * all kinds and their options. */
WF_API wf_status wf_device_open(wf_ctx *ctx, const char *spec, wf_device **out);
/* Free the device's sessions, engines and trainers first. An engine and a trainer hold one
 * session each. A device that still has sessions stays open, and a message is logged as
 * WF_LOG_ERROR. Close it again later. */
WF_API void wf_device_close(wf_device *device);
/* Allows kernels whose results may vary from run to run, in executables that are compiled later.
 * Off by default. */
WF_API void wf_device_allow_nondeterministic(wf_device *device, bool allow);
/* Returns a description for people, such as the processor's name; borrowed until close. */
WF_API const char *wf_device_description(const wf_device *device);
/* Reports the bytes of device memory that sessions and executables hold, now and at the peak. */
WF_API void wf_device_memory(const wf_device *device, size_t *bytes, size_t *peak);
/* Returns the number of bytes that the device can still allocate, or 0 if it is unknown. */
WF_API size_t wf_device_available(const wf_device *device);

/* ---- Graphs -------------------------------------------------------------------------------- */

/* A list of nodes in execution order. Types and shapes are static. */
typedef struct wf_graph wf_graph;
/* One output of one node. The graph owns it; it is valid until wf_graph_free. */
typedef struct wf_value wf_value;

WF_API wf_status wf_graph_new(wf_ctx *ctx, wf_graph **out);
WF_API void wf_graph_free(wf_graph *graph);
/* Returns the first error made while building, or WF_OK. */
WF_API wf_status wf_graph_status(const wf_graph *graph);
/* Checks all invariants of a graph: node order, arity, types, shapes and state versions. */
WF_API wf_status wf_graph_verify(wf_graph *graph);

/* Writes the graph as text, one node per line with types and shapes. The text ends with a NUL that
 * *bytes (may be NULL) does not count. Free it with wf_text_free. */
WF_API wf_status wf_graph_text(const wf_graph *graph, char **out, size_t *bytes);
/* Parses text in that format, which may come from an untrusted source and needs no NUL. Errors name
 * the line. Writing the graph again produces the same bytes. Hand-written text may omit attributes
 * that have a default, and the types and shapes after the arrow. */
WF_API wf_status wf_graph_parse(wf_ctx *ctx, const char *text, size_t bytes, wf_graph **out);
/* Writes the graph in Graphviz's dot language: states orange, inputs green, updates red, gradients
 * violet. Free the text with wf_text_free. */
WF_API wf_status wf_graph_dot(const wf_graph *graph, char **out, size_t *bytes);
/* Frees text that a function of this header returned through char **. */
WF_API void wf_text_free(wf_ctx *ctx, char *text);

/* Type and shape of a value. For NULL these return WF_TYPE_NONE and 0. */
WF_API wf_type wf_value_type(const wf_value *value);
WF_API int wf_value_rank(const wf_value *value);
WF_API int64_t wf_value_dim(const wf_value *value, int axis); /* 0 if axis is out of range */
WF_API int64_t wf_value_count(const wf_value *value);         /* number of elements */
/* Returns output `index` of the node that computes `value`. Sets the graph's error if the node has
 * fewer outputs. */
WF_API wf_value *wf_value_output(wf_value *value, int index);

/* Sources. Names are unique among the inputs of a graph, and among its states.
 *  - An input belongs to the executable. The host writes it (wf_exec_write), and it keeps its
 *    contents from run to run, unless executables share ports (wf_session_share_ports).
 *  - A state belongs to the session. Executables of the session share states by name. A state
 *    starts as zeros, and only update ops or wf_session_write change it. */
WF_API wf_value *wf_input(wf_graph *g, const char *name, wf_type type, int rank,
                          const int64_t *dims);
WF_API wf_value *wf_state(wf_graph *g, const char *name, wf_type type, int rank,
                          const int64_t *dims);
/* Adds a state with the type and shape of a value, e.g. a parameter's moment or gradient. */
WF_API wf_value *wf_state_like(wf_graph *g, const char *name, const wf_value *value);
/* A tensor whose elements are all `value`. */
WF_API wf_value *wf_fill(wf_graph *g, wf_type type, int rank, const int64_t *dims, double value);
/* i32: each element is its index along `axis`. */
WF_API wf_value *wf_iota(wf_graph *g, int rank, const int64_t *dims, int axis);
/* f32, uniform in [0, 1). key: i32[3] = {seed low, seed high, step}. Each random node of a graph
 * has its own stream: the node's number among the graph's random nodes. */
WF_API wf_value *wf_uniform(wf_graph *g, wf_value *key, int rank, const int64_t *dims);
/* Makes `value` an output, which the host can read by `name` after a run. */
WF_API wf_status wf_output(wf_graph *g, const char *name, wf_value *value);

/* Adds any op by name. `attrs` is text such as "axis=1 keep=1"; `weft ops NAME` lists an op's
 * attributes and defaults. Returns the first output. The functions below are typed wrappers. */
WF_API wf_value *wf_op_add(wf_graph *g, const char *op, const char *attrs, wf_value *const *in,
                           int nin);

/* Elementwise ops by name (`weft ops` lists all).
 *  - Unary: neg exp log sqrt rsqrt sin cos tanh sigmoid erf gelu gelu_erf silu relu relu2 ...
 *  - Binary: add sub mul div maximum minimum lt le eq ne ... Operands broadcast as in NumPy.
 *    Comparisons return u8. */
WF_API wf_value *wf_unary(wf_graph *g, const char *op, wf_value *x);
WF_API wf_value *wf_binary(wf_graph *g, const char *op, wf_value *a, wf_value *b);
/* x * factor. */
WF_API wf_value *wf_scale(wf_graph *g, wf_value *x, double factor);
/* Selects a where condition (u8) is not 0, else b. All three broadcast. */
WF_API wf_value *wf_where(wf_graph *g, wf_value *condition, wf_value *a, wf_value *b);
/* Converts to `type`. Float targets round to nearest even. Integer targets truncate and saturate;
 * NaN becomes 0. */
WF_API wf_value *wf_cast(wf_graph *g, wf_value *x, wf_type type);
WF_API wf_value *wf_copy(wf_graph *g, wf_value *x);

/* Shape ops. */
/* One dimension may be -1; it is inferred from the number of elements. */
WF_API wf_value *wf_reshape(wf_graph *g, wf_value *x, int rank, const int64_t *dims);
/* Transposes: axis i of the result is axis order[i] of x. `order` has as many entries as x has
 * axes. */
WF_API wf_value *wf_permute(wf_graph *g, wf_value *x, const int64_t *order);
/* Indices [begin, end) of one axis. */
WF_API wf_value *wf_slice(wf_graph *g, wf_value *x, int axis, int64_t begin, int64_t end);
/* Concatenates n values, which may differ in size only along `axis`. */
WF_API wf_value *wf_concat(wf_graph *g, wf_value *const *x, int n, int axis);
/* Adds zeros before and after the data along one axis. */
WF_API wf_value *wf_pad(wf_graph *g, wf_value *x, int axis, int64_t before, int64_t after);
/* Broadcasts x to a shape by NumPy's rules. */
WF_API wf_value *wf_broadcast(wf_graph *g, wf_value *x, int rank, const int64_t *dims);

/* Reductions: `op` is "sum", "mean" or "max"; `axes` is a bit set such as WF_AXIS(0) | WF_AXIS(2).
 * `keep` leaves the reduced axes with length 1. As in NumPy, NaN compares as the largest value,
 * also in argmax and top_k. */
#define WF_AXIS(axis) (1u << (axis))
#define WF_ALL_AXES(value) ((1u << wf_value_rank(value)) - 1)
WF_API wf_value *wf_reduce(wf_graph *g, const char *op, wf_value *x, uint32_t axes, bool keep);
/* i32 index of the largest element along an axis, which is removed. Ties select the lowest
 * index. */
WF_API wf_value *wf_argmax(wf_graph *g, wf_value *x, int axis);
/* The k largest elements of the last axis in descending order; on ties the lower index comes first.
 * Output 1: their i32 indices. */
WF_API wf_value *wf_top_k(wf_graph *g, wf_value *x, int64_t k);
WF_API wf_value *wf_softmax(wf_graph *g, wf_value *x); /* over the last axis */
/* f32 scalar: the L2 norm of all elements of all n values together. */
WF_API wf_value *wf_global_norm(wf_graph *g, wf_value *const *x, int n);

/* Row lookup. An index out of range fails the run with WF_ERR_DEVICE. A device that runs
 * asynchronously reports it at the next read of an output or state. Some plugins cannot detect
 * it. */
/* table [rows, C], ids i32[...] -> [..., C] of the table's type, or f32 if the table is
 * quantized. */
WF_API wf_value *wf_embed(wf_graph *g, wf_value *table, wf_value *ids);
/* x [rows, ...], rows i32[n] -> [n, ...]. */
WF_API wf_value *wf_gather_rows(wf_graph *g, wf_value *x, wf_value *rows);
/* x with from[i] added to row rows[i], in the order of i. */
WF_API wf_value *wf_scatter_add_rows(wf_graph *g, wf_value *x, wf_value *rows, wf_value *from);

/* x [..., K], w [N, K], bias [N] or NULL -> x w^T + bias, [..., N]. w may be a quantized state:
 * gradients then flow to x, but not to w. */
WF_API wf_value *wf_linear(wf_graph *g, wf_value *x, wf_value *w, wf_value *bias);
/* [..., M, K] by [..., K, N] -> [..., M, N]. A transpose flag swaps the last two axes of that
 * operand first. The leading axes of both operands must be equal; they do not broadcast. */
WF_API wf_value *wf_matmul(wf_graph *g, wf_value *a, wf_value *b, bool transpose_a,
                           bool transpose_b);
/* Normalize over the last axis, of length C. gamma [C] and beta [C] may be NULL; beta needs gamma.
 * Further outputs are the f32 statistics that the gradient uses: mean and rstd for wf_layer_norm,
 * rstd for wf_rms_norm. */
WF_API wf_value *wf_layer_norm(wf_graph *g, wf_value *x, wf_value *gamma, wf_value *beta,
                               double eps);
WF_API wf_value *wf_rms_norm(wf_graph *g, wf_value *x, wf_value *gamma, double eps);
typedef enum { WF_GLU_SILU, WF_GLU_GELU, WF_GLU_GELU_ERF } wf_glu_kind;
/* activation(gate) * up: SwiGLU or GeGLU. */
WF_API wf_value *wf_glu(wf_graph *g, wf_value *gate, wf_value *up, wf_glu_kind kind);
/* Rotary position embedding of x [N, H, D]. Rotates pair i by the angle positions[n] * inv_freq[i].
 * positions i32[N]; inv_freq f32[R/2]: the first R <= D dimensions rotate, the rest pass through.
 * Pairs are (i, i + R/2), or (2i, 2i + 1) if interleaved. The rotated part is multiplied by
 * `magnitude`, which is 1 except for scalings such as YaRN. */
WF_API wf_value *wf_rope(wf_graph *g, wf_value *x, wf_value *positions, wf_value *inv_freq,
                         bool interleaved, double magnitude);

typedef struct {
    bool bidirectional; /* default: causal, keys at later positions are masked */
    double scale;       /* of q.k; default 1/sqrt(D) */
    /* A query sees keys less than this many positions back; default: all. Bidirectional attention
     * still sees all later keys. */
    int64_t window;
    double softcap; /* scores become cap * tanh(score / cap); default: off */
    /* wf_attention only. The caller promises that every sequence has exactly this many tokens at
     * positions 0, 1, ..., which selects faster kernels; default: no promise. */
    int64_t length;
} wf_attention_options;
/* Attention over packed sequences. Rows seq_start[s] .. seq_start[s+1] (i32[S+1]) are sequence s.
 * q [N, H, D], k [N, Hk, D], v [N, Hk, Dv], positions i32[N]; Hk divides H.
 * Returns [N, H, Dv]; output 1: log-sum-exp, f32 [N, H]. A query that sees no key returns zeros. */
WF_API wf_value *wf_attention(wf_graph *g, wf_value *q, wf_value *k, wf_value *v,
                              wf_value *seq_start, wf_value *positions,
                              const wf_attention_options *options);
/* The same with keys and values in page pools: k [P, page, Hk, D], v [P, page, Hk, Dv]. Key j of
 * sequence s is row j % page of page table[s][j / page], for j < lengths[s].
 * table i32[S, pages], lengths i32[S]. A page whose keys no query sees, because they are behind the
 * window of all queries, may hold anything. The pools may be quantized, both with the same type. */
WF_API wf_value *wf_attention_paged(wf_graph *g, wf_value *q, wf_value *k, wf_value *v,
                                    wf_value *seq_start, wf_value *positions, wf_value *table,
                                    wf_value *lengths, const wf_attention_options *options);

typedef struct {
    int64_t ignore_index; /* targets with this value have no loss; default -100. To ignore token 0,
                             pass WF_IGNORE_ZERO */
    double label_smoothing;
    double z_loss;  /* adds z_loss * logsumexp^2 */
    double softcap; /* of the logits; default: off */
} wf_cross_entropy_options;
#define WF_IGNORE_ZERO INT64_MIN
/* logits [..., V], targets i32[...] -> loss f32[...], in nats, 0 for ignored targets. Output 1:
 * log-sum-exp of the logits, f32[...]. */
WF_API wf_value *wf_cross_entropy(wf_graph *g, wf_value *logits, wf_value *targets,
                                  const wf_cross_entropy_options *options);
/* Zeroes each element with probability p and scales the others by 1/(1-p). key as in wf_uniform. */
WF_API wf_value *wf_dropout(wf_graph *g, wf_value *x, wf_value *key, double p);

/* Update ops replace version n of a state by version n+1, in place. All readers of version n must
 * come before the update. Update ops return the new version. `apply` is a u8 scalar: 0 leaves the
 * state bitwise unchanged; NULL always applies, also a gradient with NaN. wf_grad_scaled and
 * wf_unscale compute an `apply` that skips such gradients. */
/* state := x. */
WF_API wf_value *wf_assign(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply);
/* state := state + x. */
WF_API wf_value *wf_accumulate(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply);
typedef struct {
    double beta1, beta2, eps; /* default 0.9, 0.999, 1e-8; negative: 0 */
    double weight_decay;
} wf_adamw_options;
/* AdamW. p, m, v: states of equal shape. lr, scale: f32 scalars; the gradient is multiplied by
 * scale first (NULL: 1). step: i32 scalar, 1 at the first update. Outputs 1 and 2: the new
 * moments. */
WF_API wf_value *wf_adamw(wf_graph *g, wf_value *p, wf_value *m, wf_value *v, wf_value *grad,
                          wf_value *lr, wf_value *step, wf_value *scale, wf_value *apply,
                          const wf_adamw_options *options);
typedef struct {
    double momentum, weight_decay;
    bool nesterov;
} wf_sgd_options;
/* SGD. `velocity` is a state like p, or NULL if momentum is 0. */
WF_API wf_value *wf_sgd(wf_graph *g, wf_value *p, wf_value *velocity, wf_value *grad, wf_value *lr,
                        wf_value *scale, wf_value *apply, const wf_sgd_options *options);
typedef struct {
    double beta1, beta2; /* default 0.9, 0.99; negative: 0 */
    double weight_decay;
} wf_lion_options;
/* Lion. Every element moves by lr, in the direction of the sign of the blended moment and gradient.
 * Learning rates are a third to a tenth of AdamW's. Output 1: the new moment. */
WF_API wf_value *wf_lion(wf_graph *g, wf_value *p, wf_value *m, wf_value *grad, wf_value *lr,
                         wf_value *scale, wf_value *apply, const wf_lion_options *options);
/* Writes x [N, Hk, D] to a page pool (a state) [P, page, Hk, D]. Row i of x, which belongs to
 * sequence s by seq_start, becomes key positions[i] of that sequence; table as in
 * wf_attention_paged. */
WF_API wf_value *wf_kv_append(wf_graph *g, wf_value *pool, wf_value *x, wf_value *seq_start,
                              wf_value *positions, wf_value *table);

/* Hints for recomputation; both return x. wf_block marks the end of a block (a transformer layer).
 * wf_compile_options.recompute keeps only these values for the gradient. wf_recompute marks a value
 * that is cheap to compute: the gradient recomputes it instead of keeping it. */
WF_API wf_value *wf_block(wf_graph *g, wf_value *x);
WF_API wf_value *wf_recompute(wf_graph *g, wf_value *x);

/* Simplifies the graph: removes views of views, neutral operands and duplicate nodes. Replaces
 * patterns by larger ops (x * sigmoid(x) by silu, matmuls around a masked softmax by attention).
 * Call it before wf_grad to get the gradients of the larger ops; wf_compile does the same on its
 * own copy. Results change within rounding error. All values stay valid. A replaced value can still
 * be read, but wf_grad rejects it as a `wrt`; states and inputs are never replaced. */
WF_API wf_status wf_fold(wf_graph *g);

/* Appends the gradient of the scalar `loss` with respect to wrt[0 .. n): states, inputs or other
 * float values. grads[i] has the type and shape of wrt[i], and is zeros if loss does not depend on
 * it. The graph owns grads[i]. */
WF_API wf_status wf_grad(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n,
                         wf_value **grads);

/* Mixed precision. Call it between building the forward graph in f32 and wf_grad. `compute` is
 * WF_BF16, WF_F16 or WF_F32 (no change). Matmuls and the ops between them then compute in that
 * type where it is numerically safe. Values keep their shapes, but their type may become `compute`
 * (see wf_value_type). States, inputs, outputs and values that are not f32 keep their type, and
 * gradients of f32 states are f32. */
WF_API wf_status wf_precision(wf_graph *g, wf_type compute);

/* Dynamic loss scaling, needed for f16: small gradients would underflow. The loss is multiplied by
 * a large scale, which updates divide out. If a gradient is not finite, the step is skipped and the
 * scale shrinks; after many good steps it grows. All of this runs on the device, in states: f32
 * NAME, i32 NAME.good (good steps in a row), NAME.steps (updates made) and NAME.skipped. If they
 * are zeros, as in a new session, the scale starts at `initial`. */
typedef struct {
    const char *name; /* of the states; default "loss_scale" */
    double initial;   /* default 65536 */
    double growth;    /* factor; default 2 */
    double backoff;   /* factor; default 0.5 */
    double smallest;  /* lower limit; default 1, or initial if that is less */
    double largest;   /* upper limit; default 2^24, or initial if that is more */
    /* Good steps in a row before the scale grows; default 2000. Negative: the scale is constant.
     * With initial = 1 this suits bf16: bad steps are still skipped and counted. */
    int64_t interval;
    double clip; /* largest gradient norm; a larger gradient is scaled down; default: no limit */
    /* Also skips a step if its gradient norm exceeds this many times the running average, and
     * leaves the scale unchanged; default: off. The average (f32 NAME.average) covers about the
     * last 50 good steps and is used after 20 of them. i32 NAME.outliers counts these skips. */
    double outlier;
} wf_loss_scale_options;

/* Scalars that the update ops take, as in wf_adamw(..., step, factor, apply). */
typedef struct {
    wf_value *scale;  /* f32: the loss scale of this step */
    wf_value *norm;   /* f32: global gradient norm, unscaled, before clipping */
    wf_value *factor; /* f32: factor for the gradients, which unscales and clips them */
    wf_value *apply;  /* u8: 0 if a gradient is not finite or the norm is an outlier */
    wf_value *step;   /* i32: number of this update; skipped steps do not count */
} wf_scaled;

/* Like wf_grad for loss * scale; fills *out as well. */
WF_API wf_status wf_grad_scaled(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n,
                                const wf_loss_scale_options *options, wf_value **grads,
                                wf_scaled *out);
/* The two halves of wf_grad_scaled, for gradients that are accumulated over several runs or graphs
 * of a session. Pass the same options to both. wf_loss_scale returns the factor for each loss.
 * wf_unscale takes the accumulated gradients and ends the step: it updates the scale's states, so
 * call it once per step. `count`, an f32 scalar, also divides the gradients: the number of tokens
 * if the loss is a sum; NULL: 1. */
WF_API wf_value *wf_loss_scale(wf_graph *g, const wf_loss_scale_options *options);
WF_API wf_status wf_unscale(wf_graph *g, wf_value *const *grads, int n, wf_value *count,
                            const wf_loss_scale_options *options, wf_scaled *out);

/* ---- Sessions and executables -------------------------------------------------------------- */

/* The named states of one model on one device. */
typedef struct wf_session wf_session;
/* A graph compiled for a session: planned, with its own memory for inputs and outputs. */
typedef struct wf_exec wf_exec;

WF_API wf_status wf_session_new(wf_device *device, wf_session **out);
/* Frees the session and its states. Free the session's executables first. A session that still has
 * executables stays alive, and a message is logged as WF_LOG_ERROR. Free it again later. */
WF_API void wf_session_free(wf_session *session);
/* Makes executables compiled later share one buffer for inputs and outputs, as large as the largest
 * needs. This saves memory if they run one after the other, for example a graph compiled for
 * several batch sizes. An executable's inputs and outputs are then valid only until another one is
 * written, runs or is compiled. A run fails unless every input was written since another executable
 * used the buffer. Has no effect on a device whose plugin compiles graphs. */
WF_API void wf_session_share_ports(wf_session *session);
/* Copy a whole state, as raw elements of its type, between host and device. `bytes` must be the
 * state's exact size. A state exists after a graph that contains it was compiled, or after
 * wf_session_map or wf_session_pack. Reads wait for pending runs. */
WF_API wf_status wf_session_write(wf_session *session, const char *state, const void *from,
                                  size_t bytes);
WF_API wf_status wf_session_read(wf_session *session, const char *state, void *to, size_t bytes);
/* Copy `bytes` bytes of a state, starting at byte `offset`, for example one KV page. The state must
 * be neither mapped nor packed. A device whose plugin compiles graphs copies only whole arrays: any
 * other range fails with WF_ERR_UNSUPPORTED. */
WF_API wf_status wf_session_write_at(wf_session *session, const char *state, size_t offset,
                                     const void *from, size_t bytes);
WF_API wf_status wf_session_read_at(wf_session *session, const char *state, size_t offset, void *to,
                                    size_t bytes);
/* Creates a read-only state from a file, starting at byte `offset`. Call it before compiling a
 * graph that contains the state. A device that can use mapped memory reads the file on first use,
 * without a copy. The file must then not change while the session lives. Other devices copy the
 * data at once. */
WF_API wf_status wf_session_map(wf_session *session, const char *state, wf_type type, int rank,
                                const int64_t *dims, const char *path, uint64_t offset);
/* Creates a state in the device's own layout, for weights that graphs only read: matmuls are
 * faster. Call it before compiling a graph that contains the state. wf_session_write packs and
 * wf_session_read unpacks. Fails with WF_ERR_UNSUPPORTED if the device does not pack this type and
 * shape. Compilation fails if a kernel cannot read the packed layout. */
WF_API wf_status wf_session_pack(wf_session *session, const char *state, wf_type type, int rank,
                                 const int64_t *dims);

/* Passes that wf_compile runs, in this order. Each can be disabled. Disabling fold or fuse changes
 * results within rounding error; disabling the others keeps all bits. */
#define WF_PASS_FOLD 1u      /* simplify the graph, see wf_fold */
#define WF_PASS_FUSE 2u      /* merge nodes if the device has a kernel for the result */
#define WF_PASS_RECOMPUTE 4u /* recompute values for the gradient instead of keeping them */
#define WF_PASS_SCHEDULE 8u  /* reorder nodes to reduce peak memory */
#define WF_PASS_MEMORY 16u   /* reuse memory of dead values, and run in place */
typedef struct {
    uint32_t without; /* disabled passes: WF_PASS_*, or-ed */
    /* n > 0: the gradient keeps only the end of every nth block (wf_block) and recomputes the rest.
     * Default: keep everything except values marked with wf_recompute. */
    int64_t recompute;
} wf_compile_options;

/* Verify, optimize and plan a graph, and allocate its memory. Creates the graph's states in the
 * session where they do not exist. The graph is not changed and may be freed afterwards. Errors:
 * the graph's first build error; WF_ERR_UNSUPPORTED if the device has no kernel for a core op;
 * WF_ERR_USAGE if a state of that name has another type or shape. Any other op without a kernel is
 * replaced by its expansion into core ops. No op falls back to another device. */
WF_API wf_status wf_compile(wf_session *session, wf_graph *graph, wf_exec **out);
WF_API wf_status wf_compile_with(wf_session *session, wf_graph *graph,
                                 const wf_compile_options *options, wf_exec **out);
/* Free it before its session. */
WF_API void wf_exec_free(wf_exec *exec);
/* Writes a whole input; `bytes` must be its exact size. */
WF_API wf_status wf_exec_write(wf_exec *exec, const char *input, const void *from, size_t bytes);
/* Runs the executable. Every input must have been written at least once (with shared ports: since
 * another executable used the memory, see wf_session_share_ports). May return before the
 * device has finished; reads wait. If a run fails, updates before the failed node have taken effect
 * and the outputs cannot be read. */
WF_API wf_status wf_exec_run(wf_exec *exec);
/* Reads a whole output of the last run; `bytes` must be its exact size. Reports errors of that run
 * which the device detected late. */
WF_API wf_status wf_exec_read(wf_exec *exec, const char *output, void *to, size_t bytes);
/* Reads `bytes` bytes of an output, starting at byte `offset`. Copies only this range from the
 * device. A device whose plugin compiles graphs copies the whole output at the first call after a
 * run. */
WF_API wf_status wf_exec_read_at(wf_exec *exec, const char *output, size_t offset, void *to,
                                 size_t bytes);

/* Enumerate the states of a session and the inputs and outputs of an executable, in no particular
 * order. Return false past the last index. */
typedef struct {
    const char *name; /* borrowed from the session, executable or model until it is freed */
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];
    size_t bytes;
} wf_info;
WF_API bool wf_session_state(const wf_session *session, int index, wf_info *out);
WF_API bool wf_exec_input(const wf_exec *exec, int index, wf_info *out);
WF_API bool wf_exec_output(const wf_exec *exec, int index, wf_info *out);

/* Device memory of an executable and its session in bytes, exact. The executables of a session run
 * one at a time and share one region for activations. Its size is the largest size that an
 * executable needs. */
typedef struct {
    size_t states; /* all states of the session except mapped ones */
    size_t mapped; /* states that are read from files in place */
    /* Inputs and outputs of this executable; after wf_session_share_ports: of all executables that
     * share them. */
    size_t ports;
    /* Intermediate values and workspace of this executable. On a device whose plugin compiles the
     * graph: the plugin's figure, or 0. */
    size_t activations;
    size_t workspace;   /* largest scratch memory of one kernel; part of activations */
    size_t lower_bound; /* the least activations that any plan with this node order needs */
    size_t region;      /* the session's region: the largest `activations` so far */
} wf_memory;
WF_API void wf_exec_memory(const wf_exec *exec, wf_memory *out);
/* Computes the same before anything is allocated, for a session with only this graph. */
WF_API wf_status wf_plan_memory(wf_device *device, wf_graph *graph,
                                const wf_compile_options *options, wf_memory *out);

/* Totals since the executable was compiled. */
typedef struct {
    uint64_t runs;         /* that succeeded */
    uint64_t nanoseconds;  /* spent in wf_exec_run, without packing weights in the first run */
    uint64_t bytes_in;     /* host to device, by wf_exec_write */
    uint64_t bytes_out;    /* device to host, by wf_exec_read and wf_exec_read_at */
    uint64_t bytes_copied; /* by copy nodes and by views that had to be made dense */
    uint64_t allocations;  /* host allocations during runs: 0 */
} wf_run_stats;
WF_API void wf_exec_stats(const wf_exec *exec, wf_run_stats *out);

typedef struct {
    const char *op;     /* static storage */
    const char *kernel; /* static storage */
    uint64_t launches, nanoseconds;
} wf_op_stats;
/* Reports the total time of one (op, kernel) pair over all runs. Returns false past the last
 * index. */
WF_API bool wf_exec_op_stats(const wf_exec *exec, int index, wf_op_stats *out);

/* ---- Host level ---------------------------------------------------------------------------- */

/* Single calls from host arrays to host arrays. They create a session and free it again. */

typedef struct {
    const char *name; /* of an input, output or state of the graph */
    void *data;
    size_t bytes; /* exact size */
} wf_array;
/* Writes in[0 .. nin), runs the graph once and reads out[0 .. nout). States that are not in in[]
 * start as zeros. */
WF_API wf_status wf_call(wf_device *device, wf_graph *graph, const wf_array *in, int nin,
                         const wf_array *out, int nout);

typedef struct {
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];
    void *data;
} wf_tensor;
/* Runs one op. If out[i].data is NULL, the call only fills in type and shape; the caller can then
 * allocate and call again. Update ops change a copy of the state and return it in out[0]. */
WF_API wf_status wf_call_op(wf_device *device, const char *op, const char *attrs,
                            const wf_tensor *in, int nin, wf_tensor *out, int nout);

/* ---- Text ---------------------------------------------------------------------------------- */

/* Converts between text and token ids. Immutable: after it is made, several threads may use one
 * tokenizer at the same time. Each passes its own context. */
typedef struct wf_tokenizer wf_tokenizer;

/* Values as in GGUF files. */
typedef enum {
    WF_TOKEN_NORMAL = 1,
    WF_TOKEN_UNKNOWN,
    WF_TOKEN_CONTROL, /* such as <|im_end|>; text encodes to it only with WF_TEXT_CONTROL */
    WF_TOKEN_USER,    /* added to the vocabulary; text always encodes to it */
    WF_TOKEN_UNUSED,
    WF_TOKEN_BYTE
} wf_token_kind;

/* Opens the tokenizer of a GGUF file, a Hugging Face folder or a tokenizer.json. */
WF_API wf_status wf_tokenizer_open(wf_ctx *ctx, const char *path, wf_tokenizer **out);
/* Free the tokenizer's decoders and trainers first. Not for a tokenizer of wf_model_tokenizer. */
WF_API void wf_tokenizer_free(wf_tokenizer *tokenizer);
/* Returns the vocabulary size. Ids are 0 .. count - 1. */
WF_API int32_t wf_tokenizer_count(const wf_tokenizer *tokenizer);
/* Returns a token as the vocabulary spells it, or NULL if no token has this id. Borrowed until
 * wf_tokenizer_free. */
WF_API const char *wf_tokenizer_token(const wf_tokenizer *tokenizer, int32_t id, size_t *bytes);
WF_API wf_token_kind wf_tokenizer_kind(const wf_tokenizer *tokenizer, int32_t id);
/* Returns the id of a token by its spelling, or -1. */
WF_API int32_t wf_tokenizer_find(const wf_tokenizer *tokenizer, const char *token, size_t bytes);
typedef enum { WF_SPECIAL_BOS, WF_SPECIAL_EOS, WF_SPECIAL_UNKNOWN, WF_SPECIAL_PAD } wf_special;
/* Returns the id of a special token, or -1. */
WF_API int32_t wf_tokenizer_special(const wf_tokenizer *tokenizer, wf_special which);
/* Returns true for tokens that end a text: eos, end of turn, end of message. */
WF_API bool wf_tokenizer_ends(const wf_tokenizer *tokenizer, int32_t id);

/* Flags for encoding and decoding. */
#define WF_TEXT_SPECIAL 1u /* encode: add bos or eos if the tokenizer does */
#define WF_TEXT_CONTROL 2u /* encode: recognize control tokens in the text; decode: print them */
/* Encodes text. Invalid UTF-8 is read as U+FFFD, one for each maximal part of a character. Free
 * *ids with wf_ids_free. Takes time linear in `bytes` for any text. */
WF_API wf_status wf_tokenizer_encode(const wf_tokenizer *tokenizer, wf_ctx *ctx, const char *text,
                                     size_t bytes, uint32_t flags, int32_t **ids, size_t *count);
/* The same, but a control token is recognized only if plain[i] is 0 for all of its bytes. Set
 * plain[i] for text from users: it cannot inject control tokens. plain has `bytes` entries; NULL:
 * all 0. */
WF_API wf_status wf_tokenizer_encode_marked(const wf_tokenizer *tokenizer, wf_ctx *ctx,
                                            const char *text, const uint8_t *plain, size_t bytes,
                                            uint32_t flags, int32_t **ids, size_t *count);
WF_API void wf_ids_free(wf_ctx *ctx, int32_t *ids);
/* Decodes ids to valid UTF-8; incomplete characters become U+FFFD. *text ends with a NUL that
 * *bytes does not count. Free it with wf_text_free. */
WF_API wf_status wf_tokenizer_decode(const wf_tokenizer *tokenizer, wf_ctx *ctx, const int32_t *ids,
                                     size_t count, uint32_t flags, char **text, size_t *bytes);

/* Decodes one token at a time. It holds back the bytes of an incomplete character, so that every
 * piece is valid UTF-8. All pieces together equal the result of wf_tokenizer_decode. The tokenizer
 * must outlive it; one thread at a time. */
typedef struct wf_decoder wf_decoder;
WF_API wf_status wf_decoder_new(const wf_tokenizer *tokenizer, wf_ctx *ctx, uint32_t flags,
                                wf_decoder **out);
WF_API void wf_decoder_free(wf_decoder *decoder);
/* Returns the text that `id` completes, possibly empty. Borrowed until the next call with this
 * decoder. */
WF_API wf_status wf_decoder_next(wf_decoder *decoder, int32_t id, const char **text, size_t *bytes);
/* Returns the text held back. The decoder can then start another text. Borrowed until the next
 * call with this decoder. */
WF_API wf_status wf_decoder_end(wf_decoder *decoder, const char **text, size_t *bytes);

/* Options for learning a byte-level BPE tokenizer. */
typedef struct {
    int32_t vocab;     /* tokens, including the special ones and 256 bytes; default 8192 */
    const char *split; /* pre-tokenizer: "gpt2" (default), "llama3" or "qwen2" */
    /* Control tokens; the first is both bos and eos. Default: <|endoftext|>. */
    const char *const *special;
    int specials;
    int threads;                               /* default: all cores */
    int64_t minimum;                           /* rarer pairs are not merged; default 2 */
    void (*progress)(void *user, double done); /* done: 0 .. 1; may be NULL */
    void *user;
} wf_bpe_options;
typedef struct {
    const char *text;
    size_t bytes;
} wf_text;
/* Learns a tokenizer from texts. The result does not depend on the number of threads. */
WF_API wf_status wf_tokenizer_train(wf_ctx *ctx, const wf_text *texts, size_t count,
                                    const wf_bpe_options *options, wf_tokenizer **out);
/* Writes tokenizer.json and tokenizer_config.json into an existing folder. */
WF_API wf_status wf_tokenizer_save(const wf_tokenizer *tokenizer, wf_ctx *ctx, const char *folder);

/* ---- Models -------------------------------------------------------------------------------- */

/* An opened and validated model file: configuration, weights, tokenizer and chat template. It uses
 * no device. */
typedef struct wf_model wf_model;

/* Opens a GGUF file (any part of a split one) or a Hugging Face folder. Weights are mapped and read
 * when needed; wf_guard_mapped_files protects against files that shrink meanwhile. */
WF_API wf_status wf_model_open(wf_ctx *ctx, const char *path, wf_model **out);
/* Free the model's engines first; this is not checked. */
WF_API void wf_model_close(wf_model *model);
/* Installs (or removes) a SIGBUS handler for the process. If a mapped file is truncated or becomes
 * unreadable, the affected call then fails with WF_ERR_IO; otherwise the process would crash.
 * Signals for other addresses go to the previous handler. Off by default. Call it while no other
 * thread uses Weft. */
WF_API void wf_guard_mapped_files(bool on);

typedef struct {
    const char *family; /* "llama", "gpt2", "qwen2", "qwen3" */
    const char *name;   /* from the file's metadata, else the name of the file or folder */
    const char *format; /* "GGUF v3", "safetensors" */
    int64_t layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    int64_t window;     /* attention window in tokens; 0: unlimited */
    double rope_base;   /* 0: learned positions */
    bool tied;          /* the embedding is also the output matrix */
    int64_t parameters; /* elements of all weights */
    size_t bytes;       /* of all weights in the files */
    int files;
    int skipped; /* tensors of vision, audio or multi-token prediction, which Weft does not use */
    const char *chat_template; /* NULL: the model has no template */
} wf_model_info;
/* Strings are borrowed until wf_model_close. */
WF_API void wf_model_get_info(const wf_model *model, wf_model_info *out);
/* Enumerates the weights by the names of their states in graphs. Returns false past the last
 * index. The name is borrowed until wf_model_close. */
WF_API bool wf_model_weight(const wf_model *model, int index, wf_info *out);
/* Returns the tokenizer, or NULL if the model has no usable tokenizer. Borrowed until
 * wf_model_close. */
WF_API const wf_tokenizer *wf_model_tokenizer(const wf_model *model);

typedef struct {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *content;
} wf_message;
typedef struct {
    const char *chat_template; /* NULL: the model's */
    bool unfinished;           /* leave the last message open for the model to continue */
    const char *tools;         /* a JSON array, or NULL */
    const char *variables;     /* a JSON object with more template variables, or NULL */
} wf_chat_options;
/* Applies the chat template to a conversation and encodes the result. Message contents never become
 * control tokens. Free *ids with wf_ids_free. */
WF_API wf_status wf_model_chat(const wf_model *model, wf_ctx *ctx, const wf_message *messages,
                               int count, const wf_chat_options *options, int32_t **ids,
                               size_t *nids);
/* Applies the chat template only. Free *text with wf_text_free. */
WF_API wf_status wf_model_chat_text(const wf_model *model, wf_ctx *ctx, const wf_message *messages,
                                    int count, const wf_chat_options *options, char **text,
                                    size_t *bytes);

/* ---- Adapters ------------------------------------------------------------------------------ */

/* A low-rank adapter (LoRA): a folder with adapter_config.json and adapter_model.safetensors, as
 * PEFT and `weft finetune` write it. It fits one model, in any file format and weight type. */
typedef struct {
    const char *path;
    float scale; /* multiplies the adapter's contribution; default 1 */
} wf_lora;

/* ---- Conversion ---------------------------------------------------------------------------- */

/* The type of single matrices of a GGUF file. */
typedef struct {
    const char *pattern; /* POSIX extended regular expression, searched in names of matrices */
    const char *type;    /* "f16", "q8_0", ...: a type, not a recipe */
} wf_tensor_type;

typedef struct {
    /* Type of the matrices: "f32", "q8_0", "Q4_K_M", ... (`weft quantize --help` lists all). NULL:
     * keep. Vectors become f32. A matrix whose rows are not whole blocks gets the nearest type that
     * fits. A Hugging Face folder holds only f32, f16 and bf16: quantized weights become f16, and
     * vectors get the matrices' type if that loses nothing. */
    const char *type;
    bool pure; /* use one type for all matrices instead of the recipe's mixture */
    /* Override the types of matrices by name; the first match decides. Every pattern must match a
     * matrix, and blocks of its type must divide the rows. GGUF files only. */
    const wf_tensor_type *tensor_types;
    int tensor_type_count;
    /* GGUF file with the importance matrix of this model, by wf_imatrix_save or llama-imatrix:
     * errors of columns with large inputs weigh more. NULL: none. */
    const char *imatrix;
    bool requantize;      /* allow quantizing weights that are already quantized */
    uint64_t split_bytes; /* most bytes of weights per file; default: do not split */
    /* Adapters to merge into the weights. Merging into quantized weights requires `type`. */
    const wf_lora *lora;
    int loras;
    int threads; /* default: all cores */
    /* Reports progress in bytes; may be NULL. A result other than WF_OK cancels the conversion,
     * which then returns it and leaves no files. */
    wf_status (*progress)(void *user, const char *weight, int64_t done, int64_t total);
    void *user;
    int64_t *written; /* receives the bytes of the converted weights; may be NULL */
} wf_convert_options;
/* Writes a model to a GGUF file if `path` ends in .gguf, else to a Hugging Face folder. */
WF_API wf_status wf_model_convert(const wf_model *model, wf_ctx *ctx, const char *path,
                                  const wf_convert_options *options);

/* ---- Inference ------------------------------------------------------------------------------ */

/* A model on a device that answers many requests at once: its weights, and pools of pages that hold
 * the keys and values of all sequences. Each step computes the next token of every running sequence
 * and chunks of the prompts. docs/engine.md explains scheduling, exactness and memory. An engine
 * and its sequences report errors in the context of the model, and belong to one thread at a
 * time. */
typedef struct wf_engine wf_engine;

/* Types of cached keys and values. */
typedef enum { WF_KV_F16, WF_KV_BF16, WF_KV_F32, WF_KV_Q8_0 } wf_kv;

typedef struct {
    int64_t context;     /* most tokens per sequence; default: the model's, at most 4096 */
    int64_t sequences;   /* most sequences that run at a time; default 1. More may wait */
    int64_t chunk;       /* most tokens per step; default 512 */
    int64_t rows;        /* most tokens per step whose logits are computed; default: sequences */
    int64_t cache;       /* tokens that the pools hold; default: sequences times context, which is
                          rounded up to pages of 16 */
    double step_ms;      /* target time of a step in ms while sequences generate; limits its prompt
                          tokens; default 100 */
    wf_kv kv;            /* type of cached keys and values; default WF_KV_F16 */
    wf_type compute;     /* WF_F32: matmuls round no activations. Default: they may round them to
                          the type of a narrow weight, or as suits a quantized one */
    bool no_reuse;       /* compute every prompt, even if the pools hold a prefix of it */
    bool check;          /* log a warning for each weight that contains NaN or infinity */
    const wf_lora *lora; /* adapters to apply; the model's weights do not change */
    int loras;
} wf_engine_options;

/* Loads a model. Device and model must come from one context and outlive the engine. Weights are
 * read on first use, and some stay mapped: the model's files must not change while the engine
 * lives. Pools smaller than a context limit each sequence to their size. */
WF_API wf_status wf_engine_new(wf_device *device, const wf_model *model,
                               const wf_engine_options *options, wf_engine **out);
/* Free the engine's sequences first; this is not checked. */
WF_API void wf_engine_free(wf_engine *engine);
/* Computes the memory of an engine before anything is allocated, exact to the byte. */
WF_API wf_status wf_engine_plan(wf_device *device, const wf_model *model,
                                const wf_engine_options *options, wf_memory *out);

/* Chooses the members context, sequences and cache that are 0 in `wanted`, so that the engine needs
 * at most `limit` bytes of the device, mapped weights included. Starts with the model's context and
 * halves it, down to 512 tokens, until the pools hold two. Up to 32 sequences share them. *memory
 * is the plan of *out. Fails with WF_ERR_MEMORY if nothing fits. */
WF_API wf_status wf_engine_fit(wf_device *device, const wf_model *model,
                               const wf_engine_options *wanted, size_t limit,
                               wf_engine_options *out, wf_memory *memory);

typedef struct {
    int32_t token;
    float bias; /* added to the token's logit */
} wf_logit_bias;

/* How to choose the next token. Biases are added to the logits. Then the samplers run in the order
 * of `samplers`, each on the tokens that the previous one kept. All zeros: greedy decoding. */
typedef struct {
    double temperature;    /* divides the logits; 0: greedy */
    int64_t top_k;         /* keep the k most likely tokens; 0: off */
    double top_p;          /* keep the most likely tokens up to this total probability; 0: off */
    double min_p;          /* keep tokens of at least this share of the top probability; 0: off */
    double repeat_penalty; /* divides positive logits of recent tokens, multiplies negative ones;
                              default 1 */
    double frequency_penalty, presence_penalty;
    int64_t penalty_last; /* how many tokens count as recent; default 64; -1: all */
    uint64_t seed;
    const wf_logit_bias *bias;
    int biases;
    /* Sampler names as in llama.cpp, separated by ';'. A sampler that is not listed is off.
     * Default: "penalties;top_k;top_p;min_p;temperature", llama.cpp's order. */
    const char *samplers;
} wf_sampling;

/* Receives the logits f32[vocab] that follow ids[0 .. i]. They are borrowed for the duration of the
 * call. A result other than WF_OK ends the sequence with WF_STOP_ERROR. The function must not call
 * the engine or its sequences. */
typedef wf_status wf_logits_fn(void *user, size_t i, const float *logits, size_t vocab);

typedef struct {
    wf_sampling sampling;
    int64_t limit;           /* most new tokens; 0: until an end token or a full context */
    const char *const *stop; /* stop strings: the text ends before any of them */
    int stops;
    const int32_t *stop_token; /* in addition to the model's end tokens */
    int stop_tokens;
    bool ignore_end; /* continue after the model's end tokens */
    bool control;    /* include control tokens in the text */
    int priority;    /* higher ones start first and may preempt lower ones; default 0 */
    uint64_t key;    /* requests of equal priority take turns by key, for example one per user */
    uint64_t salt;   /* requests share cached prefixes only if their salts are equal */
    /* Not NULL: generate nothing; call this in wf_engine_step with the logits after each token of
     * the prompt from index logits_from on. The sequence then ends with WF_STOP_LIMIT. */
    wf_logits_fn *logits;
    size_t logits_from;
    void *user; /* for logits; events contain it, too */
} wf_request;

/* Fills in the sampling settings that the model recommends: generation_config.json of a folder, or
 * general.sampling.* of a GGUF file. Missing settings get Weft's defaults: temperature 0.6, top_k
 * 40, top_p 0.95, min_p 0.05, no penalties. Returns false if the model recommends nothing. Invalid
 * and unsupported settings are ignored with a logged warning. The seed is 0. Strings are borrowed
 * until wf_model_close. */
WF_API bool wf_model_sampling(const wf_model *model, wf_sampling *out);

/* One request: a prompt, and the text that continues it. */
typedef struct wf_sequence wf_sequence;

/* Queues a request. Copies prompt and request; a NULL request is all zeros. Fails with
 * WF_ERR_USAGE if the request can never run, for example because the prompt exceeds the context. */
WF_API wf_status wf_engine_submit(wf_engine *engine, const int32_t *prompt, size_t count,
                                  const wf_request *request, wf_sequence **out);
/* Ends the sequence if it has not ended, and frees it. Its pages return to the pools. */
WF_API void wf_sequence_free(wf_sequence *sequence);
/* Ends a waiting or running sequence between two steps, with WF_STOP_CANCEL. Its pages return to
 * the pools. Drops text held back as the possible start of a stop string. */
WF_API void wf_sequence_cancel(wf_sequence *sequence);

/* Runs the model once. *busy (may be NULL) receives whether work is left. A fault of one sequence,
 * such as NaN in its logits, ends that sequence with WF_STOP_ERROR; the others are not affected.
 * Fails only if the device fails; call it again to retry. */
WF_API wf_status wf_engine_step(wf_engine *engine, bool *busy);

typedef enum {
    WF_UNFINISHED = 0,
    WF_STOP_END,     /* an end token of the model */
    WF_STOP_TEXT,    /* a stop string or stop token of the request */
    WF_STOP_LIMIT,   /* the request's limit */
    WF_STOP_CONTEXT, /* the context is full */
    WF_STOP_CANCEL,  /* wf_sequence_cancel */
    WF_STOP_ERROR    /* see wf_sequence_error */
} wf_stop;
/* Returns why the sequence ended, or WF_UNFINISHED. */
WF_API wf_stop wf_sequence_stop(const wf_sequence *sequence);
/* Returns the error message after WF_STOP_ERROR, one sentence; otherwise "". *status (may be NULL)
 * receives its status. Borrowed from the sequence. */
WF_API const char *wf_sequence_error(const wf_sequence *sequence, wf_status *status);
/* Returns the text generated since the last call: valid UTF-8 without any part of a stop string.
 * Borrowed until the next call with this sequence. */
WF_API const char *wf_sequence_text(wf_sequence *sequence, size_t *bytes);
/* Returns all tokens; the first *prompt tokens are the prompt. Borrowed until the next step. */
WF_API const int32_t *wf_sequence_tokens(const wf_sequence *sequence, size_t *count,
                                         size_t *prompt);
/* Returns the number of prompt tokens reused from the pools. */
WF_API size_t wf_sequence_reused(const wf_sequence *sequence);

typedef enum {
    WF_EVENT_START,   /* left the queue */
    WF_EVENT_TOKEN,   /* has a new token, and perhaps text */
    WF_EVENT_PREEMPT, /* waits again, because the pools were full; nothing is lost */
    WF_EVENT_END      /* wf_sequence_stop has the reason */
} wf_engine_event_kind;

typedef struct {
    wf_engine_event_kind kind;
    wf_sequence *sequence;
    void *user; /* of the request */
} wf_engine_event;
/* Returns the events of the last step, even a failed one, in order. Borrowed until the next step.
 * Do not use a sequence that was freed since then. */
WF_API const wf_engine_event *wf_engine_events(const wf_engine *engine, size_t *count);

/* Calls fn with the logits after each of ids[from .. count), in order: submits a request with
 * `logits` and runs steps until it ends. Other sequences of the engine progress meanwhile. */
WF_API wf_status wf_engine_logits(wf_engine *engine, const int32_t *ids, size_t count, size_t from,
                                  wf_logits_fn *fn, void *user);

/* What the last step computed. */
typedef struct {
    int64_t sequences;     /* in the step */
    int64_t tokens, rows;  /* computed tokens, and those with logits */
    int64_t prompt_tokens; /* of the tokens: from prompts, or recomputed after a preemption */
    int64_t pages;         /* of all pools, used by running sequences in the run */
    int64_t running, waiting;
    int64_t preempted;    /* sequences that went back to the queue */
    uint64_t nanoseconds; /* of the whole step, without packing and compiling */
} wf_engine_step_info;

/* Totals since the engine was created, and its state. */
typedef struct {
    uint64_t steps;
    uint64_t prompt_tokens, prompt_nanoseconds; /* computed; reused tokens do not count */
    uint64_t tokens, nanoseconds;               /* generated */
    uint64_t packing_nanoseconds; /* packing weights in the first runs; not in the above */
    uint64_t reused_tokens;       /* tokens that were already in pages */
    uint64_t preemptions;
    uint64_t bytes_in, bytes_out; /* between host and device, in steps */
    int64_t pages, pages_used;    /* now, of all pools; used by running sequences */
    int64_t pages_cached;         /* unused, but still in the prefix cache */
    int64_t running, waiting;     /* sequences now */
    wf_engine_step_info last;
} wf_engine_stats;
WF_API void wf_engine_get_stats(const wf_engine *engine, wf_engine_stats *out);
/* Reports the memory that the engine holds. */
WF_API void wf_engine_memory(const wf_engine *engine, wf_memory *out);

/* Writes the keys and values of a sequence that are in the pools, and its tokens, to a new file.
 * The sequence may have ended. Only whole pages of 16 tokens are written. Refuses an existing file,
 * and an engine with no_reuse. */
WF_API wf_status wf_sequence_save(const wf_sequence *sequence, const char *path);
/* Reads a file of wf_sequence_save into the pools: later prompts that begin with its tokens, and
 * have its salt, reuse them. *tokens (may be NULL) receives the number of tokens. The file must
 * come from the same model, adapters, type of keys and values, compute type, kind of processor or
 * GPU, and version of Weft; others are refused. Compares models by samples of every weight. A
 * failure adds nothing to the prefix cache. Program devices (pjrt) support neither function. */
WF_API wf_status wf_engine_restore(wf_engine *engine, const char *path, size_t *tokens);

/* ---- Importance matrices ------------------------------------------------------------------- */

/* Measures which columns of a model's matrices matter: for each matrix of the layers, the sum of
 * the squares of its inputs over a text. wf_convert_options.imatrix weighs quantization errors by
 * them. Files have llama.cpp's GGUF form. Reports errors in the model's context. */
typedef struct wf_imatrix wf_imatrix;

/* Loads the model. `chunk`: tokens that are computed at a time, each chunk by itself; 0: 512, or
 * the model's context if that is less. Device and model must outlive the result. */
WF_API wf_status wf_imatrix_new(wf_device *device, const wf_model *model, int64_t chunk,
                                wf_imatrix **out);
WF_API void wf_imatrix_free(wf_imatrix *imatrix);
/* Runs the model over one chunk and adds to the sums; `count` must be the chunk's size. */
WF_API wf_status wf_imatrix_add(wf_imatrix *imatrix, const int32_t *ids, size_t count);
/* Writes the sums so far, with the names of the texts. Fails if an input was not finite. */
WF_API wf_status wf_imatrix_save(const wf_imatrix *imatrix, const char *path,
                                 const char *const *datasets, int count);

/* ---- Data for training --------------------------------------------------------------------- */

/* Options for converting text to a folder of tokens. docs/data.md describes the folder's format. */
typedef struct {
    const char *const *inputs; /* files, and folders of files */
    int input_count;
    /* Validation inputs. Without any, a share of the inputs is held out (see `valid`). */
    const char *const *valid_inputs;
    int valid_count;
    /* "text", "jsonl" (one JSON record per line) or "json" (an array of records). NULL: by file
     * name. .jsonl and .ndjson are jsonl; .json is an array or lines; all others are text.
     * docs/data.md lists the kinds of records. */
    const char *format;
    bool skip_bad;        /* skip and count malformed records; default: the first one is an error */
    const char *split_on; /* separates the documents of a text file; NULL: one document per file */
    /* A model, a folder or a tokenizer.json. NULL: learn a tokenizer from the text. */
    const char *tokenizer;
    int32_t vocab;  /* size of a learned vocabulary; default: by the amount of text */
    int64_t sample; /* most bytes to learn from, sampled evenly; default 64 MiB */
    /* For conversations: a template's text or "chatml". NULL: the tokenizer's, else chatml. */
    const char *chat_template;
    double valid;         /* share to hold out, up to 0.5; default 0.01; negative: nothing */
    int64_t shard_tokens; /* approximate tokens per file; default 2^27 */
    int threads;          /* default: all cores; does not change the result */
    bool overwrite;       /* replace `folder` if it contains only prepared data */
    /* `what` is "learning" or "encoding"; done and total are bytes. May be NULL. A result other
     * than WF_OK cancels the preparation, which then returns it and leaves no files. */
    wf_status (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
} wf_prepare_options;

typedef struct {
    int64_t documents, tokens;
    int64_t bytes;   /* of text */
    int64_t counted; /* tokens with loss: the assistant's in conversations, all in plain text */
    int shards;
} wf_prepared_split;
typedef struct {
    wf_prepared_split train, valid;
    int32_t vocab;
    int id_bytes;              /* bytes per token: 2 for up to 65536 tokens, else 4 */
    bool learned;              /* the tokenizer was learned */
    bool chat;                 /* the data contains conversations */
    int64_t files;             /* files read */
    int64_t skipped_files;     /* in folders: not UTF-8 text, or empty */
    int64_t skipped_documents; /* empty, or conversations without an answer */
    int64_t bad;               /* malformed records that were skipped */
    int64_t cuts; /* long texts were split here; tokens nearby may differ from the unsplit text's */
} wf_prepared;

/* Writes `folder`, which appears only when it is complete. Equal inputs and options produce equal
 * bytes. `out` may be NULL. */
WF_API wf_status wf_prepare(wf_ctx *ctx, const char *folder, const wf_prepare_options *options,
                            wf_prepared *out);

/* ---- Training ------------------------------------------------------------------------------ */

/* Everything that determines the result of a training run, the same on every device. */
typedef struct {
    /* The model; set exactly one of these four. */
    const char *preset; /* a known shape: "gpt2-124M", "llama-30M", ... (`weft train --help`) */
    int64_t depth;      /* number of layers; all other sizes follow from it */
    const char *config; /* path of a config.json */
    const char *model;  /* a GGUF file or Hugging Face folder to start from */

    int64_t batch;      /* sequences per batch; default: about 4096 tokens in total */
    int64_t length;     /* tokens per sequence; default: the model's context, at most 1024 */
    int64_t accumulate; /* batches per update, whose gradients are summed; default 1 */
    bool documents;     /* attention does not cross document boundaries */
    int64_t steps;      /* updates; default: enough for `epochs` */
    double epochs;      /* passes over the data; default 1 */

    const char *optimizer;              /* "adamw" (default), "sgd", "lion", "muon" */
    double rate;                        /* peak learning rate; default: by the size of the model */
    double beta1, beta2, eps, momentum; /* defaults 0.9, 0.95, 1e-8, 0.95; negative: 0 */
    double weight_decay;                /* of matrices; default 0.1; negative: 0 */
    bool decay_all;                     /* decay vectors, too */
    double clip;                        /* largest global gradient norm; default 1; negative: off */
    double ema; /* decay of a moving average of the weights, which is then exported; 0: off */

    const char *schedule; /* "cosine" (default), "linear", "constant", "wsd" */
    int64_t warmup;       /* steps; default: 1/50 of all, at most 1000; negative: 0 */
    double floor;         /* final rate as a share of the peak; default 0.1; negative: 0 */
    int64_t decay;        /* wsd: steps of the final decay; default: 1/5 of all */

    double label_smoothing, z_loss, dropout;

    wf_type compute;   /* WF_F32 (default), WF_BF16, or WF_F16 with dynamic loss scaling */
    int64_t recompute; /* as in wf_compile_options */
    double outlier;    /* skip steps whose gradient norm is this many times the average; 0: off */
    int64_t patience;  /* fail after this many skipped steps in a row; default 20 */

    int64_t lora;      /* train adapters of this rank instead of the weights; 0: off */
    double lora_alpha; /* default: twice the rank */
    double lora_dropout;
    const char *lora_targets; /* "attn_q,attn_v", "attention", "mlp"; default "all" */

    uint64_t seed; /* of initial weights, data order and dropout; default 1 */
} wf_train_options;

/* A batch of B sequences of T tokens. With wf_train_options.documents, each document in the batch
 * is a separate sequence. */
typedef struct {
    /* Without `documents`, the positions of every sequence are 0 .. T - 1, and seq_start is
     * 0, T, ..., B * T. */
    const int32_t *tokens, *positions; /* [B * T] */
    const int32_t *targets;            /* [B * T]: the next token, or -100 for no loss */
    const int32_t *seq_start;          /* [S + 1], as in wf_attention */
    int64_t valid;                     /* targets with loss */
    int64_t bytes;                     /* of the text they encode; 0: unknown */
} wf_batch;

/* Sizes and costs of a training setup. */
typedef struct {
    const char *name, *family;   /* of the model; borrowed from the trainer */
    int64_t parameters, trained; /* elements of all weights; of the trained weights */
    int64_t layers, width, heads, kv_heads, hidden, vocab, context;
    int64_t batch, length, accumulate, sequences; /* B, T, batches per step, S */
    int64_t step, steps;                          /* updates made, and in total */
    double flops;     /* per step: 6 per token and matrix element, plus attention */
    wf_memory memory; /* of all executables; ports are summed */
} wf_train_info;

/* A model in training on a device, with its optimizer. */
typedef struct wf_trainer wf_trainer;

/* Creates a trainer. The tokenizer must outlive it and is saved with the model; NULL: the tokenizer
 * of options->model. options->steps is required. Fails before allocating if the plan exceeds
 * `memory` bytes (0: no limit); the message proposes settings that fit. */
WF_API wf_status wf_trainer_new(wf_device *device, const wf_tokenizer *tokenizer,
                                const wf_train_options *options, size_t memory, wf_trainer **out);
/* Free the trainer before its tokenizer and device. */
WF_API void wf_trainer_free(wf_trainer *trainer);
WF_API void wf_trainer_get_info(const wf_trainer *trainer, wf_train_info *out);
/* Enumerates the settings as text, with all defaults filled in. Returns false past the last
 * index. *name has static storage; `value` is the caller's array. */
WF_API bool wf_trainer_setting(const wf_trainer *trainer, int index, const char **name,
                               char value[96]);

/* Progress after one step. */
typedef struct {
    int64_t step, steps;      /* the first step is 1 */
    double loss, norm, rate;  /* mean loss in nats per token, gradient norm, learning rate */
    double seconds;           /* of this step */
    double tokens_per_second; /* over the last steps */
    double share;             /* of the device's peak FLOP/s, 0 .. 1; 0: unknown */
    double scale;             /* loss scale; 0: not used */
    int64_t tokens, skipped;  /* totals: tokens seen, steps skipped */
    size_t memory;            /* bytes */
    double left;              /* estimated seconds to the end */
    /* False: the step was skipped. No weight, moment or average changed; the loss scale and the
     * counters of steps did. */
    bool applied;
} wf_train_step;

/* Provides batch number `index`, counted from 0 at the beginning of training. The caller owns *out;
 * the library borrows it until its next call of this function. */
typedef wf_status wf_batch_fn(void *user, int64_t index, const wf_batch **out);
/* Makes one update from `accumulate` batches, which it requests from `next`. Fails with
 * WF_ERR_DEVICE after `patience` skipped steps in a row. After any other failure the caller may
 * retry the step or load a checkpoint: the next step discards the gradients that the failed step
 * had summed. */
WF_API wf_status wf_trainer_step(wf_trainer *trainer, wf_batch_fn *next, void *user,
                                 wf_train_step *out);
/* Computes the summed loss of a batch in nats and the number of targets with loss. Uses no dropout
 * and no label smoothing, and the averaged weights if `ema` is on. */
WF_API wf_status wf_trainer_evaluate(wf_trainer *trainer, const wf_batch *batch, double *loss,
                                     int64_t *count);
/* Continues a prompt by at most `limit` tokens, up to the model's context. *ids are the new tokens,
 * without the token that ended the text. Free them with wf_ids_free. Uses the averaged weights if
 * `ema` is on. The first call, and one for a longer text than before, takes device memory for keys
 * and values, which the plan of wf_trainer_new does not include. */
WF_API wf_status wf_trainer_generate(wf_trainer *trainer, const int32_t *prompt, size_t count,
                                     int64_t limit, const wf_sampling *sampling, int32_t **ids,
                                     size_t *nids);
/* Writes a checkpoint to an existing folder: the model (or adapter) as a Hugging Face (or PEFT)
 * folder, the optimizer's states and the counters. Each file is complete or absent, but the folder
 * is not atomic: save to a new folder and rename it afterwards. Tensors are synced to disk,
 * trainer.json (written last) is not, and there are no checksums. wf_train adds all three. */
WF_API wf_status wf_trainer_save(wf_trainer *trainer, const char *folder);
/* Continues from a checkpoint of wf_trainer_save or wf_train. *exact: training continues bitwise
 * equal to an uninterrupted run, if the batches are the same. Fails with WF_ERR_USAGE if the
 * checkpoint has another model, optimizer, ema, or rank, alpha or targets of adapters. Other
 * settings that change results (batch, rate, compute, seed, ...) and other kernels only clear
 * *exact; the reason is logged as WF_LOG_WARN. A checkpoint of wf_train also clears it: the trainer
 * cannot compare that run's data with the caller's batches. */
WF_API wf_status wf_trainer_load(wf_trainer *trainer, const char *folder, bool *exact);
/* Writes the model as wf_model_convert does, or the adapter as a PEFT folder. `type` as in
 * wf_convert_options. */
WF_API wf_status wf_trainer_export(wf_trainer *trainer, const char *path, const char *type);

/* Callbacks of a run, called from the thread of wf_train. Each may be NULL. Pointers are borrowed
 * for the duration of the call. */
typedef struct {
    void *user;
    /* Called once, before the first step. `tokens` and `batches` are the sizes of the training
     * data. */
    void (*begin)(void *user, const wf_trainer *trainer, int64_t tokens, int64_t batches);
    void (*step)(void *user, const wf_train_step *step);
    /* After a validation; loss in nats per token. */
    void (*valid)(void *user, int64_t step, double loss, double bits_per_byte);
    void (*sample)(void *user, int64_t step, const char *text);
    void (*say)(void *user, const char *sentence); /* checkpoints and warnings */
    bool (*stop)(void *user); /* polled after every step; true: save a checkpoint and return */
} wf_train_events;

/* A training run in its own folder, from prepared data to a model; see docs/training.md. Strings
 * and `events` must stay valid during wf_train. */
typedef struct {
    const char *data; /* folder written by wf_prepare */
    const char *out;  /* the run's folder: checkpoints, log, curve, and finally the model */
    bool resume;  /* continue from the newest checkpoint in `out`; start if it has no checkpoint */
    bool restart; /* start over in `out`; rename the files of an earlier run */
    bool overwrite; /* replace the model, log and curve of another run in `out` */
    wf_train_options train;
    int64_t save_every;  /* steps between checkpoints; default: 1/10 of all; negative: at the end */
    double save_minutes; /* most minutes between checkpoints; default 15; negative: no limit */
    int64_t keep;        /* newest checkpoints to keep; default 2; negative: all */
    int64_t keep_every;  /* also keep checkpoints at multiples of this step; 0: off */
    int64_t valid_every; /* steps between validations; default: 1/10 of all; negative: never */
    int64_t valid_batches;     /* per validation; default 20 */
    int64_t sample_every;      /* steps between sample texts; 0: off */
    const char *sample_prompt; /* default: the beginning of a document */
    int64_t sample_tokens;     /* default 64 */
    const char *export_type;   /* matrices of OUT/model.gguf; default "f32"; "none": no file */
    size_t memory; /* limit for the plan in bytes; default: wf_device_available, if that is known */
    bool fit;      /* adjust batch, accumulation and recomputation to fit */
    const wf_train_events *events; /* may be NULL */
} wf_run_options;

/* Runs or resumes training. *stopped: events->stop ended the run, which can be resumed. */
WF_API wf_status wf_train(wf_device *device, const wf_run_options *options, bool *stopped);

#ifdef __cplusplus
}
#endif
#endif

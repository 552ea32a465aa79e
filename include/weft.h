/* SPDX-License-Identifier: MIT */
/*
 * weft.h - the public interface of Weft, complete.
 *
 * The path of every computation:
 *
 *     graph  -- wf_compile -->  executable  -- wf_exec_run -->  numbers
 *       ^                           |
 *     wf_input, wf_state,        session: the states (parameters, moments, caches)
 *     wf_linear, wf_grad, ...    that several executables of one device share
 *
 * Conventions
 *  - A function that can fail returns wf_status, 0 for success, and leaves one sentence in the
 *    context (wf_ctx_message). The library never prints, exits or aborts on shapes, names and data
 *    that it is given; pointers to its own objects must be valid.
 *  - A `T **out` belongs to the caller, who gives it back to the matching free or close function.
 *    A pointer returned plainly is borrowed; its comment says until when. Free functions take NULL.
 *  - Functions that build a graph return the new value, borrowed from the graph, or NULL. The graph
 *    remembers its first failure (of wf_output and wf_grad, too), NULL operands pass it on in
 *    silence, and wf_compile reports it: a model can be written down without a test after every
 *    line.
 *  - In structs of options 0 stands for the default, which the comment names, and a NULL pointer for
 *    all defaults. Dimensions may be NULL for rank 0.
 *  - Shapes are outermost first, as in NumPy; values are dense and row-major.
 *  - A context and all that was made from it serve one thread at a time.
 *
 * This is version 0.x: names may still change between minor versions.
 */
#ifndef WEFT_H
#define WEFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    WF_ERR_USAGE = -1,       /* an argument, shape or type that the rules forbid */
    WF_ERR_MEMORY = -2,      /* an allocation failed */
    WF_ERR_IO = -3,          /* a file could not be read or written */
    WF_ERR_FORMAT = -4,      /* bytes from outside are not what they claim to be */
    WF_ERR_UNSUPPORTED = -5, /* the device has no kernel for this op and type */
    WF_ERR_GRAPH = -6,       /* the verifier refused a graph */
    WF_ERR_DEVICE = -7,      /* a device failed, or data it was given was out of range */
    WF_ERR_INTERNAL = -8     /* a mistake of Weft's own */
} wf_status;

/* Where failures, logging and memory accounting live. Everything else is made from one. */
typedef struct wf_ctx wf_ctx;

typedef enum { WF_LOG_DEBUG, WF_LOG_INFO, WF_LOG_WARN, WF_LOG_ERROR } wf_log_level;
typedef void wf_log_fn(void *user, wf_log_level level, const char *message);

WF_API const char *wf_version_string(void);
WF_API const char *wf_status_string(wf_status status);

WF_API wf_status wf_ctx_new(wf_ctx **out);
/* Everything made from the context must be freed before it. */
WF_API void wf_ctx_free(wf_ctx *ctx);
/* Status of the last call that failed; WF_OK when none has. */
WF_API wf_status wf_ctx_status(const wf_ctx *ctx);
/* Its sentence, "" when none; borrowed until the next call that fails. */
WF_API const char *wf_ctx_message(const wf_ctx *ctx);
WF_API void wf_ctx_clear(wf_ctx *ctx);
/* Messages go to fn; NULL (the default) drops them. */
WF_API void wf_ctx_set_log(wf_ctx *ctx, wf_log_fn *fn, void *user);

/* Memory that this context's objects hold on the host, in blocks and in bytes asked for. */
typedef struct {
    uint64_t calls; /* allocations since the context was made */
    uint64_t live_blocks;
    uint64_t live_bytes;
    uint64_t peak_bytes;
} wf_mem_stats;
WF_API void wf_ctx_mem_stats(const wf_ctx *ctx, wf_mem_stats *out);
/* For tests: the nth allocation from now (1 is the next) fails once. 0 calls it off. */
WF_API void wf_ctx_fail_allocation(wf_ctx *ctx, uint64_t nth);

/* ---- Types --------------------------------------------------------------------------------- */

typedef enum {
    WF_TYPE_NONE = 0,
    WF_F32,
    WF_F16,
    WF_BF16,
    WF_E4M3, /* 8-bit floats: e4m3 (finite, up to 448) and e5m2 */
    WF_E5M2,
    WF_I32,
    WF_I8,
    WF_U8,   /* also truth values: 0 is false */
    WF_Q8_0, /* quantized blocks, named and stored as in GGUF files: of 32 numbers, q*_K of 256 */
    WF_Q4_0,
    WF_Q4_1,
    WF_Q4_K,
    WF_Q6_K,
    WF_TYPE_COUNT
} wf_type;

#define WF_MAX_RANK 6

WF_API const char *wf_type_name(wf_type type);
/* WF_TYPE_NONE when there is no such type. */
WF_API wf_type wf_type_from_name(const char *name);
/* Bytes of `count` elements; 0 when count is no multiple of the type's block or overflows. */
WF_API size_t wf_type_bytes(wf_type type, int64_t count);
/* Convert host arrays between f32 and any type; rounds to nearest even. Integer targets round to
 * nearest and saturate. Of quantized types, count is a multiple of the block and the array of blocks is
 * aligned to 2 bytes; numbers come out of blocks exactly as GGUF defines them, and go in by a search for
 * the scales that keep the error small. In blocks NaN counts as 0, and what is beyond +-65504,
 * infinity included, as that. */
WF_API wf_status wf_type_from_f32(wf_ctx *ctx, wf_type type, const float *from, void *to,
                                  int64_t count);
WF_API wf_status wf_type_to_f32(wf_ctx *ctx, wf_type type, const void *from, float *to,
                                int64_t count);
/* Normally distributed numbers, always the same for one (seed, stream) with one C library. */
WF_API void wf_random_normal(uint64_t seed, uint64_t stream, float mean, float deviation, float *to,
                             int64_t count);

/* ---- Devices ------------------------------------------------------------------------------- */

typedef struct wf_device wf_device;

/* Names of the kinds of device that this build knows; NULL past the last. */
WF_API const char *wf_device_kind(int index);
/* `spec` is a kind, with options after a colon: "cpu", "cpu:2" (two threads), "pjrt:PLUGIN.so",
 * "pjrt:PLUGIN.so,name=value,..." (options of the plugin's). `weft devices` lists
 * them all. */
WF_API wf_status wf_device_open(wf_ctx *ctx, const char *spec, wf_device **out);
/* Sessions of the device must be freed before it; while there are any it stays open, with a message
 * to the log. */
WF_API void wf_device_close(wf_device *device);
/* Admits kernels whose results may differ from run to run, to executables compiled from now on. */
WF_API void wf_device_allow_nondeterministic(wf_device *device, bool allow);
/* What it is, in words; borrowed until close. */
WF_API const char *wf_device_description(const wf_device *device);
/* Bytes of the device's memory that sessions and executables hold, now and at most so far. */
WF_API void wf_device_memory(const wf_device *device, size_t *bytes, size_t *peak);

/* ---- Graphs -------------------------------------------------------------------------------- */

typedef struct wf_graph wf_graph;
/* One result of one node. Borrowed from its graph, and gone with it. */
typedef struct wf_value wf_value;

WF_API wf_status wf_graph_new(wf_ctx *ctx, wf_graph **out);
WF_API void wf_graph_free(wf_graph *graph);
/* The first failure while building, WF_OK when none; wf_ctx_message had its sentence. */
WF_API wf_status wf_graph_status(const wf_graph *graph);
/* Checks everything that must hold of a graph: order, arity, types, shapes, versions of states. */
WF_API wf_status wf_graph_verify(wf_graph *graph);

/* The whole graph as text, to be read, compared and kept: a node a line, with types and shapes. The
 * text ends with a NUL, which *bytes (may be NULL) does not count, and goes back by wf_text_free. */
WF_API wf_status wf_graph_text(const wf_graph *graph, char **out, size_t *bytes);
/* Reads such a text; it need not end with a NUL, and may come from anywhere: what is wrong with it is
 * said with the number of its line. Written again, the graph gives the same text, byte for byte. A
 * text written by hand may leave out attributes that have a default, and what follows the arrow. */
WF_API wf_status wf_graph_parse(wf_ctx *ctx, const char *text, size_t bytes, wf_graph **out);
/* A drawing, for Graphviz's dot: states orange, inputs green, updates red, gradients violet. */
WF_API wf_status wf_graph_dot(const wf_graph *graph, char **out, size_t *bytes);
WF_API void wf_text_free(wf_ctx *ctx, char *text);

WF_API wf_type wf_value_type(const wf_value *value);
WF_API int wf_value_rank(const wf_value *value);
WF_API int64_t wf_value_dim(const wf_value *value, int axis); /* 0 when there is no such axis */
WF_API int64_t wf_value_count(const wf_value *value);         /* elements */
/* Output `index` of the node that made `value`. There being no such output fails the graph. */
WF_API wf_value *wf_value_output(wf_value *value, int index);

/* Sources. Names are unique within a graph among inputs, and among states. An input is written by
 * the host (wf_exec_write) and keeps its contents from run to run. A state belongs to the session,
 * is shared by name among its executables, starts as zeros, and changes only by update ops. */
WF_API wf_value *wf_input(wf_graph *g, const char *name, wf_type type, int rank,
                          const int64_t *dims);
WF_API wf_value *wf_state(wf_graph *g, const char *name, wf_type type, int rank,
                          const int64_t *dims);
/* A state of the type and shape of a value: moments of a parameter, its gradient, ... */
WF_API wf_value *wf_state_like(wf_graph *g, const char *name, const wf_value *value);
WF_API wf_value *wf_fill(wf_graph *g, wf_type type, int rank, const int64_t *dims, double value);
/* i32: the index along `axis`. */
WF_API wf_value *wf_iota(wf_graph *g, int rank, const int64_t *dims, int axis);
/* Uniform f32 in [0, 1). key: i32[3] = seed (low, high), step. The stream number is fixed here:
 * the graph counts its random nodes. */
WF_API wf_value *wf_uniform(wf_graph *g, wf_value *key, int rank, const int64_t *dims);
/* Names a result that the host may read after a run. */
WF_API wf_status wf_output(wf_graph *g, const char *name, wf_value *value);

/* Any op by name, with attributes as text ("axis=1 keep=1"); `weft ops NAME` lists them and their
 * defaults. Returns the first output. The functions below are this with types. */
WF_API wf_value *wf_op_add(wf_graph *g, const char *op, const char *attrs, wf_value *const *in,
                           int nin);

/* Elementwise, by name: neg exp log sqrt rsqrt sin cos tanh sigmoid erf gelu gelu_erf silu relu
 * relu2 ... for one operand; add sub mul div maximum minimum lt le eq ne ... for two, which broadcast
 * as in NumPy. Comparisons give u8. */
WF_API wf_value *wf_unary(wf_graph *g, const char *op, wf_value *x);
WF_API wf_value *wf_binary(wf_graph *g, const char *op, wf_value *a, wf_value *b);
WF_API wf_value *wf_scale(wf_graph *g, wf_value *x, double factor);
/* a where condition (u8) is not 0, else b; all three broadcast. */
WF_API wf_value *wf_where(wf_graph *g, wf_value *condition, wf_value *a, wf_value *b);
/* To a float type rounds to nearest even; to an integer type cuts the fraction off and saturates, NaN
 * giving 0. */
WF_API wf_value *wf_cast(wf_graph *g, wf_value *x, wf_type type);
WF_API wf_value *wf_copy(wf_graph *g, wf_value *x);

/* Shapes. One dimension given to reshape may be -1: what is left. */
WF_API wf_value *wf_reshape(wf_graph *g, wf_value *x, int rank, const int64_t *dims);
/* Axis i of the result is axis order[i] of x. */
WF_API wf_value *wf_permute(wf_graph *g, wf_value *x, const int64_t *order);
/* [begin, end) of one axis. */
WF_API wf_value *wf_slice(wf_graph *g, wf_value *x, int axis, int64_t begin, int64_t end);
WF_API wf_value *wf_concat(wf_graph *g, wf_value *const *x, int n, int axis);
/* Zeros before and after along one axis. */
WF_API wf_value *wf_pad(wf_graph *g, wf_value *x, int axis, int64_t before, int64_t after);
WF_API wf_value *wf_broadcast(wf_graph *g, wf_value *x, int rank, const int64_t *dims);

/* Reductions: "sum", "mean" or "max" over a set of axes, WF_AXIS(0) | WF_AXIS(2); `keep` leaves them
 * as axes of length 1. As in NumPy, NaN counts as the largest, here and in argmax and top_k. */
#define WF_AXIS(axis) (1u << (axis))
#define WF_ALL_AXES(value) ((1u << wf_value_rank(value)) - 1)
WF_API wf_value *wf_reduce(wf_graph *g, const char *op, wf_value *x, uint32_t axes, bool keep);
/* i32 index of the largest along an axis, the first among equals; the axis goes. */
WF_API wf_value *wf_argmax(wf_graph *g, wf_value *x, int axis);
/* The k largest of the last axis, largest first, the lower index first among equals. Output 1 of
 * the node: their i32 indices. */
WF_API wf_value *wf_top_k(wf_graph *g, wf_value *x, int64_t k);
WF_API wf_value *wf_softmax(wf_graph *g, wf_value *x); /* of the last axis */
/* f32 scalar: the root of the sum of squares of all elements of all n values. */
WF_API wf_value *wf_global_norm(wf_graph *g, wf_value *const *x, int n);

/* Rows by index. Indices out of range fail the run where the device can tell; on one that runs ahead, the next reading
 * of a result or state. */
WF_API wf_value *wf_embed(wf_graph *g, wf_value *table, wf_value *ids); /* ids' shape + [C], of the
                                                            table's type; f32 for quantized blocks */
WF_API wf_value *wf_gather_rows(wf_graph *g, wf_value *x, wf_value *rows); /* rows: i32[n] */
/* x with from[i] added to row rows[i], in order of i. */
WF_API wf_value *wf_scatter_add_rows(wf_graph *g, wf_value *x, wf_value *rows, wf_value *from);

/* x [..., K], w [N, K], bias [N] or NULL -> [..., N]. w may be a state of quantized blocks: gradients flow
 * through it to x, but it has none itself. */
WF_API wf_value *wf_linear(wf_graph *g, wf_value *x, wf_value *w, wf_value *bias);
/* [..., M, K] by [..., K, N]; with a transpose flag that operand's last two axes are swapped. The
 * axes before are equal in both. */
WF_API wf_value *wf_matmul(wf_graph *g, wf_value *a, wf_value *b, bool transpose_a,
                           bool transpose_b);
/* Norms of the last axis; gamma and beta [C] may be NULL (beta only with gamma). Outputs 1.. are
 * the saved statistics, f32: mean, rstd; for rms rstd. */
WF_API wf_value *wf_layer_norm(wf_graph *g, wf_value *x, wf_value *gamma, wf_value *beta,
                               double eps);
WF_API wf_value *wf_rms_norm(wf_graph *g, wf_value *x, wf_value *gamma, double eps);
typedef enum { WF_GLU_SILU, WF_GLU_GELU, WF_GLU_GELU_ERF } wf_glu_kind;
/* act(gate) * up: SwiGLU and GeGLU. */
WF_API wf_value *wf_glu(wf_graph *g, wf_value *gate, wf_value *up, wf_glu_kind kind);
/* Rotates pairs of x [N, H, D] by positions[n] * inv_freq[i]. inv_freq f32[R/2]: the first R <= D
 * dimensions turn, the rest pass. Pairs are (i, i + R/2), or (2i, 2i + 1) if interleaved; the turned
 * part is multiplied by `magnitude` (1 unless the scaling says so). */
WF_API wf_value *wf_rope(wf_graph *g, wf_value *x, wf_value *positions, wf_value *inv_freq,
                         bool interleaved, double magnitude);

typedef struct {
    bool bidirectional; /* default: keys at later positions are hidden */
    double scale;       /* of q.k; default 1/sqrt(D) */
    int64_t window;     /* a query sees keys less than this many positions back; default: all. It
                           looks back only: bidirectional attention still sees later keys */
    double softcap;     /* s -> cap * tanh(s / cap); default: none */
    int64_t length;     /* packed: a promise that every sequence has as many tokens, at positions
                           0, 1, ..., on which kernels may rely; default: none is made */
} wf_attention_options;
/* q [N, H, D] of all sequences, one after the other: rows seq_start[s] .. seq_start[s+1] (i32[S+1])
 * are sequence s; positions i32[N]. k [N, Hk, D], v [N, Hk, Dv], packed alike; Hk divides H.
 * Result [N, H, Dv]; output 1: log-sum-exp, f32 [N, H]. A query that sees no key gives zeros. */
WF_API wf_value *wf_attention(wf_graph *g, wf_value *q, wf_value *k, wf_value *v,
                              wf_value *seq_start, wf_value *positions,
                              const wf_attention_options *options);
/* The same over page pools: k [P, page, Hk, D], v [P, page, Hk, Dv]; key j of sequence s is row
 * j % page of page table[s][j / page] (table i32[S, pages]), for j < lengths[s] (i32[S]). */
WF_API wf_value *wf_attention_paged(wf_graph *g, wf_value *q, wf_value *k, wf_value *v,
                                    wf_value *seq_start, wf_value *positions, wf_value *table,
                                    wf_value *lengths, const wf_attention_options *options);

typedef struct {
    int64_t ignore_index; /* targets with this value do not count; default -100; WF_IGNORE_ZERO
                             for the token 0 */
    double label_smoothing;
    double z_loss;  /* + z_loss * logsumexp^2 */
    double softcap; /* of the logits; default: none */
} wf_cross_entropy_options;
#define WF_IGNORE_ZERO INT64_MIN
/* logits [..., V], targets i32[...] -> loss f32[...], 0 where ignored; output 1: log-sum-exp. */
WF_API wf_value *wf_cross_entropy(wf_graph *g, wf_value *logits, wf_value *targets,
                                  const wf_cross_entropy_options *options);
/* Zeroes each element with probability p and scales the rest by 1/(1-p). key as in wf_uniform. */
WF_API wf_value *wf_dropout(wf_graph *g, wf_value *x, wf_value *key, double p);

/* Update ops: turn version n of a state into version n+1, in place. All readers of version n must
 * come before. `apply` is a u8 scalar: 0 leaves the state untouched, bit for bit; NULL: always. */
WF_API wf_value *wf_assign(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply);
WF_API wf_value *wf_accumulate(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply);
typedef struct {
    double beta1, beta2, eps; /* default 0.9, 0.999, 1e-8; negative: 0 */
    double weight_decay;
} wf_adamw_options;
/* lr, scale: f32 scalars; step: i32 scalar, 1 at the first update. The gradient is multiplied by
 * scale first; NULL: by 1. Returns the new p; outputs 1, 2: the new moments. */
WF_API wf_value *wf_adamw(wf_graph *g, wf_value *p, wf_value *m, wf_value *v, wf_value *grad,
                          wf_value *lr, wf_value *step, wf_value *scale, wf_value *apply,
                          const wf_adamw_options *options);
typedef struct {
    double momentum, weight_decay;
    bool nesterov;
} wf_sgd_options;
/* `velocity` is a state like p, or NULL when momentum is 0. */
WF_API wf_value *wf_sgd(wf_graph *g, wf_value *p, wf_value *velocity, wf_value *grad, wf_value *lr,
                        wf_value *scale, wf_value *apply, const wf_sgd_options *options);
typedef struct {
    double beta1, beta2; /* default 0.9, 0.99; negative: 0 */
    double weight_decay;
} wf_lion_options;
/* Every element moves by lr, in the direction that moment and gradient agree on: rates are a third to a
 * tenth of AdamW's. Returns the new p; output 1: the new moment. */
WF_API wf_value *wf_lion(wf_graph *g, wf_value *p, wf_value *m, wf_value *grad, wf_value *lr,
                         wf_value *scale, wf_value *apply, const wf_lion_options *options);
/* pool (a state) [P, page, Hk, D] := x [N, Hk, D], token i of sequence s at position positions[i].
 */
WF_API wf_value *wf_kv_append(wf_graph *g, wf_value *pool, wf_value *x, wf_value *seq_start,
                              wf_value *positions, wf_value *table);

/* What passes are told about a value; both return it. Ends of blocks (a model's layers) are where
 * recomputation can start from (wf_compile_options.recompute); a value that is cheap to compute can be
 * computed again for the gradient instead of being kept. */
WF_API wf_value *wf_block(wf_graph *g, wf_value *x);
WF_API wf_value *wf_recompute(wf_graph *g, wf_value *x);

/* Replaces what was written by simpler forms (views of views, neutral operands, the same thing computed
 * twice) and by the ops above that it amounts to: x * sigmoid(x) becomes silu, products and a masked
 * softmax attention, and so on. Called before wf_grad, gradients are those of the larger ops;
 * wf_compile does the same on its own copy. Results change within roundoff. All values stay good. One
 * that was replaced can still be read, but those who read it before no longer do, so a gradient with
 * respect to it is refused; states and inputs are never replaced. */
WF_API wf_status wf_fold(wf_graph *g);

/* Appends the gradient of the scalar `loss` with respect to each of wrt[0..n): states, inputs or
 * any other float values. grads[i] has wrt[i]'s type and shape; zeros when loss does not depend on
 * it. */
WF_API wf_status wf_grad(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n,
                         wf_value **grads);

/* Mixed precision, to be asked for between building the forward graph, in f32, and wf_grad. From then
 * on the graph computes in `compute`, WF_BF16 or WF_F16 (WF_F32: nothing happens), where that is
 * safe: products, and what lies between them. It works in place: values keep their shape, but their
 * type may now be the compute type (wf_value_type tells). States, inputs and outputs of the graph keep
 * theirs, as does every value that was given another type than f32; gradients of f32 states are f32. */
WF_API wf_status wf_precision(wf_graph *g, wf_type compute);

/* Loss scale. The gradients of f16 are small and would vanish, so the loss is multiplied by a large
 * number, which the updates divide out again. Where that was too much and a gradient is not finite, the
 * step is skipped and the number becomes smaller; after many good steps it grows. All of it happens on
 * the device, in states: f32 NAME, and i32 NAME.good (good steps in a row), NAME.steps (updates made)
 * and NAME.skipped. With them as zeros, as in a new session, it starts from the beginning. */
typedef struct {
    const char *name; /* of the states; default "loss_scale" */
    double initial;   /* default 65536 */
    double growth;    /* default 2 */
    double backoff;   /* default 0.5 */
    double smallest;  /* it shrinks no further; default 1, or initial where that is less */
    double largest;   /* it grows no further; default 2^24, or initial where that is more */
    int64_t interval; /* good steps in a row before it grows; default 2000. Negative: it never
                         changes; with initial = 1 this is for bf16: it skips and counts */
    double clip;      /* largest norm of the gradient, beyond which it is shortened; default: any */
    double
        outlier; /* a norm beyond so many times the average of those before is a bad step, too: it
                         is skipped and counted, but the scale stays. The average, f32 NAME.average, is
                         over good steps, the last fifty or so, and serves once there were 20;
                         i32 NAME.outliers counts. Default: none is */
} wf_loss_scale_options;

/* What updates need: for wf_adamw(..., step, factor, apply). Computed values, all scalars. */
typedef struct {
    wf_value *scale;  /* f32: the loss scale of this step */
    wf_value *norm;   /* f32: global norm of the gradients, unscaled and before clipping */
    wf_value *factor; /* f32: what gradients are to be multiplied by: unscales and clips */
    wf_value *apply;  /* u8: 0 when some gradient is not finite, or the norm an outlier */
    wf_value *step;   /* i32: updates made so far, and 1: skipped steps do not count */
} wf_scaled;

/* The gradient of loss * scale, as wf_grad, and what updates make of it. `options` may be NULL. */
WF_API wf_status wf_grad_scaled(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n,
                                const wf_loss_scale_options *options, wf_value **grads,
                                wf_scaled *out);
/* Its two halves, for gradients that are summed up over several runs (or graphs of a session) first:
 * the scale by which to multiply a loss; and, from the sums, what updates need. The latter also ends
 * the step: it updates the states of the scale, so it comes once. `count`, an f32 scalar, divides the
 * gradients as well: the number of tokens behind a loss that is a sum. NULL: 1. Both take the same
 * options. */
WF_API wf_value *wf_loss_scale(wf_graph *g, const wf_loss_scale_options *options);
WF_API wf_status wf_unscale(wf_graph *g, wf_value *const *grads, int n, wf_value *count,
                            const wf_loss_scale_options *options, wf_scaled *out);

/* ---- Sessions and executables -------------------------------------------------------------- */

/* The states of one model on one device. */
typedef struct wf_session wf_session;
/* A graph made ready to run in a session: planned, with memory of its own for inputs and outputs. */
typedef struct wf_exec wf_exec;

WF_API wf_status wf_session_new(wf_device *device, wf_session **out);
/* Executables of the session must be freed before it; while there are any it stays, with a message
 * to the log. */
WF_API void wf_session_free(wf_session *session);
/* Whole states by name, as raw elements of their type; `bytes` must be exact. A state exists once
 * a graph that has it was compiled, or it was mapped or packed. */
WF_API wf_status wf_session_write(wf_session *session, const char *state, const void *from,
                                  size_t bytes);
WF_API wf_status wf_session_read(wf_session *session, const char *state, void *to, size_t bytes);
/* Makes a state whose elements lie in a file, from byte `offset` on, before a graph that has it is
 * compiled. They are read from there when first used, without a copy where the device can; nobody may
 * write to the state, and the file must not be changed while the session lives. */
WF_API wf_status wf_session_map(wf_session *session, const char *state, wf_type type, int rank,
                                const int64_t *dims, const char *path, uint64_t offset);
/* Makes a state that the device keeps in a layout of its own, before a graph that has it is compiled:
 * a weight that is only read, faster. wf_session_write packs, wf_session_read unpacks. Fails when the
 * device does not pack such a state; kernels that cannot read it fail the compilation. */
WF_API wf_status wf_session_pack(wf_session *session, const char *state, wf_type type, int rank,
                                 const int64_t *dims);

/* Passes that wf_compile runs, in this order, and that may be left out: results stay the same within
 * the roundoff of another order of the same sums, and bit for bit without fold and fuse. */
#define WF_PASS_FOLD 1u      /* simpler forms of what was written, duplicates computed once */
#define WF_PASS_FUSE 2u      /* several nodes as one, where the device has a kernel for it */
#define WF_PASS_RECOMPUTE 4u /* values computed again instead of kept, as marked and asked for */
#define WF_PASS_SCHEDULE 8u  /* an order that needs less memory */
#define WF_PASS_MEMORY 16u   /* memory used again, and in place; without: a place for every value */
typedef struct {
    uint32_t without; /* passes that are left out: WF_PASS_* */
    /* n > 0: of every n blocks (wf_block) only the end of the last is kept for the gradient, what lies
     * between is computed again; default: all is kept. */
    int64_t recompute;
} wf_compile_options;

/* The graph is read, not kept: it may be freed at once. `options` may be NULL. */
WF_API wf_status wf_compile(wf_session *session, wf_graph *graph, wf_exec **out);
WF_API wf_status wf_compile_with(wf_session *session, wf_graph *graph,
                                 const wf_compile_options *options, wf_exec **out);
WF_API void wf_exec_free(wf_exec *exec);
WF_API wf_status wf_exec_write(wf_exec *exec, const char *input, const void *from, size_t bytes);
/* Every input must have been written once. May return before the device has finished; reads wait.
 * When a run fails, updates of states before the node that failed have happened, and there are no
 * outputs to read. */
WF_API wf_status wf_exec_run(wf_exec *exec);
WF_API wf_status wf_exec_read(wf_exec *exec, const char *output, void *to, size_t bytes);

/* What there is: the states of a session, the inputs and outputs of an executable, in no special
 * order. false past the last. */
typedef struct {
    const char *name; /* borrowed from the session or executable */
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];
    size_t bytes;
} wf_info;
WF_API bool wf_session_state(const wf_session *session, int index, wf_info *out);
WF_API bool wf_exec_input(const wf_exec *exec, int index, wf_info *out);
WF_API bool wf_exec_output(const wf_exec *exec, int index, wf_info *out);

/* Memory of the device that an executable and its session hold, exact to the byte. Executables of a
 * session run one after the other and share one region for activations, as large as the largest of
 * them needs. */
typedef struct {
    size_t states; /* of the whole session, but for mapped ones */
    size_t mapped; /* states that lie in files and were not copied */
    size_t ports;  /* inputs and outputs of this executable */
    size_t
        activations; /* that this executable needs: intermediate values and workspace. Where a plugin
                           compiles: what it says its program takes while it runs, or 0 */
    size_t workspace;   /* the most that a kernel among them uses for itself */
    size_t lower_bound; /* no plan of this order of nodes could do with fewer activations */
    size_t region;      /* the session's region: the largest `activations` it has had so far */
} wf_memory;
WF_API void wf_exec_memory(const wf_exec *exec, wf_memory *out);
/* The same before anything is allocated, for a session with this graph alone. */
WF_API wf_status wf_plan_memory(wf_device *device, wf_graph *graph,
                                const wf_compile_options *options, wf_memory *out);

typedef struct {
    uint64_t runs;
    uint64_t nanoseconds;  /* inside runs; weights that the first one packed not counted */
    uint64_t bytes_in;     /* host to device, by wf_exec_write */
    uint64_t bytes_out;    /* device to host, by wf_exec_read */
    uint64_t bytes_copied; /* by views that had to be made dense, and copy nodes */
    uint64_t allocations;  /* during runs: 0 */
} wf_run_stats;
WF_API void wf_exec_stats(const wf_exec *exec, wf_run_stats *out);

typedef struct {
    const char *op;     /* borrowed for ever */
    const char *kernel; /* borrowed for ever */
    uint64_t launches, nanoseconds;
} wf_op_stats;
/* Time by op and kernel, over all runs. false past the last. */
WF_API bool wf_exec_op_stats(const wf_exec *exec, int index, wf_op_stats *out);

/* ---- Host level ---------------------------------------------------------------------------- */

/* Host arrays in, host arrays out, in one call; all that it makes is gone when it returns. */

typedef struct {
    const char *name; /* of an input, output or state of the graph */
    void *data;
    size_t bytes;
} wf_array;
/* Writes in[], runs once, reads out[]. States not given start as zeros. */
WF_API wf_status wf_call(wf_device *device, wf_graph *graph, const wf_array *in, int nin,
                         const wf_array *out, int nout);

typedef struct {
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];
    void *data;
} wf_tensor;
/* One op. out[i].data == NULL: only its type and shape are filled in and the caller may allocate
 * and call again. Update ops change a copy of the state, which is out[0]. */
WF_API wf_status wf_call_op(wf_device *device, const char *op, const char *attrs,
                            const wf_tensor *in, int nin, wf_tensor *out, int nout);

/* ---- Text ---------------------------------------------------------------------------------- */

/* Text to ids and back. Safe to use from several threads at once, but for its making and freeing. */
typedef struct wf_tokenizer wf_tokenizer;

typedef enum {
    WF_TOKEN_NORMAL = 1, /* numbers as in GGUF files */
    WF_TOKEN_UNKNOWN,
    WF_TOKEN_CONTROL, /* <|im_end|> and the like: never made from a text unless asked for */
    WF_TOKEN_USER,    /* added to the vocabulary, but plain text */
    WF_TOKEN_UNUSED,
    WF_TOKEN_BYTE
} wf_token_kind;

/* From a GGUF file, a Hugging Face folder or a tokenizer.json. */
WF_API wf_status wf_tokenizer_open(wf_ctx *ctx, const char *path, wf_tokenizer **out);
WF_API void wf_tokenizer_free(wf_tokenizer *tokenizer);
/* Ids are 0 .. count - 1. */
WF_API int32_t wf_tokenizer_count(const wf_tokenizer *tokenizer);
/* A token as the vocabulary spells it, borrowed until free; NULL when there is none of this id. */
WF_API const char *wf_tokenizer_token(const wf_tokenizer *tokenizer, int32_t id, size_t *bytes);
WF_API wf_token_kind wf_tokenizer_kind(const wf_tokenizer *tokenizer, int32_t id);
/* -1 when there is none. */
WF_API int32_t wf_tokenizer_find(const wf_tokenizer *tokenizer, const char *token, size_t bytes);
typedef enum { WF_SPECIAL_BOS, WF_SPECIAL_EOS, WF_SPECIAL_UNKNOWN, WF_SPECIAL_PAD } wf_special;
WF_API int32_t wf_tokenizer_special(const wf_tokenizer *tokenizer, wf_special which);
/* Is it one after which a text ends: eos, end of turn, end of message? */
WF_API bool wf_tokenizer_ends(const wf_tokenizer *tokenizer, int32_t id);

/* Flags. */
#define WF_TEXT_SPECIAL 1u /* encode: add what the tokenizer adds to a text (bos, eos) */
#define WF_TEXT_CONTROL \
    2u /* encode: control tokens are recognised in the text; decode: they are \
                              written out */
/* Bytes that are not UTF-8 are taken as U+FFFD, one for each maximal part of a character. *ids goes back
 * by wf_ids_free. Time is linear in the text, whatever it is. */
WF_API wf_status wf_tokenizer_encode(const wf_tokenizer *tokenizer, wf_ctx *ctx, const char *text,
                                     size_t bytes, uint32_t flags, int32_t **ids, size_t *count);
/* The same, but control tokens are recognised only where plain[i] is 0 for all of their bytes: what came
 * from a user stays text. NULL: 0 everywhere. */
WF_API wf_status wf_tokenizer_encode_marked(const wf_tokenizer *tokenizer, wf_ctx *ctx,
                                            const char *text, const uint8_t *plain, size_t bytes,
                                            uint32_t flags, int32_t **ids, size_t *count);
WF_API void wf_ids_free(wf_ctx *ctx, int32_t *ids);
/* *text goes back by wf_text_free, and has a NUL behind it. Valid UTF-8: bytes that make no character
 * become U+FFFD. */
WF_API wf_status wf_tokenizer_decode(const wf_tokenizer *tokenizer, wf_ctx *ctx, const int32_t *ids,
                                     size_t count, uint32_t flags, char **text, size_t *bytes);

/* Decoding as tokens come. A character whose bytes are not all there is held back, so what comes out is
 * valid UTF-8 and all of it together is what wf_tokenizer_decode gives. */
typedef struct wf_decoder wf_decoder;
WF_API wf_status wf_decoder_new(const wf_tokenizer *tokenizer, wf_ctx *ctx, uint32_t flags,
                                wf_decoder **out);
WF_API void wf_decoder_free(wf_decoder *decoder);
/* The text is borrowed until the next call. */
WF_API wf_status wf_decoder_next(wf_decoder *decoder, int32_t id, const char **text, size_t *bytes);
/* What was held back. The decoder may then be used for another text. */
WF_API wf_status wf_decoder_end(wf_decoder *decoder, const char **text, size_t *bytes);

/* Learns byte-level BPE from texts. The result depends on the texts and options, not on threads. */
typedef struct {
    int32_t vocab;     /* tokens, special ones and the 256 bytes included; default 8192 */
    const char *split; /* "gpt2", "llama3" or "qwen2"; default "gpt2" */
    const char *const
        *special; /* control tokens, the first is bos and eos; default <|endoftext|> */
    int specials;
    int threads;                               /* default: all cores */
    int64_t minimum;                           /* pairs seen less often are not merged; default 2 */
    void (*progress)(void *user, double done); /* 0 .. 1; may be NULL */
    void *user;
} wf_bpe_options;
typedef struct {
    const char *text;
    size_t bytes;
} wf_text;
WF_API wf_status wf_tokenizer_train(wf_ctx *ctx, const wf_text *texts, size_t count,
                                    const wf_bpe_options *options, wf_tokenizer **out);
/* As tokenizer.json and tokenizer_config.json in a folder that exists. */
WF_API wf_status wf_tokenizer_save(const wf_tokenizer *tokenizer, wf_ctx *ctx, const char *folder);

/* ---- Models -------------------------------------------------------------------------------- */

/* A GGUF file (any part of a split one) or a Hugging Face folder, opened and checked: what kind of model
 * it is, its weights, where they lie, its tokenizer and its chat template. No device is involved. */
typedef struct wf_model wf_model;

/* Files are mapped and read when needed. See wf_guard_mapped_files for files that others cut short. */
WF_API wf_status wf_model_open(wf_ctx *ctx, const char *path, wf_model **out);
/* Generators of the model must be freed before it. */
WF_API void wf_model_close(wf_model *model);
/* Off unless asked for, since it is the whole program's: a handler of SIGBUS that turns what a mapped file
 * lost after it was opened into an error, where the program would die otherwise. Signals about other
 * addresses go to the handler that was there before. Not while other threads use Weft. */
WF_API void wf_guard_mapped_files(bool on);

typedef struct {
    const char *family; /* "llama", "gpt2", "qwen2", "qwen3" */
    const char *name;   /* as the file has it, or that of the file or folder */
    const char *format; /* "GGUF v3", "safetensors" */
    int64_t layers, width, heads, kv_heads, head_dim, hidden, vocab, context;
    int64_t window;     /* tokens that attention looks back; 0: all */
    double rope_base;   /* 0: learned positions */
    bool tied;          /* the embedding is also the output matrix */
    int64_t parameters; /* numbers in all weights */
    size_t bytes;       /* that they take in the file */
    int files;
    const char *chat_template; /* NULL: none */
} wf_model_info;
/* Strings are borrowed until close. */
WF_API void wf_model_get_info(const wf_model *model, wf_model_info *out);
/* The weights, by the names that graphs give them; false past the last. */
WF_API bool wf_model_weight(const wf_model *model, int index, wf_info *out);
/* NULL when the file has none. Borrowed until close. */
WF_API const wf_tokenizer *wf_model_tokenizer(const wf_model *model);

typedef struct {
    const char *role; /* "system", "user", "assistant", "tool" */
    const char *content;
} wf_message;
typedef struct {
    const char *chat_template; /* instead of the model's; NULL: the model's own */
    bool unfinished;           /* the last message is not ended, and the answer is not begun */
    const char *tools;         /* a JSON array, or NULL */
    const char *variables;     /* a JSON object of further variables of the template, or NULL */
} wf_chat_options;
/* The ids that a conversation is for the model, by its chat template. What messages say never becomes a
 * control token. *ids goes back by wf_ids_free. `options` may be NULL. */
WF_API wf_status wf_model_chat(const wf_model *model, wf_ctx *ctx, const wf_message *messages,
                               int count, const wf_chat_options *options, int32_t **ids,
                               size_t *nids);
/* The text of it, for wf_text_free. */
WF_API wf_status wf_model_chat_text(const wf_model *model, wf_ctx *ctx, const wf_message *messages,
                                    int count, const wf_chat_options *options, char **text,
                                    size_t *bytes);

/* ---- Adapters ------------------------------------------------------------------------------ */

/* A low-rank adapter (LoRA): a folder with adapter_config.json and adapter_model.safetensors, as PEFT and `weft
 * finetune` write it, which belongs to one model, whatever the format and the types of that. */
typedef struct {
    const char *path;
    float scale; /* of what it adds to the model; default 1 */
} wf_lora;

/* ---- Conversion ---------------------------------------------------------------------------- */

/* Writes the model anew: to a GGUF file when the path ends in .gguf, else to a Hugging Face folder. */
typedef struct {
    /* Of the matrices: "f32", "q8_0", "Q4_K_M", ... (`weft quantize --help` lists them); NULL: as they
     * are. Vectors become f32, and what has no whole blocks the nearest type that has. A folder holds f32,
     * f16 and bf16 only: what is quantized becomes f16 there, and vectors what the matrices are where
     * that loses nothing. */
    const char *type;
    bool pure;            /* one type for all matrices, rather than the recipe's mixture */
    bool requantize;      /* admits quantizing what is quantized already */
    uint64_t split_bytes; /* most bytes of weights in one file; default: never split */
    /* Adapters that become part of the weights. A quantized weight that one of them changes needs a `type`. */
    const wf_lora *lora;
    int loras;
    int threads; /* default: all cores */
    /* bytes; anything but WF_OK ends it and is returned, and nothing was written. May be NULL */
    wf_status (*progress)(void *user, const char *weight, int64_t done, int64_t total);
    void *user;
    int64_t *written; /* set to the bytes of the weights as they are then; may be NULL */
} wf_convert_options;
/* `options` may be NULL. */
WF_API wf_status wf_model_convert(const wf_model *model, wf_ctx *ctx, const char *path,
                                  const wf_convert_options *options);

/* ---- Generation ---------------------------------------------------------------------------- */

/* A model on a device: its weights and a pool of pages for the keys and values of several sequences. */
typedef struct wf_generator wf_generator;

typedef struct {
    int64_t context;   /* most tokens of a sequence; default: the model's, at most 4096 */
    int64_t sequences; /* at once; default 1 */
    int64_t chunk;     /* most tokens of prompts in one run; default 512 */
    wf_type kv;        /* of keys and values: WF_F32 (default), WF_F16, WF_BF16 */
    bool check;        /* look for NaN and infinity in the weights, and log those that have some */
    const wf_lora *lora; /* adapters that are added to the model, which stays as it is */
    int loras;
} wf_generator_options;

/* `options` may be NULL. Weights are read when the first run needs them: until then, and where they stay mapped for
 * as long as the generator lives, the model's files must not change. What fails, here and below, leaves its sentence in the context that the model was
 * opened with; a generator and its sequences are used by one thread at a time. */
WF_API wf_status wf_generator_new(wf_device *device, const wf_model *model,
                                  const wf_generator_options *options, wf_generator **out);
/* Sequences must be freed before it. */
WF_API void wf_generator_free(wf_generator *generator);

typedef struct {
    int32_t token;
    float bias; /* added to its logit */
} wf_logit_bias;

/* How a token is chosen. Biases are added first; then the samplers are applied in the order of `samplers`, each to the
 * tokens that the one before left. All zeros: the most likely token, always. */
typedef struct {
    double temperature;    /* divides the logits; 0: the most likely token */
    int64_t top_k;         /* of the k most likely; 0: all */
    double top_p;          /* of the most likely that make up this probability; 0: all */
    double min_p;          /* of those at least this likely, relative to the first; 0: all */
    double repeat_penalty; /* divides positive logits of tokens seen lately; default 1 */
    double frequency_penalty, presence_penalty;
    int64_t penalty_last; /* tokens that count as lately; default 64; -1: all */
    uint64_t seed;
    const wf_logit_bias *bias;
    int biases;
    /* Names separated by ';', with llama.cpp's spelling; a sampler that is not named is off. Default, as in
     * llama.cpp: "penalties;top_k;top_p;min_p;temperature" */
    const char *samplers;
} wf_sampling;

typedef struct {
    wf_sampling sampling;
    int64_t limit;           /* most tokens; 0: until the text ends or the context is full */
    const char *const *stop; /* texts before which it ends */
    int stops;
    const int32_t *stop_token; /* besides those that end a text */
    int stop_tokens;
    bool ignore_end; /* go on after tokens that end a text */
    bool control;    /* write control tokens out */
} wf_request;

/* How the model's authors want it to be sampled: generation_config.json of a folder, general.sampling.* of a GGUF file.
 * What they do not say has Weft's default: temperature 0.6, top_k 40, top_p 0.95, min_p 0.05, no penalties. false: they
 * say nothing. Settings that are invalid or that Weft lacks are ignored, with a warning to the log. There is no
 * seed. Strings are borrowed until the model is closed. */
WF_API bool wf_model_sampling(const wf_model *model, wf_sampling *out);

/* One text that is being generated. */
typedef struct wf_sequence wf_sequence;

/* Waits for wf_generator_step. A prompt longer than the context, and no free sequence, are WF_ERR_USAGE. The
 * request is copied; NULL: all zeros. */
WF_API wf_status wf_sequence_new(wf_generator *generator, const int32_t *prompt, size_t count,
                                 const wf_request *request, wf_sequence **out);
/* Gives its pages back. */
WF_API void wf_sequence_free(wf_sequence *sequence);
/* Begins anew with another prompt. What the two have in common at the beginning, generated tokens
 * included, is not computed again. */
WF_API wf_status wf_sequence_restart(wf_sequence *sequence, const int32_t *prompt, size_t count,
                                     const wf_request *request);
/* One run of the model: a chunk of prompts, or the next token of every sequence. *busy (may be NULL): there
 * is more to do. When it fails for one sequence, which no token can follow, that one is cancelled; the next
 * call goes on with the others, and nothing of theirs is lost. */
WF_API wf_status wf_generator_step(wf_generator *generator, bool *busy);

typedef enum {
    WF_UNFINISHED = 0,
    WF_STOP_END,     /* a token that ends a text */
    WF_STOP_TEXT,    /* a stop text or token of the request's */
    WF_STOP_LIMIT,   /* as many tokens as asked for */
    WF_STOP_CONTEXT, /* the context is full */
    WF_STOP_CANCEL   /* wf_sequence_cancel */
} wf_stop;
WF_API wf_stop wf_sequence_stop(const wf_sequence *sequence);
/* What was generated and not asked for before; valid UTF-8, without stop texts or any part of one. Borrowed
 * until the next call with this sequence. */
WF_API const char *wf_sequence_text(wf_sequence *sequence, size_t *bytes);
/* All tokens, prompt included; borrowed until the next step. */
WF_API const int32_t *wf_sequence_tokens(const wf_sequence *sequence, size_t *count,
                                         size_t *prompt);
/* Ends it between two steps. What was held back, since it might begin a stop text, is not given out. */
WF_API void wf_sequence_cancel(wf_sequence *sequence);

/* logits f32[vocab] after ids[0 .. i], for every i in order; they are borrowed for the call. Anything but
 * WF_OK ends it and is returned. Uses a free sequence while it runs. */
typedef wf_status wf_logits_fn(void *user, size_t i, const float *logits, size_t vocab);
WF_API wf_status wf_generator_logits(wf_generator *generator, const int32_t *ids, size_t count,
                                     wf_logits_fn *fn, void *user);
/* The same for i >= from, with a sequence of the caller's, which is over then (WF_STOP_CANCEL) and can be
 * restarted. What its tokens before and these have in common at the beginning, up to `from`, is not
 * computed again: several continuations of one text cost what the continuations do. */
WF_API wf_status wf_sequence_logits(wf_sequence *sequence, const int32_t *ids, size_t count,
                                    size_t from, wf_logits_fn *fn, void *user);

typedef struct {
    uint64_t prompt_tokens, prompt_nanoseconds; /* computed; those in pages already do not count */
    uint64_t tokens, nanoseconds;               /* generated */
    uint64_t
        packing_nanoseconds; /* in the first runs, beside the above: weights into the device's layout */
    uint64_t reused_tokens;
    uint64_t bytes_in, bytes_out; /* between host and device, in steps */
    int64_t pages, pages_used;
} wf_generator_stats;
WF_API void wf_generator_get_stats(const wf_generator *generator, wf_generator_stats *out);
/* Memory that it holds, exact to the byte. */
WF_API void wf_generator_memory(const wf_generator *generator, wf_memory *out);
/* The same before anything is allocated, but for the ports, of which these are those of the largest run
 * alone. */
WF_API wf_status wf_generator_plan(wf_device *device, const wf_model *model,
                                   const wf_generator_options *options, wf_memory *out);

/* ---- Data for training --------------------------------------------------------------------- */

/* Texts become a folder of tokens, which training reads without having to hold it in memory. docs/data.md says
 * what it holds, byte by byte. */
typedef struct {
    const char *const *inputs; /* files, and folders of files */
    int input_count;
    const char *const
        *valid_inputs; /* to validate on; without any, a share of the inputs is held back */
    int valid_count;
    /* "text", "jsonl" (a JSON record a line) or "json" (an array of records). NULL: by the name, .jsonl or .ndjson,
     * or .json, which must be an array or lines; other files are text. docs/data.md lists the records. */
    const char *format;
    bool
        skip_bad; /* leaves out records that cannot be read, and counts them; else the first is a failure */
    const char
        *split_on; /* what stands between documents in a text file; NULL: a file is a document */
    const char
        *tokenizer; /* a model, a folder or a tokenizer.json; NULL: one is learned from the texts */
    int32_t vocab;  /* tokens of one that is learned; default: by how much text there is */
    int64_t sample; /* most bytes of text that it is learned from, spread evenly; default 64 MiB */
    const char *
        chat_template; /* of conversations: its text, or "chatml"; NULL: the tokenizer's, or chatml */
    double
        valid; /* share that is held back to validate on, up to 0.5; default 0.01; below 0: none */
    int64_t shard_tokens; /* about how many a file holds; default 2^27 */
    int threads;          /* default: all cores; the result is the same with any number */
    bool overwrite;       /* what is there, if it is a folder of data and nothing else */
    /* "learning", "encoding"; in bytes. Anything but WF_OK ends it and is returned, and nothing is left. May be NULL */
    wf_status (*progress)(void *user, const char *what, int64_t done, int64_t total);
    void *user;
} wf_prepare_options;

typedef struct {
    int64_t documents, tokens;
    int64_t bytes;   /* of text */
    int64_t counted; /* tokens that carry loss: of conversations the assistant's, of texts all */
    int shards;
} wf_prepared_split;
typedef struct {
    wf_prepared_split train, valid;
    int32_t vocab;
    int id_bytes;              /* that a token takes: 2 up to 65536 tokens, else 4 */
    bool learned;              /* the tokenizer */
    bool chat;                 /* conversations */
    int64_t files;             /* that were read */
    int64_t skipped_files;     /* in folders: no UTF-8 text, or empty */
    int64_t skipped_documents; /* empty, or conversations without an answer */
    int64_t bad;               /* records that cannot be read and were skipped */
    int64_t
        cuts; /* places where a long text was cut and the tokens around may not be those of the whole */
} wf_prepared;

/* Writes `folder`, which appears when it is whole. The same inputs and options give the same bytes. `out` may be
 * NULL. */
WF_API wf_status wf_prepare(wf_ctx *ctx, const char *folder, const wf_prepare_options *options,
                            wf_prepared *out);
/* ---- Training ------------------------------------------------------------------------------ */

/* What is trained, and how. Everything is decided before the first step, and is the same on every device. */
typedef struct {
    /* Which model: one of these four. */
    const char
        *preset;   /* a well-known shape: "gpt2-124M", "llama-30M", ... (`weft train --help`) */
    int64_t depth; /* layers; all other sizes follow from it */
    const char *config; /* path of a config.json */
    const char *model;  /* one to start from: a GGUF file or a Hugging Face folder */

    int64_t batch;      /* sequences at once; default: about 4096 tokens' worth */
    int64_t length;     /* tokens of a sequence; default: the model's context, at most 1024 */
    int64_t accumulate; /* batches whose gradients are summed up to one update; default 1 */
    bool documents;     /* attention does not look beyond the beginning of a document */
    int64_t steps;      /* updates; default: as many as `epochs` take */
    double epochs;      /* passes over the data; default 1 */

    const char *optimizer; /* "adamw" (default), "sgd", "lion", "muon" */
    double rate;           /* of learning, at its highest; default: by the size of the model */
    double beta1, beta2, eps, momentum; /* defaults 0.9, 0.95, 1e-8, 0.95; negative: 0 */
    double weight_decay;                /* of matrices; default 0.1; negative: 0 */
    bool decay_all;                     /* of vectors, too */
    double clip; /* longest gradient, by its global norm; default 1; negative: any */
    double
        ema; /* decay of an average of the weights, which is what is saved as the model; 0: none */

    const char *schedule; /* "cosine" (default), "linear", "constant", "wsd" */
    int64_t warmup;       /* steps; default a fiftieth, at most 1000; negative: 0 */
    double floor;         /* share of the rate that is left at the end; default 0.1; negative: 0 */
    int64_t decay;        /* wsd: steps of its last part; default a fifth */

    double label_smoothing, z_loss, dropout;

    wf_type compute;   /* WF_F32 (default), WF_BF16, or WF_F16 with a dynamic loss scale */
    int64_t recompute; /* as in wf_compile_options */
    double outlier;    /* a gradient so many times as long as usual is skipped; 0: none is */
    int64_t patience;  /* stop after so many skipped steps in a row; default 20 */

    int64_t lora;      /* rank of adapters that are trained in place of the weights; 0: none */
    double lora_alpha; /* default twice the rank */
    double lora_dropout;
    const char *lora_targets; /* "attn_q,attn_v", "attention", "mlp"; default "all" */

    uint64_t seed; /* of initial weights, order of the data, dropout; default 1 */
} wf_train_options;

/* Tokens to learn from: B sequences of T tokens, or as many as wf_train_options.documents makes of them. */
typedef struct {
    /* Unless wf_train_options.documents, positions are 0, 1, ..., T - 1 of every sequence, and seq_start is 0,
     * T, ..., B * T. */
    const int32_t *tokens, *positions; /* [B * T] */
    const int32_t *targets;            /* [B * T]: what follows each token; -100: does not count */
    const int32_t *seq_start;          /* [S + 1], as wf_attention takes it */
    int64_t valid;                     /* targets that count */
    int64_t bytes;                     /* of text behind them; 0: not known */
} wf_batch;

/* What a trainer trains, and what it takes. */
typedef struct {
    const char *name, *family;   /* of the model; borrowed from the trainer */
    int64_t parameters, trained; /* numbers in all weights, and in those that are trained */
    int64_t layers, width, heads, kv_heads, hidden, vocab, context;
    int64_t batch, length, accumulate, sequences; /* B, T, batches a step, S */
    int64_t step, steps;                          /* updates made, and to make */
    double flops;     /* of a step: 6 for each token and number in a matrix, and attention */
    wf_memory memory; /* of all its executables: ports are added up */
} wf_train_info;

/* A model that is being trained on a device. */
typedef struct wf_trainer wf_trainer;

/* The tokenizer, which must outlive the trainer, is saved with the model; NULL: that of options->model. Steps
 * must be given. What does not fit into `memory` bytes (0: no limit) is refused before anything is
 * allocated, with what would fit. */
WF_API wf_status wf_trainer_new(wf_device *device, const wf_tokenizer *tokenizer,
                                const wf_train_options *options, size_t memory, wf_trainer **out);
WF_API void wf_trainer_free(wf_trainer *trainer);
WF_API void wf_trainer_get_info(const wf_trainer *trainer, wf_train_info *out);
/* Settings with all defaults filled in, as words; false past the last. */
WF_API bool wf_trainer_setting(const wf_trainer *trainer, int index, const char **name,
                               char value[96]);

/* One step, as people watch it. */
typedef struct {
    int64_t step, steps; /* 1 is the first */
    double loss, norm, rate;
    double seconds;           /* of the step */
    double tokens_per_second; /* of late */
    double share;             /* of the device's peak arithmetic; 0: not known */
    double scale;             /* of the loss; 0: none */
    int64_t tokens, skipped;  /* so far */
    size_t memory;
    double left;  /* seconds */
    bool applied; /* false: the step was skipped, and all states are as they were */
} wf_train_step;

/* Batch number `index` since the beginning of training, borrowed until the next call. */
typedef wf_status wf_batch_fn(void *user, int64_t index, const wf_batch **out);
/* One update, from `accumulate` batches that `next` is asked for. WF_ERR_DEVICE when so many steps in a row had to be
 * skipped that it is no use going on. */
WF_API wf_status wf_trainer_step(wf_trainer *trainer, wf_batch_fn *next, void *user,
                                 wf_train_step *out);
/* The sum of the losses of a batch, without dropout and smoothing, and how many targets counted; of the average of the weights where
 * there is one. */
WF_API wf_status wf_trainer_evaluate(wf_trainer *trainer, const wf_batch *batch, double *loss,
                                     int64_t *count);
/* Goes on after a prompt; *ids, for wf_ids_free, are the new tokens, and end before one that ends a text. */
WF_API wf_status wf_trainer_generate(wf_trainer *trainer, const int32_t *prompt, size_t count,
                                     int64_t limit, const wf_sampling *sampling, int32_t **ids,
                                     size_t *nids);
/* All that it takes to go on: the model (or adapter) as a Hugging Face folder, and what optimizer and random
 * numbers need beside it. The folder must exist. */
WF_API wf_status wf_trainer_save(wf_trainer *trainer, const char *folder);
/* Goes on from there, bit for bit, when settings and machine are the same: *exact says so, and the log why
 * not. Another model or other settings that change what is computed are WF_ERR_USAGE. */
WF_API wf_status wf_trainer_load(wf_trainer *trainer, const char *folder, bool *exact);
/* The model, by wf_model_convert; of adapters the folder that PEFT reads. `type` as there. */
WF_API wf_status wf_trainer_export(wf_trainer *trainer, const char *path, const char *type);

/* What a run tells while it goes on; any of them may be NULL. */
typedef struct {
    void *user;
    void (*begin)(void *user, const wf_trainer *trainer, int64_t tokens, int64_t batches);
    void (*step)(void *user, const wf_train_step *step);
    void (*valid)(void *user, int64_t step, double loss, double bits_per_byte);
    void (*sample)(void *user, int64_t step, const char *text);
    void (*say)(void *user, const char *sentence); /* checkpoints, warnings */
    bool (*stop)(void *user); /* asked after every step: true saves and ends the run */
} wf_train_events;

/* One training run in a folder of its own, from prepared data to a model: docs/training.md. */
typedef struct {
    const char *data; /* folder that wf_prepare made */
    const char *out;  /* the run's folder: checkpoints, log, curve, and the model at the end */
    bool resume;      /* continue from the newest checkpoint in `out`; start where there is none */
    bool restart;     /* start over in `out`: what an earlier run left there is renamed */
    bool overwrite;   /* replace the model, log and curve of another run in `out` */
    wf_train_options train;
    int64_t
        save_every; /* steps between checkpoints; default a tenth of all; negative: at the end */
    double save_minutes;   /* most minutes between checkpoints; default 15; negative: any */
    int64_t keep;          /* checkpoints that are kept, the newest; default 2; negative: all */
    int64_t keep_every;    /* those of every so many steps are kept besides; 0: none */
    int64_t valid_every;   /* steps between validations; default a tenth of all; negative: never */
    int64_t valid_batches; /* of a validation; default 20 */
    int64_t sample_every;  /* steps between sample texts; 0: none */
    const char *sample_prompt; /* what they begin with; default: the beginning of a document */
    int64_t sample_tokens;     /* default 64 */
    const char *export_type; /* of the matrices of OUT/model.gguf; default "f32"; "none": no file */
    size_t memory;           /* most that may be planned; default: what the device has free */
    bool fit;                /* change batch, accumulation and recomputation until it fits */
    const wf_train_events *events; /* NULL: nobody watches */
} wf_run_options;

/* *stopped: the run was asked to stop, and can be resumed. */
WF_API wf_status wf_train(wf_device *device, const wf_run_options *options, bool *stopped);
/* Bytes that the device could still allocate; 0: not known. */
WF_API size_t wf_device_available(const wf_device *device);

#ifdef __cplusplus
}
#endif
#endif

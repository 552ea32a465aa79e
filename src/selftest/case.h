/* SPDX-License-Identifier: MIT */
/*
 * case.h - one case of the selftest: a small graph around one node, and its operands.
 *
 * A row of the tables names a function that builds the variants of a case with the helpers below.
 * The function is called for every check of the case (dense operands, views, gradient, expansion).
 * The first call draws the operands, from a random stream that depends only on seed, op, variant and
 * type. Later calls repeat its operands.
 */
#ifndef WF_SELFTEST_CASE_H
#define WF_SELFTEST_CASE_H

#include "base/philox.h"
#include "graph/graph.h"
#include "selftest/number.h"

/* Inputs and states of one case; more are reported as an internal error. */
#define WF_CASE_OPERANDS 24
/* Values read after a run; more fail an assertion. */
#define WF_CASE_READS 24

typedef struct wf_case wf_case;
typedef struct wf_eval wf_eval;

typedef struct {
    wf_op op;
    int variants;
    void (*build)(wf_case *c);
    wf_type_set types; /* set of the types under test */
    double forward;    /* bound of results, in roundoffs; 0: WF_CASE_FORWARD */
    double gradient;   /* ... of gradients; 0: WF_CASE_GRADIENT */
    double expansion;  /* ... of the expansion; 0: WF_CASE_EXPANSION */
    const char *label; /* distinguishes rows of one op; NULL: the only row */
} wf_case_row;

/* A row whose function is build_NAME. */
#define WF_ROW(name, count, under_test, ...)                                                   \
    {                                                                                          \
        .op = WF_OP_##name, .variants = (count), .build = build_##name, .types = (under_test), \
        __VA_ARGS__                                                                            \
    }

/* Another row of the op, whose function is build_NAME_LABEL. */
#define WF_ROW_OF(name, which, count, under_test, ...)                            \
    {                                                                             \
        .op = WF_OP_##name, .variants = (count), .build = build_##name##_##which, \
        .types = (under_test), .label = #which, __VA_ARGS__                       \
    }

/* Bounds, in roundoffs of f32 times the sum of the absolute terms. A kernel may sum in any order
 * and round a few times; an expansion rounds after every step; a gradient does both. */
#define WF_CASE_FORWARD 8
#define WF_CASE_GRADIENT 64
#define WF_CASE_EXPANSION 64

/* An input or state of the graph, with its contents. */
typedef struct {
    /* The source: an input, a state, or a state's copy. */
    wf_node *node;
    wf_value *value; /* the operand: the source's output, or a view of it */
    double *v;       /* values, representable in the type, dense in its shape */
    void *bytes;     /* the same values as elements of the type */
    /* Bytes. */
    size_t size;
    bool constant; /* its gradient is not checked */
    wf_rng after;  /* the random stream of the case after the values were drawn */
} wf_operand;

/* A value to read after a run: a named output, or a state. */
typedef struct {
    char name[16];
    /* Its type and shape are those of `bytes`. */
    wf_value *value;
    void *bytes;
    size_t size;
    const void *same; /* expected bits, or NULL */
} wf_read;

struct wf_case {
    wf_ctx *ctx;
    wf_arena arena; /* owns everything below except the graph */
    wf_graph *g;
    const wf_case_row *row;
    int variant;
    wf_type type; /* under test */
    uint64_t seed;
    /* A build of the same case, whose operands this one repeats; NULL: this one draws its own. */
    const wf_case *first;
    /* Values of operands. */
    wf_rng rng;
    /* Shapes and offsets of views. */
    wf_rng view_rng;
    int views;        /* depth of the views that operands are made from; 0: operands are inputs */
    wf_status status; /* first failure of the helpers; the graph has its own */
    wf_eval *frozen;  /* the last evaluation of wf_case_frozen, or NULL */

    wf_operand operand[WF_CASE_OPERANDS];
    int operands;
    wf_read read[WF_CASE_READS];
    int reads;
    wf_node *node;    /* under test */
    bool no_gradient; /* this variant has no gradient that finite differences could check */
    double gradient;  /* bound of this variant's gradients; 0: the row's */
    bool optional;    /* a device may lack this combination of types */
    bool untouched;   /* apply is 0: states must keep their bits */
};

/* ---- Helpers for build functions. They return NULL on failure, which the graph propagates.
 * ---- */

/* A shape literal, D(3, 5); D0 is a scalar. WF_LENGTH is the length of an array, as int. */
#define D(...) ((wf_dims){sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), {__VA_ARGS__}})
#define D0 ((wf_dims){0, {0}})
#define WF_LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* Uniform in [lo, hi], rounded to the type; integers include both ends. */
wf_value *wf_case_typed(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* Of the type under test. */
wf_value *wf_case_x(wf_case *c, wf_dims dims, double lo, double hi);
wf_value *wf_case_f32(wf_case *c, wf_dims dims, double lo, double hi);
wf_value *wf_case_i32(wf_case *c, wf_dims dims, int32_t lo, int32_t hi);
/* Uniform in [lo, hi], quantized. */
wf_value *wf_case_blocks(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* The same as a state. */
wf_value *wf_case_block_state(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* Returns another float type than the one under test, for operands of mixed types. */
wf_type wf_case_other_float(const wf_case *c);
/* Integers in [lo, hi] in any type: many ties. */
wf_value *wf_case_whole(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* u8: 0, 1 and 255. */
wf_value *wf_case_truth(wf_case *c, wf_dims dims);
wf_value *wf_case_given(wf_case *c, wf_type type, wf_dims dims, const double *v);
wf_value *wf_case_i32_given(wf_case *c, wf_dims dims, const int32_t *v);
/* i32[3] for random ops. */
wf_value *wf_case_key(wf_case *c);
wf_value *wf_case_state(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* The copy of a state, the last operand so far, in the type under test. The copy exists but has not
 * been written. */
wf_value *wf_case_state_copy(wf_case *c, wf_value *state);
/* The operand `apply` of update ops. which 0: absent, 1: true, 2: false. */
wf_value *wf_case_apply(wf_case *c, int which);
/* An operand with the reference's values of `value`: results of a forward op, saved for the
 * backward op under test. */
wf_value *wf_case_frozen(wf_case *c, wf_value *value);
/* Excludes an operand from the gradient check. */
wf_value *wf_case_constant(wf_case *c, wf_value *operand);

/* Makes the node of `value` the node under test. */
void wf_case_node(wf_case *c, wf_value *value);
/* Adds the row's op, with attributes as text, as the node under test. */
void wf_case_op(wf_case *c, const char *attrs, wf_value *const *in, int nin);
#define WF_CASE_OP(c, attrs, ...)                     \
    wf_case_op(c, attrs, (wf_value *[]){__VA_ARGS__}, \
               (int)(sizeof((wf_value *[]){__VA_ARGS__}) / sizeof(wf_value *)))

/* ---- For the harness ------------------------------------------------------------------------ */

/* Returns the random stream of a case, which is independent of other cases. */
uint64_t wf_case_stream(const wf_case_row *row, int variant, wf_type type);
/* Builds one variant. Succeeds even if the graph has an error: see wf_case_status. */
wf_status wf_case_new(wf_ctx *ctx, const wf_case_row *row, int variant, wf_type type, uint64_t seed,
                      int views, wf_case **out);
/* Builds the variant of `first` again. Operands have the same values and share their memory, so
 * `first`, which has no views, must outlive the new case. */
wf_status wf_case_again(const wf_case *first, int views, wf_case **out);
void wf_case_free(wf_case *c);
/* Returns the first failure of the helpers or the graph; the context has its message. */
wf_status wf_case_status(wf_case *c);
/* Returns the elements of all operands and results. Large cases get fewer checks. */
int64_t wf_case_size(const wf_case *c);
/* Elements from which a case is large. */
#define WF_CASE_LARGE 8000

/* Adds an input or state with the values v, whose elements are `bytes`. Both stay borrowed. */
wf_value *wf_case_source(wf_case *c, wf_type type, wf_dims dims, double *v, void *bytes,
                         bool state);
/* Returns an operand with these values that is a view, `depth` views deep, of a larger source. */
wf_value *wf_case_view(wf_case *c, wf_type type, wf_dims dims, double *v, void *bytes, int depth);

/* Reads a value after runs: makes it an output, unless it is a version of a state. */
wf_status wf_case_read(wf_case *c, const char *name, wf_value *value, const void *same);
/* Compiles `graph` (the case's own, or one derived from it) and runs it on the operands. Results go
 * to read[].bytes. Sets *repeats if a second run gives the same bits. */
wf_status wf_case_run(wf_case *c, wf_graph *graph, wf_device *device, bool *repeats);
/* The same with all passes. wf_case_run tests kernels, so it skips passes that change nodes. */
wf_status wf_case_run_with(wf_case *c, wf_graph *graph, wf_device *device,
                           const wf_compile_options *options, bool *repeats);

/* The reference for all nodes up to the node under test. */
typedef struct {
    wf_ref out[WF_MAX_OUT];
} wf_eval_node;

struct wf_eval {
    wf_case *c;
    int count;
    wf_eval_node *node;   /* [count] */
    const double **given; /* [count] values of sources, else NULL */
    bool *needed;         /* [count] whether the last node depends on this one, or is it */
    wf_ref *in;           /* operands of one node */
};

/* Prepares an evaluation up to node `last`. The case's arena owns it. */
wf_status wf_eval_new(wf_case *c, const wf_node *last, wf_eval **out);
/* Evaluates the nodes on which the last one depends. With `rounded`, results that other nodes read
 * are rounded to their type, as on a device. Without, everything stays float64, smooth enough for
 * finite differences. The last node is never rounded. Values of sources other than the last node
 * are borrowed from `given`. */
wf_status wf_eval_run(wf_eval *e, bool rounded);

/* Stores at most cap rows of one op, generated rows included. Returns their total number. */
int wf_case_rows(wf_op op, wf_case_row *rows, int cap);

/* Tables, each in the file of its name; a row without build ends a table. */
extern const wf_case_row wf_cases_elementwise[], wf_cases_source[], wf_cases_shape[],
    wf_cases_reduce[], wf_cases_rows[], wf_cases_product[], wf_cases_norm[], wf_cases_attention[],
    wf_cases_loss[], wf_cases_update[];
/* For ops that ops.def marks as elementwise. */
void wf_case_build_unary(wf_case *c);
void wf_case_build_binary(wf_case *c);
extern const int wf_case_unary_variants, wf_case_binary_variants;

#endif

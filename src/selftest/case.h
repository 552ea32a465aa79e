/* SPDX-License-Identifier: MIT */
/*
 * case.h - one case of the selftest: a small graph around one node, and the numbers that go in.
 *
 * A row of the tables names a function that builds the variants of a case with the helpers below.
 * The same function is called again for every look at the case (dense operands, views, gradient,
 * expansion) and draws the same numbers each time, because its random stream depends on nothing but
 * seed, op, variant and type.
 */
#ifndef WF_SELFTEST_CASE_H
#define WF_SELFTEST_CASE_H

#include "base/philox.h"
#include "graph/graph.h"
#include "selftest/number.h"

#define WF_CASE_OPERANDS 24
#define WF_CASE_READS 24

typedef struct wf_case wf_case;

typedef struct {
    wf_op op;
    int variants;
    void (*build)(wf_case *c);
    wf_type_set types; /* set of the types under test */
    double forward;    /* roundoffs allowed to results; 0: WF_CASE_FORWARD */
    double gradient;   /* ... to gradients; 0: WF_CASE_GRADIENT */
    double expansion;  /* ... to results of the expansion; 0: WF_CASE_EXPANSION */
    const char *label; /* tells rows of one op apart; NULL: the only one */
} wf_case_row;

/* A row whose function is build_NAME. */
#define WF_ROW(name, count, under_test, ...)                                                   \
    {                                                                                          \
        .op = WF_OP_##name, .variants = (count), .build = build_##name, .types = (under_test), \
        __VA_ARGS__                                                                            \
    }

/* One more row of the op, whose function is build_NAME_LABEL. */
#define WF_ROW_OF(name, which, count, under_test, ...)                            \
    {                                                                             \
        .op = WF_OP_##name, .variants = (count), .build = build_##name##_##which, \
        .types = (under_test), .label = #which, __VA_ARGS__                       \
    }

/* Bounds are in roundoffs of f32 on the sum of the terms. A kernel adds up in any order it likes and
 * rounds a few times on the way; an expansion rounds after every step, a gradient does both. */
#define WF_CASE_FORWARD 8
#define WF_CASE_GRADIENT 64
#define WF_CASE_EXPANSION 64

/* An input or state of the graph and what stands in it. */
typedef struct {
    wf_node *node;
    wf_value *value; /* what the case computes with: the node's output, or a view of it */
    double *v;       /* numbers of the node's type, dense in its shape */
    void *bytes;     /* the same as elements of the type */
    size_t size;
    bool constant; /* gradients with respect to it are not looked at */
} wf_operand;

/* What is to be read after a run: a named output, or a state. */
typedef struct {
    char name[16];
    wf_value *value;
    void *bytes;
    size_t size;
    const void *same; /* the bits that must be there, or NULL */
} wf_read;

struct wf_case {
    wf_ctx *ctx;
    wf_arena arena; /* everything below that is pointed to, but for the graph */
    wf_graph *g;
    const wf_case_row *row;
    int variant;
    wf_type type; /* under test */
    wf_rng rng;
    wf_rng view_rng;
    int views;             /* operands are made from views, this many deep; 0: they are inputs */
    wf_status status;      /* of the helpers; the graph has its own */
    const uint8_t *blocks; /* of the quantized operand that is being made */

    wf_operand operand[WF_CASE_OPERANDS];
    int operands;
    wf_read read[WF_CASE_READS];
    int reads;
    wf_node *node;    /* under test */
    bool no_gradient; /* this variant has none, or not one that differences could find */
    double gradient;  /* roundoffs allowed to this variant's gradients; 0: what the row says */
    bool optional;    /* a device may do without this combination of types */
    bool untouched;   /* apply is 0: states must keep their bits */
};

/* ---- Helpers for build functions. All return NULL on failure, which the graph passes on. ---- */

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
/* Another float type than that under test, for operands that may differ. */
wf_type wf_case_other_float(const wf_case *c);
/* Whole numbers of [lo, hi] in any type: many ties. */
wf_value *wf_case_whole(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* u8: 0, 1 and 255. */
wf_value *wf_case_truth(wf_case *c, wf_dims dims);
wf_value *wf_case_given(wf_case *c, wf_type type, wf_dims dims, const double *v);
wf_value *wf_case_i32_given(wf_case *c, wf_dims dims, const int32_t *v);
/* i32[3] for random ops. */
wf_value *wf_case_key(wf_case *c);
wf_value *wf_case_state(wf_case *c, wf_type type, wf_dims dims, double lo, double hi);
/* The copy of a state, which is the last operand so far, in the type under test: it is not written, but there. */
wf_value *wf_case_state_copy(wf_case *c, wf_value *state);
/* For update ops. 0: absent, 1: a scalar that says yes, 2: one that says no. */
wf_value *wf_case_apply(wf_case *c, int which);
/* An operand with the numbers that the reference gives for `value`: what a forward op saved for the
 * backward op under test. */
wf_value *wf_case_frozen(wf_case *c, wf_value *value);
/* No gradient with respect to this operand. */
wf_value *wf_case_constant(wf_case *c, wf_value *operand);

/* The node under test: the one that made `value`. */
void wf_case_node(wf_case *c, wf_value *value);
/* Adds the row's op with attributes as text, and takes it as the node under test. */
void wf_case_op(wf_case *c, const char *attrs, wf_value *const *in, int nin);
#define WF_CASE_OP(c, attrs, ...)                     \
    wf_case_op(c, attrs, (wf_value *[]){__VA_ARGS__}, \
               (int)(sizeof((wf_value *[]){__VA_ARGS__}) / sizeof(wf_value *)))

/* ---- For the harness ------------------------------------------------------------------------ */

/* The stream of random numbers of a case. It does not depend on other cases. */
uint64_t wf_case_stream(const wf_case_row *row, int variant, wf_type type);
/* Builds one variant. Succeeds also when the graph refused: see wf_case_status. */
wf_status wf_case_new(wf_ctx *ctx, const wf_case_row *row, int variant, wf_type type, uint64_t seed,
                      int views, wf_case **out);
void wf_case_free(wf_case *c);
/* The first failure of the helpers or of the graph, its sentence in the context. */
wf_status wf_case_status(wf_case *c);
/* Elements of all operands and results. Of large cases, not everything is looked at. */
int64_t wf_case_size(const wf_case *c);
#define WF_CASE_LARGE 8000

/* Adds an input or state with these numbers, which stay borrowed. view.c builds on it. Of quantized types
 * they say where each element stood among those of c->blocks, or poison; they are replaced by numbers. */
wf_value *wf_case_source(wf_case *c, wf_type type, wf_dims dims, double *v, bool state);
/* A value of these numbers that is a view of something else, `depth` views deep. */
wf_value *wf_case_view(wf_case *c, wf_type type, wf_dims dims, double *v, int depth);

/* Has a value read after runs: it becomes an output, unless it is a version of a state. */
wf_status wf_case_read(wf_case *c, const char *name, wf_value *value, const void *same);
/* Compiles `graph` (the case's own, or one made from it) and runs it on the operands. The results
 * are in read[].bytes. A second run must give the same bits: *repeats. */
wf_status wf_case_run(wf_case *c, wf_graph *graph, wf_device *device, bool *repeats);
/* The same with passes: wf_case_run looks at kernels and leaves out those that change nodes. */
wf_status wf_case_run_with(wf_case *c, wf_graph *graph, wf_device *device,
                           const wf_compile_options *options, bool *repeats);

/* The reference for all nodes up to the node under test. */
typedef struct {
    wf_ref out[WF_MAX_OUT];
} wf_eval_node;

typedef struct {
    wf_case *c;
    int count;
    wf_eval_node *node;   /* [count] */
    const double **given; /* [count]: numbers of sources, else NULL */
    wf_ref *in;           /* for one node */
} wf_eval;

/* Lives in the case's arena. `last` is the last node that is evaluated. */
wf_status wf_eval_new(wf_case *c, const wf_node *last, wf_eval **out);
/* With `rounded`, results that other nodes read are rounded to their type, as on a device; without,
 * everything stays a double, smooth enough for differences. The last node is never rounded. */
wf_status wf_eval_run(wf_eval *e, bool rounded);

/* Rows of one op, generated ones included. Returns how many there are; stores at most cap. */
int wf_case_rows(wf_op op, wf_case_row *rows, int cap);

/* Tables, each in the file of its name and ended by a row without build. */
extern const wf_case_row wf_cases_elementwise[], wf_cases_source[], wf_cases_shape[],
    wf_cases_reduce[], wf_cases_rows[], wf_cases_product[], wf_cases_norm[], wf_cases_attention[],
    wf_cases_loss[], wf_cases_update[];
/* For ops that ops.def marks as elementwise. */
void wf_case_build_unary(wf_case *c);
void wf_case_build_binary(wf_case *c);
extern const int wf_case_unary_variants, wf_case_binary_variants;

#endif

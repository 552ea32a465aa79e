/* SPDX-License-Identifier: MIT */
/*
 * random_graph.h - random legal graphs, made from recipes that can be cut down until what fails
 * stands alone.
 *
 * A recipe is a seed and a list of steps; each adds a few nodes: an op, a residual block, a head with
 * its loss, gradients with the updates that use them. Each step draws from a random stream of its own
 * and reaches for operands by the number of the step that made them, so leaving a step out changes
 * little of the others. The contents of inputs and states follow from the seed and from their names,
 * whoever made the executable.
 *
 * To be included after cmocka.h. What the generator itself gets wrong fails the test, with the seed.
 */
#ifndef WEFT_TESTS_RANDOM_GRAPH_H
#define WEFT_TESTS_RANDOM_GRAPH_H

#include "graph/graph.h"

/* ---- Recipes ---- */

#define RG_MAX_STEPS 256

typedef struct {
    int nodes;        /* about how many; default 60. Gradients come on top */
    bool grad;        /* with gradients of scalars, and updates that use them */
    bool smooth;      /* nothing that jumps: results move no more than a little when operands do */
    wf_type_set only; /* set of float types; default: f32, f16 and bf16. f32 is always among them */
    bool all;         /* every value is an output called as rg_build says; changes no decision */
    double nudge;     /* contents of f32 sources are off by up to this share, for tests of smooth */
} rg_options;

typedef struct {
    uint64_t seed;
    rg_options options;
    int step_count;
    bool off[RG_MAX_STEPS];   /* steps left out */
    bool quiet[RG_MAX_STEPS]; /* steps whose values are no outputs, unless options.all */
} rg_recipe;

rg_recipe rg_recipe_make(uint64_t seed, const rg_options *options);
/* The name of the kind of step that this one is: "attention", "views", ... */
const char *rg_step_name(const rg_recipe *recipe, int step);

/* Outputs are called s3.0, s3.1, ...: values of step 3 that were chosen as outputs, by the order in
 * which all of its values were made. A graph without one has the output "none". A test that tries many recipes gives
 * recipe i the seed wt_seed() + i and options that follow from this seed alone: then WEFT_SEED set to
 * the seed of the case that failed makes it the first. */
wf_status rg_build(wf_ctx *ctx, const rg_recipe *recipe, wf_graph **out);

/* One line a node, and how to get the graph again. */
void rg_print(const rg_recipe *recipe, const wf_graph *g);

/* Whether the case still fails. It must not end the test. */
typedef bool rg_fails_fn(const rg_recipe *recipe, void *user);
/* Leaves out steps, then outputs, of a recipe that fails: halves, quarters, ... and single ones, until
 * nothing more can go. Returns how many recipes were tried. */
int rg_shrink(rg_recipe *recipe, rg_fails_fn *fails, void *user);
/* Shrinks, prints what is left with the seed, and fails the test. */
void rg_report(wf_ctx *ctx, const rg_recipe *recipe, const char *reason, rg_fails_fn *fails,
               void *user);

/* ---- Runs ---- */

/* Legal contents for all inputs and all states that the generator has named; others, which a pass
 * may have added, are left as they are. */
wf_status rg_write(const rg_recipe *recipe, wf_session *session, wf_exec *exec);

typedef struct {
    char name[32];
    bool state; /* else an output */
    wf_type type;
    wf_dims shape;
    int64_t count;
    size_t offset, bytes; /* in data */
} rg_item;

typedef struct {
    int count;
    rg_item *item;
    unsigned char *data;
    wf_memory memory; /* of the executable */
} rg_results;

/* Lists what there is to read of a graph, its outputs and its states, without contents. */
void rg_outputs(const wf_graph *g, rg_results *out);
void rg_results_free(rg_results *r);
/* NULL when there is none. */
const rg_item *rg_find(const rg_results *r, const char *name, bool state);

typedef wf_status rg_compile_fn(wf_session *session, wf_graph *graph, void *user, wf_exec **out);
/* wf_compile_with; user: the options, or NULL for those that keep the bits. */
rg_compile_fn rg_compile;

/* Compiles, writes everything once, runs `runs` times and reads the results, which hold nothing
 * after a failure. */
wf_status rg_run(wf_ctx *ctx, const char *device, wf_graph *g, const rg_recipe *recipe, int runs,
                 rg_compile_fn *compile, void *user, rg_results *out);

/* Where two results differ most. */
typedef struct {
    bool failed;
    const char *name; /* borrowed from the results `got` */
    int64_t index;
    double got, wanted;
    double error; /* in shares of what is allowed */
} rg_verdict;

/* Items of `got` against those of the same name of `wanted`, which may have more. One that is missing
 * there fails, too. */
rg_verdict rg_compare_bits(const rg_results *got, const rg_results *wanted);
/* Floats may be `bound` apart, times the largest magnitude of the output or `floor`, whichever is
 * larger; what is not finite, and integers, must be the same. */
rg_verdict rg_compare_close(const rg_results *got, const rg_results *wanted, double bound,
                            double floor);

#endif

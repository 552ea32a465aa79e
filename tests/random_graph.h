/* SPDX-License-Identifier: MIT */
/*
 * random_graph.h - random legal graphs, made from recipes that shrink to a minimal failing case.
 *
 * A recipe is a seed and a list of steps. A step adds a few nodes: an op, a residual block, a head
 * with its loss, or gradients with the updates that use them. Each step draws from its own random
 * stream and picks operands by the index of the step that made them. Leaving out one step therefore
 * changes little in the others. The contents of inputs and states depend only on the seed and their
 * names.
 *
 * Include after cmocka.h. An error inside the generator fails the test and prints the seed.
 */
#ifndef WEFT_TESTS_RANDOM_GRAPH_H
#define WEFT_TESTS_RANDOM_GRAPH_H

#include "graph/graph.h"

/* ---- Recipes ---- */

#define RG_MAX_STEPS 256

typedef struct {
    int nodes;        /* approximate, default 60; gradients add more */
    bool grad;        /* adds gradients of scalars and updates that use them */
    bool smooth;      /* small changes of operands change results little */
    wf_type_set only; /* float types to use; default f32, f16 and bf16. f32 is always included */
    bool all;         /* every value becomes an output, named as in rg_build; changes no decision */
    double nudge;     /* largest relative change of each element of f32 sources */
    uint64_t draw;    /* selects one set of random changes */
} rg_options;

typedef struct {
    uint64_t seed;
    rg_options options;
    int step_count;
    bool off[RG_MAX_STEPS];   /* steps to leave out */
    bool quiet[RG_MAX_STEPS]; /* steps whose values are not outputs, unless options.all */
} rg_recipe;

rg_recipe rg_recipe_make(uint64_t seed, const rg_options *options);
/* Returns the kind of this step: "attention", "views", ... */
const char *rg_step_name(const rg_recipe *recipe, int step);

/* Builds the graph of a recipe. Outputs are called s3.0, s3.1, ...: the values of step 3 that were
 * chosen as outputs, numbered in creation order among all values of the step. A graph without
 * outputs gets one called "none". A test of many recipes gives recipe i the seed wt_seed() + i and
 * derives its options only from that seed. So WEFT_SEED set to the seed of a failing case makes
 * that case the first. */
wf_status rg_build(wf_ctx *ctx, const rg_recipe *recipe, wf_graph **out);

/* Prints one line per node, and how to reproduce the graph. */
void rg_print(const rg_recipe *recipe, const wf_graph *g);

/* Returns whether the case still fails. Must not end the test. */
typedef bool rg_fails_fn(const rg_recipe *recipe, void *user);
/* Shrinks a failing recipe: leaves out steps, then outputs, by halves, quarters, ... and one at a
 * time, until all that remain are needed. Returns the number of recipes tried. */
int rg_shrink(rg_recipe *recipe, rg_fails_fn *fails, void *user);
/* Shrinks the recipe, prints the result with its seed, and fails the test. */
void rg_report(wf_ctx *ctx, const rg_recipe *recipe, const char *reason, rg_fails_fn *fails,
               void *user);

/* ---- Runs ---- */

/* Writes legal contents to all inputs and to all states that the generator named. States that a
 * pass added keep their contents. */
wf_status rg_write(const rg_recipe *recipe, wf_session *session, wf_exec *exec);

/* Makes options.nudge change the f32 results of nodes as well, except views and updates: multiplies
 * each by a new input. */
wf_status rg_nudge_nodes(wf_graph *g);

typedef struct {
    char name[32];
    bool state; /* false: an output */
    wf_type type;
    wf_dims shape;
    int64_t count;
    size_t offset, bytes; /* in data */
} rg_item;

typedef struct {
    int count;
    rg_item *item;
    unsigned char *data;
    wf_memory memory; /* memory of the executable */
} rg_results;

/* Lists the outputs and states of a graph, without contents. */
void rg_outputs(const wf_graph *g, rg_results *out);
void rg_results_free(rg_results *r);
/* Returns NULL when no item has this name. */
const rg_item *rg_find(const rg_results *r, const char *name, bool state);

typedef wf_status rg_compile_fn(wf_session *session, wf_graph *graph, void *user, wf_exec **out);
/* Calls wf_compile_with. user: the options, or NULL for the options that keep results bitwise
 * equal. */
rg_compile_fn rg_compile;

/* Compiles the graph, writes all contents once, runs it `runs` times and reads the results. After a
 * failure the results are empty. */
wf_status rg_run(wf_ctx *ctx, const char *device, wf_graph *g, const rg_recipe *recipe, int runs,
                 rg_compile_fn *compile, void *user, rg_results *out);

/* The largest difference between two sets of results. */
typedef struct {
    bool failed;
    const char *name; /* borrowed from the results `got` */
    int64_t index;
    double got, wanted;
    double error; /* as a fraction of the bound */
} rg_verdict;

/* Compares the bits of each item of `got` with the item of the same name in `wanted`, which may
 * have more items. An item missing in `wanted` is a failure. */
rg_verdict rg_compare_bits(const rg_results *got, const rg_results *wanted);
/* Floats may differ by `bound` times the larger of `floor` and the largest magnitude of the output.
 * Integers and non-finite values must be equal. */
rg_verdict rg_compare_close(const rg_results *got, const rg_results *wanted, double bound,
                            double floor);
/* As rg_compare_close, but an output may also differ by four times its largest change in `nudged`,
 * runs of the graph of `wanted` with slightly changed sources. */
rg_verdict rg_compare_nudged(const rg_results *got, const rg_results *wanted, double bound,
                             double floor, const rg_results *nudged, int runs);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * fold_case.h - tests one rule of the fold pass at a time: a graph, how often the rule fires in it,
 * and whether results and gradients stay the same. Include after cmocka.h.
 *
 * Exact rules must keep every bit, also with -0, infinities and NaN in the data. Other rules may
 * differ by TOLERANCE relative to the largest element. TOLERANCE is 512 roundoffs of f32 (2^-24),
 * for sums of up to a few hundred terms.
 */
#ifndef WEFT_TESTS_FOLD_CASE_H
#define WEFT_TESTS_FOLD_CASE_H

#include "graph/build.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define TOLERANCE 3e-5
#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef wf_value *build_fn(wf_graph *g);

typedef struct {
    const char *label, *rule;
    int times; /* how often the rule fires; 0: it must not */
    build_fn *build;
    bool odd;         /* also use -0, infinities and NaN */
    double tolerance; /* relative; 0: compare bits */
} fold_case;

/* Runs each case with and without folding and no other pass. Then compares the gradients of the sum
 * of squares with respect to all float sources, with and without folding before wf_grad. */
void fold_check(wf_ctx *ctx, const fold_case *cases, size_t n);
/* Runs the fold pass alone; `report` may be NULL. */
wf_status fold_run(wf_graph *g, wf_report *report);
int fold_count(const wf_graph *g, wf_op op);
/* Compile options that disable all passes. */
extern const wf_compile_options fold_plain;

/* ---- Helpers for building graphs ---- */

static inline wf_value *X(wf_graph *g)
{
    return wf_input(g, "x", WF_F32, 2, D(4, 6));
}
static inline wf_value *S(wf_graph *g)
{
    return wf_state(g, "s", WF_F32, 2, D(4, 6));
}
static inline wf_value *scalar(wf_graph *g, double value)
{
    return wf_fill(g, WF_F32, 0, NULL, value);
}
/* Adds a node that no rule matches, so that v has a reader. */
static inline wf_value *use(wf_graph *g, wf_value *v)
{
    return wf_sin(g, v);
}
/* Adds a node by name and attributes. The builder functions would leave out a node that does
 * nothing. */
static inline wf_value *op(wf_graph *g, const char *name, const char *attrs, wf_value *x)
{
    return wf_op_add(g, name, attrs, &x, 1);
}

#define BUILD(name, expr)              \
    static wf_value *name(wf_graph *g) \
    {                                  \
        return expr;                   \
    }

#endif

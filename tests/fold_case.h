/* SPDX-License-Identifier: MIT */
/*
 * fold_case.h - one rule of the fold pass at a time: a graph, whether the rule fires in it, and what
 * becomes of results and gradients. To be included after cmocka.h.
 *
 * Exact rules are held to every bit, with -0, infinities and NaN among the numbers; the rest to a
 * multiple of f32's roundoff (2^-24) relative to the largest element: TOLERANCE is 2^-24 * 512, for
 * sums of up to a few hundred terms.
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
    int times; /* it fires; 0: it must not */
    build_fn *build;
    bool odd;         /* numbers that are none, too */
    double tolerance; /* 0: bit for bit */
} fold_case;

/* Each case: folded and not, run without any other pass; then the gradient of the sum of squares by all
 * float sources, folded before it and not. */
void fold_check(wf_ctx *ctx, const fold_case *cases, size_t n);
/* The pass alone; `report` may be NULL. */
wf_status fold_run(wf_graph *g, wf_report *report);
int fold_count(const wf_graph *g, wf_op op);
/* What leaves all passes out. */
extern const wf_compile_options fold_plain;

/* ---- What graphs are written with ---- */

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
/* A node that is read and reads, and that no rule touches. */
static inline wf_value *use(wf_graph *g, wf_value *v)
{
    return wf_sin(g, v);
}
/* By name, with attributes: builders leave nodes out that do nothing. */
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

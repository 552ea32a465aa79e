/* SPDX-License-Identifier: MIT */
/*
 * pass_case.h - graphs around one op for tests of passes, with bounds for the error of their
 * results.
 *
 * The bare graph is a case of the selftest; the test reads its outputs. The rich graph puts the
 * op's first output y through an elementwise tail f(y) = y or y * sigmoid(y) into a loss,
 * sum(w * f(y)). Its outputs include the gradients with respect to w and to the op's operands, if
 * the op has gradients. Two updates read dw and the terms w * f(y). y and parts of the tail are
 * marked for recomputation, and y ends a block. The tail reads a state that is written before
 * wf_grad.
 *
 * Passes that keep bits are compared with a run without passes. Other passes are compared with the
 * float64 reference. The bounds, where u is the roundoff of f32:
 *
 *   y           b = wf_number_bound with the row's `forward`, as in the selftest. If there are
 *               values between the operands and y, adds their bound times pc_kind.lipschitz.
 *   dw, loss    |f'| b (f' <= 1.1), plus 16 u of the terms for the nodes of the tail.
 *   gradients   As in the selftest: the row's `gradient` times (terms + 0.02 of the largest term),
 *               in roundoffs of the narrowest type around the op. A narrow type adds 8 roundoffs
 *               of dy, |w f'| <= 1.1, for the cancellation in dy (1 - y^2); 1e-6 covers it in f32.
 *               f' is evaluated at a y with error b, and |f''| <= 0.5: sum |w| 0.5 b |dy/dx|.
 *   updates     accumulate: the bound of the added gradient, plus one rounding. adamw, at step 1000
 *               with v >= 0.1: 4 lr times the gradient's bound, plus 16 u of the parameter and the
 *               step.
 */
#ifndef WEFT_TESTS_PASS_CASE_H
#define WEFT_TESTS_PASS_CASE_H

#include "selftest/case.h"

typedef struct {
    wf_case_row row;
    double lipschitz; /* Lipschitz constant of y in the maximum norm; 0: no intermediate values */
    bool linear;      /* the tail must be f(y) = y */
    const char *bare; /* fuse pattern that must fire in the bare graph; NULL: not checked */
    const char *rich; /* the same for the rich graph */
} pc_kind;

typedef struct pc_case pc_case;

/* Returns a case that is ready to run: outputs are named, and c->read lists all results. */
wf_status pc_new(wf_ctx *ctx, const pc_kind *kind, int variant, wf_type type, uint64_t seed,
                 int views, bool rich, pc_case **out);
void pc_free(pc_case *p);
wf_case *pc_case_of(pc_case *p);

/* Compares the results in c->read with the reference. On false, `why` describes the first error.
 * *judged counts the results that were compared. */
bool pc_judge(pc_case *p, int *judged, double *worst, char *why, size_t cap);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * pass_case.h - graphs around one op for tests of passes, and how far their results may be off.
 *
 * Bare: a case of the selftest, whose outputs are read. Rich: the op's first output y goes through an
 * elementwise tail into a loss, sum(w * f(y)), with f(y) = y or y * sigmoid(y); gradients with respect to
 * w and, where the op has one, to its operands are outputs; two updates read dw and the terms. y and
 * parts of the tail are marked for recomputation, and y is the end of a block. A state that the tail
 * reads is written before the gradient is taken.
 *
 * Passes that keep bits are compared with a run without passes. Those that do not are held to the
 * float64 reference. Bounds, with u the roundoff of f32:
 *
 *   y           b = wf_number_bound with the row's `forward`, as in the selftest. Where the case has a
 *               value between its operands and y, its own such bound, times how strongly y moves with
 *               it, is added: pc_kind.lipschitz.
 *   dw, loss    |f'| b (f' <= 1.1), and 16 u of the terms for the few nodes of the tail
 *   gradients   as in the selftest, the row's `gradient` times (terms + 0.02 of the largest), where a
 *               roundoff is that of the narrowest type around the op; in a narrow one 8 roundoffs of
 *               dy, |w f'| <= 1.1, are added for what cancels in dy (1 - y^2), which 1e-6 covers in
 *               f32. f' is taken at a y that is off by b, and |f''| <= 0.5: sum |w| 0.5 b |dy/dx|.
 *   updates     accumulate: that of what is added, and one rounding. adamw, at step 1000 with v >= 0.1:
 *               4 lr of that of the gradient, and 16 u of the parameter and the step.
 */
#ifndef WEFT_TESTS_PASS_CASE_H
#define WEFT_TESTS_PASS_CASE_H

#include "selftest/case.h"

typedef struct {
    wf_case_row row;
    double lipschitz; /* of y in the largest norm; 0: nothing lies between operands and y */
    bool linear;      /* the tail must be f(y) = y */
    const char *bare; /* the fuse pattern that must fire in the bare graph; NULL: any or none */
    const char *rich; /* ... in the rich one */
} pc_kind;

typedef struct pc_case pc_case;

/* Ready to run: outputs are named and everything is in c->read. */
wf_status pc_new(wf_ctx *ctx, const pc_kind *kind, int variant, wf_type type, uint64_t seed,
                 int views, bool rich, pc_case **out);
void pc_free(pc_case *p);
wf_case *pc_case_of(pc_case *p);

/* Holds what is in c->read to the reference. false: `why` says what is wrong. *judged counts results
 * that were looked at. */
bool pc_judge(pc_case *p, int *judged, double *worst, char *why, size_t cap);

#endif

/* SPDX-License-Identifier: MIT */
/* number.h - elements of any type as doubles, and the bounds of comparisons. */
#ifndef WF_SELFTEST_NUMBER_H
#define WF_SELFTEST_NUMBER_H

#include "selftest/ref.h"

/* Rounds to the nearest value of the type: ties to even, integers saturate. Quantized types return
 * v unchanged, since rounding depends on the whole block. */
double wf_number_round(wf_type type, double v);
/* Plain types. */
void wf_numbers_store(wf_type type, const double *from, void *to, int64_t count);
double wf_number_load(wf_type type, const void *from, int64_t index);
/* The same for quantized blocks (number_block.c). A type without a definition there falls back to
 * the decoder of the devices, so comparisons of its elements prove nothing. */
double wf_number_of_block(wf_type type, const void *from, int64_t index);
/* Returns whether number_block.c defines the quantized type. */
bool wf_number_block_defined(wf_type type);
/* Returns a value that no kernel may read: NaN, or an integer that is not a valid index or
 * count. */
double wf_number_poison(wf_type type);

#define WF_ROUNDOFF_F32 0x1p-24

/* The worst element of a comparison. */
typedef struct {
    bool failed;
    double ratio; /* largest error / bound */
    int64_t index;
    double got, wanted, bound;
} wf_verdict;

/* Returns the allowed distance from the reference v, whose absolute terms sum to mag: c roundoffs
 * of f32 times mag, one rounding to the type, and the spacing of its smallest values. 0 for
 * integers and for mag 0: the result must equal the rounded reference. */
double wf_number_bound(wf_type type, double c, double v, double mag);
/* Compares elements of want's type with the reference. */
wf_verdict wf_compare(const void *got, const wf_ref *want, double c);

/* Compares one element of a gradient. `numeric` comes from central differences, `terms` is the sum
 * of the absolute contributions of all results, and `most` the largest such sum of the operand. */
wf_verdict wf_compare_gradient(double got, double numeric, double terms, double most, double c);

#endif

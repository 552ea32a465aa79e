/* SPDX-License-Identifier: MIT */
/* number.h - elements of any type as doubles, and how far apart two of them may be. */
#ifndef WF_SELFTEST_NUMBER_H
#define WF_SELFTEST_NUMBER_H

#include "selftest/ref.h"

/* The nearest number of the type: ties to even, integers saturate. Numbers of blocks stay: it takes
 * neighbours to round them. */
double wf_number_round(wf_type type, double v);
/* Plain types. */
void wf_numbers_store(wf_type type, const double *from, void *to, int64_t count);
double wf_number_load(wf_type type, const void *from, int64_t index);
/* The same for quantized blocks (number_block.c). */
double wf_number_of_block(wf_type type, const void *from, int64_t index);
/* A number that nothing may read: NaN, or an integer that is no sensible index or count. */
double wf_number_poison(wf_type type);

#define WF_ROUNDOFF_F32 0x1p-24

/* The worst element of a comparison. */
typedef struct {
    bool failed;
    double ratio; /* error / bound; of those that passed when none failed */
    int64_t index;
    double got, wanted, bound;
} wf_verdict;

/* How far a result may lie from the reference v, whose terms sum up to mag: c roundoffs of f32 on
 * these terms, one rounding to the type, and the spacing of its smallest numbers. Integers, and
 * elements whose mag is 0, have to be the rounded reference itself: bound 0. */
double wf_number_bound(wf_type type, double c, double v, double mag);
/* Compares elements of want's type with the reference. */
wf_verdict wf_compare(const void *got, const wf_ref *want, double c);

/* One element of a gradient: `numeric` was found by central differences, `terms` is the sum of the
 * absolute contributions of all results to it, and `most` the largest such sum of the operand. */
wf_verdict wf_compare_gradient(double got, double numeric, double terms, double most, double c);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * ref_elementwise.h - between which bounds the operands of an elementwise op are drawn in tests.
 * With the rows of ref_elementwise.c a new elementwise op is tested without another line.
 */
#ifndef WF_SELFTEST_REF_ELEMENTWISE_H
#define WF_SELFTEST_REF_ELEMENTWISE_H

#include "graph/op.h"

/* false when the op has no row of its kind. */
bool wf_ref_unary_domain(wf_op op, double *lo, double *hi);
bool wf_ref_binary_domain(wf_op op, double *a_lo, double *a_hi, double *b_lo, double *b_hi);

#endif

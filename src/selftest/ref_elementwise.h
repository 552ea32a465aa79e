/* SPDX-License-Identifier: MIT */
/* ref_elementwise.h - the intervals from which tests draw the operands of elementwise ops. */
#ifndef WF_SELFTEST_REF_ELEMENTWISE_H
#define WF_SELFTEST_REF_ELEMENTWISE_H

#include "graph/op.h"

typedef struct {
    double low, high;
} wf_ref_range;

/* Of operand 0 or 1 of a unary or binary op, from the row in ops.def. */
wf_ref_range wf_ref_operand_range(wf_op op, int operand);

#endif

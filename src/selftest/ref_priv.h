/* SPDX-License-Identifier: MIT */
/*
 * ref_priv.h - shared by the files of the reference: the call, and indices into dense arrays.
 *
 * Every row of ops.def that is not elementwise has a function here, declared from ops.def, so an op
 * without a reference does not link. The elementwise rows are in the two tables of
 * ref_elementwise.c.
 *
 * How to choose mag: take the plain f32 computation of the op from exact inputs and count its error
 * in roundoffs. A sum loses the sum of its absolute terms; a multiplication or a library function
 * loses its own absolute value; the error of an argument is multiplied by the slope. The harness
 * adds constant factors. mag 0 means that the result is exact except for the rounding to its type.
 */
#ifndef WF_SELFTEST_REF_PRIV_H
#define WF_SELFTEST_REF_PRIV_H

#include <math.h>

#include "base/mem.h"
#include "selftest/ref.h"

typedef struct {
    wf_ctx *ctx;
    const wf_node *node;
    const void *attr; /* node->attr */
    int nin, nout;
    const wf_ref *in;
    wf_ref *out;
} wf_ref_call;

typedef wf_status wf_ref_fn(const wf_ref_call *c);

wf_ref_fn wf_ref_unary, wf_ref_binary;
#define WF_UNARY(name, ...)
#define WF_BINARY(name, ...)
#define WF_OP(name, ...) wf_ref_fn wf_ref_##name;
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP

/* Convert between the dense index e and the multi-index. The shape must not be empty. */
void wf_ref_unravel(const wf_dims *shape, int64_t e, int64_t index[WF_MAX_RANK]);
int64_t wf_ref_ravel(const wf_dims *shape, const int64_t *index);
/* Returns the element of `from` that broadcasts to element `index` of a value with `to_rank`
 * axes. */
int64_t wf_ref_repeated(const wf_dims *from, const int64_t *index, int64_t to_rank);

/* Fails unless 0 <= value < limit: "embed: id 7 lies outside [0, 5)". */
wf_status wf_ref_check(const wf_ref_call *c, const char *what, int64_t value, int64_t limit);

/* Returns x modulo 2^32 as an i32. */
double wf_ref_wrap(int64_t x);
/* Truncates x toward zero and saturates to the type; NaN becomes 0. */
double wf_ref_to_int(wf_type type, double x);
bool wf_ref_is_int(wf_type type);

/* Returns the mag of reading element x: 0 for plain types; quantized values lose a roundoff or two
 * in their scales. */
double wf_ref_read_mag(wf_type type, double x);

/* y = cap tanh(x / cap), or x if cap is 0, and its slope, each with its mag for an x of mag
 * x_mag. */
typedef struct {
    double y, mag, slope, slope_mag;
} wf_ref_cap;
wf_ref_cap wf_ref_cap_at(double x, double x_mag, double cap);

/* An activation of x and its slope, each with its mag. */
typedef struct {
    double y, mag, slope, slope_mag;
} wf_ref_act;
wf_ref_act wf_ref_activate(wf_op op, double x);

/* Returns value e of the random stream: in [0, 1), a multiple of 2^-24. */
double wf_ref_random(const wf_ref *key, int64_t stream, int64_t e);

/* Adds the rows of x [..., C] to sums [C]. Devices may add the stored values, rounded to x's type,
 * or the values before rounding. */
void wf_ref_add_rows(const wf_ref *x, wf_ref *sums);

/* Returns element i of an integer operand. */
static inline int64_t wf_ref_int(const wf_ref *r, int64_t i)
{
    return (int64_t)r->v[i];
}

static inline void wf_ref_set(wf_ref *r, int64_t i, double v, double mag)
{
    r->v[i] = v;
    r->mag[i] = mag;
}

#endif

/* SPDX-License-Identifier: MIT */
/*
 * ref_priv.h - what the files of the reference share: the call, and indices into dense arrays.
 *
 * Every row of ops.def that is not an elementwise one has its function here, declared from ops.def
 * itself, so that an op without a reference does not link. The elementwise rows stand in the two
 * tables of ref_elementwise.c.
 *
 * How mag is chosen. Take the plainest f32 computation of the op from exact inputs, and count in
 * units of the roundoff how far its result may be off: a sum loses the sum of its absolute terms, a
 * product or a good library function its own absolute value, and what an argument has lost passes
 * through the slope. Constant factors are left to the harness. 0 says that the result is exact but
 * for the rounding to its type.
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

/* The multi-index of dense element e, and back. A zero-size shape has no element to ask about. */
void wf_ref_unravel(const wf_dims *shape, int64_t e, int64_t index[WF_MAX_RANK]);
int64_t wf_ref_ravel(const wf_dims *shape, const int64_t *index);
/* The element of `from` that element `index` of a value of `to_rank` axes is a repetition of. */
int64_t wf_ref_repeated(const wf_dims *from, const int64_t *index, int64_t to_rank);

/* Fails unless 0 <= value < limit: "embed: id 7 lies outside [0, 5)". */
wf_status wf_ref_check(const wf_ref_call *c, const char *what, int64_t value, int64_t limit);

/* x modulo 2^32, as an i32. */
double wf_ref_wrap(int64_t x);
/* x to the nearest integer toward zero that the type has; NaN is 0. */
double wf_ref_to_int(wf_type type, double x);
bool wf_ref_is_int(wf_type type);

/* What reading x, an element of this type, may lose. Plain numbers are exact; those of quantized
 * blocks are made from a scale or two on the way. */
double wf_ref_read_mag(wf_type type, double x);

/* y = cap tanh(x / cap), or x where cap is 0, with what it has lost when x has lost x_mag; and its
 * slope, the same way. */
typedef struct {
    double y, mag, slope, slope_mag;
} wf_ref_cap;
wf_ref_cap wf_ref_cap_at(double x, double x_mag, double cap);

/* An activation of x and its slope there, each with its mag. */
typedef struct {
    double y, mag, slope, slope_mag;
} wf_ref_act;
wf_ref_act wf_ref_activate(wf_op op, double x);

/* Number e of the random stream: in [0, 1), on a grid of 2^-24. */
double wf_ref_random(const wf_ref *key, int64_t stream, int64_t e);

/* Adds the rows of x [..., C] to sums [C]. Devices may add up what they store, each number rounded to x's type, or
 * what it was before. */
void wf_ref_add_rows(const wf_ref *x, wf_ref *sums);

/* An integer operand's element. */
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

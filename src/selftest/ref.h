/* SPDX-License-Identifier: MIT */
/*
 * ref.h - the float64 reference of every op, written from its definition. Kernels of every device
 * are compared with it, so it shares no code with them.
 */
#ifndef WF_SELFTEST_REF_H
#define WF_SELFTEST_REF_H

#include "graph/graph.h"

typedef struct {
    wf_type type;
    wf_dims shape;
    double *v;   /* values, dense; integers are exact */
    double *mag; /* per element: the sum of the absolute terms, times their amplification. An f32
                    result is correct if its error is at most a small multiple of the roundoff
                    times mag */
} wf_ref;

/* Computes node n. out[] have type, shape and zeroed v and mag; in[] have no mag. Fails with
 * WF_ERR_UNSUPPORTED when the op has no reference, WF_ERR_DEVICE for data out of range. */
wf_status wf_ref_run(wf_ctx *ctx, const wf_node *n, const wf_ref *in, wf_ref *out);

#endif

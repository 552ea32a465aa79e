/* SPDX-License-Identifier: MIT */
/*
 * ref.h - every op once more, in float64, written from its definition and from nothing else. This
 * is what kernels of every device are measured against, so it shares no code with any of them.
 */
#ifndef WF_SELFTEST_REF_H
#define WF_SELFTEST_REF_H

#include "graph/graph.h"

typedef struct {
    wf_type type;
    wf_dims shape;
    double *v;   /* the numbers, dense; integers are exact */
    double *mag; /* per element: the sum of the absolute values of the terms that were added up to
                    get it, times how strongly they are amplified: an f32 computation is right when
                    its error is within a small multiple of the roundoff times this */
} wf_ref;

/* Computes node n. out[] have type, shape and zeroed v and mag; in[] have no mag. Fails with
 * WF_ERR_UNSUPPORTED when the op has no reference, WF_ERR_DEVICE for data out of range. */
wf_status wf_ref_run(wf_ctx *ctx, const wf_node *n, const wf_ref *in, wf_ref *out);

#endif

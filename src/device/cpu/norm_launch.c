/* SPDX-License-Identifier: MIT */
/* norm_launch.c - maps the operands and outputs of each norm op to a wf_norm, and runs it. */
#include "base/thread.h"
#include "device/cpu/norm.h"
#include "device/cpu/reduce.h"
#include "device/walk.h"

static const wf_view *input(const wf_launch *l, int i)
{
    return i < l->nin ? &l->in[i] : NULL;
}

static const wf_view *output(const wf_launch *l, int i)
{
    return i < l->nout && l->out[i].data ? &l->out[i] : NULL;
}

/* (x, gamma?, beta?) -> y, mean if centered, rstd. With a residual: (x, residual, gamma?, beta?) ->
 * sum, then the same outputs. */
static wf_status forward(const wf_launch *l, const wf_norm_rows *with, bool centered, bool residual)
{
    int first = residual ? 1 : 0;
    wf_norm o = {.l = l,
                 .eps = ((const wf_attr_norm *)l->attr)->eps,
                 .centered = centered,
                 .x = &l->in[0],
                 .residual = residual ? &l->in[1] : NULL,
                 .gamma = input(l, first + 1),
                 .beta = centered ? input(l, first + 2) : NULL,
                 .total = residual ? output(l, 0) : NULL,
                 .y = output(l, first),
                 .mean = centered ? output(l, first + 1) : NULL,
                 .rstd = output(l, first + (centered ? 2 : 1)),
                 .rows = wf_view_rows(&l->in[0]),
                 .length = wf_view_last(&l->in[0])};
    wf_parallel_for(l->threads, o.rows, wf_grain(o.length), with->forward, &o);
    return WF_OK;
}

/* (dy, x, mean if centered, rstd, gamma?) -> dx, dgamma, dbeta if centered. With a residual, dsum
 * comes before gamma, and the sum of dx's rows is the last output. */
static wf_status backward(const wf_launch *l, const wf_norm_rows *with, bool centered,
                          bool residual)
{
    int next = centered ? 4 : 3; /* the operand after rstd */
    wf_norm o = {.l = l,
                 .centered = centered,
                 .dy = &l->in[0],
                 .x = &l->in[1],
                 .mean = centered ? &l->in[2] : NULL,
                 .rstd = &l->in[next - 1],
                 .residual = residual ? &l->in[next] : NULL,
                 .gamma = input(l, residual ? next + 1 : next),
                 .dx = output(l, 0),
                 .dgamma = output(l, 1),
                 .dbeta = centered ? output(l, 2) : NULL,
                 .rows = wf_view_rows(&l->in[1]),
                 .length = wf_view_last(&l->in[1])};
    with->backward(&o);
    const wf_view *sums = residual ? output(l, l->nout - 1) : NULL;
    if (sums) {
        const wf_view dx = wf_flat_rows(o.dx);
        with->sum_rows(l, &dx, sums);
    }
    return WF_OK;
}

wf_status wf_norm_launch(const wf_launch *l, const wf_norm_rows *with)
{
    switch (l->node->op) {
    case WF_OP_layer_norm: return forward(l, with, true, false);
    case WF_OP_rms_norm: return forward(l, with, false, false);
    case WF_OP_residual_layer_norm: return forward(l, with, true, true);
    case WF_OP_residual_rms_norm: return forward(l, with, false, true);
    case WF_OP_layer_norm_grad: return backward(l, with, true, false);
    case WF_OP_rms_norm_grad: return backward(l, with, false, false);
    case WF_OP_residual_layer_norm_grad: return backward(l, with, true, true);
    case WF_OP_residual_rms_norm_grad: return backward(l, with, false, true);
    default:
        return wf_fail(l->ctx, WF_ERR_INTERNAL, "%s is not a norm", wf_node_def(l->node)->name);
    }
}

/* SPDX-License-Identifier: MIT */
/* loss.h - cross entropy of one row of logits, for cross_entropy and head_loss. */
#ifndef WF_DEVICE_CPU_LOSS_H
#define WF_DEVICE_CPU_LOSS_H

#include "device/cpu/row.h"

/* Rows of logits [V] with one target each. */
typedef struct {
    const wf_attr_cross_entropy *attr;
    const wf_view *targets; /* i32 */
    int64_t rows, classes;
} wf_loss;

/* Address of element i of a value that has one element per row of logits. */
static inline void *wf_loss_at(const wf_view *v, int64_t i)
{
    int64_t last = wf_view_last(v);
    return wf_view_at(v, wf_view_row(v, i / last) + i % last);
}

static inline int64_t wf_loss_target(const wf_loss *o, int64_t i)
{
    return *(const int32_t *)wf_loss_at(o->targets, i);
}

/* Fails unless every target is a class or ignored. */
wf_status wf_loss_check(const wf_loss *o, const wf_launch *l);

/* Returns row r of the logits, capped. Valid until buf (V floats) or the logits change. */
const float *wf_loss_read(const wf_loss *o, const wf_view *logits, int64_t r, float *buf);
/* Computes row i's loss and log-sum-exp from its capped logits z, stores those that have memory,
 * and returns the log-sum-exp. */
float wf_loss_row(const wf_loss *o, int64_t i, const float *z, const wf_view *loss,
                  const wf_view *lse);
/* dz: the gradient of row i with respect to the uncapped logits. May alias z; z is not read if the
 * target is ignored. */
void wf_loss_row_grad(const wf_loss *o, int64_t i, const float *z, float dloss, float lse,
                      float *dz);

#endif

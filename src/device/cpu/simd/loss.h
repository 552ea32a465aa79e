/* SPDX-License-Identifier: MIT */
/* loss.h - vectorized cross entropy of one row of uncapped logits; see device/cpu/loss.h. */
#ifndef WF_DEVICE_CPU_SIMD_LOSS_H
#define WF_DEVICE_CPU_SIMD_LOSS_H

#include "device/cpu/loss.h"
#include "device/cpu/simd/simd.h"

/* Computes row i's loss and log-sum-exp from its logits z, stores those that have memory, and
 * returns the log-sum-exp. */
float WF_SIMD(wf_loss_row)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                           const wf_view *loss, const wf_view *lse);
/* dz: the gradient of row i with respect to z, of the same type. May alias z. */
void WF_SIMD(wf_loss_row_grad)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                               float dloss, float lse, void *dz);

#endif

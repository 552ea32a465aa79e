/* SPDX-License-Identifier: MIT */
/* loss.h - cross entropy of one row of logits that have no softcap: the fast forms of device/cpu/loss.h. */
#ifndef WF_DEVICE_CPU_SIMD_LOSS_H
#define WF_DEVICE_CPU_SIMD_LOSS_H

#include "device/cpu/loss.h"
#include "device/cpu/simd/simd.h"

/* Stores the loss and the log-sum-exp of row i, with z its logits, in those of the two values that have
 * memory. Returns the log-sum-exp. */
float WF_SIMD(wf_loss_row)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                           const wf_view *loss, const wf_view *lse);
/* dz: the gradient of row i with respect to z, of the same type. May be z itself. */
void WF_SIMD(wf_loss_row_grad)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                               float dloss, float lse, void *dz);

#endif

/* SPDX-License-Identifier: MIT */
/* expand.h - expands ops that a device has no kernel for into core ops. */
#ifndef WF_DEVICE_EXPAND_H
#define WF_DEVICE_EXPAND_H

#include "device/device.h"
#include "graph/pass/pass.h"

/* Returns whether the device runs every node of g as it is. Core ops always count as supported. */
bool wf_device_runs_all(const wf_device *device, const wf_graph *g);
/* Copies g and expands every node that the device does not run as it is. Adds what that costs to
 * counts[WF_OP_COUNT], which may be NULL. The caller frees *out. */
wf_status wf_device_expand(const wf_device *device, wf_graph *g, wf_expansion *counts,
                           wf_graph **out);
/* Runs the passes of a kernel device over *g and expands what is left without a kernel. Replaces *g
 * when it expands; the caller owns *g in any case. `report` and `counts` may be NULL. */
wf_status wf_device_passes(wf_device *device, const wf_compile_options *options, wf_report *report,
                           wf_expansion *counts, wf_graph **g);

#endif

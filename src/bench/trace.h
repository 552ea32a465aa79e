/* SPDX-License-Identifier: MIT */
/* trace.h - writes the timeline of a run for Perfetto and chrome://tracing. */
#ifndef WF_BENCH_TRACE_H
#define WF_BENCH_TRACE_H

#include "device/device.h"

/* Writes the last run of an executable. wf_device.timed must have been set. WF_ERR_UNSUPPORTED on
 * devices that compile whole graphs, which have no steps. */
wf_status wf_bench_trace_write(const wf_exec *exec, const char *path);

#endif

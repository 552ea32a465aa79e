/* SPDX-License-Identifier: MIT */
/* trace.h - when each step of a run began and ended, as a file that Perfetto and chrome://tracing open. */
#ifndef WF_BENCH_TRACE_H
#define WF_BENCH_TRACE_H

#include "device/device.h"

/* Of the last run of an executable, on a device that was asked to tell times (wf_device.timed). Devices
 * that run whole programs have no steps: WF_ERR_UNSUPPORTED. */
wf_status wf_bench_trace_write(const wf_exec *exec, const char *path);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * choose.h - chooses the device for a piece of work: measures each device, asks the caller for a
 * forecast, and picks the fastest device with enough memory.
 */
#ifndef WF_DEVICE_CHOOSE_H
#define WF_DEVICE_CHOOSE_H

#include "device/device.h"
#include "graph/cost.h"

/* Measures the device with all its threads: its own `peak` over `bytes` of memory, then bf16
 * matmuls run as a graph. Takes about a second. *out is all zeros if the device has no `peak`. */
wf_status wf_device_measure(wf_device *device, size_t bytes, wf_device_peak *out);
/* Measures only the arithmetic of matmuls with operands of `type`, in a fraction of that time. Sets
 * *out to FLOP/s; 0 if the device has no `peak`. */
wf_status wf_device_measure_flops(wf_device *device, wf_type type, double *out);

/* Returns the seconds for work of this cost: memory traffic or arithmetic, whichever takes longer,
 * and at least one launch. `type` is the type of the matmuls. Returns 0 if the peak is unknown. */
double wf_peak_seconds(const wf_device_peak *peak, wf_type type, const wf_cost *cost);
/* Sums wf_peak_seconds over the nodes of g. Run the passes first: fused nodes cost less. */
double wf_peak_graph_seconds(const wf_device_peak *peak, const wf_graph *g);

/* Estimate of the work on one device. */
typedef struct {
    double seconds; /* 0: unknown */
    size_t bytes;   /* device memory it needs */
} wf_forecast;
typedef wf_status wf_forecast_fn(void *user, wf_device *device, const wf_device_peak *peak,
                                 wf_forecast *out);

typedef struct {
    const char *kind;
    wf_device *device; /* NULL: rejected, for the reason in `why` */
    char why[512];
    wf_device_peak peak;
    wf_forecast forecast;
    size_t available; /* bytes free on the device; 0: unknown */
} wf_candidate;

#define WF_MAX_CANDIDATES 8
typedef struct {
    wf_candidate all[WF_MAX_CANDIDATES];
    int count;
    int best; /* index in `all`; -1: no device can run the work */
} wf_candidates;

/* Evaluates every kind of device with ops->automatic. A device that cannot be opened is skipped;
 * the call fails only if no device can run the work. `fast` admits nondeterministic kernels. All
 * usable devices stay open: end with wf_candidates_take or wf_candidates_close, also after a
 * failure. */
wf_status wf_devices_compare(wf_ctx *ctx, wf_forecast_fn *forecast, void *user, bool fast,
                             wf_candidates *out);
/* Closes all devices but the best and returns that one; the caller closes it. NULL if `best` is
 * -1. */
wf_device *wf_candidates_take(wf_candidates *c);
void wf_candidates_close(wf_candidates *c);

#endif

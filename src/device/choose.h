/* SPDX-License-Identifier: MIT */
/*
 * choose.h - which device for a piece of work: measures what each gives, asks how long the work would take there, and takes the
 * quickest in which it fits.
 */
#ifndef WF_DEVICE_CHOOSE_H
#define WF_DEVICE_CHOOSE_H

#include "device/device.h"
#include "graph/cost.h"

/* What the device gives, with all of its threads: its own figures, and products of bf16, which run as a graph. All 0 where
 * the device has no figures. Takes a second or so. */
wf_status wf_device_measure(wf_device *device, size_t bytes, wf_device_peak *out);

/* Seconds for nodes of this cost: memory or arithmetic, whichever takes longer, and at least a launch. `type` is that of the
 * products. 0 where the peak is not known. */
double wf_peak_seconds(const wf_device_peak *peak, wf_type type, const wf_cost *cost);
/* Over all kernels of a graph that has been through the passes. */
double wf_peak_graph_seconds(const wf_device_peak *peak, const wf_graph *g);

/* How the work would do on a device. */
typedef struct {
    double seconds; /* 0: not known */
    size_t bytes;   /* that it takes there */
} wf_forecast;
typedef wf_status wf_forecast_fn(void *user, wf_device *device, const wf_device_peak *peak,
                                 wf_forecast *out);

typedef struct {
    const char *kind;
    wf_device *device; /* NULL: it could not be opened, or the work cannot be done there */
    char why[512];     /* not */
    wf_device_peak peak;
    wf_forecast forecast;
    size_t available; /* bytes; 0: not known */
} wf_candidate;

#define WF_MAX_CANDIDATES 8
typedef struct {
    wf_candidate all[WF_MAX_CANDIDATES];
    int count;
    int best; /* -1: none */
} wf_candidates;

/* Of the kinds that may be chosen without being named. What cannot be opened is no failure; that no device can do the
 * work is. All devices stay open. */
wf_status wf_devices_compare(wf_ctx *ctx, wf_forecast_fn *forecast, void *user, bool fast,
                             wf_candidates *out);
/* Closes all but the best and gives that. */
wf_device *wf_candidates_take(wf_candidates *c);
void wf_candidates_close(wf_candidates *c);

#endif

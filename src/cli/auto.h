/* SPDX-License-Identifier: MIT */
/*
 * auto.h - --device auto: chooses the fastest device for the work, and explains the choice.
 *
 * Each kind of work supplies a forecast: planned memory, and seconds from the measured peak of a
 * device. Devices are opened, measured and planned for; nothing is run.
 */
#ifndef WF_CLI_AUTO_H
#define WF_CLI_AUTO_H

#include "cli/cli.h"
#include "device/choose.h"
#include "train/setup.h"

/* The work: a forecast for a device, and the unit of its seconds. */
typedef struct {
    wf_forecast_fn *forecast;
    void *user;
    const char *unit; /* "step", for "ms per step" */
} wf_auto_work;

typedef struct {
    wf_graph *graph; /* borrowed */
    const wf_compile_options *options;
} wf_auto_graph;

typedef struct {
    const wf_model *model;
    const wf_engine_options *options;
    double bytes; /* of the weights; a token reads all of them */
} wf_auto_model;

wf_auto_work wf_auto_training(wf_setup *setup);
wf_auto_work wf_auto_running(wf_auto_model *model);
wf_auto_work wf_auto_planning(wf_auto_graph *graph);

/* Opens the device `name` or, for "auto", the best device for the work. Work NULL: refuses "auto".
 * Prints the choice on stderr unless quiet. */
wf_status wf_auto_open(wf_ctx *ctx, const char *name, const wf_auto_work *work, bool fast,
                       bool quiet, wf_device **out);
/* Prints the devices that were compared on stdout; nothing if none were. */
void wf_auto_explain(void);

#endif

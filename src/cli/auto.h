/* SPDX-License-Identifier: MIT */
/* auto.h - --device auto: the quickest device for the work at hand, and why. */
#ifndef WF_CLI_AUTO_H
#define WF_CLI_AUTO_H

#include "cli/cli.h"
#include "device/choose.h"
#include "train/setup.h"

/* The work: how a device would do it, and what its seconds are of. */
typedef struct {
    wf_forecast_fn *forecast;
    void *user;
    const char *unit; /* "a step" */
} wf_auto_work;

typedef struct {
    wf_graph *graph;
    const wf_compile_options *options;
} wf_auto_graph;

typedef struct {
    const wf_model *model;
    const wf_generator_options *options;
    double bytes; /* of weights, each of which a token reads */
} wf_auto_model;

wf_auto_work wf_auto_training(wf_setup *setup);
wf_auto_work wf_auto_running(wf_auto_model *model);
wf_auto_work wf_auto_planning(wf_auto_graph *graph);

/* Opens the device `name`, or with "auto" the best for the work. NULL: there is none by which to choose, and "auto" is
 * refused. Says on stderr what was chosen unless quiet; wf_auto_explain has the reasons. */
wf_status wf_auto_open(wf_ctx *ctx, const char *name, const wf_auto_work *work, bool fast,
                       bool quiet, wf_device **out);
/* A table of the devices that were compared, on stdout; nothing when none were. */
void wf_auto_explain(void);

#endif

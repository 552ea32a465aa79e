/* SPDX-License-Identifier: MIT */
/*
 * auto.c - see auto.h.
 *
 * A forecast is what one unit of the work (a step, a token, a run) needs at least on a device:
 * seconds from its measured peak, and bytes from the plan. The fastest device on which the work
 * fits is chosen.
 */
#include "cli/auto.h"

#include <string.h>

#include "cli/plan.h"
#include "infer/engine.h"
#include "train/fit.h"

/* The last comparison, for wf_auto_explain. Its device pointers are not valid. */
static wf_candidates compared;
static const char *compared_unit;

/* ---- Forecasts ---- */

static wf_status forecast_training(void *user, wf_device *device, const wf_device_peak *peak,
                                   wf_forecast *out)
{
    wf_setup_plan plan;
    WF_TRY(wf_setup_plan_memory(user, device, peak, &plan));
    *out = (wf_forecast){plan.seconds, plan.total};
    return WF_OK;
}

/* Decode reads every weight once per token, so memory bandwidth bounds it. */
static wf_status forecast_running(void *user, wf_device *device, const wf_device_peak *peak,
                                  wf_forecast *out)
{
    const wf_auto_model *m = user;
    wf_memory memory;
    WF_TRY(wf_engine_plan(device, m->model, m->options, &memory));
    *out = (wf_forecast){peak->read > 0 ? m->bytes / peak->read : 0,
                         memory.states + memory.activations + memory.ports};
    return WF_OK;
}

static wf_status forecast_graph(void *user, wf_device *device, const wf_device_peak *peak,
                                wf_forecast *out)
{
    const wf_auto_graph *g = user;
    wf_plan *plan;
    WF_TRY(wf_plan_new(device, g->graph, g->options, NULL, NULL, &plan));
    const wf_memory *m = &plan->memory;
    *out = (wf_forecast){wf_peak_graph_seconds(peak, plan->graph),
                         m->states + m->activations + m->ports};
    wf_plan_free(plan);
    return WF_OK;
}

wf_auto_work wf_auto_training(wf_setup *setup)
{
    return (wf_auto_work){forecast_training, setup, "step"};
}

wf_auto_work wf_auto_running(wf_auto_model *model)
{
    return (wf_auto_work){forecast_running, model, "token"};
}

wf_auto_work wf_auto_planning(wf_auto_graph *graph)
{
    return (wf_auto_work){forecast_graph, graph, "run"};
}

/* ---- Choosing ---- */

static void say(const wf_candidate *c)
{
    fprintf(stderr, "device auto: %s, at least %.3g ms per %s\n", c->kind,
            c->forecast.seconds * 1e3, compared_unit);
}

wf_status wf_auto_open(wf_ctx *ctx, const char *name, const wf_auto_work *work, bool fast,
                       bool quiet, wf_device **out)
{
    *out = NULL;
    compared.count = 0;
    if (strcmp(name, "auto") != 0) {
        WF_TRY(wf_device_open(ctx, name, out));
        wf_device_allow_nondeterministic(*out, fast);
        return WF_OK;
    }
    if (!work)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "--device auto needs a model or a graph to compare devices; name a device");
    wf_candidates found;
    wf_status status = wf_devices_compare(ctx, work->forecast, work->user, fast, &found);
    compared = found;
    compared_unit = work->unit;
    if (status == WF_OK && !quiet)
        say(&found.all[found.best]);
    /* Closes all devices but the best, so the pointers in `compared` are stale from here on. */
    *out = wf_candidates_take(&found);
    return status;
}

void wf_auto_explain(void)
{
    if (compared.count == 0)
        return;
    printf("\ndevice auto: measured peak of each device, and the predicted time of a %s:\n",
           compared_unit);
    printf("  %-8s %11s %15s %15s %12s %12s\n", "device", "copy GB/s", "f32 GFLOP/s",
           "bf16 GFLOP/s", "memory", "ms");
    for (int i = 0; i < compared.count; i++) {
        const wf_candidate *c = &compared.all[i];
        char bytes[32];
        if (c->forecast.seconds > 0)
            printf("  %-8s %11.1f %15.1f %15.1f %12s %12.3g%s\n", c->kind, c->peak.copy / 1e9,
                   c->peak.flops / 1e9, c->peak.narrow / 1e9,
                   wf_plan_bytes(c->forecast.bytes, bytes, sizeof bytes), c->forecast.seconds * 1e3,
                   i == compared.best ? "  <- chosen" : "");
        if (c->why[0])
            printf("  %-8s not usable: %s\n", c->kind, c->why);
    }
}

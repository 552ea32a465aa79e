/* SPDX-License-Identifier: MIT */
/* plan.h - the results of `weft plan`, which are printed as text, JSON or a drawing. */
#ifndef WF_CLI_PLAN_H
#define WF_CLI_PLAN_H

#include "cli/cli.h"
#include "device/plan.h"
#include "graph/cost.h"

/* Use of a block of the region. */
typedef enum {
    WF_USE_FORWARD,  /* values of the forward pass */
    WF_USE_BACKWARD, /* gradients, and values recomputed for them */
    WF_USE_WORKSPACE,
    WF_USE_COUNT
} wf_use_kind;

typedef struct {
    const char *name, *color; /* of the legend; color as in SVG */
} wf_use_info;
extern const wf_use_info wf_use_infos[WF_USE_COUNT];

typedef struct {
    const char *title; /* of the graph */
    const wf_plan *plan;
    const wf_report *report;
    const wf_device *device;
    wf_cost cost;   /* of one run */
    size_t written; /* bytes of states that a run changes */
    int nodes;      /* in the graph before the passes */
    double seconds; /* planning time */
    /* [step][kind]: live bytes. */
    uint64_t (*alive)[WF_USE_COUNT];
    int busiest; /* the step with the most live bytes */
} wf_plan_view;

wf_use_kind wf_plan_use(const wf_plan *plan, int block);
/* "1.23 GB" */
const char *wf_plan_bytes(uint64_t bytes, char *buf, size_t cap);
/* Prints a line of the memory table. */
void wf_plan_line(const char *what, uint64_t bytes, const char *remark);

void wf_plan_print(const wf_plan_view *v);
void wf_plan_explain(const wf_plan_view *v);
void wf_plan_json(const wf_plan_view *v);
/* Draws memory over time, and every block of the region at its offset. */
wf_status wf_plan_svg(wf_ctx *ctx, const wf_plan_view *v, const char *path);

/* Prints which quantized types of a model run slower on this device, or as f32. A NULL device
 * stands for one that has all kernels of Weft's own. */
struct wf_model;
void wf_plan_note_types(const struct wf_model *m, const wf_device *device);

/* Returns the types of a model's weights that only the generic kernels multiply by. The set is
 * empty for a device that decodes quantized weights when it loads them. */
wf_type_set wf_plan_generic(const struct wf_model *m, const wf_device *device);
/* Prints a note for each type of the set, or writes the set as the list "generic_types". */
void wf_plan_note_generic(wf_type_set types);
void wf_plan_put_generic(wf_json *j, wf_type_set types);

/* ---- Whole setups ---- */

/* weft plan --train: plans a run with these options. A vocabulary <= 0 is unknown. */
wf_status wf_plan_train(wf_ctx *ctx, const wf_run_options *options, int64_t vocab, bool json,
                        bool explain);

typedef struct {
    int64_t context;     /* tokens; 0: the model's maximum; -1: at most 4096 */
    int64_t sequences;   /* -1: one */
    int64_t cache;       /* tokens of the KV cache; -1: the context of every sequence */
    const char *kv;      /* type of the KV cache; NULL: the default */
    const char *compute; /* auto or f32; NULL: the default */
    size_t memory;       /* limit in bytes; 0: the free memory of the device */
    bool serve;          /* an engine for many requests: also print its pools */
    bool fit;            /* choose what is not given, so that it fits */
} wf_plan_run_options;
wf_status wf_plan_run(wf_ctx *ctx, const char *model, const wf_plan_run_options *options,
                      bool json);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * fit.h - what a setup will take, before anything is allocated, and what would take less.
 *
 * Figures are exact to the byte for what Weft allocates on the device: states, one region for activations,
 * and the inputs and outputs of every graph. Time is predicted from the arithmetic and the bytes of every
 * kernel and the device's measured rates.
 */
#ifndef WF_TRAIN_FIT_H
#define WF_TRAIN_FIT_H

#include "device/device.h"
#include "train/setup.h"

typedef struct {
    wf_memory memory; /* of all graphs: one region, ports added up */
    size_t total;     /* states, region and ports */
    size_t weights, gradients, moments, averages, others; /* that the states are */
    double flops, bytes;                                  /* of a step */
    double seconds; /* of a step; 0: the device's rates are not known */
} wf_setup_plan;

/* `peak` may be NULL: no time is predicted. */
wf_status wf_setup_plan_memory(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                               wf_setup_plan *out);

/* Another way to make the same steps, or nearly so. */
typedef struct {
    int64_t batch, accumulate, recompute;
    wf_type compute;
    int64_t lora;
    wf_setup_plan plan;
    bool fits;
} wf_choice;
#define WF_MAX_CHOICES 24

/* All that are worth thinking of, planned, those with less memory later. `limit` in bytes. Adapters are thought of where the
 * setup starts from a model and has none. */
wf_status wf_fit_choices(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                         size_t limit, wf_choice *out, int *count);
/* The setup's own where that fits, else the quickest that does and makes the same steps up to rounding: same tokens, all
 * weights, same compute type. NULL: none does. */
const wf_choice *wf_fit_best(const wf_setup *s, const wf_choice *choice, int count);
void wf_fit_apply(wf_setup *s, const wf_choice *choice);
/* "--batch 2 --accumulate 4 --recompute 1" */
const char *wf_fit_words(const wf_choice *choice, char *buf, size_t cap);

/* WF_ERR_MEMORY, with what would fit, when the setup takes more than `limit` bytes (0: no limit). */
wf_status wf_setup_refuse(const wf_setup *s, wf_device *device, size_t limit);

#endif

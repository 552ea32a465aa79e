/* SPDX-License-Identifier: MIT */
/*
 * fit.h - the memory and time of a setup before anything is allocated, and settings that need less.
 *
 * Memory is exact to the byte for what Weft allocates on the device: states, one region for
 * activations, and the inputs and outputs of every graph, those of samples included. Time is
 * predicted from the FLOPs and bytes of every kernel and the device's measured peak rates.
 */
#ifndef WF_TRAIN_FIT_H
#define WF_TRAIN_FIT_H

#include "device/device.h"
#include "train/setup.h"

typedef struct {
    wf_memory memory; /* of all graphs: one region, ports summed */
    size_t total;     /* states, region and ports */
    size_t weights, gradients, moments, averages, others; /* breakdown of the states */
    size_t samples;      /* also part of the states: keys and values of samples */
    double flops, bytes; /* per step */
    double seconds;      /* per step; 0: the device's rates are unknown */
} wf_setup_plan;

/* `peak` may be NULL: then no time is predicted. */
wf_status wf_setup_plan_memory(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                               wf_setup_plan *out);

/* Other settings that make the same or nearly the same steps. */
typedef struct {
    int64_t batch, accumulate, recompute; /* as in wf_train_options */
    wf_type compute;
    int64_t lora;       /* rank; 0: no adapters */
    wf_setup_plan plan; /* memory and time of this choice */
    bool fits;          /* plan.total <= limit */
} wf_choice;
#define WF_MAX_CHOICES 24 /* further candidates are left out */

/* Plans all candidates, sorted by decreasing memory. `limit` is in bytes. Includes adapters if the
 * setup starts from a model and has none. */
wf_status wf_fit_choices(const wf_setup *s, wf_device *device, const wf_device_peak *peak,
                         size_t limit, wf_choice *out, int *count);
/* Returns the setup's own choice if it fits, else the fastest that fits and makes the same steps up
 * to rounding: same tokens, all weights, same compute type. NULL: nothing fits. */
const wf_choice *wf_fit_best(const wf_setup *s, const wf_choice *choice, int count);
void wf_fit_apply(wf_setup *s, const wf_choice *choice);
/* Formats "--batch 2 --accumulate 4 --recompute 1". */
const char *wf_fit_words(const wf_choice *choice, char *buf, size_t cap);

/* Fails with WF_ERR_MEMORY, and proposes what would fit, if the setup needs more than `limit` bytes
 * (0: no limit). */
wf_status wf_setup_refuse(const wf_setup *s, wf_device *device, size_t limit);

#endif

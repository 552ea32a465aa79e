/* SPDX-License-Identifier: MIT */
/* sampler_order.h - the order in which samplers run, as a list of names:
 * "top_k;top_p;temperature". */
#ifndef WF_MODEL_SAMPLER_ORDER_H
#define WF_MODEL_SAMPLER_ORDER_H

#include "base/ctx.h"

typedef enum {
    WF_SAMPLER_PENALTIES,
    WF_SAMPLER_TOP_K,
    WF_SAMPLER_TOP_P,
    WF_SAMPLER_MIN_P,
    WF_SAMPLER_TEMPERATURE
} wf_sampler_kind;

#define WF_MAX_SAMPLERS 16

typedef struct {
    wf_sampler_kind step[WF_MAX_SAMPLERS];
    int count;
} wf_sampler_order;

/* llama.cpp's default. */
#define WF_SAMPLER_ORDER "penalties;top_k;top_p;min_p;temperature"

/* Parses a list. Names and aliases are llama.cpp's. A sampler may appear more than once; one that
 * is not listed is off. Samplers that Weft lacks and llama.cpp disables by default (dry,
 * top_n_sigma, typ_p, xtc) are skipped. Any other name fails with WF_ERR_USAGE. */
wf_status wf_sampler_order_parse(wf_ctx *ctx, const char *text, size_t bytes,
                                 wf_sampler_order *out);

bool wf_sampler_order_has(const wf_sampler_order *order, wf_sampler_kind kind);

#endif

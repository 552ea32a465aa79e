/* SPDX-License-Identifier: MIT */
/* sampler_order.h - the order in which samplers are applied, as a list of names: "top_k;top_p;temperature". */
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

/* The default, which is llama.cpp's. */
#define WF_SAMPLER_ORDER "penalties;top_k;top_p;min_p;temperature"

/* Names and aliases are llama.cpp's. A sampler may come more than once; one that is not named is off. Samplers
 * that llama.cpp has, Weft has not, and whose default is off (dry, top_n_sigma, typ_p, xtc) are skipped. Any other
 * name is WF_ERR_USAGE. */
wf_status wf_sampler_order_parse(wf_ctx *ctx, const char *text, size_t bytes,
                                 wf_sampler_order *out);

bool wf_sampler_order_has(const wf_sampler_order *order, wf_sampler_kind kind);

#endif

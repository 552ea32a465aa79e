/* SPDX-License-Identifier: MIT */
/* adapter_priv.h - the structure of an adapter. */
#ifndef WF_MODEL_ADAPTER_PRIV_H
#define WF_MODEL_ADAPTER_PRIV_H

#include "format/store.h"
#include "model/adapter.h"
#include "model/family.h"

#define WF_ADAPTER_RANK 65536 /* upper limit; usual ranks are 4 to 256 */

/* A linear of the model, x [.., in] -> [.., out]. */
typedef struct {
    const char *name;           /* of the weight without suffix: "blk.3.attn_q" */
    const char *module;         /* Hugging Face's name: "model.layers.3.self_attn.q_proj" */
    const wf_weight_name *row;  /* in the family's table */
    int64_t in, out;            /* columns and rows of the weight */
    const char *state[2];       /* names of A and B */
    const wf_stored *stored[2]; /* in the opened folder; NULL: a new adapter */
} wf_adapted;

struct wf_adapter {
    wf_ctx *ctx;
    wf_arena arena;             /* owns names and lists */
    wf_config config;           /* a copy; its arrays are borrowed */
    wf_adapter_options options; /* defaults filled in; targets is NULL */
    double scale;               /* of B A, times the strength that the user chose */
    wf_adapted *linear;         /* [linears]: the adapted ones */
    int linears;
    wf_store store; /* the opened folder; empty for a new adapter */
};

/* Creates an adapter of all linears of the model. The caller then removes those that it does not
 * want. */
wf_status wf_adapter_begin(wf_ctx *ctx, const wf_config *config, wf_adapter **out);
/* Checks the options and sets the scale, multiplied by `strength`. `what` names the adapter in
 * errors. */
wf_status wf_adapter_set(wf_adapter *a, const char *what, const wf_adapter_options *options,
                         double strength);
/* Names the states. Adapters of one graph have different numbers; 0 adds no suffix. */
wf_status wf_adapter_name(wf_adapter *a, int number);
/* Returns true if `part` equals a dotted name or its last components. */
bool wf_adapter_ends(const char *name, const char *part, size_t bytes);

#endif

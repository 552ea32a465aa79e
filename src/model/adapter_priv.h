/* SPDX-License-Identifier: MIT */
/* adapter_priv.h - adapters from inside. */
#ifndef WF_MODEL_ADAPTER_PRIV_H
#define WF_MODEL_ADAPTER_PRIV_H

#include "format/store.h"
#include "model/adapter.h"
#include "model/family.h"

#define WF_ADAPTER_RANK 65536 /* the most; real ones have 4 to 256 */

/* A linear of the model. */
typedef struct {
    const char *name;   /* of the weight: "blk.3.attn_q" */
    const char *module; /* of Hugging Face: "model.layers.3.self_attn.q_proj" */
    const wf_weight_name *row;
    int64_t in, out;
    const char *state[2];       /* names of A and B */
    const wf_stored *stored[2]; /* where they lie; NULL: nowhere yet */
} wf_adapted;

struct wf_adapter {
    wf_ctx *ctx;
    wf_arena arena; /* of names and lists */
    wf_config config;
    wf_adapter_options options; /* filled in, without targets */
    double scale;               /* of B A */
    wf_adapted *linear;         /* those it has */
    int linears;
    wf_store store; /* what it was opened from */
};

/* An adapter of all linears there are, of which wf_adapter_choose leaves some. */
wf_status wf_adapter_begin(wf_ctx *ctx, const wf_config *config, wf_adapter **out);
/* Checks the options and computes the scale, times `strength`. `what` begins the sentence of a failure. */
wf_status wf_adapter_set(wf_adapter *a, const char *what, const wf_adapter_options *options,
                         double strength);
/* Names the states; numbers other than 0 tell the adapters of one graph apart. */
wf_status wf_adapter_name(wf_adapter *a, int number);
/* Is `part` the whole of a dotted name, or its last parts? */
bool wf_adapter_ends(const char *name, const char *part, size_t bytes);

#endif

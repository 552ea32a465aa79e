/* SPDX-License-Identifier: MIT */
/* llama.h - tables of Llama that other families use too. */
#ifndef WF_MODEL_LLAMA_H
#define WF_MODEL_LLAMA_H

#include "model/family.h"

extern const wf_weight_name wf_llama_weights[]; /* q, k and v apart; norms before both parts */
extern const char *const wf_llama_ignored[];    /* frequency tables in old checkpoints */

/* Keys of config.json that MistralConfig of transformers reads. */
#define WF_MISTRAL_KEYS                                                                  \
    WF_DECODER_KEYS(131072, 8), WF_HEAD_KEYS(0), WF_VOCAB_KEYS(false), WF_RMS_KEY(1e-6), \
        WF_ROPE_DIMS_KEY, WF_ROPE_KEYS(10000), WF_USED("sliding_window")

#endif

/* SPDX-License-Identifier: MIT */
/* info.h - the results of `weft info`, which are printed as text or JSON. */
#ifndef WF_CLI_INFO_H
#define WF_CLI_INFO_H

#include "cli/cli.h"
#include "model/model.h"

#define WF_VIEW_TYPES WF_TYPE_COUNT /* types of weights in one model */

typedef struct {
    const char *name; /* as the file spells it */
    wf_type type;
    int tensors;
    size_t bytes;
} wf_type_share;

typedef struct {
    wf_model *model;
    wf_model_info info;
    const wf_tokenizer *tokenizer; /* NULL: none */
    int control;                   /* tokens */
    wf_type_share type[WF_VIEW_TYPES];
    int types;
    wf_memory memory; /* for one sequence of the full context */
    size_t kv;        /* bytes of the KV cache, part of memory */
} wf_model_view;

/* Prints JSON, with the list of tensors and the metadata keys of a GGUF file if asked. */
void wf_info_json(const wf_model_view *v, bool tensors, bool keys);
/* Prints the metadata keys of a GGUF file, one per line; truncates long arrays and texts. */
void wf_info_keys(const wf_gguf *f);

#endif

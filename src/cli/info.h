/* SPDX-License-Identifier: MIT */
/* info.h - what `weft info` found out, for its text and its JSON. */
#ifndef WF_CLI_INFO_H
#define WF_CLI_INFO_H

#include "cli/cli.h"
#include "model/model.h"

#define WF_VIEW_TYPES WF_TYPE_COUNT

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
    wf_memory memory; /* of a sequence as long as the context */
    size_t kv;        /* of it, keys and values */
} wf_model_view;

/* With all tensors, and with the keys of the GGUF file that it is. */
void wf_info_json(const wf_model_view *v, bool tensors, bool keys);
/* The keys of a GGUF file, one a line; long arrays and texts are cut. */
void wf_info_keys(const wf_gguf *f);

#endif

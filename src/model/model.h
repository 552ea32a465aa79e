/* SPDX-License-Identifier: MIT */
/*
 * model.h - an opened model: config, weights, tokenizer and chat template.
 *
 * A weight is described as the graph sees it: the name, shape and type of its state. The type loses
 * nothing of the file's. source.h says which tensors of the file it is made of.
 */
#ifndef WF_MODEL_MODEL_H
#define WF_MODEL_MODEL_H

#include "format/folder.h"
#include "format/gguf.h"
#include "model/build.h"
#include "model/sampling.h"
#include "model/source.h"
#include "text/token.h"

#define WF_KEY_CHAT_TEMPLATE "tokenizer.chat_template"
#define WF_KEY_TOOL_TEMPLATE \
    "tokenizer.chat_template.tool_use" /* the key that llama.cpp's converter writes */

struct wf_model {
    wf_ctx *ctx;
    wf_arena arena; /* owns strings and config arrays */
    char *path;
    wf_gguf *gguf; /* exactly one of these two is set */
    wf_folder *folder;
    const wf_store *store; /* of the one that is set */
    wf_config config;
    wf_model_info info;
    wf_model_weight_info *weight; /* [weights], in the order of the graph */
    int weights;
    wf_tokenizer *tokenizer; /* NULL: missing, or Weft cannot read it */
    bool tokenizer_borrowed;
    const char *no_tokenizer; /* the reason */
    /* Chat template for conversations with tools; NULL: use the chat template. */
    const char *tool_template;
    wf_sampling_defaults sampling;
    /* A model without a file (blank.h): the source of its weights, and an empty store. */
    wf_status (*fetch)(void *user, const char *weight, float *to, int64_t count);
    void *fetch_user;
    wf_store nowhere;
};

/* Fills m->info from config and weights, except name and template. */
void wf_model_describe(wf_model *m, const char *format);

/* Returns the type of a weight; for wf_build_options.type, with the model as user. */
wf_type wf_model_weight_type(void *model, const char *name);
/* Returns NULL if the model has no such weight. */
const wf_model_weight_info *wf_model_find_weight(const wf_model *m, const char *name);

/* Fills m->weight. Fails if the file lacks a weight, has one with another shape, or has an unknown
 * tensor; the message lists the faults. */
wf_status wf_model_bind(wf_model *m);

#endif

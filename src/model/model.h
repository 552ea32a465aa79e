/* SPDX-License-Identifier: MIT */
/*
 * model.h - an opened model: its config, its weights and where they lie, its tokenizer, its template.
 *
 * A weight is described as the graph has it: the name and shape of the state, and a type that the state can
 * have without losing anything. What lies in the file may be arranged otherwise.
 */
#ifndef WF_MODEL_MODEL_H
#define WF_MODEL_MODEL_H

#include "format/folder.h"
#include "format/gguf.h"
#include "model/build.h"
#include "model/sampling.h"
#include "text/token.h"

#define WF_KEY_CHAT_TEMPLATE "tokenizer.chat_template"
#define WF_KEY_TOOL_TEMPLATE \
    "tokenizer.chat_template.tool_use" /* as llama.cpp's converter writes it */

typedef struct {
    const char *name; /* of the state */
    wf_type type;     /* of the state: that of the file for matrices, f32 for vectors */
    wf_dims shape;    /* of the state */
    const wf_stored *from;
    bool transposed; /* in the file */
} wf_model_weight_info;

struct wf_model {
    wf_ctx *ctx;
    wf_arena arena;
    char *path;
    wf_gguf *gguf; /* one of these two */
    wf_folder *folder;
    const wf_store *store; /* of that one */
    wf_config config;
    wf_model_info info;
    wf_model_weight_info *weight;
    int weights;
    wf_tokenizer *tokenizer; /* NULL: the model has none, or one that Weft cannot read */
    bool tokenizer_borrowed;
    const char *no_tokenizer;  /* why not */
    const char *tool_template; /* chat template for conversations with tools; NULL: the same */
    wf_sampling_defaults sampling;
    /* A model that lies in no file (blank.h): where its weights come from, and a store without any. */
    wf_status (*fetch)(void *user, const char *weight, float *to, int64_t count);
    void *fetch_user;
    wf_store nowhere;
};

/* m->info, but for name and template, from config and weights. */
void wf_model_describe(wf_model *m, const char *format);

/* Can the state be the bytes of the file, where they are? */
bool wf_weight_lies_ready(const wf_model_weight_info *w);
/* Puts the weight at `to`, as the state is to have it: wf_type_bytes(type, count) of them. */
wf_status wf_weight_read(wf_ctx *ctx, const wf_model_weight_info *w, void *to);
/* Graph names and types for wf_model_graph: options.type with the model as user. */
wf_type wf_model_weight_type(void *model, const char *name);
/* NULL when there is none. */
const wf_model_weight_info *wf_model_find_weight(const wf_model *m, const char *name);

/* Checks that the file has every weight that the config asks for, in the right shape, and nothing else;
 * otherwise all that is wrong is listed. Fills m->weight. */
wf_status wf_model_bind(wf_model *m);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * folder.h - a model as a Hugging Face folder, and what a path that a user gives is.
 */
#ifndef WF_FORMAT_FOLDER_H
#define WF_FORMAT_FOLDER_H

#include "base/json_tree.h"
#include "format/store.h"

#define WF_FOLDER_JSON ((size_t)64 << 20)    /* bytes a configuration may have */
#define WF_FOLDER_TEMPLATE ((size_t)4 << 20) /* bytes a chat template may have */

typedef struct {
    wf_ctx *ctx;
    wf_arena arena; /* of all below but the store */
    const char *path;
    const wf_json_node *config;     /* config.json, an object */
    const wf_json_node *generation; /* generation_config.json, an object; NULL: there is none */
    const wf_json_node
        *tokenizer_config;     /* tokenizer_config.json, an object; NULL: there is none */
    const char *chat_template; /* UTF-8 with a NUL behind it; NULL: there is none */
    const char *tool_template; /* for conversations with tools ("tool_use"); NULL: the same */
    wf_store store;            /* the weights, sealed */
} wf_folder;

/* Weights are model.safetensors or else model.safetensors.index.json, as in transformers, or else the only
 * *.safetensors there is. The template is chat_template.jinja, or else in tokenizer_config.json, or
 * else in chat_template.json; one for tools is additional_chat_templates/tool_use.jinja, or called tool_use in the
 * same files. tokenizer.json is read by whoever needs it. */
wf_status wf_folder_open(wf_ctx *ctx, const char *path, wf_folder **out);
void wf_folder_close(wf_folder *f); /* NULL is fine */

/* The templates alone, in the arena, of a folder that need not have weights. NULL: there is none. */
wf_status wf_folder_templates(wf_arena *arena, const char *path, const char **chat,
                              const char **tool);

typedef enum {
    WF_FORMAT_NONE,
    WF_FORMAT_GGUF,  /* a file */
    WF_FORMAT_FOLDER /* a Hugging Face folder */
} wf_format_kind;

/* What a path is, by a look at it and not by its name. What is no model is a failure that says what it is
 * and what to give instead. */
wf_status wf_format_detect(wf_ctx *ctx, const char *path, wf_format_kind *out);

#endif

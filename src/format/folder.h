/* SPDX-License-Identifier: MIT */
/*
 * folder.h - models in Hugging Face folders, and detection of a model's format.
 */
#ifndef WF_FORMAT_FOLDER_H
#define WF_FORMAT_FOLDER_H

#include "base/json_tree.h"
#include "format/store.h"

#define WF_FOLDER_JSON ((size_t)64 << 20)    /* largest configuration file, bytes */
#define WF_FOLDER_TEMPLATE ((size_t)4 << 20) /* largest chat template, bytes */

typedef struct {
    wf_ctx *ctx;
    wf_arena arena; /* owns everything below except the store */
    const char *path;
    const wf_json_node *config;           /* config.json, an object */
    const wf_json_node *generation;       /* generation_config.json, an object; NULL: missing */
    const wf_json_node *tokenizer_config; /* tokenizer_config.json, an object; NULL: missing */
    const char *chat_template;            /* UTF-8, NUL-terminated; NULL: missing */
    const char *tool_template;            /* for tool calls ("tool_use"); NULL: use chat_template */
    wf_store store;                       /* the weights, sealed */
} wf_folder;

/* Opens a folder; free with wf_folder_close. The first that exists is used:
 *
 *     weights        model.safetensors, model.safetensors.index.json, the only *.safetensors
 *     chat template  chat_template.jinja, in tokenizer_config.json, in chat_template.json
 *     tool template  additional_chat_templates/tool_use.jinja, "tool_use" in the same JSON files
 *
 * tokenizer.json is not read here. */
wf_status wf_folder_open(wf_ctx *ctx, const char *path, wf_folder **out);
void wf_folder_close(wf_folder *f); /* f may be NULL */

/* Reads only the templates, into the arena. The folder needs no weights. NULL: missing. */
wf_status wf_folder_templates(wf_arena *arena, const char *path, const char **chat,
                              const char **tool);

typedef enum {
    WF_FORMAT_NONE,
    WF_FORMAT_GGUF,  /* a GGUF file */
    WF_FORMAT_FOLDER /* a Hugging Face folder */
} wf_format_kind;

/* Detects the format of a model by its contents. Fails if the path is not a model; the message says
 * what it is and what to give instead. */
wf_status wf_format_detect(wf_ctx *ctx, const char *path, wf_format_kind *out);

#endif

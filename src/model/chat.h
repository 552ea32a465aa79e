/* SPDX-License-Identifier: MIT */
/* chat.h - conversations, for those who have a template and a tokenizer rather than a model. */
#ifndef WF_MODEL_CHAT_H
#define WF_MODEL_CHAT_H

#include "text/template.h"

/* For what comes without a template: known by the name "chatml". */
extern const char wf_chatml[];

typedef struct {
    const wf_json_node *messages;  /* an array of objects with role and content */
    bool answer;                   /* the answer is begun (add_generation_prompt) */
    const wf_json_node *tools;     /* an array, or NULL */
    const wf_json_node *documents; /* an array, or NULL */
    const wf_json_node
        *variables; /* an object of further ones, or NULL; they replace those above */
} wf_chat;

/* What messages say is marked as plain. The tokenizer, which may be NULL, has the special tokens that templates
 * write. */
wf_status wf_chat_render(const wf_template *template, const wf_tokenizer *t, wf_ctx *ctx,
                         const wf_chat *chat, wf_rendered *out);

/* The templates that come with a tokenizer: in a GGUF file, a folder, or beside a tokenizer.json. `tool` is for
 * conversations with tools. In the arena; NULL: there is none. */
wf_status wf_chat_templates_of(wf_arena *arena, const char *path, const char **chat,
                               const char **tool);

#endif

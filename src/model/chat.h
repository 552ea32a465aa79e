/* SPDX-License-Identifier: MIT */
/* chat.h - conversations for callers that have a template and a tokenizer but no model. */
#ifndef WF_MODEL_CHAT_H
#define WF_MODEL_CHAT_H

#include "text/template.h"

/* The ChatML template, used as "chatml" and for data without a template. */
extern const char wf_chatml[];

typedef struct {
    const wf_json_node *messages; /* an array of objects with role and content */
    bool answer; /* add_generation_prompt: append the start of the assistant's answer */
    const wf_json_node *tools;     /* an array, or NULL */
    const wf_json_node *documents; /* an array, or NULL */
    /* An object with more variables, or NULL; they override those above. */
    const wf_json_node *variables;
} wf_chat;

/* Renders the template. Message contents are marked as plain, so that they never become control
 * tokens. The tokenizer provides special tokens for the template; it may be NULL. */
wf_status wf_chat_render(const wf_template *template, const wf_tokenizer *t, wf_ctx *ctx,
                         const wf_chat *chat, wf_rendered *out);

/* Finds the templates that belong to a tokenizer: in a GGUF file, in a folder, or next to a
 * tokenizer.json. `tool` is the one for conversations with tools. The arena owns them; NULL: not
 * present. */
wf_status wf_chat_templates_of(wf_arena *arena, const char *path, const char **chat,
                               const char **tool);

#endif

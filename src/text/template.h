/* SPDX-License-Identifier: MIT */
/*
 * template.h - chat templates: the subset of Jinja that real templates use, with resource limits.
 *
 * Every byte of the output is marked: from the template, or from the messages. The marks survive
 * all string operations, so the tokenizer can distinguish the template's "<|im_end|>" from a
 * user's.
 */
#ifndef WF_TEXT_TEMPLATE_H
#define WF_TEXT_TEMPLATE_H

#include "base/json_tree.h"

typedef struct wf_template wf_template;

/* Compiles a template with trim_blocks and lstrip_blocks, as Hugging Face does. The text is copied.
 * Failure messages name `what` and the line. */
wf_status wf_template_new(wf_ctx *ctx, const char *what, const char *text, size_t bytes,
                          wf_template **out);
void wf_template_free(wf_template *t);

/* Returns whether the template marks the assistant's text with {% generation %}. */
bool wf_template_marks(const wf_template *t);

typedef struct {    /* limits; 0: the default */
    uint64_t steps; /* nodes evaluated, items and bytes read or written; default 10 million */
    int depth;      /* nested expressions and calls; default 100 */
    size_t bytes;   /* memory while rendering, output included; default 64 MiB */
    int64_t now;    /* seconds since 1970 for strftime_now; default: the current time */
} wf_template_options;

typedef struct {
    char *text;         /* NUL-terminated */
    uint8_t *plain;     /* [bytes] 1: the byte came from `variables` */
    uint8_t *generated; /* [bytes] 1: the byte was written inside {% generation %} */
    size_t bytes;
} wf_rendered;

/* Renders. variables: an object. Its direct string members (bos_token, ...) count as the template's
 * own text; strings nested deeper (messages, tools) are marked plain. ctx may differ from the
 * template's, so several threads can render one template. Free the result with wf_rendered_free. */
wf_status wf_template_render(const wf_template *t, wf_ctx *ctx, const wf_json_node *variables,
                             const wf_template_options *options, wf_rendered *out);
void wf_rendered_free(wf_ctx *ctx, wf_rendered *r);

#endif

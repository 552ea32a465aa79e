/* SPDX-License-Identifier: MIT */
/*
 * template.h - chat templates: the part of Jinja that real ones use, with limits.
 *
 * Text that came with the messages stays marked as such through all string operations, so that a
 * tokenizer can tell the template's "<|im_end|>" from a user's.
 */
#ifndef WF_TEXT_TEMPLATE_H
#define WF_TEXT_TEMPLATE_H

#include "base/json_tree.h"

typedef struct wf_template wf_template;

/* Compiles; trim_blocks and lstrip_blocks are on, as Hugging Face has them. Nothing of the text is kept.
 * Failures name `what` and the line. */
wf_status wf_template_new(wf_ctx *ctx, const char *what, const char *text, size_t bytes,
                          wf_template **out);
void wf_template_free(wf_template *t);

/* Does it mark what the assistant says, with {% generation %}? */
bool wf_template_marks(const wf_template *t);

typedef struct {    /* 0: the default */
    uint64_t steps; /* nodes evaluated and items made; default 10 million */
    int depth;      /* of nested expressions and calls; default 100 */
    size_t bytes;   /* of memory while rendering, the output included; default 64 MiB */
    int64_t now;    /* seconds since 1970 for strftime_now; default: the clock's */
} wf_template_options;

typedef struct {
    char *text;         /* with a NUL behind it */
    uint8_t *plain;     /* plain[i] is 1: byte i came from `variables` */
    uint8_t *generated; /* [i] is 1: byte i was written within {% generation %} */
    size_t bytes;
} wf_rendered;

/* `variables` is an object. Strings that are its direct members (bos_token, ...) are the template's own;
 * those deeper inside (messages, tools) are marked plain. The context is that of t or of another thread. */
wf_status wf_template_render(const wf_template *t, wf_ctx *ctx, const wf_json_node *variables,
                             const wf_template_options *options, wf_rendered *out);
void wf_rendered_free(wf_ctx *ctx, wf_rendered *r);

#endif

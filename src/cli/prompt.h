/* SPDX-License-Identifier: MIT */
/* prompt.h - texts that people give: on the command line, in files, on stdin. */
#ifndef WF_CLI_PROMPT_H
#define WF_CLI_PROMPT_H

#include "cli/cli.h"

typedef struct {
    char *text; /* with a NUL behind it, for wf_mem_free */
    size_t bytes;
} wf_prompt;

typedef struct {
    wf_ctx *ctx;
    wf_prompt *item; /* [count] */
    int count;
} wf_prompts;

#define WF_PROMPT_ESCAPES 1u /* \n and the like in `texts` stand for what they mean */
#define WF_PROMPT_TRIM 2u    /* the newline that ends a file is none of the prompt */

/* `texts` and then `files`; "-" is stdin in either. Bytes that are no UTF-8 are noted on stderr. Freed after a
 * failure as well. */
wf_status wf_prompts_read(wf_ctx *ctx, const wf_values *texts, const wf_values *files,
                          uint32_t flags, wf_prompts *out);
void wf_prompts_free(wf_prompts *p);

/* \n \r \t \" \' \\ and \xHH; any other backslash stays. *out is for wf_mem_free, with a NUL behind it. */
wf_status wf_prompt_unescape(wf_ctx *ctx, const char *text, char **out, size_t *bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* prompt.h - reads prompts from the command line, files and stdin. */
#ifndef WF_CLI_PROMPT_H
#define WF_CLI_PROMPT_H

#include "cli/cli.h"

typedef struct {
    char *text; /* NUL-terminated; free with wf_mem_free */
    size_t bytes;
} wf_prompt;

typedef struct {
    wf_ctx *ctx;
    wf_prompt *item; /* [count] */
    int count;
} wf_prompts;

#define WF_PROMPT_ESCAPES 1u /* interpret \n and other escapes in `texts` */
#define WF_PROMPT_TRIM 2u    /* drop the last newline of a file */

/* Reads `texts`, then `files`; "-" is stdin in both. Prints a note for invalid UTF-8. Call
 * wf_prompts_free after a failure as well. */
wf_status wf_prompts_read(wf_ctx *ctx, const wf_values *texts, const wf_values *files,
                          uint32_t flags, wf_prompts *out);
void wf_prompts_free(wf_prompts *p);

/* Interprets \n \r \t \" \' \\ and \xHH; other backslashes stay. *out is NUL-terminated; the caller
 * frees it with wf_mem_free. */
wf_status wf_prompt_unescape(wf_ctx *ctx, const char *text, char **out, size_t *bytes);

#endif

/* SPDX-License-Identifier: MIT */
/* rewrite.h - what `weft convert` and `weft quantize` share: a model is read and written anew. */
#ifndef WF_CLI_REWRITE_H
#define WF_CLI_REWRITE_H

#include <stdio.h>

#include "base/ctx.h"

/* Shows how far it is, and then what became of it, on stderr. Files that exist are replaced with `overwrite` only. */
wf_status wf_rewrite(wf_ctx *ctx, const char *from, const char *to, bool overwrite,
                     const wf_convert_options *options);

/* "2G", "500M", "100000": bytes, K, M and G being powers of 1000. `flag` names it in messages. */
wf_status wf_rewrite_size(wf_ctx *ctx, const char *flag, const char *text, uint64_t *out);
/* "4" to 1 .. 1024. */
wf_status wf_rewrite_threads(wf_ctx *ctx, const char *text, int *out);

/* The list of types, for the help. */
void wf_rewrite_types(FILE *to);

#endif

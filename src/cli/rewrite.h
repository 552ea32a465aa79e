/* SPDX-License-Identifier: MIT */
/* rewrite.h - shared by `weft convert` and `weft quantize`: reads a model and writes it in another
 * form. */
#ifndef WF_CLI_REWRITE_H
#define WF_CLI_REWRITE_H

#include "base/arena.h"
#include "cli/cli.h"

/* Converts the model `from` to `to` and shows progress and a summary on stderr. Fails when a file
 * exists and `overwrite` is false. */
wf_status wf_rewrite(wf_ctx *ctx, const char *from, const char *to, bool overwrite,
                     const wf_convert_options *options);

/* Parses a size in bytes: "2G", "500M", "100000"; K, M and G are powers of 1000. `flag` names the
 * flag in messages. */
wf_status wf_rewrite_size(wf_ctx *ctx, const char *flag, const char *text, uint64_t *out);
/* Parses a number of threads from 1 to 1024. */
wf_status wf_rewrite_threads(wf_ctx *ctx, const char *text, int *out);

/* The flag --tensor-type REGEX=TYPE. */
#define WF_FLAG_TENSOR_TYPE(target)                                                          \
    {                                                                                        \
        .name = "tensor-type", .value = "REGEX=TYPE", .values = (target),                    \
        .doc = "type of the matrices whose names match; repeatable, the first match decides" \
    }
/* Parses the values into out[WF_MAX_VALUES], in the order of the flags. The arena owns the
 * texts. */
wf_status wf_rewrite_tensor_types(wf_arena *arena, const wf_values *values, wf_tensor_type *out);

/* The types, for the help. */
extern const wf_help_table wf_rewrite_types;

#endif

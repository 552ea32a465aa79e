/* SPDX-License-Identifier: MIT */
/*
 * override.h - types of single tensors in a conversion: the rules REGEX=TYPE of --tensor-type.
 *
 * A rule applies to every matrix whose name contains a match; the first rule that matches decides.
 */
#ifndef WF_MODEL_OVERRIDE_H
#define WF_MODEL_OVERRIDE_H

#include "graph/type.h"

typedef struct wf_override wf_override;

typedef struct {
    wf_ctx *ctx;
    wf_override *rule; /* [count] */
    int count;
} wf_overrides;

/* Compiles the rules. Fails with WF_ERR_USAGE for a wrong expression or an unknown type. Free *out
 * in any case. */
wf_status wf_overrides_make(wf_ctx *ctx, const wf_tensor_type *rules, int count, wf_overrides *out);
void wf_overrides_free(wf_overrides *o);

/* Changes *type if a rule matches the matrix. Fails if blocks of the new type do not divide rows of
 * so many columns. */
wf_status wf_overrides_apply(wf_overrides *o, const char *name, int64_t columns, wf_type *type);
/* Fails if a rule matched no matrix so far. */
wf_status wf_overrides_check(const wf_overrides *o);

#endif

/* SPDX-License-Identifier: MIT */
/* expansion.h - what commands say about expanded ops. */
#ifndef WF_CLI_EXPANSION_H
#define WF_CLI_EXPANSION_H

#include "cli/cli.h"
#include "graph/pass/pass.h"

/* Makes the device expand the ops of a list, "glu,softmax", or "all" ops that are not core. NULL
 * does nothing. */
wf_status wf_expand_ops(wf_ctx *ctx, wf_device *device, const char *list);

/* Expands op for the operands of its first selftest case. `device` says which ops stay as they are;
 * NULL: core ops only. `call` gets the op with its operands. */
wf_status wf_expansion_example(wf_ctx *ctx, const wf_device *device, wf_op op, wf_expansion *out,
                               char *call, size_t cap);
/* "7 launches instead of 1, 1.30x FLOP, 4.50x bytes" */
const char *wf_expansion_text(const wf_expansion *e, char *buf, size_t cap);
void wf_expansion_json(wf_json *j, wf_op op, const wf_expansion *e);

#endif

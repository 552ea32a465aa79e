/* SPDX-License-Identifier: MIT */
/* eval.h - the measurements of weft eval, and what they share. */
#ifndef WF_CLI_EVAL_H
#define WF_CLI_EVAL_H

#include "cli/open.h"

#define WF_EVAL_ROWS 32 /* most tokens per step that have logits: limits their memory */

typedef struct {
    const char *file; /* "-": stdin */
    int64_t limit;    /* tokens or questions; -1: all */
    bool json;
    wf_open *against; /* of a text: the open model to compare with; NULL: none */
} wf_eval_options;

/* Read the file, load the open model and print the results to stdout. */
wf_status wf_eval_text(wf_open *e, const wf_eval_options *o);
wf_status wf_eval_choices(wf_open *e, const wf_eval_options *o);

/* Stores the bos token that the tokenizer puts before a text; -1: none. */
wf_status wf_eval_bos(const wf_open *e, int32_t *bos);
/* Returns -log p(target) of logits [vocab], in nats. */
double wf_eval_nats(const float *logits, size_t vocab, int32_t target);

#endif

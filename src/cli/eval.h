/* SPDX-License-Identifier: MIT */
/* eval.h - what weft eval measures, one file each, and what they share. */
#ifndef WF_CLI_EVAL_H
#define WF_CLI_EVAL_H

#include "cli/engine.h"

typedef struct {
    const char *file; /* "-": stdin */
    int64_t limit;    /* of what it holds; -1: all */
    bool json;
} wf_eval_options;

/* Each reads the file, loads the model, which is open, and prints what it found to stdout. */
wf_status wf_eval_text(wf_engine *e, const wf_eval_options *o);
wf_status wf_eval_choices(wf_engine *e, const wf_eval_options *o);

/* What the tokenizer puts before a text; -1: nothing. */
wf_status wf_eval_bos(const wf_engine *e, int32_t *bos);
/* -log of the probability that the logits give the target. */
double wf_eval_nats(const float *logits, size_t vocab, int32_t target);

#endif

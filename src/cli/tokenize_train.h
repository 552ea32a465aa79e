/* SPDX-License-Identifier: MIT */
/* tokenize_train.h - weft tokenize --train: learns a tokenizer from texts. */
#ifndef WF_CLI_TOKENIZE_TRAIN_H
#define WF_CLI_TOKENIZE_TRAIN_H

#include "cli/cli.h"

extern const wf_flag wf_tokenize_train_flags[];
/* Sets *train to --train. Returns WF_ERR_USAGE when its other flags are given without it. */
wf_status wf_tokenize_trains(wf_ctx *ctx, bool *train);
/* Learns from the operands and the files; "-" is stdin. */
wf_status wf_tokenize_train(wf_ctx *ctx, char *const *operands, int count, const wf_values *files);

#endif

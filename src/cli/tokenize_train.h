/* SPDX-License-Identifier: MIT */
/* tokenize_train.h - weft tokenize --train: a tokenizer learned from texts. */
#ifndef WF_CLI_TOKENIZE_TRAIN_H
#define WF_CLI_TOKENIZE_TRAIN_H

#include "cli/cli.h"

extern const wf_flag wf_tokenize_train_flags[];
/* Was --train given, or (false) any of its flags without it, which is WF_ERR_USAGE? */
wf_status wf_tokenize_trains(wf_ctx *ctx, bool *train);
/* The operands and the files are texts; "-" is stdin. */
wf_status wf_tokenize_train(wf_ctx *ctx, char *const *operands, int count, const wf_values *files);

#endif

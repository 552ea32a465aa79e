/* SPDX-License-Identifier: MIT */
/*
 * generate.h - samples: texts of a model in training, written by an inference engine (engine.h) in
 * the trainer's session.
 *
 * The engine reads the trainer's weights where they are. It adds only its page pools, ports and
 * executables. Weights change between samples, so no sample reuses pages of an earlier one.
 */
#ifndef WF_TRAIN_GENERATE_H
#define WF_TRAIN_GENERATE_H

#include "train/trainer.h"

#define WF_SAMPLE_TOKENS 64 /* default length of a sample */

/* Returns the most tokens of a sample of this run, prompt included; 0: the run makes no samples.
 * Estimates the tokens of the prompt by its bytes, because plans have no tokenizer. A longer prompt
 * takes more memory than planned. */
int64_t wf_run_sample_tokens(const wf_run_options *o);
/* Builds the largest graph of the engine that writes samples of setup->sample_tokens. */
wf_status wf_setup_sample_graph(const wf_setup *s, wf_graph **out);
/* Makes the trainer's engine, for samples of this many tokens. Call it after compiling the trainer's
 * graphs. An engine that was there before is freed, also on failure. */
wf_status wf_trainer_attach(wf_trainer *t, int64_t tokens);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * setup.h - the complete description of a training run: options with all defaults filled in.
 *
 * Graphs, plans and checkpoints are made from a setup alone. It contains no device and no data.
 */
#ifndef WF_TRAIN_SETUP_H
#define WF_TRAIN_SETUP_H

#include "model/adapter.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/schedule.h"

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;           /* owns the following */
    wf_train_options options; /* defaults filled in */
    wf_model *base;           /* model to start from; NULL: random initialization */
    wf_adapter *adapter;      /* trained instead of the weights; NULL: train the weights */
    wf_config config;         /* of the graph */
    /* Extra rows of the vocabulary for efficient kernels; exported files omit them. */
    int64_t padding;
    const char *name;            /* of the model */
    int64_t parameters, trained; /* elements of all weights, and of the trained ones */
    int64_t sequences;           /* S per batch: its sequences, or the most documents */
    /* Most tokens of a sample, with its prompt, for which memory is planned; 0: no samples. The
     * caller sets it before it plans or makes a trainer. */
    int64_t sample_tokens;
    wf_optimizer_options optimizer; /* from the options; -1 where they say 0 */
    wf_schedule schedule;           /* steps 0 until wf_setup_count */
    wf_loss_scale_options scale;    /* see wf_setup_scale */
} wf_setup;

/* `tokens` is the tokenizer's vocabulary size; 0: the base model's. If the options omit the steps,
 * wf_setup_count sets them. The caller frees *out with wf_setup_free, also after a failure. Copies
 * the strings of the options. */
wf_status wf_setup_make(wf_ctx *ctx, const wf_train_options *options, int64_t tokens,
                        wf_setup *out);
/* Sets the steps, and what depends on them, from the number of batches in the data. Once. */
wf_status wf_setup_count(wf_setup *s, int64_t batches);
/* Sets the loss scale, which depends on batch and compute type. Call it when these change. */
void wf_setup_scale(wf_setup *s);
void wf_setup_free(wf_setup *s);

/* Returns true if this state is trained. */
bool wf_setup_trains(const wf_setup *s, const char *state);

/* The effect of resuming with another value of a setting. */
typedef enum {
    WF_SETTING_FREE,   /* none */
    WF_SETTING_BITS,   /* results differ from an uninterrupted run */
    WF_SETTING_REFUSED /* not the same run: an error */
} wf_setting_kind;
/* Enumerates the settings as text. Returns false past the last index. */
bool wf_setup_setting(const wf_setup *s, int index, const char **name, char value[96],
                      wf_setting_kind *kind);

#endif

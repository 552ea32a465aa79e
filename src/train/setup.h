/* SPDX-License-Identifier: MIT */
/*
 * setup.h - what a run trains and how, decided: options with every default filled in.
 *
 * A setup is all that graphs, plans and checkpoints are made from. It holds no device and no data.
 */
#ifndef WF_TRAIN_SETUP_H
#define WF_TRAIN_SETUP_H

#include "model/adapter.h"
#include "model/model.h"
#include "train/optimizer.h"
#include "train/schedule.h"

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;           /* of what follows */
    wf_train_options options; /* no defaults are left */
    wf_model *base;           /* the model that is started from; NULL: none */
    wf_adapter *adapter;      /* what is trained in place of the weights; NULL: the weights are */
    wf_config config;         /* of the graph */
    int64_t padding;  /* rows of the vocabulary that the kernels want; no file has them as such */
    const char *name; /* of the model */
    int64_t parameters, trained; /* numbers in all weights, and in those that are trained */
    int64_t sequences;           /* S of a batch: its sequences, or the most documents */
    wf_optimizer_options optimizer;
    wf_schedule schedule;
    wf_loss_scale_options scale;
} wf_setup;

/* `tokens` of the tokenizer, 0 where those of the base count. Where the options do not say the steps, they follow from
 * wf_setup_count. Freed by wf_setup_free, after a failure as well. Strings of the options are copied. */
wf_status wf_setup_make(wf_ctx *ctx, const wf_train_options *options, int64_t tokens,
                        wf_setup *out);
/* When it is known how many batches the data has: fills in steps, and what follows from them, once. */
wf_status wf_setup_count(wf_setup *s, int64_t batches);
/* What the loss is multiplied by follows from batch and compute type: to be called when these change. */
void wf_setup_scale(wf_setup *s);
void wf_setup_free(wf_setup *s);

/* Is this state of the graph one that is trained? */
bool wf_setup_trains(const wf_setup *s, const char *state);

/* What it means when a run is resumed with another value of a setting. */
typedef enum {
    WF_SETTING_FREE,   /* nothing */
    WF_SETTING_BITS,   /* what follows is not what an uninterrupted run would have done */
    WF_SETTING_REFUSED /* it is another run */
} wf_setting_kind;
/* The settings as pairs of words, for tables and files; false past the last. */
bool wf_setup_setting(const wf_setup *s, int index, const char **name, char value[96],
                      wf_setting_kind *kind);

#endif

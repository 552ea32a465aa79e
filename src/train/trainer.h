/* SPDX-License-Identifier: MIT */
/*
 * trainer.h - a model in training: its states on a device, and the compiled graphs.
 *
 * The session's states hold everything that outlives a step, except counters, which are on the
 * host.
 */
#ifndef WF_TRAIN_TRAINER_H
#define WF_TRAIN_TRAINER_H

#include "train/graph.h"

struct wf_trainer {
    wf_ctx *ctx;
    wf_device *device;             /* borrowed */
    wf_setup setup;                /* owned */
    const wf_tokenizer *tokenizer; /* borrowed; NULL: none */
    const char *chat_template;     /* saved with the model; NULL: no template */
    uint64_t data;       /* identifies the data, for checkpoints; 0: the caller's own batches */
    wf_session *session; /* owned */
    wf_exec *exec[WF_TRAIN_COUNT]; /* NULL: unused, or not compiled yet */
    wf_engine *engine;             /* owned; writes samples; NULL: not made yet */
    bool placed[WF_TRAIN_COUNT];   /* constant positions and seq_start are written */
    /* A batch written ahead of its step: its number (-1: none), and its targets with loss. */
    int64_t ahead, ahead_valid;
    bool summing; /* a step has begun to sum gradients and has not ended; true after it failed */
    int64_t step, tokens, skipped; /* totals */
    int64_t skipped_row;           /* skipped steps in a row */
    double flops;                  /* per step */
    double peak;                   /* of the device in FLOP/s; 0: unknown */
    double late;                   /* seconds per step, recent average; 0: no step yet */
    int64_t timed; /* steps in this process; `late` excludes the first, which is slower */
};

/* Creates a trainer. Takes ownership of the setup, also on failure. */
wf_status wf_trainer_make(wf_device *device, const wf_tokenizer *tokenizer, wf_setup *setup,
                          size_t memory, wf_trainer **out);

/* weights.c: initializes states and reads them back. */

/* Maps frozen weights from the base model's files. Call it before compiling. */
wf_status wf_trainer_map_weights(wf_trainer *t);
/* Returns true if this weight's state is mapped from a file. */
bool wf_setup_maps(const wf_setup *s, const wf_device *device, const char *state);
wf_status wf_trainer_write_weights(wf_trainer *t);
/* Writes the weights of a saved model, except mapped ones. */
wf_status wf_trainer_read_model(wf_trainer *t, const wf_model *m);
/* Reads the first `count` elements of a weight as f32; with `average`, of its moving average if
 * there is one. */
wf_status wf_trainer_fetch(wf_trainer *t, const char *weight, bool average, float *to,
                           int64_t count);

#endif

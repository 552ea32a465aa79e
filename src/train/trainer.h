/* SPDX-License-Identifier: MIT */
/*
 * trainer.h - a model that is being trained: its states on a device, and the graphs over them made ready.
 *
 * What outlives a step is in the session's states; the host keeps counts.
 */
#ifndef WF_TRAIN_TRAINER_H
#define WF_TRAIN_TRAINER_H

#include "train/graph.h"

struct wf_trainer {
    wf_ctx *ctx;
    wf_device *device;
    wf_setup setup;
    const wf_tokenizer *tokenizer;
    const char *chat_template; /* to save with the model; NULL: none */
    uint64_t data;             /* which it is, for checkpoints; 0: the caller's own */
    wf_session *session;
    wf_exec *exec[WF_TRAIN_COUNT]; /* NULL: not used, or not yet */
    bool placed[WF_TRAIN_COUNT];   /* positions and seq_start, where they never change, are there */
    /* The batch that was written before its step, while the one before it ran: its number, and how many of its
     * tokens count. -1: none was. */
    int64_t ahead, ahead_valid;
    int64_t step, tokens, skipped; /* so far */
    int64_t skipped_row;           /* the last so many were */
    double flops;                  /* of a step */
    double peak;                   /* of the device's arithmetic, a second; 0: not known */
    double late;                   /* seconds of a step, of late; 0: none was made */
    int64_t timed; /* steps of this process; the first, which takes longer, is not part of `late` */
};

/* The trainer of a setup, which it takes over also when it fails. */
wf_status wf_trainer_make(wf_device *device, const wf_tokenizer *tokenizer, wf_setup *setup,
                          size_t memory, wf_trainer **out);

/* weights.c: what states begin with, and where they are read back. */

/* Mapped from the base's files, before graphs are compiled: what is not trained. */
wf_status wf_trainer_map_weights(wf_trainer *t);
/* Does the state of this weight, which is not trained, lie in a file? */
bool wf_setup_maps(const wf_setup *s, const wf_device *device, const char *state);
wf_status wf_trainer_write_weights(wf_trainer *t);
/* Writes the weights of a model that was saved, of all but what is mapped. */
wf_status wf_trainer_read_model(wf_trainer *t, const wf_model *m);
/* The first `count` elements of a weight: the average where there is one, when `average` is asked for.
 * f32. */
wf_status wf_trainer_fetch(wf_trainer *t, const char *weight, bool average, float *to,
                           int64_t count);

#endif

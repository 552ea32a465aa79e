/* SPDX-License-Identifier: MIT */
/* loader_priv.h - what a loader is made of. */
#ifndef WF_TRAIN_LOADER_PRIV_H
#define WF_TRAIN_LOADER_PRIV_H

#include "base/worker.h"
#include "train/data_priv.h"
#include "train/permute.h"

#define WF_IGNORED (-100) /* a target that does not count */

/* One batch and its memory. */
typedef struct {
    int32_t *tokens, *targets, *positions, *seq_start;
    int64_t index; /* -1: none */
    wf_batch batch;
} wf_loader_slot;

struct wf_loader {
    const wf_data *data;
    const wf_data_split *split;
    wf_loader_options o;
    int64_t rows;      /* that a pass could have, whether a batch takes them or not */
    int64_t batches;   /* of a pass */
    int64_t sequences; /* S */
    int64_t *pack;     /* masked: [rows + 1] first document of each row */
    wf_loader_slot slot[2];
    int current; /* the slot that is handed out; the other is the worker's */
    wf_worker *worker;
};

/* Finds out where rows begin. Of masked data it makes the table of packs and logs what did not fit. */
wf_status wf_loader_plan(wf_loader *l);
/* Fills a slot with batch slot->index. Pure: uses no context. */
void wf_loader_fill(const wf_loader *l, wf_loader_slot *slot);
/* Of masked data: (token, target) pairs of a document that a row takes, 0 when none; its first token. */
int64_t wf_loader_pairs(const wf_loader *l, int64_t document, int64_t *first);

#endif

/* SPDX-License-Identifier: MIT */
/* loader_priv.h - the structure of a loader. */
#ifndef WF_TRAIN_LOADER_PRIV_H
#define WF_TRAIN_LOADER_PRIV_H

#include "base/worker.h"
#include "train/data_priv.h"
#include "train/permute.h"

#define WF_IGNORED (-100) /* target of a token without loss */

/* One batch and its memory. */
typedef struct {
    int32_t *tokens, *targets, *positions, *seq_start; /* [B*T], [B*T], [B*T], [S + 1] */
    int64_t index;                                     /* -1: empty */
    wf_batch batch;                                    /* points to the arrays above */
} wf_loader_slot;

struct wf_loader {
    const wf_data *data;
    const wf_data_split *split;
    wf_loader_options o;
    int64_t rows;      /* rows of a pass, including those that do not fill a batch */
    int64_t batches;   /* per pass */
    int64_t sequences; /* S */
    int64_t *pack;     /* masked: [rows + 1], first document of each row */
    wf_loader_slot slot[2];
    int current;       /* the slot handed out; the worker fills the other */
    wf_worker *worker; /* runs wf_loader_fill for the other slot */
};

/* Decides where rows begin. For masked data builds the table `pack` and logs truncated
 * documents. */
wf_status wf_loader_plan(wf_loader *l);
/* Fills a slot with batch slot->index. Pure; uses no context, so it can run in the worker. */
void wf_loader_fill(const wf_loader *l, wf_loader_slot *slot);
/* For masked data: returns the (token, target) pairs of a document that a row takes, 0: none;
 * *first is its first token. */
int64_t wf_loader_pairs(const wf_loader *l, int64_t document, int64_t *first);

#endif

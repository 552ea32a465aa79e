/* SPDX-License-Identifier: MIT */
/*
 * record.h - what a training run leaves behind for people to watch, in its folder:
 *
 *     log.jsonl               one JSON object a line, only ever appended to
 *     events.out.tfevents.*   the same figures for TensorBoard, one file each time training is started
 *     loss.svg                the curves, drawn anew every few seconds
 *
 * Lines of the log: {"event":"start"}, of a new run; {"event":"resume","step":N}: what was logged of later steps
 * did not happen; {"event":"step",...}; {"event":"valid",...}; {"event":"sample","step":N,"text":"..."}. history.h reads them.
 *
 * A failed write does not spoil the record: what comes later is written when that works again. Of each file the
 * first failure is returned, and those that follow are not until it has been written to again. Whether the run goes
 * on without it is the caller's to decide.
 */
#ifndef WF_TRAIN_RECORD_H
#define WF_TRAIN_RECORD_H

#include "base/ctx.h"
#include "weft.h"

#define WF_RECORD_LOG "log.jsonl"
#define WF_RECORD_CURVE "loss.svg"

typedef struct wf_record wf_record;

/* from: the step that a resumed run goes on from; 0: a new run, before which nothing counts. */
wf_status wf_record_open(wf_ctx *ctx, const char *run, int64_t from, wf_record **out);
/* Draws the curves a last time. NULL is fine. */
void wf_record_close(wf_record *r);

wf_status wf_record_step(wf_record *r, const wf_train_step *p);
/* bits_per_byte: NAN when it is not known. */
wf_status wf_record_valid(wf_record *r, int64_t step, double loss, double bits_per_byte);
/* Text of any bytes; what is not UTF-8 in it is replaced. */
wf_status wf_record_sample(wf_record *r, int64_t step, const char *text);

#endif

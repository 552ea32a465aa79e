/* SPDX-License-Identifier: MIT */
/*
 * record.h - files for watching a run, in its folder:
 *
 *     log.jsonl               one JSON object per line, append-only
 *     events.out.tfevents.*   the same figures for TensorBoard, one file per start of training
 *     loss.svg                the curves, redrawn every few seconds
 *
 * Lines of the log: {"event":"start"} for a new run; {"event":"resume","step":N}, which invalidates
 * the records of later steps; {"event":"step",...}; {"event":"valid",...};
 * {"event":"sample","step":N,"text":"..."}. history.h reads them.
 *
 * After a failed write, later records are written once writing works again. For each file the first
 * failure is returned; further ones are silent until a write has succeeded. The caller decides
 * whether to continue.
 */
#ifndef WF_TRAIN_RECORD_H
#define WF_TRAIN_RECORD_H

#include "base/ctx.h"
#include "weft.h"

#define WF_RECORD_LOG "log.jsonl"
#define WF_RECORD_CURVE "loss.svg"

typedef struct wf_record wf_record;

/* from: the step that a run resumes from; 0: a new run. */
wf_status wf_record_open(wf_ctx *ctx, const char *run, int64_t from, wf_record **out);
/* Draws a final chart. Accepts NULL. */
void wf_record_close(wf_record *r);

wf_status wf_record_step(wf_record *r, const wf_train_step *p);
/* bits_per_byte: NAN if unknown. */
wf_status wf_record_valid(wf_record *r, int64_t step, double loss, double bits_per_byte);
/* Accepts any bytes; invalid UTF-8 is replaced. */
wf_status wf_record_sample(wf_record *r, int64_t step, const char *text);

#endif

/* SPDX-License-Identifier: MIT */
/* ranges.h - the valid ranges of wf_train_options in the syntax of base/range.h. Library and CLI
 * share them.
 *
 * They apply to values that are set: 0 selects the default, and where weft.h states it a negative
 * number means 0. */
#ifndef WF_TRAIN_RANGES_H
#define WF_TRAIN_RANGES_H

#define WF_RANGE_BATCH "1,1048576"
#define WF_RANGE_LENGTH "1,16777216"
#define WF_RANGE_ACCUMULATE "1,1048576"
#define WF_RANGE_STEPS "1,2147483647"
#define WF_RANGE_EPOCHS "(0,1e9"
#define WF_RANGE_RATE "(0,1000"
#define WF_RANGE_DECAY "0,0.999999999" /* of moments and averages: 1 in f32 would never change */
#define WF_RANGE_EPS "0,1000"
#define WF_RANGE_WEIGHT_DECAY "0,1000"
#define WF_RANGE_CLIP "0,"
#define WF_RANGE_FLOOR "0,1"
#define WF_RANGE_SMOOTHING "0,1"
#define WF_RANGE_Z_LOSS "0,1000"
#define WF_RANGE_DROPOUT "0,0.95"
#define WF_RANGE_RECOMPUTE "0,4096"
#define WF_RANGE_OUTLIER "0,1e9"
#define WF_RANGE_LORA "1,4096"
#define WF_RANGE_LORA_ALPHA "(0,1e6"

#endif

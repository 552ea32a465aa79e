/* SPDX-License-Identifier: MIT */
/*
 * events.h - event files for TensorBoard.
 *
 * A file is a sequence of TFRecords, each a protocol buffer message Event. The few fields needed
 * are encoded by hand, after TensorFlow's record_writer.h, event.proto, summary.proto and
 * tensor.proto.
 */
#ifndef WF_TRAIN_EVENTS_H
#define WF_TRAIN_EVENTS_H

#include "base/writer.h"

/* CRC-32C (Castagnoli, reflected) of bytes. */
uint32_t wf_events_crc32c(const void *bytes, size_t count);

typedef struct {
    const char *tag;
    double value; /* written as f32 */
} wf_events_scalar;

/* Each function appends complete records. `time` is in seconds since 1970. The writer keeps an
 * allocation failure. */

/* Starts a file. TensorBoard drops events of earlier files from `step` on. */
void wf_events_start(wf_writer *w, double time, int64_t step);
void wf_events_scalars(wf_writer *w, double time, int64_t step, const wf_events_scalar *s, int n);
/* Shown verbatim, line by line; must be valid UTF-8. */
void wf_events_text(wf_writer *w, double time, int64_t step, const char *tag, const char *text);

#endif

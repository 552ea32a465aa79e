/* SPDX-License-Identifier: MIT */
/*
 * events.h - records of an event file as TensorBoard reads them.
 *
 * A file is a row of TFRecords, each an Event message of protocol buffers, the few fields of which are written by
 * hand here; they are those of TensorFlow's record_writer.h, event.proto, summary.proto and tensor.proto.
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

/* Each appends whole records; `time` is in seconds since 1970. Running out of memory stays in the writer. */

/* What a file starts with. TensorBoard drops what earlier files say of the steps from `step` on. */
void wf_events_start(wf_writer *w, double time, int64_t step);
void wf_events_scalars(wf_writer *w, double time, int64_t step, const wf_events_scalar *s, int n);
/* Shown as it stands, line by line; valid UTF-8. */
void wf_events_text(wf_writer *w, double time, int64_t step, const char *tag, const char *text);

#endif

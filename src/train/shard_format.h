/* SPDX-License-Identifier: MIT */
/* shard_format.h - the header of a shard. Offsets are in bytes; numbers are little endian. */
#ifndef WF_TRAIN_SHARD_FORMAT_H
#define WF_TRAIN_SHARD_FORMAT_H

#include "train/shard.h"

#define WF_SHARD_MAGIC "WEFTDATA"
#define WF_SHARD_MASKED 1u /* flag */

enum {
    WF_AT_MAGIC = 0,     /* 8 bytes */
    WF_AT_VERSION = 8,   /* 4 */
    WF_AT_ID_BYTES = 12, /* 4 */
    WF_AT_VOCAB = 16,    /* 8, like all that follow except the flags */
    WF_AT_TOKENS = 24,
    WF_AT_DOCUMENTS = 32,
    WF_AT_BYTES = 40,
    WF_AT_COUNTED = 48,
    WF_AT_FLAGS = 56, /* 4, and 4 zeros */
    WF_AT_IDS = 64,
    WF_AT_STARTS = 72,
    WF_AT_MASK = 80,
    WF_AT_SIZE = 88,
    WF_AT_DATA_SUM = 96,
    WF_AT_ZEROS = 104,      /* 16 */
    WF_AT_HEADER_SUM = 120, /* of the 120 bytes before it */
};

/* Offsets of the parts, computed from the counts. Returns false if the size overflows. */
typedef struct {
    size_t ids, starts, mask /* 0: no mask */, size;
} wf_shard_layout;
bool wf_shard_lay_out(const wf_shard_info *info, wf_shard_layout *out);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * safetensors.h - safetensors files, single and sharded by an index: reading and writing.
 */
#ifndef WF_FORMAT_SAFETENSORS_H
#define WF_FORMAT_SAFETENSORS_H

#include "format/store.h"

/* Adds the tensors of one file to a store, which is to be sealed afterwards. */
wf_status wf_safetensors_read(wf_store *s, const char *path);
/* The same of a file that the store has mapped. */
wf_status wf_safetensors_read_file(wf_store *s, int file);
/* The same of all shards that an index (model.safetensors.index.json) names; each lies in the index's own
 * folder, and holds the tensors that the index says, and no others. */
wf_status wf_safetensors_read_index(wf_store *s, const char *path);

/* ---- Writing: tensors are declared, then the data comes in their order ---- */

typedef struct wf_safetensors_writer wf_safetensors_writer;

/* Makes the folder if need be, and writes FOLDER/STEM.safetensors (a model's weights have the stem "model") or,
 * when the tensors take more than shard_bytes (0: no limit), shards STEM-00001-of-0000N.safetensors and
 * STEM.safetensors.index.json. Files appear when all are whole; what was there in the other form is removed
 * then. */
wf_status wf_safetensors_write_new(wf_ctx *ctx, const char *folder, const char *stem,
                                   uint64_t shard_bytes, wf_safetensors_writer **out);
/* Plain types only. Data lies in the order of the calls without gaps: it is aligned when wider types come
 * first. */
wf_status wf_safetensors_write_tensor(wf_safetensors_writer *w, const char *name, wf_type type,
                                      const wf_dims *shape);
wf_status wf_safetensors_write_begin(wf_safetensors_writer *w);
/* In pieces of any size. */
wf_status wf_safetensors_write_data(wf_safetensors_writer *w, const void *data, size_t bytes);
wf_status wf_safetensors_write_end(wf_safetensors_writer *w);
/* How many files of weights there are, once begun. */
int wf_safetensors_write_files(const wf_safetensors_writer *w);
void wf_safetensors_write_free(wf_safetensors_writer *w);

#endif

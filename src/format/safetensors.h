/* SPDX-License-Identifier: MIT */
/*
 * safetensors.h - reads and writes safetensors files, single or sharded with an index.
 */
#ifndef WF_FORMAT_SAFETENSORS_H
#define WF_FORMAT_SAFETENSORS_H

#include "format/store.h"

/* Adds the tensors of one file to a store. The caller seals the store afterwards. */
wf_status wf_safetensors_read(wf_store *s, const char *path);
/* The same for a file that the store has mapped. */
wf_status wf_safetensors_read_file(wf_store *s, int file);
/* The same for all shards of an index (model.safetensors.index.json). Shards must be in the index's
 * folder and contain exactly the tensors that the index lists. */
wf_status wf_safetensors_read_index(wf_store *s, const char *path);

/* ---- Writing: declare tensors, begin, write the data in their order, end ---- */

typedef struct wf_safetensors_writer wf_safetensors_writer;

/* Writes FOLDER/STEM.safetensors (the stem of a model's weights is "model"), and creates the folder
 * if needed. Above shard_bytes (0: no limit) it writes shards STEM-00001-of-0000N.safetensors and
 * STEM.safetensors.index.json. Files get their names when all are complete. Then an old single file
 * or index, of the other form, is removed. */
wf_status wf_safetensors_write_new(wf_ctx *ctx, const char *folder, const char *stem,
                                   uint64_t shard_bytes, wf_safetensors_writer **out);
/* Declares a tensor of a plain type. Data is stored without gaps in the order of these calls;
 * declare wider types first to align it. */
wf_status wf_safetensors_write_tensor(wf_safetensors_writer *w, const char *name, wf_type type,
                                      const wf_dims *shape);
wf_status wf_safetensors_write_begin(wf_safetensors_writer *w);
/* Writes the next bytes, in pieces of any size. */
wf_status wf_safetensors_write_data(wf_safetensors_writer *w, const void *data, size_t bytes);
wf_status wf_safetensors_write_end(wf_safetensors_writer *w);
/* Returns the number of weight files, once begun. */
int wf_safetensors_write_files(const wf_safetensors_writer *w);
void wf_safetensors_write_free(wf_safetensors_writer *w);

#endif

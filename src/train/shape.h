/* SPDX-License-Identifier: MIT */
/* shape.h - the sizes of a new model: by name, by depth, or from a config.json. */
#ifndef WF_TRAIN_SHAPE_H
#define WF_TRAIN_SHAPE_H

#include "model/config.h"

/* Enumerates the presets with a one-line description. Returns false past the last index. */
bool wf_shape_preset(int index, const char **name, const char **doc);

/* Uses exactly one of preset, depth and config.json (NULL, 0, NULL: unused). `tokens` is the
 * tokenizer's vocabulary size, which is rounded up to suit matmuls. `length` is the context; 0: the
 * preset's, at most 1024. The arena owns the arrays. */
wf_status wf_shape_choose(wf_arena *arena, const char *preset, int64_t depth, const char *config,
                          int64_t tokens, int64_t length, wf_config *out);

/* Counts the elements of all weights. */
wf_status wf_shape_parameters(wf_ctx *ctx, const wf_config *c, int64_t *out);

#endif

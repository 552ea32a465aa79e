/* SPDX-License-Identifier: MIT */
/* shape.h - the sizes of a model that is trained from nothing: by name, by depth, or from a file. */
#ifndef WF_TRAIN_SHAPE_H
#define WF_TRAIN_SHAPE_H

#include "model/config.h"

/* A preset's name and a line about it; false past the last. */
bool wf_shape_preset(int index, const char **name, const char **doc);

/* From exactly one of preset, depth and config.json (NULL, 0, NULL: not that one). `tokens` of the tokenizer
 * become a vocabulary whose length suits products. `length` is the context, 0: the preset's own, at
 * most 1024. Arrays go into the arena. */
wf_status wf_shape_choose(wf_arena *arena, const char *preset, int64_t depth, const char *config,
                          int64_t tokens, int64_t length, wf_config *out);

/* Numbers in all weights. */
wf_status wf_shape_parameters(wf_ctx *ctx, const wf_config *c, int64_t *out);

#endif

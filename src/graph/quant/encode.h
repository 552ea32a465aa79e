/* SPDX-License-Identifier: MIT */
/* encode.h - what the files that make blocks share: one function for each type. */
#ifndef WF_GRAPH_QUANT_ENCODE_H
#define WF_GRAPH_QUANT_ENCODE_H

#include "graph/quant/block.h"

/* One block. x: its numbers, made finite; w: how much each counts, or NULL when all count alike. */
typedef void wf_encode_fn(const float *x, const float *w, void *block);

wf_encode_fn wf_encode_q4_k, wf_encode_q6_k;

#endif

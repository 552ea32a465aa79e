/* SPDX-License-Identifier: MIT */
/*
 * rows.h - the order of the rows of queries and keys within a head.
 *
 * Hugging Face's checkpoints have the halves of the pairs that rope turns apart from each other, GGUF files of
 * some families (wf_family.turned) beside each other.
 */
#ifndef WF_MODEL_ROWS_H
#define WF_MODEL_ROWS_H

#include "model/family.h"

typedef enum { WF_ROWS_AS_THEY_ARE, WF_ROWS_TO_PAIRS, WF_ROWS_FROM_PAIRS } wf_row_order;

/* How the rows of a weight change between two places, whose pairs are (2i, 2i + 1) or are not. `row` may be
 * NULL. */
wf_row_order wf_rows_order(const wf_config *config, const wf_weight_name *row, bool from_pairs,
                           bool to_pairs);
/* Row `row` as it is wanted is which row as it lies? */
int64_t wf_rows_source(const wf_config *config, wf_row_order order, int64_t row);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * rows.h - the order of query and key rows within a head.
 *
 * Hugging Face checkpoints store the two rows of a rope pair R/2 apart. GGUF files of some families
 * (wf_family.interleaved) store them next to each other.
 */
#ifndef WF_MODEL_ROWS_H
#define WF_MODEL_ROWS_H

#include "model/family.h"

typedef enum { WF_ROWS_AS_THEY_ARE, WF_ROWS_TO_PAIRS, WF_ROWS_FROM_PAIRS } wf_row_order;

/* Returns how the rows of a weight are reordered between two layouts; *_pairs: rows of a pair are
 * adjacent, (2i, 2i + 1). `row` may be NULL. */
wf_row_order wf_rows_order(const wf_config *config, const wf_weight_name *row, bool from_pairs,
                           bool to_pairs);
/* Returns the source row of row `row` in the new order. */
int64_t wf_rows_source(const wf_config *config, wf_row_order order, int64_t row);

#endif

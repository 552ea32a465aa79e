/* SPDX-License-Identifier: MIT */
/* rows.c - row orders of query and key weights. */
#include "model/rows.h"

wf_row_order wf_rows_order(const wf_config *config, const wf_weight_name *row, bool from_pairs,
                           bool to_pairs)
{
    if (!config->family->interleaved || !row || !(row->flags & WF_NAME_ROTATED) ||
        from_pairs == to_pairs)
        return WF_ROWS_AS_THEY_ARE;
    return to_pairs ? WF_ROWS_TO_PAIRS : WF_ROWS_FROM_PAIRS;
}

/* Permutes within a head; dimensions that rope does not rotate stay in place. */
int64_t wf_rows_source(const wf_config *config, wf_row_order order, int64_t row)
{
    int64_t half = config->rope[0].dims / 2, in_head = row % config->all.key_dim, from = in_head;
    if (order == WF_ROWS_AS_THEY_ARE || in_head >= 2 * half)
        return row;
    if (order == WF_ROWS_TO_PAIRS)
        from = in_head / 2 + in_head % 2 * half;
    else
        from = in_head < half ? 2 * in_head : 2 * (in_head - half) + 1;
    return row - in_head + from;
}

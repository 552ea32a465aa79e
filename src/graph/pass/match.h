/* SPDX-License-Identifier: MIT */
/* match.h - predicates on values and nodes that passes use to match patterns. */
#ifndef WF_GRAPH_PASS_MATCH_H
#define WF_GRAPH_PASS_MATCH_H

#include "graph/graph.h"

/* Returns the node that makes v if it has this op, else NULL. v may be NULL. */
static inline wf_node *wf_made_by(const wf_value *v, wf_op op)
{
    return v && v->node->op == op ? v->node : NULL;
}

/* If v is a fill, sets *out to its value, rounded to v's type; else returns false. */
bool wf_match_fill(const wf_value *v, double *out);
/* `value` as fill and cast store it in this type: floats round to nearest even; integers truncate
 * and saturate, and NaN becomes 0. */
double wf_match_stored(wf_type type, double value);
/* If every element of v is its index along one axis, returns that axis, counted from the last (0:
 * the last). Returns -1 for other values and for axes of fewer than two elements. */
int wf_match_index(const wf_value *v);
/* WF_CAUSAL: v is the mask column <= row over its last two axes [rows, columns]. WF_CAUSAL_HIDDEN:
 * v is its negation, row < column. */
typedef enum { WF_NOT_CAUSAL, WF_CAUSAL, WF_CAUSAL_HIDDEN } wf_causal;
wf_causal wf_match_causal(const wf_value *v, int64_t rows, int64_t columns);

#endif

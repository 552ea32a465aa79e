/* SPDX-License-Identifier: MIT */
/* match.h - small questions about nodes that passes ask when they look for a pattern. */
#ifndef WF_GRAPH_PASS_MATCH_H
#define WF_GRAPH_PASS_MATCH_H

#include "graph/graph.h"

/* The node that makes v when it is of this op, else NULL. v may be NULL. */
static inline wf_node *wf_made_by(const wf_value *v, wf_op op)
{
    return v && v->node->op == op ? v->node : NULL;
}

/* The number that every element of v is, as it is stored: rounded to v's type. false: v is no fill. */
bool wf_match_fill(const wf_value *v, double *out);
/* `value` as an element of this type, as fill and cast store it: floats round to nearest even,
 * integers take the whole part and saturate, NaN is 0 there. */
double wf_match_stored(wf_type type, double value);
/* i32 values that are nothing but the index along one axis. Returns that axis counted from the last
 * (0: the last), -1 when v is something else or the axis has fewer than two elements. */
int wf_match_index(const wf_value *v);
/* Whether v is u8 "column <= row" of the last two axes, [rows, columns], or its opposite. */
typedef enum { WF_NOT_CAUSAL, WF_CAUSAL, WF_CAUSAL_HIDDEN } wf_causal;
wf_causal wf_match_causal(const wf_value *v, int64_t rows, int64_t columns);

#endif

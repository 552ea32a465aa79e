/* SPDX-License-Identifier: MIT */
/* range.h - intervals written as text: "1,1024" closed, "0," without upper limit, "(0,1)" open. */
#ifndef WF_BASE_RANGE_H
#define WF_BASE_RANGE_H

#include <stdbool.h>

/* Two numbers of WF_TEXT_DOUBLE bytes and the words around them. */
#define WF_RANGE_WORDS 96

typedef struct {
    double low, high;  /* infinite: no limit */
    bool above, below; /* low, high themselves are excluded */
} wf_range;

/* Parses an interval from the program's own tables; malformed text fails an assertion. */
wf_range wf_range_read(const char *text);
/* Returns false for NaN. */
bool wf_range_has(const wf_range *r, double x);
/* " from 0 to 1", " above 0", " >= 0"; "" when every number is inside. Returns out. */
const char *wf_range_words(const wf_range *r, char out[WF_RANGE_WORDS]);

#endif

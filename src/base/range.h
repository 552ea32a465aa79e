/* SPDX-License-Identifier: MIT */
/* range.h - ranges of numbers, written as text: "1,1024", "0," without an end, "(0,1)" without its ends. */
#ifndef WF_BASE_RANGE_H
#define WF_BASE_RANGE_H

#include <stdbool.h>

#define WF_RANGE_WORDS 96

typedef struct {
    double low, high;  /* infinite: no limit */
    bool above, below; /* the end itself is outside */
} wf_range;

wf_range wf_range_read(const char *text);
/* false for NaN. */
bool wf_range_has(const wf_range *r, double x);
/* " from 0 to 1", " above 0", " from 0 on"; "" when every number is inside. Returns out. */
const char *wf_range_words(const wf_range *r, char out[WF_RANGE_WORDS]);

#endif

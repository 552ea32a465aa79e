/* SPDX-License-Identifier: MIT */
/* range.c - see range.h. */
#include "base/range.h"

#include <math.h>

#include "base/ctx.h"

wf_range wf_range_read(const char *text)
{
    const char *s = text;
    wf_range r = {.low = -INFINITY, .high = INFINITY, .above = *s == '('};
    s += r.above;
    if (*s != ',')
        wf_text_to_double(&s, &r.low);
    wf_assert(*s == ',');
    s++;
    if (*s && *s != ')')
        wf_text_to_double(&s, &r.high);
    r.below = *s == ')';
    return r;
}

bool wf_range_has(const wf_range *r, double x)
{
    return (r->above ? x > r->low : x >= r->low) && (r->below ? x < r->high : x <= r->high);
}

const char *wf_range_words(const wf_range *r, char out[WF_RANGE_WORDS])
{
    char low[WF_TEXT_DOUBLE], high[WF_TEXT_DOUBLE];
    size_t len = 0;
    out[0] = '\0';
    wf_text_from_double(low, r->low);
    wf_text_from_double(high, r->high);
    if (isfinite(r->low))
        wf_text_append(out, WF_RANGE_WORDS, &len, " %s %s",
                       r->above            ? "above"
                       : isfinite(r->high) ? "from"
                                           : ">=",
                       low);
    if (isfinite(r->high))
        wf_text_append(out, WF_RANGE_WORDS, &len, "%s %s",
                       r->below   ? " to below"
                       : r->above ? " up to"
                                  : " to",
                       high);
    return out;
}

/* SPDX-License-Identifier: MIT */
/*
 * pattern.h - regular expressions of tokenizers, matched as Oniguruma would, which Hugging Face uses.
 *
 * Built without PCRE2, none can be compiled.
 */
#ifndef WF_TEXT_PATTERN_H
#define WF_TEXT_PATTERN_H

#include "base/ctx.h"

typedef struct wf_pattern wf_pattern;

wf_status wf_pattern_new(wf_ctx *ctx, const char *text, size_t bytes, wf_pattern **out);
void wf_pattern_free(wf_pattern *p);

/* Matching, by one thread; the pattern itself may be shared. */
typedef struct wf_matcher wf_matcher;
wf_status wf_matcher_new(const wf_pattern *p, wf_ctx *ctx, wf_matcher **out);
void wf_matcher_free(wf_matcher *m);
/* The first match in s[from .. n) as s[*begin .. *end); *found false: there is none. s is valid UTF-8. A
 * search that would take too long is WF_ERR_UNSUPPORTED. */
wf_status wf_matcher_next(wf_matcher *m, const char *s, size_t n, size_t from, bool *found,
                          size_t *begin, size_t *end);

#endif

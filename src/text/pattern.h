/* SPDX-License-Identifier: MIT */
/*
 * pattern.h - regular expressions of tokenizers, with the semantics of Oniguruma, which Hugging
 * Face uses.
 *
 * Matching uses PCRE2. In a build without PCRE2, wf_pattern_new always fails.
 */
#ifndef WF_TEXT_PATTERN_H
#define WF_TEXT_PATTERN_H

#include "base/ctx.h"

typedef struct wf_pattern wf_pattern;

/* Compiles a pattern. WF_ERR_UNSUPPORTED, with the reason, if PCRE2 cannot express it. */
wf_status wf_pattern_new(wf_ctx *ctx, const char *text, size_t bytes, wf_pattern **out);
void wf_pattern_free(wf_pattern *p);

/* State of matching, for one thread. Threads may share the pattern. */
typedef struct wf_matcher wf_matcher;
wf_status wf_matcher_new(const wf_pattern *p, wf_ctx *ctx, wf_matcher **out);
void wf_matcher_free(wf_matcher *m);
/* Finds the first match in s[from .. n), s[*begin .. *end); *found is false if there is no match. s
 * must be valid UTF-8. A search that exceeds its step limit is WF_ERR_UNSUPPORTED. */
wf_status wf_matcher_next(wf_matcher *m, const char *s, size_t n, size_t from, bool *found,
                          size_t *begin, size_t *end);

#endif

/* SPDX-License-Identifier: MIT */
/* words.c - finds a word in a list. */
#include "base/words.h"

#include <string.h>

#include "base/text.h"

wf_status wf_words_find(wf_ctx *ctx, const char *what, const char *word, const char *const *words,
                        int count, int *out)
{
    char known[WF_MESSAGE_BYTES]; /* the message is cut at as many bytes */
    size_t len = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = i;
            return WF_OK;
        }
        wf_text_append(known, sizeof known, &len, "%s%s", i ? ", " : "", words[i]);
    }
    return wf_fail(ctx, WF_ERR_USAGE, "unknown %s '%s'; use one of: %s", what, word, known);
}

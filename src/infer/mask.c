/* SPDX-License-Identifier: MIT */
/* mask.c - see mask.h. */
#include "infer/mask.h"

#include "base/mem.h"

wf_status wf_mask_make(wf_ctx *ctx, const wf_tokenizer *t, int64_t vocab, wf_mask *out)
{
    size_t bytes, count = 0;
    int64_t limit = 0;
    *out = (wf_mask){.limit = vocab};
    for (int64_t i = 0; t && i < vocab; i++) {
        bool known = wf_tokenizer_token(t, (int32_t)i, &bytes) != NULL;
        count += !known;
        limit = known ? i + 1 : limit;
    }
    /* A tokenizer without any token would mask everything; then nothing is masked. */
    if (count == 0 || limit == 0)
        return WF_OK;
    out->ids = wf_mem_array(ctx, count, sizeof *out->ids);
    if (!out->ids)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < vocab; i++)
        if (!wf_tokenizer_token(t, (int32_t)i, &bytes))
            out->ids[out->count++] = (int32_t)i;
    out->limit = limit;
    out->holes = (int64_t)count > vocab - limit;
    return WF_OK;
}

void wf_mask_free(wf_ctx *ctx, wf_mask *m)
{
    wf_mem_free(ctx, m->ids);
    *m = (wf_mask){0};
}

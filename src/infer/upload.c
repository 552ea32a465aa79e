/* SPDX-License-Identifier: MIT */
/* upload.c - rope frequencies and adapters from the host into a session's states. */
#include "infer/upload.h"

#include "base/mem.h"
#include "device/device.h"

static wf_status upload_rope(wf_session *s, const wf_rotary *rope, int64_t context,
                             const char *state)
{
    wf_ctx *ctx = s->ctx;
    size_t bytes = (size_t)rope->dims / 2 * sizeof(float);
    float *inv_freq = wf_mem_new(ctx, bytes);
    if (!inv_freq)
        return WF_ERR_MEMORY;
    wf_rope_frequencies(rope, context, inv_freq);
    wf_status status = wf_session_write(s, state, inv_freq, bytes);
    wf_mem_free(ctx, inv_freq);
    return status;
}

wf_status wf_upload_frequencies(wf_session *s, const wf_config *c, int64_t context)
{
    for (int i = 0; i < c->ropes; i++)
        WF_TRY(upload_rope(s, &c->rope[i], context, wf_rope_state(i)));
    return WF_OK;
}

wf_status wf_upload_adapter(wf_session *s, const wf_adapter *a)
{
    wf_ctx *ctx = s->ctx;
    wf_info info;
    wf_status status = WF_OK;
    for (int i = 0; status == WF_OK && wf_adapter_tensor(a, i, &info); i++) {
        float *values = wf_mem_new(ctx, info.bytes);
        status = values ? wf_adapter_read(a, i, values) : WF_ERR_MEMORY;
        if (status == WF_OK)
            status = wf_session_write(s, info.name, values, info.bytes);
        wf_mem_free(ctx, values);
    }
    return status;
}

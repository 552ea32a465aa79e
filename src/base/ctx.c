/* SPDX-License-Identifier: MIT */
/* ctx.c - creates contexts, records failures, calls the log. */
#include "base/ctx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_ctx_new(wf_ctx **out)
{
    if (!out)
        return WF_ERR_USAGE;
    *out = calloc(1, sizeof **out); /* not wf_mem_new, which needs a context */
    return *out ? WF_OK : WF_ERR_MEMORY;
}

void wf_ctx_free(wf_ctx *ctx)
{
    if (!ctx)
        return;
    if (ctx->mem.live_blocks)
        wf_ctx_log(ctx, WF_LOG_WARN,
                   "context freed while %" PRIu64 " blocks (%" PRIu64 " bytes) are still allocated",
                   ctx->mem.live_blocks, ctx->mem.live_bytes);
    free(ctx);
}

/* ctx == NULL: wf_ctx_new failed, which happens only for lack of memory. */
wf_status wf_ctx_status(const wf_ctx *ctx)
{
    return ctx ? ctx->status : WF_ERR_MEMORY;
}

const char *wf_ctx_message(const wf_ctx *ctx)
{
    return ctx ? ctx->message : wf_status_string(WF_ERR_MEMORY);
}

void wf_ctx_clear(wf_ctx *ctx)
{
    ctx->status = WF_OK;
    ctx->message[0] = '\0';
}

void wf_ctx_set_log(wf_ctx *ctx, wf_log_fn *fn, void *user)
{
    ctx->log = fn;
    ctx->log_user = user;
}

static void compose(char out[WF_MESSAGE_BYTES], const char *fmt, va_list args) WF_PRINTF(2, 0);
/* Formats one line of UTF-8 without terminal control characters, whatever foreign text the
 * arguments contain. Uses a separate buffer, because the arguments may include the old message. */
static void compose(char out[WF_MESSAGE_BYTES], const char *fmt, va_list args)
{
    char raw[WF_MESSAGE_BYTES], one[WF_TEXT_ESCAPE];
    size_t len = 0, at = 0;
    wf_text_vappend(raw, sizeof raw, &len, fmt, args);
    out[0] = '\0';
    for (size_t i = 0; i < len;) {
        i += wf_text_escape(one, raw + i, len - i);
        wf_text_append(out, WF_MESSAGE_BYTES, &at, "%s", one);
    }
}

wf_status wf_fail(wf_ctx *ctx, wf_status status, const char *fmt, ...)
{
    wf_assert(status != WF_OK);

    char text[WF_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    compose(text, fmt, args);
    va_end(args);

    ctx->status = status;
    memcpy(ctx->message, text, strlen(text) + 1);
    if (ctx->log)
        ctx->log(ctx->log_user, WF_LOG_DEBUG, text);
    return status;
}

void wf_ctx_log(wf_ctx *ctx, wf_log_level level, const char *fmt, ...)
{
    if (!ctx->log)
        return;
    char text[WF_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    compose(text, fmt, args);
    va_end(args);
    ctx->log(ctx->log_user, level, text);
}

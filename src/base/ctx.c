/* SPDX-License-Identifier: MIT */
/* ctx.c - making contexts, and what they remember of failures. */
#include "base/ctx.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_ctx_new(wf_ctx **out)
{
    if (!out)
        return WF_ERR_USAGE;
    *out = calloc(1, sizeof **out); /* not by wf_mem_new: the accounting lives in here */
    return *out ? WF_OK : WF_ERR_MEMORY;
}

void wf_ctx_free(wf_ctx *ctx)
{
    if (!ctx)
        return;
    if (ctx->mem.live_blocks)
        wf_ctx_log(ctx, WF_LOG_WARN,
                   "context freed while %" PRIu64 " blocks (%" PRIu64 " bytes) live",
                   ctx->mem.live_blocks, ctx->mem.live_bytes);
    free(ctx);
}

/* Without a context the one thing known is that wf_ctx_new could not make it. */
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

/* Messages repeat names and texts from outside. Whatever these hold, a message is one line of UTF-8 that
 * no terminal takes for a command: breaks become spaces, other controls and broken characters '?'. */
static void make_printable(char *s)
{
    for (size_t left = strlen(s), n; left > 0; s += n, left -= n) {
        n = wf_text_utf8(s, left);
        bool high_control = n == 2 && s[0] == '\xC2' && (s[1] & 0x60) == 0;
        if (n == 0 || high_control || s[0] == 0x7F)
            s[0] = '?';
        else if (s[0] > 0 && s[0] < ' ')
            s[0] = strchr("\t\n\r", s[0]) ? ' ' : '?';
        if (high_control)
            s[1] = '?';
        n += n == 0;
    }
}

wf_status wf_fail(wf_ctx *ctx, wf_status status, const char *fmt, ...)
{
    wf_assert(status != WF_OK);

    /* Composed aside, because the old message may be among the arguments. */
    char text[WF_MESSAGE_BYTES];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    make_printable(text);

    ctx->status = status;
    memcpy(ctx->message, text, len + 1);
    if (ctx->log)
        ctx->log(ctx->log_user, WF_LOG_DEBUG, text);
    return status;
}

void wf_ctx_log(wf_ctx *ctx, wf_log_level level, const char *fmt, ...)
{
    if (!ctx->log)
        return;
    char text[WF_MESSAGE_BYTES];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    make_printable(text);
    ctx->log(ctx->log_user, level, text);
}

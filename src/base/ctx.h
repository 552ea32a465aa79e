/* SPDX-License-Identifier: MIT */
/* ctx.h - the context every call carries: its last failure, its log, its memory accounting.
 *
 * Runtime failures are returned as a wf_status and described in the context. The library's own
 * mistakes, and only those, are asserted. */
#ifndef WF_BASE_CTX_H
#define WF_BASE_CTX_H

#include <assert.h>

#include "base/text.h"
#include "weft.h"

#define WF_MESSAGE_BYTES 512

struct wf_ctx {
    wf_status status;               /* of the last failure; a later success leaves it */
    char message[WF_MESSAGE_BYTES]; /* one sentence; "" exactly when status is WF_OK */

    wf_log_fn *log; /* NULL: nobody listens */
    void *log_user;

    wf_mem_stats mem;       /* kept by mem.c */
    uint64_t fail_in_calls; /* allocations until one fails on purpose; 0 = never */
    uint64_t fail_in_io;    /* the same of calls that write files */
};

#define wf_assert(cond) assert(cond)

/* Passes a failure up. Only for functions that hold nothing; others go to their cleanup label. */
#define WF_TRY(expr)              \
    do {                          \
        wf_status wf_s_ = (expr); \
        if (wf_s_ != WF_OK)       \
            return wf_s_;         \
    } while (0)

/* Records a failure and returns its status, so that it reads `return wf_fail(ctx, ...)`. The
 * sentence starts in lower case, names the thing at fault and has no full stop. The arguments may
 * include the context's present message. Allocates nothing. */
wf_status wf_fail(wf_ctx *ctx, wf_status status, const char *fmt, ...) WF_PRINTF(3, 4);

/* For tests: the nth call from now (1 is the next) that makes, writes, syncs or renames a file fails once.
 * 0 calls it off. */
void wf_ctx_fail_io(wf_ctx *ctx, uint64_t nth);

void wf_ctx_log(wf_ctx *ctx, wf_log_level level, const char *fmt, ...) WF_PRINTF(3, 4);

#endif

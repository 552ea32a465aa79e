/* SPDX-License-Identifier: MIT */
/* ctx.h - the context that every call carries: last failure, log callback, memory accounting.
 *
 * Runtime failures are returned as a wf_status and described in the context. Only bugs of the
 * library itself are asserted. A context belongs to one thread at a time. */
#ifndef WF_BASE_CTX_H
#define WF_BASE_CTX_H

#include <assert.h>

#include "base/text.h"
#include "weft.h"

/* NUL included. Longer messages are cut and end in "...". */
#define WF_MESSAGE_BYTES 512

struct wf_ctx {
    wf_status status;               /* of the last failure; a later success leaves it */
    char message[WF_MESSAGE_BYTES]; /* one sentence; "" if and only if status is WF_OK */

    wf_log_fn *log; /* NULL: no log */
    void *log_user;

    wf_mem_stats mem;       /* maintained by mem.c */
    uint64_t fail_in_calls; /* fault injection: allocations until one fails; 0: off */
    uint64_t fail_in_io;    /* the same for calls that write files */
};

#define wf_assert(cond) assert(cond)

/* Returns a failure to the caller. Only for functions that own nothing at this point; others jump
 * to their cleanup. */
#define WF_TRY(expr)              \
    do {                          \
        wf_status wf_s_ = (expr); \
        if (wf_s_ != WF_OK)       \
            return wf_s_;         \
    } while (0)

/* Records a failure and returns its status: `return wf_fail(ctx, ...)`. The sentence starts in
 * lower case, names what is wrong with its value, then what to do, and has no full stop. The
 * arguments may include the context's current message. Allocates nothing. */
wf_status wf_fail(wf_ctx *ctx, wf_status status, const char *fmt, ...) WF_PRINTF(3, 4);

/* Fault injection for tests: the nth call from now (1: the next) that creates, writes, syncs or
 * renames a file fails once. 0 turns it off. */
void wf_ctx_fail_io(wf_ctx *ctx, uint64_t nth);

void wf_ctx_log(wf_ctx *ctx, wf_log_level level, const char *fmt, ...) WF_PRINTF(3, 4);

#endif

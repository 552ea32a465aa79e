/* SPDX-License-Identifier: MIT */
/*
 * fuzz.h - properties that all fuzz targets check: no leak, memory in proportion to the input, one
 * printable sentence after a failure, and clean handling of a failed allocation.
 */
#ifndef WEFT_FUZZ_H
#define WEFT_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/utf8.h"
#include "weft.h"

#define FUZZ_MOST 65536 /* limit of an input, bytes */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assert that stays in every build. */
#define fuzz_check(cond) \
    ((cond) ? (void)0    \
            : (fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #cond), abort()))

/* For a read that must succeed, unless an injected allocation failure occurred. */
#define fuzz_ok(ctx, expr) fuzz_ok_at(ctx, expr, __FILE__, __LINE__)
static inline bool fuzz_ok_at(wf_ctx *ctx, wf_status status, const char *file, int line)
{
    if (status == WF_OK || status == WF_ERR_MEMORY)
        return status == WF_OK;
    fprintf(stderr, "%s:%d: failed: %s\n", file, line, wf_ctx_message(ctx));
    abort();
}

/* Checks for one line of UTF-8 without control characters. */
static inline void fuzz_check_sentence(const char *s)
{
    size_t n = strlen(s);
    fuzz_check(n > 0 && wf_utf8_valid(s, n));
    for (size_t i = 0; i < n; i++)
        fuzz_check((uint8_t)s[i] >= ' ' && s[i] != 0x7F);
}

/* Reads all bytes, so that AddressSanitizer checks them. */
static inline void fuzz_touch(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        (void)((const volatile uint8_t *)from)[i];
}

/* Memory limit of an input. */
typedef struct {
    size_t base, per_byte;
} fuzz_room;

typedef void fuzz_fn(wf_ctx *ctx, const uint8_t *data, size_t size);

static inline uint64_t fuzz_once(fuzz_fn *fn, fuzz_room room, const uint8_t *data, size_t size,
                                 uint64_t fail_at)
{
    wf_ctx *ctx;
    wf_mem_stats mem;
    fuzz_check(wf_ctx_new(&ctx) == WF_OK);
    wf_ctx_fail_allocation(ctx, fail_at);
    fn(ctx, data, size);
    wf_ctx_mem_stats(ctx, &mem);
    fuzz_check(mem.live_blocks == 0);
    if (mem.peak_bytes > room.base + room.per_byte * size) {
        fprintf(stderr, "an input of %zu bytes takes %zu of memory\n", size,
                (size_t)mem.peak_bytes);
        abort();
    }
    if (wf_ctx_status(ctx) != WF_OK)
        fuzz_check_sentence(wf_ctx_message(ctx));
    wf_ctx_free(ctx);
    return mem.calls;
}

/* Runs an input and, for one in four, again with a failing allocation. Which allocation fails
 * depends only on the input, so that failures are reproducible. */
static inline int fuzz_run(fuzz_fn *fn, fuzz_room room, const uint8_t *data, size_t size)
{
    if (size > FUZZ_MOST)
        return 0;
    uint64_t calls = fuzz_once(fn, room, data, size, 0);
    uint64_t hash = wf_hash_fnv1a(WF_FNV1A, data, size);
    if (hash >> 62 == 0 && calls > 0)
        fuzz_once(fn, room, data, size, 1 + (hash >> 8) % calls);
    return 0;
}

#endif

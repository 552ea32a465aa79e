/* SPDX-License-Identifier: MIT */
/* check.h - arithmetic with overflow checks. The functions return false on overflow; otherwise *out
 * is exact. */
#ifndef WF_BASE_CHECK_H
#define WF_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool wf_add_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool wf_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool wf_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool wf_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Rounds n up to a multiple of alignment, a power of two. */
static inline bool wf_align_size(size_t n, size_t alignment, size_t *out)
{
    size_t top;
    if (!wf_add_size(n, alignment - 1, &top))
        return false;
    *out = top & ~(alignment - 1);
    return true;
}

#endif

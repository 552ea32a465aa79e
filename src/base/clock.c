/* SPDX-License-Identifier: MIT */
/* clock.c - the monotonic clock. */
#include "base/clock.h"

#include <time.h>

uint64_t wf_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* which POSIX systems have, so it cannot fail */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

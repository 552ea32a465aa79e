/* SPDX-License-Identifier: MIT */
/* clock.c - see clock.h. */
#include "base/clock.h"

#include <time.h>

uint64_t wf_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: every supported system has this clock */
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t wf_clock_now(void)
{
    return (int64_t)time(NULL);
}

/* An untrusted format is safe: strftime has no arguments to read but tm. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
size_t wf_clock_print(char *out, size_t bytes, const char *format, int64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    size_t n = localtime_r(&t, &tm) ? strftime(out, bytes, format, &tm) : 0;
    out[n] = '\0';
    return n;
}
#pragma GCC diagnostic pop

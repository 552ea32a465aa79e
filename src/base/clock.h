/* SPDX-License-Identifier: MIT */
/* clock.h - time for measuring, and the time of day. */
#ifndef WF_BASE_CLOCK_H
#define WF_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds since some fixed moment; never goes back. */
uint64_t wf_clock_ns(void);

/* Seconds since 1970. */
int64_t wf_clock_now(void);
/* Such a time in the local time zone by strftime's format, which may come from outside, into out[0 ..
 * bytes); how long it is without its NUL. "" when it does not fit or cannot be told. */
size_t wf_clock_print(char *out, size_t bytes, const char *format, int64_t seconds);

#endif

/* SPDX-License-Identifier: MIT */
/* clock.h - a monotonic clock and the time of day. */
#ifndef WF_BASE_CLOCK_H
#define WF_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary fixed moment. Monotonic. */
uint64_t wf_clock_ns(void);

/* Seconds since 1970-01-01 00:00 UTC. */
int64_t wf_clock_now(void);
/* Formats such a time in the local time zone with a strftime format, which may be untrusted.
 * Returns the length without the NUL; out is "" when the text does not fit into `bytes` or the time
 * cannot be converted. */
size_t wf_clock_print(char *out, size_t bytes, const char *format, int64_t seconds);

#endif

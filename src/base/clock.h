/* SPDX-License-Identifier: MIT */
/* clock.h - time for measuring. */
#ifndef WF_BASE_CLOCK_H
#define WF_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds since some fixed moment; never goes back. */
uint64_t wf_clock_ns(void);

#endif

/* SPDX-License-Identifier: MIT */
/*
 * sanitize.h - the address sanitizer: whether it is on, and checks of whole memory ranges.
 *
 * Checking each load of a hot inner loop takes most of a sanitized run. Such a loop is in a file
 * that is not instrumented, and its caller checks the ranges that it reads and writes, once. In
 * other builds the check is empty.
 */
#ifndef WF_BASE_SANITIZE_H
#define WF_BASE_SANITIZE_H

#include <stddef.h>

/* Whether this file is compiled with the address sanitizer: gcc and clang report it differently. */
#ifdef __SANITIZE_ADDRESS__
#define WF_ADDRESS_SANITIZER 1
#elif defined __has_feature
#define WF_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define WF_ADDRESS_SANITIZER 0
#endif

#if WF_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>

/* Fails with the sanitizer's report when one of the n bytes at p must not be accessed. */
static inline void wf_check_bytes(const void *p, size_t n)
{
    const volatile char *bad = n > 0 ? __asan_region_is_poisoned((void *)p, n) : NULL;
    if (bad)
        (void)*bad; /* this load is instrumented and reports the address */
}
#else
static inline void wf_check_bytes(const void *p, size_t n)
{
    (void)p, (void)n;
}
#endif

#endif

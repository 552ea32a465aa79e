/* SPDX-License-Identifier: MIT */
/*
 * sanitize.h - whether the address or thread sanitizer is on, and checks of whole memory ranges.
 *
 * Checking each load of a hot inner loop takes most of a sanitized run. Such a loop is in a file
 * that is not instrumented, and its caller checks the ranges that it reads and writes, once. In
 * other builds the check is empty.
 */
#ifndef WF_BASE_SANITIZE_H
#define WF_BASE_SANITIZE_H

#include <stddef.h>

/* Whether this file is compiled with a sanitizer, 1 or 0. gcc defines __SANITIZE_*; clang has
 * __has_feature. */
#ifdef __SANITIZE_ADDRESS__
#define WF_ADDRESS_SANITIZER 1
#elif defined __has_feature
#define WF_ADDRESS_SANITIZER __has_feature(address_sanitizer)
#else
#define WF_ADDRESS_SANITIZER 0
#endif
#ifdef __SANITIZE_THREAD__
#define WF_THREAD_SANITIZER 1
#elif defined __has_feature
#define WF_THREAD_SANITIZER __has_feature(thread_sanitizer)
#else
#define WF_THREAD_SANITIZER 0
#endif

#if WF_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>

/* Fails with the sanitizer's report when one of the n bytes at p must not be accessed. */
static inline void wf_check_bytes(const void *p, size_t n)
{
    const void *bad = n > 0 ? __asan_region_is_poisoned((void *)p, n) : NULL;
    if (bad)
        (void)*(const volatile char *)bad; /* this load is instrumented and reports the address */
}
#else
static inline void wf_check_bytes(const void *p, size_t n)
{
    (void)p, (void)n;
}
#endif

#endif

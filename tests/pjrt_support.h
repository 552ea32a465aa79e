/* SPDX-License-Identifier: MIT */
/* pjrt_support.h - what the tests of the pjrt device share. */
#ifndef WEFT_TESTS_PJRT_SUPPORT_H
#define WEFT_TESTS_PJRT_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>

/* How to open a real plugin: WEFT_PJRT_PLUGIN, or what tools/fetch_pjrt.sh brought. NULL when there is
 * none, which is said. */
const char *wt_real_plugin(void);

/* Whether the device is there; if not, why is said. */
bool wt_can_open(const char *device);

/* For groups of tests that compile the same graphs again and again: a folder for WEFT_CACHE. */
int wt_cache_setup(void **state);
int wt_cache_teardown(void **state);

/* Makes an empty folder and names it in WEFT_CACHE. */
void wt_make_cache(char *folder, size_t room);
/* The path of the only file in it. */
void wt_cache_file(const char *folder, char *path, size_t room);
void wt_remove_cache(const char *folder);

#endif

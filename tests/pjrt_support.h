/* SPDX-License-Identifier: MIT */
/* pjrt_support.h - helpers shared by the tests of the pjrt device. */
#ifndef WEFT_TESTS_PJRT_SUPPORT_H
#define WEFT_TESTS_PJRT_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>

/* Returns the device name of a real plugin: WEFT_PJRT_PLUGIN, or the plugin that
 * tools/fetch_pjrt.sh installed. Prints a message and returns NULL when the plugin is missing. */
const char *wt_real_plugin(void);

/* Returns whether the device opens. Prints the reason when it does not. */
bool wt_can_open(const char *device);

/* Group setup for tests that compile the same graphs repeatedly: points WEFT_CACHE at a folder. */
int wt_cache_setup(void **state);
int wt_cache_teardown(void **state);

/* Creates an empty folder and sets WEFT_CACHE to it. */
void wt_make_cache(char *folder, size_t room);
/* Writes the path of the only file in the cache folder to `path`. */
void wt_cache_file(const char *folder, char *path, size_t room);
void wt_remove_cache(const char *folder);

#endif

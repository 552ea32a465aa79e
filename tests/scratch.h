/* SPDX-License-Identifier: MIT */
/* scratch.h - a folder of its own for a test that writes files. To be included after cmocka.h. */
#ifndef WEFT_TESTS_SCRATCH_H
#define WEFT_TESTS_SCRATCH_H

#include <stddef.h>

typedef struct {
    char folder[128];
    char path[512]; /* of the last wt_path */
} wt_scratch;

void wt_scratch_make(wt_scratch *s);
/* Removes it and all that is in it. */
void wt_scratch_remove(wt_scratch *s);
/* FOLDER/NAME, valid until the next call. */
const char *wt_path(wt_scratch *s, const char *name);
/* Writes a file and returns its path. */
const char *wt_put(wt_scratch *s, const char *name, const void *bytes, size_t size);
const char *wt_put_text(wt_scratch *s, const char *name, const char *text);
/* How many entries the folder has. */
int wt_entries(wt_scratch *s);

#endif

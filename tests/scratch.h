/* SPDX-License-Identifier: MIT */
/* scratch.h - a scratch folder for a test that writes files. Include after cmocka.h. */
#ifndef WEFT_TESTS_SCRATCH_H
#define WEFT_TESTS_SCRATCH_H

#include <stddef.h>

typedef struct {
    char folder[128];
    char path[512]; /* result of the last wt_path */
} wt_scratch;

void wt_scratch_make(wt_scratch *s);
/* Removes the folder and its contents. */
void wt_scratch_remove(wt_scratch *s);
/* Returns FOLDER/NAME, valid until the next call. */
const char *wt_path(wt_scratch *s, const char *name);
/* Writes a file and returns its path. */
const char *wt_put(wt_scratch *s, const char *name, const void *bytes, size_t size);
const char *wt_put_text(wt_scratch *s, const char *name, const char *text);
/* Returns the number of entries in the folder. */
int wt_entries(wt_scratch *s);

#endif

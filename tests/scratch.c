/* SPDX-License-Identifier: MIT */
/* scratch.c - see scratch.h. */
#define _XOPEN_SOURCE 700 /* nftw */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "scratch.h"

void wt_scratch_make(wt_scratch *s)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(s->folder, sizeof s->folder, "%s/weft-test-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(s->folder));
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void wt_scratch_remove(wt_scratch *s)
{
    assert_int_equal(nftw(s->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *wt_path(wt_scratch *s, const char *name)
{
    int n = snprintf(s->path, sizeof s->path, "%s/%s", s->folder, name);
    assert_true(n > 0 && (size_t)n < sizeof s->path);
    return s->path;
}

const char *wt_put(wt_scratch *s, const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(wt_path(s, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return s->path;
}

const char *wt_put_text(wt_scratch *s, const char *name, const char *text)
{
    return wt_put(s, name, text, strlen(text));
}

int wt_entries(wt_scratch *s)
{
    DIR *dir = opendir(s->folder);
    int n = 0;
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

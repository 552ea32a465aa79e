/* SPDX-License-Identifier: MIT */
/* pjrt_support.c - finds real plugins and makes scratch folders for the program cache. */
#include "pjrt_support.h"

#include "core_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "weft.h"

const char *wt_real_plugin(void)
{
    static char spec[1024];
    const char *path = getenv("WEFT_PJRT_PLUGIN");
    if (!path)
        path = getenv("WEFT_TEST_PJRT");
    bool usable = path && access(path, R_OK) == 0;
#if WF_ADDRESS_SANITIZER
    usable = false; /* XLA's compiler leaks, and LeakSanitizer would report it as our leak */
#endif
    if (!usable) {
        print_message("skipped: there is no PJRT plugin, or it cannot be run here\n");
        return NULL;
    }
    snprintf(spec, sizeof spec, "pjrt:%s", path);
    return spec;
}

bool wt_can_open(const char *device)
{
    wf_ctx *ctx;
    wf_device *opened;
    if (wf_ctx_new(&ctx) != WF_OK)
        return false;
    bool ok = wt_device_open(ctx, device, &opened) == WF_OK;
    if (ok)
        wf_device_close(opened);
    else
        print_message("skipped: %s\n", wf_ctx_message(ctx));
    wf_ctx_free(ctx);
    return ok;
}

static char group_folder[1024];

int wt_cache_setup(void **state)
{
    (void)state;
    wt_make_cache(group_folder, sizeof group_folder);
    return 0;
}

int wt_cache_teardown(void **state)
{
    (void)state;
    wt_remove_cache(group_folder);
    return 0;
}

void wt_make_cache(char *folder, size_t room)
{
    const char *parent = getenv("TMPDIR");
    snprintf(folder, room, "%s/weft-cache-XXXXXX", parent ? parent : "/tmp");
    assert_non_null(mkdtemp(folder));
    setenv("WEFT_CACHE", folder, 1);
}

/* Calls fn, unless it is NULL, for every file. Returns the number of files; path holds the last
 * one. */
static int each_file(const char *folder, char *path, size_t room, int (*fn)(const char *path))
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            snprintf(path, room, "%s/%s", folder, e->d_name);
            assert_int_equal(fn ? fn(path) : 0, 0);
            n++;
        }
    closedir(dir);
    return n;
}

void wt_cache_file(const char *folder, char *path, size_t room)
{
    assert_int_equal(each_file(folder, path, room, NULL), 1);
}

void wt_remove_cache(const char *folder)
{
    char path[2048];
    each_file(folder, path, sizeof path, unlink);
    assert_int_equal(rmdir(folder), 0);
}

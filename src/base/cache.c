/* SPDX-License-Identifier: MIT */
/* cache.c - see cache.h. */
#include "base/cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/path.h"

const char *wf_cache_named(void)
{
    const char *folder = getenv("WEFT_CACHE");
    return folder && *folder ? folder : NULL;
}

/* Writes FOLDER/NAME to out and creates that folder if it is missing. */
static bool enter(wf_ctx *ctx, char out[WF_CACHE_PATH], const char *folder, const char *name)
{
    int n = snprintf(out, WF_CACHE_PATH, "%s/%s", folder, name);
    return n > 0 && n < WF_CACHE_PATH && wf_path_make_folder(ctx, out) == WF_OK;
}

bool wf_cache_folder(wf_ctx *ctx, char out[WF_CACHE_PATH])
{
    const char *named = wf_cache_named(), *caches = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char around[WF_CACHE_PATH];
    if (named) {
        int n = snprintf(out, WF_CACHE_PATH, "%s", named);
        return n > 0 && n < WF_CACHE_PATH;
    }
    if (caches && *caches == '/')
        return enter(ctx, out, caches, "weft");
    return home && *home == '/' && enter(ctx, around, home, ".cache") &&
           enter(ctx, out, around, "weft");
}

/* SPDX-License-Identifier: MIT */
/* cache.h - the folder for cache files: files that Weft can always create again. */
#ifndef WF_BASE_CACHE_H
#define WF_BASE_CACHE_H

#include "base/ctx.h"

/* Bytes of a path, NUL included; a longer one means no cache. */
#define WF_CACHE_PATH 4096

/* Returns the folder in the environment variable WEFT_CACHE, which must exist; NULL: the variable
 * is unset or empty. */
const char *wf_cache_named(void);
/* Returns wf_cache_named's folder; without it $XDG_CACHE_HOME/weft or $HOME/.cache/weft, created if
 * missing. false: no folder is available, and the caller does without a cache. */
bool wf_cache_folder(wf_ctx *ctx, char out[WF_CACHE_PATH]);

#endif

/* SPDX-License-Identifier: MIT */
/* cache.h - where files are kept that can be made again. */
#ifndef WF_BASE_CACHE_H
#define WF_BASE_CACHE_H

#include "base/ctx.h"

#define WF_CACHE_PATH 4096

/* The folder that WEFT_CACHE names, which must exist; NULL when it names none. */
const char *wf_cache_named(void);
/* That folder; else weft in XDG_CACHE_HOME or in .cache of HOME, which is made if need be. false: there is none. */
bool wf_cache_folder(wf_ctx *ctx, char out[WF_CACHE_PATH]);

#endif

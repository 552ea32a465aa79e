/* SPDX-License-Identifier: MIT */
/* lora.c - see lora.h. */
#include "cli/lora.h"

#include <math.h>
#include <string.h>

#include "base/path.h"

/* Returns the colon before the scale; NULL when there is no scale or the whole text is an existing
 * path. */
static const char *find_scale(const char *text)
{
    const char *colon = strrchr(text, ':');
    return colon && wf_path_look(text) == WF_PATH_NONE ? colon : NULL;
}

/* Parses FOLDER[:SCALE]. A scale of 0 is refused: it would be no adapter at all. */
static wf_status parse(wf_arena *arena, const char *text, wf_lora *out)
{
    const char *colon = find_scale(text), *number = colon ? colon + 1 : NULL;
    double scale = 1;
    if (number && (!wf_text_to_double(&number, &scale) || *number || !isfinite(scale) ||
                   (float)scale == 0 || !isfinite((float)scale)))
        return wf_fail(arena->ctx, WF_ERR_USAGE,
                       "--lora must be a folder, optionally with a nonzero scale as in "
                       "adapter:0.5, not '%s'",
                       text);
    char *path = wf_arena_copy(arena, text, strlen(text) + 1);
    if (!path)
        return WF_ERR_MEMORY;
    if (colon)
        path[colon - text] = '\0';
    *out = (wf_lora){.path = path, .scale = (float)scale};
    return WF_OK;
}

wf_status wf_lora_parse(wf_arena *arena, const wf_values *values, wf_lora *out)
{
    for (int i = 0; i < values->count; i++)
        WF_TRY(parse(arena, values->item[i], &out[i]));
    return WF_OK;
}

/* SPDX-License-Identifier: MIT */
/* path.h - paths and folders. */
#ifndef WF_BASE_PATH_H
#define WF_BASE_PATH_H

#include "base/arena.h"

typedef enum { WF_PATH_NONE, WF_PATH_FILE, WF_PATH_FOLDER, WF_PATH_OTHER } wf_path_kind;

/* What lies there, links followed. WF_PATH_NONE: nothing, or nothing that can be looked at. */
wf_path_kind wf_path_look(const char *path);
/* Is there certainly nothing under this name? false when that cannot be known, for want of permission for example. */
bool wf_path_missing(const char *path);
/* Is it a link, whatever to? */
bool wf_path_is_link(const char *path);
/* Is it a name of an open file, such as /dev/stdout? What it stands for belongs to the shell. */
bool wf_path_is_stream(const char *path);
/* Does it end so? */
bool wf_path_ends(const char *path, const char *end);
/* FOLDER/NAME in the arena; NULL when memory runs out. */
char *wf_path_join(wf_arena *arena, const char *folder, const char *name);
/* The folder that a path lies in, "." when it does not say; NULL when memory runs out. */
char *wf_path_parent(wf_arena *arena, const char *path);
/* Are they two names of one file or folder? false when one of them is not there. */
bool wf_path_same(const char *a, const char *b);
/* That there is nothing is fine. */
wf_status wf_path_remove(wf_ctx *ctx, const char *path);
/* Removes a folder if it is empty, and does nothing otherwise. */
void wf_path_remove_empty(const char *path);

/* The names in a folder, sorted, without "." and "..", in the arena. More than `limit` names are
 * WF_ERR_IO. */
wf_status wf_path_list(wf_arena *arena, const char *path, size_t limit, const char *const **names,
                       size_t *count);
/* That it is there already is fine; the folder around it must be. */
wf_status wf_path_make_folder(wf_ctx *ctx, const char *path);

#endif

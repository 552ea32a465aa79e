/* SPDX-License-Identifier: MIT */
/* path.h - paths and folders. */
#ifndef WF_BASE_PATH_H
#define WF_BASE_PATH_H

#include "base/arena.h"

typedef enum { WF_PATH_NONE, WF_PATH_FILE, WF_PATH_FOLDER, WF_PATH_OTHER } wf_path_kind;

/* Returns the kind of file, following links. WF_PATH_NONE: missing, or not accessible. */
wf_path_kind wf_path_look(const char *path);
/* Returns whether the path certainly does not exist; false when unknown (no permission, for
 * example). */
bool wf_path_missing(const char *path);
/* Returns whether the path is a symbolic link, dangling or not. */
bool wf_path_is_link(const char *path);
/* Returns whether the path names an open file, such as /dev/stdout. The shell owns its target. */
bool wf_path_is_stream(const char *path);
bool wf_path_ends(const char *path, const char *end);
/* Returns FOLDER/NAME in the arena; NULL: out of memory. */
char *wf_path_join(wf_arena *arena, const char *folder, const char *name);
/* Returns the folder part of a path, "." without a slash; NULL: out of memory. */
char *wf_path_parent(wf_arena *arena, const char *path);
/* Returns whether both paths name the same file or folder; false when either is missing. */
bool wf_path_same(const char *a, const char *b);
/* Removes a file. A missing file is not an error. */
wf_status wf_path_remove(wf_ctx *ctx, const char *path);
/* Removes a folder if it is empty; otherwise does nothing. */
void wf_path_remove_empty(const char *path);

/* Lists the names in a folder, sorted, without "." and "..", in the arena. More than `limit` names
 * are WF_ERR_IO. */
wf_status wf_path_list(wf_arena *arena, const char *path, size_t limit, const char *const **names,
                       size_t *count);
/* Creates a folder; its parent must exist. An existing folder is not an error. */
wf_status wf_path_make_folder(wf_ctx *ctx, const char *path);

#endif

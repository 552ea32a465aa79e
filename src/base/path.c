/* SPDX-License-Identifier: MIT */
/* path.c - see path.h. */
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

/* As wf_file_fail (file_priv.h). */
static wf_status fail_errno(wf_ctx *ctx, const char *verb, const char *path, int error)
{
    char why[128];
    if (strerror_r(error, why, sizeof why) != 0)
        why[0] = '\0';
    return wf_fail(ctx, error == ENOMEM ? WF_ERR_MEMORY : WF_ERR_IO, "cannot %s '%s': %s", verb,
                   path, why);
}

wf_path_kind wf_path_look(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return WF_PATH_NONE;
    return S_ISREG(st.st_mode)   ? WF_PATH_FILE
           : S_ISDIR(st.st_mode) ? WF_PATH_FOLDER
                                 : WF_PATH_OTHER;
}

bool wf_path_missing(const char *path)
{
    struct stat st;
    return lstat(path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

bool wf_path_is_stream(const char *path)
{
    return strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0 ||
           strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/proc/", 6) == 0;
}

bool wf_path_is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

bool wf_path_ends(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n >= m && strcmp(path + n - m, end) == 0;
}

char *wf_path_join(wf_arena *arena, const char *folder, const char *name)
{
    size_t n = strlen(folder), bytes = strlen(name) + 1;
    /* An empty folder adds no slash, so that the path stays relative. */
    bool slash = n > 0 && folder[n - 1] != '/';
    char *path = wf_arena_alloc(arena, n + slash + bytes);
    if (!path)
        return NULL;
    memcpy(path, folder, n);
    if (slash)
        path[n++] = '/';
    memcpy(path + n, name, bytes);
    return path;
}

char *wf_path_parent(wf_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return wf_arena_strdup(arena, ".");
    size_t n = slash == path ? 1 : (size_t)(slash - path); /* "/" itself stays */
    char *folder = wf_arena_alloc(arena, n + 1);
    if (folder)
        memcpy(folder, path, n);
    return folder;
}

wf_status wf_path_remove(wf_ctx *ctx, const char *path)
{
    return unlink(path) == 0 || errno == ENOENT ? WF_OK : fail_errno(ctx, "remove", path, errno);
}

/* Device and inode identify a file, whatever path or link leads to it. */
bool wf_path_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

void wf_path_remove_empty(const char *path)
{
    rmdir(path); /* fails when it is not empty, which is intended */
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

typedef struct {
    char **name; /* [room] allocated by wf_mem; the strings are in the arena */
    size_t count, room;
} name_list;

static wf_status add_name(wf_arena *arena, name_list *list, const char *name)
{
    if (list->count == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        char **grown = wf_mem_grow(arena->ctx, list->name, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        list->name = grown;
        list->room = room;
    }
    list->name[list->count] = wf_arena_strdup(arena, name);
    return list->name[list->count++] ? WF_OK : WF_ERR_MEMORY;
}

static wf_status read_names(wf_arena *arena, const char *path, DIR *dir, size_t limit,
                            name_list *list)
{
    for (;;) {
        /* readdir returns NULL both at the end and on failure; only errno distinguishes them. */
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno == 0 ? WF_OK : fail_errno(arena->ctx, "list", path, errno);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (list->count == limit)
            return wf_fail(arena->ctx, WF_ERR_IO, "cannot list '%s': it has more than %zu entries",
                           path, limit);
        WF_TRY(add_name(arena, list, entry->d_name));
    }
}

wf_status wf_path_list(wf_arena *arena, const char *path, size_t limit, const char *const **names,
                       size_t *count)
{
    *names = NULL;
    *count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return fail_errno(arena->ctx, "list", path, errno);
    name_list list = {0};
    wf_status status = read_names(arena, path, dir, limit, &list);
    closedir(dir);
    const char *const *copy = NULL;
    if (status == WF_OK) {
        if (list.count > 0)
            qsort(list.name, list.count, sizeof *list.name, compare_names);
        copy = wf_arena_copy(arena, list.name, list.count * sizeof *list.name);
        status = copy ? WF_OK : WF_ERR_MEMORY;
    }
    wf_mem_free(arena->ctx, list.name);
    *names = copy;
    *count = copy ? list.count : 0;
    return status;
}

/* Follows links when the path exists: a link to a folder is a folder. */
wf_status wf_path_make_folder(wf_ctx *ctx, const char *path)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && wf_path_look(path) == WF_PATH_FOLDER))
        return WF_OK;
    return fail_errno(ctx, "create the folder", path, errno);
}

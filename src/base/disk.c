/* SPDX-License-Identifier: MIT */
/*
 * disk.c - see disk.h.
 *
 * Recursion into folders is limited to DEPTH levels and to a number of entries per folder, so a
 * hostile or cyclic tree ends with a message. lstat, not stat, decides what is removed: a link to a
 * folder is unlinked, and the folder's contents stay.
 */
#include "base/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checksum.h"
#include "base/file_priv.h"
#include "base/mem.h"
#include "base/path.h"

#define DEPTH 16                     /* most nested folders */
#define ENTRIES ((size_t)1 << 20)    /* most entries of one folder that is removed */
#define MOST_ASIDE 10000             /* most backups of one name */
#define READ_BYTES ((size_t)1 << 18) /* bytes per read while computing a checksum */

const char *wf_disk_reason(int error, char *text, size_t bytes)
{
    if (strerror_r(error, text, bytes) != 0)
        snprintf(text, bytes, "error %d", error);
    return text;
}

wf_status wf_disk_sync(wf_ctx *ctx, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = fd < 0 ? errno : 0;
    if (error == 0 && wf_file_fault(ctx))
        error = EIO;
    /* File systems that cannot sync folders return EINVAL: ignored. */
    if (error == 0 && fsync(fd) != 0 && errno != EINVAL)
        error = errno;
    if (fd >= 0)
        close(fd);
    return error == 0 ? WF_OK : wf_file_fail(ctx, "sync", path, error);
}

wf_status wf_disk_rename(wf_ctx *ctx, const char *from, const char *to)
{
    int error = wf_file_fault(ctx) ? EIO : rename(from, to) != 0 ? errno : 0;
    if (error == 0)
        return WF_OK;
    char why[128];
    return wf_fail(ctx, WF_ERR_IO, "cannot rename '%s' to '%s': %s", from, to,
                   wf_disk_reason(error, why, sizeof why));
}

/* ---- Removing ---- */

static wf_status remove_at(wf_arena *arena, const char *path, int depth)
{
    struct stat st;
    wf_ctx *ctx = arena->ctx;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? WF_OK : wf_file_fail(ctx, "remove", path, errno);
    if (!S_ISDIR(st.st_mode))
        return wf_path_remove(ctx, path);
    if (depth == DEPTH)
        return wf_fail(ctx, WF_ERR_IO, "cannot remove '%s': folders are nested more than %d deep",
                       path, DEPTH);
    const char *const *names;
    size_t count;
    WF_TRY(wf_path_list(arena, path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *entry = wf_path_join(arena, path, names[i]);
        if (!entry)
            return WF_ERR_MEMORY;
        WF_TRY(remove_at(arena, entry, depth + 1));
    }
    return rmdir(path) == 0 || errno == ENOENT ? WF_OK : wf_file_fail(ctx, "remove", path, errno);
}

wf_status wf_disk_remove(wf_ctx *ctx, const char *path)
{
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    wf_status status = remove_at(&arena, path, 0);
    wf_arena_free(&arena);
    return status;
}

/* ---- Setting aside ---- */

wf_status wf_disk_set_aside(wf_arena *arena, const char *path, const char *as, const char **to)
{
    /* ".bak-", at most 10 digits and the NUL. */
    size_t room = strlen(as) + 24;
    char *name = wf_arena_alloc(arena, room);
    if (!name)
        return WF_ERR_MEMORY;
    for (int i = 1; i <= MOST_ASIDE; i++) {
        snprintf(name, room, "%s.bak-%d", as, i);
        if (!wf_path_missing(name))
            continue;
        *to = name;
        return wf_disk_rename(arena->ctx, path, name);
    }
    return wf_fail(arena->ctx, WF_ERR_IO,
                   "cannot rename '%s': all backup names up to '%s' exist; remove some", path,
                   name);
}

/* ---- Listing ---- */

typedef struct {
    wf_arena *arena;
    const char *folder;
    size_t limit, count, room;
    const char **name;
} listing;

static wf_status add_file(listing *l, const char *name)
{
    if (l->count == l->limit)
        return wf_fail(l->arena->ctx, WF_ERR_IO, "cannot list '%s': it has more than %zu files",
                       l->folder, l->limit);
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 16;
        const char **grown = wf_mem_grow(l->arena->ctx, l->name, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        l->name = grown;
        l->room = room;
    }
    l->name[l->count++] = name;
    return WF_OK;
}

/* Lists one folder. inside: its path relative to l->folder, "" for l->folder itself. The limit
 * applies to each folder's entries and, in add_file, to the files of all folders. */
static wf_status list_at(listing *l, const char *inside, int depth)
{
    const char *const *names, *path = wf_path_join(l->arena, l->folder, inside);
    size_t count;
    if (!path)
        return WF_ERR_MEMORY;
    if (depth == DEPTH)
        return wf_fail(l->arena->ctx, WF_ERR_IO,
                       "cannot list '%s': folders are nested more than %d deep", l->folder, DEPTH);
    WF_TRY(wf_path_list(l->arena, path, l->limit, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *name = *inside ? wf_path_join(l->arena, inside, names[i]) : names[i];
        const char *full = name ? wf_path_join(l->arena, l->folder, name) : NULL;
        if (!full)
            return WF_ERR_MEMORY;
        wf_path_kind kind = wf_path_look(full);
        if (kind != WF_PATH_FILE && kind != WF_PATH_FOLDER)
            return wf_fail(l->arena->ctx, WF_ERR_IO,
                           "cannot list '%s': '%s' is neither a file nor a folder", l->folder,
                           name);
        WF_TRY(kind == WF_PATH_FILE ? add_file(l, name) : list_at(l, name, depth + 1));
    }
    return WF_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

wf_status wf_disk_files(wf_arena *arena, const char *folder, size_t limit,
                        const char *const **names, size_t *count)
{
    listing l = {.arena = arena, .folder = folder, .limit = limit};
    wf_status status = list_at(&l, "", 0);
    *names = NULL;
    *count = 0;
    if (status == WF_OK) {
        if (l.count > 0)
            qsort(l.name, l.count, sizeof *l.name, compare_names);
        *names = wf_arena_copy(arena, l.name, l.count * sizeof *l.name);
        *count = *names ? l.count : 0;
        status = *names ? WF_OK : WF_ERR_MEMORY;
    }
    wf_mem_free(arena->ctx, l.name);
    return status;
}

/* ---- Checksums ---- */

/* Reads to the end of the file. Returns an errno value, or 0; *bytes counts what was read. */
static int sum_up(int fd, uint8_t *buffer, uint64_t *bytes, uint64_t *sum)
{
    wf_checksum_state state;
    wf_checksum_begin(&state);
    for (;;) {
        ssize_t n = read(fd, buffer, READ_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        wf_checksum_add(&state, buffer, (size_t)n);
        *bytes += (uint64_t)n;
    }
    *sum = wf_checksum_end(&state);
    return 0;
}

int wf_disk_checksum(const char *path, uint64_t *bytes, uint64_t *sum)
{
    *bytes = *sum = 0;
    struct stat st;
    int fd =
        open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: opening a pipe would block */
    if (fd < 0)
        return errno;
    int error = fstat(fd, &st) != 0    ? errno
                : S_ISDIR(st.st_mode)  ? EISDIR
                : !S_ISREG(st.st_mode) ? EINVAL
                                       : 0;
    uint8_t *buffer =
        error == 0 ? malloc(READ_BYTES) : NULL; /* not wf_mem: a context is not thread-safe */
    if (error == 0)
        error = buffer ? sum_up(fd, buffer, bytes, sum) : ENOMEM;
    free(buffer);
    close(fd);
    return error;
}

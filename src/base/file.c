/* SPDX-License-Identifier: MIT */
/*
 * file.c - see file.h.
 *
 * A replaced file is written under a temporary name in the same folder and renamed, so readers see
 * the old file or the new one. It is not synced: it survives a crash of the process, not of the
 * machine. For durable files see disk.h and sink.h.
 */
#ifdef __linux__
#define _DEFAULT_SOURCE /* madvise, the POSIX form of which does nothing */
#endif
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_priv.h"
#include "base/guard.h"
#include "base/mem.h"
#include "base/path.h"

wf_status wf_file_fail(wf_ctx *ctx, const char *verb, const char *path, int error)
{
    char why[128];
    if (strerror_r(error, why, sizeof why) != 0)
        why[0] = '\0';
    return wf_fail(ctx, error == ENOMEM ? WF_ERR_MEMORY : WF_ERR_IO, "cannot %s '%s': %s", verb,
                   path, why);
}

void wf_ctx_fail_io(wf_ctx *ctx, uint64_t nth)
{
    ctx->fail_in_io = nth;
}

bool wf_file_fault(wf_ctx *ctx)
{
    return ctx->fail_in_io && --ctx->fail_in_io == 0;
}

/* Opens anything but a directory, which open(2) would accept. extra: more flags for open. */
static wf_status file_open(wf_ctx *ctx, const char *path, int extra, int *fd, struct stat *st)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | extra);
    if (*fd < 0)
        return wf_file_fail(ctx, "open", path, errno);
    int error = fstat(*fd, st) != 0 ? errno : S_ISDIR(st->st_mode) ? EISDIR : 0;
    if (error == 0)
        return WF_OK;
    close(*fd);
    return wf_file_fail(ctx, "open", path, error);
}

static wf_status map_fd(wf_ctx *ctx, const char *path, int fd, const struct stat *st, wf_map *map)
{
    static const uint8_t empty[1]; /* mmap refuses a length of zero */
    if (!S_ISREG(st->st_mode))
        return wf_fail(ctx, WF_ERR_IO, "cannot map '%s': it is not a regular file", path);
    if ((uintmax_t)st->st_size > SIZE_MAX)
        return wf_fail(ctx, WF_ERR_IO, "cannot map '%s': it is larger than the address space",
                       path);

    map->size = (size_t)st->st_size;
    map->data = empty;
    map->guard = -1;
    if (map->size == 0)
        return WF_OK;
    void *data = mmap(NULL, map->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return wf_file_fail(ctx, "map", path, errno);
    map->data = data;
    map->guard = wf_guard_add(data, map->size);
    return WF_OK;
}

wf_status wf_map_open(wf_ctx *ctx, const char *path, wf_map **out)
{
    *out = NULL;
    int fd;
    struct stat st;
    WF_TRY(file_open(ctx, path, O_NONBLOCK, &fd, &st)); /* O_NONBLOCK: opening a pipe would block */

    wf_status status = WF_ERR_MEMORY;
    wf_map *map = wf_mem_new(ctx, sizeof *map);
    if (map) {
        map->ctx = ctx;
        status = map_fd(ctx, path, fd, &st, map);
    }
    close(fd); /* the mapping outlives it */
    if (status != WF_OK)
        wf_mem_free(ctx, map);
    else
        *out = map;
    return status;
}

void wf_map_close(wf_map *map)
{
    if (!map)
        return;
    wf_guard_remove(map->guard);
    if (map->size && !map->borrowed)
        munmap((void *)(uintptr_t)map->data, map->size);
    wf_mem_free(map->ctx, map);
}

wf_status wf_map_memory(wf_ctx *ctx, const uint8_t *data, size_t size, wf_map **out)
{
    *out = wf_mem_new(ctx, sizeof **out);
    if (!*out)
        return WF_ERR_MEMORY;
    **out = (wf_map){.data = data, .size = size, .ctx = ctx, .guard = -1, .borrowed = true};
    return WF_OK;
}

void wf_map_forget(const wf_map *map, size_t offset, size_t bytes)
{
#ifdef MADV_DONTNEED
    if (map->borrowed || map->size == 0)
        return;
    /* On a page fault the kernel may map the whole folio, up to 2 MB, and so bring back pages that
     * were dropped before. Drop whole 2 MB units; pages still needed fault in again. */
    const size_t around = 2 << 20;
    size_t begin = offset / around * around, end = (offset + bytes + around - 1) / around * around;
    /* `begin` is aligned to a page because the mapping is and because 2 MB is a multiple of every
     * page size in use. */
    madvise((void *)(map->data + begin), (end < map->size ? end : map->size) - begin,
            MADV_DONTNEED);
#else
    (void)map, (void)offset, (void)bytes;
#endif
}

bool wf_map_broken(const wf_map *map)
{
    return wf_guard_broken(map->guard);
}

/* Reads to the end, doubling the buffer: st_size is meaningless for pipes and /proc. The caller
 * frees *text, also after a failure. */
static wf_status read_fd(wf_ctx *ctx, const char *path, int fd, size_t limit, char **text,
                         size_t *size)
{
    size_t cap = 0;
    for (;;) {
        if (*size == cap) { /* cap <= limit + 1: room for one byte too many, or for the NUL */
            cap = cap ? cap : 2048;
            cap = cap <= limit / 2 ? cap * 2 : limit + 1;
            char *grown = wf_mem_grow(ctx, *text, cap);
            if (!grown)
                return WF_ERR_MEMORY;
            *text = grown;
        }
        ssize_t n = read(fd, *text + *size, cap - *size);
        if (n < 0 && errno != EINTR)
            return wf_file_fail(ctx, "read", path, errno);
        if (n > 0)
            *size += (size_t)n;
        if (*size > limit)
            return wf_fail(ctx, WF_ERR_FORMAT, "cannot read '%s': it is larger than %zu bytes",
                           path, limit);
        if (n == 0) {
            (*text)[*size] = '\0';
            return WF_OK;
        }
    }
}

wf_status wf_file_read(wf_ctx *ctx, const char *path, size_t limit, char **text, size_t *size)
{
    wf_assert(limit < SIZE_MAX);
    *text = NULL;
    *size = 0;
    int fd;
    struct stat st;
    WF_TRY(file_open(ctx, path, 0, &fd, &st));
    wf_status status = read_fd(ctx, path, fd, limit, text, size);
    close(fd);
    if (status != WF_OK) {
        wf_mem_free(ctx, *text);
        *text = NULL;
        *size = 0;
    }
    return status;
}

int wf_file_put(int fd, const wf_piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        const char *at = pieces[i].data;
        for (size_t left = pieces[i].bytes; left > 0;) {
            ssize_t written = write(fd, at, left);
            if (written < 0 && errno != EINTR)
                return errno;
            at += written > 0 ? written : 0;
            left -= written > 0 ? (size_t)written : 0;
        }
    }
    return 0;
}

/* Writes a temporary file and renames it. mkstemp creates it with mode 0600; mode is set before the
 * rename. */
static wf_status replace(wf_ctx *ctx, const char *path, const wf_piece *pieces, int n, mode_t mode)
{
    size_t bytes = strlen(path) + sizeof ".XXXXXX";
    char *name = wf_mem_new(ctx, bytes);
    if (!name)
        return WF_ERR_MEMORY;
    snprintf(name, bytes, "%s.XXXXXX", path);
    int fd = mkstemp(name), error = fd < 0 ? errno : wf_file_put(fd, pieces, n);
    if (error == 0 && wf_file_fault(ctx))
        error = EIO;
    if (error == 0 && fchmod(fd, mode) != 0)
        error = errno;
    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0 && rename(name, path) != 0)
        error = errno;
    if (error != 0 && fd >= 0)
        unlink(name);
    wf_mem_free(ctx, name);
    return error == 0 ? WF_OK : wf_file_fail(ctx, fd < 0 ? "create" : "write", path, error);
}

wf_status wf_file_replace(wf_ctx *ctx, const char *path, const wf_piece *pieces, int n)
{
    return replace(ctx, path, pieces, n, S_IRUSR | S_IWUSR);
}

mode_t wf_file_mode(void)
{
    /* A file that another thread creates between the two calls gets no mask. */
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static wf_status write_through(wf_ctx *ctx, const char *path, const wf_piece *piece)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666), error = fd < 0 ? errno : 0;
    if (error == 0)
        error = wf_file_put(fd, piece, 1);
    if (fd >= 0 && close(fd) != 0 && error == 0)
        error = errno;
    return error == 0 ? WF_OK : wf_file_fail(ctx, fd < 0 ? "open" : "write", path, error);
}

wf_status wf_file_write(wf_ctx *ctx, const char *path, const char *bytes, size_t size)
{
    const wf_piece piece = {bytes, size};
    struct stat st;
    /* lstat fails for a new file, too: it is then created by the rename. */
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode))
        return replace(ctx, path, &piece, 1, wf_file_mode());
    /* Replace the target of a link and keep the link. Never rename over the target of /dev/stdout:
     * the shell has it open. */
    char *real = S_ISLNK(st.st_mode) && !wf_path_is_stream(path) ? realpath(path, NULL) : NULL;
    bool file = real && stat(real, &st) == 0 && S_ISREG(st.st_mode);
    wf_status status =
        file ? replace(ctx, real, &piece, 1, wf_file_mode()) : write_through(ctx, path, &piece);
    free(real);
    return status;
}

wf_status wf_file_create(wf_ctx *ctx, const char *path, const char *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666), error = fd < 0 ? errno : 0;
    if (fd < 0 && error == EEXIST)
        return wf_fail(ctx, WF_ERR_USAGE, "'%s' already exists; choose another name", path);
    if (fd < 0)
        return wf_file_fail(ctx, "create", path, error);
    error = wf_file_fault(ctx) ? EIO : wf_file_put(fd, &(wf_piece){bytes, size}, 1);
    if (close(fd) != 0 && error == 0)
        error = errno;
    if (error == 0)
        return WF_OK;
    unlink(path);
    return wf_file_fail(ctx, "write", path, error);
}

bool wf_file_look(const char *path, wf_file_stamp *out)
{
    struct stat st;
    *out = (wf_file_stamp){0};
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    *out = (wf_file_stamp){(uint64_t)st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return true;
}

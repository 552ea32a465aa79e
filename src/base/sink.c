/* SPDX-License-Identifier: MIT */
/*
 * sink.c - see sink.h.
 *
 * Order of a commit: write all bytes, sync the file, close it, rename it, sync the folder. The file
 * is synced before the rename, so that after a power failure the final name never names a file with
 * missing bytes; the folder after it, so that the name itself is durable.
 */
#define _DEFAULT_SOURCE /* realpath */
#include "base/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file_priv.h"
#include "base/mem.h"

/* Bytes. Smaller writes are gathered into system calls of about this size; larger ones are passed
 * on directly. */
#define GATHER_BYTES ((size_t)1 << 20)

struct wf_sink {
    wf_ctx *ctx;
    char *path;      /* final path, links resolved */
    char *temporary; /* name until the commit; NULL: written in place, or committed */
    bool created;    /* `temporary` names a file of this sink */
    int fd;          /* -1: closed */
    char *gathered;  /* [GATHER_BYTES] write buffer, of which `count` bytes are used */
    size_t count;
};

/* Resolves links if the target exists: renaming onto a link would replace the link. Caller
 * frees. */
static char *follow(wf_ctx *ctx, const char *path)
{
    char *real = realpath(path, NULL);
    const char *from = real ? real : path;
    size_t bytes = strlen(from) + 1;
    char *copy = wf_mem_new(ctx, bytes);
    if (copy)
        memcpy(copy, from, bytes);
    free(real);
    return copy;
}

/* Returns false with errno set. */
static bool open_fd(wf_sink *s, bool in_place)
{
    if (in_place) {
        s->fd = open(s->path, O_WRONLY | O_CLOEXEC);
        return s->fd >= 0;
    }
    s->fd = mkstemp(s->temporary); /* mode 0600 */
    s->created = s->fd >= 0;
    return s->created && fcntl(s->fd, F_SETFD, FD_CLOEXEC) == 0 &&
           fchmod(s->fd, wf_file_mode()) == 0;
}

static wf_status prepare(wf_sink *s, const char *path)
{
    struct stat st;
    bool there = stat(path, &st) == 0, in_place = there && !S_ISREG(st.st_mode);
    if (there && S_ISDIR(st.st_mode))
        return wf_file_fail(s->ctx, "write", path, EISDIR);
    s->path = follow(s->ctx, path);
    s->gathered = s->path ? wf_mem_new(s->ctx, GATHER_BYTES) : NULL;
    if (!s->gathered)
        return WF_ERR_MEMORY;
    if (!in_place) {
        size_t bytes = strlen(s->path) + sizeof ".XXXXXX";
        s->temporary = wf_mem_new(s->ctx, bytes);
        if (!s->temporary)
            return WF_ERR_MEMORY;
        snprintf(s->temporary, bytes, "%s.XXXXXX", s->path);
    }
    if (wf_file_fault(s->ctx))
        return wf_file_fail(s->ctx, "create", path, EIO);
    return open_fd(s, in_place) ? WF_OK : wf_file_fail(s->ctx, "create", path, errno);
}

wf_status wf_sink_open(wf_ctx *ctx, const char *path, wf_sink **out)
{
    *out = NULL;
    wf_sink *s = wf_mem_new(ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->ctx = ctx;
    s->fd = -1;
    wf_status status = prepare(s, path);
    if (status == WF_OK)
        *out = s;
    else
        wf_sink_free(s);
    return status;
}

/* Writes at the file's current offset, with fault injection. */
static wf_status put(wf_sink *s, const void *data, size_t bytes)
{
    int error = wf_file_fault(s->ctx) ? EIO : wf_file_put(s->fd, &(wf_piece){data, bytes}, 1);
    return error == 0 ? WF_OK : wf_file_fail(s->ctx, "write", s->path, error);
}

wf_status wf_sink_write(wf_sink *s, const void *data, size_t bytes)
{
    wf_assert(s->fd >= 0);
    if (bytes > GATHER_BYTES - s->count) {
        WF_TRY(put(s, s->gathered, s->count));
        s->count = 0;
    }
    if (bytes >= GATHER_BYTES)
        return put(s, data, bytes);
    if (bytes > 0)
        memcpy(s->gathered + s->count, data, bytes);
    s->count += bytes;
    return WF_OK;
}

/* pwrite leaves the file offset at the end, so later writes append. Flushes first: the bytes to
 * overwrite may still be in the buffer. */
wf_status wf_sink_patch(wf_sink *s, uint64_t offset, const void *data, size_t bytes)
{
    wf_assert(s->fd >= 0);
    WF_TRY(put(s, s->gathered, s->count));
    s->count = 0;
    for (const char *from = data; bytes > 0;) {
        ssize_t n = pwrite(s->fd, from, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return wf_file_fail(s->ctx, "write", s->path, n < 0 ? errno : EIO);
        from += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return WF_OK;
}

wf_status wf_sink_seal(wf_sink *s)
{
    if (s->fd < 0)
        return WF_OK;
    WF_TRY(put(s, s->gathered, s->count));
    wf_mem_free(s->ctx, s->gathered); /* many sealed files may wait for their commit */
    s->gathered = NULL;
    s->count = 0;
    /* Pipes and devices, written in place, cannot be synced. */
    int error = wf_file_fault(s->ctx) ? EIO : s->temporary && fsync(s->fd) != 0 ? errno : 0;
    if (close(s->fd) != 0 && error == 0)
        error = errno;
    s->fd = -1;
    return error == 0 ? WF_OK : wf_file_fail(s->ctx, "write", s->path, error);
}

/* Syncs the folder, which makes the new name durable. File systems that cannot sync folders return
 * EINVAL: ignored. Returns an errno value, or 0. */
static int sync_folder(char *path)
{
    char *slash = strrchr(path, '/'), saved = slash ? slash[1] : '\0';
    if (slash)
        slash[1] = '\0';
    int fd = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error = fd >= 0 && fsync(fd) != 0 && errno != EINVAL ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (slash)
        slash[1] = saved;
    return error;
}

wf_status wf_sink_commit(wf_sink *s)
{
    WF_TRY(wf_sink_seal(s));
    if (!s->temporary)
        return WF_OK;
    if (wf_file_fault(s->ctx))
        return wf_file_fail(s->ctx, "write", s->path, EIO);
    if (rename(s->temporary, s->path) != 0)
        return wf_file_fail(s->ctx, "write", s->path, errno);
    wf_mem_free(s->ctx, s->temporary);
    s->temporary = NULL;
    int error = sync_folder(s->path);
    return error == 0 ? WF_OK : wf_file_fail(s->ctx, "write", s->path, error);
}

void wf_sink_free(wf_sink *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    /* Before mkstemp succeeds, the name may be that of a foreign file. */
    if (s->temporary && s->created)
        unlink(s->temporary);
    wf_mem_free(s->ctx, s->temporary);
    wf_mem_free(s->ctx, s->gathered);
    wf_mem_free(s->ctx, s->path);
    wf_mem_free(s->ctx, s);
}

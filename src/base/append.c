/* SPDX-License-Identifier: MIT */
/*
 * append.c - see append.h.
 *
 * `end` is the length that every complete write has reached. A failed write may leave bytes beyond
 * it, which are truncated at once or, if that fails too, before the next write.
 */
#include "base/append.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/file_priv.h"
#include "base/mem.h"

struct wf_append {
    wf_ctx *ctx;
    int fd;
    off_t end; /* length after the last complete write; -1: not a regular file (a pipe) */
    bool torn; /* bytes of a failed write may follow the end */
    char path[];
};

/* Truncates the bytes of a failed write. Returns false, with errno set, when they remain. */
static bool take_back(wf_append *a)
{
    if (a->torn && ftruncate(a->fd, a->end) != 0)
        return false;
    a->torn = false;
    return true;
}

wf_status wf_append_write(wf_append *a, const void *bytes, size_t count)
{
    int error = take_back(a) ? 0 : errno;
    if (error == 0)
        error = wf_file_put(a->fd, &(wf_piece){bytes, count}, 1);
    if (error == 0) {
        a->end += a->end < 0 ? 0 : (off_t)count;
        return WF_OK;
    }
    a->torn = a->end >= 0;
    take_back(a); /* if this fails, the next write tries again */
    return wf_file_fail(a->ctx, "write", a->path, error);
}

static wf_status look_at_end(wf_append *a, bool lines)
{
    struct stat st;
    char last = '\n';
    if (fstat(a->fd, &st) != 0)
        return wf_file_fail(a->ctx, "open", a->path, errno);
    a->end = S_ISREG(st.st_mode) ? st.st_size : -1;
    if (!lines || a->end <= 0)
        return WF_OK;
    if (pread(a->fd, &last, 1, a->end - 1) < 0)
        return wf_file_fail(a->ctx, "read", a->path, errno);
    /* Ends a half line that a crash left, so that the next record starts on its own line. */
    return last == '\n' ? WF_OK : wf_append_write(a, "\n", 1);
}

wf_status wf_append_open(wf_ctx *ctx, const char *path, bool lines, wf_append **out)
{
    *out = NULL;
    size_t bytes = strlen(path) + 1;
    wf_append *a = wf_mem_new(ctx, sizeof *a + bytes);
    if (!a)
        return WF_ERR_MEMORY;
    a->ctx = ctx;
    memcpy(a->path, path, bytes);
    /* O_RDWR, not O_WRONLY: look_at_end reads the last byte. */
    a->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    wf_status status = a->fd < 0 ? wf_file_fail(ctx, "open", path, errno) : look_at_end(a, lines);
    if (status == WF_OK)
        *out = a;
    else
        wf_append_close(a);
    return status;
}

void wf_append_close(wf_append *a)
{
    if (!a)
        return;
    if (a->fd >= 0)
        close(a->fd);
    wf_mem_free(a->ctx, a);
}

/* SPDX-License-Identifier: MIT */
/* lock.c - see lock.h. */
#define _DEFAULT_SOURCE /* flock */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file_priv.h"
#include "base/mem.h"

struct wf_lock {
    wf_ctx *ctx;
    /* Open while the lock is held: closing it releases the lock. */
    int fd;
};

#define HOLDER_BYTES 24 /* longest text that write_holder writes */

/* Returns whether this module wrote the file: it is empty, or has a process id and a newline. */
static bool is_own(int fd)
{
    char text[HOLDER_BYTES];
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > HOLDER_BYTES)
        return false;
    ssize_t n = pread(fd, text, sizeof text, 0);
    for (ssize_t i = 0; i < n; i++)
        if (i == n - 1 ? text[i] != '\n' : text[i] < '0' || text[i] > '9')
            return false;
    return n >= 0;
}

static int64_t read_holder(int fd)
{
    char text[32];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    int64_t holder = strtoll(text, NULL, 10);
    return holder > 0 ? holder : 0;
}

/* Writes the process id, for the messages of other processes; the lock itself does not need it. */
static int write_holder(int fd)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%" PRId64 "\n", (int64_t)getpid());
    if (ftruncate(fd, 0) != 0)
        return errno;
    /* The file offset is still 0: the file was only read with pread. */
    return wf_file_put(fd, &(wf_piece){text, (size_t)n}, 1);
}

/* Locks the open file without waiting and writes the process id. On failure the caller closes
 * fd. */
static wf_status take(wf_ctx *ctx, const char *path, int fd, int64_t *holder)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        if (error == EWOULDBLOCK) {
            *holder = read_holder(fd);
            return wf_fail(ctx, WF_ERR_USAGE, "'%s' is held by process %" PRId64, path, *holder);
        }
        if (error == ENOLCK || error == ENOTSUP || error == ENOSYS) {
            wf_ctx_log(
                ctx, WF_LOG_WARN,
                "cannot lock '%s': its file system has no locks; make sure that no other process "
                "writes there",
                path);
            break;
        }
        if (error != EINTR)
            return wf_file_fail(ctx, "lock", path, error);
    }
    if (!is_own(fd)) /* checked under the lock: no other process is writing its id */
        return wf_fail(
            ctx, WF_ERR_IO,
            "'%s' is not a lock file of Weft and would be overwritten; rename it, or choose "
            "another folder",
            path);
    int error = write_holder(fd);
    return error == 0 ? WF_OK : wf_file_fail(ctx, "write", path, error);
}

wf_status wf_lock_take(wf_ctx *ctx, const char *path, wf_lock **out, int64_t *holder)
{
    *out = NULL;
    *holder = 0;
    wf_lock *lock = wf_mem_new(ctx, sizeof *lock);
    if (!lock)
        return WF_ERR_MEMORY;
    lock->ctx = ctx;
    /* O_NOFOLLOW: a link could lead to any file. O_NONBLOCK: opening a pipe would block. */
    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    wf_status status = lock->fd >= 0 ? take(ctx, path, lock->fd, holder)
                       : errno == ELOOP
                           ? wf_fail(ctx, WF_ERR_IO,
                                     "cannot lock '%s': it is a symbolic link; remove it, or "
                                     "choose another folder",
                                     path)
                           : wf_file_fail(ctx, "create", path, errno);
    if (status == WF_OK) {
        *out = lock;
        return WF_OK;
    }
    if (lock->fd >= 0)
        close(lock->fd);
    wf_mem_free(ctx, lock);
    return status;
}

void wf_lock_release(wf_lock *lock)
{
    if (!lock)
        return;
    /* Remove the stale process id. A failure is harmless: the lock ends when the file is closed. */
    if (ftruncate(lock->fd, 0) != 0)
        wf_ctx_log(lock->ctx, WF_LOG_DEBUG, "cannot remove the process id from a lock file");
    close(lock->fd);
    wf_mem_free(lock->ctx, lock);
}

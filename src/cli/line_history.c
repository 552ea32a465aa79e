/* SPDX-License-Identifier: MIT */
/*
 * line_history.c - see line_history.h.
 *
 * Every access opens, locks and closes the file, so that concurrent programs lose no entries. The
 * file is trimmed in place: the kept entries are written to the start before the file is truncated,
 * so a crash duplicates entries but loses none.
 */
#include "cli/line_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/writer.h"

#define LOCK_TRIES 20          /* together 0.2 s, then the history is not used */
#define LOCK_PAUSE_NS 10000000 /* 10 ms */

/* ---- Entries in memory ---- */

/* Appends a copy; drops the oldest entry when full. Out of memory loses the entry only. */
static void remember(wf_line_history *h, const char *text, size_t bytes)
{
    char *copy = wf_mem_new(h->ctx, bytes + 1);
    if (!copy)
        return;
    memcpy(copy, text, bytes);
    if (h->count == WF_HISTORY_ENTRIES) {
        wf_mem_free(h->ctx, h->entry[0]);
        memmove(h->entry, h->entry + 1, (size_t)--h->count * sizeof *h->entry);
    }
    h->entry[h->count++] = copy;
}

/* Decodes a line of the file in place; drops control characters and invalid UTF-8. Returns its
 * length. */
static size_t decode(char *line, size_t bytes)
{
    size_t to = 0;
    for (size_t at = 0; at < bytes;) {
        size_t n = wf_text_utf8(line + at, bytes - at);
        unsigned char first = (unsigned char)line[at];
        if (first == '\\' && at + 1 < bytes && (line[at + 1] == 'n' || line[at + 1] == '\\')) {
            line[to++] = line[at + 1] == 'n' ? '\n' : '\\';
            at += 2;
            continue;
        }
        bool control = (first < ' ' && first != '\t') || first == 0x7F ||
                       (n == 2 && first == 0xC2 && (unsigned char)line[at + 1] < 0xA0);
        if (n > 0 && !control) {
            memmove(line + to, line + at, n);
            to += n;
        }
        at += n > 0 ? n : 1;
    }
    return to;
}

/* The inverse of decode: one line per entry. */
static void encode(wf_writer *w, const char *text)
{
    for (; *text; text++) {
        if (*text == '\n' || *text == '\\')
            wf_writer_char(w, '\\');
        wf_writer_char(w, *text == '\n' ? 'n' : *text);
    }
    wf_writer_char(w, '\n');
}

/* ---- The file ---- */

static bool lock(int fd)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (fcntl(fd, F_SETLK, &whole) == 0)
            return true;
        if (errno != EACCES && errno != EAGAIN && errno != EINTR)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = LOCK_PAUSE_NS}, NULL);
    }
    return false;
}

/* Opens and locks a regular file; -1: failed. Closing it unlocks it. */
static int open_file(const char *path, int flags, off_t *size)
{
    struct stat st;
    /* O_NONBLOCK: a FIFO of this name must not block the program. */
    int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !lock(fd) || fstat(fd, &st) != 0) {
        close(fd);
        return -1;
    }
    /* Typed texts are private. */
    if (st.st_mode & 077)
        fchmod(fd, 0600);
    *size = st.st_size;
    return fd;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno != EINTR)
            return false;
        text += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Keeps the newest entries, at most half of WF_HISTORY_BYTES. */
static void trim(wf_line_history *h, int fd)
{
    wf_writer w = {.ctx = h->ctx};
    size_t bytes = 0;
    int first = h->count;
    /* Escaping at most doubles an entry. */
    while (first > 0 && bytes + 2 * strlen(h->entry[first - 1]) < WF_HISTORY_BYTES / 2)
        bytes += 2 * strlen(h->entry[--first]) + 1;
    for (int i = first; i < h->count; i++)
        encode(&w, h->entry[i]);
    if (w.status == WF_OK && lseek(fd, 0, SEEK_SET) == 0 &&
        write_all(fd, w.text ? w.text : "", w.len) && ftruncate(fd, (off_t)w.len) != 0)
        h->path[0] = '\0'; /* stop writing, or the file would grow without limit */
    wf_mem_free(h->ctx, w.text);
}

static void load(wf_line_history *h)
{
    off_t size = 0;
    int fd = open_file(h->path, O_RDWR, &size);
    size_t want = size < (off_t)WF_HISTORY_BYTES ? (size_t)size : WF_HISTORY_BYTES, len = 0;
    char *text = fd >= 0 ? wf_mem_new(h->ctx, want + 1) : NULL;
    int lines = 0;
    if (!text)
        goto out;
    /* Reads the last `want` bytes of the file. */
    for (ssize_t n = 1; len < want && n > 0; len += n > 0 ? (size_t)n : 0)
        n = pread(fd, text + len, want - len, size - (off_t)want + (off_t)len);
    char *at = text, *end = text + len;
    if ((off_t)want < size) { /* drop the first, incomplete line */
        char *first = memchr(at, '\n', len);
        at = first ? first + 1 : end;
    }
    for (char *stop; at < end; at = stop + 1, lines++) {
        stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        size_t bytes = decode(at, (size_t)(stop - at));
        if (bytes > 0 && bytes <= WF_HISTORY_ENTRY_BYTES)
            remember(h, at, bytes);
    }
    if ((off_t)want < size || lines > 2 * WF_HISTORY_ENTRIES)
        trim(h, fd);
out:
    wf_mem_free(h->ctx, text);
    if (fd >= 0)
        close(fd);
}

static void append(const wf_line_history *h, const char *text)
{
    wf_writer w = {.ctx = h->ctx};
    off_t size;
    encode(&w, text);
    int fd = w.status == WF_OK ? open_file(h->path, O_RDWR | O_CREAT | O_APPEND, &size) : -1;
    char last = '\n';
    /* If a full disk truncated the last entry, start a new line. */
    if (fd >= 0 && size < 2 * (off_t)WF_HISTORY_BYTES &&
        (size == 0 || pread(fd, &last, 1, size - 1) == 1) &&
        (last == '\n' || write_all(fd, "\n", 1)) && !write_all(fd, w.text, w.len))
        errno = 0; /* not an error: the entry is in memory */
    if (fd >= 0)
        close(fd);
    wf_mem_free(h->ctx, w.text);
}

/* ---- The place ---- */

/* Appends a folder to the path and creates it if it is missing. */
static bool enter_folder(char path[WF_HISTORY_PATH], const char *name)
{
    size_t len = strlen(path);
    int n = snprintf(path + len, WF_HISTORY_PATH - len, "/%s", name);
    return n > 0 && (size_t)n < WF_HISTORY_PATH - len &&
           (mkdir(path, 0700) == 0 || errno == EEXIST);
}

bool wf_line_history_place(char path[WF_HISTORY_PATH])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool named = state && *state == '/';
    const char *from = named ? state : home;
    if (!from || *from != '/' || strlen(from) >= WF_HISTORY_PATH)
        return false;
    snprintf(path, WF_HISTORY_PATH, "%s", from);
    if (named ? mkdir(path, 0700) != 0 && errno != EEXIST
              : !enter_folder(path, ".local") || !enter_folder(path, "state"))
        return false;
    if (!enter_folder(path, "weft"))
        return false;
    size_t len = strlen(path);
    int n = snprintf(path + len, WF_HISTORY_PATH - len, "/chat_history");
    return n > 0 && (size_t)n < WF_HISTORY_PATH - len;
}

void wf_line_history_open(wf_ctx *ctx, const char *path, wf_line_history *h)
{
    *h = (wf_line_history){.ctx = ctx};
    if (!path || strlen(path) >= sizeof h->path)
        return;
    snprintf(h->path, sizeof h->path, "%s", path);
    if (*h->path)
        load(h);
}

void wf_line_history_add(wf_line_history *h, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes == 0 || (h->count > 0 && strcmp(h->entry[h->count - 1], text) == 0))
        return;
    remember(h, text, bytes);
    if (*h->path && bytes <= WF_HISTORY_ENTRY_BYTES)
        append(h, text);
}

void wf_line_history_close(wf_line_history *h)
{
    for (int i = 0; i < h->count; i++)
        wf_mem_free(h->ctx, h->entry[i]);
    h->count = 0;
}

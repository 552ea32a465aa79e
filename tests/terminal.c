/* SPDX-License-Identifier: MIT */
/* terminal.c - see terminal.h. */
#define _XOPEN_SOURCE 700 /* posix_openpt */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "terminal.h"

#define PATIENCE_MS 30000

void wt_terminal_start(wt_terminal *t, const char *commands)
{
    *t = (wt_terminal){.fd = posix_openpt(O_RDWR | O_NOCTTY)};
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    wt_terminal_resize(t, 80, 24);
    fflush(NULL);
    t->child = fork();
    assert_true(t->child >= 0);
    if (t->child > 0)
        return;
    setsid(); /* the terminal opened next becomes this session's */
    int slave = open(ptsname(t->fd), O_RDWR);
    if (slave < 0)
        _exit(99);
    for (int fd = 0; fd < 3; fd++)
        dup2(slave, fd);
    close(slave);
    close(t->fd);
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    execl("/bin/sh", "sh", "-c", commands, (char *)NULL);
    _exit(99);
}

void wt_terminal_resize(wt_terminal *t, int columns, int rows)
{
    struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)columns};
    assert_int_equal(ioctl(t->fd, TIOCSWINSZ, &size), 0);
}

void wt_terminal_type(wt_terminal *t, const char *keys)
{
    assert_int_equal(write(t->fd, keys, strlen(keys)), strlen(keys));
}

/* Returns false when every process that had the terminal open has ended. */
static bool read_more(wt_terminal *t)
{
    struct pollfd p = {.fd = t->fd, .events = POLLIN};
    if (poll(&p, 1, PATIENCE_MS) != 1)
        fail_msg("the terminal is silent after: %s", t->seen);
    assert_true(t->len + 1 < sizeof t->seen);
    ssize_t n = read(t->fd, t->seen + t->len, sizeof t->seen - 1 - t->len);
    t->len += n > 0 ? (size_t)n : 0;
    t->seen[t->len] = '\0';
    return n > 0;
}

const char *wt_terminal_await(wt_terminal *t, const char *text)
{
    static char got[sizeof t->seen];
    const char *found;
    while (!(found = strstr(t->seen, text)))
        if (!read_more(t))
            fail_msg("the terminal was closed and '%s' did not come after: %s", text, t->seen);
    size_t n = (size_t)(found - t->seen) + strlen(text);
    memcpy(got, t->seen, n);
    got[n] = '\0';
    memmove(t->seen, t->seen + n, t->len - n + 1);
    t->len -= n;
    return got;
}

int wt_terminal_end(wt_terminal *t)
{
    int status;
    while (read_more(t))
        ;
    assert_int_equal(waitpid(t->child, &status, 0), t->child);
    close(t->fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* SPDX-License-Identifier: MIT */
/*
 * keys.c - see keys.h.
 *
 * Signal handlers only write the signal's number to a pipe. The reader waits for the pipe and the
 * terminal together, so it does not matter which thread a signal reaches.
 */
#include "cli/keys.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "base/mem.h"

#ifndef SIGWINCH
#define SIGWINCH 28
#endif

#define PASTE_ON "\x1b[?2004h"
#define PASTE_OFF "\x1b[?2004l"

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
enum { WATCHED = sizeof watched / sizeof *watched };

struct wf_keys {
    wf_ctx *ctx;
    struct termios saved, raw;        /* the modes before, and while keys are read */
    struct sigaction before[WATCHED]; /* restored by wf_keys_end */
    int pipe[2];                      /* handlers write, the reader polls */
    bool active;
    bool pasting; /* bracketed paste is on */
    unsigned char in[4096];
    size_t at, len; /* of in */
};

static volatile sig_atomic_t wake = -1; /* write end of the pipe */

/* Async-signal-safe: only write, and errno restored. */
static void on_signal(int number)
{
    int error = errno;
    unsigned char byte = (unsigned char)number;
    if (write(wake, &byte, 1) < 0)
        byte = 0; /* the pipe is full, so the reader is awake */
    errno = error;
}

static void put(const char *text)
{
    fputs(text, stderr);
    fflush(stderr);
}

/* Installs the handlers, except for signals that are ignored. */
static void watch(wf_keys *k)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    wake = k->pipe[1];
    for (int i = 0; i < WATCHED; i++) {
        sigaction(watched[i], NULL, &k->before[i]);
        if (k->before[i].sa_handler != SIG_IGN)
            sigaction(watched[i], &action, NULL);
    }
}

wf_status wf_keys_begin(wf_keys *k)
{
    if (tcgetattr(STDIN_FILENO, &k->saved) != 0)
        return wf_fail(k->ctx, WF_ERR_IO, "cannot set up the terminal: %s", strerror(errno));
    k->raw = k->saved;
    /* No echo, no lines, no signals from keys, no translation of \r: Ctrl-C and Enter arrive as
     * bytes. */
    k->raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG | IEXTEN);
    k->raw.c_iflag &= ~(tcflag_t)(ICRNL | IXON | ISTRIP);
    k->raw.c_cc[VMIN] = 1;
    k->raw.c_cc[VTIME] = 0;
    watch(k); /* first, so that no signal leaves the terminal in raw mode */
    k->active = true;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &k->raw); /* TCSADRAIN keeps pending input */
    return WF_OK;
}

void wf_keys_end(wf_keys *k)
{
    if (!k->active)
        return;
    if (k->pasting)
        put(PASTE_OFF);
    k->pasting = k->active = false;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &k->saved);
    for (int i = 0; i < WATCHED; i++)
        sigaction(watched[i], &k->before[i], NULL);
}

/* Restores the terminal before stopping, and sets it up again when the program continues. */
wf_status wf_keys_suspend(wf_keys *k, bool group)
{
    struct sigaction stop;
    wf_keys_end(k);
    sigaction(SIGTSTP, NULL, &stop);
    if (stop.sa_handler != SIG_IGN) /* without job control, nothing could continue the program */
        kill(group ? 0 : getpid(), SIGTSTP);
    return wf_keys_begin(k);
}

/* Handles a signal. Returns the result for wf_keys_next, or 0. */
static int take_signal(wf_keys *k)
{
    unsigned char number;
    if (read(k->pipe[0], &number, 1) != 1)
        return 0;
    if (number == SIGWINCH)
        return WF_KEYS_RESIZED;
    if (number == SIGTSTP)
        return WF_KEYS_SUSPEND;
    if (number ==
        SIGCONT) { /* after SIGSTOP, which cannot be caught: the shell has reset the terminal */
        k->pasting = false;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &k->raw);
        return WF_KEYS_CONTINUED;
    }
    wf_keys_end(k);
    put("\n");
    raise(number);
    return WF_KEYS_END; /* the signal was handled elsewhere */
}

/* Reads what is available; false: end of input. */
static bool fill(wf_keys *k)
{
    ssize_t n = read(STDIN_FILENO, k->in, sizeof k->in);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return true;
    k->at = 0;
    k->len = n > 0 ? (size_t)n : 0;
    return n > 0;
}

/* Turns bracketed paste on lazily, since the terminal may have been reset. */
int wf_keys_next(wf_keys *k, int timeout_ms)
{
    if (!k->pasting)
        put(PASTE_ON);
    k->pasting = true;
    while (k->at == k->len) {
        struct pollfd from[] = {{.fd = k->pipe[0], .events = POLLIN},
                                {.fd = STDIN_FILENO, .events = POLLIN}};
        int ready = poll(from, 2, timeout_ms);
        if (ready == 0)
            return WF_KEYS_NONE;
        if (ready < 0 && errno != EINTR)
            return WF_KEYS_END;
        int event = ready > 0 && from[0].revents ? take_signal(k) : 0;
        if (event != 0)
            return event;
        if (ready > 0 && from[1].revents && !fill(k))
            return WF_KEYS_END;
    }
    return k->in[k->at++];
}

bool wf_keys_pending(const wf_keys *k)
{
    return k->at < k->len;
}

wf_status wf_keys_new(wf_ctx *ctx, wf_keys **out)
{
    wf_keys *k = *out = wf_mem_new(ctx, sizeof *k);
    if (!k)
        return WF_ERR_MEMORY;
    k->ctx = ctx;
    if (pipe(k->pipe) != 0) {
        wf_mem_free(ctx, k);
        *out = NULL;
        return wf_fail(ctx, WF_ERR_IO, "cannot create a pipe: %s", strerror(errno));
    }
    for (int i = 0; i < 2; i++) {
        fcntl(k->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(k->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    return WF_OK;
}

void wf_keys_free(wf_keys *k)
{
    if (!k)
        return;
    wf_keys_end(k);
    wake = -1;
    close(k->pipe[0]);
    close(k->pipe[1]);
    wf_mem_free(k->ctx, k);
}
